/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server and a client that make COUNT reliable connections, one after the
 * other, asynchronously and with completion queues made by the library. Run
 * under a tracer with two values of COUNT, the difference is the cost of a
 * connection. Usage: connection server|client ADDRESS PORT COUNT
 *
 * The server says by a message that it is established: else the request to
 * disconnect might overtake the message of the connection manager that says so,
 * and it never would be.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static struct rdma_event_channel *channel;

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* Takes the next event, which must be of this type; returns its id. */
static struct rdma_cm_id *take(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	need(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s (status %d) instead of %s\n",
			rdma_event_str(event->event), event->status,
			rdma_event_str(type));
		exit(1);
	}
	id = event->id;
	need(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	need(!rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void serve(struct sockaddr *address, int count)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *listener, *id;

	need(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_bind_addr(listener, address), "rdma_bind_addr");
	need(!rdma_listen(listener, 4), "rdma_listen");
	while (count-- > 0) {
		id = take(RDMA_CM_EVENT_CONNECT_REQUEST);
		create_qp(id);
		need(!rdma_accept(id, &param), "rdma_accept");
		take(RDMA_CM_EVENT_ESTABLISHED);
		need(!rdma_post_sendv(id, NULL, NULL, 0, 0), "rdma_post_sendv");
		take(RDMA_CM_EVENT_DISCONNECTED);
		need(!rdma_disconnect(id), "rdma_disconnect");
		rdma_destroy_qp(id);
		need(!rdma_destroy_id(id), "rdma_destroy_id");
	}
	need(!rdma_destroy_id(listener), "rdma_destroy_id");
}

static void connect_once(struct sockaddr *address)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1,
					 .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;
	struct ibv_wc wc;

	need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_resolve_addr(id, NULL, address, 5000), "rdma_resolve_addr");
	take(RDMA_CM_EVENT_ADDR_RESOLVED);
	create_qp(id);
	need(!rdma_resolve_route(id, 5000), "rdma_resolve_route");
	take(RDMA_CM_EVENT_ROUTE_RESOLVED);
	need(!rdma_post_recvv(id, NULL, NULL, 0), "rdma_post_recvv");
	need(!rdma_connect(id, &param), "rdma_connect");
	take(RDMA_CM_EVENT_ESTABLISHED);
	need(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS,
	     "rdma_get_recv_comp");
	need(!rdma_disconnect(id), "rdma_disconnect");
	take(RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	need(!rdma_destroy_id(id), "rdma_destroy_id");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int count;

	if (argc != 5 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: %s server|client ADDRESS PORT COUNT\n", argv[0]);
		return 2;
	}
	address.sin_port = htons(atoi(argv[3]));
	count = atoi(argv[4]);
	channel = rdma_create_event_channel();
	need(!!channel, "rdma_create_event_channel");
	if (strcmp(argv[1], "server") == 0)
		serve((struct sockaddr *)&address, count);
	else
		while (count-- > 0)
			connect_once((struct sockaddr *)&address);
	rdma_destroy_event_channel(channel);
	return 0;
}
