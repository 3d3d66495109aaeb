/* The same product as passes/solve/minplus.h with max in the place of plus: the least bottleneck. */
#include "passes/stage/dp.h"

static void minmax_plain(int64_t *out, const int64_t *a, const int64_t *m, const uint32_t *row, uint32_t n, uint32_t ld)
{
    for (uint32_t j = 0; j < ld; j++)
        out[j] = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t *line = m + (uint64_t)row[i] * ld;
        for (uint32_t j = 0; j < ld; j++) {
            int64_t c = a[i] > line[j] ? a[i] : line[j];
            out[j] = c < out[j] ? c : out[j];
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static void minmax_256(int64_t *out, const int64_t *a, const int64_t *m,
                                                       const uint32_t *row, uint32_t n, uint32_t ld)
{
    for (uint32_t j = 0; j < ld; j += 4) {
        __m256i best = _mm256_set1_epi64x(INT64_MAX);
        for (uint32_t i = 0; i < n; i++) {
            __m256i x = _mm256_set1_epi64x(a[i]);
            __m256i y = _mm256_loadu_si256((const __m256i *)(m + (uint64_t)row[i] * ld + j));
            __m256i most = _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi64(x, y));
            best = _mm256_blendv_epi8(best, most, _mm256_cmpgt_epi64(best, most));
        }
        _mm256_storeu_si256((__m256i *)(out + j), best);
    }
}
#endif

ap_minplus_fn *ap_minmax_get(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return minmax_256;
#endif
    return minmax_plain;
}
