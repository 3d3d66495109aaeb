/* Convolution with a small kernel, and pooling over whole planes.
 *
 * A convolution is the sum over the places of its kernel of one product each: the part of the padded input that this
 * place sees, times the weights at this place. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PLACES 32 /* of a kernel */
#define MAX_SPATIAL 3

typedef struct window {
    int n; /* spatial dimensions */
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL], lo[MAX_SPATIAL], hi[MAX_SPATIAL];
    int64_t out[MAX_SPATIAL];
    int64_t places;
} window;

/* A list with one entry per spatial dimension, or the default. */
static void list(ap_legal *l, const char *name, int n, int64_t otherwise, int64_t least, int64_t *out)
{
    int64_t given[2 * MAX_SPATIAL];
    int have = ap_attr_ints(l, name, given, n);
    if (!l->status && have >= 0 && have != n)
        ap_refuse(l, "%s has %d entries, not %d", name, have, n);
    for (int i = 0; i < n && !l->status; i++) {
        out[i] = have < 0 ? otherwise : given[i];
        if (out[i] < least || out[i] > INT32_MAX)
            ap_refuse(l, "%s holds %" PRId64, name, out[i]);
    }
}

/* SAME: as many results as the stride leaves of the input, the odd entry of the padding at the end or the beginning. */
static void pad_same(window *w, const int64_t *extent, bool upper)
{
    for (int i = 0; i < w->n; i++) {
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1, count = (extent[i] + w->stride[i] - 1) / w->stride[i];
        int64_t pad = ap_max_i64(0, (count - 1) * w->stride[i] + reach - extent[i]);
        w->lo[i] = upper ? pad / 2 : pad - pad / 2;
        w->hi[i] = pad - w->lo[i];
    }
}

static bool read_window(ap_legal *l, const ap_dims *x, const ap_dims *weights, window *w)
{
    int64_t pads[2 * MAX_SPATIAL] = {0}, given[MAX_SPATIAL];
    const char *fill = ap_attr_str(l, "auto_pad", "NOTSET");
    *w = (window){.n = x->rank - 2, .places = 1};
    list(l, "strides", w->n, 1, 1, w->stride);
    list(l, "dilations", w->n, 1, 1, w->dilation);
    list(l, "pads", 2 * w->n, 0, 0, pads);
    for (int i = 0; i < w->n; i++) {
        w->kernel[i] = weights->at[2 + i];
        w->places = ap_sat_mul(w->places, w->kernel[i]);
        w->lo[i] = pads[i];
        w->hi[i] = pads[w->n + i];
    }
    if (ap_has_attr(l, "kernel_shape")) {
        list(l, "kernel_shape", w->n, 0, 0, given);
        if (!l->status && memcmp(given, w->kernel, (size_t)w->n * sizeof *given) != 0)
            ap_refuse(l, "kernel_shape is not that of the weights %s", ap_dims_str(l, weights));
    }
    if (!l->status && (w->places == 0 || w->places > MAX_PLACES))
        ap_refuse(l, "a kernel of %" PRId64 " places is not supported, at most %d are", w->places, MAX_PLACES);
    if (!l->status && strncmp(fill, "SAME_", 5) == 0)
        pad_same(w, x->at + 2, strcmp(fill, "SAME_UPPER") == 0);
    else if (strcmp(fill, "NOTSET") != 0 && strcmp(fill, "VALID") != 0)
        ap_refuse(l, "auto_pad \"%.40s\" is not known", fill);
    for (int i = 0; i < w->n && !l->status; i++) {
        int64_t room = x->at[2 + i] + w->lo[i] + w->hi[i] - (w->kernel[i] - 1) * w->dilation[i] - 1;
        w->out[i] = room < 0 ? 0 : room / w->stride[i] + 1;
    }
    return !l->status;
}

/* [n,c,...] and weights [m,c/g,...] as [n,g,c/g,...] and [g,m/g,c/g,...]; one group has no dimension of its own. */
static ap_value in_groups(ap_legal *l, ap_value x, int dim, int64_t groups)
{
    ap_dims s = ap_dims_of(l, x), d = {.rank = s.rank + 1};
    if (l->status || groups == 1)
        return x;
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i < dim ? s.at[i] : i == dim ? groups : i == dim + 1 ? s.at[dim] / groups : s.at[i - 1];
    return ap_emit_reshape(l, x, &d);
}

/* The weights at one place: [m,c] */
static ap_value weights_at(ap_legal *l, ap_value weights, const int64_t *at, int n)
{
    ap_dims s = ap_dims_of(l, weights);
    for (int i = 0; i < n; i++)
        weights = ap_emit_part(l, weights, 2 + i, at[i], 1);
    return l->status ? AP_NONE : ap_emit_reshape(l, weights, &(ap_dims){2, {s.at[0], s.at[1]}});
}

/* What that place sees of the padded input. */
static ap_value seen_from(ap_legal *l, ap_value x, const window *w, const int64_t *at)
{
    int64_t start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], step[AP_MAX_RANK];
    ap_dims s = ap_dims_of(l, x);
    for (int i = 0; i < s.rank; i++) {
        bool spatial = i >= 2;
        start[i] = spatial ? at[i - 2] * w->dilation[i - 2] : 0;
        count[i] = spatial ? w->out[i - 2] : s.at[i];
        step[i] = spatial ? w->stride[i - 2] : 1;
    }
    return ap_emit_slice(l, x, start, count, step);
}

static ap_value sum_of_places(ap_legal *l, ap_value x, ap_value weights, const window *w, int64_t groups)
{
    /* n batch, g groups, m results of a group, c channels of a group, then the plane */
    static const char *const letters[2][MAX_SPATIAL][2] = {
        {{"ncx", "nmx"}, {"ncxy", "nmxy"}, {"ncxyz", "nmxyz"}},
        {{"ngcx", "ngmx"}, {"ngcxy", "ngmxy"}, {"ngcxyz", "ngmxyz"}}};
    const char *lx = letters[groups != 1][w->n - 1][0], *ly = letters[groups != 1][w->n - 1][1];
    const char *lw = groups == 1 ? "mc" : "gmc";
    int64_t at[MAX_SPATIAL] = {0};
    ap_value sum = AP_NONE;
    for (int64_t p = 0; p < w->places && !l->status; p++) {
        ap_value part = in_groups(l, seen_from(l, x, w, at), 1, groups);
        ap_value term =
            ap_emit_contract(l, part, in_groups(l, weights_at(l, weights, at, w->n), 0, groups), lx, lw, ly);
        sum = p ? ap_emit2(l, AP_OP_ADD, sum, term) : term;
        for (int i = w->n - 1; i >= 0 && ++at[i] == w->kernel[i]; i--)
            at[i] = 0;
    }
    return sum;
}

void ap_lower_conv(ap_legal *l)
{
    ap_value x = ap_in(l, 0), weights = ap_in(l, 1), bias = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, x), f = ap_dims_of(l, weights), y = s;
    int64_t groups = ap_attr_int(l, "group", 1), lo[AP_MAX_RANK] = {0}, hi[AP_MAX_RANK] = {0};
    window w;
    bool fits = s.rank == f.rank && s.rank >= 3 && s.rank <= 2 + MAX_SPATIAL && groups >= 1 && f.at[0] % groups == 0 &&
                s.at[1] % groups == 0 && f.at[1] == s.at[1] / groups;
    if (!l->status && !fits)
        ap_refuse(l, "input %s and weights %s in %" PRId64 " groups do not go together", ap_dims_str(l, &s),
                  ap_dims_str(l, &f), groups);
    if (l->status || !read_window(l, &s, &f, &w))
        return;
    for (int i = 0; i < w.n; i++) {
        lo[2 + i] = w.lo[i];
        hi[2 + i] = w.hi[i];
        y.at[2 + i] = w.out[i];
    }
    y.at[1] = f.at[0];
    if (ap_dims_count(&y) == 0) {
        ap_set_out(l, 0, ap_emit_splat(l, ap_dtype_of(l, x), &y, (ap_scalar){0}));
        return;
    }
    x = ap_emit_pad(l, x, lo, hi, ap_emit_number(l, ap_dtype_of(l, x), 0));
    ap_value v = ap_emit_reshape(l, sum_of_places(l, x, weights, &w, groups), &y);
    if (bias != AP_NONE && !l->status) {
        ap_dims d = {.rank = w.n + 1, .at = {f.at[0], 1, 1, 1}};
        v = ap_emit2(l, AP_OP_ADD, v, ap_emit_reshape(l, bias, &d));
    }
    ap_set_out(l, 0, v);
}

/* GlobalAveragePool and GlobalMaxPool: all spatial dimensions become 1. */
void ap_lower_global_pool(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    if (!l->status && s.rank < 3)
        ap_refuse(l, "%s has no planes to pool", ap_dims_str(l, &s));
    if (l->status)
        return;
    uint32_t axes = ((1u << s.rank) - 1) & ~3u;
    ap_set_out(l, 0,
               l->node->op->variant == 1 ? ap_emit_mean(l, x, axes, true)
                                         : ap_emit_reduce(l, AP_REDUCE_MAX, x, axes, true));
}
