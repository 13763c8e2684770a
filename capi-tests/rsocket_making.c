/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What else may be done with a socket while a thread makes what it needs of its
 * device, to connect above all: here each step of that takes as long as a case wants.
 */
#include "rsocket_pair.h"

#include <netinet/tcp.h>
#include <rdma/rsocket.h>

enum { PORT = 7795, WAIT = 10000, MOST_STEPS = 64, KEPT = 4 };

typedef int modify_qp_fn(struct ibv_qp *, struct ibv_qp_attr *, int);
typedef struct ibv_mr *reg_mr_fn(struct ibv_pd *, void *, size_t, int);

/* Where threads stop; not the case's own, which would let them go on. */
static _Atomic enum { NOWHERE, MAKING, MAKING_OR_MOVING } gate;
static _Thread_local bool own;
/* Readable once for each thread that has stopped, and for each that may go on. */
static int arrived[2], passes[2];

static void stop_at_gate(bool making)
{
	char byte;

	if (own || gate == NOWHERE || (gate == MAKING && !making))
		return;
	CHECK_EQ(write(arrived[1], "x", 1), 1);
	CHECK_EQ(read(passes[0], &byte, 1), 1);
}

static void let_pass(void)
{
	CHECK_EQ(write(passes[1], "x", 1), 1);
}

/* In place of libibverbs'. */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	modify_qp_fn *original = (modify_qp_fn *)dlsym(RTLD_NEXT, "ibv_modify_qp");

	stop_at_gate(attr->qp_state == IBV_QPS_INIT);
	return original(qp, attr, mask);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	reg_mr_fn *original = (reg_mr_fn *)dlsym(RTLD_NEXT, "ibv_reg_mr");

	stop_at_gate(true);
	return original(pd, addr, length, access);
}

/* ---- A client and its peer ------------------------------------------------------ */

/* Sends a byte to whoever connects. */
static void serve(const void *what, long ready)
{
	int listener = listen_on(test_addr(PORT), 64), fd;

	(void)what;
	CHECK_EQ(write((int)ready, "x", 1), 1);
	while ((fd = raccept(listener, NULL, NULL)) >= 0)
		rsend(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void make_gate(void)
{
	keep_original_away();
	CHECK_OK(pipe(arrived));
	CHECK_OK(pipe(passes));
	own = true;
}

static void start_server(void)
{
	int ready[2];
	char byte;

	make_gate();
	CHECK_OK(pipe(ready));
	start_peer(serve, NULL, ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
}

/* A socket for which a call of a thread of its own makes something, or, if it does
   not block, the library's own thread. */
struct client {
	int fd;
	int (*call)(int fd);
	pthread_t thread;
	bool blocks;
	/* Readable once the thread is done, and how it was. */
	int done[2];
	int errno_;
};

static void *call_client(void *argument)
{
	struct client *client = argument;

	client->errno_ = client->call(client->fd) < 0 ? errno : 0;
	CHECK_EQ(write(client->done[1], "x", 1), 1);
	return NULL;
}

static void begin_to_call(struct client *client)
{
	CHECK(client->fd >= 0);
	CHECK_OK(pipe(client->done));
	CHECK_OK(pthread_create(&client->thread, NULL, call_client, client));
}

static int connect_to_port(int fd)
{
	struct sockaddr *addr = test_addr(PORT);

	return rconnect(fd, addr, addr_length(addr));
}

static struct client begin(bool blocks)
{
	return (struct client){ .fd = rsocket(AF_INET, SOCK_STREAM, 0),
				.call = connect_to_port, .blocks = blocks };
}

static void begin_to_connect(struct client *client)
{
	if (client->blocks) {
		begin_to_call(client);
		return;
	}
	CHECK_OK(rfcntl(client->fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(connect_to_port(client->fd), EINPROGRESS);
}

/* Until somebody stands at the gate, or all is done: then returns false. */
static bool await_step(struct client *client)
{
	struct pollfd entries[] = {
		{ .fd = arrived[0], .events = POLLIN },
		{ .fd = client->blocks ? client->done[0] : client->fd,
		  .events = client->blocks ? POLLIN : POLLOUT },
	};
	char byte;

	CHECK(rpoll(entries, 2, WAIT) > 0);
	if (!entries[0].revents)
		return false;
	CHECK_EQ(read(arrived[0], &byte, 1), 1);
	return true;
}

/* As many steps as that, if there are so many. */
static bool await_step_number(struct client *client, int number)
{
	for (int i = 0; await_step(client); i++) {
		CHECK(i < MOST_STEPS);
		if (i == number)
			return true;
		let_pass();
	}
	return false;
}

/* Nobody stops at the gate any more, nor does who stands there. */
static void open_gate(void)
{
	gate = NOWHERE;
	let_pass();
}

/* Until its call has returned, if it blocks. */
static void finish(struct client *client, int errno_)
{
	if (!client->blocks)
		return;
	CHECK_OK(pthread_join(client->thread, NULL));
	CHECK_EQ(client->errno_, errno_);
	close(client->done[0]);
	close(client->done[1]);
}

static void use_and_close(struct client *client)
{
	char byte;

	gate = NOWHERE;
	finish(client, 0);
	CHECK(poll_one(client->fd, POLLIN, WAIT) & POLLIN);
	CHECK_EQ(rrecv(client->fd, &byte, 1, 0), 1);
	CHECK_OK(rclose(client->fd));
}

/* Nothing is left of sockets that were closed, but for what is kept for others. */
static void check_descriptors(unsigned int before)
{
	CHECK(open_descriptors() <= before + KEPT);
}

/* ---- What does not wait --------------------------------------------------------- */

static void look_at_connecting(int fd)
{
	struct tcp_info info = { 0 };
	struct sockaddr_in name;
	socklen_t length = sizeof(info);
	char byte = 0;
	int size = 64;

	CHECK_EQ(poll_one(fd, POLLIN | POLLOUT, 0), 0);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_OK(rgetsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	CHECK_EQ(info.tcpi_state, TCP_SYN_SENT);
	CHECK(rfcntl(fd, F_GETFL, 0) >= 0);
	length = sizeof(name);
	CHECK_OK(rgetsockname(fd, (struct sockaddr *)&name, &length));
	CHECK_ERRNO(rgetpeername(fd, (struct sockaddr *)&name, &length), ENOTCONN);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	CHECK_ERRNO(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size)), EINVAL);
	CHECK_ERRNO((int)rsend(fd, "x", 1, MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO((int)rrecv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO(rlisten(fd, 1), EINVAL);
}

static void look_at_each_step(bool blocks)
{
	struct client client;
	int steps = 0;

	client = begin(blocks);
	gate = MAKING_OR_MOVING;
	begin_to_connect(&client);
	for (; await_step(&client); steps++) {
		CHECK(steps < MOST_STEPS);
		look_at_connecting(client.fd);
		if (!blocks)
			CHECK_ERRNO(connect_to_port(client.fd), EALREADY);
		let_pass();
	}
	CHECK(steps > 0);
	CHECK_EQ(option_of(client.fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	use_and_close(&client);
}

TEST(looked_at, "a slow device holds up no call on a socket that connects", .timeout = 40)
{
	start_server();
	for (int i = 0; i < 3; i++) {
		look_at_each_step(true);
		look_at_each_step(false);
	}
}

/*
 * Has `end_at` end an attempt to connect at each step, by a call that does not block and
 * by one that does. It returns false if there are fewer steps.
 */
static void end_at_each_step(bool (*end_at)(int step, bool blocks))
{
	unsigned int before;
	int steps[2] = { 0, 0 };

	start_server();
	look_at_each_step(true);
	before = open_descriptors();
	for (int blocks = 0; blocks < 2; blocks++)
		while (end_at(steps[blocks], blocks))
			steps[blocks]++;
	CHECK(steps[0] > 0 && steps[1] > 0);
	check_descriptors(before);
}

static bool shut_down_at(int step, bool blocks)
{
	struct client client = begin(blocks);

	/* The queue pair that it ends may not be on the move. */
	gate = MAKING;
	begin_to_connect(&client);
	if (!await_step_number(&client, step)) {
		use_and_close(&client);
		return false;
	}
	CHECK_OK(rshutdown(client.fd, SHUT_RDWR));
	CHECK(poll_one(client.fd, POLLOUT, 0) & POLLERR);
	CHECK_EQ(option_of(client.fd, SOL_SOCKET, SO_ERROR), ECONNRESET);
	CHECK_ERRNO((int)rsend(client.fd, "x", 1, MSG_DONTWAIT), ENOTCONN);
	open_gate();
	/* Its reason was taken. */
	finish(&client, ENOTCONN);
	CHECK(poll_one(client.fd, POLLOUT, 0) & POLLERR);
	CHECK_EQ(option_of(client.fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK_OK(rclose(client.fd));
	return true;
}

TEST(shut_down, "a shutdown gives up connecting at any step, also while a device is slow",
     .timeout = 60)
{
	end_at_each_step(shut_down_at);
}

static void *close_socket(void *argument)
{
	own = true;
	CHECK_OK(rclose(*(int *)argument));
	return NULL;
}

/*
 * The thread that connects has the socket until it is done; the library's own has let
 * it go when rclose returns.
 */
static bool close_at(int step, bool blocks)
{
	struct client client = begin(blocks);
	pthread_t closer;

	gate = MAKING_OR_MOVING;
	begin_to_connect(&client);
	if (!await_step_number(&client, step)) {
		use_and_close(&client);
		return false;
	}
	if (blocks)
		CHECK_OK(rclose(client.fd));
	else
		CHECK_OK(pthread_create(&closer, NULL, close_socket, &client.fd));
	open_gate();
	if (!blocks)
		CHECK_OK(pthread_join(closer, NULL));
	finish(&client, EBADF);
	CHECK_ERRNO(rfcntl(client.fd, F_GETFL, 0), EBADF);
	return true;
}

TEST(closed, "a close gives up connecting at any step, also while a device is slow",
     .timeout = 60)
{
	end_at_each_step(close_at);
}

/* ---- Datagrams ------------------------------------------------------------------ */

static int bind_to_port(int fd)
{
	struct sockaddr *addr = test_addr(PORT + 1);

	return rbind(fd, addr, addr_length(addr));
}

static int send_to_port(int fd)
{
	struct sockaddr *addr = test_addr(PORT);

	return (int)rsendto(fd, "x", 1, 0, addr, addr_length(addr));
}

/* What makes a queue pair for a datagram socket. */
static int (*const CALLS[])(int fd) = { bind_to_port, connect_to_port, send_to_port };
enum { ALL_CALLS = sizeof(CALLS) / sizeof(*CALLS) };

static void begin_datagrams(struct client *client, int (*call)(int fd))
{
	*client = (struct client){ .fd = rsocket(AF_INET, SOCK_DGRAM, 0),
				   .call = call, .blocks = true };
	gate = MAKING_OR_MOVING;
	begin_to_call(client);
}

static void look_at_datagrams(int fd)
{
	struct sockaddr_in name;
	socklen_t length = sizeof(name);
	char byte;

	CHECK_EQ(poll_one(fd, POLLIN, 0), 0);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), 0);
	CHECK(option_of(fd, SOL_RDMA, RDMA_INLINE) >= 0);
	CHECK(rfcntl(fd, F_GETFL, 0) >= 0);
	CHECK_OK(rgetsockname(fd, (struct sockaddr *)&name, &length));
	set_option(fd, SOL_SOCKET, SO_PRIORITY, 1);
	CHECK_EQ(rrecv(fd, &byte, 1, MSG_DONTWAIT), -1);
	CHECK(errno == EAGAIN || errno == EINVAL);
}

TEST(datagrams, "a slow device holds up no call on a datagram socket that is given an address")
{
	make_gate();
	for (int i = 0; i < ALL_CALLS; i++) {
		struct client client;
		int steps = 0;

		begin_datagrams(&client, CALLS[i]);
		for (; await_step(&client); steps++) {
			look_at_datagrams(client.fd);
			let_pass();
		}
		CHECK(steps > 0);
		gate = NOWHERE;
		finish(&client, 0);
		CHECK_OK(rclose(client.fd));
	}
}

static int set_size(int fd)
{
	int size = 64;

	return rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size));
}

TEST(once, "threads that need the same queue pair for datagrams make one, of sizes that stay")
{
	struct client first, second, size;

	make_gate();
	begin_datagrams(&first, send_to_port);
	CHECK(await_step(&first));
	second = (struct client){ .fd = first.fd, .call = send_to_port, .blocks = true };
	begin_to_call(&second);
	size = (struct client){ .fd = first.fd, .call = set_size, .blocks = true };
	begin_to_call(&size);
	await_sleep();
	do
		let_pass();
	while (await_step(&first));
	/* Whoever is late would stop here. */
	CHECK(!await_step(&second));
	finish(&first, 0);
	finish(&second, 0);
	finish(&size, EINVAL);
	CHECK_OK(rclose(first.fd));
}

/* Returns false if there are fewer steps. */
static bool close_datagrams_at(int step, int (*call)(int fd))
{
	struct client client;
	bool there;

	begin_datagrams(&client, call);
	there = await_step_number(&client, step);
	CHECK_OK(rclose(client.fd));
	if (there)
		open_gate();
	CHECK_OK(pthread_join(client.thread, NULL));
	close(client.done[0]);
	close(client.done[1]);
	return there;
}

TEST(datagrams_closed, "a close does not wait for a device that is slow to make a queue pair")
{
	unsigned int before;

	make_gate();
	CHECK(!close_datagrams_at(MOST_STEPS, send_to_port));
	before = open_descriptors();
	for (int i = 0; i < ALL_CALLS; i++)
		for (int step = 0; close_datagrams_at(step, CALLS[i]);)
			step++;
	check_descriptors(before);
}
