/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Unreliable datagrams: QPs, address exchange, data. */
#include "pair.h"

/* Where datagrams to a peer go, as its event tells. */
struct destination {
	struct ibv_ah *ah;
	uint32_t qpn;
};

enum { GRH_SIZE = 40 };

static struct destination destination_of(struct rdma_cm_id *id, struct rdma_ud_param *param)
{
	struct destination destination = {
		.ah = ibv_create_ah(id->pd, &param->ah_attr),
		.qpn = param->qp_num,
	};

	CHECK(destination.ah);
	return destination;
}

/* One datagram; checks that it arrived with the sender's QP number. */
static struct ibv_wc send_datagram(struct rdma_cm_id *from, struct destination destination,
				   struct rdma_cm_id *to, char *buffer, struct ibv_mr *mr)
{
	char out[32] = "datagram";
	struct ibv_mr *out_mr = rdma_reg_msgs(from, out, sizeof(out));
	struct ibv_wc wc;

	CHECK(out_mr);
	CHECK_OK(rdma_post_recv(to, buffer, buffer, GRH_SIZE + sizeof(out), mr));
	CHECK_OK(rdma_post_ud_send(from, out, out, sizeof(out), out_mr, 0, destination.ah,
				   destination.qpn));
	send_done(from, out);
	wc = recv_done(to, buffer);
	CHECK_EQ(wc.byte_len, GRH_SIZE + sizeof(out));
	CHECK_EQ(wc.src_qp, from->qp->qp_num);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	CHECK(memcmp(buffer + GRH_SIZE, out, sizeof(out)) == 0);
	CHECK_OK(rdma_dereg_mr(out_mr));
	return wc;
}

TEST(qp, "82 UD QP is in RTS with the common Q_Key")
{
	struct pair pair;
	struct ibv_qp_attr attr;

	pair_listen(&pair, RDMA_PS_UDP);
	pair_resolve(&pair);
	make_qp(pair.client);
	CHECK_EQ(pair.client->qp->qp_type, IBV_QPT_UD);
	attr = query_qp(pair.client->qp);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQ(attr.qkey, RDMA_UDP_QKEY);
	pair_close(&pair);
}

TEST(bound_qp, "82 UD QP of an id that is only bound")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	CHECK_EQ(qp_state(id->qp), IBV_QPS_RTS);
	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(request, "83 UD request: new id, 180 bytes of data")
{
	struct pair pair;
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 6 };

	pair_to_route(&pair, RDMA_PS_UDP);
	pair_request(&pair, &param);
	CHECK(pair.request->listen_id == pair.listener);
	CHECK_EQ(pair.server->ps, RDMA_PS_UDP);
	CHECK_EQ(pair.server->qp_type, IBV_QPT_UD);
	CHECK(pair.server->verbs);
	CHECK(pair.server->pd);
	CHECK_EQ(pair.request->param.ud.private_data_len, SIDR_REQ_DATA);
	CHECK(memcmp(pair.request->param.ud.private_data, "hello", 6) == 0);
	pair_close(&pair);
}

TEST(no_parameter, "UD connect without parameters, QP or data")
{
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_UDP);
	pair_request(&pair, NULL);
	CHECK_EQ(pair.request->param.ud.private_data_len, SIDR_REQ_DATA);
	pair_close(&pair);
}

TEST(accepted, "84 UD accept: QP number, Q_Key, address and data reach the client")
{
	struct pair pair;
	struct rdma_conn_param param = { .private_data = "welcome", .private_data_len = 8 };
	struct rdma_ud_param *ud;

	pair_to_request(&pair, RDMA_PS_UDP);
	make_qp(pair.server);
	param.qp_num = pair.server->qp->qp_num;
	pair_accept(&pair, &param);
	CHECK(pair.established->id == pair.client);
	ud = &pair.established->param.ud;
	CHECK_EQ(ud->qp_num, pair.server->qp->qp_num);
	CHECK_EQ(ud->qkey, RDMA_UDP_QKEY);
	CHECK_EQ(ud->ah_attr.is_global, 1);
	CHECK_EQ(ud->ah_attr.port_num, 1);
	CHECK(memcmp(&ud->ah_attr.grh.dgid, &pair.client->route.addr.addr.ibaddr.dgid, 16) == 0);
	CHECK_EQ(ud->private_data_len, SIDR_REP_DATA);
	CHECK(memcmp(ud->private_data, "welcome", 8) == 0);
	/* The server is told nothing more. */
	expect_no_event(pair.server_channel, 200);
	pair_close(&pair);
}

TEST(qp_of_id, "84 the QP of the id counts, whatever number the parameter has")
{
	struct pair pair;
	struct rdma_conn_param param = { .qp_num = 0x123456 };

	pair_to_request(&pair, RDMA_PS_UDP);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	CHECK_EQ(pair.established->param.ud.qp_num, pair.server->qp->qp_num);
	pair_close(&pair);
}

TEST(accept_number, "84 without a QP in the id the parameter's number is told")
{
	struct pair pair;
	struct rdma_conn_param param = { .qp_num = 0x123456 };

	pair_to_request(&pair, RDMA_PS_UDP);
	pair_accept(&pair, &param);
	CHECK_EQ(pair.established->param.ud.qp_num, 0x123456);
	pair_close(&pair);
}

TEST(accept_limit, "85 UD accept with 137 bytes: EINVAL, the client gets UNREACHABLE")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[SIDR_REP_DATA + 1];

	pair_to_request(&pair, RDMA_PS_UDP);
	make_qp(pair.server);
	fill(data, sizeof(data), 9);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE), SIDR_REJECT);
	pair_close(&pair);
}

TEST(accept_nothing, "68 UD accept with neither parameters nor QP: EINVAL, the request stays [fix]")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_UDP);
	CHECK_ERRNO(rdma_accept(pair.server, NULL), EINVAL);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE), SIDR_REJECT);
	pair_close(&pair);
}

TEST(reject, "86 UD reject gives UNREACHABLE 2")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_UDP);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE), SIDR_REJECT);
	pair_close(&pair);
}

TEST(no_service, "86 UD connect without a listener gives UNREACHABLE 1")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_route(&pair, RDMA_PS_UDP);
	make_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	CHECK_OK(rdma_connect(pair.client, &param));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE), SIDR_UNSUPPORTED);
	pair_close(&pair);
}

TEST(data, "datagrams in both directions, by received parameters and by completion")
{
	struct pair pair;
	struct destination server, client = { .ah = NULL };
	char at_server[128], at_client[128];
	struct ibv_mr *server_mr, *client_mr;
	struct ibv_wc wc;

	pair_connect(&pair, RDMA_PS_UDP);
	server_mr = rdma_reg_msgs(pair.server, at_server, sizeof(at_server));
	client_mr = rdma_reg_msgs(pair.client, at_client, sizeof(at_client));
	CHECK(server_mr);
	CHECK(client_mr);
	server = destination_of(pair.client, &pair.established->param.ud);
	for (int i = 0; i < 5; i++)
		wc = send_datagram(pair.client, server, pair.server, at_server, server_mr);

	client.ah = ibv_create_ah_from_wc(pair.server->pd, &wc, (struct ibv_grh *)at_server,
					  pair.server->port_num);
	CHECK(client.ah);
	client.qpn = wc.src_qp;
	for (int i = 0; i < 5; i++)
		send_datagram(pair.server, client, pair.client, at_client, client_mr);
	CHECK_EQ(ibv_destroy_ah(server.ah), 0);
	CHECK_EQ(ibv_destroy_ah(client.ah), 0);
	CHECK_OK(rdma_dereg_mr(server_mr));
	CHECK_OK(rdma_dereg_mr(client_mr));
	pair_close(&pair);
}

TEST(data_ipv6, "datagrams over IPv6")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct destination server;
	char buffer[128];
	struct ibv_mr *mr;

	pair_listen_on(&pair, RDMA_PS_UDP, test_addr6(0));
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	mr = rdma_reg_msgs(pair.server, buffer, sizeof(buffer));
	CHECK(mr);
	server = destination_of(pair.client, &pair.established->param.ud);
	send_datagram(pair.client, server, pair.server, buffer, mr);
	CHECK_EQ(ibv_destroy_ah(server.ah), 0);
	CHECK_OK(rdma_dereg_mr(mr));
	pair_close(&pair);
}
