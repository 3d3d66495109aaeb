/* Pooling: windows over the spatial dimensions, over whole planes, and over channels (LRN). Where windows are whole
 * dimensions, or single elements, there is nothing to slide and reductions or nothing at all take their place. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

#define MAX_SPATIAL (AP_MAX_RANK - 2)

/* A list with one entry per spatial dimension, or the default. */
static void list(ap_legal *l, const char *name, int n, int64_t otherwise, int64_t least, int64_t *out)
{
    int64_t given[2 * MAX_SPATIAL];
    int have = ap_attr_ints(l, name, given, n);
    if (!l->status && have >= 0 && have != n)
        ap_refuse(l, "%s has %d entries, not %d", name, have, n);
    for (int i = 0; i < n && !l->status; i++) {
        out[i] = have < 0 ? otherwise : given[i];
        if (out[i] < least || out[i] > AP_WINDOW_MAX)
            ap_refuse(l, "%s holds %" PRId64, name, out[i]);
    }
}

/* As many windows as the stride leaves of the input; the odd entry of the padding at the end, or the beginning. */
static void pad_same(ap_window *w, int64_t extent, bool upper)
{
    int64_t count = (extent + w->stride - 1) / w->stride;
    int64_t pad = ap_max_i64(0, (count - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - extent);
    w->lo = upper ? pad / 2 : pad - pad / 2;
    w->hi = pad - w->lo;
}

/* Windows of the spatial dimensions of x, all with a kernel. */
static bool read_windows(ap_legal *l, const ap_dims *x, ap_pool_attr *a)
{
    int n = x->rank - 2;
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], pads[2 * MAX_SPATIAL] = {0};
    const char *fill = ap_attr_str(l, "auto_pad", "NOTSET");
    bool same = strncmp(fill, "SAME_", 5) == 0;
    if (!l->status && (n < 1 || !ap_has_attr(l, "kernel_shape")))
        ap_refuse(l, "%s has no planes to pool, or kernel_shape is missing", ap_dims_str(l, x));
    list(l, "kernel_shape", n, 1, 1, kernel);
    list(l, "strides", n, 1, 1, stride);
    list(l, "dilations", n, 1, 1, dilation);
    list(l, "pads", 2 * n, 0, 0, pads);
    if (!l->status && !same && strcmp(fill, "NOTSET") != 0 && strcmp(fill, "VALID") != 0)
        ap_refuse(l, "auto_pad \"%.40s\" is not known", fill);
    a->ceil = ap_attr_int(l, "ceil_mode", 0) != 0 && !same;
    for (int i = 0; i < n && !l->status; i++) {
        ap_window *w = &a->window[2 + i];
        bool given = strcmp(fill, "NOTSET") == 0;
        *w = (ap_window){kernel[i], stride[i], dilation[i], given ? pads[i] : 0, given ? pads[n + i] : 0};
        if (same)
            pad_same(w, x->at[2 + i], strcmp(fill, "SAME_UPPER") == 0);
        int64_t reach = (w->kernel - 1) * w->dilation + 1, there = x->at[2 + i] + w->lo + w->hi;
        if (x->at[2 + i] && there < reach)
            ap_refuse(l, "the window reaches over %" PRId64 " elements, %" PRId64 " are there with the padding", reach,
                      there);
    }
    return !l->status;
}

static ap_value emit_pool(ap_legal *l, ap_value x, const ap_pool_attr *a)
{
    ap_node_info attr = {.u.pool = ap_arena_memdup(l->m->arena, a, sizeof *a)};
    return ap_emit(l, AP_OP_POOL, 1, &x, &attr, 0);
}

/* The dimensions whose single window is all of them are reduced (returned as a mask), those of single elements pass;
 * the other windows stay in `a`. */
static uint32_t split_windows(const ap_dims *x, ap_pool_attr *a, bool *out_any)
{
    uint32_t reduced = 0;
    *out_any = false;
    for (int d = 0; d < x->rank; d++) {
        ap_window *w = &a->window[d];
        bool plain = w->lo == 0 && w->hi == 0 && (w->dilation == 1 || w->kernel == 1);
        if (w->kernel && plain && w->kernel == x->at[d] && ap_window_count(w, x->at[d], a->ceil) == 1) {
            reduced |= 1u << d;
            *w = (ap_window){0};
        } else if (plain && w->kernel == 1 && w->stride == 1) {
            *w = (ap_window){0};
        }
        *out_any = *out_any || w->kernel;
    }
    return reduced;
}

static ap_value pool_or_reduce(ap_legal *l, ap_value x, ap_pool_attr a)
{
    ap_dims s = ap_dims_of(l, x);
    bool any;
    uint32_t axes = l->status ? 0 : split_windows(&s, &a, &any);
    if (l->status)
        return AP_NONE;
    if (axes)
        x = a.kind == AP_POOL_MAX   ? ap_emit_reduce(l, AP_REDUCE_MAX, x, axes, true)
            : a.kind == AP_POOL_SUM ? ap_emit_reduce(l, AP_REDUCE_SUM, x, axes, true)
                                    : ap_emit_mean(l, x, axes, true);
    return any ? emit_pool(l, x, &a) : x;
}

/* Whether every dimension ends up with something in it; a result without elements is one already. */
static bool is_empty_result(ap_legal *l, ap_value x, const ap_pool_attr *a, ap_dims *out)
{
    *out = ap_dims_of(l, x);
    for (int d = 0; d < out->rank; d++)
        if (a->window[d].kernel)
            out->at[d] = ap_window_count(&a->window[d], out->at[d], a->ceil);
    return ap_dims_count(out) == 0;
}

/* ---- MaxPool ---- */

static ap_value counted(ap_legal *l, const ap_dims *d, int dim, int64_t step)
{
    ap_dims one = {.rank = d->rank};
    for (int i = 0; i < d->rank; i++)
        one.at[i] = i == dim ? d->at[i] : 1;
    ap_value scale = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = step});
    return ap_emit2(l, AP_OP_MUL, ap_emit_iota(l, AP_I64, &one, dim), scale);
}

/* Row-major numbers of elements within their planes, column by column instead. */
static ap_value by_columns(ap_legal *l, ap_value index, const ap_dims *x)
{
    ap_value sum = AP_NONE;
    int64_t step = 1, weight = 1;
    for (int d = 2; d < x->rank; d++)
        step *= x->at[d];
    for (int d = 2; d < x->rank && !l->status; d++) {
        step /= ap_max_i64(1, x->at[d]);
        ap_value at = ap_emit2(l, AP_OP_DIV, index, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = step}));
        at = ap_emit2(l, AP_OP_MOD, at, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = x->at[d]}));
        at = ap_emit2(l, AP_OP_MUL, at, ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = weight}));
        sum = sum == AP_NONE ? at : ap_emit2(l, AP_OP_ADD, sum, at);
        weight *= x->at[d];
    }
    return sum;
}

/* Where in the whole operand each result comes from. */
static ap_value max_indices(ap_legal *l, ap_value x, ap_pool_attr a)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t plane = 1;
    for (int d = 2; d < s.rank; d++)
        plane = ap_sat_mul(plane, s.at[d]);
    a.kind = AP_POOL_ARGMAX;
    ap_value index = emit_pool(l, x, &a);
    ap_dims r = ap_dims_of(l, index);
    if (ap_attr_int(l, "storage_order", 0))
        index = by_columns(l, index, &s);
    if (l->status)
        return AP_NONE;
    index = ap_emit2(l, AP_OP_ADD, index, counted(l, &r, 1, plane));
    return ap_emit2(l, AP_OP_ADD, index, counted(l, &r, 0, ap_sat_mul(plane, s.at[1])));
}

void ap_lower_max_pool(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), r;
    ap_pool_attr a = {.kind = AP_POOL_MAX};
    if (l->status || !read_windows(l, &s, &a))
        return;
    bool empty = is_empty_result(l, x, &a, &r);
    ap_set_out(l, 0, empty ? ap_emit_splat(l, ap_dtype_of(l, x), &r, (ap_scalar){0}) : pool_or_reduce(l, x, a));
    if (ap_wants_out(l, 1))
        ap_set_out(l, 1, empty ? ap_emit_splat(l, AP_I64, &r, (ap_scalar){0}) : max_indices(l, x, a));
}

/* ---- AveragePool, LpPool ---- */

void ap_lower_average_pool(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), r;
    ap_pool_attr a = {.kind = ap_attr_int(l, "count_include_pad", 0) ? AP_POOL_AVG_PADS : AP_POOL_AVG};
    if (l->status || !read_windows(l, &s, &a))
        return;
    bool empty = is_empty_result(l, x, &a, &r);
    ap_set_out(l, 0, empty ? ap_emit_splat(l, ap_dtype_of(l, x), &r, (ap_scalar){0}) : pool_or_reduce(l, x, a));
}

/* |x|^p, and the p-th root */
static ap_value power(ap_legal *l, ap_value x, double p)
{
    ap_dtype t = ap_dtype_of(l, x);
    if (p == 2)
        return ap_emit2(l, AP_OP_MUL, x, x);
    x = ap_emit1(l, AP_OP_ABS, x);
    return p == 1 ? x : ap_emit2(l, AP_OP_POW, x, ap_emit_number(l, t, p));
}

static ap_value root(ap_legal *l, ap_value x, double p)
{
    if (p == 2)
        return ap_emit1(l, AP_OP_SQRT, x);
    return p == 1 ? x : ap_emit2(l, AP_OP_POW, x, ap_emit_number(l, ap_dtype_of(l, x), 1 / p));
}

/* p is a float in the first opset, an integer since. */
static double read_p(ap_legal *l)
{
    double p = ap_opset(l) < 2 ? ap_attr_float(l, "p", 2) : (double)ap_attr_int(l, "p", 2);
    if (!l->status && !(p >= 1))
        ap_refuse(l, "a norm with p = %g", p);
    return p;
}

static ap_value widen(ap_legal *l, ap_value x)
{
    ap_dtype t = ap_dtype_of(l, x);
    return t == AP_F16 || t == AP_BF16 ? ap_emit_cast(l, x, AP_F32) : x;
}

void ap_lower_lp_pool(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dtype t = ap_dtype_of(l, x);
    ap_dims s = ap_dims_of(l, x), r;
    ap_pool_attr a = {.kind = AP_POOL_SUM};
    double p = read_p(l);
    if (l->status || !read_windows(l, &s, &a))
        return;
    if (is_empty_result(l, x, &a, &r)) {
        ap_set_out(l, 0, ap_emit_splat(l, t, &r, (ap_scalar){0}));
        return;
    }
    ap_value sum = pool_or_reduce(l, power(l, widen(l, x), p), a);
    ap_set_out(l, 0, ap_emit_cast(l, root(l, sum, p), t));
}

/* ---- whole planes ---- */

enum { GLOBAL_MAX, GLOBAL_AVERAGE, GLOBAL_LP };

/* All spatial dimensions become 1. */
void ap_lower_global_pool(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    if (!l->status && s.rank < 3)
        ap_refuse(l, "%s has no planes to pool", ap_dims_str(l, &s));
    double p = l->node->op->variant == GLOBAL_LP ? read_p(l) : 0;
    if (l->status)
        return;
    uint32_t axes = ((1u << s.rank) - 1) & ~3u;
    if (l->node->op->variant == GLOBAL_AVERAGE) {
        ap_set_out(l, 0, ap_emit_mean(l, x, axes, true));
    } else if (l->node->op->variant == GLOBAL_MAX) {
        ap_set_out(l, 0, ap_emit_reduce(l, AP_REDUCE_MAX, x, axes, true));
    } else {
        ap_value sum = ap_emit_reduce(l, AP_REDUCE_SUM, power(l, widen(l, x), p), axes, true);
        ap_set_out(l, 0, ap_emit_cast(l, root(l, sum, p), ap_dtype_of(l, x)));
    }
}

/* ---- LRN ---- */

/* v^(-beta); the usual three quarters by two roots. */
static ap_value divide_by_power(ap_legal *l, ap_value x, ap_value v, double beta)
{
    if (beta == 1)
        return ap_emit2(l, AP_OP_DIV, x, v);
    ap_value s = AP_NONE;
    if (beta == 0.5 || beta == 0.75)
        s = ap_emit1(l, AP_OP_SQRT, v);
    if (beta == 0.75)
        s = ap_emit2(l, AP_OP_MUL, s, ap_emit1(l, AP_OP_SQRT, s));
    if (s == AP_NONE)
        s = ap_emit2(l, AP_OP_POW, v, ap_emit_number(l, ap_dtype_of(l, v), beta));
    return ap_emit2(l, AP_OP_DIV, x, s);
}

/* x / (bias + alpha/size * sum of the squares of the neighbouring channels)^beta */
void ap_lower_lrn(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t size = ap_attr_int(l, "size", 0);
    double alpha = ap_attr_float(l, "alpha", (double)1e-4f), beta = ap_attr_float(l, "beta", 0.75);
    double bias = ap_attr_float(l, "bias", 1);
    if (!l->status && (s.rank < 2 || size < 1 || size > AP_WINDOW_MAX))
        ap_refuse(l, "%s has no channels, or their neighbours are %" PRId64, ap_dims_str(l, &s), size);
    if (l->status)
        return;
    ap_pool_attr a = {.kind = AP_POOL_SUM};
    a.window[1] = (ap_window){.kernel = size, .stride = 1, .dilation = 1, .lo = (size - 1) / 2, .hi = size / 2};
    ap_value wide = widen(l, x), sum = emit_pool(l, ap_emit2(l, AP_OP_MUL, wide, wide), &a);
    ap_dtype t = ap_dtype_of(l, wide);
    ap_value v = ap_emit2(l, AP_OP_MUL, sum, ap_emit_number(l, t, alpha / (double)size));
    v = ap_emit2(l, AP_OP_ADD, v, ap_emit_number(l, t, bias));
    ap_set_out(l, 0, ap_emit_cast(l, divide_by_power(l, wide, v, beta), ap_dtype_of(l, x)));
}
