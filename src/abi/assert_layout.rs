//! Compile-time proof that every public structure has the layout that
//! existing binaries were built against (x86-64 and other LP64 targets).

use std::mem::{offset_of, size_of};

use super::*;

macro_rules! layout {
    ($type:ty, $size:expr, { $($field:ident: $offset:expr),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

layout!(rdma_event_channel, 4, { fd: 0 });
layout!(rdma_addr, 296, { src_storage: 0, dst_storage: 128, ibaddr: 256 });
layout!(rdma_ib_addr, 40, { sgid: 0, dgid: 16, pkey: 32 });
layout!(rdma_route, 312, { addr: 0, path_rec: 296, num_paths: 304 });
layout!(rdma_cm_id, 416, {
    verbs: 0, channel: 8, context: 16, qp: 24, route: 32, ps: 344, port_num: 348, event: 352,
    send_cq_channel: 360, send_cq: 368, recv_cq_channel: 376, recv_cq: 384, srq: 392, pd: 400,
    qp_type: 408,
});
layout!(rdma_conn_param, 24, {
    private_data: 0, private_data_len: 8, responder_resources: 9, initiator_depth: 10,
    flow_control: 11, retry_count: 12, rnr_retry_count: 13, srq: 14, qp_num: 16,
});
layout!(rdma_ud_param, 56, {
    private_data: 0, private_data_len: 8, ah_attr: 16, qp_num: 48, qkey: 52,
});
layout!(rdma_cm_event, 80, { id: 0, listen_id: 8, event: 16, status: 20, param: 24 });
layout!(rdma_addrinfo, 96, {
    ai_flags: 0, ai_family: 4, ai_qp_type: 8, ai_port_space: 12, ai_src_len: 16, ai_dst_len: 20,
    ai_src_addr: 24, ai_dst_addr: 32, ai_src_canonname: 40, ai_dst_canonname: 48,
    ai_route_len: 56, ai_route: 64, ai_connect_len: 72, ai_connect: 80, ai_next: 88,
});
layout!(rdma_cm_join_mc_attr_ex, 16, { comp_mask: 0, join_flags: 4, addr: 8 });
layout!(sockaddr_ib, 48, {
    sib_family: 0, sib_pkey: 2, sib_flowinfo: 4, sib_addr: 8, sib_sid: 24, sib_sid_mask: 32,
    sib_scope_id: 40,
});
layout!(rdma_ib_service, 80, { service_id: 0, service_name: 8, flags: 72, reserved: 76 });
