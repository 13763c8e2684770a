//! Suite `reference`: C conformance programs for sockets on the kernel's TCP. It
//! needs no RDMA device.
//!
//! What the cases ask of sockets over RDMA is what TCP does, but for those that
//! are named here with the reason. TCP is the measure and not on trial: it may
//! try each case several times.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{compile_into, conformance};
use crate::guest::program;
use crate::library::Library;
use crate::report::{Outcome, Suite};
use crate::{process, workspace};

/// A program, and parts of the titles of those of its cases that TCP fails or
/// cannot run.
type Program = (&'static str, &'static [&'static str]);

const PROGRAMS: [Program; 8] = [
    (
        "rsocket_stream",
        &[
            // Kinds and sizes are those of RDMA.
            "1 unknown kinds",
            "4 5 sizes",
            // TCP does not tell SO_ERROR what a connect that waited has returned.
            "15 a closed port",
            // TCP sends to nobody with EPIPE and a signal.
            "58 ",
        ],
    ),
    (
        "rsocket_end",
        &[
            // TCP reports a hang-up only when both sides have ended, and takes
            // data for a peer that has closed until that refuses it.
            "53 ",
            "54 ",
            "56 ",
            // A close of TCP's ends no call of another thread.
            "a close ends",
            // TCP drops requests beyond the backlog, and the client tries again.
            "73 ",
            // Counts packets of the RDMA device.
            "72 ",
        ],
    ),
    ("rsocket_poll", &[]),
    (
        "rsocket_careless",
        &[
            // Options of RDMA.
            "RDMA_ROUTE",
            // There is no address that nobody refuses.
            "bounds a connect",
            "attempt to connect",
            // Addresses and sockets of RDMA.
            "datagram",
        ],
    ),
    // A close(2) of the kernel's sets ends no call of another thread, and children
    // share them.
    ("rsocket_epoll", &["70 ", "a child has"]),
    (
        "rsocket_robust",
        &[
            // A recv(2) of nothing waits for data on TCP.
            "send or receive nothing",
            // A peek for more than TCP's buffer takes never ends.
            "as much as the peer may send",
            // Addresses that were in use a moment ago.
            "wrong order",
            // Sizes, memory and devices are those of RDMA.
            "at their limits",
            "not to be had",
            "memory to lock",
            // TCP connects without a descriptor for the other end.
            "out of descriptors",
            // As above, and children share the kernel's sockets.
            "a close ends",
            "a child has",
            "children close",
        ],
    ),
    (
        "rsocket_calls",
        &[
            // An address given to TCP is ignored, and none is told.
            "given to a stream",
            "name the peer",
            // There is no address that nobody refuses.
            "a signal ended",
            "configuration files",
        ],
    ),
    (
        "rsocket_between",
        &[
            // Options of RDMA.
            "queues", "inline", "mapp",
        ],
    ),
];

/// Where the cases listen.
const ADDRESS: (&str, &str) = ("RDMACM_TEST_IP", "127.0.0.1");

/// How often TCP may try a case.
const TRIES: usize = 3;

/// The longest that one program may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Builds the programs and runs them.
pub fn run(stage: &Path, suite: &mut Suite) -> Result<()> {
    let folder = build(stage)?;
    let tcp = Library::Ours(folder.clone());
    for (name, others) in PROGRAMS {
        check(&folder.join(name), others, &tcp, suite).with_context(|| format!("{name} on TCP"))?;
    }
    Ok(())
}

/// Builds the programs, and a library of sockets that are TCP's; returns their
/// folder.
fn build(stage: &Path) -> Result<PathBuf> {
    let root = workspace::root();
    let folder = workspace::target("reference")?;
    let map = root.join("xtask/programs/reference/tcp.map");
    let map = format!("-Wl,--version-script={}", map.display());
    let flags = ["-shared", "-fPIC", "-Wl,-soname,librdmacm.so.1", &map];
    compile_into(&folder, &["reference/tcp.c"], "librdmacm.so.1", &flags)?;
    process::output(
        Command::new("make")
            .args(["--always-make", "--jobs=2", "-C"])
            .arg(root.join("capi-tests"))
            .arg(format!("OUT={}", folder.display()))
            .arg(format!("INC={}", root.join("include").display()))
            .arg(format!("LIB={}", stage.display()))
            .args(PROGRAMS.iter().map(|(name, _)| folder.join(name))),
    )?;
    Ok(folder)
}

/// Runs the cases of a program but for `others`.
fn check(program: &Path, others: &[&str], tcp: &Library, suite: &mut Suite) -> Result<()> {
    let listed = process::output(Command::new(program).arg("--list"))?;
    let titles = listed.lines().filter_map(|case| case.split_once('/'));
    let mut left: Vec<_> = titles
        .map(|(_, title)| title.to_owned())
        .filter(|title| !others.iter().any(|other| title.contains(other)))
        .collect();
    for attempt in 1..=TRIES {
        let path = program.to_string_lossy();
        let words: Vec<_> = std::iter::once(&*path)
            .chain(left.iter().map(String::as_str))
            .collect();
        let mut running = program::start_with(&words, tcp, &[ADDRESS])?;
        running.wait_for(LIMIT)?.context("never ended")?;
        let cases = conformance::read(&running.output());
        left.clear();
        for case in cases {
            if attempt < TRIES && matches!(case.outcome, Outcome::Failed(_)) {
                let (_, title) = case.name.split_once('/').unwrap_or_default();
                left.push(title.to_owned());
                continue;
            }
            suite.record(case.name, case.outcome);
        }
        if left.is_empty() {
            break;
        }
    }
    Ok(())
}
