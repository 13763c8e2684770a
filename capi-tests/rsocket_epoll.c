/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * epoll sets against epoll(7). Sets of ordinary descriptors get every call that
 * a set of the kernel's gets, on the same descriptors, and have to answer the
 * same. With stream sockets as members, a case first runs on the kernel's TCP
 * sockets in the kernel's sets, which therefore are the reference.
 */
#include "rsocket_pair.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

enum { PORT = 7771, LONG = 15000, ROOM = 256 };

/* The calls of one kind of sets and sockets. */
struct calls {
	int (*create)(int);
	int (*ctl)(int, int, int, struct epoll_event *);
	int (*wait)(int, struct epoll_event *, int, int);
	int (*close)(int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*recv)(int, void *, size_t, int);
	int (*shutdown)(int, int);
	int (*poll)(struct pollfd *, nfds_t, int);
};

static const struct calls kernel = {
	epoll_create1, epoll_ctl, epoll_wait, close, send, recv, shutdown, poll,
};

static struct calls library(void)
{
	return (struct calls){
		(int (*)(int))library_symbol("repoll_create"),
		(int (*)(int, int, int, struct epoll_event *))library_symbol("repoll_ctl"),
		(int (*)(int, struct epoll_event *, int, int))library_symbol("repoll_wait"),
		rclose, rsend, rrecv, rshutdown, rpoll,
	};
}

/* ---- Ordinary descriptors: the same calls on two sets ------------------- */

static struct both {
	struct calls calls[2]; /* the kernel's and the library's */
	int sets[2];
} both;

static void make_both(void)
{
	both.calls[0] = kernel;
	both.calls[1] = library();
	for (int i = 0; i < 2; i++) {
		both.sets[i] = both.calls[i].create(EPOLL_CLOEXEC);
		CHECK(both.sets[i] >= 0);
	}
}

static void close_both(void)
{
	for (int i = 0; i < 2; i++)
		CHECK_OK(both.calls[i].close(both.sets[i]));
}

/* A result, or the negative errno. */
static int answer(int result)
{
	CHECK(result >= -1);
	return result == -1 ? -errno : result;
}

/* Returns what both say. */
static int ctl_both(int op, int fd, uint32_t events, uint64_t data)
{
	int said[2];

	for (int i = 0; i < 2; i++) {
		struct epoll_event event = { .events = events, .data.u64 = data };

		said[i] = answer(both.calls[i].ctl(both.sets[i], op, fd, &event));
	}
	if (said[0] != said[1])
		FAIL("operation %d of %d for 0x%x: %d by the kernel, %d here", op, fd, events,
		     said[0], said[1]);
	return said[0];
}

/* The same members in the same order. */
static int wait_both(int most, int timeout)
{
	static struct epoll_event got[2][ROOM];
	int said[2];

	CHECK(most <= ROOM);
	for (int i = 0; i < 2; i++)
		said[i] = answer(both.calls[i].wait(both.sets[i], got[i], most, timeout));
	if (said[0] != said[1])
		FAIL("wait for %d: %d by the kernel, %d here", most, said[0], said[1]);
	for (int i = 0; i < said[0]; i++) {
		CHECK_EQ(got[1][i].data.u64, got[0][i].data.u64);
		CHECK_EQ(got[1][i].events, got[0][i].events);
	}
	return said[0];
}

enum { OBJECTS = 8, STEPS = 6000 };

/* Ends of a pipe, of a pair of sockets, and a counter; what is open of them. */
static struct objects {
	int fds[OBJECTS];
	uint64_t pace;
} objects;

static uint32_t next_random(uint32_t below)
{
	objects.pace = objects.pace * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(objects.pace >> 33) % below;
}

static void open_objects(void)
{
	CHECK_OK(pipe2(&objects.fds[0], O_NONBLOCK));
	CHECK_OK(pipe2(&objects.fds[2], O_NONBLOCK));
	CHECK_OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, &objects.fds[4]));
	objects.fds[6] = eventfd(0, EFD_NONBLOCK);
	objects.fds[7] = epoll_create1(0);
}

static void close_objects(void)
{
	for (int i = 0; i < OBJECTS; i++)
		close(objects.fds[i]);
}

static uint32_t random_events(void)
{
	static const uint32_t bits[] = {
		EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI, EPOLLET, EPOLLONESHOT,
		EPOLLHUP, EPOLLERR, EPOLLEXCLUSIVE,
	};
	uint32_t events = EPOLLIN;

	for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++)
		/* What is exclusive cannot be changed, so let it be rare. */
		if (next_random(bits[i] == EPOLLEXCLUSIVE ? 20 : 3) == 0)
			events ^= bits[i];
	return events;
}

/* Something happens to an object. */
static void stir(int fd)
{
	char data[5000];
	uint64_t one = 1;
	ssize_t ignored;

	switch (next_random(4)) {
	case 0:
		ignored = read(fd, data, 1);
		break;
	case 1:
		ignored = read(fd, data, sizeof(data));
		break;
	case 2:
		ignored = write(fd, &one, sizeof(one));
		break;
	default:
		memset(data, 0, sizeof(data));
		ignored = fd == objects.fds[6] ? 0 : write(fd, data, sizeof(data));
	}
	(void)ignored;
}

TEST(random_calls, "[fix] a set without sockets answers any calls as the kernel's does",
     .timeout = 60)
{
	int reports = 0, refusals = 0;

	signal(SIGPIPE, SIG_IGN);
	objects.pace = 20;
	make_both();
	open_objects();
	for (int step = 0; step < STEPS; step++) {
		int number = (int)next_random(OBJECTS), fd = objects.fds[number];

		switch (next_random(12)) {
		case 0:
		case 1:
			refusals += ctl_both(EPOLL_CTL_ADD, fd, random_events(), step) != 0;
			break;
		case 2:
			refusals += ctl_both(EPOLL_CTL_MOD, fd, random_events(), step) != 0;
			break;
		case 3:
			if (next_random(3) == 0)
				refusals += ctl_both(EPOLL_CTL_DEL, fd, 0, 0) != 0;
			break;
		case 4:
		case 5:
		case 6:
			stir(fd);
			break;
		case 7:
			/* All members go with their descriptors. */
			if (next_random(20) == 0) {
				close_objects();
				open_objects();
			} else if (next_random(10) == 0) {
				shutdown(objects.fds[4], (int)next_random(3));
			}
			break;
		default:
			reports += wait_both(1 + (int)next_random(OBJECTS), 0);
		}
	}
	/* It was about something. */
	CHECK(reports > STEPS / 20 && refusals > STEPS / 50);
	close_objects();
	close_both();
}

TEST(refusals, "66 [fix] what a set refuses, it refuses as the kernel's does")
{
	int pipes[2], file = open("/proc/self/exe", O_RDONLY), closed;
	struct epoll_event event = { .events = EPOLLIN };

	make_both();
	CHECK_OK(pipe(pipes));
	closed = dup(pipes[0]);
	close(closed);
	CHECK_EQ(ctl_both(EPOLL_CTL_ADD, -1, EPOLLIN, 0), -EBADF);
	CHECK_EQ(ctl_both(EPOLL_CTL_ADD, closed, EPOLLIN, 0), -EBADF);
	CHECK_EQ(ctl_both(EPOLL_CTL_ADD, file, EPOLLIN, 0), -EPERM);
	CHECK_EQ(ctl_both(EPOLL_CTL_MOD, pipes[0], EPOLLIN, 0), -ENOENT);
	CHECK_EQ(ctl_both(EPOLL_CTL_DEL, pipes[0], EPOLLIN, 0), -ENOENT);
	CHECK_EQ(ctl_both(99, pipes[0], EPOLLIN, 0), -EINVAL);
	CHECK_EQ(ctl_both(EPOLL_CTL_ADD, pipes[0], EPOLLIN, 0), 0);
	CHECK_EQ(ctl_both(EPOLL_CTL_ADD, pipes[0], EPOLLIN, 0), -EEXIST);
	for (int i = 0; i < 2; i++) {
		const struct calls *c = &both.calls[i];
		int set = both.sets[i];

		CHECK_ERRNO(c->ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
		CHECK_ERRNO(c->ctl(-1, EPOLL_CTL_ADD, pipes[0], &event), EBADF);
		CHECK_ERRNO(c->ctl(closed, EPOLL_CTL_ADD, pipes[0], &event), EBADF);
		CHECK_ERRNO(c->ctl(pipes[0], EPOLL_CTL_ADD, pipes[1], &event), EINVAL);
		CHECK_ERRNO(c->ctl(set, EPOLL_CTL_ADD, pipes[1], NULL), EFAULT);
		CHECK_OK(c->ctl(set, EPOLL_CTL_DEL, pipes[0], NULL));
		CHECK_ERRNO(c->wait(-1, &event, 1, 0), EBADF);
		CHECK_ERRNO(c->wait(closed, &event, 1, 0), EBADF);
		CHECK_ERRNO(c->wait(pipes[0], &event, 1, 0), EINVAL);
		CHECK_ERRNO(c->wait(set, &event, 0, 0), EINVAL);
		CHECK_ERRNO(c->wait(set, &event, -1, 0), EINVAL);
		CHECK_ERRNO(c->wait(set, &event, INT32_MAX, 0), EINVAL);
	}
	close_both();
}

TEST(many_ready, "[fix] a set reports as many at once as there is room for")
{
	int fds[200];

	make_both();
	for (int i = 0; i < 200; i++) {
		fds[i] = eventfd(1, 0);
		CHECK_EQ(ctl_both(EPOLL_CTL_ADD, fds[i], EPOLLIN, i), 0);
	}
	CHECK_EQ(wait_both(ROOM, 0), 200);
	CHECK_EQ(wait_both(70, 0), 70);
	CHECK_EQ(wait_both(70, 0), 70);
	/* Those that were not reported have their turn first. */
	CHECK_EQ(wait_both(100, 0), 100);
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	CHECK_EQ(wait_both(ROOM, 0), 0);
	close_both();
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void *write_later(void *argument)
{
	poll(NULL, 0, 300);
	CHECK_EQ(write(*(int *)argument, "x", 1), 1);
	return NULL;
}

TEST(timeouts, "67 [fix] waiting takes as long as asked for: not at all, a while, for ever")
{
	struct ends e = make_ends(test_addr(PORT));
	struct epoll_event event = { .events = EPOLLIN }, got;
	struct calls c = library();
	int set = c.create(0), pipes[2];
	uint64_t start;
	pthread_t thread;

	CHECK_OK(pipe(pipes));
	CHECK_OK(c.ctl(set, EPOLL_CTL_ADD, e.server, &event));
	CHECK_OK(c.ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
	CHECK_EQ(c.wait(set, &got, 1, 0), 0);
	start = now_us();
	CHECK_EQ(c.wait(set, &got, 1, 300), 0);
	CHECK(now_us() - start >= 300000);
	CHECK_OK(pthread_create(&thread, NULL, write_later, &pipes[1]));
	CHECK_EQ(c.wait(set, &got, 1, -1), 1);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(c.close(set));
	close_ends(&e);
}

static void ignore_signal(int number)
{
	(void)number;
}

TEST(interrupted, "[fix] a signal ends waiting with EINTR, even if calls are restarted")
{
	struct sigaction action = { .sa_handler = ignore_signal, .sa_flags = SA_RESTART };
	struct interrupter interrupter;
	struct epoll_event got;

	CHECK_OK(sigaction(SIGUSR1, &action, NULL));
	make_both();
	for (int i = 0; i < 2; i++) {
		start_interrupting(&interrupter);
		CHECK_ERRNO(both.calls[i].wait(both.sets[i], &got, 1, LONG), EINTR);
		stop_interrupting(&interrupter);
	}
	close_both();
}

/* ---- Stream sockets: TCP's first, then the library's --------------------- */

static struct ends tcp_ends(void)
{
	struct sockaddr *addr = make_addr("127.0.0.1", 0);
	struct sockaddr_in name;
	socklen_t length = sizeof(name);
	struct ends e = { .listener = socket(AF_INET, SOCK_STREAM, 0),
			  .client = socket(AF_INET, SOCK_STREAM, 0) };

	CHECK_OK(bind(e.listener, addr, addr_length(addr)));
	CHECK_OK(listen(e.listener, 1));
	CHECK_OK(getsockname(e.listener, (struct sockaddr *)&name, &length));
	CHECK_OK(connect(e.client, (struct sockaddr *)&name, length));
	e.server = accept(e.listener, NULL, NULL);
	CHECK(e.server >= 0);
	return e;
}

struct trial {
	struct calls c;
	struct ends e;
	int set;
};

static void add(struct trial *t, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	CHECK_OK(t->c.ctl(t->set, EPOLL_CTL_ADD, fd, &event));
}

static void change(struct trial *t, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	CHECK_OK(t->c.ctl(t->set, EPOLL_CTL_MOD, fd, &event));
}

static void drop(struct trial *t, int fd)
{
	CHECK_OK(t->c.ctl(t->set, EPOLL_CTL_DEL, fd, NULL));
}

/* The next event is of the member with this data. */
static uint32_t expect(struct trial *t, uint64_t data)
{
	struct epoll_event got;

	CHECK_EQ(t->c.wait(t->set, &got, 1, LONG), 1);
	CHECK_EQ(got.data.u64, data);
	return got.events;
}

static void expect_nothing(struct trial *t)
{
	struct epoll_event got;

	CHECK_EQ(t->c.wait(t->set, &got, 1, 50), 0);
}

static void give(struct trial *t, int fd, size_t length)
{
	static const char data[1000];

	CHECK_EQ(t->c.send(fd, data, length, 0), (ssize_t)length);
}

/* What was given may still be on its way to the socket. */
static void await_data(struct trial *t, int fd)
{
	struct pollfd arrived = { .fd = fd, .events = POLLIN };

	CHECK_EQ(t->c.poll(&arrived, 1, LONG), 1);
}

static void take(struct trial *t, int fd, size_t length)
{
	char data[1000];

	CHECK_EQ(t->c.recv(fd, data, length, MSG_WAITALL), (ssize_t)length);
}

/*
 * Until the connection is still: that a message of its own has arrived is an edge
 * as well, as long as there is data.
 */
static void settle(struct trial *t)
{
	struct trial quiet = *t;
	int fds[] = { t->e.client, t->e.server };
	struct epoll_event got;

	quiet.set = t->c.create(0);
	for (int i = 0; i < 2; i++) {
		give(t, fds[1 - i], 1);
		await_data(t, fds[i]);
		add(&quiet, fds[i], EPOLLIN | EPOLLET, i);
	}
	while (t->c.wait(quiet.set, &got, 1, 100) == 1)
		;
	for (int i = 0; i < 2; i++)
		take(t, fds[i], 1);
	CHECK_OK(t->c.close(quiet.set));
}

/* Runs it with TCP's sockets and with the library's. */
static void on_both(void (*run)(struct trial *))
{
	struct trial t = { .c = kernel, .e = tcp_ends() };

	t.set = t.c.create(0);
	run(&t);
	CHECK_OK(t.c.close(t.set));
	CHECK_OK(t.c.close(t.e.listener));

	t = (struct trial){ .c = library(), .e = make_ends(test_addr(PORT)) };
	settle(&t);
	t.set = t.c.create(0);
	run(&t);
	CHECK_OK(t.c.close(t.set));
	CHECK_OK(t.c.close(t.e.listener));
}

static void close_connection(struct trial *t)
{
	CHECK_OK(t->c.close(t->e.client));
	CHECK_OK(t->c.close(t->e.server));
}

static void run_level(struct trial *t)
{
	int fd = t->e.server;

	add(t, fd, EPOLLIN, 1);
	expect_nothing(t);
	give(t, t->e.client, 100);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	take(t, fd, 50);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	take(t, fd, 50);
	expect_nothing(t);
	change(t, fd, EPOLLIN | EPOLLOUT, 2);
	CHECK_EQ(expect(t, 2), EPOLLOUT);
	give(t, t->e.client, 1);
	change(t, fd, EPOLLIN, 3);
	CHECK_EQ(expect(t, 3), EPOLLIN);
	change(t, fd, 0, 4);
	expect_nothing(t);
	change(t, fd, EPOLLIN, 5);
	CHECK_EQ(expect(t, 5), EPOLLIN);
	drop(t, fd);
	expect_nothing(t);
	add(t, fd, EPOLLIN, 6);
	CHECK_EQ(expect(t, 6), EPOLLIN);
	close_connection(t);
}

TEST(level, "[fix] a socket is reported as long as it is ready")
{
	on_both(run_level);
}

static void run_edge(struct trial *t)
{
	int fd = t->e.server;

	give(t, t->e.client, 10);
	/* What is ready when it is added is an edge. */
	add(t, fd, EPOLLIN | EPOLLET, 1);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	expect_nothing(t);
	/* To leave some is none, more is one. */
	take(t, fd, 5);
	expect_nothing(t);
	give(t, t->e.client, 10);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	expect_nothing(t);
	take(t, fd, 15);
	expect_nothing(t);
	give(t, t->e.client, 10);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	/* A change looks again. */
	change(t, fd, EPOLLIN | EPOLLET, 2);
	CHECK_EQ(expect(t, 2), EPOLLIN);
	expect_nothing(t);
	take(t, fd, 10);
	CHECK_OK(t->c.shutdown(t->e.client, SHUT_WR));
	CHECK(expect(t, 2) & EPOLLIN);
	expect_nothing(t);
	close_connection(t);
}

TEST(edge, "71 [fix] EPOLLET reports a socket once for what happens")
{
	on_both(run_edge);
}

static void run_one_shot(struct trial *t)
{
	int fd = t->e.server;

	add(t, fd, EPOLLIN | EPOLLONESHOT, 1);
	give(t, t->e.client, 10);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	give(t, t->e.client, 10);
	expect_nothing(t);
	change(t, fd, EPOLLIN | EPOLLONESHOT, 2);
	CHECK_EQ(expect(t, 2), EPOLLIN);
	expect_nothing(t);
	/* Not even its end. */
	CHECK_OK(t->c.close(t->e.client));
	expect_nothing(t);
	change(t, fd, EPOLLIN | EPOLLONESHOT | EPOLLET, 3);
	CHECK(expect(t, 3) & EPOLLIN);
	expect_nothing(t);
	CHECK_OK(t->c.close(t->e.server));
}

TEST(one_shot, "71 [fix] EPOLLONESHOT reports a socket once, until it is changed")
{
	on_both(run_one_shot);
}

static void run_ends(struct trial *t)
{
	int fd = t->e.server;

	add(t, fd, EPOLLIN | EPOLLRDHUP, 1);
	expect_nothing(t);
	CHECK_OK(t->c.shutdown(t->e.client, SHUT_WR));
	CHECK_EQ(expect(t, 1), EPOLLIN | EPOLLRDHUP);
	take(t, fd, 0);
	change(t, fd, EPOLLIN, 1);
	CHECK_EQ(expect(t, 1), EPOLLIN);
	change(t, fd, EPOLLRDHUP, 1);
	CHECK_EQ(expect(t, 1), EPOLLRDHUP);
	/* Both ended: it is reported though nothing was asked for. */
	CHECK_OK(t->c.shutdown(fd, SHUT_WR));
	change(t, fd, 0, 2);
	CHECK_EQ(expect(t, 2), EPOLLHUP);
	close_connection(t);
}

TEST(ends_seen, "[fix] EPOLLRDHUP and EPOLLHUP tell how a connection ends")
{
	on_both(run_ends);
}

static void run_turns(struct trial *t)
{
	int fds[] = { t->e.client, t->e.server, eventfd(1, 0) };
	int seen[3] = { 0 };

	give(t, t->e.client, 1);
	give(t, t->e.server, 1);
	for (int i = 0; i < 3; i++)
		add(t, fds[i], EPOLLIN, i);
	for (int i = 0; i < 2; i++)
		await_data(t, fds[i]);
	for (int i = 0; i < 30; i++) {
		struct epoll_event got;

		CHECK_EQ(t->c.wait(t->set, &got, 1, LONG), 1);
		CHECK(got.data.u64 < 3);
		seen[got.data.u64]++;
	}
	for (int i = 0; i < 3; i++)
		CHECK(seen[i] >= 5);
	close(fds[2]);
	close_connection(t);
}

TEST(turns, "69 [fix] with room for one event, all that are ready have their turn")
{
	on_both(run_turns);
}

static void run_room(struct trial *t)
{
	static char data[65536];
	int fd = t->e.client;
	size_t sent = 0;
	ssize_t part;

	add(t, fd, EPOLLOUT | EPOLLET, 1);
	CHECK_EQ(expect(t, 1), EPOLLOUT);
	while ((part = t->c.send(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
		sent += (size_t)part;
	CHECK_EQ(errno, EAGAIN);
	/* Some may still have gone. */
	for (;;) {
		struct epoll_event got;

		if (t->c.wait(t->set, &got, 1, 200) == 0)
			break;
		while ((part = t->c.send(fd, data, sizeof(data), MSG_DONTWAIT)) > 0)
			sent += (size_t)part;
	}
	while (sent > 0) {
		part = t->c.recv(t->e.server, data, sizeof(data), 0);
		CHECK(part > 0);
		sent -= (size_t)part;
	}
	CHECK_EQ(expect(t, 1), EPOLLOUT);
	close_connection(t);
}

TEST(room, "[fix] EPOLLET tells once that there is room again")
{
	on_both(run_room);
}

/* What the connection still does by itself may show for a moment. */
static void await_quiet(struct trial *t, int outer)
{
	struct pollfd entry = { .fd = t->set, .events = POLLIN };
	struct epoll_event got;

	do {
		expect_nothing(t);
	} while (poll(&entry, 1, 0) == 1 || t->c.wait(outer, &got, 1, 0) == 1);
}

static void run_nested(struct trial *t)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 9 }, got;
	int outer = t->c.create(0);
	struct pollfd entry = { .fd = t->set, .events = POLLIN };

	add(t, t->e.server, EPOLLIN, 1);
	CHECK_OK(t->c.ctl(outer, EPOLL_CTL_ADD, t->set, &event));
	await_quiet(t, outer);
	for (int round = 0; round < 5; round++) {
		give(t, t->e.client, 1);
		CHECK_EQ(t->c.wait(outer, &got, 1, LONG), 1);
		CHECK_EQ(got.data.u64, 9);
		CHECK_EQ(poll(&entry, 1, 0), 1);
		CHECK_EQ(expect(t, 1), EPOLLIN);
		take(t, t->e.server, 1);
		await_quiet(t, outer);
	}
	CHECK_OK(t->c.close(outer));
	close_connection(t);
}

TEST(nested, "[fix] a set in a set, and in poll, is ready as long as a member is")
{
	on_both(run_nested);
}

static void run_two_sets(struct trial *t)
{
	struct trial other = *t;

	other.set = t->c.create(0);
	add(t, t->e.server, EPOLLIN | EPOLLET, 1);
	add(&other, t->e.server, EPOLLIN | EPOLLET, 2);
	for (int round = 0; round < 20; round++) {
		give(t, t->e.client, 1);
		CHECK_EQ(expect(t, 1), EPOLLIN);
		CHECK_EQ(expect(&other, 2), EPOLLIN);
		take(t, t->e.server, 1);
	}
	CHECK_OK(t->c.close(other.set));
	close_connection(t);
}

TEST(two_sets, "[fix] each set that a socket is in reports it")
{
	on_both(run_two_sets);
}

/* ---- Threads -------------------------------------------------------------- */

struct waiting {
	struct trial *t;
	struct epoll_event got;
	int result, error;
};

static void *wait_long(void *argument)
{
	struct waiting *waiting = argument;

	waiting->result = waiting->t->c.wait(waiting->t->set, &waiting->got, 1, -1);
	waiting->error = errno;
	return NULL;
}

static void run_threads(struct trial *t)
{
	struct waiting waiting[4];
	pthread_t threads[4];

	add(t, t->e.server, EPOLLIN, 1);
	for (int i = 0; i < 4; i++) {
		waiting[i].t = t;
		CHECK_OK(pthread_create(&threads[i], NULL, wait_long, &waiting[i]));
	}
	await_sleep();
	give(t, t->e.client, 1);
	for (int i = 0; i < 4; i++) {
		CHECK_OK(pthread_join(threads[i], NULL));
		CHECK_EQ(waiting[i].result, 1);
		CHECK_EQ(waiting[i].got.data.u64, 1);
	}
	close_connection(t);
}

TEST(threads, "[fix] what is ready wakes all threads that wait for its set")
{
	on_both(run_threads);
}

TEST(closed_meanwhile, "70 [fix] a set that is closed lets go of a thread that waits for it")
{
	struct trial t = { .c = library(), .e = make_ends(test_addr(PORT)) };
	struct waiting waiting = { .t = &t };
	pthread_t thread;

	t.set = t.c.create(0);
	add(&t, t.e.server, EPOLLIN, 1);
	CHECK_OK(pthread_create(&thread, NULL, wait_long, &waiting));
	await_sleep();
	CHECK_OK(t.c.close(t.set));
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_EQ(waiting.result, -1);
	CHECK_EQ(waiting.error, EBADF);
	close_ends(&t.e);
}

/* A program may close what it no longer uses by close(2); what then gets the
   number must not suffer. */
TEST(plain_close, "[fix] close(2) of a set does the next one no harm")
{
	struct calls c = library();
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 3 }, got;
	int pipes[2], set = c.create(0);

	CHECK_OK(pipe(pipes));
	CHECK_OK(c.ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
	CHECK_OK(close(set));
	CHECK_EQ(c.create(0), set);
	CHECK(fcntl(set, F_GETFD) >= 0);
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	CHECK_EQ(c.wait(set, &got, 1, 0), 0);
	CHECK_OK(c.ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
	CHECK_EQ(c.wait(set, &got, 1, 0), 1);
	CHECK_EQ(got.data.u64, 3);
	CHECK_OK(c.close(set));
	CHECK_EQ(fcntl(set, F_GETFD), -1);
	/* A socket may get it as well. */
	set = c.create(0);
	CHECK_OK(close(set));
	CHECK_EQ(rsocket(AF_INET, SOCK_STREAM, 0), set);
	CHECK_ERRNO(c.wait(set, &got, 1, 0), EINVAL);
	CHECK_OK(rclose(set));
	CHECK_EQ(fcntl(set, F_GETFD), -1);
}

/* ---- Forks ---------------------------------------------------------------- */

struct busy {
	struct calls c;
	int set, reader;
	atomic_bool over;
};

static void *keep_changing(void *argument)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct busy *busy = argument;

	while (!atomic_load(&busy->over)) {
		CHECK_OK(busy->c.ctl(busy->set, EPOLL_CTL_ADD, busy->reader, &event));
		CHECK_OK(busy->c.close(busy->c.create(0)));
		CHECK_OK(busy->c.ctl(busy->set, EPOLL_CTL_DEL, busy->reader, &event));
	}
	return NULL;
}

static void replace_set(void *argument)
{
	struct epoll_event event = { .events = EPOLLIN }, got;
	struct busy *busy = argument;

	/* Nobody is here to let go of what the thread held. */
	alarm(LONG / 1000);
	CHECK_ERRNO(busy->c.wait(busy->set, &got, 1, 0), EBADF);
	CHECK_ERRNO(busy->c.ctl(busy->set, EPOLL_CTL_ADD, busy->reader, &event), EBADF);
	CHECK_OK(busy->c.close(busy->set));
	CHECK_EQ(busy->c.create(0), busy->set);
	CHECK_OK(busy->c.ctl(busy->set, EPOLL_CTL_ADD, busy->reader, &event));
	CHECK_EQ(busy->c.wait(busy->set, &got, 1, 0), 0);
	CHECK_OK(busy->c.close(busy->set));
}

/* No socket was ever made here: the set is what the library is first used for. */
TEST(forks, "[fix] a child has sets of its own, whatever threads of its parent do with theirs",
     .timeout = 60)
{
	struct busy busy = { .c = library() };
	int pipes[2];
	pthread_t thread;

	CHECK_OK(pipe(pipes));
	busy.reader = pipes[0];
	busy.set = busy.c.create(0);
	CHECK(busy.set >= 0);
	CHECK_OK(pthread_create(&thread, NULL, keep_changing, &busy));
	for (int round = 0; round < 200; round++)
		run_in_child(replace_set, &busy);
	atomic_store(&busy.over, true);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(busy.c.close(busy.set));
}
