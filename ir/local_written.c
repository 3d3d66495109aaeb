/* Boxes of outputs, class by class: the loops of a kernel that move along what it writes. */
#include "ir/local_written.h"

#include "ir/local_text.h"

#include <string.h>

typedef struct maker {
    const ap_local *p;
    ap_arena *arena;
    const ap_instr *in;
    const ap_kernel *k;
    ap_written box;
    bool bad;
} maker;

/* Of the next dimension. */
static void add_count(maker *m, const ap_affine *value)
{
    ap_written *b = &m->box;
    if (!b->count)
        b->count = AP_NEW_ARRAY(m->arena, ap_count, AP_MAX_LOOPS + 1);
    b->count[b->ncounts++] = (ap_count){.dim = b->ndims, .value = *value};
}

/* One more dimension; `turns` as in a nest. A loop that does not move along counts as well: without turns, nothing is
 * written. */
static void add_dim(maker *m, int64_t extent, int64_t stride, uint32_t turns)
{
    ap_written *b = &m->box;
    if (!turns && (stride == 0 || extent == 1))
        return;
    extent = stride == 0 ? ap_min_i64(extent, 1) : extent;
    if (b->ndims == AP_MAX_LOOPS) {
        m->bad = true;
        return;
    }
    if (turns) {
        const ap_int *n = &m->in->ints[turns - 1];
        m->bad = m->bad || n->lo > 0;
        extent = ap_min_i64(extent, n->hi);
        add_count(m, &n->value);
    }
    b->extent[b->ndims] = extent;
    b->stride[b->ndims++] = stride;
}

static void add_loops(maker *m, uint32_t operand, int n)
{
    for (int l = 0; l < n; l++)
        add_dim(m, m->k->nest.extent[l], m->k->operand[operand].stride[l], m->k->nest.turns[l]);
}

/* Over all ranks and microbatches. */
static int64_t least_of(const ap_local *p, const ap_affine *a)
{
    int64_t x = a->base;
    for (int i = 0; i < p->naxes; i++)
        x += ap_min_i64(0, a->step[i] * (p->axis_size[i] - 1));
    return x;
}

/* Rows of an update: those before the limit, counted from the rank's first one. Behind it lies padding. */
static void add_rows(maker *m, const ap_sop *s)
{
    const ap_int *first = &m->in->ints[s->imm.i];
    ap_affine left = {.base = s->limit - first->value.base};
    bool moves = false;
    for (int a = 0; a < AP_MAX_AXES; a++) {
        left.step[a] = -first->value.step[a];
        moves = moves || left.step[a] != 0;
    }
    m->bad = m->bad || !ap_int_is_plain(first);
    if (!moves) {
        add_dim(m, ap_min_i64(s->extent, ap_max_i64(left.base, 0)), s->stride, 0);
        return;
    }
    bool counted = m->box.ndims < AP_MAX_LOOPS && s->stride != 0;
    if (counted && least_of(m->p, &left) < s->extent)
        add_count(m, &left);
    add_dim(m, s->extent, s->stride, 0);
}

/* What the operation of a nest writes. */
static void nest_box(maker *m, uint32_t operand, const ap_sop *s)
{
    const ap_nest *n = &m->k->nest;
    add_loops(m, operand, n->nouter + (n->inner[s->section] ? n->ninner : 0));
    if (s->kind == AP_SOP_UPDATE && s->imm.i >= 0)
        add_rows(m, s);
}

static void gemm_box(maker *m)
{
    const ap_gemm *g = &m->k->gemm;
    for (int l = 0; l < g->nloops; l++)
        add_dim(m, g->extent[l], g->stride_c[l], g->turns[l]);
    add_dim(m, g->m, g->rsc, g->turns_m);
    add_dim(m, g->n, g->csc, g->turns_n);
}

static void pool_box(maker *m)
{
    const ap_pooling *p = &m->k->pool;
    for (int l = 0; l < p->nloops; l++)
        add_dim(m, p->extent[l], p->to[l], p->turns[l]);
    for (int d = 0; d < p->ndims; d++)
        add_dim(m, p->dim[d].count, p->dim[d].to, 0);
}

static void conv_box(maker *m)
{
    const ap_conv *c = &m->k->conv;
    add_dim(m, c->n, c->y[0], c->turns_n);
    add_dim(m, c->g, c->y[1], c->turns_g);
    add_dim(m, c->m, c->y[2], c->turns_m);
    for (int d = 0; d < c->nspatial; d++)
        add_dim(m, c->out[d], c->y[3 + d], 0);
}

static bool same_box(const ap_written *a, const ap_written *b)
{
    bool same = a->output == b->output && a->ndims == b->ndims && a->when_mask == b->when_mask &&
                a->ncounts == b->ncounts && !memcmp(&a->offset, &b->offset, sizeof a->offset);
    for (int d = 0; same && d < a->ndims; d++)
        same = a->extent[d] == b->extent[d] && a->stride[d] == b->stride[d];
    for (int i = 0; same && i < a->ncounts; i++)
        same = a->count[i].dim == b->count[i].dim &&
               !memcmp(&a->count[i].value, &b->count[i].value, sizeof a->count[i].value);
    return same;
}

static void start(maker *m, const ap_ref *ref)
{
    m->box = (ap_written){.output = ref->index, .offset = ref->offset};
    m->box.when_mask = m->in->when == AP_WHEN_ZERO ? m->in->when_mask : 0;
    if (m->in->when != AP_WHEN_NOT_ZERO)
        return;
    /* A dimension of one element, of which there are as many as the coordinates add up to. */
    ap_affine sum = {0};
    for (int a = 0; a < AP_MAX_AXES; a++)
        sum.step[a] = m->in->when_mask >> a & 1;
    add_count(m, &sum);
    m->box.extent[m->box.ndims] = 1;
    m->box.stride[m->box.ndims++] = 0;
}

static void finish(maker *m, ap_written_list *out)
{
    for (uint32_t i = 0; i < out->len; i++)
        if (same_box(&out->at[i], &m->box))
            return;
    ap_vec_push(m->arena, out, m->box);
}

/* Everything that the call writes to operand i. */
static void add_operand(maker *m, uint32_t i, ap_written_list *out)
{
    const ap_ref *ref = &m->in->ref[i];
    bool nest = m->k->kind == AP_KERNEL_NEST || (m->k->kind == AP_KERNEL_GEMM && i > 2);
    for (uint32_t s = 0; nest && s < m->k->nest.nsops; s++) {
        const ap_sop *sop = &m->k->nest.sop[s];
        if ((sop->kind != AP_SOP_STORE && sop->kind != AP_SOP_UPDATE) || sop->operand != i)
            continue;
        start(m, ref);
        nest_box(m, i, sop);
        finish(m, out);
    }
    if (nest)
        return;
    start(m, ref);
    if (m->k->kind == AP_KERNEL_GEMM)
        gemm_box(m);
    else if (m->k->kind == AP_KERNEL_POOL)
        pool_box(m);
    else if (m->k->kind == AP_KERNEL_CONV)
        conv_box(m);
    else
        add_loops(m, i, m->k->nest.nouter);
    if (m->k->kind == AP_KERNEL_TOPK)
        add_dim(m, m->k->topk.k, m->k->topk.stride[i], 0);
    finish(m, out);
}

ap_status ap_local_written(const ap_local *p, ap_arena *arena, ap_written_list *out)
{
    *out = (ap_written_list){0};
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        maker m = {.p = p, .arena = arena, .in = in};
        if (in->kind == AP_INSTR_EXCHANGE) {
            m.bad = in->ref[1].space == AP_SPACE_OUTPUT && !p->outputs.at[in->ref[1].index].slot;
        } else {
            m.k = &p->kernels.at[in->kernel];
            for (uint32_t r = 0; r < in->nrefs; r++)
                if (m.k->operand[r].written && in->ref[r].space == AP_SPACE_OUTPUT &&
                    !p->outputs.at[in->ref[r].index].slot)
                    add_operand(&m, r, out);
        }
        if (m.bad)
            return ap_error(p->ctx, in->loc, "what this writes to an output is no box");
    }
    return AP_OK;
}
