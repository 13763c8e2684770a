//! Commands and their data.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::super::state::ChannelState;
use super::world::{CREDITS, World, command, pattern, read, segment, tag, write};
use crate::session::Sessions;
use crate::wire::PortId;

const IN_UNDERFLOW: u8 = 0x20;
const OUT_OVERFLOW: u8 = 0x04;
const SENSE: u8 = 0x02;

fn table(total: u32, lengths: &[(u64, u32)]) -> Vec<u8> {
    lengths.iter().fold(
        total.to_be_bytes().to_vec(),
        |mut bytes, (offset, length)| {
            bytes.extend(segment(*offset, *length));
            bytes
        },
    )
}

/// An indirect descriptor whose list of `entries` is at `offset`.
pub fn indirect(offset: u64, entries: u32, total: u32, present: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = segment(offset, entries * 16);
    bytes.extend(table(total, present));
    bytes
}

#[test]
fn a_read_writes_its_data_and_then_responds() {
    let mut world = World::new();
    world.send(&read(1, 4096, 100, 5000));
    assert_eq!(world.shared.borrow().sends.len(), 2, "in one post");
    world.run();
    assert!((0..4096).all(|place| world.memory[100 + place] == pattern(1, place)));
    assert_eq!(
        world.memory[100 + 4096],
        pattern(3, 100 + 4096),
        "not further"
    );
    let [response] = &world.take_responses()[..] else {
        panic!("one response");
    };
    assert_eq!((response.tag, response.credits), (tag(1), 1));
    assert_eq!((response.flags, response.status), (IN_UNDERFLOW, 0));
    assert_eq!(response.residual, 5000 - 4096);
    assert_eq!(world.channel.in_use(), 0);
}

#[test]
fn small_commands_of_a_batch_are_answered_with_one_post() {
    let mut world = World::new();
    for number in 1..=4 {
        world.deliver(&read(number, 512, u64::from(number) * 512, 512));
    }
    assert_eq!(world.shared.borrow().posts, 0);
    world.credits -= 4;
    world.channel.settle();
    assert_eq!(world.shared.borrow().posts, 1);
    world.run();
    let tags = world
        .take_responses()
        .into_iter()
        .map(|response| response.tag);
    assert!(tags.eq((1..=4).map(tag)));
}

#[test]
fn large_commands_do_not_wait_for_the_others_of_their_batch() {
    let mut world = World::new();
    for number in 1..=3 {
        world.deliver(&read(number, 64 << 10, 0, 64 << 10));
        assert_eq!(world.shared.borrow().posts, u32::from(number));
    }
    world.credits -= 3;
    world.run();
    assert_eq!(world.take_responses().len(), 3);
}

#[test]
fn a_write_is_executed_when_its_data_is_there() {
    let mut world = World::new();
    world.send(&write(1, 8000, 64, 5000));
    assert_eq!(world.shared.borrow().started, 0);
    world.run();
    assert_eq!(
        world.shared.borrow().written,
        [world.memory[64..5064].to_vec()]
    );
    let [response] = &world.take_responses()[..] else {
        panic!("one response");
    };
    assert_eq!((response.flags, response.residual), (OUT_OVERFLOW, 3000));
}

#[test]
fn immediate_data_needs_no_transfer() {
    let mut world = World::new();
    let mut unit = command(1, 0x2A, 512, 0x30, &512u32.to_be_bytes());
    unit.resize(68, 0);
    let data: Vec<u8> = (0..512).map(|place| pattern(9, place)).collect();
    unit.extend(&data);
    world.send(&unit);
    assert_eq!(world.shared.borrow().written, [data]);
    world.run();
    assert_eq!((world.reads, world.responses.len()), (0, 1));
}

#[test]
fn pieces_are_filled_in_order_however_small_the_send_queue_is() {
    for send_queue in [3, 4, 7, 64] {
        let mut world = World::with(send_queue, 1 << 20);
        let pieces: Vec<_> = (0..9).map(|n| (n * 1000, 100 + n as u32)).collect();
        let total = pieces.iter().map(|(_, length)| length).sum();
        let mut unit = command(1, 0x28, total, 0x02, &indirect(0, 9, total, &pieces));
        unit[7] = 9;
        world.send(&unit);
        world.run();
        let mut place = 0;
        for (offset, length) in pieces {
            for at in offset..offset + u64::from(length) {
                assert_eq!(world.memory[at as usize], pattern(1, place));
                place += 1;
            }
        }
        assert_eq!(world.responses.len(), 1, "send queue {send_queue}");
        assert_eq!(world.responses[0].flags, 0);
    }
}

#[test]
fn a_list_of_pieces_in_the_initiators_memory_is_fetched() {
    for (opcode, formats, count) in [(0x2A, 0x20, 6), (0x28, 0x02, 7)] {
        let mut world = World::with(4, 1 << 20);
        let pieces = [(1000, 300), (5000, 300), (9000, 300)];
        world.memory[..48].copy_from_slice(&table(0, &pieces)[4..]);
        let expected: Vec<u8> = pieces
            .iter()
            .flat_map(|(at, length)| world.memory[*at as usize..][..*length as usize].to_vec())
            .collect();
        let mut unit = command(1, opcode, 900, formats, &indirect(0, 3, 900, &pieces[..1]));
        unit[count] = 1;
        world.send(&unit);
        world.run();
        if opcode == 0x2A {
            assert_eq!(world.shared.borrow().written, [expected]);
        } else {
            assert_eq!(world.memory[9299], pattern(1, 899));
        }
        assert_eq!(
            (world.responses[0].status, world.responses[0].flags),
            (0, 0)
        );
        assert_eq!(world.channel.in_use(), 0);
    }
}

#[test]
fn unusable_descriptors_make_the_target_busy_and_cost_no_credit() {
    let mut short_list = World::new();
    short_list.memory[..32].copy_from_slice(&table(0, &[(0, 10), (0, 10)])[4..]);
    let mut unit = command(1, 0x2A, 900, 0x20, &indirect(0, 2, 900, &[]));
    unit[6] = 0;
    short_list.send(&unit);
    short_list.run();
    assert_eq!(short_list.responses[0].status, 0x08);

    let mut world = World::new();
    let units = [
        command(1, 0x28, 512, 0x0F, &segment(0, 512)),
        command(2, 0x28, 512, 0x01, &[0; 8]),
        command(3, 0x2A, 512, 0x30, &9000u32.to_be_bytes()),
    ];
    for unit in units {
        world.send(&unit);
    }
    world.run();
    assert!(
        world
            .responses
            .iter()
            .all(|response| response.status == 0x08)
    );
    assert_eq!(world.responses.len(), 3);
    assert_eq!(world.credits, u32::from(CREDITS));
    assert_eq!(world.shared.borrow().started, 0);
}

#[test]
fn a_list_that_no_buffer_holds_makes_the_target_busy_and_stops_nobody() {
    for (opcode, formats) in [(0x2A, 0x20), (0x28, 0x02)] {
        let mut world = World::limited(64, 1 << 14, 4096);
        world.channel.established();
        let unit = command(1, opcode, 512, formats, &indirect(0, 257, 512, &[]));
        world.send(&unit);
        world.send(&read(2, 512, 0, 512));
        world.run();
        let answers: Vec<_> = world
            .responses
            .iter()
            .map(|of| (of.tag, of.status))
            .collect();
        assert_eq!(answers, [(tag(1), 0x08), (tag(2), 0)]);
        assert_eq!(world.credits, u32::from(CREDITS));
    }
}

#[test]
fn more_data_than_a_buffer_holds_is_refused_with_sense() {
    let mut world = World::new();
    world.send(&read(1, (1 << 18) + 1, 0, 1 << 19));
    world.run();
    let response = &world.responses[0];
    assert_eq!((response.status, response.flags & SENSE), (0x02, SENSE));
    assert_eq!(response.detail, Some(5));
}

#[test]
fn an_executor_that_claims_more_than_there_was_sends_no_more() {
    let mut world = World::new();
    world.shared.borrow_mut().boast = 50;
    world.send(&read(1, 100, 0, 1000));
    world.send(&write(2, 100, 500, 1000));
    world.run();
    assert_eq!(world.memory[100], pattern(3, 100));
    let residuals: Vec<_> = world.responses.iter().map(|of| of.residual).collect();
    assert_eq!(residuals, [900, 900]);
}

#[test]
fn commands_wait_for_memory_in_order() {
    let mut world = World::with(64, 1 << 18);
    for number in 0..4 {
        world.send(&write(number, 150_000, 0, 150_000));
    }
    world.run();
    let tags: Vec<_> = world
        .responses
        .iter()
        .map(|response| response.tag)
        .collect();
    assert_eq!(tags, [tag(0), tag(1), tag(2), tag(3)]);
}

#[test]
fn what_arrives_before_the_connection_is_established_waits() {
    let mut world = World::connecting(64, 1 << 20);
    world.send(&read(1, 16, 0, 16));
    assert!(world.channel.has_early());
    assert!(world.shared.borrow().sends.is_empty());
    world.channel.established();
    world.channel.settle();
    world.run();
    assert_eq!(world.responses.len(), 1);
}

#[test]
fn an_initiator_that_exceeds_its_credits_only_waits() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    for number in 0..CREDITS as u8 + 3 {
        world.deliver(&command(number, 0, 0, 0, &[]));
    }
    world.channel.settle();
    world.credits = 0;
    assert_eq!(world.shared.borrow().started, CREDITS.into());
    world.shared.borrow_mut().slow = false;
    world.finish_commands();
    while !world.shared.borrow().sends.is_empty() {
        world.credits = 0;
        world.step();
    }
    assert_eq!(world.shared.borrow().started, u32::from(CREDITS) + 3);
}

#[test]
fn unknown_units_are_ignored_and_their_receive_is_posted_again() {
    let mut world = World::new();
    let posted = world.shared.borrow().receives.len();
    for opcode in [0x00, 0x04, 0x7F, 0xC1, 0xFF] {
        world.send(&[opcode; 60]);
    }
    world.send(&[0x03 ^ 0x40; 4]);
    assert_eq!(world.shared.borrow().receives.len(), posted);
    assert_eq!(world.channel.state(), ChannelState::Live);
}

#[test]
fn a_command_takes_no_lock() {
    let sessions = Arc::new(Sessions::default());
    let nexus = (PortId([1; 16]), PortId([2; 16]));
    let enter = |multi| Arc::new(sessions.enter(nexus, multi).unwrap().0);
    let (first, _second) = (enter(false), enter(true));
    let member = Arc::clone(first.member());
    let (done, ended) = mpsc::channel();
    member.while_locked(&sessions, || {
        thread::spawn(move || {
            let mut world = World::of_session(first);
            for number in 0..100 {
                world.send(&read(number, 4096, 0, 4096));
                world.send(&write(number, 4096, 0, 4096));
                world.run();
            }
            done.send(world.take_responses().len()).unwrap();
            // What ends now takes the locks.
        });
        let answered = ended.recv_timeout(Duration::from_secs(60));
        assert_eq!(answered, Ok(200), "commands wait for a lock");
    });
}
