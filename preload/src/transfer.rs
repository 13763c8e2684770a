//! Sending and receiving.

use std::ffi::{c_int, c_void};

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::restart::restarting;
use crate::{connect, fork, next, rdmacm};

/// Bytes of a file that are sent at once.
const FILE_PIECE: usize = 1 << 16;

/// Defines calls that do the same on either kind of socket.
macro_rules! transfer {
    ($($name:ident = $over_rdma:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// The call of this name.
            ///
            /// # Safety
            /// As the original.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> $result {
                match fork::find(fd) {
                    Some(socket) => restarting(socket, || {
                        // SAFETY: the caller's arguments.
                        unsafe { rdmacm::$over_rdma(socket, $($argument),*) }
                    }),
                    // SAFETY: as above.
                    None => unsafe { next::$name(fd, $($argument),*) },
                }
            }
        )*
    };
}

transfer! {
    read = rread(buf: *mut c_void, len: size_t) -> ssize_t;
    recv = rrecv(buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom = rrecvfrom(buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    send = rsend(buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    shutdown = rshutdown(how: c_int) -> c_int;
    write = rwrite(buf: *const c_void, len: size_t) -> ssize_t;
}

/// Whether a call over RDMA has no more buffers than one of the kernel may have,
/// `errno` being `refusal` if not.
fn is_possible(count: usize, refusal: c_int) -> bool {
    let possible = count <= libc::UIO_MAXIOV as usize;
    if !possible {
        next::set_errno(refusal);
    }
    possible
}

/// Defines calls that do the same with several buffers.
macro_rules! vectored {
    ($($name:ident = $over_rdma:ident;)*) => {
        $(
            /// The call of this name.
            ///
            /// # Safety
            /// As the original.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
                match fork::find(fd) {
                    Some(_) if !is_possible(count.max(0) as usize, libc::EINVAL) => -1,
                    Some(socket) => restarting(socket, || {
                        // SAFETY: the caller's arguments.
                        unsafe { rdmacm::$over_rdma(socket, vectors, count) }
                    }),
                    // SAFETY: as above.
                    None => unsafe { next::$name(fd, vectors, count) },
                }
            }
        )*
    };
}

vectored! {
    readv = rreadv;
    writev = rwritev;
}

/// `recvmsg(2)`: there is no control data over RDMA.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(socket) = fork::find(fd) else {
        // SAFETY: the caller's message.
        return unsafe { next::recvmsg(fd, message, flags) };
    };
    // SAFETY: null or the caller's.
    if let Some(message) = unsafe { message.as_mut() } {
        if !is_possible(message.msg_iovlen, libc::EMSGSIZE) {
            return -1;
        }
        message.msg_controllen = 0;
    }
    // SAFETY: the caller's message.
    restarting(socket, || unsafe {
        rdmacm::rrecvmsg(socket, message, flags)
    })
}

/// Sends by RDMA; a datagram to where RDMA does not reach makes the socket one
/// of the kernel.
fn or_fall_back(
    fd: c_int,
    over_rdma: impl Fn(c_int) -> ssize_t,
    by_kernel: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if let Some(socket) = fork::find(fd) {
        let sent = restarting(socket, || over_rdma(socket));
        if sent >= 0 || !connect::is_refusal(next::errno()) {
            return sent;
        }
        connect::fall_back(socket);
    }
    by_kernel()
}

/// `sendto(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    or_fall_back(
        fd,
        // SAFETY: the caller's arguments.
        |socket| unsafe {
            let sent = rdmacm::rsendto(socket, buf, len, flags, addr, addr_len);
            if sent >= 0 || next::errno() != libc::EISCONN {
                return sent;
            }
            // A stream, for which TCP takes no notice of an address.
            rdmacm::rsend(socket, buf, len, flags)
        },
        // SAFETY: as above.
        || unsafe { next::sendto(fd, buf, len, flags, addr, addr_len) },
    )
}

/// `sendmsg(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    or_fall_back(
        fd,
        |socket| {
            // SAFETY: null or the caller's.
            let count = unsafe { message.as_ref() }.map_or(0, |message| message.msg_iovlen);
            if !is_possible(count, libc::EMSGSIZE) {
                return -1;
            }
            // SAFETY: the caller's arguments.
            unsafe { rdmacm::rsendmsg(socket, message, flags) }
        },
        // SAFETY: as above.
        || unsafe { next::sendmsg(fd, message, flags) },
    )
}

/// `sendmmsg(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
) -> c_int {
    if fork::find(fd).is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { next::sendmmsg(fd, messages, count, flags) };
    }
    // SAFETY: the caller's messages.
    unsafe { each(messages, count, |message| sendmsg(fd, message, flags)) }
}

/// `recvmmsg(2)`: waits for the first message only, as with `MSG_WAITFORONE`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if fork::find(fd).is_none() {
        // SAFETY: the caller's arguments.
        return unsafe { next::recvmmsg(fd, messages, count, flags, timeout) };
    }
    let mut flags = flags & !libc::MSG_WAITFORONE;
    // SAFETY: the caller's messages.
    unsafe {
        each(messages, count, |message| {
            let received = recvmsg(fd, message, flags);
            flags |= libc::MSG_DONTWAIT;
            received
        })
    }
}

/// Handles messages until one fails; returns how many did not, -1 if none.
///
/// # Safety
/// `messages` points to `count` messages.
unsafe fn each(
    messages: *mut mmsghdr,
    count: u32,
    mut handle: impl FnMut(*mut msghdr) -> ssize_t,
) -> c_int {
    let mut done: c_int = 0;
    for index in 0..count as usize {
        // SAFETY: within the caller's messages.
        let message = unsafe { &mut *messages.add(index) };
        let length = handle(&mut message.msg_hdr);
        let Ok(length) = u32::try_from(length) else {
            return if done == 0 { -1 } else { done };
        };
        message.msg_len = length;
        done = done.saturating_add(1);
    }
    done
}

/// `sendfile(2)`: to a socket over RDMA by way of a buffer.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    source: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let Some(socket) = fork::find(out) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::sendfile(out, source, offset, count) };
    };
    // SAFETY: null or the caller's.
    let mut offset = unsafe { offset.as_mut() };
    let mut buffer = vec![0u8; count.min(FILE_PIECE)];
    let mut sent: usize = 0;
    while sent < count {
        let wanted = buffer.len().min(count.saturating_sub(sent));
        let start = match &offset {
            Some(offset) => **offset,
            // SAFETY: no pointers.
            None => unsafe { libc::lseek(source, 0, libc::SEEK_CUR) },
        };
        if start < 0 {
            // What has no places, such as a pipe, cannot be sent.
            if offset.is_some() || next::errno() == libc::ESPIPE {
                next::set_errno(libc::EINVAL);
            }
            break;
        }
        // SAFETY: room for so many bytes.
        let read = unsafe { libc::pread(source, buffer.as_mut_ptr().cast(), wanted, start) };
        let Ok(length) = usize::try_from(read) else {
            break;
        };
        if length == 0 {
            return sent as ssize_t;
        }
        // SAFETY: so many bytes were read.
        let written = restarting(socket, || unsafe {
            rdmacm::rwrite(socket, buffer.as_ptr().cast(), length)
        });
        let Ok(written) = usize::try_from(written) else {
            break;
        };
        let end = start.saturating_add(written as off_t);
        match &mut offset {
            Some(offset) => **offset = end,
            None => {
                // SAFETY: no pointers.
                unsafe { libc::lseek(source, end, libc::SEEK_SET) };
            }
        }
        sent = sent.saturating_add(written);
        if written < length {
            return sent as ssize_t;
        }
    }
    if sent == 0 && count > 0 {
        return -1;
    }
    sent as ssize_t
}

/// `sendfile64`, which is `sendfile` where offsets have 64 bits.
///
/// # Safety
/// As the original.
#[cfg(target_pointer_width = "64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendfile64(
    out: c_int,
    source: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { sendfile(out, source, offset, count) }
}

/// Ends the program if `len` bytes do not fit into `room`, as the C library
/// does in calls of programs that are compiled with `_FORTIFY_SOURCE`.
pub fn check(len: usize, room: usize) {
    if len > room {
        // SAFETY: it does not return.
        unsafe { libc::abort() };
    }
}

/// `read` of fortified programs.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's arguments.
    unsafe { read(fd, buf, len) }
}

/// `recv` of fortified programs.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's arguments.
    unsafe { recv(fd, buf, len, flags) }
}

/// `recvfrom` of fortified programs.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller's arguments.
    unsafe { recvfrom(fd, buf, len, flags, addr, addr_len) }
}
