/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A peer process that is killed, in every state of a connection: whoever is
 * left can end what it has, and the next connection works.
 */
#include "pair.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A peer in a process of its own. It is forked before this process uses the
 * library, goes to its state, says so and waits to be killed.
 */
struct peer {
	pid_t pid;
	int port[2];
	int ready[2];
};

static void send_port(int fd, uint16_t port)
{
	CHECK(write(fd, &port, sizeof(port)) == sizeof(port));
}

static uint16_t receive_port(int fd)
{
	uint16_t port;

	CHECK(read(fd, &port, sizeof(port)) == sizeof(port));
	return port;
}

static void start_one(struct peer *peer, void (*run)(struct peer *))
{
	CHECK_OK(pipe(peer->port));
	CHECK_OK(pipe(peer->ready));
	peer->pid = fork();
	CHECK(peer->pid >= 0);
	if (peer->pid == 0) {
		run(peer);
		send_port(peer->ready[1], 1);
		for (;;)
			pause();
	}
}

static void kill_peer(struct peer *peer)
{
	int status;

	CHECK_OK(kill(peer->pid, SIGKILL));
	CHECK(waitpid(peer->pid, &status, 0) == peer->pid);
}

/* Our listener serves one more client, also of ours. */
static void serve_next(struct pair *pair)
{
	struct rdma_conn_param param = usual_param();

	pair_resolve(pair);
	make_qp(pair->client);
	pair_route(pair);
	pair_request(pair, &param);
	make_qp(pair->server);
	pair_accept(pair, &param);
	pair_close(pair);
}

/* ---- Clients ---------------------------------------------------------------- */

static void client_idle(struct peer *peer)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(receive_port(peer->port[0])), 5000));
}

static void client_routed(struct peer *peer)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(receive_port(peer->port[0])), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(id);
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

static void client_requested(struct peer *peer)
{
	struct pair pair;

	pair_connect_to(&pair, receive_port(peer->port[0]), RDMA_PS_TCP);
}

/* The response has come but is not answered. */
static void client_answered(struct peer *peer)
{
	struct pair pair;

	pair_connect_to(&pair, receive_port(peer->port[0]), RDMA_PS_TCP);
	CHECK(wait_readable(pair.client_channel));
}

static void client_established(struct peer *peer)
{
	struct pair pair;

	pair_connect_to(&pair, receive_port(peer->port[0]), RDMA_PS_TCP);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static void client_disconnecting(struct peer *peer)
{
	struct pair pair;

	pair_connect_to(&pair, receive_port(peer->port[0]), RDMA_PS_TCP);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK_OK(rdma_disconnect(pair.client));
}

/* A synchronous client, killed while its connect waits. */
static void client_waiting(struct peer *peer)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(receive_port(peer->port[0])), 5000));
	make_qp(id);
	CHECK_OK(rdma_resolve_route(id, 5000));
	send_port(peer->ready[1], 1);
	rdma_connect(id, &param);
}

/* What the listener makes of the client's request. */
enum answer { NO_REQUEST, HOLD, ACCEPT };

/* No event came. */
static const enum rdma_cm_event_type NONE = (enum rdma_cm_event_type)EVENT_INTERNAL;

/*
 * Takes all events of a connection that come until it is over, or quiet for so
 * many milliseconds.
 */
static enum rdma_cm_event_type take_last(struct rdma_event_channel *channel, int quiet)
{
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };
	enum rdma_cm_event_type last = NONE;

	while (last != RDMA_CM_EVENT_DISCONNECTED && last != RDMA_CM_EVENT_REJECTED &&
	       last != RDMA_CM_EVENT_UNREACHABLE && poll(&entry, 1, quiet) > 0) {
		struct rdma_cm_event *event = next_event(channel, 0);

		last = event->event;
		CHECK_OK(rdma_ack_cm_event(event));
	}
	return last;
}

static enum rdma_cm_event_type lose_client(void (*run)(struct peer *), enum answer answer)
{
	const bool connected = run == client_established || run == client_disconnecting;
	struct rdma_conn_param param = usual_param();
	enum rdma_cm_event_type last = NONE;
	struct peer peer;
	struct pair pair;

	start_one(&peer, run);
	pair_listen(&pair, RDMA_PS_TCP);
	send_port(peer.port[1], ntohs(rdma_get_src_port(pair.listener)));
	if (answer != NO_REQUEST) {
		pair.request = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
					    EVENT_TIMEOUT);
		pair.server = pair.request->id;
		CHECK_OK(rdma_ack_cm_event(pair.request));
		pair.request = NULL;
		make_qp(pair.server);
	}
	if (answer == ACCEPT)
		CHECK_OK(rdma_accept(pair.server, &param));
	receive_port(peer.ready[0]);
	kill_peer(&peer);
	if (answer == HOLD && rdma_accept(pair.server, &param))
		CHECK(errno > 0);
	if (answer != NO_REQUEST) {
		/* One that was not connected may never hear of the end. */
		last = take_last(pair.server_channel, connected ? EVENT_TIMEOUT * 1000 : 1000);
		rdma_destroy_qp(pair.server);
		CHECK_OK(rdma_destroy_id(pair.server));
		pair.server = NULL;
	}
	serve_next(&pair);
	return last;
}

TEST(idle_client, "client killed while it resolves: the listener serves the next", .timeout = 60)
{
	lose_client(client_idle, NO_REQUEST);
}

TEST(routed_client, "client killed before it connects: the listener serves the next",
     .timeout = 60)
{
	lose_client(client_routed, NO_REQUEST);
}

TEST(requested_client, "client killed before the answer: the listener serves the next",
     .timeout = 60)
{
	lose_client(client_requested, HOLD);
}

TEST(waiting_client, "client killed in a synchronous connect: the listener serves the next",
     .timeout = 60)
{
	lose_client(client_waiting, HOLD);
}

TEST(answered_client, "client killed before it took the answer: the listener serves the next",
     .timeout = 60)
{
	lose_client(client_answered, ACCEPT);
}

TEST(established_client, "client killed while connected: DISCONNECTED, and the next is served",
     .timeout = 60)
{
	CHECK_EQ(lose_client(client_established, ACCEPT), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(disconnecting_client, "client killed while it disconnects: DISCONNECTED, and the next is served",
     .timeout = 60)
{
	CHECK_EQ(lose_client(client_disconnecting, ACCEPT), RDMA_CM_EVENT_DISCONNECTED);
}

/* ---- Servers ------------------------------------------------------------------ */

static void server_listening(struct peer *peer)
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	send_port(peer->port[1], ntohs(rdma_get_src_port(pair.listener)));
}

static struct rdma_cm_id *take_request(struct peer *peer, struct pair *pair)
{
	pair_listen(pair, RDMA_PS_TCP);
	send_port(peer->port[1], ntohs(rdma_get_src_port(pair->listener)));
	pair->request = expect_event(pair->server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				     EVENT_TIMEOUT);
	pair->server = pair->request->id;
	return pair->server;
}

static void server_requested(struct peer *peer)
{
	struct pair pair;

	take_request(peer, &pair);
}

static void server_prepared(struct peer *peer)
{
	struct pair pair;

	make_qp(take_request(peer, &pair));
}

static void server_accepted(struct peer *peer)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	make_qp(take_request(peer, &pair));
	CHECK_OK(rdma_accept(pair.server, &param));
}

static void server_established(struct peer *peer)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	make_qp(take_request(peer, &pair));
	CHECK_OK(rdma_accept(pair.server, &param));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

static void server_disconnecting(struct peer *peer)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	make_qp(take_request(peer, &pair));
	CHECK_OK(rdma_accept(pair.server, &param));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK_OK(rdma_disconnect(pair.server));
}

/* A synchronous server, killed while it waits for a request. */
static void server_waiting(struct peer *peer)
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP), *id;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 1));
	send_port(peer->port[1], ntohs(rdma_get_src_port(listener)));
	send_port(peer->ready[1], 1);
	rdma_get_request(listener, &id);
}

/* Kills the server when it is ready, which before or after we connect. */
static enum rdma_cm_event_type lose_server(void (*run)(struct peer *), bool before)
{
	enum rdma_cm_event_type last;
	struct peer peer;
	struct pair pair;
	uint16_t port;

	start_one(&peer, run);
	port = receive_port(peer.port[0]);
	if (before) {
		receive_port(peer.ready[0]);
		kill_peer(&peer);
	}
	pair_connect_to(&pair, port, RDMA_PS_TCP);
	if (!before) {
		/* What we answer is up to us, and the server may wait for it. */
		struct pollfd entry = { .fd = peer.ready[0], .events = POLLIN };

		if (run != server_requested && run != server_prepared)
			CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
		CHECK(poll(&entry, 1, EVENT_TIMEOUT * 1000) == 1);
		kill_peer(&peer);
	}
	last = take_last(pair.client_channel, EVENT_TIMEOUT * 1000);
	if (last == RDMA_CM_EVENT_DISCONNECTED)
		CHECK_OK(rdma_disconnect(pair.client));
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	rdma_destroy_event_channel(pair.client_channel);
	pair_connect(&pair, RDMA_PS_TCP);
	pair_close(&pair);
	return last;
}

TEST(listening_server, "server killed before the request: REJECTED, then all is well",
     .timeout = 60)
{
	CHECK_EQ(lose_server(server_listening, true), RDMA_CM_EVENT_REJECTED);
}

TEST(waiting_server, "server killed in get_request: REJECTED, then all is well", .timeout = 60)
{
	CHECK_EQ(lose_server(server_waiting, true), RDMA_CM_EVENT_REJECTED);
}

TEST(requested_server, "server killed before it answers: REJECTED, then all is well",
     .timeout = 60)
{
	CHECK_EQ(lose_server(server_requested, false), RDMA_CM_EVENT_REJECTED);
}

TEST(prepared_server, "server killed with a queue pair, before it answers: REJECTED",
     .timeout = 60)
{
	CHECK_EQ(lose_server(server_prepared, false), RDMA_CM_EVENT_REJECTED);
}

TEST(accepted_server, "server killed after it accepted: DISCONNECTED or REJECTED, then all is well",
     .timeout = 60)
{
	enum rdma_cm_event_type last = lose_server(server_accepted, false);

	/* Up to the kernel: had the server's heard that we are ready or not? */
	CHECK(last == RDMA_CM_EVENT_DISCONNECTED || last == RDMA_CM_EVENT_REJECTED);
}

TEST(established_server, "server killed while connected: DISCONNECTED, then all is well",
     .timeout = 60)
{
	CHECK_EQ(lose_server(server_established, false), RDMA_CM_EVENT_DISCONNECTED);
}

TEST(disconnecting_server, "server killed while it disconnects: DISCONNECTED, then all is well",
     .timeout = 60)
{
	CHECK_EQ(lose_server(server_disconnecting, false), RDMA_CM_EVENT_DISCONNECTED);
}
