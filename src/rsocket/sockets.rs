//! The sockets of this process by their descriptors: creation, look-up,
//! flags and close.

use std::ffi::{c_int, c_long};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::abi::AF_IB;
use crate::error::{Error, Result};
use crate::fork;
use crate::kernel::addr::SockAddr;

use super::datagram::Datagram;
use super::epoll;
use super::socket::Socket;
use super::stream::Stream;
use super::table::{Found, Known, Number, Table};

static SOCKETS: Table<Socket> = Table::new();

/// The descriptor by which programs know a socket, closed when dropped.
pub type SocketNumber<D> = Number<D, Socket>;

/// Has `descriptor` be that of a socket.
pub fn number<D: AsRawFd>(descriptor: D) -> SocketNumber<D> {
    Number::new(descriptor, &SOCKETS)
}

const NO_SOCKET: Error = Error::new(libc::EBADF, "use what is no socket over RDMA");

/// The socket of a descriptor.
///
/// # Errors
/// `EBADF` if it is none.
#[inline]
pub fn any(fd: c_int) -> Result<Socket> {
    SOCKETS.get(fd).ok_or(NO_SOCKET)
}

/// The stream socket of a descriptor.
///
/// # Errors
/// `EBADF` if it is no socket, `EOPNOTSUPP` if it is one of datagrams.
#[inline]
pub fn stream(fd: c_int) -> Result<Arc<Stream>> {
    match any(fd)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(Error::new(
            libc::EOPNOTSUPP,
            "use a datagram socket as a stream",
        )),
    }
}

/// Runs `action`, which does not sleep, if that is a stream socket: for the short way of
/// small messages, on which to count one more reference is much.
#[inline(always)] // what it returns is taken apart by the caller
pub fn briefly<R>(fd: c_int, action: impl FnOnce(&Arc<Stream>) -> R) -> Option<R> {
    let result = SOCKETS.briefly(fd, |socket| match socket {
        Socket::Stream(stream) => Some(action(stream)),
        Socket::Datagram(_) => None,
    });
    result.flatten()
}

/// Runs `action`, which does not sleep, if that is a socket, without a reference of the
/// caller's own. For those who take any descriptor: that of a socket which is being
/// closed is none of the kernel's.
#[inline(always)] // as `briefly`
pub fn look_up<R>(fd: c_int, action: impl FnOnce(&Socket) -> R) -> Found<R> {
    SOCKETS.look_up(fd, action)
}

/// Makes a socket known under its descriptor, which is returned.
///
/// # Errors
/// `EMFILE` if the number is too large.
pub fn register(socket: Socket) -> Result<c_int> {
    let fd = socket.descriptor();
    epoll::displace(fd);
    SOCKETS.insert(fd, socket)?;
    Ok(fd)
}

/// The descriptor `fd` was just opened for what is no socket over RDMA.
pub fn displace(fd: c_int) {
    SOCKETS.displace(fd);
}

/// Creates a socket and returns its descriptor.
///
/// # Errors
/// `ENOTSUP` for an unknown combination; for streams `ENODEV` without an RDMA
/// device.
pub fn create(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    const UNKNOWN: Error = Error::new(libc::ENOTSUP, "create a socket of that kind");
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    fork::watch();
    if !matches!(domain, libc::AF_INET | libc::AF_INET6 | AF_IB) {
        return Err(UNKNOWN);
    }
    let socket = match (kind & !flags, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Socket::Stream(Stream::new(domain)?),
        (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Socket::Datagram(Datagram::new(domain)?),
        _ => return Err(UNKNOWN),
    };
    socket
        .common()
        .set_nonblocking(kind & libc::SOCK_NONBLOCK != 0);
    let fd = register(socket)?;
    set_close_on_exec(fd, kind & libc::SOCK_CLOEXEC != 0)?;
    Ok(fd)
}

/// Closes a socket, see [`Stream::close`], or an epoll set.
///
/// # Errors
/// `EBADF` if it is none.
pub fn close(fd: c_int) -> Result<()> {
    if epoll::close(fd) {
        return Ok(());
    }
    match SOCKETS.remove(fd).ok_or(NO_SOCKET)? {
        Known::Own(socket) => {
            epoll::forget(&socket);
            socket.close();
        }
        Known::Inherited => {
            // SAFETY: the parent's descriptor, of which this process has a
            // copy that nothing else uses.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// `fcntl(2)` of a socket: its flags.
///
/// # Errors
/// `EBADF`, `ENOTSUP` for any other command.
pub fn control(fd: c_int, command: c_int, argument: c_long) -> Result<c_int> {
    let socket = any(fd)?;
    // The kernel's flags are integers as well.
    let flags = argument as c_int;
    match command {
        libc::F_GETFL => {
            let nonblocking = socket.common().is_nonblocking();
            Ok(libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 })
        }
        libc::F_SETFL => {
            socket
                .common()
                .set_nonblocking(flags & libc::O_NONBLOCK != 0);
            Ok(0)
        }
        libc::F_GETFD => {
            // SAFETY: no pointers.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            if flags < 0 {
                return Err(Error::last_os("get the flags of a descriptor"));
            }
            Ok(flags)
        }
        libc::F_SETFD => set_close_on_exec(fd, flags & libc::FD_CLOEXEC != 0).map(|()| 0),
        _ => Err(Error::new(libc::ENOTSUP, "control a socket over RDMA")),
    }
}

fn set_close_on_exec(fd: c_int, close: bool) -> Result<()> {
    let flags = if close { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, flags) } < 0 {
        return Err(Error::last_os("set the flags of a descriptor"));
    }
    Ok(())
}

/// The local address of a socket; unbound, the wildcard of its family.
///
/// # Errors
/// What the kernel says.
pub fn local_address(socket: &Socket) -> Result<SockAddr> {
    match socket {
        Socket::Datagram(datagram) => datagram.local_address().map(SockAddr::from),
        Socket::Stream(stream) => {
            let unbound = || match stream.domain() {
                libc::AF_INET => SockAddr::v4(Ipv4Addr::UNSPECIFIED, 0),
                AF_IB => SockAddr::ib(0, 0, [0; 16], 0, 0),
                _ => SockAddr::v6(Ipv6Addr::UNSPECIFIED, 0, 0),
            };
            let addr = stream.local_address().unwrap_or_else(unbound);
            Ok(native(stream.domain(), addr))
        }
    }
}

/// The peer's address.
///
/// # Errors
/// `ENOTCONN` for an unconnected socket.
pub fn peer_address(socket: &Socket) -> Result<SockAddr> {
    match socket {
        Socket::Stream(stream) => {
            let addr = stream.peer_address()?;
            Ok(native(stream.domain(), addr))
        }
        Socket::Datagram(datagram) => datagram.peer_address().map(SockAddr::from),
    }
}

/// The address as sockets of the family `domain` name it: IPv4 is mapped into
/// IPv6.
fn native(domain: c_int, addr: SockAddr) -> SockAddr {
    match addr.ip() {
        Some(IpAddr::V4(ip)) if domain == libc::AF_INET6 => {
            SockAddr::v6(ip.to_ipv6_mapped(), addr.port(), 0)
        }
        _ => addr,
    }
}
