/* Emitters of what works by index or along one dimension: index, scatter, topk, cumulate. */
#include "frontend/legalise.h"

#include <inttypes.h>

/* ---- indices ---- */

/* Constant indices made non-negative and checked. NULL when they are not constant or an error was found. */
const ap_tensor *ap_constant_indices(ap_legal *l, ap_value indices, int64_t n, bool *out_changed)
{
    *out_changed = false;
    const ap_tensor *t = ap_known(l, indices);
    if (!t || l->status)
        return NULL;
    ap_tensor *r = AP_NEW(&l->ctx->scratch, ap_tensor);
    *r = *t;
    r->dtype = AP_I64;
    r->at = ap_arena_calloc(&l->ctx->scratch, (size_t)t->count, sizeof *r->at);
    for (int64_t i = 0; i < t->count; i++) {
        int64_t k = t->at[i].i;
        if (k < -n || k >= n) {
            ap_refuse(l, "index %" PRId64 " is out of range for the %" PRId64 " entries along the axis", k, n);
            return NULL;
        }
        *out_changed = *out_changed || k < 0;
        r->at[i].i = k < 0 ? k + n : k;
    }
    return r;
}

ap_value ap_emit_index(ap_legal *l, ap_value indices, int64_t n)
{
    bool changed;
    ap_dtype t = ap_dtype_of(l, indices);
    if (!l->status && !ap_dtype_is_int(t))
        ap_refuse(l, "indices of %s, not integers", ap_dtype_str(t));
    const ap_tensor *known = l->status ? NULL : ap_constant_indices(l, indices, n, &changed);
    if (l->status)
        return AP_NONE;
    if (known)
        return changed ? ap_emit_tensor(l, known) : indices;
    if (t != AP_I64 && (t != AP_I32 || n > INT32_MAX))
        indices = ap_emit_cast(l, indices, AP_I64);
    ap_node_info a = {.u.index.limit = n};
    return ap_emit(l, AP_OP_INDEX, 1, &indices, &a, 0);
}

/* ---- scatter ---- */

static void add_side(ap_spec_side *side, const ap_dims *d, const char *letters)
{
    for (int i = 0; i < d->rank; i++) {
        ap_spec_side_dim(side);
        if (d->at[i] != 1)
            ap_spec_side_letter(side, letters[i]);
    }
}

/* An indexed dimension of one entry has no factor to be indexed: it gets a second entry for the time being. */
static ap_value scatter_to_one(ap_legal *l, ap_scatter_kind kind, ap_value base, ap_value ids, ap_value updates,
                               int dim, const char *const letters[3])
{
    ap_dims s = ap_dims_of(l, base);
    int64_t lo[AP_MAX_RANK] = {0}, hi[AP_MAX_RANK] = {0};
    hi[dim] = 1;
    ap_value fill = l->status ? AP_NONE : ap_emit_splat(l, ap_dtype_of(l, base), &(ap_dims){0}, (ap_scalar){0});
    ap_value wide = ap_emit_pad(l, base, lo, hi, fill);
    wide = ap_emit_scatter(l, kind, wide, ids, updates, dim, letters);
    return l->status ? AP_NONE : ap_emit_part(l, wide, dim, 0, s.at[dim]);
}

ap_value ap_emit_scatter(ap_legal *l, ap_scatter_kind kind, ap_value base, ap_value ids, ap_value updates, int dim,
                         const char *const letters[3])
{
    ap_dims d[3] = {ap_dims_of(l, base), ap_dims_of(l, ids), ap_dims_of(l, updates)};
    if (l->status)
        return AP_NONE;
    if (ap_dims_count(&d[0]) == 0 || ap_dims_count(&d[2]) == 0)
        return base;
    if (d[0].at[dim] == 1)
        return scatter_to_one(l, kind, base, ids, updates, dim, letters);
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 3;
    for (int i = 0; i < 3; i++)
        add_side(&spec->operand[i], &d[i], letters[i]);
    spec->result = spec->operand[0];
    ap_node_info a = {.u.scatter = {.spec = spec, .kind = kind}};
    return ap_emit(l, AP_OP_SCATTER, 3, (ap_value[]){base, ids, updates}, &a, 0);
}

/* ---- along one dimension ---- */

static ap_status emit_topk(ap_legal *l, ap_value x, int axis, int64_t k, bool largest, ap_value out[2])
{
    ap_node n = ap_module_add_node(l->m, AP_OP_TOPK, 1, &x, 2, l->loc);
    ap_node_info *node = ap_node_at(l->m, n);
    node->u.topk.dim = (uint8_t)axis;
    node->u.topk.k = k;
    node->u.topk.largest = largest;
    out[0] = node->out[0];
    out[1] = node->out[1];
    AP_TRY(ap_node_infer(l->m, n));
    ap_block_append(l->m, l->block, n);
    return AP_OK;
}

void ap_emit_topk(ap_legal *l, ap_value x, int axis, int64_t k, bool largest, ap_value out[2])
{
    ap_dims s = ap_dims_of(l, x), r = s;
    ap_dtype t = ap_dtype_of(l, x);
    out[0] = out[1] = AP_NONE;
    if (!l->status && (k < 0 || k > s.at[axis]))
        ap_refuse(l, "%" PRId64 " of the %" PRId64 " entries along the axis", k, s.at[axis]);
    if (!l->status && !ap_dtype_is_float(t) && !ap_dtype_is_int(t))
        ap_refuse(l, "%s has no order", ap_dtype_str(t));
    if (l->status)
        return;
    r.at[axis] = k;
    if (ap_dims_count(&r) == 0 || s.at[axis] == 1) {
        out[0] = ap_dims_count(&r) ? x : ap_emit_splat(l, t, &r, (ap_scalar){0});
        out[1] = ap_emit_splat(l, AP_I64, &r, (ap_scalar){0});
        return;
    }
    l->status = emit_topk(l, x, axis, k, largest, out);
}

ap_value ap_emit_cumulate(ap_legal *l, ap_reduce_kind kind, ap_value x, int axis, bool exclusive, bool reverse)
{
    ap_dims s = ap_dims_of(l, x);
    ap_dtype t = ap_dtype_of(l, x);
    if (l->status)
        return AP_NONE;
    if (!ap_dtype_is_float(t) && !ap_dtype_is_int(t)) {
        ap_refuse(l, "%s does not add up", ap_dtype_str(t));
        return AP_NONE;
    }
    if (ap_dims_count(&s) == 0 || (s.at[axis] == 1 && !exclusive))
        return x;
    if (s.at[axis] == 1)
        return ap_emit_expand(l, ap_emit_number(l, t, kind == AP_REDUCE_PROD), &s);
    ap_node_info a = {.u.cumulate = {(uint8_t)axis, kind, exclusive, reverse}};
    return ap_emit(l, AP_OP_CUMULATE, 1, &x, &a, 0);
}
