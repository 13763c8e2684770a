//! Which descriptors are sockets of this library.
//!
//! Looked up by every call, so a look-up takes no lock that others hold for
//! long, nor one of a parent process: pages of slots are allocated once and
//! stay. A look-up gives a copy of what was put in, which is a counted
//! reference, so a socket that another thread closes lives until its last user
//! is done.
//!
//! Until then, and as long as its end waits for the peer, the kernel has its
//! descriptor still: the number is that of something which is being closed, and
//! no ordinary one. A [`Number`] sees to it that both end at once.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};
use crate::fork::Renewed;
use crate::lock::atomic::{AtomicBool, Ordering};
use crate::lock::{OnceBox, RwLock, clean};

/// Pages, and slots of a page: room for 16 million.
const MANY: usize = 4096;

/// What is taken from the map.
#[derive(Debug)]
pub enum Known<T> {
    /// What this process put in.
    Own(T),
    /// What a parent process put in, which goes on to use it.
    Inherited,
}

/// What a look-up finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<R> {
    /// What was made of what this process put in.
    Own(R),
    /// What was put in was taken out, and the kernel's descriptor is not closed yet.
    Closing,
    /// Nothing of this process's.
    Nothing,
}

/// What a descriptor stands for.
enum Place<T> {
    Known(Known<T>),
    Closing,
    Nothing,
}

struct Slot<T> {
    object: Renewed<RwLock<Place<T>>>,
    /// Whether something is known, for a child to know, which cannot ask for the
    /// lock of its parent.
    taken: AtomicBool,
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self {
            object: Renewed::new(RwLock::new(Place::Nothing)),
            taken: AtomicBool::new(false),
        }
    }

    /// Nobody looks or changes it meanwhile.
    fn change<R>(&self, change: impl FnOnce(&mut Place<T>) -> R) -> R {
        let inherited = || match self.taken.load(Ordering::Relaxed) {
            true => Place::Known(Known::Inherited),
            false => Place::Nothing,
        };
        let lock = self.object.get_or_renew(|| RwLock::new(inherited()));
        let mut place = clean(lock.write());
        let result = change(&mut place);
        let taken = matches!(*place, Place::Known(_));
        self.taken.store(taken, Ordering::Relaxed);
        result
    }

    /// Puts in what is to be there from now on; returns what was.
    fn replace(&self, next: Place<T>) -> Place<T> {
        self.change(|place| std::mem::replace(place, next))
    }
}

/// A map from descriptors to references; one of `SIDE` pages of as many slots.
pub struct Table<T, const SIDE: usize = MANY> {
    pages: [OnceBox<[Slot<T>; SIDE]>; SIDE],
}

impl<T: Clone, const SIDE: usize> Default for Table<T, SIDE> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone, const SIDE: usize> Table<T, SIDE> {
    /// An empty map.
    pub const fn new() -> Self {
        Self {
            pages: [const { OnceBox::new() }; SIDE],
        }
    }

    fn place(fd: RawFd) -> Option<(usize, usize)> {
        let fd = usize::try_from(fd).ok()?;
        let (page, slot) = (fd / SIDE, fd % SIDE);
        (page < SIDE).then_some((page, slot))
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
    #[inline(always)] // as its callers are
    pub fn briefly<R>(&self, fd: RawFd, action: impl FnOnce(&T) -> R) -> Option<R> {
        match self.look_up(fd, action) {
            Found::Own(result) => Some(result),
            Found::Closing | Found::Nothing => None,
        }
    }

    /// As [`Table::briefly`], for those who else would ask the kernel about `fd`.
    #[inline(always)] // as its callers are
    pub fn look_up<R>(&self, fd: RawFd, action: impl FnOnce(&T) -> R) -> Found<R> {
        let Some(lock) = self.slot(fd).and_then(|slot| slot.object.get()) else {
            return Found::Nothing;
        };
        match &*clean(lock.read()) {
            Place::Known(Known::Own(object)) => Found::Own(action(object)),
            Place::Closing => Found::Closing,
            Place::Known(Known::Inherited) | Place::Nothing => Found::Nothing,
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
            let slots: Box<[Slot<T>]> = (0..SIDE).map(|_| Slot::new()).collect();
            slots.try_into().map_err(|_| FULL)
        })?;
        let slot = page.get(slot).ok_or(FULL)?;
        abandon(fd, slot.replace(Place::Known(Known::Own(object))));
        Ok(())
    }

    /// The descriptor `fd` was just opened for something else: what is still here was
    /// closed by `close(2)`.
    pub fn displace(&self, fd: RawFd) {
        if let Some(slot) = self.slot(fd) {
            abandon(fd, slot.replace(Place::Nothing));
        }
    }

    /// Takes out what `fd` stands for. If this process put it in, it is being closed
    /// from now on, until its [`Number`] is.
    pub fn remove(&self, fd: RawFd) -> Option<Known<T>> {
        self.slot(fd)?.change(|place| {
            let next = match place {
                Place::Known(Known::Own(_)) | Place::Closing => Place::Closing,
                Place::Known(Known::Inherited) | Place::Nothing => Place::Nothing,
            };
            match std::mem::replace(place, next) {
                Place::Known(known) => Some(known),
                Place::Closing | Place::Nothing => None,
            }
        })
    }

    /// Runs `close`, which closes `fd`. Whoever looks for `fd` meanwhile, and who puts
    /// in what gets the same number, waits, and nobody else.
    pub(super) fn close(&self, fd: RawFd, close: impl FnOnce()) {
        // close(2) is where a thread may be cancelled.
        let _uncancelled = Uncancelled::throughout();
        let Some(slot) = self.slot(fd) else {
            return close();
        };
        slot.change(|place| {
            close();
            if matches!(place, Place::Closing) {
                *place = Place::Nothing;
            }
        });
    }
}

/// Leaves alone what a program has closed by `close(2)`: to free it would close the
/// descriptor, which is a newer object's.
fn abandon<T>(fd: RawFd, old: Place<T>) {
    if let Place::Known(Known::Own(old)) = old {
        log::warn!("descriptor {fd} was closed by close(2), what it stood for lives on");
        std::mem::forget(old);
    }
}

/// The descriptor of an object by which programs know it, as a table does. It is
/// closed when dropped.
pub struct Number<D: AsRawFd, T: Clone + 'static> {
    descriptor: ManuallyDrop<D>,
    table: &'static Table<T>,
}

impl<D: AsRawFd, T: Clone> Number<D, T> {
    /// A descriptor that `table` is to know.
    pub const fn new(descriptor: D, table: &'static Table<T>) -> Self {
        Self {
            descriptor: ManuallyDrop::new(descriptor),
            table,
        }
    }
}

impl<D: AsRawFd, T: Clone> Deref for Number<D, T> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.descriptor
    }
}

impl<D: AsRawFd + fmt::Debug, T: Clone> fmt::Debug for Number<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.descriptor.fmt(f)
    }
}

impl<D: AsRawFd, T: Clone> Drop for Number<D, T> {
    fn drop(&mut self) {
        let fd = self.descriptor.as_raw_fd();
        // SAFETY: dropped here only.
        let close = || unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        self.table.close(fd, close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

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

    #[test]
    fn a_descriptor_is_being_closed_until_it_is() {
        static TABLE: Table<i32> = Table::new();
        let number = Number::new(pipe().unwrap().0, &TABLE);
        let fd = number.as_raw_fd();
        let look = || TABLE.look_up(fd, |object| *object);
        assert_eq!(look(), Found::Nothing);
        TABLE.insert(fd, 1).unwrap();
        assert_eq!(look(), Found::Own(1));
        assert!(TABLE.remove(fd).is_some());
        assert_eq!((look(), TABLE.get(fd)), (Found::Closing, None));
        assert!(TABLE.remove(fd).is_none(), "it is closed once");
        assert_eq!(look(), Found::Closing);
        drop(number);
        assert_eq!(look(), Found::Nothing);
    }

    #[test]
    fn what_is_known_by_the_number_of_another_stays_so() {
        static TABLE: Table<i32> = Table::new();
        let number = Number::new(pipe().unwrap().0, &TABLE);
        let fd = number.as_raw_fd();
        TABLE.insert(fd, 1).unwrap();
        TABLE.remove(fd);
        // The program has closed it as well, by close(2).
        TABLE.insert(fd, 2).unwrap();
        drop(number);
        assert_eq!(TABLE.get(fd), Some(2));
        TABLE.remove(fd);
        TABLE.displace(fd);
        assert_eq!(TABLE.look_up(fd, |object| *object), Found::Nothing);
    }
}
