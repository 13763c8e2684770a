//! Asking what the kernel knows of an identifier: addresses, device, GIDs,
//! path records, service records.

use std::os::fd::RawFd;

use crate::error::Result;
use crate::kernel::addr::{Gid, IP_STORAGE_LEN, STORAGE_LEN, SockAddr};
use crate::kernel::command::{Reply, submit_with_records};
use crate::kernel::plain::{Plain, wire};
use crate::kernel::uverbs::{PathData, PathRecord};
use crate::verbs::bindings::{ibv_gid, ibv_sa_path_rec};

use super::bounded;

/// Room for path records in the reply to [`QueryPath`].
pub const MAX_PATHS: usize = 6;
/// Room for path records in the reply to [`QueryRoute`].
pub const MAX_ROUTE_PATHS: usize = 2;

/// Defines a query as a type of its own.
macro_rules! query {
    ($($(#[$meta:meta])* $name:ident = $option:literal;)*) => {$(
        wire! {
            $(#[$meta])*
            pub struct $name: 16 {
                pub(super) response: u64 = 0,
                id: u32 = 8,
                option: u32 = 12,
            }
        }

        impl $name {
            /// Queries the identifier `id`.
            pub fn new(id: u32) -> Self {
                Self { response: 0, id, option: $option }
            }
        }
    )*};
}

query! {
    /// Queries addresses, device and path records at once (legacy form).
    QueryRoute = 0;
    /// Queries addresses and device.
    QueryAddr = 0;
    /// Queries the path records.
    QueryPath = 1;
    /// Queries the GIDs.
    QueryGid = 2;
    /// Queries the service records; see [`query_ib_service`].
    QueryIbService = 3;
}

wire! {
    /// Reply to [`QueryRoute`].
    pub struct RouteReply: 208 {
        node_guid_be: u64 = 0,
        paths: [PathRecord; MAX_ROUTE_PATHS] = 8,
        src_addr: [u8; IP_STORAGE_LEN] = 136,
        dst_addr: [u8; IP_STORAGE_LEN] = 164,
        num_paths: u32 = 192,
        port_num: u8 = 196,
        reserved: [u8; 3] = 197,
        ibdev_index: i32 = 200,
        reserved2: u32 = 204,
    }

    /// Reply to [`QueryAddr`].
    pub struct AddrReply: 280 {
        node_guid_be: u64 = 0,
        port_num: u8 = 8,
        reserved: u8 = 9,
        pkey_be: u16 = 10,
        src_size: u16 = 12,
        dst_size: u16 = 14,
        src_addr: [u8; STORAGE_LEN] = 16,
        dst_addr: [u8; STORAGE_LEN] = 144,
        ibdev_index: i32 = 272,
        reserved2: u32 = 276,
    }

    /// Reply to [`QueryGid`].
    pub struct GidReply: 280 {
        addrs: AddrReply = 0,
    }

    /// Reply to [`QueryPath`].
    pub struct PathReply: 440 {
        num_paths: u32 = 0,
        reserved: u32 = 4,
        records: [PathData; MAX_PATHS] = 8,
    }

    /// What precedes the service records in the reply to [`QueryIbService`].
    pub struct IbServiceHead: 8 {
        num_records: u32 = 0,
        reserved: u32 = 4,
    }

    /// An InfiniBand service record.
    pub struct ServiceRecord: 176 {
        /// Service identifier in network order.
        pub id_be: u64 = 0,
        /// Port that offers the service.
        pub gid: Gid = 8,
        /// Partition key in network order.
        pub pkey_be: u16 = 24,
        reserved: u16 = 26,
        /// Remaining life of the record in seconds.
        pub lease: u32 = 28,
        /// Service key.
        pub key: [u8; 16] = 32,
        /// Name, padded with zeros.
        pub name: [u8; 64] = 48,
        /// Data of the service's own.
        pub data8: [u8; 16] = 112,
        /// Data of the service's own.
        pub data16: [u16; 8] = 128,
        /// Data of the service's own.
        pub data32: [u32; 4] = 144,
        /// Data of the service's own.
        pub data64: [u64; 2] = 160,
    }
}

/// Device index in replies of kernels that do not write it.
const NO_INDEX: i32 = -1;

impl RouteReply {
    /// GUID of the device in network order; 0 when the identifier is not bound
    /// to a device.
    pub fn node_guid(&self) -> u64 {
        self.node_guid_be
    }

    /// The kernel's index of the device; −1 from kernels that do not tell, as
    /// `ibv_get_device_index(3)`.
    pub fn ibdev_index(&self) -> i32 {
        self.ibdev_index
    }

    /// Port of the device, from 1; 0 when not bound to a device.
    pub fn port_num(&self) -> u8 {
        self.port_num
    }

    /// Local address; `None` when it is of no known family.
    pub fn src(&self) -> Option<SockAddr> {
        SockAddr::from_bytes(&self.src_addr)
    }

    /// Remote address; `None` when there is none yet.
    pub fn dst(&self) -> Option<SockAddr> {
        SockAddr::from_bytes(&self.dst_addr)
    }

    /// The path records; empty before the route is resolved.
    pub fn paths(&self) -> &[PathRecord] {
        bounded(&self.paths, self.num_paths)
    }

    /// Local GID; known as soon as the identifier is bound to a device.
    pub fn sgid(&self) -> ibv_gid {
        ibv_gid {
            raw: self.first_path().sgid(),
        }
    }

    /// Remote GID; known as soon as the address is resolved.
    pub fn dgid(&self) -> ibv_gid {
        ibv_gid {
            raw: self.first_path().dgid(),
        }
    }

    /// Partition key in network order; known with the device.
    pub fn pkey(&self) -> u16 {
        self.first_path().pkey()
    }

    /// The path records of an identifier on Ethernet, equal to those that
    /// [`QueryPath`] returns there.
    pub fn ethernet_paths(&self) -> Vec<ibv_sa_path_rec> {
        self.paths()
            .iter()
            .map(PathRecord::to_verbs_ethernet)
            .collect()
    }

    /// The first path record, in which the kernel reports GIDs and partition
    /// key before the route is resolved as well.
    fn first_path(&self) -> &PathRecord {
        let [first, _] = &self.paths;
        first
    }
}

impl Reply for RouteReply {
    fn preset() -> Self {
        Self {
            ibdev_index: NO_INDEX,
            ..Self::zeroed()
        }
    }
}

impl AddrReply {
    /// GUID of the device in network order; 0 when the identifier is not bound
    /// to a device.
    pub fn node_guid(&self) -> u64 {
        self.node_guid_be
    }

    /// The kernel's index of the device; −1 from kernels that do not tell, as
    /// `ibv_get_device_index(3)`.
    pub fn ibdev_index(&self) -> i32 {
        self.ibdev_index
    }

    /// Port of the device, from 1; 0 when not bound to a device.
    pub fn port_num(&self) -> u8 {
        self.port_num
    }

    /// Partition key in network order.
    pub fn pkey(&self) -> u16 {
        self.pkey_be
    }

    /// Local address; `None` when it is of no known family or shorter than its
    /// family needs.
    pub fn src(&self) -> Option<SockAddr> {
        SockAddr::from_bytes(bounded(&self.src_addr, self.src_size.into()))
    }

    /// Remote address; `None` when there is none yet, or as [`AddrReply::src`].
    pub fn dst(&self) -> Option<SockAddr> {
        SockAddr::from_bytes(bounded(&self.dst_addr, self.dst_size.into()))
    }
}

impl Reply for AddrReply {
    fn preset() -> Self {
        Self {
            ibdev_index: NO_INDEX,
            ..Self::zeroed()
        }
    }
}

impl GidReply {
    /// Local GID; zero when the reply does not hold an InfiniBand address.
    pub fn sgid(&self) -> ibv_gid {
        gid_of(self.addrs.src())
    }

    /// Remote GID; zero when the reply does not hold an InfiniBand address.
    pub fn dgid(&self) -> ibv_gid {
        gid_of(self.addrs.dst())
    }
}

fn gid_of(addr: Option<SockAddr>) -> ibv_gid {
    let gid = addr.filter(|addr| !addr.is_ip()).map(|addr| addr.gid());
    ibv_gid {
        raw: gid.unwrap_or_default(),
    }
}

impl Reply for GidReply {
    fn preset() -> Self {
        Self {
            addrs: AddrReply::preset(),
        }
    }
}

impl PathReply {
    /// The path records that the kernel reported; empty before the route is
    /// resolved.
    pub fn records(&self) -> &[PathData] {
        bounded(&self.records, self.num_paths)
    }

    /// The path records as libibverbs knows them.
    pub fn to_verbs(&self) -> Vec<ibv_sa_path_rec> {
        self.records().iter().map(PathData::to_verbs).collect()
    }
}

impl Reply for PathReply {}
impl Reply for IbServiceHead {}

/// Queries the service records that `ResolveIbService` found; the kernel
/// keeps them until the identifier is destroyed.
///
/// # Errors
///
/// As `super::submit`; `ENOSYS` from kernels without the query.
pub fn query_ib_service(fd: RawFd, id: u32) -> Result<Vec<ServiceRecord>> {
    const FIRST_TRY: usize = 6;
    /// As many as the 16 bits for the length of a reply allow.
    const MOST: usize =
        (u16::MAX as usize - size_of::<IbServiceHead>()) / size_of::<ServiceRecord>();

    let query = QueryIbService::new(id);
    let (mut head, mut records) = submit_with_records(fd, query, FIRST_TRY)?;
    let count = head.count().min(MOST);
    if count > FIRST_TRY {
        (head, records) = submit_with_records(fd, query, count)?;
    }
    records.truncate(head.count());
    Ok(records)
}

impl IbServiceHead {
    fn count(&self) -> usize {
        usize::try_from(self.num_records).unwrap_or(usize::MAX)
    }
}
