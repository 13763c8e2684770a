//! The connection manager for Rust programs: owners of channels, identifiers
//! and events that see to the order in which these must end. The C interface
//! does not use them, since C programs see to that themselves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use crate::abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP, rdma_cm_event, rdma_cm_event_type, rdma_conn_param,
    rdma_event_channel,
};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;

use super::id::{Id, default_qp_type};
use super::{address, channel, event};

/// An event channel, open as long as something uses it.
#[derive(Debug)]
pub struct EventChannel {
    raw: *mut rdma_event_channel,
    fd: RawFd,
}

// SAFETY: a channel may be used from any thread; it does not change.
unsafe impl Send for EventChannel {}
// SAFETY: as for `Send`.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// Opens a channel whose descriptor does not block.
    ///
    /// # Errors
    /// As for [`channel::open`].
    pub fn open() -> Result<Arc<Self>> {
        let raw = channel::open_nonblocking()?;
        // SAFETY: just opened, and owned from here on.
        let fd = unsafe { channel::descriptor(raw) }?;
        Ok(Arc::new(Self { raw, fd }))
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next(self: &Arc<Self>) -> Result<Option<Event>> {
        // SAFETY: open as long as `self`.
        match unsafe { event::get(self.raw) } {
            Ok(raw) => Ok(Some(Event {
                raw,
                request_taken: false,
                channel: Arc::clone(self),
            })),
            Err(error) if error.errno() == libc::EAGAIN => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: opened in `open`; everything that uses it keeps it.
        unsafe { channel::close(self.raw) };
    }
}

/// An event, acknowledged when dropped. A connection request that nobody took
/// is refused by that.
#[derive(Debug)]
pub struct Event {
    raw: *mut rdma_cm_event,
    request_taken: bool,
    channel: Arc<EventChannel>,
}

impl Event {
    fn head(&self) -> &rdma_cm_event {
        // SAFETY: `event::get` returned it and it is not acknowledged yet;
        // nobody writes to it.
        unsafe { &*self.raw }
    }

    /// What happened.
    pub fn kind(&self) -> rdma_cm_event_type {
        self.head().event
    }

    /// Its name, as in the manual.
    pub fn name(&self) -> &'static str {
        event::name(self.kind())
    }

    /// 0, a negative errno or a reject reason.
    pub fn status(&self) -> i32 {
        self.head().status
    }

    /// Parameters of a connected port space.
    fn conn(&self) -> rdma_conn_param {
        // SAFETY: plain numbers and a pointer; the union is filled whatever
        // the event is.
        unsafe { self.head().param.conn }
    }

    /// Data from the peer's program, with the zeroes that the message carried
    /// behind it.
    pub fn private_data(&self) -> &[u8] {
        let conn = self.conn();
        if conn.private_data.is_null() {
            return &[];
        }
        // SAFETY: the event owns so many bytes; identifiers made here have a
        // connected port space.
        unsafe {
            std::slice::from_raw_parts(conn.private_data.cast(), conn.private_data_len.into())
        }
    }

    /// RDMA reads and atomics that the peer will answer at once.
    pub fn initiator_depth(&self) -> u8 {
        self.conn().initiator_depth
    }

    /// The connection that is asked for. `None` if that was taken before, or
    /// the event is no request.
    pub fn take_request(&mut self) -> Option<Connection> {
        if self.kind() != RDMA_CM_EVENT_CONNECT_REQUEST || self.request_taken {
            return None;
        }
        let id = Id::from_pointer(self.head().id).ok()?;
        self.request_taken = true;
        Some(Connection {
            id,
            channel: Arc::clone(&self.channel),
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let untaken = self.take_request();
        if let Err(error) = event::acknowledge(self.raw) {
            log::error!("{error}");
        }
        drop(untaken);
    }
}

/// A connection or listener, destroyed when dropped. Its queue pair is to be
/// destroyed before. Dropping blocks while an [`Event`] of it is held.
#[derive(Debug)]
pub struct Connection {
    id: Arc<Id>,
    channel: Arc<EventChannel>,
}

impl Connection {
    /// Listens for reliable connections at an address.
    ///
    /// # Errors
    /// What the kernel says, `EADDRINUSE` and `EADDRNOTAVAIL` among others.
    pub fn listen(channel: &Arc<EventChannel>, addr: &SockAddr, backlog: i32) -> Result<Self> {
        // SAFETY: the connection keeps the channel.
        let id = unsafe {
            Id::create(
                channel.raw,
                ptr::null_mut(),
                RDMA_PS_TCP,
                default_qp_type(RDMA_PS_TCP),
            )
        }?;
        let listener = Self {
            id,
            channel: Arc::clone(channel),
        };
        address::bind(&listener.id, addr)?;
        address::listen(&listener.id, backlog)?;
        Ok(listener)
    }

    /// The identifier.
    pub fn id(&self) -> &Arc<Id> {
        &self.id
    }

    /// Has its events reported on another channel.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn migrate(&mut self, channel: &Arc<EventChannel>) -> Result<()> {
        // SAFETY: the connection keeps the channel.
        unsafe { self.id.migrate(channel.raw) }?;
        self.channel = Arc::clone(channel);
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Err(error) = Arc::clone(&self.id).destroy() {
            log::error!("{error}");
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}
