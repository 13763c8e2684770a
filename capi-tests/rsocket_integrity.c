/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Data integrity of stream sockets: random sizes in random pieces, every byte
 * verified, in both directions at once; and what happens to the data when the
 * peer is stopped or killed.
 *
 * The peer is another process, which runs the same code. RSOCKET_MEGABYTES is
 * the amount per direction and case (default 4).
 */
#include "rsocket_pair.h"

#include <sys/mman.h>
#include <sys/uio.h>

enum { PORT = 7611, LONGEST = 200000, PATIENCE = 50 };

/* One direction of a connection, seen from one side. */
struct flow {
	int fd;
	uint64_t seed; /* of the data */
	uint64_t pace; /* of the sizes */
	uint64_t bytes;
	bool nonblocking;
	bool interrupted; /* the connection may break */
	uint64_t done;
};

static uint64_t mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

static uint64_t amount(void)
{
	const char *text = getenv("RSOCKET_MEGABYTES");

	return (text ? strtoull(text, NULL, 10) : 4) << 20;
}

/* The data of a direction from an offset on. */
static void fill(uint64_t seed, uint64_t offset, char *data, size_t size)
{
	while (size) {
		uint64_t word = mix(seed + offset / 8);
		size_t skip = offset % 8, part = 8 - skip;

		if (part > size)
			part = size;
		memcpy(data, (char *)&word + skip, part);
		offset += part;
		data += part;
		size -= part;
	}
}

/* Bursts of small pieces, and now and then long ones. */
static size_t next_size(struct flow *flow)
{
	uint64_t value = flow->pace = mix(flow->pace);
	size_t size;

	switch (value >> 10 & 7) {
	case 0:
		size = 1 + value % LONGEST;
		break;
	case 1:
	case 2:
		size = 1 + value % 5000;
		break;
	default:
		size = 1 + value % 100;
	}
	return size < flow->bytes - flow->done ? size : flow->bytes - flow->done;
}

/* Three vectors for the data, split anywhere. */
static void split(struct flow *flow, char *data, size_t size, struct iovec *vectors)
{
	size_t first = (flow->pace = mix(flow->pace)) % (size + 1);
	size_t second = flow->pace / 7 % (size - first + 1);

	vectors[0] = (struct iovec){ data, first };
	vectors[1] = (struct iovec){ data + first, second };
	vectors[2] = (struct iovec){ data + first + second, size - first - second };
}

static bool wait_for(struct flow *flow, short events)
{
	struct pollfd entry = { .fd = flow->fd, .events = events };

	CHECK(flow->nonblocking && (errno == EAGAIN || errno == EWOULDBLOCK));
	CHECK_EQ(rpoll(&entry, 1, PATIENCE * 1000), 1);
	return true;
}

static void *write_all(void *argument)
{
	struct flow *flow = argument;
	char *data = malloc(LONGEST);

	while (flow->done < flow->bytes) {
		size_t size = next_size(flow), sent = 0;

		fill(flow->seed, flow->done, data, size);
		while (sent < size) {
			struct iovec vectors[3];
			ssize_t result;

			if (flow->pace & 1) {
				split(flow, data + sent, size - sent, vectors);
				result = rwritev(flow->fd, vectors, 3);
			} else {
				result = rsend(flow->fd, data + sent, size - sent,
					       MSG_NOSIGNAL);
			}
			if (result < 0 && flow->interrupted && errno != EAGAIN)
				goto broken;
			if (result < 0 && wait_for(flow, POLLOUT))
				continue;
			CHECK(result > 0 && (size_t)result <= size - sent);
			sent += result;
		}
		flow->done += size;
	}
broken:
	free(data);
	return NULL;
}

static void *read_all(void *argument)
{
	struct flow *flow = argument;
	char *data = malloc(LONGEST), *expected = malloc(LONGEST);

	while (flow->done < flow->bytes) {
		size_t size = next_size(flow);
		struct iovec vectors[3];
		ssize_t result;

		/* Of vectors, 44.0 and 65.0 fill only one. */
		if (flow->pace & 1) {
			split(flow, data, size, vectors);
			result = rreadv(flow->fd, vectors, 3);
			if (result == 0 && vectors[0].iov_len == 0)
				continue;
		} else {
			result = rrecv(flow->fd, data, size, 0);
		}
		if (result <= 0 && flow->interrupted &&
		    (result == 0 || errno != EAGAIN))
			break;
		if (result < 0 && wait_for(flow, POLLIN))
			continue;
		CHECK(result > 0 && (size_t)result <= size);
		fill(flow->seed, flow->done, expected, result);
		if (memcmp(data, expected, result))
			FAIL("wrong data after %llu bytes",
			     (unsigned long long)flow->done);
		flow->done += result;
	}
	free(data);
	free(expected);
	return NULL;
}

/* Sends and receives at once; each side has seeds of its own. */
static void transfer(int fd, uint64_t own, uint64_t other, struct flow how)
{
	struct flow out = how, in = how;
	pthread_t writer, reader;

	out.fd = in.fd = fd;
	out.seed = own;
	in.seed = other;
	out.pace = mix(own);
	in.pace = mix(own + 1);
	if (how.nonblocking)
		CHECK_OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
	CHECK_OK(pthread_create(&writer, NULL, write_all, &out));
	CHECK_OK(pthread_create(&reader, NULL, read_all, &in));
	CHECK_OK(pthread_join(writer, NULL));
	CHECK_OK(pthread_join(reader, NULL));
	if (how.interrupted)
		return;
	CHECK_EQ(out.done, how.bytes);
	CHECK_EQ(in.done, how.bytes);
	if (how.nonblocking)
		CHECK_OK(rfcntl(fd, F_SETFL, 0));
}

/* A server in another process, which runs `serve` on one connection. */
struct peer {
	pid_t pid;
	int fd; /* our end of the connection */
};

static struct peer start_with(void (*serve)(int), void (*configure)(int))
{
	struct sockaddr *addr = test_addr(PORT);
	struct peer peer;
	int ready[2];
	char byte;

	CHECK_OK(pipe(ready));
	peer.pid = fork();
	CHECK(peer.pid >= 0);
	if (peer.pid == 0) {
		int listener = listen_on(addr, 8), fd;

		CHECK_EQ(write(ready[1], "x", 1), 1);
		fd = raccept(listener, NULL, NULL);
		CHECK(fd >= 0);
		serve(fd);
		rclose(fd);
		rclose(listener);
		_exit(EXIT_SUCCESS);
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	peer.fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(peer.fd >= 0);
	configure(peer.fd);
	CHECK_OK(rconnect(peer.fd, addr, addr_length(addr)));
	return peer;
}

static void leave_as_it_is(int fd)
{
	(void)fd;
}

static struct peer start(void (*serve)(int))
{
	return start_with(serve, leave_as_it_is);
}

/* The peer is content as well. */
static void finish(struct peer *peer)
{
	int status;

	CHECK_OK(rclose(peer->fd));
	CHECK_EQ(waitpid(peer->pid, &status, 0), peer->pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status))
		_exit(WEXITSTATUS(status)); /* the child left its reason */
}

enum { CLIENT = 1 << 20, SERVER = 1 << 28 };

static struct flow plain(void)
{
	return (struct flow){ .bytes = amount() };
}

static void serve_blocking(int fd)
{
	transfer(fd, SERVER, CLIENT, plain());
}

static void serve_nonblocking(int fd)
{
	struct flow how = plain();

	how.nonblocking = true;
	transfer(fd, SERVER, CLIENT, how);
}

static void serve_interrupted(int fd)
{
	struct flow how = { .bytes = 1ull << 40, .interrupted = true };

	transfer(fd, SERVER, CLIENT, how);
}

TEST(blocking, "59 both ways at once, blocking [race]", .timeout = 60)
{
	struct peer peer = start(serve_blocking);

	transfer(peer.fd, CLIENT, SERVER, plain());
	finish(&peer);
}

TEST(nonblocking, "both ways at once, non-blocking with rpoll [race]", .timeout = 60)
{
	struct peer peer = start(serve_nonblocking);
	struct flow how = plain();

	how.nonblocking = true;
	transfer(peer.fd, CLIENT, SERVER, how);
	finish(&peer);
}

static void make_small(int fd)
{
	int size = 100, entries = 16;

	CHECK_OK(rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	CHECK_OK(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &entries, sizeof(entries)));
	CHECK_OK(rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &entries, sizeof(entries)));
}

TEST(small_buffers, "41 both ways at once, small buffers and queues [race]", .timeout = 60)
{
	struct peer peer = start_with(serve_nonblocking, make_small);

	transfer(peer.fd, CLIENT, SERVER, plain());
	finish(&peer);
}

/* What several threads send in any order: so many of each byte. */
enum { THREADS = 4 };

struct share {
	int fd;
	uint64_t bytes;
	uint64_t counts[256];
};

static void *send_share(void *argument)
{
	struct share *share = argument;
	char data[3000];
	uint64_t pace = share->bytes, left = share->bytes;

	while (left) {
		size_t size;

		pace = mix(pace);
		size = 1 + pace % (pace & 256 ? 60 : sizeof(data));
		if (size > left)
			size = left;
		fill(pace, 0, data, size);
		for (size_t sent = 0; sent < size;) {
			ssize_t result = rsend(share->fd, data + sent, size - sent, 0);

			CHECK(result > 0);
			sent += result;
		}
		for (size_t index = 0; index < size; index++)
			share->counts[(unsigned char)data[index]]++;
		left -= size;
	}
	return NULL;
}

static void *receive_share(void *argument)
{
	struct share *share = argument;
	unsigned char data[4096];

	for (;;) {
		ssize_t result = rrecv(share->fd, data, sizeof(data), 0);

		CHECK(result >= 0);
		if (result == 0)
			return NULL;
		share->bytes += result;
		for (ssize_t index = 0; index < result; index++)
			share->counts[data[index]]++;
	}
}

static void run_threads(int fd, void *(*body)(void *), uint64_t bytes,
			struct share *sum)
{
	struct share shares[THREADS] = { 0 };
	pthread_t threads[THREADS];

	memset(sum, 0, sizeof(*sum));
	for (int index = 0; index < THREADS; index++) {
		shares[index].fd = fd;
		shares[index].bytes = bytes ? bytes + index : 0;
		CHECK_OK(pthread_create(&threads[index], NULL, body, &shares[index]));
	}
	for (int index = 0; index < THREADS; index++) {
		CHECK_OK(pthread_join(threads[index], NULL));
		sum->bytes += shares[index].bytes;
		for (int byte = 0; byte < 256; byte++)
			sum->counts[byte] += shares[index].counts[byte];
	}
}

static void serve_threads(int fd)
{
	struct share sum;

	run_threads(fd, receive_share, 0, &sum);
	CHECK_EQ(rsend(fd, &sum, sizeof(sum), 0), sizeof(sum));
}

TEST(threads, "several threads send, several receive on one socket [race]", .timeout = 60)
{
	struct peer peer = start(serve_threads);
	struct share sent, received;

	run_threads(peer.fd, send_share, amount() / THREADS, &sent);
	CHECK_OK(rshutdown(peer.fd, SHUT_WR));
	CHECK_EQ(rrecv(peer.fd, &received, sizeof(received), MSG_WAITALL),
		 sizeof(received));
	CHECK_EQ(received.bytes, sent.bytes);
	CHECK(!memcmp(received.counts, sent.counts, sizeof(sent.counts)));
	finish(&peer);
}

/* Direct placement: the peer's memory has what was written to it. */
enum { MAPPED = 300000 };

static void serve_mapped(int fd)
{
	char *memory = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *expected = malloc(MAPPED), byte;
	uint64_t rounds = amount() / MAPPED + 1;

	CHECK(memory != MAP_FAILED);
	CHECK_EQ(riomap(fd, memory, MAPPED, PROT_WRITE, 0, 0), 0);
	for (uint64_t round = 0; round < rounds; round++) {
		CHECK_EQ(rsend(fd, "g", 1, 0), 1);
		CHECK_EQ(rrecv(fd, &byte, 1, MSG_WAITALL), 1);
		fill(round << 32, 0, expected, MAPPED);
		CHECK(!memcmp(memory, expected, MAPPED));
	}
	CHECK_OK(riounmap(fd, memory, MAPPED));
	CHECK_EQ(rsend(fd, "e", 1, 0), 1);
	CHECK_EQ(rrecv(fd, &byte, 1, 0), 0);
}

static void allow_mapping(int fd)
{
	int mappings = 1;

	CHECK_OK(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof(mappings)));
}

TEST(mapped, "77 writes to mapped memory arrive before data sent later [race]",
     .timeout = 60)
{
	struct peer peer = start_with(serve_mapped, allow_mapping);
	char *data = malloc(MAPPED), byte;
	uint64_t round = 0, pace = 1;

	for (;; round++) {
		CHECK_EQ(rrecv(peer.fd, &byte, 1, MSG_WAITALL), 1);
		if (byte != 'g')
			break;
		fill(round << 32, 0, data, MAPPED);
		for (size_t done = 0; done < MAPPED;) {
			size_t size = 1 + (pace = mix(pace)) % 70000;

			if (size > MAPPED - done)
				size = MAPPED - done;
			/* 44.0 and 65.0 never end where a mapping does. */
			CHECK_EQ(riowrite(peer.fd, data + done, size, done, 0), size);
			done += size;
		}
		CHECK_EQ(rsend(peer.fd, "d", 1, 0), 1);
	}
	CHECK_EQ(byte, 'e');
	free(data);
	finish(&peer);
}

/* Interrupts the peer once there is traffic. */
struct interruption {
	struct peer *peer;
	void (*how)(struct peer *);
};

static void *interrupt(void *argument)
{
	struct interruption *interruption = argument;

	interruption->how(interruption->peer);
	return NULL;
}

static void pause_ms(int milliseconds)
{
	poll(NULL, 0, milliseconds);
}

static void stop_and_resume(struct peer *peer)
{
	int status;

	CHECK_OK(kill(peer->pid, SIGSTOP));
	CHECK_EQ(waitpid(peer->pid, &status, WUNTRACED), peer->pid);
	/* Long enough to fill every buffer. */
	pause_ms(500);
	CHECK_OK(kill(peer->pid, SIGCONT));
}

static void kill_peer(struct peer *peer)
{
	CHECK_OK(kill(peer->pid, SIGKILL));
}

static void transfer_interrupted(struct peer *peer, struct flow how,
				 void (*interruption)(struct peer *))
{
	struct interruption argument = { peer, interruption };
	pthread_t thread;

	CHECK_OK(pthread_create(&thread, NULL, interrupt, &argument));
	transfer(peer->fd, CLIENT, SERVER, how);
	CHECK_OK(pthread_join(thread, NULL));
}

TEST(stopped, "a peer that is stopped and resumed misses nothing [race]", .timeout = 60)
{
	struct peer peer = start(serve_blocking);

	transfer_interrupted(&peer, plain(), stop_and_resume);
	finish(&peer);
}

TEST(killed, "55 a peer that is killed ends sending and receiving [race]", .timeout = 60)
{
	struct peer peer = start(serve_interrupted);
	struct flow how = { .bytes = 1ull << 40, .interrupted = true };
	int status;

	transfer_interrupted(&peer, how, kill_peer);
	CHECK_OK(rclose(peer.fd));
	CHECK_EQ(waitpid(peer.pid, &status, 0), peer.pid);
}
