/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Things that go wrong or come in numbers: a link that goes down, exhausted
 * descriptors, events nobody acknowledges, many connections and many threads.
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

/* ---- The link --------------------------------------------------------------- */

static void link_up(void)
{
	run_command("ip link set %s up", test_netdev());
}

/*
 * The management QP of soft-RoCE does not survive that a packet could not be
 * sent; only a new device has a good one.
 */
static void new_device(void)
{
	link_up();
	rxe_remove();
	rxe_add();
}

static void link_down(void)
{
	/* IPv6 addresses would be gone for good otherwise. */
	run_command("echo 1 > /proc/sys/net/ipv6/conf/%s/keep_addr_on_down", test_netdev());
	run_command("ip link set %s down", test_netdev());
}

TEST(link_connected, "link down and up while connected: no event, data flow again",
     .timeout = 60, .cleanup = new_device)
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "before");
	link_down();
	expect_no_event(pair.client_channel, 300);
	expect_no_event(pair.server_channel, 100);
	link_up();
	send_message(pair.client, pair.server, "after");
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

TEST(link_resolve, "resolving while the link is down fails, and works once it is up",
     .timeout = 60, .cleanup = new_device)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	link_down();
	if (rdma_resolve_addr(id, NULL, silent_addr(7), 500) == 0)
		CHECK(take_event(channel, RDMA_CM_EVENT_ADDR_ERROR) < 0);
	else
		CHECK(errno == ENETUNREACH || errno == ENODEV || errno == ENETDOWN);
	link_up();
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(link_connect, "connecting while the link is down gives UNREACHABLE", .timeout = 120,
     .cleanup = new_device)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_event *event;
	struct pair pair;

	/* No library can tell: the request is sent once and never repeated. */
	if (kernel_at_least(6, 12) && !kernel_at_least(7, 0))
		SKIP("soft-RoCE of Linux 6.12 never completes a send while the link is down");
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	link_down();
	CHECK_OK(rdma_connect(pair.client, &param));
	/* At once or after all repetitions, about 70 seconds. */
	event = expect_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE, 100);
	CHECK_EQ(event->status, -ETIMEDOUT);
	CHECK_OK(rdma_ack_cm_event(event));
	link_up();
	pair_close(&pair);
}

/* ---- Resources --------------------------------------------------------------- */

TEST(no_descriptors, "no descriptors left: the QP fails, nothing leaks, later it works")
{
	struct rlimit limit, none;
	struct ibv_qp_init_attr init;
	struct pair pair;
	unsigned int before;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	before = open_descriptors();
	for (rlim_t extra = 0; extra < 2; extra++) {
		none.rlim_cur = before + extra;
		CHECK_OK(setrlimit(RLIMIT_NOFILE, &none));
		init = usual_qp(pair.client);
		CHECK_EQ(rdma_create_qp(pair.client, NULL, &init), -1);
		CHECK(errno == EMFILE || errno == ENOMEM);
		CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
		CHECK_EQ(open_descriptors(), before);
		CHECK(!pair.client->qp);
		CHECK(!pair.client->send_cq);
		CHECK(!pair.client->recv_cq);
		CHECK(!pair.client->send_cq_channel);
		CHECK(!pair.client->recv_cq_channel);
	}
	make_qp(pair.client);
	pair_close(&pair);
}

/* ---- Events not acknowledged --------------------------------------------------- */

struct destruction {
	struct rdma_cm_id *id;
	bool done;
};

static void *destroy_main(void *argument)
{
	struct destruction *destruction = argument;

	CHECK_OK(rdma_destroy_id(destruction->id));
	__atomic_store_n(&destruction->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

TEST(unacknowledged, "102 destroying a listener waits for its request to be acknowledged")
{
	struct destruction destruction = { .done = false };
	struct pair pair;
	pthread_t thread;

	pair_to_request(&pair, RDMA_PS_TCP);
	destruction.id = pair.listener;
	pair.listener = NULL;
	CHECK_OK(pthread_create(&thread, NULL, destroy_main, &destruction));
	expect_no_event(pair.client_channel, 500);
	CHECK(!__atomic_load_n(&destruction.done, __ATOMIC_SEQ_CST));
	CHECK_OK(rdma_ack_cm_event(pair.request));
	pair.request = NULL;
	CHECK_OK(pthread_join(thread, NULL));
	pair_close(&pair);
}

TEST(request_of_child, "102 the new id of a request does not wait for the request")
{
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_destroy_id(pair.server));
	pair.server = NULL;
	CHECK_OK(rdma_ack_cm_event(pair.request));
	pair.request = NULL;
	pair_close(&pair);
}

/* ---- Numbers -------------------------------------------------------------------- */

/* An event loop of both sides over one channel. */
struct crowd {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	int established;
	int disconnected;
};

static void crowd_step(struct crowd *crowd)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_event *event = next_event(crowd->channel, 60);
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	if (event->status)
		FAIL("%s status %d", rdma_event_str(type), event->status);
	CHECK_OK(rdma_ack_cm_event(event));
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		make_qp(id);
		CHECK_OK(rdma_resolve_route(id, 10000));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		CHECK_OK(rdma_connect(id, &param));
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		make_qp(id);
		CHECK_OK(rdma_accept(id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		crowd->established++;
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		crowd->disconnected++;
		rdma_destroy_qp(id);
		CHECK_OK(rdma_destroy_id(id));
		break;
	default:
		FAIL("unexpected %s", rdma_event_str(type));
	}
}

TEST(crowd, "256 connections whose events all come through one channel", .timeout = 500)
{
	enum { COUNT = 256 };
	struct crowd crowd = { .channel = make_channel() };
	struct rdma_cm_id *clients[COUNT];
	struct rlimit limit;

	CHECK_OK(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
	crowd.listener = make_id(crowd.channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(crowd.listener, test_addr(0)));
	CHECK_OK(rdma_listen(crowd.listener, COUNT));
	for (int i = 0; i < COUNT; i++) {
		clients[i] = make_id(crowd.channel, RDMA_PS_TCP);
		CHECK_OK(rdma_resolve_addr(clients[i], NULL, rdma_get_local_addr(crowd.listener),
					   10000));
	}
	while (crowd.established < 2 * COUNT)
		crowd_step(&crowd);
	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(qp_state(clients[i]->qp), IBV_QPS_RTS);
		rdma_destroy_qp(clients[i]);
		CHECK_OK(rdma_destroy_id(clients[i]));
	}
	while (crowd.disconnected < COUNT)
		crowd_step(&crowd);
	CHECK_OK(rdma_destroy_id(crowd.listener));
	rdma_destroy_event_channel(crowd.channel);
}

enum { THREADS = 6, ROUNDS = 8 };

/* One client after the other, each on a channel of its own. */
static void *connecting_main(void *argument)
{
	struct sockaddr *addr = argument;

	for (int i = 0; i < ROUNDS; i++) {
		struct pair pair;

		pair_connect_to(&pair, ntohs(((struct sockaddr_in *)addr)->sin_port), RDMA_PS_TCP);
		CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
		CHECK_OK(rdma_disconnect(pair.client));
		rdma_destroy_qp(pair.client);
		CHECK_OK(rdma_destroy_id(pair.client));
		rdma_destroy_event_channel(pair.client_channel);
	}
	return NULL;
}

TEST(threads, "threads with channels of their own connect to one listener [race]", .timeout = 300)
{
	struct crowd crowd = { .channel = make_channel() };
	pthread_t threads[THREADS];

	crowd.listener = make_id(crowd.channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(crowd.listener, test_addr(0)));
	CHECK_OK(rdma_listen(crowd.listener, THREADS));
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, connecting_main,
					rdma_get_local_addr(crowd.listener)));
	while (crowd.disconnected < THREADS * ROUNDS)
		crowd_step(&crowd);
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	CHECK_EQ(crowd.established, THREADS * ROUNDS);
	CHECK_OK(rdma_destroy_id(crowd.listener));
	rdma_destroy_event_channel(crowd.channel);
}

/* A server whose events are read by several threads. */
struct readers {
	struct rdma_event_channel *channel;
	int requests;
	int established;
	int disconnected;
};

static void reader_event(struct readers *readers, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	CHECK_EQ(event->status, 0);
	CHECK_OK(rdma_ack_cm_event(event));
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		__atomic_add_fetch(&readers->requests, 1, __ATOMIC_SEQ_CST);
		make_qp(id);
		CHECK_OK(rdma_accept(id, &param));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		__atomic_add_fetch(&readers->established, 1, __ATOMIC_SEQ_CST);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/*
		 * The id stays: another thread may be about to deliver its
		 * ESTABLISHED event.
		 */
		__atomic_add_fetch(&readers->disconnected, 1, __ATOMIC_SEQ_CST);
		break;
	default:
		FAIL("unexpected %s", rdma_event_str(type));
	}
}

static void *reader_main(void *argument)
{
	struct readers *readers = argument;
	struct pollfd entry = { .fd = readers->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	while (__atomic_load_n(&readers->disconnected, __ATOMIC_SEQ_CST) < THREADS * ROUNDS) {
		poll(&entry, 1, 50);
		if (rdma_get_cm_event(readers->channel, &event) == 0)
			reader_event(readers, event);
		else
			CHECK_EQ(errno, EAGAIN);
	}
	return NULL;
}

TEST(readers, "several threads read the events of one server channel [race]", .timeout = 300)
{
	struct readers readers = { .channel = make_channel() };
	struct rdma_cm_id *listener = make_id(readers.channel, RDMA_PS_TCP);
	pthread_t clients[THREADS], threads[4];

	CHECK_OK(fcntl(readers.channel->fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, THREADS));
	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, reader_main, &readers));
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&clients[i], NULL, connecting_main,
					rdma_get_local_addr(listener)));
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_join(clients[i], NULL));
	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	CHECK_EQ(readers.requests, THREADS * ROUNDS);
	CHECK_EQ(readers.established, THREADS * ROUNDS);
	CHECK_OK(rdma_destroy_id(listener));
}
