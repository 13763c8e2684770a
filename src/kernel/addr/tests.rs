//! Addresses as C programs and the kernel lay them out, byte by byte.

use proptest::prelude::*;

use super::*;

/// 192.0.2.1:7174, with garbage in the padding.
const V4: [u8; 16] = [2, 0, 0x1C, 0x06, 192, 0, 2, 1, 9, 9, 9, 9, 9, 9, 9, 9];

fn v4() -> SockAddr {
    SockAddr::from_bytes(&V4).unwrap()
}

fn v6(ip: &str, port: u16, scope: u32) -> SockAddr {
    SockAddr::v6(ip.parse().unwrap(), port, scope)
}

fn ib(gid: &str, sid: u64) -> SockAddr {
    let gid: Ipv6Addr = gid.parse().unwrap();
    SockAddr::ib(0xFFFF, 0x12345, gid.octets(), sid, u64::MAX)
}

#[test]
fn recorded_ipv4_layout() {
    let address = v4();
    assert_eq!(
        (address.family(), address.byte_len(), address.port()),
        (AF_INET, 16, 7174)
    );
    assert_eq!(address.port_be().to_ne_bytes(), [0x1C, 0x06]);
    assert_eq!(address, SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7174));
    assert_eq!(address.as_bytes(), V4);
    assert_eq!(address.to_string(), "192.0.2.1:7174");
}

#[test]
fn recorded_ipv6_layout() {
    let address = SockAddr::from(SocketAddr::V6(SocketAddrV6::new(
        "fe80::1".parse().unwrap(),
        7174,
        0x0005_4321,
        2,
    )));
    let mut expected = [0; 28];
    expected[..10].copy_from_slice(&[10, 0, 0x1C, 0x06, 0, 5, 0x43, 0x21, 0xFE, 0x80]);
    expected[23] = 1;
    expected[24] = 2;
    assert_eq!(address.as_bytes(), expected);
    assert_eq!(address.to_ip_storage_bytes(), Some(expected));
    assert_eq!(address.to_string(), "[fe80::1%2]:7174");
    assert_eq!(v6("2001:db8::1", 1, 0).to_string(), "[2001:db8::1]:1");
}

#[test]
fn recorded_infiniband_layout() {
    let address = ib("fe80::1", 0x0106_0005);
    let mut expected = [0; 48];
    expected[..10].copy_from_slice(&[27, 0, 0xFF, 0xFF, 0, 1, 0x23, 0x45, 0xFE, 0x80]);
    expected[23] = 1;
    expected[28..32].copy_from_slice(&[1, 6, 0, 5]);
    expected[32..40].fill(0xFF);
    assert_eq!(address.as_bytes(), expected);
    assert_eq!(address.port(), 5);
    assert_eq!(
        address.with_port(0x1234).ib_fields().unwrap().sid,
        0x0106_1234
    );
    assert_eq!(address.to_ip_storage_bytes(), None);
    assert_eq!(
        address.to_string(),
        "ib [fe80::1] sid 0x1060005 pkey 0xffff"
    );
}

#[test]
fn padding_does_not_make_a_difference() {
    assert_eq!(
        v4(),
        SockAddr::from_bytes(&{
            let mut b = V4;
            b[8..].fill(0);
            b
        })
        .unwrap()
    );
}

#[test]
fn every_meaningful_field_makes_a_difference() {
    let (one, other) = (v6("::1", 1, 0), SockAddr::v4(Ipv4Addr::LOCALHOST, 1));
    assert_ne!(one, other);
    assert_ne!(one, v6("::2", 1, 0));
    assert_ne!(one, v6("::1", 2, 0));
    assert_ne!(one, v6("::1", 1, 3));
    assert_ne!(ib("::1", 1), ib("::1", 0x1_0001));
    assert_ne!(ib("::1", 1), one);
}

#[test]
fn same_host_looks_at_family_and_address_only() {
    assert!(v4().same_host(&v4().with_port(1)));
    assert!(ib("::1", 1).same_host(&ib("::1", 2)));
    assert!(!v6("::1", 1, 0).same_host(&ib("::1", 1)));
    assert!(!v6("fe80::1", 1, 1).same_host(&v6("fe80::1", 1, 2)));
}

#[test]
fn wildcard_and_loopback() {
    let v4 = |ip: [u8; 4]| SockAddr::v4(ip.into(), 7);
    for wildcard in [v4([0; 4]), v6("::", 7, 0), ib("::", 7)] {
        assert!(
            wildcard.is_wildcard() && !wildcard.is_loopback(),
            "{wildcard}"
        );
    }
    for loopback in [
        v4([127, 0, 0, 1]),
        v4([127, 9, 9, 9]),
        v6("::1", 7, 0),
        ib("::1", 7),
    ] {
        assert!(
            loopback.is_loopback() && !loopback.is_wildcard(),
            "{loopback}"
        );
    }
    for other in [v4([192, 0, 2, 1]), v6("fe80::1", 7, 1), ib("fe80::1", 7)] {
        assert!(!other.is_loopback() && !other.is_wildcard(), "{other}");
    }
}

#[test]
fn roce_gids() {
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1];
    assert_eq!(v4().gid(), mapped);
    let gid: Ipv6Addr = "fe80::1".parse().unwrap();
    assert_eq!(v6("fe80::1", 7, 1).gid(), gid.octets());
    assert_eq!(ib("fe80::1", 7).gid(), gid.octets());
}

#[test]
fn null_and_unknown_families_are_no_addresses() {
    // SAFETY: null is allowed.
    assert!(unsafe { SockAddr::from_ptr(std::ptr::null()) }.is_none());
    let unix = (libc::AF_UNIX as u16).to_ne_bytes();
    // SAFETY: two bytes suffice for an unknown family.
    assert!(unsafe { SockAddr::from_ptr(unix.as_ptr().cast()) }.is_none());
    assert!(SockAddr::from_bytes(&[0; 128]).is_none());
    assert!(SockAddr::from_bytes(&[]).is_none());
    assert!(SockAddr::from_bytes(&V4[..15]).is_none());
}

#[test]
fn a_pointer_is_read_at_any_alignment_and_no_further_than_the_family_needs() {
    let mut bytes = vec![0];
    bytes.extend(V4);
    // SAFETY: exactly the 16 bytes of an IPv4 address follow.
    let address = unsafe { SockAddr::from_ptr(bytes[1..].as_ptr().cast()) };
    assert_eq!(address, Some(v4()));
}

#[test]
fn writing_leaves_the_bytes_beyond_the_address() {
    let mut storage = v6("ffff::ffff", 0xFFFF, u32::MAX).to_sockaddr_storage();
    v4().write_to(&mut storage);
    assert_eq!(SockAddr::from_storage(&storage), Some(v4()));
    let mut bytes = [0u8; 28];
    // SAFETY: 28 of the 128 bytes of a structure without padding.
    unsafe {
        bytes
            .as_mut_ptr()
            .copy_from((&raw const storage).cast(), 28)
    };
    assert_eq!(
        bytes[16..],
        [0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]
    );
}

fn known_family() -> impl Strategy<Value = Vec<u8>> {
    let family = prop_oneof![Just(AF_INET), Just(AF_INET6), Just(AF_IB)];
    let bytes = prop::collection::vec(any::<u8>(), STORAGE_LEN);
    (family, bytes).prop_map(|(family, mut bytes)| {
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_an_address_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(address) = SockAddr::from_bytes(&bytes) {
            prop_assert_eq!(address.as_bytes(), &bytes[..address.byte_len()]);
        }
    }

    #[test]
    fn copies_are_equal_and_complete(bytes in known_family()) {
        let address = SockAddr::from_bytes(&bytes).unwrap();
        prop_assert_eq!(SockAddr::from_bytes(address.as_bytes()), Some(address));
        prop_assert_eq!(SockAddr::from_bytes(&address.to_storage_bytes()), Some(address));
        prop_assert_eq!(SockAddr::from_storage(&address.to_sockaddr_storage()), Some(address));
        // SAFETY: points into an address.
        prop_assert_eq!(unsafe { SockAddr::from_ptr(address.as_ptr()) }, Some(address));
        prop_assert!(address.to_storage_bytes()[address.byte_len()..].iter().all(|b| *b == 0));
        if let Some(legacy) = address.to_ip_storage_bytes() {
            prop_assert_eq!(SockAddr::from_bytes(&legacy), Some(address));
        }
    }

    #[test]
    fn the_standard_library_agrees(bytes in known_family()) {
        let address = SockAddr::from_bytes(&bytes).unwrap();
        match address.to_socket_addr() {
            Some(standard) => {
                prop_assert_eq!(SockAddr::from(standard), address);
                prop_assert_eq!(standard.to_string(), address.to_string());
                prop_assert_eq!(Some(standard.ip()), address.ip());
            }
            None => prop_assert_eq!(address.family(), AF_IB),
        }
    }

    #[test]
    fn a_port_is_all_that_with_port_changes(bytes in known_family(), port: u16) {
        let address = SockAddr::from_bytes(&bytes).unwrap();
        let moved = address.with_port(port);
        prop_assert_eq!(moved.port(), port);
        prop_assert!(moved.same_host(&address));
        prop_assert_eq!(moved.with_port(address.port()), address);
    }
}
