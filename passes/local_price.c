/* Predicted time of every instruction of a local program, by the formulas of cost.c on what the instruction really
 * does: fused kernels are one launch. A profile shows it beside the measured time. */
#include "passes/cluster.h"
#include "passes/pass.h"

/* flops of one application of each pointwise operator */
static const uint8_t flops_of[AP_PW_COUNT] = {
#define POINTWISE(E, text, NIN, RESULT, DOMAIN_, LINEAR_A, LINEAR_B, FLOPS, formula) [AP_PW_##E] = (FLOPS),
#include "ir/op/pointwise.def"
#undef POINTWISE
};

static int64_t turns(const int64_t *extent, int from, int to)
{
    int64_t n = 1;
    for (int l = from; l < to; l++)
        n = ap_sat_mul(n, extent[l]);
    return n;
}

/* Elements that a walk with these strides meets, each once. */
static int64_t touched(const int64_t *extent, const int64_t *stride, int nloops)
{
    int64_t n = 1;
    for (int l = 0; l < nloops; l++)
        n = ap_sat_mul(n, stride[l] ? extent[l] : 1);
    return n;
}

/* picoseconds of one kernel's `flops` at a rate of flops per second */
static int64_t work_ps(const ap_cluster *c, int64_t flops, double rate)
{
    return ap_sat_add(c->launch_ps, rate > 0 ? (int64_t)((double)flops / rate * 1e12) : 0);
}

static int64_t price_nest(const ap_kernel *k, const ap_cluster *c)
{
    const ap_nest *n = &k->nest;
    int nloops = n->nouter + n->ninner;
    int64_t rows = turns(n->extent, 0, n->nouter), all = turns(n->extent, 0, nloops), flops = 0, bytes = 0;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool folds = s->kind == AP_SOP_REDUCE || s->kind == AP_SOP_SCAN || s->kind == AP_SOP_UPDATE;
        int64_t each = s->kind == AP_SOP_POINTWISE ? flops_of[s->pw] : folds;
        flops = ap_sat_add(flops, ap_sat_mul(each, n->inner[s->section] ? all : rows));
    }
    for (uint32_t i = 0; i < k->noperands; i++)
        bytes = ap_sat_add(
            bytes, ap_sat_mul(touched(n->extent, k->operand[i].stride, nloops), ap_dtype_bytes(k->operand[i].dtype)));
    return ap_max_i64(ap_cost_memory(c, bytes), work_ps(c, flops, (double)c->vector_flops_per_second));
}

static int64_t price_gemm(const ap_kernel *k, const ap_cluster *c)
{
    const ap_gemm *g = &k->gemm;
    int64_t loops = turns(g->extent, 0, g->nloops);
    int64_t flops = ap_sat_mul(ap_sat_mul(2 * loops, ap_sat_mul(g->m, g->n)), g->k);
    int64_t elements = ap_sat_add(ap_sat_mul(touched(g->extent, g->stride_a, g->nloops), ap_sat_mul(g->m, g->k)),
                                  ap_sat_mul(touched(g->extent, g->stride_b, g->nloops), ap_sat_mul(g->k, g->n)));
    elements = ap_sat_add(elements, ap_sat_mul(touched(g->extent, g->stride_c, g->nloops), ap_sat_mul(g->m, g->n)));
    int64_t work = ap_cluster_product_ps(c, g->dtype, false, loops > 0 ? flops / loops : 0, flops);
    return ap_max_i64(ap_cost_memory(c, ap_sat_mul(elements, ap_dtype_bytes(g->dtype))),
                      ap_sat_add(c->launch_ps, work));
}

static int64_t price_pool(const ap_kernel *k, const ap_cluster *c)
{
    const ap_pooling *p = &k->pool;
    int64_t loops = turns(p->extent, 0, p->nloops), from = loops, to = loops, flops = 1;
    for (int d = 0; d < p->ndims; d++) {
        from = ap_sat_mul(from, p->dim[d].extent);
        to = ap_sat_mul(to, p->dim[d].count);
        flops = ap_sat_mul(flops, p->dim[d].window.kernel);
    }
    int64_t bytes = ap_sat_add(ap_sat_mul(from, ap_dtype_bytes(k->operand[0].dtype)),
                               ap_sat_mul(to, ap_dtype_bytes(k->operand[1].dtype)));
    return ap_max_i64(ap_cost_memory(c, bytes), work_ps(c, ap_sat_mul(flops, to), (double)c->vector_flops_per_second));
}

static int64_t price_conv(const ap_kernel *k, const ap_cluster *c)
{
    const ap_conv *v = &k->conv;
    int64_t taps = turns(v->kernel, 0, v->nspatial), pixels = ap_sat_mul(v->n, v->g);
    int64_t x = ap_sat_mul(ap_sat_mul(pixels, v->c), turns(v->in, 0, v->nspatial));
    int64_t y = ap_sat_mul(ap_sat_mul(pixels, v->m), turns(v->out, 0, v->nspatial));
    int64_t depth = ap_sat_mul(v->c, taps), w = ap_sat_mul(ap_sat_mul(v->g, v->m), depth);
    int64_t bytes = ap_sat_mul(ap_sat_add(ap_sat_add(x, w), y), ap_dtype_bytes(v->dtype));
    int64_t flops = ap_sat_mul(2 * y, depth);
    return ap_max_i64(ap_cost_memory(c, bytes),
                      ap_sat_add(c->launch_ps, ap_cluster_product_ps(c, v->dtype, true, flops, flops)));
}

/* Every element is read once and compared with the last of a heap of k, a few with more of them. */
static int64_t price_topk(const ap_kernel *k, const ap_cluster *c)
{
    int64_t rows = turns(k->nest.extent, 0, k->nest.nouter), size = ap_dtype_bytes(k->operand[0].dtype);
    int64_t bytes = ap_sat_add(ap_sat_mul(k->topk.n, size), ap_sat_mul(k->topk.k, size + 8));
    return ap_max_i64(ap_cost_memory(c, ap_sat_mul(rows, bytes)),
                      work_ps(c, ap_sat_mul(rows, 2 * k->topk.n), (double)c->vector_flops_per_second));
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

void ap_local_price(ap_local *p, const ap_cluster *c)
{
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        ap_instr *n = &p->instrs.at[i];
        if (n->kind == AP_INSTR_EXCHANGE) {
            n->picoseconds = price_exchange(p, &n->exchange, c);
            continue;
        }
        const ap_kernel *k = &p->kernels.at[n->kernel];
        n->picoseconds = k->kind == AP_KERNEL_GEMM   ? price_gemm(k, c)
                         : k->kind == AP_KERNEL_CONV ? price_conv(k, c)
                         : k->kind == AP_KERNEL_POOL ? price_pool(k, c)
                         : k->kind == AP_KERNEL_TOPK ? price_topk(k, c)
                                                     : price_nest(k, c);
    }
}
