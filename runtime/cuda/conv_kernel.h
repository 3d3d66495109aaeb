/* SPDX-License-Identifier: MIT
 *
 * Kernels around convolutions, as C and C++ see them: what they get by value, and how they are put on a stream. */
#ifndef APRT_CUDA_CONV_KERNEL_H
#define APRT_CUDA_CONV_KERNEL_H

#include "autopar_rt_cuda.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An operand in order: dst is row-major over `extent`; element i of a dimension is element (i - lo) / hole of the
 * operand if that is a whole number below `in`, else a zero. */
typedef struct conv_copy {
    int32_t ndims;
    int64_t extent[APRT_MAX_RANK], stride[APRT_MAX_RANK]; /* of the operand, in elements */
    int64_t in[APRT_MAX_RANK], lo[APRT_MAX_RANK], hole[APRT_MAX_RANK];
} conv_copy;

/* Where sums lie, in the order of the results: result i of a spatial dimension is element i + shift, which is zero
 * unless it is one of `have`. */
typedef struct conv_sums {
    int64_t stride[APRT_MAX_RANK];
    int64_t shift[APRT_MAX_SPATIAL], have[APRT_MAX_SPATIAL];
} conv_sums;

/* Elements of `size` bytes: 1, 2, 4, 8. */
cudaError_t cuda_conv_copy(cudaStream_t stream, int blocks, const conv_copy *copy, int32_t size, const void *src,
                           void *dst);
/* The steps from step `first` on, of sums that may lie in y. */
cudaError_t cuda_conv_steps(cudaStream_t stream, int blocks, const aprt_conv *conv, const int64_t turns[4],
                            int32_t first, const conv_sums *how, const void *sum, void *y, const void *const *operand);
/* Convolution as it is defined (aprt_conv in autopar_rt.h), with all steps, in at most `blocks` blocks. Weights lie as
 * [g, kernel..., c, m] of these turns, and are read forwards. */
cudaError_t cuda_conv_direct(cudaStream_t stream, int blocks, const aprt_conv *conv, const int64_t turns[4],
                             const void *x, const void *w, void *y, const void *const *operand);

#ifdef __cplusplus
}
#endif
#endif
