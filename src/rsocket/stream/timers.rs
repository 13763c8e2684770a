//! The timers of a stream socket: keep-alive messages, and probes of a peer that
//! has to make room.

use std::sync::Arc;

use crate::cancel::Uncancelled;
use crate::error::Result;
use crate::lock::locked;

use super::Stream;
use crate::rsocket::connection::Connection;
use crate::rsocket::keepalive::Keepalive;

/// Seconds after which a peer that sends wait for is asked whether it is there.
const PROBE_SECONDS: i32 = 5;

impl Stream {
    /// Starts, restarts or stops the keep-alive messages of the connection, as
    /// the options have it now.
    ///
    /// # Errors
    /// What the kernel says of timers.
    pub fn keep_alive(self: &Arc<Self>) -> Result<()> {
        let idle = self.options().keepalive();
        let timer = match (idle, self.established()) {
            (Some(seconds), Some(_)) => {
                Some(Keepalive::start(self, seconds, Connection::keep_alive)?)
            }
            _ => None,
        };
        let before = std::mem::replace(&mut *locked(&self.keepalive), timer);
        drop(before);
        Ok(())
    }

    /// Sees to it that a peer that sends wait for proves that it is there, as
    /// TCP does by its persist timer (RFC 9293, section 3.8.6.1).
    pub(super) fn probe_peer(self: &Arc<Self>, connection: &Connection) {
        if !connection.wants_probes() {
            return;
        }
        let _uncancelled = Uncancelled::throughout();
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
}
