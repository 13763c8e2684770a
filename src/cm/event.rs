//! Getting events from the kernel and acknowledging them.
//!
//! An event that a program holds is alive in a registry, so that a pointer
//! which was acknowledged before, or never was an event, is refused.

use std::ffi::CStr;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::abi::*;
use crate::diag::EventStatus;
use crate::error::{Error, Result};
use crate::kernel::command::{Reply, submit_into};
use crate::kernel::ucma::{ConnParam, GetEvent, KernelEvent, UdParam};

use super::accounting::Accounting;
use super::id::Id;
use super::multicast::Membership;
use super::registry::Registry;
use super::{channel, dispatch};

pub(super) static LIVE: Registry<Held> = Registry::new();

/// An event that a program holds, owned until it is acknowledged.
pub(super) struct Held(NonNull<Event>);

// SAFETY: the event is reached through the registry only to be freed, by the
// one thread that removed it.
unsafe impl Send for Held {}
// SAFETY: as for `Send`; a shared `Held` gives no access to the event.
unsafe impl Sync for Held {}

/// An event: the public head, its private data, and those who wait for its
/// acknowledgement.
#[repr(C)]
pub struct Event {
    public: rdma_cm_event,
    /// Zero beyond the private data: programs look at a structure of their own
    /// without asking how long it is.
    private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    owner: Arc<Id>,
    membership: Option<Arc<Membership>>,
    /// Whether nobody waits for the acknowledgement any more.
    completed: bool,
}

impl Event {
    /// An event of `owner` without parameters.
    pub fn new(owner: &Arc<Id>, kind: rdma_cm_event_type, status: i32) -> Box<Self> {
        Box::new(Self {
            public: rdma_cm_event {
                id: owner.as_pointer(),
                listen_id: ptr::null_mut(),
                event: kind,
                status,
                // SAFETY: plain numbers and pointers, for which zero is valid.
                // All bytes, since C may read either member.
                param: unsafe { std::mem::zeroed() },
            },
            private_data: [0; RDMA_MAX_PRIVATE_DATA],
            owner: Arc::clone(owner),
            membership: None,
            completed: false,
        })
    }

    /// Turns the event into a failure: `kind` with the negative errno of
    /// `error`.
    pub fn fail(&mut self, kind: rdma_cm_event_type, error: &Error) {
        self.set_kind(kind, error.errno().saturating_neg());
    }

    /// Changes type and status.
    pub fn set_kind(&mut self, kind: rdma_cm_event_type, status: i32) {
        self.public.event = kind;
        self.public.status = status;
    }

    /// Makes this the request for the new identifier `request`; the owner,
    /// whose account the event is on, is the listener.
    pub fn set_request(&mut self, request: &Id) {
        self.public.listen_id = self.owner.as_pointer();
        self.public.id = request.as_pointer();
    }

    /// Sets the parameters of a connected port space.
    pub fn set_conn(&mut self, conn: &ConnParam) {
        let (private_data, private_data_len) = self.keep(conn.private_data());
        self.public.param.conn = rdma_conn_param {
            private_data,
            private_data_len,
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            flow_control: conn.flow_control,
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
            srq: conn.srq,
            qp_num: conn.qp_num,
        };
    }

    /// Sets the parameters of a datagram port space.
    pub fn set_ud(&mut self, ud: &UdParam) {
        let (private_data, private_data_len) = self.keep(ud.private_data());
        self.public.param.ud = rdma_ud_param {
            private_data,
            private_data_len,
            ah_attr: ud.ah_attr().to_verbs(),
            qp_num: ud.qp_num,
            qkey: ud.qkey,
        };
    }

    /// Copies private data into the event, where C finds it.
    fn keep(&mut self, data: &[u8]) -> (*const std::ffi::c_void, u8) {
        let length = data.len().min(usize::from(u8::MAX));
        for (to, from) in self.private_data.iter_mut().zip(data.iter().take(length)) {
            *to = *from;
        }
        match u8::try_from(length) {
            Ok(0) | Err(_) => (ptr::null(), 0),
            Ok(length) => (self.private_data.as_ptr().cast(), length),
        }
    }

    /// Makes this an event of a multicast group, with the context given to
    /// join as private data.
    pub fn set_membership(&mut self, membership: Arc<Membership>) {
        self.public.param.ud.private_data = membership.context();
        self.membership = Some(membership);
    }

    /// Sets the argument of a user event.
    pub fn set_argument(&mut self, arg: u64) {
        self.public.param.arg = arg;
    }

    /// Parameters of a datagram or multicast event.
    pub fn ud(&self) -> rdma_ud_param {
        // SAFETY: `ud` is plain data and spans the union, which `new` filled.
        unsafe { self.public.param.ud }
    }

    /// Hands the event to C.
    pub(super) fn publish(self: Box<Self>) -> *mut rdma_cm_event {
        for account in self.accounts() {
            account.note(self.public.event);
        }
        let level = if self.status().is_failure() {
            log::Level::Warn
        } else {
            log::Level::Debug
        };
        log::log!(level, "{self}");
        let event = NonNull::from(Box::leak(self));
        LIVE.insert(event.as_ptr() as u64, Held(event));
        event.as_ptr().cast()
    }

    /// Type and status.
    pub fn outcome(&self) -> (rdma_cm_event_type, i32) {
        (self.public.event, self.public.status)
    }

    /// Whether the event is of this membership.
    pub(super) fn is_of(&self, membership: &Arc<Membership>) -> bool {
        let own = self.membership.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, membership))
    }

    /// The new identifier, if this is a connection request.
    pub(super) fn request(&self) -> Option<Arc<Id>> {
        if self.public.event != RDMA_CM_EVENT_CONNECT_REQUEST {
            return None;
        }
        Id::from_pointer(self.public.id).ok()
    }

    /// Drops an event that nobody is to see. The identifier of a connection
    /// request goes with it, so that the peer is rejected.
    pub(super) fn refuse(mut self: Box<Self>) {
        log::info!("{self}: dropped, as no call waits for it");
        self.complete();
        if let Some(id) = self.request()
            && let Err(error) = id.destroy()
        {
            log::error!("{}: {error}", self.owner);
        }
    }

    fn status(&self) -> EventStatus {
        EventStatus {
            event: self.public.event,
            status: self.public.status,
        }
    }

    /// Where the event is counted.
    fn accounts(&self) -> impl Iterator<Item = &Accounting> {
        let group = self.membership.as_ref().map(|group| group.accounting());
        group.into_iter().chain([self.owner.accounting()])
    }

    /// Counts the event as acknowledged, once. What it refers to stays in
    /// memory until it is freed.
    pub(super) fn complete(&mut self) {
        if std::mem::replace(&mut self.completed, true) {
            return;
        }
        for account in self.accounts() {
            account.complete();
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = &self.public;
        write!(f, "{}: {}", self.owner, name(event.event))?;
        if let Some(id) = self.request() {
            write!(f, " for {id}")?;
            if let Some(peer) = id.dst_addr() {
                write!(f, " from {peer}")?;
            }
        }
        if event.status == 0 {
            return Ok(());
        }
        write!(f, ", {}", self.status())?;
        match self.owner.dst_addr() {
            Some(peer) => write!(f, ", peer {peer}"),
            None => Ok(()),
        }
    }
}

/// Gets the next event of a channel. Blocks unless the descriptor is
/// non-blocking.
///
/// # Errors
/// `EAGAIN` if none is pending on a non-blocking descriptor, `EINTR` if a
/// signal came, `EBADF` or `EINVAL` for a descriptor that is no channel.
///
/// # Safety
/// `channel` is null or points to a channel that outlives the call.
pub unsafe fn get(channel: *const rdma_event_channel) -> Result<*mut rdma_cm_event> {
    // SAFETY: the caller vouches for the channel.
    unsafe { get_while(channel, || true) }.map(Event::publish)
}

/// Like [`get`], as long as `wanted` says so. It is asked before each wait. The
/// event is not yet C's.
///
/// # Errors
/// As for [`get`]; `ECANCELED` if no event is wanted any more.
///
/// # Safety
/// As for [`get`].
pub(super) unsafe fn get_while(
    channel: *const rdma_event_channel,
    wanted: impl Fn() -> bool,
) -> Result<Box<Event>> {
    while wanted() {
        // SAFETY: the caller vouches for the channel.
        let fd = unsafe { channel::descriptor(channel) }?;
        let mut kernel = KernelEvent::preset();
        submit_into(fd, GetEvent::new(), &mut kernel)?;
        if let Some(event) = dispatch::deliver(fd, &mut kernel) {
            return Ok(event);
        }
    }
    Err(Error::new(libc::ECANCELED, "wait for an event"))
}

/// Acknowledges and frees an event. May be called from any thread.
///
/// # Errors
/// `EINVAL` if `event` is null, was acknowledged before or is no event.
pub fn acknowledge(event: *mut rdma_cm_event) -> Result<()> {
    let Held(event) = LIVE
        .remove(event as u64)
        .ok_or(Error::invalid("acknowledge what is no pending event"))?;
    // SAFETY: removed from the registry, so this thread owns the event that
    // `publish` leaked.
    let mut event = unsafe { Box::from_raw(event.as_ptr()) };
    event.complete();
    Ok(())
}

/// The name of an event type, as in the manual.
pub fn name(kind: rdma_cm_event_type) -> &'static str {
    c_name(kind).to_str().unwrap_or_default()
}

/// The name of an event type, for C. Types that the original has no name for
/// are `UNKNOWN EVENT`.
pub fn c_name(kind: rdma_cm_event_type) -> &'static CStr {
    match kind {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        RDMA_CM_EVENT_ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        RDMA_CM_EVENT_ADDRINFO_ERROR => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        RDMA_CM_EVENT_USER => c"RDMA_CM_EVENT_USER",
        _ => c"UNKNOWN EVENT",
    }
}
