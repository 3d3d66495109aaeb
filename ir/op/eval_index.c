/* Evaluation of scatter, index, topk, cumulate on one rank. */
#include "ir/op/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- scatter ---- */

/* Strides of a tensor by letter of its side; 0 for letters that it does not have. */
static void strides_by_letter(const ap_spec_side *side, const ap_tensor *t, int64_t out[AP_SPEC_LETTERS])
{
    int64_t stride[AP_MAX_FACTORS];
    memset(out, 0, AP_SPEC_LETTERS * sizeof *out);
    ap_tensor_strides(&t->shape, stride);
    for (int f = 0; f < side->nletters; f++)
        out[ap_letter_index(side->letter[f])] = stride[f];
}

static ap_scalar update(ap_scatter_kind kind, ap_dtype t, ap_scalar was, ap_scalar x)
{
    static const ap_pointwise op[AP_SCATTER_KIND_COUNT] = {
        [AP_SCATTER_ADD] = AP_PW_ADD,
        [AP_SCATTER_MUL] = AP_PW_MUL,
        [AP_SCATTER_MAX] = AP_PW_MAX,
        [AP_SCATTER_MIN] = AP_PW_MIN,
    };
    ap_dtype wide = ap_dtype_is_float(t) ? AP_F64 : t;
    ap_scalar both[2] = {was, x};
    return kind == AP_SCATTER_SET ? x : ap_pointwise_eval(op[kind], wide, wide, both);
}

ap_status eval_scatter(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_spec *spec = node->u.scatter.spec;
    const ap_tensor *x[3] = {ap_eval_operand(e, n, 0), ap_eval_operand(e, n, 1), ap_eval_operand(e, n, 2)};
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    if (x[0]->count != r->count)
        return ap_eval_mismatch(e, n);
    memcpy(r->at, x[0]->at, (size_t)r->count * sizeof *r->at);
    int64_t stride[3][AP_SPEC_LETTERS], starts[AP_MAX_FACTORS], index[AP_MAX_FACTORS] = {0};
    for (int i = 0; i < 3; i++)
        strides_by_letter(&spec->operand[i], x[i], stride[i]);
    int factor = ap_scatter_indexed(spec);
    ap_eval_starts(e, node->out[0], starts);
    int64_t limit = ap_value_shape(e->m, node->out[0])->logical[factor], start = starts[factor];
    int64_t rows = r->shape.physical[factor];
    int64_t row_stride = stride[0][ap_letter_index(spec->operand[0].letter[factor])];
    int64_t to = 0, at = 0; /* offsets in the result without the row, in the indices */
    for (int64_t i = 0; i < x[2]->count; i++) {
        int64_t row = x[1]->at[at].i;
        if (row < 0 || row >= limit)
            return ap_error(e->m->ctx, node->loc, "index %" PRId64 " is outside [0, %" PRId64 ")", row, limit);
        if (row >= start && row < start + rows) {
            ap_scalar *y = &r->at[to + (row - start) * row_stride];
            *y = update(node->u.scatter.kind, r->dtype, *y, x[2]->at[i]);
        }
        for (int f = spec->operand[2].nletters - 1; f >= 0; f--) {
            int l = ap_letter_index(spec->operand[2].letter[f]);
            to += stride[0][l], at += stride[1][l];
            if (++index[f] < x[2]->shape.physical[f])
                break;
            to -= index[f] * stride[0][l], at -= index[f] * stride[1][l];
            index[f] = 0;
        }
    }
    ap_eval_round(e, n, 0, r);
    return AP_OK;
}

/* ---- index ---- */

ap_status eval_index(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    int64_t limit = node->u.index.limit;
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    if (x->count != r->count)
        return ap_eval_mismatch(e, n);
    for (int64_t i = 0; i < r->count; i++) {
        int64_t k = x->at[i].i;
        if (k < -limit || k >= limit)
            return ap_error(e->m->ctx, node->loc, "index %" PRId64 " is outside [%" PRId64 ", %" PRId64 ")", k, -limit,
                            limit);
        r->at[i].i = k < 0 ? k + limit : k;
    }
    return AP_OK;
}

/* ---- along one dimension ---- */

/* Rows of a tensor: outer positions, then the dimension, then inner ones. */
typedef struct rows {
    int64_t outer, n, inner;
} rows;

static rows rows_of(const ap_shape_info *s, int dim)
{
    rows r = {1, 1, 1};
    for (int d = 0; d < s->rank; d++)
        for (int f = s->first[d]; f < s->first[d + 1]; f++)
            *(d < dim ? &r.outer : d == dim ? &r.n : &r.inner) *= s->physical[f];
    return r;
}

/* Whether x comes before y when the largest comes first; NaN is larger than any number. */
static bool is_larger(ap_dtype t, ap_scalar x, ap_scalar y)
{
    if (ap_dtype_is_float(t))
        return isnan(x.f) ? !isnan(y.f) : x.f > y.f;
    return t == AP_U64 ? (uint64_t)x.i > (uint64_t)y.i : x.i > y.i;
}

typedef struct order {
    ap_dtype dtype;
    bool largest;
    const ap_scalar *at;
    int64_t stride;
} order;

/* Strictly before: equals stay in order of position, as long as the list that is merged is in that order. */
static bool is_before(const order *o, int64_t i, int64_t j)
{
    ap_scalar x = o->at[i * o->stride], y = o->at[j * o->stride];
    return o->largest ? is_larger(o->dtype, x, y) : is_larger(o->dtype, y, x);
}

/* Merge sort of positions, from the bottom: stable. */
static void sort_positions(const order *o, int64_t n, int64_t *list, int64_t *other)
{
    for (int64_t i = 0; i < n; i++)
        list[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = ap_min_i64(lo + width, n), hi = ap_min_i64(lo + 2 * width, n), a = lo, b = mid;
            for (int64_t k = lo; k < hi; k++)
                other[k] = a == mid || (b < hi && is_before(o, list[b], list[a])) ? list[b++] : list[a++];
        }
        memcpy(list, other, (size_t)n * sizeof *list);
    }
}

ap_status eval_topk(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    int64_t k = node->u.topk.k;
    ap_tensor *values, *positions;
    AP_TRY(ap_eval_result(e, n, 0, &values));
    AP_TRY(ap_eval_result(e, n, 1, &positions));
    rows r = rows_of(&x->shape, node->u.topk.dim);
    if (r.outer * k * r.inner != values->count || values->count != positions->count)
        return ap_eval_mismatch(e, n);
    ap_arena tmp;
    ap_arena_init(&tmp, e->m->ctx->scratch.out_of_memory, e->m->ctx->scratch.user);
    int64_t *list = AP_NEW_ARRAY(&tmp, int64_t, r.n), *other = AP_NEW_ARRAY(&tmp, int64_t, r.n);
    for (int64_t i = 0; i < r.outer * r.inner; i++) {
        int64_t outer = i / r.inner, inner = i % r.inner;
        order o = {x->dtype, node->u.topk.largest, x->at + outer * r.n * r.inner + inner, r.inner};
        sort_positions(&o, r.n, list, other);
        for (int64_t j = 0; j < k; j++) {
            values->at[(outer * k + j) * r.inner + inner] = o.at[list[j] * r.inner];
            positions->at[(outer * k + j) * r.inner + inner].i = list[j];
        }
    }
    ap_arena_deinit(&tmp);
    return AP_OK;
}

ap_status eval_cumulate(ap_eval *e, ap_node n)
{
    static const ap_scatter_kind fold[AP_REDUCE_KIND_COUNT] = {
        [AP_REDUCE_SUM] = AP_SCATTER_ADD,
        [AP_REDUCE_PROD] = AP_SCATTER_MUL,
        [AP_REDUCE_MAX] = AP_SCATTER_MAX,
        [AP_REDUCE_MIN] = AP_SCATTER_MIN,
    };
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    bool exclusive = node->u.cumulate.exclusive, reverse = node->u.cumulate.reverse;
    ap_tensor *y;
    AP_TRY(ap_eval_result(e, n, 0, &y));
    rows r = rows_of(&x->shape, node->u.cumulate.dim);
    if (x->count != y->count)
        return ap_eval_mismatch(e, n);
    for (int64_t i = 0; i < r.outer * r.inner; i++) {
        int64_t first = i / r.inner * r.n * r.inner + i % r.inner;
        ap_scalar sum = ap_eval_identity(node->u.cumulate.kind, x->dtype);
        for (int64_t j = 0; j < r.n; j++) {
            int64_t at = first + (reverse ? r.n - 1 - j : j) * r.inner;
            ap_scalar next = update(fold[node->u.cumulate.kind], x->dtype, sum, x->at[at]);
            y->at[at] = exclusive ? sum : next;
            sum = next;
        }
    }
    ap_eval_round(e, n, 0, y);
    return AP_OK;
}
