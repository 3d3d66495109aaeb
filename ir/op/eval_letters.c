/* Evaluation of the operators with letters on one rank: contract, reduce, view, gather. A letter's local
 * extent is read off the local operands; strides of absent letters are 0. */
#include "ir/op/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Strides of a tensor and local extents by spec letter. */
typedef struct sides {
    int64_t extent[AP_SPEC_LETTERS];
    int64_t stride[3][AP_SPEC_LETTERS]; /* operands, then the result */
    bool known[AP_SPEC_LETTERS];
} sides;

static bool add_side(sides *s, int which, const ap_spec_side *side, const ap_tensor *t)
{
    int64_t stride[AP_MAX_FACTORS];
    ap_tensor_strides(&t->shape, stride);
    for (int f = 0; f < side->nletters; f++) {
        int l = ap_letter_index(side->letter[f]);
        if (s->known[l] && s->extent[l] != t->shape.physical[f])
            return false;
        s->known[l] = true;
        s->extent[l] = t->shape.physical[f];
        s->stride[which][l] = stride[f];
    }
    return true;
}

enum { LIST_MAX = 2 * AP_MAX_FACTORS };
typedef struct letter_list {
    int n;
    int letter[LIST_MAX];
} letter_list;

/* Letters of `side` that are on all of the sides `with` and `with2` (NULL: any) and not on `without`. */
static letter_list list_letters(const ap_spec_side *side, const ap_spec_side *with, const ap_spec_side *with2,
                                const ap_spec_side *without)
{
    letter_list list = {0};
    for (int f = 0; f < side->nletters; f++) {
        char c = side->letter[f];
        if ((with && ap_spec_side_find(with, c) < 0) || (with2 && ap_spec_side_find(with2, c) < 0) ||
            (without && ap_spec_side_find(without, c) >= 0))
            continue;
        list.letter[list.n++] = ap_letter_index(c);
    }
    return list;
}

static letter_list list_join(const letter_list *a, const letter_list *b, const letter_list *c)
{
    letter_list list = *a;
    for (int i = 0; i < b->n; i++)
        list.letter[list.n++] = b->letter[i];
    for (int i = 0; i < c->n; i++)
        list.letter[list.n++] = c->letter[i];
    return list;
}

/* Extents in the order of the list, and the strides of a compact tensor in that order. */
static int64_t list_compact(const letter_list *list, const sides *s, int64_t *extent, int64_t *stride)
{
    int64_t count = 1;
    for (int i = list->n - 1; i >= 0; i--) {
        extent[i] = s->extent[list->letter[i]];
        stride[i] = count;
        count *= extent[i];
    }
    return count;
}

static int64_t list_count(const letter_list *list, const sides *s)
{
    int64_t extent[LIST_MAX], stride[LIST_MAX];
    return list_compact(list, s, extent, stride);
}

static void list_strides(const letter_list *list, const sides *s, int which, int64_t *out)
{
    for (int i = 0; i < list->n; i++)
        out[i] = s->stride[which][list->letter[i]];
}

/* ---- contract ---- */

/* Rows xr x yr (at most 2 x 4) of the product: they share loads, each sum runs in order of k. */
static void dot_block(const ap_scalar *x, int64_t xr, const ap_scalar *y, int64_t yr, int64_t k, ap_scalar *out,
                      int64_t out_row)
{
    const ap_scalar *x1 = xr > 1 ? x + k : x, *y1 = yr > 1 ? y + k : y;
    const ap_scalar *y2 = yr > 2 ? y + 2 * k : y, *y3 = yr > 3 ? y + 3 * k : y;
    double s[2][4] = {{0}}, a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    for (int64_t p = 0; p < k; p++) {
        double a = x[p].f, b = x1[p].f, c0 = y[p].f, c1 = y1[p].f, c2 = y2[p].f, c3 = y3[p].f;
        a0 += a * c0, a1 += a * c1, a2 += a * c2, a3 += a * c3;
        b0 += b * c0, b1 += b * c1, b2 += b * c2, b3 += b * c3;
    }
    s[0][0] = a0, s[0][1] = a1, s[0][2] = a2, s[0][3] = a3;
    s[1][0] = b0, s[1][1] = b1, s[1][2] = b2, s[1][3] = b3;
    for (int64_t i = 0; i < xr; i++) {
        for (int64_t j = 0; j < yr; j++)
            out[i * out_row + j].f = s[i][j];
    }
}

void ap_tensor_matmul(bool is_float, const ap_scalar *a, const ap_scalar *b, int64_t rows_a, int64_t rows_b, int64_t k,
                      ap_scalar *out)
{
    for (int64_t i = 0; i < rows_a && is_float; i += 2) {
        for (int64_t j = 0; j < rows_b; j += 4)
            dot_block(a + i * k, ap_min_i64(2, rows_a - i), b + j * k, ap_min_i64(4, rows_b - j), k,
                      out + i * rows_b + j, rows_b);
    }
    for (int64_t i = 0; i < rows_a && !is_float; i++) {
        for (int64_t j = 0; j < rows_b; j++) {
            uint64_t sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += (uint64_t)a[i * k + p].i * (uint64_t)b[j * k + p].i;
            out[i * rows_b + j].i = (int64_t)sum;
        }
    }
}

/* The operand copied to the order of `list`. */
static ap_scalar *pack(ap_arena *arena, const ap_tensor *t, const letter_list *list, const sides *s, int which)
{
    int64_t extent[LIST_MAX], from[LIST_MAX], to[LIST_MAX];
    ap_scalar *out = AP_NEW_ARRAY(arena, ap_scalar, list_compact(list, s, extent, to));
    list_strides(list, s, which, from);
    ap_tensor_copy_box(out, to, t->at, from, list->n, extent);
    return out;
}

/* Batches of row-by-row products: a as [batch][a only][inner], b as [batch][b only][inner]. */
static void contract(ap_arena *tmp, const ap_spec *spec, const sides *s, const ap_tensor *a, const ap_tensor *b,
                     ap_tensor *c)
{
    const ap_spec_side *sa = &spec->operand[0], *sb = &spec->operand[1], *sc = &spec->result;
    letter_list batch = list_letters(sa, sb, sc, NULL), inner = list_letters(sa, sb, NULL, sc);
    letter_list a_only = list_letters(sa, NULL, NULL, sb), b_only = list_letters(sb, NULL, NULL, sa);
    letter_list of_a = list_join(&batch, &a_only, &inner), of_b = list_join(&batch, &b_only, &inner);
    letter_list of_c = list_join(&batch, &a_only, &b_only);
    int64_t k = list_count(&inner, s), m = list_count(&a_only, s), n = list_count(&b_only, s);
    if (c->count == 0)
        return;
    int64_t extent[LIST_MAX], from[LIST_MAX], to[LIST_MAX];
    ap_scalar *pa = pack(tmp, a, &of_a, s, 0), *pb = pack(tmp, b, &of_b, s, 1);
    ap_scalar *pc = AP_NEW_ARRAY(tmp, ap_scalar, list_compact(&of_c, s, extent, from));
    for (int64_t i = 0; i < list_count(&batch, s); i++)
        ap_tensor_matmul(ap_dtype_is_float(a->dtype), pa + i * m * k, pb + i * n * k, m, n, k, pc + i * m * n);
    list_strides(&of_c, s, 2, to);
    ap_tensor_copy_box(c->at, to, pc, from, of_c.n, extent);
}

ap_status eval_contract(ap_eval *e, ap_node n)
{
    const ap_spec *spec = ap_node_at(e->m, n)->u.spec;
    const ap_tensor *a = ap_eval_operand(e, n, 0), *b = ap_eval_operand(e, n, 1);
    ap_tensor *c;
    AP_TRY(ap_eval_result(e, n, 0, &c));
    sides s = {0};
    if (!add_side(&s, 0, &spec->operand[0], a) || !add_side(&s, 1, &spec->operand[1], b) ||
        !add_side(&s, 2, &spec->result, c))
        return ap_eval_mismatch(e, n);
    ap_arena tmp;
    ap_arena_init(&tmp, e->m->ctx->scratch.out_of_memory, e->m->ctx->scratch.user);
    contract(&tmp, spec, &s, a, b, c);
    ap_arena_deinit(&tmp);
    ap_eval_round(e, n, 0, c);
    return AP_OK;
}

/* ---- reduce ---- */

ap_scalar ap_eval_identity(ap_reduce_kind kind, ap_dtype t)
{
    ap_scalar x = {0};
    ap_scalar inf = {.f = kind == AP_REDUCE_MAX || kind == AP_REDUCE_ARGMAX ? -INFINITY : INFINITY};
    switch (kind) {
    case AP_REDUCE_SUM:
        break;
    case AP_REDUCE_PROD:
        if (ap_dtype_is_float(t))
            x.f = 1;
        else
            x.i = 1;
        break;
    case AP_REDUCE_MAX:
    case AP_REDUCE_MIN:
    case AP_REDUCE_ARGMAX:
    case AP_REDUCE_ARGMIN:
        x = ap_dtype_is_float(t) ? inf : ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &inf);
        break;
    case AP_REDUCE_KIND_COUNT:
        break;
    }
    return x;
}

/* Whether y replaces x as the extreme so far; NaN wins over numbers, the first one stays. */
static bool takes_over(ap_reduce_kind kind, ap_dtype t, ap_scalar y, ap_scalar x)
{
    bool max = kind == AP_REDUCE_MAX || kind == AP_REDUCE_ARGMAX;
    if (ap_dtype_is_float(t)) {
        if (isnan(x.f) || isnan(y.f))
            return !isnan(x.f);
        return max ? y.f > x.f : y.f < x.f;
    }
    if (t == AP_U64)
        return max ? (uint64_t)y.i > (uint64_t)x.i : (uint64_t)y.i < (uint64_t)x.i;
    return max ? y.i > x.i : y.i < x.i;
}

static ap_scalar reduce_fold(ap_reduce_kind kind, ap_dtype t, ap_scalar x, ap_scalar y)
{
    bool is_float = ap_dtype_is_float(t);
    switch (kind) {
    case AP_REDUCE_SUM:
        if (is_float)
            x.f += y.f;
        else
            x.i = (int64_t)((uint64_t)x.i + (uint64_t)y.i);
        return x;
    case AP_REDUCE_PROD:
        if (is_float)
            x.f *= y.f;
        else
            x.i = (int64_t)((uint64_t)x.i * (uint64_t)y.i);
        return x;
    default:
        return takes_over(kind, t, y, x) ? y : x;
    }
}

ap_status eval_reduce(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_spec_side *side = &node->u.reduce.spec->operand[0];
    ap_reduce_kind kind = node->u.reduce.kind;
    bool arg = kind == AP_REDUCE_ARGMAX || kind == AP_REDUCE_ARGMIN;
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    sides s = {0};
    if (!add_side(&s, 0, side, x) || !add_side(&s, 2, &node->u.reduce.spec->result, r))
        return ap_eval_mismatch(e, n);
    ap_arena tmp;
    ap_arena_init(&tmp, e->m->ctx->scratch.out_of_memory, e->m->ctx->scratch.user);
    ap_scalar *best = AP_NEW_ARRAY(&tmp, ap_scalar, r->count); /* values; r holds indices of argmax */
    bool *seen = AP_NEW_ARRAY(&tmp, bool, r->count);
    for (int64_t i = 0; i < r->count; i++)
        best[i] = ap_eval_identity(kind, x->dtype);
    int64_t index[AP_MAX_FACTORS] = {0}, at = 0;
    for (int64_t i = 0; i < x->count; i++) {
        if (arg && (!seen[at] || takes_over(kind, x->dtype, x->at[i], best[at]))) {
            best[at] = x->at[i];
            r->at[at].i = 0;
            for (int f = 0; f < side->nletters; f++) {
                if (ap_spec_side_find(&node->u.reduce.spec->result, side->letter[f]) < 0)
                    r->at[at].i = index[f];
            }
        } else if (!arg) {
            best[at] = reduce_fold(kind, x->dtype, best[at], x->at[i]);
        }
        seen[at] = true;
        for (int f = side->nletters - 1; f >= 0; f--) {
            int64_t stride = s.stride[2][ap_letter_index(side->letter[f])];
            at += stride;
            if (++index[f] < x->shape.physical[f])
                break;
            at -= index[f] * stride;
            index[f] = 0;
        }
    }
    for (int64_t i = 0; i < r->count && !arg; i++)
        r->at[i] = best[i];
    ap_arena_deinit(&tmp);
    ap_eval_round(e, n, 0, r);
    return AP_OK;
}

/* ---- view, gather ---- */

ap_status eval_view(ap_eval *e, ap_node n)
{
    const ap_spec *spec = ap_node_at(e->m, n)->u.spec;
    const ap_tensor *x = ap_eval_operand(e, n, 0);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    sides s = {0};
    if (!add_side(&s, 0, &spec->operand[0], x) || !add_side(&s, 2, &spec->result, r))
        return ap_eval_mismatch(e, n);
    letter_list list = list_letters(&spec->result, NULL, NULL, NULL);
    int64_t extent[LIST_MAX], from[LIST_MAX], to[LIST_MAX];
    list_compact(&list, &s, extent, to); /* the result's own strides */
    list_strides(&list, &s, 0, from);
    ap_tensor_copy_box(r->at, to, x->at, from, list.n, extent);
    return AP_OK;
}

/* The factor of operand 0 that the indices address. */
static int indexed_factor(const ap_spec *spec)
{
    const ap_spec_side *data = &spec->operand[0];
    for (int f = 0; f < data->nletters; f++) {
        if (ap_spec_side_find(&spec->operand[1], data->letter[f]) < 0 &&
            ap_spec_side_find(&spec->result, data->letter[f]) < 0)
            return f;
    }
    return 0;
}

ap_status eval_gather(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    const ap_spec *spec = node->u.spec;
    const ap_tensor *data = ap_eval_operand(e, n, 0), *ids = ap_eval_operand(e, n, 1);
    ap_tensor *r;
    AP_TRY(ap_eval_result(e, n, 0, &r));
    sides s = {0};
    if (!add_side(&s, 0, &spec->operand[0], data) || !add_side(&s, 1, &spec->operand[1], ids) ||
        !add_side(&s, 2, &spec->result, r))
        return ap_eval_mismatch(e, n);
    int factor = indexed_factor(spec);
    int64_t starts[AP_MAX_FACTORS], index[AP_MAX_FACTORS] = {0};
    ap_eval_starts(e, node->in[0], starts);
    int64_t limit = ap_value_shape(e->m, node->in[0])->logical[factor], start = starts[factor];
    int64_t local = data->shape.physical[factor];
    int64_t stride = s.stride[0][ap_letter_index(spec->operand[0].letter[factor])];
    int64_t from = 0, at = 0; /* offsets in data without the index, in ids */
    for (int64_t i = 0; i < r->count; i++) {
        int64_t row = ids->at[at].i;
        if (row < 0 || row >= limit)
            return ap_error(e->m->ctx, node->loc, "index %" PRId64 " is outside [0, %" PRId64 ")", row, limit);
        if (row >= start && row < start + local)
            r->at[i] = data->at[from + (row - start) * stride];
        for (int f = spec->result.nletters - 1; f >= 0; f--) {
            int l = ap_letter_index(spec->result.letter[f]);
            from += s.stride[0][l], at += s.stride[1][l];
            if (++index[f] < r->shape.physical[f])
                break;
            from -= index[f] * s.stride[0][l], at -= index[f] * s.stride[1][l];
            index[f] = 0;
        }
    }
    return AP_OK;
}
