//! The kernel's answer to the request for the character device.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmacm::kernel::netlink::decode_reply;

fuzz_target!(|message: &[u8]| {
    match decode_reply(message) {
        Ok(reply) => assert!(!reply.name.is_empty() && !reply.name.contains('/')),
        Err(error) => assert!(error.errno() > 0),
    }
});
