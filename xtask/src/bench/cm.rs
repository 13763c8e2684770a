//! What is measured of the connection manager: the steps of connections as the
//! unmodified cmtime times them, and what one connection costs either side in
//! system calls and instructions. Every figure is a cost.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use super::figures::{Figures, library, order};
use super::measure::Tool;
use crate::guest::program::{self, Ready, Running};
use crate::guest::{Bench, expand};
use crate::library::Library;
use crate::test::compile;

/// Both sides of cmtime, the client with as many connections under way at once
/// as the names of its rows say. The server does not end by itself.
const CMTIME: [&str; 2] = ["cmtime -p 7610", "cmtime -s $IP -p 7610 -c 200"];

/// What cmtime calls its steps, and the rows for them.
const STEPS: [(&str, &str); 7] = [
    ("create id", "one of 200: create id"),
    ("resolve addr", "one of 200: resolve address"),
    ("resolve route", "one of 200: resolve route"),
    ("create qp", "one of 200: create queue pair"),
    ("connect", "one of 200: connect"),
    ("disconnect", "one of 200: disconnect"),
    ("destroy", "one of 200: destroy"),
];

/// The sides of `programs/connection.c`, and the rows for what they cost.
const SIDES: [(&str, &str); 2] = [
    ("client", "one connection, client"),
    ("server", "one connection, server"),
];

/// How many connections are made while the costs are counted: the difference
/// between two runs belongs to the connections alone.
const COUNTS: [u32; 2] = [2, 12];

/// Compiles the program that is counted and returns its folder.
pub fn build() -> Result<PathBuf> {
    compile(&["connection.c"], "connection", &["-lrdmacm"])
}

/// The part beside the device.
pub fn inside(bench: &Bench, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    println!("{}", Figures::HEADER);
    steps(bench, rounds, &wanted);
    for tool in [Tool::Calls, Tool::Instructions] {
        for (side, name) in SIDES.into_iter().filter(|(_, name)| wanted(name)) {
            let figures =
                Figures::measured(rounds, bench, |library| cost(bench, library, side, tool));
            println!("{}", figures.row(name, tool.unit()));
        }
    }
    Ok(())
}

/// The rows of the steps, all of which one run of cmtime measures.
fn steps(bench: &Bench, rounds: usize, wanted: impl Fn(&str) -> bool) {
    let mut rows: Vec<_> = STEPS
        .into_iter()
        .filter(|(_, name)| wanted(name))
        .map(|(step, name)| (step, name, Figures::default()))
        .collect();
    if rows.is_empty() {
        return;
    }
    for which in (0..rounds).flat_map(order) {
        let table = cmtime(library(which, bench));
        for (step, _, figures) in &mut rows {
            let time = match &table {
                Ok(table) => last_of(table, step).context("cmtime does not tell"),
                Err(error) => Err(anyhow!("{error:#}")),
            };
            figures.take(which, time);
        }
    }
    for (_, name, figures) in rows {
        println!("{}", figures.row(name, "µs"));
    }
}

/// What cmtime's client says: a table whose last column is microseconds for
/// each connection.
fn cmtime(library: &Library) -> Result<String> {
    let [server, client] = CMTIME.map(expand);
    let mut serving = start(&server?, library)?;
    serving.wait_ready(Ready::Listening)?;
    let mut client = start(&client?, library)?;
    client.wait_success()?;
    Ok(client.output())
}

/// The last number of the line "step : number number number number".
fn last_of(table: &str, step: &str) -> Option<f64> {
    let mut rows = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = rows.find(|(name, _)| name.trim() == step)?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// What one connection costs a side.
fn cost(bench: &Bench, library: &Library, side: &str, tool: Tool) -> Result<f64> {
    let [few, many] = COUNTS;
    let count = |connections| count(bench, library, side, tool, connections);
    Ok((count(many)? - count(few)?) / f64::from(many - few))
}

/// What a side costs in all, with so many connections.
fn count(
    bench: &Bench,
    library: &Library,
    side: &str,
    tool: Tool,
    connections: u32,
) -> Result<f64> {
    let program = bench.programs.join("connection");
    let run = |role: &str| -> Result<Running> {
        let prefix = if role == side {
            tool.command()
        } else {
            String::new()
        };
        let command = format!(
            "{prefix} {} {role} $IP 7611 {connections}",
            program.display()
        );
        start(&expand(&command)?, library)
    };
    tool.prepare();
    let mut server = run("server")?;
    server.wait_ready(Ready::Listening)?;
    let mut client = run("client")?;
    client.wait_success()?;
    server.wait_success()?;
    tool.count(if side == "client" { &client } else { &server })
}

fn start(words: &[String], library: &Library) -> Result<Running> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    program::start(&words, library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_table() {
        let table = "step              total ms     max ms     min us  us / conn\n\
            create id    :        1.42       0.16       5.00      14.20\n\
            connect      :      400.66     361.40  312127.00    4006.57\n\
            disconnect   :     1016.05     760.36    2481.00   10160.53\n";
        assert_eq!(last_of(table, "create id"), Some(14.2));
        assert_eq!(last_of(table, "connect"), Some(4006.57));
        assert_eq!(last_of(table, "destroy"), None);
    }
}
