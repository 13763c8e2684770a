//! Completion queues that closed connections leave to the next ones: to make a
//! queue with its channel, and to destroy it, takes seven system calls. How a queue
//! is cleared of what it held is the business of [`super::completion`].
//!
//! A process keeps few of them, each with a descriptor, and gives them back when it
//! is out of those. A child has its own, as it can do nothing with its parent's.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::cm::device::Device;
use crate::error::Result;
use crate::lock::atomic::{AtomicUsize, Ordering};
use crate::lock::{Mutex, locked};

use super::completion::Completions;
use super::fork::PerProcess;

static KEPT: PerProcess<Mutex<Vec<Completions>>> = PerProcess::new();
/// Queues that connections use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A completion queue that is kept for the next connection when this is dropped,
/// after the queue pairs that use it.
#[derive(Debug)]
pub struct Queue {
    completions: ManuallyDrop<Completions>,
    /// A queue pair uses it that could not be destroyed.
    pub spoilt: bool,
}

impl Queue {
    /// One of exactly `entries` on `device`, empty and not armed.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn new(device: &Arc<Device>, entries: u32) -> Result<Self> {
        let completions = match take(device, entries) {
            Some(kept) => kept,
            None => Completions::new(Arc::clone(device), entries)?,
        };
        USED.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            completions: ManuallyDrop::new(completions),
            spoilt: false,
        })
    }
}

impl Deref for Queue {
    type Target = Completions;

    fn deref(&self) -> &Completions {
        &self.completions
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // One for two that are in use, and one in any case.
        let most = USED.fetch_sub(1, Ordering::Relaxed).div_ceil(2).max(1);
        // SAFETY: taken here only.
        let completions = unsafe { ManuallyDrop::take(&mut self.completions) };
        if !self.spoilt {
            keep(completions, most);
        }
    }
}

fn take(device: &Arc<Device>, entries: u32) -> Option<Completions> {
    let mut kept = locked(KEPT.get()?);
    let place = kept.iter().position(|queue| queue.fits(device, entries))?;
    Some(kept.swap_remove(place))
}

/// Keeps a queue if it is of use and there are not enough. Those of removed devices
/// go.
fn keep(queue: Completions, most: usize) {
    let Ok(kept) = KEPT.get_or_try_init(|| Ok(Box::leak(Box::default()))) else {
        return;
    };
    let useful = queue.clear() && !queue.is_useless();
    let mut kept = locked(kept);
    let useless: Vec<_> = kept.extract_if(.., |queue| queue.is_useless()).collect();
    if useful && kept.len() < most {
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
    let kept = KEPT.get().map(|kept| std::mem::take(&mut *locked(kept)));
    kept.is_some_and(|kept| !kept.is_empty())
}
