/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that do it wrong: pointers into objects and to dead ones, objects
 * released twice or under those who use them, exhausted resources, forked
 * processes. What is asserted is a refusal with a documented errno, or a
 * defined result, and that nothing crashes, hangs or leaks.
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Channels that are none ---------------------------------------------- */

TEST(channel_twice, "destroy_event_channel of a destroyed channel does nothing [fix]")
{
	struct rdma_event_channel *channel = make_channel();

	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(channel);
}

TEST(channel_wild, "what is no open channel gives EBADF [fix]")
{
	struct rdma_event_channel *good = make_channel(), *stale = make_channel();
	struct rdma_event_channel *bad[] = { stale, (void *)((char *)good + 1), (void *)8 };
	struct rdma_cm_id *id = make_id(good, RDMA_PS_TCP), *other;
	struct rdma_cm_event *event;

	rdma_destroy_event_channel(stale);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CHECK_ERRNO(rdma_get_cm_event(bad[i], &event), EBADF);
		CHECK_ERRNO(rdma_create_id(bad[i], &other, NULL, RDMA_PS_TCP), EBADF);
		CHECK_ERRNO(rdma_migrate_id(id, bad[i]), EBADF);
		rdma_destroy_event_channel(bad[i]);
	}
	CHECK(id->channel == good);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(good);
}

/*
 * A listener that is made by the kernel's own commands (rdma/rdma_user_cm.h,
 * which cannot be included beside the library's header).
 */
static void listen_without_library(struct rdma_event_channel *channel, uint16_t port)
{
	uint32_t id = 0;
	struct {
		uint32_t number;
		uint16_t in, out;
		uint64_t uid, response;
		uint16_t ps;
		uint8_t qp_type, reserved[5];
	} create = { 0, 24, 4, 8, (uintptr_t)&id, RDMA_PS_TCP, IBV_QPT_RC, { 0 } };
	struct {
		uint32_t number;
		uint16_t in, out;
		uint64_t response;
		struct sockaddr_in6 addr;
		uint32_t id;
	} bind = { .number = 2, .in = 40 };
	struct {
		uint32_t number;
		uint16_t in, out;
		uint32_t id, backlog;
	} listen = { .number = 7, .in = 8, .backlog = 1 };

	CHECK_EQ(write(channel->fd, &create, sizeof(create)), sizeof(create));
	bind.id = listen.id = id;
	memcpy(&bind.addr, test_addr(port), sizeof(struct sockaddr_in));
	CHECK_EQ(write(channel->fd, &bind, sizeof(bind)), sizeof(bind));
	CHECK_EQ(write(channel->fd, &listen, sizeof(listen)), sizeof(listen));
}

TEST(listener_unknown, "a request for a listener that the library does not know is rejected [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_event *event;
	struct pair pair;
	enum { PORT = 7480 };

	CHECK_OK(fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	listen_without_library(channel, PORT);
	pair_connect_to(&pair, PORT, RDMA_PS_TCP);
	CHECK(wait_readable(channel));
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	rdma_destroy_event_channel(pair.client_channel);
	rdma_destroy_event_channel(channel);
}

/* ---- Channels that go away under their ids -------------------------------- */

TEST(channel_under_ids, "a channel destroyed under its ids: calls fail, destroying works [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *idle = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	rdma_destroy_event_channel(channel);
	CHECK_ERRNO(rdma_listen(id, 1), EBADF);
	CHECK_ERRNO(rdma_bind_addr(idle, test_addr(0)), EBADF);
	CHECK_OK(rdma_destroy_id(id));
	CHECK_OK(rdma_destroy_id(idle));
	CHECK_ERRNO(rdma_destroy_id(id), EINVAL);
}

TEST(channel_reused, "the descriptor of a channel becomes another file: destroying works")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	int null = open("/dev/null", O_RDWR);

	CHECK(null >= 0);
	CHECK(dup2(null, channel->fd) == channel->fd);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(channel_no_answer, "a channel's descriptor becomes a file that takes anything: EBADF, no hang [fix]",
     .timeout = 8)
{
	struct rdma_event_channel *channel = make_channel(), *other = make_channel();
	struct rdma_cm_id *moved = make_id(other, RDMA_PS_TCP), *id;
	struct rdma_cm_id *synchronous = make_id(NULL, RDMA_PS_TCP);
	struct rdma_cm_event *event;
	int null = open("/dev/null", O_RDWR);

	CHECK(null >= 0);
	CHECK(dup2(null, channel->fd) == channel->fd);
	CHECK(dup2(null, synchronous->channel->fd) == synchronous->channel->fd);
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EBADF);
	CHECK_ERRNO(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EBADF);
	CHECK_ERRNO(rdma_migrate_id(moved, channel), EBADF);
	CHECK_ERRNO(rdma_resolve_addr(synchronous, NULL, test_addr(7), 1000), EBADF);
	CHECK_OK(rdma_destroy_id(moved));
	CHECK_OK(rdma_destroy_id(synchronous));
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(other);
}

TEST(channel_event_held, "an event outlives its channel and its id's kernel object")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	rdma_destroy_event_channel(channel);
	CHECK_OK(rdma_ack_cm_event(event));
}

/* ---- Pointers into objects ------------------------------------------------- */

TEST(inner_id, "a pointer into an id is no id [fix]")
{
	static const size_t offsets[] = { 1, 4, 8, 16, sizeof(struct rdma_cm_id) };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		struct rdma_cm_id *inner = (void *)((char *)id + offsets[i]);

		CHECK_ERRNO(rdma_bind_addr(inner, test_addr(0)), EINVAL);
		CHECK_ERRNO(rdma_destroy_id(inner), EINVAL);
		rdma_destroy_qp(inner);
		rdma_destroy_ep(inner);
		CHECK_EQ(rdma_get_src_port(inner), 0);
	}
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(inner_event, "only an event can be acknowledged, and once [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK_ERRNO(rdma_ack_cm_event((void *)((char *)event + 8)), EINVAL);
	CHECK_ERRNO(rdma_ack_cm_event((void *)id), EINVAL);
	CHECK_ERRNO(rdma_destroy_id((void *)event), EINVAL);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_ERRNO(rdma_ack_cm_event(event), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(addrinfo_twice, "freeaddrinfo of a freed list does nothing [fix]")
{
	struct rdma_addrinfo *info;
	char node[] = "10.99.0.1", service[] = "7471";

	CHECK_OK(rdma_getaddrinfo(node, service, NULL, &info));
	rdma_freeaddrinfo(info);
	rdma_freeaddrinfo(info);
	rdma_freeaddrinfo((void *)8);
}

TEST(devices_twice, "free_devices of a freed or wild list does nothing [fix]")
{
	struct ibv_context **list = rdma_get_devices(NULL);

	CHECK(list);
	rdma_free_devices(list);
	rdma_free_devices(list);
	rdma_free_devices((void *)8);
}

/* ---- Released by several threads at once ------------------------------------ */

enum { RIVALS = 4 };

struct rivals {
	pthread_barrier_t start;
	void *object;
	int winners;
	int losers;
};

static void count_result(struct rivals *rivals, int ret)
{
	if (ret == 0)
		__atomic_add_fetch(&rivals->winners, 1, __ATOMIC_SEQ_CST);
	else if (errno == EINVAL)
		__atomic_add_fetch(&rivals->losers, 1, __ATOMIC_SEQ_CST);
	else
		FAIL("errno %d", errno);
}

static void *destroy_rival(void *argument)
{
	struct rivals *rivals = argument;

	pthread_barrier_wait(&rivals->start);
	count_result(rivals, rdma_destroy_id(rivals->object));
	return NULL;
}

static void *ack_rival(void *argument)
{
	struct rivals *rivals = argument;

	pthread_barrier_wait(&rivals->start);
	count_result(rivals, rdma_ack_cm_event(rivals->object));
	return NULL;
}

static void compete(void *object, void *(*run)(void *))
{
	struct rivals rivals = { .object = object };
	pthread_t threads[RIVALS];

	CHECK_OK(pthread_barrier_init(&rivals.start, NULL, RIVALS));
	for (int i = 0; i < RIVALS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, run, &rivals));
	for (int i = 0; i < RIVALS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	CHECK_OK(pthread_barrier_destroy(&rivals.start));
	CHECK_EQ(rivals.winners, 1);
	CHECK_EQ(rivals.losers, RIVALS - 1);
}

TEST(destroy_rivals, "threads that destroy one id: one succeeds, the others get EINVAL [race]",
     .timeout = 60)
{
	struct rdma_event_channel *channel = make_channel();
	unsigned int before = open_descriptors();

	for (int i = 0; i < test_rounds(60); i++) {
		compete(make_id(channel, RDMA_PS_TCP), destroy_rival);
		compete(make_id(NULL, RDMA_PS_TCP), destroy_rival);
	}
	CHECK_EQ(open_descriptors(), before);
	rdma_destroy_event_channel(channel);
}

TEST(ack_rivals, "threads that acknowledge one event: one succeeds, the others get EINVAL [race]",
     .timeout = 60)
{
	struct rdma_event_channel *channel = make_channel();

	for (int i = 0; i < test_rounds(60); i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
		compete(expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT),
			ack_rival);
		CHECK_OK(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(channel);
}

static void *destroy_qp_rival(void *argument)
{
	struct rivals *rivals = argument;

	pthread_barrier_wait(&rivals->start);
	rdma_destroy_qp(rivals->object);
	__atomic_add_fetch(&rivals->winners, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

TEST(destroy_qp_rivals, "threads that destroy one queue pair: it is destroyed once [race]",
     .timeout = 60)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	unsigned int before;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	before = open_descriptors();
	for (int i = 0; i < test_rounds(30); i++) {
		struct rivals rivals = { .object = id };
		pthread_t threads[RIVALS];

		make_qp(id);
		CHECK_OK(pthread_barrier_init(&rivals.start, NULL, RIVALS));
		for (int j = 0; j < RIVALS; j++)
			CHECK_OK(pthread_create(&threads[j], NULL, destroy_qp_rival, &rivals));
		for (int j = 0; j < RIVALS; j++)
			CHECK_OK(pthread_join(threads[j], NULL));
		CHECK_OK(pthread_barrier_destroy(&rivals.start));
		CHECK(!id->qp);
		CHECK(!id->send_cq);
		CHECK_EQ(open_descriptors(), before);
	}
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* ---- Destroyed while others wait --------------------------------------------- */

static void *get_and_ack(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_cm_event *event;

	CHECK_OK(rdma_get_cm_event(channel, &event));
	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_OK(rdma_ack_cm_event(event));
	return NULL;
}

TEST(destroy_under_reader, "an id destroyed while a thread waits on its channel: it waits on")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, get_and_ack, channel));
	await_sleep();
	CHECK_OK(rdma_destroy_id(id));
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static atomic_bool told;

static void *wait_for_ever(void *channel)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
	atomic_store(&told, true);
	return NULL;
}

/* rping ends so: a thread that got an error would end the process with it. */
TEST(channel_under_reader, "a channel destroyed while a thread waits for its events: it is told nothing")
{
	struct rdma_event_channel *channel = make_channel();
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, wait_for_ever, channel));
	await_sleep();
	rdma_destroy_event_channel(channel);
	await_sleep();
	CHECK(!atomic_load(&told));
}

static void *wait_for_request(void *listener)
{
	struct rdma_cm_id *id;

	CHECK_EQ(rdma_get_request(listener, &id), -1);
	CHECK_EQ(errno, ECANCELED);
	return NULL;
}

TEST(destroy_under_get_request, "a listener destroyed while a thread waits in get_request: ECANCELED [fix]", .timeout = 8)
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP);
	unsigned int before = open_descriptors();
	pthread_t thread;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 4));
	CHECK_OK(pthread_create(&thread, NULL, wait_for_request, listener));
	await_sleep();
	CHECK_OK(rdma_destroy_id(listener));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK(open_descriptors() < before + 2);
}

static void *resolve_nobody(void *id)
{
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, silent_addr(7), 60000), ECANCELED);
	return NULL;
}

TEST(destroy_under_resolve, "an id destroyed while a thread waits in resolve_addr: ECANCELED [fix]", .timeout = 8)
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, resolve_nobody, id));
	await_sleep();
	CHECK_OK(rdma_destroy_id(id));
	CHECK_OK(pthread_join(thread, NULL));
}

/* ---- Queue pairs destroyed while events move them ----------------------------- */

/* Reads this many events of a channel, whatever they are. */
struct reader {
	struct rdma_event_channel *channel;
	volatile bool stop;
	int seen;
};

static void *read_all(void *argument)
{
	struct reader *reader = argument;
	struct pollfd entry = { .fd = reader->channel->fd, .events = POLLIN };

	/* What poll saw may go with its id. */
	CHECK_OK(fcntl(entry.fd, F_SETFL, O_NONBLOCK));
	while (!reader->stop) {
		struct rdma_cm_event *event;

		if (poll(&entry, 1, 20) <= 0)
			continue;
		if (rdma_get_cm_event(reader->channel, &event)) {
			CHECK(errno == EAGAIN);
			continue;
		}
		reader->seen++;
		CHECK_OK(rdma_ack_cm_event(event));
	}
	return NULL;
}

static void race_qp(struct pair *pair, unsigned int step, unsigned int round)
{
	struct rdma_conn_param param = usual_param();
	struct reader reader = { .channel = pair->client_channel };
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, read_all, &reader));
	if (step == 0) {
		CHECK_OK(rdma_reject(pair->server, NULL, 0));
	} else {
		make_qp(pair->server);
		CHECK_OK(rdma_accept(pair->server, &param));
		if (step == 2)
			rdma_disconnect(pair->server);
	}
	for (volatile unsigned int i = 0; i < round * 20000; i++)
		;
	rdma_destroy_qp(pair->client);
	CHECK(!pair->client->qp);
	CHECK_OK(rdma_destroy_id(pair->client));
	pair->client = NULL;
	reader.stop = true;
	CHECK_OK(pthread_join(thread, NULL));
}

static void race_qps(unsigned int step)
{
	for (unsigned int round = 0; round < 12; round++) {
		struct pair pair;

		pair_to_request(&pair, RDMA_PS_TCP);
		race_qp(&pair, step, round);
		pair_close(&pair);
	}
}

TEST(qp_against_reject, "destroy_qp while another thread gets REJECTED [race]", .timeout = 30)
{
	race_qps(0);
}

TEST(qp_against_response, "destroy_qp while another thread gets the response [race]", .timeout = 30)
{
	race_qps(1);
}

TEST(qp_against_disconnect, "destroy_qp while another thread gets DISCONNECTED [race]", .timeout = 30)
{
	race_qps(2);
}

TEST(migrate_against_events, "migrate to and fro while threads get the events [race]", .timeout = 60)
{
	struct reader readers[2] = { { .channel = make_channel() }, { .channel = make_channel() } };
	struct rdma_cm_id *id;
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, read_all, &readers[i]));
	for (int round = 0; round < 60; round++) {
		id = make_id(readers[0].channel, RDMA_PS_TCP);
		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
		for (int i = 1; i < 5; i++)
			CHECK_OK(rdma_migrate_id(id, readers[i % 2].channel));
		CHECK_OK(rdma_destroy_id(id));
	}
	for (int i = 0; i < 2; i++)
		readers[i].stop = true;
	for (int i = 0; i < 2; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
}

/* ---- Private channels made non-blocking ---------------------------------------- */

TEST(nonblocking_sync, "a private channel with O_NONBLOCK: EAGAIN, and the id can be destroyed")
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP), *request;

	CHECK_OK(fcntl(id->channel->fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rdma_resolve_addr(id, NULL, silent_addr(7), 3000), EAGAIN);
	CHECK_OK(rdma_destroy_id(id));

	id = make_id(NULL, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_OK(fcntl(id->channel->fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rdma_get_request(id, &request), EAGAIN);
	CHECK_OK(rdma_destroy_id(id));
}

/* ---- Forked processes ------------------------------------------------------------ */

static void child_destroys(void *argument)
{
	struct pair *pair = argument;

	CHECK_ERRNO(rdma_destroy_id(pair->client), EACCES);
	CHECK_ERRNO(rdma_destroy_id(pair->listener), EACCES);
	CHECK_ERRNO(rdma_resolve_route(pair->client, 5000), EACCES);
}

static void child_exits(void *argument)
{
	(void)argument;
}

static void child_executes(void *argument)
{
	(void)argument;
	execl("/bin/true", "true", (char *)NULL);
}

TEST(fork_exit, "a forked child exits or executes: the parent's connection goes on")
{
	struct pair pair;

	CHECK_OK(ibv_fork_init());
	pair_connect(&pair, RDMA_PS_TCP);
	run_in_child(child_exits, &pair);
	run_in_child(child_executes, &pair);
	send_message(pair.client, pair.server, "still there");
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

static void child_resolves(void *argument)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	(void)argument;
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(fork_use, "a forked child makes channels and ids of its own")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	run_in_child(child_resolves, NULL);
	pair_close(&pair);
}

TEST(fork_destroy, "a forked child cannot use the parent's ids: EACCES, nothing happens")
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	run_in_child(child_destroys, &pair);
	pair_route(&pair);
	pair_close(&pair);
}

/* ---- Exhausted resources ------------------------------------------------------------ */

/* All steps of a synchronous client; the first errno, or 0. */
static int synchronous_client(struct sockaddr *to)
{
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_init_attr init;
	struct rdma_cm_id *id;
	int error = 0;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return errno;
	init = usual_qp(id);
	if (rdma_resolve_addr(id, NULL, to, 5000) || rdma_create_qp(id, NULL, &init) ||
	    rdma_resolve_route(id, 5000) || rdma_connect(id, &param))
		error = errno;
	rdma_destroy_ep(id);
	return error;
}

TEST(descriptors_client, "no descriptor at any step of a client: EMFILE, and nothing leaks",
     .timeout = 60)
{
	struct rlimit limit, all;
	unsigned int before, steps = 0;

	/* So that libibverbs knows its drivers, and the device is open. */
	CHECK_EQ(synchronous_client(test_addr(7)), ECONNREFUSED);
	before = open_descriptors();
	CHECK_OK(getrlimit(RLIMIT_NOFILE, &all));
	limit = all;
	for (rlim_t free = 0; free < 12; free++) {
		int error;

		limit.rlim_cur = before + free;
		CHECK_OK(setrlimit(RLIMIT_NOFILE, &limit));
		error = synchronous_client(test_addr(7));
		CHECK_OK(setrlimit(RLIMIT_NOFILE, &all));
		if (error == ECONNREFUSED)
			break;
		if (error != EMFILE && error != ENOMEM)
			FAIL("errno %d with %d descriptors", error, (int)free);
		steps++;
	}
	CHECK(steps > 0 && steps < 12);
	CHECK_EQ(synchronous_client(test_addr(7)), ECONNREFUSED);
	CHECK_EQ(open_descriptors(), before);
}

/* A block of memory that is taken away. */
struct hoard {
	struct hoard *next;
	size_t size;
};

static struct hoard *take_all(void)
{
	struct hoard *all = NULL, *one;

	for (size_t size = 1 << 16; size >= sizeof(*one); size /= 2) {
		while ((one = malloc(size))) {
			*one = (struct hoard){ .next = all, .size = size };
			all = one;
		}
	}
	return all;
}

/* Gives some of it back, the small blocks first; false if there is none. */
static bool give_back(struct hoard **all, size_t size)
{
	struct hoard *one;

	for (size_t given = 0; given < size && (one = *all);) {
		given += one->size;
		*all = one->next;
		free(one);
	}
	return *all;
}

static void starved(void *argument)
{
	struct rlimit limit;
	struct hoard *all;
	unsigned long pages;
	int error;
	FILE *file = fopen("/proc/self/statm", "r");

	(void)argument;
	CHECK(file);
	CHECK(fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	limit.rlim_cur = limit.rlim_max = (pages + 100) * (rlim_t)sysconf(_SC_PAGESIZE);
	CHECK_OK(setrlimit(RLIMIT_AS, &limit));
	all = take_all();
	error = synchronous_client(test_addr(7));
	CHECK_EQ(error, ENOMEM);
	while (give_back(&all, 4096) && error != ECONNREFUSED)
		error = synchronous_client(test_addr(7));
	CHECK_EQ(error, ECONNREFUSED);
}

TEST(no_memory, "no memory at some step of a client: an error, no crash", .timeout = 120)
{
	/* So that the device is open. */
	CHECK_EQ(synchronous_client(test_addr(7)), ECONNREFUSED);
	run_in_child(starved, NULL);
}

/* ---- Peers in a hurry ------------------------------------------------------------------ */

TEST(hurried_peers, "clients that connect and are gone: the listener serves the next",
     .timeout = 90)
{
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_init_attr init;
	struct reader reader;
	struct pair pair;
	pthread_t thread;

	pair_listen(&pair, RDMA_PS_TCP);
	for (int i = 0; i < 20; i++) {
		struct rdma_cm_event *event;

		pair_resolve(&pair);
		make_qp(pair.client);
		pair_route(&pair);
		CHECK_OK(rdma_connect(pair.client, &param));
		rdma_destroy_qp(pair.client);
		CHECK_OK(rdma_destroy_id(pair.client));
		event = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				     EVENT_TIMEOUT);
		pair.server = event->id;
		CHECK_OK(rdma_ack_cm_event(event));
		/* The kernel may know already that nobody is there. */
		init = usual_qp(pair.server);
		if (rdma_create_qp(pair.server, NULL, &init) ||
		    (i % 2 && rdma_accept(pair.server, &param)))
			CHECK(errno > 0);
		if (pair.server->qp)
			rdma_destroy_qp(pair.server);
		CHECK_OK(rdma_destroy_id(pair.server));
		pair.server = pair.client = NULL;
	}
	reader = (struct reader){ .channel = pair.server_channel };
	CHECK_OK(pthread_create(&thread, NULL, read_all, &reader));
	reader.stop = true;
	CHECK_OK(pthread_join(thread, NULL));
	pair_close(&pair);
}

TEST(listener_gone, "a listener destroyed with waiting requests: the clients are rejected",
     .timeout = 60)
{
	enum { CLIENTS = 5 };
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *clients[CLIENTS];
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	for (int i = 0; i < CLIENTS; i++) {
		pair_resolve(&pair);
		make_qp(pair.client);
		pair_route(&pair);
		CHECK_OK(rdma_connect(pair.client, &param));
		clients[i] = pair.client;
	}
	CHECK(wait_readable(pair.server_channel));
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	for (int i = 0; i < CLIENTS; i++)
		CHECK(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED) > 0);
	for (int i = 0; i < CLIENTS; i++) {
		rdma_destroy_qp(clients[i]);
		CHECK_OK(rdma_destroy_id(clients[i]));
	}
	pair.client = NULL;
	pair_close(&pair);
}

/* ---- Crowds of threads ------------------------------------------------------------------ */

enum { CROWD = 8, IDS = 64 };

static void *crowd_main(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_cm_id *ids[IDS];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < IDS; i++) {
			ids[i] = make_id(channel, RDMA_PS_TCP);
			CHECK_OK(rdma_resolve_addr(ids[i], NULL, test_addr(7), 5000));
		}
		for (int i = 0; i < IDS; i++)
			CHECK_OK(rdma_destroy_id(ids[i]));
	}
	return NULL;
}

TEST(crowd, "8 threads make, resolve and destroy 1536 ids of one channel [race]", .timeout = 200)
{
	struct reader reader = { .channel = make_channel() };
	pthread_t threads[CROWD], thread;

	CHECK_OK(pthread_create(&thread, NULL, read_all, &reader));
	for (int i = 0; i < CROWD; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, crowd_main, reader.channel));
	for (int i = 0; i < CROWD; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	reader.stop = true;
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(reader.channel);
}

/* ---- Nonsense numbers ------------------------------------------------------------------- */

TEST(nonsense, "numbers without meaning are refused or ignored")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_flags = -1, .ai_family = 0x7fff, .ai_qp_type = -1,
				       .ai_port_space = -1 };
	struct rdma_addrinfo *info;
	char node[] = "10.99.0.1";
	char byte = 0;

	CHECK(strcmp(rdma_event_str(-1), "UNKNOWN EVENT") == 0);
	CHECK(rdma_getaddrinfo(node, NULL, &hints, &info) != 0);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_EQ(rdma_set_option(id, -1, -1, &byte, 1), -1);
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, SIZE_MAX), -1);
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1 << 30), -1);
	CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (void *)8, 1), -1);
	CHECK_EQ(rdma_notify(id, (enum ibv_event_type)-1), -1);
	CHECK_EQ(rdma_resolve_route(id, -1), -1);
	CHECK_OK(rdma_listen(id, INT32_MIN));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* ---- The log ------------------------------------------------------------------------------ */

static void log_with(const char *level)
{
	CHECK_OK(setenv("RDMACM_LOG", level, 1));
	CHECK_EQ(synchronous_client(test_addr(7)), ECONNREFUSED);
}

TEST(log_closed, "RDMACM_LOG=trace with standard error closed")
{
	CHECK_OK(close(2));
	log_with("trace");
}

TEST(log_full, "RDMACM_LOG=trace with standard error on a full device")
{
	int full = open("/dev/full", O_WRONLY);

	CHECK(full >= 0 && dup2(full, 2) == 2);
	log_with("trace");
}

TEST(log_nonsense, "RDMACM_LOG with nonsense in it")
{
	char value[5000];

	memset(value, '%', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	CHECK(freopen("/dev/null", "w", stderr));
	log_with(value);
}

/* ---- Places that are not there ------------------------------------------------------------- */

TEST(no_sys, "no /sys: an error or success, no crash", .timeout = 60)
{
	struct rdma_event_channel *channel;

	private_mounts();
	CHECK_OK(mount("none", "/sys", "tmpfs", 0, NULL));
	channel = rdma_create_event_channel();
	CHECK(channel || errno > 0);
	rdma_destroy_event_channel(channel);
}

/* ---- Several threads on one synchronous listener ---------------------------------- */

static void *take_requests(void *argument)
{
	struct rdma_cm_id *listener = argument, *id;
	int taken = 0;

	while (!rdma_get_request(listener, &id)) {
		CHECK(id->event);
		CHECK_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(id->event->id == id);
		CHECK_OK(rdma_reject(id, NULL, 0));
		CHECK_OK(rdma_destroy_id(id));
		taken++;
	}
	CHECK_EQ(errno, ECANCELED);
	return (void *)(intptr_t)taken;
}

TEST(get_request_threads, "several threads get the requests of one listener, each once [race]",
     .timeout = 60)
{
	enum { THREADS = 4 };
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP);
	pthread_t threads[THREADS];
	const int rounds = test_rounds(24);
	int taken = 0;
	void *result;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 64));
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, take_requests, listener));
	for (int round = 0; round < rounds; round++) {
		struct pair pairs[THREADS];

		for (int i = 0; i < THREADS; i++)
			pair_connect_to(&pairs[i], ntohs(rdma_get_src_port(listener)), RDMA_PS_TCP);
		for (int i = 0; i < THREADS; i++) {
			CHECK_EQ(take_event(pairs[i].client_channel, RDMA_CM_EVENT_REJECTED),
				 REASON_CONSUMER);
			rdma_destroy_qp(pairs[i].client);
			CHECK_OK(rdma_destroy_id(pairs[i].client));
			rdma_destroy_event_channel(pairs[i].client_channel);
		}
	}
	/* All wait for one more. */
	await_sleep();
	CHECK_OK(rdma_destroy_id(listener));
	for (int i = 0; i < THREADS; i++) {
		CHECK_OK(pthread_join(threads[i], &result));
		taken += (int)(intptr_t)result;
	}
	CHECK_EQ(taken, rounds * THREADS);
}
