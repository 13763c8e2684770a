/* An SRP initiator reduced to what a test needs: it logs in, sends any bytes
 * as information units and waits for what comes back. Plain C on librdmacm and
 * libibverbs; errors of the test set-up itself end the program. */
#ifndef SRP_INITIATOR_H
#define SRP_INITIATOR_H

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum { RECEIVES = 64, RECEIVE_SIZE = 512, IU_SIZE = 16384, DATA_SIZE = 1 << 20 };
enum { LOGIN_SIZE = 56, WAIT_MS = 60000 };

/* Where the target is; set by main. */
static struct sockaddr_storage portal;
static uint8_t target_port[16];

struct login {
    uint8_t bytes[LOGIN_SIZE];
};

struct channel {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *wakeup;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint8_t *receives, *iu, *data;
    /* The login response, or the reject if `rejected`. */
    uint8_t answer[56];
    int rejected, dead;
    /* Credits: granted by the target, used by us. */
    long granted, used;
    int outstanding;
    /* Received while something else was waited for. */
    struct ibv_wc early[RECEIVES];
    int early_count;
};

static inline void fatal(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(2);
}

static inline void put16(uint8_t *at, uint16_t v) { v = htobe16(v); memcpy(at, &v, 2); }
static inline void put32(uint8_t *at, uint32_t v) { v = htobe32(v); memcpy(at, &v, 4); }
static inline void put64(uint8_t *at, uint64_t v) { v = htobe64(v); memcpy(at, &v, 8); }
static inline uint32_t get32(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }

/* A login as ib_srp sends it (SRP over RDMA CM, 56 bytes). */
static inline struct login good_login(uint8_t initiator)
{
    struct login l = {{0}};
    put16(l.bytes + 8, 0x0006);
    l.bytes[10] = 0x80;
    put32(l.bytes + 12, 8260);
    l.bytes[31] = initiator;
    memcpy(l.bytes + 32, target_port, 16);
    put16(l.bytes + 48, 68);
    return l;
}

/* Waits for the next event; its type, or -1 when none comes. */
static inline int next_event(struct channel *c, struct rdma_cm_event **event)
{
    struct pollfd p = {.fd = c->events->fd, .events = POLLIN};
    if (poll(&p, 1, WAIT_MS) != 1)
        return -1;
    if (rdma_get_cm_event(c->events, event))
        fatal("rdma_get_cm_event");
    return (*event)->event;
}

static inline void expect_event(struct channel *c, int type)
{
    struct rdma_cm_event *event;
    if (next_event(c, &event) != type) {
        fprintf(stderr, "expected event %s\n", rdma_event_str(type));
        exit(2);
    }
    rdma_ack_cm_event(event);
}

static inline void post_receive(struct channel *c, uint64_t slot)
{
    struct ibv_sge sge = {(uintptr_t)(c->receives + slot * RECEIVE_SIZE), RECEIVE_SIZE, c->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(c->id->qp, &wr, &bad))
        c->dead = 1;
}

/* Logs in with these bytes. Look at `rejected` and `answer` afterwards. */
static inline struct channel *log_in(const void *login, uint8_t length)
{
    struct channel *c = calloc(1, sizeof *c);
    size_t size = RECEIVES * RECEIVE_SIZE + IU_SIZE + DATA_SIZE;
    void *memory;
    if (!c || posix_memalign(&memory, 4096, size))
        fatal("memory");
    memset(memory, 0, size);
    c->receives = memory;
    c->iu = c->receives + RECEIVES * RECEIVE_SIZE;
    c->data = c->iu + IU_SIZE;
    c->events = rdma_create_event_channel();
    if (!c->events || rdma_create_id(c->events, &c->id, NULL, RDMA_PS_TCP))
        fatal("rdma_create_id");
    if (rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&portal, 5000))
        fatal("rdma_resolve_addr");
    expect_event(c, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(c->id, 5000))
        fatal("rdma_resolve_route");
    expect_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
    c->wakeup = ibv_create_comp_channel(c->id->verbs);
    c->cq = c->wakeup ? ibv_create_cq(c->id->verbs, 1024, NULL, c->wakeup, 0) : NULL;
    struct ibv_qp_init_attr qp = {
        .send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 512, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
    };
    if (!c->cq || rdma_create_qp(c->id, NULL, &qp))
        fatal("rdma_create_qp");
    c->mr = ibv_reg_mr(c->id->pd, memory, size,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (!c->mr)
        fatal("ibv_reg_mr");
    for (int i = 0; i < RECEIVES; i++)
        post_receive(c, i);
    struct rdma_conn_param param = {
        .private_data = login, .private_data_len = length, .initiator_depth = 4,
        .responder_resources = 4, .retry_count = 7, .rnr_retry_count = 7,
    };
    if (rdma_connect(c->id, &param))
        fatal("rdma_connect");
    struct rdma_cm_event *event;
    int type = next_event(c, &event);
    if (type < 0)
        fatal("no answer to a login");
    size_t have = event->param.conn.private_data_len;
    if (event->param.conn.private_data)
        memcpy(c->answer, event->param.conn.private_data, have < sizeof c->answer ? have : sizeof c->answer);
    c->rejected = type != RDMA_CM_EVENT_ESTABLISHED;
    c->granted = c->rejected ? 0 : (long)get32(c->answer + 4);
    rdma_ack_cm_event(event);
    return c;
}

static inline void end_channel(struct channel *c)
{
    if (!c->rejected)
        rdma_disconnect(c->id);
    rdma_destroy_qp(c->id);
    ibv_dereg_mr(c->mr);
    ibv_destroy_cq(c->cq);
    ibv_destroy_comp_channel(c->wakeup);
    rdma_destroy_id(c->id);
    rdma_destroy_event_channel(c->events);
    free(c->receives);
    free(c);
}

/* Whether the target has disconnected; does not wait. */
static inline void look_for_disconnect(struct channel *c)
{
    struct pollfd p = {.fd = c->events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    while (poll(&p, 1, 0) == 1 && !rdma_get_cm_event(c->events, &event)) {
        if (event->event == RDMA_CM_EVENT_DISCONNECTED || event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
            c->dead = 1;
        rdma_ack_cm_event(event);
    }
}

/* Waits for the next completion or the end of the channel. 0 when there is a
 * completion. */
static inline int next_completion(struct channel *c, struct ibv_wc *wc, int wait_ms)
{
    for (;;) {
        if (ibv_poll_cq(c->cq, 1, wc) == 1)
            return 0;
        if (ibv_req_notify_cq(c->cq, 0))
            fatal("ibv_req_notify_cq");
        if (ibv_poll_cq(c->cq, 1, wc) == 1)
            return 0;
        look_for_disconnect(c);
        if (c->dead)
            return -1;
        struct pollfd p[2] = {{.fd = c->wakeup->fd, .events = POLLIN}, {.fd = c->events->fd, .events = POLLIN}};
        if (poll(p, 2, wait_ms) < 1)
            return -1;
        if (p[0].revents) {
            struct ibv_cq *cq;
            void *context;
            if (ibv_get_cq_event(c->wakeup, &cq, &context))
                fatal("ibv_get_cq_event");
            ibv_ack_cq_events(cq, 1);
        }
    }
}

/* Takes what was received: copies it to `into` (RECEIVE_SIZE bytes), counts
 * credits, and returns its length. */
static inline int take_iu(struct channel *c, const struct ibv_wc *wc, uint8_t *into)
{
    memcpy(into, c->receives + wc->wr_id * RECEIVE_SIZE, RECEIVE_SIZE);
    post_receive(c, wc->wr_id);
    if (into[0] == 0xC1 || into[0] == 0x81)
        c->granted += (int32_t)get32(into + 4);
    if (into[0] == 0xC1)
        c->outstanding--;
    return (int)wc->byte_len;
}

/* Waits for the next information unit from the target: its length, or -1 at
 * the end of the channel or of patience. */
static inline int receive_iu(struct channel *c, uint8_t *into, int wait_ms)
{
    struct ibv_wc wc;
    if (c->early_count) {
        wc = c->early[0];
        memmove(c->early, c->early + 1, --c->early_count * sizeof wc);
        return take_iu(c, &wc, into);
    }
    while (!next_completion(c, &wc, wait_ms)) {
        if (wc.status) {
            c->dead = 1;
            return -1;
        }
        if (wc.opcode == IBV_WC_RECV)
            return take_iu(c, &wc, into);
    }
    return -1;
}

/* Waits for the completion of the one request posted; its status, or -1. */
static inline int finish_request(struct channel *c)
{
    struct ibv_wc wc;
    while (!next_completion(c, &wc, WAIT_MS)) {
        /* The opcode of a failed completion is undefined: ours have a mark. */
        if (wc.wr_id < RECEIVES) {
            if (wc.status)
                c->dead = 1;
            else if (c->early_count < RECEIVES)
                c->early[c->early_count++] = wc;
            continue;
        }
        if (wc.status)
            c->dead = 1;
        return wc.status;
    }
    return -1;
}

enum { REQUEST = 1000 };

/* Sends the first bytes of `c->iu`. */
static inline void send_iu(struct channel *c, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)c->iu, length, c->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = REQUEST, .sg_list = &sge, .num_sge = length ? 1 : 0,
        .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
    }, *bad;
    if (c->dead || ibv_post_send(c->id->qp, &wr, &bad))
        c->dead = 1;
    else
        finish_request(c);
}

#endif
