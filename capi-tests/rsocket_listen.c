/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What else may be done while the library answers a connection request, which
 * takes as long as the device needs for a queue pair: here as long as a case
 * wants.
 */
#include "rsocket_pair.h"

#include <dlfcn.h>
#include <pthread.h>

enum { PORT = 7781, WAIT = 10000 };

typedef int modify_qp_fn(struct ibv_qp *, struct ibv_qp_attr *, int);

/* Closed by the case until it opens it. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
/* The case's own threads, once known. */
static _Thread_local bool own;
/* Readable once somebody stands at the gate. */
static int arrived[2];

/* In place of libibverbs'. What the case's own threads make is not held up. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	modify_qp_fn *original = (modify_qp_fn *)dlsym(RTLD_NEXT, "ibv_modify_qp");

	if (!own) {
		CHECK_EQ(write(arrived[1], "x", 1), 1);
		pthread_mutex_lock(&gate);
		pthread_mutex_unlock(&gate);
	}
	return original(qp, attr, mask);
}

static void *connect_client(void *argument)
{
	own = true;
	return (void *)(intptr_t)connect_to(argument);
}

TEST(answering, "a slow answer to a connection request holds up no other call [race]", .timeout = 40)
{
	struct sockaddr *addr = test_addr(PORT);
	struct ends other;
	int listener, server;
	pthread_t thread;
	void *connected;
	char byte;

	own = true;
	CHECK_OK(pipe(arrived));
	other = make_ends(test_addr(PORT + 1));
	listener = listen_on(addr, 8);
	CHECK_OK(rfcntl(listener, F_SETFL, O_NONBLOCK));
	while (poll_one(arrived[0], POLLIN, 0))
		CHECK_EQ(read(arrived[0], &byte, 1), 1);
	pthread_mutex_lock(&gate);
	CHECK_OK(pthread_create(&thread, NULL, connect_client, addr));
	CHECK_EQ(read(arrived[0], &byte, 1), 1);

	CHECK_EQ(poll_one(listener, POLLIN, 0), 0);
	CHECK_ERRNO(raccept(listener, NULL, NULL), EAGAIN);
	CHECK_OK(rlisten(listener, 8));
	CHECK_EQ(option_of(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
	CHECK_EQ(rsend(other.client, "x", 1, 0), 1);
	CHECK_EQ(rrecv(other.server, &byte, 1, 0), 1);
	close_ends(&other);

	pthread_mutex_unlock(&gate);
	CHECK(poll_one(listener, POLLIN, WAIT) & POLLIN);
	server = raccept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK_OK(pthread_join(thread, &connected));
	CHECK_OK(rclose((int)(intptr_t)connected));
	CHECK_OK(rclose(server));
	CHECK_OK(rclose(listener));
}
