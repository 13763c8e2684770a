//! An established stream connection: data and control messages between the
//! program's buffers, the rings and the queue pair.
//!
//! All state is behind one lock that is never held while sleeping. Calls here
//! do what can be done at once; [`super::stream`] waits and calls again.
//!
//! Here are its state and what changes it from outside: completions, control
//! messages, the end. The calls of programs are in `send`, `receive` and
//! `mapped`.

mod mapped;
mod receive;
mod send;
mod work;

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::lock::locked;
use crate::verbs::bindings::{
    IBV_WC_LOC_QP_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, ibv_wc,
};

use super::carrier::Write;
use super::completion::BATCH;
use super::endpoint::Endpoint;
use super::flow::{Inbox, Outbox, Violation};
use super::mapping::Mappings;
use super::pace::Pace;
use super::wait::{Notifier, Waiters};
use super::wire::{BIG_ENDIAN, ConnData, Message, TARGET_LEN, Target};

use work::Work;

/// Whether the peer can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// Ended in order.
    Down,
    /// Broken; the errno is reported once.
    Broken {
        errno: i32,
        reported: bool,
    },
}

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

/// The changing part of a connection.
#[derive(Debug)]
struct Core {
    inbox: Inbox,
    outbox: Outbox,
    link: Link,
    /// Both sides have stopped sending at the same time, and not all of what
    /// was sent here has arrived.
    draining: bool,
    /// The program may receive, and the peer may still send.
    readable: bool,
    /// The program may send.
    writable: bool,
    /// A control message that waits for a slot.
    pending: Option<Message>,
    /// A notification was asked for and has not been taken yet.
    armed: bool,
    /// Something changed that others may wait for.
    changed: bool,
    mappings: Mappings,
    pace: Pace,
    /// Somebody was asked to post what was gathered.
    flush_asked: bool,
    controls: usize,
    consumed_receives: usize,
    /// Somebody was asked to call [`Connection::probe`].
    probing: bool,
    /// Data has come or gone since the last look of the keep-alive timer.
    active: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    endpoint: Endpoint,
    peer: ConnData,
    swapped: bool,
    core: Mutex<Core>,
    waiters: Arc<Waiters>,
}

/// There is nothing to do until the peer or the device does something.
fn retry() -> Error {
    Error::new(libc::EAGAIN, "wait for the peer")
}

impl Connection {
    /// The connection of an endpoint whose peer said `peer`, established.
    pub fn new(endpoint: Endpoint, peer: ConnData, waiters: Arc<Waiters>) -> Self {
        let inbox = Inbox::new(
            endpoint.receive_length(),
            endpoint.receive_queue(),
            peer.target_list.length,
        );
        let outbox = Outbox::new(endpoint.send_length(), endpoint.send_queue(), &peer);
        let connection = Self {
            endpoint,
            peer,
            swapped: peer.big_endian != BIG_ENDIAN,
            core: Mutex::new(Core {
                inbox,
                outbox,
                link: Link::Up,
                draining: false,
                readable: true,
                writable: true,
                pending: None,
                armed: false,
                changed: false,
                mappings: Mappings::default(),
                pace: Pace::default(),
                flush_asked: false,
                controls: 0,
                consumed_receives: 0,
                probing: false,
                active: false,
            }),
            waiters,
        };
        connection.with_core(|core| connection.progress(core));
        connection
    }

    /// Its endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What the peer said when connecting.
    pub fn peer(&self) -> &ConnData {
        &self.peer
    }

    fn with_core<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = locked(&self.core);
        let result = action(&mut core);
        let changed = std::mem::take(&mut core.changed);
        drop(core);
        if changed {
            self.waiters.notify();
        }
        result
    }

    /// Handles what has completed.
    fn progress(&self, core: &mut Core) {
        let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        loop {
            let count = match self.endpoint.completions().poll(&mut batch) {
                Ok(count) => count,
                Err(error) => {
                    self.device_failed(core, &error);
                    break;
                }
            };
            for wc in batch.iter().take(count) {
                // SAFETY: the poll filled the first `count`.
                self.completed(core, unsafe { wc.assume_init_ref() });
            }
            core.changed |= count > 0;
            if count < BATCH {
                break;
            }
        }
        let receives = std::mem::take(&mut core.consumed_receives);
        if receives > 0
            && core.link == Link::Up
            && let Err(error) = self.endpoint.post_receives(receives)
        {
            self.device_failed(core, &error);
        }
        self.send_controls(core);
    }

    fn completed(&self, core: &mut Core, wc: &ibv_wc) {
        let work = Work::decode(wc.wr_id);
        if wc.status != IBV_WC_SUCCESS {
            // Receives are flushed whenever a queue pair ends.
            if (core.link == Link::Up || core.draining) && work != Work::Receive {
                let errno = match wc.status {
                    IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => libc::ETIMEDOUT,
                    // The second is what soft-RoCE says without a network.
                    IBV_WC_WR_FLUSH_ERR | IBV_WC_LOC_QP_OP_ERR => libc::ECONNRESET,
                    _ => libc::EIO,
                };
                log::info!("{}: send failed, status {}", self.endpoint.id(), wc.status);
                self.fail(core, &Error::new(errno, "send to the peer"));
            }
            return;
        }
        core.active |= matches!(work, Work::Receive | Work::Data(_));
        match work {
            Work::Receive => {
                core.consumed_receives = core.consumed_receives.saturating_add(1);
                if let Some(message) = self.endpoint.message(wc, self.swapped) {
                    self.received(core, message, wc);
                }
            }
            Work::Data(cost) => core.outbox.complete(cost),
            Work::Control(cost) => core.outbox.complete_control(cost),
            Work::Disconnect(cost) => {
                core.outbox.complete_control(cost);
                self.end(core);
            }
        }
    }

    fn received(&self, core: &mut Core, message: Message, wc: &ibv_wc) {
        match message {
            Message::Data(length) => {
                if let Err(violation) = core.inbox.deliver(length) {
                    self.violated(core, violation);
                }
            }
            Message::Grant(limit) => {
                let target = self.endpoint.granted(wc, core.outbox.next_target());
                core.outbox.grant(limit, target);
            }
            // The entry itself was written to our list of mappings.
            Message::Mapping(_) => core.inbox.count_message(),
            Message::Disconnect => self.end(core),
            Message::Shutdown => {
                core.readable = false;
                if !core.writable {
                    self.end(core);
                    core.draining = core.link == Link::Down;
                }
            }
            Message::Ignored => {}
        }
    }

    fn violated(&self, core: &mut Core, violation: Violation) {
        log::error!(
            "{}: the peer broke the protocol: {violation:?}",
            self.endpoint.id()
        );
        self.fail(core, &Error::new(libc::EPROTO, "receive from the peer"));
    }

    fn end(&self, core: &mut Core) {
        if core.link == Link::Up {
            core.link = Link::Down;
            core.changed = true;
            log::debug!("{}: connection ended", self.endpoint.id());
        }
    }

    /// A call of the device's failed. Once the device is gone, all do.
    fn device_failed(&self, core: &mut Core, error: &Error) {
        let errno = match error.errno() {
            libc::EIO | libc::ENODEV => libc::ECONNRESET,
            errno => errno,
        };
        self.fail(core, &Error::new(errno, error.step()));
    }

    fn fail(&self, core: &mut Core, error: &Error) {
        core.changed |= std::mem::take(&mut core.draining);
        if core.link == Link::Up {
            core.link = Link::Broken {
                errno: error.errno(),
                reported: false,
            };
            core.changed = true;
            log::info!("{}: connection broken: {error}", self.endpoint.id());
        }
    }

    /// Sends the grants that are due and control messages that had to wait.
    fn send_controls(&self, core: &mut Core) {
        while core.link == Link::Up || core.draining {
            let sent = if let Some(message) = core.pending {
                self.send_control(core, message)
            } else if core.draining {
                core.draining = !core.outbox.is_idle();
                return;
            } else if let Some(grant) = core.inbox.grant_due() {
                self.send_grant(core, &grant)
            } else {
                return;
            };
            if !sent {
                return;
            }
        }
    }

    fn take_control(core: &mut Core, disconnect: bool) -> Option<(u64, usize)> {
        let cost = core.outbox.take_control()?;
        core.controls = core.controls.wrapping_add(1);
        let work = if disconnect {
            Work::Disconnect(cost)
        } else {
            Work::Control(cost)
        };
        Some((work.encode(), core.controls))
    }

    fn send_control(&self, core: &mut Core, message: Message) -> bool {
        let Some((id, _)) = Self::take_control(core, message == Message::Disconnect) else {
            return false;
        };
        core.pending = None;
        let write = Write {
            target: Target::default(),
            message: Some(message),
            id,
            signaled: true,
        };
        if let Err(error) = self.endpoint.post_empty(&write) {
            self.device_failed(core, &error);
        }
        true
    }

    fn send_grant(&self, core: &mut Core, grant: &super::flow::Grant) -> bool {
        let Some((id, slot)) = Self::take_control(core, false) else {
            return false;
        };
        core.inbox.granted(grant);
        let mut write = Write {
            target: Target::default(),
            message: Some(Message::Grant(grant.limit)),
            id,
            signaled: true,
        };
        let posted = match grant.half {
            None => self.endpoint.post_empty(&write),
            Some(half) => {
                let entry = u64::from(half.entry).wrapping_mul(TARGET_LEN as u64);
                write.target = Target {
                    addr: self.peer.target_list.addr.wrapping_add(entry),
                    key: self.peer.target_list.key,
                    length: TARGET_LEN as u32,
                };
                let target = self.endpoint.receive_target(half.offset, half.length);
                let bytes = target.encode(self.swapped);
                self.endpoint.post_bytes(&write, &bytes, slot)
            }
        };
        if let Err(error) = posted {
            self.device_failed(core, &error);
        }
        true
    }

    /// What would not wait. Who is interested in `reading` wants the peer to
    /// know all that was sent.
    pub fn readiness(&self, reading: bool) -> Readiness {
        self.with_core(|core| {
            if reading {
                self.post_draft(core);
            }
            self.progress(core);
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

    /// Shuts down one or both directions and tells the peer. Returns whether
    /// that is on its way; otherwise the send queue is full, and it will be
    /// sent when there is room.
    pub fn shutdown(&self, directions: Directions) -> bool {
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
                return true;
            }
            if was_open && !core.readable && !core.writable {
                core.pending = Some(Message::Disconnect);
            } else if stops_sending {
                core.pending = Some(Message::Shutdown);
            }
            self.send_controls(core);
            core.pending.is_none() || core.link != Link::Up
        })
    }

    /// Makes the peer's device answer if nothing has happened since the last
    /// call; if it does not, the connection breaks. Returns `false` once there
    /// is no connection any more.
    pub fn keep_alive(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let idle = !std::mem::take(&mut core.active);
            if core.link == Link::Up && idle {
                self.ask_peer(core);
            }
            core.link == Link::Up
        })
    }

    /// Writes nothing, which the peer's device confirms.
    fn ask_peer(&self, core: &mut Core) {
        let Some((id, _)) = Self::take_control(core, false) else {
            return;
        };
        let write = Write {
            target: Target::default(),
            message: None,
            id,
            signaled: true,
        };
        if let Err(error) = self.endpoint.post_empty(&write) {
            self.device_failed(core, &error);
        }
    }

    fn is_starved(core: &Core) -> bool {
        core.link == Link::Up && core.writable && core.outbox.is_starved()
    }

    /// Whether the caller is to see to it that [`Connection::probe`] is called
    /// from time to time: sends wait for a peer that may be gone, and nothing is
    /// on its way that would tell.
    pub fn wants_probes(&self) -> bool {
        self.with_core(|core| Self::is_starved(core) && !std::mem::replace(&mut core.probing, true))
    }

    /// Makes the peer's device answer if sends still wait for the peer; if it
    /// does not, the connection breaks. Returns `false` once they do not wait.
    pub fn probe(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.probing = Self::is_starved(core);
            if core.probing {
                self.ask_peer(core);
            }
            core.probing
        })
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

    /// What broke the connection is to be reported once more: the call that was
    /// to report it has succeeded in part.
    pub fn report_again(&self) {
        if let Link::Broken { reported, .. } = &mut locked(&self.core).link {
            *reported = false;
        }
    }

    /// Whether the program may receive and send; `None` without a connection.
    pub fn open_directions(&self) -> Option<(bool, bool)> {
        self.with_core(|core| {
            self.progress(core);
            (core.link == Link::Up).then_some((core.readable, core.writable))
        })
    }

    /// Whether a control message still waits for room in the send queue.
    pub fn has_pending(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            (core.link == Link::Up || core.draining) && core.pending.is_some()
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
}

impl Notifier for Connection {
    fn notification_fd(&self) -> RawFd {
        self.endpoint.completions().notification_fd()
    }

    fn arm(&self) -> bool {
        self.with_core(|core| {
            if core.armed {
                return false;
            }
            match self.endpoint.completions().arm() {
                Ok(()) => core.armed = true,
                Err(error) => self.device_failed(core, &error),
            }
            true
        })
    }

    fn take_notification(&self) {
        self.with_core(|core| {
            let completions = self.endpoint.completions();
            match completions.take_notification() {
                Ok(true) => {
                    // Others count on the next completion to wake them.
                    let wanted = core.link == Link::Up || core.draining;
                    core.armed = wanted && self.waiters.is_shared() && completions.arm().is_ok();
                    // What completed before that will not be notified again, and
                    // the caller may find what it wants without a look.
                    self.progress(core);
                }
                Ok(false) => {}
                Err(error) => self.device_failed(core, &error),
            }
        });
    }
}
