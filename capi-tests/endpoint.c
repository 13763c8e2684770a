/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Endpoints: rdma_create_ep from address information, rdma_get_request. */
#include "pair.h"

#include <pthread.h>

/* Address information for the test address, made by hand. */
struct info {
	struct rdma_addrinfo rai;
	struct sockaddr_storage addr;
};

static struct rdma_addrinfo *make_info(struct info *info, int flags, struct sockaddr *addr,
				       enum rdma_port_space ps)
{
	memset(info, 0, sizeof(*info));
	memcpy(&info->addr, addr, addr_length(addr));
	info->rai.ai_flags = flags;
	info->rai.ai_family = addr->sa_family;
	info->rai.ai_port_space = (int)ps;
	info->rai.ai_qp_type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	if (flags & RAI_PASSIVE) {
		info->rai.ai_src_addr = (struct sockaddr *)&info->addr;
		info->rai.ai_src_len = addr_length(addr);
	} else {
		info->rai.ai_dst_addr = (struct sockaddr *)&info->addr;
		info->rai.ai_dst_len = addr_length(addr);
	}
	return &info->rai;
}

static struct ibv_qp_init_attr ep_attr(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_all = 1,
	};
}

static struct rdma_cm_id *make_listener(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *listener = NULL;
	struct info info;

	CHECK_OK(rdma_create_ep(&listener,
				make_info(&info, RAI_PASSIVE, test_addr(0), RDMA_PS_TCP), pd,
				attr));
	CHECK_OK(rdma_listen(listener, 4));
	return listener;
}

/* Connects to the listener from a thread, as a synchronous client. */
struct client {
	struct sockaddr *addr;
	int result;
	int error;
	int status;
	pthread_t thread;
};

static void *client_main(void *argument)
{
	struct client *client = argument;
	struct rdma_conn_param param = usual_param();
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *id = NULL;
	struct info info;

	CHECK_OK(rdma_create_ep(&id, make_info(&info, 0, client->addr, RDMA_PS_TCP), NULL, &attr));
	client->result = rdma_connect(id, &param);
	client->error = errno;
	client->status = id->event ? id->event->status : 0;
	if (!client->result)
		CHECK_OK(rdma_disconnect(id));
	rdma_destroy_ep(id);
	return NULL;
}

static void start_client(struct client *client, struct rdma_cm_id *listener)
{
	client->addr = rdma_get_local_addr(listener);
	CHECK_OK(pthread_create(&client->thread, NULL, client_main, client));
}

static void end_client(struct client *client)
{
	CHECK_OK(pthread_join(client->thread, NULL));
}

TEST(passive, "passive endpoint is bound, synchronous and has no QP")
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *id = NULL;
	struct info info;

	CHECK_OK(rdma_create_ep(&id, make_info(&info, RAI_PASSIVE, test_addr(0), RDMA_PS_TCP),
				NULL, &attr));
	CHECK(id);
	CHECK(id->channel);
	CHECK(id->verbs);
	CHECK(!id->qp);
	CHECK_EQ(id->ps, RDMA_PS_TCP);
	CHECK_EQ(id->qp_type, IBV_QPT_RC);
	CHECK(rdma_get_src_port(id) != 0);
	rdma_destroy_ep(id);
}

TEST(active, "103 active endpoint has its route, a QP and the last event")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct ibv_qp_init_attr attr = ep_attr();
	struct info info;

	CHECK_OK(rdma_create_ep(&id,
				make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP),
				NULL, &attr));
	CHECK(id->verbs);
	CHECK(id->qp);
	CHECK(id->send_cq);
	CHECK(id->recv_cq);
	CHECK_EQ(attr.qp_type, IBV_QPT_RC);
	CHECK_EQ(id->route.num_paths, 1);
	CHECK(id->event);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

TEST(without_qp, "active endpoint without QP attributes has no QP")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct info info;

	CHECK_OK(rdma_create_ep(&id,
				make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP),
				NULL, NULL));
	CHECK(!id->qp);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

TEST(own_pd, "active endpoint on a PD of the caller")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct ibv_qp_init_attr attr = ep_attr();
	struct ibv_pd *pd = ibv_alloc_pd(listener->verbs);
	struct info info;

	CHECK(pd);
	CHECK_OK(rdma_create_ep(&id,
				make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP), pd,
				&attr));
	CHECK(id->qp->pd == pd);
	CHECK(id->pd == pd);
	rdma_destroy_ep(id);
	CHECK_OK(ibv_dealloc_pd(pd));
	rdma_destroy_ep(listener);
}

TEST(request, "103 rdma_get_request makes the QP; accept, data, disconnect", .timeout = 60)
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *listener = make_listener(NULL, &attr), *id = NULL;
	struct rdma_conn_param param = usual_param();
	struct client client;

	start_client(&client, listener);
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK(id->qp);
	CHECK_EQ(id->qp->qp_type, IBV_QPT_RC);
	CHECK(id->send_cq);
	CHECK(id->recv_cq);
	CHECK(id->send_cq->cq_context == id);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(id->event->id == id);
	CHECK(id->event->listen_id == listener);
	CHECK_EQ(id->event->param.conn.private_data_len, REQ_DATA);
	CHECK_OK(rdma_accept(id, &param));
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_OK(rdma_disconnect(id));
	end_client(&client);
	CHECK_EQ(client.result, 0);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

TEST(request_twice, "a listener makes a QP with CQs of its own for each request", .timeout = 60)
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *listener = make_listener(NULL, &attr), *ids[2] = { NULL, NULL };
	struct rdma_conn_param param = usual_param();
	struct client clients[2];

	for (int i = 0; i < 2; i++) {
		start_client(&clients[i], listener);
		CHECK_OK(rdma_get_request(listener, &ids[i]));
		CHECK(ids[i]->qp);
	}
	CHECK(ids[0]->send_cq != ids[1]->send_cq);
	CHECK(ids[0]->recv_cq != ids[1]->recv_cq);
	for (int i = 0; i < 2; i++) {
		CHECK_OK(rdma_accept(ids[i], &param));
		CHECK_OK(rdma_disconnect(ids[i]));
		end_client(&clients[i]);
		CHECK_EQ(clients[i].result, 0);
		rdma_destroy_ep(ids[i]);
	}
	rdma_destroy_ep(listener);
}

TEST(request_pd, "the listener's PD is that of its requests' QPs", .timeout = 60)
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *listener, *id = NULL;
	struct rdma_conn_param param = usual_param();
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct ibv_pd *pd;
	struct client client;

	CHECK(devices);
	pd = ibv_alloc_pd(devices[0]);
	CHECK(pd);
	listener = make_listener(pd, &attr);
	CHECK(listener->pd == pd);
	start_client(&client, listener);
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK(id->qp->pd == pd);
	CHECK(id->pd == pd);
	CHECK_OK(rdma_accept(id, &param));
	CHECK_OK(rdma_disconnect(id));
	end_client(&client);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	CHECK_OK(ibv_dealloc_pd(pd));
	rdma_free_devices(devices);
}

TEST(request_no_attr, "without QP attributes the request has no QP", .timeout = 60)
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct client client;

	start_client(&client, listener);
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK(!id->qp);
	CHECK_OK(rdma_reject(id, NULL, 0));
	end_client(&client);
	CHECK_EQ(client.result, -1);
	CHECK_EQ(client.error, ECONNREFUSED);
	CHECK_EQ(client.status, REASON_CONSUMER);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

TEST(request_fails, "106 a request whose QP cannot be made is rejected at once [fix]")
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *listener, *id = NULL;
	struct client client;

	attr.cap.max_send_sge = 10000;
	listener = make_listener(NULL, &attr);
	start_client(&client, listener);
	CHECK_ERRNO(rdma_get_request(listener, &id), EINVAL);
	/* Its second attempt is refused as well, so the client must be done by now. */
	end_client(&client);
	CHECK_EQ(client.result, -1);
	CHECK_EQ(client.error, ECONNREFUSED);
	CHECK_EQ(client.status, REASON_CONSUMER);
	rdma_destroy_ep(listener);
}

TEST(active_fails, "endpoint whose QP cannot be made leaves nothing behind")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct ibv_qp_init_attr attr = ep_attr();
	unsigned int descriptors = open_descriptors();
	struct info info;

	attr.cap.max_send_sge = 10000;
	CHECK_ERRNO(rdma_create_ep(&id,
				   make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP),
				   NULL, &attr),
		    EINVAL);
	CHECK_EQ(open_descriptors(), descriptors);
	rdma_destroy_ep(listener);
}

TEST(unroutable, "endpoint to an unroutable address gives ENETUNREACH")
{
	struct rdma_cm_id *id = NULL;
	struct info info;
	unsigned int descriptors;

	rdma_destroy_event_channel(make_channel());
	descriptors = open_descriptors();
	CHECK_ERRNO(rdma_create_ep(&id,
				   make_info(&info, 0, make_addr("192.0.2.1", 7), RDMA_PS_TCP),
				   NULL, NULL),
		    ENETUNREACH);
	CHECK_EQ(open_descriptors(), descriptors);
}

TEST(in_use, "passive endpoint on an address in use gives EADDRINUSE")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct info info;

	CHECK_ERRNO(rdma_create_ep(&id,
				   make_info(&info, RAI_PASSIVE, rdma_get_local_addr(listener),
					     RDMA_PS_TCP),
				   NULL, NULL),
		    EADDRINUSE);
	rdma_destroy_ep(listener);
}

TEST(oversize, "an address longer than its family allows is refused [fix]")
{
	struct rdma_cm_id *id = NULL;
	struct info info;
	struct rdma_addrinfo *rai = make_info(&info, RAI_PASSIVE, test_addr(0), RDMA_PS_TCP);

	rai->ai_src_len = 100000;
	CHECK_ERRNO(rdma_create_ep(&id, rai, NULL, NULL), EINVAL);
}

TEST(connect_data, "49 saved header and private data above 255 bytes give EINVAL [fix]")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_conn_param param = usual_param();
	struct rdma_addrinfo *rai;
	unsigned char header[36], data[255];
	struct info info;

	fill(header, sizeof(header), 1);
	fill(data, sizeof(data), 2);
	rai = make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP);
	rai->ai_connect = header;
	rai->ai_connect_len = sizeof(header);
	CHECK_OK(rdma_create_ep(&id, rai, NULL, &attr));
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_connect(id, &param), EINVAL);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

/* Saved connect data: the server reads them in front of the caller's own. */
static void *connect_with_header(void *argument)
{
	struct rdma_cm_id *listener = argument, *id = NULL;
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_conn_param param = usual_param();
	struct rdma_addrinfo *rai;
	char header[] = "saved,";
	struct info info;

	rai = make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP);
	rai->ai_connect = header;
	rai->ai_connect_len = strlen(header);
	CHECK_OK(rdma_create_ep(&id, rai, NULL, &attr));
	memset(header, 'x', strlen(header)); /* a copy was taken */
	param.private_data = "given";
	param.private_data_len = 6;
	CHECK_ERRNO(rdma_connect(id, &param), ECONNREFUSED);
	rdma_destroy_ep(id);
	return NULL;
}

TEST(saved_data, "saved connect data precede the private data")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, connect_with_header, listener));
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK(memcmp(id->event->param.conn.private_data, "saved,given", 12) == 0);
	CHECK_OK(rdma_reject(id, NULL, 0));
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

TEST(migrated, "a migrated passive endpoint delivers requests as events")
{
	struct ibv_qp_init_attr attr = ep_attr();
	struct rdma_cm_id *listener = make_listener(NULL, &attr);
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_event *event;
	struct client client;

	CHECK_OK(rdma_migrate_id(listener, channel));
	CHECK(listener->channel == channel);
	start_client(&client, listener);
	event = expect_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, EVENT_TIMEOUT);
	CHECK(event->id->channel == channel);
	CHECK(!event->id->qp);
	CHECK_OK(rdma_reject(event->id, NULL, 0));
	end_client(&client);
	CHECK_EQ(client.error, ECONNREFUSED);
	struct rdma_cm_id *id = event->id;
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(channel);
}

TEST(srq, "rdma_destroy_ep destroys QP and SRQ of the endpoint")
{
	struct rdma_cm_id *listener = make_listener(NULL, NULL), *id = NULL;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = ep_attr();
	unsigned int descriptors;
	struct info info;

	descriptors = open_descriptors();
	CHECK_OK(rdma_create_ep(&id,
				make_info(&info, 0, rdma_get_local_addr(listener), RDMA_PS_TCP),
				NULL, NULL));
	CHECK_OK(rdma_create_srq(id, NULL, &srq));
	attr.qp_type = IBV_QPT_RC;
	CHECK_OK(rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp->srq == id->srq);
	rdma_destroy_ep(id);
	CHECK_EQ(open_descriptors(), descriptors);
	rdma_destroy_ep(listener);
}
