/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events: names, delivery, acknowledgement. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static void set_nonblocking(struct rdma_event_channel *channel)
{
	int flags = fcntl(channel->fd, F_GETFL);

	CHECK(flags >= 0);
	CHECK_OK(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK));
}

/* Puts one ADDR_RESOLVED into the channel's queue, and waits until it is there. */
static struct rdma_cm_id *queue_event(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(poll(&entry, 1, EVENT_TIMEOUT * 1000), 1);
	return id;
}

TEST(names, "1 names of events 0 to 15")
{
	static const char *const names[] = {
		"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR",
		"CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
		"REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = rdma_event_str((enum rdma_cm_event_type)i);
		const char *prefix = "RDMA_CM_EVENT_";

		if (strncmp(text, prefix, strlen(prefix)) ||
		    strcmp(text + strlen(prefix), names[i]))
			FAIL("event %zu is named '%s'", i, text);
	}
}

static void check_name(int event, const char *expected)
{
	const char *text = rdma_event_str((enum rdma_cm_event_type)event);

	if (strcmp(text, expected))
		FAIL("event %d is named '%s', expected '%s'", event, text, expected);
}

TEST(names_addrinfo, "1 names of events 16 and 17")
{
	library_symbol("rdma_resolve_addrinfo");
	check_name(EVENT_ADDRINFO_RESOLVED, "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
	check_name(EVENT_ADDRINFO_ERROR, "RDMA_CM_EVENT_ADDRINFO_ERROR");
}

TEST(name_user, "1 name of event 18 is USER [fix]")
{
	check_name(EVENT_USER, "RDMA_CM_EVENT_USER");
}

TEST(name_unknown, "2 other numbers are UNKNOWN EVENT")
{
	check_name(20, "UNKNOWN EVENT");
	check_name(EVENT_INTERNAL, "UNKNOWN EVENT");
	check_name(-1, "UNKNOWN EVENT");
	check_name(1 << 30, "UNKNOWN EVENT");
}

TEST(nonblocking_empty, "97 empty non-blocking channel gives EAGAIN")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_event *event;

	set_nonblocking(channel);
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	rdma_destroy_event_channel(channel);
}

TEST(nonblocking_full, "97 non-blocking channel delivers what is queued, then EAGAIN")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	set_nonblocking(channel);
	id = queue_event(channel);
	CHECK_OK(rdma_get_cm_event(channel, &event));
	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(null_arguments, "98 get_cm_event and ack_cm_event of NULL give EINVAL")
{
	struct rdma_event_channel *channel = make_channel();

	CHECK_ERRNO(rdma_get_cm_event(channel, NULL), EINVAL);
	CHECK_ERRNO(rdma_ack_cm_event(NULL), EINVAL);
	rdma_destroy_event_channel(channel);
}

TEST(fields, "fields of an ADDR_RESOLVED event")
{
	static const struct rdma_conn_param none;
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = queue_event(channel);
	struct rdma_cm_event *event = next_event(channel, 0);

	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == id);
	CHECK(!event->listen_id);
	CHECK_EQ(event->status, 0);
	CHECK(memcmp(&event->param.conn, &none, sizeof(none)) == 0);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(order, "events of several ids on one channel name their id")
{
	enum { IDS = 8 };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *ids[IDS];
	unsigned int seen = 0;

	for (int i = 0; i < IDS; i++) {
		ids[i] = make_id(channel, RDMA_PS_TCP);
		ids[i]->context = (void *)(uintptr_t)(i + 1);
		CHECK_OK(rdma_resolve_addr(ids[i], NULL, test_addr(7000), 5000));
	}
	for (int i = 0; i < IDS; i++) {
		struct rdma_cm_event *event = expect_event(
			channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
		uintptr_t number = (uintptr_t)event->id->context;

		CHECK(number >= 1 && number <= IDS);
		CHECK(event->id == ids[number - 1]);
		seen |= 1U << number;
		CHECK_OK(rdma_ack_cm_event(event));
	}
	CHECK_EQ(seen, ((1U << IDS) - 1) << 1);
	for (int i = 0; i < IDS; i++)
		CHECK_OK(rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(channel);
}

static void *get_one(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_cm_event *event;

	CHECK_OK(rdma_get_cm_event(channel, &event));
	return event;
}

TEST(two_readers, "two threads that wait on one channel get one event each")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *first, *second;
	struct rdma_cm_event *events[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, get_one, channel));
	first = make_id(channel, RDMA_PS_TCP);
	second = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(first, NULL, test_addr(7000), 5000));
	CHECK_OK(rdma_resolve_addr(second, NULL, test_addr(7000), 5000));
	for (int i = 0; i < 2; i++)
		CHECK_OK(pthread_join(threads[i], (void **)&events[i]));
	CHECK(events[0]->id != events[1]->id);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(events[i]->event, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK_OK(rdma_ack_cm_event(events[i]));
	}
	CHECK_OK(rdma_destroy_id(first));
	CHECK_OK(rdma_destroy_id(second));
	rdma_destroy_event_channel(channel);
}

static void on_signal(int number)
{
	(void)number;
}

TEST(interrupted, "a signal ends get_cm_event with EINTR")
{
	struct rdma_event_channel *channel = make_channel();
	struct sigaction action = { .sa_handler = on_signal };
	struct rdma_cm_event *event;

	CHECK_OK(sigaction(SIGALRM, &action, NULL));
	/* Repeated: the first may hit before the call blocks. */
	CHECK_EQ(ualarm(100000, 100000), 0);
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EINTR);
	ualarm(0, 0);
	rdma_destroy_event_channel(channel);
}

TEST(closed_channel, "get_cm_event on a closed descriptor gives EBADF")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_event *event;

	CHECK_OK(close(channel->fd));
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EBADF);
}

TEST(foreign_descriptor, "get_cm_event on a descriptor of something else gives its errno")
{
	struct rdma_event_channel *channel = make_channel();
	int full = open("/dev/full", O_RDWR);
	struct rdma_cm_event *event;

	CHECK(full >= 0);
	CHECK(dup2(full, channel->fd) == channel->fd);
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), ENOSPC);
}

TEST(ack_twice, "an event acknowledged twice gives EINVAL [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = queue_event(channel);
	struct rdma_cm_event *event = next_event(channel, 0);

	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_ERRNO(rdma_ack_cm_event(event), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(ack_foreign, "memory that is no event gives EINVAL [fix]")
{
	static struct {
		struct rdma_cm_event event;
		char beyond[1024];
	} foreign;

	CHECK_ERRNO(rdma_ack_cm_event(&foreign.event), EINVAL);
}

struct destroyer {
	struct rdma_cm_id *id;
	atomic_bool done;
};

static void *destroy_in_thread(void *argument)
{
	struct destroyer *destroyer = argument;

	CHECK_OK(rdma_destroy_id(destroyer->id));
	atomic_store(&destroyer->done, true);
	return NULL;
}

TEST(destroy_waits, "destroy_id waits until its events are acknowledged")
{
	struct rdma_event_channel *channel = make_channel();
	struct destroyer destroyer = { .id = queue_event(channel) };
	struct rdma_cm_event *event = next_event(channel, 0);
	const struct timespec pause = { .tv_nsec = 300000000 };
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, destroy_in_thread, &destroyer));
	/* Long enough for a destroy that does not wait to end. */
	nanosleep(&pause, NULL);
	CHECK(!atomic_load(&destroyer.done));
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK(atomic_load(&destroyer.done));
	rdma_destroy_event_channel(channel);
}

static void *resolve_and_destroy(void *argument)
{
	struct rdma_event_channel *channel = argument;

	for (int i = 0; i < 200; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
		/* Every other id goes before or while its event is read. */
		if (i % 2)
			sched_yield();
		CHECK_OK(rdma_destroy_id(id));
	}
	return NULL;
}

static void *read_until_stopped(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_cm_event *event;
	bool stop = false;

	while (!stop) {
		CHECK_OK(rdma_get_cm_event(channel, &event));
		stop = event->id->context == channel;
		CHECK_OK(rdma_ack_cm_event(event));
	}
	return NULL;
}

TEST(destroy_while_read, "ids destroyed by some threads while another reads their events [race]",
     .timeout = 120)
{
	struct rdma_event_channel *channel = make_channel();
	pthread_t reader, users[3];
	struct rdma_cm_id *last;

	CHECK_OK(pthread_create(&reader, NULL, read_until_stopped, channel));
	for (int i = 0; i < 3; i++)
		CHECK_OK(pthread_create(&users[i], NULL, resolve_and_destroy, channel));
	for (int i = 0; i < 3; i++)
		CHECK_OK(pthread_join(users[i], NULL));
	last = make_id(channel, RDMA_PS_TCP);
	last->context = channel;
	CHECK_OK(rdma_resolve_addr(last, NULL, test_addr(7000), 5000));
	CHECK_OK(pthread_join(reader, NULL));
	CHECK_OK(rdma_destroy_id(last));
	rdma_destroy_event_channel(channel);
}

TEST(destroy_drops, "destroy_id drops events that nobody fetched")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = queue_event(channel);

	CHECK_OK(rdma_destroy_id(id));
	expect_no_event(channel, 200);
	rdma_destroy_event_channel(channel);
}

TEST(many, "1000 events leak nothing", .timeout = 120)
{
	struct rdma_event_channel *channel = make_channel();
	size_t heap = 0;

	for (int i = 0; i < 1000; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
		CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
		CHECK_OK(rdma_destroy_id(id));
		if (i == 99)
			heap = heap_in_use();
	}
	/* Less than one event per round. */
	CHECK(heap_in_use() < heap + 900 * 32);
	rdma_destroy_event_channel(channel);
}
