/* Interpreter of a local program: all ranks in lockstep, instruction by instruction. Every access is checked against
 * the place that it belongs to. */
#include "ir/local_machine.h"

#include "ir/local_text.h"
#include "ir/op/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef ap_machine machine;
typedef ap_machine_device device;

/* An operand resolved on one rank: elements at base + offset * size, all within [0, bytes). */
typedef struct place {
    uint8_t *base;
    int64_t bytes;  /* of the buffer */
    int64_t offset; /* elements */
    int64_t start;  /* bytes, before the offset */
    ap_dtype dtype;
    int64_t size; /* of an element */
} place;

static ap_status leaves_buffer(const machine *m, ap_loc loc, const char *what)
{
    return ap_fail(m->p->ctx, AP_ERR_BUG, loc, "%s leaves its buffer", what);
}

static ap_status resolve(const machine *m, const device *d, const ap_ref *r, ap_dtype dtype, ap_loc loc, place *out)
{
    const ap_local *p = m->p;
    *out = (place){.dtype = dtype, .size = ap_dtype_bytes(dtype), .offset = ap_affine_at(&r->offset, d->coords)};
    switch (r->space) {
    case AP_SPACE_ARENA:
        out->base = d->arena;
        out->bytes = m->arena_bytes;
        out->start = r->byte_offset;
        return AP_OK;
    case AP_SPACE_PARAM:
        if (r->index >= p->params.len)
            break;
        out->base = d->param + p->params.at[r->index].byte_offset;
        out->bytes = p->params.at[r->index].bytes;
        return AP_OK;
    case AP_SPACE_INPUT:
        if (r->index >= p->inputs.len)
            break;
        out->base = d->input[r->index];
        out->bytes = m->input_bytes[r->index];
        return AP_OK;
    case AP_SPACE_OUTPUT:
        if (r->index >= p->outputs.len)
            break;
        out->base = d->output[r->index];
        out->bytes = m->output_bytes[r->index];
        return AP_OK;
    case AP_SPACE_COUNT:
        break;
    }
    return ap_fail(p->ctx, AP_ERR_BUG, loc, "an operand names a place that does not exist");
}

/* The address of an element, NULL outside of the buffer. */
static uint8_t *element(const place *p, int64_t offset)
{
    int64_t at = p->start + (p->offset + offset) * p->size;
    return at < 0 || at > p->bytes - p->size ? NULL : p->base + at;
}

/* ---- nests ---- */

typedef struct nest_run {
    const machine *m;
    const ap_kernel *k;
    const ap_instr *instr;
    place *operand;
    int64_t *ints;
    int64_t extent[AP_MAX_LOOPS]; /* on this rank */
    int64_t index[AP_MAX_LOOPS];  /* outer loops, then inner ones */
    int64_t inner_count, inner_at;
    ap_scalar *value; /* per sop */
    ap_scalar *best;  /* per sop: the extreme of argmax, argmin */
    ap_scalar *temp;  /* [ntemps][inner_count] */
} nest_run;

/* sum of loop index * stride; inner loops only where they run */
static int64_t loop_offset(const nest_run *r, const int64_t *stride, bool inner)
{
    const ap_nest *n = &r->k->nest;
    int loops = inner ? n->nouter + n->ninner : n->nouter;
    int64_t at = 0;
    for (int i = 0; i < loops; i++)
        at += r->index[i] * stride[i];
    return at;
}

static ap_scalar reduce_identity(ap_reduce_kind kind, ap_dtype t)
{
    ap_scalar x = {0};
    ap_scalar inf = {.f = kind == AP_REDUCE_MAX || kind == AP_REDUCE_ARGMAX ? -INFINITY : INFINITY};
    if (kind == AP_REDUCE_SUM)
        return x;
    if (kind == AP_REDUCE_PROD) {
        ap_scalar one = {.i = 1};
        return ap_pointwise_eval(AP_PW_CAST, AP_I64, ap_dtype_is_float(t) ? AP_F64 : t, &one);
    }
    return ap_dtype_is_float(t) ? inf : ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &inf);
}

/* Folds with the scalar operators, sums and products of floats in f64. */
static void reduce_step(nest_run *r, uint32_t id, const ap_sop *s)
{
    static const ap_pointwise op[AP_REDUCE_KIND_COUNT] = {
        [AP_REDUCE_SUM] = AP_PW_ADD, [AP_REDUCE_PROD] = AP_PW_MUL,   [AP_REDUCE_MAX] = AP_PW_MAX,
        [AP_REDUCE_MIN] = AP_PW_MIN, [AP_REDUCE_ARGMAX] = AP_PW_MAX, [AP_REDUCE_ARGMIN] = AP_PW_MIN,
    };
    const ap_sop *from = &r->k->nest.sop[s->arg[0]];
    ap_dtype wide = ap_dtype_is_float(from->dtype) ? AP_F64 : from->dtype;
    ap_scalar y = r->value[s->arg[0]];
    if (s->reduce != AP_REDUCE_ARGMAX && s->reduce != AP_REDUCE_ARGMIN) {
        ap_scalar x[2] = {r->value[id], y};
        r->value[id] = ap_pointwise_eval(op[s->reduce], wide, wide, x);
        return;
    }
    ap_scalar x[2] = {r->best[id], y};
    ap_scalar e = ap_pointwise_eval(op[s->reduce], wide, wide, x);
    bool is_float = ap_dtype_is_float(from->dtype);
    /* the extreme moved (a NaN stays), or this is the first element */
    bool moved = is_float ? !(e.f == r->best[id].f || isnan(r->best[id].f)) : e.i != r->best[id].i;
    if (moved || r->inner_at == 0) {
        r->best[id] = y;
        r->value[id].i = r->inner_at;
    }
}

static ap_status gather_step(nest_run *r, const ap_sop *s, bool inner, ap_scalar *out)
{
    int64_t row = r->value[s->arg[0]].i, start = s->imm.i < 0 ? 0 : r->ints[s->imm.i];
    const place *p = &r->operand[s->operand];
    *out = (ap_scalar){0};
    if (row < 0 || row >= s->limit)
        return ap_error(r->m->p->ctx, r->instr->loc, "index %" PRId64 " is outside [0, %" PRId64 ")", row, s->limit);
    if (row < start || row >= start + s->extent)
        return AP_OK;
    int64_t at = loop_offset(r, r->k->operand[s->operand].stride, inner) + (row - start) * s->stride;
    const uint8_t *e = element(p, at);
    if (!e)
        return leaves_buffer(r->m, r->instr->loc, ap_name_str(r->m->p->ctx, r->k->name));
    *out = ap_scalar_load(p->dtype, e);
    return AP_OK;
}

static ap_status check_step(const nest_run *r, const ap_sop *s, ap_scalar *out)
{
    int64_t k = r->value[s->arg[0]].i;
    if (k < -s->limit || k >= s->limit)
        return ap_error(r->m->p->ctx, r->instr->loc, "index %" PRId64 " is outside [%" PRId64 ", %" PRId64 ")", k,
                        -s->limit, s->limit);
    out->i = k < 0 ? k + s->limit : k;
    return AP_OK;
}

/* What is folded so far stands in best[]. */
static void scan_step(nest_run *r, uint32_t id, const ap_sop *s)
{
    static const ap_pointwise op[AP_REDUCE_KIND_COUNT] = {[AP_REDUCE_SUM] = AP_PW_ADD,
                                                          [AP_REDUCE_PROD] = AP_PW_MUL,
                                                          [AP_REDUCE_MAX] = AP_PW_MAX,
                                                          [AP_REDUCE_MIN] = AP_PW_MIN};
    ap_dtype wide = ap_dtype_is_float(s->dtype) ? AP_F64 : s->dtype;
    ap_scalar x[2] = {r->best[id], r->value[s->arg[0]]};
    ap_scalar next = ap_pointwise_eval(op[s->reduce], wide, wide, x);
    r->value[id] = ap_scalar_round(s->dtype, s->imm.i ? x[0] : next);
    r->best[id] = next;
}

static ap_status update_step(const nest_run *r, const ap_sop *s, bool inner)
{
    static const ap_pointwise op[AP_SCATTER_KIND_COUNT] = {[AP_SCATTER_ADD] = AP_PW_ADD,
                                                           [AP_SCATTER_MUL] = AP_PW_MUL,
                                                           [AP_SCATTER_MAX] = AP_PW_MAX,
                                                           [AP_SCATTER_MIN] = AP_PW_MIN};
    const place *p = &r->operand[s->operand];
    int64_t at = loop_offset(r, r->k->operand[s->operand].stride, inner);
    if (s->imm.i >= 0) {
        int64_t row = r->value[s->arg[1]].i, start = r->ints[s->imm.i];
        if (row < 0 || row >= s->limit)
            return ap_error(r->m->p->ctx, r->instr->loc, "index %" PRId64 " is outside [0, %" PRId64 ")", row,
                            s->limit);
        if (row < start || row >= start + s->extent)
            return AP_OK;
        at += (row - start) * s->stride;
    }
    uint8_t *e = element(p, at);
    if (!e)
        return leaves_buffer(r->m, r->instr->loc, ap_name_str(r->m->p->ctx, r->k->name));
    ap_scalar x[2] = {ap_scalar_load(p->dtype, e), r->value[s->arg[0]]};
    if (s->reduce != AP_SCATTER_SET)
        x[1] = ap_pointwise_eval(op[s->reduce], p->dtype, p->dtype, x);
    ap_scalar_store(p->dtype, e, x[1]);
    return AP_OK;
}

static ap_status step(nest_run *r, uint32_t id, bool inner)
{
    const ap_sop *s = &r->k->nest.sop[id];
    ap_scalar *v = &r->value[id];
    uint8_t *e;
    switch (s->kind) {
    case AP_SOP_LOAD:
        e = element(&r->operand[s->operand], loop_offset(r, r->k->operand[s->operand].stride, inner));
        if (!e)
            return leaves_buffer(r->m, r->instr->loc, ap_name_str(r->m->p->ctx, r->k->name));
        *v = ap_scalar_load(r->operand[s->operand].dtype, e);
        break;
    case AP_SOP_STORE:
        e = element(&r->operand[s->operand], loop_offset(r, r->k->operand[s->operand].stride, inner));
        if (!e)
            return leaves_buffer(r->m, r->instr->loc, ap_name_str(r->m->p->ctx, r->k->name));
        ap_scalar_store(r->operand[s->operand].dtype, e, r->value[s->arg[0]]);
        break;
    case AP_SOP_GATHER:
        return gather_step(r, s, inner, v);
    case AP_SOP_CHECK:
        return check_step(r, s, v);
    case AP_SOP_SCAN:
        scan_step(r, id, s);
        break;
    case AP_SOP_UPDATE:
        return update_step(r, s, inner);
    case AP_SOP_CONST:
        *v = s->imm;
        break;
    case AP_SOP_INDEX:
        v->i = loop_offset(r, s->loop_stride, inner) + (s->imm.i < 0 ? 0 : r->ints[s->imm.i]);
        break;
    case AP_SOP_POINTWISE: {
        ap_scalar x[3] = {0};
        int nin = ap_pointwise_nin((ap_pointwise)s->pw);
        for (int i = 0; i < nin; i++)
            x[i] = r->value[s->arg[i]];
        ap_dtype from = r->k->nest.sop[s->arg[s->pw == AP_PW_SELECT ? 1 : 0]].dtype;
        *v = ap_pointwise_eval((ap_pointwise)s->pw, from, s->dtype, x);
        break;
    }
    case AP_SOP_REDUCE:
        reduce_step(r, id, s);
        break;
    case AP_SOP_TEMP_STORE:
        r->temp[s->imm.i * r->inner_count + r->inner_at] = r->value[s->arg[0]];
        break;
    case AP_SOP_TEMP_LOAD:
        *v = r->temp[s->imm.i * r->inner_count + r->inner_at];
        break;
    case AP_SOP_KIND_COUNT:
        break;
    }
    return AP_OK;
}

/* Next index of loops [from, to); false when all are through (and 0 again). */
static bool next_index(int64_t *index, const int64_t *extent, int from, int to)
{
    for (int i = to - 1; i >= from; i--) {
        if (++index[i] < extent[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static int64_t loops_count(const int64_t *extent, int from, int to)
{
    int64_t count = 1;
    for (int i = from; i < to; i++)
        count = ap_sat_mul(count, extent[i]);
    return count;
}

/* Turns of n loops on this rank; false when an int says more than the extent. */
static bool set_turns(const nest_run *r, int n, const int64_t *extent, const uint32_t *turns, int64_t *out)
{
    for (int l = 0; l < n; l++) {
        out[l] = turns[l] ? r->ints[turns[l] - 1] : extent[l];
        if (out[l] < 0 || out[l] > extent[l])
            return false;
    }
    return true;
}

/* Sops [from, to) of one section, once or for all inner indices. */
static ap_status run_section(nest_run *r, uint32_t from, uint32_t to, bool inner)
{
    const ap_nest *n = &r->k->nest;
    for (uint32_t i = from; i < to; i++) {
        if (n->sop[i].kind == AP_SOP_REDUCE || n->sop[i].kind == AP_SOP_SCAN) {
            ap_dtype t = n->sop[n->sop[i].arg[0]].dtype;
            r->value[i] = r->best[i] = reduce_identity((ap_reduce_kind)n->sop[i].reduce, t);
            if (n->sop[i].reduce == AP_REDUCE_ARGMAX || n->sop[i].reduce == AP_REDUCE_ARGMIN)
                r->value[i].i = 0;
        }
    }
    int64_t turns = inner ? r->inner_count : 1;
    for (r->inner_at = 0; r->inner_at < turns; r->inner_at++) {
        for (uint32_t i = from; i < to; i++)
            AP_TRY(step(r, i, inner));
        if (inner)
            next_index(r->index, r->extent, n->nouter, n->nouter + n->ninner);
    }
    for (uint32_t i = from; i < to; i++) {
        if (n->sop[i].kind == AP_SOP_REDUCE)
            r->value[i] = ap_scalar_round(n->sop[i].dtype, r->value[i]);
    }
    return AP_OK;
}

static ap_status run_nest(nest_run *r, ap_arena *tmp)
{
    const ap_nest *n = &r->k->nest;
    r->value = AP_NEW_ARRAY(tmp, ap_scalar, n->nsops);
    r->best = AP_NEW_ARRAY(tmp, ap_scalar, n->nsops);
    if (!set_turns(r, n->nouter + n->ninner, n->extent, n->turns, r->extent))
        return leaves_buffer(r->m, r->instr->loc, "a loop");
    r->inner_count = loops_count(r->extent, n->nouter, n->nouter + n->ninner);
    r->temp = AP_NEW_ARRAY(tmp, ap_scalar, n->ntemps * r->inner_count);
    if (loops_count(r->extent, 0, n->nouter) == 0)
        return AP_OK;
    do {
        for (uint32_t from = 0, to; from < n->nsops; from = to) {
            uint8_t section = n->sop[from].section;
            for (to = from; to < n->nsops && n->sop[to].section == section; to++)
                ;
            AP_TRY(run_section(r, from, to, n->inner[section]));
        }
    } while (next_index(r->index, r->extent, 0, n->nouter));
    return AP_OK;
}

/* ---- the first k of a row ---- */

static bool comes_first(ap_dtype t, bool largest, ap_scalar x, ap_scalar y)
{
    if (!largest) {
        ap_scalar z = x;
        x = y, y = z;
    }
    if (ap_dtype_is_float(t))
        return isnan(x.f) ? !isnan(y.f) : x.f > y.f;
    return t == AP_U64 ? (uint64_t)x.i > (uint64_t)y.i : x.i > y.i;
}

/* The next one each time: the first of those that are left. */
static bool topk_row(const nest_run *r, bool *taken)
{
    const ap_topk *k = &r->k->topk;
    int64_t at[3];
    for (int i = 0; i < 3; i++)
        at[i] = loop_offset(r, r->k->operand[i].stride, false);
    memset(taken, 0, (size_t)k->n * sizeof *taken);
    for (int64_t j = 0; j < k->k; j++) {
        int64_t best = -1;
        ap_scalar most = {0};
        for (int64_t i = 0; i < k->n; i++) {
            const uint8_t *e = element(&r->operand[0], at[0] + i * k->stride[0]);
            if (!e)
                return false;
            ap_scalar x = ap_scalar_load(r->operand[0].dtype, e);
            if (taken[i] || (best >= 0 && !comes_first(r->operand[0].dtype, k->largest, x, most)))
                continue;
            best = i;
            most = x;
        }
        taken[best] = true;
        uint8_t *value = element(&r->operand[1], at[1] + j * k->stride[1]);
        uint8_t *position = element(&r->operand[2], at[2] + j * k->stride[2]);
        if (!value || !position)
            return false;
        ap_scalar_store(r->operand[1].dtype, value, most);
        ap_scalar_store(AP_I64, position, (ap_scalar){.i = best});
    }
    return true;
}

static ap_status run_topk(nest_run *r, ap_arena *tmp)
{
    const ap_nest *n = &r->k->nest;
    bool *taken = AP_NEW_ARRAY(tmp, bool, r->k->topk.n);
    if (!set_turns(r, n->nouter, n->extent, n->turns, r->extent))
        return leaves_buffer(r->m, r->instr->loc, "a loop");
    if (loops_count(r->extent, 0, n->nouter) == 0)
        return AP_OK;
    do {
        if (!topk_row(r, taken))
            return leaves_buffer(r->m, r->instr->loc, ap_name_str(r->m->p->ctx, r->k->name));
    } while (next_index(r->index, r->extent, 0, n->nouter));
    return AP_OK;
}

/* ---- matrix products ---- */

typedef struct gemm_run {
    const machine *m;
    const ap_gemm *g;
    const ap_instr *instr;
    ap_scalar *a, *b, *c;
} gemm_run;

/* rows x columns elements at `at` into packed rows. */
static bool pack(const place *p, int64_t at, int64_t rows, int64_t columns, int64_t rs, int64_t cs, ap_scalar *out)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const uint8_t *e = element(p, at + i * rs + j * cs);
            if (!e)
                return false;
            out[i * columns + j] = ap_scalar_load(p->dtype, e);
        }
    }
    return true;
}

static bool gemm_turn(const gemm_run *r, const place *operand, const int64_t *at, bool add)
{
    const ap_gemm *g = r->g;
    if (!pack(&operand[0], at[0], g->m, g->k, g->rsa, g->csa, r->a) ||
        !pack(&operand[1], at[1], g->n, g->k, g->csb, g->rsb, r->b))
        return false;
    ap_tensor_matmul(true, r->a, r->b, g->m, g->n, g->k, r->c);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            uint8_t *e = element(&operand[2], at[2] + i * g->rsc + j * g->csc);
            if (!e)
                return false;
            ap_scalar x = r->c[i * g->n + j];
            if (add)
                x.f += ap_scalar_load(g->dtype, e).f;
            ap_scalar_store(g->dtype, e, x);
        }
    }
    return true;
}

/* The product as this rank does it: a sum over nothing is one turn with k = 0. */
static bool gemm_on_rank(const nest_run *r, ap_gemm *g)
{
    const uint32_t turns[3] = {g->turns_m, g->turns_n, g->turns_k};
    const int64_t most[3] = {g->m, g->n, g->k};
    int64_t mnk[3];
    if (!set_turns(r, g->nloops, g->extent, g->turns, g->extent) || !set_turns(r, 3, most, turns, mnk))
        return false;
    g->m = mnk[0], g->n = mnk[1], g->k = mnk[2];
    for (int l = 0; l < g->nloops; l++) {
        if (g->sum[l] && g->extent[l] == 0)
            g->k = 0;
    }
    for (int l = 0; l < g->nloops && g->k == 0; l++)
        g->extent[l] = g->sum[l] ? 1 : g->extent[l];
    return true;
}

static ap_status run_gemm(const nest_run *run, const place *operand, ap_arena *tmp)
{
    const machine *m = run->m;
    const ap_instr *instr = run->instr;
    ap_gemm here = run->k->gemm;
    const ap_gemm *g = &here;
    gemm_run r = {.m = m, .g = g, .instr = instr};
    int64_t index[AP_MAX_LOOPS] = {0};
    if (!gemm_on_rank(run, &here))
        return leaves_buffer(m, instr->loc, "a loop");
    r.a = AP_NEW_ARRAY(tmp, ap_scalar, ap_sat_mul(g->m, g->k));
    r.b = AP_NEW_ARRAY(tmp, ap_scalar, ap_sat_mul(g->n, g->k));
    r.c = AP_NEW_ARRAY(tmp, ap_scalar, ap_sat_mul(g->m, g->n));
    if (loops_count(g->extent, 0, g->nloops) == 0)
        return AP_OK;
    do {
        int64_t at[3] = {0};
        bool add = false;
        for (int i = 0; i < g->nloops; i++) {
            at[0] += index[i] * g->stride_a[i];
            at[1] += index[i] * g->stride_b[i];
            at[2] += index[i] * g->stride_c[i];
            add = add || (g->sum[i] && index[i] > 0);
        }
        if (!gemm_turn(&r, operand, at, add))
            return leaves_buffer(m, instr->loc, "a matrix product");
    } while (next_index(index, g->extent, 0, g->nloops));
    return AP_OK;
}

/* ---- pools ---- */

typedef struct pool_source {
    const place *x;
    int64_t base;
    bool left;
} pool_source;

static ap_scalar load_pooled(void *user, int64_t offset)
{
    pool_source *s = user;
    const uint8_t *e = element(s->x, s->base + offset);
    s->left = s->left || !e;
    return e ? ap_scalar_load(s->x->dtype, e) : (ap_scalar){0};
}

/* The windows at one turn of the loops. */
static ap_status pool_turn(const nest_run *run, pool_source *s, int64_t to)
{
    const ap_pooling *p = &run->k->pool;
    int64_t at[AP_MAX_RANK] = {0}, count[AP_MAX_RANK];
    for (int d = 0; d < p->ndims; d++)
        count[d] = p->dim[d].count;
    if (loops_count(count, 0, p->ndims) == 0)
        return AP_OK;
    do {
        int64_t offset = to;
        for (int d = 0; d < p->ndims; d++)
            offset += at[d] * p->dim[d].to;
        ap_scalar x = ap_pool_fold(p->kind, s->x->dtype, p->ndims, p->dim, at, load_pooled, s);
        uint8_t *e = element(&run->operand[1], offset);
        if (s->left || !e)
            return leaves_buffer(run->m, run->instr->loc, "a window");
        ap_scalar_store(run->operand[1].dtype, e, ap_scalar_round(run->operand[1].dtype, x));
    } while (next_index(at, count, 0, p->ndims));
    return AP_OK;
}

static ap_status run_pool(const nest_run *run)
{
    const ap_pooling *p = &run->k->pool;
    int64_t index[AP_MAX_LOOPS] = {0}, extent[AP_MAX_LOOPS];
    if (!set_turns(run, p->nloops, p->extent, p->turns, extent))
        return leaves_buffer(run->m, run->instr->loc, "a loop");
    if (loops_count(extent, 0, p->nloops) == 0)
        return AP_OK;
    do {
        pool_source s = {.x = &run->operand[0]};
        int64_t to = 0;
        for (int l = 0; l < p->nloops; l++) {
            s.base += index[l] * p->from[l];
            to += index[l] * p->to[l];
        }
        AP_TRY(pool_turn(run, &s, to));
    } while (next_index(index, extent, 0, p->nloops));
    return AP_OK;
}

/* ---- convolutions ---- */

static bool load_conv(void *user, uint32_t operand, int64_t offset, ap_scalar *out)
{
    const place *p = &((const place *)user)[operand];
    const uint8_t *e = element(p, offset);
    if (e)
        *out = ap_scalar_load(p->dtype, e);
    return e != NULL;
}

static bool store_conv(void *user, uint32_t operand, int64_t offset, ap_scalar x)
{
    const place *p = &((const place *)user)[operand];
    uint8_t *e = element(p, offset);
    if (e)
        ap_scalar_store(p->dtype, e, x);
    return e != NULL;
}

static ap_status run_conv(const nest_run *run)
{
    ap_conv_memory mem = {run->operand, load_conv, store_conv};
    if (!ap_local_conv_turns_fit(&run->k->conv, run->ints) || !ap_local_conv_eval(&run->k->conv, run->ints, &mem))
        return leaves_buffer(run->m, run->instr->loc, "a convolution");
    return AP_OK;
}

/* ---- instructions ---- */

static bool takes_part(const ap_instr *instr, const device *d)
{
    bool zero = true;
    for (int a = 0; a < AP_MAX_AXES; a++)
        zero = zero && (!(instr->when_mask >> a & 1u) || d->coords[a] == 0);
    return instr->when == AP_WHEN_ALWAYS || (instr->when == AP_WHEN_ZERO) == zero;
}

static ap_status run_call(const machine *m, const ap_instr *instr, const device *d)
{
    const ap_local *p = m->p;
    if (instr->kernel >= p->kernels.len)
        return ap_fail(p->ctx, AP_ERR_BUG, instr->loc, "a call of a kernel that does not exist");
    const ap_kernel *k = &p->kernels.at[instr->kernel];
    if (instr->nrefs != k->noperands || instr->nints != k->nints)
        return ap_fail(p->ctx, AP_ERR_BUG, instr->loc, "a call of %s with the wrong operands",
                       ap_name_str(p->ctx, k->name));
    ap_arena tmp;
    ap_arena_init(&tmp, p->ctx->scratch.out_of_memory, p->ctx->scratch.user);
    nest_run r = {.m = m, .k = k, .instr = instr};
    r.operand = AP_NEW_ARRAY(&tmp, place, k->noperands);
    r.ints = AP_NEW_ARRAY(&tmp, int64_t, k->nints);
    ap_status status = AP_OK;
    for (uint32_t i = 0; i < k->nints; i++)
        r.ints[i] = ap_int_at(&instr->ints[i], d->coords);
    for (uint32_t i = 0; i < k->noperands && status == AP_OK; i++)
        status = resolve(m, d, &instr->ref[i], k->operand[i].dtype, instr->loc, &r.operand[i]);
    if (status == AP_OK && k->kind == AP_KERNEL_CONV)
        status = run_conv(&r);
    else if (status == AP_OK && k->kind == AP_KERNEL_POOL)
        status = run_pool(&r);
    else if (status == AP_OK && k->kind == AP_KERNEL_TOPK)
        status = run_topk(&r, &tmp);
    else if (status == AP_OK)
        status = k->kind == AP_KERNEL_GEMM ? run_gemm(&r, r.operand, &tmp) : run_nest(&r, &tmp);
    if (status == AP_OK && ap_kernel_has_epilogue(k))
        status = run_nest(&r, &tmp);
    ap_arena_deinit(&tmp);
    return status;
}

static int64_t box_offset(const int64_t *index, const int64_t *stride, int n)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++)
        at += index[i] * stride[i];
    return at;
}

/* dst = what the peers have at `at`, folded in order of positions: in f32 for shorter floats, else in their own type.
 */
static ap_status fold_element(const machine *m, const ap_instr *instr, const place *src, int32_t size, int64_t at,
                              uint8_t *dst)
{
    static const ap_pointwise op[AP_PARTIAL_COUNT] = {
        [AP_PARTIAL_SUM] = AP_PW_ADD, [AP_PARTIAL_MAX] = AP_PW_MAX, [AP_PARTIAL_MIN] = AP_PW_MIN};
    ap_dtype t = instr->exchange.dtype;
    ap_dtype wide = ap_dtype_is_float(t) && ap_dtype_bytes(t) < 4 ? AP_F32 : t;
    ap_scalar sum = {0};
    for (int32_t from = 0; from < size; from++) {
        const uint8_t *e = element(&src[from], at);
        if (!e || !dst)
            return leaves_buffer(m, instr->loc, "an exchange");
        ap_scalar x[2] = {sum, ap_scalar_load(t, e)};
        sum = from == 0 ? x[1] : ap_pointwise_eval(op[instr->exchange.fold], wide, wide, x);
    }
    ap_scalar_store(t, dst, ap_scalar_round(t, sum));
    return AP_OK;
}

static ap_status copy_peer(const machine *m, const ap_instr *instr, const int64_t *extent, const place *src,
                           int64_t src_at, const place *dst, int64_t dst_at)
{
    const ap_exchange *x = &instr->exchange;
    int64_t index[AP_MAX_LOOPS] = {0};
    if (loops_count(extent, 0, x->ndims) == 0)
        return AP_OK;
    do {
        const uint8_t *from = element(src, src_at + box_offset(index, x->src_stride, x->ndims));
        uint8_t *to = element(dst, dst_at + box_offset(index, x->dst_stride, x->ndims));
        if (!from || !to)
            return leaves_buffer(m, instr->loc, "an exchange");
        memcpy(to, from, (size_t)src->size);
    } while (next_index(index, extent, 0, x->ndims));
    return AP_OK;
}

/* The box that a rank gets from the peer at this position. */
static void box_on_rank(const ap_exchange *x, const device *d, int32_t peer, int64_t extent[AP_MAX_LOOPS])
{
    for (int i = 0; i < x->ndims; i++)
        extent[i] = ap_counts_at(x->ncounts, x->count, i, x->extent[i], d->coords, peer);
}

/* all_reduce at one place: everybody's element is read before anybody's is written. */
static ap_status reduce_in_place(const machine *m, const ap_instr *instr, const int32_t *ranks, int32_t size)
{
    const ap_exchange *x = &instr->exchange;
    int64_t index[AP_MAX_LOOPS] = {0};
    place *at = AP_NEW_ARRAY(m->tmp, place, size);
    for (int32_t p = 0; p < size; p++) {
        if (ranks[p] < 0 || ranks[p] >= m->p->nranks)
            return ap_fail(m->p->ctx, AP_ERR_BUG, instr->loc, "an exchange with rank %d", ranks[p]);
        AP_TRY(resolve(m, &m->device[ranks[p]], &instr->ref[0], x->dtype, instr->loc, &at[p]));
    }
    if (loops_count(x->extent, 0, x->ndims) == 0)
        return AP_OK;
    do {
        int64_t i = box_offset(index, x->src_stride, x->ndims);
        uint8_t sum[16];
        AP_TRY(fold_element(m, instr, at, size, i, sum));
        for (int32_t p = 0; p < size; p++)
            memcpy(element(&at[p], i), sum, (size_t)at[p].size);
    } while (next_index(index, x->extent, 0, x->ndims));
    return AP_OK;
}

static bool is_in_place(const ap_instr *instr)
{
    const ap_ref *a = &instr->ref[0], *b = &instr->ref[1];
    return ap_exchange_in_place(&instr->exchange) && a->space == b->space && a->index == b->index &&
           a->byte_offset == b->byte_offset && !memcmp(&a->offset, &b->offset, sizeof a->offset);
}

/* What the rank at position `me` of its group gets. */
static ap_status receive(const machine *m, const ap_instr *instr, const int32_t *ranks, int32_t size, int32_t me)
{
    const ap_exchange *x = &instr->exchange;
    bool folds = x->kind == AP_EXCHANGE_ALL_REDUCE || x->kind == AP_EXCHANGE_REDUCE_SCATTER;
    bool scatters = x->kind == AP_EXCHANGE_ALL_TO_ALL || x->kind == AP_EXCHANGE_REDUCE_SCATTER;
    int64_t src_at = scatters ? x->src_me * me : 0, index[AP_MAX_LOOPS] = {0};
    place dst, *src = AP_NEW_ARRAY(m->tmp, place, size);
    AP_TRY(resolve(m, &m->device[ranks[me]], &instr->ref[1], x->dtype, instr->loc, &dst));
    for (int32_t from = 0; from < size; from++)
        AP_TRY(resolve(m, &m->device[ranks[from]], &instr->ref[0], x->dtype, instr->loc, &src[from]));
    const device *d = &m->device[ranks[me]];
    int64_t extent[AP_MAX_LOOPS];
    for (int32_t from = 0; from < size && !folds; from++) {
        box_on_rank(x, d, from, extent);
        AP_TRY(copy_peer(m, instr, extent, &src[from], src_at, &dst, x->dst_peer * from));
    }
    box_on_rank(x, d, 0, extent);
    if (!folds || loops_count(extent, 0, x->ndims) == 0)
        return AP_OK;
    do {
        uint8_t *to = element(&dst, box_offset(index, x->dst_stride, x->ndims));
        AP_TRY(fold_element(m, instr, src, size, src_at + box_offset(index, x->src_stride, x->ndims), to));
    } while (next_index(index, extent, 0, x->ndims));
    return AP_OK;
}

static ap_status run_exchange(const machine *m, const ap_instr *instr)
{
    const ap_local *p = m->p;
    if (instr->nrefs != 2 || instr->exchange.group >= p->groups.len)
        return ap_fail(p->ctx, AP_ERR_BUG, instr->loc, "an exchange without source, target or group");
    const ap_group *g = &p->groups.at[instr->exchange.group];
    for (int32_t i = 0; i < g->count; i++) {
        if (is_in_place(instr)) {
            AP_TRY(reduce_in_place(m, instr, g->rank + i * g->size, g->size));
            continue;
        }
        for (int32_t me = 0; me < g->size; me++) {
            int32_t rank = g->rank[i * g->size + me];
            if (rank < 0 || rank >= p->nranks)
                return ap_fail(p->ctx, AP_ERR_BUG, instr->loc, "an exchange with rank %d", rank);
            if (takes_part(instr, &m->device[rank]))
                AP_TRY(receive(m, instr, g->rank + i * g->size, g->size, me));
        }
    }
    return AP_OK;
}

ap_status ap_machine_run(const ap_machine *m)
{
    for (uint32_t i = 0; i < m->p->instrs.len; i++) {
        const ap_instr *instr = &m->p->instrs.at[i];
        if (instr->kind == AP_INSTR_EXCHANGE) {
            AP_TRY(run_exchange(m, instr));
            continue;
        }
        for (int32_t r = 0; r < m->p->nranks; r++) {
            if (takes_part(instr, &m->device[r]))
                AP_TRY(run_call(m, instr, &m->device[r]));
        }
    }
    return AP_OK;
}
