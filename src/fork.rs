//! What a forked child finds. The threads of its parent are not in it, so what one
//! of them held at the fork is held in the child for ever, unless it is seen to
//! here. What all of a process shares is of one of these kinds:
//!
//! | kind | what it is for |
//! |---|---|
//! | [`cm::LOCKS`] | what a child has to find as it is: the fork waits until nobody holds them ([`AcrossFork`]) |
//! | [`Once`] | what is made when first needed, and then stays: a child makes what its parent had not made yet |
//! | [`Renewed`], [`PerProcess`] | what a child has no use for: it begins with its own |
//!
//! A child makes channels, identifiers and sockets of its own. What its parent has
//! it can only let go: the kernel refuses its commands on channels and devices that
//! the parent has opened, devices write to memory that both share, and the threads
//! that serve sockets are not in the child.

mod held;

use std::cell::UnsafeCell;
use std::thread;

use crate::cancel::Uncancelled;
use crate::cm;
use crate::error::Result;
use crate::lock::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::lock::{Mutex, OnceBox, locked};

pub use held::{AcrossFork, Held};

/// The generation, and in the lower half the process for which it was counted; 0
/// before the first.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// How often this process, or its parents, have forked since the library was first
/// used. What was made in another generation is a parent's.
pub fn generation() -> u32 {
    (COUNTED.load(Ordering::Relaxed) >> 32) as u32
}

/// Counts the fork that made this process, unless the number of the process says that
/// this was done.
fn count_unless_done() {
    let counted = COUNTED.load(Ordering::Relaxed);
    let own = std::process::id();
    let next = match counted as u32 {
        0 => counted | u64::from(own),
        known if known == own => return,
        _ => after(counted),
    };
    // If it has changed, another thread has counted.
    let _ = COUNTED.compare_exchange(counted, next, Ordering::Relaxed, Ordering::Relaxed);
}

/// What to count after a fork, in the child.
fn after(counted: u64) -> u64 {
    (counted >> 32).wrapping_add(1) << 32 | u64::from(std::process::id())
}

/// Sees to forks from now on, and to one that happened just when another thread was
/// here: the C library does not tell its child.
pub fn watch() {
    count_unless_done();
    if let Err(errno) = held::watch(before, held::let_go, in_child) {
        log::warn!("forks are not noticed: errno {errno}");
    }
}

extern "C" fn before() {
    held::hold(&cm::LOCKS);
}

extern "C" fn in_child() {
    // The number may be the parent's, in a namespace of its own. No other thread is here.
    COUNTED.store(after(COUNTED.load(Ordering::Relaxed)), Ordering::Relaxed);
    held::let_go();
}

/// Something that is made when first needed, and never changes or goes. Threads that
/// need it meanwhile wait for the one that makes it, but not in a child, where that
/// thread is not.
pub struct Once<T> {
    value: OnceBox<T>,
    making: Renewed<Mutex<()>>,
}

impl<T> Once<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self {
            value: OnceBox::new(),
            making: Renewed::new(Mutex::new(())),
        }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, made by `make` at first.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let Ok(value) = self.get_or_try_init(|| Ok::<_, std::convert::Infallible>(make()));
        value
    }

    /// The value, made by `make` at the first success.
    ///
    /// # Errors
    /// Those of `make`; the next call tries again.
    pub fn get_or_try_init<E>(
        &self,
        make: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        watch();
        // Nor are others to wait for a thread that was cancelled.
        let _uncancelled = Uncancelled::throughout();
        let _making = locked(self.making.get_or_renew(|| Mutex::new(())));
        match self.get() {
            Some(value) => Ok(value),
            None => self.value.get_or_try_init(|| make().map(Box::new)),
        }
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Something that each process has its own of, a lock above all. In a child it is
/// not used before it was made anew; what the parent had is neither looked at nor
/// freed.
pub struct Renewed<T> {
    /// The generation it belongs to, perhaps [`RENEWING`].
    state: AtomicU32,
    value: UnsafeCell<T>,
}

/// Set in the generation while one of its threads makes the value.
const RENEWING: u32 = 1 << 31;

// SAFETY: as for `T`, which one thread of each generation writes before others get it.
unsafe impl<T: Send> Send for Renewed<T> {}
// SAFETY: as for `Send`; afterwards it is shared as `T` is.
unsafe impl<T: Send + Sync> Sync for Renewed<T> {}

impl<T> Renewed<T> {
    /// That of the process which forks first; others make their own.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// This process's own, if it has any.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let own = self.state.load(Ordering::Acquire) == generation();
        // SAFETY: of this generation, in which it is not written any more.
        own.then(|| unsafe { &*self.value.get() })
    }

    /// This process's own, which `fresh` makes if it has none.
    pub fn get_or_renew(&self, fresh: impl Fn() -> T) -> &T {
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let (state, renewing) = (self.state.load(Ordering::Acquire), generation() | RENEWING);
            if state == renewing {
                thread::yield_now();
            } else if self.replace(state, renewing) {
                // SAFETY: one thread gets here in each generation, and nobody has a
                // reference to the value of this one yet. Those to a parent's were
                // its threads'. Nothing is dropped.
                unsafe { self.value.get().write(fresh()) };
                self.state.store(generation(), Ordering::Release);
            }
        }
    }

    fn replace(&self, state: u32, next: u32) -> bool {
        state != generation()
            && self
                .state
                .compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }
}

/// Something that each process makes for itself when it first needs it, a
/// thread for example. A child leaves its parent's alone, and never frees it.
pub struct PerProcess<T: 'static>(Renewed<Mutex<Option<&'static T>>>);

impl<T> PerProcess<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self(Renewed::new(Mutex::new(None)))
    }

    /// What this process has made, if it has.
    pub fn get(&self) -> Option<&'static T> {
        *locked(self.0.get()?)
    }

    /// What this process has made, or makes now.
    ///
    /// # Errors
    /// Those of `make`; the next call tries again.
    pub fn get_or_try_init(&self, make: impl FnOnce() -> Result<&'static T>) -> Result<&'static T> {
        let mut current = locked(self.0.get_or_renew(|| Mutex::new(None)));
        if let Some(value) = *current {
            return Ok(value);
        }
        let _uncancelled = Uncancelled::throughout();
        let value = make()?;
        *current = Some(value);
        Ok(value)
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_told_nothing_counts_its_fork_itself_and_once() {
        watch();
        let before = generation();
        // SAFETY: no arguments; the child allocates nothing and takes no lock, before
        // it ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            watch();
            watch();
            let counted = generation() == before.wrapping_add(1);
            // SAFETY: ends this process only.
            unsafe { libc::_exit(counted.into()) };
        }
        let mut status = 0;
        // SAFETY: room for a status.
        let ended = unsafe { libc::waitpid(child as i32, &mut status, 0) };
        assert_eq!((ended, libc::WEXITSTATUS(status)), (child as i32, 1));
        assert_eq!(generation(), before);
    }

    #[test]
    fn what_another_generation_began_to_make_is_made() {
        let value = Once::new();
        // For ever, by a thread of another generation.
        std::mem::forget(locked(value.making.get().unwrap()));
        value.making.state.store(7, Ordering::Relaxed);
        assert_eq!(value.get_or_try_init(|| Err(1)), Err(1));
        assert_eq!(*value.get_or_init(|| 2), 2);
        // And stays in the next.
        value.making.state.store(8, Ordering::Relaxed);
        assert_eq!(*value.get_or_init(|| 3), 2);
    }

    #[test]
    fn what_is_not_of_this_generation_is_made_once_by_many_threads() {
        let value = Renewed::new(Mutex::new(1));
        // Held for ever, by a thread of another generation.
        std::mem::forget(locked(value.get().unwrap()));
        value.state.store(7, Ordering::Relaxed);
        assert!(value.get().is_none());
        let made = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let own = value.get_or_renew(|| {
                        made.fetch_add(1, Ordering::Relaxed);
                        Mutex::new(0)
                    });
                    *locked(own) += 1;
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert_eq!(*locked(value.get().unwrap()), 8);
    }
}
