/* SPDX-License-Identifier: MIT
 *
 * Folding the contributions of several ranks, in rank order. Elements are gathered in blocks so that f16 and bf16 are
 * rounded once, after the last contribution, and strided sources cost one pass each. */
#include "internal.h"

enum { BLOCK = 512 };

typedef struct fold_job {
    aprt_fold fold;
    int32_t nsrc;
    const void *const *src;
    void *dst;
} fold_job;

#define SAME(x) (x)
#define ADD_FLOAT(x, y) ((x) + (y))

/* name of the function, stored type, type inside the fold, both conversions, suffix of max and min, the sum */
#define FOLD(name, T, A, LOAD, STORE, s, ADD)                                                                          \
    static void fold_##name(void *user, int64_t a, int64_t b, int64_t sa, int64_t sb, int64_t count)                   \
    {                                                                                                                  \
        const fold_job *job = user;                                                                                    \
        for (int64_t at = 0; at < count; at += BLOCK) {                                                                \
            int64_t n = count - at < BLOCK ? count - at : BLOCK;                                                       \
            A acc[BLOCK];                                                                                              \
            T *dst = (T *)job->dst + b + at * sb;                                                                      \
            for (int32_t p = 0; p < job->nsrc; p++) {                                                                  \
                const T *src = (const T *)job->src[p] + a + at * sa;                                                   \
                if (p == 0)                                                                                            \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        acc[i] = LOAD(src[i * sa]);                                                                    \
                else if (job->fold == APRT_FOLD_SUM)                                                                   \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        acc[i] = ADD(acc[i], LOAD(src[i * sa]));                                                       \
                else if (job->fold == APRT_FOLD_MAX)                                                                   \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        acc[i] = aprt_max_##s(acc[i], LOAD(src[i * sa]));                                              \
                else                                                                                                   \
                    for (int64_t i = 0; i < n; i++)                                                                    \
                        acc[i] = aprt_min_##s(acc[i], LOAD(src[i * sa]));                                              \
            }                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                            \
                dst[i * sb] = STORE(acc[i]);                                                                           \
        }                                                                                                              \
    }

FOLD(f32, float, float, SAME, SAME, f32, ADD_FLOAT)
FOLD(f64, double, double, SAME, SAME, f64, ADD_FLOAT)
FOLD(f16, uint16_t, float, aprt_f16_to_f32, aprt_f32_to_f16, f32, ADD_FLOAT)
FOLD(bf16, uint16_t, float, aprt_bf16_to_f32, aprt_f32_to_bf16, f32, ADD_FLOAT)
FOLD(i8, int8_t, int8_t, SAME, SAME, i8, aprt_add_i8)
FOLD(u8, uint8_t, uint8_t, SAME, SAME, u8, aprt_add_u8)
FOLD(i16, int16_t, int16_t, SAME, SAME, i16, aprt_add_i16)
FOLD(u16, uint16_t, uint16_t, SAME, SAME, u16, aprt_add_u16)
FOLD(i32, int32_t, int32_t, SAME, SAME, i32, aprt_add_i32)
FOLD(u32, uint32_t, uint32_t, SAME, SAME, u32, aprt_add_u32)
FOLD(i64, int64_t, int64_t, SAME, SAME, i64, aprt_add_i64)
FOLD(u64, uint64_t, uint64_t, SAME, SAME, u64, aprt_add_u64)

static aprt_box_run *fold_of(int32_t dtype)
{
    switch (dtype) {
    case APRT_F32:
        return fold_f32;
    case APRT_F64:
        return fold_f64;
    case APRT_F16:
        return fold_f16;
    case APRT_BF16:
        return fold_bf16;
    case APRT_I8:
        return fold_i8;
    case APRT_I16:
        return fold_i16;
    case APRT_U16:
        return fold_u16;
    case APRT_I32:
        return fold_i32;
    case APRT_U32:
        return fold_u32;
    case APRT_I64:
        return fold_i64;
    case APRT_U64:
        return fold_u64;
    default: /* U8, and BOOL as 0 and 1 */
        return fold_u8;
    }
}

void aprt_fold_run(const aprt_box *box, int64_t first, int64_t last, int32_t dtype, aprt_fold fold, int32_t nsrc,
                   const void *const *src, void *dst)
{
    fold_job job = {fold, nsrc, src, dst};
    aprt_box_walk(box, first, last, fold_of(dtype), &job);
}
