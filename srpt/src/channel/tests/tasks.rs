//! Task management and the credits of what ended without a response.

use super::super::state::ChannelState;
use super::answer_requests;
use super::world::{CREDITS, World, command, read, tag, task, write};
use crate::session::Ticket;
use crate::wire::Lun;

const ABORT_TASK: u8 = 0x01;
const LUN_RESET: u8 = 0x08;

#[test]
fn an_aborted_command_is_waited_for_and_gives_its_credit_with_the_answer() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    world.send(&task(2, ABORT_TASK, 1));
    world.run();
    assert!(
        world.responses.is_empty(),
        "the command may still be executed"
    );
    assert_eq!(world.shared.borrow().aborted.len(), 1);
    world.finish_commands();
    world.run();
    let [response] = &world.take_responses()[..] else {
        panic!("the command must not be answered");
    };
    assert_eq!((response.tag, response.credits), (tag(2), 2));
    assert_eq!((response.flags, response.detail), (1, Some(0)));
    assert_eq!(
        world.memory[0],
        super::world::pattern(3, 0),
        "no data after that"
    );
}

#[test]
fn a_command_whose_data_is_on_the_way_is_not_executed_any_more() {
    let mut world = World::new();
    world.send(&write(1, 512, 0, 512));
    world.send(&task(2, ABORT_TASK, 1));
    world.run();
    assert_eq!(world.shared.borrow().started, 0);
    assert_eq!(world.responses.len(), 1);
    assert_eq!(world.responses[0].credits, 2);
}

#[test]
fn a_command_that_waits_for_memory_is_gone_at_once() {
    let mut world = World::with(64, 1 << 18);
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 200_000, 0, 200_000));
    world.send(&read(2, 200_000, 0, 200_000));
    world.send(&task(3, ABORT_TASK, 2));
    world.run();
    assert_eq!(world.responses.len(), 1);
    assert_eq!(world.responses[0].tag, tag(3));
    world.finish_commands();
    world.run();
    assert_eq!(world.credits, u32::from(CREDITS));
}

#[test]
fn a_command_that_is_answered_already_stays_answered() {
    let mut world = World::new();
    world.send(&command(1, 0, 0, 0, &[]));
    world.send(&task(2, ABORT_TASK, 1));
    world.run();
    let tags: Vec<_> = world
        .responses
        .iter()
        .map(|response| response.tag)
        .collect();
    assert_eq!(tags, [tag(1), tag(2)]);
    assert_eq!(world.credits, u32::from(CREDITS));
}

#[test]
fn a_reset_ends_all_commands_of_the_unit_and_no_others() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    for number in 1..4 {
        world.send(&read(number, 512, 0, 512));
    }
    let mut other = read(4, 512, 0, 512);
    other[21] = 1;
    world.send(&other);
    world.send(&task(5, LUN_RESET, 0xEE));
    assert_eq!(world.shared.borrow().aborted.len(), 3);
    assert_eq!(world.shared.borrow().resets, [Lun::default()]);
    world.finish_commands();
    world.run();
    let mut tags: Vec<_> = world
        .responses
        .iter()
        .map(|response| response.tag)
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, [tag(4), tag(5)]);
    assert_eq!(world.credits, u32::from(CREDITS));
}

#[test]
fn unknown_functions_are_not_supported() {
    for function in [0x00, 0x40, 0x7F, 0xFF] {
        let mut world = World::new();
        world.send(&task(1, function, 0));
        world.run();
        assert_eq!(world.responses[0].detail, Some(4));
        assert_eq!(world.credits, u32::from(CREDITS));
    }
}

#[test]
fn credits_that_no_response_will_carry_are_given_by_a_request() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    world.send(&read(2, 512, 0, 512));
    world.channel.reset(Lun::default(), Ticket::unclaimed());
    world.finish_commands();
    world.run();
    assert_eq!(world.responses.len(), 1);
    assert_eq!(
        (world.responses[0].opcode, world.responses[0].credits),
        (0x81, 2)
    );
    assert_eq!(world.credits, u32::from(CREDITS));

    // One request at a time.
    world.send(&read(3, 512, 0, 512));
    world.channel.reset(Lun::default(), Ticket::unclaimed());
    world.finish_commands();
    world.run();
    assert_eq!(world.responses.len(), 1);
    answer_requests(&mut world);
    world.run();
    assert_eq!(world.credits, u32::from(CREDITS));
    assert_eq!(world.channel.state(), ChannelState::Live);
}

#[test]
fn the_credit_of_what_was_cut_off_comes_back() {
    for opcode in [0x01, 0x02] {
        let mut world = World::new();
        // More often than there are credits.
        for length in 1..48 {
            let mut unit = vec![0; length];
            unit[0] = opcode;
            world.send(&unit);
            world.run();
            answer_requests(&mut world);
            world.run();
            assert_eq!(world.credits, u32::from(CREDITS), "{opcode} {length}");
        }
        assert_eq!(world.channel.in_use(), 0);
        assert_eq!(world.channel.state(), ChannelState::Live);
    }
}
