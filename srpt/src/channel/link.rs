//! What a channel wants of its queue pair and connection. The real one is
//! [`crate::endpoint`]; tests have one that remembers.

use rdmacm::Result;

use crate::wire::descriptor::Segment;

/// What a posted request was for; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A receive, by number.
    Receive(u16),
    /// Reads or writes for the command in this slot, which are so many.
    Transfer(u16, u16),
    /// The response of this slot, with the writes before it so many.
    Response(u16, u16),
    /// A request of the target's own.
    Request,
    /// The write that shows that all before it came back.
    Drain,
    /// A read or write that another request, behind it, speaks for. It comes
    /// back by itself only if it failed.
    Part,
    /// The target's logout.
    Logout,
}

impl Work {
    /// The work as the number that goes with a work request.
    pub fn encode(self) -> u64 {
        let (kind, slot, count) = match self {
            Self::Receive(number) => (0, number, 0),
            Self::Transfer(slot, count) => (1, slot, count),
            Self::Response(slot, count) => (2, slot, count),
            Self::Request => (3, 0, 0),
            Self::Drain => (4, 0, 0),
            Self::Part => (5, 0, 0),
            Self::Logout => (6, 0, 0),
        };
        kind << 32 | u64::from(slot) << 16 | u64::from(count)
    }

    /// The work that [`Work::encode`] made a number of.
    pub fn decode(id: u64) -> Option<Self> {
        let (slot, count) = ((id >> 16) as u16, id as u16);
        match id >> 32 {
            0 => Some(Self::Receive(slot)),
            1 => Some(Self::Transfer(slot, count)),
            2 => Some(Self::Response(slot, count)),
            3 => Some(Self::Request),
            4 => Some(Self::Drain),
            5 => Some(Self::Part),
            6 => Some(Self::Logout),
            _ => None,
        }
    }
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message.
    Send,
    /// Reads from the initiator's memory.
    Read(Segment),
    /// Writes to the initiator's memory.
    Write(Segment),
}

/// A request for the send queue. For reads and writes the segment's length
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// What it is for.
    pub work: Work,
    /// What to do.
    pub operation: Operation,
    /// Address of the local bytes.
    pub address: u64,
    /// Number of the local bytes.
    pub length: u32,
    /// Whether its completion is reported. Failures always are.
    pub signaled: bool,
}

/// A request for the receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Number of the receive.
    pub number: u16,
    /// Where to put the message.
    pub address: u64,
    /// Bytes of room.
    pub length: u32,
}

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What it was for.
    pub work: Work,
    /// Received bytes, or why not (`enum ibv_wc_status`).
    pub result: std::result::Result<u32, u32>,
}

/// A queue pair and its connection. All memory that requests name lies in the
/// channel's area.
pub trait Link {
    /// Posts requests in order, all at once. After a failure the queue pair is
    /// to be given up.
    ///
    /// # Errors
    /// What libibverbs says.
    fn post_send(&mut self, chain: &[SendRequest]) -> Result<()>;

    /// Posts receives.
    ///
    /// # Errors
    /// What libibverbs says.
    fn post_receive(&mut self, requests: &[ReceiveRequest]) -> Result<()>;

    /// Tells the peer that the connection ends.
    ///
    /// # Errors
    /// What the connection manager says.
    fn disconnect(&mut self) -> Result<()>;

    /// Puts the queue pair in error, so that all requests come back.
    ///
    /// # Errors
    /// What libibverbs says.
    fn fail(&mut self) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_survives_the_trip() {
        for work in [
            Work::Receive(u16::MAX),
            Work::Transfer(127, 64),
            Work::Response(1023, u16::MAX),
            Work::Request,
            Work::Drain,
            Work::Part,
            Work::Logout,
        ] {
            assert_eq!(Work::decode(work.encode()), Some(work));
        }
        assert_eq!(Work::decode(u64::MAX), None);
    }
}
