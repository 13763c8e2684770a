//! Connections: connect, accept, establish, reject, disconnect, notify.

use std::mem;
use std::sync::Arc;

use crate::abi::{
    RDMA_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED, RDMA_MAX_INIT_DEPTH, RDMA_MAX_RESP_RES, RDMA_PS_TCP,
    rdma_conn_param,
};
use crate::error::{Error, Result};
use crate::kernel::command::submit;
use crate::kernel::ucma::{Accept, ConnParam, Connect, Disconnect, Notify, Reject};
use crate::verbs::bindings::IBV_EVENT_PATH_MIG;

use super::address::Local;
use super::device::Device;
use super::id::Id;
use super::sync::{self, Step};
use super::transition;

/// Most private data that the length member of a command can express.
const MAX_PRIVATE_DATA: usize = u8::MAX as usize;

/// Parameters that a program gave for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    /// Data for the peer's program.
    pub private_data: &'a [u8],
    /// Incoming RDMA reads and atomics at once.
    pub responder_resources: u8,
    /// Outgoing RDMA reads and atomics at once.
    pub initiator_depth: u8,
    /// Hardware flow control.
    pub flow_control: u8,
    /// Retries after a lost packet.
    pub retry_count: u8,
    /// Retries after "receiver not ready".
    pub rnr_retry_count: u8,
    /// The program's own queue pair uses a shared receive queue.
    pub srq: u8,
    /// Number of the program's own queue pair.
    pub qp_num: u32,
}

impl Param<'_> {
    /// Reads the C structure; null is `None`.
    ///
    /// # Safety
    /// `raw` is null or points to a structure whose private data is readable
    /// for as long as the result lives.
    pub unsafe fn from_raw(raw: *const rdma_conn_param) -> Option<Self> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: the caller vouches for the pointer.
        let raw = unsafe { raw.read() };
        let length = usize::from(raw.private_data_len);
        let private_data: &[u8] = if raw.private_data.is_null() || length == 0 {
            &[]
        } else {
            // SAFETY: the caller vouches for the private data.
            unsafe { std::slice::from_raw_parts(raw.private_data.cast(), length) }
        };
        Some(Self {
            private_data,
            responder_resources: raw.responder_resources,
            initiator_depth: raw.initiator_depth,
            flow_control: raw.flow_control,
            retry_count: raw.retry_count,
            rnr_retry_count: raw.rnr_retry_count,
            srq: raw.srq,
            qp_num: raw.qp_num,
        })
    }
}

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The program does not want it.
    Consumer,
    /// The program does not support the peer's vendor option.
    VendorOption,
}

impl Reason {
    fn number(self) -> u8 {
        match self {
            // The kernel puts its "consumer defined" in place of zero.
            Self::Consumer => 0,
            Self::VendorOption => RDMA_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED as u8,
        }
    }
}

/// Incoming and outgoing RDMA reads and atomics at once.
struct Depths {
    responder_resources: u8,
    initiator_depth: u8,
}

impl Depths {
    /// What the program asked for, or `default` where it left the choice to
    /// the library.
    fn choose(param: Option<&Param<'_>>, default: Self) -> Self {
        let pick = |asked: Option<u8>, library_choice: u8, default: u8| match asked {
            Some(value) if value != library_choice => value,
            _ => default,
        };
        Self {
            responder_resources: pick(
                param.map(|param| param.responder_resources),
                RDMA_MAX_RESP_RES,
                default.responder_resources,
            ),
            initiator_depth: pick(
                param.map(|param| param.initiator_depth),
                RDMA_MAX_INIT_DEPTH,
                default.initiator_depth,
            ),
        }
    }

    fn most_of(device: &Device) -> Self {
        Self {
            responder_resources: device.max_responder_resources(),
            initiator_depth: device.max_initiator_depth(),
        }
    }
}

/// Checks what a program gave to connect or accept, and returns the device.
fn validate(id: &Id, param: Option<&Param<'_>>) -> Result<Arc<Device>> {
    let device = id.require_device()?;
    if id.ps() != RDMA_PS_TCP {
        return Ok(device);
    }
    let Some(param) = param else {
        if id.qp().is_null() {
            return Err(Error::invalid("connect with neither parameters nor QP"));
        }
        return Ok(device);
    };
    let above = |asked: u8, choice: u8, most: u8| asked != choice && asked > most;
    if above(
        param.responder_resources,
        RDMA_MAX_RESP_RES,
        device.max_responder_resources(),
    ) {
        return Err(Error::invalid(
            "more responder resources than the device has",
        ));
    }
    if above(
        param.initiator_depth,
        RDMA_MAX_INIT_DEPTH,
        device.max_initiator_depth(),
    ) {
        return Err(Error::invalid("more initiator depth than the device has"));
    }
    Ok(device)
}

/// Builds the kernel's parameters and remembers the agreed depths.
fn kernel_param(
    id: &Id,
    param: Option<&Param<'_>>,
    depths: &Depths,
    prefix: &[u8],
) -> Result<ConnParam> {
    let mut conn = ConnParam::new();
    let data = param.map_or(&[][..], |param| param.private_data);
    if prefix.len().saturating_add(data.len()) > MAX_PRIVATE_DATA {
        return Err(Error::invalid("more than 255 bytes of private data in all"));
    }
    conn.set_private_data([prefix, data])?;
    conn.responder_resources = depths.responder_resources;
    conn.initiator_depth = depths.initiator_depth;
    conn.flow_control = param.map_or(0, |param| param.flow_control);
    conn.retry_count = param.map_or(7, |param| param.retry_count);
    conn.rnr_retry_count = param.map_or(7, |param| param.rnr_retry_count);
    conn.valid = 1;

    let _guard = id.lock_qp();
    let qp = id.qp();
    if qp.is_null() {
        conn.qp_num = param.map_or(0, |param| param.qp_num);
        conn.srq = param.map_or(0, |param| param.srq);
    } else {
        // SAFETY: the QP cannot be destroyed through the library while its
        // lock is held; its public members are read.
        let (number, srq) = unsafe { ((*qp).qp_num, (*qp).srq) };
        conn.qp_num = number;
        conn.srq = u8::from(!srq.is_null());
    }
    let mut state = id.state();
    state.responder_resources = depths.responder_resources;
    state.initiator_depth = depths.initiator_depth;
    Ok(conn)
}

/// Says why private data that the kernel refused may be the cause.
fn explain(id: &Id, error: &Error, conn: &ConnParam) {
    log::error!(
        "{id}: {error}; private data: {} bytes (limits over IP: connect 56, accept 196, \
         datagram connect 180, datagram accept 136)",
        conn.private_data().len()
    );
}

/// Gives the command from which on the kernel tells how the connection ends, by
/// an event. It may come before the command returns.
fn begin(id: &Id, command: impl FnOnce() -> Result<()>) -> Result<()> {
    let expect = |due| std::mem::replace(&mut id.state().end_due, due);
    let before = expect(!id.is_datagram());
    command().inspect_err(|_| {
        expect(before);
    })
}

/// Asks the peer for a connection. Ends with `ESTABLISHED`,
/// `CONNECT_RESPONSE`, `REJECTED`, `UNREACHABLE` or `CONNECT_ERROR`.
///
/// # Errors
/// `EINVAL` before the route is resolved, with neither parameters nor queue
/// pair, above a limit of the device, or with too much private data; in
/// synchronous mode `ECONNREFUSED` or the event's errno.
pub fn connect(id: &Arc<Id>, param: Option<&Param<'_>>) -> Result<()> {
    let device = validate(id, param)?;
    let depths = Depths::choose(param, Depths::most_of(&device));
    let prefix = mem::take(&mut id.state().connect_data);
    let asked = request(id, param, &depths, &prefix);
    asked.inspect_err(|_| id.state().connect_data = prefix)?;
    log::debug!(
        "{id}: connects from {} to {}",
        Local(id),
        id.dst_addr()
            .map_or_else(String::new, |addr| addr.to_string())
    );
    sync::complete(id, Step::Connection)
}

/// Hands the request for a connection to the kernel.
fn request(id: &Id, param: Option<&Param<'_>>, depths: &Depths, prefix: &[u8]) -> Result<()> {
    let conn = kernel_param(id, param, depths, prefix)?;
    let ece = id.state().ece.for_request();
    let command = Connect::new(id.handle(), &conn, ece);
    begin(id, || submit(id.descriptor()?, command)).inspect_err(|error| explain(id, error, &conn))
}

/// Accepts a connection request. The queue pair, if the identifier has one,
/// is made ready to send and receive first.
///
/// # Errors
/// `EINVAL` for an identifier without a request, with neither parameters nor
/// queue pair, or above a limit of the device. If the queue pair cannot be
/// moved it is put in error and the program may still reject. If the kernel
/// refuses, the peer has been rejected.
pub fn accept(id: &Arc<Id>, param: Option<&Param<'_>>) -> Result<()> {
    let device = validate(id, param)?;
    // In every port space: an answer must name a queue pair.
    if param.is_none() && id.qp().is_null() {
        return Err(Error::invalid("accept with neither parameters nor QP"));
    }
    let depths = {
        let state = id.state();
        let most = Depths::most_of(&device);
        Depths::choose(
            param,
            Depths {
                responder_resources: state.responder_resources.min(most.responder_resources),
                initiator_depth: state.initiator_depth.min(most.initiator_depth),
            },
        )
    };
    let conn = kernel_param(id, param, &depths, &[])?;
    if !id.is_datagram() {
        let _guard = id.lock_qp();
        if !id.qp().is_null() {
            transition::connect_passive(id).inspect_err(|error| {
                log::error!("{id}: cannot accept: {error}");
                transition::to_error(id);
            })?;
        }
    }
    let ece = id.state().ece.for_reply();
    let command = Accept::new(id.handle(), id.uid(), &conn, ece);
    if let Err(error) = begin(id, || submit(id.descriptor()?, command)) {
        explain(id, &error, &conn);
        let _guard = id.lock_qp();
        transition::to_error(id);
        return Err(error);
    }
    log::debug!("{id}: accepts on {}", Local(id));
    if id.is_datagram() {
        if id.is_synchronous() {
            id.release_event();
        }
        return Ok(());
    }
    sync::complete(id, Step::Connection)
}

/// Completes a connection on the active side after the peer's response: moves
/// the queue pair and sends the final message. The caller holds the lock of
/// the queue pair.
///
/// # Errors
/// What libibverbs or the kernel says; the queue pair is then in error.
pub(super) fn complete(id: &Id) -> Result<()> {
    let result = transition::connect_active(id).and_then(|()| {
        submit(id.descriptor()?, Accept::established(id.handle()))?;
        Ok(())
    });
    result.inspect_err(|_| transition::to_error(id))
}

/// Completes a connection on the active side for a program that manages its
/// own queue pair, after `CONNECT_RESPONSE`.
///
/// # Errors
/// `EINVAL` if the identifier has a queue pair or there is no response.
pub fn establish(id: &Id) -> Result<()> {
    if !id.qp().is_null() {
        return Err(Error::invalid("establish an identifier that has a QP"));
    }
    begin(id, || {
        submit(id.descriptor()?, Accept::established(id.handle()))
    })
}

/// Rejects a connection request, or a response on the active side.
///
/// # Errors
/// `EINVAL` if there is nothing to reject or `data` is longer than the
/// message carries (148 bytes, datagrams 136).
pub fn reject(id: &Id, data: &[u8], reason: Reason) -> Result<()> {
    submit(
        id.descriptor()?,
        Reject::new(id.handle(), data, reason.number())?,
    )?;
    log::debug!("{id}: rejects, {} bytes of private data", data.len());
    Ok(())
}

/// Ends a connection. The queue pair is put in error first (iWARP: drained).
/// Synchronous mode waits for the end of it, if there is one to come: a request
/// that was refused has had its end.
///
/// # Errors
/// `EINVAL` for an identifier without device or connection, else what
/// libibverbs says of the queue pair.
pub fn disconnect(id: &Arc<Id>) -> Result<()> {
    id.require_device()?;
    {
        let _guard = id.lock_qp();
        transition::to_drained(id)?;
    }
    submit(id.descriptor()?, Disconnect::new(id.handle()))?;
    log::debug!("{id}: disconnects");
    if !id.state().end_due {
        return Ok(());
    }
    sync::complete(id, Step::Disconnection)
}

/// Has the kernel tell the peer that the connection ends, for a caller that is about
/// to destroy the identifier: until then the message is on its way, for which
/// destroying would wait. Leaves the queue pair as it is, and waits for nothing.
pub fn announce_end(id: &Id) {
    let told = id
        .descriptor()
        .and_then(|fd| submit(fd, Disconnect::new(id.handle())));
    if let Err(error) = told {
        // The kernel tells the peer when the identifier is destroyed, if there is
        // anything to tell.
        log::debug!("{id}: {error}");
    }
}

/// Tells the kernel of an asynchronous event of the queue pair.
///
/// # Errors
/// `EISCONN` if the connection is established already, `EINVAL` for an event
/// or state that the kernel does not handle, and for a migrated path: nothing
/// here gives a connection an alternate one, and the kernel, which does not
/// look, would send to nowhere from then on.
pub fn notify(id: &Id, event: u32) -> Result<()> {
    if event == IBV_EVENT_PATH_MIG {
        return Err(Error::invalid(
            "migrate a connection without alternate path",
        ));
    }
    submit(id.descriptor()?, Notify::new(id.handle(), event))?;
    Ok(())
}
