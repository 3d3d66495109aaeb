/* Which pointwise items a convolution does on its way. Each must be the only reader of what is before it, go element by
 * element over the whole result, and be one of the steps that local_conv.c names. */
#include "passes/local_conv.h"

void ap_conv_factors_in_result(const ap_low *low, const ap_node_info *n, uint32_t k, int8_t out[AP_MAX_FACTORS])
{
    const ap_shape_info *rs = ap_value_shape(low->m, n->out[0]), *os = ap_value_shape(low->m, n->in[k]);
    for (int d = 0; d < os->rank; d++) {
        for (int f = os->first[d]; f < os->first[d + 1]; f++)
            out[f] = (int8_t)(rs->first[d + rs->rank - os->rank] + f - os->first[d]);
    }
}

uint32_t ap_conv_trail_operand(const ap_low *low, const ap_node_info *n, const ap_conv_trail *t)
{
    return ap_low_root(low, n->in[0]) == t->root ? 0 : 1;
}

void ap_conv_trail_follow(const ap_low *low, const ap_node_info *n, int nfactors, ap_conv_trail *t)
{
    const ap_low_value *v = &low->value[n->in[ap_conv_trail_operand(low, n, t)]];
    for (int f = 0; f < nfactors; f++)
        t->map[f] = v->map[t->map[f]];
    t->root = n->out[0];
}

static uint32_t mask_of_dims(const ap_shape_info *s, const ap_conv_trail *t, int from, int to)
{
    uint32_t mask = 0;
    for (int f = s->first[from]; f < s->first[to]; f++)
        mask |= 1u << t->map[f];
    return mask;
}

ap_conv_reach ap_conv_reach_of(const ap_low *low, const ap_shape_info *ys, const ap_conv_trail *t,
                               const ap_node_info *n, uint32_t k)
{
    const ap_low_value *v = &low->value[n->in[k]], *root = &low->value[v->root];
    int8_t to[AP_MAX_FACTORS];
    uint32_t has = 0;
    if (root->source == AP_LOW_SPLAT)
        return AP_CONV_REACH_NUMBER;
    if (root->source != AP_LOW_MEMORY)
        return AP_CONV_REACH_OTHER;
    ap_conv_factors_in_result(low, n, k, to);
    for (int f = 0; f < v->nfactors; f++)
        has |= 1u << to[f];
    uint32_t channels = mask_of_dims(ys, t, 1, 3), all = mask_of_dims(ys, t, 0, ys->rank);
    return !(has & ~channels) ? AP_CONV_REACH_CHANNELS : has == all ? AP_CONV_REACH_ALL : AP_CONV_REACH_OTHER;
}

static bool is_step(ap_pointwise pw, ap_conv_reach r)
{
    if (pw == AP_PW_ADD)
        return r != AP_CONV_REACH_OTHER;
    if (pw == AP_PW_MUL)
        return r == AP_CONV_REACH_CHANNELS || r == AP_CONV_REACH_NUMBER;
    return (pw == AP_PW_MAX || pw == AP_PW_MIN) && r == AP_CONV_REACH_NUMBER;
}

/* The only use of the value so far, if it is a step; the trail goes on to its result. */
static bool next_step(const ap_low *low, const ap_shape_info *ys, ap_conv_trail *t, uint32_t *out_item)
{
    const ap_low_value *rv = &low->value[t->root];
    if (rv->nuses != 1)
        return false;
    ap_low_use u = low->use[rv->first_use];
    const ap_low_item *it = &low->items.at[u.item];
    const ap_node_info *n = ap_node_at(low->m, it->node);
    if (it->kind != AP_LOW_POINTWISE || it->group != u.item || n->nin > 2)
        return false;
    const ap_low_value *v = &low->value[n->in[u.operand]], *y = &low->value[n->out[0]];
    if (v->nfactors != y->nfactors || v->nfactors != rv->nfactors ||
        ap_type_dtype(low->ctx, ap_value_type(low->m, n->out[0])) !=
            ap_type_dtype(low->ctx, ap_value_type(low->m, t->root)))
        return false;
    ap_conv_trail to = *t;
    ap_conv_trail_follow(low, n, rv->nfactors, &to);
    ap_pointwise pw = ap_op_scalar(n->op);
    if (n->nin == 1 ? pw != AP_PW_RELU : !is_step(pw, ap_conv_reach_of(low, ys, &to, n, 1 - u.operand)))
        return false;
    *t = to;
    *out_item = u.item;
    return true;
}

void ap_conv_trail_start(ap_conv_trail *t, ap_value root)
{
    t->root = root;
    for (int f = 0; f < AP_MAX_FACTORS; f++)
        t->map[f] = (int8_t)f;
}

void ap_low_absorb_steps(ap_low *low, uint32_t item, ap_low_group *g)
{
    ap_value y = ap_low_result(low, &low->items.at[item]);
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, y));
    ap_conv_trail t;
    uint32_t step;
    ap_conv_trail_start(&t, y);
    if (dtype != AP_F32 && dtype != AP_F64)
        return;
    for (int i = 0; i < AP_MAX_CONV_STEPS && next_step(low, ap_value_shape(low->m, y), &t, &step); i++) {
        if (!ap_low_thrift_join(low, item, step, false))
            return;
        low->items.at[step].group = item;
        low->groups.at[step].into = item;
        ap_vec_push(low->scratch, &g->members, (ap_low_member){.item = step});
    }
}
