/* The shim's cuBLASLt against loops over the definition: transposes, orders, leading dimensions, batches, all types,
 * scales, epilogues, and what the heuristics give. */
#include "unit.h"

#include <cublasLt.h>
#include <math.h>

enum { WORKSPACE = 1 << 16 };

typedef struct matrix {
    cublasLtOrder_t order;
    int64_t rows, cols, ld, stride;
    unit_array data;
    cublasLtMatrixLayout_t layout;
} matrix;

typedef struct product {
    cudaDataType_t type, result; /* of A and B, of C and D */
    int64_t m, n, k;
    int32_t batch;
    bool ta, tb;
    cublasLtEpilogue_t epilogue;
    double alpha, beta;
    matrix a, b, c, d;
    unit_array bias;
} product;

#define LT(call) assert_int_equal(call, CUBLAS_STATUS_SUCCESS)

static void make_matrix(matrix *x, cudaDataType_t type, int64_t rows, int64_t cols, int32_t batch, bool by_rows,
                        uint64_t *seed)
{
    const int64_t length = by_rows ? cols : rows, lines = by_rows ? rows : cols;
    x->order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    x->rows = rows;
    x->cols = cols;
    x->ld = length + below(seed, 3);
    x->stride = x->ld * lines + below(seed, 3);
    x->data = unit_make(type, x->stride * batch, 1, seed);
    LT(cublasLtMatrixLayoutCreate(&x->layout, type, (uint64_t)rows, (uint64_t)cols, x->ld));
    LT(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &(int32_t){(int32_t)x->order},
                                        sizeof(int32_t)));
    LT(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    LT(cublasLtMatrixLayoutSetAttribute(x->layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &x->stride,
                                        sizeof x->stride));
}

static int64_t place(const matrix *x, int32_t batch, int64_t row, int64_t col)
{
    return batch * x->stride + (x->order == CUBLASLT_ORDER_COL ? row + col * x->ld : row * x->ld + col);
}

static void draw(product *p, uint64_t *seed)
{
    static const cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF};
    static const cublasLtEpilogue_t after[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                               CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS};
    memset(p, 0, sizeof *p);
    p->type = p->result = types[below(seed, 4)];
    if (type_size(p->type) == 2 && below(seed, 3) == 0)
        p->result = CUDA_R_32F;
    p->m = 1 + below(seed, 9);
    p->n = 1 + below(seed, 9);
    p->k = 1 + below(seed, 20);
    p->batch = 1 + (int32_t)below(seed, 3);
    p->ta = below(seed, 2);
    p->tb = below(seed, 2);
    p->epilogue = p->type == CUDA_R_64F ? CUBLASLT_EPILOGUE_DEFAULT : after[below(seed, 4)];
    p->alpha = (double)(1 + below(seed, 2));
    p->beta = (double)(below(seed, 3) - 1);
    const bool by_rows = p->epilogue == CUBLASLT_EPILOGUE_DEFAULT && below(seed, 2);
    make_matrix(&p->a, p->type, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->batch, below(seed, 2), seed);
    make_matrix(&p->b, p->type, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->batch, below(seed, 2), seed);
    make_matrix(&p->c, p->result, p->m, p->n, p->batch, by_rows, seed);
    make_matrix(&p->d, p->result, p->m, p->n, p->batch, by_rows, seed);
    p->bias = unit_make(p->result, p->m, 2, seed);
}

static void drop(product *p)
{
    matrix *const all[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++) {
        LT(cublasLtMatrixLayoutDestroy(all[i]->layout));
        unit_free(&all[i]->data);
    }
    unit_free(&p->bias);
}

static cublasLtHandle_t handle;
static void *workspace;

static void multiply(product *p)
{
    const bool wide = p->type == CUDA_R_64F;
    const float alpha32 = (float)p->alpha, beta32 = (float)p->beta;
    const cublasOperation_t op[] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const size_t most = WORKSPACE;
    const uint32_t align = 2;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t want;
    cublasLtMatmulHeuristicResult_t found[4];
    int count = 0;
    LT(cublasLtMatmulDescCreate(&desc, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op[p->ta], sizeof op[0]));
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op[p->tb], sizeof op[0]));
    LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue));
    if (p->epilogue & CUBLASLT_EPILOGUE_BIAS)
        LT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias.device, sizeof(void *)));
    LT(cublasLtMatmulPreferenceCreate(&want));
    LT(cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(want, (cublasLtMatmulPreferenceAttributes_t)i, &align, sizeof align));
    LT(cublasLtMatmulAlgoGetHeuristic(handle, desc, p->a.layout, p->b.layout, p->c.layout, p->d.layout, want, 4, found,
                                      &count));
    assert_true(count > 0 && found[0].workspaceSize <= most);
    LT(cublasLtMatmul(handle, desc, wide ? (const void *)&p->alpha : &alpha32, p->a.data.device, p->a.layout,
                      p->b.data.device, p->b.layout, wide ? (const void *)&p->beta : &beta32, p->c.data.device,
                      p->c.layout, p->d.data.device, p->d.layout, &found[0].algo, workspace, found[0].workspaceSize,
                      NULL));
    unit_fetch(&p->d.data);
    LT(cublasLtMatmulPreferenceDestroy(want));
    LT(cublasLtMatmulDescDestroy(desc));
}

static double want_at(const product *p, int32_t batch, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t l = 0; l < p->k; l++)
        sum += p->a.data.x[place(&p->a, batch, p->ta ? l : i, p->ta ? i : l)] *
               p->b.data.x[place(&p->b, batch, p->tb ? j : l, p->tb ? l : j)];
    sum = p->alpha * sum + (p->beta != 0 ? p->beta * p->c.data.x[place(&p->c, batch, i, j)] : 0);
    sum += p->epilogue & CUBLASLT_EPILOGUE_BIAS ? p->bias.x[i] : 0;
    if (p->epilogue & CUBLASLT_EPILOGUE_GELU) /* by its definition with tanh */
        return sum / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (sum + 0.044715 * sum * sum * sum)));
    return p->epilogue & CUBLASLT_EPILOGUE_RELU && sum < 0 ? 0 : sum;
}

static void compare(const product *p, double tolerance, int number)
{
    for (int32_t batch = 0; batch < p->batch; batch++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                const double want = want_at(p, batch, i, j);
                const double got = unit_get(p->result, p->d.data.bytes, place(&p->d, batch, i, j));
                if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
                    fail_msg("product %d, batch %d, [%lld, %lld]: %g, not %g", number, (int)batch, (long long)i,
                             (long long)j, got, want);
            }
}

static void test_exact(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 150; i++) {
        product p;
        draw(&p, &seed);
        multiply(&p);
        compare(&p, 0, i);
        drop(&p);
    }
}

static void test_gelu(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 40; i++) {
        product p;
        do {
            draw(&p, &seed);
            /* rows of D that do not fill 16 bytes have no algorithm with GELU here */
            if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.result == CUDA_R_32F && p.m % 4 == 0)
                break;
            drop(&p);
        } while (true);
        p.epilogue = i % 2 ? CUBLASLT_EPILOGUE_GELU : CUBLASLT_EPILOGUE_GELU_BIAS;
        multiply(&p);
        compare(&p, 1e-6, i);
        drop(&p);
    }
}

static int open_library(void **state)
{
    (void)state;
    return cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS || cudaMalloc(&workspace, WORKSPACE) != cudaSuccess;
}

static int close_library(void **state)
{
    (void)state;
    return cublasLtDestroy(handle) != CUBLAS_STATUS_SUCCESS || cudaFree(workspace) != cudaSuccess;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_gelu),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
