/* cuDNN: convolutions forwards, and from gradients of results to those of operands (convolve.cpp).
 *
 * The heuristics offer what a caller must turn down if it wants the same bits each time, f32 as f32, or a small
 * workspace; an algorithm uses the workspace that it said. Filters with channels innermost want tensors that have them
 * innermost too, without gaps, and no doubles. */
#include <algorithm>

#include "convolve.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
struct cudnnActivationStruct {
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
};

namespace shim
{

namespace
{
enum { SPATIAL = 3, SOME_WORKSPACE = 4096 };

bool shapes_fit(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnConvolutionStruct &c,
                const cudnnTensorStruct &y)
{
    if (x.nd != y.nd || x.nd != w.nd || x.nd != c.nd + 2 || c.groups < 1 || x.type != y.type || x.type != w.type)
        return false;
    if (x.dim[0] != y.dim[0] || x.dim[1] != w.dim[1] * c.groups || y.dim[1] != w.dim[0] || w.dim[0] % c.groups)
        return false;
    for (int i = 0; i < c.nd; i++) {
        int reach = (w.dim[2 + i] - 1) * c.dilation[i] + 1, have = x.dim[2 + i] + 2 * c.pad[i] - reach;
        if (have < 0 || have / c.stride[i] + 1 != y.dim[2 + i])
            return false;
    }
    return true;
}

/* Channels innermost, the rest in order without gaps but for the batch. */
bool packed_channels_last(const cudnnTensorStruct &t)
{
    int64_t step = 1;
    for (int turn = 0; turn < t.nd - 1; turn++) {
        int i = turn == 0 ? 1 : t.nd - turn;
        if (t.dim[i] > 1 && t.stride[i] != step)
            return false;
        step *= t.dim[i];
    }
    return true;
}

bool layout_fits(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnTensorStruct &y)
{
    return w.format == CUDNN_TENSOR_NCHW ||
           (packed_channels_last(x) && packed_channels_last(y) && x.type != CUDNN_DATA_DOUBLE);
}

const int FORWARD_PLAIN = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
          FORWARD_SPACE = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

/* Of the algorithms that give the same bits each time and are offered: the bytes that they want; false for others. */
bool wants(bool backward, int algo, size_t *bytes)
{
    bool plain = !backward && algo == FORWARD_PLAIN;
    *bytes = plain ? 0 : (size_t)SOME_WORKSPACE;
    return plain || algo == (backward ? (int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 : FORWARD_SPACE);
}

bool memory_fits(const Conv &c, int device)
{
    size_t size = element_size(convolve_type(c.y.type));
    return memory_check(c.from, convolve_span(c.source()), device, "cudnn: what is read") &&
           memory_check(c.weights, convolve_span(c.w), device, "cudnn: w") &&
           memory_check(c.to, convolve_span(c.target()), device, "cudnn: the result") &&
           (c.beta == 0 || memory_check(c.z, convolve_span(c.target()), device, "cudnn: z")) &&
           (!c.bias || memory_check(c.bias, (size_t)c.y.dim[1] * size, device, "cudnn: bias")) &&
           memory_check(c.workspace, c.workspace_bytes, device, "cudnn: workspace");
}

cudnnStatus_t put(cudnnHandle_t handle, Conv c, int algo, size_t given, const char *call)
{
    if (!object_check(handle, CUDNN, call))
        return CUDNN_STATUS_NOT_INITIALIZED;
    cudaStream_t s = stream_of(handle->stream, call);
    if (!s || !shapes_fit(c.x, c.w, c.op, c.y))
        return CUDNN_STATUS_BAD_PARAM;
    if (!wants(c.backward, algo, &c.workspace_bytes) || !layout_fits(c.x, c.w, c.y)) {
        report("%s: algorithm %d is not deterministic, needs more than there is, or is not for these layouts", call,
               algo);
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    if (given < c.workspace_bytes) {
        report("%s: a workspace of %zu bytes, the algorithm wants %zu", call, given, c.workspace_bytes);
        return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    }
    if (!memory_fits(c, s->device))
        return CUDNN_STATUS_BAD_PARAM;
    Lock lock(machine().lock);
    Work work;
    work.name = call;
    work.device = s->device;
    work.run = [c] { convolve_run(c); };
    stream_put(lock, s, std::move(work));
    return CUDNN_STATUS_SUCCESS;
}

double scalar(const void *p, cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE ? *(const double *)p : *(const float *)p;
}

template <typename T> cudnnStatus_t create(T **out)
{
    *out = new T{};
    object_add(*out, DESCRIPTOR);
    return CUDNN_STATUS_SUCCESS;
}

template <typename T> cudnnStatus_t destroy(T *p, const char *call)
{
    if (!object_check(p, DESCRIPTOR, call))
        return CUDNN_STATUS_BAD_PARAM;
    object_remove(p);
    delete p;
    return CUDNN_STATUS_SUCCESS;
}
} // namespace

} // namespace shim

using namespace shim;

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_BAD_PARAM     ? "CUDNN_STATUS_BAD_PARAM"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                  : "CUDNN_STATUS_EXECUTION_FAILED";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = new cudnnContext{device_now(), nullptr};
    object_add(*handle, CUDNN);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!object_check(handle, CUDNN, "cudnnDestroy"))
        return CUDNN_STATUS_NOT_INITIALIZED;
    object_remove(handle);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudnnSetStream");
    if (!object_check(handle, CUDNN, "cudnnSetStream") || !s || s->device != handle->device)
        return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t)
{
    return create(t);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t)
{
    return destroy(t, "cudnnDestroyTensorDescriptor");
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int nd, const int dim[],
                                         const int stride[])
{
    if (nd < 3 || nd > CUDNN_DIM_MAX)
        return CUDNN_STATUS_NOT_SUPPORTED;
    t->type = type;
    t->nd = nd;
    for (int i = 0; i < nd; i++) {
        if (dim[i] < 1 || stride[i] < 1)
            return CUDNN_STATUS_BAD_PARAM;
        t->dim[i] = dim[i];
        t->stride[i] = stride[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *f)
{
    return create(f);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t f)
{
    return destroy(f, "cudnnDestroyFilterDescriptor");
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int nd, const int dim[])
{
    if (nd < 3 || nd > CUDNN_DIM_MAX)
        return CUDNN_STATUS_NOT_SUPPORTED;
    f->type = type;
    f->format = format;
    f->nd = nd;
    for (int i = 0; i < nd; i++) {
        if (dim[i] < 1)
            return CUDNN_STATUS_BAD_PARAM;
        f->dim[i] = dim[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c)
{
    return create(c);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c)
{
    return destroy(c, "cudnnDestroyConvolutionDescriptor");
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int nd, const int pad[],
                                              const int stride[], const int dilation[], cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute)
{
    if (nd < 2 || nd > SPATIAL)
        return CUDNN_STATUS_NOT_SUPPORTED;
    c->nd = nd;
    for (int i = 0; i < nd; i++) {
        if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1)
            return CUDNN_STATUS_BAD_PARAM;
        c->pad[i] = pad[i];
        c->stride[i] = stride[i];
        c->dilation[i] = dilation[i];
    }
    c->mode = mode;
    c->compute = compute;
    c->groups = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math)
{
    c->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups)
{
    c->groups = groups;
    return groups > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *a)
{
    return create(a);
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t a)
{
    return destroy(a, "cudnnDestroyActivationDescriptor");
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t a, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double)
{
    a->mode = mode;
    a->nan = nan;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t c,
                                                     const cudnnTensorDescriptor_t y, const int want, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *found)
{
    *count = 0;
    if (!object_check(handle, CUDNN, "cudnnGetConvolutionForwardAlgorithm_v7"))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (!shapes_fit(*x, *w, *c, *y))
        return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t may = layout_fits(*x, *w, *y) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    const cudnnStatus_t no = CUDNN_STATUS_NOT_SUPPORTED;
    const size_t much = (size_t)1 << 40, some = SOME_WORKSPACE;
    const cudnnDeterminism_t same = CUDNN_DETERMINISTIC, other = CUDNN_NON_DETERMINISTIC;
    const cudnnConvolutionFwdAlgoPerf_t all[] = {
        {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, no, -1, 0, same, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, may, 1, 0, other, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_FFT, may, 2, much, same, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, may, 3, some, same, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, may, 4, 0, same, c->math, {0}}};
    for (const cudnnConvolutionFwdAlgoPerf_t &a : all)
        if (*count < want)
            found[(*count)++] = a;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t c,
                                                          const cudnnTensorDescriptor_t dx, const int want, int *count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *found)
{
    *count = 0;
    if (!object_check(handle, CUDNN, "cudnnGetConvolutionBackwardDataAlgorithm_v7"))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (!shapes_fit(*dx, *w, *c, *dy))
        return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t may = layout_fits(*dx, *w, *dy) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    const size_t much = (size_t)1 << 40, some = SOME_WORKSPACE;
    const cudnnDeterminism_t same = CUDNN_DETERMINISTIC, other = CUDNN_NON_DETERMINISTIC;
    const cudnnConvolutionBwdDataAlgoPerf_t all[] = {
        {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, may, 1, 0, other, c->math, {0}},
        {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, may, 2, much, same, c->math, {0}},
        {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, may, 3, some, same, c->math, {0}}};
    for (const cudnnConvolutionBwdDataAlgoPerf_t &a : all)
        if (*count < want)
            found[(*count)++] = a;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t xd,
                                      const void *x, const cudnnFilterDescriptor_t wd, const void *w,
                                      const cudnnConvolutionDescriptor_t op, cudnnConvolutionFwdAlgo_t algo,
                                      void *workspace, size_t bytes, const void *beta, const cudnnTensorDescriptor_t yd,
                                      void *y)
{
    double scale = scalar(alpha, yd->type), keep = scalar(beta, yd->type);
    Conv c = {false, *xd, *yd, *wd, *op, scale, keep, x, w, y, nullptr, y, workspace, 0, false};
    return put(handle, c, algo, bytes, "cudnnConvolutionForward");
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t wd,
                                           const void *w, const cudnnTensorDescriptor_t dyd, const void *dy,
                                           const cudnnConvolutionDescriptor_t op, cudnnConvolutionBwdDataAlgo_t algo,
                                           void *workspace, size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dxd, void *dx)
{
    double scale = scalar(alpha, dxd->type), keep = scalar(beta, dxd->type);
    Conv c = {true, *dxd, *dyd, *wd, *op, scale, keep, dy, w, dx, nullptr, dx, workspace, 0, false};
    return put(handle, c, algo, bytes, "cudnnConvolutionBackwardData");
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, const cudnnTensorDescriptor_t xd, const void *x,
    const cudnnFilterDescriptor_t wd, const void *w, const cudnnConvolutionDescriptor_t op,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes, const void *alpha2, const cudnnTensorDescriptor_t zd,
    const void *z, const cudnnTensorDescriptor_t bd, const void *bias, const cudnnActivationDescriptor_t activation,
    const cudnnTensorDescriptor_t yd, void *y)
{
    bool relu = activation->mode == CUDNN_ACTIVATION_RELU;
    if (!relu && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (!bias || bd->dim[1] != yd->dim[1] || zd->nd != yd->nd || !std::equal(zd->dim, zd->dim + zd->nd, yd->dim) ||
        !std::equal(zd->stride, zd->stride + zd->nd, yd->stride))
        return CUDNN_STATUS_BAD_PARAM;
    if (relu && activation->nan != CUDNN_PROPAGATE_NAN)
        report("cudnnConvolutionBiasActivationForward: a relu that drops NaN");
    double scale = scalar(alpha1, yd->type), keep = scalar(alpha2, yd->type);
    Conv c = {false, *xd, *yd, *wd, *op, scale, keep, x, w, z, bias, y, workspace, 0, relu};
    return put(handle, c, algo, bytes, "cudnnConvolutionBiasActivationForward");
}
