/* Attention and rotary positions in core operators: see frontend/attention.h. */
#include "frontend/attention.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

void ap_attention_init(ap_attention *a)
{
    *a = (ap_attention){.q = AP_NONE, .k = AP_NONE, .v = AP_NONE, .bias = AP_NONE, .scale = 1, .inner = -1};
    a->out_inner = AP_NONE;
}

void ap_attention_hide(ap_attention *a, ap_value visible)
{
    if (visible != AP_NONE)
        a->visible[a->nvisible++] = visible;
}

/* ---- heads ---- */

ap_value ap_emit_heads(ap_legal *l, ap_value x, int64_t heads, const char *what)
{
    ap_dims s = ap_dims_of(l, x);
    if (!l->status && (s.rank != 3 || heads < 1 || s.at[2] % heads))
        ap_refuse(l, "%s %s cannot be divided into %" PRId64 " heads", what, ap_dims_str(l, &s), heads);
    if (l->status)
        return AP_NONE;
    return ap_emit_reshape(l, x, &(ap_dims){4, {s.at[0], s.at[1], heads, s.at[2] / heads}});
}

ap_value ap_emit_join_heads(ap_legal *l, ap_value x)
{
    ap_dims s = ap_dims_of(l, x);
    return l->status ? AP_NONE : ap_emit_reshape(l, x, &(ap_dims){3, {s.at[0], s.at[1], s.at[2] * s.at[3]}});
}

ap_value ap_emit_swap_heads(ap_legal *l, ap_value x)
{
    return l->status ? AP_NONE : ap_emit_transpose(l, x, (int[]){0, 2, 1, 3});
}

ap_value ap_emit_causal(ap_legal *l, int64_t rows, int64_t columns, int64_t past)
{
    ap_dims down = {2, {rows, 1}}, across = {2, {1, columns}};
    ap_value last = ap_emit_iota(l, AP_I64, &down, 0);
    if (past)
        last = ap_emit2(l, AP_OP_ADD, last, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = past}));
    return ap_emit2(l, AP_OP_LE, ap_emit_iota(l, AP_I64, &across, 1), last);
}

/* ---- the scores ---- */

typedef struct extents {
    int64_t b, n, r, s, t, h, d; /* n: heads of keys, r: of queries for each of them */
} extents;

static bool find_extents(ap_legal *l, const ap_attention *a, extents *e)
{
    ap_dims q = ap_dims_of(l, a->q), k = ap_dims_of(l, a->k), v = ap_dims_of(l, a->v);
    if (l->status)
        return false;
    if (q.rank != 4 || k.rank != 4 || v.rank != 4) {
        ap_refuse(l, "queries, keys and values have %d, %d and %d dimensions", q.rank, k.rank, v.rank);
        return false;
    }
    int qn = a->heads_first ? 1 : 2, kn = a->kv_heads_first ? 1 : 2;
    *e = (extents){q.at[0], k.at[kn], 1, q.at[3 - qn], k.at[3 - kn], q.at[3], v.at[3]};
    bool fits = k.at[0] == e->b && v.at[0] == e->b && v.at[kn] == e->n && v.at[3 - kn] == e->t && k.at[3] == e->h;
    if (!fits || e->n == 0 || q.at[qn] % e->n) {
        ap_refuse(l, "queries %s, keys %s and values %s do not go together", ap_dims_str(l, &q), ap_dims_str(l, &k),
                  ap_dims_str(l, &v));
        return false;
    }
    e->r = q.at[qn] / e->n;
    return true;
}

/* What broadcasts to [b,n·r,s,t], so that it broadcasts to [b,n,r,s,t]. */
static ap_value for_groups(ap_legal *l, ap_value x, const extents *e)
{
    ap_dims s = ap_dims_of(l, x);
    if (l->status || e->r == 1 || s.rank < 3)
        return l->status ? AP_NONE : x;
    int64_t heads = s.at[s.rank - 3], rows = s.at[s.rank - 2], columns = s.at[s.rank - 1];
    if (heads != 1 && heads != e->n * e->r) {
        ap_refuse(l, "%s does not fit %" PRId64 " heads", ap_dims_str(l, &s), e->n * e->r);
        return AP_NONE;
    }
    ap_dims d = {5, {s.rank > 3 ? s.at[0] : 1, heads == 1 ? 1 : e->n, heads == 1 ? 1 : e->r, rows, columns}};
    return ap_emit_reshape(l, x, &d);
}

/* Nothing may widen the scores. */
static ap_value same_dims(ap_legal *l, ap_value before, ap_value after, const char *what)
{
    ap_dims b = ap_dims_of(l, before), a = ap_dims_of(l, after);
    if (!l->status && !ap_dims_equal(&a, &b))
        ap_refuse(l, "%s does not fit the scores %s", what, ap_dims_str(l, &b));
    return after;
}

static double lowest_of(ap_dtype t)
{
    return t == AP_F16 ? -65504.0 : t == AP_F64 ? -DBL_MAX : -(double)FLT_MAX;
}

/* Half precision scales both operands by the root, so that the product stays small. */
static ap_value scores_of(ap_legal *l, const ap_attention *a, const extents *e)
{
    ap_value q = a->q, k = a->k;
    ap_dtype t = ap_dtype_of(l, q);
    bool half = t == AP_F16 || t == AP_BF16, grouped = e->r != 1;
    if (half && a->scale > 0) {
        ap_value root = ap_emit_number(l, t, sqrt(a->scale));
        q = ap_emit2(l, AP_OP_MUL, q, root);
        k = ap_emit2(l, AP_OP_MUL, k, root);
    }
    if (grouped) {
        ap_dims late = {5, {e->b, e->s, e->n, e->r, e->h}}, early = {5, {e->b, e->n, e->r, e->s, e->h}};
        q = ap_emit_reshape(l, q, a->heads_first ? &early : &late);
    }
    const char *lq = a->heads_first ? grouped ? "bnrsh" : "bnsh" : grouped ? "bsnrh" : "bsnh";
    ap_value v = ap_emit_contract(l, q, k, lq, a->kv_heads_first ? "bnth" : "btnh", grouped ? "bnrst" : "bnst");
    if (a->scale != 1 && !(half && a->scale > 0))
        v = ap_emit2(l, AP_OP_MUL, v, ap_emit_number(l, t, a->scale));
    return v;
}

static ap_value capped(ap_legal *l, ap_value x, double cap)
{
    ap_value c = l->status ? AP_NONE : ap_emit_number(l, ap_dtype_of(l, x), cap);
    return ap_emit2(l, AP_OP_MUL, ap_emit1(l, AP_OP_TANH, ap_emit2(l, AP_OP_DIV, x, c)), c);
}

/* Hidden entries of x become `other`. */
static ap_value where_visible(ap_legal *l, const ap_attention *a, const extents *e, ap_value x, double other)
{
    ap_value v = x;
    for (int i = 0; i < a->nvisible && !l->status; i++)
        v = ap_emit_select(l, for_groups(l, a->visible[i], e), v, ap_emit_number(l, ap_dtype_of(l, v), other));
    return a->nvisible ? same_dims(l, x, v, "the mask") : v;
}

static void keep_inner(ap_legal *l, ap_attention *a, const extents *e, int which, ap_value x)
{
    if (a->inner != which || l->status)
        return;
    if (which == AP_ATTENTION_MASKED)
        x = where_visible(l, a, e, x, -INFINITY);
    x = ap_emit_cast(l, x, ap_dtype_of(l, a->q));
    a->out_inner = ap_emit_reshape(l, x, &(ap_dims){4, {e->b, e->n * e->r, e->s, e->t}});
}

static ap_value probabilities(ap_legal *l, ap_attention *a, const extents *e)
{
    ap_value x = scores_of(l, a, e);
    ap_dtype t = ap_dtype_of(l, x), work = t == AP_F16 || t == AP_BF16 ? AP_F32 : t;
    keep_inner(l, a, e, AP_ATTENTION_SCORES, x);
    if (a->softcap > 0)
        x = capped(l, x, a->softcap);
    keep_inner(l, a, e, AP_ATTENTION_CAPPED, x);
    if (a->softmax_type != AP_DTYPE_NONE)
        work = a->softmax_type;
    x = ap_emit_cast(l, x, work);
    if (a->bias != AP_NONE)
        x = same_dims(l, x, ap_emit2(l, AP_OP_ADD, x, for_groups(l, ap_emit_cast(l, a->bias, work), e)), "the bias");
    keep_inner(l, a, e, AP_ATTENTION_MASKED, x);
    x = where_visible(l, a, e, x, lowest_of(work));
    ap_value p = l->status ? AP_NONE : ap_emit_softmax(l, x, 1u << (ap_dims_of(l, x).rank - 1), false);
    if (a->rows_may_be_empty)
        p = where_visible(l, a, e, p, 0);
    keep_inner(l, a, e, AP_ATTENTION_SOFTMAX, p);
    return ap_emit_cast(l, p, t);
}

ap_value ap_emit_attention(ap_legal *l, ap_attention *a)
{
    extents e;
    if (!find_extents(l, a, &e))
        return AP_NONE;
    if (e.t == 0) {
        ap_refuse(l, "there are no keys");
        return AP_NONE;
    }
    ap_value p = probabilities(l, a, &e);
    bool grouped = e.r != 1;
    const char *ly = a->heads_first ? grouped ? "bnrsd" : "bnsd" : grouped ? "bsnrd" : "bsnd";
    ap_value y = ap_emit_contract(l, p, a->v, grouped ? "bnrst" : "bnst", a->kv_heads_first ? "bntd" : "btnd", ly);
    ap_dims late = {4, {e.b, e.s, e.n * e.r, e.d}}, early = {4, {e.b, e.n * e.r, e.s, e.d}};
    return l->status ? AP_NONE : ap_emit_reshape(l, y, a->heads_first ? &early : &late);
}

/* ---- rotary positions ---- */

/* (cos·x1 - sin·x2, sin·x1 + cos·x2), joined along `dim` */
static ap_value turned(ap_legal *l, ap_value x1, ap_value x2, ap_value cosine, ap_value sine, int dim)
{
    ap_value parts[2];
    parts[0] = ap_emit2(l, AP_OP_SUB, ap_emit2(l, AP_OP_MUL, cosine, x1), ap_emit2(l, AP_OP_MUL, sine, x2));
    parts[1] = ap_emit2(l, AP_OP_ADD, ap_emit2(l, AP_OP_MUL, sine, x1), ap_emit2(l, AP_OP_MUL, cosine, x2));
    return ap_emit_concat(l, 2, parts, dim);
}

static ap_value with_last_one(ap_legal *l, ap_value x)
{
    ap_dims d = ap_dims_of(l, x);
    d.at[d.rank++] = 1;
    return ap_emit_reshape(l, x, &d);
}

ap_value ap_emit_rotation(ap_legal *l, ap_value x, ap_value cosine, ap_value sine, int64_t width, bool interleaved)
{
    ap_dims s = ap_dims_of(l, x);
    int last = s.rank - 1;
    if (l->status)
        return AP_NONE;
    if (width < 2 || width % 2 || width > s.at[last]) {
        ap_refuse(l, "%" PRId64 " of %" PRId64 " entries of a head cannot be turned in pairs", width, s.at[last]);
        return AP_NONE;
    }
    ap_value parts[2] = {ap_emit_part(l, x, last, 0, width), AP_NONE}, y;
    if (interleaved) {
        ap_dims pairs = s, flat = s;
        pairs.at[last] = width / 2;
        pairs.at[pairs.rank++] = 2;
        flat.at[last] = width;
        ap_value p = ap_emit_reshape(l, parts[0], &pairs);
        y = turned(l, ap_emit_part(l, p, last + 1, 0, 1), ap_emit_part(l, p, last + 1, 1, 1), with_last_one(l, cosine),
                   with_last_one(l, sine), last + 1);
        y = ap_emit_reshape(l, y, &flat);
    } else {
        y = turned(l, ap_emit_part(l, parts[0], last, 0, width / 2),
                   ap_emit_part(l, parts[0], last, width / 2, width / 2), cosine, sine, last);
    }
    if (width == s.at[last])
        return y;
    parts[0] = y;
    parts[1] = ap_emit_part(l, x, last, width, s.at[last] - width);
    return ap_emit_concat(l, 2, parts, last);
}
