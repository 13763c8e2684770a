/* Information units that are wrong. */
#ifndef SRP_UNIT_CASES_H
#define SRP_UNIT_CASES_H

#include "commands.h"

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

#endif
