/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Socket calls as programs make them, to be run with librspreload.so loaded.
 *
 * Called as harness.h says.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

/* --- the first call of a process ------------------------------------- */

static long first(const char *call)
{
	struct sockaddr_in at = address;
	socklen_t len = sizeof(at);
	struct sockaddr *to = (struct sockaddr *)&at;
	char buffer[8] = "";
	struct iovec vector = { buffer, sizeof(buffer) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct mmsghdr messages = { .msg_hdr = message };
	struct epoll_event event = { .events = EPOLLIN };
	int one = 1;

#define CALL(name, expression)          \
	if (strcmp(call, #name) == 0)   \
		return (expression)
	CALL(accept, accept(-1, to, &len));
	CALL(accept4, accept4(-1, to, &len, 0));
	CALL(bind, bind(-1, to, len));
	CALL(close, close(-1));
	CALL(connect, connect(-1, to, len));
	CALL(dup, dup(-1));
	CALL(dup2, dup2(-1, 9));
	CALL(dup3, dup3(-1, 9, 0));
	CALL(epoll_ctl, epoll_ctl(-1, EPOLL_CTL_ADD, -1, &event));
	CALL(epoll_wait, epoll_wait(-1, &event, 1, 0));
	CALL(epoll_pwait, epoll_pwait(-1, &event, 1, 0, NULL));
	CALL(epoll_pwait2, epoll_pwait2(-1, &event, 1, &(struct timespec){ 0 }, NULL));
	CALL(fcntl, fcntl(-1, F_GETFL));
	CALL(getpeername, getpeername(-1, to, &len));
	CALL(getsockname, getsockname(-1, to, &len));
	CALL(getsockopt, getsockopt(-1, SOL_SOCKET, SO_TYPE, &one, &len));
	CALL(ioctl, ioctl(-1, FIONREAD, &one));
	CALL(listen, listen(-1, 1));
	CALL(read, read(-1, buffer, sizeof(buffer)));
	CALL(readv, readv(-1, &vector, 1));
	CALL(recv, recv(-1, buffer, sizeof(buffer), 0));
	CALL(recvfrom, recvfrom(-1, buffer, sizeof(buffer), 0, NULL, NULL));
	CALL(recvmsg, recvmsg(-1, &message, 0));
	CALL(recvmmsg, recvmmsg(-1, &messages, 1, 0, NULL));
	CALL(send, send(-1, buffer, sizeof(buffer), 0));
	CALL(sendfile, sendfile(-1, -1, NULL, 1));
	CALL(sendmsg, sendmsg(-1, &message, 0));
	CALL(sendmmsg, sendmmsg(-1, &messages, 1, 0));
	CALL(sendto, sendto(-1, buffer, sizeof(buffer), 0, to, len));
	CALL(setsockopt, setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CALL(shutdown, shutdown(-1, SHUT_RD));
	CALL(write, write(-1, buffer, sizeof(buffer)));
	CALL(writev, writev(-1, &vector, 1));
#undef CALL
	errno = 0;
	return -1;
}

static const char *const calls[] = {
	"accept", "accept4", "bind", "close", "connect", "dup", "dup2", "dup3", "epoll_ctl",
	"epoll_wait", "epoll_pwait", "epoll_pwait2", "fcntl", "getpeername", "getsockname",
	"getsockopt", "ioctl", "listen", "read", "readv", "recv", "recvfrom", "recvmsg",
	"recvmmsg", "send", "sendfile", "sendmsg", "sendmmsg", "sendto", "setsockopt", "shutdown", "write", "writev",
};

static void any_call_first(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		char *words[] = { program, shown_address(), "first", (char *)calls[i], NULL };

		if (run(words) != 0)
			fail(__LINE__, calls[i]);
	}
}

static void shell(void)
{
	char *words[] = { "bash", "-c", "true", NULL };

	need(run(words) == 0);
}

/* --- without a socket ------------------------------------------------- */

static void sends_first(void)
{
	char got[8];

	need(send(STDIN_FILENO, "first", 5, 0) == 5);
	need(recv(STDIN_FILENO, got, sizeof(got), 0) == 6 && memcmp(got, "answer", 6) == 0);
}

static void inherits_socket(void)
{
	char *words[] = { program, shown_address(), "sends-first", NULL };
	int ends[2], status;
	char got[8];
	pid_t child;

	need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	child = fork();
	need(child >= 0);
	if (child == 0) {
		need(dup2(ends[1], STDIN_FILENO) == STDIN_FILENO);
		execv(program, words);
		_exit(127);
	}
	need(recv(ends[0], got, sizeof(got), 0) == 5 && memcmp(got, "first", 5) == 0);
	need(send(ends[0], "answer", 6, 0) == 6);
	need(waitpid(child, &status, 0) == child && status == 0);
}

static void epoll_of_pipes(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = 77 }, got;
	int ends[2], set = epoll_create1(0), file = open("/proc/self/exe", O_RDONLY);

	need(pipe(ends) == 0 && set >= 0 && file >= 0);
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == -1 && errno == EEXIST);
	need(epoll_ctl(set, EPOLL_CTL_ADD, file, &event) == -1 && errno == EPERM);
	need(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], &event) == -1 && errno == ENOENT);
	need(write(ends[1], "x", 1) == 1);
	need(epoll_wait(set, &got, 1, 1000) == 1 && got.data.fd == 77);
	need(epoll_wait(set, &got, 1, 0) == 0);
	event.events = EPOLLIN | EPOLLONESHOT;
	need(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0);
	need(epoll_wait(set, &got, 1, 1000) == 1);
	need(write(ends[1], "x", 1) == 1);
	need(epoll_wait(set, &got, 1, 0) == 0);
	need(threads() == 1);
}

static void timeouts_of_pipes(void)
{
	struct timeval time = { .tv_usec = 300000 };
	struct pollfd entry = { .events = POLLIN };
	double start = now();
	int ends[2];

	need(pipe(ends) == 0);
	entry.fd = ends[0];
	need(poll(&entry, 1, 300) == 0 && now() - start >= 0.299);
	start = now();
	need(select(0, NULL, NULL, NULL, &time) == 0 && now() - start >= 0.299);
}

/* --- over RDMA --------------------------------------------------------- */

static void looks_like_a_socket(void)
{
	struct stat status;
	char buffer[16];
	int ends[2], count = 0, on = 1;

	connected(ends);
	need(fstat(ends[0], &status) == 0 && S_ISSOCK(status.st_mode));
	say(ends[0], ends[1], "there");
	say(ends[1], ends[0], "and back");
	need(ioctl(ends[1], FIONBIO, &on) == 0);
	need(fcntl(ends[1], F_GETFL) & O_NONBLOCK);
	need(read(ends[1], buffer, sizeof(buffer)) == -1 && errno == EAGAIN);
	need(send(ends[0], "four", 4, 0) == 4);
	need(poll(&(struct pollfd){ .fd = ends[1], .events = POLLIN }, 1, -1) == 1);
	need(ioctl(ends[1], FIONREAD, &count) == 0 && count == 4);
	need(read(ends[1], buffer, sizeof(buffer)) == 4);
	need(shutdown(ends[0], SHUT_WR) == 0);
	need(poll(&(struct pollfd){ .fd = ends[1], .events = POLLIN }, 1, -1) == 1);
	need(read(ends[1], buffer, sizeof(buffer)) == 0);
}

static void messages(void)
{
	char text[] = "gathered", got[16] = "", room[64];
	struct iovec out[2] = { { text, 4 }, { text + 4, 4 } }, in = { got, sizeof(got) };
	struct msghdr message = { .msg_iov = &in, .msg_iovlen = 1, .msg_control = room,
				  .msg_controllen = sizeof(room) };
	struct mmsghdr many[2] = { { .msg_hdr = { .msg_iov = out, .msg_iovlen = 1 } },
				   { .msg_hdr = { .msg_iov = out + 1, .msg_iovlen = 1 } } };
	int ends[2];

	connected(ends);
	need(writev(ends[0], out, 2) == 8);
	need(recvmsg(ends[1], &message, 0) == 8);
	need(message.msg_controllen == 0 && strcmp(got, text) == 0);
	need(sendmmsg(ends[0], many, 2, 0) == 2 && many[0].msg_len == 4);
	need(recv(ends[1], got, 8, MSG_WAITALL) == 8 && strcmp(got, text) == 0);
}

static void duplicates(void)
{
	int ends[2], copy, other;

	connected(ends);
	copy = dup(ends[0]);
	need(copy >= 0 && is_over_rdma(copy));
	need(dup2(ends[0], ends[0]) == ends[0]);
	other = dup2(ends[0], open("/dev/null", O_RDWR));
	need(other >= 0 && is_over_rdma(other));
	need(close(ends[0]) == 0);
	say(copy, ends[1], "by the copy");
	need(close(copy) == 0);
	say(ends[1], other, "to the other");
	copy = fcntl(other, F_DUPFD_CLOEXEC, 100);
	need(copy >= 100 && (fcntl(copy, F_GETFD) & FD_CLOEXEC));
	need(close(other) == 0);
	say(copy, ends[1], "by the last");
	need(dup2(open("/dev/null", O_RDWR), copy) == copy && !is_over_rdma(copy));
	need(read(ends[1], &ends[0], 1) == 0);
}

static void files(void)
{
	char name[] = "/tmp/preload-XXXXXX", got[16] = "";
	off_t offset = 3;
	int ends[2], file = mkstemp(name);

	need(file >= 0 && unlink(name) == 0);
	need(write(file, "0123456789", 10) == 10 && lseek(file, 1, SEEK_SET) == 1);
	connected(ends);
	need(sendfile(ends[0], file, &offset, 4) == 4 && offset == 7);
	need(lseek(file, 0, SEEK_CUR) == 1);
	need(recv(ends[1], got, 4, MSG_WAITALL) == 4 && memcmp(got, "3456", 4) == 0);
	need(sendfile(ends[0], file, NULL, 100) == 9 && lseek(file, 0, SEEK_CUR) == 10);
	need(recv(ends[1], got, 9, MSG_WAITALL) == 9 && memcmp(got, "123456789", 9) == 0);
}

static void children(void)
{
	int ends[2], status;
	pid_t child;

	connected(ends);
	child = vfork();
	if (child == 0) {
		close(ends[0]);
		close(ends[1]);
		_exit(0);
	}
	need(waitpid(child, &status, 0) == child);
	say(ends[0], ends[1], "after vfork");
	child = fork();
	if (child == 0) {
		need(read(ends[0], &status, 1) == -1 && errno == EBADF);
		need(close(ends[0]) == 0 && close(ends[1]) == 0);
		exit(0);
	}
	need(waitpid(child, &status, 0) == child && status == 0);
	say(ends[1], ends[0], "after fork");
}

static void exits(void)
{
	char *data = calloc(1, 300000), *got = malloc(300000);
	int ends[2], status, listener;
	struct sockaddr_in at;
	pid_t child;

	need(data && got);
	listener = bound(&at);
	child = fork();
	if (child == 0) {
		ends[0] = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(ends[0], (struct sockaddr *)&at, sizeof(at)) == 0);
		need(send(ends[0], data, 300000, 0) == 300000);
		exit(0);
	}
	ends[1] = accept(listener, NULL, NULL);
	need(recv(ends[1], got, 300000, MSG_WAITALL) == 300000);
	need(read(ends[1], got, 1) == 0);
	need(waitpid(child, &status, 0) == child && status == 0);
}

static void mixed_waits(void)
{
	struct epoll_event event = { .events = EPOLLIN }, got[4];
	struct pollfd entries[2] = { { .events = POLLIN }, { .events = POLLIN } };
	int ends[2], pipes[2], set = epoll_create1(0);
	struct timeval time = { .tv_sec = 20 };
	fd_set readable;
	char buffer[8];

	connected(ends);
	need(pipe(pipes) == 0);
	entries[0].fd = event.data.fd = pipes[0];
	need(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0);
	entries[1].fd = event.data.fd = ends[1];
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0);
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == -1 && errno == EEXIST);
	need(poll(entries, 2, 100) == 0 && epoll_wait(set, got, 4, 100) == 0);
	need(write(ends[0], "x", 1) == 1);
	need(poll(entries, 2, -1) == 1 && entries[1].revents == POLLIN);
	need(epoll_wait(set, got, 4, -1) == 1 && got[0].data.fd == ends[1]);
	need(write(pipes[1], "x", 1) == 1);
	need(poll(entries, 2, -1) == 2);
	need(epoll_wait(set, got, 4, -1) == 2);
	need(read(ends[1], buffer, sizeof(buffer)) == 1);
	need(epoll_wait(set, got, 4, -1) == 1 && got[0].data.fd == pipes[0]);
	need(epoll_pwait2(set, got, 4, NULL, NULL) == 1 && got[0].data.fd == pipes[0]);
	FD_ZERO(&readable);
	FD_SET(pipes[0], &readable);
	FD_SET(ends[1], &readable);
	need(select(FD_SETSIZE, &readable, NULL, NULL, &time) == 1);
	need(FD_ISSET(pipes[0], &readable) && !FD_ISSET(ends[1], &readable));
	need(read(pipes[0], buffer, 1) == 1);
	event.events = EPOLLIN | EPOLLONESHOT;
	need(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], &event) == 0);
	need(write(ends[0], "y", 1) == 1);
	need(epoll_wait(set, got, 4, -1) == 1 && epoll_wait(set, got, 4, 0) == 0);
	need(close(ends[1]) == 0 && epoll_wait(set, got, 4, 0) == 0);
	need(close(set) == 0);
}

static void datagrams(void)
{
	struct sockaddr_in at[2], from;
	socklen_t len = sizeof(from);
	int ends[2];
	char got[32];

	for (int i = 0; i < 2; i++) {
		len = sizeof(at[i]);
		at[i] = address;
		ends[i] = socket(AF_INET, SOCK_DGRAM, 0);
		need(ends[i] >= 0 && bind(ends[i], (struct sockaddr *)&at[i], len) == 0);
		need(getsockname(ends[i], (struct sockaddr *)&at[i], &len) == 0);
		need(is_over_rdma(ends[i]));
	}
	need(sendto(ends[0], "hello", 5, 0, (struct sockaddr *)&at[1], len) == 5);
	need(recvfrom(ends[1], got, sizeof(got), 0, (struct sockaddr *)&from, &len) == 5);
	need(from.sin_port == at[0].sin_port && memcmp(got, "hello", 5) == 0);
}

/* With RDMAV_FORK_SAFE: each side's connection is used by a child. */
static void served_by_children(void)
{
	struct sockaddr_in at;
	int listener = bound(&at), fd, status;
	char got[8] = "";

	if (fork() == 0) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
		if (fork() == 0) {
			need(write(fd, "ping", 4) == 4 && is_over_rdma(fd));
			need(recv(fd, got, 4, MSG_WAITALL) == 4 && memcmp(got, "pong", 4) == 0);
			exit(0);
		}
		need(close(fd) == 0 && wait(&status) > 0 && status == 0);
		exit(0);
	}
	fd = accept(listener, NULL, NULL);
	need(fd >= 0);
	if (fork() == 0) {
		need(recv(fd, got, 4, MSG_WAITALL) == 4 && memcmp(got, "ping", 4) == 0);
		need(is_over_rdma(fd) && write(fd, "pong", 4) == 4);
		need(read(fd, got, 1) == 0);
		exit(0);
	}
	need(close(fd) == 0);
	for (int i = 0; i < 2; i++)
		need(wait(&status) > 0 && status == 0);
}

/* An address that cannot be read. */
static void *nowhere(void)
{
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(page != MAP_FAILED);
	return page;
}

static void bad_pointers(void)
{
	struct epoll_event event = { .events = EPOLLOUT };
	int ends[2], set = epoll_create1(0), above;
	fd_set writable;

	connected(ends);
	above = (ends[0] > ends[1] ? ends[0] : ends[1]) + 1;
	FD_ZERO(&writable);
	FD_SET(ends[0], &writable);
	need(poll(nowhere(), 1, 0) == -1 && errno == EFAULT);
	need(ppoll(nowhere(), 1, NULL, NULL) == -1 && errno == EFAULT);
	need(ppoll(&(struct pollfd){ .fd = ends[0] }, 1, nowhere(), NULL) == -1 && errno == EFAULT);
	need(select(above, nowhere(), NULL, NULL, NULL) == -1 && errno == EFAULT);
	need(select(above, NULL, &writable, nowhere(), NULL) == -1 && errno == EFAULT);
	need(select(above, NULL, &writable, NULL, nowhere()) == -1 && errno == EFAULT);
	need(pselect(above, NULL, &writable, NULL, nowhere(), NULL) == -1 && errno == EFAULT);
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], nowhere()) == -1 && errno == EFAULT);
	need(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	need(epoll_wait(set, nowhere(), 1, -1) == -1 && errno == EFAULT);
	need(epoll_pwait2(set, &event, 1, nowhere(), NULL) == -1 && errno == EFAULT);
	/* What was refused has changed nothing. */
	need(FD_ISSET(ends[0], &writable));
	need(select(above, NULL, &writable, NULL, NULL) == 1);
	need(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLOUT);
	say(ends[0], ends[1], "all the same");
}

static void many_buffers(void)
{
	static struct iovec vectors[1025];
	struct msghdr message = { .msg_iov = vectors, .msg_iovlen = 1025 };
	char byte = 'x', got = 0;
	int ends[2];

	connected(ends);
	vectors[1023] = (struct iovec){ &byte, 1 };
	need(writev(ends[0], vectors, 1025) == -1 && errno == EINVAL);
	need(sendmsg(ends[0], &message, 0) == -1 && errno == EMSGSIZE);
	need(writev(ends[0], vectors, 1024) == 1);
	vectors[1023].iov_base = &got;
	need(readv(ends[1], vectors, 1025) == -1 && errno == EINVAL);
	need(recvmsg(ends[1], &message, 0) == -1 && errno == EMSGSIZE);
	need(readv(ends[1], vectors, 1024) == 1 && got == 'x');
}

/* A number that takes administrators to have. */
static void far_duplicates(void)
{
	enum { FAR = 1100000 };
	struct rlimit limit = { FAR + 64, FAR + 64 };
	struct pollfd entry = { .fd = FAR, .events = POLLIN };
	int ends[2], file = open("/proc/sys/fs/nr_open", O_WRONLY);

	need(file >= 0 && write(file, "1200000", 7) == 7 && close(file) == 0);
	need(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	connected(ends);
	need(dup2(ends[1], FAR) == FAR && is_over_rdma(FAR));
	need(close(ends[1]) == 0);
	say(ends[0], FAR, "there");
	say(FAR, ends[0], "and back");
	need(write(ends[0], "x", 1) == 1 && poll(&entry, 1, -1) == 1);
	need(fcntl(ends[0], F_DUPFD, FAR) == FAR + 1 && is_over_rdma(FAR + 1));
	need(close(FAR) == 0 && read(FAR + 1, &(char){ 0 }, 1) == 0);
}

/* Waits until both have been told of; a wait may end with one of them. */
static void told_of_both(int set, const int ends[2])
{
	struct epoll_event got[4];
	bool told[2] = { false, false };

	while (!told[0] || !told[1]) {
		int count = epoll_wait(set, got, 4, -1);

		need(count > 0);
		for (int i = 0; i < count; i++) {
			need(got[i].events == EPOLLIN);
			need(got[i].data.fd == ends[0] || got[i].data.fd == ends[1]);
			told[got[i].data.fd == ends[1]] = true;
		}
	}
}

static void two_in_a_set(void)
{
	struct epoll_event event = { .events = EPOLLIN }, got[4];
	int ends[2], both[2], set = epoll_create1(0);
	char byte;

	connected(ends);
	both[0] = ends[1];
	both[1] = dup(ends[1]);
	need(epoll_ctl(set, EPOLL_CTL_MOD, both[1], &event) == -1 && errno == ENOENT);
	for (int i = 0; i < 2; i++) {
		event.data.fd = both[i];
		need(epoll_ctl(set, EPOLL_CTL_ADD, both[i], &event) == 0);
		need(epoll_ctl(set, EPOLL_CTL_ADD, both[i], &event) == -1 && errno == EEXIST);
	}
	need(write(ends[0], "x", 1) == 1);
	told_of_both(set, both);
	need(read(both[1], &byte, 1) == 1 && epoll_wait(set, got, 4, 0) == 0);
	need(epoll_ctl(set, EPOLL_CTL_DEL, both[0], NULL) == 0);
	need(epoll_ctl(set, EPOLL_CTL_DEL, both[0], NULL) == -1 && errno == ENOENT);
	need(write(ends[0], "y", 1) == 1);
	need(epoll_wait(set, got, 4, -1) == 1 && got[0].data.fd == both[1]);
	need(close(both[0]) == 0 && close(both[1]) == 0 && epoll_wait(set, got, 4, 0) == 0);
}

/* --- where RDMA cannot serve ------------------------------------------- */

/* A listener that only the kernel knows. */
static int tcp_listener(struct sockaddr_in *at, in_addr_t ip)
{
	socklen_t len = sizeof(*at);
	int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = ip };
	need(fd >= 0 && syscall(SYS_bind, fd, at, len) == 0);
	need(syscall(SYS_listen, fd, 4) == 0);
	need(syscall(SYS_getsockname, fd, at, &len) == 0);
	return fd;
}

static void check_tcp(int listener, int fd)
{
	int peer = accept(listener, NULL, NULL);

	need(peer >= 0 && !is_over_rdma(fd) && !is_over_rdma(peer));
	need(fcntl(fd, F_SETFL, 0) == 0);
	say(fd, peer, "by TCP");
	say(peer, fd, "as well");
	need(close(fd) == 0 && close(peer) == 0);
}

static void falls_back(void)
{
	in_addr_t ips[2] = { address.sin_addr.s_addr, htonl(INADDR_LOOPBACK) };
	struct sockaddr_in at;

	for (int i = 0; i < 2; i++) {
		int listener = tcp_listener(&at, ips[i]), fd = socket(AF_INET, SOCK_STREAM, 0);

		need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
		check_tcp(listener, fd);
	}
}

static void wait_by_poll(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLOUT };

	need(poll(&entry, 1, -1) == 1 && entry.revents == POLLOUT);
}

static void wait_by_select(int fd)
{
	fd_set writable;

	FD_ZERO(&writable);
	FD_SET(fd, &writable);
	need(select(fd + 1, NULL, &writable, NULL, NULL) == 1 && FD_ISSET(fd, &writable));
}

static void wait_by_epoll(int fd)
{
	struct epoll_event event = { .events = EPOLLOUT, .data.u64 = 1234567890123 }, got;
	int set = epoll_create1(0);

	need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	need(epoll_wait(set, &got, 1, -1) == 1);
	need(got.events == EPOLLOUT && got.data.u64 == event.data.u64);
	need(close(set) == 0);
}

static void falls_back_later(void)
{
	void (*const waits[])(int) = { wait_by_poll, wait_by_select, wait_by_epoll };
	struct sockaddr_in at;

	for (int i = 0; i < 3; i++) {
		int listener = tcp_listener(&at, address.sin_addr.s_addr), error = -1;
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		socklen_t len = sizeof(error);

		need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == -1);
		need(errno == EINPROGRESS);
		waits[i](fd);
		need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
		check_tcp(listener, fd);
	}
}

static void refused_by_both(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(int);
	int listener = tcp_listener(&at, address.sin_addr.s_addr), error = 0, fd;
	struct pollfd entry = { .events = POLLOUT };

	need(close(listener) == 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == ECONNREFUSED);
	entry.fd = fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EINPROGRESS);
	need(poll(&entry, 1, -1) == 1);
	need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
}

static void shut_while_it_connects(void)
{
	struct sockaddr_in nobody = address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
	struct pollfd entry = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(error);

	nobody.sin_addr.s_addr ^= htonl(0x40);
	need(connect(fd, (struct sockaddr *)&nobody, sizeof(nobody)) == -1);
	need(errno == EINPROGRESS);
	need(shutdown(fd, SHUT_RDWR) == 0);
	need(poll(&entry, 1, -1) == 1);
	need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET);
	need(is_over_rdma(fd));
}

static void kernels_datagrams(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
	char got[8];

	need(bind(to, (struct sockaddr *)&at, len) == 0);
	need(getsockname(to, (struct sockaddr *)&at, &len) == 0);
	need(sendto(from, "hello", 5, 0, (struct sockaddr *)&at, len) == 5);
	need(recv(to, got, sizeof(got), 0) == 5 && memcmp(got, "hello", 5) == 0);
}

static void kernels_only(void)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET }, got[2];
	struct sockaddr_in at;
	int listener = tcp_listener(&at, address.sin_addr.s_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0), set = epoll_create1(0);

	need(!is_over_rdma(fd) && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	/* The kernel itself knows it as a set, and finds the socket in it. */
	need(syscall(SYS_epoll_pwait, set, got, 2, 1000, NULL, 8) == 1);
	need(got[0].events == EPOLLOUT && epoll_wait(set, got, 2, 0) == 0);
	check_tcp(listener, fd);
	kernels_datagrams();
	need(threads() == 1);
}

static void lose_device(void)
{
	in_own_namespace();
	mkdir("/dev/infiniband", 0755);
	need(mount("none", "/dev/infiniband", "tmpfs", 0, NULL) == 0);
}

static void without_device(void)
{
	lose_device();
	run_case("kernels-only");
}

/* With RDMAV_FORK_SAFE: this one of the two sides cannot go over to RDMA. */
static void one_stays(bool server)
{
	struct sockaddr_in at;
	int listener = bound(&at), status, fd;
	char got[8] = "";

	if (fork() == 0) {
		if (!server)
			lose_device();
		fd = socket(AF_INET, SOCK_STREAM, 0);
		need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
		need(write(fd, "ping", 4) == 4 && !is_over_rdma(fd));
		need(recv(fd, got, 4, MSG_WAITALL) == 4 && memcmp(got, "pong", 4) == 0);
		exit(0);
	}
	if (server)
		lose_device();
	fd = accept(listener, NULL, NULL);
	need(fd >= 0 && recv(fd, got, 4, MSG_WAITALL) == 4 && memcmp(got, "ping", 4) == 0);
	need(!is_over_rdma(fd) && write(fd, "pong", 4) == 4);
	need(read(fd, got, 1) == 0);
	need(wait(&status) > 0 && status == 0);
}

static void server_stays(void)
{
	one_stays(true);
}

static void client_stays(void)
{
	one_stays(false);
}

static void configure(const char *text)
{
	FILE *file;

	in_own_namespace();
	mkdir("/etc/rdma", 0755);
	need(mount("none", "/etc/rdma", "tmpfs", 0, NULL) == 0);
	need(mkdir("/etc/rdma/rsocket", 0755) == 0);
	file = fopen("/etc/rdma/rsocket/preload_config", "w");
	need(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void other_program(void)
{
	configure("# program domain type protocol\nnetperf * * *\n");
	run_case("kernels-only");
}

static void streams_only(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(fd >= 0 && is_over_rdma(fd));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	need(fd >= 0 && !is_over_rdma(fd));
}

static void one_kind(void)
{
	configure("PRE inet STREAM tcp\n");
	run_case("streams-only");
}

static void datagrams_only(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	need(fd >= 0 && !is_over_rdma(fd));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	need(fd >= 0 && is_over_rdma(fd));
}

static void other_kind(void)
{
	configure("* * DGRAM *\n");
	run_case("datagrams-only");
}

static void sizes_set(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), values[3];
	socklen_t len = sizeof(int);

	for (int i = 0; i < 3; i++)
		need(getsockopt(fd, SOL_RDMA, i, &values[i], &len) == 0);
	need(values[0] == 64 && values[1] == 96 && values[2] == 32);
}

static void sizes(void)
{
	setenv("RS_SQ_SIZE", "64", 1);
	setenv("RS_RQ_SIZE", "96", 1);
	setenv("RS_INLINE", "32", 1);
	run_case("sizes-set");
}

static void forks(void)
{
	setenv("RDMAV_FORK_SAFE", "1", 1);
	run_case("served-by-children");
}

static void forks_without_device(void)
{
	setenv("RDMAV_FORK_SAFE", "1", 1);
	run_case("server-stays");
}

static void forks_to_device(void)
{
	setenv("RDMAV_FORK_SAFE", "1", 1);
	run_case("client-stays");
}

const struct test_case cases[] = {
	{ "any-call-first", any_call_first, "any call may be the first of a process" },
	{ "inherits-socket", inherits_socket, "the first call of a process is a send on a socket that it inherited" },
	{ "shell", shell, "bash -c true" },
	{ "epoll-of-pipes", epoll_of_pipes, "epoll sets without sockets are the kernel's" },
	{ "timeouts", timeouts_of_pipes, "poll and select of pipes and of nothing last" },
	{ "socket", looks_like_a_socket, "a connection over RDMA looks like any other" },
	{ "messages", messages, "vectors, messages and several messages at once" },
	{ "duplicates", duplicates, "duplicates live as long as one of them" },
	{ "files", files, "sendfile with and without an offset" },
	{ "children", children, "what children close stays open" },
	{ "exits", exits, "what was sent before exit arrives, with an end" },
	{ "mixed-waits", mixed_waits, "poll, select and epoll of a pipe and a connection" },
	{ "bad-pointers", bad_pointers, "pointers to no memory give EFAULT" },
	{ "many-buffers", many_buffers, "more buffers than the kernel takes are refused" },
	{ "far-duplicates", far_duplicates, "duplicates with numbers above a million" },
	{ "two-in-a-set", two_in_a_set, "two descriptors of a connection in an epoll set" },
	{ "datagrams", datagrams, "datagrams" },
	{ "falls-back", falls_back, "a blocking connect goes over to TCP" },
	{ "falls-back-later", falls_back_later, "a non-blocking connect goes over to TCP" },
	{ "refused", refused_by_both, "a connect that nobody takes is refused" },
	{ "shut-while-it-connects", shut_while_it_connects,
	  "a socket that is shut down while it connects does not go on over TCP" },
	{ "no-device", without_device, "without a device sockets are the kernel's" },
	{ "other-program", other_program, "sockets of other programs are the kernel's" },
	{ "one-kind", one_kind, "the configuration tells kinds of sockets apart" },
	{ "other-kind", other_kind, "where datagrams are configured, streams are the kernel's" },
	{ "sizes", sizes, "the environment sets sizes" },
	{ "forks", forks, "children serve connections of their parents" },
	{ "forks-server-stays", forks_without_device, "a server that forks and cannot use RDMA serves by TCP" },
	{ "forks-client-stays", forks_to_device, "a client of one that forks goes on by TCP" },
	{ "sends-first", sends_first, NULL },
	{ "served-by-children", served_by_children, NULL },
	{ "server-stays", server_stays, NULL },
	{ "client-stays", client_stays, NULL },
	{ "kernels-only", kernels_only, NULL },
	{ "streams-only", streams_only, NULL },
	{ "datagrams-only", datagrams_only, NULL },
	{ "sizes-set", sizes_set, NULL },
	{ NULL, NULL, NULL },
};

int main(int argc, char *argv[])
{
	if (argc == 4 && set_up(argc, argv))
		return first(argv[3]) == -1 && errno == EBADF ? 0 : 1;
	return run_cases(argc, argv);
}
