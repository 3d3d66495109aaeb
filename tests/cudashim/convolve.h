/* convolve.h - a convolution as cuDNN's descriptors tell it. */
#ifndef CUDASHIM_CONVOLVE_H
#define CUDASHIM_CONVOLVE_H

#include "include/cudnn.h"
#include "matmul.h"

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

namespace shim
{

/* Forward: y = alpha * conv(x, w) + beta * z + bias, then relu. Backward: x = alpha * (the transposed map of w) y +
 * beta * z. */
struct Conv {
    bool backward;
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct op;
    double alpha, beta;
    const void *from, *weights, *z, *bias;
    void *to, *workspace;
    size_t workspace_bytes;
    bool relu;

    const cudnnTensorStruct &source() const { return backward ? y : x; }
    const cudnnTensorStruct &target() const { return backward ? x : y; }
};

int32_t convolve_type(cudnnDataType_t type); /* a cudaDataType */
size_t convolve_span(const cudnnTensorStruct &t);
size_t convolve_span(const cudnnFilterStruct &w);
void convolve_run(const Conv &c);

} // namespace shim

#endif
