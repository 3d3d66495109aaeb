/* Sharding rules: which factors of operands and results correspond, and what splitting them means
 * (DESIGN §4, §5). A factor without letter stays whole. Composites: composite.c. */
#include "ir/op/columns.h"

#include <assert.h>
#include <string.h>

/* ---- helpers ---- */

int8_t ap_rule_add_letter(ap_rule *out, ap_letter_kind kind, const ap_shape_info *s, int f)
{
    if (out->nletters == AP_MAX_LETTERS)
        return AP_RULE_NONE;
    int8_t l = (int8_t)out->nletters++;
    out->kind[l] = kind;
    out->logical[l] = s->logical[f];
    out->physical[l] = s->physical[f];
    return l;
}

/* Booleans are never addends. */
static bool adds_up(const ap_module *m, ap_node n)
{
    return ap_type_dtype(m->ctx, ap_value_type(m, ap_node_at(m, n)->out[0])) != AP_BOOL;
}

void ap_rule_add_group(const ap_module *m, ap_node n, ap_rule *out, uint32_t mask)
{
    if (mask && adds_up(m, n)) {
        assert(out->ngroups < 4);
        out->group[out->ngroups++] = mask;
    }
}

/* Letters of a spec: one rule letter per spec letter, in order of the operands, then of the result. */
static void letters_of_side(ap_rule *out, int8_t letter_of[AP_SPEC_LETTERS], const ap_spec_side *side,
                            const ap_shape_info *s, int8_t row[AP_MAX_FACTORS])
{
    for (int f = 0; f < side->nletters; f++) {
        int l = ap_letter_index(side->letter[f]);
        if (letter_of[l] == AP_RULE_NONE)
            letter_of[l] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
        row[f] = letter_of[l];
    }
}

void ap_rule_letters_of_spec(const ap_module *m, ap_node n, const ap_spec *spec, ap_rule *out, int8_t *letter_of)
{
    const ap_node_info *node = ap_node_at(m, n);
    memset(letter_of, AP_RULE_NONE, AP_SPEC_LETTERS);
    for (uint32_t i = 0; i < node->nin; i++)
        letters_of_side(out, letter_of, &spec->operand[i], ap_value_shape(m, node->in[i]), out->operand[i]);
    letters_of_side(out, letter_of, &spec->result, ap_value_shape(m, node->out[0]), out->result[0]);
}

/* Gives letters of an operand that the result lacks the kind `kind`. */
static void mark_reduced(ap_rule *out, const ap_spec *spec, const int8_t letter_of[AP_SPEC_LETTERS], int operand,
                         ap_letter_kind kind)
{
    const ap_spec_side *side = &spec->operand[operand];
    for (int f = 0; f < side->nletters; f++) {
        int8_t l = letter_of[ap_letter_index(side->letter[f])];
        if (l != AP_RULE_NONE && ap_spec_side_find(&spec->result, side->letter[f]) < 0)
            out->kind[l] = kind;
    }
}

bool ap_rule_is_zero(const ap_module *m, ap_value v)
{
    const ap_value_info *info = ap_value_at(m, v);
    while (info->kind == AP_VALUE_RESULT) {
        const ap_node_info *n = ap_node_at(m, info->def);
        const ap_op_info *op = ap_op_get(n->op);
        if (!op->planned && !op->collective && !op->step)
            break;
        info = ap_value_at(m, n->in[0]);
    }
    if (info->kind != AP_VALUE_RESULT || ap_op_get(ap_node_at(m, info->def)->op)->lower != AP_LOWER_CONSTANT)
        return false;
    const ap_data *d = ap_node_at(m, info->def)->u.constant;
    bool zero = d && d->kind == AP_DATA_SPLAT;
    for (uint64_t i = 0; zero && i < d->size; i++)
        zero = ((const uint8_t *)d->bytes)[i] == 0;
    return zero;
}

/* ---- the columns ---- */

void rule_source(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_shape_info *s = ap_value_shape(m, ap_node_at(m, n)->out[0]);
    for (int f = 0; f < s->nfactors; f++)
        out->result[0][f] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
}

static void pointwise_groups(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *info = ap_op_get(node->op);
    ap_dtype t = ap_type_dtype(m->ctx, ap_value_type(m, node->out[0]));
    if (info->result == AP_RESULT_CAST) { /* truncation does not distribute over addition */
        ap_dtype from = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
        if (!ap_dtype_is_float(t) || !ap_dtype_is_float(from))
            return;
    }
    if (node->op == AP_OP_DIV && !ap_dtype_is_float(t))
        return;
    if (node->op == AP_OP_SELECT && (ap_rule_is_zero(m, node->in[1]) || ap_rule_is_zero(m, node->in[2]))) {
        ap_rule_add_group(m, n, out, 1u << (ap_rule_is_zero(m, node->in[1]) ? 2 : 1));
        return;
    }
    for (int g = 0; g < 2; g++)
        ap_rule_add_group(m, n, out, info->linear[g]);
}

void rule_pointwise(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *r = ap_value_shape(m, node->out[0]);
    rule_source(m, n, out);
    for (uint32_t i = 0; i < node->nin; i++) {
        const ap_shape_info *s = ap_value_shape(m, node->in[i]);
        for (int d = 0; d < s->rank; d++) {
            int rd = d + r->rank - s->rank;
            for (int f = s->first[d]; f < s->first[d + 1]; f++)
                out->operand[i][f] = out->result[0][r->first[rd] + f - s->first[d]];
        }
    }
    pointwise_groups(m, n, out);
}

void rule_contract(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_spec *spec = ap_node_at(m, n)->u.spec;
    int8_t letter_of[AP_SPEC_LETTERS];
    ap_rule_letters_of_spec(m, n, spec, out, letter_of);
    mark_reduced(out, spec, letter_of, 0, AP_LETTER_SUM);
    ap_rule_add_group(m, n, out, 1);
    ap_rule_add_group(m, n, out, 2);
}

void rule_reduce(const ap_module *m, ap_node n, ap_rule *out)
{
    static const ap_letter_kind kind[AP_REDUCE_KIND_COUNT] = {
        [AP_REDUCE_SUM] = AP_LETTER_SUM, [AP_REDUCE_PROD] = AP_LETTER_WHOLE,   [AP_REDUCE_MAX] = AP_LETTER_MAX,
        [AP_REDUCE_MIN] = AP_LETTER_MIN, [AP_REDUCE_ARGMAX] = AP_LETTER_WHOLE, [AP_REDUCE_ARGMIN] = AP_LETTER_WHOLE,
    };
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.reduce.spec;
    int8_t letter_of[AP_SPEC_LETTERS];
    ap_rule_letters_of_spec(m, n, spec, out, letter_of);
    mark_reduced(out, spec, letter_of, 0, kind[node->u.reduce.kind]);
    if (node->u.reduce.kind == AP_REDUCE_SUM)
        ap_rule_add_group(m, n, out, 1);
}

void rule_view(const ap_module *m, ap_node n, ap_rule *out)
{
    int8_t letter_of[AP_SPEC_LETTERS];
    ap_rule_letters_of_spec(m, n, ap_node_at(m, n)->u.spec, out, letter_of);
    ap_rule_add_group(m, n, out, 1);
}

void rule_gather(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_spec *spec = ap_node_at(m, n)->u.spec;
    int8_t letter_of[AP_SPEC_LETTERS];
    ap_rule_letters_of_spec(m, n, spec, out, letter_of);
    mark_reduced(out, spec, letter_of, 0, adds_up(m, n) ? AP_LETTER_INDEXED : AP_LETTER_WHOLE);
    ap_rule_add_group(m, n, out, 1);
}

void rule_slice(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *s = ap_value_shape(m, node->in[0]);
    int rf = 0;
    for (int f = 0; f < s->nfactors; f++) {
        const ap_range *range = &node->u.slice->range[f];
        if (range->whole)
            out->operand[0][f] = out->result[0][rf++] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
        else
            rf += range->count != 1;
    }
    ap_rule_add_group(m, n, out, 1);
}

static bool is_zero_constant(const ap_module *m, ap_value v)
{
    const ap_value_info *info = ap_value_at(m, v);
    if (info->kind != AP_VALUE_RESULT || ap_node_at(m, info->def)->op != AP_OP_CONSTANT)
        return false;
    const ap_data *d = ap_node_at(m, info->def)->u.constant;
    if (!d || (d->kind != AP_DATA_SPLAT && d->kind != AP_DATA_INLINE))
        return false;
    for (uint64_t i = 0; i < d->size; i++) {
        if (((const uint8_t *)d->bytes)[i])
            return false;
    }
    return true;
}

void rule_pad(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *s = ap_value_shape(m, node->in[0]), *r = ap_value_shape(m, node->out[0]);
    for (int d = 0; d < s->rank; d++) {
        if (node->u.pad->lo[d] || node->u.pad->hi[d])
            continue;
        for (int f = s->first[d], rf = r->first[d]; f < s->first[d + 1]; f++, rf++)
            out->operand[0][f] = out->result[0][rf] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
    }
    if (is_zero_constant(m, node->in[1]))
        ap_rule_add_group(m, n, out, 1);
}

void rule_concat(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_shape_info *s = ap_value_shape(m, node->in[0]), *r = ap_value_shape(m, node->out[0]);
    bool stacks = ap_concat_stacks(m, n);
    for (int d = 0; d < s->rank; d++) {
        if (d == node->u.concat.dim && !stacks)
            continue;
        int rf = r->first[d] + (d == node->u.concat.dim);
        for (int f = s->first[d]; f < s->first[d + 1]; f++, rf++) {
            int8_t l = ap_rule_add_letter(out, AP_LETTER_PARALLEL, s, f);
            int shift = f - s->first[d];
            out->result[0][rf] = l;
            for (uint32_t i = 0; i < node->nin; i++)
                out->operand[i][ap_value_shape(m, node->in[i])->first[d] + shift] = l;
        }
    }
    if (node->nin <= 32)
        ap_rule_add_group(m, n, out, node->nin == 32 ? UINT32_MAX : (1u << node->nin) - 1);
}

/* Storage is row-major over factors, so a factor that stands on both sides behind as many elements is the same one. */
void rule_reshape(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_shape_info *x = ap_value_shape(m, ap_node_at(m, n)->in[0]),
                        *y = ap_value_shape(m, ap_node_at(m, n)->out[0]);
    int64_t before_x = 1, before_y = 1;
    ap_rule_add_group(m, n, out, 1);
    for (int f = 0, g = 0; f < x->nfactors && g < y->nfactors && before_x > 0;) {
        if (before_x == before_y && x->logical[f] == y->logical[g] && x->physical[f] == y->physical[g]) {
            out->operand[0][f] = out->result[0][g] = ap_rule_add_letter(out, AP_LETTER_PARALLEL, x, f);
            before_x = before_y = ap_sat_mul(before_x, x->logical[f++]);
            g++;
        } else if (before_x <= before_y) {
            before_x = ap_sat_mul(before_x, x->logical[f++]);
        } else {
            before_y = ap_sat_mul(before_y, y->logical[g++]);
        }
    }
}
