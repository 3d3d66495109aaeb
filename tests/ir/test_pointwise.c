/* Scalar formulas against libm and hand-written tables; conversions against all values of the short floats. */
#include "ir/pointwise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double eval_f(ap_pointwise p, ap_dtype t, double a, double b)
{
    ap_scalar x[3] = {{.f = a}, {.f = b}, {.f = 0}};
    return ap_pointwise_eval(p, t, t, x).f;
}

static int64_t eval_i(ap_pointwise p, ap_dtype t, int64_t a, int64_t b)
{
    ap_scalar x[3] = {{.i = a}, {.i = b}, {.i = 0}};
    return ap_pointwise_eval(p, t, t, x).i;
}

static double neg(double x)
{
    return -x;
}
static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
static double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double reciprocal(double x)
{
    return 1 / x;
}
static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double relu(double x)
{
    return isnan(x) ? x : x > 0 ? x : 0;
}
static double round_even(double x)
{
    double r = round(x); /* half away from zero */
    return fabs(x - trunc(x)) == 0.5 && fmod(r, 2) != 0 ? r - copysign(1, x) : r;
}

static const struct {
    ap_pointwise p;
    double (*f)(double);
} unary[] = {
    {AP_PW_NEG, neg},          {AP_PW_ABS, fabs},  {AP_PW_SIGN, sign},   {AP_PW_EXP, exp},
    {AP_PW_LOG, log},          {AP_PW_SQRT, sqrt}, {AP_PW_RSQRT, rsqrt}, {AP_PW_RECIPROCAL, reciprocal},
    {AP_PW_ERF, erf},          {AP_PW_TANH, tanh}, {AP_PW_SIN, sin},     {AP_PW_SIGMOID, sigmoid},
    {AP_PW_RELU, relu},        {AP_PW_COS, cos},   {AP_PW_FLOOR, floor}, {AP_PW_CEIL, ceil},
    {AP_PW_ROUND, round_even}, {AP_PW_ASIN, asin}, {AP_PW_ACOS, acos},   {AP_PW_ATAN, atan},
    {AP_PW_SINH, sinh},        {AP_PW_COSH, cosh}, {AP_PW_ASINH, asinh}, {AP_PW_ACOSH, acosh},
    {AP_PW_ATANH, atanh},
};

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void test_unary_against_libm(void **state)
{
    (void)state;
    const double xs[] = {0,    -0.0, 0.5,  1.5,   2.5,      -0.5,      -1.5, 3.25, -7.75,
                         1e-3, 700,  -700, 1e300, INFINITY, -INFINITY, NAN,  0.1,  88};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        for (size_t k = 0; k < sizeof xs / sizeof *xs; k++) {
            double want = unary[i].f(xs[k]);
            assert_true(same(eval_f(unary[i].p, AP_F64, xs[k], 0), want));
            assert_true(same(eval_f(unary[i].p, AP_F32, xs[k], 0), (double)(float)want));
        }
    }
}

static void test_binary_floats(void **state)
{
    (void)state;
    assert_true(eval_f(AP_PW_ADD, AP_F32, 1, 0x1p-25) == 1);
    assert_true(eval_f(AP_PW_ADD, AP_F64, 1, 0x1p-25) == 1 + 0x1p-25);
    assert_true(eval_f(AP_PW_SUB, AP_F64, 1, 3) == -2);
    assert_true(eval_f(AP_PW_MUL, AP_F32, 3e38, 10) == INFINITY);
    assert_true(eval_f(AP_PW_DIV, AP_F64, 1, 0) == INFINITY);
    assert_true(eval_f(AP_PW_POW, AP_F64, 2, 10) == 1024);
    assert_true(eval_f(AP_PW_FMOD, AP_F64, -7.5, 2) == -1.5);
    assert_true(eval_f(AP_PW_MAX, AP_F64, -1, 2) == 2);
    assert_true(eval_f(AP_PW_MIN, AP_F64, -1, 2) == -1);
    assert_true(isnan(eval_f(AP_PW_MAX, AP_F64, NAN, 2)) && isnan(eval_f(AP_PW_MAX, AP_F64, 2, NAN)));
    assert_true(isnan(eval_f(AP_PW_MIN, AP_F64, NAN, 2)) && isnan(eval_f(AP_PW_MIN, AP_F64, 2, NAN)));
}

static void test_integers(void **state)
{
    (void)state;
    assert_int_equal(eval_i(AP_PW_ADD, AP_I8, 127, 1), -128);
    assert_int_equal(eval_i(AP_PW_SUB, AP_U8, 0, 1), 255);
    assert_true(eval_i(AP_PW_MUL, AP_I64, INT64_MAX, 2) == -2);
    assert_true(eval_i(AP_PW_NEG, AP_I64, INT64_MIN, 0) == INT64_MIN);
    assert_int_equal(eval_i(AP_PW_ABS, AP_I8, -128, 0), -128);
    assert_int_equal(eval_i(AP_PW_DIV, AP_I32, -7, 2), -3);
    assert_int_equal(eval_i(AP_PW_DIV, AP_I32, 5, 0), 0);
    assert_true(eval_i(AP_PW_DIV, AP_I32, INT32_MIN, -1) == INT32_MIN);
    assert_true(eval_i(AP_PW_DIV, AP_I64, INT64_MIN, -1) == INT64_MIN);
    assert_true(eval_i(AP_PW_DIV, AP_U64, -1, 2) == INT64_MAX);
    assert_int_equal(eval_i(AP_PW_MOD, AP_I32, -7, 3), 2);
    assert_int_equal(eval_i(AP_PW_MOD, AP_I32, 7, -3), -2);
    assert_int_equal(eval_i(AP_PW_MOD, AP_I32, 7, 0), 0);
    assert_int_equal(eval_i(AP_PW_MOD, AP_I64, INT64_MIN, -1), 0);
    assert_int_equal(eval_i(AP_PW_MOD, AP_U64, -1, 10), 5); /* 18446744073709551615 */
    assert_int_equal(eval_i(AP_PW_BIT_AND, AP_I8, -2, 7), 6);
    assert_int_equal(eval_i(AP_PW_BIT_OR, AP_U8, 128, 1), 129);
    assert_int_equal(eval_i(AP_PW_BIT_XOR, AP_I32, -1, 5), -6);
    assert_int_equal(eval_i(AP_PW_SHIFT_LEFT, AP_U8, 129, 1), 2);
    assert_int_equal(eval_i(AP_PW_SHIFT_LEFT, AP_U8, 1, 8), 0);
    assert_true(eval_i(AP_PW_SHIFT_RIGHT, AP_U64, -1, 63) == 1);
    assert_int_equal(eval_i(AP_PW_SHIFT_RIGHT, AP_U64, -1, 64), 0);
    assert_true(eval_i(AP_PW_MAX, AP_U64, -1, 1) == -1);
    assert_int_equal(eval_i(AP_PW_MAX, AP_I64, -1, 1), 1);
    assert_int_equal(eval_i(AP_PW_RELU, AP_I32, -4, 0), 0);
    assert_int_equal(eval_i(AP_PW_XOR, AP_BOOL, 1, 1), 0);
    assert_int_equal(eval_i(AP_PW_NOT, AP_BOOL, 0, 0), 1);
}

static int64_t compare(ap_pointwise p, ap_dtype t, ap_scalar a, ap_scalar b)
{
    ap_scalar x[3] = {a, b, {0}};
    return ap_pointwise_eval(p, t, AP_BOOL, x).i;
}

static void test_comparisons_and_select(void **state)
{
    (void)state;
    ap_scalar nan = {.f = NAN}, one = {.f = 1}, minus = {.i = -1}, i1 = {.i = 1};
    assert_int_equal(compare(AP_PW_EQ, AP_F32, nan, nan), 0);
    assert_int_equal(compare(AP_PW_LE, AP_F32, one, one), 1);
    assert_int_equal(compare(AP_PW_LT, AP_F32, one, nan), 0);
    assert_int_equal(compare(AP_PW_LT, AP_I64, minus, i1), 1);
    assert_int_equal(compare(AP_PW_LT, AP_U64, minus, i1), 0);
    ap_scalar f[3] = {{.i = 1}, {.f = 2.5}, {.f = NAN}};
    assert_true(ap_pointwise_eval(AP_PW_SELECT, AP_F32, AP_F32, f).f == 2.5);
    f[0].i = 0;
    assert_true(isnan(ap_pointwise_eval(AP_PW_SELECT, AP_F32, AP_F32, f).f));
    ap_scalar i[3] = {{.i = 0}, {.i = 7}, {.i = INT64_MAX}};
    assert_true(ap_pointwise_eval(AP_PW_SELECT, AP_I64, AP_I64, i).i == INT64_MAX);
}

static int64_t cast_fi(ap_dtype to, double x)
{
    ap_scalar s = {.f = x};
    return ap_pointwise_eval(AP_PW_CAST, AP_F64, to, &s).i;
}

static void test_cast(void **state)
{
    (void)state;
    assert_int_equal(cast_fi(AP_I32, -2.9), -2);
    assert_int_equal(cast_fi(AP_U8, 300), 255);
    assert_int_equal(cast_fi(AP_U8, -3), 0);
    assert_int_equal(cast_fi(AP_I8, -1e9), -128);
    assert_true(cast_fi(AP_I64, INFINITY) == INT64_MAX);
    assert_true(cast_fi(AP_I64, -INFINITY) == INT64_MIN);
    assert_true((uint64_t)cast_fi(AP_U64, 0x1p63) == (uint64_t)1 << 63);
    assert_true((uint64_t)cast_fi(AP_U64, INFINITY) == UINT64_MAX);
    assert_int_equal(cast_fi(AP_I32, NAN), 0);
    assert_int_equal(cast_fi(AP_BOOL, 0.25), 1);
    assert_int_equal(cast_fi(AP_BOOL, NAN), 1);
    assert_int_equal(cast_fi(AP_BOOL, -0.0), 0);
    ap_scalar big = {.i = -1}, odd = {.i = (1 << 24) + 1}, wide = {.i = 0x1ff};
    assert_true(ap_pointwise_eval(AP_PW_CAST, AP_U64, AP_F64, &big).f == 0x1p64);
    assert_true(ap_pointwise_eval(AP_PW_CAST, AP_I64, AP_F32, &odd).f == 0x1p24);
    assert_int_equal(ap_pointwise_eval(AP_PW_CAST, AP_I64, AP_I8, &wide).i, -1);
    assert_int_equal(ap_pointwise_eval(AP_PW_CAST, AP_I64, AP_BOOL, &wide).i, 1);
    ap_scalar third = {.f = 1.0 / 3};
    assert_true(ap_pointwise_eval(AP_PW_CAST, AP_F64, AP_F32, &third).f == (double)(1.0f / 3));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* All finite values of a 16-bit float, sorted; its neighbours say how any number must round. */
static size_t all_values(ap_dtype t, double *out)
{
    size_t n = 0;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits, back;
        ap_scalar x = ap_scalar_load(t, &h);
        ap_scalar_store(t, &back, x);
        if (isnan(x.f)) {
            assert_true(isnan(ap_scalar_load(t, &back).f));
            continue;
        }
        assert_int_equal(back, h);
        if (isfinite(x.f))
            out[n++] = x.f;
    }
    qsort(out, n, sizeof *out, by_value);
    return n;
}

static void check_rounding(ap_dtype t, double largest, double half_ulp)
{
    static double v[65536];
    size_t n = all_values(t, v);
    assert_true(v[n - 1] == largest && v[0] == -largest);
    for (size_t i = 0; i + 1 < n; i++) {
        double lo = v[i], hi = v[i + 1], mid = lo + (hi - lo) / 2;
        if (lo == hi)
            continue; /* the zeros */
        ap_scalar below = {.f = nextafter(mid, -INFINITY)}, above = {.f = nextafter(mid, INFINITY)}, tie = {.f = mid};
        assert_true(ap_scalar_round(t, below).f == lo);
        assert_true(ap_scalar_round(t, above).f == hi);
        double r = ap_scalar_round(t, tie).f;
        uint16_t h;
        ap_scalar_store(t, &h, (ap_scalar){.f = r});
        assert_true((r == lo || r == hi) && (h & 1) == 0);
        ap_scalar_store(t, &h, tie); /* storing rounds by itself */
        assert_true(ap_scalar_load(t, &h).f == r);
    }
    ap_scalar over = {.f = largest + half_ulp}, under = {.f = nextafter(over.f, 0)};
    assert_true(ap_scalar_round(t, over).f == INFINITY);
    assert_true(ap_scalar_round(t, under).f == largest);
}

static void test_short_floats(void **state)
{
    (void)state;
    check_rounding(AP_F16, 65504, 16);
    check_rounding(AP_BF16, 0x1.fep127, 0x1p119);
}

static void test_memory(void **state)
{
    (void)state;
    for (int t = AP_F32; t < AP_DTYPE_COUNT; t++) {
        unsigned char bytes[16];
        memset(bytes, 0xaa, sizeof bytes);
        ap_scalar x = {.i = 1};
        if (ap_dtype_is_float((ap_dtype)t))
            x.f = 1.5;
        ap_scalar_store((ap_dtype)t, bytes + 1, x); /* unaligned */
        ap_scalar y = ap_scalar_load((ap_dtype)t, bytes + 1);
        assert_true(ap_dtype_is_float((ap_dtype)t) ? y.f == 1.5 : y.i == 1);
        assert_int_equal(bytes[0], 0xaa);
        assert_int_equal(bytes[1 + ap_dtype_bytes((ap_dtype)t)], 0xaa);
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int p = 0; p < AP_PW_COUNT; p++) {
        ap_pointwise q;
        assert_true(ap_pointwise_from_str(ap_pointwise_str((ap_pointwise)p), &q));
        assert_int_equal(p, q);
        assert_in_range(ap_pointwise_nin(q), 1, 3);
    }
    ap_pointwise q;
    assert_false(ap_pointwise_from_str("contract", &q));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_against_libm),
        cmocka_unit_test(test_binary_floats),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_comparisons_and_select),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_short_floats),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
