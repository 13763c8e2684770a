/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Test harness of the C conformance programs: registration of cases, their
 * isolation in child processes, TAP output, checks, and the few RDMA helpers
 * that many programs share. It knows the public headers of the library only
 * and works the same with every implementation of it.
 *
 * A program defines cases and links harness.o, which has main():
 *
 *	TEST(device_address, "20 device address gives verbs, pd, port, sgid")
 *	{
 *		...
 *		CHECK_OK(rdma_bind_addr(id, addr));
 *	}
 *
 * The case is printed as "FILE/20 device address ...", FILE being the source
 * file without its suffix. The number is that of the conformance table; cases
 * beyond the table have none. The token [fix] in a name marks behaviour in
 * which the original library is known to fail, [race] a race that it may lose.
 * Fields after the text are optional:
 *
 *	TEST(slow, "39 dead neighbour", .timeout = 60, .cleanup = rxe_restore)
 *
 * Every case runs in its own process group; a crash, an exit or the time
 * limit fails the case, not the program. A failed check ends the process.
 * Usage: PROGRAM [--list] [SUBSTRING...].
 */
#ifndef CAPI_TESTS_HARNESS_H
#define CAPI_TESTS_HARNESS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <netinet/in.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* ---- Cases ------------------------------------------------------------- */

struct test_case {
	const char *file;
	const char *name;
	void (*run)(void);
	/* Runs in a process of its own after the case, however that ended. */
	void (*cleanup)(void);
	unsigned int timeout; /* seconds; 0 means the default of 20 */
	struct test_case *next;
};

#define TEST(ident, text, ...)                                                 \
	static void ident(void);                                               \
	static struct test_case ident##_case = {                               \
		.file = __FILE__, .name = text, .run = ident, ##__VA_ARGS__    \
	};                                                                     \
	__attribute__((constructor)) static void ident##_register(void)       \
	{                                                                      \
		test_register(&ident##_case);                                  \
	}                                                                      \
	static void ident(void)

void test_register(struct test_case *test);

/* ---- Verdicts ---------------------------------------------------------- */

void test_at(const char *file, int line);
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) test_skip(__VA_ARGS__)

/* The expression is true. errno at the time of failure is reported. */
#define CHECK(expr)                                                            \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		if (!(expr))                                                   \
			FAIL("%s is false (errno %d: %s)", #expr, errno,       \
			     strerror(errno));                                 \
	} while (0)

/* Two integers are equal; both are shown otherwise. */
#define CHECK_EQ(actual, expected)                                             \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		long long actual_ = (long long)(actual);                       \
		long long expected_ = (long long)(expected);                   \
		if (actual_ != expected_)                                      \
			FAIL("%s is %lld (0x%llx), expected %s = %lld (0x%llx)", \
			     #actual, actual_, actual_, #expected, expected_,  \
			     expected_);                                       \
	} while (0)

/* The call returns 0. */
#define CHECK_OK(call)                                                         \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		int ret_ = (call);                                             \
		if (ret_)                                                      \
			FAIL("%s = %d (errno %d: %s), expected 0", #call,      \
			     ret_, errno, strerror(errno));                    \
	} while (0)

/* The call returns -1 with this errno. */
#define CHECK_ERRNO(call, expected)                                            \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		errno = 0;                                                     \
		int ret_ = (call);                                             \
		int errno_ = errno;                                            \
		if (ret_ != -1 || errno_ != (expected))                        \
			FAIL("%s = %d (errno %d: %s), expected -1 with %s",    \
			     #call, ret_, errno_, strerror(errno_), #expected); \
	} while (0)

/* The call returns NULL with this errno. */
#define CHECK_NULL_ERRNO(call, expected)                                       \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		errno = 0;                                                     \
		const void *ret_ = (call);                                     \
		int errno_ = errno;                                            \
		if (ret_ || errno_ != (expected))                              \
			FAIL("%s = %p (errno %d: %s), expected NULL with %s",  \
			     #call, ret_, errno_, strerror(errno_), #expected); \
	} while (0)

/* ---- Names newer than the oldest supported headers ---------------------- */

enum {
	EVENT_ADDRINFO_RESOLVED = 16,
	EVENT_ADDRINFO_ERROR = 17,
	EVENT_USER = 18,
	EVENT_INTERNAL = 19,
	FLAG_RAI_SA = 0x10,
	FLAG_RAI_DNS = 0x20,
};

typedef int resolve_addrinfo_fn(struct rdma_cm_id *, const char *, const char *,
				const struct rdma_addrinfo *);
typedef int query_addrinfo_fn(struct rdma_cm_id *, struct rdma_addrinfo **);
typedef int write_cm_event_fn(struct rdma_cm_id *, enum rdma_cm_event_type, int,
			      uint64_t);

/* Address of a function of the loaded library; skips the case without it. */
void *library_symbol(const char *name);
/* The argument of a USER event (a union member newer than the headers). */
uint64_t event_argument(const struct rdma_cm_event *event);
bool kernel_at_least(int major, int minor);
/* Skips the case on kernels older than this. */
void require_kernel(int major, int minor);

/* ---- Environment ------------------------------------------------------- */

/* RDMACM_TEST_DEV, default rxe0. */
const char *test_device(void);
/* Network device below the RDMA device: RDMACM_TEST_NETDEV, default from sysfs. */
const char *test_netdev(void);
/* RDMACM_TEST_IP (default 10.99.0.1) with the port in host order. */
struct sockaddr *test_addr(uint16_t port);
/*
 * RDMACM_TEST_IP6, default a global address of the same network device. Skips
 * the case if there is none.
 */
struct sockaddr *test_addr6(uint16_t port);
/* RDMACM_TEST_PEER_IP, an address on the link that another host has; or skip. */
struct sockaddr *test_peer_addr(uint16_t port);
/* An address on the link of the test address that nobody has. */
struct sockaddr *silent_addr(uint16_t port);
/*
 * Address from its text, IPv4 or IPv6. The result lives in one of a few static
 * buffers of the calling thread and is overwritten by later calls.
 */
struct sockaddr *make_addr(const char *text, uint16_t port);
socklen_t addr_length(const struct sockaddr *addr);

/* ---- Ids and events ---------------------------------------------------- */

enum { EVENT_TIMEOUT = 15 }; /* seconds an expected event may take */

struct rdma_event_channel *make_channel(void);
struct rdma_cm_id *make_id(struct rdma_event_channel *channel,
			   enum rdma_port_space ps);
/* Waits by poll, then gets it; fails the case after timeout seconds. */
struct rdma_cm_event *next_event(struct rdma_event_channel *channel, int timeout);
/* As next_event; fails the case unless it is of this type. The caller acks. */
struct rdma_cm_event *expect_event(struct rdma_event_channel *channel,
				   enum rdma_cm_event_type type, int timeout);
/* expect_event with the usual timeout, acknowledged; returns its status. */
int take_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* Fails the case if the descriptor becomes readable within this time. */
void expect_no_event(struct rdma_event_channel *channel, int milliseconds);

/* Attributes of an RC or UD QP by ps, 4 entries of each kind. */
struct ibv_qp_init_attr usual_qp(const struct rdma_cm_id *id);
/* Such a QP, CQs made by the library. */
void make_qp(struct rdma_cm_id *id);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

/*
 * A client and a server id on this host. The functions below are the steps to
 * a connection, in their order, each driving both sides from one thread; a
 * program uses as many as it needs and may do its own things in between.
 * request and established are unacknowledged events, NULL if none is held;
 * who acknowledges one sets it to NULL. Fields are NULL until their step.
 */
struct pair {
	enum rdma_port_space ps;
	struct rdma_event_channel *server_channel;
	struct rdma_event_channel *client_channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *server;
	struct rdma_cm_id *client;
	struct rdma_cm_event *request;     /* CONNECT_REQUEST of server */
	struct rdma_cm_event *established; /* ESTABLISHED of client */
};

/* Channels and a listener on the test address, any port. */
void pair_listen(struct pair *pair, enum rdma_port_space ps);
/* The same on another address. */
void pair_listen_on(struct pair *pair, enum rdma_port_space ps,
		    struct sockaddr *addr);
/* A client id that resolved the listener's address. */
void pair_resolve(struct pair *pair);
void pair_route(struct pair *pair);
/* rdma_connect by the client; then the server's CONNECT_REQUEST. */
void pair_request(struct pair *pair, struct rdma_conn_param *param);
/*
 * rdma_accept by the server; ESTABLISHED at the client and, unless this is
 * UD, at the server.
 */
void pair_accept(struct pair *pair, struct rdma_conn_param *param);
/* All steps, with a QP on each side. */
void pair_connect(struct pair *pair, enum rdma_port_space ps);
/* Acknowledges what is held and destroys all that exists, QPs included. */
void pair_close(struct pair *pair);

/* ---- Processes, devices, leaks ----------------------------------------- */

/* Runs the function in a forked child and fails the case if that fails. */
void run_in_child(void (*function)(void *), void *argument);
/*
 * Starts a process that calls the function and ends; it is killed when the case
 * ends. If RDMACM_TEST_PEER_LIBRARY is set it runs on that library (a folder, or
 * "original"): the program is begun anew then, and the process has nothing of
 * this one's memory, only its descriptors. `what` is a static object or a function
 * of the program.
 */
pid_t start_peer(void (*run)(const void *what, long number), const void *what,
		 long number);
/* Waits for its end; fails the case if it failed. */
void wait_peer(pid_t pid);
/* Becomes nobody, for good, with no capabilities. */
void drop_privileges(void);
/* From here on, mounts of this process are its own. */
void private_mounts(void);
/*
 * A /dev of this process only: null and empty char and infiniband folders, the
 * latter with the RDMA nodes in these modes; mode 0 leaves a node out.
 */
void private_devices(mode_t cm_mode, mode_t uverbs_mode);
/* Makes the node of the connection manager at this path of the private /dev. */
void make_cm_node(const char *path, mode_t mode);
/* Runs a shell command (printf style); fails the case if it does. */
void run_command(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Deletes and adds the soft-RoCE device. Adding waits until the test address
 * is in the GID table. For .cleanup: rxe_restore adds it unless it is there,
 * rxe_renew replaces it, after the end of a removal that the case began.
 */
void rxe_remove(void);
void rxe_add(void);
void rxe_restore(void);
void rxe_renew(void);

/*
 * Another soft-RoCE device with an address of its own. second_remove leaves no
 * trace of it (for .cleanup); programs that have it open must have ended.
 */
#define SECOND_DEVICE "rxetest0"
void second_add(void);
void second_remove(void);
/* Only the device was deleted, not the interface: it comes back. */
void second_return(void);
struct sockaddr *second_addr(uint16_t port);

/* Until a device knows an IPv4 address that its interface was given. */
void wait_for_gid(const char *device, const struct sockaddr *addr);

/*
 * Until all other threads of this process have slept for a while without waking,
 * so that those that were to wait for something do; or until that takes too long.
 */
void await_sleep(void);

/* Open descriptors of this process. */
unsigned int open_descriptors(void);
/* Bytes in use on the heap of this process (malloc of the C library). */
size_t heap_in_use(void);
/* Monotonic time. */
uint64_t now_ms(void);

/*
 * How often a case that tries for a race goes round: so often as usual, or as
 * RDMACM_TEST_ROUNDS says, under checkers that make everything slow.
 */
int test_rounds(int usual);

#endif
