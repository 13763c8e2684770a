/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* QPs of ids: creation, initial states and attributes, CQs and who owns them. */
#include "pair.h"

TEST(active, "54 QP of a resolved id is in INIT without remote access")
{
	struct pair pair;
	struct ibv_qp_attr attr;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	make_qp(pair.client);
	attr = query_qp(pair.client->qp);
	CHECK_EQ(attr.qp_state, IBV_QPS_INIT);
	CHECK_EQ(attr.qp_access_flags, 0);
	CHECK_EQ(attr.port_num, pair.client->port_num);
	CHECK_EQ(pair.client->qp->qp_type, IBV_QPT_RC);
	CHECK(pair.client->qp->context == pair.client->verbs);
	CHECK(pair.client->qp->pd == pair.client->pd);
	pair_close(&pair);
}

TEST(passive, "55 QP of a requested id is in INIT with remote access")
{
	const int remote =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct pair pair;
	struct ibv_qp_attr attr;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	attr = query_qp(pair.server->qp);
	CHECK_EQ(attr.qp_state, IBV_QPS_INIT);
	CHECK_EQ(attr.qp_access_flags & remote, remote);
	CHECK_EQ(attr.port_num, pair.server->port_num);
	pair_close(&pair);
}

TEST(passive_no_reads, "55 without responder resources only remote writes are allowed")
{
	const int remote =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct rdma_conn_param param = { .retry_count = 7 };
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	CHECK_EQ(query_qp(pair.server->qp).qp_access_flags & remote, IBV_ACCESS_REMOTE_WRITE);
	pair_close(&pair);
}

TEST(twice, "56 second QP")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	make_qp(pair.client);
	qp = pair.client->qp;
	init = usual_qp(pair.client);
	CHECK_ERRNO(rdma_create_qp(pair.client, NULL, &init), EINVAL);
	CHECK(pair.client->qp == qp);
	pair_close(&pair);
}

TEST(again, "56 a QP can be made again after it was destroyed")
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	for (int i = 0; i < 3; i++) {
		make_qp(pair.client);
		rdma_destroy_qp(pair.client);
		CHECK(!pair.client->qp);
	}
	make_qp(pair.client);
	pair_close(&pair);
}

TEST(unbound, "57 QP of an unbound id [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_qp_init_attr init = usual_qp(id);

	CHECK_ERRNO(rdma_create_qp(id, NULL, &init), EINVAL);
	CHECK(!id->qp);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(unbound_ex, "57 extended QP of an unbound id [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	CHECK_ERRNO(rdma_create_qp_ex(id, &init), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(destroy_none, "57 destroying no QP does nothing [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_qp(id);
	CHECK(!id->qp);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(foreign_pd, "58 PD of another context")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_context *context;
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	context = ibv_open_device(pair.client->verbs->device);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	init = usual_qp(pair.client);
	CHECK_ERRNO(rdma_create_qp(pair.client, pd, &init), EINVAL);
	CHECK(!pair.client->qp);
	pair_close(&pair);
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_close_device(context));
}

TEST(own_pd, "58 PD of the caller becomes that of the id")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pd = ibv_alloc_pd(pair.client->verbs);
	CHECK(pd);
	init = usual_qp(pair.client);
	CHECK_OK(rdma_create_qp(pair.client, pd, &init));
	CHECK(pair.client->qp->pd == pd);
	CHECK(pair.client->pd == pd);
	pair_close(&pair);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(library_cqs, "59 CQs and channels made by the library")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	unsigned int descriptors;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	descriptors = open_descriptors();
	init = usual_qp(pair.client);
	CHECK_OK(rdma_create_qp(pair.client, NULL, &init));
	CHECK(pair.client->send_cq);
	CHECK(pair.client->recv_cq);
	CHECK(pair.client->send_cq != pair.client->recv_cq);
	CHECK(pair.client->send_cq_channel);
	CHECK(pair.client->recv_cq_channel);
	CHECK(pair.client->send_cq_channel != pair.client->recv_cq_channel);
	CHECK(pair.client->send_cq->channel == pair.client->send_cq_channel);
	CHECK(pair.client->recv_cq->channel == pair.client->recv_cq_channel);
	CHECK(pair.client->send_cq->cq_context == pair.client);
	CHECK(pair.client->recv_cq->cq_context == pair.client);
	CHECK(pair.client->send_cq->cqe >= 4);
	CHECK(pair.client->recv_cq->cqe >= 4);
	/* The caller's struct tells what was made. */
	CHECK(init.send_cq == pair.client->send_cq);
	CHECK(init.recv_cq == pair.client->recv_cq);
	CHECK(init.cap.max_send_wr >= 4);
	CHECK(init.cap.max_recv_wr >= 4);
	CHECK_EQ(open_descriptors(), descriptors + 2);

	rdma_destroy_qp(pair.client);
	CHECK(!pair.client->qp);
	CHECK(!pair.client->send_cq);
	CHECK(!pair.client->recv_cq);
	CHECK(!pair.client->send_cq_channel);
	CHECK(!pair.client->recv_cq_channel);
	CHECK_EQ(open_descriptors(), descriptors);
	pair_close(&pair);
}

TEST(own_recv_cq, "59 send CQ of the library goes with a QP whose recv CQ is the caller's [fix]")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;
	unsigned int descriptors;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	cq = own_cq(pair.client);
	descriptors = open_descriptors();
	init = usual_qp(pair.client);
	init.recv_cq = cq;
	CHECK_OK(rdma_create_qp(pair.client, NULL, &init));
	CHECK(pair.client->send_cq);
	CHECK(!pair.client->recv_cq);
	CHECK(!pair.client->recv_cq_channel);
	CHECK(pair.client->qp->recv_cq == cq);
	CHECK_EQ(open_descriptors(), descriptors + 1);
	rdma_destroy_qp(pair.client);
	CHECK(!pair.client->send_cq);
	CHECK(!pair.client->send_cq_channel);
	CHECK_EQ(open_descriptors(), descriptors);
	pair_close(&pair);
	CHECK_OK(ibv_destroy_cq(cq));
}

TEST(own_send_cq, "59 recv CQ of the library goes with a QP whose send CQ is the caller's")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;
	unsigned int descriptors;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	cq = own_cq(pair.client);
	descriptors = open_descriptors();
	init = usual_qp(pair.client);
	init.send_cq = cq;
	CHECK_OK(rdma_create_qp(pair.client, NULL, &init));
	CHECK(!pair.client->send_cq);
	CHECK(!pair.client->send_cq_channel);
	CHECK(pair.client->recv_cq);
	CHECK(pair.client->qp->send_cq == cq);
	rdma_destroy_qp(pair.client);
	CHECK(!pair.client->recv_cq);
	CHECK_EQ(open_descriptors(), descriptors);
	pair_close(&pair);
	CHECK_OK(ibv_destroy_cq(cq));
}

TEST(own_cqs, "59 both CQs of the caller are neither recorded nor destroyed")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	cq = own_cq(pair.client);
	init = usual_qp(pair.client);
	init.send_cq = init.recv_cq = cq;
	CHECK_OK(rdma_create_qp(pair.client, NULL, &init));
	CHECK(!pair.client->send_cq);
	CHECK(!pair.client->recv_cq);
	CHECK(!pair.client->send_cq_channel);
	CHECK(!pair.client->recv_cq_channel);
	rdma_destroy_qp(pair.client);
	pair_close(&pair);
	CHECK_OK(ibv_destroy_cq(cq));
}

TEST(empty_queues, "59 queues without entries have CQs of the library as well [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	unsigned int descriptors;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	descriptors = open_descriptors();
	for (int empty = 1; empty < 4; empty++) {
		struct ibv_qp_init_attr init = usual_qp(id);

		if (empty & 1)
			init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		if (empty & 2)
			init.cap.max_send_wr = init.cap.max_send_sge = 0;
		/* Not every device has queue pairs with an empty queue. */
		if (rdma_create_qp(id, NULL, &init)) {
			CHECK(!id->qp && !id->send_cq && !id->recv_cq);
		} else {
			CHECK(id->qp->send_cq == id->send_cq && id->send_cq);
			CHECK(id->qp->recv_cq == id->recv_cq && id->recv_cq);
			rdma_destroy_qp(id);
		}
		CHECK_EQ(open_descriptors(), descriptors);
	}
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(shared_no_cq, "59 an SRQ of the caller without CQ for receives gives EINVAL [fix]")
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_qp_init_attr init;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	init = usual_qp(id);
	init.cap.max_recv_wr = 0;
	init.srq = ibv_create_srq(id->pd, &shared);
	CHECK(init.srq);
	CHECK_ERRNO(rdma_create_qp(id, NULL, &init), EINVAL);
	CHECK_OK(ibv_destroy_srq(init.srq));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(other_cq, "59 a CQ that differs from the id's gives EINVAL, the same one is taken")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq, *other;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	cq = own_cq(pair.client);
	other = own_cq(pair.client);
	pair.client->send_cq = pair.client->recv_cq = cq;
	init = usual_qp(pair.client);
	init.send_cq = other;
	CHECK_ERRNO(rdma_create_qp(pair.client, NULL, &init), EINVAL);
	init = usual_qp(pair.client);
	init.recv_cq = other;
	CHECK_ERRNO(rdma_create_qp(pair.client, NULL, &init), EINVAL);
	CHECK(!pair.client->qp);
	CHECK(pair.client->send_cq == cq);
	CHECK(pair.client->recv_cq == cq);
	init = usual_qp(pair.client);
	init.send_cq = init.recv_cq = cq;
	CHECK_OK(rdma_create_qp(pair.client, NULL, &init));
	CHECK(pair.client->qp->send_cq == cq);
	CHECK(pair.client->qp->recv_cq == cq);
	CHECK_OK(ibv_destroy_qp(pair.client->qp));
	pair.client->qp = NULL;
	pair.client->send_cq = pair.client->recv_cq = NULL;
	pair_close(&pair);
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_destroy_cq(other));
}

TEST(too_large, "59 failing QP leaves no CQs behind")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	unsigned int descriptors;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	descriptors = open_descriptors();
	init = usual_qp(pair.client);
	init.cap.max_send_sge = (uint32_t)device_limits(pair.client).max_sge + 1000;
	CHECK_ERRNO(rdma_create_qp(pair.client, NULL, &init), EINVAL);
	CHECK(!pair.client->qp);
	CHECK(!pair.client->send_cq);
	CHECK(!pair.client->recv_cq);
	CHECK_EQ(open_descriptors(), descriptors);
	make_qp(pair.client);
	pair_close(&pair);
}

TEST(keeps_foreign_cq, "59 failing QP does not destroy CQs of the caller set in the id [fix]")
{
	struct pair pair;
	struct ibv_qp_init_attr init;
	struct ibv_cq *cq;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	cq = own_cq(pair.client);
	pair.client->send_cq = pair.client->recv_cq = cq;
	init = usual_qp(pair.client);
	init.cap.max_send_sge = (uint32_t)device_limits(pair.client).max_sge + 1000;
	CHECK_ERRNO(rdma_create_qp(pair.client, NULL, &init), EINVAL);
	CHECK(pair.client->send_cq == cq);
	CHECK(pair.client->recv_cq == cq);
	pair.client->send_cq = pair.client->recv_cq = NULL;
	CHECK_OK(ibv_destroy_cq(cq));
	pair_close(&pair);
}

TEST(extended, "60 extended QP with a PD of the caller")
{
	struct pair pair;
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pd = ibv_alloc_pd(pair.client->verbs);
	CHECK(pd);
	init.pd = pd;
	CHECK_OK(rdma_create_qp_ex(pair.client, &init));
	CHECK(pair.client->qp->pd == pd);
	CHECK(pair.client->pd == pd);
	CHECK_EQ(qp_state(pair.client->qp), IBV_QPS_INIT);
	CHECK(init.send_cq == pair.client->send_cq);
	pair_close(&pair);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(extended_default_pd, "60 extended QP without a PD gets that of the id")
{
	struct pair pair;
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_pd *pd;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pd = pair.client->pd;
	CHECK_OK(rdma_create_qp_ex(pair.client, &init));
	CHECK(pair.client->qp->pd == pd);
	CHECK(init.comp_mask & IBV_QP_INIT_ATTR_PD);
	CHECK(init.pd == pd);
	pair_close(&pair);
}

TEST(extended_operations, "60 extended QP with send operations")
{
	struct pair pair;
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(rdma_create_qp_ex(pair.client, &init));
	CHECK(ibv_qp_to_qp_ex(pair.client->qp));
	pair_close(&pair);
}

TEST(xrc, "60 XRC QPs are refused on a device without XRC, leaving nothing behind")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_XRC_RECV,
	};
	unsigned int descriptors;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	if (device_limits(id).device_cap_flags & IBV_DEVICE_XRC)
		SKIP("%s has XRC", test_device());
	descriptors = open_descriptors();
	CHECK_EQ(rdma_create_qp_ex(id, &init), -1);
	CHECK(errno > 0);
	init.qp_type = IBV_QPT_XRC_SEND;
	init.comp_mask = 0;
	CHECK_EQ(rdma_create_qp_ex(id, &init), -1);
	CHECK(errno > 0);
	CHECK(!id->qp);
	CHECK_EQ(open_descriptors(), descriptors);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(attributes, "62 attributes for the QP of a requested id")
{
	struct pair pair;
	struct ibv_qp_attr attr;
	int mask;

	pair_to_request(&pair, RDMA_PS_TCP);

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	CHECK_OK(rdma_init_qp_attr(pair.server, &attr, &mask));
	CHECK_EQ(mask, 0x39);
	CHECK_EQ(attr.qp_state, IBV_QPS_INIT);
	CHECK_EQ(attr.port_num, 1);
	CHECK(attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE);

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	CHECK_OK(rdma_init_qp_attr(pair.server, &attr, &mask));
	CHECK_EQ(mask, 0x129181);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTR);
	CHECK_EQ(attr.dest_qp_num, pair.client->qp->qp_num);
	CHECK_EQ(attr.min_rnr_timer, 0);
	CHECK_EQ(attr.ah_attr.is_global, 1);
	CHECK_EQ(attr.ah_attr.port_num, 1);
	CHECK(memcmp(&attr.ah_attr.grh.dgid, &pair.server->route.addr.addr.ibaddr.dgid, 16) == 0);
	CHECK(attr.path_mtu >= IBV_MTU_256);

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_OK(rdma_init_qp_attr(pair.server, &attr, &mask));
	CHECK_EQ(mask, 0x12E01);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQ(attr.retry_cnt, 7);
	CHECK_EQ(attr.rnr_retry, 7);
	pair_close(&pair);
}

TEST(attributes_active, "62 attributes before a request are those of INIT, without access")
{
	struct pair pair;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	pair_to_route(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_init_qp_attr(pair.client, &attr, &mask));
	CHECK_EQ(mask, 0x39);
	CHECK_EQ(attr.qp_access_flags, 0);
	CHECK_EQ(attr.port_num, 1);
	/* The kernel does not refuse RTR, it knows no more attributes yet. */
	attr.qp_state = IBV_QPS_RTR;
	CHECK_OK(rdma_init_qp_attr(pair.client, &attr, &mask));
	CHECK_EQ(mask, 0x39);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTR);
	pair_close(&pair);
}

TEST(attributes_ud, "62 attributes for a UD QP")
{
	struct pair pair;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	pair_listen(&pair, RDMA_PS_UDP);
	pair_resolve(&pair);
	CHECK_OK(rdma_init_qp_attr(pair.client, &attr, &mask));
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	CHECK_EQ(attr.qkey, RDMA_UDP_QKEY);
	pair_close(&pair);
}

TEST(attributes_bad, "63 attributes for an unknown state leave the caller's untouched")
{
	struct pair pair;
	struct ibv_qp_attr attr, before;
	int mask = 0x5a5a;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	memset(&attr, 0x5a, sizeof(attr));
	attr.qp_state = 9;
	before = attr;
	CHECK_ERRNO(rdma_init_qp_attr(pair.client, &attr, &mask), EINVAL);
	CHECK(memcmp(&attr, &before, sizeof(attr)) == 0);
	CHECK_EQ(mask, 0x5a5a);
	pair_close(&pair);
}

TEST(attributes_unbound, "63 attributes for an unbound id")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	CHECK_ERRNO(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}
