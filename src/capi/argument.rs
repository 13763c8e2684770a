//! Turning the arguments of C functions into references and typed values,
//! or into a refusal.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::rdma_cm_id;
use crate::cm::id::Id;
use crate::diag;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;

/// Notes a call that needs no identifier. Such calls are what a program
/// starts with, so the log is turned on here.
pub(super) fn enter(call: &str) {
    diag::initialise();
    log::trace!("{call}");
}

/// Memory that a call which allocates must find, in bytes: more than any needs
/// that is not asked for much.
const RESERVE: usize = 16 * 1024;

/// Refuses a call while memory is short. This is all that the library does
/// about a lack of memory, and no guarantee: another thread may take what was
/// found.
///
/// Rust ends the process when an allocation fails, and allocations that may
/// fail cannot take this place: stable Rust has none for what is shared
/// between threads (`Arc`), as identifiers are, and an event that the kernel
/// has handed out must not be lost for lack of memory. It costs some 300
/// instructions per call, so calls that allocate nothing do without.
pub(super) fn memory() -> Result<()> {
    // SAFETY: malloc is always sound to call.
    // The compiler must not leave both calls out.
    let reserve = std::hint::black_box(unsafe { libc::malloc(RESERVE) });
    if reserve.is_null() {
        return Err(Error::new(libc::ENOMEM, "find memory for the call"));
    }
    // SAFETY: just allocated, nobody else's.
    unsafe { libc::free(reserve) };
    Ok(())
}

/// Notes a call that may allocate and finds the living identifier that it is to
/// work on.
pub(super) fn identifier(call: &str, id: *const rdma_cm_id) -> Result<Arc<Id>> {
    memory()?;
    existing(call, id)
}

/// As [`identifier`] for a call that allocates only while it waits for an
/// event, in synchronous mode.
pub(super) fn waiting(call: &str, id: *const rdma_cm_id) -> Result<Arc<Id>> {
    let found = existing(call, id)?;
    if found.is_synchronous() {
        memory()?;
    }
    Ok(found)
}

/// As [`identifier`] for a call that allocates nothing, or leaves it to
/// libibverbs, which says so when it cannot.
pub(super) fn existing(call: &str, id: *const rdma_cm_id) -> Result<Arc<Id>> {
    let found = Id::from_pointer(id);
    match &found {
        Ok(found) => log::trace!("{call} on {found}"),
        Err(_) => log::trace!("{call} on {id:p}, which is no living identifier"),
    }
    found
}

/// A place to which a result is to be written.
pub(super) fn place<T>(pointer: *mut T, step: &'static str) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or(Error::invalid(step))
}

/// A copy of a socket address that must be there.
///
/// # Safety
/// As for [`SockAddr::from_ptr`].
pub(super) unsafe fn address(pointer: *const libc::sockaddr) -> Result<SockAddr> {
    // SAFETY: the caller vouches for the pointer.
    unsafe { SockAddr::from_ptr(pointer) }.ok_or(Error::invalid(
        "read the address: null or of an unknown family",
    ))
}

/// A copy of a socket address that may be left out.
///
/// # Safety
/// As for [`SockAddr::from_ptr`].
pub(super) unsafe fn optional_address(pointer: *const libc::sockaddr) -> Result<Option<SockAddr>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for the pointer.
    unsafe { address(pointer) }.map(Some)
}

/// Private data; null means none.
///
/// # Safety
/// `data` is null or readable for `len` bytes during `'a`.
pub(super) unsafe fn private_data<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: not null; the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(data.cast(), usize::from(len)) }
}

/// A string that may be left out.
///
/// # Safety
/// `pointer` is null or a string that ends with NUL and lives during `'a`.
pub(super) unsafe fn optional_string<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null; the caller vouches for the rest.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_arguments_are_refused_or_empty() {
        // SAFETY: null is allowed for all of them.
        unsafe {
            assert!(address(std::ptr::null()).is_err());
            assert_eq!(optional_address(std::ptr::null()), Ok(None));
            assert!(private_data(std::ptr::null(), 9).is_empty());
            assert!(optional_string(std::ptr::null()).is_none());
        }
        assert!(place::<i32>(std::ptr::null_mut(), "step").is_err());
        assert!(identifier("call", std::ptr::null()).is_err());
    }

    #[test]
    fn a_foreign_address_family_is_refused() {
        let foreign = libc::sockaddr {
            sa_family: libc::AF_UNIX as u16,
            sa_data: [0; 14],
        };
        // SAFETY: a readable address; its family has no known length.
        let result = unsafe { optional_address(&foreign) };
        assert_eq!(result.map_err(|error| error.errno()), Err(libc::EINVAL));
    }
}
