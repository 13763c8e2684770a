//! Command descriptor blocks and UNMAP parameter lists as an initiator may send
//! them: whatever they say, nothing beyond the end of the disk is touched.

#![no_main]

use libfuzzer_sys::fuzz_target;
use srpt::scsi::cdb::Cdb;
use srpt::scsi::command::{Command, Extent, decode};
use srpt::scsi::unit::{Identity, Unit};
use srpt::scsi::{provision, report, report_absent};

fuzz_target!(|input: (u64, bool, bool, bool, &[u8], &[u8])| {
    let (bytes, large_blocks, thin, read_only, cdb, list) = input;
    let block_size = if large_blocks { 4096 } else { 512 };
    let mut unit = Unit::new(block_size, bytes, Identity::from_serial("fuzz"));
    unit.thin = thin;
    unit.read_only = read_only;
    let within = |extent: &Extent| {
        let end = extent.offset.checked_add(extent.length);
        assert!(end.is_some_and(|end| end <= bytes), "{extent:?}");
    };
    let cdb = Cdb::new(cdb);
    match decode(&cdb, &unit) {
        Ok(Command::Read(extent)) => within(&extent),
        Ok(Command::Write { extent, .. } | Command::WriteSame { extent, .. }) => {
            assert!(!read_only);
            within(&extent);
        }
        Ok(Command::Report { about, .. }) => {
            let _ = report(about, &cdb, &unit, &[0, 1, 300]);
        }
        Ok(Command::Unmap { .. }) => assert!(thin && !read_only),
        Ok(Command::Nothing | Command::Flush) | Err(_) => {}
    }
    let _ = report_absent(&cdb, &[0, 1]);
    for extent in provision::ranges(list, &unit).unwrap_or_default() {
        within(&extent);
    }
});
