//! `epoll_ctl`, `epoll_wait` and their variants, for sets that have sockets over
//! RDMA ([`crate::sets`]). For others they are the kernel's.

use std::ffi::c_int;
use std::ptr;

use libc::{epoll_event, sigset_t, timespec};

use crate::next::fail;
use crate::waiting::{Deadline, limit};
use crate::{fork, memory, next, sets};

/// `epoll_ctl(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(socket) = fork::find_to_wait(fd) else {
        // SAFETY: the caller's event.
        return unsafe { next::epoll_ctl(set, operation, fd, event) };
    };
    let event = if operation == libc::EPOLL_CTL_DEL {
        None
    } else {
        // SAFETY: the caller's event.
        match unsafe { memory::read_one(event) } {
            Ok(Some(event)) => Some(event),
            _ => return fail(libc::EFAULT),
        }
    };
    sets::control(set, operation, fd, socket, event)
}

/// Has `wait` wait for the kernel's set, again until the end of `deadline` if
/// what it reports is nothing to tell the program.
///
/// # Safety
/// `wait` returns how many events it wrote to `events`, at most `most`.
unsafe fn wait_for(
    events: *mut epoll_event,
    most: c_int,
    deadline: &Deadline,
    mut wait: impl FnMut(&Deadline) -> c_int,
) -> c_int {
    loop {
        let count = wait(deadline);
        let Some(written) = usize::try_from(count).ok().filter(|count| *count > 0) else {
            return count;
        };
        // SAFETY: the kernel has just written to them.
        let reported = unsafe { std::slice::from_raw_parts(events, written) };
        let told = match sets::resolve(reported, most.unsigned_abs() as usize) {
            Ok(None) => return count,
            Ok(Some(told)) => told,
            Err(errno) => return fail(errno),
        };
        // SAFETY: the caller's room, of which not more is used.
        if let Err(errno) = unsafe { memory::write(events, &told) } {
            return fail(errno);
        }
        if !told.is_empty() || deadline.is_over() {
            return c_int::try_from(told.len()).unwrap_or(c_int::MAX);
        }
    }
}

/// `epoll_wait(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let deadline = Deadline::from_millis(timeout);
    // SAFETY: the caller's room.
    unsafe {
        wait_for(events, most, &deadline, |deadline| {
            next::epoll_wait(set, events, most, deadline.left())
        })
    }
}

/// `epoll_pwait(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let deadline = Deadline::from_millis(timeout);
    // SAFETY: the caller's room and mask.
    unsafe {
        wait_for(events, most, &deadline, |deadline| {
            next::epoll_pwait(set, events, most, deadline.left(), mask)
        })
    }
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's time.
    let limit = match unsafe { limit(timeout) } {
        Ok(limit) => limit,
        Err(errno) => return fail(errno),
    };
    let deadline = Deadline::after(limit);
    // SAFETY: the caller's room and mask; null or a time.
    unsafe {
        wait_for(events, most, &deadline, |deadline| {
            let left = deadline.left_exactly();
            let left = left.as_ref().map_or(ptr::null(), |left| &raw const *left);
            next::epoll_pwait2(set, events, most, left, mask)
        })
    }
}
