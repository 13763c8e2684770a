//! `cargo xtask bench`: how ours compares with the original, both measured in
//! turns in one boot of the test machine, printed as a Markdown table.
//!
//! A benchmark judges nothing: it ends with success whatever the figures are.

mod cm;
mod figures;
mod measure;
mod sockets;
mod srp;

use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::guest::Bench;
use crate::place::Options;
use crate::{library, process, setup, workspace};

use figures::Figures;

/// The longest a benchmark may take.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The command line of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    subject: Subject,
    #[command(flatten)]
    options: Options,
    /// How often to measure each row on each library
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure only rows whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

/// What there is to measure.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Subject {
    /// Connections
    Cm,
    /// Sockets over RDMA
    Rsocket,
    /// Disks over SRP: srp-target and the kernel's ib_srpt
    Srp,
}

impl Args {
    /// Measures and prints.
    pub fn run(self) -> Result<ExitCode> {
        setup::ensure()?;
        let stage = library::stage()?;
        let (work, programs) = match self.subject {
            Subject::Cm => ("bench-cm", cm::build()?),
            Subject::Rsocket => ("bench", build("sockets")?),
            Subject::Srp => ("bench-srp", library::stage_srp_target()?),
        };
        let place = self.options.place()?;
        println!("place: {}", place.describe());
        let [library, programs] = [stage, programs].map(|dir| dir.to_string_lossy().into_owned());
        let rounds = self.rounds.to_string();
        let mut arguments = vec![work, "--library", &library, "--programs", &programs];
        arguments.push(&rounds);
        arguments.extend(self.only.iter().map(String::as_str));
        let status = place.run(&arguments, LIMIT, &mut io::stdout())?;
        Ok(ExitCode::from(status))
    }
}

/// Compiles a program of `capi-tests/bench` and returns its folder.
fn build(name: &str) -> Result<std::path::PathBuf> {
    let dir = workspace::target("bench-programs")?;
    let source = workspace::root().join(format!("capi-tests/bench/{name}.c"));
    process::output(
        Command::new("cc")
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(dir.join(name))
            .arg(source)
            .args(["-lrdmacm", "-pthread"]),
    )?;
    Ok(dir)
}

/// The part beside the device. The selection begins with the number of rounds.
pub fn inside(work: &str, bench: &Bench) -> Result<ExitCode> {
    let (rounds, only) = match bench.selection.split_first() {
        Some((rounds, only)) => (rounds.parse()?, only),
        None => (1, &bench.selection[..]),
    };
    let wanted = |name: &str| only.is_empty() || only.iter().any(|text| name.contains(text));
    match work {
        "bench-cm" => cm::inside(bench, rounds, wanted)?,
        "bench" => sockets(bench, rounds, wanted)?,
        "bench-srp" => srp::inside(bench, rounds, wanted)?,
        _ => bail!("there is no {work}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn sockets(bench: &Bench, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let rows: Vec<_> = sockets::ROWS
        .iter()
        .filter(|row| wanted(row.name))
        .collect();
    ensure!(!rows.is_empty(), "no row has such a name");
    println!("{}", Figures::HEADER);
    for row in rows {
        let rounds = row.rounds(rounds);
        let figures = Figures::measured(rounds, bench, |library| row.measure(bench, library));
        println!("{}", figures.row(row.name, row.unit));
    }
    Ok(())
}
