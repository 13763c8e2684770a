//! Joining and leaving multicast groups.

use crate::error::Result;
use crate::kernel::addr::{IP_STORAGE_LEN, STORAGE_LEN, SockAddr};
use crate::kernel::command::Command;
use crate::kernel::plain::{Plain, wire};

use super::address::{addr_size, ip_storage};

wire! {
    /// Joins a multicast group (legacy form of [`JoinMulticast`]).
    pub struct JoinIpMulticast: 48 {
        pub(super) response: u64 = 0,
        uid: u64 = 8,
        addr: [u8; IP_STORAGE_LEN] = 16,
        id: u32 = 44,
    }

    /// Joins a multicast group; the result comes as an event.
    pub struct JoinMulticast: 152 {
        pub(super) response: u64 = 0,
        uid: u64 = 8,
        id: u32 = 16,
        addr_size: u16 = 20,
        join_flags: u16 = 22,
        addr: [u8; STORAGE_LEN] = 24,
    }

    /// Leaves a multicast group.
    pub struct LeaveMulticast: 16 {
        pub(super) response: u64 = 0,
        id: u32 = 8,
        reserved: u32 = 12,
    }
}

impl JoinIpMulticast {
    /// Lets the identifier `id` join the group `addr` as a full member; `uid`
    /// comes back in the membership's events.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an InfiniBand address, which the command cannot carry.
    pub fn new(id: u32, uid: u64, addr: &SockAddr) -> Result<Self> {
        let addr = ip_storage(addr, Self::STEP)?;
        Ok(Self {
            response: 0,
            uid,
            addr,
            id,
        })
    }
}

impl JoinMulticast {
    /// Lets the identifier `id` join the group `addr`; `uid` comes back in the
    /// membership's events. `join_flags`: `RDMA_MC_JOIN_FLAG_…`.
    pub fn new(id: u32, uid: u64, addr: &SockAddr, join_flags: u16) -> Self {
        Self {
            response: 0,
            uid,
            id,
            addr_size: addr_size(addr),
            join_flags,
            addr: addr.to_storage_bytes(),
        }
    }
}

impl LeaveMulticast {
    /// Ends the membership `multicast_id`, as `IdReply` named it.
    pub fn new(multicast_id: u32) -> Self {
        Self {
            id: multicast_id,
            ..Self::zeroed()
        }
    }
}
