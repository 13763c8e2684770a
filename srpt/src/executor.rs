//! The border between the SRP channel and whoever executes SCSI commands.
//!
//! The channel knows how commands, data and answers travel; an [`Executor`]
//! knows what they mean. Each channel runs on a thread of its own and has an
//! executor of its own, made on that thread by the [`Target`]; so an executor
//! needs no locks for what is the channel's alone, and shares what belongs to
//! the disks with other executors in its own way.
//!
//! A command goes through these steps:
//!
//! 1. [`Executor::plan`]: how much data moves, told by the CDB alone.
//! 2. The channel gets a [`Buffer`] and, for data to the target, fills it from
//!    the initiator's memory.
//! 3. [`Executor::start`]: the command is executed now, or begun.
//! 4. [`Executor::poll`]: commands that were begun come back, in any order.
//! 5. The channel sends the data, if any, and the response.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::memory::Buffer;
use crate::wire::{Lun, PortId, RejectReason, Tag, TaskAttribute};

/// What makes executors: the disks and who may use them. Shared by all
/// channels.
pub trait Target: Send + Sync {
    /// Whether this login may go on, before any resource is spent on it.
    ///
    /// # Errors
    /// Why not, for the initiator: [`RejectReason::InsufficientResources`]
    /// while the target is disabled, [`RejectReason::ChannelLimitReached`] for
    /// an initiator that is not allowed or has too many sessions.
    fn admit(&self, login: &LoginInfo) -> Result<(), RejectReason>;

    /// Makes the executor of a channel that was admitted. Called on the
    /// channel's thread, on which the executor stays.
    ///
    /// # Errors
    /// What the system says; the login is then rejected for lack of resources.
    fn executor(&self, login: &LoginInfo) -> std::io::Result<Box<dyn Executor>>;

    /// A login is refused by others than [`Target::admit`], for the reason `why`:
    /// one line of log is due here. Its session and channel have numbers only if
    /// it came that far.
    fn refused(&self, _login: &LoginInfo, _why: &dyn fmt::Display) {}

    /// The channel is established: one line of log is due here.
    fn logged_in(&self, _login: &LoginInfo) {}

    /// The channel is gone and its executor dropped. Called once for each
    /// [`Target::logged_in`].
    fn logged_out(&self, _login: &LoginInfo) {}
}

/// Who logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginInfo {
    /// The initiator port. Together with `target` it names the session.
    pub initiator: PortId,
    /// The target port that it asks for.
    pub target: PortId,
    /// Address of the initiator on the network.
    pub peer: SocketAddr,
    /// Number of the session, unique in this process. Channels that the
    /// initiator adds to a session have the number of the session. 0 in
    /// [`Target::admit`], where it is not known yet.
    pub session: u64,
    /// Number of the channel, unique in this process; 0 in [`Target::admit`].
    pub channel: u64,
    /// The initiator wants to keep the session's other channels.
    pub multi_channel: bool,
}

/// Names a command between [`Executor::start`] and its outcome. Unique among
/// the commands of a channel that are under way, below the channel's number of
/// credits, so it may index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u16);

/// A SCSI command as the initiator sent it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The initiator's name for the command.
    pub tag: Tag,
    /// Logical unit.
    pub lun: Lun,
    /// Command descriptor block: 16 bytes, more if the initiator sent an
    /// additional CDB.
    pub cdb: &'a [u8],
    /// How it is ordered among other commands of the logical unit.
    pub attribute: TaskAttribute,
    /// Bytes that the initiator has ready for the target.
    pub data_out: u32,
    /// Bytes for which the initiator has room.
    pub data_in: u32,
}

/// How much data a command moves, before it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// None. [`Executor::start`] gets an empty buffer.
    NoData,
    /// So many bytes from the initiator are needed. [`Executor::start`] gets
    /// them, or fewer if the initiator offered fewer.
    Out(u32),
    /// At most so many bytes go to the initiator (the CDB's transfer or
    /// allocation length). [`Executor::start`] gets a buffer of that size, or
    /// smaller if the initiator has room for fewer. Its contents are
    /// undefined: [`Outcome::transferred`] bytes of it are sent.
    In(u32),
    /// Nothing moves, this is the answer; [`Executor::start`] is not called.
    Answer(Outcome),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// SCSI status (SAM), 0 for GOOD.
    pub status: u8,
    /// Sense data, with status CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Bytes of the buffer that are meaningful: sent to the initiator, or
    /// taken from it. The channel derives the residual from it.
    pub transferred: u32,
}

/// SAM status codes.
pub mod status {
    /// GOOD.
    pub const GOOD: u8 = 0x00;
    /// CHECK CONDITION.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// BUSY.
    pub const BUSY: u8 = 0x08;
    /// RESERVATION CONFLICT.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// TASK SET FULL.
    pub const TASK_SET_FULL: u8 = 0x28;
}

/// Why a command ended with CHECK CONDITION. Sent in fixed format, 18 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key, 0 to 15.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The INFORMATION field, for instance the first bad block.
    pub information: Option<u32>,
}

impl Sense {
    /// Sense data without information.
    pub const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            asc,
            ascq,
            information: None,
        }
    }
}

impl Outcome {
    /// GOOD, with so many bytes moved.
    pub const fn good(transferred: u32) -> Self {
        Self {
            status: status::GOOD,
            sense: None,
            transferred,
        }
    }

    /// CHECK CONDITION, nothing moved.
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: status::CHECK_CONDITION,
            sense: Some(sense),
            transferred: 0,
        }
    }

    /// A status without sense data, nothing moved.
    pub const fn status(status: u8) -> Self {
        Self {
            status,
            sense: None,
            transferred: 0,
        }
    }
}

/// What became of [`Executor::start`].
#[derive(Debug)]
pub enum Started {
    /// The command is done.
    Done(Completed),
    /// The command comes back by [`Executor::poll`].
    Pending,
}

/// A command that is done. The buffer is the one it was started with.
#[derive(Debug)]
pub struct Completed {
    /// Names the command.
    pub token: Token,
    /// How it ended.
    pub outcome: Outcome,
    /// Its buffer goes back to the channel. One that is dropped instead is
    /// lost to the channel until that closes.
    pub buffer: Buffer,
}

/// Executes the SCSI commands of one channel, on the channel's thread. No
/// function may block for longer than a command of its own making takes; what
/// waits for a disk is [`Started::Pending`].
pub trait Executor {
    /// Says how much data a command moves. Touches no disk.
    fn plan(&mut self, request: &Request<'_>) -> Plan;

    /// Executes a command or begins to. `buffer` holds the data from the
    /// initiator, or is the place for the data to it; it may be handed to the
    /// kernel or another thread until the command is given back.
    ///
    /// `request` is what [`Executor::plan`] saw.
    fn start(&mut self, token: Token, request: &Request<'_>, buffer: Buffer) -> Started;

    /// Hands every command that has come to its end meanwhile to `done`, each
    /// exactly once. Never blocks. Called when [`Executor::fd`] is readable,
    /// after a batch of [`Executor::start`] (the place to submit what they
    /// queued), and at other times.
    fn poll(&mut self, done: &mut dyn FnMut(Completed));

    /// The initiator does not want this command's result any more. It must
    /// come back by [`Executor::poll`] all the same, soon, with any outcome.
    /// Data that was not acknowledged may be written or not.
    fn abort(&mut self, token: Token);

    /// A descriptor that is readable while commands wait for
    /// [`Executor::poll`]; the executor takes the readiness away in `poll`.
    /// `None` if every command is done when `start` returns.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether [`Executor::poll`] is to be called again soon though nothing
    /// makes the descriptor readable: begun commands wait for resources that
    /// the kernel does not have now.
    fn has_backlog(&self) -> bool {
        false
    }

    /// Where all buffers of this channel will lie: `length` bytes at `base`,
    /// mapped until the executor is dropped. For registration with the kernel
    /// (`io_uring`'s fixed buffers); the memory is not to be touched.
    fn attach(&mut self, _base: *mut u8, _length: usize) {}

    /// A logical unit was reset by the initiator of this session; commands of
    /// this channel on it were aborted.
    fn reset(&mut self, _lun: Lun) {}
}
