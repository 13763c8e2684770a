//! Where a stream socket is in its life, in the words of `poll(2)` and of TCP.

use std::sync::Arc;

use crate::lock::locked;

use super::{Phase, Stream};
use crate::rsocket::connection::Readiness;
use crate::rsocket::tcp_info::State;

impl Stream {
    /// Where the socket is in its life, in the words of TCP.
    pub fn tcp_state(&self) -> State {
        if let Some(connection) = self.established() {
            return match connection.open_directions() {
                None => State::Close,
                Some((_, false)) => State::FinWait,
                Some((false, true)) => State::CloseWait,
                Some((true, true)) => State::Established,
            };
        }
        match &*locked(&self.phase) {
            Phase::Init | Phase::Bound | Phase::Failed => State::Close,
            Phase::Listening(_) => State::Listen,
            Phase::Opening(_) => State::SynSent,
            Phase::Accepting(_) | Phase::Connected => State::SynReceived,
        }
    }

    /// What `poll(2)` would say of the events `interest`, those that are
    /// always reported included.
    pub fn poll(self: &Arc<Self>, interest: i16) -> i16 {
        let reading = libc::POLLIN | libc::POLLRDNORM;
        let both = reading | libc::POLLOUT | libc::POLLWRNORM;
        let always = libc::POLLERR | libc::POLLHUP;
        let ready = match self.established() {
            Some(connection) => {
                let state = connection.readiness(interest & reading != 0);
                if interest & libc::POLLOUT != 0 && !state.writable {
                    self.probe_peer(connection);
                }
                connected_events(state)
            }
            None => match &*locked(&self.phase) {
                Phase::Init | Phase::Bound => libc::POLLOUT | libc::POLLHUP,
                Phase::Listening(listener) if listener.queue.is_empty() => 0,
                Phase::Listening(_) => libc::POLLIN | libc::POLLRDNORM,
                Phase::Failed => both | libc::POLLERR,
                Phase::Opening(_) | Phase::Accepting(_) | Phase::Connected => 0,
            },
        };
        ready & (interest | always)
    }
}

fn connected_events(state: Readiness) -> i16 {
    let mut events = 0;
    if state.readable {
        events |= libc::POLLIN | libc::POLLRDNORM;
    }
    if state.writable {
        events |= libc::POLLOUT | libc::POLLWRNORM;
    }
    if state.end_of_stream {
        events |= libc::POLLRDHUP;
    }
    if state.hung_up {
        events |= libc::POLLHUP;
    }
    if state.broken {
        events |= libc::POLLERR;
    }
    events
}
