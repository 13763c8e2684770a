/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the parts of the fault injection program say to each other; main.c
 * tells how they work together.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <rdma/rdma_cma.h>

/* A member joins and leaves a multicast group; it needs no peer. */
enum side { CLIENT, SERVER, MEMBER, SIDES };
enum style { ASYNCHRONOUS, SYNCHRONOUS, STYLES };

/* One victim to be run. */
struct order {
	enum side side;
	enum style style;
	/* The call that fails, counted from 1; 0: none. */
	int number;
	/* Port of the peer that listens. */
	uint16_t port;
};

enum report_kind {
	STARTED,   /* process */
	LISTENING, /* port */
	ACCEPTED,  /* the peer's connection is established */
	TRIED,	   /* the connection with the fault: error, step, reached, stuck */
	SETTLED,   /* another one without: error, step, stuck, descriptors, heap */
	EXITED,	   /* status */
};

/* What a victim, or whoever started it, has to say. */
struct report {
	enum report_kind kind;
	pid_t process;
	uint16_t port;
	/* errno of the first step that failed, or 0; negative: EAI_... */
	int error;
	char step[48];
	/* The victim made enough calls for one to fail. */
	bool reached;
	/* Something could not be destroyed at the second attempt either. */
	bool stuck;
	unsigned int descriptors;
	size_t heap;
	int status;
};

/* Runs victims by order (standard input), until there are no more orders. */
int run_victims(const struct sockaddr *address, long call, int window);

/* The other side of every connection. Never waits. */
struct peer;
struct peer *peer_open(const struct sockaddr *address);
/* Readable when there is something to do for peer_step. */
int peer_descriptor(const struct peer *peer);
/* Port that it listens on. */
uint16_t peer_port(const struct peer *peer);
/* Connects, as often as it takes until peer_rest. */
void peer_connect(struct peer *peer, uint16_t port);
/* The connection that peer_connect made is established on the other side too: only
 * then it is ended, since the request to disconnect might overtake the message that
 * establishes it. */
void peer_accepted(struct peer *peer);
void peer_step(struct peer *peer);
/* Ends all connections and attempts. */
void peer_rest(struct peer *peer);

/* ADDRESS with another port, in network byte order. */
struct sockaddr_storage with_port(const struct sockaddr *address, uint16_t port);
/* Ends the program with the current errno unless GOOD. */
void need(bool good, const char *what);

#endif
