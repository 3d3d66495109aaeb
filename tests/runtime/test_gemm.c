/* Matrix products: every variant that this processor has gives the bits of the chains of fma over k, whatever the
 * shape, the strides, the transposes, the alignment and the number of rows or columns of a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gemm_internal.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int64_t below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next(state) % (uint64_t)limit);
}

/* A matrix in a buffer of exactly the bytes it reaches, so that a sanitizer sees a step too far. */
typedef struct matrix {
    int64_t rows, cols, rs, cs, count;
} matrix;

enum { BY_ROWS, BY_COLUMNS, GAPS_ROWS, GAPS_COLUMNS, ODD, LAYOUTS };

static matrix layout(uint64_t *state, int kind, int64_t rows, int64_t cols)
{
    matrix x = {.rows = rows, .cols = cols};
    int64_t gap = kind == GAPS_ROWS || kind == GAPS_COLUMNS ? below(state, 40) : 0;
    x.rs = kind == BY_ROWS || kind == GAPS_ROWS ? cols + gap : 1;
    x.cs = kind == BY_COLUMNS || kind == GAPS_COLUMNS ? rows + gap : 1;
    if (kind == ODD) {
        bool down = below(state, 2);
        x.rs = down ? 2 : 3 * cols + 1;
        x.cs = down ? 2 * rows + 1 : 3;
    }
    x.count = rows > 0 && cols > 0 ? (rows - 1) * x.rs + (cols - 1) * x.cs + 1 : 0;
    return x;
}

/* The type-generic part. SAME: equal bits, or both not a number: which of two payloads comes out is not promised. */
#define SUITE(T, s, FMA)                                                                                               \
    static T *numbers_##s(uint64_t *state, int64_t count)                                                              \
    {                                                                                                                  \
        T *p = malloc((size_t)(count + !count) * sizeof(T));                                                           \
        for (int64_t i = 0; i < count; i++)                                                                            \
            p[i] = (T)((double)next(state) / 0x1p30 - 1);                                                              \
        return p;                                                                                                      \
    }                                                                                                                  \
    static bool same_##s(T x, T y)                                                                                     \
    {                                                                                                                  \
        return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));                                                \
    }                                                                                                                  \
    static void chain_##s(matrix ma, const T *a, matrix mb, const T *b, int beta, T *c, int64_t rsc)                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < ma.rows; i++)                                                                          \
            for (int64_t j = 0; j < mb.cols; j++) {                                                                    \
                T total = beta ? c[i * rsc + j] : 0;                                                                   \
                for (int64_t l0 = 0; l0 < ma.cols; l0 += 256) {                                                        \
                    T sum = 0;                                                                                         \
                    for (int64_t l = l0; l < ma.cols && l < l0 + 256; l++)                                             \
                        sum = FMA(a[i * ma.rs + l * ma.cs], b[l * mb.rs + j * mb.cs], sum);                            \
                    total = l0 || beta ? total + sum : sum;                                                            \
                }                                                                                                      \
                c[i * rsc + j] = total;                                                                                \
            }                                                                                                          \
    }                                                                                                                  \
    /* B in panels: columns j0 ... j0+w of all rows, one panel after the other. */                                     \
    static T *panels_##s(int isa, matrix mb, const T *b)                                                               \
    {                                                                                                                  \
        int64_t width = aprt_gemm_get(isa)->panel_bytes / (int64_t)sizeof(T), at = 0;                                  \
        T *p = malloc((size_t)(mb.rows * mb.cols + !mb.rows) * sizeof(T));                                             \
        for (int64_t j0 = 0; j0 < mb.cols; j0 += width)                                                                \
            for (int64_t l = 0; l < mb.rows; l++)                                                                      \
                for (int64_t j = j0; j < mb.cols && j < j0 + width; j++)                                               \
                    p[at++] = b[l * mb.rs + j * mb.cs];                                                                \
        return p;                                                                                                      \
    }                                                                                                                  \
    /* What follows turns the signs: each element must be complete by then, and met once. */                           \
    typedef struct turn_##s {                                                                                          \
        T *c;                                                                                                          \
        int64_t rsc;                                                                                                   \
    } turn_##s;                                                                                                        \
    static void turn_signs_##s(const void *with, int64_t i0, int64_t i1, int64_t j0, int64_t j1)                       \
    {                                                                                                                  \
        const turn_##s *w = with;                                                                                      \
        for (int64_t i = i0; i < i1; i++)                                                                              \
            for (int64_t j = j0; j < j1; j++)                                                                          \
                w->c[i * w->rsc + j] = -w->c[i * w->rsc + j];                                                          \
    }                                                                                                                  \
    static void compare_##s(uint64_t *state, int isa, int64_t m, int64_t n, int64_t k, int ka, int kb, int beta,       \
                            T special)                                                                                 \
    {                                                                                                                  \
        matrix ma = layout(state, ka, m, k), mb = layout(state, kb, k, n);                                             \
        int64_t rsc = n + (below(state, 2) ? below(state, 40) : 0), count = (m - 1) * rsc + n, at = below(state, 5);   \
        T *a = numbers_##s(state, ma.count), *b = numbers_##s(state, mb.count), *c = numbers_##s(state, at + count);   \
        T *want = malloc((size_t)count * sizeof(T)), *old = malloc((size_t)count * sizeof(T));                         \
        if (special != 0 && k > 0) {                                                                                   \
            a[below(state, ma.count)] = special;                                                                       \
            b[below(state, mb.count)] = -special;                                                                      \
            c[at + below(state, count)] = special;                                                                     \
        }                                                                                                              \
        memcpy(want, c + at, (size_t)count * sizeof(T));                                                               \
        memcpy(old, want, (size_t)count * sizeof(T));                                                                  \
        chain_##s(ma, a, mb, b, beta, want, rsc);                                                                      \
        turn_##s with = {c + at, rsc}, expected = {want, rsc};                                                         \
        aprt_after *after = below(state, 2) ? turn_signs_##s : NULL;                                                   \
        if (after)                                                                                                     \
            after(&expected, 0, m, 0, n);                                                                              \
        aprt_gemm_get(isa)->s(m, n, k, a, ma.rs, ma.cs, b, mb.rs, mb.cs, beta, c + at, rsc, after, &with);             \
        for (int64_t i = 0; i < count; i++)                                                                            \
            if (!same_##s(c[at + i], want[i]))                                                                         \
                fail_msg("%s " #s " %lldx%lldx%lld, layouts %d %d, beta %d: element %lld is %a, not %a",               \
                         aprt_gemm_get(isa)->name, (long long)m, (long long)n, (long long)k, ka, kb, beta,             \
                         (long long)i, (double)c[at + i], (double)want[i]);                                            \
        T *p = panels_##s(isa, mb, b);                                                                                 \
        memcpy(c + at, old, (size_t)count * sizeof(T));                                                                \
        aprt_gemm_get(isa)->panels_##s(m, n, k, a, ma.rs, ma.cs, p, beta, c + at, rsc, after, &with);                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            if (!same_##s(c[at + i], want[i]))                                                                         \
                fail_msg("%s " #s " in panels %lldx%lldx%lld, layout %d, beta %d: element %lld is %a, not %a",         \
                         aprt_gemm_get(isa)->name, (long long)m, (long long)n, (long long)k, ka, beta, (long long)i,   \
                         (double)c[at + i], (double)want[i]);                                                          \
        free(p);                                                                                                       \
        free(old);                                                                                                     \
        free(a);                                                                                                       \
        free(b);                                                                                                       \
        free(c);                                                                                                       \
        free(want);                                                                                                    \
    }
SUITE(float, f32, fmaf)
SUITE(double, f64, fma)
#undef SUITE

static void compare(uint64_t *state, int isa, int64_t m, int64_t n, int64_t k, int ka, int kb, int beta, float special)
{
    compare_f32(state, isa, m, n, k, ka, kb, beta, special);
    compare_f64(state, isa, m, n, k, ka, kb, beta, special);
}

/* A size near one of the places where the code changes its ways. */
static int64_t size_near(uint64_t *state, int64_t most)
{
    static const int64_t edges[] = {1, 2, 6, 8, 14, 16, 24, 32, 64, 128, 256, 384};
    int64_t x = edges[below(state, sizeof edges / sizeof *edges)] + below(state, 5) - 2;
    if (x < 1 || x > most || below(state, 4) == 0)
        x = 1 + below(state, most);
    return x;
}

static void random_shapes(void **state)
{
    (void)state;
    for (int isa = 0; isa < APRT_GEMM_ISAS; isa++) {
        uint64_t seed = 5;
        if (!aprt_gemm_has(isa))
            continue;
        for (int round = 0; round < 3000; round++) {
            int64_t most = round % 50 == 0 ? 300 : 40;
            int64_t m = size_near(&seed, most), n = size_near(&seed, most), k = size_near(&seed, most);
            compare(&seed, isa, m, n, k, (int)below(&seed, LAYOUTS), (int)below(&seed, LAYOUTS), round & 1, 0);
        }
    }
}

/* Each number of rows and of columns, over more than one block of each extent, each layout. */
static void edges(void **state)
{
    (void)state;
    for (int isa = 0; isa < APRT_GEMM_ISAS; isa++) {
        uint64_t seed = 6;
        if (!aprt_gemm_has(isa))
            continue;
        for (int64_t m = 1; m <= 30; m++)
            for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++)
                compare(&seed, isa, m, 1 + below(&seed, 140), below(&seed, 20), layouts % LAYOUTS, layouts / LAYOUTS,
                        (int)(m & 1), 0);
        for (int layouts = 0; layouts < LAYOUTS * LAYOUTS; layouts++) {
            compare(&seed, isa, 1, 300, 800, layouts % LAYOUTS, layouts / LAYOUTS, layouts & 1, 0);
            compare(&seed, isa, 300, 1, 800, layouts % LAYOUTS, layouts / LAYOUTS, layouts & 1, 0);
            compare(&seed, isa, 1, 5000, 19, layouts % LAYOUTS, layouts / LAYOUTS, layouts & 1, 0);
            compare(&seed, isa, 3, 5, 800, layouts % LAYOUTS, layouts / LAYOUTS, layouts & 1, 0);
            compare(&seed, isa, 17, 290, 400, layouts % LAYOUTS, layouts / LAYOUTS, layouts & 1, 0);
        }
        for (int beta = 0; beta < 2; beta++)
            for (int64_t m = 1; m < 20; m += 6)
                for (int64_t n = 1; n < 40; n += 12)
                    compare(&seed, isa, m, n, 0, BY_ROWS, BY_ROWS, beta, 0);
    }
}

/* One special value reaches the elements it must, and no others. */
static void special_values(void **state)
{
    (void)state;
    const float values[] = {NAN, INFINITY, -INFINITY, 3e38f, 1e-45f, -0.0f};
    for (int isa = 0; isa < APRT_GEMM_ISAS; isa++) {
        uint64_t seed = 7;
        if (!aprt_gemm_has(isa))
            continue;
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (int round = 0; round < 50; round++)
                compare(&seed, isa, size_near(&seed, 20), size_near(&seed, 70), size_near(&seed, 20),
                        (int)below(&seed, LAYOUTS), (int)below(&seed, LAYOUTS), round & 1, values[v]);
    }
}

/* What devices do: rows, or columns, in parts of any size; and k in whole chains that add to what is there. */
static void parts_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { M = 61, N = 97, K = 500 };
    uint64_t seed = 8;
    float *a = numbers_f32(&seed, M * K), *b = numbers_f32(&seed, K * N), *whole = numbers_f32(&seed, M * N);
    float *rows = numbers_f32(&seed, M * N), *cols = numbers_f32(&seed, M * N), *ks = numbers_f32(&seed, M * N);
    aprt_gemm_f32(M, N, K, a, K, 1, b, N, 1, 0, whole, N, NULL, NULL);
    for (int round = 0; round < 20; round++) {
        for (int64_t i = 0, part; i < M; i += part) {
            part = 1 + below(&seed, M - i);
            aprt_gemm_f32(part, N, K, a + i * K, K, 1, b, N, 1, 0, rows + i * N, N, NULL, NULL);
        }
        for (int64_t j = 0, part; j < N; j += part) {
            part = 1 + below(&seed, N - j);
            aprt_gemm_f32(M, part, K, a, K, 1, b + j, N, 1, 0, cols + j, N, NULL, NULL);
        }
        for (int64_t l = 0, part; l < K; l += part) {
            part = l ? K - l : 256;
            aprt_gemm_f32(M, N, part, a + l, K, 1, b + l * N, N, 1, l > 0, ks, N, NULL, NULL);
        }
        assert_memory_equal(rows, whole, M * N * sizeof(float));
        assert_memory_equal(cols, whole, M * N * sizeof(float));
        assert_memory_equal(ks, whole, M * N * sizeof(float));
    }
    free(a);
    free(b);
    free(whole);
    free(rows);
    free(cols);
    free(ks);
}

static void nothing_to_do(void **state)
{
    (void)state;
    float c = 5;
    aprt_gemm_f32(0, 3, 3, NULL, 3, 1, NULL, 3, 1, 0, &c, 3, NULL, NULL);
    aprt_gemm_f32(3, 0, 3, NULL, 3, 1, NULL, 3, 1, 0, &c, 3, NULL, NULL);
    assert_true(c == 5);
    aprt_gemm_f32(1, 1, 0, NULL, 0, 1, NULL, 1, 1, 1, &c, 1, NULL, NULL);
    assert_true(c == 5);
    aprt_gemm_f32(1, 1, 0, NULL, 0, 1, NULL, 1, 1, 0, &c, 1, NULL, NULL);
    assert_true(c == 0 && !signbit(c));
}

int main(void)
{
    for (int isa = 0; isa < APRT_GEMM_ISAS; isa++)
        print_message("%s: %s\n", aprt_gemm_get(isa)->name, aprt_gemm_has(isa) ? "tested" : "not on this processor");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),  cmocka_unit_test(edges),
        cmocka_unit_test(special_values), cmocka_unit_test(parts_give_the_bits_of_the_whole),
        cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
