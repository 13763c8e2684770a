//! A channel: one connection of an initiator, from the login to the last
//! completion. It knows SRP, credits and data transfers; it neither knows what
//! commands mean ([`crate::executor`]) nor waits for anything: whoever drives
//! it tells it what happened and calls [`Channel::settle`] after each batch.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`state`] | states and which may follow which |
//! | [`link`] | what is wanted of the queue pair |
//! | [`rings`] | receive and response buffers |
//! | [`slots`] | commands under way |
//! | `command` | a command from arrival to response |
//! | `transfer` | RDMA reads and writes, responses |
//! | `task` | task management |
//! | `manual` | steps for those who drive a channel step by step |
//! | `closing` | the end of a channel |
//!
//! A channel belongs to one thread. After construction no command allocates
//! memory or takes a lock.

mod closing;
mod command;
pub mod link;
mod manual;
pub mod rings;
pub mod slots;
pub mod state;
mod task;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;

use rdmacm::Result;

use crate::executor::{Completed, Executor};
use crate::memory::Pool;
use crate::session::{Peers, Ticket};
use crate::wire::command::Immediate;
use crate::wire::request::{self, Incoming};
use crate::wire::{Lun, Tag};
use closing::Leaving;
use link::{Completion, Link, Operation, ReceiveRequest, SendRequest, Work};
use rings::Rings;
use slots::Slots;
use state::ChannelState;

/// Send requests that are left for the target's own request and for the write
/// that shows the end. Its logout takes the place of commands, of which there are
/// none then.
const RESERVED: u16 = 2;
/// Most requests of one command that are posted at once.
const MAX_CHAIN: usize = 64;
/// Bytes of data that wait to be posted together with more: enough for many small
/// commands, so little that large ones do not wait for one another.
const MAX_WAITING: u32 = 64 << 10;

/// What was agreed on with the initiator and the device.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Immediate data.
    pub immediate: Immediate,
    /// Requests that the send queue holds.
    pub send_queue: u16,
}

/// Counts what a channel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that arrived.
    pub commands: u64,
    /// Responses that were sent, for task management too.
    pub responses: u64,
    /// Commands that were aborted without a response.
    pub aborted: u64,
    /// Commands whose data did not come by RDMA.
    pub immediate: u64,
    /// Commands whose list of pieces had to be fetched.
    pub fetched_tables: u64,
    /// Commands with an unusable descriptor.
    pub malformed: u64,
}

/// A channel over the queue pair `L`.
pub struct Channel<L: Link> {
    link: L,
    executor: Box<dyn Executor>,
    rings: Rings,
    pool: Pool,
    slots: Slots,
    state: ChannelState,
    immediate: Immediate,
    /// Other channels of the session.
    peers: Box<dyn Peers>,
    /// Send requests that may still be posted.
    room: u16,
    /// Received information units that cannot be handled yet.
    early: VecDeque<u16>,
    /// Slots that wait for memory.
    memory_queue: VecDeque<u16>,
    /// Slots that wait for room in the send queue.
    room_queue: VecDeque<u16>,
    /// Receives to be posted again.
    reposts: Vec<ReceiveRequest>,
    /// The requests that are put together, of all commands of a batch: posting
    /// costs a system call with many devices.
    chain: Vec<SendRequest>,
    /// Bytes of data in the chain.
    chained: u32,
    /// Commands that the executor gave back.
    done: Vec<Completed>,
    /// Commands that the executor has.
    executing: u16,
    /// Commands were started since the executor was last polled.
    unpolled: bool,
    /// Credits of commands that ended without a response.
    pending_credits: u32,
    /// The tag of the target's own request that is not answered.
    own_request: Option<Tag>,
    own_requests: u64,
    /// Task management requests that wait for commands.
    deferred: u16,
    /// Resets that another channel of the session waits for.
    tickets: Vec<(Lun, Ticket)>,
    /// No replaced channel has commands left.
    may_begin: bool,
    /// How far the target's own logout has come.
    leaving: Leaving,
    /// The last write came back.
    drained: bool,
    counters: Counters,
}

impl<L: Link> Channel<L> {
    /// A channel that is being connected. The executor is told where the
    /// memory is.
    pub fn new(
        link: L,
        mut executor: Box<dyn Executor>,
        (rings, pool): (Rings, Pool),
        credits: u16,
        agreement: Agreement,
        peers: Box<dyn Peers>,
    ) -> Self {
        executor.attach(pool.area().base(), pool.area().length());
        let receives = usize::from(rings.receives());
        let slots = usize::from(credits);
        Self {
            link,
            executor,
            rings,
            pool,
            slots: Slots::new(credits),
            state: ChannelState::Connecting,
            immediate: agreement.immediate,
            peers,
            room: agreement.send_queue.saturating_sub(RESERVED),
            early: VecDeque::with_capacity(receives),
            memory_queue: VecDeque::with_capacity(slots),
            room_queue: VecDeque::with_capacity(slots),
            reposts: Vec::with_capacity(receives),
            // A command may be added to what does not fill a chain.
            chain: Vec::with_capacity(2 * MAX_CHAIN),
            chained: 0,
            done: Vec::with_capacity(slots),
            executing: 0,
            unpolled: false,
            pending_credits: 0,
            own_request: None,
            own_requests: 0,
            deferred: 0,
            tickets: Vec::new(),
            may_begin: false,
            leaving: Leaving::No,
            drained: false,
            counters: Counters::default(),
        }
    }

    /// The state.
    pub fn state(&self) -> ChannelState {
        self.state
    }

    /// What the channel did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether information units arrived before the connection is established.
    pub fn has_early(&self) -> bool {
        self.state == ChannelState::Connecting && !self.early.is_empty()
    }

    /// Commands and task management requests under way.
    pub fn in_use(&self) -> u16 {
        self.slots.in_use()
    }

    /// The queue pair.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The queue pair.
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// The executor.
    pub fn executor(&self) -> &dyn Executor {
        &*self.executor
    }

    /// Posts all receives, before the login is accepted.
    ///
    /// # Errors
    /// What libibverbs says.
    pub fn post_receives(&mut self) -> Result<()> {
        for number in 0..self.rings.receives() {
            self.reposts.extend(self.rings.request(number));
        }
        let result = self.link.post_receive(&self.reposts);
        self.reposts.clear();
        result
    }

    /// The connection is established: what arrived early may be handled.
    pub fn established(&mut self) {
        self.state.advance(ChannelState::Live);
    }

    fn is_live(&self) -> bool {
        self.state == ChannelState::Live
    }

    /// A request came back.
    pub fn completed(&mut self, completion: Completion) {
        match (completion.work, completion.result) {
            (Work::Receive(number), Ok(length)) => {
                self.rings.received(number, length);
                self.early.push_back(number);
                self.handle_received();
            }
            (Work::Transfer(slot, count), result) => {
                self.room = self.room.saturating_add(count);
                self.transferred(slot, result.err());
            }
            (Work::Response(slot, count), Ok(_)) => {
                self.room = self.room.saturating_add(count);
                self.release(slot);
            }
            (Work::Request | Work::Part, Ok(_)) => {}
            (Work::Logout, Ok(_)) => {
                self.disconnect();
            }
            (Work::Drain, _) => self.drained = self.state >= ChannelState::Draining,
            (_, Err(status)) => self.broken(status),
        }
    }

    /// A request failed: the queue pair is in error.
    fn broken(&mut self, status: u32) {
        if self.close() {
            log::warn!("channel broken, completion status {status}");
        }
    }

    /// Whether commands may be executed: see [`Peers::may_begin`].
    fn may_begin(&mut self) -> bool {
        if !self.may_begin {
            self.may_begin = self.peers.may_begin();
        }
        self.may_begin
    }

    /// Handles received information units as far as possible.
    fn handle_received(&mut self) {
        while self.is_live()
            && self.leaving == Leaving::No
            && !self.early.is_empty()
            && self.may_begin()
            && let Some(number) = self.early.front().copied()
            && self.handle_unit(number)
        {
            self.early.pop_front();
        }
    }

    /// Handles an information unit. False if it has to wait for a slot.
    fn handle_unit(&mut self, number: u16) -> bool {
        match Incoming::parse(self.rings.unit(number)) {
            Incoming::Command(_) => match self.slots.take() {
                Some(slot) => self.begin_command(slot, number),
                None => return false,
            },
            Incoming::TaskManagement(task) => match self.slots.take() {
                Some(slot) => {
                    self.repost(number);
                    self.begin_task(slot, task);
                }
                None => return false,
            },
            Incoming::Logout => {
                log::info!("initiator logs out");
                self.repost(number);
                self.disconnect();
            }
            Incoming::Answered(tag) => {
                if self.own_request == Some(tag) {
                    self.own_request = None;
                }
                self.repost(number);
            }
            Incoming::Unknown(opcode) => {
                log::warn!("unusable information unit, operation code {opcode:?}");
                self.give_up(number);
            }
        }
        true
    }

    /// Posts a receive again whose information unit is not answered. The
    /// credit that it took, if any, is given back later.
    fn give_up(&mut self, number: u16) {
        if request::takes_credit(self.rings.unit(number)) {
            self.pending_credits += 1;
        }
        self.repost(number);
    }

    /// Remembers to post a receive again.
    fn repost(&mut self, number: u16) {
        self.reposts.extend(self.rings.request(number));
    }

    /// Posts the receives that are free.
    fn flush_receives(&mut self) {
        if self.reposts.is_empty() {
            return;
        }
        let result = self.link.post_receive(&self.reposts);
        self.reposts.clear();
        if let Err(error) = result {
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &rdmacm::Error) {
        if self.close() {
            log::warn!("channel broken: {error}");
        }
    }

    /// Does what has become possible: to be called after each batch of
    /// completions, when the executor's descriptor is readable, and after
    /// [`Channel::established`].
    pub fn settle(&mut self) {
        loop {
            self.handle_received();
            self.serve_queues();
            // What was started is submitted in there, and what is finished
            // may make place for more.
            let progress = self.poll_executor();
            if !progress && !self.unpolled {
                break;
            }
        }
        self.finish_deferred();
        self.return_credits();
        self.say_goodbye();
        self.flush_sends();
        self.flush_receives();
        self.finish_closing();
    }

    /// Takes back what the executor has finished. Returns whether there was
    /// something.
    fn poll_executor(&mut self) -> bool {
        self.unpolled = false;
        let done = &mut self.done;
        self.executor.poll(&mut |completed| done.push(completed));
        let progress = !self.done.is_empty();
        while let Some(completed) = self.done.pop() {
            self.executed(completed);
        }
        progress
    }

    /// Gives credits back that no response will carry.
    fn return_credits(&mut self) {
        let due = self.is_live()
            && self.leaving == Leaving::No
            && self.pending_credits > 0
            && self.slots.in_use() == 0
            && self.own_request.is_none();
        if !due {
            return;
        }
        let credits = self.pending_credits;
        let tag = self.chain_own(Work::Request, self.slots.count(), |bytes, tag| {
            request::credit_request(bytes, tag, credits)
        });
        self.own_request = Some(tag);
        self.pending_credits = 0;
    }

    /// Chains a request of the target's own, which `build` puts into a response
    /// buffer and tells the length of. Returns its tag.
    fn chain_own(
        &mut self,
        work: Work,
        buffer: u16,
        build: impl FnOnce(&mut [u8], Tag) -> usize,
    ) -> Tag {
        self.own_requests += 1;
        let tag = Tag(self.own_requests.to_be_bytes());
        let bytes = self.rings.response(buffer);
        let length = build(bytes, tag);
        let address = bytes.as_ptr() as u64;
        self.chain.push(SendRequest {
            work,
            operation: Operation::Send,
            address,
            length: length as u32,
            signaled: true,
        });
        tag
    }

    /// Posts the chain that was put together, receives first: a response must
    /// not give a credit before there is a receive for it.
    fn flush_sends(&mut self) {
        if self.chain.is_empty() {
            return;
        }
        self.flush_receives();
        let posted = if self.state < ChannelState::Draining {
            self.link.post_send(&self.chain)
        } else {
            Ok(())
        };
        // Before a failure is dealt with, which may come back here.
        self.chain.clear();
        self.chained = 0;
        if let Err(error) = posted {
            self.failed(&error);
        }
    }
}
