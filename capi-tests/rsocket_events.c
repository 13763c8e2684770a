/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What becomes of sockets when the kernel cannot hand out the next event of the
 * connection manager, as happens when it is short of memory.
 */
#include "rsocket_pair.h"

#include <limits.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

enum { PORT = 7791, WAIT = 10000, SPAN = 500, NOBODY = 65534 };

/* A command of the connection manager, as <rdma/rdma_user_cm.h> has it. */
enum { GET_EVENT = 12 };
struct get_event {
	uint32_t command;
	uint16_t in;
	uint16_t out;
	uint64_t response;
};

/* How the next commands fail by which a socket asks for its event, and how many
   have failed. */
static atomic_int socket_of, error, left, failures;
/* Readable once one has. */
static int failed = -1;

/* In place of the C library's. */
ssize_t write(int fd, const void *data, size_t length)
{
	const struct get_event *asked = data;

	if (left > 0 && fd == socket_of && length == sizeof(*asked) &&
	    asked->command == GET_EVENT) {
		left--;
		failures++;
		if (failed >= 0)
			syscall(SYS_write, failed, &(uint64_t){ 1 }, sizeof(uint64_t));
		errno = error;
		return -1;
	}
	return syscall(SYS_write, fd, data, length);
}

static void fail_events(int fd, int errno_, int count)
{
	if (failed < 0)
		failed = eventfd(0, EFD_CLOEXEC);
	socket_of = fd;
	error = errno_;
	failures = 0;
	left = count;
}

static int begin_to_connect(struct sockaddr *addr)
{
	int fd = rsocket(addr->sa_family, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	return fd;
}

/* Two sockets become a connection, which works. */
static void complete(int listener, int client)
{
	char byte;
	int server;

	CHECK(poll_one(listener, POLLIN, WAIT) & POLLIN);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK(poll_one(client, POLLOUT, WAIT) & POLLOUT);
	CHECK_EQ(option_of(client, SOL_SOCKET, SO_ERROR), 0);
	CHECK_EQ(rsend(client, "x", 1, 0), 1);
	CHECK_EQ(rrecv(server, &byte, 1, 0), 1);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
}

static const int PASSING[] = { ENOMEM, ENOBUFS, EMFILE, ENFILE, EIO, EINTR, EAGAIN };
enum { KINDS = sizeof(PASSING) / sizeof(*PASSING), MANY = 6 };

TEST(listening, "what the kernel is short of for a moment ends no listener [race]", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8);

	keep_original_away();
	for (int i = 0; i < 2 * KINDS; i++) {
		int count = i % 2 ? MANY : 1;

		fail_events(listener, PASSING[i / 2], count);
		complete(listener, begin_to_connect(addr));
		CHECK_EQ(failures, count);
	}
	CHECK_OK(rclose(listener));
}

TEST(connecting, "nor does it end an attempt to connect [race]", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8), client;

	keep_original_away();
	for (int i = 0; i < 2 * KINDS; i++) {
		client = rsocket(addr->sa_family, SOCK_STREAM, 0);
		CHECK(client >= 0);
		if (i % 2)
			CHECK_OK(rfcntl(client, F_SETFL, O_NONBLOCK));
		fail_events(client, PASSING[i / 2], MANY);
		if (i % 2)
			CHECK_ERRNO(rconnect(client, addr, addr_length(addr)), EINPROGRESS);
		else
			CHECK_OK(rconnect(client, addr, addr_length(addr)));
		complete(listener, client);
		CHECK_EQ(failures, MANY);
	}
	CHECK_OK(rclose(listener));
}

static uint64_t processor_ms(void)
{
	struct timespec now;

	CHECK_OK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* For a while, in which nothing is to be had. */
static void wait_without_spinning(int fd)
{
	struct pollfd first = { .fd = failed, .events = POLLIN };
	uint64_t before;

	CHECK_EQ(poll(&first, 1, WAIT), 1);
	before = processor_ms();
	CHECK_EQ(poll_one(fd, POLLIN, SPAN), 0);
	CHECK(processor_ms() - before < SPAN / 2);
	CHECK(failures > 1 && failures < SPAN / 4);
}

TEST(lasting, "what the kernel is short of for long is no reason to spin [race]", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8), client;

	keep_original_away();
	fail_events(listener, ENOMEM, INT_MAX);
	client = begin_to_connect(addr);
	wait_without_spinning(listener);
	left = 0;
	complete(listener, client);
	CHECK_OK(rclose(listener));
}

static void *connect_now(void *argument)
{
	int *client = argument;
	struct sockaddr *addr = test_addr(PORT);

	CHECK_OK(rconnect(*client, addr, addr_length(addr)));
	return NULL;
}

TEST(lasting_connect, "nor for a thread that connects [race]", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8), client = rsocket(addr->sa_family, SOCK_STREAM, 0);
	pthread_t thread;

	keep_original_away();
	CHECK(client >= 0);
	fail_events(client, ENOMEM, INT_MAX);
	CHECK_OK(pthread_create(&thread, NULL, connect_now, &client));
	wait_without_spinning(listener);
	left = 0;
	CHECK_OK(pthread_join(thread, NULL));
	complete(listener, client);
	CHECK_OK(rclose(listener));
}

TEST(useless, "a socket whose events cannot be had any more fails", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8), client, other;

	keep_original_away();
	fail_events(listener, ENODEV, 1);
	client = begin_to_connect(addr);
	CHECK_ERRNO(raccept(listener, NULL, NULL), ENODEV);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(listener));
	other = rsocket(addr->sa_family, SOCK_STREAM, 0);
	CHECK(other >= 0);
	fail_events(other, ENODEV, 1);
	CHECK_ERRNO(rconnect(other, addr, addr_length(addr)), ENODEV);
	CHECK_OK(rclose(other));
}

/* Listens as root, and serves as nobody. */
static void serve_as_nobody(const void *argument, long ready)
{
	int listener = listen_on(test_addr(PORT), 8);

	(void)argument;
	CHECK_OK(setuid(NOBODY));
	CHECK_EQ(write((int)ready, "x", 1), 1);
	/* The kernel serves a channel only with the rights with which it was opened. */
	CHECK_ERRNO(raccept(listener, NULL, NULL), EACCES);
	CHECK_OK(rclose(listener));
}

TEST(refused, "so does a listener whose process has given up its rights", .timeout = 60)
{
	int ready[2], client;
	char byte;
	pid_t pid;

	keep_original_away();
	CHECK_OK(pipe(ready));
	pid = start_peer(serve_as_nobody, NULL, ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	client = begin_to_connect(test_addr(PORT));
	wait_peer(pid);
	CHECK_OK(rclose(client));
}
