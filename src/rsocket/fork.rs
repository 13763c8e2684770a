//! What a forked child may use: nothing of its parent's. The threads that
//! serve sockets are not in the child, and its devices write to memory that
//! both share; so the child sees its parent's sockets as closed, and starts
//! anew when it creates its own. Nor may it wait for its parent's locks: what
//! threads held at the fork is held in the child for ever.

use std::cell::UnsafeCell;
use std::sync::Once;
use std::thread;

use crate::cm::device;
use crate::error::Result;
use crate::lock::atomic::{AtomicU32, Ordering};
use crate::lock::{Mutex, locked};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How often this process, or its parents, have forked since the first socket.
/// What was made in another generation is a parent's.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Counts forks from now on; in a child, leaves to the parent what it has.
pub fn enter() {
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler only counts, which is safe in a child.
        let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if status != 0 {
            log::warn!("forks are not noticed: errno {status}");
        }
    });
    /// The generation that was in here last.
    static ENTERED: AtomicU32 = AtomicU32::new(0);
    if ENTERED.swap(generation(), Ordering::Relaxed) != generation() {
        // The kernel refuses commands of a child on its parent's contexts.
        device::abandon();
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
