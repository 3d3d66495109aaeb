/* SPDX-License-Identifier: MIT
 *
 * What the files of the convolution library share. It calls nothing of the runtime but what autopar_rt.h declares, so
 * that it goes with the static and with the shared one. */
#ifndef APRT_CONV_INTERNAL_H
#define APRT_CONV_INTERNAL_H

#include "autopar_rt.h"

#include <stdbool.h>

enum { TURNS_N, TURNS_G, TURNS_M, TURNS_C };

/* Plain loops, for any type, strides and turns; and the steps alone, on results that are there (f32). */
void aprt_conv_plain(const aprt_conv *c, const int64_t turns[4], const void *x, const void *w, void *y,
                     const void *const *operand);
void aprt_conv_plain_steps(const aprt_conv *c, const int64_t turns[4], int32_t first, float *y,
                           const void *const *operand);

/* One element per channel, and so the same for every n and place? */
static inline bool aprt_conv_is_per_channel(const aprt_conv *c, const aprt_conv_step *s)
{
    bool is = s->other == APRT_CONV_OPERAND && s->stride[0] == 0;
    for (int32_t d = 0; d < c->nspatial; d++)
        is = is && s->stride[3 + d] == 0;
    return is;
}

/* The element of the operand that result `at` and kernel element `k` meet, or -1: a zero. */
static inline int64_t aprt_conv_meet(const aprt_conv_dim *d, int64_t at, int64_t k)
{
    int64_t i = at * d->stride + (d->flip ? d->kernel - 1 - k : k) * d->dilate - d->lo;
    return i < 0 || i % d->hole || i / d->hole >= d->in ? -1 : i / d->hole;
}

#endif
