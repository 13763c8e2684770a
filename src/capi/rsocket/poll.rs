//! Waiting for events: `rpoll` and `rselect`.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use libc::{fd_set, nfds_t, pollfd, timeval};

use super::argument::number;
use crate::capi::convert::respond;
use crate::error::{Error, Result};
use crate::kernel::descriptor::{most_open, table_size};
use crate::rsocket::poll;
use crate::rsocket::select::{self, Sets};

/// How many descriptors a set of `nfds` bits may name. As the kernel does, what
/// lies beyond all descriptors that this process can have open is not looked at:
/// programs give a large number with a small set.
fn set_size(nfds: c_int) -> Result<usize> {
    let count = usize::try_from(nfds).map_err(|_| Error::invalid(STEP))?;
    if count <= libc::FD_SETSIZE {
        return Ok(count);
    }
    Ok(count.min(table_size().unwrap_or(libc::FD_SETSIZE)))
}

const STEP: &str = "select descriptors";

/// # Safety
/// `fds` is null or points to `count` entries that nobody else uses during
/// `'a`.
unsafe fn pollfds<'a>(fds: *mut pollfd, count: nfds_t) -> Result<&'a mut [pollfd]> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 {
        return Ok(&mut []);
    }
    if fds.is_null() {
        return Err(Error::new(libc::EFAULT, "poll descriptors"));
    }
    // As for the kernel, which is asked only for what may be too many.
    if count > libc::FD_SETSIZE && count > most_open() {
        return Err(Error::invalid("poll so many descriptors"));
    }
    // SAFETY: not null; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(fds, count) })
}

/// # Safety
/// Each pointer is null or valid.
unsafe fn select(nfds: c_int, sets: [*mut fd_set; 3], timeout: *mut timeval) -> Result<usize> {
    let count = set_size(nfds)?;
    let timeout = if timeout.is_null() {
        None
    } else {
        // SAFETY: not null; the caller vouches for the rest.
        let limit = unsafe { timeout.read() };
        let seconds = u64::try_from(limit.tv_sec).map_err(|_| Error::invalid(STEP))?;
        let micros = u64::try_from(limit.tv_usec).map_err(|_| Error::invalid(STEP))?;
        Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
    };
    let words = count.div_ceil(u64::BITS as usize);
    // SAFETY: a set has a bit for each descriptor, in words.
    let copies = sets.map(|set| unsafe { copy(set, words) });
    let (bits, left) = select::select(count, Sets(copies), timeout)?;
    // One after the other, as the kernel does: programs may give one set twice.
    for (set, words) in sets.into_iter().zip(left.0) {
        if !set.is_null() {
            // SAFETY: not null, and as many words as were read there.
            unsafe { ptr::copy_nonoverlapping(words.as_ptr(), set.cast(), words.len()) };
        }
    }
    Ok(bits)
}

/// The first `words` words of a set; none of an absent one.
///
/// # Safety
/// `set` is null or has so many words.
unsafe fn copy(set: *const fd_set, words: usize) -> Vec<u64> {
    if set.is_null() {
        return Vec::new();
    }
    // SAFETY: not null; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(set.cast(), words) }.to_vec()
}

/// Waits for events on sockets over RDMA and ordinary descriptors, as poll(2)
/// does; `timeout` is in milliseconds, negative for no limit, and never cut
/// short. A connection that was made or refused is `POLLOUT`, one to accept
/// `POLLIN`.
///
/// Returns the number of entries with events, 0 at the timeout, or -1 with errno:
/// `EINTR`, `EFAULT` if `fds` is NULL, `EINVAL` for more entries than the process may
/// have descriptors (`RLIMIT_NOFILE`), `ENOMEM`.
///
/// # Safety
/// `fds` points to `nfds` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller vouches for the entries.
    let result = unsafe { pollfds(fds, nfds) }.and_then(|entries| {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        poll::poll(entries, timeout)
    });
    respond("rpoll", result.map(number))
}

/// Waits for events on sockets over RDMA and ordinary descriptors below `nfds`,
/// as select(2) does. The sets may be NULL; `timeout` is NULL for no limit and not
/// changed.
///
/// Returns the number of bits that are set, 0 at the timeout, or -1 with errno
/// and the sets unchanged: `EBADF`, `EINTR`, `EINVAL` for a negative `nfds` or an
/// invalid timeout. Sets may be larger than `FD_SETSIZE`.
///
/// # Safety
/// Each pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { select(nfds, [readfds, writefds, exceptfds], timeout) };
    respond("rselect", result.map(number))
}
