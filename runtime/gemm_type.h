/* SPDX-License-Identifier: MIT
 *
 * One element type of gemm.c, which includes this file once for each: T the type, BLAS(name) the library's function,
 * OURS(name) ours. No include guard. */

static void OURS(loops)(int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int64_t rsb,
                        int64_t csb, T *c, int64_t rsc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++) {
            const T x = a[i * rsa + l * csa];
            for (int64_t j = 0; j < n; j++)
                c[i * rsc + j] += x * b[l * rsb + j * csb];
        }
}

/* y (stride incy) += M x, M being rows x cols */
static bool OURS(vector)(int64_t rows, int64_t cols, const T *a, int64_t rs, int64_t cs, const T *x, int64_t incx, T *y,
                         int64_t incy)
{
    matrix mat;
    incx = cols == 1 ? 1 : incx;
    incy = rows == 1 ? 1 : incy;
    if (!matrix_of(rows, cols, rs, cs, &mat) || incx < 1 || incx > INT_MAX || incy < 1 || incy > INT_MAX)
        return false;
    BLAS(gemv)
    (CblasRowMajor, mat.trans, (int)(mat.trans == CblasNoTrans ? rows : cols),
     (int)(mat.trans == CblasNoTrans ? cols : rows), 1, a, (int)mat.ld, x, (int)incx, 1, y, (int)incy);
    return true;
}

static void OURS(block)(int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int64_t rsb,
                        int64_t csb, int beta, T *c, int64_t rsc)
{
    matrix ma, mb, mc;
    bool small = m * n <= SMALL && m * n * k <= SMALL, thin = m == 1 || n == 1;
    bool plain = !matrix_of(m, k, rsa, csa, &ma) || !matrix_of(k, n, rsb, csb, &mb) || !matrix_of(m, n, rsc, 1, &mc) ||
                 mc.trans != CblasNoTrans;
    if (!small && !thin && !plain) {
        BLAS(gemm)
        (CblasRowMajor, ma.trans, mb.trans, (int)m, (int)n, (int)k, 1, a, (int)ma.ld, b, (int)mb.ld, (T)beta, c,
         (int)mc.ld);
        return;
    }
    /* The matrix-vector product multiplies what was there before by beta, be it NaN: zero it ourselves. */
    if (!beta)
        for (int64_t i = 0; i < m; i++)
            memset(c + i * rsc, 0, (size_t)n * sizeof(T));
    if (!small && m == 1 && OURS(vector)(n, k, b, csb, rsb, a, csa, c, 1))
        return;
    if (!small && n == 1 && OURS(vector)(m, k, a, rsa, csa, b, rsb, c, rsc))
        return;
    OURS(loops)(m, n, k, a, rsa, csa, b, rsb, csb, c, rsc);
}

void OURS(gemm)(int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int64_t rsb,
                int64_t csb, int beta, T *c, int64_t rsc)
{
    if (m <= 0 || n <= 0)
        return;
    if (k <= 0) {
        for (int64_t i = 0; i < m && !beta; i++)
            memset(c + i * rsc, 0, (size_t)n * sizeof(T));
        return;
    }
    /* the library counts in int */
    for (int64_t i = 0; i < m; i += EXTENT_MAX)
        for (int64_t j = 0; j < n; j += EXTENT_MAX)
            for (int64_t l = 0; l < k; l += EXTENT_MAX)
                OURS(block)
    (least(m - i), least(n - j), least(k - l), a + i * rsa + l * csa, rsa, csa, b + l * rsb + j * csb, rsb, csb,
     beta || l > 0, c + i * rsc + j, rsc);
}

#undef T
#undef BLAS
#undef OURS
