//! RDMA reads and writes, and the responses behind them.
//!
//! A transfer chains as many requests as the send queue has room for, in the
//! order of the data; the chain is posted at the end of a batch or when it is
//! long. What does not fit follows when the first requests are
//! completed; who finds no room at all waits in line.

use super::link::{Link, Operation, SendRequest, Work};
use super::slots::{Answer, Slot, Step};
use super::state::{ChannelState, CommandState};
use super::{Channel, MAX_CHAIN, MAX_WAITING};
use crate::memory::Buffer;
use crate::wire::command::{Command, Immediate};
use crate::wire::descriptor::{Descriptor, Segment, Table};
use crate::wire::response::{self, Direction, Residual};

/// Most bytes of one request: below what every device can do.
const MAX_MESSAGE: u32 = 1 << 20;

impl<L: Link> Channel<L> {
    /// Chains the next requests of a command, or lines it up for that.
    pub(super) fn transfer(&mut self, index: u16) {
        if self.room == 0 || !self.room_queue.is_empty() {
            self.room_queue.push_back(index);
        } else {
            self.chain_transfer(index);
        }
    }

    /// Serves those who wait, as long as there is room and memory.
    pub(super) fn serve_queues(&mut self) {
        while self.room > 0
            && let Some(index) = self.room_queue.pop_front()
        {
            self.chain_transfer(index);
        }
        while let Some(index) = self.memory_queue.front().copied()
            && self.take_memory(index)
        {
            self.memory_queue.pop_front();
        }
    }

    /// Requests of a command that were posted before its response are done.
    pub(super) fn transferred(&mut self, index: u16, failure: Option<u32>) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.in_flight = false;
        if slot.aborted || failure.is_some() {
            // Without its data a command is never executed.
            self.drop_command(index);
            if let Some(status) = failure {
                self.broken(status);
            }
            return;
        }
        let finished = slot.cursor.moved >= slot.moving;
        match slot.step {
            Step::Table => self.check_table(index),
            Step::Fetch if finished => {
                let buffer = std::mem::replace(&mut slot.buffer, Buffer::empty());
                self.execute(index, buffer);
            }
            _ => self.transfer(index),
        }
    }

    /// Judges a list of pieces that was fetched.
    fn check_table(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        match Table::new(&slot.table, slot.offered()).err() {
            None => self.move_data(index),
            Some(error) => self.malformed(index, error),
        }
    }

    fn chain_transfer(&mut self, index: u16) {
        if self.state >= ChannelState::Draining {
            return;
        }
        let before = self.chain.len();
        let limit = before + usize::from(self.room).min(MAX_CHAIN);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let unit = self.rings.unit(slot.receive.unwrap_or(u16::MAX));
        match slot.step {
            Step::Table => {
                if let Some(list) = remote_list(unit, slot, self.immediate) {
                    self.chain.push(SendRequest {
                        work: Work::Transfer(index, 1),
                        operation: Operation::Read(list),
                        address: slot.table.address(),
                        length: slot.table.len() as u32,
                        signaled: true,
                    });
                }
            }
            _ => fill(&mut self.chain, limit, unit, slot, self.immediate),
        }
        let complete = slot.step == Step::Return && slot.cursor.moved >= slot.moving;
        if complete && self.chain.len() < limit {
            self.push_response(index);
        } else {
            slot.in_flight = true;
        }
        let added = self.chain.get_mut(before..).unwrap_or_default();
        let count = added.len() as u16;
        self.chained += added.iter().map(|request| request.length).sum::<u32>();
        if let Some(last) = added.last_mut() {
            last.signaled = true;
            last.work = match last.work {
                Work::Response(slot, _) => Work::Response(slot, count),
                _ => Work::Transfer(index, count),
            };
        }
        self.room = self.room.saturating_sub(count);
        if self.chain.len() >= MAX_CHAIN || self.chained >= MAX_WAITING {
            self.flush_sends();
        }
    }

    /// Builds the response of a slot and adds it to the chain. The initiator
    /// gets back the credit of this and of all that ended silently.
    fn push_response(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let credits = 1 + std::mem::take(&mut self.pending_credits);
        let bytes = self.rings.response(index);
        let length = match slot.answer {
            Answer::Command(outcome) => {
                slot.state.set(CommandState::ResponseSent);
                let residual = Residual::new(
                    slot.direction,
                    slot.offered(),
                    slot.needed,
                    outcome.transferred,
                );
                response::command_response(
                    bytes,
                    slot.tag,
                    credits,
                    outcome.status,
                    residual,
                    outcome.sense,
                )
            }
            Answer::Task(answer) => {
                slot.state.set(CommandState::ManagementResponseSent);
                response::task_response(bytes, slot.tag, credits, answer)
            }
        };
        let address = bytes.as_ptr() as u64;
        slot.step = Step::Sent;
        let receive = slot.receive.take();
        self.chain.push(SendRequest {
            work: Work::Response(index, 0),
            operation: Operation::Send,
            address,
            length: length as u32,
            signaled: true,
        });
        self.counters.responses += 1;
        if let Some(number) = receive {
            self.repost(number);
        }
    }
}

/// The list of pieces that a command has in the initiator's memory.
fn remote_list(unit: &[u8], slot: &Slot, immediate: Immediate) -> Option<Segment> {
    match descriptor(unit, slot, immediate) {
        Descriptor::Remote { list, .. } => Some(list),
        _ => None,
    }
}

fn descriptor<'a>(unit: &'a [u8], slot: &Slot, immediate: Immediate) -> Descriptor<'a> {
    let data = Command::parse(unit).and_then(|command| command.data(immediate).ok());
    match (data, slot.direction) {
        (Some(data), Direction::Out) => data.out,
        (Some(data), Direction::In) => data.into,
        _ => Descriptor::None,
    }
}

/// Adds requests for what is left of the data to the chain, up to `limit`, and
/// moves the cursor over them.
fn fill(
    chain: &mut Vec<SendRequest>,
    limit: usize,
    unit: &[u8],
    slot: &mut Slot,
    immediate: Immediate,
) {
    if slot.cursor.moved >= slot.moving {
        return;
    }
    match descriptor(unit, slot, immediate) {
        Descriptor::Direct(piece) => add(chain, limit, slot, std::iter::once(piece)),
        Descriptor::Indirect(table) => add(chain, limit, slot, table.segments()),
        Descriptor::Remote { total, .. } => {
            let list = std::mem::replace(&mut slot.table, Buffer::empty());
            if let Ok(table) = Table::new(&list, total) {
                add(chain, limit, slot, table.segments());
            }
            slot.table = list;
        }
        Descriptor::None | Descriptor::Immediate { .. } => {}
    }
}

fn add(
    chain: &mut Vec<SendRequest>,
    limit: usize,
    slot: &mut Slot,
    pieces: impl Iterator<Item = Segment>,
) {
    let base = slot.buffer.address();
    let cursor = &mut slot.cursor;
    for piece in pieces.skip(cursor.piece) {
        while cursor.within < piece.length {
            if chain.len() >= limit || cursor.moved >= slot.moving {
                return;
            }
            let length = (piece.length - cursor.within)
                .min(slot.moving - cursor.moved)
                .min(MAX_MESSAGE);
            let remote = Segment {
                address: piece.address.wrapping_add(cursor.within.into()),
                key: piece.key,
                length,
            };
            chain.push(SendRequest {
                work: Work::Part,
                operation: match slot.direction {
                    Direction::In => Operation::Write(remote),
                    _ => Operation::Read(remote),
                },
                address: base + u64::from(cursor.moved),
                length,
                signaled: false,
            });
            cursor.within += length;
            cursor.moved += length;
        }
        cursor.within = 0;
        cursor.piece += 1;
    }
}
