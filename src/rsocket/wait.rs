//! Sleeping until something may have changed. No lock is held meanwhile. Those who
//! sleep are known to [`super::waiters`], and look for a while before
//! ([`super::looking`]).

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::{Uncancelled, at_end, holding, may_end};
use crate::error::{Error, Result};

use super::looking::Wait;
use super::waiters::Waiters;
use super::wake::Wake;

/// What threads wait for. A thread that waits has one counted reference to it, on its
/// stack.
pub trait Awaited {
    /// Lets go of that reference, when the thread has ended where it slept.
    ///
    /// # Safety
    /// It lies in an [`Arc`], and the caller takes over a counted reference.
    unsafe fn let_go(this: *const Self);
}

/// Runs `body`, in which the calling thread sleeps and may end: `awaited` is let go
/// then.
pub fn sleeping<T: Awaited + 'static, R>(awaited: &T, body: impl FnOnce() -> R) -> R {
    let awaited: *const T = awaited;
    // SAFETY: the thread has ended, and its reference has no other owner.
    at_end(move || unsafe { T::let_go(awaited) }, body)
}

/// What tells of completions that nobody has looked at yet.
pub trait Notifier {
    /// Looks at what has completed; returns whether an attempt may succeed now
    /// that failed before. Costs less than such an attempt, if it can.
    fn look(&self) -> bool;

    /// Descriptor to sleep on after [`Notifier::arm`].
    fn notification_fd(&self) -> RawFd;

    /// Makes sure that the next completion wakes those who sleep on the
    /// descriptor. Returns whether that was not so before: then what has
    /// completed meanwhile is to be looked at. If the device cannot, what
    /// stands behind it is broken, which is to be looked at as well.
    fn arm(&self) -> bool;

    /// Takes the notification that made the descriptor readable.
    fn take_notification(&self);
}

/// Tries until `attempt` does not fail with `EAGAIN`, sleeping in between
/// unless `nonblocking`, until `deadline`. Those who change what it depends on
/// tell `waiters`, those of `awaited`; the device tells `notifier`. The thread may be
/// cancelled while it sleeps.
///
/// # Errors
/// Those of `attempt`, `EINTR`; `EAGAIN` at the deadline.
pub fn wait_for<T: Awaited + 'static, R>(
    awaited: &T,
    waiters: &Arc<Waiters>,
    notifier: Option<&dyn Notifier>,
    nonblocking: bool,
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Result<R>,
) -> Result<R> {
    let first = attempt();
    if nonblocking || !again(&first) {
        return first;
    }
    wait_longer(awaited, waiters, notifier, deadline, &mut attempt)
}

/// Whether an attempt was in vain.
pub fn again<R>(result: &Result<R>) -> bool {
    matches!(result, Err(error) if error.errno() == libc::EAGAIN)
}

/// As [`wait_for`], after an attempt that was in vain.
///
/// # Errors
/// As for [`wait_for`].
#[cold]
pub fn wait_longer<T: Awaited + 'static, R>(
    awaited: &T,
    waiters: &Arc<Waiters>,
    notifier: Option<&dyn Notifier>,
    deadline: Option<Instant>,
    attempt: &mut dyn FnMut() -> Result<R>,
) -> Result<R> {
    let mut wait = notifier.map_or_else(Wait::blind, |_| Wait::adaptive(1, deadline));
    // The first look finds what has changed since the attempt.
    let mut seen = None;
    while wait.looks_again() {
        let happened = notifier.is_some_and(Notifier::look);
        let changes = Some(waiters.changes());
        if !happened && changes == seen {
            continue;
        }
        seen = changes;
        let result = attempt();
        if !again(&result) {
            wait.found();
            return result;
        }
    }
    let _uncancelled = Uncancelled::but_in_sleeps();
    let registered = waiters.register(&Wake::of_thread());
    wait.sleeps();
    sleeping(awaited, || {
        holding(registered, |registered| {
            sleep_until(registered.wake(), notifier, deadline, wait, attempt)
        })
    })
}

/// The sleeps of [`wait_longer`], which end by `wake` and by `notifier`.
fn sleep_until<R>(
    wake: &Wake,
    notifier: Option<&dyn Notifier>,
    deadline: Option<Instant>,
    wait: Wait,
    attempt: &mut dyn FnMut() -> Result<R>,
) -> Result<R> {
    let notification = notifier.map_or(-1, Notifier::notification_fd);
    loop {
        if let Some(notifier) = notifier {
            notifier.arm();
        }
        let result = attempt();
        if !again(&result) {
            wait.woken();
            return result;
        }
        let mut entries = [readable(wake.as_raw_fd()), readable(notification)];
        if !sleep_on(wake, &mut entries, deadline)? {
            return result;
        }
        let [woken, notified] = entries;
        if woken.revents != 0 {
            wake.clear();
        }
        if notified.revents != 0
            && let Some(notifier) = notifier
        {
            notifier.take_notification();
        }
        // Armed again only for another sleep: what comes while the program is
        // at work with this needs no notification.
        let result = attempt();
        if !again(&result) {
            wait.woken();
            return result;
        }
    }
}

/// An entry for [`sleep`] that waits for a descriptor to become readable;
/// negative descriptors are ignored.
pub fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Sleeps until an entry is ready or `deadline`; returns how many are.
///
/// # Errors
/// `EINTR` if a signal came, else what `ppoll(2)` says.
pub fn sleep(entries: &mut [libc::pollfd], deadline: Option<Instant>) -> Result<usize> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    sleep_for(entries, left)
}

/// How long a thread sleeps that nobody can wake.
const NAP: Duration = Duration::from_millis(20);

/// As [`sleep`], for a thread that is woken by `wake`, which is among the entries.
/// Without a descriptor for that, it wakes by itself after a while. Returns `false` at
/// the deadline.
///
/// # Errors
/// As for [`sleep`].
pub fn sleep_on(
    wake: &Wake,
    entries: &mut [libc::pollfd],
    deadline: Option<Instant>,
) -> Result<bool> {
    if wake.works() {
        return Ok(sleep(entries, deadline)? > 0);
    }
    let nap = Instant::now().checked_add(NAP);
    let ready = sleep(entries, nap.into_iter().chain(deadline).min())?;
    Ok(ready > 0 || deadline.is_none_or(|deadline| deadline > Instant::now()))
}

/// As [`sleep`], for at most `limit`. With none at all it is no sleep, in which a thread
/// could end.
///
/// # Errors
/// As for [`sleep`].
pub fn sleep_for(entries: &mut [libc::pollfd], limit: Option<Duration>) -> Result<usize> {
    let at_once = limit == Some(Duration::ZERO);
    let limit = limit.map(timespec);
    let timeout = limit
        .as_ref()
        .map_or(std::ptr::null(), |limit| &raw const *limit);
    let (list, length) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: the entries are exclusively borrowed; the timeout is null or
    // lives until the call ends.
    let ask = || unsafe { libc::ppoll(list, length, timeout, std::ptr::null()) };
    let ready = match at_once {
        true => ask(),
        false => may_end(ask),
    };
    usize::try_from(ready).map_err(|_| Error::last_os("wait for descriptors"))
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Now plus a timeout in milliseconds; `None`, which means no end, for a
/// negative one.
pub fn deadline_after(timeout_ms: i32) -> Option<Instant> {
    let timeout = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_ends_at_the_deadline_and_not_before() {
        let deadline = Instant::now() + Duration::from_micros(1500);
        assert_eq!(sleep(&mut [], Some(deadline)), Ok(0));
        assert!(Instant::now() >= deadline);
    }
}
