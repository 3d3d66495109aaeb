/* SPDX-License-Identifier: MIT
 *
 * Convolutions by kernels of our own: as they are defined, for what cuDNN does not take; and what goes before and
 * behind one that cuDNN does. f32 is summed up in f32, shorter floats too, integers wrap.
 *
 * The convolution itself is a product of matrices that are never written down: a block computes TM channels at TP
 * positions (of all batches and all places of the result), a thread EACH channels at one of them. It goes over all
 * places of the kernel and all channels of the operand, TK at a time, which all threads fetch into shared memory. */
#if defined(__CUDACC__) || defined(APRT_CUDASHIM)
#include "conv_kernel.h"

enum { THREADS = 256 };

/* What a kernel gets by value. */
typedef struct conv_job {
    aprt_conv c;
    int64_t extent[APRT_MAX_RANK], count; /* of results */
    int64_t channels;                     /* summed: this rank's */
    conv_sums sums;
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

/* ---- the convolution ---- */

/* Shared memory of a block: first what is known of its positions and of the elements of the kernel at hand. */
template <typename O, int TM, int TP> struct tile {
    enum { TK = TM == 1 ? 8 : 16, EACH = TM * TP / THREADS, ROW = TP + 1 /* against conflicts of banks */ };
    int64_t first[TP];                   /* of a position: the operand of its batch; -1: there is none */
    int64_t place[APRT_MAX_SPATIAL][TP]; /* where its window begins */
    int64_t channel[TK];                 /* of an element: its channel; -1: there is none */
    int64_t tap[APRT_MAX_SPATIAL][TK];   /* its distance from the window's begin */
    typename O::sum x[TK * ROW], w[TK * TM];
};

template <typename T> static __device__ void find_position(const conv_job &j, int64_t group, int64_t at, int t, T &s)
{
    const aprt_conv &c = j.c;
    for (int32_t d = c.nspatial; d-- > 0;) {
        const int64_t rest = at / j.extent[3 + d];
        s.place[d][t] = (at - rest * j.extent[3 + d]) * c.dim[d].stride - c.dim[d].lo;
        at = rest;
    }
    s.first[t] = at < j.extent[0] ? at * c.x[0] + group * c.x[1] : -1;
}

template <typename T> static __device__ void find_tap(const conv_job &j, int64_t at, int64_t depth, int t, T &s)
{
    const aprt_conv &c = j.c;
    s.channel[t] = at < depth ? at % j.channels : -1;
    at = at < depth ? at / j.channels : 0;
    for (int32_t d = c.nspatial; d-- > 0;) {
        const int64_t rest = at / c.dim[d].kernel;
        s.tap[d][t] = (at - rest * c.dim[d].kernel) * c.dim[d].dilate;
        at = rest;
    }
}

/* The element of the operand where position p and element k meet, or a zero. */
template <typename O, typename T>
static __device__ typename O::sum meet(const conv_job &j, const T &s, int k, int p, const typename O::type *x)
{
    const aprt_conv &c = j.c;
    int64_t at = s.first[p];
    bool there = at >= 0 && s.channel[k] >= 0;
    at += s.channel[k] * c.x[2];
    for (int32_t d = 0; d < c.nspatial; d++) {
        const aprt_conv_dim &dim = c.dim[d];
        int64_t i = s.place[d][p] + s.tap[d][k];
        there = there && i >= 0;
        if (dim.hole > 1) {
            const int64_t whole = i / dim.hole;
            there = there && whole * dim.hole == i;
            i = whole;
        }
        there = there && i < dim.in;
        at += i * c.x[3 + d];
    }
    return there ? O::load(x[at]) : (typename O::sum)0;
}

/* Neighbouring threads fetch what lies together. w: [g, kernel * channels, m]. */
template <typename O, int TM, int TP>
static __device__ void fetch(const conv_job &j, tile<O, TM, TP> &s, int64_t group, int64_t k0, int64_t m0,
                             int64_t depth, const typename O::type *x, const typename O::type *w)
{
    typedef tile<O, TM, TP> T;
    for (int e = (int)threadIdx.x; e < T::TK * TP; e += THREADS) {
        const bool by_channel = j.c.x[2] == 1;
        const int k = by_channel ? e % T::TK : e / TP, p = by_channel ? e / T::TK : e % TP;
        s.x[k * T::ROW + p] = meet<O>(j, s, k, p, x);
    }
    for (int e = (int)threadIdx.x; e < T::TK * TM; e += THREADS) {
        const int64_t k = k0 + e / TM, m = m0 + e % TM;
        s.w[e] = k < depth && m < j.extent[2] ? O::load(w[(group * depth + k) * j.extent[2] + m]) : (typename O::sum)0;
    }
}

template <typename O, int TM, int TP>
static __device__ void store(const conv_job &j, int64_t group, int64_t position, int64_t m0, const typename O::sum *sum,
                             typename O::type *y)
{
    int64_t index[APRT_MAX_RANK], rest = position;
    for (int32_t d = j.c.nspatial; d-- > 0; rest /= j.extent[3 + d])
        index[3 + d] = rest % j.extent[3 + d];
    index[0] = rest;
    index[1] = group;
    if (rest >= j.extent[0])
        return;
    for (int e = 0; e < tile<O, TM, TP>::EACH && m0 + e < j.extent[2]; e++) {
        index[2] = m0 + e;
        typename O::type *to = y + offset_of(j.c.nspatial + 3, index, j.c.y);
        const typename O::type before = j.c.nsteps ? *to : (typename O::type)0;
        *to = steps<O>(j, index, sum[e], before);
    }
}

template <typename O, int TM, int TP>
static __global__ void direct(const conv_job j, int64_t depth, int64_t tiles_p, int64_t tiles_m,
                              const typename O::type *x, const typename O::type *w, typename O::type *y)
{
    typedef tile<O, TM, TP> T;
    APRT_SHARED(int64_t, space);
    T &s = *(T *)space;
    const int t = (int)threadIdx.x, p = t % TP, m = t / TP * T::EACH;
    for (int64_t at = blockIdx.x; at < j.extent[1] * tiles_m * tiles_p; at += gridDim.x) {
        const int64_t p0 = at % tiles_p * TP, m0 = at / tiles_p % tiles_m * TM, group = at / tiles_p / tiles_m;
        typename O::sum sum[T::EACH] = {0};
        if (t < TP) /* of the tile before only x and w are still read */
            find_position(j, group, p0 + t, t, s);
        for (int64_t k0 = 0; k0 < depth; k0 += T::TK) {
            if (t < T::TK)
                find_tap(j, k0 + t, depth, t, s);
            __syncthreads();
            fetch<O, TM, TP>(j, s, group, k0, m0, depth, x, w);
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < T::TK; k++)
#pragma unroll
                for (int e = 0; e < T::EACH; e++)
                    sum[e] += s.x[k * T::ROW + p] * s.w[k * TM + m + e];
        }
        store<O, TM, TP>(j, group, p0 + p, m0 + m, sum, y);
    }
}

/* ---- what goes before and behind ---- */

template <typename O>
static __global__ void only_steps(const conv_job j, const typename O::type *sum, typename O::type *y)
{
    const int64_t by = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < j.count; i += by) {
        int64_t index[APRT_MAX_RANK];
        take_apart(j, i, index);
        typename O::type *to = y + offset_of(j.c.nspatial + 3, index, j.c.y);
        const typename O::type *from = sum + offset_of(3, index, j.sums.stride);
        bool there = true;
        for (int32_t d = 0; d < j.c.nspatial; d++) {
            const int64_t place = index[3 + d] + j.sums.shift[d];
            there = there && place >= 0 && place < j.sums.have[d];
            from += place * j.sums.stride[3 + d];
        }
        *to = steps<O>(j, index, there ? O::load(*from) : (typename O::sum)0, *to);
    }
}

template <typename T> static __global__ void copy_operand(const conv_copy c, int64_t count, const T *src, T *dst)
{
    const int64_t by = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += by) {
        int64_t rest = i, from = 0;
        bool there = true;
        for (int32_t d = c.ndims; d-- > 0;) {
            const int64_t outer = rest / c.extent[d], place = rest - outer * c.extent[d] - c.lo[d],
                          whole = place / c.hole[d];
            there = there && place >= 0 && whole * c.hole[d] == place && whole < c.in[d];
            from += whole * c.stride[d];
            rest = outer;
        }
        dst[i] = there ? src[from] : (T)0;
    }
}

/* ---- launches ---- */

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

template <typename O, int TM, int TP>
static cudaError_t launch_tiles(cudaStream_t stream, int blocks, const conv_job &j, const void *x, const void *w,
                                void *y)
{
    typedef typename O::type T;
    int64_t depth = j.channels, positions = j.extent[0];
    for (int32_t d = 0; d < j.c.nspatial; d++) {
        depth *= j.c.dim[d].kernel;
        positions *= j.extent[3 + d];
    }
    const int64_t tiles_p = (positions + TP - 1) / TP, tiles_m = (j.extent[2] + TM - 1) / TM,
                  tiles = j.extent[1] * tiles_m * tiles_p;
    auto kernel = direct<O, TM, TP>;
    APRT_LAUNCH(kernel, tiles < blocks ? (int)tiles : blocks, THREADS, sizeof(tile<O, TM, TP>), stream, j, depth,
                tiles_p, tiles_m, (const T *)x, (const T *)w, (T *)y);
    return cudaGetLastError();
}

/* One channel a thread where there are few: a group for each channel. */
template <typename O>
static cudaError_t launch_direct(cudaStream_t stream, int blocks, const conv_job &j, const void *x, const void *w,
                                 void *y)
{
    return j.extent[2] < 4 ? launch_tiles<O, 1, 256>(stream, blocks, j, x, w, y)
                           : launch_tiles<O, 16, 128>(stream, blocks, j, x, w, y);
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
        return launch_direct<plain<uint8_t, uint32_t>>(stream, blocks, j, x, w, y);
    case APRT_I16:
    case APRT_U16:
        return launch_direct<plain<uint16_t, uint32_t>>(stream, blocks, j, x, w, y);
    case APRT_I32:
    case APRT_U32:
        return launch_direct<plain<uint32_t, uint32_t>>(stream, blocks, j, x, w, y);
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
                                       int32_t first, const conv_sums *how, const void *sum, void *y,
                                       const void *const *operand)
{
    conv_job j = make_job(conv, turns, operand, first);
    j.sums = *how;
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

template <typename T>
static cudaError_t launch_copy(cudaStream_t stream, int blocks, const conv_copy *copy, const void *src, void *dst)
{
    int64_t count = 1;
    for (int32_t d = 0; d < copy->ndims; d++)
        count *= copy->extent[d];
    APRT_LAUNCH(copy_operand<T>, blocks, THREADS, 0, stream, *copy, count, (const T *)src, (T *)dst);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_conv_copy(cudaStream_t stream, int blocks, const conv_copy *copy, int32_t size,
                                      const void *src, void *dst)
{
    switch (size) {
    case 1:
        return launch_copy<uint8_t>(stream, blocks, copy, src, dst);
    case 2:
        return launch_copy<uint16_t>(stream, blocks, copy, src, dst);
    case 4:
        return launch_copy<uint32_t>(stream, blocks, copy, src, dst);
    default:
        return launch_copy<uint64_t>(stream, blocks, copy, src, dst);
    }
}
#endif
