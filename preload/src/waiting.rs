//! What calls that wait have in common: how long they may, and with which
//! signals blocked.

use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use libc::{sigset_t, timespec};

use crate::next::fail;
use crate::{memory, next};

/// When a wait ends; `None` for never.
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// So many milliseconds from now; a negative number is for ever.
    pub fn from_millis(timeout: c_int) -> Self {
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        Self::after(limit)
    }

    /// So long from now; `None` is for ever.
    pub fn after(limit: Option<Duration>) -> Self {
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// What is left; `None` is for ever.
    pub fn left_exactly(&self) -> Option<timespec> {
        let left = self.0?.saturating_duration_since(Instant::now());
        Some(timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    /// What is left, in milliseconds and never too little; -1 is for ever.
    pub fn left(&self) -> c_int {
        let Some(deadline) = self.0 else {
            return -1;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let millis = left.as_nanos().div_ceil(1_000_000);
        c_int::try_from(millis).unwrap_or(c_int::MAX)
    }
}

/// Calls `wait` with a signal mask, if one is given.
///
/// # Safety
/// `mask` is null, a mask or no memory.
pub unsafe fn with_mask(mask: *const sigset_t, wait: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's mask.
    let mask = match unsafe { memory::read_one(mask) } {
        Ok(Some(mask)) => mask,
        Ok(None) => return wait(),
        Err(errno) => return fail(errno),
    };
    // SAFETY: plain data.
    let mut before: sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a mask, and room for the old one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, &mut before) };
    let result = wait();
    let errno = next::errno();
    // SAFETY: the mask as it was.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
    next::set_errno(errno);
    result
}

/// The limit that a time says; without a time there is none.
///
/// # Errors
/// `EINVAL` if it is none, `EFAULT` if it is no memory.
///
/// # Safety
/// `time` is null, a time or no memory.
pub unsafe fn limit(time: *const timespec) -> Result<Option<Duration>, c_int> {
    // SAFETY: the caller vouches for it.
    let Some(time) = (unsafe { memory::read_one(time) })? else {
        return Ok(None);
    };
    duration(time).map(Some)
}

fn duration(time: timespec) -> Result<Duration, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    match u32::try_from(time.tv_nsec) {
        Ok(nanos) if nanos < 1_000_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_never_too_little() {
        assert_eq!(Deadline::from_millis(-1).left(), -1);
        assert_eq!(Deadline::from_millis(0).left(), 0);
        for limit in [900, 2_000_000].map(Duration::from_micros) {
            let began = Instant::now();
            let left = Deadline::after(Some(limit)).left();
            let left = Duration::from_millis(u64::try_from(left).unwrap());
            // However long it took to ask.
            assert!(left + began.elapsed() >= limit);
            assert!(left < limit + Duration::from_millis(1));
        }
    }
}
