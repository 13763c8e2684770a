//! Shared receive queues of identifiers.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::verbs::bindings::{
    IBV_QPT_XRC_RECV, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_destroy_srq, ibv_pd,
    ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::verbs::{self, dispatch};

use super::cq::{self, Side};
use super::id::Id;

const NO_ATTRIBUTES: &str = "create a shared receive queue without attributes";

/// Creates the identifier's shared receive queue.
///
/// Missing in `attr` and supplied here: the protection domain (the
/// identifier's) and, for XRC, the device's XRC domain and a completion queue
/// of `max_wr` entries.
///
/// # Errors
/// `EINVAL` if `attr` names no type, the identifier has a shared receive
/// queue or no device, or there is no protection domain; else what libibverbs
/// says, also of a protection domain of another device. The identifier is then
/// as before.
///
/// # Safety
/// `attr` is null or points to attributes in which every pointer that
/// `comp_mask` names is null or points to a living object.
pub unsafe fn create_ex(id: &Arc<Id>, attr: *mut ibv_srq_init_attr_ex) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let attr = unsafe { attr.as_mut() }.ok_or(Error::invalid(NO_ATTRIBUTES))?;
    let _guard = id.lock_qp();
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { create_locked(id, attr) };
    result.inspect_err(|error| log::error!("{id}: {error}"))
}

/// Like [`create_ex`] for the basic attributes and a protection domain that may
/// be null. The type is XRC if the identifier's queue pair type is XRC
/// receive. What was granted is copied back.
///
/// # Errors
/// As for [`create_ex`].
///
/// # Safety
/// `attr` is null or points to attributes, `pd` is null or points to a living
/// protection domain.
pub unsafe fn create(id: &Arc<Id>, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> Result<()> {
    // SAFETY: the caller vouches for the pointer.
    let attr = unsafe { attr.as_mut() }.ok_or(Error::invalid(NO_ATTRIBUTES))?;
    // SAFETY: plain numbers and pointers, for which zero is valid.
    let mut extended: ibv_srq_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    extended.srq_context = attr.srq_context;
    extended.attr = attr.attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    extended.srq_type = if id.qp_type() == IBV_QPT_XRC_RECV {
        IBV_SRQT_XRC
    } else {
        IBV_SRQT_BASIC
    };
    if !pd.is_null() {
        extended.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        extended.pd = pd;
    }
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { create_ex(id, &mut extended) };
    attr.attr = extended.attr;
    result
}

unsafe fn create_locked(id: &Arc<Id>, attr: &mut ibv_srq_init_attr_ex) -> Result<()> {
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
        return Err(Error::invalid("create a shared receive queue of no type"));
    }
    if !id.srq().is_null() {
        return Err(Error::invalid("create a second shared receive queue"));
    }
    let device = id
        .require_device()
        .map_err(|_| Error::invalid("create a shared receive queue on an unbound identifier"))?;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.pd = id.pd();
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    }
    // Unlike for a queue pair, the domain may be of another context: whether
    // that works is up to the provider, as with the original.
    if attr.pd.is_null() {
        return Err(Error::invalid(
            "create a shared receive queue without a protection domain",
        ));
    }
    let mut made_cq = false;
    if attr.srq_type == IBV_SRQT_XRC {
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = device.xrcd()?;
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
            if id.recv_cq().is_null() {
                cq::create(id, Side::Recv, attr.attr.max_wr)?;
                made_cq = true;
            }
            attr.cq = id.recv_cq();
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        }
    }
    // SAFETY: the identifier's device keeps the context open; the caller
    // vouches for the attributes, the rest was supplied.
    let srq = unsafe { dispatch::create_srq_ex(id.verbs(), attr) };
    if srq.is_null() {
        let error = Error::last_os("create a shared receive queue");
        if made_cq {
            cq::destroy(id, Side::Recv);
            attr.cq = ptr::null_mut();
            attr.comp_mask &= !IBV_SRQ_INIT_ATTR_CQ;
        }
        return Err(error);
    }
    if id.pd().is_null() {
        id.set_pd(attr.pd);
    }
    id.set_srq(srq);
    log::debug!(
        "{id}: SRQ created, type {}, {} receives",
        attr.srq_type,
        attr.attr.max_wr
    );
    Ok(())
}

/// Destroys the identifier's shared receive queue and, unless a queue pair
/// still uses them, the completion queues that the library made. Nothing to
/// do without one.
///
/// Blocks until the program has acknowledged its asynchronous events, as
/// `ibv_destroy_srq(3)` says; no lock is held meanwhile.
///
/// If libibverbs cannot destroy it (a queue pair uses it), it stays with the
/// identifier, and the log says why.
pub fn destroy(id: &Id) {
    let srq = {
        let _guard = id.lock_qp();
        let srq = id.srq();
        id.set_srq(ptr::null_mut());
        srq
    };
    if srq.is_null() {
        return;
    }
    // SAFETY: the program gave it to the identifier, which does not name it
    // any more, so the library uses it nowhere else.
    let status = unsafe { ibv_destroy_srq(srq) };
    if status != 0 {
        let error = verbs::failure(status, "destroy a shared receive queue");
        log::error!("{id}: {error}");
        let _guard = id.lock_qp();
        id.set_srq(srq);
        return;
    }
    log::debug!("{id}: SRQ destroyed");
    if id.qp().is_null() {
        cq::destroy_both(id);
    }
}
