//! Timers by which a connection has its peer prove that it is still there: one
//! for keep-alive messages (`SO_KEEPALIVE`), one while sends wait for the peer.
//! What is sent is the connection's business; the service thread calls the
//! timer.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::fork::Once;
use crate::kernel::descriptor::opened;

use super::connection::Connection;
use super::service::{self, Next, Watched};
use super::stream::Stream;

/// Seconds of idleness where the kernel's default for TCP cannot be read.
const FALLBACK: i32 = 7200;

/// A timer that is running.
#[derive(Debug)]
pub struct Keepalive {
    timer: OwnedFd,
    stream: Weak<Stream>,
    look: Look,
}

/// What the timer has the connection do; returns whether it goes on.
pub type Look = fn(&Connection) -> bool;

impl Keepalive {
    /// Starts a timer that calls `look` for the connection of `stream` every
    /// `seconds`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(stream: &Arc<Stream>, seconds: i32, look: Look) -> Result<Arc<Self>> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: no pointers; what it opens is nobody else's.
        let timer = unsafe { opened(libc::timerfd_create(clock, flags), "create a timer") }?;
        let fd = timer.as_raw_fd();
        let keepalive = Arc::new(Self {
            timer,
            stream: Arc::downgrade(stream),
            look,
        });
        let period = libc::timespec {
            tv_sec: seconds.max(1).into(),
            tv_nsec: 0,
        };
        let setting = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: the setting lives until the call ends; the old one is not
        // asked for.
        let status = unsafe { libc::timerfd_settime(fd, 0, &setting, std::ptr::null_mut()) };
        if status != 0 {
            return Err(Error::last_os("set a timer"));
        }
        service::watch(fd, &keepalive)?;
        Ok(keepalive)
    }

    fn descriptor(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

impl Watched for Keepalive {
    fn holds(&self) -> *const () {
        self.stream.as_ptr().cast()
    }

    fn handle(self: Arc<Self>, _: RawFd) -> Next {
        let mut expirations = [0u8; 8];
        // SAFETY: eight writable bytes; the descriptor does not block.
        let read = unsafe {
            libc::read(
                self.descriptor(),
                expirations.as_mut_ptr().cast(),
                expirations.len(),
            )
        };
        if read < 0 {
            // It was another's number that was readable, before this one had it.
            return Next::Watch;
        }
        let Some(stream) = self.stream.upgrade() else {
            return Next::Forget;
        };
        if stream.established().is_some_and(self.look) {
            return Next::Watch;
        }
        stream.timer_ended(&self);
        Next::Forget
    }
}

impl Drop for Keepalive {
    fn drop(&mut self) {
        service::forget(self.descriptor(), self);
    }
}

/// Seconds of idleness by default, as for TCP.
pub fn default_idle() -> i32 {
    static DEFAULT: Once<i32> = Once::new();
    *DEFAULT.get_or_init(|| {
        fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .filter(|seconds| *seconds > 0)
            .unwrap_or(FALLBACK)
    })
}
