//! The requests of one channel's commands in the kernel's `io_uring`: queued
//! together, under way together, taken back in any order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, types};

use super::failure;
use super::job::{Job, Next, Work};
use crate::executor::{Completed, Outcome, Token};
use crate::memory::Buffer;

/// Requests that are queued before the kernel is told, at most.
const QUEUE: u32 = 256;
/// Completions that the kernel has room for: one for each command of a channel
/// and as many cancellations.
const COMPLETIONS: u32 = 2048;

/// Completions of cancellations have this mark; nobody waits for them.
const CANCELLATION: u64 = u64::MAX;

/// A ring with its jobs. For one thread.
pub struct Ring {
    uring: IoUring,
    /// By token.
    jobs: Vec<Option<Entry>>,
    under_way: usize,
}

struct Entry {
    job: Job,
    disk: u32,
    good: u32,
}

impl Ring {
    /// A ring for disks that are known by their place in `files`, which must
    /// stay open as long as the ring.
    ///
    /// # Errors
    /// As io_uring_setup(2): `ENOSYS` and `EPERM` if the kernel has no io_uring
    /// or does not allow it.
    pub fn new(files: &[RawFd]) -> io::Result<Self> {
        let uring = IoUring::builder().setup_cqsize(COMPLETIONS).build(QUEUE)?;
        uring.submitter().register_files(files)?;
        Ok(Self {
            uring,
            jobs: Vec::new(),
            under_way: 0,
        })
    }

    /// Begins `work` on disk number `disk`. If it succeeds, its outcome has
    /// `good` bytes transferred. It goes to the kernel with the next
    /// [`Ring::poll`] at the latest.
    ///
    /// # Errors
    /// The buffer comes back, with the outcome, if there is nothing to do or
    /// the command cannot be begun.
    pub fn start(
        &mut self,
        token: Token,
        disk: u32,
        work: Work,
        buffer: Buffer,
        good: u32,
    ) -> Result<(), Completed> {
        let job = Job::new(work, buffer);
        let index = usize::from(token.0);
        if job.is_empty() {
            return Err(Completed {
                token,
                outcome: Outcome::good(good),
                buffer: job.buffer,
            });
        }
        if self.jobs.len() <= index {
            self.jobs.resize_with(index + 1, || None);
        }
        if let Some(place) = self.jobs.get_mut(index) {
            debug_assert!(place.is_none(), "a token is used twice");
            *place = Some(Entry { job, disk, good });
        }
        match self.queue(token) {
            Ok(()) => {
                self.under_way += 1;
                Ok(())
            }
            Err(error) => {
                let entry = self.jobs.get_mut(index).and_then(Option::take);
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Err(Completed {
                    token,
                    outcome: Outcome::check(failure::sense(failure::Doing::Writing, errno)),
                    buffer: entry.map_or_else(Buffer::empty, |entry| entry.job.buffer),
                })
            }
        }
    }

    /// Asks the kernel to give up on a command. It comes back like any other.
    pub fn cancel(&mut self, token: Token) {
        let request = opcode::AsyncCancel::new(token.0.into())
            .build()
            .user_data(CANCELLATION);
        // SAFETY: a cancellation has no memory.
        if let Err(error) = unsafe { self.push(&request) } {
            log::debug!("srp: cannot cancel a request: {error}");
        }
    }

    /// Hands what is queued to the kernel and what is done to `done`. Does not
    /// block.
    pub fn poll(&mut self, done: &mut dyn FnMut(Completed)) {
        loop {
            self.submit();
            if self.reap(done) == 0 && self.uring.submission().is_empty() {
                return;
            }
        }
    }

    /// Commands that are under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    fn submit(&mut self) {
        if self.uring.submission().is_empty() {
            return;
        }
        if let Err(error) = self.uring.submit() {
            // EBUSY and EAGAIN: the next poll tries again.
            log::debug!("srp: io_uring_enter: {error}");
        }
    }

    /// Takes all completions there are. Returns their number.
    fn reap(&mut self, done: &mut dyn FnMut(Completed)) -> usize {
        let mut count = 0;
        loop {
            let next = self.uring.completion().next();
            let Some(completion) = next else {
                return count;
            };
            count += 1;
            let (mark, result) = (completion.user_data(), completion.result());
            if let Ok(token) = u16::try_from(mark) {
                self.completed(Token(token), result, done);
            }
        }
    }

    fn completed(&mut self, token: Token, result: i32, done: &mut dyn FnMut(Completed)) {
        let index = usize::from(token.0);
        let Some(entry) = self.jobs.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let outcome = match entry.job.completed(result) {
            Next::Done => Outcome::good(entry.good),
            Next::Failed(doing, errno) => {
                let error = io::Error::from_raw_os_error(errno);
                log::warn!("srp: disk {}: {doing:?}: {error}", entry.disk);
                Outcome::check(failure::sense(doing, errno))
            }
            Next::Request => match self.queue(token) {
                Ok(()) => return,
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    Outcome::check(failure::sense(failure::Doing::Writing, errno))
                }
            },
        };
        if let Some(entry) = self.jobs.get_mut(index).and_then(Option::take) {
            self.under_way -= 1;
            done(Completed {
                token,
                outcome,
                buffer: entry.job.buffer,
            });
        }
    }

    /// Queues the next request of a job.
    fn queue(&mut self, token: Token) -> io::Result<()> {
        let entry = self
            .jobs
            .get_mut(usize::from(token.0))
            .and_then(Option::as_mut)
            .ok_or(io::ErrorKind::NotFound)?;
        let request = entry
            .job
            .request(types::Fixed(entry.disk))
            .user_data(token.0.into());
        // SAFETY: the request points into the job's buffer or pattern. Both are
        // memory outside of `jobs`, kept by the entry until the completion, and
        // a ring is not dropped before it has all of them.
        unsafe { self.push(&request) }
    }

    /// # Safety
    /// Memory that the request names stays valid until its completion.
    unsafe fn push(&mut self, request: &io_uring::squeue::Entry) -> io::Result<()> {
        // SAFETY: promised by the caller.
        if unsafe { self.uring.submission().push(request) }.is_ok() {
            return Ok(());
        }
        self.uring.submit()?;
        // SAFETY: as before.
        unsafe { self.uring.submission().push(request) }.map_err(io::Error::other)
    }
}

impl AsFd for Ring {
    /// Readable while completions wait for [`Ring::poll`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    /// Waits for the requests under way: the kernel may still write to their
    /// buffers.
    fn drop(&mut self) {
        while self.under_way > 0 {
            match self.uring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                Err(error) => {
                    log::error!("srp: cannot wait for requests under way: {error}");
                    // The memory is given up rather than written to by surprise.
                    std::mem::forget(std::mem::take(&mut self.jobs));
                    return;
                }
            }
            self.reap(&mut |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;
    use crate::executor::status::{CHECK_CONDITION, GOOD};
    use crate::memory::Pool;
    use crate::scsi::command::Extent;

    const SIZE: u64 = 1 << 20;

    struct Disk {
        file: tempfile::NamedTempFile,
        ring: Ring,
        pool: Pool,
    }

    impl Disk {
        /// `None` where the kernel does not allow io_uring.
        fn new() -> Option<Self> {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(SIZE).unwrap();
            let ring = match Ring::new(&[file.as_file().as_raw_fd()]) {
                Ok(ring) => ring,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    return None;
                }
                Err(error) => panic!("{error}"),
            };
            let pool = Pool::new(4 << 20, 1 << 20).unwrap();
            Some(Self { file, ring, pool })
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
}
