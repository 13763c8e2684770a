/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Several devices: those that cannot be used among others that can, which of
 * them are opened, and what remains of those that were removed.
 */
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

/* From this major version on a soft-RoCE device goes although it is open. */
enum { PROMPT_REMOVAL = 7 };

/* Nodes of devices that this process has open. */
static unsigned int open_devices(void)
{
	static const char prefix[] = "/dev/infiniband/uverbs";
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	CHECK(directory);
	for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
		char target[64] = "";

		if (readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1) > 0)
			count += strncmp(target, prefix, strlen(prefix)) == 0;
	}
	closedir(directory);
	return count;
}

/* Path of the node of a device. */
static void node_of(const char *device, char *path, size_t size)
{
	char line[64] = "";
	FILE *names;

	snprintf(path, size, "grep -l '^%s$' /sys/class/infiniband_verbs/uverbs*/ibdev | cut -d/ -f5",
		 device);
	names = popen(path, "r");
	CHECK(names);
	CHECK(fgets(line, sizeof(line), names));
	pclose(names);
	line[strcspn(line, "\n")] = '\0';
	snprintf(path, size, "/dev/infiniband/%s", line);
	CHECK_OK(access(path, F_OK));
}

/* Binds a new id to the address; the errno, 0 when it has a device. */
static int bind_error(struct sockaddr *addr)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	int error = rdma_bind_addr(id, addr) ? errno : 0;

	CHECK_EQ(id->verbs != NULL, error == 0);
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	return error;
}

static int listed_devices(void)
{
	struct ibv_context **devices;
	int count = -1;

	devices = rdma_get_devices(&count);
	CHECK(devices);
	rdma_free_devices(devices);
	return count;
}

TEST(lazily, "only devices that are used are opened", .cleanup = second_remove)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	second_add();
	CHECK_OK(rdma_bind_addr(id, make_addr("0.0.0.0", 0)));
	CHECK_EQ(open_devices(), 0);
	CHECK_EQ(bind_error(second_addr(0)), 0);
	CHECK_EQ(open_devices(), 1);
	CHECK_EQ(bind_error(second_addr(0)), 0);
	CHECK_EQ(open_devices(), 1);
	CHECK_EQ(bind_error(test_addr(0)), 0);
	CHECK_EQ(open_devices(), 2);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(both, "ids of two devices", .cleanup = second_remove)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *first = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *second = make_id(channel, RDMA_PS_TCP);

	second_add();
	CHECK_OK(rdma_bind_addr(first, test_addr(0)));
	CHECK_OK(rdma_bind_addr(second, second_addr(0)));
	CHECK(first->verbs != second->verbs);
	CHECK(first->pd != second->pd);
	CHECK(strcmp(ibv_get_device_name(first->verbs->device), test_device()) == 0);
	CHECK(strcmp(ibv_get_device_name(second->verbs->device), SECOND_DEVICE) == 0);
	CHECK_OK(rdma_destroy_id(second));
	CHECK_OK(rdma_destroy_id(first));
}

static void use_the_other(void *argument)
{
	(void)argument;
	drop_privileges();
	CHECK_EQ(listed_devices(), 1);
	CHECK_EQ(bind_error(second_addr(0)), ENODEV);
	CHECK_EQ(bind_error(test_addr(0)), 0);
	CHECK_EQ(open_devices(), 1);
}

TEST(one_forbidden, "a device that may not be opened does not harm another", .timeout = 60,
     .cleanup = second_remove)
{
	char node[256];

	second_add();
	node_of(SECOND_DEVICE, node, sizeof(node));
	private_devices(0666, 0666);
	run_command("chmod 0 %s", node);
	run_in_child(use_the_other, NULL);
}

TEST(one_missing, "a device without node does not harm another; ENXIO until it has one [fix]",
     .timeout = 60, .cleanup = second_remove)
{
	char node[256];

	second_add();
	node_of(SECOND_DEVICE, node, sizeof(node));
	private_devices(0666, 0666);
	run_command("mv %s /dev/hidden", node);
	CHECK_EQ(listed_devices(), 1);
	CHECK_EQ(bind_error(second_addr(0)), ENXIO);
	CHECK_EQ(bind_error(test_addr(0)), 0);
	run_command("mv /dev/hidden %s", node);
	CHECK_EQ(bind_error(second_addr(0)), 0);
	CHECK_EQ(listed_devices(), 2);
}

TEST(idle, "a device removed and added again while idle: used again, nothing is left open",
     .timeout = 120, .cleanup = rxe_restore)
{
	unsigned int before = 0;

	require_kernel(PROMPT_REMOVAL, 0);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(bind_error(test_addr(0)), 0);
		CHECK_EQ(open_devices(), 1);
		if (i == 0)
			before = open_descriptors();
		CHECK_EQ(open_descriptors(), before);
		rxe_remove();
		rxe_add();
	}
}

TEST(other_stays, "a device removed while another is in use: its context is closed",
     .timeout = 120, .cleanup = second_remove)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct pair pair;

	require_kernel(PROMPT_REMOVAL, 0);
	second_add();
	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, second_addr(0)));
	CHECK_EQ(open_devices(), 2);
	second_remove();
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_DEVICE_REMOVAL), 0);
	CHECK_OK(rdma_destroy_id(id));
	CHECK_EQ(listed_devices(), 1);
	CHECK_EQ(open_devices(), 1);
	send_message(pair.client, pair.server, "the other one works");
	pair_close(&pair);
}

static void *remove_main(void *argument)
{
	(void)argument;
	rxe_remove();
	return NULL;
}

/* The kernel waits for the process to close the device, before version 7. */
TEST(last_goes, "the last device goes for good once the program goes on, and may come back [race]",
     .timeout = 120, .cleanup = rxe_renew)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	pthread_t thread;

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_EQ(open_devices(), 1);
	CHECK_OK(pthread_create(&thread, NULL, remove_main, NULL));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_DEVICE_REMOVAL), 0);
	CHECK_OK(rdma_destroy_id(id));
	/* The library may or may not hear of the removal's end by then. */
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0)
		CHECK_OK(rdma_destroy_id(id));
	else
		CHECK_EQ(errno, ENODEV);
	CHECK_EQ(open_devices(), 0);
	CHECK_OK(pthread_join(thread, NULL));
	rxe_add();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_EQ(open_devices(), 1);
	CHECK_OK(rdma_destroy_id(id));
}
