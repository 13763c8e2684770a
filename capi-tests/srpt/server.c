/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An SRP target whose only disk is memory, written against the public headers
 * of librdmacm and libsrpt: the example of srpt(7).
 *
 *   server ADDRESS PORT GUID MIB [manual] [steps]
 *
 * serves logical unit 0 to everyone who asks for id_ext and ioc_guid GUID (16
 * hexadecimal digits). One thread does everything. Ends on SIGTERM, after all
 * channels are gone.
 *
 * manual: with the rights of the initiator that the kernel's manual names.
 * steps: looks at the completion queue by itself and handles what it finds by
 * the functions of srpt_handle_new_iu(3).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/srpt.h>

enum { BLOCK = 512, CHANNELS = 64, GOOD = 0, CHECK_CONDITION = 2, ILLEGAL_REQUEST = 5 };

struct disk {
	uint8_t *data;
	uint64_t blocks;
};

struct connection {
	struct srpt_rdma_ch *ch;
	struct rdma_cm_id *id;
};

static struct connection connections[CHANNELS];
static int connection_count;
static int by_steps;

static void fatal(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t get(const uint8_t *at, int count)
{
	uint64_t number = 0;

	while (count--)
		number = number << 8 | *at++;
	return number;
}

static void put(uint8_t *at, int count, uint64_t number)
{
	while (count--) {
		at[count] = (uint8_t)number;
		number >>= 8;
	}
}

static int is_read(uint8_t opcode)
{
	return opcode == 0x28 || opcode == 0x88;
}

static int is_write(uint8_t opcode)
{
	return opcode == 0x2A || opcode == 0x8A;
}

/* First block and number of blocks of a READ or WRITE (10 or 16). */
static void range(const uint8_t *cdb, uint64_t *first, uint64_t *count)
{
	int is_16 = cdb[0] & 0x80;

	*first = get(cdb + 2, is_16 ? 8 : 4);
	*count = get(cdb + (is_16 ? 10 : 7), is_16 ? 4 : 2);
}

static enum srpt_direction plan(void *context, const struct srpt_cmd *cmd, uint32_t *length)
{
	uint64_t first, count;

	(void)context;
	switch (cmd->cdb[0]) {
	case 0x28:
	case 0x88:
	case 0x2A:
	case 0x8A:
		range(cmd->cdb, &first, &count);
		*length = count > UINT32_MAX / BLOCK ? UINT32_MAX : (uint32_t)count * BLOCK;
		return is_read(cmd->cdb[0]) ? SRPT_DATA_IN : SRPT_DATA_OUT;
	case 0x12:
		*length = (uint32_t)get(cmd->cdb + 3, 2);
		return SRPT_DATA_IN;
	case 0x1A:
		*length = cmd->cdb[4];
		return SRPT_DATA_IN;
	case 0x25:
		*length = 8;
		return SRPT_DATA_IN;
	case 0x9E:
		*length = (uint32_t)get(cmd->cdb + 10, 4);
		return SRPT_DATA_IN;
	case 0xA0:
		*length = (uint32_t)get(cmd->cdb + 6, 4);
		return SRPT_DATA_IN;
	default:
		return SRPT_NO_DATA;
	}
}

static struct srpt_result refuse(uint8_t asc)
{
	return (struct srpt_result){
		.status = CHECK_CONDITION, .sense_key = ILLEGAL_REQUEST, .asc = asc,
	};
}

/* The data of a command that is no READ or WRITE: its length, -1 if the command
 * is unknown, -2 if a field of it is. */
static int describe(const struct disk *disk, const struct srpt_cmd *cmd, uint8_t data[64])
{
	const uint8_t *cdb = cmd->cdb;

	switch (cdb[0]) {
	case 0x00:
	case 0x1B:
	case 0x35:
	case 0x91:
		return 0;
	case 0x12:
		if (!(cdb[1] & 1)) {
			memcpy(data, "\0\0\6\2\37\0\0\2RDMACM  MEMORY FROM C   0001", 36);
			return 36;
		}
		if (cdb[2] == 0x00) {
			memcpy(data, "\0\0\0\2\0\203", 6);
			return 6;
		}
		if (cdb[2] == 0x83) {
			memcpy(data, "\0\203\0\14\1\3\0\10RDMA\0\0\0\2", 16);
			return 16;
		}
		return -2;
	case 0x1A:
		memcpy(data, "\3\0\20\0", 4);
		return 4;
	case 0x25:
		put(data, 4, disk->blocks - 1);
		put(data + 4, 4, BLOCK);
		return 8;
	case 0x9E:
		put(data, 8, disk->blocks - 1);
		put(data + 8, 4, BLOCK);
		return 32;
	case 0xA0:
		put(data, 4, 8);
		return 16;
	default:
		return -1;
	}
}

static void execute(void *context, struct srpt_send_ioctx *ioctx, const struct srpt_cmd *cmd,
		    void *data, uint32_t length)
{
	const struct disk *disk = context;
	struct srpt_result result = {.status = GOOD, .transferred = length};
	static const uint8_t lun_0[8];
	uint8_t answer[64] = {0};
	uint64_t first, count;
	int have;

	if (memcmp(cmd->lun, lun_0, sizeof(lun_0))) {
		result = refuse(0x25);
	} else if (is_read(cmd->cdb[0]) || is_write(cmd->cdb[0])) {
		range(cmd->cdb, &first, &count);
		if (first > disk->blocks || count > disk->blocks - first)
			result = refuse(0x21);
		else if (is_read(cmd->cdb[0]))
			memcpy(data, disk->data + first * BLOCK, length);
		else
			memcpy(disk->data + first * BLOCK, data, length);
	} else {
		have = describe(disk, cmd, answer);
		if (have < 0) {
			result = refuse(have == -1 ? 0x20 : 0x24);
		} else {
			result.transferred = length < (uint32_t)have ? length : (uint32_t)have;
			memcpy(data, answer, result.transferred);
		}
	}
	/* Could as well be called later, and by another thread. */
	srpt_queue_response(ioctx, &result);
}

static uint32_t admit(void *context, const struct srpt_login *login)
{
	(void)context;
	printf("login from %s\n", login->address);
	return connection_count < CHANNELS ? 0 : 0x00010006;
}

/* Handles all connection events that are there. */
static void handle_events(struct rdma_event_channel *events)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(events, &event)) {
		struct rdma_cm_id *id = event->id;
		int is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		int error = srpt_cm_handler(id, event);

		rdma_ack_cm_event(event);
		if (!is_request)
			continue;
		if (error)
			rdma_destroy_id(id);
		else
			connections[connection_count++] = (struct connection){id->context, id};
	}
}

/* Handles what a receive has received. */
static void handle_unit(struct srpt_rdma_ch *ch, struct srpt_recv_ioctx *receive)
{
	struct srpt_send_ioctx *command;
	enum srpt_direction direction;
	struct srpt_direct_buf pieces[16];
	uint32_t length = 0, count = 16;
	uint64_t bytes;
	const uint8_t *unit = srpt_recv_buf(receive, &length);
	int is_command = length && (unit[0] == 0x01 || unit[0] == 0x02);

	/* What comes before the connection is established has to wait. */
	if (!is_command || srpt_get_ch_state(ch) != CH_LIVE || !(command = srpt_get_send_ioctx(ch))) {
		srpt_handle_new_iu(ch, receive);
		return;
	}
	if (unit[0] == 0x01) {
		srpt_handle_tsk_mgmt(ch, receive, command);
		return;
	}
	if (!srpt_get_desc_tbl(receive, &direction, pieces, &count, &bytes) && bytes && count > 1)
		printf("command of %u pieces\n", count);
	srpt_handle_cmd(ch, receive, command);
}

/* Handles the completions of a channel one by one. */
static void handle_completions(const struct connection *connection)
{
	struct srpt_recv_ioctx *receive;
	struct ibv_wc wc;

	while (ibv_poll_cq(connection->id->qp->recv_cq, 1, &wc) == 1) {
		if (wc.status || wc.opcode == IBV_WC_SEND || wc.opcode == IBV_WC_RDMA_WRITE) {
			srpt_send_done(connection->ch, &wc);
		} else if (wc.opcode == IBV_WC_RDMA_READ) {
			srpt_rdma_read_done(connection->ch, &wc);
		} else {
			receive = srpt_recv_done(connection->ch, &wc);
			if (receive)
				handle_unit(connection->ch, receive);
		}
	}
}

/* Works on all channels, and frees those that have come to their end. */
static void poll_channels(void)
{
	for (int i = connection_count; i--;) {
		if (by_steps)
			handle_completions(&connections[i]);
		if (!srpt_poll_ch(connections[i].ch))
			continue;
		printf("logout\n");
		srpt_free_ch(connections[i].ch);
		connections[i] = connections[--connection_count];
	}
}

int main(int argc, char **argv)
{
	static struct disk disk;
	const struct srpt_ops ops = {.admit = admit, .plan = plan, .execute = execute};
	struct srpt_port_attr attr = {.ops = &ops, .context = &disk};
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct srpt_device *device;
	char port_id[33];
	sigset_t signals;
	int stop, stopping = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS PORT GUID MIB [manual] [steps]\n", argv[0]);
		return 2;
	}
	address.sin_port = htons((uint16_t)atoi(argv[2]));
	snprintf(port_id, sizeof(port_id), "%.16s%.16s", argv[3], argv[3]);
	if (srpt_parse_i_port_id(attr.port_id, port_id)) {
		fprintf(stderr, "%s is no GUID\n", argv[3]);
		return 2;
	}
	for (int i = 5; i < argc; i++) {
		if (!strcmp(argv[i], "manual"))
			attr.qp_policy = SRPT_QP_MANUAL;
		else if (!strcmp(argv[i], "steps"))
			by_steps = 1;
	}
	disk.blocks = strtoull(argv[4], NULL, 10) * (1 << 20) / BLOCK;
	disk.data = calloc(disk.blocks, BLOCK);
	device = srpt_add_one(&attr);
	if (!disk.data || !device)
		fatal("srpt_add_one");

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	stop = signalfd(-1, &signals, SFD_CLOEXEC);

	events = rdma_create_event_channel();
	if (!events)
		fatal("rdma_create_event_channel");
	if (rdma_create_id(events, &listener, device, RDMA_PS_TCP))
		fatal("rdma_create_id");
	if (rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 128))
		fatal("rdma_listen");
	/* So that handle_events ends when there are no more. */
	fcntl(events->fd, F_SETFL, fcntl(events->fd, F_GETFL) | O_NONBLOCK);
	printf("listening\n");

	while (!stopping || connection_count) {
		struct pollfd fds[2 + CHANNELS] = {
			{.fd = events->fd, .events = POLLIN},
			{.fd = stopping ? -1 : stop, .events = POLLIN},
		};

		for (int i = 0; i < connection_count; i++)
			fds[2 + i] = (struct pollfd){
				.fd = srpt_ch_fd(connections[i].ch), .events = POLLIN,
			};
		if (poll(fds, 2 + connection_count, -1) < 0 && errno != EINTR)
			fatal("poll");
		if (fds[0].revents)
			handle_events(events);
		if (fds[1].revents && !stopping) {
			stopping = 1;
			srpt_release_sport(device);
		}
		poll_channels();
	}
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(events);
	srpt_remove_one(device);
	free(disk.data);
	printf("done\n");
	return 0;
}
