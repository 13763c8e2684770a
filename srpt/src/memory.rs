//! Memory for the data of commands: one area per channel, mapped and
//! registered once, cut into buffers by a [`Pool`]. What goes into a buffer,
//! and when a device may reach it, is decided in `crate::channel`.

mod buddy;

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use buddy::Buddy;

/// Zeroed memory of this process, mapped until dropped.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory, reached through the parts that are handed out.
unsafe impl Send for Area {}
// SAFETY: as for `Send`; a shared area gives pointers only.
unsafe impl Sync for Area {}

impl Area {
    /// Maps `length` bytes.
    ///
    /// # Errors
    /// `ENOMEM`, `EINVAL` for nothing.
    pub fn new(length: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Gives the memory up: whoever has the pointer unmaps it.
    pub fn into_base(self) -> *mut u8 {
        std::mem::ManuallyDrop::new(self).base()
    }

    /// Bytes in all.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Pointer to `length` bytes at `offset`; `None` if they do not lie in the
    /// area.
    pub fn pointer(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        // SAFETY: within the mapping, as checked.
        (end <= self.length).then(|| unsafe { self.base.as_ptr().add(offset) })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; everything that points into it keeps it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A part of a [`Pool`]'s memory. Whoever holds it has it alone; it is plain
/// bytes to him, and goes back to the pool by [`Pool::give_back`].
#[derive(Debug)]
pub struct Buffer {
    area: Option<Arc<Area>>,
    offset: usize,
    capacity: usize,
    length: usize,
}

impl Buffer {
    /// A buffer without memory.
    pub const fn empty() -> Self {
        Self {
            area: None,
            offset: 0,
            capacity: 0,
            length: 0,
        }
    }

    /// A part of `area` that belongs to no pool; [`Pool::give_back`] ignores
    /// it. Empty if it does not lie in the area.
    pub(crate) fn borrowed(area: &Arc<Area>, offset: usize, length: usize) -> Self {
        if area.pointer(offset, length).is_none() {
            return Self::empty();
        }
        Self {
            area: Some(Arc::clone(area)),
            offset,
            capacity: 0,
            length,
        }
    }

    /// Whether it has no memory or belongs to no pool.
    fn is_foreign(&self, area: &Arc<Area>) -> bool {
        let same = self.area.as_ref().is_some_and(|own| Arc::ptr_eq(own, area));
        !same || self.capacity == 0
    }

    /// The first byte, for system calls. Valid as long as the buffer lives.
    pub fn pointer(&self) -> *mut u8 {
        self.area
            .as_ref()
            .and_then(|area| area.pointer(self.offset, self.length))
            .unwrap_or(NonNull::dangling().as_ptr())
    }

    /// Address of the first byte, for work requests.
    pub fn address(&self) -> u64 {
        self.pointer() as u64
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes inside the area (none if there is no area),
        // which this buffer keeps mapped and has alone.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for reading; borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.length) }
    }
}

/// Buffers cut from one area.
#[derive(Debug)]
pub struct Pool {
    area: Arc<Area>,
    start: usize,
    buddy: Buddy,
}

impl Pool {
    /// A pool of `total` bytes that gives buffers of up to `largest` bytes;
    /// both are rounded up to what can be managed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(total: usize, largest: usize) -> io::Result<Self> {
        Self::behind(0, total, largest)
    }

    /// Like [`Pool::new`], in an area whose first `start` bytes are for other
    /// things.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn behind(start: usize, total: usize, largest: usize) -> io::Result<Self> {
        let buddy = Buddy::new(total, largest).ok_or(io::ErrorKind::OutOfMemory)?;
        let length = start.checked_add(buddy.length());
        let area = Area::new(length.ok_or(io::ErrorKind::OutOfMemory)?)?;
        Ok(Self {
            area: Arc::new(area),
            start,
            buddy,
        })
    }

    /// Bytes of the area that [`Pool::behind`] makes; `None` if that is more than
    /// can be counted.
    pub fn bytes_behind(start: usize, total: usize, largest: usize) -> Option<usize> {
        let (total, _) = buddy::rounded(total, largest)?;
        start.checked_add(total)
    }

    /// The memory of all buffers, and what is before them.
    pub fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// Most bytes of one buffer.
    pub fn largest(&self) -> usize {
        self.buddy.largest()
    }

    /// A buffer of `length` bytes with undefined contents. `None` if there is
    /// no room for it now, or never as it is larger than [`Pool::largest`].
    pub fn take(&mut self, length: usize) -> Option<Buffer> {
        if length == 0 {
            return Some(Buffer::empty());
        }
        let (offset, capacity) = self.buddy.take(length)?;
        Some(Buffer {
            area: Some(Arc::clone(&self.area)),
            offset: self.start + offset,
            capacity,
            length,
        })
    }

    /// Takes a buffer back. One that is not of this pool is dropped.
    pub fn give_back(&mut self, buffer: Buffer) {
        if !buffer.is_foreign(&self.area) {
            self.buddy
                .give_back(buffer.offset - self.start, buffer.capacity);
        }
    }
}

/// Bytes of this machine's memory; as many as can be counted if the system does not
/// say.
pub fn of_machine() -> usize {
    // SAFETY: no pointers.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    match (usize::try_from(pages), usize::try_from(size)) {
        (Ok(pages), Ok(size)) => pages.saturating_mul(size),
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_come_back() {
        let mut pool = Pool::new(1 << 20, 1 << 18).unwrap();
        let mut held = Vec::new();
        for round in 0..4u8 {
            while let Some(mut buffer) = pool.take(5000 + usize::from(round)) {
                let mark = held.len() as u8;
                buffer.fill(mark);
                held.push((mark, buffer));
            }
            assert_eq!(held.len(), (1 << 20) / 8192);
            for (mark, buffer) in held.drain(..) {
                assert!(buffer.iter().all(|byte| *byte == mark));
                pool.give_back(buffer);
            }
        }
        assert!(pool.take(1 << 18).is_some());
        assert!(pool.take((1 << 18) + 1).is_none());
    }

    #[test]
    fn the_size_of_a_pool_is_known_beforehand() {
        for (start, total, largest) in [(0, 1, 1), (8192, 5 << 20, 1 << 20), (4096, 10_000, 5000)] {
            let pool = Pool::behind(start, total, largest).unwrap();
            let expected = Pool::bytes_behind(start, total, largest);
            assert_eq!(Some(pool.area().length()), expected);
        }
        assert_eq!(Pool::bytes_behind(1, usize::MAX, 1), None);
    }

    #[test]
    fn an_empty_buffer_needs_no_room() {
        let mut pool = Pool::new(4096, 4096).unwrap();
        let all = pool.take(4096).unwrap();
        assert!(pool.take(0).unwrap().is_empty());
        pool.give_back(all);
    }
}
