//! A channel's thread: it makes the channel of an admitted login, accepts the
//! connection, and from then on waits for whatever concerns the channel:
//! connection events, completions, the executor, messages of other channels.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdmacm::abi::RDMA_CM_EVENT_ESTABLISHED;
use rdmacm::cm::owned::{Connection, Event, EventChannel};

use crate::channel::rings::Rings;
use crate::channel::state::ChannelState;
use crate::channel::{Agreement, Channel};
use crate::cm_event;
use crate::connection::{self, Connection as _};
use crate::endpoint::Endpoint;
use crate::executor::{LoginInfo, Target};
use crate::login;
use crate::pump::Pump;
use crate::server::Settings;
use crate::session::Membership;
use crate::wire::RejectReason;
use crate::wire::login::{LoginRequest, LoginResponse, OtherChannels, login_reject};

/// How long to wait for posted requests to come back from a queue pair in
/// error. After that it is destroyed, which has the same effect.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How long a logout may take before the connection is ended without it.
const LOGOUT_LIMIT: Duration = Duration::from_secs(3);

/// How long to wait before an executor with a backlog is polled again.
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);

/// How often to look whether a limit is over.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a login may wait for the end of the channels that it replaces: about
/// as long as initiators wait for an answer.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// A login that may go on.
pub struct Admitted {
    /// The request's identifier.
    pub connection: Connection,
    /// What was asked for.
    pub login: LoginRequest,
    /// Who asks.
    pub info: LoginInfo,
    /// The channel's place in its session.
    pub membership: Membership,
    /// What became of the session's other channels.
    pub others: OtherChannels,
    /// RDMA reads that the initiator answers at once.
    pub initiator_depth: u8,
}

/// Refuses a login.
pub fn reject(connection: &dyn connection::Connection, login: &LoginRequest, reason: RejectReason) {
    if let Err(error) = connection.reject(&login_reject(reason, login.tag)) {
        log::warn!("{error}");
    }
}

/// Serves a login until its channel is gone. The connection's own events are
/// reported to this thread from here on.
pub fn serve(admitted: Admitted, settings: &Settings, target: &dyn Target) {
    let Admitted {
        mut connection,
        login,
        info,
        membership,
        others,
        initiator_depth,
    } = admitted;
    if let Err(error) = settings.processors.bind(info.channel) {
        log::info!("channel {}: {error}", info.channel);
    }
    let membership = Arc::new(membership);
    let result = make_channel(
        &mut connection,
        &login,
        &info,
        &membership,
        settings,
        target,
    );
    let (channel, events) = match result {
        Ok(made) => made,
        Err(error) => {
            log::error!("login of {}: {error}", info.initiator);
            target.refused(&info, &error);
            reject(connection.id(), &login, RejectReason::InsufficientResources);
            return;
        }
    };
    let mut driver = Driver {
        channel,
        events,
        membership,
        pump: Pump::new(settings.look),
        established: false,
    };
    if !driver.await_turn(&info, target) {
        log::warn!("login of {}: its turn did not come", info.initiator);
        target.refused(&info, &"those that it replaces do not end");
        reject(connection.id(), &login, RejectReason::InsufficientResources);
        return;
    }
    let response = LoginResponse {
        credits: settings.credits.into(),
        tag: login.tag,
        to_target: settings.max_iu(),
        to_initiator: login.iu_length,
        others,
        immediate: login::immediate(&login, settings).most > 0,
    };
    let accepted = connection.id().accept(&response.encode(), initiator_depth);
    match accepted {
        Ok(()) => driver.run(&info, target),
        // The connection manager has rejected the peer.
        Err(error) => {
            log::error!("login of {}: {error}", info.initiator);
            target.refused(&info, &error);
        }
    }
    let established = driver.established;
    // The queue pair goes before the identifier.
    drop(driver);
    drop(connection);
    if established {
        target.logged_out(&info);
    }
}

fn make_channel(
    connection: &mut Connection,
    login: &LoginRequest,
    info: &LoginInfo,
    membership: &Arc<Membership>,
    settings: &Settings,
    target: &dyn Target,
) -> io::Result<(Channel<Endpoint>, Arc<EventChannel>)> {
    let events = EventChannel::open()?;
    connection.migrate(&events)?;
    let executor = target.executor(info)?;
    let immediate = login::immediate(login, settings);
    let (rings, pool) = Rings::new(&settings.sizes(immediate.offset))?;
    let endpoint = Endpoint::new(
        Box::new(Arc::clone(connection.id())),
        pool.area(),
        rings.receives(),
        settings.policy,
    )?;
    let agreement = Agreement {
        immediate,
        send_queue: endpoint.send_queue(),
    };
    let mut channel = Channel::new(
        endpoint,
        executor,
        (rings, pool),
        settings.credits,
        agreement,
        Box::new(Arc::clone(membership)),
    );
    channel.post_receives()?;
    Ok((channel, events))
}

/// What there is to do besides completions, which are looked for anyway.
#[derive(Default)]
struct Ready {
    /// The connection manager has events.
    events: bool,
    /// Other channels have sent messages.
    messages: bool,
}

struct Driver {
    channel: Channel<Endpoint>,
    events: Arc<EventChannel>,
    membership: Arc<Membership>,
    pump: Pump,
    established: bool,
}

impl Driver {
    /// Waits until the channels that this one replaces have ended, so that the
    /// initiator does not wait for the answers to commands instead. False if
    /// that takes too long or the channel is closed meanwhile.
    fn await_turn(&mut self, info: &LoginInfo, target: &dyn Target) -> bool {
        let deadline = Instant::now() + TURN_LIMIT;
        while !self.membership.member().may_begin() {
            let closed = self.channel.state() >= ChannelState::Draining;
            if closed || Instant::now() > deadline {
                return false;
            }
            log::info!("channel {} waits for those that it replaces", info.channel);
            self.serve_others(Some(LOOK_AGAIN), info, target);
        }
        true
    }

    fn run(&mut self, info: &LoginInfo, target: &dyn Target) {
        let mut draining: Option<Instant> = None;
        let mut leaving: Option<Instant> = None;
        while self.channel.state() < ChannelState::Disconnected {
            self.pump.serve(&mut self.channel);
            if self.channel.is_leaving() {
                let since = *leaving.get_or_insert_with(Instant::now);
                if since.elapsed() > LOGOUT_LIMIT {
                    log::info!("channel {}: disconnected without a logout", info.channel);
                    self.channel.disconnect();
                }
            }
            if self.channel.state() >= ChannelState::Draining {
                let since = *draining.get_or_insert_with(Instant::now);
                if since.elapsed() > DRAIN_LIMIT {
                    log::warn!(
                        "channel {}: {} commands are still executed",
                        info.channel,
                        self.channel.executing()
                    );
                    draining = Some(Instant::now());
                    self.channel.give_up_draining();
                }
            }
            if self.channel.state() == ChannelState::Disconnected {
                break;
            }
            // Without notification to come there may be completions right now.
            let limit = match (self.pump.is_armed(), draining) {
                (false, _) => Some(Duration::ZERO),
                (true, _) if self.channel.executor().has_backlog() => Some(BACKLOG_PAUSE),
                (true, since) => since.or(leaving).map(|_| LOOK_AGAIN),
            };
            self.serve_others(limit, info, target);
        }
        log::info!("channel {}: {:?}", info.channel, self.channel.counters());
    }

    /// Waits until there is something to do, up to `limit`, and does what
    /// concerns others than the queue pair and the executor.
    fn serve_others(&mut self, limit: Option<Duration>, info: &LoginInfo, target: &dyn Target) {
        let ready = self.wait(limit).unwrap_or_else(|error| {
            log::error!("channel {}: {error}", info.channel);
            self.channel.close();
            Ready::default()
        });
        if ready.events {
            self.serve_events(info, target);
        }
        if ready.messages {
            self.pump
                .serve_messages(&mut self.channel, self.membership.member());
        }
    }

    /// Waits until there is something to do, up to `limit`. Takes notifications
    /// of completions; what else there is comes back.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<Ready> {
        let entry = |fd: Option<BorrowedFd<'_>>| libc::pollfd {
            fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [
            entry(Some(self.channel.link().notification_fd())),
            entry(self.channel.executor().fd()),
            entry(Some(self.events.as_fd())),
            entry(Some(self.membership.member().wake().as_fd())),
        ];
        let since = Instant::now();
        let timeout = limit.map_or(-1, |limit| limit.as_millis() as libc::c_int);
        // SAFETY: the array is ours and has so many entries.
        let status = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
        if status < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Ready::default()),
                _ => Err(error),
            };
        }
        let [completions, _, events, messages] = fds;
        if completions.revents != 0 {
            self.pump.notified(&mut self.channel);
            self.pump.slept(since);
        }
        Ok(Ready {
            events: events.revents != 0,
            messages: messages.revents != 0,
        })
    }

    fn serve_events(&mut self, info: &LoginInfo, target: &dyn Target) {
        loop {
            match self.events.next() {
                Ok(Some(event)) => self.handle_event(&event, info, target),
                Ok(None) => break,
                Err(error) => {
                    if error.errno() != libc::EINTR {
                        log::error!("channel {}: {error}", info.channel);
                        self.channel.close();
                        break;
                    }
                }
            }
        }
    }

    fn handle_event(&mut self, event: &Event, info: &LoginInfo, target: &dyn Target) {
        cm_event::handle(&mut self.channel, event.kind());
        if event.kind() == RDMA_CM_EVENT_ESTABLISHED && !self.established {
            self.established = true;
            target.logged_in(info);
        }
    }
}
