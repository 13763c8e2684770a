//! The one error type of the crate: an errno and the step that failed.
//!
//! Turning it into a C convention (`-1` and the variable `errno`, a null
//! pointer, an event status) is the business of [`crate::capi`] and
//! [`crate::cm::event`], not of this module.

use std::fmt;
use std::io;

/// The result of everything that can fail in the core.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure: which errno describes it and which step met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    errno: i32,
    step: &'static str,
}

impl Error {
    /// A failure of `step` that is described by the positive errno value
    /// `errno`. A value that is no errno (zero or negative) becomes `EIO`, so
    /// that a failure can never be mistaken for success.
    pub const fn new(errno: i32, step: &'static str) -> Self {
        let errno = if errno > 0 { errno } else { libc::EIO };
        Self { errno, step }
    }

    /// A failure of `step` for the reason that libc's `errno` holds now.
    pub fn last_os(step: &'static str) -> Self {
        Self::from_io(&io::Error::last_os_error(), step)
    }

    /// A failure of `step` that the standard library reported.
    pub fn from_io(error: &io::Error, step: &'static str) -> Self {
        Self::new(error.raw_os_error().unwrap_or(libc::EIO), step)
    }

    /// An invalid argument or a call in the wrong state: `EINVAL`.
    pub const fn invalid(step: &'static str) -> Self {
        Self::new(libc::EINVAL, step)
    }

    /// The positive errno value.
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// The step that failed, in words for a log line.
    pub const fn step(&self) -> &'static str {
        self.step
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        write!(f, "{}: {cause}", self.step)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_never_looks_like_success() {
        assert_eq!(Error::new(0, "step").errno(), libc::EIO);
        assert_eq!(Error::new(-5, "step").errno(), libc::EIO);
        assert_eq!(Error::new(libc::ENODEV, "step").errno(), libc::ENODEV);
    }

    #[test]
    fn display_names_step_and_cause() {
        let text = Error::new(libc::ENODEV, "find a device").to_string();
        assert!(text.starts_with("find a device: No such device"), "{text}");
    }
}
