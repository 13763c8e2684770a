//! The functions of `<rdma/rsocket.h>`: sockets over RDMA.

use std::ffi::{c_int, c_long, c_void};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::time::Duration;

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t,
    ssize_t, timeval,
};

use super::argument::{address, enter, optional_address, place};
use super::convert::respond;
use crate::abi::rsocket::{RDMA_ROUTE, SOL_RDMA};
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::rsocket::connection::Directions;
use crate::rsocket::epoll::Operation;
use crate::rsocket::mapping::Range;
use crate::rsocket::socket::Socket;
use crate::rsocket::vectors::Cursor;
use crate::rsocket::{datagram, epoll, option, poll, sockets};

fn operation(op: c_int) -> Result<Operation> {
    match op {
        libc::EPOLL_CTL_ADD => Ok(Operation::Add),
        libc::EPOLL_CTL_MOD => Ok(Operation::Modify),
        libc::EPOLL_CTL_DEL => Ok(Operation::Remove),
        _ => Err(Error::invalid("change an epoll set in an unknown way")),
    }
}

/// 64-bit words of a set.
const FD_SET_WORDS: usize = size_of::<fd_set>() / size_of::<u64>();

/// Copies what fits of `addr` and writes its length.
///
/// # Safety
/// `len` is valid, and `target` may be written for `*len` bytes.
unsafe fn copy_address(addr: &SockAddr, target: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: the caller vouches for the pointers.
    unsafe { copy_bytes(addr.as_bytes(), target.cast(), len) };
}

/// Copies what fits of `bytes`, and writes the whole length.
///
/// # Safety
/// As for [`copy_address`].
unsafe fn copy_bytes(bytes: &[u8], target: *mut u8, len: *mut socklen_t) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let fits = bytes.len().min(*len as usize);
        target.copy_from_nonoverlapping(bytes.as_ptr(), fits);
        *len = bytes.len() as socklen_t;
    }
}

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

/// # Safety
/// `buf` may be written for `len` bytes.
unsafe fn receive(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> Result<Taken> {
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
    socket: c_int,
    iov: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<Taken> {
    let socket = sockets::any(socket)?;
    // SAFETY: the caller vouches for the buffers.
    let mut target = unsafe { Cursor::new(vectors(iov, count)) };
    match &socket {
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
fn stream_peer(socket: c_int, taken: &Taken) -> Option<SockAddr> {
    let peer = || sockets::any(socket).and_then(|socket| sockets::peer_address(&socket));
    (taken.bytes > 0).then(peer)?.ok()
}

/// # Safety
/// `buf` may be read for `len` bytes.
unsafe fn send(
    socket: c_int,
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
    socket: c_int,
    iov: *const iovec,
    count: usize,
    flags: c_int,
    dest: Option<SockAddr>,
) -> Result<ssize_t> {
    let socket = sockets::any(socket)?;
    // SAFETY: the caller vouches for the buffers.
    let mut source = unsafe { Cursor::new(vectors(iov, count)) };
    let sent = match &socket {
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

/// An address that datagrams can be sent to.
fn datagram_address(addr: &SockAddr) -> Result<SocketAddr> {
    addr.to_socket_addr().ok_or(Error::new(
        libc::EAFNOSUPPORT,
        "use an InfiniBand address for datagrams",
    ))
}

/// Whether an address is of the family `AF_UNSPEC`.
///
/// # Safety
/// `addr` is null or readable for a family.
unsafe fn is_unspecified(addr: *const sockaddr) -> bool {
    // SAFETY: not null; the caller vouches for the rest.
    !addr.is_null() && unsafe { addr.cast::<u16>().read_unaligned() } == libc::AF_UNSPEC as u16
}

/// # Safety
/// `iov` is null or points to `count` vectors that live during `'a`.
unsafe fn vectors<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    if iov.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: not null; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(iov, count) }
}

/// # Safety
/// `fds` is null or points to `count` entries that nobody else uses during
/// `'a`.
unsafe fn pollfds<'a>(fds: *mut pollfd, count: nfds_t) -> Result<&'a mut [pollfd]> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 {
        return Ok(&mut []);
    }
    if fds.is_null() {
        return Err(Error::new(libc::EFAULT, "poll descriptors"));
    }
    if count > i32::MAX as usize {
        return Err(Error::invalid("poll so many descriptors"));
    }
    // SAFETY: not null; the caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(fds, count) })
}

/// A number of entries, which an `int` holds.
fn number(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// # Safety
/// Each pointer is null or valid.
unsafe fn select(nfds: c_int, sets: [*mut fd_set; 3], timeout: *mut timeval) -> Result<usize> {
    const STEP: &str = "select descriptors";
    let count = usize::try_from(nfds)
        .ok()
        .filter(|count| *count <= libc::FD_SETSIZE)
        .ok_or(Error::invalid(STEP))?;
    let timeout = if timeout.is_null() {
        None
    } else {
        // SAFETY: not null; the caller vouches for the rest.
        let limit = unsafe { timeout.read() };
        let seconds = u64::try_from(limit.tv_sec).map_err(|_| Error::invalid(STEP))?;
        let micros = u64::try_from(limit.tv_usec).map_err(|_| Error::invalid(STEP))?;
        Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
    };
    // SAFETY: a set is FD_SETSIZE bits in words; programs do not share it
    // during the call.
    let [read, write, except] = sets.map(|set| unsafe {
        (!set.is_null()).then(|| std::slice::from_raw_parts_mut(set.cast(), FD_SET_WORDS))
    });
    let mut sets = poll::Sets {
        read,
        write,
        except,
    };
    poll::select(count, &mut sets, timeout)
}

/// A range of memory; its length has 32 bits on the wire.
fn range(buf: *mut c_void, len: size_t) -> Result<Range> {
    let length = u32::try_from(len).map_err(|_| Error::invalid("map more than 4 GiB"))?;
    Ok(Range {
        addr: buf as u64,
        length,
    })
}

fn count_of(iovcnt: c_int) -> Result<usize> {
    usize::try_from(iovcnt).map_err(|_| Error::invalid("use a negative number of buffers"))
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
/// has not returned yet, further ones are refused.
///
/// Returns 0, or -1 with errno: `EBADF`, `EOPNOTSUPP` for datagrams, `EINVAL`
/// if it is connected, `EADDRINUSE`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
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
/// socket does not listen, `ENODEV` if its device was removed, `EAGAIN`, `EINTR`.
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
/// non-blocking; `rpoll` then reports `POLLOUT` in either case, and `SO_ERROR`
/// tells which. A datagram socket takes that address for its only peer, at once;
/// one of the family `AF_UNSPEC` undoes that.
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
/// it. Nothing happens without a connection.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` for an unknown `how`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
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
    respond("rclose", sockets::close(socket))
}

/// Receives data.
///
/// Blocks until there is some, unless the socket or the call (`MSG_DONTWAIT`) is
/// non-blocking; `MSG_PEEK` leaves the data, `MSG_WAITALL` waits for all of it.
///
/// Returns the number of bytes, 0 at the end of the stream, or -1 with errno:
/// `EBADF`, `ENOTCONN`, `EAGAIN`, `EINTR`, and once `ECONNRESET`, `ETIMEDOUT` or
/// `EIO` if the connection broke.
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
    let result = unsafe { receive(socket, buf, len, flags) };
    respond("rrecv", result.map(|taken| taken.count()))
}

/// Receives data and the sender's address, as `rrecv` does. Of a datagram that
/// does not fit the rest is lost; with `MSG_TRUNC` its whole length is returned.
/// `src_addr` and
/// `addrlen` may be NULL; they are left alone when there is no data.
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
    // SAFETY: the caller vouches for the buffer.
    let result = unsafe { receive(socket, buf, len, flags) };
    if let Ok(taken) = &result
        && !src_addr.is_null()
        && !addrlen.is_null()
        && let Some(source) = taken.source.or_else(|| stream_peer(socket, taken))
    {
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { copy_address(&source, src_addr, addrlen) };
    }
    respond("rrecvfrom", result.map(|taken| taken.count()))
}

/// Receives data into several buffers, as `rrecv` does. There is no control data
/// and, on a stream, no address: `msg_namelen`, `msg_controllen` and `msg_flags`
/// become 0. A datagram has an address, and `MSG_TRUNC` in `msg_flags` if it did
/// not fit.
///
/// `EINVAL` if `msg` is NULL.
///
/// # Safety
/// `msg` is NULL or valid, and so are its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    let result = place(msg, "receive a message").and_then(|mut msg| {
        // SAFETY: not null; the caller vouches for the rest.
        let msg = unsafe { msg.as_mut() };
        // SAFETY: the caller vouches for the buffers.
        let taken = unsafe { receive_vectors(socket, msg.msg_iov, msg.msg_iovlen, flags) }?;
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

/// Sends data.
///
/// Blocks until all of it is taken, unless the socket or the call
/// (`MSG_DONTWAIT`) is non-blocking. `EPIPE` comes with the signal `SIGPIPE` unless
/// `flags` holds `MSG_NOSIGNAL`.
///
/// Returns the number of bytes taken, or -1 with errno: `EBADF`, `ENOTCONN`,
/// `EAGAIN`, `EINTR`, `EPIPE` after a shutdown, `ECONNRESET` after the peer ended
/// the connection, once `ETIMEDOUT` or `EIO` if it broke.
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
    respond("rsend", unsafe { send(socket, buf, len, flags, None) })
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
        let dest = match found {
            Socket::Stream(_) if given => {
                return Err(Error::new(libc::EISCONN, "send to an address on a stream"));
            }
            Socket::Stream(_) => None,
            // SAFETY: the caller vouches for the address.
            Socket::Datagram(_) => unsafe { optional_address(dest_addr) }?,
        };
        // SAFETY: the caller vouches for the buffer.
        unsafe { send(socket, buf, len, flags, dest) }
    });
    respond("rsendto", result)
}

/// Sends data from several buffers, as `rsendto` does; on a stream, an address is
/// ignored. `ENOTSUP` with control data, `EINVAL` if `msg` is NULL.
///
/// # Safety
/// `msg` is NULL or valid, and so are its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    let result = place(msg.cast_mut(), "send a message").and_then(|msg| {
        // SAFETY: not null; the caller vouches for the rest.
        let msg = unsafe { msg.as_ref() };
        if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
            return Err(Error::new(libc::ENOTSUP, "send control data"));
        }
        let dest = match sockets::any(socket)? {
            Socket::Stream(_) => None,
            // SAFETY: the caller vouches for the address.
            Socket::Datagram(_) => unsafe { optional_address(msg.msg_name.cast()) }?,
        };
        // SAFETY: the caller vouches for the buffers.
        unsafe { send_vectors(socket, msg.msg_iov, msg.msg_iovlen, flags, dest) }
    });
    respond("rsendmsg", result)
}

/// Reads data, as `rrecv` without flags does.
///
/// # Safety
/// `buf` may be written for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    let result = unsafe { receive(socket, buf, count, 0) };
    respond("rread", result.map(|taken| taken.count()))
}

/// Reads data into several buffers, as `rrecv` without flags does; `EINVAL` for a
/// negative count.
///
/// # Safety
/// `iov` points to `iovcnt` valid buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let result = count_of(iovcnt).and_then(|count| {
        // SAFETY: the caller vouches for the buffers.
        unsafe { receive_vectors(socket, iov, count, 0) }
    });
    respond("rreadv", result.map(|taken| taken.count()))
}

/// Writes data, as `rsend` without flags does.
///
/// # Safety
/// `buf` may be read for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller vouches for the buffer.
    respond("rwrite", unsafe { send(socket, buf, count, 0, None) })
}

/// Writes data from several buffers, as `rsend` without flags does; `EINVAL` for
/// a negative count.
///
/// # Safety
/// `iov` points to `iovcnt` valid buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let result = count_of(iovcnt).and_then(|count| {
        // SAFETY: the caller vouches for the buffers.
        unsafe { send_vectors(socket, iov, count, 0, None) }
    });
    respond("rwritev", result)
}

/// Waits for events on sockets over RDMA and ordinary descriptors, as poll(2)
/// does; `timeout` is in milliseconds, negative for no limit, and never cut
/// short. A connection that was made or refused is `POLLOUT`, one to accept
/// `POLLIN`.
///
/// Returns the number of entries with events, 0 at the timeout, or -1 with errno:
/// `EINTR`, `EFAULT` if `fds` is NULL, `EINVAL` for too many entries, `ENOMEM`.
///
/// # Safety
/// `fds` points to `nfds` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller vouches for the entries.
    let result = unsafe { pollfds(fds, nfds) }.and_then(|entries| {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        poll::poll(entries, timeout)
    });
    respond("rpoll", result.map(number))
}

/// Waits for events on sockets over RDMA and ordinary descriptors below `nfds`,
/// as select(2) does. The sets may be NULL; `timeout` is NULL for no limit and not
/// changed.
///
/// Returns the number of bits that are set, 0 at the timeout, or -1 with errno
/// and the sets unchanged: `EBADF`, `EINTR`, `EINVAL` for a negative `nfds`, one
/// above `FD_SETSIZE` or an invalid timeout.
///
/// # Safety
/// Each pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller vouches for the pointers.
    let result = unsafe { select(nfds, [readfds, writefds, exceptfds], timeout) };
    respond("rselect", result.map(number))
}

/// Gets the remote address. As much as fits is written, and its length to
/// `*addrlen`.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` if a pointer is NULL, `ENOTCONN`.
///
/// # Safety
/// `addr` is NULL or may be written for `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let result = sockets::any(socket).and_then(|socket| {
        let found = sockets::peer_address(&socket)?;
        place(addr, "get an address")?;
        place(addrlen, "get an address")?;
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { copy_address(&found, addr, addrlen) };
        Ok(())
    });
    respond("rgetpeername", result)
}

/// Gets the local address. As much as fits is written, and its length to
/// `*addrlen`.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL` if a pointer is NULL.
///
/// # Safety
/// `addr` is NULL or may be written for `*addrlen` bytes; `addrlen` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    let result = sockets::any(socket).and_then(|socket| {
        let found = sockets::local_address(&socket)?;
        place(addr, "get an address")?;
        place(addrlen, "get an address")?;
        // SAFETY: not null; the caller vouches for the rest.
        unsafe { copy_address(&found, addr, addrlen) };
        Ok(())
    });
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
        // SAFETY: not null; the caller vouches for the length.
        let value = unsafe { std::slice::from_raw_parts(optval.cast(), optlen as usize) };
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
        let value = match socket {
            Socket::Stream(stream) => option::get(&stream, level, optname),
            Socket::Datagram(datagram) => datagram::option::get(&datagram, level, optname),
        }?;
        // SAFETY: not null; the caller vouches for the rest.
        let room = unsafe { *optlen } as usize;
        if (level, optname) == (SOL_RDMA, RDMA_ROUTE) && room < value.len() {
            return Err(Error::invalid("get a route into too little room"));
        }
        let fits = value.get(..room.min(value.len())).unwrap_or_default();
        // SAFETY: as above.
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

/// Registers memory that the peer may write to with `riowrite`, with `prot`
/// `PROT_WRITE`; with `PROT_NONE` it is only registered. `offset` is what the peer
/// calls it by, -1 stands for its address. `flags` is ignored. The peer can use it
/// once it has received data that was sent afterwards.
///
/// Returns the offset, or -1 with errno: `EBADF`, `EINVAL` for an unconnected
/// socket, another `prot` or more than 4 GiB, `ENOMEM` if the peer (by
/// `RDMA_IOMAPSIZE`) has no room for one more.
///
/// # Safety
/// `buf` is memory of `len` bytes until it is unmapped or the socket closed.
#[expect(unused_variables, reason = "no flag is defined")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> off_t {
    let result = sockets::stream(socket).and_then(|stream| {
        let write = match prot {
            libc::PROT_NONE => false,
            libc::PROT_WRITE => true,
            _ => return Err(Error::invalid("map memory with that protection")),
        };
        let range = range(buf, len)?;
        let offset = if offset == -1 {
            range.addr
        } else {
            offset.cast_unsigned()
        };
        stream.mappable()?.map(range, write, offset)?;
        // An address, and so never -1, or what the program gave.
        Ok(offset as ssize_t)
    });
    respond("riomap", result) as off_t
}

/// Withdraws memory registered with `riomap`; address and length must be the
/// same. The peer's writes fail that arrive afterwards.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    let result =
        sockets::stream(socket).and_then(|stream| stream.mappable()?.unmap(range(buf, len)?));
    respond("riounmap", result)
}

/// Writes into memory that the peer registered with `riomap`; blocks and flags as
/// for `rsend`. Data sent afterwards arrives afterwards.
///
/// Returns the number of bytes taken, less than `count` where a mapping ends, or
/// `(size_t)-1` with errno: `EFAULT` if the peer has registered nothing at
/// `offset`, or as for `rsend`.
///
/// # Safety
/// `buf` may be read for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let result = sockets::stream(socket).and_then(|stream| {
        let vector = [iovec {
            iov_base: buf.cast_mut(),
            iov_len: count,
        }];
        // SAFETY: the caller vouches for the buffer.
        let mut source = unsafe { Cursor::new(&vector) };
        let written = stream.write_mapped(&mut source, offset.cast_unsigned(), flags)?;
        // A cursor never counts more than fits.
        Ok(written as ssize_t)
    });
    respond("riowrite", result) as size_t
}

/// Creates an epoll set for sockets over RDMA and ordinary descriptors and returns
/// its descriptor, to be closed by `rclose`. `flags` may hold `EPOLL_CLOEXEC`;
/// other bits are ignored. See epoll(7).
///
/// Returns -1 with errno: `EMFILE`, `ENFILE`, `ENOMEM`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    enter("repoll_create");
    let result = epoll::create(flags & libc::EPOLL_CLOEXEC != 0);
    respond("repoll_create", result)
}

/// Adds, changes or removes a descriptor of an epoll set, as epoll_ctl(2) does.
/// A socket that is closed is removed.
///
/// Returns 0, or -1 with errno: `EBADF`, `EEXIST`, `ENOENT`, `EINVAL` for an
/// unknown `op`, a set in itself or what is no set, `EFAULT` without an `event`,
/// `EPERM` for a descriptor that cannot be waited for.
///
/// # Safety
/// `event` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let result = operation(op).and_then(|operation| {
        let nothing = epoll_event { events: 0, u64: 0 };
        let event = match (operation, NonNull::new(event)) {
            // SAFETY: not null; the caller vouches for the rest.
            (_, Some(event)) => unsafe { event.read_unaligned() },
            (Operation::Remove, None) => nothing,
            (_, None) => return Err(Error::new(libc::EFAULT, "change an epoll set")),
        };
        epoll::control(epfd, operation, fd, event)
    });
    respond("repoll_ctl", result)
}

/// Waits for events on an epoll set, as epoll_wait(2) does; `timeout` is in
/// milliseconds, negative for no limit.
///
/// Returns the number of events, 0 at the timeout, or -1 with errno: `EBADF`,
/// `EINVAL` for what is no set or a `maxevents` that is not positive, `EFAULT` if
/// `events` is NULL, `EINTR`.
///
/// # Safety
/// `events` is NULL or has room for `maxevents` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    let result = usize::try_from(maxevents)
        .ok()
        .filter(|count| *count > 0)
        .ok_or(Error::invalid("wait for no events"))
        .and_then(|count| {
            if events.is_null() {
                return Err(Error::new(libc::EFAULT, "wait on an epoll set"));
            }
            // SAFETY: not null; the caller vouches for the rest.
            let events = unsafe { std::slice::from_raw_parts_mut(events, count) };
            epoll::wait(epfd, events, timeout)
        });
    respond("repoll_wait", result.map(number))
}
