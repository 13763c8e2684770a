/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The kernel's own connection manager interface, <rdma/rdma_cm_kapi.h>, and
 * the defaults that the environment gives. The original library has neither,
 * so that all is looked up at run time and skipped there.
 */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

enum {
	NODE_CA = 1,
	NODE_RNIC = 4,
	NODE_UNSPECIFIED = 7,
	SERVICE_ID = 1,
	SERVICE_NAME = 2,
};

/* As in <rdma/rdma_cm_kapi.h>, which the original does not have. */
struct service {
	uint64_t service_id;
	char service_name[64];
	uint32_t flags;
	uint32_t reserved;
};

typedef int set_byte_fn(struct rdma_cm_id *, uint8_t);
typedef int set_int_fn(struct rdma_cm_id *, int);
typedef int service_fn(struct rdma_cm_id *, const struct service *);
typedef const char *message_fn(struct rdma_cm_id *, int);
typedef bool consumer_fn(struct rdma_cm_id *, int);
typedef const void *data_fn(struct rdma_cm_id *, struct rdma_cm_event *, uint8_t *);
typedef void gids_fn(struct rdma_cm_id *, union ibv_gid *, union ibv_gid *);
typedef int ece_fn(struct rdma_cm_id *, struct rdma_conn_param *, struct ibv_ece *);
typedef void lock_fn(struct rdma_cm_id *);

static struct rdma_cm_event *rejected(struct pair *pair)
{
	return expect_event(pair->client_channel, RDMA_CM_EVENT_REJECTED, EVENT_TIMEOUT);
}

static uint8_t rnr_timer(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };

	CHECK_OK(ibv_query_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER, &init));
	return attr.min_rnr_timer;
}

static uint8_t ack_timeout(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };

	CHECK_OK(ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT, &init));
	return attr.timeout;
}

/* ---- Options ----------------------------------------------------------- */

TEST(options, "options are those of rdma_set_option")
{
	set_int_fn *tos = library_symbol("rdma_set_service_type");
	set_int_fn *reuse = library_symbol("rdma_set_reuseaddr");
	set_int_fn *afonly = library_symbol("rdma_set_afonly");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(tos(id, 0));
	CHECK_OK(tos(id, 255));
	CHECK_ERRNO(tos(id, 256), EINVAL);
	CHECK_ERRNO(tos(id, -1), EINVAL);
	CHECK_ERRNO(tos(NULL, 0), EINVAL);
	CHECK_OK(reuse(id, 1));
	CHECK_OK(reuse(id, 0));
	CHECK_ERRNO(reuse(NULL, 1), EINVAL);
	CHECK_OK(afonly(id, 1));
	CHECK_OK(afonly(id, 0));
	CHECK_ERRNO(afonly(NULL, 1), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(reuse, "two ids that allow reuse bind to one address")
{
	set_int_fn *reuse = library_symbol("rdma_set_reuseaddr");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *first = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *second = make_id(channel, RDMA_PS_TCP);
	struct sockaddr *addr = test_addr(7471);

	CHECK_OK(reuse(first, 1));
	CHECK_OK(rdma_bind_addr(first, addr));
	CHECK_ERRNO(rdma_bind_addr(second, addr), EADDRINUSE);
	CHECK_OK(reuse(second, 1));
	CHECK_OK(rdma_bind_addr(second, addr));
	CHECK_OK(rdma_destroy_id(second));
	CHECK_OK(rdma_destroy_id(first));
	rdma_destroy_event_channel(channel);
}

TEST(timers_invalid, "timers above 31 and queue pairs without them give EINVAL")
{
	set_byte_fn *ack = library_symbol("rdma_set_ack_timeout");
	set_byte_fn *rnr = library_symbol("rdma_set_min_rnr_timer");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *datagram = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(ack(id, 31));
	CHECK_ERRNO(ack(id, 32), EINVAL);
	CHECK_ERRNO(ack(datagram, 14), EINVAL);
	CHECK_ERRNO(ack(NULL, 14), EINVAL);
	CHECK_OK(rnr(id, 31));
	CHECK_ERRNO(rnr(id, 32), EINVAL);
	CHECK_ERRNO(rnr(datagram, 12), EINVAL);
	CHECK_ERRNO(rnr(NULL, 12), EINVAL);
	CHECK_OK(rdma_destroy_id(datagram));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(timers, "timers reach the queue pairs of both sides")
{
	set_byte_fn *ack = library_symbol("rdma_set_ack_timeout");
	set_byte_fn *rnr = library_symbol("rdma_set_min_rnr_timer");
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(ack(pair.client, 19));
	CHECK_OK(rnr(pair.client, 11));
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	CHECK_OK(rnr(pair.server, 13));
	pair_accept(&pair, &param);
	CHECK_EQ(ack_timeout(pair.client->qp), 19);
	CHECK_EQ(rnr_timer(pair.client->qp), 11);
	CHECK_EQ(rnr_timer(pair.server->qp), 13);
	send_message(pair.client, pair.server, "timed");
	pair_close(&pair);
}

TEST(timer_attr, "rdma_init_qp_attr reports the minimum RNR timer")
{
	set_byte_fn *rnr = library_symbol("rdma_set_min_rnr_timer");
	struct rdma_conn_param param = { .qp_num = 0x31, .retry_count = 7 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct pair pair;
	int mask = 0;

	pair_to_route(&pair, RDMA_PS_TCP);
	pair_request(&pair, &param);
	CHECK_OK(rdma_init_qp_attr(pair.server, &attr, &mask));
	CHECK(mask & IBV_QP_MIN_RNR_TIMER);
	CHECK_EQ(attr.min_rnr_timer, 0);
	CHECK_OK(rnr(pair.server, 14));
	CHECK_OK(rdma_init_qp_attr(pair.server, &attr, &mask));
	CHECK(mask & IBV_QP_MIN_RNR_TIMER);
	CHECK_EQ(attr.min_rnr_timer, 14);
	pair_close(&pair);
}

/* ---- Restriction to a type of device ------------------------------------ */

TEST(restrict_args, "restrict_node_type: known types, before there is an address")
{
	set_byte_fn *restrict_type = library_symbol("rdma_restrict_node_type");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_ERRNO(restrict_type(NULL, NODE_CA), EINVAL);
	CHECK_ERRNO(restrict_type(id, 2), EINVAL);
	CHECK_ERRNO(restrict_type(id, 0), EINVAL);
	CHECK_OK(restrict_type(id, NODE_RNIC));
	CHECK_OK(restrict_type(id, NODE_UNSPECIFIED));
	CHECK_OK(restrict_type(id, NODE_CA));
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(restrict_type(id, NODE_CA), EALREADY);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(restrict_bind, "an address on another type gives ENODEV, and the id is idle again")
{
	set_byte_fn *restrict_type = library_symbol("rdma_restrict_node_type");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(restrict_type(id, NODE_RNIC));
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(0)), ENODEV);
	CHECK(!id->verbs);
	CHECK_EQ(rdma_get_src_port(id), 0);
	CHECK_OK(restrict_type(id, NODE_UNSPECIFIED));
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs != NULL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(restrict_resolve, "a destination behind another type gives ADDR_ERROR, and the id is idle again")
{
	set_byte_fn *restrict_type = library_symbol("rdma_restrict_node_type");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(restrict_type(id, NODE_RNIC));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_ERROR), -ENODEV);
	CHECK_OK(restrict_type(id, NODE_CA));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(restrict_listen, "a wildcard listener rejects requests on another type")
{
	set_byte_fn *restrict_type = library_symbol("rdma_restrict_node_type");
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	uint16_t port;

	pair_listen(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = make_id(pair.server_channel, RDMA_PS_TCP);
	CHECK_OK(restrict_type(pair.listener, NODE_RNIC));
	CHECK_OK(rdma_listen(pair.listener, 4));
	port = ntohs(rdma_get_src_port(pair.listener));
	pair.client = make_id(pair.client_channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(pair.client, NULL, test_addr(port), 5000));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(pair.client);
	pair_route(&pair);
	CHECK_OK(rdma_connect(pair.client, &param));
	/* The library drops it when it looks for an event, of which there is none. */
	CHECK(wait_readable(pair.server_channel));
	CHECK_OK(fcntl(pair.server_channel->fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rdma_get_cm_event(pair.server_channel, &pair.request), EAGAIN);
	pair.request = NULL;
	pair.established = rejected(&pair);
	CHECK_EQ(pair.established->status, REASON_CONSUMER);
	pair_close(&pair);
}

/* ---- Rejections --------------------------------------------------------- */

TEST(reject_text, "reject reasons in words")
{
	message_fn *message = library_symbol("rdma_reject_msg");
	consumer_fn *consumer = library_symbol("rdma_is_consumer_reject");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK(strcmp(message(id, 8), "unrecognized transport") == 0);
	CHECK(!consumer(id, REASON_CONSUMER));
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(strcmp(message(id, 8), "invalid service ID") == 0);
	CHECK(strcmp(message(id, 10), "stale conn") == 0);
	CHECK(strcmp(message(id, 28), "consumer defined") == 0);
	CHECK(strcmp(message(id, 35), "vendor option is not supported") == 0);
	CHECK(strcmp(message(id, 34), "unrecognized reason") == 0);
	CHECK(strcmp(message(id, -1), "unrecognized reason") == 0);
	CHECK(consumer(id, REASON_CONSUMER));
	CHECK(!consumer(id, 8));
	CHECK(message(NULL, 28) != NULL);
	CHECK(!consumer(NULL, REASON_CONSUMER));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(reject_data, "the data of a rejection by the peer's program")
{
	consumer_fn *consumer = library_symbol("rdma_is_consumer_reject");
	data_fn *data = library_symbol("rdma_consumer_reject_data");
	struct pair pair;
	const void *found;
	uint8_t length = 0;

	pair_to_request(&pair, RDMA_PS_TCP);
	length = 1;
	CHECK(!data(pair.server, pair.request, &length));
	CHECK_EQ(length, 0);
	CHECK_OK(rdma_reject(pair.server, "because", 7));
	pair.established = rejected(&pair);
	CHECK(consumer(pair.client, pair.established->status));
	found = data(pair.client, pair.established, &length);
	CHECK(found == pair.established->param.conn.private_data);
	CHECK_EQ(length, REJ_DATA);
	CHECK(memcmp(found, "because", 7) == 0);
	CHECK(data(pair.client, pair.established, NULL) == found);
	CHECK(!data(NULL, pair.established, &length));
	CHECK_EQ(length, 0);
	CHECK(!data(pair.client, NULL, &length));
	pair_close(&pair);
}

TEST(reject_nobody, "a rejection by the connection manager carries no program's data")
{
	message_fn *message = library_symbol("rdma_reject_msg");
	data_fn *data = library_symbol("rdma_consumer_reject_data");
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	uint8_t length = 9;

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	CHECK_OK(rdma_connect(pair.client, &param));
	pair.established = rejected(&pair);
	CHECK(!data(pair.client, pair.established, &length));
	CHECK_EQ(length, 0);
	CHECK(strcmp(message(pair.client, pair.established->status), "invalid service ID") == 0);
	pair_close(&pair);
}

/* ---- Addresses, services, ECE ------------------------------------------- */

TEST(gids, "GIDs are zero before the device is known, then those of the id")
{
	gids_fn *read_gids = library_symbol("rdma_read_gids");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	union ibv_gid local, remote;

	memset(&local, 9, sizeof(local));
	memset(&remote, 9, sizeof(remote));
	read_gids(id, &local, &remote);
	CHECK(all_zero(&local, sizeof(local)));
	CHECK(all_zero(&remote, sizeof(remote)));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	read_gids(id, &local, &remote);
	CHECK(memcmp(&local, &id->route.addr.addr.ibaddr.sgid, sizeof(local)) == 0);
	CHECK(memcmp(&remote, &id->route.addr.addr.ibaddr.dgid, sizeof(remote)) == 0);
	CHECK(!all_zero(&local, sizeof(local)));
	read_gids(id, NULL, NULL);
	read_gids(NULL, &local, NULL);
	CHECK(all_zero(&local, sizeof(local)));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(service, "resolve_ib_service: only of ids bound to an InfiniBand port")
{
	service_fn *resolve = library_symbol("rdma_resolve_ib_service");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct service by_id = { .service_id = 1, .flags = SERVICE_ID };
	struct service by_name = { .service_name = "name", .flags = SERVICE_NAME };
	struct service neither = { .service_id = 1 };

	CHECK_ERRNO(resolve(NULL, &by_id), EINVAL);
	CHECK_ERRNO(resolve(id, NULL), EINVAL);
	CHECK_ERRNO(resolve(id, &neither), EINVAL);
	CHECK_ERRNO(resolve(id, &by_id), EINVAL);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_ERRNO(resolve(id, &by_id), EOPNOTSUPP);
	CHECK_ERRNO(resolve(id, &by_name), EOPNOTSUPP);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(ece, "the pair given to connect and accept reaches the peer")
{
	ece_fn *connect_ece = library_symbol("rdma_connect_ece");
	ece_fn *accept_ece = library_symbol("rdma_accept_ece");
	struct rdma_conn_param param = { .qp_num = 0x31, .retry_count = 7 };
	struct ibv_ece client_ece = { .vendor_id = 0x15b3, .options = 0x10 };
	struct ibv_ece server_ece = { .vendor_id = 0x1234, .options = 0x20 };
	struct ibv_ece mask = { .vendor_id = 0x15b3, .comp_mask = 1 };
	struct ibv_ece ece;
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(connect_ece(NULL, &param, &client_ece), EINVAL);
	CHECK_ERRNO(connect_ece(pair.client, &param, NULL), EINVAL);
	CHECK_ERRNO(connect_ece(pair.client, &param, &mask), EINVAL);
	CHECK_OK(connect_ece(pair.client, &param, &client_ece));
	pair.request = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				    EVENT_TIMEOUT);
	pair.server = pair.request->id;
	CHECK_OK(rdma_get_remote_ece(pair.server, &ece));
	CHECK_EQ(ece.vendor_id, client_ece.vendor_id);
	CHECK_EQ(ece.options, client_ece.options);
	CHECK_ERRNO(accept_ece(NULL, &param, &server_ece), EINVAL);
	CHECK_ERRNO(accept_ece(pair.server, &param, NULL), EINVAL);
	param.qp_num = 0x32;
	CHECK_OK(accept_ece(pair.server, &param, &server_ece));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
	CHECK_OK(rdma_get_remote_ece(pair.client, &ece));
	CHECK_EQ(ece.vendor_id, server_ece.vendor_id);
	CHECK_EQ(ece.options, server_ece.options);
	pair_close(&pair);
}

TEST(ece_with_qp, "ECE given with queue pairs of the library's connects")
{
	ece_fn *connect_ece = library_symbol("rdma_connect_ece");
	ece_fn *accept_ece = library_symbol("rdma_accept_ece");
	struct rdma_conn_param param = usual_param();
	struct ibv_ece ece = { .vendor_id = 0x15b3, .options = 0x10 };
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	make_qp(pair.client);
	pair_route(&pair);
	CHECK_OK(connect_ece(pair.client, &param, &ece));
	pair.request = expect_event(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				    EVENT_TIMEOUT);
	pair.server = pair.request->id;
	make_qp(pair.server);
	CHECK_OK(accept_ece(pair.server, &param, &ece));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	send_message(pair.client, pair.server, "with options");
	pair_close(&pair);
}

/* ---- Handler lock -------------------------------------------------------- */

struct reader {
	struct rdma_event_channel *channel;
	int done[2];
};

static void *read_event(void *argument)
{
	struct reader *reader = argument;
	struct rdma_cm_event *event;

	CHECK_OK(rdma_get_cm_event(reader->channel, &event));
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_EQ(write(reader->done[1], "x", 1), 1);
	return NULL;
}

TEST(lock, "other threads get no event of an id while it is locked")
{
	lock_fn *lock = library_symbol("rdma_lock_handler");
	lock_fn *unlock = library_symbol("rdma_unlock_handler");
	struct reader reader = { .channel = make_channel() };
	struct rdma_cm_id *id = make_id(reader.channel, RDMA_PS_TCP);
	struct pollfd done;
	pthread_t thread;

	CHECK_OK(pipe(reader.done));
	done = (struct pollfd){ .fd = reader.done[0], .events = POLLIN };
	lock(id);
	lock(id);
	CHECK_OK(pthread_create(&thread, NULL, read_event, &reader));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	/* The case is that nothing happens meanwhile. */
	CHECK_EQ(poll(&done, 1, 300), 0);
	unlock(id);
	CHECK_EQ(poll(&done, 1, 300), 0);
	unlock(id);
	CHECK_EQ(poll(&done, 1, EVENT_TIMEOUT * 1000), 1);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(reader.channel);
}

TEST(lock_self, "the thread that has the lock gets events")
{
	lock_fn *lock = library_symbol("rdma_lock_handler");
	lock_fn *unlock = library_symbol("rdma_unlock_handler");
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	lock(id);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	unlock(id);
	unlock(id);
	lock(NULL);
	unlock(NULL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(lock_destroy, "destroying a locked id lets its last event go")
{
	lock_fn *lock = library_symbol("rdma_lock_handler");
	struct reader reader = { .channel = make_channel() };
	struct rdma_cm_id *id = make_id(reader.channel, RDMA_PS_TCP);
	struct pollfd pending = { .fd = reader.channel->fd, .events = POLLIN };
	pthread_t thread;

	CHECK_OK(pipe(reader.done));
	lock(id);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK(wait_readable(reader.channel));
	CHECK_OK(pthread_create(&thread, NULL, read_event, &reader));
	/* Once the kernel has handed out the event, the reader waits for the lock. */
	while (poll(&pending, 1, 0) == 1)
		sched_yield();
	CHECK_OK(rdma_destroy_id(id));
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(reader.channel);
}

/* ---- Defaults of the environment ------------------------------------------ */

TEST(defaults, "the environment sets timers and type of service of every id")
{
	struct pair pair;

	library_symbol("rdma_set_min_rnr_timer");
	CHECK_OK(setenv("RDMACM_TOS", "0x20", 1));
	CHECK_OK(setenv("RDMACM_ACK_TIMEOUT", "20", 1));
	CHECK_OK(setenv("RDMACM_MIN_RNR_TIMER", "9", 1));
	CHECK_OK(setenv("RDMACM_RESOLVE_TIMEOUT", "5000", 1));
	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_EQ(pair.client->route.path_rec->traffic_class, 0x20);
	CHECK_EQ(ack_timeout(pair.client->qp), 20);
	CHECK_EQ(ack_timeout(pair.server->qp), 20);
	CHECK_EQ(rnr_timer(pair.client->qp), 9);
	CHECK_EQ(rnr_timer(pair.server->qp), 9);
	send_message(pair.client, pair.server, "by default");
	pair_close(&pair);
}

TEST(defaults_invalid, "invalid values in the environment are ignored")
{
	struct pair pair;

	library_symbol("rdma_set_min_rnr_timer");
	CHECK_OK(setenv("RDMACM_TOS", "256", 1));
	CHECK_OK(setenv("RDMACM_ACK_TIMEOUT", "long", 1));
	CHECK_OK(setenv("RDMACM_MIN_RNR_TIMER", "32", 1));
	CHECK_OK(setenv("RDMACM_RESOLVE_TIMEOUT", "-1", 1));
	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_EQ(pair.client->route.path_rec->traffic_class, 0);
	CHECK_EQ(rnr_timer(pair.client->qp), 0);
	send_message(pair.client, pair.server, "unharmed");
	pair_close(&pair);
}

TEST(defaults_lose, "what the program sets goes before the environment")
{
	set_byte_fn *ack = library_symbol("rdma_set_ack_timeout");
	set_byte_fn *rnr = library_symbol("rdma_set_min_rnr_timer");
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	CHECK_OK(setenv("RDMACM_ACK_TIMEOUT", "20", 1));
	CHECK_OK(setenv("RDMACM_MIN_RNR_TIMER", "9", 1));
	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(ack(pair.client, 17));
	CHECK_OK(rnr(pair.client, 7));
	make_qp(pair.client);
	pair_route(&pair);
	pair_request(&pair, &param);
	make_qp(pair.server);
	pair_accept(&pair, &param);
	CHECK_EQ(ack_timeout(pair.client->qp), 17);
	CHECK_EQ(rnr_timer(pair.client->qp), 7);
	pair_close(&pair);
}
