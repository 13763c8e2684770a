//! Datagram sockets: a kernel UDP socket that names them and carries first
//! packets, and one datagram queue pair per local address, created when first
//! needed.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`header`] | formats of headers |
//! | [`udp`] | the UDP socket |
//! | [`endpoint`] | a queue pair with its memory |
//! | [`path`] | address handles from resolved routes |
//! | [`core`] | peers, queue pairs and arrivals under the socket's lock |
//! | [`option`] | options |
//! | `background` | what the service thread does for a socket |
//!
//! A datagram for a peer whose queue pair is not known goes by UDP. The peer
//! answers with the number of its queue pair; the service thread then finds
//! the way to it, and what is sent afterwards goes directly. Nothing is sent
//! again: as with UDP, datagrams may be lost, and overtake one another when
//! the way changes.

mod background;
pub mod core;
pub mod endpoint;
pub mod header;
pub mod option;
pub mod path;
pub mod udp;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use crate::error::{Error, Result};
use crate::lock::locked;

use self::core::{Core, Local, Received, Way};
use self::endpoint::{Endpoint, SLOT};
use self::header::{Purpose, plain};
use self::option::Options;
use self::udp::Udp;
use super::common::Common;
use super::events::Channel;
use super::service;
use super::settings::Defaults;
use super::socket::Socket;
use super::vectors::Cursor;
use super::wait::{Notifier, wait_for};

/// How long a blocking close waits for what was sent to leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// A datagram socket.
#[derive(Debug)]
pub struct Datagram {
    // Endpoints go before the channel that their identifiers report on.
    core: Mutex<Core>,
    channel: OnceCell<Channel>,
    udp: Udp,
    /// Set of the completion channels of all endpoints.
    notifications: OwnedFd,
    options: Mutex<Options>,
    /// It has an address, and the service thread looks after it.
    started: OnceCell<()>,
    common: Common,
}

impl Datagram {
    /// A new socket of the address family `domain`. It needs no device until
    /// it is given an address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(domain: i32) -> Result<Arc<Self>> {
        // SAFETY: takes no pointers.
        let notifications = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if notifications < 0 {
            return Err(Error::last_os("create an epoll set"));
        }
        // SAFETY: just opened and nobody else's.
        let notifications = unsafe { OwnedFd::from_raw_fd(notifications) };
        Ok(Arc::new(Self {
            core: Mutex::new(Core::default()),
            channel: OnceCell::new(),
            udp: Udp::new(domain)?,
            notifications,
            options: Mutex::new(Options::new(&Defaults::get().settings)),
            started: OnceCell::new(),
            common: Common::default(),
        }))
    }

    /// The number by which programs know the socket.
    pub fn descriptor(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    /// Address family given at creation.
    pub fn domain(&self) -> i32 {
        self.udp.domain()
    }

    /// Its options. Never taken before the core's lock is.
    pub fn options(&self) -> MutexGuard<'_, Options> {
        locked(&self.options)
    }

    /// What it has in common with sockets of every kind.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Whether sizes are settled.
    pub fn is_sized(&self) -> bool {
        locked(&self.core).has_endpoints()
    }

    /// Bytes that are sent inline, once that is known.
    pub fn inline(&self) -> Option<usize> {
        locked(&self.core).inline()
    }

    /// The local address, unspecified before there is one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> Result<SocketAddr> {
        self.udp.local()
    }

    /// The address of the only peer.
    ///
    /// # Errors
    /// `ENOTCONN` if the socket is not connected.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        self.udp.peer()
    }

    /// The address as programs see it.
    pub fn native(&self, addr: SocketAddr) -> SocketAddr {
        self.udp.native(addr)
    }

    /// Reports `error` to the next call that looks for one.
    fn set_error(&self, error: &Error) {
        self.common.set_error(error.errno());
        self.common.waiters().notify();
    }

    /// Fails if the socket is closed, or with the pending error.
    fn check(&self) -> Result<()> {
        self.common.check_open()?;
        match self.common.take_error() {
            0 => Ok(()),
            errno => Err(Error::new(errno, "use a datagram socket")),
        }
    }

    /// Acts on the core after handling what has completed.
    fn with_core<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = locked(&self.core);
        let happened = core.progress();
        let result = action(&mut core);
        drop(core);
        match happened {
            Ok(0) => {}
            Ok(_) => self.common.waiters().notify(),
            Err(error) => self.set_error(&error),
        }
        result
    }

    fn channel(self: &Arc<Self>) -> Result<&Channel> {
        self.channel.get_or_try_init(|| {
            let channel = Channel::open()?;
            service::watch(channel.descriptor(), self)?;
            Ok(channel)
        })
    }

    /// Sees to it that the socket has a local port, and that the service
    /// thread looks after it.
    fn start(self: &Arc<Self>) -> Result<()> {
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

    /// Binds to a local address.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device of that address; what `bind(2)` says.
    pub fn bind(self: &Arc<Self>, addr: SocketAddr) -> Result<()> {
        self.channel()?;
        self.udp.bind(addr)?;
        self.start()?;
        let ip = plain(addr).ip();
        if ip.is_unspecified() || ip.is_loopback() {
            return Ok(());
        }
        let source = plain(self.udp.local()?);
        self.place(&mut locked(&self.core), source).map(drop)
    }

    /// Sends to and receives from `peer` only from now on.
    ///
    /// # Errors
    /// `ENODEV` without an RDMA device that reaches it; what `connect(2)`
    /// says.
    pub fn connect(self: &Arc<Self>, peer: SocketAddr) -> Result<()> {
        self.start()?;
        self.udp.connect(peer)?;
        let peer = plain(peer);
        let mut core = locked(&self.core);
        self.introduce(&mut core, peer)?;
        core.set_only(Some(peer));
        Ok(())
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

    /// The place of the endpoint of the local address `source`, which is
    /// created if need be.
    fn place(self: &Arc<Self>, core: &mut Core, source: SocketAddr) -> Result<usize> {
        if let Some(place) = core.find(source) {
            return Ok(place);
        }
        let channel = self.channel()?;
        let settings = self.options().settle();
        // SAFETY: the socket drops the channel after its endpoints.
        let endpoint = unsafe { Endpoint::new(channel, source, &settings) }?;
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        // SAFETY: the event lives until the call ends.
        let status = unsafe {
            libc::epoll_ctl(
                self.notifications.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                endpoint.completions().notification_fd(),
                &mut event,
            )
        };
        if status != 0 {
            return Err(Error::last_os("watch a completion channel"));
        }
        let place = core.add(endpoint);
        // Those who wait are to arm it as well.
        self.common.waiters().notify();
        Ok(place)
    }

    /// Makes sure that an endpoint is chosen for `peer`.
    fn introduce(self: &Arc<Self>, core: &mut Core, peer: SocketAddr) -> Result<()> {
        if !core.knows(peer) {
            let source = self.udp.source_for(peer)?;
            let place = self.place(core, source)?;
            core.introduce(peer, place);
        }
        Ok(())
    }

    /// Sends all of `data` as one datagram to `dest`, or to the only peer.
    /// Returns its length.
    ///
    /// # Errors
    /// `EDESTADDRREQ` without any destination, `EMSGSIZE`, `EAGAIN`, `EINTR`,
    /// `ENETUNREACH`, `ENODEV` if no RDMA device reaches it, `ECONNREFUSED` for
    /// an earlier datagram to the only peer.
    pub fn send(
        self: &Arc<Self>,
        data: &mut Cursor<'_>,
        dest: Option<SocketAddr>,
        flags: i32,
    ) -> Result<usize> {
        self.check()?;
        self.start()?;
        let length = data.remaining();
        let peer = match dest.map(plain).or(locked(&self.core).only()) {
            Some(peer) => peer,
            None => return Err(Error::new(libc::EDESTADDRREQ, "send to nobody")),
        };
        if length > SLOT.saturating_sub(header::direct_len(peer)) {
            return Err(Error::new(libc::EMSGSIZE, "send a datagram"));
        }
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let deadline = self.common.send_timeout().deadline();
        let way = wait_for(
            self.common.waiters(),
            Some(&**self),
            nonblocking,
            deadline,
            || {
                self.check()?;
                self.with_core(|core| {
                    self.introduce(core, peer)?;
                    core.send(peer, data)
                })
            },
        )?;
        match way {
            Way::Direct => {}
            Way::DirectAndTell(local) => {
                let packet = header::side(Purpose::Control, local.source, local.qpn);
                // The data is on its way already.
                if let Err(error) = self.udp.send(packet.as_bytes(), peer, true) {
                    log::debug!("{peer} cannot be told: {error}");
                }
            }
            Way::Side(local) => self.send_aside(local, peer, data, nonblocking)?,
        }
        Ok(length)
    }

    fn send_aside(
        &self,
        local: Local,
        peer: SocketAddr,
        data: &mut Cursor<'_>,
        nonblocking: bool,
    ) -> Result<()> {
        let length = data.remaining();
        let header = header::side(Purpose::Data, local.source, local.qpn);
        let mut packet = header.as_bytes().to_vec();
        let start = packet.len();
        packet.resize(start.saturating_add(length), 0);
        if let Some(room) = packet.get_mut(start..) {
            // SAFETY: room for all of the data, and no buffer of the
            // program's.
            unsafe { data.read(room.as_mut_ptr(), length) };
        }
        self.udp.send(&packet, peer, nonblocking)
    }

    /// Receives one datagram into `target`; what does not fit is lost.
    ///
    /// # Errors
    /// `EINVAL` before the socket has an address, `EAGAIN`, `EINTR`,
    /// `ECONNREFUSED` for an earlier datagram to the only peer.
    pub fn receive(&self, target: &mut Cursor<'_>, flags: i32) -> Result<Received> {
        if self.started.get().is_none() {
            return Err(Error::invalid("receive on a socket without an address"));
        }
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let deadline = self.common.receive_timeout().deadline();
        wait_for(
            self.common.waiters(),
            Some(self),
            nonblocking,
            deadline,
            || {
                self.check()?;
                self.with_core(|core| core.receive(target, peek))
            },
        )
    }

    /// Bytes of the datagram that a receive would take, 0 if there is none.
    pub fn first_length(&self) -> usize {
        self.with_core(|core| core.first_length())
    }

    /// What `poll(2)` would say of the events `interest`, those that are
    /// always reported included.
    pub fn poll(&self, interest: i16) -> i16 {
        let (readable, writable) = self.with_core(|core| (core.can_receive(), core.can_send()));
        let mut ready = 0;
        if readable {
            ready |= libc::POLLIN | libc::POLLRDNORM;
        }
        if writable {
            ready |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if self.common.error() != 0 {
            ready |= libc::POLLERR;
        }
        ready & (interest | libc::POLLERR)
    }

    /// Whether all that was sent has left.
    pub fn has_ended(&self) -> bool {
        self.with_core(|core| core.is_idle())
    }

    /// Ends the socket: wakes all who wait for it and lets leave what was
    /// sent, in the background if the socket does not block.
    pub fn close(self: Arc<Self>) {
        self.common.set_closed();
        self.common.waiters().notify();
        self.forget();
        service::release(self.descriptor(), Arc::as_ptr(&self));
        if self.has_ended() {
            return;
        }
        let patience = option::linger(&self).unwrap_or(CLOSE_PATIENCE);
        let deadline = Instant::now().checked_add(patience);
        if self.common.is_nonblocking() {
            service::linger(
                Socket::Datagram(self),
                deadline.unwrap_or_else(Instant::now),
            );
            return;
        }
        let left = wait_for(self.common.waiters(), Some(&*self), false, deadline, || {
            if self.has_ended() {
                return Ok(());
            }
            Err(Error::new(libc::EAGAIN, "send what is left"))
        });
        if let Err(error) = left {
            log::info!("datagrams may be lost: {error}");
        }
    }

    fn forget(&self) {
        service::forget(self.descriptor(), self);
        if let Some(channel) = self.channel.get() {
            service::forget(channel.descriptor(), self);
        }
    }
}

impl Notifier for Datagram {
    fn notification_fd(&self) -> RawFd {
        self.notifications.as_raw_fd()
    }

    fn arm(&self) -> bool {
        let armed = locked(&self.core).arm();
        armed.unwrap_or_else(|error| {
            self.set_error(&error);
            true
        })
    }

    fn take_notification(&self) {
        for fd in locked(&self.core).take_notifications() {
            let (epoll, none) = (self.notifications.as_raw_fd(), std::ptr::null_mut());
            // SAFETY: deleting needs no event.
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, none) };
        }
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        self.forget();
    }
}
