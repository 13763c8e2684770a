//! Constants of `<rdma/rdma_cma.h>`.
//!
//! Numbers that C or the kernel may write stay integers here; the core turns
//! them into Rust enums after validation.

use std::ffi::c_int;

/// What an event reports.
pub type rdma_cm_event_type = u32;
/// Address resolution finished.
pub const RDMA_CM_EVENT_ADDR_RESOLVED: rdma_cm_event_type = 0;
/// Address resolution failed.
pub const RDMA_CM_EVENT_ADDR_ERROR: rdma_cm_event_type = 1;
/// Route resolution finished.
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: rdma_cm_event_type = 2;
/// Route resolution failed.
pub const RDMA_CM_EVENT_ROUTE_ERROR: rdma_cm_event_type = 3;
/// A peer asks for a connection.
pub const RDMA_CM_EVENT_CONNECT_REQUEST: rdma_cm_event_type = 4;
/// The peer accepted; the program must establish the connection.
pub const RDMA_CM_EVENT_CONNECT_RESPONSE: rdma_cm_event_type = 5;
/// Connecting failed.
pub const RDMA_CM_EVENT_CONNECT_ERROR: rdma_cm_event_type = 6;
/// The peer cannot be reached or did not answer.
pub const RDMA_CM_EVENT_UNREACHABLE: rdma_cm_event_type = 7;
/// The peer rejected the request or response.
pub const RDMA_CM_EVENT_REJECTED: rdma_cm_event_type = 8;
/// The connection is established.
pub const RDMA_CM_EVENT_ESTABLISHED: rdma_cm_event_type = 9;
/// The connection ended.
pub const RDMA_CM_EVENT_DISCONNECTED: rdma_cm_event_type = 10;
/// The device of the identifier was removed.
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: rdma_cm_event_type = 11;
/// A multicast group was joined.
pub const RDMA_CM_EVENT_MULTICAST_JOIN: rdma_cm_event_type = 12;
/// Joining a multicast group failed, or the group was lost.
pub const RDMA_CM_EVENT_MULTICAST_ERROR: rdma_cm_event_type = 13;
/// The network device of the address changed its hardware address.
pub const RDMA_CM_EVENT_ADDR_CHANGE: rdma_cm_event_type = 14;
/// The queue pair left its time-wait state.
pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: rdma_cm_event_type = 15;
/// Address information was resolved.
pub const RDMA_CM_EVENT_ADDRINFO_RESOLVED: rdma_cm_event_type = 16;
/// Resolving address information failed.
pub const RDMA_CM_EVENT_ADDRINFO_ERROR: rdma_cm_event_type = 17;
/// An event that the program wrote itself.
pub const RDMA_CM_EVENT_USER: rdma_cm_event_type = 18;
/// An event of the library's own; never delivered.
pub const RDMA_CM_EVENT_INTERNAL: rdma_cm_event_type = 19;

/// Port spaces: what an identifier connects to, and how.
pub type rdma_port_space = u32;
/// IP over InfiniBand.
pub const RDMA_PS_IPOIB: rdma_port_space = 0x0002;
/// Reliable connections.
pub const RDMA_PS_TCP: rdma_port_space = 0x0106;
/// Datagrams.
pub const RDMA_PS_UDP: rdma_port_space = 0x0111;
/// InfiniBand service identifiers.
pub const RDMA_PS_IB: rdma_port_space = 0x013F;

/// Bits of a service identifier that hold the port space.
pub const RDMA_IB_IP_PS_MASK: u64 = 0xFFFF_FFFF_FFFF_0000;
/// Bits of a service identifier that hold the port.
pub const RDMA_IB_IP_PORT_MASK: u64 = 0x0000_0000_0000_FFFF;

/// Service identifiers of `RDMA_PS_TCP`.
pub const RDMA_IB_IP_PS_TCP: u64 = 0x0000_0000_0106_0000;
/// Service identifiers of `RDMA_PS_UDP`.
pub const RDMA_IB_IP_PS_UDP: u64 = 0x0000_0000_0111_0000;
/// Service identifiers of `RDMA_PS_IB`.
pub const RDMA_IB_PS_IB: u64 = 0x0000_0000_013F_0000;

/// Most private data that any message can carry, in bytes.
pub const RDMA_MAX_PRIVATE_DATA: usize = 256;
/// Queue key of every datagram queue pair in `RDMA_PS_UDP`.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;
/// "As many responder resources as the device and the request allow."
pub const RDMA_MAX_RESP_RES: u8 = 0xFF;
/// "As much initiator depth as the device and the request allow."
pub const RDMA_MAX_INIT_DEPTH: u8 = 0xFF;

/// The address is for a listener.
pub const RAI_PASSIVE: c_int = 0x01;
/// The node is a numeric address; no name resolution.
pub const RAI_NUMERICHOST: c_int = 0x02;
/// No route resolution.
pub const RAI_NOROUTE: c_int = 0x04;
/// `ai_family` of the hints says how to read the node.
pub const RAI_FAMILY: c_int = 0x08;
/// Resolve by subnet administrator service records.
pub const RAI_SA: c_int = 0x10;
/// Resolve by name service.
pub const RAI_DNS: c_int = 0x20;

/// Which join attributes are set.
pub type rdma_cm_join_mc_attr_mask = u32;
/// `addr` of the join attributes is set.
pub const RDMA_CM_JOIN_MC_ATTR_ADDRESS: rdma_cm_join_mc_attr_mask = 1 << 0;
/// `join_flags` of the join attributes is set.
pub const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: rdma_cm_join_mc_attr_mask = 1 << 1;
/// First bit without meaning.
pub const RDMA_CM_JOIN_MC_ATTR_RESERVED: rdma_cm_join_mc_attr_mask = 1 << 2;

/// How to join a multicast group.
pub type rdma_cm_mc_join_flags = u32;
/// Join as a full member: send and receive.
pub const RDMA_MC_JOIN_FLAG_FULLMEMBER: rdma_cm_mc_join_flags = 0;
/// Join to send only.
pub const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: rdma_cm_mc_join_flags = 1;
/// First value without meaning.
pub const RDMA_MC_JOIN_FLAG_RESERVED: rdma_cm_mc_join_flags = 2;

/// Option level of the identifier.
pub const RDMA_OPTION_ID: c_int = 0;
/// Option level of InfiniBand.
pub const RDMA_OPTION_IB: c_int = 1;
/// Type of service, `uint8_t`.
pub const RDMA_OPTION_ID_TOS: c_int = 0;
/// Reuse of a bound address, `int`.
pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
/// IPv6 wildcard does not cover IPv4, `int`.
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
/// Local ACK timeout exponent, `uint8_t`.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
/// Path records, `struct ibv_path_data[]`.
pub const RDMA_OPTION_IB_PATH: c_int = 1;

/// Reject reason "vendor option is not supported".
pub const RDMA_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED: c_int = 35;
