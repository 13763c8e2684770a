//! Calls that come from librdmacm itself, which uses the same C library: they
//! are left alone. A thread is inside while it is in a function of librdmacm;
//! threads that librdmacm starts stay inside, and one that a signal handler takes
//! out of a call by a jump is inside no more.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::next;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs code of librdmacm.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs code of librdmacm.
pub fn enter<R>(code: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = code();
    INSIDE.set(before);
    result
}

/// Defines functions that go on elsewhere in the program, as signal handlers do
/// that do not return to the call that they interrupt.
macro_rules! jump {
    ($($name:ident)*) => {
        $(
            /// The function of this name.
            ///
            /// # Safety
            /// As the original.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(place: *mut c_void, value: c_int) -> ! {
                INSIDE.set(false);
                // SAFETY: the caller's arguments.
                unsafe {
                    next::$name(place, value);
                    // There is no such function.
                    libc::abort()
                }
            }
        )*
    };
}

jump! { longjmp _longjmp siglongjmp __longjmp_chk }

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a thread of librdmacm is to run.
struct Job {
    start: Start,
    argument: *mut c_void,
}

/// `pthread_create(3)`: threads that are started inside stay inside.
///
/// # Safety
/// As the original.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attr: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    extern "C" fn begin(job: *mut c_void) -> *mut c_void {
        // SAFETY: made below, for this thread only.
        let job = unsafe { Box::from_raw(job.cast::<Job>()) };
        INSIDE.set(true);
        let Job { start, argument } = *job;
        start(argument)
    }
    if !is_inside() {
        // SAFETY: the caller's arguments, as they are.
        return unsafe { next::pthread_create(thread, attr, start, argument) };
    }
    let job = Box::into_raw(Box::new(Job { start, argument })).cast();
    // SAFETY: the caller's arguments; `begin` takes over the job.
    let status = unsafe { next::pthread_create(thread, attr, begin, job) };
    if status != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(job.cast::<Job>()) });
    }
    status
}
