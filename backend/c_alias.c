/* May a kernel say `restrict`? Only when in every call, on every rank, what it writes lies apart from all that it reads
 * and from whatever else it writes. A call in place (an output over an input) forbids it, for that kernel. */
#include "backend/emit.h"

typedef struct range {
    int64_t low, high; /* elements, relative to the start of the operand */
    bool empty;
} range;

static void widen(range *r, int64_t extent, int64_t stride)
{
    if (extent <= 0)
        r->empty = true;
    else if (stride < 0)
        r->low += (extent - 1) * stride;
    else
        r->high += (extent - 1) * stride;
}

static int64_t turns_of(int64_t extent, uint32_t turns, const ap_instr *in, const int32_t *coordinate)
{
    return turns ? ap_int_at(&in->ints[turns - 1], coordinate) : extent;
}

static range nest_range(const ap_kernel *k, const ap_instr *in, uint32_t i, const int32_t *coordinate)
{
    const ap_nest *n = &k->nest;
    range r = {0};
    for (int l = 0; l < n->nouter + n->ninner; l++)
        widen(&r, turns_of(n->extent[l], n->turns[l], in, coordinate), k->operand[i].stride[l]);
    for (uint32_t s = 0; s < n->nsops; s++)
        if ((n->sop[s].kind == AP_SOP_GATHER || (n->sop[s].kind == AP_SOP_UPDATE && n->sop[s].imm.i >= 0)) &&
            n->sop[s].operand == i)
            widen(&r, n->sop[s].extent, n->sop[s].stride);
    return r;
}

static range pool_range(const ap_kernel *k, const ap_instr *in, uint32_t i, const int32_t *coordinate)
{
    const ap_pooling *p = &k->pool;
    range r = {0};
    for (int l = 0; l < p->nloops; l++)
        widen(&r, turns_of(p->extent[l], p->turns[l], in, coordinate), i ? p->to[l] : p->from[l]);
    for (int d = 0; d < p->ndims; d++)
        widen(&r, i ? p->dim[d].count : p->dim[d].extent, i ? p->dim[d].to : p->dim[d].from);
    if (k->kind == AP_KERNEL_TOPK)
        widen(&r, i == 0 ? k->topk.n : k->topk.k, k->topk.stride[i]);
    return r;
}

static range gemm_range(const ap_kernel *k, const ap_instr *in, uint32_t i, const int32_t *coordinate)
{
    const ap_gemm *g = &k->gemm;
    range r = {0};
    for (int l = 0; l < g->nloops; l++)
        widen(&r, i == 2 && g->sum[l] ? 1 : turns_of(g->extent[l], g->turns[l], in, coordinate),
              i == 0   ? g->stride_a[l]
              : i == 1 ? g->stride_b[l]
                       : g->stride_c[l]);
    int64_t m = turns_of(g->m, g->turns_m, in, coordinate), n = turns_of(g->n, g->turns_n, in, coordinate);
    int64_t inner = turns_of(g->k, g->turns_k, in, coordinate);
    if (i == 0) {
        widen(&r, m, g->rsa);
        widen(&r, inner, g->csa);
    } else {
        widen(&r, i == 1 ? inner : m, i == 1 ? g->rsb : g->rsc);
        widen(&r, n, i == 1 ? g->csb : g->csc);
    }
    return r;
}

/* The bytes that operand i of a call touches on a rank, within its space. */
static range call_range(const ap_emit *e, const ap_kernel *k, const ap_instr *in, uint32_t i, const int32_t *coordinate)
{
    const ap_ref *ref = &in->ref[i];
    bool product = k->kind == AP_KERNEL_GEMM && i < 3;
    range r = product                     ? gemm_range(k, in, i, coordinate)
              : k->kind == AP_KERNEL_POOL ? pool_range(k, in, i, coordinate)
                                          : nest_range(k, in, i, coordinate);
    int64_t bytes = ap_dtype_bytes(k->operand[i].dtype), at = ref->offset.base;
    for (int a = 0; a < e->p->naxes; a++)
        at += ref->offset.step[a] * coordinate[a];
    int64_t start = ref->space == AP_SPACE_ARENA   ? ref->byte_offset
                    : ref->space == AP_SPACE_PARAM ? e->p->params.at[ref->index].byte_offset
                                                   : 0;
    return (range){start + (at + r.low) * bytes, start + (at + r.high + 1) * bytes, r.empty};
}

static bool same_memory(const ap_ref *a, const ap_ref *b)
{
    if (a->space != b->space)
        return false;
    return a->space == AP_SPACE_ARENA || a->space == AP_SPACE_PARAM || a->index == b->index;
}

static bool call_is_apart(const ap_emit *e, const ap_kernel *k, const ap_instr *in, int32_t point)
{
    int32_t coordinate[AP_MAX_AXES] = {0};
    for (int a = 0; a < e->p->naxes; a++)
        coordinate[a] = point / e->p->axis_stride[a] % e->p->axis_size[a];
    for (uint32_t i = 0; i < k->noperands; i++) {
        if (!k->operand[i].written)
            continue;
        range w = call_range(e, k, in, i, coordinate);
        for (uint32_t j = 0; j < k->noperands; j++) {
            if (j == i || !same_memory(&in->ref[i], &in->ref[j]))
                continue;
            range o = call_range(e, k, in, j, coordinate);
            if (!w.empty && !o.empty && w.low < o.high && o.low < w.high)
                return false;
        }
    }
    return true;
}

/* Do places or turns of the call depend on the microbatch? */
static bool moves_in_time(const ap_local *p, const ap_instr *in)
{
    bool moves = false;
    for (uint32_t i = 0; i < in->nrefs; i++)
        moves = moves || (p->ntime && in->ref[i].offset.step[0] != 0);
    for (uint32_t i = 0; i < in->nints; i++)
        moves = moves || (p->ntime && in->ints[i].value.step[0] != 0);
    return moves;
}

void ap_emit_find_apart(ap_emit *e)
{
    e->apart = AP_NEW_ARRAY(&e->ctx->scratch, bool, e->nkernels);
    for (uint32_t k = 0; k < e->nkernels; k++)
        e->apart[k] = true;
    for (uint32_t s = 0; s < e->program->stages.len; s++) {
        ap_emit_turn(e, s);
        for (uint32_t i = 0; i < e->p->instrs.len; i++) {
            const ap_instr *in = &e->p->instrs.at[i];
            if (in->kind != AP_INSTR_CALL)
                continue;
            bool *apart = &e->apart[e->kernel_of[s][in->kernel]];
            int32_t points = e->p->nranks * (moves_in_time(e->p, in) ? ap_local_microbatches(e->p) : 1);
            for (int32_t r = 0; r < points && *apart; r++)
                *apart = call_is_apart(e, &e->p->kernels.at[in->kernel], in, r);
        }
    }
}
