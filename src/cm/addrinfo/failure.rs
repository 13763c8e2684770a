//! Why a lookup failed. Names are looked up by libc, whose codes are not
//! errnos; C callers of `rdma_getaddrinfo(3)` get them unchanged, all others
//! the errno that comes closest.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::error::Error;

/// A failed lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// libc could not resolve the name.
    Resolver {
        /// An `EAI_…` code other than `EAI_SYSTEM`.
        code: c_int,
    },
    /// libc met a system error (`EAI_SYSTEM`).
    System(Error),
    /// Anything else failed.
    Other(Error),
}

impl LookupError {
    /// The failure that libc's `getaddrinfo(3)` has just reported as `code`.
    pub fn from_eai(code: c_int) -> Self {
        match code {
            libc::EAI_SYSTEM => Self::System(Error::last_os("resolve the name")),
            code => Self::Resolver { code },
        }
    }

    /// What `rdma_getaddrinfo(3)` returns: libc's code, or -1.
    pub fn code(&self) -> c_int {
        match self {
            Self::Resolver { code } => *code,
            Self::System(_) => libc::EAI_SYSTEM,
            Self::Other(_) => -1,
        }
    }

    /// The errno that comes closest.
    pub fn errno(&self) -> i32 {
        Error::from(*self).errno()
    }
}

impl From<Error> for LookupError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<LookupError> for Error {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Resolver { code } => {
                let errno = match code {
                    libc::EAI_NONAME => libc::ENOENT,
                    libc::EAI_AGAIN => libc::EAGAIN,
                    libc::EAI_MEMORY => libc::ENOMEM,
                    _ => libc::EINVAL,
                };
                Self::new(errno, "resolve the name")
            }
            LookupError::System(error) | LookupError::Other(error) => error,
        }
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolver { code } => {
                // SAFETY: returns a constant string for any code.
                let text = unsafe { CStr::from_ptr(libc::gai_strerror(*code)) };
                write!(f, "resolve the name: {}", text.to_string_lossy())
            }
            Self::System(error) | Self::Other(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LookupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolver_codes_have_an_errno() {
        let errno = |code| LookupError::from_eai(code).errno();
        assert_eq!(errno(libc::EAI_NONAME), libc::ENOENT);
        assert_eq!(errno(libc::EAI_AGAIN), libc::EAGAIN);
        assert_eq!(errno(libc::EAI_MEMORY), libc::ENOMEM);
        assert_eq!(errno(libc::EAI_SOCKTYPE), libc::EINVAL);
        assert_eq!(errno(12345), libc::EINVAL);
    }

    #[test]
    fn codes_reach_c_unchanged() {
        assert_eq!(
            LookupError::from_eai(libc::EAI_SERVICE).code(),
            libc::EAI_SERVICE
        );
        assert_eq!(
            LookupError::from_eai(libc::EAI_SYSTEM).code(),
            libc::EAI_SYSTEM
        );
        assert_eq!(LookupError::from(Error::invalid("step")).code(), -1);
    }

    #[test]
    fn a_failed_name_is_described_in_words() {
        let text = LookupError::from_eai(libc::EAI_NONAME).to_string();
        assert!(text.starts_with("resolve the name: "), "{text}");
        assert!(text.contains("not known"), "{text}");
    }
}
