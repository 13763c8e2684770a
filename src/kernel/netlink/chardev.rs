//! The request that finds a character device.
//!
//! `RDMA_NLDEV_CMD_GET_CHARDEV` makes the kernel load the module that provides
//! the device, create its node, and tell device number, name and interface
//! version.

use super::{Attributes, Exchange, Messages, encode, nldev, u64_at};
use crate::error::{Error, Result};

const STEP: &str = "ask the kernel for the character device";

const GET_CHARDEV: u16 = nldev(15);
const ATTR_CHARDEV_TYPE: u16 = 69;
const ATTR_CHARDEV_NAME: u16 = 70;
const ATTR_CHARDEV_ABI: u16 = 71;
const ATTR_CHARDEV: u16 = 72;

/// The kernel limits names to 64 bytes with the terminating zero.
const NAME_SIZE: usize = 64;

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
    let request = encode_request(kind).ok_or(Error::invalid(STEP))?;
    let exchange = Exchange::begin(&request, STEP)?;
    decode_reply(exchange.receive(&mut [0; 4096])?)
}

/// The request for the device of `kind`.
fn encode_request(kind: &str) -> Option<Vec<u8>> {
    let value = [kind.as_bytes(), &[0]].concat();
    let attribute = (ATTR_CHARDEV_TYPE, value.as_slice());
    encode(GET_CHARDEV, libc::NLM_F_REQUEST, Some(attribute))
}

/// Reads the kernel's answer.
///
/// # Errors
///
/// The errno in an error message of the kernel; `EPROTO` for a message that is
/// damaged, of another type or request, or lacks one of the three attributes.
pub fn decode_reply(answer: &[u8]) -> Result<CharDevReply> {
    decode(answer).unwrap_or(Err(Error::new(libc::EPROTO, STEP)))
}

/// As [`decode_reply`], `None` for a message that makes no sense.
fn decode(answer: &[u8]) -> Option<Result<CharDevReply>> {
    let message = Messages(answer).next()?;
    if let Some(error) = message.refusal(STEP) {
        return Some(Err(error));
    }
    if message.kind != GET_CHARDEV {
        return None;
    }
    let (mut dev, mut abi, mut name) = (None, None, None);
    for (kind, value) in Attributes(message.body) {
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

#[cfg(test)]
mod tests;
