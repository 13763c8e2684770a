/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steps on struct pair (harness.h) that the programs about connections, QPs
 * and data share: usual parameters, the way to a certain state in one call,
 * QPs that the library does not know, and work completions.
 */
#ifndef CAPI_TESTS_PAIR_H
#define CAPI_TESTS_PAIR_H

#include "harness.h"

#include <poll.h>

#include <rdma/rdma_verbs.h>

enum {
	REQ_DATA = 56,	 /* private data of a request, IP addressing */
	REP_DATA = 196,	 /* of a reply */
	REJ_DATA = 148,	 /* of a reject */
	SIDR_REQ_DATA = 180,
	SIDR_REP_DATA = 136,
	REASON_STALE_CONNECTION = 10,
	REASON_CONSUMER = 28,
	REASON_VENDOR_OPTION = 35,
	SIDR_UNSUPPORTED = 1,
	SIDR_REJECT = 2,
};

static inline struct rdma_conn_param usual_param(void)
{
	return (struct rdma_conn_param){
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

/* A listener and a client with its route resolved, no QP. */
static inline void pair_to_route(struct pair *pair, enum rdma_port_space ps)
{
	pair_listen(pair, ps);
	pair_resolve(pair);
	pair_route(pair);
}

/* Up to the server's CONNECT_REQUEST; only the client has a QP. */
static inline void pair_to_request(struct pair *pair, enum rdma_port_space ps)
{
	struct rdma_conn_param param = usual_param();

	pair_listen(pair, ps);
	pair_resolve(pair);
	make_qp(pair->client);
	pair_route(pair);
	pair_request(pair, &param);
}

/* The client's steps of a struct pair whose listener is in another process. */
static inline void pair_connect_to(struct pair *pair, uint16_t port, enum rdma_port_space ps)
{
	struct rdma_conn_param param = usual_param();

	memset(pair, 0, sizeof(*pair));
	pair->client_channel = make_channel();
	pair->client = make_id(pair->client_channel, ps);
	CHECK_OK(rdma_resolve_addr(pair->client, NULL, test_addr(port), 5000));
	CHECK_EQ(take_event(pair->client_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(pair->client);
	pair_route(pair);
	CHECK_OK(rdma_connect(pair->client, &param));
}

static inline struct ibv_qp_attr query_qp(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	CHECK_OK(ibv_query_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_QP_RD_ATOMIC |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN | IBV_QP_QKEY |
				      IBV_QP_PORT,
			      &init));
	return attr;
}

static inline struct ibv_device_attr device_limits(struct rdma_cm_id *id)
{
	struct ibv_device_attr attr;

	CHECK_OK(ibv_query_device(id->verbs, &attr));
	return attr;
}

/* An event arrived within the usual time; it is left where it is. */
static inline bool wait_readable(struct rdma_event_channel *channel)
{
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };

	return poll(&entry, 1, EVENT_TIMEOUT * 1000) == 1;
}

/* A CQ without a channel; the library never hears of it. */
static inline struct ibv_cq *own_cq(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);

	CHECK(cq);
	return cq;
}

/* An RC QP that the library does not know, in the state RESET. */
static inline struct ibv_qp *external_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = usual_qp(id);
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(id->pd, &init);
	CHECK(qp);
	return qp;
}

/* Moves an external QP as rdma_init_qp_attr says. */
static inline void move_qp(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	CHECK_OK(rdma_init_qp_attr(id, &attr, &mask));
	CHECK_OK(ibv_modify_qp(qp, &attr, mask));
}

/* A good completion of this work request on a CQ that is polled only. */
static inline struct ibv_wc poll_cq(struct ibv_cq *cq, uint64_t wr_id)
{
	uint64_t deadline = now_ms() + EVENT_TIMEOUT * 1000;
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (now_ms() > deadline)
			FAIL("no completion within %d s", EVENT_TIMEOUT);
	CHECK_EQ(count, 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, wr_id);
	return wc;
}

/* Good completions by the blocking helpers of rdma_verbs.h. */
static inline struct ibv_wc send_done(struct rdma_cm_id *id, void *context)
{
	struct ibv_wc wc;

	CHECK_EQ(rdma_get_send_comp(id, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, (uintptr_t)context);
	return wc;
}

static inline struct ibv_wc recv_done(struct rdma_cm_id *id, void *context)
{
	struct ibv_wc wc;

	CHECK_EQ(rdma_get_recv_comp(id, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, (uintptr_t)context);
	return wc;
}

/* One message from one id to another; checks that it arrived unharmed. */
static inline void send_message(struct rdma_cm_id *from, struct rdma_cm_id *to, const char *text)
{
	char out[64] = "", in[64] = "";
	struct ibv_mr *out_mr, *in_mr;

	snprintf(out, sizeof(out), "%s", text);
	out_mr = rdma_reg_msgs(from, out, sizeof(out));
	in_mr = rdma_reg_msgs(to, in, sizeof(in));
	CHECK(out_mr);
	CHECK(in_mr);
	CHECK_OK(rdma_post_recv(to, in, in, sizeof(in), in_mr));
	CHECK_OK(rdma_post_send(from, out, out, sizeof(out), out_mr, 0));
	send_done(from, out);
	CHECK_EQ(recv_done(to, in).byte_len, sizeof(in));
	CHECK(memcmp(out, in, sizeof(in)) == 0);
	CHECK_OK(rdma_dereg_mr(out_mr));
	CHECK_OK(rdma_dereg_mr(in_mr));
}

/* Bytes that differ from their neighbours and from zero. */
static inline void fill(void *buffer, size_t length, unsigned int seed)
{
	unsigned char *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(1 + (i * 7 + seed) % 251);
}

static inline bool all_zero(const void *buffer, size_t length)
{
	const unsigned char *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

#endif
