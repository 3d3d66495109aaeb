/* Quantised operators, as what they mean: q = saturate(round(x / scale) + zero), x = (q - zero) * scale. Products of
 * quantised numbers are products of integers; convolutions go by way of f64, in which they are exact. */
#include "frontend/legalise.h"

#include <inttypes.h>
#include <string.h>

static double lowest(ap_dtype t)
{
    return t == AP_I8 ? -128 : t == AP_I16 ? -32768 : 0;
}

static double highest(ap_dtype t)
{
    return t == AP_I8 ? 127 : t == AP_U8 ? 255 : t == AP_I16 ? 32767 : 65535;
}

static bool is_quantised(ap_dtype t)
{
    return t == AP_I8 || t == AP_U8 || t == AP_I16 || t == AP_U16;
}

/* A scale or zero point for all of x, one per entry of an axis, or one per block of entries, in a shape that broadcasts
 * to x. */
static ap_value spread(ap_legal *l, ap_value v, const ap_dims *x, int64_t axis, int64_t block)
{
    ap_dims s = ap_dims_of(l, v), d = {.rank = x->rank}, wide = {0};
    if (l->status || ap_dims_count(&s) == 1)
        return l->status ? AP_NONE : ap_emit_reshape(l, v, &(ap_dims){0});
    int a = ap_axis(l, axis, x->rank);
    for (int i = 0; i < x->rank; i++)
        d.at[i] = i == a ? x->at[i] : 1;
    if (!l->status && block == 0 && s.rank == 1 && s.at[0] == x->at[a])
        return ap_emit_reshape(l, v, &d);
    bool fits = !l->status && block > 0 && s.rank == x->rank && s.rank < AP_MAX_RANK &&
                s.at[a] == (x->at[a] + block - 1) / block;
    for (int i = 0; fits && i < s.rank; i++)
        fits = i == a || s.at[i] == x->at[i];
    if (!fits) {
        ap_refuse(l, "%s scales or zero points do not go with %s", ap_dims_str(l, &s), ap_dims_str(l, x));
        return AP_NONE;
    }
    wide.rank = s.rank + 1; /* [.., n, block, ..] */
    for (int i = 0; i < wide.rank; i++)
        wide.at[i] = i == a + 1 ? 1 : s.at[i - (i > a)];
    v = ap_emit_reshape(l, v, &wide);
    wide.at[a + 1] = block;
    v = ap_emit_expand(l, v, &wide);
    s.at[a] *= block;
    return l->status ? AP_NONE : ap_emit_part(l, ap_emit_reshape(l, v, &s), a, 0, x->at[a]);
}

/* round(x) + zero within the range of type t */
static ap_value saturated(ap_legal *l, ap_value x, ap_value zero, ap_dtype t)
{
    ap_dtype f = ap_dtype_of(l, x);
    ap_value y = ap_emit1(l, AP_OP_ROUND, x);
    if (zero != AP_NONE)
        y = ap_emit2(l, AP_OP_ADD, y, ap_emit_cast(l, zero, f));
    y = ap_emit2(l, AP_OP_MAX, y, l->status ? AP_NONE : ap_emit_number(l, f, lowest(t)));
    y = ap_emit2(l, AP_OP_MIN, y, l->status ? AP_NONE : ap_emit_number(l, f, highest(t)));
    return ap_emit_cast(l, y, t);
}

/* The type that the node asks for by a number of ONNX. */
static ap_dtype type_attribute(ap_legal *l, const char *name, ap_dtype otherwise)
{
    int64_t given = ap_attr_int(l, name, 0);
    ap_dtype t = otherwise;
    if (given != 0 && !ap_dtype_from_onnx(given < 0 || given > 1000 ? -1 : (int)given, &t))
        ap_refuse(l, "%s %" PRId64 " is not supported", name, given);
    return t;
}

void ap_lower_quantize(ap_legal *l)
{
    ap_value x = ap_in(l, 0), scale = ap_in(l, 1), zero = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, x);
    ap_dtype t = type_attribute(l, "output_dtype", zero == AP_NONE ? AP_U8 : ap_dtype_of(l, zero));
    ap_dtype work = type_attribute(l, "precision", AP_F32);
    int64_t axis = ap_attr_int(l, "axis", 1), block = ap_attr_int(l, "block_size", 0);
    if (!l->status && !is_quantised(t))
        ap_refuse(l, "quantised numbers of %s are not supported", ap_dtype_str(t));
    if (!l->status && zero != AP_NONE && ap_dtype_of(l, zero) != t)
        ap_refuse(l, "the zero point is of another type than the result");
    if (l->status)
        return;
    x = ap_emit2(l, AP_OP_DIV, ap_emit_cast(l, x, work), ap_emit_cast(l, spread(l, scale, &s, axis, block), work));
    zero = zero == AP_NONE ? AP_NONE : spread(l, zero, &s, axis, block);
    ap_set_out(l, 0, saturated(l, x, zero, t));
}

void ap_lower_dequantize(ap_legal *l)
{
    ap_value x = ap_in(l, 0), scale = ap_in(l, 1), zero = ap_in(l, 2);
    ap_dims s = ap_dims_of(l, x);
    ap_dtype t = ap_dtype_of(l, x), to = type_attribute(l, "output_dtype", ap_dtype_of(l, scale));
    int64_t axis = ap_attr_int(l, "axis", 1), block = ap_attr_int(l, "block_size", 0);
    if (!l->status && !is_quantised(t) && t != AP_I32)
        ap_refuse(l, "quantised numbers of %s are not supported", ap_dtype_str(t));
    if (l->status)
        return;
    ap_value v = ap_emit_cast(l, x, AP_F32); /* differences of 16 bits are exact */
    if (zero != AP_NONE)
        v = ap_emit2(l, AP_OP_SUB, v, ap_emit_cast(l, spread(l, zero, &s, axis, block), AP_F32));
    v = ap_emit2(l, AP_OP_MUL, v, ap_emit_cast(l, spread(l, scale, &s, axis, block), AP_F32));
    ap_set_out(l, 0, ap_emit_cast(l, v, to));
}

/* The range of x, zero included, on 0 to 255. */
void ap_lower_dynamic_quantize(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    uint32_t all = (1u << s.rank) - 1;
    ap_value zero = ap_emit_number(l, AP_F32, 0);
    ap_value hi = ap_emit2(l, AP_OP_MAX, ap_emit_reduce(l, AP_REDUCE_MAX, x, all, false), zero);
    ap_value lo = ap_emit2(l, AP_OP_MIN, ap_emit_reduce(l, AP_REDUCE_MIN, x, all, false), zero);
    ap_value range = ap_emit2(l, AP_OP_SUB, hi, lo);
    ap_value scale = ap_emit2(l, AP_OP_DIV, range, ap_emit_number(l, AP_F32, 255));
    scale = ap_emit_select(l, ap_emit2(l, AP_OP_EQ, range, zero), ap_emit_number(l, AP_F32, 1), scale);
    ap_value point = saturated(l, ap_emit2(l, AP_OP_DIV, ap_emit1(l, AP_OP_NEG, lo), scale), AP_NONE, AP_U8);
    ap_set_out(l, 0, saturated(l, ap_emit2(l, AP_OP_DIV, x, scale), point, AP_U8));
    ap_set_out(l, 1, scale);
    ap_set_out(l, 2, point);
}

/* ---- products ---- */

/* x - zero, in `t`; a zero point per row or column stands beside the contracted dimension. `dim` of x: which entries
 * have a zero point each. */
static ap_value shifted(ap_legal *l, ap_value x, ap_value zero, int dim, ap_dtype t)
{
    ap_dims s = ap_dims_of(l, x), z = ap_dims_of(l, zero), d = {.rank = s.rank};
    ap_value v = ap_emit_cast(l, x, t);
    if (l->status || zero == AP_NONE)
        return v;
    if (z.rank <= 1) {
        for (int i = 0; i < s.rank; i++)
            d.at[i] = i == dim && z.rank == 1 ? z.at[0] : 1;
        if (ap_dims_count(&d) != 1 && (dim >= s.rank || d.at[dim] != s.at[dim]))
            ap_refuse(l, "zero points %s do not go with %s", ap_dims_str(l, &z), ap_dims_str(l, &s));
        zero = l->status ? AP_NONE : ap_emit_reshape(l, zero, &d);
    }
    return ap_emit2(l, AP_OP_SUB, v, ap_emit_cast(l, zero, t));
}

static ap_value product(ap_legal *l, ap_value a, ap_value za, ap_value b, ap_value zb)
{
    int ra = ap_dims_of(l, a).rank, rb = ap_dims_of(l, b).rank;
    a = shifted(l, a, za, ra >= 2 ? ra - 2 : 0, AP_I32);
    b = shifted(l, b, zb, rb >= 2 ? rb - 1 : 0, AP_I32);
    return l->status ? AP_NONE : ap_emit_matmul(l, a, b, false, false);
}

void ap_lower_matmul_integer(ap_legal *l)
{
    ap_set_out(l, 0, product(l, ap_in(l, 0), ap_in(l, 2), ap_in(l, 1), ap_in(l, 3)));
}

static ap_value convolution(ap_legal *l, ap_value x, ap_value zx, ap_value w, ap_value zw)
{
    x = shifted(l, x, zx, 1, AP_F64);
    return ap_emit_conv_node(l, x, shifted(l, w, zw, 0, AP_F64));
}

void ap_lower_conv_integer(ap_legal *l)
{
    ap_value y = convolution(l, ap_in(l, 0), ap_in(l, 2), ap_in(l, 1), ap_in(l, 3));
    ap_set_out(l, 0, ap_emit_cast(l, y, AP_I32));
}

/* acc * (sa * sb / sy), rounded and saturated around zy; sb may be one per entry of `dim` of the result. */
static ap_value requantised(ap_legal *l, ap_value acc, ap_value sa, ap_value sb, ap_value sy, ap_value zy, int dim)
{
    ap_dims s = ap_dims_of(l, acc);
    ap_dtype t = ap_dtype_of(l, zy);
    if (!l->status && !is_quantised(t))
        ap_refuse(l, "quantised numbers of %s are not supported", ap_dtype_str(t));
    if (l->status)
        return AP_NONE;
    sa = spread(l, ap_emit_cast(l, sa, AP_F32), &s, 0, 0);
    sb = spread(l, ap_emit_cast(l, sb, AP_F32), &s, dim, 0);
    sy = spread(l, ap_emit_cast(l, sy, AP_F32), &s, 0, 0);
    ap_value scale = ap_emit2(l, AP_OP_DIV, ap_emit2(l, AP_OP_MUL, sa, sb), sy);
    ap_value y = ap_emit2(l, AP_OP_MUL, ap_emit_cast(l, acc, AP_F32), scale);
    return saturated(l, y, spread(l, zy, &s, 0, 0), t);
}

void ap_lower_qlinear_matmul(ap_legal *l)
{
    ap_value acc = product(l, ap_in(l, 0), ap_in(l, 2), ap_in(l, 3), ap_in(l, 5));
    int rank = ap_dims_of(l, acc).rank;
    ap_set_out(l, 0, requantised(l, acc, ap_in(l, 1), ap_in(l, 4), ap_in(l, 6), ap_in(l, 7), rank ? rank - 1 : 0));
}

/* The bias is in units of sx * sw. */
void ap_lower_qlinear_conv(ap_legal *l)
{
    ap_value acc = convolution(l, ap_in(l, 0), ap_in(l, 2), ap_in(l, 3), ap_in(l, 5));
    if (ap_has_in(l, 8)) {
        ap_dims s = ap_dims_of(l, acc), d = {.rank = s.rank};
        for (int i = 0; i < s.rank; i++)
            d.at[i] = i == 1 ? s.at[i] : 1;
        acc = ap_emit2(l, AP_OP_ADD, acc, ap_emit_reshape(l, ap_emit_cast(l, ap_in(l, 8), AP_F64), &d));
    }
    ap_set_out(l, 0, requantised(l, acc, ap_in(l, 1), ap_in(l, 4), ap_in(l, 6), ap_in(l, 7), 1));
}
