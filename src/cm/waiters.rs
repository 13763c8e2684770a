//! Threads that wait for an event of an identifier in synchronous mode, and
//! how they are made to leave when another thread takes its channel away.
//!
//! They sleep in the kernel until there is an event, and the identifier's own
//! go with it. So a [messenger](super::messenger::wake) wakes them, which costs those
//! nothing who do not wait.

use crate::error::Result;
use crate::lock::{Condvar, Mutex, MutexGuard, locked};

/// How many threads wait.
#[derive(Debug, Default)]
pub struct Waiters {
    count: Mutex<u32>,
    left: Condvar,
}

/// A thread waits, until this is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Waiters);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count();
        *count = count.saturating_sub(1);
        self.0.left.notify_all();
    }
}

impl Waiters {
    fn count(&self) -> MutexGuard<'_, u32> {
        locked(&self.count)
    }

    /// Counts the calling thread in. It then looks whether it may wait at all,
    /// and again after each event that is not its own.
    pub fn enter(&self) -> Waiting<'_> {
        let mut count = self.count();
        *count = count.saturating_add(1);
        Waiting(self)
    }

    /// Blocks until no thread waits on the channel, which is then to be
    /// closed. They must not be allowed to go on waiting any more. `wake` wakes
    /// one that sleeps.
    ///
    /// # Errors
    /// What `wake` says; there may be threads left then.
    pub fn evict(&self, wake: impl Fn() -> Result<()>) -> Result<()> {
        let sleeping = *self.count();
        for _ in 0..sleeping {
            wake()?;
        }
        let _none = self.left.wait_while(self.count(), |count| *count > 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn nobody_needs_no_eviction() {
        let waiters = Waiters::default();
        drop(waiters.enter());
        assert_eq!(waiters.evict(|| Err(Error::invalid("wake nobody"))), Ok(()));
    }

    #[test]
    fn a_channel_that_is_gone_cannot_be_cleared() {
        let waiters = Waiters::default();
        let _waiting = waiters.enter();
        let gone = Error::new(libc::EBADF, "wake");
        assert_eq!(waiters.evict(|| Err(gone)), Err(gone));
    }
}
