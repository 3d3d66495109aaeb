/* What tests of the shim's libraries share: random numbers that every type holds exactly, and memory of the device. */
#ifndef CUDASHIM_UNIT_H
#define CUDASHIM_UNIT_H

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*seed >> 33) % (uint64_t)n);
}

static inline size_t type_size(cudaDataType_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* A number as a type has it; of the short ones whole numbers up to 256 only, by their definition: 1 sign, 5 or 8 bits
 * of exponent, the rest behind the point. */
static inline void unit_put(cudaDataType_t type, void *base, int64_t i, double x)
{
    const int bits = type == CUDA_R_16F ? 10 : 7, bias = type == CUDA_R_16F ? 15 : 127;
    unsigned short half = 0;
    float f = (float)x;
    if (type == CUDA_R_64F)
        memcpy((char *)base + 8 * i, &x, 8);
    else if (type == CUDA_R_32F)
        memcpy((char *)base + 4 * i, &f, 4);
    if (type_size(type) != 2)
        return;
    const int whole = (int)(x < 0 ? -x : x);
    int exponent = 0;
    while (whole >> (exponent + 1))
        exponent++;
    if (whole)
        half = (unsigned short)((x < 0 ? 0x8000 : 0) | (exponent + bias) << bits |
                                ((whole << bits >> exponent) & ((1 << bits) - 1)));
    memcpy((char *)base + 2 * i, &half, 2);
}

static inline double unit_get(cudaDataType_t type, const void *base, int64_t i)
{
    const int bits = type == CUDA_R_16F ? 10 : 7, bias = type == CUDA_R_16F ? 15 : 127;
    unsigned short half;
    double x;
    float f;
    if (type == CUDA_R_64F) {
        memcpy(&x, (const char *)base + 8 * i, 8);
        return x;
    }
    if (type == CUDA_R_32F) {
        memcpy(&f, (const char *)base + 4 * i, 4);
        return f;
    }
    memcpy(&half, (const char *)base + 2 * i, 2);
    if (!(half & 0x7fff))
        return 0;
    int exponent = ((half & 0x7fff) >> bits) - bias;
    x = (double)((1 << bits) | (half & ((1 << bits) - 1))) / (1 << bits);
    for (; exponent > 0; exponent--)
        x *= 2;
    for (; exponent < 0; exponent++)
        x /= 2;
    return half & 0x8000 ? -x : x;
}

/* Numbers on both sides. */
typedef struct unit_array {
    cudaDataType_t type;
    int64_t n;
    double *x;
    char *bytes;
    void *device;
} unit_array;

/* n numbers from -most to most. */
static inline unit_array unit_make(cudaDataType_t type, int64_t n, int64_t most, uint64_t *seed)
{
    unit_array a = {type, n, malloc((size_t)n * sizeof(double)), malloc((size_t)n * 8), NULL};
    for (int64_t i = 0; i < n; i++) {
        a.x[i] = (double)(below(seed, 2 * most + 1) - most);
        unit_put(type, a.bytes, i, a.x[i]);
    }
    assert_int_equal(cudaMalloc(&a.device, (size_t)n * type_size(type)), cudaSuccess);
    assert_int_equal(cudaMemcpy(a.device, a.bytes, (size_t)n * type_size(type), cudaMemcpyHostToDevice), cudaSuccess);
    return a;
}

/* What is on the device now. */
static inline void unit_fetch(unit_array *a)
{
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaMemcpy(a->bytes, a->device, (size_t)a->n * type_size(a->type), cudaMemcpyDeviceToHost),
                     cudaSuccess);
}

static inline void unit_free(unit_array *a)
{
    cudaFree(a->device);
    free(a->x);
    free(a->bytes);
}

#endif
