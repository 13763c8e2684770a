//! Binding and resolving addresses, resolving routes.

use crate::error::{Error, Result};
use crate::kernel::addr::{IP_STORAGE_LEN, STORAGE_LEN, SockAddr};
use crate::kernel::command::Command;
use crate::kernel::plain::{Plain, wire};

wire! {
    /// Binds to an IP address (legacy form of [`Bind`]).
    pub struct BindIp: 40 {
        pub(super) response: u64 = 0,
        addr: [u8; IP_STORAGE_LEN] = 8,
        id: u32 = 36,
    }

    /// Binds to an address.
    pub struct Bind: 136 {
        id: u32 = 0,
        addr_size: u16 = 4,
        reserved: u16 = 6,
        addr: [u8; STORAGE_LEN] = 8,
    }

    /// Resolves an IP address (legacy form of [`ResolveAddr`]).
    pub struct ResolveIp: 64 {
        src_addr: [u8; IP_STORAGE_LEN] = 0,
        dst_addr: [u8; IP_STORAGE_LEN] = 28,
        id: u32 = 56,
        timeout_ms: u32 = 60,
    }

    /// Resolves a destination address to a local device and a remote GID.
    pub struct ResolveAddr: 272 {
        id: u32 = 0,
        timeout_ms: u32 = 4,
        src_size: u16 = 8,
        dst_size: u16 = 10,
        reserved: u32 = 12,
        src_addr: [u8; STORAGE_LEN] = 16,
        dst_addr: [u8; STORAGE_LEN] = 144,
    }

    /// Finds the path to the resolved address.
    pub struct ResolveRoute: 8 {
        id: u32 = 0,
        timeout_ms: u32 = 4,
    }
}

/// Length of an address as the commands want it; addresses have at most 128
/// bytes.
pub(super) fn addr_size(addr: &SockAddr) -> u16 {
    addr.byte_len() as u16
}

impl BindIp {
    /// Binds the identifier `id`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an InfiniBand address, which the command cannot carry.
    pub fn new(id: u32, addr: &SockAddr) -> Result<Self> {
        let addr = ip_storage(addr, Self::STEP)?;
        Ok(Self {
            id,
            addr,
            ..Self::zeroed()
        })
    }
}

impl Bind {
    /// Binds the identifier `id`.
    pub fn new(id: u32, addr: &SockAddr) -> Self {
        Self {
            id,
            addr_size: addr_size(addr),
            reserved: 0,
            addr: addr.to_storage_bytes(),
        }
    }
}

impl ResolveIp {
    /// Resolves `dst` within `timeout_ms` milliseconds, from `src` or from an
    /// address of the kernel's choice.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an InfiniBand address, which the command cannot carry.
    pub fn new(id: u32, src: Option<&SockAddr>, dst: &SockAddr, timeout_ms: u32) -> Result<Self> {
        let src = src.map(|src| ip_storage(src, Self::STEP)).transpose()?;
        Ok(Self {
            src_addr: src.unwrap_or([0; IP_STORAGE_LEN]),
            dst_addr: ip_storage(dst, Self::STEP)?,
            id,
            timeout_ms,
        })
    }
}

impl ResolveAddr {
    /// Resolves `dst` within `timeout_ms` milliseconds, from `src` or from an
    /// address of the kernel's choice.
    pub fn new(id: u32, src: Option<&SockAddr>, dst: &SockAddr, timeout_ms: u32) -> Self {
        Self {
            id,
            timeout_ms,
            src_size: src.map_or(0, addr_size),
            dst_size: addr_size(dst),
            reserved: 0,
            src_addr: src.map_or([0; STORAGE_LEN], SockAddr::to_storage_bytes),
            dst_addr: dst.to_storage_bytes(),
        }
    }
}

impl ResolveRoute {
    /// Resolves the route of the identifier `id` within `timeout_ms`
    /// milliseconds; 0 fails with `EINVAL`.
    pub fn new(id: u32, timeout_ms: u32) -> Self {
        Self { id, timeout_ms }
    }
}

/// The field of a legacy command; `EINVAL` of `step` for an InfiniBand address.
pub(super) fn ip_storage(addr: &SockAddr, step: &'static str) -> Result<[u8; IP_STORAGE_LEN]> {
    addr.to_ip_storage_bytes().ok_or(Error::invalid(step))
}
