//! Events: fetched from a channel, and put into one.

use crate::kernel::command::{Command, Reply};
use crate::kernel::plain::{Plain, wire};

use super::connection::{ConnParam, Ece, UdParam};

wire! {
    /// Takes the next event from the channel of the descriptor.
    pub struct GetEvent: 8 {
        pub(super) response: u64 = 0,
    }

    /// An event (`struct rdma_ucm_event_resp`). Which of the forms of its
    /// parameters applies depends on event and port space, which the kernel's
    /// structure does not tell; each accessor is safe in any case.
    pub struct KernelEvent: 336 {
        uid: u64 = 0,
        id: u32 = 8,
        event: u32 = 12,
        status: i32 = 16,
        param: [u8; 308] = 20,
        ece: Ece = 328,
    }

    /// Puts an event into the channel of an identifier (Linux 6.17).
    pub struct WriteCmEvent: 328 {
        id: u32 = 0,
        reserved: u32 = 4,
        event: u32 = 8,
        status: i32 = 12,
        arg: u64 = 16,
        unused: [u64; 38] = 24,
    }
}

// SAFETY: as for the other commands; the reply goes to `response`.
unsafe impl Command for GetEvent {
    const NUMBER: u32 = 12;
    const STEP: &'static str = "get an event (GET_EVENT)";
    const WAITS: bool = true;
    type Reply = KernelEvent;
    fn set_response(&mut self, address: u64) {
        self.response = address;
    }
}

impl GetEvent {
    /// Gets the next event.
    pub fn new() -> Self {
        Self::zeroed()
    }
}

impl Default for GetEvent {
    fn default() -> Self {
        Self::new()
    }
}

impl KernelEvent {
    /// What the kernel reports when an event with `arg` is written to an
    /// identifier.
    pub fn written(uid: u64, id: u32, event: u32, status: i32, arg: u64) -> Self {
        let mut kernel = Self {
            uid,
            id,
            event,
            status,
            ..Self::zeroed()
        };
        for (to, from) in kernel.param.iter_mut().zip(arg.to_ne_bytes()) {
            *to = from;
        }
        kernel
    }

    /// The number that the program gave to the identifier or multicast
    /// membership; 0 for a new identifier that was not accepted yet.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// The kernel's number of the identifier or membership. For connection
    /// requests, the new identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// `RDMA_CM_EVENT_…`; may be a number that this library does not know.
    pub fn event_type(&self) -> u32 {
        self.event
    }

    /// 0, a negative errno, or a positive reason of the event's own.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The parameters of a connected identifier.
    pub fn conn(&self) -> ConnParam {
        ConnParam::from_prefix(&self.param)
    }

    /// The parameters of a datagram identifier or multicast membership.
    pub fn ud(&self) -> UdParam {
        UdParam::from_prefix(&self.param)
    }

    /// The argument of an event written with [`WriteCmEvent`].
    pub fn user_arg(&self) -> u64 {
        u64::from_prefix(&self.param)
    }

    /// Enhanced connection establishment options; zero from older kernels.
    pub fn ece(&self) -> Ece {
        self.ece
    }
}

impl Reply for KernelEvent {
    fn preset() -> Self {
        Self {
            event: u32::MAX,
            ..Self::zeroed()
        }
    }

    fn is_missing(&self) -> bool {
        self.event == u32::MAX
    }
}

impl WriteCmEvent {
    /// Writes `event` with `status` and `arg` to the identifier `id`.
    pub fn new(id: u32, event: u32, status: i32, arg: u64) -> Self {
        Self {
            id,
            event,
            status,
            arg,
            ..Self::zeroed()
        }
    }
}
