/* Operators that take elements from computed places of a plane, or put windows back onto one: GridSample and the grids
 * for it, MaxUnpool, Col2Im; and CenterCropPad. Planes are one dimension here, so that an index is one number. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

static ap_value like(ap_legal *l, ap_value x, double v)
{
    return l->status ? AP_NONE : ap_emit_number(l, ap_dtype_of(l, x), v);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static ap_value zeros(ap_legal *l, ap_dtype t, const ap_dims *d)
{
    return ap_emit_splat(l, t, d, (ap_scalar){0});
}

/* [n,c,...] as [n,c,v] */
static ap_value flat_planes(ap_legal *l, ap_value x)
{
    ap_dims s = ap_dims_of(l, x), d = {.rank = 3, .at = {s.at[0], s.at[1], 1}};
    for (int i = 2; i < s.rank; i++)
        d.at[2] = ap_sat_mul(d.at[2], s.at[i]);
    return ap_emit_reshape(l, x, &d);
}

/* ---- GridSample ---- */

enum { LINEAR, NEAREST, CUBIC, MOST_SPATIAL = 3, MOST_TAPS = 4 };

/* One spatial dimension: the entries that its coordinate meets, and how much each counts. All are [n,p]. */
typedef struct axis_taps {
    int n;
    ap_value index[MOST_TAPS]; /* i64, within the dimension */
    ap_value weight[MOST_TAPS];
} axis_taps;

typedef struct sample {
    int mode;
    const char *padding;
    bool align;
} sample;

/* -1 and 1 are the middles of the outer entries, or their outer edges. */
static ap_value to_entries(ap_legal *l, const sample *s, ap_value g, int64_t n)
{
    ap_value v = ap_emit2(l, AP_OP_ADD, g, like(l, g, 1));
    if (s->align)
        return ap_emit2(l, AP_OP_MUL, v, like(l, g, (double)(n - 1) / 2));
    v = ap_emit2(l, AP_OP_SUB, ap_emit2(l, AP_OP_MUL, v, like(l, g, (double)n)), like(l, g, 1));
    return ap_emit2(l, AP_OP_MUL, v, like(l, g, 0.5));
}

static ap_value clamp(ap_legal *l, ap_value v, double lo, double hi)
{
    return ap_emit2(l, AP_OP_MIN, ap_emit2(l, AP_OP_MAX, v, like(l, v, lo)), like(l, v, hi));
}

/* Reflected at both ends until it is within. */
static ap_value reflect(ap_legal *l, const sample *s, ap_value v, int64_t n)
{
    double lo = s->align ? 0 : -0.5, range = s->align ? (double)(n - 1) : (double)n;
    if (range == 0)
        return clamp(l, v, 0, 0);
    ap_value t = ap_emit1(l, AP_OP_ABS, ap_emit2(l, AP_OP_SUB, v, like(l, v, lo)));
    ap_value turns = ap_emit1(l, AP_OP_FLOOR, ap_emit2(l, AP_OP_MUL, t, like(l, v, 0.5 / range)));
    t = ap_emit2(l, AP_OP_SUB, t, ap_emit2(l, AP_OP_MUL, turns, like(l, v, 2 * range)));
    t = ap_emit2(l, AP_OP_MIN, t, ap_emit2(l, AP_OP_SUB, like(l, v, 2 * range), t));
    return ap_emit2(l, AP_OP_ADD, t, like(l, v, lo));
}

static ap_value padded(ap_legal *l, const sample *s, ap_value v, int64_t n)
{
    if (s->padding[0] == 'b')
        return clamp(l, v, 0, (double)(n - 1));
    return s->padding[0] == 'r' ? reflect(l, s, v, n) : v;
}

/* Entry v (a whole number) with this weight; nothing where it lies outside and zeros are the padding. */
static void add_tap(ap_legal *l, const sample *s, axis_taps *t, ap_value v, ap_value weight, int64_t n)
{
    v = padded(l, s, v, n);
    if (s->padding[0] == 'z') {
        ap_value inside = ap_emit2(l, AP_OP_AND, ap_emit2(l, AP_OP_LE, like(l, v, 0), v),
                                   ap_emit2(l, AP_OP_LE, v, like(l, v, (double)(n - 1))));
        weight = ap_emit_select(l, inside, weight, like(l, v, 0));
    }
    t->index[t->n] = ap_emit_cast(l, clamp(l, v, 0, (double)(n - 1)), AP_I64);
    t->weight[t->n++] = weight;
}

/* The cubic kernel with a = -0.75 at distance d, within 1 or beyond. */
static ap_value cubic(ap_legal *l, ap_value d, bool near)
{
    const double a = -0.75, c[2][4] = {{-4 * a, 8 * a, -5 * a, a}, {1, 0, -(a + 3), a + 2}};
    ap_value v = like(l, d, c[near][3]);
    for (int i = 2; i >= 0; i--)
        v = ap_emit2(l, AP_OP_ADD, ap_emit2(l, AP_OP_MUL, v, d), like(l, d, c[near][i]));
    return v;
}

static axis_taps taps_of(ap_legal *l, const sample *s, ap_value g, int64_t n)
{
    axis_taps t = {0};
    ap_value at = to_entries(l, s, g, n);
    if (s->mode == NEAREST) {
        add_tap(l, s, &t, ap_emit1(l, AP_OP_ROUND, at), like(l, g, 1), n);
        return t;
    }
    ap_value floor = ap_emit1(l, AP_OP_FLOOR, at), part = ap_emit2(l, AP_OP_SUB, at, floor);
    ap_value rest = ap_emit2(l, AP_OP_SUB, like(l, g, 1), part);
    if (s->mode == LINEAR) {
        add_tap(l, s, &t, floor, rest, n);
        add_tap(l, s, &t, ap_emit2(l, AP_OP_ADD, floor, like(l, g, 1)), part, n);
        return t;
    }
    ap_value one = like(l, g, 1);
    add_tap(l, s, &t, ap_emit2(l, AP_OP_SUB, floor, one), cubic(l, ap_emit2(l, AP_OP_ADD, part, one), false), n);
    add_tap(l, s, &t, floor, cubic(l, part, true), n);
    add_tap(l, s, &t, ap_emit2(l, AP_OP_ADD, floor, one), cubic(l, rest, true), n);
    add_tap(l, s, &t, ap_emit2(l, AP_OP_ADD, floor, like(l, g, 2)), cubic(l, ap_emit2(l, AP_OP_ADD, rest, one), false),
            n);
    return t;
}

/* The sum over all combinations of taps of what lies there, weighted: [n,c,p] */
static ap_value sum_of_taps(ap_legal *l, ap_value planes, const ap_dims *x, const axis_taps *t, ap_dtype type)
{
    int r = x->rank - 2, at[MOST_SPATIAL] = {0};
    ap_value sum = AP_NONE;
    for (bool more = true; more && !l->status;) {
        ap_value index = AP_NONE, weight = AP_NONE;
        for (int d = 0; d < r; d++) {
            ap_value i = t[d].index[at[d]], w = t[d].weight[at[d]];
            ap_value size = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = x->at[2 + d]});
            index = d ? ap_emit2(l, AP_OP_ADD, ap_emit2(l, AP_OP_MUL, index, size), i) : i;
            weight = d ? ap_emit2(l, AP_OP_MUL, weight, w) : w;
        }
        ap_value v = ap_emit_gather_letters(l, planes, index, "ncv", "np", "ncp");
        ap_dims k = ap_dims_of(l, index), wide = {.rank = 3, .at = {k.at[0], 1, k.at[1]}};
        ap_dims w = ap_dims_of(l, weight);
        if (w.rank == 2)
            weight = ap_emit_reshape(l, weight, &wide);
        v = ap_emit2(l, AP_OP_MUL, v, ap_emit_cast(l, weight, type));
        sum = sum == AP_NONE ? v : ap_emit2(l, AP_OP_ADD, sum, v);
        more = false;
        for (int d = r - 1; d >= 0 && !more; d--) {
            more = ++at[d] < t[d].n;
            if (!more)
                at[d] = 0;
        }
    }
    return sum;
}

static bool read_sample(ap_legal *l, sample *s)
{
    const char *mode = ap_attr_str(l, "mode", ap_opset(l) < 20 ? "bilinear" : "linear");
    s->padding = ap_attr_str(l, "padding_mode", "zeros");
    s->align = ap_attr_int(l, "align_corners", 0) != 0;
    s->mode = is(mode, "nearest") ? NEAREST : is(mode, "cubic") || is(mode, "bicubic") ? CUBIC : LINEAR;
    if (!l->status && s->mode == LINEAR && !is(mode, "linear") && !is(mode, "bilinear"))
        ap_refuse(l, "mode \"%.40s\" is not known", mode);
    if (!l->status && !is(s->padding, "zeros") && !is(s->padding, "border") && !is(s->padding, "reflection"))
        ap_refuse(l, "padding_mode \"%.40s\" is not known", s->padding);
    return !l->status;
}

void ap_lower_grid_sample(ap_legal *l)
{
    ap_value x = ap_in(l, 0), grid = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, x), g = ap_dims_of(l, grid), y = {.rank = s.rank, .at = {s.at[0], s.at[1]}};
    sample how;
    int r = s.rank - 2;
    if (l->status || !read_sample(l, &how))
        return;
    if (r < 1 || r > MOST_SPATIAL || g.rank != s.rank || g.at[0] != s.at[0] || g.at[g.rank - 1] != r ||
        !ap_dtype_is_float(ap_dtype_of(l, x))) {
        ap_refuse(l, "%s of %s and the grid %s do not go together", ap_dtype_str(ap_dtype_of(l, x)), ap_dims_str(l, &s),
                  ap_dims_str(l, &g));
        return;
    }
    ap_dims points = {.rank = 2, .at = {s.at[0], 1}};
    for (int d = 0; d < r; d++) {
        y.at[2 + d] = g.at[1 + d];
        points.at[1] = ap_sat_mul(points.at[1], g.at[1 + d]);
    }
    if (ap_dims_count(&y) == 0 || ap_dims_count(&s) == 0) {
        ap_set_out(l, 0, zeros(l, ap_dtype_of(l, x), &y));
        return;
    }
    axis_taps t[MOST_SPATIAL];
    ap_dtype wide = ap_dtype_of(l, grid) == AP_F64 ? AP_F64 : AP_F32;
    for (int d = 0; d < r; d++) { /* the grid has x first, which is the last dimension */
        ap_value c = ap_emit_part(l, grid, g.rank - 1, r - 1 - d, 1);
        t[d] = taps_of(l, &how, ap_emit_cast(l, ap_emit_reshape(l, c, &points), wide), s.at[2 + d]);
    }
    ap_value v = sum_of_taps(l, flat_planes(l, x), &s, t, ap_dtype_of(l, x));
    ap_set_out(l, 0, ap_emit_reshape(l, v, &y));
}

/* ---- AffineGrid ---- */

/* [p, r+1]: the coordinates of every point, x first, and a one. */
static ap_value base_grid(ap_legal *l, ap_dtype t, int r, const int64_t *extent, int64_t points, bool align)
{
    ap_tensor *base = AP_NEW(&l->ctx->scratch, ap_tensor);
    const int64_t dims[2] = {points, r + 1};
    if (!ap_tensor_make(&l->ctx->scratch, t, ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, 2, dims)), base)) {
        ap_refuse(l, "a grid of %" PRId64 " points is too large", points);
        return AP_NONE;
    }
    for (int64_t p = 0; p < points; p++) {
        int64_t rest = p;
        for (int d = r - 1; d >= 0; d--) {
            double n = (double)extent[d], i = (double)(rest % extent[d]);
            double at = align ? (n > 1 ? -1 + 2 * i / (n - 1) : -1) : (2 * i + 1) / n - 1;
            base->at[p * (r + 1) + r - 1 - d] = ap_scalar_round(t, (ap_scalar){.f = at});
            rest /= extent[d];
        }
        base->at[p * (r + 1) + r].f = 1;
    }
    return ap_emit_tensor(l, base);
}

void ap_lower_affine_grid(ap_legal *l)
{
    ap_value theta = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, theta), y = {0};
    int64_t size[AP_MAX_RANK], points = 1;
    int n = ap_known_ints(l, ap_in(l, 1), "the size", size, AP_MAX_RANK), r = n - 2;
    if (!l->status && (r < 2 || r > 3 || s.rank != 3 || s.at[0] != size[0] || s.at[1] != r || s.at[2] != r + 1))
        ap_refuse(l, "theta %s and a size of %d numbers do not go together", ap_dims_str(l, &s), n);
    y.rank = r + 2;
    for (int d = 0; d < r && !l->status; d++) {
        if (size[2 + d] < 1)
            ap_refuse(l, "the size holds %" PRId64, size[2 + d]);
        y.at[1 + d] = size[2 + d];
        points = ap_sat_mul(points, size[2 + d]);
    }
    if (l->status)
        return;
    y.at[0] = size[0];
    y.at[r + 1] = r;
    bool align = ap_attr_int(l, "align_corners", 0) != 0;
    ap_value base = base_grid(l, ap_dtype_of(l, theta), r, size + 2, points, align);
    ap_set_out(l, 0, ap_emit_reshape(l, ap_emit_contract(l, theta, base, "nrk", "pk", "npr"), &y));
}

/* ---- MaxUnpool ---- */

/* An attribute with a number per spatial dimension. */
static void spatial_list(ap_legal *l, const char *name, int n, int64_t otherwise, int64_t *out)
{
    int have = ap_attr_ints(l, name, out, n);
    if (!l->status && have >= 0 && have != n)
        ap_refuse(l, "%s has %d entries, not %d", name, have, n);
    for (int i = 0; i < n && have < 0; i++)
        out[i] = otherwise;
    for (int i = 0; i < n && !l->status; i++)
        if (out[i] < 0 || out[i] > AP_WINDOW_MAX)
            ap_refuse(l, "%s holds %" PRId64, name, out[i]);
}

/* What was pooled, as far as it is known: zeros elsewhere. Indices count the elements of the inferred shape; a larger
 * shape gets zeros at its ends. */
void ap_lower_max_unpool(ap_legal *l)
{
    ap_value x = ap_in(l, 0), ids = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, x), y = s, k = ap_dims_of(l, ids);
    int r = s.rank - 2;
    int64_t kernel[AP_MAX_RANK], stride[AP_MAX_RANK], pads[2 * AP_MAX_RANK], want[AP_MAX_RANK];
    if (!l->status && (r < 1 || !ap_dims_equal(&s, &k)))
        ap_refuse(l, "values %s and indices %s do not go together", ap_dims_str(l, &s), ap_dims_str(l, &k));
    if (l->status)
        return;
    spatial_list(l, "kernel_shape", r, 1, kernel);
    spatial_list(l, "strides", r, 1, stride);
    spatial_list(l, "pads", 2 * r, 0, pads);
    for (int d = 0; d < r && !l->status; d++) {
        y.at[2 + d] = (s.at[2 + d] - 1) * stride[d] + kernel[d] - pads[d] - pads[r + d];
        if (y.at[2 + d] < 1)
            ap_refuse(l, "the result has no elements");
    }
    if (l->status)
        return;
    ap_dims all = {.rank = 1, .at = {ap_dims_count(&y)}}, given = {.rank = 1, .at = {ap_dims_count(&s)}};
    ids = ap_emit_index(l, ap_emit_reshape(l, ids, &given), all.at[0]);
    ap_value v = ap_emit_scatter(l, AP_SCATTER_SET, zeros(l, ap_dtype_of(l, x), &all), ids,
                                 ap_emit_reshape(l, x, &given), 0, (const char *const[3]){"v", "p", "p"});
    v = ap_emit_reshape(l, v, &y);
    if (ap_has_in(l, 2)) {
        int64_t lo[AP_MAX_RANK] = {0}, hi[AP_MAX_RANK] = {0};
        int n = ap_known_ints(l, ap_in(l, 2), "the output shape", want, AP_MAX_RANK);
        for (int d = 0; d < s.rank && !l->status; d++) {
            hi[d] = n == s.rank ? want[d] - y.at[d] : -1;
            if (hi[d] < 0)
                ap_refuse(l, "the output shape is smaller than %s", ap_dims_str(l, &y));
        }
        v = l->status ? AP_NONE : ap_emit_pad(l, v, lo, hi, like(l, x, 0));
    }
    ap_set_out(l, 0, v);
}

/* ---- Col2Im ---- */

typedef struct blocks {
    int r;
    int64_t image[AP_MAX_RANK], block[AP_MAX_RANK], stride[AP_MAX_RANK], dilation[AP_MAX_RANK], pads[2 * AP_MAX_RANK];
    int64_t windows[AP_MAX_RANK]; /* per dimension */
    int64_t places, count, pixels;
} blocks;

static bool read_blocks(ap_legal *l, const ap_dims *s, blocks *b)
{
    b->r = ap_known_ints(l, ap_in(l, 1), "the image shape", b->image, AP_MAX_RANK);
    int n = ap_known_ints(l, ap_in(l, 2), "the block shape", b->block, AP_MAX_RANK);
    if (!l->status && (b->r != n || n < 1 || n > AP_MAX_RANK - 2 || s->rank != 3))
        ap_refuse(l, "columns %s, %d extents of the image and %d of a block do not go together", ap_dims_str(l, s),
                  b->r, n);
    if (l->status)
        return false;
    spatial_list(l, "strides", n, 1, b->stride);
    spatial_list(l, "dilations", n, 1, b->dilation);
    spatial_list(l, "pads", 2 * n, 0, b->pads);
    b->places = b->count = b->pixels = 1;
    for (int d = 0; d < n && !l->status; d++) {
        ap_window w = {b->block[d], b->stride[d], b->dilation[d], b->pads[d], b->pads[n + d]};
        if (w.kernel < 1 || w.stride < 1 || w.dilation < 1 || b->image[d] < 1 || b->image[d] > AP_WINDOW_MAX)
            ap_refuse(l, "the image or its blocks have no elements");
        b->windows[d] = l->status ? 0 : ap_window_count(&w, b->image[d], false);
        b->places = ap_sat_mul(b->places, b->block[d]);
        b->count = ap_sat_mul(b->count, b->windows[d]);
        b->pixels = ap_sat_mul(b->pixels, b->image[d]);
    }
    if (!l->status && (s->at[2] != b->count || s->at[1] % b->places || b->count == 0 || b->pixels > INT32_MAX))
        ap_refuse(l, "%s is not %" PRId64 " places of %" PRId64 " blocks", ap_dims_str(l, s), b->places, b->count);
    return !l->status;
}

/* Which pixel each place of each block is; `pixels`, one too many, where it is none. */
static ap_value pixel_numbers(ap_legal *l, const blocks *b)
{
    int64_t n = b->places * b->count;
    int64_t *number = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t place = i / b->count, window = i % b->count, step = 1;
        for (int d = b->r - 1; d >= 0; d--) {
            int64_t at = window % b->windows[d] * b->stride[d] + place % b->block[d] * b->dilation[d] - b->pads[d];
            bool inside = at >= 0 && at < b->image[d] && number[i] != b->pixels;
            number[i] = inside ? number[i] + at * step : b->pixels;
            step *= b->image[d];
            place /= b->block[d];
            window /= b->windows[d];
        }
    }
    return ap_emit_ints(l, (int)n, number);
}

void ap_lower_col2im(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    blocks b = {0};
    if (l->status || !read_blocks(l, &s, &b))
        return;
    int64_t channels = s.at[1] / b.places;
    ap_dims wide = {3, {s.at[0], channels, b.places * b.count}}, base = {3, {s.at[0], channels, b.pixels + 1}};
    ap_dims y = {.rank = 2 + b.r, .at = {s.at[0], channels}};
    memcpy(y.at + 2, b.image, (size_t)b.r * sizeof *b.image);
    ap_value v = ap_emit_scatter(l, AP_SCATTER_ADD, zeros(l, ap_dtype_of(l, x), &base), pixel_numbers(l, &b),
                                 ap_emit_reshape(l, x, &wide), 2, (const char *const[3]){"ncv", "p", "ncp"});
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_reshape(l, ap_emit_part(l, v, 2, 0, b.pixels), &y));
}

/* ---- CenterCropPad ---- */

void ap_lower_center_crop_pad(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t want[AP_MAX_RANK], axes[AP_MAX_RANK], start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], step[AP_MAX_RANK];
    int64_t lo[AP_MAX_RANK] = {0}, hi[AP_MAX_RANK] = {0};
    int n = ap_known_ints(l, ap_in(l, 1), "the shape", want, AP_MAX_RANK);
    int given = ap_attr_ints(l, "axes", axes, AP_MAX_RANK);
    if (!l->status && (given < 0 ? s.rank : given) != n)
        ap_refuse(l, "%d sizes for %d axes", n, given < 0 ? s.rank : given);
    if (!l->status && given >= 0)
        ap_axes_mask_of(l, axes, given, s.rank);
    for (int d = 0; d < s.rank; d++) {
        count[d] = s.at[d];
        step[d] = 1;
    }
    for (int i = 0; i < n && !l->status; i++) {
        int d = given < 0 ? i : ap_axis(l, axes[i], s.rank);
        int64_t more = want[i] - s.at[d];
        if (want[i] < 0)
            ap_refuse(l, "a size is %" PRId64, want[i]);
        if (more < 0) {
            start[d] = -more / 2;
            count[d] = want[i];
        } else {
            lo[d] = more / 2;
            hi[d] = more - more / 2;
        }
    }
    if (l->status)
        return;
    ap_set_out(l, 0, ap_emit_pad(l, ap_emit_slice(l, x, start, count, step), lo, hi, like(l, x, 0)));
}
