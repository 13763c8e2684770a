// A program that needs the library but no RDMA device: it calls one function
// and refers to all kinds of things that the headers offer.

#include <stdio.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

static int never_called(struct rdma_cm_id *id, struct ibv_wc *wc)
{
  struct ibv_mr *mr = rdma_reg_msgs(id, wc, sizeof(*wc));

  id->route.addr.src_sin.sin_port = rdma_get_src_port(id);
  if (rdma_get_local_addr(id)->sa_family == AF_IB)
    return rsocket(AF_INET, SOCK_STREAM, 0);
  if (rdma_post_recv(id, NULL, wc, sizeof(*wc), mr))
    return -1;
  return rdma_get_recv_comp(id, wc) + rdma_dereg_mr(mr);
}

int main(int argc, char **argv)
{
  (void)argv;
  if (argc > 1000)
    return never_called(NULL, NULL);
  rdma_freeaddrinfo(NULL);
  puts(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
  return 0;
}
