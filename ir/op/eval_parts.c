/* Evaluation of pointwise operators and of those that move parts of dimensions, on one rank: slice, pad,
 * concat, reshape. */
#include "ir/op/columns.h"

#include <string.h>

/* ---- pointwise ---- */

/* Strides of an operand along the factors of the result; 0 where it is broadcast. */
static bool broadcast_strides(const ap_tensor *x, const ap_shape_info *r, int64_t out[AP_MAX_FACTORS])
{
    int64_t stride[AP_MAX_FACTORS];
    const ap_shape_info *s = &x->shape;
    ap_tensor_strides(s, stride);
    memset(out, 0, AP_MAX_FACTORS * sizeof *out);
    for (int d = 0; d < s->rank; d++) {
        int rd = d + r->rank - s->rank;
        for (int f = s->first[d], rf = r->first[rd]; f < s->first[d + 1]; f++, rf++) {
            if (s->physical[f] != r->physical[rf])
                return false;
            out[rf] = stride[f];
        }
    }
    return true;
}

ap_status eval_pointwise(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    ap_pointwise op = ap_op_scalar(node->op);
    const ap_tensor *x[3];
    int64_t stride[3][AP_MAX_FACTORS], at[3] = {0}, index[AP_MAX_FACTORS] = {0};
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    for (uint32_t i = 0; i < node->nin; i++) {
        x[i] = ap_eval_operand(e, n, i);
        if (!broadcast_strides(x[i], &r->shape, stride[i]))
            return ap_eval_mismatch(e, n);
    }
    ap_dtype from = x[op == AP_PW_SELECT ? 1 : 0]->dtype, to = ap_eval_dtype(e, n, 0);
    for (int64_t k = 0; k < r->count; k++) {
        ap_scalar operand[3] = {0};
        for (uint32_t i = 0; i < node->nin; i++)
            operand[i] = x[i]->at[at[i]];
        r->at[k] = ap_pointwise_eval(op, from, to, operand);
        for (int f = r->shape.nfactors - 1; f >= 0; f--) {
            bool wraps = ++index[f] == r->shape.physical[f];
            for (uint32_t i = 0; i < node->nin; i++)
                at[i] += wraps ? stride[i][f] - index[f] * stride[i][f] : stride[i][f];
            if (!wraps)
                break;
            index[f] = 0;
        }
    }
    return AP_OK;
}

/* ---- parts of dimensions ---- */

ap_status eval_slice(ap_eval *e, ap_node n)
{
    const ap_slice_attr *slice = ap_node_at(e->m, n)->u.slice;
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    int64_t from[AP_MAX_FACTORS], to[AP_MAX_FACTORS], step[AP_MAX_FACTORS], offset = 0;
    ap_tensor_strides(&x->shape, from);
    ap_tensor_strides(&r->shape, to);
    int rf = 0;
    for (int f = 0; f < x->shape.nfactors; f++) {
        const ap_range *range = &slice->range[f];
        int64_t extent = range->whole ? x->shape.physical[f] : range->count;
        if (!range->whole)
            offset += range->start * from[f];
        if (!range->whole && extent == 1)
            continue;
        if (rf == r->shape.nfactors || r->shape.physical[rf] != extent)
            return ap_eval_mismatch(e, n);
        step[rf++] = range->whole ? from[f] : range->step * from[f];
    }
    if (rf != r->shape.nfactors)
        return ap_eval_mismatch(e, n);
    if (r->count > 0)
        ap_tensor_copy_box(r->at, to, x->at + offset, step, rf, r->shape.physical);
    return AP_OK;
}

ap_status eval_pad(ap_eval *e, ap_node n)
{
    const ap_pad_attr *pad = ap_node_at(e->m, n)->u.pad;
    const ap_tensor *x = ap_eval_operand(e, n, 0), *fill = ap_eval_operand(e, n, 1);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    for (int64_t i = 0; i < r->count; i++)
        r->at[i] = fill->at[0];
    int64_t from[AP_MAX_FACTORS], strides[AP_MAX_FACTORS], to[AP_MAX_FACTORS], offset = 0;
    ap_tensor_strides(&x->shape, from);
    ap_tensor_strides(&r->shape, strides);
    for (int d = 0; d < x->shape.rank; d++) {
        int rf = r->shape.first[d];
        if (r->shape.first[d + 1] > rf)
            offset += pad->lo[d] * strides[rf];
        for (int f = x->shape.first[d]; f < x->shape.first[d + 1]; f++, rf++) {
            if (rf == r->shape.first[d + 1])
                return ap_eval_mismatch(e, n);
            to[f] = strides[rf];
        }
    }
    if (x->count > 0)
        ap_tensor_copy_box(r->at + offset, to, x->at, from, x->shape.nfactors, x->shape.physical);
    return AP_OK;
}

ap_status eval_concat(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    int dim = node->u.concat.dim;
    bool stacks = ap_concat_stacks(e->m, n);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    int64_t strides[AP_MAX_FACTORS], offset = 0;
    ap_tensor_strides(&r->shape, strides);
    for (uint32_t i = 0; i < node->nin; i++) {
        const ap_tensor *x = ap_eval_operand(e, n, i);
        const ap_shape_info *s = &x->shape;
        int64_t from[AP_MAX_FACTORS], to[AP_MAX_FACTORS];
        ap_tensor_strides(s, from);
        for (int d = 0; d < s->rank; d++) {
            int rf = r->shape.first[d] + (d == dim && stacks);
            for (int f = s->first[d]; f < s->first[d + 1]; f++, rf++) {
                bool cut = d == dim && !stacks && node->nin > 1;
                if (rf >= r->shape.first[d + 1] || (!cut && s->physical[f] != r->shape.physical[rf]))
                    return ap_eval_mismatch(e, n);
                to[f] = strides[rf];
            }
        }
        if (x->count > 0)
            ap_tensor_copy_box(r->at + offset, to, x->at, from, s->nfactors, s->physical);
        if (r->shape.first[dim] < r->shape.first[dim + 1])
            offset += (stacks ? 1 : ap_shape_dim(s, dim)) * strides[r->shape.first[dim]];
    }
    return AP_OK;
}

ap_status eval_reshape(ap_eval *e, ap_node n)
{
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    if (x->count != r->count)
        return ap_eval_mismatch(e, n);
    memcpy(r->at, x->at, (size_t)x->count * sizeof *x->at);
    return AP_OK;
}
