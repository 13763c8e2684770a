/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A librdmacm.so.1 whose sockets are the kernel's TCP and UDP sockets: programs
 * that run on it show what they ask of sockets over RDMA that TCP does as well.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SAME(type, name, parameters, arguments) \
	type r##name parameters                 \
	{                                       \
		return name arguments;          \
	}
#define NONE(name)                   \
	long name(void)              \
	{                            \
		return -1;           \
	}

SAME(int, bind, (int fd, const struct sockaddr *addr, socklen_t length), (fd, addr, length))
SAME(int, listen, (int fd, int backlog), (fd, backlog))
SAME(int, accept, (int fd, struct sockaddr *addr, socklen_t *length), (fd, addr, length))
SAME(int, connect, (int fd, const struct sockaddr *addr, socklen_t length), (fd, addr, length))
SAME(int, shutdown, (int fd, int how), (fd, how))
SAME(int, close, (int fd), (fd))
SAME(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
SAME(ssize_t, recvfrom,
     (int fd, void *data, size_t size, int flags, struct sockaddr *addr, socklen_t *length),
     (fd, data, size, flags, addr, length))
SAME(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
SAME(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
SAME(ssize_t, sendto,
     (int fd, const void *data, size_t size, int flags, const struct sockaddr *addr,
      socklen_t length),
     (fd, data, size, flags, addr, length))
SAME(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
SAME(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
SAME(ssize_t, readv, (int fd, const struct iovec *vectors, int count), (fd, vectors, count))
SAME(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
SAME(ssize_t, writev, (int fd, const struct iovec *vectors, int count), (fd, vectors, count))
SAME(int, poll, (struct pollfd *entries, nfds_t count, int timeout), (entries, count, timeout))
SAME(int, select,
     (int count, fd_set *read, fd_set *write, fd_set *other, struct timeval *timeout),
     (count, read, write, other, timeout))
SAME(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *length), (fd, addr, length))
SAME(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *length), (fd, addr, length))
SAME(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length),
     (fd, level, name, value, length))
SAME(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length),
     (fd, level, name, value, length))

int rsocket(int domain, int type, int protocol)
{
	return socket(domain, type, protocol);
}

int rfcntl(int fd, int command, ...)
{
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, long);
	va_end(arguments);
	return fcntl(fd, command, argument);
}

int repoll_create(int flags)
{
	return epoll_create1(flags);
}

int repoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	return epoll_ctl(set, operation, fd, event);
}

int repoll_wait(int set, struct epoll_event *events, int most, int timeout)
{
	return epoll_wait(set, events, most, timeout);
}
/* The harness asks for it to tell the original apart. */
NONE(rdma_set_min_rnr_timer)
