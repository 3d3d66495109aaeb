/* Pools: windows of the dimensions, cut where they leave them, folded place by place. A loop along which memory is
 * walked by ones is the innermost one: a block of its windows is folded side by side. */
#include "backend/llvm/build.h"

#include <math.h>

enum { BLOCK = 64, LONG_SUM = 4096 };

typedef struct pool {
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_pooling *p;
    ap_dtype t;
    LLVMTypeRef acc;
    bool max, arg;
    int lane;                                            /* the loop that is the lane; < 0: none */
    ap_ll_value loop[AP_MAX_LOOPS], window[AP_MAX_RANK]; /* numbers of loops and windows */
    ap_ll_value first[AP_MAX_RANK];                      /* element of place 0; may be outside */
    ap_ll_value begin[AP_MAX_RANK], end[AP_MAX_RANK];    /* places of the window that are elements */
    ap_ll_value x, y;                                    /* where the window's place 0 and its result lie */
} pool;

static int64_t places(const ap_pooling *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndims; d++)
        n = ap_sat_mul(n, p->dim[d].window.kernel);
    return n;
}

static LLVMTypeRef acc_type(const pool *w)
{
    if (w->max || (ap_dtype_is_float(w->t) && places(w->p) <= LONG_SUM))
        return ap_ll_register(w->b, w->t);
    return ap_dtype_is_float(w->t) ? w->b->f64 : w->b->i64;
}

static int choose_lane(const ap_pooling *p)
{
    int best = -1;
    for (int l = 0; l < p->nloops && p->kind != AP_POOL_ARGMAX; l++)
        if (p->extent[l] >= 4 && p->from[l] == 1 && (best < 0 || p->to[l] == 1))
            best = l;
    return best;
}

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
    w->first[d] = LLVMBuildNSWSub(w->b->builder, ap_ll_scale(w->b, w->window[d], v->stride), number(w, v->lo), "");
    w->begin[d] = least(w, places_before(w, w->first[d], 0, v->dilation), number(w, v->kernel), false);
    w->end[d] = least(w, places_before(w, w->first[d], m->extent, v->dilation), number(w, v->kernel), false);
    w->end[d] = least(w, w->end[d], w->begin[d], true);
}

/* What an average is multiplied by. */
static ap_ll_value scale(pool *w)
{
    const ap_pooling *p = w->p;
    LLVMBuilderRef at = w->b->builder;
    ap_ll_value n = number(w, 1);
    LLVMTypeRef type = w->acc == w->b->f64 ? w->b->f64 : w->b->f32;
    for (int d = 0; d < p->ndims; d++) {
        const ap_window *v = &p->dim[d].window;
        ap_ll_value some = LLVMBuildNSWSub(at, w->end[d], w->begin[d], "");
        if (p->kind == AP_POOL_AVG_PADS)
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
    bool average = w->p->kind == AP_POOL_AVG || w->p->kind == AP_POOL_AVG_PADS;
    if (w->arg)
        store(w, w->y, least(w, ap_ll_read(b, b->i64, at, zero), zero, true), NULL);
    else
        store(w, w->y, ap_ll_read(b, w->acc, acc, zero), average ? scale(w) : NULL);
}

/* A block of the lane at a time: all of it at each place of the window. */
static void make_lane(pool *w)
{
    ap_ll *b = w->b;
    const ap_pooling *p = w->p;
    ap_ll_value zero = number(w, 0), acc = ap_ll_stack(b, w->acc, BLOCK, 64), place;
    bool average = p->kind == AP_POOL_AVG || p->kind == AP_POOL_AVG_PADS;
    ap_ll_value factor = average ? scale(w) : NULL, end = ap_ll_turns(w->w, p->extent[w->lane], p->turns[w->lane]);
    ap_ll_loop blocks = ap_ll_open_loop(b, zero, end, BLOCK, false), lane, open[AP_MAX_RANK];
    ap_ll_value count = least(w, LLVMBuildNSWSub(b->builder, end, blocks.i, ""), number(w, BLOCK), false);
    lane = ap_ll_open_loop(b, zero, count, 1, true);
    ap_ll_write(b, acc, lane.i, start_value(w));
    ap_ll_close_loop(b, &lane);
    open_places(w, open, &place);
    lane = ap_ll_open_loop(b, zero, count, 1, true);
    ap_ll_value along = ap_ll_add(b, blocks.i, lane.i);
    ap_ll_value x = ap_ll_load(b, w->t, w->w->operand[0], ap_ll_add(b, place, ap_ll_scale(b, along, p->from[w->lane])));
    ap_ll_write(b, acc, lane.i,
                ap_ll_fold(b, w->max ? AP_REDUCE_MAX : AP_REDUCE_SUM, w->t, ap_ll_read(b, w->acc, acc, lane.i), x));
    ap_ll_close_loop(b, &lane);
    close_places(w, open);
    lane = ap_ll_open_loop(b, zero, count, 1, true);
    along = ap_ll_add(b, blocks.i, lane.i);
    store(w, ap_ll_add(b, w->y, ap_ll_scale(b, along, p->to[w->lane])), ap_ll_read(b, w->acc, acc, lane.i), factor);
    ap_ll_close_loop(b, &lane);
    ap_ll_close_loop(b, &blocks);
}

/* Where the window's place 0 and its result lie, but for the lane. */
static void find_places(pool *w)
{
    const ap_pooling *p = w->p;
    w->x = ap_ll_strides(w->b, p->nloops, p->from, w->loop);
    w->y = ap_ll_strides(w->b, p->nloops, p->to, w->loop);
    for (int d = 0; d < p->ndims; d++) {
        cut(w, d);
        w->x = ap_ll_add(w->b, w->x, ap_ll_scale(w->b, w->first[d], p->dim[d].from));
        w->y = ap_ll_add(w->b, w->y, ap_ll_scale(w->b, w->window[d], p->dim[d].to));
    }
}

void ap_ll_pool(ap_ll_kernel *k)
{
    const ap_pooling *p = &k->k->pool;
    pool w = {.w = k, .b = k->b, .p = p, .t = k->k->operand[0].dtype, .lane = choose_lane(p)};
    ap_ll_loop loop[AP_MAX_LOOPS], window[AP_MAX_RANK];
    w.arg = p->kind == AP_POOL_ARGMAX;
    w.max = w.arg || p->kind == AP_POOL_MAX;
    w.acc = acc_type(&w);
    for (int l = 0; l < p->nloops; l++) {
        if (l == w.lane)
            continue;
        loop[l] = ap_ll_open_loop(w.b, number(&w, 0), ap_ll_turns(k, p->extent[l], p->turns[l]), 1, false);
        w.loop[l] = loop[l].i;
    }
    for (int d = 0; d < p->ndims; d++) {
        window[d] = ap_ll_open_loop(w.b, number(&w, 0), number(&w, p->dim[d].count), 1, false);
        w.window[d] = window[d].i;
    }
    find_places(&w);
    if (w.lane < 0)
        make_one(&w);
    else
        make_lane(&w);
    for (int d = p->ndims; d-- > 0;)
        ap_ll_close_loop(w.b, &window[d]);
    for (int l = p->nloops; l-- > 0;)
        if (l != w.lane)
            ap_ll_close_loop(w.b, &loop[l]);
}
