//! An initiator, a device and an executor that remember what they are told and
//! act when a test says so.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rdmacm::Result;

use super::super::link::{Completion, Link, Operation, ReceiveRequest, SendRequest, Work};
use super::super::rings::{Rings, Sizes};
use super::super::{Agreement, Channel};
use crate::executor::{Completed, Executor, Outcome, Plan, Request, Started, Token};
use crate::memory::Buffer;
use crate::session::Peers;
use crate::wire::Lun;
use crate::wire::command::Immediate;

/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: u32 = 5;

/// What the fakes remember.
#[derive(Default)]
pub struct Shared {
    pub sends: VecDeque<SendRequest>,
    /// How often requests were posted.
    pub posts: u32,
    pub receives: VecDeque<ReceiveRequest>,
    pub disconnects: u32,
    pub failed: bool,
    /// Commands that the executor has, with what they are for.
    pub pending: Vec<(Token, Buffer, u32)>,
    pub given_back: Vec<Completed>,
    pub aborted: Vec<Token>,
    pub resets: Vec<Lun>,
    /// Data that commands brought.
    pub written: Vec<Vec<u8>>,
    /// Lets commands wait.
    pub slow: bool,
    pub started: u32,
    /// Channels that this one replaces still execute commands.
    pub replacing: bool,
    /// The others were told that this one has ended.
    pub ended: bool,
    /// Bytes that commands claim beyond those that they had.
    pub boast: u32,
}

type Handle = Rc<RefCell<Shared>>;

pub struct FakeLink(Handle);

impl Link for FakeLink {
    fn post_send(&mut self, chain: &[SendRequest]) -> Result<()> {
        let mut shared = self.0.borrow_mut();
        shared.sends.extend(chain);
        shared.posts += 1;
        Ok(())
    }

    fn post_receive(&mut self, requests: &[ReceiveRequest]) -> Result<()> {
        self.0.borrow_mut().receives.extend(requests);
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        self.0.borrow_mut().disconnects += 1;
        Ok(())
    }

    fn fail(&mut self) -> Result<()> {
        self.0.borrow_mut().failed = true;
        Ok(())
    }
}

/// Knows READ (0x28) and WRITE (0x2A) of as many bytes as bytes 2 to 5 say,
/// and TEST UNIT READY. A READ returns bytes 6 of the CDB plus their place.
struct FakeExecutor(Handle);

pub fn pattern(seed: u8, place: usize) -> u8 {
    seed.wrapping_add((place % 251) as u8)
}

fn length(cdb: &[u8]) -> u32 {
    u32::from_be_bytes(cdb[2..6].try_into().unwrap())
}

impl Executor for FakeExecutor {
    fn plan(&mut self, request: &Request<'_>) -> Plan {
        match request.cdb[0] {
            0x28 => Plan::In(length(request.cdb)),
            0x2A => Plan::Out(length(request.cdb)),
            _ => Plan::NoData,
        }
    }

    fn start(&mut self, token: Token, request: &Request<'_>, mut buffer: Buffer) -> Started {
        let mut shared = self.0.borrow_mut();
        shared.started += 1;
        match request.cdb[0] {
            0x28 => {
                for (place, byte) in buffer.iter_mut().enumerate() {
                    *byte = pattern(request.cdb[6], place);
                }
            }
            0x2A => shared.written.push(buffer.to_vec()),
            _ => {}
        }
        let transferred = buffer.len() as u32 + shared.boast;
        if shared.slow {
            shared.pending.push((token, buffer, transferred));
            return Started::Pending;
        }
        Started::Done(Completed {
            token,
            outcome: Outcome::good(transferred),
            buffer,
        })
    }

    fn poll(&mut self, done: &mut dyn FnMut(Completed)) {
        for completed in std::mem::take(&mut self.0.borrow_mut().given_back) {
            done(completed);
        }
    }

    fn abort(&mut self, token: Token) {
        self.0.borrow_mut().aborted.push(token);
    }

    fn reset(&mut self, lun: Lun) {
        self.0.borrow_mut().resets.push(lun);
    }
}

/// No other channels, unless the test says that there were some.
struct Alone(Handle);

impl Peers for Alone {
    fn reset(&mut self, _lun: Lun) {}

    fn resetting(&self) -> bool {
        false
    }

    fn may_begin(&self) -> bool {
        !self.0.borrow().replacing
    }

    fn ended(&mut self) {
        self.0.borrow_mut().ended = true;
    }
}

/// A response as the initiator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub opcode: u8,
    pub tag: [u8; 8],
    pub credits: u32,
    pub flags: u8,
    pub status: u8,
    pub residual: u32,
    /// Response code or sense key.
    pub detail: Option<u8>,
}

/// Everything together.
pub struct World {
    pub shared: Handle,
    pub channel: Channel<FakeLink>,
    /// The initiator's memory, from address [`BASE`] on.
    pub memory: Vec<u8>,
    pub responses: Vec<Response>,
    pub credits: u32,
    pub reads: u32,
}

/// Where the initiator's memory starts, and its key.
pub const BASE: u64 = 0xFFFF_8000_0000_0000;
pub const KEY: u32 = 0xABCD;
pub const CREDITS: u16 = 8;

impl World {
    pub fn new() -> Self {
        Self::with(64, 1 << 20)
    }

    /// A channel with a send queue and a pool of so many entries and bytes.
    pub fn with(send_queue: u16, pool: usize) -> Self {
        let mut world = Self::connecting(send_queue, pool);
        world.channel.established();
        world
    }

    pub fn connecting(send_queue: u16, pool: usize) -> Self {
        Self::limited(send_queue, pool, 1 << 18)
    }

    /// As [`World::connecting`], with commands of so many bytes at most.
    pub fn limited(send_queue: u16, pool: usize, max_transfer: usize) -> Self {
        let shared = Handle::default();
        let alone = Box::new(Alone(Rc::clone(&shared)));
        Self::among(shared, alone, (send_queue, pool, max_transfer))
    }

    /// A channel of a session that others belong to.
    pub fn of_session(peers: impl Peers + 'static) -> Self {
        let mut world = Self::among(Handle::default(), Box::new(peers), (64, 1 << 20, 1 << 18));
        world.channel.established();
        world
    }

    fn among(
        shared: Handle,
        peers: Box<dyn Peers>,
        (send_queue, pool, max_transfer): (u16, usize, usize),
    ) -> Self {
        let memory = Rings::new(&Sizes {
            credits: CREDITS,
            receive: 8276,
            immediate_offset: 68,
            pool,
            max_transfer,
        });
        let mut channel = Channel::new(
            FakeLink(Rc::clone(&shared)),
            Box::new(FakeExecutor(Rc::clone(&shared))),
            memory.unwrap(),
            CREDITS,
            Agreement {
                immediate: Immediate {
                    offset: 68,
                    most: 8192,
                },
                send_queue,
            },
            peers,
        );
        channel.post_receives().unwrap();
        Self {
            shared,
            channel,
            memory: (0..1 << 19).map(|place| pattern(3, place)).collect(),
            responses: Vec::new(),
            credits: CREDITS.into(),
            reads: 0,
        }
    }

    /// The initiator sends an information unit.
    pub fn send(&mut self, unit: &[u8]) {
        if matches!(unit[0], 0x01 | 0x02) {
            self.credits -= 1;
        }
        self.deliver(unit);
        self.channel.settle();
    }

    /// An information unit arrives, whether or not there was a credit.
    pub fn deliver(&mut self, unit: &[u8]) {
        let receive = self.shared.borrow_mut().receives.pop_front();
        let receive = receive.expect("no receive is posted");
        assert!(unit.len() <= receive.length as usize);
        // SAFETY: the channel posted so many bytes of its area.
        unsafe {
            (receive.address as *mut u8).copy_from_nonoverlapping(unit.as_ptr(), unit.len());
        }
        self.channel.completed(Completion {
            work: Work::Receive(receive.number),
            result: Ok(unit.len() as u32),
        });
    }

    /// The device does everything that is posted.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// The device does the oldest request. False if there is none.
    pub fn step(&mut self) -> bool {
        let request = self.shared.borrow_mut().sends.pop_front();
        let Some(request) = request else {
            return false;
        };
        let length = request.length as usize;
        // SAFETY: the channel posted so many bytes of its area.
        let local =
            || unsafe { std::slice::from_raw_parts_mut(request.address as *mut u8, length) };
        match request.operation {
            Operation::Send => self.receive(local()),
            Operation::Read(from) => {
                assert_eq!(from.length, request.length);
                self.reads += 1;
                let range = self.range(from.address, from.key, length);
                local().copy_from_slice(&self.memory[range]);
            }
            Operation::Write(to) if length > 0 => {
                assert_eq!(to.length, request.length);
                let range = self.range(to.address, to.key, length);
                self.memory[range].copy_from_slice(local());
            }
            Operation::Write(_) => {}
        }
        let failed = self.shared.borrow().failed;
        if request.signaled || failed {
            self.channel.completed(Completion {
                work: request.work,
                result: if failed { Err(FLUSHED) } else { Ok(0) },
            });
            self.channel.settle();
        }
        true
    }

    fn range(&self, address: u64, key: u32, length: usize) -> std::ops::Range<usize> {
        assert_eq!(key, KEY);
        let start = (address - BASE) as usize;
        start..start + length
    }

    fn receive(&mut self, unit: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(unit[at..at + 4].try_into().unwrap());
        let credits = number(4);
        self.credits += credits;
        // Each credit is worth a receive, at any time.
        assert!(self.shared.borrow().receives.len() >= self.credits as usize);
        assert!(self.credits <= CREDITS.into());
        let response = unit[0] == 0xC1;
        let flags = if response { unit[18] } else { 0 };
        self.responses.push(Response {
            opcode: unit[0],
            tag: unit[8..16].try_into().unwrap(),
            credits,
            flags,
            status: if response { unit[19] } else { 0 },
            residual: if response { number(20) + number(24) } else { 0 },
            detail: match flags & 0x03 {
                1 => Some(unit[39]),
                2 => Some(unit[38]),
                _ => None,
            },
        });
    }

    /// The executor gives the commands back that it has.
    pub fn finish_commands(&mut self) {
        let mut shared = self.shared.borrow_mut();
        let pending = std::mem::take(&mut shared.pending);
        let done = pending
            .into_iter()
            .map(|(token, buffer, transferred)| Completed {
                token,
                outcome: Outcome::good(transferred),
                buffer,
            });
        shared.given_back.extend(done);
        drop(shared);
        self.channel.settle();
    }

    /// The responses so far.
    pub fn take_responses(&mut self) -> Vec<Response> {
        std::mem::take(&mut self.responses)
    }
}

pub fn tag(number: u8) -> [u8; 8] {
    [number, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0, number]
}

/// A command with a CDB of six meaningful bytes and the descriptor bytes.
pub fn command(number: u8, opcode: u8, length: u32, formats: u8, tail: &[u8]) -> Vec<u8> {
    let mut unit = vec![0; 48];
    unit[0] = 0x02;
    unit[5] = formats;
    unit[8..16].copy_from_slice(&tag(number));
    unit[32] = opcode;
    unit[34..38].copy_from_slice(&length.to_be_bytes());
    unit[38] = number;
    unit.extend_from_slice(tail);
    unit
}

pub fn segment(offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = (BASE + offset).to_be_bytes().to_vec();
    bytes.extend(KEY.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A READ into `length` bytes of the initiator's memory at `offset`.
pub fn read(number: u8, length: u32, offset: u64, room: u32) -> Vec<u8> {
    command(number, 0x28, length, 0x01, &segment(offset, room))
}

/// A WRITE from there.
pub fn write(number: u8, length: u32, offset: u64, ready: u32) -> Vec<u8> {
    command(number, 0x2A, length, 0x10, &segment(offset, ready))
}

pub fn task(number: u8, function: u8, task: u8) -> Vec<u8> {
    let mut unit = vec![0; 48];
    unit[0] = 0x01;
    unit[8..16].copy_from_slice(&tag(number));
    unit[30] = function;
    unit[32..40].copy_from_slice(&tag(task));
    unit
}
