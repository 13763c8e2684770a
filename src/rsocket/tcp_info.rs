//! `TCP_INFO`: the state of a stream in the structure that programs know from
//! TCP. Members that mean nothing here are 0.

/// Bytes of `struct tcp_info` as far as all of Linux has it.
pub const LEN: usize = 104;

/// A state as in `<netinet/tcp.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Connected.
    Established = 1,
    /// Connecting.
    SynSent = 2,
    /// Being accepted.
    SynReceived = 3,
    /// The program has ended sending; the peer may still send.
    FinWait = 5,
    /// Not connected, or no more.
    Close = 7,
    /// The peer has ended sending.
    CloseWait = 8,
    /// Accepts connections.
    Listen = 10,
}

/// What is told of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Where it is in its life.
    pub state: State,
    /// Bytes of a packet.
    pub packet_length: u32,
    /// Messages that may be on their way.
    pub window: u32,
}

// Offsets in the structure.
const SND_MSS: usize = 16;
const RCV_MSS: usize = 20;
const PMTU: usize = 60;
const SND_CWND: usize = 80;

impl Info {
    /// The structure.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        let fields = [
            (SND_MSS, self.packet_length),
            (RCV_MSS, self.packet_length),
            (PMTU, self.packet_length),
            (SND_CWND, self.window),
        ];
        if let Some(state) = bytes.first_mut() {
            *state = self.state as u8;
        }
        for (offset, value) in fields {
            for (to, from) in bytes.iter_mut().skip(offset).zip(value.to_ne_bytes()) {
                *to = from;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_window_lie_where_programs_read_them() {
        let info = Info {
            state: State::Established,
            packet_length: 1024,
            window: 384,
        };
        let bytes = info.encode();
        assert_eq!((bytes.len(), bytes[0]), (LEN, 1));
        assert_eq!(bytes[80..84], 384u32.to_ne_bytes());
    }
}
