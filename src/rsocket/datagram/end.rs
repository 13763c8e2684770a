//! Close, and how long it waits for what was sent to leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Datagram, option};
use crate::error::Error;
use crate::rsocket::service;
use crate::rsocket::socket::Socket;
use crate::rsocket::wait::wait_for;

/// How long a blocking close waits for what was sent to leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

impl Datagram {
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
        let left = wait_for(
            &*self,
            self.common.waiters(),
            Some(&*self),
            false,
            deadline,
            || {
                if self.has_ended() {
                    return Ok(());
                }
                Err(Error::new(libc::EAGAIN, "send what is left"))
            },
        );
        if let Err(error) = left {
            log::info!("datagrams may be lost: {error}");
        }
    }
}
