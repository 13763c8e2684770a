//! SRP_TSK_MGMT, SRP_I_LOGOUT, SRP_CRED_RSP, SRP_AER_RSP, commands and all else:
//! information units in a row on a channel, whose device does what is posted.

#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use rdmacm::Result;
use srpt::channel::link::{Completion, Link, Operation, ReceiveRequest, SendRequest, Work};
use srpt::channel::rings::{Rings, Sizes};
use srpt::channel::state::ChannelState;
use srpt::channel::{Agreement, Channel};
use srpt::executor::{Completed, Executor, Outcome, Plan, Request, Started, Token};
use srpt::memory::Buffer;
use srpt::session::Peers;
use srpt::wire::Lun;
use srpt::wire::command::Immediate;

const CREDITS: u16 = 4;
const RECEIVE: u32 = 2048;

#[derive(Default)]
struct Posted {
    sends: VecDeque<SendRequest>,
    receives: VecDeque<ReceiveRequest>,
    failed: bool,
}

struct FakeLink(Rc<RefCell<Posted>>);

impl Link for FakeLink {
    fn post_send(&mut self, chain: &[SendRequest]) -> Result<()> {
        self.0.borrow_mut().sends.extend(chain);
        Ok(())
    }

    fn post_receive(&mut self, requests: &[ReceiveRequest]) -> Result<()> {
        self.0.borrow_mut().receives.extend(requests);
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        Ok(())
    }

    fn fail(&mut self) -> Result<()> {
        self.0.borrow_mut().failed = true;
        Ok(())
    }
}

/// Commands of which every other one waits for the next poll.
#[derive(Default)]
struct FakeExecutor(Vec<Completed>);

impl Executor for FakeExecutor {
    fn plan(&mut self, request: &Request<'_>) -> Plan {
        let length = u32::from(request.cdb[1]) * 64;
        match request.cdb[0] % 3 {
            0 => Plan::In(length),
            1 => Plan::Out(length),
            _ => Plan::NoData,
        }
    }

    fn start(&mut self, token: Token, request: &Request<'_>, mut buffer: Buffer) -> Started {
        buffer.fill(0x5A);
        let completed = Completed {
            token,
            outcome: Outcome::good(buffer.len() as u32),
            buffer,
        };
        if request.cdb[2] % 2 == 0 {
            return Started::Done(completed);
        }
        self.0.push(completed);
        Started::Pending
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completed)) {
        self.0.drain(..).for_each(done);
    }

    fn abort(&mut self, _token: Token) {}
}

struct Alone;

impl Peers for Alone {
    fn reset(&mut self, _lun: Lun) {}

    fn resetting(&self) -> bool {
        false
    }

    fn may_begin(&self) -> bool {
        true
    }

    fn ended(&mut self) {}
}

fuzz_target!(|units: Vec<&[u8]>| {
    let posted = Rc::new(RefCell::new(Posted::default()));
    let memory = Rings::new(&Sizes {
        credits: CREDITS,
        receive: RECEIVE,
        immediate_offset: 68,
        pool: 1 << 16,
        max_transfer: 1 << 14,
    });
    let Ok(memory) = memory else {
        return;
    };
    let agreement = Agreement {
        immediate: Immediate {
            offset: 68,
            most: RECEIVE - 68,
        },
        send_queue: 6,
    };
    let mut channel = Channel::new(
        FakeLink(Rc::clone(&posted)),
        Box::new(FakeExecutor::default()),
        memory,
        CREDITS,
        agreement,
        Box::new(Alone),
    );
    channel.post_receives().expect("fake");
    channel.established();
    for unit in units {
        let length = unit.len().min(RECEIVE as usize);
        let Some(receive) = posted.borrow_mut().receives.pop_front() else {
            break;
        };
        // SAFETY: the channel posted so many bytes of its area.
        unsafe { (receive.address as *mut u8).copy_from_nonoverlapping(unit.as_ptr(), length) };
        channel.completed(Completion {
            work: Work::Receive(receive.number),
            result: Ok(length as u32),
        });
        channel.settle();
        run(&posted, &mut channel);
    }
    run(&posted, &mut channel);
    if channel.state() == ChannelState::Live {
        assert_eq!(channel.in_use(), 0);
    } else {
        assert_eq!(channel.state(), ChannelState::Disconnected);
    }
});

/// The device does all that is posted.
fn run(posted: &RefCell<Posted>, channel: &mut Channel<FakeLink>) {
    loop {
        let Some(request) = posted.borrow_mut().sends.pop_front() else {
            break;
        };
        if let Operation::Read(from) = request.operation {
            assert_eq!(from.length, request.length);
        }
        let failed = posted.borrow().failed;
        if request.signaled || failed {
            channel.completed(Completion {
                work: request.work,
                result: if failed { Err(5) } else { Ok(0) },
            });
            channel.settle();
        }
    }
}
