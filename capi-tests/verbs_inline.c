/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The inline functions of rdma_verbs.h, with data moved by each. */
#include "pair.h"

#include <pthread.h>

enum { SIZE = 256, INLINE_SIZE = 32 };

/* A connected pair whose QPs take two SGEs and inline data, and its buffers. */
struct link {
	struct pair pair;
	unsigned char local[SIZE];  /* of the client */
	unsigned char remote[SIZE]; /* of the server */
	struct ibv_mr *local_mr;
};

static void make_link_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = usual_qp(id);

	init.cap.max_send_sge = init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = INLINE_SIZE;
	CHECK_OK(rdma_create_qp(id, NULL, &init));
}

static void open_link(struct link *link)
{
	struct rdma_conn_param param = usual_param();
	struct pair *pair = &link->pair;

	pair_listen(pair, RDMA_PS_TCP);
	pair_resolve(pair);
	make_link_qp(pair->client);
	pair_route(pair);
	pair_request(pair, &param);
	make_link_qp(pair->server);
	pair_accept(pair, &param);
	fill(link->local, SIZE, 1);
	memset(link->remote, 0, SIZE);
	link->local_mr = rdma_reg_msgs(pair->client, link->local, SIZE);
	CHECK(link->local_mr);
}

static void close_link(struct link *link)
{
	CHECK_OK(rdma_dereg_mr(link->local_mr));
	pair_close(&link->pair);
}

TEST(addresses, "rdma_get_local_addr and rdma_get_peer_addr name the id's storage")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	CHECK((void *)rdma_get_local_addr(pair.client) == (void *)&pair.client->route.addr.src_addr);
	CHECK((void *)rdma_get_peer_addr(pair.client) == (void *)&pair.client->route.addr.dst_addr);
	pair_close(&pair);
}

TEST(registration, "registered memory belongs to the id's PD")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	char buffer[SIZE];
	struct ibv_mr *mrs[3];

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	mrs[0] = rdma_reg_msgs(id, buffer, sizeof(buffer));
	mrs[1] = rdma_reg_read(id, buffer, sizeof(buffer));
	mrs[2] = rdma_reg_write(id, buffer, sizeof(buffer));
	for (int i = 0; i < 3; i++) {
		CHECK(mrs[i]);
		CHECK(mrs[i]->pd == id->pd);
		CHECK(mrs[i]->context == id->verbs);
		CHECK(mrs[i]->addr == buffer);
		CHECK_EQ(mrs[i]->length, sizeof(buffer));
		CHECK_OK(rdma_dereg_mr(mrs[i]));
	}
	CHECK_NULL_ERRNO(rdma_reg_msgs(id, (void *)4096, sizeof(buffer)), EFAULT);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(post_send, "rdma_post_send and rdma_post_recv")
{
	struct link link;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	open_link(&link);
	mr = rdma_reg_msgs(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_recv(link.pair.server, &link, link.remote, SIZE, mr));
	CHECK_OK(rdma_post_send(link.pair.client, mr, link.local, 100, link.local_mr, 0));
	CHECK_EQ(send_done(link.pair.client, mr).opcode, IBV_WC_SEND);
	wc = recv_done(link.pair.server, &link);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, 100);
	CHECK_EQ(wc.qp_num, link.pair.server->qp->qp_num);
	CHECK(memcmp(link.local, link.remote, 100) == 0);
	CHECK(all_zero(link.remote + 100, SIZE - 100));
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(send_inline, "rdma_post_send without a memory region sends inline data")
{
	struct link link;
	struct ibv_mr *mr;

	open_link(&link);
	mr = rdma_reg_msgs(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_recv(link.pair.server, NULL, link.remote, SIZE, mr));
	CHECK_OK(rdma_post_send(link.pair.client, NULL, link.local, INLINE_SIZE, NULL,
				IBV_SEND_INLINE));
	send_done(link.pair.client, NULL);
	CHECK_EQ(recv_done(link.pair.server, NULL).byte_len, INLINE_SIZE);
	CHECK(memcmp(link.local, link.remote, INLINE_SIZE) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(vectors, "rdma_post_sendv and rdma_post_recvv gather and scatter")
{
	struct link link;
	struct ibv_mr *mr;
	struct ibv_sge out[2], in[2];

	open_link(&link);
	mr = rdma_reg_msgs(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	in[0] = (struct ibv_sge){ (uintptr_t)link.remote + 200, 16, mr->lkey };
	in[1] = (struct ibv_sge){ (uintptr_t)link.remote, 48, mr->lkey };
	out[0] = (struct ibv_sge){ (uintptr_t)link.local + 128, 32, link.local_mr->lkey };
	out[1] = (struct ibv_sge){ (uintptr_t)link.local, 32, link.local_mr->lkey };
	CHECK_OK(rdma_post_recvv(link.pair.server, in, in, 2));
	CHECK_OK(rdma_post_sendv(link.pair.client, out, out, 2, 0));
	send_done(link.pair.client, out);
	CHECK_EQ(recv_done(link.pair.server, in).byte_len, 64);
	CHECK(memcmp(link.remote + 200, link.local + 128, 16) == 0);
	CHECK(memcmp(link.remote, link.local + 128 + 16, 16) == 0);
	CHECK(memcmp(link.remote + 16, link.local, 32) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(post_read, "rdma_post_read and rdma_post_readv fetch remote memory")
{
	struct link link;
	struct ibv_mr *mr;
	struct ibv_sge sges[2];

	open_link(&link);
	fill(link.remote, SIZE, 99);
	mr = rdma_reg_read(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_read(link.pair.client, &link, link.local, 64, link.local_mr, 0,
				(uintptr_t)link.remote + 32, mr->rkey));
	CHECK_EQ(send_done(link.pair.client, &link).opcode, IBV_WC_RDMA_READ);
	CHECK(memcmp(link.local, link.remote + 32, 64) == 0);

	sges[0] = (struct ibv_sge){ (uintptr_t)link.local + 200, 8, link.local_mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)link.local + 100, 8, link.local_mr->lkey };
	CHECK_OK(rdma_post_readv(link.pair.client, sges, sges, 2, 0, (uintptr_t)link.remote,
				 mr->rkey));
	CHECK_EQ(send_done(link.pair.client, sges).opcode, IBV_WC_RDMA_READ);
	CHECK(memcmp(link.local + 200, link.remote, 8) == 0);
	CHECK(memcmp(link.local + 100, link.remote + 8, 8) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(post_write, "rdma_post_write and rdma_post_writev change remote memory")
{
	struct link link;
	struct ibv_mr *mr;
	struct ibv_sge sges[2];

	open_link(&link);
	mr = rdma_reg_write(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_write(link.pair.client, &link, link.local, 64, link.local_mr, 0,
				 (uintptr_t)link.remote + 32, mr->rkey));
	CHECK_EQ(send_done(link.pair.client, &link).opcode, IBV_WC_RDMA_WRITE);
	CHECK(memcmp(link.remote + 32, link.local, 64) == 0);
	CHECK(all_zero(link.remote, 32));
	CHECK(all_zero(link.remote + 96, SIZE - 96));

	sges[0] = (struct ibv_sge){ (uintptr_t)link.local + 200, 8, link.local_mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)link.local + 100, 8, link.local_mr->lkey };
	CHECK_OK(rdma_post_writev(link.pair.client, sges, sges, 2, 0, (uintptr_t)link.remote,
				  mr->rkey));
	CHECK_EQ(send_done(link.pair.client, sges).opcode, IBV_WC_RDMA_WRITE);
	CHECK(memcmp(link.remote, link.local + 200, 8) == 0);
	CHECK(memcmp(link.remote + 8, link.local + 100, 8) == 0);

	/* Without a memory region the data go inline. */
	CHECK_OK(rdma_post_write(link.pair.client, NULL, link.local, INLINE_SIZE, NULL,
				 IBV_SEND_INLINE, (uintptr_t)link.remote + 128, mr->rkey));
	send_done(link.pair.client, NULL);
	CHECK(memcmp(link.remote + 128, link.local, INLINE_SIZE) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

/* The one completion with an error of a request that the peer refuses. */
static void check_refused(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	CHECK_EQ(rdma_get_send_comp(id, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
}

TEST(write_denied, "memory of rdma_reg_read cannot be written")
{
	struct link link;
	struct ibv_mr *mr;

	open_link(&link);
	mr = rdma_reg_read(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_write(link.pair.client, NULL, link.local, 8, link.local_mr, 0,
				 (uintptr_t)link.remote, mr->rkey));
	check_refused(link.pair.client);
	CHECK(all_zero(link.remote, SIZE));
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(read_denied, "memory of rdma_reg_write cannot be read")
{
	struct link link;
	struct ibv_mr *mr;

	open_link(&link);
	mr = rdma_reg_write(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	CHECK_OK(rdma_post_read(link.pair.client, NULL, link.local, 8, link.local_mr, 0,
				(uintptr_t)link.remote, mr->rkey));
	check_refused(link.pair.client);
	CHECK_OK(rdma_dereg_mr(mr));
	close_link(&link);
}

TEST(full_queue, "posting to a full queue fails with a positive errno")
{
	struct pair pair;
	struct ibv_mr *mr;
	char buffer[SIZE];
	int result = 0;

	pair_connect(&pair, RDMA_PS_TCP);
	mr = rdma_reg_msgs(pair.server, buffer, sizeof(buffer));
	CHECK(mr);
	for (int i = 0; i < 10000 && !result; i++) {
		errno = 0;
		result = rdma_post_recv(pair.server, buffer, buffer, sizeof(buffer), mr);
	}
	CHECK_EQ(result, -1);
	CHECK_EQ(errno, ENOMEM);
	rdma_destroy_qp(pair.server);
	CHECK_OK(rdma_dereg_mr(mr));
	pair_close(&pair);
}

static void *post_later(void *argument)
{
	struct link *link = argument;

	CHECK_OK(rdma_post_send(link->pair.client, link, link->local, 16, link->local_mr, 0));
	send_done(link->pair.client, link);
	return NULL;
}

TEST(blocking, "rdma_get_recv_comp sleeps until a message arrives")
{
	struct link link;
	struct ibv_mr *mr;
	pthread_t thread;

	open_link(&link);
	mr = rdma_reg_msgs(link.pair.server, link.remote, SIZE);
	CHECK(mr);
	for (int i = 0; i < 20; i++) {
		CHECK_OK(rdma_post_recv(link.pair.server, mr, link.remote, SIZE, mr));
		CHECK_OK(pthread_create(&thread, NULL, post_later, &link));
		CHECK_EQ(recv_done(link.pair.server, mr).byte_len, 16);
		CHECK_OK(pthread_join(thread, NULL));
	}
	CHECK_OK(rdma_dereg_mr(mr));
	/* All CQ events are acknowledged, else this would hang. */
	close_link(&link);
}
