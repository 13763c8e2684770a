//! Calls that wait and are interrupted by a signal: whether they go on, as those
//! of the kernel do if the signal's handler was set with `SA_RESTART`.
//!
//! Which signal it was, nobody tells. A call goes on if it can only have been one
//! of those.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{sigset_t, socklen_t, timeval};

use crate::{next, rdmacm};

/// Makes a call on a socket over RDMA, again after signals that have it so.
pub fn restarting<T>(socket: c_int, mut call: impl FnMut() -> T) -> T
where
    T: PartialEq + From<i8>,
{
    loop {
        let result = call();
        let interrupted = result == T::from(-1) && next::errno() == libc::EINTR;
        if !interrupted || is_limited(socket) || !handlers_restart() {
            return result;
        }
    }
}

/// Whether a time limit is set, with which the kernel restarts nothing. `errno`
/// stays as it is.
fn is_limited(socket: c_int) -> bool {
    let errno = next::errno();
    let limited = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO]
        .into_iter()
        .any(|name| {
            let mut limit = timeval {
                tv_sec: 0,
                tv_usec: 0,
            };
            let mut room = size_of::<timeval>() as socklen_t;
            let value: *mut timeval = &mut limit;
            // SAFETY: room for a time.
            unsafe {
                rdmacm::rgetsockopt(
                    socket,
                    libc::SOL_SOCKET,
                    name,
                    value.cast::<c_void>(),
                    &mut room,
                )
            };
            (limit.tv_sec, limit.tv_usec) != (0, 0)
        });
    next::set_errno(errno);
    limited
}

/// What a thread does to itself, and not while it waits.
const FAULTS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// Whether all handlers that the calling thread can have run ask for a restart.
/// `errno` stays as it is.
fn handlers_restart() -> bool {
    let errno = next::errno();
    // SAFETY: plain data.
    let mut blocked: sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for a mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut blocked) };
    let mut signals = (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal));
    let restart = signals.all(|signal| {
        // SAFETY: plain data.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a mask; room for an action.
        let handled = unsafe {
            libc::sigismember(&blocked, signal) == 0
                && libc::sigaction(signal, ptr::null(), &mut action) == 0
        };
        let ignored = [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || ignored || action.sa_flags & libc::SA_RESTART != 0
    });
    next::set_errno(errno);
    restart
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: c_int) {}

    fn handle(flags: c_int) {
        // SAFETY: plain data.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        action.sa_flags = flags;
        // SAFETY: an action.
        let status = unsafe { libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()) };
        assert_eq!(status, 0);
    }

    #[test]
    fn one_handler_without_restart_is_enough() {
        handle(libc::SA_RESTART);
        assert!(handlers_restart());
        handle(0);
        assert!(!handlers_restart());
        // SAFETY: masks of this thread.
        unsafe {
            let mut mask: sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut mask, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &mask, ptr::null_mut());
        }
        assert!(handlers_restart());
    }
}
