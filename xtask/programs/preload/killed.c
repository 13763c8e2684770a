/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * With RDMAV_FORK_SAFE connections begin by TCP and go over to RDMA at their
 * first use: one side is killed before it has done its part of that, and the
 * other's calls end.
 *
 * Called as harness.h says.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* Seconds in which the calls end; the connection manager of a port that nobody
 * listens to answers at once. */
enum { SOON = 30 };

/* How far the side that accepts comes. */
enum step { ACCEPTED, READY };

static void kill_and_wait(pid_t pid)
{
	int status;

	need(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	need(WIFSIGNALED(status));
}

/* Looks at what has come by TCP, past the library. */
static void wait_for_tcp(int fd, short events)
{
	struct pollfd entry = { .fd = fd, .events = events };

	need(syscall(SYS_poll, &entry, 1, -1) == 1);
}

/*
 * Connects to a process that is killed at a step; the first use of the
 * connection comes afterwards. What the process had of the host is given back.
 */
static int left_alone(enum step step)
{
	struct sockaddr_in at;
	int listener = bound(&at), fd, told[2];
	char byte;
	pid_t pid;

	need(pipe(told) == 0);
	pid = fork();
	need(pid >= 0);
	if (pid == 0) {
		int peer = accept(listener, NULL, NULL);

		need(peer >= 0 && write(told[1], "x", 1) == 1);
		if (step == READY)
			recv(peer, &byte, 1, 0);
		pause();
	}
	need(close(listener) == 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	need(read(told[0], &byte, 1) == 1);
	if (step == READY)
		wait_for_tcp(fd, POLLIN);
	kill_and_wait(pid);
	wait_for_tcp(fd, POLLRDHUP);
	sem_unlink("/rsocket_fork");
	return fd;
}

static void receives(enum step step)
{
	int fd = left_alone(step);
	double begin = now();
	char got[8];
	ssize_t count = recv(fd, got, sizeof(got), 0);

	need(count == 0 || (count == -1 && errno == ECONNRESET));
	need(now() - begin < SOON && !is_over_rdma(fd));
	need(close(fd) == 0);
}

/* What is sent may still be taken; a further call then tells. */
static void sends(enum step step)
{
	int fd = left_alone(step);
	double begin = now();
	ssize_t count = 0;

	while (count >= 0 && now() - begin < SOON)
		count = send(fd, "x", 1, MSG_NOSIGNAL);
	need(count == -1 && (errno == EPIPE || errno == ECONNRESET));
	need(now() - begin < SOON && !is_over_rdma(fd));
	need(close(fd) == 0);
}

static void polls(enum step step)
{
	struct pollfd entry = { .fd = left_alone(step), .events = POLLIN };

	need(poll(&entry, 1, SOON * 1000) == 1 && entry.revents != 0);
	need(close(entry.fd) == 0);
}

static void all_calls(enum step step)
{
	receives(step);
	sends(step);
	polls(step);
}

static void killed_after_accept(void)
{
	all_calls(ACCEPTED);
}

static void killed_when_ready(void)
{
	all_calls(READY);
}

/* The side that connected is gone, or never comes. */
static void killed_client(void)
{
	struct sockaddr_in at;
	int listener = bound(&at), fd, told[2];
	double begin;
	char byte;
	pid_t pid;

	need(pipe(told) == 0);
	pid = fork();
	need(pid >= 0);
	if (pid == 0) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
		need(write(told[1], "x", 1) == 1);
		pause();
	}
	need(read(told[0], &byte, 1) == 1);
	fd = accept(listener, NULL, NULL);
	need(fd >= 0);
	kill_and_wait(pid);
	wait_for_tcp(fd, POLLRDHUP);
	begin = now();
	need(recv(fd, &byte, 1, 0) <= 0 && now() - begin < SOON);
	need(!is_over_rdma(fd) && close(fd) == 0);
}

static void fork_safe(const char *name)
{
	setenv("RDMAV_FORK_SAFE", "1", 1);
	run_case(name);
}

static void after_accept(void)
{
	fork_safe("killed-after-accept");
}

static void when_ready(void)
{
	fork_safe("killed-when-ready");
}

static void client(void)
{
	fork_safe("killed-client");
}

const struct test_case cases[] = {
	{ "after-accept", after_accept, "a server that forks is killed before it goes over to RDMA" },
	{ "when-ready", when_ready, "a server that forks is killed while it goes over to RDMA" },
	{ "client", client, "a client of one that forks is killed before it goes over to RDMA" },
	{ "killed-after-accept", killed_after_accept, NULL },
	{ "killed-when-ready", killed_when_ready, NULL },
	{ "killed-client", killed_client, NULL },
	{ NULL, NULL, NULL },
};

int main(int argc, char *argv[])
{
	return run_cases(argc, argv);
}
