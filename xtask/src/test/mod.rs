//! `cargo xtask test`: every test of the repository, suite by suite, with a
//! closing table. The last line is `N passed, N failed`, alone.
//!
//! Suites that need an RDMA device have a part that runs beside it ([`inside`],
//! one boot of the test machine per suite) and a part here that prepares it.

mod cases;
mod checked;
mod clients;
mod columns;
mod commands;
mod conformance;
mod containers;
mod faults;
mod helgrind;
mod hosts;
mod interop;
mod pairing;
mod preload;
mod results;
mod rust;
mod soak;
pub mod srp;
mod valgrind;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};

use columns::Column;

use crate::guest::Bench;
use crate::place::{Options, Place};
use crate::report::{Collector, Outcome, Suite, Tally, table};
use crate::{abi, headers, library, man, matrix, process, setup, workspace};

/// The longest one suite may take beside the device.
const LIMIT: Duration = Duration::from_secs(2400);

/// The command line of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Run the suites that depend on kernel and userland on all of them, or on
    /// that of --kernel, and write docs/matrix.md
    #[arg(long, conflicts_with_all = ["host", "root"])]
    matrix: bool,
    /// Run only this suite; may be repeated
    #[arg(long, value_enum, value_name = "SUITE")]
    only: Vec<Name>,
    /// Leave out what is merely thorough
    #[arg(long)]
    quick: bool,
}

/// The suites, in the order they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// Formatting, lints and tests of the Rust code
    Rust,
    /// Generated files are up to date
    Generated,
    /// Headers, symbols and layouts against the original's
    Abi,
    /// C conformance programs on the original and on ours
    Conformance,
    /// Unmodified programs of rdmacm-utils, against ours and the original
    Clients,
    /// Unmodified programs on sockets, against ours and the original
    Interop,
    /// Unmodified programs with the preload library
    Preload,
    /// Kernel commands per connection
    Commands,
    /// Missing nodes, permissions and devices
    Containers,
    /// Two machines: traffic, failing links, a killed peer
    Hosts,
    /// Memory errors and leaks
    Valgrind,
    /// Races and locks out of order
    Helgrind,
    /// The kernel's SRP initiator on our target
    Srp,
    /// Failing system calls
    Faults,
    /// Many connections; asked for alone, ten times as many
    Soak,
}

impl Name {
    /// Suites that run only where they are named.
    const ON_DEMAND: [Self; 2] = [Self::Interop, Self::Srp];

    const ALL: [Self; 15] = [
        Self::Rust,
        Self::Generated,
        Self::Abi,
        Self::Conformance,
        Self::Clients,
        Self::Interop,
        Self::Preload,
        Self::Commands,
        Self::Containers,
        Self::Hosts,
        Self::Valgrind,
        Self::Helgrind,
        Self::Srp,
        Self::Faults,
        Self::Soak,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Generated => "generated",
            Self::Abi => "abi",
            Self::Conformance => "conformance",
            Self::Clients => "clients",
            Self::Interop => "interop",
            Self::Preload => "preload",
            Self::Commands => "commands",
            Self::Containers => "containers",
            Self::Hosts => "hosts",
            Self::Valgrind => "valgrind",
            Self::Helgrind => "helgrind",
            Self::Srp => "srp",
            Self::Faults => "faults",
            Self::Soak => "soak",
        }
    }

    fn needs_device(self) -> bool {
        !matches!(self, Self::Rust | Self::Generated | Self::Abi)
    }
}

impl Args {
    /// Runs the suites.
    pub fn run(self) -> Result<ExitCode> {
        setup::ensure()?;
        let stage = library::stage()?;
        // Before the first result is written, which would be a change.
        let commit = results::commit()?;
        let mut done = Vec::new();
        for round in self.rounds() {
            done.extend(self.run_round(&round, &stage, &commit));
        }
        Ok(close(&done))
    }

    /// What to run where.
    fn rounds(&self) -> Vec<Round> {
        let asked = |names: &[Name]| {
            let wanted = |name: &Name| match self.only.as_slice() {
                [] => !Name::ON_DEMAND.contains(name),
                only => only.contains(name),
            };
            names.iter().copied().filter(wanted).collect()
        };
        let round = |column, names: &[Name]| Round {
            column,
            names: asked(names),
        };
        if self.matrix {
            let kernel = self.options.kernel();
            return Column::ALL
                .into_iter()
                .filter(|column| kernel.is_none_or(|kernel| column.has(kernel)))
                .map(|column| round(Some(column), &columns::SUITES))
                .collect();
        }
        if self.options.chosen() {
            return vec![round(None, &Name::ALL)];
        }
        let mut rounds = vec![round(Some(Column::FIRST), &Name::ALL)];
        // Who asks for a suite while developing gets it once.
        if self.only.is_empty() {
            rounds.push(round(Some(Column::LAST), &columns::SUITES));
        }
        rounds
    }

    /// Runs suites in one place. Those that cannot have it fail, the others run.
    fn run_round(&self, round: &Round, stage: &Path, commit: &str) -> Vec<Done> {
        let place = if round.names.iter().any(|name| name.needs_device()) {
            match round.column {
                Some(column) => column.place(),
                None => self.options.place(),
            }
        } else {
            Err(anyhow!("no suite here was to have one"))
        };
        match &place {
            Ok(place) => println!("place: {}", place.describe()),
            Err(error) => println!("no place: {error:#}"),
        }
        let mut done = Vec::new();
        for &name in &round.names {
            println!("\n== {} ==", name.text());
            let started = Instant::now();
            let mut suite = Suite::new(name.text());
            let alone = self.only == [name];
            if let Err(error) = run(name, &place, stage, self.quick, alone, &mut suite) {
                let why = format!("{error:#}");
                println!("{why}");
                suite.record("the suite itself", Outcome::Failed(why));
            }
            if self.matrix
                && let Some(column) = round.column
                && let Err(error) = results::record(column, commit, &suite)
            {
                println!("{error:#}");
            }
            let column = round.column.filter(|_| name.needs_device());
            done.push(Done {
                column: column.map(Column::name).unwrap_or_default(),
                suite,
                time: started.elapsed(),
            });
        }
        done
    }
}

/// Suites that run in one place: a column, or where the options say.
struct Round {
    column: Option<Column>,
    names: Vec<Name>,
}

/// A suite that has run.
struct Done {
    column: String,
    suite: Suite,
    time: Duration,
}

fn run(
    name: Name,
    place: &Result<Place>,
    stage: &Path,
    quick: bool,
    alone: bool,
    suite: &mut Suite,
) -> Result<()> {
    match name {
        Name::Rust => return rust::run(suite),
        Name::Generated => {
            suite.check("include/ is what the sources say", headers::check());
            suite.check("docs/symbols.md is what the sources say", matrix::check());
            suite.check("every function has a good manual page", man::check());
            suite.check("every documented case exists", cases::check());
            return Ok(());
        }
        Name::Abi => return abi::run(stage, &[], suite),
        _ => {}
    }
    let place = place
        .as_ref()
        .map_err(|error| anyhow!("no place: {error:#}"))?;
    let beside = Beside {
        place,
        stage,
        quick,
    };
    match name {
        Name::Conformance => conformance::run(&beside, suite),
        Name::Hosts => hosts::run(place, stage, suite),
        Name::Commands => beside.run(name.text(), Some(&commands::build()?), &[], suite),
        Name::Preload => {
            let beside = Beside {
                stage: &library::stage_preload()?,
                ..beside
            };
            beside.run(name.text(), Some(&preload::build()?), &[], suite)
        }
        Name::Valgrind => {
            let programs = conformance::build(stage, suite)?;
            beside.run(name.text(), Some(&programs), &[], suite)
        }
        Name::Helgrind => {
            let programs = conformance::build(stage, suite)?;
            let beside = Beside {
                stage: &library::stage_for_checkers()?,
                ..beside
            };
            beside.run(name.text(), Some(&programs), &[], suite)
        }
        Name::Containers => beside.run(name.text(), Some(&containers::build()?), &[], suite),
        Name::Srp => {
            let selection = srp::selection(alone);
            beside.run(name.text(), Some(&srp::build()?), &selection, suite)
        }
        Name::Faults => beside.run(name.text(), Some(&faults::build()?), &[], suite),
        Name::Soak => {
            let selection = soak::selection(alone);
            let programs = soak::build(stage, suite)?;
            beside.run(name.text(), Some(&programs), &selection, suite)
        }
        _ => beside.run(name.text(), None, &[], suite),
    }
}

/// How to run the part of a suite that needs the RDMA device.
struct Beside<'a> {
    place: &'a Place,
    stage: &'a Path,
    quick: bool,
}

impl Beside<'_> {
    /// Runs it and collects its cases. `programs` is the folder with what was
    /// compiled for it, `selection` what to run of it (empty: everything).
    fn run(
        &self,
        name: &str,
        programs: Option<&Path>,
        selection: &[String],
        suite: &mut Suite,
    ) -> Result<()> {
        let library = self.stage.to_string_lossy();
        let mut arguments = vec![name, "--library", &library];
        if let Some(dir) = programs.and_then(Path::to_str) {
            arguments.extend(["--programs", dir]);
        }
        if self.quick {
            arguments.push("--quick");
        }
        arguments.extend(selection.iter().map(String::as_str));
        let status = self
            .place
            .run(&arguments, LIMIT, &mut Collector::new(suite))?;
        ensure!(
            status == 0,
            "the part beside the device ended with status {status}"
        );
        Ok(())
    }
}

/// The part of a suite that runs beside the RDMA device.
pub fn inside(name: &str, bench: &Bench, suite: &mut Suite) -> Result<()> {
    match name {
        "conformance" => conformance::inside(bench, suite),
        "clients" => clients::inside(bench, suite),
        "interop" => interop::inside(bench, suite),
        "preload" => preload::inside(bench, suite),
        "commands" => commands::inside(bench, suite),
        "containers" => containers::inside(bench, suite),
        "hosts" => hosts::inside(bench, suite),
        "valgrind" => valgrind::inside(bench, suite),
        "helgrind" => helgrind::inside(bench, suite),
        "srp" => srp::inside(bench, suite),
        "faults" => faults::inside(bench, suite),
        "soak" => soak::inside(bench, suite),
        _ => bail!("no suite {name} runs beside the device"),
    }
}

/// Prints what failed, the closing table and the closing line.
fn close(done: &[Done]) -> ExitCode {
    let failures: Vec<_> = done
        .iter()
        .flat_map(|done| done.suite.cases.iter().map(move |case| (done, case)))
        .filter(|(_, case)| matches!(case.outcome, Outcome::Failed(_)))
        .collect();
    if !failures.is_empty() {
        println!("\nfailed:");
    }
    for (done, case) in failures {
        println!("  {} [{}]: {case}", done.suite.name, done.column);
    }

    let mut rows = vec![
        ["suite", "kernel", "passed", "failed", "skipped", "seconds"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for done in done {
        let tally = Tally::of(&done.suite.cases);
        rows.push(vec![
            done.suite.name.clone(),
            done.column.clone(),
            tally.passed.to_string(),
            tally.failed.to_string(),
            tally.skipped.to_string(),
            done.time.as_secs().to_string(),
        ]);
    }
    println!("\n{}", table(&rows));

    let tally = Tally::of(done.iter().flat_map(|done| &done.suite.cases));
    println!("{tally}");
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Compiles C files of this package into one program or library in `target/`
/// and returns the folder.
fn compile(sources: &[&str], output: &str, flags: &[&str]) -> Result<PathBuf> {
    let dir = workspace::target("test-programs")?;
    compile_into(&dir, sources, output, flags)?;
    Ok(dir)
}

/// Compiles C files of this package into one program or library in a folder.
fn compile_into(dir: &Path, sources: &[&str], output: &str, flags: &[&str]) -> Result<()> {
    let programs = workspace::root().join("xtask/programs");
    process::output(
        Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(dir.join(output))
            .args(sources.iter().map(|source| programs.join(source)))
            .args(flags),
    )?;
    Ok(())
}
