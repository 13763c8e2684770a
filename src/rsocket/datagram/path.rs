//! From an identifier whose route is resolved to the address handle that
//! reaches its destination.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::cm::device::{Device, LinkLayer};
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::verbs::bindings::{
    ibv_ah, ibv_ah_attr, ibv_create_ah, ibv_destroy_ah, ibv_gid, ibv_port_attr, ibv_query_gid,
    ibv_sa_path_rec,
};
use crate::verbs::{dispatch, failure};

/// Bytes of the smallest maximum transfer unit, of number 1; each further
/// number doubles it.
const SMALLEST_MTU: usize = 256;

/// An address handle, destroyed when dropped.
#[derive(Debug)]
pub struct Handle {
    ah: *mut ibv_ah,
    /// Keeps the protection domain.
    _device: Arc<Device>,
}

// SAFETY: libibverbs' objects may be used from any thread; it does not change.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Handle {
    /// The handle that reaches the destination of `id`, whose route is
    /// resolved, in the protection domain of its device.
    ///
    /// # Errors
    /// `EHOSTUNREACH` without a path, `EADDRNOTAVAIL` if the port lacks the
    /// path's source GID, else what libibverbs says.
    pub fn new(id: &Id) -> Result<Self> {
        let device = id.require_device()?;
        let path = id
            .state()
            .paths
            .first()
            .copied()
            .ok_or(Error::new(libc::EHOSTUNREACH, "find a path to the peer"))?;
        let port = id.port_num();
        let mut attr = attributes(&path, port, device.link_layer(port));
        let port_attr = query_port(&device, port)?;
        attr.src_path_bits = path_bits(&path, &port_attr);
        if attr.is_global != 0 {
            attr.grh.sgid_index = gid_index(&device, port, &port_attr, &path.sgid)?;
        }
        // SAFETY: the device keeps its domain; the attributes are ours.
        let ah = unsafe { ibv_create_ah(device.pd()?, &mut attr) };
        if ah.is_null() {
            return Err(Error::last_os("create an address handle"));
        }
        Ok(Self {
            ah,
            _device: device,
        })
    }

    /// The handle, which lives as long as this.
    pub fn as_pointer(&self) -> *mut ibv_ah {
        self.ah
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created in `new`; no work request uses it any more.
        let status = unsafe { ibv_destroy_ah(self.ah) };
        if status != 0 {
            log::warn!("{}", failure(status, "destroy an address handle"));
        }
    }
}

/// What of the attributes the path alone decides. A global route is a must on
/// Ethernet, and elsewhere for paths over routers.
fn attributes(path: &ibv_sa_path_rec, port: u8, layer: LinkLayer) -> ibv_ah_attr {
    // SAFETY: plain numbers, for which zero is valid.
    let mut attr: ibv_ah_attr = unsafe { MaybeUninit::zeroed().assume_init() };
    attr.dlid = u16::from_be(path.dlid);
    attr.sl = path.sl;
    attr.static_rate = path.rate;
    attr.port_num = port;
    if layer == LinkLayer::Ethernet || path.hop_limit > 1 {
        attr.is_global = 1;
        attr.grh.dgid = path.dgid;
        attr.grh.flow_label = u32::from_be(path.flow_label) & 0xF_FFFF;
        attr.grh.hop_limit = path.hop_limit.max(1);
        attr.grh.traffic_class = path.traffic_class;
    }
    attr
}

fn path_bits(path: &ibv_sa_path_rec, port: &ibv_port_attr) -> u8 {
    let mask = (1u16 << port.lmc.min(7)) - 1;
    (u16::from_be(path.slid) & mask) as u8
}

/// Bytes that a packet on the port may carry.
///
/// # Errors
/// What libibverbs says.
pub fn port_mtu(device: &Device, port: u8) -> Result<usize> {
    let attr = query_port(device, port)?;
    Ok(SMALLEST_MTU << attr.active_mtu.clamp(1, 5).saturating_sub(1))
}

fn query_port(device: &Device, port: u8) -> Result<ibv_port_attr> {
    let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
    // SAFETY: the device keeps its context open; the structure is ours.
    let status = unsafe { dispatch::query_port(device.context(), port, attr.as_mut_ptr()) };
    if status != 0 {
        return Err(failure(status, "query a port"));
    }
    // SAFETY: plain data, zeroed and then filled.
    Ok(unsafe { attr.assume_init() })
}

/// Index of the port's GID. On Ethernet the same GID is listed for each
/// version of RoCE; the routable one is what the kernel's connections use.
fn gid_index(device: &Device, port: u8, attr: &ibv_port_attr, wanted: &ibv_gid) -> Result<u8> {
    let count = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let mut found = None;
    for index in 0..count {
        let mut gid = MaybeUninit::<ibv_gid>::zeroed();
        // SAFETY: the device keeps its context open; the GID is ours.
        let status =
            unsafe { ibv_query_gid(device.context(), port, index.into(), gid.as_mut_ptr()) };
        // SAFETY: every member of the union is 16 plain bytes, zeroed before.
        let same = unsafe { gid.assume_init().raw == wanted.raw };
        if status != 0 || !same {
            continue;
        }
        found = found.or(Some(index));
        if is_routable(device, port, index) {
            return Ok(index);
        }
    }
    found.ok_or(Error::new(
        libc::EADDRNOTAVAIL,
        "find the source GID of a path",
    ))
}

fn is_routable(device: &Device, port: u8, index: u8) -> bool {
    let name = device.name();
    let path = format!("/sys/class/infiniband/{name}/ports/{port}/gid_attrs/types/{index}");
    std::fs::read_to_string(path).is_ok_and(|kind| kind.trim() == "RoCE v2")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(hop_limit: u8) -> ibv_sa_path_rec {
        // SAFETY: plain numbers, for which zero is valid.
        let mut path: ibv_sa_path_rec = unsafe { MaybeUninit::zeroed().assume_init() };
        path.dlid = 0x1234u16.to_be();
        path.slid = 0x0107u16.to_be();
        path.flow_label = 0x12345u32.to_be();
        path.hop_limit = hop_limit;
        path
    }

    #[test]
    fn routes_are_global_on_ethernet_and_over_routers() {
        let local = attributes(&path(1), 2, LinkLayer::InfiniBand);
        assert_eq!(
            (local.dlid, local.port_num, local.is_global),
            (0x1234, 2, 0)
        );
        let routed = attributes(&path(64), 1, LinkLayer::InfiniBand);
        assert_eq!((routed.is_global, routed.grh.flow_label), (1, 0x12345));
        let ethernet = attributes(&path(0), 1, LinkLayer::Ethernet);
        assert_eq!((ethernet.is_global, ethernet.grh.hop_limit), (1, 1));
    }

    #[test]
    fn path_bits_are_masked_by_the_ports_lmc() {
        // SAFETY: plain numbers, for which zero is valid.
        let mut port: ibv_port_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        assert_eq!(path_bits(&path(1), &port), 0);
        port.lmc = 2;
        assert_eq!(path_bits(&path(1), &port), 3);
    }
}
