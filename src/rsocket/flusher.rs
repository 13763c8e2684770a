//! The thread that posts what small sends have gathered
//! ([`super::connection::Connection::send`]), so that it goes out at once even
//! if the program does something else now.
//!
//! While the thread wakes up, a program that goes on sending fills the
//! message: the faster it sends, the more goes into one. The thread is started
//! when first needed, with all signals blocked, and apart from the service
//! thread, which may be busy for long.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::fork::PerProcess;
use crate::lock::{Condvar, Mutex, locked};
use crate::thread;

use super::stream::Stream;

static FLUSHER: PerProcess<Flusher> = PerProcess::new();

#[derive(Default)]
struct Flusher {
    queue: Mutex<Queue>,
    arrival: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct Queue {
    streams: VecDeque<Weak<Stream>>,
    /// The one whose turn it is; the thread holds no other.
    current: Weak<Stream>,
    /// The thread sleeps: otherwise it needs no system call to wake it.
    asleep: bool,
}

/// Posts what `stream` has gathered soon, in the background if possible.
pub fn flush_soon(stream: &Arc<Stream>) {
    match flusher() {
        Some(flusher) => {
            let mut queue = locked(&flusher.queue);
            queue.streams.push_back(Arc::downgrade(stream));
            let asleep = std::mem::take(&mut queue.asleep);
            drop(queue);
            if asleep {
                flusher.arrival.notify_one();
            }
        }
        None => stream.flush(),
    }
}

/// Waits until the thread is not at `stream` any more, which is never its turn
/// again: once the caller lets go as well, it is freed.
pub fn release(stream: &Arc<Stream>) {
    if let Some(flusher) = FLUSHER.get() {
        let is_it = |other: &Weak<Stream>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(stream));
        let mut queue = locked(&flusher.queue);
        queue.streams.retain(|other| !is_it(other));
        let at_it = |queue: &mut Queue| is_it(&queue.current);
        drop(flusher.done.wait_while(queue, at_it));
    }
}

/// The thread; `None` if it cannot be started.
fn flusher() -> Option<&'static Flusher> {
    FLUSHER
        .get_or_try_init(start)
        .inspect_err(|error| log::warn!("sends are not gathered: {error}"))
        .ok()
}

fn start() -> Result<&'static Flusher> {
    let flusher: &'static Flusher = Box::leak(Box::default());
    thread::spawn("rsocket-send", || flusher.run())?;
    Ok(flusher)
}

impl Flusher {
    fn run(&self) {
        loop {
            let mut queue = locked(&self.queue);
            queue.current = Weak::new();
            self.done.notify_all();
            let mut queue = self.arrival.wait_while(queue, |queue| {
                queue.asleep = queue.streams.is_empty();
                queue.asleep
            });
            queue.current = queue.streams.pop_front().unwrap_or_default();
            let stream = queue.current.upgrade();
            drop(queue);
            if let Some(stream) = stream {
                stream.flush();
            }
        }
    }
}
