//! `cargo xtask abi`: proof that programs built for the original library run
//! on ours, and that programs written for it compile against our headers.
//!
//! The C sources of the checks are in `xtask/abi/`. The behaviour of the
//! functions is tested elsewhere.

mod binary;
pub mod consumer;
mod headers;
pub mod srpt;
mod witness;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::library;
use crate::report::Suite;

/// Command line of `cargo xtask abi`.
#[derive(clap::Args)]
pub struct Args {
    /// A folder with headers of another version of the original, to be
    /// compared as well; may be repeated
    #[arg(long, value_name = "DIR")]
    original: Vec<PathBuf>,
}

impl Args {
    /// Runs all checks.
    pub fn run(self) -> Result<ExitCode> {
        let mut suite = Suite::new("abi");
        run(&library::stage()?, &self.original, &mut suite)?;
        Ok(if suite.has_failures() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// Checks the headers, the staged library in the folder `stage`, and what
/// programs make of them. `originals` are folders with headers of the original
/// besides the installed ones.
pub fn run(stage: &Path, originals: &[PathBuf], suite: &mut Suite) -> Result<()> {
    // What is installed for the checks has libsrpt in it.
    library::stage_srpt()?;
    headers::run(originals, suite)?;
    binary::run(&stage.join("librdmacm.so.1"), suite);
    consumer::run(stage, suite);
    witness::run(suite);
    srpt::run(stage, suite)
}
