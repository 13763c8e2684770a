//! Moving queue pairs from state to state as a connection proceeds.
//!
//! The attributes of each state come from the kernel, one command per state.
//! Where it is known what the kernel would say, or where two steps may be one
//! (InfiniBand and RoCE connections), commands are saved; iWARP, datagrams
//! and kernels of ABI 3 get the full sequence.
//!
//! Every function that changes a queue pair wants its caller to hold
//! [`Id::lock_qp`].

use std::ffi::c_int;
use std::mem::MaybeUninit;

use crate::abi::RDMA_UDP_QKEY;
use crate::error::{Error, Result};
use crate::kernel::command::submit;
use crate::kernel::ucma::InitQpAttr;
use crate::verbs;
use crate::verbs::bindings::{
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_MIN_RNR_TIMER, IBV_QP_PKEY_INDEX,
    IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QPS_ERR,
    IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, ibv_get_pkey_index,
    ibv_modify_qp, ibv_qp, ibv_qp_attr,
};

use super::device::{LinkLayer, Transport};
use super::id::Id;
use super::{ece, library};

/// Bits of the RTR mask that old kernels set for RoCE only, and by mistake on
/// InfiniBand as well.
const ROCE_ONLY_BITS: u32 = 0b111 << 21;

/// First ABI whose kernel knows the attributes of INIT.
const ABI_WITH_INIT: u32 = 4;

/// Depth that means "what the kernel says".
const KERNEL_CHOICE: u8 = u8::MAX;

/// Which attributes of a state are set: `enum ibv_qp_attr_mask`.
type Mask = u32;

/// Fetches the attributes that the identifier's queue pair needs for the state
/// in `attr.qp_state` (`enum ibv_qp_state`) and returns which are set
/// (`enum ibv_qp_attr_mask`). On failure, `attr` stays as it is.
///
/// # Errors
/// `EINVAL` for an unknown state, without a device, or if the connection has
/// not come that far.
pub fn query_attr(id: &Id, attr: &mut ibv_qp_attr) -> Result<c_int> {
    let mask = fetch(id, attr)?;
    // A mask has 26 bits.
    Ok(mask as c_int)
}

fn fetch(id: &Id, attr: &mut ibv_qp_attr) -> Result<Mask> {
    let state = attr.qp_state;
    if state == IBV_QPS_INIT && !kernel_knows_init()? {
        return local_init(id, attr);
    }
    let reply = submit(id.descriptor()?, InitQpAttr::new(id.handle(), state))?;
    let mask = reply.apply_to(attr);
    if mask & IBV_QP_MIN_RNR_TIMER != 0
        && let Some(timer) = id.state().min_rnr_timer
    {
        attr.min_rnr_timer = timer;
    }
    if mask & IBV_QP_RETRY_CNT != 0
        && let Some(most) = id.state().most_retries
    {
        attr.retry_cnt = attr.retry_cnt.min(most);
    }
    if state == IBV_QPS_RTR && link_layer(id) == LinkLayer::InfiniBand {
        return Ok(mask & !ROCE_ONLY_BITS);
    }
    Ok(mask)
}

fn kernel_knows_init() -> Result<bool> {
    Ok(library::char_device()?.abi() >= ABI_WITH_INIT)
}

fn link_layer(id: &Id) -> LinkLayer {
    id.device().map_or(LinkLayer::Unspecified, |device| {
        device.link_layer(id.port_num())
    })
}

fn uses_infiniband_cm(id: &Id) -> bool {
    id.device()
        .is_some_and(|device| device.transport() == Transport::InfiniBand)
}

/// The attributes of INIT on a kernel of ABI 3, which does not know them.
fn local_init(id: &Id, attr: &mut ibv_qp_attr) -> Result<Mask> {
    let device = id.require_device()?;
    let port = id.port_num();
    // SAFETY: the device keeps the context open.
    let index = unsafe { ibv_get_pkey_index(device.context(), port, id.pkey()) };
    let index = u16::try_from(index).map_err(|_| Error::invalid("find the P_Key of the port"))?;
    Ok(set_init(attr, port, index, id.is_datagram()))
}

/// Fills in INIT as the kernel does before a connection is requested.
fn set_init(attr: &mut ibv_qp_attr, port: u8, pkey_index: u16, datagram: bool) -> Mask {
    attr.port_num = port;
    attr.pkey_index = pkey_index;
    let common = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if datagram {
        attr.qkey = RDMA_UDP_QKEY;
        common | IBV_QP_QKEY
    } else {
        attr.qp_access_flags = 0;
        common | IBV_QP_ACCESS_FLAGS
    }
}

/// Whether the port of a connection has one P_Key only, the default one at index
/// 0, as on RoCE.
fn has_one_pkey(id: &Id) -> bool {
    uses_infiniband_cm(id) && link_layer(id) == LinkLayer::Ethernet && !id.is_datagram()
}

/// Whether INIT is known for good before the peer says anything: what it may do is
/// settled, and the port has one P_Key.
fn is_settled(id: &Id) -> bool {
    has_one_pkey(id) && id.state().writes_only
}

/// What the kernel would say of INIT of a RoCE connection: on the active side,
/// nothing is accessible before the peer answered.
fn known_init(id: &Id, attr: &mut ibv_qp_attr) -> Option<Mask> {
    let settled = is_settled(id);
    let known = settled || has_one_pkey(id) && !id.state().passive;
    known.then(|| {
        let mask = set_init(attr, id.port_num(), 0, false);
        if settled {
            attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        }
        mask
    })
}

fn blank(state: u32) -> ibv_qp_attr {
    // SAFETY: plain numbers, for which zero is valid.
    let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attr.qp_state = state;
    attr
}

fn modify(id: &Id, qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: Mask) -> Result<()> {
    let state = attr.qp_state;
    // SAFETY: the caller holds the lock of the living queue pair.
    let status = unsafe { ibv_modify_qp(qp, attr, mask as c_int) };
    if status != 0 {
        let error = verbs::failure(status, "modify a queue pair");
        log::warn!("{id}: to {}, mask {mask:#x}: {error}", state_name(state));
        return Err(error);
    }
    log::debug!("{id}: QP moved to {}, mask {mask:#x}", state_name(state));
    Ok(())
}

fn state_name(state: u32) -> &'static str {
    match state {
        IBV_QPS_RESET => "RESET",
        IBV_QPS_INIT => "INIT",
        IBV_QPS_RTR => "RTR",
        IBV_QPS_RTS => "RTS",
        IBV_QPS_SQD => "SQD",
        IBV_QPS_ERR => "ERR",
        _ => "?",
    }
}

/// Moves the queue pair to `state` with the kernel's attributes, after
/// `adjust` had a look at them.
fn advance(
    id: &Id,
    qp: *mut ibv_qp,
    state: u32,
    adjust: impl FnOnce(&mut ibv_qp_attr, &mut Mask),
) -> Result<()> {
    let mut attr = blank(state);
    let mut mask = fetch(id, &mut attr)?;
    adjust(&mut attr, &mut mask);
    modify(id, qp, &mut attr, mask)
}

fn as_is(_: &mut ibv_qp_attr, _: &mut Mask) {}

/// Whether the queue pair is still where [`initialise`] put it. A program may
/// have put its own in place, or moved ours.
fn is_initialised(qp: *mut ibv_qp) -> bool {
    // SAFETY: the caller holds the lock of the living queue pair; libibverbs
    // keeps the state that it was last moved to.
    unsafe { (*qp).state == IBV_QPS_INIT }
}

/// Prepares a queue pair just created: INIT, and for datagrams on to RTS.
///
/// # Errors
/// What the kernel or libibverbs says.
pub fn initialise(id: &Id, qp: *mut ibv_qp) -> Result<()> {
    let mut attr = blank(IBV_QPS_INIT);
    let known = kernel_knows_init()?
        .then(|| known_init(id, &mut attr))
        .flatten();
    let mask = match known {
        Some(mask) => mask,
        None => fetch(id, &mut attr)?,
    };
    modify(id, qp, &mut attr, mask)?;
    if id.is_datagram() {
        modify(id, qp, &mut blank(IBV_QPS_RTR), IBV_QP_STATE)?;
        // The packet sequence number starts at 0.
        let mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        return modify(id, qp, &mut blank(IBV_QPS_RTS), mask);
    }
    let mut state = id.state();
    state.qp_initialised = state.passive;
    Ok(())
}

/// Makes the queue pair ready to send on the active side, after the peer's
/// response. Nothing to do without a queue pair.
///
/// # Errors
/// `EINVAL` if the peer's ECE cannot be agreed to, else what the kernel or
/// libibverbs says. The queue pair stays where it got to.
pub fn connect_active(id: &Id) -> Result<()> {
    let qp = id.qp();
    if qp.is_null() {
        return Ok(());
    }
    ece::after_response(id, qp)?;
    if !id.is_datagram() {
        let skips_init = uses_infiniband_cm(id) && kernel_knows_init()? && is_initialised(qp);
        if skips_init && is_settled(id) {
            advance(id, qp, IBV_QPS_RTR, as_is)?;
        } else if skips_init {
            // The response decides what the peer may access. That may be set
            // on the way to RTR as well, without another visit to INIT.
            let mut init = blank(IBV_QPS_INIT);
            let init_mask = fetch(id, &mut init)?;
            advance(id, qp, IBV_QPS_RTR, |attr, mask| {
                merge_init(attr, mask, &init, init_mask);
            })?;
        } else {
            advance(id, qp, IBV_QPS_INIT, as_is)?;
            advance(id, qp, IBV_QPS_RTR, as_is)?;
        }
        advance(id, qp, IBV_QPS_RTS, as_is)?;
    }
    ece::refresh(id, qp)
}

/// Adds to the attributes of RTR those of INIT that may change on the way.
fn merge_init(attr: &mut ibv_qp_attr, mask: &mut Mask, init: &ibv_qp_attr, init_mask: Mask) {
    let merged = init_mask & (IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX) & !*mask;
    if merged & IBV_QP_ACCESS_FLAGS != 0 {
        attr.qp_access_flags = init.qp_access_flags;
    }
    if merged & IBV_QP_PKEY_INDEX != 0 {
        attr.pkey_index = init.pkey_index;
    }
    *mask |= merged;
}

/// Makes the queue pair ready to send on the passive side, with the agreed
/// depths of the identifier's state. Nothing to do without a queue pair and
/// for datagrams.
///
/// # Errors
/// What the kernel or libibverbs says. The queue pair stays where it got to.
pub fn connect_passive(id: &Id) -> Result<()> {
    let qp = id.qp();
    if qp.is_null() || id.is_datagram() {
        return Ok(());
    }
    let (initialised, responder_resources, initiator_depth) = {
        let state = id.state();
        (
            state.qp_initialised,
            state.responder_resources,
            state.initiator_depth,
        )
    };
    let skip_init =
        initialised && uses_infiniband_cm(id) && kernel_knows_init()? && is_initialised(qp);
    if !skip_init {
        advance(id, qp, IBV_QPS_INIT, as_is)?;
    }
    advance(id, qp, IBV_QPS_RTR, |attr, _| {
        if responder_resources != KERNEL_CHOICE {
            attr.max_dest_rd_atomic = responder_resources;
        }
    })?;
    advance(id, qp, IBV_QPS_RTS, |attr, _| {
        if initiator_depth != KERNEL_CHOICE {
            attr.max_rd_atomic = initiator_depth;
        }
    })
}

/// Puts the queue pair, if there is one, in error. A failure is logged only:
/// there is nothing else to be done about the connection.
pub fn to_error(id: &Id) {
    let qp = id.qp();
    if !qp.is_null() {
        // `modify` has logged a failure.
        let _ = modify(id, qp, &mut blank(IBV_QPS_ERR), IBV_QP_STATE);
    }
}

/// Puts a datagram queue pair that has failed in error, so that all its work
/// requests complete.
pub fn flush(id: &Id) {
    let _guard = id.lock_qp();
    to_error(id);
}

/// Brings a datagram queue pair back to work, which is in error and has no work
/// requests left.
///
/// # Errors
/// `EINVAL` without a queue pair, else what the kernel or libibverbs says.
pub fn renew(id: &Id) -> Result<()> {
    let _guard = id.lock_qp();
    let qp = id.qp();
    if qp.is_null() {
        return Err(Error::invalid("renew a queue pair that does not exist"));
    }
    modify(id, qp, &mut blank(IBV_QPS_RESET), IBV_QP_STATE)?;
    initialise(id, qp)
}

/// Stops the queue pair, if there is one, before a disconnect: in error, or
/// on iWARP drained.
///
/// # Errors
/// `EINVAL` without a device or if its transport has no connections, else
/// what libibverbs says.
pub fn to_drained(id: &Id) -> Result<()> {
    let state = match id.require_device()?.transport() {
        Transport::InfiniBand => IBV_QPS_ERR,
        Transport::Iwarp => IBV_QPS_SQD,
        Transport::Other => return Err(Error::invalid("disconnect on this transport")),
    };
    let qp = id.qp();
    if qp.is_null() {
        return Ok(());
    }
    modify(id, qp, &mut blank(state), IBV_QP_STATE)
}

/// Whether the identifier has a queue pair that is connected, or was.
pub fn is_past_connecting(id: &Id) -> bool {
    let _guard = id.lock_qp();
    let qp = id.qp();
    // SAFETY: not null, and the lock keeps the library from destroying it.
    !qp.is_null() && unsafe { (*qp).state } >= IBV_QPS_RTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_before_a_request_is_what_the_kernel_says() {
        let mut attr = blank(IBV_QPS_INIT);
        attr.qp_access_flags = 1;
        assert_eq!(set_init(&mut attr, 2, 0, false), 0x39);
        assert_eq!((attr.port_num, attr.qp_access_flags), (2, 0));
        assert_eq!(attr.qp_state, IBV_QPS_INIT);
    }

    #[test]
    fn datagrams_get_their_queue_key() {
        let mut attr = blank(IBV_QPS_INIT);
        let mask = set_init(&mut attr, 1, 3, true);
        assert_eq!(
            mask,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        );
        assert_eq!((attr.qkey, attr.pkey_index), (RDMA_UDP_QKEY, 3));
    }

    #[test]
    fn merging_adds_only_what_may_change_on_the_way() {
        let mut init = blank(IBV_QPS_INIT);
        init.qp_access_flags = 0xE;
        init.pkey_index = 4;
        init.port_num = 2;
        let mut attr = blank(IBV_QPS_RTR);
        let mut mask = 0x129181;
        merge_init(&mut attr, &mut mask, &init, 0x39);
        assert_eq!(mask, 0x129181 | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX);
        assert_eq!((attr.qp_access_flags, attr.pkey_index), (0xE, 4));
        assert_eq!((attr.port_num, attr.qp_state), (0, IBV_QPS_RTR));
    }

    #[test]
    fn merging_leaves_what_rtr_sets_itself() {
        let mut init = blank(IBV_QPS_INIT);
        init.qp_access_flags = 0xE;
        let mut attr = blank(IBV_QPS_RTR);
        attr.qp_access_flags = 2;
        let mut mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
        merge_init(&mut attr, &mut mask, &init, 0x39);
        assert_eq!(attr.qp_access_flags, 2);
    }
}
