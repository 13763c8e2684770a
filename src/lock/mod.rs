//! The locks of the library: the standard library's, and in builds
//! for tests those of a checker.
//!
//! | feature | locks | what for |
//! |---|---|---|
//! | none | the standard library's | use |
//! | `model` | shuttle's | models that go through the ways in which threads can overtake one another |
//! | `pthread-locks` | the C library's | helgrind, DRD and ThreadSanitizer, which know those and see through no other |
//!
//! What takes part in a model, or is shared by threads that a checker watches,
//! takes its locks and atomic numbers from here.

mod condvar;
#[cfg(all(test, feature = "model"))]
mod explore;
#[cfg(all(feature = "pthread-locks", not(feature = "model")))]
mod pthread;

use std::sync::{LockResult, PoisonError};

#[cfg(feature = "model")]
mod kind {
    pub use once_cell::race::OnceBox;
    pub use once_cell::sync::OnceCell;
    pub use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
}

#[cfg(all(feature = "pthread-locks", not(feature = "model")))]
mod kind {
    pub use super::pthread::{
        Condvar, Mutex, MutexGuard, OnceBox, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic,
    };
}

#[cfg(not(any(feature = "pthread-locks", feature = "model")))]
mod kind {
    pub use once_cell::race::OnceBox;
    pub use once_cell::sync::OnceCell;
    pub use std::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
    };
}

pub(crate) use condvar::Condvar;
#[cfg(all(test, feature = "model"))]
pub(crate) use explore::explore;
pub(crate) use kind::{
    Mutex, MutexGuard, OnceBox, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
};

/// What a lock operation yields, without caring for poison: the core does not
/// panic, so a lock that a panicking test has left behind guards nothing that
/// is half done.
pub(crate) fn clean<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// A lock that one thread holds at a time.
pub(crate) trait Exclusive {
    /// What holds it until dropped.
    type Guard<'a>
    where
        Self: 'a;

    /// Waits for it.
    fn acquire(&self) -> Self::Guard<'_>;
}

impl<T> Exclusive for std::sync::Mutex<T> {
    type Guard<'a>
        = std::sync::MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        clean(self.lock())
    }
}

#[cfg(any(feature = "pthread-locks", feature = "model"))]
impl<T> Exclusive for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    fn acquire(&self) -> Self::Guard<'_> {
        clean(self.lock())
    }
}

/// What tells a thread from all others that live.
#[cfg(feature = "model")]
pub(crate) type Identity = shuttle::thread::ThreadId;
/// What tells a thread from all others that live.
#[cfg(not(feature = "model"))]
pub(crate) type Identity = libc::pthread_t;

/// Which thread calls. The standard library knows as well, but counts a
/// reference for it.
pub(crate) fn caller() -> Identity {
    #[cfg(feature = "model")]
    let caller = shuttle::thread::current().id();
    // SAFETY: has no conditions.
    #[cfg(not(feature = "model"))]
    let caller = unsafe { libc::pthread_self() };
    caller
}

/// Locks `mutex`, waiting for it.
pub(crate) fn locked<M: Exclusive>(mutex: &M) -> M::Guard<'_> {
    mutex.acquire()
}
