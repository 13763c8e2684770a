/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that is linked to the static library: it connects to a socket of its
 * own, sends a message there and receives it.
 *
 *	alone IP PORT
 *
 * Without any dynamic library it has only those drivers that it asks for here, see
 * rdma_cm(7).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include <infiniband/verbs.h>
#include <rdma/rsocket.h>

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const char message[] = "to myself";
	struct sockaddr_in in = { .sin_family = AF_INET };
	const struct sockaddr *address = (struct sockaddr *)&in;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	int listener, client, server;
	char data[sizeof(message)];

	need(argc == 3 && inet_pton(AF_INET, argv[1], &in.sin_addr) == 1, "an address");
	in.sin_port = htons(atoi(argv[2]));
	need(devices && devices[0], "a device");
	ibv_free_device_list(devices);

	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	need(listener >= 0 && !rbind(listener, address, sizeof(in)), "bind");
	need(!rlisten(listener, 1), "listen");
	client = rsocket(AF_INET, SOCK_STREAM, 0);
	need(client >= 0 && !rconnect(client, address, sizeof(in)), "connect");
	server = raccept(listener, NULL, NULL);
	need(server >= 0, "accept");

	need(rsend(client, message, sizeof(message), 0) == sizeof(message), "send");
	need(rrecv(server, data, sizeof(data), MSG_WAITALL) == sizeof(data), "receive");
	need(!rclose(client), "close");
	need(rrecv(server, data + 1, 1, 0) == 0, "the end of the stream");
	need(!rclose(server) && !rclose(listener), "close");
	puts(data);
	return 0;
}
