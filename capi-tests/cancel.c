/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that end inside a call: pthread_cancel(3) of one that waits, as
 * programs do that stop their event or accept thread so. What is asserted is
 * that the thread ends, and that everything it had to do with can be used and
 * destroyed afterwards.
 */
#include "pair.h"

#include <pthread.h>
#include <unistd.h>

/* Starts a thread, cancels it while it waits, and sees it end. */
static void cancel_waiting(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	void *result;

	CHECK_OK(pthread_create(&thread, NULL, run, argument));
	await_sleep();
	CHECK_OK(pthread_cancel(thread));
	CHECK_OK(pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

static void *get_event(void *channel)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
	return NULL;
}

TEST(event_thread, "a thread cancelled in get_cm_event: its channel and ids go on")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	for (int i = 0; i < 3; i++)
		cancel_waiting(get_event, channel);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void *get_request(void *listener)
{
	struct rdma_cm_id *id;

	rdma_get_request(listener, &id);
	return NULL;
}

TEST(accept_thread, "a thread cancelled in get_request: the listener serves on, and can be destroyed")
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP), *id;
	struct pair pair;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 4));
	cancel_waiting(get_request, listener);
	pair_connect_to(&pair, ntohs(rdma_get_src_port(listener)), RDMA_PS_TCP);
	CHECK_OK(rdma_get_request(listener, &id));
	CHECK_OK(rdma_reject(id, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	CHECK_OK(rdma_destroy_id(id));
	cancel_waiting(get_request, listener);
	CHECK_OK(rdma_destroy_id(listener));
	rdma_destroy_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.client));
	rdma_destroy_event_channel(pair.client_channel);
}

static void *resolve_silent(void *id)
{
	rdma_resolve_addr(id, NULL, silent_addr(7), 60000);
	return NULL;
}

TEST(resolving_thread, "a thread cancelled in a synchronous resolve_addr: the id can be destroyed")
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);

	cancel_waiting(resolve_silent, id);
	CHECK_OK(rdma_destroy_id(id));
}

static void *connect_unanswered(void *id)
{
	struct rdma_conn_param param = usual_param();

	rdma_connect(id, &param);
	return NULL;
}

TEST(connecting_thread, "a thread cancelled in a synchronous connect: the id can be destroyed")
{
	struct rdma_cm_id *id = make_id(NULL, RDMA_PS_TCP);
	struct pair pair = { 0 };

	pair_listen(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, rdma_get_local_addr(pair.listener), 5000));
	make_qp(id);
	CHECK_OK(rdma_resolve_route(id, 5000));
	cancel_waiting(connect_unanswered, id);
	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
	pair_close(&pair);
}

/* ---- Cancelled before a call that does not wait ------------------------------- */

static void *cancelled_steps(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_cm_id *id;

	CHECK_OK(pthread_cancel(pthread_self()));
	CHECK_OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST(calls, "calls that do not wait are no cancellation points: none is left half done [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	unsigned int before;
	pthread_t thread;
	void *result;

	/* Opening the device is libibverbs' doing. */
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	before = open_descriptors();
	for (int i = 0; i < 3; i++) {
		CHECK_OK(pthread_create(&thread, NULL, cancelled_steps, channel));
		CHECK_OK(pthread_join(thread, &result));
		CHECK(!result);
	}
	CHECK_EQ(open_descriptors(), before);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}
