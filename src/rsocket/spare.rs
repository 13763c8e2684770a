//! What is kept for the next connection: completion queues of closed ones, as to make
//! a queue with its channel, and to destroy it, takes seven system calls; and all that
//! one connection needs, for a process that connects again and again. How a queue is
//! cleared of what it held is the business of [`super::completion`].
//!
//! Little is kept, each with a descriptor, and given back when the process is out of
//! those or of memory. A child has its own, as it can do nothing with its parent's.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::cm::device::Device;
use crate::error::Result;
use crate::fork::{self, PerProcess};
use crate::lock::atomic::{AtomicU32, Ordering};
use crate::lock::{Mutex, locked};

use super::completion::Completions;
use super::prepared::Prepared;
use super::settings::Settings;

/// How many queues are kept or prepared: half as many as are in use, but at least and
/// at most so many.
const LEAST: usize = 2;
const MOST: usize = 8;

/// What a process keeps, and how many queues it has besides.
#[derive(Default)]
struct Kept {
    queues: Vec<Completions>,
    connection: Option<Prepared>,
    /// A thread makes one.
    preparing: bool,
    /// Those of connections.
    used: usize,
    /// Those of what is prepared, here or elsewhere.
    prepared: usize,
}

static KEPT: PerProcess<Mutex<Kept>> = PerProcess::new();

fn kept() -> Result<&'static Mutex<Kept>> {
    KEPT.get_or_try_init(|| Ok(Box::leak(Box::default())))
}

/// A completion queue that is kept for the next connection when this is dropped,
/// after the queue pairs that use it.
#[derive(Debug)]
pub struct Queue {
    completions: ManuallyDrop<Completions>,
    used: bool,
    /// A queue pair uses it that could not be destroyed.
    pub spoilt: bool,
}

impl Queue {
    /// One of exactly `entries` on `device`, empty and not armed.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn new(device: &Arc<Device>, entries: u32) -> Result<Self> {
        let completions = match take(device, entries)? {
            Some(kept) => kept,
            None => Completions::new(Arc::clone(device), entries)?,
        };
        locked(kept()?).prepared += 1;
        Ok(Self {
            completions: ManuallyDrop::new(completions),
            used: false,
            spoilt: false,
        })
    }

    /// The same, of a connection from now on.
    pub fn used(mut self) -> Self {
        if let Some(kept) = KEPT.get() {
            let mut kept = locked(kept);
            kept.prepared = kept.prepared.saturating_sub(1);
            kept.used = kept.used.saturating_add(1);
            self.used = true;
        }
        self
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
        // SAFETY: taken here only.
        let completions = unsafe { ManuallyDrop::take(&mut self.completions) };
        let useful = !self.spoilt && !completions.is_useless() && completions.clear();
        let Some(kept) = KEPT.get() else {
            return;
        };
        let mut kept = locked(kept);
        let count = if self.used {
            &mut kept.used
        } else {
            &mut kept.prepared
        };
        *count = count.saturating_sub(1);
        let useless = kept.take_useless();
        if useful {
            kept.queues.push(completions);
        }
        let too_many = kept.take_too_many();
        // To destroy queues takes a while, and leads here.
        drop(kept);
        drop(useless);
        drop(too_many);
    }
}

impl Kept {
    /// Whether the caller is to prepare a connection.
    fn begin_to_prepare(&mut self) -> bool {
        let wanted = self.connection.is_none() && !self.preparing;
        self.preparing |= wanted;
        wanted
    }

    fn end_to_prepare(&mut self, prepared: Option<Prepared>) {
        self.preparing = false;
        self.connection = prepared;
    }

    /// Takes what belongs to removed devices.
    fn take_useless(&mut self) -> (Vec<Completions>, Option<Prepared>) {
        let useless = self.queues.extract_if(.., |queue| queue.is_useless());
        let queues = useless.collect();
        let connection = self.connection.take_if(|prepared| prepared.is_useless());
        (queues, connection)
    }

    /// Takes the queues that are more than there should be.
    fn take_too_many(&mut self) -> Vec<Completions> {
        let room = (self.used / 2).clamp(LEAST, MOST);
        let place = room.saturating_sub(self.prepared).min(self.queues.len());
        self.queues.split_off(place)
    }
}

fn take(device: &Arc<Device>, entries: u32) -> Result<Option<Completions>> {
    let queues = &mut locked(kept()?).queues;
    let place = queues.iter().position(|queue| queue.fits(device, entries));
    Ok(place.map(|place| queues.swap_remove(place)))
}

/// What was prepared for a connection over `device`, if it was.
pub fn take_connection(device: &Arc<Device>, settings: &Settings) -> Option<Prepared> {
    let prepared = locked(KEPT.get()?).connection.take();
    // What does not fit is dropped without the lock.
    prepared.filter(|prepared| prepared.fits(device, settings))
}

/// Prepares another connection like one that this process makes now, if it has made
/// one before and nothing is prepared. For a thread that has to wait anyway. Of several
/// threads that connect at once, one prepares: one connection is all that is kept.
/// Returns whether the process has made one before.
pub fn prepare_connection(device: &Arc<Device>, settings: &Settings) -> bool {
    /// Generation of the process that has connected last.
    static CONNECTED: AtomicU32 = AtomicU32::new(u32::MAX);
    if CONNECTED.swap(fork::generation(), Ordering::Relaxed) != fork::generation() {
        return false;
    }
    if let Ok(kept) = kept()
        && locked(kept).begin_to_prepare()
    {
        let prepared = Prepared::ahead(device, settings);
        locked(kept).end_to_prepare(prepared);
    }
    true
}

/// Tries what takes descriptors and memory, and once more without any that are kept
/// here.
///
/// # Errors
/// Those of `attempt`.
pub fn with_all<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    attempt().or_else(|error| {
        let exhausted = matches!(error.errno(), libc::EMFILE | libc::ENFILE | libc::ENOMEM);
        if exhausted && give_back() {
            return attempt();
        }
        Err(error)
    })
}

/// Destroys all that is kept. Returns whether there was anything.
fn give_back() -> bool {
    let Some(kept) = KEPT.get() else {
        return false;
    };
    // Its queue is kept, and goes with the others.
    let connection = locked(kept).connection.take();
    let any = connection.is_some();
    drop(connection);
    let queues = std::mem::take(&mut locked(kept).queues);
    any || !queues.is_empty()
}
