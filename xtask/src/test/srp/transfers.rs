//! Data of all sizes and in all forms that the initiator can describe it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, case, close, thorough};
use crate::guest::program;
use crate::guest::srp::initiator::{self, Disk};
use crate::guest::srp::reference::Reference;
use crate::guest::srp::{sh, target};
use crate::library::Library;

pub const CASES: &[Case] = &[
    case("the kernel's own target, as a reference", reference),
    case("direct I/O of 512 bytes to 1 MiB, verified", sizes),
    case("direct I/O with 128 under way, verified", deep),
    case(
        "system calls are those of data, doorbells and waiting",
        system_calls,
    ),
    case("buffers described by indirect tables", indirect),
    case("tables that do not fit into the command", partial_tables),
    thorough("mixed reads and writes for a while, verified", mixed),
];

/// Sizes of transfers, from immediate data to what the kernel splits.
const SIZES: [&str; 7] = ["512", "4k", "8k", "8704", "64k", "512k", "1m"];

/// Writes, reads back and compares with every size.
fn verify_sizes(disk: &Disk) -> Result<()> {
    for size in SIZES {
        disk.fio(&format!(
            "--rw=randwrite --bs={size} --size=16m --io_size=4m --iodepth=8 --verify=crc32c"
        ))
        .with_context(|| size.to_owned())?;
    }
    Ok(())
}

/// If this fails, it is not our target that is to blame.
fn reference(lab: &Lab) -> Result<()> {
    let image = lab.image("disk", 64)?;
    let reference = Reference::start(&image)?;
    initiator::load("")?;
    let session = initiator::login(reference.address(), "")?;
    verify_sizes(&session.disk()?)?;
    session.logout()
}

fn sizes(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    verify_sizes(&disk)?;
    close(target, session)?;
    Ok(())
}

fn deep(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    let idle = session.host_value("req_lim")?;
    disk.fio("--rw=randwrite --bs=4k --size=16m --iodepth=128 --verify=crc32c")?;
    session.wait_credits(&idle)?;
    close(target, session)?;
    Ok(())
}

/// What the target's threads do while commands are served: their data (a file in
/// memory is read and written at once, others through io_uring), telling the device
/// of requests (soft-RoCE wants a write(2) for each post), waiting. Nothing for
/// memory, nothing for locks.
fn system_calls(lab: &Lab) -> Result<()> {
    const EXPECTED: [&str; 10] = [
        "pread64",
        "pwrite64",
        "io_uring_enter",
        "write",
        "poll",
        "read",
        "ioctl",
        // How long to look, where the clock cannot be read without the kernel.
        "clock_gettime",
        // The main thread waits for signals; the tracer interrupts those who wait.
        "rt_sigtimedwait",
        "restart_syscall",
    ];
    const JOB: &str = "--rw=randrw --bs=4k --size=1m --iodepth=16";
    const IN_MEMORY: &str = "/dev/shm/disk";
    const ROUNDS: usize = 5;
    target::image(Path::new(IN_MEMORY), 64)?;
    let image = lab.image("disk", 64)?;
    let luns = format!("--lun {} --lun {IN_MEMORY}", image.display());
    let target = lab.program.start(&luns)?;
    initiator::load("")?;
    let session = initiator::login(target.address(), "")?;
    let disks = session.disks(2)?;
    let run = || disks.iter().try_for_each(|disk| disk.fio(JOB).map(drop));
    run()?;
    // Everything grows to its size, which depends on how many commands meet, so now
    // and then in a later run: that ends, what a command needs does not.
    let mut others = Vec::new();
    for _ in 0..ROUNDS {
        let calls = traced(lab, &target, run)?;
        for call in ["pread64", "pwrite64", "io_uring_enter", "write", "poll"] {
            ensure!(calls.contains(call), "no {call}: {calls:?}");
        }
        others = calls
            .into_iter()
            .filter(|call| !EXPECTED.contains(&call.as_str()))
            .collect();
        if others.is_empty() {
            break;
        }
    }
    ensure!(others.is_empty(), "{others:?}");
    fs::remove_file(IN_MEMORY)?;
    close(target, session)?;
    Ok(())
}

/// The system calls that the target makes during `run`.
fn traced(
    lab: &Lab,
    target: &target::Target,
    run: impl Fn() -> Result<()>,
) -> Result<BTreeSet<String>> {
    let (trace, pid) = (lab.dir.join("trace"), target.pid().to_string());
    let file = trace.display().to_string();
    let words = ["strace", "-f", "-o", &file, "-p", &pid];
    let mut strace = program::start(&words, &Library::Original)?;
    strace.wait_until("attached", |strace| {
        Ok(strace.output().contains("attached"))
    })?;
    run()?;
    strace.terminate()?;
    strace.wait()?;
    let trace = fs::read_to_string(&trace)?;
    Ok(trace.lines().filter_map(call).map(String::from).collect())
}

/// The system call that begins in a line of strace's: `PID NAME(…`.
fn call(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_')
        .then_some(name)
}

/// Writes through the page cache, so that a command has many separate pages,
/// and compares.
fn through_page_cache(lab: &Lab, parameters: &str) -> Result<()> {
    let (target, session) = lab.session(parameters, "")?;
    let disk = session.disk()?;
    sh(&format!(
        "head -c 16M /dev/urandom >/tmp/random
         dd if=/tmp/random of={0} bs=1M conv=fsync,notrunc
         echo 3 >/proc/sys/vm/drop_caches
         cmp -n 16777216 /tmp/random {0}",
        disk.path().display()
    ))?;
    disk.fio("--rw=randwrite --bs=256k --size=16m --iodepth=8 --verify=crc32c")?;
    close(target, session)?;
    Ok(())
}

fn indirect(lab: &Lab) -> Result<()> {
    through_page_cache(lab, "never_register=Y use_imm_data=N")
}

fn partial_tables(lab: &Lab) -> Result<()> {
    through_page_cache(
        lab,
        "never_register=Y cmd_sg_entries=1 indirect_sg_entries=255 allow_ext_sg=Y",
    )
}

fn mixed(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    disk.fio(&format!(
        "--rw=randrw --bsrange=4k-256k --size=48m --iodepth=128 --verify=crc32c \
         --time_based --runtime={}",
        lab.size.mixed_seconds
    ))?;
    close(target, session)?;
    Ok(())
}
