//! The public members of an identifier.
//!
//! The public head is never borrowed: a program may write its members from any
//! thread at any time, so every access copies one member through a raw pointer,
//! by the accessors of this module only.

use std::ffi::{c_int, c_void};
use std::ptr::{self, addr_of, addr_of_mut};

use crate::abi::{AF_IB, rdma_cm_event, rdma_cm_id, rdma_event_channel, rdma_port_space};
use crate::kernel::addr::SockAddr;
use crate::verbs::bindings::{
    IBV_QPT_UD, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_sa_path_rec,
    ibv_srq,
};

use super::Id;

macro_rules! members {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $($path:ident).+;)*) => {
        impl Id {
            $(
                $(#[$doc])*
                pub fn $get(&self) -> $type {
                    // SAFETY: the head lives as long as `self`; one member is
                    // copied, no reference to it is made.
                    unsafe { addr_of!((*self.public.get()).$($path).+).read() }
                }

                #[doc = concat!("Writes the public member read by `", stringify!($get), "`.")]
                pub fn $set(&self, value: $type) {
                    // SAFETY: as for reading.
                    unsafe { addr_of_mut!((*self.public.get()).$($path).+).write(value) }
                }
            )*
        }
    };
}

members! {
    /// Device context, null until bound to a device.
    verbs, set_verbs: *mut ibv_context = verbs;
    /// Channel that reports this identifier's events.
    channel, set_channel: *mut rdma_event_channel = channel;
    /// The program's own value.
    context, set_context: *mut c_void = context;
    /// Queue pair.
    qp, set_qp: *mut ibv_qp = qp;
    /// Port space.
    ps, set_ps: rdma_port_space = ps;
    /// Port on the device.
    port_num, set_port_num: u8 = port_num;
    /// Latest event in synchronous mode.
    event, set_event: *mut rdma_cm_event = event;
    /// Completion channel of the send queue.
    send_cq_channel, set_send_cq_channel: *mut ibv_comp_channel = send_cq_channel;
    /// Send completion queue.
    send_cq, set_send_cq: *mut ibv_cq = send_cq;
    /// Completion channel of the receive queue.
    recv_cq_channel, set_recv_cq_channel: *mut ibv_comp_channel = recv_cq_channel;
    /// Receive completion queue.
    recv_cq, set_recv_cq: *mut ibv_cq = recv_cq;
    /// Shared receive queue.
    srq, set_srq: *mut ibv_srq = srq;
    /// Protection domain.
    pd, set_pd: *mut ibv_pd = pd;
    /// Queue pair type (`enum ibv_qp_type`).
    qp_type, set_qp_type: u32 = qp_type;
    /// Local GID.
    sgid, set_sgid: ibv_gid = route.addr.ibaddr.sgid;
    /// Remote GID.
    dgid, set_dgid: ibv_gid = route.addr.ibaddr.dgid;
    /// Partition key, big-endian.
    pkey, set_pkey: u16 = route.addr.ibaddr.pkey;
    /// Path records.
    path_rec, set_path_rec: *mut ibv_sa_path_rec = route.path_rec;
    /// Number of path records.
    num_paths, set_num_paths: c_int = route.num_paths;
    /// Storage of the local address.
    src_storage, set_src_storage: libc::sockaddr_storage = route.addr.src_storage;
    /// Storage of the remote address.
    dst_storage, set_dst_storage: libc::sockaddr_storage = route.addr.dst_storage;
}

impl Id {
    /// The public head, for C.
    pub fn as_pointer(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    /// Local address, if its family is known.
    pub fn src_addr(&self) -> Option<SockAddr> {
        SockAddr::from_storage(&self.src_storage())
    }

    /// Remote address, if its family is known.
    pub fn dst_addr(&self) -> Option<SockAddr> {
        SockAddr::from_storage(&self.dst_storage())
    }

    /// Publishes the local address. Bytes beyond its length stay.
    pub fn set_src_addr(&self, addr: &SockAddr) {
        let mut storage = self.src_storage();
        addr.write_to(&mut storage);
        self.set_src_storage(storage);
    }

    /// Publishes the remote address. Bytes beyond its length stay.
    pub fn set_dst_addr(&self, addr: &SockAddr) {
        let mut storage = self.dst_storage();
        addr.write_to(&mut storage);
        self.set_dst_storage(storage);
    }

    /// Whether the identifier uses InfiniBand addresses or service
    /// identifiers, for which the kernel's IP commands do not do.
    pub fn uses_ib_addresses(&self) -> bool {
        let is_ib = |storage: libc::sockaddr_storage| c_int::from(storage.ss_family) == AF_IB;
        is_ib(self.src_storage()) || is_ib(self.dst_storage())
    }

    /// Whether the port space carries datagrams.
    pub fn is_datagram(&self) -> bool {
        self.qp_type() == IBV_QPT_UD
    }

    /// Publishes `paths` as the identifier's path records.
    pub fn set_paths(&self, paths: Vec<ibv_sa_path_rec>) {
        let mut state = self.state();
        state.paths = paths;
        let (records, count) = match state.paths.len() {
            0 => (ptr::null_mut(), 0),
            count => (
                state.paths.as_mut_ptr(),
                c_int::try_from(count).unwrap_or(c_int::MAX),
            ),
        };
        self.set_path_rec(records);
        self.set_num_paths(count);
    }
}
