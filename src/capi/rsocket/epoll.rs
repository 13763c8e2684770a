//! Epoll sets.

use std::ffi::c_int;
use std::ptr::NonNull;

use libc::epoll_event;

use super::argument::number;
use crate::capi::argument::enter;
use crate::capi::convert::respond;
use crate::error::{Error, Result};
use crate::rsocket::epoll::{self, Operation};

fn operation(op: c_int) -> Result<Operation> {
    match op {
        libc::EPOLL_CTL_ADD => Ok(Operation::Add),
        libc::EPOLL_CTL_MOD => Ok(Operation::Modify),
        libc::EPOLL_CTL_DEL => Ok(Operation::Remove),
        _ => Err(Error::invalid("change an epoll set in an unknown way")),
    }
}

/// Creates an epoll set for sockets over RDMA and ordinary descriptors and returns
/// its descriptor, to be closed by `rclose`. `flags` may hold `EPOLL_CLOEXEC`;
/// other bits are ignored. See epoll(7).
///
/// Returns -1 with errno: `EMFILE`, `ENFILE`, `ENOMEM`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    enter("repoll_create");
    let result = epoll::create(flags & libc::EPOLL_CLOEXEC != 0);
    respond("repoll_create", result)
}

/// Adds, changes or removes a descriptor of an epoll set, as epoll_ctl(2) does.
/// A socket that is closed is removed.
///
/// Returns 0, or -1 with errno: `EBADF`, `EEXIST`, `ENOENT`, `EINVAL` for an
/// unknown `op`, a set in itself or what is no set, `EFAULT` without an `event`,
/// `EPERM` for a descriptor that cannot be waited for.
///
/// # Safety
/// `event` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let result = operation(op).and_then(|operation| {
        let nothing = epoll_event { events: 0, u64: 0 };
        let event = match (operation, NonNull::new(event)) {
            // SAFETY: not null; the caller vouches for the rest.
            (_, Some(event)) => unsafe { event.read_unaligned() },
            (Operation::Remove, None) => nothing,
            (_, None) => return Err(Error::new(libc::EFAULT, "change an epoll set")),
        };
        epoll::control(epfd, operation, fd, event)
    });
    respond("repoll_ctl", result)
}

/// Waits for events on an epoll set, as epoll_wait(2) does; `timeout` is in
/// milliseconds, negative for no limit.
///
/// Returns the number of events, 0 at the timeout, or -1 with errno: `EBADF`,
/// `EINVAL` for what is no set or a `maxevents` that is not positive or more than
/// fits into an `int` of bytes, `EFAULT` if `events` is NULL, `EINTR`.
///
/// # Safety
/// `events` is NULL or has room for `maxevents` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    let result = usize::try_from(maxevents)
        .ok()
        .filter(|count| *count > 0)
        .ok_or(Error::invalid("wait for no events"))
        .and_then(|count| {
            if events.is_null() {
                return Err(Error::new(libc::EFAULT, "wait on an epoll set"));
            }
            // SAFETY: not null; the caller vouches for the rest.
            let events = unsafe { std::slice::from_raw_parts_mut(events, count) };
            epoll::wait(epfd, events, timeout)
        });
    respond("repoll_wait", result.map(number))
}
