/* SPDX-License-Identifier: MIT
 *
 * Convolutions of f32 by oneDNN, where operand and result lie channels-last; everything else by plain loops.
 *
 * A slot keeps what one call needs: the primitive, made for the extents of the rank, the weights in the order that
 * oneDNN asks for (made once, when they are parameters), its operands per channel. Steps become the bias and what
 * oneDNN calls post-operations. The last slot of the device is the engine, the stream and the scratchpad that its calls
 * share; nothing is shared between devices, each of which is one thread: OpenMP, which Debian's oneDNN is built with,
 * is told so around every call, and the caller's setting restored.
 *
 * What is not said as the library likes it is said differently: dimensions of one place are left out, and rows with
 * wide padding are copied with their zeros. */
#include "conv_internal.h"

#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>

enum { ARGS = 5 + APRT_MAX_CONV_STEPS };

typedef struct shared {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    char *scratch, *padded;
    size_t scratch_bytes, padded_bytes;
} shared;

/* An operand whose rows get zeros at both ends: `rows` of them, each `width` places of `place` bytes. */
typedef struct padding {
    bool is;
    size_t rows, width, place, lo, hi;
} padding;

/* A step's operand, or the bias (step 0): a vector that must be without gaps, or a whole value. */
typedef struct argument {
    int32_t operand; /* -1: a number, which the vector holds */
    int64_t stride_g, stride_m;
    bool whole;
    float *vector; /* NULL: used where it lies */
    dnnl_memory_t memory;
} argument;

typedef struct slot {
    const aprt_conv *c;
    int64_t turns[4];
    bool nothing;               /* no results */
    dnnl_primitive_t primitive; /* NULL: plain loops */
    int32_t fused;              /* steps that the primitive does */
    padding pad;                /* of x, which the primitive reads from a copy */
    bool fixed;                 /* the weights do not change */
    float *plain_w;             /* [g,m,c,...] without gaps, when they do */
    void *own_w;                /* for plain loops, when the weights are gone after preparing */
    char *w;
    dnnl_memory_t plain_memory, w_memory, x_memory, y_memory, scratch_memory;
    dnnl_primitive_t reorder;
    int32_t narguments;
    argument argument[APRT_MAX_CONV_STEPS];
    int32_t nargs;
    dnnl_exec_arg_t args[ARGS];
} slot;

/* ---- one thread ---- */

static int enter(void)
{
    int before = omp_get_max_threads();
    if (before != 1)
        omp_set_num_threads(1);
    return before;
}

static void leave(int before)
{
    if (before != 1)
        omp_set_num_threads(before);
}

static int fail(aprt_device *d, dnnl_status_t s)
{
    if (s == dnnl_out_of_memory)
        return aprt_fail_call(d, APRT_ERR_ENV, "out of memory");
    return aprt_fail_call(d, APRT_ERR_ENV, "oneDNN failed");
}

#define DNNL_TRY(call)                                                                                                 \
    do {                                                                                                               \
        dnnl_status_t status_ = (call);                                                                                \
        if (status_ != dnnl_success)                                                                                   \
            return status_;                                                                                            \
    } while (0)

static char *allocate(size_t bytes)
{
    size_t size = (bytes + 63) / 64 * 64;
    return aligned_alloc(64, size ? size : 64);
}

/* ---- what oneDNN takes ---- */

static bool is_channels_last(const aprt_conv *c, const int64_t *stride, int64_t channels, const int64_t *plane,
                             int64_t n)
{
    int64_t at = 1;
    if (channels > 1 && stride[2] != 1)
        return false;
    at *= channels;
    if (c->g > 1 && stride[1] != at)
        return false;
    at *= c->g;
    for (int32_t d = c->nspatial - 1; d >= 0; d--) {
        if (plane[d] > 1 && stride[3 + d] != at)
            return false;
        at *= plane[d];
    }
    return n <= 1 || stride[0] == at;
}

static bool library_takes(const slot *s)
{
    const aprt_conv *c = s->c;
    int64_t in[APRT_MAX_SPATIAL], out[APRT_MAX_SPATIAL];
    if (c->dtype != APRT_F32 || c->nspatial > 3 || c->c < 1 || s->turns[TURNS_C] < 1)
        return false;
    for (int32_t d = 0; d < c->nspatial; d++) {
        const aprt_conv_dim *w = &c->dim[d];
        in[d] = w->in;
        out[d] = w->out;
        if (w->in < 1 || (w->hole > 1 && w->stride > 1) || (w->hole > 1) != (c->dim[0].hole > 1))
            return false;
        if ((w->stride > 1) && c->dim[0].hole > 1)
            return false;
    }
    return is_channels_last(c, c->x, c->c, in, s->turns[TURNS_N]) &&
           is_channels_last(c, c->y, c->m, out, s->turns[TURNS_N]);
}

static bool is_transposed(const aprt_conv *c)
{
    return c->nspatial > 0 && c->dim[0].hole > 1;
}

typedef struct shapes {
    int nd;                                      /* of x and y */
    dnnl_dims_t x, y, w, stride, dilate, lo, hi; /* those of x, y: batch, channels, plane */
    int nw;
} shapes;

/* One place, read by a kernel of one. Left out, because the library blocks along the last dimension: a column of 512
 * as a plane of 512x1 takes 3.6 times as long as a row (oneDNN 2.6, AVX2). */
static bool is_idle(const aprt_conv_dim *k)
{
    return k->in == 1 && k->out == 1 && k->kernel == 1 && k->lo == 0;
}

static void read_shapes(const slot *s, shapes *out)
{
    const aprt_conv *c = s->c;
    int at = 0, nspatial = 0;
    for (int32_t i = 0; i < c->nspatial; i++)
        nspatial += !is_idle(&c->dim[i]);
    *out = (shapes){.nd = 2 + (nspatial ? nspatial : 1)};
    out->x[0] = out->y[0] = s->turns[TURNS_N];
    out->x[1] = c->g * c->c;
    out->y[1] = c->g * c->m;
    if (c->g > 1)
        out->w[at++] = c->g;
    out->w[at++] = c->m;
    out->w[at++] = c->c;
    out->x[2] = out->y[2] = out->w[at] = out->stride[0] = 1; /* without a plane: one of one element */
    for (int32_t i = 0, d = 0; i < c->nspatial; i++) {
        const aprt_conv_dim *k = &c->dim[i];
        if (is_idle(k))
            continue;
        out->x[2 + d] = k->in;
        out->y[2 + d] = k->out;
        out->w[at + d] = k->kernel;
        out->dilate[d] = k->dilate - 1;
        int64_t reach = (k->kernel - 1) * k->dilate;
        if (is_transposed(c)) {
            out->stride[d] = k->hole;
            out->lo[d] = reach - k->lo;
            out->hi[d] = (k->in - 1) * k->hole + reach + 1 - out->lo[d] - k->out;
        } else {
            out->stride[d] = k->stride;
            out->lo[d] = k->lo;
            out->hi[d] = (k->out - 1) * k->stride + reach + 1 - k->lo - k->in;
        }
        d++;
    }
    out->nw = out->nd + (c->g > 1);
}

static dnnl_status_t channels_last(dnnl_memory_desc_t *md, int nd, const dnnl_dims_t dims)
{
    static const dnnl_format_tag_t tag[] = {dnnl_nwc, dnnl_nhwc, dnnl_ndhwc};
    return dnnl_memory_desc_init_by_tag(md, nd, dims, dnnl_f32, tag[nd - 3]);
}

/* ---- steps ---- */

/* One element per channel, or one for all, is a vector to the library. */
static bool is_vector(const aprt_conv *c, const aprt_conv_step *s)
{
    return s->other == APRT_CONV_NUMBER || aprt_conv_is_per_channel(c, s);
}

static bool is_bias(const aprt_conv *c)
{
    return c->nsteps > 0 && c->step[0].op == APRT_CONV_ADD && is_vector(c, &c->step[0]);
}

static dnnl_status_t vector_desc(const aprt_conv *c, int nd, dnnl_memory_desc_t *md)
{
    dnnl_dims_t dims = {1, c->g * c->m, 1, 1, 1};
    static const dnnl_format_tag_t tag[] = {dnnl_ncw, dnnl_nchw, dnnl_ncdhw};
    return dnnl_memory_desc_init_by_tag(md, nd, dims, dnnl_f32, tag[nd - 3]);
}

/* A post-operation. Steps by limits in a row are one clip, because oneDNN 2.6 keeps the constants of one clip only: a
 * second one in the list would read the first one's. Its linear function is left alone for the same reason: a number is
 * a vector of channels here. */
typedef enum post_kind { POST_CLIP, POST_SUM, POST_BINARY } post_kind;
typedef struct post {
    post_kind kind;
    int32_t step;  /* SUM, BINARY */
    double lo, hi; /* CLIP */
} post;

static bool join_limit(const aprt_conv_step *step, post *p)
{
    double x = step->op == APRT_CONV_RELU ? 0 : step->number;
    if (step->op == APRT_CONV_MIN)
        p->hi = x < p->hi ? x : p->hi;
    else if (x > p->hi)
        return false;
    else
        p->lo = x > p->lo ? x : p->lo;
    return p->lo <= p->hi;
}

/* Post-operations for the steps behind the bias; -1 when there are none that mean the same. */
static int list_posts(const aprt_conv *c, int32_t fused, post *out)
{
    int n = 0, clips = 0;
    for (int32_t i = is_bias(c); i < fused; i++) {
        const aprt_conv_step *step = &c->step[i];
        bool before = step->other == APRT_CONV_OPERAND && step->operand < 0;
        if (step->op == APRT_CONV_ADD || (step->op == APRT_CONV_MUL && !before)) {
            out[n++] = (post){.kind = before ? POST_SUM : POST_BINARY, .step = i};
            continue;
        }
        if (step->other == APRT_CONV_OPERAND)
            return -1;
        bool again = n && out[n - 1].kind == POST_CLIP;
        if (!again) {
            clips++;
            out[n++] = (post){POST_CLIP, 0, -INFINITY, INFINITY};
        }
        if (!join_limit(step, &out[n - 1]))
            return -1;
    }
    return clips > 1 ? -1 : n;
}

static dnnl_status_t append_post(const slot *s, const shapes *sh, const post *p, dnnl_post_ops_t ops)
{
    const aprt_conv_step *step = &s->c->step[p->step];
    dnnl_memory_desc_t md;
    switch (p->kind) {
    case POST_CLIP:
        if (p->lo == 0 && isinf(p->hi))
            return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_clip, (float)p->lo, (float)p->hi);
    case POST_SUM:
        return dnnl_post_ops_append_sum(ops, 1);
    case POST_BINARY:
        DNNL_TRY(is_vector(s->c, step) ? vector_desc(s->c, sh->nd, &md) : channels_last(&md, sh->nd, sh->y));
        return dnnl_post_ops_append_binary(ops, step->op == APRT_CONV_ADD ? dnnl_binary_add : dnnl_binary_mul, &md);
    }
    return dnnl_invalid_arguments;
}

static bool can_fuse(const aprt_conv *c, const aprt_conv_step *s)
{
    bool elsewhere = s->other == APRT_CONV_OPERAND && s->operand >= 0 && !aprt_conv_is_per_channel(c, s);
    for (int32_t d = 0; d < c->nspatial + 3 && elsewhere; d++)
        if (s->stride[d] != c->y[d])
            return false;
    return true;
}

/* ---- the primitive ---- */

static dnnl_status_t make_desc(const slot *s, const shapes *sh, int32_t fused, dnnl_engine_t engine,
                               dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t x, y, w, b;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_dims_t channels = {s->c->g * s->c->m};
    bool bias = fused && is_bias(s->c);
    DNNL_TRY(channels_last(&x, sh->nd, sh->x));
    DNNL_TRY(channels_last(&y, sh->nd, sh->y));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&w, sh->nw, sh->w, dnnl_f32, dnnl_format_tag_any));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&b, 1, channels, dnnl_f32, dnnl_x));
    DNNL_TRY(dnnl_primitive_attr_create(&attr));
    dnnl_status_t st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success)
        st = dnnl_post_ops_create(&ops);
    if (st != dnnl_success) {
        dnnl_primitive_attr_destroy(attr);
        return st;
    }
    post posts[APRT_MAX_CONV_STEPS];
    int nposts = list_posts(s->c, fused, posts);
    if (nposts < 0)
        st = dnnl_unimplemented;
    for (int i = 0; i < nposts && st == dnnl_success; i++)
        st = append_post(s, sh, &posts[i], ops);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_convolution_desc_t conv;
    dnnl_deconvolution_desc_t deconv;
    bool back = is_transposed(s->c);
    if (st == dnnl_success && !back)
        st = dnnl_dilated_convolution_forward_desc_init(&conv, dnnl_forward_inference, dnnl_convolution_direct, &x, &w,
                                                        bias ? &b : NULL, &y, sh->stride, sh->dilate, sh->lo, sh->hi);
    if (st == dnnl_success && back)
        st = dnnl_dilated_deconvolution_forward_desc_init(&deconv, dnnl_forward_inference, dnnl_deconvolution_direct,
                                                          &x, &w, bias ? &b : NULL, &y, sh->stride, sh->dilate, sh->lo,
                                                          sh->hi);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(out, back ? (void *)&deconv : (void *)&conv, attr, engine, NULL);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

/* oneDNN's own reference loops are no faster than ours, and its matrix products (2.6) read operands of
 * post-operations from the wrong places. */
static bool is_no_good(const slot *s, const_dnnl_primitive_desc_t pd, int32_t alone)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return true;
    return strncmp(name, "ref", 3) == 0 || (s->fused > alone && strstr(name, "gemm"));
}

/* How many of the first steps are a bias, limits and what is there before. */
static int32_t count_alone(const aprt_conv *c)
{
    int32_t n = is_bias(c);
    while (n < c->nsteps && c->step[n].op != APRT_CONV_MUL &&
           (c->step[n].op != APRT_CONV_ADD || (c->step[n].other == APRT_CONV_OPERAND && c->step[n].operand < 0)))
        n++;
    return n;
}

static bool is_gemm(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && strstr(name, "gemm");
}

/* Of one number of fused steps; false: there is none, or no good one. */
static bool try_desc(const slot *s, const shapes *sh, int32_t alone, dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    if (make_desc(s, sh, s->fused, engine, out) != dnnl_success)
        return false;
    if (!is_no_good(s, *out, alone))
        return true;
    dnnl_primitive_desc_destroy(*out);
    return false;
}

/* The same convolution of rows that have their zeros; false when there are none, or they would be half of it. */
static bool pad_rows(const slot *s, const shapes *sh, shapes *out, padding *pad)
{
    int d = sh->nd - 1;
    int64_t hi = sh->hi[d - 2] > 0 ? sh->hi[d - 2] : 0, wide = sh->x[d] + sh->lo[d - 2] + hi;
    if (is_transposed(s->c) || wide == sh->x[d] || wide > 2 * sh->x[d])
        return false;
    *pad = (padding){true, 1, (size_t)sh->x[d], (size_t)sh->x[1] * sizeof(float), (size_t)sh->lo[d - 2], (size_t)hi};
    for (int i = 0; i < d; i++)
        pad->rows *= i == 1 ? 1 : (size_t)sh->x[i];
    *out = *sh;
    out->x[d] = wide;
    out->lo[d - 2] = 0;
    out->hi[d - 2] -= hi;
    return true;
}

/* oneDNN's direct convolutions (AVX2) want no more padding in a row than they have accumulators, 3 or so: what is wider
 * falls back on matrix products, which take two to three times as long as padding first. */
static bool try_both(slot *s, shapes *sh, int32_t alone, dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    shapes wide;
    padding pad;
    dnnl_primitive_desc_t pd;
    bool found = try_desc(s, sh, alone, engine, out);
    if ((found && !is_gemm(*out)) || !pad_rows(s, sh, &wide, &pad) || !try_desc(s, &wide, alone, engine, &pd))
        return found;
    if (is_gemm(pd)) {
        dnnl_primitive_desc_destroy(pd);
        return found;
    }
    if (found)
        dnnl_primitive_desc_destroy(*out);
    *out = pd;
    *sh = wide;
    s->pad = pad;
    return true;
}

/* With all steps, the first few, or none: the most that there is vector code for. False: nothing. */
static bool choose_desc(slot *s, shapes *sh, dnnl_engine_t engine, dnnl_primitive_desc_t *out)
{
    int32_t alone = count_alone(s->c), least = 0;
    const int32_t fused[3] = {s->c->nsteps, alone, 0};
    bool all = true;
    for (int32_t i = 0; i < s->c->nsteps; i++) {
        all = all && can_fuse(s->c, &s->c->step[i]);
        if (s->c->step[i].other == APRT_CONV_OPERAND && s->c->step[i].operand < 0)
            least = i + 1; /* it must be read before it is overwritten */
    }
    for (int i = all ? 0 : 1; i < 3; i++) {
        s->fused = fused[i];
        if (s->fused >= least && try_both(s, sh, alone, engine, out))
            return true;
    }
    return false;
}

/* ---- weights ---- */

/* Into [g,m,c,...] without gaps, flipped where the library does not; zeros where nothing is. */
static void gather_weights(const slot *s, const float *w, float *out)
{
    const aprt_conv *c = s->c;
    int64_t taps = 1, at[APRT_MAX_SPATIAL] = {0};
    for (int32_t d = 0; d < c->nspatial; d++)
        taps *= c->dim[d].kernel;
    memset(out, 0, (size_t)(c->g * c->m * c->c * taps) * sizeof *out);
    for (int64_t t = 0; t < taps; t++) {
        int64_t offset = 0;
        for (int32_t d = 0; d < c->nspatial; d++) {
            bool flip = is_transposed(c) ? !c->dim[d].flip : c->dim[d].flip;
            offset += (flip ? c->dim[d].kernel - 1 - at[d] : at[d]) * c->w[3 + d];
        }
        for (int64_t g = 0; g < s->turns[TURNS_G]; g++)
            for (int64_t m = 0; m < s->turns[TURNS_M]; m++)
                for (int64_t i = 0; i < s->turns[TURNS_C]; i++)
                    out[((g * c->m + m) * c->c + i) * taps + t] = w[offset + g * c->w[0] + m * c->w[1] + i * c->w[2]];
        for (int32_t d = c->nspatial - 1; d >= 0 && ++at[d] == c->dim[d].kernel; d--)
            at[d] = 0;
    }
}

static dnnl_status_t plain_weights_desc(const shapes *sh, dnnl_memory_desc_t *md)
{
    static const dnnl_format_tag_t tag[] = {dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    return dnnl_memory_desc_init_by_tag(md, sh->nw, sh->w, dnnl_f32, tag[sh->nw - 3]);
}

static dnnl_status_t run_reorder(slot *s, shared *sh, const float *w)
{
    gather_weights(s, w, s->plain_w);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, s->plain_memory}, {DNNL_ARG_TO, s->w_memory}};
    return dnnl_primitive_execute(s->reorder, sh->stream, 2, args);
}

static void free_reorder(slot *s)
{
    free(s->plain_w);
    if (s->plain_memory)
        dnnl_memory_destroy(s->plain_memory);
    if (s->reorder)
        dnnl_primitive_destroy(s->reorder);
    s->plain_w = NULL;
    s->plain_memory = NULL;
    s->reorder = NULL;
}

static dnnl_status_t prepare_weights(slot *s, shared *sh, const shapes *shape, const_dnnl_primitive_desc_t pd,
                                     const float *w)
{
    const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t reorder;
    DNNL_TRY(plain_weights_desc(shape, &plain));
    s->plain_w = (float *)(void *)allocate(dnnl_memory_desc_get_size(&plain));
    s->w = allocate(dnnl_memory_desc_get_size(want));
    if (!s->plain_w || !s->w)
        return dnnl_out_of_memory;
    DNNL_TRY(dnnl_memory_create(&s->plain_memory, &plain, sh->engine, s->plain_w));
    DNNL_TRY(dnnl_memory_create(&s->w_memory, want, sh->engine, s->w));
    DNNL_TRY(dnnl_reorder_primitive_desc_create(&reorder, &plain, sh->engine, want, sh->engine, NULL));
    dnnl_status_t st = dnnl_primitive_create(&s->reorder, reorder);
    dnnl_primitive_desc_destroy(reorder);
    DNNL_TRY(st);
    s->fixed = w != NULL;
    if (!w)
        return dnnl_success;
    DNNL_TRY(run_reorder(s, sh, w));
    free_reorder(s);
    return dnnl_success;
}

/* ---- arguments ---- */

static void add_arg(slot *s, int what, dnnl_memory_t memory)
{
    s->args[s->nargs++] = (dnnl_exec_arg_t){what, memory};
}

/* `at`: where in the list of post-operations; -1: the bias. */
static dnnl_status_t add_argument(slot *s, shared *sh, const shapes *shape, int32_t i, int at)
{
    const aprt_conv *c = s->c;
    const aprt_conv_step *step = &c->step[i];
    bool bias = at < 0, per_channel = is_vector(c, step), number = step->other == APRT_CONV_NUMBER;
    argument *a = &s->argument[s->narguments++];
    dnnl_memory_desc_t md;
    dnnl_dims_t channels = {c->g * c->m};
    *a = (argument){.operand = number ? -1 : step->operand, .stride_g = step->stride[1], .stride_m = step->stride[2]};
    a->whole = !per_channel;
    if (bias)
        DNNL_TRY(dnnl_memory_desc_init_by_tag(&md, 1, channels, dnnl_f32, dnnl_x));
    else
        DNNL_TRY(per_channel ? vector_desc(c, shape->nd, &md) : channels_last(&md, shape->nd, shape->y));
    bool no_gaps = (c->m == 1 || step->stride[2] == 1) && (c->g == 1 || step->stride[1] == c->m) &&
                   s->turns[TURNS_G] == c->g && s->turns[TURNS_M] == c->m;
    if (number || (per_channel && !no_gaps)) {
        a->vector = (float *)(void *)allocate((size_t)channels[0] * sizeof *a->vector);
        if (!a->vector)
            return dnnl_out_of_memory;
        for (int64_t k = 0; k < channels[0]; k++)
            a->vector[k] = (float)step->number;
    }
    DNNL_TRY(dnnl_memory_create(&a->memory, &md, sh->engine, a->vector));
    add_arg(s, bias ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_SRC_1, a->memory);
    return dnnl_success;
}

static dnnl_status_t grow(char **buffer, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return dnnl_success;
    free(*buffer);
    *have = 0;
    *buffer = allocate(bytes);
    if (!*buffer)
        return dnnl_out_of_memory;
    *have = bytes;
    return dnnl_success;
}

static dnnl_status_t prepare_arguments(slot *s, shared *sh, const shapes *shape, const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    DNNL_TRY(
        dnnl_memory_create(&s->x_memory, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), sh->engine, NULL));
    DNNL_TRY(
        dnnl_memory_create(&s->y_memory, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), sh->engine, NULL));
    DNNL_TRY(dnnl_memory_create(&s->scratch_memory, scratch, sh->engine, NULL));
    add_arg(s, DNNL_ARG_SRC, s->x_memory);
    add_arg(s, DNNL_ARG_WEIGHTS, s->w_memory);
    add_arg(s, DNNL_ARG_DST, s->y_memory);
    add_arg(s, DNNL_ARG_SCRATCHPAD, s->scratch_memory);
    post posts[APRT_MAX_CONV_STEPS];
    int nposts = list_posts(s->c, s->fused, posts);
    if (s->fused && is_bias(s->c))
        DNNL_TRY(add_argument(s, sh, shape, 0, -1));
    for (int i = 0; i < nposts; i++)
        if (posts[i].kind == POST_BINARY)
            DNNL_TRY(add_argument(s, sh, shape, posts[i].step, i));
    const padding *pad = &s->pad;
    DNNL_TRY(grow(&sh->padded, &sh->padded_bytes, pad->rows * (pad->lo + pad->width + pad->hi) * pad->place));
    return grow(&sh->scratch, &sh->scratch_bytes, dnnl_memory_desc_get_size(scratch));
}

static const void *pad_operand(const padding *p, char *to, const void *x)
{
    const char *from = x;
    const void *padded = to;
    for (size_t row = 0; row < p->rows; row++) {
        memset(to, 0, p->lo * p->place);
        memcpy(to + p->lo * p->place, from, p->width * p->place);
        memset(to + (p->lo + p->width) * p->place, 0, p->hi * p->place);
        to += (p->lo + p->width + p->hi) * p->place;
        from += p->width * p->place;
    }
    return padded;
}

static void set_argument(const slot *s, const argument *a, const void *const *operand)
{
    if (a->operand < 0)
        return;
    const float *from = operand[a->operand];
    if (!a->vector) {
        union {
            const void *in;
            void *out;
        } same = {from}; /* the library takes any pointer as writable */
        dnnl_memory_set_data_handle(a->memory, same.out);
        return;
    }
    for (int64_t g = 0; g < s->turns[TURNS_G]; g++)
        for (int64_t m = 0; m < s->turns[TURNS_M]; m++)
            a->vector[g * s->c->m + m] = from[g * a->stride_g + m * a->stride_m];
}

/* ---- open, run, close ---- */

static dnnl_status_t make_shared(aprt_device *d, shared **out)
{
    shared *sh = d->slot[d->nslots - 1];
    if (!sh) {
        sh = d->slot[d->nslots - 1] = calloc(1, sizeof *sh);
        if (!sh)
            return dnnl_out_of_memory;
        DNNL_TRY(dnnl_engine_create(&sh->engine, dnnl_cpu, 0));
        DNNL_TRY(dnnl_stream_create(&sh->stream, sh->engine, dnnl_stream_default_flags));
    }
    *out = sh;
    return dnnl_success;
}

static dnnl_status_t prepare(aprt_device *d, slot *s, const void *w)
{
    shared *sh;
    shapes shape;
    dnnl_primitive_desc_t pd;
    DNNL_TRY(make_shared(d, &sh));
    read_shapes(s, &shape);
    if (!choose_desc(s, &shape, sh->engine, &pd))
        return dnnl_success;
    dnnl_status_t st = dnnl_primitive_create(&s->primitive, pd);
    if (st == dnnl_success)
        st = prepare_weights(s, sh, &shape, pd, w);
    if (st == dnnl_success)
        st = prepare_arguments(s, sh, &shape, pd);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

/* Plain loops read weights as they were. */
static int keep_plain(aprt_device *d, slot *s, const void *w, int64_t bytes)
{
    if (s->nothing || s->primitive || bytes <= 0)
        return APRT_OK;
    s->own_w = allocate((size_t)bytes);
    if (!s->own_w)
        return aprt_fail_call(d, APRT_ERR_ENV, "out of memory");
    memcpy(s->own_w, w, (size_t)bytes);
    return APRT_OK;
}

int aprt_conv_prepare(aprt_device *d, uint32_t index, const aprt_conv *conv, const int64_t turns[4], const void *w,
                      int64_t passing)
{
    slot *s = d->slot[index] = calloc(1, sizeof *s);
    if (!s)
        return aprt_fail_call(d, APRT_ERR_ENV, "out of memory");
    s->c = conv;
    s->nothing = turns[TURNS_N] < 1 || turns[TURNS_G] < 1 || turns[TURNS_M] < 1;
    for (int i = 0; i < 4; i++)
        s->turns[i] = turns[i];
    for (int32_t i = 0; i < conv->nspatial; i++)
        s->nothing = s->nothing || conv->dim[i].out < 1;
    if (!s->nothing && library_takes(s)) {
        int threads = enter();
        dnnl_status_t st = prepare(d, s, w);
        leave(threads);
        if (st != dnnl_success)
            return fail(d, st);
    }
    return keep_plain(d, s, w, passing);
}

static dnnl_status_t run(shared *sh, slot *s, const void *x, const void *w, void *y, const void *const *operand)
{
    union {
        const void *in;
        void *out;
    } from = {s->pad.is ? pad_operand(&s->pad, sh->padded, x) : x};
    if (!s->fixed)
        DNNL_TRY(run_reorder(s, sh, w));
    DNNL_TRY(dnnl_memory_set_data_handle(s->x_memory, from.out));
    DNNL_TRY(dnnl_memory_set_data_handle(s->y_memory, y));
    DNNL_TRY(dnnl_memory_set_data_handle(s->scratch_memory, sh->scratch));
    for (int32_t i = 0; i < s->narguments; i++)
        set_argument(s, &s->argument[i], operand);
    return dnnl_primitive_execute(s->primitive, sh->stream, s->nargs, s->args);
}

int aprt_conv_run(aprt_device *d, uint32_t index, const void *x, const void *w, void *y, const void *const *operand)
{
    slot *s = d->slot[index];
    if (s->nothing)
        return APRT_OK;
    if (!s->primitive) {
        aprt_conv_plain(s->c, s->turns, x, s->own_w ? s->own_w : w, y, operand);
        return APRT_OK;
    }
    int threads = enter();
    dnnl_status_t st = run(d->slot[d->nslots - 1], s, x, w, y, operand);
    leave(threads);
    if (st != dnnl_success)
        return fail(d, st);
    aprt_conv_plain_steps(s->c, s->turns, s->fused, y, operand);
    return APRT_OK;
}

static void free_slot(slot *s)
{
    if (!s)
        return;
    dnnl_memory_t memory[] = {s->w_memory, s->x_memory, s->y_memory, s->scratch_memory};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    for (int32_t i = 0; i < s->narguments; i++) {
        if (s->argument[i].memory)
            dnnl_memory_destroy(s->argument[i].memory);
        free(s->argument[i].vector);
    }
    free_reorder(s);
    if (s->primitive)
        dnnl_primitive_destroy(s->primitive);
    free(s->w);
    free(s->own_w);
    free(s);
}

void aprt_conv_release(aprt_device *d)
{
    if (d->nslots == 0)
        return;
    for (uint32_t i = 0; i + 1 < d->nslots; i++)
        free_slot(d->slot[i]);
    shared *sh = d->slot[d->nslots - 1];
    if (!sh)
        return;
    if (sh->stream)
        dnnl_stream_destroy(sh->stream);
    if (sh->engine)
        dnnl_engine_destroy(sh->engine);
    free(sh->scratch);
    free(sh->padded);
    free(sh);
}
