//! SRP's information units (INCITS 365, T10/1415-D) as bytes: what they say,
//! read from and written to slices. Nothing here allocates, blocks or trusts a
//! length; what an information unit leads to is decided in
//! `crate::channel`.
//!
//! All numbers are big-endian; tags are eight opaque bytes that are only ever
//! echoed.

mod bytes;
pub mod command;
pub mod descriptor;
pub mod login;
mod names;
pub mod request;
pub mod response;

pub use names::{Lun, PortId, RejectReason, Tag, TaskAttribute};
