/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that are careless with numbers and descriptors: negative lengths, counts
 * and limits, descriptors that run out before anything was set up, and numbers that
 * become another's.
 */
#include "rsocket_pair.h"

#include <limits.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { PORT = 7821, LONG = 15000, DESCRIPTORS = 48, QUESTIONS = 20 };

/* A byte each way. */
static void echo(int one, int other)
{
	char byte = 0;

	CHECK_EQ(rsend(one, "x", 1, MSG_NOSIGNAL), 1);
	CHECK_EQ(rrecv(other, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(rsend(other, "y", 1, MSG_NOSIGNAL), 1);
	CHECK_EQ(rrecv(one, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'y');
}

/* ---- Numbers -------------------------------------------------------------- */

TEST(lengths, "[fix] lengths that are negative are EINVAL, and nothing is written")
{
	struct ends e = make_ends(test_addr(PORT));
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), value = 77;
	const int names[] = { SO_SNDBUF, SO_RCVBUF, SO_LINGER, SO_KEEPALIVE, SO_REUSEADDR };
	struct sockaddr_storage addr;
	struct sockaddr *name = (struct sockaddr *)&addr;
	socklen_t length;

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CHECK_ERRNO(rsetsockopt(fd, SOL_SOCKET, names[i], &value, (socklen_t)-4), EINVAL);
		length = (socklen_t)INT_MIN;
		CHECK_ERRNO(rgetsockopt(fd, SOL_SOCKET, names[i], &value, &length), EINVAL);
		CHECK_EQ(value, 77);
	}
	memset(&addr, 77, sizeof(addr));
	length = (socklen_t)-1;
	CHECK_ERRNO(rgetsockname(e.client, name, &length), EINVAL);
	CHECK_ERRNO(rgetpeername(e.client, name, &length), EINVAL);
	CHECK_EQ(addr.ss_family, 77 << 8 | 77);
	echo(e.client, e.server);
	CHECK_OK(rclose(fd));
	close_ends(&e);
}

TEST(routes, "[fix] RDMA_ROUTE of any length is taken, or is EINVAL")
{
	static char records[72 * 65];
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	/* Some of these are whole records. */
	for (unsigned int i = 1; i <= 72; i++)
		CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, records, 0u - i), EINVAL);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, records, 0), EINVAL);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, records, 71), EINVAL);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, records, sizeof(records)), EINVAL);
	CHECK_OK(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, records, 72));
	CHECK_OK(rclose(fd));
}

TEST(backlog, "a negative backlog is the largest there is")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, -1), clients[4], server;

	for (int i = 0; i < 4; i++)
		clients[i] = connect_to(addr);
	for (int i = 0; i < 4; i++) {
		server = raccept(listener, NULL, NULL);
		CHECK(server >= 0);
		CHECK_OK(rclose(clients[i]));
		CHECK_OK(rclose(server));
	}
	CHECK_OK(rclose(listener));
}

TEST(time_limits, "[fix] a negative SO_RCVTIMEO is over at once, the largest never")
{
	struct ends e = make_ends(test_addr(PORT));
	struct timeval limit = { -1, 0 };
	char byte;

	CHECK_OK(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK_ERRNO((int)rrecv(e.server, &byte, 1, 0), EAGAIN);
	limit.tv_sec = LONG_MIN;
	CHECK_OK(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK_ERRNO((int)rrecv(e.server, &byte, 1, 0), EAGAIN);
	limit.tv_sec = LONG_MAX;
	CHECK_OK(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	echo(e.client, e.server);
	limit.tv_usec = 1000000;
	CHECK_ERRNO(rsetsockopt(e.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), EDOM);
	close_ends(&e);
}

TEST(connect_limit, "[fix] SO_SNDTIMEO bounds a connect, which goes on", .timeout = 40)
{
	struct sockaddr *addr = silent_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct timeval limit = { .tv_usec = 50000 };

	CHECK(fd >= 0);
	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EALREADY);
	CHECK_EQ(poll_one(fd, POLLOUT, 50), 0);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_OK(rclose(fd));
}

TEST(connect_in_time, "[fix] SO_SNDTIMEO does no connect harm that takes less")
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	struct timeval limit = { .tv_sec = 15 };
	struct ends e;

	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)));
	e = join(fd, addr);
	echo(e.client, e.server);
	close_ends(&e);
}

static void *connect_to_nobody(void *argument)
{
	struct sockaddr *addr = silent_addr(PORT);

	CHECK_ERRNO(rconnect(*(int *)argument, addr, addr_length(addr)), ECONNRESET);
	return NULL;
}

TEST(connect_shut, "[fix] a shutdown ends an attempt to connect, and who waits for it",
     .timeout = 40)
{
	struct sockaddr *addr = silent_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), other = rsocket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, connect_to_nobody, &fd));
	CHECK_OK(rfcntl(other, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(other, addr, addr_length(addr)), EINPROGRESS);
	await_sleep();
	CHECK_OK(rshutdown(other, SHUT_WR));
	CHECK(poll_one(other, POLLOUT, 0) & POLLERR);
	CHECK_EQ(option_of(other, SOL_SOCKET, SO_ERROR), ECONNRESET);
	CHECK_OK(rshutdown(fd, SHUT_RDWR));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(other));
}

/* ---- Descriptors to poll ------------------------------------------------------ */

TEST(poll_all, "[fix] rpoll takes as many entries as a process may have descriptors")
{
	struct ends e = make_ends(test_addr(PORT));
	struct rlimit limit = { 2048, 2048 };
	static struct pollfd entries[2048];
	int pipes[2];

	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	CHECK_OK(pipe(pipes));
	for (int i = 0; i < 2048; i++)
		entries[i] = (struct pollfd){ .fd = -1, .events = POLLIN, .revents = 77 };
	entries[7].fd = e.server;
	entries[8].fd = pipes[0];
	entries[2047].fd = e.client;
	CHECK_EQ(rpoll(entries, 2048, 10), 0);
	CHECK_EQ(rpoll(entries, 2048, 0), 0);
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	CHECK_EQ(rpoll(entries, 2048, LONG), 1);
	CHECK_EQ(entries[8].revents, POLLIN);
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	while (rpoll(entries, 2048, LONG) < 2)
		;
	for (int i = 0; i < 2048; i++)
		CHECK_EQ(entries[i].revents, i == 7 || i == 8 ? POLLIN : 0);
	close_ends(&e);
}

TEST(poll_beyond, "[fix] rpoll of more entries than descriptors is EINVAL, and looks at none")
{
	struct ends e = make_ends(test_addr(PORT));
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pollfd *last = (struct pollfd *)(pages + 4096) - 1;

	CHECK(pages != MAP_FAILED);
	CHECK_OK(munmap(pages + 4096, 4096));
	*last = (struct pollfd){ .fd = e.server, .events = POLLIN };
	CHECK_ERRNO(rpoll(last, INT_MAX, 10), EINVAL);
	CHECK_ERRNO(rpoll(last, (nfds_t)-1, 10), EINVAL);
	CHECK_EQ(rpoll(last, 1, 0), 0);
	close_ends(&e);
}

/* ---- Out of descriptors from the beginning ------------------------------------ */

/* Leaves room for `spare` descriptors; returns how many it has taken. */
static int leave_descriptors(int *fds, int spare)
{
	struct rlimit limit = { DESCRIPTORS, DESCRIPTORS };
	int count;

	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	count = fill_descriptors(fds, DESCRIPTORS);
	while (spare-- > 0)
		close(fds[--count]);
	return count;
}

static void listen_poorly(void *argument)
{
	struct sockaddr *addr = test_addr(PORT);
	int fds[DESCRIPTORS], count = leave_descriptors(fds, *(int *)argument);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), status = -1, client, server;

	if (fd < 0) {
		CHECK_EQ(errno, EMFILE);
	} else {
		CHECK_OK(rbind(fd, addr, addr_length(addr)));
		status = rlisten(fd, 4);
	}
	while (count > 0)
		close(fds[--count]);
	if (fd < 0) {
		fd = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(fd >= 0);
		CHECK_OK(rbind(fd, addr, addr_length(addr)));
	}
	if (status)
		CHECK_OK(rlisten(fd, 4));
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK_OK(rfcntl(client, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(client, addr, addr_length(addr)), EINPROGRESS);
	CHECK_EQ(poll_one(fd, POLLIN, LONG), POLLIN);
	server = raccept(fd, NULL, NULL);
	CHECK(server >= 0);
	CHECK_EQ(poll_one(client, POLLOUT, LONG), POLLOUT);
	CHECK_OK(rfcntl(client, F_SETFL, 0));
	echo(client, server);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(fd));
}

TEST(poor_listener, "[fix] out of descriptors from the beginning, a listener listens later",
     .timeout = 90)
{
	for (int spare = 0; spare < 10; spare++)
		run_in_child(listen_poorly, &spare);
}

struct client {
	int spare;
	int flags;
};

static void connect_poorly(void *argument)
{
	const struct client *client = argument;
	struct sockaddr *addr = test_addr(PORT);
	int fds[DESCRIPTORS], count = leave_descriptors(fds, client->spare);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), status = -1;

	if (fd < 0)
		CHECK_EQ(errno, EMFILE);
	if (fd >= 0 && rfcntl(fd, F_SETFL, client->flags) == 0)
		status = rconnect(fd, addr, addr_length(addr));
	/* One that began goes on, and one that could not can be begun again. */
	if (status < 0 && errno != EINPROGRESS) {
		while (count > 0)
			close(fds[--count]);
		if (fd >= 0)
			rconnect(fd, addr, addr_length(addr));
	}
	while (count > 0)
		close(fds[--count]);
	if (fd >= 0) {
		CHECK(poll_one(fd, POLLOUT, LONG) & POLLOUT);
		CHECK_OK(rclose(fd));
	}
	fd = connect_to(addr);
	CHECK_EQ(rsend(fd, "x", 1, 0), 1);
	CHECK_OK(rclose(fd));
}

/* Takes whatever comes; writes a byte to the descriptor when it can come. */
static void take_all(const void *unused, long ready)
{
	int listener = listen_on(test_addr(PORT), 8), fd;
	char byte;

	(void)unused;
	CHECK_EQ(write((int)ready, "x", 1), 1);
	while ((fd = raccept(listener, NULL, NULL)) >= 0) {
		while (rrecv(fd, &byte, 1, 0) > 0)
			;
		CHECK_OK(rclose(fd));
	}
}

TEST(poor_client, "[fix] out of descriptors from the beginning, a client connects later",
     .timeout = 120)
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK_OK(pipe(ready));
	pid = start_peer(take_all, NULL, ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	for (int i = 0; i < 20; i++) {
		struct client client = { .spare = i / 2, .flags = i % 2 ? O_NONBLOCK : 0 };

		run_in_child(connect_poorly, &client);
	}
	end_peer(pid);
}

static void *wait_poorly(void *argument)
{
	struct ends *e = argument;
	struct timeval soon = { .tv_usec = 50000 }, never = { 0 };
	char byte;

	CHECK_OK(rsetsockopt(e->server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)));
	CHECK_ERRNO((int)rrecv(e->server, &byte, 1, 0), EAGAIN);
	CHECK_EQ(poll_one(e->server, POLLIN, 50), 0);
	CHECK_OK(rsetsockopt(e->server, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never)));
	for (int i = 0; i < QUESTIONS; i++) {
		CHECK_EQ(rsend(e->server, "x", 1, 0), 1);
		if (i % 2)
			CHECK_EQ(poll_one(e->server, POLLIN, LONG), POLLIN);
		CHECK_EQ(rrecv(e->server, &byte, 1, 0), 1);
	}
	CHECK_EQ(rrecv(e->server, &byte, 1, 0), 0);
	return NULL;
}

TEST(poor_thread, "[fix] out of descriptors, a thread can still wait, for data, time and a shutdown")
{
	struct ends e = make_ends(test_addr(PORT));
	int fds[DESCRIPTORS], count = leave_descriptors(fds, 0);
	pthread_t thread;
	char byte;

	CHECK_OK(pthread_create(&thread, NULL, wait_poorly, &e));
	/* There is none to see whether it sleeps, so it mostly does. */
	for (int i = 0; i < QUESTIONS; i++) {
		CHECK_EQ(rrecv(e.client, &byte, 1, 0), 1);
		CHECK_EQ(rsend(e.client, "y", 1, 0), 1);
	}
	poll(NULL, 0, 50);
	CHECK_OK(rshutdown(e.server, SHUT_RD));
	CHECK_OK(pthread_join(thread, NULL));
	while (count > 0)
		close(fds[--count]);
	close_ends(&e);
}

static void receive_poorly(void *argument)
{
	struct sockaddr *addr = test_addr(PORT);
	int fds[DESCRIPTORS], count = leave_descriptors(fds, *(int *)argument);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0), status = -1, sender;
	char byte;

	if (fd >= 0)
		status = rbind(fd, addr, addr_length(addr));
	while (count > 0)
		close(fds[--count]);
	if (fd < 0)
		fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	if (status)
		CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_ERRNO(rbind(fd, addr, addr_length(addr)), EINVAL);
	sender = rsocket(AF_INET, SOCK_DGRAM, 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(rsendto(sender, "x", 1, 0, addr, addr_length(addr)), 1);
		CHECK_EQ(poll_one(fd, POLLIN, LONG), POLLIN);
		CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	}
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(sender));
}

TEST(poor_datagrams, "[fix] out of descriptors from the beginning, a datagram socket is bound later",
     .timeout = 90)
{
	for (int spare = 0; spare < 12; spare++)
		run_in_child(receive_poorly, &spare);
}

/* An address of this host that no RDMA device has (RFC 5737). */
static const char *const OWN_WITHOUT_DEVICE = "192.0.2.1";

static void remove_address(void)
{
	run_command("ip addr del %s/32 dev lo", OWN_WITHOUT_DEVICE);
}

TEST(as_before, "[fix] a datagram socket that could not be bound or connected is as before",
     .cleanup = remove_address)
{
	struct sockaddr *addr = test_addr(PORT), *local = make_addr(OWN_WITHOUT_DEVICE, PORT);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0), sender = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_storage name;
	socklen_t length = sizeof(name);
	char byte;

	run_command("ip addr add %s/32 dev lo", OWN_WITHOUT_DEVICE);
	CHECK_ERRNO(rbind(fd, local, addr_length(local)), ENODEV);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_ERRNO(rconnect(sender, local, addr_length(local)), ENODEV);
	CHECK_ERRNO(rgetpeername(sender, (struct sockaddr *)&name, &length), ENOTCONN);
	CHECK_EQ(rsendto(sender, "x", 1, 0, addr, addr_length(addr)), 1);
	CHECK_EQ(poll_one(fd, POLLIN, LONG), POLLIN);
	length = sizeof(name);
	CHECK_EQ(rrecvfrom(fd, &byte, 1, 0, (struct sockaddr *)&name, &length), 1);
	/* It hears of everybody. */
	CHECK_EQ(rsendto(fd, "y", 1, 0, (struct sockaddr *)&name, length), 1);
	CHECK_EQ(poll_one(sender, POLLIN, LONG), POLLIN);
	CHECK_EQ(rrecv(sender, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'y');
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(sender));
}

/* ---- Numbers that become another's ---------------------------------------------- */

/* Not in the oldest headers, which programs are linked to. */
static int (*create_set)(int);
static int (*change_set)(int, int, int, struct epoll_event *);
static int (*wait_for_set)(int, struct epoll_event *, int, int);

static int new_set(void)
{
	int set;

	create_set = (int (*)(int))library_symbol("repoll_create");
	change_set = (int (*)(int, int, int, struct epoll_event *))library_symbol("repoll_ctl");
	wait_for_set = (int (*)(int, struct epoll_event *, int, int))library_symbol("repoll_wait");
	set = create_set(0);
	CHECK(set >= 0);
	return set;
}

TEST(number_of_set, "[race] a socket with the number of a set that close(2) closed is itself")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 4), set = new_set(), fd, server;
	char byte;

	CHECK_OK(close(set));
	fd = connect_to(addr);
	CHECK_EQ(fd, set);
	server = raccept(listener, NULL, NULL);
	echo(fd, server);
	CHECK_EQ(change_set(fd, EPOLL_CTL_DEL, server, NULL), -1);
	CHECK_EQ(errno, EINVAL);
	/* It is the socket that is closed. */
	CHECK_OK(rclose(fd));
	CHECK_EQ(rrecv(server, &byte, 1, 0), 0);
	CHECK_ERRNO(rclose(fd), EBADF);
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

TEST(number_of_socket, "[race] a set with the number of a socket that close(2) closed is itself")
{
	struct sockaddr *addr = test_addr(PORT);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 };
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), listener, set, client, server;

	CHECK(fd >= 0);
	CHECK_OK(close(fd));
	set = new_set();
	CHECK_EQ(set, fd);
	listener = listen_on(addr, 4);
	client = connect_to(addr);
	server = raccept(listener, NULL, NULL);
	CHECK_OK(change_set(set, EPOLL_CTL_ADD, server, &event));
	CHECK_EQ(rsend(client, "x", 1, 0), 1);
	CHECK_EQ(wait_for_set(set, &event, 1, LONG), 1);
	CHECK_EQ(rsend(set, "x", 1, 0), -1);
	CHECK_OK(rclose(set));
	CHECK_ERRNO(rclose(set), EBADF);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}

TEST(number_in_set, "[race] a socket leaves its set when close(2) makes its number another's")
{
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = make_ends(addr);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 };
	int set = new_set(), fd, server;

	CHECK_OK(change_set(set, EPOLL_CTL_ADD, e.client, &event));
	CHECK_OK(close(e.client));
	fd = connect_to(addr);
	CHECK_EQ(fd, e.client);
	server = raccept(e.listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_ERRNO(change_set(set, EPOLL_CTL_MOD, fd, &event), ENOENT);
	CHECK_ERRNO(change_set(set, EPOLL_CTL_DEL, fd, &event), ENOENT);
	event.data.u64 = 7;
	CHECK_OK(change_set(set, EPOLL_CTL_ADD, fd, &event));
	CHECK_EQ(wait_for_set(set, &event, 1, 0), 0);
	CHECK_EQ(rsend(server, "x", 1, 0), 1);
	CHECK_EQ(wait_for_set(set, &event, 1, LONG), 1);
	CHECK_EQ(event.data.u64, 7);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(e.listener));
	CHECK_OK(rclose(set));
}
