//! Locks that no fork splits: it waits until nobody holds them, so that a child finds
//! what they guard whole, and can take them.
//!
//! librspreload, which has locks of its own, has this file as well.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;

use crate::lock::atomic::{AtomicBool, Ordering};
use crate::lock::{Mutex, RwLock, clean, locked};

/// Has these called at each fork from now on: by the thread that forks, before it and
/// after it in both processes.
///
/// # Errors
/// The errno of `pthread_atfork(3)`; the next call tries again.
pub fn watch(
    before: unsafe extern "C" fn(),
    in_parent: unsafe extern "C" fn(),
    in_child: unsafe extern "C" fn(),
) -> Result<(), c_int> {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if WATCHING.load(Ordering::Acquire) {
        return Ok(());
    }
    // Several threads may get here, and a child whose parent was just here. So it may
    // happen twice, which the handlers take.
    // SAFETY: the library is never unloaded, see build.rs.
    let status = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if status != 0 {
        return Err(status);
    }
    WATCHING.store(true, Ordering::Release);
    Ok(())
}

thread_local! {
    /// What the calling thread holds while it forks.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// Before a fork: waits until nobody has any of `locks`, in that order, and keeps
/// others from them.
pub fn hold(locks: &[&'static dyn AcrossFork]) {
    // It fails for a thread that has ended but for its destructors.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if held.is_empty() {
            held.extend(locks.iter().map(|lock| lock.hold()));
        }
    });
}

/// After it, in both processes: ends that.
pub extern "C" fn let_go() {
    let _ = HELD.try_with(RefCell::take);
}

/// Holds something until dropped.
pub type Held = Box<dyn Any>;

/// What is not split by a fork. It is held for moments only, and never while
/// waiting for a lock that comes before it in what `hold` is given.
pub trait AcrossFork: Sync {
    /// Waits until no thread has it, and keeps others from it.
    fn hold(&'static self) -> Held;
}

impl<T: Send + 'static> AcrossFork for Mutex<T> {
    fn hold(&'static self) -> Held {
        Box::new(locked(self))
    }
}

impl<T: Send + Sync + 'static> AcrossFork for RwLock<T> {
    fn hold(&'static self) -> Held {
        Box::new(clean(self.write()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nobody_holds_what_a_fork_holds_until_it_is_over() {
        static LOCK: Mutex<()> = Mutex::new(());
        let held = LOCK.hold();
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(locked(&LOCK)));
            assert!(!waits.is_finished());
            drop(held);
        });
    }
}
