/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Event channels and the device list; what happens when devices, nodes or
 * permissions are missing.
 */
#include "harness.h"

#include <netdb.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

/* Longer than any prompt failure takes here, shorter than the 5 s of a wait. */
enum { PROMPT_MS = 4000 };

TEST(create, "create and destroy; the descriptor is open, closes on exec, has no event")
{
	unsigned int descriptors;
	struct rdma_event_channel *channel = make_channel();
	struct pollfd entry = { .fd = channel->fd, .events = POLLIN };
	int fd = channel->fd;

	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK_EQ(poll(&entry, 1, 0), 0);
	rdma_destroy_event_channel(channel);
	CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);

	descriptors = open_descriptors();
	for (int i = 0; i < 50; i++)
		rdma_destroy_event_channel(make_channel());
	CHECK_EQ(open_descriptors(), descriptors);
}

TEST(descriptor_zero, "a channel on descriptor 0 is as good as any")
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	CHECK_OK(close(0));
	channel = make_channel();
	CHECK_EQ(channel->fd, 0);
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(no_descriptors, "no free descriptor gives NULL EMFILE, later success")
{
	struct rdma_event_channel *channel = make_channel();
	int first, last;

	last = first = dup(channel->fd);
	CHECK(first >= 0);
	for (int fd = first; fd >= 0; fd = dup(channel->fd))
		last = fd;
	CHECK_NULL_ERRNO(rdma_create_event_channel(), EMFILE);
	CHECK_OK(close(last));
	rdma_destroy_event_channel(make_channel());
}

TEST(no_device_channel, "3 no device: create_event_channel NULL ENODEV",
     .cleanup = rxe_restore, .timeout = 60)
{
	rxe_remove();
	CHECK_NULL_ERRNO(rdma_create_event_channel(), ENODEV);
}

TEST(no_device_list, "4 no device: get_devices NULL ENODEV, count 0",
     .cleanup = rxe_restore, .timeout = 60)
{
	int count = 99;

	rxe_remove();
	CHECK_NULL_ERRNO(rdma_get_devices(&count), ENODEV);
	CHECK_EQ(count, 0);
	CHECK_NULL_ERRNO(rdma_get_devices(NULL), ENODEV);
}

TEST(no_device_id, "5 no device: synchronous create_id ENODEV",
     .cleanup = rxe_restore, .timeout = 60)
{
	struct rdma_cm_id *id;

	rxe_remove();
	CHECK_ERRNO(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), ENODEV);
}

TEST(no_device_addrinfo, "6 no device: getaddrinfo -1 ENODEV",
     .cleanup = rxe_restore, .timeout = 60)
{
	struct rdma_addrinfo *info;
	char node[] = "127.0.0.1", service[] = "7471";

	rxe_remove();
	CHECK_ERRNO(rdma_getaddrinfo(node, service, NULL, &info), ENODEV);
}

TEST(no_device_name, "6 no device: an unknown name is the resolver's failure [fix]",
     .cleanup = rxe_restore, .timeout = 60)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_addrinfo *info;
	char node[] = "no-number", service[] = "7471";

	rxe_remove();
	CHECK_EQ(rdma_getaddrinfo(node, service, &hints, &info), EAI_NONAME);
}

TEST(device_appears, "7 device added after a failure: the next try succeeds",
     .cleanup = rxe_restore, .timeout = 60)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	rxe_remove();
	CHECK_NULL_ERRNO(rdma_create_event_channel(), ENODEV);
	rxe_add();
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(no_node, "8 no node, no /dev/char: NULL ENOENT at once", .timeout = 60)
{
	uint64_t start;

	private_devices(0, 0666);
	CHECK_OK(rmdir("/dev/char"));
	start = now_ms();
	CHECK_NULL_ERRNO(rdma_create_event_channel(), ENOENT);
	CHECK(now_ms() - start < PROMPT_MS);
}

/* Path of the node that udev would make below /dev/char. */
static void char_path(char *path, size_t size)
{
	char numbers[32];
	FILE *file = fopen("/sys/class/misc/rdma_cm/dev", "r");

	CHECK(file);
	CHECK(fscanf(file, "%31s", numbers) == 1);
	fclose(file);
	snprintf(path, size, "/dev/char/%s", numbers);
}

TEST(node_by_number, "node only below /dev/char: success", .timeout = 60)
{
	char path[64];

	private_devices(0, 0666);
	char_path(path, sizeof(path));
	make_cm_node(path, 0666);
	rdma_destroy_event_channel(make_channel());
}

static void *make_numbered_node_late(void *argument)
{
	const struct timespec pause = { .tv_nsec = 500000000 };

	nanosleep(&pause, NULL);
	make_cm_node(argument, 0666);
	return NULL;
}

TEST(node_late, "node appears below /dev/char during the wait: success", .timeout = 60)
{
	pthread_t thread;
	char path[64];

	private_devices(0, 0666);
	char_path(path, sizeof(path));
	CHECK_OK(pthread_create(&thread, NULL, make_numbered_node_late, path));
	rdma_destroy_event_channel(make_channel());
	CHECK_OK(pthread_join(thread, NULL));
}

TEST(node_never, "node never appears: NULL ENOENT after the wait", .timeout = 90)
{
	private_devices(0, 0666);
	CHECK_NULL_ERRNO(rdma_create_event_channel(), ENOENT);
}

TEST(node_retry, "node there after a failure: the next try succeeds", .timeout = 60)
{
	private_devices(0, 0666);
	CHECK_OK(rmdir("/dev/char"));
	CHECK_NULL_ERRNO(rdma_create_event_channel(), ENOENT);
	make_cm_node("/dev/infiniband/rdma_cm", 0666);
	rdma_destroy_event_channel(make_channel());
}

static void channel_without_permission(void *argument)
{
	uint64_t start;

	(void)argument;
	drop_privileges();
	start = now_ms();
	CHECK_NULL_ERRNO(rdma_create_event_channel(), EACCES);
	CHECK(now_ms() - start < PROMPT_MS);
}

TEST(no_permission, "9 node without permission: NULL EACCES at once [fix]",
     .timeout = 60)
{
	private_devices(0600, 0666);
	run_in_child(channel_without_permission, NULL);
}

static void id_without_permission(void *argument)
{
	struct rdma_cm_id *id;

	(void)argument;
	drop_privileges();
	CHECK_ERRNO(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), EACCES);
}

TEST(no_permission_id, "10 node without permission: synchronous create_id EACCES [fix]",
     .timeout = 90)
{
	private_devices(0600, 0666);
	run_in_child(id_without_permission, NULL);
}

TEST(wrong_node, "a node of another device is refused", .timeout = 90)
{
	private_devices(0, 0666);
	CHECK_OK(rmdir("/dev/char"));
	CHECK_OK(symlink("/dev/null", "/dev/infiniband/rdma_cm"));
	errno = 0;
	CHECK(!rdma_create_event_channel());
	CHECK(errno != 0);
}

static bool listed(struct ibv_context **list, const char *name)
{
	for (; *list; list++)
		if (strcmp(ibv_get_device_name((*list)->device), name) == 0)
			return true;
	return false;
}

TEST(list, "11 get_devices lists the device, ends with NULL")
{
	int count = -1;
	struct ibv_context **list = rdma_get_devices(&count);
	struct ibv_port_attr port;

	CHECK(list);
	CHECK(count >= 1);
	CHECK(!list[count]);
	CHECK(listed(list, test_device()));
	CHECK_OK(ibv_query_port(list[0], 1, &port));
	rdma_free_devices(list);
}

TEST(list_no_count, "11 get_devices(NULL)")
{
	struct ibv_context **list = rdma_get_devices(NULL);

	CHECK(list);
	CHECK(list[0]);
	rdma_free_devices(list);
}

TEST(list_same, "11 lists and ids share the context, which outlives the list")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct ibv_context **first = rdma_get_devices(NULL);
	struct ibv_context **second = rdma_get_devices(NULL);
	struct ibv_context *context;
	struct ibv_device_attr attr;

	CHECK(first && second);
	CHECK(first[0] == second[0]);
	context = first[0];
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs == context);
	rdma_free_devices(first);
	rdma_free_devices(second);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	CHECK_OK(ibv_query_device(context, &attr));
}

static void list_without_permission(void *argument)
{
	int count = -1;
	struct ibv_context **list;

	(void)argument;
	drop_privileges();
	list = rdma_get_devices(&count);
	CHECK(list);
	CHECK(!list[0]);
	CHECK_EQ(count, 0);
	rdma_free_devices(list);
}

TEST(verbs_no_permission, "12 uverbs without permission: empty device list",
     .timeout = 60)
{
	private_devices(0666, 0600);
	run_in_child(list_without_permission, NULL);
}

static void bind_without_permission(void *argument)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;

	(void)argument;
	drop_privileges();
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(0)), ENODEV);
	CHECK(!id->verbs);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

TEST(bind_no_permission, "13 uverbs without permission: bind ENODEV", .timeout = 60)
{
	private_devices(0666, 0600);
	run_in_child(bind_without_permission, NULL);
}

struct gates {
	int asked[2];   /* child: the list was empty */
	int granted[2]; /* parent: the permission is there */
};

static void use_after_permission(void *argument)
{
	struct gates *gates = argument;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	char byte = 0;

	list_without_permission(NULL);
	CHECK(write(gates->asked[1], &byte, 1) == 1);
	CHECK(read(gates->granted[0], &byte, 1) == 1);
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static void *grant_permission(void *argument)
{
	struct gates *gates = argument;
	char byte;

	CHECK(read(gates->asked[0], &byte, 1) == 1);
	run_command("chmod 0666 /dev/infiniband/uverbs*");
	CHECK(write(gates->granted[1], &byte, 1) == 1);
	return NULL;
}

TEST(permission_later, "12 a device is opened once the permission is there [fix]",
     .timeout = 60)
{
	struct gates gates;
	pthread_t thread;

	private_devices(0666, 0600);
	CHECK_OK(pipe(gates.asked));
	CHECK_OK(pipe(gates.granted));
	CHECK_OK(pthread_create(&thread, NULL, grant_permission, &gates));
	run_in_child(use_after_permission, &gates);
	CHECK_OK(pthread_join(thread, NULL));
}
