//! Sending and receiving with waiting. What can be done at once is the business
//! of the connection.

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};

use super::Stream;
use crate::rsocket::common::Timeout;
use crate::rsocket::connection::{Connection, Received, retry};
use crate::rsocket::flusher;
use crate::rsocket::vectors::Cursor;
use crate::rsocket::wait::{again, wait_longer};

/// A call that moves data: whether it waits, and how long in all.
struct Call<'a> {
    stream: &'a Stream,
    connection: &'a Connection,
    timeout: &'a Timeout,
    flags: i32,
    /// When it ends, once it has waited.
    deadline: Option<Option<Instant>>,
}

impl Call<'_> {
    /// Tries until `step` does not fail with `EAGAIN`, waiting in between if the
    /// call may.
    fn attempt<R>(&mut self, mut step: impl FnMut() -> Result<R>) -> Result<R> {
        let first = step();
        if again(&first) {
            self.wait(step)
        } else {
            first
        }
    }

    #[inline(never)]
    fn wait<R>(&mut self, mut step: impl FnMut() -> Result<R>) -> Result<R> {
        let common = &self.stream.common;
        if self.stream.is_nonblocking(self.flags) {
            return Err(retry());
        }
        let timeout = self.timeout;
        let deadline = *self.deadline.get_or_insert_with(|| timeout.deadline());
        wait_longer(
            self.stream,
            common.waiters(),
            Some(self.connection),
            deadline,
            &mut || {
                common.check_open()?;
                step()
            },
        )
    }
}

impl Stream {
    fn call<'a>(
        &'a self,
        connection: &'a Connection,
        timeout: &'a Timeout,
        flags: i32,
    ) -> Call<'a> {
        Call {
            stream: self,
            connection,
            timeout,
            flags,
            deadline: None,
        }
    }

    /// Sends all of `source`, or as much as is possible without waiting if
    /// non-blocking. Returns how many bytes were taken.
    ///
    /// # Errors
    /// Those of [`Connection::send`]; `ENOTCONN`, `EINTR`. After some bytes
    /// were taken there is no error; the next call has it.
    pub fn send(self: &Arc<Self>, source: &mut Cursor<'_>, flags: i32) -> Result<usize> {
        let (mut ramp, mut gathered) = (0, false);
        let sent = self.transmit(source, flags, |connection, source| {
            gathered |= connection.send(source, &mut ramp)?;
            Ok(())
        });
        if gathered {
            flusher::flush_soon(self);
        }
        sent
    }

    /// Sends `length` bytes at `data` without looking further if that is possible;
    /// returns whether it was.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline]
    pub unsafe fn send_short(&self, data: *const u8, length: usize) -> bool {
        // SAFETY: the caller vouches for the data.
        let send = |connection: &Connection| unsafe { connection.send_short(data, length) };
        !self.common.is_closed() && self.established().is_some_and(send)
    }

    /// Posts what small sends have gathered.
    pub fn flush(&self) {
        if let Some(connection) = self.established() {
            connection.flush();
        }
    }

    /// Calls `step` until nothing of `source` is left, waiting where it says
    /// `EAGAIN`.
    fn transmit<'a>(
        self: &Arc<Self>,
        source: &mut Cursor<'a>,
        flags: i32,
        mut step: impl FnMut(&Connection, &mut Cursor<'a>) -> Result<()>,
    ) -> Result<usize> {
        let connection = self.connection()?;
        let mut call = self.call(connection, self.common.send_timeout(), flags);
        let total = source.remaining();
        while source.remaining() > 0 {
            let result = call.attempt(|| {
                step(connection, source).inspect_err(|error| {
                    if error.errno() == libc::EAGAIN {
                        self.probe_peer(connection);
                    }
                })
            });
            if let Err(error) = result {
                let sent = total.saturating_sub(source.remaining());
                if sent == 0 {
                    connection.tell(&error);
                    return Err(error);
                }
                return Ok(sent);
            }
        }
        Ok(total)
    }

    /// The connection on which to map memory.
    ///
    /// # Errors
    /// `EINVAL` if there is none, `EBADF` if the socket is closed.
    pub fn mappable(&self) -> Result<&Connection> {
        self.common.check_open()?;
        self.established()
            .ok_or(Error::invalid("map memory of an unconnected socket"))
    }

    /// Writes `source` to the memory that the peer exposed at `offset`; waits
    /// for room unless non-blocking. Returns how many bytes were taken, which
    /// is less than all where a mapping ends.
    ///
    /// # Errors
    /// Those of [`Connection::write_mapped`]; `ENOTCONN`, `EINTR`. After some
    /// bytes were taken there is no error.
    pub fn write_mapped(
        self: &Arc<Self>,
        source: &mut Cursor<'_>,
        mut offset: u64,
        flags: i32,
    ) -> Result<usize> {
        let mut ramp = 0;
        self.transmit(source, flags, |connection, source| {
            connection.write_mapped(source, &mut offset, &mut ramp)
        })
    }

    /// As [`Stream::send_short`], to the memory that the peer exposed at `offset`.
    ///
    /// # Safety
    /// `data` may be read for `length` bytes.
    #[inline]
    pub unsafe fn write_short(&self, data: *const u8, length: usize, offset: u64) -> bool {
        let write = |connection: &Connection| {
            // SAFETY: the caller vouches for the data.
            unsafe { connection.write_short(data, length, offset) }
        };
        !self.common.is_closed() && self.established().is_some_and(write)
    }

    /// Receives up to `room` bytes to `target` without looking further, if the
    /// flags ask for nothing special. [`Received::Nothing`] is `EAGAIN` if the call
    /// does not wait.
    ///
    /// # Safety
    /// `target` may be written for `room` bytes.
    #[inline]
    pub unsafe fn receive_short(&self, target: *mut u8, room: usize, flags: i32) -> Received {
        let special = flags & (libc::MSG_PEEK | libc::MSG_WAITALL) != 0;
        match self.established() {
            Some(connection) if !special && !self.common.is_closed() => {
                // SAFETY: the caller vouches for the target.
                unsafe { connection.receive_short(target, room) }
            }
            _ => Received::Special,
        }
    }

    /// Whether a call with these flags returns `EAGAIN` rather than wait.
    pub fn is_nonblocking(&self, flags: i32) -> bool {
        flags & libc::MSG_DONTWAIT != 0 || self.common.is_nonblocking()
    }

    /// Receives into `target`: what is there, or with `MSG_WAITALL` as much
    /// as fits; with `MSG_PEEK` as well no more than the peer may send before it
    /// is received. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of [`Connection::receive`]; `ENOTCONN`, `EINTR`. After some bytes
    /// were received there is no error.
    pub fn receive(&self, target: &mut Cursor<'_>, flags: i32) -> Result<usize> {
        let connection = self.connection()?;
        let mut call = self.call(connection, self.common.receive_timeout(), flags);
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0;
        // What stays where it is has to be there at once.
        let least = if all && peek { target.remaining() } else { 0 };
        let mut total = 0usize;
        while target.remaining() > 0 {
            let mut result = call.attempt(|| connection.receive(target, peek, least));
            if least > 0 && ended_early(&result) {
                result = connection.receive(target, peek, 0).or(result);
            }
            match result {
                Ok(0) => break,
                Ok(bytes) => total = total.saturating_add(bytes),
                Err(error) if total == 0 => {
                    connection.tell(&error);
                    return Err(error);
                }
                Err(_) => break,
            }
            if peek || !all {
                break;
            }
        }
        Ok(total)
    }
}

/// Whether a wait has ended before what it was for.
fn ended_early<R>(result: &Result<R>) -> bool {
    again(result) || matches!(result, Err(error) if error.errno() == libc::EINTR)
}
