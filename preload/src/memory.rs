//! Memory that a program points to, read and written as the kernel does it: what
//! is not there is `EFAULT` and no crash.

use std::ffi::c_int;

use libc::{iovec, ssize_t};

use crate::next;

/// Copies between two places of this process.
type Copy = unsafe extern "C" fn(
    libc::pid_t,
    *const iovec,
    libc::c_ulong,
    *const iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> ssize_t;

/// Has the kernel copy `length` bytes between `own`, which is there, and
/// `foreign`. `false` if it may not, as in some containers.
fn copy(by: Copy, own: *mut u8, foreign: *mut u8, length: usize) -> Result<bool, c_int> {
    if length == 0 {
        return Ok(true);
    }
    let place = |base: *mut u8| iovec {
        iov_base: base.cast(),
        iov_len: length,
    };
    let errno = next::errno();
    // SAFETY: one place each. The kernel checks the foreign one.
    let copied = unsafe { by(libc::getpid(), &place(own), 1, &place(foreign), 1, 0) };
    let failed = next::errno();
    next::set_errno(errno);
    match usize::try_from(copied) {
        Ok(copied) if copied == length => Ok(true),
        Ok(_) => Err(libc::EFAULT),
        Err(_) if matches!(failed, libc::EPERM | libc::ENOSYS) => Ok(false),
        Err(_) => Err(libc::EFAULT),
    }
}

/// Fills `to` from where `from` points to.
///
/// # Errors
/// `EFAULT` if not all of it can be read.
///
/// # Safety
/// What is there is of that type. It may be no memory at all.
pub unsafe fn read<T: std::marker::Copy>(from: *const T, to: &mut [T]) -> Result<(), c_int> {
    let own = to.as_mut_ptr().cast();
    let length = size_of_val(to);
    if !copy(libc::process_vm_readv, own, from.cast_mut().cast(), length)? {
        // SAFETY: the caller vouches for it, since nobody can check.
        unsafe { std::ptr::copy(from.cast::<u8>(), own, length) };
    }
    Ok(())
}

/// What `from` points to; `None` if it is null.
///
/// # Errors
/// `EFAULT` if it cannot be read.
///
/// # Safety
/// As for [`read`].
pub unsafe fn read_one<T: std::marker::Copy>(from: *const T) -> Result<Option<T>, c_int> {
    if from.is_null() {
        return Ok(None);
    }
    let mut place = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: all-zero bytes, which are replaced before anybody looks at them.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(place.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the caller vouches for it.
    unsafe { read(from.cast(), bytes) }?;
    // SAFETY: a copy of what the caller vouches for.
    Ok(Some(unsafe { place.assume_init() }))
}

/// Copies `from` to where `to` points to.
///
/// # Errors
/// `EFAULT` if not all of it can be written.
///
/// # Safety
/// What is there is the caller's. It may be no memory at all.
pub unsafe fn write<T: std::marker::Copy>(to: *mut T, from: &[T]) -> Result<(), c_int> {
    let own: *mut u8 = from.as_ptr().cast_mut().cast();
    let length = size_of_val(from);
    if !copy(libc::process_vm_writev, own, to.cast(), length)? {
        // SAFETY: the caller vouches for it, since nobody can check.
        unsafe { std::ptr::copy(own, to.cast::<u8>(), length) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_copied_and_the_rest_refused() {
        let mut place = [1u32, 2];
        let mut got = [0u32; 2];
        let nowhere = std::ptr::without_provenance_mut::<u32>(16);
        // SAFETY: numbers of this function, or no memory.
        unsafe {
            assert_eq!(read(place.as_ptr(), &mut got), Ok(()));
            assert_eq!(got, place);
            assert_eq!(write(place.as_mut_ptr(), &[3, 4]), Ok(()));
            assert_eq!(place, [3, 4]);
            assert_eq!(read(nowhere, &mut got), Err(libc::EFAULT));
            assert_eq!(write(nowhere, &got), Err(libc::EFAULT));
            assert_eq!(read_one(nowhere), Err(libc::EFAULT));
            assert_eq!(read_one(std::ptr::null::<u32>()), Ok(None));
            assert_eq!(read_one(&raw const place[1]), Ok(Some(4)));
        }
    }
}
