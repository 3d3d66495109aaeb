/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt. Our matrices are row-major and cuBLAS's are column-major, so it computes C' = B' A', where X'
 * is X read by columns: n takes the place of m, and a bias along n is what it calls a bias.
 *
 * A plan belongs to a product, the turns of this rank and how well its operands are aligned: loops that are one to all
 * operands joined, the longest one that is not summed as a batch, the others as repeated calls, and the algorithm that
 * the library's heuristics name first for the workspace that there is. Plans stay until the program is closed. */
#include "cuda_device.h"

#include <stdlib.h>

enum { ALIGNED = 16 /* bytes; more is no better */ };

typedef struct loop {
    int64_t extent, a, b, c;
    bool sum;
} loop;

struct cuda_product {
    cuda_product *next;
    /* whose plan it is */
    const aprt_cuda_product *of;
    int64_t turns[APRT_MAX_LOOPS + 3];
    uint32_t alignment;
    /* the plan; empty: no element of C. nothing: sums of none */
    bool empty, nothing;
    int32_t nloops;
    loop loop[APRT_MAX_LOOPS];
    loop batch; /* of extent 1 if there is none */
    int64_t m, n, k;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
};

static int check(aprt_device *d, cublasStatus_t status, const char *what)
{
    return status == CUBLAS_STATUS_SUCCESS
               ? APRT_OK
               : cuda_fail(d, APRT_ERR_ENV, "%s: %s", what, cublasLtGetStatusString(status));
}
#define LT_DO(d, function, ...) CUDA_TRY(check(d, function(__VA_ARGS__), #function))

/* ---- loops ---- */

static bool are_one(const loop *outer, const loop *inner)
{
    return outer->sum == inner->sum && outer->a == inner->a * inner->extent && outer->b == inner->b * inner->extent &&
           outer->c == inner->c * inner->extent;
}

static void read_loops(cuda_product *p)
{
    for (int32_t i = 0; i < p->of->nloops; i++) {
        const loop at = {p->turns[i], p->of->stride_a[i], p->of->stride_b[i], p->of->stride_c[i], p->of->sum[i] != 0};
        if (at.sum && at.extent == 0)
            p->nothing = true;
        if (!at.sum && at.extent == 0)
            p->empty = true;
        if (at.extent == 1 || at.extent == 0)
            continue;
        if (p->nloops && are_one(&p->loop[p->nloops - 1], &at)) {
            const int64_t outer = p->loop[p->nloops - 1].extent;
            p->loop[p->nloops - 1] = at;
            p->loop[p->nloops - 1].extent = outer * at.extent;
        } else {
            p->loop[p->nloops++] = at;
        }
    }
}

static void take_batch(cuda_product *p)
{
    int32_t best = -1;
    p->batch = (loop){.extent = 1};
    for (int32_t i = 0; i < p->nloops; i++)
        if (!p->loop[i].sum && p->loop[i].extent <= INT32_MAX && (best < 0 || p->loop[i].extent > p->loop[best].extent))
            best = i;
    if (best < 0)
        return;
    p->batch = p->loop[best];
    for (int32_t i = best; i + 1 < p->nloops; i++)
        p->loop[i] = p->loop[i + 1];
    p->nloops--;
}

/* ---- what cuBLASLt wants to know ---- */

static cudaDataType_t data_type(int32_t dtype)
{
    return dtype == APRT_F64    ? CUDA_R_64F
           : dtype == APRT_F16  ? CUDA_R_16F
           : dtype == APRT_BF16 ? CUDA_R_16BF
                                : CUDA_R_32F;
}

/* A row-major matrix of `rows` x `columns`, as the library sees it: columns x rows, or its transpose where the rows are
 * what lies together. */
static int make_layout(aprt_device *d, const cuda_product *p, int64_t rows, int64_t columns, int64_t rs, int64_t cs,
                       int64_t batch_stride, cublasLtMatrixLayout_t *out, cublasOperation_t *turned)
{
    const cudaDataType_t type = data_type(p->of->dtype);
    const bool by_rows = cs == 1 || columns == 1; /* elements of a row are neighbours */
    const int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
    int64_t lead = by_rows ? rs : cs;
    lead = outer == 1 || lead < inner ? inner : lead;
    *turned = by_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
    LT_DO(d, cublasLtMatrixLayoutCreate, out, type, (uint64_t)inner, (uint64_t)outer, lead);
    if (p->batch.extent > 1) {
        const int32_t count = (int32_t)p->batch.extent;
        LT_DO(d, cublasLtMatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
        LT_DO(d, cublasLtMatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
              sizeof batch_stride);
    }
    return APRT_OK;
}

static cublasLtEpilogue_t epilogue_of(aprt_cuda_after after)
{
    static const cublasLtEpilogue_t of[] = {
        [APRT_CUDA_NOTHING] = CUBLASLT_EPILOGUE_DEFAULT, [APRT_CUDA_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [APRT_CUDA_RELU] = CUBLASLT_EPILOGUE_RELU,       [APRT_CUDA_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
        [APRT_CUDA_GELU_TANH] = CUBLASLT_EPILOGUE_GELU,  [APRT_CUDA_BIAS_GELU_TANH] = CUBLASLT_EPILOGUE_GELU_BIAS,
    };
    return of[after];
}

static int make_op(aprt_device *d, cuda_product *p)
{
    const aprt_cuda_product *g = p->of;
    const bool wide = g->dtype == APRT_F64;
    const cublasComputeType_t compute = wide                                       ? CUBLAS_COMPUTE_64F
                                        : g->dtype == APRT_F32 && cuda_of(d)->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                   : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t epilogue = epilogue_of(g->after);
    cublasOperation_t turned[3];
    LT_DO(d, cublasLtMatmulDescCreate, &p->op, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    CUDA_TRY(make_layout(d, p, p->m, p->k, g->rsa, g->csa, p->batch.a, &p->a, &turned[0]));
    CUDA_TRY(make_layout(d, p, p->k, p->n, g->rsb, g->csb, p->batch.b, &p->b, &turned[1]));
    CUDA_TRY(make_layout(d, p, p->m, p->n, g->rsc, 1, p->batch.c, &p->c, &turned[2]));
    /* C' = B' A': its first operand is our second one */
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_TRANSA, &turned[1], sizeof turned[1]);
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_TRANSB, &turned[0], sizeof turned[0]);
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    return APRT_OK;
}

static int choose(aprt_device *d, cuda_product *p)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const size_t workspace = (size_t)d->stage->workspace_bytes;
    cublasLtMatmulPreference_t wanted;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    LT_DO(d, cublasLtMatmulPreferenceCreate, &wanted);
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(wanted, aligned[i], &p->alignment, sizeof p->alignment);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(cuda_of(d)->lt, p->op, p->b, p->a, p->c, p->c, wanted, 1, &found, &n);
    cublasLtMatmulPreferenceDestroy(wanted);
    CUDA_TRY(check(d, status, "the choice of an algorithm for a product"));
    if (n < 1)
        return cuda_fail(d, APRT_ERR_ENV, "cuBLASLt has no algorithm for a product of %lld x %lld x %lld",
                         (long long)p->m, (long long)p->n, (long long)p->k);
    p->algo = found.algo;
    p->workspace = found.workspaceSize;
    return APRT_OK;
}

/* ---- plans ---- */

static void free_plan(cuda_product *p)
{
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c};
    for (size_t i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    free(p);
}

static int make_plan(aprt_device *d, cuda_product *p)
{
    read_loops(p);
    p->m = p->turns[p->of->nloops];
    p->n = p->turns[p->of->nloops + 1];
    p->k = p->turns[p->of->nloops + 2];
    p->empty = p->empty || p->m == 0 || p->n == 0;
    p->nothing = p->nothing || p->k == 0;
    if (p->empty || p->nothing)
        return APRT_OK;
    take_batch(p);
    if (!cuda_of(d)->lt)
        LT_DO(d, cublasLtCreate, &cuda_of(d)->lt);
    CUDA_TRY(make_op(d, p));
    return choose(d, p);
}

static int find_plan(aprt_device *d, const aprt_cuda_product *of, const int64_t *turns, uint32_t alignment,
                     cuda_product **out)
{
    int64_t all[APRT_MAX_LOOPS + 3];
    const size_t size = ((size_t)of->nloops + 3) * sizeof *all;
    memcpy(all, of->extent, (size_t)of->nloops * sizeof *all);
    all[of->nloops] = of->m;
    all[of->nloops + 1] = of->n;
    all[of->nloops + 2] = of->k;
    for (cuda_product *p = cuda_of(d)->product; p; p = p->next)
        if (p->of == of && p->alignment == alignment && memcmp(p->turns, turns ? turns : all, size) == 0) {
            *out = p;
            return APRT_OK;
        }
    cuda_product *p = calloc(1, sizeof *p);
    if (!p)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    p->of = of;
    p->alignment = alignment;
    memcpy(p->turns, turns ? turns : all, size);
    const int status = make_plan(d, p);
    if (status != APRT_OK) {
        free_plan(p);
        return status;
    }
    p->next = cuda_of(d)->product;
    cuda_of(d)->product = p;
    *out = p;
    return APRT_OK;
}

void cuda_products_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    while (c->product) {
        cuda_product *next = c->product->next;
        free_plan(c->product);
        c->product = next;
    }
    if (c->lt)
        cublasLtDestroy(c->lt);
}

int aprt_cuda_gemm_prepare(aprt_device *d, const aprt_cuda_product *p, const int64_t *turns)
{
    cuda_product *plan;
    find_plan(d, p, turns, ALIGNED, &plan);
    return cuda_status(d);
}

/* ---- running ---- */

static int multiply(aprt_device *d, const cuda_product *p, const char *a, const char *b, char *c, bool adds)
{
    static const float zero = 0, one = 1;
    static const double zero64 = 0, one64 = 1;
    const bool wide = p->of->dtype == APRT_F64;
    const void *alpha = wide ? (const void *)&one64 : &one;
    const void *beta = wide ? (adds ? (const void *)&one64 : &zero64) : (adds ? (const void *)&one : &zero);
    LT_DO(d, cublasLtMatmul, cuda_of(d)->lt, p->op, alpha, b, p->b, a, p->a, beta, c, p->c, c, p->c, &p->algo,
          cuda_of(d)->workspace, p->workspace, cuda_of(d)->compute);
    return APRT_OK;
}

/* All turns of the loops that are no batch; sums are added up from the second one on. */
static int run_plan(aprt_device *d, const cuda_product *p, const char *a, const char *b, char *c)
{
    const int64_t size = aprt_dtype_bytes(p->of->dtype);
    int64_t index[APRT_MAX_LOOPS] = {0};
    for (int32_t l = 0; l >= 0;) {
        int64_t at_a = 0, at_b = 0, at_c = 0;
        bool adds = false;
        for (int32_t i = 0; i < p->nloops; i++) {
            at_a += index[i] * p->loop[i].a;
            at_b += index[i] * p->loop[i].b;
            at_c += index[i] * p->loop[i].c;
            adds = adds || (p->loop[i].sum && index[i] > 0);
        }
        CUDA_TRY(multiply(d, p, a + at_a * size, b + at_b * size, c + at_c * size, adds));
        for (l = p->nloops - 1; l >= 0 && ++index[l] == p->loop[l].extent; l--)
            index[l] = 0;
    }
    return APRT_OK;
}

/* Sums of nothing, and what follows. */
static int fill(aprt_device *d, const cuda_product *p, void *c, const void *bias)
{
    aprt_box box = {.ndims = 0};
    for (int32_t i = 0; i < p->of->nloops; i++)
        if (!p->of->sum[i]) {
            box.extent[box.ndims] = p->turns[i];
            box.b[box.ndims++] = p->of->stride_c[i];
        }
    box.extent[box.ndims] = p->m;
    box.b[box.ndims++] = p->of->rsc;
    box.extent[box.ndims] = p->n;
    box.a[box.ndims] = 1; /* of the bias */
    box.b[box.ndims++] = 1;
    return cuda_check(d,
                      cuda_box_after(cuda_of(d)->compute, cuda_blocks(d, aprt_box_count(&box)), &box, p->of->dtype,
                                     p->of->after, bias, c),
                      "a product of nothing");
}

/* The largest power of two, up to ALIGNED, that divides all addresses, those of later turns of the loops too. */
static uint32_t alignment_of(const aprt_cuda_product *of, const void *a, const void *b, const void *c)
{
    const uint64_t size = (uint64_t)aprt_dtype_bytes(of->dtype);
    uint64_t all = (uint64_t)((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) | ALIGNED;
    for (int32_t i = 0; i < of->nloops; i++)
        all |= ((uint64_t)of->stride_a[i] | (uint64_t)of->stride_b[i] | (uint64_t)of->stride_c[i]) * size;
    return (uint32_t)(all & (~all + 1));
}

static int gemm(aprt_device *d, const aprt_cuda_product *of, const int64_t *turns, const void *a, const void *b,
                void *c, const void *bias)
{
    cuda_product *p;
    CUDA_TRY(find_plan(d, of, turns, alignment_of(of, a, b, c), &p));
    if (p->empty)
        return APRT_OK;
    if (p->nothing)
        return fill(d, p, c, bias);
    if (bias)
        LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    return run_plan(d, p, a, b, c);
}

void aprt_cuda_gemm(aprt_device *d, const aprt_cuda_product *p, const int64_t *turns, const void *a, const void *b,
                    void *c, const void *bias)
{
    if (cuda_of(d)->status == APRT_OK)
        gemm(d, p, turns, a, b, c, bias);
}
