//! Receiving of an established connection.

use crate::error::{Error, Result};

use super::{Connection, Core, Link, retry};
use crate::rsocket::vectors::Cursor;
use crate::rsocket::wait::again;

impl Connection {
    /// Receives what is there, up to the room in `target`. `peek` leaves it
    /// there for the next receive. Less than `least` bytes are as nothing, as
    /// long as more may come. Returns how many bytes were received, 0 at the end
    /// of the stream.
    ///
    /// # Errors
    /// `EAGAIN` if there is nothing yet, once what broke the connection.
    pub fn receive(&self, target: &mut Cursor<'_>, peek: bool, least: usize) -> Result<usize> {
        self.with_core(|core| {
            core.pace.note_receive();
            self.post_draft(core);
            if core.inbox.unread() < target.remaining() {
                self.progress(core);
            }
            if core.inbox.unread() < least {
                self.send_controls(core);
                if core.inbox.may_grow() && again(&Self::receivable(core)) {
                    return Err(retry());
                }
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
                    self.send_urgent_controls(core);
                }
                return Ok(done);
            }
            self.send_controls(core);
            Self::receivable(core)
        })
    }

    /// Without data: the end of the stream, an error, or not yet.
    fn receivable(core: &Core) -> Result<usize> {
        if let Link::Broken {
            errno,
            reported: false,
        } = core.link
        {
            return Err(Error::new(errno, "receive"));
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
}
