/* SPDX-License-Identifier: MIT
 *
 * Matrix products. An element of C is a sum of chains, each over up to 256 values of l, added in order:
 *
 *     chain(l0) = fma(a[i][l0+255], b[l0+255][j], ... fma(a[i][l0], b[l0][j], 0))
 *     c[i][j] = (((beta ? c[i][j] + chain(0) : chain(0)) + chain(256)) + chain(512)) + ...
 *
 * and nothing else. So its bits depend on its row of A and its column of B alone: not on how many rows or columns a
 * call has, nor on the width of the vectors, and devices that split rows or columns give the bits of one device.
 * Chains are short because one over all of k would be off by more, and 256 because that is where ONNX Runtime ends its
 * own: docs/runtime.md has the measurement that asked for it.
 *
 * Vector code keeps the order because lanes are columns. gemm_tile.h is that code, once for all types and widths. */
#include "gemm_internal.h"

/* For other processors: as it is written above. Vectors over j where fma is an instruction. */
#define LOOPS(T, s, FMA)                                                                                               \
    static void chain_##s(int64_t n, int64_t k, const T *a, int64_t csa, const T *b, int64_t rsb, int64_t csb, T *sum) \
    {                                                                                                                  \
        memset(sum, 0, (size_t)n * sizeof(T));                                                                         \
        for (int64_t l = 0; l < k; l++)                                                                                \
            for (int64_t j = 0; j < n; j++)                                                                            \
                sum[j] = FMA(a[l * csa], b[l * rsb + j * csb], sum[j]);                                                \
    }                                                                                                                  \
    static void loops_##s(APRT_GEMM_ARGS(T))                                                                           \
    {                                                                                                                  \
        enum { PART = 512, CHAIN = APRT_GEMM_CHAIN };                                                                  \
        T sum[PART];                                                                                                   \
        for (int64_t i = 0; i < m; i++)                                                                                \
            for (int64_t j0 = 0; j0 < n; j0 += PART) {                                                                 \
                const int64_t w = n - j0 < PART ? n - j0 : PART;                                                       \
                T *row = c + i * rsc + j0;                                                                             \
                if (!beta && k <= 0)                                                                                   \
                    memset(row, 0, (size_t)w * sizeof(T));                                                             \
                for (int64_t l = 0; l < k; l += CHAIN) {                                                               \
                    chain_##s(w, k - l < CHAIN ? k - l : CHAIN, a + i * rsa + l * csa, csa, b + l * rsb + j0 * csb,    \
                              rsb, csb, sum);                                                                          \
                    for (int64_t j = 0; j < w; j++)                                                                    \
                        row[j] = beta || l > 0 ? row[j] + sum[j] : sum[j];                                             \
                }                                                                                                      \
                if (after)                                                                                             \
                    after(with, i, i + 1, j0, j0 + w);                                                                 \
            }                                                                                                          \
    }
LOOPS(float, f32, fmaf)
LOOPS(double, f64, fma)
#undef LOOPS

#define LOOPS_PANELS(T, s)                                                                                             \
    static void loops_panels_##s(APRT_GEMM_PANELS_ARGS(T))                                                             \
    {                                                                                                                  \
        enum { PANEL = LOOPS_PANEL_BYTES / sizeof(T) };                                                                \
        for (int64_t j = 0; j < n; j += PANEL) {                                                                       \
            const int64_t w = n - j < PANEL ? n - j : PANEL;                                                           \
            loops_##s(m, w, k, a, rsa, csa, b + j * k, w, 1, beta, c + j, rsc, NULL, NULL);                            \
        }                                                                                                              \
        if (after)                                                                                                     \
            after(with, 0, m, 0, n);                                                                                   \
    }
enum { LOOPS_PANEL_BYTES = 64 };
LOOPS_PANELS(float, f32)
LOOPS_PANELS(double, f64)
#undef LOOPS_PANELS

#define LOOPS_VARIANT(name)                                                                                            \
    {                                                                                                                  \
        name, loops_f32, loops_f64, loops_panels_f32, loops_panels_f64, LOOPS_PANEL_BYTES                              \
    }
#ifdef __x86_64__
#define VARIANT(name, bytes)                                                                                           \
    {                                                                                                                  \
#name, aprt_gemm_##name##_f32, aprt_gemm_##name##_f64, aprt_gemm_panels_##name##_f32,                          \
            aprt_gemm_panels_##name##_f64, bytes                                                                       \
    }
#else
#define VARIANT(name, bytes) LOOPS_VARIANT(#name)
#endif

static const aprt_gemm_variant variants[APRT_GEMM_ISAS] = {
    [APRT_GEMM_PORTABLE] = LOOPS_VARIANT("portable"),
    [APRT_GEMM_AVX2] = VARIANT(avx2, 64),
    [APRT_GEMM_AVX512] = VARIANT(avx512, 128),
};

const aprt_gemm_variant *aprt_gemm_get(aprt_gemm_isa isa)
{
    return &variants[isa];
}

bool aprt_gemm_has(aprt_gemm_isa isa)
{
#ifdef __x86_64__
    if (isa == APRT_GEMM_AVX512)
        return __builtin_cpu_supports("avx512f");
    if (isa == APRT_GEMM_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return isa == APRT_GEMM_PORTABLE;
}

static const aprt_gemm_variant *best(void)
{
    aprt_gemm_isa isa = APRT_GEMM_ISAS - 1;
    while (!aprt_gemm_has(isa))
        isa--;
    return &variants[isa];
}

void aprt_gemm_f32(APRT_GEMM_ARGS(float))
{
    if (m > 0 && n > 0)
        best()->f32(m, n, k, a, rsa, csa, b, rsb, csb, beta, c, rsc, after, with);
}

void aprt_gemm_f64(APRT_GEMM_ARGS(double))
{
    if (m > 0 && n > 0)
        best()->f64(m, n, k, a, rsa, csa, b, rsb, csb, beta, c, rsc, after, with);
}

int64_t aprt_gemm_panel(int32_t dtype)
{
    return best()->panel_bytes / aprt_dtype_bytes(dtype);
}

void aprt_gemm_panels_f32(APRT_GEMM_PANELS_ARGS(float))
{
    if (m > 0 && n > 0)
        best()->panels_f32(m, n, k, a, rsa, csa, b, beta, c, rsc, after, with);
}

void aprt_gemm_panels_f64(APRT_GEMM_PANELS_ARGS(double))
{
    if (m > 0 && n > 0)
        best()->panels_f64(m, n, k, a, rsa, csa, b, beta, c, rsc, after, with);
}
