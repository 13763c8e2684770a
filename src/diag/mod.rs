//! Diagnosis: what the library says about its work, and to whom.
//!
//! The core describes each step through the `log` facade. This module owns
//! the writer that the environment variable `RDMACM_LOG` turns on
//! ([`initialise`]) and the words for numbers that peers and the kernel send
//! ([`EventStatus`] and others). Off by default, and then not a byte is
//! written and a log statement costs one comparison.

mod logger;
mod reason;

pub use logger::initialise;
pub use reason::{
    EventStatus, ib_reject_message, ib_reject_reason, iwarp_reject_message, iwarp_reject_reason,
    sidr_status,
};
