//! Stream sockets: creation, binding, and what the connection manager's events
//! make of them.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | `listen` | accepting connections |
//! | `open` | connecting |
//! | `transfer` | sending and receiving with waiting |
//! | `end` | shutdown and close |
//! | `timers` | keep-alive messages and probes |
//! | `state` | polling, and the state in TCP's words |
//!
//! A socket goes through the phases of `Phase`; once connected, data is the
//! business of its [`Connection`]. The descriptor of a socket is that of its
//! event channel, which the service thread reads, but for a thread that
//! connects and waits, which reads it itself.

mod end;
mod listen;
mod open;
mod state;
mod timers;
mod transfer;

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use crate::abi::*;
use crate::cm::address;
use crate::cm::connect;
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::lock::{Mutex, MutexGuard, OnceCell, locked};
use crate::verbs::bindings::IBV_QPT_RC;

use super::common::Common;
use super::connection::Connection;
use super::endpoint::Endpoint;
use super::events::{Channel, Report};
use super::keepalive::Keepalive;
use super::option::Options;
use super::service::{self, Next};
use super::settings::Defaults;
use super::sockets::{self, SocketNumber};
use super::wait::{self, Awaited, Notifier};
use super::wire::{ConnData, IB_HEADER_LEN};

use listen::{Accepting, Listener};
use open::Opening;

/// How often a message is sent again that the peer's device does not confirm.
/// The most there is, 7, makes soft-RoCE never give up.
const RETRIES: u8 = 6;

/// A stream socket.
#[derive(Debug)]
pub struct Stream {
    domain: i32,
    channel: SocketNumber<Channel>,
    id: Arc<Id>,
    /// Held by the thread that handles an event, for as long as that takes.
    handling: Mutex<()>,
    /// Not locked while a queue pair is made or memory registered, as every call may
    /// look at it; after `handling`.
    phase: Mutex<Phase>,
    /// Boxed, so that it stays where threads have used it until it is dropped.
    connection: OnceCell<Box<Connection>>,
    keepalive: Mutex<Option<Arc<Keepalive>>>,
    probes: Mutex<Option<Arc<Keepalive>>>,
    options: Mutex<Options>,
    common: Common,
}

/// Where a socket is in its life.
#[derive(Debug)]
enum Phase {
    /// Nothing was done with it; also after an attempt to connect that could
    /// not even begin.
    Init,
    /// Bound to a local address.
    Bound,
    /// Accepts connections.
    Listening(Listener),
    /// Connects. Who takes the next step has the attempt meanwhile.
    Opening(Option<Opening>),
    /// Answered a request and waits for the peer.
    Accepting(Box<Accepting>),
    /// Connected, then perhaps ended; the connection knows.
    Connected,
    /// Could not connect.
    Failed,
}

impl Stream {
    /// A new socket of the address family `domain`.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device, else what the kernel says.
    pub fn new(domain: i32) -> Result<Arc<Self>> {
        let channel = Channel::open()?;
        // SAFETY: the channel outlives the identifier, see `drop`.
        let id = unsafe {
            Id::create(
                channel.as_pointer(),
                std::ptr::null_mut(),
                RDMA_PS_TCP,
                IBV_QPT_RC,
            )
        }?;
        id.state().hides_paths = true;
        let options = Options::new(&Defaults::get().settings);
        Ok(Arc::new(Self::assemble(
            domain,
            channel,
            id,
            options,
            Phase::Init,
        )))
    }

    fn assemble(
        domain: i32,
        channel: Channel,
        id: Arc<Id>,
        options: Options,
        phase: Phase,
    ) -> Self {
        Self {
            domain,
            channel: sockets::number(channel),
            id,
            handling: Mutex::new(()),
            phase: Mutex::new(phase),
            connection: OnceCell::new(),
            keepalive: Mutex::new(None),
            probes: Mutex::new(None),
            options: Mutex::new(options),
            common: Common::default(),
        }
    }

    /// The number by which programs know the socket.
    pub fn descriptor(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    /// Address family given at creation.
    pub fn domain(&self) -> i32 {
        self.domain
    }

    /// Its identifier.
    pub fn id(&self) -> &Arc<Id> {
        &self.id
    }

    /// Its options.
    pub fn options(&self) -> MutexGuard<'_, Options> {
        locked(&self.options)
    }

    /// What it has in common with sockets of every kind.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Takes the pending error (`SO_ERROR`), 0 if there is none.
    pub fn take_error(&self) -> i32 {
        match (self.common.take_error(), self.established()) {
            (0, Some(connection)) => connection.take_error(),
            (errno, _) => errno,
        }
    }

    fn has_error(&self) -> bool {
        self.common.error() != 0
    }

    /// The connection, once there is one.
    pub fn established(&self) -> Option<&Connection> {
        self.connection.get().map(Box::as_ref)
    }

    /// Whether it accepts connections.
    pub fn is_listening(&self) -> bool {
        matches!(*locked(&self.phase), Phase::Listening(_))
    }

    /// Whether it has begun to connect, or has connected or failed.
    pub fn is_opening_or_later(&self) -> bool {
        !matches!(
            *locked(&self.phase),
            Phase::Init | Phase::Bound | Phase::Listening(_)
        )
    }

    /// Descriptor of the completion channel, once connected.
    pub fn notification_fd(&self) -> Option<RawFd> {
        self.established().map(Connection::notification_fd)
    }

    /// Binds to a local address.
    ///
    /// # Errors
    /// `EINVAL` if bound already, else what the kernel says.
    pub fn bind(&self, addr: &SockAddr) -> Result<()> {
        let mut phase = locked(&self.phase);
        if !matches!(*phase, Phase::Init) {
            return Err(Error::invalid("bind a socket twice"));
        }
        address::bind(&self.id, &unmapped(addr))?;
        *phase = Phase::Bound;
        Ok(())
    }

    /// Handles the next event of the connection manager, if there is one. If there
    /// will be none any more, what depends on them fails.
    fn handle_next(self: &Arc<Self>) -> Next {
        // In their order, also if two threads are at it.
        let _handling = locked(&self.handling);
        let asked = Report::next(&self.channel);
        let next = Channel::after(&asked);
        match asked {
            Ok(report) => self.handle_report(&report),
            Err(error) if next == Next::Watch => log::debug!("{}: no event: {error}", self.id),
            Err(error) => {
                log::error!("{}: {error}", self.id);
                if next == Next::Forget {
                    let listener = self.cut_off(&error);
                    self.handled(listener);
                }
            }
        }
        next
    }

    fn handle_report(self: &Arc<Self>, report: &Report) {
        if report.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
            if let Err(error) = self.answer(report) {
                log::error!("{}: a connection is not accepted: {error}", self.id);
            }
            // Who waits for a connection is told when it is made.
            return;
        }
        let listener = self.handle(report);
        self.handled(listener);
    }

    /// Tells who waits, and the `listener` that made it, of a new phase.
    fn handled(self: &Arc<Self>, listener: Option<Arc<Self>>) {
        if let Some(listener) = listener {
            listener.embryo_done(self);
        }
        self.common.waiters().notify();
    }

    /// There will be no events any more. What is connected works without. Returns
    /// as [`Stream::handle`] does.
    fn cut_off(&self, error: &Error) -> Option<Arc<Self>> {
        let phase = locked(&self.phase);
        let listener = match &*phase {
            Phase::Listening(_) | Phase::Opening(_) => None,
            Phase::Accepting(accepting) => accepting.listener.upgrade(),
            Phase::Init | Phase::Bound | Phase::Connected | Phase::Failed => return None,
        };
        self.fail(phase, error.errno());
        listener
    }

    /// Ends the phase by a failure, of which those who wait are told. What it held is
    /// freed without the lock.
    fn fail(&self, mut phase: MutexGuard<'_, Phase>, errno: i32) {
        self.common.set_error(errno);
        let before = std::mem::replace(&mut *phase, Phase::Failed);
        drop(phase);
        // It may take a while to free.
        self.common.waiters().notify();
        drop(before);
    }

    /// Handles an event. Returns the listener that is to be told that this
    /// socket, which it made, has connected or failed.
    fn handle(self: &Arc<Self>, report: &Report) -> Option<Arc<Self>> {
        let mut phase = locked(&self.phase);
        match &mut *phase {
            Phase::Listening(_) => {
                // A listener of all devices goes on and is not told.
                if report.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
                    self.fail(phase, report.errno());
                }
            }
            Phase::Opening(opening) => {
                let opening = opening.take();
                drop(phase);
                // It is there, as one thread handles events at a time.
                if let Some(opening) = opening {
                    self.open(opening, report);
                }
            }
            Phase::Accepting(_) => return self.accepted(&mut phase, report),
            Phase::Connected => {
                if matches!(
                    report.kind,
                    RDMA_CM_EVENT_DISCONNECTED
                        | RDMA_CM_EVENT_REJECTED
                        | RDMA_CM_EVENT_DEVICE_REMOVAL
                ) && let Some(connection) = self.established()
                {
                    connection.peer_gone();
                }
            }
            Phase::Init | Phase::Bound | Phase::Failed => {}
        }
        None
    }

    fn connection_of(&self, endpoint: Endpoint, peer: ConnData) -> Connection {
        Connection::new(endpoint, peer, Arc::clone(self.common.waiters()))
    }

    fn connected(self: &Arc<Self>, connection: Connection) {
        // Phases lead here once.
        let _ = self.connection.set(Box::new(connection));
        if let Err(error) = self.keep_alive() {
            log::warn!("{}: no keep-alive messages: {error}", self.id);
        }
    }

    /// As [`wait::wait_for`], for what the socket tells of.
    fn wait_for<R>(
        &self,
        connection: Option<&Connection>,
        nonblocking: bool,
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let notifier = connection.map(|connection| connection as &dyn Notifier);
        wait::wait_for(
            self,
            self.common.waiters(),
            notifier,
            nonblocking,
            deadline,
            attempt,
        )
    }

    /// The connection, or why there is none.
    fn connection(&self) -> Result<&Connection> {
        self.common.check_open()?;
        if let Some(connection) = self.established() {
            return Ok(connection);
        }
        match &*locked(&self.phase) {
            Phase::Opening(_) | Phase::Accepting(_) => {
                Err(Error::new(libc::EAGAIN, "use a socket that is connecting"))
            }
            _ => Err(Error::new(libc::ENOTCONN, "use an unconnected socket")),
        }
    }

    /// Bytes before what a request says, which InfiniBand addresses leave there.
    fn header_len(&self) -> usize {
        let addr = self.id.src_addr();
        let infiniband = addr.is_some_and(|addr| i32::from(addr.family()) == AF_IB);
        if infiniband { IB_HEADER_LEN } else { 0 }
    }

    /// Copy of the local address, if there is one.
    pub fn local_address(&self) -> Option<SockAddr> {
        self.id.src_addr()
    }

    /// Copy of the peer's address.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection.
    pub fn peer_address(&self) -> Result<SockAddr> {
        self.established()
            .and_then(|_| self.id.dst_addr())
            .ok_or(Error::new(libc::ENOTCONN, "name the peer"))
    }
}

/// The kernel's connection manager knows no IPv4 mapped into IPv6.
fn unmapped(addr: &SockAddr) -> SockAddr {
    match addr.ip() {
        Some(IpAddr::V6(ip)) => ip
            .to_ipv4_mapped()
            .map_or(*addr, |ip| SockAddr::v4(ip, addr.port())),
        _ => *addr,
    }
}

impl Awaited for Stream {
    unsafe fn let_go(this: *const Self) {
        // SAFETY: the caller vouches for it.
        unsafe { Arc::decrement_strong_count(this) };
    }
}

impl service::Watched for Stream {
    fn holds(&self) -> *const () {
        match &*locked(&self.phase) {
            Phase::Accepting(accepting) => accepting.listener.as_ptr().cast(),
            _ => std::ptr::null(),
        }
    }

    fn handle(self: Arc<Self>, _: RawFd) -> Next {
        self.handle_next()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        service::forget(self.descriptor(), self);
        // The queue pair goes before the identifier, that before the channel.
        if let Some(connection) = self.connection.take() {
            // What was sent has arrived, or is given up.
            connect::announce_end(&self.id);
            drop(connection);
        }
        *locked(&self.phase) = Phase::Failed;
        if let Err(error) = Arc::clone(&self.id).destroy() {
            log::error!("{}: {error}", self.id);
        }
    }
}
