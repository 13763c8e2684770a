//! Initialisation: where the kernel's connection manager device is.
//!
//! It happens at the first call that needs it, any number of threads at once,
//! and a failure is not remembered: a program may load a driver and try again.

use crate::error::Result;
use crate::fork::Once;
use crate::kernel::device::{CharDevice, locate};

use super::device;

static CHAR_DEVICE: Once<CharDevice> = Once::new();

/// The kernel's connection manager device, found once per process.
///
/// # Errors
/// `EPERM` if the kernel speaks another ABI than this library.
pub fn char_device() -> Result<&'static CharDevice> {
    CHAR_DEVICE.get_or_try_init(locate)
}

/// Makes sure that the machine can do RDMA at all: the kernel's device is
/// known and at least one RDMA device exists.
///
/// # Errors
/// `EPERM` as for [`char_device`], `ENODEV` if there is no RDMA device, `ENXIO`
/// if none has a node.
pub fn ensure_ready() -> Result<()> {
    char_device()?;
    device::ensure_any()
}
