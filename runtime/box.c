/* SPDX-License-Identifier: MIT
 *
 * Strided boxes: the shapes that exchanges and parameters move. A box is joined where its dimensions are adjacent on
 * both sides, so that most copies end as a few long runs. */
#include "internal.h"

void aprt_box_make(aprt_box *out, int32_t ndims, const int64_t *extent, const int64_t *a, const int64_t *b)
{
    int32_t n = 0;
    for (int32_t d = 0; d < ndims; d++) {
        if (extent[d] == 1)
            continue;
        if (n > 0 && out->a[n - 1] == a[d] * extent[d] && out->b[n - 1] == b[d] * extent[d]) {
            out->extent[n - 1] *= extent[d];
            out->a[n - 1] = a[d];
            out->b[n - 1] = b[d];
            continue;
        }
        out->extent[n] = extent[d];
        out->a[n] = a[d];
        out->b[n] = b[d];
        n++;
    }
    if (n == 0) {
        out->extent[0] = out->a[0] = out->b[0] = 1;
        n = 1;
    }
    out->ndims = n;
}

void aprt_counts_apply(int32_t n, const aprt_count *count, const int64_t *coordinate, int64_t peer, int64_t *extent)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t left = count[i].value.base - count[i].per_peer * peer;
        for (int a = 0; a < APRT_MAX_AXES; a++)
            left += count[i].value.step[a] * coordinate[a];
        extent[count[i].dim] = aprt_clamp(left, 0, extent[count[i].dim]);
    }
}

int64_t aprt_box_count(const aprt_box *box)
{
    int64_t count = 1;
    for (int32_t d = 0; d < box->ndims; d++)
        count *= box->extent[d];
    return count;
}

void aprt_box_walk(const aprt_box *box, int64_t first, int64_t last, aprt_box_run *run, void *user)
{
    if (first >= last)
        return;
    int32_t inner = box->ndims - 1;
    int64_t length = box->extent[inner], sa = box->a[inner], sb = box->b[inner];
    for (int64_t row = first / length; row * length < last; row++) {
        int64_t a = 0, b = 0, rest = row;
        for (int32_t d = inner; d-- > 0;) {
            int64_t i = rest % box->extent[d];
            rest /= box->extent[d];
            a += i * box->a[d];
            b += i * box->b[d];
        }
        int64_t from = first > row * length ? first - row * length : 0;
        int64_t to = last < (row + 1) * length ? last - row * length : length;
        run(user, a + from * sa, b + from * sb, sa, sb, to - from);
    }
}

typedef struct copy_job {
    const char *src;
    char *dst;
    int32_t size;
} copy_job;

static void copy_strided(const char *src, int64_t sa, char *dst, int64_t sb, int64_t count, int32_t size)
{
    /* constant sizes, so that memcpy becomes a load and a store */
    switch (size) {
    case 1:
        for (int64_t i = 0; i < count; i++)
            dst[i * sb] = src[i * sa];
        break;
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 2 * i * sb, src + 2 * i * sa, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 4 * i * sb, src + 4 * i * sa, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy(dst + 8 * i * sb, src + 8 * i * sa, 8);
    }
}

static void copy_run(void *user, int64_t a, int64_t b, int64_t sa, int64_t sb, int64_t count)
{
    const copy_job *job = user;
    const char *src = job->src + a * job->size;
    char *dst = job->dst + b * job->size;
    if (sa == 1 && sb == 1)
        memcpy(dst, src, (size_t)(count * job->size));
    else
        copy_strided(src, sa, dst, sb, count, job->size);
}

void aprt_box_copy(const aprt_box *box, int64_t first, int64_t last, int32_t size, const void *src, void *dst)
{
    copy_job job = {src, dst, size};
    aprt_box_walk(box, first, last, copy_run, &job);
}
