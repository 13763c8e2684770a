//! What the service thread looks after, by descriptor, and what it is at right
//! now. Objects are known weakly: looking after one never keeps it from being
//! freed for longer than a turn, whose end can be waited for. Which descriptors
//! are readable is told by the service thread, which leaves one alone for a while
//! that could not be handled ([`super::pauses`]).

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::error::Result;
use crate::lock::{Condvar, Mutex, locked};

use super::pauses::Pauses;

/// What becomes of the watch of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on.
    Watch,
    /// It goes on later: what is to be read there cannot be had now.
    Pause,
    /// It ends: the descriptor is of no use any more.
    Forget,
}

/// Something with a descriptor that the service thread looks after.
pub trait Watched: Send + Sync {
    /// The descriptor `fd` is readable.
    fn handle(self: Arc<Self>, fd: RawFd) -> Next;

    /// The other object that [`Watched::handle`] holds meanwhile, if any.
    fn holds(&self) -> *const () {
        std::ptr::null()
    }
}

/// The objects, and the turn of one of them.
#[derive(Default)]
pub struct Registry {
    objects: Mutex<HashMap<RawFd, Weak<dyn Watched>>>,
    turn: Mutex<Turn>,
    turn_over: Condvar,
}

/// What the service thread is at: the number of the event, while it handles one.
#[derive(Default)]
struct Turn {
    number: u64,
    busy: bool,
    /// Addresses of the objects that it holds, once that is known.
    holds: Option<[usize; 2]>,
}

impl Turn {
    /// Whether the event `number` is being handled and `object` may be held.
    fn may_hold(&self, number: u64, object: usize) -> bool {
        let held = self.holds.is_none_or(|holds| holds.contains(&object));
        self.busy && self.number == number && held
    }
}

impl Registry {
    /// Knows `object` by `fd` from now on; `watch` has the descriptor watched.
    ///
    /// # Errors
    /// Those of `watch`.
    pub fn insert(
        &self,
        fd: RawFd,
        object: Weak<dyn Watched>,
        watch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut objects = locked(&self.objects);
        objects.insert(fd, object);
        watch()
    }

    /// Undoes [`Registry::insert`] of `object`; `forget` undoes `watch`. Nothing
    /// happens if the descriptor has become a newer object's.
    pub fn remove<T: ?Sized>(&self, fd: RawFd, object: *const T, forget: impl FnOnce()) {
        let mut objects = locked(&self.objects);
        if objects.get(&fd).is_some_and(|entry| is(entry, object)) {
            objects.remove(&fd);
            forget();
        }
    }

    /// Waits until the service thread does not hold `object`, which was removed
    /// before, and so never will again. Not for that thread itself, nor with a
    /// lock that a handler takes.
    pub fn wait_for_turn<T: ?Sized>(&self, object: *const T) {
        let object = object.cast::<()>().addr();
        let turn = locked(&self.turn);
        let number = turn.number;
        let held = |turn: &mut Turn| turn.may_hold(number, object);
        drop(self.turn_over.wait_while(turn, held));
    }

    /// A turn of the service thread: has the object of `fd` handle that it is
    /// readable. `forget` undoes `watch` of a descriptor that is of no use, or not
    /// for a while, which goes into `pauses`. Nothing happens if there is no object.
    pub fn handle(&self, fd: RawFd, pauses: &mut Pauses, forget: impl Fn()) {
        self.set_turn(|turn| {
            turn.number = turn.number.wrapping_add(1);
            turn.busy = true;
            turn.holds = None;
        });
        self.handle_object(fd, pauses, forget);
        self.set_turn(|turn| turn.busy = false);
    }

    /// Has `change` change how the descriptor `fd` is watched, if it still is
    /// `object`'s.
    pub fn change<R>(
        &self,
        fd: RawFd,
        object: &Weak<dyn Watched>,
        change: impl FnOnce() -> R,
    ) -> Option<R> {
        let objects = locked(&self.objects);
        let entry = objects.get(&fd)?;
        is(entry, object.as_ptr()).then(change)
    }

    fn set_turn(&self, change: impl FnOnce(&mut Turn)) {
        let mut turn = locked(&self.turn);
        change(&mut turn);
        self.turn_over.notify_all();
    }

    fn handle_object(&self, fd: RawFd, pauses: &mut Pauses, forget: impl Fn()) {
        let object = locked(&self.objects).get(&fd).and_then(Weak::upgrade);
        let Some(object) = object else {
            // Reported before it was removed, or while it is. The number may be that
            // of something else by now, which the service thread watches as well.
            return;
        };
        // While it is known, nothing else gets its address, if it is freed in its turn.
        let known = Arc::downgrade(&object);
        let holds = [known.as_ptr().cast::<()>().addr(), object.holds().addr()];
        self.set_turn(|turn| turn.holds = Some(holds));
        match object.handle(fd) {
            Next::Watch => pauses.forget(fd),
            Next::Forget => self.remove(fd, known.as_ptr(), forget),
            Next::Pause => {
                self.change(fd, &known, forget);
                pauses.begin(fd, known, Instant::now());
            }
        }
    }
}

/// Whether an entry is of `object`.
fn is<T: ?Sized>(entry: &Weak<dyn Watched>, object: *const T) -> bool {
    std::ptr::addr_eq(entry.as_ptr(), object)
}
