/* Logical floating-point operations. A multiply and an add count as two. */
#include "ir/op/columns.h"

int64_t flops_contract(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec *spec = node->u.spec;
    int64_t flops = ap_sat_mul(2, ap_shape_count(ap_value_shape(m, node->out[0])));
    const ap_shape_info *a = ap_value_shape(m, node->in[0]);
    for (int f = 0; f < spec->operand[0].nletters; f++) {
        if (ap_spec_side_find(&spec->result, spec->operand[0].letter[f]) < 0)
            flops = ap_sat_mul(flops, a->logical[f]);
    }
    return flops;
}

int64_t flops_operands(const ap_module *m, ap_node n)
{
    return ap_shape_count(ap_value_shape(m, ap_node_at(m, n)->in[0]));
}

int64_t flops_composite(const ap_module *m, ap_node n)
{
    const ap_block_info *body = ap_block_at(m, ap_node_at(m, n)->body);
    int64_t flops = 0;
    for (uint32_t i = 0; i < body->nodes.len; i++)
        flops = ap_sat_add(flops, ap_node_flops(m, body->nodes.at[i]));
    return flops;
}
