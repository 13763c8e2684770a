#include <linux/types.h>
#include <netinet/in.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <infiniband/sa.h>

// Each command starts with its number, the bytes that follow these eight, and
// the bytes of the reply, which the kernel writes to the address in
// "response". Numbers are in host order unless their type says otherwise;
// reserved members are zero.

#define RDMA_USER_CM_MIN_ABI_VERSION 3
#define RDMA_USER_CM_MAX_ABI_VERSION 4

#define RDMA_MAX_PRIVATE_DATA 256

enum {
  UCMA_CMD_CREATE_ID = 0,
  UCMA_CMD_DESTROY_ID = 1,
  UCMA_CMD_BIND_IP = 2,
  UCMA_CMD_RESOLVE_IP = 3,
  UCMA_CMD_RESOLVE_ROUTE = 4,
  UCMA_CMD_QUERY_ROUTE = 5,
  UCMA_CMD_CONNECT = 6,
  UCMA_CMD_LISTEN = 7,
  UCMA_CMD_ACCEPT = 8,
  UCMA_CMD_REJECT = 9,
  UCMA_CMD_DISCONNECT = 10,
  UCMA_CMD_INIT_QP_ATTR = 11,
  UCMA_CMD_GET_EVENT = 12,
  UCMA_CMD_GET_OPTION = 13,
  UCMA_CMD_SET_OPTION = 14,
  UCMA_CMD_NOTIFY = 15,
  UCMA_CMD_JOIN_IP_MCAST = 16,
  UCMA_CMD_LEAVE_MCAST = 17,
  UCMA_CMD_MIGRATE_ID = 18,
  UCMA_CMD_QUERY = 19,
  UCMA_CMD_BIND = 20,
  UCMA_CMD_RESOLVE_ADDR = 21,
  UCMA_CMD_JOIN_MCAST = 22,
  UCMA_CMD_RESOLVE_IB_SERVICE = 23,
  UCMA_CMD_WRITE_CM_EVENT = 24
};

struct ucma_abi_cmd_hdr {
  __u32 cmd;
  __u16 in;
  __u16 out;
};

// Identifiers.

struct ucma_abi_create_id {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 uid;
  __u64 response;
  __u16 ps;
  __u8 qp_type;
  __u8 reserved[5];
};

struct ucma_abi_create_id_resp {
  __u32 id;
};

// Also UCMA_CMD_LEAVE_MCAST, with the number that joining returned.
struct ucma_abi_destroy_id {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u32 id;
  __u32 reserved;
};

struct ucma_abi_destroy_id_resp {
  __u32 events_reported;
};

// Written to the new channel; fd is the old one.
struct ucma_abi_migrate_id {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u32 id;
  __u32 fd;
};

struct ucma_abi_migrate_resp {
  __u32 events_reported;
};

struct ucma_abi_set_option {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 optval;
  __u32 id;
  __u32 level;
  __u32 optname;
  __u32 optlen;
};

// Addresses and routes.

struct ucma_abi_bind_ip {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  struct sockaddr_in6 addr;
  __u32 id;
};

struct ucma_abi_bind {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u16 addr_size;
  __u16 reserved;
  struct sockaddr_storage addr;
};

struct ucma_abi_resolve_ip {
  __u32 cmd;
  __u16 in;
  __u16 out;
  struct sockaddr_in6 src_addr;
  struct sockaddr_in6 dst_addr;
  __u32 id;
  __u32 timeout_ms;
};

struct ucma_abi_resolve_addr {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u32 timeout_ms;
  __u16 src_size;
  __u16 dst_size;
  __u32 reserved;
  struct sockaddr_storage src_addr;
  struct sockaddr_storage dst_addr;
};

struct ucma_abi_resolve_route {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u32 timeout_ms;
};

enum {
  UCMA_QUERY_ADDR = 0,
  UCMA_QUERY_PATH = 1,
  UCMA_QUERY_GID = 2,
  UCMA_QUERY_IB_SERVICE = 3
};

// Also UCMA_CMD_QUERY_ROUTE, with option 0.
struct ucma_abi_query {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u32 id;
  __u32 option;
};

struct ucma_abi_query_route_resp {
  __be64 node_guid;
  struct ib_user_path_rec ib_route[2];
  struct sockaddr_in6 src_addr;
  struct sockaddr_in6 dst_addr;
  __u32 num_paths;
  __u8 port_num;
  __u8 reserved[3];
  __u32 ibdev_index;
  __u32 reserved1;
};

// Reply to UCMA_QUERY_ADDR and UCMA_QUERY_GID.
struct ucma_abi_query_addr_resp {
  __be64 node_guid;
  __u8 port_num;
  __u8 reserved;
  __be16 pkey;
  __u16 src_size;
  __u16 dst_size;
  struct sockaddr_storage src_addr;
  struct sockaddr_storage dst_addr;
  __u32 ibdev_index;
  __u32 reserved1;
};

struct ucma_abi_query_path_resp {
  __u32 num_paths;
  __u32 reserved;
  __extension__ struct ibv_path_data path_data[0];
};

// Services of InfiniBand subnets, from about Linux 6.17.

enum {
  UCMA_IB_SERVICE_FLAG_ID = 1 << 0,
  UCMA_IB_SERVICE_FLAG_NAME = 1 << 1
};

#define UCMA_IB_SERVICE_NAME_SIZE 64

struct ucma_abi_ib_service {
  __u64 service_id;
  __u8 service_name[UCMA_IB_SERVICE_NAME_SIZE];
  __u32 flags;
  __u32 reserved;
};

struct ucma_abi_resolve_ib_service {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  struct ucma_abi_ib_service ibs;
};

struct ucma_user_service_rec {
  __be64 id;
  __u8 gid[16];
  __be16 pkey;
  __u8 reserved[2];
  __be32 lease;
  __u8 key[16];
  __u8 name[UCMA_IB_SERVICE_NAME_SIZE];
  __u8 data_8[16];
  __be16 data_16[8];
  __be32 data_32[4];
  __be64 data_64[2];
};

struct ucma_abi_query_ib_service_resp {
  __u32 num_service_recs;
  __extension__ struct ucma_user_service_rec recs[0];
};

// Connections.

struct ucma_abi_conn_param {
  __u32 qp_num;
  __u32 reserved;
  __u8 private_data[RDMA_MAX_PRIVATE_DATA];
  __u8 private_data_len;
  __u8 srq;
  __u8 responder_resources;
  __u8 initiator_depth;
  __u8 flow_control;
  __u8 retry_count;
  __u8 rnr_retry_count;
  __u8 valid;
};

struct ucma_abi_ud_param {
  __u32 qp_num;
  __u32 qkey;
  struct ib_uverbs_ah_attr ah_attr;
  __u8 private_data[RDMA_MAX_PRIVATE_DATA];
  __u8 private_data_len;
  __u8 reserved[7];
  __u8 reserved2[4];
};

struct ucma_abi_ece {
  __u32 vendor_id;
  __u32 attr_mod;
};

struct ucma_abi_connect {
  __u32 cmd;
  __u16 in;
  __u16 out;
  struct ucma_abi_conn_param conn_param;
  __u32 id;
  __u32 reserved;
  struct ucma_abi_ece ece;
};

struct ucma_abi_listen {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u32 backlog;
};

struct ucma_abi_accept {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 uid;
  struct ucma_abi_conn_param conn_param;
  __u32 id;
  __u32 reserved;
  struct ucma_abi_ece ece;
};

struct ucma_abi_reject {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u8 private_data_len;
  __u8 reason;
  __u8 reserved[2];
  __u8 private_data[RDMA_MAX_PRIVATE_DATA];
};

struct ucma_abi_disconnect {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
};

// The reply is a struct ib_uverbs_qp_attr.
struct ucma_abi_init_qp_attr {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u32 id;
  __u32 qp_state;
};

struct ucma_abi_notify {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u32 event;
};

// Multicast groups. The reply is a struct ucma_abi_create_id_resp.

struct ucma_abi_join_ip_mcast {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u64 uid;
  struct sockaddr_in6 addr;
  __u32 id;
};

struct ucma_abi_join_mcast {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
  __u64 uid;
  __u32 id;
  __u16 addr_size;
  __u16 join_flags;
  struct sockaddr_storage addr;
};

// Events.

struct ucma_abi_get_event {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u64 response;
};

struct ucma_abi_event_resp {
  __u64 uid;
  __u32 id;
  __u32 event;
  __u32 status;
  union {
    struct ucma_abi_conn_param conn;
    struct ucma_abi_ud_param ud;
    __u32 arg32[2];
  } param;
  struct ucma_abi_ece ece;
};

// From about Linux 6.17.
struct ucma_abi_write_cm_event {
  __u32 cmd;
  __u16 in;
  __u16 out;
  __u32 id;
  __u32 reserved;
  __u32 event;
  __u32 status;
  union {
    struct ucma_abi_conn_param conn;
    struct ucma_abi_ud_param ud;
    __u64 arg;
  } param;
};
