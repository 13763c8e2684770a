//! libsrpt for programs in C: the example of srpt(7), on our librdmacm.

use anyhow::{Result, ensure};

use super::{Case, Lab, case};
use crate::abi::srpt::EXAMPLE;
use crate::guest::ip;
use crate::guest::program;
use crate::guest::srp::initiator::{self, Address};
use crate::guest::srp::sh;

pub const CASES: &[Case] = &[
    case("libsrpt: the example in C serves a disk", serves),
    case(
        "libsrpt: the same with the rights of the manual page",
        serves_with_manual_rights,
    ),
    case("libsrpt: the same step by step", serves_by_steps),
];

fn serves(lab: &Lab) -> Result<()> {
    serve(lab, &[], &[])
}

fn serves_with_manual_rights(lab: &Lab) -> Result<()> {
    serve(lab, &[], &["manual"])
}

fn serves_by_steps(lab: &Lab) -> Result<()> {
    serve(lab, &[], &["steps"])
}

/// Serves a disk with `options`, and the words `under` in front: a tool that runs the
/// example.
pub fn serve(lab: &Lab, under: &[&str], options: &[&str]) -> Result<()> {
    // Not that of the kernel's target, which listens for as long as its module is loaded.
    const PORT: &str = "5558";
    const GUID: &str = "0002c90300a0b0c0";
    let (file, ip) = (lab.programs.join(EXAMPLE), ip()?);
    let example = [file.to_str().unwrap_or_default(), &ip, PORT, GUID, "32"];
    let words = [under, &example, options].concat();
    let mut server = program::start(&words, &lab.library)?;
    server.wait_until("listened", |program| {
        Ok(program.output().contains("listening"))
    })?;
    initiator::load("ch_count=2")?;
    let address = Address {
        ids: (GUID.to_owned(), GUID.to_owned()),
        portal: format!("{ip}:{PORT}"),
    };
    let session = initiator::login(&address, "")?;
    let disk = session.disk()?;
    disk.fio("--rw=randwrite --bs=4k --size=1m --iodepth=16 --verify=crc32c")?;
    disk.fio("--rw=write --bs=256k --size=4m --iodepth=4 --verify=crc32c")?;
    sh(&format!("sg_reset -d {}", disk.path().display()))?;
    session.logout()?;
    // Ended with a session: the initiator is told.
    let session = initiator::login(&address, "")?;
    server.terminate()?;
    server.wait_success()?;
    drop(session);
    let said = server.output();
    ensure!(
        said.matches("login ").count() == said.matches("logout").count(),
        "{said}"
    );
    ensure!(said.contains("done"), "{said}");
    Ok(())
}
