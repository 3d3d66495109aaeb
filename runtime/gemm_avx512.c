/* SPDX-License-Identifier: MIT
 *
 * Matrix products with AVX-512: 32 registers of 64 bytes, so 14 rows by two vectors, the two vectors of B and one
 * broadcast. The rest of the library needs no such processor. */
#include "gemm_internal.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f")))
#define ROWS 14
#define WIDE4 5
#define LOW_TILES(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv)
#define HIGH_TILES(X, nv) X(8, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv) X(13, nv) X(14, nv)
#define KEEP_TILES(X) HIGH_TILES(X, 1) HIGH_TILES(X, 2)
#define TILES(X) KEEP_TILES(X) LOW_TILES(X, 1) LOW_TILES(X, 2) LOW_TILES(X, 4) X(6, 1) X(6, 2) X(7, 1) X(7, 2)

/* Lane g of x[i] holds four elements of row 4g + i; within the lanes, a 4x4 matrix over i is transposed. */
TARGET static inline __attribute__((always_inline)) void turn4_f32(const float *src, const int64_t *offset, float *dst,
                                                                   int64_t ld)
{
#define ROW(r) _mm_loadu_ps(src + offset[r])
#define GATHER(i)                                                                                                      \
    _mm512_insertf32x4(                                                                                                \
        _mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(ROW(i)), ROW(i + 4), 1), ROW(i + 8), 2),          \
        ROW(i + 12), 3)
    __m512 x0 = GATHER(0), x1 = GATHER(1), x2 = GATHER(2), x3 = GATHER(3);
    __m512 a = _mm512_unpacklo_ps(x0, x1), b = _mm512_unpacklo_ps(x2, x3);
    __m512 c = _mm512_unpackhi_ps(x0, x1), d = _mm512_unpackhi_ps(x2, x3);
    _mm512_storeu_ps(dst, _mm512_shuffle_ps(a, b, 0x44));
    _mm512_storeu_ps(dst + ld, _mm512_shuffle_ps(a, b, 0xee));
    _mm512_storeu_ps(dst + 2 * ld, _mm512_shuffle_ps(c, d, 0x44));
    _mm512_storeu_ps(dst + 3 * ld, _mm512_shuffle_ps(c, d, 0xee));
#undef GATHER
#undef ROW
}

/* A square: 4x4 in the lanes first, where lane g of q<i>_<s> gets rows 4i to 4i + 3 of column 4g + s; then 4x4 of
 * lanes. */
TARGET static inline __attribute__((always_inline)) void turn_all_f32(const float *src, const int64_t *offset,
                                                                      float *dst, int64_t ld)
{
#define ROW(r) _mm512_loadu_ps(src + offset[r])
#define ROWS4(i)                                                                                                       \
    const __m512 x##i##_0 = ROW(4 * i), x##i##_1 = ROW(4 * i + 1), x##i##_2 = ROW(4 * i + 2),                          \
                 x##i##_3 = ROW(4 * i + 3);                                                                            \
    const __m512 a##i = _mm512_unpacklo_ps(x##i##_0, x##i##_1), b##i = _mm512_unpacklo_ps(x##i##_2, x##i##_3);         \
    const __m512 c##i = _mm512_unpackhi_ps(x##i##_0, x##i##_1), d##i = _mm512_unpackhi_ps(x##i##_2, x##i##_3);         \
    const __m512 q##i##_0 = _mm512_shuffle_ps(a##i, b##i, 0x44), q##i##_1 = _mm512_shuffle_ps(a##i, b##i, 0xee);       \
    const __m512 q##i##_2 = _mm512_shuffle_ps(c##i, d##i, 0x44), q##i##_3 = _mm512_shuffle_ps(c##i, d##i, 0xee);
#define LANES4(s)                                                                                                      \
    {                                                                                                                  \
        const __m512 e = _mm512_shuffle_f32x4(q0_##s, q1_##s, 0x44), f = _mm512_shuffle_f32x4(q2_##s, q3_##s, 0x44);   \
        const __m512 g = _mm512_shuffle_f32x4(q0_##s, q1_##s, 0xee), h = _mm512_shuffle_f32x4(q2_##s, q3_##s, 0xee);   \
        _mm512_storeu_ps(dst + s * ld, _mm512_shuffle_f32x4(e, f, 0x88));                                              \
        _mm512_storeu_ps(dst + (4 + s) * ld, _mm512_shuffle_f32x4(e, f, 0xdd));                                        \
        _mm512_storeu_ps(dst + (8 + s) * ld, _mm512_shuffle_f32x4(g, h, 0x88));                                        \
        _mm512_storeu_ps(dst + (12 + s) * ld, _mm512_shuffle_f32x4(g, h, 0xdd));                                       \
    }
    ROWS4(0) ROWS4(1) ROWS4(2) ROWS4(3) LANES4(0) LANES4(1) LANES4(2) LANES4(3)
#undef LANES4
#undef ROWS4
#undef ROW
}

/* Without shuffles: rare. */
TARGET static inline __attribute__((always_inline)) void turn4_f64(const double *src, const int64_t *offset,
                                                                   double *dst, int64_t ld)
{
    for (int c = 0; c < 4; c++)
        for (int r = 0; r < 8; r++)
            dst[c * ld + r] = src[offset[r] + c];
}

TARGET static inline __attribute__((always_inline)) void turn_all_f64(const double *src, const int64_t *offset,
                                                                      double *dst, int64_t ld)
{
    for (int c = 0; c < 8; c += 4)
        turn4_f64(src + c, offset, dst + c * ld, ld);
}

#define T float
#define NAME(x) x##_avx512_f32
#define V __m512
#define LANES 16
#define MASK __mmask16
#define ZERO _mm512_setzero_ps()
#define SET _mm512_set1_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define FMA _mm512_fmadd_ps
#define FIRST(count) (__mmask16)((count) >= 16 ? 0xffffu : (1u << (count)) - 1u)
#define LOAD_FIRST(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define STORE_FIRST _mm512_mask_storeu_ps
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
#define NAME(x) x##_avx512_f64
#define V __m512d
#define LANES 8
#define MASK __mmask8
#define ZERO _mm512_setzero_pd()
#define SET _mm512_set1_pd
#define LOAD _mm512_loadu_pd
#define STORE _mm512_storeu_pd
#define FMA _mm512_fmadd_pd
#define FIRST(count) (__mmask8)((count) >= 8 ? 0xffu : (1u << (count)) - 1u)
#define LOAD_FIRST(p, mask) _mm512_maskz_loadu_pd(mask, p)
#define STORE_FIRST _mm512_mask_storeu_pd
#define TURN turn4_f64
#define TURN_ALL turn_all_f64
#include "gemm_tile.h"

#else
typedef int no_x86;
#endif
