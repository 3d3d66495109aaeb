/* Bytes of operands, and distances between touches. Places are ranges of bytes of a space; the program is thought to
 * run again and again, so what the first instruction reads may be what the last one wrote. */
#include "passes/local_touch.h"

#include <string.h>

/* ---- bytes ---- */

enum { NEAR = 32768 }; /* an operand of which all lines stay in the first cache */

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* A walk over `nloops` loops; those with stride 0 say nothing. */
static ap_touch walk(int nloops, const int64_t *extent, const int64_t *stride, ap_dtype dtype)
{
    int64_t n = 1, span = 1, least = 0, inner = 0, size = ap_dtype_bytes(dtype);
    for (int l = 0; l < nloops; l++) {
        if (stride[l] == 0 || extent[l] == 1)
            continue;
        n = ap_sat_mul(n, extent[l]);
        span = ap_sat_add(span, ap_sat_mul(ap_max_i64(extent[l] - 1, 0), magnitude(stride[l])));
        least = least == 0 ? magnitude(stride[l]) : ap_min_i64(least, magnitude(stride[l]));
        inner = magnitude(stride[l]);
    }
    int64_t each = ap_min_i64(ap_sat_mul(ap_max_i64(least, 1), size), AP_TOUCH_LINE);
    int64_t bytes = ap_min_i64(ap_sat_mul(span, size), ap_sat_mul(n, ap_max_i64(each, size)));
    return (ap_touch){
        .bytes = ap_max_i64(bytes, 0), .span = ap_sat_mul(span, size), .alone = inner > 1 && bytes > NEAR ? n : 0};
}

/* What is looked up, a row or element for each turn of the loops of its section. */
static ap_touch looked_up(const ap_nest *n, uint32_t operand, ap_touch t, ap_dtype dtype)
{
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool by_index = s->kind == AP_SOP_GATHER || (s->kind == AP_SOP_UPDATE && s->imm.i >= 0);
        if (!by_index || s->operand != operand)
            continue;
        int64_t times = 1;
        for (int l = 0; l < n->nouter + (n->inner[s->section] ? n->ninner : 0); l++)
            times = ap_sat_mul(times, n->extent[l]);
        t.bytes = ap_max_i64(t.bytes, ap_sat_mul(times, ap_dtype_bytes(dtype)));
    }
    return t;
}

static ap_touch plain(int64_t elements, ap_dtype dtype)
{
    int64_t bytes = ap_sat_mul(elements, ap_dtype_bytes(dtype));
    return (ap_touch){.bytes = bytes, .span = bytes};
}

static ap_touch touch_of_gemm(const ap_kernel *k, uint32_t operand)
{
    const ap_gemm *g = &k->gemm;
    int64_t extent[AP_MAX_LOOPS], stride[AP_MAX_LOOPS], n = 1;
    const int64_t *loop = operand == 0 ? g->stride_a : operand == 1 ? g->stride_b : g->stride_c;
    int nloops = g->nloops;
    memcpy(extent, g->extent, sizeof extent);
    if (operand >= 3) { /* of what follows: over the loops, m and n */
        extent[nloops] = g->m;
        extent[nloops + 1] = g->n;
        memcpy(stride, k->operand[operand].stride, sizeof stride);
        return walk(nloops + 2, extent, stride, k->operand[operand].dtype);
    }
    for (int l = 0; l < nloops; l++)
        n = ap_sat_mul(n, loop[l] ? extent[l] : 1);
    int64_t rows = operand == 1 ? g->k : g->m, columns = operand == 0 ? g->k : g->n;
    return plain(ap_sat_mul(n, ap_sat_mul(rows, columns)), k->operand[operand].dtype);
}

static ap_touch touch_of_pool(const ap_kernel *k, uint32_t operand)
{
    const ap_pooling *p = &k->pool;
    int64_t n = 1;
    for (int l = 0; l < p->nloops; l++)
        n = ap_sat_mul(n, p->extent[l]);
    for (int d = 0; d < p->ndims; d++)
        n = ap_sat_mul(n, operand == 0 ? p->dim[d].extent : p->dim[d].count);
    return plain(n, k->operand[operand].dtype);
}

static ap_touch touch_of_conv(const ap_kernel *k, uint32_t operand)
{
    const ap_conv *v = &k->conv;
    int64_t channels = ap_sat_mul(v->g, v->m), n;
    bool whole = true;
    for (int s = 0; s < v->nsteps; s++)
        if (v->step[s].other == AP_CONV_OPERAND && v->step[s].operand == operand && operand > 2)
            whole = ap_conv_step_is_whole(v, &v->step[s]);
    if (operand == 1) {
        n = ap_sat_mul(channels, v->c);
        for (int d = 0; d < v->nspatial; d++)
            n = ap_sat_mul(n, v->kernel[d]);
        return plain(n, v->dtype);
    }
    if (!whole)
        return plain(channels, v->dtype);
    n = ap_sat_mul(v->n, operand == 0 ? ap_sat_mul(v->g, v->c) : channels);
    for (int d = 0; d < v->nspatial; d++)
        n = ap_sat_mul(n, operand == 0 ? v->in[d] : v->out[d]);
    return plain(n, v->dtype);
}

static ap_touch touch_of_topk(const ap_kernel *k, uint32_t operand)
{
    int64_t n = operand == 0 ? k->topk.n : k->topk.k;
    for (int l = 0; l < k->nest.nouter; l++)
        n = ap_sat_mul(n, k->nest.extent[l]);
    return plain(n, k->operand[operand].dtype);
}

ap_touch ap_touch_of(const ap_kernel *k, uint32_t operand)
{
    switch (k->kind) {
    case AP_KERNEL_GEMM:
        return touch_of_gemm(k, operand);
    case AP_KERNEL_POOL:
        return touch_of_pool(k, operand);
    case AP_KERNEL_CONV:
        return touch_of_conv(k, operand);
    case AP_KERNEL_TOPK:
        return touch_of_topk(k, operand);
    default:
        return looked_up(&k->nest, operand,
                         walk(k->nest.nouter + k->nest.ninner, k->nest.extent, k->operand[operand].stride,
                              k->operand[operand].dtype),
                         k->operand[operand].dtype);
    }
}

/* ---- distances ---- */

enum { MAX_BACK = 2048 }; /* instructions; what nobody has touched for so long is as far as these reach */

typedef struct range {
    ap_space space;
    uint32_t index;
    int64_t from, to;
} range;

typedef struct history {
    const ap_local *p;
    ap_touch **touch;
    range **range;    /* [instruction][ref] */
    int64_t *touched; /* [instruction]: bytes */
} history;

static range range_of(const ap_ref *r, const ap_touch *t, ap_dtype dtype)
{
    int64_t from =
        ap_sat_add(r->space == AP_SPACE_ARENA ? r->byte_offset : 0, ap_sat_mul(r->offset.base, ap_dtype_bytes(dtype)));
    return (range){r->space, r->space == AP_SPACE_ARENA ? 0 : r->index, from, ap_sat_add(from, t->span)};
}

static bool meet(const range *a, const range *b)
{
    return a->space == b->space && a->index == b->index && a->from < b->to && b->from < a->to;
}

static void find_ranges(history *h, ap_arena *arena, uint32_t i)
{
    const ap_instr *in = &h->p->instrs.at[i];
    bool call = in->kind == AP_INSTR_CALL;
    const ap_kernel *k = call ? &h->p->kernels.at[in->kernel] : NULL;
    h->range[i] = AP_NEW_ARRAY(arena, range, in->nrefs + 1);
    h->touch[i] = call ? AP_NEW_ARRAY(arena, ap_touch, in->nrefs + 1) : NULL;
    for (uint32_t r = 0; r < in->nrefs; r++) {
        ap_touch t = call ? ap_touch_of(k, r) : plain(1, in->exchange.dtype);
        for (int d = 0; !call && d < in->exchange.ndims; d++)
            t.bytes = t.span = ap_sat_mul(t.bytes, in->exchange.extent[d]);
        h->range[i][r] = range_of(&in->ref[r], &t, call ? k->operand[r].dtype : in->exchange.dtype);
        h->touched[i] = ap_sat_add(h->touched[i], t.bytes);
        if (call)
            h->touch[i][r] = t;
    }
}

static bool meets_any(const history *h, uint32_t i, const range *r)
{
    for (uint32_t k = 0; k < h->p->instrs.at[i].nrefs; k++)
        if (meet(&h->range[i][k], r))
            return true;
    return false;
}

/* Backward from instruction i until one that touched the range, or all of them, or far enough. */
static int64_t distance_of(const history *h, uint32_t i, uint32_t ref, int64_t far)
{
    const range *r = &h->range[i][ref];
    int64_t passed = h->touch[i][ref].bytes;
    uint32_t n = h->p->instrs.len;
    for (uint32_t back = 1; back <= n && back <= MAX_BACK && passed <= far; back++) {
        uint32_t at = back <= i ? i - back : n + i - back;
        if (meets_any(h, at, r))
            return back == 1 ? passed : ap_sat_add(passed, h->touched[at]);
        passed = ap_sat_add(passed, h->touched[at]);
    }
    return passed;
}

ap_touch **ap_local_touches(const ap_local *p, ap_arena *arena, int64_t far)
{
    uint32_t n = p->instrs.len;
    history h = {p, AP_NEW_ARRAY(arena, ap_touch *, n + 1), AP_NEW_ARRAY(arena, range *, n + 1),
                 AP_NEW_ARRAY(arena, int64_t, n + 1)};
    for (uint32_t i = 0; i < n; i++)
        find_ranges(&h, arena, i);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; h.touch[i] && r < p->instrs.at[i].nrefs; r++)
            h.touch[i][r].distance = distance_of(&h, i, r, far);
    return h.touch;
}
