/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The usual beginning and end of cases that are about one asynchronous id. */
#ifndef CAPI_TESTS_SINGLE_H
#define CAPI_TESTS_SINGLE_H

#include "harness.h"

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;

static void begin(enum rdma_port_space ps)
{
	channel = make_channel();
	id = make_id(channel, ps);
}

static void end(void)
{
	CHECK_OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

#endif
