/* The product itself: operands widened to rows, one row of the result at a time. */
#include <algorithm>

#include "matmul.h"

namespace shim
{

double matmul_read(const void *base, int64_t i, int32_t type)
{
    unsigned short h;
    float f;
    double d;
    switch (type) {
    case CUDA_R_64F:
        memcpy(&d, (const char *)base + i * 8, 8);
        return d;
    case CUDA_R_32F:
        memcpy(&f, (const char *)base + i * 4, 4);
        return f;
    default:
        memcpy(&h, (const char *)base + i * 2, 2);
        return type == CUDA_R_16F ? cudashim_half_to_float(h) : cudashim_bf16_to_float(h);
    }
}

void matmul_write(void *base, int64_t i, int32_t type, double v)
{
    float f = (float)v;
    unsigned short h;
    switch (type) {
    case CUDA_R_64F:
        memcpy((char *)base + i * 8, &v, 8);
        break;
    case CUDA_R_32F:
        memcpy((char *)base + i * 4, &f, 4);
        break;
    default:
        h = type == CUDA_R_16F ? cudashim_float_to_half(f) : cudashim_float_to_bf16(f);
        memcpy((char *)base + i * 2, &h, 2);
    }
}

/* To ten bits behind the point, ties away from zero, as cvt.rna.tf32. */
float matmul_tf32(float f)
{
    unsigned u = __float_as_uint(f);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return f;
    return __uint_as_float((u + 0x1000u) & 0xffffe000u);
}

namespace
{
/* Where a matrix of the batch begins. */
const void *matrix(const Layout &l, const void *base, int64_t batch)
{
    if (l.mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY)
        return ((const void *const *)base)[batch];
    return (const char *)base + batch * l.stride * (int64_t)element_size(l.type);
}

int64_t place(const Layout &l, int64_t row, int64_t col)
{
    return l.order == CUBLASLT_ORDER_COL ? row + col * l.ld : row * l.ld + col;
}

/* op(A) as rows of T. */
template <typename T>
std::vector<T> widen(const Layout &l, const void *base, int64_t from, bool transposed, bool rounded)
{
    int64_t rows = (int64_t)(transposed ? l.cols : l.rows), cols = (int64_t)(transposed ? l.rows : l.cols);
    std::vector<T> out((size_t)(rows * cols));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double v = matmul_read(base, from + (transposed ? place(l, j, i) : place(l, i, j)), l.type);
            out[(size_t)(i * cols + j)] = rounded ? (T)matmul_tf32((float)v) : (T)v;
        }
    return out;
}

double after(const Problem &p, double v, int64_t row, int64_t batch)
{
    int32_t e = p.desc.epilogue, type = p.desc.bias_type < 0 ? p.d.type : p.desc.bias_type;
    if (e & CUBLASLT_EPILOGUE_BIAS)
        v = (float)(v + matmul_read(p.desc.bias, row + batch * p.desc.bias_stride, type));
    if (e & CUBLASLT_EPILOGUE_RELU)
        return v > 0 ? v : 0; /* nobody says that NaN passes */
    if (e & CUBLASLT_EPILOGUE_GELU) {
        float x = (float)v;
        return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
    return v;
}

/* Sums in two halves of k, as a library that splits it has them. */
template <typename T> void multiply(const Problem &p, const Operands &o, int64_t batch)
{
    bool ta = p.desc.transa != CUBLAS_OP_N, tb = p.desc.transb != CUBLAS_OP_N;
    bool rounded = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    int64_t m = (int64_t)p.d.rows, n = (int64_t)p.d.cols, k = (int64_t)(ta ? p.a.rows : p.a.cols);
    std::vector<T> a = widen<T>(p.a, matrix(p.a, o.a, batch), 0, ta, rounded);
    std::vector<T> b = widen<T>(p.b, matrix(p.b, o.b, batch), 0, tb, rounded);
    const void *c = o.beta != 0 ? matrix(p.c, o.c, batch) : nullptr;
    void *d = (void *)matrix(p.d, o.d, batch);
    std::vector<T> low((size_t)n), high((size_t)n);
    for (int64_t i = 0; i < m; i++) {
        std::fill(low.begin(), low.end(), (T)0);
        std::fill(high.begin(), high.end(), (T)0);
        for (int64_t l = 0; l < k; l++) {
            T x = a[(size_t)(i * k + l)], *sum = l < k / 2 ? low.data() : high.data();
            const T *row = b.data() + l * n;
            for (int64_t j = 0; j < n; j++)
                sum[j] += x * row[j];
        }
        for (int64_t j = 0; j < n; j++) {
            T v = (T)o.alpha * (low[(size_t)j] + high[(size_t)j]);
            if (o.beta != 0)
                v += (T)o.beta * (T)matmul_read(c, place(p.c, i, j), p.c.type);
            matmul_write(d, place(p.d, i, j), p.d.type, after(p, v, i, batch));
        }
    }
}

void touch(const Layout &l, const void *base, uint32_t align, bool writes)
{
    int64_t lines = (int64_t)(l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows);
    size_t bytes = (size_t)(l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols) * element_size(l.type);
    bool by_address = l.mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
    if (by_address)
        check_range(base, (size_t)l.batch * sizeof(void *), false);
    for (int64_t batch = 0; batch < l.batch; batch++) {
        const char *at = (const char *)matrix(l, base, batch);
        if (by_address && (uintptr_t)at % align)
            report("cublasLtMatmul: a matrix by address, %p, is not aligned to %u bytes", (const void *)at, align);
        for (int64_t i = 0; i < lines; i++)
            check_range(at + i * l.ld * (int64_t)element_size(l.type), bytes, writes);
    }
}
} // namespace

void matmul_run(const Problem &p, const Operands &o, size_t workspace)
{
    touch(p.a, o.a, o.align[0], false);
    touch(p.b, o.b, o.align[1], false);
    if (o.beta != 0)
        touch(p.c, o.c, o.align[2], false);
    if (p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
        check_range(p.desc.bias, bias_span(p), false);
    touch(p.d, o.d, o.align[3], true);
    if (workspace) {
        check_range(o.workspace, workspace, true);
        memset(o.workspace, 0xff, workspace); /* it is the library's */
    }
    for (int64_t batch = 0; batch < p.d.batch; batch++)
        if (p.d.type == CUDA_R_64F)
            multiply<double>(p, o, batch);
        else
            multiply<float>(p, o, batch);
}

} // namespace shim
