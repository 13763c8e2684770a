/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Bad input: NULL, stale and foreign pointers, closed descriptors, calls in
 * the wrong order. A documented errno, no crash, and the id stays usable.
 */
#include "harness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

static char data[256];
static struct rdma_conn_param param = { .qp_num = 0x21, .retry_count = 7 };

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
}

/*
 * What every function that takes an id does with a pointer that is not one.
 * Each is a case of its own, because the original library may crash. Columns:
 * name, marks of the case with a destroyed and with a foreign id, call. What is
 * not marked the original survives thanks to what the memory happens to hold.
 */
#define FIX " [fix]"
#define FOR_EACH_ID_FUNCTION(CASE)                                                       \
	CASE(bind_addr, FIX, FIX, rdma_bind_addr(id, test_addr(0)))                      \
	CASE(resolve_addr, FIX, FIX, rdma_resolve_addr(id, NULL, test_addr(7000), 1000)) \
	CASE(resolve_route, FIX, FIX, rdma_resolve_route(id, 1000))                      \
	CASE(listen, FIX, FIX, rdma_listen(id, 1))                                       \
	CASE(connect, FIX, FIX, rdma_connect(id, &param))                                \
	CASE(connect_default, "", FIX, rdma_connect(id, NULL))                           \
	CASE(accept, FIX, FIX, rdma_accept(id, &param))                                  \
	CASE(accept_default, FIX, FIX, rdma_accept(id, NULL))                            \
	CASE(establish, FIX, FIX, rdma_establish(id))                                    \
	CASE(reject, FIX, FIX, rdma_reject(id, data, 4))                                 \
	CASE(reject_ece, FIX, FIX, rdma_reject_ece(id, data, 4))                         \
	CASE(disconnect, FIX, "", rdma_disconnect(id))                                   \
	CASE(notify, FIX, FIX, rdma_notify(id, IBV_EVENT_COMM_EST))                      \
	CASE(create_qp, FIX, FIX, create_qp(id))                                         \
	CASE(create_qp_ex, FIX, FIX, create_qp_ex(id))                                   \
	CASE(create_srq, FIX, FIX, create_srq(id))                                       \
	CASE(create_srq_ex, FIX, FIX, create_srq_ex(id))                                 \
	CASE(init_qp_attr, FIX, FIX, init_qp_attr(id))                                   \
	CASE(join_multicast, FIX, FIX, rdma_join_multicast(id, make_addr("239.1.2.3", 0), NULL)) \
	CASE(join_multicast_ex, FIX, FIX, join_multicast_ex(id))                         \
	CASE(leave_multicast, FIX, FIX, rdma_leave_multicast(id, make_addr("239.1.2.3", 0))) \
	CASE(set_option, FIX, FIX, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, data, 1)) \
	CASE(migrate_id, FIX, FIX, rdma_migrate_id(id, NULL))                            \
	CASE(get_request, "", FIX, get_request(id))                                      \
	CASE(destroy_id, FIX, FIX, rdma_destroy_id(id))

static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = qp_attr();

	return rdma_create_qp(id, NULL, &attr);
}

static int create_qp_ex(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr_ex attr = {
		.cap = qp_attr().cap,
		.qp_type = IBV_QPT_RC,
	};

	return rdma_create_qp_ex(id, &attr);
}

static int create_srq(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };

	return rdma_create_srq(id, NULL, &attr);
}

static int create_srq_ex(struct rdma_cm_id *id)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
	};

	return rdma_create_srq_ex(id, &attr);
}

static int init_qp_attr(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	return rdma_init_qp_attr(id, &attr, &mask);
}

static int join_multicast_ex(struct rdma_cm_id *id)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.addr = make_addr("239.1.2.3", 0),
	};

	return rdma_join_multicast_ex(id, &attr, NULL);
}

static int get_request(struct rdma_cm_id *id)
{
	struct rdma_cm_id *request;

	return rdma_get_request(id, &request);
}

#define NULL_CASE(function, stale_fix, foreign_fix, call)                      \
	TEST(null_##function, #function " of NULL gives EINVAL" FIX)           \
	{                                                                      \
		struct rdma_cm_id *id = NULL;                                  \
		CHECK_ERRNO(call, EINVAL);                                     \
	}
FOR_EACH_ID_FUNCTION(NULL_CASE)

static struct rdma_cm_id *stale_id(void)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	CHECK_OK(rdma_destroy_id(id));
	return id;
}

#define STALE_CASE(function, stale_fix, foreign_fix, call)                     \
	TEST(stale_##function, #function " of a destroyed id gives EINVAL" stale_fix) \
	{                                                                      \
		struct rdma_cm_id *id = stale_id();                            \
		CHECK_ERRNO(call, EINVAL);                                     \
	}
FOR_EACH_ID_FUNCTION(STALE_CASE)

/* Zeroed memory followed by a page that must not be touched. */
static void *foreign_memory(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	CHECK(pages != MAP_FAILED);
	CHECK_OK(mprotect(pages + page, page, PROT_NONE));
	return pages + page - size;
}

#define FOREIGN_CASE(function, stale_fix, foreign_fix, call)                   \
	TEST(foreign_##function, #function " of memory that is no id gives EINVAL" foreign_fix) \
	{                                                                      \
		struct rdma_cm_id *id = foreign_memory(sizeof(*id));           \
		CHECK_ERRNO(call, EINVAL);                                     \
	}
FOR_EACH_ID_FUNCTION(FOREIGN_CASE)

/* ---- Ids that are there, but not bound to a device ------------------------- */

#define FOR_EACH_UNBOUND_FUNCTION(CASE)                                        \
	CASE(connect_default, "46", "", rdma_connect(id, NULL))          \
	CASE(connect, "45", FIX, rdma_connect(id, &param))                \
	CASE(accept_default, "68", FIX, rdma_accept(id, NULL))            \
	CASE(accept, "68", FIX, rdma_accept(id, &param))                  \
	CASE(establish, "77", "", rdma_establish(id))                          \
	CASE(reject, "71", "", rdma_reject(id, NULL, 0))                       \
	CASE(reject_ece, "72", "", rdma_reject_ece(id, NULL, 0))               \
	CASE(disconnect, "81", "", rdma_disconnect(id))                        \
	CASE(notify, "69", "", rdma_notify(id, IBV_EVENT_COMM_EST))            \
	CASE(create_qp, "57", FIX, create_qp(id))                         \
	CASE(create_qp_ex, "57", FIX, create_qp_ex(id))                   \
	CASE(create_srq, "60", FIX, create_srq(id))                       \
	CASE(create_srq_ex, "60", FIX, create_srq_ex(id))                 \
	CASE(init_qp_attr, "63", "", init_qp_attr(id))                         \
	CASE(join_multicast, "87", "", rdma_join_multicast(id, make_addr("239.1.2.3", 0), NULL)) \
	CASE(join_multicast_ex, "87", "", join_multicast_ex(id))               \
	CASE(get_request, "99", "", get_request(id))

#define UNBOUND_CASE(function, number, fix, call)                              \
	TEST(unbound_##function, number " " #function " on an unbound id gives EINVAL" fix) \
	{                                                                      \
		struct rdma_event_channel *channel = make_channel();           \
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);         \
		CHECK_ERRNO(call, EINVAL);                                     \
		/* The id is as new. */                                        \
		CHECK_OK(rdma_bind_addr(id, test_addr(0)));                    \
		CHECK_OK(rdma_destroy_id(id));                                 \
		rdma_destroy_event_channel(channel);                           \
	}
FOR_EACH_UNBOUND_FUNCTION(UNBOUND_CASE)

TEST(unbound_leave, "91 leave_multicast of a group not joined gives EADDRNOTAVAIL")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_ERRNO(rdma_leave_multicast(id, make_addr("239.1.2.3", 0)), EADDRNOTAVAIL);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* ---- Functions without result ----------------------------------------------- */

TEST(null_destroy_qp, "destroy_qp(NULL) does nothing [fix]")
{
	rdma_destroy_qp(NULL);
}

TEST(null_destroy_srq, "destroy_srq(NULL) does nothing [fix]")
{
	rdma_destroy_srq(NULL);
}

TEST(null_destroy_ep, "destroy_ep(NULL) does nothing [fix]")
{
	rdma_destroy_ep(NULL);
}

TEST(null_destroy_channel, "destroy_event_channel(NULL) does nothing [fix]")
{
	rdma_destroy_event_channel(NULL);
}

TEST(null_free_devices, "free_devices(NULL) does nothing")
{
	rdma_free_devices(NULL);
}

TEST(no_qp, "59 destroy_qp of an id without QP does nothing [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(no_srq, "60 destroy_srq of an id without SRQ does nothing [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_srq(id);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(stale_destroy_qp, "destroy_qp, destroy_srq, destroy_ep of a destroyed id do nothing [fix]")
{
	struct rdma_cm_id *id = stale_id();

	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_ep(id);
}

TEST(ports_of_null, "get_src_port and get_dst_port of NULL give 0 [fix]")
{
	CHECK_EQ(rdma_get_src_port(NULL), 0);
	CHECK_EQ(rdma_get_dst_port(NULL), 0);
}

/* ---- Other NULL arguments ---------------------------------------------------- */

TEST(create_id_null, "create_id into NULL gives EINVAL [fix]")
{
	struct rdma_event_channel *channel = make_channel();

	CHECK_ERRNO(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
	rdma_destroy_event_channel(channel);
}

TEST(get_event_null, "get_cm_event of channel NULL gives EINVAL [fix]")
{
	struct rdma_cm_event *event;

	CHECK_ERRNO(rdma_get_cm_event(NULL, &event), EINVAL);
}

TEST(get_request_null, "get_request into NULL gives EINVAL [fix]", .timeout = 8)
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(rdma_get_request(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(create_ep_null, "create_ep with NULL gives EINVAL [fix]")
{
	struct rdma_addrinfo info = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *id;

	CHECK_ERRNO(rdma_create_ep(&id, NULL, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_ep(NULL, &info, NULL, NULL), EINVAL);
}

TEST(create_ep_empty, "create_ep without address gives EINVAL")
{
	struct rdma_addrinfo info = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_cm_id *id;

	CHECK_ERRNO(rdma_create_ep(&id, &info, NULL, NULL), EINVAL);
	info.ai_flags = RAI_PASSIVE;
	CHECK_ERRNO(rdma_create_ep(&id, &info, NULL, NULL), EINVAL);
}

TEST(create_ep_long, "create_ep with an address length beyond its family gives EINVAL [fix]")
{
	struct rdma_addrinfo info = {
		.ai_flags = RAI_PASSIVE,
		.ai_family = AF_INET,
		.ai_port_space = RDMA_PS_TCP,
		.ai_qp_type = IBV_QPT_RC,
		.ai_src_addr = test_addr(0),
		.ai_src_len = 4096,
	};
	struct rdma_cm_id *id;

	CHECK_ERRNO(rdma_create_ep(&id, &info, NULL, NULL), EINVAL);
}

TEST(getaddrinfo_null, "getaddrinfo into NULL gives EINVAL [fix]")
{
	char node[] = "127.0.0.1", service[] = "7471";

	CHECK_ERRNO(rdma_getaddrinfo(node, service, NULL, NULL), EINVAL);
}

static struct rdma_cm_id *bound_id(enum rdma_port_space ps)
{
	struct rdma_cm_id *id = make_id(make_channel(), ps);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	return id;
}

TEST(qp_attr_null, "create_qp and create_qp_ex without attributes give EINVAL [fix]")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_TCP);

	CHECK_ERRNO(rdma_create_qp(id, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_qp_ex(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(srq_attr_null, "create_srq and create_srq_ex without attributes give EINVAL [fix]")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_TCP);

	CHECK_ERRNO(rdma_create_srq(id, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_create_srq_ex(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(init_attr_null, "init_qp_attr without places gives EINVAL [fix]")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_TCP);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	CHECK_ERRNO(rdma_init_qp_attr(id, NULL, &mask), EINVAL);
	CHECK_ERRNO(rdma_init_qp_attr(id, &attr, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(multicast_null, "89 join and leave of address NULL give EINVAL")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_UDP);

	CHECK_ERRNO(rdma_join_multicast(id, NULL, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(leave_null, "91 leave_multicast of NULL gives EINVAL")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_UDP);

	CHECK_ERRNO(rdma_leave_multicast(id, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(join_ex_null, "89 join_multicast_ex without attributes gives EINVAL [fix]")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_UDP);

	CHECK_ERRNO(rdma_join_multicast_ex(id, NULL, NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(private_data_null, "connect with private data NULL but a length does not crash")
{
	struct rdma_conn_param strange = { .private_data_len = 20, .qp_num = 0x21 };
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pair_route(&pair);
	CHECK(rdma_connect(pair.client, &strange) == 0 || errno == EINVAL);
	pair_close(&pair);
}

/* ---- Stale objects ----------------------------------------------------------- */

TEST(destroy_twice, "destroy_id of a bound id twice gives EINVAL [fix]")
{
	struct rdma_cm_id *id = bound_id(RDMA_PS_TCP);

	CHECK_OK(rdma_destroy_id(id));
	CHECK_ERRNO(rdma_destroy_id(id), EINVAL);
}

TEST(event_after_destroy, "event acknowledged after its id was destroyed gives EINVAL [fix]")
{
	struct pair pair;
	struct rdma_cm_event *event;

	pair_listen(&pair, RDMA_PS_TCP);
	pair.client = make_id(pair.client_channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(pair.client, NULL, test_addr(7000), 5000));
	event = expect_event(pair.client_channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(pair.client));
	pair.client = NULL;
	CHECK_ERRNO(rdma_ack_cm_event(event), EINVAL);
	pair_close(&pair);
}

TEST(channel_destroyed, "calls on an id whose channel was destroyed fail, destroy_id succeeds [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	rdma_destroy_event_channel(channel);
	CHECK(rdma_bind_addr(id, test_addr(0)) == -1 && errno != 0);
	CHECK(rdma_listen(id, 1) == -1 && errno != 0);
	CHECK_OK(rdma_destroy_id(id));
}

/* ---- Closed and exchanged descriptors ------------------------------------------ */

#define CLOSED_CASE(function, call)                                            \
	TEST(closed_##function, #function " on a closed descriptor gives EBADF") \
	{                                                                      \
		struct rdma_cm_id *id = make_id(make_channel(), RDMA_PS_TCP);  \
		CHECK_OK(close(id->channel->fd));                              \
		CHECK_ERRNO(call, EBADF);                                      \
	}
CLOSED_CASE(bind_addr, rdma_bind_addr(id, test_addr(0)))
CLOSED_CASE(resolve_addr, rdma_resolve_addr(id, NULL, test_addr(7000), 1000))
CLOSED_CASE(listen, rdma_listen(id, 1))
CLOSED_CASE(set_option, rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, data, 1))
CLOSED_CASE(reject, rdma_reject(id, NULL, 0))
CLOSED_CASE(notify, rdma_notify(id, IBV_EVENT_COMM_EST))
CLOSED_CASE(establish, rdma_establish(id))

TEST(other_channel, "an id used through the descriptor of another channel gives EINVAL")
{
	struct rdma_event_channel *right = make_channel(), *wrong = make_channel();
	struct rdma_cm_id *id = make_id(right, RDMA_PS_TCP);

	id->channel = wrong;
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(0)), EINVAL);
	id->channel = right;
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(right);
	rdma_destroy_event_channel(wrong);
}

/* ---- Wrong order ---------------------------------------------------------------- */

TEST(order_active, "accept, reject, establish, notify on an active id before connect give EINVAL")
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_ERRNO(rdma_accept(pair.client, &param), EINVAL);
	CHECK_ERRNO(rdma_reject(pair.client, NULL, 0), EINVAL);
	CHECK_ERRNO(rdma_establish(pair.client), EINVAL);
	CHECK_ERRNO(rdma_notify(pair.client, IBV_EVENT_COMM_EST), EINVAL);
	CHECK_ERRNO(rdma_disconnect(pair.client), EINVAL);
	CHECK_ERRNO(rdma_listen(pair.client, 1), EINVAL);
	CHECK_ERRNO(rdma_bind_addr(pair.client, test_addr(0)), EINVAL);
	/* And still it connects. */
	pair_route(&pair);
	pair_request(&pair, &param);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), 28);
	pair_close(&pair);
}

TEST(order_listener, "connect, accept, resolve_route on a listener give EINVAL")
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_connect(pair.listener, &param), EINVAL);
	CHECK_ERRNO(rdma_accept(pair.listener, &param), EINVAL);
	CHECK_ERRNO(rdma_resolve_route(pair.listener, 1000), EINVAL);
	/* And still it listens. */
	pair_resolve(&pair);
	pair_route(&pair);
	pair_request(&pair, &param);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), 28);
	pair_close(&pair);
}

TEST(order_passive, "bind, resolve, listen, connect on a requested id give EINVAL")
{
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	pair_route(&pair);
	pair_request(&pair, &param);
	CHECK_ERRNO(rdma_bind_addr(pair.server, test_addr(0)), EINVAL);
	CHECK_ERRNO(rdma_resolve_addr(pair.server, NULL, test_addr(7000), 1000), EINVAL);
	CHECK_ERRNO(rdma_resolve_route(pair.server, 1000), EINVAL);
	CHECK_ERRNO(rdma_listen(pair.server, 1), EINVAL);
	CHECK_ERRNO(rdma_connect(pair.server, &param), EINVAL);
	/* And still it can be refused. */
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), 28);
	pair_close(&pair);
}
