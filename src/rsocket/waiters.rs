//! Those who wait for a socket, and telling them that it has changed.
//!
//! A thread that waits registers its own eventfd with every socket it waits for;
//! whoever changes a socket writes to the eventfds registered there. So no wake-up
//! is lost when another thread takes a notification of the device.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::lock::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::lock::{Mutex, locked};

use super::wake::Wake;

/// Those who wait for a socket.
#[derive(Debug, Default)]
pub struct Waiters {
    count: AtomicUsize,
    changes: AtomicU64,
    list: Mutex<Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    wake: Arc<Wake>,
    /// Where to note which socket has changed, and what it is called there.
    noted: Option<(Arc<Notes>, RawFd)>,
}

/// Which sockets of many have changed, for one who waits for all of them.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<RawFd>>);

thread_local! {
    /// The notes of the thread's own, who looks at sockets right now and so
    /// knows what it changes by that.
    static OWN_NOTES: Cell<*const Notes> = const { Cell::new(std::ptr::null()) };
}

impl Notes {
    /// Takes what was noted.
    pub fn take(&self) -> Vec<RawFd> {
        std::mem::take(&mut *locked(&self.0))
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }

    /// Runs `look`; what changes by it is not noted here.
    pub fn without<R>(&self, look: impl FnOnce() -> R) -> R {
        OWN_NOTES.set(self);
        let result = look();
        OWN_NOTES.set(std::ptr::null());
        result
    }

    /// Returns whether it is the first.
    fn note(&self, name: RawFd) -> bool {
        let mut names = locked(&self.0);
        names.push(name);
        names.len() == 1
    }
}

impl Waiters {
    /// Registers `wake` until the result is dropped.
    pub fn register(self: &Arc<Self>, wake: &Arc<Wake>) -> Registered {
        self.add(wake, None);
        Registered {
            waiters: Arc::clone(self),
            wake: Arc::clone(wake),
        }
    }

    /// Registers `wake` until it is removed. With `noted`, it is only woken
    /// by the first change that is noted there.
    pub fn add(&self, wake: &Arc<Wake>, noted: Option<(Arc<Notes>, RawFd)>) {
        let wake = Arc::clone(wake);
        locked(&self.list).push(Waiter { wake, noted });
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes one [`Waiters::add`].
    pub fn remove(&self, wake: &Arc<Wake>) {
        let mut list = locked(&self.list);
        let place = list.iter().position(|other| Arc::ptr_eq(&other.wake, wake));
        if let Some(place) = place {
            list.swap_remove(place);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether more than one waits.
    pub fn is_shared(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 1
    }

    /// How often the socket has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Counts a change and wakes all but the calling thread, which knows.
    pub fn notify(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let own = Wake::known();
        for waiter in locked(&self.list).iter() {
            let woken = match &waiter.noted {
                Some((notes, _)) if std::ptr::eq(Arc::as_ptr(notes), OWN_NOTES.get()) => false,
                Some((notes, name)) => notes.note(*name),
                None => own
                    .as_ref()
                    .is_none_or(|own| !Arc::ptr_eq(own, &waiter.wake)),
            };
            if woken {
                waiter.wake.signal();
            }
        }
    }
}

/// A registration with [`Waiters`].
pub struct Registered {
    waiters: Arc<Waiters>,
    wake: Arc<Wake>,
}

impl Registered {
    /// What is woken.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.waiters.remove(&self.wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsocket::wait::{readable, sleep};
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn a_waiter_is_woken_by_others_but_not_by_itself() {
        let waiters = Arc::new(Waiters::default());
        let own = Wake::of_thread();
        let other = Arc::new(Wake::new().unwrap());
        let _own = waiters.register(&own);
        let _other = waiters.register(&other);
        waiters.notify();
        let mut entries = [readable(own.as_raw_fd()), readable(other.as_raw_fd())];
        assert_eq!(sleep(&mut entries, Some(Instant::now())), Ok(1));
        assert_eq!(entries[0].revents, 0);
        other.clear();
        assert_eq!(sleep(&mut entries, Some(Instant::now())), Ok(0));
    }
}
