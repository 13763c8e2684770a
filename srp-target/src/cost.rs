//! What a command costs besides its data: nothing is allocated, no lock is taken.
//! A channel with the program's own executor, on a queue pair that the test plays.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use srpt::channel::link::{Completion, Link, Operation, ReceiveRequest, SendRequest, Work};
use srpt::channel::rings::{Rings, Sizes};
use srpt::channel::{Agreement, Channel};
use srpt::session::Peers;
use srpt::wire::command::Immediate;
use srpt::wire::{Lun, PortId};

use crate::disks::Disks;
use crate::executor::DiskExecutor;
use crate::sessions::Sessions;
use crate::stats::Stats;
use crate::target::Shared;

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: all is the system allocator's doing; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller vouches for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller vouches for.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller vouches for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CREDITS: u16 = 32;
const BLOCKS: u8 = 8;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;

/// What is posted.
struct Queues {
    sends: VecDeque<SendRequest>,
    receives: VecDeque<ReceiveRequest>,
}

impl Default for Queues {
    /// With room for all: how much is posted at once is a matter of luck, and must
    /// not allocate.
    fn default() -> Self {
        let most = usize::from(CREDITS) * 4;
        Self {
            sends: VecDeque::with_capacity(most),
            receives: VecDeque::with_capacity(most),
        }
    }
}

#[derive(Clone, Default)]
struct FakeLink(Rc<RefCell<Queues>>);

impl Link for FakeLink {
    fn post_send(&mut self, chain: &[SendRequest]) -> rdmacm::Result<()> {
        self.0.borrow_mut().sends.extend(chain);
        Ok(())
    }

    fn post_receive(&mut self, requests: &[ReceiveRequest]) -> rdmacm::Result<()> {
        self.0.borrow_mut().receives.extend(requests);
        Ok(())
    }

    fn disconnect(&mut self) -> rdmacm::Result<()> {
        Ok(())
    }

    fn fail(&mut self) -> rdmacm::Result<()> {
        Ok(())
    }
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

struct World {
    channel: Channel<FakeLink>,
    link: FakeLink,
    shared: Arc<Shared>,
    _file: tempfile::NamedTempFile,
}

impl World {
    /// A channel to a disk whose file is in `folder`; `None` where there is no such
    /// folder, or the kernel allows no io_uring.
    fn new(folder: &Path) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(folder).ok()?;
        file.as_file().set_len(1 << 20).unwrap();
        let lun = file.path().display().to_string().parse().unwrap();
        let shared = Arc::new(Shared {
            disks: Disks::open(&[lun], false).unwrap(),
            sessions: Sessions::new(1, 1),
            stats: Some(Stats::default()),
        });
        let session = shared.sessions.join(1, PortId([1; 16])).unwrap();
        // The news that a new session is told.
        session.attention(0).unwrap().take(READ_10).unwrap();
        let executor = DiskExecutor::new(Arc::clone(&shared), session).ok()?;
        let memory = Rings::new(&Sizes {
            credits: CREDITS,
            receive: 8276,
            immediate_offset: 68,
            pool: 4 << 20,
            max_transfer: 1 << 20,
        });
        let link = FakeLink::default();
        let mut channel = Channel::new(
            link.clone(),
            Box::new(executor),
            memory.unwrap(),
            CREDITS,
            Agreement {
                immediate: Immediate::default(),
                send_queue: 1024,
            },
            Box::new(Alone),
        );
        channel.post_receives().unwrap();
        channel.established();
        Some(Self {
            channel,
            link,
            shared,
            _file: file,
        })
    }

    /// A command for each credit, all under way at once.
    fn round(&mut self, opcode: u8) {
        for number in 0..CREDITS as u8 {
            let mut unit = [0; 64];
            unit[0] = 0x02;
            // A direct descriptor: for data to the target, or from it.
            unit[5] = if opcode == WRITE_10 { 0x10 } else { 0x01 };
            unit[15] = number;
            unit[32..42].copy_from_slice(&[opcode, 0, 0, 0, 0, number * BLOCKS, 0, 0, BLOCKS, 0]);
            unit[60..].copy_from_slice(&(u32::from(BLOCKS) * 512).to_be_bytes());
            let receive = self.link.0.borrow_mut().receives.pop_front().unwrap();
            // SAFETY: the channel has posted these bytes, and more.
            unsafe { (receive.address as *mut [u8; 64]).write(unit) };
            self.channel.completed(Completion {
                work: Work::Receive(receive.number),
                result: Ok(64),
            });
        }
        let mut answers = 0;
        while answers < CREDITS {
            self.channel.settle();
            let Some(send) = self.link.0.borrow_mut().sends.pop_front() else {
                thread::yield_now();
                continue;
            };
            if matches!(send.operation, Operation::Send) {
                answers += 1;
                // SAFETY: the channel has posted a response, of 36 bytes at least.
                let response = unsafe { *(send.address as *const [u8; 36]) };
                assert_eq!((response[0], response[19]), (0xC1, 0), "{response:?}");
            }
            if send.signaled {
                self.channel.completed(Completion {
                    work: send.work,
                    result: Ok(0),
                });
            }
        }
        self.channel.settle();
    }

    /// A thousand commands of each kind. Returns how often the allocator was
    /// called, once everything had its size.
    fn allocations(&mut self) -> u64 {
        let mut before = 0;
        for number in 0..34 {
            if number == 2 {
                before = ALLOCATIONS.get();
            }
            self.round(WRITE_10);
            self.round(READ_10);
        }
        ALLOCATIONS.get() - before
    }
}

/// A file on a disk, and one in memory, which is served in another way.
#[test]
fn a_command_allocates_nothing() {
    for folder in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        if let Some(mut world) = World::new(folder) {
            assert!(ALLOCATIONS.get() > 0, "they are counted");
            assert_eq!(world.allocations(), 0, "{}", folder.display());
        }
    }
}

#[test]
fn a_command_takes_no_lock() {
    let (send_shared, shared) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let world = World::new(&std::env::temp_dir());
        send_shared
            .send(world.as_ref().map(|world| Arc::clone(&world.shared)))
            .unwrap();
        if may_go.recv().is_err() {
            return;
        }
        done.send(world.map(|mut world| world.allocations()))
            .unwrap();
    });
    if let Some(shared) = shared.recv().unwrap() {
        shared.sessions.while_locked(|| {
            go.send(()).unwrap();
            ended
                .recv_timeout(Duration::from_secs(60))
                .expect("a command waits for the lock");
        });
    }
}
