/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The healthy side: accepts what comes, or connects and at once disconnects.
 * Everything is an event, so that a victim that vanishes holds up nothing.
 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* More ids than one victim can bring about, and attempts to reach it. */
enum { IDS = 32, ATTEMPTS = 10, TIMEOUT = 5000 };

struct peer {
	const struct sockaddr *address;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *ids[IDS];
	uint16_t target;
	int attempts;
	/* Of the connection to the target: established on this side, and on the other. */
	struct rdma_cm_id *established;
	bool accepted;
};

static const struct rdma_conn_param PARAM = {
	.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
};

struct peer *peer_open(const struct sockaddr *address)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	struct sockaddr_storage any = with_port(address, 0);

	need(peer, "calloc");
	peer->address = address;
	peer->channel = rdma_create_event_channel();
	need(peer->channel, "rdma_create_event_channel");
	need(!fcntl(peer->channel->fd, F_SETFL, O_NONBLOCK), "fcntl");
	need(!rdma_create_id(peer->channel, &peer->listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_bind_addr(peer->listener, (struct sockaddr *)&any), "rdma_bind_addr");
	need(!rdma_listen(peer->listener, IDS), "rdma_listen");
	return peer;
}

int peer_descriptor(const struct peer *peer)
{
	return peer->channel->fd;
}

uint16_t peer_port(const struct peer *peer)
{
	return rdma_get_src_port(peer->listener);
}

static void keep(struct peer *peer, struct rdma_cm_id *id)
{
	int slot = 0;

	while (slot < IDS && peer->ids[slot])
		slot++;
	errno = ENOSPC;
	need(slot < IDS, "ids of one victim");
	peer->ids[slot] = id;
}

static void discard(struct peer *peer, int slot)
{
	struct rdma_cm_id *id = peer->ids[slot];

	if (id->qp)
		rdma_destroy_qp(id);
	need(!rdma_destroy_id(id), "rdma_destroy_id");
	peer->ids[slot] = NULL;
	if (peer->established == id)
		peer->established = NULL;
}

static void drop(struct peer *peer, struct rdma_cm_id *id)
{
	for (int slot = 0; slot < IDS; slot++)
		if (peer->ids[slot] == id)
			discard(peer, slot);
}

static int make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return rdma_create_qp(id, NULL, &attr);
}

static void attempt(struct peer *peer)
{
	struct sockaddr_storage to = with_port(peer->address, peer->target);
	struct rdma_cm_id *id;

	if (!peer->target || peer->attempts++ == ATTEMPTS)
		return;
	need(!rdma_create_id(peer->channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	keep(peer, id);
	need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, TIMEOUT), "rdma_resolve_addr");
}

void peer_connect(struct peer *peer, uint16_t port)
{
	peer->target = port;
	peer->attempts = 0;
	peer->accepted = false;
	attempt(peer);
}

/* Ends the connection to the target once both sides have it; false if that fails. */
static bool end_established(struct peer *peer)
{
	return !peer->established || !peer->accepted || !rdma_disconnect(peer->established);
}

static void lose(struct peer *peer, struct rdma_cm_id *id)
{
	drop(peer, id);
	attempt(peer);
}

void peer_accepted(struct peer *peer)
{
	peer->accepted = true;
	if (!end_established(peer))
		lose(peer, peer->established);
}

void peer_rest(struct peer *peer)
{
	peer->target = 0;
	for (int slot = 0; slot < IDS; slot++)
		if (peer->ids[slot])
			discard(peer, slot);
}

/* Handles one event; whether the connection is to go on. */
static bool handle(struct peer *peer, struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	struct rdma_conn_param param = PARAM;

	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		keep(peer, id);
		return !make_qp(id) && !rdma_accept(id, &param);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return !make_qp(id) && !rdma_resolve_route(id, TIMEOUT);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return !rdma_connect(id, &param);
	case RDMA_CM_EVENT_ESTABLISHED:
		/* The server's side waits for its peer to end. */
		if (!peer->target)
			return true;
		peer->established = id;
		return end_established(peer);
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return true;
	default:
		return false;
	}
}

void peer_step(struct peer *peer)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(peer->channel, &event)) {
		need(errno == EAGAIN, "rdma_get_cm_event");
		return;
	}
	id = event->id;
	type = event->event;
	need(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	if (handle(peer, id, type))
		return;
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		drop(peer, id);
	else
		lose(peer, id);
}
