//! Messages: immediate data, and sends of their own where there is none.

/// Bytes of a message that travels alone.
pub const WORD_LEN: usize = 4;
/// Most bytes that one data message can announce.
pub const MAX_MESSAGE: u32 = (1 << OP_SHIFT) - 1;

const OP_SHIFT: u32 = 29;
const OP_DATA: u32 = 0;
const OP_GRANT: u32 = 4;
const OP_MAPPING: u32 = 6;
const OP_CONTROL: u32 = 7;
const CONTROL_DISCONNECT: u32 = 0;
const CONTROL_SHUTDOWN: u32 = 2;
const CONTROL_KEEPALIVE: u32 = 1;

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
