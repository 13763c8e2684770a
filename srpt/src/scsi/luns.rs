//! REPORT LUNS (SPC-4 6.33): which logical units there are.

use super::cdb::Cdb;
use super::sense::INVALID_FIELD_IN_CDB;
use crate::executor::Sense;
use crate::wire::Lun;

/// Data of REPORT LUNS for logical units with these numbers.
///
/// # Errors
/// For a kind of selection that does not exist.
pub fn report(cdb: &Cdb, numbers: &[u16]) -> Result<Vec<u8>, Sense> {
    // All; well-known ones, of which there are none; both.
    let numbers = match cdb.byte(2) {
        0 | 2 => numbers,
        1 => &[],
        _ => return Err(INVALID_FIELD_IN_CDB),
    };
    // At most 16384 entries of 8 bytes.
    let mut data = (numbers.len() as u32 * 8).to_be_bytes().to_vec();
    data.extend([0; 4]);
    for number in numbers {
        data.extend(Lun::from_number(*number).0);
    }
    Ok(data)
}
