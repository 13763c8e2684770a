/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events: names, delivery, acknowledgement. */
#include "harness.h"

TEST(names, "1 names of events 0 to 15")
{
	static const char *const names[] = {
		"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR",
		"CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
		"REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = rdma_event_str((enum rdma_cm_event_type)i);
		const char *prefix = "RDMA_CM_EVENT_";

		if (strncmp(text, prefix, strlen(prefix)) ||
		    strcmp(text + strlen(prefix), names[i]))
			FAIL("event %zu is named '%s'", i, text);
	}
}
