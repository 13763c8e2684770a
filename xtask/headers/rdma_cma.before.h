#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>

// The InfiniBand side of an address: GIDs and partition key.
struct rdma_ib_addr {
  // Local GID.
  union ibv_gid sgid;
  // Remote GID.
  union ibv_gid dgid;
  // Partition key.
  __be16 pkey;
};

// Local and remote address of an identifier.
struct rdma_addr {
  // Local address.
  __extension__ union {
    struct sockaddr src_addr;
    struct sockaddr_in src_sin;
    struct sockaddr_in6 src_sin6;
    struct sockaddr_storage src_storage;
  };
  // Remote address.
  __extension__ union {
    struct sockaddr dst_addr;
    struct sockaddr_in dst_sin;
    struct sockaddr_in6 dst_sin6;
    struct sockaddr_storage dst_storage;
  };
  // GIDs and partition key; meaningful on InfiniBand and RoCE.
  union {
    struct rdma_ib_addr ibaddr;
  } addr;
};
