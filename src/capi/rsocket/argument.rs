//! Arguments and results that several functions of `<rdma/rsocket.h>` share.

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{iovec, sockaddr, socklen_t};

use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;

/// The number of bytes that a program gives, or has room for.
///
/// # Errors
/// `EINVAL` for one that is negative as an `int`, as the kernel takes it.
pub(super) fn length(length: socklen_t) -> Result<usize> {
    const NEGATIVE: Error = Error::invalid("use a negative number of bytes");
    c_int::try_from(length)
        .map(|_| length as usize)
        .map_err(|_| NEGATIVE)
}

/// Fails if an address is wanted, and there is room for less than nothing, see
/// [`length`].
///
/// # Safety
/// `room` is null or valid, unless `addr` is null.
pub(super) unsafe fn check_room<T>(addr: *const T, room: *const socklen_t) -> Result<()> {
    if addr.is_null() {
        return Ok(());
    }
    // SAFETY: the caller vouches for the pointer.
    match unsafe { room.as_ref() } {
        Some(room) => length(*room).map(drop),
        None => Ok(()),
    }
}

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

/// The buffers of a call, none of which is NULL unless it is empty.
///
/// # Errors
/// `EFAULT` for one that is, `EMSGSIZE` for more than an `int` counts.
///
/// # Safety
/// `iov` is null or points to `count` vectors that live during `'a`.
#[inline]
pub(super) unsafe fn vectors<'a>(iov: *const iovec, count: usize) -> Result<&'a [iovec]> {
    const MISSING: Error = Error::new(libc::EFAULT, "use a buffer at NULL");
    if count == 0 {
        return Ok(&[]);
    }
    if c_int::try_from(count).is_err() {
        return Err(Error::new(libc::EMSGSIZE, "use so many buffers"));
    }
    if iov.is_null() {
        return Err(MISSING);
    }
    // SAFETY: not null; the caller vouches for the rest.
    let vectors = unsafe { std::slice::from_raw_parts(iov, count) };
    let missing = |vector: &iovec| vector.iov_base.is_null() && vector.iov_len > 0;
    if vectors.iter().any(missing) {
        return Err(MISSING);
    }
    Ok(vectors)
}

/// A number of entries, which an `int` holds.
pub(super) fn number(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

pub(super) fn count_of(iovcnt: c_int) -> Result<usize> {
    usize::try_from(iovcnt).map_err(|_| Error::invalid("use a negative number of buffers"))
}

/// The structure of a message, which must be there.
pub(super) fn message<T>(message: Option<T>) -> Result<T> {
    message.ok_or(Error::new(libc::EFAULT, "use a message at NULL"))
}
