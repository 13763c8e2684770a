//! The sending side: what the peer granted, and the room in send queue and
//! send buffer.

use crate::rsocket::wire::{ConnData, Target};

/// Work requests of the send queue that are kept for control messages.
pub const CONTROL_SLOTS: u16 = 4;
/// Free bytes of the send buffer below which no data is sent.
pub const MIN_SEND_SPACE: usize = 2048;

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
    /// What the peer granted to begin with, which is how many receives it posts.
    credits: u16,
    /// Messages since the last grant that took no credit.
    uncharged: u16,
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
            credits: peer.credits,
            uncharged: 0,
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

    /// Whether a little data needs nothing of the device or the peer.
    pub fn takes_small(&self) -> bool {
        self.has_draft() || self.can_send()
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

    /// Takes room for a data message of exactly `length` bytes that needs no
    /// buffer; `None` if the peer has no such room in one piece.
    pub fn take_whole(&mut self, length: usize) -> Option<Target> {
        let target = self.target();
        let room = self.can_post() && self.has_credit();
        if !room || length > target.length as usize || length == 0 {
            return None;
        }
        self.sent = self.sent.wrapping_add(1);
        self.take_slot();
        self.use_target(length);
        Some(target)
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
        let inline = wanted <= inline;
        let length = if inline {
            wanted
        } else {
            wanted.min(self.free)
        };
        let segment = Segment {
            target,
            offset: self.position,
            length,
            inline,
        };
        if !self.take_request(wanted) {
            return None;
        }
        if !inline {
            self.take_bytes(length);
        }
        Some(segment)
    }

    /// Takes a work request for a write of `length` bytes that is no message, and
    /// no buffer. Returns whether there was one.
    pub fn take_request(&mut self, length: usize) -> bool {
        let room = self.can_post() && length > 0;
        if room {
            self.take_slot();
        }
        room
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

    /// Counts a message that takes no credit. It takes a receive of the peer's.
    pub fn count_uncharged(&mut self) {
        self.uncharged = self.uncharged.saturating_add(1);
    }

    /// Whether a peer that posts a receive for each credit, and none for messages
    /// that take no credit, may have fewer left than there are messages on their
    /// way: then its device confirms nothing until the peer is at work again.
    pub fn may_lack_receives(&self) -> bool {
        let before = self.limit.wrapping_sub(self.credits);
        let charged = self.sent.wrapping_sub(before);
        u32::from(charged) + u32::from(self.uncharged) > u32::from(self.credits)
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
        self.uncharged = 0;
        if let Some(target) = target {
            if let Some(entry) = self.targets.get_mut(self.updated) {
                *entry = target;
            }
            self.updated ^= 1;
        }
    }
}
