//! Data of all sizes and in all forms that the initiator can describe it.

use anyhow::{Context, Result};

use super::{Case, Lab, case, close, thorough};
use crate::guest::srp::initiator::{self, Disk};
use crate::guest::srp::reference::Reference;
use crate::guest::srp::sh;

pub const CASES: &[Case] = &[
    case("the kernel's own target, as a reference", reference),
    case("direct I/O of 512 bytes to 1 MiB, verified", sizes),
    case("direct I/O with 128 under way, verified", deep),
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
