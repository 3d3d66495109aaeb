/* The convolution library against plain loops (conv_problem.h): channels-last f32, which the library takes, and other
 * strides and types, which it does not. Several devices at once give what one gives, bit by bit. */
#include "conv_problem.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void compare_one(void *user, int64_t y, double want)
{
    const float *got = user;
    if (!(fabs(got[y] - want) <= 2e-5 * (1 + fabs(want))))
        fail_msg("result %lld is %g, not %g", (long long)y, got[y], want);
}

static void compare(const problem *p, float *got)
{
    each_result(p, compare_one, got);
}

static const drawn fast = {.dtype = APRT_F32, .steps = true, .spatial = 3},
                   plain = {.dtype = APRT_F32, .steps = true, .spatial = 4, .outermost = true};

static float *as_f32(const double *x, int64_t n)
{
    float *f = aligned_alloc(64, ((size_t)n * sizeof *f + 63) / 64 * 64 + 64);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)x[i];
    return f;
}

enum { CHANGING, FIXED, PASSING };

/* Opens, runs twice, closes. Behind its turns x holds zeros for channels, weights hold NaN. */
static float *run(const problem *p, int weights)
{
    aprt_device d = {.nslots = 2, .slot = calloc(2, sizeof(void *))};
    float *x = as_f32(p->x, p->nx), *w = as_f32(p->w, p->nw), *y = as_f32(p->y, p->ny), *v = as_f32(p->v, p->nv);
    const void *operand[APRT_MAX_CONV_STEPS];
    for (int i = 0; i < APRT_MAX_CONV_STEPS; i++)
        operand[i] = v + (i < p->nv_used ? i : 0) * p->ny;
    assert_int_equal(aprt_conv_prepare(&d, 0, &p->c, p->turns, weights ? w : NULL,
                                       weights == PASSING ? p->nw * (int64_t)sizeof *w : 0),
                     APRT_OK);
    for (int64_t i = 0; i < p->nw && weights == PASSING; i++)
        w[i] = NAN;
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < p->ny; k++)
            y[k] = (float)p->y[k];
        assert_int_equal(aprt_conv_run(&d, 0, x, weights == PASSING ? NULL : w, y, operand), APRT_OK);
    }
    aprt_conv_release(&d);
    free(d.slot);
    free(x);
    free(w);
    free(v);
    return y;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 180; i++) {
        problem p;
        draw_problem(&p, &seed, i % 4 == 3 ? &plain : &fast);
        float *y = run(&p, i % 3);
        compare(&p, y);
        free(y);
        free_problem(&p);
    }
}

#define DIM(IN, KERNEL, LO, OUT, STRIDE, DILATE)                                                                       \
    {                                                                                                                  \
        .in = IN, .kernel = KERNEL, .out = OUT, .lo = LO, .stride = STRIDE, .dilate = DILATE, .hole = 1                \
    }

/* Columns, whose second dimension is left out; rows with more padding than direct convolutions take, on one side or
 * both, with strides, and where it is more than the row has. */
static void test_planes(void **state)
{
    (void)state;
    static const aprt_conv_dim plane[][2] = {
        {DIM(12, 5, 0, 8, 1, 1), DIM(1, 1, 0, 1, 1, 1)},   {DIM(1, 1, 0, 1, 3, 2), DIM(1, 1, 0, 1, 2, 1)},
        {DIM(4, 3, 5, 4, 1, 5), DIM(14, 3, 5, 14, 1, 5)},  {DIM(3, 1, 0, 3, 1, 1), DIM(24, 13, 6, 24, 1, 1)},
        {DIM(3, 3, 1, 3, 1, 1), DIM(20, 9, 8, 8, 2, 1)},   {DIM(2, 2, 0, 1, 1, 1), DIM(16, 9, 0, 16, 1, 1)},
        {DIM(2, 1, 0, 2, 1, 1), DIM(5, 11, 10, 15, 1, 1)},
    };
    uint64_t seed = 5;
    for (int i = 0; i < 84; i++) {
        problem p;
        const drawn how = {.dtype = APRT_F32, .steps = true, .plane = plane[i % 7]};
        draw_problem(&p, &seed, &how);
        float *y = run(&p, i % 3);
        compare(&p, y);
        free(y);
        free_problem(&p);
    }
}

/* One row of a product per type: 3*2 - 4*1, and what is added. */
#define TYPE(T, NAME, X, READ)                                                                                         \
    {                                                                                                                  \
        T x[2] = {X(3), X(4)}, w[2] = {X(2), X(1)}, y[1] = {X(1)};                                                     \
        aprt_device d = {.nslots = 2, .slot = calloc(2, sizeof(void *))};                                              \
        aprt_conv c = {.dtype = NAME, .n = 1, .g = 1, .m = 1, .c = 2, .x = {0, 0, 1}, .w = {0, 0, 1}};                 \
        assert_int_equal(aprt_conv_prepare(&d, 0, &c, (const int64_t[]){1, 1, 1, 2}, w, sizeof w), APRT_OK);           \
        assert_int_equal(aprt_conv_run(&d, 0, x, NULL, y, NULL), APRT_OK);                                             \
        assert_true(READ(y[0]) == 10);                                                                                 \
        aprt_conv_release(&d);                                                                                         \
        free(d.slot);                                                                                                  \
    }
#define SAME(x) (x)
static void test_types(void **state)
{
    (void)state;
    TYPE(float, APRT_F32, SAME, SAME)
    TYPE(double, APRT_F64, SAME, SAME)
    TYPE(uint16_t, APRT_F16, aprt_f32_to_f16, aprt_f16_to_f32)
    TYPE(uint16_t, APRT_BF16, aprt_f32_to_bf16, aprt_bf16_to_f32)
    TYPE(int8_t, APRT_I8, SAME, SAME)
    TYPE(uint8_t, APRT_U8, SAME, SAME)
    TYPE(int16_t, APRT_I16, SAME, SAME)
    TYPE(int32_t, APRT_I32, SAME, SAME)
    TYPE(int64_t, APRT_I64, SAME, SAME)
    TYPE(uint64_t, APRT_U64, SAME, SAME)
}

/* ---- devices at once ---- */

enum { THREADS = 4, PROBLEMS = 40 };

typedef struct together {
    problem *p;
    float **y;
} together;

static void *run_all(void *user)
{
    together *t = user;
    for (int i = 0; i < PROBLEMS; i++)
        t->y[i] = run(&t->p[i], 1);
    return NULL;
}

static void test_devices(void **state)
{
    (void)state;
    static problem p[PROBLEMS];
    static float *y[THREADS + 1][PROBLEMS];
    together t[THREADS + 1];
    pthread_t thread[THREADS];
    uint64_t seed = 7;
    for (int i = 0; i < PROBLEMS; i++)
        draw_problem(&p[i], &seed, &fast);
    for (int i = 0; i <= THREADS; i++)
        t[i] = (together){p, y[i]};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_all, &t[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    run_all(&t[THREADS]);
    for (int i = 0; i < PROBLEMS; i++) {
        compare(&p[i], y[THREADS][i]);
        bool whole = p[i].turns[0] == p[i].c.n && p[i].turns[1] == p[i].c.g && p[i].turns[2] == p[i].c.m;
        for (int k = 0; k < THREADS; k++) {
            if (whole)
                assert_memory_equal(y[k][i], y[THREADS][i], (size_t)p[i].ny * sizeof(float));
            free(y[k][i]);
        }
        free(y[THREADS][i]);
        free_problem(&p[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
