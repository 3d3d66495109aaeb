/* SPDX-License-Identifier: MIT
 *
 * The first k of n elements in order, and where they were. A heap of the k best positions so far, the last of them at
 * its root, is kept in the list of positions itself; at the end it is sorted there. The order is total (equals by
 * position, NaN above all numbers), so the result does not depend on the method. */
#include "autopar_rt.h"

enum { BLOCK = 32 };

#define SAME(x) (x)
#define LARGER(x, y) ((x) > (y))
#define LARGER_FLOAT(x, y) (((x) > (y)) | (((x) != (x)) & ((y) == (y))))

/* name, stored type, type compared, conversion, comparison */
#define TOPK(name, T, A, LOAD, ABOVE)                                                                                  \
    typedef struct row_##name {                                                                                        \
        const T *x;                                                                                                    \
        int64_t sx, sat;                                                                                               \
        int64_t *at;                                                                                                   \
        int32_t largest;                                                                                               \
    } row_##name;                                                                                                      \
    static int before_##name(const row_##name *r, int64_t i, int64_t j)                                                \
    {                                                                                                                  \
        A a = LOAD(r->x[i * r->sx]), b = LOAD(r->x[j * r->sx]);                                                        \
        int above = ABOVE(a, b), below = ABOVE(b, a);                                                                  \
        if (above != below)                                                                                            \
            return r->largest ? above : below;                                                                         \
        return i < j;                                                                                                  \
    }                                                                                                                  \
    static void sift_##name(const row_##name *r, int64_t size, int64_t root)                                           \
    {                                                                                                                  \
        int64_t *at = r->at, s = r->sat, child;                                                                        \
        for (; (child = 2 * root + 1) < size; root = child) {                                                          \
            if (child + 1 < size && before_##name(r, at[child * s], at[(child + 1) * s]))                              \
                child++;                                                                                               \
            if (!before_##name(r, at[root * s], at[child * s]))                                                        \
                return;                                                                                                \
            int64_t moved = at[root * s];                                                                              \
            at[root * s] = at[child * s];                                                                              \
            at[child * s] = moved;                                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    /* The next element from i on that comes before `last`, which stands at an earlier position; n: none. Blocks of    \
     * neighbours are looked at together. */                                                                           \
    static int64_t skip_##name(const row_##name *r, int64_t i, int64_t n, A last)                                      \
    {                                                                                                                  \
        const T *x = r->x;                                                                                             \
        for (; r->sx == 1 && i + BLOCK <= n; i += BLOCK) {                                                             \
            int any = 0;                                                                                               \
            for (int j = 0; j < BLOCK; j++) {                                                                          \
                A a = LOAD(x[i + j]);                                                                                  \
                any |= (r->largest ? ABOVE(a, last) : ABOVE(last, a));                                                 \
            }                                                                                                          \
            if (any)                                                                                                   \
                break;                                                                                                 \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            A a = LOAD(x[i * r->sx]);                                                                                  \
            if (r->largest ? ABOVE(a, last) : ABOVE(last, a))                                                          \
                break;                                                                                                 \
        }                                                                                                              \
        return i;                                                                                                      \
    }                                                                                                                  \
    void aprt_topk_##name(int64_t n, int64_t k, int32_t largest, const T *x, int64_t sx, T *value, int64_t sv,         \
                          int64_t *at, int64_t sat)                                                                    \
    {                                                                                                                  \
        row_##name r = {x, sx, sat, at, largest};                                                                      \
        for (int64_t i = 0; i < k; i++)                                                                                \
            at[i * sat] = i;                                                                                           \
        for (int64_t i = k / 2; i-- > 0;)                                                                              \
            sift_##name(&r, k, i);                                                                                     \
        A last = LOAD(x[at[0] * sx]);                                                                                  \
        for (int64_t i = k; i < n; i++) {                                                                              \
            i = skip_##name(&r, i, n, last);                                                                           \
            if (i == n)                                                                                                \
                break;                                                                                                 \
            at[0] = i;                                                                                                 \
            sift_##name(&r, k, 0);                                                                                     \
            last = LOAD(x[at[0] * sx]);                                                                                \
        }                                                                                                              \
        for (int64_t i = k - 1; i > 0; i--) {                                                                          \
            int64_t moved = at[0];                                                                                     \
            at[0] = at[i * sat];                                                                                       \
            at[i * sat] = moved;                                                                                       \
            sift_##name(&r, i, 0);                                                                                     \
        }                                                                                                              \
        for (int64_t i = 0; i < k; i++)                                                                                \
            value[i * sv] = x[at[i * sat] * sx];                                                                       \
    }

TOPK(f32, float, float, SAME, LARGER_FLOAT)
TOPK(f64, double, double, SAME, LARGER_FLOAT)
TOPK(f16, uint16_t, float, aprt_f16_to_f32, LARGER_FLOAT)
TOPK(bf16, uint16_t, float, aprt_bf16_to_f32, LARGER_FLOAT)
TOPK(i8, int8_t, int8_t, SAME, LARGER)
TOPK(u8, uint8_t, uint8_t, SAME, LARGER)
TOPK(i16, int16_t, int16_t, SAME, LARGER)
TOPK(u16, uint16_t, uint16_t, SAME, LARGER)
TOPK(i32, int32_t, int32_t, SAME, LARGER)
TOPK(u32, uint32_t, uint32_t, SAME, LARGER)
TOPK(i64, int64_t, int64_t, SAME, LARGER)
TOPK(u64, uint64_t, uint64_t, SAME, LARGER)
