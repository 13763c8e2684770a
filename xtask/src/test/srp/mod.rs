//! Suite `srp`: the kernel's own initiator, untouched, on our target program.
//!
//! Every case starts its own target, logs in, and must leave the initiator
//! without sessions; so the cases are independent of one another.
//!
//! By default the long cases are as long as fits the time of a test run under
//! emulation; asked for alone (`--only srp`) they have their full length.

mod disks;
mod faults;
mod hostile;
mod library;
mod login;
mod transfers;
mod valgrind;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::abi;
use crate::guest::srp::initiator::{self, Session};
use crate::guest::srp::target::{self, Program, Target};
use crate::guest::{Bench, ip};
use crate::library::{self as build, Library};
use crate::report::{Outcome, Suite};

use super::compile_into;

/// Builds the programs and returns their folder.
pub fn build() -> Result<PathBuf> {
    let dir = build::stage_srp_target()?;
    compile_into(
        &dir,
        &["srp/hostile.c"],
        hostile::PROGRAM,
        &["-lrdmacm", "-libverbs"],
    )?;
    abi::srpt::compile_example(&build::stage_srpt()?, &dir)?;
    Ok(dir)
}

/// How long the long cases are.
struct Size {
    logins: usize,
    mixed_seconds: u32,
}

const USUAL: Size = Size {
    logins: 20,
    mixed_seconds: 15,
};
const FULL: Size = Size {
    logins: 1000,
    mixed_seconds: 60,
};

/// What selects [`FULL`].
const FULL_LENGTH: &str = "full-length";

/// What to ask of the part beside the device.
pub fn selection(alone: bool) -> Vec<String> {
    alone.then(|| FULL_LENGTH.to_owned()).into_iter().collect()
}

/// One thing that must work.
struct Case {
    name: &'static str,
    run: fn(&Lab) -> Result<()>,
    /// Left out with `--quick`.
    thorough: bool,
}

const fn case(name: &'static str, run: fn(&Lab) -> Result<()>) -> Case {
    Case {
        name,
        run,
        thorough: false,
    }
}

const fn thorough(name: &'static str, run: fn(&Lab) -> Result<()>) -> Case {
    Case {
        name,
        run,
        thorough: true,
    }
}

/// What the cases work with.
struct Lab {
    program: Program,
    /// The folder with all programs.
    programs: PathBuf,
    /// Our librdmacm, with libsrpt beside it.
    library: Library,
    dir: PathBuf,
    size: Size,
}

impl Lab {
    /// A fresh sparse file of so many MiB.
    fn image(&self, name: &str, mebibytes: u64) -> Result<PathBuf> {
        let path = self.dir.join(name);
        target::image(&path, mebibytes)?;
        Ok(path)
    }

    /// A target with one disk of 64 MiB, and `options`.
    fn target(&self, options: &str) -> Result<Target> {
        let image = self.image("disk", 64)?;
        self.program
            .start(&format!("--lun {} {options}", image.display()))
    }

    /// The same, with the initiator loaded with `parameters` and logged in.
    fn session(&self, parameters: &str, options: &str) -> Result<(Target, Session)> {
        let target = self.target(options)?;
        initiator::load(parameters)?;
        let session = initiator::login(target.address(), "")
            .with_context(|| format!("target: {}", target.output()))?;
        Ok((target, session))
    }
}

/// Logs out and stops the target; both must end well.
fn close(target: Target, session: Session) -> Result<String> {
    session.logout()?;
    target.stop()
}

/// The part beside the device.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("srp-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let (lengths, selection): (Vec<_>, Vec<_>) = bench
        .selection
        .iter()
        .map(String::as_str)
        .partition(|text| *text == FULL_LENGTH);
    let lab = Lab {
        program: program(&bench.programs)?,
        programs: bench.programs.clone(),
        library: bench.ours.clone(),
        dir,
        size: if lengths.is_empty() { USUAL } else { FULL },
    };
    let groups = [
        login::CASES,
        disks::CASES,
        transfers::CASES,
        library::CASES,
        faults::CASES,
        valgrind::CASES,
    ];
    for case in groups.into_iter().flatten() {
        if !selection.is_empty() && !selection.iter().any(|text| case.name.contains(text)) {
            continue;
        }
        if bench.quick && case.thorough {
            suite.record(case.name, Outcome::Skipped("--quick".to_owned()));
            continue;
        }
        let started = Instant::now();
        let result = (case.run)(&lab);
        let result = match initiator::logout_all() {
            Ok(()) => result,
            Err(error) => result.and(Err(error)),
        };
        println!("# {} s", started.elapsed().as_secs());
        suite.check(case.name, result);
    }
    if selection.is_empty() || selection.contains(&"hostile") {
        hostile::run(&lab, &bench.programs, suite)?;
    }
    Ok(())
}

/// Our target in this folder.
pub fn program(programs: &Path) -> Result<Program> {
    Ok(Program {
        file: programs.join("srp-target"),
        ip: ip()?,
        under: Vec::new(),
    })
}
