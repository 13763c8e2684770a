//! The functions of `<rdma/rdma_cm_kapi.h>`: the kernel's own connection
//! manager interface, as far as librdmacm lacks it.
//!
//! Names and arguments are those of the kernel's manual, with the types of
//! libibverbs. Functions that return `int` return 0, or -1 with errno, where
//! the kernel returns a negative errno. An identifier that is NULL, destroyed
//! or not of this library is refused with `EINVAL`; functions that cannot say
//! so do nothing. All may be called from any thread; calls that concern one
//! identifier must not overlap, except those about rejections and
//! `rdma_lock_handler`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::argument::{existing, identifier, place};
use super::convert::{ignore, respond};
use crate::abi::{
    RDMA_IB_SERVICE_ID, RDMA_IB_SERVICE_NAME, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_ib_service,
};
use crate::cm::addrinfo::Service;
use crate::cm::connect::Param;
use crate::error::{Error, Result};
use crate::kapi::{address, ece as ece_options, handler, option, reject};
use crate::verbs::bindings::{ibv_ece, ibv_gid};

/// Limits an identifier to devices of one type.
///
/// `node_type`: `IBV_NODE_CA` (InfiniBand and RoCE), `IBV_NODE_RNIC` (iWARP),
/// or `IBV_NODE_UNSPECIFIED` for no limit. An address on another device is
/// then refused: `rdma_bind_addr` fails with `ENODEV`, address resolution ends
/// with `RDMA_CM_EVENT_ADDR_ERROR` and status `-ENODEV`, and the identifier is
/// as it was created, without options set meanwhile. A wildcard listener
/// rejects requests that arrive on other devices.
///
/// Returns 0, or -1 with errno: `EINVAL` for another type, `EALREADY` if the
/// identifier has an address. See rdma_restrict_node_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_restrict_node_type(id: *mut rdma_cm_id, node_type: u8) -> c_int {
    let call = "rdma_restrict_node_type";
    let result = existing(call, id).and_then(|id| option::restrict_node_type(&id, node_type));
    respond(call, result)
}

/// Looks up an InfiniBand service by the subnet administrator.
///
/// `id`: identifier that is bound to an InfiniBand port. `ibs`: the service, by
/// its identifier or its name. The first answer becomes the identifier's
/// destination; `rdma_query_addrinfo` returns all.
///
/// Ends with `RDMA_CM_EVENT_ADDRINFO_RESOLVED` or
/// `RDMA_CM_EVENT_ADDRINFO_ERROR`, in synchronous mode by returning.
///
/// Returns 0, or -1 with errno: `EINVAL` for an unbound identifier, NULL, flags
/// that are not exactly one of `RDMA_IB_SERVICE_ID` and `RDMA_IB_SERVICE_NAME`
/// or a name without end; `EOPNOTSUPP` if the port is not on InfiniBand or the
/// kernel is older than Linux 6.17; `EBUSY` while a resolution is running or
/// its result was not fetched. See rdma_resolve_ib_service(3).
///
/// # Safety
/// `ibs` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_ib_service(
    id: *mut rdma_cm_id,
    ibs: *const rdma_ib_service,
) -> c_int {
    let call = "rdma_resolve_ib_service";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the pointer.
        let ibs = unsafe { ibs.as_ref() }.ok_or(Error::invalid("look up no service"))?;
        address::resolve_ib_service(&id, service(ibs)?)
    });
    respond(call, result)
}

fn service(ibs: &rdma_ib_service) -> Result<Service<'_>> {
    match ibs.flags {
        RDMA_IB_SERVICE_ID => Ok(Service::Number(ibs.service_id)),
        RDMA_IB_SERVICE_NAME => {
            let name = &ibs.service_name;
            // SAFETY: bytes may be read as characters and the reverse; same
            // place, same length.
            let bytes = unsafe { std::slice::from_raw_parts(name.as_ptr().cast(), name.len()) };
            CStr::from_bytes_until_nul(bytes)
                .map(|name| Service::Name(name.to_bytes()))
                .map_err(|_| Error::invalid("look up a service whose name has no end"))
        }
        _ => Err(Error::invalid(
            "look up a service by other than identifier or name",
        )),
    }
}

/// Sets the type of service of an identifier: the traffic class on RoCE, the
/// service class on InfiniBand, the TOS byte on iWARP.
///
/// `tos`: 0 to 255. To be set before the route is resolved; requests of a
/// listener have their own.
///
/// Returns 0, or -1 with errno `EINVAL` for a value out of range. The kernel's
/// function of this name returns nothing. See rdma_set_service_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_service_type(id: *mut rdma_cm_id, tos: c_int) -> c_int {
    let call = "rdma_set_service_type";
    let result = existing(call, id).and_then(|id| option::set_service_type(&id, tos));
    respond(call, result)
}

/// Lets an identifier bind to an address that another uses, if that one allows
/// it as well and none of them listens.
///
/// `reuse`: 0 for no, else yes. Returns 0, or -1 with errno `EINVAL` if the
/// state of the identifier does not allow the change. See
/// rdma_set_service_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_reuseaddr(id: *mut rdma_cm_id, reuse: c_int) -> c_int {
    let call = "rdma_set_reuseaddr";
    let result = existing(call, id).and_then(|id| option::set_reuseaddr(&id, reuse));
    respond(call, result)
}

/// Keeps an identifier that is bound to the IPv6 wildcard address from getting
/// IPv4 requests as well.
///
/// `afonly`: 0 for no, else yes. Returns 0, or -1 with errno `EINVAL` if the
/// state of the identifier does not allow the change. See
/// rdma_set_service_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_afonly(id: *mut rdma_cm_id, afonly: c_int) -> c_int {
    let call = "rdma_set_afonly";
    let result = existing(call, id).and_then(|id| option::set_afonly(&id, afonly));
    respond(call, result)
}

/// Sets how long the queue pair of an identifier waits for an acknowledgement
/// before it sends again: 4.096 microseconds times 2^`timeout`.
///
/// `timeout`: 0 to 31; 0 waits for ever. To be set before connecting or
/// accepting. It concerns this side only.
///
/// Returns 0, or -1 with errno `EINVAL` for a value out of range or if the
/// queue pair type is neither `IBV_QPT_RC` nor `IBV_QPT_XRC_SEND`. See
/// rdma_set_service_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_ack_timeout(id: *mut rdma_cm_id, timeout: u8) -> c_int {
    let call = "rdma_set_ack_timeout";
    let result = existing(call, id).and_then(|id| option::set_ack_timeout(&id, timeout));
    respond(call, result)
}

/// Sets how long the peer waits at least before it sends again to this
/// identifier's queue pair after "receiver not ready".
///
/// `min_rnr_timer`: 0 to 31, the code that `struct ibv_qp_attr` has; 1 is
/// 0.01 ms, 31 is 491.52 ms, and 0, the default, is 655.36 ms. To be set
/// before connecting or accepting; `rdma_init_qp_attr` reports it for
/// `IBV_QPS_RTR`.
///
/// Returns 0, or -1 with errno `EINVAL` for a value out of range or if the
/// queue pair type is neither `IBV_QPT_RC` nor `IBV_QPT_XRC_RECV`. See
/// rdma_set_service_type(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_min_rnr_timer(id: *mut rdma_cm_id, min_rnr_timer: u8) -> c_int {
    let call = "rdma_set_min_rnr_timer";
    let result = existing(call, id).and_then(|id| option::set_min_rnr_timer(&id, min_rnr_timer));
    respond(call, result)
}

/// The reason of a rejection in words.
///
/// `reason`: status of an `RDMA_CM_EVENT_REJECTED` of `id`. Returns a string
/// that lives as long as the library, never NULL. See rdma_reject_msg(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject_msg(id: *mut rdma_cm_id, reason: c_int) -> *const c_char {
    identifier("rdma_reject_msg", id)
        .map_or(reject::UNRECOGNIZED_TRANSPORT, |id| {
            reject::message(&id, reason)
        })
        .as_ptr()
}

/// Whether the peer's program rejected, rather than its connection manager.
///
/// `reason`: status of an `RDMA_CM_EVENT_REJECTED` of `id`. See
/// rdma_reject_msg(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_is_consumer_reject(id: *mut rdma_cm_id, reason: c_int) -> bool {
    identifier("rdma_is_consumer_reject", id).is_ok_and(|id| reject::is_consumers(&id, reason))
}

/// The data that the peer's program gave to `rdma_reject`.
///
/// `ev`: an event of `id`. `data_len`: where the length in bytes is stored; it
/// may exceed what the peer gave, the rest being zero. Returns the data, which
/// live until the event is acknowledged, or NULL and length 0 unless `ev` is
/// an `RDMA_CM_EVENT_REJECTED` by the peer's program. See rdma_reject_msg(3).
///
/// # Safety
/// `ev` is NULL or an event not yet acknowledged; `data_len` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_consumer_reject_data(
    id: *mut rdma_cm_id,
    ev: *mut rdma_cm_event,
    data_len: *mut u8,
) -> *const c_void {
    let found = identifier("rdma_consumer_reject_data", id).ok();
    // SAFETY: the caller vouches for the event.
    let (data, length) = match (found, unsafe { ev.as_ref() }) {
        (Some(id), Some(event)) if reject::carries_consumers_data(&id, event) => {
            // SAFETY: both members of the union, which the library has
            // filled, begin with private data and length.
            let conn = unsafe { event.param.conn };
            (conn.private_data, conn.private_data_len)
        }
        _ => (ptr::null(), 0),
    };
    if let Ok(place) = place(data_len, "store the length of private data: null") {
        // SAFETY: the caller vouches for the place.
        unsafe { place.write(length) };
    }
    data
}

/// The GIDs of an identifier: zeroes while it is bound to no device.
///
/// `sgid`, `dgid`: where the local and the remote GID are stored; NULL if not
/// wanted. On iWARP these are the device addresses. See rdma_read_gids(3).
///
/// # Safety
/// `sgid` and `dgid` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_read_gids(
    cm_id: *mut rdma_cm_id,
    sgid: *mut ibv_gid,
    dgid: *mut ibv_gid,
) {
    let call = "rdma_read_gids";
    let none = ibv_gid { raw: [0; 16] };
    let (local, remote) = existing(call, cm_id)
        .and_then(|id| address::gids(&id))
        .inspect_err(|error| ignore(call, error))
        .unwrap_or((none, none));
    for (target, gid) in [(sgid, local), (dgid, remote)] {
        if !target.is_null() {
            // SAFETY: not null; the caller vouches for the place.
            unsafe { target.write(gid) };
        }
    }
}

/// As `rdma_connect`, and offers `ece` to the peer, whatever the driver says of
/// the queue pair.
///
/// Returns 0, or -1 with errno: `EINVAL` if `ece` is NULL or its `comp_mask` is
/// not 0, else as `rdma_connect`. See rdma_connect_ece(3).
///
/// # Safety
/// As for `rdma_connect`; `ece` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect_ece(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
    ece: *mut ibv_ece,
) -> c_int {
    let call = "rdma_connect_ece";
    let result = identifier(call, id).and_then(|id| {
        let ece = place(ece, "connect with ECE: none given")?;
        // SAFETY: the caller vouches for both pointers.
        let (param, ece) = unsafe { (Param::from_raw(conn_param), ece.read()) };
        ece_options::connect(&id, param.as_ref(), ece)
    });
    respond(call, result)
}

/// As `rdma_accept`, and answers with `ece`, whatever the driver says of the
/// queue pair.
///
/// Returns 0, or -1 with errno: `EINVAL` if `ece` is NULL or its `comp_mask` is
/// not 0, else as `rdma_accept`. See rdma_connect_ece(3).
///
/// # Safety
/// As for `rdma_accept`; `ece` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept_ece(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
    ece: *mut ibv_ece,
) -> c_int {
    let call = "rdma_accept_ece";
    let result = identifier(call, id).and_then(|id| {
        let ece = place(ece, "accept with ECE: none given")?;
        // SAFETY: the caller vouches for both pointers.
        let (param, ece) = unsafe { (Param::from_raw(conn_param), ece.read()) };
        ece_options::accept(&id, param.as_ref(), ece)
    });
    respond(call, result)
}

/// Keeps other threads from getting events of an identifier, until
/// `rdma_unlock_handler`.
///
/// A thread in `rdma_get_cm_event` that fetches such an event waits, also if
/// the channel's descriptor is non-blocking; so does this call while another
/// thread has the lock or the library is handling an event of `id`. Events
/// handed out before are not affected. A thread may take the lock repeatedly
/// and gets events itself meanwhile. Connection requests and multicast events
/// count as events of the listener and of the member. Destroying the
/// identifier releases the lock. See rdma_lock_handler(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_lock_handler(id: *mut rdma_cm_id) {
    let call = "rdma_lock_handler";
    match existing(call, id) {
        Ok(id) => handler::lock(&id),
        Err(error) => ignore(call, &error),
    }
}

/// Undoes one `rdma_lock_handler` of the calling thread; does nothing if it
/// does not have the lock. See rdma_lock_handler(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_unlock_handler(id: *mut rdma_cm_id) {
    let call = "rdma_unlock_handler";
    if let Err(error) = existing(call, id).and_then(|id| handler::unlock(&id)) {
        ignore(call, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(flags: u32, name: &[u8]) -> rdma_ib_service {
        let mut service_name = [0; 64];
        for (to, from) in service_name.iter_mut().zip(name) {
            *to = *from as c_char;
        }
        rdma_ib_service {
            service_id: 7,
            service_name,
            flags,
            reserved: 0,
        }
    }

    #[test]
    fn a_service_is_asked_for_in_one_way() {
        assert!(matches!(
            service(&asked(RDMA_IB_SERVICE_ID, b"nfs")),
            Ok(Service::Number(7))
        ));
        assert!(matches!(
            service(&asked(RDMA_IB_SERVICE_NAME, b"nfs")),
            Ok(Service::Name(b"nfs"))
        ));
        for flags in [0, 3, 4] {
            assert!(service(&asked(flags, b"nfs")).is_err());
        }
    }

    #[test]
    fn a_name_has_an_end() {
        assert!(service(&asked(RDMA_IB_SERVICE_NAME, &[b'a'; 63])).is_ok());
        assert!(service(&asked(RDMA_IB_SERVICE_NAME, &[b'a'; 64])).is_err());
    }

    #[test]
    fn what_is_no_identifier_has_no_reasons() {
        // SAFETY: null is allowed for all of them.
        unsafe {
            let message = CStr::from_ptr(rdma_reject_msg(ptr::null_mut(), 28));
            assert_eq!(message, reject::UNRECOGNIZED_TRANSPORT);
            assert!(!rdma_is_consumer_reject(ptr::null_mut(), 28));
            let mut length = 9;
            let data = rdma_consumer_reject_data(ptr::null_mut(), ptr::null_mut(), &mut length);
            assert!(data.is_null());
            assert_eq!(length, 0);
            let mut gid = ibv_gid { raw: [9; 16] };
            rdma_read_gids(ptr::null_mut(), &mut gid, ptr::null_mut());
            assert_eq!(gid.raw, [0; 16]);
            rdma_unlock_handler(ptr::null_mut());
        }
    }
}
