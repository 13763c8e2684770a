//! Suite `soak`: thousands of connections made and closed, and many open at
//! once, by several threads and channels, both sides on ours. Neither side may
//! end with more descriptors or memory than it began with.
//!
//! `programs/soak.c` does and measures it. By default it makes as many
//! connections as fit the time of a test run under emulation; asked for alone
//! (`--only soak`) it makes them all.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::program;
use crate::guest::{Bench, ip};
use crate::report::Suite;

/// The longest that all connections may take.
const LIMIT: Duration = Duration::from_secs(2000);

/// Threads of each side, each with a channel.
const THREADS: usize = 4;

/// How many connections to make: one after the other per thread, and at once.
struct Size {
    connections: usize,
    at_once: usize,
}

const QUICK: Size = Size {
    connections: 200,
    at_once: 40,
};
const USUAL: Size = Size {
    connections: 1000,
    at_once: 200,
};
const FULL: Size = Size {
    connections: 10_000,
    at_once: 1000,
};

/// What selects [`FULL`].
const ALL: &str = "all";

/// What to ask of the part beside the device; everything if it runs `alone`.
pub fn selection(alone: bool) -> Vec<String> {
    alone.then(|| ALL.to_owned()).into_iter().collect()
}

/// Compiles the program and returns its folder.
pub fn build() -> Result<PathBuf> {
    compile(
        &["soak.c"],
        "soak",
        &["-D_GNU_SOURCE", "-lrdmacm", "-libverbs", "-pthread"],
    )
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let size = if bench.quick {
        QUICK
    } else if bench.selection.iter().any(|word| word == ALL) {
        FULL
    } else {
        USUAL
    };
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
