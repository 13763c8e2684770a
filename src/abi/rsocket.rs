//! Constants of `<rdma/rsocket.h>`.

use std::ffi::c_int;

/// Option level of sockets over RDMA.
pub const SOL_RDMA: c_int = 0x10000;
/// Entries of the send queue, `int`.
pub const RDMA_SQSIZE: c_int = 0;
/// Entries of the receive queue, `int`.
pub const RDMA_RQSIZE: c_int = 1;
/// Bytes of inline data, `int`.
pub const RDMA_INLINE: c_int = 2;
/// Mappings that the peer may make by `riomap`, `int`.
pub const RDMA_IOMAPSIZE: c_int = 3;
/// Path records, `struct ibv_path_data[]`.
pub const RDMA_ROUTE: c_int = 4;
