/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the log (RDMACM_LOG) tells of failures that an errno alone does not
 * explain. The original has no log, so all cases are fixes; those that could
 * hold by chance without one are in other programs.
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static FILE *log_file;

/*
 * From here on, standard error goes to a file of its own. The library looks at
 * the level once, so this comes before its first call.
 */
static void start_log(const char *level)
{
	log_file = tmpfile();
	CHECK(log_file);
	CHECK_OK(setenv("RDMACM_LOG", level, 1));
	CHECK(dup2(fileno(log_file), STDERR_FILENO) == STDERR_FILENO);
}

/* All that was logged so far; the buffer is overwritten by the next call. */
static const char *logged(void)
{
	static char text[1 << 16];
	ssize_t length = pread(fileno(log_file), text, sizeof(text) - 1, 0);

	CHECK(length >= 0);
	text[length] = '\0';
	return text;
}

/* Some line has both words. */
static bool line_with(const char *one, const char *other)
{
	char line[1024];
	const char *text = logged();

	while (*text) {
		size_t length = strcspn(text, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		if (strstr(line, one) && strstr(line, other))
			return true;
		text += length + (text[length] == '\n');
	}
	return false;
}

#define CHECK_LOGGED(one, other)                                               \
	do {                                                                   \
		test_at(__FILE__, __LINE__);                                   \
		if (!line_with(one, other))                                    \
			FAIL("no line with \"%s\" and \"%s\" in: %s", one,     \
			     other, logged());                                 \
	} while (0)

TEST(off, "without RDMACM_LOG not a byte is written, not even on failures")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	char data[REQ_DATA + 1] = "";

	start_log("");
	CHECK_OK(unsetenv("RDMACM_LOG"));
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	pair_close(&pair);
	CHECK_EQ(strlen(logged()), 0);
}

TEST(request_data, "48 too long private data of a request: the limits are named [fix]")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	char data[REQ_DATA + 1] = "";

	start_log("error");
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_connect(pair.client, &param), EINVAL);
	CHECK_LOGGED("57 bytes", "connect 56");
	pair_close(&pair);
}

TEST(reply_data, "64 too long private data of a reply: the limits are named [fix]")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;
	char data[REP_DATA + 1] = "";

	start_log("error");
	pair_to_request(&pair, RDMA_PS_TCP);
	make_qp(pair.server);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	CHECK_ERRNO(rdma_accept(pair.server, &param), EINVAL);
	CHECK_LOGGED("197 bytes", "accept 196");
	pair_close(&pair);
}

TEST(ack_timeout, "94 an ACK timeout set after connecting has no effect, and the log says so [fix]")
{
	struct pair pair;
	uint8_t timeout = 20;

	start_log("warn");
	pair_connect(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_set_option(pair.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				 &timeout, sizeof(timeout)));
	CHECK_LOGGED("ACK timeout", "no effect");
	pair_close(&pair);
}

TEST(ack_timeout_early, "94 an ACK timeout set in time is not complained about")
{
	struct pair pair;
	uint8_t timeout = 20;

	start_log("warn");
	pair_listen(&pair, RDMA_PS_TCP);
	pair_resolve(&pair);
	CHECK_OK(rdma_set_option(pair.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				 &timeout, sizeof(timeout)));
	CHECK(!strstr(logged(), "no effect"));
	pair_close(&pair);
}

/* ---- Why a peer refused ------------------------------------------------- */

TEST(nobody, "50 a rejection by the connection manager is logged in words [fix]")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	start_log("debug");
	pair_to_route(&pair, RDMA_PS_TCP);
	make_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	CHECK_OK(rdma_connect(pair.client, &param));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), 8);
	CHECK_LOGGED("REJECTED", "invalid service ID");
	pair_close(&pair);
}

TEST(refused, "70 a rejection by the peer's program is logged in words [fix]")
{
	struct pair pair;

	start_log("debug");
	pair_to_request(&pair, RDMA_PS_TCP);
	CHECK_OK(rdma_reject(pair.server, NULL, 0));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_REJECTED), REASON_CONSUMER);
	CHECK_LOGGED("REJECTED", "consumer defined");
	pair_close(&pair);
}

TEST(equal_numbers, "78 a stale connection is logged in words [fix]")
{
	struct rdma_conn_param param = usual_param();
	struct pair pair;

	start_log("debug");
	pair_to_route(&pair, RDMA_PS_TCP);
	param.qp_num = 0x31;
	pair_request(&pair, &param);
	CHECK_OK(rdma_accept(pair.server, &param));
	CHECK_EQ(take_event(pair.server_channel, RDMA_CM_EVENT_REJECTED),
		 REASON_STALE_CONNECTION);
	CHECK_LOGGED("REJECTED", "stale conn");
	pair_close(&pair);
}

TEST(no_datagram_service, "86 an unknown datagram service is logged in words [fix]")
{
	struct rdma_conn_param param = { .private_data = NULL };
	struct pair pair;

	start_log("debug");
	pair_to_route(&pair, RDMA_PS_UDP);
	make_qp(pair.client);
	CHECK_OK(rdma_destroy_id(pair.listener));
	pair.listener = NULL;
	CHECK_OK(rdma_connect(pair.client, &param));
	CHECK_EQ(take_event(pair.client_channel, RDMA_CM_EVENT_UNREACHABLE), SIDR_UNSUPPORTED);
	CHECK_LOGGED("UNREACHABLE", "service");
	pair_close(&pair);
}

/* ---- What an administrator has set -------------------------------------- */

TEST(defaults, "what the environment sets is told when it is applied, and what is no value [fix]")
{
	struct pair pair;

	CHECK_OK(setenv("RDMACM_TOS", "0x20", 1));
	CHECK_OK(setenv("RDMACM_ACK_TIMEOUT", "20", 1));
	CHECK_OK(setenv("RDMACM_MIN_RNR_TIMER", "9", 1));
	CHECK_OK(setenv("RDMACM_RESOLVE_TIMEOUT", "60000", 1));
	CHECK_OK(setenv("RDMACM_EVENT_WAIT", "long", 1));
	start_log("info");
	pair_to_route(&pair, RDMA_PS_TCP);
	pair_close(&pair);
	CHECK_LOGGED("RDMACM_TOS=32", "applied");
	CHECK_LOGGED("RDMACM_ACK_TIMEOUT=20", "applied");
	CHECK_LOGGED("RDMACM_MIN_RNR_TIMER=9", "applied");
	CHECK_LOGGED("RDMACM_RESOLVE_TIMEOUT=60000", "applied");
	CHECK_LOGGED("RDMACM_EVENT_WAIT=long", "ignored");
}

/* ---- What holds a program up -------------------------------------------- */

static void *destroy(void *id)
{
	CHECK_OK(rdma_destroy_id(id));
	return NULL;
}

TEST(held_up, "102 destroy_id that waits names the id, the count and the event [fix]", .timeout = 60)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	uint64_t deadline = now_ms() + 30000;
	pthread_t thread;

	start_log("warn");
	channel = make_channel();
	id = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	event = expect_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED, EVENT_TIMEOUT);
	CHECK_OK(pthread_create(&thread, NULL, destroy, id));
	while (!line_with("destroy waits for 1 of", "ADDR_RESOLVED")) {
		if (now_ms() > deadline)
			FAIL("not logged: %s", logged());
		usleep(20000);
	}
	CHECK_LOGGED("destroy waits", "id ");
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(pthread_join(thread, NULL));
	rdma_destroy_event_channel(channel);
}
