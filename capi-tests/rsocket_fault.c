/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The link of the network interface goes away for a while, or the RDMA device
 * for good, while sockets transfer data or wait: what arrives is what was sent,
 * every call ends, and datagrams arrive again.
 */
#include "rsocket_pair.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum {
	PORT = 7671,
	SOME = 1 << 20, /* bytes that show that data flows */
	BOUND = 60,     /* seconds in which every call ends */
};

/* One of the two processes; in memory that all share. */
struct side {
	_Atomic uint64_t received;
	_Atomic int send_error;	   /* 0 if all could be sent */
	_Atomic int receive_error; /* 0 at the end of the stream */
	_Atomic int waiting;	   /* threads that are about to wait */
	_Atomic bool connected;
	_Atomic bool closed;
};

static struct shared {
	_Atomic bool enough; /* of what is sent */
	struct side sides[2];
} *shared;

static unsigned char pattern(uint64_t place)
{
	return (unsigned char)(place * 31 + (place >> 9));
}

struct flow {
	int fd;
	struct side *side;
};

static void *send_all(void *argument)
{
	struct flow *flow = argument;
	unsigned char data[30011];
	uint64_t done = 0;

	while (!shared->enough) {
		size_t size = 1 + done % sizeof(data);
		ssize_t sent;

		for (size_t i = 0; i < size; i++)
			data[i] = pattern(done + i);
		sent = rsend(flow->fd, data, size, MSG_NOSIGNAL);
		if (sent < 0) {
			flow->side->send_error = errno;
			return NULL;
		}
		CHECK(sent > 0);
		done += (uint64_t)sent;
	}
	CHECK_OK(rshutdown(flow->fd, SHUT_WR));
	return NULL;
}

static void *receive_all(void *argument)
{
	struct flow *flow = argument;
	unsigned char data[20011];

	for (;;) {
		ssize_t received = rrecv(flow->fd, data, sizeof(data), 0);

		if (received < 0)
			flow->side->receive_error = errno;
		if (received <= 0)
			return NULL;
		for (ssize_t i = 0; i < received; i++)
			CHECK_EQ(data[i], pattern(flow->side->received + (uint64_t)i));
		flow->side->received += (uint64_t)received;
	}
}

/* Sends and receives until there was enough, or the connection breaks. */
static void exchange(const int *fds, struct side *side)
{
	/* The peer may be gone, and nothing is on its way there. */
	struct linger linger = { .l_onoff = 1, .l_linger = 2 };
	struct flow flow = { fds[0], side };
	pthread_t sender;

	CHECK_OK(rsetsockopt(fds[1], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	CHECK_OK(pthread_create(&sender, NULL, send_all, &flow));
	receive_all(&flow);
	CHECK_OK(pthread_join(sender, NULL));
	for (int i = 0; i < 2; i++)
		CHECK_OK(rclose(fds[i]));
	side->closed = true;
}

static void *receive_nothing(void *argument)
{
	struct flow *flow = argument;
	char byte;

	flow->side->waiting++;
	CHECK_EQ(rrecv(flow->fd, &byte, 1, 0), -1);
	flow->side->receive_error = errno;
	return NULL;
}

static void *poll_for_nothing(void *argument)
{
	struct flow *flow = argument;
	struct pollfd entry = { .fd = flow->fd, .events = POLLIN };

	flow->side->waiting++;
	CHECK_EQ(rpoll(&entry, 1, -1), 1);
	CHECK(entry.revents & (POLLERR | POLLHUP));
	return NULL;
}

static void *fill_up(void *argument)
{
	struct flow *flow = argument;
	static char data[65536];

	while (rsend(flow->fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		;
	CHECK_EQ(errno, EAGAIN);
	flow->side->waiting++;
	/* A part may still go. */
	while (rsend(flow->fd, data, sizeof(data), MSG_NOSIGNAL) > 0)
		;
	flow->side->send_error = errno;
	return NULL;
}

/* Waits on an idle connection that is asked for a sign of life every second. */
static void wait_idle(const int *fds, struct side *side)
{
	struct flow flow = { fds[0], side };

	set_option(fds[0], IPPROTO_TCP, TCP_KEEPIDLE, 1);
	set_option(fds[0], SOL_SOCKET, SO_KEEPALIVE, 1);
	receive_nothing(&flow);
	for (int i = 0; i < 2; i++)
		CHECK_OK(rclose(fds[i]));
	side->closed = true;
}

enum { CALLS = 3 };

/* Waits in every call that waits: for data on one connection, and for room on
   the other. */
static void wait_in_all(const int *fds, struct side *side)
{
	void *(*const calls[CALLS])(void *) = { receive_nothing, poll_for_nothing, fill_up };
	struct flow flows[] = { { fds[0], side }, { fds[0], side }, { fds[1], side } };
	pthread_t threads[CALLS];

	for (int i = 0; i < CALLS; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, calls[i], &flows[i]));
	for (int i = 0; i < CALLS; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	for (int i = 0; i < 2; i++)
		CHECK_OK(rclose(fds[i]));
	side->closed = true;
}

typedef void run_fn(const int *fds, struct side *side);

static pid_t start_server(run_fn *run, int ready)
{
	pid_t pid = fork();
	int fds[2];

	CHECK(pid >= 0);
	if (pid == 0) {
		int listener = listen_on(second_addr(PORT), 2);

		CHECK_EQ(write(ready, "x", 1), 1);
		for (int i = 0; i < 2; i++) {
			fds[i] = raccept(listener, NULL, NULL);
			CHECK(fds[i] >= 0);
		}
		CHECK_OK(rclose(listener));
		shared->sides[0].connected = true;
		run(fds, &shared->sides[0]);
		_exit(EXIT_SUCCESS);
	}
	return pid;
}

static pid_t start_client(run_fn *run, int ready)
{
	pid_t pid = fork();
	int fds[2];
	char byte;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_EQ(read(ready, &byte, 1), 1);
		for (int i = 0; i < 2; i++)
			fds[i] = connect_to(second_addr(PORT));
		shared->sides[1].connected = true;
		run(fds, &shared->sides[1]);
		_exit(EXIT_SUCCESS);
	}
	return pid;
}

/* Until the condition holds, which another process makes so. */
#define AWAIT(condition)                                                       \
	do {                                                                   \
		uint64_t deadline_ = now_ms() + BOUND * 1000;                  \
		test_at(__FILE__, __LINE__);                                   \
		while (!(condition)) {                                         \
			if (now_ms() > deadline_)                              \
				FAIL("%s does not become true", #condition);   \
			poll(NULL, 0, 5);                                      \
		}                                                              \
	} while (0)

struct trial {
	pid_t pids[2];
};

static struct trial begin(run_fn *run)
{
	struct trial trial;
	int ready[2];

	keep_original_away();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_OK(pipe(ready));
	second_add();
	trial.pids[0] = start_server(run, ready[1]);
	trial.pids[1] = start_client(run, ready[0]);
	for (int i = 0; i < 2; i++)
		AWAIT(shared->sides[i].connected);
	return trial;
}

static bool is_broken(void)
{
	bool broken = false;

	for (int i = 0; i < 2; i++)
		broken |= shared->sides[i].send_error || shared->sides[i].receive_error;
	return broken;
}

/* More data arrives on both sides, unless the connection breaks. */
static bool has_data(const uint64_t *before)
{
	bool enough = true;

	for (int i = 0; i < 2; i++)
		enough &= shared->sides[i].received >= before[i] + SOME;
	return enough || is_broken();
}

#define AWAIT_DATA()                                                           \
	do {                                                                   \
		uint64_t before_[] = { shared->sides[0].received,              \
				       shared->sides[1].received };            \
		AWAIT(has_data(before_));                                      \
	} while (0)

/* Both processes end, soon and content. */
static void end(struct trial *trial)
{
	int status;

	for (int i = 0; i < 2; i++) {
		AWAIT(waitpid(trial->pids[i], &status, WNOHANG) == trial->pids[i]);
		if (WIFEXITED(status) && WEXITSTATUS(status))
			_exit(WEXITSTATUS(status)); /* it left its reason */
		CHECK_EQ(status, 0);
		CHECK(shared->sides[i].closed);
	}
}

static void show(void)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &shared->sides[i];

		printf("# side %d: %llu received, send: %s, receive: %s\n", i,
		       (unsigned long long)side->received, strerror(side->send_error),
		       strerror(side->receive_error));
	}
	fflush(stdout);
}

static bool is_reset(int error)
{
	return error == ECONNRESET || error == ETIMEDOUT;
}

TEST(flapped, "the link goes for two seconds: data goes on, or both ends fail [race]",
     .timeout = 3 * BOUND, .cleanup = second_remove)
{
	struct trial trial = begin(exchange);
	bool broken;

	AWAIT_DATA();
	run_command("ip link set rxetest down");
	sleep(2);
	run_command("ip link set rxetest up");
	AWAIT_DATA();
	broken = is_broken();
	shared->enough = true;
	end(&trial);
	show();
	for (int i = 0; i < 2; i++) {
		struct side *side = &shared->sides[i];

		if (broken)
			CHECK(is_reset(side->send_error) || is_reset(side->receive_error));
		else
			CHECK(!side->send_error && !side->receive_error);
	}
}

TEST(idle, "72 the link of an idle connection goes: keep-alive ends both ends [race]",
     .timeout = 2 * BOUND, .cleanup = second_remove)
{
	struct trial trial = begin(wait_idle);

	for (int i = 0; i < 2; i++)
		AWAIT(shared->sides[i].waiting == 1);
	run_command("ip link set rxetest down");
	end(&trial);
	show();
	for (int i = 0; i < 2; i++)
		CHECK(is_reset(shared->sides[i].receive_error));
}

static volatile bool device_removed;

static void *remove_device(void *argument)
{
	run_command("rdma link delete %s", SECOND_DEVICE);
	device_removed = true;
	return argument;
}

static void remove_while(run_fn *run, void (*await)(void))
{
	struct trial trial = begin(run);
	pthread_t removal;

	await();
	CHECK_OK(pthread_create(&removal, NULL, remove_device, NULL));
	end(&trial);
	/* Linux before 7 ends it only now that the processes have. */
	CHECK_OK(pthread_join(removal, NULL));
	show();
	for (int i = 0; i < 2; i++) {
		struct side *side = &shared->sides[i];

		CHECK(is_reset(side->send_error) || is_reset(side->receive_error));
	}
}

static void await_waiting(void)
{
	for (int i = 0; i < 2; i++)
		AWAIT(shared->sides[i].waiting == CALLS);
	/* They are about to wait; they must end in either case. */
	poll(NULL, 0, 200);
}

static void await_flow(void)
{
	AWAIT_DATA();
}

TEST(removed, "the device is removed while data flows: both ends fail [race]",
     .timeout = 3 * BOUND, .cleanup = second_remove)
{
	remove_while(exchange, await_flow);
}

TEST(removed_idle, "the device is removed: waits for data, room and events end [race]",
     .timeout = 3 * BOUND, .cleanup = second_remove)
{
	remove_while(wait_in_all, await_waiting);
}

static void *accept_nothing(void *argument)
{
	CHECK_ERRNO(raccept(*(int *)argument, NULL, NULL), ENODEV);
	return NULL;
}

TEST(removed_listener, "the device is removed: a wait for a connection ends [race]",
     .timeout = BOUND, .cleanup = second_remove)
{
	pthread_t accepting, removal;
	int listener;

	keep_original_away();
	second_add();
	listener = listen_on(second_addr(PORT), 2);
	CHECK_OK(pthread_create(&accepting, NULL, accept_nothing, &listener));
	await_sleep();
	/* Linux before 7 ends the removal only when this process has ended. */
	CHECK_OK(pthread_create(&removal, NULL, remove_device, NULL));
	CHECK_OK(pthread_join(accepting, NULL));
	CHECK_OK(rclose(listener));
}

static int datagram_socket(uint16_t port)
{
	struct sockaddr *addr = second_addr(port);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);

	CHECK(fd >= 0);
	CHECK_OK(rbind(fd, addr, addr_length(addr)));
	return fd;
}

/* Sends until something arrives: datagrams may get lost. */
static void get_across(int from, int to, uint16_t port, char text)
{
	struct sockaddr *addr = second_addr(port);
	char got;

	do {
		/* Before the network is back, there may be an error. */
		rsendto(from, &text, 1, 0, addr, addr_length(addr));
		if (!(poll_one(to, POLLIN, 20) & POLLIN) || rrecv(to, &got, 1, 0) != 1)
			got = 0;
	} while (got != text);
}

TEST(datagrams, "datagrams arrive again after the link was gone [race]", .timeout = BOUND,
     .cleanup = second_remove)
{
	int a, b;

	keep_original_away();
	second_add();
	a = datagram_socket(PORT);
	b = datagram_socket(PORT + 1);
	CHECK_EQ(rsendto(a, "-", 1, 0, second_addr(PORT + 1), addr_length(second_addr(0))), 1);
	for (char text = 'a'; text < 'e'; text++) {
		for (int i = 0; i < 20; i++) {
			get_across(a, b, PORT + 1, text);
			get_across(b, a, PORT, text);
		}
		run_command("ip link set rxetest down");
		for (int i = 0; i < 10; i++) {
			rsendto(a, "-", 1, MSG_DONTWAIT, second_addr(PORT + 1),
				addr_length(second_addr(0)));
			poll_one(b, POLLIN, 1);
		}
		run_command("ip link set rxetest up");
	}
	CHECK_OK(rclose(a));
	CHECK_OK(rclose(b));
}

/* Sends until it is what would be received next. */
static void leave_unread(int from, int to, uint16_t port, char text)
{
	char got = 0;

	get_across(from, to, port, text);
	while (got != text) {
		if (got)
			CHECK_EQ(rrecv(to, &got, 1, 0), 1);
		CHECK_EQ(rsendto(from, &text, 1, 0, second_addr(port),
				 addr_length(second_addr(0))), 1);
		CHECK(poll_one(to, POLLIN, BOUND * 1000) & POLLIN);
		CHECK_EQ(rrecv(to, &got, 1, MSG_PEEK), 1);
	}
}

/* Waits until the socket says, once, that its device is gone. */
static void await_removal(int fd)
{
	CHECK(poll_one(fd, 0, BOUND * 1000) & POLLERR);
	CHECK_EQ(option_of(fd, SOL_SOCKET, SO_ERROR), ENODEV);
}

TEST(replaced, "datagrams arrive again after their device was removed and is back [race]",
     .timeout = 2 * BOUND, .cleanup = second_remove)
{
	pthread_t removal;
	int a, b;
	char got;

	keep_original_away();
	/* Before, the removal may wait for this process to end. */
	require_kernel(7, 0);
	second_add();
	a = datagram_socket(PORT);
	b = datagram_socket(PORT + 1);
	for (char text = 'a'; text < 'd'; text++) {
		for (int i = 0; i < 20; i++) {
			get_across(a, b, PORT + 1, text);
			get_across(b, a, PORT, text);
		}
		/* What has arrived before is not lost. */
		leave_unread(a, b, PORT + 1, '-');
		device_removed = false;
		CHECK_OK(pthread_create(&removal, NULL, remove_device, NULL));
		await_removal(a);
		await_removal(b);
		CHECK_EQ(rrecv(b, &got, 1, 0), 1);
		CHECK_EQ(got, '-');
		/* Until the kernel knows it as well. */
		AWAIT(rsendto(a, "-", 1, 0, second_addr(PORT + 1),
			      addr_length(second_addr(0))) == -1 && errno == ENODEV &&
		      device_removed);
		CHECK_OK(pthread_join(removal, NULL));
		second_return();
	}
	CHECK_OK(rclose(a));
	CHECK_OK(rclose(b));
}
