//! Which identifiers are alive: found by the address of the public head,
//! which programs pass in and which is also the number that the kernel hands
//! back with events, and by the kernel's own number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::rdma_cm_id;
use crate::cm::registry::Registry;
use crate::error::{Error, Result};

use super::Id;

/// Every living identifier by the address of its public head.
static BY_ADDRESS: Registry<Arc<Id>> = Registry::new();
/// Every living identifier by the kernel's number for it.
static BY_HANDLE: Registry<Arc<Id>> = Registry::new();

impl Id {
    /// Makes a new identifier, to which the kernel gave a number, known.
    pub(super) fn publish(self: &Arc<Self>, handle: u32) {
        self.handle.store(handle, Ordering::Release);
        BY_ADDRESS.insert(self.uid(), Arc::clone(self));
        BY_HANDLE.insert(u64::from(handle), Arc::clone(self));
    }

    /// Makes an identifier unknown.
    pub(super) fn unpublish(self: &Arc<Self>) {
        BY_ADDRESS.remove(self.uid());
        BY_HANDLE.remove_if(u64::from(self.handle()), |other| Arc::ptr_eq(self, other));
    }

    /// Gives an identifier, whose kernel object was replaced, its new number.
    pub(super) fn renumber(self: &Arc<Self>, handle: u32) {
        let old = self.handle.swap(handle, Ordering::AcqRel);
        BY_HANDLE.remove_if(u64::from(old), |other| Arc::ptr_eq(self, other));
        BY_HANDLE.insert(u64::from(handle), Arc::clone(self));
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

    /// The living identifier that the kernel numbers `handle`.
    pub fn by_handle(handle: u32) -> Option<Arc<Self>> {
        BY_HANDLE.get(u64::from(handle))
    }

    /// The number by which the kernel's events name this identifier.
    pub fn uid(&self) -> u64 {
        self.as_pointer() as u64
    }
}
