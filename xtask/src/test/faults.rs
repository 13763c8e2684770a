//! Suite `faults`: every system call that a connection makes fails in turn, on
//! both sides, asynchronously and synchronously.
//!
//! `programs/faults` does one kind of call and fault at a time, by strace's
//! `inject`, and judges what comes of it. Commands of the connection manager
//! (`write`) get every fault; calls that belong to libibverbs, or that only
//! look for the device, get one fault everywhere and the others here and there.
//!
//! Not here: `close`, which strace cannot let fail without leaving open what
//! was to be closed; and shortage of memory, which a conformance program tests.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::program;
use crate::guest::{Bench, ip};
use crate::report::Suite;

/// The longest that one kind of fault may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Programs at a time: as many as the test machine has processors.
const WORKERS: usize = 2;

/// Of the faults that are merely thorough, one in so many.
const SAMPLE: usize = 4;

/// A system call, the faults that it gets everywhere, those that it gets here
/// and there, and a number above the calls that one connection makes, or the
/// loader at the program's start.
struct Row(
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    usize,
);

const OTHERS: &[&str] = &["ENOMEM", "EINTR", "EAGAIN"];

const ROWS: &[Row] = &[
    Row(
        "write",
        &["ENOMEM", "EINTR", "EIO", "EAGAIN", "short"],
        &[],
        24,
    ),
    Row("ioctl", &["EIO"], OTHERS, 32),
    Row("openat", &["EIO"], OTHERS, 32),
    Row("newfstatat", &["EIO"], &[], 64),
    Row("statx", &["EIO"], &[], 8),
    Row("socket", &["EIO"], OTHERS, 8),
    Row("bind", &["EIO"], &[], 8),
    Row("sendto", &["EIO"], OTHERS, 8),
    Row("recvfrom", &["EIO"], OTHERS, 8),
    Row("sendmsg", &["EIO"], &[], 8),
    Row("recvmsg", &["EIO"], &[], 8),
    Row("mmap", &["ENOMEM"], &[], 64),
];

/// One run of the program.
struct Job {
    call: &'static str,
    fault: &'static str,
    window: usize,
    every: usize,
}

/// Compiles the program and returns its folder.
pub fn build() -> Result<PathBuf> {
    compile(
        &["faults/main.c", "faults/victim.c", "faults/peer.c"],
        "faults",
        &["-D_GNU_SOURCE", "-lrdmacm", "-libverbs"],
    )
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let jobs = jobs(bench.quick);
    let next = AtomicUsize::new(0);
    let faults = AtomicUsize::new(0);
    let suite = Mutex::new(suite);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = run(bench, job);
                    let mut suite = suite.lock().unwrap_or_else(|error| error.into_inner());
                    let counted = done.and_then(|output| {
                        suite.record_tap(&output);
                        injected(&output)
                    });
                    match counted {
                        Ok(count) => drop(faults.fetch_add(count, Ordering::Relaxed)),
                        Err(error) => suite.check(job.name(), Err(error)),
                    }
                }
            });
        }
    });
    println!("\ninjected faults: {}", faults.into_inner());
    Ok(())
}

impl Job {
    fn name(&self) -> String {
        format!("{} {}", self.call, self.fault)
    }
}

/// What to run; `quick` leaves out most of it.
fn jobs(quick: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for Row(call, everywhere, sampled, window) in ROWS {
        let all = if quick { SAMPLE } else { 1 };
        let everywhere = everywhere.iter().map(|fault| (*fault, all));
        let sampled = sampled.iter().map(|fault| (*fault, SAMPLE));
        let sampled = sampled.filter(|_| !quick);
        jobs.extend(everywhere.chain(sampled).map(|(fault, every)| Job {
            call,
            fault,
            window: *window,
            every,
        }));
    }
    jobs
}

/// Runs the program and returns what it printed.
fn run(bench: &Bench, job: &Job) -> Result<String> {
    let program = bench.programs.join("faults");
    let words = [
        program.to_str().context("path of the program")?,
        &ip()?,
        job.call,
        job.fault,
        &job.window.to_string(),
        &job.every.to_string(),
    ];
    let mut running = program::start(&words, &bench.ours)?;
    let status = running.wait_for(LIMIT)?.context("never ended")?;
    ensure!(status.success(), "{status}: {}", running.said());
    Ok(running.output())
}

/// The number of faults that the program injected.
fn injected(output: &str) -> Result<usize> {
    let count = output
        .lines()
        .find_map(|line| line.strip_prefix("faults: "))
        .context("the program did not come to its end")?;
    Ok(count.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_is_left_out_entirely_unless_in_a_hurry() {
        let all = jobs(false);
        let quick = jobs(true);
        assert!(quick.len() < all.len());
        for fault in ["ENOMEM", "EINTR", "EIO", "EAGAIN", "short"] {
            let full = |job: &&Job| job.call == "write" && job.fault == fault && job.every == 1;
            assert_eq!(all.iter().filter(full).count(), 1, "{fault}");
        }
    }
}
