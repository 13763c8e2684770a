//! Our target under memcheck.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, close, library, thorough};
use crate::guest::srp::initiator;

pub const CASES: &[Case] = &[
    thorough("valgrind finds nothing in srp-target", program),
    thorough("valgrind finds nothing in libsrpt", library),
];

/// Runs `case` with the words that have a program run under memcheck, and demands
/// that nothing was found.
fn memcheck(lab: &Lab, case: impl FnOnce(&[&str]) -> Result<()>) -> Result<()> {
    let log = lab.dir.join("valgrind");
    let result = case(&[
        "valgrind",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--error-exitcode=9",
        &format!("--log-file={}", log.display()),
    ]);
    // A case that fails has left the program before the tool has said everything.
    let found = fs::read_to_string(&log).context("valgrind left no log");
    result.with_context(|| format!("{found:?}"))?;
    let found = found?;
    ensure!(found.contains("ERROR SUMMARY: 0 errors"), "{found}");
    Ok(())
}

fn library(lab: &Lab) -> Result<()> {
    memcheck(lab, |under| library::serve(lab, under, &[]))
}

fn program(lab: &Lab) -> Result<()> {
    memcheck(lab, |under| serve(lab, under))
}

fn serve(lab: &Lab, under: &[&str]) -> Result<()> {
    let image = lab.image("disk", 64)?;
    let mut program = lab.program.clone();
    program.under = under.iter().map(|word| (*word).to_owned()).collect();
    let target = program.start(&format!("--lun {}", image.display()))?;
    // Everything is slow: no command may time out.
    initiator::load("ch_count=2")?;
    let session = initiator::login(target.address(), "")?;
    let disk = session.disk()?;
    disk.fio("--rw=randwrite --bs=4k --size=256k --iodepth=4 --verify=crc32c")?;
    disk.fio("--rw=randwrite --bs=64k --size=512k --iodepth=4 --verify=crc32c")?;
    close(target, session).map(drop)
}
