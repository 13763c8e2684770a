//! Registered memory: memory of this process that a device may read or write,
//! the library's own or the program's. Who may use which part of it, and when,
//! is not decided here.

use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, compiler_fence};

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};
use crate::fork::Renewed;
use crate::lock::{Mutex, locked};
use crate::verbs::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, ibv_dereg_mr, ibv_mr, ibv_pd, ibv_reg_mr,
};

/// What a device may do with a region besides reading it for sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Local,
    /// The peer may write to it.
    RemoteWrite,
}

/// Memory that a device knows, until dropped.
#[derive(Debug)]
pub struct Registration(NonNull<ibv_mr>);

// SAFETY: libibverbs' objects may be used from any thread; it does not change.
unsafe impl Send for Registration {}
// SAFETY: as for `Send`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `length` bytes at `base`.
    ///
    /// # Errors
    /// What libibverbs says, `EFAULT` among others if there is no memory.
    ///
    /// # Safety
    /// `pd` is a living protection domain that outlives the registration.
    /// Memory that the peer may write to is used by nobody who relies on its
    /// contents not to change.
    pub unsafe fn new(
        pd: *mut ibv_pd,
        base: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self> {
        let flags = match access {
            Access::Local => IBV_ACCESS_LOCAL_WRITE,
            Access::RemoteWrite => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        };
        let _whole = Uncancelled::throughout();
        // SAFETY: the caller vouches for the domain; the kernel checks the
        // memory.
        let mr = unsafe { ibv_reg_mr(pd, base.cast(), length, flags as i32) };
        NonNull::new(mr).map(Self).ok_or(Error::last_os(STEP))
    }

    /// Local key.
    pub fn local_key(&self) -> u32 {
        // SAFETY: registered until drop.
        unsafe { self.0.as_ref().lkey }
    }

    /// Remote key.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: registered until drop.
        unsafe { self.0.as_ref().rkey }
    }
}

impl Registration {
    /// Ends it; `false` if the device may still use the memory.
    fn end(self) -> bool {
        let mr = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: registered in `new`, and given up here.
        unsafe { deregister(mr) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, and given up here.
        unsafe { deregister(self.0) };
    }
}

/// # Safety
/// `mr` is registered, and nobody uses it any more.
unsafe fn deregister(mr: NonNull<ibv_mr>) -> bool {
    let _whole = Uncancelled::throughout();
    // SAFETY: the caller vouches for it.
    let status = unsafe { ibv_dereg_mr(mr.as_ptr()) };
    if status != 0 {
        log::warn!(
            "memory stays registered: {}",
            crate::verbs::failure(status, STEP)
        );
    }
    status == 0
}

/// Zeroed, page-aligned, registered memory of the library's own. The device may
/// write to it at any time, so it is reached by copies through raw pointers only.
#[derive(Debug)]
pub struct Region {
    pages: Option<Pages>,
    registration: Option<Registration>,
}

const STEP: &str = "register memory";

impl Region {
    /// Allocates and registers `length` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// `ENOMEM`, and what libibverbs says.
    ///
    /// # Safety
    /// `pd` is a living protection domain that outlives the region.
    pub unsafe fn new(pd: *mut ibv_pd, length: usize, access: Access) -> Result<Self> {
        let pages = Pages::new(length)?;
        let (base, length) = (pages.base.as_ptr(), pages.length);
        // SAFETY: the caller vouches for the domain; the pages are nobody
        // else's and are only reached by copies.
        let registration = unsafe { Registration::new(pd, base, length, access) }?;
        Ok(Self {
            pages: Some(pages),
            registration: Some(registration),
        })
    }

    /// Address of the byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        let base = self
            .pages
            .as_ref()
            .map_or(0, |pages| pages.base.as_ptr() as u64);
        base.wrapping_add(offset as u64)
    }

    /// Local key.
    pub fn local_key(&self) -> u32 {
        self.registration
            .as_ref()
            .map_or(0, Registration::local_key)
    }

    /// Remote key.
    pub fn remote_key(&self) -> u32 {
        self.registration
            .as_ref()
            .map_or(0, Registration::remote_key)
    }

    /// Pointer to `length` bytes at `offset`, or `None` if they do not lie in
    /// the region.
    pub fn pointer(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        let pages = self.pages.as_ref()?;
        // SAFETY: within the pages, as checked.
        (end <= pages.length).then(|| unsafe { pages.base.as_ptr().add(offset) })
    }

    /// Copies `N` bytes at `offset` out; zeroes if they do not lie in the
    /// region.
    #[inline]
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        if let Some(pointer) = self.pointer(offset, N) {
            // SAFETY: N readable bytes. A peer that writes them meanwhile spoils only
            // what it tells us.
            unsafe { pointer.copy_to_nonoverlapping(bytes.as_mut_ptr(), N) };
            // What is checked and used is the copy, read once.
            compiler_fence(Ordering::SeqCst);
        }
        bytes
    }

    /// Copies `bytes` in at `offset`; nothing if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(pointer) = self.pointer(offset, bytes.len()) {
            // SAFETY: that many bytes of the region, which `bytes` cannot
            // overlap, as nobody holds references into it.
            unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let free = self.registration.take().is_none_or(Registration::end);
        // What a device still knows goes: it holds the pages itself.
        if let Some(pages) = self.pages.take()
            && free
        {
            pages.keep();
        }
    }
}

/// Whole pages, zeroed. Those of regions that are gone are kept for the next
/// ones of the same length: to make pages costs more than to zero them.
#[derive(Debug)]
struct Pages {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is owned; it is only accessed by copies, and those who
// copy agree among themselves under the connection's lock.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pages {}

/// Pages without an owner.
static SPARE: Renewed<Mutex<Vec<Pages>>> = Renewed::new(Mutex::new(Vec::new()));
/// Most of them, and the most bytes of each.
const MOST_SPARE: usize = 8;
const LARGEST_SPARE: usize = 1 << 19;
/// Most bytes copied or zeroed by one call of the C library, a part of each page. For
/// more, C libraries use the processor's string instructions, which are slow to
/// start, and very slow where the processor is emulated.
const PIECE: usize = 1 << 10;

/// Copies `length` bytes.
///
/// # Safety
/// That many bytes may be read at `source` and written at `target`, and they do not
/// overlap.
#[inline]
pub unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    let mut done = 0;
    while done < length {
        let step = (length - done).min(PIECE);
        // SAFETY: bytes from `done` on, of which `length` are left in all.
        unsafe {
            target
                .add(done)
                .copy_from_nonoverlapping(source.add(done), step)
        };
        done += step;
    }
}

fn spare() -> &'static Mutex<Vec<Pages>> {
    SPARE.get_or_renew(|| Mutex::new(Vec::new()))
}

impl Pages {
    fn new(length: usize) -> Result<Self> {
        // SAFETY: sysconf is always sound to call.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let length = length
            .checked_next_multiple_of(page)
            .ok_or(Error::new(libc::ENOMEM, STEP))?;
        if let Some(pages) = Self::spare(length) {
            return Ok(pages);
        }
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
            return Err(Error::last_os("allocate memory"));
        }
        let base =
            NonNull::new(base.cast::<u8>()).ok_or(Error::new(libc::ENOMEM, "allocate memory"))?;
        Ok(Self { base, length })
    }

    fn spare(length: usize) -> Option<Self> {
        let mut spare = locked(spare());
        let place = spare.iter().position(|pages| pages.length == length)?;
        let pages = spare.swap_remove(place);
        drop(spare);
        for offset in (0..pages.length).step_by(PIECE) {
            // SAFETY: inside of the owned mapping, whose length is whole pages.
            unsafe { pages.base.as_ptr().add(offset).write_bytes(0, PIECE) };
        }
        Some(pages)
    }

    fn keep(self) {
        let mut spare = locked(spare());
        if spare.len() < MOST_SPARE && self.length <= LARGEST_SPARE {
            spare.push(self);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; its users are gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_used_again_are_zeroed() {
        let pages = Pages::new(5000).unwrap();
        let base = pages.base;
        // SAFETY: within the owned pages.
        unsafe { base.as_ptr().write_bytes(7, 5000) };
        pages.keep();
        let pages = Pages::new(8192).unwrap();
        assert_eq!((pages.base, pages.length), (base, 8192));
        // SAFETY: within the owned pages.
        assert_eq!(unsafe { base.as_ptr().add(4999).read() }, 0);
    }
}
