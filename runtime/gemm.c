/* SPDX-License-Identifier: MIT
 *
 * Matrix products: f32 by oneDNN, whose rows do not depend on how many rows there are, so that devices that split rows
 * give the bits of one device (docs/dependencies.md has the measurement); f64, rare in models, by plain loops. What is
 * left to do here for f32: turn strides into transpose letters and leading dimensions, and keep odd strides away. */
#include "internal.h"

#include <oneapi/dnnl/dnnl.h>

typedef struct matrix {
    char trans; /* of a row-major matrix: 'N' or 'T' */
    int64_t ld;
} matrix;

/* How the library sees rows x cols with these strides; false when it cannot. */
static bool matrix_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs, matrix *out)
{
    if ((cs == 1 || cols == 1) && (rows == 1 || rs >= cols)) {
        *out = (matrix){'N', rows == 1 ? cols : rs};
        return true;
    }
    if ((rs == 1 || rows == 1) && (cols == 1 || cs >= rows)) {
        *out = (matrix){'T', cols == 1 ? rows : cs};
        return true;
    }
    return false;
}

/* c += a b, any strides; the sum of each element runs over k in order. */
#define LOOPS(T, s)                                                                                                    \
    static void loops_##s(int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b,           \
                          int64_t rsb, int64_t csb, int beta, T *c, int64_t rsc)                                       \
    {                                                                                                                  \
        for (int64_t i = 0; i < m; i++) {                                                                              \
            if (!beta)                                                                                                 \
                memset(c + i * rsc, 0, (size_t)n * sizeof(T));                                                         \
            for (int64_t l = 0; l < k; l++) {                                                                          \
                const T x = a[i * rsa + l * csa];                                                                      \
                for (int64_t j = 0; j < n; j++)                                                                        \
                    c[i * rsc + j] += x * b[l * rsb + j * csb];                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }
LOOPS(float, f32)
LOOPS(double, f64)
#undef LOOPS

void aprt_gemm_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t rsa, int64_t csa, const float *b,
                   int64_t rsb, int64_t csb, int beta, float *c, int64_t rsc)
{
    matrix ma, mb;
    if (m <= 0 || n <= 0)
        return;
    bool plain = k <= 0 || !matrix_of(m, k, rsa, csa, &ma) || !matrix_of(k, n, rsb, csb, &mb) || (m > 1 && rsc < n);
    if (plain ||
        dnnl_sgemm(ma.trans, mb.trans, m, n, k, 1, a, ma.ld, b, mb.ld, (float)beta, c, m > 1 ? rsc : n) != dnnl_success)
        loops_f32(m, n, k, a, rsa, csa, b, rsb, csb, beta, c, rsc);
}

void aprt_gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t rsa, int64_t csa, const double *b,
                   int64_t rsb, int64_t csb, int beta, double *c, int64_t rsc)
{
    if (m > 0 && n > 0)
        loops_f64(m, n, k, a, rsa, csa, b, rsb, csb, beta, c, rsc);
}
