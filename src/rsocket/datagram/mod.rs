//! Datagram sockets: a kernel UDP socket that names them and carries first
//! packets, and one datagram queue pair per local address, created when first
//! needed.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`header`] | formats of headers |
//! | [`udp`] | the UDP socket |
//! | [`endpoint`] | a queue pair with its memory |
//! | [`endpoints`] | those of a socket, by place |
//! | [`inbox`] | what has arrived |
//! | [`path`] | address handles from resolved routes |
//! | [`core`] | peers, queue pairs and arrivals under one lock |
//! | [`option`] | options |
//! | `naming` | addresses, and the endpoints that they need |
//! | `transfer`, `end` | sending and receiving; close |
//! | `background` | what the service thread does for a socket |
//!
//! A datagram for a peer whose queue pair is not known goes by UDP. The peer
//! answers with the number of its queue pair; the service thread then finds
//! the way to it, and what is sent afterwards goes directly. Nothing is sent
//! again: as with UDP, datagrams may be lost, and overtake one another when
//! the way changes.

mod background;
pub mod core;
mod end;
pub mod endpoint;
pub mod endpoints;
pub mod header;
pub mod inbox;
mod naming;
pub mod option;
pub mod path;
mod transfer;
pub mod udp;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::cancel::Uncancelled;
use crate::error::{Error, Result};
use crate::kernel::epoll::Epoll;
use crate::lock::{Mutex, MutexGuard, OnceCell, locked};

use self::core::Core;
use self::option::Options;
use self::udp::Udp;
use super::common::Common;
use super::events::Channel;
use super::service;
use super::settings::Defaults;
use super::sockets::{self, SocketNumber};
use super::wait::{Awaited, Notifier};

/// A datagram socket.
#[derive(Debug)]
pub struct Datagram {
    // Endpoints go before the channel that their identifiers report on.
    core: Mutex<Core>,
    /// Held by the thread that makes an endpoint, for as long as that takes; taken
    /// before the core's lock.
    making: Mutex<()>,
    channel: OnceCell<Channel>,
    udp: SocketNumber<Udp>,
    /// Set of the completion channels of all endpoints.
    notifications: Epoll,
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
        Ok(Arc::new(Self {
            core: Mutex::new(Core::default()),
            making: Mutex::new(()),
            channel: OnceCell::new(),
            udp: sockets::number(Udp::new(domain)?),
            notifications: Epoll::new(true)?,
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

    /// Whether sizes are settled. Waits for an endpoint that is being made.
    pub fn is_sized(&self) -> bool {
        let _making = locked(&self.making);
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

    /// What `poll(2)` would say of the events `interest`, those that are
    /// always reported included.
    pub fn poll(&self, interest: i16) -> i16 {
        let _uncancelled = Uncancelled::throughout();
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

    fn forget(&self) {
        service::forget(self.descriptor(), self);
        if let Some(channel) = self.channel.get() {
            service::forget(channel.as_raw_fd(), self);
        }
    }
}

impl Awaited for Datagram {
    unsafe fn let_go(this: *const Self) {
        // SAFETY: the caller vouches for it.
        unsafe { Arc::decrement_strong_count(this) };
    }
}

impl Notifier for Datagram {
    fn look(&self) -> bool {
        // What an attempt looks at depends on what it is for.
        true
    }

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
            self.notifications.forget(fd);
        }
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        self.forget();
    }
}
