//! Creation, migration and destruction of identifiers.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::abi::{rdma_cm_id, rdma_event_channel, rdma_port_space};
use crate::cm::accounting::Accounting;
use crate::cm::addrinfo;
use crate::cm::channel;
use crate::cm::defaults::Defaults;
use crate::cm::event;
use crate::cm::handler::HandlerLock;
use crate::cm::library;
use crate::cm::messenger;
use crate::cm::waiters::Waiters;
use crate::error::{Error, Result};
use crate::kernel::command::submit;
use crate::kernel::ucma::{CreateId, DestroyId, MigrateId};
use crate::lock::Mutex;
use crate::lock::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Id, State};

impl Id {
    fn allocate(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Arc<Self> {
        // SAFETY: the public head is plain old data for which all zeroes are
        // the documented initial state.
        let mut public: rdma_cm_id = unsafe { std::mem::zeroed() };
        public.channel = channel;
        public.context = context;
        public.ps = ps;
        public.qp_type = qp_type;
        Arc::new(Self {
            public: UnsafeCell::new(public),
            handle: AtomicU32::new(u32::MAX),
            synchronous: AtomicBool::new(false),
            destroying: AtomicBool::new(false),
            accounting: Accounting::new(),
            waiters: Waiters::default(),
            handler: HandlerLock::default(),
            state: Mutex::new(State::default()),
            qp_lock: Mutex::new(()),
        })
    }

    /// Creates an identifier that reports its events on `channel`.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device, `EINVAL` for an unknown port space,
    /// else what the kernel says.
    ///
    /// # Safety
    /// `channel` must point to a live event channel that outlives the
    /// identifier.
    pub unsafe fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Result<Arc<Self>> {
        let id = Self::allocate(channel, context, ps, qp_type);
        // SAFETY: the caller vouches for the channel.
        let fd = unsafe { channel::descriptor(channel) }?;
        // The channel may be older than the latest removal of a device.
        library::ensure_ready()?;
        let reply = submit(fd, CreateId::new(id.uid(), ps, qp_type))?;
        id.publish(reply.id);
        log::debug!("{id}: created, port space {ps:#x}");
        Defaults::get().apply(&id);
        Ok(id)
    }

    /// Creates an identifier in synchronous mode, with a channel of its own.
    ///
    /// # Errors
    /// As for [`Id::create`], and what opening the channel says.
    pub fn create_synchronous(
        context: *mut c_void,
        ps: rdma_port_space,
        qp_type: u32,
    ) -> Result<Arc<Self>> {
        let channel = channel::open()?;
        // SAFETY: the channel was just opened; it is closed when the
        // identifier is freed or leaves synchronous mode.
        match unsafe { Self::create(channel, context, ps, qp_type) } {
            Ok(id) => {
                id.synchronous.store(true, Ordering::Release);
                Ok(id)
            }
            Err(error) => {
                // SAFETY: nothing else knows the channel.
                unsafe { channel::close(channel) };
                Err(error)
            }
        }
    }

    /// Makes the identifier of a connection request that the kernel reported
    /// as `handle`; it inherits the listener's channel, context and types.
    pub fn from_request(listener: &Self, handle: u32) -> Arc<Self> {
        let id = Self::allocate(
            listener.channel(),
            listener.context(),
            listener.ps(),
            listener.qp_type(),
        );
        let node_type = listener.state().node_type;
        {
            let mut state = id.state();
            state.passive = true;
            state.node_type = node_type;
        }
        id.publish(handle);
        id
    }

    /// Closes a channel that was private to this identifier, after the
    /// threads that wait on it have left.
    fn close_private(&self, channel: *mut rdma_event_channel) {
        // SAFETY: only this function closes a private channel.
        let evicted = unsafe { channel::descriptor(channel) }
            .and_then(|fd| self.waiters.evict(|| messenger::wake(fd)));
        match evicted {
            // SAFETY: nobody else knows the channel, and nobody waits on it.
            Ok(()) => unsafe { channel::close(channel) },
            Err(error) => log::error!("{self}: private channel left open: {error}"),
        }
    }

    /// Gives the identifier of a connection request a channel of its own and
    /// synchronous mode.
    pub(in crate::cm) fn become_synchronous(&self) -> Result<()> {
        let channel = channel::open()?;
        // SAFETY: the channel was just opened.
        if let Err(error) = unsafe { self.move_to(channel) } {
            // SAFETY: nothing else knows the channel.
            unsafe { channel::close(channel) };
            return Err(error);
        }
        self.synchronous.store(true, Ordering::Release);
        Ok(())
    }

    /// Moves the kernel's identifier to `channel` and returns how many events
    /// it reported on the old one.
    unsafe fn move_to(&self, channel: *mut rdma_event_channel) -> Result<u32> {
        let old = self.descriptor()?;
        // SAFETY: the caller vouches for the channel.
        let fd = unsafe { channel::descriptor(channel) }?;
        let reply = submit(fd, MigrateId::new(self.handle(), old))?;
        self.set_channel(channel);
        Ok(reply.events_reported)
    }

    /// Brings the kernel's object of a connection request to the channel of its
    /// listener, which has migrated since the request came: the kernel moves
    /// the event along, but not the object. `false` if it is on no former
    /// channel of the listener.
    pub(in crate::cm) fn follow(&self, listener: &Self) -> bool {
        let former = listener.state().former_channels.clone();
        // A descriptor that is something else by now is refused by the kernel.
        former.into_iter().any(|old| {
            let moved = self
                .descriptor()
                .and_then(|fd| submit(fd, MigrateId::new(self.handle(), old)));
            moved.is_ok()
        })
    }

    /// Moves the identifier and its pending events to `channel`, or to a
    /// private one if `channel` is null. Blocks until every event reported on
    /// the old channel is acknowledged.
    ///
    /// # Errors
    /// `EINVAL` if it is synchronous already and `channel` is null or the
    /// private one, which is closed with synchronous mode; else what the kernel
    /// says. On failure nothing has changed.
    ///
    /// # Safety
    /// `channel` is null or points to a live event channel.
    pub unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<()> {
        let was_synchronous = self.is_synchronous();
        if was_synchronous && (channel.is_null() || channel == self.channel()) {
            return Err(Error::invalid("migrate a synchronous identifier"));
        }
        let old_fd = self.descriptor()?;
        let private = channel.is_null();
        let target = if private { channel::open()? } else { channel };
        let old = self.channel();
        let moved = {
            // A thread that handles an event uses the channel it came from.
            let _handling = self.handler.hold();
            // SAFETY: the target is live: the caller's, or just opened.
            unsafe { self.move_to(target) }.inspect(|_| messenger::follow(self))
        };
        let reported = match moved {
            Ok(reported) => reported,
            Err(error) => {
                if private {
                    // SAFETY: nothing else knows the channel.
                    unsafe { channel::close(target) };
                }
                return Err(error);
            }
        };
        self.synchronous.store(private, Ordering::Release);
        if was_synchronous {
            self.close_private(old);
            self.release_event();
        } else {
            let former = &mut self.state().former_channels;
            former.retain(|&fd| fd != old_fd);
            former.push(old_fd);
        }
        self.wait_for_acknowledgements(reported, "migrate");
        Ok(())
    }

    /// Acknowledges the event that synchronous mode keeps in `event`, once if
    /// several threads do so, as when they get the requests of one listener.
    pub(in crate::cm) fn release_event(&self) {
        let held = {
            let _alone = self.state();
            let held = self.event();
            self.set_event(ptr::null_mut());
            held
        };
        if !held.is_null()
            && let Err(error) = event::acknowledge(held)
        {
            log::warn!("{self}: event kept by the identifier: {error}");
        }
    }

    /// How many events there were in all, given those that the kernel reported
    /// for its present object.
    fn total(&self, reported: u32) -> u32 {
        reported.wrapping_add(self.state().reported_otherwise)
    }

    fn wait_for_acknowledgements(&self, reported: u32, what: &str) {
        self.accounting
            .settle(self.total(reported), format_args!("{self}: {what}"));
    }

    /// Destroys the identifier: first the kernel's object, then, once all its
    /// events are acknowledged, the memory. Queue pairs and shared receive
    /// queues are the program's to destroy before.
    ///
    /// Blocks while events of this identifier are unacknowledged.
    ///
    /// # Errors
    /// `EINVAL` if another thread is destroying it; else what the kernel
    /// says, and then the identifier is as before. A kernel object that is
    /// gone already (`EBADF`, `ENOENT`: its channel was closed) is no error,
    /// and in synchronous mode there is none, since the kernel's object goes
    /// with the private channel.
    pub fn destroy(self: Arc<Self>) -> Result<()> {
        if self.destroying.swap(true, Ordering::AcqRel) {
            return Err(Error::invalid("destroy an identifier twice"));
        }
        let reported = match self.retire() {
            Ok(reported) => reported,
            Err(error) => {
                self.destroying.store(false, Ordering::Release);
                self.accounting.stay_open();
                log::error!("{self}: {error}");
                return Err(error);
            }
        };
        self.handler.unlock_fully();
        if self.is_synchronous() {
            self.close_private(self.channel());
        }
        self.release_event();
        if let Some(reported) = reported {
            self.wait_for_acknowledgements(reported, "destroy");
        }
        log::debug!("{self}: destroyed");
        self.unpublish();
        Ok(())
    }

    /// Destroys the kernel's object and returns how many events it reported;
    /// `None` if the kernel had lost it before, or will with the channel.
    fn retire(self: &Arc<Self>) -> Result<Option<u32>> {
        // A thread that handles an event may be about to start again.
        let _handling = self.handler.hold();
        // A resolver thread must not use the kernel's number once it is free.
        addrinfo::forget(self);
        messenger::dismiss_all(self);
        let reported = match self.destroy_kernel_object() {
            Err(error) if self.is_synchronous() => {
                log::warn!("{self}: {error}; it goes with its channel");
                None
            }
            result => result?,
        };
        self.accounting
            .close(self.total(reported.unwrap_or_default()));
        Ok(reported)
    }

    /// Replaces the kernel's object by a new, idle one, after it has bound
    /// itself to a device that is not to be used. Its options are those of a
    /// new identifier. Not for connection requests, which cannot start again.
    /// A failure is logged; the identifier can then only be destroyed.
    pub(in crate::cm) fn start_again(self: &Arc<Self>) {
        if self.state().passive {
            return;
        }
        // Events are handled by the old object or by the new one.
        let _handling = self.handler.hold();
        let create = CreateId::new(self.uid(), self.ps(), self.qp_type());
        let fresh = match self.descriptor().and_then(|fd| submit(fd, create)) {
            Ok(reply) => reply.id,
            Err(error) => {
                log::error!("{self}: cannot start again: {error}");
                return;
            }
        };
        let old = self.handle();
        // Other threads may have fetched events of the old object already.
        self.state().former_handles.push(old);
        match self.destroy_kernel_object() {
            Ok(reported) => {
                let mut state = self.state();
                state.reported_otherwise = state
                    .reported_otherwise
                    .wrapping_add(reported.unwrap_or_default());
            }
            Err(error) => log::error!("{self}: kept by the kernel: {error}"),
        }
        self.renumber(fresh);
        // SAFETY: plain bytes, of which all zeroes mean "no address".
        let none: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        self.set_src_storage(none);
        self.set_dst_storage(none);
        log::debug!("{self}: starts again in place of id {old}");
        Defaults::get().apply(self);
    }

    /// How many events the kernel reported; `None` if the kernel had lost the
    /// object before.
    fn destroy_kernel_object(&self) -> Result<Option<u32>> {
        let result = self
            .descriptor()
            .and_then(|fd| submit(fd, DestroyId::new(self.handle())));
        match result {
            Ok(reply) => Ok(Some(reply.events_reported)),
            Err(error) if matches!(error.errno(), libc::EBADF | libc::ENOENT) => {
                log::info!("{self}: already gone in the kernel");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
