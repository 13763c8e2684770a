//! Benchmark of disks over SRP: the same fio jobs, by the same initiator, on our
//! target and on the kernel's, in turns. Both serve a file each, in memory
//! (tmpfs): the disk is not what is measured.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::figures::{Figures, order};
use crate::guest::Bench;
use crate::guest::srp::initiator::{self, Disk};
use crate::guest::srp::reference::Reference;
use crate::guest::srp::sh;
use crate::test::srp::program;

/// What fio does.
struct Row {
    name: &'static str,
    /// Block size and what else fio is told.
    job: &'static str,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    /// Commands per second.
    Iops,
    /// MB (10⁶ bytes) per second.
    Megabytes,
}

const ROWS: [Row; 9] = [
    Row::iops(
        "read 4 KiB, 1 under way",
        "--rw=randread --bs=4k --iodepth=1",
    ),
    Row::iops(
        "write 4 KiB, 1 under way",
        "--rw=randwrite --bs=4k --iodepth=1",
    ),
    Row::iops(
        "read 4 KiB, 32 under way",
        "--rw=randread --bs=4k --iodepth=32",
    ),
    Row::iops(
        "write 4 KiB, 32 under way",
        "--rw=randwrite --bs=4k --iodepth=32",
    ),
    Row::iops(
        "read and write 4 KiB, 64 under way",
        "--rw=randrw --bs=4k --iodepth=64",
    ),
    Row::megabytes(
        "read 64 KiB, 16 under way",
        "--rw=randread --bs=64k --iodepth=16",
    ),
    Row::megabytes(
        "write 64 KiB, 16 under way",
        "--rw=randwrite --bs=64k --iodepth=16",
    ),
    Row::megabytes(
        "read 512 KiB, 8 under way",
        "--rw=read --bs=512k --iodepth=8",
    ),
    Row::megabytes(
        "write 512 KiB, 8 under way",
        "--rw=write --bs=512k --iodepth=8",
    ),
];

const HEADER: &str = "| what | unit | ib_srpt, median (least to most) \
    | srp-target, median (least to most) | srp-target / ib_srpt |\n|---|---|---|---|---|";

/// Bytes of each disk, written once before measuring.
const SIZE: usize = 64 << 20;

impl Row {
    const fn iops(name: &'static str, job: &'static str) -> Self {
        let unit = Unit::Iops;
        Self { name, job, unit }
    }

    const fn megabytes(name: &'static str, job: &'static str) -> Self {
        let unit = Unit::Megabytes;
        Self { name, job, unit }
    }

    fn measure(&self, disk: &Disk) -> Result<f64> {
        let line = sh(&format!(
            "fio --name=job --filename={} --ioengine=libaio --direct=1 --time_based --runtime=4 \
             --ramp_time=1 --minimal --terse-version=3 {}",
            disk.path().display(),
            self.job
        ))?;
        // Of the terse format: KiB/s and IOPS of reads and of writes.
        let fields: Vec<_> = line.trim().split(';').collect();
        let field = |index: usize| -> Result<f64> {
            let field = fields.get(index).context("a short line of fio")?;
            Ok(field.parse()?)
        };
        Ok(match self.unit {
            Unit::Iops => field(7)? + field(48)?,
            Unit::Megabytes => (field(6)? + field(47)?) * 1024.0 / 1e6,
        })
    }
}

/// The part beside the device.
pub fn inside(bench: &Bench, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let rows: Vec<_> = ROWS.iter().filter(|row| wanted(row.name)).collect();
    ensure!(!rows.is_empty(), "no row has such a name");
    let images = ["/dev/shm/srp-kernel", "/dev/shm/srp-ours"].map(Path::new);
    for image in images {
        fs::write(image, vec![0x5a; SIZE])?;
    }
    let reference = Reference::start(images[0])?;
    let target = program(&bench.programs)?.start(&format!("--lun {}", images[1].display()))?;
    initiator::load("")?;
    let sessions = [
        initiator::login(reference.address(), "")?,
        initiator::login(target.address(), "")?,
    ];
    let disks = [sessions[0].disk()?, sessions[1].disk()?];
    println!("{HEADER}");
    for row in rows {
        let mut figures = Figures::default();
        for which in (0..rounds).flat_map(order) {
            figures.take(which, row.measure(&disks[which]));
        }
        let unit = match row.unit {
            Unit::Iops => "IOPS",
            Unit::Megabytes => "MB/s",
        };
        println!("{}", figures.rates(row.name, unit));
    }
    for session in sessions {
        session.logout()?;
    }
    target.stop()?;
    for image in images {
        fs::remove_file(image)?;
    }
    Ok(())
}
