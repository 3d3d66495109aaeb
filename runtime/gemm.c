/* SPDX-License-Identifier: MIT
 *
 * Matrix products by OpenBLAS. What is left to do here: turn strides into its transpose flags and leading dimensions,
 * call the matrix-vector product for one row or column (its product of matrices is six times slower there), and keep
 * small and odd cases away from it. */
#include "internal.h"

#include <cblas.h>
#include <limits.h>

enum { SMALL = 256, EXTENT_MAX = 1 << 30 };

static int64_t least(int64_t extent)
{
    return extent < EXTENT_MAX ? extent : EXTENT_MAX;
}

typedef struct matrix {
    CBLAS_TRANSPOSE trans; /* of a row-major matrix */
    int64_t ld;
} matrix;

/* How the library sees rows x cols with these strides; false when it cannot. */
static bool matrix_of(int64_t rows, int64_t cols, int64_t rs, int64_t cs, matrix *out)
{
    if ((cs == 1 || cols == 1) && (rows == 1 || rs >= cols)) {
        *out = (matrix){CblasNoTrans, rows == 1 ? cols : rs};
        return out->ld <= INT_MAX;
    }
    if ((rs == 1 || rows == 1) && (cols == 1 || cs >= rows)) {
        *out = (matrix){CblasTrans, cols == 1 ? rows : cs};
        return out->ld <= INT_MAX;
    }
    return false;
}

#define T float
#define BLAS(name) cblas_s##name
#define OURS(name) aprt_##name##_f32
#include "gemm_type.h"

#define T double
#define BLAS(name) cblas_d##name
#define OURS(name) aprt_##name##_f64
#include "gemm_type.h"
