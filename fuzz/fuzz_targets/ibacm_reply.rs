//! Replies of the ibacm daemon.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmacm::cm::acm::decode;

fuzz_target!(|reply: &[u8]| {
    match decode(reply) {
        Ok(answer) => {
            let _ = answer.src.map(|src| src.to_string());
            for path in &answer.paths {
                let _ = path.to_verbs();
            }
        }
        Err(error) => assert!(error.errno() > 0),
    }
});
