/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Accepting: parameters, resulting QPs, notification, wrong order. */
#include "pair.h"

TEST(too_much, "64 private data of 197 bytes: EINVAL, QP in ERR, the client is rejected")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[REP_DATA + 1];

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	fill(data, sizeof(data), 3);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_ERR);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_ERR);
	pair_close(&pair);
}

TEST(established, "65 private data of 196 bytes: ESTABLISHED on both sides")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[REP_DATA];
	struct rdma_cm_event *event;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	fill(data, sizeof(data), 4);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_OK(rdma_accept(pair.server, &param));
	/* The client's library completes the connection when it reads the event. */
	pair.established = expect_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED,
					EVENT_TIMEOUT);
	CHECK_EQ(pair.established->status, 0);
	CHECK(pair.established->id == pair.client);
	CHECK(!pair.established->listen_id);
	CHECK_EQ(pair.established->param.conn.private_data_len, REP_DATA);
	CHECK(memcmp(pair.established->param.conn.private_data, data, sizeof(data)) == 0);
	CHECK_EQ(pair.established->param.conn.qp_num, pair.server->qp->qp_num);

	event = expect_event(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == pair.server);
	CHECK(!event->listen_id);
	CHECK_EQ(event->param.conn.private_data_len, 0);
	CHECK(!event->param.conn.private_data);
	CHECK_EQ(event->param.conn.qp_num, 0);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_RTS);
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_RTS);
	CHECK_EQ(query_qp(pair.client->qp).dest_qp_num, pair.server->qp->qp_num);
	CHECK_EQ(query_qp(pair.server->qp).dest_qp_num, pair.client->qp->qp_num);
	send_message(pair.client, pair.server, "ping");
	send_message(pair.server, pair.client, "pong");
	pair_close(&pair);
}

TEST(depths, "66 the QP's read depths follow the parameters")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_attr attr;

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	param.responder_resources = 8;
	param.initiator_depth = 8;
	pair_request(&pair, &param);
	make_qp(pair.server);
	param.responder_resources = 4;
	param.initiator_depth = 2;
	pair_accept(&pair, &param);
	attr = query_qp(pair.server->qp);
	CHECK_EQ(attr.max_dest_rd_atomic, 4);
	CHECK_EQ(attr.max_rd_atomic, 2);
	attr = query_qp(pair.client->qp);
	CHECK_EQ(attr.max_dest_rd_atomic, 2);
	CHECK_EQ(attr.max_rd_atomic, 4);
	CHECK_EQ(pair.established->param.conn.responder_resources, 2);
	CHECK_EQ(pair.established->param.conn.initiator_depth, 4);
	pair_close(&pair);
}

TEST(default_depths, "66 a NULL parameter or 255 takes the request's depths")
{
	struct rdma_conn_param param = usual_param(), most = usual_param();

	param.responder_resources = 2;
	param.initiator_depth = 4;
	most.responder_resources = RDMA_MAX_RESP_RES;
	most.initiator_depth = RDMA_MAX_INIT_DEPTH;
	for (int round = 0; round < 2; round++) {
		struct ibv_qp_attr attr;
		struct pair pair;

		pair_to_route(&pair, RDMA_PS_TCP);
		make_qp(pair.client);
		pair_request(&pair, &param);
		make_qp(pair.server);
		pair_accept(&pair, round ? &most : NULL);
		attr = query_qp(pair.server->qp);
		CHECK_EQ(attr.max_dest_rd_atomic, 4);
		CHECK_EQ(attr.max_rd_atomic, 2);
		CHECK_EQ(pair.established->param.conn.responder_resources, 2);
		CHECK_EQ(pair.established->param.conn.initiator_depth, 4);
		send_message(pair.client, pair.server, "defaults");
		pair_close(&pair);
	}
}

TEST(excessive_depths, "66 depths above the device's maximum")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct ibv_device_attr limits;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	limits = device_limits(pair.server);
	if (limits.max_qp_rd_atom < 254) {
		param.responder_resources = (uint8_t)(limits.max_qp_rd_atom + 1);
		CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
		param = usual_param();
	}
	if (limits.max_qp_init_rd_atom < 254) {
		param.initiator_depth = (uint8_t)(limits.max_qp_init_rd_atom + 1);
		CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
		param = usual_param();
	}
	/* Nothing was sent or moved: accepting is still possible. */
	CHECK_EQ(qp_state(pair.server->qp), IBV_QPS_INIT);
	pair_accept(&pair, &param);
	pair_close(&pair);
}

TEST(twice, "67 accepting twice")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
	pair_close(&pair);
}

TEST(nothing, "68 no parameter and no QP [fix]")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_accept(pair.server, NULL), EINVAL);
	pair_close(&pair);
}

TEST(no_request, "67 accepting on ids without a request")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_ERRNO(rdma_accept(pair.client, &param), EINVAL);
	CHECK_ERRNO(rdma_accept(pair.listener, &param), EINVAL);
	pair_close(&pair);
}

TEST(unbound, "67 accepting on an unbound id [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_conn_param param = usual_param();

	CHECK_ERRNO(rdma_accept(id, &param), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(after_reject, "67 accepting after rejecting")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	pair_close(&pair);
}

TEST(moved_qp, "a QP that cannot be moved fails the call; the caller may still reject")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	CHECK_OK(ibv_modify_qp(pair.server->qp, &attr, IBV_QP_STATE));
	CHECK_EQ(rdma_accept(pair.server, &param), -1);
	CHECK(errno > 0);
	expect_no_event(pair.client_channel, 300);
	CHECK_OK(rdma_reject(pair.server, "busy", 4));
	pair.established =
		expect_event(pair.client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
	CHECK(memcmp(pair.established->param.conn.private_data, "busy", 4) == 0);
	pair_close(&pair);
}

TEST(notify, "69 rdma_notify of COMM_EST")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_notify(pair.server, IBV_EVENT_COMM_EST), EISCONN);
	CHECK_ERRNO(rdma_notify(pair.client, IBV_EVENT_COMM_EST), EISCONN);
	CHECK_ERRNO(rdma_notify(pair.server, IBV_EVENT_QP_FATAL), EINVAL);
	pair_close(&pair);
}

TEST(notify_migrated, "[fix] rdma_notify of a migrated path is refused without an alternate one")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_notify(pair.client, IBV_EVENT_PATH_MIG), EINVAL);
	pair_close(&pair);
}

TEST(notify_unbound, "69 rdma_notify of an id without connection")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_ERRNO(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(notify_establishes, "69 rdma_notify establishes a server that saw data early")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	CHECK_OK(rdma_accept(pair.server, &param));
	/* The client has not read its event yet, so nothing confirms the reply. */
	CHECK_OK(rdma_notify(pair.server, IBV_EVENT_COMM_EST));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	send_message(pair.client, pair.server, "established");
	pair_close(&pair);
}

TEST(listener_gone, "65 a request outlives its listener")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_ack_cm_event(pair.request));
	pair.request = NULL;
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	make_qp(pair.server);
	pair_accept(&pair, &param);
	send_message(pair.client, pair.server, "still here");
	pair_close(&pair);
}

TEST(many, "65 several connections on one listener")
{
	enum { COUNT = 4 };
	struct pair pair;
	struct rdma_cm_id *clients[COUNT], *servers[COUNT];
	struct rdma_conn_param param = usual_param();

	pair_listen(&pair, RDMA_PS_TCP);
	for (int i = 0; i < COUNT; i++) {
		pair_resolve(&pair);
		make_qp(pair.client);
		pair_route(&pair);
		pair_request(&pair, &param);
		make_qp(pair.server);
		pair_accept(&pair, &param);
		CHECK_OK(rdma_ack_cm_event(pair.request));
		CHECK_OK(rdma_ack_cm_event(pair.established));
		pair.request = pair.established = NULL;
		clients[i] = pair.client;
		servers[i] = pair.server;
	}
	for (int i = 0; i < COUNT; i++) {
		send_message(clients[i], servers[i], "one of many");
		rdma_destroy_qp(clients[i]);
		rdma_destroy_qp(servers[i]);
		CHECK_OK(rdma_destroy_id(clients[i]));
		CHECK_OK(rdma_destroy_id(servers[i]));
	}
	pair.client = pair.server = NULL;
	pair_close(&pair);
}
