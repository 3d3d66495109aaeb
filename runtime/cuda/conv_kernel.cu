/* SPDX-License-Identifier: MIT
 *
 * Convolutions by kernels of our own: as they are defined, for what cuDNN does not take; and the steps behind one that
 * cuDNN has done. One thread a result. f32 is summed up in f32, shorter floats too, integers wrap. */
#if defined(__CUDACC__) || defined(APRT_CUDASHIM)
#include "autopar_rt_cuda.h"

enum { THREADS = 256 };

/* What a kernel gets by value. */
typedef struct conv_job {
    aprt_conv c;
    int64_t extent[APRT_MAX_RANK], sum_stride[APRT_MAX_RANK], count; /* of results */
    int64_t channels;                                                /* summed: this rank's */
    const void *operand[APRT_MAX_CONV_STEPS];
    int32_t first; /* step */
} conv_job;

template <typename T, typename S> struct plain {
    typedef T type;
    typedef S sum;
    static __device__ S load(T x) { return (S)x; }
    static __device__ T store(S x) { return (T)x; }
};
struct of_f16 {
    typedef uint16_t type;
    typedef float sum;
    static __device__ float load(uint16_t x) { return aprt_f16_to_f32(x); }
    static __device__ uint16_t store(float x) { return aprt_f32_to_f16(x); }
};
struct of_bf16 {
    typedef uint16_t type;
    typedef float sum;
    static __device__ float load(uint16_t x) { return aprt_bf16_to_f32(x); }
    static __device__ uint16_t store(float x) { return aprt_f32_to_bf16(x); }
};
/* Steps are those of floats; integers have none (backend/c_conv.c). */
typedef plain<float, float> of_f32;
typedef plain<double, double> of_f64;

static __device__ void take_apart(const conv_job &j, int64_t i, int64_t *index)
{
    for (int32_t d = j.c.nspatial + 3; d-- > 0;) {
        const int64_t rest = i / j.extent[d];
        index[d] = i - rest * j.extent[d];
        i = rest;
    }
}

static __device__ int64_t offset_of(int32_t n, const int64_t *index, const int64_t *stride)
{
    int64_t at = 0;
    for (int32_t d = 0; d < n; d++)
        at += index[d] * stride[d];
    return at;
}

/* The element of the operand that result `at` and kernel element `k` meet, or -1: a zero. */
static __device__ int64_t meet(const aprt_conv_dim &d, int64_t at, int64_t k)
{
    const int64_t i = at * d.stride + (d.flip ? d.kernel - 1 - k : k) * d.dilate - d.lo;
    return i < 0 || i % d.hole || i / d.hole >= d.in ? -1 : i / d.hole;
}

template <typename O>
static __device__ typename O::sum sum_of(const conv_job &j, const int64_t *index, const typename O::type *x,
                                         const typename O::type *w)
{
    const aprt_conv &c = j.c;
    typename O::sum sum = 0;
    int64_t places = 1;
    for (int32_t d = 0; d < c.nspatial; d++)
        places *= c.dim[d].kernel;
    for (int64_t place = 0; place < places; place++) {
        int64_t px = index[0] * c.x[0] + index[1] * c.x[1], pw = index[1] * c.w[0] + index[2] * c.w[1];
        int64_t rest = place;
        bool there = true;
        for (int32_t d = c.nspatial; d-- > 0;) {
            const int64_t k = rest % c.dim[d].kernel, i = meet(c.dim[d], index[3 + d], k);
            rest /= c.dim[d].kernel;
            there = there && i >= 0;
            px += i * c.x[3 + d];
            pw += k * c.w[3 + d];
        }
        for (int64_t i = 0; i < j.channels && there; i++)
            sum += O::load(x[px + i * c.x[2]]) * O::load(w[pw + i * c.w[2]]);
    }
    return sum;
}

template <typename O>
static __device__ typename O::sum step(const aprt_conv_step &s, typename O::sum y, typename O::sum o)
{
    switch (s.op) {
    case APRT_CONV_RELU:
        return y > 0 || y != y ? y : (typename O::sum)0;
    case APRT_CONV_ADD:
        return y + o;
    case APRT_CONV_MUL:
        return y * o;
    case APRT_CONV_MAX:
        return y > o || y != y ? y : o;
    default:
        return y < o || y != y ? y : o;
    }
}

/* Rounded to the type after each step. `before`: what y held. */
template <typename O>
static __device__ typename O::type steps(const conv_job &j, const int64_t *index, typename O::sum sum,
                                         typename O::type before)
{
    typename O::type to = O::store(sum);
    for (int32_t s = j.first; s < j.c.nsteps; s++) {
        const aprt_conv_step &at = j.c.step[s];
        typename O::sum o = (typename O::sum)at.number;
        if (at.other == APRT_CONV_OPERAND && at.operand < 0)
            o = O::load(before);
        else if (at.other == APRT_CONV_OPERAND)
            o = O::load(
                ((const typename O::type *)j.operand[at.operand])[offset_of(j.c.nspatial + 3, index, at.stride)]);
        to = O::store(step<O>(at, O::load(to), o));
    }
    return to;
}

template <typename O>
static __global__ void direct(const conv_job j, const typename O::type *x, const typename O::type *w,
                              typename O::type *y)
{
    const int64_t by = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < j.count; i += by) {
        int64_t index[APRT_MAX_RANK];
        take_apart(j, i, index);
        typename O::type *to = y + offset_of(j.c.nspatial + 3, index, j.c.y);
        const typename O::type before = j.c.nsteps ? *to : (typename O::type)0;
        *to = steps<O>(j, index, sum_of<O>(j, index, x, w), before);
    }
}

template <typename O>
static __global__ void only_steps(const conv_job j, const typename O::type *sum, typename O::type *y)
{
    const int64_t by = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < j.count; i += by) {
        int64_t index[APRT_MAX_RANK];
        take_apart(j, i, index);
        typename O::type *to = y + offset_of(j.c.nspatial + 3, index, j.c.y);
        const typename O::type from = sum[offset_of(j.c.nspatial + 3, index, j.sum_stride)];
        *to = steps<O>(j, index, O::load(from), *to);
    }
}

static conv_job make_job(const aprt_conv *conv, const int64_t turns[4], const void *const *operand, int32_t first)
{
    conv_job j;
    memset(&j, 0, sizeof j);
    j.c = *conv;
    j.count = 1;
    j.first = first;
    j.channels = turns[3];
    for (int32_t d = 0; d < conv->nspatial + 3; d++) {
        j.extent[d] = d < 3 ? turns[d] : conv->dim[d - 3].out;
        j.count *= j.extent[d];
    }
    for (int32_t s = 0; s < conv->nsteps; s++)
        if (conv->step[s].other == APRT_CONV_OPERAND && conv->step[s].operand >= 0)
            j.operand[conv->step[s].operand] = operand[conv->step[s].operand];
    return j;
}

template <typename O>
static cudaError_t launch_direct(cudaStream_t stream, int blocks, const conv_job &j, const void *x, const void *w,
                                 void *y)
{
    typedef typename O::type T;
    APRT_LAUNCH(direct<O>, blocks, THREADS, 0, stream, j, (const T *)x, (const T *)w, (T *)y);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_conv_direct(cudaStream_t stream, int blocks, const aprt_conv *conv, const int64_t turns[4],
                                        const void *x, const void *w, void *y, const void *const *operand)
{
    const conv_job j = make_job(conv, turns, operand, 0);
    switch (conv->dtype) {
    case APRT_F32:
        return launch_direct<of_f32>(stream, blocks, j, x, w, y);
    case APRT_F64:
        return launch_direct<of_f64>(stream, blocks, j, x, w, y);
    case APRT_F16:
        return launch_direct<of_f16>(stream, blocks, j, x, w, y);
    case APRT_BF16:
        return launch_direct<of_bf16>(stream, blocks, j, x, w, y);
    case APRT_I8:
    case APRT_U8:
    case APRT_BOOL:
        return launch_direct<plain<uint8_t, uint64_t>>(stream, blocks, j, x, w, y);
    case APRT_I16:
    case APRT_U16:
        return launch_direct<plain<uint16_t, uint64_t>>(stream, blocks, j, x, w, y);
    case APRT_I32:
    case APRT_U32:
        return launch_direct<plain<uint32_t, uint64_t>>(stream, blocks, j, x, w, y);
    case APRT_I64:
    case APRT_U64:
        return launch_direct<plain<uint64_t, uint64_t>>(stream, blocks, j, x, w, y);
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename O>
static cudaError_t launch_steps(cudaStream_t stream, int blocks, const conv_job &j, const void *sum, void *y)
{
    typedef typename O::type T;
    APRT_LAUNCH(only_steps<O>, blocks, THREADS, 0, stream, j, (const T *)sum, (T *)y);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_conv_steps(cudaStream_t stream, int blocks, const aprt_conv *conv, const int64_t turns[4],
                                       int32_t first, const void *sum, const int64_t *sum_stride, void *y,
                                       const void *const *operand)
{
    conv_job j = make_job(conv, turns, operand, first);
    memcpy(j.sum_stride, sum_stride, sizeof j.sum_stride);
    switch (conv->dtype) {
    case APRT_F32:
        return launch_steps<of_f32>(stream, blocks, j, sum, y);
    case APRT_F64:
        return launch_steps<of_f64>(stream, blocks, j, sum, y);
    case APRT_F16:
        return launch_steps<of_f16>(stream, blocks, j, sum, y);
    case APRT_BF16:
        return launch_steps<of_bf16>(stream, blocks, j, sum, y);
    default:
        return cudaErrorInvalidValue;
    }
}
#endif
