//! Suites that need an RDMA device, as seen from outside of the machine that
//! has it: what is built for them, and how their part beside the device is
//! started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Name, commands, conformance, containers, faults, fixed, hosts, preload, soak, srp};
use crate::library;
use crate::place::Place;
use crate::queue::{Queue, Taker};
use crate::report::{Collector, Suite};

/// The longest one suite may take beside the device.
const LIMIT: Duration = Duration::from_secs(3600);

/// What selects the long form of a suite.
pub const FULL_LENGTH: &str = "full-length";

/// What to ask of the part beside the device, besides its selection: the long
/// form, if no other suite was asked for.
pub fn length(alone: bool) -> Vec<String> {
    alone.then(|| FULL_LENGTH.to_owned()).into_iter().collect()
}

/// What a suite needs, built before any of them runs.
pub struct Built {
    /// The folder of the library under test.
    stage: PathBuf,
    /// The folder of what was compiled for the suite, if anything was.
    programs: Option<PathBuf>,
}

impl Built {
    /// Builds what `name` needs; the library is staged in `stage`, and the folder
    /// of the conformance programs, which several suites run, is `conformance`.
    pub fn new(
        name: Name,
        stage: &Path,
        conformance: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<Self> {
        let programs = match name {
            Name::Conformance | Name::Valgrind | Name::Helgrind | Name::Interop => {
                Some(conformance()?)
            }
            Name::Commands => Some(commands::build()?),
            Name::Containers => Some(containers::build()?),
            Name::Hosts => Some(hosts::build()?),
            Name::Srp => Some(srp::build()?),
            Name::Faults => Some(faults::build()?),
            Name::Preload => Some(preload::build()?),
            Name::Soak => Some(soak::build(conformance()?)?),
            Name::Clients => Some(fixed::build()?),
            Name::Rust | Name::Generated | Name::Abi | Name::Reference => None,
        };
        let stage = match name {
            Name::Helgrind => library::stage_for_checkers()?,
            Name::Preload => library::stage_preload()?,
            _ => stage.to_path_buf(),
        };
        Ok(Self { stage, programs })
    }
}

/// A suite that is to run.
pub struct Beside<'a> {
    /// Which one.
    pub name: Name,
    /// Where.
    pub place: &'a Place,
    /// What it needs.
    pub built: &'a Built,
    /// Without what is merely thorough.
    pub quick: bool,
}

impl Beside<'_> {
    /// Runs the suite and collects its cases; `alone` if no other was asked for.
    pub fn run(&self, alone: bool, suite: &mut Suite) -> Result<()> {
        match self.name {
            Name::Conformance => conformance::run(self, suite),
            Name::Hosts => {
                let arguments = [self.arguments(), length(alone)].concat();
                hosts::run(self.place, &arguments, suite)
            }
            Name::Srp => srp::run(self, alone, suite),
            Name::Soak => self.start(&length(alone), suite),
            _ => self.start(&[], suite),
        }
    }

    /// Runs the part beside the device: all of it, or the `selection`.
    pub fn start(&self, selection: &[String], suite: &mut Suite) -> Result<()> {
        self.start_sharing(&[], selection, suite)
    }

    /// Runs a part beside the device that takes pieces of the suite from `queue` as
    /// `taker`, until there are none; `options` are what else is asked of it.
    pub fn start_taking(
        &self,
        queue: &Queue,
        taker: &Taker,
        options: &[String],
        suite: &mut Suite,
    ) -> Result<()> {
        let mut selection = vec!["--taker".to_owned()];
        selection.push(taker.folder().to_string_lossy().into_owned());
        selection.extend_from_slice(options);
        self.start_sharing(&[queue.folder().to_path_buf()], &selection, suite)
    }

    fn start_sharing(
        &self,
        folders: &[PathBuf],
        selection: &[String],
        suite: &mut Suite,
    ) -> Result<()> {
        let arguments = [&self.arguments(), selection].concat();
        let mut results = Collector::new(suite);
        let status = self
            .place
            .run_sharing(folders, &arguments, LIMIT, &mut results)?;
        ensure!(
            status == 0,
            "the part beside the device ended with status {status}"
        );
        Ok(())
    }

    /// Which suite, which library, which programs.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![self.name.text().to_owned()];
        let mut option = |name: &str, folder: &Path| {
            arguments.push(name.to_owned());
            arguments.push(folder.to_string_lossy().into_owned());
        };
        option("--library", &self.built.stage);
        if let Some(programs) = &self.built.programs {
            option("--programs", programs);
        }
        if self.quick {
            arguments.push("--quick".to_owned());
        }
        arguments
    }
}
