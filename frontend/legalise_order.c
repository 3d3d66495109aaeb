/* Operators along one dimension: the first k, running sums and products, sequences read backwards; and those whose
 * result's size depends on what the operand holds, which must be known at compile time. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- topk, cumulate ---- */

/* Opset 10 made k an input, 11 brought the order. */
void ap_lower_topk(ap_legal *l)
{
    ap_value x = ap_in(l, 0), out[2];
    ap_dims s = ap_dims_of(l, x);
    int axis = ap_axis(l, ap_attr_int(l, "axis", -1), s.rank);
    int64_t k = ap_attr_int(l, "k", -1);
    if (ap_opset(l) >= 10 && ap_known_ints(l, ap_in(l, 1), "k", &k, 1) != 1)
        ap_refuse(l, "k must be one number");
    ap_emit_topk(l, x, axis, k, ap_attr_int(l, "largest", 1) != 0, out);
    for (uint32_t i = 0; i < 2; i++)
        if (ap_wants_out(l, i))
            ap_set_out(l, i, out[i]);
}

void ap_lower_cumulate(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    int64_t given = 0;
    if (ap_known_ints(l, ap_in(l, 1), "the axis", &given, 1) != 1)
        ap_refuse(l, "the axis must be one number");
    int axis = ap_axis(l, given, ap_dims_of(l, x).rank);
    bool exclusive = ap_attr_int(l, "exclusive", 0) != 0, reverse = ap_attr_int(l, "reverse", 0) != 0;
    ap_set_out(l, 0, ap_emit_cumulate(l, l->node->op->kind, x, axis, exclusive, reverse));
}

/* 1 at the first largest element, 0 elsewhere. Before opset 13 everything from the axis on is one row. */
void ap_lower_hardmax(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), flat = {2, {1, 1}}, line = {0};
    bool old = ap_opset(l) < 13;
    int axis = ap_axis(l, ap_attr_int(l, "axis", old ? 1 : -1), s.rank);
    if (l->status)
        return;
    for (int i = 0; i < s.rank; i++)
        flat.at[i >= axis] = ap_sat_mul(flat.at[i >= axis], s.at[i]);
    ap_value y = old ? ap_emit_reshape(l, x, &flat) : x;
    ap_dims d = old ? flat : s;
    axis = old ? 1 : axis;
    line.rank = d.rank;
    for (int i = 0; i < d.rank; i++)
        line.at[i] = i == axis ? d.at[i] : 1;
    ap_value best = ap_emit_reduce(l, AP_REDUCE_ARGMAX, y, 1u << axis, true);
    ap_value hit = ap_emit2(l, AP_OP_EQ, ap_emit_iota(l, AP_I64, &line, axis), best);
    ap_set_out(l, 0, ap_emit_reshape(l, ap_emit_cast(l, hit, ap_dtype_of(l, x)), &s));
}

/* y[t,b] = x[t < n[b] ? n[b]-1-t : t, b] */
void ap_lower_reverse_sequence(ap_legal *l)
{
    ap_value x = ap_in(l, 0), lengths = ap_emit_cast(l, ap_in(l, 1), AP_I64);
    ap_dims s = ap_dims_of(l, x), n = ap_dims_of(l, lengths), along_t = {2, {1, 1}}, along_b = {2, {1, 1}};
    int batch = ap_axis(l, ap_attr_int(l, "batch_axis", 1), s.rank);
    int time = ap_axis(l, ap_attr_int(l, "time_axis", 0), s.rank), t = time > batch;
    if (!l->status && (s.rank < 2 || batch == time || n.rank != 1 || n.at[0] != s.at[batch]))
        ap_refuse(l, "lengths %s do not go with %s, batch %d, time %d", ap_dims_str(l, &n), ap_dims_str(l, &s), batch,
                  time);
    if (l->status)
        return;
    if (s.at[time] < 2 || ap_dims_count(&s) == 0) {
        ap_set_out(l, 0, x);
        return;
    }
    along_t.at[t] = s.at[time];
    along_b.at[1 - t] = s.at[batch];
    ap_value at = ap_emit_iota(l, AP_I64, &along_t, t), len = ap_emit_reshape(l, lengths, &along_b);
    ap_value last = ap_emit2(l, AP_OP_SUB, len, ap_emit_number(l, AP_I64, 1));
    ap_value ids = ap_emit_select(l, ap_emit2(l, AP_OP_LT, at, len), ap_emit2(l, AP_OP_SUB, last, at), at);
    char of_data[] = "abcdefgh", of_ids[3] = {0}, of_result[] = "abcdefgh";
    of_data[time] = 'v';
    of_result[time] = of_ids[t] = 'i';
    of_ids[1 - t] = of_data[batch];
    ap_set_out(l, 0, ap_emit_gather_letters(l, x, ids, of_data, of_ids, of_result));
}

/* ---- sizes that depend on contents ---- */

static const ap_tensor *contents(ap_legal *l, ap_value v, const char *what)
{
    const ap_tensor *t = l->status ? NULL : ap_known(l, v);
    if (!t)
        ap_refuse(l, "the size of the result depends on %s, which is known only at run time", what);
    return l->status ? NULL : t;
}

static ap_tensor *new_tensor(ap_legal *l, ap_dtype t, const ap_dims *d)
{
    ap_tensor *r = AP_NEW(&l->ctx->scratch, ap_tensor);
    const ap_shape_info *shape = ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, d->rank, d->at));
    if (!ap_tensor_make(&l->ctx->scratch, t, shape, r)) {
        ap_refuse(l, "a tensor that must be known at compile time is too large");
        return NULL;
    }
    return r;
}

static bool is_zero(const ap_tensor *t, int64_t i)
{
    return ap_dtype_is_float(t->dtype) ? t->at[i].f == 0 : t->at[i].i == 0;
}

void ap_lower_compress(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), flat = {1, {ap_dims_count(&s)}};
    const ap_tensor *keep = contents(l, ap_in(l, 1), "the condition");
    int axis = ap_has_attr(l, "axis") ? ap_axis(l, ap_attr_int(l, "axis", 0), s.rank) : -1;
    if (l->status)
        return;
    if (axis < 0) {
        x = ap_emit_reshape(l, x, &flat);
        s = flat;
        axis = 0;
    }
    int64_t *kept = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, keep->count), n = 0;
    for (int64_t i = 0; i < keep->count; i++)
        if (!is_zero(keep, i))
            kept[n++] = i;
    if (n && kept[n - 1] >= s.at[axis])
        ap_refuse(l, "the condition keeps entry %" PRId64 " of %" PRId64, kept[n - 1], s.at[axis]);
    ap_dims d = {1, {n}};
    ap_tensor *ids = l->status ? NULL : new_tensor(l, AP_I64, &d);
    for (int64_t i = 0; ids && i < n; i++)
        ids->at[i].i = kept[i];
    if (ids)
        ap_set_out(l, 0, ap_emit_gather(l, x, ap_emit_tensor(l, ids), axis));
}

void ap_lower_non_zero(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    const ap_tensor *t = contents(l, x, "the operand");
    int64_t n = 0, at = 0;
    if (!l->status && s.rank == 0)
        ap_refuse(l, "the positions of a value without dimensions");
    for (int64_t i = 0; t && i < t->count; i++)
        n += !is_zero(t, i);
    ap_dims d = {2, {s.rank, n}};
    ap_tensor *r = l->status ? NULL : new_tensor(l, AP_I64, &d);
    for (int64_t i = 0; r && i < t->count; i++) {
        int64_t left = i;
        if (is_zero(t, i))
            continue;
        for (int k = s.rank - 1; k >= 0; k--) {
            r->at[k * n + at].i = left % s.at[k];
            left /= s.at[k];
        }
        at++;
    }
    if (r)
        ap_set_out(l, 0, ap_emit_tensor(l, r));
}

/* ---- unique ---- */

/* Items are elements, or slices along an axis: outer x inner elements of entry i. */
typedef struct items {
    const ap_tensor *t;
    int64_t outer, n, inner;
} items;

static int compare_scalars(ap_dtype t, ap_scalar x, ap_scalar y)
{
    if (ap_dtype_is_float(t))
        return isnan(x.f) || isnan(y.f) ? !!isnan(x.f) - !!isnan(y.f) : (x.f > y.f) - (x.f < y.f);
    if (t == AP_U64)
        return ((uint64_t)x.i > (uint64_t)y.i) - ((uint64_t)x.i < (uint64_t)y.i);
    return (x.i > y.i) - (x.i < y.i);
}

static int compare_items(const items *all, int64_t i, int64_t j)
{
    for (int64_t o = 0; o < all->outer; o++) {
        for (int64_t k = 0; k < all->inner; k++) {
            int64_t at = o * all->n * all->inner + k;
            int c = compare_scalars(all->t->dtype, all->t->at[at + i * all->inner], all->t->at[at + j * all->inner]);
            if (c)
                return c;
        }
    }
    return 0;
}

/* Merge sort from the bottom: equals stay in order. */
static void sort_items(const items *all, int64_t *list, int64_t *other)
{
    for (int64_t i = 0; i < all->n; i++)
        list[i] = i;
    for (int64_t width = 1; width < all->n; width *= 2) {
        for (int64_t lo = 0; lo < all->n; lo += 2 * width) {
            int64_t mid = ap_min_i64(lo + width, all->n), hi = ap_min_i64(lo + 2 * width, all->n), a = lo, b = mid;
            for (int64_t k = lo; k < hi; k++)
                other[k] = a == mid || (b < hi && compare_items(all, list[b], list[a]) < 0) ? list[b++] : list[a++];
        }
        memcpy(list, other, (size_t)all->n * sizeof *list);
    }
}

/* Numbers the distinct items, in order of value or of first appearance. first[], of[], count[]: by number or item. */
static int64_t number_items(ap_legal *l, const items *all, bool sorted, int64_t *first, int64_t *of, int64_t *count)
{
    ap_arena *a = &l->ctx->scratch;
    int64_t *list = AP_NEW_ARRAY(a, int64_t, all->n), *other = AP_NEW_ARRAY(a, int64_t, all->n), n = 0;
    int64_t *leader = AP_NEW_ARRAY(a, int64_t, all->n); /* the first item that equals this one */
    sort_items(all, list, other);
    for (int64_t i = 0; i < all->n; i++)
        leader[list[i]] = i && compare_items(all, list[i - 1], list[i]) == 0 ? leader[list[i - 1]] : list[i];
    for (int64_t i = 0; i < all->n; i++) {
        int64_t item = sorted ? list[i] : i;
        if (leader[item] != item)
            continue;
        first[n] = item;
        of[item] = n++;
    }
    for (int64_t i = 0; i < all->n; i++) {
        of[i] = of[leader[i]];
        count[of[i]]++;
    }
    return n;
}

static void set_ints(ap_legal *l, uint32_t out, int64_t n, const int64_t *x)
{
    ap_dims d = {1, {n}};
    ap_tensor *r = l->status || !ap_wants_out(l, out) ? NULL : new_tensor(l, AP_I64, &d);
    for (int64_t i = 0; r && i < n; i++)
        r->at[i].i = x[i];
    if (r)
        ap_set_out(l, out, ap_emit_tensor(l, r));
}

void ap_lower_unique(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    const ap_tensor *t = contents(l, x, "the operand");
    bool by_axis = ap_has_attr(l, "axis"), sorted = ap_attr_int(l, "sorted", 1) != 0;
    int axis = by_axis ? ap_axis(l, ap_attr_int(l, "axis", 0), s.rank) : -1;
    if (l->status)
        return;
    items all = {t, 1, by_axis ? s.at[axis] : t->count, 1};
    for (int i = 0; i < s.rank && by_axis; i++)
        *(i < axis ? &all.outer : i > axis ? &all.inner : &(int64_t){1}) *= s.at[i];
    ap_arena *a = &l->ctx->scratch;
    int64_t *first = AP_NEW_ARRAY(a, int64_t, all.n), *of = AP_NEW_ARRAY(a, int64_t, all.n);
    int64_t *count = AP_NEW_ARRAY(a, int64_t, all.n), n = number_items(l, &all, sorted, first, of, count);
    ap_dims d = by_axis ? s : (ap_dims){1, {n}};
    if (by_axis)
        d.at[axis] = n;
    ap_tensor *y = new_tensor(l, t->dtype, &d);
    for (int64_t i = 0; y && i < y->count; i++) {
        int64_t inner = i % all.inner, item = i / all.inner % n, outer = i / all.inner / n;
        y->at[i] = t->at[(outer * all.n + first[item]) * all.inner + inner];
    }
    if (y)
        ap_set_out(l, 0, ap_emit_tensor(l, y));
    set_ints(l, 1, n, first);
    set_ints(l, 2, all.n, of);
    set_ints(l, 3, n, count);
}
