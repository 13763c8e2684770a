/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The RDMA device goes away and comes back while it is in use. */
#include "pair.h"

#include <pthread.h>
#include <sys/utsname.h>
#include <unistd.h>

/*
 * Kernels before this major version end the removal of a soft-RoCE device only
 * when every process has closed it, which the library does not before its end.
 */
enum { PROMPT_REMOVAL = 7 };

static bool removal_is_prompt(void)
{
	struct utsname name;

	CHECK_OK(uname(&name));
	return atoi(name.release) >= PROMPT_REMOVAL;
}

static void *removal_main(void *argument)
{
	(void)argument;
	rxe_remove();
	return NULL;
}

static pthread_t start_removal(void)
{
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, removal_main, NULL));
	return thread;
}

/* Where the removal needs this process to end, the cleanup waits for it. */
static void end_removal(pthread_t thread)
{
	if (removal_is_prompt())
		CHECK_OK(pthread_join(thread, NULL));
	else
		CHECK_OK(pthread_detach(thread));
}

/* The call fails as on an id whose device is gone, or is about to be. */
static void check_gone(int result)
{
	int error = errno;

	CHECK_EQ(result, -1);
	if (error != ENXIO && (removal_is_prompt() || error != EINVAL))
		FAIL("errno %d: %s, expected ENXIO", error, strerror(error));
}

/*
 * Waits for DEVICE_REMOVAL on the channel; returns whose it is. An id whose
 * peer was removed before itself hears of that first.
 */
static struct rdma_cm_id *removed(struct rdma_event_channel *channel)
{
	for (;;) {
		struct rdma_cm_event *event = next_event(channel, 2 * EVENT_TIMEOUT);
		enum rdma_cm_event_type type = event->event;
		struct rdma_cm_id *id = event->id;

		CHECK_EQ(event->status, 0);
		CHECK_OK(rdma_ack_cm_event(event));
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			return id;
		if (type != RDMA_CM_EVENT_DISCONNECTED)
			FAIL("event %s instead of DEVICE_REMOVAL", rdma_event_str(type));
	}
}

TEST(connected, "117 removal while connected: DEVICE_REMOVAL for all three ids, then ENXIO",
     .timeout = 120, .cleanup = rxe_renew)
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *first, *second;
	struct pair pair;
	pthread_t removal;

	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "before");
	removal = start_removal();
	CHECK(removed(pair.client_channel) == pair.client);
	first = removed(pair.server_channel);
	second = removed(pair.server_channel);
	CHECK((first == pair.server && second == pair.listener) ||
	      (first == pair.listener && second == pair.server));
	end_removal(removal);
	check_gone(rdma_connect(pair.client, &param));
	check_gone(rdma_reject(pair.server, NULL, 0));
	check_gone(rdma_listen(pair.listener, 1));
	pair_close(&pair);
}

TEST(requested, "117 removal before the answer", .timeout = 120, .cleanup = rxe_renew)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	pthread_t removal;

	pair_to_request(&pair, RDMA_PS_TCP);
	removal = start_removal();
	CHECK(removed(pair.client_channel) == pair.client);
	/* The new id has no events of its own before it is accepted. */
	CHECK(removed(pair.server_channel) == pair.listener);
	/* The server's own removal may be still to come. */
	if (rdma_accept(pair.server, &param))
		CHECK(errno > 0);
	pair_close(&pair);
	end_removal(removal);
}

TEST(resolved, "117 removal of a resolved id; a new id works after the device is back",
     .timeout = 120, .cleanup = rxe_renew)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct pair pair;
	pthread_t removal;

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	removal = start_removal();
	CHECK(removed(channel) == id);
	end_removal(removal);
	check_gone(rdma_resolve_route(id, 1000));
	CHECK_OK(rdma_destroy_id(id));
	if (!removal_is_prompt())
		return;
	rxe_add();
	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "the device is back");
	pair_close(&pair);
}

TEST(wildcard, "117 a wildcard listener outlives the device and serves its successor",
     .timeout = 120, .cleanup = rxe_renew)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	uint16_t port;

	pair_listen_on(&pair, RDMA_PS_TCP, make_addr("0.0.0.0", 0));
	port = ntohs(rdma_get_src_port(pair.listener));
	rxe_remove();
	expect_no_event(pair.server_channel, 200);
	rxe_add();
	pair.client = make_id(pair.client_channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(pair.client, NULL, test_addr(port), 5000));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	send_message(pair.client, pair.server, "served by the successor");
	pair_close(&pair);
}

TEST(list, "118 no device after the removal, one after it is back", .timeout = 120,
     .cleanup = rxe_renew)
{
	struct ibv_context **devices;
	int count = -1;

	require_kernel(PROMPT_REMOVAL, 0);
	devices = rdma_get_devices(&count);
	CHECK(devices);
	CHECK_EQ(count, 1);
	rdma_free_devices(devices);
	rxe_remove();
	CHECK_NULL_ERRNO(rdma_get_devices(&count), ENODEV);
	CHECK_EQ(count, 0);
	rxe_add();
	devices = rdma_get_devices(&count);
	CHECK(devices);
	CHECK_EQ(count, 1);
	CHECK(strcmp(ibv_get_device_name(devices[0]->device), test_device()) == 0);
	CHECK(!devices[1]);
	rdma_free_devices(devices);
}

TEST(old_list, "119 a list from before the removal can be freed after it", .timeout = 120,
     .cleanup = rxe_renew)
{
	struct ibv_context **before, **after;
	int count = -1;

	require_kernel(PROMPT_REMOVAL, 0);
	before = rdma_get_devices(NULL);
	CHECK(before);
	rxe_remove();
	rxe_add();
	after = rdma_get_devices(&count);
	CHECK(after);
	CHECK_EQ(count, 1);
	CHECK(before[0] != after[0]);
	rdma_free_devices(before);
	CHECK(strcmp(ibv_get_device_name(after[0]->device), test_device()) == 0);
	rdma_free_devices(after);
}

TEST(many_times, "117 ten removals, a connection after each", .timeout = 300,
     .cleanup = rxe_renew)
{
	require_kernel(PROMPT_REMOVAL, 0);
	for (int i = 0; i < 10; i++) {
		struct pair pair;
		pthread_t removal;

		pair_connect(&pair, RDMA_PS_TCP);
		send_message(pair.client, pair.server, "again");
		removal = start_removal();
		removed(pair.client_channel);
		removed(pair.server_channel);
		removed(pair.server_channel);
		pair_close(&pair);
		end_removal(removal);
		rxe_add();
	}
}

/* A connect that the server never answers. */
static void *connect_main(void *argument)
{
	struct rdma_conn_param param = usual_param();
	struct sockaddr *addr = argument;
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	CHECK_OK(rdma_resolve_addr(id, NULL, addr, 5000));
	CHECK_OK(rdma_resolve_route(id, 5000));
	make_qp(id);
	CHECK_ERRNO(rdma_connect(id, &param), ENODEV);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST(synchronous, "117 removal ends a synchronous connect with ENODEV [fix]", .timeout = 120,
     .cleanup = rxe_renew)
{
	pthread_t thread, removal;
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	CHECK_OK(pthread_create(&thread, NULL, connect_main, rdma_get_local_addr(pair.listener)));
	pair.request = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				    EVENT_TIMEOUT);
	pair.server = pair.request->id;
	removal = start_removal();
	CHECK(removed(pair.server_channel) == pair.listener);
	CHECK_OK(pthread_join(thread, NULL));
	pair_close(&pair);
	end_removal(removal);
}
