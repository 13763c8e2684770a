// Sizes, offsets and numbers of the public interface on LP64 machines, as
// binaries have them compiled in. Compiles against the original's headers and
// ours; SINCE_60 says whether they have what version 60 added.

#include <stddef.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_cma_abi.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#define SIZE(type, bytes) \
  _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, member, offset) \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define EQUAL(name, value) _Static_assert((name) == (value), #name)

SIZE(struct rdma_cm_id, 416);
AT(struct rdma_cm_id, verbs, 0);
AT(struct rdma_cm_id, channel, 8);
AT(struct rdma_cm_id, context, 16);
AT(struct rdma_cm_id, qp, 24);
AT(struct rdma_cm_id, route, 32);
AT(struct rdma_cm_id, ps, 344);
AT(struct rdma_cm_id, port_num, 348);
AT(struct rdma_cm_id, event, 352);
AT(struct rdma_cm_id, send_cq_channel, 360);
AT(struct rdma_cm_id, send_cq, 368);
AT(struct rdma_cm_id, recv_cq_channel, 376);
AT(struct rdma_cm_id, recv_cq, 384);
AT(struct rdma_cm_id, srq, 392);
AT(struct rdma_cm_id, pd, 400);
AT(struct rdma_cm_id, qp_type, 408);

SIZE(struct rdma_route, 312);
AT(struct rdma_route, addr, 0);
AT(struct rdma_route, path_rec, 296);
AT(struct rdma_route, num_paths, 304);

SIZE(struct rdma_addr, 296);
AT(struct rdma_addr, src_addr, 0);
AT(struct rdma_addr, src_sin, 0);
AT(struct rdma_addr, src_sin6, 0);
AT(struct rdma_addr, src_storage, 0);
AT(struct rdma_addr, dst_addr, 128);
AT(struct rdma_addr, dst_sin, 128);
AT(struct rdma_addr, dst_sin6, 128);
AT(struct rdma_addr, dst_storage, 128);
AT(struct rdma_addr, addr.ibaddr, 256);
AT(struct rdma_addr, addr.ibaddr.sgid, 256);
AT(struct rdma_addr, addr.ibaddr.dgid, 272);
AT(struct rdma_addr, addr.ibaddr.pkey, 288);
SIZE(struct rdma_ib_addr, 40);

SIZE(struct rdma_cm_event, 80);
AT(struct rdma_cm_event, id, 0);
AT(struct rdma_cm_event, listen_id, 8);
AT(struct rdma_cm_event, event, 16);
AT(struct rdma_cm_event, status, 20);
AT(struct rdma_cm_event, param, 24);
AT(struct rdma_cm_event, param.conn, 24);
AT(struct rdma_cm_event, param.ud, 24);

SIZE(struct rdma_conn_param, 24);
AT(struct rdma_conn_param, private_data, 0);
AT(struct rdma_conn_param, private_data_len, 8);
AT(struct rdma_conn_param, responder_resources, 9);
AT(struct rdma_conn_param, initiator_depth, 10);
AT(struct rdma_conn_param, flow_control, 11);
AT(struct rdma_conn_param, retry_count, 12);
AT(struct rdma_conn_param, rnr_retry_count, 13);
AT(struct rdma_conn_param, srq, 14);
AT(struct rdma_conn_param, qp_num, 16);

SIZE(struct rdma_ud_param, 56);
AT(struct rdma_ud_param, private_data, 0);
AT(struct rdma_ud_param, private_data_len, 8);
AT(struct rdma_ud_param, ah_attr, 16);
AT(struct rdma_ud_param, qp_num, 48);
AT(struct rdma_ud_param, qkey, 52);

SIZE(struct rdma_addrinfo, 96);
AT(struct rdma_addrinfo, ai_flags, 0);
AT(struct rdma_addrinfo, ai_family, 4);
AT(struct rdma_addrinfo, ai_qp_type, 8);
AT(struct rdma_addrinfo, ai_port_space, 12);
AT(struct rdma_addrinfo, ai_src_len, 16);
AT(struct rdma_addrinfo, ai_dst_len, 20);
AT(struct rdma_addrinfo, ai_src_addr, 24);
AT(struct rdma_addrinfo, ai_dst_addr, 32);
AT(struct rdma_addrinfo, ai_src_canonname, 40);
AT(struct rdma_addrinfo, ai_dst_canonname, 48);
AT(struct rdma_addrinfo, ai_route_len, 56);
AT(struct rdma_addrinfo, ai_route, 64);
AT(struct rdma_addrinfo, ai_connect_len, 72);
AT(struct rdma_addrinfo, ai_connect, 80);
AT(struct rdma_addrinfo, ai_next, 88);

SIZE(struct rdma_cm_join_mc_attr_ex, 16);
AT(struct rdma_cm_join_mc_attr_ex, comp_mask, 0);
AT(struct rdma_cm_join_mc_attr_ex, join_flags, 4);
AT(struct rdma_cm_join_mc_attr_ex, addr, 8);

SIZE(struct rdma_event_channel, 4);
AT(struct rdma_event_channel, fd, 0);

SIZE(struct ib_addr, 16);
AT(struct ib_addr, ib_u.uib_addr8, 0);
AT(struct ib_addr, ib_u.uib_addr16[1], 2);
AT(struct ib_addr, ib_u.uib_addr32[1], 4);
AT(struct ib_addr, ib_u.uib_addr64[1], 8);
SIZE(struct sockaddr_ib, 48);
AT(struct sockaddr_ib, sib_family, 0);
AT(struct sockaddr_ib, sib_pkey, 2);
AT(struct sockaddr_ib, sib_flowinfo, 4);
AT(struct sockaddr_ib, sib_addr, 8);
AT(struct sockaddr_ib, sib_sid, 24);
AT(struct sockaddr_ib, sib_sid_mask, 32);
AT(struct sockaddr_ib, sib_scope_id, 40);

// libibverbs structures that this library fills or reads.
SIZE(struct ibv_path_data, 72);
AT(struct ibv_path_data, flags, 0);
AT(struct ibv_path_data, path, 8);
SIZE(struct ibv_ece, 12);
AT(struct ibv_ece, vendor_id, 0);
AT(struct ibv_ece, options, 4);
AT(struct ibv_ece, comp_mask, 8);
SIZE(struct ibv_sa_path_rec, 64);
SIZE(struct ibv_qp_attr, 144);
SIZE(struct ibv_qp_init_attr, 64);
SIZE(struct ibv_qp_init_attr_ex, 136);
SIZE(struct ibv_srq_init_attr, 24);
SIZE(struct ibv_srq_init_attr_ex, 64);
SIZE(struct ibv_xrcd_init_attr, 12);
SIZE(struct ibv_ah_attr, 32);

EQUAL(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
EQUAL(RDMA_CM_EVENT_CONNECT_REQUEST, 4);
EQUAL(RDMA_CM_EVENT_REJECTED, 8);
EQUAL(RDMA_CM_EVENT_DISCONNECTED, 10);
EQUAL(RDMA_CM_EVENT_MULTICAST_JOIN, 12);
EQUAL(RDMA_CM_EVENT_TIMEWAIT_EXIT, 15);
EQUAL(RDMA_PS_IPOIB, 0x2);
EQUAL(RDMA_PS_TCP, 0x106);
EQUAL(RDMA_PS_UDP, 0x111);
EQUAL(RDMA_PS_IB, 0x13F);
EQUAL(RDMA_IB_IP_PS_MASK, 0xFFFFFFFFFFFF0000);
EQUAL(RDMA_IB_IP_PORT_MASK, 0xFFFF);
EQUAL(RDMA_MAX_PRIVATE_DATA, 256);
EQUAL(RDMA_UDP_QKEY, 0x01234567);
EQUAL(RDMA_MAX_RESP_RES, 255);
EQUAL(RDMA_MAX_INIT_DEPTH, 255);
EQUAL(AF_IB, 27);

// The kernel's commands and replies.
SIZE(struct ucma_abi_cmd_hdr, 8);
SIZE(struct ucma_abi_create_id, 32);
AT(struct ucma_abi_create_id, uid, 8);
AT(struct ucma_abi_create_id, response, 16);
AT(struct ucma_abi_create_id, ps, 24);
AT(struct ucma_abi_create_id, qp_type, 26);
SIZE(struct ucma_abi_create_id_resp, 4);
SIZE(struct ucma_abi_destroy_id, 24);
SIZE(struct ucma_abi_destroy_id_resp, 4);
SIZE(struct ucma_abi_bind_ip, 48);
AT(struct ucma_abi_bind_ip, addr, 16);
AT(struct ucma_abi_bind_ip, id, 44);
SIZE(struct ucma_abi_bind, 144);
AT(struct ucma_abi_bind, addr, 16);
SIZE(struct ucma_abi_resolve_ip, 72);
AT(struct ucma_abi_resolve_ip, id, 64);
SIZE(struct ucma_abi_resolve_addr, 280);
AT(struct ucma_abi_resolve_addr, src_size, 16);
AT(struct ucma_abi_resolve_addr, src_addr, 24);
AT(struct ucma_abi_resolve_addr, dst_addr, 152);
SIZE(struct ucma_abi_resolve_route, 16);
SIZE(struct ucma_abi_query, 24);
SIZE(struct ucma_abi_query_route_resp, 208);
AT(struct ucma_abi_query_route_resp, ib_route, 8);
AT(struct ucma_abi_query_route_resp, src_addr, 136);
AT(struct ucma_abi_query_route_resp, num_paths, 192);
AT(struct ucma_abi_query_route_resp, ibdev_index, 200);
SIZE(struct ucma_abi_query_addr_resp, 280);
AT(struct ucma_abi_query_addr_resp, pkey, 10);
AT(struct ucma_abi_query_addr_resp, src_addr, 16);
AT(struct ucma_abi_query_addr_resp, ibdev_index, 272);
SIZE(struct ucma_abi_query_path_resp, 8);
SIZE(struct ucma_abi_conn_param, 272);
AT(struct ucma_abi_conn_param, private_data, 8);
AT(struct ucma_abi_conn_param, private_data_len, 264);
AT(struct ucma_abi_conn_param, valid, 271);
SIZE(struct ucma_abi_ud_param, 308);
AT(struct ucma_abi_ud_param, ah_attr, 8);
AT(struct ucma_abi_ud_param, private_data, 40);
SIZE(struct ucma_abi_ece, 8);
SIZE(struct ucma_abi_connect, 296);
AT(struct ucma_abi_connect, id, 280);
AT(struct ucma_abi_connect, ece, 288);
SIZE(struct ucma_abi_listen, 16);
SIZE(struct ucma_abi_accept, 304);
AT(struct ucma_abi_accept, conn_param, 16);
AT(struct ucma_abi_accept, ece, 296);
SIZE(struct ucma_abi_reject, 272);
AT(struct ucma_abi_reject, private_data, 16);
SIZE(struct ucma_abi_disconnect, 12);
SIZE(struct ucma_abi_init_qp_attr, 24);
SIZE(struct ucma_abi_notify, 16);
SIZE(struct ucma_abi_join_ip_mcast, 56);
SIZE(struct ucma_abi_join_mcast, 160);
AT(struct ucma_abi_join_mcast, addr, 32);
SIZE(struct ucma_abi_get_event, 16);
SIZE(struct ucma_abi_event_resp, 336);
AT(struct ucma_abi_event_resp, param, 20);
AT(struct ucma_abi_event_resp, ece, 328);
SIZE(struct ucma_abi_set_option, 32);
SIZE(struct ucma_abi_migrate_id, 24);
SIZE(struct ucma_abi_migrate_resp, 4);

#if SINCE_60
AT(struct rdma_cm_event, param.arg, 24);
EQUAL(RDMA_CM_EVENT_ADDRINFO_RESOLVED, 16);
EQUAL(RDMA_CM_EVENT_ADDRINFO_ERROR, 17);
EQUAL(RDMA_CM_EVENT_USER, 18);
EQUAL(RDMA_CM_EVENT_INTERNAL, 19);
EQUAL(RAI_SA, 0x10);
EQUAL(RAI_DNS, 0x20);
SIZE(struct ucma_abi_ib_service, 80);
SIZE(struct ucma_abi_resolve_ib_service, 96);
AT(struct ucma_abi_resolve_ib_service, ibs, 16);
SIZE(struct ucma_user_service_rec, 176);
AT(struct ucma_user_service_rec, gid, 8);
AT(struct ucma_user_service_rec, lease, 28);
AT(struct ucma_user_service_rec, name, 48);
AT(struct ucma_user_service_rec, data_64, 160);
SIZE(struct ucma_abi_query_ib_service_resp, 8);
SIZE(struct ucma_abi_write_cm_event, 336);
AT(struct ucma_abi_write_cm_event, param, 24);
AT(struct ucma_abi_write_cm_event, param.arg, 24);
#endif
