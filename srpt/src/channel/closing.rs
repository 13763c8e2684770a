//! The end of a channel: disconnect, drain, and when all has come back.

use rdmacm::Result;

use super::Channel;
use super::link::{Link, Operation, SendRequest, Work};
use super::state::ChannelState;
use crate::wire::descriptor::Segment;

impl<L: Link> Channel<L> {
    /// Ends the connection from this side, or answers its end from the other,
    /// then closes. False if that was done before.
    pub fn disconnect(&mut self) -> bool {
        if !self.state.advance(ChannelState::Disconnecting) {
            return false;
        }
        if let Err(error) = self.link.disconnect() {
            log::info!("{error}");
        }
        self.close()
    }

    /// Puts the queue pair in error and lets everything come back. False if
    /// that was done before.
    pub fn close(&mut self) -> bool {
        if !self.state.advance(ChannelState::Draining) {
            return false;
        }
        if let Err(error) = self.link.fail() {
            log::info!("{error}");
        }
        if let Err(error) = self.zero_length_write() {
            log::debug!("{error}");
            self.drained = true;
        }
        self.memory_queue.clear();
        self.room_queue.clear();
        self.early.clear();
        self.abort_where(|_| true);
        true
    }

    /// Posts a write of nothing. In a channel that drains it is the last in
    /// the send queue, so that its completion shows that all before it are
    /// done.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn zero_length_write(&mut self) -> Result<()> {
        self.link.post_send(&[SendRequest {
            work: Work::Drain,
            operation: Operation::Write(Segment::default()),
            address: 0,
            length: 0,
            signaled: true,
        }])
    }

    /// What was posted will not come back: the queue pair is destroyed next.
    pub fn give_up_draining(&mut self) {
        self.drained = true;
        self.finish_closing();
    }

    /// Commands that the executor still has.
    pub fn executing(&self) -> u16 {
        self.executing
    }

    pub(super) fn finish_closing(&mut self) {
        if self.state == ChannelState::Draining && self.drained && self.executing == 0 {
            self.state.advance(ChannelState::Disconnected);
            self.peers.ended();
        }
    }
}
