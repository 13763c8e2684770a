//! Contexts of receives and of commands, and registered memory.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use rdmacm::verbs::bindings::{IBV_ACCESS_LOCAL_WRITE, ibv_dereg_mr, ibv_reg_mr};
use rdmacm::{Error, Result};

use super::channel::{channel, srpt_rdma_ch};
use super::device::{device, fail, srpt_device};
use super::executor::Finished;
use super::respond;
use super::types::{SRPT_NO_DATA, srpt_direction, srpt_ioctx};
use crate::memory::Area;

/// The context of a receive.
pub struct srpt_recv_ioctx {
    pub(super) number: u16,
    /// The program has taken what it received.
    pub(super) taken: Cell<bool>,
    channel: AtomicPtr<srpt_rdma_ch>,
}

impl srpt_recv_ioctx {
    pub(super) fn new(number: u16) -> Self {
        Self {
            number,
            taken: Cell::new(false),
            channel: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Notes where the channel is.
    pub(super) fn adopt(&self, channel: *mut srpt_rdma_ch) {
        self.channel.store(channel, Ordering::Release);
    }

    /// Ends the program's hold.
    pub(super) fn give_back(&self) -> Result<u16> {
        match self.taken.replace(false) {
            true => Ok(self.number),
            false => Err(Error::invalid("use a receive that was not taken")),
        }
    }
}

/// The context of a command or task management request.
pub struct srpt_send_ioctx {
    pub(super) index: u16,
    pub(super) finished: Arc<Finished>,
    channel: AtomicPtr<srpt_rdma_ch>,
}

impl srpt_send_ioctx {
    pub(super) fn new(index: u16, finished: Arc<Finished>) -> Self {
        Self {
            index,
            finished,
            channel: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Notes where the channel is.
    pub(super) fn adopt(&self, channel: *mut srpt_rdma_ch) {
        self.channel.store(channel, Ordering::Release);
    }
}

/// The context at `ioctx` and its channel.
///
/// # Safety
/// `ioctx` is null or belongs to a living channel that nobody else works on.
pub(super) unsafe fn received<'a>(
    ioctx: *const srpt_recv_ioctx,
) -> Result<(&'a srpt_rdma_ch, &'a srpt_recv_ioctx)> {
    // SAFETY: the caller vouches for the pointer, and so for the channel.
    unsafe {
        let ioctx = ioctx.as_ref().ok_or(Error::invalid("use no receive"))?;
        Ok((channel(ioctx.channel.load(Ordering::Acquire))?, ioctx))
    }
}

/// The context at `ioctx` and its channel.
///
/// # Safety
/// As for [`received`].
pub(super) unsafe fn command<'a>(
    ioctx: *const srpt_send_ioctx,
) -> Result<(&'a srpt_rdma_ch, &'a srpt_send_ioctx)> {
    // SAFETY: the caller vouches for the pointer, and so for the channel.
    unsafe {
        let ioctx = ioctx.as_ref().ok_or(Error::invalid("use no command"))?;
        Ok((channel(ioctx.channel.load(Ordering::Acquire))?, ioctx))
    }
}

/// Allocates a context with zeroed memory of its own that is registered in the
/// device's protection domain, for what a program sends or receives besides
/// the channels, which have their own.
///
/// ioctx_size: bytes of the context: that of struct srpt_ioctx at least, what
/// is beyond is the program's.
/// buf_size: bytes of memory.
/// dir: SRPT_DATA_OUT if the device is to write to the memory.
///
/// Returns NULL with errno: EINVAL for NULL, a device without pd, or sizes out
/// of range, ENOMEM, or what libibverbs says.
///
/// # Safety
/// sdev is NULL or came from srpt_add_one and is not removed; its pd is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_alloc_ioctx(
    sdev: *mut srpt_device,
    ioctx_size: c_int,
    buf_size: u64,
    dir: srpt_direction,
) -> *mut srpt_ioctx {
    // SAFETY: the caller vouches for the pointer.
    match unsafe { alloc(sdev, ioctx_size, buf_size, dir, 0) } {
        Ok(ioctx) => ioctx,
        Err(error) => fail(&error),
    }
}

/// # Safety
/// As for [`srpt_alloc_ioctx`].
unsafe fn alloc(
    sdev: *const srpt_device,
    ioctx_size: c_int,
    buf_size: u64,
    dir: srpt_direction,
    index: u32,
) -> Result<*mut srpt_ioctx> {
    // SAFETY: the caller vouches for the pointer.
    let device = unsafe { device(sdev) }?;
    let size = usize::try_from(ioctx_size).unwrap_or(0);
    let length = usize::try_from(buf_size).unwrap_or(0);
    if device.pd.is_null() || size < size_of::<srpt_ioctx>() || length == 0 {
        return Err(Error::invalid(
            "allocate a context without memory or domain",
        ));
    }
    let area = Area::new(length)
        .map_err(|error| Error::from_io(&error, "allocate the memory of a context"))?;
    let access = match dir {
        SRPT_NO_DATA => 0,
        _ => IBV_ACCESS_LOCAL_WRITE,
    };
    // SAFETY: the caller vouches for the domain; the memory is new.
    let mr = unsafe { ibv_reg_mr(device.pd, area.base().cast(), length, access as c_int) };
    if mr.is_null() {
        return Err(Error::last_os("register the memory of a context"));
    }
    // SAFETY: calloc is always sound to call.
    let ioctx = unsafe { libc::calloc(1, size) }.cast::<srpt_ioctx>();
    if ioctx.is_null() {
        // SAFETY: registered just now.
        unsafe { ibv_dereg_mr(mr) };
        return Err(Error::new(libc::ENOMEM, "allocate a context"));
    }
    // SAFETY: new memory that is large enough; calloc aligns it.
    unsafe {
        ioctx.write(srpt_ioctx {
            buf: area.into_base().cast(),
            size: buf_size,
            mr,
            index,
        });
    }
    Ok(ioctx)
}

/// Frees a context of srpt_alloc_ioctx and its memory. NULL is ignored.
///
/// # Safety
/// ioctx is NULL or came from srpt_alloc_ioctx; no device uses its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_free_ioctx(sdev: *mut srpt_device, ioctx: *mut srpt_ioctx) {
    if ioctx.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the context, which is given up here.
    unsafe {
        let srpt_ioctx { buf, size, mr, .. } = ioctx.read();
        if ibv_dereg_mr(mr) != 0 {
            log::error!("memory of device {sdev:p} stays registered");
        }
        libc::munmap(buf, size as usize);
        libc::free(ioctx.cast());
    }
}

/// Allocates ring_size contexts, see srpt_alloc_ioctx. The array ends with
/// NULL.
///
/// Returns NULL with errno as srpt_alloc_ioctx, all undone.
///
/// # Safety
/// As for srpt_alloc_ioctx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_alloc_ioctx_ring(
    sdev: *mut srpt_device,
    ring_size: c_int,
    ioctx_size: c_int,
    buf_size: u64,
    dir: srpt_direction,
) -> *mut *mut srpt_ioctx {
    let Ok(count) = u32::try_from(ring_size) else {
        return fail(&Error::invalid("allocate fewer than no contexts"));
    };
    // SAFETY: calloc is always sound to call.
    let ring = unsafe { libc::calloc(count as usize + 1, size_of::<*mut srpt_ioctx>()) };
    let ring = ring.cast::<*mut srpt_ioctx>();
    if ring.is_null() {
        return fail(&Error::new(libc::ENOMEM, "allocate a ring of contexts"));
    }
    for index in 0..count {
        // SAFETY: the caller vouches for the device.
        match unsafe { alloc(sdev, ioctx_size, buf_size, dir, index) } {
            // SAFETY: the array has room for so many.
            Ok(ioctx) => unsafe { ring.add(index as usize).write(ioctx) },
            Err(error) => {
                // SAFETY: made here, and nobody else's.
                unsafe { srpt_free_ioctx_ring(ring, sdev, ring_size) };
                return fail(&error);
            }
        }
    }
    ring
}

/// Frees a ring and its contexts. NULL is ignored, as are missing contexts.
///
/// # Safety
/// ioctx_ring is NULL or came from srpt_alloc_ioctx_ring with this ring_size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_free_ioctx_ring(
    ioctx_ring: *mut *mut srpt_ioctx,
    sdev: *mut srpt_device,
    ring_size: c_int,
) {
    if ioctx_ring.is_null() {
        return;
    }
    for index in 0..usize::try_from(ring_size).unwrap_or(0) {
        // SAFETY: the array has so many entries; each is null or a context.
        unsafe { srpt_free_ioctx(sdev, ioctx_ring.add(index).read()) };
    }
    // SAFETY: the array came from calloc.
    unsafe { libc::free(ioctx_ring.cast()) };
}

/// Posts a receive again whose information unit the program took by
/// srpt_recv_done and does not hand in.
///
/// Returns 0, or -EINVAL for NULL and for a receive that was not taken, -EBUSY
/// within a callback of the channel, -ENOTCONN without queue pair.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on, ioctx is NULL
/// or one of its receives; sdev is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_post_recv(
    sdev: *mut srpt_device,
    ch: *mut srpt_rdma_ch,
    ioctx: *mut srpt_recv_ioctx,
) -> c_int {
    let _ = sdev;
    // SAFETY: the caller vouches for both pointers.
    let result = unsafe { (channel(ch), ioctx.as_ref()) };
    let (Ok(ch), Some(ioctx)) = result else {
        return -libc::EINVAL;
    };
    let result = ch.with(|channel, _| {
        let number = ioctx.give_back()?;
        channel.discard(number);
        Ok(())
    });
    respond(result.and_then(|done| done))
}

/// What a taken receive has received, and its length. NULL for NULL and for a
/// receive that was not taken. The bytes are the channel's, and valid until the
/// receive is handed in or posted again.
///
/// # Safety
/// ioctx is NULL or a receive of a living channel that no other thread works
/// on, length is NULL or a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_recv_buf(
    ioctx: *const srpt_recv_ioctx,
    length: *mut u32,
) -> *const c_void {
    // SAFETY: the caller vouches for both pointers.
    let (Ok((ch, ioctx)), Some(length)) = (unsafe { received(ioctx) }, unsafe { length.as_mut() })
    else {
        return ptr::null();
    };
    if !ioctx.taken.get() {
        return ptr::null();
    }
    let bytes = ch.with(|channel, _| {
        let unit = channel.unit(ioctx.number);
        (unit.as_ptr(), unit.len() as u32)
    });
    match bytes {
        Ok((bytes, count)) => {
            *length = count;
            bytes.cast()
        }
        Err(error) => fail::<c_void>(&error),
    }
}
