//! What stream rsockets say to each other: the private data of a connection,
//! the messages in immediate data, and the entries of the lists that one side
//! writes into the other's memory.
//!
//! Pure encoding and decoding. Whether a value makes sense at this point of a
//! connection is decided in [`super::flow`].

/// Bytes of [`ConnData`] in a request or reply.
pub const CONN_DATA_LEN: usize = 40;
/// Bytes before [`ConnData`] in a request between InfiniBand addresses; the
/// kernel puts its own header there for IP addresses.
pub const IB_HEADER_LEN: usize = 36;
/// Entries of a target list.
pub const TARGETS: u32 = 2;
/// Bytes of a [`Target`].
pub const TARGET_LEN: usize = 16;
/// Bytes of a [`Mapping`].
pub const MAPPING_LEN: usize = 24;
/// Bytes of a message that travels alone.
pub const WORD_LEN: usize = 4;
/// Most bytes that one data message can announce.
pub const MAX_MESSAGE: u32 = (1 << OP_SHIFT) - 1;

const VERSION: u8 = 1;
const FLAG_BIG_ENDIAN: u8 = 1 << 0;
const FLAG_IOMAP: u8 = 1 << 1;
const FLAG_COUNTS_MAPPINGS: u8 = 1 << 2;
const OP_SHIFT: u32 = 29;

/// A range of the peer's memory that may be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Address in the memory's owner.
    pub addr: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes; in [`ConnData::target_list`] entries.
    pub length: u32,
}

/// A range of memory that its owner exposes under an offset of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First offset.
    pub offset: u64,
    /// The memory behind it.
    pub memory: Target,
}

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

/// Whether this host is big-endian.
pub const BIG_ENDIAN: bool = cfg!(target_endian = "big");

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

/// A message: what the immediate data of an RDMA write says, or a send of its
/// own where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// So many bytes of data were written.
    Data(u32),
    /// Messages may be sent until their count reaches this value.
    Grant(u16),
    /// The mapping of this index was written.
    Mapping(u16),
    /// The sender will neither send nor receive.
    Disconnect,
    /// The sender will not send any more.
    Shutdown,
    /// Nothing to act on: keep-alive messages and values unknown.
    Ignored,
}

const OP_DATA: u32 = 0;
const OP_GRANT: u32 = 4;
const OP_MAPPING: u32 = 6;
const OP_CONTROL: u32 = 7;
const CONTROL_DISCONNECT: u32 = 0;
const CONTROL_SHUTDOWN: u32 = 2;
const CONTROL_KEEPALIVE: u32 = 1;

impl Message {
    /// The immediate data in host order.
    pub fn encode(self) -> u32 {
        let (op, value) = match self {
            Self::Data(length) => (OP_DATA, length & MAX_MESSAGE),
            Self::Grant(limit) => (OP_GRANT, u32::from(limit)),
            Self::Mapping(index) => (OP_MAPPING, u32::from(index)),
            Self::Disconnect => (OP_CONTROL, CONTROL_DISCONNECT),
            Self::Shutdown => (OP_CONTROL, CONTROL_SHUTDOWN),
            Self::Ignored => (OP_CONTROL, CONTROL_KEEPALIVE),
        };
        op << OP_SHIFT | value
    }

    /// Reads immediate data given in host order.
    pub fn decode(word: u32) -> Self {
        let value = word & MAX_MESSAGE;
        // Limits and indices have 16 bits; a limit may carry into the 17th.
        let low = (value & 0xFFFF) as u16;
        match (word >> OP_SHIFT, value) {
            (OP_DATA, length) => Self::Data(length),
            (OP_GRANT, _) => Self::Grant(low),
            (OP_MAPPING, _) => Self::Mapping(low),
            (OP_CONTROL, CONTROL_DISCONNECT) => Self::Disconnect,
            (OP_CONTROL, CONTROL_SHUTDOWN) => Self::Shutdown,
            _ => Self::Ignored,
        }
    }

    /// The bytes of a send: in the order of this host, unlike immediate data.
    pub fn to_word(self) -> [u8; WORD_LEN] {
        self.encode().to_ne_bytes()
    }

    /// Reads the bytes of a send of a host whose byte order may be the
    /// `swapped` one.
    pub fn from_word(word: [u8; WORD_LEN], swapped: bool) -> Self {
        let word = u32::from_ne_bytes(word);
        Self::decode(if swapped { word.swap_bytes() } else { word })
    }
}

impl Target {
    /// The entry as its reader, whose byte order may be the `swapped` one,
    /// keeps it in memory.
    pub fn encode(&self, swapped: bool) -> [u8; TARGET_LEN] {
        let mut bytes = [0; TARGET_LEN];
        put(&mut bytes, 0, &native64(self.addr, swapped));
        put(&mut bytes, 8, &native32(self.key, swapped));
        put(&mut bytes, 12, &native32(self.length, swapped));
        bytes
    }

    /// An entry of this host's own list.
    pub fn decode(bytes: &[u8; TARGET_LEN]) -> Self {
        Self {
            addr: u64::from_ne_bytes(take(bytes, 0)),
            key: u32::from_ne_bytes(take(bytes, 8)),
            length: u32::from_ne_bytes(take(bytes, 12)),
        }
    }
}

impl Mapping {
    /// As [`Target::encode`].
    pub fn encode(&self, swapped: bool) -> [u8; MAPPING_LEN] {
        let mut bytes = [0; MAPPING_LEN];
        put(&mut bytes, 0, &native64(self.offset, swapped));
        put(&mut bytes, 8, &self.memory.encode(swapped));
        bytes
    }

    /// As [`Target::decode`].
    pub fn decode(bytes: &[u8; MAPPING_LEN]) -> Self {
        Self {
            offset: u64::from_ne_bytes(take(bytes, 0)),
            memory: Target::decode(&take(bytes, 8)),
        }
    }
}

fn native64(value: u64, swapped: bool) -> [u8; 8] {
    if swapped { value.swap_bytes() } else { value }.to_ne_bytes()
}

fn native32(value: u32, swapped: bool) -> [u8; 4] {
    if swapped { value.swap_bytes() } else { value }.to_ne_bytes()
}

/// The `N` bytes at `offset`, which lie within `bytes` for all callers.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

fn put(bytes: &mut [u8], offset: usize, field: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(offset).zip(field) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target() -> impl Strategy<Value = Target> {
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, key, length)| Target {
            addr,
            key,
            length,
        })
    }

    fn swap(target: Target) -> Target {
        Target {
            addr: target.addr.swap_bytes(),
            key: target.key.swap_bytes(),
            length: target.length.swap_bytes(),
        }
    }

    proptest! {
        #[test]
        fn connection_data_survives(
            (big_endian, counts_mappings) in any::<(bool, bool)>(),
            credits in any::<u16>(),
            mappings in any::<u16>(),
            target_list in target(),
            buffer in target(),
            padding in 0usize..200,
        ) {
            let data = ConnData {
                big_endian,
                counts_mappings,
                credits,
                mappings: round_mappings(mappings),
                target_list,
                buffer,
            };
            let mut bytes = data.encode().to_vec();
            bytes.resize(CONN_DATA_LEN + padding, 0);
            prop_assert_eq!(ConnData::decode(&bytes), Ok(data));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            match ConnData::decode(&bytes) {
                Ok(_) => prop_assert!(bytes.len() >= CONN_DATA_LEN && bytes[0] == 1),
                Err(Malformed::Short) => prop_assert!(bytes.len() < CONN_DATA_LEN),
                Err(Malformed::Version(version)) => prop_assert_eq!(version, bytes[0]),
            }
        }

        #[test]
        fn messages_survive(value in 0..=MAX_MESSAGE, low in any::<u16>()) {
            for message in [
                Message::Data(value),
                Message::Grant(low),
                Message::Mapping(low),
                Message::Disconnect,
                Message::Shutdown,
                Message::Ignored,
            ] {
                prop_assert_eq!(Message::decode(message.encode()), message);
                let mut word = message.to_word();
                prop_assert_eq!(Message::from_word(word, false), message);
                word.reverse();
                prop_assert_eq!(Message::from_word(word, true), message);
            }
        }

        #[test]
        fn list_entries_are_in_the_order_of_their_reader(entry in target(), offset in any::<u64>()) {
            prop_assert_eq!(Target::decode(&entry.encode(false)), entry);
            prop_assert_eq!(Target::decode(&entry.encode(true)), swap(entry));
            let mapping = Mapping { offset, memory: entry };
            prop_assert_eq!(Mapping::decode(&mapping.encode(false)), mapping);
            prop_assert_eq!(Mapping::decode(&mapping.encode(true)).memory, swap(entry));
        }
    }

    #[test]
    fn the_fields_lie_where_the_original_reads_them() {
        let data = ConnData {
            big_endian: false,
            counts_mappings: false,
            credits: 384,
            mappings: 1000,
            target_list: Target {
                addr: 0x0102_0304_0506_0708,
                key: 0x1112_1314,
                length: TARGETS,
            },
            buffer: Target {
                addr: 0x2122_2324_2526_2728,
                key: 0x3132_3334,
                length: 65536,
            },
        };
        let expected = [
            1, 2, 1, 128, 0, 0, 0, 131, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2,
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 1, 0, 0,
        ];
        assert_eq!(data.encode(), expected);
        assert_eq!(data.mapping_address(2), 0x0102_0304_0506_0708 + 32 + 48);
    }

    #[test]
    fn mapping_counts_are_rounded_as_on_the_wire() {
        for (count, rounded) in [
            (0, 0),
            (1, 1),
            (128, 128),
            (129, 128),
            (255, 128),
            (256, 256),
            (300, 256),
            (1000, 768),
            (32767, 32512),
        ] {
            assert_eq!(round_mappings(count), rounded, "{count}");
        }
    }

    #[test]
    fn sends_of_either_byte_order_are_read() {
        let little = [0x05, 0, 0, 0x80];
        let big = [0x80, 0, 0, 0x05];
        for (word, swapped) in [(little, BIG_ENDIAN), (big, !BIG_ENDIAN)] {
            assert_eq!(Message::from_word(word, swapped), Message::Grant(5));
        }
    }

    #[test]
    fn grants_beyond_sixteen_bits_wrap() {
        assert_eq!(Message::decode(4 << 29 | 0x1_0005), Message::Grant(5));
    }

    #[test]
    fn unknown_operations_are_ignored() {
        for op in [1, 2, 3, 5] {
            assert_eq!(Message::decode(op << 29 | 7), Message::Ignored);
        }
        assert_eq!(Message::decode(7 << 29 | 99), Message::Ignored);
    }
}
