/* SPDX-License-Identifier: MIT
 *
 * Convolution as it is defined: for each result a sum over kernel places and channels. For types and layouts that the
 * library does not take; sums of f32 and f64 run in f64, those of shorter floats in f32, integers wrap. */
#include "conv_internal.h"

#include <stdlib.h>

static bool next(int64_t *index, int32_t n, const int64_t *extent)
{
    for (int32_t d = n - 1; d >= 0; d--) {
        if (++index[d] < extent[d])
            return true;
        index[d] = 0;
    }
    return false;
}

/* n, g, m, then the plane; false when there is none. */
static bool result_extents(const aprt_conv *c, const int64_t turns[4], int64_t extent[APRT_MAX_RANK])
{
    extent[0] = turns[TURNS_N];
    extent[1] = turns[TURNS_G];
    extent[2] = turns[TURNS_M];
    for (int32_t d = 0; d < c->nspatial; d++)
        extent[3 + d] = c->dim[d].out;
    for (int32_t d = 0; d < c->nspatial + 3; d++)
        if (extent[d] < 1)
            return false;
    return true;
}

static int64_t offset_of(int32_t n, const int64_t *index, const int64_t *stride)
{
    int64_t at = 0;
    for (int32_t d = 0; d < n; d++)
        at += index[d] * stride[d];
    return at;
}

/* Where one place of the kernel lies in x and w, on top of what is there; false for a zero. */
static bool place_offsets(const aprt_conv *c, const int64_t *at, const int64_t *k, int64_t *x, int64_t *w)
{
    for (int32_t d = 0; d < c->nspatial; d++) {
        int64_t i = aprt_conv_meet(&c->dim[d], at[d], k[d]);
        if (i < 0)
            return false;
        *x += i * c->x[3 + d];
        *w += k[d] * c->w[3 + d];
    }
    return true;
}

static double step_f64(const aprt_conv_step *s, double y, double o)
{
    switch (s->op) {
    case APRT_CONV_RELU:
        return aprt_max_f64(y, 0);
    case APRT_CONV_ADD:
        return y + o;
    case APRT_CONV_MUL:
        return y * o;
    case APRT_CONV_MAX:
        return aprt_max_f64(y, o);
    case APRT_CONV_MIN:
        return aprt_min_f64(y, o);
    }
    return y;
}

/* T in memory, SUM in a register; steps are those of floats. */
#define PLAIN(NAME, T, SUM, LOAD, STORE)                                                                               \
    static SUM sum_##NAME(const aprt_conv *c, const int64_t turns[4], const int64_t *index, const T *x, const T *w)    \
    {                                                                                                                  \
        int64_t k[APRT_MAX_SPATIAL] = {0}, kernel[APRT_MAX_SPATIAL];                                                   \
        SUM sum = 0;                                                                                                   \
        for (int32_t d = 0; d < c->nspatial; d++)                                                                      \
            kernel[d] = c->dim[d].kernel;                                                                              \
        do {                                                                                                           \
            int64_t px = index[0] * c->x[0] + index[1] * c->x[1], pw = index[1] * c->w[0] + index[2] * c->w[1];        \
            if (!place_offsets(c, index + 3, k, &px, &pw))                                                             \
                continue;                                                                                              \
            for (int64_t i = 0; i < turns[TURNS_C]; i++)                                                               \
                sum += (SUM)LOAD(x[px + i * c->x[2]]) * (SUM)LOAD(w[pw + i * c->w[2]]);                                \
        } while (next(k, c->nspatial, kernel));                                                                        \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void plain_##NAME(const aprt_conv *c, const int64_t turns[4], const T *x, const T *w, T *y,                 \
                             const void *const *operand)                                                               \
    {                                                                                                                  \
        int64_t index[APRT_MAX_RANK] = {0}, extent[APRT_MAX_RANK];                                                     \
        int32_t n = c->nspatial + 3;                                                                                   \
        if (!result_extents(c, turns, extent))                                                                         \
            return;                                                                                                    \
        do {                                                                                                           \
            T *to = y + offset_of(n, index, c->y), before = *to;                                                       \
            *to = STORE(sum_##NAME(c, turns, index, x, w));                                                            \
            for (int32_t s = 0; s < c->nsteps; s++) {                                                                  \
                const aprt_conv_step *step = &c->step[s];                                                              \
                double o = step->number;                                                                               \
                if (step->other == APRT_CONV_OPERAND)                                                                  \
                    o = (double)LOAD(step->operand < 0                                                                 \
                                         ? before                                                                      \
                                         : ((const T *)operand[step->operand])[offset_of(n, index, step->stride)]);    \
                *to = STORE((SUM)step_f64(step, (double)LOAD(*to), o));                                                \
            }                                                                                                          \
        } while (next(index, n, extent));                                                                              \
    }

#define AS_IS(x) (x)
#define AS_F32(x) ((float)(x))
#define AS(T) (T)
PLAIN(f32, float, double, AS_IS, AS_F32)
PLAIN(f64, double, double, AS_IS, AS_IS)
PLAIN(f16, uint16_t, float, aprt_f16_to_f32, aprt_f32_to_f16)
PLAIN(bf16, uint16_t, float, aprt_bf16_to_f32, aprt_f32_to_bf16)
/* Integers: what is kept of the sum does not depend on its sign. */
PLAIN(8, uint8_t, uint64_t, AS_IS, AS(uint8_t))
PLAIN(16, uint16_t, uint64_t, AS_IS, AS(uint16_t))
PLAIN(32, uint32_t, uint64_t, AS_IS, AS(uint32_t))
PLAIN(64, uint64_t, uint64_t, AS_IS, AS_IS)

void aprt_conv_plain(const aprt_conv *c, const int64_t turns[4], const void *x, const void *w, void *y,
                     const void *const *operand)
{
    switch ((aprt_dtype)c->dtype) {
    case APRT_F32:
        plain_f32(c, turns, x, w, y, operand);
        return;
    case APRT_F64:
        plain_f64(c, turns, x, w, y, operand);
        return;
    case APRT_F16:
        plain_f16(c, turns, x, w, y, operand);
        return;
    case APRT_BF16:
        plain_bf16(c, turns, x, w, y, operand);
        return;
    case APRT_I8:
    case APRT_U8:
    case APRT_BOOL:
        plain_8(c, turns, x, w, y, operand);
        return;
    case APRT_I16:
    case APRT_U16:
        plain_16(c, turns, x, w, y, operand);
        return;
    case APRT_I32:
    case APRT_U32:
        plain_32(c, turns, x, w, y, operand);
        return;
    case APRT_I64:
    case APRT_U64:
        plain_64(c, turns, x, w, y, operand);
        return;
    }
}

/* One step on n channels that lie behind each other; those of its operand, or its number, are `by` apart. */
#define CHANNELS(formula)                                                                                              \
    for (int64_t m = 0; m < n; m++)                                                                                    \
    to[m] = (formula)
static void step_on_channels(aprt_conv_op op, int64_t n, float *to, const float *o, int64_t by)
{
    switch (op) {
    case APRT_CONV_RELU:
        CHANNELS(aprt_max_f32(to[m], 0));
        return;
    case APRT_CONV_ADD:
        CHANNELS(to[m] + o[m * by]);
        return;
    case APRT_CONV_MUL:
        CHANNELS(to[m] * o[m * by]);
        return;
    case APRT_CONV_MAX:
        CHANNELS(aprt_max_f32(to[m], o[m * by]));
        return;
    case APRT_CONV_MIN:
        CHANNELS(aprt_min_f32(to[m], o[m * by]));
        return;
    }
}

/* One step on the channels of one place. */
static void step_on_place(const aprt_conv *c, const int64_t turns[4], const aprt_conv_step *s, float *y, const float *o)
{
    float number = (float)s->number;
    for (int64_t g = 0; g < turns[TURNS_G]; g++) {
        if (!o)
            step_on_channels(s->op, turns[TURNS_M], y + g * c->m, &number, 0);
        else if (s->stride[2] == 1) /* said as a constant, so that loads are vectors */
            step_on_channels(s->op, turns[TURNS_M], y + g * c->m, o + g * s->stride[1], 1);
        else
            step_on_channels(s->op, turns[TURNS_M], y + g * c->m, o + g * s->stride[1], s->stride[2]);
    }
}

void aprt_conv_plain_steps(const aprt_conv *c, const int64_t turns[4], int32_t first, float *y,
                           const void *const *operand)
{
    int64_t index[APRT_MAX_RANK] = {0}, extent[APRT_MAX_RANK];
    int32_t n = c->nspatial + 3;
    if (first == c->nsteps || !result_extents(c, turns, extent))
        return;
    extent[1] = extent[2] = 1;
    do {
        float *to = y + offset_of(n, index, c->y);
        for (int32_t i = first; i < c->nsteps; i++) {
            const aprt_conv_step *s = &c->step[i];
            const float *o = s->other == APRT_CONV_OPERAND ? operand[s->operand] : NULL;
            step_on_place(c, turns, s, to, o ? o + offset_of(n, index, s->stride) : NULL);
        }
    } while (next(index, n, extent));
}
