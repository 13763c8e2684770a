//! The functions that are replaced: those that the program would have called
//! without this library, of the C library or of another preloaded one. Each is
//! looked up at its first call and called with the caller's arguments.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, pthread_attr_t,
    pthread_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

/// A function's address, once known.
pub struct Address(AtomicPtr<c_void>);

impl Address {
    /// Not known yet.
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The address of the symbol `name` as `handle` has it; null if there is
    /// none, and then `errno` is `ENOSYS`.
    pub fn get(&self, handle: *mut c_void, name: &CStr) -> *mut c_void {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a handle of the dynamic loader and a string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        self.0.store(found, Ordering::Release);
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        found
    }
}

/// Sets `errno`.
pub fn set_errno(errno: c_int) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}

/// What a call returns that fails with `errno`.
pub fn fail(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// Defines functions that find the one of their name in `$handle` and let
/// `$run` call it. Without such a function they return -1.
macro_rules! forward {
    ($handle:expr, $run:path; $($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            /// The function of this name.
            ///
            /// # Safety
            /// As its manual page says.
            pub unsafe fn $name($($argument: $type),*) -> $result {
                static ADDRESS: $crate::next::Address = $crate::next::Address::unknown();
                const NAME: &std::ffi::CStr =
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    };
                let address = ADDRESS.get($handle, NAME);
                if address.is_null() {
                    return -1;
                }
                // SAFETY: a function of that name has that signature.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut std::ffi::c_void,
                        unsafe extern "C" fn($($type),*) -> $result,
                    >(address)
                };
                // SAFETY: the caller vouches for the arguments.
                $run(|| unsafe { function($($argument),*) })
            }
        )*
    };
}
pub(crate) use forward;

fn directly<R>(call: impl FnOnce() -> R) -> R {
    call()
}

forward! {
    libc::RTLD_NEXT, directly;
    __longjmp_chk(place: *mut c_void, value: c_int) -> c_int;
    _longjmp(place: *mut c_void, value: c_int) -> c_int;
    accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: u32, last: u32, flags: c_int) -> c_int;
    connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    fclose(stream: *mut FILE) -> c_int;
    getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    longjmp(place: *mut c_void, value: c_int) -> c_int;
    poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(entries: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    pthread_create(thread: *mut pthread_t, attr: *const pthread_attr_t, start: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) -> c_int;
    read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec) -> c_int;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendfile(out: c_int, source: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    siglongjmp(place: *mut c_void, value: c_int) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
}

/// Defines functions with a variable argument, which is a number or a pointer.
macro_rules! forward_variadic {
    ($($name:ident($command:ty) = $symbol:literal;)*) => {
        $(
            /// The function of this name.
            ///
            /// # Safety
            /// As its manual page says.
            pub unsafe fn $name(fd: c_int, command: $command, argument: *mut c_void) -> c_int {
                static ADDRESS: Address = Address::unknown();
                let address = ADDRESS.get(libc::RTLD_NEXT, $symbol);
                if address.is_null() {
                    return -1;
                }
                // SAFETY: a function of that name has that signature.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn(c_int, $command, ...) -> c_int,
                    >(address)
                };
                // SAFETY: the caller vouches for the arguments.
                unsafe { function(fd, command, argument) }
            }
        )*
    };
}

forward_variadic! {
    fcntl(c_int) = c"fcntl";
    ioctl(std::ffi::c_ulong) = c"ioctl";
}
