//! Flow control of a stream connection: what may be sent, what was received,
//! and what is to be granted to the peer.
//!
//! Pure bookkeeping: nothing here touches memory or a queue pair, so that all
//! that a peer can say is checked in one place, and tested without a device.

use std::collections::VecDeque;

use super::wire::{ConnData, Target};

/// Work requests of the send queue that are kept for control messages.
pub const CONTROL_SLOTS: u16 = 4;
/// Free bytes of the send buffer below which no data is sent.
pub const MIN_SEND_SPACE: usize = 2048;

/// The peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More data than it was given room for.
    Overrun,
    /// More messages than it was given credits for.
    Credits,
}

/// Permission for the peer to go on sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Count of messages up to which it may send.
    pub limit: u16,
    /// A half of the receive buffer that it may fill.
    pub half: Option<Half>,
}

/// A half of the receive buffer, and the entry of the peer's target list that
/// tells it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// Where it begins.
    pub offset: usize,
    /// Its bytes.
    pub length: usize,
    /// Index in the peer's target list.
    pub entry: u32,
}

/// The receiving side.
#[derive(Debug)]
pub struct Inbox {
    capacity: usize,
    messages: VecDeque<u32>,
    unread: usize,
    position: usize,
    free: usize,
    free_offset: usize,
    consumed: u16,
    mark: u16,
    queue: u16,
    peer_entries: u32,
    peer_entry: u32,
}

impl Inbox {
    /// A receive buffer of `capacity` bytes, of which the peer was told the
    /// first half, for a peer that was told `queue` credits and has
    /// `peer_entries` entries in its target list.
    pub fn new(capacity: usize, queue: u16, peer_entries: u32) -> Self {
        Self {
            capacity,
            messages: VecDeque::with_capacity(usize::from(queue)),
            unread: 0,
            position: 0,
            free: capacity / 2,
            free_offset: capacity / 2,
            consumed: 0,
            mark: queue / 2,
            queue,
            peer_entries: peer_entries.max(1),
            peer_entry: 1 % peer_entries.max(1),
        }
    }

    /// Takes a data message of `length` bytes.
    ///
    /// # Errors
    /// [`Violation`] if the peer was not entitled to send it.
    pub fn deliver(&mut self, length: u32) -> Result<(), Violation> {
        let bytes = length as usize;
        let room = self
            .capacity
            .saturating_sub(self.free)
            .saturating_sub(self.unread);
        if bytes > room {
            return Err(Violation::Overrun);
        }
        if self.messages.len() >= usize::from(self.queue) {
            return Err(Violation::Credits);
        }
        if bytes == 0 {
            self.consumed = self.consumed.wrapping_add(1);
        } else {
            self.messages.push_back(length);
            self.unread = self.unread.saturating_add(bytes);
        }
        Ok(())
    }

    /// Counts a message that takes no room.
    pub fn count_message(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
    }

    /// Bytes that can be read.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Where the bytes from the `skip`th unread one on lie, up to `limit` of
    /// them and up to the end of the buffer: offset and length, which is 0 if
    /// there are none.
    pub fn span(&self, skip: usize, limit: usize) -> (usize, usize) {
        let mut start = self.position.saturating_add(skip);
        if start >= self.capacity {
            start = start.saturating_sub(self.capacity);
        }
        let length = self
            .unread
            .saturating_sub(skip)
            .min(limit)
            .min(self.capacity.saturating_sub(start));
        (start, length)
    }

    /// Gives up the first `bytes` unread bytes.
    pub fn consume(&mut self, bytes: usize) {
        let mut left = bytes.min(self.unread);
        self.unread = self.unread.saturating_sub(left);
        self.free = self.free.saturating_add(left);
        self.position = self.position.saturating_add(left);
        if self.position >= self.capacity {
            self.position = self.position.saturating_sub(self.capacity);
        }
        while left > 0 {
            let Some(first) = self.messages.front_mut() else {
                break;
            };
            let length = *first as usize;
            if left < length {
                *first = (length.saturating_sub(left)) as u32;
                break;
            }
            left = left.saturating_sub(length);
            self.messages.pop_front();
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// The grant that is due, if any. [`Inbox::granted`] is to be called once
    /// it was sent.
    pub fn grant_due(&self) -> Option<Grant> {
        let half = self.capacity / 2;
        let refill = self.free >= half && half > 0;
        let credits = self.consumed.wrapping_sub(self.mark).cast_signed() >= 0;
        (refill || credits).then(|| Grant {
            limit: self.consumed.wrapping_add(self.queue),
            half: refill.then_some(Half {
                offset: self.free_offset,
                length: half,
                entry: self.peer_entry,
            }),
        })
    }

    /// Notes that `grant` was sent.
    pub fn granted(&mut self, grant: &Grant) {
        self.mark = self.consumed.wrapping_add(self.queue / 2);
        if let Some(half) = grant.half {
            self.free = self.free.saturating_sub(half.length);
            self.free_offset = if self.free_offset == 0 {
                half.length
            } else {
                0
            };
            self.peer_entry = self.peer_entry.wrapping_add(1) % self.peer_entries;
        }
    }
}

/// What a work request of the send queue returns when it, and all before it,
/// have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Work requests other than control messages.
    pub slots: u16,
    /// Bytes of the send buffer.
    pub bytes: u32,
}

/// A piece of data that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it goes.
    pub target: Target,
    /// Where it begins in the send buffer, unless it is sent inline.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
    /// It is sent inline and takes no room in the send buffer.
    pub inline: bool,
}

/// A data message that is filled by several sends before it is posted. Room
/// and credit are taken already.
#[derive(Clone, Copy, Debug)]
struct Draft {
    target: Target,
    offset: usize,
    length: usize,
    /// Nothing more fits.
    full: bool,
}

/// The sending side.
#[derive(Debug)]
pub struct Outbox {
    draft: Option<Draft>,
    sent: u16,
    limit: u16,
    targets: [Target; 2],
    current: usize,
    updated: usize,
    capacity: usize,
    position: usize,
    free: usize,
    slots: u16,
    slots_free: u16,
    control_free: u16,
    unreported: Cost,
}

impl Outbox {
    /// A send buffer of `capacity` bytes and a send queue of `queue` entries,
    /// for a peer that said `peer`.
    pub fn new(capacity: usize, queue: u16, peer: &ConnData) -> Self {
        let slots = queue.saturating_sub(CONTROL_SLOTS);
        Self {
            draft: None,
            sent: 0,
            limit: peer.credits,
            targets: [peer.buffer, Target::default()],
            current: 0,
            updated: 1,
            capacity,
            position: 0,
            free: capacity,
            slots,
            slots_free: slots,
            control_free: CONTROL_SLOTS,
            unreported: Cost::default(),
        }
    }

    /// Whether a data message can be sent.
    pub fn can_send(&self) -> bool {
        self.can_post() && self.sent != self.limit && self.target().length != 0
    }

    /// Whether there is room for a work request and its data, whatever the
    /// peer granted.
    pub fn can_post(&self) -> bool {
        self.slots_free > 0 && self.free >= MIN_SEND_SPACE
    }

    /// Whether messages are left to the peer's credits.
    pub fn has_credit(&self) -> bool {
        self.sent != self.limit
    }

    /// Whether a control message can be sent.
    pub fn can_control(&self) -> bool {
        self.control_free > 0
    }

    /// Whether every work request has completed, as far as it was to report.
    pub fn is_idle(&self) -> bool {
        self.control_free == CONTROL_SLOTS
            && self.slots_free.saturating_add(self.unreported.slots) == self.slots
    }

    fn target(&self) -> Target {
        self.targets.get(self.current).copied().unwrap_or_default()
    }

    /// Takes room for a data message of up to `wanted` bytes; `None` unless
    /// [`Outbox::can_send`]. Data of up to `inline` bytes needs no buffer.
    pub fn take_segment(&mut self, wanted: usize, inline: usize) -> Option<Segment> {
        if !self.can_send() || wanted == 0 {
            return None;
        }
        let target = self.target();
        let length = wanted.min(target.length as usize);
        let segment = self.take_space(length, inline, target)?;
        self.sent = self.sent.wrapping_add(1);
        self.use_target(segment.length);
        Some(segment)
    }

    /// Takes `bytes` of the current target; returns whether that was the rest.
    fn use_target(&mut self, bytes: usize) -> bool {
        let Some(entry) = self.targets.get_mut(self.current) else {
            return true;
        };
        entry.addr = entry.addr.wrapping_add(bytes as u64);
        entry.length = entry.length.saturating_sub(bytes as u32);
        let rest = entry.length == 0;
        if rest {
            self.current ^= 1;
        }
        rest
    }

    /// Takes room in the send buffer for up to `wanted` bytes of a message
    /// that is not posted yet, up to `most` bytes of it in all: offset and
    /// length. `None` if there is no such room: then the message is to be
    /// posted, if there is one.
    pub fn gather(&mut self, wanted: usize, most: usize) -> Option<(usize, usize)> {
        let mut draft = match self.draft {
            Some(draft) => draft,
            None if !self.can_send() => return None,
            None => {
                self.sent = self.sent.wrapping_add(1);
                self.take_slot();
                Draft {
                    target: self.target(),
                    offset: self.position,
                    length: 0,
                    full: false,
                }
            }
        };
        if draft.full {
            return None;
        }
        let offset = self.position;
        let length = wanted
            .min(self.target().length as usize)
            .min(self.free)
            .min(most.saturating_sub(draft.length));
        self.take_bytes(length);
        draft.length = draft.length.saturating_add(length);
        draft.full = self.use_target(length) || self.free == 0 || draft.length >= most;
        self.draft = Some(draft);
        Some((offset, length))
    }

    /// Whether a message is gathered that is not posted yet.
    pub fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// Whether nothing more fits into the message that is gathered.
    pub fn draft_is_full(&self) -> bool {
        self.draft.is_some_and(|draft| draft.full)
    }

    /// The message that was gathered, to be posted now.
    pub fn take_draft(&mut self) -> Option<Segment> {
        self.draft.take().map(|draft| Segment {
            target: draft.target,
            offset: draft.offset,
            length: draft.length,
            inline: false,
        })
    }

    /// Takes room for a write of up to `wanted` bytes to `target` that is no
    /// message; `None` unless [`Outbox::can_post`].
    pub fn take_space(&mut self, wanted: usize, inline: usize, target: Target) -> Option<Segment> {
        if !self.can_post() || wanted == 0 {
            return None;
        }
        let (length, bytes) = if wanted <= inline {
            (wanted, 0)
        } else {
            let length = wanted.min(self.free);
            (length, length)
        };
        let segment = Segment {
            target,
            offset: self.position,
            length,
            inline: bytes == 0,
        };
        self.take_bytes(bytes);
        self.take_slot();
        Some(segment)
    }

    fn take_bytes(&mut self, bytes: usize) {
        self.free = self.free.saturating_sub(bytes);
        self.position = self.position.saturating_add(bytes);
        if self.position >= self.capacity {
            self.position = self.position.saturating_sub(self.capacity);
        }
        self.unreported.bytes = self.unreported.bytes.saturating_add(bytes as u32);
    }

    fn take_slot(&mut self) {
        self.slots_free = self.slots_free.saturating_sub(1);
        self.unreported.slots = self.unreported.slots.saturating_add(1);
    }

    /// Charges a message that is no data; `false` if the peer has granted
    /// none.
    pub fn charge_message(&mut self) -> bool {
        let granted = self.has_credit();
        if granted {
            self.sent = self.sent.wrapping_add(1);
        }
        granted
    }

    /// Whether the work request about to be posted should report its
    /// completion, and what it then returns. Reporting each would cost a
    /// completion per message; this keeps three quarters of queue and buffer
    /// free or reported.
    pub fn report(&mut self) -> Option<Cost> {
        let due = self.unreported.slots >= (self.slots / 4).max(1)
            || self.unreported.bytes as usize >= self.capacity / 4;
        due.then(|| std::mem::take(&mut self.unreported))
    }

    /// Takes back what a completed work request says.
    pub fn complete(&mut self, cost: Cost) {
        self.slots_free = self.slots_free.saturating_add(cost.slots).min(self.slots);
        self.free = self
            .free
            .saturating_add(cost.bytes as usize)
            .min(self.capacity);
    }

    /// Takes a control slot and what earlier work requests did not report;
    /// `None` if there is no slot.
    pub fn take_control(&mut self) -> Option<Cost> {
        self.control_free = self.control_free.checked_sub(1)?;
        // What a draft takes is in use until that was posted.
        if self.draft.is_some() {
            return Some(Cost::default());
        }
        Some(std::mem::take(&mut self.unreported))
    }

    /// Takes back a control slot.
    pub fn complete_control(&mut self, cost: Cost) {
        self.control_free = self.control_free.saturating_add(1).min(CONTROL_SLOTS);
        self.complete(cost);
    }

    /// The entry of this side's target list that the peer writes next.
    pub fn next_target(&self) -> usize {
        self.updated
    }

    /// Takes a grant of the peer.
    pub fn grant(&mut self, limit: u16, target: Option<Target>) {
        self.limit = limit;
        if let Some(target) = target {
            if let Some(entry) = self.targets.get_mut(self.updated) {
                *entry = target;
            }
            self.updated ^= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(credits: u16, length: u32) -> ConnData {
        ConnData {
            big_endian: false,
            counts_mappings: false,
            credits,
            mappings: 0,
            target_list: Target {
                addr: 0,
                key: 1,
                length: 2,
            },
            buffer: Target {
                addr: 1 << 20,
                key: 2,
                length,
            },
        }
    }

    #[test]
    fn the_second_half_is_granted_first() {
        let mut inbox = Inbox::new(8192, 384, 2);
        let grant = inbox.grant_due().unwrap();
        let half = Half {
            offset: 4096,
            length: 4096,
            entry: 1,
        };
        assert_eq!(grant.limit, 384);
        assert_eq!(grant.half, Some(half));
        inbox.granted(&grant);
        assert_eq!(inbox.grant_due(), None);
    }

    #[test]
    fn a_half_returns_when_it_is_consumed() {
        let mut inbox = Inbox::new(8192, 384, 2);
        inbox.granted(&inbox.grant_due().unwrap());
        inbox.deliver(4096).unwrap();
        inbox.consume(4095);
        assert_eq!(inbox.grant_due(), None);
        inbox.consume(1);
        let half = inbox.grant_due().unwrap().half.unwrap();
        assert_eq!((half.offset, half.entry), (0, 0));
    }

    #[test]
    fn credits_return_when_half_of_them_are_consumed() {
        let mut inbox = Inbox::new(8192, 384, 2);
        inbox.granted(&inbox.grant_due().unwrap());
        for _ in 0..191 {
            inbox.deliver(1).unwrap();
        }
        inbox.consume(191);
        assert_eq!(inbox.grant_due(), None);
        inbox.deliver(1).unwrap();
        inbox.consume(1);
        let grant = inbox.grant_due().unwrap();
        assert_eq!((grant.limit, grant.half), (192 + 384, None));
    }

    #[test]
    fn a_peer_cannot_overrun_the_buffer_or_the_queue() {
        let mut inbox = Inbox::new(8192, 16, 2);
        assert_eq!(inbox.deliver(4097), Err(Violation::Overrun));
        inbox.deliver(4096).unwrap();
        assert_eq!(inbox.deliver(1), Err(Violation::Overrun));
        let mut inbox = Inbox::new(8192, 16, 2);
        for _ in 0..16 {
            inbox.deliver(1).unwrap();
        }
        assert_eq!(inbox.deliver(1), Err(Violation::Credits));
    }

    #[test]
    fn sending_stops_at_the_end_of_a_target_and_resumes_in_the_next() {
        let mut outbox = Outbox::new(8192, 64, &peer(10, 1000));
        let first = outbox.take_segment(1500, 0).unwrap();
        assert_eq!((first.target.addr, first.length), (1 << 20, 1000));
        assert!(!outbox.can_send());
        outbox.grant(
            20,
            Some(Target {
                addr: 7,
                key: 3,
                length: 600,
            }),
        );
        let second = outbox.take_segment(500, 0).unwrap();
        assert_eq!((second.target.addr, second.length), (7, 500));
        let third = outbox.take_segment(500, 0).unwrap();
        assert_eq!((third.target.addr, third.length), (507, 100));
    }

    #[test]
    fn no_more_messages_than_credits() {
        let mut outbox = Outbox::new(8192, 64, &peer(3, 1000));
        let sent = std::iter::from_fn(|| outbox.take_segment(1, 64)).count();
        assert_eq!(sent, 3);
    }

    #[test]
    fn small_sends_gather_within_the_target() {
        let mut outbox = Outbox::new(8192, 64, &peer(1, 100));
        assert_eq!(outbox.gather(60, 4096), Some((0, 60)));
        assert_eq!(outbox.gather(60, 4096), Some((60, 40)));
        assert!(outbox.draft_is_full());
        assert_eq!(outbox.gather(20, 4096), None);
        let message = outbox.take_draft().unwrap();
        assert_eq!((message.target.addr, message.length), (1 << 20, 100));
        assert_eq!(outbox.gather(20, 4096), None, "no credit is left");
        assert!(!outbox.has_draft());
    }

    proptest! {
        /// Two sides that speak to each other: whatever the sizes, the sender
        /// never writes where it must not and everything arrives in order.
        #[test]
        fn both_sides_agree(
            halves in 1usize..40,
            queue in 16u16..64,
            steps in prop::collection::vec((1usize..5000, 1usize..5000, 0usize..4), 1..200),
        ) {
            let capacity = halves * 512;
            let mut inbox = Inbox::new(capacity, queue, 2);
            let mut outbox = Outbox::new(16384, 64, &ConnData {
                buffer: Target { addr: 0, key: 0, length: (capacity / 2) as u32 },
                ..peer(queue, 0)
            });
            let mut written = 0usize;
            for (send, receive, gathers) in steps {
                while let Some(grant) = inbox.grant_due() {
                    inbox.granted(&grant);
                    outbox.grant(grant.limit, grant.half.map(|half| Target {
                        addr: half.offset as u64,
                        key: 0,
                        length: half.length as u32,
                    }));
                }
                for _ in 0..gathers {
                    if let Some((offset, length)) = outbox.gather(send, 3000) {
                        prop_assert!(length > 0 && length <= send && offset < 16384);
                    }
                }
                let gathered = outbox.take_draft();
                if let Some(segment) = gathered.or_else(|| outbox.take_segment(send, 0)) {
                    prop_assert_eq!(segment.target.addr as usize, written % capacity);
                    written += segment.length;
                    prop_assert!(inbox.deliver(segment.length as u32).is_ok());
                    if let Some(cost) = outbox.report() {
                        outbox.complete(cost);
                    }
                }
                let (offset, length) = inbox.span(0, receive);
                prop_assert!(offset + length <= capacity);
                inbox.consume(length);
            }
        }

        #[test]
        fn hostile_lengths_stay_inside(lengths in prop::collection::vec(any::<u32>(), 1..100)) {
            let mut inbox = Inbox::new(4096, 16, 0);
            for length in lengths {
                let _ = inbox.deliver(length);
                let (offset, span) = inbox.span(0, usize::MAX);
                prop_assert!(offset + span <= 4096);
                inbox.consume(span / 2);
            }
        }
    }
}
