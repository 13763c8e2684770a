//! Plain data: structures whose bytes cross the border to the kernel.
//!
//! [`Plain`] is the promise that a structure may be read from any bytes and
//! written as bytes; the `wire!` macro defines such structures and proves the
//! promise, together with the size and the offset of every field, at compile
//! time. What the fields mean is not this module's business.

use std::mem::{MaybeUninit, size_of};
use std::slice;

/// A type without padding for which every bit pattern is a valid value.
///
/// # Safety
///
/// The implementing type must have a defined layout, contain no padding bytes,
/// no pointers and no types with invalid bit patterns (such as `bool`).
pub unsafe trait Plain: Copy + 'static {
    /// The value whose bytes are all zero.
    fn zeroed() -> Self {
        // SAFETY: every bit pattern is valid (trait contract), zeros included.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// The bytes of the value, in memory order.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the value has `size_of::<Self>()` bytes, none of them
        // padding (trait contract), and lives as long as the borrow.
        unsafe { slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// Overwrites the value from its first byte on with as many of `bytes` as
    /// fit; the rest keeps its value. Shorter input is a reply of an older
    /// kernel, longer input one of a newer kernel.
    fn overlay(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(size_of::<Self>());
        // SAFETY: `len` is within both, `bytes` cannot overlap the exclusively
        // borrowed value, and any bytes make a valid value (trait contract).
        unsafe {
            (&raw mut *self)
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), len);
        }
    }

    /// The value that begins with `bytes`; missing bytes are zero, surplus
    /// bytes are ignored.
    fn from_prefix(bytes: &[u8]) -> Self {
        let mut value = Self::zeroed();
        value.overlay(bytes);
        value
    }
}

/// The bytes of a slice of plain values, in memory order.
pub fn slice_bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: as in `Plain::as_bytes`; the elements of a slice are contiguous
    // and, being free of padding, make up all of its bytes.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

// SAFETY: no bytes at all.
unsafe impl Plain for () {}
// SAFETY: integers have neither padding nor invalid bit patterns.
unsafe impl Plain for u8 {}
// SAFETY: as for u8.
unsafe impl Plain for u16 {}
// SAFETY: as for u8.
unsafe impl Plain for u32 {}
// SAFETY: as for u8.
unsafe impl Plain for i32 {}
// SAFETY: as for u8.
unsafe impl Plain for u64 {}
// SAFETY: an array adds no padding between or after its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Defines plain structures: `struct Name: SIZE { field: Type = OFFSET, … }`.
///
/// The compiler checks the size, the offset of every field, that every field
/// is plain and that there is no padding; that is what makes the structure
/// [`Plain`].
macro_rules! wire {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $size:literal {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty = $offset:literal),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        const _: () = {
            const fn assert_plain<T: $crate::kernel::plain::Plain>() {}
            assert!(size_of::<$name>() == $size);
            assert!(0 $(+ size_of::<$type>())* == $size);
            $(
                assert!(std::mem::offset_of!($name, $field) == $offset);
                assert_plain::<$type>();
            )*
        };

        // SAFETY: the assertions above: all fields are plain, and their sizes
        // add up to the size of the structure, so there is no padding.
        unsafe impl $crate::kernel::plain::Plain for $name {}
    )*};
}
pub(crate) use wire;

#[cfg(test)]
mod tests {
    use super::*;

    wire! {
        struct Sample: 8 {
            first: u16 = 0,
            second: [u8; 2] = 2,
            third: u32 = 4,
        }
    }

    #[test]
    fn short_input_keeps_the_tail() {
        let mut sample = Sample {
            first: 1,
            second: [2, 3],
            third: u32::MAX,
        };
        sample.overlay(&[9, 0, 8]);
        assert_eq!(
            sample,
            Sample {
                first: 9,
                second: [8, 3],
                third: u32::MAX
            }
        );
    }

    #[test]
    fn long_input_is_cut() {
        let sample = Sample::from_prefix(&[1; 100]);
        assert_eq!(sample.as_bytes(), [1; 8]);
    }

    #[test]
    fn slices_are_contiguous() {
        let samples = [Sample::from_prefix(&[1; 8]), Sample::from_prefix(&[2; 8])];
        assert_eq!(slice_bytes(&samples), [[1; 8], [2; 8]].concat());
    }
}
