//! A completion queue with the channel on which it notifies, and the queue
//! pairs that use it. What a completion means is decided by the socket that
//! polls.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use crate::cm::device::Device;
use crate::cm::id::Id;
use crate::cm::qp::Unattached;
use crate::error::{Error, Result};
use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::verbs::bindings::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_qp_init_attr, ibv_qp_type,
    ibv_wc,
};
use crate::verbs::{dispatch, failure};

/// Completions taken at once.
pub const BATCH: usize = 16;
/// Room for them.
pub type Batch = [MaybeUninit<ibv_wc>; BATCH];

/// A completion queue and its channel.
#[derive(Debug)]
pub struct Completions {
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    events: AtomicU32,
    entries: u32,
    /// A notification was asked for and has not been taken.
    armed: AtomicBool,
    /// Keeps the context open.
    device: Arc<Device>,
}

// SAFETY: verbs objects may be used from any thread; they are owned and die
// with this.
unsafe impl Send for Completions {}
// SAFETY: as for `Send`; the members that change are atomic.
unsafe impl Sync for Completions {}

impl Completions {
    /// A queue of `entries`, not armed.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn new(device: Arc<Device>, entries: u32) -> Result<Self> {
        let context = device.context();
        // SAFETY: the device keeps the context open.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if channel.is_null() {
            return Err(Error::last_os("create a completion channel"));
        }
        let mut completions = Self {
            channel,
            cq: ptr::null_mut(),
            events: AtomicU32::new(0),
            entries,
            armed: AtomicBool::new(false),
            device,
        };
        completions.make_nonblocking()?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: context and channel are alive; vector 0 always exists.
        completions.cq = unsafe { ibv_create_cq(context, entries, ptr::null_mut(), channel, 0) };
        if completions.cq.is_null() {
            return Err(Error::last_os("create a completion queue"));
        }
        Ok(completions)
    }

    fn make_nonblocking(&self) -> Result<()> {
        // A new channel has no flags that this would clear.
        // SAFETY: a descriptor of ours, no pointers.
        let status =
            unsafe { libc::fcntl(self.notification_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if status < 0 {
            return Err(Error::last_os("make a completion channel non-blocking"));
        }
        Ok(())
    }

    /// The queue, which lives as long as this.
    pub fn queue(&self) -> *mut ibv_cq {
        self.cq
    }

    /// Descriptor that becomes readable when completions arrive after
    /// [`Completions::arm`].
    pub fn notification_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.channel).fd }
    }

    /// Takes completions into `batch` and returns how many.
    ///
    /// # Errors
    /// `EIO` if the device cannot say.
    pub fn poll(&self, batch: &mut Batch) -> Result<usize> {
        // SAFETY: the queue lives as long as this, and the batch has room for
        // that many.
        let count = unsafe { dispatch::poll_cq(self.cq, BATCH as i32, batch.as_mut_ptr().cast()) };
        usize::try_from(count).map_err(|_| Error::new(libc::EIO, "poll a completion queue"))
    }

    /// Asks for a notification of the next completion.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn arm(&self) -> Result<()> {
        self.armed.store(true, Ordering::Relaxed);
        // SAFETY: the queue lives as long as this.
        let status = unsafe { dispatch::req_notify_cq(self.cq, false) };
        if status != 0 {
            return Err(failure(status, "arm a completion queue"));
        }
        Ok(())
    }

    /// Takes a notification; returns whether there was one.
    ///
    /// # Errors
    /// What the kernel says once the device is gone: there will be none any
    /// more, and the descriptor stays readable.
    pub fn take_notification(&self) -> Result<bool> {
        let mut cq = ptr::null_mut();
        let mut context = ptr::null_mut();
        // SAFETY: the channel lives as long as this and does not block.
        let status = unsafe { ibv_get_cq_event(self.channel, &mut cq, &mut context) };
        if status == 0 {
            self.events.fetch_add(1, Ordering::Relaxed);
            self.armed.store(false, Ordering::Relaxed);
            return Ok(true);
        }
        let error = Error::last_os("take a notification of completions");
        match error.errno() {
            libc::EAGAIN | libc::EINTR => Ok(false),
            _ => Err(error),
        }
    }

    /// Whether it may take the place of a new queue of `entries` on `device`.
    pub fn fits(&self, device: &Arc<Device>, entries: u32) -> bool {
        self.entries == entries && Arc::ptr_eq(&self.device, device)
    }

    /// Whether its device was removed, with which it is of no use any more.
    pub fn is_useless(&self) -> bool {
        self.device.is_removed()
    }

    /// Removes what queue pairs have left that are gone. A notification that is
    /// still asked for may come later, and wakes somebody who finds nothing.
    /// Returns whether it worked.
    pub fn clear(&self) -> bool {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            match self.poll(&mut batch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        !self.armed.load(Ordering::Relaxed) || self.take_notification().is_ok()
    }
}

/// What a queue pair is to hold.
#[derive(Clone, Copy, Debug)]
pub struct QueuePair {
    /// `enum ibv_qp_type`.
    pub qp_type: ibv_qp_type,
    /// Sends at once.
    pub sends: u16,
    /// Parts of a send.
    pub send_parts: u32,
    /// Receives at once.
    pub receives: u16,
    /// Bytes that are sent inline.
    pub inline: usize,
}

impl QueuePair {
    /// Creates it for `id`, completing in `completions`; returns how many bytes
    /// can be sent inline, none if the device refuses the number.
    ///
    /// # Errors
    /// What libibverbs says.
    ///
    /// # Safety
    /// `completions` outlives the queue pair of `id`.
    pub unsafe fn create(&self, id: &Arc<Id>, completions: &Completions) -> Result<usize> {
        // SAFETY: the caller lets the queue outlive what the identifier gets.
        let (pair, inline) = unsafe { self.prepare(&id.require_device()?, completions) }?;
        pair.attach(id)?;
        Ok(inline)
    }

    /// As [`QueuePair::create`], for an identifier of `device` to come.
    ///
    /// # Errors
    /// What libibverbs says.
    ///
    /// # Safety
    /// `completions` outlives what is returned and, once that is an identifier's,
    /// the identifier's queue pair.
    pub unsafe fn prepare(
        &self,
        device: &Arc<Device>,
        completions: &Completions,
    ) -> Result<(Unattached, usize)> {
        // SAFETY: the caller lets the queue live long enough.
        unsafe { self.prepare_with(device, completions, self.inline) }.or_else(|error| {
            log::info!("{device}: {} bytes inline: {error}", self.inline);
            // SAFETY: as above.
            unsafe { self.prepare_with(device, completions, 0) }
        })
    }

    unsafe fn prepare_with(
        &self,
        device: &Arc<Device>,
        completions: &Completions,
        inline: usize,
    ) -> Result<(Unattached, usize)> {
        // SAFETY: plain numbers and pointers, for which zero is valid.
        let mut attr: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.send_cq = completions.queue();
        attr.recv_cq = completions.queue();
        attr.qp_type = self.qp_type;
        attr.cap.max_send_wr = self.sends.into();
        attr.cap.max_recv_wr = self.receives.into();
        attr.cap.max_send_sge = self.send_parts;
        attr.cap.max_recv_sge = 1;
        attr.cap.max_inline_data = u32::try_from(inline).unwrap_or(0);
        // SAFETY: the attributes name our living completion queue, which the
        // caller lets outlive the queue pair.
        let pair = unsafe { Unattached::create(device, &mut attr) }?;
        Ok((pair, attr.cap.max_inline_data as usize))
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if !self.cq.is_null() {
            // SAFETY: created in `new`; queue pairs that use it are gone, and
            // all notifications are acknowledged before.
            let status = unsafe {
                ibv_ack_cq_events(self.cq, self.events.load(Ordering::Relaxed));
                ibv_destroy_cq(self.cq)
            };
            if status != 0 {
                log::warn!("{}", failure(status, "destroy a completion queue"));
            }
        }
        // SAFETY: created in `new`, and its queue is gone.
        unsafe { ibv_destroy_comp_channel(self.channel) };
    }
}
