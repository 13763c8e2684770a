/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What calls on stream sockets take and give beside the data: addresses, control
 * data, options that do nothing, configuration files.
 */
#include "rsocket_pair.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { PORT = 7721 };

static void echo(struct ends *ends)
{
	char byte;

	CHECK_EQ(rsend(ends->client, "x", 1, 0), 1);
	CHECK_EQ(rrecv(ends->server, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'x');
}

TEST(given, "an address or control data given to a stream is refused, and harms nothing")
{
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = make_ends(addr);
	char data[4] = "data", control[64] = { 0 };
	struct iovec vector = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof(control) };

	CHECK_ERRNO((int)rsendto(e.client, data, 4, 0, addr, addr_length(addr)), EISCONN);
	CHECK_ERRNO((int)rsendto(e.client, data, 4, 0, NULL, 16), EISCONN);
	CHECK_ERRNO((int)rsendmsg(e.client, &message, 0), ENOTSUP);
	echo(&e);
	message = (struct msghdr){ .msg_iov = &vector, .msg_iovlen = 1, .msg_name = addr,
				   .msg_namelen = addr_length(addr) };
	CHECK_EQ(rsendmsg(e.client, &message, 0), 4);
	CHECK_EQ(rrecv(e.server, data, 4, MSG_WAITALL), 4);
	close_ends(&e);
}

TEST(accepted_from, "raccept and rrecvfrom name the peer")
{
	struct sockaddr_in peer = { 0 }, own = { 0 };
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = { .listener = listen_on(addr, 8), .client = connect_to(addr) };
	socklen_t length = sizeof(peer), own_length = sizeof(own);
	char byte;

	e.server = raccept(e.listener, (struct sockaddr *)&peer, &length);
	CHECK(e.server >= 0);
	CHECK_OK(rgetsockname(e.client, (struct sockaddr *)&own, &own_length));
	CHECK_EQ(length, sizeof(own));
	CHECK_EQ(peer.sin_port, own.sin_port);
	CHECK_EQ(peer.sin_addr.s_addr, own.sin_addr.s_addr);
	memset(&peer, 0, sizeof(peer));
	length = sizeof(peer);
	CHECK_EQ(rsend(e.client, "x", 1, 0), 1);
	CHECK_EQ(rrecvfrom(e.server, &byte, 1, 0, (struct sockaddr *)&peer, &length), 1);
	CHECK_EQ(peer.sin_port, own.sin_port);
	/* Without data there is nobody who sent it. */
	memset(&peer, 0, sizeof(peer));
	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_EQ(rrecvfrom(e.server, &byte, 1, 0, (struct sockaddr *)&peer, &length), 0);
	CHECK_EQ(peer.sin_port, 0);
	close_ends(&e);
}

TEST(unaccepted, "[fix] a listener that closes ends the connections that nobody accepted",
     .timeout = 40)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8), fds[3];
	char byte;

	for (int i = 0; i < 3; i++)
		fds[i] = connect_to(addr);
	CHECK_OK(rclose(listener));
	for (int i = 0; i < 3; i++) {
		CHECK(poll_one(fds[i], POLLIN, 15000) & (POLLHUP | POLLERR));
		CHECK(rrecv(fds[i], &byte, 1, 0) <= 0);
		CHECK_OK(rclose(fds[i]));
	}
}

/*
 * The kernel may hear of the end of a connection before it hears that the
 * handshake is complete.
 */
TEST(ended, "[race] a connection that its peer has ended is accepted, with what was sent",
     .timeout = 60)
{
	struct sockaddr *addr = test_addr(PORT);
	int listener = listen_on(addr, 8);

	for (int i = 0; i < 50; i++) {
		int fd = connect_to(addr), server;
		char data[8];

		CHECK_EQ(rsend(fd, "the end", 8, 0), 8);
		CHECK_OK(rclose(fd));
		CHECK_EQ(poll_one(listener, POLLIN, 15000), POLLIN);
		server = raccept(listener, NULL, NULL);
		CHECK(server >= 0);
		CHECK_EQ(rrecv(server, data, 8, MSG_WAITALL), 8);
		CHECK(!memcmp(data, "the end", 8));
		CHECK_EQ(rrecv(server, data, 8, 0), 0);
		CHECK_OK(rclose(server));
	}
	CHECK_OK(rclose(listener));
}

TEST(told_of_end, "[fix] rpoll tells POLLRDHUP when the peer has ended sending")
{
	struct ends e = make_ends(test_addr(PORT));

	CHECK_EQ(poll_one(e.server, POLLRDHUP, 0), 0);
	CHECK_OK(rshutdown(e.client, SHUT_WR));
	CHECK_EQ(poll_one(e.server, POLLRDHUP, 15000), POLLRDHUP);
	CHECK_EQ(poll_one(e.server, POLLRDHUP | POLLIN | POLLOUT, 0),
		 POLLRDHUP | POLLIN | POLLOUT);
	close_ends(&e);
}

static void on_signal(int number)
{
	(void)number;
}

/* Until the flag is set, a signal every few milliseconds. */
struct disturbance {
	pthread_t target;
	volatile bool done;
};

static void *disturb(void *argument)
{
	struct disturbance *disturbance = argument;

	while (!disturbance->done) {
		pthread_kill(disturbance->target, SIGUSR1);
		usleep(5000);
	}
	return NULL;
}

TEST(resumed, "[fix] a connect that a signal ended goes on, and can be waited for again",
     .timeout = 60)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct disturbance disturbance = { .target = pthread_self() };
	struct sockaddr *addr = silent_addr(PORT);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	CHECK_OK(sigaction(SIGUSR1, &action, NULL));
	CHECK_OK(pthread_create(&thread, NULL, disturb, &disturbance));
	/* Nobody answers there for more than two minutes. */
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINTR);
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EINTR);
	disturbance.done = true;
	CHECK_OK(pthread_join(thread, NULL));
	CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_ERRNO(rconnect(fd, addr, addr_length(addr)), EALREADY);
	CHECK_EQ(poll_one(fd, POLLOUT, 0), 0);
	CHECK_OK(rclose(fd));
}

TEST(type_of_service, "[fix] IP_TOS is an int or a byte, and reaches the connection")
{
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = { .client = rsocket(AF_INET, SOCK_STREAM, 0) };
	unsigned char byte = 0x28;

	CHECK_OK(rsetsockopt(e.client, IPPROTO_IP, IP_TOS, &byte, 1));
	CHECK_EQ(option_of(e.client, IPPROTO_IP, IP_TOS), 0x28);
	set_option(e.client, IPPROTO_IP, IP_TOS, 0x48);
	CHECK_EQ(option_of(e.client, IPPROTO_IP, IP_TOS), 0x48);
	e = join(e.client, addr);
	CHECK_EQ(option_of(e.client, IPPROTO_IP, IP_TOS), 0x48);
	echo(&e);
	close_ends(&e);
}

TEST(no_effect, "options of TCP that have no effect are taken")
{
	static const int names[] = { TCP_KEEPCNT, TCP_KEEPINTVL, TCP_NODELAY };
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = make_ends(addr);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		set_option(e.client, IPPROTO_TCP, names[i], 1);
	set_option(e.client, IPPROTO_TCP, TCP_MAXSEG, 1000);
	set_option(e.client, SOL_SOCKET, SO_OOBINLINE, 1);
	CHECK_EQ(option_of(e.client, IPPROTO_TCP, TCP_NODELAY), 1);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_OOBINLINE), 1);
	CHECK(option_of(e.client, IPPROTO_TCP, TCP_MAXSEG) >= 256);
	echo(&e);
	close_ends(&e);
}

/* ---- Configuration files ------------------------------------------------------ */

static void configure(const char *name, const char *text)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/etc/rdma/rsocket/%s", name);
	file = fopen(path, "w");
	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK_OK(fclose(file));
}

/* A folder for them that only this process sees. */
static void begin_configuration(void)
{
	private_mounts();
	CHECK(!mkdir("/etc/rdma", 0755) || errno == EEXIST);
	CHECK_OK(mount("none", "/etc/rdma", "tmpfs", 0, NULL));
	CHECK_OK(mkdir("/etc/rdma/rsocket", 0755));
}

TEST(configured, "configuration files set what sockets begin with")
{
	struct ends e;

	begin_configuration();
	configure("mem_default", "70000\n");
	configure("wmem_default", "20000\n");
	configure("sqsize_default", "100\n");
	configure("rqsize_default", "200\n");
	configure("inline_default", "32\n");
	configure("iomap_size", "7\n");
	configure("polling_time", "0\n");
	configure("wake_up_interval", "100\n");
	e.client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(e.client >= 0);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_RCVBUF), 70000);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_SNDBUF), 20000);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_SQSIZE), 100);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_RQSIZE), 200);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_INLINE), 32);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_IOMAPSIZE), 7);
	e = join(e.client, test_addr(PORT));
	echo(&e);
	CHECK_EQ(option_of(e.server, SOL_SOCKET, SO_RCVBUF), 70000);
	close_ends(&e);
}

TEST(beyond_limits, "[fix] numbers in configuration files are bounded")
{
	struct ends e;

	begin_configuration();
	configure("mem_default", "0\n");
	configure("wmem_default", "-5\n");
	configure("sqsize_default", "0\n");
	configure("rqsize_default", "70000\n");
	configure("inline_default", "70000\n");
	configure("polling_time", "-1\n");
	e.client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(e.client >= 0);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_RCVBUF), 4096);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_SNDBUF), 4096);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_RQSIZE), 65534);
	e = join(e.client, test_addr(PORT));
	CHECK(option_of(e.client, SOL_RDMA, RDMA_SQSIZE) > 0);
	echo(&e);
	close_ends(&e);
}

TEST(misconfigured, "garbage in configuration files leaves the defaults")
{
	struct ends e;

	begin_configuration();
	configure("mem_default", "many\n");
	configure("wmem_default", "");
	configure("sqsize_default", "-\n");
	configure("polling_time", "soon\n");
	e.client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(e.client >= 0);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_RCVBUF), 1 << 17);
	CHECK_EQ(option_of(e.client, SOL_SOCKET, SO_SNDBUF), 1 << 17);
	CHECK_EQ(option_of(e.client, SOL_RDMA, RDMA_SQSIZE), 384);
	e = join(e.client, test_addr(PORT));
	echo(&e);
	close_ends(&e);
}
