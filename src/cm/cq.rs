//! Completion queues that the library makes for an identifier, each with a
//! completion channel of its own, and who owns them.
//!
//! The public members of an identifier may also hold queues of the program's;
//! only what was made here is ever destroyed here.

use std::ffi::c_int;
use std::ptr;

use crate::error::{Error, Result};
use crate::verbs;
use crate::verbs::bindings::{
    ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel,
    ibv_destroy_cq,
};

use super::id::Id;

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For completed receives.
    Recv,
    /// For completed sends.
    Send,
}

/// The completion queues of an identifier that the library made.
#[derive(Default)]
pub struct Owned {
    recv: Option<Queue>,
    send: Option<Queue>,
}

/// A completion queue and its channel.
#[derive(Clone, Copy)]
struct Queue {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
}

impl Owned {
    fn slot(&mut self, side: Side) -> &mut Option<Queue> {
        match side {
            Side::Recv => &mut self.recv,
            Side::Send => &mut self.send,
        }
    }
}

/// The completion queue in the public member.
pub fn of(id: &Id, side: Side) -> *mut ibv_cq {
    match side {
        Side::Recv => id.recv_cq(),
        Side::Send => id.send_cq(),
    }
}

fn publish(id: &Id, side: Side, queue: Queue) {
    match side {
        Side::Recv => {
            id.set_recv_cq_channel(queue.channel);
            id.set_recv_cq(queue.cq);
        }
        Side::Send => {
            id.set_send_cq_channel(queue.channel);
            id.set_send_cq(queue.cq);
        }
    }
}

/// Makes a completion queue of `entries` entries for `side` and publishes it
/// with its channel. Its context is the identifier. The caller holds
/// [`Id::lock_qp`] and has seen that there is none.
///
/// # Errors
/// `EINVAL` for more entries than libibverbs can express or without a device,
/// else what libibverbs says.
pub fn create(id: &Id, side: Side, entries: u32) -> Result<()> {
    let context = id.require_device()?.context();
    let entries =
        c_int::try_from(entries).map_err(|_| Error::invalid("create a completion queue"))?;
    // SAFETY: the identifier's device keeps the context open.
    let channel = unsafe { ibv_create_comp_channel(context) };
    if channel.is_null() {
        return Err(Error::last_os("create a completion channel"));
    }
    let cq_context = id.as_pointer().cast();
    // SAFETY: context and channel are alive; vector 0 always exists.
    let cq = unsafe { ibv_create_cq(context, entries, cq_context, channel, 0) };
    if cq.is_null() {
        let error = Error::last_os("create a completion queue");
        destroy_channel(id, channel);
        return Err(error);
    }
    let queue = Queue { channel, cq };
    *id.state().queues.slot(side) = Some(queue);
    publish(id, side, queue);
    log::debug!("{id}: {side:?} CQ with {entries} entries created");
    Ok(())
}

/// Destroys the completion queue of `side` and its channel if the library
/// made them and the program has not put another in place. Blocks until the
/// program has acknowledged its completion events.
///
/// A queue that is still in use stays, for a later attempt. Other identifiers
/// may use it on purpose or not, as `rdma_create_qp(3)` puts it into the
/// program's attributes, which may well serve for more than one queue pair.
/// For the same reason it is not destroyed after its last user: the attributes
/// still name it.
pub fn destroy(id: &Id, side: Side) {
    let Some(queue) = id.state().queues.slot(side).take() else {
        return;
    };
    if of(id, side) != queue.cq {
        log::info!("{id}: {side:?} CQ was replaced by the program, left to it");
        return;
    }
    // SAFETY: made here, and still published, so not destroyed since.
    let status = unsafe { ibv_destroy_cq(queue.cq) };
    if status != 0 {
        let error = verbs::failure(status, "destroy a completion queue");
        log::info!("{id}: {side:?} CQ stays: {error}");
        *id.state().queues.slot(side) = Some(queue);
        return;
    }
    let none = Queue {
        channel: ptr::null_mut(),
        cq: ptr::null_mut(),
    };
    publish(id, side, none);
    destroy_channel(id, queue.channel);
}

/// Destroys both completion queues; see [`destroy`].
pub fn destroy_both(id: &Id) {
    destroy(id, Side::Send);
    destroy(id, Side::Recv);
}

fn destroy_channel(id: &Id, channel: *mut ibv_comp_channel) {
    // SAFETY: made here, and its only owner gives it up.
    let status = unsafe { ibv_destroy_comp_channel(channel) };
    if status != 0 {
        // The program has queues of its own on it and keeps it alive.
        let error = verbs::failure(status, "destroy a completion channel");
        log::warn!("{id}: {error}");
    }
}
