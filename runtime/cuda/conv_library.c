/* SPDX-License-Identifier: MIT
 *
 * Convolutions by cuDNN's functions for forward convolutions and for gradients of operands. They are the older of its
 * two interfaces, and enough: the other one, the graphs, adds no speed to a single convolution with its steps, compiles
 * kernels while the program runs, and fails in more ways.
 *
 * The second function, given the "gradients of results" dy and weights W, computes
 *
 *     dx[j*stride + k*dilate - pad] += dy[j] * W[k]
 *
 * which is the convolution over dy with stride - 1 zeros between its elements and the kernel read backwards. */
#include "conv.h"

enum { MAX_ND = 5, MAX_ALGOS = 16 };

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

int conv_library_open(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    if (c->dnn)
        return APRT_OK;
    DNN_DO(d, cudnnCreate, &c->dnn);
    DNN_DO(d, cudnnSetStream, c->dnn, c->compute);
    return APRT_OK;
}

static cudnnDataType_t data_type(int32_t dtype)
{
    return dtype == APRT_F64    ? CUDNN_DATA_DOUBLE
           : dtype == APRT_F16  ? CUDNN_DATA_HALF
           : dtype == APRT_BF16 ? CUDNN_DATA_BFLOAT16
                                : CUDNN_DATA_FLOAT;
}

/* Dimensions of one in front of fewer than two spatial ones: cuDNN has no fewer. */
static int spatial_lead(const aprt_conv *c)
{
    return c->nspatial < 2 ? 2 - c->nspatial : 0;
}

static cudnnStatus_t set_tensor(cudnnTensorDescriptor_t t, const conv_slot *s, bool result)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c), nd = 2 + lead + c->nspatial;
    const int64_t *stride = result ? s->sums.stride : s->x, channels = s->turns[result ? TURNS_M : TURNS_C];
    int dim[MAX_ND] = {1, 1, 1, 1, 1}, by[MAX_ND];
    dim[0] = (int)s->turns[TURNS_N];
    dim[1] = (int)(s->turns[TURNS_G] * channels);
    by[0] = (int)stride[0];
    by[1] = (int)conv_channel_stride(s, stride, channels);
    for (int32_t i = 0; i < c->nspatial; i++) {
        dim[2 + lead + i] = (int)(result ? s->window[i].out : s->window[i].in);
        by[2 + lead + i] = (int)stride[3 + i];
    }
    for (int i = 1 + lead; i > 1; i--) /* as if they had been there */
        by[i] = i + 1 < nd ? by[i + 1] * dim[i + 1] : s->last ? by[1] * dim[1] : 1;
    for (int i = 0; i < nd; i++)
        by[i] = by[i] > 0 ? by[i] : 1; /* of a dimension of one */
    return cudnnSetTensorNdDescriptor(t, data_type(c->dtype), nd, dim, by);
}

/* Outputs and inputs of what cuDNN calls the forward convolution. */
static cudnnStatus_t set_filter(const conv_slot *s)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c);
    const bool back = s->way == CONV_BACKWARD;
    int dim[MAX_ND] = {1, 1, 1, 1, 1};
    dim[0] = (int)(s->turns[TURNS_G] * s->turns[back ? TURNS_C : TURNS_M]);
    dim[1] = (int)s->turns[back ? TURNS_M : TURNS_C];
    for (int32_t i = 0; i < c->nspatial; i++)
        dim[2 + lead + i] = (int)c->dim[i].kernel;
    return cudnnSetFilterNdDescriptor(s->w_desc, data_type(c->dtype), s->last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW,
                                      2 + lead + c->nspatial, dim);
}

static cudnnStatus_t set_op(const conv_slot *s, bool tf32)
{
    const aprt_conv *c = s->c;
    const int lead = spatial_lead(c);
    int pad[CONV_DNN_SPATIAL] = {0}, stride[CONV_DNN_SPATIAL] = {1, 1, 1}, dilate[CONV_DNN_SPATIAL] = {1, 1, 1};
    for (int32_t i = 0; i < c->nspatial; i++) {
        pad[lead + i] = (int)s->window[i].pad;
        stride[lead + i] = (int)s->window[i].stride;
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
    return cudnnSetTensorNdDescriptor(s->bias_desc, data_type(s->c->dtype), nd, dim, by);
}

static bool make_descriptors(conv_slot *s, bool tf32)
{
    DNN_MAY(cudnnCreateTensorDescriptor(&s->x_desc));
    DNN_MAY(cudnnCreateTensorDescriptor(&s->y_desc));
    DNN_MAY(cudnnCreateTensorDescriptor(&s->bias_desc));
    DNN_MAY(cudnnCreateFilterDescriptor(&s->w_desc));
    DNN_MAY(cudnnCreateConvolutionDescriptor(&s->op));
    DNN_MAY(cudnnCreateActivationDescriptor(&s->relu));
    DNN_MAY(set_tensor(s->x_desc, s, false));
    DNN_MAY(set_tensor(s->y_desc, s, true));
    DNN_MAY(set_filter(s));
    DNN_MAY(set_op(s, tf32));
    DNN_MAY(set_bias(s));
    DNN_MAY(cudnnSetActivationDescriptor(s->relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    return true;
}

/* Whether an algorithm of the heuristics' will do. */
static bool will_do(const aprt_device *d, const conv_slot *s, cudnnStatus_t status, cudnnDeterminism_t determinism,
                    size_t memory, cudnnMathType_t math)
{
    const bool exact = s->c->dtype == APRT_F32 && !cuda_of(d)->tf32;
    return status == CUDNN_STATUS_SUCCESS && determinism == CUDNN_DETERMINISTIC &&
           memory <= (size_t)d->stage->workspace_bytes &&
           (!exact || math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH);
}

static bool choose_forward(aprt_device *d, conv_slot *s)
{
    cudnnConvolutionFwdAlgoPerf_t found[MAX_ALGOS];
    int n = 0;
    DNN_MAY(cudnnGetConvolutionForwardAlgorithm_v7(cuda_of(d)->dnn, s->x_desc, s->w_desc, s->op, s->y_desc, MAX_ALGOS,
                                                   &n, found));
    for (int i = 0; i < n; i++)
        if (will_do(d, s, found[i].status, found[i].determinism, found[i].memory, found[i].mathType)) {
            s->forward = found[i].algo;
            s->workspace = found[i].memory;
            return true;
        }
    return false;
}

static bool choose_backward(aprt_device *d, conv_slot *s)
{
    cudnnConvolutionBwdDataAlgoPerf_t found[MAX_ALGOS];
    int n = 0;
    DNN_MAY(cudnnGetConvolutionBackwardDataAlgorithm_v7(cuda_of(d)->dnn, s->w_desc, s->x_desc, s->op, s->y_desc,
                                                        MAX_ALGOS, &n, found));
    for (int i = 0; i < n; i++)
        if (will_do(d, s, found[i].status, found[i].determinism, found[i].memory, found[i].mathType)) {
            s->backward = found[i].algo;
            s->workspace = found[i].memory;
            return true;
        }
    return false;
}

bool conv_library_make(aprt_device *d, conv_slot *s)
{
    return make_descriptors(s, cuda_of(d)->tf32) &&
           (s->way == CONV_BACKWARD ? choose_backward(d, s) : choose_forward(d, s));
}

void conv_library_free(conv_slot *s)
{
    cudnnTensorDescriptor_t *const tensors[] = {&s->x_desc, &s->y_desc, &s->bias_desc};
    for (size_t i = 0; i < 3; i++) {
        if (*tensors[i])
            cudnnDestroyTensorDescriptor(*tensors[i]);
        *tensors[i] = NULL;
    }
    if (s->w_desc)
        cudnnDestroyFilterDescriptor(s->w_desc);
    if (s->op)
        cudnnDestroyConvolutionDescriptor(s->op);
    if (s->relu)
        cudnnDestroyActivationDescriptor(s->relu);
    s->w_desc = NULL;
    s->op = NULL;
    s->relu = NULL;
}

int conv_library_run(aprt_device *d, const conv_slot *s, const void *x, void *y, const void *bias, const void *z)
{
    static const float zero = 0, one = 1;
    static const double zero64 = 0, one64 = 1;
    const cuda_device *c = cuda_of(d);
    const bool wide = s->c->dtype == APRT_F64;
    const void *no = wide ? (const void *)&zero64 : &zero, *yes = wide ? (const void *)&one64 : &one;
    if (s->way == CONV_BACKWARD)
        DNN_DO(d, cudnnConvolutionBackwardData, c->dnn, yes, s->w_desc, s->w, s->x_desc, x, s->op, s->backward,
               c->workspace, s->workspace, no, s->y_desc, y);
    else if (!s->fused)
        DNN_DO(d, cudnnConvolutionForward, c->dnn, yes, s->x_desc, x, s->w_desc, s->w, s->op, s->forward, c->workspace,
               s->workspace, no, s->y_desc, y);
    else
        DNN_DO(d, cudnnConvolutionBiasActivationForward, c->dnn, yes, s->x_desc, x, s->w_desc, s->w, s->op, s->forward,
               c->workspace, s->workspace, z ? yes : no, s->y_desc, z ? z : y, s->bias_desc, bias, s->relu, s->y_desc,
               y);
    return APRT_OK;
}
