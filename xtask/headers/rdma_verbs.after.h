// Helpers on top of libibverbs. Common to all that return int: 0 for success,
// -1 with errno for failure. The requests carry "context" as wr_id; "flags"
// are those of enum ibv_send_flags. A memory region may be NULL only where
// that is said, for data sent inline.

// Turns an errno value, or 0, into -1 and errno, or 0.
static inline int rdma_seterrno(int ret)
{
  if (ret == 0)
    return 0;
  errno = ret;
  return -1;
}

// Registers memory for sending and receiving messages: rdma_reg_msgs(3).
static inline struct ibv_mr *rdma_reg_msgs(struct rdma_cm_id *id, void *addr,
                                           size_t length)
{
  return ibv_reg_mr(id->pd, addr, length, IBV_ACCESS_LOCAL_WRITE);
}

// Registers memory that the peer may read: rdma_reg_read(3).
static inline struct ibv_mr *rdma_reg_read(struct rdma_cm_id *id, void *addr,
                                           size_t length)
{
  return ibv_reg_mr(id->pd, addr, length,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

// Registers memory that the peer may write: rdma_reg_write(3).
static inline struct ibv_mr *rdma_reg_write(struct rdma_cm_id *id, void *addr,
                                            size_t length)
{
  return ibv_reg_mr(id->pd, addr, length,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

// Releases registered memory: rdma_dereg_mr(3).
static inline int rdma_dereg_mr(struct ibv_mr *mr)
{
  return rdma_seterrno(ibv_dereg_mr(mr));
}

// Posts a receive of several buffers, to the shared receive queue if the
// identifier has one: rdma_post_recvv(3).
static inline int rdma_post_recvv(struct rdma_cm_id *id, void *context,
                                  struct ibv_sge *sgl, int nsge)
{
  struct ibv_recv_wr *refused;
  struct ibv_recv_wr request;

  memset(&request, 0, sizeof(request));
  request.wr_id = (uintptr_t)context;
  request.sg_list = sgl;
  request.num_sge = nsge;
  return rdma_seterrno(id->srq ? ibv_post_srq_recv(id->srq, &request, &refused)
                               : ibv_post_recv(id->qp, &request, &refused));
}

// Posts a send of several buffers: rdma_post_sendv(3).
static inline int rdma_post_sendv(struct rdma_cm_id *id, void *context,
                                  struct ibv_sge *sgl, int nsge, int flags)
{
  struct ibv_send_wr *refused;
  struct ibv_send_wr request;

  memset(&request, 0, sizeof(request));
  request.wr_id = (uintptr_t)context;
  request.sg_list = sgl;
  request.num_sge = nsge;
  request.opcode = IBV_WR_SEND;
  request.send_flags = (unsigned int)flags;
  return rdma_seterrno(ibv_post_send(id->qp, &request, &refused));
}

// Posts an RDMA read into several buffers: rdma_post_readv(3).
static inline int rdma_post_readv(struct rdma_cm_id *id, void *context,
                                  struct ibv_sge *sgl, int nsge, int flags,
                                  uint64_t remote_addr, uint32_t rkey)
{
  struct ibv_send_wr *refused;
  struct ibv_send_wr request;

  memset(&request, 0, sizeof(request));
  request.wr_id = (uintptr_t)context;
  request.sg_list = sgl;
  request.num_sge = nsge;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = (unsigned int)flags;
  request.wr.rdma.remote_addr = remote_addr;
  request.wr.rdma.rkey = rkey;
  return rdma_seterrno(ibv_post_send(id->qp, &request, &refused));
}

// Posts an RDMA write from several buffers: rdma_post_writev(3).
static inline int rdma_post_writev(struct rdma_cm_id *id, void *context,
                                   struct ibv_sge *sgl, int nsge, int flags,
                                   uint64_t remote_addr, uint32_t rkey)
{
  struct ibv_send_wr *refused;
  struct ibv_send_wr request;

  memset(&request, 0, sizeof(request));
  request.wr_id = (uintptr_t)context;
  request.sg_list = sgl;
  request.num_sge = nsge;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = (unsigned int)flags;
  request.wr.rdma.remote_addr = remote_addr;
  request.wr.rdma.rkey = rkey;
  return rdma_seterrno(ibv_post_send(id->qp, &request, &refused));
}

// Posts a receive into one buffer, which lies in "mr": rdma_post_recv(3).
static inline int rdma_post_recv(struct rdma_cm_id *id, void *context,
                                 void *addr, size_t length, struct ibv_mr *mr)
{
  struct ibv_sge sge;

  assert((uintptr_t)addr >= (uintptr_t)mr->addr &&
         (uintptr_t)addr + length <= (uintptr_t)mr->addr + mr->length);
  sge.addr = (uintptr_t)addr;
  sge.length = (uint32_t)length;
  sge.lkey = mr->lkey;
  return rdma_post_recvv(id, context, &sge, 1);
}

// Posts a send of one buffer, which lies in "mr" or is sent inline:
// rdma_post_send(3).
static inline int rdma_post_send(struct rdma_cm_id *id, void *context,
                                 void *addr, size_t length, struct ibv_mr *mr,
                                 int flags)
{
  struct ibv_sge sge;

  sge.addr = (uintptr_t)addr;
  sge.length = (uint32_t)length;
  sge.lkey = mr ? mr->lkey : 0;
  return rdma_post_sendv(id, context, &sge, 1, flags);
}

// Posts an RDMA read into one buffer, which lies in "mr": rdma_post_read(3).
static inline int rdma_post_read(struct rdma_cm_id *id, void *context,
                                 void *addr, size_t length, struct ibv_mr *mr,
                                 int flags, uint64_t remote_addr,
                                 uint32_t rkey)
{
  struct ibv_sge sge;

  sge.addr = (uintptr_t)addr;
  sge.length = (uint32_t)length;
  sge.lkey = mr->lkey;
  return rdma_post_readv(id, context, &sge, 1, flags, remote_addr, rkey);
}

// Posts an RDMA write from one buffer, which lies in "mr" or is sent inline:
// rdma_post_write(3).
static inline int rdma_post_write(struct rdma_cm_id *id, void *context,
                                  void *addr, size_t length, struct ibv_mr *mr,
                                  int flags, uint64_t remote_addr,
                                  uint32_t rkey)
{
  struct ibv_sge sge;

  sge.addr = (uintptr_t)addr;
  sge.length = (uint32_t)length;
  sge.lkey = mr ? mr->lkey : 0;
  return rdma_post_writev(id, context, &sge, 1, flags, remote_addr, rkey);
}

// Posts a send of one buffer from a datagram queue pair, with RDMA_UDP_QKEY,
// to the queue pair "remote_qpn" behind "ah"; the buffer lies in "mr" or is
// sent inline: rdma_post_ud_send(3).
static inline int rdma_post_ud_send(struct rdma_cm_id *id, void *context,
                                    void *addr, size_t length,
                                    struct ibv_mr *mr, int flags,
                                    struct ibv_ah *ah, uint32_t remote_qpn)
{
  struct ibv_send_wr *refused;
  struct ibv_send_wr request;
  struct ibv_sge sge;

  sge.addr = (uintptr_t)addr;
  sge.length = (uint32_t)length;
  sge.lkey = mr ? mr->lkey : 0;
  memset(&request, 0, sizeof(request));
  request.wr_id = (uintptr_t)context;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = (unsigned int)flags;
  request.wr.ud.ah = ah;
  request.wr.ud.remote_qpn = remote_qpn;
  request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  return rdma_seterrno(ibv_post_send(id->qp, &request, &refused));
}

// Waits for a completion on "cq", which belongs to "id" and reports to
// "channel". Not part of the interface.
static inline int rdmacm_wait_completion(struct rdma_cm_id *id,
                                         struct ibv_cq *cq,
                                         struct ibv_comp_channel *channel,
                                         struct ibv_wc *wc)
{
  struct ibv_cq *event_cq;
  void *event_context;
  int ret;

  for (;;) {
    ret = ibv_poll_cq(cq, 1, wc);
    if (ret)
      break;
    ret = ibv_req_notify_cq(cq, 0);
    if (ret)
      return rdma_seterrno(ret);
    // A completion that came before the request causes no event.
    ret = ibv_poll_cq(cq, 1, wc);
    if (ret)
      break;
    ret = ibv_get_cq_event(channel, &event_cq, &event_context);
    if (ret)
      return ret;
    assert(event_cq == cq && event_context == id);
    (void)id;
    ibv_ack_cq_events(event_cq, 1);
  }
  return ret < 0 ? -1 : ret;
}

// Waits for a completion of a send, read or write and stores it in "wc".
// Returns 1, or -1 with errno. See rdma_get_send_comp(3).
static inline int rdma_get_send_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
  return rdmacm_wait_completion(id, id->send_cq, id->send_cq_channel, wc);
}

// Waits for a completion of a receive and stores it in "wc". Returns 1, or -1
// with errno. See rdma_get_recv_comp(3).
static inline int rdma_get_recv_comp(struct rdma_cm_id *id, struct ibv_wc *wc)
{
  return rdmacm_wait_completion(id, id->recv_cq, id->recv_cq_channel, wc);
}
