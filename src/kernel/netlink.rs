//! Questions to the RDMA subsystem over netlink (`<rdma/rdma_netlink.h>`):
//! the socket, the framing of messages and attributes, and which questions
//! there are. What to do when one fails is not known here. Encoding and
//! decoding are pure functions; data from the socket is checked before use.
//!
//! - `chardev`: where a character device of the subsystem is
//! - `devices`: which RDMA devices the kernel has, and for whom

use std::os::fd::{AsRawFd, OwnedFd};

use super::descriptor::opened;
use crate::error::{Error, Result};

mod chardev;
mod devices;

pub use chardev::{CharDevReply, decode_reply, get_chardev};
pub use devices::{RdmaDevice, decode_device, rdma_devices, separate_namespaces};

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)`.
const fn nldev(command: u16) -> u16 {
    5 << 10 | command
}

/// Length of `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTR_HEADER: usize = 4;
/// Bits of an attribute type that are flags (nested, network byte order).
const ATTR_TYPE_MASK: u16 = 0x3FFF;
/// The number of the one request that a socket is opened for.
const SEQUENCE: u32 = 1;

/// A socket that has sent one request and has yet to receive the answer.
struct Exchange {
    socket: OwnedFd,
    step: &'static str,
}

impl Exchange {
    /// Sends `request`; `step` names the question in errors.
    ///
    /// # Errors
    ///
    /// The errno of the socket calls.
    fn begin(request: &[u8], step: &'static str) -> Result<Self> {
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let (family, protocol) = (libc::AF_NETLINK, libc::NETLINK_RDMA);
        // SAFETY: no pointers; what it opens is nobody else's.
        let socket = unsafe { opened(libc::socket(family, flags, protocol), step) }?;
        // An unconnected netlink socket sends to the kernel.
        // SAFETY: the pointer and the length are those of `request`.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                request.as_ptr().cast(),
                request.len(),
                0,
            )
        };
        if usize::try_from(sent) != Ok(request.len()) {
            return Err(Error::last_os(step));
        }
        Ok(Self { socket, step })
    }

    /// One datagram of the answer, into `buffer`. The kernel answers before a
    /// request returns, and goes on when a part was taken: no waiting.
    ///
    /// # Errors
    ///
    /// The errno of the socket; `EAGAIN` when there is nothing.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
        // SAFETY: the pointer and the length are those of `buffer`.
        let received = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        let received = usize::try_from(received).map_err(|_| Error::last_os(self.step))?;
        Ok(buffer.get(..received).unwrap_or_default())
    }
}

/// A request with at most one attribute.
fn encode(command: u16, flags: i32, attribute: Option<(u16, &[u8])>) -> Option<Vec<u8>> {
    let attr_len = match attribute {
        Some((_, value)) => ATTR_HEADER.checked_add(value.len())?,
        None => 0,
    };
    let total = MESSAGE_HEADER.checked_add(attr_len.next_multiple_of(4))?;

    let mut message = Vec::with_capacity(total);
    message.extend(u32::try_from(total).ok()?.to_ne_bytes());
    message.extend(command.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    if let Some((kind, value)) = attribute {
        message.extend(u16::try_from(attr_len).ok()?.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
        message.resize(total, 0);
    }
    Some(message)
}

/// One message of an answer.
struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

impl Message<'_> {
    /// The errno in an error message, which `step` met; `None` for any other
    /// message, or an error that is none.
    fn refusal(&self, step: &'static str) -> Option<Error> {
        if i32::from(self.kind) != libc::NLMSG_ERROR {
            return None;
        }
        let status = u32_at(self.body, 0)? as i32;
        Some(Error::new(status.checked_neg()?, step))
    }
}

/// The messages in a datagram that answer our request, up to the first
/// damaged or foreign one.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::try_from(u32_at(self.0, 0)?).ok()?;
        let message = self.0.get(..len)?;
        let body = message.get(MESSAGE_HEADER..)?;
        if u32_at(message, 8)? != SEQUENCE {
            return None;
        }
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16_at(message, 4)?,
            body,
        })
    }
}

/// Type and value of each attribute in a message, up to the first damaged one.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & ATTR_TYPE_MASK;
        let value = self.0.get(ATTR_HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}
