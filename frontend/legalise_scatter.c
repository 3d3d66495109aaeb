/* Operators that write by index: the scatter family. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

static ap_scatter_kind reduction(ap_legal *l)
{
    static const char *const name[AP_SCATTER_KIND_COUNT] = {"none", "add", "mul", "max", "min"};
    const char *given = ap_attr_str(l, "reduction", "none");
    for (int k = 0; k < AP_SCATTER_KIND_COUNT; k++)
        if (strcmp(given, name[k]) == 0)
            return (ap_scatter_kind)k;
    ap_refuse(l, "reduction \"%.40s\" is not known", given);
    return AP_SCATTER_SET;
}

/* ---- one index for each update ---- */

/* y[id[i,j], j] = u[i,j]: the dimensions beside the axis are batch letters. What lies beyond the updates there is cut
 * off and joined again behind. */
static ap_value scatter_part(ap_legal *l, ap_scatter_kind kind, ap_value data, ap_value ids, ap_value updates, int axis,
                             int d)
{
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids);
    while (d < s.rank && (d == axis || s.at[d] == k.at[d]))
        d++;
    if (l->status)
        return AP_NONE;
    if (d < s.rank) {
        ap_value part = ap_emit_part(l, data, d, 0, k.at[d]),
                 rest = ap_emit_part(l, data, d, k.at[d], s.at[d] - k.at[d]);
        ap_value both[2] = {scatter_part(l, kind, part, ids, updates, axis, d + 1), rest};
        return l->status ? AP_NONE : ap_emit_concat(l, 2, both, d);
    }
    char of_data[] = "abcdefgh", of_ids[] = "abcdefgh";
    of_data[axis] = 'v';
    of_ids[axis] = 'i';
    return ap_emit_scatter(l, kind, data, ids, updates, axis, (const char *const[3]){of_data, of_ids, of_ids});
}

void ap_lower_scatter_elements(ap_legal *l)
{
    ap_value data = ap_in(l, 0), ids = ap_in(l, 1), updates = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids), u = ap_dims_of(l, updates);
    int axis = ap_axis(l, ap_attr_int(l, "axis", 0), s.rank);
    ap_scatter_kind kind = reduction(l);
    if (!l->status && (k.rank != s.rank || !ap_dims_equal(&k, &u)))
        ap_refuse(l, "indices %s and updates %s do not go with data %s", ap_dims_str(l, &k), ap_dims_str(l, &u),
                  ap_dims_str(l, &s));
    for (int i = 0; i < s.rank && !l->status; i++)
        if (i != axis && k.at[i] > s.at[i])
            ap_refuse(l, "indices %s reach beyond data %s", ap_dims_str(l, &k), ap_dims_str(l, &s));
    if (l->status)
        return;
    if (ap_dims_count(&k) == 0) {
        ap_set_out(l, 0, data);
        return;
    }
    if (s.at[axis] == 0) {
        ap_refuse(l, "there is nothing to write to: the axis has no entries");
        return;
    }
    ids = ap_emit_index(l, ids, s.at[axis]);
    ap_set_out(l, 0, scatter_part(l, kind, data, ids, updates, axis, 0));
}

/* ---- tuples of indices ---- */

/* The first n dimensions are joined, and one number per tuple addresses them. */
void ap_lower_scatter_nd(ap_legal *l)
{
    ap_value data = ap_in(l, 0), ids = ap_in(l, 1), updates = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids), u = ap_dims_of(l, updates), joined = {0}, want = {0};
    int64_t n = k.rank ? k.at[k.rank - 1] : 0, all = 1;
    ap_scatter_kind kind = reduction(l);
    bool fits = k.rank >= 1 && n >= 1 && n <= s.rank && k.rank - 1 + s.rank - n <= AP_MAX_RANK;
    for (int i = 0; fits && i < k.rank - 1; i++)
        want.at[want.rank++] = k.at[i];
    for (int i = (int)n; fits && i < s.rank; i++)
        want.at[want.rank++] = s.at[i];
    if (!l->status && (!fits || !ap_dims_equal(&want, &u)))
        ap_refuse(l, "indices %s and updates %s do not go with data %s", ap_dims_str(l, &k), ap_dims_str(l, &u),
                  ap_dims_str(l, &s));
    if (l->status)
        return;
    if (ap_dims_count(&u) == 0) {
        ap_set_out(l, 0, data);
        return;
    }
    for (int i = 0; i < n; i++)
        all = ap_sat_mul(all, s.at[i]);
    joined.at[joined.rank++] = all;
    char of_data[] = "vabcdefg", of_updates[AP_MAX_RANK + 1] = {0};
    for (int i = 0; i < want.rank; i++)
        of_updates[i] = i < k.rank - 1 ? "ijklmnop"[i] : "abcdefg"[i - k.rank + 1];
    for (int i = (int)n; i < s.rank; i++)
        joined.at[joined.rank++] = s.at[i];
    if (all == 0) {
        ap_refuse(l, "there is nothing to write to");
        return;
    }
    ids = ap_emit_joined_index(l, ids, s.at, (int)n);
    ap_value v = ap_emit_scatter(l, kind, ap_emit_reshape(l, data, &joined), ids, updates, 0,
                                 (const char *const[3]){of_data, "ijklmnop", of_updates});
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_reshape(l, v, &s));
}

/* ---- a cache that grows ---- */

/* cache[b, ..., w[b] + i, ...] = update[b, ..., i, ...] */
void ap_lower_tensor_scatter(ap_legal *l)
{
    ap_value cache = ap_in(l, 0), update = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, cache), u = ap_dims_of(l, update);
    const char *mode = ap_attr_str(l, "mode", "linear");
    bool circular = strcmp(mode, "circular") == 0;
    int axis = ap_axis(l, ap_attr_int(l, "axis", -2), s.rank);
    if (!circular && strcmp(mode, "linear") != 0)
        ap_refuse(l, "mode \"%.40s\" is not known", mode);
    if (!l->status && (axis == 0 || u.rank != s.rank || u.at[axis] > s.at[axis]))
        ap_refuse(l, "an update of %s does not fit into %s along axis %d", ap_dims_str(l, &u), ap_dims_str(l, &s),
                  axis);
    for (int i = 0; i < s.rank && !l->status; i++)
        if (i != axis && u.at[i] != s.at[i])
            ap_refuse(l, "an update of %s does not go with %s", ap_dims_str(l, &u), ap_dims_str(l, &s));
    if (l->status)
        return;
    ap_dims across = {2, {1, u.at[axis]}}, down = {2, {s.at[0], 1}}, both = {2, {s.at[0], u.at[axis]}};
    ap_value ids = ap_emit_iota(l, AP_I64, &across, 1);
    if (ap_has_in(l, 2))
        ids = ap_emit2(l, AP_OP_ADD, ids, ap_emit_reshape(l, ap_emit_cast(l, ap_in(l, 2), AP_I64), &down));
    if (circular)
        ids = ap_emit2(l, AP_OP_MOD, ids, ap_emit_number(l, AP_I64, (double)s.at[axis]));
    ids = ap_emit_expand(l, ids, &both);
    char of_cache[] = "abcdefgh", of_update[] = "abcdefgh";
    of_cache[axis] = 'v';
    of_update[axis] = 'i';
    ap_set_out(l, 0,
               ap_emit_scatter(l, AP_SCATTER_SET, cache, ids, update, axis,
                               (const char *const[3]){of_cache, "ai", of_update}));
}
