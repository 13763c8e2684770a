//! A condition to wait for, over that of the chosen kind of locks. Notifying
//! costs a system call with the standard library's, even if nobody waits, which
//! is the rule here; so those who wait are counted.

use std::time::Duration;

use super::atomic::{AtomicU32, Ordering};
use super::{MutexGuard, clean, kind};

/// What threads wait for that hold a lock. A thread changes what the lock
/// guards, or changes it otherwise and then takes the lock, before it notifies.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    condition: kind::Condvar,
    /// Changed under the lock; who notifies has held it since.
    waiting: AtomicU32,
}

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self {
            condition: kind::Condvar::new(),
            waiting: AtomicU32::new(0),
        }
    }

    /// Waits for a notification, or for nothing at all.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = clean(self.condition.wait(guard));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Waits while `condition` holds.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits for a notification, or for nothing at all, but not longer than
    /// `limit`. Also returns whether that was reached.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (guard, result) = clean(self.condition.wait_timeout(guard, limit));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        (guard, result.timed_out())
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condition.notify_one();
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condition.notify_all();
        }
    }
}
