//! An established stream connection: data and control messages between the
//! program's buffers, the rings and the queue pair.
//!
//! All state is behind one lock that is never held while sleeping. Calls here
//! do what can be done at once; [`super::stream`] waits and calls again.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `send`, `receive`, `mapped` | the calls of programs that move data |
//! | `short` | the short way of small messages |
//! | `arrival` | what completes and what the peer says |
//! | `control` | grants, shutdown and disconnect |
//! | `state` | what has become possible; the end from this side |
//! | `liveness` | whether the peer is still there |
//! | `work` | identifiers of work requests |

mod arrival;
mod control;
mod liveness;
mod mapped;
mod receive;
mod send;
mod short;
mod state;
mod work;

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::error::Error;
use crate::lock::{Mutex, locked};

use super::endpoint::Endpoint;
use super::flow::{Inbox, Outbox};
use super::mapping::Mappings;
use super::pace::Pace;
use super::wait::Notifier;
use super::waiters::Waiters;
use super::wire::{BIG_ENDIAN, ConnData, Message};

use liveness::Liveness;
pub use short::Received;
pub use state::{Directions, Readiness};

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
    /// The message of a shutdown that waits for a slot.
    pending: Option<Message>,
    /// Such a message is on its way.
    telling: bool,
    /// A notification was asked for and has not been taken yet.
    armed: bool,
    /// Something changed that others may wait for.
    changed: bool,
    mappings: Mappings,
    pace: Pace,
    /// Somebody was asked to post what was gathered.
    flush_asked: bool,
    controls: usize,
    /// Receives that have completed and are to be posted again.
    consumed_receives: usize,
    /// Messages that were sent since completions were last looked at.
    unlooked: usize,
    liveness: Liveness,
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
pub fn retry() -> Error {
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
        Self {
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
                telling: false,
                armed: false,
                changed: false,
                mappings: Mappings::default(),
                pace: Pace::default(),
                flush_asked: false,
                controls: 0,
                consumed_receives: 0,
                unlooked: 0,
                liveness: Liveness::default(),
            }),
            waiters,
        }
    }

    /// Grants the peer the second half of the buffer at once, and not in the first
    /// call of the program's.
    pub fn grant_all(&self) {
        self.with_core(|core| self.send_controls(core));
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
}

impl Notifier for Connection {
    fn notification_fd(&self) -> RawFd {
        self.endpoint.completions().notification_fd()
    }

    fn look(&self) -> bool {
        self.with_core(|core| {
            let happened = self.progress(core);
            if !happened {
                self.send_controls(core);
            }
            happened
        })
    }

    fn arm(&self) -> bool {
        self.with_core(|core| {
            self.send_controls(core);
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
