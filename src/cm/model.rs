//! Models of what threads share, run by shuttle through many ways in which
//! they can overtake one another. The code is the library's own; only the
//! kernel is played.
//!
//! `cargo test --features model model::`

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::thread;

use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::lock::{Condvar, Mutex, explore, locked};

use super::accounting::Accounting;
use super::handler::HandlerLock;
use super::numbers::{Numbered, Numbers};
use super::registry::Registry;
use super::waiters::Waiters;

#[test]
fn whoever_waits_for_acknowledgements_is_woken_by_the_last() {
    explore(|| {
        let account = Arc::new(Accounting::new());
        let threads = [1, 2].map(|events| {
            let account = Arc::clone(&account);
            thread::spawn(move || (0..events).for_each(|_| account.complete()))
        });
        account.settle(3, "model");
        assert_eq!(account.outstanding(3), 0);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_can_wait_for_the_same_acknowledgement() {
    explore(|| {
        let account = Arc::new(Accounting::new());
        let threads = [(); 2].map(|()| {
            let account = Arc::clone(&account);
            thread::spawn(move || account.settle(1, "model"))
        });
        account.complete();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// What the kernel has a number for.
#[derive(Default)]
struct Object {
    accounting: Accounting,
    destroying: AtomicBool,
}

impl Numbered for Object {
    fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    fn is_destroying(&self) -> bool {
        self.destroying.load(Ordering::SeqCst)
    }
}

/// The one number of a kernel, and the events of its object.
#[derive(Default)]
struct Kernel {
    state: Mutex<KernelState>,
    numbers: Numbers<Object>,
}

#[derive(Default)]
struct KernelState {
    free: bool,
    queued: u32,
    reported: u32,
}

const NUMBER: u32 = 7;

impl Kernel {
    /// A new object, and some events of it, which the kernel names by number
    /// once the program has seen it and accepts.
    fn create(&self, queued: u32) -> Arc<Object> {
        *locked(&self.state) = KernelState::default();
        let object = Arc::new(Object::default());
        self.numbers.give(NUMBER, &object);
        locked(&self.state).queued = queued;
        object
    }

    /// GET_EVENT on a non-blocking channel, and what the library does with an
    /// event that it swallows.
    fn fetch(&self) {
        {
            let mut state = locked(&self.state);
            if state.queued == 0 {
                return;
            }
            state.queued -= 1;
            state.reported += 1;
        }
        if let Some(owner) = self.numbers.receive(NUMBER) {
            owner.accounting.complete();
        }
    }

    /// DESTROY_ID: what is queued is dropped.
    fn free(&self) -> u32 {
        let mut state = locked(&self.state);
        state.free = true;
        state.queued = 0;
        state.reported
    }

    /// What the library does to destroy an object.
    fn destroy(&self, object: &Arc<Object>) {
        object.destroying.store(true, Ordering::SeqCst);
        let total = self.free();
        object.accounting.close(total);
        object.accounting.settle(total, "model");
        self.numbers.take(NUMBER, object);
    }
}

#[test]
fn an_event_on_its_way_is_not_counted_on_who_gets_the_number_next() {
    explore(|| {
        let kernel = Arc::new(Kernel::default());
        let old = kernel.create(1);
        let fetching = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || kernel.fetch())
        };
        let reusing = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || {
                if !locked(&kernel.state).free {
                    return;
                }
                let new = kernel.create(2);
                kernel.fetch();
                kernel.destroy(&new);
                // No more than its own.
                let reported = locked(&kernel.state).reported;
                assert_eq!(new.accounting.outstanding(reported.wrapping_add(1)), 1);
            })
        };
        kernel.destroy(&old);
        fetching.join().unwrap();
        reusing.join().unwrap();
        assert!(kernel.numbers.receive(NUMBER).is_none());
    });
}

#[test]
fn one_thread_at_a_time_handles_events() {
    explore(|| {
        let lock = Arc::new(HandlerLock::default());
        let inside = Arc::new(AtomicU32::new(0));
        let threads = [(); 3].map(|()| {
            let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
            thread::spawn(move || {
                let _handling = lock.hold();
                let _again = lock.hold();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn one_of_those_who_remove_gets_the_value() {
    explore(|| {
        let registry = Arc::new(Registry::new());
        registry.insert(1, ());
        let threads = [(); 2].map(|()| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.remove(1).is_some())
        });
        let winners = threads.map(|thread| thread.join().unwrap());
        assert_eq!(winners.into_iter().filter(|won| *won).count(), 1);
    });
}

/// A channel of the kernel.
#[derive(Default)]
struct Channel {
    events: Mutex<VecDeque<u32>>,
    readable: Condvar,
}

impl Channel {
    fn report(&self, event: u32) {
        locked(&self.events).push_back(event);
        self.readable.notify_one();
    }

    fn get(&self) -> Option<u32> {
        let events = locked(&self.events);
        self.readable
            .wait_while(events, |events| events.is_empty())
            .pop_front()
    }
}

#[test]
fn threads_that_wait_leave_before_their_channel_is_closed() {
    const NOTHING: u32 = 0;
    explore(|| {
        let channel = Arc::new(Channel::default());
        let waiters = Arc::new(Waiters::default());
        let open = Arc::new(AtomicBool::new(true));
        let closed = Arc::new(AtomicBool::new(false));
        let threads = [(); 2].map(|()| {
            let (channel, waiters) = (Arc::clone(&channel), Arc::clone(&waiters));
            let (open, closed) = (Arc::clone(&open), Arc::clone(&closed));
            thread::spawn(move || {
                waiters.enter();
                while open.load(Ordering::SeqCst) {
                    assert!(!closed.load(Ordering::SeqCst));
                    if channel.get() != Some(NOTHING) {
                        break;
                    }
                }
                waiters.leave();
            })
        });
        channel.report(1);
        open.store(false, Ordering::SeqCst);
        let evicted = waiters.evict(|| {
            channel.report(NOTHING);
            Ok(())
        });
        assert_eq!(evicted, Ok(()));
        closed.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
