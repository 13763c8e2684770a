//! A target that listens on an address and serves everyone who logs in. Who
//! may, and what commands do, says the [`Target`].
//!
//! One thread listens and judges logins; each channel has a thread of its own.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdmacm::Result;
use rdmacm::abi::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL};
use rdmacm::cm::owned::{Connection, Event, EventChannel};

use crate::driver::{self, Admitted};
use crate::executor::{LoginInfo, Target};
use crate::login;
use crate::memory;
use crate::processors::Processors;
pub use crate::queue_pair::QpPolicy;
use crate::session::{Nexus, Sessions, Wake};
use crate::wire::login::LoginRequest;
use crate::wire::{PortId, RejectReason};

/// Connection requests that may wait to be judged.
const BACKLOG: i32 = 128;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address and port to listen on.
    pub portal: SocketAddr,
    /// The target port: id_ext, then ioc_guid, eight bytes each.
    pub port_id: PortId,
    /// Commands that an initiator may have under way on each channel: 2 to
    /// 1024.
    pub credits: u16,
    /// Bytes for the data of a channel's commands in all.
    pub pool: usize,
    /// Most bytes of one command's data.
    pub max_transfer: usize,
    /// Most bytes of immediate data; 0 to do without.
    pub immediate: u32,
    /// Most channels at once, of all sessions.
    pub channels: usize,
    /// Most bytes of memory for all channels; each takes
    /// [`Settings::channel_memory`]. It is registered, so the machine cannot use
    /// it for anything else meanwhile.
    pub memory: usize,
    /// Rights of peers.
    pub policy: QpPolicy,
    /// What the threads of channels take turns on.
    pub processors: Processors,
    /// How long the thread of a channel looks for completions before it sleeps,
    /// at least; zero to sleep at once.
    pub look: Duration,
}

impl Settings {
    /// Serves `port_id` on `portal`, all else as the kernel's target does; channels
    /// may take half of the machine's memory.
    pub fn new(portal: SocketAddr, port_id: PortId) -> Self {
        Self {
            portal,
            port_id,
            credits: 128,
            pool: 32 << 20,
            max_transfer: 1 << 20,
            immediate: 8192,
            channels: 256,
            memory: memory::of_machine() / 2,
            policy: QpPolicy::Current,
            processors: Processors::allowed(),
            look: Duration::from_micros(200),
        }
    }
}

/// A running target.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of a target share.
struct Shared {
    settings: Settings,
    target: Arc<dyn Target>,
    sessions: Arc<Sessions>,
    stopping: AtomicBool,
    wake: Wake,
    /// Channels whose thread runs.
    running: Mutex<usize>,
    ended: Condvar,
}

/// A listening identifier with the channel of its events.
struct Listener {
    // Kept for what it does when it is dropped: before the channel.
    _connection: Connection,
    events: Arc<EventChannel>,
}

impl Listener {
    fn new(settings: &Settings) -> Result<Self> {
        let events = EventChannel::open()?;
        let connection = Connection::listen(&events, &settings.portal.into(), BACKLOG)?;
        Ok(Self {
            _connection: connection,
            events,
        })
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Listens, and serves logins from here on.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device, `EADDRINUSE`, `EADDRNOTAVAIL` for an
    /// address of no RDMA device, and what else the kernel says.
    pub fn start(settings: Settings, target: Arc<dyn Target>) -> Result<Self> {
        let from_io = |step| move |error: io::Error| rdmacm::Error::from_io(&error, step);
        let listener = Listener::new(&settings)?;
        let shared = Arc::new(Shared {
            settings,
            target,
            sessions: Arc::default(),
            stopping: AtomicBool::new(false),
            wake: Wake::new().map_err(from_io("make an event descriptor"))?,
            running: Mutex::new(0),
            ended: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("srpt-listen".to_owned())
            .spawn(move || of_thread.listen(listener))
            .map_err(from_io("start a thread"))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Number of channels that are logged in.
    pub fn channels(&self) -> usize {
        self.shared.sessions.channels()
    }

    /// Disconnects all channels of an initiator, for instance because it is
    /// not allowed any more. Returns how many there are. Does not wait.
    pub fn close_initiator(&self, initiator: PortId) -> usize {
        self.shared.sessions.close_initiator(initiator)
    }

    /// Stops listening, logs out of all channels and waits for their end up to
    /// `limit`. Returns whether all have ended. Commands under way get some
    /// seconds to come to their end.
    pub fn stop(mut self, limit: Duration) -> bool {
        self.stop_listening();
        self.shared.sessions.log_out_all();
        let deadline = Instant::now() + limit;
        let mut running = self.shared.running();
        while *running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            running = match self.shared.ended.wait_timeout(running, left) {
                Ok((running, _)) => running,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        true
    }

    fn stop_listening(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_listening();
        self.shared.sessions.close_all();
    }
}

impl Shared {
    /// Listens until told to stop, again when the device has gone and come
    /// back.
    fn listen(self: &Arc<Self>, listener: Listener) {
        let mut listener = Some(listener);
        while !self.stopping.load(Ordering::Acquire) {
            match listener.take() {
                Some(listener) => self.accept(&listener),
                None => listener = self.listen_again(),
            }
        }
    }

    /// Handles logins until told to stop or the listener is of no use any
    /// more.
    fn accept(self: &Arc<Self>, listener: &Listener) {
        while !self.stopping.load(Ordering::Acquire) {
            match listener.events.next() {
                Ok(Some(event)) if event.kind() == RDMA_CM_EVENT_DEVICE_REMOVAL => {
                    log::warn!("the RDMA device is removed");
                    return;
                }
                Ok(Some(event)) => self.handle(event),
                Ok(None) => self.wait(Some(&listener.events), None),
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) => {
                    log::error!("cannot wait for logins: {error}");
                    return;
                }
            }
        }
    }

    /// Listens once more, or waits for a moment if that is not possible yet:
    /// nothing reports that a device has an address again.
    fn listen_again(&self) -> Option<Listener> {
        const MOMENT: Duration = Duration::from_millis(500);
        match Listener::new(&self.settings) {
            Ok(listener) => {
                log::info!("listening again");
                Some(listener)
            }
            Err(error) => {
                log::debug!("cannot listen yet: {error}");
                self.wait(None, Some(MOMENT));
                None
            }
        }
    }

    /// Waits for an event, to be woken, or until `limit` is over.
    fn wait(&self, events: Option<&EventChannel>, limit: Option<Duration>) {
        // poll(2) does not look at negative descriptors.
        let events = events.map_or(-1, |events| events.as_fd().as_raw_fd());
        let mut fds = [events, self.wake.as_fd().as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let limit = limit.map_or(-1, |limit| limit.as_millis() as libc::c_int);
        // SAFETY: the array is ours and has so many entries. A failure shows
        // when the events are asked for next.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit) };
    }

    fn handle(self: &Arc<Self>, mut event: Event) {
        if event.kind() != RDMA_CM_EVENT_CONNECT_REQUEST {
            log::info!("listener: {}, status {}", event.name(), event.status());
            return;
        }
        let login = LoginRequest::parse(event.private_data());
        let initiator_depth = event.initiator_depth();
        let Some(connection) = event.take_request() else {
            return;
        };
        drop(event);
        let Some(login) = login else {
            log::warn!("connection request without a login");
            let unknown = LoginRequest::parse(&[0; LoginRequest::LENGTH]);
            if let Some(unknown) = unknown {
                driver::reject(connection.id(), &unknown, RejectReason::UnableToEstablish);
            }
            return;
        };
        if let Err((connection, reason)) = self.begin(connection, login, initiator_depth) {
            log::warn!(
                "login of {} from {} refused: {reason}",
                login.initiator,
                peer(&connection)
            );
            driver::reject(connection.id(), &login, reason);
        }
    }

    /// Judges a login and starts its channel's thread.
    fn begin(
        self: &Arc<Self>,
        connection: Connection,
        login: LoginRequest,
        initiator_depth: u8,
    ) -> std::result::Result<(), (Connection, RejectReason)> {
        let mut info = LoginInfo {
            initiator: login.initiator,
            target: login.target,
            peer: peer(&connection),
            session: 0,
            channel: 0,
            multi_channel: login.multi_channel(),
        };
        let nexus = (login.initiator, login.target);
        if let Err(reason) = self.judge(&login, &info, nexus) {
            return Err((connection, reason));
        }
        let (membership, others) = match self.sessions.enter(nexus, login.multi_channel()) {
            Ok(entered) => entered,
            Err(error) => {
                self.target.refused(&info, &error);
                return Err((connection, RejectReason::InsufficientResources));
            }
        };
        info.session = membership.member().session;
        info.channel = membership.member().channel;
        let number = info.channel;
        let admitted = Admitted {
            connection,
            login,
            info: info.clone(),
            membership,
            others,
            initiator_depth,
        };
        *self.running() += 1;
        let shared = Arc::clone(self);
        let spawned = thread::Builder::new()
            .name(format!("srpt-{number}"))
            .spawn(move || {
                driver::serve(admitted, &shared.settings, &*shared.target);
                *shared.running() -= 1;
                shared.ended.notify_all();
            });
        if let Err(error) = spawned {
            // The connection went with the closure, and the peer was refused.
            log::error!("start a thread: {error}");
            self.target.refused(&info, &error);
            *self.running() -= 1;
        }
        Ok(())
    }

    fn judge(
        &self,
        login: &LoginRequest,
        info: &LoginInfo,
        nexus: Nexus,
    ) -> std::result::Result<(), RejectReason> {
        let refuse = |reason| {
            self.target.refused(info, &reason);
            reason
        };
        login::check(login, &self.settings).map_err(refuse)?;
        self.target.admit(info)?;
        let running = *self.running();
        let memory = running
            .saturating_add(1)
            .checked_mul(self.settings.channel_memory());
        if memory.is_none_or(|memory| memory > self.settings.memory) {
            self.target
                .refused(info, &"no memory is left for another channel");
            return Err(RejectReason::InsufficientResources);
        }
        // A channel that is replaced leaves its session at once and lives on, with
        // its thread and memory, until it has come to rest.
        let most = self.settings.channels;
        let others = self.sessions.channels_beside(nexus, login.multi_channel());
        if others >= most || running >= most.saturating_mul(2) {
            self.target.refused(info, &"too many channels");
            return Err(RejectReason::ChannelLimitReached);
        }
        Ok(())
    }
}

/// The address of the peer; the unspecified one if it is not an IP address.
fn peer(connection: &Connection) -> SocketAddr {
    connection
        .id()
        .dst_addr()
        .and_then(|addr| addr.to_socket_addr())
        .unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0).into())
}
