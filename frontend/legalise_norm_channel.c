/* Normalisations whose statistics or factors are per channel, and those of ONNX's older sets. The statistics are
 * written as LayerNormalization's are (legalise_norm.c), so that one pass makes one kernel of each. */
#include "frontend/legalise.h"

/* [C] as [C,1,...] for a value with channels at dimension 1; refuses another size. */
static ap_value per_channel(ap_legal *l, uint32_t input, const ap_dims *x, const char *what)
{
    ap_dims p = ap_dims_of(l, ap_in(l, input)), d = {.rank = x->rank - 1};
    if (!l->status && (p.rank != 1 || p.at[0] != x->at[1]))
        ap_refuse(l, "the %s %s does not fit the channels of %s", what, ap_dims_str(l, &p), ap_dims_str(l, x));
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i ? 1 : x->at[1];
    return l->status ? AP_NONE : ap_emit_reshape(l, ap_in(l, input), &d);
}

static bool has_channels(ap_legal *l, const ap_dims *s, int least)
{
    if (!l->status && s->rank < least)
        ap_refuse(l, "%s has no channels, or no planes", ap_dims_str(l, s));
    return !l->status;
}

/* ---- BatchNormalization ---- */

/* By the statistics given: one factor and one term per channel. */
static ap_value by_statistics(ap_legal *l, ap_value x, double epsilon)
{
    ap_dims s = ap_dims_of(l, x), d = {.rank = s.rank - 1};
    ap_value part[4]; /* scale, bias, mean, variance */
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i == 0 ? s.at[1] : 1;
    for (uint32_t i = 0; i < 4; i++) {
        ap_dims p = ap_dims_of(l, ap_in(l, i + 1));
        if (!l->status && (p.rank != 1 || p.at[0] != s.at[1]))
            ap_refuse(l, "%s does not fit the channels of %s", ap_dims_str(l, &p), ap_dims_str(l, &s));
        part[i] = ap_emit_cast(l, ap_in(l, i + 1), ap_dtype_of(l, x));
    }
    if (l->status)
        return AP_NONE;
    ap_value wide = ap_emit2(l, AP_OP_ADD, part[3], ap_emit_number(l, ap_dtype_of(l, part[3]), epsilon));
    ap_value factor = ap_emit2(l, AP_OP_DIV, part[0], ap_emit1(l, AP_OP_SQRT, wide));
    ap_value term = ap_emit2(l, AP_OP_SUB, part[1], ap_emit2(l, AP_OP_MUL, part[2], factor));
    x = ap_emit2(l, AP_OP_MUL, x, ap_emit_reshape(l, factor, &d));
    return ap_emit2(l, AP_OP_ADD, x, ap_emit_reshape(l, term, &d));
}

/* running * momentum + now * (1 - momentum); `now` has the channels as [1,C,1,...] */
static void set_running(ap_legal *l, uint32_t out, uint32_t in, ap_value now, double momentum)
{
    if (!ap_wants_out(l, out))
        return;
    ap_dims p = ap_dims_of(l, ap_in(l, in));
    ap_dtype t = ap_dtype_of(l, ap_in(l, in));
    now = ap_emit_cast(l, ap_emit_reshape(l, now, &p), t);
    ap_value old = ap_emit2(l, AP_OP_MUL, ap_in(l, in), ap_emit_number(l, t, momentum));
    ap_set_out(l, out, ap_emit2(l, AP_OP_ADD, old, ap_emit2(l, AP_OP_MUL, now, ap_emit_number(l, t, 1 - momentum))));
}

/* By the statistics of the batch, which move the running ones. */
static void train_batch_norm(ap_legal *l, ap_value x, double epsilon)
{
    ap_dims s = ap_dims_of(l, x);
    double momentum = ap_attr_float(l, "momentum", (double)0.9f);
    uint32_t axes = ((1u << s.rank) - 1) & ~2u;
    ap_value scale = per_channel(l, 1, &s, "scale"), bias = per_channel(l, 2, &s, "bias");
    per_channel(l, 3, &s, "mean");
    per_channel(l, 4, &s, "variance");
    ap_normed n = ap_emit_normalise(l, x, axes, epsilon, true);
    ap_value y = ap_emit_scale_and_shift(l, n.y, ap_emit_cast(l, scale, ap_dtype_of(l, x)),
                                         ap_emit_cast(l, bias, ap_dtype_of(l, x)));
    ap_set_out(l, 0, y);
    set_running(l, 1, 3, n.mean, momentum);
    if (!ap_wants_out(l, 2))
        return;
    ap_dtype t = ap_dtype_of(l, n.deviation);
    ap_value wide = ap_emit2(l, AP_OP_MUL, n.deviation, n.deviation);
    set_running(l, 2, 4, ap_emit2(l, AP_OP_SUB, wide, ap_emit_number(l, t, epsilon)), momentum);
}

void ap_lower_batch_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    double epsilon = ap_attr_float(l, "epsilon", (double)1e-5f);
    if (ap_attr_int(l, "spatial", 1) != 1)
        ap_refuse(l, "batch normalisation that is not per channel is not supported");
    if (ap_opset(l) < 7 && !ap_attr_int(l, "is_test", 0))
        ap_refuse(l, "batch normalisation by the batch needs opset 14");
    if (!has_channels(l, &s, 2))
        return;
    if (ap_attr_int(l, "training_mode", 0))
        train_batch_norm(l, x, epsilon);
    else
        ap_set_out(l, 0, by_statistics(l, x, epsilon));
}

/* ---- InstanceNormalization, GroupNormalization ---- */

void ap_lower_instance_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    if (!has_channels(l, &s, 3))
        return;
    uint32_t axes = ((1u << s.rank) - 1) & ~3u;
    ap_value scale = per_channel(l, 1, &s, "scale"), bias = per_channel(l, 2, &s, "bias");
    ap_normed n = ap_emit_normalise(l, x, axes, ap_attr_float(l, "epsilon", (double)1e-5f), true);
    ap_set_out(l, 0, ap_emit_scale_and_shift(l, n.y, scale, bias));
}

/* Scale and bias are per group in opset 18, per channel from 21 on: [G], or [C] as [G,C/G,1,...]. */
static ap_value group_factor(ap_legal *l, uint32_t input, const ap_dims *grouped)
{
    bool per_group = ap_opset(l) < 21;
    ap_dims p = ap_dims_of(l, ap_in(l, input)), d = {.rank = grouped->rank - 1};
    for (int i = 0; i < d.rank; i++)
        d.at[i] = i == 0 ? grouped->at[1] : i == 1 && !per_group ? grouped->at[2] : 1;
    if (!l->status && (p.rank != 1 || p.at[0] != ap_dims_count(&d)))
        ap_refuse(l, "a factor for %s does not fit groups and channels %s", ap_dims_str(l, &p),
                  ap_dims_str(l, grouped));
    return l->status ? AP_NONE : ap_emit_reshape(l, ap_in(l, input), &d);
}

void ap_lower_group_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), g = {.rank = s.rank + 1};
    int64_t groups = ap_attr_int(l, "num_groups", 0);
    if (!has_channels(l, &s, 2))
        return;
    if (groups < 1 || s.at[1] % groups || s.rank == AP_MAX_RANK) {
        ap_refuse(l, "%s in %d groups", ap_dims_str(l, &s), (int)groups);
        return;
    }
    for (int i = 0; i < g.rank; i++)
        g.at[i] = i == 0 ? s.at[0] : i == 1 ? groups : i == 2 ? s.at[1] / groups : s.at[i - 1];
    ap_value scale = group_factor(l, 1, &g), bias = group_factor(l, 2, &g);
    uint32_t axes = ((1u << g.rank) - 1) & ~3u;
    ap_normed n =
        ap_emit_normalise(l, ap_emit_reshape(l, x, &g), axes, ap_attr_float(l, "epsilon", (double)1e-5f), true);
    ap_set_out(l, 0, ap_emit_reshape(l, ap_emit_scale_and_shift(l, n.y, scale, bias), &s));
}

/* ---- older ones ---- */

/* (x - mean) / (√var + 1e-9) */
void ap_lower_mean_variance_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t axes[AP_MAX_RANK] = {0, 2, 3};
    int n = ap_attr_ints(l, "axes", axes, AP_MAX_RANK);
    uint32_t mask = ap_axes_mask_of(l, axes, n < 0 ? 3 : n, s.rank);
    if (l->status)
        return;
    ap_value d = ap_emit2(l, AP_OP_SUB, x, ap_emit_mean(l, x, mask, true));
    ap_value deviation = ap_emit1(l, AP_OP_SQRT, ap_emit_mean(l, ap_emit2(l, AP_OP_MUL, d, d), mask, true));
    deviation = ap_emit2(l, AP_OP_ADD, deviation, ap_emit_number(l, ap_dtype_of(l, x), 1e-9));
    ap_set_out(l, 0, ap_emit2(l, AP_OP_DIV, d, deviation));
}

/* x by its norm along one axis; nothing where that is 0. */
void ap_lower_lp_norm(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    ap_dtype t = ap_dtype_of(l, x);
    int axis = ap_axis(l, ap_attr_int(l, "axis", -1), s.rank);
    int64_t p = ap_attr_int(l, "p", 2);
    if (!l->status && p != 1 && p != 2)
        ap_refuse(l, "a norm with p = %d", (int)p);
    if (l->status)
        return;
    ap_value each = p == 1 ? ap_emit1(l, AP_OP_ABS, x) : ap_emit2(l, AP_OP_MUL, x, x);
    ap_value norm = ap_emit_reduce(l, AP_REDUCE_SUM, each, 1u << axis, true), zero = ap_emit_number(l, t, 0);
    if (p == 2)
        norm = ap_emit1(l, AP_OP_SQRT, norm);
    ap_value none = ap_emit2(l, AP_OP_EQ, norm, zero);
    norm = ap_emit_select(l, none, ap_emit_number(l, t, 1), norm);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_DIV, x, norm));
}
