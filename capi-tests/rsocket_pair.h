/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs for stream sockets over RDMA share: a connected pair of
 * them, in one process or with the peer in another.
 */
#ifndef CAPI_TESTS_RSOCKET_PAIR_H
#define CAPI_TESTS_RSOCKET_PAIR_H

#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

struct ends {
	int listener;
	int client;
	int server;
};

static inline int listen_on(struct sockaddr *addr, int backlog)
{
	int one = 1, fd = rsocket(addr->sa_family, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_OK(rlisten(fd, backlog));
	return fd;
}

/* Connects a socket that may have been given options. */
static inline struct ends join(int client, struct sockaddr *addr)
{
	struct ends ends = { .listener = listen_on(addr, 8), .client = client };

	CHECK_OK(rconnect(client, addr, addr_length(addr)));
	ends.server = raccept(ends.listener, NULL, NULL);
	CHECK(ends.server >= 0);
	return ends;
}

static inline struct ends make_ends(struct sockaddr *addr)
{
	int client = rsocket(addr->sa_family, SOCK_STREAM, 0);

	CHECK(client >= 0);
	return join(client, addr);
}

static inline void close_ends(struct ends *ends)
{
	CHECK_OK(rclose(ends->client));
	CHECK_OK(rclose(ends->server));
	CHECK_OK(rclose(ends->listener));
}

static inline int option_of(int fd, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof(value);

	CHECK_OK(rgetsockopt(fd, level, name, &value, &length));
	return value;
}

static inline void set_option(int fd, int level, int name, int value)
{
	CHECK_OK(rsetsockopt(fd, level, name, &value, sizeof(value)));
}

static inline short poll_one(int fd, short events, int timeout)
{
	struct pollfd entry = { .fd = fd, .events = events };

	CHECK(rpoll(&entry, 1, timeout) >= 0);
	return entry.revents;
}

/* Accepts one connection and lets `what`, a function, do the rest. */
static inline void accept_for(const void *what, long number)
{
	void (*run)(int fd) = (void (*)(int))(uintptr_t)what;
	int listener = listen_on(test_addr((uint16_t)number), 8), fd;

	CHECK_EQ(write((int)(number >> 16), "x", 1), 1);
	fd = raccept(listener, NULL, NULL);
	CHECK(fd >= 0);
	run(fd);
}

/*
 * A peer in a process of its own, which accepts one connection on the port of
 * the test address and then runs the function. To be called before this process
 * uses RDMA.
 */
static inline pid_t peer_process(uint16_t port, void (*run)(int fd))
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK_OK(pipe(ready));
	pid = start_peer(accept_for, (const void *)(uintptr_t)run,
			 (long)ready[1] << 16 | port);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

static inline int connect_to(struct sockaddr *addr)
{
	int fd = rsocket(addr->sa_family, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(rconnect(fd, addr, addr_length(addr)));
	return fd;
}

/* For what the original was seen to wait for ever in, or very long. */
static inline void keep_original_away(void)
{
	/* Something that only the library to be tested has. */
	if (!dlsym(RTLD_DEFAULT, "rdma_set_min_rnr_timer"))
		SKIP("the original may wait for ever");
}

/* Takes all descriptors that there are; returns how many those are. */
static inline int fill_descriptors(int *fds, int most)
{
	int count = 0;

	while (count < most && (fds[count] = open("/dev/null", O_RDONLY)) >= 0)
		count++;
	return count;
}

/* A thread that interrupts the calls of another. */
struct interrupter {
	pthread_t thread;
	pthread_t target;
	atomic_bool over;
};

static inline void *interrupt_calls(void *argument)
{
	struct interrupter *interrupter = argument;

	/* Until one comes while the target waits: the first may be too early. */
	while (!interrupter->over) {
		poll(NULL, 0, 50);
		pthread_kill(interrupter->target, SIGUSR1);
	}
	return NULL;
}

/* Sends SIGUSR1 to this thread again and again. */
static inline void start_interrupting(struct interrupter *interrupter)
{
	interrupter->target = pthread_self();
	interrupter->over = false;
	CHECK_OK(pthread_create(&interrupter->thread, NULL, interrupt_calls, interrupter));
}

static inline void stop_interrupting(struct interrupter *interrupter)
{
	interrupter->over = true;
	CHECK_OK(pthread_join(interrupter->thread, NULL));
}

/* Ends a peer by a signal. */
static inline void end_peer(pid_t pid)
{
	int status;

	CHECK_OK(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
}

#endif
