/* The memory of a composite that is cut. Each completion of a value makes a piece; counted as held while the node runs:
 *
 *     each completed value as it is made, and all that its path to completeness holds
 *     each value of the body that is made before a completion and read behind it, if it has a buffer of its own:
 *     not operands, constants, views of either, nor what the composite yields
 *
 * All of it counts for the whole node. Positions count the nodes of the body as they stand, nested bodies inlined and
 * reshards left out, so that the body before and after planning say the same. */
#include "passes/inner.h"

#include "passes/local.h"

#include <string.h>

typedef struct entry {
    ap_value value;
    uint32_t made, last; /* positions; last: of the last reader */
    bool buffer;         /* has one of its own */
} entry;

typedef struct table {
    const ap_module *m;
    ap_arena *arena;
    uint32_t position;
    AP_VEC(entry) entries;
} table;

static entry *find(const table *t, ap_value v)
{
    for (uint32_t i = 0; i < t->entries.len; i++)
        if (t->entries.at[i].value == v)
            return &t->entries.at[i];
    return NULL;
}

/* The value whose buffer v lies in. */
static ap_value root_of(const ap_module *m, ap_value v)
{
    while (ap_value_at(m, v)->kind == AP_VALUE_RESULT) {
        const ap_node_info *node = ap_node_at(m, ap_value_at(m, v)->def);
        const ap_op_info *op = ap_op_get(node->op);
        if (op->planned || op->shares_buffer) {
            v = node->in[0];
        } else if (op->has_body) {
            const ap_block_info *b = ap_block_at(m, node->body);
            v = ap_node_at(m, b->nodes.at[b->nodes.len - 1])->in[ap_value_at(m, v)->index];
        } else {
            break;
        }
    }
    return v;
}

static void add_node(table *t, const ap_node_info *node)
{
    const ap_op_info *op = ap_op_get(node->op);
    for (uint32_t i = 0; i < node->nin && !op->shares_buffer; i++) {
        entry *e = find(t, root_of(t->m, node->in[i]));
        if (e)
            e->last = t->position;
    }
    bool buffer = !op->shares_buffer && node->nin > 0;
    for (uint32_t k = 0; k < node->nout; k++)
        ap_vec_push(t->arena, &t->entries, (entry){node->out[k], t->position, t->position, buffer});
    t->position++;
}

static void add_block(table *t, ap_block block)
{
    const ap_block_info *b = ap_block_at(t->m, block);
    for (uint32_t i = 0; i + 1 < b->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(t->m, b->nodes.at[i]);
        if (node->body != AP_NONE)
            add_block(t, node->body);
        else if (!ap_op_get(node->op)->planned)
            add_node(t, node);
    }
}

/* What is yielded lies in the composite's results. */
static void forget_yields(table *t, ap_block block)
{
    const ap_block_info *b = ap_block_at(t->m, block);
    const ap_node_info *yield = ap_node_at(t->m, b->nodes.at[b->nodes.len - 1]);
    for (uint32_t k = 0; k < yield->nin; k++) {
        entry *e = find(t, root_of(t->m, yield->in[k]));
        if (e)
            e->buffer = false;
    }
}

static int64_t bytes_of(const ap_module *m, const ap_rule_body *body, ap_value v)
{
    ap_type_info type = ap_type_get(m->ctx, ap_value_type(m, v));
    for (uint32_t i = 0; i < body->nvalues; i++)
        if (body->value[i] == v)
            type.sharding = body->sharding[i];
    return ap_local_bytes(m, type.dtype, type.shape, type.sharding);
}

/* Completed values: their prices; they are counted here and not among those that cross. */
static bool price_completions(table *t, ap_resharder *r, const ap_rule_body *body, ap_inner_price *out)
{
    for (uint32_t i = 0; i < body->ninner; i++) {
        const ap_inner *in = &body->inner[i];
        ap_type_info type = ap_type_get(t->m->ctx, ap_value_type(t->m, in->value));
        const ap_reshard_path *path;
        if (!ap_reshard_find(r, type.dtype, type.shape, in->from, in->to, &path))
            return false;
        out->communication_ps = ap_sat_add(out->communication_ps, path->cost);
        int64_t made = ap_align_bytes(ap_local_bytes(t->m, type.dtype, type.shape, in->from));
        out->bytes = ap_sat_add(out->bytes, ap_sat_add(made, path->transient));
        entry *e = find(t, root_of(t->m, in->value));
        if (e)
            e->buffer = false;
    }
    return true;
}

static bool crosses(const table *t, const ap_rule_body *body, const entry *e)
{
    for (uint32_t i = 0; i < body->ninner; i++) {
        const entry *cut = find(t, body->inner[i].value);
        cut = cut ? cut : find(t, root_of(t->m, body->inner[i].value));
        if (cut && e->made <= cut->made && cut->made < e->last)
            return true;
    }
    return false;
}

bool ap_inner_price_get(ap_resharder *r, ap_arena *arena, const ap_module *m, ap_node n, const ap_rule_body *body,
                        ap_inner_price *out)
{
    table t = {.m = m, .arena = arena};
    memset(out, 0, sizeof *out);
    add_block(&t, ap_node_at(m, n)->body);
    forget_yields(&t, ap_node_at(m, n)->body);
    if (!price_completions(&t, r, body, out))
        return false;
    for (uint32_t i = 0; i < t.entries.len; i++) {
        const entry *e = &t.entries.at[i];
        if (e->buffer && crosses(&t, body, e))
            out->bytes = ap_sat_add(out->bytes, ap_align_bytes(bytes_of(m, body, e->value)));
    }
    return true;
}

/* ---- composites that are not cut ---- */

static bool reduces(const ap_node_info *n)
{
    return ap_op_get(n->op)->lower == AP_LOWER_REDUCE &&
           n->u.reduce.spec->operand[0].nletters != n->u.reduce.spec->result.nletters;
}

static bool looks_up(const ap_module *m, const ap_block_info *b)
{
    bool any = false;
    for (uint32_t i = 0; i < b->nodes.len; i++)
        any = any || ap_op_get(ap_node_at(m, b->nodes.at[i])->op)->lower == AP_LOWER_GATHER;
    return any;
}

static bool sums(const ap_module *m, const ap_block_info *b)
{
    bool any = false;
    for (uint32_t i = 0; i < b->nodes.len; i++)
        any = any || reduces(ap_node_at(m, b->nodes.at[i]));
    return any;
}

/* Computed, and of another shape than what is yielded. */
static bool is_of_rows(const ap_module *m, const ap_block_info *b, const ap_node_info *n)
{
    const ap_node_info *yield = ap_node_at(m, b->nodes.at[b->nodes.len - 1]);
    return n->nin > 0 && n->nout == 1 && ap_op_is_pointwise(n->op) &&
           ap_type_get(m->ctx, ap_value_type(m, n->out[0])).shape !=
               ap_type_get(m->ctx, ap_value_type(m, yield->in[0])).shape;
}

/* The terms of a sum are in memory, unless they are few. */
static int64_t terms_bytes(const ap_module *m, const ap_rule_body *body, const ap_node_info *sum)
{
    ap_dtype t = ap_type_dtype(m->ctx, ap_value_type(m, sum->out[0]));
    int64_t terms = bytes_of(m, body, sum->in[0]), result = bytes_of(m, body, sum->out[0]);
    bool narrow = ap_dtype_is_float(t) && ap_dtype_bytes(t) < 4;
    return narrow || result == 0 || terms / result > AP_LOW_MAX_TERMS ? ap_align_bytes(terms) : 0;
}

bool ap_inner_may_hold(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (node->body == AP_NONE)
        return false;
    const ap_block_info *b = ap_block_at(m, node->body);
    bool rows = false;
    for (uint32_t i = 0; i < b->nodes.len; i++)
        rows = rows || is_of_rows(m, b, ap_node_at(m, b->nodes.at[i]));
    return sums(m, b) ? looks_up(m, b) : rows;
}

int64_t ap_inner_held_bytes(const ap_module *m, ap_node n, const ap_rule_body *body)
{
    const ap_block_info *b = ap_block_at(m, ap_node_at(m, n)->body);
    bool sum = sums(m, b), terms = looks_up(m, b);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(m, b->nodes.at[i]);
        if (sum && terms && reduces(node))
            bytes = ap_sat_add(bytes, terms_bytes(m, body, node));
        else if (!sum && is_of_rows(m, b, node))
            bytes = ap_sat_add(bytes, ap_align_bytes(bytes_of(m, body, node->out[0])));
    }
    return bytes;
}
