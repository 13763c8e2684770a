//! Looking up an InfiniBand service without an identifier: every InfiniBand
//! port is asked in turn, since each may be in another network.

use std::ffi::CStr;
use std::ptr;

use crate::abi::{RDMA_IB_IP_PS_MASK, RDMA_PS_IB};
use crate::error::{Error, Result};
use crate::kernel::addr::{Gid, SockAddr};
use crate::verbs::bindings::{ibv_gid, ibv_query_gid};

use super::entry::List;
use super::failure::LookupError;
use super::hints::Hints;
use super::infiniband::DEFAULT_PKEY;
use super::resolve;
use crate::cm::address;
use crate::cm::device::{self, Device, LinkLayer};
use crate::cm::id::{Id, default_qp_type};
use crate::cm::library;

/// Service identifiers of the port space `RDMA_PS_IB` begin with this.
pub(super) const IB_SERVICES: u64 = (RDMA_PS_IB as u64) << 16;

/// Looks up `service` in all InfiniBand networks; the first that knows it
/// answers. Blocks for up to about two seconds per port.
///
/// # Errors
/// See [`super::lookup`].
pub fn lookup(
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: Option<&Hints>,
) -> std::result::Result<List, LookupError> {
    if node.is_some() || hints.is_some_and(Hints::wants_names) {
        return Err(Error::new(libc::EOPNOTSUPP, "look up a service and a name").into());
    }
    let service = service.ok_or(Error::invalid("look up a service: none given"))?;
    library::ensure_ready()?;
    for device in device::all()? {
        for gid in infiniband_gids(&device) {
            match ask(gid, service, hints) {
                Ok(list) => return Ok(list),
                Err(error) => {
                    log::debug!("{device}: service {}: {error}", service.to_string_lossy())
                }
            }
        }
    }
    Err(Error::new(
        libc::ENOENT,
        "look up a service: no InfiniBand port knows it",
    )
    .into())
}

/// First GID of each InfiniBand port. A port that is down answers the lookup
/// with an error, so its state is not looked at.
fn infiniband_gids(device: &Device) -> impl Iterator<Item = Gid> {
    device
        .ports()
        .filter(|(_, link)| *link == LinkLayer::InfiniBand)
        .filter_map(|(port, _)| {
            let mut gid = ibv_gid { raw: [0; 16] };
            // SAFETY: the context is open, the GID is ours.
            let status = unsafe { ibv_query_gid(device.context(), port, 0, &mut gid) };
            // SAFETY: every member of the union is 16 plain bytes.
            (status == 0).then_some(unsafe { gid.raw })
        })
}

fn ask(gid: Gid, service: &CStr, hints: Option<&Hints>) -> Result<List> {
    let id = Id::create_synchronous(ptr::null_mut(), RDMA_PS_IB, default_qp_type(RDMA_PS_IB))?;
    let local = SockAddr::ib(DEFAULT_PKEY, 0, gid, IB_SERVICES, RDMA_IB_IP_PS_MASK);
    let result = address::bind(&id, &local)
        .and_then(|()| resolve::resolve(&id, None, Some(service), hints.cloned()))
        .and_then(|()| resolve::take_result(&id));
    if let Err(error) = id.destroy() {
        log::warn!("look up a service: {error}");
    }
    result
}
