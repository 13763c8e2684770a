//! The connection manager's events as sockets take them: a channel that does
//! not block, and copies of events that are acknowledged at once.
//!
//! What an event means is decided by the socket that it is about.

use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::abi::*;
use crate::cm::connect::Param;
use crate::cm::id::Id;
use crate::cm::{channel, event};
use crate::error::{Error, Result};
use crate::verbs::bindings::IBV_QPT_UD;

use super::spare;
use super::watched::Next;

/// An event channel that is closed when dropped.
#[derive(Debug)]
pub struct Channel(*mut rdma_event_channel);

// SAFETY: the structure behind the pointer does not change.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Channel {}

impl Channel {
    /// Opens one, non-blocking.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device, else what the kernel says.
    pub fn open() -> Result<Self> {
        let opened = spare::with_all(channel::open_nonblocking);
        opened.map(Self).map_err(no_device)
    }

    /// What the connection manager knows it by.
    pub fn as_pointer(&self) -> *mut rdma_event_channel {
        self.0
    }

    /// What is to become of the watch of a channel whose next event was asked for.
    /// Where the kernel is short of something, the event is still there.
    pub fn after<T>(asked: &Result<T>) -> Next {
        let Err(error) = asked else {
            return Next::Watch;
        };
        match error.errno() {
            // Somebody else has taken it.
            libc::EAGAIN | libc::EINTR => Next::Watch,
            // Not open, no channel, and one with the rights of somebody else: the
            // kernel will not say anything else.
            libc::EBADF | libc::EINVAL | libc::ENODEV | libc::EACCES => Next::Forget,
            _ => Next::Pause,
        }
    }
}

impl AsRawFd for Channel {
    /// Its descriptor, readable when there are events.
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: open until drop.
        unsafe { (*self.0).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: opened by `open`; its identifier is destroyed before.
        unsafe { channel::close(self.0) };
    }
}

/// Without the kernel's device there is no RDMA device.
fn no_device(error: Error) -> Error {
    match error.errno() {
        libc::ENOENT => Error::new(libc::ENODEV, error.step()),
        _ => error,
    }
}

/// What an event says, copied so that it can be acknowledged at once.
pub struct Report {
    /// What happened.
    pub kind: rdma_cm_event_type,
    /// 0 or a negative errno, as the event has it.
    pub status: i32,
    /// The identifier it is about; for comparison.
    pub id: *mut rdma_cm_id,
    /// The parameters of a connection.
    pub conn: rdma_conn_param,
    /// What the peer said.
    pub private_data: Vec<u8>,
}

impl Report {
    /// The next event of the channel.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, else what the kernel says.
    pub fn next(channel: &Channel) -> Result<Self> {
        // SAFETY: the channel is open.
        let event = unsafe { event::get(channel.0) }?;
        // SAFETY: an event that is not acknowledged yet; `conn` is
        // plain numbers and a pointer, used where the event is of a stream.
        let report = unsafe {
            let conn = (*event).param.conn;
            Self {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private_data: Param::from_raw(&raw const conn)
                    .map_or_else(Vec::new, |param| param.private_data.to_vec()),
                conn,
            }
        };
        event::acknowledge(event)?;
        Ok(report)
    }

    /// The errno of a failed attempt to connect.
    pub fn errno(&self) -> i32 {
        match (self.kind, self.status) {
            (RDMA_CM_EVENT_REJECTED, _) => libc::ECONNREFUSED,
            (RDMA_CM_EVENT_DEVICE_REMOVAL, _) => libc::ENODEV,
            (_, status) if status < 0 => status.saturating_neg(),
            _ => libc::ETIMEDOUT,
        }
    }
}

/// An identifier that is destroyed when dropped.
#[derive(Debug)]
pub struct OwnedId(Arc<Id>);

impl OwnedId {
    /// A datagram identifier that reports its events on `channel`.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Safety
    /// The channel outlives the identifier.
    pub unsafe fn datagram(channel: &Channel) -> Result<Self> {
        let context = std::ptr::null_mut();
        // SAFETY: the caller vouches for the channel.
        let id = unsafe { Id::create(channel.0, context, RDMA_PS_UDP, IBV_QPT_UD) }?;
        Ok(Self(id))
    }
}

impl Deref for OwnedId {
    type Target = Arc<Id>;

    fn deref(&self) -> &Arc<Id> {
        &self.0
    }
}

impl Drop for OwnedId {
    fn drop(&mut self) {
        if let Err(error) = Arc::clone(&self.0).destroy() {
            log::error!("{}: {error}", self.0);
        }
    }
}
