/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer that speaks the protocol of stream sockets wrongly, over verbs: a
 * socket that it is connected to ends with an error or with the stream, it
 * gives no more data than there was room for, and its listener goes on to
 * serve others.
 */
#include "rsocket_pair.h"
#include "rsocket_peer.h"

#include <sys/mman.h>
#include <sys/select.h>

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
	int listener = listen_on(test_addr(PORT), 8);
	char *data = malloc(ROOM);

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

/* The victim serves one who behaves: gives back what it is sent. */
static void be_served(const char *data, size_t size)
{
	int fd = connect_to(test_addr(PORT));

	for (size_t done = 0, step; done < size; done += step) {
		char answer[1000];

		step = size - done < sizeof(answer) ? size - done : sizeof(answer);
		CHECK_EQ(rsend(fd, data + done, step, 0), (ssize_t)step);
		CHECK_EQ(rrecv(fd, answer, step, MSG_WAITALL), (ssize_t)step);
		CHECK(!memcmp(data + done, answer, step));
	}
	CHECK_OK(rclose(fd));
}

/* It lives, and serves. */
static void finish(struct victim *victim)
{
	int status;

	be_served("hello", 6);
	CHECK_EQ(waitpid(victim->pid, &status, WNOHANG), 0);
	end_peer(victim->pid);
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

/* The answer to so much data, in the buffer that the peer offered. */
static void hear_answer(struct wire_peer *hostile, size_t size)
{
	for (size_t total = 0; total < size;) {
		struct heard heard = wire_hear_other(hostile);

		CHECK_EQ(heard.op, OP_DATA);
		total += heard.value;
		CHECK(total <= size);
	}
}

/* Sends data as one who behaves does. */
static void send_well(struct wire_peer *hostile, const char *data, size_t size)
{
	memcpy(hostile->memory + 4096, data, size);
	CHECK(wire_say_from(hostile, IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)OP_DATA << 29 | size,
			    hostile->memory + 4096, size, be64toh(hostile->other.buffer_addr),
			    be32toh(hostile->other.buffer_key)));
}

TEST(reserved, "[fix] messages without a meaning are passed over")
{
	static const enum wire_op reserved[] = { 1, 2, 3, 5 };
	static const uint32_t unknown[] = { SAY_KEEPALIVE, 3, 4, 0x10000, (1 << 29) - 1 };
	struct victim victim = start();
	struct wire_peer hostile = hostile_peer();

	for (size_t index = 0; index < sizeof(reserved) / sizeof(*reserved); index++)
		CHECK(wire_message(&hostile, reserved[index], 100));
	for (size_t index = 0; index < sizeof(unknown) / sizeof(*unknown); index++)
		CHECK(wire_message(&hostile, OP_CONTROL, unknown[index]));
	send_well(&hostile, "hello", 6);
	hear_answer(&hostile, 6);
	CHECK(!memcmp(hostile.memory + WIRE_BUFFER, "hello", 6));
	wire_close(&hostile);
	finish(&victim);
}

TEST(unwritten, "data that was announced and not written tells nothing of other connections [race]")
{
	enum { CLAIMED = 8192, ROUNDS = 4 };
	static char secret[ROOM / 2];
	struct victim victim;

	keep_original_away();
	victim = start();
	memset(secret, 's', sizeof(secret));
	for (int round = 0; round < ROUNDS; round++) {
		struct wire_peer hostile;

		be_served(secret, sizeof(secret));
		hostile = hostile_peer();
		memset(hostile.memory + WIRE_BUFFER, 'x', CLAIMED);
		CHECK(wire_message(&hostile, OP_DATA, CLAIMED));
		hear_answer(&hostile, CLAIMED);
		for (int place = 0; place < CLAIMED; place++)
			CHECK_EQ(hostile.memory[WIRE_BUFFER + place], 0);
		wire_close(&hostile);
	}
	finish(&victim);
}

TEST(reads, "what a socket received can be neither read nor changed by atomic operations")
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP
	};
	struct victim victim = start();

	for (size_t index = 0; index < sizeof(opcodes) / sizeof(*opcodes); index++) {
		struct wire_peer hostile = open_hostile();
		struct hello hello = good_hello(&hostile);

		hostile.reads = 1;
		wire_connect(&hostile, &hello);
		CHECK(!say(&hostile, opcodes[index], 0, be64toh(hostile.other.buffer_addr),
			   be32toh(hostile.other.buffer_key), 8));
		wire_close(&hostile);
	}
	finish(&victim);
}

TEST(lies, "requests with the least and the most of everything do no harm [race]",
     .timeout = 60)
{
	struct victim victim = start();

	for (int number = 0; number < WIRE_LIES; number++) {
		struct wire_peer hostile = open_hostile();
		struct hello hello = wire_lie(&hostile, number);

		wire_connect(&hostile, &hello);
		for (int round = 0; round < 2; round++)
			if (!wire_message(&hostile, OP_DATA, 10000))
				break;
		wire_close(&hostile);
	}
	finish(&victim);
}

/* ---- A peer that breaks the queue pair of a socket, and goes on as if nothing were. */

/* What a socket's process does when the peer breaks it. */
enum wait { IN_RRECV, IN_RRECV_ALL, IN_RPOLL, IN_RSELECT, WAITS };

static void *tell_when_asleep(void *ready)
{
	await_sleep();
	CHECK_EQ(write(*(int *)ready, "x", 1), 1);
	return NULL;
}

/* Ends once the connection is broken: with the error, or what tells of one. */
static void wait_for_break(int fd, enum wait wait)
{
	char data[100];
	fd_set set;

	switch (wait) {
	case IN_RRECV:
		CHECK_ERRNO(rrecv(fd, data, sizeof(data), 0), ECONNRESET);
		break;
	case IN_RRECV_ALL:
		CHECK_ERRNO(rrecv(fd, data, sizeof(data), MSG_WAITALL), ECONNRESET);
		break;
	case IN_RPOLL:
		CHECK(poll_one(fd, POLLIN, -1) & (POLLERR | POLLHUP));
		CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ECONNRESET);
		break;
	default:
		FD_ZERO(&set);
		FD_SET(fd, &set);
		CHECK_EQ(rselect(fd + 1, &set, NULL, NULL, NULL), 1);
		CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ECONNRESET);
	}
	CHECK_EQ(rrecv(fd, data, sizeof(data), 0), 0);
	CHECK_EQ(rsend(fd, data, sizeof(data), MSG_NOSIGNAL), -1);
}

/*
 * Receives what was sent before, perhaps says that it will send nothing, and then is
 * broken in each way of waiting.
 */
static void wait_in_all(const void *argument, long ready)
{
	const bool *ends_sending = argument;
	int listener = listen_on(test_addr(PORT), 8), tell = (int)ready;

	CHECK_EQ(write(tell, "x", 1), 1);
	for (;;) {
		for (enum wait wait = 0; wait < WAITS; wait++) {
			int fd = raccept(listener, NULL, NULL);
			pthread_t thread;
			char data[6];

			CHECK(fd >= 0);
			CHECK_EQ(rrecv(fd, data, sizeof(data), MSG_WAITALL), sizeof(data));
			if (*ends_sending)
				CHECK_OK(rshutdown(fd, SHUT_WR));
			CHECK_OK(pthread_create(&thread, NULL, tell_when_asleep, &tell));
			wait_for_break(fd, wait);
			CHECK_OK(pthread_join(thread, NULL));
			CHECK_OK(rclose(fd));
			CHECK_EQ(write(tell, "x", 1), 1);
		}
	}
}

static void read_byte(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };
	char byte;

	CHECK_EQ(poll(&entry, 1, 20000), 1);
	CHECK_EQ(read(fd, &byte, 1), 1);
}

/* What a socket does not allow. */
static const struct outrage {
	enum ibv_wr_opcode opcode;
	bool elsewhere; /* not in the memory that it offers */
	size_t size;
} OUTRAGES[] = {
	{ IBV_WR_RDMA_WRITE, true, 8 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, true, 8 },
	{ IBV_WR_RDMA_READ, false, 8 },
	{ IBV_WR_SEND, false, 8 },
};

static void break_in_all(bool ends_sending)
{
	int ready[2];
	pid_t pid;

	keep_original_away();
	CHECK_OK(pipe(ready));
	pid = start_peer(wait_in_all, &ends_sending, ready[1]);
	close(ready[1]);
	read_byte(ready[0]);
	for (size_t index = 0; index < sizeof(OUTRAGES) / sizeof(*OUTRAGES); index++) {
		const struct outrage *outrage = &OUTRAGES[index];

		for (enum wait wait = 0; wait < WAITS; wait++) {
			struct wire_peer hostile = open_hostile();
			struct hello hello = good_hello(&hostile);

			hostile.reads = 1;
			wire_connect(&hostile, &hello);
			send_well(&hostile, "hello", 6);
			read_byte(ready[0]);
			CHECK(!say(&hostile, outrage->opcode, 0,
				   be64toh(hostile.other.buffer_addr),
				   be32toh(hostile.other.buffer_key) ^ outrage->elsewhere,
				   outrage->size));
			read_byte(ready[0]);
			wire_close(&hostile);
		}
	}
	end_peer(pid);
}

TEST(breaks, "a call that waits ends with ECONNRESET when the peer breaks its queue pair [race]",
     .timeout = 120)
{
	break_in_all(false);
}

TEST(breaks_after_shutdown,
     "one that waits after SHUT_WR ends with ECONNRESET when the peer breaks its queue pair [race]",
     .timeout = 120)
{
	break_in_all(true);
}
