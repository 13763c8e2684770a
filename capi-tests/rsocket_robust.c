/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that break the rules, or run out of something: sockets over RDMA
 * answer with an error, and go on to work. The original crashes or hangs in
 * most of it.
 */
#include "rsocket_pair.h"

#include <limits.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/uio.h>

enum { PORT = 7801, LONG = 15000, BULK = 2 << 20 };

static void echo(struct ends *e)
{
	char in[5] = { 0 };

	CHECK_EQ(rsend(e->client, "hello", 5, MSG_NOSIGNAL), 5);
	CHECK_EQ(rrecv(e->server, in, 5, MSG_WAITALL), 5);
	CHECK_OK(memcmp(in, "hello", 5));
}

/* ---- Arguments ------------------------------------------------------------ */

TEST(null, "[fix] NULL where there must be something is an error")
{
	struct ends e = make_ends(test_addr(PORT));
	struct iovec vector = { NULL, 5 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	socklen_t length = 4;
	char byte = 0;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERRNO((int)rsend(e.client, NULL, 5, 0), EFAULT);
	CHECK_ERRNO((int)rwrite(e.client, NULL, 5), EFAULT);
	CHECK_ERRNO((int)rwritev(e.client, &vector, 1), EFAULT);
	CHECK_ERRNO((int)rwritev(e.client, NULL, 1), EFAULT);
	CHECK_ERRNO((int)rsendmsg(e.client, &message, 0), EFAULT);
	CHECK_ERRNO((int)rsendmsg(e.client, NULL, 0), EFAULT);
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	CHECK(poll_one(e.server, POLLIN, LONG) & POLLIN);
	CHECK_ERRNO((int)rrecv(e.server, NULL, 5, 0), EFAULT);
	CHECK_ERRNO((int)rrecv(e.server, NULL, 5, MSG_PEEK), EFAULT);
	CHECK_ERRNO((int)rread(e.server, NULL, 5), EFAULT);
	CHECK_ERRNO((int)rreadv(e.server, &vector, 1), EFAULT);
	CHECK_ERRNO((int)rreadv(e.server, NULL, 1), EFAULT);
	CHECK_ERRNO((int)rrecvmsg(e.server, &message, 0), EFAULT);
	CHECK_ERRNO((int)rrecvmsg(e.server, NULL, 0), EFAULT);
	/* It is still there. */
	CHECK_EQ(rrecv(e.server, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(rbind(fd, NULL, 16), -1);
	CHECK_EQ(rconnect(fd, NULL, 16), -1);
	CHECK_EQ(rgetsockname(fd, NULL, &length), -1);
	CHECK_EQ(rgetpeername(e.client, NULL, NULL), -1);
	CHECK_ERRNO(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, NULL, 4), EFAULT);
	CHECK_ERRNO(rgetsockopt(fd, SOL_SOCKET, SO_SNDBUF, NULL, &length), EFAULT);
	CHECK_ERRNO(rgetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &length, NULL), EFAULT);
	CHECK_ERRNO(rpoll(NULL, 1, 0), EFAULT);
	CHECK_EQ(rpoll(NULL, 0, 0), 0);
	CHECK_OK(rclose(fd));
	echo(&e);
	close_ends(&e);
}

TEST(nothing, "[fix] to send or receive nothing is no end of the stream")
{
	struct ends e = make_ends(test_addr(PORT));
	struct iovec vectors[3] = { { NULL, 0 }, { "", 0 }, { NULL, 0 } };
	struct msghdr message = { .msg_iov = vectors, .msg_iovlen = 3 };
	char byte;

	for (int round = 0; round < 2; round++) {
		CHECK_EQ(rsend(e.client, NULL, 0, 0), 0);
		CHECK_EQ(rwritev(e.client, vectors, 3), 0);
		CHECK_EQ(rwritev(e.client, NULL, 0), 0);
		CHECK_EQ(rsendmsg(e.client, &message, 0), 0);
		CHECK_EQ(rrecv(e.server, NULL, 0, 0), 0);
		CHECK_EQ(rreadv(e.server, vectors, 3), 0);
		CHECK_EQ(rreadv(e.server, NULL, 0), 0);
		/* Nothing came of it. */
		CHECK_ERRNO((int)rrecv(e.server, &byte, 1, MSG_DONTWAIT), EAGAIN);
		CHECK_EQ(poll_one(e.server, POLLIN, 0), 0);
		echo(&e);
	}
	CHECK_ERRNO((int)rwritev(e.client, vectors, -1), EINVAL);
	CHECK_ERRNO((int)rreadv(e.client, vectors, -1), EINVAL);
	close_ends(&e);
}

TEST(no_room, "names are cut to the room there is for them")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8);
	const socklen_t rooms[] = { 0, 1, 4, 15, 16, 100 };

	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		unsigned char name[128], zeroes[128];
		int fd = connect_to(addr), server;
		socklen_t length = rooms[i];

		memset(name, 0xaa, sizeof(name));
		memset(zeroes, 0xaa, sizeof(zeroes));
		server = raccept(listener, (struct sockaddr *)name, &length);
		CHECK(server >= 0);
		CHECK_EQ(length, sizeof(struct sockaddr_in));
		CHECK_OK(memcmp(name + rooms[i], zeroes + rooms[i], sizeof(name) - rooms[i]));
		if (rooms[i] >= sizeof(sa_family_t))
			CHECK_EQ(*(sa_family_t *)name, AF_INET);
		length = rooms[i];
		CHECK_OK(rgetpeername(server, (struct sockaddr *)name, &length));
		CHECK_EQ(length, sizeof(struct sockaddr_in));
		CHECK_OK(memcmp(name + (rooms[i] > 16 ? 16 : rooms[i]), zeroes + 16, 28));
		CHECK_OK(rclose(fd));
		CHECK_OK(rclose(server));
	}
	CHECK_OK(rclose(listener));
}

TEST(order, "calls in the wrong order are errors")
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), listener;

	CHECK_EQ(raccept(fd, NULL, NULL), -1);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_EQ(rbind(fd, addr, addr_length(addr)), -1);
	CHECK_EQ(raccept(fd, NULL, NULL), -1);
	CHECK_OK(rclose(fd));
	listener = listen_on(addr, 4);
	CHECK_EQ(rconnect(listener, addr, addr_length(addr)), -1);
	CHECK_EQ(rbind(listener, addr, addr_length(addr)), -1);
	fd = connect_to(addr);
	CHECK_EQ(rlisten(fd, 1), -1);
	CHECK_EQ(rbind(fd, addr, addr_length(addr)), -1);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(listener));
}

TEST(peeks, "42 43 45 flags of receives in all combinations")
{
	struct ends e = make_ends(test_addr(PORT));
	char in[16];

	CHECK_ERRNO((int)rrecv(e.server, in, 4, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO((int)rrecv(e.server, in, 4, MSG_WAITALL | MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO((int)rrecv(e.server, in, 4, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(rsend(e.client, "abc", 3, 0), 3);
	CHECK(poll_one(e.server, POLLIN, LONG) & POLLIN);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK), 3);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK | MSG_DONTWAIT), 3);
	CHECK_EQ(rrecv(e.server, in, 2, MSG_PEEK | MSG_WAITALL), 2);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT), 3);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_WAITALL | MSG_DONTWAIT), 3);
	CHECK_OK(memcmp(in, "abc", 3));
	CHECK_EQ(rsend(e.client, "de", 2, 0), 2);
	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_EQ(rrecv(e.server, in, 16, MSG_WAITALL), 2);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK | MSG_WAITALL), 0);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_DONTWAIT), 0);
	close_ends(&e);
}

static void *peek_five(void *argument)
{
	const struct ends *e = argument;
	char in[5] = "";

	CHECK_EQ(rrecv(e->server, in, 5, MSG_PEEK | MSG_WAITALL), 5);
	CHECK_OK(memcmp(in, "abcde", 5));
	return NULL;
}

TEST(peek_all, "42 43 [fix] MSG_PEEK with MSG_WAITALL waits for all, and leaves it")
{
	struct ends e = make_ends(test_addr(PORT));
	struct timeval time = { 0, 200000 };
	pthread_t thread;
	char in[16];

	CHECK_EQ(rsend(e.client, "abc", 3, 0), 3);
	CHECK(poll_one(e.server, POLLIN, LONG) & POLLIN);
	CHECK_OK(pthread_create(&thread, NULL, peek_five, &e));
	await_sleep();
	CHECK_EQ(rsend(e.client, "de", 2, 0), 2);
	CHECK_OK(pthread_join(thread, NULL));
	/* What there is, once the time is up or no more comes. */
	CHECK_OK(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK | MSG_WAITALL), 5);
	time.tv_usec = 0;
	CHECK_OK(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_EQ(rrecv(e.server, in, 16, MSG_PEEK | MSG_WAITALL), 5);
	CHECK_EQ(rrecv(e.server, in, 16, MSG_WAITALL), 5);
	CHECK_OK(memcmp(in, "abcde", 5));
	close_ends(&e);
}

static void *send_much(void *argument)
{
	const struct ends *e = argument;
	char data[10000] = { 0 };

	CHECK_EQ(rsend(e->server, data, sizeof(data), 0), sizeof(data));
	return NULL;
}

TEST(peek_more, "42 43 MSG_PEEK with MSG_WAITALL ends with as much as the peer may send [race]")
{
	struct ends e;
	int size = 4096;
	pthread_t thread;
	char data[10000];

	e.client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(e.client >= 0);
	CHECK_OK(rsetsockopt(e.client, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
	e = join(e.client, test_addr(PORT));
	CHECK_OK(pthread_create(&thread, NULL, send_much, &e));
	CHECK_EQ(rrecv(e.client, data, sizeof(data), MSG_PEEK | MSG_WAITALL), 8192);
	CHECK_EQ(rrecv(e.client, data, sizeof(data), MSG_WAITALL), sizeof(data));
	CHECK_OK(pthread_join(thread, NULL));
	close_ends(&e);
}

TEST(limits, "[fix] values of options at their limits are kept, bounded or refused",
     .timeout = 60)
{
	const int values[] = { INT_MIN, -1, 0, 1, 2, INT_MAX };
	const int names[] = { SO_SNDBUF, SO_RCVBUF };
	const int rdma[] = { RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE };
	struct timeval bad[] = { { 0, -1 }, { 0, 1000000 } };
	char option[8] = { 0 };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++) {
		struct ends e;

		/* Two gigabytes are not to be had. */
		if (values[v] == INT_MAX)
			continue;
		e.client = rsocket(AF_INET, SOCK_STREAM, 0);
		for (int i = 0; i < 4; i++)
			rsetsockopt(e.client, SOL_RDMA, rdma[i], &values[v], sizeof(int));
		for (int i = 0; i < 2; i++)
			rsetsockopt(e.client, SOL_SOCKET, names[i], &values[v], sizeof(int));
		e = join(e.client, test_addr(PORT));
		echo(&e);
		close_ends(&e);
	}
	for (int i = 0; i < 4; i++) {
		int got;

		rsetsockopt(fd, SOL_RDMA, rdma[i], &values[5], sizeof(int));
		got = option_of(fd, SOL_RDMA, rdma[i]);
		CHECK(got >= 0 && got <= 65534);
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bad[i], sizeof(bad[i])), -1);
		CHECK_EQ(rsetsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bad[i], sizeof(bad[i])), -1);
	}
	for (socklen_t length = 0; length < 4; length++) {
		CHECK_EQ(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, option, length), -1);
		CHECK_EQ(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, option, length), -1);
		CHECK_EQ(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, option, length), -1);
		CHECK_EQ(rsetsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, option, length), -1);
	}
	CHECK_OK(rclose(fd));
}

TEST(huge, "buffers that are not to be had fail the connection, and nothing else",
     .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 4), fd = rsocket(AF_INET, SOCK_STREAM, 0);
	/* Whatever the machine has. */
	struct rlimit limit = { 1 << 30, 1 << 30 };

	set_option(fd, SOL_SOCKET, SO_RCVBUF, INT_MAX);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, INT_MAX);
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), ENOMEM);
	CHECK_OK(rclose(fd));
	fd = connect_to(addr);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(listener));
}

/* ---- rpoll and rselect ------------------------------------------------------ */

TEST(wide_sets, "[fix] rselect takes sets for descriptors beyond FD_SETSIZE, as select does",
     .timeout = 30)
{
	struct rlimit limit = { 5000, 5000 };
	struct timeval soon = { .tv_usec = 1000 }, late = { .tv_sec = LONG / 1000 };
	/* As large as the number of descriptors, as programs have that need it. */
	enum { DESCRIPTORS = 5000 };
	unsigned char bits[DESCRIPTORS / 8 + 8];
	fd_set *set = (fd_set *)(void *)bits;
	int last = -1;
	struct ends e;

	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	while (last < 3000) {
		last = open("/dev/null", O_RDONLY);
		CHECK(last >= 0);
	}
	e = make_ends(test_addr(PORT));
	CHECK(e.server > 3000);
	memset(bits, 0, sizeof(bits));
	bits[e.server / 8] |= 1 << e.server % 8;
	CHECK_EQ(rselect(e.server + 1, set, NULL, NULL, &soon), 0);
	CHECK_EQ(bits[e.server / 8], 0);
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	bits[e.server / 8] |= 1 << e.server % 8;
	CHECK_EQ(rselect(e.server + 1, set, NULL, NULL, &late), 1);
	CHECK_EQ(bits[e.server / 8], 1 << e.server % 8);
	CHECK_ERRNO(rselect(-1, set, NULL, NULL, &soon), EINVAL);
	close_ends(&e);
}

TEST(more_than_there_are, "[fix] rselect reads no more of a set than there are descriptors")
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ends e = make_ends(test_addr(PORT));
	struct timeval soon = { .tv_usec = 1000 };
	unsigned char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd_set *set;

	CHECK(memory != MAP_FAILED);
	CHECK_OK(mprotect(memory + page, page, PROT_NONE));
	/* An fd_set at the end of what can be read. */
	set = (fd_set *)(void *)(memory + page - sizeof(fd_set));
	FD_SET(e.server, set);
	/* What getdtablesize() may be, and programs then give. */
	CHECK_EQ(rselect(1 << 20, set, NULL, NULL, &soon), 0);
	close_ends(&e);
}

TEST(bad_set, "[fix] rselect of a closed descriptor is EBADF, and leaves the sets alone")
{
	struct ends e = make_ends(test_addr(PORT));
	struct timeval soon = { .tv_usec = 1000 };
	fd_set set, before;

	FD_ZERO(&set);
	FD_SET(e.client, &set);
	FD_SET(e.listener, &set);
	before = set;
	CHECK_OK(rclose(e.client));
	CHECK_ERRNO(rselect(FD_SETSIZE, &set, NULL, NULL, &soon), EBADF);
	CHECK_OK(memcmp(&set, &before, sizeof(set)));
	CHECK_OK(rclose(e.server));
	CHECK_OK(rclose(e.listener));
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int select_for(int fd, int milliseconds)
{
	struct timeval limit = { milliseconds / 1000, milliseconds % 1000 * 1000 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return rselect(fd + 1, &set, NULL, NULL, &limit);
}

TEST(punctual, "60 [race] rpoll and rselect end at their timeout, not before and not late",
     .timeout = 60)
{
	static const int limits[] = { 1, 20, 300, 1100 };
	struct ends e;

	keep_original_away();
	e = make_ends(test_addr(PORT));
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		for (int selecting = 0; selecting < 2; selecting++) {
			uint64_t least = UINT64_MAX;

			/* Others may have the processor now and then, not always. */
			for (int round = 0; round < 20 && least > 50000; round++) {
				uint64_t start = now_us(), late;

				if (selecting)
					CHECK_EQ(select_for(e.client, limits[i]), 0);
				else
					CHECK_EQ(poll_one(e.client, POLLIN, limits[i]), 0);
				late = now_us() - start;
				CHECK(late >= (uint64_t)limits[i] * 1000);
				late -= (uint64_t)limits[i] * 1000;
				least = late < least ? late : least;
			}
			CHECK(least <= 50000);
		}
	close_ends(&e);
}

/* ---- Threads ---------------------------------------------------------------- */

/* A call that waits, in a thread of its own, and how it ended. */
struct blocked {
	ssize_t (*call)(int fd);
	int fd;
	ssize_t result;
	int error;
	pthread_t thread;
};

static ssize_t blocked_receive(int fd)
{
	char byte;

	return rrecv(fd, &byte, 1, 0);
}

static ssize_t blocked_peek(int fd)
{
	char bytes[9];

	return rrecv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_WAITALL);
}

static ssize_t blocked_send(int fd)
{
	static char data[65536];
	ssize_t sent;

	while ((sent = rsend(fd, data, sizeof(data), MSG_NOSIGNAL)) > 0)
		;
	return sent;
}

static ssize_t blocked_poll(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };

	return rpoll(&entry, 1, -1);
}

static ssize_t blocked_accept(int fd)
{
	return raccept(fd, NULL, NULL);
}

static ssize_t wait_in_set(int fd, int timeout)
{
	int (*create)(int) = (int (*)(int))library_symbol("repoll_create");
	int (*ctl)(int, int, int, struct epoll_event *) =
		(int (*)(int, int, int, struct epoll_event *))library_symbol("repoll_ctl");
	int (*wait)(int, struct epoll_event *, int, int) =
		(int (*)(int, struct epoll_event *, int, int))library_symbol("repoll_wait");
	struct epoll_event event = { .events = EPOLLIN };
	int set = create(0), result;

	CHECK_OK(ctl(set, EPOLL_CTL_ADD, fd, &event));
	result = wait(set, &event, 1, timeout);
	CHECK_OK(rclose(set));
	return result;
}

static ssize_t blocked_wait(int fd)
{
	return wait_in_set(fd, LONG);
}

static ssize_t wait_a_while(int fd)
{
	return wait_in_set(fd, 1000);
}

static void *run_blocked(void *argument)
{
	struct blocked *blocked = argument;

	blocked->result = blocked->call(blocked->fd);
	blocked->error = errno;
	return NULL;
}

static void block(struct blocked *blocked)
{
	CHECK_OK(pthread_create(&blocked->thread, NULL, run_blocked, blocked));
}

static void unblock(struct blocked *blocked)
{
	CHECK_OK(pthread_join(blocked->thread, NULL));
}

TEST(closed, "[fix] a close ends every call of other threads on the socket", .timeout = 40)
{
	struct ends e = make_ends(test_addr(PORT));
	struct linger now = { .l_onoff = 1 };
	struct blocked calls[] = {
		{ .call = blocked_receive, .fd = e.client },
		{ .call = blocked_peek, .fd = e.client },
		{ .call = blocked_send, .fd = e.client },
		{ .call = blocked_poll, .fd = e.client },
		{ .call = blocked_accept, .fd = e.listener },
		{ .call = blocked_poll, .fd = e.listener },
		{ .call = wait_a_while, .fd = e.client },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		block(&calls[i]);
	await_sleep();
	CHECK_OK(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	CHECK_OK(rclose(e.client));
	CHECK_OK(rclose(e.listener));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		unblock(&calls[i]);
		if (calls[i].call == blocked_poll) {
			CHECK_EQ(calls[i].result, 1);
		} else if (calls[i].call == wait_a_while) {
			/* It is no member any more, as with epoll(7). */
			CHECK_EQ(calls[i].result, 0);
		} else {
			CHECK_EQ(calls[i].result, -1);
			CHECK_EQ(calls[i].error, EBADF);
		}
	}
	CHECK_OK(rclose(e.server));
}

TEST(shut, "[fix] a shutdown ends every call of other threads on the socket", .timeout = 40)
{
	struct ends e = make_ends(test_addr(PORT));
	struct linger soon = { .l_onoff = 1, .l_linger = 1 };
	struct blocked calls[] = {
		{ .call = blocked_receive, .fd = e.client },
		{ .call = blocked_peek, .fd = e.client },
		{ .call = blocked_send, .fd = e.client },
		{ .call = blocked_poll, .fd = e.client },
		{ .call = blocked_wait, .fd = e.client },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		block(&calls[i]);
	await_sleep();
	/* The peer takes nothing, so there is nothing to wait for. */
	CHECK_OK(rsetsockopt(e.client, SOL_SOCKET, SO_LINGER, &soon, sizeof(soon)));
	CHECK_OK(rshutdown(e.client, SHUT_RDWR));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		unblock(&calls[i]);
	CHECK_EQ(calls[0].result, 0);
	CHECK_EQ(calls[1].result, 0);
	CHECK_EQ(calls[2].result, -1);
	CHECK_EQ(calls[2].error, EPIPE);
	CHECK_EQ(calls[3].result, 1);
	CHECK_EQ(calls[4].result, 1);
	close_ends(&e);
}

enum { CLOSERS = 4 };

static struct {
	int fd;
	pthread_barrier_t start;
} race;

static void *close_it(void *argument)
{
	pthread_barrier_wait(&race.start);
	*(int *)argument = rclose(race.fd);
	if (*(int *)argument)
		CHECK_EQ(errno, EBADF);
	return NULL;
}

TEST(close_race, "[fix] of threads that close the same socket, one does")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8);

	CHECK_OK(pthread_barrier_init(&race.start, NULL, CLOSERS));
	for (int round = 0; round < test_rounds(10); round++) {
		int results[CLOSERS], closed = 0, server;
		pthread_t threads[CLOSERS];

		race.fd = connect_to(addr);
		server = raccept(listener, NULL, NULL);
		CHECK(server >= 0);
		for (int i = 0; i < CLOSERS; i++)
			CHECK_OK(pthread_create(&threads[i], NULL, close_it, &results[i]));
		for (int i = 0; i < CLOSERS; i++) {
			CHECK_OK(pthread_join(threads[i], NULL));
			closed += results[i] == 0;
		}
		CHECK_EQ(closed, 1);
		CHECK_OK(rclose(server));
	}
	CHECK_OK(rclose(listener));
}

static uint64_t calls_done;

enum { ENOUGH = 50 };

static void *dont_wait(void *argument)
{
	int fd = *(int *)argument;
	char byte;

	for (int i = 0; i < ENOUGH; i++) {
		CHECK_ERRNO((int)rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
		CHECK_EQ(poll_one(fd, POLLIN, 0), 0);
		calls_done++;
	}
	return NULL;
}

TEST(dont_wait_case, "45 [fix] calls that do not wait do not wait for a thread that does")
{
	struct ends e = make_ends(test_addr(PORT));
	struct blocked receiver = { .call = blocked_receive, .fd = e.client };
	struct blocked poller = { .call = blocked_poll, .fd = e.client };
	struct timespec limit;
	pthread_t thread;

	block(&receiver);
	block(&poller);
	await_sleep();
	CHECK_OK(pthread_create(&thread, NULL, dont_wait, &e.client));
	/* While the others still wait. */
	CHECK_OK(clock_gettime(CLOCK_REALTIME, &limit));
	limit.tv_sec += 10;
	CHECK_OK(pthread_timedjoin_np(thread, NULL, &limit));
	CHECK_EQ(calls_done, ENOUGH);
	/* One byte wakes the poller; the receiver may have taken it before. */
	CHECK_EQ(rsend(e.server, "x", 1, 0), 1);
	unblock(&receiver);
	CHECK_EQ(receiver.result, 1);
	CHECK_EQ(rsend(e.server, "y", 1, 0), 1);
	unblock(&poller);
	CHECK_EQ(poller.result, 1);
	close_ends(&e);
}

/* ---- Signals ------------------------------------------------------------------ */

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

static void *send_bulk(void *argument)
{
	int fd = *(int *)argument;
	unsigned char *data = malloc(BULK);

	for (size_t i = 0; i < BULK; i++)
		data[i] = (unsigned char)(i * 31 + (i >> 9));
	for (size_t done = 0; done < BULK;) {
		ssize_t sent = rsend(fd, data + done, BULK - done, 0);

		if (sent < 0 && errno == EINTR)
			continue;
		CHECK(sent > 0);
		done += (size_t)sent;
	}
	free(data);
	return NULL;
}

TEST(storm, "[race] a storm of signals costs no byte", .timeout = 60)
{
	struct sigaction action = { .sa_handler = count_signal };
	struct itimerval every = { { 0, 2000 }, { 0, 2000 } }, never = { 0 };
	struct ends e = make_ends(test_addr(PORT));
	unsigned char *data = malloc(BULK);
	pthread_t sender;

	CHECK_OK(sigaction(SIGALRM, &action, NULL));
	CHECK_OK(setitimer(ITIMER_REAL, &every, NULL));
	while (!signals)
		poll(NULL, 0, 5);
	CHECK_OK(pthread_create(&sender, NULL, send_bulk, &e.client));
	for (size_t done = 0; done < BULK;) {
		ssize_t got = rrecv(e.server, data, BULK - done, MSG_WAITALL);

		if (got < 0 && errno == EINTR)
			continue;
		CHECK(got > 0);
		for (ssize_t i = 0; i < got; i++, done++)
			CHECK_EQ(data[i], (unsigned char)(done * 31 + (done >> 9)));
	}
	CHECK_OK(setitimer(ITIMER_REAL, &never, NULL));
	CHECK_OK(pthread_join(sender, NULL));
	free(data);
	close_ends(&e);
}

TEST(interrupted, "a signal ends each call that waits with EINTR")
{
	struct sigaction action = { .sa_handler = count_signal };
	struct ends e = make_ends(test_addr(PORT));
	ssize_t (*const calls[])(int) = { blocked_receive, blocked_peek, blocked_poll,
					  blocked_accept };
	struct interrupter interrupter;

	CHECK_OK(sigaction(SIGUSR1, &action, NULL));
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		start_interrupting(&interrupter);
		CHECK_ERRNO((int)calls[i](calls[i] == blocked_accept ? e.listener : e.client),
			    EINTR);
		stop_interrupting(&interrupter);
	}
	echo(&e);
	close_ends(&e);
}

/* ---- Descriptors and memory that run out ------------------------------------- */

TEST(no_descriptors, "[fix] out of descriptors, calls fail, and work when there are some again",
     .timeout = 60)
{
	struct rlimit limit = { 64, 64 };
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = make_ends(addr);
	int fds[64], count, fd, server;
	unsigned int before;

	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	before = open_descriptors();
	for (int spare = 0; spare < 10; spare++) {
		count = fill_descriptors(fds, 64);
		for (int i = 0; i < spare; i++)
			close(fds[--count]);
		fd = rsocket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0) {
			CHECK_EQ(errno, EMFILE);
		} else if (rconnect(fd, addr, addr_length(addr)) == 0) {
			/* With what is left, or with what comes back. */
			server = raccept(e.listener, NULL, NULL);
			CHECK(server >= 0);
			CHECK_OK(rclose(server));
			CHECK_OK(rclose(fd));
		} else {
			CHECK_OK(rclose(fd));
		}
		/* A connection that there already is does not suffer. */
		echo(&e);
		for (int i = 0; i < count; i++)
			close(fds[i]);
	}
	fd = connect_to(addr);
	server = raccept(e.listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(server));
	/* The listener may still be at those that failed. */
	while (open_descriptors() > before + 2)
		poll(NULL, 0, 20);
	close_ends(&e);
}

static void connect_poorly(void *argument)
{
	struct sockaddr *addr = argument;
	struct rlimit limit = { 16384, 16384 };
	int fd;

	CHECK_OK(setrlimit(RLIMIT_MEMLOCK, &limit));
	drop_privileges();
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), ENOMEM);
	CHECK_OK(rclose(fd));
}

TEST(no_memory, "without memory to lock, a connection fails with ENOMEM", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener, fd, server;

	private_devices(0666, 0666);
	run_in_child(connect_poorly, addr);
	listener = listen_on(addr, 4);
	run_in_child(connect_poorly, addr);
	fd = connect_to(addr);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

/* ---- Descriptors that become something else ---------------------------------- */

TEST(replaced, "[race] dup2 over a socket's descriptor does no other any harm")
{
	struct ends e = make_ends(test_addr(PORT));
	struct ends other = make_ends(test_addr(PORT + 1));
	int pipes[2];
	char byte;

	CHECK_OK(pipe(pipes));
	CHECK_EQ(dup2(pipes[0], e.client), e.client);
	/* Whatever the socket says, nobody crashes. */
	rsend(e.client, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	poll_one(e.client, POLLIN, 0);
	rrecv(e.client, &byte, 1, MSG_DONTWAIT);
	rclose(e.client);
	echo(&other);
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	CHECK_EQ(read(pipes[0], &byte, 1), 1);
	close_ends(&other);
	CHECK_OK(rclose(e.server));
	CHECK_OK(rclose(e.listener));
}

/* ---- Processes ------------------------------------------------------------------ */

static void use_anew(void *argument)
{
	struct sockaddr *addr = test_addr(PORT + 1);
	struct ends *parent = argument, e = make_ends(addr);
	char byte;

	echo(&e);
	CHECK_ERRNO((int)rrecv(parent->server, &byte, 1, 0), EBADF);
	close_ends(&e);
	/* Ends as programs do, with what the library does then. */
	exit(EXIT_SUCCESS);
}

TEST(child, "[fix] a child has sockets of its own, and its end is not its parent's",
     .timeout = 60)
{
	struct ends e = make_ends(test_addr(PORT));

	for (int round = 0; round < 3; round++) {
		echo(&e);
		run_in_child(use_anew, &e);
		echo(&e);
	}
	close_ends(&e);
}

/* What a thread of the parent is at all the time, at each fork too. */
struct busy {
	int fd;
	atomic_bool over;
};

static void *keep_using(void *argument)
{
	struct busy *busy = argument;

	while (!atomic_load(&busy->over))
		CHECK_EQ(rfcntl(busy->fd, F_GETFL), O_RDWR);
	return NULL;
}

static void replace_inherited(void *argument)
{
	struct busy *busy = argument;
	int fd;

	/* Nobody is here to let go of what the thread held. */
	alarm(LONG / 1000);
	CHECK_ERRNO(rfcntl(busy->fd, F_GETFL), EBADF);
	CHECK_OK(rclose(busy->fd));
	fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(fd, busy->fd);
	CHECK_EQ(rfcntl(fd, F_GETFL), O_RDWR);
	CHECK_OK(rclose(fd));
}

TEST(busy_parent, "[race] children close what a thread of their parent uses at the fork",
     .timeout = 60)
{
	struct busy busy = { .fd = rsocket(AF_INET, SOCK_DGRAM, 0) };
	pthread_t thread;

	CHECK(busy.fd >= 0);
	CHECK_OK(pthread_create(&thread, NULL, keep_using, &busy));
	for (int round = 0; round < 200; round++)
		run_in_child(replace_inherited, &busy);
	atomic_store(&busy.over, true);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rclose(busy.fd));
}

static void exit_in_thread(int fd)
{
	struct blocked *receiver = calloc(1, sizeof(*receiver));
	struct blocked *poller = calloc(1, sizeof(*poller));

	*receiver = (struct blocked){ .call = blocked_receive, .fd = fd };
	*poller = (struct blocked){ .call = blocked_poll, .fd = fd };
	block(receiver);
	block(poller);
	await_sleep();
	exit(EXIT_SUCCESS);
}

TEST(exits, "a process ends while its threads wait, and its peer sees the end [race]",
     .timeout = 40)
{
	struct sockaddr *addr = test_addr(PORT);
	int status, fd;
	pid_t pid;
	char byte;

	keep_original_away();
	pid = peer_process(PORT, exit_in_thread);
	fd = connect_to(addr);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(rrecv(fd, &byte, 1, 0) <= 0);
	CHECK_OK(rclose(fd));
}
