/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What calls on sockets return, written out: run once on the kernel's sockets
 * (with TCP in the environment) and once with librspreload.so loaded, the output
 * has to be the same. Called as harness.h says.
 *
 * Only what is certain is written: a case waits for what it looks at. What
 * differs on purpose is told by `unlike`, with what either gives.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, long result)
{
	if (result == -1)
		printf("# %s: %s\n", what, strerrorname_np(errno));
	else
		printf("# %s: %ld\n", what, result);
	fflush(stdout);
}

/* Writes a call and its result. */
#define see(call) tell(#call, (long)(call))

/* The same, for one that returns `tcp` or, over RDMA, `rdma`; negative numbers
   are those of errors. */
#define unlike(call, tcp, rdma) check_unlike(#call, (long)(call), getenv("TCP") ? (tcp) : (rdma))

static void check_unlike(const char *what, long result, long expected)
{
	long got = result == -1 ? -errno : result;

	printf("# %s: as %s\n", what, got == expected ? "documented" : strerrorname_np(-got));
	fflush(stdout);
}

/* Waits for events of a descriptor and returns which there are. */
static int events_of(int fd, short wanted)
{
	struct pollfd entry = { .fd = fd, .events = wanted };

	need(poll(&entry, 1, -1) == 1);
	return entry.revents;
}

/* Looks whether there are any. */
static int events_now(int fd, short wanted)
{
	struct pollfd entry = { .fd = fd, .events = wanted };

	need(poll(&entry, 1, 0) >= 0);
	return entry.revents;
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	need(fd >= 0);
	return fd;
}

static void blocking(int fd, bool blocks)
{
	need(fcntl(fd, F_SETFL, blocks ? 0 : O_NONBLOCK) == 0);
}

/* What has arrived, at least `len` bytes of it. */
static void arrived(int fd, size_t len)
{
	char *buffer = malloc(len);

	need(recv(fd, buffer, len, MSG_PEEK | MSG_WAITALL) == (ssize_t)len);
	free(buffer);
}

static char room[4096];

/* What no call should be given, unknown to the compiler. */
static void *volatile nothing;
static volatile int less = -1;

/* --- receiving and sending ------------------------------------------------ */

static void peeking(void)
{
	int ends[2];

	connected(ends);
	need(send(ends[0], "abcdef", 6, 0) == 6);
	arrived(ends[1], 6);
	see(recv(ends[1], room, 3, MSG_PEEK));
	see(recv(ends[1], room, 2, 0));
	see(recv(ends[1], room, sizeof(room), MSG_PEEK));
	see(memcmp(room, "cdef", 4));
	see(recv(ends[1], room, sizeof(room), MSG_PEEK | MSG_DONTWAIT));
	see(recv(ends[1], room, 0, 0));
	see(read(ends[1], room, 0));
	see(recv(ends[1], room, sizeof(room), MSG_DONTWAIT));
	see(recv(ends[1], room, sizeof(room), MSG_DONTWAIT));
	see(recv(ends[1], room, sizeof(room), MSG_PEEK | MSG_DONTWAIT));
	see(recv(ends[1], room, sizeof(room), MSG_ERRQUEUE | MSG_DONTWAIT));
	need(send(ends[0], "abcdef", 6, 0) == 6);
	arrived(ends[1], 6);
	need(shutdown(ends[0], SHUT_WR) == 0);
	see(recv(ends[1], room, 100, MSG_WAITALL | MSG_PEEK));
	see(recv(ends[1], room, 100, MSG_WAITALL));
	see(recv(ends[1], room, 100, MSG_WAITALL));
	see(recv(ends[1], room, 100, MSG_PEEK));
	see(recv(ends[1], room, 100, MSG_DONTWAIT));
}

static void vectors(void)
{
	char a[4] = "", b[4] = "";
	struct iovec in[4] = { { a, 0 }, { a, 2 }, { NULL, 0 }, { b, 3 } };
	struct msghdr message = { .msg_iov = in, .msg_iovlen = 4 };
	struct sockaddr_in at;
	int ends[2];

	connected(ends);
	need(send(ends[0], "abcdefghijklmno", 15, 0) == 15);
	arrived(ends[1], 15);
	see(readv(ends[1], in, 4));
	see(memcmp(a, "ab", 2) | memcmp(b, "cde", 3));
	see(readv(ends[1], in, 0));
	see(readv(ends[1], in, less));
	see(preadv(ends[1], in, 4, 0));
	see(pread(ends[1], room, 4, 0));
	message.msg_name = &at;
	message.msg_namelen = sizeof(at);
	message.msg_flags = -1;
	see(recvmsg(ends[1], &message, MSG_PEEK));
	see(message.msg_flags);
	see(message.msg_namelen);
	see(recvmsg(ends[1], &message, 0));
	see(memcmp(a, "fg", 2) | memcmp(b, "hij", 3));
	see(writev(ends[1], in, 4));
	see(writev(ends[1], in, 0));
	see(writev(ends[1], in, less));
	message.msg_iovlen = 0;
	see(sendmsg(ends[1], &message, 0));
	see(recv(ends[0], room, 5, MSG_WAITALL));
	see(memcmp(room, "fghij", 5));
	see(lseek(ends[0], 0, SEEK_CUR));
	see(fsync(ends[0]));
	see(ftruncate(ends[0], 0));
}

static void no_buffers(void)
{
	int ends[2];

	connected(ends);
	see(write(ends[0], nothing, 5));
	see(send(ends[0], nothing, 5, 0));
	see(writev(ends[0], nothing, 1));
	see(sendmsg(ends[0], nothing, 0));
	need(write(ends[0], "abcde", 5) == 5);
	arrived(ends[1], 5);
	see(read(ends[1], nothing, 5));
	see(recv(ends[1], nothing, 5, 0));
	see(readv(ends[1], nothing, 1));
	see(recvmsg(ends[1], nothing, 0));
	see(recv(ends[1], room, 5, MSG_WAITALL));
	see(memcmp(room, "abcde", 5));
}

static void bad_arguments(void)
{
	char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_in at;
	socklen_t len = sizeof(at), small = 4, negative = -1;
	struct sockaddr *to = (struct sockaddr *)&at;
	int ends[2], fd = tcp_socket(), listener = bound(&at), number;

	connected(ends);
	see(connect(fd, nothing, len));
	see(connect(fd, (struct sockaddr *)none, len));
	see(connect(fd, to, 4));
	see(connect(fd, to, 1000));
	see(bind(fd, nothing, len));
	see(bind(fd, (struct sockaddr *)none, len));
	see(bind(fd, to, 4));
	see(getsockname(fd, nothing, &len));
	see(getsockname(fd, to, nothing));
	see(getsockname(fd, to, &negative));
	see(getsockname(ends[0], to, &small));
	see(small);
	see(getpeername(ends[0], to, &negative));
	see(getpeername(fd, to, &len));
	see(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &number, nothing));
	see(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, nothing, &len));
	see(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &number, &negative));
	small = 2;
	see(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &number, &small));
	see(small);
	small = 2;
	see(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &number, &small));
	see(small);
	see(getsockopt(ends[0], SOL_SOCKET, 9999, &number, &len));
	see(getsockopt(ends[0], 77, 1, &number, &len));
	see(setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &number, 2));
	see(setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, nothing, 4));
	see(setsockopt(ends[0], SOL_SOCKET, 9999, &number, 4));
	see(setsockopt(ends[0], 77, 1, &number, 4));
	see(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &number, 4));
	see(setsockopt(ends[0], SOL_SOCKET, SO_TYPE, &number, 4));
	see(accept4(listener, NULL, NULL, 12345));
	see(accept(fd, NULL, NULL));
	see(accept(ends[0], NULL, NULL));
	see(shutdown(fd, SHUT_RD));
	see(shutdown(fd, 17));
	see(shutdown(ends[0], 17));
	see(shutdown(listener, 17));
	see(listen(ends[0], 1));
	see(bind(ends[0], to, sizeof(at)));
	see(recv(fd, room, 1, 0));
	see(recv(listener, room, 1, 0));
	see(recv(listener, room, 1, MSG_DONTWAIT));
	unlike(send(listener, room, 1, MSG_NOSIGNAL), -EPIPE, -ENOTCONN);
	see(send(fd, room, 1, MSG_NOSIGNAL));
}

static void lengths_of_names(void)
{
	struct sockaddr_in at, got;
	struct sockaddr_storage large;
	socklen_t len = sizeof(large), small = 3, none = 0;
	int listener = bound(&at), fd = tcp_socket(), peer;

	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	peer = accept(listener, (struct sockaddr *)&large, &len);
	need(peer >= 0);
	see(len);
	see(large.ss_family);
	see(((struct sockaddr_in *)&large)->sin_addr.s_addr == address.sin_addr.s_addr);
	len = sizeof(got);
	see(getpeername(fd, (struct sockaddr *)&got, &len));
	see(len);
	see(got.sin_port == at.sin_port && got.sin_addr.s_addr == at.sin_addr.s_addr);
	see(getsockname(peer, (struct sockaddr *)&got, &len));
	see(got.sin_port == at.sin_port);
	see(getpeername(peer, (struct sockaddr *)&got, &small));
	see(small);
	see(getpeername(peer, (struct sockaddr *)&got, &none));
	see(none);
	need(connect(tcp_socket(), (struct sockaddr *)&at, sizeof(at)) == 0);
	small = 3;
	see(accept(listener, (struct sockaddr *)&got, &small) >= 0);
	see(small);
	fd = tcp_socket();
	len = sizeof(got);
	see(getsockname(fd, (struct sockaddr *)&got, &len));
	see(len);
	see(got.sin_family);
	see(got.sin_port);
	see(got.sin_addr.s_addr);
	memset(&large, 1, sizeof(large));
	len = sizeof(large);
	see(recvfrom(peer, room, 1, MSG_DONTWAIT, (struct sockaddr *)&large, &len));
	see(len);
	need(send(fd = peer, "x", 1, 0) == 1);
}

static void connecting(void)
{
	struct sockaddr_in at, other;
	socklen_t len = sizeof(at);
	int listener = bound(&at), fd = tcp_socket(), error = -1;

	blocking(fd, false);
	see(connect(fd, (struct sockaddr *)&at, len));
	see(events_of(fd, POLLIN | POLLOUT));
	len = sizeof(error);
	see(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	see(error);
	see(len);
	len = sizeof(at);
	unlike(connect(fd, (struct sockaddr *)&at, len), 0, -EISCONN);
	see(connect(fd, (struct sockaddr *)&at, len));
	unlike(connect(listener, (struct sockaddr *)&at, len), -EISCONN, -EINVAL);
	see(recv(fd, room, 1, 0));
	see(close(accept(listener, NULL, NULL)));
	unlike(events_of(fd, POLLIN), POLLIN, POLLIN | POLLHUP);
	see(recv(fd, room, 1, 0));
	/* Nobody listens. */
	fd = bound(&other);
	need(close(fd) == 0);
	fd = tcp_socket();
	see(connect(fd, (struct sockaddr *)&other, len));
	len = sizeof(error);
	see(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	see(error);
	/* It has gone over to TCP for good. */
	unlike(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0, -ECONNREFUSED);
	fd = tcp_socket();
	blocking(fd, false);
	see(connect(fd, (struct sockaddr *)&other, sizeof(at)));
	see(events_of(fd, POLLIN | POLLOUT));
	see(recv(fd, room, 1, 0));
	see(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	see(error);
	fd = tcp_socket();
	blocking(fd, false);
	see(connect(fd, (struct sockaddr *)&other, sizeof(at)));
	see(events_of(fd, POLLOUT));
	see(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	see(error);
	see(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	see(error);
	see(send(fd, "x", 1, MSG_NOSIGNAL));
	see(recv(fd, room, 1, 0));
	fd = tcp_socket();
	other.sin_family = AF_INET6;
	see(connect(fd, (struct sockaddr *)&other, sizeof(other)));
	other.sin_family = 77;
	see(connect(fd, (struct sockaddr *)&other, sizeof(other)));
}

static void binding(void)
{
	struct sockaddr_in at, any = { .sin_family = AF_INET }, foreign = address;
	socklen_t len = sizeof(at);
	int listener = bound(&at), fd = tcp_socket(), other;

	see(bind(fd, (struct sockaddr *)&at, len));
	see(bind(fd, (struct sockaddr *)&any, len));
	see(bind(fd, (struct sockaddr *)&any, len));
	see(listen(fd, 0));
	see(listen(fd, 7));
	see(listen(listener, 9));
	foreign.sin_addr.s_addr = htonl(0xC6336401);
	other = tcp_socket();
	see(bind(other, (struct sockaddr *)&foreign, len));
	/* Without an address, the kernel chooses one. */
	other = tcp_socket();
	see(listen(other, 3));
	see(getsockname(other, (struct sockaddr *)&at, &len));
	see(at.sin_port != 0);
	at.sin_addr = address.sin_addr;
	fd = tcp_socket();
	see(connect(fd, (struct sockaddr *)&at, len));
	see(close(accept(other, NULL, NULL)));
	/* A listener that is closed leaves its port. */
	need(close(other) == 0 && close(fd) == 0);
	see(connect(tcp_socket(), (struct sockaddr *)&at, len));
}

static void ends_of_streams(void)
{
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	connected(ends);
	see(events_now(ends[0], POLLIN | POLLOUT | POLLRDHUP | POLLPRI));
	see(shutdown(ends[0], SHUT_WR));
	see(events_of(ends[1], POLLIN | POLLRDHUP));
	see(events_now(ends[1], POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
	see(read(ends[1], room, 1));
	see(read(ends[1], room, 1));
	see(events_now(ends[0], POLLIN | POLLOUT | POLLRDHUP));
	see(write(ends[0], "x", 1));
	see(shutdown(ends[0], SHUT_WR));
	see(write(ends[1], "x", 1));
	see(read(ends[0], room, 9));
	see(shutdown(ends[1], SHUT_WR));
	see(events_of(ends[0], POLLRDHUP));
	see(read(ends[0], room, 9));
	see(write(ends[1], "x", 1));
	see(events_now(ends[0], POLLIN | POLLOUT | POLLRDHUP));
	see(events_of(ends[1], POLLIN | POLLOUT | POLLRDHUP) & ~POLLOUT);
	connected(ends);
	see(shutdown(ends[0], SHUT_RD));
	see(read(ends[0], room, 1));
	see(events_now(ends[0], POLLIN | POLLOUT | POLLRDHUP));
	see(write(ends[0], "x", 1));
	see(read(ends[1], room, 1));
	see(shutdown(ends[0], SHUT_RDWR));
	see(write(ends[0], "x", 1));
	see(read(ends[1], room, 1));
	/* Of one that others have as well. */
	connected(ends);
	see(shutdown(dup(ends[0]), SHUT_WR));
	see(read(ends[1], room, 1));
	see(write(ends[0], "x", 1));
}

static void states_polled(void)
{
	struct sockaddr_in at;
	int fd = tcp_socket(), listener = bound(&at);
	struct pollfd entries[3] = { { .fd = -1, .events = POLLIN }, { .fd = 999, .events = POLLIN },
				     { .fd = listener, .events = POLLIN | POLLOUT } };

	see(events_now(fd, POLLIN | POLLOUT | POLLRDHUP));
	see(events_now(fd, 0));
	see(events_now(listener, POLLIN | POLLOUT | POLLRDHUP));
	see(poll(entries, 3, -1));
	see(entries[0].revents);
	see(entries[1].revents);
	see(entries[2].revents);
	see(poll(NULL, 0, 1));
	see(poll(entries, 1, 1));
	see(poll(nothing, 1, 1));
	need(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	see(events_of(listener, POLLIN | POLLOUT));
	entries[0].fd = entries[1].fd = fd;
	entries[1].events = POLLOUT;
	/* The same descriptor twice. */
	see(poll(entries, 3, -1));
	see(entries[0].revents);
	see(entries[1].revents);
	see(entries[2].revents);
	entries[0] = entries[2];
	entries[0].fd = ~entries[0].fd;
	see(poll(entries, 1, 1));
	see(entries[0].revents);
	see(shutdown(listener, SHUT_RD));
	see(accept(listener, NULL, NULL));
}

static void selecting(void)
{
	int ends[2], pipes[2], file = open("/proc/self/exe", O_RDONLY), most, closed;
	struct timeval time = { .tv_usec = 20000 };
	fd_set sets[3];

	connected(ends);
	need(pipe(pipes) == 0 && file >= 0);
	most = pipes[1] > file ? pipes[1] : file;
	most = (most > ends[0] ? most : ends[0]) + 1;
	most = most > ends[1] ? most : ends[1] + 1;
	for (int i = 0; i < 3; i++) {
		FD_ZERO(&sets[i]);
		FD_SET(ends[1], &sets[i]);
	}
	FD_SET(pipes[0], &sets[0]);
	FD_CLR(ends[1], &sets[1]);
	see(select(most, &sets[0], &sets[1], &sets[2], &time));
	see(time.tv_sec);
	see(time.tv_usec);
	see(FD_ISSET(ends[1], &sets[0]) | FD_ISSET(pipes[0], &sets[0]) | FD_ISSET(ends[1], &sets[2]));
	FD_SET(ends[1], &sets[0]);
	FD_SET(pipes[0], &sets[0]);
	FD_SET(file, &sets[0]);
	FD_SET(ends[1], &sets[1]);
	FD_SET(pipes[1], &sets[1]);
	time.tv_sec = 50;
	see(select(most, &sets[0], &sets[1], &sets[2], &time));
	see(time.tv_sec >= 40 && time.tv_sec < 50);
	see(FD_ISSET(ends[1], &sets[0]) != 0);
	see(FD_ISSET(file, &sets[0]) != 0);
	see(FD_ISSET(pipes[1], &sets[1]) != 0);
	see(FD_ISSET(ends[1], &sets[1]) != 0);
	/* A number that is too small leaves out what is above. */
	FD_ZERO(&sets[0]);
	FD_SET(ends[1], &sets[0]);
	need(write(ends[0], "x", 1) == 1);
	arrived(ends[1], 1);
	time = (struct timeval){ 0 };
	see(select(ends[1], &sets[0], NULL, NULL, &time));
	FD_SET(ends[1], &sets[0]);
	see(select(ends[1] + 1, &sets[0], NULL, NULL, NULL));
	FD_SET(ends[1], &sets[0]);
	see(select(-1, &sets[0], NULL, NULL, &time));
	closed = fcntl(file, F_DUPFD, 100);
	need(close(closed) == 0);
	FD_SET(closed, &sets[0]);
	see(select(closed + 1 > most ? closed + 1 : most, &sets[0], NULL, NULL, &time));
	see(FD_ISSET(ends[1], &sets[0]) != 0);
	time = (struct timeval){ .tv_sec = -1 };
	see(select(most, &sets[1], NULL, NULL, &time));
	FD_ZERO(&sets[1]);
	FD_SET(ends[1], &sets[1]);
	time = (struct timeval){ .tv_usec = 5000000 };
	see(select(most, &sets[1], NULL, NULL, &time));
	time = (struct timeval){ .tv_usec = -1 };
	see(select(most, &sets[1], NULL, NULL, &time));
}

/* --- limits of time -------------------------------------------------------- */

static void limits(void)
{
	struct timeval time = { .tv_usec = 50000 }, got = { 7, 7 };
	struct sockaddr_in at;
	socklen_t len = sizeof(got);
	int ends[2], listener = bound(&at);
	ssize_t sent;

	connected(ends);
	see(getsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &got, &len));
	see(got.tv_sec | got.tv_usec);
	see(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	see(recv(ends[1], room, 1, 0));
	see(read(ends[1], room, 1));
	see(recv(ends[1], room, 1, MSG_PEEK));
	need(write(ends[0], "abc", 3) == 3);
	arrived(ends[1], 3);
	see(recv(ends[1], room, 9, MSG_WAITALL));
	see(recv(ends[1], room, 9, MSG_WAITALL));
	see(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	see(accept(listener, NULL, NULL));
	time.tv_usec = 2000000;
	see(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	time.tv_usec = 50000;
	see(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)));
	do
		sent = send(ends[0], room, sizeof(room), 0);
	while (sent > 0);
	see(sent);
	time.tv_usec = 0;
	see(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	time.tv_sec = -1;
	see(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
}

/* --- epoll ------------------------------------------------------------------ */

static struct epoll_event found[8];

static int watch(int set, int operation, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	return epoll_ctl(set, operation, fd, &event);
}

static void sets_refused(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ends[2], pipes[2], set = epoll_create1(0), closed = 900;

	connected(ends);
	need(pipe(pipes) == 0);
	see(watch(-1, EPOLL_CTL_ADD, ends[0], EPOLLIN));
	see(watch(closed, EPOLL_CTL_ADD, ends[0], EPOLLIN));
	see(watch(pipes[0], EPOLL_CTL_ADD, ends[0], EPOLLIN));
	see(watch(ends[1], EPOLL_CTL_ADD, ends[0], EPOLLIN));
	see(watch(ends[0], EPOLL_CTL_ADD, ends[0], EPOLLIN));
	see(watch(set, 9, ends[0], EPOLLIN));
	see(watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN));
	see(watch(set, EPOLL_CTL_DEL, ends[0], EPOLLIN));
	see(watch(set, EPOLL_CTL_ADD, closed, EPOLLIN));
	see(watch(set, EPOLL_CTL_ADD, set, EPOLLIN));
	see(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], nothing));
	see(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	see(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	see(epoll_wait(set, found, 0, 0));
	see(epoll_wait(set, found, less, 0));
	see(epoll_wait(set, found, 8, 0));
	see(epoll_wait(pipes[0], found, 8, 0));
	see(epoll_wait(ends[0], found, 8, 0));
	see(epoll_wait(closed, found, 8, 0));
	see(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	see(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	see(watch(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLEXCLUSIVE));
	see(watch(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLEXCLUSIVE));
	see(watch(set, EPOLL_CTL_DEL, ends[0], 0));
	see(watch(set, EPOLL_CTL_ADD, ends[0], 0));
	see(epoll_wait(set, found, 8, 0));
}

static void sets_by_edges(void)
{
	int ends[2], set = epoll_create1(0);

	connected(ends);
	see(watch(set, EPOLL_CTL_ADD, ends[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET));
	see(epoll_wait(set, found, 8, -1));
	see(found[0].events);
	see(epoll_wait(set, found, 8, 0));
	need(write(ends[0], "abc", 3) == 3);
	see(epoll_wait(set, found, 8, -1));
	see(found[0].events);
	see(epoll_wait(set, found, 8, 0));
	see(read(ends[1], room, 1));
	see(epoll_wait(set, found, 8, 0));
	/* To set it again asks anew. */
	see(watch(set, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLET));
	see(epoll_wait(set, found, 8, -1));
	see(found[0].events);
	see(read(ends[1], room, 9));
	see(read(ends[1], room, 0));
	need(write(ends[0], "abc", 3) == 3);
	see(epoll_wait(set, found, 8, -1));
	see(watch(set, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLONESHOT));
	see(epoll_wait(set, found, 8, -1));
	see(epoll_wait(set, found, 8, 0));
	need(shutdown(ends[0], SHUT_WR) == 0);
	see(recv(ends[1], room, 9, MSG_WAITALL));
	see(epoll_wait(set, found, 8, 0));
	see(watch(set, EPOLL_CTL_MOD, ends[1], EPOLLIN | EPOLLRDHUP | EPOLLONESHOT));
	see(epoll_wait(set, found, 8, -1));
	see(found[0].events);
	see(watch(set, EPOLL_CTL_MOD, ends[1], 0));
	see(epoll_wait(set, found, 8, 0));
	need(shutdown(ends[1], SHUT_WR) == 0);
	see(epoll_wait(set, found, 8, -1));
	see(found[0].events);
}

static void sets_and_duplicates(void)
{
	int ends[2], copy, set = epoll_create1(0), other;

	connected(ends);
	need(write(ends[0], "x", 1) == 1);
	arrived(ends[1], 1);
	see(watch(set, EPOLL_CTL_ADD, ends[1], EPOLLIN));
	copy = dup(ends[1]);
	need(copy >= 0);
	/* A member stays as long as anybody has the socket. */
	see(close(ends[1]));
	see(epoll_wait(set, found, 8, 0));
	see(found[0].data.fd == ends[1]);
	/* The number is free for another socket. */
	other = tcp_socket();
	see(other == ends[1]);
	see(watch(set, EPOLL_CTL_ADD, other, EPOLLIN));
	see(close(other));
	see(read(copy, room, 1));
	see(close(copy));
	see(epoll_wait(set, found, 8, 0));
}

static void sets_duplicated(void)
{
	int ends[2], set = epoll_create1(0), copy = dup(set);

	connected(ends);
	need(write(ends[0], "x", 1) == 1);
	arrived(ends[1], 1);
	see(watch(set, EPOLL_CTL_ADD, ends[1], EPOLLIN));
	see(epoll_wait(copy, found, 8, 0));
	see(watch(copy, EPOLL_CTL_MOD, ends[1], EPOLLIN));
	see(close(set));
	see(epoll_wait(copy, found, 8, 0));
}

static void sets_polled(void)
{
	int ends[2], set = epoll_create1(0), outer = epoll_create1(0);
	fd_set readable;

	connected(ends);
	see(watch(set, EPOLL_CTL_ADD, ends[1], EPOLLIN));
	see(watch(outer, EPOLL_CTL_ADD, set, EPOLLIN));
	need(write(ends[0], "x", 1) == 1);
	arrived(ends[1], 1);
	see(events_now(set, POLLIN));
	FD_ZERO(&readable);
	FD_SET(set, &readable);
	see(select(set + 1, &readable, NULL, NULL, &(struct timeval){ 0 }));
	see(epoll_wait(outer, found, 8, 0));
}

static void *waits_in_set(void *set)
{
	return (void *)(intptr_t)epoll_wait(*(int *)set, found, 8, 20000);
}

/* A thread that waits already sees what is added. */
static void sets_grow(void)
{
	int ends[2], set = epoll_create1(0);
	pthread_t waiter;
	void *count;

	connected(ends);
	need(write(ends[0], "x", 1) == 1);
	arrived(ends[1], 1);
	need(pthread_create(&waiter, NULL, waits_in_set, &set) == 0);
	usleep(100000);
	see(watch(set, EPOLL_CTL_ADD, ends[1], EPOLLIN));
	need(pthread_join(waiter, &count) == 0);
	see((intptr_t)count);
}

/* --- descriptors -------------------------------------------------------------- */

static void numbers_taken(void)
{
	int ends[2], more[2], pipes[2], fd = tcp_socket();
	struct sockaddr_in at;
	int listener = bound(&at);

	connected(ends);
	connected(more);
	need(pipe(pipes) == 0);
	see(dup2(900, ends[0]));
	see(dup2(ends[0], -1));
	see(dup3(ends[0], ends[0], 0));
	see(dup3(ends[0], ends[1], 77));
	see(dup2(ends[0], ends[0]) == ends[0]);
	see(fcntl(ends[0], F_DUPFD, -1));
	say(ends[0], ends[1], "as before");
	/* A socket in the place of another, whose peer sees its end. */
	see(dup2(ends[0], more[0]) == more[0]);
	see(read(more[1], room, 1));
	say(more[0], ends[1], "from there");
	/* A pipe in the place of a connection. */
	see(dup2(pipes[1], more[0]) == more[0]);
	see(write(more[0], "x", 1));
	see(read(pipes[0], room, 1));
	say(ends[0], ends[1], "the other");
	/* A connection in the place of a listener and of a new socket. */
	see(dup2(ends[0], listener) == listener);
	see(connect(tcp_socket(), (struct sockaddr *)&at, sizeof(at)));
	see(dup3(ends[0], fd, O_CLOEXEC) == fd);
	see(fcntl(fd, F_GETFD));
	see(fcntl(listener, F_GETFD));
	/* Flags belong to all. */
	see(fcntl(fd, F_SETFL, O_NONBLOCK));
	see((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
	see(recv(listener, room, 1, 0));
	see(close(fd) | close(listener) | close(ends[0]));
	see(read(ends[1], room, 1));
	see(close(ends[0]));
	see(read(ends[0], room, 1));
}

static void flags_of_descriptors(void)
{
	int ends[2], number = 0, on = 1;

	connected(ends);
	see(fcntl(ends[0], F_GETFL));
	see(fcntl(ends[0], F_GETFD));
	see(fcntl(ends[0], F_SETFD, FD_CLOEXEC));
	see(fcntl(ends[0], F_GETFD));
	see(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_APPEND));
	see(fcntl(ends[0], F_GETFL));
	see(ioctl(ends[0], FIONREAD, &number));
	see(number);
	see(ioctl(ends[0], TIOCOUTQ, &number));
	see(number);
	see(ioctl(ends[0], FIONREAD, nothing));
	see(ioctl(ends[0], FIONBIO, nothing));
	see(ioctl(ends[1], FIONBIO, &on));
	see(fcntl(ends[1], F_GETFL));
	see(ioctl(ends[0], TCGETS, room));
	see(isatty(ends[0]));
	see(fcntl(ends[0], 9999));
	see(fcntl(ends[0], F_GETOWN));
	need(write(ends[1], "abcde", 5) == 5);
	arrived(ends[0], 0);
	see(events_of(ends[0], POLLIN));
	see(ioctl(ends[0], FIONREAD, &number));
	see(number);
}

static void files_sent(void)
{
	char name[] = "/tmp/same-XXXXXX";
	off_t offset = 3;
	int ends[2], pipes[2], file = mkstemp(name), only;

	need(file >= 0 && write(file, "0123456789", 10) == 10);
	only = open(name, O_WRONLY);
	need(unlink(name) == 0 && pipe(pipes) == 0 && only >= 0);
	connected(ends);
	see(sendfile(ends[0], file, NULL, 5));
	see(sendfile(ends[0], file, &offset, 0));
	see(sendfile(ends[0], file, &offset, 5));
	see(offset);
	see(sendfile(ends[0], -1, NULL, 5));
	see(sendfile(ends[0], only, NULL, 5));
	see(sendfile(ends[0], ends[1], NULL, 5));
	offset = -1;
	see(sendfile(ends[0], file, &offset, 5));
	offset = 100;
	see(sendfile(ends[0], file, &offset, 5));
	see(recv(ends[1], room, 5, MSG_WAITALL));
	see(memcmp(room, "34567", 5));
	see(recv(ends[1], room, 1, MSG_DONTWAIT));
	signal(SIGPIPE, SIG_IGN);
	need(shutdown(ends[0], SHUT_WR) == 0);
	offset = 0;
	see(sendfile(ends[0], file, &offset, 5));
	see(offset);
}

/* --- processes ----------------------------------------------------------------- */

static void has_descriptor(void)
{
	int fd = atoi(getenv("DESCRIPTOR"));

	see(fcntl(fd, F_GETFD) >= 0);
}

/* What an executed program gets. */
static void closed_when_executed(void)
{
	char *words[] = { program, shown_address(), "has-descriptor", NULL };
	struct sockaddr_in at;
	int listener = bound(&at), fds[3] = { tcp_socket(), -1, -1 };
	char number[12];

	need(connect(fds[0], (struct sockaddr *)&at, sizeof(at)) == 0);
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	fds[2] = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	for (int i = 0; i < 3; i++) {
		need(fds[i] >= 0);
		snprintf(number, sizeof(number), "%d", fds[i]);
		setenv("DESCRIPTOR", number, 1);
		see(run(words));
	}
	say(fds[0], fds[1], "afterwards");
}

static void children_close(void)
{
	int ends[2], status;

	connected(ends);
	if (fork() == 0) {
		closefrom(3);
		exit(0);
	}
	see(wait(&status) > 0);
	see(status);
	say(ends[0], ends[1], "there");
	if (fork() == 0) {
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		_exit(0);
	}
	see(wait(&status) > 0);
	see(status);
	say(ends[1], ends[0], "and back");
	if (fork() == 0) {
		dup2(open("/dev/null", O_RDWR), ends[0]);
		_exit(0);
	}
	see(wait(&status) > 0);
	see(status);
	say(ends[0], ends[1], "at last");
}

static void *receives(void *end)
{
	char byte;

	return (void *)recv(*(int *)end, &byte, 1, 0);
}

static void *accepts(void *listener)
{
	return (void *)(intptr_t)(accept(*(int *)listener, NULL, NULL) < 0 ? -errno : 0);
}

static void shut_by_another(void)
{
	struct sockaddr_in at;
	int ends[2], listener = bound(&at);
	pthread_t thread;
	void *result;

	connected(ends);
	need(pthread_create(&thread, NULL, receives, &ends[1]) == 0);
	usleep(50000);
	see(shutdown(ends[1], SHUT_RDWR));
	need(pthread_join(thread, &result) == 0);
	see((long)result);
	need(pthread_create(&thread, NULL, accepts, &listener) == 0);
	usleep(50000);
	see(shutdown(listener, SHUT_RDWR));
	need(pthread_join(thread, &result) == 0);
	see((long)result);
}

/* --- datagrams ------------------------------------------------------------------- */

static int datagram_socket(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	*at = address;
	need(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0);
	need(getsockname(fd, (struct sockaddr *)at, &len) == 0);
	return fd;
}

static void datagrams(void)
{
	struct sockaddr_in at[2], from;
	socklen_t len = sizeof(from);
	int ends[2] = { datagram_socket(&at[0]), datagram_socket(&at[1]) }, number;
	struct iovec vector = { room, 3 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_name = &from,
				  .msg_namelen = sizeof(from) };
	struct sockaddr *to = (struct sockaddr *)&at[1];
	struct timeval time = { .tv_usec = 50000 };

	see(events_now(ends[0], POLLIN | POLLOUT));
	see(send(ends[0], "x", 1, 0));
	see(recv(ends[0], room, 1, MSG_DONTWAIT));
	see(listen(ends[0], 1));
	see(accept(ends[0], NULL, NULL));
	see(getpeername(ends[0], (struct sockaddr *)&from, &len));
	see(sendto(ends[0], "hello", 5, 0, to, sizeof(at[1])));
	see(events_of(ends[1], POLLIN));
	see(ioctl(ends[1], FIONREAD, &number));
	see(number);
	see(recv(ends[1], room, 2, MSG_PEEK));
	see(recv(ends[1], room, 2, MSG_PEEK | MSG_TRUNC));
	see(recvmsg(ends[1], &message, 0));
	see(message.msg_flags);
	see(message.msg_namelen);
	see(from.sin_port == at[0].sin_port);
	see(recv(ends[1], room, 9, MSG_DONTWAIT));
	/* One of no length. */
	see(sendto(ends[0], "", 0, 0, to, sizeof(at[1])));
	see(events_of(ends[1], POLLIN));
	see(recvfrom(ends[1], room, 9, 0, (struct sockaddr *)&from, &len));
	see(from.sin_port == at[0].sin_port);
	see(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	see(recv(ends[1], room, 9, 0));
	see(connect(ends[0], to, sizeof(at[1])));
	see(getpeername(ends[0], (struct sockaddr *)&from, &len));
	see(from.sin_port == at[1].sin_port);
	see(write(ends[0], "by write", 8));
	see(read(ends[1], room, 100));
	see(sendto(ends[0], "anew", 4, 0, to, sizeof(at[1])));
	see(read(ends[1], room, 100));
	unlike(shutdown(ends[1], SHUT_RD), -ENOTCONN, 0);
	at[1].sin_family = AF_UNSPEC;
	see(connect(ends[0], to, sizeof(at[1])));
	see(send(ends[0], "x", 1, 0));
	see(getpeername(ends[0], (struct sockaddr *)&from, &len));
}

const struct test_case cases[] = {
	{ "peeking", peeking, "what recv sees" },
	{ "vectors", vectors, "vectors, messages, and calls for files" },
	{ "no-buffers", no_buffers, "null in the place of buffers" },
	{ "bad-arguments", bad_arguments, "arguments that are refused" },
	{ "lengths-of-names", lengths_of_names, "addresses and their lengths" },
	{ "connecting", connecting, "connect, refused or not" },
	{ "binding", binding, "bind and listen" },
	{ "ends-of-streams", ends_of_streams, "shutdown, and what the other side sees" },
	{ "states-polled", states_polled, "what poll says of each state" },
	{ "selecting", selecting, "select over sockets, pipes and files" },
	{ "limits", limits, "limits of time" },
	{ "sets-refused", sets_refused, "what epoll refuses" },
	{ "sets-by-edges", sets_by_edges, "epoll by edges and for one event" },
	{ "sets-and-duplicates", sets_and_duplicates, "members of epoll sets that are duplicated" },
	{ "sets-duplicated", sets_duplicated, "epoll sets that are duplicated" },
	{ "sets-polled", sets_polled, "epoll sets that are waited for" },
	{ "sets-grow", sets_grow, "epoll sets that get members while a thread waits" },
	{ "numbers-taken", numbers_taken, "duplicates in the place of others" },
	{ "flags-of-descriptors", flags_of_descriptors, "fcntl and ioctl" },
	{ "files-sent", files_sent, "sendfile" },
	{ "closed-when-executed", closed_when_executed, "what an executed program has" },
	{ "children-close", children_close, "children that close everything" },
	{ "shut-by-another", shut_by_another, "a shutdown by another thread" },
	{ "datagrams", datagrams, "datagrams" },
	{ "has-descriptor", has_descriptor, NULL },
	{ NULL, NULL, NULL },
};

int main(int argc, char *argv[])
{
	return run_cases(argc, argv);
}
