/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Datagram sockets over RDMA. Where POSIX says what happens, a case first runs
 * on the kernel's UDP sockets, which therefore are the reference, and then on
 * those of the library. The original cannot send datagrams over RoCE.
 */
#include "harness.h"
#include "rsocket_side.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/rsocket.h>

enum { PORT = 7631, WAIT = 10000, MOST4 = 2040, MOST6 = 2024 };

/* The calls of one kind of socket. */
struct calls {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *,
			  socklen_t);
	ssize_t (*sendmsg)(int, const struct msghdr *, int);
	ssize_t (*writev)(int, const struct iovec *, int);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(int, struct msghdr *, int);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*getpeername)(int, struct sockaddr *, socklen_t *);
	int (*getsockname)(int, struct sockaddr *, socklen_t *);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*listen)(int, int);
	int (*accept)(int, struct sockaddr *, socklen_t *);
	int (*fcntl)(int, int, ...);
	int (*close)(int);
};

/* The library's prototypes differ from POSIX in qualifiers only. */
static int kernel_bind(int fd, const struct sockaddr *addr, socklen_t length)
{
	return bind(fd, addr, length);
}

static int kernel_connect(int fd, const struct sockaddr *addr, socklen_t length)
{
	return connect(fd, addr, length);
}

static ssize_t kernel_sendto(int fd, const void *data, size_t length, int flags,
			     const struct sockaddr *addr, socklen_t addrlen)
{
	return sendto(fd, data, length, flags, addr, addrlen);
}

static ssize_t kernel_recvfrom(int fd, void *data, size_t length, int flags,
			       struct sockaddr *addr, socklen_t *addrlen)
{
	return recvfrom(fd, data, length, flags, addr, addrlen);
}

static int kernel_peer(int fd, struct sockaddr *addr, socklen_t *length)
{
	return getpeername(fd, addr, length);
}

static int kernel_name(int fd, struct sockaddr *addr, socklen_t *length)
{
	return getsockname(fd, addr, length);
}

static int kernel_accept(int fd, struct sockaddr *addr, socklen_t *length)
{
	return accept(fd, addr, length);
}

static const struct calls kernel = {
	socket,	     kernel_bind, kernel_connect,  send,    kernel_sendto, sendmsg,
	writev,	     recv,	  kernel_recvfrom, recvmsg, poll,	   kernel_peer,
	kernel_name, getsockopt,  setsockopt,	   listen,  kernel_accept, fcntl,
	close,
};

static const struct calls rdma = {
	rsocket,      rbind,	   rconnect,	rsend,	  rsendto, rsendmsg,
	rwritev,      rrecv,	   rrecvfrom,	rrecvmsg, rpoll,   rgetpeername,
	rgetsockname, rgetsockopt, rsetsockopt, rlisten,  raccept, rfcntl,
	rclose,
};

/* Runs a case on the kernel's sockets and then on the library's. */
static void on_both(void (*test)(const struct calls *))
{
	test(&kernel);
	test(&rdma);
}

static int bound(const struct calls *c, const struct sockaddr *addr)
{
	int fd = c->socket(addr->sa_family, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(c->bind(fd, addr, addr_length(addr)));
	return fd;
}

static short ready(const struct calls *c, int fd, short events, int timeout)
{
	struct pollfd entry = { .fd = fd, .events = events };

	CHECK(c->poll(&entry, 1, timeout) >= 0);
	return entry.revents;
}

static ssize_t receive(const struct calls *c, int fd, void *data, size_t length,
		       struct sockaddr_storage *from)
{
	socklen_t size = sizeof(*from);

	CHECK(ready(c, fd, POLLIN, WAIT) & POLLIN);
	return c->recvfrom(fd, data, length, 0, (struct sockaddr *)from, &size);
}

static in_port_t port_of(const struct sockaddr_storage *addr)
{
	return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

/* A datagram there, received and sent back, compared. */
static void echo(const struct calls *c, int client, int server,
		 const struct sockaddr *addr, size_t length)
{
	unsigned char out[MOST4 + 1], in[MOST4 + 8];
	struct sockaddr_storage from;

	for (size_t i = 0; i < length; i++)
		out[i] = (unsigned char)(i * 7 + length);
	CHECK_EQ(c->sendto(client, out, length, 0, addr, addr_length(addr)),
		 (ssize_t)length);
	CHECK_EQ(receive(c, server, in, sizeof(in), &from), (ssize_t)length);
	CHECK_OK(memcmp(in, out, length));
	CHECK_EQ(c->sendto(server, in, length, 0, (struct sockaddr *)&from,
			   addr_length((struct sockaddr *)&from)),
		 (ssize_t)length);
	memset(in, 0, sizeof(in));
	CHECK_EQ(receive(c, client, in, sizeof(in), &from), (ssize_t)length);
	CHECK_OK(memcmp(in, out, length));
	CHECK_EQ(from.ss_family, addr->sa_family);
	CHECK_EQ(port_of(&from), PORT);
}

static void echoes(const struct calls *c, const struct sockaddr *addr, size_t most)
{
	const size_t sizes[] = { 1, 2, 64, 500, 1000, 1016, 1017, 1500, most - 1, most, 3 };
	int server = bound(c, addr);
	int client = c->socket(addr->sa_family, SOCK_DGRAM, 0);

	CHECK(client >= 0);
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			echo(c, client, server, addr, sizes[i]);
	CHECK_OK(c->close(client));
	CHECK_OK(c->close(server));
}

TEST(echo4, "81 87 [fix] datagrams of all sizes arrive over IPv4", .timeout = 60)
{
	echoes(&kernel, test_addr(PORT), MOST4);
	echoes(&rdma, test_addr(PORT), MOST4);
}

TEST(echo6, "81 87 [fix] datagrams of all sizes arrive over IPv6", .timeout = 60)
{
	echoes(&kernel, test_addr6(PORT), MOST6);
	echoes(&rdma, test_addr6(PORT), MOST6);
}

static void mapped(const struct calls *c)
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	struct sockaddr_in *plain = (struct sockaddr_in *)test_addr(PORT);
	struct sockaddr_storage from;
	int server, client;
	char byte = 0;

	addr.sin6_addr.s6_addr[10] = addr.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&addr.sin6_addr.s6_addr[12], &plain->sin_addr, 4);
	server = bound(c, (struct sockaddr *)&addr);
	client = c->socket(AF_INET, SOCK_DGRAM, 0);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(c->sendto(client, "m", 1, 0, (struct sockaddr *)plain,
				   sizeof(*plain)), 1);
		CHECK_EQ(receive(c, server, &byte, 1, &from), 1);
		CHECK_EQ(from.ss_family, AF_INET6);
		CHECK(IN6_IS_ADDR_V4MAPPED(&((struct sockaddr_in6 *)&from)->sin6_addr));
		CHECK_EQ(c->sendto(server, "n", 1, 0, (struct sockaddr *)&from,
				   sizeof(addr)), 1);
		CHECK_EQ(receive(c, client, &byte, 1, &from), 1);
		CHECK_EQ(from.ss_family, AF_INET);
	}
	CHECK_OK(c->close(client));
	CHECK_OK(c->close(server));
}

TEST(mapped_case, "[fix] IPv4 mapped into IPv6 reaches IPv4 sockets")
{
	on_both(mapped);
}

TEST(too_long, "82 [fix] a datagram that is too long is EMSGSIZE, others follow")
{
	static char data[70000];
	struct sockaddr *addr = test_addr(PORT);
	int server = bound(&rdma, addr), client = rsocket(AF_INET, SOCK_DGRAM, 0);

	for (int i = 0; i < 3; i++) {
		CHECK_ERRNO((int)rsendto(client, data, MOST4 + 1, 0, addr, addr_length(addr)),
			    EMSGSIZE);
		CHECK_ERRNO((int)rsendto(client, data, sizeof(data), 0, addr,
					 addr_length(addr)), EMSGSIZE);
		echo(&rdma, client, server, addr, 100);
	}
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
}

static void boundaries(const struct calls *c)
{
	struct sockaddr *addr = test_addr(PORT);
	int server = bound(c, addr), client = c->socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_storage from;
	char data[8] = "";

	for (int round = 0; round < 2; round++) {
		CHECK_EQ(c->sendto(client, "abcdef", 6, 0, addr, addr_length(addr)), 6);
		CHECK(ready(c, server, POLLIN, WAIT) & POLLIN);
		CHECK_EQ(c->recv(server, data, 8, MSG_PEEK), 6);
		CHECK_EQ(c->recv(server, data, 2, MSG_PEEK | MSG_TRUNC), 6);
		CHECK_EQ(c->recv(server, data, 2, MSG_PEEK), 2);
		CHECK_EQ(c->recv(server, data, 4, 0), 4);
		CHECK_OK(memcmp(data, "abcd", 4));
		CHECK_ERRNO((int)c->recv(server, data, 8, MSG_DONTWAIT), EAGAIN);
		CHECK_EQ(c->sendto(client, "", 0, 0, addr, addr_length(addr)), 0);
		CHECK_EQ(receive(c, server, data, 8, &from), 0);
		CHECK_EQ(c->sendto(client, "xy", 2, 0, addr, addr_length(addr)), 2);
		CHECK(ready(c, server, POLLIN, WAIT) & POLLIN);
		CHECK_EQ(c->recv(server, data, 0, 0), 0);
		CHECK_ERRNO((int)c->recv(server, data, 8, MSG_DONTWAIT), EAGAIN);
		CHECK_EQ(c->sendto(server, "b", 1, 0, (struct sockaddr *)&from,
				   sizeof(struct sockaddr_in)), 1);
		CHECK_EQ(receive(c, client, data, 8, &from), 1);
	}
	CHECK_OK(c->close(client));
	CHECK_OK(c->close(server));
}

TEST(boundaries_case, "[fix] each receive takes one datagram; MSG_PEEK and MSG_TRUNC")
{
	on_both(boundaries);
}

static void messages(const struct calls *c)
{
	struct sockaddr *addr = test_addr(PORT);
	int server = bound(c, addr), client = c->socket(AF_INET, SOCK_DGRAM, 0);
	char a[2], b[3];
	struct iovec out[] = { { "ab", 2 }, { "", 0 }, { "cdefg", 5 } };
	struct iovec in[] = { { a, sizeof(a) }, { b, sizeof(b) } };
	struct sockaddr_storage from;
	struct msghdr send = { .msg_name = addr,
			       .msg_namelen = addr_length(addr),
			       .msg_iov = out,
			       .msg_iovlen = 3 };
	struct msghdr recv = { .msg_name = &from,
			       .msg_namelen = sizeof(from),
			       .msg_iov = in,
			       .msg_iovlen = 2 };

	CHECK_EQ(c->sendmsg(client, &send, 0), 7);
	CHECK(ready(c, server, POLLIN, WAIT) & POLLIN);
	CHECK_EQ(c->recvmsg(server, &recv, 0), 5);
	CHECK_OK(memcmp(a, "ab", 2) || memcmp(b, "cde", 3));
	CHECK(recv.msg_flags & MSG_TRUNC);
	CHECK_EQ(recv.msg_namelen, sizeof(struct sockaddr_in));
	CHECK_EQ(from.ss_family, AF_INET);
	CHECK_OK(c->connect(client, addr, addr_length(addr)));
	CHECK_EQ(c->writev(client, out, 3), 7);
	CHECK(ready(c, server, POLLIN, WAIT) & POLLIN);
	CHECK_EQ(c->recvmsg(server, &recv, MSG_TRUNC), 7);
	CHECK_OK(c->close(client));
	CHECK_OK(c->close(server));
}

TEST(messages_case, "[fix] messages of several buffers, with names")
{
	on_both(messages);
}

static void connected(const struct calls *c)
{
	struct sockaddr *addr = test_addr(PORT), *other_addr = test_addr(PORT + 1);
	int server = bound(c, addr), other = bound(c, other_addr);
	int client = c->socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in name;
	struct sockaddr_storage from;
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	socklen_t length = sizeof(name);
	char byte;

	CHECK_ERRNO((int)c->send(client, "x", 1, 0), EDESTADDRREQ);
	CHECK_ERRNO(c->getpeername(client, (struct sockaddr *)&name, &length), ENOTCONN);
	CHECK_OK(c->connect(client, addr, addr_length(addr)));
	CHECK_OK(c->getpeername(client, (struct sockaddr *)&name, &length));
	CHECK_EQ(ntohs(name.sin_port), PORT);
	CHECK_OK(c->getsockname(client, (struct sockaddr *)&name, &length));
	CHECK_EQ(name.sin_addr.s_addr, ((struct sockaddr_in *)addr)->sin_addr.s_addr);
	for (int round = 0; round < 5; round++) {
		CHECK_EQ(c->send(client, "1", 1, 0), 1);
		CHECK_EQ(receive(c, server, &byte, 1, &from), 1);
		CHECK_EQ(port_of(&from), ntohs(name.sin_port));
		/* One that is not its peer, then its peer. */
		CHECK_EQ(c->sendto(other, "2", 1, 0, (struct sockaddr *)&name, length), 1);
		CHECK_EQ(c->sendto(server, "3", 1, 0, (struct sockaddr *)&name, length), 1);
		CHECK_EQ(receive(c, client, &byte, 1, &from), 1);
		CHECK_EQ(byte, '3');
	}
	CHECK_OK(c->connect(client, &nobody, sizeof(nobody)));
	CHECK_ERRNO((int)c->send(client, "x", 1, 0), EDESTADDRREQ);
	CHECK_OK(c->close(client));
	CHECK_OK(c->close(other));
	CHECK_OK(c->close(server));
}

TEST(connected_case, "[fix] a connected socket knows its peer and hears no others")
{
	on_both(connected);
}

static void refused(const struct calls *c)
{
	struct sockaddr *addr = test_addr(PORT + 5);
	int fd = c->socket(AF_INET, SOCK_DGRAM, 0), error = 0;
	socklen_t length = sizeof(error);

	CHECK_OK(c->connect(fd, addr, addr_length(addr)));
	CHECK_EQ(c->send(fd, "x", 1, 0), 1);
	CHECK(ready(c, fd, POLLIN, WAIT) & POLLERR);
	CHECK_OK(c->getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	CHECK_EQ(error, ECONNREFUSED);
	CHECK_OK(c->close(fd));
}

TEST(refused_case, "[fix] a connected socket is told that nobody listens")
{
	on_both(refused);
}

static void streams_only(const struct calls *c)
{
	int fd = bound(c, test_addr(PORT));

	CHECK_ERRNO(c->listen(fd, 1), EOPNOTSUPP);
	CHECK_ERRNO(c->accept(fd, NULL, NULL), EOPNOTSUPP);
	CHECK_OK(c->close(fd));
}

TEST(streams_case, "[fix] what streams do is EOPNOTSUPP")
{
	char page[16];
	int fd;

	on_both(streams_only);
	fd = bound(&rdma, test_addr(PORT));
	CHECK_ERRNO((int)riomap(fd, page, sizeof(page), PROT_NONE, 0, -1), EOPNOTSUPP);
	CHECK_ERRNO((int)riowrite(fd, page, sizeof(page), 0, 0), EOPNOTSUPP);
	CHECK_OK(rclose(fd));
}

static void waiting(const struct calls *c)
{
	struct timeval limit = { .tv_usec = 100000 };
	int fd = bound(c, test_addr(PORT));
	uint64_t start = now_ms();
	char byte;

	CHECK_OK(c->setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK_ERRNO((int)c->recv(fd, &byte, 1, 0), EAGAIN);
	/* The kernel's sockets count whole ticks, the one that runs included. */
	if (c == &rdma)
		CHECK(now_ms() - start >= 99);
	CHECK_OK(c->fcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_EQ(c->fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDWR);
	CHECK_ERRNO((int)c->recv(fd, &byte, 1, 0), EAGAIN);
	start = now_ms();
	CHECK_EQ(ready(c, fd, POLLIN, 100), 0);
	CHECK(now_ms() - start >= 99);
	CHECK_EQ(ready(c, fd, POLLOUT, 0), POLLOUT);
	CHECK_OK(c->close(fd));
}

TEST(waiting_case, "13 14 60 [fix] waiting ends in time")
{
	on_both(waiting);
}

static int number(const struct calls *c, int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	CHECK_OK(c->getsockopt(fd, level, name, &value, &length));
	CHECK_EQ(length, sizeof(value));
	return value;
}

static void kinds(const struct calls *c)
{
	int fd = c->socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
	int off = 0, wide = 1 << 20;

	CHECK(fd >= 0);
	CHECK_EQ(c->fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK(c->fcntl(fd, F_GETFL) & O_NONBLOCK);
	CHECK_EQ(number(c, fd, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	CHECK_EQ(number(c, fd, SOL_SOCKET, SO_DOMAIN), AF_INET6);
	CHECK_EQ(number(c, fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
	CHECK_EQ(number(c, fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
	CHECK_OK(c->setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)));
	CHECK_EQ(number(c, fd, IPPROTO_IPV6, IPV6_V6ONLY), 0);
	CHECK_OK(c->setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wide, sizeof(wide)));
	CHECK_OK(c->close(fd));
}

TEST(kinds_case, "12 [fix] what kind of socket it is")
{
	on_both(kinds);
}

TEST(sizes, "4 6 sizes settle when the socket gets an address")
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0), size = 32;

	CHECK_EQ(number(&rdma, fd, SOL_RDMA, RDMA_SQSIZE), 384);
	CHECK_EQ(number(&rdma, fd, SOL_SOCKET, SO_RCVBUF), 131072);
	CHECK_OK(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &size, sizeof(size)));
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_EQ(number(&rdma, fd, SOL_RDMA, RDMA_SQSIZE), 64);
	CHECK_EQ(number(&rdma, fd, SOL_RDMA, RDMA_RQSIZE), 32);
	CHECK_EQ(number(&rdma, fd, SOL_SOCKET, SO_SNDBUF), 131072);
	CHECK_EQ(number(&rdma, fd, SOL_SOCKET, SO_RCVBUF), 65536);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &size, sizeof(size)), EINVAL);
	CHECK_OK(rclose(fd));
}

TEST(fresh, "86 [fix] a socket that was not used closes")
{
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	char byte;

	CHECK(fd >= 0);
	CHECK_ERRNO((int)rrecv(fd, &byte, 1, MSG_DONTWAIT), EINVAL);
	CHECK_OK(rclose(fd));
	CHECK_ERRNO(rclose(fd), EBADF);
}

static void *close_it(void *argument)
{
	/* The other thread waits. */
	await_sleep();
	CHECK_OK(rclose(*(int *)argument));
	return NULL;
}

TEST(closed, "[fix] close ends a receive of another thread")
{
	int fd = bound(&rdma, test_addr(PORT));
	pthread_t thread;
	char byte;

	CHECK_OK(pthread_create(&thread, NULL, close_it, &fd));
	CHECK_ERRNO((int)rrecv(fd, &byte, 1, 0), EBADF);
	CHECK_OK(pthread_join(thread, NULL));
}

typedef int create_fn(int);
typedef int ctl_fn(int, int, int, struct epoll_event *);
typedef int wait_fn(int, struct epoll_event *, int, int);

TEST(sets, "[fix] rselect and epoll sets take datagram sockets")
{
	struct sockaddr *addr = test_addr(PORT);
	int server = bound(&rdma, addr), client = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct timeval limit = { .tv_sec = 10 };
	fd_set reads;
	char byte;

	CHECK_EQ(rsendto(client, "1", 1, 0, addr, addr_length(addr)), 1);
	FD_ZERO(&reads);
	FD_SET(server, &reads);
	CHECK_EQ(rselect(server + 1, &reads, NULL, NULL, &limit), 1);
	CHECK(FD_ISSET(server, &reads));
	CHECK_EQ(rrecv(server, &byte, 1, 0), 1);

	create_fn *create = (create_fn *)library_symbol("repoll_create");
	ctl_fn *ctl = (ctl_fn *)library_symbol("repoll_ctl");
	wait_fn *wait = (wait_fn *)library_symbol("repoll_wait");
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 }, got[2];
	int set = create(0);

	CHECK_OK(ctl(set, EPOLL_CTL_ADD, server, &event));
	CHECK_EQ(wait(set, got, 2, 0), 0);
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(rsendto(client, "2", 1, 0, addr, addr_length(addr)), 1);
		CHECK_EQ(wait(set, got, 2, WAIT), 1);
		CHECK_EQ(got[0].data.u64, 5);
		CHECK_EQ(rrecv(server, &byte, 1, 0), 1);
	}
	CHECK_OK(rclose(set));
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
}

static const struct side well_formed = { .version = 4, .length = 16 };

static ssize_t send_side(int fd, struct side side, const void *data, size_t length)
{
	struct sockaddr *addr = test_addr(PORT);
	struct iovec parts[] = { { &side, sizeof(side) }, { (void *)data, length } };
	struct msghdr message = { .msg_name = addr,
				  .msg_namelen = addr_length(addr),
				  .msg_iov = parts,
				  .msg_iovlen = 2 };

	return sendmsg(fd, &message, 0);
}

TEST(side_channel, "83 [fix] a packet with data is answered and delivered")
{
	int server = bound(&rdma, test_addr(PORT)), peer = bound(&kernel, test_addr(PORT + 2));
	struct side side = well_formed, answer;
	struct sockaddr_storage from;
	char data[8];

	side.tag = 0x55555555;
	CHECK_EQ(send_side(peer, side, "hello", 5), 21);
	CHECK_EQ(receive(&rdma, server, data, sizeof(data), &from), 5);
	CHECK_OK(memcmp(data, "hello", 5));
	CHECK_EQ(port_of(&from), PORT + 2);
	CHECK_EQ(receive(&kernel, peer, &answer, sizeof(answer), &from), sizeof(answer));
	CHECK_EQ(port_of(&from), PORT);
	CHECK_EQ(answer.tag, 0x55555555);
	CHECK_EQ(answer.version, 4);
	CHECK_EQ(answer.op, 7);
	CHECK_EQ(answer.length, 16);
	CHECK(ntohl(answer.qpn) > 1 && ntohl(answer.qpn) < 1 << 24);
	CHECK_EQ(answer.addr, ((struct sockaddr_in *)test_addr(PORT))->sin_addr.s_addr);
	/* The way back leads by the side channel while there is no other. */
	CHECK_EQ(rsendto(server, "back", 4, 0, test_addr(PORT + 2), 16), 4);
	char packet[sizeof(answer) + 4];
	CHECK_EQ(receive(&kernel, peer, packet, sizeof(packet), &from), sizeof(packet));
	CHECK_EQ(packet[5], 0);
	CHECK_OK(memcmp(packet + sizeof(answer), "back", 4));
	CHECK_OK(close(peer));
	CHECK_OK(rclose(server));
}

/* Takes the answers, as many as there must be and what comes soon after. */
static int count_answers(int peer, int least)
{
	struct side answer;
	int count = 0;

	while (ready(&kernel, peer, POLLIN, count < least ? WAIT : 100)) {
		CHECK_EQ(recv(peer, &answer, sizeof(answer), 0), sizeof(answer));
		CHECK_EQ(answer.op, 7);
		count++;
	}
	return count;
}

TEST(answered, "[fix] data is answered, but what fits into no packet only now and then")
{
	int server = bound(&rdma, test_addr(PORT)), peer = bound(&kernel, test_addr(PORT + 2));
	uint64_t start = now_ms();
	struct side side = well_formed;
	struct sockaddr_storage from;
	static char data[MOST4];
	enum { MANY = 20 };

	side.tag = 0x55555555;
	for (int i = 0; i < MANY; i++) {
		CHECK_EQ(send_side(peer, side, data, MOST4), MOST4 + 16);
		CHECK_EQ(receive(&rdma, server, data, sizeof(data), &from), MOST4);
		CHECK_EQ(send_side(peer, side, data, 1), 17);
		CHECK_EQ(receive(&rdma, server, data, sizeof(data), &from), 1);
	}
	/* Ends what the library is at. */
	CHECK_OK(rclose(server));
	/* The small ones and the first, and at most one a second of the others. */
	int count = count_answers(peer, MANY + 1);
	CHECK(count >= MANY + 1);
	CHECK(count <= MANY + 1 + (int)((now_ms() - start) / 1000));
	CHECK_OK(close(peer));
}

TEST(malformed, "84 [fix] malformed packets are ignored")
{
	int server = bound(&rdma, test_addr(PORT)), peer = bound(&kernel, test_addr(PORT + 2));
	struct sockaddr *addr = test_addr(PORT);
	struct side bad[6];
	struct sockaddr_storage from;
	char data[64];
	static unsigned char garbage[9000];

	for (int i = 0; i < 6; i++) {
		bad[i] = well_formed;
		bad[i].tag = 0x55555555;
	}
	bad[0].tag = 0x55555554;
	bad[1].version = 6;
	bad[2].length = 28;
	bad[3].length = 0;
	bad[4].op = 1;
	bad[5].version = 0;
	for (int i = 0; i < 6; i++)
		CHECK_EQ(send_side(peer, bad[i], "bad", 3), 19);
	for (size_t length = 0; length < sizeof(garbage); length += length < 40 ? 1 : 1500)
		CHECK_EQ(sendto(peer, garbage, length, 0, addr, addr_length(addr)),
			 (ssize_t)length);
	memset(garbage, 0x55, sizeof(garbage));
	for (size_t length = 0; length < 30; length++)
		CHECK_EQ(sendto(peer, garbage, length, 0, addr, addr_length(addr)),
			 (ssize_t)length);
	bad[0] = bad[5];
	bad[0].version = 4;
	CHECK_EQ(send_side(peer, bad[0], "good", 4), 20);
	CHECK_EQ(receive(&rdma, server, data, sizeof(data), &from), 4);
	CHECK_OK(memcmp(data, "good", 4));
	CHECK_OK(close(peer));
	CHECK_OK(rclose(server));
}

TEST(restarted, "85 [fix] traffic goes on with a peer that was started again", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int client = rsocket(AF_INET, SOCK_DGRAM, 0), server = bound(&rdma, addr);
	uint64_t start;

	for (int i = 0; i < 20; i++)
		echo(&rdma, client, server, addr, 100);
	CHECK_OK(rclose(server));
	server = bound(&rdma, addr);
	/* Some may be lost on the way to the old queue pair, but not for long. */
	start = now_ms();
	do {
		CHECK(now_ms() - start < WAIT);
		CHECK_EQ(rsendto(client, "x", 1, 0, addr, addr_length(addr)), 1);
	} while (!(ready(&rdma, server, POLLIN, 100) & POLLIN));
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
}

TEST(many, "[fix] a socket serves many peers", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int server = bound(&rdma, addr), clients[20];

	for (int i = 0; i < 20; i++) {
		clients[i] = rsocket(AF_INET, SOCK_DGRAM, 0);
		CHECK(clients[i] >= 0);
	}
	for (int round = 0; round < 10; round++)
		for (int i = 0; i < 20; i++)
			echo(&rdma, clients[i], server, addr, (size_t)(100 + i));
	for (int i = 0; i < 20; i++)
		CHECK_OK(rclose(clients[i]));
	CHECK_OK(rclose(server));
}

TEST(constant, "75 sockets that come and go leave nothing behind [fix]", .timeout = 120)
{
	struct sockaddr *addr = test_addr(PORT);
	unsigned int before = 0;

	for (int i = 0; i < 60; i++) {
		int server = bound(&rdma, addr), client = rsocket(AF_INET, SOCK_DGRAM, 0);

		echo(&rdma, client, server, addr, 10);
		CHECK_OK(rclose(client));
		CHECK_OK(rclose(server));
		if (i == 9)
			before = open_descriptors();
	}
	CHECK_EQ(open_descriptors(), before);
}
