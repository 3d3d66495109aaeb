/* The table of core operators: the rows of ir/op.def and ir/op/pointwise.def, all columns. */
#include "ir/op.h"

#include "ir/op/columns.h"

#include <assert.h>
#include <string.h>

static const ap_op_info ops[AP_OP_COUNT] = {
#define OP(E, ...) [AP_OP_##E] = {__VA_ARGS__},
#include "ir/op.def"
#undef OP
/* The braces of LINEAR do not protect its comma: it arrives as two arguments. */
#define POINTWISE(E, text, NIN, RESULT, DOMAIN_, LINEAR_A, LINEAR_B, FLOPS, formula)                                   \
    [AP_OP_##E] = {.name = #text,                                                                                      \
                   .nin = (NIN),                                                                                       \
                   .nout = 1,                                                                                          \
                   .infer = infer_pointwise,                                                                           \
                   .rule = rule_pointwise,                                                                             \
                   .eval = eval_pointwise,                                                                             \
                   .pointwise = true,                                                                                  \
                   .result = AP_RESULT_##RESULT,                                                                       \
                   .domain = AP_DOMAIN_##DOMAIN_,                                                                      \
                   .linear = LINEAR_A,                                                                                 \
                   LINEAR_B,                                                                                           \
                   .flops_per_element = (FLOPS)},
#include "ir/op/pointwise.def"
#undef POINTWISE
};

const ap_op_info *ap_op_get(ap_op op)
{
    assert(op < AP_OP_COUNT);
    return &ops[op];
}

bool ap_op_from_str(const char *s, ap_op *out)
{
    for (int op = 0; op < AP_OP_COUNT; op++) {
        if (ops[op].name && strcmp(ops[op].name, s) == 0) {
            *out = (ap_op)op;
            return true;
        }
    }
    return false;
}

ap_status ap_node_infer(ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *info = ap_op_get(node->op);
    if (info->nin >= 0 && node->nin != (uint32_t)info->nin)
        return ap_error(m->ctx, node->loc, "%s takes %d operands, here are %u", info->name, info->nin, node->nin);
    if (info->nout >= 0 && node->nout != (uint32_t)info->nout)
        return ap_error(m->ctx, node->loc, "%s has %d results, here are %u", info->name, info->nout, node->nout);
    for (uint32_t i = 0; i < node->nin; i++) {
        if (ap_value_type(m, node->in[i]) == 0)
            return ap_fail(m->ctx, AP_ERR_BUG, node->loc, "operand %u of %s has no type", i, info->name);
    }
    return info->infer(m, n);
}

int64_t ap_node_flops(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *info = ap_op_get(node->op);
    if (info->flops)
        return info->flops(m, n);
    if (info->pointwise)
        return ap_sat_mul(info->flops_per_element, ap_shape_count(ap_value_shape(m, node->out[0])));
    return 0;
}
