//! Threads that a program cancels (pthread_cancel(3)). The C library ends such a
//! thread within a call of its own that may wait, and nothing on its stack is
//! dropped. So the library's calls let it happen only where they sleep
//! ([`may_end`]), with no lock held, and what they have then is let go by the
//! thread's end ([`at_end`], [`holding`]). So is what a call had that a signal handler
//! jumped out of.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;

unsafe extern "C" {
    /// pthread_setcancelstate(3).
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Of `<pthread.h>`.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
/// Of `<pthread.h>`.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Returns the state before. `errno` stays as it is.
#[inline]
fn set_state(state: c_int) -> c_int {
    let mut before = state;
    // SAFETY: a state, and room for one.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

thread_local! {
    /// Whether the calling thread may be cancelled where it sleeps.
    static IN_SLEEPS: Cell<bool> = const { Cell::new(false) };
    /// What is to be done if the thread ends where it is now, the last first.
    static ACTIONS: Actions = const { Actions(RefCell::new(Vec::new())) };
}

/// Keeps the calling thread from being cancelled until dropped.
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// For a call that is no cancellation point.
    pub fn throughout() -> Self {
        Self::keep(false)
    }

    /// For a call that is one where it sleeps. Within another of either kind, that
    /// one decides.
    pub fn but_in_sleeps() -> Self {
        Self::keep(true)
    }

    fn keep(in_sleeps: bool) -> Self {
        let before = set_state(PTHREAD_CANCEL_DISABLE);
        if before == PTHREAD_CANCEL_ENABLE {
            IN_SLEEPS.set(in_sleeps);
        }
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if self.before == PTHREAD_CANCEL_ENABLE {
            IN_SLEEPS.set(false);
            set_state(PTHREAD_CANCEL_ENABLE);
        }
    }
}

/// Runs `call`, which neither sleeps nor calls anything here, and in which the thread
/// is not cancelled if that is `needed`. Less work than [`Uncancelled`], for where
/// instructions count.
#[inline(always)]
pub fn uncancelled_if<R>(needed: bool, call: impl FnOnce() -> R) -> R {
    let enabled = needed && set_state(PTHREAD_CANCEL_DISABLE) == PTHREAD_CANCEL_ENABLE;
    let result = call();
    if enabled {
        set_state(PTHREAD_CANCEL_ENABLE);
    }
    result
}

/// Runs `sleep`, a system call that waits, in which the thread may end unless its
/// program or an [`Uncancelled::throughout`] forbids it.
pub fn may_end<R>(sleep: impl FnOnce() -> R) -> R {
    if !IN_SLEEPS.get() {
        return sleep();
    }
    // Enabled already if a signal handler has jumped out of an earlier sleep.
    let before = set_state(PTHREAD_CANCEL_ENABLE);
    let result = sleep();
    set_state(before);
    result
}

struct Actions(RefCell<Vec<Box<dyn FnOnce()>>>);

impl Actions {
    fn pop(&self) -> Option<Box<dyn FnOnce()>> {
        self.0.borrow_mut().pop()
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // A thread may have been cancelled after it jumped out of a call, and is not
        // to end again in what that leaves to do.
        let _whole = Uncancelled::throughout();
        while let Some(action) = self.pop() {
            action();
        }
    }
}

/// Runs `body`. If the thread ends in it, `action` is called, else it is not.
pub fn at_end<R>(action: impl FnOnce() + 'static, body: impl FnOnce() -> R) -> R {
    // It fails for a thread that has ended but for its destructors.
    let noted = ACTIONS.try_with(|actions| actions.0.borrow_mut().push(Box::new(action)));
    let result = body();
    if noted.is_ok() {
        let _ = ACTIONS.try_with(|actions| drop(actions.pop()));
    }
    result
}

/// Runs `body` with `held`, which is dropped afterwards, or when the thread ends in
/// there.
pub fn holding<T: 'static, R>(held: T, body: impl FnOnce(&mut T) -> R) -> R {
    let held = Box::into_raw(Box::new(held));
    // SAFETY: made from a box just now. Either this frees it, when the thread has
    // ended and `body` does not use it any more, or what is below.
    let free = move || drop(unsafe { Box::from_raw(held) });
    // SAFETY: nobody else uses it while `body` runs.
    let result = at_end(free, || body(unsafe { &mut *held }));
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(held) });
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_is_held_is_dropped_once_and_actions_are_not_called() {
        let counted = Rc::new(());
        let held = Rc::clone(&counted);
        let result = holding(held, |held| {
            at_end(
                || unreachable!("the thread goes on"),
                || Rc::strong_count(held),
            )
        });
        assert_eq!((result, Rc::strong_count(&counted)), (2, 1));
    }

    #[test]
    fn the_outermost_guard_decides_whether_sleeps_end_threads() {
        let state = || {
            let before = set_state(PTHREAD_CANCEL_DISABLE);
            set_state(before)
        };
        let in_sleep = || may_end(|| set_state(PTHREAD_CANCEL_ENABLE));
        {
            let _outer = Uncancelled::but_in_sleeps();
            let _inner = Uncancelled::throughout();
            assert_eq!(in_sleep(), PTHREAD_CANCEL_ENABLE);
        }
        {
            let _outer = Uncancelled::throughout();
            let _inner = Uncancelled::but_in_sleeps();
            assert_eq!(in_sleep(), PTHREAD_CANCEL_DISABLE);
            set_state(PTHREAD_CANCEL_DISABLE);
        }
        set_state(PTHREAD_CANCEL_ENABLE);
        assert_eq!(state(), PTHREAD_CANCEL_DISABLE);
    }
}
