//! InfiniBand addresses: made from numeric GIDs, and from the route that
//! ibacm found for IP addresses.

use std::ffi::c_int;

use crate::abi::{AF_IB, RDMA_IB_IP_PORT_MASK, RDMA_IB_IP_PS_MASK};
use crate::kernel::addr::{AF_INET, AF_INET6, Gid, SockAddr};

use super::entry::Entry;

/// Partition key of a full member of the default partition.
pub(super) const DEFAULT_PKEY: u16 = 0xFFFF;
/// Length of the header that the kernel puts before the private data of
/// identifiers with IP addresses: version, IP version, port, source,
/// destination (InfiniBand specification, annex A11).
const IP_HEADER_LEN: usize = 36;

/// Service identifier of a port in a port space.
fn service_id(port_space: c_int, port: u16) -> u64 {
    u64::from(port_space as u32) << 16 | u64::from(port)
}

/// The bits of a service identifier that are set.
fn service_mask(port_space: c_int, port: u16) -> u64 {
    let space = if port_space == 0 {
        0
    } else {
        RDMA_IB_IP_PS_MASK
    };
    let port = if port == 0 { 0 } else { RDMA_IB_IP_PORT_MASK };
    space | port
}

/// The InfiniBand address whose GID was written like an IPv6 address.
pub fn from_ipv6(address: &SockAddr, port_space: c_int) -> Option<SockAddr> {
    if address.family() != AF_INET6 {
        return None;
    }
    let port = address.port();
    Some(SockAddr::ib(
        DEFAULT_PKEY,
        0,
        address.gid(),
        service_id(port_space, port),
        service_mask(port_space, port),
    ))
}

/// The entry that reaches the destination of `ip` by the route found for it,
/// without the kernel's translating addresses again. `None` without a route,
/// and for what is an InfiniBand entry already.
pub fn entry(ip: &Entry) -> Option<Entry> {
    let dst = ip.dst.as_ref()?;
    let path = ip.paths.first()?;
    if c_int::from(dst.family()) == AF_IB {
        return None;
    }
    let record = path.to_verbs();
    let address = |gid: Gid, port: u16| {
        SockAddr::ib(
            u16::from_be(record.pkey),
            u32::from_be(record.flow_label),
            gid,
            service_id(ip.port_space, port),
            service_mask(ip.port_space, port),
        )
    };
    Some(Entry {
        family: AF_IB,
        src: Some(address(path.sgid(), ip.src.map_or(0, |src| src.port()))),
        dst: Some(address(path.dgid(), dst.port())),
        connect: ip_header(ip.src.as_ref(), dst).to_vec(),
        ..ip.clone()
    })
}

/// The header that the kernel would put before the private data.
fn ip_header(src: Option<&SockAddr>, dst: &SockAddr) -> [u8; IP_HEADER_LEN] {
    let mut header = [0; IP_HEADER_LEN];
    let (start, addresses) = header.split_at_mut(4);
    if let Some(version) = start.get_mut(1) {
        *version = if dst.family() == AF_INET {
            4 << 4
        } else {
            6 << 4
        };
    }
    let (source, destination) = addresses.split_at_mut(16);
    source.copy_from_slice(&src.map_or([0; 16], in_header));
    destination.copy_from_slice(&in_header(dst));
    header
}

/// An address in 16 bytes; IPv4 in the last four.
fn in_header(address: &SockAddr) -> [u8; 16] {
    let mut field = address.gid();
    if address.family() == AF_INET {
        // Not the mapped form that is used as a GID.
        field.iter_mut().take(12).for_each(|byte| *byte = 0);
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::plain::Plain;
    use crate::kernel::uverbs::PathData;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_mask_covers_what_is_set() {
        assert_eq!(service_mask(0, 0), 0);
        assert_eq!(service_mask(0x106, 0), RDMA_IB_IP_PS_MASK);
        assert_eq!(service_mask(0, 5), RDMA_IB_IP_PORT_MASK);
        assert_eq!(service_mask(0x106, 5), u64::MAX);
    }

    #[test]
    fn only_ipv6_text_is_a_gid() {
        let v4 = SockAddr::v4(Ipv4Addr::LOCALHOST, 1);
        assert!(from_ipv6(&v4, 0x106).is_none());
        let v6 = SockAddr::v6(Ipv6Addr::LOCALHOST, 1, 0);
        let ib = from_ipv6(&v6, 0x106);
        assert_eq!(ib.map(|ib| ib.gid()), Some(Ipv6Addr::LOCALHOST.octets()));
        assert_eq!(ib.map(|ib| ib.port()), Some(1));
    }

    #[test]
    fn a_route_gives_an_infiniband_entry() {
        let mut bytes = [0u8; 72];
        bytes[16..32].copy_from_slice(&[0xDD; 16]);
        bytes[32..48].copy_from_slice(&[0x55; 16]);
        bytes[52..56].copy_from_slice(&[0, 0, 7, 64]);
        bytes[58..60].copy_from_slice(&[0x80, 0x01]);
        let ip = Entry {
            family: libc::AF_INET,
            port_space: 0x106,
            src: Some(SockAddr::v4(Ipv4Addr::new(10, 0, 0, 1), 0)),
            dst: Some(SockAddr::v4(Ipv4Addr::new(10, 0, 0, 2), 7174)),
            paths: vec![PathData::from_prefix(&bytes)],
            ..Entry::default()
        };
        let ib = entry(&ip).unwrap_or_else(|| panic!("no entry"));
        assert_eq!(ib.family, AF_IB);
        let dst = ib.dst.unwrap_or_else(|| panic!("no destination"));
        assert_eq!(dst.gid(), [0xDD; 16]);
        assert_eq!(dst.port(), 7174);
        let fields = dst.ib_fields().unwrap_or_else(|| panic!("not InfiniBand"));
        assert_eq!((fields.pkey, fields.flow_label), (0x8001, 7));
        assert_eq!(ib.src.map(|src| src.gid()), Some([0x55; 16]));
        let mut header = [0u8; 36];
        header[1] = 0x40;
        header[16..20].copy_from_slice(&[10, 0, 0, 1]);
        header[32..36].copy_from_slice(&[10, 0, 0, 2]);
        assert_eq!(ib.connect, header);
        // Nothing is made of an entry without a route.
        assert!(
            entry(&Entry {
                paths: vec![],
                ..ip
            })
            .is_none()
        );
    }
}
