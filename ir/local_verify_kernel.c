/* Kernels of local programs: whether their operations are in order, and which elements they touch. */
#include "ir/local_text.h"

#include <string.h>

/* ---- reach ---- */

bool ap_reach_loop(ap_reach *r, int64_t extent, int64_t stride)
{
    int64_t far;
    if (extent <= 0) {
        r->any = false;
        return true;
    }
    if (!ap_mul_i64(extent - 1, stride, &far))
        return false;
    return ap_add_i64(far < 0 ? far : 0, r->lo, &r->lo) && ap_add_i64(far > 0 ? far : 0, r->hi, &r->hi);
}

static void join(ap_reach *all, const ap_reach *one)
{
    if (!one->any)
        return;
    all->lo = all->any ? ap_min_i64(all->lo, one->lo) : one->lo;
    all->hi = all->any ? ap_max_i64(all->hi, one->hi) : one->hi;
    all->any = true;
}

static int64_t turns_of(int64_t extent, uint32_t turns, const int64_t *ints)
{
    return turns && ints ? ints[turns - 1] : extent;
}

int64_t ap_local_lookup_rows(const ap_sop *s, const int64_t *ints)
{
    int64_t left;
    if (!ints || !ap_add_i64(s->limit, ints[s->imm.i] == INT64_MIN ? INT64_MAX : -ints[s->imm.i], &left))
        return s->extent;
    return ap_min_i64(left, s->extent);
}

static bool nest_reach(const ap_kernel *k, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    const ap_nest *n = &k->nest;
    const int64_t *stride = k->operand[operand].stride;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        ap_reach r = {.any = true};
        bool update = s->kind == AP_SOP_UPDATE, gather = s->kind == AP_SOP_GATHER || (update && s->imm.i >= 0);
        if ((s->kind != AP_SOP_LOAD && s->kind != AP_SOP_STORE && !update && !gather) || s->operand != operand)
            continue;
        int loops = n->inner[s->section] ? n->nouter + n->ninner : n->nouter;
        for (int l = 0; l < loops; l++)
            if (!ap_reach_loop(&r, turns_of(n->extent[l], n->turns[l], ints), stride[l]))
                return false;
        if (gather && !ap_reach_loop(&r, ap_local_lookup_rows(s, ints), s->stride))
            return false;
        join(out, &r);
    }
    return true;
}

static bool topk_reach(const ap_kernel *k, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    *out = (ap_reach){.any = true};
    for (int l = 0; l < k->nest.nouter; l++)
        if (!ap_reach_loop(out, turns_of(k->nest.extent[l], k->nest.turns[l], ints), k->operand[operand].stride[l]))
            return false;
    return ap_reach_loop(out, operand == 0 ? k->topk.n : k->topk.k, k->topk.stride[operand]);
}

static bool gemm_reach(const ap_gemm *g, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    int64_t m = turns_of(g->m, g->turns_m, ints), n = turns_of(g->n, g->turns_n, ints);
    int64_t k = turns_of(g->k, g->turns_k, ints);
    const int64_t *stride = operand == 0 ? g->stride_a : operand == 1 ? g->stride_b : g->stride_c;
    int64_t rows = operand == 1 ? k : m, columns = operand == 0 ? k : n;
    int64_t rs = operand == 0 ? g->rsa : operand == 1 ? g->rsb : g->rsc;
    int64_t cs = operand == 0 ? g->csa : operand == 1 ? g->csb : g->csc;
    *out = (ap_reach){.any = m > 0 && n > 0};
    for (int l = 0; l < g->nloops; l++) {
        int64_t turns = turns_of(g->extent[l], g->turns[l], ints);
        if (!ap_reach_loop(out, operand == 2 && g->sum[l] ? 1 : turns, stride[l]))
            return false;
    }
    return ap_reach_loop(out, rows, rs) && ap_reach_loop(out, columns, cs);
}

bool ap_local_kernel_reach(const ap_kernel *k, const int64_t *ints, uint32_t operand, ap_reach *out)
{
    *out = (ap_reach){0};
    if (k->kind == AP_KERNEL_TOPK)
        return topk_reach(k, ints, operand, out);
    if (k->kind == AP_KERNEL_CONV)
        return ap_local_conv_reach(&k->conv, ints, operand, out);
    if (k->kind == AP_KERNEL_POOL)
        return ap_local_pool_reach(&k->pool, ints, operand, out);
    return k->kind == AP_KERNEL_NEST || operand > 2 ? nest_reach(k, ints, operand, out)
                                                    : gemm_reach(&k->gemm, ints, operand, out);
}

static bool turns_fit(int n, const int64_t *extent, const uint32_t *turns, const int64_t *ints)
{
    for (int l = 0; l < n; l++)
        if (turns[l] && (ints[turns[l] - 1] < 0 || ints[turns[l] - 1] > extent[l]))
            return false;
    return true;
}

bool ap_local_turns_fit(const ap_kernel *k, const int64_t *ints)
{
    const ap_gemm *g = &k->gemm;
    const uint32_t turns[3] = {g->turns_m, g->turns_n, g->turns_k};
    const int64_t most[3] = {g->m, g->n, g->k};
    if (ap_kernel_has_loops(k))
        return turns_fit(k->nest.nouter + k->nest.ninner, k->nest.extent, k->nest.turns, ints);
    if (k->kind == AP_KERNEL_CONV)
        return ap_local_conv_turns_fit(&k->conv, ints);
    if (k->kind == AP_KERNEL_POOL)
        return turns_fit(k->pool.nloops, k->pool.extent, k->pool.turns, ints);
    return turns_fit(g->nloops, g->extent, g->turns, ints) && turns_fit(3, most, turns, ints);
}

/* ---- operations ---- */

static bool is_dtype(ap_dtype t)
{
    return t > AP_DTYPE_NONE && t < AP_DTYPE_COUNT;
}

/* Values of a row section are visible from then on, those of an inner one in that section only; what a
 * reduction folds is ready in later sections. */
static const char *argument_fault(const ap_nest *n, uint32_t id, uint32_t arg)
{
    const ap_sop *s = &n->sop[id];
    if (arg >= id || !ap_sop_has_value(&n->sop[arg]))
        return "it uses a value that is not made before";
    const ap_sop *a = &n->sop[arg];
    if (s->kind == AP_SOP_UPDATE && arg == s->arg[1] && s->imm.i >= 0 && !ap_dtype_is_int(a->dtype))
        return "its index is no integer";
    if (a->kind == AP_SOP_REDUCE && a->section == s->section)
        return "it uses a reduction in the section that computes it";
    if (a->kind != AP_SOP_REDUCE && n->inner[a->section] && a->section != s->section)
        return "it uses an inner value of another section";
    return NULL;
}

static const char *memory_fault(const ap_kernel *k, const ap_sop *s)
{
    if (s->operand >= k->noperands)
        return "it names no operand";
    if (s->dtype != k->operand[s->operand].dtype)
        return "its type is not that of the operand";
    if ((s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE) && !k->operand[s->operand].written)
        return "it stores to an operand that is only read";
    if ((s->kind == AP_SOP_GATHER || s->kind == AP_SOP_UPDATE) && (s->extent < 0 || s->limit < 0))
        return "its extent or limit is negative";
    if (s->kind == AP_SOP_UPDATE && s->reduce >= AP_SCATTER_KIND_COUNT)
        return "it updates in no known way";
    if (s->kind == AP_SOP_GATHER && !ap_dtype_is_int(k->nest.sop[s->arg[0]].dtype))
        return "its index is no integer";
    if (s->kind == AP_SOP_GATHER && s->imm.i < 0)
        return "it names no int";
    return NULL;
}

static const char *temp_fault(const ap_nest *n, const ap_sop *s, bool stored[AP_LOCAL_MAX_TEMPS])
{
    if (!n->inner[s->section])
        return "a row temporary is used outside the inner loops";
    if (s->imm.i < 0 || s->imm.i >= n->ntemps)
        return "it names no temporary";
    if (s->dtype != n->temp_dtype[s->imm.i])
        return "its type is not that of the temporary";
    if (s->kind == AP_SOP_TEMP_LOAD && !stored[s->imm.i])
        return "it reads a temporary that is not stored before";
    stored[s->imm.i] = true;
    return NULL;
}

static const char *reduce_fault(const ap_nest *n, const ap_sop *s)
{
    bool arg = s->reduce == AP_REDUCE_ARGMAX || s->reduce == AP_REDUCE_ARGMIN;
    if (!n->inner[s->section])
        return "a reduction outside the inner loops";
    if (s->reduce >= AP_REDUCE_KIND_COUNT)
        return "it is no kind of reduction";
    return s->dtype != (arg ? AP_I64 : n->sop[s->arg[0]].dtype) ? "its type is not what it reduces to" : NULL;
}

static const char *scan_fault(const ap_nest *n, const ap_sop *s)
{
    if (!n->inner[s->section] || n->ninner != 1)
        return "values accumulate along one inner loop";
    if (s->reduce > AP_REDUCE_MIN)
        return "it is no kind of reduction";
    return s->dtype != n->sop[s->arg[0]].dtype ? "its type is not what it accumulates" : NULL;
}

static const char *check_fault(const ap_nest *n, const ap_sop *s)
{
    if (!ap_dtype_is_int(s->dtype) || n->sop[s->arg[0]].dtype != s->dtype)
        return "its index is no integer, or of another type";
    return s->limit < 1 ? "its limit is not positive" : NULL;
}

static const char *sop_fault(const ap_kernel *k, uint32_t id, bool stored[AP_LOCAL_MAX_TEMPS])
{
    const ap_nest *n = &k->nest;
    const ap_sop *s = &n->sop[id];
    if (s->kind >= AP_SOP_KIND_COUNT || !is_dtype(s->dtype) || (s->kind == AP_SOP_POINTWISE && s->pw >= AP_PW_COUNT))
        return "it is no operation";
    if (s->section >= n->nsections || (id > 0 && s->section < n->sop[id - 1].section))
        return "the sections are not in order";
    for (int i = 0; i < ap_sop_nargs(s); i++) {
        const char *fault = argument_fault(n, id, s->arg[i]);
        if (fault)
            return fault;
    }
    if ((s->kind == AP_SOP_GATHER || s->kind == AP_SOP_INDEX || s->kind == AP_SOP_UPDATE) &&
        s->imm.i >= (int64_t)k->nints)
        return "it names no int";
    if (!ap_sop_has_value(s) && n->sop[s->arg[0]].dtype != s->dtype)
        return "what it stores has another type";
    switch (s->kind) {
    case AP_SOP_LOAD:
    case AP_SOP_GATHER:
    case AP_SOP_STORE:
    case AP_SOP_UPDATE:
        return memory_fault(k, s);
    case AP_SOP_CHECK:
        return check_fault(n, s);
    case AP_SOP_SCAN:
        return scan_fault(n, s);
    case AP_SOP_TEMP_LOAD:
    case AP_SOP_TEMP_STORE:
        return temp_fault(n, s, stored);
    case AP_SOP_REDUCE:
        return reduce_fault(n, s);
    case AP_SOP_INDEX:
        return s->dtype != AP_I64 ? "an index is an i64" : NULL;
    default:
        return NULL;
    }
}

static const char *nest_fault(const ap_kernel *k, uint32_t *out_sop)
{
    const ap_nest *n = &k->nest;
    bool stored[AP_LOCAL_MAX_TEMPS] = {false};
    if (n->nouter + n->ninner > AP_MAX_LOOPS || n->nsections > AP_LOCAL_MAX_SECTIONS || n->ntemps > AP_LOCAL_MAX_TEMPS)
        return "too many loops, sections or temporaries";
    for (int l = 0; l < n->nouter + n->ninner; l++) {
        if (n->extent[l] < 0)
            return "a loop has a negative extent";
        if (n->turns[l] > k->nints)
            return "a loop names no int";
    }
    for (int t = 0; t < n->ntemps; t++)
        if (!is_dtype(n->temp_dtype[t]))
            return "a temporary has no element type";
    for (uint32_t i = 0; i < n->nsops; i++) {
        const char *fault = sop_fault(k, i, stored);
        *out_sop = i;
        if (fault)
            return fault;
    }
    return NULL;
}

/* ---- matrix products ---- */

/* A matrix that BLAS takes as it is or transposed: a unit stride one way, a leading dimension the other. */
static bool blas_takes(int64_t rows, int64_t columns, int64_t rs, int64_t cs)
{
    bool unit_columns = columns <= 1 || cs == 1, unit_rows = rows <= 1 || rs == 1;
    bool by_rows = unit_columns && (rows <= 1 || rs >= ap_max_i64(columns, 1));
    bool by_columns = unit_rows && (columns <= 1 || cs >= ap_max_i64(rows, 1));
    return by_rows || by_columns;
}

static bool fits_panels(const ap_gemm *g)
{
    int64_t size = ap_sat_mul(g->k, g->n);
    for (int l = 0; l < g->nloops; l++)
        if (g->stride_b[l] < 0 || (size ? g->stride_b[l] % size : g->stride_b[l]))
            return false;
    return g->rsb == g->n && g->csb == 1 && !g->turns_n && !g->turns_k;
}

static const char *gemm_fault(const ap_kernel *k)
{
    const ap_gemm *g = &k->gemm;
    if (ap_kernel_has_epilogue(k) ? k->noperands < 3 : k->noperands != 3)
        return "a matrix product has three operands, and more only where something follows";
    if (k->operand[0].written || k->operand[1].written || !k->operand[2].written)
        return "a matrix product reads two operands and writes the third";
    if (!ap_dtype_is_float(g->dtype))
        return "matrix products are of floats";
    for (int i = 0; i < 3; i++)
        if (k->operand[i].dtype != g->dtype)
            return "an operand has another type than the matrix product";
    if (g->nloops > AP_MAX_LOOPS || g->m < 0 || g->n < 0 || g->k < 0)
        return "too many loops, or a negative extent";
    for (int l = 0; l < g->nloops; l++) {
        if (g->extent[l] < 0)
            return "a loop has a negative extent";
        if (g->sum[l] && g->stride_c[l] != 0)
            return "a summed loop moves through the result";
    }
    if (!blas_takes(g->m, g->k, g->rsa, g->csa) || !blas_takes(g->k, g->n, g->rsb, g->csb))
        return "an operand is laid out as BLAS does not take it";
    if (g->panels && !fits_panels(g))
        return "its panels are not walked as whole matrices";
    if (g->csc != 1 || (g->m > 1 && g->rsc < ap_max_i64(g->n, 1)))
        return "the result is not row-major";
    for (int l = 0; l < g->nloops; l++)
        if (g->turns[l] > k->nints)
            return "a loop names no int";
    return g->turns_m > k->nints || g->turns_n > k->nints || g->turns_k > k->nints ? "an extent names no int" : NULL;
}

const char *ap_local_kernel_fault(const ap_kernel *k, uint32_t *out_sop)
{
    *out_sop = AP_NONE;
    if (k->kind >= AP_KERNEL_COUNT)
        return "it is of no kind";
    if (k->noperands > AP_LOCAL_MAX_OPERANDS)
        return "too many operands";
    for (uint32_t i = 0; i < k->noperands; i++)
        if (!is_dtype(k->operand[i].dtype))
            return "an operand has no element type";
    if (k->kind == AP_KERNEL_POOL)
        return ap_local_pool_fault(k);
    if (k->kind == AP_KERNEL_CONV)
        return ap_local_conv_fault(k);
    if (k->kind == AP_KERNEL_TOPK)
        return nest_fault(k, out_sop) ? nest_fault(k, out_sop) : ap_local_topk_fault(k);
    if (k->kind == AP_KERNEL_NEST)
        return nest_fault(k, out_sop);
    const char *fault = gemm_fault(k);
    if (!fault && ap_kernel_has_epilogue(k))
        fault = ap_local_epilogue_fault(k);
    return !fault && ap_kernel_has_epilogue(k) ? nest_fault(k, out_sop) : fault;
}
