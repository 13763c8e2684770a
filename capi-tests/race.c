/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that get events while others destroy, migrate and leave what the
 * events are about. Nothing may crash, hang or read freed memory; checkers
 * (memcheck, helgrind) run these cases too, with fewer rounds:
 * RDMACM_TEST_ROUNDS.
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

enum { FETCHERS = 2, WORKERS = 3, CASE_TIMEOUT = 300 };

/* A little time, of a different length each round. */
static void linger(int round)
{
	for (int i = 0; i < round % 8; i++)
		sched_yield();
}

/* ---- Threads that get events ------------------------------------------------ */

struct fetchers {
	struct rdma_event_channel *channel;
	/* Called with each event before it is acknowledged. */
	void (*look)(struct rdma_cm_event *event);
	int stop[2];
	pthread_t threads[FETCHERS];
};

/* Reads what a program may read until it acknowledges the event. */
static void read_all(struct rdma_cm_event *event)
{
	const unsigned char *data = event->param.conn.private_data;
	volatile unsigned int sum = 0;

	CHECK(event->id);
	sum += event->id->ps + event->id->qp_type + (event->id->verbs != NULL);
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		CHECK(event->listen_id);
		sum += event->listen_id->ps;
	}
	if (event->id->ps == RDMA_PS_TCP && event->event < RDMA_CM_EVENT_DEVICE_REMOVAL && data)
		for (int i = 0; i < event->param.conn.private_data_len; i++)
			sum += data[i];
}

static void *fetch(void *argument)
{
	struct fetchers *fetchers = argument;
	struct pollfd entries[] = {
		{ .fd = fetchers->channel->fd, .events = POLLIN },
		{ .fd = fetchers->stop[0], .events = POLLIN },
	};
	struct rdma_cm_event *event;

	while (poll(entries, 2, -1) > 0) {
		while (rdma_get_cm_event(fetchers->channel, &event) == 0) {
			read_all(event);
			if (fetchers->look)
				fetchers->look(event);
			CHECK_OK(rdma_ack_cm_event(event));
		}
		CHECK_EQ(errno, EAGAIN);
		if (entries[1].revents)
			break;
	}
	return NULL;
}

static void start_fetchers(struct fetchers *fetchers, void (*look)(struct rdma_cm_event *))
{
	fetchers->channel = make_channel();
	fetchers->look = look;
	CHECK_OK(fcntl(fetchers->channel->fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(pipe(fetchers->stop));
	for (int i = 0; i < FETCHERS; i++)
		CHECK_OK(pthread_create(&fetchers->threads[i], NULL, fetch, fetchers));
}

static void stop_fetchers(struct fetchers *fetchers)
{
	CHECK_OK(close(fetchers->stop[1]));
	for (int i = 0; i < FETCHERS; i++)
		CHECK_OK(pthread_join(fetchers->threads[i], NULL));
	CHECK_OK(close(fetchers->stop[0]));
	rdma_destroy_event_channel(fetchers->channel);
}

/* Runs the same work in several threads at once. */
static void in_threads(void *(*work)(void *), void *argument)
{
	pthread_t threads[WORKERS];

	for (int i = 0; i < WORKERS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, work, argument));
	for (int i = 0; i < WORKERS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
}

/* ---- Ids -------------------------------------------------------------------- */

static void *resolve_and_destroy(void *channel)
{
	for (int round = 0; round < test_rounds(100); round++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
		linger(round);
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

TEST(ids, "ids destroyed while other threads get their events [race]", .timeout = CASE_TIMEOUT)
{
	struct fetchers fetchers;

	start_fetchers(&fetchers, NULL);
	in_threads(resolve_and_destroy, fetchers.channel);
	stop_fetchers(&fetchers);
}

static void *resolve_and_migrate(void *channels)
{
	struct rdma_event_channel **channel = channels;

	for (int round = 0; round < test_rounds(60); round++) {
		struct rdma_cm_id *id = make_id(channel[0], RDMA_PS_TCP);

		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
		linger(round);
		CHECK_OK(rdma_migrate_id(id, channel[1]));
		CHECK_OK(rdma_migrate_id(id, channel[0]));
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

TEST(migration, "ids migrated while other threads get their events [race]",
     .timeout = CASE_TIMEOUT)
{
	struct rdma_event_channel *channels[2];
	struct fetchers first, second;

	start_fetchers(&first, NULL);
	start_fetchers(&second, NULL);
	channels[0] = first.channel;
	channels[1] = second.channel;
	in_threads(resolve_and_migrate, channels);
	stop_fetchers(&first);
	stop_fetchers(&second);
}

static void *resolve_name_and_destroy(void *channel)
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };

	for (int round = 0; round < test_rounds(60); round++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(resolve_addrinfo(id, "192.0.2.1", "7000", &hints));
		CHECK_OK(write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, 0, 1));
		linger(round);
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

TEST(names, "ids destroyed while names are resolved for them [race]", .timeout = CASE_TIMEOUT)
{
	struct fetchers fetchers;

	library_symbol("rdma_resolve_addrinfo");
	start_fetchers(&fetchers, NULL);
	in_threads(resolve_name_and_destroy, fetchers.channel);
	stop_fetchers(&fetchers);
}

/* ---- Groups ------------------------------------------------------------------- */

static void *join_and_leave(void *channel)
{
	for (int round = 0; round < test_rounds(30); round++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);
		struct sockaddr *group = make_addr("239.1.2.3", 0);

		CHECK_OK(rdma_bind_addr(id, test_addr(0)));
		make_qp(id);
		CHECK_OK(rdma_join_multicast(id, group, channel));
		linger(round);
		if (round % 2)
			CHECK_OK(rdma_leave_multicast(id, group));
		rdma_destroy_qp(id);
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

TEST(groups, "groups left, QPs and ids destroyed while other threads get the join events [race]",
     .timeout = CASE_TIMEOUT)
{
	struct fetchers fetchers;

	start_fetchers(&fetchers, NULL);
	in_threads(join_and_leave, fetchers.channel);
	stop_fetchers(&fetchers);
}

/* ---- Connections ---------------------------------------------------------------- */

/* Where a client waits for its next event; its id's context. */
struct client {
	sem_t step;
};

static void wake_client(struct rdma_cm_event *event)
{
	struct client *client = event->id->context;

	CHECK_OK(sem_post(&client->step));
}

static void next_step(struct client *client)
{
	while (sem_wait(&client->step))
		CHECK_EQ(errno, EINTR);
}

/*
 * The ids of requests on their way to those who destroy them. Checkers see by
 * the lock, not by the pipe, who comes first.
 */
static int accepted[2];
static pthread_mutex_t handover = PTHREAD_MUTEX_INITIALIZER;

static void accept_request(struct rdma_cm_event *event)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *id = event->id;
	struct ibv_qp_init_attr init = usual_qp(id);

	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	/* The client may be gone already. */
	if (rdma_create_qp(id, NULL, &init) || rdma_accept(id, &param))
		CHECK(errno > 0);
	CHECK_OK(pthread_mutex_lock(&handover));
	CHECK_EQ(write(accepted[1], &id, sizeof(id)), sizeof(id));
	CHECK_OK(pthread_mutex_unlock(&handover));
}

static void *destroy_accepted(void *unused)
{
	struct rdma_cm_id *id;
	int round = 0;

	(void)unused;
	while (read(accepted[0], &id, sizeof(id)) == sizeof(id)) {
		CHECK_OK(pthread_mutex_lock(&handover));
		CHECK_OK(pthread_mutex_unlock(&handover));
		linger(round++);
		if (id->qp)
			rdma_destroy_qp(id);
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

struct connecting {
	struct rdma_event_channel *channel;
	uint16_t port;
};

static void *connect_and_destroy(void *argument)
{
	struct connecting *connecting = argument;
	struct rdma_conn_param param = usual_param();

	for (int round = 0; round < test_rounds(20); round++) {
		struct client client;
		struct rdma_cm_id *id;

		CHECK_OK(sem_init(&client.step, 0, 0));
		CHECK_OK(rdma_create_id(connecting->channel, &id, &client, RDMA_PS_TCP));
		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(connecting->port), 5000));
		next_step(&client);
		make_qp(id);
		CHECK_OK(rdma_resolve_route(id, 5000));
		next_step(&client);
		CHECK_OK(rdma_connect(id, &param));
		/* Before, while and after the answer is handled. */
		if (round % 4 == 3)
			next_step(&client);
		linger(round);
		rdma_destroy_qp(id);
		CHECK_OK(rdma_destroy_id(id));
		CHECK_OK(sem_destroy(&client.step));
	}
	return NULL;
}

TEST(connections, "QPs and ids destroyed on both sides while other threads get their events [race]",
     .timeout = CASE_TIMEOUT)
{
	struct fetchers clients, servers;
	struct connecting connecting;
	struct rdma_cm_id *listener;
	pthread_t destroyer;

	CHECK_OK(pipe(accepted));
	CHECK_OK(pthread_create(&destroyer, NULL, destroy_accepted, NULL));
	start_fetchers(&servers, accept_request);
	listener = make_id(servers.channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 64));
	start_fetchers(&clients, wake_client);
	connecting.channel = clients.channel;
	connecting.port = ntohs(rdma_get_src_port(listener));
	in_threads(connect_and_destroy, &connecting);
	/* Requests may still come; the listener goes while they do. */
	CHECK_OK(rdma_destroy_id(listener));
	stop_fetchers(&clients);
	CHECK_OK(close(accepted[1]));
	CHECK_OK(pthread_join(destroyer, NULL));
	stop_fetchers(&servers);
}
