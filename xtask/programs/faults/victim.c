/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Processes that run under a tracer which lets one of their system calls fail:
 * of each thread the one whose number is the window.
 *
 * Each is forked for one order. It makes the call in question, in a way that
 * has no effect, so often that the ordered call of the library will be the one
 * that fails; then one connection, and a second that must work. It reports
 * through writev and is ordered through readv, which are never made to fail.
 */
#include "faults.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* All that one connection consists of. */
struct end {
	struct rdma_event_channel *channel;
	struct rdma_event_channel *second;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id;
	struct rdma_addrinfo *info;
};

static const struct sockaddr *address;
/* How the connection that is being made fares. */
static struct report report;

static void send_report(enum report_kind kind)
{
	struct iovec vector = { &report, sizeof(report) };

	report.kind = kind;
	need(writev(STDOUT_FILENO, &vector, 1) == sizeof(report), "writev");
}

/* ---- Steps that may fail -------------------------------------------------- */

/* Remembers the first error. Returns -1. */
static int fail(const char *step, int error)
{
	if (!report.error) {
		report.error = error;
		snprintf(report.step, sizeof(report.step), "%.*s", (int)strcspn(step, "("), step);
	}
	return -1;
}

#define TRY(call)                                                              \
	do {                                                                   \
		if (call)                                                      \
			return fail(#call, errno);                             \
	} while (0)

static struct ibv_qp_init_attr qp_attributes(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.qp_type = type,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
}

static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){
		.responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7,
	};
}

static int create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = qp_attributes(id->qp_type);

	TRY(rdma_create_qp(id, NULL, &attr));
	return 0;
}

static int create_channel(struct rdma_event_channel **channel)
{
	*channel = rdma_create_event_channel();
	return *channel ? 0 : fail("rdma_create_event_channel", errno);
}

/* Waits for an event of this type; the manual lets signals end the wait. */
static int await(struct end *end, enum rdma_cm_event_type wanted, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	int status, ret;

	while ((ret = rdma_get_cm_event(end->channel, &event)) && errno == EINTR)
		;
	if (ret)
		return fail("rdma_get_cm_event", errno);
	type = event->event;
	status = event->status;
	if (id)
		*id = event->id;
	TRY(rdma_ack_cm_event(event));
	if (type == wanted && status == 0)
		return 0;
	if (type == RDMA_CM_EVENT_REJECTED)
		return fail(rdma_event_str(type), ECONNREFUSED);
	return fail(rdma_event_str(type), status < 0 ? -status : EPROTO);
}

static void announce(struct rdma_cm_id *listener)
{
	report.port = rdma_get_src_port(listener);
	send_report(LISTENING);
}

/* ---- Connections ----------------------------------------------------------- */

static int client(struct end *end, struct sockaddr *to)
{
	struct rdma_conn_param param = parameters();

	if (create_channel(&end->channel))
		return -1;
	TRY(rdma_create_id(end->channel, &end->id, NULL, RDMA_PS_TCP));
	TRY(rdma_resolve_addr(end->id, NULL, to, 5000));
	if (await(end, RDMA_CM_EVENT_ADDR_RESOLVED, NULL) || create_qp(end->id))
		return -1;
	TRY(rdma_resolve_route(end->id, 5000));
	if (await(end, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL))
		return -1;
	TRY(rdma_connect(end->id, &param));
	if (await(end, RDMA_CM_EVENT_ESTABLISHED, NULL))
		return -1;
	TRY(rdma_disconnect(end->id));
	return await(end, RDMA_CM_EVENT_DISCONNECTED, NULL);
}

static int server(struct end *end, struct sockaddr *own)
{
	struct rdma_conn_param param = parameters();

	if (create_channel(&end->channel))
		return -1;
	TRY(rdma_create_id(end->channel, &end->listener, NULL, RDMA_PS_TCP));
	TRY(rdma_bind_addr(end->listener, own));
	TRY(rdma_listen(end->listener, 4));
	announce(end->listener);
	if (await(end, RDMA_CM_EVENT_CONNECT_REQUEST, &end->id) || create_qp(end->id))
		return -1;
	TRY(rdma_accept(end->id, &param));
	if (await(end, RDMA_CM_EVENT_ESTABLISHED, NULL))
		return -1;
	send_report(ACCEPTED);
	if (await(end, RDMA_CM_EVENT_DISCONNECTED, NULL))
		return -1;
	TRY(rdma_disconnect(end->id));
	return 0;
}

/* rdma_getaddrinfo: -1 and errno, or one of EAI_... */
static int look_up(struct end *end, const struct sockaddr *whom, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags | RAI_NUMERICHOST,
				       .ai_port_space = RDMA_PS_TCP };
	char host[64], service[16];
	int ret;

	need(!getnameinfo(whom, sizeof(struct sockaddr_in), host, sizeof(host), service,
			  sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV), "getnameinfo");
	ret = rdma_getaddrinfo(host, service, &hints, &end->info);
	return ret ? fail("rdma_getaddrinfo", ret == -1 ? errno : ret) : 0;
}

static int synchronous_client(struct end *end, struct sockaddr *to)
{
	struct ibv_qp_init_attr attr = qp_attributes(IBV_QPT_RC);
	struct rdma_conn_param param = parameters();

	if (look_up(end, to, 0))
		return -1;
	TRY(rdma_create_ep(&end->id, end->info, NULL, &attr));
	TRY(rdma_connect(end->id, &param));
	TRY(rdma_disconnect(end->id));
	return 0;
}

static int synchronous_server(struct end *end, struct sockaddr *own)
{
	struct ibv_qp_init_attr attr = qp_attributes(IBV_QPT_RC);
	struct rdma_conn_param param = parameters();

	if (look_up(end, own, RAI_PASSIVE))
		return -1;
	TRY(rdma_create_ep(&end->listener, end->info, NULL, &attr));
	TRY(rdma_listen(end->listener, 4));
	announce(end->listener);
	TRY(rdma_get_request(end->listener, &end->id));
	TRY(rdma_accept(end->id, &param));
	send_report(ACCEPTED);
	TRY(rdma_disconnect(end->id));
	return 0;
}

static struct sockaddr_in group(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xEF010203) };
}

static int member(struct end *end, struct sockaddr *own)
{
	struct sockaddr_in multicast = group();
	uint8_t service = 8;

	if (create_channel(&end->channel) || create_channel(&end->second))
		return -1;
	TRY(rdma_create_id(end->channel, &end->id, NULL, RDMA_PS_UDP));
	TRY(rdma_set_option(end->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &service, 1));
	TRY(rdma_bind_addr(end->id, own));
	if (create_qp(end->id))
		return -1;
	TRY(rdma_join_multicast(end->id, (struct sockaddr *)&multicast, NULL));
	if (await(end, RDMA_CM_EVENT_MULTICAST_JOIN, NULL))
		return -1;
	TRY(rdma_migrate_id(end->id, end->second));
	TRY(rdma_leave_multicast(end->id, (struct sockaddr *)&multicast));
	return 0;
}

static int synchronous_member(struct end *end, struct sockaddr *own)
{
	struct sockaddr_in multicast = group();

	TRY(rdma_create_id(NULL, &end->id, NULL, RDMA_PS_UDP));
	TRY(rdma_bind_addr(end->id, own));
	if (create_qp(end->id))
		return -1;
	TRY(rdma_join_multicast(end->id, (struct sockaddr *)&multicast, NULL));
	/* Leaving waits for the event that the id holds; destroying lets it go. */
	return 0;
}

/* ---- Endings ----------------------------------------------------------------- */

static void destroy(struct rdma_cm_id *id)
{
	if (!id)
		return;
	/* An id that could not be destroyed is as before: it can be once more. */
	if (rdma_destroy_id(id)) {
		fail("rdma_destroy_id", errno);
		report.stuck |= rdma_destroy_id(id);
	}
}

static void clean_up(struct end *end, enum style style)
{
	if (style == SYNCHRONOUS) {
		if (end->id)
			rdma_destroy_ep(end->id);
		if (end->listener)
			rdma_destroy_ep(end->listener);
		if (end->info)
			rdma_freeaddrinfo(end->info);
		return;
	}
	if (end->id)
		rdma_destroy_qp(end->id);
	/* What could not be destroyed is still there, and can be once more. */
	if (end->id && (end->id->qp || end->id->send_cq || end->id->recv_cq))
		rdma_destroy_qp(end->id);
	destroy(end->id);
	destroy(end->listener);
	if (end->channel)
		rdma_destroy_event_channel(end->channel);
	if (end->second)
		rdma_destroy_event_channel(end->second);
}

static void make_connection(const struct order *order)
{
	static int (*const run[STYLES][SIDES])(struct end *, struct sockaddr *) = {
		{ client, server, member },
		{ synchronous_client, synchronous_server, synchronous_member },
	};
	struct sockaddr_storage place = with_port(address, order->port);
	struct end end = { .channel = NULL };

	report.error = 0;
	report.step[0] = 0;
	report.stuck = false;
	run[order->style][order->side](&end, (struct sockaddr *)&place);
	clean_up(&end, order->style);
}

/* ---- Victims ------------------------------------------------------------------- */

static int idle_call(long call)
{
	return syscall(call, -1L, -1L, -1L, -1L, -1L, -1L) == -1 ? errno : 0;
}

/* Uses up calls; whether one of them was made to fail. */
static bool use_up(long call, int calls)
{
	int usual = calls > 0 ? idle_call(call) : 0;

	for (int done = 1; done < calls; done++)
		if (idle_call(call) != usual)
			return true;
	return false;
}

static unsigned int open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	need(directory, "opendir");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void victim(const struct order *order, long call, int window)
{
	report.process = getpid();
	send_report(STARTED);
	use_up(call, order->number ? window - order->number : window);
	make_connection(order);
	/* After a success it is not known yet whether there was a fault. */
	report.reached = report.error || !order->number || !use_up(call, order->number + 1);
	send_report(TRIED);
	if (!report.reached)
		return;
	make_connection(order);
	report.descriptors = open_descriptors();
	report.heap = mallinfo2().uordblks;
	send_report(SETTLED);
}

int run_victims(const struct sockaddr *own_address, long call, int window)
{
	struct order order;
	struct iovec vector = { &order, sizeof(order) };
	struct ibv_device **devices;

	address = own_address;
	use_up(call, window);
	/* Finding and loading its drivers is libibverbs' own affair. */
	devices = ibv_get_device_list(NULL);
	if (devices)
		ibv_free_device_list(devices);
	while (readv(STDIN_FILENO, &vector, 1) == sizeof(order)) {
		pid_t process = fork();

		need(process >= 0, "fork");
		if (process == 0) {
			victim(&order, call, window);
			_exit(0);
		}
		need(waitpid(process, &report.status, 0) == process, "waitpid");
		send_report(EXITED);
	}
	return 0;
}
