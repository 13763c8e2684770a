//! A command from its arrival to its response.

use super::Channel;
use super::link::Link;
use super::slots::{Answer, Cursor, Slot, Step};
use super::state::CommandState;
use crate::executor::{Completed, Outcome, Plan, Request, Sense, Started, Token, status};
use crate::memory::Buffer;
use crate::wire::command::Command;
use crate::wire::descriptor::{Descriptor, Malformed};
use crate::wire::response::Direction;

/// INVALID FIELD IN CDB.
const INVALID_FIELD: Sense = Sense::new(0x05, 0x24, 0x00);

/// Where the data of a command is to be found.
enum Data {
    /// Nowhere: the command has none, or none is moved.
    Nowhere,
    /// Behind the command in its receive.
    Received,
    /// In the initiator's memory; the list of its pieces has so many bytes
    /// and must be fetched, unless that is 0.
    Remote(u32),
}

impl<L: Link> Channel<L> {
    /// Begins the command that a receive holds.
    pub(super) fn begin_command(&mut self, index: u16, receive: u16) {
        self.counters.commands += 1;
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.receive = Some(receive);
        let Some(command) = Command::parse(self.rings.unit(receive)) else {
            return;
        };
        slot.tag = command.tag;
        slot.lun = command.lun;
        let data = match command.data(self.immediate) {
            Ok(data) => data,
            Err(error) => {
                self.malformed(index, error);
                return;
            }
        };
        slot.data_out = data.out.length();
        slot.data_in = data.into.length();
        let plan = self.executor.plan(&request(&command, slot));
        let place = prepare(slot, plan, data.out, data.into);
        if let Plan::Answer(outcome) = plan {
            self.answer(index, outcome);
            return;
        }
        if slot.moving as usize > self.pool.largest() {
            slot.moving = 0;
            self.answer(index, Outcome::check(INVALID_FIELD));
            return;
        }
        match place {
            Data::Nowhere => self.execute(index, Buffer::empty()),
            Data::Received => {
                self.counters.immediate += 1;
                let buffer = self.rings.part(receive, self.immediate.offset, slot.moving);
                slot.moving = 0;
                self.execute(index, buffer);
            }
            // It would wait for memory for ever, and all others behind it.
            Data::Remote(list) if list as usize > self.pool.largest() => {
                slot.moving = 0;
                self.malformed(index, Malformed::TooManyEntries);
            }
            Data::Remote(list) => {
                slot.list = list;
                if !self.memory_queue.is_empty() || !self.take_memory(index) {
                    self.memory_queue.push_back(index);
                }
            }
        }
    }

    /// Answers a command whose data cannot be located.
    pub(super) fn malformed(&mut self, index: u16, error: Malformed) {
        log::warn!("{error}");
        self.counters.malformed += 1;
        self.answer(
            index,
            match error {
                Malformed::Bidirectional => Outcome::check(INVALID_FIELD),
                _ => Outcome::status(status::BUSY),
            },
        );
    }

    /// Takes memory for a command that waits for it, and goes on with it.
    /// False if there is not enough.
    pub(super) fn take_memory(&mut self, index: u16) -> bool {
        let Some(slot) = self.slots.get_mut(index) else {
            return true;
        };
        // Both or none: a command that held one while waiting for the other
        // could wait for ever.
        let Some(table) = self.pool.take(slot.list as usize) else {
            return false;
        };
        let Some(buffer) = self.pool.take(slot.moving as usize) else {
            self.pool.give_back(table);
            return false;
        };
        slot.buffer = buffer;
        slot.table = table;
        if slot.table.is_empty() {
            self.move_data(index);
        } else {
            self.counters.fetched_tables += 1;
            slot.step = Step::Table;
            self.transfer(index);
        }
        true
    }

    /// Goes on with a command that has memory and knows the pieces of the
    /// initiator's.
    pub(super) fn move_data(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.cursor = Cursor::default();
        if slot.direction == Direction::Out {
            slot.state
                .test_and_set(CommandState::New, CommandState::NeedData);
            slot.step = Step::Fetch;
            self.transfer(index);
        } else {
            let buffer = std::mem::replace(&mut slot.buffer, Buffer::empty());
            self.execute(index, buffer);
        }
    }

    /// Hands a command to the executor.
    pub(super) fn execute(&mut self, index: u16, buffer: Buffer) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.step = Step::Execute;
        slot.state
            .test_and_set(CommandState::NeedData, CommandState::DataIn);
        let receive = slot.receive.unwrap_or(u16::MAX);
        let Some(command) = Command::parse(self.rings.unit(receive)) else {
            return;
        };
        self.executing += 1;
        self.unpolled = true;
        let request = request(&command, slot);
        match self.executor.start(Token(index), &request, buffer) {
            Started::Done(completed) => self.executed(completed),
            Started::Pending => {}
        }
    }

    /// The executor gives a command back.
    pub(super) fn executed(&mut self, completed: Completed) {
        // Whatever became of its slot, the executor does not have it any more.
        self.executing = self.executing.saturating_sub(1);
        let Token(index) = completed.token;
        let slot = self.slots.get_mut(index);
        let Some(slot) = slot.filter(|slot| slot.step == Step::Execute) else {
            log::error!(
                "the executor gave back {:?}, which it does not have",
                completed.token
            );
            self.pool.give_back(completed.buffer);
            return;
        };
        slot.buffer = completed.buffer;
        if slot.aborted {
            self.drop_command(index);
        } else {
            self.answer(index, completed.outcome);
        }
    }

    /// Returns data, if any, and the outcome to the initiator.
    fn answer(&mut self, index: u16, mut outcome: Outcome) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        // An executor that says more than was there must not send more.
        let most = match slot.direction {
            Direction::In => slot.buffer.len() as u32,
            Direction::Out => slot.needed.min(slot.data_out),
            Direction::None => 0,
        };
        outcome.transferred = outcome.transferred.min(most);
        slot.moving = match slot.direction {
            Direction::In => outcome.transferred,
            _ => 0,
        };
        slot.cursor = Cursor::default();
        slot.answer = Answer::Command(outcome);
        slot.step = Step::Return;
        self.transfer(index);
    }

    /// Ends an aborted command: no response, its credit is given back later.
    pub(super) fn drop_command(&mut self, index: u16) {
        self.counters.aborted += 1;
        self.pending_credits += 1;
        self.release(index);
    }

    /// Frees a slot and all it holds.
    pub(super) fn release(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let buffer = std::mem::replace(&mut slot.buffer, Buffer::empty());
        let table = std::mem::replace(&mut slot.table, Buffer::empty());
        let receive = slot.receive.take();
        self.pool.give_back(buffer);
        self.pool.give_back(table);
        if let Some(number) = receive {
            self.repost(number);
        }
        self.slots.release(index);
    }
}

/// The command as the executor sees it.
fn request<'a>(command: &Command<'a>, slot: &Slot) -> Request<'a> {
    Request {
        tag: command.tag,
        lun: command.lun,
        cdb: command.cdb,
        attribute: command.attribute,
        data_out: slot.data_out,
        data_in: slot.data_in,
    }
}

/// Notes what data a command moves and says where it is.
fn prepare(slot: &mut Slot, plan: Plan, out: Descriptor<'_>, into: Descriptor<'_>) -> Data {
    (slot.direction, slot.needed) = match plan {
        Plan::Out(needed) => (Direction::Out, needed),
        Plan::In(needed) => (Direction::In, needed),
        // What the initiator offered in vain is a residual.
        Plan::NoData | Plan::Answer(_) if slot.data_out > 0 => (Direction::Out, 0),
        Plan::NoData | Plan::Answer(_) if slot.data_in > 0 => (Direction::In, 0),
        Plan::NoData | Plan::Answer(_) => (Direction::None, 0),
    };
    slot.moving = slot.needed.min(slot.offered());
    let descriptor = match slot.direction {
        Direction::Out => out,
        Direction::In => into,
        Direction::None => Descriptor::None,
    };
    match descriptor {
        _ if slot.moving == 0 => Data::Nowhere,
        Descriptor::None => Data::Nowhere,
        Descriptor::Immediate { .. } => Data::Received,
        Descriptor::Remote { list, .. } => Data::Remote(list.length),
        Descriptor::Direct(_) | Descriptor::Indirect(_) => Data::Remote(0),
    }
}
