//! The RDMA devices of the machine: which there are, their contexts, limits,
//! and the protection and XRC domains that all identifiers of a device share.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `list` | which devices there are, following hot-plugging |
//! | `absence` | why there is none to use |
//! | `opened` | one opened device and what its users share |
//! | [`contexts`] | the arrays of contexts that programs hold |
//!
//! Identifiers and their addresses are not this module's business.

mod absence;
mod contexts;
mod list;
mod opened;

pub(super) use contexts::HANDED_OUT;
pub use contexts::{contexts, release_contexts};
pub(super) use list::RESYNC;
pub(crate) use list::note_removal;
pub use list::{all, any_infiniband_port, ensure_any, find};
pub use opened::{Device, LinkLayer, Transport};
