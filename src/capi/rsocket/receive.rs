//! Receiving.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::argument::{check_room, copy_address, count_of, message, vectors};
use crate::capi::convert::respond;
use crate::error::Result;
use crate::kernel::addr::SockAddr;
use crate::rsocket::connection::{Received, retry};
use crate::rsocket::socket::Socket;
use crate::rsocket::sockets;
use crate::rsocket::stream::Stream;
use crate::rsocket::vectors::Cursor;

/// What a receive took.
struct Taken {
    /// What the call returns.
    bytes: usize,
    /// Who sent it; streams have one peer only.
    source: Option<SockAddr>,
    /// There was more than fitted.
    truncated: bool,
}

impl Taken {
    /// A cursor never counts more than fits.
    fn count(&self) -> ssize_t {
        self.bytes as ssize_t
    }
}

/// What the C function `call` returns that receives to a buffer.
///
/// # Safety
/// `buf` may be written for `len` bytes.
#[inline(always)] // a call less on the short way of small messages
unsafe fn receive(
    call: &str,
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    let result = match unsafe { receive_short(socket, buf, len, flags) } {
        Received::Bytes(bytes) => return bytes as ssize_t,
        Received::Nothing => Err(retry()),
        // SAFETY: as above.
        Received::Special => unsafe { receive_long(socket, buf, len, flags) },
    };
    respond(call, result)
}

/// Receives on the short way of small messages; [`Received::Nothing`] is for who does
/// not wait.
///
/// # Safety
/// `buf` may be written for `len` bytes.
#[inline(never)] // with nothing kept in registers for the long way
unsafe fn receive_short(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Received {
    let short = |stream: &Arc<Stream>| {
        if buf.is_null() {
            return Received::Special;
        }
        // SAFETY: the caller vouches for the buffer.
        match unsafe { stream.receive_short(buf.cast(), len, flags) } {
            Received::Nothing if !stream.is_nonblocking(flags) => Received::Special,
            found => found,
        }
    };
    sockets::briefly(socket, short).unwrap_or(Received::Special)
}

/// Receives what does not take the short way.
///
/// # Safety
/// `buf` may be written for `len` bytes.
#[inline(never)] // as it would make the short way longer
unsafe fn receive_long(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<ssize_t> {
    let socket = sockets::any(socket)?;
    // SAFETY: the caller vouches for the buffer.
    unsafe { receive_buffer(&socket, buf, len, flags) }.map(|taken| taken.count())
}

/// # Safety
/// `buf` may be written for `len` bytes.
unsafe fn receive_buffer(
    socket: &Socket,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<Taken> {
    let vector = iovec {
        iov_base: buf,
        iov_len: len,
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { receive_vectors(socket, &vector, 1, flags) }
}

/// # Safety
/// `iov` points to `count` buffers that may be written.
unsafe fn receive_vectors(
    socket: &Socket,
    iov: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<Taken> {
    // SAFETY: the caller vouches for the buffers.
    let mut target = unsafe { Cursor::new(vectors(iov, count)?) };
    match socket {
        Socket::Stream(stream) => {
            let bytes = stream.receive(&mut target, flags)?;
            Ok(Taken {
                bytes,
                source: None,
                truncated: false,
            })
        }
        Socket::Datagram(datagram) => {
            let received = datagram.receive(&mut target, flags)?;
            let whole = flags & libc::MSG_TRUNC != 0;
            Ok(Taken {
                bytes: if whole {
                    received.length
                } else {
                    received.copied
                },
                source: Some(datagram.native(received.source).into()),
                truncated: received.copied < received.length,
            })
        }
    }
}

/// The peer of a stream that data was taken from.
fn stream_peer(socket: &Socket, taken: &Taken) -> Option<SockAddr> {
    (taken.bytes > 0)
        .then(|| sockets::peer_address(socket))?
        .ok()
}

/// Receives data.
///
/// Blocks until there is some, unless the socket or the call (`MSG_DONTWAIT`) is
/// non-blocking; `MSG_PEEK` leaves the data, `MSG_WAITALL` waits for all of it.
///
/// Returns the number of bytes, 0 at the end of the stream, or -1 with errno:
/// `EBADF`, `ENOTCONN`, `EFAULT` if `buf` is NULL, `EAGAIN`, `EINTR`, and once
/// `ECONNRESET`, `ETIMEDOUT` or `EIO` if the connection broke.
///
/// # Safety
/// `buf` may be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { receive("rrecv", socket, buf, len, flags) }
}

/// Receives data and the sender's address, as `rrecv` does. Of a datagram that
/// does not fit the rest is lost; with `MSG_TRUNC` its whole length is returned.
/// `src_addr` and `addrlen` may be NULL; a stream leaves them alone when there is no
/// data.
///
/// # Safety
/// `buf` may be written for `len` bytes; `src_addr` is NULL or may be written for
/// `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    let result = sockets::any(socket).and_then(|socket| {
        // SAFETY: the caller vouches for the pointers.
        unsafe { check_room(src_addr, addrlen) }?;
        // SAFETY: the caller vouches for the buffer.
        let taken = unsafe { receive_buffer(&socket, buf, len, flags) }?;
        if !src_addr.is_null()
            && !addrlen.is_null()
            && let Some(source) = taken.source.or_else(|| stream_peer(&socket, &taken))
        {
            // SAFETY: not null; the caller vouches for the rest.
            unsafe { copy_address(&source, src_addr, addrlen) };
        }
        Ok(taken.count())
    });
    respond("rrecvfrom", result)
}

/// Receives data into several buffers, as `rrecv` does. There is no control data
/// and, on a stream, no address: `msg_namelen`, `msg_controllen` and `msg_flags`
/// become 0. A datagram has an address, and `MSG_TRUNC` in `msg_flags` if it did
/// not fit.
///
/// `EFAULT` if `msg` is NULL.
///
/// # Safety
/// `msg` is NULL or valid, and so are its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller vouches for it.
    let result = message(unsafe { msg.as_mut() }).and_then(|msg| {
        let socket = sockets::any(socket)?;
        // SAFETY: a reference is valid.
        unsafe { check_room(msg.msg_name, &msg.msg_namelen) }?;
        // SAFETY: the caller vouches for the buffers.
        let taken = unsafe { receive_vectors(&socket, msg.msg_iov, msg.msg_iovlen, flags) }?;
        match taken.source {
            Some(source) if !msg.msg_name.is_null() => {
                // SAFETY: not null; the caller vouches for the rest.
                unsafe { copy_address(&source, msg.msg_name.cast(), &mut msg.msg_namelen) };
            }
            _ => msg.msg_namelen = 0,
        }
        msg.msg_controllen = 0;
        msg.msg_flags = if taken.truncated { libc::MSG_TRUNC } else { 0 };
        Ok(taken.count())
    });
    respond("rrecvmsg", result)
}

/// Reads data, as `rrecv` without flags does.
///
/// # Safety
/// `buf` may be written for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    unsafe { receive("rread", socket, buf, count, 0) }
}

/// Reads data into several buffers, as `rrecv` without flags does; `EINVAL` for a
/// negative count.
///
/// # Safety
/// `iov` points to `iovcnt` valid buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let result = count_of(iovcnt).and_then(|count| {
        let socket = sockets::any(socket)?;
        // SAFETY: the caller vouches for the buffers.
        unsafe { receive_vectors(&socket, iov, count, 0) }
    });
    respond("rreadv", result.map(|taken| taken.count()))
}
