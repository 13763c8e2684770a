//! The public C structures and constants: here those of `<rdma/rdma_cma.h>`, in
//! [`ib`], [`kapi`] and [`rsocket`] those of the headers of these names.
//!
//! Layouts are those of the original library (identical from version 44 to
//! 65) and pinned by compile-time assertions. The types carry their C names,
//! since the public headers are generated from them. No behaviour lives here.

#![allow(non_camel_case_types)]

mod assert_layout;
mod constants;
pub mod ib;
pub mod kapi;
pub mod rsocket;

use std::ffi::{c_char, c_int, c_void};

pub use constants::*;
pub use ib::*;
pub use kapi::*;

use crate::verbs::bindings::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_type,
    ibv_sa_path_rec, ibv_srq,
};

/// An event channel: the descriptor on which the kernel reports events.
///
/// The descriptor may be polled for reading and switched to non-blocking by
/// the program.
#[repr(C)]
#[derive(Debug)]
pub struct rdma_event_channel {
    /// Descriptor of the kernel's connection manager device.
    pub fd: c_int,
}

/// The InfiniBand side of an address: GIDs and partition key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ib_addr {
    /// Local GID.
    pub sgid: ibv_gid,
    /// Remote GID.
    pub dgid: ibv_gid,
    /// Partition key, big-endian.
    pub pkey: u16,
}

/// Local and remote address of an identifier.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_addr {
    /// Local address: any `sockaddr` of up to 128 bytes.
    pub src_storage: libc::sockaddr_storage,
    /// Remote address: any `sockaddr` of up to 128 bytes.
    pub dst_storage: libc::sockaddr_storage,
    /// GIDs and partition key; meaningful on InfiniBand and RoCE.
    pub ibaddr: rdma_ib_addr,
}

/// Addresses and path records of an identifier.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_route {
    /// Local and remote address.
    pub addr: rdma_addr,
    /// `num_paths` path records, owned by the library.
    pub path_rec: *mut ibv_sa_path_rec,
    /// Number of path records.
    pub num_paths: c_int,
}

/// A communication identifier, the RDMA counterpart of a socket.
///
/// Programs read and write the members directly at any time, so the library
/// reads them anew at each call.
#[repr(C)]
pub struct rdma_cm_id {
    /// Device context, once the identifier is bound to a device.
    pub verbs: *mut ibv_context,
    /// Channel that reports the events of this identifier.
    pub channel: *mut rdma_event_channel,
    /// The program's own value.
    pub context: *mut c_void,
    /// Queue pair of this identifier.
    pub qp: *mut ibv_qp,
    /// Addresses and path records.
    pub route: rdma_route,
    /// Port space.
    pub ps: rdma_port_space,
    /// Port number on the device, from 1.
    pub port_num: u8,
    /// Latest event in synchronous mode.
    pub event: *mut rdma_cm_event,
    /// Completion channel of `send_cq`, if the library made it.
    pub send_cq_channel: *mut ibv_comp_channel,
    /// Send completion queue, if the library made it.
    pub send_cq: *mut ibv_cq,
    /// Completion channel of `recv_cq`, if the library made it.
    pub recv_cq_channel: *mut ibv_comp_channel,
    /// Receive completion queue, if the library made it.
    pub recv_cq: *mut ibv_cq,
    /// Shared receive queue of this identifier.
    pub srq: *mut ibv_srq,
    /// Protection domain.
    pub pd: *mut ibv_pd,
    /// Queue pair type.
    pub qp_type: ibv_qp_type,
}

/// Parameters of a connection over a connected queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    /// Data for the peer's program; in events owned by the event.
    pub private_data: *const c_void,
    /// Bytes at `private_data`.
    pub private_data_len: u8,
    /// Incoming RDMA reads and atomics accepted at once.
    pub responder_resources: u8,
    /// Outgoing RDMA reads and atomics wanted at once.
    pub initiator_depth: u8,
    /// Hardware flow control available.
    pub flow_control: u8,
    /// Retries after a lost packet, at most 7; ignored on accept.
    pub retry_count: u8,
    /// Retries after "receiver not ready", 7 means without end.
    pub rnr_retry_count: u8,
    /// Queue pair uses a shared receive queue; ignored if the identifier has
    /// a queue pair.
    pub srq: u8,
    /// Queue pair number; ignored if the identifier has a queue pair.
    pub qp_num: u32,
}

/// Parameters of an unconnected datagram exchange.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_ud_param {
    /// Data from the peer's program, owned by the event.
    pub private_data: *const c_void,
    /// Bytes at `private_data`.
    pub private_data_len: u8,
    /// Address handle attributes that reach the peer.
    pub ah_attr: ibv_ah_attr,
    /// Remote queue pair number.
    pub qp_num: u32,
    /// Remote queue key.
    pub qkey: u32,
}

/// What an event carries besides its type and status.
#[repr(C)]
#[derive(Clone, Copy)]
pub union rdma_cm_event_param {
    /// For connected port spaces.
    pub conn: rdma_conn_param,
    /// For datagram port spaces and multicast.
    pub ud: rdma_ud_param,
    /// For `RDMA_CM_EVENT_USER`.
    pub arg: u64,
}

/// An event, allocated by the library and returned to it by
/// `rdma_ack_cm_event`.
#[repr(C)]
pub struct rdma_cm_event {
    /// Identifier that the event belongs to; the new one for a connection
    /// request.
    pub id: *mut rdma_cm_id,
    /// Listening identifier of a connection request, else null.
    pub listen_id: *mut rdma_cm_id,
    /// What happened.
    pub event: rdma_cm_event_type,
    /// 0, a negative errno, or a transport-specific reason.
    pub status: c_int,
    /// Parameters.
    pub param: rdma_cm_event_param,
}

/// One entry of the list that `rdma_getaddrinfo` returns.
#[repr(C)]
pub struct rdma_addrinfo {
    /// `RAI_…` flags.
    pub ai_flags: c_int,
    /// Address family.
    pub ai_family: c_int,
    /// Queue pair type (`enum ibv_qp_type`).
    pub ai_qp_type: c_int,
    /// Port space (`enum rdma_port_space`).
    pub ai_port_space: c_int,
    /// Bytes at `ai_src_addr`.
    pub ai_src_len: libc::socklen_t,
    /// Bytes at `ai_dst_addr`.
    pub ai_dst_len: libc::socklen_t,
    /// Local address or null.
    pub ai_src_addr: *mut libc::sockaddr,
    /// Remote address or null.
    pub ai_dst_addr: *mut libc::sockaddr,
    /// Canonical name of the source or null.
    pub ai_src_canonname: *mut c_char,
    /// Canonical name of the destination or null.
    pub ai_dst_canonname: *mut c_char,
    /// Bytes at `ai_route`.
    pub ai_route_len: usize,
    /// Path records (`struct ibv_path_data`) or null.
    pub ai_route: *mut c_void,
    /// Bytes at `ai_connect`.
    pub ai_connect_len: usize,
    /// Data that goes before the private data of a connection request.
    pub ai_connect: *mut c_void,
    /// Next entry or null.
    pub ai_next: *mut rdma_addrinfo,
}

/// How to join a multicast group.
#[repr(C)]
pub struct rdma_cm_join_mc_attr_ex {
    /// Which members are set: `enum rdma_cm_join_mc_attr_mask`.
    pub comp_mask: u32,
    /// `enum rdma_cm_mc_join_flags`.
    pub join_flags: u32,
    /// Group address.
    pub addr: *mut libc::sockaddr,
}
