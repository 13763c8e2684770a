//! `poll` and its variants for entries of which some are sockets over RDMA.
//! Without any they are the kernel's. [`crate::select`] waits by way of them.

use std::ffi::c_int;

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::connect::{Outcome, settle};
use crate::next::fail;
use crate::waiting::{Deadline, limit, with_mask};
use crate::{fork, next, rdmacm, table, transfer};

/// Waits for entries of which some are sockets over RDMA.
pub fn wait(entries: &mut [pollfd], deadline: &Deadline) -> c_int {
    loop {
        let mut inner: Vec<_> = entries
            .iter()
            .map(|entry| pollfd {
                fd: table::find(entry.fd).unwrap_or(entry.fd),
                ..*entry
            })
            .collect();
        // SAFETY: as many entries as are said.
        let ready =
            unsafe { rdmacm::rpoll(inner.as_mut_ptr(), inner.len() as nfds_t, deadline.left()) };
        if ready < 0 {
            return ready;
        }
        let mut again = false;
        for (entry, inner) in entries.iter_mut().zip(&inner) {
            entry.revents = inner.revents;
            if entry.revents != 0 && inner.fd != entry.fd {
                again |= settle(entry.fd, inner.fd) == Outcome::FellBack;
            }
        }
        if !again {
            return ready;
        }
    }
}

/// The entries of a call, if one of them is of a socket over RDMA.
///
/// # Errors
/// What the kernel says of the entries, which looks at them first: `EFAULT` if
/// they are not there, `EINVAL` if they are more than there can be descriptors.
///
/// # Safety
/// `entries` points to `count` entries of the caller's, or to no memory.
unsafe fn over_rdma<'a>(
    entries: *mut pollfd,
    count: nfds_t,
) -> Result<Option<&'a mut [pollfd]>, c_int> {
    if count == 0 || !fork::may_find() {
        return Ok(None);
    }
    // SAFETY: the caller's entries.
    if unsafe { next::poll(entries, count, 0) } < 0 {
        return Err(next::errno());
    }
    // SAFETY: the kernel has just written to them.
    let entries = unsafe { std::slice::from_raw_parts_mut(entries, count as usize) };
    // All are looked at: a connection that is to go over to RDMA does so.
    let found = entries
        .iter()
        .filter(|entry| fork::find_to_wait(entry.fd).is_some());
    Ok((found.count() > 0).then_some(entries))
}

/// `poll(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's entries.
    match unsafe { over_rdma(entries, count) } {
        Ok(Some(entries)) => wait(entries, &Deadline::from_millis(timeout)),
        // SAFETY: as above.
        Ok(None) => unsafe { next::poll(entries, count, timeout) },
        Err(errno) => fail(errno),
    }
}

/// `ppoll(2)`. With a socket over RDMA, the mask is set before and after the
/// wait.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's entries.
    let found = match unsafe { over_rdma(entries, count) } {
        Ok(Some(found)) => found,
        // SAFETY: the caller's arguments.
        Ok(None) => return unsafe { next::ppoll(entries, count, timeout, mask) },
        Err(errno) => return fail(errno),
    };
    // SAFETY: the caller's time.
    match unsafe { limit(timeout) } {
        // SAFETY: the caller's mask.
        Ok(limit) => unsafe { with_mask(mask, || wait(found, &Deadline::after(limit))) },
        Err(errno) => fail(errno),
    }
}

/// `poll` of fortified programs.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    transfer::check(count as usize, room / size_of::<pollfd>());
    // SAFETY: the caller's entries.
    unsafe { poll(entries, count, timeout) }
}

/// `ppoll` of fortified programs.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    transfer::check(count as usize, room / size_of::<pollfd>());
    // SAFETY: the caller's arguments.
    unsafe { ppoll(entries, count, timeout, mask) }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn more_entries_than_descriptors_are_not_looked_at() {
        let mut entry = pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        };
        // SAFETY: the kernel does not look at entries that it refuses.
        unsafe {
            assert_eq!(poll(&mut entry, nfds_t::MAX, 0), -1);
            assert_eq!(next::errno(), libc::EINVAL);
            assert_eq!(poll(&mut entry, 1, 0), 0);
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            assert_eq!(ppoll(&mut entry, nfds_t::MAX, &now, ptr::null()), -1);
            assert_eq!(next::errno(), libc::EINVAL);
        }
    }
}
