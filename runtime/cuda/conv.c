/* SPDX-License-Identifier: MIT
 *
 * Convolutions: by cuDNN where numbers are floats and spatial dimensions no more than three, else by a kernel of our
 * own. cuDNN knows no other zeros before than behind, no holes and no kernels that are read backwards, so
 *
 *   - an operand with holes and a kernel that takes every place is a gradient to cuDNN (conv_library.c); what its
 *     results have at the borders and we do not, or the other way round, is sorted out when steps follow;
 *   - else an operand with unequal zeros, holes, or channels at distances that cuDNN has no word for is copied into a
 *     place of its own, zeros included;
 *   - kernels are turned round when weights are put into order.
 *
 * What cuDNN refuses as it lies (channels innermost have rules of their own) it gets in a copy, then in planes.
 *
 * A slot keeps how its convolution is done, made for the extents of the rank, and the weights in order. The last slot
 * is what they share: places for operands and for sums, each as large as the largest needs it. Steps of the form
 * [+ vector of channels] [+ whole value] [relu] go with a forward convolution; others follow by a kernel. */
#include "conv.h"

#include <limits.h>
#include <stdlib.h>

typedef enum place { PLACE_OPERAND, PLACE_SUMS, PLACES } place;

typedef struct shared {
    char *at[PLACES];
    int64_t bytes[PLACES];
} shared;

/* ---- what cuDNN takes ---- */

static bool is_float(int32_t dtype)
{
    return dtype == APRT_F32 || dtype == APRT_F64 || dtype == APRT_F16 || dtype == APRT_BF16;
}

static bool library_may(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    bool may = is_float(c->dtype) && c->nspatial <= CONV_DNN_SPATIAL && s->turns[TURNS_C] > 0;
    for (int32_t i = 0; i < c->nspatial; i++)
        may = may && c->dim[i].kernel > 0 && c->dim[i].in > 0;
    return may;
}

static int64_t reach_of(const aprt_conv_dim *d)
{
    return (d->kernel - 1) * d->dilate + 1;
}

/* An operand with holes, each place of which the kernel takes in turn. */
static bool is_gradient(const aprt_conv *c)
{
    bool holes = false;
    for (int32_t i = 0; i < c->nspatial; i++) {
        if (c->dim[i].stride != 1)
            return false;
        holes = holes || c->dim[i].hole > 1;
    }
    return holes;
}

/* As many zeros behind as before give the results that are wanted. */
static bool is_even(const aprt_conv_dim *d)
{
    const int64_t have = d->in + 2 * d->lo - reach_of(d);
    return d->hole <= 1 && d->lo >= 0 && have >= 0 && have / d->stride + 1 == d->out;
}

static void forward_windows(conv_slot *s)
{
    const aprt_conv *c = s->c;
    bool even = true;
    for (int32_t i = 0; i < c->nspatial; i++)
        even = even && is_even(&c->dim[i]);
    s->copied = !even;
    for (int32_t i = 0; i < c->nspatial; i++) {
        const aprt_conv_dim *d = &c->dim[i];
        s->window[i] = even ? (conv_window){d->in, d->out, d->lo, d->stride}
                            : (conv_window){(d->out - 1) * d->stride + reach_of(d), d->out, 0, d->stride};
        s->sums.shift[i] = 0;
    }
}

/* Element i of the operand and element k of the kernel meet in result i*hole + k*dilate - (reach - 1 - lo). */
static void backward_windows(conv_slot *s)
{
    s->copied = s->apart = false;
    for (int32_t i = 0; i < s->c->nspatial; i++) {
        const aprt_conv_dim *d = &s->c->dim[i];
        const int64_t reach = reach_of(d), pad = reach - 1 - d->lo, have = d->out + 2 * pad - reach;
        const bool exact = pad >= 0 && have >= 0 && have / d->hole + 1 == d->in;
        s->window[i] = exact ? (conv_window){d->in, d->out, pad, d->hole}
                             : (conv_window){d->in, (d->in - 1) * d->hole + reach, 0, d->hole};
        s->sums.shift[i] = exact ? 0 : pad;
        s->apart = s->apart || !exact;
    }
}

/* ---- where it lies ---- */

static bool one_stride(const int64_t *stride, int64_t g, int64_t channels)
{
    return g == 1 || channels == 1 || stride[1] == channels * stride[2];
}

/* No two elements at one place: cuDNN has no strides of zero. */
static bool all_apart(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    bool apart = (s->turns[TURNS_N] == 1 || c->x[0] > 0) && (s->turns[TURNS_G] == 1 || c->x[1] > 0) &&
                 (s->turns[TURNS_C] == 1 || c->x[2] > 0);
    for (int32_t i = 0; i < c->nspatial; i++)
        apart = apart && (c->dim[i].in == 1 || c->x[3 + i] > 0);
    return apart;
}

static bool channels_innermost(const conv_slot *s)
{
    const int64_t g = s->turns[TURNS_G], c = s->turns[TURNS_C], m = s->turns[TURNS_M];
    return g * c > 1 ? conv_channel_stride(s, s->c->x, c) == 1 : g * m > 1 && conv_channel_stride(s, s->c->y, m) == 1;
}

/* Strides without gaps, channels where `last` says; false if there are too many bytes. */
static bool order(const conv_slot *s, bool result, int64_t *stride, int64_t *bytes)
{
    const aprt_conv *c = s->c;
    const int64_t channels = s->turns[result ? TURNS_M : TURNS_C];
    int64_t at = 1;
    bool fits = true;
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t i = c->nspatial; i-- > 0 && turn == (s->last ? 1 : 0);) {
            stride[3 + i] = at;
            fits = fits && aprt_mul(at, result ? s->window[i].out : s->window[i].in, &at);
        }
        if (turn == (s->last ? 0 : 1)) {
            stride[2] = at;
            fits = fits && aprt_mul(at, channels, &at);
            stride[1] = at;
            fits = fits && aprt_mul(at, s->turns[TURNS_G], &at);
        }
    }
    stride[0] = at;
    return fits && aprt_mul(at, s->turns[TURNS_N], &at) && aprt_mul(at, aprt_dtype_bytes(c->dtype), bytes);
}

static bool small(int64_t x)
{
    return x >= 0 && x <= INT_MAX;
}

/* cuDNN's numbers are of 32 bits. */
static bool all_small(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    bool all = small(s->turns[TURNS_G] * s->turns[TURNS_M]) && small(s->turns[TURNS_G] * s->turns[TURNS_C]);
    for (int32_t i = 0; i < c->nspatial; i++) {
        const conv_window *w = &s->window[i];
        all = all && small(w->in) && small(w->out) && small(w->pad) && small(w->stride) && small(c->dim[i].kernel) &&
              small(c->dim[i].dilate);
    }
    for (int32_t i = 0; i < c->nspatial + 3; i++)
        all = all && small(s->x[i]) && small(s->sums.stride[i]);
    return all && small(s->turns[TURNS_N]);
}

/* ---- steps ---- */

/* One number per channel, without gaps. */
static bool is_bias(const conv_slot *s, const aprt_conv_step *step)
{
    const aprt_conv *c = s->c;
    bool is =
        step->op == APRT_CONV_ADD && step->other == APRT_CONV_OPERAND && step->operand >= 0 && step->stride[0] == 0;
    for (int32_t i = 0; i < c->nspatial; i++)
        is = is && step->stride[3 + i] == 0;
    return is && (s->turns[TURNS_M] == 1 || step->stride[2] == 1) &&
           (s->turns[TURNS_G] == 1 || step->stride[1] == s->turns[TURNS_M]);
}

/* A value that lies as the result does, or what is there. */
static bool is_whole(const conv_slot *s, const aprt_conv_step *step)
{
    return step->op == APRT_CONV_ADD && step->other == APRT_CONV_OPERAND &&
           (step->operand < 0 ||
            memcmp(step->stride, s->c->y, ((size_t)s->c->nspatial + 3) * sizeof *step->stride) == 0);
}

/* cuDNN fuses with a relu; without one it would have one algorithm only. Rounding between steps is seen in short types:
 * they stay apart. */
static void find_fused(conv_slot *s)
{
    const aprt_conv *c = s->c;
    int32_t at = 0;
    s->bias_step = s->whole_step = -1;
    s->fused = 0;
    if (c->dtype != APRT_F32 || s->way != CONV_FORWARD)
        return;
    if (at < c->nsteps && is_bias(s, &c->step[at]))
        s->bias_step = at++;
    if (at < c->nsteps && is_whole(s, &c->step[at]))
        s->whole_step = at++;
    if (at < c->nsteps && c->step[at].op == APRT_CONV_RELU)
        s->fused = at + 1;
}

static bool reads_result_later(const conv_slot *s)
{
    bool reads = false;
    for (int32_t i = s->fused; i < s->c->nsteps; i++)
        reads = reads || (s->c->step[i].other == APRT_CONV_OPERAND && s->c->step[i].operand < 0);
    return reads;
}

/* ---- prepare ---- */

/* How cuDNN is to see it; false if it cannot. */
static bool lay_out(conv_slot *s, bool in_order, bool planes)
{
    const aprt_conv *c = s->c;
    s->way = is_gradient(c) ? CONV_BACKWARD : CONV_FORWARD;
    s->apart = false;
    if (s->way == CONV_BACKWARD)
        backward_windows(s);
    else
        forward_windows(s);
    s->last = !planes && channels_innermost(s);
    find_fused(s);
    s->copied = s->copied || in_order || !one_stride(c->x, s->turns[TURNS_G], s->turns[TURNS_C]) || !all_apart(s);
    s->apart = s->apart || in_order || !one_stride(c->y, s->turns[TURNS_G], s->turns[TURNS_M]) || reads_result_later(s);
    s->fused = s->apart ? 0 : s->fused; /* a value that is added lies as the result does */
    for (int32_t i = 0; i < c->nspatial; i++)
        s->sums.have[i] = s->window[i].out;
    bool fits = order(s, false, s->x, &s->x_bytes) && order(s, true, s->sums.stride, &s->y_bytes);
    if (!s->copied)
        memcpy(s->x, c->x, sizeof s->x);
    if (!s->apart)
        memcpy(s->sums.stride, c->y, sizeof s->sums.stride);
    return fits && all_small(s);
}

/* A shared place, as large as the largest needs it. */
static int need(aprt_device *d, place which, int64_t bytes)
{
    static const char *const name[PLACES] = {"operands of convolutions", "sums of convolutions"};
    shared *sh = d->slot[d->nslots - 1];
    if (bytes <= sh->bytes[which])
        return APRT_OK;
    if (sh->at[which])
        CUDA_DO(d, cudaFree, sh->at[which]);
    sh->at[which] = NULL;
    sh->bytes[which] = 0;
    CUDA_TRY(cuda_allocate(d, bytes, name[which], &sh->at[which]));
    sh->bytes[which] = bytes;
    return APRT_OK;
}

static int reserve(aprt_device *d, conv_slot *s)
{
    if (s->copied)
        CUDA_TRY(need(d, PLACE_OPERAND, s->x_bytes));
    if (s->apart)
        CUDA_TRY(need(d, PLACE_SUMS, s->y_bytes));
    if (s->fused && s->bias_step < 0) {
        const int64_t bytes = s->turns[TURNS_G] * s->turns[TURNS_M] * aprt_dtype_bytes(s->c->dtype);
        CUDA_TRY(cuda_allocate(d, bytes, "a bias of zeros", &s->zeros));
        CUDA_DO(d, cudaMemsetAsync, s->zeros, 0, (size_t)bytes, cuda_of(d)->compute);
    }
    return APRT_OK;
}

static int plan(aprt_device *d, conv_slot *s)
{
    static const bool in_order[] = {false, true, true}, planes[] = {false, false, true};
    if (library_may(s)) {
        CUDA_TRY(conv_library_open(d));
        for (int i = 0; i < 3; i++) {
            if (lay_out(s, in_order[i], planes[i]) && conv_library_make(d, s))
                return reserve(d, s);
            conv_library_free(s);
        }
    }
    s->way = CONV_OWN;
    return APRT_OK;
}

/* From a box by the strides of the table to what the slot wants: [g, m, c, ...] or, where channels are innermost,
 * [g, m, ..., c]; of gradients with m and c exchanged; [g, ..., c, m] for the kernel of our own. Returns the elements;
 * `first`: the one with which the box begins. */
static int64_t weights_box(const conv_slot *s, aprt_box *out, int64_t *first)
{
    const aprt_conv *c = s->c;
    const int32_t outer = s->way == CONV_BACKWARD ? 2 : 1, inner = s->way == CONV_FORWARD ? 2 : 1;
    int32_t by[APRT_MAX_RANK], n = 0;
    by[n++] = 0;
    if (s->way != CONV_OWN)
        by[n++] = outer;
    if (s->way != CONV_OWN && !s->last)
        by[n++] = inner;
    for (int32_t i = 0; i < c->nspatial; i++)
        by[n++] = 3 + i;
    if (s->way == CONV_OWN)
        by[n++] = 2;
    if (s->way == CONV_OWN || s->last)
        by[n++] = inner;
    memset(out, 0, sizeof *out);
    out->ndims = n;
    for (int32_t i = 0; i < 3; i++)
        out->extent[i] = s->turns[TURNS_G + i];
    for (int32_t i = 0; i < c->nspatial; i++)
        out->extent[3 + i] = c->dim[i].kernel;
    memcpy(out->a, c->w, (size_t)n * sizeof *out->a);
    *first = 0;
    for (int32_t i = 0; i < c->nspatial; i++)
        if ((c->dim[i].flip != 0) != (s->way == CONV_BACKWARD)) { /* turned round */
            *first += (c->dim[i].kernel - 1) * c->w[3 + i];
            out->a[3 + i] = -c->w[3 + i];
        }
    int64_t at = 1;
    for (int32_t i = n; i-- > 0; at *= out->extent[by[i]])
        out->b[by[i]] = at;
    return at;
}

/* Those that never change: put into order here, once, and uploaded. Others come with each run. */
static int keep_weights(aprt_device *d, conv_slot *s, const void *w)
{
    aprt_box box;
    int64_t first;
    const int64_t n = weights_box(s, &box, &first), size = aprt_dtype_bytes(s->c->dtype);
    CUDA_TRY(cuda_allocate(d, n * size, "weights of a convolution", &s->w));
    if (!w)
        return APRT_OK;
    char *ordered = malloc((size_t)(n * size) + 1);
    if (!ordered)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    aprt_box_copy(&box, 0, n, (int32_t)size, (const char *)w + first * size, ordered);
    const int status = cuda_upload(d, s->w, ordered, n * size);
    free(ordered);
    return status;
}

static int prepare(aprt_device *d, uint32_t number, const aprt_conv *conv, const int64_t turns[4], const void *w)
{
    conv_slot *s = d->slot[number] = calloc(1, sizeof *s);
    void **sh = &d->slot[d->nslots - 1];
    if (!*sh)
        *sh = calloc(1, sizeof(shared));
    if (!s || !*sh)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    s->c = conv;
    memcpy(s->turns, turns, sizeof s->turns);
    s->nothing = turns[TURNS_N] == 0 || turns[TURNS_G] == 0 || turns[TURNS_M] == 0;
    for (int32_t i = 0; i < conv->nspatial; i++)
        s->nothing = s->nothing || conv->dim[i].out == 0;
    if (s->nothing)
        return APRT_OK;
    CUDA_TRY(plan(d, s));
    return keep_weights(d, s, w);
}

int aprt_cuda_conv_prepare(aprt_device *d, uint32_t slot, const aprt_conv *conv, const int64_t turns[4], const void *w,
                           int64_t bytes)
{
    (void)bytes;
    prepare(d, slot, conv, turns, w);
    return cuda_status(d);
}

/* ---- run ---- */

static int64_t results(const conv_slot *s)
{
    int64_t n = s->turns[TURNS_N] * s->turns[TURNS_G] * s->turns[TURNS_M];
    for (int32_t i = 0; i < s->c->nspatial; i++)
        n *= s->c->dim[i].out;
    return n;
}

static int order_weights(aprt_device *d, const conv_slot *s, const void *w)
{
    aprt_box box;
    int64_t first;
    const int64_t n = weights_box(s, &box, &first), size = aprt_dtype_bytes(s->c->dtype);
    if (n > 0)
        CUDA_DO(d, cuda_box_copy, cuda_of(d)->compute, cuda_blocks(d, n), &box, 0, n, (int32_t)size,
                (const char *)w + first * size, s->w);
    return APRT_OK;
}

static void add_dimension(conv_copy *copy, int64_t extent, int64_t stride, int64_t in, int64_t lo, int64_t hole)
{
    const int32_t n = copy->ndims++;
    copy->extent[n] = extent;
    copy->stride[n] = stride;
    copy->in[n] = in;
    copy->lo[n] = lo;
    copy->hole[n] = hole;
}

/* The operand with all zeros that do not come from cuDNN's own padding. */
static int copy_operand(aprt_device *d, const conv_slot *s, const void *x, void *to)
{
    const aprt_conv *c = s->c;
    const int64_t *t = s->turns;
    conv_copy copy = {0};
    add_dimension(&copy, t[TURNS_N], c->x[0], t[TURNS_N], 0, 1);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == (s->last ? 1 : 0)) {
            add_dimension(&copy, t[TURNS_G], c->x[1], t[TURNS_G], 0, 1);
            add_dimension(&copy, t[TURNS_C], c->x[2], t[TURNS_C], 0, 1);
        }
        for (int32_t i = 0; i < c->nspatial && turn == (s->last ? 0 : 1); i++)
            add_dimension(&copy, s->window[i].in, c->x[3 + i], c->dim[i].in,
                          s->way == CONV_FORWARD ? c->dim[i].lo - s->window[i].pad : 0,
                          s->way == CONV_FORWARD ? c->dim[i].hole : 1);
    }
    const int32_t size = aprt_dtype_bytes(c->dtype);
    CUDA_DO(d, cuda_conv_copy, cuda_of(d)->compute, cuda_blocks(d, s->x_bytes / size), &copy, size, x, to);
    return APRT_OK;
}

static int run_own(aprt_device *d, const conv_slot *s, const void *x, void *y, const void *const *operand)
{
    const cuda_device *c = cuda_of(d);
    CUDA_DO(d, cuda_conv_direct, c->compute, cuda_blocks(d, results(s)), s->c, s->turns, x, s->w, y, operand);
    return APRT_OK;
}

static int run(aprt_device *d, const conv_slot *s, const void *x, const void *w, void *y, const void *const *operand)
{
    const shared *sh = d->slot[d->nslots - 1];
    void *sums = s->apart ? sh->at[PLACE_SUMS] : y;
    if (w)
        CUDA_TRY(order_weights(d, s, w));
    if (s->way == CONV_OWN)
        return run_own(d, s, x, y, operand);
    if (s->copied) {
        CUDA_TRY(copy_operand(d, s, x, sh->at[PLACE_OPERAND]));
        x = sh->at[PLACE_OPERAND];
    }
    const void *bias = s->fused && s->bias_step >= 0 ? operand[s->c->step[s->bias_step].operand] : s->zeros, *z = NULL;
    if (s->fused && s->whole_step >= 0)
        z = s->c->step[s->whole_step].operand >= 0 ? operand[s->c->step[s->whole_step].operand] : y;
    CUDA_TRY(conv_library_run(d, s, x, sums, bias, z));
    if (s->fused < s->c->nsteps || s->apart)
        CUDA_DO(d, cuda_conv_steps, cuda_of(d)->compute, cuda_blocks(d, results(s)), s->c, s->turns, s->fused, &s->sums,
                sums, y, operand);
    return APRT_OK;
}

void aprt_cuda_conv(aprt_device *d, uint32_t slot, const void *x, const void *w, void *y, const void *const *operand)
{
    const conv_slot *s = d->slot[slot];
    if (!s->nothing && cuda_of(d)->status == APRT_OK)
        run(d, s, x, w, y, operand);
}

void aprt_cuda_conv_release(aprt_device *d)
{
    cuda_settle(d);
    for (uint32_t i = 0; i + 1 < d->nslots; i++) {
        conv_slot *s = d->slot[i];
        if (!s)
            continue;
        conv_library_free(s);
        if (s->w)
            cudaFree(s->w);
        if (s->zeros)
            cudaFree(s->zeros);
        free(s);
    }
    shared *sh = d->nslots ? d->slot[d->nslots - 1] : NULL;
    for (int i = 0; sh && i < PLACES; i++)
        if (sh->at[i])
            cudaFree(sh->at[i]);
    free(sh);
}
