/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Enhanced connection establishment: arguments of its three functions. */
#include "harness.h"

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;

static void begin(void)
{
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
}

static void end(void)
{
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(set, "96 set_local_ece")
{
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };

	begin();
	CHECK_OK(rdma_set_local_ece(id, &ece));
	CHECK_OK(rdma_set_local_ece(id, &ece));
	end();
}

TEST(set_invalid, "96 set_local_ece: NULL, vendor 0, comp_mask give EINVAL")
{
	struct ibv_ece good = { .vendor_id = 0x15b3, .options = 1 };
	struct ibv_ece no_vendor = { .options = 1 };
	struct ibv_ece mask = { .vendor_id = 0x15b3, .comp_mask = 1 };

	begin();
	CHECK_ERRNO(rdma_set_local_ece(NULL, &good), EINVAL);
	CHECK_ERRNO(rdma_set_local_ece(id, NULL), EINVAL);
	CHECK_ERRNO(rdma_set_local_ece(id, &no_vendor), EINVAL);
	CHECK_ERRNO(rdma_set_local_ece(id, &mask), EINVAL);
	end();
}

TEST(with_qp, "96 set_local_ece and get_remote_ece of an id with QP give EINVAL")
{
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 1 };

	begin();
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(id);
	CHECK_ERRNO(rdma_set_local_ece(id, &ece), EINVAL);
	CHECK_ERRNO(rdma_get_remote_ece(id, &ece), EINVAL);
	rdma_destroy_qp(id);
	end();
}

TEST(get, "96 get_remote_ece of a new id is zero; NULL gives EINVAL")
{
	struct ibv_ece ece = { .vendor_id = 9, .options = 9, .comp_mask = 9 };

	begin();
	CHECK_OK(rdma_get_remote_ece(id, &ece));
	CHECK_EQ(ece.vendor_id, 0);
	CHECK_EQ(ece.options, 0);
	CHECK_EQ(ece.comp_mask, 0);
	CHECK_ERRNO(rdma_get_remote_ece(NULL, &ece), EINVAL);
	CHECK_ERRNO(rdma_get_remote_ece(id, NULL), EINVAL);
	end();
}

TEST(carried, "96 the pair set by one side reaches the other, both ways")
{
	struct ibv_ece client_ece = { .vendor_id = 0x15b3, .options = 0x10 };
	struct ibv_ece server_ece = { .vendor_id = 0x15b3, .options = 0x20 };
	struct rdma_conn_param param = { .qp_num = 0x31, .retry_count = 7 };
	struct ibv_ece ece;
	struct pair pair;

	/* QPs of the program's own, so that the pair is not taken from a QP. */
	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pair_route(&pair);
	CHECK_OK(rdma_set_local_ece(pair.client, &client_ece));
	pair_request(&pair, &param);
	CHECK_OK(rdma_get_remote_ece(pair.server, &ece));
	CHECK_EQ(ece.vendor_id, client_ece.vendor_id);
	CHECK_EQ(ece.options, client_ece.options);
	CHECK_EQ(ece.comp_mask, 0);
	CHECK_OK(rdma_set_local_ece(pair.server, &server_ece));
	param.qp_num = 0x32;
	CHECK_OK(rdma_accept(pair.server, &param));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	CHECK_OK(rdma_get_remote_ece(pair.client, &ece));
	CHECK_EQ(ece.vendor_id, server_ece.vendor_id);
	CHECK_EQ(ece.options, server_ece.options);
	pair_close(&pair);
}
