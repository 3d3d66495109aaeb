/* Pools (backend/pool.h) as instructions. */
#include "backend/pool.h"
#include "backend/llvm/build.h"

#include <math.h>

typedef struct pool {
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_pooling *p;
    ap_dtype t;
    LLVMTypeRef acc;
    bool max, arg;
    ap_pool_lane lane;
    ap_ll_value loop[AP_MAX_LOOPS], window[AP_MAX_RANK]; /* numbers of loops and windows; NULL: the lane */
    ap_ll_value first[AP_MAX_RANK];                      /* element of place 0; may be outside */
    ap_ll_value begin[AP_MAX_RANK], end[AP_MAX_RANK];    /* places of the window that are elements */
    ap_ll_value x, y;                                    /* where the window's place 0 and its result lie */
} pool;

static ap_ll_value number(const pool *w, int64_t x)
{
    return ap_ll_int(w->b, x);
}

static ap_ll_value least(pool *w, ap_ll_value x, ap_ll_value y, bool most)
{
    ap_ll_value pair[2] = {x, y};
    return ap_ll_intrinsic(w->b, most ? "llvm.smax" : "llvm.smin", 1, &w->b->i64, 2, pair);
}

/* How many places of dilation d from `first` on lie before `bound`: ceil((bound - first) / d), none at least. */
static ap_ll_value places_before(pool *w, ap_ll_value first, int64_t bound, int64_t dilation)
{
    LLVMBuilderRef at = w->b->builder;
    ap_ll_value n = LLVMBuildNSWSub(at, number(w, bound + dilation - 1), first, "");
    n = least(w, n, number(w, 0), true);
    return dilation == 1 ? n : LLVMBuildUDiv(at, n, number(w, dilation), "");
}

/* The places of window o of dimension d that are elements. */
static void cut(pool *w, int d)
{
    const ap_pool_dim *m = &w->p->dim[d];
    const ap_window *v = &m->window;
    w->begin[d] = number(w, 0);
    w->end[d] = number(w, v->kernel);
    if (!w->window[d]) /* the lane: whole windows */
        return;
    w->first[d] = LLVMBuildNSWSub(w->b->builder, ap_ll_scale(w->b, w->window[d], v->stride), number(w, v->lo), "");
    if (ap_pool_is_never_cut(m))
        return;
    w->begin[d] = least(w, places_before(w, w->first[d], 0, v->dilation), number(w, v->kernel), false);
    w->end[d] = least(w, places_before(w, w->first[d], m->extent, v->dilation), number(w, v->kernel), false);
    w->end[d] = least(w, w->end[d], w->begin[d], true);
}

/* What an average is multiplied by; NULL: it is none. */
static ap_ll_value scale(pool *w)
{
    const ap_pooling *p = w->p;
    if (p->kind != AP_POOL_AVG && p->kind != AP_POOL_AVG_PADS)
        return NULL;
    LLVMBuilderRef at = w->b->builder;
    ap_ll_value n = number(w, 1);
    LLVMTypeRef type = w->acc == w->b->f64 ? w->b->f64 : w->b->f32;
    for (int d = 0; d < p->ndims; d++) {
        const ap_window *v = &p->dim[d].window;
        ap_ll_value some = LLVMBuildNSWSub(at, w->end[d], w->begin[d], "");
        if (p->kind == AP_POOL_AVG_PADS && w->window[d])
            some = least(w, places_before(w, w->first[d], p->dim[d].extent + v->hi, v->dilation), number(w, v->kernel),
                         false);
        n = LLVMBuildNSWMul(at, n, some, "");
    }
    n = LLVMBuildSIToFP(at, least(w, n, number(w, 1), true), w->b->f64, "");
    return LLVMBuildFPCast(at, LLVMBuildFDiv(at, LLVMConstReal(w->b->f64, 1), n, ""), type, "");
}

static ap_ll_value start_value(const pool *w)
{
    ap_scalar x = {.f = -INFINITY};
    if (!w->max)
        return LLVMConstNull(w->acc);
    if (!ap_dtype_is_float(w->t))
        x = ap_pointwise_eval(AP_PW_CAST, AP_F64, w->t, &x);
    return ap_ll_literal(w->b, w->t, x);
}

static void store(pool *w, ap_ll_value at, ap_ll_value acc, ap_ll_value factor)
{
    LLVMBuilderRef to = w->b->builder;
    ap_dtype t = w->w->k->operand[1].dtype;
    if (factor && LLVMTypeOf(acc) == w->b->i64) /* sums of integers */
        acc = LLVMBuildUIToFP(to, acc, LLVMTypeOf(factor), "");
    if (factor)
        acc = ap_ll_contract(LLVMBuildFMul(to, acc, factor, ""));
    if (ap_dtype_is_float(t))
        acc = LLVMBuildFPCast(to, acc, ap_ll_register(w->b, t), "");
    else
        acc = LLVMBuildIntCast2(to, acc, ap_ll_register(w->b, t), true, "");
    ap_ll_store(w->b, t, w->w->operand[1], at, acc);
}

static void open_places(pool *w, ap_ll_loop *open, ap_ll_value *place)
{
    *place = w->x;
    for (int d = 0; d < w->p->ndims; d++) {
        open[d] = ap_ll_open_loop(w->b, w->begin[d], w->end[d], 1, false);
        *place =
            ap_ll_add(w->b, *place, ap_ll_scale(w->b, open[d].i, w->p->dim[d].window.dilation * w->p->dim[d].from));
    }
}

static void close_places(pool *w, ap_ll_loop *open)
{
    for (int d = w->p->ndims; d-- > 0;)
        ap_ll_close_loop(w->b, &open[d]);
}

/* Row-major position of the place within the dimensions. */
static ap_ll_value position(pool *w, const ap_ll_loop *open)
{
    ap_ll_value at = number(w, 0);
    int64_t step = 1;
    for (int d = w->p->ndims; d-- > 0;) {
        const ap_window *v = &w->p->dim[d].window;
        ap_ll_value here = ap_ll_add(w->b, w->first[d], ap_ll_scale(w->b, open[d].i, v->dilation));
        at = ap_ll_add(w->b, at, ap_ll_scale(w->b, here, step));
        step *= w->p->dim[d].extent;
    }
    return at;
}

static void make_one(pool *w)
{
    ap_ll *b = w->b;
    ap_ll_value zero = number(w, 0), place;
    ap_ll_value acc = ap_ll_stack(b, w->acc, 1, 0), at = ap_ll_stack(b, b->i64, 1, 0);
    ap_ll_loop open[AP_MAX_RANK];
    ap_ll_write(b, acc, zero, start_value(w));
    ap_ll_write(b, at, zero, number(w, -1));
    open_places(w, open, &place);
    ap_ll_value x = ap_ll_load(b, w->t, w->w->operand[0], place), was = ap_ll_read(b, w->acc, acc, zero);
    if (w->arg) {
        ap_ll_value found = ap_ll_read(b, b->i64, at, zero);
        ap_ll_value takes = ap_ll_fold_takes(b, true, w->t, was, found, x);
        ap_ll_write(b, acc, zero, LLVMBuildSelect(b->builder, takes, x, was, ""));
        ap_ll_write(b, at, zero, LLVMBuildSelect(b->builder, takes, position(w, open), found, ""));
    } else {
        ap_ll_write(b, acc, zero, ap_ll_fold(b, w->max ? AP_REDUCE_MAX : AP_REDUCE_SUM, w->t, was, x));
    }
    close_places(w, open);
    if (w->arg)
        store(w, w->y, least(w, ap_ll_read(b, b->i64, at, zero), zero, true), NULL);
    else
        store(w, w->y, ap_ll_read(b, w->acc, acc, zero), scale(w));
}

/* ---- along the lane ---- */

typedef struct lane {
    ap_ll_value first, end; /* of what it counts */
    int64_t from, to;       /* strides */
} lane;

static ap_ll_value lane_place(pool *w, ap_ll_value base, ap_ll_value counter, int64_t stride)
{
    return ap_ll_add(w->b, base, ap_ll_scale(w->b, counter, stride));
}

/* All places of a whole window, written out. */
static void make_whole(pool *w, const lane *n, ap_ll_value factor)
{
    ap_ll *b = w->b;
    const ap_pooling *p = w->p;
    int64_t at[AP_MAX_RANK] = {0};
    ap_ll_loop l = ap_ll_open_loop(b, n->first, n->end, 1, true);
    ap_ll_value x = lane_place(w, w->x, l.i, n->from), acc = NULL;
    for (int64_t i = 0; i < ap_pool_places(p); i++) {
        int64_t offset = 0;
        for (int d = 0; d < p->ndims; d++)
            offset += at[d] * p->dim[d].window.dilation * p->dim[d].from;
        ap_ll_value e = ap_ll_load(b, w->t, w->w->operand[0], ap_ll_add(b, x, number(w, offset)));
        if (acc)
            acc = ap_ll_fold(b, w->max ? AP_REDUCE_MAX : AP_REDUCE_SUM, w->t, acc, e);
        else
            acc = ap_ll_fold_widen(b, w->t, e, w->acc);
        for (int d = p->ndims - 1; d >= 0 && ++at[d] == p->dim[d].window.kernel; d--)
            at[d] = 0;
    }
    store(w, lane_place(w, w->y, l.i, n->to), acc, factor);
    ap_ll_close_loop(b, &l);
}

/* Windows that are cut, or too large to be written out: a block of results is folded in memory, all of it at each place
 * of the window. */
static void make_blocks(pool *w, const lane *n, ap_ll_value factor)
{
    ap_ll *b = w->b;
    ap_ll_value zero = number(w, 0), acc = ap_ll_stack(b, w->acc, AP_POOL_BLOCK, 64), place;
    ap_ll_loop blocks = ap_ll_open_loop(b, n->first, n->end, AP_POOL_BLOCK, false), l, open[AP_MAX_RANK];
    ap_ll_value count = least(w, LLVMBuildNSWSub(b->builder, n->end, blocks.i, ""), number(w, AP_POOL_BLOCK), false);
    l = ap_ll_open_loop(b, zero, count, 1, true);
    ap_ll_write(b, acc, l.i, start_value(w));
    ap_ll_close_loop(b, &l);
    open_places(w, open, &place);
    place = lane_place(w, place, blocks.i, n->from);
    l = ap_ll_open_loop(b, zero, count, 1, true);
    ap_ll_value x = ap_ll_load(b, w->t, w->w->operand[0], lane_place(w, place, l.i, n->from));
    ap_ll_write(b, acc, l.i,
                ap_ll_fold(b, w->max ? AP_REDUCE_MAX : AP_REDUCE_SUM, w->t, ap_ll_read(b, w->acc, acc, l.i), x));
    ap_ll_close_loop(b, &l);
    close_places(w, open);
    place = lane_place(w, w->y, blocks.i, n->to);
    l = ap_ll_open_loop(b, zero, count, 1, true);
    store(w, lane_place(w, place, l.i, n->to), ap_ll_read(b, w->acc, acc, l.i), factor);
    ap_ll_close_loop(b, &l);
    ap_ll_close_loop(b, &blocks);
}

/* Are all places of the window elements? NULL: always. */
static ap_ll_value is_whole(pool *w)
{
    ap_ll_value all = NULL;
    for (int d = 0; d < w->p->ndims; d++) {
        const ap_pool_dim *m = &w->p->dim[d];
        if (!w->window[d] || ap_pool_is_never_cut(m))
            continue;
        ap_ll_value places = LLVMBuildNSWSub(w->b->builder, w->end[d], w->begin[d], "");
        ap_ll_value one = LLVMBuildICmp(w->b->builder, LLVMIntEQ, places, number(w, m->window.kernel), "");
        all = all ? LLVMBuildAnd(w->b->builder, all, one, "") : one;
    }
    return all;
}

static void make_lane(pool *w, const lane *n)
{
    ap_ll_value factor = scale(w), whole = is_whole(w);
    if (ap_pool_places(w->p) > AP_POOL_MOST_PLACES) {
        make_blocks(w, n, factor);
        return;
    }
    if (!whole) {
        make_whole(w, n, factor);
        return;
    }
    LLVMBasicBlockRef after = ap_ll_open_if(w->b, whole);
    make_whole(w, n, factor);
    ap_ll_close_if(w->b, after);
    after = ap_ll_open_if(w->b, LLVMBuildNot(w->b->builder, whole, ""));
    make_blocks(w, n, factor);
    ap_ll_close_if(w->b, after);
}

/* ---- the kernel ---- */

/* Where the window's place 0 and its result lie, but for the lane. */
static void find_places(pool *w)
{
    const ap_pooling *p = w->p;
    w->x = ap_ll_strides(w->b, p->nloops, p->from, w->loop);
    w->y = ap_ll_strides(w->b, p->nloops, p->to, w->loop);
    for (int d = 0; d < p->ndims; d++) {
        cut(w, d);
        ap_ll_value first = w->window[d] ? w->first[d] : number(w, -p->dim[d].window.lo);
        w->x = ap_ll_add(w->b, w->x, ap_ll_scale(w->b, first, p->dim[d].from));
        if (w->window[d])
            w->y = ap_ll_add(w->b, w->y, ap_ll_scale(w->b, w->window[d], p->dim[d].to));
    }
}

/* Windows of the lane's dimension, one by one. */
static void make_end(pool *w, int64_t first, int64_t end)
{
    int d = w->lane.dim;
    if (first >= end)
        return;
    ap_ll_loop loop = ap_ll_open_loop(w->b, number(w, first), number(w, end), 1, false);
    w->window[d] = loop.i;
    find_places(w);
    make_one(w);
    w->window[d] = NULL;
    ap_ll_close_loop(w->b, &loop);
}

static void make_windows(pool *w)
{
    const ap_pooling *p = w->p;
    int64_t first, end;
    if (w->lane.dim == AP_POOL_NO_LANE) {
        find_places(w);
        int l = w->lane.loop;
        if (l == AP_POOL_NO_LANE)
            make_one(w);
        else
            make_lane(w, &(lane){number(w, 0), ap_ll_turns(w->w, p->extent[l], p->turns[l]), p->from[l], p->to[l]});
        return;
    }
    const ap_pool_dim *m = &p->dim[w->lane.dim];
    ap_pool_whole_windows(m, &first, &end);
    make_end(w, 0, first);
    make_end(w, end, m->count);
    if (first == end)
        return;
    find_places(w);
    make_lane(w, &(lane){number(w, first), number(w, end), m->window.stride * m->from, m->to});
}

void ap_ll_pool(ap_ll_kernel *k)
{
    const ap_pooling *p = &k->k->pool;
    pool w = {.w = k, .b = k->b, .p = p, .t = k->k->operand[0].dtype, .lane = ap_pool_find_lane(p)};
    ap_ll_loop loop[AP_MAX_LOOPS], window[AP_MAX_RANK];
    w.arg = p->kind == AP_POOL_ARGMAX;
    w.max = ap_pool_is_max(p);
    w.acc = ap_ll_fold_type(k->b, ap_pool_fold_type(p, w.t), w.t);
    for (int l = 0; l < p->nloops; l++) {
        if (l == w.lane.loop)
            continue;
        loop[l] = ap_ll_open_loop(w.b, number(&w, 0), ap_ll_turns(k, p->extent[l], p->turns[l]), 1, false);
        w.loop[l] = loop[l].i;
    }
    for (int d = 0; d < p->ndims; d++) {
        if (d == w.lane.dim)
            continue;
        window[d] = ap_ll_open_loop(w.b, number(&w, 0), number(&w, p->dim[d].count), 1, false);
        w.window[d] = window[d].i;
    }
    make_windows(&w);
    for (int d = p->ndims; d-- > 0;)
        if (d != w.lane.dim)
            ap_ll_close_loop(w.b, &window[d]);
    for (int l = p->nloops; l-- > 0;)
        if (l != w.lane.loop)
            ap_ll_close_loop(w.b, &loop[l]);
}
