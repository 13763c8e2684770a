/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "harness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct sockaddr_in address = { .sin_family = AF_INET };
char *program;

void fail(int line, const char *what)
{
	printf("# line %d: %s (%s)\n", line, what, strerror(errno));
	exit(1);
}

bool set_up(int argc, char *argv[])
{
	program = argv[0];
	return argc >= 2 && inet_pton(AF_INET, argv[1], &address.sin_addr) == 1;
}

int run_cases(int argc, char *argv[])
{
	const struct test_case *this;

	if (!set_up(argc, argv))
		return 2;
	for (this = cases; argc == 3 && this->name; this++) {
		if (strcmp(argv[2], this->name) == 0) {
			alarm(LIMIT);
			this->run();
			return 0;
		}
	}
	for (this = cases; argc == 2 && this->name; this++) {
		char *words[] = { program, argv[1], (char *)this->name, NULL };
		int status;

		if (!this->text)
			continue;
		status = run(words);
		if (status != 0)
			printf("# status %#x\n", status);
		printf("%s - %s\n", status == 0 ? "ok" : "not ok", this->text);
		fflush(stdout);
	}
	return argc == 2 ? 0 : 2;
}

int run(char *const words[])
{
	int status;
	pid_t child = fork();

	need(child >= 0);
	if (child == 0) {
		execvp(words[0], words);
		_exit(127);
	}
	need(waitpid(child, &status, 0) == child);
	return status;
}

void run_case(const char *name)
{
	char *words[] = { program, shown_address(), (char *)name, NULL };

	execv(program, words);
	fail(__LINE__, program);
}

char *shown_address(void)
{
	static char text[INET_ADDRSTRLEN];

	need(inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)));
	return text;
}

void in_own_namespace(void)
{
	need(unshare(CLONE_NEWNS) == 0);
	need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
}

bool is_over_rdma(int fd)
{
	int value;
	socklen_t len = sizeof(value);

	return getenv("TCP") || getsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &len) == 0;
}

int bound(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	need(fd >= 0);
	*at = address;
	need(bind(fd, (struct sockaddr *)at, len) == 0);
	need(listen(fd, 4) == 0);
	need(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

void connected(int ends[2])
{
	struct sockaddr_in at;
	int listener = bound(&at);

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(ends[0], (struct sockaddr *)&at, sizeof(at)) == 0);
	ends[1] = accept(listener, NULL, NULL);
	need(ends[1] >= 0);
	need(is_over_rdma(ends[0]) && is_over_rdma(ends[1]));
	need(close(listener) == 0);
}

void say(int from, int to, const char *text)
{
	char buffer[64] = "";
	size_t len = strlen(text);

	need(write(from, text, len) == (ssize_t)len);
	need(recv(to, buffer, len, MSG_WAITALL) == (ssize_t)len);
	need(memcmp(buffer, text, len) == 0);
}

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int count = -2;

	need(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}
