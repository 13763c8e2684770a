//! What may happen to srp-target where it runs: nobody reads what it says, it is
//! stopped, memory and descriptors run out, a disk is taken away.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::disks::with_loop;
use super::faults::{PATIENT, during_writes, restarted};
use super::login::{ECONNRESET, VERIFY, refused};
use super::{Case, Lab, case, close};
use crate::guest::program;
use crate::guest::srp::initiator::{self, Address};
use crate::guest::srp::kernel_log::Mark;
use crate::guest::srp::{names, read, sh, unload, until, write};
use crate::guest::variable;
use crate::library::Library;

pub const CASES: &[Case] = &[
    case("srp-target ends on SIGTERM during writes", ended),
    case("srp-target is stopped during writes and goes on", stopped),
    case("nobody reads what srp-target says", unheard),
    case("refused: no memory for another channel", no_memory),
    case(
        "refused: no descriptors for another channel",
        no_descriptors,
    ),
    case("a mounted block device is not served", in_use),
    case("a disk that is taken away", taken_away),
    case("a link-local portal", link_local),
    case("portals of all addresses", everywhere),
];

/// Unlike one that is killed, it answers what is under way, as far as that takes no
/// longer than its limit, and ends well.
fn ended(lab: &Lab) -> Result<()> {
    restarted(lab, |target| target.stop().map(drop))
}

/// Long enough for the initiator to abort what is not answered.
fn stopped(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session(PATIENT, "")?;
    let disk = session.disk()?;
    disk.set_timeout(Duration::from_secs(5))?;
    let mark = Mark::now()?;
    during_writes(&session, &disk, || {
        target.signal("STOP")?;
        let aborted = mark.wait("SRP abort called");
        target.signal("CONT")?;
        aborted.map(drop)
    })?;
    ensure!(target.is_alive()?);
    session.wait_state("running")?;
    close(target, session)?;
    Ok(())
}

/// As when the disk with its log is full.
fn unheard(lab: &Lab) -> Result<()> {
    const GUID: &str = "0002c90300a0b0c1";
    let image = lab.image("disk", 64)?;
    let portal = format!("{}:5555", lab.program.ip);
    let command = format!(
        "exec {} --portal {portal} --lun {} --ioc-guid {GUID} --stats >/dev/full 2>&1",
        lab.program.file.display(),
        image.display()
    );
    let mut target = program::start(&["sh", "-c", &command], &Library::Original)?;
    target.wait_ready(program::Ready::Listening)?;
    initiator::load("")?;
    let address = Address {
        ids: (GUID.to_owned(), GUID.to_owned()),
        portal,
    };
    let session = initiator::login(&address, "")?;
    session.disk()?.fio(VERIFY)?;
    session.logout()?;
    target.terminate()?;
    target.wait_success()
}

/// Each channel takes 34 MiB.
fn no_memory(lab: &Lab) -> Result<()> {
    let said = lab.program.refuse(&format!(
        "--portal {}:5555 --lun {} --memory 20",
        lab.program.ip,
        lab.image("disk", 1)?.display()
    ))?;
    ensure!(said.contains("a channel needs"), "{said}");
    let (mut target, first) = lab.session("ch_count=1", "--memory 80")?;
    let second = initiator::login(target.address(), "initiator_ext=0000000000000002")?;
    let third = "initiator_ext=0000000000000003";
    refused(target.address(), third, ECONNRESET, "0x00010001")?;
    target.wait_output("no memory is left for another channel", 1)?;
    second.logout()?;
    target.wait_output("logout ", 1)?;
    let third = until("a login succeeds", || {
        Ok(initiator::attempt(target.address(), third).ok())
    })?;
    first.disk()?.fio(VERIFY)?;
    first.logout()?;
    close(target, third)?;
    Ok(())
}

fn no_descriptors(lab: &Lab) -> Result<()> {
    let (mut target, first) = lab.session("ch_count=1", "")?;
    first.disk()?;
    let limit = |number: usize| sh(&format!("prlimit --pid {} --nofile={number}", target.pid()));
    let open = names(format!("/proc/{}/fd", target.pid()));
    // Numbers of descriptors are limited, and they may have gaps.
    let mut free = (0..).filter(|number: &usize| !open.contains(&number.to_string()));
    let other = "initiator_ext=0000000000000002";
    // None, one or two of the four: it ends nothing, whichever is missing.
    for end in free.by_ref().take(3) {
        limit(end)?;
        refused(target.address(), other, ECONNRESET, "0x00010001")?;
    }
    limit(1024)?;
    target.wait_output("Too many open files", 3)?;
    let second = initiator::login(target.address(), other)?;
    first.disk()?.fio(VERIFY)?;
    first.logout()?;
    close(target, second)?;
    Ok(())
}

fn in_use(lab: &Lab) -> Result<()> {
    let image = lab.image("device", 64)?;
    let mount = lab.dir.join("mounted");
    fs::create_dir_all(&mount)?;
    let mount = mount.display();
    with_loop(&image, "", |device| {
        sh(&format!(
            "modprobe ext4; mkfs.ext4 -q {device}; mount {device} {mount}"
        ))?;
        let lun = format!("--lun {device}");
        let said = lab
            .program
            .refuse(&format!("--portal {}:5555 {lun}", lab.program.ip));
        sh(&format!("umount {mount}"))?;
        let said = said?;
        ensure!(said.contains("it is in use"), "{said}");
        let target = lab.program.start(&lun)?;
        let mounted = sh(&format!("mount {device} {mount}"));
        ensure!(mounted.is_err(), "it can be mounted while it is served");
        target.stop().map(drop)
    })
}

/// A disk that the kernel emulates, and removes while it is served.
fn taken_away(lab: &Lab) -> Result<()> {
    let before = names("/sys/block");
    sh("modprobe -a sd_mod; modprobe scsi_debug dev_size_mb=32")?;
    let result = (|| {
        let device = until("the disk appears", || {
            let mut disks = names("/sys/block").into_iter();
            let disk = disks.find(|name| name.starts_with("sd") && !before.contains(name));
            Ok(disk.filter(|name| Path::new("/dev").join(name).exists()))
        })?;
        let mut target = lab.program.start(&format!("--lun /dev/{device}"))?;
        initiator::load("")?;
        let session = initiator::login(target.address(), "")?;
        let disk = session.disk()?;
        disk.fio("--rw=randwrite --bs=4k --size=1m --iodepth=16 --verify=crc32c")?;
        write(format!("/sys/block/{device}/device/delete"), "1")?;
        let said = sh(&format!(
            "sg_raw --request=4096 {} 28 00 00 00 20 00 00 00 08 00 2>&1 || true",
            disk.path().display()
        ))?;
        ensure!(said.contains("Unrecovered read error"), "{said}");
        let failed = disk.fio("--rw=randwrite --bs=4k --size=1m --iodepth=16 --fsync=8");
        ensure!(failed.is_err(), "writes succeeded without a disk");
        ensure!(target.is_alive()?);
        close(target, session)
    })();
    result.and(unload("scsi_debug"))
}

/// By the name of the interface, and by its number.
fn link_local(lab: &Lab) -> Result<()> {
    let netdev = variable("RDMACM_TEST_NETDEV")?;
    let list = sh(&format!("ip -6 -oneline addr show dev {netdev} scope link"))?;
    let ip = list
        .split_whitespace()
        .find_map(|word| word.strip_suffix("/64"))
        .context("no link-local address")?;
    let number = read(format!("/sys/class/net/{netdev}/ifindex"))?;
    let image = lab.image("disk", 64)?;
    initiator::load("")?;
    for interface in [&netdev, &number] {
        let mut program = lab.program.clone();
        program.ip = format!("[{ip}%{interface}]");
        let target = program.start(&format!("--lun {}", image.display()))?;
        let session = initiator::login(target.address(), "")?;
        session.disk()?.fio("--rw=randread --bs=4k --size=1m")?;
        close(target, session)?;
    }
    Ok(())
}

fn everywhere(lab: &Lab) -> Result<()> {
    let image = lab.image("disk", 64)?;
    let ip6 = format!("[{}]", variable("RDMACM_TEST_IP6")?);
    initiator::load("")?;
    for (all, one) in [("0.0.0.0", lab.program.ip.clone()), ("[::]", ip6)] {
        let mut program = lab.program.clone();
        program.ip = all.to_owned();
        let target = program.start(&format!("--lun {}", image.display()))?;
        let address = Address {
            ids: target.address().ids.clone(),
            portal: target.address().portal.replace(all, &one),
        };
        let session = initiator::login(&address, "")?;
        session.disk()?.fio("--rw=randread --bs=4k --size=1m")?;
        close(target, session)?;
    }
    Ok(())
}
