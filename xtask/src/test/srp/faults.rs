//! What goes wrong: the target dies, the link or the device goes away, commands
//! are aborted. Data that was acknowledged must be there afterwards.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, Unjudged, case, clean, close, thorough};
use crate::guest::program::{self, Ready, Running};
use crate::guest::rping;
use crate::guest::srp::initiator::{self, Disk, Session};
use crate::guest::srp::kernel_log::Mark;
use crate::guest::srp::target::Target;
use crate::guest::srp::{LIMIT, read, sh, unmount, until};
use crate::guest::{ip, variable};
use crate::library::Library;

pub const CASES: &[Case] = &[
    case("target killed during writes and started again", killed),
    case(
        "target killed, started again after I/O has failed",
        killed_for_long,
    ),
    case("target killed for ever", dead),
    case("link down and up while nothing is under way", idle_outage),
    case(
        "link down and up during writes, at the limit of sessions",
        link,
    ),
    case("RDMA device removed and added again", device),
    case("sg_reset under load", reset),
    thorough("disk stalled until the initiator aborts", stalled),
    thorough(
        "disk stalled until the initiator logs in again, at the limit of sessions",
        stalled_for_long,
    ),
];

/// Short delays, and no failure of I/O while the target is away: the initiator
/// gives the target up after ten minutes, the most that it can be told, which is
/// later than any case does.
pub const PATIENT: &str = "reconnect_delay=1 fast_io_fail_tmo=off dev_loss_tmo=600";

/// Long enough under way that things can happen meanwhile; fio reads back and
/// compares everything that was acknowledged.
const WRITES: &str =
    "--rw=randwrite --bs=4k --size=24m --iodepth=16 --fsync=64 --verify=crc32c --rate_iops=600";

/// Runs [`WRITES`] on the disk, and `fault` once they are under way.
pub fn during_writes(
    session: &Session,
    disk: &Disk,
    fault: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let before = written(disk)?;
    thread::scope(|scope| {
        let writes = scope.spawn(|| disk.fio(WRITES));
        let fault = until("writes are under way", || {
            Ok((written(disk)? > before + 2048).then_some(()))
        })
        .and_then(|()| fault());
        if fault.is_err() {
            // The initiator may hold writes back, which only this ends.
            session.abandon()?;
        }
        let writes = writes.join().map_err(|_| anyhow::anyhow!("panic"))?;
        fault.and(writes.map(drop))
    })
}

/// Sectors written to the disk so far (Documentation/block/stat.rst).
fn written(disk: &Disk) -> Result<u64> {
    let stat = read(format!("/sys/block/{}/stat", disk.name))?;
    let field = stat.split_whitespace().nth(6).context("a short stat")?;
    Ok(field.parse()?)
}

/// Starts a target on the disk that another one had.
fn again(lab: &Lab) -> Result<Target> {
    let image = lab.dir.join("disk");
    lab.program.start(&format!("--lun {}", image.display()))
}

/// During writes, ends a target and starts it again. The initiator logs in again,
/// and nothing that it was told is written is lost.
pub fn restarted(lab: &Lab, end: impl FnOnce(Target) -> Result<()>) -> Result<()> {
    let (target, session) = lab.session(PATIENT, "")?;
    let disk = session.disk()?;
    let mark = Mark::now()?;
    let mut running = None;
    during_writes(&session, &disk, || {
        end(target)?;
        running = Some(again(lab)?);
        mark.wait("reconnect succeeded")?;
        Ok(())
    })?;
    session.wait_state("running")?;
    close(running.context("no target")?, session)?;
    Ok(())
}

fn killed(lab: &Lab) -> Result<()> {
    restarted(lab, Target::kill)
}

fn killed_for_long(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("reconnect_delay=1 fast_io_fail_tmo=3", "")?;
    let disk = session.disk()?;
    target.kill()?;
    session.wait_state("fail-fast")?;
    let failed = disk.fio("--rw=randwrite --bs=4k --size=1m");
    ensure!(failed.is_err(), "writes succeeded without a target");
    let target = again(lab)?;
    session.wait_state("running")?;
    disk.fio("--rw=randwrite --bs=4k --size=4m --verify=crc32c")?;
    close(target, session)?;
    Ok(())
}

fn dead(lab: &Lab) -> Result<()> {
    let (target, session) =
        lab.session("reconnect_delay=1 fast_io_fail_tmo=2 dev_loss_tmo=5", "")?;
    session.disk()?;
    target.kill()?;
    session.wait_gone()
}

/// Without anything under way only the initiator notices. The link is up before it
/// logs in again, and before anybody sends a message of the connection manager.
fn idle_outage(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session("fast_io_fail_tmo=off dev_loss_tmo=600", "")?;
    let disk = session.disk()?;
    disk.fio("--rw=randwrite --bs=4k --size=1m --verify=crc32c")?;
    let_transport_notice(&disk)?;
    let mark = Mark::now()?;
    judged(outage(&session, &disk))?;
    mark.wait("reconnect succeeded")?;
    disk.fio("--rw=randwrite --bs=4k --size=1m --verify=crc32c")?;
    ensure!(target.is_alive()?);
    close(target, session)?;
    Ok(())
}

/// Begins to read one block of the disk, past the page cache.
fn read_one(disk: &Disk) -> Result<Running> {
    let from = format!("if={}", disk.path().display());
    let words = [
        "dd",
        &from,
        "of=/dev/null",
        "bs=4k",
        "count=1",
        "iflag=direct",
    ];
    program::start(&words, &Library::Original)
}

fn link(lab: &Lab) -> Result<()> {
    // What the initiator gave up, the target still has when it logs in again: that
    // must not stand in the way.
    let (mut target, session) = lab.session(PATIENT, "--max-sessions 1")?;
    let disk = session.disk()?;
    let_transport_notice(&disk)?;
    judged(during_writes(&session, &disk, || outage(&session, &disk)))?;
    ensure!(target.is_alive()?);
    close(target, session)?;
    Ok(())
}

/// Has the transport find the loss of the link: no command of the disk times out
/// before that, which would take another way.
fn let_transport_notice(disk: &Disk) -> Result<()> {
    disk.set_timeout(LIMIT * 2)
}

/// Has the link go until the initiator notices, and come back; until the session
/// works again.
fn outage(session: &Session, disk: &Disk) -> Result<()> {
    let netdev = variable("RDMACM_TEST_NETDEV")?;
    sh(&format!("ip link set {netdev} down"))?;
    // All writes under way may have arrived, and only their answers be lost, of
    // which the initiator's queue pair knows nothing. This command cannot arrive:
    // it is sent again until the queue pair gives up. Then the initiator tries to
    // log in again and again.
    let mut read = read_one(disk)?;
    let lost = session.wait_state("blocked");
    clean::link_up()?;
    lost?;
    session.wait_state("running")?;
    read.wait_success()
}

/// The result of a case with an outage. After some of them the kernel's queue pair
/// for the messages of the connection manager (`rdma resource show qp`: GSI) is in
/// error: no request for a connection is answered any more, whoever asks whom.
fn judged(result: Result<()>) -> Result<()> {
    if result.is_err() && !connections_work()? {
        return Err(Unjudged("the kernel connects nobody any more after the outage").into());
    }
    result
}

/// Whether programs on the original library can connect.
fn connections_work() -> Result<bool> {
    let ip = ip()?;
    let words = |role| ["rping", role, "-a", &ip, "-p", "7199", "-C", "1"];
    let mut server = program::start(&words("-s"), &Library::Original)?;
    server.wait_ready(Ready::Listening)?;
    let mut client = program::start(&words("-c"), &Library::Original)?;
    Ok(rping::verdict(client.wait_success()).is_ok())
}

fn device(lab: &Lab) -> Result<()> {
    let device = variable("RDMACM_TEST_DEV")?;
    let (mut target, session) = lab.session("", "")?;
    session.disk()?;
    // The kernel waits until nobody uses the device any more.
    let mut delete = program::start(&["rdma", "link", "delete", &device], &Library::Original)?;
    if let Err(error) = delete.wait_success() {
        let said = target.output();
        target.kill()?;
        return Err(error).context(said);
    }
    session.wait_gone()?;
    let alive = target.is_alive()?;
    let without = lab.program.refuse(&format!(
        "--portal {}:5557 --lun {}",
        lab.program.ip,
        lab.image("other", 1)?.display()
    ));
    clean::add_device()?;
    let without = without?;
    ensure!(without.contains("find an RDMA device"), "{without}");
    ensure!(alive, "the target ended: {}", target.output());
    let session = until("a login succeeds", || {
        Ok(initiator::attempt(target.address(), "").ok())
    })?;
    let disk = session.disk()?;
    disk.fio("--rw=randwrite --bs=4k --size=1m --verify=crc32c")?;
    close(target, session)?;
    Ok(())
}

fn reset(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    let idle = session.host_value("req_lim")?;
    during_writes(&session, &disk, || {
        for _ in 0..5 {
            sh(&format!("sg_reset --device {}", disk.path().display()))?;
        }
        Ok(())
    })?;
    ensure!(target.is_alive()?);
    session.wait_credits(&idle)?;
    close(target, session)?;
    Ok(())
}

fn stalled(lab: &Lab) -> Result<()> {
    with_freezer(lab, aborted)
}

fn stalled_for_long(lab: &Lab) -> Result<()> {
    with_freezer(lab, replaced)
}

/// Runs a case with an image on a file system that it can freeze: that keeps
/// writes waiting.
fn with_freezer(lab: &Lab, case: fn(&Lab, &Path, &Path) -> Result<()>) -> Result<()> {
    let store = lab.image("store", 128)?;
    let mount = lab.dir.join("frozen");
    sh(&format!(
        "modprobe -a loop ext4; mkfs.ext4 -q {0}; mkdir -p {1}; mount -o loop {0} {1}; truncate -s 64M {1}/disk",
        store.display(),
        mount.display()
    ))?;
    let result = case(lab, &mount.join("disk"), &mount);
    result.and(unmount(&mount))
}

fn aborted(lab: &Lab, image: &Path, mount: &Path) -> Result<()> {
    let target = lab.program.start(&format!("--lun {}", image.display()))?;
    initiator::load("ch_count=1")?;
    let session = initiator::login(target.address(), "")?;
    let disk = session.disk()?;
    let idle = session.host_value("req_lim")?;
    let mark = Mark::now()?;
    while_frozen(&disk, mount, || {
        mark.wait("SRP abort called")?;
        Ok(())
    })?;
    session_is_whole(&session, &disk, &idle)?;
    close(target, session)?;
    Ok(())
}

/// The initiator gives the connection up and logs in again while its write is
/// still under way: until that has ended, nothing else may be written.
fn replaced(lab: &Lab, image: &Path, mount: &Path) -> Result<()> {
    let mut program = lab.program.clone();
    program.under = ["env", "RDMACM_LOG=info"].map(str::to_owned).to_vec();
    // The replaced session, which lives on until its write has ended, must not
    // stand in the way of the new one.
    let mut target = program.start(&format!("--max-sessions 1 --lun {}", image.display()))?;
    initiator::load("ch_count=1")?;
    let session = initiator::login(target.address(), "")?;
    let disk = session.disk()?;
    let idle = session.host_value("req_lim")?;
    let login = format!("login {} ", lab.program.ip);
    while_frozen(&disk, mount, || {
        target.wait_output("waits for those that it replaces", 1)?;
        let said = target.output();
        ensure!(said.matches(&login).count() == 1, "{said}");
        Ok(())
    })?;
    target.wait_output(&login, 2)?;
    session_is_whole(&session, &disk, &idle)?;
    close(target, session)?;
    Ok(())
}

/// Has writes under way on a disk whose file system is frozen until `seen` is
/// through; they must succeed in the end.
fn while_frozen(disk: &Disk, mount: &Path, seen: impl FnOnce() -> Result<()>) -> Result<()> {
    disk.set_timeout(Duration::from_secs(5))?;
    sh(&format!("fsfreeze --freeze {}", mount.display()))?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| disk.fio("--rw=write --bs=4k --size=64k --iodepth=4"));
        let seen = seen();
        let thawed = sh(&format!("fsfreeze --unfreeze {}", mount.display()));
        let writer = writer.join().map_err(|_| anyhow::anyhow!("panic"))?;
        seen.and(thawed.map(drop)).and(writer.map(drop))
    })
}

/// The session works, and no credit is lost.
fn session_is_whole(session: &Session, disk: &Disk, idle: &str) -> Result<()> {
    disk.fio("--rw=randwrite --bs=4k --size=1m --iodepth=32 --verify=crc32c")?;
    session.wait_credits(idle)
}
