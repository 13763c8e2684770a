/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared receive queues of ids. */
#include "pair.h"

static struct ibv_srq_init_attr usual_srq(void)
{
	return (struct ibv_srq_init_attr){ .attr = { .max_wr = 8, .max_sge = 1 } };
}

/* A QP that receives from the SRQ of the id. */
static void make_srq_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = usual_qp(id);

	CHECK_OK(rdma_create_qp(id, NULL, &init));
	CHECK(id->qp->srq == id->srq);
	CHECK(init.srq == id->srq);
}

TEST(own, "60 QP made after rdma_create_srq receives from it")
{
	struct pair pair;
	struct ibv_srq_init_attr init = usual_srq();
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pd = pair.client->pd;
	CHECK_OK(rdma_create_srq(pair.client, NULL, &init));
	CHECK(pair.client->srq);
	CHECK(pair.client->srq->pd == pd);
	CHECK(pair.client->pd == pd);
	CHECK(init.attr.max_wr >= 8);
	make_srq_qp(pair.client);
	rdma_destroy_qp(pair.client);
	rdma_destroy_srq(pair.client);
	CHECK(!pair.client->srq);
	pair_close(&pair);
}

TEST(own_pd, "60 SRQ on a PD of the caller")
{
	struct pair pair;
	struct ibv_srq_init_attr init = usual_srq();
	struct ibv_pd *pd, *device_pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	device_pd = pair.client->pd;
	pd = ibv_alloc_pd(pair.client->verbs);
	CHECK(pd);
	CHECK_OK(rdma_create_srq(pair.client, pd, &init));
	CHECK(pair.client->srq->pd == pd);
	/* The PD of the id stays unless it had none. */
	CHECK(pair.client->pd == device_pd);
	rdma_destroy_srq(pair.client);
	pair_close(&pair);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(extended, "61 rdma_create_srq_ex with the basic type")
{
	struct pair pair;
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 8, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
	};

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(rdma_create_srq_ex(pair.client, &init));
	CHECK(pair.client->srq);
	CHECK(pair.client->srq->pd == pair.client->pd);
	make_srq_qp(pair.client);
	rdma_destroy_qp(pair.client);
	rdma_destroy_srq(pair.client);
	pair_close(&pair);
}

TEST(untyped, "61 rdma_create_srq_ex without a type")
{
	struct pair pair;
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = 8, .max_sge = 1 } };

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_ERRNO(rdma_create_srq_ex(pair.client, &init), EINVAL);
	CHECK(!pair.client->srq);
	pair_close(&pair);
}

TEST(foreign_pd, "61 unlike for a QP, the PD may be that of another context")
{
	struct pair pair;
	struct ibv_srq_init_attr init = usual_srq();
	struct ibv_context *context;
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	context = ibv_open_device(pair.client->verbs->device);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	CHECK_OK(rdma_create_srq(pair.client, pd, &init));
	CHECK(pair.client->srq->pd == pd);
	rdma_destroy_srq(pair.client);
	pair_close(&pair);
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_close_device(context));
}

TEST(xrc, "61 XRC SRQ is refused on a device without XRC, leaving nothing behind")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 8, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_XRC,
	};
	unsigned int descriptors;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	if (device_limits(id).device_cap_flags & IBV_DEVICE_XRC)
		SKIP("%s has XRC", test_device());
	descriptors = open_descriptors();
	CHECK_EQ(rdma_create_srq_ex(id, &init), -1);
	CHECK(errno > 0);
	CHECK(!id->srq);
	CHECK_EQ(open_descriptors(), descriptors);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(too_large, "61 SRQ beyond the device's limit")
{
	struct pair pair;
	struct ibv_srq_init_attr init = usual_srq();

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	init.attr.max_sge = (uint32_t)device_limits(pair.client).max_srq_sge + 1000;
	CHECK_ERRNO(rdma_create_srq(pair.client, NULL, &init), EINVAL);
	CHECK(!pair.client->srq);
	pair_close(&pair);
}

TEST(second, "61 a second SRQ gives EINVAL and the first one stays [fix]")
{
	struct pair pair;
	struct ibv_srq_init_attr init = usual_srq();
	struct ibv_srq *first;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(rdma_create_srq(pair.client, NULL, &init));
	first = pair.client->srq;
	CHECK_ERRNO(rdma_create_srq(pair.client, NULL, &init), EINVAL);
	CHECK(pair.client->srq == first);
	rdma_destroy_srq(pair.client);
	CHECK_OK(rdma_create_srq(pair.client, NULL, &init));
	rdma_destroy_srq(pair.client);
	pair_close(&pair);
}

TEST(unbound, "61 SRQ of an unbound id [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_srq_init_attr init = usual_srq();

	CHECK_ERRNO(rdma_create_srq(id, NULL, &init), EINVAL);
	CHECK(!id->srq);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(destroy_none, "61 destroying no SRQ does nothing [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_srq(id);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(data, "60 messages arrive through the SRQ of an accepted id")
{
	struct pair pair;
	struct rdma_conn_param param = usual_param();
	struct ibv_srq_init_attr init = usual_srq();

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_create_srq(pair.server, NULL, &init));
	make_srq_qp(pair.server);
	pair_accept(&pair, &param);
	for (int i = 0; i < 10; i++)
		send_message(pair.client, pair.server, "through the SRQ");
	rdma_destroy_qp(pair.server);
	rdma_destroy_srq(pair.server);
	pair_close(&pair);
}
