//! The buffers of a program's call, as a cursor that moves over them. The one
//! place that reads and writes a program's data.

use std::marker::PhantomData;

use libc::iovec;

use super::memory;

/// A place in a list of buffers that a program gave.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    vectors: *const iovec,
    count: usize,
    offset: usize,
    remaining: usize,
    _lifetime: PhantomData<&'a iovec>,
}

impl<'a> Cursor<'a> {
    /// The beginning of `vectors`. Lengths beyond `isize::MAX` in all are cut.
    ///
    /// # Safety
    /// For as long as the cursor is used, each vector names memory that may be
    /// read, and written if the cursor is written to.
    pub unsafe fn new(vectors: &'a [iovec]) -> Self {
        let total = vectors
            .iter()
            .fold(0usize, |sum, vector| sum.saturating_add(vector.iov_len));
        Self {
            vectors: vectors.as_ptr(),
            count: vectors.len(),
            offset: 0,
            remaining: total.min(isize::MAX as usize),
            _lifetime: PhantomData,
        }
    }

    /// Bytes from here to the end.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// The bytes from here to the end of the current buffer; empty buffers
    /// are passed over.
    pub fn chunk(&mut self) -> (*mut u8, usize) {
        while self.count > 0 {
            // SAFETY: `count` vectors are left of the slice given to `new`.
            let vector = unsafe { *self.vectors };
            let left = vector.iov_len.saturating_sub(self.offset);
            if left > 0 {
                let pointer = vector.iov_base.cast::<u8>().wrapping_add(self.offset);
                return (pointer, left.min(self.remaining));
            }
            // SAFETY: one vector is left, so the next is at most one past.
            self.vectors = unsafe { self.vectors.add(1) };
            self.count = self.count.saturating_sub(1);
            self.offset = 0;
        }
        (std::ptr::null_mut(), 0)
    }

    /// Moves on by `bytes` that lie within the current chunk.
    pub fn advance(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(bytes);
        self.remaining = self.remaining.saturating_sub(bytes);
    }

    /// Copies `length` bytes from here to `target` and moves on.
    ///
    /// # Safety
    /// `target` may be written for `length` bytes, which are at most
    /// [`Cursor::remaining`], and does not overlap the program's buffers.
    pub unsafe fn read(&mut self, target: *mut u8, length: usize) {
        self.pieces(length, |piece, done, step| {
            // SAFETY: `step` bytes of a program's buffer (contract of `new`)
            // and of the target (contract of this function).
            unsafe { memory::copy(piece, target.add(done), step) }
        });
    }

    /// Copies `length` bytes from `source` to here and moves on.
    ///
    /// # Safety
    /// As for [`Cursor::read`], with `source` readable and the buffers
    /// writable.
    pub unsafe fn write(&mut self, source: *const u8, length: usize) {
        self.pieces(length, |piece, done, step| {
            // SAFETY: as for reading, the other way round.
            unsafe { memory::copy(source.add(done), piece, step) }
        });
    }

    /// Moves on by `length` bytes, or to the end, in pieces of one buffer: `copy`
    /// gets each, the bytes before it and its own.
    fn pieces(&mut self, length: usize, mut copy: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < length {
            let (piece, chunk) = self.chunk();
            let step = chunk.min(length.saturating_sub(done));
            if step == 0 {
                return;
            }
            copy(piece, done, step);
            self.advance(step);
            done = done.saturating_add(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(buffer: &mut [u8]) -> iovec {
        iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        }
    }

    #[test]
    fn bytes_pass_over_buffer_borders_and_empty_buffers() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 0], [0u8; 4]);
        let vectors = [vector(&mut a), vector(&mut b), vector(&mut c)];
        // SAFETY: the buffers live to the end of the test.
        let mut cursor = unsafe { Cursor::new(&vectors) };
        let again = cursor;
        let source = [1, 2, 3, 4, 5];
        // SAFETY: five readable bytes, seven writable ones.
        unsafe { cursor.write(source.as_ptr(), 5) };
        assert_eq!(cursor.remaining(), 2);
        let mut copy = [0; 7];
        // SAFETY: seven bytes on each side.
        unsafe { { again }.read(copy.as_mut_ptr(), 7) };
        assert_eq!(copy, [1, 2, 3, 4, 5, 0, 0]);
    }
}
