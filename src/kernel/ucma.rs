//! The commands of the connection manager's character device and their
//! replies (`<rdma/rdma_user_cm.h>`), for [`super::submit`].
//!
//! One type per command, with a constructor that takes the command's
//! arguments, and one per reply, whose accessors hand out only bounded and
//! checked data. Which command is right in which state, and what its errno
//! means to a program, is not known here.
//!
//! Identifiers are the kernel's numbers; `uid` is the number that the kernel
//! gives back in events. Commands with two forms come as *legacy* (28-byte
//! addresses: [`BindIp`], [`ResolveIp`], [`QueryRoute`], [`JoinIpMulticast`])
//! and *extended* ([`Bind`], [`ResolveAddr`], [`QueryAddr`], [`QueryGid`],
//! [`QueryPath`], [`JoinMulticast`]). Command 13, `GET_OPTION`, was never
//! implemented by any kernel and is left out.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::os::fd::RawFd;

use super::addr::{Gid, IP_STORAGE_LEN, STORAGE_LEN, SockAddr};
use super::command::{Command, Reply, submit_with_records};
use super::plain::{Plain, wire};
use super::uverbs::{AhAttr, PathData, PathRecord, QpAttr};
use crate::error::{Error, Result};
use crate::verbs::bindings::{ibv_gid, ibv_sa_path_rec};

/// Room for private data in commands and events, in bytes.
pub const PRIVATE_DATA_LEN: usize = 256;
/// Room for path records in the reply to [`QueryPath`].
pub const MAX_PATHS: usize = 6;
/// Room for path records in the reply to [`QueryRoute`].
pub const MAX_ROUTE_PATHS: usize = 2;

/// Implements [`Command`] for commands, with or without a reply.
macro_rules! commands {
    ($($number:literal $name:ident $(-> $reply:ty)?, $step:literal;)*) => {$(
        // SAFETY: `<rdma/rdma_user_cm.h>`: the reply goes to `response`, which
        // `set_response` sets; commands without a reply have no such address
        // (`BIND_IP` leaves it alone).
        unsafe impl Command for $name {
            const NUMBER: u32 = $number;
            const STEP: &'static str = $step;
            commands!(@reply $($reply)?);
        }
    )*};
    (@reply) => {
        type Reply = ();
    };
    (@reply $reply:ty) => {
        type Reply = $reply;
        fn set_response(&mut self, address: u64) {
            self.response = address;
        }
    };
}

commands! {
    0 CreateId -> IdReply, "create an identifier (CREATE_ID)";
    1 DestroyId -> EventsReported, "destroy an identifier (DESTROY_ID)";
    2 BindIp, "bind to an address (BIND_IP)";
    3 ResolveIp, "resolve an address (RESOLVE_IP)";
    4 ResolveRoute, "resolve a route (RESOLVE_ROUTE)";
    5 QueryRoute -> RouteReply, "query the route (QUERY_ROUTE)";
    6 Connect, "connect (CONNECT)";
    7 Listen, "listen (LISTEN)";
    8 Accept, "accept (ACCEPT)";
    9 Reject, "reject (REJECT)";
    10 Disconnect, "disconnect (DISCONNECT)";
    11 InitQpAttr -> QpAttr, "fetch queue pair attributes (INIT_QP_ATTR)";
    14 SetOption, "set an option (SET_OPTION)";
    15 Notify, "notify of an event (NOTIFY)";
    16 JoinIpMulticast -> IdReply, "join a multicast group (JOIN_IP_MCAST)";
    17 LeaveMulticast -> EventsReported, "leave a multicast group (LEAVE_MCAST)";
    18 MigrateId -> EventsReported, "migrate an identifier (MIGRATE_ID)";
    19 QueryAddr -> AddrReply, "query the addresses (QUERY)";
    19 QueryPath -> PathReply, "query the path records (QUERY)";
    19 QueryGid -> GidReply, "query the GIDs (QUERY)";
    19 QueryIbService -> IbServiceHead, "query the service records (QUERY)";
    20 Bind, "bind to an address (BIND)";
    21 ResolveAddr, "resolve an address (RESOLVE_ADDR)";
    22 JoinMulticast -> IdReply, "join a multicast group (JOIN_MCAST)";
    23 ResolveIbService, "resolve a service (RESOLVE_IB_SERVICE)";
    24 WriteCmEvent, "write an event (WRITE_CM_EVENT)";
}

// Identifiers ------------------------------------------------------------

wire! {
    /// Creates an identifier on the channel of the descriptor.
    pub struct CreateId: 24 {
        uid: u64 = 0,
        response: u64 = 8,
        port_space: u16 = 16,
        qp_type: u8 = 18,
        reserved: [u8; 5] = 19,
    }

    /// Reply to [`CreateId`], [`JoinMulticast`] and [`JoinIpMulticast`].
    pub struct IdReply: 4 {
        /// Number of the new identifier or multicast membership; from 0.
        pub id: u32 = 0,
    }

    /// Destroys an identifier; waits until kernel callbacks for it are done.
    pub struct DestroyId: 16 {
        response: u64 = 0,
        id: u32 = 8,
        reserved: u32 = 12,
    }

    /// Reply to [`DestroyId`], [`LeaveMulticast`] and [`MigrateId`].
    pub struct EventsReported: 4 {
        /// How many events of the identifier or membership `GET_EVENT` has
        /// handed out in its life (for [`MigrateId`]: on the old channel).
        pub events_reported: u32 = 0,
    }

    /// Moves an identifier, with its queued events, to the channel of the
    /// descriptor to which the command is submitted.
    pub struct MigrateId: 16 {
        response: u64 = 0,
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

impl Reply for IdReply {}

impl DestroyId {
    /// Destroys the identifier `id`.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            ..Self::zeroed()
        }
    }
}

impl Reply for EventsReported {}

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

// Addresses --------------------------------------------------------------

wire! {
    /// Binds to an IP address (legacy form of [`Bind`]).
    pub struct BindIp: 40 {
        response: u64 = 0,
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
fn addr_size(addr: &SockAddr) -> u16 {
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

fn ip_storage(addr: &SockAddr, step: &'static str) -> Result<[u8; IP_STORAGE_LEN]> {
    addr.to_ip_storage_bytes().ok_or(Error::invalid(step))
}

// Queries ----------------------------------------------------------------

/// Defines a query as a type of its own.
macro_rules! query {
    ($($(#[$meta:meta])* $name:ident = $option:literal;)*) => {$(
        wire! {
            $(#[$meta])*
            pub struct $name: 16 {
                response: u64 = 0,
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

/// Queries the service records that [`ResolveIbService`] found; the kernel
/// keeps them until the identifier is destroyed.
///
/// # Errors
///
/// As [`super::submit`]; `ENOSYS` from kernels without the query.
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

/// The first `count` items, or all if there are fewer: counts and sizes come
/// from the kernel and may be larger than what fits a reply.
fn bounded<T>(items: &[T], count: u32) -> &[T] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    items.get(..count).unwrap_or(items)
}

// Connections ------------------------------------------------------------

wire! {
    /// Parameters of a connection (`struct rdma_ucm_conn_param`).
    pub struct ConnParam: 272 {
        /// Queue pair number, 24 bits.
        pub qp_num: u32 = 0,
        /// Queue key.
        pub qkey: u32 = 4,
        private_data: [u8; PRIVATE_DATA_LEN] = 8,
        private_data_len: u8 = 264,
        /// Nonzero if the queue pair has a shared receive queue.
        pub srq: u8 = 265,
        /// RDMA reads and atomics that the sender of the message answers at a
        /// time.
        pub responder_resources: u8 = 266,
        /// RDMA reads and atomics that the sender issues at a time.
        pub initiator_depth: u8 = 267,
        /// Nonzero for hardware flow control.
        pub flow_control: u8 = 268,
        /// Retries after errors, 3 bits.
        pub retry_count: u8 = 269,
        /// Retries after "receiver not ready", 3 bits; 7 means for ever.
        pub rnr_retry_count: u8 = 270,
        /// Zero in [`Accept`] says that the rest is not set.
        pub valid: u8 = 271,
    }

    /// Parameters of a datagram service (`struct rdma_ucm_ud_param`).
    pub struct UdParam: 304 {
        /// Queue pair number, 24 bits.
        pub qp_num: u32 = 0,
        /// Queue key.
        pub qkey: u32 = 4,
        ah_attr: AhAttr = 8,
        private_data: [u8; PRIVATE_DATA_LEN] = 40,
        private_data_len: u8 = 296,
        reserved: [u8; 7] = 297,
    }

    /// Enhanced connection establishment: options of a vendor.
    pub struct Ece: 8 {
        /// Vendor; 0 for none.
        pub vendor_id: u32 = 0,
        /// Options.
        pub attr_mod: u32 = 4,
    }

    /// Sends a connection request (datagrams: asks for the service's address).
    pub struct Connect: 288 {
        param: ConnParam = 0,
        id: u32 = 272,
        reserved: u32 = 276,
        ece: Ece = 280,
    }

    /// Starts to listen for connection requests.
    pub struct Listen: 8 {
        id: u32 = 0,
        backlog: u32 = 4,
    }

    /// Accepts a connection request, or establishes an accepted connection.
    pub struct Accept: 296 {
        uid: u64 = 0,
        param: ConnParam = 8,
        id: u32 = 280,
        reserved: u32 = 284,
        ece: Ece = 288,
    }

    /// Rejects a connection request or response.
    pub struct Reject: 264 {
        id: u32 = 0,
        private_data_len: u8 = 4,
        reason: u8 = 5,
        reserved: [u8; 2] = 6,
        private_data: [u8; PRIVATE_DATA_LEN] = 8,
    }

    /// Ends a connection.
    pub struct Disconnect: 4 {
        id: u32 = 0,
    }

    /// Fetches the queue pair attributes for a state; the reply is [`QpAttr`].
    pub struct InitQpAttr: 16 {
        response: u64 = 0,
        id: u32 = 8,
        qp_state: u32 = 12,
    }

    /// Tells the connection manager of an asynchronous event of the queue pair.
    pub struct Notify: 8 {
        id: u32 = 0,
        event: u32 = 4,
    }
}

/// Copies private data into the field of a command and returns its length.
fn put_private_data(
    field: &mut [u8; PRIVATE_DATA_LEN],
    data: &[u8],
    step: &'static str,
) -> Result<u8> {
    let len = u8::try_from(data.len()).map_err(|_| Error::invalid(step))?;
    field.fill(0);
    for (target, byte) in field.iter_mut().zip(data) {
        *target = *byte;
    }
    Ok(len)
}

impl Default for ConnParam {
    fn default() -> Self {
        Self::new()
    }
}

impl ConnParam {
    /// All zero: no private data, not valid.
    pub fn new() -> Self {
        Self::zeroed()
    }

    /// The private data; at most 255 bytes.
    pub fn private_data(&self) -> &[u8] {
        bounded(&self.private_data, self.private_data_len.into())
    }

    /// Replaces the private data.
    ///
    /// # Errors
    ///
    /// `EINVAL`, with nothing changed, for more than 255 bytes. The kernel's
    /// own limits are lower and depend on message and address family.
    pub fn set_private_data(&mut self, data: &[u8]) -> Result<()> {
        let step = "put private data into a connection message";
        self.private_data_len = put_private_data(&mut self.private_data, data, step)?;
        Ok(())
    }
}

impl UdParam {
    /// How to reach the queue pair.
    pub fn ah_attr(&self) -> &AhAttr {
        &self.ah_attr
    }

    /// The private data; at most 255 bytes.
    pub fn private_data(&self) -> &[u8] {
        bounded(&self.private_data, self.private_data_len.into())
    }
}

impl Default for Ece {
    /// No vendor.
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Connect {
    /// Connects the identifier `id`.
    pub fn new(id: u32, param: &ConnParam, ece: Ece) -> Self {
        Self {
            param: *param,
            id,
            reserved: 0,
            ece,
        }
    }
}

impl Listen {
    /// Listens on the identifier `id` with room for `backlog` requests not yet
    /// fetched; values that are not positive, or too large, mean the system's
    /// maximum.
    pub fn new(id: u32, backlog: i32) -> Self {
        Self {
            id,
            backlog: backlog as u32,
        }
    }
}

impl Accept {
    /// Accepts the request of the identifier `id`, whose events carry the
    /// nonzero number `uid` from now on. `param.valid` is set.
    pub fn new(id: u32, uid: u64, param: &ConnParam, ece: Ece) -> Self {
        let param = ConnParam { valid: 1, ..*param };
        Self {
            uid,
            param,
            id,
            reserved: 0,
            ece,
        }
    }

    /// Tells that the connection of the identifier `id`, which the peer has
    /// accepted, is established; for the active side.
    pub fn established(id: u32) -> Self {
        Self {
            id,
            ..Self::zeroed()
        }
    }
}

impl Reject {
    /// Rejects the identifier `id`. `reason` 0 stands for 28, the
    /// application's own refusal; 35 is an ECE option that is not supported.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than 255 bytes of private data.
    pub fn new(id: u32, private_data: &[u8], reason: u8) -> Result<Self> {
        let mut command = Self {
            id,
            reason,
            ..Self::zeroed()
        };
        command.private_data_len =
            put_private_data(&mut command.private_data, private_data, Self::STEP)?;
        Ok(command)
    }
}

impl Disconnect {
    /// Disconnects the identifier `id`.
    pub fn new(id: u32) -> Self {
        Self { id }
    }
}

impl InitQpAttr {
    /// Fetches the attributes for the state `qp_state` (`IBV_QPS_…`).
    pub fn new(id: u32, qp_state: u32) -> Self {
        Self {
            id,
            qp_state,
            ..Self::zeroed()
        }
    }
}

impl Notify {
    /// Notifies the identifier `id` of `event` (`IBV_EVENT_…`).
    pub fn new(id: u32, event: u32) -> Self {
        Self { id, event }
    }
}

// Events -----------------------------------------------------------------

wire! {
    /// Takes the next event from the channel of the descriptor.
    pub struct GetEvent: 8 {
        response: u64 = 0,
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
    const ENDED_BY_SIGNAL: bool = true;
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

impl Reply for KernelEvent {}

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

// Multicast --------------------------------------------------------------

wire! {
    /// Joins a multicast group (legacy form of [`JoinMulticast`]).
    pub struct JoinIpMulticast: 48 {
        response: u64 = 0,
        uid: u64 = 8,
        addr: [u8; IP_STORAGE_LEN] = 16,
        id: u32 = 44,
    }

    /// Joins a multicast group; the result comes as an event.
    pub struct JoinMulticast: 152 {
        response: u64 = 0,
        uid: u64 = 8,
        id: u32 = 16,
        addr_size: u16 = 20,
        join_flags: u16 = 22,
        addr: [u8; STORAGE_LEN] = 24,
    }

    /// Leaves a multicast group.
    pub struct LeaveMulticast: 16 {
        response: u64 = 0,
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
    /// Ends the membership `multicast_id`, as [`IdReply`] named it.
    pub fn new(multicast_id: u32) -> Self {
        Self {
            id: multicast_id,
            ..Self::zeroed()
        }
    }
}

// Options and services ---------------------------------------------------

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

#[cfg(test)]
mod tests;
