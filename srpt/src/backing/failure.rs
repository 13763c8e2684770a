//! The kernel's error numbers as the sense data an initiator understands.

use crate::executor::Sense;
use crate::scsi::sense::{
    INTERNAL_TARGET_FAILURE, SPACE_ALLOCATION_FAILED, UNRECOVERED_READ_ERROR, WRITE_ERROR,
    WRITE_PROTECTED,
};

/// What a command was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reading.
    Reading,
    /// Writing, flushing or giving blocks back.
    Writing,
}

/// The sense data for error number `errno` of the kernel.
pub fn sense(doing: Doing, errno: i32) -> Sense {
    match (doing, errno) {
        (_, libc::ENOMEM | libc::EAGAIN | libc::ECANCELED) => INTERNAL_TARGET_FAILURE,
        (Doing::Reading, _) => UNRECOVERED_READ_ERROR,
        (Doing::Writing, libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => SPACE_ALLOCATION_FAILED,
        (Doing::Writing, libc::EROFS | libc::EPERM) => WRITE_PROTECTED,
        (Doing::Writing, _) => WRITE_ERROR,
    }
}
