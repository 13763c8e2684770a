//! Measuring once: a server and a client on the same library, and the figure
//! that the client, or the tool it runs under, prints.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::program::{self, LIMIT, LOOK_AGAIN, Ready, Running};
use crate::guest::{Bench, expand};
use crate::library::Library;

/// Port of the benchmark's own server.
const PORT: &str = "7600";
/// Seconds until a client counts as hung, which takes a few at most.
const PATIENCE: u64 = 20;
/// How long the server of a client that has ended may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Where udpong waits for datagrams.
const UDPONG_PORT: u16 = 7174;

/// Runs unmodified programs, and returns the last figure of the client's last
/// line: microseconds per transfer.
pub fn utility(server: &str, client: &str, library: &Library) -> Result<f64> {
    let mut serving = serve(server, Ready::Listening, library)?;
    let figure = last_figure(client, library)?;
    serving.wait_success()?;
    Ok(figure)
}

/// As [`utility`] for udpong, whose server listens to nobody and never ends.
pub fn datagrams(server: &str, client: &str, library: &Library) -> Result<f64> {
    let _killed_when_dropped = serve(server, Ready::BoundToUdp(UDPONG_PORT), library)?;
    last_figure(client, library)
}

/// Runs a client and returns the last figure of its last line.
fn last_figure(client: &str, library: &Library) -> Result<f64> {
    let mut client = start(client, library)?;
    client.wait_success()?;
    let output = client.output();
    let line = output.lines().last().context("no output")?;
    let figure = line.split_whitespace().last().context("an empty line")?;
    figure
        .parse()
        .with_context(|| format!("no figure at the end of \"{line}\""))
}

/// Runs the benchmark's own program and returns the value that its client, with
/// a mode and numbers, prints after `name`.
pub fn own(bench: &Bench, library: &Library, client: &str, name: &str) -> Result<f64> {
    let client = run(bench, library, client, &format!("timeout {PATIENCE}"))?;
    let output = client.output();
    output
        .split_whitespace()
        .skip_while(|word| *word != name)
        .nth(1)
        .and_then(|value| value.parse().ok())
        .with_context(|| format!("no {name} in {}", client.said()))
}

/// Runs the benchmark's own program and counts for its client.
pub fn counted(bench: &Bench, library: &Library, client: &str, tool: Tool) -> Result<f64> {
    tool.prepare();
    tool.count(&run(bench, library, client, &tool.command())?)
}

fn run(bench: &Bench, library: &Library, client: &str, tool: &str) -> Result<Running> {
    let (server, connections) = server(client);
    let program = bench.programs.join("sockets");
    let program = program.display();
    let server = format!("{program} {server} $IP {PORT} {connections}");
    let mut serving = serve(&server, Ready::Listening, library)?;
    let (mode, numbers) = client.split_once(' ').context("a mode without numbers")?;
    let command = format!("{tool} {program} {mode} $IP {PORT} {numbers}");
    let mut client = start(command.trim(), library)?;
    client.wait_success()?;
    // What the client measured holds though its server, on the original, waits for ever
    // for one more connection, or for the end of one.
    if let Some(status) = serving.wait_for(GRACE)? {
        ensure!(status.success(), "{status}: {}", serving.said());
    }
    Ok(client)
}

/// The server's mode for a client, and how many connections it makes.
fn server(client: &str) -> (&'static str, usize) {
    let mut words = client.split_whitespace();
    let mode = words.next();
    let numbers: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();
    match (mode, &numbers[..]) {
        (Some("connect"), [threads, count]) => ("serve", count / threads * threads),
        (Some("poll" | "memory"), [count, ..]) => ("hold", count + 1),
        _ => ("serve", 1),
    }
}

/// What counts for a program that runs under it.
#[derive(Clone, Copy)]
pub enum Tool {
    /// System calls, as strace counts them.
    Calls,
    /// Instructions outside of the kernel, as callgrind counts them.
    Instructions,
}

impl Tool {
    /// What is counted.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Calls => "system calls",
            Self::Instructions => "instructions",
        }
    }

    /// What to put before the program's own command. Only one program can be
    /// counted at a time.
    pub fn command(self) -> String {
        match self {
            Self::Calls => format!("strace -D -f -c -o {}", Self::file().display()),
            Self::Instructions => {
                "valgrind --tool=callgrind --callgrind-out-file=/dev/null".to_owned()
            }
        }
    }

    /// To be called before the program starts.
    pub fn prepare(self) {
        // Mostly there is none.
        let _ = fs::remove_file(Self::file());
    }

    /// What was counted, when the program has ended.
    pub fn count(self, program: &Running) -> Result<f64> {
        match self {
            Self::Calls => {
                // strace goes on for a moment after the program.
                let deadline = Instant::now() + LIMIT;
                loop {
                    let table = fs::read_to_string(Self::file()).unwrap_or_default();
                    if let Some(total) = total(&table) {
                        return Ok(total);
                    }
                    ensure!(Instant::now() < deadline, "no total from strace: {table}");
                    thread::sleep(LOOK_AGAIN);
                }
            }
            Self::Instructions => {
                let output = program.output();
                let mut lines = output.lines();
                lines
                    .find_map(|line| line.split_once("Collected : "))
                    .and_then(|(_, count)| count.trim().parse().ok())
                    .with_context(|| format!("no count in {}", program.said()))
            }
        }
    }

    fn file() -> PathBuf {
        std::env::temp_dir().join("bench-strace")
    }
}

/// The number of calls in the last line of what `strace -c` says:
/// "100.00    0.1    7    1111    138 total", in which errors may be absent.
fn total(table: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Starts a server and waits until it is ready for a client.
fn serve(command: &str, ready: Ready, library: &Library) -> Result<Running> {
    let mut serving = start(command, library)?;
    serving.wait_ready(ready)?;
    Ok(serving)
}

fn start(command: &str, library: &Library) -> Result<Running> {
    let words = expand(command)?;
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    program::start(&words, library)
}
