//! The changing part of a datagram socket: its queue pairs, what it knows of
//! its peers, and what has arrived. All of it is behind one lock of the socket's;
//! nothing here sleeps.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::abi::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id,
};
use crate::cm::address;
use crate::error::{Error, Result};
use crate::kernel::addr::SockAddr;

use super::super::events::{Channel, OwnedId, Report};
use super::super::settings::Settings;
use super::super::vectors::Cursor;
use super::endpoint::Endpoint;
use super::endpoints::Endpoints;
use super::inbox::{Inbox, Received};
use super::path::Handle;

/// Limit of each step of resolution.
const RESOLVE_MS: i32 = 2000;
/// Peers known at once. More are forgotten again, which costs them a detour
/// by the side channel.
const MOST_PEERS: usize = 4096;
/// Routes resolved at once.
const MOST_RESOLUTIONS: usize = 64;
/// A peer that was not heard of for so long is told of this side's queue pair
/// again, which it answers if it does not know it: it may be another one by
/// now.
const SILENCE: Duration = Duration::from_secs(1);
/// After a datagram that is larger than a packet, those that follow within
/// this time take the same way, so that they do not overtake it.
const DETOUR: Duration = Duration::from_millis(50);

/// What a program is told of an endpoint that is gone.
pub const REMOVED: Error = Error::new(libc::ENODEV, "use a removed device");

/// What is known of a peer.
#[derive(Debug)]
struct Peer {
    /// The endpoint that sends to it.
    endpoint: usize,
    direct: Option<Direct>,
    heard: Instant,
    /// When it was last told of this side's queue pair.
    told: Option<Instant>,
    /// When a datagram larger than a packet was last sent to it.
    oversized: Option<Instant>,
}

/// How to reach a peer's queue pair.
#[derive(Clone, Debug)]
struct Direct {
    handle: Arc<Handle>,
    qpn: u32,
}

/// The search for the way to a peer's queue pair. Freeing it enters the
/// kernel, which is better done without the socket's lock.
#[derive(Debug)]
pub struct Resolution {
    id: OwnedId,
    peer: SocketAddr,
    qpn: u32,
}

/// How a datagram is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It was sent to the peer's queue pair.
    Direct,
    /// It was, and the peer is to be told of this side's queue pair again.
    DirectAndTell(Local),
    /// By the side channel.
    Side(Local),
}

/// What a peer is told of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The local address.
    pub source: SocketAddr,
    /// Number of the queue pair.
    pub qpn: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Core {
    endpoints: Endpoints,
    peers: HashMap<SocketAddr, Peer>,
    resolutions: Vec<Resolution>,
    inbox: Inbox,
    /// The only peer, if the socket is connected.
    only: Option<SocketAddr>,
}

impl Core {
    /// Whether sizes are settled.
    pub fn has_endpoints(&self) -> bool {
        self.endpoints.iter().next().is_some()
    }

    /// Bytes that are sent inline, once that is known.
    pub fn inline(&self) -> Option<usize> {
        self.endpoints.iter().next().map(Endpoint::inline)
    }

    /// The only peer, if the socket is connected.
    pub fn only(&self) -> Option<SocketAddr> {
        self.only
    }

    /// Takes datagrams from `peer` only, or from all.
    pub fn set_only(&mut self, peer: Option<SocketAddr>) {
        self.only = peer;
    }

    /// The place of the endpoint of the local address `source`, if there is one
    /// with a device.
    pub fn find(&self, source: SocketAddr) -> Option<usize> {
        let place = self.endpoints.find(source)?;
        self.endpoint_lives(place).then_some(place)
    }

    fn endpoint_lives(&self, place: usize) -> bool {
        let endpoint = self.endpoints.get(place);
        endpoint.is_some_and(|endpoint| !endpoint.is_gone())
    }

    /// Adds an endpoint and returns its place.
    pub fn add(&mut self, endpoint: Endpoint) -> usize {
        self.endpoints.add(endpoint)
    }

    /// Takes out the endpoint of the identifier `id`, whose device was removed.
    pub fn lose(&mut self, id: *const rdma_cm_id) -> Option<Endpoint> {
        let place = self.endpoints.position(|endpoint| endpoint.has_id(id))?;
        let mut endpoint = self.remove(place)?;
        endpoint.lose();
        Some(endpoint)
    }

    /// Takes out the endpoint of the local address `source`, if there is one
    /// without a device: another one takes its place.
    pub fn remove_gone(&mut self, source: SocketAddr) -> Option<Endpoint> {
        let place = self.endpoints.find(source)?;
        if self.endpoint_lives(place) {
            return None;
        }
        self.remove(place)
    }

    /// What has arrived stays. To the peers leads another way now.
    fn remove(&mut self, place: usize) -> Option<Endpoint> {
        let endpoint = self.endpoints.remove(place)?;
        self.inbox.detach(place, &endpoint);
        self.peers.retain(|_, peer| peer.endpoint != place);
        Some(endpoint)
    }

    /// Whether an endpoint was chosen for `peer`, and has a device.
    pub fn knows(&self, peer: SocketAddr) -> bool {
        let known = self.peers.get(&peer);
        known.is_some_and(|known| self.endpoint_lives(known.endpoint))
    }

    /// What to tell `peer` of this side, if an endpoint was chosen for it.
    pub fn local(&self, peer: SocketAddr) -> Option<Local> {
        let endpoint = self.endpoints.get(self.peers.get(&peer)?.endpoint)?;
        Some(Local {
            source: endpoint.source(),
            qpn: endpoint.qpn(),
        })
    }

    /// What to tell `peer`, which was introduced and has sent `length` bytes of
    /// data by the side channel. It may not know this side's queue pair, unless
    /// it had to take that way because they fit into no packet: then being told
    /// now and then will do.
    pub fn answer_to(&mut self, peer: SocketAddr, length: usize) -> Option<Local> {
        let local = self.local(peer)?;
        let known = self.peers.get_mut(&peer)?;
        let fits = self.endpoints.get(known.endpoint)?.fits(length);
        if !fits && known.told.is_some_and(|since| since.elapsed() < SILENCE) {
            return None;
        }
        known.told = Some(Instant::now());
        Some(local)
    }

    /// Remembers that the endpoint at `place` sends to `peer`, unless another is
    /// chosen for it.
    pub fn introduce(&mut self, peer: SocketAddr, place: usize) {
        if self.knows(peer) {
            return;
        }
        if self.peers.len() >= MOST_PEERS
            && !self.peers.contains_key(&peer)
            && let Some(other) = self.peers.keys().next().copied()
        {
            self.peers.remove(&other);
        }
        let fresh = Peer {
            endpoint: place,
            direct: None,
            heard: Instant::now(),
            told: None,
            oversized: None,
        };
        self.peers.insert(peer, fresh);
    }

    /// Sends all of `data` to `peer`, which was introduced, or says how it is
    /// to be sent.
    ///
    /// # Errors
    /// `EAGAIN` if the send queue is full, else what libibverbs says.
    pub fn send(&mut self, peer: SocketAddr, data: &mut Cursor<'_>) -> Result<Way> {
        const STRANGER: Error = Error::new(libc::EHOSTUNREACH, "send to an unknown peer");
        let known = self.peers.get_mut(&peer).ok_or(STRANGER)?;
        let endpoint = self.endpoints.get_mut(known.endpoint).ok_or(STRANGER)?;
        let local = Local {
            source: endpoint.source(),
            qpn: endpoint.qpn(),
        };
        let detour = |since: Instant| since.elapsed() < DETOUR;
        if !endpoint.works() {
            return Ok(Way::Side(local));
        }
        if !endpoint.fits(data.remaining()) {
            known.oversized = Some(Instant::now());
            return Ok(Way::Side(local));
        }
        let Some(direct) = &known.direct else {
            return Ok(Way::Side(local));
        };
        if known.oversized.is_some_and(detour) {
            return Ok(Way::Side(local));
        }
        endpoint.send(&direct.handle, direct.qpn, data)?;
        if known.heard.elapsed() > SILENCE {
            known.heard = Instant::now();
            return Ok(Way::DirectAndTell(local));
        }
        Ok(Way::Direct)
    }

    /// Takes note that `peer`, which was introduced, has the queue pair
    /// `qpn`, and begins to look for the way to it unless that is known. A way
    /// that cannot be found leaves the peer to the side channel.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Safety
    /// The channel outlives the core.
    pub unsafe fn heard(&mut self, channel: &Channel, peer: SocketAddr, qpn: u32) -> Result<()> {
        let Some(known) = self.peers.get_mut(&peer) else {
            return Ok(());
        };
        known.heard = Instant::now();
        let is_known = |direct: &Direct| direct.qpn == qpn;
        let sought = |other: &Resolution| other.peer == peer && other.qpn == qpn;
        if qpn == 0
            || known.direct.as_ref().is_some_and(is_known)
            || self.resolutions.iter().any(sought)
            || self.resolutions.len() >= MOST_RESOLUTIONS
        {
            return Ok(());
        }
        known.direct = None;
        let Some(endpoint) = self.endpoints.get(known.endpoint) else {
            return Ok(());
        };
        let mut source = endpoint.source();
        source.set_port(0);
        // SAFETY: the caller vouches for the channel.
        let id = unsafe { OwnedId::datagram(channel) }?;
        let (source, dest) = (SockAddr::from(source), SockAddr::from(peer));
        address::resolve_addr(&id, Some(&source), &dest, RESOLVE_MS)?;
        self.resolutions.push(Resolution { id, peer, qpn });
        Ok(())
    }

    /// Handles an event of a resolution, which is returned if it is over.
    pub fn resolve(&mut self, report: &Report) -> Option<Resolution> {
        let place = self
            .resolutions
            .iter()
            .position(|resolution| resolution.id.as_pointer() == report.id)?;
        let resolution = self.resolutions.get(place)?;
        let step = match report.kind {
            RDMA_CM_EVENT_ADDR_RESOLVED => {
                address::resolve_route(&resolution.id, RESOLVE_MS).map(|()| None)
            }
            RDMA_CM_EVENT_ROUTE_RESOLVED => Handle::new(&resolution.id).map(Some),
            RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR | RDMA_CM_EVENT_DEVICE_REMOVAL => {
                Err(Error::new(report.errno(), "find the way to a peer"))
            }
            _ => return None,
        };
        match step {
            Ok(None) => return None,
            Ok(Some(handle)) => {
                if let Some(peer) = self.peers.get_mut(&resolution.peer) {
                    log::debug!("{} has QP {:#x}", resolution.peer, resolution.qpn);
                    peer.direct = Some(Direct {
                        handle: Arc::new(handle),
                        qpn: resolution.qpn,
                    });
                }
            }
            Err(error) => log::info!("no way to {}: {error}", resolution.peer),
        }
        Some(self.resolutions.swap_remove(place))
    }

    /// Handles what has completed and returns how much there was.
    ///
    /// # Errors
    /// `ENODEV`, once, if a device is gone, else what libibverbs says.
    pub fn progress(&mut self) -> Result<usize> {
        let mut total = 0usize;
        for (place, endpoint) in self.endpoints.iter_mut() {
            let count = endpoint.progress(|arrival| {
                if self.only.is_some_and(|only| only != arrival.source) {
                    return false;
                }
                if let Some(peer) = self.peers.get_mut(&arrival.source) {
                    peer.heard = Instant::now();
                }
                self.inbox.add_arrival(place, arrival);
                true
            })?;
            total = total.saturating_add(count);
            if endpoint.take_loss() {
                return Err(REMOVED);
            }
        }
        Ok(total)
    }

    /// Takes a datagram from the side channel, if there is room.
    pub fn deliver(&mut self, source: SocketAddr, data: &[u8], settings: &Settings) {
        let most = usize::from(settings.receive_queue);
        self.inbox.add_copy(source, data, most);
    }

    /// Whether a datagram has arrived.
    pub fn can_receive(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Whether a send would not wait.
    pub fn can_send(&self) -> bool {
        self.endpoints.iter().all(Endpoint::can_send)
    }

    /// Whether all that was sent has left.
    pub fn is_idle(&self) -> bool {
        self.endpoints.iter().all(Endpoint::is_idle)
    }

    /// Copies the first datagram to `target`; `peek` leaves it where it is.
    ///
    /// # Errors
    /// `EAGAIN` if there is none, else what libibverbs says.
    pub fn receive(&mut self, target: &mut Cursor<'_>, peek: bool) -> Result<Received> {
        self.inbox.receive(&mut self.endpoints, target, peek)
    }

    /// Bytes of the first datagram, 0 if there is none.
    pub fn first_length(&self) -> usize {
        self.inbox.first_length()
    }

    /// Makes sure that the next completion is notified; returns whether that
    /// was not so before.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn arm(&mut self) -> Result<bool> {
        let mut fresh = false;
        for (_, endpoint) in self.endpoints.iter_mut() {
            fresh |= endpoint.arm()?;
        }
        Ok(fresh)
    }

    /// Takes all notifications. Returns the descriptors from which there will be
    /// none any more.
    pub fn take_notifications(&mut self) -> Vec<RawFd> {
        let silent = |(_, endpoint): (usize, &mut Endpoint)| {
            let silent = !endpoint.take_notification();
            silent.then(|| endpoint.completions().notification_fd())
        };
        self.endpoints.iter_mut().filter_map(silent).collect()
    }
}
