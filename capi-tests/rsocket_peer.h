/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer of stream sockets that speaks their protocol over verbs: it can say
 * what no socket says, and sees what no program sees.
 */
#ifndef CAPI_TESTS_RSOCKET_PEER_H
#define CAPI_TESTS_RSOCKET_PEER_H

#include "harness.h"

#include <endian.h>
#include <fcntl.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

enum {
	WIRE_BUFFER = 1 << 16, /* where in its memory a peer receives data */
	WIRE_MEMORY = WIRE_BUFFER + (3 << 20),
	WIRE_QUEUE = 512,
	LIST_ENTRIES = 2,
};

enum wire_op { OP_DATA = 0, OP_GRANT = 4, OP_MAPPING = 6, OP_CONTROL = 7 };

/* Values of OP_CONTROL. */
enum { SAY_DISCONNECT = 0, SAY_KEEPALIVE = 1, SAY_SHUTDOWN = 2 };

/* Flags of a hello. */
enum { HELLO_BIG_ENDIAN = 1, HELLO_MAPPINGS = 2 };

/* What both sides say of themselves when connecting; all big-endian. */
struct hello {
	uint8_t version;
	uint8_t flags;
	uint16_t credits;
	uint8_t zero[3];
	uint8_t mappings;
	uint64_t list_addr;
	uint32_t list_key;
	uint32_t list_entries;
	uint64_t buffer_addr;
	uint32_t buffer_key;
	uint32_t buffer_length;
};
_Static_assert(sizeof(struct hello) == 40, "40 bytes on the wire");

/* Where the reader of the list lets its peer write; in the reader's order. */
struct target {
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

struct wire_peer {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	/* The target list, what is sent from 4096 on, the receive buffer. */
	char *memory;
	struct hello other; /* what the socket said */
	uint8_t retries; /* of what is not confirmed, on both sides */
	uint8_t reads; /* and atomic operations that it may have under way */
};

/* A message that was received. */
struct heard {
	enum wire_op op;
	uint32_t value;
	uint32_t payload; /* bytes that were written with it */
};

static inline void wire_post_receive(struct wire_peer *peer)
{
	CHECK_OK(rdma_post_recv(peer->id, NULL, peer->memory, 0, peer->mr));
}

/* Gives the id of the peer what it needs before connecting, but no receives. */
static inline void wire_prepare_deaf(struct wire_peer *peer)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = WIRE_QUEUE, .max_recv_wr = WIRE_QUEUE,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	CHECK_OK(rdma_create_qp(peer->id, NULL, &attr));
	peer->memory = calloc(1, WIRE_MEMORY);
	peer->mr = ibv_reg_mr(peer->id->pd, peer->memory, WIRE_MEMORY,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(peer->mr);
}

/* Lets the peer hear what is sent to it. */
static inline void wire_listen(struct wire_peer *peer)
{
	for (int index = 0; index < WIRE_QUEUE; index++)
		wire_post_receive(peer);
}

/* Gives the id of the peer what it needs before connecting. */
static inline void wire_prepare(struct wire_peer *peer)
{
	wire_prepare_deaf(peer);
	wire_listen(peer);
}

/* A peer with a route to a listening socket. */
static inline struct wire_peer wire_open(struct sockaddr *addr)
{
	struct wire_peer peer = { .channel = make_channel(), .retries = 6 };

	peer.id = make_id(peer.channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(peer.id, NULL, addr, 2000));
	CHECK_EQ(take_event(peer.channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_resolve_route(peer.id, 2000));
	CHECK_EQ(take_event(peer.channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	wire_prepare(&peer);
	return peer;
}

/* What one who behaves says, with this much of the buffer to begin with. */
static inline struct hello wire_hello(const struct wire_peer *peer, uint16_t credits,
				      uint32_t length)
{
	return (struct hello){
		.version = 1,
		.flags = HELLO_MAPPINGS,
		.credits = htobe16(credits),
		.list_addr = htobe64((uintptr_t)peer->memory),
		.list_key = htobe32(peer->mr->rkey),
		.list_entries = htobe32(LIST_ENTRIES),
		.buffer_addr = htobe64((uintptr_t)peer->memory + WIRE_BUFFER),
		.buffer_key = htobe32(peer->mr->rkey),
		.buffer_length = htobe32(length),
	};
}

enum { WIRE_LIES = 18 };

/* What nobody says who behaves: one of several. */
static inline struct hello wire_lie(const struct wire_peer *peer, int number)
{
	static const uint16_t credits[] = { 0, 1, UINT16_MAX };
	static const uint32_t lengths[] = { 0, 1, UINT32_MAX };
	struct hello hello = wire_hello(peer, credits[number % 3], lengths[number / 3 % 3]);

	if (number < WIRE_LIES / 2)
		return hello;
	/* Memory that is not there, and all that is reserved. */
	hello.flags = hello.mappings = 0xff;
	memset(hello.zero, 0xff, sizeof(hello.zero));
	hello.list_addr = hello.buffer_addr = htobe64(UINT64_MAX - 8);
	hello.list_key = hello.buffer_key = UINT32_MAX;
	hello.list_entries = UINT32_MAX;
	return hello;
}

static inline void wire_request(struct wire_peer *peer, const void *data, size_t size)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = size,
		.initiator_depth = peer->reads,
		.flow_control = 1,
		.retry_count = peer->retries,
		/* The most is for ever. */
		.rnr_retry_count = peer->retries,
	};

	CHECK_OK(rdma_connect(peer->id, &param));
}

static inline void wire_connect(struct wire_peer *peer, const struct hello *hello)
{
	struct rdma_cm_event *event;

	wire_request(peer, hello, sizeof(*hello));
	event = expect_event(peer->channel, RDMA_CM_EVENT_ESTABLISHED, EVENT_TIMEOUT);
	CHECK(event->param.conn.private_data_len >= sizeof(peer->other));
	memcpy(&peer->other, event->param.conn.private_data, sizeof(peer->other));
	CHECK_OK(rdma_ack_cm_event(event));
}

/*
 * Takes a request, which stays to be acknowledged no longer: the peer that is to
 * be prepared before it accepts.
 */
static inline struct wire_peer wire_take(struct rdma_cm_event *request)
{
	struct wire_peer peer = { .channel = make_channel(), .id = request->id };

	CHECK(request->param.conn.private_data_len >= sizeof(peer.other));
	memcpy(&peer.other, request->param.conn.private_data, sizeof(peer.other));
	CHECK_OK(rdma_ack_cm_event(request));
	CHECK_OK(rdma_migrate_id(peer.id, peer.channel));
	return peer;
}

/* Answers the request that the peer was made from with any private data. */
static inline void wire_reply(struct wire_peer *peer, const void *data, size_t size)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = size,
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	CHECK_OK(rdma_accept(peer->id, &param));
}

/* Accepts the request that the peer was made from. */
static inline void wire_accept(struct wire_peer *peer, const struct hello *hello)
{
	wire_reply(peer, hello, sizeof(*hello));
	CHECK_EQ(take_event(peer->channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static inline void wire_close(struct wire_peer *peer)
{
	rdma_disconnect(peer->id);
	rdma_destroy_qp(peer->id);
	ibv_dereg_mr(peer->mr);
	CHECK_OK(rdma_destroy_id(peer->id));
	rdma_destroy_event_channel(peer->channel);
	free(peer->memory);
}

/* A socket that connects to a peer, which has the request. */
struct called {
	int fd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_event *request;
};

static inline struct called call_peer(struct sockaddr *addr, void (*configure)(int))
{
	struct called called = { .channel = make_channel() };

	called.listener = make_id(called.channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(called.listener, addr));
	CHECK_OK(rdma_listen(called.listener, 1));
	called.fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(called.fd >= 0);
	if (configure)
		configure(called.fd);
	CHECK_OK(rfcntl(called.fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(called.fd, addr, addr_length(addr)), EINPROGRESS);
	called.request = expect_event(called.channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				      EVENT_TIMEOUT);
	return called;
}

static inline void end_call(struct called *called, struct wire_peer *peer)
{
	CHECK_OK(rclose(called->fd));
	wire_close(peer);
	CHECK_OK(rdma_destroy_id(called->listener));
	rdma_destroy_event_channel(called->channel);
}

/*
 * Writes the first bytes of the memory to the socket with an immediate value,
 * and waits for the completion; false once the connection is broken.
 */
static inline bool wire_say_from(struct wire_peer *peer, enum ibv_wr_opcode opcode,
				 uint32_t word, const void *data, size_t size,
				 uint64_t addr, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)data, size, peer->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = size > 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(word),
		.wr.rdma = { .remote_addr = addr, .rkey = key },
	};
	struct ibv_wc wc;

	if (ibv_post_send(peer->id->qp, &wr, &bad))
		return false;
	CHECK_EQ(rdma_get_send_comp(peer->id, &wc), 1);
	return wc.status == IBV_WC_SUCCESS;
}

/* A message without payload. */
static inline bool wire_message(struct wire_peer *peer, enum wire_op op, uint32_t value)
{
	return wire_say_from(peer, IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)op << 29 | value,
			     NULL, 0, 0, 0);
}

/* Waits for the next message of the socket. */
static inline struct heard wire_hear(struct wire_peer *peer)
{
	struct ibv_wc wc;
	uint32_t word;

	CHECK_EQ(rdma_get_recv_comp(peer->id, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	wire_post_receive(peer);
	word = be32toh(wc.imm_data);
	return (struct heard){ word >> 29, word & 0x1fffffff, wc.byte_len };
}

/* The same, of those that are no grants: a socket may grant at any time. */
static inline struct heard wire_hear_other(struct wire_peer *peer)
{
	struct heard heard;

	do
		heard = wire_hear(peer);
	while (heard.op == OP_GRANT);
	return heard;
}

#endif
