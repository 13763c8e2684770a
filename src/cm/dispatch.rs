//! What the library does when the kernel reports an event, before the program
//! sees it: looks up the owner, reads back addresses and paths, moves the
//! queue pair, and swallows what is not for the program.
//!
//! The kernel has counted every event that arrives here, so one that is
//! swallowed is acknowledged here as well.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::*;
use crate::error::Result;
use crate::kernel::command::submit;
use crate::kernel::ucma::{DestroyId, KernelEvent};

use super::defaults::Defaults;
use super::event::Event;
use super::id::Id;
use super::messenger;
use super::multicast::{self, Membership};
use super::{addrinfo, connect, device, query, transition};

/// Argument of the internal event that reports resolved address information.
pub const ADDRINFO_DONE: u64 = 16;

/// Turns an event that the kernel reported on the channel `fd` into one for the
/// program, or into nothing if it is not for the program.
pub fn deliver(fd: RawFd, kernel: &mut KernelEvent) -> Option<Box<Event>> {
    if !messenger::translate(kernel) {
        return None;
    }
    match kernel.event_type() {
        kind @ (RDMA_CM_EVENT_MULTICAST_JOIN | RDMA_CM_EVENT_MULTICAST_ERROR) => {
            group_event(kernel, kind)
        }
        RDMA_CM_EVENT_CONNECT_REQUEST => request(fd, kernel),
        kind => {
            let owner = owner(kernel, kind)?;
            let _handling = owner.handler().hold();
            let mut event = Event::new(&owner, kind, kernel.status());
            if handle(&owner, &mut event, kernel) {
                note_end(&owner, &event);
                Some(event)
            } else {
                owner.accounting().complete();
                None
            }
        }
    }
}

/// The identifier that an event belongs to. The kernel leaves `uid` zero
/// until a passive identifier was accepted.
fn owner(kernel: &KernelEvent, kind: rdma_cm_event_type) -> Option<Arc<Id>> {
    let found = match kernel.uid() {
        0 => Id::receive_by_handle(kernel.id()),
        uid => Id::receive(uid, kernel.id()),
    };
    let Some(id) = found else {
        log::warn!(
            "{} for unknown id {} dropped",
            super::event::name(kind),
            kernel.id()
        );
        return None;
    };
    let early = kernel.uid() == 0;
    if early && !matches!(kind, RDMA_CM_EVENT_ESTABLISHED | RDMA_CM_EVENT_USER) {
        id.accounting().complete();
        return None;
    }
    Some(id)
}

/// Prepares an event of an identifier. `false`: the program must not see it.
fn handle(id: &Arc<Id>, event: &mut Event, kernel: &KernelEvent) -> bool {
    match kernel.event_type() {
        RDMA_CM_EVENT_ADDR_RESOLVED => {
            if let Err(error) = query::after_address(id) {
                event.fail(RDMA_CM_EVENT_ADDR_ERROR, &error);
            }
        }
        RDMA_CM_EVENT_ROUTE_RESOLVED => {
            if let Err(error) = query::after_route(id) {
                event.fail(RDMA_CM_EVENT_ROUTE_ERROR, &error);
            }
        }
        RDMA_CM_EVENT_CONNECT_RESPONSE => response(id, event, kernel),
        RDMA_CM_EVENT_REJECTED => {
            if id.state().connect_failed {
                return false;
            }
            set_parameters(id, event, kernel);
            let _guard = id.lock_qp();
            transition::to_error(id);
        }
        RDMA_CM_EVENT_DISCONNECTED => {
            if id.state().connect_failed {
                return false;
            }
            set_parameters(id, event, kernel);
        }
        RDMA_CM_EVENT_ADDRINFO_RESOLVED => addrinfo_done(id, event),
        RDMA_CM_EVENT_ADDRINFO_ERROR => addrinfo::forget(id),
        RDMA_CM_EVENT_USER => event.set_argument(kernel.user_arg()),
        RDMA_CM_EVENT_INTERNAL => {
            if kernel.user_arg() != ADDRINFO_DONE {
                log::warn!("{id}: internal event {} dropped", kernel.user_arg());
                return false;
            }
            event.set_kind(RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0);
            addrinfo_done(id, event);
        }
        RDMA_CM_EVENT_DEVICE_REMOVAL => {
            if let Some(device) = id.device() {
                device::note_removal(&device);
            }
            set_parameters(id, event, kernel);
        }
        _ => set_parameters(id, event, kernel),
    }
    true
}

/// Notes that nothing is to be expected of a connection any more, or not before
/// the program completes it.
fn note_end(id: &Id, event: &Event) {
    let (kind, _) = event.outcome();
    if matches!(
        kind,
        RDMA_CM_EVENT_CONNECT_RESPONSE
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_TIMEWAIT_EXIT
            | RDMA_CM_EVENT_DEVICE_REMOVAL
    ) {
        id.state().end_due = false;
    }
}

fn set_parameters(id: &Id, event: &mut Event, kernel: &KernelEvent) {
    if id.is_datagram() {
        event.set_ud(&kernel.ud());
    } else {
        event.set_conn(&kernel.conn());
    }
}

fn addrinfo_done(id: &Arc<Id>, event: &mut Event) {
    if let Err(error) = addrinfo::resolved(id) {
        addrinfo::forget(id);
        event.fail(RDMA_CM_EVENT_ADDRINFO_ERROR, &error);
    }
}

/// The peer accepted. With a queue pair of the library's the connection is
/// completed here; without, the program completes it.
fn response(id: &Arc<Id>, event: &mut Event, kernel: &KernelEvent) {
    set_parameters(id, event, kernel);
    id.state().ece.set_remote(kernel.ece());
    let completed = {
        let _guard = id.lock_qp();
        if id.qp().is_null() {
            return;
        }
        connect::complete(id)
    };
    match completed {
        Ok(()) => event.set_kind(RDMA_CM_EVENT_ESTABLISHED, 0),
        Err(error) => {
            log::error!("{id}: the peer accepted but {error}");
            id.state().connect_failed = true;
            // Else the peer would wait for an answer that never comes.
            if let Err(error) = connect::reject(id, &[], connect::Reason::Consumer) {
                log::warn!("{id}: the peer could not be told: {error}");
            }
            event.fail(RDMA_CM_EVENT_CONNECT_ERROR, &error);
        }
    }
}

/// A peer asks for a connection: makes the new identifier.
fn request(fd: RawFd, kernel: &KernelEvent) -> Option<Box<Event>> {
    let Some(listener) = Id::by_uid(kernel.uid()) else {
        refuse(fd, kernel.id());
        return None;
    };
    listener.accounting().arrive();
    let _handling = listener.handler().hold();
    let id = Id::from_request(&listener, kernel.id());
    let mut event = Event::new(&listener, RDMA_CM_EVENT_CONNECT_REQUEST, kernel.status());
    let mut prepare = || prepare_request(&listener, &id, &mut event, kernel);
    let prepared = prepare().or_else(|error| match id.follow(&listener) {
        true => prepare(),
        false => Err(error),
    });
    if let Err(error) = prepared {
        log::error!("{listener}: connection request dropped: {error}");
        if let Err(error) = id.destroy() {
            log::error!("{listener}: {error}");
        }
        listener.accounting().complete();
        return None;
    }
    Some(event)
}

/// Destroys the kernel's object of a request whose listener is not this
/// process's, so that the peer is rejected.
fn refuse(fd: RawFd, handle: u32) {
    log::warn!("connection request {handle} for unknown listener refused");
    if let Err(error) = submit(fd, DestroyId::new(handle)) {
        log::error!("connection request {handle}: {error}");
    }
}

fn prepare_request(
    listener: &Id,
    id: &Arc<Id>,
    event: &mut Event,
    kernel: &KernelEvent,
) -> Result<()> {
    event.set_request(id);
    if id.is_datagram() {
        event.set_ud(&kernel.ud());
    } else {
        let conn = kernel.conn();
        event.set_conn(&conn);
        let mut state = id.state();
        state.initiator_depth = conn.initiator_depth;
        state.responder_resources = conn.responder_resources;
        state.ece.set_remote(kernel.ece());
    }
    if listener.is_synchronous() {
        id.become_synchronous()?;
    }
    Defaults::get().apply(id);
    query::after_request(id, listener.uses_ib_addresses())
}

/// An event of a multicast group; its `uid` names the membership.
fn group_event(kernel: &KernelEvent, kind: rdma_cm_event_type) -> Option<Box<Event>> {
    let found = Membership::by_uid(kernel.uid()).and_then(|group| Some((group.id()?, group)));
    let Some((id, membership)) = found else {
        log::warn!("{} of unknown group dropped", super::event::name(kind));
        return None;
    };
    id.accounting().arrive();
    let _handling = id.handler().hold();
    let mut event = Event::new(&id, kind, kernel.status());
    if kind == RDMA_CM_EVENT_MULTICAST_JOIN {
        event.set_ud(&kernel.ud());
        if let Err(error) = multicast::joined(&membership, &id, &event.ud()) {
            log::error!("{id}: joined a group but {error}");
            event.fail(RDMA_CM_EVENT_MULTICAST_ERROR, &error);
        }
    }
    event.set_membership(membership);
    Some(event)
}
