//! Synchronous mode: an identifier with a private channel turns each
//! asynchronous step into a blocking call.
//!
//! The event that ended the latest step stays in the public member `event`
//! until the next step, migration or destruction. It counts as acknowledged:
//! who destroys a listener whose request an identifier keeps, or leaves a group
//! whose join it has just waited for, would wait for himself.

use std::sync::Arc;

use crate::abi::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_USER, rdma_cm_event_type,
};
use crate::error::{Error, Result};

use super::id::Id;
use super::{event, qp};

/// Waits for the event that ends the step just started; returns at once for
/// an identifier that is not synchronous.
///
/// Blocks without a time limit of its own. Signals do not end the wait, nor do
/// user events, which are dropped.
///
/// # Errors
/// `ECANCELED` if another thread destroyed or migrated the identifier,
/// `ECONNREFUSED` if the peer rejected, `ENODEV` if the device was removed,
/// else the errno of the event's status.
pub fn complete(id: &Arc<Id>) -> Result<()> {
    wait(id, |kind| {
        matches!(
            kind,
            RDMA_CM_EVENT_ADDR_CHANGE | RDMA_CM_EVENT_TIMEWAIT_EXIT
        )
    })
}

/// Like [`complete`] for a disconnect, which also ends when the connection
/// leaves its time-wait state.
///
/// # Errors
/// As for [`complete`].
pub fn complete_disconnect(id: &Arc<Id>) -> Result<()> {
    wait(id, |kind| kind == RDMA_CM_EVENT_ADDR_CHANGE)
}

fn wait(id: &Arc<Id>, unrelated: impl Fn(rdma_cm_event_type) -> bool) -> Result<()> {
    if !id.is_synchronous() {
        return Ok(());
    }
    let _waiting = id.begin_waiting();
    loop {
        let (kind, status) = next(id)?;
        // The status of a user event is the program's own.
        if kind == RDMA_CM_EVENT_USER || status == 0 && unrelated(kind) {
            continue;
        }
        return match kind {
            RDMA_CM_EVENT_DEVICE_REMOVAL => {
                Err(Error::new(libc::ENODEV, "wait: the device was removed"))
            }
            _ => outcome(kind, status),
        };
    }
}

/// Replaces the identifier's event by the next of its private channel. The
/// caller is among those who wait, so that the event lives as long.
fn next(id: &Arc<Id>) -> Result<(rdma_cm_event_type, i32)> {
    id.release_event();
    let channel = id.channel();
    let mut event = loop {
        // SAFETY: the channel is private to the identifier and not closed
        // while a thread waits.
        match unsafe { event::get_while(channel, || id.may_wait_on(channel)) } {
            Err(error) if error.errno() == libc::EINTR => {}
            other => break other?,
        }
    };
    event.complete();
    let outcome = event.outcome();
    id.set_event(event.publish());
    Ok(outcome)
}

fn outcome(kind: rdma_cm_event_type, status: i32) -> Result<()> {
    match (kind, status) {
        (RDMA_CM_EVENT_REJECTED, _) => {
            Err(Error::new(libc::ECONNREFUSED, "wait: the peer rejected"))
        }
        (_, 0) => Ok(()),
        (_, status) => Err(Error::new(
            status.checked_abs().unwrap_or(libc::EIO),
            event::name(kind),
        )),
    }
}

/// Waits for a connection request on a synchronous listener and returns its
/// identifier, itself synchronous, with the request in its `event`. If the
/// listener is an endpoint with queue pair attributes, the new identifier has
/// a queue pair.
///
/// # Errors
/// `EINVAL` for an asynchronous listener or an unexpected event, `ECANCELED`
/// if another thread destroyed or migrated it, `ECONNREFUSED`, the event's
/// errno, or what creating the queue pair says; the peer is then rejected.
pub fn get_request(listener: &Arc<Id>) -> Result<Arc<Id>> {
    if !listener.is_synchronous() {
        return Err(Error::invalid("get a request of an asynchronous listener"));
    }
    let _waiting = listener.begin_waiting();
    let (kind, status) = next(listener)?;
    outcome(kind, status)?;
    if kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(Error::invalid("get a request: another event came"));
    }
    let event = listener.event();
    // SAFETY: the event was just fetched and nobody has acknowledged it.
    let id = Id::from_pointer(unsafe { (*event).id })?;
    // The request stays with the new identifier from here on.
    listener.set_event(std::ptr::null_mut());
    id.set_event(event);
    let attributes = listener.state().endpoint.clone();
    if let Some(attributes) = attributes
        && let Err(error) = qp::create_for_endpoint(&id, listener.pd(), attributes)
    {
        if let Err(leftover) = id.destroy() {
            log::error!("{listener}: request that cannot be served: {leftover}");
        }
        return Err(error);
    }
    Ok(id)
}
