/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What is hard for a library that stands between a program and its sockets:
 * signals, jumps, threads, limits, children, and functions found by name.
 * Called as harness.h says.
 */
#include "harness.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* --- signals ------------------------------------------------------------ */

static volatile sig_atomic_t signals;
static sigjmp_buf back;

static void count_signal(int number)
{
	(void)number;
	signals++;
}

static void jump(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

static void handle(int number, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	need(sigaction(number, &action, NULL) == 0);
}

/* Signals that come again and again: one that comes before the call begins to
   wait is followed by another. */
static void ring(bool on)
{
	struct itimerval time = { 0 };

	if (on)
		time.it_value.tv_usec = time.it_interval.tv_usec = 50000;
	need(setitimer(ITIMER_REAL, &time, NULL) == 0);
}

static void interrupted(void)
{
	struct sockaddr_in at;
	int ends[2], listener = bound(&at);
	struct pollfd entry = { .events = POLLIN };
	char byte;

	connected(ends);
	entry.fd = ends[1];
	handle(SIGALRM, count_signal, 0);
	ring(true);
	need(recv(ends[1], &byte, 1, 0) == -1 && errno == EINTR);
	need(read(ends[1], &byte, 1) == -1 && errno == EINTR);
	need(accept(listener, NULL, NULL) == -1 && errno == EINTR);
	need(poll(&entry, 1, -1) == -1 && errno == EINTR);
	handle(SIGALRM, count_signal, SA_RESTART);
	need(poll(&entry, 1, -1) == -1 && errno == EINTR);
	ring(false);
	say(ends[0], ends[1], "all the same");
}

static void *ring_and_send(void *ends)
{
	int before = signals;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (signals < before + 5)
		usleep(1000);
	need(write(((int *)ends)[0], "x", 1) == 1);
	return NULL;
}

static void restarted(void)
{
	pthread_t sender;
	int ends[2];
	char byte;

	connected(ends);
	handle(SIGALRM, count_signal, SA_RESTART);
	need(pthread_create(&sender, NULL, ring_and_send, ends) == 0);
	ring(true);
	need(recv(ends[1], &byte, 1, 0) == 1 && byte == 'x');
	ring(false);
	need(pthread_join(sender, NULL) == 0);
}

/* Waits until a thread sleeps in a call that waits for events: it holds no lock. */
static void until_asleep(pid_t thread)
{
	char name[64];
	long call = -1;

	snprintf(name, sizeof(name), "/proc/self/task/%d/syscall", thread);
	while (call != SYS_recvfrom && call != SYS_poll && call != SYS_ppoll) {
		FILE *file = fopen(name, "r");

		need(file);
		/* A thread that runs has no number there. */
		if (fscanf(file, "%ld", &call) != 1)
			call = -1;
		fclose(file);
		usleep(1000);
	}
}

static void *signal_sleeper(void *sleeper)
{
	until_asleep(getpid());
	need(pthread_kill(*(pthread_t *)sleeper, SIGUSR1) == 0);
	return NULL;
}

static void jumps(void)
{
	struct pollfd entry = { .events = POLLIN };
	pthread_t self = pthread_self(), other;
	volatile int round;
	int ends[2];
	char byte;

	connected(ends);
	entry.fd = ends[1];
	handle(SIGUSR1, jump, 0);
	for (round = 0; round < 2; round++) {
		if (sigsetjmp(back, 1) == 0) {
			need(pthread_create(&other, NULL, signal_sleeper, &self) == 0);
			if (round == 0)
				recv(ends[1], &byte, 1, 0);
			else
				poll(&entry, 1, -1);
			fail(__LINE__, "waits");
		}
		need(pthread_join(other, NULL) == 0);
		need(is_over_rdma(ends[0]) && is_over_rdma(ends[1]));
		say(ends[0], ends[1], "after a jump");
		say(ends[1], ends[0], "and back");
	}
	need(close(ends[0]) == 0 && read(ends[1], &byte, 1) == 0);
}

static void broken_pipe(void)
{
	int ends[2];

	connected(ends);
	handle(SIGPIPE, count_signal, 0);
	need(shutdown(ends[0], SHUT_WR) == 0);
	need(send(ends[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && signals == 0);
	need(send(ends[0], "x", 1, 0) == -1 && errno == EPIPE && signals == 1);
	need(write(ends[0], "x", 1) == -1 && errno == EPIPE && signals == 2);
	connected(ends);
	need(close(ends[1]) == 0);
	while (write(ends[0], "x", 1) == 1)
		;
	need(errno == EPIPE || errno == ECONNRESET);
}

static sem_t begins;
static pid_t begun;

static void *wait_for_data(void *ends)
{
	char byte;

	begun = gettid();
	need(sem_post(&begins) == 0);
	recv(((int *)ends)[1], &byte, 1, 0);
	fail(__LINE__, "goes on");
}

static void cancelled(void)
{
	pthread_t thread;
	void *result;
	int ends[2];

	connected(ends);
	need(sem_init(&begins, 0, 0) == 0);
	need(pthread_create(&thread, NULL, wait_for_data, ends) == 0);
	while (sem_wait(&begins) != 0)
		;
	until_asleep(begun);
	need(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	need(result == PTHREAD_CANCELED);
	say(ends[0], ends[1], "without it");
}

/* --- threads ------------------------------------------------------------ */

enum { WORKERS = 6, ROUNDS = 4 };

static struct sockaddr_in served;

static void *serve(void *listener)
{
	for (int i = 0; i < ROUNDS; i++) {
		char got[3000];
		int fd = accept(*(int *)listener, NULL, NULL);

		need(fd >= 0);
		need(recv(fd, got, sizeof(got), MSG_WAITALL) == sizeof(got));
		need(send(fd, got, sizeof(got), 0) == sizeof(got));
		need(recv(fd, got, 1, 0) == 0 && close(fd) == 0);
	}
	return NULL;
}

static void *ask(void *nothing)
{
	for (int i = 0; i < ROUNDS; i++) {
		char said[3000], got[3000];
		int fd = socket(AF_INET, SOCK_STREAM, 0), copy;

		need(fd >= 0 && connect(fd, (struct sockaddr *)&served, sizeof(served)) == 0);
		need(is_over_rdma(fd));
		copy = dup(fd);
		need(copy >= 0);
		memset(said, fd, sizeof(said));
		need(send(fd, said, sizeof(said), 0) == sizeof(said) && close(fd) == 0);
		need(recv(copy, got, sizeof(got), MSG_WAITALL) == sizeof(got));
		need(memcmp(said, got, sizeof(got)) == 0 && close(copy) == 0);
	}
	return nothing;
}

static void worked_on(void)
{
	pthread_t workers[2 * WORKERS];
	int listener = bound(&served);

	for (int i = 0; i < 2 * WORKERS; i++)
		need(pthread_create(&workers[i], NULL, i % 2 ? ask : serve, &listener) == 0);
	for (int i = 0; i < 2 * WORKERS; i++)
		need(pthread_join(workers[i], NULL) == 0);
}

/* --- descriptors -------------------------------------------------------- */

static int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += syscall(SYS_fcntl, fd, F_GETFD) >= 0;
	return count;
}

static void exhausted(void)
{
	struct rlimit limit, few;
	int ends[2], fds[64], count = 0, before;

	connected(ends);
	need(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	before = open_descriptors();
	few = (struct rlimit){ before + 20, limit.rlim_max };
	need(setrlimit(RLIMIT_NOFILE, &few) == 0);
	while (count < 64 && (fds[count] = socket(AF_INET, SOCK_STREAM, 0)) >= 0)
		count++;
	need(count > 0 && count < 64 && errno == EMFILE);
	need(dup(ends[0]) == -1 && errno == EMFILE);
	need(socket(AF_INET, SOCK_DGRAM, 0) == -1 && errno == EMFILE);
	say(ends[0], ends[1], "all the same");
	while (count > 0)
		need(close(fds[--count]) == 0);
	need(open_descriptors() <= before);
	need(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	connected(ends);
	say(ends[0], ends[1], "enough again");
}

/* As programs do that begin to serve. */
static void closes_all(void)
{
	int ends[2];

	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	connected(ends);
	say(ends[0], ends[1], "afterwards");
	closefrom(ends[0] > ends[1] ? ends[0] + 1000 : ends[1] + 1000);
	say(ends[1], ends[0], "still");
}

static void flags_at_birth(void)
{
	struct sockaddr_in at;
	int listener = bound(&at), fd, ends[2];

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	need(fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
	need(fcntl(fd, F_SETFL, 0) == 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	need(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	need(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	need(poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, -1) == 1);
	ends[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	need(ends[0] >= 0 && fcntl(ends[0], F_GETFD) & FD_CLOEXEC);
	need(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	need(recv(ends[0], &at, 1, 0) == -1 && errno == EAGAIN);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	need(poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, -1) == 1);
	ends[1] = accept(listener, NULL, NULL);
	need(ends[1] >= 0 && !(fcntl(ends[1], F_GETFL) & O_NONBLOCK));
	need(!(fcntl(ends[1], F_GETFD) & FD_CLOEXEC));
	say(fd, ends[1], "blocks");
}

/* --- options and addresses ----------------------------------------------- */

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	need(getsockopt(fd, level, name, &value, &len) == 0 && len == sizeof(value));
	return value;
}

static void options(void)
{
	static const struct {
		int level, name, value;
	} set[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1 }, { SOL_SOCKET, SO_REUSEPORT, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 5 }, { IPPROTO_TCP, TCP_KEEPINTVL, 2 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 }, { IPPROTO_TCP, TCP_USER_TIMEOUT, 9000 },
		{ IPPROTO_IP, IP_TOS, 0x10 },
	};
	struct linger linger = { 1, 7 }, got = { 0, 0 };
	struct timeval time = { 0, 200000 };
	int ends[2], fd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(got);
	double start;
	char byte;

	need(is_over_rdma(fd));
	need(option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
	need(option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	need(option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
	need(option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		if (setsockopt(fd, set[i].level, set[i].name, &set[i].value, sizeof(int)) != 0 ||
		    option(fd, set[i].level, set[i].name) != set[i].value) {
			printf("# option %d of level %d\n", set[i].name, set[i].level);
			fail(__LINE__, "option");
		}
	}
	need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	need(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &len) == 0 && got.l_linger == 7);
	connected(ends);
	need(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	start = now();
	need(recv(ends[1], &byte, 1, 0) == -1 && errno == EAGAIN && now() - start >= 0.199);
}

static void address_given(void)
{
	struct sockaddr_in at = address;
	struct iovec vector = { "by a message", 12 };
	struct msghdr message = { .msg_name = &at, .msg_namelen = sizeof(at),
				  .msg_iov = &vector, .msg_iovlen = 1 };
	char got[32] = "";
	int ends[2];

	connected(ends);
	need(sendto(ends[0], "to an address", 13, 0, (struct sockaddr *)&at, sizeof(at)) == 13);
	need(sendmsg(ends[0], &message, 0) == 12);
	need(recvfrom(ends[1], got, 25, MSG_WAITALL, (struct sockaddr *)&at,
		      &(socklen_t){ sizeof(at) }) == 25);
	need(memcmp(got, "to an addressby a message", 25) == 0);
}

static void flags_of_calls(void)
{
	char got[16] = "";
	int ends[2];

	connected(ends);
	need(send(ends[0], "fir", 3, MSG_MORE | MSG_NOSIGNAL) == 3);
	need(send(ends[0], "st", 2, 0) == 2);
	need(recv(ends[1], got, 5, MSG_WAITALL | MSG_PEEK) == 5 && memcmp(got, "first", 5) == 0);
	need(recv(ends[1], got, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && got[0] == 'f');
	need(recv(ends[1], got, 5, MSG_WAITALL) == 5 && memcmp(got, "first", 5) == 0);
	need(recv(ends[1], got, 5, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	need(send(ends[0], NULL, 0, 0) == 0);
}

static void from_getaddrinfo(void)
{
	struct addrinfo hints = { .ai_family = AF_INET6, .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE }, *list;
	struct sockaddr_in6 at;
	struct sockaddr_in to = address;
	socklen_t len = sizeof(at);
	int listener, fd, peer, off = 0;

	need(getaddrinfo(NULL, "7633", &hints, &list) == 0);
	listener = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, list->ai_protocol);
	need(listener >= 0);
	need(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0);
	need(option(listener, IPPROTO_IPV6, IPV6_V6ONLY) == 0);
	need(bind(listener, list->ai_addr, list->ai_addrlen) == 0 && listen(listener, 5) == 0);
	freeaddrinfo(list);
	to.sin_port = htons(7633);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && is_over_rdma(fd));
	peer = accept(listener, (struct sockaddr *)&at, &len);
	need(peer >= 0 && is_over_rdma(peer));
	need(at.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&at.sin6_addr));
	say(fd, peer, "over either");
}

static void shared_port(void)
{
	struct sockaddr_in at = address, from;
	socklen_t len = sizeof(at);
	int first = socket(AF_INET, SOCK_DGRAM, 0), second = socket(AF_INET, SOCK_DGRAM, 0);
	int peer = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	char got[8];

	need(setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	need(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
	need(bind(first, (struct sockaddr *)&at, len) == 0);
	need(getsockname(first, (struct sockaddr *)&at, &len) == 0);
	need(connect(peer, (struct sockaddr *)&at, len) == 0);
	need(send(peer, "hello", 5, 0) == 5);
	need(recvfrom(first, got, 8, 0, (struct sockaddr *)&from, &len) == 5);
	need(connect(first, (struct sockaddr *)&from, len) == 0);
	need(bind(second, (struct sockaddr *)&at, len) == 0);
	need(send(first, "answer", 6, 0) == 6 && recv(peer, got, 8, 0) == 6);
	need(send(peer, "again", 5, 0) == 5 && recv(first, got, 8, 0) == 5);
}

/* --- children, and functions found by name ------------------------------- */

static void spawns(void)
{
	char *words[] = { "sh", "-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&-; cat", NULL };
	posix_spawn_file_actions_t actions;
	int ends[2], in[2], out[2], status;
	char got[8] = "";
	pid_t child;

	connected(ends);
	need(pipe(in) == 0 && pipe(out) == 0);
	need(posix_spawn_file_actions_init(&actions) == 0);
	need(posix_spawn_file_actions_adddup2(&actions, in[0], 0) == 0);
	need(posix_spawn_file_actions_adddup2(&actions, out[1], 1) == 0);
	need(posix_spawn_file_actions_addclose(&actions, in[1]) == 0);
	need(posix_spawn_file_actions_addclose(&actions, ends[0]) == 0);
	need(posix_spawnp(&child, "sh", &actions, NULL, words, environ) == 0);
	need(write(in[1], "hello", 5) == 5 && close(in[1]) == 0);
	need(waitpid(child, &status, 0) == child && status == 0);
	need(read(out[0], got, 8) == 5 && memcmp(got, "hello", 5) == 0);
	say(ends[0], ends[1], "after a child");
	need(system("exec 3>&- 4>&- 5>&- 6>&-; true") == 0);
	say(ends[1], ends[0], "and another");
}

static void by_name(void)
{
	void *handles[] = { RTLD_DEFAULT, RTLD_NEXT, dlopen(NULL, RTLD_NOW) };

	for (int i = 0; i < 3; i++) {
		int (*make)(int, int, int) = dlsym(handles[i], "socket");
		int (*end)(int) = dlsym(handles[i], "close");
		int fd;

		need(make && end);
		fd = make(AF_INET, SOCK_STREAM, 0);
		need(fd >= 0 && is_over_rdma(fd) && end(fd) == 0);
	}
}

/* A socket made before main. */
static int early = -1;

__attribute__((constructor(101))) static void before_main(void)
{
	if (getenv("PRELOAD_EARLY"))
		early = socket(AF_INET, SOCK_STREAM, 0);
}

static void has_early(void)
{
	struct sockaddr_in at;
	int listener = bound(&at), peer;

	need(early >= 0 && is_over_rdma(early));
	need(connect(early, (struct sockaddr *)&at, sizeof(at)) == 0);
	peer = accept(listener, NULL, NULL);
	need(peer >= 0);
	say(early, peer, "early");
}

static void before_others(void)
{
	need(setenv("PRELOAD_EARLY", "1", 1) == 0);
	run_case("has-early");
}

static void talks(void)
{
	int ends[2];

	connected(ends);
	say(ends[0], ends[1], "there");
	say(ends[1], ends[0], "and back");
}

static void with_librdmacm(bool before)
{
	const char *own = getenv("LD_PRELOAD"), *first = before ? "librdmacm.so.1" : own;
	char *words[] = { program, shown_address(), "talks", NULL };
	char both[512];

	if (!own) {
		talks();
		return;
	}
	snprintf(both, sizeof(both), "%s:%s", first, before ? own : "librdmacm.so.1");
	need(setenv("LD_PRELOAD", both, 1) == 0);
	need(run(words) == 0);
}

static void before_librdmacm(void)
{
	with_librdmacm(false);
}

static void after_librdmacm(void)
{
	with_librdmacm(true);
}

/* --- children of threads that are at work ---------------------------------- */

enum { CHILDREN = 40, BEGINNERS = 15, PATIENCE = 20 };

static volatile bool over;

/* With sockets and a set of one's own. */
static void use_sockets(int rounds)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0), error;
	struct sockaddr_in at = address;
	socklen_t len = sizeof(error);
	char byte;

	need(fd >= 0 && set >= 0);
	need(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	for (int i = 0; i < rounds && !over; i++) {
		need(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0);
		need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
		need(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == ENOTCONN);
	}
	need(close(fd) == 0 && close(set) == 0);
}

static void *work(void *nothing)
{
	while (!over)
		use_sockets(1000);
	return nothing;
}

/* A child does what its parent's threads do, and ends. */
static void raise_child(void)
{
	int status;
	pid_t pid = fork();

	need(pid >= 0);
	if (pid == 0) {
		alarm(PATIENCE);
		use_sockets(1);
		exit(0);
	}
	need(waitpid(pid, &status, 0) == pid && status == 0);
}

static void busy_parent(void)
{
	pthread_t threads[WORKERS];

	for (int i = 0; i < WORKERS; i++)
		need(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (int i = 0; i < CHILDREN; i++)
		raise_child();
	over = true;
	for (int i = 0; i < WORKERS; i++)
		need(pthread_join(threads[i], NULL) == 0);
}

static void busy_parent_of_tcp(void)
{
	need(setenv("RDMAV_FORK_SAFE", "1", 1) == 0);
	run_case("busy-parent");
}

static void *begin(void *nothing)
{
	use_sockets(1);
	return nothing;
}

/* Forks while its thread, after so long, is somewhere in the first calls of all. */
static void begin_and_fork(useconds_t delay)
{
	pthread_t thread;

	need(pthread_create(&thread, NULL, begin, NULL) == 0);
	usleep(delay);
	raise_child();
	need(pthread_join(thread, NULL) == 0);
}

static void beginning_parent(void)
{
	for (int i = 0; i < BEGINNERS; i++) {
		int status;
		pid_t pid = fork();

		need(pid >= 0);
		if (pid == 0) {
			begin_and_fork(i * 1000);
			exit(0);
		}
		need(waitpid(pid, &status, 0) == pid && status == 0);
	}
}

/* --- configuration -------------------------------------------------------- */

static void no_datagrams(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	need(fd >= 0 && (getenv("TCP") || !is_over_rdma(fd)));
	talks();
}

static void bad_lines(void)
{
	static const char bytes[] = "\xff\xfe\x01 garbage\n\0\0 * *\n";
	FILE *file;

	in_own_namespace();
	mkdir("/etc/rdma", 0755);
	need(mount("none", "/etc/rdma", "tmpfs", 0, NULL) == 0);
	need(mkdir("/etc/rdma/rsocket", 0755) == 0);
	file = fopen("/etc/rdma/rsocket/preload_config", "w");
	need(file && fwrite(bytes, 1, sizeof(bytes) - 1, file) == sizeof(bytes) - 1);
	need(fputs("* raw * *\n* INET stream\n* inet stream tcp\r\n#* * * *\nhard", file) >= 0);
	for (int i = 0; i < 100000; i++)
		need(fputs("x * * * ", file) >= 0);
	need(fclose(file) == 0);
	run_case("no-datagrams");
}

const struct test_case cases[] = {
	{ "interrupted", interrupted, "signals end calls that wait" },
	{ "restarted", restarted, "signals that restart calls let a receive go on" },
	{ "jumps", jumps, "a signal handler that jumps out of a wait" },
	{ "broken-pipe", broken_pipe, "writing to an end gives SIGPIPE unless it is not wanted" },
	{ "cancelled", cancelled, "a thread that waits is cancelled" },
	{ "worked-on", worked_on, "many threads connect, accept, duplicate and close" },
	{ "exhausted", exhausted, "without free descriptors calls fail and connections go on" },
	{ "closes-all", closes_all, "a program that closes everything first" },
	{ "flags-at-birth", flags_at_birth, "SOCK_NONBLOCK and SOCK_CLOEXEC" },
	{ "options", options, "options are kept" },
	{ "address-given", address_given, "an address given to a stream does not matter" },
	{ "flags-of-calls", flags_of_calls, "flags of send and recv" },
	{ "from-getaddrinfo", from_getaddrinfo, "a listener of both IP versions" },
	{ "shared-port", shared_port, "two datagram sockets share a port" },
	{ "spawns", spawns, "children that close and duplicate descriptors when they are spawned" },
	{ "busy-parent", busy_parent, "children of a program whose threads use sockets" },
	{ "busy-parent-of-tcp", busy_parent_of_tcp,
	  "children of a program whose threads use sockets that survive forks" },
	{ "beginning-parent", beginning_parent,
	  "children of a program whose thread makes its first socket" },
	{ "by-name", by_name, "functions that are found by name" },
	{ "before-others", before_others, "a socket that is made before main" },
	{ "before-librdmacm", before_librdmacm, "librdmacm preloaded behind it" },
	{ "after-librdmacm", after_librdmacm, "librdmacm preloaded before it" },
	{ "bad-lines", bad_lines, "bad lines of the configuration are passed over" },
	{ "has-early", has_early, NULL },
	{ "talks", talks, NULL },
	{ "no-datagrams", no_datagrams, NULL },
	{ NULL, NULL, NULL },
};

int main(int argc, char *argv[])
{
	return run_cases(argc, argv);
}
