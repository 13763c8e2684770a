//! Keeping the events of an identifier from being handled.

use crate::cm::id::Id;
use crate::error::{Error, Result};

/// Keeps other threads from getting events of the identifier. Blocks while
/// another thread has the lock. A thread may take it repeatedly.
pub fn lock(id: &Id) {
    id.handler().lock();
}

/// Undoes one [`lock`].
///
/// # Errors
/// `EPERM` if the calling thread does not have the lock.
pub fn unlock(id: &Id) -> Result<()> {
    if id.handler().unlock() {
        return Ok(());
    }
    Err(Error::new(
        libc::EPERM,
        "release a handler lock that is not held",
    ))
}
