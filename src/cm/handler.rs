//! The handler lock of an identifier: while a thread holds it, no other
//! thread gets an event of that identifier, and the library does none of the
//! work that goes with one.
//!
//! In the kernel's own interface events are callbacks, and
//! `rdma_lock_handler()` excludes them. Here an event is handled when a thread
//! fetches it, so that thread waits. The kernel queues on meanwhile, and
//! events of other identifiers that are behind are reached by other threads
//! only.

use crate::lock::{Condvar, Identity, Mutex, MutexGuard, caller, locked};

/// Who holds the lock, and how many times.
#[derive(Debug)]
struct Owner {
    thread: Identity,
    depth: u32,
}

/// A lock that a thread may take repeatedly and that C code takes and releases
/// in separate calls.
#[derive(Debug, Default)]
pub struct HandlerLock {
    owner: Mutex<Option<Owner>>,
    released: Condvar,
}

/// Holds a [`HandlerLock`] while an event is handled.
#[derive(Debug)]
pub struct Handling<'a>(&'a HandlerLock);

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl HandlerLock {
    fn owner(&self) -> MutexGuard<'_, Option<Owner>> {
        locked(&self.owner)
    }

    /// Takes the lock; blocks while another thread has it.
    pub fn lock(&self) {
        let thread = caller();
        let others = |owner: &mut Option<Owner>| {
            let owner = owner.as_ref();
            owner.is_some_and(|owner| owner.thread != thread)
        };
        let mut owner = self.released.wait_while(self.owner(), others);
        let depth = owner.as_ref().map_or(0, |owner| owner.depth);
        *owner = Some(Owner {
            thread,
            depth: depth.saturating_add(1),
        });
    }

    /// Takes the lock until the result is dropped.
    pub fn hold(&self) -> Handling<'_> {
        self.lock();
        Handling(self)
    }

    /// Gives the lock back. Returns `false`, and does nothing, if the calling
    /// thread does not have it.
    pub fn unlock(&self) -> bool {
        let mut owner = self.owner();
        let Some(held) = owner.as_mut().filter(|held| held.thread == caller()) else {
            return false;
        };
        held.depth = held.depth.saturating_sub(1);
        if held.depth == 0 {
            *owner = None;
            self.released.notify_one();
        }
        true
    }

    /// Gives the lock back however often the calling thread has taken it.
    pub fn unlock_fully(&self) {
        while self.unlock() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn the_holder_may_take_it_again() {
        let lock = HandlerLock::default();
        lock.lock();
        drop(lock.hold());
        assert!(lock.unlock());
        assert!(!lock.unlock());
    }

    #[test]
    fn others_wait_until_it_is_fully_released() {
        let lock = HandlerLock::default();
        let (send, receive) = mpsc::channel();
        lock.lock();
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!lock.unlock(), "the lock is another thread's");
                send.send("waits").unwrap();
                let _handling = lock.hold();
                send.send("handles").unwrap();
            });
            assert_eq!(receive.recv(), Ok("waits"));
            assert!(lock.unlock());
            assert!(receive.try_recv().is_err());
            lock.unlock_fully();
            assert_eq!(receive.recv(), Ok("handles"));
        });
        assert!(!lock.unlock());
    }
}
