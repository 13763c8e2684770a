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

/// How many descriptors the process may have open (`RLIMIT_NOFILE`).
#[must_use]
pub fn most_open() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a place to write to.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if status != 0 {
        return i32::MAX as usize;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Fails unless `count` more descriptors can be opened just now, for `step`.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn check_free(count: usize, step: &'static str) -> Result<()> {
    let _whole = Uncancelled::throughout();
    // SAFETY: no pointers; what it opens is nobody else's.
    let open = |_| unsafe { opened(libc::eventfd(0, libc::EFD_CLOEXEC), step) };
    let free: Result<Vec<OwnedFd>> = (0..count).map(open).collect();
    free.map(drop)
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
