/* Operands of one call in the same memory. A nest may write over what it reads, element by element: when both operands
 * lie at the same place, are walked with the same strides, no two turns of the loops meet in an element, and all loads
 * of an element come before its store. Anything else that a kernel writes must lie apart from its other operands; that
 * is proven for rows and columns of one matrix as well:
 *
 *     a a a a b b      bytes of both modulo the length of a row: two intervals that do not meet
 *     a a a a b b
 */
#include "ir/local_text.h"

/* ---- one over the other ---- */

static int64_t magnitude(int64_t x)
{
    return x < 0 ? (x == INT64_MIN ? INT64_MAX : -x) : x;
}

/* Do different turns always reach different elements? From the smallest stride up, each must be larger than all that
 * the loops below reach together. */
static bool is_one_to_one(int n, const int64_t *extent, const int64_t *stride)
{
    bool done[AP_MAX_LOOPS] = {false};
    int64_t reach = 0;
    for (int round = 0; round < n; round++) {
        int best = -1;
        for (int l = 0; l < n; l++)
            if (!done[l] && extent[l] > 1 && (best < 0 || magnitude(stride[l]) < magnitude(stride[best])))
                best = l;
        if (best < 0)
            return true;
        if (magnitude(stride[best]) <= reach)
            return false;
        reach = ap_sat_add(reach, ap_sat_mul(extent[best] - 1, magnitude(stride[best])));
        done[best] = true;
    }
    return true;
}

static bool touches(const ap_sop *s, uint32_t operand)
{
    bool memory =
        s->kind == AP_SOP_LOAD || s->kind == AP_SOP_GATHER || s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE;
    return memory && s->operand == operand;
}

/* Every load of `read` stands before every store of `written`: in an earlier section, or earlier in the same one. */
static bool loads_come_first(const ap_nest *n, uint32_t read, uint32_t written, bool *out_rows)
{
    uint32_t last_load = 0;
    bool any = false;
    *out_rows = true;
    for (uint32_t i = 0; i < n->nsops; i++) {
        if (!touches(&n->sop[i], read))
            continue;
        if (n->sop[i].kind != AP_SOP_LOAD)
            return false;
        last_load = i;
        any = true;
    }
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (!touches(s, written))
            continue;
        if (s->kind != AP_SOP_STORE || (any && i < last_load))
            return false;
        *out_rows = *out_rows && !n->inner[s->section];
    }
    return any;
}

bool ap_kernel_in_place(const ap_kernel *k, uint32_t read, uint32_t written)
{
    const ap_nest *n = &k->nest;
    const ap_kernel_operand *r = &k->operand[read], *w = &k->operand[written];
    bool rows; /* stores stand in row sections, where inner strides say nothing */
    if (k->kind != AP_KERNEL_NEST || r->written || !w->written || r->dtype != w->dtype)
        return false;
    if (!loads_come_first(n, read, written, &rows))
        return false;
    for (int l = 0; l < n->nouter + (rows ? 0 : n->ninner); l++)
        if (n->extent[l] > 1 && r->stride[l] != w->stride[l])
            return false;
    return is_one_to_one(n->nouter + n->ninner, n->extent, r->stride);
}

bool ap_exchange_in_place(const ap_exchange *x)
{
    if (x->kind != AP_EXCHANGE_ALL_REDUCE || x->ncounts)
        return false;
    for (int d = 0; d < x->ndims; d++)
        if (x->extent[d] > 1 && x->src_stride[d] != x->dst_stride[d])
            return false;
    return is_one_to_one(x->ndims, x->extent, x->src_stride);
}

/* ---- apart ---- */

/* Bytes from lo to hi, again and again: one loop after the other. */
typedef struct pattern {
    int n;
    int64_t extent[AP_MAX_LOOPS + 4], stride[AP_MAX_LOOPS + 4];
    int64_t lo, hi; /* of one turn */
    bool none;
    bool wide; /* further than we care to count */
} pattern;

#define FAR (INT64_MAX / 8)

static void add_loop(pattern *p, int64_t extent, int64_t stride, int64_t size)
{
    if (extent <= 0)
        p->none = true;
    if (extent <= 1 || stride == 0)
        return;
    p->extent[p->n] = extent;
    p->stride[p->n++] = ap_sat_mul(magnitude(stride), size);
    int64_t span = ap_sat_mul(extent - 1, p->stride[p->n - 1]);
    p->wide = p->wide || span >= FAR;
    if (stride < 0 && !p->wide) /* the same elements from the other end */
        p->lo -= span;
    p->wide = p->wide || p->lo < -FAR;
}

/* Reads or writes rows that an index names. */
static bool moves(const ap_sop *s, uint32_t operand)
{
    return touches(s, operand) && (s->kind == AP_SOP_GATHER || (s->kind == AP_SOP_UPDATE && s->imm.i >= 0));
}

static int64_t turns_of(int64_t extent, uint32_t turns, const int64_t *ints)
{
    return turns && ints ? ints[turns - 1] : extent;
}

static void nest_pattern(const ap_kernel *k, const int64_t *ints, uint32_t operand, int64_t size, pattern *p)
{
    const ap_nest *n = &k->nest;
    int loops = n->nouter, touching = 0;
    for (uint32_t i = 0; i < n->nsops; i++) {
        if (!touches(&n->sop[i], operand))
            continue;
        touching++;
        if (n->inner[n->sop[i].section])
            loops = n->nouter + n->ninner;
    }
    for (int l = 0; l < loops; l++)
        add_loop(p, turns_of(n->extent[l], n->turns[l], ints), k->operand[operand].stride[l], size);
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (moves(s, operand))
            add_loop(p, ap_max_i64(ap_local_lookup_rows(s, ints), touching > 1), s->stride, size);
    }
}

static void gemm_pattern(const ap_gemm *g, const int64_t *ints, uint32_t operand, int64_t size, pattern *p)
{
    const int64_t *stride = operand == 0 ? g->stride_a : operand == 1 ? g->stride_b : g->stride_c;
    int64_t m = turns_of(g->m, g->turns_m, ints), n = turns_of(g->n, g->turns_n, ints);
    int64_t depth = turns_of(g->k, g->turns_k, ints);
    for (int l = 0; l < g->nloops; l++)
        if (operand != 2 || !g->sum[l])
            add_loop(p, turns_of(g->extent[l], g->turns[l], ints), stride[l], size);
    add_loop(p, operand == 1 ? depth : m, operand == 0 ? g->rsa : operand == 1 ? g->rsb : g->rsc, size);
    add_loop(p, operand == 0 ? depth : n, operand == 0 ? g->csa : operand == 1 ? g->csb : g->csc, size);
}

/* All that the operand reaches, as one interval. */
static bool whole_range(const ap_kernel *k, const int64_t *ints, uint32_t operand, int64_t size, pattern *p)
{
    ap_reach reach;
    if (!ap_local_kernel_reach(k, ints, operand, &reach))
        return false;
    *p = (pattern){.none = !reach.any, .wide = reach.lo < -FAR / size || reach.hi > FAR / size};
    if (!reach.any || p->wide)
        return true;
    add_loop(p, reach.hi - reach.lo + 1, 1, size);
    p->lo = reach.lo * size;
    p->hi = p->lo + size;
    return true;
}

/* First and last byte of the loops with strides below `limit`. */
static int64_t span_below(const pattern *p, int64_t limit)
{
    int64_t span = p->hi - p->lo;
    for (int l = 0; l < p->n; l++)
        if (p->stride[l] < limit)
            span = ap_sat_add(span, ap_sat_mul(p->extent[l] - 1, p->stride[l]));
    return span;
}

/* Strides of at least `limit` are multiples of a row; what lies below it fills an interval of the row. */
static bool apart_in_rows(const pattern *a, const pattern *b, int64_t delta, int64_t limit)
{
    int64_t row = 0, wa = span_below(a, limit), wb = span_below(b, limit);
    for (int l = 0; l < a->n; l++)
        row = a->stride[l] >= limit ? ap_gcd_i64(a->stride[l], row) : row;
    for (int l = 0; l < b->n; l++)
        row = b->stride[l] >= limit ? ap_gcd_i64(b->stride[l], row) : row;
    if (row == 0)
        return delta >= wa || -delta >= wb;
    int64_t at = delta % row; /* where b begins in the row that begins with a */
    at += at < 0 ? row : 0;
    return at >= wa && ap_sat_add(at, wb) <= row;
}

/* The place of b begins `delta` bytes behind that of a. */
static bool are_apart(const pattern *a, const pattern *b, int64_t delta)
{
    if (a->none || b->none)
        return true;
    if (a->wide || b->wide || delta < -FAR || delta > FAR)
        return false;
    delta += b->lo - a->lo;
    if (apart_in_rows(a, b, delta, INT64_MAX))
        return true;
    for (int i = 0; i < 2; i++) {
        const pattern *p = i ? b : a;
        for (int l = 0; l < p->n; l++)
            if (apart_in_rows(a, b, delta, p->stride[l]))
                return true;
    }
    return false;
}

static bool pattern_of(const ap_kernel *k, const int64_t *ints, uint32_t operand, pattern *p)
{
    int64_t size = ap_dtype_bytes(k->operand[operand].dtype);
    int lookups = 0; /* of several, each has its own rows */
    for (uint32_t i = 0; k->kind == AP_KERNEL_NEST && i < k->nest.nsops; i++)
        lookups += moves(&k->nest.sop[i], operand);
    if (lookups > 1 || (k->kind != AP_KERNEL_NEST && (k->kind != AP_KERNEL_GEMM || operand > 2)))
        return whole_range(k, ints, operand, size, p);
    *p = (pattern){.hi = size};
    if (k->kind == AP_KERNEL_NEST)
        nest_pattern(k, ints, operand, size, p);
    else
        gemm_pattern(&k->gemm, ints, operand, size, p);
    p->hi = p->lo + size;
    return true;
}

/* A running sum reads what the turn before has written: both operands are walked alike, and the place of one is that of
 * the other one turn earlier of a loop that is not the innermost. Such loops run in order, so this means the same
 * wherever it runs; the innermost one may be taken several turns at a time. */
static bool follows_itself(const ap_kernel *k, uint32_t read, uint32_t written, int64_t delta)
{
    const ap_nest *n = &k->nest;
    const ap_kernel_operand *r = &k->operand[read], *w = &k->operand[written];
    int ordered = n->ninner ? n->nouter : n->nouter - 1;
    bool one_turn = false;
    if (k->kind != AP_KERNEL_NEST || r->written || !w->written || r->dtype != w->dtype)
        return false;
    for (uint32_t i = 0; i < n->nsops; i++)
        if ((touches(&n->sop[i], read) && n->sop[i].kind != AP_SOP_LOAD) ||
            (touches(&n->sop[i], written) && n->sop[i].kind != AP_SOP_STORE))
            return false;
    for (int l = 0; l < n->nouter + n->ninner; l++) {
        if (n->extent[l] > 1 && r->stride[l] != w->stride[l])
            return false;
        one_turn = one_turn ||
                   (l < ordered && n->extent[l] > 1 && delta == -ap_sat_mul(w->stride[l], ap_dtype_bytes(w->dtype)));
    }
    return one_turn && is_one_to_one(n->nouter + n->ninner, n->extent, w->stride);
}

bool ap_local_may_share(const ap_kernel *k, const int64_t *ints, uint32_t written, uint32_t other, int64_t delta)
{
    pattern a, b;
    if ((delta == 0 && ap_kernel_in_place(k, other, written)) || follows_itself(k, other, written, delta))
        return true;
    if (!pattern_of(k, ints, written, &a) || !pattern_of(k, ints, other, &b))
        return false;
    return are_apart(&a, &b, delta);
}
