/* matmul.h - a product as cuBLASLt's opaque structures keep it. */
#ifndef CUDASHIM_MATMUL_H
#define CUDASHIM_MATMUL_H

#include "include/cublasLt.h"
#include "shim.h"

namespace shim
{

struct Layout {
    int32_t type, order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t stride;
    uint32_t mode; /* cublasLtBatchMode_t */
};
struct Desc {
    int32_t compute, scale, pointer_mode, transa, transb, epilogue, bias_type; /* bias_type -1: that of D */
    int64_t bias_stride;
    const void *bias;
};
struct Preference {
    uint64_t workspace;
    uint32_t align[4];
};
struct Algo {
    uint64_t magic, shape;
    uint32_t workspace, align[4];
};
struct Problem {
    Desc desc;
    Layout a, b, c, d;
};
struct Operands {
    const void *a, *b, *c;
    void *d;
    double alpha, beta;
    void *workspace;
    size_t workspace_bytes;
    uint32_t align[4]; /* of matrices by address: A, B, C, D */
};

size_t element_size(int32_t type); /* a cudaDataType */
double matmul_read(const void *base, int64_t i, int32_t type);
void matmul_write(void *base, int64_t i, int32_t type, double v);
float matmul_tf32(float f);
size_t bias_span(const Problem &p);
void matmul_run(const Problem &p, const Operands &o, size_t workspace);

} // namespace shim

#endif
