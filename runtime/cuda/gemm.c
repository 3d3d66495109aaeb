/* SPDX-License-Identifier: MIT
 *
 * Products by cuBLASLt. Our matrices are row-major and cuBLAS's are column-major, so it computes C' = B' A', where X'
 * is X read by columns: n takes the place of m, and a bias along n is what it calls a bias.
 *
 * A plan belongs to a product, the turns of this rank and how well its operands are aligned: loops that are one to all
 * operands joined, the longest one that is not summed as a batch, and the algorithm that the library's heuristics name
 * first for the workspace that there is. Where others are left that are not summed (heads of a batch of sequences, as
 * they lie) all of them are one batch of matrices by address, if the library has an algorithm for that; the addresses
 * are written to the end of the workspace. Otherwise, and along summed ones, calls are repeated. Plans stay until the
 * program is closed. */
#include "cuda_device.h"

#include <stdlib.h>

enum {
    ALIGNED = 16, /* bytes; more is no better */
    MOST_POINTERS = 1 << 16
};

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
    bool apart; /* what follows is a kernel: the library has no algorithm that does it */
    int32_t nloops;
    loop loop[APRT_MAX_LOOPS];
    loop batch;       /* of extent 1 if there is none */
    int32_t pointers; /* matrices of a batch by address, of the first loops of the list; 0: it goes by strides */
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

/* Loops that are not summed come first; as one batch by address, if they are several. */
static bool take_pointers(cuda_product *p)
{
    int64_t count = 1;
    int32_t n = 0;
    loop loops[APRT_MAX_LOOPS];
    for (int sum = 0; sum < 2; sum++)
        for (int32_t i = 0; i < p->nloops; i++)
            if (p->loop[i].sum == (sum != 0))
                loops[n++] = p->loop[i];
    memcpy(p->loop, loops, (size_t)n * sizeof *loops);
    for (n = 0; n < p->nloops && !p->loop[n].sum; n++)
        count = p->loop[n].extent > MOST_POINTERS / count ? MOST_POINTERS + 1 : count * p->loop[n].extent;
    p->pointers = n > 1 && count <= MOST_POINTERS ? (int32_t)count : 0;
    p->batch = (loop){.extent = 1};
    return p->pointers > 0;
}

static size_t pointer_bytes(const cuda_product *p)
{
    return ((size_t)p->pointers * 3 * sizeof(void *) + 255) / 256 * 256;
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
    if (p->pointers) {
#if CUBLAS_VERSION >= 130000
        const uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
        LT_DO(d, cublasLtMatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode);
#endif
        LT_DO(d, cublasLtMatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &p->pointers,
              sizeof p->pointers);
    } else if (p->batch.extent > 1) {
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
        [APRT_CUDA_NOTHING] = CUBLASLT_EPILOGUE_DEFAULT,
        [APRT_CUDA_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [APRT_CUDA_GELU_TANH] = CUBLASLT_EPILOGUE_GELU,
        [APRT_CUDA_BIAS_GELU_TANH] = CUBLASLT_EPILOGUE_GELU_BIAS,
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
    cublasOperation_t turned[3];
    LT_DO(d, cublasLtMatmulDescCreate, &p->op, compute, wide ? CUDA_R_64F : CUDA_R_32F);
    CUDA_TRY(make_layout(d, p, p->m, p->k, g->rsa, g->csa, p->batch.a, &p->a, &turned[0]));
    CUDA_TRY(make_layout(d, p, p->k, p->n, g->rsb, g->csb, p->batch.b, &p->b, &turned[1]));
    CUDA_TRY(make_layout(d, p, p->m, p->n, g->rsc, 1, p->batch.c, &p->c, &turned[2]));
    /* C' = B' A': its first operand is our second one */
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_TRANSA, &turned[1], sizeof turned[1]);
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_TRANSB, &turned[0], sizeof turned[0]);
    return APRT_OK;
}

/* The first algorithm of the library for what is to follow; found->state says whether there is one. */
static int ask(aprt_device *d, const cuda_product *p, aprt_cuda_after after, cublasLtMatmulHeuristicResult_t *found)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const size_t workspace = (size_t)d->stage->workspace_bytes - pointer_bytes(p);
    const cublasLtEpilogue_t epilogue = epilogue_of(after);
    cublasLtMatmulPreference_t wanted;
    int n = 0;
    LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    LT_DO(d, cublasLtMatmulPreferenceCreate, &wanted);
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &workspace, sizeof workspace);
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(wanted, aligned[i], &p->alignment, sizeof p->alignment);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(cuda_of(d)->lt, p->op, p->b, p->a, p->c, p->c, wanted, 1, found, &n);
    cublasLtMatmulPreferenceDestroy(wanted);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && !(p->pointers && status == CUBLAS_STATUS_INVALID_VALUE))
        CUDA_TRY(check(d, status, "the choice of an algorithm for a product"));
    if (n < 1 || status != CUBLAS_STATUS_SUCCESS)
        found->state = CUBLAS_STATUS_NOT_SUPPORTED;
    return APRT_OK;
}

/* p->algo for what follows, or, apart, for the product alone; *out: there is one. */
static int look(aprt_device *d, cuda_product *p, bool *out)
{
    cublasLtMatmulHeuristicResult_t found;
    CUDA_TRY(ask(d, p, p->of->after, &found));
    p->apart = found.state != CUBLAS_STATUS_SUCCESS && p->of->after != APRT_CUDA_NOTHING;
    if (p->apart)
        CUDA_TRY(ask(d, p, APRT_CUDA_NOTHING, &found));
    *out = found.state == CUBLAS_STATUS_SUCCESS;
    p->algo = found.algo;
    p->workspace = found.workspaceSize;
    return APRT_OK;
}

/* ---- plans ---- */

static void free_op(cuda_product *p)
{
    cublasLtMatrixLayout_t *const layouts[] = {&p->a, &p->b, &p->c};
    for (size_t i = 0; i < 3; i++) {
        if (*layouts[i])
            cublasLtMatrixLayoutDestroy(*layouts[i]);
        *layouts[i] = NULL;
    }
    if (p->op)
        cublasLtMatmulDescDestroy(p->op);
    p->op = NULL;
}

static void free_plan(cuda_product *p)
{
    free_op(p);
    free(p);
}

static int choose(aprt_device *d, cuda_product *p)
{
    bool found;
    if (CUBLAS_VERSION >= 130000 && take_pointers(p)) {
        CUDA_TRY(make_op(d, p));
        CUDA_TRY(look(d, p, &found));
        if (found)
            return APRT_OK;
        free_op(p);
        p->pointers = 0;
    }
    take_batch(p);
    CUDA_TRY(make_op(d, p));
    CUDA_TRY(look(d, p, &found));
    return found ? APRT_OK
                 : cuda_fail(d, APRT_ERR_ENV, "cuBLASLt has no algorithm for a product of %lld x %lld x %lld",
                             (long long)p->m, (long long)p->n, (long long)p->k);
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
    if (!cuda_of(d)->lt)
        LT_DO(d, cublasLtCreate, &cuda_of(d)->lt);
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

/* The addresses of a batch, as the library wants them. */
static int write_pointers(aprt_device *d, const cuda_product *p, const char **a, const char **b, char **c)
{
    aprt_box ab = {.ndims = 0}, only_c = {.ndims = 0};
    const size_t bytes = (size_t)d->stage->workspace_bytes - pointer_bytes(p);
    const void **out = (const void **)(void *)(cuda_of(d)->workspace + bytes);
    for (int32_t i = 0; i < p->nloops && !p->loop[i].sum; i++) {
        ab.extent[i] = only_c.extent[i] = p->loop[i].extent;
        ab.a[i] = p->loop[i].a;
        ab.b[i] = p->loop[i].b;
        only_c.a[i] = p->loop[i].c;
        ab.ndims = only_c.ndims = i + 1;
    }
    CUDA_TRY(cuda_check(d,
                        cuda_box_point(cuda_of(d)->compute, cuda_blocks(d, p->pointers), &ab, &only_c,
                                       aprt_dtype_bytes(p->of->dtype), *a, *b, *c, out),
                        "the addresses of a batch of products"));
    *a = (const char *)out;
    *b = (const char *)(out + p->pointers);
    *c = (char *)(out + 2 * (int64_t)p->pointers);
    return APRT_OK;
}

static int multiply(aprt_device *d, const cuda_product *p, const char *a, const char *b, char *c, bool adds)
{
    static const float zero = 0, one = 1;
    static const double zero64 = 0, one64 = 1;
    const bool wide = p->of->dtype == APRT_F64;
    const void *alpha = wide ? (const void *)&one64 : &one;
    const void *beta = wide ? (adds ? (const void *)&one64 : &zero64) : (adds ? (const void *)&one : &zero);
    if (p->pointers)
        CUDA_TRY(write_pointers(d, p, &a, &b, &c));
    LT_DO(d, cublasLtMatmul, cuda_of(d)->lt, p->op, alpha, b, p->b, a, p->a, beta, c, p->c, c, p->c, &p->algo,
          cuda_of(d)->workspace, p->workspace, cuda_of(d)->compute);
    return APRT_OK;
}

/* All turns of the loops that are no batch; sums are added up from the second one on. */
static int run_plan(aprt_device *d, const cuda_product *p, const char *a, const char *b, char *c)
{
    const int64_t size = aprt_dtype_bytes(p->of->dtype);
    int64_t index[APRT_MAX_LOOPS] = {0};
    int32_t first = 0;
    while (p->pointers && first < p->nloops && !p->loop[first].sum)
        first++;
    for (int32_t l = first; l >= first;) {
        int64_t at_a = 0, at_b = 0, at_c = 0;
        bool adds = false;
        for (int32_t i = first; i < p->nloops; i++) {
            at_a += index[i] * p->loop[i].a;
            at_b += index[i] * p->loop[i].b;
            at_c += index[i] * p->loop[i].c;
            adds = adds || (p->loop[i].sum && index[i] > 0);
        }
        CUDA_TRY(multiply(d, p, a + at_a * size, b + at_b * size, c + at_c * size, adds));
        for (l = p->nloops - 1; l >= first && ++index[l] == p->loop[l].extent; l--)
            index[l] = 0;
    }
    return APRT_OK;
}

/* What follows, of the sums in c, or of none. */
static int follow(aprt_device *d, const cuda_product *p, bool sums, void *c, const void *bias)
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
                                     p->of->after, sums, bias, c),
                      "what follows a product");
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
        return follow(d, p, false, c, bias);
    if (bias && !p->apart)
        LT_DO(d, cublasLtMatmulDescSetAttribute, p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    CUDA_TRY(run_plan(d, p, a, b, c));
    return p->apart ? follow(d, p, true, c, bias) : APRT_OK;
}

void aprt_cuda_gemm(aprt_device *d, const aprt_cuda_product *p, const int64_t *turns, const void *a, const void *b,
                    void *c, const void *bias)
{
    if (cuda_of(d)->status == APRT_OK)
        gemm(d, p, turns, a, b, c, bias);
}
