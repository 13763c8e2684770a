//! Options of an identifier.

use std::ffi::{c_int, c_void};

use crate::abi::{RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT};
use crate::error::{Error, Result};
use crate::kernel::command::submit;
use crate::kernel::plain::slice_bytes;
use crate::kernel::ucma::SetOption;
use crate::kernel::uverbs::PathData;

use super::id::Id;
use super::transition;

/// Sets an option. The kernel checks level, name, state and the `length`
/// bytes at `value`, which it reads itself; it does not wait for anything.
///
/// # Errors
/// `ENOSYS` for an unknown level or name, `EINVAL` for a wrong length or
/// state, `EFAULT` if `value` cannot be read.
pub fn set(id: &Id, level: c_int, name: c_int, value: *const c_void, length: usize) -> Result<()> {
    let length =
        u32::try_from(length).map_err(|_| Error::invalid("set an option of over 4 GiB"))?;
    // SAFETY: the kernel reads the bytes during the call; if the program
    // writes to them meanwhile, either value is set.
    let command = unsafe { SetOption::new(id.handle(), level, name, value, length) };
    submit(id.descriptor()?, command)
        .inspect_err(|error| log::error!("{id}: option {level}/{name}: {error}"))?;
    let ack_timeout = level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT;
    if ack_timeout && transition::is_past_connecting(id) {
        log::warn!("{id}: the QP is connected, an ACK timeout set now has no effect on it");
    }
    log::debug!("{id}: option {level}/{name} set, {length} bytes");
    Ok(())
}

/// Sets an option to the bytes of `value`.
///
/// # Errors
/// As for [`set`].
pub fn set_bytes(id: &Id, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    set(id, level, name, value.as_ptr().cast(), value.len())
}

/// Sets the path records, which ends route resolution: the kernel reports
/// `ROUTE_RESOLVED`. One of them must be usable in both directions.
///
/// # Errors
/// `EINVAL` unless the address is resolved and a record has the needed flags.
pub fn set_ib_path(id: &Id, paths: &[PathData]) -> Result<()> {
    set_bytes(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, slice_bytes(paths))
}
