/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Signals that arrive while a call waits, with and without SA_RESTART. Only
 * rdma_get_cm_event may be ended by one.
 */
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t arrived;

static void count_signal(int number)
{
	(void)number;
	arrived++;
}

/* From now on a SIGALRM every so many microseconds, for whichever thread. */
static void start_storm(int flags, int microseconds)
{
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = flags };
	struct itimerval timer = {
		.it_interval.tv_usec = microseconds,
		.it_value.tv_usec = microseconds,
	};

	CHECK_OK(sigaction(SIGALRM, &action, NULL));
	CHECK_OK(setitimer(ITIMER_REAL, &timer, NULL));
}

static void end_storm(void)
{
	struct itimerval none = { .it_value.tv_usec = 0 };

	CHECK_OK(setitimer(ITIMER_REAL, &none, NULL));
}

/* Waits until this many more signals have arrived, wherever. */
static void outlast(int signals)
{
	sig_atomic_t goal = arrived + signals;

	while (arrived < goal)
		poll(NULL, 0, 5);
}

/* A thread that gets no signals, so that all go to the others. */
static void start_quiet(pthread_t *thread, void *(*run)(void *), void *argument)
{
	sigset_t alarm, before;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK_OK(pthread_sigmask(SIG_BLOCK, &alarm, &before));
	CHECK_OK(pthread_create(thread, NULL, run, argument));
	CHECK_OK(pthread_sigmask(SIG_SETMASK, &before, NULL));
}

/* ---- Waiting for an event --------------------------------------------------- */

TEST(interrupted, "get_cm_event without SA_RESTART ends with EINTR and loses nothing")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;

	start_storm(0, 50000);
	for (int i = 0; i < 5; i++)
		CHECK_ERRNO(rdma_get_cm_event(channel, &event), EINTR);
	end_storm();
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void *resolve_later(void *argument)
{
	struct rdma_cm_id *id = argument;

	outlast(10);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	return NULL;
}

TEST(restarted, "get_cm_event with SA_RESTART waits on")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;
	pthread_t thread;

	start_quiet(&thread, resolve_later, id);
	start_storm(SA_RESTART, 10000);
	CHECK_OK(rdma_get_cm_event(channel, &event));
	end_storm();
	CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(event->status, 0);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* ---- Synchronous calls -------------------------------------------------------- */

enum { ROUNDS = 8 };

static void *synchronous_server(void *argument)
{
	struct rdma_cm_id *listener = argument, *id;
	struct rdma_conn_param param = usual_param();

	for (int i = 0; i < ROUNDS; i++) {
		CHECK_OK(rdma_get_request(listener, &id));
		make_qp(id);
		CHECK_OK(rdma_accept(id, &param));
		CHECK_OK(rdma_disconnect(id));
		rdma_destroy_ep(id);
	}
	return NULL;
}

static void synchronous_connections(int flags)
{
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP), *id;
	struct rdma_conn_param param = usual_param();
	pthread_t server;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, ROUNDS));
	start_storm(flags, 3000);
	CHECK_OK(pthread_create(&server, NULL, synchronous_server, listener));
	for (int i = 0; i < ROUNDS; i++) {
		id = make_id(NULL, RDMA_PS_TCP);
		CHECK_OK(rdma_resolve_addr(id, NULL, rdma_get_local_addr(listener), 10000));
		make_qp(id);
		CHECK_OK(rdma_resolve_route(id, 10000));
		CHECK_OK(rdma_connect(id, &param));
		CHECK_OK(rdma_disconnect(id));
		rdma_destroy_ep(id);
	}
	CHECK_OK(pthread_join(server, NULL));
	end_storm();
	CHECK(arrived > 0);
	CHECK_OK(rdma_destroy_id(listener));
}

TEST(synchronous_restart, "synchronous connections in a storm of signals with SA_RESTART",
     .timeout = 90)
{
	synchronous_connections(SA_RESTART);
}

TEST(synchronous_no_restart, "synchronous connections in a storm of signals without SA_RESTART [race]",
     .timeout = 90)
{
	synchronous_connections(0);
}

/* ---- Waiting for an acknowledgement ----------------------------------------------- */

static void *acknowledge_later(void *argument)
{
	outlast(20);
	CHECK_OK(rdma_ack_cm_event(argument));
	return NULL;
}

TEST(destruction, "destroy_id waits for the acknowledgement whatever signals come")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_event *event;
	sig_atomic_t before;
	pthread_t thread;

	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	start_storm(0, 10000);
	before = arrived;
	start_quiet(&thread, acknowledge_later, event);
	CHECK_OK(rdma_destroy_id(id));
	CHECK(arrived >= before + 20);
	end_storm();
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(channel);
}
