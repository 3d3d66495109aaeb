/* SPDX-License-Identifier: MIT
 *
 * autopar_rt_cuda.h - what a program for GPUs needs beside autopar_rt.h.
 *
 * The first part is for program.c, which is C and needs nothing of the toolkit: the target of a stage, and what the
 * functions of a stage call. The second part is for kernels.cu: launches, and what a kernel may ask of its device.
 *
 * A rank has a GPU. Its arena, its parameters, its inputs and outputs are in the memory of that GPU. Whatever a
 * function of a stage calls is put on the compute stream of the device and not waited for. A failure there (of a
 * launch, of a library) is kept, the first one counts, and the runtime reports it, with the instruction in which it
 * happened, when the stage's function has returned. Thread d's own. */
#ifndef AUTOPAR_RT_CUDA_H
#define AUTOPAR_RT_CUDA_H

#include "autopar_rt.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* `target` of a stage whose ranks have a GPU each. */
extern const aprt_target aprt_target_cuda;

/* Bytes that libraries may use while they compute, one piece for each device: what a stage with products or
 * convolutions has as workspace_bytes. 32 MiB is what cuBLAS recommends for Hopper. */
#define APRT_CUDA_WORKSPACE ((int64_t)32 << 20)

/* Instead of aprt_at: the instruction that what follows belongs to. Profiles and traces are made of events, NVTX has a
 * range for each. */
void aprt_cuda_at(aprt_device *d, uint32_t instruction);

/* ---- exchanges: NCCL, beside the compute stream ----
 *
 * Exchange `number` of the stage's table, as by aprt_exchange_run, but not waited for: it comes behind all that was put
 * on the compute stream before and behind the exchanges before. What follows may go on beside it until the program says
 * that something needs it: until then nothing may write what it reads, or touch what it writes. aprt_cuda_arrived: what
 * follows comes behind the first n of the stage's exchanges of this microbatch. A microbatch ends behind all. */
void aprt_cuda_exchange(aprt_device *d, uint32_t number, const void *src, void *dst);
void aprt_cuda_arrived(aprt_device *d, uint32_t n);

/* ---- products: cuBLASLt ----
 *
 * for loops: C[m,n] = sum over k of A[m,k]*B[k,n], C added up along loops that are summed; then what follows. Row i of
 * A is rsa elements behind the one before, column j csa; one of both is 1 (or the matrix has one row or column), the
 * other one at least as large as the rows or columns are long. csc is 1. F32 is computed in F32, or in TF32 where
 * AUTOPAR_TF32=1 says so when a program is opened; F16 and BF16 with sums in F32. */
typedef enum aprt_cuda_after {
    APRT_CUDA_NOTHING,
    APRT_CUDA_BIAS,      /* C + bias[n] */
    APRT_CUDA_GELU_TANH, /* the approximation by tanh, as cuBLASLt has it */
    APRT_CUDA_BIAS_GELU_TANH
} aprt_cuda_after;

typedef struct aprt_cuda_product {
    int32_t dtype; /* of A, B, C and bias: F32, F64, F16, BF16 */
    int32_t nloops;
    int64_t extent[APRT_MAX_LOOPS], stride_a[APRT_MAX_LOOPS], stride_b[APRT_MAX_LOOPS], stride_c[APRT_MAX_LOOPS];
    uint8_t sum[APRT_MAX_LOOPS]; /* the loop runs over a summed letter */
    int64_t m, n, k;
    int64_t rsa, csa, rsb, csb, rsc;
    aprt_cuda_after after; /* with a summed loop of more than one turn: NOTHING */
} aprt_cuda_product;

/* Turns of the loops, then m, n, k: this rank's, at most the extents. NULL: all. `bias` may be NULL without one. When k
 * or a summed loop has no turns, the sums are zero; what follows is done all the same. The algorithm is chosen once for
 * each product and turns (by `prepare` when the program is opened) and kept. */
void aprt_cuda_gemm(aprt_device *d, const aprt_cuda_product *p, const int64_t *turns, const void *a, const void *b,
                    void *c, const void *bias);
int aprt_cuda_gemm_prepare(aprt_device *d, const aprt_cuda_product *p, const int64_t *turns);

/* ---- convolutions: cuDNN, or kernels of this library for what it cannot do ----
 *
 * The table, turns and slots are those of aprt_conv_prepare and aprt_conv_run (autopar_rt.h). `w` of prepare is in host
 * memory: weights that never change, which are put on the device in the order that is wanted there, `bytes` of them;
 * NULL: they come with each run. */
int aprt_cuda_conv_prepare(aprt_device *d, uint32_t slot, const aprt_conv *conv, const int64_t turns[4], const void *w,
                           int64_t bytes);
void aprt_cuda_conv(aprt_device *d, uint32_t slot, const void *x, const void *w, void *y, const void *const *operand);
void aprt_cuda_conv_release(aprt_device *d);

/* ---- for launchers: of kernels.cu, called by the function of a stage ---- */

/* stage.scratch_bytes of device memory, shared by all kernels, which come one after the other. */
void *aprt_cuda_scratch(aprt_device *d);
/* At most `blocks`, at least 1, no more than a few for each multiprocessor: kernels walk by strides of the grid. */
int64_t aprt_cuda_grid(aprt_device *d, int64_t blocks);
/* Each launcher calls it behind its launches: a launch that was refused is a failure of the instruction. */
void aprt_cuda_launched(aprt_device *d);

/* What a kernel found wrong: the index with the least key counts, so that the message is the same every time. key:
 * aprt_cuda_key(d) + the row-major position in which it was met, less than 2^40. */
typedef struct aprt_cuda_bad {
    unsigned long long key; /* all bits set: nothing */
    long long index, first, limit;
    unsigned int lock, unused;
} aprt_cuda_bad;
aprt_cuda_bad *aprt_cuda_bad_of(aprt_device *d); /* in device memory */
unsigned long long aprt_cuda_key(aprt_device *d);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

/* ------------------------------------------------------------------------------------------------------------------
 * For kernels.cu: nvcc, or a host compiler with the shim of the tests.
 */
#if defined(__CUDACC__) || defined(APRT_CUDASHIM)
#include <cuda_runtime.h>

extern "C" cudaStream_t aprt_cuda_stream(aprt_device *d); /* the compute stream */

#ifndef APRT_CUDASHIM /* the shim has its own */
#define APRT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                    \
    kernel<<<(unsigned int)(grid), (unsigned int)(block), (size_t)(shared_bytes), stream>>>(__VA_ARGS__)
/* Dynamic shared memory of the kernel as an array of T. One name, one type in a file: the linker sees one array. */
#define APRT_SHARED(T, name)                                                                                           \
    extern __shared__ __align__(16) unsigned char aprt_shared_bytes_[];                                                \
    T *const name = (T *)aprt_shared_bytes_
#endif

/* An index that is not in [first, limit), met at `key`. Threads that lose look once and go; the others write one after
 * the other (threads of a warp make progress by themselves from sm_70 on). */
static inline __device__ void aprt_cuda_report(aprt_cuda_bad *bad, unsigned long long key, long long index,
                                               long long first, long long limit)
{
    for (bool done = false; !done && key < *(volatile unsigned long long *)&bad->key;) {
        if (atomicCAS(&bad->lock, 0u, 1u) != 0u)
            continue;
        __threadfence();
        if (key < *(volatile unsigned long long *)&bad->key) {
            bad->index = index;
            bad->first = first;
            bad->limit = limit;
            __threadfence();
            *(volatile unsigned long long *)&bad->key = key;
        }
        __threadfence();
        atomicExch(&bad->lock, 0u);
        done = true;
    }
}
#endif

#endif
