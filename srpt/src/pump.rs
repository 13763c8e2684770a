//! Keeping a channel going: completions from its queue pair, notifications of
//! them, and messages of other channels. Sleeping is left to who calls; how long
//! to look for completions before is known here.

use std::time::{Duration, Instant};

use rdmacm::look::{Gauge, Stretch, Turn};
use rdmacm::verbs::bindings::IBV_EVENT_COMM_EST;

use crate::channel::Channel;
use crate::channel::link::Completion;
use crate::channel::state::ChannelState;
use crate::endpoint::Endpoint;
use crate::session::{Member, Message};

/// Rounds of completions before anything else gets a turn.
const ROUNDS: usize = 64;

/// How fast looks at channels are.
static GAUGE: Gauge = Gauge::new();

/// What is known of a channel's completion queue.
#[derive(Debug)]
pub struct Pump {
    batch: Vec<Completion>,
    /// The completion queue will notify of its next completion.
    armed: bool,
    /// The kernel was told that the peer uses the connection.
    told: bool,
    /// How long to look for completions before asking for a notification.
    look: Duration,
    stretch: Stretch,
    /// How long the last look took that found nothing.
    looked: Duration,
}

impl Pump {
    /// For a channel whose completion queue will notify. Looks for completions
    /// for the time `look` before it asks for another notification, longer
    /// where [`Pump::slept`] says that it pays.
    pub fn new(look: Duration) -> Self {
        Self {
            batch: Vec::new(),
            armed: true,
            told: false,
            look,
            stretch: Stretch::new(),
            looked: Duration::ZERO,
        }
    }

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

    /// The notification that was asked for came after a sleep that began at
    /// `since`.
    pub fn slept(&mut self, since: Instant) {
        self.stretch.slept(self.looked, since.elapsed(), self.look);
    }

    /// Handles completions until there are none, or others want a turn.
    pub fn serve(&mut self, channel: &mut Channel<Endpoint>) {
        for _ in 0..ROUNDS {
            if self.take(channel) || !self.armed && self.look(channel) {
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

    /// Handles the completions there are. Returns whether there were any.
    fn take(&mut self, channel: &mut Channel<Endpoint>) -> bool {
        self.batch.clear();
        if let Err(error) = channel.link().poll(&mut self.batch) {
            log::error!("{error}");
            channel.close();
        }
        for completion in &self.batch {
            channel.completed(*completion);
        }
        channel.settle();
        !self.batch.is_empty()
    }

    /// Looks for completions for a while. Returns whether it has handled any.
    fn look(&mut self, channel: &mut Channel<Endpoint>) -> bool {
        let longer = self.stretch.time(self.look);
        let turn = (longer > self.look).then(Turn::take).flatten();
        let time = if turn.is_some() { longer } else { self.look };
        let mut looks = GAUGE.looks(time, 1);
        while channel.state() < ChannelState::Draining && looks.again() {
            if self.take(channel) {
                if turn.is_some() {
                    self.stretch.found(looks.spent(), self.look);
                }
                return true;
            }
        }
        self.looked = looks.spent();
        false
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
