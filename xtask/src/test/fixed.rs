//! Part of suite `clients`: a program that is linked to the static library
//! (`programs/alone.c`), as it is installed and by the flags of pkg-config. It connects
//! to a socket of its own.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::abi::consumer;
use crate::guest::{Bench, device, ip, program};
use crate::library::{self, Library};
use crate::report::Suite;

const PORT: &str = "7483";

/// The program, by what of it is static.
const PROGRAMS: [(&str, &str); 2] = [
    ("fixed", "a program linked to the static library"),
    ("wholly-static", "a program with everything static"),
];

/// Links the program and returns its folder.
pub fn build() -> Result<PathBuf> {
    // What is installed for it has libsrpt in it.
    let stage = library::stage_srpt()?;
    consumer::link_statically(&stage, "alone.c", "fixed")
}

/// The part beside the device.
pub fn run(bench: &Bench, suite: &mut Suite) {
    for (file, name) in PROGRAMS {
        suite.check(
            format!("{name} talks to itself"),
            talk(&bench.programs.join(file)),
        );
    }
}

fn talk(program: &Path) -> Result<()> {
    let packets = device::sent_packets()?;
    let words = [&*program.to_string_lossy(), &*ip()?, PORT];
    // None of ours to be found by the loader.
    let mut running = program::start(&words, &Library::Original)?;
    running.wait_success()?;
    let said = running.output();
    ensure!(said.trim() == "to myself", "it said {}", running.said());
    ensure!(
        device::sent_packets()? > packets,
        "no packet was sent by the RDMA device"
    );
    Ok(())
}
