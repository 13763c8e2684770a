/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names resolved on an id without blocking, and events of the program's own,
 * since RDMACM_1.4. Kernels since 6.17 have commands for them; on older ones
 * the original can do neither.
 */
#include "harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mount.h>
#include <unistd.h>

/* A case with the same steps on kernels with and without the commands. */
#define TEST_EVERYWHERE(ident, text, ...)                                      \
	static void ident##_steps(void);                                       \
	TEST(ident, text, ##__VA_ARGS__)                                       \
	{                                                                      \
		library_symbol("rdma_write_cm_event");                         \
		require_kernel(6, 17);                                         \
		ident##_steps();                                               \
	}                                                                      \
	TEST(ident##_old, text ", before Linux 6.17 [fix]", ##__VA_ARGS__)     \
	{                                                                      \
		library_symbol("rdma_write_cm_event");                         \
		if (kernel_at_least(6, 17))                                    \
			SKIP("the kernel is not old");                         \
		ident##_steps();                                               \
	}                                                                      \
	static void ident##_steps(void)

static const char *test_node(void)
{
	static char text[INET_ADDRSTRLEN];
	struct sockaddr_in *in = (struct sockaddr_in *)test_addr(0);

	CHECK(inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)));
	return text;
}

static int resolve(struct rdma_cm_id *id, const char *node)
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_addrinfo hints = { .ai_family = AF_INET, .ai_port_space = RDMA_PS_TCP };

	return resolve_addrinfo(id, node, "7471", &hints);
}

static int write_user(struct rdma_cm_id *id, int status, uint64_t argument)
{
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");

	return write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, status, argument);
}

static struct rdma_cm_event *expect_user(struct rdma_event_channel *channel,
					 struct rdma_cm_id *id, int status, uint64_t argument)
{
	struct rdma_cm_event *event =
		expect_event(channel, (enum rdma_cm_event_type)EVENT_USER, EVENT_TIMEOUT);

	CHECK(event->id == id);
	CHECK_EQ(event->status, status);
	CHECK_EQ(event_argument(event), argument);
	return event;
}

static bool readable(struct rdma_event_channel *channel, int milliseconds)
{
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };

	return poll(&entry, 1, milliseconds) == 1;
}

/* ---- Events of the program's own ------------------------------------------ */

TEST_EVERYWHERE(user_event, "112 write_cm_event USER: event 18 with status and argument")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(write_user(id, -5, 0x1122334455667788));
	CHECK_OK(rdma_ack_cm_event(expect_user(channel, id, -5, 0x1122334455667788)));
	expect_no_event(channel, 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST_EVERYWHERE(user_events, "USER events come once each, for their ids")
{
	enum { IDS = 4, EVENTS = 25 };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *ids[IDS];
	bool seen[IDS][EVENTS] = { 0 };

	for (int i = 0; i < IDS; i++)
		ids[i] = make_id(channel, RDMA_PS_TCP);
	for (int n = 0; n < EVENTS; n++)
		for (int i = 0; i < IDS; i++)
			CHECK_OK(write_user(ids[i], 0, (uint64_t)(i * EVENTS + n)));
	for (int n = 0; n < IDS * EVENTS; n++) {
		struct rdma_cm_event *event = expect_event(
			channel, (enum rdma_cm_event_type)EVENT_USER, EVENT_TIMEOUT);
		uint64_t argument = event_argument(event);

		CHECK(argument < IDS * EVENTS);
		CHECK(event->id == ids[argument / EVENTS]);
		CHECK(!seen[argument / EVENTS][argument % EVENTS]);
		seen[argument / EVENTS][argument % EVENTS] = true;
		CHECK_OK(rdma_ack_cm_event(event));
	}
	expect_no_event(channel, 0);
	for (int i = 0; i < IDS; i++)
		CHECK_OK(rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(channel);
}

TEST_EVERYWHERE(user_destroy, "USER events that nobody fetched go with their id")
{
	unsigned int descriptors = open_descriptors();
	struct rdma_event_channel *channel = make_channel();

	for (int i = 0; i < 20; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(write_user(id, 0, 1));
		CHECK_OK(write_user(id, 0, 2));
		if (i % 2)
			CHECK(readable(channel, EVENT_TIMEOUT * 1000));
		CHECK_OK(rdma_destroy_id(id));
	}
	expect_no_event(channel, 200);
	rdma_destroy_event_channel(channel);
	CHECK(open_descriptors() <= descriptors + 1);
}

static void *destroy(void *id)
{
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST_EVERYWHERE(user_unacknowledged, "destroy_id waits for a USER event to be acknowledged")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;
	struct timespec until;
	pthread_t thread;

	CHECK_OK(write_user(id, 0, 1));
	event = expect_user(channel, id, 0, 1);
	CHECK_OK(pthread_create(&thread, NULL, destroy, id));
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	CHECK_EQ(pthread_timedjoin_np(thread, NULL, &until), ETIMEDOUT);
	CHECK_EQ(event_argument(event), 1);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(channel);
}

TEST_EVERYWHERE(user_migrate, "a USER event moves with its id to another channel")
{
	struct rdma_event_channel *before = make_channel();
	struct rdma_event_channel *after = make_channel();
	struct rdma_cm_id *id = make_id(before, RDMA_PS_TCP);

	CHECK_OK(write_user(id, 7, 8));
	CHECK(readable(before, EVENT_TIMEOUT * 1000));
	CHECK_OK(rdma_migrate_id(id, after));
	CHECK(!readable(before, 0));
	rdma_destroy_event_channel(before);
	CHECK_OK(rdma_ack_cm_event(expect_user(after, id, 7, 8)));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(after);
}

TEST(other_event, "113 write_cm_event of another event gives EINVAL")
{
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	for (int event = -1; event < 24; event++) {
		if (event == EVENT_USER)
			continue;
		CHECK_ERRNO(write_cm_event(id, (enum rdma_cm_event_type)event, 0, 0), EINVAL);
	}
	expect_no_event(channel, 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* ---- Names ------------------------------------------------------------------ */

TEST_EVERYWHERE(resolve_dns, "114 resolve_addrinfo: event 16, query 0, then ENOENT")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;

	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(query_addrinfo(id, &info));
	CHECK(info);
	CHECK(memcmp(info->ai_dst_addr, test_addr(7471), sizeof(struct sockaddr_in)) == 0);
	rdma_freeaddrinfo(info);
	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	/* The id is free for the next resolution. */
	CHECK_OK(resolve_addrinfo(id, test_node(), "7472", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	/* The result that nobody asked for goes with the id. */
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST_EVERYWHERE(resolve_dns_synchronous, "114 synchronous resolve_addrinfo")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;

	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK(id->event);
	CHECK_EQ(id->event->event, EVENT_ADDRINFO_RESOLVED);
	CHECK_OK(query_addrinfo(id, &info));
	CHECK(info->ai_dst_addr);
	rdma_freeaddrinfo(info);
	CHECK_OK(rdma_destroy_id(id));
}

TEST_EVERYWHERE(resolve_twice, "115 resolve_addrinfo while one is under way gives EBUSY")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };

	CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
	CHECK_ERRNO(resolve_addrinfo(id, test_node(), "7471", &hints), EBUSY);
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void unknown_host(void)
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo hints = {
		.ai_flags = RAI_NUMERICHOST,
		.ai_port_space = RDMA_PS_TCP,
	};
	struct rdma_addrinfo *info;

	errno = 0;
	if (resolve_addrinfo(id, "no-such-host.invalid", "7471", &hints)) {
		CHECK_EQ(errno, ENOENT);
	} else {
		struct rdma_cm_event *event = next_event(channel, EVENT_TIMEOUT);

		CHECK_EQ(event->event, EVENT_ADDRINFO_ERROR);
		CHECK(event->status != 0);
		CHECK_OK(rdma_ack_cm_event(event));
	}
	CHECK_ERRNO(query_addrinfo(id, &info), ENOENT);
	/* The id is free for the next resolution. */
	CHECK_OK(resolve_addrinfo(id, test_node(), "7472", &hints));
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_unknown, "116 resolve_addrinfo of an unknown host: ENOENT or event 17 [fix]")
{
	library_symbol("rdma_write_cm_event");
	unknown_host();
}

TEST_EVERYWHERE(resolve_destroy, "destroy_id during resolve_addrinfo")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };

	for (int i = 0; i < 50; i++) {
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

		CHECK_OK(resolve_addrinfo(id, test_node(), "7471", &hints));
		CHECK_OK(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(channel);
}

/* ---- A name server that answers when the case wants it to ----------------- */

struct name_server {
	int fd;
	unsigned char query[512];
	ssize_t length;
	struct sockaddr_in client;
};

/* Only this process asks it, and nobody else. */
static void start_server(struct name_server *server)
{
	static const char config[] = "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n";
	struct timeval patience = { .tv_sec = EVENT_TIMEOUT };
	FILE *file;

	private_mounts();
	/* Minimal systems lack the file, and only a file can be mounted over. */
	file = fopen("/etc/resolv.conf", "a");
	CHECK(file);
	CHECK_OK(fclose(file));
	file = fopen("/tmp/capi-tests-resolv.conf", "w");
	CHECK(file);
	CHECK(fputs(config, file) >= 0);
	CHECK_OK(fclose(file));
	CHECK_OK(mount("/tmp/capi-tests-resolv.conf", "/etc/resolv.conf", NULL, MS_BIND, NULL));
	server->fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(server->fd >= 0);
	CHECK_OK(setsockopt(server->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	CHECK_OK(bind(server->fd, make_addr("127.0.0.1", 53), sizeof(struct sockaddr_in)));
}

/* The resolver has asked: from here on it waits for the answer. */
static void await_query(struct name_server *server)
{
	socklen_t length = sizeof(server->client);

	server->length = recvfrom(server->fd, server->query, sizeof(server->query) - 16, 0,
				  (struct sockaddr *)&server->client, &length);
	CHECK(server->length > 12);
}

/* Answers with 192.0.2.1, or that there is no such name. */
static void answer(struct name_server *server, bool known)
{
	static const unsigned char record[16] = {
		0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 1,
	};
	unsigned char *message = server->query;
	size_t length = 12;

	while (message[length])
		length += 1 + message[length];
	length += 5; /* root, type, class; further sections are left out */
	message[2] = 0x81; /* response, recursion desired */
	message[3] = known ? 0x80 : 0x83;
	memset(message + 6, 0, 6);
	if (known) {
		message[7] = 1;
		memcpy(message + length, record, sizeof(record));
		length += sizeof(record);
	}
	CHECK(sendto(server->fd, message, length, 0, (struct sockaddr *)&server->client,
		     sizeof(server->client)) == (ssize_t)length);
}

static void expect_result(struct rdma_cm_id *id)
{
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_addrinfo *info;

	CHECK_OK(query_addrinfo(id, &info));
	CHECK(memcmp(info->ai_dst_addr, make_addr("192.0.2.1", 7471),
		     sizeof(struct sockaddr_in)) == 0);
	rdma_freeaddrinfo(info);
}

static void require_resolution(void)
{
	library_symbol("rdma_resolve_addrinfo");
}

TEST(pending, "resolve_addrinfo does not wait for the answer; poll and a non-blocking channel do [fix]",
     .timeout = 60)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct name_server server;
	struct rdma_cm_id *id;

	require_resolution();
	start_server(&server);
	channel = make_channel();
	CHECK_OK(fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(resolve(id, "capi.example"));
	await_query(&server);
	CHECK(!readable(channel, 0));
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	CHECK_ERRNO(resolve(id, "capi.example"), EBUSY);
	answer(&server, true);
	CHECK(readable(channel, EVENT_TIMEOUT * 1000));
	CHECK_OK(rdma_get_cm_event(channel, &event));
	CHECK_EQ(event->event, EVENT_ADDRINFO_RESOLVED);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == id);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
	expect_result(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(unknown, "a name that the server does not know: ADDRINFO_ERROR -ENOENT, then the next [fix]",
     .timeout = 60)
{
	struct rdma_event_channel *channel;
	struct name_server server;
	struct rdma_cm_id *id;

	require_resolution();
	start_server(&server);
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(resolve(id, "capi.example."));
	await_query(&server);
	answer(&server, false);
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_ERROR), -ENOENT);
	CHECK_OK(resolve(id, "capi.example."));
	await_query(&server);
	answer(&server, true);
	CHECK_EQ(take_event(channel, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	expect_result(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(pending_destroy, "destroy_id and the channel's end do not wait for the answer [fix]",
     .timeout = 60)
{
	struct rdma_event_channel *channel, *other;
	struct name_server server;
	struct rdma_cm_id *id;
	int fd;

	require_resolution();
	start_server(&server);
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(resolve(id, "capi.example."));
	await_query(&server);
	CHECK_OK(rdma_destroy_id(id));
	fd = channel->fd;
	rdma_destroy_event_channel(channel);
	/* A late answer must not reach whoever has the number now. */
	other = make_channel();
	CHECK_EQ(other->fd, fd);
	answer(&server, true);
	expect_no_event(other, 500);
	rdma_destroy_event_channel(other);
}

TEST(pending_migrate, "an answer after migrate_id is reported on the new channel [fix]",
     .timeout = 60)
{
	struct rdma_event_channel *before, *after;
	struct name_server server;
	struct rdma_cm_id *id;

	require_resolution();
	start_server(&server);
	before = make_channel();
	after = make_channel();
	id = make_id(before, RDMA_PS_TCP);
	CHECK_OK(resolve(id, "capi.example."));
	await_query(&server);
	CHECK_OK(rdma_migrate_id(id, after));
	rdma_destroy_event_channel(before);
	answer(&server, true);
	CHECK_EQ(take_event(after, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	expect_result(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(after);
}

TEST(answered_migrate, "a reported answer moves with its id to another channel [fix]",
     .timeout = 60)
{
	struct rdma_event_channel *before, *after;
	struct name_server server;
	struct rdma_cm_id *id;

	require_resolution();
	start_server(&server);
	before = make_channel();
	after = make_channel();
	id = make_id(before, RDMA_PS_TCP);
	CHECK_OK(resolve(id, "capi.example."));
	await_query(&server);
	answer(&server, true);
	CHECK(readable(before, EVENT_TIMEOUT * 1000));
	CHECK_OK(rdma_migrate_id(id, after));
	CHECK(!readable(before, 0));
	CHECK_EQ(take_event(after, (enum rdma_cm_event_type)EVENT_ADDRINFO_RESOLVED), 0);
	expect_result(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(before);
	rdma_destroy_event_channel(after);
}

static void *fetch(void *channel)
{
	struct rdma_cm_event *event;

	CHECK_OK(rdma_get_cm_event(channel, &event));
	CHECK_EQ(event->event, EVENT_ADDRINFO_RESOLVED);
	CHECK_OK(rdma_ack_cm_event(event));
	return NULL;
}

TEST(pending_blocked, "threads blocked in get_cm_event get an answer each [fix]", .timeout = 60)
{
	enum { IDS = 3 };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[IDS];
	struct name_server server;
	pthread_t threads[IDS];

	require_resolution();
	start_server(&server);
	channel = make_channel();
	for (int i = 0; i < IDS; i++) {
		ids[i] = make_id(channel, RDMA_PS_TCP);
		CHECK_OK(pthread_create(&threads[i], NULL, fetch, channel));
		CHECK_OK(resolve(ids[i], "capi.example."));
	}
	for (int i = 0; i < IDS; i++) {
		await_query(&server);
		answer(&server, true);
	}
	for (int i = 0; i < IDS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	for (int i = 0; i < IDS; i++) {
		expect_result(ids[i]);
		CHECK_OK(rdma_destroy_id(ids[i]));
	}
	rdma_destroy_event_channel(channel);
}

/* ---- Arguments and service records ------------------------------------------- */

TEST(resolve_arguments, "resolve_addrinfo and query_addrinfo of NULL give EINVAL")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	query_addrinfo_fn *query_addrinfo = library_symbol("rdma_query_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_addrinfo *info;

	CHECK_ERRNO(resolve_addrinfo(NULL, "127.0.0.1", "7471", NULL), EINVAL);
	CHECK_ERRNO(query_addrinfo(NULL, &info), EINVAL);
	CHECK_ERRNO(query_addrinfo(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_service, "resolve_addrinfo of a service record: with a node or a name gives ENOTSUP")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };
	struct rdma_addrinfo both = { .ai_flags = FLAG_RAI_SA | FLAG_RAI_DNS };

	CHECK_ERRNO(resolve_addrinfo(id, "127.0.0.1", "5", &hints), ENOTSUP);
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &both), ENOTSUP);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(resolve_no_service, "resolve_addrinfo of a service record: errno without service, unbound, on RoCE [fix]")
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_IB);
	struct rdma_addrinfo hints = { .ai_flags = FLAG_RAI_SA };

	CHECK_ERRNO(resolve_addrinfo(id, NULL, NULL, &hints), EINVAL);
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &hints), EINVAL);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(resolve_addrinfo(id, NULL, "5", &hints), EOPNOTSUPP);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}
