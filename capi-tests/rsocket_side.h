/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What is sent on the UDP side channel of datagram sockets before the data.
 */
#ifndef RSOCKET_SIDE_H
#define RSOCKET_SIDE_H

#include <stdint.h>

/* For IPv4. */
struct side {
	uint32_t tag;
	uint8_t version, op, length, reserved;
	uint32_t qpn;
	uint32_t addr;
} __attribute__((packed));

#endif
