/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures sockets over RDMA where the programs of rdmacm-utils do not: a
 * server that answers requests, and clients that print one line of
 * "NAME VALUE" pairs. Knows the public headers only; which library it
 * measures is decided by LD_LIBRARY_PATH.
 *
 *	sockets serve ADDRESS PORT CONNECTIONS
 *	sockets hold ADDRESS PORT CONNECTIONS
 *	sockets connect ADDRESS PORT THREADS CONNECTIONS
 *	sockets echo ADDRESS PORT SIZE ROUNDS
 *	sockets stream ADDRESS PORT SIZE COUNT
 *	sockets poll ADDRESS PORT IDLE ROUNDS
 *	sockets memory ADDRESS PORT SOCKETS
 *
 * serve ends after CONNECTIONS connections, each of which has a thread. hold
 * serves only the last, when all are there. Its listener does not block: in the
 * original, a thread of the library otherwise waits for ever now and then for
 * the event that one of many connections is established, and raccept for that
 * thread. Times are in seconds, memory is in bytes, calls are system calls.
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rsocket.h>

/* What a client asks for, in the byte order of the one host both are on. */
struct request {
	uint64_t echo; /* send back what was received */
	uint64_t size;
	uint64_t count;
};

static struct sockaddr_in address;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Counts the system calls of all threads, or -1. */
static int counter = -1;

/*
 * Begins to count, without a tracer that holds up each call: that would change
 * how often a thread finds nothing to do and sleeps. To be called before there
 * are other threads. Needs to be root.
 */
static void count_calls(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .inherit = 1,
	};
	FILE *file;

	/* Mostly it is there already. */
	(void)!mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	file = fopen("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id", "r");
	if (file && fscanf(file, "%llu", &attr.config) == 1)
		counter = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	if (file)
		fclose(file);
}

/* A moment, to measure from. */
struct moment {
	double time;
	uint64_t calls;
};

static struct moment begin(void)
{
	struct moment moment = { .time = now(CLOCK_MONOTONIC) };

	if (counter >= 0 && read(counter, &moment.calls, sizeof(moment.calls)) < 0)
		err(1, "read the counter");
	return moment;
}

/* What each of so many things has cost since. */
static void print_each(struct moment start, int count)
{
	struct moment end = begin();

	printf("each %.9f", (end.time - start.time) / count);
	if (counter >= 0)
		printf(" calls %.3f", (double)(end.calls - start.calls) / count);
}

static void *buffer_of(size_t size)
{
	void *buffer = calloc(1, size ? size : 1);

	if (!buffer)
		err(1, "calloc");
	return buffer;
}

static void send_all(int socket, const char *data, size_t size)
{
	while (size) {
		ssize_t sent = rsend(socket, data, size, 0);

		if (sent <= 0)
			err(1, "rsend");
		data += sent;
		size -= sent;
	}
}

/* Returns 0 at the end of the stream. */
static int receive_all(int socket, char *data, size_t size)
{
	while (size) {
		ssize_t received = rrecv(socket, data, size, 0);

		if (received < 0)
			err(1, "rrecv");
		if (received == 0)
			return 0;
		data += received;
		size -= received;
	}
	return 1;
}

static void *serve_one(void *argument)
{
	int socket = (intptr_t)argument;
	struct request request;

	while (receive_all(socket, (char *)&request, sizeof(request))) {
		char *data = buffer_of(request.size);

		for (uint64_t round = 0; round < request.count; round++) {
			if (!receive_all(socket, data, request.size))
				break;
			if (request.echo)
				send_all(socket, data, request.size);
		}
		if (!request.echo)
			send_all(socket, "x", 1);
		free(data);
	}
	rclose(socket);
	return NULL;
}

static void print_usage(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	printf(" user %f system %f\n",
	       usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6,
	       usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6);
}

static int listening(void)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0)
		err(1, "rsocket");
	if (rbind(listener, (struct sockaddr *)&address, sizeof(address)))
		err(1, "rbind");
	if (rlisten(listener, 128))
		err(1, "rlisten");
	return listener;
}

static int accepted(int listener)
{
	int socket = raccept(listener, NULL, NULL);

	if (socket < 0)
		err(1, "raccept");
	return socket;
}

static void set_flags(int socket, int flags)
{
	if (rfcntl(socket, F_SETFL, flags))
		err(1, "rfcntl");
}

static void hold(int connections)
{
	int *list = buffer_of(connections * sizeof(*list));
	struct pollfd waiting = { .fd = listening(), .events = POLLIN };
	int last = -1;

	/* So is what is accepted there in the original. */
	set_flags(waiting.fd, O_NONBLOCK);
	for (int index = 0; index < connections; index++) {
		if (rpoll(&waiting, 1, -1) < 0)
			err(1, "rpoll");
		last = list[index] = accepted(waiting.fd);
	}
	set_flags(last, 0);
	serve_one((void *)(intptr_t)last);
	for (int index = 0; index < connections - 1; index++)
		rclose(list[index]);
	rclose(waiting.fd);
}

static void serve(int connections)
{
	pthread_t *threads = buffer_of(connections * sizeof(*threads));
	int listener = listening();

	for (int index = 0; index < connections; index++) {
		int socket = accepted(listener);

		if (pthread_create(&threads[index], NULL, serve_one,
				   (void *)(intptr_t)socket))
			errx(1, "pthread_create");
	}
	for (int index = 0; index < connections; index++)
		pthread_join(threads[index], NULL);
	printf("connections %d", connections);
	print_usage();
	rclose(listener);
}

static int connected(void)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	if (socket < 0)
		err(1, "rsocket");
	if (rconnect(socket, (struct sockaddr *)&address, sizeof(address)))
		err(1, "rconnect");
	return socket;
}

static void *connect_many(void *argument)
{
	for (intptr_t left = (intptr_t)argument; left; left--)
		rclose(connected());
	return NULL;
}

static void measure_connect(int threads, int connections)
{
	pthread_t *handles = buffer_of(threads * sizeof(*handles));
	struct moment start = begin();

	for (int index = 0; index < threads; index++)
		if (pthread_create(&handles[index], NULL, connect_many,
				   (void *)(intptr_t)(connections / threads)))
			errx(1, "pthread_create");
	for (int index = 0; index < threads; index++)
		pthread_join(handles[index], NULL);
	print_each(start, connections / threads * threads);
	print_usage();
}

static void ask(int socket, uint64_t echo, uint64_t size, uint64_t count)
{
	struct request request = { echo, size, count };

	send_all(socket, (char *)&request, sizeof(request));
}

static void measure_echo(size_t size, int rounds)
{
	int socket = connected();
	char *data = buffer_of(size);
	struct moment start;

	ask(socket, 1, size, rounds);
	start = begin();
	for (int round = 0; round < rounds; round++) {
		send_all(socket, data, size);
		if (!receive_all(socket, data, size))
			errx(1, "the server left");
	}
	print_each(start, rounds);
	rclose(socket);
	print_usage();
}

static void measure_stream(size_t size, int count)
{
	int socket = connected();
	char *data = buffer_of(size);
	char done;
	struct moment start;

	ask(socket, 0, size, count);
	start = begin();
	for (int index = 0; index < count; index++)
		send_all(socket, data, size);
	if (!receive_all(socket, &done, 1))
		errx(1, "the server left");
	print_each(start, count);
	rclose(socket);
	print_usage();
}

static void measure_poll(int idle, int rounds)
{
	struct pollfd *fds = buffer_of((idle + 1) * sizeof(*fds));
	char data[64] = { 0 };
	struct moment start;

	for (int index = 0; index <= idle; index++) {
		fds[index].fd = connected();
		fds[index].events = POLLIN;
	}
	ask(fds[idle].fd, 1, sizeof(data), rounds);
	start = begin();
	for (int round = 0; round < rounds; round++) {
		send_all(fds[idle].fd, data, sizeof(data));
		if (rpoll(fds, idle + 1, -1) != 1 || !fds[idle].revents)
			err(1, "rpoll");
		if (!receive_all(fds[idle].fd, data, sizeof(data)))
			errx(1, "the server left");
	}
	print_each(start, rounds);
	for (int index = 0; index <= idle; index++)
		rclose(fds[index].fd);
	print_usage();
}

/* Memory of this process. */
struct memory {
	double resident;
	double pinned; /* what devices may access: cannot be swapped out */
};

static struct memory memory(void)
{
	struct memory kilobytes = { 0 };
	char line[256];
	FILE *file = fopen("/proc/self/status", "r");

	if (!file)
		err(1, "/proc/self/status");
	while (fgets(line, sizeof(line), file)) {
		sscanf(line, "VmRSS: %lf", &kilobytes.resident);
		sscanf(line, "VmPin: %lf", &kilobytes.pinned);
	}
	fclose(file);
	return (struct memory){ kilobytes.resident * 1024, kilobytes.pinned * 1024 };
}

static void measure_memory(int sockets)
{
	int *list = buffer_of(sockets * sizeof(*list));
	struct memory before, after;

	/* What the library keeps whatever the number of sockets. */
	rclose(connected());
	before = memory();
	for (int index = 0; index < sockets; index++)
		list[index] = connected();
	after = memory();
	printf("resident %.0f pinned %.0f", (after.resident - before.resident) / sockets,
	       (after.pinned - before.pinned) / sockets);
	for (int index = 0; index < sockets; index++)
		rclose(list[index]);
	print_usage();
}

int main(int count, char **words)
{
	int first = count > 4 ? atoi(words[4]) : 0;
	int second = count > 5 ? atoi(words[5]) : 0;
	const char *mode = count > 1 ? words[1] : "";

	if (count < 5 || first <= 0)
		errx(2, "usage: sockets MODE ADDRESS PORT NUMBER [NUMBER]");
	address.sin_family = AF_INET;
	address.sin_port = htons(atoi(words[3]));
	if (inet_pton(AF_INET, words[2], &address.sin_addr) != 1)
		errx(2, "no address: %s", words[2]);

	count_calls();
	if (!strcmp(mode, "serve"))
		serve(first);
	else if (!strcmp(mode, "hold"))
		hold(first);
	else if (!strcmp(mode, "connect"))
		measure_connect(first, second);
	else if (!strcmp(mode, "echo"))
		measure_echo(first, second);
	else if (!strcmp(mode, "stream"))
		measure_stream(first, second);
	else if (!strcmp(mode, "poll"))
		measure_poll(first, second);
	else if (!strcmp(mode, "memory"))
		measure_memory(first);
	else
		errx(2, "no mode %s", mode);
	return 0;
}
