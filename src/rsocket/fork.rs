//! What a forked child may use: nothing of its parent's. The threads that
//! serve sockets are not in the child, and its devices write to memory that
//! both share; so the child sees its parent's sockets as closed, and starts
//! anew when it creates its own.

use std::sync::Once;

use crate::cm::device;
use crate::error::Result;
use crate::lock::atomic::{AtomicU32, Ordering};
use crate::lock::{Mutex, locked};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How often this process, or its parents, have forked since the first socket.
/// What was made in another generation is a parent's.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Counts forks from now on; in a child, leaves to the parent what it has.
pub fn enter() {
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler only counts, which is safe in a child.
        let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if status != 0 {
            log::warn!("forks are not noticed: errno {status}");
        }
    });
    /// The generation that was in here last.
    static ENTERED: AtomicU32 = AtomicU32::new(0);
    if ENTERED.swap(generation(), Ordering::Relaxed) != generation() {
        // The kernel refuses commands of a child on its parent's contexts.
        device::abandon();
    }
}

/// Something that each process makes for itself when it first needs it, a
/// thread for example. A child leaves its parent's alone, and never frees it.
#[derive(Debug)]
pub struct PerProcess<T: 'static>(Mutex<Option<(u32, &'static T)>>);

impl<T> PerProcess<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What this process has made, if it has.
    pub fn get(&self) -> Option<&'static T> {
        let current = *locked(&self.0);
        current
            .filter(|(made, _)| *made == generation())
            .map(|(_, value)| value)
    }

    /// What this process has made, or makes now.
    ///
    /// # Errors
    /// Those of `make`; the next call tries again.
    pub fn get_or_try_init(&self, make: impl FnOnce() -> Result<&'static T>) -> Result<&'static T> {
        let mut current = locked(&self.0);
        if let Some((made, value)) = *current
            && made == generation()
        {
            return Ok(value);
        }
        let value = make()?;
        *current = Some((generation(), value));
        Ok(value)
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}
