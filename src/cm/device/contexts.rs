//! The arrays of device contexts that `rdma_get_devices(3)` hands out. Each
//! keeps its devices open until it is given back.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::size_of;
use std::ptr;
use std::sync::Arc;

use crate::cm::library;
use crate::error::{Error, Result};
use crate::lock::{Mutex, locked};
use crate::verbs::bindings::ibv_context;

use super::list::all;
use super::opened::Device;

/// The devices in each array that [`contexts`] handed out, by its address.
pub(in crate::cm) static HANDED_OUT: Mutex<BTreeMap<usize, Vec<Arc<Device>>>> =
    Mutex::new(BTreeMap::new());

/// The contexts of all devices, for `rdma_get_devices(3)`: an array from
/// `malloc` that ends with a null pointer, and the number of contexts before
/// that. Devices that cannot be opened are left out. Each listed device stays
/// open until [`release_contexts`].
///
/// # Errors
/// `ENODEV` if there is no device, `ENXIO` if none has a node, `EPERM` if the
/// kernel's connection manager speaks another ABI, `ENOMEM`.
pub fn contexts() -> Result<(*mut *mut ibv_context, c_int)> {
    library::char_device()?;
    let devices = all()?;
    let count = devices.len();
    let bytes = count
        .saturating_add(1)
        .saturating_mul(size_of::<*mut ibv_context>());
    // SAFETY: malloc is always sound to call.
    let array = unsafe { libc::malloc(bytes) }.cast::<*mut ibv_context>();
    if array.is_null() {
        return Err(Error::new(libc::ENOMEM, "allocate the list of devices"));
    }
    let ends = devices
        .iter()
        .map(|device| device.context())
        .chain([ptr::null_mut()]);
    for (place, context) in ends.enumerate() {
        // SAFETY: the array has room for all devices and the end mark.
        unsafe { array.add(place).write(context) };
    }
    locked(&HANDED_OUT).insert(array as usize, devices);
    Ok((array, c_int::try_from(count).unwrap_or(c_int::MAX)))
}

/// Takes back an array of [`contexts`]. Devices that vanished in the meantime
/// are closed if it held the last reference. Null, and what is no such array,
/// is left alone.
pub fn release_contexts(array: *mut *mut ibv_context) {
    if array.is_null() {
        return;
    }
    let devices = locked(&HANDED_OUT).remove(&(array as usize));
    if devices.is_none() {
        log::warn!("a list that is none of the library's is not freed");
        return;
    }
    // SAFETY: registered, so it came from malloc in `contexts` and was not
    // freed before.
    unsafe { libc::free(array.cast()) };
}
