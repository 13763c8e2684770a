//! Looking for a while before sleeping, as a sleep costs more than many looks:
//! how many looks fit into a time ([`Gauge`], [`Looks`]), and how long a thread
//! looks ([`Stretch`]). What is looked at, and how to sleep, is the business of
//! who waits: sockets over RDMA and the channels of an SRP target.

mod stretch;

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::fork::Once;
use crate::lock::atomic::{AtomicU32, AtomicUsize, Ordering};

pub use stretch::Stretch;

/// How fast looks of one kind are.
///
/// Where the kernel has no fast clock, reading it costs more than a look. So
/// the time is counted in looks: it is measured how many fit into it, and
/// measured again after many waits.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Looks in a millisecond, 0 while that is not known.
    rate: AtomicU32,
    /// Waits so far.
    waits: AtomicU32,
}

/// Waits between two measurements, of which there are more at first.
const MEASURE_EVERY: u32 = 1024;
/// Fewer looks than that are not measured.
const MEASURED: u32 = 32;

impl Gauge {
    /// A gauge that has not measured anything.
    pub const fn new() -> Self {
        Self {
            rate: AtomicU32::new(0),
            waits: AtomicU32::new(0),
        }
    }

    /// Looks for `time`, each of which looks at `objects` objects. The gauge
    /// measures looks at a single one.
    pub fn looks(&self, time: Duration, objects: usize) -> Looks<'_> {
        let rate = self.rate.load(Ordering::Relaxed);
        let waits = self.waits.fetch_add(1, Ordering::Relaxed);
        let due = waits.is_power_of_two() || waits.is_multiple_of(MEASURE_EVERY);
        let objects = u128::try_from(objects).unwrap_or(1).max(1);
        let fit = time.as_nanos().saturating_mul(rate.into()) / (NANOS_PER_MILLI * objects);
        let fit = u32::try_from(fit).unwrap_or(u32::MAX);
        let measured = due && objects == 1 && !time.is_zero();
        let all = if measured { fit.max(MEASURED) } else { fit };
        Looks {
            all,
            left: all,
            time,
            measured: measured.then(|| (self, Instant::now())),
        }
    }

    /// So many looks took so long. A thread that lost its processor meanwhile
    /// measures too few, so that a lower rate is believed by and by only.
    fn measured(&self, looks: u32, took: Duration) {
        let rate = u128::from(looks).saturating_mul(NANOS_PER_MILLI) / took.as_nanos().max(1);
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        let least = self.rate.load(Ordering::Relaxed) / 2;
        self.rate.store(rate.max(least).max(1), Ordering::Relaxed);
    }
}

const NANOS_PER_MILLI: u128 = 1_000_000;

/// The looks before a sleep.
#[derive(Debug)]
pub struct Looks<'a> {
    all: u32,
    left: u32,
    time: Duration,
    measured: Option<(&'a Gauge, Instant)>,
}

impl Looks<'_> {
    /// Whether there is time for another look.
    pub fn again(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        if let Some((gauge, since)) = self.measured.take() {
            gauge.measured(self.all, since.elapsed());
        }
        false
    }

    /// About how long it has looked.
    pub fn spent(&self) -> Duration {
        self.time * (self.all - self.left) / self.all.max(1)
    }
}

/// The right to look for longer than usual, until dropped. No more than half
/// the processors are spent on that by a process at a time: what is waited for
/// needs one as well, and so does a program with many threads that wait.
#[derive(Debug)]
pub struct Turn(&'static AtomicUsize);

impl Turn {
    /// A turn, if one is left.
    pub fn take() -> Option<Self> {
        static MOST: Once<usize> = Once::new();
        /// Threads that look for longer than usual.
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let most = *MOST.get_or_init(|| available_parallelism().map_or(0, |count| count.get() / 2));
        Self::of(&TAKEN, most)
    }

    /// One of `most` turns, of which so many are `taken`.
    fn of(taken: &'static AtomicUsize, most: usize) -> Option<Self> {
        let turn = Self(taken);
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(10);

    fn count(mut looks: Looks<'_>) -> u32 {
        let mut count = 0;
        while looks.again() {
            count += 1;
        }
        count
    }

    #[test]
    fn no_time_has_no_looks() {
        let gauge = Gauge::new();
        assert_eq!(count(gauge.looks(Duration::ZERO, 1)), 0);
        assert_eq!(count(gauge.looks(TIME, 1)), MEASURED);
        assert_eq!(count(gauge.looks(Duration::ZERO, 1)), 0);
    }

    #[test]
    fn looks_fill_the_time_that_was_measured() {
        let gauge = Gauge::new();
        gauge.waits.store(3, Ordering::Relaxed);
        gauge.measured(1000, Duration::from_millis(1));
        assert_eq!(count(gauge.looks(TIME, 1)), 10);
        gauge.waits.store(5, Ordering::Relaxed);
        assert_eq!(count(gauge.looks(TIME * 8, 1)), 80);
        assert_eq!(count(gauge.looks(TIME, 5)), 2);
        assert_eq!(count(gauge.looks(TIME, 100)), 0);
    }

    #[test]
    fn one_interrupted_measurement_is_hardly_believed() {
        let gauge = Gauge::new();
        gauge.measured(1000, Duration::from_millis(1));
        gauge.measured(1000, Duration::from_secs(1));
        assert_eq!(gauge.rate.load(Ordering::Relaxed), 500);
        gauge.measured(1000, Duration::from_micros(100));
        assert_eq!(gauge.rate.load(Ordering::Relaxed), 10_000);
        for _ in 0..40 {
            gauge.measured(1, Duration::from_secs(1));
        }
        assert_eq!(gauge.rate.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn turns_come_back() {
        // Not those of the process, which other tests take meanwhile.
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let taken: Vec<_> = std::iter::from_fn(|| Turn::of(&TAKEN, 3)).collect();
        assert_eq!(taken.len(), 3);
        drop(taken);
        assert!(Turn::of(&TAKEN, 1).is_some());
        assert!(Turn::of(&TAKEN, 0).is_none());
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
