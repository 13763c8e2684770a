//! Counting commands, and the line about them every second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of all channels since the start. Without locks: the figures of one
/// line need not be of the same instant.
#[derive(Debug, Default)]
pub struct Stats {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
}

/// What a counted command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// READ
    Read,
    /// WRITE
    Write,
    /// Anything else that the disk is asked for: flushing, giving blocks back.
    Other,
}

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    reads: u64,
    writes: u64,
    others: u64,
    bytes_read: u64,
    bytes_written: u64,
    nanoseconds: u64,
}

impl Stats {
    /// Counts a command that moved `bytes` and took `time` at the disk.
    pub fn count(&self, kind: Kind, bytes: u32, time: Duration) {
        let (commands, moved) = match kind {
            Kind::Read => (&self.reads, Some(&self.bytes_read)),
            Kind::Write => (&self.writes, Some(&self.bytes_written)),
            Kind::Other => (&self.others, None),
        };
        commands.fetch_add(1, Ordering::Relaxed);
        if let Some(moved) = moved {
            moved.fetch_add(bytes.into(), Ordering::Relaxed);
        }
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(time, Ordering::Relaxed);
        self.longest.fetch_max(time, Ordering::Relaxed);
    }

    /// The line for the time since `before`, which took `seconds`; `before`
    /// becomes now.
    pub fn line(&self, before: &mut Snapshot, seconds: f64, sessions: usize) -> String {
        let now = Snapshot {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        };
        let rate = |now: u64, before: u64| now.wrapping_sub(before) as f64 / seconds;
        let reads = rate(now.reads, before.reads);
        let writes = rate(now.writes, before.writes);
        let others = rate(now.others, before.others);
        let commands = reads + writes + others;
        let busy = rate(now.nanoseconds, before.nanoseconds);
        let mean = if commands > 0.0 { busy / commands } else { 0.0 };
        let line = format!(
            "{commands:.0} IOPS ({reads:.0} r, {writes:.0} w, {others:.0} other), \
             {:.1} MB/s in, {:.1} MB/s out, disk {:.3} ms mean, {:.3} ms longest, {sessions} sessions",
            rate(now.bytes_written, before.bytes_written) / 1e6,
            rate(now.bytes_read, before.bytes_read) / 1e6,
            mean / 1e6,
            self.longest.swap(0, Ordering::Relaxed) as f64 / 1e6,
        );
        *before = now;
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_the_time_since_the_last() {
        let stats = Stats::default();
        let mut before = Snapshot::default();
        stats.count(Kind::Read, 1_000_000, Duration::from_millis(2));
        stats.count(Kind::Write, 3_000_000, Duration::from_millis(4));
        assert_eq!(
            stats.line(&mut before, 2.0, 1),
            "1 IOPS (0 r, 0 w, 0 other), 1.5 MB/s in, 0.5 MB/s out, \
             disk 3.000 ms mean, 4.000 ms longest, 1 sessions"
        );
        assert!(stats.line(&mut before, 1.0, 0).starts_with("0 IOPS"));
    }
}
