//! Event channels: descriptors of the kernel's connection manager device.

use std::os::fd::{IntoRawFd, RawFd};

use crate::abi::rdma_event_channel;
use crate::error::{Error, Result};

use super::library;

/// Opens a channel. The structure comes from `malloc` and is released by
/// [`close`].
///
/// # Errors
/// `ENODEV` without an RDMA device, `EPERM` if the kernel speaks another ABI,
/// `ENOMEM`, else what opening the device says (`ENOENT`, `EACCES`, …).
pub fn open() -> Result<*mut rdma_event_channel> {
    library::ensure_ready()?;
    let fd = library::char_device()?.open()?;
    // SAFETY: malloc is always sound to call.
    let channel = unsafe { libc::malloc(size_of::<rdma_event_channel>()) };
    let channel = channel.cast::<rdma_event_channel>();
    if channel.is_null() {
        return Err(Error::new(libc::ENOMEM, "allocate an event channel"));
    }
    let fd = fd.into_raw_fd();
    // SAFETY: fresh memory of the right size; malloc aligns it.
    unsafe { channel.write(rdma_event_channel { fd }) };
    log::debug!("channel {fd}: opened");
    Ok(channel)
}

/// Closes a channel and frees its structure.
///
/// # Safety
/// `channel` came from [`open`] and is not used by anyone any more.
pub unsafe fn close(channel: *mut rdma_event_channel) {
    // SAFETY: the caller vouches for the pointer.
    let fd = unsafe { (*channel).fd };
    if fd >= 0 {
        // SAFETY: closing is sound; a descriptor that the program closed
        // itself yields EBADF, of which there is nothing to tell.
        unsafe { libc::close(fd) };
    }
    // SAFETY: the structure came from malloc in `open`.
    unsafe { libc::free(channel.cast()) };
    log::debug!("channel {fd}: closed");
}

/// The descriptor of a channel. It is a number, not a borrow: the program may
/// close it at any time, and the kernel then says `EBADF`.
///
/// # Errors
/// `EINVAL` if `channel` is null.
///
/// # Safety
/// `channel` is null or points to a live channel.
pub unsafe fn descriptor(channel: *const rdma_event_channel) -> Result<RawFd> {
    if channel.is_null() {
        return Err(Error::invalid("use a null event channel"));
    }
    // SAFETY: the caller vouches for the pointer.
    Ok(unsafe { (*channel).fd })
}
