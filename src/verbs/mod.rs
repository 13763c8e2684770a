//! What libibverbs says: its declarations, the functions that its header
//! defines inline, for which there is no symbol to link to, and how it reports
//! failures.
//!
//! The minimum is libibverbs 35 (`ibv_get_device_index`). Whether and when a
//! call is made is decided in [`crate::cm`]; nothing here keeps state.

use std::ffi::c_int;

use crate::error::Error;

pub mod bindings;
pub mod dispatch;

/// A failure of a libibverbs function that returned the non-zero `status`:
/// an errno value or, from some providers, its negative or -1 and the variable
/// `errno`. To be called right after the function.
pub fn failure(status: c_int, step: &'static str) -> Error {
    match status {
        -1 => Error::last_os(step),
        _ => Error::new(status.saturating_abs(), step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_conventions_give_the_errno() {
        assert_eq!(failure(libc::ENODEV, "step").errno(), libc::ENODEV);
        assert_eq!(failure(-libc::ENODEV, "step").errno(), libc::ENODEV);
        // SAFETY: errno is always there.
        unsafe { *libc::__errno_location() = libc::EBUSY };
        assert_eq!(failure(-1, "step").errno(), libc::EBUSY);
    }
}
