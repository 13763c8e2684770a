/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer that speaks the protocol of stream sockets wrongly, over verbs: a
 * socket that it is connected to ends with an error or with the stream, it
 * gives no more data than there was room for, and its listener goes on to
 * serve others.
 */
#include "harness.h"

#include <arpa/inet.h>
#include <endian.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

enum {
	PORT = 7621,
	ROOM = 131072,	/* of a socket's receive buffer */
	MEMORY = 1 << 16,
	QUEUE = 64,
	OP_DATA = 0,
	OP_GRANT = 4,
	OP_MAPPING = 6,
	OP_CONTROL = 7,
};

/* What both sides say of themselves when connecting; all big-endian. */
struct hello {
	uint8_t version;
	uint8_t flags;
	uint16_t credits;
	uint8_t zero[3];
	uint8_t mappings;
	uint64_t list_addr;
	uint32_t list_key;
	uint32_t list_entries;
	uint64_t buffer_addr;
	uint32_t buffer_key;
	uint32_t buffer_length;
};
_Static_assert(sizeof(struct hello) == 40, "40 bytes on the wire");

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

struct hostile {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char *memory;
	struct hello peer;
	unsigned int posted;
};

static void open_hostile(struct hostile *hostile)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = QUEUE, .max_recv_wr = QUEUE,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	memset(hostile, 0, sizeof(*hostile));
	hostile->channel = make_channel();
	hostile->id = make_id(hostile->channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(hostile->id, NULL, test_addr(PORT), 2000));
	CHECK_EQ(take_event(hostile->channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_resolve_route(hostile->id, 2000));
	CHECK_EQ(take_event(hostile->channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_OK(rdma_create_qp(hostile->id, NULL, &attr));
	hostile->memory = calloc(1, MEMORY);
	hostile->mr = ibv_reg_mr(hostile->id->pd, hostile->memory, MEMORY,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(hostile->mr);
	for (int index = 0; index < QUEUE; index++)
		CHECK_OK(rdma_post_recv(hostile->id, NULL, hostile->memory, 0,
					hostile->mr));
}

/* What one who behaves says. */
static struct hello good_hello(struct hostile *hostile)
{
	return (struct hello){
		.version = 1,
		.flags = 2,
		.credits = htobe16(QUEUE / 2),
		.list_addr = htobe64((uintptr_t)hostile->memory),
		.list_key = htobe32(hostile->mr->rkey),
		.list_entries = htobe32(2),
		.buffer_addr = htobe64((uintptr_t)hostile->memory + 4096),
		.buffer_key = htobe32(hostile->mr->rkey),
		.buffer_length = htobe32(MEMORY / 4),
	};
}

static void request(struct hostile *hostile, const void *data, size_t size)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = size,
		.flow_control = 1,
		/* What the victim does not answer any more is to fail soon. */
		.retry_count = 0,
		.rnr_retry_count = 1,
	};

	CHECK_OK(rdma_connect(hostile->id, &param));
}

static void connect_hostile(struct hostile *hostile, const struct hello *hello)
{
	struct rdma_cm_event *event;

	request(hostile, hello, sizeof(*hello));
	event = expect_event(hostile->channel, RDMA_CM_EVENT_ESTABLISHED, EVENT_TIMEOUT);
	CHECK(event->param.conn.private_data_len >= sizeof(hostile->peer));
	memcpy(&hostile->peer, event->param.conn.private_data, sizeof(hostile->peer));
	CHECK_OK(rdma_ack_cm_event(event));
}

static struct hostile hostile_peer(void)
{
	struct hostile hostile;
	struct hello hello;

	open_hostile(&hostile);
	hello = good_hello(&hostile);
	connect_hostile(&hostile, &hello);
	return hostile;
}

static void close_hostile(struct hostile *hostile)
{
	rdma_disconnect(hostile->id);
	rdma_destroy_qp(hostile->id);
	ibv_dereg_mr(hostile->mr);
	CHECK_OK(rdma_destroy_id(hostile->id));
	rdma_destroy_event_channel(hostile->channel);
	free(hostile->memory);
}

/*
 * Writes bytes of the memory to the victim with an immediate value, and waits
 * for the completion; false once the connection is broken.
 */
static bool say(struct hostile *hostile, enum ibv_wr_opcode opcode, uint32_t value,
		uint64_t addr, uint32_t key, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)hostile->memory, size, hostile->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = size > 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(value),
		.wr.rdma = { .remote_addr = addr, .rkey = key },
	};
	struct ibv_wc wc;

	if (ibv_post_send(hostile->id->qp, &wr, &bad))
		return false;
	CHECK_EQ(rdma_get_send_comp(hostile->id, &wc), 1);
	return wc.status == IBV_WC_SUCCESS;
}

static bool message(struct hostile *hostile, uint32_t op, uint32_t value)
{
	return say(hostile, IBV_WR_RDMA_WRITE_WITH_IMM, op << 29 | value, 0, 0, 0);
}

/* ---- Cases -------------------------------------------------------------- */

static void refused(const void *data, size_t size)
{
	struct victim victim = start();
	struct hostile hostile;

	open_hostile(&hostile);
	request(&hostile, data, size);
	take_event(hostile.channel, RDMA_CM_EVENT_REJECTED);
	close_hostile(&hostile);
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
	struct hostile hostile = hostile_peer();

	message(&hostile, OP_DATA, (1 << 29) - 1);
	close_hostile(&hostile);
	finish(&victim);
	CHECK(*victim.most <= ROOM);
}

TEST(too_much, "no more data is taken than there was room for [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();

	for (int round = 0; round < 20; round++)
		if (!message(&hostile, OP_DATA, ROOM / 2))
			break;
	close_hostile(&hostile);
	finish(&victim);
}

TEST(too_many, "more messages than credits end the connection [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();

	for (int round = 0; round < 3000; round++)
		if (!message(&hostile, OP_DATA, round % 3))
			break;
	close_hostile(&hostile);
	finish(&victim);
}

TEST(garbage, "garbage for immediate data does no harm [race]", .timeout = 60)
{
	struct victim victim = start();
	uint32_t value = 12345;

	for (int connection = 0; connection < 4; connection++) {
		struct hostile hostile = hostile_peer();

		for (int round = 0; round < 100; round++) {
			value = value * 1664525 + 1013904223;
			if (!say(&hostile, IBV_WR_RDMA_WRITE_WITH_IMM, value, 0, 0, 0))
				break;
		}
		close_hostile(&hostile);
	}
	finish(&victim);
}

TEST(bad_target, "a target that is not the peer's breaks that connection only [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();
	uint64_t list = be64toh(hostile.peer.list_addr);
	uint32_t key = be32toh(hostile.peer.list_key);

	/* Fills the half that was announced; the echo goes to both. */
	memset(hostile.memory, 0xff, 32);
	for (int entry = 0; entry < 8; entry++)
		if (!say(&hostile, IBV_WR_RDMA_WRITE_WITH_IMM,
			 (uint32_t)OP_GRANT << 29 | 1000, list + 16 * (entry % 2), key, 16))
			break;
	for (int round = 0; round < 8; round++)
		if (!message(&hostile, OP_DATA, 4000))
			break;
	close_hostile(&hostile);
	finish(&victim);
}

TEST(bad_list, "target lists of no and of too many entries do no harm [race]")
{
	static const uint32_t counts[] = { 0, 1, 3, 0x10000, UINT32_MAX };
	struct victim victim = start();

	for (size_t index = 0; index < sizeof(counts) / sizeof(*counts); index++) {
		struct hostile hostile;
		struct hello hello;

		open_hostile(&hostile);
		hello = good_hello(&hostile);
		hello.list_entries = htobe32(counts[index]);
		hello.buffer_length = htobe32(UINT32_MAX);
		hello.mappings = 255;
		connect_hostile(&hostile, &hello);
		for (int round = 0; round < 4; round++)
			if (!message(&hostile, OP_DATA, 10000))
				break;
		close_hostile(&hostile);
	}
	finish(&victim);
}

TEST(bad_mapping, "mappings of indices that do not exist do no harm [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();

	for (uint32_t index = 0; index < 1 << 16; index += 4099)
		if (!message(&hostile, OP_MAPPING, index))
			break;
	message(&hostile, OP_DATA, 1);
	close_hostile(&hostile);
	finish(&victim);
}

TEST(sends, "a send instead of a write breaks that connection only [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();

	for (int round = 0; round < 4; round++)
		if (!say(&hostile, round % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, 5, 0, 0,
			 round < 2 ? 0 : 100))
			break;
	close_hostile(&hostile);
	finish(&victim);
}

TEST(after_goodbye, "data after the end of the stream is not taken [race]")
{
	struct victim victim = start();
	struct hostile hostile = hostile_peer();

	message(&hostile, OP_CONTROL, 0);
	for (int round = 0; round < 4; round++)
		if (!message(&hostile, OP_DATA, 100))
			break;
	close_hostile(&hostile);
	finish(&victim);
}
