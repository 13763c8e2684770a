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

/// The packets of each direction are two milliseconds late, and of those that arrive
/// every 400th is lost: not by chance, so that it is known how many there are, about
/// seven of 2800. Each may cost the seconds until the sender tries again, twelve as
/// was seen. Lost on the way in: of a packet that the link does not take the sender
/// would know.
const BEGIN: &str = "modprobe -a sch_netem sch_ingress cls_matchall act_gact \
    && tc qdisc add dev $1 root netem delay 2ms \
    && tc qdisc add dev $1 clsact \
    && tc filter add dev $1 ingress matchall action gact pass random determ drop 400";
const END: &str = "tc qdisc del dev $1 clsact && tc qdisc del dev $1 root netem";

/// Small writes, whose data goes along with the command, and writes whose data is
/// read from this machine; all are read back and compared.
const JOBS: [&str; 2] = [
    "--rw=randwrite --bs=4k --size=512k --iodepth=8 --verify=crc32c",
    "--rw=randwrite --bs=64k --size=1m --iodepth=4 --verify=crc32c",
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
    let both = |script: &str| {
        let script = script.replace("$1", &netdev);
        sh(&script)?;
        remote.shell(&script)
    };
    both(BEGIN)?;
    let jobs = JOBS.iter().try_for_each(|job| disk.fio(job).map(drop));
    let lost = sh(&format!("tc -s filter show dev {netdev} ingress"))?;
    both(END)?;
    jobs?;
    println!(
        "# {}",
        lost.split_whitespace().collect::<Vec<_>>().join(" ")
    );
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
