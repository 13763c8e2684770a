/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What stream sockets say on the wire and how they understand what is said to
 * them, seen by a peer that speaks the protocol over verbs.
 */
#include "rsocket_pair.h"
#include "rsocket_peer.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/select.h>

enum {
	PORT = 7681,
	QUEUE = 384,	/* of a socket, each way */
	ROOM = 131072,	/* of its receive buffer */
	HALF = ROOM / 2,
	MANY = 200,	/* credits that are enough for a case */
	PIECE = 2000,	/* long enough to be a message of its own */
};

/* A socket and a peer that is connected to it. */
struct wire {
	int listener;
	int fd;
	struct wire_peer peer;
};

static struct wire wire_with_retries(uint8_t retries, uint8_t flags, uint16_t credits,
				     uint32_t length)
{
	struct sockaddr *addr = test_addr(0);
	struct wire wire = { .listener = listen_on(addr, 4) };
	struct hello hello;
	socklen_t size = sizeof(struct sockaddr_in);

	CHECK_OK(rgetsockname(wire.listener, addr, &size));
	wire.peer = wire_open(addr);
	wire.peer.retries = retries;
	hello = wire_hello(&wire.peer, credits, length);
	hello.flags |= flags;
	wire_connect(&wire.peer, &hello);
	wire.fd = raccept(wire.listener, NULL, NULL);
	CHECK(wire.fd >= 0);
	return wire;
}

static struct wire wire_with(uint8_t flags, uint16_t credits, uint32_t length)
{
	return wire_with_retries(6, flags, credits, length);
}

static void close_wire(struct wire *wire)
{
	CHECK_OK(rclose(wire->fd));
	wire_close(&wire->peer);
	CHECK_OK(rclose(wire->listener));
}

static unsigned char pattern(size_t place)
{
	return (unsigned char)(place * 31 + (place >> 9));
}

static void make_data(unsigned char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		data[i] = pattern(i);
}

/* The socket looks at its connection. */
static void let_progress(struct wire *wire)
{
	poll_one(wire->fd, POLLIN, 0);
}

/* So many bytes of data arrive, in any number of messages. */
static void hear_bytes(struct wire *wire, size_t bytes)
{
	size_t total = 0;

	while (total < bytes) {
		struct heard heard = wire_hear_other(&wire->peer);

		CHECK_EQ(heard.op, OP_DATA);
		CHECK(heard.value > 0);
		CHECK_EQ(heard.value, heard.payload);
		total += heard.value;
	}
	CHECK_EQ(total, bytes);
}

static unsigned char *buffer_of(struct wire *wire)
{
	return (unsigned char *)wire->peer.memory + WIRE_BUFFER;
}

static void check_buffer(struct wire *wire, size_t from, size_t size, size_t place)
{
	for (size_t i = 0; i < size; i++)
		CHECK_EQ(buffer_of(wire)[from + i], pattern(place + i));
}

static void check_untouched(struct wire *wire, size_t from)
{
	for (size_t i = from; i < WIRE_MEMORY - WIRE_BUFFER; i++)
		CHECK_EQ(buffer_of(wire)[i], 0);
}

/* Grants a part of the buffer, by an entry of the socket's target list. */
static void grant_part(struct wire *wire, uint32_t limit, int entry, size_t from,
		       uint32_t length)
{
	struct wire_peer *peer = &wire->peer;
	struct target *target = (struct target *)(peer->memory + 4096);

	*target = (struct target){
		.addr = (uintptr_t)buffer_of(wire) + from,
		.key = peer->mr->rkey,
		.length = length,
	};
	CHECK(wire_say_from(peer, IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)OP_GRANT << 29 | limit,
			    target, sizeof(*target),
			    be64toh(peer->other.list_addr) + entry * sizeof(*target),
			    be32toh(peer->other.list_key)));
}

/* Sends all, as far as it goes without waiting; returns how much went. */
static size_t send_some(struct wire *wire, const unsigned char *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t sent = rsend(wire->fd, data + done, size - done,
				     MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0) {
			CHECK_EQ(errno, EAGAIN);
			break;
		}
		done += (size_t)sent;
	}
	return done;
}

/* What the socket has said of itself. */
static void check_hello(const struct hello *hello)
{
	CHECK_EQ(hello->version, 1);
	/* Further flags are for what both sides have to know to use it. */
	CHECK_EQ(hello->flags & (HELLO_MAPPINGS | HELLO_BIG_ENDIAN),
		 HELLO_MAPPINGS | (htobe16(1) == 1 ? HELLO_BIG_ENDIAN : 0));
	CHECK_EQ(be16toh(hello->credits), QUEUE);
	CHECK(!hello->zero[0] && !hello->zero[1] && !hello->zero[2]);
	CHECK_EQ(hello->mappings, 0);
	CHECK(hello->list_addr && hello->buffer_addr);
	CHECK_EQ(be64toh(hello->list_addr) % sizeof(struct target), 0);
	CHECK_EQ(be32toh(hello->list_entries), LIST_ENTRIES);
	CHECK_EQ(be32toh(hello->buffer_length), HALF);
}

TEST(reply, "26 a reply says who the socket is in 40 bytes, then zeros")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 4), fd;
	struct wire_peer peer = wire_open(addr);
	struct hello hello = wire_hello(&peer, MANY, ROOM);
	struct rdma_cm_event *event;
	const unsigned char *data;

	wire_request(&peer, &hello, sizeof(hello));
	event = expect_event(peer.channel, RDMA_CM_EVENT_ESTABLISHED, EVENT_TIMEOUT);
	data = event->param.conn.private_data;
	CHECK(event->param.conn.private_data_len >= sizeof(hello));
	memcpy(&hello, data, sizeof(hello));
	check_hello(&hello);
	for (int i = sizeof(hello); i < event->param.conn.private_data_len; i++)
		CHECK_EQ(data[i], 0);
	CHECK_OK(rdma_ack_cm_event(event));
	fd = raccept(listener, NULL, NULL);
	CHECK(fd >= 0);
	wire_close(&peer);
	CHECK_OK(rclose(fd));
	CHECK_OK(rclose(listener));
}

/* Answers the request. */
static struct wire_peer answer(struct called *called, uint8_t flags)
{
	struct wire_peer peer = wire_take(called->request);
	struct hello hello;

	wire_prepare(&peer);
	hello = wire_hello(&peer, MANY, ROOM);
	hello.flags |= flags;
	wire_accept(&peer, &hello);
	CHECK_EQ(poll_one(called->fd, POLLOUT, EVENT_TIMEOUT * 1000), POLLOUT);
	return peer;
}

TEST(request, "21 26 a request says who the socket is; it cannot send or receive yet")
{
	struct called called = call_peer(test_addr(PORT), NULL);
	struct wire_peer peer;
	char byte = 0;

	CHECK_ERRNO((int)rsend(called.fd, &byte, 1, MSG_NOSIGNAL), EAGAIN);
	CHECK_ERRNO((int)rrecv(called.fd, &byte, 1, 0), EAGAIN);
	CHECK_EQ(poll_one(called.fd, POLLIN | POLLOUT, 0), 0);
	peer = answer(&called, 0);
	check_hello(&peer.other);
	end_call(&called, &peer);
}

TEST(first, "30 the first message grants the second half of the buffer")
{
	struct wire wire = wire_with(0, MANY, ROOM);
	struct target *list = (struct target *)wire.peer.memory;
	struct heard heard;

	let_progress(&wire);
	heard = wire_hear(&wire.peer);
	CHECK_EQ(heard.op, OP_GRANT);
	CHECK_EQ(heard.value, QUEUE);
	CHECK_EQ(heard.payload, sizeof(*list));
	CHECK_EQ(list[0].addr, 0);
	CHECK_EQ(list[1].addr, be64toh(wire.peer.other.buffer_addr) + HALF);
	CHECK_EQ(list[1].key, be32toh(wire.peer.other.buffer_key));
	CHECK_EQ(list[1].length, HALF);
	close_wire(&wire);
}

TEST(other_order, "31 a peer of the other byte order reads targets in its own")
{
	struct wire wire = wire_with(HELLO_BIG_ENDIAN, MANY, ROOM);
	struct target *list = (struct target *)wire.peer.memory;

	if (htobe16(1) == 1)
		SKIP("the peer plays a big-endian host");
	let_progress(&wire);
	CHECK_EQ(wire_hear(&wire.peer).payload, sizeof(*list));
	CHECK_EQ(be64toh(list[1].addr), be64toh(wire.peer.other.buffer_addr) + HALF);
	CHECK_EQ(list[1].key, wire.peer.other.buffer_key);
	CHECK_EQ(be32toh(list[1].length), HALF);
	close_wire(&wire);
}

static void keep_alive(int fd)
{
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

TEST(other_order_option, "31 options survive a peer of the other byte order")
{
	struct called called = call_peer(test_addr(PORT), keep_alive);
	struct wire_peer peer = answer(&called, HELLO_BIG_ENDIAN);

	CHECK_EQ(option_of(called.fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	end_call(&called, &peer);
}

enum { LARGE_HALF = 1 << 20, LARGE = 300000 };

TEST(large_half, "32 data fills the buffer that is granted from its beginning")
{
	struct wire wire = wire_with(0, MANY, LARGE_HALF);
	unsigned char *data = malloc(LARGE);

	make_data(data, LARGE);
	CHECK_EQ(rsend(wire.fd, data, LARGE, 0), LARGE);
	hear_bytes(&wire, LARGE);
	check_buffer(&wire, 0, LARGE, 0);
	check_untouched(&wire, LARGE);
	free(data);
	close_wire(&wire);
}

/*
 * All of `data` from `place` on is sent at once; no more than `size` bytes go
 * out, to the place `from` of the buffer, of which `end` bytes are in use then.
 */
static void send_into(struct wire *wire, unsigned char *data, size_t place, size_t from,
		      size_t size, size_t end)
{
	CHECK(poll_one(wire->fd, POLLOUT, EVENT_TIMEOUT * 1000) & POLLOUT);
	CHECK_EQ(send_some(wire, data + place, 3 * PIECE - place), (ssize_t)size);
	hear_bytes(wire, size);
	check_buffer(wire, from, size, place);
	check_untouched(wire, end);
}

TEST(small_half, "33 no data crosses the end of what is granted; it goes on in the next half")
{
	struct wire wire = wire_with(0, MANY, 1000);
	unsigned char data[3 * PIECE];

	make_data(data, sizeof(data));
	send_into(&wire, data, 0, 0, 1000, 1000);
	grant_part(&wire, MANY, 1, 5000, 1000);
	send_into(&wire, data, 1000, 5000, 1000, 6000);
	grant_part(&wire, MANY, 0, 1000, 3000);
	send_into(&wire, data, 2000, 1000, 3000, 6000);
	close_wire(&wire);
}

/* Sends pieces that are a message each until there is no credit left. */
static int send_pieces(struct wire *wire)
{
	unsigned char data[PIECE];
	int count = 0;

	make_data(data, sizeof(data));
	while (send_some(wire, data, sizeof(data)) == sizeof(data))
		count++;
	return count;
}

static void hear_pieces(struct wire *wire, int count)
{
	for (int i = 0; i < count; i++) {
		struct heard heard = wire_hear_other(&wire->peer);

		CHECK_EQ(heard.op, OP_DATA);
		CHECK_EQ(heard.payload, PIECE);
	}
}

TEST(credits, "34 no more messages than credits")
{
	struct wire wire = wire_with(0, 3, LARGE_HALF);

	CHECK_EQ(send_pieces(&wire), 3);
	hear_pieces(&wire, 3);
	CHECK_EQ(poll_one(wire.fd, POLLOUT, 0), 0);
	CHECK(wire_message(&wire.peer, OP_GRANT, 8));
	CHECK(poll_one(wire.fd, POLLOUT, EVENT_TIMEOUT * 1000) & POLLOUT);
	CHECK_EQ(send_pieces(&wire), 5);
	hear_pieces(&wire, 5);
	close_wire(&wire);
}

TEST(wide_grant, "35 of a grant the low 16 bits count")
{
	struct wire wire = wire_with(0, 3, LARGE_HALF);

	CHECK_EQ(send_pieces(&wire), 3);
	CHECK(wire_message(&wire.peer, OP_GRANT, 0x10000 | 7));
	CHECK(poll_one(wire.fd, POLLOUT, EVENT_TIMEOUT * 1000) & POLLOUT);
	CHECK_EQ(send_pieces(&wire), 4);
	hear_pieces(&wire, 7);
	close_wire(&wire);
}

enum { BATCH = 64 };

/* Messages of a byte each for the socket, from a place in its stream on. */
static void say_bytes(struct wire *wire, size_t place, int count)
{
	struct wire_peer *peer = &wire->peer;
	struct ibv_send_wr requests[BATCH] = { 0 }, *bad;
	struct ibv_sge parts[BATCH];
	struct ibv_wc wc;

	CHECK(count > 0 && count <= BATCH);
	for (int i = 0; i < count; i++) {
		char *byte = peer->memory + 4096 + i;

		*byte = (char)pattern(place + (size_t)i);
		parts[i] = (struct ibv_sge){ (uintptr_t)byte, 1, peer->mr->lkey };
		requests[i] = (struct ibv_send_wr){
			.next = i + 1 < count ? &requests[i + 1] : NULL,
			.sg_list = &parts[i],
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.imm_data = htobe32((uint32_t)OP_DATA << 29 | 1),
			.wr.rdma.remote_addr = be64toh(peer->other.buffer_addr) +
					       (place + (size_t)i) % ROOM,
			.wr.rdma.rkey = be32toh(peer->other.buffer_key),
		};
	}
	CHECK_OK(ibv_post_send(peer->id->qp, requests, &bad));
	for (int i = 0; i < count; i++) {
		CHECK_EQ(rdma_get_send_comp(peer->id, &wc), 1);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
}

static void read_bytes(struct wire *wire, size_t from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		unsigned char byte;

		CHECK_EQ(rrecv(wire->fd, &byte, 1, 0), 1);
		CHECK_EQ(byte, pattern(from + i));
	}
}

/* Which limit was granted last; messages that came so far. */
static int last_grant(struct wire *wire, int limit)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(wire->peer.id->recv_cq, 1, &wc)) == 1) {
		uint32_t word = be32toh(wc.imm_data);

		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(word >> 29, OP_GRANT);
		limit = (int)(word & 0xffff);
		wire_post_receive(&wire->peer);
	}
	CHECK_EQ(count, 0);
	return limit;
}

TEST(due, "36 a grant is due when half of the queue was consumed")
{
	struct wire wire = wire_with(0, MANY, ROOM);
	struct heard heard;

	let_progress(&wire);
	CHECK_EQ(wire_hear(&wire.peer).value, QUEUE);
	for (int i = 0; i < QUEUE / 2 - 1; i++)
		say_bytes(&wire, (size_t)i, 1);
	read_bytes(&wire, 0, QUEUE / 2 - 1);
	let_progress(&wire);
	CHECK_EQ(last_grant(&wire, -1), -1);
	say_bytes(&wire, QUEUE / 2 - 1, 1);
	read_bytes(&wire, QUEUE / 2 - 1, 1);
	let_progress(&wire);
	heard = wire_hear(&wire.peer);
	CHECK_EQ(heard.op, OP_GRANT);
	CHECK_EQ(heard.value & 0xffff, QUEUE / 2 + QUEUE);
	CHECK_EQ(heard.payload, 0);
	close_wire(&wire);
}

/* More than a counter of messages holds. */
enum { WRAP = 66000 };

static void *say_many(void *argument)
{
	struct wire *wire = argument;
	uint16_t limit = QUEUE;

	for (size_t sent = 0; sent < WRAP;) {
		int count = (uint16_t)(limit - sent);

		if (count > BATCH)
			count = BATCH;
		if ((size_t)count > WRAP - sent)
			count = (int)(WRAP - sent);
		if (count)
			say_bytes(wire, sent, count);
		else
			sched_yield(); /* until the socket grants more */
		limit = (uint16_t)last_grant(wire, limit);
		sent += (size_t)count;
	}
	return NULL;
}

TEST(wrap, "37 counters of messages wrap around", .timeout = 60)
{
	struct wire wire = wire_with(0, MANY, ROOM);
	static unsigned char data[WRAP];
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, say_many, &wire));
	CHECK_EQ(rrecv(wire.fd, data, WRAP, MSG_WAITALL), WRAP);
	for (size_t i = 0; i < WRAP; i++)
		CHECK_EQ(data[i], pattern(i));
	CHECK_OK(pthread_join(thread, NULL));
	close_wire(&wire);
}

TEST(no_half, "38 without a second half, the first one is used up")
{
	struct wire wire = wire_with(0, MANY, 5000);
	unsigned char data[3 * PIECE];

	make_data(data, sizeof(data));
	CHECK(poll_one(wire.fd, POLLOUT, 0) & POLLOUT);
	CHECK_EQ(send_some(&wire, data, sizeof(data)), 5000);
	CHECK_EQ(poll_one(wire.fd, POLLOUT, 0), 0);
	CHECK_ERRNO((int)rsend(wire.fd, data, 1, MSG_DONTWAIT), EAGAIN);
	hear_bytes(&wire, 5000);
	check_buffer(&wire, 0, 5000, 0);
	close_wire(&wire);
}

TEST(goodbye, "48 SHUTDOWN, then DISCONNECT")
{
	struct wire wire = wire_with(0, MANY, ROOM);
	struct heard heard;
	char byte;

	CHECK_OK(rshutdown(wire.fd, SHUT_WR));
	heard = wire_hear_other(&wire.peer);
	CHECK_EQ(heard.op, OP_CONTROL);
	CHECK_EQ(heard.value, SAY_SHUTDOWN);
	CHECK_EQ(heard.payload, 0);
	CHECK(wire_message(&wire.peer, OP_CONTROL, SAY_DISCONNECT));
	CHECK_EQ(rrecv(wire.fd, &byte, 1, 0), 0);
	CHECK(poll_one(wire.fd, POLLIN, EVENT_TIMEOUT * 1000) & POLLHUP);
	close_wire(&wire);
}

TEST(silent, "74 [fix] a client that never completes the handshake keeps nobody waiting")
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 4), client, server;
	struct wire_peer silent = wire_open(addr);
	struct hello hello = wire_hello(&silent, MANY, ROOM);
	char byte;

	/* Whoever does not take the response does not complete it. */
	wire_request(&silent, &hello, sizeof(hello));
	client = connect_to(addr);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_EQ(rsend(client, "x", 1, 0), 1);
	CHECK_EQ(rrecv(server, &byte, 1, 0), 1);
	CHECK_OK(rclose(client));
	CHECK_OK(rclose(server));
	wire_close(&silent);
	CHECK_OK(rclose(listener));
}

/* The peer confirms nothing any more, and does not say so. */
static void fall_silent(struct wire_peer *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	CHECK_OK(ibv_modify_qp(peer->id->qp, &attr, IBV_QP_STATE));
}

static void check_given_up(int fd)
{
	char byte;

	CHECK_ERRNO((int)rrecv(fd, &byte, 1, 0), ETIMEDOUT);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 0);
}

TEST(unconfirmed, "a connection to a peer that confirms nothing any more breaks [fix]",
     .timeout = 40)
{
	struct called called = call_peer(test_addr(PORT), NULL);
	struct wire_peer peer = answer(&called, 0);
	struct wire wire = wire_with_retries(7, 0, MANY, ROOM);

	/* One that it asked for, and one that the peer did, with retries for ever. */
	CHECK_OK(rfcntl(called.fd, F_SETFL, 0));
	fall_silent(&peer);
	fall_silent(&wire.peer);
	CHECK_EQ(rsend(called.fd, "x", 1, 0), 1);
	CHECK_EQ(rsend(wire.fd, "x", 1, 0), 1);
	check_given_up(called.fd);
	check_given_up(wire.fd);
	end_call(&called, &peer);
	close_wire(&wire);
}

/* Few retries, and no room beyond a small part of the buffer. */
static struct wire small_wire(void)
{
	return wire_with_retries(2, 0, MANY, 1000);
}

TEST(starved, "waits for room at a peer that is gone end [fix]", .timeout = 40)
{
	struct wire wires[] = { small_wire(), small_wire(), small_wire() };
	unsigned char data[PIECE];
	char byte;

	make_data(data, sizeof(data));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(send_some(&wires[i], data, sizeof(data)), 1000);
		hear_bytes(&wires[i], 1000);
	}
	for (int i = 0; i < 3; i++)
		fall_silent(&wires[i].peer);
	/* The next call tells what ends a send after a part. */
	CHECK_EQ(rsend(wires[2].fd, data, sizeof(data), MSG_NOSIGNAL), 1000);
	CHECK_ERRNO((int)rrecv(wires[2].fd, &byte, 1, 0), ETIMEDOUT);
	CHECK_EQ(rrecv(wires[2].fd, &byte, 1, 0), 0);
	CHECK(poll_one(wires[1].fd, POLLOUT, EVENT_TIMEOUT * 1000) & POLLERR);
	CHECK_ERRNO((int)rsend(wires[0].fd, "x", 1, MSG_NOSIGNAL), ETIMEDOUT);
	for (int i = 0; i < 3; i++)
		close_wire(&wires[i]);
}

/* A connection that does not end soon, as what was sent is never confirmed. */
static struct wire unending_wire(void)
{
	struct wire wire = wire_with_retries(7, 0, MANY, ROOM);

	fall_silent(&wire.peer);
	CHECK_EQ(rsend(wire.fd, "x", 1, 0), 1);
	return wire;
}

static void *close_socket(void *argument)
{
	CHECK_OK(rclose(*(int *)argument));
	return NULL;
}

static void check_closed(int fd, int listener)
{
	struct pollfd entries[] = { { .fd = listener, .events = POLLIN },
				    { .fd = fd, .events = POLLIN },
				    { .events = POLLIN } };
	struct timeval limit = { .tv_sec = 1 };
	int pipes[2];
	fd_set set;
	char byte;

	CHECK_OK(pipe(pipes));
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	entries[2].fd = pipes[0];
	/* Alone, with a socket, with something else, with both. */
	CHECK_EQ(poll_one(fd, POLLIN, EVENT_TIMEOUT * 1000), POLLNVAL);
	CHECK_EQ(poll_one(fd, POLLOUT, 0), POLLNVAL);
	CHECK_EQ(rpoll(entries, 2, EVENT_TIMEOUT * 1000), 1);
	CHECK_EQ(entries[1].revents, POLLNVAL);
	CHECK_EQ(rpoll(entries + 1, 2, EVENT_TIMEOUT * 1000), 2);
	CHECK_EQ(entries[1].revents, POLLNVAL);
	CHECK_EQ(entries[2].revents, POLLIN);
	CHECK_EQ(read(pipes[0], &byte, 1), 1);
	CHECK_EQ(rpoll(entries, 3, EVENT_TIMEOUT * 1000), 1);
	CHECK_EQ(entries[0].revents, 0);
	CHECK_EQ(entries[1].revents, POLLNVAL);
	CHECK_EQ(entries[2].revents, 0);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK_ERRNO(rselect(fd + 1, &set, NULL, NULL, &limit), EBADF);
	CHECK_ERRNO(rclose(fd), EBADF);
	CHECK_OK(close(pipes[0]));
	CHECK_OK(close(pipes[1]));
}

TEST(closing, "[fix] a socket is closed for all threads while its close waits for the peer",
     .timeout = 40)
{
	struct wire wire = unending_wire();
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, close_socket, &wire.fd));
	await_sleep();
	check_closed(wire.fd, wire.listener);
	wire_close(&wire.peer);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rclose(wire.listener));
}

TEST(ending, "[fix] a socket is closed that goes on ending after a close that did not wait",
     .timeout = 30)
{
	struct wire wire = unending_wire();

	CHECK_OK(rfcntl(wire.fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(rclose(wire.fd));
	check_closed(wire.fd, wire.listener);
	wire_close(&wire.peer);
	CHECK_OK(rclose(wire.listener));
}

TEST(leaving, "[fix] a socket whose close waits for its peer is in no set, and comes in none",
     .timeout = 40)
{
	int (*create)(int) = (int (*)(int))library_symbol("repoll_create");
	int (*control)(int, int, int, struct epoll_event *) =
		(int (*)(int, int, int, struct epoll_event *))library_symbol("repoll_ctl");
	int (*await)(int, struct epoll_event *, int, int) =
		(int (*)(int, struct epoll_event *, int, int))library_symbol("repoll_wait");
	static const int operations[] = { EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL };
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT }, got;
	struct wire wire = unending_wire();
	int set = create(0);
	pthread_t thread;

	CHECK(set >= 0);
	CHECK_OK(control(set, EPOLL_CTL_ADD, wire.fd, &event));
	CHECK_OK(pthread_create(&thread, NULL, close_socket, &wire.fd));
	await_sleep();
	for (int i = 0; i < 3; i++)
		CHECK_ERRNO(control(set, operations[i], wire.fd, &event), EBADF);
	CHECK_EQ(await(set, &got, 1, 0), 0);
	wire_close(&wire.peer);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rclose(set));
	CHECK_OK(rclose(wire.listener));
}
