//! Which RDMA devices the kernel has, whether or not libibverbs can use them,
//! and whether each network namespace has its own.

use super::{Attributes, Exchange, Messages, encode, nldev, u32_at};
use crate::error::{Error, Result};

const STEP: &str = "ask the kernel for its RDMA devices";

const GET: u16 = nldev(1);
const SYS_GET: u16 = nldev(6);
const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const SYS_ATTR_NETNS_MODE: u16 = 66;

/// Datagrams that a list may have; far more than the kernel ever sends.
const MOST_PARTS: usize = 1024;

/// An RDMA device as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// The kernel's index.
    pub index: u32,
    /// The name, as `ibv_devices(1)` shows it.
    pub name: String,
}

/// All RDMA devices in the network namespace of the process. Does not block.
///
/// # Errors
///
/// The errno of the socket calls or of the kernel's refusal.
pub fn rdma_devices() -> Result<Vec<RdmaDevice>> {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
    let request = encode(GET, flags, None).ok_or(Error::invalid(STEP))?;
    let exchange = Exchange::begin(&request, STEP)?;
    let mut devices = Vec::new();
    let mut buffer = vec![0; 1 << 15];
    for _ in 0..MOST_PARTS {
        for message in Messages(exchange.receive(&mut buffer)?) {
            if i32::from(message.kind) == libc::NLMSG_DONE {
                return Ok(devices);
            }
            if let Some(error) = message.refusal(STEP) {
                return Err(error);
            }
            if message.kind == GET {
                devices.extend(decode_device(message.body));
            }
        }
    }
    Err(Error::new(libc::EPROTO, STEP))
}

/// The device that the attributes of one message describe.
pub fn decode_device(attributes: &[u8]) -> Option<RdmaDevice> {
    let (mut index, mut name) = (None, None);
    for (kind, value) in Attributes(attributes) {
        match kind {
            ATTR_DEV_INDEX => index = u32_at(value, 0),
            ATTR_DEV_NAME => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                name = Some(String::from_utf8_lossy(text).into_owned());
            }
            _ => {}
        }
    }
    Some(RdmaDevice {
        index: index?,
        name: name?,
    })
}

/// Whether each network namespace has RDMA devices of its own (`rdma system
/// set netns exclusive`) instead of seeing all. Does not block.
///
/// # Errors
///
/// The errno of the socket calls or of the kernel's refusal, `EPROTO` from a
/// kernel that does not tell (before Linux 5.2).
pub fn separate_namespaces() -> Result<bool> {
    let request = encode(SYS_GET, libc::NLM_F_REQUEST, None).ok_or(Error::invalid(STEP))?;
    let exchange = Exchange::begin(&request, STEP)?;
    let mut buffer = [0; 4096];
    let message = Messages(exchange.receive(&mut buffer)?).next();
    let unknown = Error::new(libc::EPROTO, STEP);
    let message = message.ok_or(unknown)?;
    if let Some(error) = message.refusal(STEP) {
        return Err(error);
    }
    decode_mode(message.body).ok_or(unknown)
}

/// Whether the attributes of the kernel's answer say "exclusive".
fn decode_mode(attributes: &[u8]) -> Option<bool> {
    Attributes(attributes)
        .find(|(kind, _)| *kind == SYS_ATTR_NETNS_MODE)
        .and_then(|(_, value)| value.first())
        .map(|shared| *shared == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.1 sent for `rxe0`, index 0, up to the name.
    const RXE0: [u8; 24] = [
        8, 0, 1, 0, 0, 0, 0, 0, // index
        9, 0, 2, 0, b'r', b'x', b'e', b'0', 0, 0, 0, 0, // name, padded
        4, 0, 77, 0, // an attribute unknown here
    ];

    #[test]
    fn a_device_has_index_and_name() {
        let expected = RdmaDevice {
            index: 0,
            name: "rxe0".to_owned(),
        };
        assert_eq!(decode_device(&RXE0), Some(expected));
        assert_eq!(decode_device(&RXE0[..8]), None);
        assert_eq!(decode_device(&RXE0[8..]), None);
    }

    #[test]
    fn the_mode_is_one_byte() {
        assert_eq!(decode_mode(&[5, 0, 66, 0, 0, 0, 0, 0]), Some(true));
        assert_eq!(decode_mode(&[5, 0, 66, 0, 1, 0, 0, 0]), Some(false));
        assert_eq!(decode_mode(&[4, 0, 66, 0]), None);
        assert_eq!(decode_mode(&[]), None);
    }
}
