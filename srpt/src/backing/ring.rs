//! The requests of one channel's commands in the kernel's `io_uring`: queued
//! together, under way together, taken back in any order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, types};

use super::failure;
use super::file::Backing;
use super::job::{Job, Next, Work};
use super::write_back::{Watch, is_loss};
use crate::executor::{Completed, Outcome, Token, status};
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
    /// Files in memory, by number of the disk: they are read and written at
    /// once, since the kernel would hand requests on them to other threads.
    in_memory: Vec<Option<RawFd>>,
    /// Flushes that failed for other channels, by number of the disk.
    losses: Vec<Watch>,
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
    /// A ring for disks that are known by their place among `disks`, which must
    /// stay open as long as the ring.
    ///
    /// # Errors
    /// As io_uring_setup(2): `ENOSYS` and `EPERM` if the kernel has no io_uring
    /// or does not allow it.
    pub fn new<'a>(disks: impl Iterator<Item = &'a Backing> + Clone) -> io::Result<Self> {
        let files: Vec<_> = disks.clone().map(AsRawFd::as_raw_fd).collect();
        let uring = IoUring::builder().setup_cqsize(COMPLETIONS).build(QUEUE)?;
        uring.submitter().register_files(&files)?;
        let losses = disks.clone().map(|disk| disk.losses.watch()).collect();
        Ok(Self {
            uring,
            in_memory: disks
                .map(|disk| disk.in_memory.then(|| disk.as_raw_fd()))
                .collect(),
            losses,
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
        let mut job = Job::new(work, buffer);
        let index = usize::from(token.0);
        let ended = if job.is_empty() {
            Some(Outcome::good(good))
        } else {
            self.perform(disk, &mut job, good)
        };
        if let Some(outcome) = ended {
            return Err(Completed {
                token,
                outcome,
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
                Err(Completed {
                    token,
                    outcome: not_queued(&error),
                    buffer: entry.map_or_else(Buffer::empty, |entry| entry.job.buffer),
                })
            }
        }
    }

    /// Does a job on a file in memory, as far as that takes no time. Its
    /// outcome if it has come to its end.
    fn perform(&self, disk: u32, job: &mut Job, good: u32) -> Option<Outcome> {
        let file = self.in_memory.get(disk as usize).copied().flatten()?;
        loop {
            let result = job.perform(file)?;
            if let Some(outcome) = outcome(disk, job.completed(result), good) {
                return Some(outcome);
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
            let accepted = self.submit();
            let ended = self.reap(done);
            let queued = self.has_backlog();
            if ended == 0 && !(queued && accepted) {
                return;
            }
        }
    }

    /// Whether requests wait for the next [`Ring::poll`]. After a poll they do
    /// if the kernel has no resources for them now; no completion need come.
    pub fn has_backlog(&self) -> bool {
        // SAFETY: no other view of the queue exists while the ring is borrowed,
        // which is for one thread, and this one is gone at once.
        !unsafe { self.uring.submission_shared() }.is_empty()
    }

    /// Commands that are under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// False if the kernel does not take what is queued now (EBUSY, EAGAIN):
    /// the next poll tries again.
    fn submit(&mut self) -> bool {
        if !self.has_backlog() {
            return true;
        }
        match self.uring.submit() {
            Ok(_) => true,
            Err(error) => {
                log::debug!("srp: io_uring_enter: {error}");
                false
            }
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
        let syncing = entry.job.is_syncing();
        let mut next = entry.job.completed(result);
        if syncing && let Some(losses) = self.losses.get_mut(entry.disk as usize) {
            next = judge_flush(next, losses);
        }
        let outcome = match outcome(entry.disk, next, entry.good) {
            Some(outcome) => outcome,
            None => match self.queue(token) {
                Ok(()) => return,
                Err(error) => not_queued(&error),
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

/// What a flush comes to, given what became of those of other channels.
fn judge_flush(next: Next, losses: &mut Watch) -> Next {
    match next {
        Next::Failed(_, errno) if is_loss(errno) => losses.report(),
        Next::Done if losses.take() => return Next::Failed(failure::Doing::Writing, libc::EIO),
        _ => {}
    }
    next
}

/// The outcome of a job whose next request the kernel does not take. Nothing is
/// known to be wrong with the disk: the initiator may try again.
fn not_queued(error: &io::Error) -> Outcome {
    log::warn!("srp: cannot queue a request: {error}");
    Outcome::status(status::BUSY)
}

/// The outcome of a job that has come to its end.
fn outcome(disk: u32, next: Next, good: u32) -> Option<Outcome> {
    match next {
        Next::Request => None,
        Next::Done => Some(Outcome::good(good)),
        Next::Failed(doing, errno) => {
            let error = io::Error::from_raw_os_error(errno);
            log::warn!("srp: disk {disk}: {doing:?}: {error}");
            Some(Outcome::check(failure::sense(doing, errno)))
        }
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
mod tests;
