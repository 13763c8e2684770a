//! What the kernel and sg3-utils make of the disks: names, sizes, write
//! protection, giving blocks back, errors.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Case, Lab, case, close};
use crate::guest::srp::initiator::{self, Disk};
use crate::guest::srp::{names, read, sh, unmount, until, write};

pub const CASES: &[Case] = &[
    case("sg_inq and the vital product data pages", inquiry),
    case("names stay the same over restarts", stable_names),
    case("reads and writes by commands of every length", lengths),
    case("logical units 0 and 200, and none between", numbers),
    case("read-only disks", read_only),
    case("reading beyond the end", beyond_the_end),
    case("blkdiscard gives blocks back", discard),
    case("blkdiscard -z and sg_write_same", write_same),
    case("a file that grows", resize),
    case("a file that shrinks", shrunk),
    case("a full file system", full),
    case("a block device", block_device),
    case("a file system, a tree of files, another login", file_system),
    case("fsync reaches the disk", flush),
];

fn inquiry(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?.path();
    let disk = disk.display();
    let inquiry = sh(&format!("sg_inq {disk}"))?;
    ensure!(
        inquiry.contains("SPC-4") && inquiry.contains("CmdQue=1"),
        "{inquiry}"
    );
    for (page, says) in [
        ("sv", "Device identification"),
        ("sn", "Unit serial number"),
        ("di", "0x6000"),
        ("bl", "Maximum unmap LBA count"),
        ("bdc", "Non-rotating"),
        ("lbpv", "LBPU=1"),
    ] {
        let said = sh(&format!("sg_vpd --page={page} {disk}"))?;
        // As older versions of the program say it.
        let said = said.replace("Unmap command supported (LBPU): 1", "LBPU=1");
        ensure!(said.contains(says), "{page}: {said}");
    }
    let capacity = sh(&format!("sg_readcap --long {disk}"))?;
    ensure!(capacity.contains("lbpme=1, lbprz=1"), "{capacity}");
    ensure!(capacity.contains("67108864 bytes"), "{capacity}");
    let commands = sh(&format!("sg_opcodes {disk}"))?;
    ensure!(commands.contains("Write same(16)"), "{commands}");
    let modes = sh(&format!("sg_modes --all {disk}"))?;
    ensure!(modes.contains("Caching"), "{modes}");
    // The drivers agree.
    let queue = session.disk()?;
    ensure!(queue.queue("write_cache")? == "write back");
    ensure!(queue.queue("rotational")? == "0");
    ensure!(queue.queue("discard_max_bytes")? != "0");
    ensure!(queue.queue("write_zeroes_max_bytes")? != "0");
    ensure!(queue.queue("fua")? == "1");
    // Allocation lengths shorter than the answer cut it.
    let short = sh(&format!("sg_raw --request=5 {disk} 12 00 00 00 05 00 2>&1"))?;
    ensure!(short.contains("00 00 06 02 1f"), "{short}");
    close(target, session)?;
    Ok(())
}

fn stable_names(lab: &Lab) -> Result<()> {
    let names = |lab: &Lab| -> Result<String> {
        let (target, session) = lab.session("", "")?;
        let disk = session.disk()?;
        let wwid = read(format!("/sys/block/{}/device/wwid", disk.name))?;
        close(target, session)?;
        Ok(wwid)
    };
    let first = names(lab)?;
    ensure!(first.starts_with("naa.6"), "{first}");
    ensure!(first == names(lab)?);
    Ok(())
}

/// The generic device of a disk: past the block layer.
fn generic(disk: &Disk) -> Result<String> {
    let devices = names(format!("/sys/block/{}/device/scsi_generic", disk.name));
    let device = devices.first().context("no generic device")?;
    Ok(format!("/dev/{device}"))
}

/// Linux itself uses READ and WRITE (10) for disks of this size only.
fn lengths(lab: &Lab) -> Result<()> {
    const LENGTHS: [(u32, &str); 4] = [
        (6, ""),
        (10, "oflag=fua"),
        (12, "oflag=fua"),
        (16, "oflag=fua"),
    ];
    let (target, session) = lab.session("", "")?;
    let device = generic(&session.disk()?)?;
    for (place, (length, flags)) in (0..).zip(LENGTHS) {
        let first = place * 64;
        sh(&format!(
            "head -c 32768 /dev/urandom >/tmp/written
             sg_dd if=/tmp/written of={device} bs=512 seek={first} count=64 cdbsz={length} {flags}"
        ))?;
        for (other, _) in LENGTHS {
            sh(&format!(
                "sg_dd if={device} of=/tmp/read bs=512 skip={first} count=64 cdbsz={other}
                 cmp /tmp/written /tmp/read"
            ))
            .with_context(|| format!("written by {length}, read by {other} bytes"))?;
        }
    }
    close(target, session)?;
    Ok(())
}

fn numbers(lab: &Lab) -> Result<()> {
    let (zero, far) = (lab.image("zero", 16)?, lab.image("far", 32)?);
    let target = lab.program.start(&format!(
        "--lun {} --lun {},lun=200,serial=far",
        zero.display(),
        far.display()
    ))?;
    initiator::load("")?;
    let session = initiator::login(target.address(), "")?;
    let disks = session.disks(2)?;
    ensure!(disks[0].lun == 0 && disks[1].lun == 200, "{disks:?}");
    ensure!(disks[1].bytes()? == 32 << 20);
    let serial = sh(&format!("sg_vpd --page=sn {}", disks[1].path().display()))?;
    ensure!(serial.contains("far"), "{serial}");
    // Looking for one that is absent finds nothing and breaks nothing.
    let scan = format!("/sys/class/scsi_host/host{}/scan", session.host);
    write(scan, "0 0 100")?;
    ensure!(session.disks_now().len() == 2);
    let luns = sh(&format!("sg_luns {}", disks[0].path().display()))?;
    ensure!(luns.contains("00c8000000000000"), "{luns}");
    close(target, session)?;
    Ok(())
}

fn read_only(lab: &Lab) -> Result<()> {
    for (lun, all) in [(",ro", ""), ("", "--read-only")] {
        let image = lab.image("disk", 16)?;
        fs::write(&image, vec![0x5a; 16 << 20])?;
        let target = lab
            .program
            .start(&format!("--lun {}{lun} {all}", image.display()))?;
        initiator::load("")?;
        let session = initiator::login(target.address(), "")?;
        let disk = session.disk()?;
        ensure!(read(format!("/sys/block/{}/ro", disk.name))? == "1");
        // Past the block layer, which would refuse by itself.
        let generic = generic(&disk)?;
        let write = format!(
            "head -c 512 /dev/zero | sg_raw --send=512 {generic} 2a 00 00 00 00 00 00 00 01 00 2>&1 || true"
        );
        let said = sh(&write)?;
        ensure!(said.contains("Write protected"), "{said}");
        ensure!(fs::read(disk.path())?.iter().all(|byte| *byte == 0x5a));
        close(target, session)?;
    }
    Ok(())
}

fn beyond_the_end(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    let last = (64 << 20) / 512 - 1_u32;
    for (first, count, good) in [
        (last, 1, true),
        (last, 2, false),
        (last + 1, 1, false),
        (u32::MAX, 1, false),
        (u32::MAX, 0xffff, false),
    ] {
        let [a, b, c, d] = first.to_be_bytes();
        let [high, low] = (count as u16).to_be_bytes();
        let said = sh(&format!(
            "sg_raw --request=512 {} 28 00 {a:x} {b:x} {c:x} {d:x} 00 {high:x} {low:x} 00 2>&1 || true",
            disk.path().display()
        ))?;
        let refused = said.contains("Logical block address out of range");
        ensure!(refused != good, "{first} {count}: {said}");
    }
    close(target, session)?;
    Ok(())
}

/// Bytes that a file takes.
fn used(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.blocks() * 512)
}

fn discard(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let (disk, image) = (session.disk()?, lab.dir.join("disk"));
    fill(&disk.path(), 16)?;
    ensure!(used(&image)? >= 16 << 20);
    sh(&format!("blkdiscard --length 8M {}", disk.path().display()))?;
    ensure!(
        used(&image)? <= 9 << 20,
        "{} bytes still used",
        used(&image)?
    );
    let data = first_bytes(&disk.path(), 16)?;
    let (given, kept) = data.split_at(8 << 20);
    ensure!(
        given.iter().all(|byte| *byte == 0),
        "not zeros after discard"
    );
    ensure!(
        kept.iter().all(|byte| *byte == 0xa5),
        "discard took too much"
    );
    close(target, session)?;
    Ok(())
}

/// Writes 0xa5 to the first MiB of a disk.
fn fill(disk: &Path, mebibytes: u32) -> Result<()> {
    sh(&format!(
        "head -c {mebibytes}M /dev/zero | tr '\\0' '\\245' | dd of={} bs=1M iflag=fullblock oflag=direct conv=fsync,notrunc",
        disk.display()
    ))?;
    Ok(())
}

/// Reads the first MiB of a disk, past the page cache.
fn first_bytes(disk: &Path, mebibytes: u64) -> Result<Vec<u8>> {
    let copy = std::env::temp_dir().join("first-bytes");
    sh(&format!(
        "dd if={} of={} bs=1M count={mebibytes} iflag=direct",
        disk.display(),
        copy.display()
    ))?;
    let bytes = fs::read(&copy)?;
    fs::remove_file(&copy)?;
    ensure!(bytes.len() as u64 == mebibytes << 20);
    Ok(bytes)
}

fn write_same(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    let path = disk.path();
    fill(&path, 4)?;
    sh(&format!(
        "blkdiscard --zeroout --length 1M {}",
        path.display()
    ))?;
    // 16 blocks of a pattern, then 16 of zeros that are not sent.
    sh(&format!(
        "head -c 512 /dev/zero | tr '\\0' '\\7' >/tmp/pattern
         sg_write_same --in=/tmp/pattern --lba=4096 --num=16 {0}
         sg_write_same --16 --ndob --lba=4112 --num=16 {0}",
        path.display()
    ))?;
    let data = first_bytes(&path, 4)?;
    let expected = |at: usize| match at {
        at if at < 1 << 20 => 0,
        at if at < 4096 * 512 => 0xa5,
        at if at < 4112 * 512 => 7,
        at if at < 4128 * 512 => 0,
        _ => 0xa5,
    };
    let wrong = data
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte != expected(*at));
    ensure!(wrong.is_none(), "{wrong:?}");
    close(target, session)?;
    Ok(())
}

fn resize(lab: &Lab) -> Result<()> {
    let (mut target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    let file = fs::OpenOptions::new()
        .write(true)
        .open(lab.dir.join("disk"))?;
    file.set_len(96 << 20)?;
    target.signal("HUP")?;
    target.wait_output("now 196608 blocks", 1)?;
    let ready = format!(
        "sg_raw {} 00 00 00 00 00 00 2>&1 || true",
        disk.path().display()
    );
    let said = sh(&ready)?;
    ensure!(said.contains("apacity data has changed"), "{said}");
    let said = sh(&ready)?;
    ensure!(
        !said.contains("apacity data has changed"),
        "told twice: {said}"
    );
    write(format!("/sys/block/{}/device/rescan", disk.name), "1")?;
    until("the disk has grown", || {
        Ok((disk.bytes()? == 96 << 20).then_some(()))
    })?;
    disk.fio("--rw=randwrite --offset=80m --size=4m --bs=64k --verify=crc32c")?;
    close(target, session)?;
    Ok(())
}

fn shrunk(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?;
    lab.image("disk", 1)?;
    // The block after the first MiB.
    let said = sh(&format!(
        "sg_raw --request=512 {} 28 00 00 00 08 00 00 00 01 00 2>&1 || true",
        disk.path().display()
    ))?;
    ensure!(said.contains("Unrecovered read error"), "{said}");
    ensure!(first_bytes(&disk.path(), 1)?.iter().all(|byte| *byte == 0));
    close(target, session)?;
    Ok(())
}

fn full(lab: &Lab) -> Result<()> {
    let dir = lab.dir.join("small");
    sh(&format!(
        "mkdir -p {0}; mount -t tmpfs -o size=8m tmpfs {0}",
        dir.display()
    ))?;
    let result = (|| {
        let image = lab.image("small/disk", 64)?;
        let target = lab.program.start(&format!("--lun {}", image.display()))?;
        initiator::load("")?;
        let session = initiator::login(target.address(), "")?;
        let disk = session.disk()?.path();
        let said = sh(&format!(
            "LC_ALL=C dd if=/dev/zero of={} bs=1M count=16 oflag=direct 2>&1 || true",
            disk.display()
        ))?;
        ensure!(said.contains("No space left on device"), "{said}");
        // What is given back can be written again.
        sh(&format!("blkdiscard --length 4M {}", disk.display()))?;
        sh(&format!(
            "dd if=/dev/zero of={} bs=1M count=2 oflag=direct",
            disk.display()
        ))?;
        close(target, session)
    })();
    result.and(unmount(&dir))
}

fn block_device(lab: &Lab) -> Result<()> {
    for sector in ["512", "4096"] {
        let image = lab.image("device", 64)?;
        with_loop(&image, &format!("--sector-size {sector}"), |device| {
            let target = lab.program.start(&format!("--lun {device}"))?;
            initiator::load("")?;
            let session = initiator::login(target.address(), "")?;
            let disk = session.disk()?;
            ensure!(disk.bytes()? == 64 << 20);
            ensure!(disk.queue("logical_block_size")? == sector);
            disk.fio("--rw=randwrite --size=8m --bs=16k --iodepth=8 --verify=crc32c")?;
            sh(&format!("blkdiscard --length 8M {}", disk.path().display()))?;
            ensure!(first_bytes(&disk.path(), 8)?.iter().all(|byte| *byte == 0));
            close(target, session).map(drop)
        })?;
    }
    Ok(())
}

/// Makes a loop device of the image, for as long as `case` takes.
pub fn with_loop(image: &Path, options: &str, case: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let device = sh(&format!(
        "modprobe loop; losetup {options} --find --show {}",
        image.display()
    ))?;
    let device = device.trim();
    let result = case(device);
    sh(&format!("losetup --detach {device}"))?;
    result
}

/// A tree of files that is there on every kernel and userland.
const TREE: &str = "/lib/modules/$(uname -r)/kernel/crypto";

fn file_system(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "")?;
    let disk = session.disk()?.path();
    sh(&format!(
        "modprobe ext4
         mkfs.ext4 -q -E nodiscard {0}
         mkdir -p /mnt/srp
         mount -o discard {0} /mnt/srp
         cp -a {TREE} /mnt/srp/tree
         head -c 4M /dev/urandom >/mnt/srp/random
         cp /mnt/srp/random /tmp/random
         rm -r /mnt/srp/tree/asymmetric_keys
         fstrim /mnt/srp
         umount /mnt/srp",
        disk.display()
    ))?;
    session.logout()?;
    let session = initiator::login(target.address(), "")?;
    let disk = session.disk()?.path();
    sh(&format!(
        "fsck.ext4 -n -f {0}
         mount -o ro {0} /mnt/srp
         trap 'umount /mnt/srp' EXIT
         cmp /tmp/random /mnt/srp/random
         diff -r -x asymmetric_keys {TREE} /mnt/srp/tree",
        disk.display()
    ))
    .context("after the second login")?;
    close(target, session)?;
    Ok(())
}

fn flush(lab: &Lab) -> Result<()> {
    let (target, session) = lab.session("", "--stats")?;
    let disk = session.disk()?;
    // Besides reads and writes, one other kind of command: SYNCHRONIZE CACHE. They
    // are counted by the second, so there are more than one machine keeps waiting.
    disk.fio("--rw=write --bs=4k --size=256k --fsync=1")?;
    until("the target counts other commands", || {
        let said = target.output();
        let mut others = said.lines().filter_map(others);
        Ok(others.any(|count| count != "0").then_some(()))
    })
    .with_context(|| target.output())?;
    close(target, session)?;
    Ok(())
}

/// Of a line of statistics, the commands that neither read nor wrote.
fn others(line: &str) -> Option<&str> {
    let (counts, _) = line.split_once(" other)")?;
    counts.rsplit(' ').next()
}
