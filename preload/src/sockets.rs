//! Descriptors that come and go: `socket`, `accept`, `close`, `dup` and their
//! variants.

use std::ffi::c_int;

use libc::{FILE, sockaddr, socklen_t};

use crate::config::{AF_IB, Config};
use crate::fork::{self, State};
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::restart::restarting;
use crate::{connect, inside, next, number, rdmacm, sets, table};

/// Level of the options of sockets over RDMA, and their names.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;

/// `socket(2)`: a socket of the kernel, with one over RDMA behind it if it is
/// to have one and that can be made.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if inside::is_inside() || !Config::get().wants(domain, kind, protocol) {
        // SAFETY: no pointers.
        return unsafe { next::socket(domain, kind, protocol) };
    }
    let kind_alone = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if fork::is_wanted() && domain != AF_IB && kind_alone == libc::SOCK_STREAM {
        // SAFETY: no pointers.
        let fd = unsafe { next::socket(domain, kind, protocol) };
        return fork::note(fd, State::New);
    }
    let family = if domain == AF_IB {
        libc::AF_INET6
    } else {
        domain
    };
    // SAFETY: no pointers.
    let fd = unsafe { next::socket(family, kind, protocol) };
    if fd < 0 {
        return fd;
    }
    // Another program that is executed could not use it.
    // SAFETY: no pointers.
    let socket = unsafe { rdmacm::rsocket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    if socket < 0 {
        if domain != AF_IB {
            return fd;
        }
        return give_up(fd);
    }
    configure(socket);
    attach(fd, socket)
}

/// Closes a descriptor that was just made, and returns -1 with `errno` as it is.
fn give_up(fd: c_int) -> c_int {
    let errno = next::errno();
    // SAFETY: nobody else knows it yet.
    unsafe { next::close(fd) };
    next::set_errno(errno);
    -1
}

/// Sets what the environment says of a new socket.
fn configure(socket: c_int) {
    let config = Config::get();
    for (name, value) in [
        (RDMA_SQSIZE, config.send_queue),
        (RDMA_RQSIZE, config.receive_queue),
        (RDMA_INLINE, config.inline),
    ] {
        if value != 0 {
            number::set(rdmacm::rsetsockopt, socket, SOL_RDMA, name, value);
        }
    }
}

/// Puts a socket behind a descriptor that was just made, which is returned.
pub fn attach(fd: c_int, socket: c_int) -> c_int {
    release(fd);
    if table::insert(fd, socket) {
        end_in_order();
        return fd;
    }
    // SAFETY: no pointers.
    unsafe { rdmacm::rclose(socket) };
    next::set_errno(libc::EMFILE);
    give_up(fd)
}

/// Sees to it that connections which are open when the program exits end like
/// those of the kernel: the peer gets all that was sent, and its end.
fn end_in_order() {
    extern "C" fn at_exit() {
        if table::is_ours() {
            for socket in table::range(0, u32::MAX).filter_map(table::find) {
                // All end at the same time: librdmacm has the exit wait until what
                // was sent has arrived.
                // SAFETY: numbers. Of a parent's only this process's copy goes.
                unsafe {
                    rdmacm::rfcntl(socket, libc::F_SETFL, libc::O_NONBLOCK.into());
                    rdmacm::rclose(socket);
                }
            }
        }
    }
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Ordering::Relaxed) {
        // If it cannot be asked for, peers see a reset.
        // SAFETY: this library is not unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Takes away the socket behind a descriptor that the program closes.
fn release(fd: c_int) {
    if table::find(fd).is_some()
        && table::is_ours()
        && let Some(removed) = table::remove(fd)
        && removed.last
    {
        connect::forget(removed.socket);
        sets::forget(removed.socket);
        // SAFETY: no pointers.
        unsafe { rdmacm::rclose(removed.socket) };
    }
}

/// As [`release`], for a descriptor that may also be one of an epoll set.
fn leave(fd: c_int) {
    if inside::is_inside() {
        return;
    }
    release(fd);
    fork::forget(fd);
    sets::close(fd);
}

/// Puts the socket behind `fd`, if there is one, behind its duplicate as well;
/// returns the duplicate.
pub fn share(fd: c_int, duplicate: c_int) -> c_int {
    match table::find(fd) {
        Some(socket) if duplicate >= 0 && table::is_ours() => attach(duplicate, socket),
        _ => duplicate,
    }
}

/// Notes of what the kernel accepted whether it is to go over to RDMA.
fn noted(listener: c_int, accepted: c_int) -> c_int {
    match fork::state(listener) {
        Some(State::Listening) => fork::note(accepted, State::Passive),
        _ => accepted,
    }
}

/// `accept(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    match table::find(fd) {
        // SAFETY: the caller's pointers.
        Some(listener) => unsafe { accept_behind(fd, listener, addr, len, 0) },
        // SAFETY: as above.
        None => noted(fd, unsafe { next::accept(fd, addr, len) }),
    }
}

/// `accept4(2)`.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    match table::find(fd) {
        // SAFETY: the caller's pointers.
        Some(listener) => unsafe { accept_behind(fd, listener, addr, len, flags) },
        // SAFETY: as above.
        None => noted(fd, unsafe { next::accept4(fd, addr, len, flags) }),
    }
}

/// # Safety
/// `addr` and `len` as for `accept(2)`.
unsafe fn accept_behind(
    fd: c_int,
    listener: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // If the kernel cannot say, any domain will do.
    let (level, name, any) = (libc::SOL_SOCKET, libc::SO_DOMAIN, libc::AF_INET6);
    let domain = number::get(next::getsockopt, fd, level, name, any);
    // SAFETY: no pointers.
    let front = unsafe { next::socket(domain, libc::SOCK_STREAM | flags, 0) };
    if front < 0 {
        return front;
    }
    // SAFETY: the caller's pointers.
    let socket = restarting(listener, || unsafe { rdmacm::raccept(listener, addr, len) });
    if socket < 0 {
        return give_up(front);
    }
    // SAFETY: numbers.
    unsafe {
        rdmacm::rfcntl(socket, libc::F_SETFD, libc::FD_CLOEXEC.into());
        if flags & libc::SOCK_NONBLOCK != 0 {
            rdmacm::rfcntl(socket, libc::F_SETFL, libc::O_NONBLOCK.into());
        }
    }
    attach(front, socket)
}

/// `close(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    leave(fd);
    // SAFETY: no pointers.
    unsafe { next::close(fd) }
}

/// `fclose(3)`, which closes a descriptor on its own.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: the caller's stream.
        leave(unsafe { libc::fileno(stream) });
    }
    // SAFETY: as above.
    unsafe { next::fclose(stream) }
}

/// `close_range(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC.cast_signed() == 0 {
        table::range(first, last).for_each(leave);
    }
    // SAFETY: no pointers.
    unsafe { next::close_range(first, last, flags) }
}

/// `closefrom(3)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: no pointers.
    unsafe { close_range(first.max(0).cast_unsigned(), u32::MAX, 0) };
}

/// `dup(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: no pointers.
    share(fd, unsafe { next::dup(fd) })
}

/// `dup2(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: no pointers.
    duplicate_to(fd, to, || unsafe { next::dup2(fd, to) })
}

/// `dup3(2)`.
///
/// # Safety
/// It takes no pointers.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: no pointers.
    duplicate_to(fd, to, || unsafe { next::dup3(fd, to, flags) })
}

fn duplicate_to(fd: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // A connection that is to go over to RDMA does so now.
    fork::find(fd);
    let duplicate = call();
    if duplicate < 0 || fd == to {
        return duplicate;
    }
    leave(to);
    share(fd, duplicate)
}
