//! Suite `srp`: the kernel's own initiator, untouched, on our target program.
//!
//! Every case starts its own target and logs in; after it, the machine is made as
//! it was before ([`clean`]). If that is not possible, or a case has failed or has
//! no end, the cases that are left get a fresh machine. So the cases are
//! independent of one another, and several machines share them.
//!
//! By default the long cases are as long as fits the time of a test run under
//! emulation; asked for alone (`--only srp`) they have their full length.

mod clean;
mod disks;
mod faults;
mod hostile;
mod library;
mod login;
mod operator;
mod transfers;
mod valgrind;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::abi;
use crate::guest::srp::initiator::{self, Session};
use crate::guest::srp::target::{self, Program, Target};
use crate::guest::{Bench, ip};
use crate::library::{self as build, Library};
use crate::report::{Outcome, Suite};

use super::beside::{self, Beside, FULL_LENGTH};
use super::compile_into;
use super::shares::Shares;

/// Machines that share the cases, which wait more than they compute.
const MACHINES: usize = 3;

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

/// When the initiator logs out, the kernel may free a completion queue whose last
/// completions it still handles: `ib_poll_handler` asks for the next notification
/// after it has let go of the queue. Seen on 7.3, on a busy machine.
const KERNEL_DEFECTS: [&str; 1] = ["RIP: 0010:rxe_req_notify_cq"];

/// How long the long cases are.
struct Size {
    logins: usize,
    mixed_seconds: u32,
    /// The longest that one case may take.
    limit: Duration,
}

const USUAL: Size = Size {
    logins: 20,
    mixed_seconds: 15,
    limit: Duration::from_secs(900),
};
const FULL: Size = Size {
    logins: 1000,
    mixed_seconds: 60,
    limit: Duration::from_secs(3000),
};

/// Runs all cases, at full length if no other suite was asked for.
pub(super) fn run(beside: &Beside, alone: bool, suite: &mut Suite) -> Result<()> {
    let shares = Shares {
        pieces: pieces().map(str::to_owned).collect(),
        machines: MACHINES,
        options: beside::length(alone),
        ended: |piece| match piece {
            HOSTILE => hostile::LAST.to_owned(),
            case => case.to_owned(),
        },
        defects: &KERNEL_DEFECTS,
    };
    shares.run(beside, suite)
}

/// What machines share: cases by their names, and [`HOSTILE`].
fn pieces() -> impl Iterator<Item = &'static str> {
    std::iter::once(HOSTILE).chain(cases().map(|case| case.name))
}

/// What stands for the cases of [`hostile`], which are one after another in one
/// program.
const HOSTILE: &str = "hostile";

/// All cases but those of [`hostile`].
fn cases() -> impl Iterator<Item = &'static Case> {
    [
        login::CASES,
        disks::CASES,
        transfers::CASES,
        library::CASES,
        faults::CASES,
        operator::CASES,
        valgrind::CASES,
    ]
    .into_iter()
    .flatten()
}

/// One thing that must work.
struct Case {
    name: &'static str,
    run: fn(&Lab) -> Result<()>,
    /// Left out with `--quick`.
    thorough: bool,
}

/// Why a case that has failed says nothing about srp-target.
#[derive(Debug)]
struct Unjudged(&'static str);

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unjudged {}

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

/// The part beside the device. Leaves the rest when the machine is of no use any
/// more.
pub fn inside(bench: &Bench, suite: &mut Suite) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("srp-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let long = bench.selection.iter().any(|text| text == FULL_LENGTH);
    let lab = Arc::new(Lab {
        program: program(&bench.programs)?,
        programs: bench.programs.clone(),
        library: bench.ours.clone(),
        dir,
        size: if long { FULL } else { USUAL },
    });
    while let Some(piece) = bench.take_piece()? {
        if piece == HOSTILE {
            hostile::run(&lab, &bench.programs, suite)?;
            continue;
        }
        let case = cases().find(|case| case.name == piece);
        let case = case.with_context(|| format!("there is no case {piece}"))?;
        if bench.quick && case.thorough {
            suite.record(case.name, Outcome::Skipped("--quick".to_owned()));
            continue;
        }
        let started = Instant::now();
        let Some(result) = within_limit(case, &lab) else {
            let limit = lab.size.limit;
            suite.record(case.name, Outcome::Failed(format!("no end in {limit:?}")));
            return Ok(());
        };
        let result = result.and(clean::restore(&lab.dir));
        let failed = result.is_err();
        println!("# {} s", started.elapsed().as_secs());
        match result.as_ref().map_err(anyhow::Error::downcast_ref) {
            Err(Some(Unjudged(why))) => {
                suite.record(case.name, Outcome::Skipped((*why).to_owned()));
            }
            _ => suite.check(case.name, result),
        }
        // What else it may have left, nobody knows.
        if failed {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs a case; `None` if it does not come to its end.
fn within_limit(case: &'static Case, lab: &Arc<Lab>) -> Option<Result<()>> {
    let (sender, result) = mpsc::channel();
    let of_case = Arc::clone(lab);
    // It can be left behind: the process, and the machine with it, ends then.
    thread::spawn(move || sender.send((case.run)(&of_case)));
    match result.recv_timeout(lab.size.limit) {
        Ok(result) => Some(result),
        Err(mpsc::RecvTimeoutError::Timeout) => None,
        Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(anyhow!("panic"))),
    }
}

/// Our target in this folder.
pub fn program(programs: &Path) -> Result<Program> {
    Ok(Program {
        file: programs.join("srp-target"),
        ip: ip()?,
        under: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_piece_has_a_name_of_its_own() {
        let names: BTreeSet<_> = pieces().collect();
        assert_eq!(names.len(), pieces().count());
    }
}
