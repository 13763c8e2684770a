//! Suite `hosts`: two machines on a link. Unmodified programs and groups
//! across it in every pairing of our library and the original; then what an
//! application sees when the link or the other machine fails while it
//! resolves, connects or is connected. Every outcome must come within a time
//! limit. If the suite is asked for alone, SRP over a bad link as well.
//!
//! The first machine runs the tests and drives the second one (`remote`).
//! Failures are tried on the original as well, in the same outage, with the
//! same expectations unless a comment says otherwise.

mod end;
mod failures;
mod remote;
mod srp;
mod traffic;
mod unheard;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::remote::Remote;
use super::beside::FULL_LENGTH;
use super::compile;
use crate::guest::{Bench, variable};
use crate::library;
use crate::place::Place;
use crate::report::{Collector, Outcome, Suite};
use crate::vm::pair::Labelled;

/// The longest both machines may run.
const LIMIT: Duration = Duration::from_secs(1800);

/// Compiles what the suite runs and returns its folder; srp-target is staged.
pub fn build() -> Result<PathBuf> {
    library::stage_srp_target()?;
    let libraries = ["-lrdmacm", "-libverbs"];
    compile(&["unheard.c"], "unheard", &libraries)?;
    compile(&["across.c"], "across", &libraries)
}

/// Runs the suite on two machines, where there can be two.
pub fn run(place: &Place, arguments: &[String], suite: &mut Suite) -> Result<()> {
    let mut results = Collector::new(suite);
    let sinks: [crate::vm::pair::Sink<'_>; 2] = [&mut results, &mut Labelled::new(2)];
    match place.run_pair(arguments, LIMIT, sinks)? {
        Some(status) => ensure!(
            status == 0,
            "the part on the machines ended with status {status}"
        ),
        None => suite.record(
            "two machines",
            Outcome::Skipped("this is one machine".to_owned()),
        ),
    }
    Ok(())
}

/// The part on each of the machines.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    if variable("RDMACM_TEST_HOST").context("not one of two machines")? == "2" {
        return remote::serve();
    }
    let remote = Remote::new();
    traffic::run(bench, &remote, suite)?;
    // It takes minutes: each loss at the wrong place costs a time-out.
    if bench.selection.iter().any(|word| word == FULL_LENGTH) {
        srp::run(bench, &remote, suite);
    }
    unheard::run(bench, &remote, suite);
    failures::run(bench, &remote, suite)
}
