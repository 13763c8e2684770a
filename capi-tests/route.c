/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Route resolution. */
#include "single.h"

static void resolve(struct sockaddr *addr)
{
	CHECK_OK(rdma_resolve_addr(id, NULL, addr, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
}

TEST(fresh, "42 on a fresh id gives EINVAL [fix]")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_resolve_route(id, 1000), EINVAL);
	end();
}

TEST(bound, "42 on a bound id gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(rdma_resolve_route(id, 1000), EINVAL);
	end();
}

TEST(no_time, "43 timeout 0 gives EINVAL, then retry works")
{
	begin(RDMA_PS_TCP);
	resolve(test_addr(7000));
	CHECK_ERRNO(rdma_resolve_route(id, 0), EINVAL);
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	end();
}

TEST(path, "44 ROUTE_RESOLVED; one path with pkey FFFF, selectors 2, numb 1, preference 2B")
{
	struct rdma_cm_event *event;
	struct ibv_sa_path_rec *path;
	struct rdma_ib_addr *ib;

	begin(RDMA_PS_TCP);
	resolve(test_addr(7000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == id);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_EQ(id->route.num_paths, 1);
	path = id->route.path_rec;
	CHECK(path);
	ib = &id->route.addr.addr.ibaddr;
	CHECK(memcmp(&path->sgid, &ib->sgid, 16) == 0);
	CHECK(memcmp(&path->dgid, &ib->dgid, 16) == 0);
	CHECK_EQ(ntohs(path->pkey), 0xffff);
	CHECK_EQ(path->mtu_selector, 2);
	CHECK_EQ(path->rate_selector, 2);
	CHECK_EQ(path->packet_life_time_selector, 2);
	CHECK_EQ(path->numb_path, 1);
	CHECK_EQ(path->preference, 0x2b);
	CHECK_EQ(path->reversible, 1);
	CHECK_EQ(path->raw_traffic, 0);
	CHECK(path->mtu >= IBV_MTU_256 && path->mtu <= IBV_MTU_4096);
	CHECK(path->hop_limit >= 1);
	end();
}

TEST(path6, "44 IPv6")
{
	begin(RDMA_PS_TCP);
	resolve(test_addr6(7000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_EQ(id->route.num_paths, 1);
	CHECK(memcmp(&id->route.path_rec->dgid,
		     &id->route.addr.dst_sin6.sin6_addr, 16) == 0);
	end();
}

TEST(datagram, "44 PS_UDP")
{
	begin(RDMA_PS_UDP);
	resolve(test_addr(7000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_EQ(id->route.num_paths, 1);
	end();
}

TEST(service_type, "44 the type of service appears as traffic class of the path")
{
	uint8_t tos = 0x68;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	resolve(test_addr(7000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_EQ(id->route.path_rec->traffic_class, tos);
	end();
}

TEST(twice, "44 resolving a route twice gives EINVAL")
{
	begin(RDMA_PS_TCP);
	resolve(test_addr(7000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_ERRNO(rdma_resolve_route(id, 5000), EINVAL);
	CHECK_EQ(id->route.num_paths, 1);
	end();
}

TEST(early_connect, "45 connect before route resolution gives EINVAL")
{
	struct rdma_conn_param param = { .qp_num = 17 };

	begin(RDMA_PS_TCP);
	resolve(test_addr(7000));
	CHECK_ERRNO(rdma_connect(id, &param), EINVAL);
	/* The id goes on from where it was. */
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	end();
}

TEST(listener, "42 on a listener gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(rdma_resolve_route(id, 1000), EINVAL);
	end();
}

TEST(synchronous, "44 synchronous: returns with the event in the id")
{
	id = make_id(NULL, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK_EQ(id->route.num_paths, 1);
	CHECK_OK(rdma_destroy_id(id));
}
