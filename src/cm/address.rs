//! Addresses and routes: bind, listen, resolve.
//!
//! IP addresses go to the kernel by its IP commands, which every kernel has;
//! InfiniBand addresses (`AF_IB`) need the extended ones.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::kernel::command::submit;
use crate::kernel::ucma::{Bind, BindIp, Listen, ResolveAddr, ResolveIp, ResolveRoute};

use super::defaults::Defaults;
use super::id::Id;
use super::{
    acm, option, query,
    sync::{self, Step},
};

/// Binds to a local address, and to its device unless it is a wildcard or
/// loopback address.
///
/// # Errors
/// What the kernel says: `EADDRNOTAVAIL`, `EADDRINUSE`, `EACCES`, `ENODEV`,
/// `EINVAL` if bound already. A failure to read the result back is returned
/// although the binding stays.
pub fn bind(id: &Arc<Id>, addr: &SockAddr) -> Result<()> {
    let fd = id.descriptor()?;
    let bound = if addr.is_ip() {
        BindIp::new(id.handle(), addr).and_then(|command| submit(fd, command))
    } else {
        submit(fd, Bind::new(id.handle(), addr)).inspect(|()| id.set_src_addr(addr))
    };
    bound.inspect_err(|error| log::info!("{id}: no binding to {addr}: {error}"))?;
    query::after_bind(id)?;
    id.state().bound = true;
    log::debug!("{id}: bound to {}", Local(id));
    Ok(())
}

/// Accepts connection requests. An unbound identifier is bound to the
/// wildcard address and a free port first, by the kernel.
///
/// # Errors
/// What the kernel says: `EINVAL` if it listens already, `EADDRINUSE`.
pub fn listen(id: &Arc<Id>, backlog: i32) -> Result<()> {
    submit(id.descriptor()?, Listen::new(id.handle(), backlog))?;
    let known = id.state().bound;
    if !known {
        query::after_bind(id)?;
        id.state().bound = true;
    }
    log::debug!("{id}: listens on {}, backlog {backlog}", Local(id));
    Ok(())
}

/// Finds the device and, if `src` is not given, the local address that reach
/// `dst`. Ends with `ADDR_RESOLVED` or `ADDR_ERROR`.
///
/// # Errors
/// What the kernel says: `ENETUNREACH`, `EINVAL` if resolved already; in
/// synchronous mode also the event's errno.
pub fn resolve_addr(
    id: &Arc<Id>,
    src: Option<&SockAddr>,
    dst: &SockAddr,
    timeout_ms: i32,
) -> Result<()> {
    let timeout_ms = Defaults::get().resolve_timeout(id, timeout_ms);
    let limit = kernel_timeout(timeout_ms);
    // The event may overtake the return of the command, and its handler
    // writes the same member, so it is written before.
    let before = id.dst_storage();
    id.set_dst_addr(dst);
    let both_ip = dst.is_ip() && src.is_none_or(SockAddr::is_ip);
    let result = id.descriptor().and_then(|fd| {
        if both_ip {
            submit(fd, ResolveIp::new(id.handle(), src, dst, limit)?)
        } else {
            submit(fd, ResolveAddr::new(id.handle(), src, dst, limit))
        }
    });
    if let Err(error) = result {
        id.set_dst_storage(before);
        log::info!("{id}: no way to {dst}: {error}");
        return Err(error);
    }
    log::debug!("{id}: resolves {dst} within {timeout_ms} ms");
    sync::complete(id, Step::Address)
}

/// Finds the path to the resolved address. Ends with `ROUTE_RESOLVED` or
/// `ROUTE_ERROR`.
///
/// On InfiniBand the ibacm daemon is asked first, where it runs; that may
/// block for its answer.
///
/// # Errors
/// `EINVAL` before the address is resolved or for a timeout of 0; in
/// synchronous mode also the event's errno.
pub fn resolve_route(id: &Arc<Id>, timeout_ms: i32) -> Result<()> {
    id.require_device()
        .map_err(|_| Error::invalid("resolve the route of an unresolved address"))?;
    let answered = acm::route(id).is_some_and(|paths| option::set_ib_path(id, &paths).is_ok());
    if answered {
        log::debug!("{id}: route taken from ibacm");
    } else {
        let timeout_ms = Defaults::get().resolve_timeout(id, timeout_ms);
        submit(
            id.descriptor()?,
            ResolveRoute::new(id.handle(), kernel_timeout(timeout_ms)),
        )?;
        log::debug!("{id}: resolves its route within {timeout_ms} ms");
    }
    sync::complete(id, Step::Route)
}

/// A time limit as the kernel reads it: a negative one is very long.
fn kernel_timeout(timeout_ms: i32) -> u32 {
    timeout_ms.cast_unsigned()
}

/// The local address of an identifier, in a log line.
pub(super) struct Local<'a>(pub &'a Id);

impl std::fmt::Display for Local<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.src_addr() {
            Some(addr) => addr.fmt(f)?,
            None => f.write_str("no address")?,
        }
        match self.0.device() {
            Some(device) => write!(f, " ({} port {})", device.name(), self.0.port_num()),
            None => Ok(()),
        }
    }
}
