/* SPDX-License-Identifier: MIT
 *
 * The variants of the matrix product, for gemm.c, which picks one, and for tests, which compare them: all give the
 * same bits (gemm.c says why). Arguments as in autopar_rt.h; m and n at least 1, k at least 0. */
#ifndef APRT_GEMM_INTERNAL_H
#define APRT_GEMM_INTERNAL_H

#include "autopar_rt.h"

#include <stdbool.h>

/* Terms in a chain of fma: see gemm.c. */
enum { APRT_GEMM_CHAIN = 256 };

#define APRT_GEMM_ARGS(T)                                                                                              \
    int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int64_t rsb, int64_t csb,       \
        int beta, T *c, int64_t rsc, aprt_after *after, const void *with

/* B in panels; m and n at least 1. */
#define APRT_GEMM_PANELS_ARGS(T)                                                                                       \
    int64_t m, int64_t n, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int beta, T *c, int64_t rsc,    \
        aprt_after *after, const void *with

typedef void aprt_gemm_fn_f32(APRT_GEMM_ARGS(float));
typedef void aprt_gemm_fn_f64(APRT_GEMM_ARGS(double));
typedef void aprt_gemm_panels_fn_f32(APRT_GEMM_PANELS_ARGS(float));
typedef void aprt_gemm_panels_fn_f64(APRT_GEMM_PANELS_ARGS(double));

typedef enum aprt_gemm_isa { APRT_GEMM_PORTABLE, APRT_GEMM_AVX2, APRT_GEMM_AVX512, APRT_GEMM_ISAS } aprt_gemm_isa;

typedef struct aprt_gemm_variant {
    const char *name;
    aprt_gemm_fn_f32 *f32;
    aprt_gemm_fn_f64 *f64;
    aprt_gemm_panels_fn_f32 *panels_f32;
    aprt_gemm_panels_fn_f64 *panels_f64;
    int32_t panel_bytes; /* width of a panel */
} aprt_gemm_variant;

/* The functions of a variant; the names are there even when the library was built for another kind of processor. */
const aprt_gemm_variant *aprt_gemm_get(aprt_gemm_isa isa);
/* Columns in a panel of this element type, on the processor at hand. */
int64_t aprt_gemm_panel(int32_t dtype);
/* Whether the processor at hand, and this build, have it. */
bool aprt_gemm_has(aprt_gemm_isa isa);

#ifdef __x86_64__
aprt_gemm_fn_f32 aprt_gemm_avx2_f32, aprt_gemm_avx512_f32;
aprt_gemm_fn_f64 aprt_gemm_avx2_f64, aprt_gemm_avx512_f64;
aprt_gemm_panels_fn_f32 aprt_gemm_panels_avx2_f32, aprt_gemm_panels_avx512_f32;
aprt_gemm_panels_fn_f64 aprt_gemm_panels_avx2_f64, aprt_gemm_panels_avx512_f64;
#endif

#endif
