//! The end of a channel: disconnect, drain, and when all has come back.

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
        self.zero_length_write();
        self.memory_queue.clear();
        self.room_queue.clear();
        self.early.clear();
        self.tickets.clear();
        self.abort_where(|_| true);
        true
    }

    /// Posts a write of nothing. Being last in the send queue, its completion
    /// shows that all before it are done.
    fn zero_length_write(&mut self) {
        let request = SendRequest {
            work: Work::Drain,
            operation: Operation::Write(Segment::default()),
            address: 0,
            length: 0,
            signaled: true,
        };
        if let Err(error) = self.link.post_send(&[request]) {
            log::debug!("{error}");
            self.drained = true;
        }
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
        }
    }
}
