//! Which commands there are, and REPORT SUPPORTED OPERATION CODES (SPC-4
//! 6.35), by which initiators ask for them.

use super::cdb::Cdb;
use super::sense::INVALID_FIELD_IN_CDB;
use crate::executor::Sense;

/// TEST UNIT READY
pub const TEST_UNIT_READY: u8 = 0x00;
/// REQUEST SENSE
pub const REQUEST_SENSE: u8 = 0x03;
/// READ(6)
pub const READ_6: u8 = 0x08;
/// WRITE(6)
pub const WRITE_6: u8 = 0x0a;
/// INQUIRY
pub const INQUIRY: u8 = 0x12;
/// MODE SENSE(6)
pub const MODE_SENSE_6: u8 = 0x1a;
/// START STOP UNIT
pub const START_STOP_UNIT: u8 = 0x1b;
/// READ CAPACITY(10)
pub const READ_CAPACITY_10: u8 = 0x25;
/// READ(10)
pub const READ_10: u8 = 0x28;
/// WRITE(10)
pub const WRITE_10: u8 = 0x2a;
/// VERIFY(10)
pub const VERIFY_10: u8 = 0x2f;
/// SYNCHRONIZE CACHE(10)
pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
/// WRITE SAME(10)
pub const WRITE_SAME_10: u8 = 0x41;
/// UNMAP
pub const UNMAP: u8 = 0x42;
/// MODE SENSE(10)
pub const MODE_SENSE_10: u8 = 0x5a;
/// READ(16)
pub const READ_16: u8 = 0x88;
/// WRITE(16)
pub const WRITE_16: u8 = 0x8a;
/// VERIFY(16)
pub const VERIFY_16: u8 = 0x8f;
/// SYNCHRONIZE CACHE(16)
pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
/// WRITE SAME(16)
pub const WRITE_SAME_16: u8 = 0x93;
/// SERVICE ACTION IN(16)
pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
/// READ CAPACITY(16), a service action of it
pub const READ_CAPACITY_16: u8 = 0x10;
/// REPORT LUNS
pub const REPORT_LUNS: u8 = 0xa0;
/// MAINTENANCE IN
pub const MAINTENANCE_IN: u8 = 0xa3;
/// REPORT SUPPORTED OPERATION CODES, a service action of it
pub const REPORT_SUPPORTED_OPCODES: u8 = 0x0c;
/// READ(12)
pub const READ_12: u8 = 0xa8;
/// WRITE(12)
pub const WRITE_12: u8 = 0xaa;

/// A command that is supported.
pub struct Supported {
    /// Its operation code.
    pub opcode: u8,
    /// Its service action, where the operation code has several.
    pub action: Option<u8>,
    /// Which bits of the block are looked at; as long as the block. Byte 0 is
    /// the operation code instead.
    usage: &'static [u8],
}

const fn plain(opcode: u8, usage: &'static [u8]) -> Supported {
    Supported {
        opcode,
        action: None,
        usage,
    }
}

const fn action(opcode: u8, action: u8, usage: &'static [u8]) -> Supported {
    Supported {
        opcode,
        action: Some(action),
        usage,
    }
}

/// Bits of the blocks that have an address and a length.
const BLOCKS_6: &[u8] = &[0, 0x1f, 255, 255, 255, 0];
const BLOCKS_10: &[u8] = &[0, 0x18, 255, 255, 255, 255, 0, 255, 255, 0];
const BLOCKS_12: &[u8] = &[0, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0];
const BLOCKS_16: &[u8] = &[
    0, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0,
];

/// Every command that is supported.
pub const SUPPORTED: &[Supported] = &[
    plain(TEST_UNIT_READY, &[0; 6]),
    plain(REQUEST_SENSE, &[0, 0, 0, 0, 255, 0]),
    plain(READ_6, BLOCKS_6),
    plain(WRITE_6, BLOCKS_6),
    plain(INQUIRY, &[0, 1, 255, 255, 255, 0]),
    plain(MODE_SENSE_6, &[0, 8, 255, 255, 255, 0]),
    plain(START_STOP_UNIT, &[0, 1, 0, 0, 0xf7, 0]),
    plain(READ_CAPACITY_10, &[0; 10]),
    plain(READ_10, BLOCKS_10),
    plain(WRITE_10, BLOCKS_10),
    plain(VERIFY_10, BLOCKS_10),
    plain(
        SYNCHRONIZE_CACHE_10,
        &[0, 2, 255, 255, 255, 255, 0, 255, 255, 0],
    ),
    plain(
        WRITE_SAME_10,
        &[0, 0x18, 255, 255, 255, 255, 0, 255, 255, 0],
    ),
    plain(UNMAP, &[0, 0, 0, 0, 0, 0, 0, 255, 255, 0]),
    plain(MODE_SENSE_10, &[0, 8, 255, 255, 0, 0, 0, 255, 255, 0]),
    plain(READ_16, BLOCKS_16),
    plain(WRITE_16, BLOCKS_16),
    plain(VERIFY_16, BLOCKS_16),
    plain(
        SYNCHRONIZE_CACHE_16,
        &[
            0, 2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0,
        ],
    ),
    plain(
        WRITE_SAME_16,
        &[
            0, 0x19, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0,
        ],
    ),
    action(
        SERVICE_ACTION_IN_16,
        READ_CAPACITY_16,
        &[0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0],
    ),
    plain(REPORT_LUNS, &[0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 0, 0]),
    action(
        MAINTENANCE_IN,
        REPORT_SUPPORTED_OPCODES,
        &[0, 0x1f, 7, 255, 255, 255, 255, 255, 255, 255, 0, 0],
    ),
    plain(READ_12, BLOCKS_12),
    plain(WRITE_12, BLOCKS_12),
];

/// Data of REPORT SUPPORTED OPERATION CODES.
///
/// # Errors
/// For forms of the question that do not exist.
pub fn report(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    let (opcode, asked) = (cdb.byte(3), cdb.be16(4));
    let has_actions = SUPPORTED
        .iter()
        .any(|command| command.opcode == opcode && command.action.is_some());
    match cdb.byte(2) & 7 {
        0 => Ok(all()),
        1 if !has_actions => Ok(one(opcode, None)),
        2 if has_actions => Ok(one(opcode, Some(asked))),
        3 => Ok(one(opcode, has_actions.then_some(asked))),
        _ => Err(INVALID_FIELD_IN_CDB),
    }
}

fn all() -> Vec<u8> {
    const DESCRIPTOR: usize = 8;
    const SERVICE_ACTION_VALID: u8 = 1;
    let mut data = ((SUPPORTED.len() * DESCRIPTOR) as u32)
        .to_be_bytes()
        .to_vec();
    for command in SUPPORTED {
        data.extend([command.opcode, 0, 0, command.action.unwrap_or(0), 0]);
        data.push(if command.action.is_some() {
            SERVICE_ACTION_VALID
        } else {
            0
        });
        data.extend((command.usage.len() as u16).to_be_bytes());
    }
    data
}

fn one(opcode: u8, action: Option<u16>) -> Vec<u8> {
    const NOT_SUPPORTED: u8 = 1;
    const AS_THE_STANDARD: u8 = 3;
    let found = SUPPORTED
        .iter()
        .find(|command| command.opcode == opcode && command.action.map(u16::from) == action);
    let Some(command) = found else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let mut data = vec![0, AS_THE_STANDARD];
    data.extend((command.usage.len() as u16).to_be_bytes());
    data.push(opcode);
    data.extend(command.usage.iter().skip(1));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_finds_write_same_supported() {
        for opcode in [WRITE_SAME_10, WRITE_SAME_16] {
            let data = report(&Cdb::new(&[0xa3, 0x0c, 1, opcode])).unwrap();
            assert_eq!(data[1], 3);
        }
        let data = report(&Cdb::new(&[0xa3, 0x0c, 1, 0x85])).unwrap();
        assert_eq!(data[1], 1);
    }

    #[test]
    fn the_length_of_a_block_follows_from_its_group() {
        for command in SUPPORTED {
            let length = match command.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                _ => 12,
            };
            assert_eq!(command.usage.len(), length, "{:#x}", command.opcode);
        }
    }

    #[test]
    fn service_actions_must_be_asked_for_in_their_own_way() {
        assert!(report(&Cdb::new(&[0xa3, 0x0c, 1, 0x9e])).is_err());
        assert!(report(&Cdb::new(&[0xa3, 0x0c, 2, 0x9e, 0, 0x10])).is_ok());
        assert!(report(&Cdb::new(&[0xa3, 0x0c, 2, 0x28])).is_err());
        assert_eq!(
            report(&Cdb::new(&[0xa3, 0x0c, 3, 0x9e, 0, 1])).unwrap()[1],
            1
        );
        assert!(report(&Cdb::new(&[0xa3, 0x0c, 4])).is_err());
        let all = report(&Cdb::new(&[0xa3, 0x0c])).unwrap();
        assert_eq!(all.len(), 4 + 8 * SUPPORTED.len());
    }
}
