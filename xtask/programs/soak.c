/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes and closes many connections, then holds many open at once, and looks
 * what that leaves behind in the processes of both sides.
 *
 *	soak ADDRESS THREADS CONNECTIONS OPEN
 *
 * A client (this process) and a server (a child) have THREADS threads, each
 * with an event channel of its own; a thread of the client connects to one of
 * the server. CONNECTIONS and OPEN are numbers over all threads. What a side
 * uses when no connection is open must not grow from one phase to the next.
 *
 * Output: figures as remarks, a TAP line per phase and side.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

enum {
	MOST_THREADS = 16,
	TIMEOUT = 30000,
	/* Seconds in which the server learns what the client knows already. */
	PATIENCE = 60,
	/* Bytes of heap, and of memory, that a phase may add: noise. */
	HEAP_SLACK = 4096,
	RESIDENT_SLACK = 1 << 20,
};

/* What a process uses. */
struct usage {
	unsigned int descriptors;
	size_t heap;
	size_t resident;
};

static struct sockaddr_in address;
static int threads;

static void need(bool good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static struct usage measure(void)
{
	struct mallinfo2 heap = mallinfo2();
	struct usage usage = { .heap = heap.uordblks + heap.hblkhd };
	DIR *directory = opendir("/proc/self/fd");
	FILE *file = fopen("/proc/self/statm", "r");

	/* Memory that was freed is not left behind. */
	malloc_trim(0);
	need(directory && file, "/proc/self");
	while (readdir(directory))
		usage.descriptors++;
	closedir(directory);
	need(fscanf(file, "%*u %zu", &usage.resident) == 1, "statm");
	usage.resident *= (size_t)sysconf(_SC_PAGESIZE);
	fclose(file);
	return usage;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	need(!rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	need(!rdma_destroy_id(id), "rdma_destroy_id");
}

static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){ .responder_resources = 1, .initiator_depth = 1,
					 .retry_count = 7, .rnr_retry_count = 7 };
}

/* Takes the next event; returns its type and id. */
static enum rdma_cm_event_type take(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	need(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	type = event->event;
	*id = event->id;
	if (event->status) {
		fprintf(stderr, "%s, status %d\n", rdma_event_str(type), event->status);
		exit(1);
	}
	need(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
	return type;
}

/* ---- Server ----------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Accepted and not destroyed. Whether they are established is no good measure:
 * a request to disconnect may overtake the message that says so. */
static int open_connections;

static void count(int change)
{
	pthread_mutex_lock(&lock);
	open_connections += change;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void *serve(void *argument)
{
	struct rdma_event_channel *channel = argument;
	struct rdma_conn_param param = parameters();
	struct rdma_cm_id *id;

	while (true) {
		switch (take(channel, &id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			create_qp(id);
			count(1);
			need(!rdma_accept(id, &param), "rdma_accept");
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			destroy(id);
			count(-1);
			break;
		default:
			break;
		}
	}
	return NULL;
}

/* Waits until so many connections are open. */
static void await_open(int expected)
{
	struct timespec limit;
	int error = 0;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += PATIENCE;
	pthread_mutex_lock(&lock);
	while (open_connections != expected && !error)
		error = pthread_cond_timedwait(&changed, &lock, &limit);
	pthread_mutex_unlock(&lock);
	errno = error;
	need(!error, "number of open connections");
}

/* Answers each number of open connections with what is used at that number. */
static void run_server(int peer)
{
	struct rdma_cm_id *listener;
	struct usage usage;
	int expected;

	for (int i = 0; i < threads; i++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		pthread_t thread;
		uint16_t port;

		need(channel, "rdma_create_event_channel");
		need(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
		need(!rdma_bind_addr(listener, (struct sockaddr *)&address), "rdma_bind_addr");
		need(!rdma_listen(listener, 1024), "rdma_listen");
		need(!pthread_create(&thread, NULL, serve, channel), "pthread_create");
		port = rdma_get_src_port(listener);
		need(write(peer, &port, sizeof(port)) == sizeof(port), "write");
	}
	while (read(peer, &expected, sizeof(expected)) == sizeof(expected)) {
		await_open(expected);
		usage = measure();
		need(write(peer, &usage, sizeof(usage)) == sizeof(usage), "write");
	}
	exit(0);
}

/* ---- Client ------------------------------------------------------------------ */

struct client {
	struct rdma_event_channel *channel;
	struct sockaddr_in server;
	/* Connections to make, and to have open at a time. */
	int connections;
	struct rdma_cm_id **open;
	int at_once;
};

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;

	while ((type = take(channel, &id)) != wanted)
		need(type == RDMA_CM_EVENT_TIMEWAIT_EXIT, rdma_event_str(type));
}

static struct rdma_cm_id *establish(struct client *client)
{
	struct rdma_conn_param param = parameters();
	struct rdma_cm_id *id;

	need(!rdma_create_id(client->channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&client->server, TIMEOUT),
	     "rdma_resolve_addr");
	expect(client->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	create_qp(id);
	need(!rdma_resolve_route(id, TIMEOUT), "rdma_resolve_route");
	expect(client->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	need(!rdma_connect(id, &param), "rdma_connect");
	expect(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

static void finish(struct client *client, struct rdma_cm_id *id)
{
	need(!rdma_disconnect(id), "rdma_disconnect");
	expect(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	destroy(id);
}

static void *make_connections(void *argument)
{
	struct client *client = argument;

	for (int i = 0; i < client->connections; i++)
		finish(client, establish(client));
	return NULL;
}

static void *open_all(void *argument)
{
	struct client *client = argument;

	for (int i = 0; i < client->at_once; i++)
		client->open[i] = establish(client);
	return NULL;
}

static void *close_all(void *argument)
{
	struct client *client = argument;

	for (int i = 0; i < client->at_once; i++)
		finish(client, client->open[i]);
	return NULL;
}

static void run_all(struct client *clients, void *(*run)(void *))
{
	pthread_t started[MOST_THREADS];

	for (int i = 0; i < threads; i++)
		need(!pthread_create(&started[i], NULL, run, &clients[i]), "pthread_create");
	for (int i = 0; i < threads; i++)
		need(!pthread_join(started[i], NULL), "pthread_join");
}

/* ---- Figures ------------------------------------------------------------------- */

enum side { CLIENT, SERVER, SIDES };
static const char *const SIDE_NAMES[] = { "client", "server" };

struct figures {
	struct usage side[SIDES];
};

/* What both sides use once this many connections are open. */
static struct figures look(int server, const char *when, int open)
{
	static struct timespec before;
	struct figures figures;
	struct timespec now;

	need(write(server, &open, sizeof(open)) == sizeof(open), "write");
	need(read(server, &figures.side[SERVER], sizeof(struct usage)) == sizeof(struct usage),
	     "read");
	figures.side[CLIENT] = measure();
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (int side = 0; side < SIDES; side++) {
		struct usage *usage = &figures.side[side];

		printf("# %s: %s: %u descriptors, %zu bytes of heap, %zu KiB resident\n", when,
		       SIDE_NAMES[side], usage->descriptors, usage->heap,
		       usage->resident / 1024);
	}
	if (before.tv_sec)
		printf("# %s: took %ld s\n", when, (long)(now.tv_sec - before.tv_sec));
	before = now;
	return figures;
}

static void compare(const struct figures *before, const struct figures *after, const char *what,
		    int number)
{
	for (int side = 0; side < SIDES; side++) {
		const struct usage *from = &before->side[side], *to = &after->side[side];
		bool constant = to->descriptors == from->descriptors &&
				to->heap <= from->heap + HEAP_SLACK &&
				to->resident <= from->resident + RESIDENT_SLACK;

		printf("# grew by %d descriptors, %ld bytes of heap, %ld KiB resident\n",
		       (int)to->descriptors - (int)from->descriptors,
		       (long)to->heap - (long)from->heap,
		       ((long)to->resident - (long)from->resident) / 1024);
		printf("%s - %d %s: nothing left behind in the %s\n", constant ? "ok" : "not ok",
		       number, what, SIDE_NAMES[side]);
	}
}

static void run_client(int server, int connections, int at_once)
{
	struct client clients[MOST_THREADS];
	struct figures rest, used, closed;

	for (int i = 0; i < threads; i++) {
		struct client *client = &clients[i];

		*client = (struct client){ .server = address, .at_once = at_once / threads };
		need(read(server, &client->server.sin_port, sizeof(uint16_t)) == sizeof(uint16_t),
		     "read");
		client->channel = rdma_create_event_channel();
		client->open = calloc((size_t)client->at_once, sizeof(*client->open));
		need(client->channel && client->open, "client");
	}
	/* Some first, so that what is made at first use is there. */
	for (int i = 0; i < threads; i++)
		clients[i].connections = connections / threads / 20 + 1;
	run_all(clients, make_connections);
	rest = look(server, "at rest", 0);

	at_once = 0;
	for (int i = 0; i < threads; i++) {
		clients[i].connections = connections / threads;
		at_once += clients[i].at_once;
	}
	run_all(clients, make_connections);
	used = look(server, "after connecting", 0);
	compare(&rest, &used, "connections one after the other", connections);

	run_all(clients, open_all);
	look(server, "all open", at_once);
	run_all(clients, close_all);
	closed = look(server, "all closed", 0);
	compare(&used, &closed, "connections at once", at_once);
}

int main(int argc, char **argv)
{
	static char line[BUFSIZ];
	struct rlimit limit;
	int ends[2], status;
	pid_t child;

	address.sin_family = AF_INET;
	if (argc != 5 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1 ||
	    (threads = atoi(argv[2])) < 1 || threads > MOST_THREADS) {
		fprintf(stderr, "usage: %s ADDRESS THREADS CONNECTIONS OPEN\n", argv[0]);
		return 2;
	}
	/* malloc_trim does not free the end of any arena but the first. */
	need(mallopt(M_ARENA_MAX, 1), "mallopt");
	/* Not on the heap, which is measured. */
	setvbuf(stdout, line, _IOLBF, sizeof(line));
	/* Each open connection has two completion channels. */
	need(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
	limit.rlim_cur = limit.rlim_max;
	need(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	child = fork();
	need(child >= 0, "fork");
	close(ends[child != 0]);
	if (child == 0)
		run_server(ends[1]);
	run_client(ends[0], atoi(argv[3]), atoi(argv[4]));
	close(ends[0]);
	need(waitpid(child, &status, 0) == child && status == 0, "server");
	return 0;
}
