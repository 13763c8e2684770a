//! What the identifiers of work requests say.

use crate::rsocket::endpoint::RECEIVE;
use crate::rsocket::flow::Cost;

/// What the identifier of a work request says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A receive.
    Receive,
    /// Data, with what it and those before it return.
    Data(Cost),
    /// A control message, as before.
    Control(Cost),
    /// The message that ends sending.
    Shutdown(Cost),
    /// The message that ends the connection.
    Disconnect(Cost),
}

impl Work {
    /// The identifier.
    pub fn encode(self) -> u64 {
        let (kind, cost) = match self {
            Self::Receive => return RECEIVE,
            Self::Data(cost) => (0u64, cost),
            Self::Control(cost) => (1, cost),
            Self::Shutdown(cost) => (2, cost),
            Self::Disconnect(cost) => (3, cost),
        };
        kind << 48 | u64::from(cost.slots) << 32 | u64::from(cost.bytes)
    }

    /// What an identifier says.
    pub fn decode(id: u64) -> Self {
        if id == RECEIVE {
            return Self::Receive;
        }
        let cost = Cost {
            slots: (id >> 32 & 0xFFFF) as u16,
            bytes: (id & 0xFFFF_FFFF) as u32,
        };
        match id >> 48 {
            0 => Self::Data(cost),
            1 => Self::Control(cost),
            2 => Self::Shutdown(cost),
            _ => Self::Disconnect(cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_survives_its_identifier() {
        let cost = Cost {
            slots: 65535,
            bytes: u32::MAX,
        };
        for work in [
            Work::Receive,
            Work::Data(Cost::default()),
            Work::Data(cost),
            Work::Control(cost),
            Work::Shutdown(cost),
            Work::Disconnect(cost),
        ] {
            assert_eq!(Work::decode(work.encode()), work);
        }
    }
}
