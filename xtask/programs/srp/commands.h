/* Commands as a well-behaved initiator sends them, and how cases judge what
 * comes back. */
#ifndef SRP_COMMANDS_H
#define SRP_COMMANDS_H

#include "initiator.h"

static char why[256];

/* Fails the case unless `good`. */
#define check(good, ...)                                 \
    do {                                                 \
        if (!(good)) {                                   \
            snprintf(why, sizeof why, __VA_ARGS__);      \
            return -1;                                   \
        }                                                \
    } while (0)

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

#endif
