//! Where the data of disks is kept: files and block devices, reached through
//! the kernel's `io_uring`, so that a channel's thread has all its commands
//! under way at once and never waits for one.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`file`](mod@file) | opening a file or block device and finding out what it can do |
//! | [`job`] | one command on its way: which kernel requests it needs, in which order |
//! | [`ring`] | queueing requests, taking completions |
//! | [`write_back`] | failed flushes that other channels must hear of |
//! | [`failure`] | the kernel's error numbers as sense data |
//!
//! What a SCSI command means is decided in [`crate::scsi`]; here, parts of the
//! disk are given in bytes and have been checked.

pub mod failure;
pub mod file;
pub mod job;
pub mod ring;
pub mod write_back;

pub use file::Backing;
pub use job::Work;
pub use ring::Ring;
