/* imported -> imported: unequal parts of a product move onto its parameter (DESIGN §5). A fused projection that is
 * split into parts of different widths, as grouped-query attention does, becomes one product per part:
 *
 *     %c = contract %x, @w {bsk,kn->bsn} : f32[2,8,768]       %q = contract %x, @w.0 {bsk,kn->bsn} : f32[2,8,512]
 *     %q = slice %c [-,-,0:512]                               %k = contract %x, @w.1 {bsk,kn->bsn} : f32[2,8,128]
 *     %k = slice %c [-,-,512:640]
 *
 * where @w.0 and @w.1 are parts of @w (ap_data_part), which is read from the file once. Refinement then cuts each part
 * into its own heads. Equal parts are left alone: refinement makes them a factor.
 *
 * A value is taken apart when nothing but disjoint slices of one dimension reads it, and when what computes it can be
 * traced to parameters and constants through pointwise operators, contractions, views and reshapes that nothing else
 * reads. A parameter is taken apart when all its readers want the same parts.
 *
 * needs: types   keeps: types of surviving values, names   breaks: nothing */
#include "ir/op.h"
#include "passes/pass.h"

#include <inttypes.h>
#include <string.h>

#define MAX_TRACES 64 /* values between a slice and its parameters */

/* Disjoint parts of one dimension, by rising start. */
typedef struct ranges {
    uint32_t n;
    int64_t *start, *count;
} ranges;

/* A value that is cut, where, and how many operands of the candidate's nodes it is. */
typedef struct trace {
    ap_value value;
    int dim;
    ranges parts;
    uint32_t visits;
} trace;

/* A value of which only slices are read. */
typedef struct candidate {
    ap_value value;
    int dim;
    ranges parts;
    uint32_t nslices;
    AP_VEC(trace) traces;
    bool good;
} candidate;

typedef struct slices {
    ap_module *m;
    ap_arena *arena;
    ap_block block;
    uint32_t *uses;         /* [value] */
    uint32_t *candidate_of; /* [value]: of a sliced one, or AP_NONE */
    ap_value **part;        /* [symbol][range]: what stands for it; NULL until needed */
    AP_VEC(candidate) candidates;
} slices;

/* ---- what is sliced ---- */

/* The one dimension that the slice cuts, in steps of 1; -1 for other slices. Each dimension has one factor here. */
static int sliced_dim(const ap_module *m, const ap_node_info *n, ap_range *out)
{
    const ap_shape_info *s = ap_value_shape(m, n->in[0]);
    int dim = -1;
    for (int d = 0; d < s->rank; d++) {
        if (s->first[d] == s->first[d + 1] || n->u.slice->range[s->first[d]].whole)
            continue;
        if (dim >= 0)
            return -1;
        dim = d;
        *out = n->u.slice->range[s->first[d]];
    }
    return dim >= 0 && out->step == 1 && out->count > 1 ? dim : -1;
}

static bool same_ranges(const ranges *a, const ranges *b)
{
    return a->n == b->n && memcmp(a->start, b->start, a->n * sizeof *a->start) == 0 &&
           memcmp(a->count, b->count, a->n * sizeof *a->count) == 0;
}

/* Enters one more part; false when it overlaps another. Equal parts are one. */
static bool add_range(ranges *r, int64_t start, int64_t count)
{
    uint32_t at = 0;
    while (at < r->n && r->start[at] < start)
        at++;
    if (at < r->n && r->start[at] == start)
        return r->count[at] == count;
    if ((at < r->n && start + count > r->start[at]) || (at > 0 && r->start[at - 1] + r->count[at - 1] > start))
        return false;
    memmove(r->start + at + 1, r->start + at, (r->n - at) * sizeof *r->start);
    memmove(r->count + at + 1, r->count + at, (r->n - at) * sizeof *r->count);
    r->start[at] = start;
    r->count[at] = count;
    r->n++;
    return true;
}

/* Parts that refinement makes indices of a factor. */
static bool are_even(const ranges *r, int64_t extent)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->count[i] != r->count[0] || extent % r->count[i] || r->start[i] % r->count[i])
            return false;
    return true;
}

static void take_slice(slices *w, ap_node id)
{
    const ap_node_info *n = ap_node_at(w->m, id);
    ap_range g = {0};
    int dim = sliced_dim(w->m, n, &g);
    uint32_t *at = &w->candidate_of[n->in[0]];
    if (*at == AP_NONE) {
        candidate fresh = {.value = n->in[0], .dim = dim, .good = true};
        fresh.parts.start = AP_NEW_ARRAY(w->arena, int64_t, w->uses[n->in[0]]);
        fresh.parts.count = AP_NEW_ARRAY(w->arena, int64_t, w->uses[n->in[0]]);
        *at = w->candidates.len;
        ap_vec_push(w->arena, &w->candidates, fresh);
    }
    candidate *c = &w->candidates.at[*at];
    c->nslices++;
    c->good = c->good && dim >= 0 && dim == c->dim && add_range(&c->parts, g.start, g.count);
}

/* ---- where it comes from ---- */

static bool trace_value(slices *w, candidate *c, ap_value v, int dim, const ranges *parts);

/* The dimension of an operand whose factor has this letter, or -1. */
static int dim_of_letter(const ap_module *m, const ap_rule *rule, ap_value v, uint32_t i, int letter)
{
    const ap_shape_info *s = ap_value_shape(m, v);
    for (int d = 0; d < s->rank; d++)
        for (int f = s->first[d]; f < s->first[d + 1]; f++)
            if (rule->operand[i][f] == letter)
                return d;
    return -1;
}

/* Calls for each operand that has the letter of the result's dimension. */
static bool trace_letter(slices *w, candidate *c, ap_node id, int dim, const ranges *parts)
{
    ap_node_info n = *ap_node_at(w->m, id);
    ap_rule rule;
    ap_rule_get(w->m, id, w->arena, &rule);
    int letter = rule.result[0][ap_value_shape(w->m, n.out[0])->first[dim]];
    if (letter == AP_RULE_NONE || rule.kind[letter] != AP_LETTER_PARALLEL)
        return false;
    for (uint32_t i = 0; i < n.nin; i++) {
        int d = dim_of_letter(w->m, &rule, n.in[i], i, letter);
        if (d >= 0 && !trace_value(w, c, n.in[i], d, parts))
            return false;
    }
    return true;
}

/* A reshape reads elements in order: parts of dimension `dim` of the result are parts of one dimension of the operand
 * when one of the two is the major part of the other. Gives that dimension and the parts there. */
static bool through_reshape(const slices *w, const ap_node_info *n, int dim, const ranges *parts, int *out_dim,
                            ranges *out)
{
    int64_t from[AP_MAX_RANK], to[AP_MAX_RANK], before = 1, ahead = 1;
    int rank = ap_shape_dims(ap_value_shape(w->m, n->in[0]), from), d = 0;
    int nto = ap_shape_dims(ap_value_shape(w->m, n->out[0]), to);
    for (int i = 0; i < dim; i++)
        before *= to[i];
    while (d < rank && (ahead < before || from[d] == 1))
        ahead *= from[d++];
    if (d == rank || ahead != before || from[d] < 1)
        return false;
    int64_t below_to = 1, below_from = 1;
    for (int i = dim + 1; i < nto; i++)
        below_to *= to[i];
    for (int i = d + 1; i < rank; i++)
        below_from *= from[i];
    if (below_from < 1 || below_to < 1)
        return false;
    *out_dim = d;
    *out = (ranges){.start = AP_NEW_ARRAY(w->arena, int64_t, parts->n),
                    .count = AP_NEW_ARRAY(w->arena, int64_t, parts->n)};
    for (out->n = 0; out->n < parts->n; out->n++) {
        int64_t start = parts->start[out->n] * below_to, count = parts->count[out->n] * below_to;
        if (start % below_from || count % below_from || count == below_from)
            return false;
        out->start[out->n] = start / below_from;
        out->count[out->n] = count / below_from;
    }
    return true;
}

static bool trace_node(slices *w, candidate *c, ap_node id, int dim, const ranges *parts)
{
    const ap_node_info *n = ap_node_at(w->m, id);
    if (n->op == AP_OP_CONSTANT)
        return n->u.constant->kind != AP_DATA_FILE;
    if (n->block != w->block)
        return false;
    if (ap_op_is_pointwise(n->op) || n->op == AP_OP_CONTRACT || n->op == AP_OP_VIEW)
        return trace_letter(w, c, id, dim, parts);
    ranges there;
    int d;
    return n->op == AP_OP_RESHAPE && through_reshape(w, n, dim, parts, &d, &there) &&
           trace_value(w, c, n->in[0], d, &there);
}

static bool trace_value(slices *w, candidate *c, ap_value v, int dim, const ranges *parts)
{
    for (uint32_t i = 0; i < c->traces.len; i++) {
        trace *t = &c->traces.at[i];
        if (t->value != v)
            continue;
        t->visits++;
        return t->dim == dim && same_ranges(&t->parts, parts);
    }
    if (c->traces.len == MAX_TRACES)
        return false;
    ap_vec_push(w->arena, &c->traces, (trace){.value = v, .dim = dim, .parts = *parts, .visits = 1});
    ap_value_info value = *ap_value_at(w->m, v);
    if (value.kind == AP_VALUE_SYMBOL)
        return w->m->symbols.at[value.def].kind == AP_SYMBOL_PARAM;
    return value.kind == AP_VALUE_RESULT && trace_node(w, c, value.def, dim, parts);
}

static bool is_constant(const slices *w, ap_value v)
{
    const ap_value_info *value = ap_value_at(w->m, v);
    return value->kind == AP_VALUE_RESULT && ap_node_at(w->m, value->def)->op == AP_OP_CONSTANT;
}

/* Nothing else may read what the parts are computed from, or it would be computed twice. The first trace is the sliced
 * value itself. */
static bool reads_are_its_own(const slices *w, const candidate *c)
{
    for (uint32_t i = 1; i < c->traces.len; i++) {
        const trace *t = &c->traces.at[i];
        if (ap_value_at(w->m, t->value)->kind == AP_VALUE_RESULT && !is_constant(w, t->value) &&
            t->visits != w->uses[t->value])
            return false;
    }
    return true;
}

static void judge(slices *w, candidate *c)
{
    const ap_shape_info *s = ap_value_shape(w->m, c->value);
    c->good = c->good && c->nslices == w->uses[c->value] && !are_even(&c->parts, ap_shape_dim(s, c->dim)) &&
              trace_value(w, c, c->value, c->dim, &c->parts) && reads_are_its_own(w, c);
}

/* Readers of parameter t->value among the good candidates that want just these parts. */
static uint32_t readers_of(const slices *w, const trace *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->candidates.len; i++) {
        const candidate *c = &w->candidates.at[i];
        for (uint32_t k = 0; c->good && k < c->traces.len; k++) {
            const trace *o = &c->traces.at[k];
            if (o->value == t->value && o->dim == t->dim && same_ranges(&o->parts, &t->parts))
                n += k == 0 ? c->nslices : o->visits;
        }
    }
    return n;
}

/* A parameter that somebody needs otherwise spoils the candidates that reach it, and so on. */
static void judge_parameters(slices *w)
{
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < w->candidates.len; i++) {
            candidate *c = &w->candidates.at[i];
            for (uint32_t k = 0; c->good && k < c->traces.len; k++) {
                const trace *t = &c->traces.at[k];
                if (ap_value_at(w->m, t->value)->kind != AP_VALUE_SYMBOL || readers_of(w, t) == w->uses[t->value])
                    continue;
                c->good = false;
                again = true;
            }
        }
    }
}

/* ---- the parts ---- */

static ap_type part_type(const ap_module *m, ap_value v, int dim, int64_t count)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    ap_shape_info s = *ap_shape_get(m->ctx, t.shape);
    s.logical[s.first[dim]] = s.physical[s.first[dim]] = count;
    return ap_type_make(m->ctx, t.dtype, ap_shape_intern(m->ctx, &s), t.sharding);
}

/* Inline bytes are copied; of a file it is said where they are. */
static ap_data part_data(ap_module *m, const ap_data *d, const ap_shape_info *s, ap_name name, int dim, int64_t start,
                         int64_t count)
{
    ap_data part = *d;
    int64_t dims[AP_MAX_RANK], outer = 1, inner = ap_dtype_bytes(d->dtype);
    int rank = ap_shape_dims(s, dims);
    if (d->kind == AP_DATA_FILE) {
        ap_data_part *p = AP_NEW(m->arena, ap_data_part);
        *p = (ap_data_part){.of = name, .rank = (uint8_t)rank};
        memcpy(p->dim, dims, sizeof p->dim);
        if (d->part)
            *p = *d->part;
        p->start[dim] += start;
        part.part = p;
    }
    if (d->kind != AP_DATA_INLINE)
        return part;
    for (int i = 0; i < rank; i++)
        *(i < dim ? &outer : &inner) *= i == dim ? 1 : dims[i];
    part.size = (uint64_t)(outer * count * inner);
    char *to = ap_arena_alloc(m->arena, (size_t)part.size);
    for (int64_t i = 0; i < outer; i++)
        memcpy(to + i * count * inner, (const char *)d->bytes + (i * dims[dim] + start) * inner,
               (size_t)(count * inner));
    part.bytes = to;
    return part;
}

static ap_name part_name(ap_module *m, ap_name whole, uint32_t i)
{
    const char *s = ap_name_str(m->ctx, whole);
    ap_name name = ap_name_format(m->ctx, "%s.%" PRIu32, s, i);
    for (uint32_t n = 1; ap_module_find_symbol(m, ap_name_str(m->ctx, name)) != AP_NONE; n++)
        name = ap_name_format(m->ctx, "%s.%" PRIu32 "_%" PRIu32, s, i, n);
    return name;
}

static ap_value part_of_symbol(slices *w, const trace *t, uint32_t i)
{
    ap_symbol id = ap_value_at(w->m, t->value)->def;
    if (!w->part[id]) {
        w->part[id] = AP_NEW_ARRAY(w->arena, ap_value, t->parts.n);
        memset(w->part[id], 0xff, t->parts.n * sizeof *w->part[id]);
    }
    if (w->part[id][i] == AP_NONE) {
        ap_symbol_info s = w->m->symbols.at[id];
        ap_type type = part_type(w->m, t->value, t->dim, t->parts.count[i]);
        ap_data data = part_data(w->m, &s.data, ap_value_shape(w->m, t->value), s.name, t->dim, t->parts.start[i],
                                 t->parts.count[i]);
        ap_symbol made = ap_module_add_symbol(w->m, s.kind, part_name(w->m, s.name, i), type, data, s.loc);
        w->part[id][i] = w->m->symbols.at[made].value;
    }
    return w->part[id][i];
}

static const trace *trace_of(const candidate *c, ap_value v)
{
    for (uint32_t i = 0; i < c->traces.len; i++)
        if (c->traces.at[i].value == v)
            return &c->traces.at[i];
    return NULL;
}

/* Part i of v; nodes are appended to the block. `made` holds, by trace, what is there already. */
static ap_status emit_part(slices *w, const candidate *c, ap_value v, uint32_t i, ap_value *made, ap_value *out)
{
    const trace *t = trace_of(c, v);
    *out = v;
    if (!t)
        return AP_OK;
    ap_value *known = &made[t - c->traces.at];
    if (*known != AP_NONE) {
        *out = *known;
        return AP_OK;
    }
    ap_value_info value = *ap_value_at(w->m, v);
    if (value.kind == AP_VALUE_SYMBOL) {
        *out = *known = part_of_symbol(w, t, i);
        return AP_OK;
    }
    ap_node id = ap_module_copy_node(w->m, value.def);
    for (uint32_t k = 0; k < ap_node_at(w->m, id)->nin; k++) {
        ap_value in;
        AP_TRY(emit_part(w, c, ap_node_at(w->m, id)->in[k], i, made, &in));
        ap_node_at(w->m, id)->in[k] = in;
    }
    ap_node_info *n = ap_node_at(w->m, id);
    if (n->op == AP_OP_CONSTANT)
        *n->u.constant = part_data(w->m, n->u.constant, ap_value_shape(w->m, v), value.name, t->dim, t->parts.start[i],
                                   t->parts.count[i]);
    *out = *known = n->out[0];
    ap_value_at(w->m, *out)->type = part_type(w->m, v, t->dim, t->parts.count[i]);
    ap_block_append(w->m, w->block, id);
    return ap_node_infer(w->m, id);
}

/* The part that a slice reads stands where the slice stood, under its name. */
static ap_status replace_slice(slices *w, const candidate *c, ap_node id)
{
    ap_range g = {0};
    uint32_t i = 0;
    sliced_dim(w->m, ap_node_at(w->m, id), &g);
    while (c->parts.start[i] != g.start)
        i++;
    ap_value *made = AP_NEW_ARRAY(w->arena, ap_value, c->traces.len), v, old = ap_node_at(w->m, id)->out[0];
    memset(made, 0xff, c->traces.len * sizeof *made);
    AP_TRY(emit_part(w, c, c->value, i, made, &v));
    ap_value_info *value = ap_value_at(w->m, v);
    if (value->kind == AP_VALUE_RESULT && !value->name) {
        value->name = ap_value_at(w->m, old)->name;
        ap_value_at(w->m, old)->name = 0;
    }
    ap_module_replace_uses(w->m, old, v);
    return AP_OK;
}

static ap_status rewrite(slices *w)
{
    AP_VEC(ap_node) order = {0};
    AP_VEC(uint32_t) of = {0}; /* the candidate that it slices; looked up before values change */
    const ap_block_info *b = ap_block_at(w->m, w->block);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *n = ap_node_at(w->m, b->nodes.at[i]);
        ap_vec_push(w->arena, &order, b->nodes.at[i]);
        ap_vec_push(w->arena, &of, n->op == AP_OP_SLICE ? w->candidate_of[n->in[0]] : AP_NONE);
    }
    ap_block_at(w->m, w->block)->nodes.len = 0;
    for (uint32_t i = 0; i < order.len; i++) {
        if (of.at[i] != AP_NONE && w->candidates.at[of.at[i]].good)
            AP_TRY(replace_slice(w, &w->candidates.at[of.at[i]], order.at[i]));
        ap_block_append(w->m, w->block, order.at[i]);
    }
    return AP_OK;
}

ap_status ap_pass_slices(ap_ctx *ctx, ap_module *m)
{
    slices w = {.m = m, .arena = &ctx->scratch, .uses = ap_module_count_uses(m, &ctx->scratch)};
    w.part = AP_NEW_ARRAY(w.arena, ap_value *, m->symbols.len);
    for (ap_func f = 0; f < m->funcs.len; f++) {
        w.block = m->funcs.at[f].body;
        w.candidates.len = 0;
        w.candidate_of = AP_NEW_ARRAY(w.arena, uint32_t, m->values.len);
        memset(w.candidate_of, 0xff, m->values.len * sizeof *w.candidate_of);
        const ap_block_info *b = ap_block_at(m, w.block);
        for (uint32_t i = 0; i < b->nodes.len; i++)
            if (ap_node_at(m, b->nodes.at[i])->op == AP_OP_SLICE)
                take_slice(&w, b->nodes.at[i]);
        for (uint32_t i = 0; i < w.candidates.len; i++)
            judge(&w, &w.candidates.at[i]);
        judge_parameters(&w);
        AP_TRY(rewrite(&w));
    }
    ap_module_remove_dead(m);
    return AP_OK;
}
