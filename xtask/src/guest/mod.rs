//! `xtask guest`: the half of demo and test that runs beside the RDMA device,
//! inside the test machine or on a machine with a device of its own. Not meant
//! to be called by people.
//!
//! The modules here know programs, devices and processes; what is tested lives
//! in [`crate::demo`], [`crate::bench`] and [`crate::test`].

pub mod device;
pub mod program;
pub mod rping;
pub mod srp;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::library::Library;
use crate::queue::Taker;
use crate::report::Suite;
use crate::{bench, demo, test};

/// The command line of `xtask guest`.
#[derive(clap::Args)]
pub struct Args {
    /// What to do: `demo`, `bench` or the name of a suite
    work: String,
    /// The folder with our library
    #[arg(long)]
    library: PathBuf,
    /// The folder with the programs compiled for the suite
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Fewer combinations
    #[arg(long)]
    quick: bool,
    /// The folder with which it takes pieces of a suite that machines share
    #[arg(long)]
    taker: Option<PathBuf>,
    /// What to run of the suite; everything when empty
    selection: Vec<String>,
}

/// What the work gets to know.
pub struct Bench {
    /// Our library.
    pub ours: Library,
    /// The folder with the programs compiled for the suite.
    pub programs: PathBuf,
    /// Whether to leave out what is merely thorough.
    pub quick: bool,
    /// What to run of the suite; everything when empty.
    pub selection: Vec<String>,
    taker: Option<Taker>,
}

impl Bench {
    /// The next piece of a suite that machines share, if there is any left.
    pub fn take_piece(&self) -> Result<Option<String>> {
        let taker = self.taker.as_ref();
        taker.context("there is no queue of pieces")?.take()
    }
}

impl Args {
    /// Does the work. Failed cases are in the output; the exit status tells
    /// only whether the work could be done.
    pub fn run(self) -> Result<ExitCode> {
        let bench = Bench {
            ours: Library::Ours(self.library),
            programs: self.programs.unwrap_or_default(),
            quick: self.quick,
            selection: self.selection,
            taker: self.taker.map(Taker::of),
        };
        if self.work.starts_with("demo") {
            return demo::inside(&self.work, &bench);
        }
        if self.work.starts_with("bench") {
            return bench::inside(&self.work, &bench);
        }
        let mut suite = Suite::new(&self.work);
        test::inside(&self.work, &bench, &mut suite)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A variable of the test set-up.
pub fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set"))
}

/// The address on the RDMA device.
pub fn ip() -> Result<String> {
    variable("RDMACM_TEST_IP")
}

/// The words of a command, in which `$IP` and `$IP6` stand for the addresses
/// on the RDMA device, `$DEV` for itself.
pub fn expand(command: &str) -> Result<Vec<String>> {
    const NAMES: [(&str, &str); 3] = [
        ("$IP6", "RDMACM_TEST_IP6"),
        ("$IP", "RDMACM_TEST_IP"),
        ("$DEV", "RDMACM_TEST_DEV"),
    ];
    let mut command = command.to_owned();
    for (name, value) in NAMES {
        if command.contains(name) {
            command = command.replace(name, &variable(value)?);
        }
    }
    Ok(command.split_whitespace().map(str::to_owned).collect())
}
