//! The functions of `<rdma/rdma_cma.h>`.
//!
//! Common to all: an identifier, event or list that is NULL, already
//! destroyed or never came from this library is refused with `EINVAL`, void
//! functions then do nothing. Functions that allocate fail with `ENOMEM` while
//! memory is short. All functions may be called from any thread;
//! calls that concern one identifier must not overlap, except
//! `rdma_ack_cm_event`, `rdma_event_str` and the port getters, and that
//! destroying or migrating it ends a call that waits in synchronous mode, with
//! `ECANCELED`. Waits for events are cancellation points of pthread_cancel(3), the
//! library's other calls to the kernel are none. Pointers that are passed in must
//! be valid for the duration of the call only.

use std::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use super::argument::{
    address, enter, existing, identifier, memory, optional_address, optional_string, place,
    private_data, waiting,
};
use super::convert::{ignore, respond, respond_to_lookup};
use crate::abi::{
    rdma_addrinfo, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_cm_join_mc_attr_ex,
    rdma_conn_param, rdma_event_channel, rdma_port_space,
};
use crate::cm::addrinfo::{self, Hints, LookupError};
use crate::cm::connect::{Param, Reason};
use crate::cm::id::{Id, default_qp_type};
use crate::cm::{
    self, address as addressing, channel as channels, connect, device, ece as ece_options,
    endpoint, event as events, multicast, option, post, qp, transition,
};

use crate::verbs::bindings::{
    __be16, ibv_context, ibv_ece, ibv_event_type, ibv_pd, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};

/// Opens an event channel: the descriptor through which asynchronous events
/// are reported.
///
/// The descriptor `channel->fd` may be polled for reading (`POLLIN`) and made
/// non-blocking by the program. It must outlive all identifiers that report to
/// it. Returns the channel, to be released by `rdma_destroy_event_channel`, or
/// NULL with errno: `ENODEV` if the machine or the network namespace has no
/// RDMA device, `ENXIO` if it has some but none has a uverbs node, `EPERM` if
/// the kernel speaks another ABI, `ENOENT` or `EACCES` if the connection
/// manager's own node is missing or not accessible, `EMFILE`, `ENOMEM`. See
/// rdma_create_event_channel(3).
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let call = "rdma_create_event_channel";
    enter(call);
    respond(call, memory().and_then(|()| channels::open()))
}

/// Closes an event channel and frees it. NULL is ignored.
///
/// All identifiers of the channel must be destroyed and all its events
/// acknowledged before. See rdma_destroy_event_channel(3).
///
/// # Safety
/// `channel` is NULL or came from `rdma_create_event_channel`, and nothing
/// uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let call = "rdma_destroy_event_channel";
    enter(call);
    match place(channel, "close the event channel: it is null") {
        // SAFETY: the caller vouches for the channel.
        Ok(channel) => unsafe { channels::close(channel.as_ptr()) },
        Err(error) => ignore(call, &error),
    }
}

/// Creates a communication identifier, the counterpart of a socket.
///
/// `channel`: channel for the identifier's events, which must outlive it; NULL
/// gives the identifier a channel of its own and synchronous mode, in which
/// resolving, connecting, accepting, joining and disconnecting block until
/// they are done. `id`: where the identifier is stored. `context`: the
/// program's own value, found again in `(*id)->context`. `ps`: port space:
/// `RDMA_PS_TCP` for connections, `RDMA_PS_UDP` and `RDMA_PS_IPOIB` for
/// datagrams, `RDMA_PS_IB` for either over InfiniBand service identifiers.
///
/// Returns 0, or -1 with errno: `ENODEV` without an RDMA device, `ENXIO`
/// without a uverbs node, `EINVAL` for an unknown port space or a NULL `id`,
/// `EPERM` for an unknown kernel ABI; with a NULL channel also what opening one
/// says. The identifier is freed by `rdma_destroy_id`. See rdma_create_id(3).
///
/// # Safety
/// `channel` is NULL or alive; `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    let call = "rdma_create_id";
    enter(call);
    let result = place(id, "store the identifier: null").and_then(|id| {
        memory()?;
        let qp_type = default_qp_type(ps);
        let created = if channel.is_null() {
            Id::create_synchronous(context, ps, qp_type)
        } else {
            // SAFETY: the caller vouches for the channel.
            unsafe { Id::create(channel, context, ps, qp_type) }
        }?;
        // SAFETY: the caller vouches for the place.
        unsafe { id.write(created.as_pointer()) };
        Ok(())
    });
    respond(call, result)
}

/// Creates an identifier in synchronous mode from resolved address
/// information, with a queue pair if attributes for one are given.
///
/// `id`: where the identifier is stored. `res`: address information from
/// `rdma_getaddrinfo`; only its first entry is used. With `RAI_PASSIVE` the
/// identifier is bound to the source address; otherwise the destination's
/// address and route are resolved, which blocks for up to 2 seconds each.
/// `pd`: protection domain for the queue pair, or NULL for the device's
/// default. `qp_init_attr`: attributes of the queue pair, or NULL for none;
/// the queue pair type is set to that of `res`. For a listener the attributes
/// are kept and used for each identifier that `rdma_get_request` returns.
///
/// Returns 0, or -1 with errno: `EINVAL` for NULL or for addresses with wrong
/// lengths, else what binding, resolving or creating the queue pair says;
/// nothing is left behind then. The identifier is freed by `rdma_destroy_ep`.
/// See rdma_create_ep(3).
///
/// # Safety
/// `id` is NULL or writable; `res` is NULL or an unmodified list from
/// `rdma_getaddrinfo` or one built in the same way; `pd` and `qp_init_attr`
/// are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let call = "rdma_create_ep";
    enter(call);
    let result = place(id, "store the endpoint: null").and_then(|id| {
        memory()?;
        // SAFETY: the caller vouches for the pointers.
        let created = unsafe { endpoint::create(res, pd, qp_init_attr) }?;
        // SAFETY: the caller vouches for the place.
        unsafe { id.write(created.as_pointer()) };
        Ok(())
    });
    respond(call, result)
}

/// Destroys an endpoint: its queue pair, its shared receive queue and then
/// the identifier as `rdma_destroy_id` does. NULL is ignored.
///
/// Blocks while events of the identifier are unacknowledged. See
/// rdma_destroy_ep(3).
///
/// # Safety
/// No other thread uses the identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    let call = "rdma_destroy_ep";
    match existing(call, id) {
        Ok(id) => endpoint::destroy(id),
        Err(error) => ignore(call, &error),
    }
}

/// Destroys an identifier and frees it.
///
/// Outstanding operations are cancelled; a connection request that was
/// neither accepted nor rejected is rejected. The queue pair and the shared
/// receive queue must be destroyed before. Blocks until all events of the
/// identifier that `rdma_get_cm_event` has handed out are acknowledged, so it
/// must not be called while the calling thread holds one; connection requests
/// count on the listener.
///
/// Returns 0, or -1 with errno, and then the identifier is as before: `EINVAL`
/// if it is no living identifier. See rdma_destroy_id(3).
///
/// # Safety
/// No other thread uses the identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let call = "rdma_destroy_id";
    respond(call, existing(call, id).and_then(Id::destroy))
}

/// Binds an identifier to a local address.
///
/// An address that belongs to an RDMA device also binds the identifier to that
/// device: `id->verbs`, `id->pd` and `id->port_num` are set. A wildcard or
/// loopback address does not. Port 0 lets the kernel choose one, to be found
/// with `rdma_get_src_port`.
///
/// `addr`: IPv4, IPv6 or, in InfiniBand networks, `struct sockaddr_ib`.
///
/// Returns 0, or -1 with errno: `EINVAL` if the address is NULL or of another
/// family, or if the identifier is bound already; `EADDRNOTAVAIL`,
/// `EADDRINUSE`; `EACCES` for a privileged port; `ENODEV` if no RDMA device
/// has the address or its uverbs node may not be opened, `ENXIO` if that node
/// is missing. See rdma_bind_addr(3).
///
/// # Safety
/// `addr` is NULL or readable for the length of its family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let call = "rdma_bind_addr";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the address.
        let addr = unsafe { address(addr) }?;
        addressing::bind(&id, &addr)
    });
    respond(call, result)
}

/// Resolves a destination address: finds the local device and port through
/// which it is reached, and binds the identifier to them.
///
/// `src_addr`: local address to bind to first, or NULL to let the kernel
/// choose. `dst_addr`: address to resolve; `id->route.addr.dst_addr` holds it
/// as soon as the call has succeeded. `timeout_ms`: time limit in
/// milliseconds.
///
/// Ends with `RDMA_CM_EVENT_ADDR_RESOLVED` or `RDMA_CM_EVENT_ADDR_ERROR`, whose
/// status is a negative errno (`-ETIMEDOUT`, `-ENODEV`, …). In synchronous
/// mode the call blocks until then and fails with that errno.
///
/// Returns 0, or -1 with errno: `EINVAL` if an address is of an unknown
/// family, `dst_addr` is NULL or the identifier is resolved already;
/// `ENETUNREACH` without a route; else as `rdma_bind_addr`. See
/// rdma_resolve_addr(3).
///
/// # Safety
/// The addresses are NULL or readable for the length of their family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let call = "rdma_resolve_addr";
    let result = waiting(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the address.
        let dst = unsafe { address(dst_addr) }?;
        // SAFETY: the caller vouches for the address.
        let src = unsafe { optional_address(src_addr) }?;
        addressing::resolve_addr(&id, src.as_ref(), &dst, timeout_ms)
    });
    respond(call, result)
}

/// Resolves the route to the resolved destination address.
///
/// `timeout_ms`: time limit in milliseconds, more than 0. On InfiniBand the
/// ibacm daemon, if it runs, is asked first, which blocks for its answer (at
/// most about 2 seconds).
///
/// Ends with `RDMA_CM_EVENT_ROUTE_RESOLVED`, after which `id->route.path_rec`
/// holds `id->route.num_paths` records, or with `RDMA_CM_EVENT_ROUTE_ERROR`.
/// In synchronous mode the call blocks until then.
///
/// Returns 0, or -1 with errno: `EINVAL` before the address is resolved or for
/// a time limit of 0. See rdma_resolve_route(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int {
    let call = "rdma_resolve_route";
    let result = identifier(call, id).and_then(|id| addressing::resolve_route(&id, timeout_ms));
    respond(call, result)
}

/// Creates a queue pair for an identifier that is bound to a device, and makes
/// it ready to post receives (datagram queue pairs also to send).
///
/// `pd`: protection domain on the identifier's device, or NULL for `id->pd`.
/// `qp_init_attr`: requested attributes. Completion queues that it leaves out
/// are created, each with a completion channel, and stored in the identifier;
/// a shared receive queue that it leaves out is `id->srq`. Granted sizes and
/// the queues used are written back.
///
/// Returns 0 with the queue pair in `id->qp`, or -1 with errno: `EINVAL` for
/// an identifier that is unbound or has a queue pair, for a protection domain
/// of another device and for NULL; else what libibverbs says. Everything is
/// freed by `rdma_destroy_qp`. See rdma_create_qp(3).
///
/// # Safety
/// `qp_init_attr` is NULL or points to a valid structure; all objects named
/// are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let call = "rdma_create_qp";
    let result = existing(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the pointers.
        unsafe { qp::create(&id, pd, qp_init_attr) }
    });
    respond(call, result)
}

/// Creates a queue pair with extended attributes.
///
/// As `rdma_create_qp`; the protection domain is `qp_init_attr->pd` if
/// `IBV_QP_INIT_ATTR_PD` is set in its `comp_mask`, else `id->pd`. See
/// rdma_create_qp(3).
///
/// # Safety
/// `qp_init_attr` is NULL or points to a valid structure; all objects named
/// are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let call = "rdma_create_qp_ex";
    let result = existing(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the structure.
        unsafe { qp::create_ex(&id, qp_init_attr) }
    });
    respond(call, result)
}

/// Destroys the queue pair of an identifier and the completion queues that the
/// library created for it. Does nothing without one. What could not be
/// destroyed stays in the members of `id`, for another call. See
/// rdma_destroy_qp(3).
///
/// # Safety
/// No other thread posts to the queue pair or uses its completion queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    let call = "rdma_destroy_qp";
    match existing(call, id) {
        Ok(id) => qp::destroy(&id),
        Err(error) => ignore(call, &error),
    }
}

/// Asks the peer for a connection, or for datagrams for its queue pair number.
///
/// `conn_param`: parameters, or NULL for as many responder resources and as
/// much initiator depth as the device has, 7 retries and no private data.
/// Private data over IP addresses has up to 56 bytes, for datagrams 180.
///
/// Ends with `RDMA_CM_EVENT_ESTABLISHED` (identifiers with a queue pair),
/// `RDMA_CM_EVENT_CONNECT_RESPONSE` (without: then `rdma_establish`),
/// `RDMA_CM_EVENT_REJECTED` (the status is the reason), `RDMA_CM_EVENT_UNREACHABLE`
/// or `RDMA_CM_EVENT_CONNECT_ERROR`. In synchronous mode the call blocks until
/// then; `ECONNREFUSED` stands for a rejection.
///
/// Returns 0, or -1 with errno: `EINVAL` before the route is resolved, with
/// neither parameters nor queue pair, above a limit of the device, or with too
/// much private data. See rdma_connect(3).
///
/// # Safety
/// `conn_param` is NULL or valid, with readable private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let call = "rdma_connect";
    let result = waiting(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the parameters.
        let param = unsafe { Param::from_raw(conn_param) };
        connect::connect(&id, param.as_ref())
    });
    respond(call, result)
}

/// Completes a connection on the active side for a program that manages its
/// own queue pair, after `RDMA_CM_EVENT_CONNECT_RESPONSE`.
///
/// Returns 0, or -1 with errno: `EINVAL` if the identifier has a queue pair or
/// no response is waiting. See rdma_establish(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let call = "rdma_establish";
    let result = existing(call, id).and_then(|id| connect::establish(&id));
    respond(call, result)
}

/// Listens for connection requests or datagram lookups.
///
/// An unbound identifier is bound to the wildcard address and a free port
/// first; a wildcard listener listens on all devices. `backlog`: how many
/// requests may wait; 0 or less, or more than the system allows, means the
/// system's maximum.
///
/// Each request is reported as `RDMA_CM_EVENT_CONNECT_REQUEST` with a new
/// identifier, which reports to the listener's channel; in synchronous mode
/// `rdma_get_request` returns it.
///
/// Returns 0, or -1 with errno: `EINVAL` if it listens already, `EADDRINUSE`.
/// See rdma_listen(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let call = "rdma_listen";
    let result = identifier(call, id).and_then(|id| addressing::listen(&id, backlog));
    respond(call, result)
}

/// Waits for the next connection request of a listener in synchronous mode.
///
/// `listen`: the listener. `id`: where the new identifier is stored: itself
/// synchronous, with the request in `(*id)->event`, and with a queue pair if
/// the listener is an endpoint with queue pair attributes.
///
/// Returns 0, or -1 with errno: `EINVAL` for an asynchronous listener, NULL or
/// an unexpected event; `ECONNREFUSED`; the errno of a failure that was
/// reported, or of creating the queue pair, in which case the peer is
/// rejected. See rdma_get_request(3).
///
/// # Safety
/// `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    let call = "rdma_get_request";
    let result = identifier(call, listen).and_then(|listener| {
        let id = place(id, "store the identifier: null")?;
        let request = cm::sync::get_request(&listener)?;
        // SAFETY: the caller vouches for the place.
        unsafe { id.write(request.as_pointer()) };
        Ok(())
    });
    respond(call, result)
}

/// Accepts a connection request or a datagram lookup.
///
/// `id`: identifier of the request. `conn_param`: parameters, or NULL for the
/// depths that the peer asked for, as far as the device allows. Private data
/// has up to 196 bytes, for datagrams 136.
///
/// The queue pair of the identifier, if any, is made ready to send and receive
/// before the peer is told. Ends with `RDMA_CM_EVENT_ESTABLISHED`; in
/// synchronous mode the call blocks until then, except for datagrams.
///
/// Returns 0, or -1 with errno: `EINVAL` without a request, with neither
/// parameters nor queue pair, above a limit of the device, or with too much
/// private data; in the last case the peer has been rejected. See
/// rdma_accept(3).
///
/// # Safety
/// `conn_param` is NULL or valid, with readable private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let call = "rdma_accept";
    let result = waiting(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the parameters.
        let param = unsafe { Param::from_raw(conn_param) };
        connect::accept(&id, param.as_ref())
    });
    respond(call, result)
}

/// Rejects a connection request or a datagram lookup.
///
/// `private_data`, `private_data_len`: data for the peer, up to 148 bytes, for
/// datagrams 136; NULL for none. The peer sees `RDMA_CM_EVENT_REJECTED` with
/// reason 28 (datagrams: `RDMA_CM_EVENT_UNREACHABLE` with status 2).
///
/// Returns 0, or -1 with errno: `EINVAL` if there is nothing to reject or the
/// data is too long. See rdma_reject(3).
///
/// # Safety
/// `private_data` is NULL or readable for `private_data_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller vouches for the data.
    unsafe {
        reject(
            "rdma_reject",
            id,
            private_data,
            private_data_len,
            Reason::Consumer,
        )
    }
}

/// Rejects a connection request because its enhanced connection establishment
/// options are not supported.
///
/// As `rdma_reject`, but the peer sees reason 35. See rdma_reject(3).
///
/// # Safety
/// `private_data` is NULL or readable for `private_data_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the caller vouches for the data.
    unsafe {
        reject(
            "rdma_reject_ece",
            id,
            private_data,
            private_data_len,
            Reason::VendorOption,
        )
    }
}

unsafe fn reject(
    call: &str,
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
    reason: Reason,
) -> c_int {
    let result = existing(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the data.
        let data = unsafe { private_data(data, len) };
        connect::reject(&id, data, reason)
    });
    respond(call, result)
}

/// Tells the library of an asynchronous event of the queue pair.
///
/// `event`: `IBV_EVENT_COMM_EST` forces the connection to be established when
/// data arrives before the peer's last message. See rdma_notify(3).
///
/// Returns 0, or -1 with errno: `EISCONN` if the connection is established
/// already, `EINVAL` for other events and states.
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    let call = "rdma_notify";
    let result = existing(call, id).and_then(|id| connect::notify(&id, event));
    respond(call, result)
}

/// Ends a connection and moves the queue pair to the error state, which
/// flushes its work requests.
///
/// Both sides see `RDMA_CM_EVENT_DISCONNECTED` and later
/// `RDMA_CM_EVENT_TIMEWAIT_EXIT`. In synchronous mode the call blocks until
/// the first of them, called again until the second, and not at all if neither
/// is to come: after a refused connect, for a listener or for datagrams.
///
/// Returns 0, also after the peer has disconnected, or -1 with errno: `EINVAL`
/// for an identifier that was never connected. See rdma_disconnect(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let call = "rdma_disconnect";
    let result = waiting(call, id).and_then(|id| connect::disconnect(&id));
    respond(call, result)
}

/// Joins a multicast group and attaches the queue pair, if any, to it.
///
/// `addr`: address of the group. `context`: the program's own value, found
/// again in the event's `param.ud.private_data`.
///
/// Ends with `RDMA_CM_EVENT_MULTICAST_JOIN`, which carries what is needed to
/// send to the group, or with `RDMA_CM_EVENT_MULTICAST_ERROR`. In synchronous
/// mode the call blocks until then.
///
/// Returns 0, or -1 with errno: `EINVAL` for an identifier that is unbound or
/// not for datagrams and for a NULL or wildcard address. See
/// rdma_join_multicast(3).
///
/// # Safety
/// `addr` is NULL or readable for the length of its family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    let call = "rdma_join_multicast";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the address.
        let addr = unsafe { address(addr) }?;
        multicast::join(&id, &addr, multicast::Role::FullMember, context)
    });
    respond(call, result)
}

/// Joins a multicast group with extended attributes.
///
/// `mc_join_attr`: the group's address and how to join it:
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER` to send and receive,
/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER` to send only; both members must be
/// announced in its `comp_mask`. Otherwise as `rdma_join_multicast`.
///
/// Returns 0, or -1 with errno: `ENOTSUP` for unknown bits in `comp_mask`,
/// `EINVAL` for missing ones and unknown flags. See rdma_join_multicast_ex(3).
///
/// # Safety
/// `mc_join_attr` is NULL or valid, its address readable for the length of its
/// family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    let call = "rdma_join_multicast_ex";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the attributes.
        unsafe { multicast::join_ex(&id, mc_join_attr, context) }
    });
    respond(call, result)
}

/// Leaves a multicast group and detaches the queue pair from it.
///
/// `addr`: the address given to join. Blocks until all events of this
/// membership are acknowledged.
///
/// Returns 0, or -1 with errno: `EADDRNOTAVAIL` if the group was not joined,
/// `EINVAL` for an address that is NULL or of an unknown family. See
/// rdma_leave_multicast(3).
///
/// # Safety
/// `addr` is NULL or readable for the length of its family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let call = "rdma_leave_multicast";
    let result = existing(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the address.
        let addr = unsafe { address(addr) }?;
        multicast::leave(&id, &addr)
    });
    respond(call, result)
}

/// Gets the next event of a channel.
///
/// `event`: where the event is stored, to be returned by `rdma_ack_cm_event`.
/// Blocks until there is one, unless the channel's descriptor is non-blocking.
/// Several threads may wait on one channel; each event goes to one of them.
///
/// Returns 0, or -1 with errno: `EAGAIN` if the descriptor is non-blocking and
/// nothing is pending, `EINTR` if a signal arrived, `EINVAL` for NULL. See
/// rdma_get_cm_event(3).
///
/// # Safety
/// `channel` is NULL or alive; `event` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let call = "rdma_get_cm_event";
    enter(call);
    let result = place(event, "store the event: null").and_then(|event| {
        // Before the kernel hands out an event, which would be lost.
        memory()?;
        // SAFETY: the caller vouches for the channel.
        let next = unsafe { events::get(channel) }?;
        // SAFETY: the caller vouches for the place.
        unsafe { event.write(next) };
        Ok(())
    });
    respond(call, result)
}

/// Acknowledges an event and frees it with its private data.
///
/// Every event must be acknowledged, in any order and from any thread;
/// destroying or migrating its identifier waits for it.
///
/// Returns 0, or -1 with errno `EINVAL` if `event` is NULL, was acknowledged
/// before or is no event. See rdma_ack_cm_event(3).
///
/// # Safety
/// Nothing uses the event any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let call = "rdma_ack_cm_event";
    enter(call);
    respond(call, events::acknowledge(event))
}

/// The local port of an identifier in network byte order; for InfiniBand
/// addresses the low 16 bits of the service identifier. 0 if unbound. See
/// rdma_get_src_port(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16 {
    let call = "rdma_get_src_port";
    existing(call, id)
        .ok()
        .and_then(|id| id.src_addr())
        .map_or(0, |addr| addr.port_be())
}

/// The remote port of an identifier in network byte order; for InfiniBand
/// addresses the low 16 bits of the service identifier. 0 if there is none.
/// See rdma_get_dst_port(3).
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16 {
    let call = "rdma_get_dst_port";
    existing(call, id)
        .ok()
        .and_then(|id| id.dst_addr())
        .map_or(0, |addr| addr.port_be())
}

/// Lists the RDMA devices of the machine as open contexts.
///
/// `num_devices`: where their number is stored, or NULL. Devices that cannot
/// be opened are left out. The contexts are shared with the library and stay
/// open after the list is freed.
///
/// Returns an array that ends with NULL, to be freed by `rdma_free_devices`,
/// or NULL with errno: `ENODEV` if there is no device, `ENXIO` if there are some
/// but none with a uverbs node. See rdma_get_devices(3).
///
/// # Safety
/// `num_devices` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let call = "rdma_get_devices";
    enter(call);
    let result = memory().and_then(|()| device::contexts());
    if !num_devices.is_null() {
        let count = result.as_ref().map_or(0, |(_, count)| *count);
        // SAFETY: not null; the caller vouches for the place.
        unsafe { num_devices.write(count) };
    }
    respond(call, result.map(|(list, _)| list))
}

/// Frees an array from `rdma_get_devices`. NULL is ignored. See
/// rdma_free_devices(3).
///
/// # Safety
/// `list` is NULL or came from `rdma_get_devices` and was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    let call = "rdma_free_devices";
    enter(call);
    match place(list, "free the list of devices: null") {
        Ok(list) => device::release_contexts(list.as_ptr()),
        Err(error) => ignore(call, &error),
    }
}

/// The name of an event type, for instance "RDMA_CM_EVENT_ESTABLISHED".
///
/// Never NULL; the string must not be freed. Unknown types are "UNKNOWN
/// EVENT". See rdma_event_str(3).
#[unsafe(no_mangle)]
pub extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    events::c_name(event).as_ptr()
}

/// Sets an option of an identifier.
///
/// `level`, `optname`: `RDMA_OPTION_ID` with `RDMA_OPTION_ID_TOS` (`uint8_t`),
/// `RDMA_OPTION_ID_REUSEADDR` (`int`), `RDMA_OPTION_ID_AFONLY` (`int`) or
/// `RDMA_OPTION_ID_ACK_TIMEOUT` (`uint8_t`); `RDMA_OPTION_IB` with
/// `RDMA_OPTION_IB_PATH` (`struct ibv_path_data[]`). `optval`, `optlen`: value
/// and its size in bytes.
///
/// Returns 0, or -1 with errno: `EINVAL` for a wrong size or state, `ENOSYS`
/// for an unknown option, `EFAULT` for an unreadable value. See
/// rdma_set_option(3).
///
/// # Safety
/// `id` is not destroyed during the call; the kernel checks `optval` itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    let call = "rdma_set_option";
    let result = existing(call, id).and_then(|id| option::set(&id, level, optname, optval, optlen));
    respond(call, result)
}

/// Moves an identifier, with its pending events, to another event channel.
///
/// `channel`: the new channel, or NULL for a channel of its own and
/// synchronous mode. Blocks until all events of the identifier that were
/// handed out on the old channel are acknowledged.
///
/// Returns 0, or -1 with errno, and then nothing has changed: `EINVAL` if the
/// identifier is synchronous already and `channel` is NULL or the one that it
/// has. See rdma_migrate_id(3).
///
/// # Safety
/// `channel` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let call = "rdma_migrate_id";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the channel.
        unsafe { id.migrate(channel) }
    });
    respond(call, result)
}

/// Translates names to the addresses, and where the network needs it the
/// routes, that RDMA communication takes.
///
/// `node`: host name or address, or NULL. `service`: service name or port, or
/// NULL. `hints`: what is wanted, or NULL: `ai_flags` (`RAI_…`), `ai_family`,
/// `ai_qp_type`, `ai_port_space`, and addresses and routes known before. One
/// of the three must be given. `res`: where the list is stored, to be freed by
/// `rdma_freeaddrinfo`; all addresses that the name has are in it, in the
/// order of getaddrinfo(3).
///
/// May block for name resolution.
///
/// Returns 0, or an `EAI_…` code of `<netdb.h>` (negative, for
/// `gai_strerror(3)`) if the name cannot be resolved, or -1 with errno:
/// `EINVAL` if all three are NULL, `ENODEV` without an RDMA device, `ENOMEM`;
/// with `RAI_SA` also `EOPNOTSUPP` if it is combined with a node or `RAI_DNS`
/// and `ENOENT` if no InfiniBand port knows the service. See
/// rdma_getaddrinfo(3).
///
/// # Safety
/// The strings are NULL or end with NUL; `hints` is NULL or valid; `res` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let call = "rdma_getaddrinfo";
    enter(call);
    // SAFETY: the caller vouches for the string.
    let node = unsafe { optional_string(node) };
    // SAFETY: the caller vouches for the string.
    let service = unsafe { optional_string(service) };
    let lookup = || {
        memory()?;
        // SAFETY: the caller vouches for the hints.
        let hints = unsafe { Hints::from_raw(hints) }?;
        let res = place(res, "store the address information: null")?;
        let list = addrinfo::lookup(node, service, hints.as_ref())?;
        // SAFETY: the caller vouches for the place.
        unsafe { res.write(list.into_raw()) };
        Ok::<(), LookupError>(())
    };
    respond_to_lookup(call, lookup())
}

/// Frees a list from `rdma_getaddrinfo` or `rdma_query_addrinfo`. NULL, and
/// what was freed before or is no such list, is ignored. See
/// rdma_getaddrinfo(3).
#[unsafe(no_mangle)]
pub extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    enter("rdma_freeaddrinfo");
    drop(addrinfo::List::from_raw(res));
}

/// Gets the attributes with which a program that manages its own queue pair
/// moves it to the state `qp_attr->qp_state`.
///
/// `qp_attr`: the wanted state on entry, the attributes for
/// `ibv_modify_qp` on return. `qp_attr_mask`: where the mask of the valid
/// attributes is stored.
///
/// Returns 0, or -1 with errno and both untouched: `EINVAL` for an unbound
/// identifier, NULL, or a state for which there are no attributes now. See
/// rdma_init_qp_attr(3).
///
/// # Safety
/// Both pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    let call = "rdma_init_qp_attr";
    let result = existing(call, id).and_then(|id| {
        let qp_attr = place(qp_attr, "store the attributes: null")?;
        let qp_attr_mask = place(qp_attr_mask, "store the mask: null")?;
        // SAFETY: the caller vouches for the structure.
        let mut attr = unsafe { qp_attr.read() };
        let mask = transition::query_attr(&id, &mut attr)?;
        // SAFETY: the caller vouches for both places.
        unsafe {
            qp_attr.write(attr);
            qp_attr_mask.write(mask);
        }
        Ok(())
    });
    respond(call, result)
}

/// Sets the local options of enhanced connection establishment, for a program
/// that manages its own queue pair.
///
/// To be called before `rdma_connect` or `rdma_accept`. Returns 0, or -1 with
/// errno `EINVAL` if the identifier has a queue pair, `ece` is NULL, its
/// vendor is 0 or its `comp_mask` is not 0. See rdma_set_local_ece(3).
///
/// # Safety
/// `ece` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let call = "rdma_set_local_ece";
    let result = existing(call, id).and_then(|id| {
        let ece = place(ece, "read the ECE options: null")?;
        // SAFETY: the caller vouches for the structure.
        ece_options::set_local(&id, unsafe { ece.read() })
    });
    respond(call, result)
}

/// Gets the peer's options of enhanced connection establishment, for a program
/// that manages its own queue pair.
///
/// Returns 0, or -1 with errno `EINVAL` if the identifier has a queue pair or
/// `ece` is NULL. See rdma_get_remote_ece(3).
///
/// # Safety
/// `ece` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    let call = "rdma_get_remote_ece";
    let result = existing(call, id).and_then(|id| {
        let ece = place(ece, "store the ECE options: null")?;
        let remote = ece_options::remote(&id)?;
        // SAFETY: the caller vouches for the place.
        unsafe { ece.write(remote) };
        Ok(())
    });
    respond(call, result)
}

/// Resolves a name or an InfiniBand service to address information without
/// blocking.
///
/// `node`, `service`, `hints`: as for `rdma_getaddrinfo`. With `RAI_SA` in
/// `hints->ai_flags` the service, a number or a name of up to 63 bytes, is
/// looked up in the subnet administrator, which needs Linux 6.17 or later; the
/// identifier must be bound to an InfiniBand port.
///
/// Ends with `RDMA_CM_EVENT_ADDRINFO_RESOLVED`, after which
/// `rdma_query_addrinfo` returns the result, or with
/// `RDMA_CM_EVENT_ADDRINFO_ERROR`. In synchronous mode the call blocks until
/// then.
///
/// Returns 0, or -1 with errno: `EBUSY` while a resolution is running or its
/// result has not been fetched, `EOPNOTSUPP` for `RAI_SA` on older kernels,
/// `ENOTSUP` for `RAI_SA` with a node or with `RAI_DNS`, `EINVAL`, and in
/// synchronous mode `ENOENT` for an unknown name.
///
/// # Safety
/// The strings are NULL or end with NUL; `hints` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    let call = "rdma_resolve_addrinfo";
    let result = identifier(call, id).and_then(|id| {
        // SAFETY: the caller vouches for the string.
        let node = unsafe { optional_string(node) };
        // SAFETY: the caller vouches for the string.
        let service = unsafe { optional_string(service) };
        // SAFETY: the caller vouches for the hints.
        let hints = unsafe { Hints::from_raw(hints) }?;
        addrinfo::resolve(&id, node, service, hints)
    });
    respond(call, result)
}

/// Takes the result of `rdma_resolve_addrinfo` from an identifier.
///
/// `info`: where the list is stored, to be freed by `rdma_freeaddrinfo`.
/// Returns 0, or -1 with errno: `ENOENT` if there is no result, `EINVAL` for
/// NULL.
///
/// # Safety
/// `info` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    let call = "rdma_query_addrinfo";
    let result = identifier(call, id).and_then(|id| {
        let info = place(info, "store the address information: null")?;
        let list = addrinfo::take_result(&id)?;
        // SAFETY: the caller vouches for the place.
        unsafe { info.write(list.into_raw()) };
        Ok(())
    });
    respond(call, result)
}

/// Queues an event of the program's own on the channel of an identifier.
///
/// `event`: `RDMA_CM_EVENT_USER`. `status`, `arg`: what the event carries in
/// `status` and `param.arg`.
///
/// On kernels before 6.17 each event that is not fetched yet takes an
/// identifier of the kernel. Returns 0, or -1 with errno: `EINVAL` for another
/// event type, else what the kernel says.
///
/// # Safety
/// `id` is not destroyed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: rdma_cm_event_type,
    status: c_int,
    arg: u64,
) -> c_int {
    let call = "rdma_write_cm_event";
    let result = identifier(call, id).and_then(|id| post::post_user(&id, event, status, arg));
    respond(call, result)
}
