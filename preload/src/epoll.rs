//! `epoll_ctl`, `epoll_wait` and their variants, for sets that have sockets over
//! RDMA ([`crate::sets`]). For others they are the kernel's.

use std::ffi::c_int;

use libc::{epoll_event, sigset_t, timespec};

use crate::next::fail;
use crate::sets::{self, Tag};
use crate::waiting::{Deadline, limit, with_mask};
use crate::{fork, memory, next, rdmacm};

/// Most events taken at once.
const MOST: usize = 256;
/// No event.
const BLANK: epoll_event = epoll_event { events: 0, u64: 0 };

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

/// Takes events of a set of librdmacm.
fn take(from: c_int, room: &mut [epoll_event], timeout: c_int) -> Option<usize> {
    // SAFETY: room for so many events.
    let count =
        unsafe { rdmacm::repoll_wait(from, room.as_mut_ptr(), room.len() as c_int, timeout) };
    usize::try_from(count).ok()
}

/// Takes what members of the kernel's set have to report.
fn take_from_kernel(set: c_int, room: &mut [epoll_event]) -> usize {
    // SAFETY: room for so many events.
    let count = unsafe { next::epoll_wait(set, room.as_mut_ptr(), room.len() as c_int, 0) };
    usize::try_from(count).unwrap_or(0)
}

/// Waits for the members of all sets; returns what the program is to be told.
fn wait(set: c_int, first: c_int, most: usize, deadline: &Deadline) -> Option<Vec<epoll_event>> {
    let most = most.min(MOST);
    let mut taken = vec![BLANK; most];
    loop {
        let count = take(first, &mut taken, deadline.left())?;
        let mut told = Vec::with_capacity(most);
        let tell = |told: &mut Vec<_>, event: &epoll_event| {
            if let Tag::Program(fd) = Tag::decode(event.u64) {
                told.extend(sets::report(set, fd, event.events));
            }
        };
        let events = taken.iter().take(count);
        events.clone().for_each(|event| tell(&mut told, event));
        // Sets with members of their own come last, for the room that is left.
        for tag in events.map(|event| Tag::decode(event.u64)) {
            let mut more = vec![BLANK; most.saturating_sub(told.len())];
            match tag {
                Tag::Program(_) => {}
                _ if more.is_empty() => {}
                Tag::Kernel => {
                    let count = take_from_kernel(set, &mut more);
                    told.extend(more.iter().take(count));
                }
                Tag::Further(further) => {
                    let count = take(further, &mut more, 0).unwrap_or(0);
                    let events = more.iter().take(count);
                    events.for_each(|event| tell(&mut told, event));
                }
            }
        }
        if !told.is_empty() || count == 0 {
            return Some(told);
        }
    }
}

/// [`wait`] for a call of the program.
///
/// # Safety
/// `events` has room for `most` events, or is no memory.
unsafe fn wait_for(
    (set, first): (c_int, c_int),
    events: *mut epoll_event,
    most: usize,
    deadline: &Deadline,
) -> c_int {
    let Some(told) = wait(set, first, most, deadline) else {
        return -1;
    };
    // SAFETY: the caller's room, of which not more is used.
    if let Err(errno) = unsafe { memory::write(events, &told) } {
        return fail(errno);
    }
    c_int::try_from(told.len()).unwrap_or(c_int::MAX)
}

/// A set with sockets over RDMA, and how many events are wanted; `None` if the
/// call is for the kernel, as one is that asks for none.
fn find(set: c_int, most: c_int) -> Option<((c_int, c_int), usize)> {
    let most = usize::try_from(most).ok().filter(|most| *most > 0)?;
    Some(((set, sets::beside(set)?), most))
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
    match find(set, most) {
        // SAFETY: the caller's room.
        Some((found, most)) => unsafe {
            wait_for(found, events, most, &Deadline::from_millis(timeout))
        },
        // SAFETY: as above.
        None => unsafe { next::epoll_wait(set, events, most, timeout) },
    }
}

/// `epoll_pwait(2)`. With a socket over RDMA in the set, the mask is set before
/// and after the wait.
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
    match find(set, most) {
        // SAFETY: the caller's room and mask.
        Some((found, most)) => unsafe {
            with_mask(mask, || {
                wait_for(found, events, most, &Deadline::from_millis(timeout))
            })
        },
        // SAFETY: as above.
        None => unsafe { next::epoll_pwait(set, events, most, timeout, mask) },
    }
}

/// `epoll_pwait2(2)`, as [`epoll_pwait`].
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
    let Some((found, most)) = find(set, most) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::epoll_pwait2(set, events, most, timeout, mask) };
    };
    // SAFETY: the caller's time.
    match unsafe { limit(timeout) } {
        Ok(limit) => {
            let deadline = Deadline::after(limit);
            // SAFETY: the caller's room and mask.
            unsafe { with_mask(mask, || wait_for(found, events, most, &deadline)) }
        }
        Err(errno) => fail(errno),
    }
}
