/* cuBLASLt: D = epilogue(alpha*op(A)*op(B) + beta*C), in plain loops.
 *
 * What the library leaves to its caller is checked: an algorithm is for the layouts and alignments it was asked for,
 * wants its workspace (which is overwritten), and the pointers are memory of the stream's device. F32 sums are of f32,
 * in another order than those of the CPU's products; TF32 rounds the operands as tensor cores do. */
#include <cstdlib>

#include "matmul.h"

struct cublasLtContext {
    int device;
};

namespace shim
{

namespace
{
const uint64_t ALGO_MAGIC = 0x43553a616c676f21u;

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "descriptor");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

bool take(void *to, size_t want, const void *from, size_t size)
{
    if (size != want || !from)
        return false;
    memcpy(to, from, size);
    return true;
}

cublasStatus_t done(bool ok)
{
    return ok ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

bool known(int32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_64F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

bool layouts_fit(const Problem &p)
{
    bool ta = p.desc.transa != CUBLAS_OP_N, tb = p.desc.transb != CUBLAS_OP_N;
    uint64_t m = ta ? p.a.cols : p.a.rows, k = ta ? p.a.rows : p.a.cols;
    uint64_t kb = tb ? p.b.cols : p.b.rows, n = tb ? p.b.rows : p.b.cols;
    if (k != kb || p.d.rows != m || p.d.cols != n || p.c.rows != m || p.c.cols != n)
        return false;
    for (const Layout *l : {&p.a, &p.b, &p.c, &p.d}) {
        uint64_t least = l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols;
        if (l->ld < 1 || (uint64_t)l->ld < least || l->batch != p.d.batch || l->mode != p.d.mode)
            return false;
    }
    return true;
}

bool types_fit(const Problem &p)
{
    if (!known(p.a.type) || p.a.type != p.b.type || p.c.type != p.d.type)
        return false;
    if (p.a.type == CUDA_R_64F)
        return p.d.type == CUDA_R_64F && p.desc.scale == CUDA_R_64F &&
               (p.desc.compute == CUBLAS_COMPUTE_64F || p.desc.compute == CUBLAS_COMPUTE_64F_PEDANTIC);
    bool wide = p.desc.compute == CUBLAS_COMPUTE_32F || p.desc.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                (p.a.type == CUDA_R_32F && p.desc.compute >= CUBLAS_COMPUTE_32F_FAST_16F);
    return wide && p.desc.scale == CUDA_R_32F && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

bool epilogue_fits(const Problem &p)
{
    switch (p.desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return true;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        /* a bias is along the rows of D, whose order is that of columns then */
        return p.d.type != CUDA_R_64F && p.d.order == CUBLASLT_ORDER_COL;
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        /* the library may have no algorithm with it: not for rows that do not fill accesses of 16 bytes, here */
        return p.d.type != CUDA_R_64F && p.d.order == CUBLASLT_ORDER_COL && p.d.rows * element_size(p.d.type) % 16 == 0;
    default:
        return false;
    }
}

uint64_t shape_hash(const Problem &p)
{
    uint64_t h = 1;
    for (const Layout *l : {&p.a, &p.b, &p.c, &p.d})
        for (uint64_t v : {(uint64_t)l->type, (uint64_t)l->order, l->rows, l->cols, (uint64_t)l->ld, (uint64_t)l->batch,
                           (uint64_t)l->stride, (uint64_t)l->mode})
            h = mix(h ^ v);
    for (int32_t v : {p.desc.compute, p.desc.transa, p.desc.transb, p.desc.epilogue})
        h = mix(h ^ (uint64_t)v);
    return h;
}

size_t span(const Layout &l)
{
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.cols : l.rows;
    uint64_t length = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    if (lines == 0 || length == 0)
        return 0;
    if (l.mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY)
        return (size_t)l.batch * sizeof(void *);
    int64_t last = (int64_t)(lines - 1) * l.ld + (int64_t)length - 1 + (l.batch - 1) * l.stride;
    return (size_t)(last + 1) * element_size(l.type);
}

bool aligned(const void *p, uint32_t to, const char *which)
{
    if ((uintptr_t)p % to == 0)
        return true;
    report("cublasLtMatmul: %s, %p, is not aligned to %u bytes, as its algorithm was told "
           "(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_%s_BYTES)",
           which, p, to, which);
    return false;
}

bool operands_fit(const Problem &p, const Algo &algo, const Operands &o, int device)
{
    bool bias = p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
    if (algo.magic != ALGO_MAGIC || algo.shape != shape_hash(p)) {
        report("cublasLtMatmul: the algorithm is not one for these layouts");
        return false;
    }
    if (o.workspace_bytes < algo.workspace) {
        report("cublasLtMatmul: a workspace of %zu bytes, the algorithm wants %u", o.workspace_bytes, algo.workspace);
        return false;
    }
    return memory_check(o.a, span(p.a), device, "cublasLtMatmul: A") &&
           memory_check(o.b, span(p.b), device, "cublasLtMatmul: B") &&
           memory_check(o.d, span(p.d), device, "cublasLtMatmul: D") &&
           (o.beta == 0 || memory_check(o.c, span(p.c), device, "cublasLtMatmul: C")) &&
           (!bias || memory_check(p.desc.bias, bias_span(p), device, "cublasLtMatmul: bias")) &&
           memory_check(o.workspace, algo.workspace, device, "cublasLtMatmul: workspace") &&
           (p.d.mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY || /* each matrix is looked at when it is there */
            (aligned(o.a, algo.align[0], "A") && aligned(o.b, algo.align[1], "B") &&
             (o.beta == 0 || aligned(o.c, algo.align[2], "C")) && aligned(o.d, algo.align[3], "D")));
}

/* With no preference for alignment, pointers are taken to be aligned to 256 bytes. */
Algo choose(const Problem &p, const Preference &pref)
{
    Algo algo = {};
    algo.magic = ALGO_MAGIC;
    algo.shape = shape_hash(p);
    algo.workspace = pref.workspace >= 4096 ? 4096 : 0;
    for (int i = 0; i < 4; i++)
        algo.align[i] = pref.align[i];
    return algo;
}

Problem problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                cublasLtMatrixLayout_t d)
{
    Problem p;
    memcpy(&p.desc, desc->data, sizeof p.desc);
    memcpy(&p.a, a->data, sizeof p.a);
    memcpy(&p.b, b->data, sizeof p.b);
    memcpy(&p.c, c->data, sizeof p.c);
    memcpy(&p.d, d->data, sizeof p.d);
    return p;
}
} // namespace

size_t element_size(int32_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

size_t bias_span(const Problem &p)
{
    int32_t type = p.desc.bias_type < 0 ? p.d.type : p.desc.bias_type;
    return (size_t)((int64_t)p.d.rows + (p.d.batch - 1) * p.desc.bias_stride) * element_size(type);
}

} // namespace shim

using namespace shim;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext{device_now()};
    object_add(*handle, CUBLAS);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!object_check(handle, CUBLAS, "cublasLtDestroy"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    object_remove(handle);
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS           ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_INVALID_VALUE   ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                                     : "CUBLAS_STATUS_INTERNAL_ERROR";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t l, cudaDataType type, uint64_t rows, uint64_t cols,
                                        int64_t ld)
{
    Layout layout = {type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0, CUBLASLT_BATCH_MODE_STRIDED};
    memset(l, 0, sizeof *l);
    memcpy(l->data, &layout, sizeof layout);
    return done(known(type));
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld)
{
    *l = new cublasLtMatrixLayoutOpaque_t;
    object_add(*l, DESCRIPTOR);
    return cublasLtMatrixLayoutInit(*l, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    if (!object_check(l, DESCRIPTOR, "cublasLtMatrixLayoutDestroy"))
        return CUBLAS_STATUS_INVALID_VALUE;
    object_remove(l);
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attr,
                                                const void *from, size_t size)
{
    Layout *layout = (Layout *)l->data;
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return done(take(&layout->type, 4, from, size) && known(layout->type));
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return done(take(&layout->order, 4, from, size) && (uint32_t)layout->order <= CUBLASLT_ORDER_ROW);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return done(take(&layout->rows, 8, from, size));
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return done(take(&layout->cols, 8, from, size));
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return done(take(&layout->ld, 8, from, size));
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return done(take(&layout->batch, 4, from, size) && layout->batch >= 1);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return done(take(&layout->stride, 8, from, size));
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
        return done(take(&layout->mode, 4, from, size) && layout->mode <= CUBLASLT_BATCH_MODE_POINTER_ARRAY);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t d, cublasComputeType_t compute, cudaDataType_t scale)
{
    Desc desc = {compute, scale,  CUBLASLT_POINTER_MODE_HOST, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, -1,
                 0,       nullptr};
    memset(d, 0, sizeof *d);
    memcpy(d->data, &desc, sizeof desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
    *d = new cublasLtMatmulDescOpaque_t;
    object_add(*d, DESCRIPTOR);
    return cublasLtMatmulDescInit(*d, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    if (!object_check(d, DESCRIPTOR, "cublasLtMatmulDescDestroy"))
        return CUBLAS_STATUS_INVALID_VALUE;
    object_remove(d);
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
                                              const void *from, size_t size)
{
    Desc *desc = (Desc *)d->data;
    int32_t ignored;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return done(take(&desc->compute, 4, from, size));
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return done(take(&desc->scale, 4, from, size));
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return done(take(&desc->pointer_mode, 4, from, size) && desc->pointer_mode == CUBLASLT_POINTER_MODE_HOST);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return done(take(&desc->transa, 4, from, size));
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return done(take(&desc->transb, 4, from, size));
    case CUBLASLT_MATMUL_DESC_TRANSC:
        return done(take(&ignored, 4, from, size) && ignored == CUBLAS_OP_N);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return done(take(&desc->epilogue, 4, from, size));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return done(take(&desc->bias, sizeof(void *), from, size));
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return done(take(&desc->bias_stride, 8, from, size));
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return done(take(&desc->bias_type, 4, from, size));
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return done(take(&ignored, 4, from, size));
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t p)
{
    Preference pref = {0, {256, 256, 256, 256}};
    memset(p, 0, sizeof *p);
    memcpy(p->data, &pref, sizeof pref);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new cublasLtMatmulPreferenceOpaque_t;
    object_add(*p, DESCRIPTOR);
    return cublasLtMatmulPreferenceInit(*p);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    if (!object_check(p, DESCRIPTOR, "cublasLtMatmulPreferenceDestroy"))
        return CUBLAS_STATUS_INVALID_VALUE;
    object_remove(p);
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void *from,
                                                    size_t size)
{
    Preference *pref = (Preference *)p->data;
    uint32_t ignored;
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return done(take(&pref->workspace, 8, from, size));
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
        uint32_t &align = pref->align[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
        return done(take(&align, 4, from, size) && align > 0);
    }
    default:
        return done(take(&ignored, 4, from, size));
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int want,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    *count = 0;
    if (!object_check(handle, CUBLAS, "cublasLtMatmulAlgoGetHeuristic"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    Problem p = problem(desc, a, b, c, d);
    if (want < 1 || !layouts_fit(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(p) || !epilogue_fits(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    Preference pref;
    memcpy(&pref, preference->data, sizeof pref);
    Algo algo = choose(p, pref);
    memset(results, 0, sizeof *results);
    memcpy(results->algo.data, &algo, sizeof algo);
    results->workspaceSize = algo.workspace;
    results->wavesCount = 1;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t adesc, const void *b, cublasLtMatrixLayout_t bdesc,
                              const void *beta, const void *c, cublasLtMatrixLayout_t cdesc, void *d,
                              cublasLtMatrixLayout_t ddesc, const cublasLtMatmulAlgo_t *with, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cublasLtMatmul");
    if (!s || !object_check(handle, CUBLAS, "cublasLtMatmul"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    Problem p = problem(desc, adesc, bdesc, cdesc, ddesc);
    if (!layouts_fit(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(p) || !epilogue_fits(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (handle->device != s->device) {
        report("cublasLtMatmul: a handle of device %d, a stream of device %d", handle->device, s->device);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool wide = p.desc.scale == CUDA_R_64F;
    Operands o = {a,
                  b,
                  c,
                  d,
                  wide ? *(const double *)alpha : *(const float *)alpha,
                  wide ? *(const double *)beta : *(const float *)beta,
                  workspace,
                  workspace_bytes,
                  {0, 0, 0, 0}};
    Algo algo = choose(p, Preference{0, {16, 16, 16, 16}}); /* with none given, the library chooses one itself */
    if (with)
        memcpy(&algo, with->data, sizeof algo);
    memcpy(o.align, algo.align, sizeof o.align);
    if (!operands_fit(p, algo, o, s->device))
        return CUBLAS_STATUS_INVALID_VALUE;
    Lock lock(machine().lock);
    Work work;
    work.name = "cublasLtMatmul";
    work.device = s->device;
    work.run = [p, o, algo] { matmul_run(p, o, algo.workspace); };
    stream_put(lock, s, std::move(work));
    return CUBLAS_STATUS_SUCCESS;
}
