//! Both sides of the flow control, also against each other.

use super::*;
use crate::rsocket::wire::{ConnData, Target};
use proptest::prelude::*;

fn peer(credits: u16, length: u32) -> ConnData {
    ConnData {
        big_endian: false,
        counts_mappings: false,
        credits,
        mappings: 0,
        target_list: Target {
            addr: 0,
            key: 1,
            length: 2,
        },
        buffer: Target {
            addr: 1 << 20,
            key: 2,
            length,
        },
    }
}

#[test]
fn the_second_half_is_granted_first() {
    let mut inbox = Inbox::new(8192, 384, 2);
    let grant = inbox.grant_due().unwrap();
    let half = Half {
        offset: 4096,
        length: 4096,
        entry: 1,
    };
    assert_eq!(grant.limit, 384);
    assert_eq!(grant.half, Some(half));
    inbox.granted(&grant);
    assert_eq!(inbox.grant_due(), None);
}

#[test]
fn a_half_returns_when_it_is_consumed() {
    let mut inbox = Inbox::new(8192, 384, 2);
    inbox.granted(&inbox.grant_due().unwrap());
    inbox.deliver(4096).unwrap();
    inbox.consume(4095);
    assert_eq!(inbox.grant_due(), None);
    inbox.consume(1);
    let half = inbox.grant_due().unwrap().half.unwrap();
    assert_eq!((half.offset, half.entry), (0, 0));
}

#[test]
fn a_grant_is_urgent_once_the_peer_has_less_than_a_half() {
    let mut inbox = Inbox::new(8192, 384, 2);
    inbox.granted(&inbox.grant_due().unwrap());
    inbox.deliver(4096).unwrap();
    inbox.consume(4096);
    assert!(inbox.owes_grant() && !inbox.owes_urgently());
    inbox.deliver(1).unwrap();
    assert!(inbox.owes_urgently());
}

#[test]
fn credits_return_when_half_of_them_are_consumed() {
    let mut inbox = Inbox::new(8192, 384, 2);
    inbox.granted(&inbox.grant_due().unwrap());
    for _ in 0..191 {
        inbox.deliver(1).unwrap();
    }
    inbox.consume(191);
    assert_eq!(inbox.grant_due(), None);
    inbox.deliver(1).unwrap();
    inbox.consume(1);
    let grant = inbox.grant_due().unwrap();
    assert_eq!((grant.limit, grant.half), (192 + 384, None));
}

#[test]
fn a_peer_cannot_overrun_the_buffer_or_the_queue() {
    let mut inbox = Inbox::new(8192, 16, 2);
    assert_eq!(inbox.deliver(4097), Err(Violation::Overrun));
    inbox.deliver(4096).unwrap();
    assert_eq!(inbox.deliver(1), Err(Violation::Overrun));
    let mut inbox = Inbox::new(8192, 16, 2);
    for _ in 0..16 {
        inbox.deliver(1).unwrap();
    }
    assert_eq!(inbox.deliver(1), Err(Violation::Credits));
}

#[test]
fn a_peer_without_room_or_credits_sends_no_more() {
    let mut inbox = Inbox::new(4096, 16, 2);
    inbox.deliver(2048).unwrap();
    assert!(!inbox.may_grow());
    inbox.granted(&inbox.grant_due().unwrap());
    assert!(inbox.may_grow());
    inbox.deliver(2048).unwrap();
    assert!(!inbox.may_grow());
    inbox.consume(4096);
    inbox.granted(&inbox.grant_due().unwrap());
    for _ in 0..16 {
        assert!(inbox.may_grow());
        inbox.deliver(1).unwrap();
    }
    assert!(!inbox.may_grow());
    // The grant of their credits is still to come.
    inbox.consume(1);
    assert!(!inbox.may_grow());
}

#[test]
fn sending_stops_at_the_end_of_a_target_and_resumes_in_the_next() {
    let mut outbox = Outbox::new(8192, 64, &peer(10, 1000));
    let first = outbox.take_segment(1500, 0).unwrap();
    assert_eq!((first.target.addr, first.length), (1 << 20, 1000));
    assert!(!outbox.can_send());
    outbox.grant(
        20,
        Some(Target {
            addr: 7,
            key: 3,
            length: 600,
        }),
    );
    let second = outbox.take_segment(500, 0).unwrap();
    assert_eq!((second.target.addr, second.length), (7, 500));
    let third = outbox.take_segment(500, 0).unwrap();
    assert_eq!((third.target.addr, third.length), (507, 100));
}

#[test]
fn no_more_messages_than_credits() {
    let mut outbox = Outbox::new(8192, 64, &peer(3, 1000));
    let sent = std::iter::from_fn(|| outbox.take_segment(1, 64)).count();
    assert_eq!(sent, 3);
}

#[test]
fn what_is_sent_whole_is_not_split() {
    let mut outbox = Outbox::new(8192, 64, &peer(10, 100));
    assert_eq!(outbox.take_whole(0), None);
    assert_eq!(outbox.take_whole(60).unwrap().addr, 1 << 20);
    assert_eq!(outbox.take_whole(60), None);
    assert_eq!(outbox.take_whole(40).unwrap().addr, (1 << 20) + 60);
    assert_eq!(outbox.take_whole(1), None);
}

#[test]
fn small_sends_gather_within_the_target() {
    let mut outbox = Outbox::new(8192, 64, &peer(1, 100));
    assert_eq!(outbox.gather(60, 4096), Some((0, 60)));
    assert_eq!(outbox.gather(60, 4096), Some((60, 40)));
    assert!(outbox.draft_is_full());
    assert_eq!(outbox.gather(20, 4096), None);
    let message = outbox.take_draft().unwrap();
    assert_eq!((message.target.addr, message.length), (1 << 20, 100));
    assert_eq!(outbox.gather(20, 4096), None, "no credit is left");
    assert!(!outbox.has_draft());
}

proptest! {
    /// Two sides that speak to each other: whatever the sizes, the sender
    /// never writes where it must not and everything arrives in order.
    #[test]
    fn both_sides_agree(
        halves in 1usize..40,
        queue in 16u16..64,
        steps in prop::collection::vec(
            (1usize..5000, 1usize..5000, 0usize..4, any::<bool>()),
            1..200,
        ),
    ) {
        let capacity = halves * 512;
        let mut inbox = Inbox::new(capacity, queue, 2);
        let mut outbox = Outbox::new(16384, 64, &ConnData {
            buffer: Target { addr: 0, key: 0, length: (capacity / 2) as u32 },
            ..peer(queue, 0)
        });
        let mut written = 0usize;
        for (send, receive, gathers, whole) in steps {
            while let Some(grant) = inbox.grant_due() {
                inbox.granted(&grant);
                outbox.grant(grant.limit, grant.half.map(|half| Target {
                    addr: half.offset as u64,
                    key: 0,
                    length: half.length as u32,
                }));
            }
            for _ in 0..gathers {
                if let Some((offset, length)) = outbox.gather(send, 3000) {
                    prop_assert!(length > 0 && length <= send && offset < 16384);
                }
            }
            let sent = |segment: Segment| (segment.target, segment.length);
            let message = match outbox.take_draft() {
                Some(gathered) => Some(sent(gathered)),
                None if whole => outbox.take_whole(send).map(|target| (target, send)),
                None => outbox.take_segment(send, 0).map(sent),
            };
            if let Some((target, length)) = message {
                prop_assert_eq!(target.addr as usize, written % capacity);
                prop_assert!(length <= target.length as usize);
                written += length;
                prop_assert!(inbox.deliver(length as u32).is_ok());
                if let Some(cost) = outbox.report() {
                    outbox.complete(cost);
                }
            }
            let (offset, length) = inbox.span(0, receive);
            prop_assert!(offset + length <= capacity);
            inbox.consume(length);
        }
    }

    #[test]
    fn hostile_lengths_stay_inside(lengths in prop::collection::vec(any::<u32>(), 1..100)) {
        let mut inbox = Inbox::new(4096, 16, 0);
        for length in lengths {
            let _ = inbox.deliver(length);
            let (offset, span) = inbox.span(0, usize::MAX);
            prop_assert!(offset + span <= 4096);
            inbox.consume(span / 2);
        }
    }
}

#[test]
fn a_peer_lacks_receives_when_grants_take_those_of_data() {
    let mut outbox = Outbox::new(8192, 384, &peer(4, 4096));
    outbox.count_uncharged();
    for sent in 1..=4 {
        assert!(!outbox.may_lack_receives());
        assert!(outbox.take_whole(1).is_some(), "{sent}");
    }
    assert!(outbox.may_lack_receives());
    // It has received three, and posted as many receives again.
    outbox.grant(7, None);
    assert!(!outbox.may_lack_receives());
    assert!(outbox.take_whole(1).is_some());
    outbox.count_uncharged();
    outbox.count_uncharged();
    assert!(!outbox.may_lack_receives());
    outbox.count_uncharged();
    assert!(outbox.may_lack_receives());
}
