//! Socket addresses of any bytes: copies are complete and equal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmacm::kernel::SockAddr;

fuzz_target!(|bytes: &[u8]| {
    let Some(address) = SockAddr::from_bytes(bytes) else {
        return;
    };
    assert_eq!(SockAddr::from_bytes(address.as_bytes()), Some(address));
    assert_eq!(
        SockAddr::from_storage(&address.to_sockaddr_storage()),
        Some(address)
    );
    assert!(address.with_port(1).same_host(&address));
    assert!(!(address.is_wildcard() && address.is_loopback()));
    assert!(!address.to_string().is_empty());
});
