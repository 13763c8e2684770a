//! The functions of `<rdma/rsocket.h>`: sockets over RDMA.
//!
//! The names are there so that every program that needs this library loads;
//! those listed as stubs fail with `ENOSYS`.

// A stub names its parameters only for the generated header.
#![allow(unused_variables)]

use std::ffi::{c_int, c_long, c_void};

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t,
    ssize_t, timeval,
};

use super::argument::enter;
use super::convert::respond;
use crate::error::{Error, Result};

/// Lists the functions that are not implemented: one place for the code, the
/// log and the status matrix of the documentation. A variant that no function
/// uses is dead code, so the list cannot outlive its stubs.
macro_rules! stubs {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Stub {
            $($name,)*
        }

        impl Stub {
            const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        /// The exported functions that fail with `ENOSYS` whatever they are
        /// given.
        pub const NOT_IMPLEMENTED: &[&str] = &[$(stringify!($name)),*];
    };
}

stubs! {
    rsocket rbind rlisten raccept rconnect rshutdown rclose
    rrecv rrecvfrom rrecvmsg rsend rsendto rsendmsg
    rread rreadv rwrite rwritev
    rpoll rselect
    rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl
    riomap riounmap riowrite
    repoll_create repoll_ctl repoll_wait
}

impl Stub {
    /// Fails as a function does that is not there.
    fn refuse<T>(self) -> Result<T> {
        enter(self.name());
        Err(Error::new(
            libc::ENOSYS,
            "sockets over RDMA are not implemented",
        ))
    }

    fn status(self) -> c_int {
        respond::<()>(self.name(), self.refuse())
    }

    fn length(self) -> ssize_t {
        respond::<ssize_t>(self.name(), self.refuse())
    }
}

/// Creates a socket over RDMA.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsocket(domain: c_int, r#type: c_int, protocol: c_int) -> c_int {
    Stub::rsocket.status()
}

/// Binds a socket to a local address.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    Stub::rbind.status()
}

/// Makes a socket accept connections.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    Stub::rlisten.status()
}

/// Accepts a connection; `addr` and `addrlen` may be NULL.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    Stub::raccept.status()
}

/// Connects a socket.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    addrlen: socklen_t,
) -> c_int {
    Stub::rconnect.status()
}

/// Ends one or both directions of a connection.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    Stub::rshutdown.status()
}

/// Closes a socket.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    Stub::rclose.status()
}

/// Receives data.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    Stub::rrecv.length()
}

/// Receives data and the sender's address.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    Stub::rrecvfrom.length()
}

/// Receives a message.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    Stub::rrecvmsg.length()
}

/// Sends data.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    Stub::rsend.length()
}

/// Sends data to an address.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    Stub::rsendto.length()
}

/// Sends a message.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    Stub::rsendmsg.length()
}

/// Reads data.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    Stub::rread.length()
}

/// Reads data into several buffers.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    Stub::rreadv.length()
}

/// Writes data.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    Stub::rwrite.length()
}

/// Writes data from several buffers.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    Stub::rwritev.length()
}

/// Waits for events on sockets over RDMA and ordinary descriptors.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    Stub::rpoll.status()
}

/// Waits for events on sockets over RDMA and ordinary descriptors.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    Stub::rselect.status()
}

/// Gets the remote address.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    Stub::rgetpeername.status()
}

/// Gets the local address.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    Stub::rgetsockname.status()
}

/// Sets an option.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    Stub::rsetsockopt.status()
}

/// Gets an option.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    Stub::rgetsockopt.status()
}

/// Gets or sets the flags of a socket. In C the third argument is optional:
/// `int rfcntl(int socket, int cmd, ...)`.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    Stub::rfcntl.status()
}

/// Registers memory that the peer may write to with `riowrite`; returns its
/// offset.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> off_t {
    Stub::riomap.length() as off_t
}

/// Withdraws memory registered with `riomap`.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    Stub::riounmap.status()
}

/// Writes into memory that the peer registered with `riomap`.
///
/// Not implemented yet: returns `(size_t)-1` with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    Stub::riowrite.length() as size_t
}

/// Creates an epoll set for sockets over RDMA and ordinary descriptors.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    Stub::repoll_create.status()
}

/// Adds, changes or removes a descriptor of an epoll set.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    Stub::repoll_ctl.status()
}

/// Waits for events on an epoll set.
///
/// Not implemented yet: returns -1 with errno `ENOSYS`.
///
/// # Safety
/// The arguments are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    Stub::repoll_wait.status()
}
