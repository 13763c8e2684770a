//! What datagram rsockets say to each other: the header before data on queue
//! pairs, and the one before packets on the UDP side channel.
//!
//! Pure encoding and decoding. Addresses here are IPv4 or IPv6, never IPv4
//! mapped into IPv6; [`plain`] makes such of any.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most bytes of a header.
pub const MAX_LEN: usize = 28;

const V4_DIRECT: usize = 8;
const V6_DIRECT: usize = 24;
const V4_SIDE: usize = 16;
const V6_SIDE: usize = 28;
const TAG: u32 = 0x5555_5555;
const OP_DATA: u8 = 0;
const OP_CONTROL: u8 = 7;

/// A header as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    bytes: [u8; MAX_LEN],
    length: usize,
}

impl Header {
    fn of<const N: usize>(fields: [&[u8]; N]) -> Self {
        let mut header = Self::default();
        for field in fields {
            let places = header.bytes.iter_mut().skip(header.length);
            for (to, from) in places.zip(field) {
                *to = *from;
            }
            header.length = header.length.saturating_add(field.len());
        }
        header
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The address with IPv4 that was mapped into IPv6 taken out, and without
/// flow information, which does not tell peers apart.
pub fn plain(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(_) => addr,
        SocketAddr::V6(mut v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), v6.port()),
            None => {
                v6.set_flowinfo(0);
                v6.into()
            }
        },
    }
}

/// Bytes of the header before data on queue pairs, from an address like
/// `source`.
pub fn direct_len(source: SocketAddr) -> usize {
    if source.is_ipv4() {
        V4_DIRECT
    } else {
        V6_DIRECT
    }
}

/// The header before data of `source` on queue pairs.
pub fn direct(source: SocketAddr) -> Header {
    let port = source.port().to_be_bytes();
    match source.ip() {
        IpAddr::V4(ip) => Header::of([&[4, V4_DIRECT as u8], &port, &ip.octets()]),
        IpAddr::V6(ip) => Header::of([&[6, V6_DIRECT as u8], &port, &[0; 4], &ip.octets()]),
    }
}

/// Reads the header before data on a queue pair: who sent the data, and where
/// it begins. `None` if it is malformed.
pub fn read_direct(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let [version, length] = *bytes.first_chunk()?;
    let port = u16::from_be_bytes(take(bytes, 2)?);
    let ip: IpAddr = match (version, usize::from(length)) {
        (4, V4_DIRECT) => Ipv4Addr::from(take::<4>(bytes, 4)?).into(),
        (6, V6_DIRECT) => Ipv6Addr::from(take::<16>(bytes, 8)?).into(),
        _ => return None,
    };
    Some((plain(SocketAddr::new(ip, port)), usize::from(length)))
}

/// What a packet on the side channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It carries data.
    Data,
    /// It answers a packet with data.
    Control,
}

/// A packet's header on the side channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// What the packet is for.
    pub purpose: Purpose,
    /// Number of the sender's queue pair.
    pub qpn: u32,
    /// Bytes of the header.
    pub length: usize,
}

/// The header of a packet from `source`, whose queue pair is `qpn`, on the
/// side channel.
pub fn side(purpose: Purpose, source: SocketAddr, qpn: u32) -> Header {
    let op = match purpose {
        Purpose::Data => OP_DATA,
        Purpose::Control => OP_CONTROL,
    };
    let (tag, qpn) = (TAG.to_be_bytes(), qpn.to_be_bytes());
    match source.ip() {
        IpAddr::V4(ip) => Header::of([&tag, &[4, op, V4_SIDE as u8, 0], &qpn, &ip.octets()]),
        IpAddr::V6(ip) => Header::of([&tag, &[6, op, V6_SIDE as u8, 0], &qpn, &ip.octets()]),
    }
}

/// Reads the header of a packet that came from `source` on the side channel.
/// `None` if it is malformed or of no known purpose.
pub fn read_side(bytes: &[u8], source: SocketAddr) -> Option<Side> {
    let (expected, length) = if source.is_ipv4() {
        (4, V4_SIDE)
    } else {
        (6, V6_SIDE)
    };
    let [version, op, announced, _] = take(bytes, 4)?;
    let well_formed = u32::from_be_bytes(take(bytes, 0)?) == TAG
        && version == expected
        && usize::from(announced) == length
        && bytes.len() >= length;
    let purpose = match op {
        OP_DATA => Purpose::Data,
        OP_CONTROL => Purpose::Control,
        _ => return None,
    };
    well_formed.then_some(Side {
        purpose,
        qpn: u32::from_be_bytes(take(bytes, 8)?) & 0x00FF_FFFF,
        length,
    })
}

fn take<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive(addr in any::<SocketAddr>(), qpn in 0u32..1 << 24, control in any::<bool>()) {
            let source = plain(addr);
            let (found, length) = read_direct(direct(source).as_bytes()).unwrap();
            prop_assert_eq!((found.ip(), found.port()), (source.ip(), source.port()));
            prop_assert_eq!(length, direct_len(source));
            let purpose = if control { Purpose::Control } else { Purpose::Data };
            let header = side(purpose, source, qpn);
            let length = header.as_bytes().len();
            prop_assert_eq!(
                read_side(header.as_bytes(), source),
                Some(Side { purpose, qpn, length })
            );
            for cut in 0..length {
                prop_assert_eq!(read_side(&header.as_bytes()[..cut], source), None);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), addr in any::<SocketAddr>()) {
            if let Some((_, length)) = read_direct(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Some(found) = read_side(&bytes, plain(addr)) {
                prop_assert!(found.length <= bytes.len());
            }
        }
    }

    #[test]
    fn the_layout_is_that_of_the_specification() {
        let source = "10.1.2.3:4660".parse().unwrap();
        assert_eq!(direct(source).as_bytes(), [4, 8, 0x12, 0x34, 10, 1, 2, 3]);
        assert_eq!(
            side(Purpose::Control, source, 0x112233).as_bytes(),
            [
                0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x11, 0x22, 0x33, 10, 1, 2, 3
            ]
        );
        let source: SocketAddr = "[fe80::1]:1".parse().unwrap();
        assert_eq!(direct(source).as_bytes()[..2], [6, 24]);
        assert_eq!(side(Purpose::Data, source, 1).as_bytes().len(), 28);
    }

    #[test]
    fn a_version_6_header_as_short_as_version_4_is_refused() {
        let mut bytes = *b"UUUU\x06\x00\x10\x00\x00\x00\x00\x01\x0a\x01\x02\x03";
        let source = "[fe80::1]:1".parse().unwrap();
        assert_eq!(read_side(&bytes, source), None);
        bytes[6] = 28;
        assert_eq!(read_side(&bytes, source), None);
        assert_eq!(read_direct(&[6, 8, 0, 1, 0, 0, 0, 0]), None);
        assert_eq!(read_direct(&[6, 24, 0, 1, 0, 0, 0, 0]), None);
    }

    #[test]
    fn mapped_addresses_are_taken_out() {
        let mapped = "[::ffff:10.0.0.1]:9".parse().unwrap();
        assert_eq!(plain(mapped), "10.0.0.1:9".parse().unwrap());
    }
}
