//! What a command descriptor block asks for: it is decoded and checked against
//! the disk here, before any data moves.

use super::cdb::Cdb;
use super::inquiry::MAX_TRANSFER;
use super::opcode as op;
use super::provision::{MAX_LIST, MAX_WRITE_SAME_BLOCKS};
use super::sense::{
    BLOCK_OUT_OF_RANGE, INVALID_FIELD_IN_CDB, INVALID_OPERATION_CODE, PARAMETER_LIST_LENGTH_ERROR,
    WRITE_PROTECTED,
};
use super::unit::Unit;
use crate::executor::Sense;

/// A part of the disk, within its size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// A command that is allowed and whose fields make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// There is nothing left to do: GOOD.
    Nothing,
    /// Data about the disk is asked for: at most so many bytes.
    Report {
        /// What about.
        about: Report,
        /// The allocation length.
        allocation: u32,
    },
    /// Read a part of the disk.
    Read(Extent),
    /// Write a part of the disk.
    Write {
        /// Which part.
        extent: Extent,
        /// The data must be on stable storage before the command ends.
        fua: bool,
    },
    /// All that was written must be on stable storage before the command ends.
    Flush,
    /// Give blocks back. The ranges are in a parameter list of so many bytes:
    /// [`super::provision::ranges`].
    Unmap {
        /// The parameter list length.
        list: u32,
    },
    /// Fill a part of the disk with one block.
    WriteSame {
        /// Which part.
        extent: Extent,
        /// The blocks may be given back if they then read the same.
        unmap: bool,
        /// The block is all zeros and not sent.
        zeros: bool,
    },
}

/// Data about the disk, made by [`super::report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// REQUEST SENSE
    Sense,
    /// INQUIRY
    Inquiry,
    /// MODE SENSE(6)
    Mode6,
    /// MODE SENSE(10)
    Mode10,
    /// READ CAPACITY(10)
    Capacity10,
    /// READ CAPACITY(16)
    Capacity16,
    /// REPORT LUNS
    Luns,
    /// REPORT SUPPORTED OPERATION CODES
    Opcodes,
}

impl Extent {
    /// The part of `unit` that starts at block `first` and has `count` blocks.
    ///
    /// # Errors
    /// When it reaches beyond the end of the disk.
    pub fn new(unit: &Unit, first: u64, count: u64) -> Result<Self, Sense> {
        let end = first.checked_add(count).ok_or(BLOCK_OUT_OF_RANGE)?;
        let size = u64::from(unit.block_size());
        if end > unit.blocks() {
            return Err(BLOCK_OUT_OF_RANGE);
        }
        // Both are below the size of the disk, which is a number of bytes.
        Ok(Self {
            offset: first.saturating_mul(size),
            length: count.saturating_mul(size),
        })
    }
}

impl Command {
    /// How many bytes the initiator must send.
    pub fn data_out(&self, unit: &Unit) -> u32 {
        match self {
            Self::Write { extent, .. } => extent.length as u32,
            Self::Unmap { list } => *list,
            Self::WriteSame { zeros: false, .. } => unit.block_size(),
            _ => 0,
        }
    }

    /// How many bytes go to the initiator at most.
    pub fn data_in(&self) -> u32 {
        match self {
            Self::Read(extent) => extent.length as u32,
            Self::Report { allocation, .. } => *allocation,
            _ => 0,
        }
    }
}

/// Decodes the block `cdb` for `unit`.
///
/// # Errors
/// Why the command is refused.
pub fn decode(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    let report = |about, allocation: u32| Ok(Command::Report { about, allocation });
    match cdb.opcode() {
        op::TEST_UNIT_READY | op::START_STOP_UNIT => Ok(Command::Nothing),
        op::REQUEST_SENSE => report(Report::Sense, cdb.byte(4).into()),
        op::INQUIRY => report(Report::Inquiry, cdb.be16(3).into()),
        op::MODE_SENSE_6 => report(Report::Mode6, cdb.byte(4).into()),
        op::MODE_SENSE_10 => report(Report::Mode10, cdb.be16(7).into()),
        op::READ_CAPACITY_10 => report(Report::Capacity10, 8),
        op::REPORT_LUNS => report(Report::Luns, cdb.be32(6)),
        op::SERVICE_ACTION_IN_16 if cdb.service_action() == op::READ_CAPACITY_16 => {
            report(Report::Capacity16, cdb.be32(10))
        }
        op::MAINTENANCE_IN if cdb.service_action() == op::REPORT_SUPPORTED_OPCODES => {
            report(Report::Opcodes, cdb.be32(6))
        }
        op::SERVICE_ACTION_IN_16 | op::MAINTENANCE_IN => Err(INVALID_FIELD_IN_CDB),
        op::READ_6 | op::READ_10 | op::READ_12 | op::READ_16 => {
            Ok(Command::Read(transfer(cdb, unit)?))
        }
        op::WRITE_6 | op::WRITE_10 | op::WRITE_12 | op::WRITE_16 => write(cdb, unit),
        op::VERIFY_10 | op::VERIFY_16 => verify(cdb, unit),
        op::SYNCHRONIZE_CACHE_10 | op::SYNCHRONIZE_CACHE_16 => {
            let (first, count) = address(cdb);
            Extent::new(unit, first, count)?;
            Ok(Command::Flush)
        }
        op::UNMAP => unmap(cdb, unit),
        op::WRITE_SAME_10 | op::WRITE_SAME_16 => write_same(cdb, unit),
        _ => Err(INVALID_OPERATION_CODE),
    }
}

/// The first block and the number of blocks, from a block of 10, 12 or 16
/// bytes.
fn address(cdb: &Cdb) -> (u64, u64) {
    match cdb.opcode() >> 5 {
        4 => (cdb.be64(2), cdb.be32(10).into()),
        5 => (cdb.be32(2).into(), cdb.be32(6).into()),
        _ => (cdb.be32(2).into(), cdb.be16(7).into()),
    }
}

/// The part of the disk that a READ or WRITE moves.
fn transfer(cdb: &Cdb, unit: &Unit) -> Result<Extent, Sense> {
    let (first, count) = if matches!(cdb.opcode(), op::READ_6 | op::WRITE_6) {
        let count = match cdb.byte(4) {
            0 => 256,
            count => count.into(),
        };
        (u64::from(cdb.be32(0) & 0x1f_ffff), count)
    } else {
        no_protection(cdb)?;
        address(cdb)
    };
    let extent = Extent::new(unit, first, count)?;
    if extent.length > u64::from(MAX_TRANSFER) {
        return Err(INVALID_FIELD_IN_CDB);
    }
    Ok(extent)
}

/// Protection information (RDPROTECT, WRPROTECT, VRPROTECT) does not exist on
/// these disks.
fn no_protection(cdb: &Cdb) -> Result<(), Sense> {
    const PROTECT: u8 = 0xe0;
    if cdb.byte(1) & PROTECT != 0 {
        return Err(INVALID_FIELD_IN_CDB);
    }
    Ok(())
}

fn writable(unit: &Unit) -> Result<(), Sense> {
    if unit.read_only {
        return Err(WRITE_PROTECTED);
    }
    Ok(())
}

fn write(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    const FUA: u8 = 0x08;
    writable(unit)?;
    let extent = transfer(cdb, unit)?;
    let fua = cdb.opcode() != op::WRITE_6 && cdb.byte(1) & FUA != 0;
    Ok(Command::Write { extent, fua })
}

/// VERIFY without comparing: the blocks exist.
fn verify(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    const BYTCHK: u8 = 0x06;
    no_protection(cdb)?;
    if cdb.byte(1) & BYTCHK != 0 {
        return Err(INVALID_FIELD_IN_CDB);
    }
    let (first, count) = address(cdb);
    Extent::new(unit, first, count)?;
    Ok(Command::Nothing)
}

fn unmap(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    const ANCHOR: u8 = 0x01;
    writable(unit)?;
    if !unit.thin {
        return Err(INVALID_OPERATION_CODE);
    }
    if cdb.byte(1) & ANCHOR != 0 {
        return Err(INVALID_FIELD_IN_CDB);
    }
    match u32::from(cdb.be16(7)) {
        0 => Ok(Command::Nothing),
        1..8 => Err(PARAMETER_LIST_LENGTH_ERROR),
        list => Ok(Command::Unmap {
            list: list.min(MAX_LIST),
        }),
    }
}

fn write_same(cdb: &Cdb, unit: &Unit) -> Result<Command, Sense> {
    const ANCHOR: u8 = 0x10;
    const UNMAP: u8 = 0x08;
    // Obsolete: blocks that carry their own address.
    const PBDATA_LBDATA: u8 = 0x06;
    const NDOB: u8 = 0x01;
    writable(unit)?;
    no_protection(cdb)?;
    let zeros = cdb.opcode() == op::WRITE_SAME_16 && cdb.byte(1) & NDOB != 0;
    let unmap = cdb.byte(1) & UNMAP != 0;
    let (first, count) = address(cdb);
    if cdb.byte(1) & (ANCHOR | PBDATA_LBDATA) != 0 || (unmap && !unit.thin) {
        return Err(INVALID_FIELD_IN_CDB);
    }
    if count == 0 || count > u64::from(MAX_WRITE_SAME_BLOCKS) {
        return Err(INVALID_FIELD_IN_CDB);
    }
    Ok(Command::WriteSame {
        extent: Extent::new(unit, first, count)?,
        unmap,
        zeros,
    })
}
