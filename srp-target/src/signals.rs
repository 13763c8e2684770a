//! What the process is told from outside: to stop, or to look again.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, SIGINT
    Stop,
    /// SIGHUP
    Refresh,
}

/// The signals that are waited for.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them for this thread and those that it will start: they then
    /// only end [`Signals::wait`].
    ///
    /// # Errors
    /// As pthread_sigmask(3).
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; the others get it
        // initialised, and signal numbers that exist.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        // SAFETY: an initialised set; the old one is not wanted.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } {
            0 => Ok(Self(set)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for one of them; `None` when `limit` is over first.
    ///
    /// # Errors
    /// As sigtimedwait(2).
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<Option<Signal>> {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: an initialised set, and a time or none; what else is known
        // of the signal is not wanted.
        match unsafe { libc::sigtimedwait(&raw const self.0, ptr::null_mut(), limit) } {
            libc::SIGHUP => Ok(Some(Signal::Refresh)),
            -1 => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                    _ => Err(error),
                }
            }
            _ => Ok(Some(Signal::Stop)),
        }
    }
}
