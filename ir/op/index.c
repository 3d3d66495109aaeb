/* What choosing by index or position means, but for gather (infer_letters.c, rules.c): types, rules and flops of
 * scatter, index, topk, cumulate.
 *
 * scatter: result rows may be split, a rank drops updates of rows elsewhere. Where the indices are split instead, each
 * rank has some of the updates: an addition is then a partial sum, and of the base one rank's share counts; a maximum
 * takes the base as often as one likes. What multiplies or replaces is never split so. */
#include "ir/op/columns.h"

#include <inttypes.h>

static ap_dtype dtype_of(const ap_module *m, ap_value v)
{
    return ap_type_dtype(m->ctx, ap_value_type(m, v));
}

/* ---- scatter ---- */

static bool same_side(const ap_spec_side *a, const ap_spec_side *b)
{
    bool same = a->rank == b->rank && a->nletters == b->nletters;
    for (int d = 0; same && d <= a->rank; d++)
        same = a->first[d] == b->first[d];
    for (int f = 0; same && f < a->nletters; f++)
        same = a->letter[f] == b->letter[f];
    return same;
}

int ap_scatter_indexed(const ap_spec *spec)
{
    const ap_spec_side *base = &spec->operand[0];
    int found = -1;
    for (int f = 0; f < base->nletters; f++) {
        if (ap_spec_side_find(&spec->operand[1], base->letter[f]) >= 0 ||
            ap_spec_side_find(&spec->operand[2], base->letter[f]) >= 0)
            continue;
        if (found >= 0)
            return -1;
        found = f;
    }
    return found;
}

static const char *scatter_fault(const ap_spec *spec)
{
    const ap_spec_side *base = &spec->operand[0], *ids = &spec->operand[1], *updates = &spec->operand[2];
    if (!same_side(base, &spec->result))
        return "the result of a scatter is like its first operand";
    if (ap_scatter_indexed(spec) < 0)
        return "a scatter has exactly one indexed letter";
    for (int f = 0; f < ids->nletters; f++)
        if (ap_spec_side_find(updates, ids->letter[f]) < 0)
            return "a letter of the indices is not in the updates";
    for (int f = 0; f < updates->nletters; f++)
        if (ap_spec_side_find(ids, updates->letter[f]) < 0 && ap_spec_side_find(base, updates->letter[f]) < 0)
            return "a letter of the updates is in no other operand";
    return NULL;
}

ap_status infer_scatter(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.scatter.spec;
    ap_dtype t = dtype_of(m, node->in[0]), u = dtype_of(m, node->in[2]), ids = dtype_of(m, node->in[1]);
    ap_shape_info r;
    AP_TRY(ap_infer_spec(m, n, spec, &r));
    if (scatter_fault(spec))
        return ap_infer_bad_letters(m, n, spec, scatter_fault(spec));
    if (!ap_dtype_is_int(ids))
        return ap_error(m->ctx, node->loc, "indices of %s, not integers", ap_dtype_str(ids));
    if (t != u)
        return ap_error(m->ctx, node->loc, "operand types differ: %s and %s", ap_dtype_str(t), ap_dtype_str(u));
    if (node->u.scatter.kind != AP_SCATTER_SET && t == AP_BOOL)
        return ap_error(m->ctx, node->loc, "a reduction of %s", ap_dtype_str(t));
    return ap_infer_set(m, n, 0, t, &r);
}

void rule_scatter(const ap_module *m, ap_node n, ap_rule *out)
{
    static const ap_letter_kind kind[AP_SCATTER_KIND_COUNT] = {
        [AP_SCATTER_SET] = AP_LETTER_WHOLE, [AP_SCATTER_ADD] = AP_LETTER_SUM, [AP_SCATTER_MUL] = AP_LETTER_WHOLE,
        [AP_SCATTER_MAX] = AP_LETTER_MAX,   [AP_SCATTER_MIN] = AP_LETTER_MIN,
    };
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.scatter.spec;
    ap_scatter_kind how = node->u.scatter.kind;
    int8_t letter_of[AP_SPEC_LETTERS];
    bool base_counts = how == AP_SCATTER_ADD && !ap_rule_is_zero(m, node->in[0]);
    ap_rule_letters_of_spec(m, n, spec, out, letter_of);
    for (int f = 0; f < spec->operand[2].nletters; f++) {
        char c = spec->operand[2].letter[f];
        int8_t l = letter_of[ap_letter_index(c)];
        if (l == AP_RULE_NONE || ap_spec_side_find(&spec->operand[0], c) >= 0)
            continue;
        out->kind[l] = kind[how];
        if (base_counts)
            out->operand_partial[0][l] = AP_PARTIAL_SUM;
    }
    if (how == AP_SCATTER_ADD || how == AP_SCATTER_SET)
        ap_rule_add_group(m, n, out, 1u << 0 | 1u << 2);
}

int64_t flops_scatter(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    return node->u.scatter.kind == AP_SCATTER_SET ? 0 : ap_shape_count(ap_value_shape(m, node->in[2]));
}

/* ---- index ---- */

ap_status infer_index(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_dtype t = dtype_of(m, node->in[0]);
    if (!ap_dtype_is_int(t))
        return ap_error(m->ctx, node->loc, "indices of %s, not integers", ap_dtype_str(t));
    if (node->u.index.limit < 1)
        return ap_error(m->ctx, node->loc, "an index into %" PRId64 " entries", node->u.index.limit);
    return infer_same(m, n);
}

/* Every factor of the result is that of the operand. */
static void rule_same(const ap_module *m, ap_node n, ap_rule *out, int dim)
{
    const ap_shape_info *s = ap_value_shape(m, ap_node_at(m, n)->in[0]);
    for (int d = 0; d < s->rank; d++) {
        for (int f = s->first[d]; d != dim && f < s->first[d + 1]; f++) {
            int8_t l = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
            out->operand[0][f] = l;
            for (uint32_t i = 0; i < out->nresults; i++) {
                const ap_shape_info *r = ap_value_shape(m, ap_node_at(m, n)->out[i]);
                out->result[i][r->first[d] + f - s->first[d]] = l;
            }
        }
    }
}

void rule_index(const ap_module *m, ap_node n, ap_rule *out)
{
    rule_same(m, n, out, -1);
}

/* ---- topk ---- */

static bool is_number(ap_dtype t)
{
    return ap_dtype_is_float(t) || ap_dtype_is_int(t);
}

static ap_status check_dim(ap_module *m, ap_node n, int dim)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *s = ap_value_shape(m, node->in[0]);
    const char *name = ap_op_get(node->op)->name;
    if (dim >= s->rank)
        return ap_error(m->ctx, node->loc, "%s along dimension %d of a value with %d dimensions", name, dim, s->rank);
    if (s->first[dim + 1] - s->first[dim] != 1)
        return ap_error(m->ctx, node->loc, "%s along a dimension that has not one factor: %s", name,
                        ap_shape_text(m, s));
    if (!is_number(dtype_of(m, node->in[0])))
        return ap_error(m->ctx, node->loc, "%s of %s", name, ap_dtype_str(dtype_of(m, node->in[0])));
    return AP_OK;
}

ap_status infer_topk(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *s = ap_value_shape(m, node->in[0]);
    int dim = node->u.topk.dim;
    int64_t k = node->u.topk.k;
    AP_TRY(check_dim(m, n, dim));
    if (k < 1 || k > s->logical[s->first[dim]])
        return ap_error(m->ctx, node->loc, "the first %" PRId64 " of %" PRId64 " elements", k,
                        s->logical[s->first[dim]]);
    ap_shape_info r;
    ap_shape_init(&r);
    for (int d = 0; d < s->rank; d++) {
        bool ok = ap_shape_open_dim(&r) && (d == dim ? ap_shape_add_factor(&r, k, k) : ap_shape_copy_dim(&r, s, d));
        if (ok && d == dim && k != 1)
            ap_shape_take_physical(m, n, &r);
        if (!ok)
            return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "too many factors");
    }
    AP_TRY(ap_infer_set(m, n, 0, dtype_of(m, node->in[0]), &r));
    return ap_infer_set(m, n, 1, AP_I64, &r);
}

void rule_topk(const ap_module *m, ap_node n, ap_rule *out)
{
    rule_same(m, n, out, ap_node_at(m, n)->u.topk.dim);
}

/* A comparison or two for each element and each level of a heap of k. */
int64_t flops_topk(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    int64_t levels = 1;
    for (int64_t k = node->u.topk.k; k > 1; k /= 2)
        levels++;
    return ap_sat_mul(levels, ap_shape_count(ap_value_shape(m, node->in[0])));
}

/* ---- cumulate ---- */

ap_status infer_cumulate(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    AP_TRY(check_dim(m, n, node->u.cumulate.dim));
    if (node->u.cumulate.kind > AP_REDUCE_MIN)
        return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "nothing accumulates in this way");
    return infer_same(m, n);
}

void rule_cumulate(const ap_module *m, ap_node n, ap_rule *out)
{
    rule_same(m, n, out, ap_node_at(m, n)->u.cumulate.dim);
    if (ap_node_at(m, n)->u.cumulate.kind == AP_REDUCE_SUM)
        ap_rule_add_group(m, n, out, 1);
}
