/* An SRP initiator that speaks the protocol wrongly, in every way listed in
 * `cases` at the end. After each, the target must answer a well-behaved
 * initiator: it must have refused what the protocol refuses, kept its credits,
 * and never have touched a block that was not addressed.
 *
 * usage: srp_hostile ADDRESS PORT ID_EXT IOC_GUID
 * The target has one disk of at least 1 MiB, which is overwritten. Prints TAP. */
#include "srp_initiator.h"

static char why[256];

/* Fails the case unless `good`. */
#define check(good, ...)                                 \
    do {                                                 \
        if (!(good)) {                                   \
            snprintf(why, sizeof why, __VA_ARGS__);      \
            return -1;                                   \
        }                                                \
    } while (0)

/* --- commands ---------------------------------------------------------- */

static uint32_t next_tag = 1;

/* Begins an SRP_CMD with this CDB; its length so far. */
static uint32_t command(struct channel *c, const uint8_t *cdb, size_t cdb_length)
{
    memset(c->iu, 0, IU_SIZE);
    c->iu[0] = 0x02;
    put64(c->iu + 8, next_tag++);
    memcpy(c->iu + 32, cdb, cdb_length);
    return 48;
}

static void descriptor(uint8_t *at, uint64_t address, uint32_t key, uint32_t length)
{
    put64(at, address);
    put32(at + 8, key);
    put32(at + 12, length);
}

static uint32_t direct(struct channel *c, int out, uint32_t length)
{
    c->iu[5] = out ? 0x10 : 0x01;
    c->iu[out ? 6 : 7] = 1;
    descriptor(c->iu + 48, (uintptr_t)c->data, c->mr->rkey, length);
    return 64;
}

static void cdb_rw(uint8_t *cdb, int out, uint32_t block, uint16_t count)
{
    memset(cdb, 0, 16);
    cdb[0] = out ? 0x2a : 0x28;
    put32(cdb + 2, block);
    put16(cdb + 7, count);
}

static uint32_t command_rw(struct channel *c, int out, uint32_t block, uint16_t count)
{
    uint8_t cdb[16];
    cdb_rw(cdb, out, block, count);
    return command(c, cdb, sizeof cdb);
}

/* Sends a command and waits for the response to it: 0, or -1 when the channel
 * ends or nothing comes. */
static int ask(struct channel *c, uint32_t length, uint8_t *rsp)
{
    uint8_t tag[8];
    memcpy(tag, c->iu + 8, 8);
    c->used++;
    c->outstanding++;
    send_iu(c, length);
    do {
        if (receive_iu(c, rsp, WAIT_MS) < 0)
            return -1;
    } while (rsp[0] != 0xC1 || memcmp(rsp + 8, tag, 8));
    return 0;
}

static int status(const uint8_t *rsp) { return rsp[19]; }
static const uint8_t *sense(const uint8_t *rsp) { return rsp + 36 + get32(rsp + 32); }
static int has_sense(const uint8_t *rsp, int key, int asc)
{
    return status(rsp) == 2 && (rsp[18] & 2) && (sense(rsp)[2] & 15) == key && sense(rsp)[12] == asc;
}
/* BUSY, or ILLEGAL REQUEST: what a malformed command may come to. */
static int refused(const uint8_t *rsp)
{
    return status(rsp) == 8 || (status(rsp) == 2 && (sense(rsp)[2] & 15) == 5);
}

static int test_unit_ready(struct channel *c, uint8_t *rsp)
{
    const uint8_t cdb[6] = {0};
    return ask(c, command(c, cdb, sizeof cdb), rsp);
}

/* Logs in as initiator `number`; a unit attention is taken. */
static struct channel *session(uint8_t number)
{
    struct login l = good_login(number);
    struct channel *c = log_in(l.bytes, LOGIN_SIZE);
    uint8_t rsp[RECEIVE_SIZE];
    if (c->rejected || test_unit_ready(c, rsp)) {
        end_channel(c);
        return NULL;
    }
    return c;
}

/* All credits that were used have come back. */
static int whole(struct channel *c)
{
    struct login l;
    (void)l;
    long granted = (long)get32(c->answer + 4);
    check(!c->dead, "the channel is gone");
    check(c->granted - c->used == granted, "%ld credits instead of %ld", c->granted - c->used, granted);
    return 0;
}

/* Whether the target serves a well-behaved initiator. */
static int alive(void)
{
    struct channel *c = session(99);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login any more");
    check(!test_unit_ready(c, rsp) && status(rsp) == 0, "TEST UNIT READY fails");
    for (int i = 0; i < 4096; i++)
        c->data[i] = (uint8_t)(i * 7);
    command_rw(c, 1, 8, 8);
    check(!ask(c, direct(c, 1, 4096), rsp) && status(rsp) == 0, "writing fails");
    memset(c->data, 0, 4096);
    command_rw(c, 0, 8, 8);
    check(!ask(c, direct(c, 0, 4096), rsp) && status(rsp) == 0, "reading fails");
    for (int i = 0; i < 4096; i++)
        check(c->data[i] == (uint8_t)(i * 7), "wrong data at %d", i);
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

/* --- logins ------------------------------------------------------------ */

/* The login must be refused, with this reason unless 0. */
static int refused_login(const struct login *l, uint32_t reason)
{
    struct channel *c = log_in(l->bytes, LOGIN_SIZE);
    check(c->rejected, "the login was accepted");
    check(c->answer[0] == 0xC2, "no SRP_LOGIN_REJ: %#x", c->answer[0]);
    check(!reason || get32(c->answer + 4) == reason, "reason %#x", get32(c->answer + 4));
    check(!memcmp(c->answer + 8, l->bytes, 8), "another tag");
    end_channel(c);
    return 0;
}

static int login_opcode(void)
{
    struct login l = good_login(1);
    l.bytes[11] = 0xff;
    return refused_login(&l, 0);
}

static int login_empty(void)
{
    struct login l = {{0}};
    struct channel *c = log_in(l.bytes, 0);
    check(c->rejected, "the login was accepted");
    end_channel(c);
    return refused_login(&l, 0);
}

static int login_length(uint32_t length, uint32_t reason)
{
    struct login l = good_login(1);
    put32(l.bytes + 12, length);
    return refused_login(&l, reason);
}
static int login_short_iu(void) { return login_length(63, 0x10002); }
static int login_long_iu(void) { return login_length(1 << 20, 0x10002); }
static int login_endless_iu(void) { return login_length(0xffffffff, 0x10002); }

static int login_least_iu(void)
{
    struct login l = good_login(1);
    put32(l.bytes + 12, 64);
    l.bytes[10] = 0;
    struct channel *c = log_in(l.bytes, LOGIN_SIZE);
    check(!c->rejected, "64 bytes were refused");
    end_channel(c);
    return 0;
}

static int login_formats(void)
{
    struct login l = good_login(1);
    put16(l.bytes + 8, 0);
    return refused_login(&l, 0x10004);
}

static int login_port(int at)
{
    struct login l = good_login(1);
    l.bytes[at] ^= 1;
    return refused_login(&l, 0x10003);
}
static int login_id_ext(void) { return login_port(32); }
static int login_ioc_guid(void) { return login_port(47); }

/* Immediate data at an impossible offset: refused, or without it. */
static int login_immediate(uint16_t offset)
{
    struct login l = good_login(1);
    put16(l.bytes + 48, offset);
    struct channel *c = log_in(l.bytes, LOGIN_SIZE);
    check(c->rejected || !(c->answer[26] & 0x80), "immediate data at %u was agreed to", offset);
    end_channel(c);
    return 0;
}
static int login_immediate_low(void) { return login_immediate(47); }
static int login_immediate_high(void) { return login_immediate(0xffff); }

static int login_single_twice(void)
{
    struct channel *first = session(1);
    check(first, "no login");
    struct login l = good_login(1);
    struct channel *second = log_in(l.bytes, LOGIN_SIZE);
    check(!second->rejected, "the second login was refused");
    check((second->answer[26] & 3) == 1, "flags %#x", second->answer[26]);
    uint8_t rsp[RECEIVE_SIZE];
    check(receive_iu(first, rsp, WAIT_MS) < 0 && first->dead, "the first channel lives");
    check(!test_unit_ready(second, rsp), "the second channel is dead");
    end_channel(first);
    end_channel(second);
    return 0;
}

static int login_multi(void)
{
    struct channel *first = session(1);
    check(first, "no login");
    struct login l = good_login(1);
    l.bytes[10] |= 1;
    struct channel *second = log_in(l.bytes, LOGIN_SIZE);
    check(!second->rejected, "the second login was refused");
    check((second->answer[26] & 3) == 2, "flags %#x", second->answer[26]);
    uint8_t rsp[RECEIVE_SIZE];
    check(!test_unit_ready(first, rsp) && !test_unit_ready(second, rsp), "a channel is dead");
    end_channel(first);
    end_channel(second);
    return 0;
}

static int login_and_vanish(void)
{
    struct login l = good_login(1);
    struct channel *c = log_in(l.bytes, LOGIN_SIZE);
    check(!c->rejected, "the login was refused");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    check(!ibv_modify_qp(c->id->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
    end_channel(c);
    return 0;
}

/* --- information units ------------------------------------------------- */

/* Sends these first bytes as an information unit to be ignored: no answer, no
 * credit taken or given, the channel works. */
static int ignored(uint8_t opcode, uint32_t length)
{
    struct channel *c = session(1);
    check(c, "no login");
    memset(c->iu, 0, IU_SIZE);
    c->iu[0] = opcode;
    send_iu(c, length);
    uint8_t rsp[RECEIVE_SIZE];
    check(!test_unit_ready(c, rsp) && status(rsp) == 0, "the channel is dead");
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}
static int iu_unknown(void) { return ignored(0x7f, 48); }
static int iu_response(void) { return ignored(0xC1, 36); }
static int iu_cred_rsp(void) { return ignored(0x41, 16); }
static int iu_aer_rsp(void) { return ignored(0x42, 16); }

/* Bytes that are no information unit: ignored, or the end of the channel. */
static int malformed(uint8_t opcode, uint32_t length)
{
    struct channel *c = session(1);
    check(c, "no login");
    memset(c->iu, 0xff, IU_SIZE);
    c->iu[0] = opcode;
    send_iu(c, length);
    uint8_t rsp[RECEIVE_SIZE];
    test_unit_ready(c, rsp);
    end_channel(c);
    return 0;
}
static int iu_empty(void) { return malformed(0, 0); }
static int iu_one_byte(void) { return malformed(0x02, 1); }
static int iu_short_command(void) { return malformed(0x02, 47); }
static int iu_short_task(void) { return malformed(0x01, 20); }
static int iu_short_logout(void) { return malformed(0x03, 4); }
static int iu_longer_than_agreed(void) { return malformed(0x02, 16000); }

static int iu_logout(void)
{
    struct channel *c = session(1);
    check(c, "no login");
    memset(c->iu, 0, 16);
    c->iu[0] = 0x03;
    send_iu(c, 16);
    uint8_t rsp[RECEIVE_SIZE];
    check(receive_iu(c, rsp, WAIT_MS) < 0 && c->dead, "the channel lives");
    end_channel(c);
    return 0;
}

/* --- commands that are wrong ------------------------------------------- */

typedef uint32_t (*spoiler)(struct channel *);

/* A write of 8 blocks spoilt by `spoil`, which returns the length of the IU:
 * refused, credits kept, nothing written. */
static int spoilt_write(spoiler spoil)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    memset(c->data, 0x11, 4096);
    command_rw(c, 1, 64, 8);
    check(!ask(c, direct(c, 1, 4096), rsp) && status(rsp) == 0, "writing fails");
    memset(c->data, 0x22, 4096);
    command_rw(c, 1, 64, 8);
    direct(c, 1, 4096);
    check(!ask(c, spoil(c), rsp), "no response");
    check(refused(rsp), "status %#x, sense key %d", status(rsp), sense(rsp)[2] & 15);
    if (whole(c))
        return -1;
    command_rw(c, 0, 64, 8);
    check(!ask(c, direct(c, 0, 4096), rsp) && status(rsp) == 0, "reading fails");
    for (int i = 0; i < 4096; i++)
        check(c->data[i] == 0x11, "byte %d was written", i);
    end_channel(c);
    return 0;
}

static uint32_t spoil_cdb_length(struct channel *c) { c->iu[31] = 0xfc; return 64; }
static uint32_t spoil_both_ways(struct channel *c)
{
    c->iu[5] = 0x11;
    c->iu[7] = 1;
    memcpy(c->iu + 64, c->iu + 48, 16);
    return 80;
}
static uint32_t spoil_format(struct channel *c) { c->iu[5] = 0xf0; return 64; }
static uint32_t spoil_cut(struct channel *c) { (void)c; return 63; }

/* An indirect table with one entry of 4096 bytes. */
static void indirect(struct channel *c, uint32_t table_bytes, uint32_t total, uint8_t count)
{
    c->iu[5] = 0x20;
    c->iu[6] = count;
    descriptor(c->iu + 48, (uintptr_t)c->data + 65536, c->mr->rkey, table_bytes);
    put32(c->iu + 64, total);
    descriptor(c->iu + 68, (uintptr_t)c->data, c->mr->rkey, 4096);
}
static uint32_t spoil_table_cut(struct channel *c) { indirect(c, 255 * 16, 4096, 255); return 84; }
static uint32_t spoil_table_odd(struct channel *c) { indirect(c, 15, 4096, 1); return 84; }
static uint32_t spoil_table_total(struct channel *c) { indirect(c, 16, 1 << 20, 1); return 84; }
static uint32_t spoil_table_huge(struct channel *c) { indirect(c, 0xfffffff0, 0xffffffff, 1); return 84; }
static uint32_t spoil_table_none(struct channel *c) { indirect(c, 0, 4096, 0); return 84; }

static void immediate(struct channel *c, uint32_t length)
{
    c->iu[5] = 0x30;
    c->iu[6] = 1;
    put32(c->iu + 48, length);
    memset(c->iu + 68, 0x22, 8192);
}
static uint32_t spoil_immediate_cut(struct channel *c) { immediate(c, 4096); return 68 + 4095; }
static uint32_t spoil_immediate_huge(struct channel *c) { immediate(c, 0xffffffff); return 68 + 4096; }
static uint32_t spoil_immediate_cdb(struct channel *c)
{
    immediate(c, 4096);
    c->iu[31] = 6 << 2;
    return 68 + 4096;
}

#define SPOILT(name) static int w_##name(void) { return spoilt_write(spoil_##name); }
SPOILT(cdb_length)
SPOILT(both_ways)
SPOILT(format)
SPOILT(cut)
SPOILT(table_cut)
SPOILT(table_odd)
SPOILT(table_total)
SPOILT(table_huge)
SPOILT(table_none)
SPOILT(immediate_cut)
SPOILT(immediate_huge)
SPOILT(immediate_cdb)

static int immediate_not_agreed(void)
{
    struct login l = good_login(1);
    l.bytes[10] = 0;
    struct channel *c = log_in(l.bytes, LOGIN_SIZE);
    uint8_t rsp[RECEIVE_SIZE];
    check(!c->rejected && !test_unit_ready(c, rsp), "no login");
    command_rw(c, 1, 64, 8);
    immediate(c, 4096);
    check(!ask(c, 68 + 4096, rsp), "no response");
    check(refused(rsp), "status %#x", status(rsp));
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

/* Memory that the target may not reach: the channel ends or the command fails;
 * never success. */
static int bad_memory(int out, uint64_t address, uint32_t key_change)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    command_rw(c, out, 64, 8);
    direct(c, out, 4096);
    descriptor(c->iu + 48, address ? address : (uintptr_t)c->data, c->mr->rkey ^ key_change, 4096);
    check(ask(c, 64, rsp) || status(rsp) != 0, "it succeeded");
    end_channel(c);
    return 0;
}
static int bad_key_write(void) { return bad_memory(1, 0, 0x5a5a00); }
static int bad_key_read(void) { return bad_memory(0, 0, 0x5a5a00); }
static int bad_address_write(void) { return bad_memory(1, UINT64_MAX - 100, 0); }
static int bad_address_read(void) { return bad_memory(0, UINT64_MAX - 100, 0); }

static int bad_table_key(void)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    command_rw(c, 1, 64, 16);
    /* Two entries, one of them only in a table that cannot be read. */
    indirect(c, 32, 8192, 1);
    put32(c->iu + 56, c->mr->rkey ^ 0x5a5a00);
    check(ask(c, 84, rsp) || status(rsp) != 0, "it succeeded");
    end_channel(c);
    return 0;
}

/* One command with its data; the response comes back in `rsp`. */
static int one(const uint8_t *cdb, size_t length, int out, uint32_t room, uint64_t lun, uint8_t *rsp)
{
    struct channel *c = session(1);
    check(c, "no login");
    uint32_t size = command(c, cdb, length);
    if (room)
        size = direct(c, out, room);
    put64(c->iu + 20, lun);
    check(!ask(c, size, rsp), "no response");
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

static int unknown_command(void)
{
    uint8_t cdb[16], rsp[RECEIVE_SIZE];
    memset(cdb, 0xff, sizeof cdb);
    if (one(cdb, sizeof cdb, 0, 4096, 0, rsp))
        return -1;
    check(has_sense(rsp, 5, 0x20), "status %#x", status(rsp));
    return 0;
}

static int beyond_the_end(void)
{
    uint8_t cdb[16], rsp[RECEIVE_SIZE];
    for (int out = 0; out < 2; out++) {
        cdb_rw(cdb, out, 0xffffffff, 8);
        if (one(cdb, sizeof cdb, out, 4096, 0, rsp))
            return -1;
        check(has_sense(rsp, 5, 0x21), "status %#x", status(rsp));
        memset(cdb, 0, sizeof cdb);
        cdb[0] = out ? 0x8a : 0x88;
        put64(cdb + 2, UINT64_MAX - 3);
        put32(cdb + 10, 8);
        if (one(cdb, sizeof cdb, out, 4096, 0, rsp))
            return -1;
        check(has_sense(rsp, 5, 0x21), "status %#x", status(rsp));
    }
    return 0;
}

static int absent_unit(void)
{
    const uint64_t luns[] = {0x0009000000000000, 0xC101000000000000, 0x0000000100000000, UINT64_MAX};
    uint8_t cdb[16], rsp[RECEIVE_SIZE];
    cdb_rw(cdb, 0, 0, 8);
    for (int i = 0; i < 4; i++) {
        if (one(cdb, sizeof cdb, 0, 4096, luns[i], rsp))
            return -1;
        check(has_sense(rsp, 5, 0x25), "status %#x", status(rsp));
    }
    return 0;
}

static int room_too_small(void)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    memset(c->data, 0x77, 8192);
    command_rw(c, 0, 64, 8);
    check(!ask(c, direct(c, 0, 512), rsp), "no response");
    for (int i = 512; i < 8192; i++)
        check(c->data[i] == 0x77, "byte %d beyond the buffer was written", i);
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

static int room_too_large(void)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    memset(c->data, 0x77, 8192);
    command_rw(c, 0, 64, 8);
    direct(c, 0, 0xffffffff);
    check(!ask(c, 64, rsp), "no response");
    for (int i = 4096; i < 8192; i++)
        check(c->data[i] == 0x77, "byte %d beyond the blocks was written", i);
    if (status(rsp) == 0)
        check((rsp[18] & 0x20) && get32(rsp + 24) == 0xffffffffu - 4096, "residual %u", get32(rsp + 24));
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

static int no_data(int out)
{
    uint8_t cdb[16], rsp[RECEIVE_SIZE];
    cdb_rw(cdb, out, 64, 8);
    return one(cdb, sizeof cdb, out, 0, 0, rsp);
}
static int write_without_data(void) { return no_data(1); }
static int read_without_room(void) { return no_data(0); }

static int wrong_direction(void)
{
    uint8_t cdb[16], rsp[RECEIVE_SIZE];
    cdb_rw(cdb, 1, 64, 8);
    if (one(cdb, sizeof cdb, 0, 4096, 0, rsp))
        return -1;
    cdb_rw(cdb, 0, 64, 8);
    return one(cdb, sizeof cdb, 1, 4096, 0, rsp);
}

static int unmap_list(void)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    const uint8_t cdb[10] = {0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0};
    check(c, "no login");
    memset(c->data, 0xff, 24);
    command(c, cdb, sizeof cdb);
    check(!ask(c, direct(c, 1, 24), rsp), "no response");
    check(has_sense(rsp, 5, 0x26), "status %#x", status(rsp));
    end_channel(c);
    return 0;
}

/* --- task management and credits --------------------------------------- */

/* Sends a task management request; the code of the answer, or -1. */
static int task(struct channel *c, uint8_t function, uint64_t task_tag)
{
    uint8_t rsp[RECEIVE_SIZE];
    memset(c->iu, 0, 48);
    c->iu[0] = 0x01;
    put64(c->iu + 8, 0x8000000000000000 | next_tag++);
    c->iu[30] = function;
    put64(c->iu + 32, task_tag);
    if (ask(c, 48, rsp) || !(rsp[18] & 1) || get32(rsp + 32) != 4)
        return -1;
    return rsp[39];
}

static int task_unknown(void)
{
    struct channel *c = session(1);
    check(c, "no login");
    int code = task(c, 0x7f, 0);
    check(code == 4, "code %d", code);
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

static int task_of_nobody(void)
{
    struct channel *c = session(1);
    check(c, "no login");
    check(task(c, 0x01, 0xdead) >= 0, "no answer");
    if (whole(c))
        return -1;
    end_channel(c);
    return 0;
}

/* Sends `count` reads without waiting, all with the same tag if `same`. */
static int flood(int count, int same)
{
    struct channel *c = session(1);
    uint8_t rsp[RECEIVE_SIZE];
    check(c, "no login");
    for (int i = 0; i < count && !c->dead; i++) {
        command_rw(c, 0, 64, 8);
        direct(c, 0, 4096);
        if (same)
            put64(c->iu + 8, 42);
        c->used++;
        c->outstanding++;
        send_iu(c, 64);
        while (c->early_count > RECEIVES / 2)
            receive_iu(c, rsp, WAIT_MS);
    }
    while (c->outstanding > 0 && receive_iu(c, rsp, WAIT_MS) >= 0)
        ;
    /* Whoever takes more credits than it has may lose the channel. */
    if (!c->dead && whole(c))
        return -1;
    end_channel(c);
    return 0;
}
static int same_tag(void) { return flood(32, 1); }
static int beyond_credits(void) { return flood(400, 0); }

static int leave_commands_behind(void)
{
    struct channel *c = session(1);
    check(c, "no login");
    for (int i = 0; i < 50; i++) {
        command_rw(c, i & 1, 64, 128);
        send_iu(c, direct(c, i & 1, 65536));
    }
    end_channel(c);
    return 0;
}

/* Takes the memory away while the target uses it. */
static int take_memory_away(void)
{
    struct channel *c = session(1);
    check(c, "no login");
    for (int i = 0; i < 20; i++) {
        command_rw(c, i & 1, 64, 512);
        send_iu(c, direct(c, i & 1, 262144));
    }
    ibv_dereg_mr(c->mr);
    uint8_t rsp[RECEIVE_SIZE];
    while (receive_iu(c, rsp, 2000) >= 0 && !c->dead)
        ;
    c->mr = ibv_reg_mr(c->id->pd, c->receives, 4096, IBV_ACCESS_LOCAL_WRITE);
    end_channel(c);
    return 0;
}

/* The initiator starts RDMA, which only the target may. */
static int own_rdma(enum ibv_wr_opcode opcode, uint32_t length)
{
    struct channel *c = session(1);
    check(c, "no login");
    struct ibv_sge sge = {(uintptr_t)c->data, length, c->mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = REQUEST, .sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = 0x10000, .rkey = 0x1234},
    }, *bad;
    check(!ibv_post_send(c->id->qp, &wr, &bad), "ibv_post_send");
    check(finish_request(c) != 0, "it succeeded");
    end_channel(c);
    return 0;
}
static int own_write(void) { return own_rdma(IBV_WR_RDMA_WRITE, 64); }
static int own_empty_write(void) { return own_rdma(IBV_WR_RDMA_WRITE, 0); }
static int own_read(void) { return own_rdma(IBV_WR_RDMA_READ, 64); }

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"login with another opcode", login_opcode},
    {"login without private data", login_empty},
    {"login with too short information units", login_short_iu},
    {"login with the shortest information units", login_least_iu},
    {"login with information units of 1 MiB", login_long_iu},
    {"login with information units of 4 GiB", login_endless_iu},
    {"login without a buffer format", login_formats},
    {"login to another id_ext", login_id_ext},
    {"login to another ioc_guid", login_ioc_guid},
    {"login with immediate data inside the command", login_immediate_low},
    {"login with immediate data beyond the buffer", login_immediate_high},
    {"login again as the only channel", login_single_twice},
    {"login again as another channel", login_multi},
    {"login and vanish", login_and_vanish},
    {"unknown information unit", iu_unknown},
    {"response from an initiator", iu_response},
    {"credit response without a request", iu_cred_rsp},
    {"event response without a request", iu_aer_rsp},
    {"empty information unit", iu_empty},
    {"information unit of one byte", iu_one_byte},
    {"command cut off", iu_short_command},
    {"task management request cut off", iu_short_task},
    {"logout cut off", iu_short_logout},
    {"information unit longer than agreed", iu_longer_than_agreed},
    {"logout by information unit", iu_logout},
    {"additional CDB beyond the end", w_cdb_length},
    {"data in both directions", w_both_ways},
    {"unknown descriptor format", w_format},
    {"descriptor cut off", w_cut},
    {"table cut off", w_table_cut},
    {"table of odd length", w_table_odd},
    {"table with less than its total", w_table_total},
    {"table of 4 GiB", w_table_huge},
    {"table without entries", w_table_none},
    {"immediate data cut off", w_immediate_cut},
    {"immediate data of 4 GiB", w_immediate_huge},
    {"immediate data over the additional CDB", w_immediate_cdb},
    {"immediate data that was not agreed on", immediate_not_agreed},
    {"wrong key, to be read from", bad_key_write},
    {"wrong key, to be written to", bad_key_read},
    {"wrong address, to be read from", bad_address_write},
    {"wrong address, to be written to", bad_address_read},
    {"wrong key of a table", bad_table_key},
    {"unknown SCSI command", unknown_command},
    {"blocks beyond the end", beyond_the_end},
    {"logical units that do not exist", absent_unit},
    {"less room than blocks", room_too_small},
    {"room of 4 GiB", room_too_large},
    {"write without data", write_without_data},
    {"read without room", read_without_room},
    {"data in the wrong direction", wrong_direction},
    {"UNMAP list of nonsense", unmap_list},
    {"unknown task management function", task_unknown},
    {"abort of a command that does not exist", task_of_nobody},
    {"one tag for many commands", same_tag},
    {"more commands than credits", beyond_credits},
    {"disconnect with commands under way", leave_commands_behind},
    {"memory taken away with commands under way", take_memory_away},
    {"RDMA write by the initiator", own_write},
    {"empty RDMA write by the initiator", own_empty_write},
    {"RDMA read by the initiator", own_read},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 5)
        return 2;
    struct sockaddr_in *address = (struct sockaddr_in *)&portal;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &address->sin_addr) != 1)
        return 2;
    put64(target_port, strtoull(argv[3], NULL, 16));
    put64(target_port + 8, strtoull(argv[4], NULL, 16));
    size_t count = sizeof cases / sizeof *cases;
    printf("1..%zu\n", count);
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        int bad = cases[i].run() || alive();
        failed |= bad;
        if (bad)
            printf("not ok %zu - hostile: %s # %s\n", i + 1, cases[i].name, why);
        else
            printf("ok %zu - hostile: %s\n", i + 1, cases[i].name);
    }
    return failed;
}
