//! Threads of the library's own. They take none of the program's signals, whose
//! handlers expect to run on threads that the program knows.

use std::thread::Builder;

use crate::error::{Error, Result};

/// Starts a thread with all signals blocked.
///
/// # Errors
/// `EAGAIN` and `ENOMEM` if there can be no more threads.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    let builder = Builder::new().name(name.to_owned());
    with_signals_blocked(|| builder.spawn(body))
        .map(drop)
        .map_err(|error| Error::from_io(&error, "start a thread"))
}

/// Blocks all signals of the calling thread, which new threads inherit, while
/// `action` runs.
fn with_signals_blocked<T>(action: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain memory, initialised by sigfillset and the
    // first pthread_sigmask, neither of which can fail with these arguments.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = action();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Whether the calling thread has a signal blocked.
    fn blocks(signal: libc::c_int) -> bool {
        // SAFETY: plain memory that the call fills; nothing is changed.
        unsafe {
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut blocked);
            libc::sigismember(&blocked, signal) == 1
        }
    }

    #[test]
    fn a_thread_takes_no_signals_and_its_maker_does_as_before() {
        let (send, receive) = mpsc::channel();
        let before = blocks(libc::SIGUSR1);
        spawn("test", move || send.send(blocks(libc::SIGUSR1)).unwrap()).unwrap();
        assert_eq!(receive.recv(), Ok(true));
        assert_eq!(blocks(libc::SIGUSR1), before);
    }
}
