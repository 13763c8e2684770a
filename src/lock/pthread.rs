//! Locks of the C library with the interface of the standard library's, as far
//! as the connection manager uses it. For builds that a thread checker watches.
//!
//! A checker knows what the functions of the C library order. It takes an
//! atomic operation that reads and writes for a read, which is why storing is
//! done by one here.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::LockResult;
use std::time::Duration;

use super::clean;

/// `std::sync::Mutex` on `pthread_mutex_t`.
pub struct Mutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the thread that holds the lock.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// `std::sync::MutexGuard`.
pub struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        // SAFETY: an initialised lock that stays where it is while borrowed.
        unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        Ok(MutexGuard(self))
    }
}

impl<T> Drop for Mutex<T> {
    fn drop(&mut self) {
        // Whoever drops comes after all others, by the reference counts that
        // lead here. A checker does not see that in them, but in this.
        drop(self.lock());
        // SAFETY: nobody holds the lock, since nobody borrows it.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed once.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.0.raw.get()) };
    }
}

/// `std::sync::Condvar` on `pthread_cond_t`.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: made to be used by several threads.
unsafe impl Send for Condvar {}
// SAFETY: as for `Send`.
unsafe impl Sync for Condvar {}

/// `std::sync::WaitTimeoutResult`.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// Waits for a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        // SAFETY: both are initialised and stay where they are; the lock is
        // held and is held again afterwards.
        unsafe { libc::pthread_cond_wait(self.0.get(), guard.0.raw.get()) };
        Ok(guard)
    }

    /// Waits for a notification, but not longer than `limit`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mut until = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the place is valid.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut until) };
        let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        until.tv_sec = until.tv_sec.saturating_add(seconds);
        until.tv_nsec = until.tv_nsec.saturating_add(limit.subsec_nanos().into());
        if until.tv_nsec >= 1_000_000_000 {
            until.tv_nsec -= 1_000_000_000;
            until.tv_sec = until.tv_sec.saturating_add(1);
        }
        // SAFETY: as for `wait`.
        let status =
            unsafe { libc::pthread_cond_timedwait(self.0.get(), guard.0.raw.get(), &until) };
        Ok((guard, WaitTimeoutResult(status == libc::ETIMEDOUT)))
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_signal(self.0.get()) };
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_broadcast(self.0.get()) };
    }
}

impl Drop for Condvar {
    fn drop(&mut self) {
        // SAFETY: nobody waits, since nobody borrows it.
        unsafe { libc::pthread_cond_destroy(self.0.get()) };
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

/// `std::sync::RwLock`, but one thread at a time may read. helgrind orders what a
/// reader reads after what was written before it got the lock, but not what it
/// writes: it reports a reader that finds a device which another thread has
/// opened, and goes on to use a lock inside that nobody has used before.
#[derive(Debug)]
pub struct RwLock<T>(Mutex<T>);

/// `std::sync::RwLockReadGuard`.
pub struct RwLockReadGuard<'a, T>(MutexGuard<'a, T>);
/// `std::sync::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T>(MutexGuard<'a, T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for access that does not change the value.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        Ok(RwLockReadGuard(clean(self.0.lock())))
    }

    /// Waits for access.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        Ok(RwLockWriteGuard(clean(self.0.lock())))
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// `once_cell::sync::OnceCell`, with a lock taken at each access.
pub struct OnceCell<T>(Mutex<Option<T>>);

impl<T> OnceCell<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        let value = clean(self.0.lock());
        // SAFETY: once set the value stays until the cell is borrowed mutably
        // or dropped, which the result's lifetime rules out.
        value
            .as_ref()
            .map(|value| unsafe { &*std::ptr::from_ref(value) })
    }

    /// The value, made by `make` at the first success.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let mut value = clean(self.0.lock());
        let value = match &mut *value {
            Some(value) => value,
            empty => empty.insert(make()?),
        };
        // SAFETY: as for `get`.
        Ok(unsafe { &*std::ptr::from_ref(value) })
    }

    /// Gives it the value, unless it has one: then that comes back.
    pub fn set(&self, value: T) -> Result<(), T> {
        match &mut *clean(self.0.lock()) {
            Some(_) => Err(value),
            empty => {
                *empty = Some(value);
                Ok(())
            }
        }
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        let mut value = clean(self.0.lock());
        value.take()
    }
}

impl<T> std::fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnceCell").finish_non_exhaustive()
    }
}

/// `once_cell::race::OnceBox`, with a lock taken at each access.
#[derive(Debug)]
pub struct OnceBox<T>(OnceCell<Box<T>>);

impl<T> OnceBox<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.0.get().map(Box::as_ref)
    }

    /// The value, made by `make` at the first success.
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<Box<T>, E>) -> Result<&T, E> {
        self.0.get_or_try_init(make).map(Box::as_ref)
    }
}

/// Atomic values whose stores a checker takes for what they are.
pub mod atomic {
    pub use std::sync::atomic::Ordering;

    macro_rules! stored {
        ($($name:ident: $type:ty;)*) => {$(
            #[doc = concat!("`std::sync::atomic::", stringify!($name), "`.")]
            #[derive(Debug, Default)]
            pub struct $name(std::sync::atomic::$name);

            #[allow(dead_code, reason = "all types have the same functions")]
            impl $name {
                /// A value.
                pub const fn new(value: $type) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                /// Reads it.
                pub fn load(&self, ordering: Ordering) -> $type {
                    self.0.load(ordering)
                }

                /// Writes it.
                pub fn store(&self, value: $type, ordering: Ordering) {
                    self.0.swap(value, ordering);
                }

                /// Writes it and returns what it was.
                pub fn swap(&self, value: $type, ordering: Ordering) -> $type {
                    self.0.swap(value, ordering)
                }

                /// Writes it if it is `expected`; returns what it was, as an error
                /// if that is something else.
                pub fn compare_exchange(
                    &self,
                    expected: $type,
                    value: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    self.0.compare_exchange(expected, value, success, failure)
                }
            }
        )*};
    }

    macro_rules! counted {
        ($($name:ident: $type:ty;)*) => {$(
            #[allow(dead_code, reason = "all types have the same functions")]
            impl $name {
                /// Adds to it and returns what it was.
                pub fn fetch_add(&self, value: $type, ordering: Ordering) -> $type {
                    self.0.fetch_add(value, ordering)
                }

                /// Takes from it and returns what it was.
                pub fn fetch_sub(&self, value: $type, ordering: Ordering) -> $type {
                    self.0.fetch_sub(value, ordering)
                }
            }
        )*};
    }

    stored! {
        AtomicBool: bool;
        AtomicI32: i32;
        AtomicU32: u32;
        AtomicU64: u64;
        AtomicUsize: usize;
    }

    counted! {
        AtomicU32: u32;
        AtomicU64: u64;
        AtomicUsize: usize;
    }
}
