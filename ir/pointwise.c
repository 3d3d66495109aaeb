/* Scalars: what one pointwise operator computes, and how elements lie in memory.
 *
 * The formulas of ir/op/pointwise.def are expanded three times over typed primitives: for floats (in f64,
 * conditions as 0 or 1), for signed integers and bools, and for u64. Rounding to the result's type follows. */
#include "ir/pointwise.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- names ---- */

static const struct {
    const char *text;
    int nin;
} rows[AP_PW_COUNT] = {
#define POINTWISE(E, text, nin, ...) [AP_PW_##E] = {#text, nin},
#include "ir/op/pointwise.def"
#undef POINTWISE
};

const char *ap_pointwise_str(ap_pointwise p)
{
    assert(p < AP_PW_COUNT);
    return rows[p].text;
}

int ap_pointwise_nin(ap_pointwise p)
{
    assert(p < AP_PW_COUNT);
    return rows[p].nin;
}

bool ap_pointwise_from_str(const char *s, ap_pointwise *out)
{
    for (int p = 0; p < AP_PW_COUNT; p++) {
        if (strcmp(rows[p].text, s) == 0) {
            *out = (ap_pointwise)p;
            return true;
        }
    }
    return false;
}

/* ---- primitives ---- */

static double f_max(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}
static double f_min(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}
static double f_sign(double a)
{
    return isnan(a) ? a : (a > 0) - (a < 0);
}

static int64_t i_wrap(uint64_t a)
{
    return (int64_t)a;
}
static int64_t i_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? i_wrap(0 - (uint64_t)a) : a / b;
}
static int64_t i_mod(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t u_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : i_wrap((uint64_t)a / (uint64_t)b);
}
static int64_t u_mod(int64_t a, int64_t b)
{
    return b == 0 ? 0 : i_wrap((uint64_t)a % (uint64_t)b);
}
static int64_t u_max(int64_t a, int64_t b)
{
    return (uint64_t)a > (uint64_t)b ? a : b;
}
static int64_t u_min(int64_t a, int64_t b)
{
    return (uint64_t)a < (uint64_t)b ? a : b;
}

/* ---- floats ---- */

#define ZERO 0.0
#define ONE 1.0
#define NEG(a) (-(a))
#define ABS(a) fabs(a)
#define SIGN(a) f_sign(a)
#define EXP(a) exp(a)
#define LOG(a) log(a)
#define SQRT(a) sqrt(a)
#define ERF(a) erf(a)
#define TANH(a) tanh(a)
#define SIN(a) sin(a)
#define COS(a) cos(a)
#define ASIN(a) asin(a)
#define ACOS(a) acos(a)
#define ATAN(a) atan(a)
#define SINH(a) sinh(a)
#define COSH(a) cosh(a)
#define ASINH(a) asinh(a)
#define ACOSH(a) acosh(a)
#define ATANH(a) atanh(a)
#define FLOOR(a) floor(a)
#define CEIL(a) ceil(a)
#define ROUND(a) nearbyint(a)
#define NOT(a) ((a) == 0)
#define CAST(a) (a)
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define MOD(a, b) ((a)-floor((a) / (b)) * (b))
#define FMOD(a, b) fmod(a, b)
#define BIT_AND(a, b) ((void)(b), (a))
#define BIT_OR(a, b) ((void)(b), (a))
#define BIT_XOR(a, b) ((void)(b), (a))
#define SHIFT_LEFT(a, b) ((void)(b), (a))
#define SHIFT_RIGHT(a, b) ((void)(b), (a))
#define POW(a, b) pow(a, b)
#define MAX(a, b) f_max(a, b)
#define MIN(a, b) f_min(a, b)
#define EQ(a, b) ((a) == (b))
#define LT(a, b) ((a) < (b))
#define LE(a, b) ((a) <= (b))
#define AND(a, b) ((a) != 0 && (b) != 0)
#define OR(a, b) ((a) != 0 || (b) != 0)
#define XOR(a, b) (((a) != 0) != ((b) != 0))
#define SELECT(a, b, c) ((a) != 0 ? (b) : (c))

#define POINTWISE(E, text, nin, R, D, LA, LB, F, formula)                                                              \
    static double float_##text(double X, double Y, double Z)                                                           \
    {                                                                                                                  \
        (void)X, (void)Y, (void)Z;                                                                                     \
        return formula;                                                                                                \
    }
#include "ir/op/pointwise.def"
#undef POINTWISE

/* ---- integers and bools: floating primitives never meet them (the domain column) ---- */

#undef ZERO
#undef ONE
#undef NEG
#undef ABS
#undef SIGN
#undef EXP
#undef LOG
#undef SQRT
#undef ERF
#undef TANH
#undef SIN
#undef COS
#undef ASIN
#undef ACOS
#undef ATAN
#undef SINH
#undef COSH
#undef ASINH
#undef ACOSH
#undef ATANH
#undef FMOD
#undef BIT_AND
#undef BIT_OR
#undef BIT_XOR
#undef SHIFT_LEFT
#undef SHIFT_RIGHT
#undef FLOOR
#undef CEIL
#undef ROUND
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef MOD
#undef POW
#undef MAX
#undef MIN

#define ZERO 0
#define ONE 1
#define NEG(a) i_wrap(0 - (uint64_t)(a))
#define ABS(a) ((a) < 0 ? i_wrap(0 - (uint64_t)(a)) : (a))
#define SIGN(a) (((a) > 0) - ((a) < 0))
#define EXP(a) (a)
#define LOG(a) (a)
#define SQRT(a) (a)
#define ERF(a) (a)
#define TANH(a) (a)
#define SIN(a) (a)
#define COS(a) (a)
#define ASIN(a) (a)
#define ACOS(a) (a)
#define ATAN(a) (a)
#define SINH(a) (a)
#define COSH(a) (a)
#define ASINH(a) (a)
#define ACOSH(a) (a)
#define ATANH(a) (a)
#define FLOOR(a) (a)
#define CEIL(a) (a)
#define ROUND(a) (a)
#define ADD(a, b) i_wrap((uint64_t)(a) + (uint64_t)(b))
#define SUB(a, b) i_wrap((uint64_t)(a) - (uint64_t)(b))
#define MUL(a, b) i_wrap((uint64_t)(a) * (uint64_t)(b))
#define DIV(a, b) i_div(a, b)
#define MOD(a, b) i_mod(a, b)
#define FMOD(a, b) ((void)(b), (a))
#define BIT_AND(a, b) ((a) & (b))
#define BIT_OR(a, b) ((a) | (b))
#define BIT_XOR(a, b) ((a) ^ (b))
#define SHIFT_LEFT(a, b) ((b) < 0 || (b) > 63 ? 0 : i_wrap((uint64_t)(a) << (b)))
#define SHIFT_RIGHT(a, b) ((b) < 0 || (b) > 63 ? 0 : i_wrap((uint64_t)(a) >> (b)))
#define POW(a, b) ((void)(b), (a))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define POINTWISE(E, text, nin, R, D, LA, LB, F, formula)                                                              \
    static int64_t int_##text(int64_t X, int64_t Y, int64_t Z)                                                         \
    {                                                                                                                  \
        (void)X, (void)Y, (void)Z;                                                                                     \
        return formula;                                                                                                \
    }
#include "ir/op/pointwise.def"
#undef POINTWISE

#undef ABS
#undef SIGN
#undef DIV
#undef MOD
#undef MAX
#undef MIN
#undef LT
#undef LE

#define ABS(a) (a)
#define SIGN(a) ((a) != 0)
#define DIV(a, b) u_div(a, b)
#define MOD(a, b) u_mod(a, b)
#define MAX(a, b) u_max(a, b)
#define MIN(a, b) u_min(a, b)
#define LT(a, b) ((uint64_t)(a) < (uint64_t)(b))
#define LE(a, b) ((uint64_t)(a) <= (uint64_t)(b))

#define POINTWISE(E, text, nin, R, D, LA, LB, F, formula)                                                              \
    static int64_t u64_##text(int64_t X, int64_t Y, int64_t Z)                                                         \
    {                                                                                                                  \
        (void)X, (void)Y, (void)Z;                                                                                     \
        return formula;                                                                                                \
    }
#include "ir/op/pointwise.def"
#undef POINTWISE

static const struct {
    double (*on_float)(double, double, double);
    int64_t (*on_int)(int64_t, int64_t, int64_t);
    int64_t (*on_u64)(int64_t, int64_t, int64_t);
} formulas[AP_PW_COUNT] = {
#define POINTWISE(E, text, ...) [AP_PW_##E] = {float_##text, int_##text, u64_##text},
#include "ir/op/pointwise.def"
#undef POINTWISE
};

/* ---- conversions ---- */

/* To `bits` significant bits (nearest, ties to even), subnormals below 2^emin, infinity from 2^(emax+1) on. */
static double round_float(double x, int bits, int emin, int emax)
{
    if (x == 0 || !isfinite(x))
        return x;
    int e;
    frexp(x, &e); /* |x| = m * 2^e, m in [1/2, 1) */
    int ulp = e - bits > emin - (bits - 1) ? e - bits : emin - (bits - 1);
    double y = ldexp(nearbyint(ldexp(x, -ulp)), ulp);
    return fabs(y) >= ldexp(1, emax + 1) ? copysign(INFINITY, x) : y;
}

ap_scalar ap_scalar_round(ap_dtype t, ap_scalar x)
{
    switch (t) {
    case AP_F32:
        x.f = (double)(float)x.f;
        break;
    case AP_F16:
        x.f = round_float(x.f, 11, -14, 15);
        break;
    case AP_BF16:
        x.f = round_float(x.f, 8, -126, 127);
        break;
    case AP_BOOL:
        x.i = x.i != 0;
        break;
    case AP_U8:
        x.i = (uint8_t)x.i;
        break;
    case AP_I8:
        x.i = (int8_t)x.i;
        break;
    case AP_U16:
        x.i = (uint16_t)x.i;
        break;
    case AP_I16:
        x.i = (int16_t)x.i;
        break;
    case AP_U32:
        x.i = (uint32_t)x.i;
        break;
    case AP_I32:
        x.i = (int32_t)x.i;
        break;
    case AP_F64:
    case AP_I64:
    case AP_U64:
    case AP_DTYPE_NONE:
    case AP_DTYPE_COUNT:
        break;
    }
    return x;
}

/* Truncates; out of range saturates; NaN is 0. */
static int64_t float_to_int(ap_dtype t, double x)
{
    bool is_unsigned = t == AP_U8 || t == AP_U16 || t == AP_U32 || t == AP_U64;
    int bits = 8 * ap_dtype_bytes(t);
    double end = ldexp(1, is_unsigned ? bits : bits - 1); /* first value that is too large */
    if (isnan(x))
        return 0;
    x = trunc(x);
    if (x >= end)
        return is_unsigned ? i_wrap(UINT64_MAX >> (64 - bits)) : INT64_MAX >> (64 - bits);
    if (is_unsigned)
        return x <= 0 ? 0 : i_wrap((uint64_t)x);
    return x <= -end ? INT64_MIN >> (64 - bits) : (int64_t)x;
}

static ap_scalar cast_scalar(ap_dtype from, ap_dtype to, ap_scalar x)
{
    ap_scalar r = x;
    if (ap_dtype_is_float(from)) {
        if (to == AP_BOOL)
            r.i = x.f != 0;
        else if (!ap_dtype_is_float(to))
            r.i = float_to_int(to, x.f);
    } else if (ap_dtype_is_float(to)) {
        if (to == AP_F32) /* once, not by way of f64 */
            r.f = from == AP_U64 ? (double)(float)(uint64_t)x.i : (double)(float)x.i;
        else
            r.f = from == AP_U64 ? (double)(uint64_t)x.i : (double)x.i;
    }
    return ap_scalar_round(to, r);
}

ap_scalar ap_pointwise_eval(ap_pointwise p, ap_dtype operands, ap_dtype result, const ap_scalar *x)
{
    if (p == AP_PW_CAST)
        return cast_scalar(operands, result, x[0]);
    ap_scalar r;
    int n = rows[p].nin;
    if (ap_dtype_is_float(operands)) {
        double first = p == AP_PW_SELECT ? (double)(x[0].i != 0) : x[0].f;
        double y = formulas[p].on_float(first, n > 1 ? x[1].f : 0, n > 2 ? x[2].f : 0);
        if (result == AP_BOOL)
            r.i = y != 0;
        else
            r.f = y;
    } else {
        int64_t y = n > 1 ? x[1].i : 0, z = n > 2 ? x[2].i : 0;
        r.i = (operands == AP_U64 ? formulas[p].on_u64 : formulas[p].on_int)(x[0].i, y, z);
    }
    return ap_scalar_round(result, r);
}

/* ---- memory ---- */

static double load_half(uint16_t h)
{
    int e = (h >> 10) & 31, mant = h & 1023;
    double x = e == 31 ? (mant ? NAN : INFINITY) : e == 0 ? ldexp(mant, -24) : ldexp(mant + 1024, e - 25);
    return h >> 15 ? -x : x;
}

static uint16_t store_half(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return sign | 0x7e00;
    x = fabs(round_float(x, 11, -14, 15));
    if (isinf(x))
        return sign | 0x7c00;
    if (x < ldexp(1, -14))
        return (uint16_t)(sign | (uint16_t)ldexp(x, 24));
    int e;
    double m = frexp(x, &e); /* x = (2m) * 2^(e-1) */
    return (uint16_t)(sign | (e - 1 + 15) << 10 | ((int)ldexp(m, 11) - 1024));
}

static uint16_t store_bfloat(double x)
{
    float f = (float)round_float(x, 8, -126, 127);
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return isnan(x) ? (uint16_t)((bits >> 16) | 0x40) : (uint16_t)(bits >> 16);
}

#define LOAD(T, member)                                                                                                \
    do {                                                                                                               \
        T v;                                                                                                           \
        memcpy(&v, p, sizeof v);                                                                                       \
        r.member = v;                                                                                                  \
    } while (0)

ap_scalar ap_scalar_load(ap_dtype t, const void *p)
{
    ap_scalar r = {0};
    uint16_t h;
    uint32_t bits;
    float f;
    switch (t) {
    case AP_F32:
        LOAD(float, f);
        break;
    case AP_F64:
        LOAD(double, f);
        break;
    case AP_F16:
        memcpy(&h, p, 2);
        r.f = load_half(h);
        break;
    case AP_BF16:
        memcpy(&h, p, 2);
        bits = (uint32_t)h << 16;
        memcpy(&f, &bits, 4);
        r.f = f;
        break;
    case AP_BOOL:
        LOAD(uint8_t, i);
        r.i = r.i != 0;
        break;
    case AP_U8:
        LOAD(uint8_t, i);
        break;
    case AP_I8:
        LOAD(int8_t, i);
        break;
    case AP_U16:
        LOAD(uint16_t, i);
        break;
    case AP_I16:
        LOAD(int16_t, i);
        break;
    case AP_U32:
        LOAD(uint32_t, i);
        break;
    case AP_I32:
        LOAD(int32_t, i);
        break;
    case AP_I64:
    case AP_U64:
        LOAD(int64_t, i);
        break;
    case AP_DTYPE_NONE:
    case AP_DTYPE_COUNT:
        assert(0);
    }
    return r;
}

void ap_scalar_store(ap_dtype t, void *p, ap_scalar x)
{
    float f;
    uint16_t h;
    switch (t) {
    case AP_F32:
        f = (float)x.f;
        memcpy(p, &f, 4);
        break;
    case AP_F64:
        memcpy(p, &x.f, 8);
        break;
    case AP_F16:
        h = store_half(x.f);
        memcpy(p, &h, 2);
        break;
    case AP_BF16:
        h = store_bfloat(x.f);
        memcpy(p, &h, 2);
        break;
    default: /* integers and bools: the low bytes, little-endian */
        x = ap_scalar_round(t, x);
        memcpy(p, &x.i, (size_t)ap_dtype_bytes(t));
        break;
    }
}
