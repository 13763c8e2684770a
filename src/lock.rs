//! Taking a lock without caring for poison: the core does not panic, so a lock
//! that a panicking test has left behind guards nothing that is half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, waiting for it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
