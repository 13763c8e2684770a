//! Keeping a channel going: completions from its queue pair, notifications of
//! them, and messages of other channels. Waiting is left to who calls.

use rdmacm::verbs::bindings::IBV_EVENT_COMM_EST;

use crate::channel::Channel;
use crate::channel::link::Completion;
use crate::endpoint::Endpoint;
use crate::session::{Member, Message};

/// Rounds of completions before anything else gets a turn.
const ROUNDS: usize = 64;

/// What is known of a channel's completion queue.
#[derive(Debug)]
pub struct Pump {
    batch: Vec<Completion>,
    /// The completion queue will notify of its next completion.
    armed: bool,
    /// The kernel was told that the peer uses the connection.
    told: bool,
}

impl Default for Pump {
    fn default() -> Self {
        Self {
            batch: Vec::new(),
            armed: true,
            told: false,
        }
    }
}

impl Pump {
    /// Whether a notification will come. Without, there may be completions
    /// right now.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Takes the notification that has come.
    pub fn notified(&mut self, channel: &mut Channel<Endpoint>) {
        if channel.link_mut().take_notification() {
            self.armed = false;
        }
    }

    /// Handles completions until there are none, or others want a turn.
    pub fn serve(&mut self, channel: &mut Channel<Endpoint>) {
        for _ in 0..ROUNDS {
            self.batch.clear();
            if let Err(error) = channel.link().poll(&mut self.batch) {
                log::error!("{error}");
                channel.close();
            }
            for completion in &self.batch {
                channel.completed(*completion);
            }
            channel.settle();
            if !self.batch.is_empty() {
                continue;
            }
            if self.armed {
                break;
            }
            // What arrives before this is found in the next round.
            if let Err(error) = channel.link().arm() {
                log::error!("{error}");
                channel.close();
            }
            self.armed = true;
        }
        if channel.has_early() && !self.told {
            // The peer uses the connection, so its last message of the
            // handshake was lost or is late.
            self.told = true;
            if let Err(error) = channel.link().connection().notify(IBV_EVENT_COMM_EST) {
                log::debug!("{error}");
            }
        }
    }

    /// Does what other channels ask for.
    pub fn serve_messages(&mut self, channel: &mut Channel<Endpoint>, member: &Member) {
        for message in member.messages() {
            match message {
                Message::Close => {
                    channel.disconnect();
                }
                Message::LogOut => channel.log_out(),
                Message::Reset(lun, ticket) => channel.reset(lun, ticket),
            }
        }
    }
}
