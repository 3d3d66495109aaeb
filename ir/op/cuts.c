/* Where a partial value inside a composite is completed (DESIGN §4): at the smallest value on the linear path from the
 * reduction to the first node that is not linear in it, the earliest among equals.
 *
 *     %s = reduce sum %x {ab->a1}      split by b: partial from here ..
 *     %m = mul %s, %scale              .. through here (as large: the sum is completed, not this)
 *     %d = sub %x, %m                  x is split: not linear in %m alone
 *
 * Where two partial values meet in a product, one may stay partial: the one that costs more to complete. What a path
 * leads to a yield stays partial. */
#include "ir/op/body.h"

/* The only value that a node passes on partially; AP_NONE when it makes the partial value itself, or joins several. */
static uint32_t passed_value(const body *b, uint32_t node)
{
    const body_node *bn = &b->node[node];
    uint32_t only = AP_NONE;
    if (b->choice[node].group == AP_RULE_NONE)
        return AP_NONE;
    for (uint32_t i = 0; i < bn->nin; i++) {
        if (ap_body_flow(b, bn->in[i]) < FLOW_PARTIAL)
            continue;
        if (only != AP_NONE && only != bn->in[i])
            return AP_NONE;
        only = bn->in[i];
    }
    return only;
}

/* The smallest value on the path that ends with the partial value v. */
static uint32_t smallest_on_path(const body *b, uint32_t v)
{
    uint32_t best = v;
    while (b->maker[v] != AP_NONE && passed_value(b, b->maker[v]) != AP_NONE) {
        v = passed_value(b, b->maker[v]);
        if (b->bytes[v] <= b->bytes[best])
            best = v;
    }
    return best;
}

static bool is_partial(const body *b, const body_node *bn, uint32_t i)
{
    return ap_body_flow(b, bn->in[i]) >= FLOW_PARTIAL;
}

/* All partial operands but those in `keep`: what completing them takes; `cut` (may be NULL) gets where. */
static int64_t complete(const body *b, const body_node *bn, uint32_t keep, bool *cut)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < bn->nin; i++) {
        if (!is_partial(b, bn, i) || (i < 32 && (keep >> i & 1u)))
            continue;
        uint32_t v = smallest_on_path(b, bn->in[i]);
        bool counted = false;
        for (uint32_t k = 0; k < i && !counted; k++)
            counted = bn->in[k] == bn->in[i] && !(k < 32 && (keep >> k & 1u));
        sum = counted ? sum : ap_sat_add(sum, b->bytes[v]);
        if (cut)
            cut[v] = true;
    }
    return sum;
}

/* All operands of the group are partial sums. */
static bool can_keep(const body *b, const body_node *bn, uint32_t group)
{
    for (uint32_t i = 0; i < 32; i++) {
        bool sum = i < bn->nin && ap_body_flow(b, bn->in[i]) == FLOW_PARTIAL + AP_PARTIAL_SUM;
        if ((group >> i & 1u) && !sum)
            return false;
    }
    return true;
}

void ap_body_cut(body *b, const body_node *at, bool passes)
{
    uint32_t keep = 0;
    int64_t least = INT64_MAX;
    for (int g = 0; g < at->rule.ngroups && passes; g++) {
        int64_t cost = can_keep(b, at, at->rule.group[g]) ? complete(b, at, at->rule.group[g], NULL) : INT64_MAX;
        if (cost >= least)
            continue;
        least = cost;
        keep = at->rule.group[g];
    }
    complete(b, at, keep, b->cut);
}
