/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Children that only exit or execute another program, as those of system(3)
 * and of daemons that start helpers: whatever this process has open, it goes
 * on as if they had never been.
 */
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void wait_child(pid_t pid)
{
	int status;

	CHECK(pid > 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}

/* A child that ends by exit(3), with handlers and destructors. */
static void child_exits(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exit(EXIT_SUCCESS);
	wait_child(pid);
}

static void child_executes(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	wait_child(pid);
}

static void child_of_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	wait_child(pid);
}

static void child_of_spawn(void)
{
	char *argv[] = { "true", NULL };
	pid_t pid;

	CHECK_OK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ));
	wait_child(pid);
}

static void every_child(void)
{
	child_exits();
	child_executes();
	child_of_vfork();
	child_of_spawn();
	run_command("true");
}

/* ---- What is open ---------------------------------------------------------- */

TEST(connected, "children of all kinds end between two messages of a connection")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "before");
	every_child();
	send_message(pair.client, pair.server, "to the server");
	send_message(pair.server, pair.client, "to the client");
	expect_no_event(pair.client_channel, 100);
	expect_no_event(pair.server_channel, 0);
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	CHECK_OK(rdma_disconnect(pair.server));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
}

TEST(every_step, "children end after every step to a connection")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	pair_listen(&pair, RDMA_PS_TCP);
	every_child();
	pair_resolve(&pair);
	every_child();
	make_qp(pair.client);
	every_child();
	pair_route(&pair);
	every_child();
	pair_request(&pair, &param);
	every_child();
	make_qp(pair.server);
	every_child();
	pair_accept(&pair, &param);
	every_child();
	send_message(pair.client, pair.server, "all the same");
	pair_close(&pair);
}

TEST(datagrams, "children end while datagram ids and a group are in use")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);
	struct pair pair;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	CHECK_OK(rdma_join_multicast(id, make_addr("239.1.2.3", 0), NULL));
	every_child();
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN), 0);
	every_child();
	CHECK_OK(rdma_leave_multicast(id, make_addr("239.1.2.3", 0)));
	rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
	pair_connect(&pair, RDMA_PS_UDP);
	every_child();
	pair_close(&pair);
}

TEST(memory, "registered memory stays the parent's across a fork, with ibv_fork_init")
{
	static char out[4096] __attribute__((aligned(4096)));
	static char in[4096] __attribute__((aligned(4096)));
	struct ibv_mr *out_mr, *in_mr;
	struct pair pair;
	pid_t pid;

	CHECK_OK(ibv_fork_init());
	pair_connect(&pair, RDMA_PS_TCP);
	fill(out, sizeof(out), 1);
	out_mr = rdma_reg_msgs(pair.client, out, sizeof(out));
	in_mr = rdma_reg_msgs(pair.server, in, sizeof(in));
	CHECK(out_mr);
	CHECK(in_mr);
	CHECK_OK(rdma_post_recv(pair.server, in, in, sizeof(in), in_mr));
	pid = fork();
	/* Its memory does not contain the pages at all. */
	if (pid == 0)
		_exit(EXIT_SUCCESS);
	wait_child(pid);
	fill(out, sizeof(out), 2);
	CHECK_OK(rdma_post_send(pair.client, out, out, sizeof(out), out_mr, 0));
	send_done(pair.client, out);
	CHECK_EQ(recv_done(pair.server, in).byte_len, sizeof(in));
	CHECK(memcmp(out, in, sizeof(in)) == 0);
	CHECK_OK(rdma_dereg_mr(out_mr));
	CHECK_OK(rdma_dereg_mr(in_mr));
	pair_close(&pair);
}

TEST(descriptors, "an executed program has no descriptor of a connection")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	run_command("! ls -l /proc/self/fd | grep -i infiniband");
	pair_close(&pair);
}

/* ---- Threads ------------------------------------------------------------------ */

static atomic_bool over;
static atomic_uint connections;

static void *connect_main(void *argument)
{
	(void)argument;
	while (!over) {
		struct pair pair;

		pair_connect(&pair, RDMA_PS_TCP);
		send_message(pair.client, pair.server, "while others fork");
		pair_close(&pair);
		connections++;
	}
	return NULL;
}

TEST(threads, "children end while other threads connect [race]", .timeout = 120)
{
	enum { THREADS = 2, CHILDREN = 20 };
	pthread_t threads[THREADS];
	unsigned int before;

	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, connect_main, NULL));
	for (int i = 0; i < CHILDREN; i++) {
		child_executes();
		child_exits();
	}
	before = connections;
	over = true;
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	/* Each was in the middle of one. */
	CHECK(connections >= before + THREADS);
}

/* ---- Children that use the library themselves ---------------------------------- */

enum { SOON = 20 };

/*
 * What programs do first with it; but for rdma_getaddrinfo, since getaddrinfo(3) has
 * locks of its own, for which a child waits.
 */
static void use_library(void)
{
	struct rdma_event_channel *channel;
	struct ibv_context **devices;
	struct rdma_cm_id *id;

	devices = rdma_get_devices(NULL);
	CHECK(devices);
	rdma_free_devices(devices);
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* In a child, where nobody is left to let go of what another thread held. */
static void use_library_soon(void *argument)
{
	(void)argument;
	alarm(SOON);
	use_library();
}

static void *use_main(void *argument)
{
	(void)argument;
	while (!over)
		use_library();
	return NULL;
}

TEST(busy, "[race] children make identifiers while threads of their parent do", .timeout = 120)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, i % 2 ? use_main : connect_main, NULL));
	for (int i = test_rounds(200); i; i--)
		run_in_child(use_library_soon, NULL);
	over = true;
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
}

static void *use_once(void *argument)
{
	(void)argument;
	use_library();
	over = true;
	return NULL;
}

/* Forks all the time while one of its threads makes the first calls ever. */
static void fork_at_first_use(void *argument)
{
	pthread_t thread;

	(void)argument;
	CHECK_OK(pthread_create(&thread, NULL, use_once, NULL));
	while (!over)
		run_in_child(use_library_soon, NULL);
	CHECK_OK(pthread_join(thread, NULL));
}

TEST(first, "[race] children use the library while their parent does for the first time",
     .timeout = 120)
{
	for (int i = test_rounds(30); i; i--)
		run_in_child(fork_at_first_use, NULL);
}

static void connect_soon(void *argument)
{
	struct pair pair;

	(void)argument;
	alarm(SOON);
	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "of the child's own");
	pair_close(&pair);
}

TEST(own, "[fix] a child connects although its parent has opened the device")
{
	struct pair pair;

	pair_connect(&pair, RDMA_PS_TCP);
	run_in_child(connect_soon, NULL);
	send_message(pair.client, pair.server, "the parent goes on");
	pair_close(&pair);
}

static void *request_main(void *argument)
{
	struct rdma_cm_id *listener = argument, *id;

	CHECK_OK(rdma_get_request(listener, &id));
	CHECK_OK(rdma_reject(id, NULL, 0));
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST(synchronous, "children end while a thread waits in a synchronous call")
{
	struct rdma_conn_param param = usual_param();
	struct rdma_cm_id *listener = make_id(NULL, RDMA_PS_TCP);
	struct rdma_cm_id *client = make_id(NULL, RDMA_PS_TCP);
	pthread_t thread;

	CHECK_OK(rdma_bind_addr(listener, test_addr(0)));
	CHECK_OK(rdma_listen(listener, 1));
	CHECK_OK(pthread_create(&thread, NULL, request_main, listener));
	every_child();
	CHECK_OK(rdma_resolve_addr(client, NULL, rdma_get_local_addr(listener), 5000));
	CHECK_OK(rdma_resolve_route(client, 5000));
	make_qp(client);
	CHECK_ERRNO(rdma_connect(client, &param), ECONNREFUSED);
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_qp(client);
	CHECK_OK(rdma_destroy_id(client));
	CHECK_OK(rdma_destroy_id(listener));
}

/* ---- A child that lives on ----------------------------------------------------- */

TEST(outlived, "what the parent destroys is gone although a child holds its descriptors")
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *again;
	struct pair pair;
	uint16_t port;
	pid_t pid;

	pair_connect(&pair, RDMA_PS_TCP);
	port = ntohs(rdma_get_src_port(pair.listener));
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	CHECK_OK(rdma_disconnect(pair.client));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
	pair_close(&pair);
	channel = make_channel();
	again = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(again, test_addr(port)));
	CHECK_OK(rdma_listen(again, 1));
	CHECK_OK(rdma_destroy_id(again));
	CHECK_OK(kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
}
