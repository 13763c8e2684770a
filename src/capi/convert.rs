//! How C is told of success and failure: the one place that sets `errno`.

use std::ffi::c_int;
use std::ptr;

use crate::cm::addrinfo::LookupError;
use crate::error::{Error, Result};

/// A value that a C function returns on success, with the convention for
/// failure that goes with its type.
pub(super) trait IntoCReturn {
    /// What the C function returns.
    type C;
    /// What it returns on failure, besides setting `errno`.
    const FAILURE: Self::C;
    /// What it returns on success.
    fn into_c(self) -> Self::C;
}

impl IntoCReturn for () {
    type C = c_int;
    const FAILURE: c_int = -1;
    fn into_c(self) -> c_int {
        0
    }
}

impl<T> IntoCReturn for *mut T {
    type C = *mut T;
    const FAILURE: *mut T = ptr::null_mut();
    fn into_c(self) -> *mut T {
        self
    }
}

impl IntoCReturn for c_int {
    type C = c_int;
    const FAILURE: c_int = -1;
    fn into_c(self) -> c_int {
        self
    }
}

impl IntoCReturn for isize {
    type C = isize;
    const FAILURE: isize = -1;
    fn into_c(self) -> isize {
        self
    }
}

/// The return value of the C function `call`; `errno` is set on failure.
#[inline]
pub(super) fn respond<T: IntoCReturn>(call: &str, result: Result<T>) -> T::C {
    match result {
        Ok(value) => value.into_c(),
        Err(error) => {
            fail(call, &error);
            T::FAILURE
        }
    }
}

#[inline(never)] // as it is rarely called
fn fail(call: &str, error: &Error) {
    report(call, error);
    set_errno(error.errno());
}

/// The return value of `rdma_getaddrinfo`: 0, or an `EAI_…` code, or -1 with
/// `errno` set.
pub(super) fn respond_to_lookup(call: &str, result: std::result::Result<(), LookupError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            log::error!("{call}: {error}");
            // Meaningful for -1 and EAI_SYSTEM; harmless otherwise.
            set_errno(error.errno());
            error.code()
        }
    }
}

/// Notes a void function that had nothing to act on.
pub(super) fn ignore(call: &str, error: &Error) {
    log::warn!("{call}: {error}; nothing done");
}

fn report(call: &str, error: &Error) {
    match error.errno() {
        // Not failures but the way non-blocking and interrupted calls return.
        libc::EAGAIN | libc::EINTR => log::trace!("{call}: {error}"),
        _ => log::error!("{call}: {error}"),
    }
}

fn set_errno(errno: i32) {
    // SAFETY: the location of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }

    #[test]
    fn integers_fail_with_minus_one_and_errno() {
        assert_eq!(respond("call", Ok(())), 0);
        let result: Result<()> = Err(Error::new(libc::ENXIO, "step"));
        assert_eq!(respond("call", result), -1);
        assert_eq!(errno(), Some(libc::ENXIO));
    }

    #[test]
    fn pointers_fail_with_null_and_errno() {
        let mut value = 5;
        let pointer = &raw mut value;
        assert_eq!(respond("call", Ok(pointer)), pointer);
        let result: Result<*mut i32> = Err(Error::new(libc::ENODEV, "step"));
        assert!(respond("call", result).is_null());
        assert_eq!(errno(), Some(libc::ENODEV));
    }

    #[test]
    fn lookups_fail_with_the_resolver_code() {
        let unknown = LookupError::from_eai(libc::EAI_NONAME);
        assert_eq!(respond_to_lookup("call", Err(unknown)), libc::EAI_NONAME);
        let failed = LookupError::from(Error::new(libc::ENODEV, "step"));
        assert_eq!(respond_to_lookup("call", Err(failed)), -1);
        assert_eq!(errno(), Some(libc::ENODEV));
    }
}
