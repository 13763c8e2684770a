//! Event channels: descriptors of the kernel's connection manager device.
//!
//! Open channels are registered, so that one which a program destroyed before
//! its identifiers, a common mistake, is refused and not read.

use std::os::fd::{IntoRawFd, RawFd};

use crate::abi::rdma_event_channel;
use crate::error::{Error, Result};

use super::library;
use super::registry::Registry;

/// Every open channel by its address.
pub(super) static OPEN: Registry<()> = Registry::new();

/// Opens a channel whose descriptor blocks. The structure comes from `malloc` and
/// is released by [`close`].
///
/// # Errors
/// `ENODEV` without an RDMA device, `ENXIO` if none has a node, `EPERM` if the
/// kernel speaks another ABI, `ENOMEM`, else what opening the device says
/// (`ENOENT`, `EACCES`, …).
pub fn open() -> Result<*mut rdma_event_channel> {
    open_with(0)
}

/// As [`open`], with a descriptor that does not block.
///
/// # Errors
/// As for [`open`].
pub fn open_nonblocking() -> Result<*mut rdma_event_channel> {
    open_with(libc::O_NONBLOCK)
}

fn open_with(flags: i32) -> Result<*mut rdma_event_channel> {
    library::ensure_ready()?;
    let fd = library::char_device()?.open(flags)?;
    // SAFETY: malloc is always sound to call.
    let channel = unsafe { libc::malloc(size_of::<rdma_event_channel>()) };
    let channel = channel.cast::<rdma_event_channel>();
    if channel.is_null() {
        return Err(Error::new(libc::ENOMEM, "allocate an event channel"));
    }
    let fd = fd.into_raw_fd();
    // SAFETY: fresh memory of the right size; malloc aligns it.
    unsafe { channel.write(rdma_event_channel { fd }) };
    OPEN.insert(channel as u64, ());
    log::debug!("channel {fd}: opened");
    Ok(channel)
}

/// Closes a channel and frees its structure. What is no open channel is left
/// alone.
///
/// # Safety
/// No other thread uses the channel any more.
pub unsafe fn close(channel: *mut rdma_event_channel) {
    if OPEN.remove(channel as u64).is_none() {
        log::warn!("channel at {channel:p} is not open, not closed");
        return;
    }
    // SAFETY: it was registered, so it came from `open` and is not freed yet.
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
/// `EINVAL` if `channel` is null, `EBADF` if it is no open channel.
///
/// # Safety
/// No other thread closes the channel during the call.
pub unsafe fn descriptor(channel: *const rdma_event_channel) -> Result<RawFd> {
    if channel.is_null() {
        return Err(Error::invalid("use a null event channel"));
    }
    if !OPEN.contains(channel as u64) {
        return Err(Error::new(libc::EBADF, "use a closed event channel"));
    }
    // SAFETY: registered, so it came from `open` and is not freed; the caller
    // vouches that it stays so.
    Ok(unsafe { (*channel).fd })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_open_channel_is_not_touched() {
        let stale = std::ptr::without_provenance_mut::<rdma_event_channel>(0x1000);
        // SAFETY: nobody has such a channel.
        let errno = |channel| unsafe { descriptor(channel) }.map_err(|error| error.errno());
        assert_eq!(errno(std::ptr::null()), Err(libc::EINVAL));
        assert_eq!(errno(stale), Err(libc::EBADF));
        // SAFETY: as above.
        unsafe { close(stale) };
    }
}
