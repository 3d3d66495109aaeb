/* Element-by-element work behind a product is done by the product, tile by tile while the tiles are in a cache: bias,
 * activation, scale, residual.
 *
 * A group follows a product when it is the only one that reads it, runs over just the factors of its result, and
 * reduces nothing. The product is computed in the place of one of the group's results, so that it needs no memory of
 * its own. Where the product turns out to be none that a library makes in one step, or its tiles do not fit the
 * group's operands (a bias along one of two joined factors), it is emitted by itself and the group behind it. */
#include "passes/local.h"

#include <string.h>

static bool is_element_work(const ap_low *low, const ap_low_group *g)
{
    if (!g->nest || g->across || g->has_inner || g->into != AP_NONE)
        return false;
    for (uint32_t i = 0; i < g->members.len; i++) {
        ap_low_class kind = low->items.at[g->members.at[i].item].kind;
        if (kind != AP_LOW_POINTWISE && kind != AP_LOW_MASK)
            return false;
    }
    return true;
}

static const ap_low_member *member_of(const ap_low_group *g, uint32_t item)
{
    for (uint32_t i = 0; i < g->members.len; i++)
        if (g->members.at[i].item == item)
            return &g->members.at[i];
    return NULL;
}

/* Each factor of the value is a loop of its own, and there are no others. */
static bool is_permutation(const ap_low_group *g, int nfactors, const int8_t *loop)
{
    bool seen[AP_MAX_LOOPS] = {false};
    if (g->nloops != nfactors)
        return false;
    for (int f = 0; f < nfactors; f++) {
        if (loop[f] < 0 || seen[loop[f]])
            return false;
        seen[loop[f]] = true;
    }
    return true;
}

/* The loops of the product's factors in the group that alone reads it; AP_NONE: there is none. */
static uint32_t only_reader(const ap_low *low, ap_value product, int8_t loop[AP_MAX_FACTORS])
{
    const ap_low_value *v = &low->value[product];
    uint32_t group = AP_NONE;
    for (uint32_t i = 0; i < v->nuses; i++) {
        ap_low_use u = low->use[v->first_use + i];
        uint32_t reader = ap_low_group_of(low, u.item);
        const ap_low_group *g = &low->groups.at[reader];
        int8_t here[AP_MAX_FACTORS];
        if ((i > 0 && reader != group) || !ap_low_use_is_element(&low->items.at[u.item], u.operand) ||
            !is_element_work(low, g))
            return AP_NONE;
        ap_low_operand_loops(low, member_of(g, u.item), u.operand, here);
        if (!is_permutation(g, v->nfactors, here) || (i > 0 && memcmp(here, loop, sizeof here) != 0))
            return AP_NONE;
        memcpy(loop, here, sizeof here);
        group = reader;
    }
    return group;
}

void ap_low_find_followers(ap_low *low)
{
    for (uint32_t i = 0; i < low->items.len; i++) {
        const ap_low_item *it = &low->items.at[i];
        int8_t loop[AP_MAX_FACTORS];
        if (it->kind != AP_LOW_CONTRACT)
            continue;
        uint32_t group = only_reader(low, ap_low_result(low, it), loop);
        if (group == AP_NONE || low->groups.at[group].follows ||
            !ap_low_thrift_join(low, ap_low_group_of(low, i), group, false))
            continue;
        low->groups.at[group].follows = i + 1;
        low->groups.at[ap_low_group_of(low, i)].followed_by = group + 1;
    }
}

/* The last member that reads the product. */
static uint32_t last_reader(const ap_low *low, const ap_low_group *g, ap_value product)
{
    const ap_low_value *v = &low->value[product];
    uint32_t last = 0;
    for (uint32_t i = 0; i < v->nuses; i++)
        for (uint32_t k = 0; k < g->members.len; k++)
            if (g->members.at[k].item == low->use[v->first_use + i].item && k > last)
                last = k;
    return last;
}

/* A result of the group in whose place the product can be computed: same type, every factor a loop, and not written
 * before the product has been read. */
static ap_status find_place(ap_low *low, uint32_t group, ap_value product, const int8_t *loop, ap_low_place *out,
                            bool *out_found)
{
    const ap_low_group *g = &low->groups.at[group];
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, product));
    *out_found = false;
    for (uint32_t i = last_reader(low, g, product); i < g->members.len && !*out_found; i++) {
        ap_value root = ap_low_result(low, &low->items.at[g->members.at[i].item]);
        int8_t result[AP_MAX_FACTORS];
        ap_low_result_loops(low, &g->members.at[i], result);
        if (ap_type_dtype(low->ctx, ap_value_type(low->m, root)) != dtype ||
            !ap_low_group_needs_store(low, group, root) || !is_permutation(g, low->value[root].nfactors, result))
            continue;
        ap_low_place place;
        AP_TRY(ap_low_destination(low, root, &place));
        memset(out, 0, sizeof *out);
        out->ref = place.ref;
        for (int f = 0; f < low->value[product].nfactors; f++)
            for (int r = 0; r < low->value[root].nfactors; r++)
                if (result[r] == loop[f])
                    out->stride[f] = place.stride[r];
        *out_found = true;
    }
    return AP_OK;
}

/* The name and the comment of both: contract_add_gelu. */
static void describe(ap_low *low, const ap_low_item *it, ap_low_call *call)
{
    const char *product = it->label ? ap_name_str(low->ctx, it->label) : "contract";
    call->name = ap_name_str(low->ctx, ap_name_format(low->ctx, "%s_%s", product, call->name));
    call->about = ap_name_str(low->ctx, ap_name_format(low->ctx, "%s; then %s", ap_low_about(low, it), call->about));
    call->loc = it->loc;
}

ap_status ap_low_emit_followed(ap_low *low, uint32_t group, bool *out_done)
{
    const ap_low_item *it = &low->items.at[low->groups.at[group].follows - 1];
    ap_value product = ap_low_result(low, it);
    ap_low_value *v = &low->value[product];
    int8_t loop[AP_MAX_FACTORS];
    ap_low_nest nest;
    ap_low_call call;
    only_reader(low, product, loop);
    *out_done = false;
    AP_TRY(find_place(low, group, product, loop, &v->place, &v->placed));
    if (v->placed) {
        ap_low_place c = v->place;
        AP_TRY(ap_low_build_nest(low, group, &nest, &call));
        describe(low, it, &call);
        AP_TRY(ap_low_emit_product_with(low, it, &c, loop, &nest, &call, out_done));
    }
    if (*out_done)
        return AP_OK;
    v->placed = false;
    return ap_low_emit_contract(low, it);
}
