//! Identifiers.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `members` | reading and writing the public members |
//! | `table` | which identifiers are alive, by address and kernel number |
//! | `lifecycle` | creation, migration, starting again, destruction |
//!
//! One allocation holds the public head that C programs see and the private
//! part behind it, which is defined here.

mod lifecycle;
mod members;
pub(super) mod table;

use std::cell::UnsafeCell;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::{RDMA_PS_IPOIB, RDMA_PS_UDP, rdma_cm_id, rdma_event_channel, rdma_port_space};
use crate::error::{Error, Result};
use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::lock::{Mutex, MutexGuard, locked};
use crate::verbs::bindings::{IBV_QPT_RC, IBV_QPT_UD, ibv_node_type, ibv_sa_path_rec};

use super::accounting::Accounting;
use super::addrinfo::Resolution;
use super::device::Device;
use super::ece::EcePair;
use super::endpoint::EndpointAttr;
use super::handler::HandlerLock;
use super::messenger::Messenger;
use super::multicast::{Attachment, Membership};
use super::waiters::Waiters;
use super::{channel, cq};

/// A communication identifier.
#[repr(C)]
pub struct Id {
    public: UnsafeCell<rdma_cm_id>,
    handle: AtomicU32,
    synchronous: AtomicBool,
    destroying: AtomicBool,
    accounting: Accounting,
    waiters: Waiters,
    handler: HandlerLock,
    state: Mutex<State>,
    qp_lock: Mutex<()>,
}

/// The private, changing part of an identifier.
#[derive(Default)]
pub struct State {
    /// Device that the identifier is bound to; set once.
    pub device: Option<Arc<Device>>,
    /// The library knows the local address and port already.
    pub bound: bool,
    /// A connection request made this identifier.
    pub passive: bool,
    /// Our side of a connection failed and the peer was told; what the kernel
    /// still reports of it is swallowed.
    pub connect_failed: bool,
    /// The kernel has yet to tell how a connection ends that was asked for or
    /// accepted.
    pub end_due: bool,
    /// Depth of outgoing RDMA reads and atomics: requested by the peer, then
    /// agreed.
    pub initiator_depth: u8,
    /// Incoming RDMA reads and atomics: requested by the peer, then agreed.
    pub responder_resources: u8,
    /// The kernel's INIT attributes were applied to this identifier's queue
    /// pair after the connection request, so accept need not repeat them.
    pub qp_initialised: bool,
    /// A thread destroys the queue pair, which the identifier names no more.
    pub qp_leaves: bool,
    /// Completion queues that the library made.
    pub queues: cq::Owned,
    /// Enhanced connection establishment options of both sides.
    pub ece: EcePair,
    /// Goes before the private data of a connection request.
    pub connect_data: Vec<u8>,
    /// How to create the queue pairs of incoming connections.
    pub endpoint: Option<EndpointAttr>,
    /// Multicast groups, newest first.
    pub memberships: Vec<Arc<Membership>>,
    /// Multicast groups that the queue pair is attached to.
    pub attachments: Vec<Attachment>,
    /// Progress of address information resolution.
    pub resolution: Resolution,
    /// What the public `path_rec` points to.
    pub paths: Vec<ibv_sa_path_rec>,
    /// The only type of device to be used.
    pub node_type: Option<ibv_node_type>,
    /// Goes before the kernel's minimum RNR timer.
    pub min_rnr_timer: Option<u8>,
    /// Bounds how often the queue pair repeats what is not confirmed.
    pub most_retries: Option<u8>,
    /// The peer is to write to memory and do nothing else to it.
    pub writes_only: bool,
    /// Nobody looks at the paths unless by [`query::paths_of`](crate::cm::query::paths_of).
    pub hides_paths: bool,
    /// Events reported otherwise than for the present kernel object: for its
    /// predecessors and by messengers.
    pub reported_otherwise: u32,
    /// The kernel's numbers for its predecessors.
    pub former_handles: Vec<u32>,
    /// Descriptors of channels that the identifier was on, where requests that
    /// came then still are.
    pub former_channels: Vec<RawFd>,
    /// Carriers of events that the library queues itself.
    pub messengers: Vec<Messenger>,
}

// SAFETY: the public head is only accessed by member copies through raw
// pointers; its pointers are passed on, never owned. All else is `Sync`.
unsafe impl Send for Id {}
// SAFETY: as for `Send`. Members of the public head may be raced by the
// program itself, as with the original library.
unsafe impl Sync for Id {}

impl Id {
    /// The kernel's number for this identifier.
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Acquire)
    }

    /// Whether calls wait for their event on a private channel.
    pub fn is_synchronous(&self) -> bool {
        self.synchronous.load(Ordering::Acquire)
    }

    /// Whether a thread has begun to destroy the identifier.
    pub(in crate::cm) fn is_destroying(&self) -> bool {
        self.destroying.load(Ordering::Acquire)
    }

    /// Acknowledgements of this identifier's events.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// The lock that keeps this identifier's events from being handled. Taken
    /// before all others.
    pub fn handler(&self) -> &HandlerLock {
        &self.handler
    }

    /// The threads that wait for an event in synchronous mode.
    pub(in crate::cm) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Whether a thread that began to wait on `channel` may go on: another
    /// thread may be about to destroy or migrate the identifier.
    pub(in crate::cm) fn may_wait_on(&self, channel: *mut rdma_event_channel) -> bool {
        !self.is_destroying() && self.channel() == channel
    }

    /// The private state. Never held across a kernel command that can block,
    /// nor together with another identifier's.
    pub fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Excludes other threads from creating, moving and destroying this
    /// identifier's queue pair, completion queues and multicast attachments.
    /// Taken before [`Id::state`], never after.
    pub fn lock_qp(&self) -> MutexGuard<'_, ()> {
        locked(&self.qp_lock)
    }

    /// Device that the identifier is bound to.
    pub fn device(&self) -> Option<Arc<Device>> {
        self.state().device.clone()
    }

    /// Device that the identifier is bound to.
    ///
    /// # Errors
    /// `EINVAL` if it is bound to none.
    pub fn require_device(&self) -> Result<Arc<Device>> {
        self.device()
            .ok_or(Error::invalid("use the device of an unbound identifier"))
    }

    /// Descriptor of the channel, for kernel commands.
    ///
    /// # Errors
    /// `EINVAL` without a channel, `EBADF` if it was destroyed; `ENOENT` once
    /// the kernel's object is destroyed, whose number may be another's by now.
    pub fn descriptor(&self) -> Result<RawFd> {
        if self.accounting.is_closed() {
            return Err(Error::new(libc::ENOENT, "use a destroyed identifier"));
        }
        // SAFETY: a program must not destroy the channel of an identifier
        // while it uses either; if it did so before, the channel is refused.
        unsafe { channel::descriptor(self.channel()) }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}", self.handle())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("handle", &self.handle())
            .field("synchronous", &self.is_synchronous())
            .finish_non_exhaustive()
    }
}

/// Queue pair type that goes with a port space.
pub fn default_qp_type(ps: rdma_port_space) -> u32 {
    match ps {
        RDMA_PS_UDP | RDMA_PS_IPOIB => IBV_QPT_UD,
        _ => IBV_QPT_RC,
    }
}
