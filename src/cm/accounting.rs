//! How many events of an object have arrived and were acknowledged.
//!
//! The kernel counts an event when it hands it out and reports the count when
//! the object is destroyed, left or migrated. Whoever frees the object then
//! waits until as many acknowledgements have come in. Events that the library
//! swallows are acknowledged by the library.
//!
//! An event is on its way from the moment the kernel hands it out until a
//! thread of the library has found whose it is. The object may be destroyed
//! meanwhile and its number given to another; the count of arrivals tells which
//! of the two an event is for.

use std::fmt;
use std::time::{Duration, Instant};

use crate::lock::atomic::{AtomicU32, Ordering};
use crate::lock::{Condvar, Mutex, locked};

use super::defaults::Defaults;
use super::event;

/// Wait before the first log line about a destruction that is held up.
const FIRST_COMPLAINT: Duration = Duration::from_secs(4);

/// Counts of events, and those who wait for them.
#[derive(Debug, Default)]
pub struct Accounting {
    arrivals: Mutex<Arrivals>,
    closed: Condvar,
    completed: AtomicU32,
    waiters: AtomicU32,
    last_event: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// Events that have arrived.
#[derive(Debug, Default)]
struct Arrivals {
    count: u32,
    /// How many the kernel has handed out in all, once the object is destroyed.
    total: Option<u32>,
}

impl Accounting {
    /// An account with nothing acknowledged.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts an event that has arrived.
    pub fn arrive(&self) {
        let mut arrivals = locked(&self.arrivals);
        arrivals.count = arrivals.count.wrapping_add(1);
    }

    /// The kernel's object is destroyed; `total` events were handed out.
    pub fn close(&self, total: u32) {
        let mut arrivals = locked(&self.arrivals);
        arrivals.total = Some(total);
        self.closed.notify_all();
    }

    /// The kernel's object could not be destroyed.
    pub fn stay_open(&self) {
        let _arrivals = locked(&self.arrivals);
        self.closed.notify_all();
    }

    /// Counts an event that has arrived, unless all that the kernel has handed
    /// out have. Waits for the kernel to tell while `is_closing`.
    pub fn claim(&self, is_closing: impl Fn() -> bool) -> bool {
        let untold = |arrivals: &mut Arrivals| arrivals.total.is_none() && is_closing();
        let mut arrivals = self.closed.wait_while(locked(&self.arrivals), untold);
        let due = arrivals
            .total
            .is_none_or(|total| behind(arrivals.count, total) > 0);
        if due {
            arrivals.count = arrivals.count.wrapping_add(1);
        }
        due
    }

    /// Whether the kernel's object is destroyed. Asked before each command: who
    /// [notes the arrival](Self::arrive) of an event that the command brings
    /// about, takes the same lock and so sees what was written before.
    pub fn is_closed(&self) -> bool {
        locked(&self.arrivals).total.is_some()
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
        behind(self.completed.load(Ordering::SeqCst), reported)
    }

    /// Blocks until `reported` events are acknowledged, or as long as the
    /// environment allows ([`Defaults::event_wait`]). Says so in the log, in
    /// the name of `who`, after a few seconds and then at growing intervals.
    ///
    /// What unacknowledged events refer to stays in memory until they are
    /// acknowledged, whether or not somebody waits for that.
    pub fn settle(&self, reported: u32, who: impl fmt::Display) {
        let limit = Defaults::get().event_wait();
        let missing = self.wait_for(reported, limit, |missing, last| {
            log::warn!(
                "{who} waits for {missing} of {reported} events to be acknowledged, \
                 the last was {}",
                event::name(last)
            );
        });
        if missing > 0 {
            log::error!(
                "{who} goes on though {missing} of {reported} events are not acknowledged, \
                 the last was {}",
                event::name(self.last_event.load(Ordering::Relaxed))
            );
        }
    }

    /// Blocks until `reported` events are acknowledged, or for `limit`; returns
    /// how many are missing then. `complain` is called with that number and the
    /// type of the last event after a few seconds and then at growing
    /// intervals.
    fn wait_for(&self, reported: u32, limit: Option<Duration>, complain: impl Fn(u32, u32)) -> u32 {
        if self.outstanding(reported) == 0 {
            return 0;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let started = Instant::now();
        let mut patience = FIRST_COMPLAINT;
        let mut guard = locked(&self.lock);
        let missing = loop {
            let missing = self.outstanding(reported);
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            if missing == 0 || left.is_some_and(|left| left.is_zero()) {
                break missing;
            }
            let nap = left.map_or(patience, |left| left.min(patience));
            let (next, timed_out) = self.changed.wait_timeout(guard, nap);
            guard = next;
            if timed_out && nap == patience {
                let missing = self.outstanding(reported);
                if missing > 0 {
                    complain(missing, self.last_event.load(Ordering::Relaxed));
                }
                patience = patience.saturating_mul(2);
            }
        };
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        missing
    }
}

/// By how much `count` is behind `total`.
fn behind(count: u32, total: u32) -> u32 {
    let behind = total.wrapping_sub(count);
    // Both wrap, so a count that is ahead shows as a negative difference.
    if behind > u32::MAX / 2 { 0 } else { behind }
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
        assert_eq!(account.wait_for(3, None, |_, _| {}), 0);
        assert_eq!(account.outstanding(3), 0);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn a_bounded_wait_tells_what_is_missing() {
        let account = Accounting::new();
        account.complete();
        let limit = Some(Duration::from_millis(1));
        assert_eq!(account.wait_for(3, limit, |_, _| {}), 2);
        assert_eq!(account.wait_for(3, Some(Duration::ZERO), |_, _| {}), 2);
        assert_eq!(account.wait_for(1, limit, |_, _| {}), 0);
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
