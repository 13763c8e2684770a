//! The addresses of a datagram socket and the endpoints that they need: binding,
//! connecting, and which local address reaches a peer.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::Datagram;
use super::core::Core;
use super::endpoint::Endpoint;
use super::header::plain;
use crate::error::{Error, Result};
use crate::lock::locked;
use crate::rsocket::events::Channel;
use crate::rsocket::service;

impl Datagram {
    /// Binds to a local address. If that fails, the socket is as before: the UDP
    /// socket, which cannot be unbound, is bound once all else is there.
    ///
    /// # Errors
    /// `EINVAL` if it has an address, `ENODEV` without an RDMA device of this one;
    /// what `bind(2)` says.
    pub fn bind(self: &Arc<Self>, addr: SocketAddr) -> Result<()> {
        self.channel()?;
        let ip = plain(addr).ip();
        if ip.is_unspecified() || ip.is_loopback() {
            self.udp.bind(addr)?;
            return self.start();
        }
        if self.udp.local()?.port() != 0 {
            return Err(Error::invalid("bind a socket twice"));
        }
        let _making = locked(&self.making);
        let mut endpoint = self.endpoint(plain(addr))?;
        self.udp.bind(addr)?;
        endpoint.set_source(plain(self.udp.local()?));
        self.keep(&mut locked(&self.core), endpoint);
        self.start()
    }

    /// Sends to and receives from `peer` only from now on. If that fails, the socket
    /// is as before.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device that reaches it; what `connect(2)`
    /// says.
    pub fn connect(self: &Arc<Self>, peer: SocketAddr) -> Result<()> {
        self.start()?;
        self.with_peer(plain(peer), |core| {
            self.udp.connect(peer)?;
            core.set_only(Some(plain(peer)));
            Ok(())
        })
    }

    /// Undoes [`Datagram::connect`].
    ///
    /// # Errors
    /// What `connect(2)` says.
    pub fn disconnect(&self) -> Result<()> {
        self.udp.disconnect()?;
        locked(&self.core).set_only(None);
        Ok(())
    }

    /// Sees to it that the socket has a local port, and that the service
    /// thread looks after it.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        self.channel()?;
        self.started
            .get_or_try_init(|| {
                if self.udp.local()?.port() == 0 {
                    self.udp.bind_any()?;
                }
                service::watch(self.descriptor(), self)
            })
            .copied()
    }

    pub(super) fn channel(self: &Arc<Self>) -> Result<&Channel> {
        self.channel.get_or_try_init(|| {
            let channel = Channel::open()?;
            service::watch(channel.as_raw_fd(), self)?;
            Ok(channel)
        })
    }

    /// A new endpoint of the local address `source`, whose notifications are seen.
    fn endpoint(self: &Arc<Self>, source: SocketAddr) -> Result<Endpoint> {
        let channel = self.channel()?;
        let settings = self.options().settle();
        // SAFETY: the socket drops the channel after its endpoints.
        let endpoint = unsafe { Endpoint::new(channel, source, &settings) }?;
        let completions = endpoint.completions().notification_fd();
        self.notifications.watch(completions, 0)?;
        Ok(endpoint)
    }

    fn keep(&self, core: &mut Core, endpoint: Endpoint) -> usize {
        let place = core.add(endpoint);
        // Those who wait are to arm it as well.
        self.common.waiters().notify();
        place
    }

    /// Acts on the core after handling what has completed, once an endpoint is chosen
    /// for `peer`.
    pub(super) fn with_peer<R>(
        self: &Arc<Self>,
        peer: SocketAddr,
        mut action: impl FnMut(&mut Core) -> Result<R>,
    ) -> Result<R> {
        loop {
            let done = self.with_core(|core| core.knows(peer).then(|| action(core)));
            match done {
                Some(result) => return result,
                None => self.introduce(peer)?,
            }
        }
    }

    /// Chooses an endpoint for `peer`, that of the local address which reaches it. It
    /// is made if need be, without the core's lock, as that takes a while.
    fn introduce(self: &Arc<Self>, peer: SocketAddr) -> Result<()> {
        let source = self.udp.source_for(peer)?;
        let _making = locked(&self.making);
        let mut core = locked(&self.core);
        let place = match core.find(source) {
            Some(place) => place,
            None => {
                let gone = core.remove_gone(source);
                drop(core);
                // It has the address that the new one is to have.
                drop(gone);
                let endpoint = self.endpoint(source)?;
                core = locked(&self.core);
                self.keep(&mut core, endpoint)
            }
        };
        core.introduce(peer, place);
        Ok(())
    }
}
