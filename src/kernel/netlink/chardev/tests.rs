//! Requests and answers as they cross the socket, byte by byte.

use proptest::prelude::*;

use super::super::SEQUENCE;
use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// Major 10, minor 0x12345, in the kernel's encoding.
const DEV: u64 = 0x45 | 10 << 8 | 0x123 << 20;

fn attributes() -> [Vec<u8>; 3] {
    [
        attribute(71, &(0xFFFF_FFFF_0000_0004u64).to_ne_bytes()),
        attribute(72, &DEV.to_ne_bytes()),
        attribute(70, b"rdma_cm\0"),
    ]
}

fn errno(result: Result<CharDevReply>) -> i32 {
    result.unwrap_err().errno()
}

#[test]
fn the_request() {
    let expected = [
        28, 0, 0, 0, 0x0F, 0x14, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 69, 0, b'r', b'd', b'm',
        b'a', b'_', b'c', b'm', 0,
    ];
    assert_eq!(encode_request("rdma_cm").unwrap(), expected);
}

#[test]
fn a_complete_answer() {
    let mut body = attribute(1, &[1, 2, 3]);
    body.extend(attributes().concat());
    let reply = decode_reply(&message(GET_CHARDEV, SEQUENCE, &body)).unwrap();
    assert_eq!(
        (libc::major(reply.dev), libc::minor(reply.dev)),
        (10, 0x12345)
    );
    assert_eq!((reply.abi, reply.name.as_str()), (4, "rdma_cm"));
}

#[test]
fn every_attribute_is_needed() {
    for missing in 0..3 {
        let mut attributes = attributes();
        attributes[missing].clear();
        let message = message(GET_CHARDEV, SEQUENCE, &attributes.concat());
        assert_eq!(errno(decode_reply(&message)), libc::EPROTO);
    }
}

#[test]
fn the_kernels_refusal() {
    let refused = message(2, SEQUENCE, &(-libc::EOPNOTSUPP).to_ne_bytes());
    assert_eq!(errno(decode_reply(&refused)), libc::EOPNOTSUPP);
    let absurd = message(2, SEQUENCE, &i32::MIN.to_ne_bytes());
    assert_eq!(errno(decode_reply(&absurd)), libc::EPROTO);
}

#[test]
fn other_and_damaged_messages() {
    let body = attributes().concat();
    let good = message(GET_CHARDEV, SEQUENCE, &body);
    let foreign = message(GET_CHARDEV, SEQUENCE + 1, &body);
    assert_eq!(errno(decode_reply(&foreign)), libc::EPROTO);
    assert_eq!(
        errno(decode_reply(&message(GET_CHARDEV + 1, SEQUENCE, &body))),
        libc::EPROTO
    );
    for len in 0..good.len() {
        assert_eq!(errno(decode_reply(&good[..len])), libc::EPROTO);
    }
}

#[test]
fn names_are_file_names() {
    let long = [[b'n'; 64].as_slice(), b"\0"].concat();
    for name in [&b"../x\0"[..], b"\0", b"no-end", b"\xFF\0", b"", &long] {
        let [abi, dev, _] = attributes();
        let body = [abi, dev, attribute(70, name)].concat();
        assert_eq!(
            errno(decode_reply(&message(GET_CHARDEV, SEQUENCE, &body))),
            libc::EPROTO
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(
        attributes in prop::collection::vec(any::<u8>(), 0..200),
        raw in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode_reply(&raw);
        if let Ok(reply) = decode_reply(&message(GET_CHARDEV, SEQUENCE, &attributes)) {
            prop_assert!(!reply.name.contains('/'));
        }
    }
}
