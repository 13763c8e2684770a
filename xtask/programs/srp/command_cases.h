/* Commands that are wrong: descriptors, immediate data, memory, CDBs. */
#ifndef SRP_COMMAND_CASES_H
#define SRP_COMMAND_CASES_H

#include "commands.h"

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

#endif
