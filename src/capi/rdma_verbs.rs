//! The functions of `<rdma/rdma_verbs.h>` that are not inline.

use std::ffi::c_int;

use super::argument::{existing, identifier};
use super::convert::{ignore, respond};
use crate::abi::rdma_cm_id;
use crate::cm::srq;
use crate::verbs::bindings::{ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex};

/// Creates a shared receive queue for an identifier that is bound to a device.
///
/// `pd`: protection domain on the same device, which is not checked here, or
/// NULL for the identifier's.
/// `attr`: requested attributes; the granted ones are written back. If the
/// identifier has queue pair type `IBV_QPT_XRC_RECV`, an XRC queue is made,
/// with a completion queue of its own where `attr` names none.
///
/// The queue is stored in `id->srq` and belongs to the library until
/// `rdma_destroy_srq`. Not to be called by two threads for one identifier.
///
/// Returns 0, or -1 with errno: `EINVAL` for an identifier that is unbound or
/// has a queue already and for NULL; else what libibverbs says. See
/// rdma_create_srq(3).
///
/// # Safety
/// `attr` is NULL or points to a valid structure; `pd` is NULL or a live
/// protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    let call = "rdma_create_srq";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for both pointers.
        unsafe { srq::create(&id, pd, attr) }
    });
    respond(call, result)
}

/// Creates a shared receive queue with extended attributes, among them its
/// type: `IBV_SRQ_INIT_ATTR_TYPE` must be set in `attr->comp_mask`.
///
/// Otherwise as `rdma_create_srq`; the protection domain is `attr->pd`, or the
/// identifier's if that is not set.
///
/// # Safety
/// `attr` is NULL or points to a valid structure whose objects are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    let call = "rdma_create_srq_ex";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the structure.
        unsafe { srq::create_ex(&id, attr) }
    });
    respond(call, result)
}

/// Destroys the shared receive queue of an identifier and the completion
/// queues that the library made for it. Does nothing without one.
///
/// The queue pairs that use it must be destroyed before. See
/// rdma_destroy_srq(3).
///
/// # Safety
/// No other thread uses the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    let call = "rdma_destroy_srq";
    match existing(call, id) {
        Ok(id) => srq::destroy(&id),
        Err(error) => ignore(call, &error),
    }
}
