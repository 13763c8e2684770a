//! Models of what threads share that open and close sockets, with the service
//! thread and with those who look for descriptors, run as those of the connection
//! manager are.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use shuttle::thread;

use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::lock::explore;

use super::pauses::Pauses;
use super::table::{Found, Table};
use super::watched::{Next, Registry, Watched};

const DESCRIPTOR: RawFd = 7;

/// A socket, and whether there will be more events of it.
#[derive(Default)]
struct Object {
    ended: AtomicBool,
    handled: AtomicU32,
}

impl Watched for Object {
    fn handle(self: Arc<Self>, _: RawFd) -> Next {
        self.handled.fetch_add(1, Ordering::SeqCst);
        if self.ended.load(Ordering::SeqCst) {
            return Next::Forget;
        }
        Next::Watch
    }
}

fn insert(registry: &Registry, object: &Arc<Object>) {
    let object: Weak<Object> = Arc::downgrade(object);
    registry.insert(DESCRIPTOR, object, || Ok(())).unwrap();
}

fn handle(registry: &Registry) {
    registry.handle(DESCRIPTOR, &mut Pauses::default(), || {});
}

/// The service thread, for which the descriptor is readable so often.
fn serve(registry: &Arc<Registry>, times: u32) -> thread::JoinHandle<()> {
    let registry = Arc::clone(registry);
    thread::spawn(move || (0..times).for_each(|_| handle(&registry)))
}

#[test]
fn who_closes_has_the_last_reference() {
    explore(|| {
        let registry = Arc::new(Registry::default());
        let object = Arc::new(Object::default());
        insert(&registry, &object);
        let service = serve(&registry, 2);
        registry.remove(DESCRIPTOR, Arc::as_ptr(&object), || {});
        registry.wait_for_turn(Arc::as_ptr(&object));
        assert_eq!(Arc::strong_count(&object), 1);
        service.join().unwrap();
        assert_eq!(Arc::strong_count(&object), 1);
    });
}

/// A timer of a socket's, which takes hold of it to act.
struct Timer(Weak<Object>);

impl Watched for Timer {
    fn handle(self: Arc<Self>, fd: RawFd) -> Next {
        let object = self.0.upgrade();
        object.map_or(Next::Forget, |object| object.handle(fd))
    }

    fn holds(&self) -> *const () {
        self.0.as_ptr().cast()
    }
}

#[test]
fn who_closes_waits_for_timers_too() {
    explore(|| {
        let registry = Arc::new(Registry::default());
        let object = Arc::new(Object::default());
        let timer = Arc::new(Timer(Arc::downgrade(&object)));
        let known: Weak<Timer> = Arc::downgrade(&timer);
        registry.insert(DESCRIPTOR, known, || Ok(())).unwrap();
        let service = serve(&registry, 2);
        registry.remove(DESCRIPTOR, Arc::as_ptr(&timer), || {});
        registry.wait_for_turn(Arc::as_ptr(&object));
        assert_eq!(Arc::strong_count(&object), 1);
        service.join().unwrap();
    });
}

#[test]
fn two_who_close_wait_for_the_same_turn() {
    explore(|| {
        let registry = Arc::new(Registry::default());
        let object = Arc::new(Object::default());
        insert(&registry, &object);
        let service = serve(&registry, 3);
        let waiting = {
            let (registry, object) = (Arc::clone(&registry), Arc::clone(&object));
            thread::spawn(move || registry.wait_for_turn(Arc::as_ptr(&object)))
        };
        registry.wait_for_turn(Arc::as_ptr(&object));
        waiting.join().unwrap();
        service.join().unwrap();
    });
}

#[test]
fn a_socket_that_ends_takes_no_other_of_its_number_along() {
    explore(|| {
        let registry = Arc::new(Registry::default());
        let old = Arc::new(Object::default());
        old.ended.store(true, Ordering::SeqCst);
        insert(&registry, &old);
        let service = serve(&registry, 1);
        let opening = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let new = Arc::new(Object::default());
                insert(&registry, &new);
                new
            })
        };
        registry.remove(DESCRIPTOR, Arc::as_ptr(&old), || {});
        let new = opening.join().unwrap();
        service.join().unwrap();
        let before = new.handled.load(Ordering::SeqCst);
        handle(&registry);
        assert_eq!(new.handled.load(Ordering::SeqCst), before + 1);
    });
}

/// Models have little room.
const FEW: usize = 8;

/// What the kernel has behind [`DESCRIPTOR`].
const CLOSED: u32 = 0;
const SOCKET: u32 = 1;
const ORDINARY: u32 = 2;

/// Descriptors as the library and the kernel know them; a socket is there.
struct Descriptors {
    table: Table<u32, FEW>,
    kernel: AtomicU32,
}

impl Descriptors {
    fn new() -> Arc<Self> {
        let this = Self {
            table: Table::new(),
            kernel: AtomicU32::new(SOCKET),
        };
        this.table.insert(DESCRIPTOR, 1).unwrap();
        Arc::new(this)
    }

    fn look(&self) -> Found<u32> {
        self.table.look_up(DESCRIPTOR, |object| *object)
    }

    fn close(&self) {
        let close = || self.kernel.store(CLOSED, Ordering::SeqCst);
        assert!(self.table.remove(DESCRIPTOR).is_some());
        self.table.close(DESCRIPTOR, close);
    }

    /// Gives the number to something else, if it is free.
    fn open(&self, kind: u32) -> bool {
        let order = Ordering::SeqCst;
        let opened = self.kernel.compare_exchange(CLOSED, kind, order, order);
        opened.is_ok()
    }
}

#[test]
fn the_kernel_is_not_asked_about_a_socket_that_is_being_closed() {
    explore(|| {
        let descriptors = Descriptors::new();
        let polling = {
            let descriptors = Arc::clone(&descriptors);
            thread::spawn(move || {
                for _ in 0..3 {
                    if descriptors.look() == Found::Nothing {
                        let asked = descriptors.kernel.load(Ordering::SeqCst);
                        assert_eq!(asked, CLOSED);
                    }
                }
            })
        };
        descriptors.close();
        polling.join().unwrap();
        assert_eq!(descriptors.look(), Found::Nothing);
    });
}

#[test]
fn what_gets_the_number_of_a_closed_socket_is_taken_for_what_it_is() {
    explore(|| {
        let descriptors = Descriptors::new();
        let opening = [ORDINARY, SOCKET].map(|kind| {
            let descriptors = Arc::clone(&descriptors);
            thread::spawn(move || {
                if !descriptors.open(kind) {
                    return;
                }
                if kind == SOCKET {
                    descriptors.table.insert(DESCRIPTOR, 2).unwrap();
                    assert_eq!(descriptors.look(), Found::Own(2));
                } else {
                    assert_eq!(descriptors.look(), Found::Nothing);
                }
            })
        });
        descriptors.close();
        for opening in opening {
            opening.join().unwrap();
        }
    });
}
