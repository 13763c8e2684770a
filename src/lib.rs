//! A drop-in replacement for `librdmacm.so.1`, the RDMA connection manager
//! library.
//!
//! C programs use it through the functions of [`capi`], which are exported
//! under the names, symbol versions and structure layouts of the original.
//! Below lies a core that knows nothing of C conventions: [`cm`] is the
//! connection manager, [`rsocket`] are sockets on top of it, [`kapi`] is what
//! the kernel's own has beyond it, [`kernel`] speaks the kernel's command
//! interface and [`verbs`] speaks to the system's libibverbs. [`look`] says how
//! long to look before a sleep.

pub mod abi;
mod cancel;
pub mod capi;
pub mod cm;
pub mod diag;
pub mod error;
mod fork;
pub mod kapi;
pub mod kernel;
mod lock;
pub mod look;
pub mod rsocket;
mod thread;
pub mod verbs;

pub use error::{Error, Result};
