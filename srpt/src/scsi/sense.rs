//! The sense data that disks give, by name (SPC-4, annex on additional sense
//! codes).

use crate::executor::Sense;

/// Nothing to report.
pub const NO_SENSE: Sense = Sense::new(0x0, 0x00, 0x00);
/// The disk could not read a block.
pub const UNRECOVERED_READ_ERROR: Sense = Sense::new(0x3, 0x11, 0x00);
/// The disk could not write a block.
pub const WRITE_ERROR: Sense = Sense::new(0x3, 0x0c, 0x00);
/// Something failed inside the target.
pub const INTERNAL_TARGET_FAILURE: Sense = Sense::new(0x4, 0x44, 0x00);
/// The parameter list has another length than it must.
pub const PARAMETER_LIST_LENGTH_ERROR: Sense = Sense::new(0x5, 0x1a, 0x00);
/// The command is not known.
pub const INVALID_OPERATION_CODE: Sense = Sense::new(0x5, 0x20, 0x00);
/// The blocks lie beyond the end of the disk.
pub const BLOCK_OUT_OF_RANGE: Sense = Sense::new(0x5, 0x21, 0x00);
/// A field of the command has a value that is not supported.
pub const INVALID_FIELD_IN_CDB: Sense = Sense::new(0x5, 0x24, 0x00);
/// There is no such logical unit.
pub const LOGICAL_UNIT_NOT_SUPPORTED: Sense = Sense::new(0x5, 0x25, 0x00);
/// A field of the parameter list has a value that is not supported.
pub const INVALID_FIELD_IN_PARAMETERS: Sense = Sense::new(0x5, 0x26, 0x00);
/// Values of mode pages cannot be saved.
pub const SAVING_NOT_SUPPORTED: Sense = Sense::new(0x5, 0x39, 0x00);
/// Power on or reset: the first word to every session.
pub const POWER_ON: Sense = Sense::new(0x6, 0x29, 0x00);
/// A logical unit reset.
pub const DEVICE_RESET: Sense = Sense::new(0x6, 0x29, 0x03);
/// The disk has another size than before.
pub const CAPACITY_CHANGED: Sense = Sense::new(0x6, 0x2a, 0x09);
/// The disk may only be read.
pub const WRITE_PROTECTED: Sense = Sense::new(0x7, 0x27, 0x00);
/// There is no room left where the disk's data is kept.
pub const SPACE_ALLOCATION_FAILED: Sense = Sense::new(0x7, 0x27, 0x07);

/// Bytes of sense data in fixed format.
pub const FIXED_LENGTH: usize = 18;

/// `sense` in fixed format, as REQUEST SENSE returns it.
pub fn fixed(sense: Sense) -> [u8; FIXED_LENGTH] {
    let [a, b, c, d] = sense.information.unwrap_or(0).to_be_bytes();
    let response = if sense.information.is_some() {
        0xf0
    } else {
        0x70
    };
    [
        response, 0, sense.key, a, b, c, d, 10, 0, 0, 0, 0, sense.asc, sense.ascq, 0, 0, 0, 0,
    ]
}
