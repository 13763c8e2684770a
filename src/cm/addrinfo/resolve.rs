//! Resolution without blocking: its progress is part of an identifier, its
//! end is an event.
//!
//! Services are resolved by the kernel. Names are resolved by libc, on a
//! thread of our own, which then [posts](crate::cm::post) an internal event to
//! the identifier; [`crate::cm::dispatch`] turns that into the event for the
//! program.

use std::ffi::{CStr, CString};
use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::abi::{AF_IB, RAI_SA, RDMA_CM_EVENT_INTERNAL, RDMA_IB_IP_PS_MASK, RDMA_PS_IB};
use crate::error::{Error, Result};
use crate::kernel::addr::{Gid, SockAddr};
use crate::kernel::command::submit;
use crate::kernel::ucma::{ResolveIbService, ServiceRecord, query_ib_service};

use super::entry::{Entry, List};
use super::hints::Hints;
use super::service::IB_SERVICES;
use crate::cm::dispatch::ADDRINFO_DONE;
use crate::cm::id::Id;
use crate::cm::messenger::Message;
use crate::cm::sync::{self, Step};
use crate::cm::{post, query};
use crate::thread;

/// How far the resolution of an identifier's address information is.
#[derive(Debug, Default)]
pub enum Resolution {
    /// None is running, and there is no result.
    #[default]
    Idle,
    /// The kernel looks up a service.
    Service,
    /// A thread resolves names.
    Names,
    /// The result waits to be fetched.
    Resolved(List),
    /// The names could not be resolved; the event that says so is on its way.
    Failed(Error),
}

/// Starts to resolve `node` and `service`, or with `RAI_SA` an InfiniBand
/// service. Ends with `ADDRINFO_RESOLVED` or `ADDRINFO_ERROR`.
///
/// Does not block in asynchronous mode. In synchronous mode names are resolved
/// on the calling thread.
///
/// # Errors
/// `EBUSY` while a resolution is running or its result has not been fetched;
/// `ENOTSUP` for `RAI_SA` with a node or with `RAI_DNS`; `EINVAL` for `RAI_SA`
/// without a service or on an unbound identifier; `EOPNOTSUPP` for `RAI_SA` on
/// kernels before 6.17; what the kernel says; in synchronous mode also why the
/// lookup failed.
pub fn resolve(
    id: &Arc<Id>,
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<Hints>,
) -> Result<()> {
    let wants_service = hints.as_ref().is_some_and(Hints::wants_service);
    let first = if wants_service {
        Resolution::Service
    } else {
        Resolution::Names
    };
    begin(id, first)?;
    let outcome = if wants_service {
        let names = node.is_some() || hints.as_ref().is_some_and(Hints::wants_names);
        start_service(id, names, service).and_then(|()| sync::complete(id, Step::Addrinfo))
    } else if id.is_synchronous() {
        resolve_names(id, node, service, hints.as_ref())
    } else {
        start_names(id, node, service, hints)
    };
    outcome.inspect_err(|_| forget(id))
}

fn begin(id: &Id, first: Resolution) -> Result<()> {
    let mut state = id.state();
    match state.resolution {
        Resolution::Idle => {
            state.resolution = first;
            Ok(())
        }
        _ => Err(Error::new(libc::EBUSY, "resolve address information twice")),
    }
}

/// An InfiniBand service to look up.
#[derive(Clone, Copy, Debug)]
pub enum Service<'a> {
    /// By its identifier, in host order.
    Number(u64),
    /// By its name, of up to 63 bytes.
    Name(&'a [u8]),
}

impl fmt::Display for Service<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "service {number:#x}"),
            Self::Name(name) => write!(f, "service {}", String::from_utf8_lossy(name)),
        }
    }
}

/// Starts to look up an InfiniBand service. Ends with `ADDRINFO_RESOLVED` or
/// `ADDRINFO_ERROR`.
///
/// # Errors
/// `EBUSY` while a resolution is running or its result has not been fetched,
/// `EINVAL` for an unbound identifier, `EOPNOTSUPP` if its device is not on
/// InfiniBand or the kernel older than 6.17; in synchronous mode also why the
/// lookup failed.
pub fn resolve_service(id: &Arc<Id>, service: Service<'_>) -> Result<()> {
    begin(id, Resolution::Service)?;
    submit_service(id, service)
        .and_then(|()| sync::complete(id, Step::Addrinfo))
        .inspect_err(|_| forget(id))
}

fn start_service(id: &Id, names: bool, service: Option<&CStr>) -> Result<()> {
    if names {
        return Err(Error::new(libc::ENOTSUP, "resolve a service and a name"));
    }
    let service = service.ok_or(Error::invalid("resolve a service: none given"))?;
    match service_number(service) {
        Some(number) => submit_service(id, Service::Number(number)),
        None => submit_service(id, Service::Name(service.to_bytes())),
    }
}

fn submit_service(id: &Id, service: Service<'_>) -> Result<()> {
    id.require_device()?;
    require_support(id)?;
    let command = match service {
        Service::Number(number) => ResolveIbService::by_id(id.handle(), number),
        Service::Name(name) => ResolveIbService::by_name(id.handle(), name)?,
    };
    submit(id.descriptor()?, command)?;
    log::debug!("{id}: resolves {service}");
    Ok(())
}

/// A service given as a number, as C writes numbers: decimal, `0x…`, `0…`.
fn service_number(service: &CStr) -> Option<u64> {
    let text = service.to_str().ok()?;
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // A sign is not a digit, though the standard library takes one.
    let starts_with_digit = digits.starts_with(|first: char| first.is_digit(radix));
    starts_with_digit
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

/// Resolves names on the calling thread.
fn resolve_names(
    id: &Arc<Id>,
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<&Hints>,
) -> Result<()> {
    let list = super::lookup(node, service, hints)?;
    finish(id, Resolution::Resolved(list))?;
    sync::complete(id, Step::Addrinfo)
}

fn start_names(
    id: &Arc<Id>,
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<Hints>,
) -> Result<()> {
    log::debug!("{id}: resolves names");
    let id = Arc::clone(id);
    let node = node.map(CString::from);
    let service = service.map(CString::from);
    thread::spawn("rdmacm-names", move || {
        let found = super::lookup(node.as_deref(), service.as_deref(), hints.as_ref());
        let last = match found {
            Ok(list) => Resolution::Resolved(list),
            Err(error) => {
                log::info!("{id}: {error}");
                Resolution::Failed(error.into())
            }
        };
        if let Err(error) = finish(&id, last) {
            log::error!("{id}: the end of a resolution cannot be reported: {error}");
            forget(&id);
        }
    })
}

/// Stores how the resolution of names ended and queues the event for it.
///
/// The identifier may have been destroyed meanwhile, and its number given to
/// another. Destruction cancels the resolution first, so holding the state
/// makes sure that the number is still ours; the command does not block.
fn finish(id: &Arc<Id>, last: Resolution) -> Result<()> {
    let mut state = id.state();
    if !matches!(state.resolution, Resolution::Names) {
        return Ok(());
    }
    state.resolution = last;
    let done = Message {
        event: RDMA_CM_EVENT_INTERNAL,
        status: 0,
        arg: ADDRINFO_DONE,
    };
    post::post(id, &mut state, done)
}

fn require_support(id: &Id) -> Result<()> {
    if post::has_commands(id)? {
        return Ok(());
    }
    Err(Error::new(
        libc::EOPNOTSUPP,
        "look up a service on a kernel before 6.17",
    ))
}

/// The kernel reported the end of a resolution: the result is made ready to
/// be fetched.
///
/// # Errors
/// Why the resolution failed.
pub fn resolved(id: &Arc<Id>) -> Result<()> {
    match &id.state().resolution {
        Resolution::Resolved(_) => return Ok(()),
        Resolution::Failed(error) => return Err(*error),
        Resolution::Service => {}
        Resolution::Idle | Resolution::Names => {
            return Err(Error::invalid("end a resolution that is not running"));
        }
    }
    let records = query_ib_service(id.descriptor()?, id.handle())?;
    query::after_address(id)?;
    let local = id.src_addr().map(|src| src.gid());
    let entries: Vec<Entry> = records
        .iter()
        .map(|record| service_entry(id.qp_type(), local, record))
        .collect();
    let list = List::build(&entries)?;
    id.state().resolution = Resolution::Resolved(list);
    Ok(())
}

/// The address of a service for identifiers of `qp_type` on the port `local`.
fn service_entry(qp_type: u32, local: Option<Gid>, record: &ServiceRecord) -> Entry {
    let pkey = u16::from_be(record.pkey_be);
    let service = u64::from_be(record.id_be);
    Entry {
        flags: RAI_SA,
        family: AF_IB,
        qp_type: qp_type.cast_signed(),
        port_space: RDMA_PS_IB.cast_signed(),
        src: local.map(|gid| SockAddr::ib(pkey, 0, gid, IB_SERVICES, RDMA_IB_IP_PS_MASK)),
        dst: Some(SockAddr::ib(pkey, 0, record.gid, service, u64::MAX)),
        ..Entry::default()
    }
}

/// Forgets a resolution and its result. No event of it is queued once this
/// has returned; to be called before the identifier's number is given back to
/// the kernel.
pub fn forget(id: &Id) {
    id.state().resolution = Resolution::Idle;
}

/// Takes the result; another resolution may be started then.
///
/// # Errors
/// `ENOENT` if there is none.
pub fn take_result(id: &Id) -> Result<List> {
    let mut state = id.state();
    match mem::take(&mut state.resolution) {
        Resolution::Resolved(list) => Ok(list),
        other => {
            state.resolution = other;
            Err(Error::new(
                libc::ENOENT,
                "fetch address information: there is none",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::plain::Plain;
    use crate::verbs::bindings::IBV_QPT_RC;

    /// A service record as the kernel of Linux 6.17 lays it out.
    #[test]
    fn a_recorded_service_record_becomes_an_infiniband_entry() {
        let mut bytes = [0; 176];
        bytes[..8].copy_from_slice(&[0, 0, 0, 0, 1, 6, 0, 5]);
        bytes[8..24].fill(7);
        bytes[24..26].copy_from_slice(&[0x80, 1]);
        bytes[28..32].fill(0xFF);
        bytes[48..52].copy_from_slice(b"name");
        let record = ServiceRecord::from_prefix(&bytes);
        let entry = service_entry(IBV_QPT_RC, Some([9; 16]), &record);
        let local = SockAddr::ib(0x8001, 0, [9; 16], IB_SERVICES, RDMA_IB_IP_PS_MASK);
        let remote = SockAddr::ib(0x8001, 0, [7; 16], 0x0106_0005, u64::MAX);
        assert_eq!((entry.src, entry.dst), (Some(local), Some(remote)));
        assert_eq!((entry.flags, entry.family), (RAI_SA, AF_IB));
        assert_eq!(remote.port(), 5);
    }

    #[test]
    fn services_are_numbers_as_c_writes_them_or_names() {
        assert_eq!(service_number(c"42"), Some(42));
        assert_eq!(service_number(c"0"), Some(0));
        assert_eq!(service_number(c"0x1060005"), Some(0x0106_0005));
        assert_eq!(service_number(c"010"), Some(8));
        for name in [
            c"",
            c"0x",
            c"+1",
            c"-1",
            c"1a",
            c"nfs",
            c"99999999999999999999",
        ] {
            assert_eq!(service_number(name), None, "{name:?}");
        }
    }
}
