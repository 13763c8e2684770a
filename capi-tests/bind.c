/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Binding and listening. */
#include "single.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>

#include <infiniband/ib.h>

/* The address in the form that RoCE GIDs have. */
static void mapped_gid(const struct sockaddr *addr, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (addr->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
}

static struct sockaddr *any(void)
{
	return make_addr("0.0.0.0", 0);
}

static struct sockaddr *same_port(struct rdma_cm_id *bound, struct sockaddr *addr)
{
	struct sockaddr_in *in = (struct sockaddr_in *)addr;

	in->sin_port = rdma_get_src_port(bound);
	return addr;
}

TEST(null_address, "16 NULL gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_bind_addr(id, NULL), EINVAL);
	end();
}

TEST(unix_address, "16 AF_UNIX and other families give EINVAL")
{
	static const sa_family_t families[] = { AF_UNSPEC, AF_UNIX, AF_PACKET, 0xffff };
	struct sockaddr_storage addr;

	begin(RDMA_PS_TCP);
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
		memset(&addr, 0, sizeof(addr));
		addr.ss_family = families[i];
		CHECK_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&addr), EINVAL);
	}
	/* A refused address leaves the id usable. */
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	end();
}

TEST(not_local, "17 an address of no interface gives EADDRNOTAVAIL")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_bind_addr(id, make_addr("192.0.2.1", 0)), EADDRNOTAVAIL);
	CHECK(!id->verbs);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	end();
}

TEST(loopback, "18 127.0.0.1 port 0: no device, a port")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, make_addr("127.0.0.1", 0)));
	CHECK(!id->verbs && !id->pd);
	CHECK(rdma_get_src_port(id) != 0);
	end();
}

TEST(wildcard, "19 0.0.0.0 port 0: no device, a port")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, any()));
	CHECK(!id->verbs && !id->pd);
	CHECK_EQ(id->port_num, 0);
	CHECK_EQ(id->route.addr.src_sin.sin_family, AF_INET);
	CHECK_EQ(id->route.addr.src_sin.sin_addr.s_addr, INADDR_ANY);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(rdma_get_src_port(id), id->route.addr.src_sin.sin_port);
	CHECK_EQ(rdma_get_dst_port(id), 0);
	end();
}

TEST(device_address, "20 device address gives verbs, pd, port, sgid")
{
	struct sockaddr *addr = test_addr(0);
	union ibv_gid gid;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, addr));
	CHECK(id->verbs);
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), test_device()) == 0);
	CHECK(id->pd);
	CHECK(id->pd->context == id->verbs);
	CHECK_EQ(id->port_num, 1);
	mapped_gid(addr, &gid);
	CHECK(memcmp(&id->route.addr.addr.ibaddr.sgid, &gid, sizeof(gid)) == 0);
	CHECK_EQ(id->route.addr.src_sin.sin_family, AF_INET);
	CHECK(memcmp(&id->route.addr.src_sin.sin_addr,
		     &((struct sockaddr_in *)addr)->sin_addr, 4) == 0);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(rdma_get_dst_port(id), 0);
	CHECK(rdma_get_local_addr(id) == &id->route.addr.src_addr);
	CHECK(rdma_get_peer_addr(id) == &id->route.addr.dst_addr);
	end();
}

TEST(dgid_pkey, "20 dgid and pkey after binding to a device address")
{
	static const union ibv_gid mapped_any = { .raw = { [10] = 0xff, [11] = 0xff } };

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(memcmp(&id->route.addr.addr.ibaddr.dgid, &mapped_any, 16) == 0);
	end();
}

TEST(chosen_port, "20 a chosen port is taken")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(17471)));
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 17471);
	end();
}

TEST(device_address6, "20 IPv6 device address")
{
	struct sockaddr *addr = test_addr6(0);
	union ibv_gid gid;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, addr));
	CHECK(id->verbs && id->pd);
	CHECK_EQ(id->port_num, 1);
	mapped_gid(addr, &gid);
	CHECK(memcmp(&id->route.addr.addr.ibaddr.sgid, &gid, sizeof(gid)) == 0);
	CHECK_EQ(id->route.addr.src_sin6.sin6_family, AF_INET6);
	CHECK(rdma_get_src_port(id) != 0);
	end();
}

TEST(shared_pd, "20 ids of one device share context and protection domain")
{
	struct rdma_cm_id *other;

	begin(RDMA_PS_TCP);
	other = make_id(channel, RDMA_PS_UDP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_bind_addr(other, test_addr(0)));
	CHECK(id->verbs == other->verbs);
	CHECK(id->pd == other->pd);
	CHECK_OK(rdma_destroy_id(other));
	end();
}

TEST(twice, "21 binding twice gives EINVAL, the first stays")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(17472)));
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(17473)), EINVAL);
	CHECK_EQ(ntohs(rdma_get_src_port(id)), 17472);
	CHECK(id->verbs);
	end();
}

TEST(in_use, "22 same address and port on two ids gives EADDRINUSE")
{
	struct rdma_cm_id *other;

	begin(RDMA_PS_TCP);
	other = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(rdma_bind_addr(other, same_port(id, test_addr(0))), EADDRINUSE);
	/* The failure leaves it free for another port. */
	CHECK_OK(rdma_bind_addr(other, test_addr(0)));
	CHECK_OK(rdma_destroy_id(other));
	end();
}

TEST(port_freed, "22 destroy_id frees the port")
{
	begin(RDMA_PS_TCP);
	for (int i = 0; i < 3; i++) {
		CHECK_OK(rdma_bind_addr(id, test_addr(17474)));
		CHECK_OK(rdma_destroy_id(id));
		id = make_id(channel, RDMA_PS_TCP);
	}
	end();
}

TEST(wildcard_in_use, "23 wildcard over a bound port gives EADDRNOTAVAIL")
{
	struct rdma_cm_id *other;

	begin(RDMA_PS_TCP);
	other = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(rdma_bind_addr(other, same_port(id, any())), EADDRNOTAVAIL);
	CHECK_OK(rdma_destroy_id(other));
	end();
}

TEST(reuse, "24 REUSEADDR on both ids: bound twice, listen EADDRINUSE while both are")
{
	struct rdma_cm_id *other;
	int on = 1;

	begin(RDMA_PS_TCP);
	other = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
				 sizeof(on)));
	CHECK_OK(rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
				 sizeof(on)));
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_bind_addr(other, same_port(id, test_addr(0))));
	CHECK_ERRNO(rdma_listen(id, 1), EADDRINUSE);
	CHECK_ERRNO(rdma_listen(other, 1), EADDRINUSE);
	CHECK_OK(rdma_destroy_id(other));
	CHECK_OK(rdma_listen(id, 1));
	end();
}

TEST(other_space, "25 TCP and UDP ids on one port number")
{
	struct rdma_cm_id *other;

	begin(RDMA_PS_TCP);
	other = make_id(channel, RDMA_PS_UDP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_bind_addr(other, same_port(id, test_addr(0))));
	CHECK_OK(rdma_destroy_id(other));
	end();
}

static void bind_low_port(void *argument)
{
	(void)argument;
	drop_privileges();
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(80)), EACCES);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	end();
}

TEST(low_port, "26 port 80 without privilege gives EACCES")
{
	private_devices(0666, 0666);
	run_in_child(bind_low_port, NULL);
}

TEST(any6, "27 IPv6 wildcard: family 10, a port, no device")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, make_addr("::", 0)));
	CHECK_EQ(id->route.addr.src_sin6.sin6_family, AF_INET6);
	CHECK_EQ(rdma_get_src_port(id), id->route.addr.src_sin6.sin6_port);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK(!id->verbs);
	end();
}

TEST(link_local, "28 fe80:: address without scope gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_bind_addr(id, make_addr("fe80::1234", 0)), EINVAL);
	end();
}

/* The link-local address of the device's network interface, with its scope. */
static struct sockaddr *own_link_local(void)
{
	static struct sockaddr_in6 found;
	struct ifaddrs *list;

	CHECK_OK(getifaddrs(&list));
	for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)entry->ifa_addr;

		if (in6 && in6->sin6_family == AF_INET6 &&
		    strcmp(entry->ifa_name, test_netdev()) == 0 &&
		    IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			found = *in6;
	}
	freeifaddrs(list);
	if (!found.sin6_family)
		SKIP("no link-local address on %s", test_netdev());
	found.sin6_port = 0;
	return (struct sockaddr *)&found;
}

TEST(link_local_scope, "28 fe80:: address with scope")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, own_link_local()));
	CHECK(id->verbs);
	CHECK_EQ(id->route.addr.src_sin6.sin6_scope_id, if_nametoindex(test_netdev()));
	end();
}

TEST(ipoib_space, "29 PS_IPOIB on RoCE gives EINVAL")
{
	begin(RDMA_PS_IPOIB);
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(0)), EINVAL);
	end();
}

TEST(ib_space, "30 PS_IB with an IPv4 address")
{
	begin(RDMA_PS_IB);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs);
	end();
}

TEST(ib_address, "31 AF_IB with the GID of a RoCE port gives ENODEV")
{
	struct sockaddr_ib addr = { .sib_family = AF_IB };
	union ibv_gid gid;

	begin(RDMA_PS_IB);
	mapped_gid(test_addr(0), &gid);
	memcpy(&addr.sib_addr, &gid, sizeof(gid));
	addr.sib_sid = htobe64(RDMA_IB_IP_PS_TCP);
	addr.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK);
	CHECK_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&addr), ENODEV);
	end();
}

TEST(ib_wildcard, "32 AF_IB wildcard in PS_IB with a TCP service id: a port")
{
	struct sockaddr_ib addr = { .sib_family = AF_IB };
	struct sockaddr_ib *bound;

	begin(RDMA_PS_IB);
	addr.sib_sid = htobe64(RDMA_IB_IP_PS_TCP);
	addr.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK);
	CHECK_OK(rdma_bind_addr(id, (struct sockaddr *)&addr));
	bound = (struct sockaddr_ib *)rdma_get_local_addr(id);
	CHECK_EQ(bound->sib_family, AF_IB);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(rdma_get_src_port(id), htons((uint16_t)be64toh(bound->sib_sid)));
	CHECK_EQ(be64toh(bound->sib_sid) >> 16, RDMA_PS_TCP);
	CHECK_EQ(bound->sib_sid_mask, ~0ULL);
	end();
}

TEST(ib_wrong_space, "32 AF_IB service id of another port space gives EPROTONOSUPPORT")
{
	struct sockaddr_ib addr = { .sib_family = AF_IB };

	begin(RDMA_PS_TCP);
	addr.sib_sid = htobe64(RDMA_IB_IP_PS_UDP);
	addr.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK);
	CHECK_ERRNO(rdma_bind_addr(id, (struct sockaddr *)&addr), EPROTONOSUPPORT);
	end();
}

TEST(listen_unbound, "33 listen on an unbound id: a port")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_listen(id, 1));
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(id->route.addr.src_sin.sin_family, AF_INET);
	CHECK(!id->verbs);
	end();
}

TEST(listen_bound, "33 listen on a bound id keeps address, device and port")
{
	uint16_t port;

	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	port = rdma_get_src_port(id);
	CHECK_OK(rdma_listen(id, 0));
	CHECK_EQ(rdma_get_src_port(id), port);
	CHECK(id->verbs);
	end();
}

TEST(listen_backlog, "33 any backlog is taken: -1, 0 and beyond the maximum")
{
	static const int backlogs[] = { -1, 0, 100000 };

	for (size_t i = 0; i < sizeof(backlogs) / sizeof(*backlogs); i++) {
		begin(RDMA_PS_TCP);
		CHECK_OK(rdma_listen(id, backlogs[i]));
		end();
	}
}

TEST(listen_datagram, "33 listen in PS_UDP")
{
	begin(RDMA_PS_UDP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	end();
}

TEST(listen_twice, "34 listening twice gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(rdma_listen(id, 1), EINVAL);
	end();
}

TEST(listen_resolved, "34 listen after resolve_addr gives EINVAL")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_ERRNO(rdma_listen(id, 1), EINVAL);
	end();
}

static void start_client(struct pair *pair, struct rdma_cm_id **client, uint32_t qp_num)
{
	struct rdma_conn_param param = { .qp_num = qp_num, .retry_count = 7 };

	pair_resolve(pair);
	pair_route(pair);
	*client = pair->client;
	CHECK_OK(rdma_connect(*client, &param));
}

TEST(backlog, "35 backlog 1, two clients: one request, no reject", .timeout = 90)
{
	struct pair pair;
	struct rdma_cm_id *first, *second;
	struct rdma_cm_event *request;
	struct pollfd entry;

	pair_listen(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = make_id(pair.server_channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(pair.listener, test_addr(0)));
	CHECK_OK(rdma_listen(pair.listener, 1));

	start_client(&pair, &first, 0x11);
	entry = (struct pollfd){ .fd = pair.server_channel->fd, .events = POLLIN };
	CHECK_EQ(poll(&entry, 1, EVENT_TIMEOUT * 1000), 1);
	start_client(&pair, &second, 0x12);
	expect_no_event(pair.client_channel, 1000);
	request = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
			       EVENT_TIMEOUT);
	CHECK(request->listen_id == pair.listener);
	expect_no_event(pair.server_channel, 200);

	CHECK_OK(rdma_destroy_id(first));
	CHECK_OK(rdma_destroy_id(second));
	pair.client = NULL;
	pair.request = request;
	pair.server = request->id;
	pair_close(&pair);
}
