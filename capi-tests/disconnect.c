/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ending connections: both sides, QP states, wrong order. */
#include "pair.h"

TEST(disconnect, "79 disconnecting puts the own QP in ERR, the peer's stays in RTS")
{
	struct pair pair;
	struct rdma_cm_event *event;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_ERR);
	event = expect_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == pair.server);
	CHECK_EQ(event->param.conn.private_data_len, 0);
	CHECK(!event->param.conn.private_data);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_RTS);
	pair_close(&pair);
}

TEST(server, "79 the server may disconnect as well")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_disconnect(pair.server));
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_ERR);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_RTS);
	pair_close(&pair);
}

TEST(both, "80 the peer disconnects too: DISCONNECTED, then TIMEWAIT_EXIT on both sides",
     .timeout = 60)
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_OK(rdma_disconnect(pair.server));
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_ERR);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
	pair_close(&pair);
}

TEST(simultaneous, "80 both disconnect before either reads an event", .timeout = 60)
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_OK(rdma_disconnect(pair.server));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

TEST(twice, "80 disconnecting twice")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

TEST(flush, "79 receives of the disconnecting side are flushed")
{
	struct pair pair;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	char buffer[32];

	pair_connect(&pair, RDMA_PS_TCP);
	mr = rdma_reg_msgs(pair.client, buffer, sizeof(buffer));
	CHECK(mr);
	CHECK_OK(rdma_post_recv(pair.client, buffer, buffer, sizeof(buffer), mr));
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(rdma_get_recv_comp(pair.client, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(wc.wr_id, (uintptr_t)buffer);
	CHECK_OK(rdma_dereg_mr(mr));
	pair_close(&pair);
}

TEST(destroyed, "79 destroying a connected id disconnects the peer")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_ack_cm_event(pair.established));
	pair.established = NULL;
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	pair.client = NULL;
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_OK(rdma_disconnect(pair.server));
	pair_close(&pair);
}

TEST(unbound, "81 disconnecting an unbound id")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_ERRNO(rdma_disconnect(id), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(early, "81 disconnecting before connecting, without and with a QP")
{
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_disconnect(pair.client), EINVAL);
	/* The kernel has a CM object for a listener and does not object. */
	CHECK_OK(rdma_disconnect(pair.listener));
	make_qp(pair.client);
	CHECK_ERRNO(rdma_disconnect(pair.client), EINVAL);
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_ERR);
	pair_close(&pair);
}

TEST(after_destroy_qp, "79 disconnecting after the QP was destroyed")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

TEST(no_leak, "79 fifty connections leave no descriptors and no memory behind", .timeout = 240)
{
	enum { SETTLED = 10, ROUNDS = 60, SLACK = 4096 };
	unsigned int before = 0;
	size_t heap = 0;

	for (int i = 0; i < ROUNDS; i++) {
		struct pair pair;

		pair_connect(&pair, RDMA_PS_TCP);
		send_message(pair.client, pair.server, "one of fifty");
		CHECK_OK(rdma_disconnect(pair.client));
		CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
		CHECK_OK(rdma_disconnect(pair.server));
		pair_close(&pair);
		/* The first rounds make what stays for the life of the process. */
		if (i == SETTLED) {
			before = open_descriptors();
			heap = heap_in_use();
		}
	}
	CHECK_EQ(open_descriptors(), before);
	if (heap_in_use() > heap + SLACK)
		FAIL("the heap grew by %zu bytes", heap_in_use() - heap);
}
