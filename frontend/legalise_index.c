/* Operators that choose elements by index or position. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

void ap_lower_gather(ap_legal *l)
{
    ap_value data = ap_in(l, 0), indices = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, data);
    int axis = ap_axis(l, ap_attr_int(l, "axis", 0), s.rank);
    ap_set_out(l, 0, ap_emit_gather(l, data, indices, axis));
}

/* y[i, j] = x[id[i, j], j]: the dimensions beside the axis are batch letters of a gather. */
void ap_lower_gather_elements(ap_legal *l)
{
    ap_value data = ap_in(l, 0), ids = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids);
    int axis = ap_axis(l, ap_attr_int(l, "axis", 0), s.rank);
    if (!l->status && k.rank != s.rank)
        ap_refuse(l, "data and indices have %d and %d dimensions", s.rank, k.rank);
    if (!l->status && ap_dims_count(&k) == 0) {
        ap_set_out(l, 0, ap_emit_splat(l, ap_dtype_of(l, data), &k, (ap_scalar){0}));
        return;
    }
    for (int i = 0; i < s.rank && !l->status; i++) {
        if (i != axis && k.at[i] > s.at[i])
            ap_refuse(l, "indices %s reach beyond data %s", ap_dims_str(l, &k), ap_dims_str(l, &s));
        else if (i != axis && k.at[i] < s.at[i])
            data = ap_emit_part(l, data, i, 0, k.at[i]);
    }
    if (l->status)
        return;
    int64_t n = s.at[axis];
    if (n < 2) { /* no letter to index: the one entry, or none */
        if (n == 0)
            ap_refuse(l, "there is nothing to gather from: the axis has no entries");
        ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_expand(l, data, &k));
        return;
    }
    ids = ap_emit_index(l, ids, n);
    char of_data[] = "abcdefgh", of_ids[] = "abcdefgh";
    of_data[axis] = 'v';
    of_ids[axis] = 'i';
    of_ids[s.rank] = 0;
    ap_set_out(l, 0, ap_emit_gather_letters(l, data, ids, of_data, of_ids, of_ids));
}

ap_value ap_emit_joined_index(ap_legal *l, ap_value ids, const int64_t *extent, int n)
{
    ap_dims d = ap_dims_of(l, ids);
    ap_value sum = AP_NONE;
    d.rank--;
    for (int i = 0; i < n && !l->status; i++) {
        ap_value k = ap_emit_cast(l, ap_emit_reshape(l, ap_emit_part(l, ids, d.rank, i, 1), &d), AP_I64);
        ap_value size = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = extent[i]});
        k = ap_emit_index(l, k, extent[i]);
        sum = i ? ap_emit2(l, AP_OP_ADD, ap_emit2(l, AP_OP_MUL, sum, size), k) : k;
    }
    return sum;
}

static void add_side(ap_spec_side *side, const ap_dims *d, const char *letters)
{
    for (int i = 0; i < d->rank; i++) {
        ap_spec_side_dim(side);
        if (d->at[i] != 1)
            ap_spec_side_letter(side, letters[i]);
    }
}

ap_value ap_emit_gather_letters(ap_legal *l, ap_value data, ap_value ids, const char *ld, const char *li,
                                const char *lr)
{
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids), r = {0};
    if (l->status)
        return AP_NONE;
    for (int i = 0; lr[i] && r.rank < AP_MAX_RANK; i++) {
        const char *in_data = memchr(ld, lr[i], (size_t)s.rank), *in_ids = memchr(li, lr[i], (size_t)k.rank);
        if (!in_data && !in_ids)
            break;
        r.at[r.rank++] = in_data ? s.at[in_data - ld] : k.at[in_ids - li];
    }
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 2;
    add_side(&spec->operand[0], &s, ld);
    add_side(&spec->operand[1], &k, li);
    add_side(&spec->result, &r, lr);
    ap_node_info a = {.u.spec = spec};
    return ap_emit(l, AP_OP_GATHER, 2, (ap_value[]){data, ids}, &a, 0);
}

/* y[b, m, t] = x[b, id[b, m], t] for the first `batch` dimensions of both */
ap_value ap_emit_gather_in_batches(ap_legal *l, ap_value data, ap_value ids, int batch)
{
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids);
    char of_ids[] = "ijklmnop", of_result[2 * AP_MAX_RANK + 1] = {0};
    memcpy(of_ids, "abcdefgh", (size_t)batch);
    memcpy(of_result, of_ids, (size_t)k.rank);
    memcpy(of_result + k.rank, &"abcdefgh"[batch + 1], (size_t)(s.rank - batch - 1));
    return ap_emit_gather_letters(l, data, ids, "abcdefgh", of_ids, of_result);
}

/* Tuples of n indices: the n dimensions behind the batch are joined, and one is gathered from. */
void ap_lower_gather_nd(ap_legal *l)
{
    ap_value data = ap_in(l, 0), ids = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, data), k = ap_dims_of(l, ids), joined = {0}, r = {0};
    int64_t batch = ap_attr_int(l, "batch_dims", 0), n = k.rank ? k.at[k.rank - 1] : 0, all = 1;
    if (!l->status && (batch < 0 || k.rank < 1 || batch >= k.rank || batch >= s.rank || n < 1 || n > s.rank - batch ||
                       !ap_dtype_is_int(ap_dtype_of(l, ids)) || k.rank - 1 + s.rank - batch - n > AP_MAX_RANK))
        ap_refuse(l, "indices %s, %" PRId64 " of their dimensions the batch, and data %s do not go together",
                  ap_dims_str(l, &k), batch, ap_dims_str(l, &s));
    if (l->status)
        return;
    for (int i = 0; i < s.rank; i++) {
        if (i < batch && s.at[i] != k.at[i])
            ap_refuse(l, "the batch dimensions of %s and %s differ", ap_dims_str(l, &s), ap_dims_str(l, &k));
        bool indexed = i >= batch && i < batch + n;
        all = indexed ? ap_sat_mul(all, s.at[i]) : all;
        if (!indexed || i == batch + n - 1)
            joined.at[joined.rank++] = indexed ? all : s.at[i];
    }
    for (int i = 0; i < k.rank - 1; i++)
        r.at[r.rank++] = k.at[i];
    for (int i = (int)(batch + n); i < s.rank; i++)
        r.at[r.rank++] = s.at[i];
    if (!l->status && ap_dims_count(&r) == 0) {
        ap_set_out(l, 0, ap_emit_splat(l, ap_dtype_of(l, data), &r, (ap_scalar){0}));
        return;
    }
    if (!l->status && (all == 0 || ap_dims_count(&s) == 0))
        ap_refuse(l, "there is nothing to gather from");
    ap_value at = ap_emit_joined_index(l, ids, s.at + batch, (int)n);
    data = ap_emit_reshape(l, data, &joined);
    if (l->status)
        return;
    if (batch == 0) {
        ap_set_out(l, 0, ap_emit_gather(l, data, at, 0));
    } else if (all == 1) { /* every valid index means the one entry */
        ap_dims one = joined;
        one.rank = 0;
        for (int i = 0; i < r.rank; i++)
            one.at[one.rank++] = i < batch ? r.at[i] : i < k.rank - 1 ? 1 : r.at[i];
        ap_set_out(l, 0, ap_emit_expand(l, ap_emit_reshape(l, data, &one), &r));
    } else {
        ap_set_out(l, 0, ap_emit_gather_in_batches(l, data, at, (int)batch));
    }
}

/* mask[r, c]: row + k <= column, of the last two dimensions */
static ap_value triangle(ap_legal *l, int64_t rows, int64_t columns, int64_t k)
{
    ap_dims down = {2, {rows, 1}}, across = {2, {1, columns}}, scalar = {0};
    ap_value row = ap_emit_iota(l, AP_I64, &down, 0);
    row = ap_emit2(l, AP_OP_ADD, row, ap_emit_splat(l, AP_I64, &scalar, (ap_scalar){.i = k}));
    return ap_emit2(l, AP_OP_LE, row, ap_emit_iota(l, AP_I64, &across, 1));
}

void ap_lower_trilu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    bool upper = ap_attr_int(l, "upper", 1) != 0;
    int64_t k = 0;
    if (ap_has_in(l, 1) && ap_known_ints(l, ap_in(l, 1), "k", &k, 1) != 1)
        ap_refuse(l, "k must be one number");
    if (!l->status && s.rank < 2)
        ap_refuse(l, "a matrix is needed, not %s", ap_dims_str(l, &s));
    if (l->status)
        return;
    int64_t rows = s.at[s.rank - 2], columns = s.at[s.rank - 1];
    k = ap_max_i64(-rows - 1, ap_min_i64(k, columns + 1)); /* further out makes no difference */
    ap_value zero = ap_emit_number(l, ap_dtype_of(l, x), 0);
    if (ap_dims_count(&s) == 0)
        ap_set_out(l, 0, x);
    else if (upper)
        ap_set_out(l, 0, ap_emit_select(l, triangle(l, rows, columns, k), x, zero));
    else
        ap_set_out(l, 0, ap_emit_select(l, triangle(l, rows, columns, k + 1), zero, x));
}
