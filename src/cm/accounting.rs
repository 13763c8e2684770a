//! How many events of an object were acknowledged.
//!
//! The kernel counts an event when it hands it out and reports the count when
//! the object is destroyed, left or migrated. Whoever frees the object then
//! waits until as many acknowledgements have come in. Events that the library
//! swallows are acknowledged by the library.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::locked;

/// Wait before the first log line about a destruction that is held up.
const FIRST_COMPLAINT: Duration = Duration::from_secs(4);

/// Count of acknowledged events, and those who wait for it.
#[derive(Debug, Default)]
pub struct Accounting {
    completed: AtomicU32,
    waiters: AtomicU32,
    last_event: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Accounting {
    /// An account with nothing acknowledged.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes the type of an event that is about to be handed out, so that a
    /// wait which is held up can name it.
    pub fn note(&self, event: u32) {
        self.last_event.store(event, Ordering::Relaxed);
    }

    /// Counts one acknowledged event and wakes those who wait.
    pub fn complete(&self) {
        self.completed.fetch_add(1, Ordering::SeqCst);
        // A waiter announces itself before it reads the count, so either it
        // sees this event or it is seen here.
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _guard = locked(&self.lock);
            self.changed.notify_all();
        }
    }

    /// How many of `reported` events are not acknowledged yet.
    pub fn outstanding(&self, reported: u32) -> u32 {
        let behind = reported.wrapping_sub(self.completed.load(Ordering::SeqCst));
        // Both counters wrap, so "more acknowledged than reported" shows as a
        // negative difference.
        if behind > u32::MAX / 2 { 0 } else { behind }
    }

    /// Blocks until `reported` events are acknowledged. `complain` is called
    /// with the number of missing acknowledgements and the type of the last
    /// event after a few seconds and then at growing intervals.
    pub fn wait_for(&self, reported: u32, complain: impl Fn(u32, u32)) {
        if self.outstanding(reported) == 0 {
            return;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut patience = FIRST_COMPLAINT;
        let mut guard = locked(&self.lock);
        while self.outstanding(reported) > 0 {
            let (next, timeout) = self
                .changed
                .wait_timeout(guard, patience)
                .unwrap_or_else(PoisonError::into_inner);
            guard = next;
            let missing = self.outstanding(reported);
            if timeout.timed_out() && missing > 0 {
                complain(missing, self.last_event.load(Ordering::Relaxed));
                patience = patience.saturating_mul(2);
            }
        }
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn waits_for_exactly_the_reported_events() {
        let account = Arc::new(Accounting::new());
        account.complete();
        assert_eq!(account.outstanding(3), 2);
        let helper = Arc::clone(&account);
        let thread = std::thread::spawn(move || {
            helper.complete();
            helper.complete();
        });
        account.wait_for(3, |_, _| {});
        assert_eq!(account.outstanding(3), 0);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn counters_may_wrap() {
        let account = Accounting::new();
        account.completed.store(u32::MAX, Ordering::SeqCst);
        assert_eq!(account.outstanding(1), 2);
        account.complete();
        account.complete();
        assert_eq!(account.outstanding(1), 0);
        assert_eq!(account.outstanding(u32::MAX), 0);
    }
}
