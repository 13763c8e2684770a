/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Requests and responses: what both sides learn; QPs of the caller; ECE. */
#include "pair.h"

#include <arpa/inet.h>

TEST(request, "52 request gives a new id made like the listener")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_event *request;
	int context;

	pair_listen(&pair, RDMA_PS_TCP);
	pair.listener->context = &context;
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	param.initiator_depth = 2;
	param.responder_resources = 3;
	param.flow_control = 1;
	param.rnr_retry_count = 5;
	param.retry_count = 6;
	pair_request(&pair, &param);

	request = pair.request;
	CHECK_EQ(request->status, 0);
	CHECK(request->listen_id == pair.listener);
	CHECK(pair.server != pair.listener);
	CHECK(pair.server->context == &context);
	CHECK(pair.server->channel == pair.server_channel);
	CHECK(!pair.server->event);
	CHECK(!pair.server->qp);
	CHECK_EQ(pair.server->ps, RDMA_PS_TCP);
	CHECK_EQ(pair.server->qp_type, IBV_QPT_RC);
	CHECK(pair.server->verbs);
	CHECK(pair.server->pd);
	CHECK_EQ(pair.server->port_num, 1);
	/* Depths are told from the receiver's point of view. */
	CHECK_EQ(request->param.conn.responder_resources, 2);
	CHECK_EQ(request->param.conn.initiator_depth, 3);
	CHECK_EQ(request->param.conn.flow_control, 1);
	CHECK_EQ(request->param.conn.rnr_retry_count, 5);
	CHECK_EQ(request->param.conn.retry_count, 6);
	CHECK_EQ(request->param.conn.srq, 0);
	CHECK_EQ(request->param.conn.qp_num, pair.client->qp->qp_num);
	CHECK_EQ(request->param.conn.private_data_len, REQ_DATA);
	CHECK(all_zero(request->param.conn.private_data, REQ_DATA));
	pair_close(&pair);
}

TEST(request_addresses, "52 request names both addresses, its path and GIDs")
{
	struct pair pair;
	struct sockaddr_in *local, *peer;
	struct rdma_ib_addr *gids;

	pair_to_request(&pair, RDMA_PS_TCP);
	local = (struct sockaddr_in *)rdma_get_local_addr(pair.server);
	peer = (struct sockaddr_in *)rdma_get_peer_addr(pair.server);
	CHECK_EQ(local->sin_family, AF_INET);
	CHECK_EQ(peer->sin_family, AF_INET);
	CHECK_EQ(local->sin_addr.s_addr, pair.listener->route.addr.src_sin.sin_addr.s_addr);
	CHECK_EQ(peer->sin_addr.s_addr, pair.client->route.addr.src_sin.sin_addr.s_addr);
	CHECK_EQ(rdma_get_src_port(pair.server), rdma_get_src_port(pair.listener));
	CHECK_EQ(rdma_get_dst_port(pair.server), rdma_get_src_port(pair.client));
	CHECK_EQ(pair.server->route.num_paths, 1);
	CHECK(pair.server->route.path_rec);
	gids = &pair.server->route.addr.addr.ibaddr;
	CHECK(!all_zero(&gids->sgid, sizeof(gids->sgid)));
	CHECK(memcmp(&gids->sgid, &pair.client->route.addr.addr.ibaddr.dgid, 16) == 0);
	CHECK(memcmp(&gids->dgid, &pair.client->route.addr.addr.ibaddr.sgid, 16) == 0);
	CHECK(memcmp(&pair.server->route.path_rec->sgid, &gids->sgid, 16) == 0);
	CHECK(memcmp(&pair.server->route.path_rec->dgid, &gids->dgid, 16) == 0);
	pair_close(&pair);
}

TEST(request_ipv6, "52 request over IPv6")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_listen_on(&pair, RDMA_PS_TCP, test_addr6(0));
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	CHECK_EQ(rdma_get_local_addr(pair.server)->sa_family, AF_INET6);
	CHECK_EQ(rdma_get_peer_addr(pair.server)->sa_family, AF_INET6);
	CHECK(memcmp(&pair.server->route.addr.src_sin6.sin6_addr,
		     &pair.client->route.addr.dst_sin6.sin6_addr, 16) == 0);
	CHECK_EQ(pair.request->param.conn.private_data_len, REQ_DATA);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	send_message(pair.client, pair.server, "IPv6");
	pair_close(&pair);
}

TEST(wildcard, "52 a wildcard listener's request is bound to the device")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	uint16_t port;

	pair_listen_on(&pair, RDMA_PS_TCP, make_addr("0.0.0.0", 0));
	CHECK(!pair.listener->verbs);
	port = ntohs(rdma_get_src_port(pair.listener));
	pair.client = make_id(pair.client_channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(pair.client, NULL, test_addr(port), 5000));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	CHECK(pair.server->verbs);
	CHECK(pair.server->pd);
	CHECK(pair.server->verbs == pair.client->verbs);
	CHECK(pair.server->pd == pair.client->pd);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	pair_close(&pair);
}

TEST(until_ack, "53 request and its data stay readable until acknowledged")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[REQ_DATA];
	struct rdma_cm_event *first;

	fill(data, sizeof(data), 1);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	pair_request(&pair, &param);
	first = pair.request;
	make_qp(pair.server);
	param.private_data_len = 0;
	pair_accept(&pair, &param);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK(pair.request == first);
	CHECK_EQ(first->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(first->id == pair.server);
	CHECK_EQ(first->param.conn.private_data_len, sizeof(data));
	CHECK(memcmp(first->param.conn.private_data, data, sizeof(data)) == 0);
	pair_close(&pair);
}

TEST(no_parameters, "46 neither parameters nor QP gives EINVAL, and may be retried with a QP")
{
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_connect(pair.client, NULL), EINVAL);
	make_qp(pair.client);
	pair_request(&pair, NULL);
	CHECK_EQ(pair.request->param.conn.qp_num, pair.client->qp->qp_num);
	pair_close(&pair);
}

TEST(nobody, "50 nobody listens: REJECTED, reason 8, QP in ERR")
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_event *event;
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	CHECK_OK(rdma_connect(pair.client, &param));
	event = expect_event(pair.client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 8);
	CHECK_EQ(event->param.conn.private_data_len, REJ_DATA);
	CHECK(event->id == pair.client);
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_ERR);
	CHECK_OK(rdma_ack_cm_event(event));
	pair_close(&pair);
}

TEST(maximum_depths, "47 depths of 255 and a NULL parameter ask for the device's maximum")
{
	struct rdma_conn_param most = usual_param();
	struct ibv_device_attr limits;

	most.responder_resources = RDMA_MAX_RESP_RES;
	most.initiator_depth = RDMA_MAX_INIT_DEPTH;
	for (int round = 0; round < 2; round++) {
		struct pair pair;

		pair_to_route(&pair, RDMA_PS_TCP);
		make_qp(pair.client);
		limits = device_limits(pair.client);
		pair_request(&pair, round ? &most : NULL);
		CHECK_EQ(pair.request->param.conn.responder_resources, limits.max_qp_init_rd_atom);
		CHECK_EQ(pair.request->param.conn.initiator_depth, limits.max_qp_rd_atom);
		CHECK_EQ(pair.request->param.conn.retry_count, 7);
		CHECK_EQ(pair.request->param.conn.rnr_retry_count, 7);
		pair_close(&pair);
	}
}

TEST(clamped, "47 retry counts above 7 are cut to 7")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	param.retry_count = 200;
	param.rnr_retry_count = 9;
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	pair_request(&pair, &param);
	CHECK_EQ(pair.request->param.conn.retry_count, 7);
	CHECK_EQ(pair.request->param.conn.rnr_retry_count, 7);
	pair_close(&pair);
}

TEST(twice, "51 connecting twice, while pending and when established")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	CHECK_ERRNO(rdma_connect(pair.server, &param), EINVAL);
	send_message(pair.client, pair.server, "unharmed");
	pair_close(&pair);
}

TEST(client_gone, "74 client destroyed before the answer")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	pair.client = NULL;
	expect_no_event(pair.server_channel, 500);
	/* The answer may come too late or not be wanted; it must not hang. */
	if (rdma_accept(pair.server, &param))
		CHECK(errno > 0);
	pair_close(&pair);
}

/* Both sides with QPs the library does not know, up to CONNECT_RESPONSE. */
struct external {
	struct pair pair;
	struct ibv_cq *cq;
	struct ibv_qp *client_qp;
	struct ibv_qp *server_qp;
};

static void external_request(struct external *external)
{
	struct rdma_conn_param param = usual_param();

	pair_to_route(&external->pair, RDMA_PS_TCP);
	external->cq = own_cq(external->pair.client);
	external->client_qp = external_qp(external->pair.client, external->cq);
	param.qp_num = external->client_qp->qp_num;
	param.srq = 1;
	pair_request(&external->pair, &param);
	CHECK_EQ(external->pair.request->param.conn.qp_num, external->client_qp->qp_num);
	CHECK_EQ(external->pair.request->param.conn.srq, 1);
	external->server_qp = external_qp(external->pair.server, external->cq);
}

static void external_response(struct external *external)
{
	struct rdma_conn_param param = usual_param();
	struct pair *pair = &external->pair;
	unsigned char data[20];
	struct rdma_cm_event *response;

	external_request(external);
	move_qp(pair->server, external->server_qp, IBV_QPS_INIT);
	move_qp(pair->server, external->server_qp, IBV_QPS_RTR);
	move_qp(pair->server, external->server_qp, IBV_QPS_RTS);
	fill(data, sizeof(data), 2);
	param.qp_num = external->server_qp->qp_num;
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_OK(rdma_accept(pair->server, &param));
	response = expect_event(pair->client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE,
				EVENT_TIMEOUT);
	CHECK_EQ(response->status, 0);
	CHECK(response->id == pair->client);
	CHECK_EQ(response->param.conn.qp_num, external->server_qp->qp_num);
	CHECK_EQ(response->param.conn.private_data_len, REP_DATA);
	CHECK(memcmp(response->param.conn.private_data, data, sizeof(data)) == 0);
	CHECK_OK(rdma_ack_cm_event(response));
}

static void external_close(struct external *external)
{
	CHECK_OK(ibv_destroy_qp(external->client_qp));
	CHECK_OK(ibv_destroy_qp(external->server_qp));
	CHECK_OK(ibv_destroy_cq(external->cq));
	pair_close(&external->pair);
}

TEST(response, "75 QPs of the caller: the client gets CONNECT_RESPONSE")
{
	struct external external;

	external_response(&external);
	expect_no_event(external.pair.server_channel, 200);
	external_close(&external);
}

TEST(establish, "76 rdma_establish completes a connection of external QPs")
{
	struct external external;
	struct pair *pair = &external.pair;
	char out[32] = "external", in[32] = "";
	struct ibv_mr *out_mr, *in_mr;
	struct ibv_recv_wr recv_wr = { .wr_id = 1, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send_wr = { .wr_id = 2, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_sge out_sge, in_sge;

	external_response(&external);
	move_qp(pair->client, external.client_qp, IBV_QPS_INIT);
	move_qp(pair->client, external.client_qp, IBV_QPS_RTR);
	move_qp(pair->client, external.client_qp, IBV_QPS_RTS);
	CHECK_OK(rdma_establish(pair->client));
	CHECK_EQ(take_event(pair->server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK_ERRNO(rdma_establish(pair->client), EINVAL);
	expect_no_event(pair->client_channel, 100);

	out_mr = rdma_reg_msgs(pair->client, out, sizeof(out));
	in_mr = rdma_reg_msgs(pair->server, in, sizeof(in));
	CHECK(out_mr);
	CHECK(in_mr);
	in_sge = (struct ibv_sge){ (uintptr_t)in, sizeof(in), in_mr->lkey };
	out_sge = (struct ibv_sge){ (uintptr_t)out, sizeof(out), out_mr->lkey };
	recv_wr.sg_list = &in_sge;
	send_wr.sg_list = &out_sge;
	CHECK_EQ(ibv_post_recv(external.server_qp, &recv_wr, &bad_recv), 0);
	CHECK_EQ(ibv_post_send(external.client_qp, &send_wr, &bad_send), 0);
	poll_cq(external.cq, 1);
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	CHECK_OK(rdma_dereg_mr(out_mr));
	CHECK_OK(rdma_dereg_mr(in_mr));

	/* Without a QP in the id nothing is moved, but the peer is told. */
	CHECK_OK(rdma_disconnect(pair->client));
	CHECK_EQ(take_event(pair->server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_EQ(qp_state(external.client_qp), IBV_QPS_RTS);
	external_close(&external);
}

TEST(establish_early, "76 rdma_establish without a response")
{
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_establish(pair.client), EINVAL);
	pair_close(&pair);
}

TEST(establish_qp, "77 rdma_establish with a QP in the id")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_establish(pair.client), EINVAL);
	CHECK_ERRNO(rdma_establish(pair.server), EINVAL);
	send_message(pair.server, pair.client, "unharmed");
	pair_close(&pair);
}

TEST(equal_numbers, "78 both ends name the same QP number")
{
	struct external external;
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_event *event;

	external_request(&external);
	param.qp_num = external.client_qp->qp_num;
	CHECK_OK(rdma_accept(external.pair.server, &param));
	event = expect_event(external.pair.server_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, REASON_STALE_CONNECTION);
	CHECK(event->id == external.pair.server);
	CHECK_OK(rdma_ack_cm_event(event));
	external_close(&external);
}

TEST(moved_away, "75 a response to a QP that cannot be moved: CONNECT_ERROR with an errno [fix]")
{
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct rdma_cm_event *event;
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	/* From ERR there is no way to RTR. */
	CHECK_OK(ibv_modify_qp(pair.client->qp, &attr, IBV_QP_STATE));
	CHECK_OK(rdma_accept(pair.server, &param));
	event = expect_event(pair.client_channel, RDMA_CM_EVENT_CONNECT_ERROR, EVENT_TIMEOUT);
	CHECK_EQ(event->status, -EINVAL);
	CHECK_OK(rdma_ack_cm_event(event));
	/* The server hears of it at once, not after its timeout. */
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	pair_close(&pair);
}

TEST(ece, "96 ECE options of both sides reach the other")
{
	struct external external;
	struct pair *pair = &external.pair;
	struct ibv_ece local = { .vendor_id = 0x15b3, .options = 0x11 };
	struct ibv_ece answer = { .vendor_id = 0x15b3, .options = 0x10 };
	struct ibv_ece remote = { .comp_mask = 1 };
	struct rdma_conn_param param = usual_param();

	pair_to_route(pair, RDMA_PS_TCP);
	external.cq = own_cq(pair->client);
	external.client_qp = external_qp(pair->client, external.cq);
	CHECK_OK(rdma_set_local_ece(pair->client, &local));
	param.qp_num = external.client_qp->qp_num;
	pair_request(pair, &param);
	CHECK_OK(rdma_get_remote_ece(pair->server, &remote));
	CHECK_EQ(remote.vendor_id, local.vendor_id);
	CHECK_EQ(remote.options, local.options);
	CHECK_EQ(remote.comp_mask, 0);

	external.server_qp = external_qp(pair->server, external.cq);
	CHECK_OK(rdma_set_local_ece(pair->server, &answer));
	param.qp_num = external.server_qp->qp_num;
	CHECK_OK(rdma_accept(pair->server, &param));
	CHECK_EQ(take_event(pair->client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	CHECK_OK(rdma_get_remote_ece(pair->client, &remote));
	CHECK_EQ(remote.vendor_id, answer.vendor_id);
	CHECK_EQ(remote.options, answer.options);
	external_close(&external);
}

TEST(ece_none, "96 a request without ECE reads as none")
{
	struct pair pair;
	struct ibv_ece remote = { .vendor_id = 1, .options = 1 };

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_get_remote_ece(pair.server, &remote));
	CHECK_EQ(remote.vendor_id, 0);
	CHECK_EQ(remote.options, 0);
	make_qp(pair.server);
	CHECK_ERRNO(rdma_get_remote_ece(pair.server, &remote), EINVAL);
	pair_close(&pair);
}
