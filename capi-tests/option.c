/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* rdma_set_option: every option in every state, and bad arguments. */
#include "single.h"

#include <infiniband/sa.h>

enum { ACK_TIMEOUT = 3 }; /* RDMA_OPTION_ID_ACK_TIMEOUT of newer headers */

static int set(int name, uint32_t value, size_t length)
{
	/* Little end first: a prefix of the word is the value, too. */
	return rdma_set_option(id, RDMA_OPTION_ID, name, &value, length);
}

static void resolve(void)
{
	CHECK_OK(rdma_resolve_addr(id, NULL, test_addr(7000), 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
}

TEST(service_type, "94 TOS: length 1, in any state")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(set(RDMA_OPTION_ID_TOS, 8, 1));
	CHECK_ERRNO(set(RDMA_OPTION_ID_TOS, 8, 4), EINVAL);
	CHECK_ERRNO(set(RDMA_OPTION_ID_TOS, 8, 0), EINVAL);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(set(RDMA_OPTION_ID_TOS, 8, 1));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_OK(set(RDMA_OPTION_ID_TOS, 8, 1));
	end();
}

TEST(reuse_fresh, "94 REUSEADDR: length 4, on a fresh id on and off")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(set(RDMA_OPTION_ID_REUSEADDR, 1, 4));
	CHECK_OK(set(RDMA_OPTION_ID_REUSEADDR, 0, 4));
	CHECK_ERRNO(set(RDMA_OPTION_ID_REUSEADDR, 1, 1), EINVAL);
	CHECK_ERRNO(set(RDMA_OPTION_ID_REUSEADDR, 1, 8), EINVAL);
	end();
}

TEST(reuse_bound, "94 REUSEADDR: on a bound id only on")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(set(RDMA_OPTION_ID_REUSEADDR, 1, 4));
	CHECK_ERRNO(set(RDMA_OPTION_ID_REUSEADDR, 0, 4), EINVAL);
	end();
}

TEST(reuse_listening, "94 REUSEADDR: not on a listener")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(set(RDMA_OPTION_ID_REUSEADDR, 1, 4), EINVAL);
	end();
}

TEST(afonly, "94 AFONLY: length 4, before listen")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(set(RDMA_OPTION_ID_AFONLY, 1, 4));
	CHECK_ERRNO(set(RDMA_OPTION_ID_AFONLY, 1, 1), EINVAL);
	CHECK_OK(rdma_bind_addr(id, make_addr("::", 0)));
	CHECK_OK(set(RDMA_OPTION_ID_AFONLY, 0, 4));
	CHECK_OK(set(RDMA_OPTION_ID_AFONLY, 1, 4));
	CHECK_OK(rdma_listen(id, 1));
	CHECK_ERRNO(set(RDMA_OPTION_ID_AFONLY, 1, 4), EINVAL);
	end();
}

TEST(afonly_effect, "94 AFONLY decides whether IPv4 may share the port of an IPv6 listener")
{
	struct rdma_cm_id *other;

	begin(RDMA_PS_TCP);
	CHECK_OK(set(RDMA_OPTION_ID_AFONLY, 1, 4));
	CHECK_OK(rdma_bind_addr(id, make_addr("::", 0)));
	CHECK_OK(rdma_listen(id, 1));
	other = make_id(channel, RDMA_PS_TCP);
	CHECK_OK(rdma_bind_addr(other, make_addr("0.0.0.0", ntohs(rdma_get_src_port(id)))));
	CHECK_OK(rdma_destroy_id(other));
	end();
}

TEST(ack_timeout, "94 ACK_TIMEOUT: length 1, on RC ids")
{
	begin(RDMA_PS_TCP);
	CHECK_OK(set(ACK_TIMEOUT, 17, 1));
	CHECK_ERRNO(set(ACK_TIMEOUT, 17, 4), EINVAL);
	CHECK_OK(rdma_bind_addr(id, test_addr(0)));
	CHECK_OK(set(ACK_TIMEOUT, 17, 1));
	end();
}

TEST(ack_timeout_datagram, "94 ACK_TIMEOUT: not on UD ids")
{
	begin(RDMA_PS_UDP);
	CHECK_ERRNO(set(ACK_TIMEOUT, 17, 1), EINVAL);
	end();
}

TEST(giant, "94 a length that is right but for its upper 32 bits gives EINVAL [fix]")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(set(RDMA_OPTION_ID_TOS, 8, (1ull << 32) + 1), EINVAL);
	end();
}

TEST(unknown, "94 unknown level or name gives ENOSYS")
{
	uint32_t value = 1;

	begin(RDMA_PS_TCP);
	CHECK_ERRNO(set(99, 1, 4), ENOSYS);
	CHECK_ERRNO(rdma_set_option(id, 7, 0, &value, sizeof(value)), ENOSYS);
	CHECK_ERRNO(rdma_set_option(id, -1, -1, &value, sizeof(value)), ENOSYS);
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_IB, 99, &value, sizeof(value)), ENOSYS);
	end();
}

/* The route of an id as rdma_set_option wants it. */
static struct ibv_path_data path_data(const struct ibv_sa_path_rec *record)
{
	struct ibv_path_data data = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
			 IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {
			.dgid = record->dgid,
			.sgid = record->sgid,
			.dlid = record->dlid,
			.slid = record->slid,
			.flowlabel_hoplimit = htobe32(be32toh(record->flow_label) << 8 |
						      record->hop_limit),
			.tclass = record->traffic_class,
			.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
			.pkey = record->pkey,
			.qosclass_sl = htobe16(record->sl),
			.mtu = (uint8_t)(2 << 6 | record->mtu),
			.rate = (uint8_t)(2 << 6 | record->rate),
			.packetlifetime = (uint8_t)(2 << 6 | record->packet_life_time),
		},
	};

	return data;
}

TEST(path, "94 IB_PATH after address resolution gives ROUTE_RESOLVED")
{
	struct rdma_cm_id *model;
	struct ibv_path_data data;

	begin(RDMA_PS_TCP);
	model = id;
	resolve();
	CHECK_OK(rdma_resolve_route(model, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	data = path_data(model->route.path_rec);
	id = make_id(channel, RDMA_PS_TCP);
	resolve();
	CHECK_OK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data,
				 sizeof(data)));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	CHECK_EQ(id->route.num_paths, 1);
	CHECK(memcmp(&id->route.path_rec->dgid, &data.path.dgid, 16) == 0);
	CHECK_OK(rdma_destroy_id(model));
	end();
}

TEST(path_invalid, "94 IB_PATH: wrong state, length or flags give EINVAL")
{
	struct ibv_path_data data = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
			 IBV_PATH_FLAG_BIDIRECTIONAL,
	};

	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data,
				    sizeof(data)), EINVAL);
	resolve();
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data,
				    sizeof(data) - 1), EINVAL);
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data, 0),
		    EINVAL);
	data.flags = 0;
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data,
				    sizeof(data)), EINVAL);
	/* The id goes on from where it was. */
	CHECK_OK(rdma_resolve_route(id, 5000));
	CHECK_EQ(take_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	end();
}

TEST(null_value, "95 NULL or unreadable value gives EFAULT")
{
	begin(RDMA_PS_TCP);
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	CHECK_ERRNO(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (void *)64, 1),
		    EFAULT);
	end();
}
