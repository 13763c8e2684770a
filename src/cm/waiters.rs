//! Threads that wait for an event of an identifier in synchronous mode, and
//! how they are made to leave when another thread takes its channel away.
//!
//! They sleep in the kernel until there is an event, and the identifier's own
//! go with it. So a [messenger](super::messenger::wake) wakes them, which costs those
//! nothing who do not wait. A thread that ends while it waits, by
//! pthread_cancel(3), does not count any more.

use crate::error::Result;
use std::cell::Cell;
use std::sync::Arc;

use crate::lock::{Condvar, Mutex, MutexGuard, locked};

use super::id::Id;

/// How many threads wait.
#[derive(Debug, Default)]
pub struct Waiters {
    count: Mutex<u32>,
    left: Condvar,
}

impl Waiters {
    fn count(&self) -> MutexGuard<'_, u32> {
        locked(&self.count)
    }

    /// Counts the calling thread in. It then looks whether it may wait at all,
    /// and again after each event that is not its own.
    pub fn enter(&self) {
        let mut count = self.count();
        *count = count.saturating_add(1);
    }

    /// Counts a thread out.
    pub fn leave(&self) {
        let mut count = self.count();
        *count = count.saturating_sub(1);
        self.left.notify_all();
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

/// An identifier that has counted a thread in, and counts it out when this is
/// dropped.
struct Counted(Arc<Id>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.waiters().leave();
    }
}

thread_local! {
    /// Where the calling thread waits. A thread that is cancelled while it waits
    /// drops nothing of its stack, but this.
    static HERE: Cell<Option<Counted>> = const { Cell::new(None) };
}

/// The calling thread waits, until this is dropped or the thread ends.
pub struct Waiting {
    /// For a thread whose thread-local values are gone already.
    _late: Option<Counted>,
}

impl Waiting {
    /// Counts the calling thread in among those who wait on `id`.
    pub fn on(id: &Arc<Id>) -> Self {
        id.waiters().enter();
        let mut counted = Some(Counted(Arc::clone(id)));
        // It fails for a thread that has ended but for its destructors.
        let _ = HERE.try_with(|here| here.set(counted.take()));
        Self { _late: counted }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = HERE.try_with(Cell::take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn nobody_needs_no_eviction() {
        let waiters = Waiters::default();
        waiters.enter();
        waiters.leave();
        assert_eq!(waiters.evict(|| Err(Error::invalid("wake nobody"))), Ok(()));
    }

    #[test]
    fn a_channel_that_is_gone_cannot_be_cleared() {
        let waiters = Waiters::default();
        waiters.enter();
        let gone = Error::new(libc::EBADF, "wake");
        assert_eq!(waiters.evict(|| Err(gone)), Err(gone));
    }
}
