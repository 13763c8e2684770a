//! A command on its way to the disk and back: which kernel requests it takes,
//! one after the other, until it is done or has failed. Knows no ring: it makes
//! requests and is told their results.

use std::io;
use std::os::fd::RawFd;

use io_uring::{opcode, squeue, types};

use super::failure::Doing;
use crate::memory::Buffer;
use crate::scsi::command::Extent;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Fill the buffer from the disk.
    Read {
        /// Where on the disk.
        offset: u64,
        /// How many bytes; not more than the buffer has.
        length: usize,
    },
    /// Write the buffer to the disk.
    Write {
        /// Where on the disk.
        offset: u64,
        /// How many bytes; not more than the buffer has.
        length: usize,
        /// Have it on stable storage afterwards.
        sync: bool,
    },
    /// Have everything written so far on stable storage.
    Sync,
    /// Make these parts read as zeros.
    Clear {
        /// The parts.
        extents: Vec<Extent>,
        /// Give back the space that they take.
        release: bool,
    },
    /// Fill a part with copies of a block.
    Repeat {
        /// The part.
        extent: Extent,
        /// The block.
        block: Vec<u8>,
    },
}

/// A command on its way.
#[derive(Debug)]
pub struct Job {
    /// Data to write, or the place for data read.
    pub buffer: Buffer,
    step: Step,
    /// Bytes of the current step that are done.
    done: u64,
    /// How often in a row the kernel had no resources for the request.
    refused: u8,
}

/// The kernel request that is under way.
#[derive(Debug)]
enum Step {
    Read {
        offset: u64,
        length: usize,
    },
    Write {
        offset: u64,
        length: usize,
        sync: bool,
    },
    Sync,
    /// fallocate(2) with this mode; the last part first.
    Clear {
        extents: Vec<Extent>,
        mode: i32,
    },
    /// Writing this pattern; the last part first.
    Fill {
        extents: Vec<Extent>,
        pattern: Vec<u8>,
    },
}

/// What is to be done with a job after a completion.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Queue [`Job::request`].
    Request,
    /// It is done.
    Done,
    /// It has failed with this error number.
    Failed(Doing, i32),
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// How often in a row a request may end with `EAGAIN` until that is an error.
const MOST_REFUSALS: u8 = 8;

/// Bytes that are written at once where the kernel cannot fill by itself.
const PATTERN: usize = 64 << 10;

impl Job {
    /// A job that has just begun: [`Job::request`] is to be queued.
    pub fn new(work: Work, buffer: Buffer) -> Self {
        let step = match work {
            Work::Read { offset, length } => Step::Read {
                offset,
                length: length.min(buffer.len()),
            },
            Work::Write {
                offset,
                length,
                sync,
            } => Step::Write {
                offset,
                length: length.min(buffer.len()),
                sync,
            },
            Work::Sync => Step::Sync,
            Work::Clear { extents, release } => Step::Clear {
                extents,
                mode: if release { PUNCH } else { ZERO },
            },
            Work::Repeat { extent, block } => Step::Fill {
                extents: vec![extent],
                pattern: repeated(&block),
            },
        };
        Self {
            buffer,
            step,
            done: 0,
            refused: 0,
        }
    }

    /// Whether the request under way brings data to stable storage.
    pub fn is_syncing(&self) -> bool {
        matches!(self.step, Step::Sync)
    }

    /// Whether nothing needs to be asked of the kernel.
    pub fn is_empty(&self) -> bool {
        match &self.step {
            Step::Read { length, .. } => *length == 0,
            Step::Write { length, sync, .. } => *length == 0 && !sync,
            Step::Sync => false,
            Step::Clear { extents, .. } | Step::Fill { extents, .. } => extents.is_empty(),
        }
    }

    /// The next request to the kernel, on `file`. It points into this job:
    /// buffer and pattern must stay where they are until its completion.
    pub fn request(&mut self, file: types::Fixed) -> squeue::Entry {
        let done = self.done;
        // Bytes done are fewer than the buffer has.
        let skip = done as usize;
        match &mut self.step {
            Step::Read { offset, length } => {
                let to = self.buffer.pointer().wrapping_add(skip);
                let length = length.saturating_sub(skip) as u32;
                opcode::Read::new(file, to, length)
                    .offset(offset.saturating_add(done))
                    .build()
            }
            Step::Write { offset, length, .. } => {
                let from = self.buffer.pointer().wrapping_add(skip);
                let length = length.saturating_sub(skip) as u32;
                opcode::Write::new(file, from, length)
                    .offset(offset.saturating_add(done))
                    .build()
            }
            Step::Sync => opcode::Fsync::new(file)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            Step::Clear { extents, mode } => {
                let extent = last(extents);
                opcode::Fallocate::new(file, extent.length)
                    .offset(extent.offset)
                    .mode(*mode)
                    .build()
            }
            Step::Fill { extents, pattern } => {
                let extent = last(extents);
                // A short write may have ended inside the pattern.
                let within = done.checked_rem(pattern.len() as u64).unwrap_or(0);
                let left = extent.length.saturating_sub(done);
                let length = left.min(pattern.len() as u64 - within) as u32;
                let from = pattern.as_ptr().wrapping_add(within as usize);
                opcode::Write::new(file, from, length)
                    .offset(extent.offset.saturating_add(done))
                    .build()
            }
        }
    }

    /// Makes the next request here and now, for files in memory. Its result, or
    /// `None` for what takes long.
    pub fn perform(&mut self, file: RawFd) -> Option<i32> {
        // Bytes done are fewer than the buffer has.
        let skip = self.done as usize;
        let buffer = self.buffer.pointer().wrapping_add(skip);
        let moved = match &self.step {
            Step::Read { offset, length } => {
                let at = offset.saturating_add(self.done) as libc::off_t;
                // SAFETY: so many bytes of the buffer are left from there.
                unsafe { libc::pread(file, buffer.cast(), length.saturating_sub(skip), at) }
            }
            Step::Write { offset, length, .. } => {
                let at = offset.saturating_add(self.done) as libc::off_t;
                // SAFETY: so many bytes of the buffer are left from there.
                unsafe { libc::pwrite(file, buffer.cast(), length.saturating_sub(skip), at) }
            }
            Step::Sync | Step::Clear { .. } | Step::Fill { .. } => return None,
        };
        let errno = || io::Error::last_os_error().raw_os_error();
        // A transfer is much shorter than 2 GiB.
        Some(match i32::try_from(moved) {
            Ok(moved) if moved >= 0 => moved,
            _ => errno().unwrap_or(libc::EIO).saturating_neg(),
        })
    }

    /// Takes the result of the last request.
    pub fn completed(&mut self, result: i32) -> Next {
        let Ok(count) = u64::try_from(result) else {
            return self.failed(result.saturating_neg());
        };
        self.refused = 0;
        self.done = self.done.saturating_add(count);
        match &mut self.step {
            // The file has become shorter than the disk.
            Step::Read { .. } if count == 0 => Next::Failed(Doing::Reading, libc::EIO),
            Step::Write { length, .. } if count == 0 && *length > 0 => {
                Next::Failed(Doing::Writing, libc::EIO)
            }
            Step::Fill { .. } if count == 0 => Next::Failed(Doing::Writing, libc::EIO),
            Step::Read { length, .. } if self.done >= *length as u64 => Next::Done,
            Step::Write { length, sync, .. } if self.done >= *length as u64 => {
                if !*sync {
                    return Next::Done;
                }
                self.step = Step::Sync;
                Next::Request
            }
            Step::Read { .. } | Step::Write { .. } => Next::Request,
            Step::Sync => Next::Done,
            Step::Clear { extents, .. } => {
                extents.pop();
                self.part_done()
            }
            Step::Fill { extents, .. } => {
                if self.done >= last(extents).length {
                    extents.pop();
                    return self.part_done();
                }
                Next::Request
            }
        }
    }

    /// A part of the disk is finished; there may be others.
    fn part_done(&mut self) -> Next {
        self.done = 0;
        if self.is_empty() {
            Next::Done
        } else {
            Next::Request
        }
    }

    fn failed(&mut self, errno: i32) -> Next {
        if errno == libc::EINTR {
            return Next::Request;
        }
        if errno == libc::EAGAIN && self.refused < MOST_REFUSALS {
            self.refused += 1;
            return Next::Request;
        }
        let Step::Clear { extents, mode } = &mut self.step else {
            let doing = match self.step {
                Step::Read { .. } => Doing::Reading,
                _ => Doing::Writing,
            };
            return Next::Failed(doing, errno);
        };
        if !matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) {
            return Next::Failed(Doing::Writing, errno);
        }
        // What cannot be given back is filled with zeros, by the file system if
        // it can do that.
        if *mode == PUNCH {
            *mode = ZERO;
        } else {
            self.step = Step::Fill {
                extents: std::mem::take(extents),
                pattern: vec![0; PATTERN],
            };
        }
        Next::Request
    }
}

fn last(extents: &[Extent]) -> Extent {
    const NOTHING: Extent = Extent {
        offset: 0,
        length: 0,
    };
    extents.last().copied().unwrap_or(NOTHING)
}

/// Copies of `block`, [`PATTERN`] bytes or one copy.
fn repeated(block: &[u8]) -> Vec<u8> {
    let copies = PATTERN.checked_div(block.len()).unwrap_or(0).max(1);
    block.repeat(copies)
}

#[cfg(test)]
mod tests;
