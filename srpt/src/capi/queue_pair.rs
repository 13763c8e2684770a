//! The states of a channel's queue pair, and what it is made of.

use std::ffi::{c_int, c_void};

use rdmacm::Error;
use rdmacm::verbs::bindings::{
    IBV_EVENT_COMM_EST, IBV_EVENT_QP_LAST_WQE_REACHED, ibv_async_event, ibv_qp,
};

use super::channel::{adopt_contexts, channel, srpt_rdma_ch};
use super::respond;
use crate::queue_pair;

/// Initialises the attributes of a queue pair and moves it to INIT, or sets
/// INIT's attributes again if it is there: with the rights that the device's
/// qp_policy grants. SRPT_QP_MANUAL: local write, remote read and remote write.
/// Which rights the queue pair has afterwards is verified.
///
/// srpt_create_ch_ib does this for the queue pair that it makes.
///
/// qp: a queue pair for the identifier of ch, usually that of ch itself.
///
/// Returns 0, or a negative errno: -EINVAL for NULL, -EIO if the rights are not
/// what was asked for, else what librdmacm or libibverbs says.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, qp is NULL or
/// a living queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_init_ch_qp(ch: *mut srpt_rdma_ch, qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let result = unsafe { channel(ch) }.and_then(|ch| match qp.is_null() {
        // SAFETY: as above.
        false => unsafe { queue_pair::init(ch.connection(), qp, ch.device.settings.policy) },
        true => Err(Error::invalid("initialise no queue pair")),
    });
    respond(result)
}

/// Moves a queue pair to RTR with the attributes of the connection and 4
/// incoming RDMA reads. rdma_accept(3) does this for the queue pair of an
/// identifier.
///
/// Returns as srpt_init_ch_qp.
///
/// # Safety
/// As for srpt_init_ch_qp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_ch_qp_rtr(ch: *mut srpt_rdma_ch, qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let result = unsafe { channel(ch) }.and_then(|ch| match qp.is_null() {
        // SAFETY: as above.
        false => unsafe { queue_pair::ready_to_receive(ch.connection(), qp) },
        true => Err(Error::invalid("make no queue pair ready to receive")),
    });
    respond(result)
}

/// Moves a queue pair to RTS with the attributes of the connection and 4
/// outgoing RDMA reads. rdma_accept(3) does this for the queue pair of an
/// identifier.
///
/// Returns as srpt_init_ch_qp.
///
/// # Safety
/// As for srpt_init_ch_qp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_ch_qp_rts(ch: *mut srpt_rdma_ch, qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let result = unsafe { channel(ch) }.and_then(|ch| match qp.is_null() {
        // SAFETY: as above.
        false => unsafe { queue_pair::ready_to_send(ch.connection(), qp) },
        true => Err(Error::invalid("make no queue pair ready to send")),
    });
    respond(result)
}

/// Puts the queue pair of a channel in error, from any state; all that was
/// posted comes back. The channel's state stays: see srpt_close_ch.
///
/// Returns 0, or a negative errno: -EINVAL for NULL, -ENOTCONN without queue
/// pair, else what libibverbs says.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_ch_qp_err(ch: *mut srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { channel(ch) }.and_then(|ch| {
        let qp = ch.connection().qp();
        if qp.is_null() {
            return Err(Error::new(libc::ENOTCONN, "put no queue pair in error"));
        }
        // SAFETY: the queue pair of a living identifier.
        unsafe { queue_pair::fail(qp) }
    });
    respond(result)
}

/// Makes completion queue, queue pair, memory and rings of a channel and posts
/// all receives. srpt_cm_req_recv does this; a program needs it only after
/// srpt_destroy_ch_ib.
///
/// Returns 0, or a negative errno: -EINVAL for NULL, -EEXIST if there is a queue
/// pair, else what librdmacm or libibverbs says.
///
/// # Safety
/// ch is NULL or a living channel that nobody else uses; not to be called
/// within one of its callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_create_ch_ib(ch: *mut srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { ch.as_mut() }
        .ok_or(Error::invalid("create the queue pair of no channel"))
        .and_then(srpt_rdma_ch::create);
    if result.is_ok() {
        // SAFETY: not null, as above.
        unsafe { adopt_contexts(ch) };
    }
    respond(result)
}

/// Destroys what srpt_create_ch_ib made, whatever is under way: the channel is
/// disconnected then. The program must have no command of it any more.
///
/// # Safety
/// As for srpt_create_ch_ib.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_destroy_ch_ib(ch: *mut srpt_rdma_ch) {
    // SAFETY: the caller vouches for the pointer.
    if let Some(ch) = unsafe { ch.as_mut() } {
        ch.destroy();
    }
}

/// Handles an asynchronous event (ibv_get_async_event(3)) of the queue pair of
/// a channel: tells the connection manager when the connection is in use
/// (IBV_EVENT_COMM_EST), logs others.
///
/// # Safety
/// event is NULL or valid; ch is NULL or a living channel that no other thread
/// works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_qp_event(event: *const ibv_async_event, ch: *mut srpt_rdma_ch) {
    // SAFETY: the caller vouches for both pointers.
    let (Some(event), Ok(ch)) = (unsafe { event.as_ref() }, unsafe { channel(ch) }) else {
        return;
    };
    match event.event_type {
        IBV_EVENT_COMM_EST => {
            if let Err(error) = ch.connection().notify(event.event_type) {
                log::debug!("{error}");
            }
        }
        IBV_EVENT_QP_LAST_WQE_REACHED => log::info!("last work request of a queue pair reached"),
        other => log::warn!("asynchronous event {other} of a queue pair"),
    }
}

/// Logs an asynchronous event of a shared receive queue. Channels have none of
/// their own; for programs that give theirs to other queue pairs.
///
/// # Safety
/// event is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_srq_event(event: *const ibv_async_event, ctx: *mut c_void) {
    // SAFETY: the caller vouches for the pointer.
    if let Some(event) = unsafe { event.as_ref() } {
        log::info!(
            "asynchronous event {} of a shared receive queue {ctx:p}",
            event.event_type
        );
    }
}
