/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* rpoll, rselect and epoll sets with sockets and other descriptors at once. */
#include "rsocket_pair.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

enum { PORT = 7691, LONG = 15000 };

typedef int repoll_create_fn(int);
typedef int repoll_ctl_fn(int, int, int, struct epoll_event *);
typedef int repoll_wait_fn(int, struct epoll_event *, int, int);

TEST(mixed, "62 a pipe and a socket each wake rpoll")
{
	struct ends e = make_ends(test_addr(PORT));
	char byte;
	int pipes[2];

	CHECK_OK(pipe(pipes));
	struct pollfd entries[] = { { .fd = e.server, .events = POLLIN },
				    { .fd = pipes[0], .events = POLLIN } };
	for (int round = 0; round < 20; round++) {
		CHECK_EQ(rpoll(entries, 2, 0), 0);
		CHECK_EQ(write(pipes[1], "x", 1), 1);
		CHECK_EQ(rpoll(entries, 2, LONG), 1);
		CHECK_EQ(entries[0].revents, 0);
		CHECK_EQ(entries[1].revents, POLLIN);
		CHECK_EQ(read(pipes[0], &byte, 1), 1);
		CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
		CHECK_EQ(rpoll(entries, 2, LONG), 1);
		CHECK_EQ(entries[0].revents, POLLIN);
		CHECK_EQ(entries[1].revents, 0);
		CHECK_EQ(rrecv(e.server, &byte, 1, 0), 1);
	}
	close_ends(&e);
}

enum { POLLERS = 16, SOCKETS = 4, ROUNDS = 5 };

static struct {
	struct ends ends[SOCKETS];
	pthread_barrier_t start, seen;
} crowd;

/* Polls all sockets but one, of which one is ready in each round, or soon. */
static void *poll_some(void *argument)
{
	int number = (int)(intptr_t)argument;

	for (int round = 0; round < ROUNDS; round++) {
		for (int ready = 0; ready < SOCKETS; ready++) {
			struct pollfd entries[SOCKETS - 1];
			int skipped = (ready + 1 + number % (SOCKETS - 1)) % SOCKETS;
			int others = 0;

			for (int i = 0; i < SOCKETS; i++)
				if (i != skipped)
					entries[others++] = (struct pollfd){
						.fd = crowd.ends[i].server,
						.events = POLLIN,
					};
			pthread_barrier_wait(&crowd.start);
			CHECK_EQ(rpoll(entries, others, LONG), 1);
			for (int i = 0; i < others; i++)
				CHECK_EQ(entries[i].revents,
					 entries[i].fd == crowd.ends[ready].server ? POLLIN : 0);
			pthread_barrier_wait(&crowd.seen);
			/* The main thread takes the data. */
			pthread_barrier_wait(&crowd.seen);
		}
	}
	return NULL;
}

TEST(crowd_of_pollers, "63 16 threads that poll overlapping sets see every event [race]",
     .timeout = 30)
{
	pthread_t threads[POLLERS];
	char byte;

	CHECK_OK(pthread_barrier_init(&crowd.start, NULL, POLLERS + 1));
	CHECK_OK(pthread_barrier_init(&crowd.seen, NULL, POLLERS + 1));
	for (int i = 0; i < SOCKETS; i++)
		crowd.ends[i] = make_ends(test_addr(PORT + i));
	for (int i = 0; i < POLLERS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, poll_some, (void *)(intptr_t)i));
	for (int round = 0; round < ROUNDS; round++)
		for (int ready = 0; ready < SOCKETS; ready++) {
			pthread_barrier_wait(&crowd.start);
			CHECK_EQ(rsend(crowd.ends[ready].client, "x", 1, 0), 1);
			pthread_barrier_wait(&crowd.seen);
			CHECK_EQ(rrecv(crowd.ends[ready].server, &byte, 1, 0), 1);
			pthread_barrier_wait(&crowd.seen);
		}
	for (int i = 0; i < POLLERS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	for (int i = 0; i < SOCKETS; i++)
		close_ends(&crowd.ends[i]);
}

TEST(closed, "64 a closed descriptor is POLLNVAL")
{
	struct ends e = make_ends(test_addr(PORT));

	CHECK_OK(rclose(e.client));
	struct pollfd entries[] = { { .fd = e.client, .events = POLLIN },
				    { .fd = e.listener, .events = POLLIN } };
	CHECK_EQ(rpoll(entries, 2, LONG), 1);
	CHECK_EQ(entries[0].revents, POLLNVAL);
	CHECK_EQ(entries[1].revents, 0);
	CHECK_OK(rclose(e.server));
	CHECK_OK(rclose(e.listener));
}

TEST(descriptor_zero, "65 [fix] rselect knows descriptor 0")
{
	struct ends e = make_ends(test_addr(PORT));
	struct timeval limit = { .tv_sec = LONG / 1000 };
	int pipes[2];
	fd_set set;

	CHECK_OK(pipe(pipes));
	CHECK_EQ(dup2(pipes[0], 0), 0);
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	FD_ZERO(&set);
	FD_SET(0, &set);
	FD_SET(e.client, &set);
	CHECK_EQ(rselect(e.client + 1, &set, NULL, NULL, &limit), 1);
	CHECK(FD_ISSET(0, &set));
	CHECK(!FD_ISSET(e.client, &set));
	close_ends(&e);
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

TEST(microseconds, "65 [fix] rselect waits for less than a millisecond")
{
	struct ends e = make_ends(test_addr(PORT));
	fd_set set;

	for (int round = 0; round < 20; round++) {
		struct timeval limit = { .tv_usec = 900 };
		uint64_t start = now_us();

		FD_ZERO(&set);
		FD_SET(e.client, &set);
		CHECK_EQ(rselect(e.client + 1, &set, NULL, NULL, &limit), 0);
		CHECK(now_us() - start >= 900);
		CHECK(!FD_ISSET(e.client, &set));
	}
	close_ends(&e);
}

typedef int select_fn(int, fd_set *, fd_set *, fd_set *, struct timeval *);

/* What a call says of `fd` when one set stands for several questions. */
static void ask(select_fn *call, int fd, const bool asked[3], int said[2])
{
	struct timeval limit = { .tv_sec = LONG / 1000 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	said[0] = call(fd + 1, asked[0] ? &set : NULL, asked[1] ? &set : NULL,
		       asked[2] ? &set : NULL, &limit);
	said[1] = FD_ISSET(fd, &set);
}

TEST(one_set, "65 [fix] rselect takes one set for several questions, as select does")
{
	static const bool asked[][3] = {
		{ true, true }, { true, false, true }, { false, true, true },
		{ true, true, true }, { false, true },
	};
	struct ends e = make_ends(test_addr(PORT));
	int pair[2];

	CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	for (int readable = 0; readable < 2; readable++) {
		for (unsigned i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
			int expected[2], said[2];

			/* Nobody is to wait for what does not come. */
			if (!readable && !asked[i][1])
				continue;
			ask(select, pair[0], asked[i], expected);
			ask(rselect, e.client, asked[i], said);
			CHECK_EQ(said[0], expected[0]);
			CHECK_EQ(said[1], expected[1]);
		}
		CHECK_EQ(write(pair[1], "x", 1), 1);
		CHECK_EQ(rsend(e.server, "x", 1, 0), 1);
		CHECK_EQ(poll_one(e.client, POLLIN, LONG), POLLIN);
	}
	close_ends(&e);
}

static struct epoll {
	repoll_create_fn *create;
	repoll_ctl_fn *ctl;
	repoll_wait_fn *wait;
} epoll_calls(void)
{
	return (struct epoll){
		(repoll_create_fn *)library_symbol("repoll_create"),
		(repoll_ctl_fn *)library_symbol("repoll_ctl"),
		(repoll_wait_fn *)library_symbol("repoll_wait"),
	};
}

struct waiting {
	repoll_wait_fn *wait;
	int set;
	int result;
	struct epoll_event event;
};

static void *wait_for_event(void *argument)
{
	struct waiting *waiting = argument;

	waiting->result = waiting->wait(waiting->set, &waiting->event, 1, LONG);
	return NULL;
}

TEST(added, "68 what is added to a set while a thread waits for it wakes the thread")
{
	struct epoll epoll = epoll_calls();
	struct ends e = make_ends(test_addr(PORT));
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 7 };
	struct waiting waiting = { .wait = epoll.wait, .set = epoll.create(0) };
	pthread_t thread;

	CHECK(waiting.set >= 0);
	CHECK_OK(epoll.ctl(waiting.set, EPOLL_CTL_ADD, e.listener, &event));
	CHECK_OK(pthread_create(&thread, NULL, wait_for_event, &waiting));
	await_sleep();
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	CHECK_EQ(poll_one(e.server, POLLIN, LONG), POLLIN);
	event.data.u64 = 8;
	CHECK_OK(epoll.ctl(waiting.set, EPOLL_CTL_ADD, e.server, &event));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_EQ(waiting.result, 1);
	CHECK_EQ(waiting.event.data.u64, 8);
	CHECK_OK(epoll.ctl(waiting.set, EPOLL_CTL_DEL, e.server, NULL));
	CHECK_OK(epoll.ctl(waiting.set, EPOLL_CTL_DEL, e.listener, NULL));
	CHECK_OK(rclose(waiting.set));
	close_ends(&e);
}

TEST(closed_member, "70 [fix] a socket that is closed leaves its set, and the set closes")
{
	struct epoll epoll = epoll_calls();
	struct ends e = make_ends(test_addr(PORT));
	struct epoll_event event = { .events = EPOLLIN }, got;
	int set = epoll.create(0);

	CHECK(set >= 0);
	event.data.u64 = 1;
	CHECK_OK(epoll.ctl(set, EPOLL_CTL_ADD, e.client, &event));
	event.data.u64 = 2;
	CHECK_OK(epoll.ctl(set, EPOLL_CTL_ADD, e.server, &event));
	CHECK_OK(rclose(e.client));
	CHECK_EQ(poll_one(e.server, POLLIN, LONG) & POLLIN, POLLIN);
	CHECK_EQ(epoll.wait(set, &got, 1, LONG), 1);
	CHECK_EQ(got.data.u64, 2);
	CHECK_ERRNO(epoll.ctl(set, EPOLL_CTL_DEL, e.client, NULL), EBADF);
	CHECK_OK(rclose(e.server));
	CHECK_EQ(epoll.wait(set, &got, 1, 0), 0);
	CHECK_OK(epoll.ctl(set, EPOLL_CTL_ADD, e.listener, &event));
	CHECK_OK(rclose(set));
	CHECK_OK(rclose(e.listener));
}

enum { CONNECTIONS = 15, PROMPT = 100 };

static struct {
	int listener;
	uint64_t woken;
	pthread_barrier_t turn;
} awaited;

static void *await_connections(void *argument)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		int fd;

		CHECK_EQ(poll_one(awaited.listener, POLLIN, LONG), POLLIN);
		awaited.woken = now_ms();
		fd = raccept(awaited.listener, NULL, NULL);
		CHECK(fd >= 0);
		pthread_barrier_wait(&awaited.turn);
		CHECK_OK(rclose(fd));
	}
	return argument;
}

TEST(prompt, "61 a connection wakes rpoll of its listener, not a timer [race]", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	pthread_t thread;
	int late = 0;

	awaited.listener = listen_on(addr, 4);
	CHECK_OK(pthread_barrier_init(&awaited.turn, NULL, 2));
	CHECK_OK(pthread_create(&thread, NULL, await_connections, NULL));
	for (int i = 0; i < CONNECTIONS; i++) {
		int fd = connect_to(addr);
		uint64_t connected = now_ms();

		pthread_barrier_wait(&awaited.turn);
		late += awaited.woken > connected + PROMPT;
		CHECK_OK(rclose(fd));
	}
	CHECK_OK(pthread_join(thread, NULL));
	/* Every half a second, as a timer may be, is late four times out of five. */
	CHECK(late < CONNECTIONS / 2);
	CHECK_OK(rclose(awaited.listener));
}
