/* Changes of sharding, read off the two types.
 *
 * Per factor, what stands behind the common prefix of the two axis lists leaves or arrives. An axis that leaves a
 * factor for nowhere is gathered, for another factor exchanged; a partial axis that arrives at a factor is reduced and
 * scattered, else reduced everywhere; an axis that arrives from nowhere is a slice, and one that becomes partial a
 * mask (or nothing, for max and min). */
#include "passes/local.h"

#include <string.h>

typedef struct change {
    uint8_t nfactors;
    ap_axes leave[AP_MAX_FACTORS], arrive[AP_MAX_FACTORS];
    uint8_t leave_mask, arrive_mask;             /* over all factors */
    uint8_t done[AP_PARTIAL_COUNT], done_mask;   /* partial before, complete after */
    uint8_t began[AP_PARTIAL_COUNT], began_mask; /* the reverse */
} change;

static ap_axes axes_from(ap_axes a, int first)
{
    return a >> (4 * first);
}

/* False when some factor both loses and gains axes. */
static bool read_change(const ap_sharding_info *a, const ap_sharding_info *b, change *c)
{
    memset(c, 0, sizeof *c);
    c->nfactors = a->nfactors;
    for (int f = 0; f < a->nfactors; f++) {
        int common = 0;
        while (ap_axes_get(a->axes[f], common) >= 0 &&
               ap_axes_get(a->axes[f], common) == ap_axes_get(b->axes[f], common))
            common++;
        c->leave[f] = axes_from(a->axes[f], common);
        c->arrive[f] = axes_from(b->axes[f], common);
        if (c->leave[f] && c->arrive[f])
            return false;
        c->leave_mask |= ap_axes_mask(c->leave[f]);
        c->arrive_mask |= ap_axes_mask(c->arrive[f]);
    }
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        c->done[k] = a->partial[k] & (uint8_t)~b->partial[k];
        c->began[k] = b->partial[k] & (uint8_t)~a->partial[k];
        c->done_mask |= c->done[k];
        c->began_mask |= c->began[k];
    }
    return true;
}

static ap_status change_of(ap_low *low, ap_node id, change *c)
{
    const ap_node_info *n = ap_node_at(low->m, id);
    ap_sharding from = ap_type_get(low->ctx, ap_value_type(low->m, n->in[0])).sharding;
    ap_sharding to = ap_type_get(low->ctx, ap_value_type(low->m, n->out[0])).sharding;
    memset(c, 0, sizeof *c);
    if (from == to)
        return AP_OK;
    if (!from || !to || !read_change(ap_sharding_get(low->ctx, from), ap_sharding_get(low->ctx, to), c))
        return ap_low_bug(low, n->loc, "change of sharding is not an elementary step");
    return AP_OK;
}

ap_status ap_low_step_kind(ap_low *low, ap_node n, ap_low_step *out)
{
    change c;
    AP_TRY(change_of(low, n, &c));
    bool leaves = c.leave_mask, arrives = c.arrive_mask, done = c.done_mask, began = c.began_mask;
    *out = AP_LOW_STEP_EXCHANGE;
    if (began && !leaves && !arrives && !done)
        *out = c.began[AP_PARTIAL_SUM] ? AP_LOW_STEP_MASK : AP_LOW_STEP_NONE;
    else if (arrives && !leaves && !done && !began)
        *out = AP_LOW_STEP_SLICE;
    else if (!leaves && !arrives && !done && !began)
        *out = AP_LOW_STEP_NONE;
    bool mixed = (began && *out == AP_LOW_STEP_EXCHANGE) || (leaves && done) ||
                 (began && c.began[AP_PARTIAL_SUM] && (c.began_mask != c.began[AP_PARTIAL_SUM])) ||
                 (arrives && leaves && c.arrive_mask != c.leave_mask) ||
                 (arrives && done && c.arrive_mask != c.done_mask);
    if (mixed)
        return ap_low_bug(low, ap_node_at(low->m, n)->loc, "change of sharding is not one elementary step");
    return AP_OK;
}

/* ---- groups of ranks ---- */

static void fill_group(const ap_low *low, ap_axes axes, ap_group *g)
{
    uint8_t mask = ap_axes_mask(axes);
    int32_t at = 0;
    for (int32_t r = 0; r < low->p->nranks; r++) {
        bool base = true;
        for (int a = 0; a < low->p->naxes; a++)
            base = base && (!(mask >> a & 1) || r / low->p->axis_stride[a] % low->p->axis_size[a] == 0);
        for (int32_t p = 0; base && p < g->size; p++) {
            int32_t rank = r, left = p;
            for (int i = ap_axes_count(axes) - 1; i >= 0; i--) {
                int axis = ap_axes_get(axes, i);
                rank += left % low->p->axis_size[axis] * low->p->axis_stride[axis];
                left /= low->p->axis_size[axis];
            }
            g->rank[at++] = rank;
        }
    }
}

static uint32_t group_for(ap_low *low, ap_axes axes)
{
    ap_group g = {.size = ap_mesh_axes_size(&low->mesh, axes)};
    size_t bytes = (size_t)low->p->nranks * sizeof *g.rank;
    g.count = low->p->nranks / g.size;
    g.rank = AP_NEW_ARRAY(&low->ctx->arena, int32_t, low->p->nranks);
    fill_group(low, axes, &g);
    for (uint32_t i = 0; i < low->p->groups.len; i++) {
        if (low->p->groups.at[i].size == g.size && !memcmp(low->p->groups.at[i].rank, g.rank, bytes))
            return i;
    }
    ap_vec_push(&low->ctx->arena, &low->p->groups, g);
    return low->p->groups.len - 1;
}

static ap_axes axes_of_mask(uint8_t mask)
{
    ap_axes axes = 0;
    for (int a = 0; a < AP_MAX_AXES; a++) {
        if (mask >> a & 1)
            axes = ap_axes_append(axes, a);
    }
    return axes;
}

/* ---- exchanges ---- */

/* The value as it stands between the exchanges of one node. */
typedef struct moving {
    ap_low *low;
    const ap_low_item *it;
    ap_dtype dtype;
    int n;
    const ap_shape_info *shape;
    ap_axes axes[AP_MAX_FACTORS];
    int64_t extent[AP_MAX_FACTORS];
    ap_int count[AP_MAX_FACTORS];
    ap_low_place place;
} moving;

/* Of a factor, what moves between two ranks. */
typedef struct span {
    int64_t extent;
    ap_int count;
    int64_t per_peer;
} span;

static void add_count(ap_exchange *x, const span *s)
{
    if (ap_low_varies(&s->count))
        x->count[x->ncounts++] = (ap_count){.dim = x->ndims, .value = s->count.value, .per_peer = s->per_peer};
}

/* The last dimension takes in one that lies inside it; its count is then of these smaller pieces. */
static void widen_dim(ap_exchange *x, int last, int64_t extent)
{
    x->extent[last] *= extent;
    if (!x->ncounts || x->count[x->ncounts - 1].dim != last)
        return;
    ap_count *c = &x->count[x->ncounts - 1];
    ap_affine pieces = {0};
    ap_low_affine_add(&pieces, &c->value, extent);
    c->value = pieces;
    c->per_peer *= extent;
}

static void add_dim(ap_exchange *x, const span *s, int64_t src, int64_t dst)
{
    int last = x->ndims - 1;
    if (s->extent == 1 && !ap_low_varies(&s->count))
        return;
    if (!ap_low_varies(&s->count) && last >= 0 && x->src_stride[last] == src * s->extent &&
        x->dst_stride[last] == dst * s->extent) {
        widen_dim(x, last, s->extent);
        x->src_stride[last] = src;
        x->dst_stride[last] = dst;
        return;
    }
    add_count(x, s);
    x->extent[x->ndims] = s->extent;
    x->src_stride[x->ndims] = src;
    x->dst_stride[x->ndims++] = dst;
}

/* What moves of factor `joint`, which is laid out by sender: whatever the peer has. */
static void by_sender(span *s, ap_axes axes)
{
    for (int i = 0; i < ap_axes_count(axes); i++)
        s->count.value.step[ap_axes_get(axes, i)] = 0;
    s->per_peer = s->extent;
}

/* One exchange over the axes; afterwards the factors are split by `after`. Factor `chunk` of the source (-1: none) is
 * cut by receiver, factor `joint` of the result laid out by sender. */
static ap_status exchange(moving *mv, ap_exchange_kind kind, ap_partial fold, ap_axes axes, const ap_axes *after,
                          int chunk, int joint)
{
    ap_low *low = mv->low;
    ap_low_place dst;
    int64_t extent[AP_MAX_FACTORS];
    ap_int count[AP_MAX_FACTORS];
    for (int f = 0; f < mv->n; f++) {
        if (!ap_low_split(low, mv->shape, f, after[f], &extent[f], &count[f]))
            return ap_low_bug(low, mv->it->loc, "change of sharding does not divide its value");
    }
    AP_TRY(ap_low_fresh(low, mv->dtype, mv->n, extent, mv->it->loc, &dst));
    ap_low_order(&low->value[ap_low_result(low, mv->it)], mv->n, extent, dst.stride);
    ap_instr in = {.kind = AP_INSTR_EXCHANGE, .loc = mv->it->loc, .nrefs = 2};
    ap_exchange *x = &in.exchange;
    *x = (ap_exchange){.kind = kind, .fold = fold, .dtype = mv->dtype, .group = group_for(low, axes)};
    x->count = AP_NEW_ARRAY(&low->ctx->arena, ap_count, mv->n);
    bool empty = false;
    for (int f = 0; f < mv->n; f++) {
        span s = {.extent = f == chunk ? extent[f] : mv->extent[f], .count = f == chunk ? count[f] : mv->count[f]};
        if (f == joint)
            by_sender(&s, axes);
        empty = empty || s.extent == 0;
        add_dim(x, &s, mv->place.stride[f], dst.stride[f]);
    }
    if (x->ndims == 0) {
        x->ndims = 1;
        x->extent[0] = x->src_stride[0] = x->dst_stride[0] = 1;
    }
    x->src_me = chunk < 0 ? 0 : extent[chunk] * mv->place.stride[chunk];
    x->dst_peer = joint < 0 ? 0 : mv->extent[joint] * dst.stride[joint];
    in.ref = AP_NEW_ARRAY(&low->ctx->arena, ap_ref, 2);
    in.ref[0] = mv->place.ref;
    in.ref[1] = dst.ref;
    if (!empty)
        ap_vec_push(&low->ctx->arena, &low->p->instrs, in);
    mv->place = dst;
    memcpy(mv->extent, extent, sizeof extent);
    memcpy(mv->count, count, sizeof count);
    memmove(mv->axes, after, sizeof mv->axes);
    return AP_OK;
}

/* Without the last `n` axes. */
static ap_axes axes_shorter(ap_axes a, int n)
{
    int left = ap_axes_count(a) - n;
    return left <= 0 ? 0 : a & (((ap_axes)1 << (4 * left)) - 1);
}

static ap_axes axes_join(ap_axes a, ap_axes b)
{
    return a | b << (4 * ap_axes_count(a));
}

static ap_status gather(moving *mv, int f, ap_axes axes)
{
    ap_axes after[AP_MAX_FACTORS];
    memcpy(after, mv->axes, sizeof after);
    after[f] = axes_shorter(after[f], ap_axes_count(axes));
    return exchange(mv, AP_EXCHANGE_ALL_GATHER, AP_PARTIAL_SUM, axes, after, -1, f);
}

static ap_status scatter(moving *mv, int f, ap_axes axes, ap_partial fold)
{
    ap_axes after[AP_MAX_FACTORS];
    memcpy(after, mv->axes, sizeof after);
    after[f] = axes_join(after[f], axes);
    return exchange(mv, AP_EXCHANGE_REDUCE_SCATTER, fold, axes, after, f, -1);
}

static ap_status transfer(moving *mv, int from, int to, ap_axes axes)
{
    ap_axes after[AP_MAX_FACTORS];
    memcpy(after, mv->axes, sizeof after);
    after[to] = axes_join(after[to], axes);
    after[from] = axes_shorter(after[from], ap_axes_count(axes));
    return exchange(mv, AP_EXCHANGE_ALL_TO_ALL, AP_PARTIAL_SUM, axes, after, to, from);
}

static ap_status transfers(moving *mv, const change *c)
{
    for (int i = 0; i < c->nfactors; i++) {
        if (!c->leave[i])
            continue;
        int to = -1;
        for (int j = 0; j < c->nfactors; j++)
            to = c->arrive[j] == c->leave[i] ? j : to;
        if (to < 0)
            return ap_low_bug(mv->low, mv->it->loc, "axes leave one factor together and arrive apart");
        AP_TRY(transfer(mv, i, to, c->leave[i]));
    }
    return AP_OK;
}

static ap_status reductions(moving *mv, const change *c)
{
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        if (c->done[k] && !c->arrive_mask)
            AP_TRY(exchange(mv, AP_EXCHANGE_ALL_REDUCE, (ap_partial)k, axes_of_mask(c->done[k]), mv->axes, -1, -1));
        for (int f = 0; f < c->nfactors; f++) {
            uint8_t mask = ap_axes_mask(c->arrive[f]);
            if (!c->done[k] || !(mask & c->done[k]))
                continue;
            if (mask & ~c->done[k])
                return ap_low_bug(mv->low, mv->it->loc, "axes of different partial kinds arrive at one factor");
            AP_TRY(scatter(mv, f, c->arrive[f], (ap_partial)k));
        }
    }
    return AP_OK;
}

ap_status ap_low_emit_exchange(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_low_value *rv = &low->value[n->out[0]];
    moving mv = {.low = low, .it = it, .n = rv->nfactors};
    mv.dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->in[0]));
    memcpy(mv.extent, low->value[n->in[0]].extent, sizeof mv.extent);
    memcpy(mv.count, low->value[n->in[0]].count, sizeof mv.count);
    mv.shape = ap_value_shape(low->m, n->in[0]);
    memcpy(mv.axes, ap_sharding_get(low->ctx, ap_type_get(low->ctx, ap_value_type(low->m, n->in[0])).sharding)->axes,
           sizeof mv.axes);
    change c;
    AP_TRY(change_of(low, it->node, &c));
    AP_TRY(ap_low_place_of(low, n->in[0], &mv.place));
    if (c.done_mask)
        AP_TRY(reductions(&mv, &c));
    else if (c.arrive_mask)
        AP_TRY(transfers(&mv, &c));
    for (int f = 0; f < c.nfactors && !c.arrive_mask; f++) {
        if (c.leave[f])
            AP_TRY(gather(&mv, f, c.leave[f]));
    }
    rv->place = mv.place;
    rv->placed = true;
    return AP_OK;
}
