//! Opening what a disk's data is kept in. Finds out how big it is, how big its
//! blocks are and whether it can give blocks back; does no I/O on it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::write_back::Losses;

/// An open file or block device. While it is open, no other process that asks
/// for the same lock (flock(2)) has it: two targets never write one file.
#[derive(Debug)]
pub struct Backing {
    file: File,
    /// Its path without symbolic links.
    pub path: PathBuf,
    /// Bytes per block that it wants to be addressed in.
    pub block_size: u32,
    /// Whether blocks can be given back, to read as zeros afterwards.
    pub thin: bool,
    /// The data is in memory (tmpfs): reading and writing wait for no disk.
    pub in_memory: bool,
    /// Written data that did not reach it.
    pub losses: Losses,
}

impl Backing {
    /// Opens `path`, for reading only or for both.
    ///
    /// # Errors
    /// As open(2); `EWOULDBLOCK` if another process has it locked, `EBUSY` if it is
    /// a block device to be written that is mounted, or claimed in another way;
    /// `EINVAL` if it is neither a regular file nor a block device.
    pub fn open(path: &Path, read_only: bool) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let is_device = path.metadata()?.file_type().is_block_device();
        // Claims a device, which mount(2) does as well.
        let claim = if is_device && !read_only {
            libc::O_EXCL
        } else {
            0
        };
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            // A name that turns out to be a pipe must not block.
            .custom_flags(libc::O_NONBLOCK | claim)
            .open(&path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        clear_nonblocking(&file)?;
        lock(&file, read_only)?;
        let block_size = if kind.is_block_device() {
            sector_size(&file)?
        } else {
            512
        };
        Ok(Self {
            in_memory: kind.is_file() && is_in_memory(&file),
            file,
            path,
            block_size,
            // Where the file system or device cannot, zeros are written.
            thin: !read_only,
            losses: Losses::default(),
        })
    }

    /// Its size at the moment, in bytes.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn bytes(&self) -> io::Result<u64> {
        (&self.file).seek(SeekFrom::End(0))
    }
}

impl AsRawFd for Backing {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Requests on an open file are to wait for the device: io_uring fails them
/// with `EAGAIN` where the file is not to block and the device cannot tell
/// beforehand whether it would.
fn clear_nonblocking(file: &File) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: fcntl with these commands takes a descriptor, which is open, and
    // a number.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) >= 0
    };
    set.then_some(()).ok_or_else(io::Error::last_os_error)
}

fn lock(file: &File, shared: bool) -> io::Result<()> {
    let kind = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: flock takes a descriptor, which is open, and a number.
    match unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a file is on a file system that keeps it in memory.
fn is_in_memory(file: &File) -> bool {
    let mut system = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: fstatfs fills the structure at the given address if it succeeds.
    unsafe {
        libc::fstatfs(file.as_raw_fd(), system.as_mut_ptr()) == 0
            && system.assume_init().f_type == libc::TMPFS_MAGIC
    }
}

/// The logical sector size of a block device.
fn sector_size(file: &File) -> io::Result<u32> {
    // _IO(0x12, 104) of linux/fs.h.
    const BLKSSZGET: libc::c_ulong = 0x1268;
    let mut size: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int to the given address.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &raw mut size) } {
        0 => u32::try_from(size).map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_had_by_one_writer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(12345).unwrap();
        let first = Backing::open(file.path(), false).unwrap();
        assert_eq!(first.bytes().unwrap(), 12345);
        let second = Backing::open(file.path(), false).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        let one = Backing::open(file.path(), true).unwrap();
        let other = Backing::open(file.path(), true).unwrap();
        assert!(!one.thin && !other.thin);
    }

    #[test]
    fn requests_on_an_open_file_wait_for_the_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for read_only in [true, false] {
            let backing = Backing::open(file.path(), read_only).unwrap();
            // SAFETY: a number comes back for an open descriptor.
            let flags = unsafe { libc::fcntl(backing.as_raw_fd(), libc::F_GETFL) };
            assert_eq!(flags & libc::O_NONBLOCK, 0);
        }
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        for path in ["/dev/null", "/tmp"] {
            assert!(Backing::open(Path::new(path), true).is_err(), "{path}");
        }
    }
}
