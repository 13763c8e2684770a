//! Jobs that are told results.

use super::*;
use crate::memory::Pool;

fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
    list.iter()
        .map(|&(offset, length)| Extent { offset, length })
        .collect()
}

fn buffer(length: usize) -> Buffer {
    Pool::new(1 << 20, 1 << 20).unwrap().take(length).unwrap()
}

#[test]
fn short_transfers_are_continued() {
    let work = Work::Read {
        offset: 0,
        length: 4096,
    };
    let mut job = Job::new(work, buffer(4096));
    assert_eq!(job.completed(1000), Next::Request);
    assert_eq!(job.completed(-libc::EINTR), Next::Request);
    assert_eq!(job.completed(3096), Next::Done);
}

#[test]
fn a_kernel_that_only_says_again_is_not_asked_for_ever() {
    let write = Work::Write {
        offset: 0,
        length: 4096,
        sync: true,
    };
    let clear = Work::Clear {
        extents: extents(&[(0, 512)]),
        release: true,
    };
    for work in [write, Work::Sync, clear] {
        let mut job = Job::new(work, buffer(4096));
        let mut next = Next::Request;
        for _ in 0..=MOST_REFUSALS {
            assert_eq!(next, Next::Request);
            next = job.completed(-libc::EAGAIN);
        }
        assert_eq!(next, Next::Failed(Doing::Writing, libc::EAGAIN));
    }
    // Whatever gets on starts afresh.
    let work = Work::Read {
        offset: 0,
        length: 4096,
    };
    let mut job = Job::new(work, buffer(4096));
    for _ in 0..16 {
        assert_eq!(job.completed(-libc::EAGAIN), Next::Request);
        assert_eq!(job.completed(1), Next::Request);
    }
}

#[test]
fn the_end_of_the_file_is_an_error() {
    let work = Work::Read {
        offset: 0,
        length: 4096,
    };
    let mut job = Job::new(work, buffer(4096));
    assert_eq!(job.completed(512), Next::Request);
    assert_eq!(job.completed(0), Next::Failed(Doing::Reading, libc::EIO));
}

#[test]
fn a_write_that_must_last_is_synced() {
    let work = Work::Write {
        offset: 0,
        length: 512,
        sync: true,
    };
    let mut job = Job::new(work, buffer(512));
    assert_eq!(job.completed(512), Next::Request);
    assert!(matches!(job.step, Step::Sync));
    assert_eq!(job.completed(0), Next::Done);
}

#[test]
fn clearing_falls_back_until_zeros_are_written() {
    let work = Work::Clear {
        extents: extents(&[(0, 512), (4096, 100_000)]),
        release: true,
    };
    let mut job = Job::new(work, Buffer::empty());
    assert_eq!(job.completed(-libc::EOPNOTSUPP), Next::Request);
    assert_eq!(job.completed(-libc::EOPNOTSUPP), Next::Request);
    assert!(matches!(job.step, Step::Fill { .. }));
    assert_eq!(job.completed(65536), Next::Request);
    assert_eq!(job.completed(34464), Next::Request);
    assert_eq!(job.completed(512), Next::Done);
}

#[test]
fn a_full_disk_is_not_a_reason_to_fall_back() {
    let work = Work::Clear {
        extents: extents(&[(0, 512)]),
        release: false,
    };
    let mut job = Job::new(work, Buffer::empty());
    let failed = job.completed(-libc::ENOSPC);
    assert_eq!(failed, Next::Failed(Doing::Writing, libc::ENOSPC));
}
