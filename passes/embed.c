/* normal -> normal: a sum over what was looked up becomes one composite with the lookup, `embed`: bags of embeddings,
 * weighted or masked.
 *
 *     %e = gather @table, %ids {vd,bl->bld}
 *     %w = mul %e, %weights                            composite embed(@table, %ids, %weights) { ... }
 *     %y = reduce sum %w {bld->bd}
 *
 * The planner prices it as one kernel, which has no [b,l,d] in memory. Everything on the way from the gather to the
 * sum is linear in what was looked up, so rows of a table that is split give partial sums of the result: only pooled
 * vectors are exchanged.
 *
 * needs: types   keeps: types of surviving values   breaks: nothing */
#include "ir/op.h"
#include "passes/pass.h"

enum { MAX_CHAIN = 6, MAX_OPERANDS = 2 + 2 * MAX_CHAIN };

typedef struct embed {
    ap_module *m;
    const uint32_t *uses; /* [value]; of those that there were at first */
    uint32_t nvalues;
    ap_block block;
    uint32_t n;
    ap_node chain[MAX_CHAIN]; /* from the sum to the gather */
} embed;

static ap_node maker(const embed *e, ap_value v)
{
    const ap_value_info *info = ap_value_at(e->m, v);
    if (v >= e->nvalues || info->kind != AP_VALUE_RESULT || ap_node_at(e->m, info->def)->block != e->block)
        return AP_NONE;
    return info->def;
}

static const ap_data *splat_of(const embed *e, ap_value v)
{
    ap_node id = maker(e, v);
    const ap_node_info *n = id == AP_NONE ? NULL : ap_node_at(e->m, id);
    if (!n || n->op != AP_OP_CONSTANT || ap_value_shape(e->m, v)->nfactors)
        return NULL;
    return n->u.constant;
}

static bool is_zero(const embed *e, ap_value v)
{
    const ap_data *d = splat_of(e, v);
    bool zero = d && (d->kind == AP_DATA_SPLAT || d->kind == AP_DATA_INLINE);
    for (uint64_t i = 0; zero && i < d->size; i++)
        zero = ((const uint8_t *)d->bytes)[i] == 0;
    return zero;
}

/* Is the result of n linear in operand k alone? Of a selection the other branch must be zero. */
static bool is_linear_in(const embed *e, const ap_node_info *n, uint32_t k)
{
    const ap_op_info *op = ap_op_get(n->op);
    ap_dtype from = ap_type_dtype(e->m->ctx, ap_value_type(e->m, n->in[k]));
    if (!op->pointwise || !ap_dtype_is_float(ap_type_dtype(e->m->ctx, ap_value_type(e->m, n->out[0]))) ||
        !ap_dtype_is_float(from))
        return false;
    if (n->op == AP_OP_SELECT)
        return k > 0 && is_zero(e, n->in[3 - k]);
    for (int g = 0; g < 2; g++)
        if (op->linear[g] == 1u << k)
            return true;
    return false;
}

/* The operand through which the chain goes on: the only one that is of the result's shape, made for n alone, and in
 * which n is linear. */
static ap_node next_of(const embed *e, const ap_node_info *n)
{
    ap_shape shape = ap_type_get(e->m->ctx, ap_value_type(e->m, n->out[0])).shape;
    for (uint32_t k = 0; k < n->nin; k++) {
        ap_node id = maker(e, n->in[k]);
        if (id == AP_NONE || e->uses[n->in[k]] != 1 || !is_linear_in(e, n, k) ||
            ap_type_get(e->m->ctx, ap_value_type(e->m, n->in[k])).shape != shape)
            continue;
        const ap_node_info *made = ap_node_at(e->m, id);
        if (made->op == AP_OP_GATHER || (made->nout == 1 && ap_op_get(made->op)->pointwise))
            return id;
    }
    return AP_NONE;
}

/* Every letter that is summed is one of the indices'. */
static bool sums_bags(const ap_node_info *sum, const ap_node_info *gather)
{
    const ap_spec *s = sum->u.reduce.spec, *g = gather->u.spec;
    int summed = 0;
    if (s->operand[0].nletters != g->result.nletters)
        return false;
    for (int f = 0; f < s->operand[0].nletters; f++) {
        if (ap_spec_side_find(&s->result, s->operand[0].letter[f]) >= 0)
            continue;
        if (ap_spec_side_find(&g->operand[1], g->result.letter[f]) < 0)
            return false;
        summed++;
    }
    return summed > 0;
}

static bool find_chain(embed *e, ap_node sum)
{
    const ap_node_info *n = ap_node_at(e->m, sum);
    if (n->op != AP_OP_REDUCE || n->u.reduce.kind != AP_REDUCE_SUM)
        return false;
    ap_node id = maker(e, n->in[0]);
    if (id == AP_NONE || e->uses[n->in[0]] != 1)
        return false;
    e->n = 0;
    e->chain[e->n++] = sum;
    while (id != AP_NONE && e->n < MAX_CHAIN) {
        const ap_node_info *made = ap_node_at(e->m, id);
        e->chain[e->n++] = id;
        if (made->op == AP_OP_GATHER)
            return sums_bags(n, made);
        id = made->nout == 1 ? next_of(e, made) : AP_NONE;
    }
    return false;
}

/* ---- making the composite ---- */

static bool is_chained(const embed *e, ap_value v)
{
    ap_node id = maker(e, v);
    for (uint32_t i = 0; i < e->n; i++)
        if (e->chain[i] == id)
            return true;
    return false;
}

static uint32_t list_operands(const embed *e, ap_value out[MAX_OPERANDS])
{
    uint32_t n = 0;
    for (uint32_t i = e->n; i-- > 0;) {
        const ap_node_info *node = ap_node_at(e->m, e->chain[i]);
        for (uint32_t k = 0; k < node->nin; k++) {
            bool have = is_chained(e, node->in[k]) || splat_of(e, node->in[k]);
            for (uint32_t j = 0; j < n && !have; j++)
                have = out[j] == node->in[k];
            if (!have)
                out[n++] = node->in[k];
        }
    }
    return n;
}

/* Scalar constants move in, each reader with its own. */
static void copy_constants(embed *e, ap_node member, ap_block body)
{
    ap_module *m = e->m;
    for (uint32_t k = 0; k < ap_node_at(m, member)->nin; k++) {
        ap_value v = ap_node_at(m, member)->in[k];
        if (!splat_of(e, v))
            continue;
        ap_node copy = ap_module_copy_node(m, ap_value_at(m, v)->def);
        ap_value_at(m, ap_node_at(m, copy)->out[0])->type = ap_value_type(m, v);
        ap_block_append(m, body, copy);
        ap_node_at(m, member)->in[k] = ap_node_at(m, copy)->out[0];
    }
}

static ap_node make_composite(embed *e)
{
    ap_module *m = e->m;
    ap_node sum = e->chain[0];
    ap_value operand[MAX_OPERANDS], inner = ap_node_at(m, sum)->out[0];
    ap_node comp =
        ap_module_add_node(m, AP_OP_COMPOSITE, list_operands(e, operand), operand, 1, ap_node_at(m, sum)->loc);
    ap_value outer = ap_node_at(m, comp)->out[0];
    ap_node_at(m, comp)->u.composite = ap_name_make(m->ctx, "embed");
    ap_module_replace_uses(m, inner, outer);
    ap_value_at(m, outer)->type = ap_value_type(m, inner);
    ap_value_at(m, outer)->name = ap_value_at(m, inner)->name;
    ap_value_at(m, inner)->name = 0;
    ap_block body = ap_module_add_block(m, ap_block_at(m, e->block)->func, comp);
    ap_node_at(m, comp)->body = body;
    ap_node_at(m, comp)->block = e->block;
    for (uint32_t i = e->n; i-- > 0;) {
        copy_constants(e, e->chain[i], body);
        ap_block_append(m, body, e->chain[i]);
    }
    ap_block_append(m, body, ap_module_add_node(m, AP_OP_YIELD, 1, &inner, 0, 0));
    return comp;
}

ap_status ap_pass_embed(ap_ctx *ctx, ap_module *m)
{
    for (ap_func f = 0; f < m->funcs.len; f++) {
        embed e = {.m = m,
                   .uses = ap_module_count_uses(m, &ctx->scratch),
                   .nvalues = m->values.len,
                   .block = m->funcs.at[f].body};
        AP_VEC(ap_node) kept = {0};
        for (uint32_t i = 0; i < ap_block_at(m, e.block)->nodes.len; i++) {
            ap_node id = ap_block_at(m, e.block)->nodes.at[i];
            if (find_chain(&e, id))
                id = make_composite(&e);
            ap_vec_push(&ctx->scratch, &kept, id);
        }
        ap_block_info *b = ap_block_at(m, e.block);
        b->nodes.len = 0;
        for (uint32_t i = 0; i < kept.len; i++) /* what is in a body now stands there only */
            if (ap_node_at(m, kept.at[i])->block == e.block)
                ap_vec_push(m->arena, &b->nodes, kept.at[i]);
    }
    ap_module_remove_dead(m);
    return AP_OK;
}
