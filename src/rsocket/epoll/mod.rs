//! Epoll sets of sockets over RDMA and ordinary descriptors (`repoll_create`,
//! `repoll_ctl`, `repoll_wait`) with the semantics of epoll(7).
//!
//! A set is an epoll set of the kernel. Ordinary descriptors are members of
//! it and the kernel alone decides on their events. For sockets the kernel
//! watches their completion channels and an eventfd that sockets signal; what
//! they report is asked of them.
//!
//! Here are the sets of the process and what programs call; `set` is one set and
//! the changes of its members, `member` what a socket in it has to report,
//! `collect` the waiting.

mod collect;
mod member;
mod set;

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use libc::epoll_event;

use crate::error::{Error, Result};
use crate::fork::{self, Renewed};
use crate::lock::{Mutex, locked};

pub use crate::kernel::epoll::Operation;

use super::socket::Socket;
use super::sockets;
use super::table::{Found, Known, Table};
use super::wait;

use set::Set;

static SETS: Table<Arc<Set>> = Table::new();

/// What fits into an `int` of bytes, as for the kernel.
const MOST_EVENTS: usize = i32::MAX as usize / size_of::<epoll_event>();

/// All sets.
static ALL: Renewed<Mutex<Vec<Weak<Set>>>> = Renewed::new(Mutex::new(Vec::new()));

/// Creates a set and returns its descriptor; `close_on_exec` as for
/// `epoll_create1(2)`.
///
/// # Errors
/// What the kernel says.
pub fn create(close_on_exec: bool) -> Result<RawFd> {
    fork::watch();
    let set = Arc::new(Set::new(close_on_exec)?);
    let fd = set.descriptor();
    let mut all = locked(ALL.get_or_renew(|| Mutex::new(Vec::new())));
    all.retain(|set| set.strong_count() > 0);
    all.push(Arc::downgrade(&set));
    drop(all);
    sockets::displace(fd);
    SETS.insert(fd, set)?;
    Ok(fd)
}

/// The descriptor `fd` was just opened for what is no set.
pub fn displace(fd: RawFd) {
    SETS.displace(fd);
}

/// Removes a socket that is being closed from all sets, as the kernel does.
pub fn forget(socket: &Socket) {
    let fd = socket.descriptor();
    let Some(all) = ALL.get() else {
        return;
    };
    let sets: Vec<_> = locked(all).iter().filter_map(Weak::upgrade).collect();
    for set in sets {
        set.forget(fd);
    }
}

/// Closes a set; `false` if the descriptor is none. Threads that wait on it
/// return with `EBADF`.
pub fn close(fd: RawFd) -> bool {
    match SETS.remove(fd) {
        None => return false,
        Some(Known::Own(set)) => {
            set.end();
        }
        Some(Known::Inherited) => {
            // SAFETY: this process's copy of a parent's descriptor.
            unsafe { libc::close(fd) };
        }
    }
    true
}

/// Adds, changes or removes a member.
///
/// # Errors
/// As `epoll_ctl(2)`: `EBADF`, `EEXIST`, `ENOENT`, `EINVAL` for what is no
/// set or for a set in itself, `EPERM`, `ENOMEM`, `ENOSPC`.
pub fn control(epfd: RawFd, operation: Operation, fd: RawFd, event: epoll_event) -> Result<()> {
    let set = find(epfd)?;
    if fd == epfd {
        return Err(Error::invalid("put an epoll set into itself"));
    }
    set.control(operation, fd, event)
}

/// Waits until members have events, puts them into `events` and returns how
/// many there are, 0 at the end of `timeout_ms` (negative: none).
///
/// # Errors
/// `EBADF`, `EINVAL` for what is no set or no room for events or too much,
/// `EINTR`.
pub fn wait(epfd: RawFd, events: &mut [epoll_event], timeout_ms: i32) -> Result<usize> {
    let set = find(epfd)?;
    if events.is_empty() || events.len() > MOST_EVENTS {
        return Err(Error::invalid("wait for no events, or for too many"));
    }
    set.wait(events, wait::deadline_after(timeout_ms))
}

fn find(epfd: RawFd) -> Result<Arc<Set>> {
    let errno = match SETS.look_up(epfd, Arc::clone) {
        Found::Own(set) => return Ok(set),
        // A parent's set counts as closed, as its sockets do.
        Found::Nothing if is_open(epfd) && !SETS.is_inherited(epfd) => libc::EINVAL,
        Found::Nothing | Found::Closing => libc::EBADF,
    };
    Err(Error::new(errno, "use what is no epoll set"))
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, pipe};
    use std::os::fd::AsRawFd;

    /// Numbers of sets that were closed are another's when a test that runs at the same
    /// time creates one.
    static TURN: Mutex<()> = Mutex::new(());

    fn event(events: i32, data: u64) -> epoll_event {
        epoll_event {
            events: events as u32,
            u64: data,
        }
    }

    #[test]
    fn what_is_being_closed_is_neither_member_nor_set() {
        let _turn = locked(&TURN);
        let set = create(true).unwrap();
        let fd = sockets::create(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        let errno = |result: Result<()>| result.map_err(|error| error.errno());
        let operations = [Operation::Add, Operation::Modify, Operation::Remove];
        control(set, Operation::Add, fd, event(libc::EPOLLIN, 1)).unwrap();
        // Other threads are still in calls on both.
        let used = (sockets::any(fd).unwrap(), find(set).unwrap());
        sockets::close(fd).unwrap();
        for operation in operations {
            let changed = control(set, operation, fd, event(0, 2));
            assert_eq!(errno(changed), Err(libc::EBADF));
        }
        assert_eq!(wait(set, &mut [event(0, 0)], 0), Ok(0));
        assert!(close(set));
        let waited = wait(set, &mut [event(0, 0)], -1).map(|_| ());
        assert_eq!(errno(waited), Err(libc::EBADF));
        assert!(!close(set));
        drop(used);
    }

    #[test]
    fn ordinary_descriptors_behave_as_in_the_kernel() {
        let _turn = locked(&TURN);
        let set = create(true).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        let ctl = |operation, flags| control(set, operation, fd, event(flags, 42));
        let errno = |result: Result<()>| result.map_err(|error| error.errno());
        assert_eq!(errno(ctl(Operation::Modify, 0)), Err(libc::ENOENT));
        ctl(Operation::Add, libc::EPOLLIN | libc::EPOLLET).unwrap();
        assert_eq!(errno(ctl(Operation::Add, 0)), Err(libc::EEXIST));
        assert_eq!(
            errno(control(set, Operation::Add, set, event(0, 0))),
            Err(libc::EINVAL)
        );
        assert_eq!(
            errno(control(set, Operation::Add, -1, event(0, 0))),
            Err(libc::EBADF)
        );

        let mut events = [event(0, 0); 4];
        assert_eq!(wait(set, &mut events, 0), Ok(0));
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(set, &mut events, -1), Ok(1));
        assert_eq!({ events[0].u64 }, 42);
        assert_eq!(wait(set, &mut events, 10), Ok(0), "the edge was reported");
        assert!(close(set));
        assert!(!close(set));
    }
}
