/* Reductions, softmax and normalisations, written as exporters write them: a later pass matches one form only.
 * A mean is a sum times 1/n, so that what is split is a sum. */
#include "frontend/legalise.h"

#include <math.h>

static ap_value number_like(ap_legal *l, ap_value x, double v)
{
    return l->status ? AP_NONE : ap_emit_number(l, ap_dtype_of(l, x), v);
}

static ap_value square(ap_legal *l, ap_value x)
{
    return ap_emit2(l, AP_OP_MUL, x, x);
}

/* ---- reductions ---- */

enum { REDUCE_PLAIN, REDUCE_MEAN, REDUCE_SUM_SQUARE, REDUCE_L1, REDUCE_L2, REDUCE_LOG_SUM, REDUCE_LOG_SUM_EXP };

static ap_value log_sum_exp(ap_legal *l, ap_value x, uint32_t axes, bool keep)
{
    ap_value m = ap_emit_reduce(l, AP_REDUCE_MAX, x, axes, true);
    ap_value infinite = ap_emit2(l, AP_OP_EQ, ap_emit1(l, AP_OP_ABS, m), number_like(l, m, INFINITY));
    m = ap_emit_select(l, infinite, number_like(l, m, 0), m);
    ap_value e = ap_emit1(l, AP_OP_EXP, ap_emit2(l, AP_OP_SUB, x, m));
    ap_value v = ap_emit1(l, AP_OP_LOG, ap_emit_reduce(l, AP_REDUCE_SUM, e, axes, true));
    v = ap_emit2(l, AP_OP_ADD, v, m);
    /* drops the axes, all of extent 1 now */
    return keep ? v : ap_emit_reduce(l, AP_REDUCE_SUM, v, axes, false);
}

static ap_value reduce_by(ap_legal *l, ap_value x, uint32_t axes, bool keep)
{
    const ap_onnx_op *op = l->node->op;
    switch (op->variant) {
    case REDUCE_MEAN:
        return ap_emit_mean(l, x, axes, keep);
    case REDUCE_SUM_SQUARE:
        return ap_emit_reduce(l, AP_REDUCE_SUM, square(l, x), axes, keep);
    case REDUCE_L1:
        return ap_emit_reduce(l, AP_REDUCE_SUM, ap_emit1(l, AP_OP_ABS, x), axes, keep);
    case REDUCE_L2: {
        ap_dtype t = ap_dtype_of(l, x), work = ap_dtype_is_float(t) ? t : AP_F64;
        ap_value sum = ap_emit_reduce(l, AP_REDUCE_SUM, square(l, ap_emit_cast(l, x, work)), axes, keep);
        return ap_emit_cast(l, ap_emit1(l, AP_OP_SQRT, sum), t);
    }
    case REDUCE_LOG_SUM:
        return ap_emit1(l, AP_OP_LOG, ap_emit_reduce(l, AP_REDUCE_SUM, x, axes, keep));
    case REDUCE_LOG_SUM_EXP:
        return log_sum_exp(l, x, axes, keep);
    default:
        break;
    }
    if (ap_dtype_of(l, x) != AP_BOOL)
        return ap_emit_reduce(l, op->kind, x, axes, keep);
    return ap_emit_cast(l, ap_emit_reduce(l, op->kind, ap_emit_cast(l, x, AP_I32), axes, keep), AP_BOOL);
}

/* Axes are an attribute first and an input later; none means all, or none at all. */
void ap_lower_reduce(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t axes[AP_MAX_RANK];
    int n = ap_has_in(l, 1) ? ap_known_ints(l, ap_in(l, 1), "axes", axes, AP_MAX_RANK)
                            : ap_attr_ints(l, "axes", axes, AP_MAX_RANK);
    bool keep = ap_attr_int(l, "keepdims", 1) != 0, noop = ap_attr_int(l, "noop_with_empty_axes", 0) != 0;
    uint32_t mask = n > 0 ? ap_axes_mask_of(l, axes, n, s.rank) : noop ? 0 : (1u << s.rank) - 1;
    ap_set_out(l, 0, l->status ? AP_NONE : reduce_by(l, x, mask, keep));
}

/* ArgMax and ArgMin: the first on ties; the last one is found from behind. */
void ap_lower_arg(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int axis = ap_axis(l, ap_attr_int(l, "axis", 0), s.rank);
    bool keep = ap_attr_int(l, "keepdims", 1) != 0, last = ap_attr_int(l, "select_last_index", 0) != 0;
    if (l->status)
        return;
    int64_t n = s.at[axis], start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], step[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++) {
        count[i] = s.at[i];
        step[i] = 1;
    }
    start[axis] = n - 1;
    step[axis] = -1;
    if (last)
        x = ap_emit_slice(l, x, start, count, step);
    ap_value v = ap_emit_reduce(l, l->node->op->kind, x, 1u << axis, keep);
    if (last)
        v = ap_emit2(l, AP_OP_SUB, ap_emit_number(l, AP_I64, (double)(n - 1)), v);
    ap_set_out(l, 0, v);
}

/* ---- softmax ---- */

ap_value ap_emit_softmax(ap_legal *l, ap_value x, uint32_t axes, bool logarithm)
{
    ap_value d = ap_emit2(l, AP_OP_SUB, x, ap_emit_reduce(l, AP_REDUCE_MAX, x, axes, true));
    ap_value e = ap_emit1(l, AP_OP_EXP, d);
    ap_value z = ap_emit_reduce(l, AP_REDUCE_SUM, e, axes, true);
    if (logarithm)
        return ap_emit2(l, AP_OP_SUB, d, ap_emit1(l, AP_OP_LOG, z));
    return ap_emit2(l, AP_OP_DIV, e, z);
}

/* Before opset 13 the axis is where the operand is flattened: all from there on are one row. */
void ap_lower_softmax(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    bool old = ap_opset(l) < 13;
    int64_t axis = ap_attr_int(l, "axis", old ? 1 : -1);
    if (!(old && axis == s.rank) && !(s.rank == 0 && (axis == 0 || axis == -1)))
        axis = ap_axis(l, axis, s.rank);
    if (l->status)
        return;
    uint32_t all = (1u << s.rank) - 1, from = s.rank ? all & ~((1u << axis) - 1) : 0;
    ap_set_out(l, 0, ap_emit_softmax(l, x, old ? from : s.rank ? 1u << axis : 0, l->node->op->variant == 1));
}

/* ---- normalisations ---- */

ap_normed ap_emit_normalise(ap_legal *l, ap_value x, uint32_t axes, double epsilon, bool centre)
{
    ap_normed r = {AP_NONE, AP_NONE, AP_NONE};
    if (l->status)
        return r;
    ap_dtype t = ap_dtype_of(l, x), work = t == AP_F16 || t == AP_BF16 ? AP_F32 : t;
    ap_value d = ap_emit_cast(l, x, work);
    if (centre) {
        r.mean = ap_emit_mean(l, d, axes, true);
        d = ap_emit2(l, AP_OP_SUB, d, r.mean);
    }
    ap_value variance = ap_emit_mean(l, square(l, d), axes, true);
    r.deviation = ap_emit1(l, AP_OP_SQRT, ap_emit2(l, AP_OP_ADD, variance, number_like(l, d, epsilon)));
    r.y = ap_emit_cast(l, ap_emit2(l, AP_OP_DIV, d, r.deviation), t);
    return r;
}

static void set_reciprocal(ap_legal *l, uint32_t out, ap_value deviation)
{
    if (ap_wants_out(l, out))
        ap_set_out(l, out, ap_emit1(l, AP_OP_RECIPROCAL, deviation));
}

ap_value ap_emit_scale_and_shift(ap_legal *l, ap_value y, ap_value scale, ap_value bias)
{
    ap_dims before = ap_dims_of(l, y);
    if (scale != AP_NONE)
        y = ap_emit2(l, AP_OP_MUL, y, scale);
    if (bias != AP_NONE)
        y = ap_emit2(l, AP_OP_ADD, y, bias);
    ap_dims after = ap_dims_of(l, y);
    if (!l->status && !ap_dims_equal(&before, &after))
        ap_refuse(l, "scale or bias does not fit %s", ap_dims_str(l, &before));
    return y;
}

static uint32_t axes_from(ap_legal *l, const ap_dims *s)
{
    int axis = ap_axis(l, ap_attr_int(l, "axis", -1), s->rank);
    return ((1u << s->rank) - 1) & ~((1u << axis) - 1);
}

void ap_lower_layer_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0), scale = ap_in(l, 1), bias = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, x);
    ap_normed n = ap_emit_normalise(l, x, axes_from(l, &s), ap_attr_float(l, "epsilon", (double)1e-5f), true);
    ap_set_out(l, 0, ap_emit_scale_and_shift(l, n.y, scale, bias));
    if (ap_wants_out(l, 1))
        ap_set_out(l, 1, n.mean);
    set_reciprocal(l, 2, n.deviation);
}

void ap_lower_rms_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0), scale = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, x);
    ap_normed n = ap_emit_normalise(l, x, axes_from(l, &s), ap_attr_float(l, "epsilon", (double)1e-5f), false);
    ap_set_out(l, 0, ap_emit_scale_and_shift(l, n.y, scale, AP_NONE));
    set_reciprocal(l, 1, n.deviation);
}

/* Norm of input + skip (+ bias), as ONNX Runtime's optimiser joins them. */
void ap_lower_skip_layer_norm(ap_legal *l)
{
    bool rms = l->node->op->variant == 1;
    ap_value x = ap_in(l, 0), skip = ap_in(l, 1), scale = ap_in(l, 2);
    ap_value beta = rms ? AP_NONE : ap_in(l, 3), bias = ap_in(l, rms ? 3 : 4);
    ap_value sum = ap_emit2(l, AP_OP_ADD, x, skip);
    if (bias != AP_NONE)
        sum = ap_emit2(l, AP_OP_ADD, sum, bias);
    ap_dims s = ap_dims_of(l, sum);
    if (!l->status && s.rank == 0)
        ap_refuse(l, "the operand has no dimensions");
    if (l->status)
        return;
    ap_normed n = ap_emit_normalise(l, sum, 1u << (s.rank - 1), ap_attr_float(l, "epsilon", (double)1e-12f), !rms);
    ap_set_out(l, 0, ap_emit_scale_and_shift(l, n.y, scale, beta));
    if (!rms && ap_wants_out(l, 1))
        ap_set_out(l, 1, n.mean);
    set_reciprocal(l, 2, n.deviation);
    if (ap_wants_out(l, 3))
        ap_set_out(l, 3, sum);
}

/* Norm of the sum of the word, the position and the segment of each token. Positions count from 0 unless given. */
void ap_lower_embed_layer_norm(ap_legal *l)
{
    ap_value ids = ap_in(l, 0), segments = ap_in(l, 1), words = ap_in(l, 2), places = ap_in(l, 3), kinds = ap_in(l, 4);
    ap_value gamma = ap_in(l, 5), beta = ap_in(l, 6), mask = ap_in(l, 7), positions = ap_in(l, 8);
    ap_dims s = ap_dims_of(l, ids), p = ap_dims_of(l, places);
    if (words == AP_NONE || places == AP_NONE || gamma == AP_NONE || beta == AP_NONE)
        ap_refuse(l, "the embeddings of words and positions, scale and bias cannot be left out");
    if (!l->status && (s.rank != 2 || p.rank != 2 || (positions == AP_NONE && p.at[0] < s.at[1])))
        ap_refuse(l, "tokens %s and positions %s do not go together", ap_dims_str(l, &s), ap_dims_str(l, &p));
    if (!l->status && (segments == AP_NONE) != (kinds == AP_NONE))
        ap_refuse(l, "segments and their embedding go together");
    if (l->status)
        return;
    ap_value sum = ap_emit_gather(l, words, ids, 0);
    ap_dims before = ap_dims_of(l, sum);
    ap_value place =
        positions != AP_NONE ? ap_emit_gather(l, places, positions, 0) : ap_emit_part(l, places, 0, 0, s.at[1]);
    sum = ap_emit2(l, AP_OP_ADD, sum, place);
    if (segments != AP_NONE)
        sum = ap_emit2(l, AP_OP_ADD, sum, ap_emit_gather(l, kinds, segments, 0));
    ap_dims after = ap_dims_of(l, sum);
    if (!l->status && !ap_dims_equal(&before, &after))
        ap_refuse(l, "the embeddings have different shapes");
    ap_normed n = ap_emit_normalise(l, sum, 1u << 2, ap_attr_float(l, "epsilon", (double)1e-12f), true);
    ap_set_out(l, 0, ap_emit_scale_and_shift(l, n.y, gamma, beta));
    if (ap_wants_out(l, 1) && mask == AP_NONE)
        ap_set_out(l, 1, ap_emit_splat(l, AP_I32, &(ap_dims){1, {s.at[0]}}, (ap_scalar){0}));
    else if (ap_wants_out(l, 1)) { /* how many tokens are no padding */
        ap_value on = ap_emit_cast(l, ap_emit2(l, AP_OP_EQ, mask, number_like(l, mask, 1)), AP_I32);
        ap_set_out(l, 1, ap_emit_reduce(l, AP_REDUCE_SUM, on, 1u << 1, false));
    }
    ap_set_out(l, 2, sum);
}
