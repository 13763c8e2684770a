//! Reading back what the kernel knows of an identifier: addresses, device,
//! GIDs and paths, and publishing it in the public members.
//!
//! On Ethernet one command tells all. It is not used for InfiniBand
//! addresses, which it cannot express, and not enough on InfiniBand ports of
//! passive identifiers, whose GIDs it takes from the path of the request.

use std::net::Ipv6Addr;
use std::sync::Arc;

use crate::abi::RDMA_PS_IB;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::command::submit;
use crate::kernel::ucma::{QueryAddr, QueryGid, QueryPath, QueryRoute, RouteReply};
use crate::verbs::bindings::{ibv_gid, ibv_sa_path_rec};

use super::device::{self, LinkLayer, Transport};
use super::id::Id;

/// Partition key that the kernel reports for a loopback address on Ethernet.
const DEFAULT_PKEY: u16 = 0xFFFF;

/// How much is to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Addresses and GIDs, of an identifier of our own.
    Addresses,
    /// Addresses, GIDs and paths, of a connection request.
    Request,
}

/// Publishes the local address, and the device if the address has one.
///
/// # Errors
/// What the kernel says, `ENODEV` if the device cannot be used.
pub fn after_bind(id: &Arc<Id>) -> Result<()> {
    read(id, Scope::Addresses, id.uses_ib_addresses())
}

/// Publishes addresses and device after address resolution.
///
/// # Errors
/// As for [`after_bind`]; `ENODEV` if the kernel names no device.
pub fn after_address(id: &Arc<Id>) -> Result<()> {
    read(id, Scope::Addresses, id.uses_ib_addresses())?;
    match id.device() {
        Some(_) => Ok(()),
        None => Err(Error::new(libc::ENODEV, "no device for the address")),
    }
}

/// Publishes addresses, device and paths of a connection request. `ib` tells
/// that the listener uses InfiniBand addresses.
///
/// # Errors
/// As for [`after_bind`].
pub fn after_request(id: &Arc<Id>, ib: bool) -> Result<()> {
    read(id, Scope::Request, ib)
}

/// Publishes the paths after route resolution. iWARP has none.
///
/// # Errors
/// What the kernel says.
pub fn after_route(id: &Id) -> Result<()> {
    let hidden = id.state().hides_paths;
    if !hidden && id.require_device()?.transport() == Transport::InfiniBand {
        paths(id)?;
    }
    Ok(())
}

/// The paths of an identifier that does not publish them; none before its route is
/// resolved.
pub fn paths_of(id: &Id) -> Vec<ibv_sa_path_rec> {
    let known = id.state().paths.clone();
    if !known.is_empty() {
        return known;
    }
    let reply = id
        .descriptor()
        .and_then(|fd| submit(fd, QueryPath::new(id.handle())));
    reply.map_or_else(|_| Vec::new(), |reply| reply.to_verbs())
}

fn read(id: &Arc<Id>, scope: Scope, ib: bool) -> Result<()> {
    if ib || id.ps() == RDMA_PS_IB {
        return extended(id, scope);
    }
    let reply = submit(id.descriptor()?, QueryRoute::new(id.handle()))?;
    publish_addresses(id, reply.src(), reply.dst());
    if reply.port_num() == 0 {
        return Ok(());
    }
    bind_device(id, reply.node_guid(), reply.ibdev_index(), reply.port_num())?;
    let device = id.require_device()?;
    match (device.transport(), device.link_layer(reply.port_num())) {
        (Transport::InfiniBand, LinkLayer::Ethernet) => {
            publish_gids(id, reply.sgid(), reply.dgid());
            id.set_pkey(ethernet_pkey(&reply));
            if scope == Scope::Request {
                id.set_paths(reply.ethernet_paths());
            }
            Ok(())
        }
        (Transport::InfiniBand, LinkLayer::InfiniBand) if scope == Scope::Addresses => {
            publish_gids(id, reply.sgid(), reply.dgid());
            id.set_pkey(reply.pkey());
            Ok(())
        }
        _ => extended(id, scope),
    }
}

/// The full sequence: addresses, GIDs and, for a request, paths.
fn extended(id: &Arc<Id>, scope: Scope) -> Result<()> {
    let fd = id.descriptor()?;
    let reply = submit(fd, QueryAddr::new(id.handle()))?;
    publish_addresses(id, reply.src(), reply.dst());
    if reply.port_num() != 0 {
        let first = id.device().is_none();
        bind_device(id, reply.node_guid(), reply.ibdev_index(), reply.port_num())?;
        if first {
            id.set_pkey(reply.pkey());
        }
    }
    let infiniband = id
        .device()
        .is_some_and(|device| device.transport() == Transport::InfiniBand);
    if infiniband || scope == Scope::Request {
        let gids = submit(fd, QueryGid::new(id.handle()))?;
        publish_gids(id, gids.sgid(), gids.dgid());
    }
    if scope == Scope::Request {
        paths(id)?;
    }
    Ok(())
}

fn paths(id: &Id) -> Result<()> {
    let reply = submit(id.descriptor()?, QueryPath::new(id.handle()))?;
    id.set_paths(reply.to_verbs());
    Ok(())
}

fn publish_addresses(id: &Id, src: Option<SockAddr>, dst: Option<SockAddr>) {
    if let Some(src) = src {
        id.set_src_addr(&src);
    }
    if let Some(dst) = dst {
        id.set_dst_addr(&dst);
    }
}

fn publish_gids(id: &Id, sgid: ibv_gid, dgid: ibv_gid) {
    id.set_sgid(sgid);
    id.set_dgid(dgid);
    // SAFETY: every member of the union is 16 plain bytes.
    let (local, remote) = unsafe { (Ipv6Addr::from(sgid.raw), Ipv6Addr::from(dgid.raw)) };
    if local.is_unspecified() {
        log::warn!("{id}: its port has no GID for the local address");
    }
    log::debug!("{id}: GID {local}, remote {remote}");
}

/// Binds the identifier to its device, the first time a reply names one.
fn bind_device(id: &Arc<Id>, guid: u64, index: i32, port: u8) -> Result<()> {
    if id.device().is_some() {
        return Ok(());
    }
    let device = device::find(guid, index)?;
    let required = id.state().node_type;
    if required.is_some_and(|required| required != device.node_type()) {
        log::info!("{id}: {device} is of another type than asked for");
        id.start_again();
        return Err(Error::new(
            libc::ENODEV,
            "use a device of another type than asked for",
        ));
    }
    let pd = device.pd()?;
    id.set_verbs(device.context());
    id.set_port_num(port);
    id.set_pd(pd);
    log::debug!("{id}: uses {} port {port}", device.name());
    id.state().device = Some(device);
    Ok(())
}

/// What the kernel's address query reports as partition key on Ethernet.
fn ethernet_pkey(reply: &RouteReply) -> u16 {
    let loopback = |addr: Option<SockAddr>| addr.is_some_and(|addr| addr.is_loopback());
    if loopback(reply.src()) || loopback(reply.dst()) {
        DEFAULT_PKEY
    } else {
        0
    }
}
