/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Address resolution. */
#include "single.h"

#include <unistd.h>

TEST(null_destination, "36 destination NULL gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, NULL, 1000), EINVAL);
	end();
}

TEST(unix_destination, "36 AF_UNIX as destination or source gives EINVAL")
{
	struct sockaddr_storage addr = { .ss_family = AF_UNIX };

	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000), EINVAL);
	CHECK_ERRNO(rdma_resolve_addr(id, (struct sockaddr *)&addr, test_addr(7000), 1000),
		    EINVAL);
	/* The id is as new. */
	CHECK_EQ(id->route.addr.dst_addr.sa_family, 0);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	end();
}

TEST(resolve, "37 ADDR_RESOLVED; destination set at once, device with the event")
{
	struct sockaddr *addr = test_addr(7000);
	struct rdma_cm_event *event;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, addr, 5000));
	CHECK(memcmp(&id->route.addr.dst_sin, addr, sizeof(struct sockaddr_in)) == 0);
	CHECK_EQ(ntohs(rdma_get_dst_port(id)), 7000);
	CHECK(!id->verbs);
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == id);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK(id->verbs && id->pd);
	CHECK_EQ(id->port_num, 1);
	CHECK(memcmp(&id->route.addr.dst_sin, addr, sizeof(struct sockaddr_in)) == 0);
	CHECK(memcmp(&id->route.addr.src_sin.sin_addr,
		     &((struct sockaddr_in *)addr)->sin_addr, 4) == 0);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(id->route.num_paths, 0);
	end();
}

TEST(gids, "37 sgid and dgid are the mapped addresses")
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };
	struct sockaddr_in *in = (struct sockaddr_in *)test_addr(7000);
	struct rdma_ib_addr *ib;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, (struct sockaddr *)in, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	ib = &id->route.addr.addr.ibaddr;
	CHECK(memcmp(ib->sgid.raw, prefix, 12) == 0);
	CHECK(memcmp(ib->sgid.raw + 12, &in->sin_addr, 4) == 0);
	CHECK(memcmp(ib->dgid.raw, prefix, 12) == 0);
	CHECK(memcmp(ib->dgid.raw + 12, &in->sin_addr, 4) == 0);
	end();
}

TEST(source, "37 with a source address and port")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, test_addr(17480), test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 17480);
	end();
}

TEST(bound, "37 on a bound id")
{
	struct ibv_context *verbs;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(17481)));
	verbs = id->verbs;
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id->verbs == verbs);
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 17481);
	end();
}

TEST(ipv6, "37 IPv6")
{
	struct sockaddr *addr = test_addr6(7000);

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, addr, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id->verbs);
	CHECK_EQ(id->route.addr.src_sin6.sin6_family, AF_INET6);
	CHECK(memcmp(&id->route.addr.addr.ibaddr.sgid,
		     &((struct sockaddr_in6 *)addr)->sin6_addr, 16) == 0);
	CHECK_EQ(ntohs(rdma_get_dst_port(id)), 7000);
	end();
}

TEST(mixed_families, "37 source and destination of different families give EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, make_addr("2001:db8::1", 7000), 1000), EINVAL);
	end();
}

TEST(unroutable, "38 no route gives ENETUNREACH and no event")
{
	struct sockaddr *addr = make_addr("192.0.2.1", 7000);
	int probe = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(probe >= 0);
	if (connect(probe, addr, sizeof(struct sockaddr_in)) == 0)
		SKIP("this host has a route to 192.0.2.1");
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, addr, 1000), ENETUNREACH);
	expect_no_event(channel, 200);
	/* The failure leaves the id usable. */
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	end();
}

TEST(silent, "39 silent neighbour: ADDR_ERROR -ETIMEDOUT near the timeout, then retry works",
     .timeout = 60)
{
	uint64_t start;

	begin(RDMA_PS_TCP);
	start = now_ms();
	CHECK_OK(rdma_resolve_addr(id, NULL, silent_addr(7000), 500));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_ERROR), -ETIMEDOUT);
	CHECK(now_ms() - start >= 400);
	CHECK(!id->verbs);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id->verbs);
	end();
}

TEST(silent_longer, "39 RDMACM_RESOLVE_TIMEOUT: a silent neighbour has so long, not the program's limit [fix]",
     .timeout = 60)
{
	uint64_t start;

	CHECK_OK(setenv("RDMACM_RESOLVE_TIMEOUT", "6000", 1));
	begin(RDMA_PS_TCP);
	start = now_ms();
	CHECK_OK(rdma_resolve_addr(id, NULL, silent_addr(7000), 100));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_ERROR), -ETIMEDOUT);
	CHECK(now_ms() - start >= 5500);
	end();
}

TEST(destroyed, "39 destroy_id during resolution ends it without event", .timeout = 60)
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, silent_addr(7000), 3000));
	CHECK_OK(rdma_destroy_id(id));
	expect_no_event(channel, 100);
	rdma_destroy_event_channel(channel);
}

TEST(loopback, "40 127.0.0.1: ADDR_RESOLVED, pkey FFFF")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, make_addr("127.0.0.1", 7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK(id->verbs);
	CHECK_EQ(ntohs(id->route.addr.addr.ibaddr.pkey), 0xffff);
	end();
}

TEST(again, "41 resolving again after success gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, test_addr(7001), 5000), EINVAL);
	CHECK_EQ(ntohs(rdma_get_dst_port(id)), 7000);
	end();
}

TEST(listening, "41 resolving on a listener gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, test_addr(7001), 5000), EINVAL);
	end();
}

TEST(synchronous, "37 synchronous: returns with the event in the id")
{
	id = make_id(NULL, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(synchronous_silent, "39 synchronous: silent neighbour gives ETIMEDOUT, event in the id",
     .timeout = 60)
{
	id = make_id(NULL, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, silent_addr(7000), 500), ETIMEDOUT);
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_OK(rdma_destroy_id(id));
}

static void resolve_without_verbs(void *argument)
{
	struct rdma_cm_event *event;

	(void)argument;
	drop_privileges();
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_ERROR, EVENT_TIMEOUT);
	CHECK_EQ(event->status, -ENODEV);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK(!id->verbs);
	end();
}

TEST(no_verbs, "13 uverbs without permission: ADDR_ERROR -ENODEV [fix]", .timeout = 60)
{
	private_devices(0666, 0600);
	run_in_child(resolve_without_verbs, NULL);
}
