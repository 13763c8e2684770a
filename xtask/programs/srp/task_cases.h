/* Task management, credits, and initiators that do more than they may. */
#ifndef SRP_TASK_CASES_H
#define SRP_TASK_CASES_H

#include "commands.h"

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

#endif
