/* SPDX-License-Identifier: MIT
 *
 * Collectives by NCCL, on the stream `moving`. NCCL moves whole pieces of memory that lie in order; boxes that do not
 * are packed before and unpacked behind. Pieces have all places of a box; where a rank has fewer elements (counts) the
 * rest of its piece is whatever was there, is moved, and is not unpacked.
 *
 * Sums of the types that NCCL has are NCCL's, in an order of its own choice, which depends on the machine and is the
 * same each time. Maxima and minima are gathered and folded here, so that NaN wins as it does elsewhere; sums of types
 * that NCCL has not, too.
 *
 *                    before                          by NCCL                 behind
 *     all_gather     piece                           all_gather              p-th piece to dst_peer*p
 *     all_to_all     piece for each p                send, recv              p-th piece to dst_peer*p
 *     all_reduce     piece                           all_reduce              piece to dst
 *                    piece                           all_gather              fold to dst
 *     reduce_scatter piece for each p                reduce_scatter          piece to dst
 *                    piece for each p                send, recv              fold to dst */
#include "cuda_device.h"

#include <stdlib.h>

/* A collective of one rank. */
typedef struct job {
    aprt_device *d;
    const aprt_exchange *x;
    aprt_meeting of;
    ncclComm_t comm;
    int32_t size;                    /* of an element */
    int64_t full;                    /* elements of a piece */
    int64_t compact[APRT_MAX_LOOPS]; /* strides in it */
    const char *src;
    char *dst, *out, *in; /* pieces that leave, pieces that arrive */
} job;

static int64_t piece_of(const aprt_exchange *x, int64_t *compact)
{
    int64_t n = 1;
    for (int32_t i = x->ndims; i-- > 0; n *= x->extent[i])
        compact[i] = n;
    return n;
}

/* Row-major without gaps. */
static bool is_dense(const aprt_exchange *x, const int64_t *stride, const int64_t *compact)
{
    for (int32_t i = 0; i < x->ndims; i++)
        if (x->extent[i] > 1 && stride[i] != compact[i])
            return false;
    return x->ncounts == 0;
}

static bool nccl_type(int32_t dtype, ncclDataType_t *out)
{
    static const struct {
        int32_t dtype;
        ncclDataType_t type;
    } types[] = {{APRT_F32, ncclFloat32}, {APRT_F64, ncclFloat64}, {APRT_F16, ncclFloat16}, {APRT_BF16, ncclBfloat16},
                 {APRT_I8, ncclInt8},     {APRT_U8, ncclUint8},    {APRT_I32, ncclInt32},   {APRT_U32, ncclUint32},
                 {APRT_I64, ncclInt64},   {APRT_U64, ncclUint64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) {
            *out = types[i].type;
            return true;
        }
    return false;
}

static bool nccl_sums(const aprt_exchange *x)
{
    ncclDataType_t type;
    return x->fold == APRT_FOLD_SUM && nccl_type(x->dtype, &type);
}

/* Pieces for and from each rank of the group, whatever the collective. */
int64_t cuda_exchange_bytes(const aprt_stage *s)
{
    int64_t most = 0, compact[APRT_MAX_LOOPS];
    for (uint32_t i = 0; i < s->nexchanges; i++) {
        const aprt_exchange *x = &s->exchange[i];
        const int64_t bytes = piece_of(x, compact) * aprt_dtype_bytes(x->dtype) * s->group[x->group].size;
        most = bytes > most ? bytes : most;
    }
    return 2 * ((most + 255) / 256 * 256);
}

static int copy_box(const job *j, int32_t rank, int32_t p, const int64_t *a, const int64_t *b, const void *src,
                    void *dst)
{
    aprt_box box;
    aprt_exchange_box(&j->d->instance->layout, j->x, rank, j->d->mb, p, a, b, &box);
    const int64_t n = aprt_box_count(&box);
    if (n == 0)
        return APRT_OK;
    return cuda_check(j->d, cuda_box_copy(cuda_of(j->d)->moving, cuda_blocks(j->d, n), &box, 0, n, j->size, src, dst),
                      "packing of an exchange");
}

/* The piece for everybody. */
static int pack_one(job *j)
{
    if (is_dense(j->x, j->x->src_stride, j->compact)) {
        j->out = (char *)(uintptr_t)j->src;
        return APRT_OK;
    }
    return copy_box(j, j->d->rank, j->of.me, j->x->src_stride, j->compact, j->src, j->out);
}

/* A piece for each rank q: what it reads from this rank. `of_peer`: which peer counts ask for. */
static int pack_each(job *j, bool of_peer)
{
    if (is_dense(j->x, j->x->src_stride, j->compact) && j->x->src_me == j->full) {
        j->out = (char *)(uintptr_t)j->src;
        return APRT_OK;
    }
    for (int32_t q = 0; q < j->of.size; q++)
        CUDA_TRY(copy_box(j, j->of.rank[q], of_peer ? j->of.me : 0, j->x->src_stride, j->compact,
                          j->src + j->x->src_me * q * j->size, j->out + j->full * q * j->size));
    return APRT_OK;
}

/* Where pieces from all ranks arrive: at their place, if they lie there as they are. */
static void place_pieces(job *j)
{
    if (is_dense(j->x, j->x->dst_stride, j->compact) && j->x->dst_peer == j->full)
        j->in = j->dst;
}

static int unpack_each(const job *j)
{
    for (int32_t p = 0; p < j->of.size && j->in != j->dst; p++)
        CUDA_TRY(copy_box(j, j->d->rank, p, j->compact, j->x->dst_stride, j->in + j->full * p * j->size,
                          j->dst + j->x->dst_peer * p * j->size));
    return APRT_OK;
}

static int gather(const job *j)
{
    CUDA_NCCL(j->d, ncclAllGather, j->out, j->in, (size_t)(j->full * j->size), ncclUint8, j->comm,
              cuda_of(j->d)->moving);
    return APRT_OK;
}

static int send_each(const job *j)
{
    const size_t bytes = (size_t)(j->full * j->size);
    CUDA_NCCL(j->d, ncclGroupStart);
    for (int32_t p = 0; p < j->of.size; p++) {
        CUDA_NCCL(j->d, ncclSend, j->out + (size_t)p * bytes, bytes, ncclUint8, p, j->comm, cuda_of(j->d)->moving);
        CUDA_NCCL(j->d, ncclRecv, j->in + (size_t)p * bytes, bytes, ncclUint8, p, j->comm, cuda_of(j->d)->moving);
    }
    CUDA_NCCL(j->d, ncclGroupEnd);
    return APRT_OK;
}

/* Pieces of all ranks to the one box. */
static int fold(const job *j)
{
    aprt_box box;
    aprt_exchange_box(&j->d->instance->layout, j->x, j->d->rank, j->d->mb, 0, j->compact, j->x->dst_stride, &box);
    const int64_t n = aprt_box_count(&box);
    if (n == 0)
        return APRT_OK;
    return cuda_check(j->d,
                      cuda_box_fold(cuda_of(j->d)->moving, cuda_blocks(j->d, n), &box, j->x->dtype, j->x->fold,
                                    j->of.size, j->full, j->in, j->dst),
                      "folding of an exchange");
}

static int reduce(job *j, bool scatter)
{
    ncclDataType_t type = ncclFloat32;
    nccl_type(j->x->dtype, &type);
    if (is_dense(j->x, j->x->dst_stride, j->compact))
        j->in = j->dst;
    if (scatter)
        CUDA_NCCL(j->d, ncclReduceScatter, j->out, j->in, (size_t)j->full, type, ncclSum, j->comm,
                  cuda_of(j->d)->moving);
    else
        CUDA_NCCL(j->d, ncclAllReduce, j->out, j->in, (size_t)j->full, type, ncclSum, j->comm, cuda_of(j->d)->moving);
    return j->in == j->dst ? APRT_OK : copy_box(j, j->d->rank, 0, j->compact, j->x->dst_stride, j->in, j->dst);
}

static int move(job *j)
{
    const bool sums = nccl_sums(j->x);
    switch (j->x->kind) {
    case APRT_ALL_GATHER:
        place_pieces(j);
        CUDA_TRY(pack_one(j));
        CUDA_TRY(gather(j));
        return unpack_each(j);
    case APRT_ALL_TO_ALL:
        place_pieces(j);
        CUDA_TRY(pack_each(j, true));
        CUDA_TRY(send_each(j));
        return unpack_each(j);
    case APRT_ALL_REDUCE:
        CUDA_TRY(pack_one(j));
        if (sums)
            return reduce(j, false);
        CUDA_TRY(gather(j));
        return fold(j);
    case APRT_REDUCE_SCATTER:
        CUDA_TRY(pack_each(j, false));
        if (sums)
            return reduce(j, true);
        CUDA_TRY(send_each(j));
        return fold(j);
    }
    return cuda_fail(j->d, APRT_ERR_BUG, "an exchange of an unknown kind");
}

/* ---- when ---- */

int cuda_exchanges_open(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    c->arrived = calloc(d->stage->nexchanges + 1u, sizeof *c->arrived);
    if (!c->arrived)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    for (uint32_t i = 0; i < d->stage->nexchanges; i++)
        CUDA_TRY(cuda_event(d, &c->arrived[i]));
    return APRT_OK;
}

void cuda_exchanges_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    for (uint32_t i = 0; c->arrived && i < d->stage->nexchanges; i++)
        if (c->arrived[i])
            cudaEventDestroy(c->arrived[i]);
    free(c->arrived);
}

/* Exchanges come one after the other on `moving`, so they may share the space for packed boxes, and whoever waits for
 * one waits for those before it. Each comes behind all that was put on `compute` before. */
static int begin(aprt_device *d, uint32_t number, const void *src, void *dst)
{
    cuda_device *c = cuda_of(d);
    const aprt_exchange *x = &d->stage->exchange[number];
    job j = {.d = d, .x = x, .comm = c->group[x->group], .size = aprt_dtype_bytes(x->dtype), .src = src, .dst = dst};
    if (c->status != APRT_OK)
        return c->status;
    aprt_layout_meeting(&d->instance->layout, d, x->group, &j.of);
    j.full = piece_of(x, j.compact);
    j.out = c->exchange_space;
    j.in = c->exchange_space + c->exchange_bytes / 2;
    CUDA_DO(d, cudaEventRecord, c->ready, c->compute);
    CUDA_DO(d, cudaStreamWaitEvent, c->moving, c->ready, 0);
    cuda_measure_idle(d);
    cuda_measure_mark(d, CUDA_EXCHANGE_BEGINS);
    if (j.full > 0)
        CUDA_TRY(move(&j));
    cuda_measure_mark(d, CUDA_EXCHANGE_ENDS);
    CUDA_DO(d, cudaEventRecord, c->arrived[number], c->moving);
    c->in_flight = c->arrived[number];
    return APRT_OK;
}

static int wait_for(aprt_device *d, cudaEvent_t arrived)
{
    cuda_device *c = cuda_of(d);
    if (c->status != APRT_OK)
        return c->status;
    CUDA_DO(d, cudaStreamWaitEvent, c->compute, arrived, 0);
    if (arrived == c->in_flight)
        c->in_flight = NULL;
    return APRT_OK;
}

int cuda_exchanges_join(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    return c->in_flight ? wait_for(d, c->in_flight) : APRT_OK;
}

int cuda_exchange(aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    const ptrdiff_t number = x - d->stage->exchange;
    if (number < 0 || number >= (ptrdiff_t)d->stage->nexchanges)
        return cuda_fail(d, APRT_ERR_BUG, "an exchange that the stage does not list");
    CUDA_TRY(begin(d, (uint32_t)number, src, dst));
    return cuda_exchanges_join(d);
}

void aprt_cuda_exchange(aprt_device *d, uint32_t number, const void *src, void *dst)
{
    begin(d, number, src, dst);
}

void aprt_cuda_arrived(aprt_device *d, uint32_t n)
{
    cuda_measure_idle(d);
    wait_for(d, cuda_of(d)->arrived[n - 1]);
    cuda_measure_mark(d, CUDA_COMPUTES);
}
