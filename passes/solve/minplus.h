/* The inner loops of the solver on vectors of 64-bit integers, with the widest instructions that the processor has.
 * All of them give the same numbers. Vectors and the rows of matrices are padded to whole groups of AP_LANES. */
#ifndef AP_PASSES_SOLVE_MINPLUS_H
#define AP_PASSES_SOLVE_MINPLUS_H

#include <stdint.h>

#define AP_LANES 8u
/* What padding costs: far above every sum that counts, far below overflow. */
#define AP_PAD ((int64_t)1 << 58)

static inline uint32_t ap_padded(uint32_t n)
{
    return (n + AP_LANES - 1) / AP_LANES * AP_LANES;
}

/* out[j] = min over q < n of a[q] + m[row[q] * ld + j], for j < ld. */
typedef void ap_minplus_fn(int64_t *out, const int64_t *a, const int64_t *m, const uint32_t *row, uint32_t n,
                           uint32_t ld);
ap_minplus_fn *ap_minplus_get(void);

#endif
