/* cuda_runtime.h - of the test shim, see cudashim.h. */
#ifndef CUDASHIM_RUNTIME_H
#define CUDASHIM_RUNTIME_H

#include "cudashim.h"

#include "cuda_runtime_api.h"

#ifdef __cplusplus
template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t size)
{
    return cudaMalloc((void **)(void *)p, size);
}
template <typename T> static inline cudaError_t cudaMallocAsync(T **p, size_t size, cudaStream_t stream)
{
    return cudaMallocAsync((void **)(void *)p, size, stream);
}
template <typename T> static inline cudaError_t cudaMallocHost(T **p, size_t size, unsigned int flags = 0)
{
    return cudaHostAlloc((void **)(void *)p, size, flags);
}
template <typename T> static inline cudaError_t cudaHostAlloc(T **p, size_t size, unsigned int flags)
{
    return cudaHostAlloc((void **)(void *)p, size, flags);
}
template <typename T> static inline cudaError_t cudaHostGetDevicePointer(T **d, void *h, unsigned int flags)
{
    return cudaHostGetDevicePointer((void **)(void *)d, h, flags);
}
/* The defaults of C++, which C has not. */
static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(dst, src, count, kind, (cudaStream_t)0);
}
static inline cudaError_t cudaMemsetAsync(void *p, int value, size_t count)
{
    return cudaMemsetAsync(p, value, count, (cudaStream_t)0);
}
static inline cudaError_t cudaEventRecord(cudaEvent_t event)
{
    return cudaEventRecord(event, (cudaStream_t)0);
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event)
{
    return cudaStreamWaitEvent(stream, event, 0);
}
static inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned int flags)
{
    return cudaEventCreateWithFlags(event, flags);
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph)
{
    return cudaGraphInstantiate(exec, graph, 0);
}
template <typename T> static inline cudaError_t cudaFuncSetAttribute(T *f, enum cudaFuncAttribute attr, int value)
{
    return cudaFuncSetAttribute((const void *)f, attr, value);
}
template <typename T> static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, T *f)
{
    return cudaFuncGetAttributes(attr, (const void *)f);
}
template <typename T>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, T f, int block, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, (const void *)f, block, shared);
}
#endif
#endif
