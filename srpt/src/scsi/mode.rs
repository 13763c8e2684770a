//! MODE SENSE (SPC-4 6.11, 6.12): the caching and the control page, without
//! block descriptors.

use super::cdb::Cdb;
use super::sense::{INVALID_FIELD_IN_CDB, SAVING_NOT_SUPPORTED};
use super::unit::Unit;
use crate::executor::Sense;

/// Caching (SBC-3 6.4.5): the write cache is on, so initiators flush.
const CACHING: [u8; 20] = [
    0x08, 18, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// Control (SPC-4 7.5.8): nothing out of the ordinary.
const CONTROL: [u8; 12] = [0x0a, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ALL_PAGES: u8 = 0x3f;

/// Data of MODE SENSE(6).
///
/// # Errors
/// For pages that do not exist.
pub fn short(cdb: &Cdb, unit: &Unit) -> Result<Vec<u8>, Sense> {
    let pages = pages(cdb)?;
    let mut data = vec![pages.len() as u8 + 3, 0, device_byte(unit), 0];
    data.extend(pages);
    Ok(data)
}

/// Data of MODE SENSE(10).
///
/// # Errors
/// For pages that do not exist.
pub fn long(cdb: &Cdb, unit: &Unit) -> Result<Vec<u8>, Sense> {
    let pages = pages(cdb)?;
    let mut data = vec![0, pages.len() as u8 + 6, 0, device_byte(unit), 0, 0, 0, 0];
    data.extend(pages);
    Ok(data)
}

fn device_byte(unit: &Unit) -> u8 {
    const WRITE_PROTECT: u8 = 0x80;
    const DPO_FUA: u8 = 0x10;
    DPO_FUA | if unit.read_only { WRITE_PROTECT } else { 0 }
}

fn pages(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    const CHANGEABLE: u8 = 1;
    const SAVED: u8 = 3;
    const ALL_SUBPAGES: u8 = 0xff;
    let (control, code, subpage) = (cdb.byte(2) >> 6, cdb.byte(2) & 0x3f, cdb.byte(3));
    if control == SAVED {
        return Err(SAVING_NOT_SUPPORTED);
    }
    if subpage != 0 && subpage != ALL_SUBPAGES {
        return Err(INVALID_FIELD_IN_CDB);
    }
    let mut pages = Vec::with_capacity(CACHING.len() + CONTROL.len());
    let asked = |page: u8| code == page || code == ALL_PAGES;
    let mut add = |page: &[u8]| {
        let values = page.iter().enumerate();
        // Of what can be changed there is nothing: all values 0.
        pages.extend(values.map(|(at, byte)| {
            if at >= 2 && control == CHANGEABLE {
                0
            } else {
                *byte
            }
        }));
    };
    if asked(0x08) {
        add(&CACHING);
    }
    if asked(0x0a) {
        add(&CONTROL);
    }
    if pages.is_empty() {
        return Err(INVALID_FIELD_IN_CDB);
    }
    Ok(pages)
}
