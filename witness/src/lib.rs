//! Compares layouts of rdmacm with those that the crate `rdma-sys` finds in the
//! installed headers: libibverbs' structures and the public ones.
//!
//! Everything happens at compile time: `cargo check` in this folder fails where
//! the two disagree. It needs the original's headers and a libclang that bindgen
//! 0.59 understands (15 or older), so nothing else depends on it; `cargo xtask
//! abi` runs it.

use std::mem::{align_of, offset_of, size_of};

use rdma_sys as theirs;
use rdmacm::{abi, verbs::bindings};

/// Asserts that a type has the same size, alignment and offsets in two crates.
/// `a = b` stands for a field `a` of ours that is called `b` in the other.
macro_rules! same {
    ($ours:ident::$type:ident { $($field:ident $(= $other:ident)?),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$ours::$type>() == size_of::<theirs::$type>());
            assert!(align_of::<$ours::$type>() == align_of::<theirs::$type>());
            $(assert!(
                offset_of!($ours::$type, $field) == same!(@offset $type $field $($other)?)
            );)*
        };
    };
    (@offset $type:ident $field:ident) => { offset_of!(theirs::$type, $field) };
    (@offset $type:ident $field:ident $other:ident) => { offset_of!(theirs::$type, $other) };
}

same!(bindings::ibv_gid { raw, global });
same!(bindings::ibv_global_route {
    dgid,
    flow_label,
    sgid_index,
    hop_limit,
    traffic_class
});
same!(bindings::ibv_ah_attr {
    grh,
    dlid,
    sl,
    src_path_bits,
    static_rate,
    is_global,
    port_num
});
same!(bindings::ibv_ah {
    context,
    pd,
    handle
});
same!(bindings::ibv_device_attr {
    fw_ver,
    node_guid,
    sys_image_guid,
    max_mr_size,
    page_size_cap,
    vendor_id,
    vendor_part_id,
    hw_ver,
    max_qp,
    max_qp_wr,
    device_cap_flags,
    max_sge,
    max_sge_rd,
    max_cq,
    max_cqe,
    max_mr,
    max_pd,
    max_qp_rd_atom,
    max_ee_rd_atom,
    max_res_rd_atom,
    max_qp_init_rd_atom,
    max_ee_init_rd_atom,
    atomic_cap,
    max_ee,
    max_rdd,
    max_mw,
    max_raw_ipv6_qp,
    max_raw_ethy_qp,
    max_mcast_grp,
    max_mcast_qp_attach,
    max_total_mcast_qp_attach,
    max_ah,
    max_fmr,
    max_map_per_fmr,
    max_srq,
    max_srq_wr,
    max_srq_sge,
    max_pkeys,
    local_ca_ack_delay,
    phys_port_cnt
});
same!(bindings::ibv_device {
    _ops,
    node_type,
    transport_type,
    name,
    dev_name,
    dev_path,
    ibdev_path
});
same!(bindings::ibv_port_attr {
    state,
    max_mtu,
    active_mtu,
    gid_tbl_len,
    port_cap_flags,
    max_msg_sz,
    bad_pkey_cntr,
    qkey_viol_cntr,
    pkey_tbl_len,
    lid,
    sm_lid,
    lmc,
    max_vl_num,
    sm_sl,
    subnet_timeout,
    init_type_reply,
    active_width,
    active_speed,
    phys_state,
    link_layer,
    flags,
    port_cap_flags2
});
same!(bindings::ibv_context {
    device,
    ops,
    cmd_fd,
    async_fd,
    num_comp_vectors,
    mutex,
    abi_compat
});
same!(bindings::ibv_context_ops {
    _compat_query_device,
    _compat_query_port,
    _compat_alloc_pd,
    _compat_dealloc_pd,
    _compat_reg_mr,
    _compat_rereg_mr,
    _compat_dereg_mr,
    alloc_mw,
    bind_mw,
    dealloc_mw,
    _compat_create_cq,
    poll_cq,
    req_notify_cq,
    _compat_cq_event,
    _compat_resize_cq,
    _compat_destroy_cq,
    _compat_create_srq,
    _compat_modify_srq,
    _compat_query_srq,
    _compat_destroy_srq,
    post_srq_recv,
    _compat_create_qp,
    _compat_query_qp,
    _compat_modify_qp,
    _compat_destroy_qp,
    post_send,
    post_recv,
    _compat_create_ah,
    _compat_destroy_ah,
    _compat_attach_mcast,
    _compat_detach_mcast,
    _compat_async_event
});
same!(bindings::ibv_pd { context, handle });
same!(bindings::ibv_mr {
    context,
    pd,
    addr,
    length,
    handle,
    lkey,
    rkey
});
same!(bindings::ibv_comp_channel {
    context,
    fd,
    refcnt
});
same!(bindings::ibv_cq {
    context,
    channel,
    cq_context,
    handle,
    cqe,
    mutex,
    cond,
    comp_events_completed,
    async_events_completed
});
same!(bindings::ibv_wc { wr_id, status, opcode, vendor_err, byte_len, __bindgen_anon_1 = imm_data_invalidated_rkey_union, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits });
same!(bindings::ibv_sge { addr, length, lkey });
same!(bindings::ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, __bindgen_anon_1 = imm_data_invalidated_rkey_union, wr, qp_type, __bindgen_anon_2 = bind_mw_tso_union });
same!(bindings::ibv_recv_wr {
    wr_id,
    next,
    sg_list,
    num_sge
});
same!(bindings::ibv_qp {
    context,
    qp_context,
    pd,
    send_cq,
    recv_cq,
    srq,
    handle,
    qp_num,
    state,
    qp_type,
    mutex,
    cond,
    events_completed
});
same!(bindings::ibv_qp_cap {
    max_send_wr,
    max_recv_wr,
    max_send_sge,
    max_recv_sge,
    max_inline_data
});
same!(bindings::ibv_qp_attr {
    qp_state,
    cur_qp_state,
    path_mtu,
    path_mig_state,
    qkey,
    rq_psn,
    sq_psn,
    dest_qp_num,
    qp_access_flags,
    cap,
    ah_attr,
    alt_ah_attr,
    pkey_index,
    alt_pkey_index,
    en_sqd_async_notify,
    sq_draining,
    max_rd_atomic,
    max_dest_rd_atomic,
    min_rnr_timer,
    port_num,
    timeout,
    retry_cnt,
    rnr_retry,
    alt_port_num,
    alt_timeout,
    rate_limit
});
same!(bindings::ibv_qp_init_attr {
    qp_context,
    send_cq,
    recv_cq,
    srq,
    cap,
    qp_type,
    sq_sig_all
});
same!(bindings::ibv_qp_init_attr_ex {
    qp_context,
    send_cq,
    recv_cq,
    srq,
    cap,
    qp_type,
    sq_sig_all,
    comp_mask,
    pd,
    xrcd,
    create_flags,
    max_tso_header,
    rwq_ind_tbl,
    rx_hash_conf,
    source_qpn,
    send_ops_flags
});
same!(bindings::ibv_srq {
    context,
    srq_context,
    pd,
    handle,
    mutex,
    cond,
    events_completed
});
same!(bindings::ibv_srq_attr {
    max_wr,
    max_sge,
    srq_limit
});
same!(bindings::ibv_srq_init_attr { srq_context, attr });
same!(bindings::ibv_srq_init_attr_ex {
    srq_context,
    attr,
    comp_mask,
    srq_type,
    pd,
    xrcd,
    cq,
    tm_cap
});
same!(bindings::ibv_tm_cap {
    max_num_tags,
    max_ops
});
same!(bindings::ibv_xrcd { context });
same!(bindings::ibv_xrcd_init_attr {
    comp_mask,
    fd,
    oflags
});
same!(bindings::ibv_ece {
    vendor_id,
    options,
    comp_mask
});
same!(bindings::ibv_async_event {
    element,
    event_type
});
same!(bindings::ibv_sa_path_rec {
    dgid,
    sgid,
    dlid,
    slid,
    raw_traffic,
    flow_label,
    hop_limit,
    traffic_class,
    reversible,
    numb_path,
    pkey,
    sl,
    mtu_selector,
    mtu,
    rate_selector,
    rate,
    packet_life_time_selector,
    packet_life_time,
    preference
});
same!(bindings::verbs_context {
    query_port,
    advise_mr,
    alloc_null_mr,
    read_counters,
    attach_counters_point_flow,
    create_counters,
    destroy_counters,
    reg_dm_mr,
    alloc_dm,
    free_dm,
    modify_flow_action_esp,
    destroy_flow_action,
    create_flow_action_esp,
    modify_qp_rate_limit,
    alloc_parent_domain,
    dealloc_td,
    alloc_td,
    modify_cq,
    post_srq_ops,
    destroy_rwq_ind_table,
    create_rwq_ind_table,
    destroy_wq,
    modify_wq,
    create_wq,
    query_rt_values,
    create_cq_ex,
    priv_,
    query_device_ex,
    ibv_destroy_flow,
    ABI_placeholder2,
    ibv_create_flow,
    ABI_placeholder1,
    open_qp,
    create_qp_ex,
    get_srq_num,
    create_srq_ex,
    open_xrcd,
    close_xrcd,
    _ABI_placeholder3,
    sz,
    context
});

same!(abi::rdma_event_channel { fd });
same!(abi::rdma_route {
    addr,
    path_rec,
    num_paths
});
same!(abi::rdma_cm_id {
    verbs,
    channel,
    context,
    qp,
    route,
    ps,
    port_num,
    event,
    send_cq_channel,
    send_cq,
    recv_cq_channel,
    recv_cq,
    srq,
    pd,
    qp_type
});
same!(abi::rdma_conn_param {
    private_data,
    private_data_len,
    responder_resources,
    initiator_depth,
    flow_control,
    retry_count,
    rnr_retry_count,
    srq,
    qp_num
});
same!(abi::rdma_addrinfo {
    ai_flags,
    ai_family,
    ai_qp_type,
    ai_port_space,
    ai_src_len,
    ai_dst_len,
    ai_src_addr,
    ai_dst_addr,
    ai_src_canonname,
    ai_dst_canonname,
    ai_route_len,
    ai_route,
    ai_connect_len,
    ai_connect,
    ai_next
});
same!(abi::rdma_cm_join_mc_attr_ex {
    comp_mask,
    join_flags,
    addr
});
same!(abi::rdma_ib_addr { sgid, dgid, pkey });
same!(abi::rdma_addr { src_storage = src_addr_union, dst_storage = dst_addr_union, ibaddr = addr });
same!(abi::rdma_cm_event {
    id,
    listen_id,
    event,
    status,
    param
});
same!(abi::rdma_ud_param {
    private_data,
    private_data_len,
    ah_attr,
    qp_num,
    qkey
});
