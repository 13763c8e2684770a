//! Sending.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::argument::{count_of, datagram_address, message, vectors};
use crate::capi::argument::optional_address;
use crate::capi::convert::respond;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::rsocket::socket::Socket;
use crate::rsocket::sockets;
use crate::rsocket::stream::Stream;
use crate::rsocket::vectors::Cursor;

/// What the C function `call` returns that sends a buffer.
///
/// # Safety
/// `buf` may be read for `len` bytes.
#[inline(always)] // a call less on the short way of small messages
unsafe fn send(
    call: &str,
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    if unsafe { send_short(socket, buf, len) } {
        return len as ssize_t;
    }
    // SAFETY: as above.
    respond(call, unsafe { send_long(socket, buf, len, flags) })
}

/// Sends on the short way of small messages. Returns whether it did.
///
/// # Safety
/// `buf` may be read for `len` bytes.
#[inline(never)] // with nothing kept in registers for the long way
unsafe fn send_short(socket: c_int, buf: *const c_void, len: size_t) -> bool {
    let short = |stream: &Arc<Stream>| {
        // SAFETY: the caller vouches for the buffer.
        !buf.is_null() && unsafe { stream.send_short(buf.cast(), len) }
    };
    sockets::briefly(socket, short).unwrap_or(false)
}

/// Sends what does not take the short way.
///
/// # Safety
/// `buf` may be read for `len` bytes.
#[inline(never)] // as it would make the short way longer
unsafe fn send_long(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> Result<ssize_t> {
    let socket = sockets::any(socket)?;
    // SAFETY: the caller vouches for the buffer.
    unsafe { send_buffer(&socket, buf, len, flags, None) }
}

/// # Safety
/// `buf` may be read for `len` bytes.
unsafe fn send_buffer(
    socket: &Socket,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest: Option<SockAddr>,
) -> Result<ssize_t> {
    let vector = iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { send_vectors(socket, &vector, 1, flags, dest) }
}

/// Sends to `dest`, which on a stream is ignored.
///
/// # Safety
/// `iov` points to `count` buffers that may be read.
unsafe fn send_vectors(
    socket: &Socket,
    iov: *const iovec,
    count: usize,
    flags: c_int,
    dest: Option<SockAddr>,
) -> Result<ssize_t> {
    // SAFETY: the caller vouches for the buffers.
    let mut source = unsafe { Cursor::new(vectors(iov, count)?) };
    let sent = match socket {
        Socket::Stream(stream) => stream.send(&mut source, flags),
        Socket::Datagram(datagram) => {
            let dest = dest.as_ref().map(datagram_address).transpose()?;
            datagram.send(&mut source, dest, flags)
        }
    };
    if flags & libc::MSG_NOSIGNAL == 0
        && matches!(&sent, Err(error) if error.errno() == libc::EPIPE)
    {
        // SAFETY: it touches no memory of ours.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    // A cursor never counts more than fits.
    sent.map(|bytes| bytes as ssize_t)
}

/// Sends data.
///
/// Blocks until all of it is taken, unless the socket or the call
/// (`MSG_DONTWAIT`) is non-blocking. `EPIPE` comes with the signal `SIGPIPE` unless
/// `flags` holds `MSG_NOSIGNAL`.
///
/// Returns the number of bytes taken, or -1 with errno: `EBADF`, `ENOTCONN`,
/// `EFAULT` if `buf` is NULL, `EAGAIN`, `EINTR`, `EPIPE` after a shutdown,
/// `ECONNRESET` after the peer ended the connection, once `ETIMEDOUT` or `EIO` if
/// it broke.
///
/// # Safety
/// `buf` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { send("rsend", socket, buf, len, flags) }
}

/// Sends data, as `rsend` does. A stream has one destination only: `EISCONN` if
/// `dest_addr` or `addrlen` is given. Datagrams go to `dest_addr` or, without it, to
/// the only peer; further errors of theirs are `EDESTADDRREQ`, `EMSGSIZE`,
/// `ENETUNREACH`, `ENODEV`, `ECONNREFUSED` and `EAFNOSUPPORT`.
///
/// # Safety
/// `buf` may be read for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    let result = sockets::any(socket).and_then(|found| {
        let given = !dest_addr.is_null() || addrlen != 0;
        let dest = match &found {
            Socket::Stream(_) if given => {
                return Err(Error::new(libc::EISCONN, "send to an address on a stream"));
            }
            Socket::Stream(_) => None,
            // SAFETY: the caller vouches for the address.
            Socket::Datagram(_) => unsafe { optional_address(dest_addr) }?,
        };
        // SAFETY: the caller vouches for the buffer.
        unsafe { send_buffer(&found, buf, len, flags, dest) }
    });
    respond("rsendto", result)
}

/// Sends data from several buffers, as `rsendto` does; on a stream, an address is
/// ignored. `ENOTSUP` with control data, `EFAULT` if `msg` is NULL.
///
/// # Safety
/// `msg` is NULL or valid, and so are its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller vouches for it.
    let result = message(unsafe { msg.as_ref() }).and_then(|msg| {
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Error::new(libc::ENOTSUP, "send control data"));
        }
        let socket = sockets::any(socket)?;
        let dest = match &socket {
            Socket::Stream(_) => None,
            // SAFETY: the caller vouches for the address.
            Socket::Datagram(_) => unsafe { optional_address(msg.msg_name.cast()) }?,
        };
        // SAFETY: the caller vouches for the buffers.
        unsafe { send_vectors(&socket, msg.msg_iov, msg.msg_iovlen, flags, dest) }
    });
    respond("rsendmsg", result)
}

/// Writes data, as `rsend` without flags does.
///
/// # Safety
/// `buf` may be read for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { send("rwrite", socket, buf, count, 0) }
}

/// Writes data from several buffers, as `rsend` without flags does; `EINVAL` for
/// a negative count.
///
/// # Safety
/// `iov` points to `iovcnt` valid buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let result = count_of(iovcnt).and_then(|count| {
        let socket = sockets::any(socket)?;
        // SAFETY: the caller vouches for the buffers.
        unsafe { send_vectors(&socket, iov, count, 0, None) }
    });
    respond("rwritev", result)
}
