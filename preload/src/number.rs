//! Options whose value is a number, of the kernel's sockets and of those over
//! RDMA, whose functions have the same arguments.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

/// `getsockopt` or `rgetsockopt`.
type Get = unsafe fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
/// `setsockopt` or `rsetsockopt`.
type Set = unsafe fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;

const LENGTH: socklen_t = size_of::<c_int>() as socklen_t;

/// An option of `socket`; `default` if it cannot be had.
pub fn get(by: Get, socket: c_int, level: c_int, name: c_int, default: c_int) -> c_int {
    let (mut number, mut room) = (default, LENGTH);
    let value: *mut c_int = &mut number;
    // SAFETY: room for a number.
    unsafe { by(socket, level, name, value.cast(), &mut room) };
    number
}

/// Sets an option of `socket`. One that is refused has no effect.
pub fn set(by: Set, socket: c_int, level: c_int, name: c_int, number: c_int) {
    let value: *const c_int = &number;
    // SAFETY: a number of that length.
    unsafe { by(socket, level, name, value.cast(), LENGTH) };
}
