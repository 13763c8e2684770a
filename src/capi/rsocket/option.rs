//! Names, options and flags.

use std::ffi::{c_int, c_long, c_void};

use libc::{sockaddr, socklen_t};

use super::argument::{check_room, copy_address, copy_bytes, length};
use crate::abi::rsocket::{RDMA_ROUTE, SOL_RDMA};
use crate::capi::argument::place;
use crate::capi::convert::respond;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::rsocket::socket::Socket;
use crate::rsocket::{datagram, option, sockets};

/// Writes an address where the program wants it.
///
/// # Safety
/// `addr` is null or may be written for `*addrlen` bytes; `addrlen` is null or
/// valid.
unsafe fn give_name(
    name: Result<SockAddr>,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> Result<()> {
    const STEP: &str = "get an address";
    let name = name?;
    place(addr, STEP)?;
    place(addrlen, STEP)?;
    // SAFETY: not null; the caller vouches for the rest.
    unsafe {
        check_room(addr, addrlen)?;
        copy_address(&name, addr, addrlen);
    }
    Ok(())
}

/// Gets the remote address. As much as fits is written, and its length to
/// `*addrlen`.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` if a pointer is NULL or the
/// length negative as an `int`, `ENOTCONN`.
///
/// # Safety
/// `addr` is NULL or may be written for `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let name = sockets::any(socket).and_then(|socket| sockets::peer_address(&socket));
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { give_name(name, addr, addrlen) };
    respond("rgetpeername", result)
}

/// Gets the local address. As much as fits is written, and its length to
/// `*addrlen`.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` if a pointer is NULL or the
/// length negative as an `int`.
///
/// # Safety
/// `addr` is NULL or may be written for `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let name = sockets::any(socket).and_then(|socket| sockets::local_address(&socket));
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { give_name(name, addr, addrlen) };
    respond("rgetsockname", result)
}

/// Sets an option, of `SOL_SOCKET`, `IPPROTO_TCP`, `IPPROTO_IP`, `IPPROTO_IPV6` or
/// `SOL_RDMA`; see rsocket(7). Sizes can be set until the socket connects.
///
/// Returns 0, or -1 with errno: `EBADF`, `ENOTSUP` for an unknown option,
/// `EINVAL` for a wrong value, length or state, `EFAULT` if `optval` is NULL.
///
/// # Safety
/// `optval` may be read for `optlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    let result = sockets::any(socket).and_then(|socket| {
        if optval.is_null() {
            return Err(Error::new(libc::EFAULT, "set an option"));
        }
        let length = length(optlen)?;
        // SAFETY: not null; the caller vouches for the length.
        let value = unsafe { std::slice::from_raw_parts(optval.cast(), length) };
        match socket {
            Socket::Stream(stream) => option::set(&stream, level, optname, value),
            Socket::Datagram(datagram) => datagram::option::set(&datagram, level, optname, value),
        }
    });
    respond("rsetsockopt", result)
}

/// Gets an option. As much as fits is written, and how much that is to `*optlen`;
/// routes (`RDMA_ROUTE`) must fit.
///
/// Returns 0, or -1 with errno: `EBADF`, `ENOTSUP` for an unknown option,
/// `EINVAL` for too little room, `EFAULT` if a pointer is NULL.
///
/// # Safety
/// `optlen` is NULL or valid; `optval` is NULL or may be written for `*optlen` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    let result = sockets::any(socket).and_then(|socket| {
        if optval.is_null() || optlen.is_null() {
            return Err(Error::new(libc::EFAULT, "get an option"));
        }
        // SAFETY: not null; the caller vouches for the rest.
        let room = length(unsafe { *optlen })?;
        let value = match socket {
            Socket::Stream(stream) => option::get(&stream, level, optname),
            Socket::Datagram(datagram) => datagram::option::get(&datagram, level, optname),
        }?;
        if (level, optname) == (SOL_RDMA, RDMA_ROUTE) && room < value.len() {
            return Err(Error::invalid("get a route into too little room"));
        }
        let fits = value.get(..room.min(value.len())).unwrap_or_default();
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { copy_bytes(fits, optval.cast(), optlen) };
        Ok(())
    });
    respond("rgetsockopt", result)
}

/// Gets or sets the flags of a socket: `F_GETFL`, `F_SETFL` (`O_NONBLOCK`),
/// `F_GETFD`, `F_SETFD`. In C the third argument is optional:
/// `int rfcntl(int socket, int cmd, ...)`.
///
/// Returns the flags or 0, or -1 with errno: `EBADF`, `ENOTSUP`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    respond("rfcntl", sockets::control(socket, cmd, arg))
}
