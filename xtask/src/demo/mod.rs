//! `cargo xtask demo`: shows the library at work beside a real kernel.

mod rping;
mod srp;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::guest::Bench;
use crate::place::Options;
use crate::{library, setup};

const LIMIT: Duration = Duration::from_secs(600);

/// The command line of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// What to show
    #[arg(value_enum, default_value_t = Subject::Rping)]
    subject: Subject,
    #[command(flatten)]
    options: Options,
}

/// What there is to show.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Subject {
    /// The distribution's own rping makes a connection through our library
    Rping,
    /// Linux's own SRP initiator has a disk on our target
    Srp,
}

impl Args {
    /// Builds what is shown and shows it.
    pub fn run(self) -> Result<ExitCode> {
        setup::ensure()?;
        let stage = library::stage()?;
        let (work, programs) = match self.subject {
            Subject::Rping => ("demo", None),
            Subject::Srp => ("demo-srp", Some(library::stage_srp_target()?)),
        };
        let place = self.options.place()?;
        println!("place: {}", place.describe());
        let stage = stage.to_string_lossy();
        let mut arguments = vec![work, "--library", &stage];
        let programs = programs.map(|dir| dir.to_string_lossy().into_owned());
        if let Some(programs) = &programs {
            arguments.extend(["--programs", programs]);
        }
        let status = place.run(&arguments, LIMIT, &mut io::stdout())?;
        Ok(ExitCode::from(status))
    }
}

/// The part beside the device.
pub fn inside(work: &str, bench: &Bench) -> Result<ExitCode> {
    match work {
        "demo" => rping::inside(bench),
        "demo-srp" => srp::inside(bench),
        _ => bail!("there is no {work}"),
    }
}
