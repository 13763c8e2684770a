//! How messages travel: as immediate data of a write or, where the device has
//! none (iWARP), as a send of their own behind the write. Which message is
//! posted when is not decided here.

use std::mem::MaybeUninit;

use crate::cm::device::Transport;
use crate::lock::atomic::{AtomicUsize, Ordering};
use crate::verbs::bindings::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    ibv_send_wr, ibv_sge,
};

use super::flow::CONTROL_SLOTS;
use super::wire::{Message, Target, WORD_LEN};

/// Receives that may have completed and not be posted again yet.
const LATE_RECEIVES: u16 = 16;

/// A write to the peer's memory.
#[derive(Clone, Copy)]
pub struct Write {
    /// Where to; ignored without data.
    pub target: Target,
    /// What to tell the peer, if it is a message.
    pub message: Option<Message>,
    /// Identifier of the work request, `ibv_wc.wr_id` of its completion.
    pub id: u64,
    /// Its completion is to be reported.
    pub signaled: bool,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// In the immediate data of a write.
    Immediate,
    /// In a send of [`WORD_LEN`] bytes, which the peer takes after what was
    /// written before.
    Send,
}

impl Carrier {
    /// That of a transport; `None` if sockets do not work on it.
    pub fn of(transport: Transport) -> Option<Self> {
        match transport {
            Transport::InfiniBand => Some(Self::Immediate),
            Transport::Iwarp => Some(Self::Send),
            Transport::Other => None,
        }
    }

    /// Work requests that a write with a message takes.
    pub fn requests(self) -> u16 {
        match self {
            Self::Immediate => 1,
            Self::Send => 2,
        }
    }

    /// Receives to be posted besides those that the peer has credits for.
    /// Without a retry on a missing receive (iWARP) there must be one for each
    /// control message that can be on its way: two grants of halves, two of
    /// credits, the end of either direction.
    pub fn spare_receives(self) -> u16 {
        match self {
            Self::Immediate => CONTROL_SLOTS + LATE_RECEIVES,
            Self::Send => 2 * CONTROL_SLOTS,
        }
    }

    /// Of these, those that may be missing for a while after they completed,
    /// so that many are posted by one call.
    pub fn late_receives(self) -> u16 {
        match self {
            Self::Immediate => LATE_RECEIVES,
            Self::Send => 0,
        }
    }

    /// Bytes of each receive.
    pub fn receive_length(self) -> usize {
        match self {
            Self::Immediate => 0,
            Self::Send => WORD_LEN,
        }
    }

    /// RDMA reads that the side which connects may have outstanding: iWARP may
    /// make one to set up a connection.
    pub fn initiator_depth(self) -> u8 {
        match self {
            Self::Immediate => 0,
            Self::Send => 1,
        }
    }
}

/// Room for the work requests of a write.
pub struct Requests {
    write: MaybeUninit<ibv_send_wr>,
    /// A send behind it, with what it sends.
    send: MaybeUninit<ibv_send_wr>,
    part: MaybeUninit<ibv_sge>,
    word: MaybeUninit<[u8; WORD_LEN]>,
}

impl Requests {
    /// Room, with nothing in it.
    pub const fn room() -> Self {
        Self {
            write: MaybeUninit::uninit(),
            send: MaybeUninit::uninit(),
            part: MaybeUninit::uninit(),
            word: MaybeUninit::uninit(),
        }
    }

    /// Makes those of a write of `parts`. Returns the first of them, a list.
    #[inline(always)] // as for its caller
    pub fn make<'a>(
        &'a mut self,
        carrier: Carrier,
        write: &Write,
        parts: &'a mut [ibv_sge],
        flags: u32,
    ) -> &'a mut ibv_send_wr {
        let signaled = if write.signaled { IBV_SEND_SIGNALED } else { 0 };
        let wr = self.write.write(blank(write.id));
        wr.sg_list = parts.as_mut_ptr();
        wr.num_sge = parts.len() as i32;
        wr.send_flags = flags | signaled;
        wr.opcode = IBV_WR_RDMA_WRITE;
        if !parts.is_empty() {
            wr.wr.rdma.remote_addr = write.target.addr;
            wr.wr.rdma.rkey = write.target.key;
        }
        match (carrier, write.message) {
            (_, None) => {}
            (Carrier::Immediate, Some(message)) => {
                wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                wr.__bindgen_anon_1.imm_data = message.encode().to_be();
            }
            (Carrier::Send, Some(message)) => {
                let word = self.word.write(message.to_word());
                let part = self.part.write(ibv_sge {
                    addr: word.as_ptr() as u64,
                    length: WORD_LEN as u32,
                    lkey: 0,
                });
                let send = self.send.write(blank(write.id));
                send.sg_list = part;
                send.num_sge = 1;
                send.send_flags = IBV_SEND_INLINE | signaled;
                send.opcode = IBV_WR_SEND;
                if parts.is_empty() {
                    return send;
                }
                // Completions come in order: the send reports for both.
                wr.send_flags = flags;
                wr.next = send;
            }
        }
        wr
    }
}

fn blank(id: u64) -> ibv_send_wr {
    // SAFETY: plain numbers and pointers, for which zero is valid.
    let mut wr: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    wr.wr_id = id;
    wr
}

/// The places of received messages, which the device fills in the order in
/// which they are posted. Posts and takes are serialized by the connection.
#[derive(Debug)]
pub struct Places {
    count: usize,
    posted: AtomicUsize,
    taken: AtomicUsize,
}

impl Places {
    /// So many places, none posted.
    pub fn new(count: u16) -> Self {
        Self {
            count: usize::from(count).max(1),
            posted: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// The place to post next.
    pub fn post(&self) -> usize {
        self.posted.fetch_add(1, Ordering::Relaxed) % self.count
    }

    /// The place that was filled next.
    pub fn take(&self) -> usize {
        self.taken.fetch_add(1, Ordering::Relaxed) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the device sees of a request: opcode, flags, identifier, remote
    /// address, and the bytes of each part.
    #[derive(Debug, PartialEq, Eq)]
    struct Seen {
        opcode: u32,
        flags: u32,
        id: u64,
        remote: u64,
        data: Vec<u8>,
        immediate: u32,
    }

    fn seen(carrier: Carrier, write: &Write, data: &[u8]) -> Vec<Seen> {
        let part = ibv_sge {
            addr: data.as_ptr() as u64,
            length: data.len() as u32,
            lkey: 0,
        };
        let mut parts = [part];
        let parts = if data.is_empty() {
            &mut []
        } else {
            &mut parts[..]
        };
        let mut requests = Requests::room();
        let mut next: *mut ibv_send_wr = requests.make(carrier, write, parts, 0);
        let mut seen = Vec::new();
        // SAFETY: the list lives as long as the room for it.
        while let Some(wr) = unsafe { next.as_ref() } {
            let mut data = Vec::new();
            for index in 0..wr.num_sge as usize {
                // SAFETY: so many parts, of which each is readable.
                data.extend(unsafe {
                    let part = &*wr.sg_list.add(index);
                    std::slice::from_raw_parts(part.addr as *const u8, part.length as usize)
                });
            }
            // SAFETY: all bytes of the unions are set, to any numbers.
            let (remote, immediate) =
                unsafe { (wr.wr.rdma.remote_addr, wr.__bindgen_anon_1.imm_data) };
            seen.push(Seen {
                opcode: wr.opcode,
                flags: wr.send_flags,
                id: wr.wr_id,
                remote,
                data,
                immediate,
            });
            next = wr.next;
        }
        seen
    }

    fn write(message: Option<Message>) -> Write {
        Write {
            target: Target {
                addr: 0x7000,
                key: 9,
                length: 16,
            },
            message,
            id: 42,
            signaled: true,
        }
    }

    fn request(opcode: u32, flags: u32, remote: u64, data: &[u8], immediate: u32) -> Seen {
        Seen {
            opcode,
            flags,
            id: 42,
            remote,
            data: data.to_vec(),
            immediate,
        }
    }

    const SEND_FLAGS: u32 = IBV_SEND_INLINE | IBV_SEND_SIGNALED;

    #[test]
    fn a_message_with_data_is_one_write_or_a_write_and_a_send() {
        let grant = Message::Grant(0x0180);
        assert_eq!(
            seen(Carrier::Immediate, &write(Some(grant)), b"target"),
            [request(
                IBV_WR_RDMA_WRITE_WITH_IMM,
                IBV_SEND_SIGNALED,
                0x7000,
                b"target",
                0x8000_0180_u32.to_be()
            )]
        );
        assert_eq!(
            seen(Carrier::Send, &write(Some(grant)), b"target"),
            [
                request(IBV_WR_RDMA_WRITE, 0, 0x7000, b"target", 0),
                request(
                    IBV_WR_SEND,
                    SEND_FLAGS,
                    0,
                    &0x8000_0180_u32.to_ne_bytes(),
                    0
                ),
            ]
        );
    }

    #[test]
    fn a_message_without_data_is_sent_alone() {
        assert_eq!(
            seen(Carrier::Send, &write(Some(Message::Shutdown)), b""),
            [request(
                IBV_WR_SEND,
                SEND_FLAGS,
                0,
                &0xE000_0002_u32.to_ne_bytes(),
                0
            )]
        );
    }

    #[test]
    fn what_is_no_message_is_written_alone() {
        for carrier in [Carrier::Immediate, Carrier::Send] {
            assert_eq!(
                seen(carrier, &write(None), b"mapped"),
                [request(
                    IBV_WR_RDMA_WRITE,
                    IBV_SEND_SIGNALED,
                    0x7000,
                    b"mapped",
                    0
                )]
            );
        }
    }

    proptest! {
        #[test]
        fn no_list_is_longer_than_the_carrier_says(
            value in any::<u32>(),
            data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let message = Message::decode(value);
            for carrier in [Carrier::Immediate, Carrier::Send] {
                let seen = seen(carrier, &write(Some(message)), &data);
                prop_assert!(seen.len() <= usize::from(carrier.requests()));
                let reported = seen.iter().filter(|seen| seen.flags & IBV_SEND_SIGNALED != 0);
                prop_assert_eq!(reported.count(), 1);
                prop_assert!(seen.last().unwrap().flags & IBV_SEND_SIGNALED != 0);
            }
        }

        #[test]
        fn places_are_taken_as_they_were_posted(
            count in 1u16..100,
            batches in prop::collection::vec(1usize..50, 1..40),
        ) {
            let places = Places::new(count);
            let mut posted: std::collections::VecDeque<_> =
                (0..count).map(|_| places.post()).collect();
            prop_assert_eq!(posted.iter().collect::<std::collections::BTreeSet<_>>().len(), usize::from(count));
            for batch in batches {
                let batch = batch.min(posted.len());
                for place in posted.drain(..batch) {
                    prop_assert_eq!(places.take(), place);
                }
                posted.extend((0..batch).map(|_| places.post()));
            }
        }
    }

    #[test]
    fn the_transport_decides() {
        assert_eq!(Carrier::of(Transport::InfiniBand), Some(Carrier::Immediate));
        assert_eq!(Carrier::of(Transport::Iwarp), Some(Carrier::Send));
        assert_eq!(Carrier::of(Transport::Other), None);
        assert_eq!(Carrier::Immediate.initiator_depth(), 0);
        assert_eq!(Carrier::Send.initiator_depth(), 1);
    }
}
