//! Addresses beneath IP: the GIDs of an identifier, and where an InfiniBand
//! service is.

use std::sync::Arc;

use crate::cm::addrinfo::{Service, resolve_service};
use crate::cm::device::{LinkLayer, Transport};
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::kernel::command::submit;
use crate::kernel::ucma::QueryGid;
use crate::verbs::bindings::ibv_gid;

/// Local and remote GID of an identifier; zeroes while it is bound to no
/// device, and the device addresses on iWARP.
///
/// # Errors
/// What the kernel says, which is asked on iWARP only.
pub fn gids(id: &Id) -> Result<(ibv_gid, ibv_gid)> {
    match id.device() {
        None => Ok((ibv_gid { raw: [0; 16] }, ibv_gid { raw: [0; 16] })),
        Some(device) if device.transport() == Transport::InfiniBand => Ok((id.sgid(), id.dgid())),
        Some(_) => {
            let reply = submit(id.descriptor()?, QueryGid::new(id.handle()))?;
            Ok((reply.sgid(), reply.dgid()))
        }
    }
}

/// Asks the subnet administrator where `service` is; the first answer becomes
/// the identifier's destination. Ends with `ADDRINFO_RESOLVED` or
/// `ADDRINFO_ERROR`.
///
/// # Errors
/// `EINVAL` for an identifier that is bound to no device, `EOPNOTSUPP` for one
/// that is not on InfiniBand, else as [`resolve_service`].
pub fn resolve_ib_service(id: &Arc<Id>, service: Service<'_>) -> Result<()> {
    if id.require_device()?.link_layer(id.port_num()) != LinkLayer::InfiniBand {
        return Err(Error::new(
            libc::EOPNOTSUPP,
            "look up an InfiniBand service on another network",
        ));
    }
    resolve_service(id, service)
}
