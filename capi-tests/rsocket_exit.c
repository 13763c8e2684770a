/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What becomes of what was sent when a process ends: its sockets are closed or
 * shut down, and the peer has not taken everything yet.
 */
#include "rsocket_pair.h"
#include "rsocket_peer.h"

/* Who waits for a peer that takes nothing waits for ten seconds, or for ever. */
enum { PORT = 7751, ROOM = 65536, CREDITS = 200, BOUNDED = 8000 };

/* A child that sends and ends. */
struct sender {
	pid_t pid;
	int alive; /* end of file once it has ended */
};

static void close_at_once(int fd)
{
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(rclose(fd));
	exit(EXIT_SUCCESS);
}

/* The library is not asked when the process ends. */
static void shut_down(int fd)
{
	CHECK_OK(rshutdown(fd, SHUT_WR));
	_exit(EXIT_SUCCESS);
}

static void shut_down_soon(int fd)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 1 };

	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	shut_down(fd);
}

/* Says by its input when it is through with the call, and ends by the peer. */
static int told[2];

static void shut_down_at_once(int fd)
{
	char byte;

	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(rshutdown(fd, SHUT_WR));
	CHECK_EQ(write(told[1], "x", 1), 1);
	CHECK(poll_one(fd, POLLIN, 20000) & POLLIN);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 0);
	_exit(EXIT_SUCCESS);
}

static void send_and_exit(int go, void (*end)(int fd))
{
	struct sockaddr *addr = test_addr(PORT);
	char byte;
	int fd;

	CHECK_EQ(read(go, &byte, 1), 1);
	fd = connect_to(addr);
	CHECK_EQ(rsend(fd, "parting", 7, 0), 7);
	end(fd);
}

/*
 * Starts the child, which connects to a peer that takes no messages until it is
 * told to listen.
 */
static struct sender start_sender(struct wire_peer *peer, void (*end)(int fd))
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct sender sender;
	int go[2], alive[2];
	struct hello hello;

	CHECK_OK(pipe(go));
	CHECK_OK(pipe(alive));
	fflush(NULL);
	sender.pid = fork();
	CHECK(sender.pid >= 0);
	if (sender.pid == 0) {
		close(alive[0]);
		send_and_exit(go[0], end);
	}
	close(alive[1]);
	sender.alive = alive[0];

	channel = make_channel();
	listener = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(listener, test_addr(PORT)));
	CHECK_OK(rdma_listen(listener, 1));
	CHECK_EQ(write(go[1], "x", 1), 1);
	*peer = wire_take(expect_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, EVENT_TIMEOUT));
	wire_prepare_deaf(peer);
	hello = wire_hello(peer, CREDITS, ROOM);
	wire_accept(peer, &hello);
	CHECK_OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
	return sender;
}

/* Whether the child ends within so many milliseconds. */
static bool ends_within(const struct sender *sender, int milliseconds)
{
	struct pollfd entry = { .fd = sender->alive, .events = POLLIN };

	return poll(&entry, 1, milliseconds) > 0;
}

static void check_success(const struct sender *sender)
{
	int status;

	CHECK_EQ(waitpid(sender->pid, &status, 0), sender->pid);
	CHECK_EQ(status, 0);
}

/* Hears what the child has sent, and then how it has ended the connection. */
static void hear_all(struct wire_peer *peer, unsigned farewell)
{
	struct heard heard;

	wire_listen(peer);
	heard = wire_hear_other(peer);
	CHECK_EQ(heard.op, OP_DATA);
	CHECK_EQ(heard.value, 7);
	CHECK(memcmp(peer->memory + WIRE_BUFFER, "parting", 7) == 0);
	heard = wire_hear_other(peer);
	CHECK_EQ(heard.op, OP_CONTROL);
	CHECK_EQ(heard.value, farewell);
}

TEST(delivered, "what a socket sent before a non-blocking close arrives though the process ends",
     .timeout = 60)
{
	struct wire_peer peer;
	struct sender sender = start_sender(&peer, close_at_once);

	CHECK(!ends_within(&sender, 500));
	hear_all(&peer, SAY_DISCONNECT);
	check_success(&sender);
	wire_close(&peer);
}

TEST(shut, "what a socket sent has arrived when a blocking shutdown returns", .timeout = 60)
{
	struct wire_peer peer;
	struct sender sender = start_sender(&peer, shut_down);

	CHECK(!ends_within(&sender, 500));
	hear_all(&peer, SAY_SHUTDOWN);
	check_success(&sender);
	wire_close(&peer);
}

TEST(shut_bounded, "[fix] SO_LINGER bounds the shutdown of a peer that takes nothing", .timeout = 25)
{
	struct wire_peer peer;
	struct sender sender = start_sender(&peer, shut_down_soon);

	CHECK(ends_within(&sender, BOUNDED));
	check_success(&sender);
	wire_close(&peer);
}

TEST(shut_at_once, "[fix] a non-blocking shutdown does not wait, and what was sent arrives",
     .timeout = 40)
{
	struct pollfd entry = { .events = POLLIN };
	struct wire_peer peer;
	struct sender sender;

	CHECK_OK(pipe(told));
	entry.fd = told[0];
	sender = start_sender(&peer, shut_down_at_once);
	/* The peer takes nothing yet. */
	CHECK_EQ(poll(&entry, 1, BOUNDED), 1);
	CHECK(!ends_within(&sender, 100));
	hear_all(&peer, SAY_SHUTDOWN);
	CHECK(wire_message(&peer, OP_CONTROL, SAY_SHUTDOWN));
	check_success(&sender);
	wire_close(&peer);
}

TEST(bounded, "[fix] a process ends though the peer of its socket takes nothing", .timeout = 25)
{
	struct wire_peer peer;
	struct sender sender = start_sender(&peer, close_at_once);

	CHECK(ends_within(&sender, 20000));
	check_success(&sender);
	wire_close(&peer);
}
