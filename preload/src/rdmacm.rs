//! The functions of `<rdma/rsocket.h>` that are used. librdmacm is loaded when
//! the first of them is called: a program that makes no socket never has it.

use std::ffi::{c_int, c_long, c_void};
use std::thread;

use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

use once_cell::race::OnceBox;

use crate::children::{AcrossFork, Held};
use crate::inside;
use crate::lock::atomic::{AtomicUsize, Ordering};
use crate::lock::{Mutex, MutexGuard, locked};
use crate::next::forward;

/// A handle of the dynamic loader, or null without the library.
struct Handle(*mut c_void);

// SAFETY: a handle may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

/// The library once it is loaded, and the forks that wait for that or are under way.
///
/// Held while it is loaded: a child of a fork in the middle of that could do nothing
/// with what the dynamic loader has of it. A fork that waited for it has passed the
/// library's own preparations for forks, which are known only since. So nobody calls
/// the library before that fork is over.
pub struct Loading {
    library: Mutex<Option<Handle>>,
    forks: AtomicUsize,
}

/// Of this process.
pub static LOADING: Loading = Loading {
    library: Mutex::new(None),
    forks: AtomicUsize::new(0),
};

/// A fork that holds [`LOADING`].
struct Forking {
    _library: MutexGuard<'static, Option<Handle>>,
}

impl Drop for Forking {
    fn drop(&mut self) {
        LOADING.forks.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AcrossFork for Loading {
    fn hold(&'static self) -> Held {
        self.forks.fetch_add(1, Ordering::SeqCst);
        Box::new(Forking {
            _library: locked(&self.library),
        })
    }
}

fn library() -> *mut c_void {
    static LIBRARY: OnceBox<Handle> = OnceBox::new();
    if let Some(handle) = LIBRARY.get() {
        return handle.0;
    }
    loop {
        let mut loading = locked(&LOADING.library);
        let library = loading.get_or_insert_with(|| Handle(load())).0;
        if LOADING.forks.load(Ordering::SeqCst) == 0 {
            return LIBRARY.get_or_init(|| Box::new(Handle(library))).0;
        }
        drop(loading);
        // It is the fork's turn to take it.
        thread::yield_now();
    }
}

fn load() -> *mut c_void {
    let (name, flags) = (c"librdmacm.so.1", libc::RTLD_NOW | libc::RTLD_LOCAL);
    // SAFETY: the library's constructors expect nothing.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if library.is_null() {
        return library;
    }
    // From its first call on it sees to forks, which is to be before any thread is in it
    // that a fork could hit: so this is one that makes nothing.
    // SAFETY: a name.
    let rsocket = unsafe { libc::dlsym(library, c"rsocket".as_ptr()) };
    if !rsocket.is_null() {
        type Create = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
        // SAFETY: it has that type, as rsocket(3) says, and no such family.
        unsafe { std::mem::transmute::<*mut c_void, Create>(rsocket)(-1, 0, 0) };
    }
    library
}

/// Where symbols are looked up: without the library in nothing that could have
/// them.
fn handle() -> *mut c_void {
    let library = inside::enter(library);
    if library.is_null() {
        return libc::RTLD_NEXT;
    }
    library
}

forward! {
    handle(), inside::enter;
    raccept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    rbind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    rclose(fd: c_int) -> c_int;
    rconnect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    repoll_create(flags: c_int) -> c_int;
    repoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    repoll_wait(set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    rfcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    rgetpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    rgetsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    rlisten(fd: c_int, backlog: c_int) -> c_int;
    rpoll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    rread(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    rreadv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    rrecv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    rrecvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    rsend(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    rsendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t;
    rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    rshutdown(fd: c_int, how: c_int) -> c_int;
    rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    rwrite(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    rwritev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
}
