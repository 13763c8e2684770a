//! Whose the kernel's numbers are. The kernel gives a number to a new
//! identifier while the old one may still wait for events to be acknowledged,
//! and events that it handed out before may still be on their way; so a number
//! can have several owners for a while.

use std::sync::Arc;

use super::accounting::Accounting;
use super::registry::Registry;
use crate::fork::{AcrossFork, Held};

/// What the kernel has a number for.
pub trait Numbered {
    /// Counts of its events.
    fn accounting(&self) -> &Accounting;
    /// Whether a thread has begun to destroy it.
    fn is_destroying(&self) -> bool;
}

/// The living owners of each number, the newest last.
#[derive(Debug, Default)]
pub struct Numbers<T>(Registry<Vec<Arc<T>>>);

impl<T: Send + Sync + 'static> AcrossFork for Numbers<T> {
    fn hold(&'static self) -> Held {
        self.0.hold()
    }
}

impl<T: Numbered> Numbers<T> {
    /// No number has an owner.
    pub const fn new() -> Self {
        Self(Registry::new())
    }

    /// `number` belongs to `owner` from now on.
    pub fn give(&self, number: u32, owner: &Arc<T>) {
        self.0.push(number.into(), Arc::clone(owner));
    }

    /// `number` does not belong to `owner` any more.
    pub fn take(&self, number: u32, owner: &Arc<T>) {
        self.0
            .retain(number.into(), |other| !Arc::ptr_eq(other, owner));
    }

    /// The owner of an event that the kernel names by `number` only; the event
    /// is counted as arrived there.
    ///
    /// Owners that are being destroyed come first: each knows how many events
    /// of its own are still on their way. Events of the same number need not be
    /// told apart, as long as each owner gets as many as were reported for it.
    pub fn receive(&self, number: u32) -> Option<Arc<T>> {
        let mut newest: Option<Arc<T>> = None;
        loop {
            let owners = self.0.get(number.into())?;
            let last = owners.last().cloned()?;
            let claimed = owners
                .into_iter()
                .find(|owner| owner.accounting().claim(|| owner.is_destroying()));
            if claimed.is_some() {
                return claimed;
            }
            // All have theirs, so the number has a new owner by now.
            if newest.is_some_and(|newest| Arc::ptr_eq(&newest, &last)) {
                return None;
            }
            newest = Some(last);
        }
    }
}
