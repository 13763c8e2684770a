//! `cargo xtask test`: every test of the repository, suite by suite, with a
//! closing table. The last line is `N passed, N failed`, alone.
//!
//! Suites that need an RDMA device have a part that runs beside it ([`inside`],
//! one boot of the test machine per suite) and a part here that prepares it.

mod beside;
mod cases;
mod checked;
mod clients;
mod columns;
mod commands;
mod conformance;
mod containers;
mod faults;
mod fixed;
mod helgrind;
mod hosts;
mod interop;
mod links;
mod pairing;
mod parallel;
mod preload;
mod reference;
mod results;
mod rust;
mod shares;
mod soak;
pub mod srp;
mod valgrind;

use std::cell::LazyCell;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use beside::{Beside, Built};
use columns::Column;

use crate::guest::Bench;
use crate::place::{Options, Place};
use crate::report::{Outcome, Suite, Tally, table};
use crate::{abi, headers, library, man, matrix, process, setup, workspace};

/// How many suites run at once: they wait for events and time limits more than
/// they compute.
const AT_ONCE: usize = 2;

/// The command line of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Run the suites that depend on kernel and userland on all of them, or on
    /// that of --kernel, and write docs/matrix.md
    #[arg(long, conflicts_with_all = ["host", "root"])]
    matrix: bool,
    /// Write to docs/matrix.md what this run says about it
    #[arg(long, conflicts_with_all = ["host", "root", "kernel"])]
    record: bool,
    /// Run only this suite; may be repeated
    #[arg(long, value_enum, value_name = "SUITE")]
    only: Vec<Name>,
    /// Leave out what is merely thorough
    #[arg(long)]
    quick: bool,
}

/// The suites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// Formatting, lints and tests of the Rust code
    Rust,
    /// Generated files are up to date
    Generated,
    /// Headers, symbols and layouts against the original's
    Abi,
    /// C conformance programs for sockets on the kernel's TCP
    Reference,
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
    /// Two machines: traffic, failing links, a killed peer; asked for alone, SRP over
    /// a bad link as well
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
    /// All, in the order they begin: of those that need a device the long ones
    /// first.
    const ALL: [Self; 16] = [
        Self::Rust,
        Self::Generated,
        Self::Abi,
        Self::Reference,
        Self::Valgrind,
        Self::Conformance,
        Self::Srp,
        Self::Clients,
        Self::Interop,
        Self::Preload,
        Self::Commands,
        Self::Containers,
        Self::Hosts,
        Self::Helgrind,
        Self::Faults,
        Self::Soak,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Generated => "generated",
            Self::Abi => "abi",
            Self::Reference => "reference",
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
        !matches!(
            self,
            Self::Rust | Self::Generated | Self::Abi | Self::Reference
        )
    }
}

impl Args {
    /// Runs the suites: first those without a device, then what the others need
    /// is built, then they run, some at once.
    pub fn run(self) -> Result<ExitCode> {
        setup::ensure()?;
        let stage = library::stage()?;
        // Before the first result is written, which would be a change.
        let commit = results::commit()?;
        let rounds = self.rounds();
        let mut done: Vec<_> = asked(&rounds)
            .filter(|name| !name.needs_device())
            .map(|name| {
                finish(Suite::new(name.text()), None, |suite| {
                    run(name, &stage, suite)
                })
            })
            .collect();

        let programs = LazyCell::new(|| conformance::build(&stage));
        let mut built = Vec::new();
        for name in asked(&rounds).filter(|name| name.needs_device()) {
            if !built.iter().any(|(other, _)| *other == name) {
                let programs = || known(&*programs).cloned();
                built.push((name, Built::new(name, &stage, programs)));
            }
        }
        let mut places = Vec::new();
        for round in rounds.iter().filter(|round| round.needs_device()) {
            let place = match round.column {
                Some(column) => column.place(),
                None => self.options.place(),
            };
            match &place {
                Ok(place) => println!("place: {}", place.describe()),
                Err(error) => println!("no place: {error:#}"),
            }
            places.push((round, place));
        }

        let mut tasks = Vec::new();
        for (name, built) in &built {
            let rounds = places
                .iter()
                .filter(|(round, _)| round.names.contains(name));
            tasks.extend(rounds.map(|(round, place)| Task {
                name: *name,
                column: round.column,
                place,
                built,
            }));
        }
        let labelled = tasks.len() > 1;
        let recording = Mutex::new(());
        done.extend(parallel::each(&tasks, AT_ONCE, |task| {
            let done = self.run_task(task, labelled);
            if let Some(column) = task.column.filter(|_| self.records(task.name)) {
                let _alone = recording.lock();
                if let Err(error) = results::record(column, &commit, &done.suite) {
                    done.suite.say(&format!("{error:#}"));
                }
            }
            done
        }));
        Ok(close(&done))
    }

    fn records(&self, name: Name) -> bool {
        (self.matrix || self.record) && columns::SUITES.contains(&name)
    }

    fn run_task(&self, task: &Task, labelled: bool) -> Done {
        let mut suite = Suite::new(task.name.text());
        if labelled {
            let column = task.column.map(Column::name).unwrap_or_default();
            suite = suite.with_label(format!("{} {column}", task.name.text()));
        }
        finish(suite, task.column, |suite| {
            let beside = Beside {
                name: task.name,
                place: known(task.place)?,
                built: known(task.built)?,
                quick: self.quick,
            };
            beside.run(self.only == [task.name], suite)
        })
    }

    /// What to run where.
    fn rounds(&self) -> Vec<Round> {
        let asked = |names: &[Name]| {
            let wanted = |name: &Name| self.only.is_empty() || self.only.contains(name);
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
                .map(|column| round(Some(column), column.suites))
                .collect();
        }
        if self.options.chosen() {
            return vec![round(None, &Name::ALL)];
        }
        let mut rounds = vec![round(Some(Column::FIRST), &Name::ALL)];
        // Who asks for a suite while developing gets it once.
        if self.only.is_empty() {
            let mut last = round(Some(Column::LAST), &columns::SUITES);
            last.names.retain(|name| !columns::ON_DEMAND.contains(name));
            rounds.push(last);
        }
        rounds
    }
}

/// Suites that run in one place: a column, or where the options say.
struct Round {
    column: Option<Column>,
    names: Vec<Name>,
}

impl Round {
    fn needs_device(&self) -> bool {
        self.names.iter().any(|name| name.needs_device())
    }
}

/// A suite that is to run beside a device.
struct Task<'a> {
    name: Name,
    column: Option<Column>,
    place: &'a Result<Place>,
    built: &'a Result<Built>,
}

/// A suite that has run.
struct Done {
    column: String,
    suite: Suite,
    time: Duration,
}

/// The suites of all rounds.
fn asked(rounds: &[Round]) -> impl Iterator<Item = Name> {
    rounds.iter().flat_map(|round| round.names.iter().copied())
}

/// What preparations gave, for one of those that need it.
fn known<T>(result: &Result<T>) -> Result<&T> {
    result.as_ref().map_err(|error| anyhow!("{error:#}"))
}

/// Runs a suite to its end. One that cannot run has failed.
fn finish(
    mut suite: Suite,
    column: Option<Column>,
    run: impl FnOnce(&mut Suite) -> Result<()>,
) -> Done {
    suite.say(&format!("== {} ==", suite.name));
    let started = Instant::now();
    if let Err(error) = run(&mut suite) {
        let why = format!("{error:#}");
        suite.say(&why);
        suite.record("the suite itself", Outcome::Failed(why));
    }
    Done {
        column: column.map(Column::name).unwrap_or_default(),
        suite,
        time: started.elapsed(),
    }
}

/// Runs a suite that needs no device.
fn run(name: Name, stage: &Path, suite: &mut Suite) -> Result<()> {
    match name {
        Name::Rust => rust::run(suite),
        Name::Generated => {
            suite.check("include/ is what the sources say", headers::check());
            suite.check(
                "docs/symbols.md is what the version map says",
                matrix::check(),
            );
            suite.check("every function has a good manual page", man::check());
            suite.check("every documented case exists", cases::check());
            suite.check("documents point at what is there", links::check());
            Ok(())
        }
        Name::Abi => abi::run(stage, &[], suite),
        Name::Reference => reference::run(stage, suite),
        _ => bail!("{} needs a device", name.text()),
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
pub fn compile(sources: &[&str], output: &str, flags: &[&str]) -> Result<PathBuf> {
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
