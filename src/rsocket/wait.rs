//! Sleeping until something may have changed, and waking those who sleep.
//!
//! A thread that waits registers its own eventfd with every socket it waits
//! for; whoever changes a socket writes to the eventfds registered there. So
//! no wake-up is lost when another thread takes a notification of the device,
//! and no lock is held while sleeping.

use std::cell::Cell;
use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::{Uncancelled, at_end, holding, may_end};
use crate::error::{Error, Result};
use crate::fork;
use crate::kernel::descriptor::opened;
use crate::lock::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::lock::{Mutex, locked};

use super::looking::Wait;

/// An eventfd: readable once it was signalled, until it is cleared.
#[derive(Debug)]
pub struct Wake(OwnedFd);

thread_local! {
    /// The thread's own, with the generation of forks it belongs to: a child would
    /// share its parent's.
    static OWN: Own = const { Own(RefCell::new(None)) };
}

/// A thread's own, with the generation of its process.
struct Own(RefCell<Option<(u32, Arc<Wake>)>>);

impl Drop for Own {
    fn drop(&mut self) {
        // At the end of a thread as well, which is cancelled no more then.
        let _whole = Uncancelled::throughout();
        self.0.take();
    }
}

impl Wake {
    /// A new one, not signalled.
    ///
    /// # Errors
    /// What `eventfd(2)` says.
    pub fn new() -> Result<Self> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no pointers; what it opens is nobody else's.
        unsafe { opened(libc::eventfd(0, flags), "create an eventfd") }.map(Self)
    }

    /// The calling thread's own.
    ///
    /// # Errors
    /// As for [`Wake::new`], the first time.
    pub fn of_thread() -> Result<Arc<Self>> {
        if let Some(wake) = Self::known() {
            return Ok(wake);
        }
        let wake = Arc::new(Self::new()?);
        let entry = (fork::generation(), Arc::clone(&wake));
        // A parent's descriptor may have another meaning here. A thread that
        // ends keeps none.
        let _ = OWN.try_with(|own| std::mem::forget(own.0.replace(Some(entry))));
        Ok(wake)
    }

    /// The calling thread's own, if it has ever waited.
    fn known() -> Option<Arc<Self>> {
        let current = |own: &Own| {
            own.0
                .borrow()
                .as_ref()
                .filter(|(generation, _)| *generation == fork::generation())
                .map(|(_, wake)| Arc::clone(wake))
        };
        OWN.try_with(current).ok().flatten()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        let _whole = Uncancelled::throughout();
        // SAFETY: eight readable bytes. It fails only when the counter is
        // full, and then the descriptor is readable.
        unsafe { libc::write(self.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _whole = Uncancelled::throughout();
        // SAFETY: eight writable bytes; the descriptor does not block.
        unsafe { libc::read(self.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Those who wait for a socket.
#[derive(Debug, Default)]
pub struct Waiters {
    count: AtomicUsize,
    changes: AtomicU64,
    list: Mutex<Vec<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    wake: Arc<Wake>,
    /// Where to note which socket has changed, and what it is called there.
    noted: Option<(Arc<Notes>, RawFd)>,
}

/// Which sockets of many have changed, for one who waits for all of them.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<RawFd>>);

thread_local! {
    /// The notes of the thread's own, who looks at sockets right now and so
    /// knows what it changes by that.
    static OWN_NOTES: Cell<*const Notes> = const { Cell::new(std::ptr::null()) };
}

impl Notes {
    /// Takes what was noted.
    pub fn take(&self) -> Vec<RawFd> {
        std::mem::take(&mut *locked(&self.0))
    }

    /// Whether nothing is noted.
    pub fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }

    /// Runs `look`; what changes by it is not noted here.
    pub fn without<R>(&self, look: impl FnOnce() -> R) -> R {
        OWN_NOTES.set(self);
        let result = look();
        OWN_NOTES.set(std::ptr::null());
        result
    }

    /// Returns whether it is the first.
    fn note(&self, name: RawFd) -> bool {
        let mut names = locked(&self.0);
        names.push(name);
        names.len() == 1
    }
}

impl Waiters {
    /// Registers `wake` until the result is dropped.
    pub fn register(self: &Arc<Self>, wake: &Arc<Wake>) -> Registered {
        self.add(wake, None);
        Registered {
            waiters: Arc::clone(self),
            wake: Arc::clone(wake),
        }
    }

    /// Registers `wake` until it is removed. With `noted`, it is only woken
    /// by the first change that is noted there.
    pub fn add(&self, wake: &Arc<Wake>, noted: Option<(Arc<Notes>, RawFd)>) {
        let wake = Arc::clone(wake);
        locked(&self.list).push(Waiter { wake, noted });
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes one [`Waiters::add`].
    pub fn remove(&self, wake: &Arc<Wake>) {
        let mut list = locked(&self.list);
        let place = list.iter().position(|other| Arc::ptr_eq(&other.wake, wake));
        if let Some(place) = place {
            list.swap_remove(place);
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether more than one waits.
    pub fn is_shared(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 1
    }

    /// How often the socket has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Counts a change and wakes all but the calling thread, which knows.
    pub fn notify(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let own = Wake::known();
        for waiter in locked(&self.list).iter() {
            let woken = match &waiter.noted {
                Some((notes, _)) if std::ptr::eq(Arc::as_ptr(notes), OWN_NOTES.get()) => false,
                Some((notes, name)) => notes.note(*name),
                None => own
                    .as_ref()
                    .is_none_or(|own| !Arc::ptr_eq(own, &waiter.wake)),
            };
            if woken {
                waiter.wake.signal();
            }
        }
    }
}

/// A registration with [`Waiters`].
pub struct Registered {
    waiters: Arc<Waiters>,
    wake: Arc<Wake>,
}

impl Registered {
    /// What is woken.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.waiters.remove(&self.wake);
    }
}

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
    let registered = waiters.register(&Wake::of_thread()?);
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
        if sleep(&mut entries, deadline)? == 0 {
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

/// As [`sleep`], for at most `limit`.
///
/// # Errors
/// As for [`sleep`].
pub fn sleep_for(entries: &mut [libc::pollfd], limit: Option<Duration>) -> Result<usize> {
    let limit = limit.map(timespec);
    let timeout = limit
        .as_ref()
        .map_or(std::ptr::null(), |limit| &raw const *limit);
    let (list, length) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: the entries are exclusively borrowed; the timeout is null or
    // lives until the call ends.
    let ready = may_end(|| unsafe { libc::ppoll(list, length, timeout, std::ptr::null()) });
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
    fn a_waiter_is_woken_by_others_but_not_by_itself() {
        let waiters = Arc::new(Waiters::default());
        let own = Wake::of_thread().unwrap();
        let other = Arc::new(Wake::new().unwrap());
        let _own = waiters.register(&own);
        let _other = waiters.register(&other);
        waiters.notify();
        let mut entries = [readable(own.as_raw_fd()), readable(other.as_raw_fd())];
        assert_eq!(sleep(&mut entries, Some(Instant::now())), Ok(1));
        assert_eq!(entries[0].revents, 0);
        other.clear();
        assert_eq!(sleep(&mut entries, Some(Instant::now())), Ok(0));
    }

    #[test]
    fn sleeping_ends_at_the_deadline_and_not_before() {
        let deadline = Instant::now() + Duration::from_micros(1500);
        assert_eq!(sleep(&mut [], Some(deadline)), Ok(0));
        assert!(Instant::now() >= deadline);
    }
}
