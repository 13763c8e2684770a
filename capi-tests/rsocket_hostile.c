/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer that speaks the protocol of stream sockets wrongly, over verbs: a
 * socket that it is connected to ends with an error or with the stream, it
 * gives no more data than there was room for, and its listener goes on to
 * serve others.
 */
#include "rsocket_peer.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

enum {
	PORT = 7621,
	ROOM = 131072, /* of a socket's receive buffer */
};

/* ---- The victim: echoes what it receives, in a process of its own. ------ */

struct victim {
	pid_t pid;
	uint64_t *most; /* bytes that a connection gave it at most, shared */
};

static void serve(uint64_t *most, int ready)
{
	struct sockaddr *addr = test_addr(PORT);
	int one = 1, listener = rsocket(AF_INET, SOCK_STREAM, 0);
	char *data = malloc(ROOM);

	CHECK(listener >= 0);
	CHECK_OK(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK_OK(rbind(listener, addr, addr_length(addr)));
	CHECK_OK(rlisten(listener, 8));
	CHECK_EQ(write(ready, "x", 1), 1);
	for (;;) {
		int fd = raccept(listener, NULL, NULL);
		uint64_t received = 0;
		ssize_t count;

		CHECK(fd >= 0);
		while ((count = rrecv(fd, data, ROOM, 0)) > 0) {
			CHECK(count <= ROOM);
			received += count;
			if (received > *most)
				*most = received;
			/* As much as goes; a hostile peer may grant nothing. */
			rsend(fd, data, count, MSG_DONTWAIT | MSG_NOSIGNAL);
		}
		rclose(fd);
	}
}

static struct victim start(void)
{
	struct victim victim;
	int ready[2];
	char byte;

	victim.most = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(victim.most != MAP_FAILED);
	CHECK_OK(pipe(ready));
	victim.pid = fork();
	CHECK(victim.pid >= 0);
	if (victim.pid == 0) {
		serve(victim.most, ready[1]);
		_exit(EXIT_SUCCESS);
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return victim;
}

/* It lives, and serves one who behaves. */
static void finish(struct victim *victim)
{
	struct sockaddr *addr = test_addr(PORT);
	int status, fd = rsocket(AF_INET, SOCK_STREAM, 0);
	char data[] = "hello", answer[sizeof(data)];

	CHECK(fd >= 0);
	CHECK_OK(rconnect(fd, addr, addr_length(addr)));
	CHECK_EQ(rsend(fd, data, sizeof(data), 0), sizeof(data));
	CHECK_EQ(rrecv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	CHECK(!memcmp(data, answer, sizeof(data)));
	CHECK_OK(rclose(fd));
	CHECK_EQ(waitpid(victim->pid, &status, WNOHANG), 0);
	CHECK_OK(kill(victim->pid, SIGKILL));
	CHECK_EQ(waitpid(victim->pid, &status, 0), victim->pid);
}

/* ---- The peer ----------------------------------------------------------- */

/* What one who behaves says. */
static struct hello good_hello(const struct wire_peer *hostile)
{
	return wire_hello(hostile, 32, 1 << 14);
}

static struct wire_peer open_hostile(void)
{
	struct wire_peer hostile = wire_open(test_addr(PORT));

	/* What the victim does not answer any more is to fail soon. */
	hostile.retries = 1;
	return hostile;
}

static struct wire_peer hostile_peer(void)
{
	struct wire_peer hostile = open_hostile();
	struct hello hello = good_hello(&hostile);

	wire_connect(&hostile, &hello);
	return hostile;
}

/* The first bytes of the memory. */
static bool say(struct wire_peer *hostile, enum ibv_wr_opcode opcode, uint32_t word,
		uint64_t addr, uint32_t key, size_t size)
{
	return wire_say_from(hostile, opcode, word, hostile->memory, size, addr, key);
}

/* ---- Cases -------------------------------------------------------------- */

static void refused(const void *data, size_t size)
{
	struct victim victim = start();
	struct wire_peer hostile;

	hostile = wire_open(test_addr(PORT));
	wire_request(&hostile, data, size);
	take_event(hostile.channel, RDMA_CM_EVENT_REJECTED);
	wire_close(&hostile);
	finish(&victim);
}

TEST(version, "27 another version of the protocol is rejected")
{
	struct hello hello = { .version = 2 };

	refused(&hello, sizeof(hello));
}

TEST(nothing, "28 a request without private data is rejected")
{
	refused(NULL, 0);
}

TEST(short_hello, "28 a request with zeroes for private data is rejected")
{
	static const char zeroes[20];

	refused(zeroes, sizeof(zeroes));
}

TEST(too_long, "a message of more data than there is room for ends the connection [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	wire_message(&hostile, OP_DATA, (1 << 29) - 1);
	wire_close(&hostile);
	finish(&victim);
	CHECK(*victim.most <= ROOM);
}

TEST(too_much, "no more data is taken than there was room for [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	for (int round = 0; round < 20; round++)
		if (!wire_message(&hostile, OP_DATA, ROOM / 2))
			break;
	wire_close(&hostile);
	finish(&victim);
}

TEST(too_many, "more messages than credits end the connection [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	for (int round = 0; round < 3000; round++)
		if (!wire_message(&hostile, OP_DATA, round % 3))
			break;
	wire_close(&hostile);
	finish(&victim);
}

TEST(garbage, "garbage for immediate data does no harm [race]", .timeout = 60)
{
	struct victim victim = start();
	uint32_t value = 12345;

	for (int connection = 0; connection < 4; connection++) {
		struct wire_peer hostile = hostile_peer();

		for (int round = 0; round < 100; round++) {
			value = value * 1664525 + 1013904223;
			if (!say(&hostile, IBV_WR_RDMA_WRITE_WITH_IMM, value, 0, 0, 0))
				break;
		}
		wire_close(&hostile);
	}
	finish(&victim);
}

TEST(bad_target, "a target that is not the peer's breaks that connection only [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();
	uint64_t list = be64toh(hostile.other.list_addr);
	uint32_t key = be32toh(hostile.other.list_key);

	/* Fills the half that was announced; the echo goes to both. */
	memset(hostile.memory, 0xff, 32);
	for (int entry = 0; entry < 8; entry++)
		if (!say(&hostile, IBV_WR_RDMA_WRITE_WITH_IMM,
			 (uint32_t)OP_GRANT << 29 | 1000, list + 16 * (entry % 2), key, 16))
			break;
	for (int round = 0; round < 8; round++)
		if (!wire_message(&hostile, OP_DATA, 4000))
			break;
	wire_close(&hostile);
	finish(&victim);
}

TEST(bad_list, "target lists of no and of too many entries do no harm [race]")
{
	static const uint32_t counts[] = { 0, 1, 3, 0x10000, UINT32_MAX };
	struct victim victim = start();

	for (size_t index = 0; index < sizeof(counts) / sizeof(*counts); index++) {
		struct wire_peer hostile;
		struct hello hello;

		hostile = open_hostile();
		hello = good_hello(&hostile);
		hello.list_entries = htobe32(counts[index]);
		hello.buffer_length = htobe32(UINT32_MAX);
		hello.mappings = 255;
		wire_connect(&hostile, &hello);
		for (int round = 0; round < 4; round++)
			if (!wire_message(&hostile, OP_DATA, 10000))
				break;
		wire_close(&hostile);
	}
	finish(&victim);
}

TEST(bad_mapping, "mappings of indices that do not exist do no harm [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	for (uint32_t index = 0; index < 1 << 16; index += 4099)
		if (!wire_message(&hostile, OP_MAPPING, index))
			break;
	wire_message(&hostile, OP_DATA, 1);
	wire_close(&hostile);
	finish(&victim);
}

TEST(sends, "a send instead of a write breaks that connection only [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	for (int round = 0; round < 4; round++)
		if (!say(&hostile, round % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, 5, 0, 0,
			 round < 2 ? 0 : 100))
			break;
	wire_close(&hostile);
	finish(&victim);
}

TEST(after_goodbye, "data after the end of the stream is not taken [race]")
{
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	wire_message(&hostile, OP_CONTROL, 0);
	for (int round = 0; round < 4; round++)
		if (!wire_message(&hostile, OP_DATA, 100))
			break;
	wire_close(&hostile);
	finish(&victim);
}
