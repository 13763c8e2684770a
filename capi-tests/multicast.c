/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Multicast groups: joining, leaving, data, wrong arguments. */
#include "pair.h"

#include <sys/wait.h>
#include <unistd.h>

#define GROUP "239.1.2.3"

enum { MULTICAST_QPN = 0xFFFFFF, GRH_SIZE = 40 };

/* A UD id bound to the device, with a QP. */
static struct rdma_cm_id *member(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	make_qp(id);
	return id;
}

static void destroy_member(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK_OK(rdma_destroy_id(id));
}

/* Joins and waits; the caller acknowledges the event. */
static struct rdma_cm_event *join(struct rdma_cm_id *id, const char *group, void *context)
{
	struct rdma_cm_event *event;

	CHECK_OK(rdma_join_multicast(id, make_addr(group, 0), context));
	event = expect_event(id->channel, RDMA_CM_EVENT_MULTICAST_JOIN, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->id == id);
	return event;
}

TEST(unbound, "87 joining with an unbound id")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_ERRNO(rdma_join_multicast(id, make_addr(GROUP, 0), NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(id));
}

TEST(joins, "88 MULTICAST_JOIN tells context, QP number, Q_Key and group GID")
{
	static const unsigned char group_tail[4] = { 239, 1, 2, 3 };
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_event *event;
	struct rdma_ud_param *ud;
	int context;

	event = join(id, GROUP, &context);
	ud = &event->param.ud;
	CHECK(ud->private_data == &context);
	CHECK_EQ(ud->private_data_len, 0);
	CHECK_EQ(ud->qp_num, MULTICAST_QPN);
	CHECK_EQ(ud->qkey, RDMA_UDP_QKEY);
	CHECK_EQ(ud->ah_attr.is_global, 1);
	CHECK_EQ(ud->ah_attr.port_num, 1);
	CHECK(memcmp(ud->ah_attr.grh.dgid.raw + 12, group_tail, 4) == 0);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	destroy_member(id);
}

TEST(without_qp, "88 joining without a QP")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_ack_cm_event(join(id, GROUP, NULL)));
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	destroy_member(id);
}

TEST(resolved, "88 joining with an id that resolved the group's address")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

	CHECK_OK(rdma_resolve_addr(id, test_addr(0), make_addr(GROUP, 0), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	make_qp(id);
	CHECK_OK(rdma_ack_cm_event(join(id, GROUP, NULL)));
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	destroy_member(id);
}

TEST(arguments, "89 wrong masks and flags of rdma_join_multicast_ex")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_join_mc_attr_ex attr = { .addr = make_addr(GROUP, 0) };

	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &attr, NULL), ENOTSUP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	CHECK_ERRNO(rdma_join_multicast_ex(id, &attr, NULL), EINVAL);
	expect_no_event(channel, 100);
	destroy_member(id);
}

TEST(family, "89 address of an unknown family")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct sockaddr local = { .sa_family = AF_UNIX };

	CHECK_ERRNO(rdma_join_multicast(id, &local, NULL), EINVAL);
	destroy_member(id);
}

TEST(full_member, "90 joining as full member by rdma_join_multicast_ex")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = make_addr(GROUP, 0),
	};

	CHECK_OK(rdma_join_multicast_ex(id, &attr, NULL));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN), 0);
	CHECK_OK(rdma_leave_multicast(id, attr.addr));
	destroy_member(id);
}

TEST(send_only, "90 joining as a sender only, leaving")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = make_addr(GROUP, 0),
	};
	int context;
	struct rdma_cm_event *event;

	CHECK_OK(rdma_join_multicast_ex(id, &attr, &context));
	event = expect_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN, EVENT_TIMEOUT);
	CHECK_EQ(event->status, 0);
	CHECK(event->param.ud.private_data == &context);
	CHECK_OK(rdma_ack_cm_event(event));
	CHECK_OK(rdma_leave_multicast(id, attr.addr));
	destroy_member(id);
}

TEST(leave_twice, "91 leaving twice, or a group never joined")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);

	CHECK_ERRNO(rdma_leave_multicast(id, make_addr(GROUP, 0)), EADDRNOTAVAIL);
	CHECK_OK(rdma_ack_cm_event(join(id, GROUP, NULL)));
	CHECK_ERRNO(rdma_leave_multicast(id, make_addr("239.1.2.4", 0)), EADDRNOTAVAIL);
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	CHECK_ERRNO(rdma_leave_multicast(id, make_addr(GROUP, 0)), EADDRNOTAVAIL);
	destroy_member(id);
}

TEST(leave_other_family, "91 leaving an address of an unknown family")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct sockaddr local = { .sa_family = AF_UNIX };

	CHECK_ERRNO(rdma_leave_multicast(id, &local), EINVAL);
	destroy_member(id);
}

TEST(wrong_ids, "92 joining 0.0.0.0, and with a connected type of id")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_id *connected = make_id(channel, RDMA_PS_TCP);

	CHECK_ERRNO(rdma_join_multicast(id, make_addr("0.0.0.0", 0), NULL), EINVAL);
	CHECK_OK(rdma_bind_addr(connected, test_addr(0)));
	CHECK_ERRNO(rdma_join_multicast(connected, make_addr(GROUP, 0), NULL), EINVAL);
	CHECK_OK(rdma_destroy_id(connected));
	destroy_member(id);
}

TEST(destroy_joined, "93 destroying an id that is in groups leaks nothing [fix]", .timeout = 60)
{
	unsigned int before = 0;

	/* A QP that is attached to groups cannot be destroyed before they are left. */
	for (int i = 0; i < 20; i++) {
		struct rdma_event_channel *channel = make_channel();
		struct rdma_cm_id *id = member(channel);

		CHECK_OK(rdma_ack_cm_event(join(id, GROUP, NULL)));
		CHECK_OK(rdma_ack_cm_event(join(id, "239.1.2.4", NULL)));
		destroy_member(id);
		rdma_destroy_event_channel(channel);
		if (i == 4)
			before = open_descriptors();
	}
	CHECK_EQ(open_descriptors(), before);
}

TEST(destroy_joined_without_qp, "93 destroying an id without a QP that is in groups",
     .timeout = 60)
{
	unsigned int before = 0;

	for (int i = 0; i < 20; i++) {
		struct rdma_event_channel *channel = make_channel();
		struct rdma_cm_id *id = make_id(channel, RDMA_PS_UDP);

		CHECK_OK(rdma_bind_addr(id, test_addr(0)));
		CHECK_OK(rdma_ack_cm_event(join(id, GROUP, NULL)));
		CHECK_OK(rdma_ack_cm_event(join(id, "239.1.2.4", NULL)));
		CHECK_OK(rdma_destroy_id(id));
		rdma_destroy_event_channel(channel);
		if (i == 4)
			before = open_descriptors();
	}
	CHECK_EQ(open_descriptors(), before);
}

TEST(destroy_joining, "93 destroying an id whose joins nobody read")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);

	CHECK_OK(rdma_join_multicast(id, make_addr(GROUP, 0), NULL));
	CHECK(wait_readable(channel));
	destroy_member(id);
	expect_no_event(channel, 100);
}

TEST(leave_unread, "leaving before the join event was read")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);

	CHECK_OK(rdma_join_multicast(id, make_addr(GROUP, 0), NULL));
	CHECK(wait_readable(channel));
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	expect_no_event(channel, 100);
	destroy_member(id);
}

TEST(two_groups, "events of two groups name their contexts; leaving one keeps the other")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *id = member(channel);
	struct rdma_cm_event *first, *second;
	int contexts[2];

	first = join(id, GROUP, &contexts[0]);
	second = join(id, "239.1.2.4", &contexts[1]);
	CHECK(first->param.ud.private_data == &contexts[0]);
	CHECK(second->param.ud.private_data == &contexts[1]);
	CHECK_OK(rdma_ack_cm_event(first));
	CHECK_OK(rdma_leave_multicast(id, make_addr(GROUP, 0)));
	CHECK_OK(rdma_ack_cm_event(second));
	CHECK_OK(rdma_leave_multicast(id, make_addr("239.1.2.4", 0)));
	destroy_member(id);
}

static const char datagram[32] = "to the group";

/* A member sends the datagram to the group whose MULTICAST_JOIN it holds. */
static void send_to_group(struct rdma_cm_id *sender, struct rdma_cm_event *joined)
{
	char out[sizeof(datagram)];
	struct ibv_mr *mr;
	struct ibv_ah *ah;

	memcpy(out, datagram, sizeof(out));
	ah = ibv_create_ah(sender->pd, &joined->param.ud.ah_attr);
	CHECK(ah);
	mr = rdma_reg_msgs(sender, out, sizeof(out));
	CHECK(mr);
	CHECK_OK(rdma_post_ud_send(sender, out, out, sizeof(out), mr, 0, ah,
				   joined->param.ud.qp_num));
	send_done(sender, out);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_OK(rdma_dereg_mr(mr));
}

TEST(data, "a datagram to the group reaches another member")
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *sender = member(channel), *receiver = member(channel);
	struct rdma_cm_event *joined;
	char in[GRH_SIZE + sizeof(datagram)];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	CHECK_OK(rdma_ack_cm_event(join(receiver, GROUP, NULL)));
	joined = join(sender, GROUP, NULL);
	mr = rdma_reg_msgs(receiver, in, sizeof(in));
	CHECK(mr);
	CHECK_OK(rdma_post_recv(receiver, in, in, sizeof(in), mr));
	send_to_group(sender, joined);
	wc = recv_done(receiver, in);
	CHECK_EQ(wc.byte_len, sizeof(in));
	CHECK_EQ(wc.src_qp, sender->qp->qp_num);
	CHECK(memcmp(in + GRH_SIZE, datagram, sizeof(datagram)) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	CHECK_OK(rdma_ack_cm_event(joined));
	CHECK_OK(rdma_leave_multicast(sender, make_addr(GROUP, 0)));
	CHECK_OK(rdma_leave_multicast(receiver, make_addr(GROUP, 0)));
	destroy_member(sender);
	destroy_member(receiver);
}

/* A member in a process of its own, which says when it listens. */
static void receive_in_child(int ready)
{
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *receiver = member(channel);
	char in[GRH_SIZE + sizeof(datagram)];
	struct ibv_mr *mr = rdma_reg_msgs(receiver, in, sizeof(in));

	CHECK(mr);
	CHECK_OK(rdma_post_recv(receiver, in, in, sizeof(in), mr));
	CHECK_OK(rdma_ack_cm_event(join(receiver, GROUP, NULL)));
	CHECK(write(ready, "", 1) == 1);
	CHECK_EQ(recv_done(receiver, in).byte_len, sizeof(in));
	CHECK(memcmp(in + GRH_SIZE, datagram, sizeof(datagram)) == 0);
	CHECK_OK(rdma_dereg_mr(mr));
	CHECK_OK(rdma_leave_multicast(receiver, make_addr(GROUP, 0)));
	destroy_member(receiver);
	rdma_destroy_event_channel(channel);
}

TEST(processes, "a datagram to the group reaches members in two other processes")
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *joined;
	struct rdma_cm_id *sender;
	pid_t children[2];
	int ready[2];
	char byte;

	/* Before this process uses the library. */
	CHECK_OK(pipe(ready));
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			receive_in_child(ready[1]);
			_exit(EXIT_SUCCESS);
		}
	}
	channel = make_channel();
	sender = member(channel);
	joined = join(sender, GROUP, NULL);
	for (int i = 0; i < 2; i++)
		CHECK(read(ready[0], &byte, 1) == 1);
	send_to_group(sender, joined);
	for (int i = 0; i < 2; i++) {
		int status;

		CHECK(waitpid(children[i], &status, 0) == children[i]);
		CHECK_EQ(status, 0);
	}
	CHECK_OK(rdma_ack_cm_event(joined));
	CHECK_OK(rdma_leave_multicast(sender, make_addr(GROUP, 0)));
	destroy_member(sender);
}

TEST(too_many, "more QPs than a group takes: MULTICAST_ERROR with an errno [fix]", .timeout = 60)
{
	struct sockaddr_in group = *(struct sockaddr_in *)make_addr("239.1.7.1", 0);
	struct rdma_event_channel *channel = make_channel();
	struct rdma_cm_id *ids[128];
	int limit, count = 0, status = 0;

	ids[0] = make_id(channel, RDMA_PS_UDP);
	CHECK_OK(rdma_bind_addr(ids[0], test_addr(0)));
	limit = device_limits(ids[0]).max_mcast_qp_attach;
	if (limit < 1 || limit >= 128)
		SKIP("%s takes %d QPs in a group", test_device(), limit);
	while (status == 0 && count <= limit) {
		struct rdma_cm_event *event;

		if (count > 0) {
			ids[count] = make_id(channel, RDMA_PS_UDP);
			CHECK_OK(rdma_bind_addr(ids[count], test_addr(0)));
		}
		make_qp(ids[count]);
		CHECK_OK(rdma_join_multicast(ids[count], (struct sockaddr *)&group, NULL));
		event = next_event(channel, EVENT_TIMEOUT);
		CHECK(event->id == ids[count++]);
		status = event->status;
		CHECK_EQ(event->event, status ? RDMA_CM_EVENT_MULTICAST_ERROR
					      : RDMA_CM_EVENT_MULTICAST_JOIN);
		CHECK_OK(rdma_ack_cm_event(event));
	}
	CHECK_EQ(count, limit + 1);
	CHECK(status == -ENOMEM || status == -EINVAL);
	while (count-- > 0) {
		rdma_destroy_qp(ids[count]);
		CHECK_OK(rdma_destroy_id(ids[count]));
	}
	rdma_destroy_event_channel(channel);
}
