//! Connection events: srpt_cm_handler and what it calls.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdmacm::Error;
use rdmacm::abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_ESTABLISHED, rdma_cm_event, rdma_cm_id,
};
use rdmacm::kernel::addr::SockAddr;

use super::channel::{adopt_contexts, channel, srpt_rdma_ch};
use super::device::{device, srpt_device};
use super::foreign::ForeignId;
use super::respond;
use super::types::srpt_login;
use crate::cm_event;
use crate::connection::Connection;
use crate::login;
use crate::wire::RejectReason;
use crate::wire::login::{LoginRequest, LoginResponse, login_reject};

/// Handles an event of the connection manager: logins become channels, and
/// channels are established, disconnected and closed. Not the event's
/// acknowledgement: that is the program's, right after.
///
/// A listening identifier has its srpt_device as context, the identifier of a
/// channel gets the channel (struct srpt_rdma_ch *) as context. Identifiers
/// without context are left alone.
///
/// Returns 0, or a negative errno. If the event is a connection request, its
/// identifier then has been rejected, its context is NULL, and it is the
/// program's to destroy, after the acknowledgement; else it belongs to the
/// channel.
///
/// Blocks no longer than the kernel takes to create a queue pair.
///
/// # Safety
/// cm_id is NULL or an identifier whose context is as said, event one of its
/// events that is not acknowledged; no other thread works on the channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_cm_handler(
    cm_id: *mut rdma_cm_id,
    event: *const rdma_cm_event,
) -> c_int {
    // SAFETY: the caller vouches for both pointers.
    let (Some(id), Some(event)) = (unsafe { cm_id.as_mut() }, unsafe { event.as_ref() }) else {
        return -libc::EINVAL;
    };
    if event.event == RDMA_CM_EVENT_CONNECT_REQUEST {
        // The new identifier has the context of the listening one.
        let sdev = id.context.cast::<srpt_device>();
        id.context = std::ptr::null_mut();
        // SAFETY: connection requests have parameters of connections.
        let conn = unsafe { event.param.conn };
        let short = usize::from(conn.private_data_len) < LoginRequest::LENGTH;
        let request = if short {
            std::ptr::null()
        } else {
            conn.private_data
        };
        // SAFETY: the caller vouches for the context; the event has so much
        // private data.
        return unsafe { receive_request(sdev, cm_id, request, None, conn.initiator_depth) };
    }
    let ch = id.context.cast::<srpt_rdma_ch>();
    // SAFETY: the caller vouches for the context.
    let Ok(ch) = (unsafe { channel(ch) }) else {
        return 0;
    };
    respond(ch.with(|channel, _| cm_event::handle(channel, event.event)))
}

/// Handles a login: judges it, enters the session, of which other channels are
/// closed unless the login says otherwise, makes the queue pair and accepts.
/// What srpt_cm_handler calls for a connection request; a program that handles
/// events itself may.
///
/// port_num: port on the device; cm_id knows it, so it only is to be right.
/// pkey: partition key, as port_num.
/// req: the private data of the request, 56 bytes.
/// src_addr: address of the initiator for log and srpt_ops, or NULL for that
/// of cm_id.
///
/// Returns 0, and the context of cm_id is the channel, which owns cm_id from
/// then on. Else a negative errno, and cm_id was rejected: -EACCES for a login
/// that is refused, -EINVAL for NULL, -ENOMEM and others for lack of
/// resources.
///
/// # Safety
/// sdev came from srpt_add_one, cm_id is the identifier of a connection request
/// of librdmacm, req points to 56 bytes and src_addr to a string, or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_cm_req_recv(
    sdev: *mut srpt_device,
    cm_id: *mut rdma_cm_id,
    port_num: u8,
    pkey: u16,
    req: *const c_void,
    src_addr: *const c_char,
) -> c_int {
    log::trace!("login on port {port_num}, P_Key {pkey:#x}");
    let src_addr = if src_addr.is_null() {
        None
    } else {
        // SAFETY: the caller vouches for the string.
        Some(unsafe { CStr::from_ptr(src_addr) })
    };
    // SAFETY: as the caller vouches. The depth is the most that is used.
    unsafe { receive_request(sdev, cm_id, req, src_addr, u8::MAX) }
}

/// # Safety
/// As for [`srpt_cm_req_recv`].
unsafe fn receive_request(
    sdev: *const srpt_device,
    cm_id: *mut rdma_cm_id,
    req: *const c_void,
    src_addr: Option<&CStr>,
    initiator_depth: u8,
) -> c_int {
    // SAFETY: the caller vouches for the pointers.
    let (found, connection) = unsafe { (device(sdev), ForeignId::new(cm_id)) };
    let (Ok(device), Ok(connection)) = (found, connection) else {
        return -libc::EINVAL;
    };
    // SAFETY: the caller vouches for so many bytes.
    let bytes = unsafe { req.cast::<[u8; LoginRequest::LENGTH]>().as_ref() };
    let login = bytes.and_then(|bytes| LoginRequest::parse(bytes));
    let tag = login.map(|login| login.tag).unwrap_or_default();
    let refuse = |reason: RejectReason| {
        log::warn!("login refused: {reason}");
        if let Err(error) = connection.reject(&login_reject(reason, tag)) {
            log::warn!("{error}");
        }
    };
    let Some(login) = login else {
        refuse(RejectReason::UnableToEstablish);
        return -libc::EINVAL;
    };
    if let Err(reason) = judge(&device, connection, &login, src_addr) {
        refuse(reason);
        return -libc::EACCES;
    }
    match begin(&device, connection, login, initiator_depth) {
        Ok(()) => 0,
        Err((error, accepting)) => {
            log::error!("login of {}: {error}", login.initiator);
            if !accepting {
                refuse(RejectReason::InsufficientResources);
            }
            -error.errno()
        }
    }
}

fn judge(
    device: &srpt_device,
    connection: ForeignId,
    request: &LoginRequest,
    src_addr: Option<&CStr>,
) -> std::result::Result<(), RejectReason> {
    if device.disabled.load(Ordering::Acquire) {
        return Err(RejectReason::InsufficientResources);
    }
    login::check(request, &device.settings)?;
    let Some(admit) = device.program.ops.admit else {
        return Ok(());
    };
    let own = CString::new(peer(connection).ip().to_string()).unwrap_or_default();
    let view = srpt_login {
        i_port_id: request.initiator.0,
        t_port_id: request.target.0,
        multi_channel: c_int::from(request.multi_channel()),
        address: src_addr.unwrap_or(&own).as_ptr(),
    };
    // SAFETY: the program's function with its own context; the view is valid
    // during the call.
    match unsafe { admit(device.program.context, &view) } {
        0 => Ok(()),
        number => Err(RejectReason::from_number(number)),
    }
}

/// Makes the channel of a login and accepts. An error says whether the
/// connection manager has been asked to accept, and so has rejected.
fn begin(
    device: &Arc<srpt_device>,
    connection: ForeignId,
    login: LoginRequest,
    initiator_depth: u8,
) -> std::result::Result<(), (Error, bool)> {
    let device = Arc::clone(device);
    let before = |error| (error, false);
    let peer = peer(connection);
    let mut channel = srpt_rdma_ch::new(device, connection, login, peer).map_err(before)?;
    channel.create().map_err(before)?;
    let settings = &channel.device.settings;
    let response = LoginResponse {
        credits: settings.credits.into(),
        tag: login.tag,
        to_target: settings.max_iu(),
        to_initiator: login.iu_length,
        others: channel.others,
        immediate: login::immediate(&login, settings).most > 0,
    };
    connection
        .accept(&response.encode(), initiator_depth)
        .map_err(|error| (error, true))?;
    let channel = Box::into_raw(channel);
    // SAFETY: the identifier is alive, and the program knows neither it nor the
    // channel yet.
    unsafe {
        adopt_contexts(channel);
        (*connection.as_pointer()).context = channel.cast();
    }
    Ok(())
}

/// The address of the peer; the unspecified one if it is not an IP address.
fn peer(connection: ForeignId) -> SocketAddr {
    // SAFETY: the identifier is alive; one member is copied.
    let storage = unsafe { (&raw const (*connection.as_pointer()).route.addr.dst_storage).read() };
    SockAddr::from_storage(&storage)
        .and_then(|addr| addr.to_socket_addr())
        .unwrap_or(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0))
}

/// The connection is established: commands that came early are handled. What
/// srpt_cm_handler calls; ch may be NULL.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_cm_rtu_recv(ch: *mut srpt_rdma_ch) {
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { channel(ch) }
        .and_then(|ch| ch.with(|channel, _| cm_event::handle(channel, RDMA_CM_EVENT_ESTABLISHED)));
    respond(result);
}
