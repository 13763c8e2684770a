//! The thread that posts what small sends have gathered
//! ([`super::connection::Connection::send`]), so that it goes out at once even
//! if the program does something else now.
//!
//! While the thread wakes up, a program that goes on sending fills the
//! message: the faster it sends, the more goes into one. The thread is started
//! when first needed, with all signals blocked, and apart from the service
//! thread, which may be busy for long.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use crate::error::Result;
use crate::lock::locked;

use super::fork::PerProcess;
use super::service::spawn;
use super::stream::Stream;

#[derive(Default)]
struct Flusher {
    queue: Mutex<Queue>,
    arrival: Condvar,
}

#[derive(Default)]
struct Queue {
    streams: Vec<Weak<Stream>>,
    /// The thread sleeps: otherwise it needs no system call to wake it.
    asleep: bool,
}

/// Posts what `stream` has gathered soon, in the background if possible.
pub fn flush_soon(stream: &Arc<Stream>) {
    match flusher() {
        Some(flusher) => {
            let mut queue = locked(&flusher.queue);
            queue.streams.push(Arc::downgrade(stream));
            let asleep = std::mem::take(&mut queue.asleep);
            drop(queue);
            if asleep {
                flusher.arrival.notify_one();
            }
        }
        None => stream.flush(),
    }
}

/// The thread; `None` if it cannot be started.
fn flusher() -> Option<&'static Flusher> {
    static FLUSHER: PerProcess<Flusher> = PerProcess::new();
    FLUSHER
        .get_or_try_init(start)
        .inspect_err(|error| log::warn!("sends are not gathered: {error}"))
        .ok()
}

fn start() -> Result<&'static Flusher> {
    let flusher: &'static Flusher = Box::leak(Box::default());
    spawn("rsocket-send", || flusher.run())?;
    Ok(flusher)
}

impl Flusher {
    fn run(&self) {
        let mut streams = Vec::new();
        loop {
            let mut queue = self
                .arrival
                .wait_while(locked(&self.queue), |queue| {
                    queue.asleep = queue.streams.is_empty();
                    queue.asleep
                })
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut queue.streams, &mut streams);
            drop(queue);
            for stream in streams.drain(..).filter_map(|stream| stream.upgrade()) {
                stream.flush();
            }
        }
    }
}
