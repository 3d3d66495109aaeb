/* Elementwise operators. Most are one core operator; the activations are written out as their formulas, which
 * a later pass may recognise again. */
#include "frontend/legalise.h"

#include <math.h>
#include <string.h>

static ap_value number_like(ap_legal *l, ap_value x, double v)
{
    return l->status ? AP_NONE : ap_emit_number(l, ap_dtype_of(l, x), v);
}

static ap_value times(ap_legal *l, ap_value x, double v)
{
    return ap_emit2(l, AP_OP_MUL, x, number_like(l, x, v));
}

static ap_value plus(ap_legal *l, ap_value x, double v)
{
    return ap_emit2(l, AP_OP_ADD, x, number_like(l, x, v));
}

void ap_lower_unary(ap_legal *l)
{
    ap_set_out(l, 0, ap_emit1(l, l->node->op->core, ap_in(l, 0)));
}

void ap_lower_binary(ap_legal *l)
{
    ap_value x = ap_in(l, 0), y = ap_in(l, 1);
    ap_set_out(l, 0, ap_emit2(l, l->node->op->core, x, y));
}

/* Greater(x, y) is lt(y, x). */
void ap_lower_compare_swapped(ap_legal *l)
{
    ap_value x = ap_in(l, 0), y = ap_in(l, 1);
    ap_set_out(l, 0, ap_emit2(l, l->node->op->core, y, x));
}

static ap_value join_all(ap_legal *l, ap_op op)
{
    ap_value v = ap_in(l, 0);
    for (uint32_t i = 1; i < l->node->nin; i++)
        v = ap_emit2(l, op, v, ap_in(l, i));
    return v;
}

void ap_lower_variadic(ap_legal *l)
{
    ap_set_out(l, 0, join_all(l, l->node->op->core));
}

void ap_lower_mean(ap_legal *l)
{
    ap_value sum = join_all(l, AP_OP_ADD);
    ap_set_out(l, 0, l->node->nin == 1 ? sum : times(l, sum, 1.0 / l->node->nin));
}

/* Exponents that exporters write are nearly always 2, 3 or 0.5. */
static ap_value power_of(ap_legal *l, ap_value x, double e)
{
    bool f = ap_dtype_is_float(ap_dtype_of(l, x));
    if (e == 1)
        return x;
    if (e == 2)
        return ap_emit2(l, AP_OP_MUL, x, x);
    if (e == 3)
        return ap_emit2(l, AP_OP_MUL, ap_emit2(l, AP_OP_MUL, x, x), x);
    if (e == 0.5 && f)
        return ap_emit1(l, AP_OP_SQRT, x);
    if (e == -1 && f)
        return ap_emit1(l, AP_OP_RECIPROCAL, x);
    return AP_NONE;
}

void ap_lower_pow(ap_legal *l)
{
    ap_value x = ap_in(l, 0), y = ap_in(l, 1);
    ap_dtype t = ap_dtype_of(l, x);
    ap_dims dx = ap_dims_of(l, x), dy = ap_dims_of(l, y), r = ap_dims_broadcast(l, &dx, &dy);
    double e;
    if (l->status)
        return;
    if (ap_dims_equal(&r, &dx) && ap_known_scalar(l, y, &e)) {
        ap_value v = power_of(l, x, e);
        if (v != AP_NONE || l->status) {
            ap_set_out(l, 0, v);
            return;
        }
    }
    /* Integers go through f64: exact as long as the result is below 2^53. */
    ap_dtype work = ap_dtype_is_float(t) ? t : AP_F64;
    ap_value v = ap_emit2(l, AP_OP_POW, ap_emit_cast(l, x, work), ap_emit_cast(l, y, work));
    ap_set_out(l, 0, ap_emit_cast(l, v, t));
}

void ap_lower_mod(ap_legal *l)
{
    ap_value x = ap_in(l, 0), y = ap_in(l, 1);
    if (l->status)
        return;
    if (ap_dtype_is_float(ap_dtype_of(l, x))) {
        if (!ap_attr_int(l, "fmod", 0))
            ap_refuse(l, "the remainder of floats needs fmod 1");
        ap_set_out(l, 0, ap_emit2(l, AP_OP_FMOD, x, y));
        return;
    }
    if (ap_attr_int(l, "fmod", 0)) { /* sign of the dividend, as in C */
        ap_value whole = ap_emit2(l, AP_OP_MUL, ap_emit2(l, AP_OP_DIV, x, y), y);
        ap_set_out(l, 0, ap_emit2(l, AP_OP_SUB, x, whole));
        return;
    }
    ap_set_out(l, 0, ap_emit2(l, AP_OP_MOD, x, y));
}

void ap_lower_where(ap_legal *l)
{
    ap_value c = ap_in(l, 0), x = ap_in(l, 1), y = ap_in(l, 2);
    ap_set_out(l, 0, ap_emit_select(l, c, x, y));
}

void ap_lower_clip(ap_legal *l)
{
    ap_value x = ap_in(l, 0), lo = AP_NONE, hi = AP_NONE;
    if (ap_opset(l) >= 11) {
        lo = ap_in(l, 1);
        hi = ap_in(l, 2);
    } else {
        lo = ap_has_attr(l, "min") ? number_like(l, x, ap_attr_float(l, "min", 0)) : AP_NONE;
        hi = ap_has_attr(l, "max") ? number_like(l, x, ap_attr_float(l, "max", 0)) : AP_NONE;
    }
    if (lo != AP_NONE)
        x = ap_emit2(l, AP_OP_MAX, x, lo);
    if (hi != AP_NONE)
        x = ap_emit2(l, AP_OP_MIN, x, hi);
    ap_set_out(l, 0, x);
}

/* ---- activations that differ below zero ---- */

static ap_value where_negative(ap_legal *l, ap_value x, ap_value then)
{
    return ap_emit_select(l, ap_emit2(l, AP_OP_LT, x, number_like(l, x, 0)), then, x);
}

void ap_lower_leaky_relu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, where_negative(l, x, times(l, x, ap_attr_float(l, "alpha", 0.01f))));
}

void ap_lower_prelu(ap_legal *l)
{
    ap_value x = ap_in(l, 0), slope = ap_in(l, 1);
    ap_set_out(l, 0, where_negative(l, x, ap_emit2(l, AP_OP_MUL, x, slope)));
}

static ap_value exp_minus_one(ap_legal *l, ap_value x)
{
    return plus(l, ap_emit1(l, AP_OP_EXP, x), -1);
}

void ap_lower_elu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, where_negative(l, x, times(l, exp_minus_one(l, x), ap_attr_float(l, "alpha", 1))));
}

void ap_lower_selu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    double alpha = ap_attr_float(l, "alpha", (double)1.67326319217681884765625f);
    ap_value v = where_negative(l, x, times(l, exp_minus_one(l, x), alpha));
    ap_set_out(l, 0, times(l, v, ap_attr_float(l, "gamma", (double)1.05070102214813232421875f)));
}

void ap_lower_celu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    double alpha = ap_attr_float(l, "alpha", 1);
    ap_set_out(l, 0, where_negative(l, x, times(l, exp_minus_one(l, times(l, x, 1 / alpha)), alpha)));
}

void ap_lower_thresholded_relu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_value above = ap_emit2(l, AP_OP_LT, number_like(l, x, ap_attr_float(l, "alpha", 1)), x);
    ap_set_out(l, 0, ap_emit_select(l, above, x, number_like(l, x, 0)));
}

/* ---- other activations ---- */

static ap_value hard_sigmoid(ap_legal *l, ap_value x, double alpha, double beta)
{
    ap_value v = plus(l, times(l, x, alpha), beta);
    v = ap_emit2(l, AP_OP_MAX, v, number_like(l, x, 0));
    return ap_emit2(l, AP_OP_MIN, v, number_like(l, x, 1));
}

void ap_lower_hard_sigmoid(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, hard_sigmoid(l, x, ap_attr_float(l, "alpha", (double)0.2f), ap_attr_float(l, "beta", 0.5)));
}

void ap_lower_hard_swish(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_MUL, x, hard_sigmoid(l, x, 1.0 / 6, 0.5)));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which cannot overflow */
static ap_value softplus(ap_legal *l, ap_value x)
{
    ap_value small = ap_emit1(l, AP_OP_EXP, ap_emit1(l, AP_OP_NEG, ap_emit1(l, AP_OP_ABS, x)));
    return ap_emit2(l, AP_OP_ADD, ap_emit1(l, AP_OP_RELU, x), ap_emit1(l, AP_OP_LOG, plus(l, small, 1)));
}

void ap_lower_softplus(ap_legal *l)
{
    ap_set_out(l, 0, softplus(l, ap_in(l, 0)));
}

void ap_lower_mish(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_MUL, x, ap_emit1(l, AP_OP_TANH, softplus(l, x))));
}

void ap_lower_softsign(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_DIV, x, plus(l, ap_emit1(l, AP_OP_ABS, x), 1)));
}

static void swish(ap_legal *l, double alpha)
{
    ap_value x = ap_in(l, 0), scaled = alpha == 1 ? x : times(l, x, alpha);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_MUL, x, ap_emit1(l, AP_OP_SIGMOID, scaled)));
}

void ap_lower_swish(ap_legal *l)
{
    swish(l, ap_attr_float(l, "alpha", 1));
}

/* swish(a) * b */
void ap_lower_swiglu(ap_legal *l)
{
    double alpha = ap_attr_float(l, "alpha", 1);
    ap_value a = ap_in(l, 0), gate = ap_emit1(l, AP_OP_SIGMOID, alpha == 1 ? a : times(l, a, alpha));
    ap_set_out(l, 0, ap_emit2(l, AP_OP_MUL, ap_emit2(l, AP_OP_MUL, a, gate), ap_in(l, 1)));
}

void ap_lower_quick_gelu(ap_legal *l)
{
    swish(l, ap_attr_float(l, "alpha", (double)1.702f));
}

/* Written as exporters write it: x/√2, erf, +1, times x, times 0.5; or the tanh form. */
ap_value ap_emit_gelu(ap_legal *l, ap_value x, bool tanh_form)
{
    if (!tanh_form) {
        ap_value e = ap_emit1(l, AP_OP_ERF, ap_emit2(l, AP_OP_DIV, x, number_like(l, x, sqrt(2))));
        return times(l, ap_emit2(l, AP_OP_MUL, x, plus(l, e, 1)), 0.5);
    }
    ap_value cube = power_of(l, x, 3);
    ap_value inner = times(l, ap_emit2(l, AP_OP_ADD, x, times(l, cube, 0.044715)), sqrt(2 / acos(-1)));
    return ap_emit2(l, AP_OP_MUL, times(l, x, 0.5), plus(l, ap_emit1(l, AP_OP_TANH, inner), 1));
}

void ap_lower_gelu(ap_legal *l)
{
    const char *form = ap_attr_str(l, "approximate", "none");
    bool tanh_form = strcmp(form, "tanh") == 0;
    if (!tanh_form && strcmp(form, "none") != 0)
        ap_refuse(l, "approximation \"%.40s\" is not known", form);
    ap_set_out(l, 0, ap_emit_gelu(l, ap_in(l, 0), tanh_form));
}

void ap_lower_fast_gelu(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    if (ap_has_in(l, 1))
        x = ap_emit2(l, AP_OP_ADD, x, ap_in(l, 1));
    ap_set_out(l, 0, ap_emit_gelu(l, x, true));
}

void ap_lower_bias_gelu(ap_legal *l)
{
    ap_value x = ap_in(l, 0), bias = ap_in(l, 1);
    ap_set_out(l, 0, ap_emit_gelu(l, ap_emit2(l, AP_OP_ADD, x, bias), false));
}

void ap_lower_tan(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_DIV, ap_emit1(l, AP_OP_SIN, x), ap_emit1(l, AP_OP_COS, x)));
}

/* All bits set minus x, with and without a sign. */
void ap_lower_bitwise_not(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dtype t = ap_dtype_of(l, x);
    if (!l->status && !ap_dtype_is_int(t))
        ap_refuse(l, "the bits of %s cannot be inverted", ap_dtype_str(t));
    ap_value ones = l->status ? AP_NONE : ap_emit_cast(l, ap_emit_number(l, AP_I64, -1), t);
    ap_set_out(l, 0, ap_emit2(l, AP_OP_SUB, ones, x));
}

void ap_lower_bit_shift(ap_legal *l)
{
    const char *direction = ap_attr_str(l, "direction", "");
    ap_value x = ap_in(l, 0), by = ap_in(l, 1);
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0)
        ap_refuse(l, "direction \"%.40s\" is neither LEFT nor RIGHT", direction);
    ap_dtype t = ap_dtype_of(l, x);
    if (!l->status && t != AP_U8 && t != AP_U16 && t != AP_U32 && t != AP_U64)
        ap_refuse(l, "only unsigned numbers are shifted, not %s", ap_dtype_str(t));
    ap_set_out(l, 0, ap_emit2(l, left ? AP_OP_SHIFT_LEFT : AP_OP_SHIFT_RIGHT, x, by));
}

/* x + bias below -lambd, x - bias above lambd, else 0; integers by way of f32 */
void ap_lower_shrink(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dtype t = ap_dtype_of(l, x), work = ap_dtype_is_float(t) ? t : AP_F32;
    double bias = ap_attr_float(l, "bias", 0), lambd = ap_attr_float(l, "lambd", 0.5);
    ap_value v = ap_emit_cast(l, x, work);
    ap_value below = ap_emit2(l, AP_OP_LT, v, number_like(l, v, -lambd));
    ap_value above = ap_emit2(l, AP_OP_LT, number_like(l, v, lambd), v);
    ap_value y = ap_emit_select(l, above, plus(l, v, -bias), number_like(l, v, 0));
    y = ap_emit_select(l, below, plus(l, v, bias), y);
    ap_set_out(l, 0, ap_emit_cast(l, y, t));
}

/* ---- tests ---- */

void ap_lower_is_nan(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_set_out(l, 0, ap_emit1(l, AP_OP_NOT, ap_emit2(l, AP_OP_EQ, x, x)));
}

void ap_lower_is_inf(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    bool positive = ap_attr_int(l, "detect_positive", 1), negative = ap_attr_int(l, "detect_negative", 1);
    if (positive && negative)
        x = ap_emit1(l, AP_OP_ABS, x);
    ap_value hit = ap_emit2(l, AP_OP_EQ, x, number_like(l, x, positive ? INFINITY : -INFINITY));
    if (!positive && !negative) {
        ap_dims d = ap_dims_of(l, x);
        hit = ap_emit_splat(l, AP_BOOL, &d, (ap_scalar){0});
    }
    ap_set_out(l, 0, hit);
}

/* ---- types ---- */

void ap_lower_cast(ap_legal *l)
{
    int64_t to = ap_attr_int(l, "to", 0);
    ap_dtype t;
    if (!ap_dtype_from_onnx(to < 0 || to > 1000 ? -1 : (int)to, &t)) {
        const char *s = to < 0 || to > 1000 ? NULL : ap_onnx_dtype_str((int)to);
        ap_refuse(l, "a cast to %s is not supported", s ? s : "an unknown element type");
        return;
    }
    ap_set_out(l, 0, ap_emit_cast(l, ap_in(l, 0), t));
}

void ap_lower_cast_like(ap_legal *l)
{
    ap_value x = ap_in(l, 0), like = ap_in(l, 1);
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_cast(l, x, ap_dtype_of(l, like)));
}

void ap_lower_identity(ap_legal *l)
{
    ap_set_out(l, 0, ap_in(l, 0));
}

/* At inference nothing is dropped. Opset 12 made the training mode an input. */
void ap_lower_dropout(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    double training = 0, ratio = 0.5;
    if (ap_opset(l) >= 12 && ap_has_in(l, 2)) {
        if (ap_has_in(l, 1) && !ap_known_scalar(l, ap_in(l, 1), &ratio))
            ratio = 1;
        if (!ap_known_scalar(l, ap_in(l, 2), &training))
            training = 1;
        if (training != 0 && ratio != 0)
            ap_refuse(l, "dropout in training mode is not supported");
    }
    ap_set_out(l, 0, x);
    if (ap_wants_out(l, 1)) {
        ap_dims d = ap_dims_of(l, x);
        if (ap_opset(l) < 10)
            ap_refuse(l, "the mask of dropout is not supported before opset 10");
        ap_set_out(l, 1, ap_emit_splat(l, AP_BOOL, &d, (ap_scalar){.i = 1}));
    }
}
