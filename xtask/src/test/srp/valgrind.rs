//! Our target under memcheck.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, close, thorough};
use crate::guest::srp::initiator;

pub const CASES: &[Case] = &[thorough("valgrind finds nothing in srp-target", memcheck)];

fn memcheck(lab: &Lab) -> Result<()> {
    let log = lab.dir.join("valgrind");
    let image = lab.image("disk", 64)?;
    let mut program = lab.program.clone();
    program.under = [
        "valgrind",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--error-exitcode=9",
    ]
    .map(str::to_owned)
    .to_vec();
    program.under.push(format!("--log-file={}", log.display()));
    let target = program.start(&format!("--lun {}", image.display()))?;
    // Everything is slow: no command may time out.
    initiator::load("ch_count=2")?;
    let session = initiator::login(target.address(), "")?;
    let disk = session.disk()?;
    disk.fio("--rw=randwrite --bs=4k --size=256k --iodepth=4 --verify=crc32c")?;
    disk.fio("--rw=randwrite --bs=64k --size=512k --iodepth=4 --verify=crc32c")?;
    let closed = close(target, session);
    let found = fs::read_to_string(&log).context("valgrind left no log")?;
    ensure!(found.contains("ERROR SUMMARY: 0 errors"), "{found}");
    closed.map(drop)
}
