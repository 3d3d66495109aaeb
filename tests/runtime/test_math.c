/* The arithmetic of autopar_rt.h over the whole range of floats against the C library in double; half precision
 * against its definition; integers at their edges; matrix products against loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "autopar_rt.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* Distance in units of the last place of a float near the exact value. */
static double ulps(float got, double want)
{
    int e;
    if (isnan(want))
        return isnan(got) ? 0 : HUGE_VAL;
    if (isinf((float)want) || isinf(got))
        return (float)want == got ? 0 : HUGE_VAL;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static void functions(void **state)
{
    (void)state;
    double worst[3] = {0};
    for (uint64_t u = 0; u <= UINT32_MAX; u += 1009) {
        float x = aprt_f32_bits((uint32_t)u);
        worst[0] = fmax(worst[0], ulps(aprt_exp_f32(x), exp((double)x)));
        worst[1] = fmax(worst[1], ulps(aprt_tanh_f32(x), tanh((double)x)));
        worst[2] = fmax(worst[2], ulps(aprt_erf_f32(x), erf((double)x)));
    }
    print_message("worst error in ulp: exp %.2f, tanh %.2f, erf %.2f\n", worst[0], worst[1], worst[2]);
    assert_true(worst[0] < 1.5);
    assert_true(worst[1] < 2);
    assert_true(worst[2] < 2);
    assert_true(isnan(aprt_exp_f32(NAN)) && isnan(aprt_tanh_f32(NAN)) && isnan(aprt_erf_f32(NAN)));
    assert_true(aprt_exp_f32(-INFINITY) == 0 && isinf(aprt_exp_f32(INFINITY)) && aprt_exp_f32(0) == 1);
    assert_true(aprt_tanh_f32(INFINITY) == 1 && aprt_tanh_f32(-INFINITY) == -1 && aprt_erf_f32(-INFINITY) == -1);
    assert_true(signbit(aprt_tanh_f32(-0.0f)) && signbit(aprt_erf_f32(-0.0f)));
}

static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -x : x;
}

static void half_precision(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        double want = half_value((uint16_t)h);
        float got = aprt_f16_to_f32((uint16_t)h);
        assert_true(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want));
        if (!isnan(want))
            assert_int_equal(aprt_f32_to_f16(got), h);
    }
    /* halfway between neighbours goes to the even one, a little more or less to the nearer one */
    for (uint16_t h = 0; h < 0x7bff; h++) {
        float middle = (float)((half_value(h) + half_value((uint16_t)(h + 1))) / 2);
        assert_int_equal(aprt_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(aprt_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(aprt_f32_to_f16(nextafterf(middle, 0)), h);
    }
    assert_int_equal(aprt_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(aprt_f32_to_f16(65520), 0x7c00);
    assert_int_equal(aprt_f32_to_f16(-1e30f), 0xfc00);
    assert_true(isnan(aprt_f16_to_f32(aprt_f32_to_f16(NAN))));
    assert_int_equal(aprt_f32_to_bf16(1.00390625f), 0x3f80);
    assert_int_equal(aprt_f32_to_bf16(1.01171875f), 0x3f82);
    assert_int_equal(aprt_f32_to_bf16(FLT_MAX), 0x7f80);
    assert_true(isnan(aprt_bf16_to_f32(aprt_f32_to_bf16(aprt_f32_bits(0x7f800001)))));
}

static void integers(void **state)
{
    (void)state;
    assert_int_equal(aprt_div_i32(INT32_MIN, -1), INT32_MIN);
    assert_int_equal(aprt_div_i64(7, 0), 0);
    assert_int_equal(aprt_mod_i32(-7, 3), 2);
    assert_int_equal(aprt_mod_i32(7, -3), -2);
    assert_int_equal(aprt_mod_i64(INT64_MIN, -1), 0);
    assert_int_equal(aprt_abs_i8(INT8_MIN), INT8_MIN);
    assert_int_equal(aprt_mul_u16(65535, 65535), 1);
    assert_int_equal(aprt_add_i8(127, 1), -128);
    assert_int_equal(aprt_i32_of_float(1e20), INT32_MAX);
    assert_int_equal(aprt_i32_of_float(-1e20), INT32_MIN);
    assert_int_equal(aprt_i64_of_float(NAN), 0);
    assert_int_equal(aprt_u8_of_float(-3), 0);
    assert_int_equal(aprt_u8_of_float(255.9), 255);
    assert_int_equal(aprt_i8_of_float(-128.9), -128);
    assert_true(isnan(aprt_max_f32(NAN, 1)) && isnan(aprt_max_f32(1, NAN)) && isnan(aprt_min_f64(1, NAN)));
}

/* Strides that BLAS cannot take are right as well, only slow. */
static void products_with_odd_strides(void **state)
{
    (void)state;
    enum { M = 9, N = 8, K = 7 };
    static const int64_t strides[][4] = {{7, 1, 8, 1}, {1, 9, 1, 7}, {14, 2, 8, 1},  {0, 1, 8, 1},
                                         {7, 1, 0, 1}, {7, 1, 1, 0}, {20, 2, 3, 30}, {1, 1, 1, 1}};
    float a[400], b[400], c[M * 10];
    for (int i = 0; i < 400; i++) {
        a[i] = (float)(i * 37 % 23 - 11);
        b[i] = (float)(i * 41 % 19 - 9);
    }
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++)
        for (int beta = 0; beta < 2; beta++) {
            for (int i = 0; i < M * 10; i++)
                c[i] = beta ? 5 : NAN;
            aprt_gemm_f32(M, N, K, a, strides[s][0], strides[s][1], b, strides[s][2], strides[s][3], beta, c, 10, NULL,
                          NULL);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++) {
                    float want = beta ? 5 : 0;
                    for (int l = 0; l < K; l++)
                        want += a[i * strides[s][0] + l * strides[s][1]] * b[l * strides[s][2] + j * strides[s][3]];
                    assert_true(c[i * 10 + j] == want);
                }
        }
}

/* One row or column of any size: NaN in the old result must not survive. */
static void thin_products(void **state)
{
    (void)state;
    enum { L = 301 };
    static double a[L * L], b[L * L], c[L];
    for (int i = 0; i < L * L; i++) {
        a[i] = i * 7 % 13 - 6;
        b[i] = i * 5 % 11 - 5;
    }
    for (int column = 0; column < 2; column++)
        for (int transposed = 0; transposed < 2; transposed++) {
            int64_t m = column ? L : 1, n = column ? 1 : L, rs = transposed ? 1 : L, cs = transposed ? L : 1;
            for (int i = 0; i < L; i++)
                c[i] = NAN;
            aprt_gemm_f64(m, n, L, a, rs, cs, b, rs, cs, 0, c, n, NULL, NULL);
            for (int i = 0; i < L; i++) {
                double want = 0;
                for (int l = 0; l < L; l++)
                    want += column ? a[i * rs + l * cs] * b[l * rs] : a[l * cs] * b[l * rs + i * cs];
                assert_true(c[i] == want);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions),
        cmocka_unit_test(half_precision),
        cmocka_unit_test(integers),
        cmocka_unit_test(thin_products),
        cmocka_unit_test(products_with_odd_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
