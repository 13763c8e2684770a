/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs of cases have in common that run with librspreload.so
 * loaded:
 *
 *	PROGRAM ADDRESS			all cases, each in a process of its own
 *	PROGRAM ADDRESS CASE		one of them
 *
 * ADDRESS is on the RDMA device. Output: a TAP line per case. With TCP in the
 * environment and without the library, cases of hard.c run on the kernel's
 * sockets, which shows that they ask for what TCP does.
 */
#ifndef PRELOAD_HARNESS_H
#define PRELOAD_HARNESS_H

#include <netinet/in.h>
#include <stdbool.h>

enum {
	SOL_RDMA = 0x10000,
	RDMA_SQSIZE = 0,
	/* Seconds that a case may take. */
	LIMIT = 60,
};

/* Cases with a text are run; others belong to one of them. */
struct test_case {
	const char *name;
	void (*run)(void);
	const char *text;
};

/* Of the program, ended by one without a name. */
extern const struct test_case cases[];

extern struct sockaddr_in address;
extern char *program;

/* Ends the case, which has failed. */
void fail(int line, const char *what) __attribute__((noreturn));

#define need(condition)                           \
	do {                                      \
		if (!(condition))                 \
			fail(__LINE__, #condition); \
	} while (0)

/* Takes the program's name and ADDRESS; false if there is none. */
bool set_up(int argc, char *argv[]);

/* Runs what the command line says; returns the exit status. */
int run_cases(int argc, char *argv[]);

/* Runs a command and returns its status. */
int run(char *const words[]);

/* Goes on as another case, in a program started anew. */
void run_case(const char *name) __attribute__((noreturn));

char *shown_address(void);

/* From here on the process mounts for itself. */
void in_own_namespace(void);

bool is_over_rdma(int fd);

/* A socket that listens, and where. */
int bound(struct sockaddr_in *at);

/* Both ends of a connection over RDMA. */
void connected(int ends[2]);

/* Sends a text from one to the other. */
void say(int from, int to, const char *text);

/* Seconds since some time. */
double now(void);

/* Threads of the process. */
int threads(void);

#endif
