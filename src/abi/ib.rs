//! The InfiniBand addresses of `<infiniband/ib.h>`.

use std::ffi::c_int;

use crate::verbs::bindings::{__be16, __be32, __be64, __u64};

/// Address family of [`sockaddr_ib`].
pub const AF_IB: c_int = 27;

/// A GID, to be read by bytes or by big-endian words.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ib_addr_u {
    /// Bytes.
    pub uib_addr8: [u8; 16],
    /// 16-bit words.
    pub uib_addr16: [__be16; 8],
    /// 32-bit words.
    pub uib_addr32: [__be32; 4],
    /// Subnet prefix and interface identifier.
    pub uib_addr64: [__be64; 2],
}

/// A GID.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ib_addr {
    /// The GID in the form that is wanted.
    pub ib_u: ib_addr_u,
}

/// An InfiniBand address, all members big-endian but the family and scope.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sockaddr_ib {
    /// `AF_IB`.
    pub sib_family: libc::sa_family_t,
    /// Partition key.
    pub sib_pkey: __be16,
    /// Flow label.
    pub sib_flowinfo: __be32,
    /// GID.
    pub sib_addr: ib_addr,
    /// Service identifier: port space and port.
    pub sib_sid: __be64,
    /// Which bits of the service identifier count.
    pub sib_sid_mask: __be64,
    /// Scope identifier.
    pub sib_scope_id: __u64,
}
