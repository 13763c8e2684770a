/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that a program ends by pthread_cancel(3) inside calls on sockets: one
 * that waits ends there, one that does not wait goes on to its end, and either
 * way others can use and close what it had to do with, and nothing is left.
 */
#include "rsocket_pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

enum {
	PORT = 7851,
	LONG = 15000,
	ROUNDS = 6,
	/* Descriptors that are kept for the next connection, now these and now those. */
	KEPT = 3,
};

/* ---- Waits ---------------------------------------------------------------- */

static void *receive(void *socket)
{
	char byte;

	rrecv(*(int *)socket, &byte, 1, 0);
	return NULL;
}

static void *receive_all(void *socket)
{
	char bytes[100];

	rrecv(*(int *)socket, bytes, sizeof(bytes), MSG_WAITALL);
	return NULL;
}

static void *read_vectors(void *socket)
{
	char bytes[2];
	struct iovec vectors[] = { { bytes, 1 }, { bytes + 1, 1 } };

	rreadv(*(int *)socket, vectors, 2);
	return NULL;
}

static void *receive_from(void *socket)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	char byte;

	rrecvfrom(*(int *)socket, &byte, 1, 0, (struct sockaddr *)&from, &length);
	return NULL;
}

static void *send_much(void *socket)
{
	static char much[8 << 20];

	rsend(*(int *)socket, much, sizeof(much), 0);
	return NULL;
}

static void *accept_one(void *socket)
{
	raccept(*(int *)socket, NULL, NULL);
	return NULL;
}

static void *connect_silent(void *socket)
{
	struct sockaddr *addr = silent_addr(7);

	rconnect(*(int *)socket, addr, addr_length(addr));
	return NULL;
}

static void *poll_both(void *socket)
{
	struct pollfd entries[] = {
		{ .fd = *(int *)socket, .events = POLLIN },
		{ .fd = -1 },
	};

	rpoll(entries, 2, -1);
	return NULL;
}

static void *select_one(void *socket)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(*(int *)socket, &set);
	rselect(*(int *)socket + 1, &set, NULL, NULL, NULL);
	return NULL;
}

static int (*create_set)(int);
static int (*change_set)(int, int, int, struct epoll_event *);
static int (*wait_set)(int, struct epoll_event *, int, int);

static void find_sets(void)
{
	create_set = (int (*)(int))library_symbol("repoll_create");
	change_set = (int (*)(int, int, int, struct epoll_event *))library_symbol("repoll_ctl");
	wait_set = (int (*)(int, struct epoll_event *, int, int))library_symbol("repoll_wait");
}

static void *wait_for_set(void *set)
{
	struct epoll_event event;

	wait_set(*(int *)set, &event, 1, -1);
	return NULL;
}

/* Starts a thread, cancels it while it waits, and sees it end. */
static void cancel_waiting(void *(*run)(void *), int fd)
{
	pthread_t thread;
	void *result;

	CHECK_OK(pthread_create(&thread, NULL, run, &fd));
	await_sleep();
	CHECK_OK(pthread_cancel(thread));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

static void close_whole(int fd)
{
	CHECK_OK(rclose(fd));
	/* Nobody has it any more. */
	CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

static void echo(int from, int to)
{
	char in[5] = { 0 };

	CHECK_EQ(rsend(from, "hello", 5, MSG_NOSIGNAL), 5);
	CHECK_EQ(rrecv(to, in, 5, MSG_WAITALL), 5);
	CHECK_OK(memcmp(in, "hello", 5));
}

/* No round adds to what the first has left. */
static void leave_nothing(void (*round)(void))
{
	unsigned int first;

	keep_original_away();
	round();
	first = open_descriptors();
	for (int i = 1; i < ROUNDS; i++)
		round();
	CHECK(open_descriptors() <= first + KEPT);
}

static void cancel_receives(void)
{
	void *(*const calls[])(void *) = {
		receive, receive_all, read_vectors, receive_from, poll_both, select_one,
	};
	struct ends e = make_ends(test_addr(PORT));

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		cancel_waiting(calls[i], e.server);
		echo(e.client, e.server);
		echo(e.server, e.client);
	}
	close_whole(e.client);
	close_whole(e.server);
	close_whole(e.listener);
}

TEST(receives, "[race] threads cancelled in receives and polls: the connection goes on",
     .timeout = 60)
{
	leave_nothing(cancel_receives);
}

static void cancel_send(void)
{
	struct ends e = make_ends(test_addr(PORT));

	cancel_waiting(send_much, e.client);
	/* What it sent before may be received. */
	while (poll_one(e.server, POLLIN, 100) & POLLIN) {
		static char in[1 << 16];

		CHECK(rrecv(e.server, in, sizeof(in), 0) > 0);
	}
	echo(e.client, e.server);
	close_whole(e.client);
	close_whole(e.server);
	close_whole(e.listener);
}

TEST(sends, "[race] a thread cancelled in a send: the connection goes on", .timeout = 60)
{
	leave_nothing(cancel_send);
}

static void cancel_accept(void)
{
	int listener = listen_on(test_addr(PORT), 8), client, server;

	cancel_waiting(accept_one, listener);
	cancel_waiting(poll_both, listener);
	client = connect_to(test_addr(PORT));
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	echo(client, server);
	close_whole(client);
	close_whole(server);
	close_whole(listener);
}

TEST(accepts, "[race] threads cancelled in accept: the next one gets the connection",
     .timeout = 60)
{
	leave_nothing(cancel_accept);
}

static void cancel_connect(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	cancel_waiting(connect_silent, fd);
	/* As after a signal. */
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, silent_addr(7), sizeof(struct sockaddr_in)), EALREADY);
	close_whole(fd);
}

TEST(connects, "[race] a thread cancelled in connect: the attempt goes on, and can be closed",
     .timeout = 60)
{
	leave_nothing(cancel_connect);
}

static void cancel_sets(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 }, got;
	struct ends e = make_ends(test_addr(PORT));
	int set = create_set(0);
	char byte;

	CHECK_OK(change_set(set, EPOLL_CTL_ADD, e.server, &event));
	cancel_waiting(wait_for_set, set);
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	CHECK_EQ(wait_set(set, &got, 1, LONG), 1);
	CHECK_EQ(got.data.u64, 5);
	CHECK_EQ(rrecv(e.server, &byte, 1, 0), 1);
	close_whole(set);
	close_whole(e.client);
	close_whole(e.server);
	close_whole(e.listener);
}

TEST(sets, "[race] a thread cancelled in epoll_wait: the set goes on", .timeout = 60)
{
	find_sets();
	leave_nothing(cancel_sets);
}

static void cancel_datagrams(void)
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	char byte;

	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	cancel_waiting(receive, fd);
	cancel_waiting(receive_from, fd);
	cancel_waiting(poll_both, fd);
	CHECK_EQ(rsendto(fd, "x", 1, 0, addr, addr_length(addr)), 1);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	close_whole(fd);
}

TEST(datagrams, "[race] threads cancelled in receives of datagrams: the socket goes on",
     .timeout = 60)
{
	leave_nothing(cancel_datagrams);
}

/* ---- Calls that do not wait ------------------------------------------------ */

/* Receives `size` bytes without waiting: they may still be on their way. */
static void receive_at_once(int fd, char *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t received = rrecv(fd, bytes + done, size - done, MSG_DONTWAIT);

		if (received < 0)
			CHECK_EQ(errno, EAGAIN);
		else
			CHECK(received > 0);
		done += received > 0 ? received : 0;
	}
}

/* What the thread that is cancelled uses. */
struct used {
	struct ends ends;
	int pipe[2];
};

static void *cancelled_calls(void *argument)
{
	struct used *used = argument;
	struct ends *e = &used->ends;
	struct pollfd both[] = {
		{ .fd = e->server, .events = POLLIN },
		{ .fd = used->pipe[0], .events = POLLIN },
	};
	struct sockaddr *addr = test_addr(PORT + 1);
	char bytes[4097] = { 0 };
	int fd;

	CHECK_OK(pthread_cancel(pthread_self()));
	CHECK_EQ(rsend(e->client, bytes, 1, 0), 1);
	CHECK_EQ(rsend(e->client, bytes, sizeof(bytes) - 1, 0), (ssize_t)sizeof(bytes) - 1);
	receive_at_once(e->server, bytes, sizeof(bytes));
	CHECK_ERRNO((int)rrecv(e->server, bytes, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(poll_one(e->server, POLLIN, 0), 0);
	CHECK_EQ(rpoll(both, 2, 0), 0);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_OK(rlisten(fd, 1));
	CHECK_OK(rclose(fd));
	fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	/* Where to is not known yet, which takes a moment. */
	if (rsendto(fd, "x", 1, MSG_DONTWAIT, addr, addr_length(addr)) != 1)
		CHECK_EQ(errno, EAGAIN);
	CHECK_OK(rclose(fd));
	CHECK_OK(rshutdown(e->client, SHUT_WR));
	CHECK_OK(rclose(e->client));
	return NULL;
}

static void cancel_before(void)
{
	struct used used = { .ends = make_ends(test_addr(PORT)) };
	pthread_t thread;
	void *result;

	CHECK_OK(pipe(used.pipe));
	CHECK_OK(pthread_create(&thread, NULL, cancelled_calls, &used));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(!result);
	CHECK_OK(close(used.pipe[0]));
	CHECK_OK(close(used.pipe[1]));
	close_whole(used.ends.server);
	close_whole(used.ends.listener);
}

TEST(calls, "[race] calls that do not wait are no cancellation points: none is left half done",
     .timeout = 60)
{
	leave_nothing(cancel_before);
}

/* ---- Jumps ---------------------------------------------------------------- */

static sigjmp_buf landing;

static void jump(int signal)
{
	(void)signal;
	siglongjmp(landing, 1);
}

static void *jump_and_end(void *socket)
{
	int fd = *(int *)socket;

	if (!sigsetjmp(landing, 1))
		receive(socket);
	/* C libraries have changed that in the sleep. */
	CHECK_OK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL));
	/* What the call had is let go when the thread ends, the socket with it. */
	CHECK_OK(rclose(fd));
	CHECK_OK(pthread_cancel(pthread_self()));
	return NULL;
}

static void jump_out(void)
{
	struct ends e = make_ends(test_addr(PORT));
	pthread_t thread;
	void *result;

	CHECK_OK(pthread_create(&thread, NULL, jump_and_end, &e.server));
	await_sleep();
	CHECK_OK(pthread_kill(thread, SIGUSR1));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(!result);
	CHECK_EQ(fcntl(e.server, F_GETFD), -1);
	close_whole(e.client);
	close_whole(e.listener);
}

TEST(jumps, "[race] a thread that jumped out of a wait and is cancelled as it ends: nothing is "
	    "left", .timeout = 60)
{
	signal(SIGUSR1, jump);
	leave_nothing(jump_out);
}

/* ---- At any time ----------------------------------------------------------- */

static void *ping(void *socket)
{
	char byte = 0;

	for (;;) {
		rsend(*(int *)socket, &byte, 1, MSG_NOSIGNAL);
		rrecv(*(int *)socket, &byte, 1, 0);
	}
	return NULL;
}

static void cancel_any_time(void)
{
	struct ends e = make_ends(test_addr(PORT));
	pthread_t threads[2];
	char byte = 0;
	void *result;

	CHECK_OK(pthread_create(&threads[0], NULL, ping, &e.client));
	CHECK_OK(pthread_create(&threads[1], NULL, ping, &e.server));
	for (int spins = rand() % 300000; spins; spins--)
		__asm__ volatile("");
	for (int i = 0; i < 2; i++)
		CHECK_OK(pthread_cancel(threads[i]));
	for (int i = 0; i < 2; i++) {
		CHECK_OK(pthread_join(threads[i], &result));
		CHECK(result == PTHREAD_CANCELED);
	}
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	/* After what is still on its way. */
	do
		CHECK_EQ(rrecv(e.server, &byte, 1, 0), 1);
	while (byte != 'x');
	close_whole(e.client);
	close_whole(e.server);
	close_whole(e.listener);
}

TEST(any_time, "[race] threads cancelled at any time, in calls or not: the connection goes on",
     .timeout = 120)
{
	unsigned int first;

	keep_original_away();
	cancel_any_time();
	first = open_descriptors();
	for (int i = test_rounds(40); i; i--)
		cancel_any_time();
	CHECK(open_descriptors() <= first + KEPT);
}
