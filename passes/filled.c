/* One number everywhere is part of the kernels that read it, and lies nowhere; only products, convolutions and others
 * that walk memory by themselves get it written out (local_places.c). */
#include "ir/op.h"
#include "passes/room.h"

/* Does a node of this class read operand k where it lies? */
static bool reads_memory(ap_lowering how, uint32_t k)
{
    switch (how) {
    case AP_LOWER_CONTRACT:
    case AP_LOWER_CONV:
    case AP_LOWER_POOL:
    case AP_LOWER_TOPK:
    case AP_LOWER_CUMULATE:
        return true;
    case AP_LOWER_GATHER:
        return k == 0;
    default:
        return false;
    }
}

/* Who made the value, seen through parts of it, other shapes and shardings. */
static ap_value origin_of(const ap_module *m, ap_value v)
{
    while (ap_value_at(m, v)->kind == AP_VALUE_RESULT) {
        const ap_node_info *n = ap_node_at(m, ap_value_at(m, v)->def);
        const ap_op_info *op = ap_op_get(n->op);
        if (n->nin == 0 || (!op->shares_buffer && !op->planned && op->lower != AP_LOWER_RESHAPE))
            break;
        v = n->in[0];
    }
    return v;
}

bool *ap_filled_find(const ap_module *m, ap_arena *arena)
{
    bool *filled = AP_NEW_ARRAY(arena, bool, m->values.len);
    for (ap_node i = 0; i < m->nodes.len; i++) {
        const ap_node_info *n = ap_node_at(m, i);
        for (uint32_t k = 0; n->block != AP_NONE && k < n->nin; k++)
            if (reads_memory(ap_op_get(n->op)->lower, k))
                filled[origin_of(m, n->in[k])] = true;
    }
    return filled;
}
