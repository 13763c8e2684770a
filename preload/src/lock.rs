//! The locks of the library. A child has to find what they guard as it is, so a fork
//! waits for each ([`crate::children`]).

use std::sync::{LockResult, PoisonError};

pub use std::sync::{Mutex, MutexGuard, RwLock, atomic};

use crate::children;

/// What a lock operation yields: nothing here panics half way.
pub fn clean<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, waiting for it. Whoever does so first may be here before this library
/// is told that it is loaded: the libraries of a program are told before those that are
/// preloaded, and may make sockets then.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    children::watch();
    clean(mutex.lock())
}
