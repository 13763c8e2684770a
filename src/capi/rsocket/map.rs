//! Memory that the peer may write to.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{iovec, off_t, size_t, ssize_t};

use super::argument::vectors;
use crate::capi::convert::respond;
use crate::error::{Error, Result};
use crate::rsocket::mapping::Range;
use crate::rsocket::sockets;
use crate::rsocket::stream::Stream;
use crate::rsocket::vectors::Cursor;

/// A range of memory; its length has 32 bits on the wire.
fn range(buf: *mut c_void, len: size_t) -> Result<Range> {
    let length = u32::try_from(len).map_err(|_| Error::invalid("map more than 4 GiB"))?;
    Ok(Range {
        addr: buf as u64,
        length,
    })
}

/// Registers memory that the peer may write to with `riowrite`, with `prot`
/// `PROT_WRITE`; with `PROT_NONE` it is only registered. `offset` is what the peer
/// calls it by, -1 stands for its address. `flags` is ignored. The peer can use it
/// once it has received data that was sent afterwards.
///
/// Returns the offset, or -1 with errno: `EBADF`, `EINVAL` for an unconnected
/// socket, another `prot` or more than 4 GiB, `ENOMEM` if the peer (by
/// `RDMA_IOMAPSIZE`) has no room for one more.
///
/// # Safety
/// `buf` is memory of `len` bytes until it is unmapped or the socket closed.
#[expect(unused_variables, reason = "no flag is defined")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> off_t {
    let result = sockets::stream(socket).and_then(|stream| {
        let write = match prot {
            libc::PROT_NONE => false,
            libc::PROT_WRITE => true,
            _ => return Err(Error::invalid("map memory with that protection")),
        };
        let range = range(buf, len)?;
        let offset = if offset == -1 {
            range.addr
        } else {
            offset.cast_unsigned()
        };
        stream.mappable()?.map(range, write, offset)?;
        // An address, and so never -1, or what the program gave.
        Ok(offset as ssize_t)
    });
    respond("riomap", result) as off_t
}

/// Withdraws memory registered with `riomap`; address and length must be the
/// same. The peer's writes fail that arrive afterwards.
///
/// Returns 0, or -1 with errno: `EBADF`, `EINVAL`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    let result =
        sockets::stream(socket).and_then(|stream| stream.mappable()?.unmap(range(buf, len)?));
    respond("riounmap", result)
}

/// Writes into memory that the peer registered with `riomap`; blocks and flags as
/// for `rsend`. Data sent afterwards arrives afterwards.
///
/// Returns the number of bytes taken, less than `count` where a mapping ends, or
/// `(size_t)-1` with errno: `EFAULT` if the peer has registered nothing at
/// `offset`, or as for `rsend`.
///
/// # Safety
/// `buf` may be read for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let offset = offset.cast_unsigned();
    let short = |stream: &Arc<Stream>| {
        // SAFETY: the caller vouches for the buffer.
        !buf.is_null() && unsafe { stream.write_short(buf.cast(), count, offset) }
    };
    if sockets::briefly(socket, short) == Some(true) {
        return count;
    }
    // SAFETY: the caller vouches for the buffer.
    let result = unsafe { write_long(socket, buf, count, offset, flags) };
    respond("riowrite", result) as size_t
}

/// Writes what does not take the short way.
///
/// # Safety
/// `buf` may be read for `count` bytes.
#[inline(never)] // as in `rsend`
unsafe fn write_long(
    socket: c_int,
    buf: *const c_void,
    count: size_t,
    offset: u64,
    flags: c_int,
) -> Result<ssize_t> {
    let stream = sockets::stream(socket)?;
    let vector = iovec {
        iov_base: buf.cast_mut(),
        iov_len: count,
    };
    // SAFETY: the caller vouches for the buffer.
    let mut source = unsafe { Cursor::new(vectors(&vector, 1)?) };
    let written = stream.write_mapped(&mut source, offset, flags)?;
    // A cursor never counts more than fits.
    Ok(written as ssize_t)
}
