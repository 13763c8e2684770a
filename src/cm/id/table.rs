//! Which identifiers are alive: found by the address of the public head,
//! which programs pass in and which is also the number that the kernel hands
//! back with events, and by the kernel's own number.

use std::sync::Arc;

use crate::abi::rdma_cm_id;
use crate::cm::accounting::Accounting;
use crate::cm::numbers::{Numbered, Numbers};
use crate::cm::registry::Registry;
use crate::error::{Error, Result};
use crate::lock::atomic::Ordering;

use super::Id;

/// Every living identifier by the address of its public head.
pub(in crate::cm) static BY_ADDRESS: Registry<Arc<Id>> = Registry::new();
/// Every living identifier by the kernel's number for it.
pub(in crate::cm) static BY_HANDLE: Numbers<Id> = Numbers::new();

impl Numbered for Id {
    fn accounting(&self) -> &Accounting {
        Self::accounting(self)
    }

    fn is_destroying(&self) -> bool {
        Self::is_destroying(self)
    }
}

impl Id {
    /// Makes a new identifier, to which the kernel gave a number, known.
    pub(super) fn publish(self: &Arc<Self>, handle: u32) {
        self.handle.store(handle, Ordering::Release);
        BY_ADDRESS.insert(self.uid(), Arc::clone(self));
        BY_HANDLE.give(handle, self);
    }

    /// Makes an identifier unknown.
    pub(super) fn unpublish(self: &Arc<Self>) {
        BY_ADDRESS.remove(self.uid());
        BY_HANDLE.take(self.handle(), self);
    }

    /// Gives an identifier, whose kernel object was replaced, its new number.
    pub(super) fn renumber(self: &Arc<Self>, handle: u32) {
        let old = self.handle.swap(handle, Ordering::AcqRel);
        BY_HANDLE.take(old, self);
        BY_HANDLE.give(handle, self);
    }

    /// The living identifier whose public head is at `pointer`.
    ///
    /// # Errors
    /// `EINVAL` if there is none: null, freed or foreign memory.
    pub fn from_pointer(pointer: *const rdma_cm_id) -> Result<Arc<Self>> {
        Self::by_uid(pointer as u64).ok_or(Error::invalid("look up the identifier"))
    }

    /// The living identifier that the kernel knows by `uid`.
    pub fn by_uid(uid: u64) -> Option<Arc<Self>> {
        BY_ADDRESS.get(uid)
    }

    /// The identifier of an event that names it by the kernel's number only;
    /// the event is counted as arrived there.
    pub(in crate::cm) fn receive_by_handle(handle: u32) -> Option<Arc<Self>> {
        BY_HANDLE.receive(handle)
    }

    /// The identifier of an event that names it by `uid` and by the kernel's
    /// number; the event is counted as arrived there. `None` as well if the
    /// event is of a kernel object that the identifier has replaced; such an
    /// event is acknowledged.
    pub(in crate::cm) fn receive(uid: u64, handle: u32) -> Option<Arc<Self>> {
        let id = Self::by_uid(uid)?;
        let former = id.handle() != handle;
        if former && !id.state().former_handles.contains(&handle) {
            return None;
        }
        id.accounting().arrive();
        if former {
            log::debug!("{id}: an event of its former self dropped");
            id.accounting().complete();
            return None;
        }
        Some(id)
    }

    /// The number by which the kernel's events name this identifier.
    pub fn uid(&self) -> u64 {
        self.as_pointer() as u64
    }
}
