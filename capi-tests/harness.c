/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Implementation of harness.h; see there. */
#include "harness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <ifaddrs.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	DEFAULT_TIMEOUT = 20,
	CLEANUP_TIMEOUT = 60,
	KILL_GRACE = 10,
	EXIT_FAILED = 1,
	EXIT_SKIPPED = 77,
	NOBODY = 65534,
};

/* ---- Cases and verdicts -------------------------------------------------- */

/* What a case tells the parent; shared with all processes of the case. */
struct report {
	char reason[1024];
	const char *file; /* last check reached */
	int line;
};

static struct test_case *first_case;
static struct test_case **last_link = &first_case;
static struct report *report;
/* Holds the report if peers are begun anew, else -1. */
static int report_file = -1;
/* This process is such a peer: what it points to is nowhere else. */
static bool is_peer;

void test_register(struct test_case *test)
{
	*last_link = test;
	last_link = &test->next;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void test_at(const char *file, int line)
{
	if (is_peer)
		return;
	report->file = file;
	report->line = line;
}

static void set_reason(const char *prefix, const char *format, va_list args)
{
	int length = snprintf(report->reason, sizeof(report->reason), "%s", prefix);

	vsnprintf(report->reason + length, sizeof(report->reason) - (size_t)length,
		  format, args);
}

void test_fail(const char *file, int line, const char *format, ...)
{
	char prefix[128];
	va_list args;

	snprintf(prefix, sizeof(prefix), "%s:%d: ", base_name(file), line);
	va_start(args, format);
	set_reason(prefix, format, args);
	va_end(args);
	_exit(EXIT_FAILED);
}

void test_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_reason("", format, args);
	va_end(args);
	_exit(EXIT_SKIPPED);
}

static void full_name(const struct test_case *test, char *name, size_t size)
{
	const char *file = base_name(test->file);

	snprintf(name, size, "%.*s/%s", (int)strcspn(file, "."), file, test->name);
}

/* How many times longer everything may take; slow tools ask for more. */
static unsigned int patience(void)
{
	const char *factor = getenv("RDMACM_TEST_PATIENCE");
	long value = factor ? strtol(factor, NULL, 10) : 1;

	return value > 0 && value < 1000 ? (unsigned int)value : 1;
}

/* A thread of this process, as the kernel sees it. */
struct thread_state {
	char name[16];
	bool asleep;
	unsigned long sleeps; /* how often it has gone to sleep */
};

/* Looks at the next thread but for one in the folder of all; false at its end. */
static bool next_thread(DIR *threads, pid_t except, struct thread_state *thread)
{
	char path[320], line[128];
	struct dirent *entry;
	FILE *file;

	do {
		entry = readdir(threads);
		if (!entry)
			return false;
	} while (entry->d_name[0] == '.' || atoi(entry->d_name) == except);
	memset(thread, 0, sizeof(*thread));
	snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "Name:\t%15[^\n]", thread->name);
		thread->asleep |= strncmp(line, "State:\tS", 8) == 0;
		sscanf(line, "voluntary_ctxt_switches: %lu", &thread->sleeps);
	}
	if (file)
		fclose(file);
	return true;
}

/* Whether a thread of this process, but for its first one, has this name. */
static bool has_thread(const char *wanted)
{
	DIR *threads = opendir("/proc/self/task");
	struct thread_state thread;
	bool found = false;

	while (threads && !found && next_thread(threads, getpid(), &thread))
		found = strcmp(thread.name, wanted) == 0;
	if (threads)
		closedir(threads);
	return found;
}

/*
 * A name is looked up to its end even if nobody wants it any more. A process that
 * ends in the middle of libc's work looks to memcheck as if it had lost memory.
 */
static void await_lookups(void)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	char own[16] = "";

	/* A thread that was just started still has the name of who started it. */
	prctl(PR_GET_NAME, own);
	if (patience() > 1 && has_thread(own))
		await_sleep();
	while (has_thread("rdmacm-names"))
		nanosleep(&pause, NULL);
}

static pid_t start_process(void (*function)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		printf("Bail out! fork: %s\n", strerror(errno));
		exit(EXIT_FAILED);
	}
	if (pid == 0) {
		sigset_t none;

		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		function();
		await_lookups();
		_exit(EXIT_SUCCESS);
	}
	setpgid(pid, pid);
	return pid;
}

/* Waits at most this long for the child; SIGCHLD is blocked in the parent. */
static bool wait_process(pid_t pid, unsigned int seconds, int *status)
{
	uint64_t deadline = now_ms() + seconds * 1000ULL;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (;;) {
		uint64_t now = now_ms();
		struct timespec left;

		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		if (now >= deadline)
			return false;
		left.tv_sec = (time_t)((deadline - now) / 1000);
		left.tv_nsec = (long)((deadline - now) % 1000) * 1000000L;
		sigtimedwait(&child, NULL, &left);
	}
}

/*
 * Kills what is left of the group of a case and waits until it is gone, so that
 * the next case finds no port or device in use. Not for ever: the kernel may hold
 * one that waits for the end of a removal.
 */
static void end_group(pid_t group)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	uint64_t deadline = now_ms() + KILL_GRACE * 1000;
	pid_t ended;

	kill(-group, SIGKILL);
	while ((ended = waitpid(-group, NULL, WNOHANG)) >= 0 && now_ms() < deadline)
		if (ended == 0)
			nanosleep(&pause, NULL);
}

/* Runs the function to its end or its time limit; fills in missing reasons. */
static int supervise(void (*function)(void), unsigned int seconds)
{
	char where[160] = "the start";
	pid_t pid = start_process(function);
	int status = 0;
	bool ended;

	seconds *= patience();
	ended = wait_process(pid, seconds, &status);

	if (ended)
		end_group(pid);
	else
		kill(-pid, SIGKILL);
	if (report->file)
		snprintf(where, sizeof(where), "%s:%d", base_name(report->file),
			 report->line);
	if (!ended) {
		if (!wait_process(pid, KILL_GRACE, &status)) {
			printf("Bail out! a process hangs in the kernel, last seen at %s\n",
			       where);
			exit(EXIT_FAILED);
		}
		end_group(pid);
		snprintf(report->reason, sizeof(report->reason),
			 "no end within %u s, last seen at %s", seconds, where);
		return EXIT_FAILED;
	}
	if (WIFSIGNALED(status)) {
		snprintf(report->reason, sizeof(report->reason),
			 "killed by SIG%s, last seen at %s",
			 sigabbrev_np(WTERMSIG(status)), where);
		return EXIT_FAILED;
	}
	status = WEXITSTATUS(status);
	if (status != EXIT_SUCCESS && report->reason[0] == '\0')
		snprintf(report->reason, sizeof(report->reason),
			 "exit status %d, last seen at %s", status, where);
	return status;
}

static bool selected(const char *name, int argc, char **argv)
{
	if (argc <= 1)
		return true;
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return false;
}

static bool run_case(const struct test_case *test, int number, const char *name)
{
	int status;

	memset(report, 0, sizeof(*report));
	status = supervise(test->run, test->timeout ? test->timeout : DEFAULT_TIMEOUT);
	if (status == EXIT_SKIPPED)
		printf("ok %d - %s # SKIP %s\n", number, name, report->reason);
	else if (status == EXIT_SUCCESS)
		printf("ok %d - %s\n", number, name);
	else
		printf("not ok %d - %s\n# %s\n", number, name, report->reason);
	if (test->cleanup) {
		memset(report, 0, sizeof(*report));
		if (supervise(test->cleanup, CLEANUP_TIMEOUT) != EXIT_SUCCESS) {
			printf("Bail out! cleanup of %s: %s\n", name, report->reason);
			exit(EXIT_FAILED);
		}
	}
	fflush(stdout);
	return status == EXIT_SUCCESS || status == EXIT_SKIPPED;
}

/* ---- Peers ----------------------------------------------------------------- */

/* The word before what a peer that is begun anew has to do. */
static const char peer_word[] = "--peer";

static const char *peer_library(void)
{
	const char *library = getenv("RDMACM_TEST_PEER_LIBRARY");

	return library && *library ? library : NULL;
}

/* Memory for the report; in a file, if another program is to write to it. */
static bool share_report(void)
{
	int flags = MAP_SHARED;

	if (report_file < 0 && peer_library()) {
		report_file = memfd_create("report", 0);
		if (report_file < 0 || ftruncate(report_file, sizeof(*report)))
			return false;
	}
	if (report_file < 0)
		flags |= MAP_ANONYMOUS;
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, flags,
		      report_file, 0);
	return report != MAP_FAILED;
}

/* Where something of this program is, seen from one of its functions. */
static long distance_to(const void *object)
{
	return (long)((uintptr_t)object - (uintptr_t)start_peer);
}

static const void *object_at(const char *distance)
{
	return (const void *)((uintptr_t)start_peer +
			      (uintptr_t)strtol(distance, NULL, 10));
}

/* `words`: function, object, number, file of the report. */
static int run_peer(char **words)
{
	void (*run)(const void *, long) =
		(void (*)(const void *, long))(uintptr_t)object_at(words[0]);

	is_peer = true;
	report_file = (int)strtol(words[3], NULL, 10);
	if (!share_report())
		return EXIT_FAILED;
	run(object_at(words[1]), strtol(words[2], NULL, 10));
	return EXIT_SUCCESS;
}

static _Noreturn void begin_anew(const char *library, const long numbers[4])
{
	char texts[4][24];

	for (int i = 0; i < 4; i++)
		snprintf(texts[i], sizeof(texts[i]), "%ld", numbers[i]);
	if (strcmp(library, "original"))
		setenv("LD_LIBRARY_PATH", library, 1);
	else
		unsetenv("LD_LIBRARY_PATH");
	execl("/proc/self/exe", "peer", peer_word, texts[0], texts[1], texts[2],
	      texts[3], NULL);
	FAIL("execl: %s", strerror(errno));
}

pid_t start_peer(void (*run)(const void *, long), const void *what, long number)
{
	const char *library = peer_library();
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	if (library)
		begin_anew(library, (long[]){ distance_to((const void *)(uintptr_t)run),
					      distance_to(what), number, report_file });
	run(what, number);
	_exit(EXIT_SUCCESS);
}

void wait_peer(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status))
		_exit(WEXITSTATUS(status)); /* it left its reason */
}

int main(int argc, char **argv)
{
	bool list = argc > 1 && strcmp(argv[1], "--list") == 0;
	bool good = true;
	char name[256];
	sigset_t child;
	int count = 0;

	if (argc == 6 && strcmp(argv[1], peer_word) == 0)
		return run_peer(argv + 2);
	if (!share_report()) {
		perror("mmap");
		return EXIT_FAILED;
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	/* Children that a case leaves behind are this process's to wait for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	test_netdev(); /* learn it while the device exists */

	for (struct test_case *test = first_case; test; test = test->next) {
		full_name(test, name, sizeof(name));
		if (list)
			puts(name);
		else if (selected(name, argc, argv))
			count++;
	}
	if (list)
		return EXIT_SUCCESS;
	printf("TAP version 13\n1..%d\n", count);
	count = 0;
	for (struct test_case *test = first_case; test; test = test->next) {
		full_name(test, name, sizeof(name));
		if (selected(name, argc, argv))
			good &= run_case(test, ++count, name);
	}
	return good ? EXIT_SUCCESS : EXIT_FAILED;
}

/* ---- Names newer than the headers ---------------------------------------- */

void *library_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	if (!symbol)
		SKIP("the library has no %s", name);
	return symbol;
}

uint64_t event_argument(const struct rdma_cm_event *event)
{
	uint64_t argument;

	memcpy(&argument, &event->param, sizeof(argument));
	return argument;
}

bool kernel_at_least(int major, int minor)
{
	int running_major = 0, running_minor = 0;
	struct utsname name;

	CHECK_OK(uname(&name));
	CHECK(sscanf(name.release, "%d.%d", &running_major, &running_minor) == 2);
	return running_major > major ||
	       (running_major == major && running_minor >= minor);
}

void require_kernel(int major, int minor)
{
	if (!kernel_at_least(major, minor))
		SKIP("the kernel is older than %d.%d", major, minor);
}

/* ---- Environment --------------------------------------------------------- */

static const char *setting(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && *value ? value : otherwise;
}

const char *test_device(void)
{
	return setting("RDMACM_TEST_DEV", "rxe0");
}

const char *test_netdev(void)
{
	static char name[64];
	char path[128];
	FILE *file;

	if (name[0])
		return name;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0",
		 test_device());
	file = fopen(path, "r");
	if (file) {
		if (fscanf(file, "%63s", name) != 1)
			name[0] = '\0';
		fclose(file);
	}
	if (!name[0])
		snprintf(name, sizeof(name), "%s", setting("RDMACM_TEST_NETDEV", "v0"));
	return name;
}

struct sockaddr *make_addr(const char *text, uint16_t port)
{
	static _Thread_local struct sockaddr_storage buffers[8];
	static _Thread_local unsigned int turn;
	struct sockaddr_storage *buffer = &buffers[turn++ % 8];
	struct sockaddr_in *in = (struct sockaddr_in *)buffer;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)buffer;

	memset(buffer, 0, sizeof(*buffer));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	} else {
		FAIL("'%s' is no address", text);
	}
	return (struct sockaddr *)buffer;
}

socklen_t addr_length(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
					    sizeof(struct sockaddr_in6);
}

struct sockaddr *test_addr(uint16_t port)
{
	return make_addr(setting("RDMACM_TEST_IP", "10.99.0.1"), port);
}

struct sockaddr *test_addr6(uint16_t port)
{
	const char *text = setting("RDMACM_TEST_IP6", NULL);
	char found[INET6_ADDRSTRLEN] = "";
	struct ifaddrs *list;

	if (text)
		return make_addr(text, port);
	CHECK_OK(getifaddrs(&list));
	for (struct ifaddrs *entry = list; entry && !found[0]; entry = entry->ifa_next) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)entry->ifa_addr;

		if (in6 && in6->sin6_family == AF_INET6 &&
		    strcmp(entry->ifa_name, test_netdev()) == 0 &&
		    !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			inet_ntop(AF_INET6, &in6->sin6_addr, found, sizeof(found));
	}
	freeifaddrs(list);
	if (!found[0])
		SKIP("no IPv6 address on %s", test_netdev());
	return make_addr(found, port);
}

struct sockaddr *test_peer_addr(uint16_t port)
{
	const char *text = setting("RDMACM_TEST_PEER_IP", NULL);

	if (!text)
		SKIP("RDMACM_TEST_PEER_IP is not set");
	return make_addr(text, port);
}

struct sockaddr *silent_addr(uint16_t port)
{
	struct sockaddr *addr = test_addr(port);

	/* The last of the test network that is neither in use nor special. */
	((unsigned char *)&((struct sockaddr_in *)addr)->sin_addr)[3] = 253;
	return addr;
}

/* ---- Ids and events ------------------------------------------------------ */

struct rdma_event_channel *make_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel);
	return channel;
}

struct rdma_cm_id *make_id(struct rdma_event_channel *channel, enum rdma_port_space ps)
{
	struct rdma_cm_id *id = NULL;

	CHECK_OK(rdma_create_id(channel, &id, NULL, ps));
	CHECK(id);
	return id;
}

static bool readable(struct rdma_event_channel *channel, int milliseconds)
{
	uint64_t deadline = now_ms() + (uint64_t)milliseconds;
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };

	for (;;) {
		uint64_t now = now_ms();
		int left = now < deadline ? (int)(deadline - now) : 0;
		int count = poll(&entry, 1, left);

		if (count >= 0 || errno != EINTR) {
			CHECK(count >= 0);
			return count > 0;
		}
	}
}

struct rdma_cm_event *next_event(struct rdma_event_channel *channel, int timeout)
{
	struct rdma_cm_event *event = NULL;

	if (!readable(channel, timeout * 1000 * (int)patience()))
		FAIL("no event within %d s", timeout);
	CHECK_OK(rdma_get_cm_event(channel, &event));
	CHECK(event);
	return event;
}

struct rdma_cm_event *expect_event(struct rdma_event_channel *channel,
				   enum rdma_cm_event_type type, int timeout)
{
	struct rdma_cm_event *event;

	if (!readable(channel, timeout * 1000 * (int)patience()))
		FAIL("no %s within %d s", rdma_event_str(type), timeout);
	event = next_event(channel, 0);
	if (event->event != type)
		FAIL("event %s status %d, expected %s", rdma_event_str(event->event),
		     event->status, rdma_event_str(type));
	return event;
}

int take_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = expect_event(channel, type, EVENT_TIMEOUT);
	int status = event->status;

	CHECK_OK(rdma_ack_cm_event(event));
	return status;
}

void expect_no_event(struct rdma_event_channel *channel, int milliseconds)
{
	if (readable(channel, milliseconds)) {
		struct rdma_cm_event *event = next_event(channel, 0);

		FAIL("unexpected event %s status %d", rdma_event_str(event->event),
		     event->status);
	}
}

struct ibv_qp_init_attr usual_qp(const struct rdma_cm_id *id)
{
	return (struct ibv_qp_init_attr){
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};
}

void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = usual_qp(id);

	CHECK_OK(rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp);
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_OK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

void pair_listen_on(struct pair *pair, enum rdma_port_space ps, struct sockaddr *addr)
{
	memset(pair, 0, sizeof(*pair));
	pair->ps = ps;
	pair->server_channel = make_channel();
	pair->client_channel = make_channel();
	pair->listener = make_id(pair->server_channel, ps);
	CHECK_OK(rdma_bind_addr(pair->listener, addr));
	CHECK_OK(rdma_listen(pair->listener, 8));
}

void pair_listen(struct pair *pair, enum rdma_port_space ps)
{
	pair_listen_on(pair, ps, test_addr(0));
}

void pair_resolve(struct pair *pair)
{
	pair->client = make_id(pair->client_channel, pair->ps);
	CHECK_OK(rdma_resolve_addr(pair->client, NULL,
				   rdma_get_local_addr(pair->listener), 5000));
	CHECK_EQ(take_event(pair->client_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
}

void pair_route(struct pair *pair)
{
	CHECK_OK(rdma_resolve_route(pair->client, 5000));
	CHECK_EQ(take_event(pair->client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

void pair_request(struct pair *pair, struct rdma_conn_param *param)
{
	CHECK_OK(rdma_connect(pair->client, param));
	pair->request = expect_event(pair->server_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
				     EVENT_TIMEOUT);
	pair->server = pair->request->id;
}

void pair_accept(struct pair *pair, struct rdma_conn_param *param)
{
	CHECK_OK(rdma_accept(pair->server, param));
	pair->established = expect_event(pair->client_channel, RDMA_CM_EVENT_ESTABLISHED,
					 EVENT_TIMEOUT);
	CHECK_EQ(pair->established->status, 0);
	if (pair->ps != RDMA_PS_UDP)
		CHECK_EQ(take_event(pair->server_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void pair_connect(struct pair *pair, enum rdma_port_space ps)
{
	pair_listen(pair, ps);
	pair_resolve(pair);
	make_qp(pair->client);
	pair_route(pair);
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	pair_request(pair, &param);
	make_qp(pair->server);
	/* A UD server names its QP by itself; see rdma_accept(3). */
	param.qp_num = pair->server->qp->qp_num;
	pair_accept(pair, &param);
}

static void destroy_id(struct rdma_cm_id **id)
{
	if (!*id)
		return;
	if ((*id)->qp)
		rdma_destroy_qp(*id);
	CHECK_OK(rdma_destroy_id(*id));
	*id = NULL;
}

static void ack_event(struct rdma_cm_event **event)
{
	if (!*event)
		return;
	CHECK_OK(rdma_ack_cm_event(*event));
	*event = NULL;
}

void pair_close(struct pair *pair)
{
	ack_event(&pair->request);
	ack_event(&pair->established);
	destroy_id(&pair->client);
	destroy_id(&pair->server);
	destroy_id(&pair->listener);
	rdma_destroy_event_channel(pair->client_channel);
	rdma_destroy_event_channel(pair->server_channel);
}

/* ---- Processes, devices, leaks ------------------------------------------- */

void run_in_child(void (*function)(void *), void *argument)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		function(argument);
		_exit(EXIT_SUCCESS);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		FAIL("child killed by SIG%s, last seen at %s:%d",
		     sigabbrev_np(WTERMSIG(status)),
		     base_name(report->file ? report->file : "?"), report->line);
	if (WEXITSTATUS(status) != EXIT_SUCCESS)
		_exit(WEXITSTATUS(status)); /* the child left its reason */
}

void drop_privileges(void)
{
	CHECK_OK(setgroups(0, NULL));
	CHECK_OK(setresgid(NOBODY, NOBODY, NOBODY));
	CHECK_OK(setresuid(NOBODY, NOBODY, NOBODY));
}

void private_mounts(void)
{
	CHECK_OK(unshare(CLONE_NEWNS));
	CHECK_OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

static const char cm_node[] = "/dev/infiniband/rdma_cm";
static dev_t cm_device;

void make_cm_node(const char *path, mode_t mode)
{
	CHECK_OK(mknod(path, S_IFCHR | mode, cm_device));
	CHECK_OK(chmod(path, mode));
}

void private_devices(mode_t cm_mode, mode_t uverbs_mode)
{
	dev_t uverbs_devices[16];
	char path[64];
	struct stat info;

	CHECK_OK(stat(cm_node, &info));
	cm_device = info.st_rdev;
	for (unsigned int i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "/dev/infiniband/uverbs%u", i);
		uverbs_devices[i] = stat(path, &info) ? 0 : info.st_rdev;
	}
	private_mounts();
	CHECK_OK(mount("none", "/dev", "tmpfs", 0, "mode=0755"));
	CHECK_OK(mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)));
	CHECK_OK(mkdir("/dev/char", 0755));
	CHECK_OK(mkdir("/dev/infiniband", 0755));
	if (cm_mode)
		make_cm_node(cm_node, cm_mode);
	for (unsigned int i = 0; uverbs_mode && i < 16; i++) {
		if (!uverbs_devices[i])
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/uverbs%u", i);
		CHECK_OK(mknod(path, S_IFCHR | uverbs_mode, uverbs_devices[i]));
		CHECK_OK(chmod(path, uverbs_mode));
	}
}

void run_command(const char *format, ...)
{
	char command[512];
	va_list args;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	if (status)
		FAIL("'%s' failed (status 0x%x)", command, (unsigned int)status);
}

static bool device_exists(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", test_device());
	return access(path, F_OK) == 0;
}

/* The table is filled from a kernel work queue that reports nothing. */
void wait_for_gid(const char *device, const struct sockaddr *addr)
{
	uint64_t deadline = now_ms() + 20000;
	const struct timespec pause = { .tv_nsec = 20000000 };
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	const unsigned char *ip = (const unsigned char *)&in->sin_addr;
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x",
		 ip[0], ip[1], ip[2], ip[3]);
	while (now_ms() < deadline) {
		for (int index = 0; index < 16; index++) {
			char path[128], gid[64] = "";
			FILE *file;

			snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/%d",
				 device, index);
			file = fopen(path, "r");
			if (!file)
				break;
			if (fscanf(file, "%63s", gid) != 1)
				gid[0] = '\0';
			fclose(file);
			if (strcmp(gid, wanted) == 0)
				return;
		}
		nanosleep(&pause, NULL);
	}
	FAIL("the address is not in the GID table of %s", device);
}

void rxe_remove(void)
{
	run_command("rdma link delete %s", test_device());
	CHECK(!device_exists());
}

void rxe_add(void)
{
	run_command("rdma link add %s type rxe netdev %s", test_device(), test_netdev());
	wait_for_gid(test_device(), test_addr(0));
}

struct sockaddr *second_addr(uint16_t port)
{
	return make_addr("10.99.77.1", port);
}

void second_add(void)
{
	run_command("ip link add rxetest type dummy && ip link set rxetest up && "
		    "ip addr add 10.99.77.1/24 dev rxetest");
	second_return();
}

void second_return(void)
{
	run_command("rdma link add %s type rxe netdev rxetest", SECOND_DEVICE);
	wait_for_gid(SECOND_DEVICE, second_addr(0));
}

void second_remove(void)
{
	run_command("rdma link delete %s 2>/dev/null; ip link delete rxetest 2>/dev/null || true",
		    SECOND_DEVICE);
}

void rxe_restore(void)
{
	if (!device_exists())
		rxe_add();
}

void rxe_renew(void)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	uint64_t deadline = now_ms() + 30000;

	run_command("rdma link delete %s 2>/dev/null || true", test_device());
	while (device_exists() && now_ms() < deadline)
		nanosleep(&pause, NULL);
	rxe_add();
}

/*
 * One more than how often all threads but the caller have gone to sleep; 0 unless
 * all sleep.
 */
static unsigned long others_sleep(void)
{
	DIR *threads = opendir("/proc/self/task");
	unsigned long total = 1, sleeps = 1;
	struct thread_state thread;

	CHECK(threads);
	while (sleeps && next_thread(threads, gettid(), &thread)) {
		sleeps = thread.asleep ? thread.sleeps : 0;
		total += sleeps;
	}
	closedir(threads);
	return sleeps ? total : 0;
}

void await_sleep(void)
{
	/* Counted in looks: who gets no processor is not asleep. */
	enum { ENOUGH = 10, MOST = 250 };
	const struct timespec pause = { .tv_nsec = 20000000 };
	unsigned long before = 0;

	for (int look = 0, same = 0; look < MOST && same < ENOUGH; look++) {
		unsigned long now = others_sleep();

		same = now && now == before ? same + 1 : 0;
		before = now;
		nanosleep(&pause, NULL);
	}
}

unsigned int open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	CHECK(directory);
	for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
		if (entry->d_name[0] != '.')
			count++;
	closedir(directory);
	return count - 1; /* the directory itself */
}

size_t heap_in_use(void)
{
	return mallinfo2().uordblks;
}

int test_rounds(int usual)
{
	const char *text = getenv("RDMACM_TEST_ROUNDS");

	return text ? atoi(text) : usual;
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
