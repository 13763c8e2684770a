//! Task management: aborting commands and answering when they are gone.

use super::Channel;
use super::link::Link;
use super::slots::{Answer, Slot, Step};
use super::state::CommandState;
use crate::executor::Token;
use crate::session::Ticket;
use crate::wire::Lun;
use crate::wire::request::{TaskFunction, TaskManagement};
use crate::wire::response::TaskResponse;

impl<L: Link> Channel<L> {
    /// Begins a task management request.
    pub(super) fn begin_task(&mut self, index: u16, task: TaskManagement) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.state.set(CommandState::Management);
            slot.tag = task.tag;
            slot.lun = task.lun;
            slot.task = Some(task);
            slot.step = Step::Deferred;
        }
        log::info!("task management: {:?} on LUN {}", task.function, task.lun);
        match task.function {
            TaskFunction::AbortTask | TaskFunction::AbortTaskSet | TaskFunction::ClearTaskSet => {
                self.abort_where(|slot| concerns(&task, slot))
            }
            TaskFunction::LunReset => {
                self.abort_where(|slot| concerns(&task, slot));
                self.executor.reset(task.lun);
                self.peers.reset(task.lun);
            }
            TaskFunction::ClearAca | TaskFunction::Other(_) => {
                self.answer_task(index, TaskResponse::NotSupported);
                return;
            }
        }
        self.deferred += 1;
    }

    /// Another channel of the session resets a logical unit: aborts this
    /// channel's commands on it, and drops the ticket when they are gone.
    pub fn reset(&mut self, lun: Lun, ticket: Ticket) {
        self.abort_where(|slot| slot.lun == lun);
        self.executor.reset(lun);
        self.tickets.push((lun, ticket));
    }

    /// Aborts the open commands that `concerned` names.
    pub(super) fn abort_where(&mut self, concerned: impl Fn(&Slot) -> bool) {
        for index in 0..self.slots.count() {
            let concerned = self
                .slots
                .get_mut(index)
                .is_some_and(|slot| slot.is_open_command() && !slot.aborted && concerned(slot));
            if concerned {
                self.abort(index);
            }
        }
    }

    fn abort(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.aborted = true;
        match slot.step {
            Step::Execute => self.executor.abort(Token(index)),
            // The device may still move its data.
            _ if slot.in_flight => {}
            _ => {
                self.memory_queue.retain(|other| *other != index);
                self.room_queue.retain(|other| *other != index);
                self.drop_command(index);
            }
        }
    }

    /// Answers the task management requests whose commands are gone.
    pub(super) fn finish_deferred(&mut self) {
        if !self.tickets.is_empty() {
            let slots = &self.slots;
            self.tickets.retain(|(lun, _)| {
                slots
                    .iter()
                    .any(|(_, slot)| slot.aborted && slot.lun == *lun)
            });
        }
        if self.deferred == 0 || !self.is_live() {
            return;
        }
        for index in 0..self.slots.count() {
            let Some(task) = self.deferred_task(index) else {
                continue;
            };
            let reset = task.function == TaskFunction::LunReset;
            let waits = self
                .slots
                .iter()
                .any(|(_, slot)| slot.aborted && concerns(&task, slot));
            let waits = waits || (reset && self.peers.resetting());
            if !waits {
                self.deferred -= 1;
                self.answer_task(index, TaskResponse::Complete);
            }
        }
    }

    fn deferred_task(&self, index: u16) -> Option<TaskManagement> {
        let slot = self.slots.get(index)?;
        slot.task.filter(|_| slot.step == Step::Deferred)
    }

    fn answer_task(&mut self, index: u16, response: TaskResponse) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.answer = Answer::Task(response);
            slot.step = Step::Return;
            self.transfer(index);
        }
    }
}

/// Whether a task management request is about the command in `slot`.
fn concerns(task: &TaskManagement, slot: &Slot) -> bool {
    match task.function {
        TaskFunction::AbortTask => slot.tag == task.task,
        _ => slot.lun == task.lun,
    }
}
