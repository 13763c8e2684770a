//! The functions of `<infiniband/verbs.h>` that are inline in C: they pick
//! the provider's function out of the context.
//!
//! Each has the name of its C counterpart without the prefix and its
//! convention: null and `errno`, or a positive errno. None of them blocks
//! longer than the provider and the kernel do, and all may be called from any
//! thread as far as the manual page of the counterpart allows it.

use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::ptr;

use super::bindings::{
    IBV_QP_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, ibv_context,
    ibv_cq, ibv_create_qp, ibv_create_srq, ibv_port_attr, ibv_qp, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_query_port, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, ibv_wc, ibv_xrcd, ibv_xrcd_init_attr, verbs_context,
};

/// `__VERBS_ABI_IS_EXTENDED`: what `abi_compat` holds if the context lies
/// inside a [`verbs_context`].
const ABI_IS_EXTENDED: usize = usize::MAX;

/// The extended context around `context`, or null if the provider has none.
///
/// # Safety
/// `context` is an open context.
unsafe fn extended(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller vouches for the context.
    if unsafe { (*context).abi_compat }.addr() != ABI_IS_EXTENDED {
        return ptr::null_mut();
    }
    // SAFETY: libibverbs marks only contexts that lie inside a verbs_context.
    unsafe {
        context
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>()
    }
}

/// The operation `$op` of an extended context: `None` if the context is not
/// extended, was laid out before the operation existed, or lacks it.
macro_rules! operation {
    ($context:expr, $op:ident) => {{
        // SAFETY: the caller of the function vouches for the context.
        let extended = unsafe { extended($context) };
        // The structure grows at its front, so a short one lacks the offsets
        // that are small.
        let needed = size_of::<verbs_context>() - offset_of!(verbs_context, $op);
        // SAFETY: an extended context always has `sz`.
        let present = !extended.is_null() && unsafe { (*extended).sz } >= needed;
        present
            // SAFETY: the context says that it reaches as far as `$op`.
            .then(|| unsafe { (*extended).$op })
            .flatten()
    }};
}

/// Sets `errno` and returns null, as C's inline functions do where the
/// provider lacks an operation.
fn unsupported<T>() -> *mut T {
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    ptr::null_mut()
}

/// `ibv_query_port(3)`. Returns 0 or an errno value.
///
/// # Safety
/// `context` is open, `attr` may be written.
pub unsafe fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    match operation!(context, query_port) {
        // SAFETY: the provider's own function and context; `attr` as vouched.
        Some(query) => unsafe { query(context, port, attr, size_of::<ibv_port_attr>()) },
        None => {
            // The exported function fills a shorter, older structure.
            // SAFETY: as the caller vouches.
            unsafe {
                attr.write_bytes(0, 1);
                ibv_query_port(context, port, attr.cast())
            }
        }
    }
}

/// `ibv_create_qp_ex(3)`. Returns null and sets `errno` on failure
/// (`EOPNOTSUPP` if the provider knows basic queue pairs only).
///
/// # Safety
/// `context` is open; the pointers in `attr` that its mask and basic members
/// name are null or point to living objects of the context.
pub unsafe fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller vouches for the attributes.
    let (mask, pd) = unsafe { ((*attr).comp_mask, (*attr).pd) };
    if mask == IBV_QP_INIT_ATTR_PD {
        // SAFETY: the extended attributes start with the basic ones.
        return unsafe { ibv_create_qp(pd, attr.cast::<ibv_qp_init_attr>()) };
    }
    match operation!(context, create_qp_ex) {
        // SAFETY: the provider's own function and context.
        Some(create) => unsafe { create(context, attr) },
        None => unsupported(),
    }
}

/// `ibv_create_srq_ex(3)`. Returns null and sets `errno` on failure
/// (`EOPNOTSUPP` if the provider knows basic queues only).
///
/// # Safety
/// `context` is open; the pointers in `attr` that its mask names point to
/// living objects of the context.
pub unsafe fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller vouches for the attributes.
    let (mask, pd, srq_type) = unsafe { ((*attr).comp_mask, (*attr).pd, (*attr).srq_type) };
    let basic_only = mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0
        && mask & IBV_SRQ_INIT_ATTR_PD != 0
        && (mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || srq_type == IBV_SRQT_BASIC);
    if basic_only {
        // SAFETY: the extended attributes start with the basic ones.
        return unsafe { ibv_create_srq(pd, attr.cast::<ibv_srq_init_attr>()) };
    }
    match operation!(context, create_srq_ex) {
        // SAFETY: the provider's own function and context.
        Some(create) => unsafe { create(context, attr) },
        None => unsupported(),
    }
}

/// `ibv_open_xrcd(3)`. Returns null and sets `errno` on failure (`EOPNOTSUPP`
/// if the provider has no XRC).
///
/// # Safety
/// `context` is open, `attr` is valid.
pub unsafe fn open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    match operation!(context, open_xrcd) {
        // SAFETY: the provider's own function and context.
        Some(open) => unsafe { open(context, attr) },
        None => unsupported(),
    }
}

/// `ibv_close_xrcd(3)`. Returns 0 or an errno value.
///
/// # Safety
/// `xrcd` came from [`open_xrcd`] and is not closed yet.
pub unsafe fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller vouches for the domain, which belongs to a context.
    let context = unsafe { (*xrcd).context };
    match operation!(context, close_xrcd) {
        // SAFETY: the provider's own function and domain.
        Some(close) => unsafe { close(xrcd) },
        None => libc::EOPNOTSUPP,
    }
}

/// `ibv_post_send(3)`. Returns 0 or an errno value.
///
/// # Safety
/// `qp` is alive; `wr` and `bad_wr` are as the manual page demands.
pub unsafe fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller vouches for the queue pair, which has a context.
    match unsafe { (*(*qp).context).ops.post_send } {
        // SAFETY: the provider's own function and queue pair.
        Some(post) => unsafe { post(qp, wr, bad_wr) },
        None => libc::EOPNOTSUPP,
    }
}

/// `ibv_post_recv(3)`. Returns 0 or an errno value.
///
/// # Safety
/// `qp` is alive; `wr` and `bad_wr` are as the manual page demands.
pub unsafe fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller vouches for the queue pair, which has a context.
    match unsafe { (*(*qp).context).ops.post_recv } {
        // SAFETY: the provider's own function and queue pair.
        Some(post) => unsafe { post(qp, wr, bad_wr) },
        None => libc::EOPNOTSUPP,
    }
}

/// `ibv_poll_cq(3)`. Returns the number of completions, or a negative value.
///
/// # Safety
/// `cq` is alive and `wc` has room for `entries` completions.
pub unsafe fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller vouches for the queue, which has a context.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: the provider's own function and queue.
        Some(poll) => unsafe { poll(cq, entries, wc) },
        None => -libc::EOPNOTSUPP,
    }
}

/// `ibv_req_notify_cq(3)`. Returns 0 or an errno value.
///
/// # Safety
/// `cq` is alive.
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    // SAFETY: the caller vouches for the queue, which has a context.
    match unsafe { (*(*cq).context).ops.req_notify_cq } {
        // SAFETY: the provider's own function and queue.
        Some(request) => unsafe { request(cq, c_int::from(solicited_only)) },
        None => libc::EOPNOTSUPP,
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    unsafe extern "C" fn open(
        _context: *mut ibv_context,
        _attr: *mut ibv_xrcd_init_attr,
    ) -> *mut ibv_xrcd {
        ptr::without_provenance_mut(0x10)
    }

    /// An extended context of `size` bytes that can open XRC domains.
    fn context(size: usize) -> verbs_context {
        // SAFETY: numbers, pointers and optional functions may be zero.
        let mut context: verbs_context = unsafe { MaybeUninit::zeroed().assume_init() };
        context.sz = size;
        context.open_xrcd = Some(open);
        context.context.abi_compat = ptr::without_provenance_mut(ABI_IS_EXTENDED);
        context
    }

    fn opened(extended: &mut verbs_context) -> (*mut ibv_xrcd, Option<i32>) {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: 0,
            fd: -1,
            oflags: 0,
        };
        let base: *mut verbs_context = extended;
        // SAFETY: the context lies inside the extended one, to which the
        // pointer may go back.
        let xrcd = unsafe { open_xrcd(&raw mut (*base).context, &mut attr) };
        (xrcd, std::io::Error::last_os_error().raw_os_error())
    }

    #[test]
    fn an_extended_context_is_asked() {
        let (xrcd, _) = opened(&mut context(size_of::<verbs_context>()));
        assert_eq!(xrcd.addr(), 0x10);
    }

    #[test]
    fn an_operation_that_the_provider_does_not_know_is_unsupported() {
        let mut basic = context(size_of::<verbs_context>());
        basic.context.abi_compat = ptr::null_mut();
        let mut lacking = context(size_of::<verbs_context>());
        lacking.open_xrcd = None;
        // Ends just behind the operation, so that it is of an older layout.
        let mut short =
            context(size_of::<verbs_context>() - offset_of!(verbs_context, open_xrcd) - 1);
        for context in [&mut basic, &mut lacking, &mut short] {
            let (xrcd, errno) = opened(context);
            assert!(xrcd.is_null());
            assert_eq!(errno, Some(libc::EOPNOTSUPP));
        }
    }
}
