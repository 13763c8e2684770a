//! A peer of a stream socket that says anything: its connection data, then
//! messages, between sends and receives of the program. Nothing is read or
//! written outside of the buffers, and no more than was granted is taken.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmacm::rsocket::flow::{Inbox, Outbox};
use rdmacm::rsocket::mapping::locate;
use rdmacm::rsocket::wire::{ConnData, MAPPING_LEN, Mapping, Message, TARGET_LEN, Target};

const CAPACITY: usize = 8192;
const QUEUE: u16 = 64;

fuzz_target!(|bytes: &[u8]| {
    let Ok(peer) = ConnData::decode(bytes) else {
        return;
    };
    let mut inbox = Inbox::new(CAPACITY, QUEUE, peer.target_list.length);
    let mut outbox = Outbox::new(CAPACITY, QUEUE, &peer);
    for step in bytes.get(40..).unwrap_or_default().chunks_exact(24) {
        let word = u32::from_be_bytes([step[0], step[1], step[2], step[3]]);
        match Message::decode(word) {
            Message::Data(length) => {
                let _ = inbox.deliver(length);
            }
            Message::Grant(limit) => {
                let mut target = [0; TARGET_LEN];
                target.copy_from_slice(&step[8..24]);
                let target = Target::decode(&target);
                outbox.grant(limit, (step[4] & 1 != 0).then_some(target));
            }
            Message::Mapping(index) => {
                inbox.count_message();
                let mut mapping = [0; MAPPING_LEN];
                mapping.copy_from_slice(step);
                if let Some(found) = locate(&Mapping::decode(&mapping), u64::from(index)) {
                    assert!(found.length > 0);
                }
            }
            Message::Disconnect | Message::Shutdown | Message::Ignored => {}
        }
        let wanted = usize::from(step[5]) * 40 + 1;
        let gathered = if step[4] & 2 != 0 {
            outbox.gather(wanted, 4096)
        } else {
            None
        };
        if let Some((offset, length)) = gathered {
            assert!(offset < CAPACITY && length <= wanted && length <= CAPACITY);
        }
        let draft = outbox.take_draft();
        if let Some(segment) = draft.or_else(|| outbox.take_segment(wanted, 64)) {
            assert!(segment.length > 0 && segment.length <= CAPACITY);
            assert!(segment.inline || segment.offset < CAPACITY);
            if let Some(cost) = outbox.report() {
                outbox.complete(cost);
            }
        }
        let (offset, length) = inbox.span(0, usize::from(step[6]) * 40);
        assert!(offset + length <= CAPACITY && inbox.unread() <= CAPACITY);
        inbox.consume(length);
        if let Some(grant) = inbox.grant_due() {
            if let Some(half) = grant.half {
                assert!(half.offset + half.length <= CAPACITY);
                assert!(half.entry < peer.target_list.length.max(1));
            }
            inbox.granted(&grant);
        }
    }
});
