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

/* The addresses that libc knows for the name, in its order, one chain each. */
static void expect_all(const char *node, int family)
{
	struct addrinfo question = {
		.ai_family = family,
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
	};
	struct rdma_addrinfo hints = { .ai_family = family, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info, *ours;
	struct addrinfo *list, *theirs;

	CHECK_OK(getaddrinfo(node, "7471", &question, &list));
	CHECK_OK(lookup(node, "7471", &hints, &info));
	ours = info;
	for (theirs = list; theirs; theirs = theirs->ai_next) {
		CHECK(ours);
		CHECK_EQ(ours->ai_family, theirs->ai_family);
		CHECK_EQ(ours->ai_dst_len, theirs->ai_addrlen);
		CHECK(memcmp(ours->ai_dst_addr, theirs->ai_addr, theirs->ai_addrlen) == 0);
		ours = ours->ai_next;
	}
	CHECK(!ours);
	freeaddrinfo(list);
	rdma_freeaddrinfo(info);
}

TEST(all_results, "all addresses of a name, in libc's order [fix]")
{
	/* On several networks, so that libc has something to sort. */
	private_hosts("198.51.100.2 capi-many\n10.99.0.7 capi-many\n127.0.0.5 capi-many\n"
		      "2001:db8::5 capi-many\n198.51.100.1 capi-many\nfd99::7 capi-many\n");
	expect_all("capi-many", AF_INET);
	expect_all("capi-many", AF_INET6);
	expect_all("capi-many", AF_UNSPEC);
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
