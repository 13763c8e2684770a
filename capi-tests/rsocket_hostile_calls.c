/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls on sockets whose peer is hostile and speaks their protocol over verbs:
 * what it says when it is connected to, and what it does while they are used.
 */
#include "rsocket_pair.h"
#include "rsocket_peer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PORT = 7761, MAPPINGS = 4 };

static void replied(const void *data, size_t size)
{
	struct called called = call_peer(test_addr(PORT), NULL);
	struct wire_peer hostile = wire_take(called.request);
	char byte = 0;

	wire_prepare(&hostile);
	wire_reply(&hostile, data, size);
	CHECK(poll_one(called.fd, POLLOUT, EVENT_TIMEOUT * 1000) & POLLERR);
	CHECK_EQ(option_of(called.fd, SOL_SOCKET, SO_ERROR), ENOTSUP);
	CHECK(rsend(called.fd, &byte, 1, MSG_NOSIGNAL) < 0);
	CHECK(rrecv(called.fd, &byte, 1, 0) <= 0);
	end_call(&called, &hostile);
}

TEST(reply_version, "27 a reply of another version of the protocol fails with ENOTSUP")
{
	struct hello hello = { .version = 2 };

	replied(&hello, sizeof(hello));
}

TEST(reply_nothing, "28 a reply without private data fails with ENOTSUP")
{
	replied(NULL, 0);
}

TEST(reply_lies, "replies with the least and the most of everything do no harm [race]",
     .timeout = 60)
{
	char data[1000] = "";

	keep_original_away();
	for (int number = 0; number < WIRE_LIES; number++) {
		struct called called = call_peer(test_addr(PORT), NULL);
		struct wire_peer hostile = wire_take(called.request);
		struct hello hello;

		wire_prepare(&hostile);
		hello = wire_lie(&hostile, number);
		wire_accept(&hostile, &hello);
		CHECK(poll_one(called.fd, POLLOUT | POLLIN, 100) >= 0);
		for (int round = 0; round < 4; round++)
			CHECK(rsend(called.fd, data, sizeof(data), MSG_NOSIGNAL) <=
			      (ssize_t)sizeof(data));
		CHECK(rrecv(called.fd, data, sizeof(data), 0) <= 0);
		end_call(&called, &hostile);
	}
}

/* ---- While a socket is used --------------------------------------------- */

/* A socket that a hostile peer is connected to. */
struct prey {
	int listener;
	int fd;
	struct wire_peer hostile;
	atomic_bool enough;
	atomic_bool ended;
};

static void be_met(struct prey *prey)
{
	struct sockaddr *addr = test_addr(PORT);
	struct hello hello;

	prey->listener = rsocket(AF_INET, SOCK_STREAM, 0);
	set_option(prey->listener, SOL_SOCKET, SO_REUSEADDR, 1);
	set_option(prey->listener, SOL_RDMA, RDMA_IOMAPSIZE, MAPPINGS);
	CHECK_OK(rbind(prey->listener, addr, addr_length(addr)));
	CHECK_OK(rlisten(prey->listener, 4));
	prey->hostile = wire_open(addr);
	/* For ever, if the socket has no receives. */
	prey->hostile.retries = 7;
	hello = wire_hello(&prey->hostile, 32, 1 << 14);
	wire_connect(&prey->hostile, &hello);
	prey->fd = raccept(prey->listener, NULL, NULL);
	CHECK(prey->fd >= 0);
}

static void be_left(struct prey *prey)
{
	CHECK_OK(rclose(prey->fd));
	wire_close(&prey->hostile);
	CHECK_OK(rclose(prey->listener));
}

/* Messages and writes that say nothing, as many as go. */
static void *flood(void *argument)
{
	struct prey *prey = argument;
	struct wire_peer *hostile = &prey->hostile;
	bool up = true;

	while (up && !prey->enough)
		up = wire_message(hostile, OP_CONTROL, SAY_KEEPALIVE) &&
		     wire_message(hostile, OP_GRANT, 32) &&
		     wire_say_from(hostile, IBV_WR_RDMA_WRITE, 0, NULL, 0, 0, 0);
	CHECK(up);
	prey->ended = true;
	return NULL;
}

static long milliseconds(void)
{
	struct timespec now;

	CHECK_OK(clock_gettime(CLOCK_MONOTONIC, &now));
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TEST(flooded, "a flood of messages that say nothing keeps no call longer than it may take [race]",
     .timeout = 60)
{
	struct prey prey = { 0 };
	struct ends others;
	pthread_t thread;
	char bytes[6];
	long begin;

	be_met(&prey);
	CHECK_OK(pthread_create(&thread, NULL, flood, &prey));
	begin = milliseconds();
	CHECK_EQ(poll_one(prey.fd, POLLIN, 500), 0);
	CHECK(milliseconds() - begin >= 500);
	CHECK_ERRNO((int)rrecv(prey.fd, bytes, 1, MSG_DONTWAIT), EAGAIN);
	CHECK(milliseconds() - begin < 5000);
	others = make_ends(test_addr(PORT + 1));
	CHECK_EQ(rsend(others.client, "hello", 6, 0), 6);
	CHECK_EQ(rrecv(others.server, bytes, 6, MSG_WAITALL), 6);
	close_ends(&others);
	prey.enough = true;
	while (!prey.ended)
		poll_one(prey.fd, POLLIN, 10);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_EQ(rsend(prey.fd, "hello", 6, 0), 6);
	CHECK_EQ(wire_hear_other(&prey.hostile).value, 6);
	be_left(&prey);
}

/* An entry of a socket's list of mappings; in the reader's order. */
struct mapping {
	uint64_t offset;
	struct target target;
};

/* Tells of a mapping. */
static void expose(struct prey *prey, int index, struct mapping mapping)
{
	struct wire_peer *hostile = &prey->hostile;
	uint64_t mappings = be64toh(hostile->other.list_addr) +
			    LIST_ENTRIES * sizeof(struct target);

	memcpy(hostile->memory + 4096, &mapping, sizeof(mapping));
	CHECK(wire_say_from(hostile, IBV_WR_RDMA_WRITE_WITH_IMM,
			    (uint32_t)OP_MAPPING << 29 | index, hostile->memory + 4096,
			    sizeof(mapping), mappings + index * sizeof(mapping),
			    be32toh(hostile->other.list_key)));
}

TEST(mappings, "mappings that go beyond all numbers, or lead nowhere, are not gone around [race]")
{
	struct prey prey = { 0 };
	char data[16] = "";

	be_met(&prey);
	expose(&prey, 0, (struct mapping){ UINT64_MAX - 9, { 0, 0, UINT32_MAX } });
	expose(&prey, 1, (struct mapping){ 1000, { UINT64_MAX - 7, UINT32_MAX, UINT32_MAX } });
	expose(&prey, 2, (struct mapping){ 500, { 0, 0, 0 } });
	poll_one(prey.fd, POLLIN, 0);
	CHECK((ssize_t)riowrite(prey.fd, data, sizeof(data), 0, 0) <= 0);
	CHECK((ssize_t)riowrite(prey.fd, data, sizeof(data), 500, 0) <= 0);
	/* The peer's device refuses it. */
	CHECK_EQ((ssize_t)riowrite(prey.fd, data, sizeof(data), 1000, 0), sizeof(data));
	CHECK(poll_one(prey.fd, POLLIN, EVENT_TIMEOUT * 1000) & (POLLERR | POLLHUP));
	be_left(&prey);
}
