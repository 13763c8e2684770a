//! Completion queues that closed connections leave to the next ones: to make a
//! queue with its channel, and to destroy it, takes seven system calls. How a queue
//! is cleared of what it held is the business of [`super::completion`].
//!
//! A process keeps few of them, each with a descriptor, and gives them back when it
//! is out of those. A child has its own, as it can do nothing with its parent's.

use std::sync::Arc;

use crate::cm::device::Device;
use crate::error::Result;
use crate::lock::{Mutex, locked};

use super::completion::Completions;
use super::fork::PerProcess;

/// Most queues that are kept.
const MOST: usize = 8;

static QUEUES: PerProcess<Mutex<Vec<Completions>>> = PerProcess::new();

/// A queue of exactly `entries` on `device`, empty and not armed.
pub fn take(device: &Arc<Device>, entries: u32) -> Option<Completions> {
    let mut queues = locked(QUEUES.get()?);
    let place = queues
        .iter()
        .position(|queue| queue.fits(device, entries))?;
    Some(queues.swap_remove(place))
}

/// Keeps a queue that no queue pair uses any more, if it is of use and there are
/// not enough. Those of removed devices go.
pub fn keep(queue: Completions) {
    let Ok(queues) = QUEUES.get_or_try_init(|| Ok(Box::leak(Box::default()))) else {
        return;
    };
    let cleared = queue.clear();
    let mut kept = locked(queues);
    let useless: Vec<_> = kept.extract_if(.., |queue| queue.is_useless()).collect();
    if cleared && !queue.is_useless() && kept.len() < MOST {
        kept.push(queue);
    }
    // To destroy queues takes a while.
    drop(kept);
    drop(useless);
}

/// Tries what takes descriptors, and once more without any that are kept here.
///
/// # Errors
/// Those of `attempt`.
pub fn with_descriptors<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    attempt().or_else(|error| {
        let exhausted = matches!(error.errno(), libc::EMFILE | libc::ENFILE);
        if exhausted && give_back() {
            return attempt();
        }
        Err(error)
    })
}

/// Destroys all that is kept. Returns whether there was anything.
fn give_back() -> bool {
    let queues = QUEUES
        .get()
        .map(|queues| std::mem::take(&mut *locked(queues)));
    queues.is_some_and(|queues| !queues.is_empty())
}
