//! An SRP target whose only disk is memory: the smallest use of the library.
//!
//! `memory_target IP:PORT GUID MIB` serves logical unit 0 with so many MiB to
//! everyone who asks for id_ext and ioc_guid GUID (16 hexadecimal digits)
//! until its standard input ends.

use std::error::Error;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use srpt::executor::{
    Completed, Executor, LoginInfo, Outcome, Plan, Request, Sense, Started, Target, Token,
};
use srpt::memory::Buffer;
use srpt::server::{QpPolicy, Server, Settings};
use srpt::wire::{PortId, RejectReason};

const BLOCK: usize = 512;

const ILLEGAL_OPCODE: Sense = Sense::new(5, 0x20, 0);
const OUT_OF_RANGE: Sense = Sense::new(5, 0x21, 0);
const INVALID_FIELD: Sense = Sense::new(5, 0x24, 0);
const NO_SUCH_LUN: Sense = Sense::new(5, 0x25, 0);

struct Memory(RwLock<Vec<u8>>);

struct MemoryTarget(Arc<Memory>);

impl Target for MemoryTarget {
    fn admit(&self, _login: &LoginInfo) -> Result<(), RejectReason> {
        Ok(())
    }

    fn executor(&self, _login: &LoginInfo) -> std::io::Result<Box<dyn Executor>> {
        Ok(Box::new(MemoryExecutor(Arc::clone(&self.0))))
    }

    fn logged_in(&self, login: &LoginInfo) {
        println!("login {} from {}", login.channel, login.peer);
    }

    fn logged_out(&self, login: &LoginInfo) {
        println!("logout {}", login.channel);
    }
}

struct MemoryExecutor(Arc<Memory>);

fn number(cdb: &[u8], from: usize, count: usize) -> u64 {
    cdb.iter()
        .skip(from)
        .take(count)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// First block and number of blocks of a READ or WRITE.
fn range(cdb: &[u8]) -> (u64, u64) {
    match cdb.first() {
        Some(0x88 | 0x8A) => (number(cdb, 2, 8), number(cdb, 10, 4)),
        _ => (number(cdb, 2, 4), number(cdb, 7, 2)),
    }
}

impl MemoryExecutor {
    fn blocks(&self) -> u64 {
        let disk = self.0.0.read().unwrap_or_else(PoisonError::into_inner);
        (disk.len() / BLOCK) as u64
    }

    /// The data that a command other than READ returns.
    fn answer(&self, cdb: &[u8]) -> Result<Vec<u8>, Sense> {
        let last = self.blocks().saturating_sub(1);
        let page = number(cdb, 2, 1);
        Ok(match (cdb.first(), number(cdb, 1, 1) & 0x1F) {
            (Some(0x12), 0) => {
                let mut data = vec![0, 0, 6, 2, 31, 0, 0, 2];
                data.extend(b"RDMACM  MEMORY          0001");
                data
            }
            (Some(0x12), _) if page == 0x00 => vec![0, 0, 0, 2, 0x00, 0x83],
            (Some(0x12), _) if page == 0x83 => {
                let mut data = vec![0, 0x83, 0, 12, 1, 3, 0, 8, 0x52, 0x44, 0x4D, 0x41];
                data.extend([0, 0, 0, 1]);
                data
            }
            (Some(0x25), _) => {
                let last = u32::try_from(last).unwrap_or(u32::MAX);
                [last.to_be_bytes(), (BLOCK as u32).to_be_bytes()].concat()
            }
            (Some(0x9E), 0x10) => {
                let mut data = last.to_be_bytes().to_vec();
                data.extend((BLOCK as u32).to_be_bytes());
                data.resize(32, 0);
                data
            }
            (Some(0xA0), _) => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            (Some(0x1A), _) => vec![3, 0, 0x10, 0],
            (Some(0x12), _) => return Err(INVALID_FIELD),
            _ => return Err(ILLEGAL_OPCODE),
        })
    }

    fn execute(&self, request: &Request<'_>, buffer: &mut Buffer) -> Outcome {
        let (first, count) = range(request.cdb);
        let length = buffer.len();
        let start = usize::try_from(first)
            .unwrap_or(usize::MAX)
            .saturating_mul(BLOCK);
        match request.cdb.first() {
            Some(0x28 | 0x88 | 0x2A | 0x8A) if first.saturating_add(count) > self.blocks() => {
                Outcome::check(OUT_OF_RANGE)
            }
            Some(0x28 | 0x88) => {
                let disk = self.0.0.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(data) = disk.get(start..start + length) {
                    buffer.copy_from_slice(data);
                }
                Outcome::good(length as u32)
            }
            Some(0x2A | 0x8A) => {
                let mut disk = self.0.0.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(data) = disk.get_mut(start..start + length) {
                    data.copy_from_slice(buffer);
                }
                Outcome::good(length as u32)
            }
            _ => match self.answer(request.cdb) {
                Ok(data) => {
                    for (to, from) in buffer.iter_mut().zip(&data) {
                        *to = *from;
                    }
                    Outcome::good(data.len().min(length) as u32)
                }
                Err(sense) => Outcome::check(sense),
            },
        }
    }
}

impl Executor for MemoryExecutor {
    fn plan(&mut self, request: &Request<'_>) -> Plan {
        let cdb = request.cdb;
        let blocks = |count: u64| u32::try_from(count * BLOCK as u64).unwrap_or(u32::MAX);
        let opcode = cdb.first().copied().unwrap_or(0xFF);
        if request.lun.number() != Some(0) {
            return match opcode {
                0x12 | 0xA0 => Plan::Answer(Outcome::check(INVALID_FIELD)),
                _ => Plan::Answer(Outcome::check(NO_SUCH_LUN)),
            };
        }
        match opcode {
            0x00 | 0x1B | 0x35 | 0x91 => Plan::Answer(Outcome::good(0)),
            0x28 | 0x88 => Plan::In(blocks(range(cdb).1)),
            0x2A | 0x8A => Plan::Out(blocks(range(cdb).1)),
            0x25 => Plan::In(8),
            0x12 => Plan::In(number(cdb, 3, 2) as u32),
            0x1A => Plan::In(number(cdb, 4, 1) as u32),
            0x9E => Plan::In(number(cdb, 10, 4) as u32),
            0xA0 => Plan::In(number(cdb, 6, 4) as u32),
            _ => Plan::Answer(Outcome::check(ILLEGAL_OPCODE)),
        }
    }

    fn start(&mut self, token: Token, request: &Request<'_>, mut buffer: Buffer) -> Started {
        let outcome = self.execute(request, &mut buffer);
        Started::Done(Completed {
            token,
            outcome,
            buffer,
        })
    }

    fn poll(&mut self, _done: &mut dyn FnMut(Completed)) {}

    fn abort(&mut self, _token: Token) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    rdmacm::diag::initialise();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [portal, guid, mib, rest @ ..] = args.as_slice() else {
        return Err("usage: memory_target IP:PORT GUID MIB [manual]".into());
    };
    let half = u64::from_str_radix(guid, 16)?;
    let port = PortId((u128::from(half) << 64 | u128::from(half)).to_be_bytes());
    let mut settings = Settings::new(portal.parse()?, port);
    if rest.iter().any(|word| word == "manual") {
        settings.policy = QpPolicy::Manual;
    }
    let disk = vec![0; mib.parse::<usize>()? << 20];
    let target = MemoryTarget(Arc::new(Memory(RwLock::new(disk))));
    let server = Server::start(settings, Arc::new(target))?;
    println!("listening on {portal}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    if !server.stop(Duration::from_secs(10)) {
        return Err("channels left".into());
    }
    Ok(())
}
