/* Types of the results, for operators with letters: contract, reduce, view, gather. Each operand's factors
 * bind the letters to extents; the result's shape is read off its side of the spec. */
#include "ir/op/columns.h"

#include <inttypes.h>
#include <string.h>

typedef struct binding {
    bool set[AP_SPEC_LETTERS];
    int64_t logical[AP_SPEC_LETTERS], physical[AP_SPEC_LETTERS];
} binding;

static ap_status does_not_fit(ap_module *m, ap_node n, const ap_spec *spec, const char *what, const ap_shape_info *s)
{
    char text[AP_SPEC_STR_MAX];
    ap_spec_str(spec, text);
    return ap_error(m->ctx, ap_node_at(m, n)->loc, "letters {%s} do not fit the shape %s of the %s", text,
                    ap_shape_text(m, s), what);
}

ap_status ap_infer_bad_letters(ap_module *m, ap_node n, const ap_spec *spec, const char *why)
{
    char text[AP_SPEC_STR_MAX];
    ap_spec_str(spec, text);
    return ap_error(m->ctx, ap_node_at(m, n)->loc, "letters {%s}: %s", text, why);
}

/* Factors of s give their extents to the letters of one side. */
static ap_status bind_side(ap_module *m, ap_node n, const ap_spec *spec, const ap_spec_side *side,
                           const ap_shape_info *s, const char *what, binding *b)
{
    if (side->rank != s->rank || side->nletters != s->nfactors)
        return does_not_fit(m, n, spec, what, s);
    for (int d = 0; d <= side->rank; d++) {
        if (side->first[d] != s->first[d])
            return does_not_fit(m, n, spec, what, s);
    }
    for (int f = 0; f < side->nletters; f++) {
        int l = ap_letter_index(side->letter[f]);
        if (ap_spec_side_find(side, side->letter[f]) != f)
            return ap_infer_bad_letters(m, n, spec, "a letter occurs twice in one operand");
        if (!b->set[l]) {
            b->set[l] = true;
            b->logical[l] = s->logical[f];
            b->physical[l] = s->physical[f];
        } else if (b->logical[l] != s->logical[f] || b->physical[l] != s->physical[f]) {
            bool inner = ap_spec_side_find(&spec->result, side->letter[f]) < 0;
            return ap_error(m->ctx, ap_node_at(m, n)->loc, "%s dimensions differ: %" PRId64 " and %" PRId64,
                            inner ? "inner" : "batch", b->logical[l], s->logical[f]);
        }
    }
    return AP_OK;
}

/* The shape that the result side describes; every letter must be bound. */
static ap_status result_shape(ap_module *m, ap_node n, const ap_spec *spec, const binding *b, ap_shape_info *out)
{
    const ap_spec_side *r = &spec->result;
    ap_shape_init(out);
    for (int d = 0; d < r->rank; d++) {
        if (!ap_shape_open_dim(out))
            return ap_infer_bad_letters(m, n, spec, "too many dimensions in the result");
        for (int f = r->first[d]; f < r->first[d + 1]; f++) {
            int l = ap_letter_index(r->letter[f]);
            if (!b->set[l])
                return ap_infer_bad_letters(m, n, spec, "a letter of the result is in no operand");
            if (ap_spec_side_find(r, r->letter[f]) != f)
                return ap_infer_bad_letters(m, n, spec, "a letter occurs twice in the result");
            if (!ap_shape_add_factor(out, b->logical[l], b->physical[l]))
                return ap_infer_bad_letters(m, n, spec, "too many factors in the result");
        }
    }
    return AP_OK;
}

static ap_status bind_operands(ap_module *m, ap_node n, const ap_spec *spec, binding *b)
{
    static const char *const what[AP_MAX_SPEC_OPERANDS] = {"first operand", "second operand", "third operand"};
    const ap_node_info *node = ap_node_at(m, n);
    memset(b, 0, sizeof *b);
    if (!spec || spec->noperands != node->nin)
        return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "%s without letters for all operands", ap_op_get(node->op)->name);
    for (uint32_t i = 0; i < node->nin; i++)
        AP_TRY(
            bind_side(m, n, spec, &spec->operand[i], ap_value_shape(m, node->in[i]), what[node->nin == 1 ? 0 : i], b));
    return AP_OK;
}

ap_status ap_infer_spec(ap_module *m, ap_node n, const ap_spec *spec, ap_shape_info *out)
{
    binding b;
    AP_TRY(bind_operands(m, n, spec, &b));
    return result_shape(m, n, spec, &b, out);
}

static bool is_number(ap_dtype t)
{
    return ap_dtype_is_float(t) || ap_dtype_is_int(t);
}

ap_status infer_contract(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.spec;
    binding b;
    AP_TRY(bind_operands(m, n, spec, &b));
    ap_dtype t0 = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    ap_dtype t1 = ap_type_dtype(m->ctx, ap_value_type(m, node->in[1]));
    if (t0 != t1)
        return ap_error(m->ctx, node->loc, "operand types differ: %s and %s", ap_dtype_str(t0), ap_dtype_str(t1));
    if (!is_number(t0))
        return ap_error(m->ctx, node->loc, "a product of %s", ap_dtype_str(t0));
    for (int i = 0; i < 2; i++) {
        const ap_spec_side *side = &spec->operand[i], *other = &spec->operand[1 - i];
        for (int f = 0; f < side->nletters; f++) {
            if (ap_spec_side_find(other, side->letter[f]) < 0 && ap_spec_side_find(&spec->result, side->letter[f]) < 0)
                return ap_infer_bad_letters(m, n, spec, "a letter of one operand only is not in the result");
        }
    }
    ap_shape_info r;
    AP_TRY(result_shape(m, n, spec, &b, &r));
    return ap_infer_set(m, n, 0, t0, &r);
}

ap_status infer_reduce(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.reduce.spec;
    binding b;
    AP_TRY(bind_operands(m, n, spec, &b));
    ap_dtype t = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    if (!is_number(t))
        return ap_error(m->ctx, node->loc, "a reduction of %s", ap_dtype_str(t));
    int reduced = 0;
    for (int f = 0; f < spec->operand[0].nletters; f++)
        reduced += ap_spec_side_find(&spec->result, spec->operand[0].letter[f]) < 0;
    bool arg = node->u.reduce.kind == AP_REDUCE_ARGMAX || node->u.reduce.kind == AP_REDUCE_ARGMIN;
    if (arg && reduced != 1)
        return ap_infer_bad_letters(m, n, spec, "argmax and argmin reduce exactly one letter");
    ap_shape_info r;
    AP_TRY(result_shape(m, n, spec, &b, &r));
    return ap_infer_set(m, n, 0, arg ? AP_I64 : t, &r);
}

ap_status infer_view(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.spec;
    binding b;
    AP_TRY(bind_operands(m, n, spec, &b));
    for (int f = 0; f < spec->operand[0].nletters; f++) {
        if (ap_spec_side_find(&spec->result, spec->operand[0].letter[f]) < 0)
            return ap_infer_bad_letters(m, n, spec, "a letter of the operand is not in the result");
    }
    ap_type given = ap_value_type(m, node->out[0]);
    if (given) /* gives the extents of letters that only the result has */
        AP_TRY(bind_side(m, n, spec, &spec->result, ap_type_shape(m->ctx, given), "result", &b));
    ap_shape_info r;
    AP_TRY(result_shape(m, n, spec, &b, &r));
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), &r);
}

ap_status infer_gather(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.spec;
    binding b;
    AP_TRY(bind_operands(m, n, spec, &b));
    ap_dtype index = ap_type_dtype(m->ctx, ap_value_type(m, node->in[1]));
    if (!ap_dtype_is_int(index))
        return ap_error(m->ctx, node->loc, "indices of %s, not integers", ap_dtype_str(index));
    int indexed = 0;
    const ap_spec_side *data = &spec->operand[0], *ids = &spec->operand[1];
    for (int f = 0; f < data->nletters; f++) {
        bool in_ids = ap_spec_side_find(ids, data->letter[f]) >= 0;
        indexed += !in_ids && ap_spec_side_find(&spec->result, data->letter[f]) < 0;
    }
    if (indexed != 1)
        return ap_infer_bad_letters(m, n, spec, "a gather has exactly one indexed letter");
    for (int f = 0; f < ids->nletters; f++) {
        if (ap_spec_side_find(&spec->result, ids->letter[f]) < 0)
            return ap_infer_bad_letters(m, n, spec, "a letter of the indices is not in the result");
    }
    ap_shape_info r;
    AP_TRY(result_shape(m, n, spec, &b, &r));
    return ap_infer_set(m, n, 0, ap_type_dtype(m->ctx, ap_value_type(m, node->in[0])), &r);
}
