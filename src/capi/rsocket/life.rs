//! Creation, binding, listening, accepting, connecting, shutdown and close.

use std::ffi::c_int;

use libc::{sockaddr, socklen_t};

use super::argument::{check_room, copy_address, datagram_address};
use crate::cancel::Uncancelled;
use crate::capi::argument::{address, enter};
use crate::capi::convert::respond;
use crate::error::Error;
use crate::rsocket::connection::Directions;
use crate::rsocket::socket::Socket;
use crate::rsocket::sockets;

/// Whether an address is of the family `AF_UNSPEC`.
///
/// # Safety
/// `addr` is null or readable for a family.
unsafe fn is_unspecified(addr: *const sockaddr) -> bool {
    // SAFETY: not null; the caller vouches for the rest.
    !addr.is_null() && unsafe { addr.cast::<u16>().read_unaligned() } == libc::AF_UNSPEC as u16
}

/// Creates a socket over RDMA and returns its descriptor.
///
/// `domain` is `AF_INET`, `AF_INET6` or `AF_IB`; `type` is `SOCK_STREAM` or
/// `SOCK_DGRAM`, perhaps with `SOCK_NONBLOCK` and `SOCK_CLOEXEC`; `protocol` is 0,
/// or `IPPROTO_TCP` or `IPPROTO_UDP`, as the type has it.
///
/// Returns -1 with errno `ENOTSUP` for anything else and, for streams, `ENODEV`
/// without an RDMA device. Does not block. All functions of this header may be called from
/// any thread, also on the same socket at once. See rsocket(7).
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsocket(domain: c_int, r#type: c_int, protocol: c_int) -> c_int {
    let _whole = Uncancelled::throughout();
    enter("rsocket");
    respond("rsocket", sockets::create(domain, r#type, protocol))
}

/// Binds a socket to a local address.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` if it is bound already or the
/// address is of an unknown family, `EADDRINUSE`, `EADDRNOTAVAIL`; for datagrams
/// `ENODEV` if no RDMA device has the address.
///
/// # Safety
/// `addr` is NULL or points to as many bytes as its family says.
#[expect(
    unused_variables,
    reason = "the family says how long an address is, as in the original"
)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    let _whole = Uncancelled::throughout();
    let result = sockets::any(socket).and_then(|socket| {
        // SAFETY: the caller vouches for the address.
        let addr = unsafe { address(addr) }?;
        match socket {
            Socket::Stream(stream) => stream.bind(&addr),
            Socket::Datagram(datagram) => datagram.bind(datagram_address(&addr)?),
        }
    });
    respond("rbind", result)
}

/// Makes a socket accept connections; at most `backlog` and one that `raccept`
/// has not returned yet, further ones are refused. A negative one is 4096.
///
/// Returns 0, or -1 with errno: `EBADF`, `EOPNOTSUPP` for datagrams, `EINVAL`
/// if it is connected, `EADDRINUSE`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    let _whole = Uncancelled::throughout();
    respond(
        "rlisten",
        sockets::stream(socket).and_then(|stream| stream.listen(backlog)),
    )
}

/// Accepts a connection and returns the descriptor of its socket; `addr` and
/// `addrlen` may be NULL. Blocks until there is one unless the socket is
/// non-blocking.
///
/// The new socket has the listener's sizes and options, and is blocking.
///
/// Returns -1 with errno: `EBADF`, `EOPNOTSUPP` for datagrams, `EINVAL` if the
/// socket does not listen or the length is negative as an `int`, `ENODEV` if its
/// device was removed, `EAGAIN`, `EINTR`.
///
/// # Safety
/// `addr` is NULL or may be written for `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let result = sockets::stream(socket).and_then(|stream| {
        // SAFETY: the caller vouches for the pointers.
        unsafe { check_room(addr, addrlen) }?;
        let accepted = stream.accept()?;
        let accepted = Socket::Stream(accepted);
        let peer = sockets::peer_address(&accepted).ok();
        let fd = sockets::register(accepted)?;
        if let Some(peer) = peer
            && !addr.is_null()
            && !addrlen.is_null()
        {
            // SAFETY: not null; the caller vouches for the rest.
            unsafe { copy_address(&peer, addr, addrlen) };
        }
        Ok(fd)
    });
    respond("raccept", result)
}

/// Connects a socket. Blocks until it is connected or cannot be, unless it is
/// non-blocking or it takes longer than `SO_SNDTIMEO`; `rpoll` then reports `POLLOUT`
/// in either case, and `SO_ERROR` tells which. A datagram socket takes that address
/// for its only peer, at once; one of the family `AF_UNSPEC` undoes that.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINPROGRESS`, `EALREADY`, `EISCONN`,
/// `EINTR` (the attempt goes on; calling again waits for it), `ECONNREFUSED`,
/// `ETIMEDOUT`, `ENETUNREACH`, `EHOSTUNREACH`, `ENOTCONN` after an earlier
/// failure.
///
/// # Safety
/// `addr` is NULL or points to as many bytes as its family says.
#[expect(
    unused_variables,
    reason = "the family says how long an address is, as in the original"
)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    let _uncancelled = Uncancelled::but_in_sleeps();
    let result = sockets::any(socket).and_then(|socket| {
        // SAFETY: the caller vouches for the address.
        let nobody = unsafe { is_unspecified(addr) };
        match &socket {
            Socket::Datagram(datagram) if nobody => return datagram.disconnect(),
            _ => {}
        }
        // SAFETY: as above.
        let addr = unsafe { address(addr) }?;
        match socket {
            Socket::Stream(stream) => stream.connect(&addr),
            Socket::Datagram(datagram) => datagram.connect(datagram_address(&addr)?),
        }
    });
    respond("rconnect", result)
}

/// Ends one or both directions of a connection and wakes threads that wait for
/// it. A socket that listens, and is not to receive any more, stops to: `raccept`
/// fails with `EINVAL`. One that connects gives that up with `ECONNRESET`. Nothing
/// happens to others without a connection.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` for an unknown `how`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    let _whole = Uncancelled::throughout();
    let result = sockets::any(socket).and_then(|socket| {
        let directions = match how {
            libc::SHUT_RD => Directions::Read,
            libc::SHUT_WR => Directions::Write,
            libc::SHUT_RDWR => Directions::Both,
            _ => return Err(Error::invalid("shut down an unknown direction")),
        };
        match socket {
            Socket::Stream(stream) => stream.shutdown(directions),
            // There is nobody to tell.
            Socket::Datagram(_) => {}
        }
        Ok(())
    });
    respond("rshutdown", result)
}

/// Closes a socket. Threads that wait for it return with `EBADF`.
///
/// A blocking socket waits until what it sent has arrived, as long as `SO_LINGER`
/// says or else for ten seconds; a non-blocking one ends in the background, for
/// which `exit(3)` waits, for ten seconds at most.
///
/// Returns 0, or -1 with errno `EBADF`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    let _whole = Uncancelled::throughout();
    respond("rclose", sockets::close(socket))
}
