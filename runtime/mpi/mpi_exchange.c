/* SPDX-License-Identifier: MIT
 *
 * Collectives by messages between two. Boxes travel without gaps; what is folded is folded in the order of the list by
 * the same function and over the same elements as in `local`, so the bits are the same. */
#include "mpi_comm.h"

enum { TAG = 1, SMALL_ALL_REDUCE = 4096 /* contributions in all, as in local_exchange.c */ };

typedef struct exchange {
    mpi_comm *c;
    aprt_device *d;
    const aprt_exchange *x;
    aprt_meeting of;
    int64_t size; /* of an element */
} exchange;

/* The box that the peer at position `taker` takes from the one at position `giver`, from its strides to none. */
static void packed_box(const exchange *e, int32_t taker, int32_t giver, const int64_t *stride, aprt_box *out)
{
    int64_t extent[APRT_MAX_LOOPS], compact[APRT_MAX_LOOPS], coordinate[APRT_MAX_AXES], n = 1;
    memcpy(extent, e->x->extent, (size_t)e->x->ndims * sizeof *extent);
    if (e->x->ncounts) {
        aprt_layout_coordinate(e->c->layout, e->of.rank[taker], e->d->mb, coordinate);
        aprt_counts_apply(e->x->ncounts, e->x->count, coordinate, giver, extent);
    }
    for (int32_t i = e->x->ndims; i-- > 0; n *= extent[i])
        compact[i] = n;
    aprt_box_make(out, e->x->ndims, extent, stride, compact);
}

static bool is_whole(const aprt_box *b)
{
    return b->ndims == 1 && (b->a[0] == 1 || b->extent[0] <= 1) && (b->b[0] == 1 || b->extent[0] <= 1);
}

static size_t box_bytes(const exchange *e, const aprt_box *b)
{
    return (size_t)(aprt_box_count(b) * e->size);
}

/* The other way round: from no gaps to strides. */
static void unpack(const exchange *e, const aprt_box *b, const char *from, char *to)
{
    aprt_box back = *b;
    memcpy(back.a, b->b, sizeof back.a);
    memcpy(back.b, b->a, sizeof back.b);
    aprt_box_copy(&back, 0, aprt_box_count(b), (int32_t)e->size, from, to);
}

static void pack(const exchange *e, const aprt_box *b, const char *from, char *to)
{
    aprt_box_copy(b, 0, aprt_box_count(b), (int32_t)e->size, from, to);
}

static int send_to(const exchange *e, int32_t p, const void *bytes, size_t size)
{
    return mpi_batch_send(e->c, e->d, e->c->exchanges, e->of.rank[p], TAG, bytes, size);
}

static int recv_from(const exchange *e, int32_t p, void *bytes, size_t size)
{
    return mpi_batch_recv(e->c, e->d, e->c->exchanges, e->of.rank[p], TAG, bytes, size);
}

static int wait_all(const exchange *e)
{
    return mpi_batch_wait(e->c, e->d, APRT_WAIT_GROUP);
}

/* Sends every peer the box that it takes, of src_me elements further for each position; boxes with gaps go through
 * c->out. */
static int send_boxes(const exchange *e, const char *src, int64_t src_me, bool peers_matter)
{
    aprt_box box;
    size_t all = 0, at = 0;
    int status = APRT_OK;
    for (int32_t p = 0; p < e->of.size; p++) {
        packed_box(e, p, peers_matter ? e->of.me : 0, e->x->src_stride, &box);
        all += p == e->of.me || is_whole(&box) ? 0 : box_bytes(e, &box);
    }
    status = mpi_buffer_grow(e->c, e->d, &e->c->out, all);
    for (int32_t i = 1; i < e->of.size && status == APRT_OK; i++) {
        int32_t p = (e->of.me + i) % e->of.size;
        const char *from = src + src_me * p * e->size;
        packed_box(e, p, peers_matter ? e->of.me : 0, e->x->src_stride, &box);
        size_t n = box_bytes(e, &box);
        if (!is_whole(&box)) {
            pack(e, &box, from, e->c->out.bytes + at);
            from = e->c->out.bytes + at;
            at += n;
        }
        status = send_to(e, p, from, n);
    }
    return status;
}

/* all_gather, all_to_all */
static int move_boxes(const exchange *e, const char *src, char *dst, int64_t src_me)
{
    aprt_box box;
    size_t all = 0, at = 0;
    for (int32_t p = 0; p < e->of.size; p++) {
        packed_box(e, e->of.me, p, e->x->dst_stride, &box);
        all += p == e->of.me || is_whole(&box) ? 0 : box_bytes(e, &box);
    }
    int status = mpi_buffer_grow(e->c, e->d, &e->c->in, all);
    for (int32_t p = 0; p < e->of.size && status == APRT_OK; p++) {
        if (p == e->of.me)
            continue;
        packed_box(e, e->of.me, p, e->x->dst_stride, &box);
        size_t n = box_bytes(e, &box);
        status = recv_from(e, p, is_whole(&box) ? dst + e->x->dst_peer * p * e->size : e->c->in.bytes + at, n);
        at += is_whole(&box) ? 0 : n;
    }
    if (status == APRT_OK)
        status = send_boxes(e, src, src_me, true);
    aprt_exchange_box(e->c->layout, e->x, e->d->rank, e->d->mb, e->of.me, e->x->src_stride, e->x->dst_stride, &box);
    aprt_box_copy(&box, 0, aprt_box_count(&box), (int32_t)e->size, src + src_me * e->of.me * e->size,
                  dst + e->x->dst_peer * e->of.me * e->size);
    if (status == APRT_OK)
        status = wait_all(e);
    at = 0;
    for (int32_t p = 0; p < e->of.size && status == APRT_OK; p++) {
        packed_box(e, e->of.me, p, e->x->dst_stride, &box);
        if (p == e->of.me || is_whole(&box))
            continue;
        unpack(e, &box, e->c->in.bytes + at, dst + e->x->dst_peer * p * e->size);
        at += box_bytes(e, &box);
    }
    return status;
}

/* dst[box] = fold of contributions without gaps: those of the peers lie in c->in, `own` is ours */
static void fold_packed(const exchange *e, const char *own, const aprt_box *to, char *dst)
{
    const void *src[APRT_MAX_RANKS];
    const size_t each = box_bytes(e, to);
    size_t at = 0;
    for (int32_t p = 0; p < e->of.size; p++) {
        src[p] = p == e->of.me ? own : e->c->in.bytes + at;
        at += p == e->of.me ? 0 : each;
    }
    aprt_fold_run(to, 0, aprt_box_count(to), e->x->dtype, e->x->fold, e->of.size, src, dst);
}

/* Everybody's contribution of `each` bytes to what this rank folds. */
static int recv_contributions(const exchange *e, size_t each)
{
    size_t at = 0;
    int status = mpi_buffer_grow(e->c, e->d, &e->c->in, each * (size_t)(e->of.size - 1));
    for (int32_t p = 0; p < e->of.size && status == APRT_OK; p++)
        if (p != e->of.me) {
            status = recv_from(e, p, e->c->in.bytes + at, each);
            at += each;
        }
    return status;
}

/* Strides of the result, and none of the contributions. */
static void result_box(const exchange *e, aprt_box *out)
{
    aprt_box box;
    packed_box(e, e->of.me, 0, e->x->dst_stride, &box);
    *out = box;
    memcpy(out->a, box.b, sizeof out->a);
    memcpy(out->b, box.a, sizeof out->b);
}

static int reduce_scatter(const exchange *e, const char *src, char *dst)
{
    aprt_box own, to;
    const char *mine = src + e->x->src_me * e->of.me * e->size;
    result_box(e, &to);
    packed_box(e, e->of.me, 0, e->x->src_stride, &own);
    int status = recv_contributions(e, box_bytes(e, &to));
    if (status == APRT_OK)
        status = send_boxes(e, src, e->x->src_me, false);
    if (status == APRT_OK)
        status = mpi_buffer_grow(e->c, e->d, &e->c->compact, box_bytes(e, &own));
    if (status == APRT_OK)
        status = wait_all(e);
    if (status != APRT_OK)
        return status;
    pack(e, &own, mine, e->c->compact.bytes);
    fold_packed(e, e->c->compact.bytes, &to, dst);
    return APRT_OK;
}

/* ---- all_reduce ---- */

/* Every rank gets everything: one message each way. */
static int reduce_small(const exchange *e, const char *whole, char *dst)
{
    aprt_box to;
    result_box(e, &to);
    const size_t each = box_bytes(e, &to);
    int status = recv_contributions(e, each);
    for (int32_t i = 1; i < e->of.size && status == APRT_OK; i++)
        status = send_to(e, (e->of.me + i) % e->of.size, whole, each);
    if (status == APRT_OK)
        status = wait_all(e);
    if (status == APRT_OK)
        fold_packed(e, whole, &to, dst);
    return status;
}

/* Each rank folds a part of `whole`, which has no gaps, and gets the others' parts. */
static int reduce_parts(const exchange *e, char *whole, int64_t count)
{
    int64_t first, last, from, to;
    const int64_t size = e->size;
    aprt_exchange_part(count, e->of.size, e->of.me, &first, &last);
    int status = recv_contributions(e, (size_t)((last - first) * size));
    for (int32_t i = 1; i < e->of.size && status == APRT_OK; i++) {
        int32_t p = (e->of.me + i) % e->of.size;
        aprt_exchange_part(count, e->of.size, p, &from, &to);
        status = send_to(e, p, whole + from * size, (size_t)((to - from) * size));
    }
    if (status == APRT_OK)
        status = wait_all(e);
    if (status != APRT_OK)
        return status;
    const int64_t extent = last - first, one = 1;
    aprt_box part;
    aprt_box_make(&part, 1, &extent, &one, &one);
    fold_packed(e, whole + first * size, &part, whole + first * size); /* block by block: in place is right */
    for (int32_t i = 1; i < e->of.size && status == APRT_OK; i++) {
        int32_t p = (e->of.me + i) % e->of.size;
        aprt_exchange_part(count, e->of.size, p, &from, &to);
        status = recv_from(e, p, whole + from * size, (size_t)((to - from) * size));
        if (status == APRT_OK)
            status = send_to(e, p, whole + first * size, (size_t)((last - first) * size));
    }
    return status == APRT_OK ? wait_all(e) : status;
}

static int all_reduce(const exchange *e, const char *src, char *dst)
{
    aprt_box from, to;
    packed_box(e, e->of.me, 0, e->x->src_stride, &from);
    packed_box(e, e->of.me, 0, e->x->dst_stride, &to);
    const int64_t count = aprt_box_count(&from);
    /* a result without gaps is folded where it belongs */
    const bool small = count * e->of.size <= SMALL_ALL_REDUCE && src != dst;
    int status = mpi_buffer_grow(e->c, e->d, &e->c->compact, box_bytes(e, &from));
    if (status != APRT_OK)
        return status;
    char *whole = !small && is_whole(&to) ? dst : e->c->compact.bytes;
    if (whole != src || !is_whole(&from))
        pack(e, &from, src, whole);
    if (small)
        return reduce_small(e, whole, dst);
    status = reduce_parts(e, whole, count);
    if (status == APRT_OK && whole != dst)
        unpack(e, &to, whole, dst);
    return status;
}

int mpi_exchange(aprt_comm *base, aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    exchange e = {.c = (mpi_comm *)base, .d = d, .x = x, .size = aprt_dtype_bytes(x->dtype)};
    aprt_layout_meeting(e.c->layout, d, x->group, &e.of);
    switch (x->kind) {
    case APRT_ALL_GATHER:
        return move_boxes(&e, src, dst, 0);
    case APRT_ALL_TO_ALL:
        return move_boxes(&e, src, dst, x->src_me);
    case APRT_REDUCE_SCATTER:
        return reduce_scatter(&e, src, dst);
    default:
        return all_reduce(&e, src, dst);
    }
}
