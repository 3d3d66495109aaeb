/* Boundary values of a pipeline in the planner: what they hold, all the time and as often as there are slots, and what
 * it takes to have them in a sharding. Their holders lie elsewhere, as those of inputs and outputs do: a slot argument
 * is read where it arrived; a slot result has its buffer like any value, and a place that it is left in beside that. */
#include "passes/plan_problem.h"

void ap_slot_price_add(const ap_plan_slots *slots, const ap_module *m, ap_name name, bool result, ap_type type,
                       ap_slot_price *sum)
{
    ap_type_info t = ap_type_get(m->ctx, type);
    int64_t bytes = ap_align_bytes(ap_local_bytes(m, t.dtype, t.shape, t.sharding));
    const ap_plan_slot *slot = NULL;
    for (uint32_t i = 0; i < slots->n && !slot; i++)
        if (slots->at[i].name == name && slots->at[i].result == result)
            slot = &slots->at[i];
    sum->bytes = ap_sat_add(sum->bytes, ap_sat_mul(slot ? slot->depth : 1, bytes));
    int64_t ps = slot && slot->cost ? slot->cost(slot->user, m, type) : 0;
    sum->ps = ps == AP_FORBIDDEN || sum->ps == AP_FORBIDDEN ? AP_FORBIDDEN : ap_sat_add(sum->ps, ps);
}

bool ap_planning_slots(const ap_planning *p, ap_value v, ap_sharding kept, ap_slot_price *out)
{
    const ap_module *m = p->m;
    const ap_func_info *f = &m->funcs.at[p->func];
    const ap_block_info *b = ap_block_at(m, p->block);
    const ap_node_info *ret = ap_node_at(m, b->nodes.at[b->nodes.len - 1]);
    const ap_value_info *info = ap_value_at(m, v);
    ap_type_info t = ap_type_get(m->ctx, info->type);
    bool any = info->kind == AP_VALUE_ARGUMENT && f->argument_slot[info->index];
    ap_type type = ap_type_make(m->ctx, t.dtype, t.shape, kept);
    *out = (ap_slot_price){0};
    if (any)
        ap_slot_price_add(&p->opt->slots, m, info->name, false, type, out);
    for (uint32_t i = 0; i < ret->nin; i++)
        if (ret->in[i] == v && f->result_slot[i]) {
            ap_slot_price_add(&p->opt->slots, m, f->result_name[i], true, type, out);
            any = true;
        }
    return any;
}
