//! The commands and task management requests that are under way, in as many
//! slots as the initiator has credits.

use super::state::CommandState;
use crate::executor::{Outcome, status};
use crate::memory::Buffer;
use crate::wire::request::TaskManagement;
use crate::wire::response::{Direction, TaskResponse};
use crate::wire::{Lun, Tag};

/// What a slot waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// To be used.
    #[default]
    Free,
    /// Memory for its data.
    Memory,
    /// The list of the pieces of the initiator's memory.
    Table,
    /// Its data from the initiator.
    Fetch,
    /// The executor.
    Execute,
    /// Its data on the way to the initiator, and room to post the response.
    Return,
    /// The end of commands that it aborted.
    Deferred,
    /// The completion of its response.
    Sent,
}

/// What the response is to say.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// How a command ended.
    Command(Outcome),
    /// How a task management request ended.
    Task(TaskResponse),
}

/// How much of the data was posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Current piece of the initiator's memory.
    pub piece: usize,
    /// Bytes of that piece.
    pub within: u32,
    /// Bytes in all.
    pub moved: u32,
}

/// A command or task management request.
#[derive(Debug)]
pub struct Slot {
    /// State by the protocol.
    pub state: CommandState,
    /// What it waits for.
    pub step: Step,
    /// Requests of it are posted and not completed, besides the response.
    pub in_flight: bool,
    /// Aborted: no response is to be sent.
    pub aborted: bool,
    /// Order of arrival.
    pub sequence: u64,
    /// Names it.
    pub tag: Tag,
    /// Logical unit.
    pub lun: Lun,
    /// The receive that holds the information unit.
    pub receive: Option<u16>,
    /// Which way its data goes.
    pub direction: Direction,
    /// Bytes that the initiator has ready.
    pub data_out: u32,
    /// Bytes for which the initiator has room.
    pub data_in: u32,
    /// Bytes that the command would use.
    pub needed: u32,
    /// Bytes of the list of pieces that has to be fetched first.
    pub list: u32,
    /// Bytes to be moved by RDMA.
    pub moving: u32,
    /// How much of them was posted.
    pub cursor: Cursor,
    /// The data, unless the executor has it.
    pub buffer: Buffer,
    /// The list of the pieces of the initiator's memory, if it had to be
    /// fetched.
    pub table: Buffer,
    /// The task management request, if it is one.
    pub task: Option<TaskManagement>,
    /// What to answer.
    pub answer: Answer,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: CommandState::New,
            step: Step::Free,
            in_flight: false,
            aborted: false,
            sequence: 0,
            tag: Tag::default(),
            lun: Lun::default(),
            receive: None,
            direction: Direction::None,
            data_out: 0,
            data_in: 0,
            needed: 0,
            list: 0,
            moving: 0,
            cursor: Cursor::default(),
            buffer: Buffer::empty(),
            table: Buffer::empty(),
            task: None,
            answer: Answer::Command(Outcome::status(status::BUSY)),
        }
    }
}

impl Slot {
    /// Bytes that the initiator has ready or room for, in the direction of
    /// the command.
    pub fn offered(&self) -> u32 {
        match self.direction {
            Direction::None => 0,
            Direction::Out => self.data_out,
            Direction::In => self.data_in,
        }
    }

    /// Whether it is a command without a posted response.
    pub fn is_open_command(&self) -> bool {
        self.task.is_none() && !matches!(self.step, Step::Free | Step::Sent)
    }
}

/// All slots.
#[derive(Debug)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    sequence: u64,
}

impl Slots {
    /// `count` free slots.
    pub fn new(count: u16) -> Self {
        Self {
            slots: (0..count).map(|_| Slot::default()).collect(),
            free: (0..count).rev().collect(),
            sequence: 0,
        }
    }

    /// Number of slots.
    pub fn count(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Number of slots in use.
    pub fn in_use(&self) -> u16 {
        (self.slots.len() - self.free.len()) as u16
    }

    /// Takes a free slot and clears it. `None` if there is none.
    pub fn take(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        self.sequence += 1;
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            *slot = Slot {
                sequence: self.sequence,
                step: Step::Memory,
                ..Slot::default()
            };
        }
        Some(index)
    }

    /// Gives a slot back, whose buffers and receive were taken out.
    pub fn release(&mut self, index: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(index))
            && slot.step != Step::Free
        {
            slot.step = Step::Free;
            slot.state.set(CommandState::Done);
            self.free.push(index);
        }
    }

    /// The slot `index`.
    pub fn get(&self, index: u16) -> Option<&Slot> {
        self.slots.get(usize::from(index))
    }

    /// The slot `index`, if it is in use.
    pub fn get_mut(&mut self, index: u16) -> Option<&mut Slot> {
        self.slots
            .get_mut(usize::from(index))
            .filter(|slot| slot.step != Step::Free)
    }

    /// The slots in use with their indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Slot)> {
        (0u16..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.step != Step::Free)
    }
}
