//! The netlink request that finds a character device of the RDMA subsystem.
//!
//! `RDMA_NLDEV_CMD_GET_CHARDEV` (`<rdma/rdma_netlink.h>`) makes the kernel load
//! the module that provides the device, create its node, and tell device
//! number, name and interface version. What to do when that fails is not known
//! here. Encoding and decoding are pure functions; data from the socket is
//! checked before use.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

const STEP: &str = "ask the kernel for the character device";

/// `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET_CHARDEV)`.
const GET_CHARDEV: u16 = 5 << 10 | 15;
const ATTR_CHARDEV_TYPE: u16 = 69;
const ATTR_CHARDEV_NAME: u16 = 70;
const ATTR_CHARDEV_ABI: u16 = 71;
const ATTR_CHARDEV: u16 = 72;

/// Length of `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTR_HEADER: usize = 4;
/// The kernel limits names to 64 bytes with the terminating zero.
const NAME_SIZE: usize = 64;
/// Bits of an attribute type that are flags (nested, network byte order).
const ATTR_TYPE_MASK: u16 = 0x3FFF;

/// The kernel's answer: a character device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharDevReply {
    /// Device number in libc's encoding.
    pub dev: libc::dev_t,
    /// Interface version.
    pub abi: u32,
    /// File name below `/dev/infiniband`.
    pub name: String,
}

/// Asks the kernel for the character device of the interface `kind`, such as
/// `rdma_cm`. Loads the kernel module if need be, which may take a moment;
/// otherwise does not block.
///
/// # Errors
///
/// The errno of the socket calls or of the kernel's refusal; `EPROTO` for an
/// answer that makes no sense.
pub fn get_chardev(kind: &str) -> Result<CharDevReply> {
    const SEQUENCE: u32 = 1;
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, flags, libc::NETLINK_RDMA) };
    if fd < 0 {
        return Err(Error::last_os(STEP));
    }
    // SAFETY: the descriptor was just opened and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };

    // An unconnected netlink socket sends to the kernel.
    let request = encode_request(kind, SEQUENCE)?;
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
        return Err(Error::last_os(STEP));
    }
    // The kernel answers before the request returns, so there is no waiting.
    let mut buffer = [0u8; 4096];
    // SAFETY: the pointer and the length are those of `buffer`.
    let received = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    let received = usize::try_from(received).map_err(|_| Error::last_os(STEP))?;
    decode_reply(buffer.get(..received).unwrap_or_default(), SEQUENCE)
}

/// The request for the device of `kind`.
fn encode_request(kind: &str, sequence: u32) -> Result<Vec<u8>> {
    let too_long = |_| Error::invalid(STEP);
    let value_len = kind.len() + 1;
    let attr_len = u16::try_from(ATTR_HEADER + value_len).map_err(too_long)?;
    let total = MESSAGE_HEADER + usize::from(attr_len).next_multiple_of(4);

    let mut message = Vec::with_capacity(total);
    message.extend(u32::try_from(total).map_err(too_long)?.to_ne_bytes());
    message.extend(GET_CHARDEV.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(attr_len.to_ne_bytes());
    message.extend(ATTR_CHARDEV_TYPE.to_ne_bytes());
    message.extend(kind.as_bytes());
    message.resize(total, 0);
    Ok(message)
}

/// Reads the kernel's answer to the request with the number `sequence`.
///
/// # Errors
///
/// The errno in an error message of the kernel; `EPROTO` for a message that is
/// damaged, of another type or sequence, or lacks one of the three attributes.
pub fn decode_reply(message: &[u8], sequence: u32) -> Result<CharDevReply> {
    decode(message, sequence).unwrap_or(Err(Error::new(libc::EPROTO, STEP)))
}

/// As [`decode_reply`], `None` for a message that makes no sense.
fn decode(message: &[u8], sequence: u32) -> Option<Result<CharDevReply>> {
    let len = usize::try_from(u32_at(message, 0)?).ok()?;
    let message = message.get(..len)?;
    let body = message.get(MESSAGE_HEADER..)?;
    if u32_at(message, 8)? != sequence {
        return None;
    }
    let kind = u16_at(message, 4)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let status = u32_at(body, 0)? as i32;
        return Some(Err(Error::new(status.checked_neg()?, STEP)));
    }
    if kind != GET_CHARDEV {
        return None;
    }

    let (mut dev, mut abi, mut name) = (None, None, None);
    for (kind, value) in Attributes(body) {
        match kind {
            ATTR_CHARDEV => dev = u64_at(value, 0),
            ATTR_CHARDEV_ABI => abi = u64_at(value, 0),
            ATTR_CHARDEV_NAME => name = decode_name(value),
            _ => {}
        }
    }
    Some(Ok(CharDevReply {
        dev: decode_dev(dev?),
        // The upper half is reserved.
        abi: abi? as u32,
        name: name?,
    }))
}

/// A file name: not empty, no directory, shorter than the kernel's limit.
fn decode_name(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(value.get(..end)?).ok()?;
    let valid = !name.is_empty() && name.len() < NAME_SIZE && !name.contains('/');
    valid.then(|| name.to_owned())
}

/// From the kernel's encoding of device numbers to libc's.
fn decode_dev(dev: u64) -> libc::dev_t {
    let major = (dev >> 8) & 0xFFF;
    let minor = (dev & 0xFF) | ((dev >> 12) & 0xF_FF00);
    libc::makedev(major as u32, minor as u32)
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

#[cfg(test)]
mod tests;
