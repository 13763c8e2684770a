//! Options, flags and names. What is set is set on the kernel's socket as
//! well, so that it can take over.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use crate::{connect, next, rdmacm, sockets, table};

/// Most bytes that `FIONREAD` counts.
const MOST_COUNTED: usize = 1 << 16;

/// Whether an option is one that sockets over RDMA do not have.
fn is_unknown(errno: c_int) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::ENOPROTOOPT)
}

/// Whether an option of TCP has no effect over RDMA, where it can be set all the
/// same: its value is that of the kernel's socket.
fn is_kernels(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_TCP
        && matches!(
            name,
            libc::TCP_CONGESTION | libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL
        )
}

/// `setsockopt(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller's value.
    let by_kernel = || unsafe { next::setsockopt(fd, level, name, value, len) };
    let Some(socket) = table::find(fd) else {
        return by_kernel();
    };
    // SAFETY: as above.
    let status = unsafe { rdmacm::rsetsockopt(socket, level, name, value, len) };
    let errno = next::errno();
    let kernels = by_kernel();
    if status != 0 && is_unknown(errno) {
        return kernels;
    }
    next::set_errno(errno);
    status
}

/// Whether the room for what is asked for is negative, and then `errno` is
/// `EINVAL`, as the kernel, to which it is signed, has it.
///
/// # Safety
/// `len` is null or readable.
unsafe fn is_negative(len: *const socklen_t) -> bool {
    // SAFETY: the caller vouches for it.
    let negative = unsafe { len.as_ref() }.is_some_and(|len| len.cast_signed() < 0);
    if negative {
        next::set_errno(libc::EINVAL);
    }
    negative
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if let Some(socket) = table::find(fd)
        && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
    {
        connect::settle(fd, socket);
        let error = connect::take_error(socket);
        // SAFETY: the caller's room for a number, if it is that.
        if error != 0 && !value.is_null() && unsafe { len.as_ref() } >= Some(&4) {
            // SAFETY: as above.
            unsafe { value.cast::<c_int>().write_unaligned(error) };
            return 0;
        }
    }
    // The attempt to connect may have gone over to the kernel.
    if let Some(socket) = table::find(fd).filter(|_| !is_kernels(level, name)) {
        // SAFETY: the caller's.
        if unsafe { is_negative(len) } {
            return -1;
        }
        // SAFETY: the caller's room.
        let status = unsafe { rdmacm::rgetsockopt(socket, level, name, value, len) };
        if status == 0 || !is_unknown(next::errno()) {
            return status;
        }
    }
    // SAFETY: as above.
    unsafe { next::getsockopt(fd, level, name, value, len) }
}

/// `getsockname(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match table::find(fd) {
        // SAFETY: the caller's.
        Some(_) if unsafe { is_negative(len) } => -1,
        // SAFETY: the caller's room.
        Some(socket) => unsafe { rdmacm::rgetsockname(socket, addr, len) },
        // SAFETY: as above.
        None => unsafe { next::getsockname(fd, addr, len) },
    }
}

/// `getpeername(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match table::find(fd) {
        // SAFETY: the caller's.
        Some(_) if unsafe { is_negative(len) } => -1,
        // SAFETY: the caller's room.
        Some(socket) => unsafe { rdmacm::rgetpeername(socket, addr, len) },
        // SAFETY: as above.
        None => unsafe { next::getpeername(fd, addr, len) },
    }
}

/// `fcntl(2)`. The argument is a number or a pointer, which are passed alike
/// on the machines that Linux runs on.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's argument.
    let result = unsafe { next::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => sockets::share(fd, result),
        libc::F_SETFL if result == 0 => {
            if let Some(socket) = table::find(fd) {
                // SAFETY: a number.
                return unsafe { rdmacm::rfcntl(socket, command, argument as c_long) };
            }
            result
        }
        _ => result,
    }
}

/// `fcntl64`, which is `fcntl` where offsets have 64 bits.
///
/// # Safety
/// As the original.
#[cfg(target_pointer_width = "64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { fcntl(fd, command, argument) }
}

/// `ioctl(2)`: whether calls wait, and how much can be read; the rest is the
/// kernel's socket's.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(socket) = table::find(fd) else {
        // SAFETY: the caller's argument.
        return unsafe { next::ioctl(fd, request, argument) };
    };
    let number = argument.cast::<c_int>();
    if request == libc::FIONREAD && !number.is_null() {
        let unread = unread(socket);
        // SAFETY: the caller's room for a number.
        unsafe { number.write_unaligned(unread) };
        return 0;
    }
    // SAFETY: the caller's argument.
    let status = unsafe { next::ioctl(fd, request, argument) };
    if request == libc::FIONBIO && status == 0 {
        // SAFETY: the kernel has read it.
        let on = unsafe { number.read_unaligned() } != 0;
        let flags = if on { libc::O_NONBLOCK } else { 0 };
        // SAFETY: a number.
        unsafe { rdmacm::rfcntl(socket, libc::F_SETFL, flags.into()) };
    }
    status
}

/// Bytes that can be read at once, as far as they are counted.
fn unread(socket: c_int) -> c_int {
    let mut buffer = vec![0u8; MOST_COUNTED];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for so many bytes.
    let count = unsafe { rdmacm::rrecv(socket, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    c_int::try_from(count.max(0)).unwrap_or(0)
}
