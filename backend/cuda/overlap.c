/* When the compute stream has to wait for exchanges, which go on beside it: before the first instruction that reads
 * what an exchange writes, or writes what it reads or writes. Places of the arena are used again by other values, so
 * bytes are compared, not values; from the least to the greatest byte that any rank touches in any microbatch. What
 * exchanges pack is the runtime's own, and they come one after the other. */
#include "backend/cuda/cuda.h"

#include "ir/local_text.h"

typedef struct touched {
    ap_space space;
    uint32_t index; /* of a parameter, input or output */
    bool written;
    int64_t low, high; /* bytes, none if low >= high */
} touched;

typedef struct touches {
    uint32_t n;
    touched *at;
} touches;

/* Whatever the ranks' coordinates; all of the space when numbers do not reach. */
static touched place(const ap_emit *e, const ap_ref *ref, ap_dtype dtype, const ap_reach *reach, bool written)
{
    touched t = {.space = ref->space, .index = ref->space == AP_SPACE_ARENA ? 0 : ref->index, .written = written};
    int64_t low = reach->lo, high = reach->hi, size = ap_dtype_bytes(dtype);
    bool fits = ap_add_i64(low, ref->offset.base, &low) && ap_add_i64(high, ref->offset.base, &high);
    if (!reach->any)
        return t;
    for (int a = 0; a < e->p->naxes && fits; a++) {
        int64_t far;
        fits = ap_mul_i64(ref->offset.step[a], e->p->axis_size[a] - 1, &far) &&
               ap_add_i64(far < 0 ? far : 0, low, &low) && ap_add_i64(far > 0 ? far : 0, high, &high);
    }
    fits = fits && ap_add_i64(high, 1, &high) && ap_mul_i64(low, size, &low) && ap_mul_i64(high, size, &high);
    if (fits && ref->space == AP_SPACE_ARENA)
        fits = ap_add_i64(low, ref->byte_offset, &low) && ap_add_i64(high, ref->byte_offset, &high);
    t.low = fits ? low : INT64_MIN;
    t.high = fits ? high : INT64_MAX;
    return t;
}

/* The box from the first to the last position of the group. */
static touched box(const ap_emit *e, const ap_instr *in, uint32_t i)
{
    const ap_exchange *x = &in->exchange;
    const int64_t *stride = i == 0 ? x->src_stride : x->dst_stride;
    const int64_t apart =
        i == 0 ? (ap_exchange_has_me(x->kind) ? x->src_me : 0) : (ap_exchange_has_peer(x->kind) ? x->dst_peer : 0);
    ap_reach r = {.any = true};
    bool fits = ap_reach_loop(&r, e->p->groups.at[x->group].size, apart);
    for (int d = 0; d < x->ndims && fits; d++)
        fits = ap_reach_loop(&r, x->extent[d], stride[d]);
    touched t = place(e, &in->ref[i], x->dtype, &r, i == 1);
    if (!fits)
        t.low = INT64_MIN, t.high = INT64_MAX;
    return t;
}

static touched operand(const ap_emit *e, const ap_instr *in, uint32_t i)
{
    const ap_kernel *k = &e->p->kernels.at[in->kernel];
    ap_reach r;
    const bool fits = ap_local_kernel_reach(k, NULL, i, &r);
    touched t = place(e, &in->ref[i], k->operand[i].dtype, &r, k->operand[i].written);
    if (!fits)
        t.low = INT64_MIN, t.high = INT64_MAX;
    return t;
}

static touches touches_of(const ap_emit *e, const ap_instr *in)
{
    touches t = {in->nrefs, AP_NEW_ARRAY(&e->ctx->scratch, touched, in->nrefs + 1u)};
    for (uint32_t i = 0; i < in->nrefs; i++)
        t.at[i] = in->kind == AP_INSTR_EXCHANGE ? box(e, in, i) : operand(e, in, i);
    return t;
}

static bool meet(const touches *a, const touches *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < b->n; j++) {
            const touched *x = &a->at[i], *y = &b->at[j];
            if (x->space == y->space && x->index == y->index && (x->written || y->written) && x->low < y->high &&
                y->low < x->high)
                return true;
        }
    return false;
}

uint32_t *ap_cuda_arrivals(const ap_emit *e)
{
    const uint32_t n = e->p->instrs.len;
    uint32_t *arrivals = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, n + 1);
    touches *exchange = AP_NEW_ARRAY(&e->ctx->scratch, touches, n + 1);
    uint32_t begun = 0, waited = 0; /* how many of the exchanges */
    for (uint32_t i = 0; i < n; i++) {
        const ap_instr *in = &e->p->instrs.at[i];
        const touches t = touches_of(e, in);
        if (in->kind == AP_INSTR_EXCHANGE) {
            exchange[begun++] = t;
            continue;
        }
        for (uint32_t x = begun; x > waited && !arrivals[i]; x--)
            if (meet(&exchange[x - 1], &t))
                arrivals[i] = x;
        waited = arrivals[i] > waited ? arrivals[i] : waited;
    }
    return arrivals;
}
