//! Stream sockets: creation, binding, listening, accepting, connecting,
//! sending and receiving with waiting, shutdown and close.
//!
//! A socket goes through the phases of `Phase`; once connected, data is the
//! business of its [`Connection`]. The descriptor of a socket is that of its
//! event channel, which the service thread reads, but for a thread that
//! connects and waits, which reads it itself.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::cm::address;
use crate::cm::connect::{self, Param, Reason};
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;
use crate::lock::locked;
use crate::verbs::bindings::IBV_QPT_RC;

use super::common::Common;
use super::connection::{Connection, Directions, Readiness};
use super::endpoint::Endpoint;
use super::events::{Channel, Report};
use super::flusher;
use super::keepalive::Keepalive;
use super::option::Options;
use super::service;
use super::settings::Defaults;
use super::socket::Socket;
use super::tcp_info::State;
use super::vectors::Cursor;
use super::wait::{self, Notifier, Wake, readable, sleep};
use super::wire::{ConnData, IB_HEADER_LEN};

/// Attempts of each step of address resolution; the first takes a second,
/// each further one twice as long.
const ATTEMPTS: u32 = 7;
const FIRST_TIMEOUT_MS: i32 = 1000;
/// How often a message is sent again that the peer's device does not confirm.
/// The most there is, 7, makes soft-RoCE never give up.
const RETRIES: u8 = 6;
/// Seconds after which a peer that leaves no room is asked whether it is there.
const PROBE_SECONDS: i32 = 5;
/// How long a blocking close without `SO_LINGER` waits for the peer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a non-blocking close looks whether the connection ends at once.
const CLOSE_GRACE: Duration = Duration::from_millis(20);
/// How long a connection is kept in the background after close.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(60);
/// How long a blocking shutdown without `SO_LINGER` waits for room in the send
/// queue.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

/// A stream socket.
#[derive(Debug)]
pub struct Stream {
    domain: i32,
    channel: Channel,
    id: Arc<Id>,
    phase: Mutex<Phase>,
    connection: OnceLock<Connection>,
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
    /// Connects.
    Opening(Opening),
    /// Answered a request and waits for the peer.
    Accepting(Box<Accepting>),
    /// Connected, then perhaps ended; the connection knows.
    Connected,
    /// Could not connect.
    Failed,
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Connected and not yet accepted by the program.
    queue: VecDeque<Arc<Stream>>,
    /// Not connected yet.
    embryos: Vec<Arc<Stream>>,
}

#[derive(Debug)]
struct Opening {
    destination: SockAddr,
    step: Step,
    attempt: u32,
}

#[derive(Debug)]
enum Step {
    Address,
    Route,
    Connect(Box<Endpoint>),
}

#[derive(Debug)]
struct Accepting {
    endpoint: Endpoint,
    peer: ConnData,
    listener: Weak<Stream>,
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
            channel,
            id,
            phase: Mutex::new(phase),
            connection: OnceLock::new(),
            keepalive: Mutex::new(None),
            probes: Mutex::new(None),
            options: Mutex::new(options),
            common: Common::default(),
        }
    }

    /// The number by which programs know the socket.
    pub fn descriptor(&self) -> RawFd {
        self.channel.descriptor()
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
        match (self.common.take_error(), self.connection.get()) {
            (0, Some(connection)) => connection.take_error(),
            (errno, _) => errno,
        }
    }

    fn has_error(&self) -> bool {
        self.common.error() != 0
    }

    /// The connection, once there is one.
    pub fn established(&self) -> Option<&Connection> {
        self.connection.get()
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
        self.connection.get().map(Connection::notification_fd)
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

    /// Accepts connections from now on, `backlog` and one at once.
    ///
    /// # Errors
    /// `EINVAL` for a socket that connects or is connected, else what the
    /// kernel says.
    pub fn listen(self: &Arc<Self>, backlog: i32) -> Result<()> {
        let mut phase = locked(&self.phase);
        let bound = usize::try_from(backlog.max(0))
            .unwrap_or(0)
            .saturating_add(1);
        match &mut *phase {
            Phase::Init | Phase::Bound => {}
            Phase::Listening(listener) => {
                listener.backlog = bound;
                return Ok(());
            }
            _ => return Err(Error::invalid("listen on a connected socket")),
        }
        address::listen(&self.id, backlog)?;
        *phase = Phase::Listening(Listener {
            backlog: bound,
            queue: VecDeque::new(),
            embryos: Vec::new(),
        });
        drop(phase);
        service::watch(self.descriptor(), self)
    }

    /// Takes the next connection; waits for one unless non-blocking.
    ///
    /// # Errors
    /// `EINVAL` if the socket does not listen, `EAGAIN`, `EINTR`, `EBADF` if
    /// it is closed meanwhile, `ENODEV` once if its device is removed.
    pub fn accept(&self) -> Result<Arc<Self>> {
        let deadline = self.common.receive_timeout().deadline();
        self.wait_for(None, self.common.is_nonblocking(), deadline, || {
            self.common.check_open()?;
            match &mut *locked(&self.phase) {
                Phase::Listening(listener) => listener
                    .queue
                    .pop_front()
                    .ok_or(Error::new(libc::EAGAIN, "accept a connection")),
                Phase::Failed if self.has_error() => {
                    Err(Error::new(self.take_error(), "accept a connection"))
                }
                _ => Err(Error::invalid("accept on a socket that does not listen")),
            }
        })
    }

    /// Connects to `destination`; waits unless non-blocking. A wait that a
    /// signal ended goes on in the background and can be resumed.
    ///
    /// # Errors
    /// `EINPROGRESS` if non-blocking, `EALREADY`, `EISCONN`; what became of
    /// the attempt: `ECONNREFUSED`, `ETIMEDOUT`, `EHOSTUNREACH`, …
    pub fn connect(self: &Arc<Self>, destination: &SockAddr) -> Result<()> {
        let nonblocking = self.common.is_nonblocking();
        {
            let destination = &unmapped(destination);
            let mut phase = locked(&self.phase);
            match &*phase {
                Phase::Init | Phase::Bound => {
                    address::resolve_addr(&self.id, None, destination, FIRST_TIMEOUT_MS)
                        .inspect_err(|error| self.common.set_error(error.errno()))?;
                    // What an earlier attempt has left says nothing of this one.
                    self.common.take_error();
                    *phase = Phase::Opening(Opening {
                        destination: *destination,
                        step: Step::Address,
                        attempt: 0,
                    });
                }
                Phase::Opening(_) if nonblocking => {
                    return Err(Error::new(libc::EALREADY, "connect twice"));
                }
                Phase::Opening(_) => {}
                Phase::Connected | Phase::Accepting(_) => {
                    return Err(Error::new(libc::EISCONN, "connect a connected socket"));
                }
                Phase::Failed => {
                    return Err(Error::new(libc::ENOTCONN, "connect after a failure"));
                }
                Phase::Listening(_) => {
                    return Err(Error::invalid("connect a listening socket"));
                }
            }
        }
        if nonblocking {
            service::watch(self.descriptor(), self)?;
            return Err(Error::new(libc::EINPROGRESS, "connect"));
        }
        let result = self.wait_until_connected();
        if matches!(&result, Err(error) if error.errno() != libc::EINTR) {
            return result;
        }
        // From now on the service thread notices when the peer goes.
        service::watch(self.descriptor(), self)?;
        result
    }

    fn wait_until_connected(self: &Arc<Self>) -> Result<()> {
        let wake = Wake::of_thread()?;
        let _registered = self.common.waiters().register(&wake);
        loop {
            self.handle_events();
            self.common.check_open()?;
            match &*locked(&self.phase) {
                Phase::Connected => return Ok(()),
                Phase::Opening(_) => {}
                _ => {
                    // Another thread may have taken the reason (SO_ERROR).
                    let errno = match self.common.error() {
                        0 => libc::ENOTCONN,
                        errno => errno,
                    };
                    return Err(Error::new(errno, "connect"));
                }
            }
            let mut entries = [readable(self.descriptor()), readable(wake.as_raw_fd())];
            sleep(&mut entries, None)?;
            let [_, woken] = entries;
            if woken.revents != 0 {
                wake.clear();
            }
        }
    }

    /// Handles all pending events of the connection manager; `false` if the
    /// channel is of no use any more.
    pub fn handle_events(self: &Arc<Self>) -> bool {
        let mut happened = false;
        let mut listener = None;
        let usable = {
            let mut phase = locked(&self.phase);
            loop {
                match Report::next(&self.channel) {
                    Ok(report) => {
                        happened = true;
                        listener = self.handle(&mut phase, &report).or(listener);
                    }
                    Err(error) if error.errno() == libc::EINTR => {}
                    Err(error) => break error.errno() == libc::EAGAIN,
                }
            }
        };
        if let Some(listener) = listener {
            listener.embryo_done(self);
        }
        if happened {
            self.common.waiters().notify();
        }
        usable
    }

    /// Handles an event. Returns the listener that is to be told that this
    /// socket, which it made, has connected or failed.
    fn handle(self: &Arc<Self>, phase: &mut Phase, report: &Report) -> Option<Arc<Self>> {
        let result = match phase {
            Phase::Listening(listener) => {
                if report.kind == RDMA_CM_EVENT_CONNECT_REQUEST
                    && let Err(error) = self.answer(listener, report)
                {
                    log::error!("{}: a connection is not accepted: {error}", self.id);
                }
                // A listener of all devices goes on and is not told.
                if report.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
                    self.common.set_error(report.errno());
                    *phase = Phase::Failed;
                }
                return None;
            }
            Phase::Opening(opening) => self.open_further(opening, report),
            Phase::Accepting(_) => {
                let Phase::Accepting(accepting) = std::mem::replace(phase, Phase::Failed) else {
                    return None;
                };
                if report.kind == RDMA_CM_EVENT_ESTABLISHED {
                    self.connected(accepting.endpoint, accepting.peer);
                    *phase = Phase::Connected;
                }
                return accepting.listener.upgrade();
            }
            Phase::Connected => {
                if matches!(
                    report.kind,
                    RDMA_CM_EVENT_DISCONNECTED
                        | RDMA_CM_EVENT_REJECTED
                        | RDMA_CM_EVENT_DEVICE_REMOVAL
                ) && let Some(connection) = self.connection.get()
                {
                    connection.peer_gone();
                }
                return None;
            }
            Phase::Init | Phase::Bound | Phase::Failed => return None,
        };
        match result {
            Ok(None) => {}
            Ok(Some((endpoint, peer))) => {
                self.connected(endpoint, peer);
                *phase = Phase::Connected;
            }
            Err(error) => {
                log::info!("{}: cannot connect: {error}", self.id);
                self.common.set_error(error.errno());
                *phase = Phase::Failed;
            }
        }
        None
    }

    fn connected(self: &Arc<Self>, endpoint: Endpoint, peer: ConnData) {
        let connection = Connection::new(endpoint, peer, Arc::clone(self.common.waiters()));
        // Phases lead here once.
        let _ = self.connection.set(connection);
        if let Err(error) = self.keep_alive() {
            log::warn!("{}: no keep-alive messages: {error}", self.id);
        }
    }

    /// Starts, restarts or stops the keep-alive messages of the connection, as
    /// the options have it now.
    ///
    /// # Errors
    /// What the kernel says of timers.
    pub fn keep_alive(self: &Arc<Self>) -> Result<()> {
        let idle = self.options().keepalive();
        let timer = match (idle, self.connection.get()) {
            (Some(seconds), Some(_)) => {
                Some(Keepalive::start(self, seconds, Connection::keep_alive)?)
            }
            _ => None,
        };
        let before = std::mem::replace(&mut *locked(&self.keepalive), timer);
        drop(before);
        Ok(())
    }

    /// Sees to it that a peer that has to make room proves that it is there, as
    /// TCP does by its persist timer (RFC 9293, section 3.8.6.1).
    fn probe_peer(self: &Arc<Self>, connection: &Connection) {
        if !connection.wants_probes() {
            return;
        }
        match Keepalive::start(self, PROBE_SECONDS, Connection::probe) {
            Ok(timer) => {
                let before = locked(&self.probes).replace(timer);
                drop(before);
            }
            Err(error) => log::warn!("{}: the peer is not probed: {error}", self.id),
        }
    }

    /// A timer of this socket's has ended.
    pub fn timer_ended(&self, timer: &Arc<Keepalive>) {
        for place in [&self.keepalive, &self.probes] {
            let ended = locked(place).take_if(|own| Arc::ptr_eq(own, timer));
            drop(ended);
        }
    }

    /// Where the socket is in its life, in the words of TCP.
    pub fn tcp_state(&self) -> State {
        if let Some(connection) = self.connection.get() {
            return match connection.open_directions() {
                None => State::Close,
                Some((_, false)) => State::FinWait,
                Some((false, true)) => State::CloseWait,
                Some((true, true)) => State::Established,
            };
        }
        match &*locked(&self.phase) {
            Phase::Init | Phase::Bound | Phase::Failed => State::Close,
            Phase::Listening(_) => State::Listen,
            Phase::Opening(_) => State::SynSent,
            Phase::Accepting(_) | Phase::Connected => State::SynReceived,
        }
    }

    /// The next step of connecting; the result once it is done.
    fn open_further(
        &self,
        opening: &mut Opening,
        report: &Report,
    ) -> Result<Option<(Endpoint, ConnData)>> {
        let failed = || Error::new(report.errno(), "connect");
        let timed_out = report.status == -libc::ETIMEDOUT && opening.attempt + 1 < ATTEMPTS;
        match (&opening.step, report.kind) {
            (Step::Address, RDMA_CM_EVENT_ADDR_RESOLVED) => {
                opening.step = Step::Route;
                opening.attempt = 0;
                self.resolve_route(opening)?;
            }
            (Step::Address, RDMA_CM_EVENT_ADDR_ERROR) if timed_out => {
                opening.attempt += 1;
                let timeout = FIRST_TIMEOUT_MS << opening.attempt;
                address::resolve_addr(&self.id, None, &opening.destination, timeout)?;
            }
            (Step::Route, RDMA_CM_EVENT_ROUTE_RESOLVED) => {
                let endpoint = Endpoint::new(&self.id, &self.options().settings)?;
                self.request(&endpoint)?;
                opening.step = Step::Connect(Box::new(endpoint));
            }
            (Step::Route, RDMA_CM_EVENT_ROUTE_ERROR) if timed_out => {
                opening.attempt += 1;
                self.resolve_route(opening)?;
            }
            (Step::Connect(_), RDMA_CM_EVENT_ESTABLISHED) => {
                let peer = ConnData::decode(&report.private_data)
                    .map_err(|_| Error::new(libc::ENOTSUP, "understand the peer"))?;
                let step = std::mem::replace(&mut opening.step, Step::Address);
                if let Step::Connect(endpoint) = step {
                    return Ok(Some((*endpoint, peer)));
                }
            }
            (_, RDMA_CM_EVENT_ADDR_CHANGE | RDMA_CM_EVENT_TIMEWAIT_EXIT) => {}
            _ => return Err(failed()),
        }
        Ok(None)
    }

    fn resolve_route(&self, opening: &Opening) -> Result<()> {
        let route = std::mem::take(&mut self.options().route);
        if route.is_empty() {
            return address::resolve_route(&self.id, FIRST_TIMEOUT_MS << opening.attempt);
        }
        super::route::set(&self.id, &route)
    }

    fn request(&self, endpoint: &Endpoint) -> Result<()> {
        let data = endpoint.conn_data().encode();
        let infiniband = self
            .id
            .src_addr()
            .is_some_and(|addr| i32::from(addr.family()) == AF_IB);
        let header = if infiniband { IB_HEADER_LEN } else { 0 };
        let mut private_data = vec![0; header];
        private_data.extend_from_slice(&data);
        connect::connect(
            &self.id,
            Some(&Param {
                private_data: &private_data,
                responder_resources: 0,
                initiator_depth: endpoint.carrier().initiator_depth(),
                flow_control: 1,
                retry_count: RETRIES,
                rnr_retry_count: 7,
                srq: 0,
                qp_num: 0,
            }),
        )
    }

    /// Answers a connection request.
    fn answer(self: &Arc<Self>, listener: &mut Listener, report: &Report) -> Result<()> {
        let id = Id::from_pointer(report.id)?;
        let waiting = listener.queue.len().saturating_add(listener.embryos.len());
        let infiniband = self
            .id
            .src_addr()
            .is_some_and(|addr| i32::from(addr.family()) == AF_IB);
        let header = if infiniband { IB_HEADER_LEN } else { 0 };
        let data = report.private_data.get(header..).unwrap_or_default();
        let peer = match ConnData::decode(data) {
            _ if waiting >= listener.backlog => {
                Err(Error::new(libc::EAGAIN, "queue one more connection"))
            }
            Err(_) => Err(Error::new(libc::EPROTO, "understand the peer")),
            Ok(peer) => Ok(peer),
        };
        let accepted = peer.and_then(|peer| self.accept_request(&id, peer, report));
        match accepted {
            Ok(stream) => {
                listener.embryos.push(stream);
                Ok(())
            }
            Err(error) => {
                // A socket that was made for it has rejected and destroyed it.
                if Id::from_pointer(report.id).is_ok_and(|found| Arc::ptr_eq(&found, &id)) {
                    if let Err(error) = connect::reject(&id, &[], Reason::Consumer) {
                        log::debug!("{id}: {error}");
                    }
                    id.destroy()?;
                }
                Err(error)
            }
        }
    }

    fn accept_request(
        self: &Arc<Self>,
        id: &Arc<Id>,
        peer: ConnData,
        report: &Report,
    ) -> Result<Arc<Self>> {
        let channel = Channel::open()?;
        // SAFETY: the channel is open and outlives the identifier.
        unsafe { id.migrate(channel.as_pointer()) }?;
        let options = self.options().inherit();
        let endpoint = Endpoint::new(id, &options.settings);
        // From here on, dropping the socket destroys the identifier, whose
        // events go to its channel.
        let stream = Self::assemble(self.domain, channel, Arc::clone(id), options, Phase::Failed);
        let endpoint = endpoint.inspect_err(|_| {
            // Before the identifier goes.
            if let Err(error) = connect::reject(id, &[], Reason::Consumer) {
                log::debug!("{id}: {error}");
            }
        })?;
        id.state().most_retries = Some(RETRIES);
        let data = endpoint.conn_data().encode();
        connect::accept(
            id,
            Some(&Param {
                private_data: &data,
                responder_resources: report.conn.responder_resources,
                initiator_depth: report.conn.initiator_depth,
                flow_control: report.conn.flow_control,
                retry_count: report.conn.retry_count,
                rnr_retry_count: report.conn.rnr_retry_count,
                srq: 0,
                qp_num: 0,
            }),
        )?;
        *locked(&stream.phase) = Phase::Accepting(Box::new(Accepting {
            endpoint,
            peer,
            listener: Arc::downgrade(self),
        }));
        let stream = Arc::new(stream);
        service::watch(stream.descriptor(), &stream)?;
        Ok(stream)
    }

    /// A socket that this listener made has connected or failed.
    fn embryo_done(&self, embryo: &Arc<Self>) {
        if let Phase::Listening(listener) = &mut *locked(&self.phase) {
            listener.embryos.retain(|other| !Arc::ptr_eq(other, embryo));
            if embryo.connection.get().is_some() {
                listener.queue.push_back(Arc::clone(embryo));
            }
        }
        self.common.waiters().notify();
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
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        match &*locked(&self.phase) {
            Phase::Opening(_) | Phase::Accepting(_) => {
                Err(Error::new(libc::EAGAIN, "use a socket that is connecting"))
            }
            _ => Err(Error::new(libc::ENOTCONN, "use an unconnected socket")),
        }
    }

    /// Sends all of `source`, or as much as is possible without waiting if
    /// non-blocking. Returns how many bytes were taken.
    ///
    /// # Errors
    /// Those of [`Connection::send`]; `ENOTCONN`, `EINTR`. After some bytes
    /// were taken there is no error; the next call has it.
    pub fn send(self: &Arc<Self>, source: &mut Cursor<'_>, flags: i32) -> Result<usize> {
        let (mut ramp, mut gathered) = (0, false);
        let sent = self.transmit(source, flags, |connection, source| {
            gathered |= connection.send(source, &mut ramp)?;
            Ok(())
        });
        if gathered {
            flusher::flush_soon(self);
        }
        sent
    }

    /// Posts what small sends have gathered.
    pub fn flush(&self) {
        if let Some(connection) = self.connection.get() {
            connection.flush();
        }
    }

    /// Calls `step` until nothing of `source` is left, waiting where it says
    /// `EAGAIN`.
    fn transmit<'a>(
        self: &Arc<Self>,
        source: &mut Cursor<'a>,
        flags: i32,
        mut step: impl FnMut(&Connection, &mut Cursor<'a>) -> Result<()>,
    ) -> Result<usize> {
        let connection = self.connection()?;
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let deadline = self.common.send_timeout().deadline();
        let total = source.remaining();
        while source.remaining() > 0 {
            let result = self.wait_for(Some(connection), nonblocking, deadline, || {
                self.common.check_open()?;
                step(connection, source).inspect_err(|error| {
                    if error.errno() == libc::EAGAIN {
                        self.probe_peer(connection);
                    }
                })
            });
            if let Err(error) = result {
                let sent = total.saturating_sub(source.remaining());
                if sent == 0 {
                    return Err(error);
                }
                connection.report_again();
                return Ok(sent);
            }
        }
        Ok(total)
    }

    /// The connection on which to map memory.
    ///
    /// # Errors
    /// `EINVAL` if there is none, `EBADF` if the socket is closed.
    pub fn mappable(&self) -> Result<&Connection> {
        self.common.check_open()?;
        self.connection
            .get()
            .ok_or(Error::invalid("map memory of an unconnected socket"))
    }

    /// Writes `source` to the memory that the peer exposed at `offset`; waits
    /// for room unless non-blocking. Returns how many bytes were taken, which
    /// is less than all where a mapping ends.
    ///
    /// # Errors
    /// Those of [`Connection::write_mapped`]; `ENOTCONN`, `EINTR`. After some
    /// bytes were taken there is no error.
    pub fn write_mapped(
        self: &Arc<Self>,
        source: &mut Cursor<'_>,
        mut offset: u64,
        flags: i32,
    ) -> Result<usize> {
        let mut ramp = 0;
        self.transmit(source, flags, |connection, source| {
            connection.write_mapped(source, &mut offset, &mut ramp)
        })
    }

    /// Receives into `target`: what is there, or with `MSG_WAITALL` as much
    /// as fits. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of [`Connection::receive`]; `ENOTCONN`, `EINTR`. After some bytes
    /// were received there is no error.
    pub fn receive(&self, target: &mut Cursor<'_>, flags: i32) -> Result<usize> {
        let connection = self.connection()?;
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0 && !peek;
        let deadline = self.common.receive_timeout().deadline();
        let mut total = 0usize;
        while target.remaining() > 0 {
            let result = self.wait_for(Some(connection), nonblocking, deadline, || {
                self.common.check_open()?;
                connection.receive(target, peek)
            });
            match result {
                Ok(0) => break,
                Ok(bytes) => total = total.saturating_add(bytes),
                Err(error) if total == 0 => return Err(error),
                Err(_) => {
                    connection.report_again();
                    break;
                }
            }
            if !all {
                break;
            }
        }
        Ok(total)
    }

    /// Shuts down one or both directions; blocking sockets wait for a while, or
    /// as long as `SO_LINGER` says, until the peer is being told. Sockets without
    /// a connection have nothing to shut down.
    pub fn shutdown(&self, directions: Directions) {
        let Some(connection) = self.connection.get() else {
            return;
        };
        if connection.shutdown(directions) || self.common.is_nonblocking() {
            return;
        }
        let patience = self.options().linger.unwrap_or(SHUTDOWN_PATIENCE);
        let deadline = Instant::now().checked_add(patience);
        let told = self.wait_for(Some(connection), false, deadline, || {
            if connection.has_pending() {
                return Err(Error::new(libc::EAGAIN, "shut down"));
            }
            Ok(())
        });
        if let Err(error) = told {
            log::warn!("{}: the peer is not told yet: {error}", self.id);
        }
    }

    /// Whether its connection, if any, has ended.
    pub fn has_ended(&self) -> bool {
        self.connection.get().is_none_or(Connection::is_over)
    }

    /// Ends the socket: wakes all who wait for it, tells the peer, and waits
    /// until the data that was sent has arrived, as long as `SO_LINGER` says.
    /// A non-blocking socket ends in the background. Unless it does, what the
    /// socket holds is free once the last reference goes: no thread of the
    /// library's own keeps one.
    pub fn close(self: Arc<Self>) {
        self.common.set_closed();
        let unaccepted = match &mut *locked(&self.phase) {
            Phase::Listening(listener) => {
                listener.embryos.clear();
                std::mem::take(&mut listener.queue)
            }
            _ => VecDeque::new(),
        };
        self.common.waiters().notify();
        for stream in unaccepted {
            stream.common.set_nonblocking(true);
            stream.close();
        }
        if !self.end_connection() {
            let deadline = Instant::now().checked_add(BACKGROUND_PATIENCE);
            service::linger(Socket::Stream(self), deadline.unwrap_or_else(Instant::now));
            return;
        }
        for timer in [&self.keepalive, &self.probes] {
            let timer = locked(timer).take();
            drop(timer);
        }
        service::release(self.descriptor(), Arc::as_ptr(&self));
        flusher::release(&self);
    }

    /// Ends the connection, if any, and waits for its end as long as the options
    /// say. Returns `false` if it is to go on in the background.
    fn end_connection(&self) -> bool {
        let Some(connection) = self.connection.get() else {
            return true;
        };
        connection.shutdown(Directions::Both);
        if connection.is_over() {
            return true;
        }
        let linger = self.options().linger;
        let patience = match linger {
            Some(limit) => limit,
            None if self.common.is_nonblocking() => CLOSE_GRACE,
            None => CLOSE_PATIENCE,
        };
        let deadline = Instant::now().checked_add(patience);
        // A signal does not end the wait: what was sent would be lost.
        loop {
            let waited = self.wait_for(Some(connection), false, deadline, || {
                if connection.is_over() {
                    return Ok(());
                }
                Err(Error::new(libc::EAGAIN, "end the connection"))
            });
            match waited {
                Err(error) if error.errno() == libc::EINTR => {}
                other => return other.is_ok() || linger.is_some(),
            }
        }
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
        self.connection
            .get()
            .and_then(|_| self.id.dst_addr())
            .ok_or(Error::new(libc::ENOTCONN, "name the peer"))
    }

    /// What `poll(2)` would say of the events `interest`, those that are
    /// always reported included.
    pub fn poll(self: &Arc<Self>, interest: i16) -> i16 {
        let reading = libc::POLLIN | libc::POLLRDNORM;
        let both = reading | libc::POLLOUT | libc::POLLWRNORM;
        let always = libc::POLLERR | libc::POLLHUP;
        let ready = match self.connection.get() {
            Some(connection) => {
                let state = connection.readiness(interest & reading != 0);
                if interest & libc::POLLOUT != 0 && !state.writable {
                    self.probe_peer(connection);
                }
                connected_events(state)
            }
            None => match &*locked(&self.phase) {
                Phase::Init | Phase::Bound => libc::POLLOUT | libc::POLLHUP,
                Phase::Listening(listener) if listener.queue.is_empty() => 0,
                Phase::Listening(_) => libc::POLLIN | libc::POLLRDNORM,
                Phase::Failed => both | libc::POLLERR,
                Phase::Opening(_) | Phase::Accepting(_) | Phase::Connected => 0,
            },
        };
        ready & (interest | always)
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

fn connected_events(state: Readiness) -> i16 {
    let mut events = 0;
    if state.readable {
        events |= libc::POLLIN | libc::POLLRDNORM;
    }
    if state.writable {
        events |= libc::POLLOUT | libc::POLLWRNORM;
    }
    if state.end_of_stream {
        events |= libc::POLLRDHUP;
    }
    if state.hung_up {
        events |= libc::POLLHUP;
    }
    if state.broken {
        events |= libc::POLLERR;
    }
    events
}

impl service::Watched for Stream {
    fn handle(self: Arc<Self>) -> bool {
        self.handle_events()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        service::forget(self.descriptor(), self);
        // The queue pair goes before the identifier, that before the channel.
        drop(self.connection.take());
        *locked(&self.phase) = Phase::Failed;
        if let Err(error) = Arc::clone(&self.id).destroy() {
            log::error!("{}: {error}", self.id);
        }
    }
}
