/* Convolutions. All of them become the core's conv, whose dimensions are batch, groups, channels, then spatial ones
 * (ir/op/conv.c): a transposed convolution is one over an operand with holes, with the kernel read from its end. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

typedef struct window {
    int n; /* spatial dimensions */
    int64_t in[AP_MAX_SPATIAL], kernel[AP_MAX_SPATIAL], stride[AP_MAX_SPATIAL], dilation[AP_MAX_SPATIAL];
    int64_t lo[AP_MAX_SPATIAL], hi[AP_MAX_SPATIAL];
} window;

/* A list with one entry per spatial dimension, or the default. */
static void list(ap_legal *l, const char *name, int n, int64_t otherwise, int64_t least, int64_t *out)
{
    int64_t given[2 * AP_MAX_SPATIAL];
    int have = ap_attr_ints(l, name, given, 2 * AP_MAX_SPATIAL);
    if (!l->status && have >= 0 && have != n)
        ap_refuse(l, "%s has %d entries, not %d", name, have, n);
    for (int i = 0; i < n && !l->status; i++) {
        out[i] = have < 0 ? otherwise : given[i];
        if (out[i] < least || out[i] > INT32_MAX)
            ap_refuse(l, "%s holds %" PRId64, name, out[i]);
    }
}

static void read_kernel(ap_legal *l, const ap_dims *weights, window *w)
{
    int64_t given[AP_MAX_SPATIAL];
    for (int i = 0; i < w->n && !l->status; i++) {
        w->kernel[i] = weights->at[2 + i];
        if (w->kernel[i] < 1 || w->kernel[i] > INT32_MAX)
            ap_refuse(l, "a kernel of the shape %s is not supported", ap_dims_str(l, weights));
    }
    if (l->status || !ap_has_attr(l, "kernel_shape"))
        return;
    list(l, "kernel_shape", w->n, 0, 0, given);
    if (!l->status && memcmp(given, w->kernel, (size_t)w->n * sizeof *given) != 0)
        ap_refuse(l, "kernel_shape is not that of the weights %s", ap_dims_str(l, weights));
}

/* What both kinds of convolution say; false when it was refused. */
static bool read_window(ap_legal *l, const ap_dims *x, const ap_dims *weights, window *w)
{
    int64_t pads[2 * AP_MAX_SPATIAL] = {0};
    *w = (window){.n = x->rank - 2};
    list(l, "strides", w->n, 1, 1, w->stride);
    list(l, "dilations", w->n, 1, 1, w->dilation);
    list(l, "pads", 2 * w->n, 0, 0, pads);
    for (int i = 0; i < w->n; i++) {
        w->in[i] = x->at[2 + i];
        w->lo[i] = pads[i];
        w->hi[i] = pads[w->n + i];
    }
    read_kernel(l, weights, w);
    return !l->status;
}

static int64_t reach(const window *w, int i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

/* NOTSET: the pads as given; VALID: none; SAME_UPPER and SAME_LOWER say where an odd element goes. */
typedef enum padding { PADS_GIVEN, PADS_NONE, PADS_UPPER, PADS_LOWER } padding;

static padding read_padding(ap_legal *l)
{
    static const char *const name[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const char *given = ap_attr_str(l, "auto_pad", "NOTSET");
    for (int i = 0; i < 4; i++)
        if (strcmp(given, name[i]) == 0)
            return (padding)i;
    ap_refuse(l, "auto_pad \"%.40s\" is not known", given);
    return PADS_GIVEN;
}

static void share_padding(window *w, int i, int64_t total, bool upper)
{
    w->lo[i] = upper ? total / 2 : total - total / 2;
    w->hi[i] = total - w->lo[i];
}

/* ---- the core's operator ---- */

/* [n,c,...] as [n,g,c/g,...], [m,...] as [g,m/g,...] */
static ap_value in_groups(ap_legal *l, ap_value x, int dim, int64_t groups)
{
    ap_dims s = ap_dims_of(l, x), d = {.rank = s.rank + 1};
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i < dim ? s.at[i] : i == dim ? groups : i == dim + 1 ? s.at[dim] / groups : s.at[i - 1];
    return l->status ? AP_NONE : ap_emit_reshape(l, x, &d);
}

/* Operands in groups already; `channels` of the result. */
static ap_value emit_conv(ap_legal *l, ap_value x, ap_value weights, const ap_conv_attr *attr, int64_t channels)
{
    if (l->status)
        return AP_NONE;
    ap_node_info info = {.u.conv = AP_NEW(l->m->arena, ap_conv_attr)};
    *info.u.conv = *attr;
    ap_value y = ap_emit(l, AP_OP_CONV, 2, (ap_value[]){x, weights}, &info, 0);
    ap_dims s = ap_dims_of(l, y), d = {.rank = s.rank - 1};
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i == 1 ? channels : s.at[i ? i + 1 : 0];
    return l->status ? AP_NONE : ap_emit_reshape(l, y, &d);
}

static ap_value add_bias(ap_legal *l, ap_value y, ap_value bias)
{
    if (l->status || bias == AP_NONE)
        return y;
    ap_dims s = ap_dims_of(l, y), b = ap_dims_of(l, bias), d = {.rank = s.rank - 1};
    if (b.rank != 1 || b.at[0] != s.at[1]) {
        ap_refuse(l, "bias %s does not fit the %" PRId64 " channels", ap_dims_str(l, &b), s.at[1]);
        return AP_NONE;
    }
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i == 0 ? s.at[1] : 1;
    return ap_emit2(l, AP_OP_ADD, y, ap_emit_reshape(l, bias, &d));
}

/* Channels in and out are dimensions `in` and `out` of the weights. */
static bool operands_fit(ap_legal *l, ap_dtype t, const ap_dims *x, const ap_dims *w, int64_t groups, bool transposed)
{
    bool fits = x->rank == w->rank && x->rank >= 3 && x->rank <= 2 + AP_MAX_SPATIAL && groups >= 1 &&
                w->at[0] % groups == 0 && x->at[1] % groups == 0 &&
                (transposed ? w->at[0] == x->at[1] : w->at[1] == x->at[1] / groups);
    if (!l->status && !ap_dtype_is_float(t))
        ap_refuse(l, "a convolution of %s is not supported", ap_dtype_str(t));
    if (!l->status && !fits)
        ap_refuse(l, "input %s and weights %s in %" PRId64 " groups do not go together", ap_dims_str(l, x),
                  ap_dims_str(l, w), groups);
    return !l->status;
}

/* ---- Conv ---- */

ap_value ap_emit_conv_node(ap_legal *l, ap_value x, ap_value weights)
{
    ap_dims s = ap_dims_of(l, x), f = ap_dims_of(l, weights);
    int64_t groups = ap_attr_int(l, "group", 1);
    padding pad = read_padding(l);
    ap_conv_attr attr = {0};
    window w;
    if (l->status || !operands_fit(l, ap_dtype_of(l, x), &s, &f, groups, false) || !read_window(l, &s, &f, &w))
        return AP_NONE;
    for (int i = 0; i < w.n; i++) {
        if (pad == PADS_NONE)
            w.lo[i] = w.hi[i] = 0;
        else if (pad != PADS_GIVEN) {
            int64_t count = (w.in[i] + w.stride[i] - 1) / w.stride[i];
            share_padding(&w, i, ap_max_i64(0, (count - 1) * w.stride[i] + reach(&w, i) - w.in[i]), pad == PADS_UPPER);
        }
        attr.dim[i] = (ap_conv_dim){w.lo[i], w.hi[i], w.stride[i], w.dilation[i], 1, false};
        if (!l->status && w.in[i] && w.in[i] + w.lo[i] + w.hi[i] < reach(&w, i))
            ap_refuse(l, "the kernel reaches over %" PRId64 " elements, %" PRId64 " are there with the padding",
                      reach(&w, i), w.in[i] + w.lo[i] + w.hi[i]);
    }
    return emit_conv(l, in_groups(l, x, 1, groups), in_groups(l, weights, 0, groups), &attr, f.at[0]);
}

static ap_value lower_conv(ap_legal *l)
{
    ap_value x = ap_in(l, 0), weights = ap_in(l, 1);
    ap_value y = ap_emit_conv_node(l, x, weights);
    return l->status ? AP_NONE : add_bias(l, y, ap_in(l, 2));
}

void ap_lower_conv(ap_legal *l)
{
    ap_set_out(l, 0, lower_conv(l));
}

/* An activation by the name of an ONNX operator, with its attributes in a list. */
static ap_value activate(ap_legal *l, ap_value x)
{
    const char *name = ap_attr_str(l, "activation", "");
    float p[2] = {0};
    int n = ap_attr_floats(l, "activation_params", p, 2);
    if (l->status || !*name)
        return x;
    ap_dtype t = ap_dtype_of(l, x);
    if (strcmp(name, "Relu") == 0)
        return ap_emit1(l, AP_OP_RELU, x);
    if (strcmp(name, "Sigmoid") == 0)
        return ap_emit1(l, AP_OP_SIGMOID, x);
    if (strcmp(name, "Tanh") == 0)
        return ap_emit1(l, AP_OP_TANH, x);
    if (strcmp(name, "LeakyRelu") == 0 && n == 1)
        return ap_emit_select(l, ap_emit2(l, AP_OP_LT, x, ap_emit_number(l, t, 0)),
                              ap_emit2(l, AP_OP_MUL, x, ap_emit_number(l, t, p[0])), x);
    if (strcmp(name, "Clip") == 0 && n == 2)
        return ap_emit2(l, AP_OP_MIN, ap_emit2(l, AP_OP_MAX, x, ap_emit_number(l, t, p[0])),
                        ap_emit_number(l, t, p[1]));
    if (strcmp(name, "HardSigmoid") == 0 && n == 2) {
        x = ap_emit2(l, AP_OP_ADD, ap_emit2(l, AP_OP_MUL, x, ap_emit_number(l, t, p[0])), ap_emit_number(l, t, p[1]));
        return ap_emit2(l, AP_OP_MIN, ap_emit2(l, AP_OP_MAX, x, ap_emit_number(l, t, 0)), ap_emit_number(l, t, 1));
    }
    ap_refuse(l, "the activation \"%.40s\" with %d parameters is not supported", name, n < 0 ? 0 : n);
    return AP_NONE;
}

/* ONNX Runtime's own: a convolution, a sum, an activation. */
void ap_lower_fused_conv(ap_legal *l)
{
    ap_value y = lower_conv(l), z = ap_in(l, 3);
    if (!l->status && z != AP_NONE)
        y = ap_emit2(l, AP_OP_ADD, y, z);
    ap_set_out(l, 0, activate(l, y));
}

/* ---- ConvTranspose ---- */

/* Padding of dimension i so that the result has that extent, or as near to it as padding gets. What an explicit extent
 * has more (`exact`) stands at the end; SAME then has less than the stride times the operand, as in ONNX Runtime. */
static void pad_to(window *w, int i, int64_t extra, int64_t extent, bool upper, bool exact)
{
    int64_t total = (w->in[i] - 1) * w->stride[i] + extra + reach(w, i) - extent;
    share_padding(w, i, ap_max_i64(0, total), upper);
    if (exact)
        w->hi[i] += ap_min_i64(0, total);
}

static bool read_extents(ap_legal *l, window *w, padding pad)
{
    int64_t extra[AP_MAX_SPATIAL] = {0}, given[2 + AP_MAX_SPATIAL];
    list(l, "output_padding", w->n, 0, 0, extra);
    int have = ap_attr_ints(l, "output_shape", given, 2 + AP_MAX_SPATIAL);
    if (!l->status && have > 0 && have != w->n && have != w->n + 2)
        ap_refuse(l, "output_shape has %d entries, not %d", have, w->n);
    for (int i = 0; i < w->n && !l->status; i++) {
        int64_t extent = have > 0 ? given[have - w->n + i] : w->in[i] * w->stride[i];
        if (extent < 0 || extent > INT32_MAX)
            ap_refuse(l, "output_shape holds %" PRId64, extent);
        if (have > 0 || pad == PADS_UPPER || pad == PADS_LOWER)
            pad_to(w, i, extra[i], extent, pad == PADS_UPPER, have > 0);
        else if (pad == PADS_NONE)
            w->lo[i] = w->hi[i] = 0;
        w->hi[i] -= extra[i];
    }
    return !l->status;
}

void ap_lower_conv_transpose(ap_legal *l)
{
    ap_value x = ap_in(l, 0), weights = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, x), f = ap_dims_of(l, weights);
    int64_t groups = ap_attr_int(l, "group", 1);
    padding pad = read_padding(l);
    ap_conv_attr attr = {0};
    window w;
    if (l->status || !operands_fit(l, ap_dtype_of(l, x), &s, &f, groups, true) || !read_window(l, &s, &f, &w) ||
        !read_extents(l, &w, pad))
        return;
    for (int i = 0; i < w.n; i++)
        attr.dim[i] =
            (ap_conv_dim){reach(&w, i) - 1 - w.lo[i], reach(&w, i) - 1 - w.hi[i], 1, w.dilation[i], w.stride[i], true};
    int perm[AP_MAX_RANK];
    weights = in_groups(l, weights, 0, groups); /* [g,c,m,...], wanted [g,m,c,...] */
    for (int i = 0; i < w.n + 3; i++)
        perm[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    weights = ap_emit_transpose(l, weights, perm);
    ap_value y = emit_conv(l, in_groups(l, x, 1, groups), weights, &attr, ap_sat_mul(f.at[1], groups));
    ap_set_out(l, 0, add_bias(l, y, ap_in(l, 2)));
}
