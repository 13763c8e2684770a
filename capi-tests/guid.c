/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Devices without a node GUID, as virtual functions have them before they are
 * configured. Soft-RoCE always has one, so this program stands between the
 * library and its surroundings: it takes the GUID out of the kernel's replies
 * and out of what libibverbs says.
 */
#include "pair.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	QUERY_ROUTE = 5,
	QUERY = 19,
	QUERY_OPTION_ADDR = 0,
	/* Offsets of the device's index in the replies. */
	INDEX_IN_ROUTE = 200,
	INDEX_IN_ADDR = 272,
};

/* What the library gets to know of the device. */
static bool tell_guid = true, tell_index = true;

/* A command of the kernel's connection manager that is answered. */
struct query {
	uint32_t command;
	uint16_t in, out;
	uint64_t response;
	uint32_t id, option;
};

static void hide(const struct query *query)
{
	unsigned char *reply = (unsigned char *)(uintptr_t)query->response;
	size_t index = query->command == QUERY ? INDEX_IN_ADDR : INDEX_IN_ROUTE;
	static const int32_t unknown = -1;

	if (query->command == QUERY && query->option != QUERY_OPTION_ADDR)
		return;
	if (!tell_guid)
		memset(reply, 0, sizeof(uint64_t));
	if (!tell_index && query->out >= index + sizeof(unknown))
		memcpy(reply + index, &unknown, sizeof(unknown));
}

ssize_t write(int fd, const void *buffer, size_t length)
{
	const struct query *query = buffer;
	ssize_t result = syscall(SYS_write, fd, buffer, length);

	if (result == (ssize_t)length && length == sizeof(*query) &&
	    query->in == length - 8 && query->out != 0 &&
	    (query->command == QUERY || query->command == QUERY_ROUTE))
		hide(query);
	return result;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	static __be64 (*original)(struct ibv_device *);

	if (!original)
		original = (__be64(*)(struct ibv_device *))dlsym(RTLD_NEXT, "ibv_get_device_guid");
	return tell_guid ? original(device) : 0;
}

TEST(by_index, "a device with GUID 0 is found by its index [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	tell_guid = false;
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs);
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), test_device()) == 0);
	CHECK_EQ(id->port_num, 1);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(connection, "a connection over a device with GUID 0 [fix]")
{
	struct pair pair;

	tell_guid = false;
	pair_connect(&pair, RDMA_PS_TCP);
	send_message(pair.client, pair.server, "without a GUID");
	pair_close(&pair);
}

TEST(nothing, "GUID 0 and a kernel that tells no index: ENODEV [fix]")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);
	struct rdma_cm_id *other = make_id(channel, RDMA_PS_TCP);

	tell_guid = tell_index = false;
	CHECK_ERRNO(rdma_bind_addr(id, test_addr(0)), ENODEV);
	CHECK_OK(rdma_resolve_addr(other, NULL, test_addr(7), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_ERROR), -ENODEV);
	CHECK_OK(rdma_destroy_id(other));
	CHECK_OK(rdma_destroy_id(id));
}

TEST(by_guid, "a kernel that tells no index: found by its GUID")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_TCP);

	tell_index = false;
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK(id->verbs);
	CHECK(strcmp(ibv_get_device_name(id->verbs->device), test_device()) == 0);
	CHECK_OK(rdma_destroy_id(id));
}
