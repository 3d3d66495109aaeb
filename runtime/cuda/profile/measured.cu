/* SPDX-License-Identifier: MIT
 *
 * Kernels of the kind that autopar emits (docs/cuda.md): pointwise ones of 16 bytes a thread, row kernels whose rows
 * are read once and kept in registers, a warp or a block for each. */
#include "profile.h"

#include "autopar_rt_device.h"

enum { THREADS = 256 };

static int64_t blocks_for(int64_t turns, int64_t each)
{
    return (turns + each - 1) / each;
}

/* ---- numbers ---- */

static __global__ void fill(uint32_t *at, int64_t words)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (int64_t)gridDim.x * blockDim.x) {
        const uint32_t h = (uint32_t)i * 2654435761u, mixed = h ^ h >> 15;
        at[i] = 0x3c003c00u | (mixed & 0x83ff83ffu);
    }
}

extern "C" void profile_fill(aprt_device *d, void *at, int64_t bytes)
{
    const int64_t words = bytes / 4;
    APRT_LAUNCH(fill, aprt_cuda_grid(d, blocks_for(words, THREADS)), THREADS, 0, aprt_cuda_stream(d), (uint32_t *)at,
                words);
    aprt_cuda_launched(d);
}

/* ---- a pass over memory ---- */

static __global__ void negate(const float *x, float *y, int64_t packs)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += (int64_t)gridDim.x * blockDim.x) {
        aprt_pack<4, float> v = aprt_load_pack<4>(x + 4 * i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            v.at[j] = -v.at[j];
        aprt_store_pack<4>(y + 4 * i, v);
    }
}

extern "C" void profile_negate(aprt_device *d, const float *x, float *y, int64_t n)
{
    APRT_LAUNCH(negate, aprt_cuda_grid(d, blocks_for(n / 4, THREADS)), THREADS, 0, aprt_cuda_stream(d), x, y, n / 4);
    aprt_cuda_launched(d);
}

/* ---- rows: G threads each, W elements a thread ---- */

struct softmax_row {
    template <int G, int W>
    static __device__ void run(float (&v)[W], int64_t columns, int me, unsigned char *shared)
    {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < W; j++)
            most = me + j * G < columns ? aprt_max_f32(most, v[j]) : most;
        most = aprt_fold_row<G, aprt_most<float>>(most, shared);
#pragma unroll
        for (int j = 0; j < W; j++) {
            v[j] = aprt_exp_f32(v[j] - most);
            sum += me + j * G < columns ? v[j] : 0.0f;
        }
        sum = aprt_fold_row<G, aprt_sum<float>>(sum, shared);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = v[j] / sum;
    }
};

struct norm_row {
    template <int G, int W>
    static __device__ void run(float (&v)[W], int64_t columns, int me, unsigned char *shared)
    {
        float sum = 0, squares = 0;
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += me + j * G < columns ? v[j] : 0.0f;
        sum = aprt_fold_row<G, aprt_sum<float>>(sum, shared);
#pragma unroll
        for (int j = 0; j < W; j++) {
            v[j] = v[j] - sum;
            squares += me + j * G < columns ? v[j] * v[j] : 0.0f;
        }
        squares = aprt_fold_row<G, aprt_sum<float>>(squares, shared);
        const float scale = 1.0f / sqrtf(squares);
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = v[j] * scale;
    }
};

template <class Row, int G, int W>
static __global__ void by_rows(const float *x, float *y, int64_t rows, int64_t columns)
{
    APRT_SHARED(unsigned char, shared);
    const int per_block = (int)blockDim.x / G, me = (int)threadIdx.x % G;
    const int64_t step = (int64_t)gridDim.x * per_block;
    /* all threads of a block take as many turns */
    for (int64_t first = (int64_t)blockIdx.x * per_block; first < rows; first += step) {
        const int64_t row = first + threadIdx.x / G;
        const bool here = row < rows;
        float v[W];
#pragma unroll
        for (int j = 0; j < W; j++)
            v[j] = here && me + j * G < columns ? x[row * columns + me + j * G] : 0.0f;
        Row::template run<G, W>(v, columns, me, shared);
#pragma unroll
        for (int j = 0; j < W; j++)
            if (here && me + j * G < columns)
                y[row * columns + me + j * G] = v[j];
    }
}

static __global__ void gelu(const float *x, float *y, int64_t packs)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += (int64_t)gridDim.x * blockDim.x) {
        aprt_pack<4, float> v = aprt_load_pack<4>(x + 4 * i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            v.at[j] = v.at[j] * aprt_erf_f32(v.at[j]) + v.at[j];
        aprt_store_pack<4>(y + 4 * i, v);
    }
}

template <class Row>
static void start_rows(aprt_device *d, const float *x, float *y, int64_t rows, int64_t columns)
{
    const cudaStream_t stream = aprt_cuda_stream(d);
    const int64_t warps = THREADS / 32;
    if (columns <= 128)
        APRT_LAUNCH((by_rows<Row, 32, 4>), aprt_cuda_grid(d, blocks_for(rows, warps)), THREADS, APRT_FOLD_BYTES, stream,
                    x, y, rows, columns);
    else if (columns <= 1024)
        APRT_LAUNCH((by_rows<Row, 32, 32>), aprt_cuda_grid(d, blocks_for(rows, warps)), THREADS, APRT_FOLD_BYTES, stream,
                    x, y, rows, columns);
    else
        APRT_LAUNCH((by_rows<Row, 512, 16>), aprt_cuda_grid(d, rows), 512, APRT_FOLD_BYTES, stream, x, y, rows, columns);
}

/* As profiles of processors have it: FLOPs without functions. */
static __global__ void polynomial(const float *x, float *y, int64_t packs)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += (int64_t)gridDim.x * blockDim.x) {
        aprt_pack<4, float> v = aprt_load_pack<4>(x + 4 * i);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float in = v.at[j], a = in * in, b = a + in, c = b * a, e = c - in, f = e * b, g = f + c, h = g * e;
            const float k = h - a, l = k * g, m = l + b, n = m * k, o = aprt_max_f32(n, h), p = o * m;
            v.at[j] = aprt_min_f32(p, l) * o - in;
        }
        aprt_store_pack<4>(y + 4 * i, v);
    }
}

extern "C" void profile_rows_run(aprt_device *d, profile_rows what, const float *x, float *y, int64_t rows,
                                 int64_t columns)
{
    const int64_t packs = rows * columns / 4;
    if (what == PROFILE_SOFTMAX)
        start_rows<softmax_row>(d, x, y, rows, columns);
    else if (what == PROFILE_NORM)
        start_rows<norm_row>(d, x, y, rows, columns);
    else if (what == PROFILE_POLYNOMIAL)
        APRT_LAUNCH(polynomial, aprt_cuda_grid(d, blocks_for(packs, THREADS)), THREADS, 0, aprt_cuda_stream(d), x, y,
                    packs);
    else
        APRT_LAUNCH(gelu, aprt_cuda_grid(d, blocks_for(packs, THREADS)), THREADS, 0, aprt_cuda_stream(d), x, y, packs);
    aprt_cuda_launched(d);
}
