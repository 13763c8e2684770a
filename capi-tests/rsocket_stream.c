/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Stream sockets over RDMA: creation, connection, data, shutdown, polling. */
#include "rsocket_pair.h"

#include <sys/epoll.h>
#include <sys/uio.h>

enum { PORT = 7601, BULK = 3 << 20 };

typedef int repoll_create_fn(int);
typedef int repoll_ctl_fn(int, int, int, struct epoll_event *);
typedef int repoll_wait_fn(int, struct epoll_event *, int, int);

TEST(kinds, "1 unknown kinds of sockets are ENOTSUP")
{
	CHECK_ERRNO(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	CHECK_ERRNO(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
	CHECK_ERRNO(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
}

TEST(descriptors, "3 each socket has a descriptor of its own")
{
	int a = rsocket(AF_INET, SOCK_STREAM, 0);
	int b = rsocket(AF_INET6, SOCK_STREAM, 0);

	CHECK(a >= 0 && b >= 0 && a != b);
	CHECK(fcntl(a, F_GETFD) >= 0);
	CHECK_OK(rclose(a));
	CHECK_OK(rclose(b));
}

TEST(defaults, "4 5 sizes by default and as set")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), small = 100, large = 65536;

	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_RCVBUF), 131072);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_SNDBUF), 131072);
	CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_SQSIZE), 384);
	CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_RQSIZE), 384);
	CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_INLINE), 64);
	CHECK_EQ(option_of(fd, SOL_RDMA, RDMA_IOMAPSIZE), 0);
	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)));
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_SNDBUF), 4096);
	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large)));
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_RCVBUF), 131072);
	CHECK_OK(rclose(fd));
}

TEST(refused, "15 a closed port refuses, SO_ERROR tells once")
{
	struct sockaddr *addr = test_addr(PORT + 1);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), ECONNREFUSED);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_OK(rclose(fd));
}

TEST(refused_later, "16 a non-blocking connect to a closed port ends with POLLERR")
{
	struct sockaddr *addr = test_addr(PORT + 1);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	CHECK(poll_one(fd, POLLOUT, 10000) & POLLERR);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	CHECK_OK(rclose(fd));
}

TEST(connected_later, "17 a non-blocking connect ends with POLLOUT")
{
	struct sockaddr *addr = test_addr(PORT);
	int listening = listen_on(test_addr(PORT), 8), server;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	CHECK_EQ(poll_one(fd, POLLOUT, 10000), POLLOUT);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	server = raccept(listening, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listening));
}

static void *answer_late(void *argument)
{
	int server = raccept(*(int *)argument, NULL, NULL);

	CHECK(server >= 0);
	/* The other side sleeps. */
	await_sleep();
	CHECK_EQ(rsend(server, "x", 1, 0), 1);
	return (void *)(intptr_t)server;
}

TEST(data_later, "rpoll that begins while connecting wakes for data [race]")
{
	struct sockaddr *addr = test_addr(PORT);
	int listening = listen_on(test_addr(PORT), 8), fd = rsocket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	void *server;

	CHECK_OK(pthread_create(&thread, NULL, answer_late, &listening));
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	CHECK_EQ(poll_one(fd, POLLIN, 10000), POLLIN);
	CHECK_OK(pthread_join(thread, &server));
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose((int)(intptr_t)server));
	CHECK_OK(rclose(listening));
}

TEST(no_connection, "23 25 raccept on an idle non-blocking listener is EAGAIN; rlisten may be called again")
{
	int fd = listen_on(test_addr(PORT), 8);

	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(raccept(fd, NULL, NULL), EAGAIN);
	CHECK_OK(rlisten(fd, 8));
	CHECK_OK(rclose(fd));
}

static unsigned char pattern(size_t place)
{
	return (unsigned char)(place * 31 + (place >> 9));
}

static void *send_bulk(void *argument)
{
	int fd = *(int *)argument;
	unsigned char *data = malloc(BULK);
	size_t done = 0, step = 1;

	for (size_t i = 0; i < BULK; i++)
		data[i] = pattern(i);
	while (done < BULK) {
		size_t length = step < BULK - done ? step : BULK - done;
		ssize_t sent = rsend(fd, data + done, length, 0);

		CHECK(sent > 0);
		done += (size_t)sent;
		step = (step * 7 + 3) % 200000 + 1;
	}
	free(data);
	return NULL;
}

static void *receive_bulk(void *argument)
{
	int fd = *(int *)argument;
	unsigned char *data = malloc(BULK);
	size_t done = 0;

	while (done < BULK) {
		ssize_t received = rrecv(fd, data + done, BULK - done, 0);

		CHECK(received > 0);
		for (ssize_t i = 0; i < received; i++, done++)
			CHECK_EQ(data[done], pattern(done));
	}
	free(data);
	return NULL;
}

TEST(bulk, "40 bulk data is intact", .timeout = 60)
{
	struct ends e = make_ends(test_addr(PORT));
	pthread_t sender;

	CHECK_OK(pthread_create(&sender, NULL, send_bulk, &e.client));
	receive_bulk(&e.server);
	CHECK_OK(pthread_join(sender, NULL));
	close_ends(&e);
}

TEST(peek, "42 43 45 MSG_PEEK, MSG_WAITALL and MSG_DONTWAIT")
{
	struct ends e = make_ends(test_addr(PORT));
	char buffer[16];

	CHECK_ERRNO((int)rrecv(e.server, buffer, sizeof(buffer), MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(rsend(e.client, "abcdef", 6, 0), 6);
	CHECK_EQ(rrecv(e.server, buffer, 3, MSG_WAITALL | MSG_PEEK), 3);
	CHECK_EQ(rsend(e.client, "ghij", 4, 0), 4);
	CHECK_EQ(rrecv(e.server, buffer, 10, MSG_WAITALL), 10);
	CHECK_OK(memcmp(buffer, "abcdefghij", 10));
	close_ends(&e);
}

TEST(vectors, "46 [fix] a vectored receive fills all vectors")
{
	struct ends e = make_ends(test_addr(PORT));
	char a[3], b[5];
	struct iovec vectors[] = { { a, sizeof(a) }, { b, sizeof(b) } };
	struct iovec source[] = { { "ab", 2 }, { "", 0 }, { "cdefgh", 6 } };

	CHECK_EQ(rwritev(e.client, source, 3), 8);
	CHECK(poll_one(e.server, POLLIN, 10000) & POLLIN);
	CHECK_EQ(rreadv(e.server, vectors, 2), 8);
	CHECK_OK(memcmp(a, "abc", 3) || memcmp(b, "defgh", 5));
	close_ends(&e);
}

enum { VECTORS = 20, VECTOR = 1500 };

TEST(many_vectors, "47 many vectors are sent in order, across the ends of buffers")
{
	struct ends e = make_ends(test_addr(PORT));
	static unsigned char data[VECTORS * VECTOR], got[sizeof(data)];
	struct iovec vectors[VECTORS];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = pattern(i);
	/* Twice through the buffers of both sides, and to no end of them. */
	for (int round = 0; round < 10; round++) {
		size_t done = 0;

		for (int i = 0; i < VECTORS; i++) {
			/* Of all sizes, one without anything. */
			size_t length = i == VECTORS - 1 ? sizeof(data) - done :
					(size_t)(i + round) % VECTORS * VECTOR / 10;

			vectors[i] = (struct iovec){ data + done, length };
			done += length;
		}
		CHECK_EQ(rwritev(e.client, vectors, VECTORS), sizeof(data));
		CHECK_EQ(rrecv(e.server, got, sizeof(got), MSG_WAITALL), sizeof(got));
		CHECK_OK(memcmp(got, data, sizeof(data)));
	}
	close_ends(&e);
}

TEST(half_close, "48 one side ends sending, the other answers")
{
	struct ends e = make_ends(test_addr(PORT));
	char buffer[8];

	CHECK_EQ(rsend(e.client, "ask", 3, 0), 3);
	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_EQ(rrecv(e.server, buffer, 3, MSG_WAITALL), 3);
	CHECK_EQ(rrecv(e.server, buffer, sizeof(buffer), 0), 0);
	CHECK_EQ(rsend(e.server, "tell", 4, 0), 4);
	CHECK_OK(rshutdown(e.server, SHUT_WR));
	CHECK_EQ(rrecv(e.client, buffer, 4, MSG_WAITALL), 4);
	CHECK_EQ(rrecv(e.client, buffer, sizeof(buffer), 0), 0);
	close_ends(&e);
}

TEST(after_shutdown, "52 [fix] sending after SHUT_WR is EPIPE")
{
	struct ends e = make_ends(test_addr(PORT));

	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_ERRNO((int)rsend(e.client, "x", 1, MSG_NOSIGNAL), EPIPE);
	close_ends(&e);
}

TEST(bad, "58 [fix] what is no connected socket is refused")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	char byte = 0;

	CHECK_ERRNO(rclose(999), EBADF);
	CHECK_ERRNO((int)rsend(-1, &byte, 1, 0), EBADF);
	CHECK_ERRNO((int)rrecv(100000000, &byte, 1, 0), EBADF);
	CHECK_ERRNO((int)rrecv(fd, &byte, 1, 0), ENOTCONN);
	CHECK_ERRNO((int)rsend(fd, &byte, 1, 0), ENOTCONN);
	CHECK_OK(rclose(fd));
}

static void *shut_down(void *argument)
{
	/* The other thread waits. */
	await_sleep();
	CHECK_OK(rshutdown(*(int *)argument, SHUT_RDWR));
	return NULL;
}

TEST(wake, "a shutdown ends a receive of another thread")
{
	struct ends e = make_ends(test_addr(PORT));
	pthread_t thread;
	char byte;

	CHECK_OK(pthread_create(&thread, NULL, shut_down, &e.client));
	CHECK_EQ(rrecv(e.client, &byte, 1, 0), 0);
	CHECK_OK(pthread_join(thread, NULL));
	close_ends(&e);
}

TEST(timeout, "60 rpoll does not return before its timeout [race]", .timeout = 30)
{
	struct ends e = make_ends(test_addr(PORT));
	int pipes[2];
	uint64_t start;

	CHECK_OK(pipe(pipes));
	struct pollfd entries[] = { { .fd = e.client, .events = POLLIN },
				    { .fd = pipes[0], .events = POLLIN } };
	start = now_ms();
	CHECK_EQ(rpoll(entries, 2, 3000), 0);
	CHECK(now_ms() - start >= 2999);
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	CHECK_EQ(rpoll(entries, 2, -1), 1);
	CHECK_EQ(entries[1].revents, POLLIN);
	CHECK_EQ(rsend(e.server, "x", 1, 0), 1);
	entries[1].fd = -1;
	CHECK_EQ(rpoll(entries, 2, 10000), 1);
	CHECK_EQ(entries[0].revents, POLLIN);
	close_ends(&e);
}

TEST(repoll, "66 67 69 71 [fix] epoll sets behave as epoll(7) says")
{
	repoll_create_fn *create = (repoll_create_fn *)library_symbol("repoll_create");
	repoll_ctl_fn *ctl = (repoll_ctl_fn *)library_symbol("repoll_ctl");
	repoll_wait_fn *wait = (repoll_wait_fn *)library_symbol("repoll_wait");
	struct ends e = make_ends(test_addr(PORT));
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 11 }, got[4];
	int set = create(0);
	struct pollfd outer = { .fd = set, .events = POLLIN };
	char byte;

	CHECK(set >= 0);
	CHECK_ERRNO(ctl(set, EPOLL_CTL_MOD, e.client, &event), ENOENT);
	CHECK_OK(ctl(set, EPOLL_CTL_ADD, e.client, &event));
	CHECK_ERRNO(ctl(set, EPOLL_CTL_ADD, e.client, &event), EEXIST);
	CHECK_EQ(wait(set, got, 4, 0), 0);
	CHECK_EQ(rsend(e.server, "x", 1, 0), 1);
	CHECK_EQ(wait(set, got, 4, 10000), 1);
	CHECK_EQ(got[0].data.u64, 11);
	CHECK_EQ(wait(set, got, 1, 0), 1);
	/* Who waits for the set itself sees that there is something left. */
	CHECK_EQ(poll(&outer, 1, 0), 1);
	event.events = EPOLLIN | EPOLLONESHOT;
	CHECK_OK(ctl(set, EPOLL_CTL_MOD, e.client, &event));
	CHECK_EQ(wait(set, got, 4, 10000), 1);
	CHECK_EQ(wait(set, got, 4, 50), 0);
	event.events = EPOLLIN | EPOLLET;
	CHECK_OK(ctl(set, EPOLL_CTL_MOD, e.client, &event));
	CHECK_EQ(wait(set, got, 4, 10000), 1);
	CHECK_EQ(wait(set, got, 4, 50), 0);
	CHECK_EQ(rrecv(e.client, &byte, 1, 0), 1);
	CHECK_EQ(rsend(e.server, "y", 1, 0), 1);
	CHECK_EQ(wait(set, got, 4, 10000), 1);
	/* What the connection still does by itself may show for a moment. */
	do
		CHECK_EQ(wait(set, got, 4, 50), 0);
	while (poll(&outer, 1, 0) == 1);
	CHECK_OK(ctl(set, EPOLL_CTL_DEL, e.client, NULL));
	CHECK_ERRNO(wait(set, got, 0, 0), EINVAL);
	CHECK_OK(rclose(set));
	close_ends(&e);
}
