//! What is chosen for an identifier before it connects.

use std::ffi::c_int;

use crate::abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS,
};
use crate::cm::defaults::MAX_TIMER;
use crate::cm::id::Id;
use crate::cm::option::set_bytes;
use crate::cm::transition;
use crate::error::{Error, Result};
use crate::verbs::bindings::{
    IBV_NODE_CA, IBV_NODE_RNIC, IBV_NODE_UNSPECIFIED, IBV_QPT_RC, IBV_QPT_XRC_RECV,
};

/// Limits the identifier, and the requests that it gets if it listens, to
/// devices of one type (`enum ibv_node_type`): InfiniBand and RoCE or iWARP.
/// The unspecified type lifts the limit.
///
/// # Errors
/// `EINVAL` for another type, `EALREADY` if the identifier has an address.
pub fn restrict_node_type(id: &Id, node_type: u8) -> Result<()> {
    let restriction = match c_int::from(node_type) {
        IBV_NODE_UNSPECIFIED => None,
        known @ (IBV_NODE_CA | IBV_NODE_RNIC) => Some(known),
        _ => return Err(Error::invalid("restrict to an unknown type of device")),
    };
    let addressed = id.src_addr().is_some() || id.dst_addr().is_some();
    let mut state = id.state();
    if addressed || state.bound || state.passive || state.device.is_some() {
        return Err(Error::new(
            libc::EALREADY,
            "restrict the devices of an identifier that has an address",
        ));
    }
    state.node_type = restriction;
    Ok(())
}

/// Sets the type of service: traffic class on RoCE, service class on
/// InfiniBand, TOS on iWARP. Effective on routes resolved later.
///
/// # Errors
/// `EINVAL` for a value outside of 0 to 255.
pub fn set_service_type(id: &Id, tos: c_int) -> Result<()> {
    let tos = u8::try_from(tos)
        .map_err(|_| Error::invalid("set a type of service outside of 0 to 255"))?;
    set_bytes(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &[tos])
}

/// Lets the identifier bind to an address in use.
///
/// # Errors
/// `EINVAL` in a state that the kernel does not allow.
pub fn set_reuseaddr(id: &Id, reuse: c_int) -> Result<()> {
    let value = c_int::from(reuse != 0).to_ne_bytes();
    set_bytes(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value)
}

/// Keeps an IPv6 wildcard address from covering IPv4.
///
/// # Errors
/// `EINVAL` in a state that the kernel does not allow.
pub fn set_afonly(id: &Id, afonly: c_int) -> Result<()> {
    let value = c_int::from(afonly != 0).to_ne_bytes();
    set_bytes(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value)
}

/// Sets how long the queue pair waits for an acknowledgement: 4.096 µs ·
/// 2^`timeout`, or for ever if 0.
///
/// # Errors
/// `EINVAL` for more than 31 and for queue pairs that are no requesters.
pub fn set_ack_timeout(id: &Id, timeout: u8) -> Result<()> {
    if timeout > MAX_TIMER {
        return Err(Error::invalid("set an ACK timeout of more than 31"));
    }
    set_bytes(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &[timeout])
}

/// Sets how long a peer waits at least after it was told that the receiver is
/// not ready: a code of the InfiniBand specification (volume 1, table 45).
/// Effective when the queue pair becomes ready to receive.
///
/// # Errors
/// `EINVAL` for more than 31 and for queue pairs that are no responders.
pub fn set_min_rnr_timer(id: &Id, timer: u8) -> Result<()> {
    if timer > MAX_TIMER {
        return Err(Error::invalid("set a minimum RNR timer of more than 31"));
    }
    if !matches!(id.qp_type(), IBV_QPT_RC | IBV_QPT_XRC_RECV) {
        return Err(Error::invalid(
            "set a minimum RNR timer for a queue pair without responder",
        ));
    }
    id.state().min_rnr_timer = Some(timer);
    if transition::is_past_connecting(id) {
        log::warn!("{id}: the QP is connected, a minimum RNR timer set now has no effect on it");
    }
    log::debug!("{id}: minimum RNR timer {timer}");
    Ok(())
}
