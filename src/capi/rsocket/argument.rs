//! Arguments and results that several functions of `<rdma/rsocket.h>` share.

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{iovec, sockaddr, socklen_t};

use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;

/// Copies what fits of `addr` and writes its length.
///
/// # Safety
/// `len` is valid, and `target` may be written for `*len` bytes.
pub(super) unsafe fn copy_address(addr: &SockAddr, target: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: the caller vouches for the pointers.
    unsafe { copy_bytes(addr.as_bytes(), target.cast(), len) };
}

/// Copies what fits of `bytes`, and writes the whole length.
///
/// # Safety
/// As for [`copy_address`].
pub(super) unsafe fn copy_bytes(bytes: &[u8], target: *mut u8, len: *mut socklen_t) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let fits = bytes.len().min(*len as usize);
        target.copy_from_nonoverlapping(bytes.as_ptr(), fits);
        *len = bytes.len() as socklen_t;
    }
}

/// An address that datagrams can be sent to.
pub(super) fn datagram_address(addr: &SockAddr) -> Result<SocketAddr> {
    addr.to_socket_addr().ok_or(Error::new(
        libc::EAFNOSUPPORT,
        "use an InfiniBand address for datagrams",
    ))
}

/// # Safety
/// `iov` is null or points to `count` vectors that live during `'a`.
pub(super) unsafe fn vectors<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    if iov.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: not null; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(iov, count) }
}

/// A number of entries, which an `int` holds.
pub(super) fn number(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

pub(super) fn count_of(iovcnt: c_int) -> Result<usize> {
    usize::try_from(iovcnt).map_err(|_| Error::invalid("use a negative number of buffers"))
}
