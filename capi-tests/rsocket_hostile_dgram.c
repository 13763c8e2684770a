/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer of datagram sockets that speaks their protocol wrongly, on the UDP side
 * channel and from a queue pair of its own: what it sends is dropped or given to
 * the program, and others go on to be served.
 */
#include "rsocket_pair.h"
#include "rsocket_side.h"

#include <arpa/inet.h>

#include <rdma/rdma_verbs.h>

enum {
	PORT = 7821,
	WAIT = 10000,
	QKEY = 0x01234567,
	TAG = 0x55555555,
	SLOT = 2048, /* most that fits into one receive */
};

/* ---- The victim: echoes what it receives, in a process of its own. ------ */

static void serve(int ready)
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	char data[2 * SLOT];

	CHECK(fd >= 0);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	CHECK_EQ(write(ready, "x", 1), 1);
	for (;;) {
		struct sockaddr_storage from;
		socklen_t size = sizeof(from);
		ssize_t length = rrecvfrom(fd, data, sizeof(data), 0,
					   (struct sockaddr *)&from, &size);

		if (length < 0)
			continue; /* what an earlier answer met */
		CHECK(length <= SLOT);
		CHECK(size <= sizeof(from));
		rsendto(fd, data, (size_t)length, MSG_DONTWAIT, (struct sockaddr *)&from, size);
	}
}

static pid_t start(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	keep_original_away();
	CHECK_OK(pipe(ready));
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		serve(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* Sends until the answer comes, as datagrams may be lost. */
static void await_echo(void)
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	char out[20] = "", in[SLOT];

	CHECK(fd >= 0);
	/* For as long as a case may take: the victim may have much to do before. */
	for (int round = 0, answers = 0; answers < 20; round++) {
		snprintf(out, sizeof(out), "round %d", round);
		CHECK_EQ(rsendto(fd, out, sizeof(out), 0, addr, addr_length(addr)), sizeof(out));
		if (!(poll_one(fd, POLLIN, 200) & POLLIN))
			continue;
		CHECK_EQ(rrecv(fd, in, sizeof(in), 0), sizeof(out));
		CHECK_OK(memcmp(in, "round ", 6));
		answers++;
	}
	CHECK_OK(rclose(fd));
}

/* It lives, and serves one who behaves. */
static void finish(pid_t victim)
{
	int status;

	await_echo();
	CHECK_EQ(waitpid(victim, &status, WNOHANG), 0);
	end_peer(victim);
}

/* ---- The side channel ----------------------------------------------------- */

static int udp_socket(void)
{
	struct sockaddr *addr = test_addr(PORT);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(connect(fd, addr, addr_length(addr)));
	return fd;
}

static void send_side(int fd, uint8_t op, uint32_t qpn, size_t payload)
{
	struct {
		struct side header;
		char data[SLOT];
	} packet = { .header = { .tag = TAG, .version = 4, .op = op, .length = 16,
				 .qpn = htonl(qpn) } };

	/* The kernel may say that a buffer is full. */
	send(fd, &packet, sizeof(packet.header) + payload, MSG_DONTWAIT);
}

static uint32_t pace = 1;

static uint32_t next_random(void)
{
	pace = pace * 1664525 + 1013904223;
	return pace >> 8;
}

TEST(garbage, "84 a flood of garbage on the side channel harms nobody [race]", .timeout = 40)
{
	pid_t victim = start();
	int fd = udp_socket();
	static unsigned char data[9000];

	for (int i = 0; i < 3000; i++) {
		struct side *side = (struct side *)data;
		size_t length = next_random() % (i % 10 ? 64 : sizeof(data));

		for (size_t at = 0; at < length && at < 64; at++)
			data[at] = (unsigned char)next_random();
		/* Most get past the first look, many past the second. */
		if (i % 3)
			side->tag = TAG;
		if (i % 4)
			side->version = 4;
		if (i % 5)
			side->length = 16;
		send(fd, data, length, MSG_DONTWAIT);
	}
	close(fd);
	finish(victim);
}

TEST(wrong_number, "a peer that tells wrong numbers of queue pairs harms itself only [race]",
     .timeout = 40)
{
	const uint32_t numbers[] = { 0, 1, 2, 0xffffff, 0xff000000, UINT32_MAX };
	pid_t victim = start();
	int fd = udp_socket();

	for (int i = 0; i < 600; i++) {
		uint32_t qpn = i % 7 < 6 ? numbers[i % 7] : next_random();

		send_side(fd, i % 2 ? 0 : 7, qpn, i % 2 ? (size_t)i % 100 : 0);
	}
	close(fd);
	finish(victim);
}

TEST(many_peers, "side channels of many peers that never speak again harm nobody [race]",
     .timeout = 40)
{
	pid_t victim = start();

	for (int i = 0; i < 500; i++) {
		int fd = udp_socket();

		send_side(fd, i % 2 ? 0 : 7, next_random(), 10);
		close(fd);
	}
	finish(victim);
}

/* ---- A queue pair of our own ------------------------------------------------ */

struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint32_t qpn; /* the victim's */
	unsigned char memory[2 * SLOT];
};

/* Where the device has the test address among its GIDs. */
static uint8_t gid_index(struct rdma_cm_id *id, union ibv_gid *gid)
{
	const struct sockaddr_in *addr = (const struct sockaddr_in *)test_addr(0);

	for (uint8_t index = 0; index < 16; index++)
		if (!ibv_query_gid(id->verbs, id->port_num, index, gid) &&
		    gid->raw[10] == 0xff && !memcmp(&gid->raw[12], &addr->sin_addr, 4))
			return index;
	FAIL("the address is not in the GID table");
}

/* The victim's answer on the side channel tells its queue pair. */
static uint32_t ask_number(void)
{
	struct pollfd entry = { .fd = udp_socket(), .events = POLLIN };
	struct side answer = { 0 };

	do {
		send_side(entry.fd, 0, 5, 1);
		CHECK(poll(&entry, 1, WAIT) >= 0);
		CHECK(recv(entry.fd, &answer, sizeof(answer), 0) > 0);
	} while (answer.op != 7);
	close(entry.fd);
	return ntohl(answer.qpn) & 0xffffff;
}

static struct raw *raw_peer(void)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_ah_attr route = { .is_global = 1, .grh.hop_limit = 64 };

	raw->qpn = ask_number();
	raw->channel = make_channel();
	raw->id = make_id(raw->channel, RDMA_PS_UDP);
	CHECK_OK(rdma_bind_addr(raw->id, test_addr(0)));
	CHECK_OK(rdma_create_qp(raw->id, NULL, &attr));
	raw->mr = ibv_reg_mr(raw->id->pd, raw->memory, sizeof(raw->memory),
			     IBV_ACCESS_LOCAL_WRITE);
	CHECK(raw->mr);
	route.port_num = raw->id->port_num;
	route.grh.sgid_index = gid_index(raw->id, &route.grh.dgid);
	raw->ah = ibv_create_ah(raw->id->pd, &route);
	CHECK(raw->ah);
	return raw;
}

static void raw_send(struct raw *raw, size_t length, uint32_t qkey)
{
	struct ibv_sge sge = { (uintptr_t)raw->memory, (uint32_t)length, raw->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = length > 0,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = raw->ah, .remote_qpn = raw->qpn, .remote_qkey = qkey },
	};
	struct ibv_wc wc;

	CHECK_OK(ibv_post_send(raw->id->qp, &wr, &bad));
	CHECK_EQ(rdma_get_send_comp(raw->id, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

static void raw_close(struct raw *raw)
{
	CHECK_OK(ibv_destroy_ah(raw->ah));
	rdma_destroy_qp(raw->id);
	CHECK_OK(ibv_dereg_mr(raw->mr));
	CHECK_OK(rdma_destroy_id(raw->id));
	rdma_destroy_event_channel(raw->channel);
	free(raw);
}

/* A header for IPv4 of a sender, with this for its length. */
static void put_header(struct raw *raw, uint8_t version, uint8_t length, uint16_t port,
		       const char *addr)
{
	in_addr_t ip = inet_addr(addr);

	raw->memory[0] = version;
	raw->memory[1] = length;
	raw->memory[2] = (unsigned char)(port >> 8);
	raw->memory[3] = (unsigned char)port;
	memcpy(raw->memory + 4, &ip, 4);
}

TEST(headers, "84 datagrams with short, wrong and foreign headers harm nobody [race]",
     .timeout = 40)
{
	static const char *const senders[] = {
		"0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "203.0.113.9",
	};
	pid_t victim = start();
	struct raw *raw = raw_peer();

	/* Too short, of zeroes and of what looks like a header. */
	for (size_t length = 0; length < 30; length++) {
		memset(raw->memory, 0, sizeof(raw->memory));
		raw_send(raw, length, QKEY);
		put_header(raw, 4, 8, 7, "10.99.0.1");
		raw_send(raw, length < 8 ? length : 7, QKEY);
		put_header(raw, 6, 24, 7, "10.99.0.1");
		raw_send(raw, length < 24 ? length : 23, QKEY);
	}
	/* Every version with every length of a header that differs. */
	for (int version = 0; version < 256; version += version < 8 ? 1 : 31)
		for (int length = 0; length < 256; length += length < 28 ? 4 : 57) {
			put_header(raw, (uint8_t)version, (uint8_t)length, 7, "10.99.0.1");
			raw_send(raw, 40, QKEY);
		}
	/* Senders that cannot be answered. */
	for (size_t i = 0; i < sizeof(senders) / sizeof(*senders); i++)
		for (int port = 0; port < 3; port++) {
			put_header(raw, 4, 8, (uint16_t)port, senders[i]);
			raw_send(raw, 20, QKEY);
		}
	/* The victim itself, who must not talk to itself for ever. */
	put_header(raw, 4, 8, PORT, "10.99.0.1");
	raw_send(raw, 8, 1);
	memset(raw->memory, 0xff, sizeof(raw->memory));
	for (int i = 0; i < 20; i++)
		raw_send(raw, 1000, i % 2 ? QKEY : 5);
	raw_close(raw);
	finish(victim);
}

TEST(flood, "a flood of datagrams delays others, and harms nobody [race]", .timeout = 40)
{
	pid_t victim = start();
	struct raw *raw = raw_peer();

	for (int i = 0; i < 3000; i++) {
		put_header(raw, 4, 8, 9, "10.99.0.1");
		raw_send(raw, 8 + next_random() % 900, QKEY);
	}
	raw_close(raw);
	finish(victim);
}
