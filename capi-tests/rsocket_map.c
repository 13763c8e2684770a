/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Direct placement: riomap, riounmap and riowrite on stream sockets. */
#include "rsocket_pair.h"

#include <sys/mman.h>

enum { PORT = 7661, SIZE = 100000 };

/* A pair whose client may expose so many buffers to its peer. */
static struct ends exposing(int count)
{
	struct sockaddr *addr = test_addr(PORT);
	struct ends e = { .listener = rsocket(AF_INET, SOCK_STREAM, 0) };

	set_option(e.listener, SOL_SOCKET, SO_REUSEADDR, 1);
	set_option(e.listener, SOL_RDMA, RDMA_IOMAPSIZE, count);
	CHECK_OK(rbind(e.listener, addr, addr_length(addr)));
	CHECK_OK(rlisten(e.listener, 4));
	e.client = connect_to(addr);
	e.server = raccept(e.listener, NULL, NULL);
	CHECK(e.server >= 0);
	return e;
}

/* Lets the peer learn of what was mapped or unmapped before. */
static void mark(struct ends *e)
{
	char byte = 'm';

	CHECK_EQ(rsend(e->client, &byte, 1, 0), 1);
	CHECK_EQ(rrecv(e->server, &byte, 1, 0), 1);
}

/* Lets what the peer wrote before arrive. */
static void answer(struct ends *e)
{
	char byte = 'a';

	CHECK_EQ(rsend(e->server, &byte, 1, 0), 1);
	CHECK_EQ(rrecv(e->client, &byte, 1, 0), 1);
}

TEST(limits, "76 riomap refuses what the peer has no room for, and reading")
{
	struct ends e = make_ends(test_addr(PORT));
	static char buffer[64];

	CHECK_ERRNO((int)riomap(e.client, buffer, 64, PROT_WRITE, 0, -1), ENOMEM);
	CHECK_ERRNO((int)riomap(e.client, buffer, 64, PROT_READ, 0, -1), EINVAL);
	close_ends(&e);
	e = exposing(2);
	CHECK_EQ(riomap(e.client, buffer, 16, PROT_WRITE, 0, 0), 0);
	CHECK_EQ(riomap(e.client, buffer + 16, 16, PROT_WRITE, 0, 100), 100);
	CHECK_ERRNO((int)riomap(e.client, buffer + 32, 16, PROT_WRITE, 0, 200), ENOMEM);
	CHECK_ERRNO(riounmap(e.client, buffer, 15), EINVAL);
	CHECK_OK(riounmap(e.client, buffer, 16));
	CHECK_EQ(riomap(e.client, buffer + 32, 16, PROT_WRITE, 0, 200), 200);
	CHECK_OK(riounmap(e.client, buffer + 16, 16));
	CHECK_OK(riounmap(e.client, buffer + 32, 16));
	close_ends(&e);
}

TEST(placed, "77 riowrite places data before what is sent afterwards")
{
	struct ends e = exposing(1);
	unsigned char *buffer = calloc(1, SIZE), *source = malloc(SIZE);
	off_t offset = riomap(e.client, buffer, SIZE, PROT_WRITE, 0, -1);

	CHECK_EQ(offset, (off_t)(intptr_t)buffer);
	mark(&e);
	for (int i = 0; i < SIZE; i++)
		source[i] = (unsigned char)(i * 7 + i / 256);
	for (size_t done = 0, step = 1; done < SIZE; done += step, step = step * 3 + 1) {
		if (step > SIZE - done)
			step = SIZE - done;
		CHECK_EQ(riowrite(e.server, source + done, step, offset + (off_t)done, 0), step);
	}
	answer(&e);
	CHECK_OK(memcmp(buffer, source, SIZE));
	CHECK_OK(riounmap(e.client, buffer, SIZE));
	close_ends(&e);
}

TEST(past_end, "78 [fix] riowrite stops at the end of a mapping", .timeout = 10)
{
	struct ends e = exposing(1);
	char buffer[64] = "", source[128];

	memset(source, 's', sizeof(source));
	CHECK_EQ(riomap(e.client, buffer, 32, PROT_WRITE, 0, 1000), 1000);
	mark(&e);
	CHECK_EQ((ssize_t)riowrite(e.server, source, 64, 1016, 0), 16);
	CHECK_ERRNO((int)riowrite(e.server, source, 64, 1032, 0), EFAULT);
	CHECK_ERRNO((int)riowrite(e.server, source, 64, 0, 0), EFAULT);
	answer(&e);
	for (int i = 0; i < 64; i++)
		CHECK_EQ(buffer[i], i >= 16 && i < 32 ? 's' : 0);
	CHECK_OK(riounmap(e.client, buffer, 32));
	mark(&e);
	CHECK_ERRNO((int)riowrite(e.server, source, 1, 1000, 0), EFAULT);
	mark(&e);
	answer(&e);
	close_ends(&e);
}

TEST(many, "79 [fix] mappings that come and go cost the stream nothing", .timeout = 30)
{
	struct ends e = exposing(1);
	char buffer[64] = "";

	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(riomap(e.client, buffer, sizeof(buffer), PROT_WRITE, 0, i), i);
		mark(&e);
		CHECK_EQ(riowrite(e.server, "x", 1, i, 0), 1);
		answer(&e);
		CHECK_EQ(buffer[0], 'x');
		CHECK_OK(riounmap(e.client, buffer, sizeof(buffer)));
	}
	close_ends(&e);
}

TEST(open_map, "80 [fix] a socket with a mapping closes", .timeout = 10)
{
	struct ends e = exposing(1);
	static char buffer[64];

	CHECK_EQ(riomap(e.client, buffer, sizeof(buffer), PROT_WRITE, 0, 0), 0);
	mark(&e);
	close_ends(&e);
}

TEST(unconnected, "[fix] an unconnected socket maps nothing")
{
	static char buffer[64];
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERRNO((int)riomap(fd, buffer, 64, PROT_WRITE, 0, 0), EINVAL);
	CHECK_ERRNO(riounmap(fd, buffer, 64), EINVAL);
	CHECK_ERRNO((int)riowrite(fd, buffer, 64, 0, 0), ENOTCONN);
	CHECK_ERRNO((int)riomap(-1, buffer, 64, PROT_WRITE, 0, 0), EBADF);
	CHECK_ERRNO((int)riowrite(-1, buffer, 64, 0, 0), EBADF);
	CHECK_OK(rclose(fd));
}
