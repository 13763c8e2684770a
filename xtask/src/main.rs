//! `cargo xtask …`: everything a person or CI does with this repository.
//!
//! This file only names the subcommands; each lives in a module of its own
//! with an `Args` type (its command line) and `Args::run`. To add one: declare
//! the module, add a variant and its line in `Task::run`.

mod process;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Work on the rdmacm repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Run a command in a virtual machine that has a soft-RoCE device
    Vm(vm::Args),
}

impl Task {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Vm(args) => args.run(),
        }
    }
}

fn main() -> ExitCode {
    match Task::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
