//! What sockets of every kind have, whatever they carry: who waits for them,
//! time limits, whether they block, whether they are closed, and the error that
//! is to be reported next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::lock::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use super::waiters::Waiters;

/// The common part of a socket.
#[derive(Debug, Default)]
pub struct Common {
    waiters: Arc<Waiters>,
    nonblocking: AtomicBool,
    closed: AtomicBool,
    error: AtomicI32,
    receive_timeout: Timeout,
    send_timeout: Timeout,
}

impl Common {
    /// Those who wait for the socket.
    pub fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Limit of receives that wait.
    pub fn receive_timeout(&self) -> &Timeout {
        &self.receive_timeout
    }

    /// Limit of sends that wait.
    pub fn send_timeout(&self) -> &Timeout {
        &self.send_timeout
    }

    /// Whether calls return `EAGAIN` rather than wait.
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Changes [`Common::is_nonblocking`].
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Whether the socket was closed while somebody still uses it.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Fails if the socket is closed.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(libc::EBADF, "use a closed socket"));
        }
        Ok(())
    }

    /// Marks the socket as closed.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The pending error, 0 if there is none.
    pub fn error(&self) -> i32 {
        self.error.load(Ordering::Acquire)
    }

    /// Takes the pending error (`SO_ERROR`), 0 if there is none.
    pub fn take_error(&self) -> i32 {
        self.error.swap(0, Ordering::AcqRel)
    }

    /// Leaves an error to the next call that looks for one.
    pub fn set_error(&self, errno: i32) {
        self.error.store(errno, Ordering::Release);
    }
}

/// A time limit of a socket; 0 means none.
#[derive(Debug, Default)]
pub struct Timeout(AtomicU64);

impl Timeout {
    /// Sets the limit.
    pub fn set(&self, limit: Duration) {
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanoseconds, Ordering::Relaxed);
    }

    /// The limit.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// When a wait that begins now ends; `None` for no limit.
    pub fn deadline(&self) -> Option<Instant> {
        let limit = self.get();
        if limit.is_zero() {
            return None;
        }
        Instant::now().checked_add(limit)
    }
}
