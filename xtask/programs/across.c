/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One end of connections and groups between two machines, step by step.
 *
 *	across COMMANDS PORT
 *
 * reads lines from the FIFO COMMANDS and obeys each as soon as it comes:
 *
 *	listen IP             wait for requests, accept all, serve until the end
 *	ignore IP             the same, but leave requests unanswered
 *	resolve IP MS         a new id; resolve the address
 *	route MS              resolve its route
 *	connect [RETRIES]     a queue pair, and connect; without a number of
 *	                      retries, as many as there can be
 *	send                  one message; ends with its completion
 *	await                 wait for the next event
 *	disconnect            ends with the event
 *	join LOCAL GROUP      a datagram id on an address of this machine; join
 *	send-group            one datagram to the group; ends with its completion
 *	receive-group         ends with a datagram of another member
 *	destroy               the id and all it has
 *
 * For each but the first two it prints one line: the command, how it ended (an
 * event, a completion or "errno"), the status and the milliseconds it took.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum {
	LIMIT_MS = 240000, /* beyond what the kernel needs to give up */
	SIZE = 64,
	GRH_SIZE = 40,
	DEPTH = 8,
	MOST_RETRIES = 7,
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static uint16_t port;
static struct {
	char in[DEPTH][GRH_SIZE + SIZE];
	char out[SIZE]; /* to a group: the sender's address */
} memory;
static struct ibv_mr *region;
static struct rdma_ud_param group;
static struct sockaddr_in group_address;
static struct timespec started;

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static struct sockaddr_in address(const char *text, uint16_t number)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(number) };

	need(text && inet_pton(AF_INET, text, &in.sin_addr) == 1, "an address");
	return in;
}

static void report(const char *command, const char *end, int status)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%s %s %d %lld\n", command, end, status,
	       (long long)(now.tv_sec - started.tv_sec) * 1000 +
		       (now.tv_nsec - started.tv_nsec) / 1000000);
	fflush(stdout);
}

/* The end of a command that failed at once, or that the next event ends. */
static struct rdma_cm_event *finish(const char *command, int failed)
{
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (failed) {
		report(command, "errno", errno);
		return NULL;
	}
	if (poll(&entry, 1, LIMIT_MS) != 1) {
		report(command, "nothing", 0);
		return NULL;
	}
	if (rdma_get_cm_event(channel, &event)) {
		report(command, "errno", errno);
		return NULL;
	}
	report(command, rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"), event->status);
	return event;
}

static void acknowledge(struct rdma_cm_event *event)
{
	if (event)
		need(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

static int create_qp(struct rdma_cm_id *owner)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = owner->qp_type,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (rdma_create_qp(owner, NULL, &attr))
		return -1;
	if (!region)
		region = rdma_reg_msgs(owner, &memory, sizeof(memory));
	if (!region)
		return -1;
	for (int i = 0; i < DEPTH; i++)
		if (rdma_post_recv(owner, memory.in[i], memory.in[i], sizeof(memory.in[i]),
				   region))
			return -1;
	return 0;
}

/* The next completion; false if none comes. */
static bool next_completion(struct ibv_cq *cq, struct ibv_comp_channel *events, struct ibv_wc *wc)
{
	struct pollfd entry = { .fd = events->fd, .events = POLLIN };
	struct ibv_cq *ready;
	void *context;

	for (;;) {
		int found = ibv_poll_cq(cq, 1, wc);

		if (found == 0) {
			need(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
			found = ibv_poll_cq(cq, 1, wc);
		}
		need(found >= 0, "ibv_poll_cq");
		if (found > 0)
			return true;
		if (poll(&entry, 1, LIMIT_MS) != 1)
			return false;
		need(!ibv_get_cq_event(events, &ready, &context), "ibv_get_cq_event");
		ibv_ack_cq_events(ready, 1);
	}
}

/* The end of a command that the completion of a send ends. */
static void complete(const char *command, int failed)
{
	struct ibv_wc wc;

	if (failed)
		report(command, "errno", errno);
	else if (next_completion(id->send_cq, id->send_cq_channel, &wc))
		report(command, "completion", wc.status);
	else
		report(command, "nothing", 0);
}

/* A datagram of another member: members may hear themselves. */
static void receive_group(void)
{
	struct ibv_wc wc;

	while (next_completion(id->recv_cq, id->recv_cq_channel, &wc)) {
		const char *in = (const char *)(uintptr_t)wc.wr_id + GRH_SIZE;

		if (wc.status == IBV_WC_SUCCESS && memcmp(in, memory.out, SIZE) == 0)
			continue;
		report("receive-group", "completion", wc.status);
		return;
	}
	report("receive-group", "nothing", 0);
}

static void serve(const char *ip, int accept)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct sockaddr_in local = address(ip, port);
	struct rdma_cm_event *event;

	need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_bind_addr(id, (struct sockaddr *)&local), "rdma_bind_addr");
	need(!rdma_listen(id, DEPTH), "rdma_listen");
	while (!rdma_get_cm_event(channel, &event)) {
		struct rdma_cm_id *peer = event->id;
		enum rdma_cm_event_type type = event->event;

		printf("event %s %d\n", rdma_event_str(type), event->status);
		fflush(stdout);
		acknowledge(event);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST && accept) {
			need(!create_qp(peer), "a queue pair");
			need(!rdma_accept(peer, &param), "rdma_accept");
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_disconnect(peer);
		}
	}
}

static void resolve(const char *ip, int milliseconds)
{
	struct sockaddr_in remote = address(ip, port);

	if (!id)
		need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	acknowledge(finish("resolve", rdma_resolve_addr(id, NULL, (struct sockaddr *)&remote,
							milliseconds)));
}

static void connect_id(const char *retries)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1,
					 .retry_count = MOST_RETRIES, .rnr_retry_count = 7 };

	if (retries)
		param.retry_count = (uint8_t)atoi(retries);

	need(!create_qp(id), "a queue pair");
	acknowledge(finish("connect", rdma_connect(id, &param)));
}

static void join(const char *ip, const char *to)
{
	struct sockaddr_in local = address(ip, 0);
	struct rdma_cm_event *event;

	group_address = address(to, 0);
	strncpy(memory.out, ip, SIZE - 1);
	need(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), "rdma_create_id");
	need(!rdma_bind_addr(id, (struct sockaddr *)&local), "rdma_bind_addr");
	need(!create_qp(id), "a queue pair");
	event = finish("join", rdma_join_multicast(id, (struct sockaddr *)&group_address, NULL));
	if (event)
		group = event->param.ud;
	acknowledge(event);
}

static void send_group(void)
{
	struct ibv_ah *handle = ibv_create_ah(id->pd, &group.ah_attr);

	need(!!handle, "ibv_create_ah");
	complete("send-group", rdma_post_ud_send(id, NULL, memory.out, SIZE, region, 0, handle,
						 group.qp_num));
	need(!ibv_destroy_ah(handle), "ibv_destroy_ah");
}

static void destroy(void)
{
	int failed;

	if (group_address.sin_family)
		need(!rdma_leave_multicast(id, (struct sockaddr *)&group_address),
		     "rdma_leave_multicast");
	group_address.sin_family = 0;
	if (region)
		need(!rdma_dereg_mr(region), "rdma_dereg_mr");
	region = NULL;
	if (id->qp)
		rdma_destroy_qp(id);
	failed = rdma_destroy_id(id);
	id = NULL;
	report("destroy", "errno", failed ? errno : 0);
}

static void obey(char *line)
{
	const char *command = strtok(line, " \n");
	const char *first = strtok(NULL, " \n");
	const char *second = strtok(NULL, " \n");

	if (!command)
		return;
	clock_gettime(CLOCK_MONOTONIC, &started);
	if (!strcmp(command, "listen") || !strcmp(command, "ignore"))
		serve(first, !strcmp(command, "listen"));
	else if (!strcmp(command, "resolve"))
		resolve(first, atoi(second));
	else if (!strcmp(command, "route"))
		acknowledge(finish("route", rdma_resolve_route(id, atoi(first))));
	else if (!strcmp(command, "connect"))
		connect_id(first);
	else if (!strcmp(command, "send"))
		complete("send", rdma_post_send(id, NULL, memory.out, SIZE, region, 0));
	else if (!strcmp(command, "await"))
		acknowledge(finish("await", 0));
	else if (!strcmp(command, "disconnect"))
		acknowledge(finish("disconnect", rdma_disconnect(id)));
	else if (!strcmp(command, "join"))
		join(first, second);
	else if (!strcmp(command, "send-group"))
		send_group();
	else if (!strcmp(command, "receive-group"))
		receive_group();
	else if (!strcmp(command, "destroy"))
		destroy();
	else
		need(0, command);
}

int main(int argc, char **argv)
{
	char line[128];
	FILE *commands;

	if (argc != 3)
		return 2;
	port = (uint16_t)atoi(argv[2]);
	/* Writing as well, there is no end of file between two commands. */
	commands = fopen(argv[1], "r+");
	need(!!commands, argv[1]);
	channel = rdma_create_event_channel();
	need(!!channel, "rdma_create_event_channel");
	while (fgets(line, sizeof(line), commands))
		obey(line);
	return 0;
}
