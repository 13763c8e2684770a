/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program meets that uses the library in a container: makes the first
 * calls of any program, as far as they go, and prints how each ended.
 *
 *	container IP [UID]
 *
 * binds and resolves IP, as user UID if one is given. One line for each call:
 * its name, the errno's (0: success) and how many milliseconds it took.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <rdma/rdma_cma.h>

enum { RESOLVE_MS = 2000, PORT = 7600 };

static struct timespec started;

static void start(void)
{
	clock_gettime(CLOCK_MONOTONIC, &started);
	errno = 0;
}

/* The call that began with start() has ended. */
static int ended(const char *call, int error)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("call %s %s %lld\n", call, strerrorname_np(error),
	       (long long)(now.tv_sec - started.tv_sec) * 1000 +
		       (now.tv_nsec - started.tv_nsec) / 1000000);
	return error;
}

/* The errno of an asynchronous resolution. */
static int resolve(struct rdma_event_channel *channel, struct sockaddr *addr)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int error = 0;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return errno;
	if (rdma_resolve_addr(id, NULL, addr, RESOLVE_MS) || rdma_get_cm_event(channel, &event)) {
		error = errno;
	} else {
		error = -event->status;
		rdma_ack_cm_event(event);
	}
	rdma_destroy_id(id);
	return error;
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct rdma_event_channel *channel;
	struct ibv_context **devices;
	struct rdma_cm_id *id;

	if (argc < 2 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1)
		return 2;
	if (argc > 2) {
		uid_t user = (uid_t)atoi(argv[2]);

		if (setgroups(0, NULL) || setgid(user) || setuid(user))
			return 2;
	}
	start();
	devices = rdma_get_devices(NULL);
	ended("get_devices", devices ? 0 : errno);
	if (devices)
		rdma_free_devices(devices);
	start();
	channel = rdma_create_event_channel();
	if (ended("create_event_channel", channel ? 0 : errno))
		return 0;
	start();
	if (ended("create_id", rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ? errno : 0))
		return 0;
	start();
	ended("bind_addr", rdma_bind_addr(id, (struct sockaddr *)&addr) ? errno : 0);
	rdma_destroy_id(id);
	start();
	ended("resolve_addr", resolve(channel, (struct sockaddr *)&addr));
	rdma_destroy_event_channel(channel);
	return 0;
}
