//! Identifiers: made, moved between channels, destroyed.

use std::os::fd::RawFd;

use crate::kernel::command::Reply;
use crate::kernel::plain::{Plain, wire};

wire! {
    /// Creates an identifier on the channel of the descriptor.
    pub struct CreateId: 24 {
        uid: u64 = 0,
        pub(super) response: u64 = 8,
        port_space: u16 = 16,
        qp_type: u8 = 18,
        reserved: [u8; 5] = 19,
    }

    /// Reply to [`CreateId`], `JoinMulticast` and `JoinIpMulticast`.
    pub struct IdReply: 4 {
        /// Number of the new identifier or multicast membership; from 0.
        pub id: u32 = 0,
    }

    /// Destroys an identifier; waits until kernel callbacks for it are done.
    pub struct DestroyId: 16 {
        pub(super) response: u64 = 0,
        id: u32 = 8,
        reserved: u32 = 12,
    }

    /// Reply to [`DestroyId`], `LeaveMulticast` and [`MigrateId`].
    pub struct EventsReported: 4 {
        /// How many events of the identifier or membership `GET_EVENT` has
        /// handed out in its life (for [`MigrateId`]: on the old channel).
        pub events_reported: u32 = 0,
    }

    /// Moves an identifier, with its queued events, to the channel of the
    /// descriptor to which the command is submitted.
    pub struct MigrateId: 16 {
        pub(super) response: u64 = 0,
        id: u32 = 8,
        old_fd: u32 = 12,
    }
}

impl CreateId {
    /// `uid`: nonzero number that comes back in the identifier's events.
    /// `port_space`: `RDMA_PS_…`. `qp_type`: `IBV_QPT_…`; the kernel uses it
    /// in port space IB and derives it from the port space otherwise. Numbers
    /// too large for the command become 0, which the kernel refuses.
    pub fn new(uid: u64, port_space: u32, qp_type: u32) -> Self {
        Self {
            uid,
            port_space: u16::try_from(port_space).unwrap_or(0),
            qp_type: u8::try_from(qp_type).unwrap_or(0),
            ..Self::zeroed()
        }
    }
}

impl Reply for IdReply {
    fn preset() -> Self {
        Self { id: u32::MAX }
    }

    fn is_missing(&self) -> bool {
        self.id == u32::MAX
    }
}

impl DestroyId {
    /// Destroys the identifier `id`.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            ..Self::zeroed()
        }
    }
}

impl Reply for EventsReported {
    fn preset() -> Self {
        Self {
            events_reported: u32::MAX,
        }
    }

    fn is_missing(&self) -> bool {
        self.events_reported == u32::MAX
    }
}

impl MigrateId {
    /// Moves the identifier `id` from the channel `old_fd`.
    pub fn new(id: u32, old_fd: RawFd) -> Self {
        Self {
            id,
            old_fd: old_fd as u32,
            ..Self::zeroed()
        }
    }
}
