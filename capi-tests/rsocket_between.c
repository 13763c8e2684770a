/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stream sockets of two processes, of which each may run on another library:
 * RDMACM_TEST_PEER_LIBRARY names the one of the process that listens. Only one
 * thread of a side uses a socket, as the original loses wake-ups of a second one.
 */
#include "rsocket_pair.h"

#include <netinet/tcp.h>
#include <sys/uio.h>

enum { PORT = 7691, MEGABYTE = 1 << 20 };

/* What both sides do with a connection. */
struct talk {
	/* Before connecting, and with the socket that listens. */
	void (*configure)(int fd);
	void (*client)(int fd);
	void (*server)(int fd);
	int connections; /* one after the other; 1 if 0 */
};

static void serve(const void *what, long ready)
{
	const struct talk *talk = what;
	struct sockaddr *addr = test_addr(PORT);
	int one = 1, listener = rsocket(AF_INET, SOCK_STREAM, 0), i = 0;

	CHECK(listener >= 0);
	CHECK_OK(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	if (talk->configure)
		talk->configure(listener);
	CHECK_OK(rbind(listener, addr, addr_length(addr)));
	CHECK_OK(rlisten(listener, 8));
	CHECK_EQ(write((int)ready, "x", 1), 1);
	do {
		int fd = raccept(listener, NULL, NULL);

		CHECK(fd >= 0);
		talk->server(fd);
		CHECK_OK(rclose(fd));
	} while (++i < talk->connections);
	CHECK_OK(rclose(listener));
}

static pid_t start_server(const struct talk *talk)
{
	int ready[2];
	char byte;
	pid_t pid;

	CHECK_OK(pipe(ready));
	pid = start_peer(serve, talk, ready[1]);
	CHECK_OK(close(ready[1]));
	/* The end of the file if the peer has failed. */
	if (read(ready[0], &byte, 1) != 1)
		wait_peer(pid);
	CHECK_OK(close(ready[0]));
	return pid;
}

static void run(const struct talk *talk)
{
	struct sockaddr *addr = test_addr(PORT);
	pid_t pid = start_server(talk);
	int i = 0;

	do {
		int fd = rsocket(AF_INET, SOCK_STREAM, 0);

		CHECK(fd >= 0);
		if (talk->configure)
			talk->configure(fd);
		CHECK_OK(rconnect(fd, addr, addr_length(addr)));
		talk->client(fd);
		CHECK_OK(rclose(fd));
	} while (++i < talk->connections);
	wait_peer(pid);
}

#define TEST_TALK(ident, text, ...)                                        \
	static const struct talk ident##_talk = { __VA_ARGS__ };      \
	TEST(ident, text, .timeout = 60)                              \
	{                                                             \
		run(&ident##_talk);                                   \
	}

/* ---- Data that both sides know ------------------------------------------- */

static unsigned char pattern(size_t place, unsigned char key)
{
	return (unsigned char)(place * 7 + (place >> 8) * 13 + (place >> 16) + key);
}

static void fill(unsigned char *data, size_t from, size_t size, unsigned char key)
{
	for (size_t i = 0; i < size; i++)
		data[i] = pattern(from + i, key);
}

static void verify(const unsigned char *data, size_t from, size_t size,
		   unsigned char key)
{
	for (size_t i = 0; i < size; i++)
		if (data[i] != pattern(from + i, key))
			FAIL("byte %zu is wrong", from + i);
}

static void send_all(int fd, size_t size, unsigned char key)
{
	unsigned char *data = malloc(size);
	size_t sent = 0;

	fill(data, 0, size, key);
	while (sent < size) {
		ssize_t result = rsend(fd, data + sent, size - sent, 0);

		CHECK(result > 0);
		sent += (size_t)result;
	}
	free(data);
}

static void receive_all(int fd, size_t size, unsigned char key)
{
	unsigned char *data = malloc(size);
	size_t received = 0;

	while (received < size) {
		ssize_t result = rrecv(fd, data + received, size - received, 0);

		CHECK(result > 0);
		received += (size_t)result;
	}
	verify(data, 0, size, key);
	free(data);
}

static void expect_end(int fd)
{
	char byte;

	CHECK_EQ(rrecv(fd, &byte, 1, 0), 0);
}

/* ---- Bulk data ------------------------------------------------------------ */

static const int sizes[] = { 1, 2, 63, 64, 65, 2047, 2048, 2049, 65535, 65536, 65537,
			     131073, MEGABYTE + 1, 8 * MEGABYTE };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void sizes_client(int fd)
{
	for (int i = 0; i < SIZES; i++) {
		send_all(fd, sizes[i], 1);
		receive_all(fd, sizes[i], 2);
	}
}

static void sizes_server(int fd)
{
	for (int i = 0; i < SIZES; i++) {
		receive_all(fd, sizes[i], 1);
		send_all(fd, sizes[i], 2);
	}
}

TEST_TALK(all_sizes, "40 101 a byte to eight megabytes, there and back", .client = sizes_client,
     .server = sizes_server)

/* More messages than a counter of 16 bits counts. */
enum { MESSAGES = 70000 };

static void send_bytes(int fd)
{
	for (int i = 0; i < MESSAGES; i++) {
		unsigned char byte = pattern(i, 3);

		CHECK_EQ(rsend(fd, &byte, 1, 0), 1);
	}
}

static void bytes_client(int fd)
{
	send_bytes(fd);
	receive_all(fd, MESSAGES, 3);
}

static void bytes_server(int fd)
{
	receive_all(fd, MESSAGES, 3);
	send_bytes(fd);
}

TEST_TALK(counters, "37 101 so many single bytes that counters of messages wrap around",
     .client = bytes_client, .server = bytes_server)

static void make_small(int fd)
{
	int buffer = 2048, entries = 16;

	set_option(fd, SOL_SOCKET, SO_SNDBUF, buffer);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, buffer);
	set_option(fd, SOL_RDMA, RDMA_SQSIZE, entries);
	set_option(fd, SOL_RDMA, RDMA_RQSIZE, entries);
}

static void megabyte_client(int fd)
{
	send_all(fd, MEGABYTE, 4);
	receive_all(fd, MEGABYTE, 5);
}

static void megabyte_server(int fd)
{
	receive_all(fd, MEGABYTE, 4);
	send_all(fd, MEGABYTE, 5);
}

TEST_TALK(small, "41 101 a megabyte through the smallest buffers and queues",
     .configure = make_small, .client = megabyte_client, .server = megabyte_server)

static void make_large(int fd)
{
	set_option(fd, SOL_SOCKET, SO_SNDBUF, MEGABYTE);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, MEGABYTE);
	set_option(fd, SOL_RDMA, RDMA_SQSIZE, 1000);
	set_option(fd, SOL_RDMA, RDMA_RQSIZE, 700);
}

TEST_TALK(large, "32 101 a megabyte through large buffers and queues", .configure = make_large,
     .client = megabyte_client, .server = megabyte_server)

/* ---- Messages, inline data, vectors ---------------------------------------- */

enum { LONGEST = 300 };

static void increasing(int fd, bool sends)
{
	unsigned char data[LONGEST];

	for (int size = 1; size <= LONGEST; size++) {
		if (sends) {
			fill(data, 0, size, (unsigned char)size);
			CHECK_EQ(rsend(fd, data, size, 0), size);
		} else {
			CHECK_EQ(rrecv(fd, data, size, MSG_WAITALL), size);
			verify(data, 0, size, (unsigned char)size);
		}
	}
}

static void increasing_client(int fd)
{
	increasing(fd, true);
	increasing(fd, false);
}

static void increasing_server(int fd)
{
	increasing(fd, false);
	increasing(fd, true);
}

static void nothing_inline(int fd)
{
	set_option(fd, SOL_RDMA, RDMA_INLINE, 0);
}

static void much_inline(int fd)
{
	set_option(fd, SOL_RDMA, RDMA_INLINE, 256);
}

TEST_TALK(no_inline, "39 101 messages of all sizes to 300, nothing inline",
     .configure = nothing_inline, .client = increasing_client, .server = increasing_server)

TEST_TALK(much, "39 101 messages of all sizes to 300, 256 bytes inline",
     .configure = much_inline, .client = increasing_client, .server = increasing_server)

/* A prime length, so that the vectors meet the ends of buffers anywhere. */
enum { VECTORS = 20, VECTOR = 1009, ROUNDS = 30 };

static void vectors(int fd, bool sends)
{
	static unsigned char data[VECTORS * VECTOR];

	for (int round = 0; round < ROUNDS; round++) {
		struct iovec parts[VECTORS];
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = VECTORS };

		if (!sends) {
			CHECK_EQ(rrecv(fd, data, sizeof(data), MSG_WAITALL),
				 sizeof(data));
			verify(data, 0, sizeof(data), (unsigned char)round);
			continue;
		}
		fill(data, 0, sizeof(data), (unsigned char)round);
		for (int i = 0; i < VECTORS; i++)
			parts[i] = (struct iovec){ data + i * VECTOR, VECTOR };
		if (round % 2)
			CHECK_EQ(rsendmsg(fd, &message, 0), sizeof(data));
		else
			CHECK_EQ(rwritev(fd, parts, VECTORS), sizeof(data));
	}
}

static void vectors_client(int fd)
{
	vectors(fd, true);
	vectors(fd, false);
}

static void vectors_server(int fd)
{
	vectors(fd, false);
	vectors(fd, true);
}

TEST_TALK(many_vectors, "47 101 twenty vectors at once, across the ends of buffers",
     .client = vectors_client, .server = vectors_server)

static void flags_client(int fd)
{
	char data[16] = "";

	send_all(fd, 4, 6);
	CHECK_EQ(rrecv(fd, data, 1, 0), 1);
	send_all(fd, 4, 6);
	/* The peer sends in two pieces, and closes. */
	CHECK_EQ(rrecv(fd, data, 4, MSG_PEEK), 4);
	CHECK(!memcmp(data, "abcd", 4));
	CHECK_EQ(rrecv(fd, data, sizeof(data), MSG_WAITALL), 8);
	CHECK(!memcmp(data, "abcdefgh", 8));
	expect_end(fd);
}

static void flags_server(int fd)
{
	unsigned char data[4];

	CHECK_EQ(rrecv(fd, data, 4, MSG_PEEK), 4);
	verify(data, 0, 4, 6);
	CHECK_EQ(rrecv(fd, data, 4, 0), 4);
	CHECK_ERRNO((int)rrecv(fd, data, 4, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(rsend(fd, "r", 1, 0), 1);
	CHECK_EQ(rrecv(fd, data, 4, MSG_WAITALL), 4);
	verify(data, 0, 4, 6);
	CHECK_EQ(rsend(fd, "abcd", 4, 0), 4);
	CHECK_EQ(rsend(fd, "efgh", 4, 0), 4);
}

TEST_TALK(flags, "42 43 44 45 101 MSG_PEEK, MSG_WAITALL and MSG_DONTWAIT",
     .client = flags_client, .server = flags_server)

/* ---- Ends ----------------------------------------------------------------- */

static void half_client(int fd)
{
	send_all(fd, 100000, 7);
	CHECK_OK(rshutdown(fd, SHUT_WR));
	receive_all(fd, 100000, 8);
	expect_end(fd);
	CHECK(poll_one(fd, POLLIN, 10000) & POLLIN);
}

static void half_server(int fd)
{
	receive_all(fd, 100000, 7);
	expect_end(fd);
	send_all(fd, 100000, 8);
	CHECK_OK(rshutdown(fd, SHUT_WR));
	/* Both have ended: that is a hang-up. */
	CHECK(poll_one(fd, POLLIN, 10000) & POLLHUP);
}

TEST_TALK(half, "48 101 one side ends sending, the other answers and ends", .client = half_client,
     .server = half_server)

/* Not here: both sides end at once, in which the original waits for ever now and
   then, also with itself (rsocket_end/49). */

static void closes_at_once(int fd)
{
	char byte;

	/* Else the original may never hear of the connection. */
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	send_all(fd, 60000, 9);
}

static void reads_to_end(int fd)
{
	CHECK_EQ(rsend(fd, "r", 1, 0), 1);
	receive_all(fd, 60000, 9);
	expect_end(fd);
}

TEST_TALK(unread, "53 101 what was sent before the server closed is read", .client = reads_to_end,
     .server = closes_at_once)
TEST_TALK(unread_too, "53 101 what was sent before the client closed is read",
     .client = closes_at_once, .server = reads_to_end)

static void hello_client(int fd)
{
	send_all(fd, 5, 10);
	receive_all(fd, 5, 11);
}

static void hello_server(int fd)
{
	receive_all(fd, 5, 10);
	send_all(fd, 5, 11);
}

TEST_TALK(many, "75 101 fifty connections one after the other", .client = hello_client,
     .server = hello_server, .connections = 50)

/* ---- Without blocking ------------------------------------------------------ */

enum { PUMPED = 2 * MEGABYTE, PIECE = 30011 };

/* One thread sends and receives at once, whichever is possible. */
static void pump(int fd, unsigned char out, unsigned char in)
{
	static unsigned char data[PIECE];
	size_t sent = 0, received = 0;

	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	while (sent < PUMPED || received < PUMPED) {
		short events = (sent < PUMPED ? POLLOUT : 0) | POLLIN;
		short ready = poll_one(fd, events, 10000);
		ssize_t result;

		if (ready & POLLOUT && sent < PUMPED) {
			size_t size = PUMPED - sent < PIECE ? PUMPED - sent : PIECE;

			fill(data, sent, size, out);
			result = rsend(fd, data, size, 0);
			CHECK(result > 0 || errno == EAGAIN);
			sent += result > 0 ? (size_t)result : 0;
		}
		if (ready & POLLIN && received < PUMPED) {
			result = rrecv(fd, data, sizeof(data), 0);
			CHECK(result > 0 || errno == EAGAIN);
			if (result > 0)
				verify(data, received, result, in);
			received += result > 0 ? (size_t)result : 0;
		}
	}
	CHECK_OK(rfcntl(fd, F_SETFL, 0));
}

/* One ends after the other, as the original needs it. */
static void pump_client(int fd)
{
	pump(fd, 12, 13);
	CHECK_OK(rshutdown(fd, SHUT_WR));
	expect_end(fd);
}

static void pump_server(int fd)
{
	pump(fd, 13, 12);
	expect_end(fd);
	CHECK_OK(rshutdown(fd, SHUT_WR));
}

TEST_TALK(pumped, "101 both ways at once, non-blocking with rpoll", .client = pump_client,
     .server = pump_server)

static const struct talk late_talk = { .server = hello_server };

TEST(late, "17 101 a non-blocking connect", .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	pid_t pid = start_server(&late_talk);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINPROGRESS);
	while (!(poll_one(fd, POLLOUT, 10000) & POLLOUT))
		;
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_OK(rfcntl(fd, F_SETFL, 0));
	hello_client(fd);
	CHECK_OK(rclose(fd));
	wait_peer(pid);
}

/* ---- Direct placement ------------------------------------------------------- */

enum { MAPPED = 300000, OFFSET = 0x1234567 };

static void may_write(int fd)
{
	/* How many of the peer's buffers this side may write to. */
	set_option(fd, SOL_RDMA, RDMA_IOMAPSIZE, 2);
}

/* Lets the peer write, which then says that it has. */
static void is_written(int fd, unsigned char key)
{
	unsigned char *memory = calloc(1, MAPPED);
	char byte;

	CHECK_EQ(riomap(fd, memory, MAPPED, PROT_WRITE, 0, OFFSET), OFFSET);
	CHECK_EQ(rsend(fd, "m", 1, 0), 1);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	verify(memory, 0, MAPPED, key);
	CHECK_OK(riounmap(fd, memory, MAPPED));
	CHECK_EQ(rsend(fd, "u", 1, 0), 1);
	free(memory);
}

/* The last byte, then the first ones, then the rest: in the order of calls. */
static void writes(int fd, unsigned char key)
{
	unsigned char *data = malloc(MAPPED);
	char byte;

	fill(data, 0, MAPPED, key);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'm');
	CHECK_EQ(riowrite(fd, data + MAPPED - 1, 1, OFFSET + MAPPED - 1, 0), 1);
	CHECK_EQ(riowrite(fd, data, 100, OFFSET, 0), 100);
	CHECK_EQ(riowrite(fd, data + 100, MAPPED - 101, OFFSET + 100, 0), MAPPED - 101);
	CHECK_EQ(rsend(fd, "w", 1, 0), 1);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'u');
	free(data);
}

static void mapped_client(int fd)
{
	is_written(fd, 14);
	writes(fd, 15);
}

static void mapped_server(int fd)
{
	writes(fd, 14);
	is_written(fd, 15);
}

TEST_TALK(mapped, "77 101 mapped memory is written, either side's", .configure = may_write,
     .client = mapped_client, .server = mapped_server)

/* More than there are credits. */
enum { MAPPINGS = 500 };

static void maps_often(int fd)
{
	static char memory[64];

	for (int i = 0; i < MAPPINGS; i++) {
		CHECK_EQ(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
		CHECK_EQ(rsend(fd, "m", 1, 0), 1);
		CHECK_OK(riounmap(fd, memory, sizeof(memory)));
	}
}

static void skip_marks(int fd)
{
	char marks[MAPPINGS];

	CHECK_EQ(rrecv(fd, marks, sizeof(marks), MSG_WAITALL), MAPPINGS);
}

static void maps_client(int fd)
{
	maps_often(fd);
	skip_marks(fd);
	hello_client(fd);
}

static void maps_server(int fd)
{
	skip_marks(fd);
	maps_often(fd);
	hello_server(fd);
}

static const struct talk credits_talk = { .configure = may_write, .client = maps_client,
					  .server = maps_server };

/* The original waits for ever, but not for long here. */
TEST(credits, "79 101 [fix] mappings of either side come and go, and cost the stream nothing",
     .timeout = 30)
{
	run(&credits_talk);
}

/* ---- Idle and stopped ------------------------------------------------------- */

static void idle_client(int fd)
{
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	hello_client(fd);
	/* Both send signs of life meanwhile. */
	CHECK_EQ(poll_one(fd, POLLIN, 2500) & ~POLLOUT, 0);
	hello_client(fd);
}

static void idle_server(int fd)
{
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	hello_server(fd);
	hello_server(fd);
}

TEST_TALK(idle, "72 101 keep-alive messages while idle harm nothing", .client = idle_client,
     .server = idle_server)
