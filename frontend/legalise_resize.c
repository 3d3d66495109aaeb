/* Resize and Upsample, axis by axis. Along an axis every result is a weighted sum of a few entries, the *taps*, that
 * are known at compile time:
 *
 *     nearest            one tap of weight 1: repeated entries, every k-th entry, or a lookup
 *     linear, cubic      2 or 4 taps: as many lookups, weighted and added in one kernel
 *     antialias          more: a product with the matrix of weights
 *
 * Coordinates are computed in single precision, as ONNX Runtime does: where they fall between two entries, that
 * decides. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_LOOKUPS 4 /* taps that are looked up one by one */

typedef struct resize {
    const char *mode, *coordinates, *nearest;
    bool antialias, exclude_outside, crops;
    float cubic_a, extrapolation;
    int64_t x[AP_MAX_RANK], y[AP_MAX_RANK]; /* extents before and after */
    float scale[AP_MAX_RANK], start[AP_MAX_RANK], end[AP_MAX_RANK];
} resize;

/* The taps of one axis: index[i*n + t], weight[i*n + t] for result i. */
typedef struct taps {
    int n;
    int64_t *index;
    double *weight;
    bool *outside; /* per result: the crop lies outside */
    bool any_outside;
} taps;

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Where result i of axis d lies among the entries. */
static float origin(const resize *r, int d, int64_t i)
{
    float x = (float)r->x[d], y = (float)r->y[d], s = r->scale[d], at = (float)i;
    if (is(r->coordinates, "asymmetric"))
        return at / s;
    if (is(r->coordinates, "align_corners"))
        return y == 1 ? 0 : at * (x - 1) / (y - 1);
    if (is(r->coordinates, "pytorch_half_pixel"))
        return y > 1 ? (at + 0.5F) / s - 0.5F : 0;
    if (is(r->coordinates, "tf_half_pixel_for_nn"))
        return (at + 0.5F) / s;
    if (is(r->coordinates, "half_pixel_symmetric")) {
        float adjustment = y / (s * x), centre = x / 2;
        return centre * (1 - adjustment) + (at + 0.5F) / s - 0.5F;
    }
    if (is(r->coordinates, "tf_crop_and_resize"))
        return y > 1 ? r->start[d] * (x - 1) + at * (r->end[d] - r->start[d]) * (x - 1) / (y - 1)
                     : 0.5F * (r->start[d] + r->end[d]) * (x - 1);
    return (at + 0.5F) / s - 0.5F; /* half_pixel */
}

static int64_t nearest_entry(const resize *r, float at)
{
    if (is(r->nearest, "floor"))
        return (int64_t)floorf(at);
    if (is(r->nearest, "ceil"))
        return (int64_t)ceilf(at);
    if (is(r->nearest, "round_prefer_ceil"))
        return (int64_t)floorf(at + 0.5F);
    return (int64_t)ceilf(at - 0.5F);
}

/* The kernel of linear or cubic interpolation at distance d. */
static double kernel(const resize *r, double d)
{
    double a = r->cubic_a;
    d = fabs(d);
    if (r->mode[0] == 'l')
        return d < 1 ? 1 - d : 0;
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* How far the kernel is stretched when a smaller result is smoothed. */
static double stretch(const resize *r, int d)
{
    return r->antialias && r->scale[d] < 1 ? 1 / (double)r->scale[d] : 1;
}

/* Weights of result i. Entries outside count as the edge, or not at all. */
static void fill_taps(const resize *r, int d, int64_t i, float at, taps *t)
{
    double wide = stretch(r, d), reach = (r->mode[0] == 'l' ? 1 : 2) * wide, sum = 0;
    int64_t n = r->x[d], first = wide > 1 ? (int64_t)floor((double)at - reach) + 1
                                          : (int64_t)floorf(at) - (r->mode[0] == 'l' ? 0 : 1);
    for (int k = 0; k < t->n; k++) {
        int64_t e = first + k, inside = ap_max_i64(0, ap_min_i64(n - 1, e));
        double w = kernel(r, ((double)at - (double)e) / wide);
        if (r->exclude_outside && e != inside)
            w = 0;
        t->index[i * t->n + k] = inside;
        t->weight[i * t->n + k] = w;
        sum += w;
    }
    for (int k = 0; k < t->n && (r->exclude_outside || wide > 1) && sum != 0; k++)
        t->weight[i * t->n + k] /= sum;
}

static taps make_taps(ap_legal *l, const resize *r, int d)
{
    taps t = {.n = 1};
    if (r->mode[0] != 'n')
        t.n = (int)ceil(2 * (r->mode[0] == 'l' ? 1 : 2) * stretch(r, d)) + (stretch(r, d) > 1);
    int64_t n = r->y[d];
    t.index = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, n * t.n);
    t.weight = AP_NEW_ARRAY(&l->ctx->scratch, double, n *t.n);
    t.outside = AP_NEW_ARRAY(&l->ctx->scratch, bool, n);
    for (int64_t i = 0; i < n; i++) {
        float at = origin(r, d, i);
        t.outside[i] = r->crops && (at < 0 || at > (float)(r->x[d] - 1));
        t.any_outside = t.any_outside || t.outside[i];
        if (r->mode[0] == 'n') {
            t.index[i] = ap_max_i64(0, ap_min_i64(r->x[d] - 1, nearest_entry(r, at)));
            t.weight[i] = 1;
        } else {
            fill_taps(r, d, i, at, &t);
        }
    }
    return t;
}

/* ---- applying them ---- */

/* index[i] = i / k: every entry k times. */
static ap_value repeat(ap_legal *l, ap_value x, int dim, int64_t k)
{
    ap_dims s = ap_dims_of(l, x), wide = {.rank = s.rank + 1}, d = s;
    int from[AP_MAX_RANK + 1];
    for (int i = 0; i < wide.rank; i++) {
        from[i] = i <= dim ? i : i == dim + 1 ? -1 : i - 1;
        wide.at[i] = from[i] < 0 ? k : s.at[from[i]];
    }
    d.at[dim] *= k;
    return ap_emit_reshape(l, ap_emit_view(l, x, &wide, from), &d);
}

static ap_value pick(ap_legal *l, ap_value x, int dim, const int64_t *index, int64_t n)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t step = n > 1 ? index[1] - index[0] : 1, start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], steps[AP_MAX_RANK];
    bool even = step >= 1, repeats = n > s.at[dim] && n % s.at[dim] == 0 && s.rank < AP_MAX_RANK;
    for (int64_t i = 0; i < n; i++) {
        even = even && index[i] == index[0] + i * step;
        repeats = repeats && index[i] == i / (n / s.at[dim]);
    }
    if (repeats)
        return repeat(l, x, dim, n / s.at[dim]);
    if (!even)
        return ap_emit_gather(l, x, ap_emit_ints(l, (int)n, index), dim);
    for (int i = 0; i < s.rank; i++) {
        count[i] = i == dim ? n : s.at[i];
        steps[i] = i == dim ? step : 1;
    }
    start[dim] = index[0];
    return ap_emit_slice(l, x, start, count, steps);
}

/* Numbers along dimension `dim` of a value with so many dimensions, in the type of x. */
static ap_value along(ap_legal *l, ap_value x, int dim, int64_t n, const double *number, int step)
{
    ap_dims d = {.rank = ap_dims_of(l, x).rank - dim};
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i ? 1 : n;
    ap_tensor *t = AP_NEW(&l->ctx->scratch, ap_tensor);
    ap_dtype dtype = ap_dtype_of(l, x);
    ap_tensor_make(&l->ctx->scratch, dtype, ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, d.rank, d.at)), t);
    for (int64_t i = 0; i < n; i++)
        t->at[i] = ap_scalar_round(dtype, (ap_scalar){.f = number[i * step]});
    return ap_emit_tensor(l, t);
}

static ap_value by_lookups(ap_legal *l, ap_value x, int dim, int64_t n, const taps *t)
{
    int64_t *index = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, n);
    ap_value sum = AP_NONE;
    for (int k = 0; k < t->n && !l->status; k++) {
        for (int64_t i = 0; i < n; i++)
            index[i] = t->index[i * t->n + k];
        ap_value v = ap_emit2(l, AP_OP_MUL, pick(l, x, dim, index, n), along(l, x, dim, n, t->weight + k, t->n));
        sum = k ? ap_emit2(l, AP_OP_ADD, sum, v) : v;
    }
    return sum;
}

static ap_value by_product(ap_legal *l, ap_value x, int dim, int64_t n, const taps *t)
{
    ap_dims s = ap_dims_of(l, x);
    char lx[AP_MAX_RANK + 1] = "abcdefgh", ly[AP_MAX_RANK + 1] = "abcdefgh";
    ap_dtype dtype = ap_dtype_of(l, x);
    ap_tensor *m = AP_NEW(&l->ctx->scratch, ap_tensor);
    const int64_t dims[2] = {n, s.at[dim]};
    if (!ap_tensor_make(&l->ctx->scratch, dtype, ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, 2, dims)), m)) {
        ap_refuse(l, "a matrix of %" PRId64 " x %" PRId64 " weights is too large", n, s.at[dim]);
        return AP_NONE;
    }
    for (int64_t i = 0; i < n * t->n; i++)
        m->at[i / t->n * s.at[dim] + t->index[i]].f += t->weight[i];
    for (int64_t i = 0; i < m->count; i++)
        m->at[i] = ap_scalar_round(dtype, m->at[i]);
    lx[s.rank] = ly[s.rank] = 0;
    lx[dim] = 'k';
    ly[dim] = 'n';
    return ap_emit_contract(l, x, ap_emit_tensor(l, m), lx, "nk", ly);
}

static ap_value resize_axis(ap_legal *l, ap_value x, const resize *r, int d, ap_value *outside)
{
    taps t = make_taps(l, r, d);
    if (t.any_outside) {
        double *flag = AP_NEW_ARRAY(&l->ctx->scratch, double, r->y[d]);
        for (int64_t i = 0; i < r->y[d]; i++)
            flag[i] = t.outside[i];
        ap_value here = ap_emit_cast(l, along(l, x, d, r->y[d], flag, 1), AP_BOOL);
        *outside = *outside == AP_NONE ? here : ap_emit2(l, AP_OP_OR, *outside, here);
    }
    if (r->mode[0] == 'n')
        return pick(l, x, d, t.index, r->y[d]);
    return t.n <= MAX_LOOKUPS ? by_lookups(l, x, d, r->y[d], &t) : by_product(l, x, d, r->y[d], &t);
}

/* Axes that shrink come first. */
static ap_value apply(ap_legal *l, ap_value x, const resize *r)
{
    ap_value outside = AP_NONE;
    bool done[AP_MAX_RANK] = {false};
    int rank = ap_dims_of(l, x).rank;
    for (int turn = 0; turn < rank && !l->status; turn++) {
        int best = -1;
        for (int d = 0; d < rank; d++) {
            if (!done[d] && (best < 0 || (double)r->y[d] / (double)r->x[d] < (double)r->y[best] / (double)r->x[best]))
                best = d;
        }
        done[best] = true;
        bool same = r->x[best] == r->y[best] && r->scale[best] == 1;
        if (!same || (r->crops && (r->start[best] != 0 || r->end[best] != 1)))
            x = resize_axis(l, x, r, best, &outside);
    }
    if (outside == AP_NONE)
        return x;
    return ap_emit_select(l, outside, ap_emit_number(l, ap_dtype_of(l, x), r->extrapolation), x);
}

/* ---- reading the node ---- */

/* Numbers that must be known; -1 when the input is left out or empty. */
static int known_floats(ap_legal *l, uint32_t input, const char *what, double *out, int max)
{
    if (!ap_has_in(l, input))
        return -1;
    const ap_tensor *t = ap_known(l, ap_in(l, input));
    if (!t && !l->status)
        ap_refuse(l, "%s are not known at compile time", what);
    if (l->status || t->count == 0)
        return -1;
    if (t->count > max) {
        ap_refuse(l, "%" PRId64 " %s for %d axes", t->count, what, max);
        return -1;
    }
    for (int64_t i = 0; i < t->count; i++)
        out[i] = ap_dtype_is_float(t->dtype) ? t->at[i].f : (double)t->at[i].i;
    return (int)t->count;
}

/* Which axes the numbers are for: all, or `axes`. */
static int read_axes(ap_legal *l, int rank, int *axis)
{
    int64_t given[AP_MAX_RANK];
    int n = ap_attr_ints(l, "axes", given, AP_MAX_RANK);
    if (n >= 0)
        ap_axes_mask_of(l, given, n, rank);
    for (int i = 0; i < (n < 0 ? rank : n) && !l->status; i++)
        axis[i] = n < 0 ? i : ap_axis(l, given[i], rank);
    return n < 0 ? rank : n;
}

static void set_scales(ap_legal *l, resize *r, int n, const int *axis, const double *scale)
{
    for (int i = 0; i < n && !l->status; i++) {
        double y = floor((double)((float)r->x[axis[i]] * (float)scale[i]));
        if (!(scale[i] > 0) || !(y < (double)INT32_MAX)) {
            ap_refuse(l, "a scale is %g", scale[i]);
            return;
        }
        r->scale[axis[i]] = (float)scale[i];
        r->y[axis[i]] = (int64_t)y;
    }
}

static void set_sizes(ap_legal *l, resize *r, int n, const int *axis, const double *size)
{
    const char *policy = ap_attr_str(l, "keep_aspect_ratio_policy", "stretch");
    double common = 0;
    for (int i = 0; i < n && !l->status; i++) {
        if (!(size[i] >= 0 && size[i] < (double)INT32_MAX) || (size[i] > 0 && r->x[axis[i]] == 0)) {
            ap_refuse(l, "a size is %g", size[i]);
            return;
        }
        double s = size[i] / (double)r->x[axis[i]];
        if (i == 0 || (is(policy, "not_larger") ? s < common : s > common))
            common = s;
        r->y[axis[i]] = (int64_t)size[i];
        r->scale[axis[i]] = (float)s;
    }
    if (!is(policy, "not_larger") && !is(policy, "not_smaller")) {
        if (!is(policy, "stretch"))
            ap_refuse(l, "keep_aspect_ratio_policy \"%.40s\" is not known", policy);
        return;
    }
    for (int i = 0; i < n; i++) {
        r->scale[axis[i]] = (float)common;
        r->y[axis[i]] = (int64_t)floor(common * (double)r->x[axis[i]] + 0.5);
    }
}

static bool read_attributes(ap_legal *l, resize *r, bool old)
{
    static const char *const known[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                        "align_corners", "tf_crop_and_resize",   "tf_half_pixel_for_nn",
                                        "asymmetric"};
    bool found = false;
    r->mode = ap_attr_str(l, "mode", "nearest");
    r->coordinates = ap_attr_str(l, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    r->nearest = ap_attr_str(l, "nearest_mode", old ? "floor" : "round_prefer_floor");
    r->antialias = ap_attr_int(l, "antialias", 0) != 0;
    r->exclude_outside = ap_attr_int(l, "exclude_outside", 0) != 0;
    r->cubic_a = (float)ap_attr_float(l, "cubic_coeff_a", -0.75);
    r->extrapolation = (float)ap_attr_float(l, "extrapolation_value", 0);
    r->crops = is(r->coordinates, "tf_crop_and_resize");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        found = found || is(r->coordinates, known[i]);
    if (!l->status && !found)
        ap_refuse(l, "coordinate_transformation_mode \"%.40s\" is not known", r->coordinates);
    if (!l->status && !is(r->mode, "nearest") && !is(r->mode, "linear") && !is(r->mode, "cubic"))
        ap_refuse(l, "mode \"%.40s\" is not known", r->mode);
    return !l->status;
}

static void read_crop(ap_legal *l, resize *r, int n, const int *axis)
{
    double roi[2 * AP_MAX_RANK];
    int have = r->crops ? known_floats(l, 1, "the roi", roi, 2 * n) : -1;
    if (!l->status && r->crops && have != 2 * n)
        ap_refuse(l, "tf_crop_and_resize needs a roi of %d numbers", 2 * n);
    for (int i = 0; i < n && have == 2 * n && !l->status; i++) {
        r->start[axis[i]] = (float)roi[i];
        r->end[axis[i]] = (float)roi[n + i];
    }
}

/* Resize: x, then scales (opset 10) or roi, scales, sizes. Upsample: scales are an attribute first. */
void ap_lower_resize(ap_legal *l)
{
    bool upsample = l->node->op->variant == 1, old = upsample || ap_opset(l) < 11;
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    resize r = {0};
    int axis[AP_MAX_RANK];
    double number[AP_MAX_RANK];
    if (l->status || !read_attributes(l, &r, old))
        return;
    for (int d = 0; d < s.rank; d++) {
        r.x[d] = r.y[d] = s.at[d];
        r.scale[d] = r.end[d] = 1;
    }
    int n = read_axes(l, s.rank, axis), have;
    if (upsample && ap_opset(l) < 9) {
        float given[AP_MAX_RANK];
        have = ap_attr_floats(l, "scales", given, AP_MAX_RANK);
        for (int i = 0; i < have; i++)
            number[i] = (double)given[i];
    } else {
        have = known_floats(l, old ? 1 : 2, "the scales", number, n);
    }
    int sizes = !old && have < 0 ? known_floats(l, 3, "the sizes", number, n) : -1;
    if (!l->status && have != n && sizes != n)
        ap_refuse(l, "neither scales nor sizes are given for %d axes", n);
    if (have == n)
        set_scales(l, &r, n, axis, number);
    else if (sizes == n)
        set_sizes(l, &r, n, axis, number);
    read_crop(l, &r, n, axis);
    if (!l->status && r.mode[0] != 'n' && !ap_dtype_is_float(ap_dtype_of(l, x)))
        ap_refuse(l, "%s interpolation of %s is not supported", r.mode, ap_dtype_str(ap_dtype_of(l, x)));
    if (l->status)
        return;
    ap_dims y = {.rank = s.rank};
    memcpy(y.at, r.y, sizeof y.at);
    if (ap_dims_count(&s) == 0 || ap_dims_count(&y) == 0) {
        ap_set_out(l, 0, ap_emit_splat(l, ap_dtype_of(l, x), &y, (ap_scalar){0}));
        return;
    }
    ap_set_out(l, 0, apply(l, x, &r));
}
