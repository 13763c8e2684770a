/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Private data of every message: limits, contents, padding. */
#include "pair.h"

/* The data arrive at the front of a field of the message's size, zero padded. */
static void check_data(const void *data, uint8_t length, const unsigned char *sent,
		       size_t sent_length, size_t field)
{
	const unsigned char *bytes = data;

	CHECK_EQ(length, field);
	CHECK(bytes);
	CHECK(memcmp(bytes, sent, sent_length) == 0);
	CHECK(all_zero(bytes + sent_length, field - sent_length));
}

TEST(request, "48 request: 0, 1, 55 and 56 bytes arrive")
{
	static const uint8_t lengths[] = { 0, 1, REQ_DATA - 1, REQ_DATA };
	unsigned char data[REQ_DATA];

	for (size_t i = 0; i < sizeof(lengths); i++) {
		struct pair pair;
		struct rdma_conn_param param = usual_param();

		fill(data, sizeof(data), (unsigned int)i);
		param.private_data = data;
		param.private_data_len = lengths[i];
		pair_to_route(&pair, RDMA_PS_TCP);
		make_qp(pair.client);
		pair_request(&pair, &param);
		check_data(pair.request->param.conn.private_data,
			   pair.request->param.conn.private_data_len, data, lengths[i], REQ_DATA);
		pair_close(&pair);
	}
}

TEST(request_limit, "48 request: 57 to 255 bytes fail and may be retried")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[255];

	fill(data, sizeof(data), 1);
	param.private_data = data;
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	param.private_data_len = REQ_DATA + 1;
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	param.private_data_len = 255;
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	param.private_data_len = REQ_DATA;
	pair_request(&pair, &param);
	check_data(pair.request->param.conn.private_data,
		   pair.request->param.conn.private_data_len, data, REQ_DATA, REQ_DATA);
	pair_close(&pair);
}

TEST(reply, "65 reply: 0, 1 and 195 bytes arrive")
{
	static const uint8_t lengths[] = { 0, 1, REP_DATA - 1 };
	unsigned char data[REP_DATA];

	for (size_t i = 0; i < sizeof(lengths); i++) {
		struct pair pair;
		struct rdma_conn_param param = usual_param();

		pair_to_request(&pair, RDMA_PS_TCP);
		make_qp(pair.server);
		fill(data, sizeof(data), (unsigned int)i);
		param.private_data = data;
		param.private_data_len = lengths[i];
		pair_accept(&pair, &param);
		check_data(pair.established->param.conn.private_data,
			   pair.established->param.conn.private_data_len, data, lengths[i],
			   REP_DATA);
		pair_close(&pair);
	}
}

TEST(reject, "70 reject: 1 and 147 bytes arrive")
{
	static const uint8_t lengths[] = { 1, REJ_DATA - 1 };
	unsigned char data[REJ_DATA];

	for (size_t i = 0; i < sizeof(lengths); i++) {
		struct pair pair;

		pair_to_request(&pair, RDMA_PS_TCP);
		fill(data, sizeof(data), (unsigned int)i);
		CHECK_OK(rdma_reject(pair.server, data, lengths[i]));
		pair.established =
			expect_event(pair.client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
		check_data(pair.established->param.conn.private_data,
			   pair.established->param.conn.private_data_len, data, lengths[i],
			   REJ_DATA);
		pair_close(&pair);
	}
}

TEST(reject_null, "70 reject: a length without data sends none")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject(pair.server, NULL, 10));
	pair.established =
		expect_event(pair.client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
	CHECK(all_zero(pair.established->param.conn.private_data, REJ_DATA));
	pair_close(&pair);
}

TEST(ud_request, "83 UD request: 180 bytes arrive, 181 fail")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[SIDR_REQ_DATA + 1];

	fill(data, sizeof(data), 6);
	param.private_data = data;
	param.private_data_len = SIDR_REQ_DATA + 1;
	pair_to_route(&pair, RDMA_PS_UDP);
	make_qp(pair.client);
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	param.private_data_len = SIDR_REQ_DATA;
	pair_request(&pair, &param);
	check_data(pair.request->param.ud.private_data, pair.request->param.ud.private_data_len,
		   data, SIDR_REQ_DATA, SIDR_REQ_DATA);
	pair_close(&pair);
}

TEST(ud_reply, "84 UD reply: 136 bytes arrive")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	unsigned char data[SIDR_REP_DATA];

	pair_to_request(&pair, RDMA_PS_UDP);
	make_qp(pair.server);
	fill(data, sizeof(data), 7);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	param.qp_num = pair.server->qp->qp_num;
	pair_accept(&pair, &param);
	check_data(pair.established->param.ud.private_data,
		   pair.established->param.ud.private_data_len, data, sizeof(data),
		   SIDR_REP_DATA);
	pair_close(&pair);
}

TEST(ud_reject, "86 UD reject: 136 bytes arrive, 137 fail")
{
	struct pair pair;
	unsigned char data[SIDR_REP_DATA + 1];

	pair_to_request(&pair, RDMA_PS_UDP);
	fill(data, sizeof(data), 8);
	CHECK_ERRNO(rdma_reject(pair.server, data, SIDR_REP_DATA + 1), EINVAL);
	CHECK_OK(rdma_reject(pair.server, data, SIDR_REP_DATA));
	pair.established =
		expect_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE, EVENT_TIMEOUT);
	CHECK_EQ(pair.established->status, SIDR_REJECT);
	check_data(pair.established->param.ud.private_data,
		   pair.established->param.ud.private_data_len, data, SIDR_REP_DATA,
		   SIDR_REP_DATA);
	pair_close(&pair);
}
