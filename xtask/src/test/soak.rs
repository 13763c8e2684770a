//! Suite `soak`: thousands of connections made and closed, and many open at
//! once, by several threads and channels, both sides on ours. Neither side may
//! end with more descriptors or memory than it began with.
//!
//! `programs/soak.c` does and measures it for the connection manager. For
//! sockets, `capi-tests/rsocket_soak.c` opens and closes them one after another,
//! and `capi-tests/rsocket_integrity.c` verifies every byte of what it
//! transfers. By default all do as much as fits the time of a test run under
//! emulation; asked for alone (`--only soak`) they do all of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::beside::FULL_LENGTH;
use super::{compile_into, conformance};
use crate::guest::program;
use crate::guest::{Bench, ip};
use crate::report::Suite;

/// The longest that all connections may take.
const LIMIT: Duration = Duration::from_secs(2000);

/// Threads of each side, each with a channel.
const THREADS: usize = 4;

/// How much to do.
struct Size {
    /// Connections one after the other per thread.
    connections: usize,
    /// Connections at once.
    at_once: usize,
    /// Sockets one after the other.
    cycles: usize,
    /// What each case with data transfers in one direction.
    megabytes: usize,
}

const QUICK: Size = Size {
    connections: 200,
    at_once: 40,
    cycles: 100,
    megabytes: 1,
};
const USUAL: Size = Size {
    connections: 1000,
    at_once: 200,
    cycles: 500,
    megabytes: 100,
};
const FULL: Size = Size {
    connections: 10_000,
    at_once: 1000,
    cycles: 5000,
    megabytes: 208,
};

/// How many times longer a case may take than with its usual amount.
const PATIENCE: (&str, &str) = ("RDMACM_TEST_PATIENCE", "30");

/// The cases of `rsocket_integrity` that transfer an amount that is known
/// before, four of them both ways: ten times [`Size::megabytes`].
const TRANSFERS: [&str; 6] = [
    "at once, blocking",
    "at once, non-blocking",
    "small buffers",
    "several threads",
    "mapped memory",
    "stopped and resumed",
];

/// Compiles the suite's own program beside the others of `folder`, which is
/// returned.
pub fn build(folder: PathBuf) -> Result<PathBuf> {
    let flags = ["-D_GNU_SOURCE", "-lrdmacm", "-libverbs", "-pthread"];
    compile_into(&folder, &["soak.c"], "soak", &flags)?;
    Ok(folder)
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let size = if bench.quick {
        QUICK
    } else if bench.selection.iter().any(|word| word == FULL_LENGTH) {
        FULL
    } else {
        USUAL
    };
    connections(bench, &size, suite)?;
    let cycles = size.cycles.to_string();
    sockets(
        bench,
        "rsocket_soak",
        &[],
        ("RSOCKET_CYCLES", &cycles),
        suite,
    )?;
    let amount = size.megabytes.to_string();
    let variable = ("RSOCKET_MEGABYTES", amount.as_str());
    sockets(bench, "rsocket_integrity", &TRANSFERS, variable, suite)
}

fn connections(bench: &Bench, size: &Size, suite: &mut Suite) -> Result<()> {
    let program = bench.programs.join("soak");
    let words = [
        program.to_str().context("path of the program")?,
        &ip()?,
        &THREADS.to_string(),
        &size.connections.to_string(),
        &size.at_once.to_string(),
    ];
    // Without malloc's caches, what was freed is not in use.
    let env = [("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")];
    let mut running = program::start_with(&words, &bench.ours, &env)?;
    let status = running.wait_for(LIMIT)?.context("never ended")?;
    suite.record_tap(&running.output());
    ensure!(status.success(), "{status}: {}", running.said());
    Ok(())
}

/// Cases of a conformance program, or all, with the amount in a variable.
fn sockets(
    bench: &Bench,
    program: &str,
    cases: &[&str],
    variable: (&str, &str),
    suite: &mut Suite,
) -> Result<()> {
    let path = bench.programs.join(program);
    let mut words = vec![path.to_str().context("path of the program")?];
    words.extend(cases);
    let (name, amount) = variable;
    println!("# {program}: {name}={amount}");
    let started = Instant::now();
    let mut running = program::start_with(&words, &bench.ours, &[variable, PATIENCE])?;
    running.wait_for(LIMIT)?.context("never ended")?;
    println!("# {program}: {} s", started.elapsed().as_secs());
    for case in conformance::read(&running.output()) {
        suite.record(case.name, case.outcome);
    }
    Ok(())
}
