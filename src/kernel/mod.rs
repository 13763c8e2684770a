//! What the kernel says: the commands of the RDMA connection manager's
//! character device, the structures it shares with user space, and the way to
//! find and open that device.
//!
//! Everything here is a typed value or a pure conversion; nothing keeps state
//! between calls and nothing knows of identifiers, channels or C conventions
//! (those are [`crate::cm`] and [`crate::capi`]). Sizes and offsets are pinned
//! at compile time.
//!
//! - [`command`]: the one function that writes a command to a descriptor
//! - [`ucma`]: the commands and their replies
//! - [`uverbs`]: queue pair attributes, address handles and path records, and
//!   their conversions to libibverbs' structures
//! - [`addr`]: socket addresses
//! - [`device`]: finding and opening the character device (with [`netlink`])
//! - [`epoll`]: sets of descriptors to sleep on; `descriptor`: owning what was
//!   opened

#[cfg(not(target_os = "linux"))]
compile_error!("rdmacm speaks to the Linux kernel's RDMA subsystem and builds on Linux only");

pub mod addr;
pub mod command;
pub(crate) mod descriptor;
pub mod device;
pub mod epoll;
pub mod netlink;
pub mod plain;
pub mod ucma;
pub mod uverbs;
mod watch;

pub use addr::{AF_IB, SockAddr};
pub use command::{Command, Reply, submit};
pub use device::{CharDevice, locate};
pub use plain::Plain;
