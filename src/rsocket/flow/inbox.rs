//! The receiving side: what was received, and what the peer is granted.

use std::collections::VecDeque;

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
        if bytes > self.room() {
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

    /// Whether the peer may send more data before any is consumed.
    pub fn may_grow(&self) -> bool {
        let granted_at = self.mark.wrapping_sub(self.queue / 2);
        let since = usize::from(self.consumed.wrapping_sub(granted_at));
        let sent = since.saturating_add(self.messages.len());
        self.room() > 0 && sent < usize::from(self.queue)
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
        if self.unread == 0 {
            // All of them at once, which are often one.
            self.consumed = self.consumed.wrapping_add(self.messages.len() as u16);
            self.messages.clear();
            return;
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
        self.owes_grant().then(|| Grant {
            limit: self.consumed.wrapping_add(self.queue),
            half: self.owes_half().then_some(Half {
                offset: self.free_offset,
                length: self.capacity / 2,
                entry: self.peer_entry,
            }),
        })
    }

    /// Whether a grant is due.
    pub fn owes_grant(&self) -> bool {
        self.owes_half() || self.owes_credits()
    }

    /// Whether a grant is due and the peer may soon have no room without it: it
    /// has less than the other half.
    pub fn owes_urgently(&self) -> bool {
        self.owes_credits() || self.owes_half() && self.room() < self.capacity / 2
    }

    fn owes_credits(&self) -> bool {
        self.consumed.wrapping_sub(self.mark).cast_signed() >= 0
    }

    /// Bytes that the peer may still send.
    fn room(&self) -> usize {
        self.capacity
            .saturating_sub(self.free)
            .saturating_sub(self.unread)
    }

    fn owes_half(&self) -> bool {
        let half = self.capacity / 2;
        self.free >= half && half > 0
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
