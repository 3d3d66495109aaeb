/* SPDX-License-Identifier: MIT
 *
 * Collectives between threads of one process: every rank publishes where its operand lies, all meet, and each reads
 * what it needs straight from the others' memory. They meet once more before anyone may overwrite what was read.
 *
 * A large all_reduce is folded in equal parts, each by its owner, and then read from the owners; a small one is folded
 * by everybody. Both give the same bits, because each element is folded in rank order either way. It may be in place
 * (on all ranks or on none); then it counts as large: what the others contribute to a part is read by its owner alone,
 * and overwritten after all have met. */
#include "local.h"

enum { SMALL_ALL_REDUCE = 4096 /* contributions in all */ };

typedef struct meeting {
    local_comm *c;
    aprt_device *d;
    aprt_barrier *barrier;
    aprt_meeting of;
    local_wait wait;
} meeting;

static bool meet(meeting *m)
{
    local_comm *c = m->c;
    bool good = aprt_barrier_wait(m->barrier, &c->aborted, c->setup.spins, local_tick, local_tick_seconds(c), &m->wait);
    local_wake(&m->wait);
    return good;
}

static const char *peer_src(const meeting *m, int32_t p)
{
    return atomic_load(&m->c->rank[m->of.rank[p]].src);
}

/* The box that comes from peer p, between these strides. */
static void make_box(const meeting *m, const aprt_exchange *x, int32_t p, const int64_t *a, const int64_t *b,
                     aprt_box *out)
{
    aprt_exchange_box(m->c->layout, x, m->d->rank, m->d->mb, p, a, b, out);
}

/* all_gather and all_to_all; starts with the right neighbour, so that not everyone reads rank 0 first */
static void copy_from_peers(const meeting *m, const aprt_exchange *x, int64_t src_offset, char *dst)
{
    int32_t size = aprt_dtype_bytes(x->dtype);
    aprt_box box;
    for (int32_t i = 0; i < m->of.size; i++) {
        int32_t p = (m->of.me + i) % m->of.size;
        if (i == 0 || x->ncounts)
            make_box(m, x, p, x->src_stride, x->dst_stride, &box);
        aprt_box_copy(&box, 0, aprt_box_count(&box), size, peer_src(m, p) + src_offset * size,
                      dst + x->dst_peer * p * size);
    }
}

static void fold_peers(const meeting *m, const aprt_exchange *x, int64_t src_offset, int64_t first, int64_t last,
                       char *dst)
{
    int32_t size = aprt_dtype_bytes(x->dtype);
    const void *src[APRT_MAX_RANKS];
    aprt_box box;
    make_box(m, x, 0, x->src_stride, x->dst_stride, &box);
    for (int32_t p = 0; p < m->of.size; p++)
        src[p] = peer_src(m, p) + src_offset * size;
    aprt_fold_run(&box, first, last, x->dtype, x->fold, m->of.size, src, dst);
}

static int all_reduce(meeting *m, const aprt_exchange *x, const char *src, char *dst)
{
    aprt_box box;
    make_box(m, x, 0, x->dst_stride, x->dst_stride, &box);
    int64_t count = aprt_box_count(&box);
    if (count * m->of.size <= SMALL_ALL_REDUCE && src != dst) {
        fold_peers(m, x, 0, 0, count, dst);
        return APRT_OK;
    }
    int64_t first, last;
    aprt_exchange_part(count, m->of.size, m->of.me, &first, &last);
    fold_peers(m, x, 0, first, last, dst);
    if (!meet(m))
        return local_wait_status(&m->wait);
    for (int32_t i = 1; i < m->of.size; i++) {
        int32_t p = (m->of.me + i) % m->of.size;
        aprt_exchange_part(count, m->of.size, p, &first, &last);
        aprt_box_copy(&box, first, last, aprt_dtype_bytes(x->dtype), atomic_load(&m->c->rank[m->of.rank[p]].dst), dst);
    }
    return APRT_OK;
}

int local_exchange(aprt_comm *base, aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    local_comm *c = (local_comm *)base;
    meeting m = {.c = c, .d = d, .wait = {.c = c, .d = d, .kind = APRT_WAIT_GROUP, .peer = -1}};
    aprt_layout_meeting(c->layout, d, x->group, &m.of);
    m.barrier = &c->barrier[c->first_barrier[c->layout->stage_of[d->rank]][x->group] + (uint32_t)m.of.list];
    local_rank *me = &c->rank[d->rank];
    atomic_store(&me->src, src);
    atomic_store(&me->dst, dst);
    if (!meet(&m))
        return local_wait_status(&m.wait);
    int status = APRT_OK;
    if (x->kind == APRT_ALL_GATHER)
        copy_from_peers(&m, x, 0, dst);
    else if (x->kind == APRT_ALL_TO_ALL)
        copy_from_peers(&m, x, x->src_me * m.of.me, dst);
    else if (x->kind == APRT_REDUCE_SCATTER) {
        aprt_box box;
        make_box(&m, x, 0, x->src_stride, x->dst_stride, &box);
        fold_peers(&m, x, x->src_me * m.of.me, 0, aprt_box_count(&box), dst);
    } else
        status = all_reduce(&m, x, src, dst);
    if (status != APRT_OK)
        return status;
    return meet(&m) ? APRT_OK : local_wait_status(&m.wait);
}
