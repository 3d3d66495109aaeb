/* Predicted time of every instruction of a local program: its arithmetic and the bytes it touches (ap_cluster_work_ps,
 * ap_cluster_touch_ps), of what the instruction really does: fused kernels are one launch, what follows a product is
 * work like any other, and what was touched shortly before comes out of a cache. A profile shows it beside the measured
 * time. */
#include "passes/local_price.h"

#include "passes/pass.h"

static int64_t turns(const int64_t *extent, int from, int to)
{
    int64_t n = 1;
    for (int l = from; l < to; l++)
        n = ap_sat_mul(n, extent[l]);
    return n;
}

/* ---- arithmetic ---- */

/* `all` elements and, in row sections, `rows` of them. */
static void add_nest(const ap_nest *n, int64_t rows, int64_t all, ap_work *w)
{
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool folds = s->kind == AP_SOP_REDUCE || s->kind == AP_SOP_SCAN || s->kind == AP_SOP_UPDATE;
        int64_t simple = folds, functions = 0, times = n->inner[s->section] ? all : rows;
        if (s->kind == AP_SOP_POINTWISE)
            ap_cluster_count_flops((ap_pointwise)s->pw, &simple, &functions);
        if (s->kind == AP_SOP_REDUCE && n->inner[s->section])
            w->folds = ap_sat_add(w->folds, rows);
        w->simple = ap_sat_add(w->simple, ap_sat_mul(simple, times));
        w->functions = ap_sat_add(w->functions, ap_sat_mul(functions, times));
    }
}

static ap_work work_of_nest(const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    int nloops = n->nouter + n->ninner;
    int64_t rows = turns(n->extent, 0, n->nouter), inner = turns(n->extent, n->nouter, nloops);
    ap_work w = {.row = n->ninner ? inner : n->nouter ? n->extent[n->nouter - 1] : 1};
    add_nest(n, rows, ap_sat_mul(rows, inner), &w);
    return w;
}

static ap_work work_of_gemm(const ap_kernel *k)
{
    const ap_gemm *g = &k->gemm;
    int64_t loops = turns(g->extent, 0, g->nloops), each = ap_sat_mul(2 * g->k, ap_sat_mul(g->m, g->n));
    ap_work w = {.kind = AP_PRODUCT_MATRIX,
                 .dtype = g->dtype,
                 .flops = ap_sat_mul(each, loops),
                 .each = loops > 0 ? each : 0,
                 .columns = g->n,
                 .depth = g->k,
                 .calls = loops,
                 .row = g->n};
    int64_t elements = ap_sat_mul(loops, ap_sat_mul(g->m, g->n));
    add_nest(&k->nest, elements, elements, &w);
    return w;
}

static ap_work work_of_pool(const ap_kernel *k)
{
    const ap_pooling *p = &k->pool;
    int64_t flops = turns(p->extent, 0, p->nloops);
    for (int d = 0; d < p->ndims; d++)
        flops = ap_sat_mul(flops, ap_sat_mul(p->dim[d].count, p->dim[d].window.kernel));
    return (ap_work){.simple = flops};
}

/* A bias is what the sums begin with. */
static int64_t stepped(const ap_conv *v, int64_t results)
{
    int64_t n = 0;
    for (int s = 0; s < v->nsteps; s++)
        if (v->step[s].other == AP_CONV_OPERAND && !(s == 0 && v->step[s].pw == AP_PW_ADD))
            n = ap_sat_add(n, results);
    return n;
}

static ap_work work_of_conv(const ap_kernel *k)
{
    const ap_conv *v = &k->conv;
    ap_product_kind kind = ap_cluster_conv_kind(v->g, v->m, v->c, v->nspatial, v->kernel);
    int64_t results = ap_sat_mul(ap_sat_mul(v->n, v->g), ap_sat_mul(v->m, turns(v->out, 0, v->nspatial)));
    int64_t flops = ap_sat_mul(2 * results, ap_sat_mul(v->c, turns(v->kernel, 0, v->nspatial)));
    return (ap_work){.kind = kind,
                     .dtype = v->dtype,
                     .flops = flops,
                     .each = flops,
                     .columns = kind == AP_PRODUCT_DEPTHWISE ? v->g : v->m,
                     .calls = 1,
                     .stepped = stepped(v, results)};
}

/* Every element is read once and compared with the last of a heap of k, a few with more of them. */
static ap_work work_of_topk(const ap_kernel *k)
{
    return (ap_work){.simple = ap_sat_mul(turns(k->nest.extent, 0, k->nest.nouter), 2 * k->topk.n)};
}

void ap_local_work(const ap_kernel *k, ap_work *out)
{
    *out = k->kind == AP_KERNEL_GEMM   ? work_of_gemm(k)
           : k->kind == AP_KERNEL_CONV ? work_of_conv(k)
           : k->kind == AP_KERNEL_POOL ? work_of_pool(k)
           : k->kind == AP_KERNEL_TOPK ? work_of_topk(k)
                                       : work_of_nest(k);
}

/* ---- time ---- */

static int64_t price_call(const ap_kernel *k, const ap_touch *touch, uint32_t nrefs, const ap_cluster *c)
{
    ap_work w;
    int64_t memory = 0;
    ap_local_work(k, &w);
    for (uint32_t r = 0; r < nrefs; r++) {
        memory = ap_sat_add(memory, ap_cluster_touch_ps(c, touch[r].bytes, touch[r].distance));
        w.alone = ap_sat_add(w.alone, touch[r].alone);
    }
    return ap_cluster_kernel_ps(c, ap_cluster_work_ps(c, &w), memory);
}

static int64_t price_exchange(const ap_local *p, const ap_exchange *x, const ap_cluster *c)
{
    const ap_group *g = &p->groups.at[x->group];
    ap_span span;
    ap_cluster_span_of(c, p->first_rank, g->rank, g->count, g->size, &span);
    int64_t box = ap_sat_mul(turns(x->extent, 0, x->ndims), ap_dtype_bytes(x->dtype)), whole = ap_sat_mul(box, g->size);
    switch (x->kind) {
    case AP_EXCHANGE_ALL_GATHER:
        return ap_cost_span(c, &span, AP_COLLECTIVE_ALL_GATHER, whole);
    case AP_EXCHANGE_REDUCE_SCATTER:
        return ap_cost_span(c, &span, AP_COLLECTIVE_REDUCE_SCATTER, whole);
    case AP_EXCHANGE_ALL_TO_ALL:
        return ap_cost_span(c, &span, AP_COLLECTIVE_ALL_TO_ALL, ap_sat_mul(whole, g->size));
    default:
        return ap_cost_span(c, &span, AP_COLLECTIVE_ALL_REDUCE, box);
    }
}

static int64_t far_of(const ap_cluster *c)
{
    return c->ncaches ? c->cache[c->ncaches - 1].bytes : 0;
}

/* ---- short microbatches ---- */

static void coords_of(const ap_local *p, int32_t microbatch, int32_t rank, int32_t *coords)
{
    int32_t point = microbatch * p->nranks + rank;
    for (int a = 0; a < AP_MAX_AXES; a++)
        coords[a] = a < p->naxes ? point / p->axis_stride[a] % p->axis_size[a] : 0;
}

bool ap_local_is_short(const ap_local *p, int32_t microbatch)
{
    int32_t first[AP_MAX_AXES], here[AP_MAX_AXES];
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        for (uint32_t k = 0; k < in->nints; k++)
            for (int32_t r = 0; r < p->nranks && !ap_int_is_plain(&in->ints[k]); r++) {
                coords_of(p, 0, r, first);
                coords_of(p, microbatch, r, here);
                if (ap_int_at(&in->ints[k], here) < ap_int_at(&in->ints[k], first))
                    return true;
            }
    }
    return false;
}

static void shorten(int64_t *extent, uint32_t turns, const ap_instr *in, const int32_t *coords)
{
    if (turns > 0)
        *extent = ap_max_i64(0, ap_min_i64(*extent, ap_int_at(&in->ints[turns - 1], coords)));
}

/* The kernel with the turns that it has there. A convolution computes all places (ir/local.h: it is prepared once). */
static void shorten_kernel(ap_kernel *k, const ap_instr *in, const int32_t *coords)
{
    for (int l = 0; l < AP_MAX_LOOPS; l++) {
        if (k->kind == AP_KERNEL_NEST || k->kind == AP_KERNEL_TOPK)
            shorten(&k->nest.extent[l], k->nest.turns[l], in, coords);
        if (k->kind == AP_KERNEL_GEMM)
            shorten(&k->gemm.extent[l], k->gemm.turns[l], in, coords);
        if (k->kind == AP_KERNEL_POOL)
            shorten(&k->pool.extent[l], k->pool.turns[l], in, coords);
    }
    if (k->kind == AP_KERNEL_GEMM) {
        shorten(&k->gemm.m, k->gemm.turns_m, in, coords);
        shorten(&k->gemm.n, k->gemm.turns_n, in, coords);
        shorten(&k->gemm.k, k->gemm.turns_k, in, coords);
    }
}

static bool does(const ap_local *p, const ap_instr *in, const int32_t *coords)
{
    bool zero = true;
    for (int a = p->ntime; a < p->naxes; a++)
        zero = zero && (!(in->when_mask >> a & 1) || coords[a] == 0);
    return in->when == AP_WHEN_ALWAYS || zero == (in->when == AP_WHEN_ZERO);
}

void ap_local_price_at(const ap_local *p, const ap_cluster *c, int32_t microbatch, int32_t rank, int64_t *out_compute,
                       int64_t *out_exchange)
{
    int32_t coords[AP_MAX_AXES];
    ap_arena scratch;
    ap_arena_init(&scratch, p->ctx->arena.out_of_memory, p->ctx->arena.user);
    ap_touch **touch = ap_local_touches(p, &scratch, far_of(c));
    coords_of(p, microbatch, rank, coords);
    *out_compute = *out_exchange = 0;
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        if (in->kind == AP_INSTR_EXCHANGE) {
            *out_exchange = ap_sat_add(*out_exchange, price_exchange(p, &in->exchange, c));
            continue;
        }
        ap_kernel k = p->kernels.at[in->kernel];
        shorten_kernel(&k, in, coords);
        for (uint32_t r = 0; r < in->nrefs; r++) { /* as far away as in a whole one */
            ap_touch less = ap_touch_of(&k, r);
            less.distance = touch[i][r].distance;
            touch[i][r] = less;
        }
        if (does(p, in, coords))
            *out_compute = ap_sat_add(*out_compute, price_call(&k, touch[i], in->nrefs, c));
    }
    ap_arena_deinit(&scratch);
}

void ap_local_price(ap_local *p, const ap_cluster *c)
{
    ap_arena scratch;
    ap_arena_init(&scratch, p->ctx->arena.out_of_memory, p->ctx->arena.user);
    ap_touch **touch = ap_local_touches(p, &scratch, far_of(c));
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        ap_instr *n = &p->instrs.at[i];
        n->picoseconds = n->kind == AP_INSTR_EXCHANGE ? price_exchange(p, &n->exchange, c)
                                                      : price_call(&p->kernels.at[n->kernel], touch[i], n->nrefs, c);
    }
    ap_arena_deinit(&scratch);
}
