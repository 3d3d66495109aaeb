/* SPDX-License-Identifier: MIT
 *
 * Matrix products with AVX2 and FMA: 16 registers of 32 bytes, so six rows by two vectors, the two vectors of B and
 * one or two broadcasts. The rest of the library needs no such processor. */
#include "gemm_internal.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#define ROWS 6
#define WIDE4 2
#define KEEP_TILES(X) X(4, 1) X(5, 1) X(6, 1) X(4, 2) X(5, 2) X(6, 2)
#define TILES(X) KEEP_TILES(X) X(1, 1) X(2, 1) X(3, 1) X(1, 2) X(2, 2) X(3, 2) X(1, 4) X(2, 4)

/* Half g of x[i] holds four elements of row 4g + i; within the halves, a 4x4 matrix over i is transposed. */
TARGET static inline __attribute__((always_inline)) void turn4_f32(const float *src, const int64_t *offset, float *dst,
                                                                   int64_t ld)
{
#define ROW(r) _mm_loadu_ps(src + offset[r])
#define GATHER(i) _mm256_insertf128_ps(_mm256_castps128_ps256(ROW(i)), ROW(i + 4), 1)
    __m256 x0 = GATHER(0), x1 = GATHER(1), x2 = GATHER(2), x3 = GATHER(3);
    __m256 a = _mm256_unpacklo_ps(x0, x1), b = _mm256_unpacklo_ps(x2, x3);
    __m256 c = _mm256_unpackhi_ps(x0, x1), d = _mm256_unpackhi_ps(x2, x3);
    _mm256_storeu_ps(dst, _mm256_shuffle_ps(a, b, 0x44));
    _mm256_storeu_ps(dst + ld, _mm256_shuffle_ps(a, b, 0xee));
    _mm256_storeu_ps(dst + 2 * ld, _mm256_shuffle_ps(c, d, 0x44));
    _mm256_storeu_ps(dst + 3 * ld, _mm256_shuffle_ps(c, d, 0xee));
#undef GATHER
#undef ROW
}

/* A square: 4x4 in the lanes first, where lane g of q<i>_<s> gets rows 4i to 4i + 3 of column 4g + s; then 2x2 of
 * lanes. */
TARGET static inline __attribute__((always_inline)) void turn_all_f32(const float *src, const int64_t *offset,
                                                                      float *dst, int64_t ld)
{
#define ROW(r) _mm256_loadu_ps(src + offset[r])
#define ROWS4(i)                                                                                                       \
    const __m256 x##i##_0 = ROW(4 * i), x##i##_1 = ROW(4 * i + 1), x##i##_2 = ROW(4 * i + 2),                          \
                 x##i##_3 = ROW(4 * i + 3);                                                                            \
    const __m256 a##i = _mm256_unpacklo_ps(x##i##_0, x##i##_1), b##i = _mm256_unpacklo_ps(x##i##_2, x##i##_3);         \
    const __m256 c##i = _mm256_unpackhi_ps(x##i##_0, x##i##_1), d##i = _mm256_unpackhi_ps(x##i##_2, x##i##_3);         \
    const __m256 q##i##_0 = _mm256_shuffle_ps(a##i, b##i, 0x44), q##i##_1 = _mm256_shuffle_ps(a##i, b##i, 0xee);       \
    const __m256 q##i##_2 = _mm256_shuffle_ps(c##i, d##i, 0x44), q##i##_3 = _mm256_shuffle_ps(c##i, d##i, 0xee);
#define LANES2(s)                                                                                                      \
    _mm256_storeu_ps(dst + s * ld, _mm256_permute2f128_ps(q0_##s, q1_##s, 0x20));                                      \
    _mm256_storeu_ps(dst + (4 + s) * ld, _mm256_permute2f128_ps(q0_##s, q1_##s, 0x31));
    ROWS4(0) ROWS4(1) LANES2(0) LANES2(1) LANES2(2) LANES2(3)
#undef LANES2
#undef ROWS4
#undef ROW
}

/* Without shuffles: rare. */
TARGET static inline __attribute__((always_inline)) void turn4_f64(const double *src, const int64_t *offset,
                                                                   double *dst, int64_t ld)
{
    for (int c = 0; c < 4; c++)
        for (int r = 0; r < 4; r++)
            dst[c * ld + r] = src[offset[r] + c];
}

TARGET static inline __attribute__((always_inline)) void turn_all_f64(const double *src, const int64_t *offset,
                                                                      double *dst, int64_t ld)
{
    for (int c = 0; c < 4; c += 4)
        turn4_f64(src + c, offset, dst + c * ld, ld);
}

/* All bits set in the first `count` elements. */
TARGET static inline __attribute__((always_inline)) __m256i first_f32(int64_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count > 8 ? 8 : (int)count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TARGET static inline __attribute__((always_inline)) __m256i first_f64(int64_t count)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

#define T float
#define NAME(x) x##_avx2_f32
#define V __m256
#define LANES 8
#define MASK __m256i
#define ZERO _mm256_setzero_ps()
#define SET _mm256_set1_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define FMA _mm256_fmadd_ps
#define FIRST first_f32
#define LOAD_FIRST _mm256_maskload_ps
#define STORE_FIRST _mm256_maskstore_ps
#define TURN turn4_f32
#define TURN_ALL turn_all_f32
#include "gemm_tile.h"
#undef T
#undef NAME
#undef V
#undef LANES
#undef MASK
#undef ZERO
#undef SET
#undef LOAD
#undef STORE
#undef FMA
#undef FIRST
#undef LOAD_FIRST
#undef STORE_FIRST
#undef TURN
#undef TURN_ALL

#define T double
#define NAME(x) x##_avx2_f64
#define V __m256d
#define LANES 4
#define MASK __m256i
#define ZERO _mm256_setzero_pd()
#define SET _mm256_set1_pd
#define LOAD _mm256_loadu_pd
#define STORE _mm256_storeu_pd
#define FMA _mm256_fmadd_pd
#define FIRST first_f64
#define LOAD_FIRST _mm256_maskload_pd
#define STORE_FIRST _mm256_maskstore_pd
#define TURN turn4_f64
#define TURN_ALL turn_all_f64
#include "gemm_tile.h"

#else
typedef int no_x86;
#endif
