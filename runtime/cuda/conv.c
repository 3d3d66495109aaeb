/* SPDX-License-Identifier: MIT
 *
 * Convolutions by cuDNN's forward functions. They are the older of its two interfaces, and enough: the other one, the
 * graphs, adds no speed to a single convolution with its steps, compiles kernels while the program runs, and fails in
 * more ways. What they do not take (no or more than three spatial dimensions, other zeros before than behind, kernels
 * that are read backwards, holes, integers, strides without an algorithm) is done by kernels of our own.
 *
 * A slot keeps the descriptors, made for the extents of the rank, the algorithm, and the weights in the order of the
 * operand's channels: [m, c, ...] or, where channels lie innermost, [m, ..., c]. The last slot is what they share: the
 * place for sums whose result is added to what is there. Steps of the form
 * [+ vector of channels] [+ whole value] [relu] go with the convolution; others follow by a kernel. */
#include "cuda_device.h"

#include <limits.h>
#include <stdlib.h>

enum { TURNS_N, TURNS_G, TURNS_M, TURNS_C, MAX_ND = 5, MAX_ALGOS = 16 };

typedef struct conv_slot {
    const aprt_conv *c;
    int64_t turns[4];
    bool nothing, library, last; /* no results; by cuDNN; channels innermost in x */
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t op;
    cudnnActivationDescriptor_t relu;
    cudnnConvolutionFwdAlgo_t algo;
    size_t workspace;
    int32_t fused;                 /* steps that cuDNN does: 0, or bias (may be zeros), whole value, relu */
    int32_t bias_step, whole_step; /* -1: none */
    bool relu_step, apart;         /* apart: sums go to the shared place first */
    int64_t sum_stride[APRT_MAX_RANK];
    char *own_w, *zeros; /* on the device */
} conv_slot;

typedef struct shared {
    char *sums;
    int64_t bytes;
} shared;

static int check(aprt_device *d, cudnnStatus_t status, const char *what)
{
    return status == CUDNN_STATUS_SUCCESS ? APRT_OK
                                          : cuda_fail(d, APRT_ERR_ENV, "%s: %s", what, cudnnGetErrorString(status));
}
#define DNN_DO(d, function, ...) CUDA_TRY(check(d, function(__VA_ARGS__), #function))
/* Where cuDNN may say no. */
#define DNN_MAY(call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != CUDNN_STATUS_SUCCESS)                                                                            \
            return false;                                                                                              \
    } while (0)

/* ---- what cuDNN takes ---- */

static bool one_stride(const int64_t *stride, int64_t g, int64_t channels)
{
    return g == 1 || channels == 1 || stride[1] == channels * stride[2];
}

static bool dim_fits(const aprt_conv_dim *d)
{
    const int64_t reach = (d->kernel - 1) * d->dilate + 1;
    const int64_t have = d->in + 2 * d->lo - reach;
    return d->hole <= 1 && !(d->flip && d->kernel > 1) && d->lo >= 0 && d->kernel > 0 && have >= 0 &&
           have / d->stride + 1 == d->out && d->in <= INT_MAX && d->out <= INT_MAX && d->lo <= INT_MAX;
}

static bool is_float(int32_t dtype)
{
    return dtype == APRT_F32 || dtype == APRT_F64 || dtype == APRT_F16 || dtype == APRT_BF16;
}

static bool library_may(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    if (!is_float(c->dtype) || c->nspatial < 1 || c->nspatial > 3 || s->turns[TURNS_C] < 1)
        return false;
    for (int32_t i = 0; i < c->nspatial; i++)
        if (!dim_fits(&c->dim[i]))
            return false;
    for (int32_t i = 0; i < c->nspatial + 3; i++)
        if (c->x[i] > INT_MAX || c->y[i] > INT_MAX)
            return false;
    return one_stride(c->x, s->turns[TURNS_G], s->turns[TURNS_C]) &&
           one_stride(c->y, s->turns[TURNS_G], s->turns[TURNS_M]);
}

/* Between the channels of all groups. */
static int64_t channel_stride(const conv_slot *s, const int64_t *stride, int64_t channels)
{
    return channels == 1 && s->turns[TURNS_G] > 1 ? stride[1] : stride[2];
}

static bool channels_innermost(const conv_slot *s)
{
    const int64_t g = s->turns[TURNS_G], c = s->turns[TURNS_C], m = s->turns[TURNS_M];
    return g * c > 1 ? channel_stride(s, s->c->x, c) == 1 : g * m > 1 && channel_stride(s, s->c->y, m) == 1;
}

static cudnnDataType_t data_type(int32_t dtype)
{
    return dtype == APRT_F64    ? CUDNN_DATA_DOUBLE
           : dtype == APRT_F16  ? CUDNN_DATA_HALF
           : dtype == APRT_BF16 ? CUDNN_DATA_BFLOAT16
                                : CUDNN_DATA_FLOAT;
}

/* A dimension of one in front of a single spatial one: cuDNN has no fewer than two. */
static int spatial_lead(const aprt_conv *c)
{
    return c->nspatial == 1 ? 1 : 0;
}

static cudnnStatus_t set_tensor(cudnnTensorDescriptor_t t, const conv_slot *s, bool result, const int64_t *stride)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c), nd = 2 + lead + c->nspatial;
    const int64_t channels = s->turns[result ? TURNS_M : TURNS_C];
    int dim[MAX_ND], by[MAX_ND];
    dim[0] = (int)s->turns[TURNS_N];
    dim[1] = (int)(s->turns[TURNS_G] * channels);
    by[0] = (int)stride[0];
    by[1] = (int)channel_stride(s, stride, channels);
    dim[2] = 1;
    by[2] = (int)stride[3];
    for (int32_t i = 0; i < c->nspatial; i++) {
        dim[2 + lead + i] = (int)(result ? c->dim[i].out : c->dim[i].in);
        by[2 + lead + i] = (int)stride[3 + i];
    }
    if (lead)
        by[2] = by[3] * dim[3];
    for (int i = 0; i < nd; i++)
        by[i] = by[i] > 0 ? by[i] : 1; /* of a dimension of one */
    return cudnnSetTensorNdDescriptor(t, data_type(c->dtype), nd, dim, by);
}

static cudnnStatus_t set_filter(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c);
    int dim[MAX_ND] = {(int)(s->turns[TURNS_G] * s->turns[TURNS_M]), (int)s->turns[TURNS_C], 1};
    for (int32_t i = 0; i < c->nspatial; i++)
        dim[2 + lead + i] = (int)c->dim[i].kernel;
    return cudnnSetFilterNdDescriptor(s->w, data_type(c->dtype), s->last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW,
                                      2 + lead + c->nspatial, dim);
}

static cudnnStatus_t set_op(const conv_slot *s, bool tf32)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c);
    int pad[3] = {0}, stride[3] = {1, 1, 1}, dilate[3] = {1, 1, 1};
    for (int32_t i = 0; i < c->nspatial; i++) {
        pad[lead + i] = (int)c->dim[i].lo;
        stride[lead + i] = (int)c->dim[i].stride;
        dilate[lead + i] = (int)c->dim[i].dilate;
    }
    const cudnnMathType_t math = c->dtype == APRT_F32 && !tf32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
    cudnnStatus_t status =
        cudnnSetConvolutionNdDescriptor(s->op, lead + c->nspatial, pad, stride, dilate, CUDNN_CROSS_CORRELATION,
                                        c->dtype == APRT_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetConvolutionMathType(s->op, math);
    return status == CUDNN_STATUS_SUCCESS ? cudnnSetConvolutionGroupCount(s->op, (int)s->turns[TURNS_G]) : status;
}

static cudnnStatus_t set_bias(const conv_slot *s)
{
    const int nd = 2 + spatial_lead(s->c) + s->c->nspatial, n = (int)(s->turns[TURNS_G] * s->turns[TURNS_M]);
    int dim[MAX_ND] = {1, 1, 1, 1, 1}, by[MAX_ND] = {1, 1, 1, 1, 1};
    dim[1] = n;
    by[0] = n;
    return cudnnSetTensorNdDescriptor(s->bias, data_type(s->c->dtype), nd, dim, by);
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
    if (c->dtype != APRT_F32)
        return;
    if (at < c->nsteps && is_bias(s, &c->step[at]))
        s->bias_step = at++;
    if (at < c->nsteps && is_whole(s, &c->step[at]))
        s->whole_step = at++;
    s->relu_step = at < c->nsteps && c->step[at].op == APRT_CONV_RELU;
    s->fused = s->relu_step ? at + 1 : 0;
}

static bool reads_result(const conv_slot *s)
{
    bool reads = false;
    for (int32_t i = s->fused; i < s->c->nsteps; i++)
        reads = reads || (s->c->step[i].other == APRT_CONV_OPERAND && s->c->step[i].operand < 0);
    return reads;
}

/* Sums in a place of their own: channels where those of the operand are, no gaps. */
static int64_t order_sums(conv_slot *s)
{
    const aprt_conv *c = s->c;
    int64_t at = 1;
    if (s->last) {
        s->sum_stride[2] = 1;
        s->sum_stride[1] = s->turns[TURNS_M];
        at = s->turns[TURNS_G] * s->turns[TURNS_M];
    }
    for (int32_t i = c->nspatial; i-- > 0; at *= c->dim[i].out)
        s->sum_stride[3 + i] = at;
    if (!s->last) {
        s->sum_stride[2] = at;
        s->sum_stride[1] = at * s->turns[TURNS_M];
        at *= s->turns[TURNS_G] * s->turns[TURNS_M];
    }
    s->sum_stride[0] = at;
    return at * s->turns[TURNS_N];
}

/* ---- weights ---- */

/* From a box by the strides of the table to what the slot wants, as a box; its elements. */
static int64_t weights_box(const conv_slot *s, aprt_box *out)
{
    const aprt_conv *c = s->c;
    int64_t order = 1;
    memset(out, 0, sizeof *out);
    out->ndims = 3 + c->nspatial;
    for (int32_t i = 0; i < 3; i++)
        out->extent[i] = s->turns[1 + i];
    for (int32_t i = 0; i < c->nspatial; i++)
        out->extent[3 + i] = c->dim[i].kernel;
    memcpy(out->a, c->w, (size_t)out->ndims * sizeof *out->a);
    if (s->last && s->library) {
        out->b[2] = 1;
        order = out->extent[2];
    }
    for (int32_t i = out->ndims; i-- > 3; order *= out->extent[i])
        out->b[i] = order;
    if (!(s->last && s->library)) {
        out->b[2] = order;
        order *= out->extent[2];
    }
    out->b[1] = order;
    out->b[0] = order * out->extent[1];
    return aprt_box_count(out);
}

/* Those that never change: put into order here, once, and uploaded. */
static int keep_weights(aprt_device *d, conv_slot *s, const void *w)
{
    aprt_box box;
    const int64_t n = weights_box(s, &box), size = aprt_dtype_bytes(s->c->dtype);
    char *ordered = malloc((size_t)(n * size) + 1);
    if (!ordered)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    aprt_box_copy(&box, 0, n, (int32_t)size, w, ordered);
    int status = cuda_allocate(d, n * size, "weights of a convolution", &s->own_w);
    if (status == APRT_OK)
        status = cuda_upload(d, s->own_w, ordered, n * size);
    free(ordered);
    return status;
}

/* ---- prepare ---- */

static bool make_descriptors(conv_slot *s, bool tf32)
{
    DNN_MAY(cudnnCreateTensorDescriptor(&s->x));
    DNN_MAY(cudnnCreateTensorDescriptor(&s->y));
    DNN_MAY(cudnnCreateTensorDescriptor(&s->bias));
    DNN_MAY(cudnnCreateFilterDescriptor(&s->w));
    DNN_MAY(cudnnCreateConvolutionDescriptor(&s->op));
    DNN_MAY(cudnnCreateActivationDescriptor(&s->relu));
    DNN_MAY(set_tensor(s->x, s, false, s->c->x));
    DNN_MAY(set_tensor(s->y, s, true, s->apart ? s->sum_stride : s->c->y));
    DNN_MAY(set_filter(s));
    DNN_MAY(set_op(s, tf32));
    DNN_MAY(set_bias(s));
    DNN_MAY(cudnnSetActivationDescriptor(s->relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    return true;
}

/* The first algorithm of the heuristics that works in the workspace, gives the same bits each time and computes as
 * exactly as was asked. */
static bool choose(aprt_device *d, conv_slot *s)
{
    cudnnConvolutionFwdAlgoPerf_t found[MAX_ALGOS];
    const bool exact = s->c->dtype == APRT_F32 && !cuda_of(d)->tf32;
    int n = 0;
    DNN_MAY(cudnnGetConvolutionForwardAlgorithm_v7(cuda_of(d)->dnn, s->x, s->w, s->op, s->y, MAX_ALGOS, &n, found));
    for (int i = 0; i < n; i++)
        if (found[i].status == CUDNN_STATUS_SUCCESS && found[i].determinism == CUDNN_DETERMINISTIC &&
            found[i].memory <= (size_t)d->stage->workspace_bytes &&
            (!exact || found[i].mathType == CUDNN_FMA_MATH || found[i].mathType == CUDNN_DEFAULT_MATH)) {
            s->algo = found[i].algo;
            s->workspace = found[i].memory;
            return true;
        }
    return false;
}

static void free_descriptors(conv_slot *s)
{
    cudnnTensorDescriptor_t tensors[] = {s->x, s->y, s->bias};
    for (size_t i = 0; i < 3; i++)
        if (tensors[i])
            cudnnDestroyTensorDescriptor(tensors[i]);
    if (s->w)
        cudnnDestroyFilterDescriptor(s->w);
    if (s->op)
        cudnnDestroyConvolutionDescriptor(s->op);
    if (s->relu)
        cudnnDestroyActivationDescriptor(s->relu);
}

static int open_library(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    if (c->dnn)
        return APRT_OK;
    DNN_DO(d, cudnnCreate, &c->dnn);
    DNN_DO(d, cudnnSetStream, c->dnn, c->compute);
    return APRT_OK;
}

/* A place for sums, as large as the largest needs it. */
static int need_sums(aprt_device *d, int64_t bytes)
{
    void **slot = &d->slot[d->nslots - 1];
    if (!*slot)
        *slot = calloc(1, sizeof(shared));
    shared *sh = *slot;
    if (!sh)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    if (bytes <= sh->bytes)
        return APRT_OK;
    if (sh->sums)
        CUDA_DO(d, cudaFree, sh->sums);
    sh->sums = NULL;
    CUDA_TRY(cuda_allocate(d, bytes, "sums of convolutions", &sh->sums));
    sh->bytes = bytes;
    return APRT_OK;
}

static int plan(aprt_device *d, conv_slot *s)
{
    const int64_t size = aprt_dtype_bytes(s->c->dtype);
    s->last = channels_innermost(s);
    s->library = library_may(s);
    if (!s->library)
        return APRT_OK;
    CUDA_TRY(open_library(d));
    find_fused(s);
    s->apart = reads_result(s);
    s->fused = s->apart ? 0 : s->fused; /* a value that is added lies as the result does */
    const int64_t sums = order_sums(s) * size;
    if (!make_descriptors(s, cuda_of(d)->tf32) || !choose(d, s)) {
        s->library = false;
        return APRT_OK;
    }
    if (s->fused && s->bias_step < 0) {
        const int64_t bytes = s->turns[TURNS_G] * s->turns[TURNS_M] * size;
        CUDA_TRY(cuda_allocate(d, bytes, "a bias of zeros", &s->zeros));
        CUDA_DO(d, cudaMemsetAsync, s->zeros, 0, (size_t)bytes, cuda_of(d)->compute);
    }
    return s->apart ? need_sums(d, sums) : APRT_OK;
}

static int prepare(aprt_device *d, uint32_t number, const aprt_conv *conv, const int64_t turns[4], const void *w)
{
    conv_slot *s = d->slot[number] = calloc(1, sizeof *s);
    if (!s)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    s->c = conv;
    memcpy(s->turns, turns, sizeof s->turns);
    s->nothing = turns[TURNS_N] == 0 || turns[TURNS_G] == 0 || turns[TURNS_M] == 0;
    for (int32_t i = 0; i < conv->nspatial; i++)
        s->nothing = s->nothing || conv->dim[i].out == 0;
    if (s->nothing)
        return APRT_OK;
    CUDA_TRY(plan(d, s));
    if (w)
        return keep_weights(d, s, w);
    aprt_box box; /* they come with each run, and are put into order then */
    return cuda_allocate(d, weights_box(s, &box) * aprt_dtype_bytes(conv->dtype), "weights of a convolution",
                         &s->own_w);
}

int aprt_cuda_conv_prepare(aprt_device *d, uint32_t slot, const aprt_conv *conv, const int64_t turns[4], const void *w,
                           int64_t bytes)
{
    (void)bytes;
    prepare(d, slot, conv, turns, w);
    return cuda_status(d);
}

/* ---- run ---- */

static int by_library(aprt_device *d, const conv_slot *s, const void *x, void *y, const void *const *operand)
{
    static const float zero = 0, one = 1;
    static const double zero64 = 0, one64 = 1;
    const cuda_device *c = cuda_of(d);
    const bool wide = s->c->dtype == APRT_F64;
    const void *no = wide ? (const void *)&zero64 : &zero, *yes = wide ? (const void *)&one64 : &one;
    if (!s->fused) {
        DNN_DO(d, cudnnConvolutionForward, c->dnn, yes, s->x, x, s->w, s->own_w, s->op, s->algo, c->workspace,
               s->workspace, no, s->y, y);
        return APRT_OK;
    }
    const void *bias = s->bias_step >= 0 ? operand[s->c->step[s->bias_step].operand] : s->zeros;
    const int32_t whole = s->whole_step >= 0 ? s->c->step[s->whole_step].operand : -1;
    const void *z = whole >= 0 ? operand[whole] : y;
    DNN_DO(d, cudnnConvolutionBiasActivationForward, c->dnn, yes, s->x, x, s->w, s->own_w, s->op, s->algo, c->workspace,
           s->workspace, s->whole_step >= 0 ? yes : no, s->y, z, s->bias, bias, s->relu, s->y, y);
    return APRT_OK;
}

static int64_t results(const conv_slot *s)
{
    int64_t n = s->turns[TURNS_N] * s->turns[TURNS_G] * s->turns[TURNS_M];
    for (int32_t i = 0; i < s->c->nspatial; i++)
        n *= s->c->dim[i].out;
    return n;
}

static int run(aprt_device *d, const conv_slot *s, const void *x, const void *w, void *y, const void *const *operand)
{
    const cuda_device *c = cuda_of(d);
    const int blocks = cuda_blocks(d, results(s));
    if (w) {
        aprt_box box;
        const int64_t n = weights_box(s, &box);
        if (n > 0)
            CUDA_DO(d, cuda_box_copy, c->compute, cuda_blocks(d, n), &box, 0, n, aprt_dtype_bytes(s->c->dtype), w,
                    s->own_w);
    }
    if (!s->library) {
        aprt_conv plain = *s->c;
        aprt_box box;
        weights_box(s, &box);
        memcpy(plain.w, box.b, sizeof plain.w);
        CUDA_DO(d, cuda_conv_direct, c->compute, blocks, &plain, s->turns, x, s->own_w, y, operand);
        return APRT_OK;
    }
    const shared *sh = d->slot[d->nslots - 1];
    void *sums = s->apart ? sh->sums : y;
    CUDA_TRY(by_library(d, s, x, sums, operand));
    if (s->fused < s->c->nsteps)
        CUDA_DO(d, cuda_conv_steps, c->compute, blocks, s->c, s->turns, s->fused, sums,
                s->apart ? s->sum_stride : s->c->y, y, operand);
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
        free_descriptors(s);
        if (s->own_w)
            cudaFree(s->own_w);
        if (s->zeros)
            cudaFree(s->zeros);
        free(s);
    }
    shared *sh = d->nslots ? d->slot[d->nslots - 1] : NULL;
    if (sh && sh->sums)
        cudaFree(sh->sums);
    free(sh);
}
