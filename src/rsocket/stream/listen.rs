//! Accepting connections: a socket that listens answers requests with sockets
//! of its own making, which `accept` hands out once they are connected.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::abi::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_UNREACHABLE,
};
use crate::cancel::Uncancelled;
use crate::cm::address;
use crate::cm::connect::{self, Param, Reason};
use crate::cm::device::Device;
use crate::cm::event;
use crate::cm::id::Id;
use crate::error::{Error, Result};
use crate::lock::{Mutex, locked};

use super::{Phase, RETRIES, Stream};
use crate::rsocket::endpoint::Endpoint;
use crate::rsocket::events::{Channel, Report};
use crate::rsocket::prepared::Prepared;
use crate::rsocket::service;
use crate::rsocket::settings::Settings;
use crate::rsocket::wait::{again, wait_longer};
use crate::rsocket::wire::ConnData;

/// Connections that wait where the program has set no limit (`somaxconn` of
/// listen(2)).
const MOST_WAITING: usize = 4096;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) backlog: usize,
    /// Connected and not yet accepted by the program.
    pub(super) queue: VecDeque<Arc<Stream>>,
    /// Not connected yet.
    pub(super) embryos: Vec<Arc<Stream>>,
    /// It has made a connection before, so that there may well be more.
    pub(super) made_one: bool,
    /// For the next request; locked while it is made.
    prepared: Arc<Mutex<Option<Prepared>>>,
    /// The last call to accept one would have waited, or has.
    waited_for: bool,
    /// The device for which the next such call is to prepare a connection.
    wanted: Option<Weak<Device>>,
}

#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) endpoint: Endpoint,
    pub(super) peer: ConnData,
    pub(super) listener: Weak<Stream>,
}

impl Stream {
    /// Accepts connections from now on, `backlog` and one at once; a negative one
    /// stands for as many as Linux allows.
    ///
    /// # Errors
    /// `EINVAL` for a socket that connects or is connected, else what the
    /// kernel says.
    pub fn listen(self: &Arc<Self>, backlog: i32) -> Result<()> {
        let mut phase = locked(&self.phase);
        let bound = usize::try_from(backlog)
            .unwrap_or(MOST_WAITING)
            .saturating_add(1);
        match &mut *phase {
            Phase::Init | Phase::Bound => {}
            Phase::Listening(listener) => {
                listener.backlog = bound;
                return Ok(());
            }
            _ => return Err(Error::invalid("listen on a connected socket")),
        }
        // First, so that there is no socket that listens and is not looked after: a
        // program that is out of descriptors may try again.
        service::watch(self.descriptor(), self)?;
        address::listen(&self.id, backlog)?;
        *phase = Phase::Listening(Listener {
            backlog: bound,
            queue: VecDeque::new(),
            embryos: Vec::new(),
            made_one: false,
            prepared: Arc::default(),
            waited_for: false,
            wanted: None,
        });
        Ok(())
    }

    /// Takes the next connection; waits for one unless non-blocking.
    ///
    /// # Errors
    /// `EINVAL` if the socket does not listen, `EAGAIN`, `EINTR`, `EBADF` if
    /// it is closed meanwhile, `ENODEV` once if its device is removed.
    pub fn accept(&self) -> Result<Arc<Self>> {
        let deadline = self.common.receive_timeout().deadline();
        let nonblocking = self.common.is_nonblocking();
        let mut attempt = || self.take_accepted(!nonblocking);
        let first = attempt();
        if nonblocking || !again(&first) {
            return first;
        }
        self.prepare_wanted();
        wait_longer(self, self.common.waiters(), None, deadline, &mut attempt)
    }

    fn take_accepted(&self, waits: bool) -> Result<Arc<Self>> {
        self.common.check_open()?;
        match &mut *locked(&self.phase) {
            Phase::Listening(listener) => {
                listener.waited_for = waits;
                let next = listener.queue.pop_front();
                next.ok_or(Error::new(libc::EAGAIN, "accept a connection"))
            }
            Phase::Failed if self.has_error() => {
                Err(Error::new(self.take_error(), "accept a connection"))
            }
            _ => Err(Error::invalid("accept on a socket that does not listen")),
        }
    }

    /// Whether a connection may be added to those that wait.
    fn has_room(&self) -> bool {
        match &*locked(&self.phase) {
            Phase::Listening(listener) => {
                let waiting = listener.queue.len().saturating_add(listener.embryos.len());
                waiting < listener.backlog
            }
            _ => false,
        }
    }

    /// Keeps a socket that is not connected yet, unless this one was closed.
    fn adopt(&self, embryo: Arc<Self>) {
        if let Phase::Listening(listener) = &mut *locked(&self.phase)
            && !self.common.is_closed()
        {
            listener.embryos.push(embryo);
        }
    }

    /// Answers a connection request. Not with the lock of the phase, as it makes
    /// a queue pair and registers memory; by the service thread, which alone
    /// handles the events of sockets that listen and of those they make.
    pub(super) fn answer(self: &Arc<Self>, report: &Report) -> Result<()> {
        let id = Id::from_pointer(report.id)?;
        let data = report
            .private_data
            .get(self.header_len()..)
            .unwrap_or_default();
        let peer = match ConnData::decode(data) {
            _ if !self.has_room() => Err(Error::new(libc::EAGAIN, "queue one more connection")),
            Err(_) => Err(Error::new(libc::EPROTO, "understand the peer")),
            Ok(peer) => Ok(peer),
        };
        let accepted = peer.and_then(|peer| self.accept_request(&id, peer, report));
        match accepted {
            Ok(stream) => {
                self.adopt(stream);
                Ok(())
            }
            Err(error) => {
                // A socket that was made for it has rejected and destroyed it.
                if Id::from_pointer(report.id).is_ok_and(|found| Arc::ptr_eq(&found, &id)) {
                    reject(&id);
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
        let endpoint = self.endpoint_for(id, &options.settings);
        // From here on, dropping the socket destroys the identifier, whose
        // events go to its channel.
        let stream = Self::assemble(self.domain, channel, Arc::clone(id), options, Phase::Failed);
        // Before the identifier goes.
        let endpoint = endpoint.inspect_err(|_| reject(id))?;
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
        if self.accepts_first() {
            endpoint.prepare_ahead();
        }
        *locked(&stream.phase) = Phase::Accepting(Box::new(Accepting {
            endpoint,
            peer,
            listener: Arc::downgrade(self),
        }));
        let stream = Arc::new(stream);
        service::watch(stream.descriptor(), &stream)?;
        Ok(stream)
    }

    /// The peer of a socket that a listener made has said that it is connected, or will
    /// not any more. Returns the listener, which is to be told.
    pub(super) fn accepted(
        self: &Arc<Self>,
        phase: &mut Phase,
        report: &Report,
    ) -> Option<Arc<Self>> {
        if matches!(
            report.kind,
            RDMA_CM_EVENT_ADDR_CHANGE | RDMA_CM_EVENT_TIMEWAIT_EXIT
        ) {
            return None;
        }
        let Phase::Accepting(accepting) = std::mem::replace(phase, Phase::Failed) else {
            return None;
        };
        let Accepting {
            endpoint,
            peer,
            listener,
        } = *accepting;
        let connection = self.connection_of(endpoint, peer);
        let connected = match report.kind {
            RDMA_CM_EVENT_ESTABLISHED => {
                // The program may accept the connection late, and who connects mostly
                // sends first. The other way round, this would be of no use to many
                // connections.
                connection.grant_all();
                true
            }
            // The message that it is connected is sent only once, and may be lost. For
            // the peer there was a connection if it has ended one, or used it: that it
            // has ended may be lost as well.
            RDMA_CM_EVENT_DISCONNECTED => {
                connection.peer_gone();
                true
            }
            RDMA_CM_EVENT_UNREACHABLE => {
                connection.peer_gone();
                connection.was_used()
            }
            _ => false,
        };
        if connected {
            self.connected(connection);
            *phase = Phase::Connected;
        } else {
            let event = event::name(report.kind);
            log::info!("{}: not connected: {event}, {}", self.id, report.status);
        }
        listener.upgrade()
    }

    /// Whether it has not made a connection yet; the first may be the only one.
    fn accepts_first(&self) -> bool {
        matches!(&*locked(&self.phase), Phase::Listening(listener) if !listener.made_one)
    }

    /// The endpoint of a request, of what was prepared if that fits.
    fn endpoint_for(&self, id: &Arc<Id>, settings: &Settings) -> Result<Endpoint> {
        let prepared = self
            .prepared()
            .and_then(|prepared| locked(&*prepared).take());
        let device = id.require_device()?;
        match prepared {
            Some(prepared) if prepared.fits(&device, settings) => Endpoint::of(id, prepared),
            _ => Endpoint::new(id, settings),
        }
    }

    /// A socket that this listener made has connected or failed.
    pub(super) fn embryo_done(&self, embryo: &Arc<Self>) {
        let connected = embryo.connection.get().is_some();
        let mut next = None;
        if let Phase::Listening(listener) = &mut *locked(&self.phase) {
            listener.embryos.retain(|other| !Arc::ptr_eq(other, embryo));
            if connected {
                listener.queue.push_back(Arc::clone(embryo));
                if std::mem::replace(&mut listener.made_one, true) {
                    next = embryo.id.device();
                }
                let busy = !listener.embryos.is_empty();
                if busy && listener.waited_for {
                    listener.wanted = next.take().as_ref().map(Arc::downgrade);
                }
            }
        }
        self.common.waiters().notify();
        if let Some(device) = next {
            self.prepare_next(&device);
        }
    }

    /// As [`Stream::prepare_next`], if that was left to a thread that waits for
    /// connections anyway, as the service thread had others under way.
    fn prepare_wanted(&self) {
        let wanted = match &mut *locked(&self.phase) {
            Phase::Listening(listener) => listener.wanted.take(),
            _ => None,
        };
        if let Some(device) = wanted.and_then(|device| device.upgrade()) {
            let _whole = Uncancelled::throughout();
            self.prepare_next(&device);
        }
    }

    /// Makes what the next request will need, while the program and the peer are
    /// at work with the last one. A request that comes meanwhile waits for it.
    fn prepare_next(&self, device: &Arc<Device>) {
        let Some(prepared) = self.prepared() else {
            return;
        };
        let mut prepared = locked(&*prepared);
        if prepared.is_none() && !self.common.is_closed() {
            let settings = self.options().settings.clone();
            *prepared = Prepared::ahead(device, &settings);
        }
    }

    /// Where a listener has what is prepared. Not to be locked with the phase, which
    /// others take for a moment only.
    fn prepared(&self) -> Option<Arc<Mutex<Option<Prepared>>>> {
        match &*locked(&self.phase) {
            Phase::Listening(listener) => Some(Arc::clone(&listener.prepared)),
            _ => None,
        }
    }
}

/// Rejects a connection request, of which the peer may know already.
fn reject(id: &Id) {
    if let Err(error) = connect::reject(id, &[], Reason::Consumer) {
        log::debug!("{id}: {error}");
    }
}
