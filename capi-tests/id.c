/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Identifiers: creation, destruction, migration between channels. */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

TEST(unknown_space, "14 unknown port space gives EINVAL")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id;

	CHECK_ERRNO(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)0x9999),
		    EINVAL);
	CHECK_ERRNO(rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)0x9999), EINVAL);
	rdma_destroy_event_channel(channel);
}

static void check_new(enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = NULL;
	int context;

	CHECK_OK(rdma_create_id(channel, &id, &context, ps));
	CHECK(id->channel == channel);
	CHECK(id->context == &context);
	CHECK_EQ(id->ps, ps);
	CHECK_EQ(id->qp_type, qp_type);
	CHECK(!id->verbs && !id->qp && !id->srq && !id->pd && !id->event);
	CHECK(!id->send_cq && !id->recv_cq);
	CHECK(!id->send_cq_channel && !id->recv_cq_channel);
	CHECK_EQ(id->port_num, 0);
	CHECK_EQ(id->route.addr.src_addr.sa_family, 0);
	CHECK_EQ(id->route.addr.dst_addr.sa_family, 0);
	CHECK(!id->route.path_rec);
	CHECK_EQ(id->route.num_paths, 0);
	CHECK_EQ(rdma_get_src_port(id), 0);
	CHECK_EQ(rdma_get_dst_port(id), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(new_tcp, "15 PS_TCP: qp_type RC, everything else empty")
{
	check_new(RDMA_PS_TCP, IBV_QPT_RC);
}

TEST(new_udp, "15 PS_UDP: qp_type UD")
{
	check_new(RDMA_PS_UDP, IBV_QPT_UD);
}

TEST(new_ipoib, "15 PS_IPOIB: qp_type UD")
{
	check_new(RDMA_PS_IPOIB, IBV_QPT_UD);
}

TEST(new_ib, "15 PS_IB: qp_type RC")
{
	check_new(RDMA_PS_IB, IBV_QPT_RC);
}

TEST(synchronous, "synchronous ids have a channel of their own")
{
	unsigned int descriptors;
	struct rdma_cm_id *first, *second;

	CHECK_OK(rdma_destroy_id(make_id(NULL, RDMA_PS_TCP))); /* initialise */
	descriptors = open_descriptors();
	first = make_id(NULL, RDMA_PS_TCP);
	second = make_id(NULL, RDMA_PS_TCP);
	CHECK(first->channel && second->channel);
	CHECK(first->channel != second->channel);
	CHECK(first->channel->fd != second->channel->fd);
	CHECK_OK(rdma_destroy_id(first));
	CHECK_OK(rdma_destroy_id(second));
	CHECK_EQ(open_descriptors(), descriptors);
}

TEST(many, "10000 ids leak nothing", .timeout = 120)
{
	struct rdma_event_channel *channel = make_channel();
	size_t heap = 0;

	for (int i = 0; i < 10000; i++) {
		CHECK_OK(rdma_destroy_id(make_id(channel, RDMA_PS_TCP)));
		if (i == 999)
			heap = heap_in_use();
	}
	CHECK(heap_in_use() < heap + 9000 * 8);
	rdma_destroy_event_channel(channel);
}

TEST(many_bound, "1000 bound ids leak nothing", .timeout = 120)
{
	struct rdma_event_channel *channel = make_channel();
	unsigned int descriptors = 0;
	size_t heap = 0;

	for (int i = 0; i < 1000; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_bind_addr(id, test_addr(0)));
		CHECK_OK(rdma_destroy_id(id));
		if (i == 99) {
			heap = heap_in_use();
			descriptors = open_descriptors();
		}
	}
	CHECK(heap_in_use() < heap + 900 * 8);
	CHECK_EQ(open_descriptors(), descriptors);
	rdma_destroy_event_channel(channel);
}

TEST(crowd, "70000 ids at a time, the last as good as the first", .timeout = 180)
{
	enum { CROWD = 70000 };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id **ids = calloc(CROWD, sizeof(*ids));
	struct rdma_cm_event *event;

	CHECK(ids);
	for (int i = 0; i < CROWD; i++)
		ids[i] = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(ids[CROWD - 1], NULL, test_addr(7000), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK(event->id == ids[CROWD - 1]);
	CHECK_OK(rdma_ack_cm_event(event));
	for (int i = 0; i < CROWD; i++)
		CHECK_OK(rdma_destroy_id(ids[i]));
	free(ids);
	rdma_destroy_event_channel(channel);
}

static void on_signal(int number)
{
	(void)number;
}

TEST(signals, "calls succeed under a storm of signals", .timeout = 60)
{
	struct rdma_event_channel *channel = make_channel();
	struct sigaction action = { .sa_handler = on_signal };

	CHECK_OK(sigaction(SIGALRM, &action, NULL));
	ualarm(1000, 1000);
	for (int i = 0; i < 300; i++) {
		struct rdma_cm_id *id = make_id(i % 2 ? channel : NULL, RDMA_PS_TCP);

		CHECK_OK(rdma_bind_addr(id, test_addr(0)));
		CHECK_OK(rdma_listen(id, 1));
		CHECK_OK(rdma_destroy_id(id));
	}
	ualarm(0, 0);
	rdma_destroy_event_channel(channel);
}

TEST(closed_descriptor, "create_id on a closed descriptor gives EBADF")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id;

	CHECK_OK(close(channel->fd));
	CHECK_ERRNO(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EBADF);
}

TEST(destroy_after_close, "destroy_id after its descriptor was closed succeeds [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(close(channel->fd));
	CHECK_OK(rdma_destroy_id(id));
}

TEST(destroy_after_channel, "destroy_id after its channel was destroyed succeeds [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_event_channel(channel);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(get_request_async, "99 get_request on an asynchronous id gives EINVAL")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *listener = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *id;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 1));
	CHECK_ERRNO(rdma_get_request(listener, &id), EINVAL);
	CHECK_OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

TEST(migrate_null, "100 migrate to NULL: 0, then EINVAL")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	unsigned int descriptors;

	CHECK_OK(rdma_migrate_id(id, NULL));
	CHECK(id->channel && id->channel != channel);
	descriptors = open_descriptors();
	CHECK_ERRNO(rdma_migrate_id(id, NULL), EINVAL);
	CHECK_EQ(open_descriptors(), descriptors);
	/* Synchronous now: the call returns with the event in hand. */
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	descriptors = open_descriptors();
	CHECK_OK(rdma_destroy_id(id));
	CHECK_EQ(open_descriptors(), descriptors - 1);
	rdma_destroy_event_channel(channel);
}

TEST(migrate_queued, "101 migrate takes the queued event along")
{
	struct rdma_event_channel *from = make_channel(), *to = make_channel();
	struct rdma_cm_id *id = make_id(from, RDMA_PS_TCP);
	struct pollfd entry = { .fd = from->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(poll(&entry, 1, EVENT_TIMEOUT * 1000), 1);
	CHECK_OK(rdma_migrate_id(id, to));
	CHECK(id->channel == to);
	expect_no_event(from, 0);
	event = expect_event(to, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK(event->id == id);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

TEST(migrate_later_events, "101 events after a migration come on the new channel")
{
	struct rdma_event_channel *from = make_channel(), *to = make_channel();
	struct rdma_cm_id *id = make_id(from, RDMA_PS_TCP);

	CHECK_OK(rdma_migrate_id(id, to));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(to, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	expect_no_event(from, 0);
	CHECK_OK(rdma_migrate_id(id, to));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(to, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* Connects to a listener whose request waits in its channel, then moves it. */
static void request_then_migrate(struct pair *pair, struct rdma_event_channel *to)
{
	struct rdma_conn_param param = usual_param();

	pair_to_route(pair, RDMA_PS_TCP);
	make_qp(pair->client);
	CHECK_OK(rdma_connect(pair->client, &param));
	CHECK(wait_readable(pair->server_channel));
	CHECK_OK(rdma_migrate_id(pair->listener, to));
}

static void accept_migrated(struct pair *pair, struct rdma_event_channel *channel)
{
	struct rdma_conn_param param = usual_param();

	CHECK(pair->server->channel == channel);
	make_qp(pair->server);
	CHECK_OK(rdma_accept(pair->server, &param));
	pair->established = expect_event(pair->client_channel, RDMA_CM_EVENT_ESTABLISHED,
					 EVENT_TIMEOUT);
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	send_message(pair->client, pair->server, "after the migration");
}

TEST(migrate_request, "101 a request that waits when its listener migrates is served on the new channel [fix]")
{
	struct rdma_event_channel *to = make_channel(), *old;
	struct pair pair;

	request_then_migrate(&pair, to);
	pair.request = expect_event(to, RDMA_CM_EVENT_CONNECT_REQUEST, EVENT_TIMEOUT);
	pair.server = pair.request->id;
	old = pair.server_channel;
	pair.server_channel = to;
	rdma_destroy_event_channel(old);
	accept_migrated(&pair, to);
	pair_close(&pair);
}

TEST(migrate_request_to_sync, "101 a request that waits when its listener becomes synchronous is got [fix]")
{
	struct rdma_cm_event *event;
	struct pair pair;

	request_then_migrate(&pair, NULL);
	CHECK_OK(rdma_get_request(pair.listener, &pair.server));
	CHECK_OK(rdma_reject(pair.server, "got it", 7));
	event = expect_event(pair.client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
	CHECK(memcmp(event->param.conn.private_data, "got it", 7) == 0);
	CHECK_OK(rdma_ack_cm_event(event));
	pair_close(&pair);
}

TEST(migrate_request_from_sync, "101 a request that waits when its listener becomes asynchronous is rejected")
{
	struct rdma_conn_param param = usual_param();
	struct rdma_event_channel *to = make_channel();
	struct rdma_cm_event *event;
	struct pair pair;

	memset(&pair, 0, sizeof(pair));
	pair.server_channel = to;
	pair.client_channel = make_channel();
	pair.ps = RDMA_PS_TCP;
	pair.listener = make_id(NULL, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(pair.listener, test_addr(0)));
	CHECK_OK(rdma_listen(pair.listener, 1));
	pair_resolve(&pair);
	pair_route(&pair);
	make_qp(pair.client);
	CHECK_OK(rdma_connect(pair.client, &param));
	CHECK(wait_readable(pair.listener->channel));
	CHECK_OK(rdma_migrate_id(pair.listener, to));
	/* The kernel's object of it goes with the channel that is closed. */
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	CHECK_OK(fcntl(to->fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rdma_get_cm_event(to, &event), EAGAIN);
	pair_close(&pair);
}

TEST(migrate_from_sync, "synchronous id migrates to a channel and is asynchronous then")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);
	unsigned int descriptors = open_descriptors();

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK(id->event);
	descriptors = open_descriptors();
	CHECK_OK(rdma_migrate_id(id, channel));
	CHECK(!id->event);
	CHECK(id->channel == channel);
	CHECK_EQ(open_descriptors(), descriptors - 1);
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK(!id->event);
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(migrate_own, "migrate to the channel that the id has: asynchronous 0, private EINVAL [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *synchronous = make_id(NULL, RDMA_PS_TCP);
	unsigned int descriptors;

	CHECK_OK(rdma_migrate_id(id, channel));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	descriptors = open_descriptors();
	CHECK_ERRNO(rdma_migrate_id(synchronous, synchronous->channel), EINVAL);
	CHECK_EQ(open_descriptors(), descriptors);
	CHECK_OK(rdma_resolve_addr(synchronous, NULL, test_addr(7000), 5000));
	CHECK_EQ(synchronous->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_OK(rdma_destroy_id(synchronous));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(migrate_closed, "migrate to a closed descriptor: EBADF, nothing changes")
{
	struct rdma_event_channel *channel = make_channel(), *closed = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(close(closed->fd));
	CHECK_ERRNO(rdma_migrate_id(id, closed), EBADF);
	CHECK(id->channel == channel);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

struct migration {
	struct rdma_cm_id *id;
	struct rdma_event_channel *to;
	atomic_bool done;
};

static void *migrate_in_thread(void *argument)
{
	struct migration *migration = argument;

	CHECK_OK(rdma_migrate_id(migration->id, migration->to));
	atomic_store(&migration->done, true);
	return NULL;
}

TEST(migrate_waits, "migrate waits for events not yet acknowledged")
{
	struct rdma_event_channel *from = make_channel(), *to = make_channel();
	struct migration migration = { .id = make_id(from, RDMA_PS_TCP), .to = to };
	const struct timespec pause = { .tv_nsec = 300000000 };
	struct rdma_cm_event *event;
	pthread_t thread;

	CHECK_OK(rdma_resolve_addr(migration.id, NULL, test_addr(7000), 5000));
	event = expect_event(from, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK_OK(pthread_create(&thread, NULL, migrate_in_thread, &migration));
	/* Long enough for a migration that does not wait to end. */
	nanosleep(&pause, NULL);
	CHECK(!atomic_load(&migration.done));
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rdma_destroy_id(migration.id));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

static void *create_ids(void *argument)
{
	struct rdma_event_channel *channel = argument;

	for (int i = 0; i < 500; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_bind_addr(id, test_addr(0)));
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

TEST(threads, "four threads create, bind and destroy ids on one channel [race]", .timeout = 120)
{
	struct rdma_event_channel *channel = make_channel();
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, create_ids, channel));
	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	rdma_destroy_event_channel(channel);
}

static void *first_call(void *argument)
{
	(void)argument;
	struct rdma_event_channel *channel = make_channel();
	CHECK_OK(rdma_destroy_id(make_id(channel, RDMA_PS_TCP)));
	rdma_destroy_event_channel(channel);
	return NULL;
}

TEST(first_calls, "the first calls may come from several threads at once [race]")
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, first_call, NULL));
	for (int i = 0; i < 4; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
}
