//! Commands on real files; where the kernel allows no io_uring, none.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::*;
use crate::executor::status::{CHECK_CONDITION, GOOD};
use crate::memory::Pool;
use crate::scsi::command::Extent;

const SIZE: u64 = 1 << 20;

struct Disk {
    ring: Ring,
    pool: Pool,
    file: tempfile::NamedTempFile,
    backing: Backing,
}

impl Disk {
    /// `None` where the kernel does not allow io_uring.
    fn new() -> Option<Self> {
        Self::at(&std::env::temp_dir())
    }

    fn at(dir: &Path) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(dir).unwrap();
        file.as_file().set_len(SIZE).unwrap();
        let backing = Backing::open(file.path(), false).unwrap();
        let ring = match Ring::new([&backing].into_iter()) {
            Ok(ring) => ring,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let pool = Pool::new(4 << 20, 1 << 20).unwrap();
        Some(Self {
            ring,
            pool,
            file,
            backing,
        })
    }

    /// Waits for the commands under way and returns how they ended.
    fn finish(&mut self) -> Vec<Completed> {
        let mut all = Vec::new();
        loop {
            self.ring.poll(&mut |done| all.push(done));
            if self.ring.under_way() == 0 {
                return all;
            }
            let mut poll = libc::pollfd {
                fd: self.ring.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd, as said.
            assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 60_000) }, 1);
        }
    }
}

#[test]
fn many_commands_are_under_way_at_once_and_move_the_right_bytes() {
    let Some(mut disk) = Disk::new() else { return };
    for number in 0..128_u16 {
        let mut buffer = disk.pool.take(4096).unwrap();
        buffer.fill(number as u8 + 1);
        let work = Work::Write {
            offset: u64::from(number) * 8192,
            length: 4096,
            sync: number % 16 == 0,
        };
        disk.ring
            .start(Token(number), 0, work, buffer, 4096)
            .unwrap();
    }
    let done = disk.finish();
    assert_eq!(done.len(), 128);
    for completed in done {
        assert_eq!(completed.outcome, Outcome::good(4096));
        let work = Work::Read {
            offset: u64::from(completed.token.0) * 8192,
            length: 4096,
        };
        let mut buffer = completed.buffer;
        buffer.fill(0);
        disk.ring
            .start(completed.token, 0, work, buffer, 4096)
            .unwrap();
    }
    for completed in disk.finish() {
        let expected = completed.token.0 as u8 + 1;
        assert!(completed.buffer.iter().all(|byte| *byte == expected));
    }
}

#[test]
fn what_is_not_handed_to_the_kernel_yet_is_a_backlog() {
    let Some(mut disk) = Disk::new() else { return };
    assert!(!disk.ring.has_backlog());
    for number in 0..2 {
        let done = disk
            .ring
            .start(Token(number), 0, Work::Sync, Buffer::empty(), 0);
        assert!(done.is_ok() && disk.ring.has_backlog());
    }
    assert_eq!(disk.finish().len(), 2);
    assert!(!disk.ring.has_backlog());
}

#[test]
fn a_request_that_finds_no_place_makes_the_target_busy() {
    let outcome = not_queued(&io::Error::from_raw_os_error(libc::EAGAIN));
    assert_eq!((outcome.status, outcome.sense), (status::BUSY, None));
}

#[test]
fn a_flush_fails_once_if_that_of_another_channel_has_lost_data() {
    let Some(mut disk) = Disk::new() else { return };
    let mut other = disk.backing.losses.watch();
    let mut buffer = disk.pool.take(512).unwrap();
    buffer.fill(1);
    let write = |sync| Work::Write {
        offset: 0,
        length: 512,
        sync,
    };
    let lost = Outcome::check(crate::scsi::sense::WRITE_ERROR);

    let failed = Next::Failed(failure::Doing::Writing, libc::EIO);
    assert!(matches!(judge_flush(failed, &mut other), Next::Failed(..)));
    disk.ring
        .start(Token(0), 0, write(false), buffer, 512)
        .unwrap();
    let done = disk.finish().remove(0);
    assert_eq!(done.outcome, Outcome::good(512), "no flush");
    for expected in [lost, Outcome::good(0)] {
        disk.ring
            .start(Token(0), 0, Work::Sync, Buffer::empty(), 0)
            .unwrap();
        assert_eq!(disk.finish()[0].outcome, expected);
    }

    other.report();
    let mut buffer = done.buffer;
    for expected in [lost, Outcome::good(512)] {
        disk.ring
            .start(Token(0), 0, write(true), buffer, 512)
            .unwrap();
        let done = disk.finish().remove(0);
        assert_eq!(done.outcome, expected);
        buffer = done.buffer;
    }
    assert!(!other.take(), "what was passed on is no new loss");
}

#[test]
fn holes_read_as_zeros_and_take_no_space() {
    let Some(mut disk) = Disk::new() else { return };
    let file = disk.file.as_file();
    file.write_all_at(&[7; SIZE as usize], 0).unwrap();
    let before = file.metadata().unwrap().blocks();
    let extents = [(0, 256 << 10), (512 << 10, 128 << 10)];
    let work = Work::Clear {
        extents: extents
            .map(|(offset, length)| Extent { offset, length })
            .to_vec(),
        release: true,
    };
    disk.ring
        .start(Token(3), 0, work, Buffer::empty(), 24)
        .unwrap();
    let done = disk.finish();
    assert_eq!(done[0].outcome, Outcome::good(24));
    let mut bytes = vec![0; SIZE as usize];
    let file = disk.file.as_file();
    file.read_exact_at(&mut bytes, 0).unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        let hole = extents
            .iter()
            .any(|(from, length)| (*from..from + length).contains(&(at as u64)));
        assert_eq!(*byte, if hole { 0 } else { 7 }, "{at}");
    }
    assert!(file.metadata().unwrap().blocks() <= before);
}

#[test]
fn a_block_is_repeated() {
    let Some(mut disk) = Disk::new() else { return };
    let mut block = vec![0; 512];
    block[0] = 9;
    let extent = Extent {
        offset: 512,
        length: 200 * 512,
    };
    let work = Work::Repeat { extent, block };
    disk.ring
        .start(Token(0), 0, work, Buffer::empty(), 512)
        .unwrap();
    assert_eq!(disk.finish()[0].outcome, Outcome::good(512));
    let mut bytes = vec![0; 202 * 512];
    disk.file.as_file().read_exact_at(&mut bytes, 0).unwrap();
    let marks: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let expected: Vec<_> = (1..=200).map(|block| block * 512).collect();
    assert_eq!(marks, expected);
}

#[test]
fn a_file_that_shrank_is_a_medium_error() {
    let Some(mut disk) = Disk::new() else { return };
    disk.file.as_file().set_len(1000).unwrap();
    let work = Work::Read {
        offset: 0,
        length: 4096,
    };
    let buffer = disk.pool.take(4096).unwrap();
    disk.ring.start(Token(0), 0, work, buffer, 4096).unwrap();
    let outcome = disk.finish()[0].outcome;
    assert_eq!(outcome.status, CHECK_CONDITION);
    assert_eq!(
        outcome.sense,
        Some(crate::scsi::sense::UNRECOVERED_READ_ERROR)
    );
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let Some(mut disk) = Disk::new() else { return };
    let work = Work::Read {
        offset: 0,
        length: 0,
    };
    let done = disk
        .ring
        .start(Token(0), 0, work, Buffer::empty(), 0)
        .unwrap_err();
    assert_eq!(done.outcome.status, GOOD);
}

#[test]
fn files_in_memory_are_served_at_once() {
    let Some(mut disk) = Disk::at(Path::new("/dev/shm")) else {
        return;
    };
    let mut buffer = disk.pool.take(4096).unwrap();
    buffer.fill(5);
    let write = Work::Write {
        offset: 4096,
        length: 4096,
        sync: false,
    };
    let done = disk.ring.start(Token(0), 0, write, buffer, 4096);
    let mut buffer = done.unwrap_err().buffer;
    buffer.fill(0);
    let read = Work::Read {
        offset: 4096,
        length: 4096,
    };
    let done = disk.ring.start(Token(0), 0, read, buffer, 4096);
    let done = done.unwrap_err();
    assert_eq!(done.outcome, Outcome::good(4096));
    assert!(done.buffer.iter().all(|byte| *byte == 5));
    // Syncing goes the other way, with the write before it done.
    let write = Work::Write {
        offset: 0,
        length: 4096,
        sync: true,
    };
    disk.ring
        .start(Token(0), 0, write, done.buffer, 4096)
        .unwrap();
    assert_eq!(disk.finish()[0].outcome, Outcome::good(4096));
    disk.file.as_file().set_len(0).unwrap();
    let buffer = disk.pool.take(512).unwrap();
    let read = Work::Read {
        offset: 0,
        length: 512,
    };
    let done = disk.ring.start(Token(0), 0, read, buffer, 512).unwrap_err();
    assert_eq!(done.outcome.status, CHECK_CONDITION);
}
