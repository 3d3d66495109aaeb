/* SPDX-License-Identifier: MIT
 *
 * Boxes of elements on the device: packed, unpacked, folded. One thread an element, by strides of the grid; the element
 * number of a box is taken apart by its extents, the innermost of which are neighbours in memory on at least one side.
 */
#if defined(__CUDACC__) || defined(APRT_CUDASHIM)
#include "autopar_rt_cuda.h"

enum { THREADS = 256, MAX_DIMS = APRT_MAX_LOOPS };

/* As in runtime/internal.h, which C++ does not read. */
typedef struct cuda_box {
    int32_t ndims;
    int64_t extent[MAX_DIMS], a[MAX_DIMS], b[MAX_DIMS];
} cuda_box;

static __device__ void find(const cuda_box &box, int64_t i, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int32_t d = box.ndims; d-- > 0;) {
        const int64_t rest = i / box.extent[d], at = i - rest * box.extent[d];
        *a += at * box.a[d];
        *b += at * box.b[d];
        i = rest;
    }
}

template <typename T> static __global__ void copy_box(cuda_box box, int64_t first, int64_t last, const T *src, T *dst)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < last; i += step) {
        int64_t a, b;
        find(box, i, &a, &b);
        dst[b] = src[a];
    }
}

/* How values of a type are added up: `to` and `from` a wider one, `add`, `most`, `least`. */
#define ARITHMETIC(name, T, A, TO, FROM, ADD, s)                                                                       \
    struct name {                                                                                                      \
        typedef T type;                                                                                                \
        typedef A wide;                                                                                                \
        static __device__ A to(T x) { return TO(x); }                                                                  \
        static __device__ T from(A x) { return FROM(x); }                                                              \
        static __device__ A add(A x, A y) { return ADD(x, y); }                                                        \
        static __device__ A most(A x, A y) { return aprt_max_##s(x, y); }                                              \
        static __device__ A least(A x, A y) { return aprt_min_##s(x, y); }                                             \
    }
#define SAME(x) (x)
#define ADD_FLOAT(x, y) ((x) + (y))
ARITHMETIC(of_f32, float, float, SAME, SAME, ADD_FLOAT, f32);
ARITHMETIC(of_f64, double, double, SAME, SAME, ADD_FLOAT, f64);
ARITHMETIC(of_f16, uint16_t, float, aprt_f16_to_f32, aprt_f32_to_f16, ADD_FLOAT, f32);
ARITHMETIC(of_bf16, uint16_t, float, aprt_bf16_to_f32, aprt_f32_to_bf16, ADD_FLOAT, f32);
ARITHMETIC(of_i8, int8_t, int8_t, SAME, SAME, aprt_add_i8, i8);
ARITHMETIC(of_u8, uint8_t, uint8_t, SAME, SAME, aprt_add_u8, u8);
ARITHMETIC(of_i16, int16_t, int16_t, SAME, SAME, aprt_add_i16, i16);
ARITHMETIC(of_u16, uint16_t, uint16_t, SAME, SAME, aprt_add_u16, u16);
ARITHMETIC(of_i32, int32_t, int32_t, SAME, SAME, aprt_add_i32, i32);
ARITHMETIC(of_u32, uint32_t, uint32_t, SAME, SAME, aprt_add_u32, u32);
ARITHMETIC(of_i64, int64_t, int64_t, SAME, SAME, aprt_add_i64, i64);
ARITHMETIC(of_u64, uint64_t, uint64_t, SAME, SAME, aprt_add_u64, u64);

template <typename O>
static __global__ void fold_box(cuda_box box, int64_t count, int32_t fold, int32_t n, int64_t apart,
                                const typename O::type *src, typename O::type *dst)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t a, b;
        find(box, i, &a, &b);
        typename O::wide sum = O::to(src[a]);
        for (int32_t p = 1; p < n; p++) {
            const typename O::wide x = O::to(src[p * apart + a]);
            sum = fold == APRT_FOLD_SUM ? O::add(sum, x) : fold == APRT_FOLD_MAX ? O::most(sum, x) : O::least(sum, x);
        }
        dst[b] = O::from(sum);
    }
}

/* As cuBLASLt does it: what follows a product. `sums`: in dst; otherwise they are zero. */
template <typename O>
static __global__ void after_box(cuda_box box, int64_t count, int32_t after, bool sums, const typename O::type *bias,
                                 typename O::type *dst)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t a, b;
        find(box, i, &a, &b);
        typename O::wide x = bias ? O::to(bias[a]) : (typename O::wide)0;
        if (sums)
            x = O::add(O::to(dst[b]), x);
        if (after == APRT_CUDA_GELU_TANH || after == APRT_CUDA_BIAS_GELU_TANH)
            x = (typename O::wide)(0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
        dst[b] = O::from(x);
    }
}

/* Where the matrices of a batch begin: out[i] of A, out[count + i] of B, out[2*count + i] of C. */
static __global__ void point(cuda_box ab, cuda_box c, int64_t count, int64_t size, const char *x, const char *y,
                             const char *z, const char **out)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t at_x, at_y, at_z, same;
        find(ab, i, &at_x, &at_y);
        find(c, i, &at_z, &same);
        out[i] = x + at_x * size;
        out[count + i] = y + at_y * size;
        out[2 * count + i] = z + at_z * size;
    }
}

static int64_t count_of(const cuda_box *box)
{
    int64_t n = 1;
    for (int32_t d = 0; d < box->ndims; d++)
        n *= box->extent[d];
    return n;
}

template <typename T>
static cudaError_t launch_copy(cudaStream_t stream, int blocks, const cuda_box *box, int64_t first, int64_t last,
                               const void *src, void *dst)
{
    APRT_LAUNCH(copy_box<T>, blocks, THREADS, 0, stream, *box, first, last, (const T *)src, (T *)dst);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_box_copy(cudaStream_t stream, int blocks, const cuda_box *box, int64_t first, int64_t last,
                                     int32_t size, const void *src, void *dst)
{
    switch (size) {
    case 1:
        return launch_copy<uint8_t>(stream, blocks, box, first, last, src, dst);
    case 2:
        return launch_copy<uint16_t>(stream, blocks, box, first, last, src, dst);
    case 4:
        return launch_copy<uint32_t>(stream, blocks, box, first, last, src, dst);
    case 8:
        return launch_copy<uint64_t>(stream, blocks, box, first, last, src, dst);
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename O>
static cudaError_t launch_fold(cudaStream_t stream, int blocks, const cuda_box *box, int32_t fold, int32_t n,
                               int64_t apart, const void *src, void *dst)
{
    typedef typename O::type T;
    APRT_LAUNCH(fold_box<O>, blocks, THREADS, 0, stream, *box, count_of(box), fold, n, apart, (const T *)src, (T *)dst);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_box_fold(cudaStream_t stream, int blocks, const cuda_box *box, int32_t dtype, int32_t fold,
                                     int32_t n, int64_t apart, const void *src, void *dst)
{
#define CASE(number, O)                                                                                                \
    case number:                                                                                                       \
        return launch_fold<O>(stream, blocks, box, fold, n, apart, src, dst)
    switch (dtype) {
        CASE(APRT_F32, of_f32);
        CASE(APRT_F64, of_f64);
        CASE(APRT_F16, of_f16);
        CASE(APRT_BF16, of_bf16);
        CASE(APRT_I8, of_i8);
        CASE(APRT_U8, of_u8);
        CASE(APRT_BOOL, of_u8);
        CASE(APRT_I16, of_i16);
        CASE(APRT_U16, of_u16);
        CASE(APRT_I32, of_i32);
        CASE(APRT_U32, of_u32);
        CASE(APRT_I64, of_i64);
        CASE(APRT_U64, of_u64);
    default:
        return cudaErrorInvalidValue;
    }
#undef CASE
}

template <typename O>
static cudaError_t launch_after(cudaStream_t stream, int blocks, const cuda_box *box, int32_t after, bool sums,
                                const void *bias, void *dst)
{
    typedef typename O::type T;
    APRT_LAUNCH(after_box<O>, blocks, THREADS, 0, stream, *box, count_of(box), after, sums, (const T *)bias, (T *)dst);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_box_point(cudaStream_t stream, int blocks, const cuda_box *ab, const cuda_box *c,
                                      int64_t size, const void *x, const void *y, const void *z, void *out)
{
    APRT_LAUNCH(point, blocks, THREADS, 0, stream, *ab, *c, count_of(ab), size, (const char *)x, (const char *)y,
                (const char *)z, (const char **)out);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_box_after(cudaStream_t stream, int blocks, const cuda_box *box, int32_t dtype,
                                      int32_t after, bool sums, const void *bias, void *dst)
{
    switch (dtype) {
    case APRT_F32:
        return launch_after<of_f32>(stream, blocks, box, after, sums, bias, dst);
    case APRT_F64:
        return launch_after<of_f64>(stream, blocks, box, after, sums, bias, dst);
    case APRT_F16:
        return launch_after<of_f16>(stream, blocks, box, after, sums, bias, dst);
    case APRT_BF16:
        return launch_after<of_bf16>(stream, blocks, box, after, sums, bias, dst);
    default:
        return cudaErrorInvalidValue;
    }
}
#endif
