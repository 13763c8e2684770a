//! Sending of an established connection: messages of data, posted at once or
//! gathered from small sends.

use crate::error::{Error, Result};

use super::short::MOST_UNLOOKED;
use super::work::Work;
use super::{Connection, Core, Link, retry};
use crate::rsocket::carrier::Write;
use crate::rsocket::flow::{Outbox, Segment};
use crate::rsocket::vectors::Cursor;
use crate::rsocket::wire::{Message, Target};

/// Bytes of the first segment of a call; each is twice as long as the one
/// before, so that copying and sending overlap. To copy that much takes less
/// time than the system call and the wake-up that a message of its own costs.
const FIRST_SEGMENT: usize = 1 << 13;
/// Bytes of the longest segment.
const LONGEST_SEGMENT: usize = 1 << 16;

/// Bytes of the longest send that is gathered with others into one message.
const LONGEST_GATHERED: usize = 1024;
/// Bytes of the longest message that is gathered.
const LONGEST_DRAFT: usize = 1 << 13;

/// Bytes of the segment after one of `last` bytes, 0 for the first.
pub(super) fn next_segment(last: usize) -> usize {
    last.saturating_mul(2).clamp(FIRST_SEGMENT, LONGEST_SEGMENT)
}

impl Connection {
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
            if !small || core.unlooked >= MOST_UNLOOKED || !core.outbox.takes_small() {
                self.progress(core);
            }
            core.unlooked = core.unlooked.saturating_add(1);
            Self::sendable(core)?;
            if small && core.pace.note_send() && !core.mappings.has_news() {
                self.endpoint.prepare_buffer()?;
                self.gather(core, source);
            } else if !self.send_at_once(core, source) {
                self.post_draft(core);
                if core.mappings.has_news() {
                    self.announce(core)?;
                }
                self.prepare_for(source)?;
                self.send_segments(core, source, ramp)?;
            }
            self.send_controls(core);
            if source.remaining() == before {
                return Err(retry());
            }
            let ask = core.outbox.has_draft() && !core.flush_asked;
            core.flush_asked |= ask;
            Ok(ask)
        })
    }

    /// Sends all of `source` if it is little and nothing stands before it. Returns
    /// whether it did.
    fn send_at_once(&self, core: &mut Core, source: &mut Cursor<'_>) -> bool {
        let length = source.remaining();
        let (data, chunk) = source.chunk();
        let sent = chunk >= length
            && !core.outbox.has_draft()
            && !core.mappings.has_news()
            // SAFETY: the current chunk, which the program gave to be read.
            && unsafe { self.post_whole(core, data, length) };
        if sent {
            source.advance(length);
        }
        sent
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

    /// The write of data to `target`, for which room was taken just before.
    pub(super) fn data_write(core: &mut Core, target: Target, message: Option<Message>) -> Write {
        let report = core.outbox.report();
        Write {
            target,
            message,
            id: Work::Data(report.unwrap_or_default()).encode(),
            signaled: report.is_some(),
        }
    }

    /// Posts what was gathered, if anything.
    #[inline]
    pub(super) fn post_draft(&self, core: &mut Core) {
        if let Some(segment) = core.outbox.take_draft() {
            self.post_gathered(core, &segment);
        }
    }

    #[inline(never)] // most calls have nothing to post
    fn post_gathered(&self, core: &mut Core, segment: &Segment) {
        if core.link != Link::Up {
            return;
        }
        let write = Self::data_write(
            core,
            segment.target,
            Some(Message::Data(segment.length as u32)),
        );
        let posted = self
            .endpoint
            .post_buffered(&write, segment.offset, segment.length);
        if let Err(error) = posted {
            self.device_failed(core, &error);
        }
    }

    /// Posts what was gathered, see [`Connection::send`].
    pub fn flush(&self) {
        self.with_core(|core| {
            core.flush_asked = false;
            self.post_draft(core);
            self.send_controls(core);
        });
    }

    pub(super) fn sendable(core: &Core) -> Result<()> {
        const STEP: &str = "send";
        if !core.writable {
            return Err(Error::new(libc::EPIPE, STEP));
        }
        match core.link {
            Link::Up => Ok(()),
            Link::Broken {
                errno,
                reported: false,
            } => Err(Error::new(errno, STEP)),
            Link::Down | Link::Broken { .. } => Err(Error::new(libc::ECONNRESET, STEP)),
        }
    }

    /// Posts up to `most` bytes of `source`. `take` takes the room for them
    /// and says which message they are, if any.
    pub(super) fn post_segment(
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
        let write = Self::data_write(core, segment.target, message);
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
            self.device_failed(core, &error);
        }
    }

    /// Makes the send buffer if `source` cannot be sent inline.
    pub(super) fn prepare_for(&self, source: &mut Cursor<'_>) -> Result<()> {
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
}
