//! An epoll set: the kernel's with what it does not know, and the changes of its
//! members.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use libc::epoll_event;

use crate::error::{Error, Result};
use crate::kernel::epoll::{Epoll, Operation};
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::lock::{Mutex, locked};

use super::SETS;
use super::member::{Member, Members};
use crate::rsocket::socket::Socket;
use crate::rsocket::sockets;
use crate::rsocket::table::{Found, Number};
use crate::rsocket::waiters::Notes;
use crate::rsocket::wake::Wake;

/// What the kernel's data of a member says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Ordinary(RawFd),
    /// The completion channel of the socket with this descriptor.
    Completions(RawFd),
    Wake,
}

impl Tag {
    pub(super) fn encode(self) -> u64 {
        let (kind, fd) = match self {
            Self::Ordinary(fd) => (0u64, fd),
            Self::Completions(fd) => (1, fd),
            Self::Wake => (2, 0),
        };
        kind << 32 | u64::from(fd.cast_unsigned())
    }

    pub(super) fn decode(data: u64) -> Self {
        let fd = (data as u32).cast_signed();
        match data >> 32 {
            0 => Self::Ordinary(fd),
            1 => Self::Completions(fd),
            _ => Self::Wake,
        }
    }
}

/// An epoll set.
pub(super) struct Set {
    pub(super) epoll: Number<Epoll, Arc<Self>>,
    pub(super) wake: Arc<Wake>,
    pub(super) notes: Arc<Notes>,
    pub(super) members: Mutex<Members>,
    pub(super) closed: AtomicBool,
}

impl Set {
    /// A set without members.
    pub(super) fn new(close_on_exec: bool) -> Result<Self> {
        let set = Self {
            epoll: Number::new(Epoll::new(close_on_exec)?, &SETS),
            wake: Arc::new(Wake::new()?),
            notes: Arc::default(),
            members: Mutex::new(Members::default()),
            closed: AtomicBool::new(false),
        };
        set.watch(set.wake.as_raw_fd(), Tag::Wake)?;
        Ok(set)
    }

    /// The descriptor by which programs know it.
    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// It is closed: those who wait on it return.
    pub(super) fn end(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.signal();
    }

    /// The socket `fd`, if it is a member, is none any more.
    pub(super) fn forget(&self, fd: RawFd) {
        let member = locked(&self.members).sockets.remove(&fd);
        if let Some(member) = member {
            self.release(&member);
        }
    }

    /// Adds, changes or removes a member.
    pub(super) fn control(
        &self,
        operation: Operation,
        fd: RawFd,
        event: epoll_event,
    ) -> Result<()> {
        let mut members = locked(&self.members);
        self.forget_closed(&mut members);
        let found = sockets::look_up(fd, Socket::clone);
        self.forget_replaced(&mut members, fd, &found);
        match found {
            Found::Own(socket) => self.control_socket(&mut members, operation, fd, socket, event),
            Found::Closing => Err(Error::new(libc::EBADF, "use a socket that is being closed")),
            Found::Nothing => self.control_ordinary(&mut members, operation, fd, event),
        }
    }

    /// Has the kernel's set report when `fd`, which `tag` tells of, is readable.
    pub(super) fn watch(&self, fd: RawFd, tag: Tag) -> Result<()> {
        self.epoll.watch(fd, tag.encode())
    }

    fn control_ordinary(
        &self,
        members: &mut Members,
        operation: Operation,
        fd: RawFd,
        event: epoll_event,
    ) -> Result<()> {
        let tag = Tag::Ordinary(fd).encode();
        self.epoll.control(operation, fd, event.events, tag)?;
        if operation == Operation::Remove {
            members.ordinary.remove(&fd);
        } else {
            members.ordinary.insert(fd, event.u64);
        }
        Ok(())
    }

    fn control_socket(
        &self,
        members: &mut Members,
        operation: Operation,
        fd: RawFd,
        socket: Socket,
        event: epoll_event,
    ) -> Result<()> {
        let known = members.sockets.contains_key(&fd);
        match (operation, known) {
            (Operation::Add, true) => return Err(Error::new(libc::EEXIST, "add a member twice")),
            (Operation::Add, false) => {
                let noted = Some((Arc::clone(&self.notes), fd));
                socket.common().waiters().add(&self.wake, noted);
                members.sockets.insert(
                    fd,
                    Member {
                        socket,
                        events: event.events,
                        data: event.u64,
                        disabled: false,
                        seen: None,
                        watched: None,
                    },
                );
            }
            (_, false) => return Err(Error::new(libc::ENOENT, "change what is no member")),
            (Operation::Modify, true) => {
                if let Some(member) = members.sockets.get_mut(&fd) {
                    member.events = event.events;
                    member.data = event.u64;
                    member.disabled = false;
                    member.seen = None;
                }
            }
            (Operation::Remove, true) => {
                if let Some(member) = members.sockets.remove(&fd) {
                    self.release(&member);
                }
            }
        }
        // Another thread may wait, and the member may be ready.
        members.due.insert(fd);
        self.wake.signal();
        Ok(())
    }

    fn release(&self, member: &Member) {
        member.socket.common().waiters().remove(&self.wake);
        if let Some(fd) = member.watched {
            self.epoll.forget(fd);
        }
    }

    /// The member `fd` is none any more unless it is the socket that was `found`: that
    /// is being closed, or was by `close(2)`, and its descriptor is another's.
    fn forget_replaced(&self, members: &mut Members, fd: RawFd, found: &Found<Socket>) {
        let replaced =
            |member: &Member| !matches!(found, Found::Own(socket) if member.socket.is(socket));
        if members.sockets.get(&fd).is_some_and(replaced)
            && let Some(member) = members.sockets.remove(&fd)
        {
            self.release(&member);
        }
    }

    /// Closed sockets are no members any more, as with the kernel's.
    pub(super) fn forget_closed(&self, members: &mut Members) {
        members.sockets.retain(|_, member| {
            let open = !member.socket.common().is_closed();
            if !open {
                self.release(member);
            }
            open
        });
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let members = std::mem::take(&mut *locked(&self.members));
        for member in members.sockets.values() {
            self.release(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_survive() {
        for tag in [Tag::Ordinary(7), Tag::Completions(i32::MAX), Tag::Wake] {
            assert_eq!(Tag::decode(tag.encode()), tag);
        }
    }
}
