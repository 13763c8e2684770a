//! Sets of descriptors that a thread sleeps on (`epoll(7)`). What a readable
//! descriptor means is its user's business.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::epoll_event;

use super::descriptor::opened;
use crate::error::{Error, Result};

const STEP: &str = "change an epoll set";
/// The event of being readable.
const READABLE: u32 = libc::EPOLLIN as u32;

/// What to do with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Add it.
    Add,
    /// Change its events and data.
    Modify,
    /// Remove it.
    Remove,
}

impl Operation {
    fn number(self) -> i32 {
        match self {
            Self::Add => libc::EPOLL_CTL_ADD,
            Self::Modify => libc::EPOLL_CTL_MOD,
            Self::Remove => libc::EPOLL_CTL_DEL,
        }
    }
}

/// A set, closed when dropped; its own descriptor is readable while a member
/// has an event. All calls may come from several threads at once.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set, which a new program does not inherit if `close_on_exec`.
    ///
    /// # Errors
    /// As `epoll_create1(2)`: `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new(close_on_exec: bool) -> Result<Self> {
        let flags = if close_on_exec {
            libc::EPOLL_CLOEXEC
        } else {
            0
        };
        // SAFETY: no pointers; what it opens is nobody else's.
        unsafe { opened(libc::epoll_create1(flags), "create an epoll set") }.map(Self)
    }

    /// Adds, changes or removes a member with its `events` and the `data` that
    /// they are reported with.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`: `EBADF`, `EEXIST`, `ENOENT`, `EPERM`, `EINVAL`,
    /// `ENOMEM`, `ENOSPC`.
    pub fn control(&self, operation: Operation, fd: RawFd, events: u32, data: u64) -> Result<()> {
        let mut event = epoll_event { events, u64: data };
        // SAFETY: the event lives until the call ends.
        let status =
            unsafe { libc::epoll_ctl(self.as_raw_fd(), operation.number(), fd, &mut event) };
        if status != 0 {
            return Err(Error::last_os(STEP));
        }
        Ok(())
    }

    /// Has the set report `data` while `fd` is readable; nothing happens if
    /// it is a member already.
    ///
    /// # Errors
    /// Those of [`Epoll::control`].
    pub fn watch(&self, fd: RawFd, data: u64) -> Result<()> {
        match self.control(Operation::Add, fd, READABLE, data) {
            Err(error) if error.errno() == libc::EEXIST => Ok(()),
            result => result,
        }
    }

    /// Removes `fd`, which may be closed or no member.
    pub fn forget(&self, fd: RawFd) {
        // Then there is nothing to do.
        let _ = self.control(Operation::Remove, fd, 0, 0);
    }

    /// Sleeps until there are events or `timeout_ms` is over, negative for no
    /// end, and puts as many into `events` as fit. Returns how many.
    ///
    /// # Errors
    /// As `epoll_wait(2)`: `EINTR`, `EINVAL` without room for an event.
    pub fn wait(&self, events: &mut [epoll_event], timeout_ms: i32) -> Result<usize> {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: room for that many events, exclusively borrowed.
        let count =
            unsafe { libc::epoll_wait(self.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) };
        usize::try_from(count).map_err(|_| Error::last_os("wait on an epoll set"))
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, pipe};

    #[test]
    fn members_are_reported_by_their_data_until_forgotten() {
        let set = Epoll::new(true).unwrap();
        let (reader, mut writer) = pipe().unwrap();
        let fd = reader.as_raw_fd();
        set.watch(fd, 7).unwrap();
        set.watch(fd, 8).unwrap();
        let mut events = [epoll_event { events: 0, u64: 0 }; 2];
        assert_eq!(set.wait(&mut events, 0), Ok(0));
        writer.write_all(b"x").unwrap();
        assert_eq!(set.wait(&mut events, -1), Ok(1));
        assert_eq!({ events[0].u64 }, 7);
        set.forget(fd);
        set.forget(fd);
        assert_eq!(set.wait(&mut events, 0), Ok(0));
    }
}
