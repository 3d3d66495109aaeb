/* `pool`: loops over the dimensions that pass, windows over the others, as they lie in memory. Where the operand's
 * dimensions lie in another order than their numbers, so do the result's, if nobody has asked for it elsewhere: what
 * is channels-last stays so. */
#include "passes/local.h"

#include <string.h>

typedef struct pooled {
    ap_low *low;
    ap_pooling pool;
    ap_int count[AP_MAX_LOOPS];
    int64_t order[AP_MAX_FACTORS]; /* per factor of the result: how far apart its operand's neighbours lie */
    uint32_t nints;
    ap_int ints[AP_MAX_LOOPS];
} pooled;

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* The result's own buffer in the order of the operand's. */
static void follow_order(const pooled *p, ap_low_value *rv)
{
    bool done[AP_MAX_FACTORS] = {false};
    int64_t stride = 1;
    for (int i = 0; i < rv->nfactors; i++) {
        int best = -1;
        for (int f = rv->nfactors - 1; f >= 0; f--) {
            if (!done[f] && (best < 0 || p->order[f] < p->order[best]))
                best = f;
        }
        done[best] = true;
        rv->place.stride[best] = stride;
        stride *= rv->extent[best] ? rv->extent[best] : 1;
    }
}

static void add_window(pooled *p, const ap_pool_attr *a, int d, int64_t extent, int64_t count, int64_t from)
{
    ap_pool_dim *m = &p->pool.dim[p->pool.ndims++];
    *m = (ap_pool_dim){.extent = extent, .count = count, .window = a->window[d], .from = from};
}

/* Windows and loops, and `order`; strides of the result are not known yet. */
static void read_dims(pooled *p, const ap_node_info *n, const ap_low_place *x)
{
    const ap_shape_info *xs = ap_value_shape(p->low->m, n->in[0]), *rs = ap_value_shape(p->low->m, n->out[0]);
    const ap_low_value *rv = &p->low->value[n->out[0]];
    for (int d = 0; d < xs->rank; d++) {
        int f = xs->first[d], rf = rs->first[d], nf = xs->first[d + 1] - f;
        if (n->u.pool->window[d].kernel) {
            int64_t from = nf ? x->stride[f] : 0;
            add_window(p, n->u.pool, d, ap_shape_dim(xs, d), ap_shape_dim(rs, d), from);
            if (rs->first[d + 1] > rf)
                p->order[rf] = magnitude(from);
            continue;
        }
        for (int i = 0; i < nf; i++) {
            int l = p->pool.nloops++;
            p->pool.extent[l] = rv->extent[rf + i];
            p->count[l] = rv->count[rf + i];
            p->pool.from[l] = x->stride[f + i];
            p->order[rf + i] = magnitude(x->stride[f + i]);
        }
    }
}

static void set_result_strides(pooled *p, const ap_node_info *n, const ap_low_place *y)
{
    const ap_shape_info *rs = ap_value_shape(p->low->m, n->out[0]);
    int loop = 0, window = 0;
    for (int d = 0; d < rs->rank; d++) {
        int f = rs->first[d], nf = rs->first[d + 1] - f;
        if (n->u.pool->window[d].kernel) {
            p->pool.dim[window++].to = nf ? y->stride[f] : 0;
            continue;
        }
        for (int i = 0; i < nf; i++)
            p->pool.to[loop++] = y->stride[f + i];
    }
}

/* ---- loops ---- */

static void swap_loops(pooled *p, int a, int b)
{
    ap_pooling *q = &p->pool;
    int64_t extent = q->extent[a], from = q->from[a], to = q->to[a];
    ap_int count = p->count[a];
    q->extent[a] = q->extent[b], q->from[a] = q->from[b], q->to[a] = q->to[b], p->count[a] = p->count[b];
    q->extent[b] = extent, q->from[b] = from, q->to[b] = to, p->count[b] = count;
}

static void remove_loop(pooled *p, int l)
{
    for (; l + 1 < p->pool.nloops; l++)
        swap_loops(p, l, l + 1);
    p->pool.nloops--;
}

static bool can_join(const pooled *p, int l)
{
    const ap_pooling *q = &p->pool;
    int64_t from, to;
    return !ap_low_varies(&p->count[l + 1]) && ap_mul_i64(q->from[l + 1], q->extent[l + 1], &from) &&
           ap_mul_i64(q->to[l + 1], q->extent[l + 1], &to) && q->from[l] == from && q->to[l] == to;
}

/* Loops by falling stride of the result; those of one turn go, neighbours that both operands walk as one are joined. */
static void order_loops(pooled *p)
{
    ap_pooling *q = &p->pool;
    for (int l = q->nloops - 1; l >= 0; l--) {
        if (q->extent[l] == 1 && !ap_low_varies(&p->count[l]))
            remove_loop(p, l);
    }
    for (int pass = 0; pass < q->nloops; pass++) {
        for (int l = 0; l + 1 < q->nloops; l++) {
            if (magnitude(q->to[l]) < magnitude(q->to[l + 1]))
                swap_loops(p, l, l + 1);
        }
    }
    for (int l = q->nloops - 2; l >= 0; l--) {
        if (!can_join(p, l))
            continue;
        p->count[l + 1] = ap_low_count_times(&p->count[l], q->extent[l + 1]);
        q->extent[l + 1] *= q->extent[l];
        remove_loop(p, l);
    }
    for (int l = 0; l < q->nloops; l++) {
        if (!ap_low_varies(&p->count[l]))
            continue;
        p->ints[p->nints++] = p->count[l];
        q->turns[l] = p->nints;
    }
}

ap_status ap_low_emit_pool(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_value root = n->out[0];
    ap_low_value *rv = &low->value[root];
    pooled p = {.low = low, .pool.kind = n->u.pool->kind};
    ap_low_call call = {.name = "pool", .about = ap_low_about(low, it), .loc = it->loc};
    ap_low_place x, y;
    bool placed = rv->placed;
    AP_TRY(ap_low_place_of(low, n->in[0], &x));
    AP_TRY(ap_low_destination(low, root, &y));
    read_dims(&p, n, &x);
    if (!placed && rv->owned) {
        follow_order(&p, rv);
        y = rv->place;
    }
    if (rv->direct && rv->replicated) {
        call.when_mask = rv->replicated;
        call.when = AP_WHEN_ZERO;
    }
    for (int f = 0; f < rv->nfactors; f++) {
        if (rv->extent[f] == 0)
            return AP_OK;
    }
    set_result_strides(&p, n, &y);
    order_loops(&p);
    ap_kernel k = {.kind = AP_KERNEL_POOL, .noperands = 2, .nints = p.nints, .pool = p.pool};
    k.operand = AP_NEW_ARRAY(&low->ctx->arena, ap_kernel_operand, 2);
    k.operand[0].dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->in[0]));
    k.operand[1].dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, root));
    k.operand[1].written = true;
    uint32_t kernel;
    AP_TRY(ap_low_kernel(low, &k, &call, &kernel));
    ap_low_call_append(low, kernel, &call, 2, (ap_ref[]){x.ref, y.ref}, p.nints, p.ints);
    return AP_OK;
}
