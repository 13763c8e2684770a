//! SRP across the link: the kernel's initiator on this machine, srp-target on
//! the other one, while the link delays packets and loses some.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::remote::Remote;
use crate::guest::srp::target::announced;
use crate::guest::srp::{LIMIT, initiator, sh};
use crate::guest::{Bench, variable};
use crate::library::Library;
use crate::report::Suite;

/// What happens to packets in each direction.
const WEATHER: &str = "loss 1% delay 2ms";

/// Small writes, whose data goes along with the command, and writes whose data is
/// read from this machine; all are read back and compared.
const JOBS: [&str; 2] = [
    "--rw=randwrite --bs=4k --size=1m --iodepth=8 --verify=crc32c",
    "--rw=randwrite --bs=64k --size=2m --iodepth=4 --verify=crc32c",
];

/// Runs the suite's case about it.
pub fn run(bench: &Bench, remote: &Remote, suite: &mut Suite) {
    suite.check(
        "SRP across a link that loses and delays packets",
        across(bench, remote),
    );
}

fn across(bench: &Bench, remote: &Remote) -> Result<()> {
    let (netdev, ip) = (
        variable("RDMACM_TEST_NETDEV")?,
        variable("RDMACM_TEST_PEER_IP")?,
    );
    let portal = format!("{ip}:5555");
    remote.shell("truncate -s 64M /tmp/disk")?;
    let program = program(bench)?;
    let target = remote.start(
        &format!("{} --portal {portal} --lun /tmp/disk", program.display()),
        &Library::Original,
    )?;
    target.wait_printed("listening: ")?;
    let address = announced(&target.output()?, portal)?;
    initiator::load("")?;
    let session = initiator::login(&address, "")?;
    let disk = session.disk()?;
    // It is the transport that has to make good what is lost.
    disk.set_timeout(LIMIT * 2)?;
    let qdisc = |verb: &str| {
        let netem = format!("modprobe sch_netem && tc qdisc {verb} dev {netdev} root netem");
        let weather = if verb == "add" { WEATHER } else { "" };
        format!("{netem} {weather}")
    };
    for shell in [sh(&qdisc("add")).map(drop), remote.shell(&qdisc("add"))] {
        shell?;
    }
    let jobs = JOBS.iter().try_for_each(|job| disk.fio(job).map(drop));
    let lost = sh(&format!("tc -s qdisc show dev {netdev}"))?;
    sh(&qdisc("del"))?;
    remote.shell(&qdisc("del"))?;
    jobs?;
    ensure!(!lost.contains("(dropped 0,"), "nothing was lost: {lost}");
    session.logout()?;
    target.terminate()?;
    target.wait_success()
}

/// srp-target, which is staged beside our library.
fn program(bench: &Bench) -> Result<PathBuf> {
    let Library::Ours(folder) = &bench.ours else {
        anyhow::bail!("our library is not known");
    };
    let stage = folder.parent().context("no folder above the library")?;
    Ok(stage.join("bin/srp-target"))
}
