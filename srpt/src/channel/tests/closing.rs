//! The end of a channel.

use std::sync::Arc;

use rdmacm::abi::{
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_UNREACHABLE,
};

use super::super::Channel;
use super::super::link::{Completion, Work};
use super::super::state::ChannelState;
use super::data::indirect;
use super::world::{World, command, read, write};
use crate::cm_event;
use crate::session::{Message, Peers, Sessions};
use crate::wire::{Lun, PortId};

#[test]
fn a_logout_disconnects_and_drains() {
    let mut world = World::new();
    let mut logout = vec![0x03];
    logout.resize(16, 0);
    world.send(&logout);
    assert_eq!(world.shared.borrow().disconnects, 1);
    assert_eq!(world.channel.state(), ChannelState::Draining);
    world.run();
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
}

#[test]
fn the_targets_logout_lets_commands_end_and_tells_the_initiator_before_it_disconnects() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    world.channel.log_out();
    world.send(&command(2, 0, 0, 0, &[]));
    world.run();
    assert!(world.responses.is_empty() && world.channel.is_leaving());
    world.finish_commands();
    world.run();
    let opcodes: Vec<_> = world.responses.iter().map(|unit| unit.opcode).collect();
    assert_eq!(
        opcodes,
        [0xC1, 0x80],
        "the first command's response, the logout"
    );
    assert_eq!(world.shared.borrow().disconnects, 1);
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
    assert!(!world.channel.is_leaving());
}

#[test]
fn a_logout_that_does_not_arrive_can_be_given_up() {
    let mut world = World::new();
    world.channel.log_out();
    world.channel.log_out();
    world.channel.settle();
    assert_eq!(world.shared.borrow().sends.len(), 1);
    assert_eq!(world.shared.borrow().disconnects, 0);
    assert!(world.channel.disconnect());
    world.run();
    assert_eq!(world.shared.borrow().disconnects, 1);
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
}

#[test]
fn what_was_answered_is_posted_before_the_end() {
    for end in [Channel::disconnect, Channel::close] {
        let mut world = World::new();
        world.deliver(&read(1, 512, 0, 512));
        assert!(world.shared.borrow().sends.is_empty());
        end(&mut world.channel);
        let sends = world.shared.borrow().sends.clone();
        let works = sends.into_iter().map(|send| send.work);
        assert!(works.eq([Work::Part, Work::Response(0, 2), Work::Drain]));
    }
}

#[test]
fn disconnecting_and_closing_happen_once() {
    let mut world = World::new();
    assert!(world.channel.disconnect());
    assert!(!world.channel.disconnect());
    assert!(!world.channel.close());
    assert_eq!(world.shared.borrow().disconnects, 1);
    let drains = |world: &World| {
        let shared = world.shared.borrow();
        shared
            .sends
            .iter()
            .filter(|send| send.work == Work::Drain)
            .count()
    };
    assert_eq!(drains(&world), 1);
}

#[test]
fn a_closed_channel_waits_for_the_executor_and_sends_nothing() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    assert!(world.channel.close());
    assert_eq!(world.shared.borrow().aborted.len(), 1);
    world.run();
    assert_eq!(world.channel.state(), ChannelState::Draining);
    world.finish_commands();
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
    assert!(world.shared.borrow().sends.is_empty());
    assert!(world.responses.is_empty());
}

#[test]
fn a_failed_read_closes_the_channel_and_the_command_is_not_executed() {
    let mut world = World::new();
    world.send(&write(1, 512, 0, 512));
    let read = world.shared.borrow_mut().sends.pop_front().unwrap();
    world.channel.completed(Completion {
        work: read.work,
        result: Err(10),
    });
    world.channel.settle();
    assert_eq!(world.channel.state(), ChannelState::Draining);
    assert!(world.shared.borrow().failed);
    world.run();
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
    assert_eq!(world.shared.borrow().started, 0);
}

#[test]
fn a_reset_of_another_channel_outlasts_the_closing_of_this_one() {
    let sessions = Arc::new(Sessions::default());
    let enter = |multi| {
        let nexus = (PortId([1; 16]), PortId([2; 16]));
        Arc::new(sessions.enter(nexus, multi).unwrap().0)
    };
    let (mut resetter, other) = (enter(false), enter(true));
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&command(1, 0x2A, 0, 0, &[]));
    resetter.reset(Lun::default());
    for message in other.member().messages() {
        let Message::Reset(lun, ticket) = message else {
            panic!("{message:?}");
        };
        world.channel.reset(lun, ticket);
    }
    world.channel.close();
    world.run();
    assert!(resetter.resetting(), "the command is still executed");
    world.finish_commands();
    assert!(!resetter.resetting());
}

#[test]
fn commands_wait_for_the_end_of_replaced_channels() {
    let mut world = World::new();
    world.shared.borrow_mut().replacing = true;
    world.send(&write(1, 512, 0, 512));
    world.send(&read(2, 512, 0, 512));
    world.run();
    assert_eq!(world.channel.in_use(), 0);
    assert!(world.shared.borrow().sends.is_empty());
    world.shared.borrow_mut().replacing = false;
    world.channel.settle();
    world.run();
    assert_eq!(world.responses.len(), 2);
}

#[test]
fn others_hear_of_the_end_when_nothing_is_executed_any_more() {
    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    world.channel.close();
    world.run();
    assert!(!world.shared.borrow().ended);
    world.finish_commands();
    assert!(world.shared.borrow().ended);
}

#[test]
fn flushed_pieces_end_no_other_command() {
    // The executor has the command in slot 0 while the pieces of slot 1 fail.
    for (opcode, formats, count) in [(0x28, 0x02, 7), (0x2A, 0x20, 6)] {
        let mut world = World::new();
        world.shared.borrow_mut().slow = true;
        world.send(&read(1, 512, 0, 512));
        world.shared.borrow_mut().slow = false;
        let pieces = [(0, 100), (1000, 100), (5000, 100)];
        let mut unit = command(2, opcode, 300, formats, &indirect(0, 3, 300, &pieces));
        unit[count] = 3;
        world.send(&unit);
        assert!(world.shared.borrow().sends.len() >= 3);
        world.channel.close();
        world.run();
        assert_eq!(world.channel.state(), ChannelState::Draining);
        assert_eq!(world.channel.executing(), 1);
        world.finish_commands();
        assert_eq!(world.channel.executing(), 0);
        assert_eq!(world.channel.state(), ChannelState::Disconnected);
    }
}

#[test]
fn a_channel_whose_requests_never_come_back_can_be_given_up() {
    let mut world = World::new();
    world.channel.close();
    world.shared.borrow_mut().sends.clear();
    world.channel.give_up_draining();
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
}

#[test]
fn connection_events_move_a_channel_on() {
    let mut world = World::connecting(64, 1 << 20);
    cm_event::handle(&mut world.channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(world.channel.state(), ChannelState::Live);
    // The second may come for a disconnect of this side's own.
    for _ in 0..2 {
        cm_event::handle(&mut world.channel, RDMA_CM_EVENT_DISCONNECTED);
        assert_eq!(world.channel.state(), ChannelState::Draining);
    }
    assert_eq!(world.shared.borrow().disconnects, 1);

    let mut world = World::connecting(64, 1 << 20);
    cm_event::handle(&mut world.channel, RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(world.channel.state(), ChannelState::Draining);
    assert_eq!(world.shared.borrow().disconnects, 0);
    cm_event::handle(&mut world.channel, RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(world.channel.state(), ChannelState::Draining);

    let mut world = World::new();
    world.shared.borrow_mut().slow = true;
    world.send(&read(1, 512, 0, 512));
    cm_event::handle(&mut world.channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
    assert_eq!(
        world.channel.state(),
        ChannelState::Draining,
        "the executor has a command"
    );
    world.finish_commands();
    assert_eq!(world.channel.state(), ChannelState::Disconnected);
}
