//! Options of identifiers, and the lookup of InfiniBand services.

use std::ffi::{c_int, c_void};

use crate::error::{Error, Result};
use crate::kernel::command::Command;
use crate::kernel::plain::{Plain, wire};

wire! {
    /// Sets an option; the kernel reads the value from the program's memory.
    pub struct SetOption: 24 {
        optval: u64 = 0,
        id: u32 = 8,
        level: u32 = 12,
        optname: u32 = 16,
        optlen: u32 = 20,
    }

    /// Asks the subnet administrator for the records of a service (Linux 6.17).
    pub struct ResolveIbService: 88 {
        id: u32 = 0,
        reserved: u32 = 4,
        service_id: u64 = 8,
        service_name: [u8; 64] = 16,
        flags: u32 = 80,
        reserved2: u32 = 84,
    }
}

impl SetOption {
    /// Sets the option `name` of `level` (`RDMA_OPTION_…`) of the identifier
    /// `id` to the `len` bytes at `value`. The kernel answers an address that
    /// cannot be read with `EFAULT`.
    ///
    /// # Safety
    ///
    /// Nobody writes to those of the bytes that exist until the command has
    /// been submitted or dropped.
    pub unsafe fn new(id: u32, level: c_int, name: c_int, value: *const c_void, len: u32) -> Self {
        Self {
            optval: value.expose_provenance() as u64,
            id,
            level: level as u32,
            optname: name as u32,
            optlen: len,
        }
    }
}

impl ResolveIbService {
    /// Looks for the service with the identifier `service_id` (host order).
    pub fn by_id(id: u32, service_id: u64) -> Self {
        const FLAG_ID: u32 = 1;
        Self {
            id,
            service_id,
            flags: FLAG_ID,
            ..Self::zeroed()
        }
    }

    /// Looks for the service of this name.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a name of more than 63 bytes.
    pub fn by_name(id: u32, name: &[u8]) -> Result<Self> {
        const FLAG_NAME: u32 = 2;
        let mut command = Self {
            id,
            flags: FLAG_NAME,
            ..Self::zeroed()
        };
        if name.len() >= command.service_name.len() {
            return Err(Error::invalid(Self::STEP));
        }
        for (target, byte) in command.service_name.iter_mut().zip(name) {
            *target = *byte;
        }
        Ok(command)
    }
}
