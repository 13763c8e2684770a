//! `cargo xtask …`: everything a person or CI does with this repository.
//!
//! This file only names the subcommands; each lives in a module of its own
//! with an `Args` type (its command line) and `Args::run`. To add one: declare
//! the module, add a variant and its line in `Task::run`.

mod abi;
mod bench;
mod bindings;
mod demo;
mod guest;
mod headers;
mod install;
mod library;
mod man;
mod matrix;
mod place;
mod process;
mod queue;
mod report;
mod setup;
mod symbols;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Work on the rdmacm repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Compare the library's binary interface with the original's
    Abi(abi::Args),
    /// Compare the speed of ours with the original's
    Bench(bench::Args),
    /// Regenerate src/verbs/bindings.rs from the installed libibverbs headers
    Bindings(bindings::Args),
    /// Regenerate the C headers under include/, or check that they are fresh
    Headers(headers::Args),
    /// Install the packages that building and testing need
    Setup(setup::Args),
    /// Show the library at work: rping, or a disk over SRP
    Demo(demo::Args),
    /// Run all tests
    Test(test::Args),
    /// Make another root file system for the virtual machine
    Root(vm::roots::Args),
    #[command(hide = true)]
    Guest(guest::Args),
    /// Install the libraries, headers, files for pkg-config, srp-target and manual
    /// pages
    Install(install::Args),
    /// Remove what `install` has put below a prefix
    Uninstall(install::UninstallArgs),
    /// Regenerate docs/symbols.md, the exported names and who imports them
    Matrix(matrix::Args),
    /// Run a command in a virtual machine that has a soft-RoCE device
    Vm(vm::Args),
}

impl Task {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Abi(args) => args.run(),
            Self::Bench(args) => args.run(),
            Self::Bindings(args) => args.run(),
            Self::Headers(args) => args.run(),
            Self::Setup(args) => args.run(),
            Self::Demo(args) => args.run(),
            Self::Test(args) => args.run(),
            Self::Root(args) => args.run(),
            Self::Guest(args) => args.run(),
            Self::Install(args) => args.run(),
            Self::Uninstall(args) => args.run(),
            Self::Matrix(args) => args.run(),
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
