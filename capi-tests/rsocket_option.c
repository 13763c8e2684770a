/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stream sockets over RDMA: options, flags, names, creation. */
#include "rsocket_pair.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

enum { PORT = 7641, TCP_OPEN = 1, TCP_LISTENS = 10 };

TEST(no_device, "2 [fix] without a device, streams are ENODEV", .timeout = 60,
     .cleanup = rxe_restore)
{
	private_devices(0, 0666);
	CHECK_ERRNO(rsocket(AF_INET, SOCK_STREAM, 0), ENODEV);
	CHECK_ERRNO(rsocket(AF_INET6, SOCK_STREAM, 0), ENODEV);
}

TEST(too_late, "6 sizes cannot be set once connected")
{
	struct ends e = make_ends(test_addr(PORT));
	int size = 100;

	CHECK_ERRNO(rsetsockopt(e.client, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size)), EINVAL);
	CHECK_ERRNO(rsetsockopt(e.server, SOL_RDMA, RDMA_INLINE, &size, sizeof(size)), EINVAL);
	close_ends(&e);
}

TEST(mappings, "7 the number of mappings is rounded as on the wire")
{
	const int given[] = { 1, 128, 129, 255, 256, 300, 1000, 32767 };
	const int kept[] = { 1, 128, 128, 128, 256, 256, 768, 32512 };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
		set_option(fd, SOL_RDMA, RDMA_IOMAPSIZE, given[i]);
		CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_IOMAPSIZE), kept[i]);
	}
	CHECK_OK(rclose(fd));
}

static void exchange(struct ends *e, size_t length)
{
	static char out[4096], in[4096];

	memset(out, (int)length, length);
	CHECK_EQ(rsend(e->client, out, length, 0), (ssize_t)length);
	CHECK_EQ(rrecv(e->server, in, length, MSG_WAITALL), (ssize_t)length);
	CHECK_OK(memcmp(in, out, length));
	CHECK_EQ(rsend(e->server, out, length, 0), (ssize_t)length);
	CHECK_EQ(rrecv(e->client, in, length, MSG_WAITALL), (ssize_t)length);
	CHECK_OK(memcmp(in, out, length));
}

TEST(queues, "8 39 odd sizes of queues, buffers and inline data work", .timeout = 60)
{
	const struct {
		int queue, buffer, inlined;
	} sizes[] = { { 3, 4096, 0 }, { 16, 100, 16 }, { 384, 1 << 20, 256 }, { 17, 5001, 33 } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = rsocket(AF_INET, SOCK_STREAM, 0);
		struct ends e;

		set_option(fd, SOL_RDMA, RDMA_RQSIZE, 1000000);
		CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_RQSIZE), 65534);
		set_option(fd, SOL_RDMA, RDMA_RQSIZE, sizes[i].queue);
		set_option(fd, SOL_RDMA, RDMA_SQSIZE, sizes[i].queue);
		set_option(fd, SOL_RDMA, RDMA_INLINE, sizes[i].inlined);
		set_option(fd, SOL_SOCKET, SO_SNDBUF, sizes[i].buffer);
		if (sizes[i].buffer >= 4096)
			set_option(fd, SOL_SOCKET, SO_RCVBUF, sizes[i].buffer);
		e = join(fd, test_addr(PORT));
		for (size_t length = 1; length <= 300; length += 13)
			exchange(&e, length);
		exchange(&e, 4000);
		close_ends(&e);
	}
}

TEST(inherit, "40 [fix] a connection takes its listener's sizes and is blocking")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), client, server;

	set_option(listener, SOL_RDMA, RDMA_SQSIZE, 100);
	set_option(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
	CHECK_OK(rbind(listener, addr, addr_length(addr)));
	CHECK_OK(rlisten(listener, 4));
	CHECK_OK(rfcntl(listener, F_SETFL, O_NONBLOCK));
	client = connect_to(addr);
	CHECK(poll_one(listener, POLLIN, 10000) & POLLIN);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_EQ(option_of(server, SOL_RDMA, RDMA_SQSIZE), 100);
	CHECK_EQ(option_of(server, SOL_SOCKET, SO_KEEPALIVE), 1);
	CHECK_EQ(rfcntl(server, F_GETFL, 0) & O_NONBLOCK, 0);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

TEST(keep_idle, "9 the keep-alive time is positive")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), zero = 0;

	CHECK_ERRNO(rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &zero, sizeof(zero)), EINVAL);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
	CHECK_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 5);
	CHECK_OK(rclose(fd));
}

static unsigned char tcp_state(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof(info);

	CHECK_OK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	CHECK(length > 0 && length <= sizeof(info));
	return info.tcpi_state;
}

TEST(info, "10 [fix] TCP_INFO tells the state")
{
	int size;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct ends e;

	size = option_of(fd, IPPROTO_TCP, TCP_MAXSEG);
	CHECK_EQ(size, 2048);
	e = join(fd, test_addr(PORT));
	CHECK_EQ(tcp_state(e.client), TCP_OPEN);
	CHECK_EQ(tcp_state(e.server), TCP_OPEN);
	CHECK_EQ(tcp_state(e.listener), TCP_LISTENS);
	size = option_of(fd, IPPROTO_TCP, TCP_MAXSEG);
	CHECK(size >= 256 && size <= 4096 && (size & (size - 1)) == 0);
	close_ends(&e);
}

TEST(short_value, "11 [fix] an option does not overrun a short buffer")
{
	unsigned char value[8];
	socklen_t length = 2;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	memset(value, 0xaa, sizeof(value));
	CHECK_OK(rgetsockopt(fd, SOL_SOCKET, SO_SNDBUF, value, &length));
	CHECK_EQ(length, 2);
	for (int i = 2; i < 8; i++)
		CHECK_EQ(value[i], 0xaa);
	length = 2;
	CHECK_OK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, value, &length));
	for (int i = 2; i < 8; i++)
		CHECK_EQ(value[i], 0xaa);
	CHECK_OK(rclose(fd));
}

TEST(kind, "12 14 [fix] a socket tells its kind and its access mode")
{
	int fd = listen_on(test_addr(PORT), 1);

	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_EQ(rfcntl(fd, F_GETFL, 0), O_NONBLOCK | O_RDWR);
	CHECK_OK(rclose(fd));
}

TEST(plain_close, "close(2) of a socket does the next one no harm [race]")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), next;

	CHECK(fd >= 0);
	CHECK_OK(close(fd));
	next = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(next, fd);
	CHECK(fcntl(next, F_GETFD) >= 0);
	CHECK_OK(rbind(next, test_addr(PORT), addr_length(test_addr(PORT))));
	CHECK_OK(rclose(next));
}

TEST(limit, "13 [fix] SO_RCVTIMEO ends an idle receive")
{
	struct ends e = make_ends(test_addr(PORT));
	struct timeval limit = { .tv_usec = 100000 };
	uint64_t start = now_ms();
	char byte;

	CHECK_OK(rsetsockopt(e.client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK_ERRNO((int)rrecv(e.client, &byte, 1, 0), EAGAIN);
	CHECK(now_ms() - start >= 99);
	close_ends(&e);
}

TEST(nonblocking, "18 22 [fix] SOCK_NONBLOCK works; connecting twice is told apart")
{
	struct sockaddr *addr = test_addr(PORT), *nobody = silent_addr(PORT);
	int listener = listen_on(addr, 4), server, fd;

	/* It does not connect between two calls. */
	fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_ERRNO(rconnect(fd, nobody, addr_length(nobody)), EINPROGRESS);
	CHECK_ERRNO(rconnect(fd, nobody, addr_length(nobody)), EALREADY);
	CHECK_OK(rclose(fd));
	fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK_EQ(rfcntl(fd, F_GETFD, 0), FD_CLOEXEC);
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	CHECK_EQ(poll_one(fd, POLLOUT, 10000), POLLOUT);
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EISCONN);
	CHECK_ERRNO(rconnect(listener, addr, addr_length(addr)), EINVAL);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

TEST(no_route, "20 an address without a route is ENETUNREACH")
{
	struct sockaddr *addr = make_addr("203.0.113.1", PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), ENETUNREACH);
	CHECK_OK(rclose(fd));
}

/*
 * Appears on the link while somebody connects to it: an address of this host to
 * which no local route leads, so that the kernel looks for a neighbour. The device
 * knows it before, as it learns of a new address only some time after the kernel,
 * and who connects in between fails.
 */
#define LATE "10.99.0.77"

static void remove_late(void)
{
	run_command("ip neigh del " LATE " dev %s 2>/dev/null; "
		    "ip addr del " LATE "/24 dev %s 2>/dev/null || true", test_netdev(),
		    test_netdev());
}

static void *connect_late(void *argument)
{
	struct sockaddr *addr = make_addr(LATE, PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	uint64_t start = now_ms();

	(void)argument;
	if (rconnect(fd, addr, addr_length(addr)))
		FAIL("rconnect: %s after %llu ms", strerror(errno),
		     (unsigned long long)(now_ms() - start));
	CHECK_OK(rclose(fd));
	return NULL;
}

TEST(late_host, "19 [fix] a blocking connect tries longer than a second to find its host",
     .timeout = 60, .cleanup = remove_late)
{
	int listener = listen_on(make_addr("0.0.0.0", PORT), 4), server;
	pthread_t thread;

	run_command("ip addr add " LATE "/24 dev %s", test_netdev());
	wait_for_gid(test_device(), make_addr(LATE, 0));
	run_command("ip route del local " LATE " dev %s table local", test_netdev());
	CHECK_OK(pthread_create(&thread, NULL, connect_late, NULL));
	/* The original gives up now. */
	sleep(2);
	/*
	 * As if the neighbour had answered. A route instead would leave the neighbour
	 * to fail, which the kernel reports as UNREACHABLE to who has just found
	 * another way (since Linux 6.0).
	 */
	run_command("ip neigh replace " LATE " lladdr $(cat /sys/class/net/%s/address) "
		    "nud permanent dev %s", test_netdev(), test_netdev());
	CHECK_OK(pthread_join(thread, NULL));
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

TEST(no_listener, "24 [fix] raccept on what does not listen is EINVAL")
{
	struct ends e = make_ends(test_addr(PORT));

	CHECK_ERRNO(raccept(e.client, NULL, NULL), EINVAL);
	close_ends(&e);
}

TEST(names, "[fix] names are those of Linux")
{
	struct ends e = make_ends(test_addr(PORT));
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERRNO(rgetpeername(fd, (struct sockaddr *)&name, &length), ENOTCONN);
	CHECK_OK(rgetsockname(fd, (struct sockaddr *)&name, &length));
	CHECK_EQ(name.ss_family, AF_INET);
	CHECK_OK(rclose(fd));
	length = sizeof(name);
	CHECK_OK(rgetpeername(e.client, (struct sockaddr *)&name, &length));
	CHECK_EQ(length, sizeof(struct sockaddr_in));
	CHECK_OK(memcmp(&name, test_addr(PORT), 8));
	close_ends(&e);
}

/* What has no InfiniBand ports refuses their addresses, and nothing is left. */
TEST(infiniband, "29 AF_IB addresses of a RoCE port are ENODEV")
{
	struct sockaddr_ib addr = { .sib_family = AF_IB };
	int fd = rsocket(AF_IB, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	/* The GID of an IPv4 address. */
	addr.sib_addr.sib_addr32[2] = htonl(0xffff);
	addr.sib_addr.sib_addr32[3] = ((struct sockaddr_in *)test_addr(0))->sin_addr.s_addr;
	addr.sib_sid = htobe64(RDMA_IB_IP_PS_TCP | PORT);
	addr.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK | 0xffff);
	CHECK_ERRNO(rbind(fd, (struct sockaddr *)&addr, sizeof(addr)), ENODEV);
	CHECK_OK(rclose(fd));
	for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
		fd = rsocket(AF_IB, SOCK_STREAM, 0);
		CHECK_OK(rfcntl(fd, F_SETFL, flags));
		CHECK_ERRNO(rconnect(fd, (struct sockaddr *)&addr, sizeof(addr)), ENODEV);
		CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ENODEV);
		CHECK_OK(rclose(fd));
	}
	/* No port, so no device is asked for. */
	memset(&addr.sib_addr, 0, sizeof(addr.sib_addr));
	fd = rsocket(AF_IB, SOCK_STREAM, 0);
	CHECK_OK(rbind(fd, (struct sockaddr *)&addr, sizeof(addr)));
	CHECK_OK(rlisten(fd, 1));
	CHECK_OK(rclose(fd));
	CHECK_ERRNO(rsocket(AF_IB, SOCK_DGRAM, 0), EAFNOSUPPORT);
}

TEST(six, "streams over IPv6")
{
	struct ends e = make_ends(test_addr6(PORT));

	exchange(&e, 1000);
	close_ends(&e);
}

TEST(mapped, "[fix] IPv4 mapped into IPv6")
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) }, name;
	struct sockaddr_in *plain = (struct sockaddr_in *)test_addr(PORT);
	socklen_t length = sizeof(name);
	struct ends e;

	addr.sin6_addr.s6_addr[10] = addr.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&addr.sin6_addr.s6_addr[12], &plain->sin_addr, 4);
	e = make_ends((struct sockaddr *)&addr);
	exchange(&e, 1000);
	CHECK_OK(rgetpeername(e.client, (struct sockaddr *)&name, &length));
	CHECK_EQ(name.sin6_family, AF_INET6);
	CHECK_EQ(ntohs(name.sin6_port), PORT);
	CHECK_OK(memcmp(&name.sin6_addr, &addr.sin6_addr, 16));
	close_ends(&e);
}

TEST(route, "RDMA_ROUTE tells the path records of a connection")
{
	struct ends e = make_ends(test_addr(PORT));
	unsigned char record[72 * 2];
	socklen_t length = sizeof(record);

	CHECK_OK(rgetsockopt(e.client, SOL_RDMA, RDMA_ROUTE, record, &length));
	CHECK_EQ(length, 72);
	/* The destination GID of RoCE is the IPv4 address, mapped. */
	CHECK_EQ(record[8 + 8 + 10], 0xff);
	CHECK_OK(memcmp(&record[8 + 8 + 12],
			&((struct sockaddr_in *)test_addr(PORT))->sin_addr, 4));
	length = 8;
	CHECK_ERRNO(rgetsockopt(e.client, SOL_RDMA, RDMA_ROUTE, record, &length), EINVAL);
	close_ends(&e);
}

TEST(unknown, "unknown options are ENOTSUP")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), value = 1;
	socklen_t length = sizeof(value);

	CHECK_ERRNO(rsetsockopt(fd, SOL_SOCKET, SO_BROADCAST, &value, sizeof(value)), ENOTSUP);
	CHECK_ERRNO(rsetsockopt(fd, 12345, 1, &value, sizeof(value)), ENOTSUP);
	CHECK_ERRNO(rgetsockopt(fd, 12345, 1, &value, &length), ENOTSUP);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, 99, &value, sizeof(value)), ENOTSUP);
	CHECK_OK(rclose(fd));
}

TEST(high, "[fix] descriptors above 65535 work", .timeout = 60)
{
	struct rlimit limit = { 70000, 70000 };
	int fd = -1;

	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	while (fd < 65540) {
		fd = open("/dev/null", O_RDONLY);
		CHECK(fd >= 0);
	}
	struct ends e = make_ends(test_addr(PORT));

	CHECK(e.client > 65535 && e.server > 65535);
	exchange(&e, 100);
	CHECK(poll_one(e.client, POLLOUT, 1000) & POLLOUT);
	close_ends(&e);
}

static void in_child(void *argument)
{
	struct ends *e = argument;
	char byte = 0;

	/* The parent's are the parent's alone. */
	CHECK_ERRNO((int)rsend(e->client, &byte, 1, MSG_NOSIGNAL), EBADF);
	CHECK_ERRNO((int)rrecv(e->client, &byte, 1, MSG_DONTWAIT), EBADF);
	CHECK_OK(rclose(e->client));
	CHECK_OK(rclose(e->server));
	CHECK_OK(rclose(e->listener));
}

TEST(forked, "98 [fix] a forked child sees its parent's sockets as closed", .timeout = 60)
{
	struct ends e = make_ends(test_addr(PORT));

	exchange(&e, 100);
	run_in_child(in_child, &e);
	close_ends(&e);
}
