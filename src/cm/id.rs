//! Identifiers: creation, destruction, migration and their public members.
//!
//! One allocation holds the public head that C programs see and the private
//! part behind it. The public head is never borrowed: a program may write its
//! members from any thread at any time, so every access copies one member
//! through a raw pointer, by the accessors of this module only.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::os::fd::RawFd;
use std::ptr::{self, addr_of, addr_of_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::abi::{
    AF_IB, RDMA_PS_IPOIB, RDMA_PS_UDP, rdma_cm_event, rdma_cm_id, rdma_event_channel,
    rdma_port_space,
};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::command::submit;
use crate::kernel::ucma::{CreateId, DestroyId, MigrateId};
use crate::lock::locked;
use crate::verbs::bindings::{
    IBV_QPT_RC, IBV_QPT_UD, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_node_type, ibv_pd,
    ibv_qp, ibv_sa_path_rec, ibv_srq,
};

use super::accounting::Accounting;
use super::addrinfo::{self, Resolution};
use super::defaults::Defaults;
use super::device::Device;
use super::ece::EcePair;
use super::endpoint::EndpointAttr;
use super::event;
use super::handler::HandlerLock;
use super::multicast::Membership;
use super::registry::Registry;
use super::waiters::{Waiters, Waiting};
use super::{channel, cq};

/// Every living identifier by the address of its public head, which is also
/// the number that the kernel hands back with its events.
static BY_ADDRESS: Registry<Arc<Id>> = Registry::new();
/// Every living identifier by the kernel's number for it.
static BY_HANDLE: Registry<Arc<Id>> = Registry::new();

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
    /// Depth of outgoing RDMA reads and atomics: requested by the peer, then
    /// agreed.
    pub initiator_depth: u8,
    /// Incoming RDMA reads and atomics: requested by the peer, then agreed.
    pub responder_resources: u8,
    /// The kernel's INIT attributes were applied to this identifier's queue
    /// pair after the connection request, so accept need not repeat them.
    pub qp_initialised: bool,
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
    /// Progress of address information resolution.
    pub resolution: Resolution,
    /// What the public `path_rec` points to.
    pub paths: Vec<ibv_sa_path_rec>,
    /// The only type of device to be used.
    pub node_type: Option<ibv_node_type>,
    /// Goes before the kernel's minimum RNR timer.
    pub min_rnr_timer: Option<u8>,
    /// Events that the kernel reported for predecessors of its object.
    pub reported_before: u32,
}

// SAFETY: the public head is only accessed by member copies through raw
// pointers; its pointers are passed on, never owned. All else is `Sync`.
unsafe impl Send for Id {}
// SAFETY: as for `Send`. Members of the public head may be raced by the
// program itself, as with the original library.
unsafe impl Sync for Id {}

macro_rules! members {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $($path:ident).+;)*) => {
        impl Id {
            $(
                $(#[$doc])*
                pub fn $get(&self) -> $type {
                    // SAFETY: the head lives as long as `self`; one member is
                    // copied, no reference to it is made.
                    unsafe { addr_of!((*self.public.get()).$($path).+).read() }
                }

                #[doc = concat!("Writes the public member read by `", stringify!($get), "`.")]
                pub fn $set(&self, value: $type) {
                    // SAFETY: as for reading.
                    unsafe { addr_of_mut!((*self.public.get()).$($path).+).write(value) }
                }
            )*
        }
    };
}

members! {
    /// Device context, null until bound to a device.
    verbs, set_verbs: *mut ibv_context = verbs;
    /// Channel that reports this identifier's events.
    channel, set_channel: *mut rdma_event_channel = channel;
    /// The program's own value.
    context, set_context: *mut c_void = context;
    /// Queue pair.
    qp, set_qp: *mut ibv_qp = qp;
    /// Port space.
    ps, set_ps: rdma_port_space = ps;
    /// Port on the device.
    port_num, set_port_num: u8 = port_num;
    /// Latest event in synchronous mode.
    event, set_event: *mut rdma_cm_event = event;
    /// Completion channel of the send queue.
    send_cq_channel, set_send_cq_channel: *mut ibv_comp_channel = send_cq_channel;
    /// Send completion queue.
    send_cq, set_send_cq: *mut ibv_cq = send_cq;
    /// Completion channel of the receive queue.
    recv_cq_channel, set_recv_cq_channel: *mut ibv_comp_channel = recv_cq_channel;
    /// Receive completion queue.
    recv_cq, set_recv_cq: *mut ibv_cq = recv_cq;
    /// Shared receive queue.
    srq, set_srq: *mut ibv_srq = srq;
    /// Protection domain.
    pd, set_pd: *mut ibv_pd = pd;
    /// Queue pair type (`enum ibv_qp_type`).
    qp_type, set_qp_type: u32 = qp_type;
    /// Local GID.
    sgid, set_sgid: ibv_gid = route.addr.ibaddr.sgid;
    /// Remote GID.
    dgid, set_dgid: ibv_gid = route.addr.ibaddr.dgid;
    /// Partition key, big-endian.
    pkey, set_pkey: u16 = route.addr.ibaddr.pkey;
    /// Path records.
    path_rec, set_path_rec: *mut ibv_sa_path_rec = route.path_rec;
    /// Number of path records.
    num_paths, set_num_paths: c_int = route.num_paths;
    /// Storage of the local address.
    src_storage, set_src_storage: libc::sockaddr_storage = route.addr.src_storage;
    /// Storage of the remote address.
    dst_storage, set_dst_storage: libc::sockaddr_storage = route.addr.dst_storage;
}

impl Id {
    fn allocate(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Arc<Self> {
        // SAFETY: the public head is plain old data for which all zeroes are
        // the documented initial state.
        let mut public: rdma_cm_id = unsafe { std::mem::zeroed() };
        public.channel = channel;
        public.context = context;
        public.ps = ps;
        public.qp_type = qp_type;
        Arc::new(Self {
            public: UnsafeCell::new(public),
            handle: AtomicU32::new(u32::MAX),
            synchronous: AtomicBool::new(false),
            destroying: AtomicBool::new(false),
            accounting: Accounting::new(),
            waiters: Waiters::default(),
            handler: HandlerLock::default(),
            state: Mutex::new(State::default()),
            qp_lock: Mutex::new(()),
        })
    }

    /// Creates an identifier that reports its events on `channel`.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device, `EINVAL` for an unknown port space,
    /// else what the kernel says.
    ///
    /// # Safety
    /// `channel` must point to a live event channel that outlives the
    /// identifier.
    pub unsafe fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Result<Arc<Self>> {
        let id = Self::allocate(channel, context, ps, qp_type);
        // SAFETY: the caller vouches for the channel.
        let fd = unsafe { channel::descriptor(channel) }?;
        let reply = submit(fd, CreateId::new(id.uid(), ps, qp_type))?;
        id.publish(reply.id);
        log::debug!("{id}: created, port space {ps:#x}");
        Defaults::get().apply(&id);
        Ok(id)
    }

    /// Creates an identifier in synchronous mode, with a channel of its own.
    ///
    /// # Errors
    /// As for [`Id::create`], and what opening the channel says.
    pub fn create_synchronous(
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Result<Arc<Self>> {
        let channel = channel::open()?;
        // SAFETY: the channel was just opened; it is closed when the
        // identifier is freed or leaves synchronous mode.
        match unsafe { Self::create(channel, context, ps, qp_type) } {
            Ok(id) => {
                id.synchronous.store(true, Ordering::Release);
                Ok(id)
            }
            Err(error) => {
                // SAFETY: nothing else knows the channel.
                unsafe { channel::close(channel) };
                Err(error)
            }
        }
    }

    /// Makes the identifier of a connection request that the kernel reported
    /// as `handle`; it inherits the listener's channel, context and types.
    pub fn from_request(listener: &Self, handle: u32) -> Arc<Self> {
        let id = Self::allocate(
            listener.channel(),
            listener.context(),
            listener.ps(),
            listener.qp_type(),
        );
        let node_type = listener.state().node_type;
        {
            let mut state = id.state();
            state.passive = true;
            state.node_type = node_type;
        }
        id.publish(handle);
        id
    }

    fn publish(self: &Arc<Self>, handle: u32) {
        self.handle.store(handle, Ordering::Release);
        BY_ADDRESS.insert(self.uid(), Arc::clone(self));
        BY_HANDLE.insert(u64::from(handle), Arc::clone(self));
    }

    fn unpublish(self: &Arc<Self>) {
        BY_ADDRESS.remove(self.uid());
        BY_HANDLE.remove_if(u64::from(self.handle()), |other| Arc::ptr_eq(self, other));
    }

    /// The living identifier whose public head is at `pointer`.
    ///
    /// # Errors
    /// `EINVAL` if there is none: null, freed or foreign memory.
    pub fn from_pointer(pointer: *const rdma_cm_id) -> Result<Arc<Self>> {
        Self::by_uid(pointer as u64).ok_or(Error::invalid("look up the identifier"))
    }

    /// The living identifier that the kernel knows by `uid`.
    pub fn by_uid(uid: u64) -> Option<Arc<Self>> {
        BY_ADDRESS.get(uid)
    }

    /// The living identifier that the kernel numbers `handle`.
    pub fn by_handle(handle: u32) -> Option<Arc<Self>> {
        BY_HANDLE.get(u64::from(handle))
    }

    /// The public head, for C.
    pub fn as_pointer(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    /// The number by which the kernel's events name this identifier.
    pub fn uid(&self) -> u64 {
        self.as_pointer() as u64
    }

    /// The kernel's number for this identifier.
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Acquire)
    }

    /// Whether calls wait for their event on a private channel.
    pub fn is_synchronous(&self) -> bool {
        self.synchronous.load(Ordering::Acquire)
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

    /// Counts the calling thread among those who wait for an event in
    /// synchronous mode, until the result is dropped.
    pub(super) fn begin_waiting(&self) -> Waiting<'_> {
        self.waiters.enter()
    }

    /// Whether a thread that began to wait on `channel` may go on: another
    /// thread may be about to destroy or migrate the identifier.
    pub(super) fn may_wait_on(&self, channel: *mut rdma_event_channel) -> bool {
        !self.destroying.load(Ordering::Acquire) && self.channel() == channel
    }

    /// Closes a channel that was private to this identifier, after the
    /// threads that wait on it have left.
    fn close_private(&self, channel: *mut rdma_event_channel) {
        // SAFETY: only this function closes a private channel.
        let evicted = unsafe { channel::descriptor(channel) }.and_then(|fd| self.waiters.evict(fd));
        match evicted {
            // SAFETY: nobody else knows the channel, and nobody waits on it.
            Ok(()) => unsafe { channel::close(channel) },
            Err(error) => log::error!("{self}: private channel left open: {error}"),
        }
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
    /// `EINVAL` without a channel, `EBADF` if it was destroyed.
    pub fn descriptor(&self) -> Result<RawFd> {
        // SAFETY: a program must not destroy the channel of an identifier
        // while it uses either; if it did so before, the channel is refused.
        unsafe { channel::descriptor(self.channel()) }
    }

    /// Local address, if its family is known.
    pub fn src_addr(&self) -> Option<SockAddr> {
        SockAddr::from_storage(&self.src_storage())
    }

    /// Remote address, if its family is known.
    pub fn dst_addr(&self) -> Option<SockAddr> {
        SockAddr::from_storage(&self.dst_storage())
    }

    /// Publishes the local address. Bytes beyond its length stay.
    pub fn set_src_addr(&self, addr: &SockAddr) {
        let mut storage = self.src_storage();
        addr.write_to(&mut storage);
        self.set_src_storage(storage);
    }

    /// Publishes the remote address. Bytes beyond its length stay.
    pub fn set_dst_addr(&self, addr: &SockAddr) {
        let mut storage = self.dst_storage();
        addr.write_to(&mut storage);
        self.set_dst_storage(storage);
    }

    /// Whether the identifier uses InfiniBand addresses or service
    /// identifiers, for which the kernel's IP commands do not do.
    pub fn uses_ib_addresses(&self) -> bool {
        let is_ib = |storage: libc::sockaddr_storage| c_int::from(storage.ss_family) == AF_IB;
        is_ib(self.src_storage()) || is_ib(self.dst_storage())
    }

    /// Whether the port space carries datagrams.
    pub fn is_datagram(&self) -> bool {
        self.qp_type() == IBV_QPT_UD
    }

    /// Publishes `paths` as the identifier's path records.
    pub fn set_paths(&self, paths: Vec<ibv_sa_path_rec>) {
        let mut state = self.state();
        state.paths = paths;
        let (records, count) = match state.paths.len() {
            0 => (ptr::null_mut(), 0),
            count => (
                state.paths.as_mut_ptr(),
                c_int::try_from(count).unwrap_or(c_int::MAX),
            ),
        };
        self.set_path_rec(records);
        self.set_num_paths(count);
    }

    /// Gives the identifier of a connection request a channel of its own and
    /// synchronous mode.
    pub(super) fn become_synchronous(&self) -> Result<()> {
        let channel = channel::open()?;
        // SAFETY: the channel was just opened.
        if let Err(error) = unsafe { self.move_to(channel) } {
            // SAFETY: nothing else knows the channel.
            unsafe { channel::close(channel) };
            return Err(error);
        }
        self.synchronous.store(true, Ordering::Release);
        Ok(())
    }

    /// Moves the kernel's identifier to `channel` and returns how many events
    /// it reported on the old one.
    unsafe fn move_to(&self, channel: *mut rdma_event_channel) -> Result<u32> {
        let old = self.descriptor()?;
        // SAFETY: the caller vouches for the channel.
        let fd = unsafe { channel::descriptor(channel) }?;
        let reply = submit(fd, MigrateId::new(self.handle(), old))?;
        self.set_channel(channel);
        Ok(reply.events_reported)
    }

    /// Moves the identifier and its pending events to `channel`, or to a
    /// private one if `channel` is null. Blocks until every event reported on
    /// the old channel is acknowledged.
    ///
    /// # Errors
    /// `EINVAL` if it is synchronous already and `channel` is null; else what
    /// the kernel says. On failure nothing has changed.
    ///
    /// # Safety
    /// `channel` is null or points to a live event channel.
    pub unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<()> {
        let was_synchronous = self.is_synchronous();
        if channel.is_null() && was_synchronous {
            return Err(Error::invalid("migrate a synchronous identifier"));
        }
        let private = channel.is_null();
        let target = if private { channel::open()? } else { channel };
        let old = self.channel();
        let moved = {
            // A thread that handles an event uses the channel it came from.
            let _handling = self.handler.hold();
            // SAFETY: the target is live: the caller's, or just opened.
            unsafe { self.move_to(target) }
        };
        let reported = match moved {
            Ok(reported) => reported,
            Err(error) => {
                if private {
                    // SAFETY: nothing else knows the channel.
                    unsafe { channel::close(target) };
                }
                return Err(error);
            }
        };
        self.synchronous.store(private, Ordering::Release);
        if was_synchronous {
            self.close_private(old);
            self.release_event();
        }
        self.wait_for_acknowledgements(reported, "migrate");
        Ok(())
    }

    /// Acknowledges the event that synchronous mode keeps in `event`.
    pub(super) fn release_event(&self) {
        let held = self.event();
        self.set_event(ptr::null_mut());
        if !held.is_null()
            && let Err(error) = event::acknowledge(held)
        {
            log::warn!("{self}: event kept by the identifier: {error}");
        }
    }

    pub(super) fn wait_for_acknowledgements(&self, reported: u32, what: &str) {
        let reported = reported.wrapping_add(self.state().reported_before);
        self.accounting.wait_for(reported, |missing, last| {
            log::warn!(
                "{self}: {what} waits for {missing} of {reported} events to be acknowledged, \
                 the last was {}",
                event::name(last)
            );
        });
    }

    /// Destroys the identifier: first the kernel's object, then, once all its
    /// events are acknowledged, the memory. Queue pairs and shared receive
    /// queues are the program's to destroy before.
    ///
    /// Blocks while events of this identifier are unacknowledged.
    ///
    /// # Errors
    /// `EINVAL` if another thread is destroying it; else what the kernel
    /// says, and then the identifier is as before. A kernel object that is
    /// gone already (`EBADF`, `ENOENT`: its channel was closed) is no error.
    pub fn destroy(self: Arc<Self>) -> Result<()> {
        if self.destroying.swap(true, Ordering::AcqRel) {
            return Err(Error::invalid("destroy an identifier twice"));
        }
        self.handler.unlock_fully();
        // A resolver thread must not use the kernel's number once it is free.
        addrinfo::cancel(&self);
        let reported = match self.destroy_kernel_object() {
            Ok(reported) => reported,
            Err(error) => {
                self.destroying.store(false, Ordering::Release);
                log::error!("{self}: {error}");
                return Err(error);
            }
        };
        if self.is_synchronous() {
            self.close_private(self.channel());
        }
        self.release_event();
        if let Some(reported) = reported {
            self.wait_for_acknowledgements(reported, "destroy");
        }
        log::debug!("{self}: destroyed");
        self.unpublish();
        Ok(())
    }

    /// Replaces the kernel's object by a new, idle one, after it has bound
    /// itself to a device that is not to be used. Its options are those of a
    /// new identifier. Not for connection requests, which cannot start again.
    /// A failure is logged; the identifier can then only be destroyed.
    pub(super) fn start_again(self: &Arc<Self>) {
        if self.state().passive {
            return;
        }
        let create = CreateId::new(self.uid(), self.ps(), self.qp_type());
        let fresh = match self.descriptor().and_then(|fd| submit(fd, create)) {
            Ok(reply) => reply.id,
            Err(error) => {
                log::error!("{self}: cannot start again: {error}");
                return;
            }
        };
        let old = self.handle();
        match self.destroy_kernel_object() {
            Ok(reported) => {
                let mut state = self.state();
                state.reported_before = state
                    .reported_before
                    .wrapping_add(reported.unwrap_or_default());
            }
            Err(error) => log::error!("{self}: kept by the kernel: {error}"),
        }
        BY_HANDLE.remove_if(u64::from(old), |other| Arc::ptr_eq(self, other));
        self.handle.store(fresh, Ordering::Release);
        BY_HANDLE.insert(u64::from(fresh), Arc::clone(self));
        // SAFETY: plain bytes, of which all zeroes mean "no address".
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        self.set_src_storage(none);
        self.set_dst_storage(none);
        log::debug!("{self}: starts again in place of id {old}");
        Defaults::get().apply(self);
    }

    /// How many events the kernel reported; `None` if the kernel had lost the
    /// object before.
    fn destroy_kernel_object(&self) -> Result<Option<u32>> {
        let result = self
            .descriptor()
            .and_then(|fd| submit(fd, DestroyId::new(self.handle())));
        match result {
            Ok(reply) => Ok(Some(reply.events_reported)),
            Err(error) if matches!(error.errno(), libc::EBADF | libc::ENOENT) => {
                log::info!("{self}: already gone in the kernel");
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
