//! The channel object of the C interface, and how calls get at it.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rdmacm::kernel::epoll::Epoll;
use rdmacm::{Error, Result};

use super::device::srpt_device;
use super::executor::{Finished, ProgramExecutor};
use super::foreign::ForeignId;
use super::ioctx::{srpt_recv_ioctx, srpt_send_ioctx};
use super::respond;
use super::types::{CH_CONNECTING, CH_DISCONNECTED, srpt_ch_state};
use crate::channel::rings::{Rings, Sizes};
use crate::channel::state::ChannelState;
use crate::channel::{Agreement, Channel};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::login;
use crate::pump::Pump;
use crate::session::Membership;
use crate::wire::login::{LoginRequest, OtherChannels};

/// A channel.
pub struct srpt_rdma_ch {
    pub(super) device: Arc<srpt_device>,
    pub(super) connection: ForeignId,
    pub(super) login: LoginRequest,
    pub(super) membership: Arc<Membership>,
    pub(super) others: OtherChannels,
    core: RefCell<Option<(Channel<Endpoint>, Pump)>>,
    /// The state when there is no queue pair.
    bare_state: Cell<srpt_ch_state>,
    finished: Arc<Finished>,
    pub(super) sends: Arc<[srpt_send_ioctx]>,
    pub(super) receives: Box<[srpt_recv_ioctx]>,
    epoll: Epoll,
}

fn from_io(step: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::from_io(&error, step)
}

impl srpt_rdma_ch {
    /// A channel for a login that may go on, without queue pair.
    pub(super) fn new(
        device: Arc<srpt_device>,
        connection: ForeignId,
        login: LoginRequest,
        peer: SocketAddr,
    ) -> Result<Box<Self>> {
        let nexus = (login.initiator, login.target);
        let (membership, others) = device
            .sessions
            .enter(nexus, login.multi_channel())
            .map_err(from_io("enter a session"))?;
        let epoll = Epoll::new(true)?;
        let finished = Finished::new().map_err(from_io("make an event descriptor"))?;
        let credits = device.settings.credits;
        let sends: Arc<[_]> = (0..credits)
            .map(|index| srpt_send_ioctx::new(index, Arc::clone(&finished)))
            .collect();
        log::debug!("channel {} of {peer}", membership.member().channel);
        let channel = Self {
            device,
            connection,
            login,
            membership: Arc::new(membership),
            others,
            core: RefCell::new(None),
            bare_state: Cell::new(CH_CONNECTING),
            finished,
            sends,
            receives: Box::default(),
            epoll,
        };
        channel.watch(channel.membership.member().wake().as_fd())?;
        Ok(Box::new(channel))
    }

    /// Has the channel's descriptor readable when this one is.
    fn watch(&self, fd: BorrowedFd<'_>) -> Result<()> {
        // It may be watched since an attempt to make a queue pair that came to
        // nothing.
        self.epoll.watch(fd.as_raw_fd(), 0)
    }

    /// Makes queue pair, memory and rings.
    pub(super) fn create(&mut self) -> Result<()> {
        if self.core.get_mut().is_some() {
            return Err(Error::new(libc::EEXIST, "create a queue pair twice"));
        }
        let settings = &self.device.settings;
        let immediate = login::immediate(&self.login, settings);
        let (rings, pool) = Rings::new(&Sizes {
            credits: settings.credits,
            receive: settings.max_iu(),
            immediate_offset: immediate.offset,
            pool: settings.pool,
            max_transfer: settings.max_transfer,
        })
        .map_err(from_io("make the memory of a channel"))?;
        let connection = Box::new(self.connection);
        let endpoint = Endpoint::new(connection, pool.area(), rings.receives(), settings.policy)?;
        self.watch(endpoint.notification_fd())?;
        let executor = ProgramExecutor::new(
            self.device.program,
            Arc::clone(&self.finished),
            Arc::clone(&self.sends),
        );
        if let Some(fd) = crate::executor::Executor::fd(&executor) {
            self.watch(fd)?;
        }
        let agreement = Agreement {
            immediate,
            send_queue: endpoint.send_queue(),
        };
        self.receives = (0..rings.receives()).map(srpt_recv_ioctx::new).collect();
        let mut channel = Channel::new(
            endpoint,
            Box::new(executor),
            (rings, pool),
            settings.credits,
            agreement,
            Box::new(Arc::clone(&self.membership)),
        );
        channel.post_receives()?;
        *self.core.get_mut() = Some((channel, Pump::new(Duration::ZERO)));
        Ok(())
    }

    /// Destroys what [`srpt_rdma_ch::create`] made.
    pub(super) fn destroy(&mut self) {
        let core = self.core.get_mut().take();
        if core.is_some() {
            // The finished commands have no buffers any more.
            self.bare_state.set(CH_DISCONNECTED);
        }
    }

    /// Works on the channel.
    ///
    /// # Errors
    /// `EBUSY` within a callback of the channel, `ENOTCONN` without queue
    /// pair.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Channel<Endpoint>, &mut Pump) -> T,
    ) -> Result<T> {
        let mut core = self
            .core
            .try_borrow_mut()
            .map_err(|_| Error::new(libc::EBUSY, "use a channel within its own callback"))?;
        match &mut *core {
            Some((channel, pump)) => Ok(work(channel, pump)),
            None => Err(Error::new(
                libc::ENOTCONN,
                "use a channel without queue pair",
            )),
        }
    }

    /// The connection as the functions of queue pairs take it.
    pub(super) fn connection(&self) -> &dyn Connection {
        &self.connection
    }
}

/// Tells the contexts of a channel where it is, once that does not change any
/// more.
///
/// # Safety
/// `ch` is a living channel that nobody else uses.
pub(super) unsafe fn adopt_contexts(ch: *mut srpt_rdma_ch) {
    // SAFETY: the caller vouches for the pointer.
    let channel = unsafe { &*ch };
    channel.sends.iter().for_each(|context| context.adopt(ch));
    channel
        .receives
        .iter()
        .for_each(|context| context.adopt(ch));
}

/// The channel at `ch`.
///
/// # Safety
/// `ch` is null or a living channel; nobody else works on it meanwhile.
pub(super) unsafe fn channel<'a>(ch: *const srpt_rdma_ch) -> Result<&'a srpt_rdma_ch> {
    // SAFETY: the caller vouches for the pointer.
    unsafe { ch.as_ref() }.ok_or(Error::invalid("use no channel"))
}

/// Does everything that a channel has to do now: completions, finished
/// commands, messages of other channels. Never blocks. To be called when
/// srpt_ch_fd is readable, and after srpt_cm_handler.
///
/// Returns 0, or 1 once the channel is disconnected and is to be freed; -EBUSY
/// within a callback of the channel, -ENOTCONN without queue pair, -EINVAL for
/// NULL.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_poll_ch(ch: *mut srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { channel(ch) }.and_then(|ch| {
        ch.with(|channel, pump| {
            pump.notified(channel);
            pump.serve_messages(channel, ch.membership.member());
            pump.serve(channel);
            channel.state() == ChannelState::Disconnected
        })
    });
    match result {
        Ok(disconnected) => c_int::from(disconnected),
        Err(error) => -error.errno(),
    }
}

/// The descriptor that is readable while srpt_poll_ch has something to do. It
/// belongs to the channel. -EINVAL for NULL.
///
/// # Safety
/// ch is NULL or a living channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_ch_fd(ch: *const srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    match unsafe { channel(ch) } {
        Ok(ch) => ch.epoll.as_raw_fd(),
        Err(error) => -error.errno(),
    }
}

/// The state of a channel. CH_DISCONNECTED for NULL, and after
/// srpt_destroy_ch_ib.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_get_ch_state(ch: *const srpt_rdma_ch) -> srpt_ch_state {
    // SAFETY: the caller vouches for the pointer.
    let Ok(ch) = (unsafe { channel(ch) }) else {
        return CH_DISCONNECTED;
    };
    ch.with(|channel, _| channel.state() as srpt_ch_state)
        .unwrap_or(ch.bare_state.get())
}

/// Ends the connection from this side, then closes the channel as
/// srpt_close_ch does.
///
/// Returns 0, or -ENOTCONN if that was done before or there is no queue pair,
/// -EBUSY within a callback of the channel, -EINVAL for NULL.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_disconnect_ch(ch: *mut srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let result =
        unsafe { channel(ch) }.and_then(|ch| match ch.with(|channel, _| channel.disconnect())? {
            true => Ok(()),
            false => Err(Error::new(libc::ENOTCONN, "disconnect twice")),
        });
    respond(result)
}

/// Puts the queue pair in error and lets everything that was posted come back:
/// the channel drains, and srpt_poll_ch tells when it is disconnected. The
/// commands that the program has are aborted and waited for.
///
/// Returns whether it was this call that did it.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_close_ch(ch: *mut srpt_rdma_ch) -> bool {
    // SAFETY: the caller vouches for the pointer.
    unsafe { channel(ch) }
        .and_then(|ch| ch.with(|channel, _| channel.close()))
        .unwrap_or(false)
}

/// Posts an RDMA write of nothing, with a completion. The last one in the send
/// queue of a channel in error shows that all before it came back.
///
/// Returns 0, or what libibverbs says as a negative errno, -EBUSY, -ENOTCONN or
/// -EINVAL as srpt_poll_ch.
///
/// # Safety
/// ch is NULL or a living channel that no other thread works on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_zerolength_write(ch: *mut srpt_rdma_ch) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let result = unsafe { channel(ch) }
        .and_then(|ch| ch.with(|channel, _| channel.zero_length_write()))
        .and_then(|posted| posted);
    respond(result)
}

/// Frees a channel with its queue pair and destroys its identifier. To be
/// called when srpt_poll_ch returned 1, or to give a channel up whatever its
/// state. Blocks while events of the identifier are not acknowledged, as
/// rdma_destroy_id(3) does. The program must have no command of it any more.
/// NULL is ignored.
///
/// # Safety
/// ch is NULL or a living channel, which nobody uses any more; not to be called
/// within one of its callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srpt_free_ch(ch: *mut srpt_rdma_ch) {
    if ch.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw`, and given up by the caller.
    let mut channel = unsafe { Box::from_raw(ch) };
    channel.destroy();
    let connection = channel.connection;
    drop(channel);
    connection.destroy();
}
