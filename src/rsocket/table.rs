//! Which descriptors are sockets of this library.
//!
//! Looked up by every call, so a look-up takes no lock that others hold for
//! long: pages of slots are allocated once and stay. A look-up gives a copy of
//! what was put in, which is a counted reference, so a socket that another
//! thread closes lives until its last user is done.

use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

use crate::error::{Error, Result};
use crate::lock::{OnceCell, RwLock, clean};

use super::fork;

const PAGE: usize = 4096;
const PAGES: usize = 4096;

/// What a descriptor stands for, and in which generation of forks.
type Slot<T> = RwLock<Option<(u32, T)>>;

/// What is not in a table any more.
#[derive(Debug)]
pub enum Removed<T> {
    /// This process put it in.
    Own(T),
    /// A parent process did, which goes on to use it; nothing of it may be
    /// touched.
    Inherited(ManuallyDrop<T>),
}

/// A map from descriptors to references.
#[derive(Debug)]
pub struct Table<T> {
    pages: [OnceCell<Box<[Slot<T>]>>; PAGES],
}

impl<T: Clone> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Table<T> {
    /// An empty map.
    pub const fn new() -> Self {
        Self {
            pages: [const { OnceCell::new() }; PAGES],
        }
    }

    fn place(fd: RawFd) -> Option<(usize, usize)> {
        let fd = usize::try_from(fd).ok()?;
        let (page, slot) = (fd / PAGE, fd % PAGE);
        (page < PAGES).then_some((page, slot))
    }

    fn slot(&self, fd: RawFd) -> Option<&Slot<T>> {
        let (page, slot) = Self::place(fd)?;
        self.pages.get(page)?.get()?.get(slot)
    }

    /// What `fd` stands for, if anything; what a parent process put in does
    /// not count.
    #[inline]
    pub fn get(&self, fd: RawFd) -> Option<T> {
        let slot = self.slot(fd)?;
        let slot = clean(slot.read());
        match &*slot {
            Some((generation, object)) if *generation == fork::generation() => Some(object.clone()),
            _ => None,
        }
    }

    /// Makes `fd` stand for `object`.
    ///
    /// # Errors
    /// `EMFILE` for a descriptor beyond 16 million.
    pub fn insert(&self, fd: RawFd, object: T) -> Result<()> {
        const FULL: Error = Error::new(libc::EMFILE, "keep a descriptor of that number");
        let (page, slot) = Self::place(fd).ok_or(FULL)?;
        let page = self.pages.get(page).ok_or(FULL)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| RwLock::new(None)).collect());
        let slot = page.get(slot).ok_or(FULL)?;
        let old = clean(slot.write()).replace((fork::generation(), object));
        if let Some((generation, old)) = old {
            if generation == fork::generation() {
                log::warn!("descriptor {fd} was closed by close(2), its socket lives on");
            }
            // Freeing it would touch what the parent goes on to use, or close the
            // descriptor of the newer object.
            std::mem::forget(old);
        }
        Ok(())
    }

    /// Makes `fd` stand for nothing, and returns what it stood for.
    pub fn remove(&self, fd: RawFd) -> Option<Removed<T>> {
        let slot = self.slot(fd)?;
        let (generation, object) = clean(slot.write()).take()?;
        Some(if generation == fork::generation() {
            Removed::Own(object)
        } else {
            Removed::Inherited(ManuallyDrop::new(object))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_descriptor_is_known_or_not_but_never_a_crash() {
        static TABLE: Table<i32> = Table::new();
        for fd in [-1, i32::MIN, 0, 70000, i32::MAX] {
            assert_eq!(TABLE.get(fd), None);
            assert!(TABLE.remove(fd).is_none());
        }
        for fd in [0, 65535, 65536, 1 << 20] {
            TABLE.insert(fd, fd).unwrap();
            assert_eq!(TABLE.get(fd), Some(fd));
        }
        assert!(TABLE.insert(i32::MAX, 1).is_err());
        assert!(TABLE.remove(65536).is_some());
        assert_eq!(TABLE.get(65536), None);
    }
}
