/* Which values lie channels-last. Convolutions want their operands and make their results so (local_conv.c); what
 * stands between them should not turn the order round and back. Every value that is joined to one by operators that go
 * element by element, by pools, concatenations, padding or exchanges gets the same factors last, once and for all its
 * readers.
 *
 *     channels   a mask over the factors of a root: these lie innermost, in their order, the others around them
 *
 * In a program without convolutions no value has one. Places that others own (a caller's tensor, a part of a
 * concatenation) are as they are. */
#include "passes/local.h"

#include <string.h>

void ap_low_order(const ap_low_value *v, int n, const int64_t *extent, int64_t *stride)
{
    int64_t next = 1;
    for (int channels = 1; channels >= 0 && v->channels; channels--) {
        for (int f = n - 1; f >= 0; f--) {
            if ((int)(v->channels >> f & 1) != channels)
                continue;
            stride[f] = next;
            next *= extent[f] ? extent[f] : 1;
        }
    }
}

/* The mask over the factors of a value that its root's mask means. */
static uint32_t mask_of(const ap_low *low, ap_value v)
{
    const ap_low_value *lv = &low->value[v], *root = &low->value[lv->root];
    uint32_t mask = 0;
    for (int f = 0; f < root->nfactors; f++) {
        if (root->channels >> f & 1)
            mask |= 1u << lv->map[f];
    }
    return mask;
}

/* Before planning, the split decides whose word is the first: then nobody knows. */
static bool contradict(const ap_low *low, const ap_low_value *lv, ap_low_value *root, uint32_t mask)
{
    uint32_t own = 0;
    for (int f = 0; f < root->nfactors; f++) {
        if (mask >> lv->map[f] & 1)
            own |= 1u << f;
    }
    if (!low->early || root->torn || own == root->channels)
        return false;
    return root->torn = true;
}

/* The first word is the last one. */
static bool set_mask(ap_low *low, ap_value v, uint32_t mask)
{
    const ap_low_value *lv = &low->value[v];
    ap_low_value *root = &low->value[lv->root];
    if (!mask || root->source != AP_LOW_MEMORY)
        return false;
    if (root->channels)
        return contradict(low, lv, root, mask);
    for (int f = 0; f < root->nfactors; f++) {
        if (mask >> lv->map[f] & 1)
            root->channels |= 1u << f;
    }
    return root->channels != 0;
}

static uint32_t dims_mask(const ap_shape_info *s, int from, int to)
{
    uint32_t mask = 0;
    for (int f = s->first[from]; f < s->first[to]; f++)
        mask |= 1u << f;
    return mask;
}

/* The mask dimension by dimension, aligned at the last: for a dimension whose factors differ all or none. */
static uint32_t carried(const ap_shape_info *from, uint32_t mask, const ap_shape_info *to)
{
    uint32_t r = 0;
    for (int d = 0; d < from->rank; d++) {
        int t = d + to->rank - from->rank, n = from->first[d + 1] - from->first[d];
        if (t < 0)
            continue;
        bool same = to->first[t + 1] - to->first[t] == n;
        uint32_t here = mask & dims_mask(from, d, d + 1);
        for (int j = 0; j < n && same; j++)
            r |= (here >> (from->first[d] + j) & 1u) << (to->first[t] + j);
        if (!same && here)
            r |= dims_mask(to, t, t + 1);
    }
    return r;
}

/* What is torn tears what it is joined to. */
static bool tear(ap_low *low, ap_value a, ap_value b)
{
    ap_low_value *ra = &low->value[ap_low_root(low, a)], *rb = &low->value[ap_low_root(low, b)];
    if (ra->torn == rb->torn)
        return false;
    return ra->torn = rb->torn = true;
}

static bool join(ap_low *low, ap_value a, ap_value b)
{
    const ap_shape_info *as = ap_value_shape(low->m, a), *bs = ap_value_shape(low->m, b);
    uint32_t mask = mask_of(low, a);
    if (low->early) {
        bool changed = set_mask(low, b, carried(as, mask, bs));
        changed = set_mask(low, a, carried(bs, mask_of(low, b), as)) || changed;
        return tear(low, a, b) || changed;
    }
    return mask ? set_mask(low, b, carried(as, mask, bs)) : set_mask(low, a, carried(bs, mask_of(low, b), as));
}

/* Item by item: true when a value has got a mask. */
static bool spread(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    bool changed = false;
    switch (it->kind) {
    case AP_LOW_CONV: {
        const ap_shape_info *xs = ap_value_shape(low->m, n->in[0]), *ys = ap_value_shape(low->m, n->out[0]);
        changed = set_mask(low, n->in[0], dims_mask(xs, 1, 3));
        return set_mask(low, n->out[0], dims_mask(ys, 1, 3)) || changed;
    }
    case AP_LOW_POINTWISE:
        for (uint32_t k = 0; k < n->nin; k++) {
            if (low->value[n->in[k]].nfactors == low->value[n->out[0]].nfactors)
                changed = join(low, n->in[k], n->out[0]) || changed;
        }
        return changed;
    case AP_LOW_CONCAT:
        for (uint32_t k = 0; k < n->nin; k++)
            changed = join(low, n->in[k], n->out[0]) || changed;
        return changed;
    case AP_LOW_POOL:
    case AP_LOW_PAD:
    case AP_LOW_MASK:
    case AP_LOW_EXCHANGE:
        return join(low, n->in[0], n->out[0]);
    case AP_LOW_PART: /* a shard of a value lies as the value does */
        return ap_op_get(n->op)->lower == AP_LOWER_STEP && join(low, n->in[0], n->out[0]);
    default:
        return false;
    }
}

void ap_low_choose_layouts(ap_low *low)
{
    bool any = false, changed = true;
    for (uint32_t i = 0; i < low->items.len; i++)
        any = any || low->items.at[i].kind == AP_LOW_CONV;
    while (any && changed) {
        changed = false;
        for (uint32_t i = 0; i < low->items.len; i++)
            changed = spread(low, &low->items.at[i]) || changed;
        for (uint32_t i = low->items.len; i-- > 0;)
            changed = spread(low, &low->items.at[i]) || changed;
    }
}
