//! INQUIRY (SPC-4 6.6) and the vital product data pages.

use super::cdb::Cdb;
use super::provision;
use super::sense::INVALID_FIELD_IN_CDB;
use super::unit::Unit;
use crate::executor::Sense;

/// T10 vendor identification. Not registered with T10.
const VENDOR: &[u8; 8] = b"RDMACM  ";
const PRODUCT: &[u8; 16] = b"SRP disk        ";

/// The most that one command may transfer, in bytes: what initiators are told
/// and what is held to.
pub const MAX_TRANSFER: u32 = 1 << 20;

const SUPPORTED_PAGES: u8 = 0x00;
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const BLOCK_LIMITS: u8 = 0xb0;
const BLOCK_CHARACTERISTICS: u8 = 0xb1;
const PROVISIONING: u8 = 0xb2;

/// Data of INQUIRY.
///
/// # Errors
/// For pages that do not exist.
pub fn data(cdb: &Cdb, unit: &Unit) -> Result<Vec<u8>, Sense> {
    let (vital, page) = (cdb.byte(1) & 1 != 0, cdb.byte(2));
    if cdb.byte(1) & !1 != 0 || (!vital && page != 0) {
        return Err(INVALID_FIELD_IN_CDB);
    }
    if vital {
        vital_product_data(page, unit)
    } else {
        Ok(standard(0))
    }
}

/// Data of INQUIRY to a logical unit that does not exist: no device can be
/// connected there.
pub fn absent() -> Vec<u8> {
    standard(0x7f)
}

fn standard(peripheral: u8) -> Vec<u8> {
    const SPC_4: u8 = 0x06;
    const RESPONSE_FORMAT: u8 = 0x02;
    const COMMAND_QUEUING: u8 = 0x02;
    let mut data = vec![peripheral, 0, SPC_4, RESPONSE_FORMAT, 31, 0, 0];
    data.push(COMMAND_QUEUING);
    data.extend(VENDOR);
    data.extend(PRODUCT);
    data.extend(revision());
    data
}

/// The version of this package, four characters.
fn revision() -> [u8; 4] {
    let mut revision = *b"    ";
    let version = env!("CARGO_PKG_VERSION").get(..4).unwrap_or_default();
    for (to, from) in revision
        .iter_mut()
        .zip(version.trim_end_matches('.').bytes())
    {
        *to = from;
    }
    revision
}

fn vital_product_data(page: u8, unit: &Unit) -> Result<Vec<u8>, Sense> {
    let body = match page {
        SUPPORTED_PAGES => vec![
            SUPPORTED_PAGES,
            UNIT_SERIAL_NUMBER,
            DEVICE_IDENTIFICATION,
            BLOCK_LIMITS,
            BLOCK_CHARACTERISTICS,
            PROVISIONING,
        ],
        UNIT_SERIAL_NUMBER => unit.identity.serial.clone().into_bytes(),
        DEVICE_IDENTIFICATION => device_identification(unit),
        BLOCK_LIMITS => block_limits(unit),
        BLOCK_CHARACTERISTICS => block_characteristics(),
        PROVISIONING => provisioning(unit),
        _ => return Err(INVALID_FIELD_IN_CDB),
    };
    let mut data = vec![0, page];
    data.extend((body.len() as u16).to_be_bytes());
    data.extend(body);
    Ok(data)
}

/// SPC-4 7.8.6: the world wide name, and vendor with serial number.
fn device_identification(unit: &Unit) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const NAA: u8 = 3;
    const T10_VENDOR_ID: u8 = 1;
    let mut body = vec![BINARY, NAA, 0, unit.identity.naa.len() as u8];
    body.extend(unit.identity.naa);
    let serial = unit.identity.serial.as_bytes();
    let length = VENDOR.len() + serial.len();
    body.extend([ASCII, T10_VENDOR_ID, 0, length as u8]);
    body.extend(VENDOR);
    body.extend(serial);
    body
}

/// SBC-3 6.6.3.
fn block_limits(unit: &Unit) -> Vec<u8> {
    const LENGTH: usize = 0x3c;
    // WRITE SAME with 0 blocks, which would mean the rest of the disk, is not
    // supported.
    const WSNZ: u8 = 1;
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(unit.block_size())).unwrap_or(0);
    let page = 1_u32 << unit.physical_exponent();
    let (unmap_blocks, unmap_ranges) = if unit.thin {
        (provision::MAX_UNMAP_BLOCKS, provision::MAX_UNMAP_RANGES)
    } else {
        (0, 0)
    };
    let mut body = vec![WSNZ, 0];
    body.extend((page as u16).to_be_bytes());
    body.extend(blocks(MAX_TRANSFER.into()).to_be_bytes());
    // Optimal transfer length, and prefetch: no preference.
    body.extend([0; 8]);
    body.extend(unmap_blocks.to_be_bytes());
    body.extend(unmap_ranges.to_be_bytes());
    body.extend(page.to_be_bytes());
    // Alignment of what can be given back: the first block.
    body.extend([0x80, 0, 0, 0]);
    body.extend(u64::from(provision::MAX_WRITE_SAME_BLOCKS).to_be_bytes());
    body.resize(LENGTH, 0);
    body
}

/// SBC-3 6.6.2.
fn block_characteristics() -> Vec<u8> {
    const LENGTH: usize = 0x3c;
    const NON_ROTATING: u16 = 1;
    let mut body = NON_ROTATING.to_be_bytes().to_vec();
    body.resize(LENGTH, 0);
    body
}

/// SBC-3 6.6.4.
fn provisioning(unit: &Unit) -> Vec<u8> {
    // UNMAP; WRITE SAME(16) and (10) with the UNMAP bit; zeros afterwards.
    const CAN: u8 = 0x80 | 0x40 | 0x20 | 0x04;
    const THIN: u8 = 2;
    if unit.thin {
        vec![0, CAN, THIN, 0]
    } else {
        vec![0; 4]
    }
}
