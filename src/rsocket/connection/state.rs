//! What programs ask of the state of a connection, and its end from this side.

use crate::error::Error;
use crate::lock::locked;

use super::{Connection, Link};
use crate::rsocket::wire::Message;

/// What has become possible; for polling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A receive would not wait.
    pub readable: bool,
    /// A send would not wait.
    pub writable: bool,
    /// The peer will not send any more.
    pub end_of_stream: bool,
    /// The connection has ended.
    pub hung_up: bool,
    /// The connection is broken.
    pub broken: bool,
}

/// Which directions to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// No more receiving.
    Read,
    /// No more sending.
    Write,
    /// Neither.
    Both,
}

impl Connection {
    /// What would not wait. Who is interested in `reading` wants the peer to
    /// know all that was sent.
    #[inline]
    pub fn readiness(&self, reading: bool) -> Readiness {
        self.with_core(|core| {
            if reading {
                self.post_draft(core);
            }
            self.progress(core);
            self.send_controls(core);
            let up = core.link == Link::Up;
            let ended = !core.readable || !up;
            Readiness {
                readable: core.inbox.unread() > 0 || ended,
                writable: !up || !core.writable || core.outbox.can_send(),
                end_of_stream: ended,
                // Programs take it for an error, so not while there is data.
                hung_up: core.link == Link::Down && core.inbox.unread() == 0,
                broken: matches!(core.link, Link::Broken { .. }),
            }
        })
    }

    /// Shuts down one or both directions and tells the peer, when there is room
    /// in the send queue.
    pub fn shutdown(&self, directions: Directions) {
        self.with_core(|core| {
            self.progress(core);
            self.post_draft(core);
            let was_open = core.readable || core.writable;
            if directions != Directions::Write {
                core.readable = false;
            }
            let stops_sending = directions != Directions::Read && core.writable;
            if directions != Directions::Read {
                core.writable = false;
            }
            core.changed = true;
            if core.link != Link::Up {
                return;
            }
            if was_open && !core.readable && !core.writable {
                core.pending = Some(Message::Disconnect);
            } else if stops_sending {
                core.pending = Some(Message::Shutdown);
            }
            self.send_controls(core);
        });
    }

    /// Whether the program may receive and send; `None` without a connection.
    pub fn open_directions(&self) -> Option<(bool, bool)> {
        self.with_core(|core| {
            self.progress(core);
            (core.link == Link::Up).then_some((core.readable, core.writable))
        })
    }

    /// Whether what a shutdown tells the peer, and with it all that was sent
    /// before, is still on its way.
    pub fn is_telling(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let told = core.pending.is_none() && !core.telling;
            core.draining || core.link == Link::Up && !told
        })
    }

    /// Whether the connection has ended, in order or not, and nothing of what
    /// was sent is on its way.
    pub fn is_over(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.link != Link::Up && !core.draining
        })
    }

    /// Takes note that the connection manager says the peer is gone. If it
    /// did not say goodbye, the connection is broken.
    pub fn peer_gone(&self) {
        self.with_core(|core| {
            self.progress(core);
            self.fail(core, &Error::new(libc::ECONNRESET, "keep the connection"));
        });
    }

    /// What broke the connection, unless it was reported before; 0 if nothing
    /// did.
    pub fn take_error(&self) -> i32 {
        self.with_core(|core| {
            self.progress(core);
            match &mut core.link {
                Link::Broken { errno, reported } if !*reported => {
                    *reported = true;
                    *errno
                }
                _ => 0,
            }
        })
    }

    /// The program is told of `error`. If that is what broke the connection, it
    /// is not told again. Not before: a call that succeeds in part does not tell
    /// of it, and meanwhile another thread must not take it for told.
    pub fn tell(&self, error: &Error) {
        if let Link::Broken { errno, reported } = &mut locked(&self.core).link
            && *errno == error.errno()
        {
            *reported = true;
        }
    }
}
