//! Suite `preload`: unmodified programs on sockets over RDMA through
//! `librspreload.so`, ours on both sides or on one, and socket calls that programs
//! make, case by case.
//!
//! A program passes when both sides end as they should, what arrived is what
//! was sent, and the RDMA device sent at least as many packets as that takes.

mod alike;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::compile;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, device, expand, ip};
use crate::library::{Library, PRELOAD};
use crate::report::{Outcome, Suite};
use crate::workspace;

use rows::{FROM, ROWS, Row, TO};

/// Bytes that are sent.
const LENGTH: u32 = 1_000_003;
/// Most bytes of a packet.
const PACKET: u64 = 4096;

/// A program that forks for each connection, with `RDMAV_FORK_SAFE`: begins by
/// TCP and goes over to RDMA. Its server and its client, and their port.
const FORKING: [&str; 2] = [
    "rstream -T f -b $IP -p 7606 -S 1024 -C 100",
    "rstream -T f -s $IP -p 7606 -S 1024 -C 100",
];
const FORKING_PORT: u16 = 7606;
const FORKING_NAME: &str = "rstream forks";

/// The longest that the calls may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Programs of cases, each with its C file.
const CALLS: [(&str, &str); 3] = [
    ("preload-calls", "preload/calls.c"),
    ("preload-hard", "preload/hard.c"),
    ("preload-killed", "preload/killed.c"),
];

/// The program whose cases are compared with those of the kernel's sockets.
const SAME: (&str, &str) = ("preload-same", "preload/same.c");

/// The C sources of the former, seen from `xtask/programs`.
pub fn sources() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|(_, source)| *source)
}

/// The names of the other cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name).chain([FORKING_NAME])
}

/// Compiles them and returns their folder.
pub fn build() -> Result<PathBuf> {
    let mut folder = PathBuf::new();
    for (program, source) in CALLS.into_iter().chain([SAME]) {
        folder = compile(
            &["preload/harness.c", source],
            program,
            &["-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2"],
        )?;
    }
    Ok(folder)
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    for (program, _) in CALLS {
        calls(program, bench, suite)?;
    }
    let [by_kernel, with_library] = [true, false].map(|tcp| same(tcp, bench));
    alike::record(&by_kernel?, &with_library?, suite);
    // Of no round size and without a period that a buffer may have.
    let data: Vec<u8> = (0..LENGTH)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(FROM, &data)?;
    for row in ROWS {
        match row.programs.iter().find(|name| !is_there(name)) {
            Some(name) => suite.record(row.name, Outcome::Skipped(format!("no {name} here"))),
            None => {
                for pair in row.pairs(bench)? {
                    let name = match pair {
                        [on, by] if on == by => row.name.to_owned(),
                        [on, by] => {
                            format!(
                                "{}: server on {}, client on {}",
                                row.name,
                                on.name(),
                                by.name()
                            )
                        }
                    };
                    suite.check(name, run(row, pair, &data));
                }
            }
        }
    }
    let (ours, original) = (&bench.ours, &Library::Original);
    for (server, client) in [(ours, ours), (ours, original), (original, ours)] {
        let (on, by) = (server.name(), client.name());
        suite.check(
            format!("{FORKING_NAME}: server on {on}, client on {by}"),
            fork(server, client),
        );
    }
    Ok(())
}

fn fork(server: &Library, client: &Library) -> Result<()> {
    let packets = device::sent_packets()?;
    let begin = |command: &str, library: &Library| {
        let words = expand(command)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        start(&words, library, true)
    };
    let mut serving = begin(FORKING[0], server)?;
    serving.wait_ready(Ready::ListeningOnTcp(FORKING_PORT))?;
    begin(FORKING[1], client)?
        .wait_success()
        .with_context(|| format!("server: {}", serving.said()))?;
    serving.wait_success()?;
    let sent = device::sent_packets()?.saturating_sub(packets);
    // 100 times there and back.
    ensure!(sent >= 200, "the RDMA device sent {sent} packets");
    Ok(())
}

/// Whether a program is installed.
fn is_there(name: &str) -> bool {
    ["/usr/bin", "/usr/sbin"]
        .iter()
        .any(|folder| Path::new(folder).join(name).exists())
}

/// The preload library that belongs to a librdmacm.
fn preload(library: &Library) -> Result<PathBuf> {
    if let Library::Ours(folder) = library {
        return Ok(folder.join(PRELOAD));
    }
    fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join(PRELOAD)))
        .find(|path| path.exists())
        .context("the original's preload library is not installed")
}

/// The variables of programs with the preload library that belongs to `library`,
/// of those that fork with `RDMAV_FORK_SAFE`.
fn variables(library: &Library, forks: bool) -> Result<Vec<(&'static str, String)>> {
    let preload = preload(library)?;
    let preload = preload.to_str().context("path of the library")?;
    let mut variables = vec![("LD_PRELOAD", preload.to_owned())];
    if forks {
        variables.push(("RDMAV_FORK_SAFE", "1".to_owned()));
    }
    Ok(variables)
}

/// Starts a program with the preload library that belongs to `library`.
fn start(words: &[&str], library: &Library, forks: bool) -> Result<Running> {
    let variables = variables(library, forks)?;
    let env: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    program::start_with(words, library, &env)
}

/// Starts a command for a shell, which is none of the programs that are tried.
fn start_by_shell(command: &str, library: &Library, forks: bool) -> Result<Running> {
    let variables = variables(library, forks)?;
    let set = variables
        .iter()
        .map(|(name, value)| format!("{name}={value} "));
    let command = format!("exec env {}{command}", set.collect::<String>());
    program::start(&["sh", "-c", &command], library)
}

fn calls(program: &str, bench: &Bench, suite: &mut Suite) -> Result<()> {
    let output = output(program, bench, |words| start(words, &bench.ours, false))?;
    suite.record_tap(&output);
    Ok(())
}

/// What [`SAME`] writes, on the kernel's sockets or with our library.
fn same(tcp: bool, bench: &Bench) -> Result<String> {
    output(SAME.0, bench, |words| match tcp {
        true => program::start_with(words, &Library::Original, &[("TCP", "1")]),
        false => start(words, &bench.ours, false),
    })
}

/// Runs a program of cases and returns what it writes.
fn output(
    program: &str,
    bench: &Bench,
    start: impl FnOnce(&[&str]) -> Result<Running>,
) -> Result<String> {
    let program = bench.programs.join(program);
    let mut running = start(&[program.to_str().context("path of the program")?, &ip()?])?;
    let status = running.wait_for(LIMIT)?.context("never ended")?;
    ensure!(status.success(), "{status}: {}", running.said());
    Ok(running.output())
}

fn run(row: &Row, [on, by]: [&Library; 2], data: &[u8]) -> Result<()> {
    let packets = device::sent_packets()?;
    let ip = ip()?;
    let data_of_programs = workspace::root().join("xtask/programs/preload");
    let shell = |command: &str, library: &Library| {
        let command = command
            .replace("$IP", &ip)
            .replace("$DATA", &data_of_programs.to_string_lossy());
        start_by_shell(&command, library, row.forks.is_some())
    };
    let mut server = shell(row.server, on)?;
    server.wait_ready(row.forks.map_or(Ready::Listening, Ready::ListeningOnTcp))?;
    let mut client = shell(row.client, by)?;
    client
        .wait_success()
        .with_context(|| format!("server: {}", server.said()))?;
    if row.goes_on {
        // With the processes that it has made.
        server.terminate()?;
        server.wait()?;
    } else {
        server.wait_success()?;
    }
    if row.copies {
        let copied = fs::read(TO)?;
        ensure!(copied == data, "the copy differs");
        fs::remove_file(TO)?;
    }
    let sent = device::sent_packets()?.saturating_sub(packets);
    ensure!(
        sent >= u64::from(LENGTH) / PACKET,
        "the RDMA device sent {sent} packets"
    );
    Ok(())
}
