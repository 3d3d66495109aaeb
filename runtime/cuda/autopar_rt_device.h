/* SPDX-License-Identifier: MIT
 *
 * autopar_rt_device.h - what kernels.cu is made of: several elements in one access, folds over the threads that share
 * a row, running folds, the first k of a row. Nothing here uses floating-point atomics, and the order of every fold is
 * fixed by the number of threads, so that results are the same in every run.
 *
 * The threads that share a row are a *group*: G adjacent threads of a warp (G a power of two, at most 32), a block of G
 * threads (a multiple of 32), or the threads of one column of a block 32 wide.
 */
#ifndef AUTOPAR_RT_DEVICE_H
#define AUTOPAR_RT_DEVICE_H

#include "autopar_rt_cuda.h"

#define APRT_DEVICE static __device__ __forceinline__
#define APRT_EVERYONE 0xffffffffu /* of a warp */

/* ---- several elements in one access ---- */

constexpr int aprt_pack_align(int bytes)
{
    return bytes < 16 ? bytes : 16;
}

/* V adjacent elements, of which the first one lies on a multiple of V elements, or of 16 bytes. */
template <int V, class T> struct alignas(aprt_pack_align(V *(int)sizeof(T))) aprt_pack {
    T at[V];
};
template <int V, class T> APRT_DEVICE aprt_pack<V, T> aprt_load_pack(const T *x)
{
    return *(const aprt_pack<V, T> *)x;
}
template <int V, class T> APRT_DEVICE void aprt_store_pack(T *y, const aprt_pack<V, T> &x)
{
    *(aprt_pack<V, T> *)y = x;
}

/* ---- folds ---- */

template <class T> struct aprt_sum {
    __device__ T operator()(T x, T y) const { return x + y; }
};
template <class T> struct aprt_prod {
    __device__ T operator()(T x, T y) const { return x * y; }
};
template <class T> struct aprt_most {
    __device__ T operator()(T x, T y) const { return x > y ? x : y; }
};
template <class T> struct aprt_least {
    __device__ T operator()(T x, T y) const { return x < y ? x : y; }
};
/* NaN wins. */
template <> struct aprt_most<float> {
    __device__ float operator()(float x, float y) const { return aprt_max_f32(x, y); }
};
template <> struct aprt_least<float> {
    __device__ float operator()(float x, float y) const { return aprt_min_f32(x, y); }
};
template <> struct aprt_most<double> {
    __device__ double operator()(double x, double y) const { return aprt_max_f64(x, y); }
};
template <> struct aprt_least<double> {
    __device__ double operator()(double x, double y) const { return aprt_min_f64(x, y); }
};

/* A number and where it stood; at < 0: none yet. */
template <class T> struct aprt_place {
    T x;
    int64_t at;
};
/* The larger one wins, a NaN before all; of equals the first. */
template <class T> struct aprt_first_most {
    __device__ aprt_place<T> operator()(aprt_place<T> a, aprt_place<T> b) const
    {
        bool nan_a = a.x != a.x, nan_b = b.x != b.x;
        bool better = nan_a || nan_b ? nan_b && !nan_a : b.x > a.x, equal = nan_a ? nan_b : b.x == a.x;
        return a.at < 0 || (b.at >= 0 && (better || (equal && b.at < a.at))) ? b : a;
    }
};
template <class T> struct aprt_first_least {
    __device__ aprt_place<T> operator()(aprt_place<T> a, aprt_place<T> b) const
    {
        bool nan_a = a.x != a.x, nan_b = b.x != b.x;
        bool better = nan_a || nan_b ? nan_b && !nan_a : b.x < a.x, equal = nan_a ? nan_b : b.x == a.x;
        return a.at < 0 || (b.at >= 0 && (better || (equal && b.at < a.at))) ? b : a;
    }
};

template <class T> APRT_DEVICE T aprt_from_lane(T x, int other, int width)
{
    return (T)__shfl_xor_sync(APRT_EVERYONE, x, other, width);
}
template <class T> APRT_DEVICE aprt_place<T> aprt_from_lane(aprt_place<T> x, int other, int width)
{
    return {(T)__shfl_xor_sync(APRT_EVERYONE, x.x, other, width), __shfl_xor_sync(APRT_EVERYONE, x.at, other, width)};
}

/* Bytes of shared memory that a fold over a block or over columns of one needs, for the largest of its types. */
enum { APRT_FOLD_BYTES = 32 * 16, APRT_COLUMN_BYTES = 32 * 16 };

/* x of all G threads together; every thread has the result. Called by all threads of the warp (G <= 32) or block. */
template <int G, class F, class T> APRT_DEVICE T aprt_fold_row(T x, unsigned char *shared)
{
    const F fold;
#pragma unroll
    for (int other = 1; other < (G < 32 ? G : 32); other *= 2)
        x = fold(x, aprt_from_lane(x, other, G < 32 ? G : 32));
    if (G <= 32)
        return x;
    T *const of_warp = (T *)shared;
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
    for (int i = 1; i < G / 32; i++)
        x = fold(x, of_warp[i]);
    __syncthreads();
    return x;
}

/* The same for the G threads of a column: thread t of the block is in column t mod 32. `shared`: G * APRT_COLUMN_BYTES.
 */
template <int G, class F, class T> APRT_DEVICE T aprt_fold_column(T x, unsigned char *shared)
{
    const F fold;
    const int column = threadIdx.x % 32;
    T *const all = (T *)shared;
    if (G == 1)
        return x;
    all[threadIdx.x] = x;
    __syncthreads();
    x = all[column];
    for (int i = 1; i < G; i++)
        x = fold(x, all[i * 32 + column]);
    __syncthreads();
    return x;
}

/* Folds x of the threads of a warp up to and including this one. */
template <class F, class T> APRT_DEVICE T aprt_running(T x)
{
    const F fold;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int back = 1; back < 32; back *= 2) {
        const T before = (T)__shfl_up_sync(APRT_EVERYONE, x, back);
        if (lane >= back)
            x = fold(before, x);
    }
    return x;
}

/* ---- the first k of a row, by a block of G threads ---- */

/* Does a stand before b? NaN is larger than any number; equals stand in order of position; nothing (at < 0) is last. */
template <bool largest, class T> APRT_DEVICE bool aprt_before(aprt_place<T> a, aprt_place<T> b)
{
    const bool nan_a = a.x != a.x, nan_b = b.x != b.x;
    const bool less = nan_b ? !nan_a : a.x < b.x, more = nan_a ? !nan_b : b.x < a.x;
    if (a.at < 0 || b.at < 0)
        return a.at >= 0;
    return (largest ? more : less) || (!(largest ? less : more) && a.at < b.at);
}
template <bool largest, class T> struct aprt_earlier {
    __device__ aprt_place<T> operator()(aprt_place<T> a, aprt_place<T> b) const
    {
        return aprt_before<largest>(b, a) ? b : a;
    }
};

/* N, a power of two, elements in shared memory, put in order: bitonic sort. */
template <bool largest, int G, int N, class T> APRT_DEVICE void aprt_sort(aprt_place<T> *row)
{
    for (int run = 2; run <= N; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < N / 2; i += G) {
                const int a = i / step * 2 * step + i % step, b = a + step;
                const bool upwards = (a & run) == 0;
                const aprt_place<T> x = row[a], y = row[b];
                if (aprt_before<largest>(y, x) == upwards) {
                    row[a] = y;
                    row[b] = x;
                }
            }
            __syncthreads();
        }
}

#endif
