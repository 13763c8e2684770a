//! Shutdown and close, and how long each waits for the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::lock::locked;

use super::{Phase, Stream};
use crate::rsocket::connection::{Connection, Directions};
use crate::rsocket::socket::Socket;
use crate::rsocket::{flusher, service};

/// How long a blocking close without `SO_LINGER` waits for the peer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a non-blocking close or shutdown looks whether all has arrived at once.
const GRACE: Duration = Duration::from_millis(20);
/// How long a connection is kept in the background after close.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(60);
/// How long a blocking shutdown without `SO_LINGER` waits for the peer.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(10);

impl Stream {
    /// Shuts down one or both directions. Blocking sockets that stop sending wait
    /// until all that was sent has arrived, as programs that end without a close
    /// rely on; for a while, or as long as `SO_LINGER` says. Non-blocking ones look
    /// for a moment only, where the original waits for ever. As with TCP, one that
    /// listens stops to when it is not to receive any more, and one that connects gives
    /// that up; others without a connection have nothing to shut down.
    pub fn shutdown(self: &Arc<Self>, directions: Directions) {
        // It may be connected just now.
        let established = self.established().or_else(|| {
            let given_up = self.stop_connecting();
            self.established().filter(|_| !given_up)
        });
        let Some(connection) = established else {
            if directions != Directions::Write {
                self.stop_listening();
            }
            return;
        };
        connection.shutdown(directions);
        let patience = match self.options().linger {
            _ if self.common.is_nonblocking() => GRACE,
            Some(limit) => limit,
            None => SHUTDOWN_PATIENCE,
        };
        let telling = || connection.is_telling();
        if let Err(error) = self.wait_while(connection, patience, telling) {
            log::warn!("{}: what was sent may be lost: {error}", self.id);
            // Receives that go on waiting learn if the peer is gone.
            self.probe_peer(connection);
        }
    }

    /// Waits while `busy`, for at most `patience`. A signal does not end the wait:
    /// what was sent would be lost.
    fn wait_while(
        &self,
        connection: &Connection,
        patience: Duration,
        busy: impl Fn() -> bool,
    ) -> Result<()> {
        let deadline = Instant::now().checked_add(patience);
        loop {
            let waited = self.wait_for(Some(connection), false, deadline, || {
                if busy() {
                    return Err(Error::new(libc::EAGAIN, "wait for the peer"));
                }
                Ok(())
            });
            match waited {
                Err(error) if error.errno() == libc::EINTR => {}
                other => return other,
            }
        }
    }

    /// Whether its connection, if any, has ended.
    pub fn has_ended(&self) -> bool {
        self.established().is_none_or(Connection::is_over)
    }

    /// Ends the socket: wakes all who wait for it, tells the peer, and waits
    /// until the data that was sent has arrived, as long as `SO_LINGER` says.
    /// A non-blocking socket ends in the background. Unless it does, what the
    /// socket holds is free once the last reference goes: no thread of the
    /// library's own keeps one.
    pub fn close(self: Arc<Self>) {
        self.common.set_closed();
        self.stop_listening();
        if !self.end_connection() {
            let deadline = Instant::now().checked_add(BACKGROUND_PATIENCE);
            service::linger(Socket::Stream(self), deadline.unwrap_or_else(Instant::now));
            return;
        }
        for timer in [&self.keepalive, &self.probes] {
            let timer = locked(timer).take();
            drop(timer);
        }
        service::release(self.descriptor(), Arc::as_ptr(&self));
        flusher::release(&self);
    }

    /// If the socket connects, that fails.
    fn stop_connecting(&self) -> bool {
        let phase = locked(&self.phase);
        if !matches!(&*phase, Phase::Opening(_)) {
            return false;
        }
        self.fail(phase, libc::ECONNRESET);
        true
    }

    /// If the socket listens, ends the connections that nobody has accepted; who
    /// waits for one fails, and further requests are rejected. Wakes all who wait.
    fn stop_listening(&self) {
        let phase = {
            let mut phase = locked(&self.phase);
            match &*phase {
                Phase::Listening(_) => std::mem::replace(&mut *phase, Phase::Failed),
                _ => Phase::Failed,
            }
        };
        self.common.waiters().notify();
        if let Phase::Listening(listener) = phase {
            drop(listener.embryos);
            for stream in listener.queue {
                stream.common.set_nonblocking(true);
                stream.close();
            }
        }
    }

    /// Ends the connection, if any, and waits for its end as long as the options
    /// say. Returns `false` if it is to go on in the background.
    fn end_connection(&self) -> bool {
        let Some(connection) = self.established() else {
            return true;
        };
        connection.shutdown(Directions::Both);
        if connection.is_over() {
            return true;
        }
        let linger = self.options().linger;
        let patience = match linger {
            Some(limit) => limit,
            None if self.common.is_nonblocking() => GRACE,
            None => CLOSE_PATIENCE,
        };
        let ended = self.wait_while(connection, patience, || !connection.is_over());
        ended.is_ok() || linger.is_some()
    }
}
