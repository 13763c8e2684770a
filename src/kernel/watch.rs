//! Waiting until a file is created in a folder (`inotify(7)`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use super::descriptor::opened;
use crate::error::{Error, Result};

const STEP: &str = "wait for the device node";

/// A watch on the creation of files in one folder.
pub struct Watch {
    inotify: OwnedFd,
}

impl Watch {
    /// Starts to watch. Files created from now on are noticed, whenever they
    /// are waited for.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the folder does not exist; the errno of `inotify`.
    pub fn new(folder: &Path) -> Result<Self> {
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes())
            .map_err(|_| Error::invalid(STEP))?;
        let flags = libc::IN_NONBLOCK | libc::IN_CLOEXEC;
        // SAFETY: no pointers; what it opens is nobody else's.
        let inotify = unsafe { opened(libc::inotify_init1(flags), STEP) }?;
        let fd = inotify.as_raw_fd();
        // SAFETY: `path` is a C string that outlives the call.
        let watch = unsafe { libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CREATE) };
        if watch < 0 {
            return Err(Error::last_os(STEP));
        }
        Ok(Self { inotify })
    }

    /// Waits until a file has been created since the last call, or until
    /// `deadline`. Returns whether there is time left; signals may end the
    /// wait early.
    ///
    /// # Errors
    ///
    /// The errno of `poll`, except `EINTR`.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // Rounded up, so as not to spin in the last millisecond.
        let timeout = i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
        let mut entry = libc::pollfd {
            fd: self.inotify.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, exclusively borrowed.
        let ready = unsafe { libc::poll(&raw mut entry, 1, timeout) };
        if ready < 0 {
            let error = Error::last_os(STEP);
            return match error.errno() {
                libc::EINTR => Ok(true),
                _ => Err(error),
            };
        }
        self.drain();
        Ok(true)
    }

    /// Takes all queued events; what was created does not matter.
    fn drain(&mut self) {
        let mut events = [0u8; 4096];
        // SAFETY: the pointer and the length are those of `events`; the
        // descriptor is non-blocking.
        while unsafe {
            libc::read(
                self.inotify.as_raw_fd(),
                events.as_mut_ptr().cast(),
                events.len(),
            )
        } > 0
        {}
    }
}
