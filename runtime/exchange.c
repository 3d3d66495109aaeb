/* SPDX-License-Identifier: MIT
 *
 * Collectives between threads of one process: every rank publishes where its operand lies, all meet, and each reads
 * what it needs straight from the others' memory. They meet once more before anyone may overwrite what was read.
 *
 * A large all_reduce is folded in equal parts, each by its owner, and then read from the owners; a small one is folded
 * by everybody. Both give the same bits, because each element is folded in rank order either way. It may be in place
 * (on all ranks or on none); then it counts as large: what the others contribute to a part is read by its owner alone,
 * and overwritten after all have met. */
#include "internal.h"

enum { SMALL_ALL_REDUCE = 4096 /* contributions in all */ };

typedef struct meeting {
    aprt_instance *instance;
    aprt_barrier *barrier;
    const int32_t *rank; /* of the peers, in order */
    int32_t size, me;
    int64_t coordinate[APRT_MAX_AXES]; /* of this rank, for counts */
} meeting;

static bool meet(const meeting *m)
{
    return aprt_barrier_wait(m->barrier, &m->instance->aborted, m->instance->spins);
}

static const char *peer_src(const meeting *m, int32_t p)
{
    return atomic_load(&m->instance->worker[m->rank[p]].src);
}

/* The box that comes from peer p, between these strides. */
static void make_box(const meeting *m, const aprt_exchange *x, int32_t p, const int64_t *a, const int64_t *b,
                     aprt_box *out)
{
    int64_t extent[APRT_MAX_LOOPS];
    for (int32_t d = 0; d < x->ndims; d++)
        extent[d] = x->extent[d];
    aprt_counts_apply(x->ncounts, x->count, m->coordinate, p, extent);
    aprt_box_make(out, x->ndims, extent, a, b);
}

/* all_gather and all_to_all; starts with the right neighbour, so that not everyone reads rank 0 first */
static void copy_from_peers(const meeting *m, const aprt_exchange *x, int64_t src_offset, char *dst)
{
    int32_t size = aprt_dtype_bytes(x->dtype);
    aprt_box box;
    for (int32_t i = 0; i < m->size; i++) {
        int32_t p = (m->me + i) % m->size;
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
    for (int32_t p = 0; p < m->size; p++)
        src[p] = peer_src(m, p) + src_offset * size;
    aprt_fold_run(&box, first, last, x->dtype, x->fold, m->size, src, dst);
}

static int all_reduce(const meeting *m, const aprt_exchange *x, const char *src, char *dst)
{
    aprt_box box;
    make_box(m, x, 0, x->dst_stride, x->dst_stride, &box);
    int64_t count = aprt_box_count(&box);
    if (count * m->size <= SMALL_ALL_REDUCE && src != dst) {
        fold_peers(m, x, 0, 0, count, dst);
        return APRT_OK;
    }
    int64_t each = count / m->size + (count % m->size != 0);
    int64_t first = each * m->me < count ? each * m->me : count;
    fold_peers(m, x, 0, first, first + each < count ? first + each : count, dst);
    if (!meet(m))
        return APRT_ABANDONED;
    for (int32_t i = 1; i < m->size; i++) {
        int32_t p = (m->me + i) % m->size;
        first = each * p < count ? each * p : count;
        aprt_box_copy(&box, first, first + each < count ? first + each : count, aprt_dtype_bytes(x->dtype),
                      atomic_load(&m->instance->worker[m->rank[p]].dst), dst);
    }
    return APRT_OK;
}

int aprt_exchange_run(aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    aprt_instance *in = d->instance;
    const aprt_group *g = &in->program->group[x->group];
    int32_t place = in->place[(int64_t)x->group * in->program->nranks + d->rank], list = place / g->size;
    meeting m = {in,
                 &in->barrier[in->first_barrier[x->group] + (uint32_t)list],
                 g->rank + (int64_t)list * g->size,
                 g->size,
                 place % g->size,
                 {0}};
    for (int a = 0; x->ncounts && a < in->program->naxes; a++)
        m.coordinate[a] = d->rank / in->program->axis_stride[a] % in->program->axis_size[a];
    aprt_worker *w = &in->worker[d->rank];
    atomic_store(&w->src, src);
    atomic_store(&w->dst, dst);
    if (!meet(&m))
        return APRT_ABANDONED;
    int status = APRT_OK;
    if (x->kind == APRT_ALL_GATHER)
        copy_from_peers(&m, x, 0, dst);
    else if (x->kind == APRT_ALL_TO_ALL)
        copy_from_peers(&m, x, x->src_me * m.me, dst);
    else if (x->kind == APRT_REDUCE_SCATTER) {
        aprt_box box;
        make_box(&m, x, 0, x->src_stride, x->dst_stride, &box);
        fold_peers(&m, x, x->src_me * m.me, 0, aprt_box_count(&box), dst);
    } else
        status = all_reduce(&m, x, src, dst);
    if (status != APRT_OK)
        return status;
    return meet(&m) ? APRT_OK : APRT_ABANDONED;
}
