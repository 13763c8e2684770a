/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* rdma_getaddrinfo and the resolution of addresses on an id. */
#include "harness.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/mount.h>

#include <infiniband/ib.h>

static int lookup(const char *node, const char *service, const struct rdma_addrinfo *hints,
		  struct rdma_addrinfo **info)
{
	*info = NULL;
	/* Older headers lack const for the names. */
	return rdma_getaddrinfo((char *)(uintptr_t)node, (char *)(uintptr_t)service,
				(struct rdma_addrinfo *)(uintptr_t)hints, info);
}

static const char *test_node(void)
{
	static char text[INET_ADDRSTRLEN];
	struct sockaddr_in *in = (struct sockaddr_in *)test_addr(0);

	CHECK(inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)));
	return text;
}

TEST(nothing, "107 all NULL gives EINVAL")
{
	struct rdma_addrinfo *info;

	CHECK_ERRNO(lookup(NULL, NULL, NULL, &info), EINVAL);
}

TEST(unknown_host, "108 numeric-host flag with a name gives EAI_NONAME")
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_addrinfo *info;

	CHECK_EQ(lookup("localhost", "7471", &hints, &info), EAI_NONAME);
	CHECK(!info);
}

TEST(wrong_type, "109 UD in PS_TCP gives EAI_SOCKTYPE")
{
	struct rdma_addrinfo hints = { .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	CHECK_EQ(lookup("127.0.0.1", "7471", &hints, &info), EAI_SOCKTYPE);
}

TEST(service_record_node, "110 RAI_SA with a node or with RAI_DNS gives EOPNOTSUPP")
{
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };
	struct rdma_addrinfo *info;

	library_symbol("rdma_resolve_addrinfo");
	CHECK_ERRNO(lookup("127.0.0.1", "7471", &hints, &info), EOPNOTSUPP);
	hints.ai_flags |= FLAG_RAI_DNS;
	CHECK_ERRNO(lookup(NULL, "7471", &hints, &info), EOPNOTSUPP);
}

TEST(service_record, "110 RAI_SA without InfiniBand port gives ENOENT; without service EINVAL")
{
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };
	struct rdma_addrinfo *info;

	library_symbol("rdma_resolve_addrinfo");
	CHECK_ERRNO(lookup(NULL, "7471", &hints, &info), ENOENT);
	CHECK_ERRNO(lookup(NULL, NULL, &hints, &info), EINVAL);
}

TEST(active, "active: destination, port, RC in PS_TCP")
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;
	struct sockaddr_in *in;

	CHECK_OK(lookup(test_node(), "7471", &hints, &info));
	CHECK_EQ(info->ai_flags, 0);
	CHECK_EQ(info->ai_family, AF_INET);
	CHECK_EQ(info->ai_qp_type, IBV_QPT_RC);
	CHECK_EQ(info->ai_port_space, RDMA_PS_TCP);
	CHECK(!info->ai_src_addr);
	CHECK_EQ(info->ai_src_len, 0);
	CHECK_EQ(info->ai_dst_len, sizeof(*in));
	in = (struct sockaddr_in *)info->ai_dst_addr;
	CHECK(memcmp(in, test_addr(7471), sizeof(*in)) == 0);
	CHECK_EQ(info->ai_route_len, 0);
	CHECK_EQ(info->ai_connect_len, 0);
	CHECK(!info->ai_next);
	rdma_freeaddrinfo(info);
}

TEST(no_hints, "no hints: RC in PS_TCP")
{
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(test_node(), "7471", NULL, &info));
	CHECK_EQ(info->ai_qp_type, IBV_QPT_RC);
	CHECK_EQ(info->ai_port_space, RDMA_PS_TCP);
	CHECK(info->ai_dst_addr);
	rdma_freeaddrinfo(info);
}

TEST(passive, "passive: source only")
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(test_node(), "7471", &hints, &info));
	CHECK_EQ(info->ai_flags, RAI_PASSIVE);
	CHECK(!info->ai_dst_addr);
	CHECK_EQ(info->ai_src_len, sizeof(struct sockaddr_in));
	CHECK(memcmp(info->ai_src_addr, test_addr(7471), sizeof(struct sockaddr_in)) == 0);
	rdma_freeaddrinfo(info);
}

TEST(passive_wildcard, "passive without node: wildcard")
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_PASSIVE,
		.ai_family = AF_INET,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(NULL, "7471", &hints, &info));
	CHECK_EQ(((struct sockaddr_in *)info->ai_src_addr)->sin_addr.s_addr, INADDR_ANY);
	CHECK_EQ(ntohs(((struct sockaddr_in *)info->ai_src_addr)->sin_port), 7471);
	rdma_freeaddrinfo(info);
}

TEST(datagram, "PS_UDP gives UD")
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(test_node(), "7471", &hints, &info));
	CHECK_EQ(info->ai_qp_type, IBV_QPT_UD);
	CHECK_EQ(info->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(info);
}

TEST(by_type, "qp_type UD alone gives PS_UDP")
{
	struct rdma_addrinfo hints = { .ai_qp_type = IBV_QPT_UD };
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(test_node(), "7471", &hints, &info));
	CHECK_EQ(info->ai_qp_type, IBV_QPT_UD);
	CHECK_EQ(info->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(info);
}

TEST(ipv6, "IPv6 numeric")
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	CHECK_OK(lookup("2001:db8::1", "7471", &hints, &info));
	CHECK_EQ(info->ai_family, AF_INET6);
	CHECK_EQ(info->ai_dst_len, sizeof(struct sockaddr_in6));
	CHECK(memcmp(info->ai_dst_addr, make_addr("2001:db8::1", 7471),
		     sizeof(struct sockaddr_in6)) == 0);
	rdma_freeaddrinfo(info);
}

TEST(source_hint, "a source in the hints is copied")
{
	struct sockaddr *source = test_addr(0);
	struct rdma_addrinfo hints = {
		.ai_port_space = RDMA_PS_TCP,
		.ai_src_addr = source,
		.ai_src_len = sizeof(struct sockaddr_in),
	};
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(test_node(), "7471", &hints, &info));
	CHECK_EQ(info->ai_src_len, sizeof(struct sockaddr_in));
	CHECK(info->ai_src_addr != source);
	CHECK(memcmp(info->ai_src_addr, source, sizeof(struct sockaddr_in)) == 0);
	CHECK(info->ai_dst_addr);
	rdma_freeaddrinfo(info);
}

TEST(hints_only, "hints alone are copied")
{
	struct sockaddr *destination = test_addr(7471);
	struct rdma_addrinfo hints = {
		.ai_family = AF_INET,
		.ai_qp_type = IBV_QPT_RC,
		.ai_port_space = RDMA_PS_TCP,
		.ai_dst_addr = destination,
		.ai_dst_len = sizeof(struct sockaddr_in),
	};
	struct rdma_addrinfo *info;

	CHECK_OK(lookup(NULL, NULL, &hints, &info));
	CHECK_EQ(info->ai_family, AF_INET);
	CHECK_EQ(info->ai_qp_type, IBV_QPT_RC);
	CHECK_EQ(info->ai_port_space, RDMA_PS_TCP);
	CHECK(info->ai_dst_addr && info->ai_dst_addr != destination);
	CHECK(memcmp(info->ai_dst_addr, destination, sizeof(struct sockaddr_in)) == 0);
	rdma_freeaddrinfo(info);
}

TEST(unknown_service, "an unknown service name gives EAI_SERVICE")
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	CHECK_EQ(lookup("127.0.0.1", "no-such-service", &hints, &info), EAI_SERVICE);
}

TEST(ib_numeric, "111 AF_IB numeric host: service id of PS_IB and port, full mask")
{
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST | RAI_FAMILY,
		.ai_family = AF_IB,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *info;
	struct sockaddr_ib *ib;

	CHECK_OK(lookup("fe80::1", "5", &hints, &info));
	CHECK_EQ(info->ai_family, AF_IB);
	CHECK_EQ(info->ai_dst_len, sizeof(*ib));
	ib = (struct sockaddr_ib *)info->ai_dst_addr;
	CHECK_EQ(ib->sib_family, AF_IB);
	CHECK_EQ(ntohs(ib->sib_pkey), 0xffff);
	CHECK_EQ(be64toh(ib->sib_sid), 0x1060005);
	CHECK_EQ(ib->sib_sid_mask, ~0ULL);
	CHECK(memcmp(&ib->sib_addr, &((struct sockaddr_in6 *)make_addr("fe80::1", 0))->sin6_addr,
		     16) == 0);
	rdma_freeaddrinfo(info);
}

/* Names of this process only. */
static void private_hosts(const char *lines)
{
	FILE *file;

	private_mounts();
	/* Minimal systems lack the file, and only a file can be mounted over. */
	file = fopen("/etc/hosts", "a");
	CHECK(file);
	CHECK_OK(fclose(file));
	file = fopen("/tmp/capi-tests-hosts", "w");
	CHECK(file);
	CHECK(fputs(lines, file) >= 0);
	CHECK_OK(fclose(file));
	CHECK_OK(mount("/tmp/capi-tests-hosts", "/etc/hosts", NULL, MS_BIND, NULL));
}

TEST(all_results, "a name with two addresses gives both [fix]")
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	private_hosts("198.51.100.1 capi-two\n198.51.100.2 capi-two\n");
	CHECK_OK(lookup("capi-two", "7471", &hints, &info));
	CHECK(info->ai_dst_addr);
	CHECK(info->ai_next);
	CHECK(info->ai_next->ai_dst_addr);
	CHECK(memcmp(info->ai_dst_addr, info->ai_next->ai_dst_addr,
		     sizeof(struct sockaddr_in)) != 0);
	CHECK(!info->ai_next->ai_next);
	rdma_freeaddrinfo(info);
}

TEST(free_null, "freeaddrinfo(NULL)")
{
	rdma_freeaddrinfo(NULL);
}

TEST(no_leak, "1000 look-ups leak nothing", .timeout = 120)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	unsigned int descriptors = 0;
	struct rdma_addrinfo *info;
	size_t heap = 0;

	for (int i = 0; i < 1000; i++) {
		CHECK_OK(lookup(test_node(), "7471", &hints, &info));
		rdma_freeaddrinfo(info);
		if (i == 99) {
			heap = heap_in_use();
			descriptors = open_descriptors();
		}
	}
	CHECK(heap_in_use() < heap + 900 * 8);
	CHECK_EQ(open_descriptors(), descriptors);
}

/* ---- Resolution on an id, since RDMACM_1.4 ------------------------------- */

static void require_write_cm_event(void)
{
	library_symbol("rdma_write_cm_event");
	require_kernel(6, 17);
}

TEST(user_event, "112 write_cm_event USER: event 18 with status and argument")
{
	require_write_cm_event();
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, -5,
				0x1122334455667788));
	event = next_event(channel, EVENT_TIMEOUT);
	CHECK_EQ(event->event, EVENT_USER);
	CHECK(event->id == id);
	CHECK_EQ(event->status, -5);
	CHECK_EQ(event_argument(event), 0x1122334455667788);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(user_event_old, "112 write_cm_event on an old kernel gives EINVAL")
{
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	int result;

	errno = 0;
	result = write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, 0, 0);
	if (result == 0)
		SKIP("the kernel has the command");
	CHECK_EQ(errno, EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(other_event, "113 write_cm_event of another event gives EINVAL")
{
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	for (int event = -1; event < 24; event++) {
		if (event == EVENT_USER)
			continue;
		CHECK_ERRNO(write_cm_event(id, (enum rdma_cm_event_type)event, 0, 0), EINVAL);
	}
	expect_no_event(channel, 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_dns, "114 resolve_addrinfo: event 16, query 0, then ENOENT")
{
	require_write_cm_event();
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;

	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(query_addrinfo(id, &info));
	CHECK(info);
	CHECK(memcmp(info->ai_dst_addr, test_addr(7471), sizeof(struct sockaddr_in)) == 0);
	rdma_freeaddrinfo(info);
	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	/* The id is free for the next resolution. */
	CHECK_OK(resolve_addrinfo(id, test_node(), "7472", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	/* The result that nobody asked for goes with the id. */
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_dns_synchronous, "114 synchronous resolve_addrinfo")
{
	require_write_cm_event();
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;

	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK(id->event);
	CHECK_EQ(id->event->event, EVENT_ADDRINFO_RESOLVED);
	CHECK_OK(query_addrinfo(id, &info));
	CHECK(info->ai_dst_addr);
	rdma_freeaddrinfo(info);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(resolve_dns_old, "114 resolve_addrinfo on an old kernel: only synchronously [fix]")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_event_channel *channel;
	struct rdma_addrinfo *info = NULL;
	struct rdma_cm_id *id;

	if (kernel_at_least(6, 17))
		SKIP("the kernel is not old");
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_ERRNO(resolve_addrinfo(id, test_node(), "7471", &hints), EOPNOTSUPP);
	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	CHECK_OK(rdma_migrate_id(id, NULL));
	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK_OK(query_addrinfo(id, &info));
	CHECK(info->ai_dst_addr);
	rdma_freeaddrinfo(info);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_twice, "115 resolve_addrinfo while one is under way gives EBUSY")
{
	require_write_cm_event();
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };

	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK_ERRNO(resolve_addrinfo(id, test_node(), "7471", &hints), EBUSY);
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_unknown, "116 resolve_addrinfo of an unknown host: ENOENT or event 17 [fix]",
     .timeout = 60)
{
	require_write_cm_event();
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *info;

	errno = 0;
	if (resolve_addrinfo(id, "no-such-host.invalid", "7471", &hints)) {
		CHECK_EQ(errno, ENOENT);
	} else {
		struct rdma_cm_event *event = next_event(channel, EVENT_TIMEOUT);

		CHECK_EQ(event->event, EVENT_ADDRINFO_ERROR);
		CHECK(event->status != 0);
		CHECK_OK(rdma_ack_cm_event(event));
	}
	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	/* The id is free for the next resolution. */
	CHECK_OK(resolve_addrinfo(id, test_node(), "7472", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_destroy, "destroy_id during resolve_addrinfo")
{
	require_write_cm_event();
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };

	for (int i = 0; i < 50; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
		CHECK_OK(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(channel);
}

TEST(resolve_arguments, "resolve_addrinfo and query_addrinfo of NULL give EINVAL")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo *info;

	CHECK_ERRNO(resolve_addrinfo(NULL, "127.0.0.1", "7471", NULL), EINVAL);
	CHECK_ERRNO(query_addrinfo(NULL, &info), EINVAL);
	CHECK_ERRNO(query_addrinfo(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_service, "resolve_addrinfo of a service record: with a node or a name gives ENOTSUP")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };
	struct rdma_addrinfo both = { .ai_flags = FLAG_RAI_SA | FLAG_RAI_DNS };

	CHECK_ERRNO(resolve_addrinfo(id, "127.0.0.1", "5", &hints), ENOTSUP);
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &both), ENOTSUP);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_no_service, "resolve_addrinfo of a service record: errno without service, unbound, on RoCE [fix]")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };

	CHECK_ERRNO(resolve_addrinfo(id, NULL, NULL, &hints), EINVAL);
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &hints), EINVAL);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &hints), EOPNOTSUPP);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}
