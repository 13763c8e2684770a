//! Headers of datagrams, from queue pairs and on the side channel: any bytes
//! are read or refused, and what is read lies within them.

#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use rdmacm::rsocket::datagram::header::{direct, direct_len, read_direct, read_side, side};

fuzz_target!(|bytes: &[u8]| {
    if let Some((source, length)) = read_direct(bytes) {
        assert!(length <= bytes.len());
        assert!(direct(source).as_bytes().len() == direct_len(source));
    }
    for source in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, 7)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, 7)),
    ] {
        if let Some(read) = read_side(bytes, source) {
            assert!(read.length <= bytes.len());
            let again = side(read.purpose, source, read.qpn);
            assert_eq!(read_side(again.as_bytes(), source), Some(read));
        }
    }
});
