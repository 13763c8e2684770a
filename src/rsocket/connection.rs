//! An established stream connection: data and control messages between the
//! program's buffers, the rings and the queue pair.
//!
//! All state is behind one lock that is never held while sleeping. Calls here
//! do what can be done at once; [`super::stream`] waits and calls again.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::lock::locked;
use crate::verbs::bindings::{
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, ibv_wc,
};

use super::completion::BATCH;
use super::endpoint::{Endpoint, RECEIVE, Write};
use super::flow::{Cost, Inbox, Outbox, Segment, Violation};
use super::mapping::{Announcement, Mappings, Range, locate};
use super::memory::{Access, Registration};
use super::pace::Pace;
use super::vectors::Cursor;
use super::wait::{Notifier, Waiters};
use super::wire::{BIG_ENDIAN, ConnData, MAPPING_LEN, Message, TARGET_LEN, Target};

/// Bytes of the first segment of a call; each is twice as long as the one
/// before, so that copying and sending overlap.
const FIRST_SEGMENT: usize = 1 << 14;
/// Bytes of the longest segment.
const LONGEST_SEGMENT: usize = 1 << 16;

/// Bytes of the longest send that is gathered with others into one message.
const LONGEST_GATHERED: usize = 1024;
/// Bytes of the longest message that is gathered.
const LONGEST_DRAFT: usize = 1 << 13;

/// Whether the peer can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// Ended in order.
    Down,
    /// Broken; the errno is reported once.
    Broken {
        errno: i32,
        reported: bool,
    },
}

/// What has become possible; for polling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A receive would not wait.
    pub readable: bool,
    /// A send would not wait.
    pub writable: bool,
    /// The peer will not send any more.
    pub end_of_stream: bool,
    /// The connection has ended.
    pub hung_up: bool,
    /// The connection is broken.
    pub broken: bool,
}

/// Which directions to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// No more receiving.
    Read,
    /// No more sending.
    Write,
    /// Neither.
    Both,
}

/// The changing part of a connection.
#[derive(Debug)]
struct Core {
    inbox: Inbox,
    outbox: Outbox,
    link: Link,
    /// The program may receive, and the peer may still send.
    readable: bool,
    /// The program may send.
    writable: bool,
    /// A control message that waits for a slot.
    pending: Option<Message>,
    /// A notification was asked for and has not been taken yet.
    armed: bool,
    /// Something changed that others may wait for.
    changed: bool,
    mappings: Mappings,
    pace: Pace,
    /// Somebody was asked to post what was gathered.
    flush_asked: bool,
    controls: usize,
    consumed_receives: usize,
    /// Data has come or gone since the last look of the keep-alive timer.
    active: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    endpoint: Endpoint,
    peer: ConnData,
    swapped: bool,
    core: Mutex<Core>,
    waiters: Arc<Waiters>,
}

/// What the identifier of a work request says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Receive,
    Data(Cost),
    Control(Cost),
    Disconnect(Cost),
}

impl Work {
    fn encode(self) -> u64 {
        let (kind, cost) = match self {
            Self::Receive => return RECEIVE,
            Self::Data(cost) => (0u64, cost),
            Self::Control(cost) => (1, cost),
            Self::Disconnect(cost) => (2, cost),
        };
        kind << 48 | u64::from(cost.slots) << 32 | u64::from(cost.bytes)
    }

    fn decode(id: u64) -> Self {
        if id == RECEIVE {
            return Self::Receive;
        }
        let cost = Cost {
            slots: (id >> 32 & 0xFFFF) as u16,
            bytes: (id & 0xFFFF_FFFF) as u32,
        };
        match id >> 48 {
            0 => Self::Data(cost),
            1 => Self::Control(cost),
            _ => Self::Disconnect(cost),
        }
    }
}

/// Bytes of the segment after one of `last` bytes, 0 for the first.
fn next_segment(last: usize) -> usize {
    last.saturating_mul(2).clamp(FIRST_SEGMENT, LONGEST_SEGMENT)
}

fn retry() -> Error {
    Error::new(libc::EAGAIN, "wait for the peer")
}

impl Connection {
    /// The connection of an endpoint whose peer said `peer`, established.
    pub fn new(endpoint: Endpoint, peer: ConnData, waiters: Arc<Waiters>) -> Self {
        let inbox = Inbox::new(
            endpoint.receive_length(),
            endpoint.receive_queue(),
            peer.target_list.length,
        );
        let outbox = Outbox::new(endpoint.send_length(), endpoint.send_queue(), &peer);
        let connection = Self {
            endpoint,
            peer,
            swapped: peer.big_endian != BIG_ENDIAN,
            core: Mutex::new(Core {
                inbox,
                outbox,
                link: Link::Up,
                readable: true,
                writable: true,
                pending: None,
                armed: false,
                changed: false,
                mappings: Mappings::default(),
                pace: Pace::default(),
                flush_asked: false,
                controls: 0,
                consumed_receives: 0,
                active: false,
            }),
            waiters,
        };
        connection.with_core(|core| connection.progress(core));
        connection
    }

    /// Its endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What the peer said when connecting.
    pub fn peer(&self) -> &ConnData {
        &self.peer
    }

    fn with_core<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = locked(&self.core);
        let result = action(&mut core);
        let changed = std::mem::take(&mut core.changed);
        drop(core);
        if changed {
            self.waiters.notify();
        }
        result
    }

    /// Handles what has completed.
    fn progress(&self, core: &mut Core) {
        let mut batch = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        loop {
            let count = match self.endpoint.completions().poll(&mut batch) {
                Ok(count) => count,
                Err(error) => {
                    self.fail(core, &error);
                    break;
                }
            };
            for wc in batch.iter().take(count) {
                // SAFETY: the poll filled the first `count`.
                self.completed(core, unsafe { wc.assume_init_ref() });
            }
            core.changed |= count > 0;
            if count < BATCH {
                break;
            }
        }
        let receives = std::mem::take(&mut core.consumed_receives);
        if receives > 0
            && core.link == Link::Up
            && let Err(error) = self.endpoint.post_receives(receives)
        {
            self.fail(core, &error);
        }
        self.send_controls(core);
    }

    fn completed(&self, core: &mut Core, wc: &ibv_wc) {
        let work = Work::decode(wc.wr_id);
        if wc.status != IBV_WC_SUCCESS {
            // Receives are flushed whenever a queue pair ends.
            if core.link == Link::Up && work != Work::Receive {
                let errno = match wc.status {
                    IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => libc::ETIMEDOUT,
                    IBV_WC_WR_FLUSH_ERR => libc::ECONNRESET,
                    _ => libc::EIO,
                };
                log::info!("{}: send failed, status {}", self.endpoint.id(), wc.status);
                self.fail(core, &Error::new(errno, "send to the peer"));
            }
            return;
        }
        core.active |= matches!(work, Work::Receive | Work::Data(_));
        match work {
            Work::Receive => {
                core.consumed_receives = core.consumed_receives.saturating_add(1);
                if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
                    // SAFETY: the opcode says that there is immediate data.
                    let word = u32::from_be(unsafe { wc.__bindgen_anon_1.imm_data });
                    self.received(core, Message::decode(word), wc.byte_len as usize);
                }
            }
            Work::Data(cost) => core.outbox.complete(cost),
            Work::Control(cost) => core.outbox.complete_control(cost),
            Work::Disconnect(cost) => {
                core.outbox.complete_control(cost);
                self.end(core);
            }
        }
    }

    fn received(&self, core: &mut Core, message: Message, payload: usize) {
        match message {
            Message::Data(length) => {
                if let Err(violation) = core.inbox.deliver(length) {
                    self.violated(core, violation);
                }
            }
            Message::Grant(limit) => {
                let target = (payload == TARGET_LEN)
                    .then(|| self.endpoint.read_target(core.outbox.next_target()));
                core.outbox.grant(limit, target);
            }
            // The entry itself was written to our list of mappings.
            Message::Mapping(_) => core.inbox.count_message(),
            Message::Disconnect => self.end(core),
            Message::Shutdown => {
                core.readable = false;
                if !core.writable {
                    self.end(core);
                }
            }
            Message::Ignored => {}
        }
    }

    fn violated(&self, core: &mut Core, violation: Violation) {
        log::error!(
            "{}: the peer broke the protocol: {violation:?}",
            self.endpoint.id()
        );
        self.fail(core, &Error::new(libc::EPROTO, "receive from the peer"));
    }

    fn end(&self, core: &mut Core) {
        if core.link == Link::Up {
            core.link = Link::Down;
            core.changed = true;
            log::debug!("{}: connection ended", self.endpoint.id());
        }
    }

    fn fail(&self, core: &mut Core, error: &Error) {
        if core.link == Link::Up {
            core.link = Link::Broken {
                errno: error.errno(),
                reported: false,
            };
            core.changed = true;
            log::info!("{}: connection broken: {error}", self.endpoint.id());
        }
    }

    /// Sends the grants that are due and control messages that had to wait.
    fn send_controls(&self, core: &mut Core) {
        while core.link == Link::Up {
            let sent = if let Some(message) = core.pending {
                self.send_control(core, message)
            } else if let Some(grant) = core.inbox.grant_due() {
                self.send_grant(core, &grant)
            } else {
                return;
            };
            if !sent {
                return;
            }
        }
    }

    fn take_control(core: &mut Core, disconnect: bool) -> Option<(u64, usize)> {
        let cost = core.outbox.take_control()?;
        core.controls = core.controls.wrapping_add(1);
        let work = if disconnect {
            Work::Disconnect(cost)
        } else {
            Work::Control(cost)
        };
        Some((work.encode(), core.controls))
    }

    fn send_control(&self, core: &mut Core, message: Message) -> bool {
        let Some((id, _)) = Self::take_control(core, message == Message::Disconnect) else {
            return false;
        };
        core.pending = None;
        let write = Write {
            target: Target::default(),
            message: Some(message),
            id,
            signaled: true,
        };
        if let Err(error) = self.endpoint.post_empty(&write) {
            self.fail(core, &error);
        }
        true
    }

    fn send_grant(&self, core: &mut Core, grant: &super::flow::Grant) -> bool {
        let Some((id, slot)) = Self::take_control(core, false) else {
            return false;
        };
        core.inbox.granted(grant);
        let mut write = Write {
            target: Target::default(),
            message: Some(Message::Grant(grant.limit)),
            id,
            signaled: true,
        };
        let posted = match grant.half {
            None => self.endpoint.post_empty(&write),
            Some(half) => {
                let entry = u64::from(half.entry).wrapping_mul(TARGET_LEN as u64);
                write.target = Target {
                    addr: self.peer.target_list.addr.wrapping_add(entry),
                    key: self.peer.target_list.key,
                    length: TARGET_LEN as u32,
                };
                let target = self.endpoint.receive_target(half.offset, half.length);
                let bytes = target.encode(self.swapped);
                self.endpoint.post_bytes(&write, &bytes, slot)
            }
        };
        if let Err(error) = posted {
            self.fail(core, &error);
        }
        true
    }

    /// Sends as much of `source` as the peer has room for. Small pieces of
    /// many are only gathered; then it returns `true`, once for all that is
    /// gathered, and the caller sees to it that [`Connection::flush`] is
    /// called soon.
    ///
    /// # Errors
    /// `EAGAIN` if it has room for nothing, `EPIPE` after the program shut
    /// down this direction, `ECONNRESET` after the peer ended the connection,
    /// once what broke it.
    pub fn send(&self, source: &mut Cursor<'_>, ramp: &mut usize) -> Result<bool> {
        self.with_core(|core| {
            let before = source.remaining();
            let small = before <= LONGEST_GATHERED;
            // What is added to a message needs nothing of the device.
            if !small || !core.outbox.has_draft() {
                self.progress(core);
            }
            Self::sendable(core)?;
            if small && core.pace.note_send() && core.mappings.next().is_none() {
                self.endpoint.prepare_buffer()?;
                self.gather(core, source);
            } else {
                self.post_draft(core);
                self.announce(core)?;
                self.prepare_for(source)?;
                self.send_segments(core, source, ramp)?;
            }
            if source.remaining() == before {
                return Err(retry());
            }
            let ask = core.outbox.has_draft() && !core.flush_asked;
            core.flush_asked |= ask;
            Ok(ask)
        })
    }

    fn send_segments(
        &self,
        core: &mut Core,
        source: &mut Cursor<'_>,
        ramp: &mut usize,
    ) -> Result<()> {
        while source.remaining() > 0 && core.outbox.can_send() {
            *ramp = next_segment(*ramp);
            self.post_segment(core, source, *ramp, |outbox, wanted, inline| {
                let segment = outbox.take_segment(wanted, inline)?;
                Some((segment, Some(Message::Data(segment.length as u32))))
            });
            Self::sendable(core)?;
        }
        Ok(())
    }

    /// Adds `source` to the message that is gathered, as far as there is room;
    /// messages that are full are posted.
    fn gather(&self, core: &mut Core, source: &mut Cursor<'_>) {
        while source.remaining() > 0 && core.link == Link::Up {
            match core.outbox.gather(source.remaining(), LONGEST_DRAFT) {
                Some((offset, length)) => self.fill(source, offset, length),
                None if core.outbox.has_draft() => {}
                None => return,
            }
            if core.outbox.draft_is_full() {
                self.post_draft(core);
            }
        }
    }

    /// Posts what was gathered, if anything.
    fn post_draft(&self, core: &mut Core) {
        let Some(segment) = core.outbox.take_draft() else {
            return;
        };
        if core.link != Link::Up {
            return;
        }
        let report = core.outbox.report();
        let write = Write {
            target: segment.target,
            message: Some(Message::Data(segment.length as u32)),
            id: Work::Data(report.unwrap_or_default()).encode(),
            signaled: report.is_some(),
        };
        let posted = self
            .endpoint
            .post_buffered(&write, segment.offset, segment.length);
        if let Err(error) = posted {
            self.fail(core, &error);
        }
    }

    /// Posts what was gathered, see [`Connection::send`].
    pub fn flush(&self) {
        self.with_core(|core| {
            core.flush_asked = false;
            self.post_draft(core);
        });
    }

    fn sendable(core: &mut Core) -> Result<()> {
        const STEP: &str = "send";
        if !core.writable {
            return Err(Error::new(libc::EPIPE, STEP));
        }
        match &mut core.link {
            Link::Up => Ok(()),
            Link::Broken { errno, reported } if !*reported => {
                *reported = true;
                Err(Error::new(*errno, STEP))
            }
            Link::Down | Link::Broken { .. } => Err(Error::new(libc::ECONNRESET, STEP)),
        }
    }

    /// Posts up to `most` bytes of `source`. `take` takes the room for them
    /// and says which message they are, if any.
    fn post_segment(
        &self,
        core: &mut Core,
        source: &mut Cursor<'_>,
        most: usize,
        take: impl FnOnce(&mut Outbox, usize, usize) -> Option<(Segment, Option<Message>)>,
    ) {
        let (data, chunk) = source.chunk();
        let wanted = source.remaining().min(most);
        // Inline data is sent from the program's buffer, so from one only.
        let inline = if chunk >= wanted {
            self.endpoint.inline()
        } else {
            0
        };
        let Some((segment, message)) = take(&mut core.outbox, wanted, inline) else {
            return;
        };
        let report = core.outbox.report();
        let write = Write {
            target: segment.target,
            message,
            id: Work::Data(report.unwrap_or_default()).encode(),
            signaled: report.is_some(),
        };
        let posted = if segment.inline {
            // SAFETY: the segment lies in the current chunk, which the
            // program gave to be read.
            let posted = unsafe { self.endpoint.post_inline(&write, data, segment.length) };
            source.advance(segment.length);
            posted
        } else {
            self.fill(source, segment.offset, segment.length);
            self.endpoint
                .post_buffered(&write, segment.offset, segment.length)
        };
        if let Err(error) = posted {
            self.fail(core, &error);
        }
    }

    /// Makes the send buffer if `source` cannot be sent inline.
    fn prepare_for(&self, source: &mut Cursor<'_>) -> Result<()> {
        let (_, chunk) = source.chunk();
        if source.remaining() > chunk.min(self.endpoint.inline()) {
            self.endpoint.prepare_buffer()?;
        }
        Ok(())
    }

    /// Copies `length` bytes of `source` to the send buffer.
    fn fill(&self, source: &mut Cursor<'_>, offset: usize, length: usize) {
        let first = length.min(self.endpoint.send_length().saturating_sub(offset));
        for (offset, length) in [(offset, first), (0, length.saturating_sub(first))] {
            if length > 0
                && let Some(room) = self.endpoint.outgoing(offset, length)
            {
                // SAFETY: room for `length` bytes that no work request uses;
                // the program's memory does not lie in the send buffer.
                unsafe { source.read(room, length) };
            }
        }
    }

    /// Tells the peer of mappings that were made or withdrawn.
    fn announce(&self, core: &mut Core) -> Result<()> {
        while let Some(Announcement { index, mapping }) = core.mappings.next() {
            // The original does not return credits for these messages, so
            // only a peer that says it does is charged.
            let charged = self.peer.counts_mappings;
            if !core.outbox.can_post() || charged && !core.outbox.has_credit() {
                return Err(retry());
            }
            let target = Target {
                addr: self.peer.mapping_address(index),
                key: self.peer.target_list.key,
                length: MAPPING_LEN as u32,
            };
            let mut bytes = mapping.encode(self.swapped);
            let vector = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: MAPPING_LEN,
            };
            let vectors = [vector];
            // SAFETY: the bytes live until the end of this round.
            let mut source = unsafe { Cursor::new(&vectors) };
            self.post_segment(core, &mut source, MAPPING_LEN, |outbox, wanted, inline| {
                let segment = outbox.take_space(wanted, inline, target)?;
                if charged {
                    outbox.charge_message();
                }
                Some((segment, Some(Message::Mapping(index))))
            });
            core.mappings.announced();
            Self::sendable(core)?;
        }
        Ok(())
    }

    /// Registers memory of the program's. With `write`, the peer may write to
    /// it from `offset` on, once it received data that is sent afterwards.
    ///
    /// # Errors
    /// `ENOMEM` if the peer has no room for one more mapping, else what
    /// libibverbs says.
    pub fn map(&self, range: Range, write: bool, offset: u64) -> Result<()> {
        let pd = self.endpoint.id().require_device()?.pd()?;
        self.with_core(|core| {
            let index = if write {
                Some(core.mappings.free_index(self.peer.mappings)?)
            } else {
                None
            };
            let access = if write {
                Access::RemoteWrite
            } else {
                Access::Local
            };
            let length = range.length as usize;
            // SAFETY: the domain lives as long as the device, which the
            // identifier keeps. The program asks for its memory to be
            // written to.
            let registration =
                unsafe { Registration::new(pd, range.addr as *mut u8, length, access) }?;
            core.mappings.add(range, registration, index, offset);
            Ok(())
        })
    }

    /// Withdraws memory that was given to [`Connection::map`].
    ///
    /// # Errors
    /// `EINVAL` if there is no such mapping.
    pub fn unmap(&self, range: Range) -> Result<()> {
        self.with_core(|core| {
            let registration = core.mappings.remove(range)?;
            self.progress(core);
            self.post_draft(core);
            if Self::is_up(core)
                && let Err(error) = self.announce(core)
            {
                log::debug!("{}: {error}", self.endpoint.id());
            }
            drop(registration);
            Ok(())
        })
    }

    fn is_up(core: &Core) -> bool {
        core.link == Link::Up && core.writable
    }

    /// Writes as much of `source` as there is room for to the memory that the
    /// peer exposed at `offset`, which moves on.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `EFAULT` if nothing is exposed there,
    /// else as for [`Connection::send`].
    pub fn write_mapped(
        &self,
        source: &mut Cursor<'_>,
        offset: &mut u64,
        ramp: &mut usize,
    ) -> Result<()> {
        self.with_core(|core| {
            self.progress(core);
            Self::sendable(core)?;
            self.post_draft(core);
            self.announce(core)?;
            if !core.outbox.can_post() {
                return Err(retry());
            }
            self.prepare_for(source)?;
            while source.remaining() > 0 && core.outbox.can_post() {
                let target = (0..self.endpoint.mappings())
                    .find_map(|index| locate(&self.endpoint.read_mapping(index), *offset))
                    .ok_or(Error::new(libc::EFAULT, "write where nothing is mapped"))?;
                *ramp = next_segment(*ramp);
                let most = (*ramp).min(target.length as usize);
                let before = source.remaining();
                self.post_segment(core, source, most, |outbox, wanted, inline| {
                    Some((outbox.take_space(wanted, inline, target)?, None))
                });
                let written = before.saturating_sub(source.remaining());
                *offset = offset.wrapping_add(written as u64);
                Self::sendable(core)?;
            }
            Ok(())
        })
    }

    /// Receives what is there, up to the room in `target`. `peek` leaves it
    /// there for the next receive. Returns how many bytes were received, 0 at
    /// the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing yet, once what broke the connection.
    pub fn receive(&self, target: &mut Cursor<'_>, peek: bool) -> Result<usize> {
        self.with_core(|core| {
            core.pace.note_receive();
            self.post_draft(core);
            if core.inbox.unread() < target.remaining() {
                self.progress(core);
            }
            let mut done = 0usize;
            while target.remaining() > 0 {
                let (offset, length) = core.inbox.span(done, target.remaining());
                if length == 0 {
                    break;
                }
                if let Some(data) = self.endpoint.received(offset, length) {
                    // SAFETY: received bytes in our own buffer, which the
                    // peer may not write to until they are consumed.
                    unsafe { target.write(data, length) };
                }
                done = done.saturating_add(length);
            }
            if done > 0 {
                if !peek {
                    core.inbox.consume(done);
                    self.send_controls(core);
                }
                return Ok(done);
            }
            Self::receivable(core)
        })
    }

    /// Without data: the end of the stream, an error, or not yet.
    fn receivable(core: &mut Core) -> Result<usize> {
        if let Link::Broken { errno, reported } = &mut core.link
            && !*reported
        {
            *reported = true;
            return Err(Error::new(*errno, "receive"));
        }
        if core.link == Link::Up && core.readable {
            return Err(retry());
        }
        Ok(0)
    }

    /// Bytes that can be received now.
    pub fn unread(&self) -> usize {
        self.with_core(|core| {
            self.progress(core);
            core.inbox.unread()
        })
    }

    /// What would not wait. Who is interested in `reading` wants the peer to
    /// know all that was sent.
    pub fn readiness(&self, reading: bool) -> Readiness {
        self.with_core(|core| {
            if reading {
                self.post_draft(core);
            }
            self.progress(core);
            let up = core.link == Link::Up;
            let ended = !core.readable || !up;
            Readiness {
                readable: core.inbox.unread() > 0 || ended,
                writable: !up || !core.writable || core.outbox.can_send(),
                end_of_stream: ended,
                // Programs take it for an error, so not while there is data.
                hung_up: core.link == Link::Down && core.inbox.unread() == 0,
                broken: matches!(core.link, Link::Broken { .. }),
            }
        })
    }

    /// Shuts down one or both directions and tells the peer. Returns whether
    /// that is on its way; otherwise the send queue is full, and it will be
    /// sent when there is room.
    pub fn shutdown(&self, directions: Directions) -> bool {
        self.with_core(|core| {
            self.progress(core);
            self.post_draft(core);
            let was_open = core.readable || core.writable;
            if directions != Directions::Write {
                core.readable = false;
            }
            let stops_sending = directions != Directions::Read && core.writable;
            if directions != Directions::Read {
                core.writable = false;
            }
            core.changed = true;
            if core.link != Link::Up {
                return true;
            }
            if was_open && !core.readable && !core.writable {
                core.pending = Some(Message::Disconnect);
            } else if stops_sending {
                core.pending = Some(Message::Shutdown);
            }
            self.send_controls(core);
            core.pending.is_none() || core.link != Link::Up
        })
    }

    /// Makes the peer's device answer if nothing has happened since the last
    /// call; if it does not, the connection breaks. Returns `false` once there
    /// is no connection any more.
    pub fn keep_alive(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            let idle = !std::mem::take(&mut core.active);
            if core.link == Link::Up
                && idle
                && let Some((id, _)) = Self::take_control(core, false)
            {
                let write = Write {
                    target: Target::default(),
                    message: None,
                    id,
                    signaled: true,
                };
                if let Err(error) = self.endpoint.post_empty(&write) {
                    self.fail(core, &error);
                }
            }
            core.link == Link::Up
        })
    }

    /// What broke the connection, unless it was reported before; 0 if nothing
    /// did.
    pub fn take_error(&self) -> i32 {
        self.with_core(|core| {
            self.progress(core);
            match &mut core.link {
                Link::Broken { errno, reported } if !*reported => {
                    *reported = true;
                    *errno
                }
                _ => 0,
            }
        })
    }

    /// Whether the program may receive and send; `None` without a connection.
    pub fn open_directions(&self) -> Option<(bool, bool)> {
        self.with_core(|core| {
            self.progress(core);
            (core.link == Link::Up).then_some((core.readable, core.writable))
        })
    }

    /// Whether a control message still waits for room in the send queue.
    pub fn has_pending(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.link == Link::Up && core.pending.is_some()
        })
    }

    /// Whether the connection has ended, in order or not.
    pub fn is_over(&self) -> bool {
        self.with_core(|core| {
            self.progress(core);
            core.link != Link::Up
        })
    }

    /// Takes note that the connection manager says the peer is gone. If it
    /// did not say goodbye, the connection is broken.
    pub fn peer_gone(&self) {
        self.with_core(|core| {
            self.progress(core);
            self.fail(core, &Error::new(libc::ECONNRESET, "keep the connection"));
        });
    }
}

impl Notifier for Connection {
    fn notification_fd(&self) -> RawFd {
        self.endpoint.completions().notification_fd()
    }

    fn arm(&self) -> Result<bool> {
        let mut core = locked(&self.core);
        if core.armed {
            return Ok(false);
        }
        self.endpoint.completions().arm()?;
        core.armed = true;
        Ok(true)
    }

    fn take_notification(&self) {
        let mut core = locked(&self.core);
        if self.endpoint.completions().take_notification() {
            // Others count on the next completion to wake them.
            let again = self.waiters.is_shared() && core.link == Link::Up;
            core.armed = again && self.endpoint.completions().arm().is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_survives_its_identifier() {
        let cost = Cost {
            slots: 65535,
            bytes: u32::MAX,
        };
        for work in [
            Work::Receive,
            Work::Data(Cost::default()),
            Work::Data(cost),
            Work::Control(cost),
            Work::Disconnect(cost),
        ] {
            assert_eq!(Work::decode(work.encode()), work);
        }
    }
}
