/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Rejecting requests, on purpose and by destruction. */
#include "pair.h"

/* The REJECTED event of the client; the caller acknowledges. */
static struct rdma_cm_event *rejected(struct pair *pair, int reason)
{
	struct rdma_cm_event *event =
		expect_event(pair->client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);

	CHECK(event->id == pair->client);
	CHECK_EQ(event->status, reason);
	CHECK_EQ(qp_state(pair->client->qp), IBV_QPS_ERR);
	return event;
}

TEST(data, "70 reject data of 149 and 148 bytes")
{
	struct pair pair;
	unsigned char data[REJ_DATA + 1];

	fill(data, sizeof(data), 5);
	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_reject(pair.server, data, REJ_DATA + 1), EINVAL);
	CHECK_OK(rdma_reject(pair.server, data, REJ_DATA));
	pair.established = rejected(&pair, REASON_CONSUMER);
	CHECK_EQ(pair.established->param.conn.private_data_len, REJ_DATA);
	CHECK(memcmp(pair.established->param.conn.private_data, data, REJ_DATA) == 0);
	pair_close(&pair);
}

TEST(no_data, "70 without data the client reads zeros")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	pair.established = rejected(&pair, REASON_CONSUMER);
	CHECK_EQ(pair.established->param.conn.private_data_len, REJ_DATA);
	CHECK(all_zero(pair.established->param.conn.private_data, REJ_DATA));
	expect_no_event(pair.server_channel, 200);
	pair_close(&pair);
}

TEST(twice, "71 rejecting twice")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_ERRNO(rdma_reject(pair.server, NULL, 0), EINVAL);
	pair_close(&pair);
}

TEST(with_qp, "71 rejecting with a QP already made")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	pair.established = rejected(&pair, REASON_CONSUMER);
	pair_close(&pair);
}

TEST(no_request, "71 rejecting without a request")
{
	struct pair pair;
	struct rdma_cm_id *unbound;

	pair_to_route(&pair, RDMA_PS_TCP);
	unbound = make_id(pair.client_channel, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_reject(unbound, NULL, 0), EINVAL);
	CHECK_ERRNO(rdma_reject(pair.client, NULL, 0), EINVAL);
	CHECK_OK(rdma_destroy_id(unbound));
	pair_close(&pair);
}

TEST(established, "71 rejecting after accepting")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_reject(pair.server, NULL, 0), EINVAL);
	send_message(pair.client, pair.server, "unharmed");
	pair_close(&pair);
}

TEST(ece, "72 rdma_reject_ece")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject_ece(pair.server, "no ECE", 6));
	pair.established = rejected(&pair, REASON_VENDOR_OPTION);
	CHECK(memcmp(pair.established->param.conn.private_data, "no ECE", 6) == 0);
	pair_close(&pair);
}

TEST(destroyed, "73 destroying the requested id rejects")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_ack_cm_event(pair.request));
	pair.request = NULL;
	CHECK_OK(rdma_destroy_id(pair.server));
	pair.server = NULL;
	pair.established = rejected(&pair, REASON_CONSUMER);
	pair_close(&pair);
}

TEST(listener_destroyed, "73 destroying a listener rejects requests nobody read")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_OK(rdma_connect(pair.client, &param));
	/* The request is there when the channel is readable. */
	CHECK(wait_readable(pair.server_channel));
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	pair.established = rejected(&pair, REASON_CONSUMER);
	expect_no_event(pair.server_channel, 100);
	pair_close(&pair);
}

TEST(new_id, "51 after a reject a new id may connect")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_OK(rdma_ack_cm_event(rejected(&pair, REASON_CONSUMER)));
	CHECK_OK(rdma_ack_cm_event(pair.request));
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	CHECK_OK(rdma_destroy_id(pair.server));
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	pair_close(&pair);
}
