//! Descriptors that a system call has opened, and how many there can be.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};

/// What a system call that opens a descriptor has returned, for `step`.
///
/// # Errors
/// The errno of the call if it has failed.
///
/// # Safety
/// `fd` is the result of such a call just now, and nobody else's.
pub unsafe fn opened(fd: RawFd, step: &'static str) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::last_os(step));
    }
    // SAFETY: it is open, and the caller vouches that it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How many descriptors the process has room for at present; it grows as they
/// are opened. `None` if `/proc` is not there.
#[must_use]
pub fn table_size() -> Option<usize> {
    let _whole = Uncancelled::throughout();
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("FDSize:"))?;
    line.trim().parse().ok()
}
