//! Sending and receiving with waiting. What can be done at once is the business
//! of the connection.

use std::sync::Arc;

use crate::error::{Error, Result};

use super::Stream;
use crate::rsocket::connection::Connection;
use crate::rsocket::flusher;
use crate::rsocket::vectors::Cursor;

impl Stream {
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
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let deadline = self.common.send_timeout().deadline();
        let total = source.remaining();
        while source.remaining() > 0 {
            let result = self.wait_for(Some(connection), nonblocking, deadline, || {
                self.common.check_open()?;
                step(connection, source).inspect_err(|error| {
                    if error.errno() == libc::EAGAIN {
                        self.probe_peer(connection);
                    }
                })
            });
            if let Err(error) = result {
                let sent = total.saturating_sub(source.remaining());
                if sent == 0 {
                    return Err(error);
                }
                connection.report_again();
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

    /// Receives into `target`: what is there, or with `MSG_WAITALL` as much
    /// as fits. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of [`Connection::receive`]; `ENOTCONN`, `EINTR`. After some bytes
    /// were received there is no error.
    pub fn receive(&self, target: &mut Cursor<'_>, flags: i32) -> Result<usize> {
        let connection = self.connection()?;
        let nonblocking = self.common.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
        let peek = flags & libc::MSG_PEEK != 0;
        let all = flags & libc::MSG_WAITALL != 0 && !peek;
        let deadline = self.common.receive_timeout().deadline();
        let mut total = 0usize;
        while target.remaining() > 0 {
            let result = self.wait_for(Some(connection), nonblocking, deadline, || {
                self.common.check_open()?;
                connection.receive(target, peek)
            });
            match result {
                Ok(0) => break,
                Ok(bytes) => total = total.saturating_add(bytes),
                Err(error) if total == 0 => return Err(error),
                Err(_) => {
                    connection.report_again();
                    break;
                }
            }
            if !all {
                break;
            }
        }
        Ok(total)
    }
}
