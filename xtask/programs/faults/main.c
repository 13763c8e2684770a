/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lets every system call of one kind that a connection makes fail in turn, and
 * judges how the connection ends.
 *
 *	faults ADDRESS CALL FAULT WINDOW EVERY
 *
 * CALL is the system call, FAULT an errno by name or "short", WINDOW more
 * calls than one connection (or the loader) makes, EVERY which of them to let fail (1: all).
 *
 * This process (the judge) is the healthy peer (peer.c) and starts itself once
 * more under strace, which lets call number WINDOW of each thread fail. That
 * process forks a victim (victim.c) per fault, which starts with as many idle
 * calls as it takes. So one tracer serves all faults of a kind.
 *
 * Each victim must end within LIMIT with success or a documented error, must
 * then be able to connect again, and must afterwards have as many descriptors
 * and as much memory in use as one that saw no fault.
 *
 * Output: a TAP line per side and style, and "faults: N", their number.
 */
#include "faults.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	/* Milliseconds for one victim. It needs a fraction of one second. */
	LIMIT = 30000,
	/*
	 * Bytes that say nothing: malloc gives a few too many where the rest of
	 * a free block would be too small for another. No object of the library
	 * is this small.
	 */
	SLACK = 48,
};

static const struct call {
	const char *name;
	long number;
} CALLS[] = {
	{ "write", SYS_write },
	{ "ioctl", SYS_ioctl },
	{ "openat", SYS_openat },
	{ "newfstatat", SYS_newfstatat },
	{ "statx", SYS_statx },
	{ "socket", SYS_socket },
	{ "bind", SYS_bind },
	{ "sendto", SYS_sendto },
	{ "recvfrom", SYS_recvfrom },
	{ "sendmsg", SYS_sendmsg },
	{ "recvmsg", SYS_recvmsg },
	{ "mmap", SYS_mmap },
};

static const struct fault {
	const char *name;
	/* As strace wants it. */
	const char *tampering;
	/* What a command of the library then fails with. */
	int error;
} FAULTS[] = {
	{ "ENOMEM", "error=ENOMEM", ENOMEM }, { "EINTR", "error=EINTR", EINTR },
	{ "EIO", "error=EIO", EIO },	      { "EAGAIN", "error=EAGAIN", EAGAIN },
	{ "short", "retval=4", ENODATA },
};

static const char *const SIDE_NAMES[] = { "client", "server", "member" };
static const char *const STYLE_NAMES[] = { "asynchronous", "synchronous" };

void need(bool good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

struct sockaddr_storage with_port(const struct sockaddr *address, uint16_t port)
{
	struct sockaddr_storage result = { .ss_family = 0 };

	memcpy(&result, address, sizeof(struct sockaddr_in));
	((struct sockaddr_in *)&result)->sin_port = port;
	return result;
}

/* The process that forks victims, under strace. */
struct factory {
	int orders;
	int reports;
	pid_t process;
};

/* What one victim came to. */
struct verdict {
	struct report tried;
	struct report settled;
	bool timely;
	int status;
};

struct judge {
	const struct call *call;
	const struct fault *fault;
	int window;
	int every;
	struct factory factory;
	struct peer *peer;
};

static void start_factory(struct judge *judge, char **argv)
{
	char trace[32], inject[64];
	int orders[2], reports[2];

	snprintf(trace, sizeof(trace), "trace=%s", judge->call->name);
	snprintf(inject, sizeof(inject), "inject=%s:%s:when=%s", judge->call->name,
		 judge->fault->tampering, argv[4]);
	need(!pipe2(orders, O_CLOEXEC) && !pipe2(reports, O_CLOEXEC), "pipe2");
	judge->factory = (struct factory){ orders[1], reports[0], fork() };
	need(judge->factory.process >= 0, "fork");
	if (judge->factory.process)
		return;
	dup2(orders[0], STDIN_FILENO);
	dup2(reports[1], STDOUT_FILENO);
	/* Without a cache, what was freed is not in use. */
	setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
	execlp("strace", "strace", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", trace,
	       "-e", inject, argv[0], argv[1], argv[2], argv[3], argv[4], "victims", NULL);
	need(false, "strace");
}

/* Takes a report, if one comes within these milliseconds; serves the peer. */
static bool take_report(struct judge *judge, struct report *report, int timeout)
{
	struct pollfd entries[] = {
		{ .fd = judge->factory.reports, .events = POLLIN },
		{ .fd = peer_descriptor(judge->peer), .events = POLLIN },
	};
	struct iovec vector = { report, sizeof(*report) };

	while (poll(entries, 2, timeout) > 0) {
		/* First: what the peer has to do may be a consequence. */
		if (entries[0].revents) {
			need(readv(entries[0].fd, &vector, 1) == sizeof(*report), "readv");
			return true;
		}
		peer_step(judge->peer);
	}
	return false;
}

static struct verdict run_victim(struct judge *judge, const struct order *order)
{
	struct iovec vector = { (void *)order, sizeof(*order) };
	struct verdict verdict = { .timely = true };
	struct report report = { .process = 0 };
	pid_t victim = 0;

	need(writev(judge->factory.orders, &vector, 1) == sizeof(*order), "writev");
	while (true) {
		if (!take_report(judge, &report, LIMIT)) {
			need(verdict.timely && victim, "victim that can be killed");
			verdict.timely = false;
			kill(victim, SIGKILL);
			continue;
		}
		switch (report.kind) {
		case STARTED:
			victim = report.process;
			break;
		case LISTENING:
			peer_connect(judge->peer, report.port);
			break;
		case ACCEPTED:
			peer_accepted(judge->peer);
			break;
		case TRIED:
			verdict.tried = report;
			peer_rest(judge->peer);
			break;
		case SETTLED:
			verdict.settled = report;
			break;
		case EXITED:
			verdict.status = report.status;
			peer_rest(judge->peer);
			return verdict;
		}
	}
}

/* Whether this is what a connection may end with after such a fault. */
static bool documented(const struct judge *judge, int error)
{
	bool command = judge->call->number == SYS_write;

	if (error == 0)
		return true;
	/* A command that a signal interrupts is given again. */
	if (command)
		return error == judge->fault->error && error != EINTR;
	/* ENODEV: there is no device that can be listed or opened. */
	return error == judge->fault->error || error == ENODEV;
}

/* What is wrong with the end of a victim; NULL: nothing. */
static const char *complaint(const struct judge *judge, const struct verdict *verdict,
			     const struct report *usual)
{
	if (!verdict->timely)
		return "hangs";
	if (verdict->status)
		return "crashes";
	if (!documented(judge, verdict->tried.error))
		return "undocumented error";
	if (verdict->tried.stuck || verdict->settled.stuck)
		return "cannot be destroyed";
	if (verdict->settled.error)
		return "cannot connect again";
	if (verdict->settled.descriptors != usual->descriptors)
		return "descriptors leak";
	if (verdict->settled.heap > usual->heap + SLACK)
		return "memory leaks";
	return NULL;
}

static void describe(int number, const char *what, const struct verdict *verdict,
		     const struct report *usual)
{
	const struct report *bad = verdict->settled.error ? &verdict->settled : &verdict->tried;

	printf("# call %d: %s; status %d, %s: %d (%s), descriptors %+d, bytes %+ld\n", number,
	       what, verdict->status, bad->step, bad->error, strerror(bad->error),
	       (int)verdict->settled.descriptors - (int)usual->descriptors,
	       (long)verdict->settled.heap - (long)usual->heap);
}

/* All faults of one side and style; returns their number. */
static int judge_all(struct judge *judge, struct order order)
{
	struct verdict usual, verdict;
	int faults = 0, errors = 0, wrong = 0;
	const char *what;

	order.port = order.side == CLIENT ? peer_port(judge->peer) : 0;
	order.number = 0;
	usual = run_victim(judge, &order);
	if (usual.status || usual.tried.error || usual.settled.error)
		describe(0, "does not work without a fault", &usual, &usual.settled), wrong++;
	for (order.number = 1; !wrong || faults; order.number += judge->every) {
		errno = ERANGE;
		need(order.number < judge->window, "calls of one connection");
		verdict = run_victim(judge, &order);
		if (verdict.timely && !verdict.status && !verdict.tried.reached)
			break;
		faults++;
		errors += verdict.tried.error != 0;
		what = complaint(judge, &verdict, &usual.settled);
		if (!what)
			continue;
		describe(order.number, what, &verdict, &usual.settled);
		wrong++;
	}
	printf("# %d faults: %d went unnoticed, %d were reported, %d went wrong\n", faults,
	       faults - errors, errors - wrong, wrong);
	printf("%s - %s %s, %s %s\n", wrong ? "not ok" : "ok", judge->call->name,
	       judge->fault->name, STYLE_NAMES[order.style], SIDE_NAMES[order.side]);
	fflush(stdout);
	return faults;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct judge judge = { .call = NULL };
	int faults = 0;

	if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS CALL FAULT WINDOW EVERY\n", argv[0]);
		return 2;
	}
	for (size_t i = 0; i < sizeof(CALLS) / sizeof(*CALLS); i++)
		if (strcmp(CALLS[i].name, argv[2]) == 0)
			judge.call = &CALLS[i];
	for (size_t i = 0; i < sizeof(FAULTS) / sizeof(*FAULTS); i++)
		if (strcmp(FAULTS[i].name, argv[3]) == 0)
			judge.fault = &FAULTS[i];
	errno = EINVAL;
	need(judge.call && judge.fault, "call and fault");
	judge.window = atoi(argv[4]);
	judge.every = atoi(argv[5]);
	if (strcmp(argv[5], "victims") == 0)
		return run_victims((struct sockaddr *)&address, judge.call->number, judge.window);

	start_factory(&judge, argv);
	judge.peer = peer_open((struct sockaddr *)&address);
	for (int style = 0; style < STYLES; style++)
		for (int side = 0; side < SIDES; side++)
			faults += judge_all(&judge, (struct order){ .side = side, .style = style });
	printf("faults: %d\n", faults);
	close(judge.factory.orders);
	waitpid(judge.factory.process, NULL, 0);
	return 0;
}
