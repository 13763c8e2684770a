//! Synchronous mode: an identifier with a private channel turns each
//! asynchronous step into a blocking call.
//!
//! The event that ended the latest step stays in the public member `event`
//! until the next step, migration or destruction. It counts as acknowledged:
//! who destroys a listener whose request an identifier keeps, or leaves a group
//! whose join it has just waited for, would wait for himself.

use crate::abi::*;
use crate::error::{Error, Result};
use std::sync::Arc;

use super::event::{self, Event};
use super::id::Id;
use super::multicast::Membership;
use super::qp;
use super::waiters::Waiting;

/// What a call waits for, which is also what can end it.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    /// The address is resolved.
    Address,
    /// The route is resolved.
    Route,
    /// The connection is established.
    Connection,
    /// The connection is over, or will never be, or is long over for who
    /// disconnects again.
    Disconnection,
    /// Address information is resolved.
    Addrinfo,
    /// The group is joined.
    Group(&'a Arc<Membership>),
}

impl Step<'_> {
    /// Whether an event ends this step, well or not.
    fn is_ended_by(self, event: &Event) -> bool {
        let (kind, _) = event.outcome();
        match self {
            Self::Address => matches!(kind, RDMA_CM_EVENT_ADDR_RESOLVED | RDMA_CM_EVENT_ADDR_ERROR),
            Self::Route => matches!(
                kind,
                RDMA_CM_EVENT_ROUTE_RESOLVED | RDMA_CM_EVENT_ROUTE_ERROR
            ),
            Self::Connection => matches!(
                kind,
                RDMA_CM_EVENT_CONNECT_RESPONSE
                    | RDMA_CM_EVENT_CONNECT_ERROR
                    | RDMA_CM_EVENT_UNREACHABLE
                    | RDMA_CM_EVENT_REJECTED
                    | RDMA_CM_EVENT_ESTABLISHED
                    | RDMA_CM_EVENT_DISCONNECTED
            ),
            Self::Disconnection => matches!(
                kind,
                RDMA_CM_EVENT_CONNECT_ERROR
                    | RDMA_CM_EVENT_UNREACHABLE
                    | RDMA_CM_EVENT_REJECTED
                    | RDMA_CM_EVENT_DISCONNECTED
                    | RDMA_CM_EVENT_TIMEWAIT_EXIT
            ),
            Self::Addrinfo => matches!(
                kind,
                RDMA_CM_EVENT_ADDRINFO_RESOLVED | RDMA_CM_EVENT_ADDRINFO_ERROR
            ),
            Self::Group(membership) => event.is_of(membership),
        }
    }
}

/// Waits for the event that ends the step just started; returns at once for
/// an identifier that is not synchronous.
///
/// Blocks without a time limit of its own. Signals do not end the wait, nor do
/// events of other steps, as may be left from before a migration: they are
/// dropped, and the peer of a connection request is rejected.
///
/// # Errors
/// `ECANCELED` if another thread destroyed or migrated the identifier,
/// `ECONNREFUSED` if the peer rejected, `ECONNRESET` if it disconnected before
/// the connection was established, `ENODEV` if the device was removed, else the
/// errno of the event's status.
pub fn complete(id: &Arc<Id>, step: Step<'_>) -> Result<()> {
    if !id.is_synchronous() {
        return Ok(());
    }
    let _waiting = Waiting::on(id);
    loop {
        let event = next(id)?;
        let (kind, status) = event.outcome();
        if kind != RDMA_CM_EVENT_DEVICE_REMOVAL && !step.is_ended_by(&event) {
            event.refuse();
            continue;
        }
        keep(id, event);
        return match (step, kind) {
            (_, RDMA_CM_EVENT_DEVICE_REMOVAL) => {
                Err(Error::new(libc::ENODEV, "wait: the device was removed"))
            }
            (Step::Connection, RDMA_CM_EVENT_DISCONNECTED) => {
                Err(Error::new(libc::ECONNRESET, "wait: the peer disconnected"))
            }
            _ => outcome(kind, status),
        };
    }
}

/// The next event of the identifier's private channel, in place of the one
/// that the identifier keeps. The caller is among those who wait, so that the
/// channel lives as long.
fn next(id: &Arc<Id>) -> Result<Box<Event>> {
    id.release_event();
    let channel = id.channel();
    loop {
        // SAFETY: the channel is private to the identifier and not closed
        // while a thread waits.
        match unsafe { event::get_while(channel, || id.may_wait_on(channel)) } {
            Err(error) if error.errno() == libc::EINTR => {}
            other => return other,
        }
    }
}

/// Has the identifier keep an event.
fn keep(id: &Id, mut event: Box<Event>) {
    event.complete();
    id.set_event(event.publish());
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
    let _waiting = Waiting::on(listener);
    let event = next(listener)?;
    let (kind, status) = event.outcome();
    let Some(id) = event.request() else {
        keep(listener, event);
        outcome(kind, status)?;
        return Err(Error::invalid("get a request: another event came"));
    };
    keep(&id, event);
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
