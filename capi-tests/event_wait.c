/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls that wait for events to be acknowledged: what the log says meanwhile,
 * and the limit that RDMACM_EVENT_WAIT sets.
 */
#include "pair.h"

#include <pthread.h>
#include <unistd.h>

/* What the first line in the log comes after is four seconds. */
enum { LIMIT_MS = 300, FIRST_LINE_MS = 4000 };

/* To be called before the first call of the library. Returns its log. */
static FILE *capture_log(void)
{
	int ends[2];
	FILE *log;

	CHECK_OK(setenv("RDMACM_LOG", "warn", 1));
	CHECK_OK(pipe(ends));
	CHECK(dup2(ends[1], 2) == 2);
	CHECK_OK(close(ends[1]));
	log = fdopen(ends[0], "r");
	CHECK(log);
	return log;
}

/* The next line of the log about events to be acknowledged. */
static const char *next_line(FILE *log)
{
	static char line[1024];

	do {
		struct pollfd entry = { .fd = fileno(log), .events = POLLIN };

		if (poll(&entry, 1, EVENT_TIMEOUT * 1000) != 1)
			FAIL("nothing in the log");
		CHECK(fgets(line, sizeof(line), log));
	} while (!strstr(line, "acknowledged"));
	return line;
}

static void expect_in(const char *line, const char *text)
{
	if (!strstr(line, text))
		FAIL("no \"%s\" in \"%s\"", text, line);
}

/* Nobody else has waited for events to be acknowledged. Ends the log. */
static void expect_no_line(FILE *log)
{
	char line[1024];

	CHECK_OK(close(2));
	while (fgets(line, sizeof(line), log))
		if (strstr(line, "acknowledged"))
			FAIL("\"%s\" in the log", line);
}

static FILE *limit_wait(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", LIMIT_MS);
	CHECK_OK(setenv("RDMACM_EVENT_WAIT", text, 1));
	return capture_log();
}

/* A call that began at this time has waited for the limit, and not for ever. */
static void expect_limit(uint64_t started)
{
	uint64_t waited = now_ms() - started;

	CHECK(waited >= LIMIT_MS);
	CHECK(waited < EVENT_TIMEOUT * 1000);
}

static struct rdma_cm_event *resolved(struct rdma_event_channel *channel, struct rdma_cm_id *id)
{
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	return expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
}

TEST(destroy, "RDMACM_EVENT_WAIT limits destroy_id; event and id stay readable until acknowledged [fix]")
{
	FILE *log = limit_wait();
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event = resolved(channel, id);
	uint64_t started = now_ms();
	const char *line;

	id->context = channel;
	CHECK_OK(rdma_destroy_id(id));
	expect_limit(started);
	line = next_line(log);
	expect_in(line, "destroy goes on");
	expect_in(line, "1 of 1 events");
	expect_in(line, "RDMA_CM_EVENT_ADDR_RESOLVED");
	rdma_destroy_event_channel(channel);
	/* Refused, since it is destroyed, but not freed. */
	CHECK_ERRNO(rdma_destroy_id(id), EINVAL);
	CHECK(event->id == id);
	CHECK(event->id->context == channel);
	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_OK(rdma_ack_cm_event(event));
}

TEST(destroy_listener, "RDMACM_EVENT_WAIT: the request of a destroyed listener keeps its data [fix]",
     .timeout = 40)
{
	struct rdma_conn_param param = usual_param();
	unsigned char data[REQ_DATA];
	struct rdma_cm_id *listener;
	struct pair pair;
	uint64_t started;

	limit_wait();
	fill(data, sizeof(data), 1);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	pair_to_route(&pair, RDMA_PS_TCP);
	pair_request(&pair, &param);
	listener = pair.listener;
	started = now_ms();
	CHECK_OK(rdma_destroy_id(listener));
	pair.listener = NULL;
	expect_limit(started);
	CHECK(pair.request->listen_id == listener);
	CHECK(listener->channel == pair.server_channel);
	CHECK(memcmp(pair.request->param.conn.private_data, data, sizeof(data)) == 0);
	pair_close(&pair);
}

TEST(migrate, "RDMACM_EVENT_WAIT limits migrate_id [fix]")
{
	FILE *log = limit_wait();
	struct rdma_event_channel *before = make_channel();
	struct rdma_event_channel *after = make_channel();
	struct rdma_cm_id *id = make_id(before, RDMA_PS_TCP);
	struct rdma_cm_event *event = resolved(before, id);
	uint64_t started = now_ms();

	CHECK_OK(rdma_migrate_id(id, after));
	expect_limit(started);
	expect_in(next_line(log), "migrate goes on");
	CHECK(id->channel == after);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(after, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	expect_no_line(log);
	rdma_destroy_event_channel(before);
	rdma_destroy_event_channel(after);
}

TEST(leave, "RDMACM_EVENT_WAIT limits leave_multicast [fix]")
{
	FILE *log = limit_wait();
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);
	struct sockaddr *group = make_addr("239.1.2.3", 0);
	struct rdma_cm_event *event;
	uint64_t started;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_join_multicast(id, group, channel));
	event = expect_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN, EVENT_TIMEOUT);
	started = now_ms();
	CHECK_OK(rdma_leave_multicast(id, group));
	expect_limit(started);
	expect_in(next_line(log), "RDMA_CM_EVENT_MULTICAST_JOIN");
	CHECK(event->param.ud.private_data == channel);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void *destroy_main(void *id)
{
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST(log_names, "the log names who waits, for how many events, and the last, at growing intervals [fix]",
     .timeout = 60)
{
	FILE *log = capture_log();
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *address = resolved(channel, id), *route;
	uint64_t started, second;
	pthread_t thread;
	const char *line;

	CHECK_OK(rdma_resolve_route(id, 5000));
	route = expect_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, EVENT_TIMEOUT);
	started = now_ms();
	CHECK_OK(pthread_create(&thread, NULL, destroy_main, id));
	line = next_line(log);
	expect_in(line, "id ");
	expect_in(line, "destroy waits for 2 of 2 events");
	expect_in(line, "RDMA_CM_EVENT_ROUTE_RESOLVED");
	CHECK_OK(rdma_ack_cm_event(route));
	line = next_line(log);
	second = now_ms();
	expect_in(line, "destroy waits for 1 of 2 events");
	/* As long again would be twice as long in all. */
	CHECK(second - started > 2 * FIRST_LINE_MS + FIRST_LINE_MS / 2);
	CHECK_OK(rdma_ack_cm_event(address));
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(channel);
}
