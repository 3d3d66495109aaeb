/* Min-plus products of a vector and a matrix: see minplus.h. */
#include "passes/solve/minplus.h"

static void minplus_plain(int64_t *out, const int64_t *a, const int64_t *m, const uint32_t *row, uint32_t n,
                          uint32_t ld)
{
    for (uint32_t j = 0; j < ld; j++)
        out[j] = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t *line = m + (uint64_t)row[i] * ld;
        for (uint32_t j = 0; j < ld; j++) {
            int64_t c = a[i] + line[j];
            out[j] = c < out[j] ? c : out[j];
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Groups of 32 columns, then of 8, so that what has been found stays in registers. */
__attribute__((target("avx512f"))) static void minplus_512(int64_t *out, const int64_t *a, const int64_t *m,
                                                           const uint32_t *row, uint32_t n, uint32_t ld)
{
    uint32_t j = 0;
    for (; j + 32 <= ld; j += 32) {
        __m512i b0 = _mm512_set1_epi64(INT64_MAX), b1 = b0, b2 = b0, b3 = b0;
        for (uint32_t i = 0; i < n; i++) {
            const int64_t *line = m + (uint64_t)row[i] * ld + j;
            __m512i x = _mm512_set1_epi64(a[i]);
            b0 = _mm512_min_epi64(b0, _mm512_add_epi64(x, _mm512_loadu_si512(line)));
            b1 = _mm512_min_epi64(b1, _mm512_add_epi64(x, _mm512_loadu_si512(line + 8)));
            b2 = _mm512_min_epi64(b2, _mm512_add_epi64(x, _mm512_loadu_si512(line + 16)));
            b3 = _mm512_min_epi64(b3, _mm512_add_epi64(x, _mm512_loadu_si512(line + 24)));
        }
        _mm512_storeu_si512(out + j, b0);
        _mm512_storeu_si512(out + j + 8, b1);
        _mm512_storeu_si512(out + j + 16, b2);
        _mm512_storeu_si512(out + j + 24, b3);
    }
    for (; j + 16 <= ld; j += 16) {
        __m512i b0 = _mm512_set1_epi64(INT64_MAX), b1 = b0;
        for (uint32_t i = 0; i < n; i++) {
            const int64_t *line = m + (uint64_t)row[i] * ld + j;
            __m512i x = _mm512_set1_epi64(a[i]);
            b0 = _mm512_min_epi64(b0, _mm512_add_epi64(x, _mm512_loadu_si512(line)));
            b1 = _mm512_min_epi64(b1, _mm512_add_epi64(x, _mm512_loadu_si512(line + 8)));
        }
        _mm512_storeu_si512(out + j, b0);
        _mm512_storeu_si512(out + j + 8, b1);
    }
    for (; j < ld; j += 8) {
        __m512i b = _mm512_set1_epi64(INT64_MAX);
        for (uint32_t i = 0; i < n; i++) {
            const int64_t *line = m + (uint64_t)row[i] * ld + j;
            b = _mm512_min_epi64(b, _mm512_add_epi64(_mm512_set1_epi64(a[i]), _mm512_loadu_si512(line)));
        }
        _mm512_storeu_si512(out + j, b);
    }
}

__attribute__((target("avx2"))) static inline __m256i least_256(__m256i a, __m256i b)
{
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}

/* Groups of 16 columns, so that the sums of one column do not wait for each other, then of 8. */
__attribute__((target("avx2"))) static void minplus_256(int64_t *out, const int64_t *a, const int64_t *m,
                                                        const uint32_t *row, uint32_t n, uint32_t ld)
{
    uint32_t j = 0;
    for (; j + 16 <= ld; j += 16) {
        __m256i b0 = _mm256_set1_epi64x(INT64_MAX), b1 = b0, b2 = b0, b3 = b0;
        for (uint32_t i = 0; i < n; i++) {
            const __m256i *line = (const __m256i *)(m + (uint64_t)row[i] * ld + j);
            __m256i x = _mm256_set1_epi64x(a[i]);
            b0 = least_256(b0, _mm256_add_epi64(x, _mm256_loadu_si256(line)));
            b1 = least_256(b1, _mm256_add_epi64(x, _mm256_loadu_si256(line + 1)));
            b2 = least_256(b2, _mm256_add_epi64(x, _mm256_loadu_si256(line + 2)));
            b3 = least_256(b3, _mm256_add_epi64(x, _mm256_loadu_si256(line + 3)));
        }
        __m256i *to = (__m256i *)(out + j);
        _mm256_storeu_si256(to, b0);
        _mm256_storeu_si256(to + 1, b1);
        _mm256_storeu_si256(to + 2, b2);
        _mm256_storeu_si256(to + 3, b3);
    }
    for (; j < ld; j += 8) {
        __m256i b0 = _mm256_set1_epi64x(INT64_MAX), b1 = b0;
        for (uint32_t i = 0; i < n; i++) {
            __m256i x = _mm256_set1_epi64x(a[i]);
            const int64_t *line = m + (uint64_t)row[i] * ld + j;
            b0 = least_256(b0, _mm256_add_epi64(x, _mm256_loadu_si256((const __m256i *)line)));
            b1 = least_256(b1, _mm256_add_epi64(x, _mm256_loadu_si256((const __m256i *)(line + 4))));
        }
        _mm256_storeu_si256((__m256i *)(out + j), b0);
        _mm256_storeu_si256((__m256i *)(out + j + 4), b1);
    }
}
#endif

ap_minplus_fn *ap_minplus_get(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return minplus_512;
    if (__builtin_cpu_supports("avx2"))
        return minplus_256;
#endif
    return minplus_plain;
}
