/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Synchronous ids (no channel given): calls that wait, with a peer in a thread. */
#include "pair.h"

#include <pthread.h>
#include <semaphore.h>

/* A synchronous listener whose thread serves one connection. */
struct server {
	struct rdma_cm_id *listener;
	void (*serve)(struct server *server);
	struct rdma_cm_id *id;
	pthread_t thread;
	sem_t confirmed; /* what the client has sent */
};

static void *server_main(void *argument)
{
	struct server *server = argument;

	server->serve(server);
	return NULL;
}

static void start_server(struct server *server, enum rdma_port_space ps,
			 void (*serve)(struct server *))
{
	server->serve = serve;
	server->id = NULL;
	CHECK_OK(sem_init(&server->confirmed, 0, 0));
	server->listener = make_id(NULL, ps);
	CHECK_OK(rdma_bind_addr(server->listener, test_addr(0)));
	CHECK_OK(rdma_listen(server->listener, 4));
	CHECK_OK(pthread_create(&server->thread, NULL, server_main, server));
}

static void end_server(struct server *server)
{
	CHECK_OK(pthread_join(server->thread, NULL));
	CHECK_OK(rdma_destroy_id(server->listener));
}

/* A synchronous client with its route resolved and a QP. */
static struct rdma_cm_id *make_client(struct server *server)
{
	struct rdma_cm_id *id = make_id(NULL, server->listener->ps);

	CHECK_OK(rdma_resolve_addr(id, NULL, rdma_get_local_addr(server->listener), 5000));
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	return id;
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
}

static void serve_one(struct server *server)
{
	struct rdma_conn_param param = usual_param();
	char buffer[32];
	struct ibv_mr *mr;

	CHECK_OK(rdma_get_request(server->listener, &server->id));
	CHECK(server->id->event);
	CHECK_EQ(server->id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(server->id->event->listen_id == server->listener);
	CHECK(server->id->channel);
	CHECK(server->id->channel != server->listener->channel);
	make_qp(server->id);
	mr = rdma_reg_msgs(server->id, buffer, sizeof(buffer));
	CHECK(mr);
	CHECK_OK(rdma_post_recv(server->id, buffer, buffer, sizeof(buffer), mr));
	CHECK_OK(rdma_accept(server->id, &param));
	CHECK_EQ(server->id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	recv_done(server->id, buffer);
	CHECK(strcmp(buffer, "synchronous") == 0);
	/* soft-RoCE confirms a message after it is received, and not any more once the
	   queue pair is in error: the client would send it again for ever. */
	CHECK_OK(sem_wait(&server->confirmed));
	CHECK_OK(rdma_disconnect(server->id));
	CHECK_EQ(server->id->event->event, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_OK(rdma_dereg_mr(mr));
	destroy(server->id);
}

TEST(connection, "103 connect, send, disconnect; the last event is in the id", .timeout = 60)
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();
	char buffer[32] = "synchronous";
	struct ibv_mr *mr;

	start_server(&server, RDMA_PS_TCP, serve_one);
	client = make_client(&server);
	CHECK_OK(rdma_connect(client, &param));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(client->event->status, 0);
	CHECK_EQ(client->event->param.conn.private_data_len, REP_DATA);
	mr = rdma_reg_msgs(client, buffer, sizeof(buffer));
	CHECK(mr);
	CHECK_OK(rdma_post_send(client, buffer, buffer, sizeof(buffer), mr, 0));
	send_done(client, buffer);
	CHECK_OK(sem_post(&server.confirmed));
	CHECK_OK(rdma_disconnect(client));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_OK(rdma_dereg_mr(mr));
	destroy(client);
	end_server(&server);
}

static void serve_reject(struct server *server)
{
	CHECK_OK(rdma_get_request(server->listener, &server->id));
	CHECK_OK(rdma_reject(server->id, "no", 3));
	CHECK_OK(rdma_destroy_id(server->id));
}

TEST(rejected, "104 rejected connect gives ECONNREFUSED, the event tells why")
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_TCP, serve_reject);
	client = make_client(&server);
	CHECK_ERRNO(rdma_connect(client, &param), ECONNREFUSED);
	CHECK(client->event);
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_REJECTED);
	CHECK_EQ(client->event->status, REASON_CONSUMER);
	CHECK(memcmp(client->event->param.conn.private_data, "no", 3) == 0);
	CHECK_EQ(qp_state(client->qp), IBV_QPS_ERR);
	destroy(client);
	end_server(&server);
}

TEST(refused, "104 connect without a listener gives ECONNREFUSED")
{
	struct rdma_cm_id *client = make_id(NULL, RDMA_PS_TCP);
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_resolve_addr(client, NULL, test_addr(7), 5000));
	CHECK_OK(rdma_resolve_route(client, 5000));
	make_qp(client);
	CHECK_ERRNO(rdma_connect(client, &param), ECONNREFUSED);
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_REJECTED);
	CHECK_EQ(client->event->status, 8);
	destroy(client);
}

static void serve_and_disconnect(struct server *server)
{
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_get_request(server->listener, &server->id));
	make_qp(server->id);
	CHECK_OK(rdma_accept(server->id, &param));
	CHECK_OK(rdma_disconnect(server->id));
	CHECK_EQ(server->id->event->event, RDMA_CM_EVENT_DISCONNECTED);
	destroy(server->id);
}

TEST(disconnect_twice, "105 second disconnect returns when the connection is gone",
     .timeout = 90)
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_TCP, serve_and_disconnect);
	client = make_client(&server);
	CHECK_OK(rdma_connect(client, &param));
	CHECK_OK(rdma_disconnect(client));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_OK(rdma_disconnect(client));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	destroy(client);
	end_server(&server);
}

TEST(dead_neighbour, "39 resolving a silent neighbour gives ETIMEDOUT, then works")
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	CHECK_ERRNO(rdma_resolve_addr(id, NULL, silent_addr(7), 500), ETIMEDOUT);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_OK(rdma_destroy_id(id));
}

static void serve_datagram(struct server *server)
{
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_get_request(server->listener, &server->id));
	make_qp(server->id);
	param.qp_num = server->id->qp->qp_num;
	/* Returns at once; the request was acknowledged on the way. */
	CHECK_OK(rdma_accept(server->id, &param));
	CHECK(!server->id->event);
	destroy(server->id);
}

TEST(datagram, "UD accept does not wait and acknowledges the request")
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	/* Versions without this function kept the request unacknowledged. */
	library_symbol("rdma_write_cm_event");
	start_server(&server, RDMA_PS_UDP, serve_datagram);
	client = make_client(&server);
	CHECK_OK(rdma_connect(client, &param));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(client->event->param.ud.qkey, RDMA_UDP_QKEY);
	end_server(&server);
	destroy(client);
}

TEST(datagram_rejected, "UD connect that is rejected")
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_UDP, serve_reject);
	client = make_client(&server);
	/* The positive status of UNREACHABLE becomes errno as it is. */
	CHECK_ERRNO(rdma_connect(client, &param), SIDR_REJECT);
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_UNREACHABLE);
	end_server(&server);
	destroy(client);
}

TEST(multicast, "joining a group waits for the result")
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_UDP);
	int context;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	CHECK_OK(rdma_join_multicast(id, make_addr("239.1.2.3", 0), &context));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(id->event->param.ud.private_data == &context);
	/* On the original, leaving waits for the join event, which the id holds. */
	destroy(id);
}

TEST(multicast_leave, "leaving a group does not wait for the event that the id holds [fix]",
     .timeout = 8)
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_UDP);
	int context;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	for (int i = 0; i < 2; i++) {
		CHECK_OK(rdma_join_multicast(id, make_addr("239.1.2.3", 0), &context));
		CHECK_OK(rdma_leave_multicast(id, make_addr("239.1.2.3", 0)));
		CHECK_EQ(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
		CHECK(id->event->param.ud.private_data == &context);
	}
	destroy(id);
}

static void *request(void *id)
{
	struct rdma_conn_param param = usual_param();

	CHECK_ERRNO(rdma_connect(id, &param), ECONNREFUSED);
	return NULL;
}

TEST(listener_first, "destroying a listener does not wait for a request that another id holds [fix]",
     .timeout = 8)
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP);
	struct rdma_cm_id *client = make_id(NULL, RDMA_PS_TCP), *id;
	pthread_t thread;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 1));
	CHECK_OK(rdma_resolve_addr(client, NULL, rdma_get_local_addr(listener), 5000));
	make_qp(client);
	CHECK_OK(rdma_resolve_route(client, 5000));
	CHECK_OK(pthread_create(&thread, NULL, request, client));
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK_OK(rdma_destroy_id(listener));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK_EQ(id->event->param.conn.private_data_len, REQ_DATA);
	CHECK_OK(rdma_ack_cm_event(id->event));
	id->event = NULL;
	CHECK_OK(rdma_reject(id, NULL, 0));
	CHECK_OK(rdma_destroy_id(id));
	CHECK_OK(pthread_join(thread, NULL));
	destroy(client);
}

TEST(user_event, "a USER event does not end a step of a synchronous id [fix]", .timeout = 8)
{
	write_cm_event_fn *write_cm_event = library_symbol("rdma_write_cm_event");
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	for (int status = -1; status <= 1; status++)
		CHECK_OK(write_cm_event(id, (enum rdma_cm_event_type)EVENT_USER, status, 1));
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	CHECK_OK(rdma_destroy_id(id));
}

/* ---- Disconnecting what is not connected ---------------------------------------- */

static void disconnect_refused(void)
{
	struct rdma_cm_id *client = make_id(NULL, RDMA_PS_TCP);
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_resolve_addr(client, NULL, test_addr(7), 5000));
	CHECK_OK(rdma_resolve_route(client, 5000));
	make_qp(client);
	CHECK_ERRNO(rdma_connect(client, &param), ECONNREFUSED);
	CHECK_OK(rdma_disconnect(client));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_REJECTED);
	destroy(client);
}

static void disconnect_listener(void)
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP);

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 1));
	CHECK_OK(rdma_disconnect(listener));
	CHECK_OK(rdma_destroy_id(listener));
}

static void serve_unaccepted(struct server *server)
{
	CHECK_OK(rdma_get_request(server->listener, &server->id));
	CHECK_OK(rdma_disconnect(server->id));
	CHECK_OK(rdma_reject(server->id, NULL, 0));
	CHECK_OK(rdma_disconnect(server->id));
	CHECK_OK(rdma_destroy_id(server->id));
}

/* A request, before and after it is rejected. */
static void disconnect_request(void)
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_TCP, serve_unaccepted);
	client = make_client(&server);
	CHECK_ERRNO(rdma_connect(client, &param), ECONNREFUSED);
	destroy(client);
	end_server(&server);
}

static void serve_one_datagram(struct server *server)
{
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_get_request(server->listener, &server->id));
	make_qp(server->id);
	param.qp_num = server->id->qp->qp_num;
	CHECK_OK(rdma_accept(server->id, &param));
}

static void disconnect_datagram(void)
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_UDP, serve_one_datagram);
	client = make_client(&server);
	CHECK_OK(rdma_connect(client, &param));
	CHECK_OK(rdma_disconnect(client));
	CHECK_OK(rdma_disconnect(server.id));
	destroy(server.id);
	end_server(&server);
	destroy(client);
}

static void disconnect_thrice(void)
{
	struct server server;
	struct rdma_cm_id *client;
	struct rdma_conn_param param = usual_param();

	start_server(&server, RDMA_PS_TCP, serve_and_disconnect);
	client = make_client(&server);
	CHECK_OK(rdma_connect(client, &param));
	for (int i = 0; i < 3; i++)
		CHECK_OK(rdma_disconnect(client));
	CHECK_EQ(client->event->event, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	destroy(client);
	end_server(&server);
}

TEST(disconnect_nothing, "disconnecting what is refused, listens, is requested, for datagrams or long over does not wait [fix]")
{
	disconnect_refused();
	disconnect_listener();
	disconnect_request();
	disconnect_datagram();
	disconnect_thrice();
}

/* ---- Events of other steps --------------------------------------------------- */

/* An asynchronous id whose next event has come and stays where it is. */
static struct rdma_cm_id *with_event_left(struct rdma_event_channel *channel,
					  enum rdma_port_space ps)
{
	struct rdma_cm_id *id = make_id(channel, ps);

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK(wait_readable(channel));
	return id;
}

TEST(left_route, "ROUTE_RESOLVED left at a migration does not end a connect [fix]", .timeout = 8)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = with_event_left(channel, RDMA_PS_TCP);
	struct rdma_conn_param param = usual_param();

	CHECK_OK(rdma_migrate_id(id, NULL));
	rdma_destroy_event_channel(channel);
	make_qp(id);
	CHECK_ERRNO(rdma_connect(id, &param), ECONNREFUSED);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
	/* The event was handled all the same. */
	CHECK_EQ(id->route.num_paths, 1);
	destroy(id);
}

TEST(left_established, "ESTABLISHED left at a migration does not end a disconnect [fix]",
     .timeout = 8)
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	CHECK_OK(rdma_accept(pair.server, &param));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
	CHECK(wait_readable(pair.server_channel));
	CHECK_OK(rdma_ack_cm_event(pair.request));
	pair.request = NULL;
	CHECK_OK(rdma_migrate_id(pair.server, NULL));
	/* The peer need not do anything for the end of it. */
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_OK(rdma_disconnect(pair.server));
	CHECK_EQ(pair.server->event->event, RDMA_CM_EVENT_DISCONNECTED);
	pair_close(&pair);
}

TEST(left_group, "MULTICAST_JOIN left at a migration does not end the join of another group [fix]",
     .timeout = 8)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);
	int left, joined;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	CHECK_OK(rdma_join_multicast(id, make_addr("239.1.2.3", 0), &left));
	CHECK(wait_readable(channel));
	CHECK_OK(rdma_migrate_id(id, NULL));
	rdma_destroy_event_channel(channel);
	CHECK_OK(rdma_join_multicast(id, make_addr("239.1.2.4", 0), &joined));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(id->event->param.ud.private_data == &joined);
	CHECK_OK(rdma_leave_multicast(id, make_addr("239.1.2.3", 0)));
	CHECK_OK(rdma_leave_multicast(id, make_addr("239.1.2.4", 0)));
	destroy(id);
}

TEST(left_request, "a request left at a migration is rejected while the listener resolves names [fix]",
     .timeout = 8)
{
	resolve_addrinfo_fn *resolve_addrinfo = library_symbol("rdma_resolve_addrinfo");
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_OK(rdma_connect(pair.client, &param));
	CHECK(wait_readable(pair.server_channel));
	CHECK_OK(rdma_migrate_id(pair.listener, NULL));
	CHECK_OK(resolve_addrinfo(pair.listener, "192.0.2.1", "7000", &hints));
	CHECK_EQ(pair.listener->event->event, EVENT_ADDRINFO_RESOLVED);
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	pair_close(&pair);
}

TEST(no_leak, "twenty synchronous connections leave no descriptors behind", .timeout = 120)
{
	unsigned int before = 0;

	for (int i = 0; i < 21; i++) {
		struct server server;
		struct rdma_cm_id *client;
		struct rdma_conn_param param = usual_param();

		start_server(&server, RDMA_PS_TCP, serve_and_disconnect);
		client = make_client(&server);
		CHECK_OK(rdma_connect(client, &param));
		CHECK_OK(rdma_disconnect(client));
		destroy(client);
		end_server(&server);
		if (i == 0)
			before = open_descriptors();
	}
	CHECK_EQ(open_descriptors(), before);
}
