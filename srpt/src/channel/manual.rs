//! The steps of a channel one by one, for programs that poll the completion
//! queue themselves and decide what is handled when. Nobody else needs them:
//! [`Channel::completed`] and [`Channel::settle`] take them all.

use super::Channel;
use super::link::Link;
use super::slots::{Answer, Slot, Step};
use super::state::CommandState;
use crate::executor::Outcome;
use crate::wire::Tag;
use crate::wire::request::Incoming;
use crate::wire::response::{self, Residual, TaskResponse};

impl<L: Link> Channel<L> {
    /// Number of slots for commands.
    pub fn slots(&self) -> u16 {
        self.slots.count()
    }

    /// Number of receives.
    pub fn receives(&self) -> u16 {
        self.rings.receives()
    }

    /// Notes that a receive has received `length` bytes.
    pub fn note_received(&mut self, number: u16, length: u32) {
        self.rings.received(number, length);
    }

    /// What a receive has received.
    pub fn unit(&self, number: u16) -> &[u8] {
        self.rings.unit(number)
    }

    /// Hands in the information unit of a receive. False if it has to wait: it
    /// is then handled by [`Channel::settle`] in its turn.
    pub fn hand_in(&mut self, number: u16) -> bool {
        self.early.push_back(number);
        self.handle_received();
        self.flush_receives();
        !self.early.contains(&number)
    }

    /// Posts a receive again whose information unit is of no use. Its credit
    /// goes back with the next response or [`Channel::settle`].
    pub fn discard(&mut self, number: u16) {
        self.give_up(number);
        self.flush_receives();
    }

    /// Takes a slot for a command.
    pub fn take_slot(&mut self) -> Option<u16> {
        self.slots.take()
    }

    /// Begins the command or task management request of a receive in a slot
    /// that was taken. False if the receive holds something else; the slot is
    /// then free again, and the receive still the caller's.
    pub fn begin(&mut self, number: u16, slot: u16) -> bool {
        match Incoming::parse(self.rings.unit(number)) {
            Incoming::Command(_) => self.begin_command(slot, number),
            Incoming::TaskManagement(task) => {
                self.repost(number);
                self.begin_task(slot, task);
            }
            _ => {
                self.slots.release(slot);
                return false;
            }
        }
        self.flush_receives();
        true
    }

    /// The state of the command in a slot.
    pub fn command_state(&mut self, slot: u16) -> Option<&mut CommandState> {
        self.slots.get_mut(slot).map(|slot| &mut slot.state)
    }

    /// Aborts the command in a slot, unless its response is posted. Returns
    /// whether it was open.
    pub fn abort_command(&mut self, index: u16) -> bool {
        let open = self.slots.get(index).is_some_and(Slot::is_open_command);
        if open {
            let sequence = self.slots.get(index).map(|slot| slot.sequence);
            self.abort_where(|slot| Some(slot.sequence) == sequence);
        }
        open
    }

    /// Builds the response that the command in a slot would get now. Sends
    /// nothing and gives no credit away. Empty without such a command.
    pub fn build_command_response(&mut self, index: u16, tag: Tag, status: u8) -> &[u8] {
        let credits = 1 + self.pending_credits;
        let Some(slot) = self.buildable(index) else {
            return &[];
        };
        let outcome = match slot.answer {
            Answer::Command(outcome) => outcome,
            Answer::Task(_) => Outcome::status(status),
        };
        let (offered, needed) = (slot.offered(), slot.needed);
        let residual = Residual::new(slot.direction, offered, needed, outcome.transferred);
        let sense = outcome.sense.filter(|_| outcome.status == status);
        let bytes = self.rings.response(index);
        let length = response::command_response(bytes, tag, credits, status, residual, sense);
        bytes.get(..length).unwrap_or_default()
    }

    /// Builds the response that the task management request in a slot would
    /// get now, as [`Channel::build_command_response`].
    pub fn build_task_response(&mut self, index: u16, tag: Tag, answer: TaskResponse) -> &[u8] {
        let credits = 1 + self.pending_credits;
        if self.buildable(index).is_none() {
            return &[];
        }
        let bytes = self.rings.response(index);
        let length = response::task_response(bytes, tag, credits, answer);
        bytes.get(..length).unwrap_or_default()
    }

    /// The response buffer of a slot.
    pub fn response_buffer(&mut self, index: u16) -> *const u8 {
        self.rings.response(index).as_ptr()
    }

    /// A slot whose response buffer the device does not read.
    fn buildable(&self, index: u16) -> Option<&Slot> {
        self.slots
            .get(index)
            .filter(|slot| !matches!(slot.step, Step::Free | Step::Sent))
    }
}
