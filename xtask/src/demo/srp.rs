//! `cargo xtask demo srp`: Linux's own SRP initiator logs in to our target,
//! makes a file system on the disk, and finds its files again after a second
//! login.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::guest::Bench;
use crate::guest::device;
use crate::guest::srp::initiator::{self, Session};
use crate::guest::srp::kernel_log::Mark;
use crate::guest::srp::{sh, target};
use crate::report::table;
use crate::test::srp::program;

const MOUNT: &str = "/mnt/srp";
const TREE: &str = "/usr/include/linux";

/// The part beside the device.
pub fn inside(bench: &Bench) -> Result<ExitCode> {
    let packets = device::sent_packets()?;
    let mut steps = Steps { rows: Vec::new() };
    let shown = show(bench, &mut steps);
    let packets = device::sent_packets()? - packets;

    let mut rows = vec![["step", "result"].map(str::to_owned).to_vec()];
    rows.extend(steps.rows);
    println!("\n{}", table(&rows));
    println!("packets sent by the RDMA device meanwhile: {packets}");
    let good = shown.is_ok() && packets > 0;
    println!("demo {}", if good { "passed" } else { "FAILED" });
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What was done, and how it went.
struct Steps {
    rows: Vec<Vec<String>>,
}

impl Steps {
    fn done<T>(&mut self, what: &str, result: Result<(T, String)>) -> Result<T> {
        let said = match &result {
            Ok((_, said)) => said.clone(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        self.rows.push(vec![what.to_owned(), said]);
        result.map(|(value, _)| value)
    }
}

fn show(bench: &Bench, steps: &mut Steps) -> Result<()> {
    let image = std::env::temp_dir().join("srp-demo.img");
    let target = steps.done("start srp-target", {
        target::image(&image, 128)?;
        let line = format!("--lun {}", image.display());
        println!(
            "$ srp-target --portal {}:5555 {line}",
            program(&bench.programs)?.ip
        );
        program(&bench.programs)?.start(&line).map(|target| {
            println!("{}", target.output());
            let said = format!("process {}", target.pid());
            (target, said)
        })
    })?;
    initiator::load("")?;
    let address = target.address().clone();
    let session = steps.done("login of ib_srp", login(&address))?;
    let written = steps.done("mkfs.ext4, copy a tree, unmount", {
        let disk = session.disk()?.path();
        println!(
            "$ mkfs.ext4 {0}; mount {0}; cp -a {TREE} …; umount",
            disk.display()
        );
        fill(&disk)
    })?;
    steps.done(
        "logout",
        session.logout().map(|()| ((), "disk gone".to_owned())),
    )?;
    let session = steps.done("login again", login(&address))?;
    steps.done("fsck, mount, compare", {
        let disk = session.disk()?.path();
        check(&disk).and_then(|found| {
            ensure!(found == written, "{found} instead of {written}");
            Ok(((), format!("checksum {found}")))
        })
    })?;
    steps.done(
        "logout",
        session.logout().map(|()| ((), "disk gone".to_owned())),
    )?;
    let said = steps.done(
        "srp-target ends",
        target.stop().map(|said| (said, "status 0".to_owned())),
    )?;
    println!("srp-target said:");
    for line in said.lines() {
        println!("    {line}");
    }
    Ok(())
}

/// Logs in and shows what the kernel says about it.
fn login(address: &initiator::Address) -> Result<(Session, String)> {
    println!("$ echo {} >…/add_target", address.login_line(""));
    let mark = Mark::now()?;
    let session = initiator::login(address, "")?;
    let disk = session.disk()?;
    mark.wait("Attached SCSI disk")?;
    for line in mark.since()? {
        println!("    {line}");
    }
    let channels = session.host_value("ch_count")?;
    let said = format!("{}, {channels} channels", disk.path().display());
    Ok((session, said))
}

/// The checksum of all files in a folder, and their names.
fn checksum(dir: &str) -> String {
    format!(
        "(cd {dir} && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)"
    )
}

/// Makes a file system with files on it; returns their checksum.
fn fill(disk: &Path) -> Result<(String, String)> {
    let found = sh(&format!(
        "modprobe ext4
         mkfs.ext4 -q {0}
         mkdir -p {MOUNT}
         mount {0} {MOUNT}
         cp -a {TREE} {MOUNT}/tree
         umount {MOUNT}
         {1}",
        disk.display(),
        checksum(TREE)
    ))?;
    let found = found.trim().to_owned();
    Ok((found.clone(), format!("checksum {found}")))
}

/// Checks the file system and returns the checksum of its files.
fn check(disk: &Path) -> Result<String> {
    let found = sh(&format!(
        "fsck.ext4 -n -f {0} >/dev/null
         mount -o ro {0} {MOUNT}
         trap 'umount {MOUNT}' EXIT
         {1}",
        disk.display(),
        checksum(&format!("{MOUNT}/tree"))
    ))?;
    Ok(found.trim().to_owned())
}
