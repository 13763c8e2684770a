/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many sockets one after another leave nothing behind: no descriptor, no
 * thread, no memory. RSOCKET_CYCLES is their number (default 150).
 */
#include "rsocket_pair.h"

enum { PORT = 7631, WARM_UP = 30 };

static int cycles(void)
{
	const char *text = getenv("RSOCKET_CYCLES");

	return text ? atoi(text) : 150;
}

struct use {
	unsigned int descriptors;
	unsigned int threads;
	size_t heap;
	size_t resident; /* kilobytes */
};

static size_t number_in(const char *path, const char *format)
{
	char line[256];
	size_t number = 0;
	FILE *file = fopen(path, "r");

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, format, &number) == 1)
			break;
	fclose(file);
	return number;
}

static struct use use_now(void)
{
	return (struct use){
		.descriptors = open_descriptors(),
		.threads = number_in("/proc/self/status", "Threads: %zu"),
		.heap = heap_in_use(),
		/* That of status is inexact, as proc(5) says. */
		.resident = number_in("/proc/self/smaps_rollup", "Rss: %zu kB"),
	};
}

/* After many more cycles than at `before`. */
static void check_constant(const struct use *before)
{
	struct use after = use_now();

	CHECK_EQ(after.threads, before->threads);
	CHECK_EQ(after.descriptors, before->descriptors);
	if (after.heap > before->heap + 20000)
		FAIL("%zu bytes on the heap, %zu before", after.heap, before->heap);
	if (after.resident > before->resident + 512)
		FAIL("%zu kB resident, %zu before", after.resident, before->resident);
}

/*
 * Allows one connection after the other by a byte to `ready`, so that none is
 * under way where the use is measured.
 */
static void serve(int ready)
{
	int listener = listen_on(test_addr(PORT), 8);
	struct use before = { 0 };

	for (int cycle = 0; cycle < cycles(); cycle++) {
		char data[8];
		int fd;

		CHECK_EQ(write(ready, "x", 1), 1);
		fd = raccept(listener, NULL, NULL);
		CHECK(fd >= 0);
		CHECK_EQ(rrecv(fd, data, sizeof(data), MSG_WAITALL), sizeof(data));
		CHECK_EQ(rsend(fd, data, sizeof(data), 0), sizeof(data));
		CHECK_EQ(rrecv(fd, data, sizeof(data), 0), 0);
		CHECK_OK(rclose(fd));
		if (cycle == WARM_UP)
			before = use_now();
	}
	check_constant(&before);
	CHECK_OK(rclose(listener));
}

TEST(soak, "75 many sockets one after another leave nothing behind [race]", .timeout = 100)
{
	struct sockaddr *addr = test_addr(PORT);
	struct use before = { 0 };
	int ready[2], status;
	pid_t pid;
	char byte;

	CHECK_OK(pipe(ready));
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		serve(ready[1]);
		_exit(EXIT_SUCCESS);
	}
	for (int cycle = 0; cycle < cycles(); cycle++) {
		char data[8] = "abcdefg", answer[8];
		int fd;

		CHECK_EQ(read(ready[0], &byte, 1), 1);
		fd = connect_to(addr);
		CHECK_EQ(rsend(fd, data, sizeof(data), 0), sizeof(data));
		CHECK_EQ(rrecv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
		CHECK(!memcmp(data, answer, sizeof(data)));
		CHECK_OK(rclose(fd));
		if (cycle == WARM_UP)
			before = use_now();
	}
	check_constant(&before);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status))
		_exit(WEXITSTATUS(status)); /* the child left its reason */
}
