/* Writing into a body what an assignment means there: shardings, and a reshard behind each value that is completed
 * inside. */
#include "ir/op.h"

static void set_sharding(ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    ap_value_at(m, v)->type = ap_type_make(m->ctx, t.dtype, t.shape, s);
}

static void insert_reshard(ap_module *m, const ap_inner *inner)
{
    ap_node maker = ap_value_at(m, inner->value)->def;
    ap_block block = ap_node_at(m, maker)->block;
    uint32_t at = 0;
    while (ap_block_at(m, block)->nodes.at[at] != maker)
        at++;
    ap_node n = ap_module_add_node(m, AP_OP_RESHARD, 1, &inner->value, 1, ap_node_at(m, maker)->loc);
    ap_value out = ap_node_at(m, n)->out[0];
    ap_value_at(m, out)->type = ap_value_type(m, inner->value);
    set_sharding(m, out, inner->to);
    ap_block_replace_uses(m, block, inner->value, out);
    ap_block_insert(m, block, at + 1, n);
}

void ap_rule_write_body(ap_module *m, ap_node n, const ap_rule_body *body)
{
    ap_block_drop_reshards(m, ap_node_at(m, n)->body);
    for (uint32_t i = 0; i < body->nvalues; i++)
        set_sharding(m, body->value[i], body->sharding[i]);
    for (uint32_t i = 0; i < body->ninner; i++)
        insert_reshard(m, &body->inner[i]);
}
