/* SPDX-License-Identifier: MIT
 *
 * Channels between threads: `send` says that a slot is full, whoever receives copies its pieces out of it, and the slot
 * may be written again when all receivers have done so. A receiver that has a free slot takes what is there already
 * before it needs it, so that the sender gets on. */
#include "local.h"

int local_send(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    local_comm *c = (local_comm *)base;
    aprt_counter *sent = &c->sent[channel * (uint32_t)c->base.nranks + (uint32_t)d->rank];
    if (atomic_load(&sent->count) != mb)
        return aprt_fail_call(d, APRT_ERR_BUG, "the microbatches of a channel are not sent in order");
    atomic_store(&sent->count, mb + 1);
    aprt_gate_open(&sent->gate);
    return APRT_OK;
}

int local_claim(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    local_comm *c = (local_comm *)base;
    const aprt_layout *l = c->layout;
    const int64_t taken = mb - l->program->channel[channel].src_depth + 1;
    uint32_t i, end;
    aprt_layout_outgoing(l, channel, d->rank, &i, &end);
    for (; i < end && taken > 0; i++) {
        uint32_t route = l->outgoing[i];
        local_wait w = {.c = c, .d = d, .kind = APRT_WAIT_CLAIM, (int32_t)channel, l->route[route].dst_rank};
        int status = local_counter_wait(&w, &c->taken[route], taken);
        if (status != APRT_OK)
            return status;
    }
    return APRT_OK;
}

/* Copies one microbatch of a route, which is there and has a free slot to go to. */
static void take(local_comm *c, aprt_device *d, uint32_t number, int64_t mb)
{
    const aprt_route *r = &c->layout->route[number];
    const aprt_channel *ch = &c->layout->program->channel[r->channel];
    const int32_t size = aprt_dtype_bytes(ch->dtype);
    const char *src = aprt_slot(c->rank[r->src_rank].device, ch->src_at + mb % ch->src_depth * ch->src_bytes);
    char *dst = aprt_slot(d, ch->dst_at + mb % ch->dst_depth * ch->dst_bytes);
    for (int64_t i = r->first; i < r->first + r->count; i++) {
        const aprt_move *m = &c->layout->move[i];
        aprt_box_copy(&m->box, 0, aprt_box_count(&m->box), size, src + m->src * size, dst + m->dst * size);
    }
    atomic_store(&c->taken[number].count, mb + 1);
    aprt_gate_open(&c->taken[number].gate);
}

int local_recv(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    local_comm *c = (local_comm *)base;
    const aprt_layout *l = c->layout;
    const int64_t ahead = mb + l->program->channel[channel].dst_depth; /* the first one without a free slot */
    uint32_t begin, end;
    aprt_layout_incoming(l, channel, d->rank, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        local_wait w = {.c = c, .d = d, .kind = APRT_WAIT_RECV, (int32_t)channel, l->route[i].src_rank};
        aprt_counter *sent = &c->sent[channel * (uint32_t)c->base.nranks + (uint32_t)l->route[i].src_rank];
        int64_t next = atomic_load(&c->taken[i].count);
        if (next < mb || next > ahead)
            return aprt_fail_call(d, APRT_ERR_BUG, "the microbatches of a channel are not received in order");
        int status = local_counter_wait(&w, sent, mb + 1);
        if (status != APRT_OK)
            return status;
        for (; next < ahead && next < atomic_load(&sent->count); next++)
            take(c, d, i, next);
    }
    return APRT_OK;
}

/* The slots of a receiver are its own: which ones are free follows from the order of its list. */
int local_free(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    (void)base;
    (void)d;
    (void)channel;
    (void)mb;
    return APRT_OK;
}
