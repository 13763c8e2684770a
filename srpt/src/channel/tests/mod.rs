//! A channel between an initiator, a device and an executor that do as the
//! test says.

mod closing;
mod data;
mod tasks;
mod world;

use proptest::prelude::*;

use super::state::ChannelState;
use world::{CREDITS, World, command, read, task, write};

/// What happens next in a random run.
#[derive(Clone, Debug)]
enum Event {
    Read(u32),
    Write(u32),
    Ready,
    Abort(u8),
    Reset,
    Device(u8),
    Executor,
    Speed(bool),
    Answer,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0u32..60_000).prop_map(Event::Read),
        3 => (0u32..60_000).prop_map(Event::Write),
        1 => Just(Event::Ready),
        1 => any::<u8>().prop_map(Event::Abort),
        1 => Just(Event::Reset),
        6 => (1u8..8).prop_map(Event::Device),
        2 => Just(Event::Executor),
        1 => any::<bool>().prop_map(Event::Speed),
        1 => Just(Event::Answer),
    ]
}

/// The initiator answers the target's own request.
fn answer_requests(world: &mut World) {
    let requests: Vec<_> = world
        .responses
        .iter()
        .filter(|response| response.opcode == 0x81)
        .map(|response| response.tag)
        .collect();
    world.responses.retain(|response| response.opcode != 0x81);
    for tag in requests {
        let mut unit = vec![0x41];
        unit.resize(16, 0);
        unit[8..16].copy_from_slice(&tag);
        world.send(&unit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens in whatever order: no command is answered twice, every
    /// credit comes back, and nothing stays behind.
    #[test]
    fn credits_and_commands_are_conserved(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::with(12, 1 << 18);
        let mut number = 0u8;
        let mut sent = 0u32;
        let mut tags = std::collections::HashSet::new();
        for event in events {
            let unit = match event {
                Event::Device(steps) => {
                    for _ in 0..steps {
                        world.step();
                    }
                    continue;
                }
                Event::Executor => {
                    world.finish_commands();
                    continue;
                }
                Event::Speed(slow) => {
                    world.shared.borrow_mut().slow = slow;
                    continue;
                }
                Event::Answer => {
                    answer_requests(&mut world);
                    continue;
                }
                _ if world.credits == 0 || number == u8::MAX => continue,
                Event::Read(length) => read(number, length, 0, length / 2 * 3),
                Event::Write(length) => write(number, length, 7, length / 3 * 2),
                Event::Ready => command(number, 0, 0, 0, &[]),
                Event::Abort(of) => task(number, 1, if number == 0 { 0 } else { of % number }),
                Event::Reset => task(number, 8, 0),
            };
            number += 1;
            sent += 1;
            world.send(&unit);
        }
        for _ in 0..4 {
            world.run();
            world.finish_commands();
            answer_requests(&mut world);
        }
        world.run();
        prop_assert_eq!(world.channel.state(), ChannelState::Live);
        prop_assert_eq!(world.channel.in_use(), 0);
        prop_assert_eq!(world.credits, u32::from(CREDITS));
        for response in &world.responses {
            prop_assert!(tags.insert(response.tag), "answered twice: {:?}", response);
        }
        let counters = world.channel.counters();
        prop_assert_eq!(counters.responses + counters.aborted, u64::from(sent));
    }
}
