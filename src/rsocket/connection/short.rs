//! The short way of small messages, on a connection on which nothing else goes
//! on: most messages of most programs take it. What it does not do it leaves as it
//! was, for the calls in [`super::send`] and [`super::receive`].

use super::{Connection, Core, Link};
use crate::rsocket::memory;
use crate::rsocket::wire::{Message, Target};

/// Small sends at most for which completions are not looked at, as long as
/// there is room: a connection that broke is noticed soon enough.
pub(super) const MOST_UNLOOKED: usize = 8;

/// What a receive found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, which were copied.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// Something that takes the long way.
    Special,
}

impl Core {
    /// Whether data may be sent and nothing else is to be sent first.
    fn sends_only_data(&self) -> bool {
        // A message that waits is of a shutdown.
        self.link == Link::Up
            && self.writable
            && !self.outbox.has_draft()
            && !self.mappings.has_news()
            && !self.inbox.owes_grant()
    }
}

impl Connection {
    /// Sends `length` bytes at `data` if they are few and nothing stands before
    /// them. Returns whether it did.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline]
    pub unsafe fn send_short(&self, data: *const u8, length: usize) -> bool {
        self.with_core(|core| {
            // First, so that what takes the long way is counted there only.
            let short = length <= self.endpoint.inline()
                && core.unlooked < MOST_UNLOOKED
                && core.sends_only_data()
                && core.pace.note_one_of_few()
                // SAFETY: the caller vouches for the data.
                && unsafe { self.post_whole(core, data, length) };
            core.unlooked += usize::from(short);
            short
        })
    }

    /// Writes `length` bytes at `data` to the memory that the peer exposed at
    /// `offset` if they are few and nothing stands before them. Returns whether it
    /// did.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline]
    pub unsafe fn write_short(&self, data: *const u8, length: usize, offset: u64) -> bool {
        self.with_core(|core| {
            // A program that only writes never looks else.
            if core.unlooked >= MOST_UNLOOKED {
                self.progress(core);
            }
            if length > self.endpoint.inline() || !core.sends_only_data() {
                return false;
            }
            let Some(target) = self.mapped(offset) else {
                return false;
            };
            if length > target.length as usize || !core.outbox.take_request(length) {
                return false;
            }
            core.unlooked += 1;
            // SAFETY: the caller vouches for the data.
            unsafe { self.post_data(core, target, None, data, length) };
            true
        })
    }

    /// Posts `length` bytes at `data` if they fit inline and the peer has room
    /// for them in one piece. Returns whether it did.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline(always)] // in the long way too, which is rarer
    pub(super) unsafe fn post_whole(
        &self,
        core: &mut Core,
        data: *const u8,
        length: usize,
    ) -> bool {
        if length > self.endpoint.inline() {
            return false;
        }
        let Some(target) = core.outbox.take_whole(length) else {
            return false;
        };
        let message = Some(Message::Data(length as u32));
        // SAFETY: the caller vouches for the data.
        unsafe { self.post_data(core, target, message, data, length) };
        true
    }

    /// Posts `length` bytes at `data`, for which room was taken.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline(always)] // as for its callers
    unsafe fn post_data(
        &self,
        core: &mut Core,
        target: Target,
        message: Option<Message>,
        data: *const u8,
        length: usize,
    ) {
        let write = Self::data_write(core, target, message);
        // SAFETY: the caller vouches for the data.
        if let Err(error) = unsafe { self.endpoint.post_inline(&write, data, length) } {
            self.device_failed(core, &error);
        }
    }

    /// Receives what is there, up to `room` bytes, to `target`, unless it is
    /// not in one piece.
    ///
    /// # Safety
    /// `target` may be written for `room` bytes.
    #[inline]
    pub unsafe fn receive_short(&self, target: *mut u8, room: usize) -> Received {
        self.with_core(|core| {
            core.pace.note_receive();
            if core.outbox.has_draft() {
                return Received::Special;
            }
            if core.inbox.unread() < room {
                self.progress(core);
            }
            let wanted = room.min(core.inbox.unread());
            let (offset, length) = core.inbox.span(0, wanted);
            if length == 0 {
                let usual = core.link == Link::Up
                    && core.readable
                    && core.writable
                    && !core.inbox.owes_grant();
                return if usual && room > 0 {
                    Received::Nothing
                } else {
                    Received::Special
                };
            }
            if length < wanted {
                return Received::Special;
            }
            let Some(data) = self.endpoint.received(offset, length) else {
                return Received::Special;
            };
            // SAFETY: received bytes in our own buffer, which the peer may not
            // write to until they are consumed, and the program's buffer.
            unsafe { memory::copy(data, target, length) };
            core.inbox.consume(length);
            self.send_urgent_controls(core);
            Received::Bytes(length)
        })
    }
}
