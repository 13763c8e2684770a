/* Logins that are wrong, or unusual. */
#ifndef SRP_LOGIN_CASES_H
#define SRP_LOGIN_CASES_H

#include "commands.h"

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

/* Initiators log in and stay until one is refused: there is an end to what they
 * can take. When they have left, there is room again. */
static int login_and_stay(void)
{
    enum { MOST = 70 };
    struct channel *all[MOST], *last = NULL;
    int count = 0;
    while (count < MOST && !(last && last->rejected)) {
        struct login l = good_login((uint8_t)(100 + count));
        last = all[count++] = log_in(l.bytes, LOGIN_SIZE);
    }
    int refused = last->rejected && last->answer[0] == 0xC2 && get32(last->answer + 4) == 0x10001;
    while (count)
        end_channel(all[--count]);
    check(refused, "no login was refused for lack of resources");
    struct channel *next = NULL;
    for (int tries = 0; !next && tries < 1000; tries++)
        next = session(98);
    check(next, "no room any more");
    end_channel(next);
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

#endif
