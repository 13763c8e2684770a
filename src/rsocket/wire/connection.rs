//! The private data of requests and replies.

use super::entry::{MAPPING_LEN, TARGET_LEN, Target};
use super::{put, take};

/// Bytes of [`ConnData`] in a request or reply.
pub const CONN_DATA_LEN: usize = 40;
/// Bytes before [`ConnData`] in a request between InfiniBand addresses; the
/// kernel puts its own header there for IP addresses.
pub const IB_HEADER_LEN: usize = 36;

const VERSION: u8 = 1;
const FLAG_BIG_ENDIAN: u8 = 1 << 0;
const FLAG_IOMAP: u8 = 1 << 1;
const FLAG_COUNTS_MAPPINGS: u8 = 1 << 2;

/// What each side tells the other when they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnData {
    /// The sender is a big-endian host.
    pub big_endian: bool,
    /// The sender's receiver counts iomap messages as consumed, so they are
    /// to be charged as messages. Peers that use the original do not.
    pub counts_mappings: bool,
    /// Data messages that the sender can take at first.
    pub credits: u16,
    /// Mappings that the sender has room for.
    pub mappings: u16,
    /// The sender's target list; `length` is its number of entries.
    pub target_list: Target,
    /// The first half of the sender's receive buffer.
    pub buffer: Target,
}

/// Why private data is no [`ConnData`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than needed.
    Short,
    /// Another version of the protocol.
    Version(u8),
}

impl ConnData {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; CONN_DATA_LEN] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = FLAG_IOMAP
            | flag(self.big_endian, FLAG_BIG_ENDIAN)
            | flag(self.counts_mappings, FLAG_COUNTS_MAPPINGS);
        let mut bytes = [0; CONN_DATA_LEN];
        let fields: [(usize, &[u8]); 10] = [
            (0, &[VERSION]),
            (1, &[flags]),
            (2, &self.credits.to_be_bytes()),
            (7, &[encode_mappings(self.mappings)]),
            (8, &self.target_list.addr.to_be_bytes()),
            (16, &self.target_list.key.to_be_bytes()),
            (20, &self.target_list.length.to_be_bytes()),
            (24, &self.buffer.addr.to_be_bytes()),
            (32, &self.buffer.key.to_be_bytes()),
            (36, &self.buffer.length.to_be_bytes()),
        ];
        for (offset, field) in fields {
            put(&mut bytes, offset, field);
        }
        bytes
    }

    /// Reads the private data of a request or reply; bytes beyond are padding.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are too few or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; CONN_DATA_LEN] = bytes.first_chunk().ok_or(Malformed::Short)?;
        let [version, flags] = take(bytes, 0);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let target = |offset| Target {
            addr: u64::from_be_bytes(take(bytes, offset)),
            key: u32::from_be_bytes(take(bytes, offset + 8)),
            length: u32::from_be_bytes(take(bytes, offset + 12)),
        };
        let [mappings] = take(bytes, 7);
        Ok(Self {
            big_endian: flags & FLAG_BIG_ENDIAN != 0,
            counts_mappings: flags & FLAG_COUNTS_MAPPINGS != 0,
            credits: u16::from_be_bytes(take(bytes, 2)),
            mappings: if flags & FLAG_IOMAP == 0 {
                0
            } else {
                decode_mappings(mappings)
            },
            target_list: target(8),
            buffer: target(24),
        })
    }

    /// Where the peer keeps the mapping `index`: behind its target list.
    pub fn mapping_address(&self, index: u16) -> u64 {
        let list = u64::from(self.target_list.length).wrapping_mul(TARGET_LEN as u64);
        let entry = u64::from(index).wrapping_mul(MAPPING_LEN as u64);
        self.target_list.addr.wrapping_add(list).wrapping_add(entry)
    }
}

/// The number of mappings that a count becomes on the wire.
pub fn round_mappings(count: u16) -> u16 {
    decode_mappings(encode_mappings(count))
}

fn encode_mappings(count: u16) -> u8 {
    match u8::try_from(count) {
        Ok(count) if count <= 128 => count,
        _ => 128 | count.to_be_bytes()[0],
    }
}

fn decode_mappings(code: u8) -> u16 {
    match code {
        0..=128 => u16::from(code),
        _ => u16::from(code & 127) << 8,
    }
}
