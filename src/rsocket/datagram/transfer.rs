//! Sending and receiving with waiting: directly where the peer's queue pair is
//! known, else by UDP.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Datagram;
use super::core::{Local, Way};
use super::endpoint::SLOT;
use super::header::{self, Purpose, plain};
use super::inbox::Received;
use crate::cancel::Uncancelled;
use crate::error::{Error, Result};
use crate::lock::locked;
use crate::rsocket::vectors::Cursor;
use crate::rsocket::wait::wait_for;

impl Datagram {
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
        let _uncancelled = Uncancelled::but_in_sleeps();
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
            &**self,
            self.common.waiters(),
            Some(&**self),
            nonblocking,
            deadline,
            || self.attempt(|| self.with_peer(peer, |core| core.send(peer, data))),
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

    /// Tries `action`. The pending error comes first, also one that shows only
    /// now that there is something to wait for.
    fn attempt<R>(&self, action: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check()?;
        let result = action();
        if matches!(&result, Err(error) if error.errno() == libc::EAGAIN) {
            self.check()?;
        }
        result
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
        let _uncancelled = Uncancelled::but_in_sleeps();
        if self.started.get().is_none() {
            return Err(Error::invalid("receive on a socket without an address"));
        }
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let deadline = self.common.receive_timeout().deadline();
        wait_for(
            self,
            self.common.waiters(),
            Some(self),
            nonblocking,
            deadline,
            || self.attempt(|| self.with_core(|core| core.receive(target, peek))),
        )
    }

    /// Bytes of the datagram that a receive would take, 0 if there is none.
    pub fn first_length(&self) -> usize {
        self.with_core(|core| core.first_length())
    }
}
