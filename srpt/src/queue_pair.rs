//! The states of a channel's queue pair: what srpt_init_ch_qp(9) and its
//! siblings do.

use std::mem::MaybeUninit;

use rdmacm::verbs::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT,
    IBV_QPS_RTR, IBV_QPS_RTS, ibv_modify_qp, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_query_qp,
};
use rdmacm::verbs::failure;
use rdmacm::{Error, Result};

use crate::connection::Connection;

/// RDMA reads under way at once on a queue pair.
const READS: u8 = 4;

/// Rights of peers on a queue pair, which INIT sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpPolicy {
    /// Local write only, as today's kernel: in SRP the target alone starts
    /// transfers.
    #[default]
    Current,
    /// Local write, remote read and remote write, as srpt_init_ch_qp(9) says.
    Manual,
}

impl QpPolicy {
    /// What it grants (`enum ibv_access_flags`).
    pub const fn access_flags(self) -> u32 {
        match self {
            Self::Current => IBV_ACCESS_LOCAL_WRITE,
            Self::Manual => {
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE
            }
        }
    }
}

fn blank(state: u32) -> ibv_qp_attr {
    // SAFETY: plain numbers, for which zero is valid.
    let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attr.qp_state = state;
    attr
}

/// # Safety
/// `qp` is alive.
unsafe fn modify(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: i32) -> Result<()> {
    // SAFETY: the caller vouches for the queue pair.
    match unsafe { ibv_modify_qp(qp, attr, mask) } {
        0 => Ok(()),
        status => Err(failure(status, "modify a queue pair")),
    }
}

/// srpt_init_ch_qp(9): moves the queue pair to INIT, or sets INIT's attributes
/// again, with the rights of `policy`, and makes sure that it has them.
///
/// # Errors
/// What the kernel or libibverbs says; `EIO` if the rights are not what was
/// asked for afterwards.
///
/// # Safety
/// `qp` is alive.
pub unsafe fn init(connection: &dyn Connection, qp: *mut ibv_qp, policy: QpPolicy) -> Result<()> {
    let mut attr = blank(IBV_QPS_INIT);
    let mask = connection.init_attr(&mut attr)?;
    attr.qp_access_flags = policy.access_flags();
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify(qp, &mut attr, mask | IBV_QP_ACCESS_FLAGS as i32) }?;
    let mut now = blank(IBV_QPS_INIT);
    // SAFETY: plain numbers and pointers, for which zero is valid.
    let mut init: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above; the structures are ours.
    let status = unsafe { ibv_query_qp(qp, &mut now, IBV_QP_ACCESS_FLAGS as i32, &mut init) };
    if status != 0 {
        return Err(failure(status, "query a queue pair"));
    }
    // Local write has no meaning as a right of a queue pair; some devices
    // report it, some do not.
    let remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (now.qp_access_flags ^ policy.access_flags()) & remote != 0 {
        return Err(Error::new(libc::EIO, "give a queue pair its rights"));
    }
    log::debug!(
        "queue pair initialised, access flags {:#x}",
        now.qp_access_flags
    );
    Ok(())
}

/// srpt_ch_qp_rtr(9): makes the queue pair ready to receive.
///
/// # Errors
/// What the kernel or libibverbs says.
///
/// # Safety
/// `qp` is alive.
pub unsafe fn ready_to_receive(connection: &dyn Connection, qp: *mut ibv_qp) -> Result<()> {
    let mut attr = blank(IBV_QPS_RTR);
    let mask = connection.init_attr(&mut attr)?;
    attr.max_dest_rd_atomic = READS;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify(qp, &mut attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC as i32) }
}

/// srpt_ch_qp_rts(9): makes the queue pair ready to send.
///
/// # Errors
/// What the kernel or libibverbs says.
///
/// # Safety
/// `qp` is alive.
pub unsafe fn ready_to_send(connection: &dyn Connection, qp: *mut ibv_qp) -> Result<()> {
    let mut attr = blank(IBV_QPS_RTS);
    let mask = connection.init_attr(&mut attr)?;
    attr.max_rd_atomic = READS;
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify(qp, &mut attr, mask | IBV_QP_MAX_QP_RD_ATOMIC as i32) }
}

/// srpt_ch_qp_err(9): puts the queue pair in error, from any state.
///
/// # Errors
/// What libibverbs says.
///
/// # Safety
/// `qp` is alive.
pub unsafe fn fail(qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: the caller vouches for the queue pair.
    unsafe { modify(qp, &mut blank(IBV_QPS_ERR), IBV_QP_STATE as i32) }
}
