//! The end of a channel: disconnect, drain, and when all has come back.

use rdmacm::Result;

use super::Channel;
use super::link::{Link, Operation, SendRequest, Work};
use super::state::ChannelState;
use crate::wire::descriptor::Segment;
use crate::wire::request;

/// How far the target's own logout has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Not begun.
    No,
    /// No command is taken any more, those under way come to their end.
    Soon,
    /// The initiator is told.
    Told,
}

impl<L: Link> Channel<L> {
    /// Logs out: takes no further command, lets those under way come to their
    /// end, tells the initiator, and disconnects when that has arrived. What takes
    /// too long is ended by [`Channel::disconnect`].
    pub fn log_out(&mut self) {
        if self.is_live() {
            if self.leaving == Leaving::No {
                self.leaving = Leaving::Soon;
            }
        } else {
            self.disconnect();
        }
    }

    /// Whether [`Channel::log_out`] has begun and not come to its end.
    pub fn is_leaving(&self) -> bool {
        self.is_live() && self.leaving != Leaving::No
    }

    /// Tells the initiator of the logout, when all commands have ended.
    pub(super) fn say_goodbye(&mut self) {
        if !self.is_live() || self.leaving != Leaving::Soon || self.slots.in_use() > 0 {
            return;
        }
        self.leaving = Leaving::Told;
        // No command uses its buffer any more.
        self.chain_own(Work::Logout, 0, request::target_logout);
    }

    /// Ends the connection from this side, or answers its end from the other,
    /// then closes. False if that was done before.
    pub fn disconnect(&mut self) -> bool {
        self.flush_sends();
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
        // Slots that count on coming back must have been posted.
        self.flush_sends();
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
