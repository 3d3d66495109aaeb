/* cuDNN: forward convolutions, in plain loops.
 *
 * The heuristics offer what a caller must turn down if it wants the same bits each time, f32 as f32, or a small
 * workspace; an algorithm uses the workspace that it said. */
#include <algorithm>

#include "include/cudnn.h"
#include "matmul.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
struct cudnnTensorStruct {
    cudnnDataType_t type;
    int nd, dim[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX];
};
struct cudnnFilterStruct {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int nd, dim[CUDNN_DIM_MAX];
};
struct cudnnConvolutionStruct {
    int nd, pad[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX], dilation[CUDNN_DIM_MAX];
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
    int groups;
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

struct Conv {
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct op;
    double alpha, beta; /* of what is added: y or z */
    const void *px, *pw, *pz, *pbias;
    void *py, *workspace;
    size_t workspace_bytes;
    bool relu;
};

int32_t kind(cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE     ? CUDA_R_64F
           : type == CUDNN_DATA_HALF     ? CUDA_R_16F
           : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
                                         : CUDA_R_32F;
}

size_t span(const cudnnTensorStruct &t)
{
    int64_t last = 0;
    for (int i = 0; i < t.nd; i++)
        last += (int64_t)(t.dim[i] - 1) * t.stride[i];
    return (size_t)(last + 1) * element_size(kind(t.type));
}

size_t span(const cudnnFilterStruct &w)
{
    size_t n = element_size(kind(w.type));
    for (int i = 0; i < w.nd; i++)
        n *= (size_t)w.dim[i];
    return n;
}

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

struct Place { /* of one result: batch, channel, and where */
    int64_t n, m, at[SPATIAL];
};

/* Strides of the weights: of a kernel, of a channel, of a step along each dimension. */
void filter_strides(const cudnnFilterStruct &w, int64_t *out)
{
    int64_t step = 1;
    if (w.format == CUDNN_TENSOR_NHWC) {
        out[1] = 1;
        step = w.dim[1];
    }
    for (int i = w.nd - 1; i >= 2; i--) {
        out[i] = step;
        step *= w.dim[i];
    }
    if (w.format == CUDNN_TENSOR_NCHW) {
        out[1] = step;
        step *= w.dim[1];
    }
    out[0] = step;
}

/* Operands as numbers, rounded as tensor cores would where the operation allows it. */
template <typename T> T number(const void *base, int64_t i, cudnnDataType_t type, bool rounded)
{
    T v = (T)matmul_read(base, i, kind(type));
    return rounded ? (T)matmul_tf32((float)v) : v;
}

template <typename T> T result(const Conv &c, const Place &p, const int64_t *ws, const std::vector<T> &w, bool rounded)
{
    int64_t per_group = c.w.dim[0] / c.op.groups, first = p.m / per_group * c.w.dim[1];
    int64_t taps = 1, bx = p.n * c.x.stride[0] + first * c.x.stride[1], bw = p.m * ws[0];
    int nd = c.op.nd;
    for (int i = 0; i < nd; i++)
        taps *= c.w.dim[2 + i];
    T sum = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t ox = bx, ow = bw, rest = tap;
        bool inside = true;
        for (int i = nd - 1; i >= 0; i--) {
            int64_t k = rest % c.w.dim[2 + i];
            rest /= c.w.dim[2 + i];
            int64_t at = p.at[i] * c.op.stride[i] - c.op.pad[i] + k * c.op.dilation[i];
            inside = inside && at >= 0 && at < c.x.dim[2 + i];
            ox += at * c.x.stride[2 + i];
            ow += (c.op.mode == CUDNN_CONVOLUTION ? c.w.dim[2 + i] - 1 - k : k) * ws[2 + i];
        }
        for (int64_t ch = 0; inside && ch < c.w.dim[1]; ch++)
            sum += number<T>(c.px, ox + ch * c.x.stride[1], c.x.type, rounded) * w[(size_t)(ow + ch * ws[1])];
    }
    return sum;
}

template <typename T> void run(const Conv &c)
{
    bool rounded = c.x.type == CUDNN_DATA_FLOAT && c.op.math == CUDNN_TENSOR_OP_MATH;
    int64_t ws[CUDNN_DIM_MAX], results = 1;
    filter_strides(c.w, ws);
    std::vector<T> w(span(c.w) / element_size(kind(c.w.type)));
    for (size_t i = 0; i < w.size(); i++)
        w[i] = number<T>(c.pw, (int64_t)i, c.w.type, rounded);
    for (int i = 0; i < c.y.nd; i++)
        results *= c.y.dim[i];
    for (int64_t r = 0; r < results; r++) {
        Place p = {0, 0, {0, 0, 0}};
        int64_t rest = r, to = 0;
        for (int i = c.y.nd - 1; i >= 0; i--) {
            int64_t at = rest % c.y.dim[i];
            rest /= c.y.dim[i];
            to += at * c.y.stride[i];
            (i >= 2 ? p.at[i - 2] : i == 1 ? p.m : p.n) = at;
        }
        T v = (T)c.alpha * result(c, p, ws, w, rounded);
        if (c.beta != 0)
            v += (T)c.beta * number<T>(c.pz, to, c.y.type, false);
        if (c.pbias)
            v += number<T>(c.pbias, p.m, c.y.type, false);
        if (c.relu)
            v = v > 0 || v != v ? v : 0;
        matmul_write(c.py, to, kind(c.y.type), v);
    }
}

void run_all(const Conv &c)
{
    check_range(c.px, span(c.x), false);
    check_range(c.pw, span(c.w), false);
    if (c.beta != 0)
        check_range(c.pz, span(c.y), false);
    check_range(c.py, span(c.y), true);
    if (c.workspace_bytes) {
        check_range(c.workspace, c.workspace_bytes, true);
        memset(c.workspace, 0xff, c.workspace_bytes);
    }
    if (c.y.type == CUDNN_DATA_DOUBLE)
        run<double>(c);
    else
        run<float>(c);
}

size_t wants(cudnnConvolutionFwdAlgo_t algo)
{
    return algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ? 0 : (size_t)SOME_WORKSPACE;
}

cudnnStatus_t put(cudnnHandle_t handle, Conv c, cudnnConvolutionFwdAlgo_t algo, size_t given, const char *call)
{
    if (!object_check(handle, CUDNN, call))
        return CUDNN_STATUS_NOT_INITIALIZED;
    cudaStream_t s = stream_of(handle->stream, call);
    if (!s || !shapes_fit(c.x, c.w, c.op, c.y))
        return CUDNN_STATUS_BAD_PARAM;
    if (algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM && algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
        report("%s: algorithm %d is not deterministic, or needs more than there is", call, algo);
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    c.workspace_bytes = wants(algo);
    if (given < c.workspace_bytes) {
        report("%s: a workspace of %zu bytes, the algorithm wants %zu", call, given, c.workspace_bytes);
        return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
    }
    if (!memory_check(c.px, span(c.x), s->device, "cudnn: x") ||
        !memory_check(c.pw, span(c.w), s->device, "cudnn: w") ||
        !memory_check(c.py, span(c.y), s->device, "cudnn: y") ||
        (c.beta != 0 && !memory_check(c.pz, span(c.y), s->device, "cudnn: z")) ||
        (c.pbias &&
         !memory_check(c.pbias, (size_t)c.y.dim[1] * element_size(kind(c.y.type)), s->device, "cudnn: bias")) ||
        !memory_check(c.workspace, c.workspace_bytes, s->device, "cudnn: workspace"))
        return CUDNN_STATUS_BAD_PARAM;
    Lock lock(machine().lock);
    Work work;
    work.name = call;
    work.device = s->device;
    work.run = [c] { run_all(c); };
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
    const cudnnConvolutionFwdAlgoPerf_t all[] = {
        {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_STATUS_NOT_SUPPORTED, -1, 0, CUDNN_DETERMINISTIC, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
         CUDNN_STATUS_SUCCESS,
         1,
         0,
         CUDNN_NON_DETERMINISTIC,
         c->math,
         {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_STATUS_SUCCESS, 2, (size_t)1 << 40, CUDNN_DETERMINISTIC, c->math, {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
         CUDNN_STATUS_SUCCESS,
         3,
         SOME_WORKSPACE,
         CUDNN_DETERMINISTIC,
         c->math,
         {0}},
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_STATUS_SUCCESS, 4, 0, CUDNN_DETERMINISTIC, c->math, {0}}};
    for (const cudnnConvolutionFwdAlgoPerf_t &a : all)
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
    Conv c = {*xd, *yd,       *wd, *op,  scalar(alpha, yd->type), scalar(beta, yd->type), x, w, y, nullptr,
              y,   workspace, 0,   false};
    return put(handle, c, algo, bytes, "cudnnConvolutionForward");
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
    Conv c = {*xd, *yd,       *wd, *op, scalar(alpha1, yd->type), scalar(alpha2, yd->type), x, w, z, bias,
              y,   workspace, 0,   relu};
    return put(handle, c, algo, bytes, "cudnnConvolutionBiasActivationForward");
}
