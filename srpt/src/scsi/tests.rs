//! Commands as an initiator sends them, and any bytes at all.

use proptest::prelude::*;

use super::cdb::Cdb;
use super::command::{Command, Extent, decode};
use super::sense::*;
use super::unit::{Identity, Unit};
use super::{inquiry, opcode, report, report_absent};
use crate::executor::Sense;

const BLOCKS: u64 = 1 << 16;

fn unit() -> Unit {
    let mut unit = Unit::new(512, BLOCKS * 512, Identity::from_serial("disk1"));
    unit.thin = true;
    unit
}

/// Decodes, and makes the data if it is a report.
fn ask(unit: &Unit, cdb: &[u8]) -> Result<Vec<u8>, Sense> {
    let cdb = Cdb::new(cdb);
    match decode(&cdb, unit)? {
        Command::Report { about, .. } => report(about, &cdb, unit, &[0, 200]),
        other => panic!("{other:?}"),
    }
}

fn rw16(opcode: u8, first: u64, count: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, 0];
    cdb.extend(first.to_be_bytes());
    cdb.extend(count.to_be_bytes());
    cdb
}

#[test]
fn inquiry_says_what_linux_needs() {
    let data = ask(&unit(), &[0x12, 0, 0, 0, 36]).unwrap();
    assert_eq!(data.len(), 36);
    assert_eq!(data[..8], [0, 0, 6, 2, 31, 0, 0, 2]);
    assert!(data[8..].iter().all(|byte| (0x20..0x7f).contains(byte)));
    assert_eq!(ask(&unit(), &[0x12, 0, 0x83]), Err(INVALID_FIELD_IN_CDB));
}

#[test]
fn vital_product_data_pages_have_their_lengths() {
    let pages = ask(&unit(), &[0x12, 1, 0]).unwrap();
    assert_eq!(pages, [0, 0, 0, 6, 0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
    for page in &pages[4..] {
        let data = ask(&unit(), &[0x12, 1, *page]).unwrap();
        assert_eq!(data[1], *page);
        let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
        assert_eq!(data.len(), 4 + length, "{page:#x}");
    }
    assert_eq!(ask(&unit(), &[0x12, 1, 0xb7]), Err(INVALID_FIELD_IN_CDB));
}

#[test]
fn identification_is_naa_6() {
    let data = ask(&unit(), &[0x12, 1, 0x83]).unwrap();
    assert_eq!(data[4..8], [1, 3, 0, 16]);
    assert_eq!(data[8] >> 4, 6);
}

#[test]
fn thin_disks_say_so_everywhere_and_thick_ones_nowhere() {
    let thin = unit();
    let thick = Unit::new(512, 1 << 20, Identity::from_serial("x"));
    let capacity = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32];
    assert_eq!(ask(&thin, &capacity).unwrap()[14], 0xc0);
    assert_eq!(ask(&thick, &capacity).unwrap()[14], 0);
    assert_ne!(ask(&thin, &[0x12, 1, 0xb0]).unwrap()[20..28], [0; 8]);
    assert_eq!(ask(&thick, &[0x12, 1, 0xb0]).unwrap()[20..28], [0; 8]);
    assert_eq!(ask(&thin, &[0x12, 1, 0xb2]).unwrap()[5], 0xe4);
    assert_eq!(ask(&thick, &[0x12, 1, 0xb2]).unwrap()[5], 0);
    let unmap = Cdb::new(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24]);
    assert_eq!(decode(&unmap, &thick), Err(INVALID_OPERATION_CODE));
}

#[test]
fn capacity_is_the_last_block() {
    let data = ask(&unit(), &[0x25]).unwrap();
    assert_eq!(data, [0, 0, 0xff, 0xff, 0, 0, 2, 0]);
    let large = Unit::new(512, 1 << 50, Identity::from_serial("x"));
    assert_eq!(ask(&large, &[0x25]).unwrap()[..4], [0xff; 4]);
    let long = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32];
    let data = ask(&large, &long).unwrap();
    assert_eq!(data.len(), 32);
    assert_eq!(data[..8], ((1_u64 << 41) - 1).to_be_bytes());
    assert_eq!(data[13], 3);
}

#[test]
fn luns_are_listed_also_by_one_that_is_absent() {
    let cdb = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let expected = [
        0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(ask(&unit(), &cdb).unwrap(), expected);
    let (data, allocation) = report_absent(&Cdb::new(&cdb), &[0, 200]).unwrap();
    assert_eq!((data.as_slice(), allocation), (&expected[..], 256));
}

#[test]
fn an_absent_unit_has_no_device() {
    let (data, _) = report_absent(&Cdb::new(&[0x12, 0, 0, 0, 36]), &[]).unwrap();
    assert_eq!(data[0], 0x7f);
    let refused = report_absent(&Cdb::new(&[0x28]), &[]);
    assert_eq!(refused, Err(LOGICAL_UNIT_NOT_SUPPORTED));
}

#[test]
fn mode_pages_tell_of_cache_and_write_protection() {
    let all = ask(&unit(), &[0x1a, 0, 0x3f, 0, 0xff]).unwrap();
    assert_eq!(all.len(), usize::from(all[0]) + 1);
    assert_eq!(all[2], 0x10);
    assert_eq!(all[4..7], [0x08, 0x12, 0x04]);
    assert_eq!(all[24..26], [0x0a, 0x0a]);
    let mut locked = unit();
    locked.read_only = true;
    assert_eq!(ask(&locked, &[0x1a, 0, 0x3f]).unwrap()[2], 0x90);
    assert_eq!(ask(&locked, &[0x5a, 0, 0x08]).unwrap()[3], 0x90);
    let changeable = ask(&unit(), &[0x1a, 0, 0x48]).unwrap();
    assert_eq!(changeable[6..], [0; 18]);
    assert_eq!(ask(&unit(), &[0x1a, 0, 0xc8]), Err(SAVING_NOT_SUPPORTED));
    assert_eq!(ask(&unit(), &[0x1a, 0, 0x19]), Err(INVALID_FIELD_IN_CDB));
    assert_eq!(ask(&unit(), &[0x1a, 0, 0x0a, 5]), Err(INVALID_FIELD_IN_CDB));
}

#[test]
fn reads_and_writes_of_all_sizes_name_the_same_blocks() {
    let expected = Extent {
        offset: 0x1234 * 512,
        length: 8 * 512,
    };
    let six = [0x00, 0x00, 0x12, 0x34, 8, 0];
    let ten = [0x20, 0, 0, 0, 0x12, 0x34, 0, 0, 8, 0];
    let twelve = [0xa0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 8, 0, 0];
    for (bytes, read, write) in [
        (&six[..], opcode::READ_6, opcode::WRITE_6),
        (&ten[..], opcode::READ_10, opcode::WRITE_10),
        (&twelve[..], opcode::READ_12, opcode::WRITE_12),
        (&rw16(0, 0x1234, 8)[..], opcode::READ_16, opcode::WRITE_16),
    ] {
        let mut bytes = bytes.to_vec();
        bytes[0] = read;
        assert_eq!(
            decode(&Cdb::new(&bytes), &unit()),
            Ok(Command::Read(expected))
        );
        bytes[0] = write;
        let write = Command::Write {
            extent: expected,
            fua: false,
        };
        assert_eq!(decode(&Cdb::new(&bytes), &unit()), Ok(write));
    }
}

#[test]
fn length_0_is_256_blocks_in_six_bytes_and_none_otherwise() {
    let length = |cdb: &[u8]| match decode(&Cdb::new(cdb), &unit()).unwrap() {
        Command::Read(extent) => extent.length,
        other => panic!("{other:?}"),
    };
    assert_eq!(length(&[0x08, 0, 0, 0, 0, 0]), 256 * 512);
    assert_eq!(length(&[0x28]), 0);
    assert_eq!(length(&[0x88]), 0);
}

#[test]
fn fua_is_seen() {
    let decoded = decode(&Cdb::new(&[0x2a, 8, 0, 0, 0, 0, 0, 0, 1]), &unit());
    assert!(matches!(decoded, Ok(Command::Write { fua: true, .. })));
}

#[test]
fn the_end_of_the_disk_is_the_end() {
    for (first, count, good) in [
        (BLOCKS - 1, 1, true),
        (BLOCKS, 0, true),
        (BLOCKS, 1, false),
        (BLOCKS - 1, 2, false),
        (u64::MAX, 1, false),
        (u64::MAX, u32::MAX, false),
        (u64::MAX - 7, 8, false),
    ] {
        for code in [0x88, 0x8a, 0x8f, 0x91] {
            let decoded = decode(&Cdb::new(&rw16(code, first, count)), &unit());
            if good {
                assert!(decoded.is_ok(), "{code:#x} {first} {count}");
            } else {
                assert_eq!(
                    decoded,
                    Err(BLOCK_OUT_OF_RANGE),
                    "{code:#x} {first} {count}"
                );
            }
        }
    }
}

#[test]
fn more_than_the_limit_is_refused() {
    let most = inquiry::MAX_TRANSFER / 512;
    assert!(decode(&Cdb::new(&rw16(0x88, 0, most)), &unit()).is_ok());
    let more = decode(&Cdb::new(&rw16(0x88, 0, most + 1)), &unit());
    assert_eq!(more, Err(INVALID_FIELD_IN_CDB));
}

#[test]
fn a_write_protected_disk_only_reads() {
    let mut locked = unit();
    locked.read_only = true;
    for code in [0x0a, 0x2a, 0xaa, 0x8a, 0x41, 0x93, 0x42] {
        let decoded = decode(&Cdb::new(&[code]), &locked);
        assert_eq!(decoded, Err(WRITE_PROTECTED), "{code:#x}");
    }
    assert!(decode(&Cdb::new(&[0x28]), &locked).is_ok());
}

#[test]
fn write_same_has_limits_and_no_silent_end_of_disk() {
    let same = |flags: u8, first, count| {
        let mut cdb = rw16(0x93, first, count);
        cdb[1] = flags;
        decode(&Cdb::new(&cdb), &unit())
    };
    assert!(matches!(
        same(9, 8, 8),
        Ok(Command::WriteSame {
            unmap: true,
            zeros: true,
            ..
        })
    ));
    assert_eq!(same(0, 0, 0), Err(INVALID_FIELD_IN_CDB));
    assert_eq!(same(0, 0, 65537), Err(INVALID_FIELD_IN_CDB));
    assert_eq!(same(0, 1, 65536), Err(BLOCK_OUT_OF_RANGE));
    assert_eq!(same(0x10, 0, 1), Err(INVALID_FIELD_IN_CDB));
}

#[test]
fn the_list_of_commands_is_the_truth() {
    for code in 0..=255 {
        let listed: Vec<_> = opcode::SUPPORTED
            .iter()
            .filter(|command| command.opcode == code)
            .collect();
        let action = listed.first().and_then(|command| command.action);
        let decoded = decode(&Cdb::new(&[code, action.unwrap_or(0)]), &unit());
        let known = decoded != Err(INVALID_OPERATION_CODE);
        assert_eq!(known, !listed.is_empty(), "{code:#x}: {decoded:?}");
    }
}

proptest! {
    #[test]
    fn no_command_reaches_beyond_the_disk(
        cdb in prop::collection::vec(any::<u8>(), 0..40),
        bytes in any::<u64>(),
        thin in any::<bool>(),
    ) {
        let mut unit = Unit::new(512, bytes, Identity::from_serial("x"));
        unit.thin = thin;
        let cdb = Cdb::new(&cdb);
        match decode(&cdb, &unit) {
            Ok(Command::Read(extent) | Command::Write { extent, .. }) => {
                prop_assert!(extent.offset.checked_add(extent.length).unwrap() <= bytes);
                prop_assert!(extent.length <= inquiry::MAX_TRANSFER.into());
            }
            Ok(Command::WriteSame { extent, .. }) => {
                prop_assert!(extent.offset.checked_add(extent.length).unwrap() <= bytes);
            }
            Ok(Command::Report { about, .. }) => {
                let _ = report(about, &cdb, &unit, &[0]);
            }
            _ => {}
        }
        let _ = report_absent(&cdb, &[0]);
    }

    #[test]
    fn small_numbers_around_the_end_are_judged_exactly(
        first in BLOCKS - 20..BLOCKS + 20, count in 0_u32..40,
    ) {
        let decoded = decode(&Cdb::new(&rw16(0x88, first, count)), &unit());
        prop_assert_eq!(decoded.is_ok(), first + u64::from(count) <= BLOCKS);
    }

    #[test]
    fn any_parameter_list_stays_within_the_disk(
        list in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let unit = unit();
        for extent in super::provision::ranges(&list, &unit).unwrap_or_default() {
            prop_assert!(extent.offset + extent.length <= BLOCKS * 512);
        }
    }
}
