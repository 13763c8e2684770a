//! SCSI as disks speak it (SPC-4, SBC-3): what a command asks for, what the
//! disk says about itself, and what is wrong with a command.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`cdb`] | fields of command descriptor blocks |
//! | [`command`] | decoding and checking commands |
//! | [`mod@unit`] | a disk's size, abilities and names |
//! | [`inquiry`], [`mode`], [`capacity`], [`luns`], [`opcode`] | data about the disk |
//! | [`provision`] | UNMAP's parameter list and the limits of UNMAP and WRITE SAME |
//! | [`attention`] | unit attention conditions |
//! | [`sense`] | sense data by name |
//!
//! Nothing here reads or writes a disk: blocks come in as numbers and go out as
//! [`command::Command`]s for a [`crate::backing`] to carry out.

pub mod attention;
pub mod capacity;
pub mod cdb;
pub mod command;
pub mod inquiry;
pub mod luns;
pub mod mode;
pub mod opcode;
pub mod provision;
pub mod sense;
pub mod unit;

#[cfg(test)]
mod tests;

use crate::executor::Sense;
use cdb::Cdb;
use command::Report;
use unit::Unit;

/// The data that `cdb`, decoded to `about`, asks for; not yet cut to the
/// allocation length. `numbers` are those of all logical units.
///
/// # Errors
/// Why the command is refused.
pub fn report(about: Report, cdb: &Cdb, unit: &Unit, numbers: &[u16]) -> Result<Vec<u8>, Sense> {
    match about {
        Report::Sense => Ok(sense::fixed(sense::NO_SENSE).to_vec()),
        Report::Inquiry => inquiry::data(cdb, unit),
        Report::Mode6 => mode::short(cdb, unit),
        Report::Mode10 => mode::long(cdb, unit),
        Report::Capacity10 => Ok(capacity::short(unit)),
        Report::Capacity16 => Ok(capacity::long(unit)),
        Report::Luns => luns::report(cdb, numbers),
        Report::Opcodes => opcode::report(cdb),
    }
}

/// The data that `cdb` asks for of a logical unit that does not exist.
///
/// # Errors
/// For all commands but the three that are answered there (SPC-4 4.5.1).
pub fn report_absent(cdb: &Cdb, numbers: &[u16]) -> Result<(Vec<u8>, u32), Sense> {
    match cdb.opcode() {
        opcode::INQUIRY => Ok((inquiry::absent(), cdb.be16(3).into())),
        opcode::REPORT_LUNS => Ok((luns::report(cdb, numbers)?, cdb.be32(6))),
        opcode::REQUEST_SENSE => {
            let data = sense::fixed(sense::LOGICAL_UNIT_NOT_SUPPORTED).to_vec();
            Ok((data, cdb.byte(4).into()))
        }
        _ => Err(sense::LOGICAL_UNIT_NOT_SUPPORTED),
    }
}
