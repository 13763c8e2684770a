//! The C interface, `<rdma/srpt.h>`: the functions of the kernel's SRP target
//! with the kernel's names and order of arguments, on the types of libibverbs
//! and librdmacm, see srpt(7).
//!
//! Results are the kernel's: 0 or more, or a negative errno. Objects are
//! opaque. A channel is worked on by one thread at a time; a call on a channel
//! from within one of its own callbacks is refused with `-EBUSY`.

#![allow(non_camel_case_types)]

pub mod channel;
pub mod cm;
pub mod command;
pub mod device;
mod executor;
mod foreign;
pub mod ioctx;
pub mod queue_pair;
#[cfg(test)]
mod tests;
pub mod types;
pub mod unit;

use std::ffi::c_int;

use rdmacm::Result;

/// The result of a function in the kernel's convention.
fn respond(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            log::debug!("{error}");
            -error.errno()
        }
    }
}
