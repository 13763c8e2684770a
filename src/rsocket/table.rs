//! Which descriptors are sockets of this library.
//!
//! Looked up by every call, so a look-up takes no lock that others hold for
//! long, nor one of a parent process: pages of slots are allocated once and
//! stay. A look-up gives a copy of what was put in, which is a counted
//! reference, so a socket that another thread closes lives until its last user
//! is done.

use std::os::fd::RawFd;

use crate::error::{Error, Result};
use crate::fork::Renewed;
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::lock::{OnceBox, RwLock, clean};

const PAGE: usize = 4096;
const PAGES: usize = 4096;

/// What a descriptor stands for.
#[derive(Debug)]
pub enum Known<T> {
    /// What this process put in.
    Own(T),
    /// What a parent process put in, which goes on to use it.
    Inherited,
}

struct Slot<T> {
    object: Renewed<RwLock<Option<Known<T>>>>,
    /// Whether there is something, for a child to know, which cannot ask for the
    /// lock of its parent.
    taken: AtomicBool,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self {
            object: Renewed::new(RwLock::new(None)),
            taken: AtomicBool::new(false),
        }
    }

    /// Puts in what is to be there from now on; returns what was.
    fn replace(&self, object: Option<Known<T>>) -> Option<Known<T>> {
        let inherited = || {
            self.taken
                .load(Ordering::Relaxed)
                .then_some(Known::Inherited)
        };
        let lock = self.object.get_or_renew(|| RwLock::new(inherited()));
        let mut place = clean(lock.write());
        self.taken.store(object.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *place, object)
    }
}

/// A map from descriptors to references.
pub struct Table<T> {
    pages: [OnceBox<[Slot<T>; PAGE]>; PAGES],
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
            pages: [const { OnceBox::new() }; PAGES],
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
        self.briefly(fd, T::clone)
    }

    /// Runs `action`, which does not sleep, with what [`Table::get`] would copy: what is
    /// put in or taken out meanwhile waits.
    #[inline]
    pub fn briefly<R>(&self, fd: RawFd, action: impl FnOnce(&T) -> R) -> Option<R> {
        let lock = self.slot(fd)?.object.get()?;
        match &*clean(lock.read()) {
            Some(Known::Own(object)) => Some(action(object)),
            _ => None,
        }
    }

    /// Whether a parent process put in what `fd` stands for.
    pub fn is_inherited(&self, fd: RawFd) -> bool {
        // This process's own would have been found.
        self.get(fd).is_none()
            && self
                .slot(fd)
                .is_some_and(|slot| slot.taken.load(Ordering::Relaxed))
    }

    /// Makes `fd` stand for `object`.
    ///
    /// # Errors
    /// `EMFILE` for a descriptor beyond 16 million.
    pub fn insert(&self, fd: RawFd, object: T) -> Result<()> {
        const FULL: Error = Error::new(libc::EMFILE, "keep a descriptor of that number");
        let (page, slot) = Self::place(fd).ok_or(FULL)?;
        let page = self.pages.get(page).ok_or(FULL)?;
        // Two threads may make it at once, and one throws its own away: none waits
        // for another, which might be left behind by a fork.
        let page = page.get_or_try_init(|| {
            let slots: Box<[Slot<T>]> = (0..PAGE).map(|_| Slot::new()).collect();
            slots.try_into().map_err(|_| FULL)
        })?;
        let slot = page.get(slot).ok_or(FULL)?;
        abandon(fd, slot.replace(Some(Known::Own(object))));
        Ok(())
    }

    /// The descriptor `fd` was just opened for something else: what is still here was
    /// closed by `close(2)`.
    pub fn displace(&self, fd: RawFd) {
        abandon(fd, self.remove(fd));
    }

    /// Makes `fd` stand for nothing, and returns what it stood for.
    pub fn remove(&self, fd: RawFd) -> Option<Known<T>> {
        self.slot(fd)?.replace(None)
    }
}

/// Leaves alone what a program has closed by `close(2)`: to free it would close the
/// descriptor, which is a newer object's.
fn abandon<T>(fd: RawFd, old: Option<Known<T>>) {
    if let Some(Known::Own(old)) = old {
        log::warn!("descriptor {fd} was closed by close(2), what it stood for lives on");
        std::mem::forget(old);
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
