//! The eventfds by which threads that sleep are woken. Who is woken by whom is the
//! business of [`super::waiters`].

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::cancel::Uncancelled;
use crate::error::Result;
use crate::fork;
use crate::kernel::descriptor::opened;

/// An eventfd: readable once it was signalled, until it is cleared. A thread for which
/// there was none sleeps without, and for short times only.
#[derive(Debug)]
pub struct Wake(Option<OwnedFd>);

thread_local! {
    /// The thread's own, with the generation of forks it belongs to: a child would
    /// share its parent's.
    static OWN: Own = const { Own(RefCell::new(None)) };
}

/// A thread's own, with the generation of its process.
struct Own(RefCell<Option<(u32, Arc<Wake>)>>);

impl Drop for Own {
    fn drop(&mut self) {
        // At the end of a thread as well, which is cancelled no more then.
        let _whole = Uncancelled::throughout();
        self.0.take();
    }
}

impl Wake {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// What `eventfd(2)` says.
    pub fn new() -> Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no pointers; what it opens is nobody else's.
        let eventfd = unsafe { opened(libc::eventfd(0, flags), "create an eventfd") }?;
        Ok(Self(Some(eventfd)))
    }

    /// The calling thread's own. Without a descriptor for it, one that wakes nobody: a
    /// call that only waits does not fail for want of descriptors, as none of the
    /// kernel's does.
    pub fn of_thread() -> Arc<Self> {
        if let Some(wake) = Self::known() {
            return wake;
        }
        let wake = match Self::new() {
            Ok(wake) => Arc::new(wake),
            Err(error) => {
                log::info!("a thread looks by itself for what it waits for: {error}");
                return Arc::new(Self(None));
            }
        };
        let entry = (fork::generation(), Arc::clone(&wake));
        // A parent's descriptor may have another meaning here. A thread that
        // ends keeps none.
        let _ = OWN.try_with(|own| std::mem::forget(own.0.replace(Some(entry))));
        wake
    }

    /// Whether it wakes who sleeps on it.
    pub fn works(&self) -> bool {
        self.0.is_some()
    }

    /// The calling thread's own, if it has ever waited.
    pub(super) fn known() -> Option<Arc<Self>> {
        let current = |own: &Own| {
            own.0
                .borrow()
                .as_ref()
                .filter(|(generation, _)| *generation == fork::generation())
                .map(|(_, wake)| Arc::clone(wake))
        };
        OWN.try_with(current).ok().flatten()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        if !self.works() {
            return;
        }
        let one = 1u64.to_ne_bytes();
        let _whole = Uncancelled::throughout();
        // SAFETY: eight readable bytes. It fails only when the counter is
        // full, and then the descriptor is readable.
        unsafe { libc::write(self.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        if !self.works() {
            return;
        }
        let mut count = [0u8; 8];
        let _whole = Uncancelled::throughout();
        // SAFETY: eight writable bytes; the descriptor does not block.
        unsafe { libc::read(self.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Wake {
    /// Negative, which `poll(2)` passes over, if there is none.
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}
