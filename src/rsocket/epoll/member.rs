//! What a set knows of its members, and what a socket in it has to report.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;

use libc::epoll_event;

use crate::rsocket::socket::Socket;

/// Events that are reported whether asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
pub(super) const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;

/// A socket in a set.
pub(super) struct Member {
    pub(super) socket: Socket,
    pub(super) events: u32,
    pub(super) data: u64,
    /// Waits to be modified after its one report.
    pub(super) disabled: bool,
    /// How often the socket had changed at the last report.
    pub(super) seen: Option<u64>,
    /// Its completion channel is in the kernel's set.
    pub(super) watched: Option<RawFd>,
}

#[derive(Default)]
pub(super) struct Members {
    pub(super) sockets: BTreeMap<RawFd, Member>,
    /// The program's data of ordinary members.
    pub(super) ordinary: BTreeMap<RawFd, u64>,
    /// Sockets to look at: they may have something to report. The others
    /// had nothing when looked at last, and will tell.
    pub(super) due: BTreeSet<RawFd>,
    /// Where the next look at the sockets begins, so that each has its turn.
    pub(super) next: RawFd,
    /// The kernel's events come first at the next call.
    pub(super) kernel_first: bool,
    /// The eventfd has been seen or made readable and not been cleared since.
    pub(super) signalled: bool,
}

impl Member {
    /// What the socket reports, and how often it had changed by then: a change
    /// after that is an edge.
    fn look(&self, interest: i16) -> (u32, u64) {
        let waiters = self.socket.common().waiters();
        let mut before = waiters.changes();
        loop {
            let ready = u32::from(self.socket.poll(interest).cast_unsigned());
            let changes = waiters.changes();
            // A look that finds something changes the socket itself, and what
            // others change meanwhile is to be seen as well.
            if changes == before {
                return (ready, changes);
            }
            before = changes;
        }
    }

    /// What is to be reported of the socket now.
    pub(super) fn report(&mut self) -> Option<epoll_event> {
        if self.disabled {
            return None;
        }
        let interest = (self.events | ALWAYS) & 0xFFFF;
        let (ready, changes) = self.look(interest as i16);
        if ready == 0 {
            self.seen = None;
            return None;
        }
        if self.events & EDGE != 0 {
            if self.seen == Some(changes) {
                return None;
            }
            self.seen = Some(changes);
        }
        self.disabled = self.events & ONE_SHOT != 0;
        Some(epoll_event {
            events: ready,
            u64: self.data,
        })
    }
}
