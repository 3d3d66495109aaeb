/* Emitters of nodes with letters and of parts of dimensions. A dimension of extent 1 has no factor and so no
 * letter; values without elements are constants before any of these nodes would see them. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

/* One side of a spec: the letter of each dimension, left out where the extent is 1. */
static void add_side(ap_spec_side *side, const ap_dims *d, const char *letters)
{
    for (int i = 0; i < d->rank; i++) {
        ap_spec_side_dim(side);
        if (d->at[i] != 1)
            ap_spec_side_letter(side, letters[i]);
    }
}

/* ---- reduce ---- */

static ap_scalar identity_of(ap_reduce_kind kind, ap_dtype t)
{
    bool f = ap_dtype_is_float(t);
    int bits = 8 * ap_dtype_bytes(t);
    bool is_unsigned = t == AP_U8 || t == AP_U16 || t == AP_U32 || t == AP_U64;
    ap_scalar x = {0};
    switch (kind) {
    case AP_REDUCE_PROD:
        return f ? (ap_scalar){.f = 1} : (ap_scalar){.i = 1};
    case AP_REDUCE_MAX:
        if (f)
            x.f = -__builtin_inf();
        else if (!is_unsigned)
            x.i = bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1));
        return x;
    case AP_REDUCE_MIN:
        if (f)
            x.f = __builtin_inf();
        else if (bits == 64)
            x.i = is_unsigned ? -1 : INT64_MAX;
        else
            x.i = ((int64_t)1 << (is_unsigned ? bits : bits - 1)) - 1;
        return x;
    default:
        return x;
    }
}

static ap_dims reduced_dims(const ap_dims *s, uint32_t axes, bool keep)
{
    ap_dims r = {0};
    for (int i = 0; i < s->rank; i++) {
        if (!(axes >> i & 1))
            r.at[r.rank++] = s->at[i];
        else if (keep)
            r.at[r.rank++] = 1;
    }
    return r;
}

ap_value ap_emit_reduce(ap_legal *l, ap_reduce_kind kind, ap_value x, uint32_t axes, bool keep)
{
    ap_dims s = ap_dims_of(l, x), r = reduced_dims(&s, axes, keep);
    bool arg = kind == AP_REDUCE_ARGMAX || kind == AP_REDUCE_ARGMIN;
    bool any = false;
    for (int i = 0; i < s.rank; i++)
        any = any || ((axes >> i & 1) && s.at[i] != 1);
    if (l->status)
        return AP_NONE;
    if (ap_dims_count(&s) == 0 && arg && ap_dims_count(&r)) {
        ap_refuse(l, "the largest of no elements");
        return AP_NONE;
    }
    if (ap_dims_count(&s) == 0)
        return ap_emit_splat(l, arg ? AP_I64 : ap_dtype_of(l, x), &r, identity_of(kind, ap_dtype_of(l, x)));
    if (!any)
        return arg ? ap_emit_splat(l, AP_I64, &r, (ap_scalar){0}) : ap_emit_reshape(l, x, &r);
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 1;
    add_side(&spec->operand[0], &s, "abcdefgh");
    for (int i = 0; i < s.rank; i++) {
        if ((axes >> i & 1) && !keep)
            continue;
        ap_spec_side_dim(&spec->result);
        if (!(axes >> i & 1) && s.at[i] != 1)
            ap_spec_side_letter(&spec->result, "abcdefgh"[i]);
    }
    ap_node_info a = {.u.reduce = {.spec = spec, .kind = kind}};
    return ap_emit(l, AP_OP_REDUCE, 1, &x, &a, 0);
}

ap_value ap_emit_mean(ap_legal *l, ap_value x, uint32_t axes, bool keep)
{
    ap_dims s = ap_dims_of(l, x);
    ap_dtype t = ap_dtype_of(l, x);
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++)
        if (axes >> i & 1)
            n = ap_sat_mul(n, s.at[i]);
    ap_value sum = ap_emit_reduce(l, AP_REDUCE_SUM, x, axes, keep);
    if (n == 1)
        return sum;
    if (ap_dtype_is_float(t))
        return ap_emit2(l, AP_OP_MUL, sum, ap_emit_number(l, t, 1.0 / (double)n));
    if (n == 0) {
        ap_refuse(l, "the mean of no integers");
        return AP_NONE;
    }
    return ap_emit2(l, AP_OP_DIV, sum, ap_emit_number(l, t, (double)n));
}

/* ---- contract ---- */

/* Sums dimensions of x whose letter stands neither in the other operand (with an extent) nor in the result. */
static ap_value sum_alone(ap_legal *l, ap_value x, const char *mine, const char *other, const ap_dims *other_dims,
                          const char *result)
{
    ap_dims s = ap_dims_of(l, x);
    uint32_t axes = 0;
    for (int i = 0; i < s.rank; i++) {
        bool in_other = false;
        for (int k = 0; k < other_dims->rank; k++)
            in_other = in_other || (other[k] == mine[i] && other_dims->at[k] != 1);
        if (s.at[i] != 1 && !in_other && !strchr(result, mine[i]))
            axes |= 1u << i;
    }
    return axes ? ap_emit_reduce(l, AP_REDUCE_SUM, x, axes, true) : x;
}

ap_value ap_emit_contract(ap_legal *l, ap_value a, ap_value b, const char *la, const char *lb, const char *lr)
{
    ap_dims da = ap_dims_of(l, a), db = ap_dims_of(l, b), dr = {0};
    if (l->status)
        return AP_NONE;
    for (int i = 0; lr[i]; i++) {
        int64_t n = 1;
        const char *pa = memchr(la, lr[i], (size_t)da.rank), *pb = memchr(lb, lr[i], (size_t)db.rank);
        if (pa)
            n = da.at[pa - la];
        if (pb && n == 1)
            n = db.at[pb - lb];
        dr.at[dr.rank++] = n;
    }
    if (ap_dims_count(&da) == 0 || ap_dims_count(&db) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, a), &dr, (ap_scalar){0});
    a = sum_alone(l, a, la, lb, &db, lr);
    b = sum_alone(l, b, lb, la, &da, lr);
    da = ap_dims_of(l, a);
    db = ap_dims_of(l, b);
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 2;
    add_side(&spec->operand[0], &da, la);
    add_side(&spec->operand[1], &db, lb);
    add_side(&spec->result, &dr, lr);
    ap_node_info attributes = {.u.spec = spec};
    return ap_emit(l, AP_OP_CONTRACT, 2, (ap_value[]){a, b}, &attributes, 0);
}

/* ---- slice, pad, concat ---- */

ap_value ap_emit_slice(ap_legal *l, ap_value x, const int64_t *start, const int64_t *count, const int64_t *step)
{
    ap_dims s = ap_dims_of(l, x), r = s;
    ap_slice_attr *attr = AP_NEW(l->m->arena, ap_slice_attr);
    bool whole = true;
    int f = 0;
    for (int i = 0; i < s.rank; i++) {
        r.at[i] = count[i];
        bool same = count[i] == s.at[i] && (step[i] == 1 || s.at[i] == 1);
        whole = whole && same;
        if (s.at[i] != 1)
            attr->range[f++] =
                same ? (ap_range){.whole = true} : (ap_range){.start = start[i], .count = count[i], .step = step[i]};
    }
    if (l->status || whole)
        return l->status ? AP_NONE : x;
    if (ap_dims_count(&r) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, x), &r, (ap_scalar){0});
    ap_node_info a = {.u.slice = attr};
    return ap_emit(l, AP_OP_SLICE, 1, &x, &a, 0);
}

ap_value ap_emit_part(ap_legal *l, ap_value x, int dim, int64_t start, int64_t count)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t from[AP_MAX_RANK] = {0}, n[AP_MAX_RANK], step[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++) {
        n[i] = i == dim ? count : s.at[i];
        step[i] = 1;
    }
    from[dim] = start;
    return ap_emit_slice(l, x, from, n, step);
}

ap_value ap_emit_pad(ap_legal *l, ap_value x, const int64_t *lo, const int64_t *hi, ap_value fill)
{
    ap_dims s = ap_dims_of(l, x), r = s;
    ap_pad_attr *attr = AP_NEW(l->m->arena, ap_pad_attr);
    bool any = false;
    for (int i = 0; i < s.rank; i++) {
        attr->lo[i] = lo[i];
        attr->hi[i] = hi[i];
        any = any || lo[i] || hi[i];
        if (!ap_add_i64(r.at[i], lo[i], &r.at[i]) || !ap_add_i64(r.at[i], hi[i], &r.at[i])) {
            ap_refuse(l, "a padded dimension overflows");
            return AP_NONE;
        }
    }
    if (l->status || !any)
        return l->status ? AP_NONE : x;
    if (ap_dims_count(&s) == 0)
        return ap_emit_expand(l, fill, &r);
    ap_node_info a = {.u.pad = attr};
    return ap_emit(l, AP_OP_PAD, 2, (ap_value[]){x, fill}, &a, 0);
}

/* Operands without elements must agree with the others, and then do not count. */
static ap_status check_concat(ap_legal *l, int n, const ap_value *x, int dim, ap_dims *out)
{
    *out = ap_dims_of(l, x[0]);
    int64_t sum = 0;
    for (int k = 0; k < n && !l->status; k++) {
        ap_dims s = ap_dims_of(l, x[k]);
        bool fits = s.rank == out->rank && ap_dtype_of(l, x[k]) == ap_dtype_of(l, x[0]);
        for (int i = 0; i < out->rank && fits; i++)
            fits = i == dim || s.at[i] == out->at[i];
        if (!fits)
            ap_refuse(l, "%s%s and %s%s cannot be concatenated along axis %d", ap_dtype_str(ap_dtype_of(l, x[0])),
                      ap_dims_str(l, out), ap_dtype_str(ap_dtype_of(l, x[k])), ap_dims_str(l, &s), dim);
        else if (!ap_add_i64(sum, s.at[dim], &sum))
            ap_refuse(l, "the concatenated extent overflows");
    }
    out->at[dim] = sum;
    return l->status;
}

ap_value ap_emit_concat(ap_legal *l, int n, const ap_value *x, int dim)
{
    ap_dims r;
    if (l->status || check_concat(l, n, x, dim, &r))
        return AP_NONE;
    if (ap_dims_count(&r) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, x[0]), &r, (ap_scalar){0});
    ap_value *kept = AP_NEW_ARRAY(&l->ctx->scratch, ap_value, n);
    uint32_t nkept = 0;
    for (int k = 0; k < n; k++)
        if (ap_dims_of(l, x[k]).at[dim] != 0)
            kept[nkept++] = x[k];
    if (nkept == 1)
        return kept[0];
    ap_node_info a = {.u.concat = {.dim = (uint8_t)dim}};
    return ap_emit(l, AP_OP_CONCAT, nkept, kept, &a, 0);
}

/* ---- gather ---- */

/* Rows at equal distances are a slice: 0, the last one, 2..5, reversed. */
static ap_value gather_as_slice(ap_legal *l, ap_value data, const ap_tensor *t, int axis)
{
    int64_t step = t->count > 1 ? t->at[1].i - t->at[0].i : 1;
    for (int64_t i = 1; i < t->count; i++)
        if (t->at[i].i - t->at[i - 1].i != step)
            return AP_NONE;
    if (step == 0)
        return AP_NONE;
    ap_dims s = ap_dims_of(l, data), r = {0};
    int64_t start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], steps[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++) {
        count[i] = i == axis ? t->count : s.at[i];
        steps[i] = i == axis ? step : 1;
        if (i != axis || t->shape.rank == 1)
            r.at[r.rank++] = count[i];
    }
    start[axis] = t->at[0].i;
    return ap_emit_reshape(l, ap_emit_slice(l, data, start, count, steps), &r);
}

static ap_value gather_letters(ap_legal *l, ap_value data, ap_value indices, int axis)
{
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, indices);
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 2;
    add_side(&spec->operand[0], &s, "abcdefgh");
    add_side(&spec->operand[1], &k, "ijklmnop");
    for (int i = 0; i < axis; i++) {
        ap_spec_side_dim(&spec->result);
        if (s.at[i] != 1)
            ap_spec_side_letter(&spec->result, "abcdefgh"[i]);
    }
    for (int i = 0; i < k.rank; i++) {
        ap_spec_side_dim(&spec->result);
        if (k.at[i] != 1)
            ap_spec_side_letter(&spec->result, "ijklmnop"[i]);
    }
    for (int i = axis + 1; i < s.rank; i++) {
        ap_spec_side_dim(&spec->result);
        if (s.at[i] != 1)
            ap_spec_side_letter(&spec->result, "abcdefgh"[i]);
    }
    ap_node_info a = {.u.spec = spec};
    return ap_emit(l, AP_OP_GATHER, 2, (ap_value[]){data, indices}, &a, 0);
}

ap_value ap_emit_gather(ap_legal *l, ap_value data, ap_value indices, int axis)
{
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, indices), r = {0};
    if (l->status)
        return AP_NONE;
    int64_t n = s.at[axis];
    if (s.rank - 1 + k.rank > AP_MAX_RANK) {
        ap_refuse(l, "the result has more than %d dimensions", AP_MAX_RANK);
        return AP_NONE;
    }
    if (!ap_dtype_is_int(ap_dtype_of(l, indices))) {
        ap_refuse(l, "indices of %s, not integers", ap_dtype_str(ap_dtype_of(l, indices)));
        return AP_NONE;
    }
    int from[AP_MAX_RANK];
    for (int i = 0; i < s.rank - 1 + k.rank; i++) {
        bool index = i >= axis && i < axis + k.rank;
        from[i] = index ? -1 : i < axis ? i : i - k.rank + 1;
        r.at[r.rank++] = index ? k.at[i - axis] : s.at[from[i]];
    }
    if (ap_dims_count(&r) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, data), &r, (ap_scalar){0});
    bool changed;
    const ap_tensor *t = ap_constant_indices(l, indices, n, &changed);
    if (l->status)
        return AP_NONE;
    if (n == 0) {
        ap_refuse(l, "there is nothing to gather from: the axis has no entries");
        return AP_NONE;
    }
    ap_value sliced = t && k.rank <= 1 ? gather_as_slice(l, data, t, axis) : AP_NONE;
    if (sliced != AP_NONE || l->status)
        return sliced;
    if (n == 1) /* every valid index means the one entry */
        return ap_emit_view(l, data, &r, from);
    return gather_letters(l, data, ap_emit_index(l, indices, n), axis);
}
