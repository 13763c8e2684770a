//! Measuring once: a server and a client on the same library, and the figure
//! that the client, or the tool it runs under, prints.

use std::fs;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::guest::program::{self, LIMIT, LOOK_AGAIN, Ready, Running};
use crate::guest::{Bench, expand};
use crate::library::Library;

/// Port of the benchmark's own server.
const PORT: &str = "7600";

/// Runs unmodified programs, and returns the last figure of the client's last
/// line: microseconds per transfer.
pub fn utility(server: &str, client: &str, library: &Library) -> Result<f64> {
    let mut serving = start(server, library)?;
    let mut client = start(client, library)?;
    client.wait_success()?;
    serving.wait_success()?;
    let output = client.output();
    let line = output.lines().last().context("no output")?;
    let figure = line.split_whitespace().last().context("an empty line")?;
    figure
        .parse()
        .with_context(|| format!("no figure at the end of \"{line}\""))
}

/// Runs the benchmark's own program: `client` is its mode and numbers, `tool`
/// what the client runs under.
pub fn own(bench: &Bench, library: &Library, client: &str, tool: &str) -> Result<Running> {
    let connections = connections(client);
    let program = bench.programs.join("sockets");
    let program = program.display();
    let mut serving = start(
        &format!("{program} serve $IP {PORT} {connections}"),
        library,
    )?;
    let (mode, numbers) = client.split_once(' ').context("a mode without numbers")?;
    let command = format!("{tool} {program} {mode} $IP {PORT} {numbers}");
    let words = expand(command.trim())?;
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut client = program::start(&words, library)?;
    client.wait_success()?;
    serving.wait_success()?;
    Ok(client)
}

/// How many connections a client makes.
fn connections(client: &str) -> usize {
    let mut words = client.split_whitespace();
    let mode = words.next();
    let numbers: Vec<usize> = words.filter_map(|word| word.parse().ok()).collect();
    match (mode, &numbers[..]) {
        (Some("connect"), [threads, count]) => count / threads * threads,
        (Some("poll" | "memory"), [count, ..]) => count + 1,
        _ => 1,
    }
}

/// The value that the benchmark's own program printed after `name`.
pub fn value(client: &Running, name: &str) -> Result<f64> {
    let output = client.output();
    output
        .split_whitespace()
        .skip_while(|word| *word != name)
        .nth(1)
        .and_then(|value| value.parse().ok())
        .with_context(|| format!("no {name} in {}", client.said()))
}

/// System calls of the client, as strace counts them.
pub fn calls(bench: &Bench, library: &Library, client: &str) -> Result<f64> {
    let file = std::env::temp_dir().join("bench-strace");
    let _ = fs::remove_file(&file);
    own(
        bench,
        library,
        client,
        &format!("strace -D -f -c -o {}", file.display()),
    )?;
    // strace goes on for a moment after the program.
    let deadline = Instant::now() + LIMIT;
    loop {
        let table = fs::read_to_string(&file).unwrap_or_default();
        if let Some(total) = total(&table) {
            return Ok(total);
        }
        ensure!(Instant::now() < deadline, "no total from strace: {table}");
        thread::sleep(LOOK_AGAIN);
    }
}

/// The number of calls in the last line of what `strace -c` says:
/// "100.00    0.1    7    1111    138 total", in which errors may be absent.
fn total(table: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Instructions of the client outside of the kernel, as callgrind counts them.
pub fn instructions(bench: &Bench, library: &Library, client: &str) -> Result<f64> {
    let tool = "valgrind --tool=callgrind --callgrind-out-file=/dev/null";
    let client = own(bench, library, client, tool)?;
    let output = client.output();
    output
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse().ok())
        .with_context(|| format!("no count in {}", client.said()))
}

fn start(command: &str, library: &Library) -> Result<Running> {
    let words = expand(command)?;
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut running = program::start(&words, library)?;
    // A client is not waited for: it is there when it has ended.
    if words.contains(&"-b") || words.contains(&"serve") {
        running.wait_ready(Ready::Listening)?;
    }
    Ok(running)
}
