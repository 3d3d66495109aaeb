/* Matrix products: loops around a call of the runtime, and a function for what follows, tile by tile. And kernels that
 * take the first k elements of rows. */
#include "backend/llvm/build.h"

#include <stdio.h>

static ap_ll_value operand_at(ap_ll_kernel *w, uint32_t i, ap_dtype t, const int64_t *stride, int loops,
                              const ap_ll_value *loop)
{
    return ap_ll_at(w->b, ap_ll_memory(w->b, t), w->operand[i], ap_ll_strides(w->b, loops, stride, loop));
}

/* ---- what follows ---- */

/* What the function gets: operands from 2 on, ints, loops around the product. */
static LLVMTypeRef record_type(const ap_ll_kernel *w)
{
    LLVMTypeRef *field =
        AP_NEW_ARRAY(&w->b->e->ctx->scratch, LLVMTypeRef, (size_t)w->k->noperands + w->k->nints + AP_MAX_LOOPS);
    unsigned n = 0;
    for (uint32_t i = 2; i < w->k->noperands; i++)
        field[n++] = w->b->ptr;
    for (uint32_t i = 0; i < w->k->nints; i++)
        field[n++] = w->b->i64;
    for (int l = 0; l < w->k->gemm.nloops; l++)
        field[n++] = w->b->i64;
    return LLVMStructTypeInContext(w->b->context, field, n, false);
}

static ap_ll_value field_of(ap_ll_kernel *w, LLVMTypeRef record, ap_ll_value base, unsigned number)
{
    return LLVMBuildStructGEP2(w->b->builder, record, base, number, "");
}

static ap_ll_value make_after(ap_ll_kernel *w, LLVMTypeRef record)
{
    ap_ll *b = w->b;
    ap_arena *arena = &b->e->ctx->scratch;
    ap_ll_kernel inside = {.b = b, .k = w->k, .apart = w->apart};
    LLVMTypeRef param[5] = {b->ptr, b->i64, b->i64, b->i64, b->i64};
    ap_ll_value loop[AP_MAX_LOOPS] = {NULL};
    char name[512];
    unsigned n = 0;
    snprintf(name, sizeof name, "%.200s_after_%.200s", b->e->opt->name, ap_name_str(b->e->ctx, w->k->name));
    inside.operand = AP_NEW_ARRAY(arena, ap_ll_value, w->k->noperands);
    inside.number = AP_NEW_ARRAY(arena, ap_ll_value, w->k->nints + 1);
    ap_ll_value function = ap_ll_open_function(b, name, LLVMFunctionType(b->none, param, 5, false));
    LLVMSetLinkage(function, LLVMInternalLinkage);
    ap_ll_value with = LLVMGetParam(function, 0);
    for (uint32_t i = 2; i < w->k->noperands; i++)
        inside.operand[i] = LLVMBuildLoad2(b->builder, b->ptr, field_of(w, record, with, n++), "");
    for (uint32_t i = 0; i < w->k->nints; i++)
        inside.number[i] = LLVMBuildLoad2(b->builder, b->i64, field_of(w, record, with, n++), "");
    for (int l = 0; l < w->k->gemm.nloops; l++)
        loop[l] = LLVMBuildLoad2(b->builder, b->i64, field_of(w, record, with, n++), "");
    const ap_ll_value row[2] = {LLVMGetParam(function, 1), LLVMGetParam(function, 2)};
    const ap_ll_value column[2] = {LLVMGetParam(function, 3), LLVMGetParam(function, 4)};
    ap_ll_tile(&inside, loop, row, column);
    ap_ll_close_function(b, NULL);
    return function;
}

static void fill_record(ap_ll_kernel *w, LLVMTypeRef record, ap_ll_value place, const ap_ll_value *loop)
{
    unsigned n = 0;
    for (uint32_t i = 2; i < w->k->noperands; i++)
        LLVMBuildStore(w->b->builder, w->operand[i], field_of(w, record, place, n++));
    for (uint32_t i = 0; i < w->k->nints; i++)
        LLVMBuildStore(w->b->builder, w->number[i], field_of(w, record, place, n++));
    for (int l = 0; l < w->k->gemm.nloops; l++)
        LLVMBuildStore(w->b->builder, loop[l], field_of(w, record, place, n++));
}

/* ---- products ---- */

/* Summed loops whose turns depend on the rank: without any, one turn adds a product of k = 0. */
static bool may_sum_nothing(const ap_gemm *g, int l)
{
    return g->sum[l] && g->turns[l];
}

static bool sums_nothing(const ap_gemm *g)
{
    bool nothing = g->k == 0;
    for (int l = 0; l < g->nloops; l++)
        nothing |= g->sum[l] && g->extent[l] == 0;
    return nothing;
}

static ap_ll_value is_none(ap_ll_kernel *w, uint32_t turns)
{
    return LLVMBuildICmp(w->b->builder, LLVMIntSLE, w->number[turns - 1], ap_ll_int(w->b, 0), "");
}

static ap_ll_value bound(ap_ll_kernel *w, int l)
{
    const ap_gemm *g = &w->k->gemm;
    if (sums_nothing(g) && g->sum[l])
        return ap_ll_int(w->b, 1);
    if (!may_sum_nothing(g, l))
        return ap_ll_turns(w, g->extent[l], g->turns[l]);
    return LLVMBuildSelect(w->b->builder, is_none(w, g->turns[l]), ap_ll_int(w->b, 1), w->number[g->turns[l] - 1], "");
}

static ap_ll_value summed(ap_ll_kernel *w)
{
    const ap_gemm *g = &w->k->gemm;
    ap_ll_value k = ap_ll_turns(w, g->k, g->turns_k);
    if (sums_nothing(g))
        return ap_ll_int(w->b, 0);
    for (int l = 0; l < g->nloops; l++)
        if (may_sum_nothing(g, l))
            k = LLVMBuildSelect(w->b->builder, is_none(w, g->turns[l]), ap_ll_int(w->b, 0), k, "");
    return k;
}

/* C is overwritten in the first turn of the summed loops. */
static ap_ll_value beta(ap_ll_kernel *w, const ap_ll_value *loop)
{
    const ap_gemm *g = &w->k->gemm;
    ap_ll_value any = LLVMConstInt(w->b->i1, 0, false);
    for (int l = 0; l < g->nloops && !sums_nothing(g); l++)
        if (g->sum[l] && g->extent[l] > 1)
            any = LLVMBuildOr(w->b->builder, any,
                              LLVMBuildICmp(w->b->builder, LLVMIntSGT, loop[l], ap_ll_int(w->b, 0), ""), "");
    return LLVMBuildZExt(w->b->builder, any, w->b->i32, "");
}

static void call_product(ap_ll_kernel *w, const ap_ll_value *loop, ap_ll_value after, ap_ll_value with)
{
    const ap_gemm *g = &w->k->gemm;
    ap_ll *b = w->b;
    ap_ll_value args[16];
    unsigned n = 0;
    char name[64];
    snprintf(name, sizeof name, "aprt_gemm_%s%s", g->panels ? "panels_" : "", ap_dtype_str(g->dtype));
    args[n++] = ap_ll_turns(w, g->m, g->turns_m);
    args[n++] = ap_ll_turns(w, g->n, g->turns_n);
    args[n++] = summed(w);
    args[n++] = operand_at(w, 0, g->dtype, g->stride_a, g->nloops, loop);
    args[n++] = ap_ll_int(b, g->rsa);
    args[n++] = ap_ll_int(b, g->csa);
    args[n++] = operand_at(w, 1, g->dtype, g->stride_b, g->nloops, loop);
    if (!g->panels) {
        args[n++] = ap_ll_int(b, g->rsb);
        args[n++] = ap_ll_int(b, g->csb);
    }
    args[n++] = beta(w, loop);
    args[n++] = operand_at(w, 2, g->dtype, g->stride_c, g->nloops, loop);
    args[n++] = ap_ll_int(b, g->rsc);
    args[n++] = after ? after : LLVMConstNull(b->ptr);
    args[n++] = with ? with : LLVMConstNull(b->ptr);
    ap_ll_call(b, name, b->none, n, args);
}

/* A function cannot be begun inside another one: what follows a product comes first. */
ap_ll_value ap_ll_after(ap_ll_kernel *w)
{
    return w->k->kind == AP_KERNEL_GEMM && w->k->nest.nsops ? make_after(w, record_type(w)) : NULL;
}

void ap_ll_gemm(ap_ll_kernel *w, ap_ll_value after)
{
    const ap_gemm *g = &w->k->gemm;
    ap_ll_loop open[AP_MAX_LOOPS];
    ap_ll_value loop[AP_MAX_LOOPS] = {NULL}, with = NULL;
    LLVMTypeRef record = after ? record_type(w) : NULL;
    if (after)
        with = ap_ll_stack(w->b, record, 1, 8);
    for (int l = 0; l < g->nloops; l++) {
        open[l] = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), bound(w, l), 1, false);
        loop[l] = open[l].i;
    }
    if (after)
        fill_record(w, record, with, loop);
    call_product(w, loop, after, with);
    for (int l = g->nloops; l-- > 0;)
        ap_ll_close_loop(w->b, &open[l]);
}

/* ---- the first of rows ---- */

void ap_ll_topk(ap_ll_kernel *w)
{
    const ap_nest *n = &w->k->nest;
    const ap_topk *row = &w->k->topk;
    ap_ll_loop open[AP_MAX_LOOPS];
    ap_ll_value loop[AP_MAX_LOOPS] = {NULL}, args[9];
    char name[64];
    for (int l = 0; l < n->nouter; l++) {
        open[l] = ap_ll_open_loop(w->b, ap_ll_int(w->b, 0), ap_ll_turns(w, n->extent[l], n->turns[l]), 1, false);
        loop[l] = open[l].i;
    }
    args[0] = ap_ll_int(w->b, row->n);
    args[1] = ap_ll_int(w->b, row->k);
    args[2] = ap_ll_int32(w->b, row->largest);
    for (uint32_t i = 0; i < 3; i++) {
        args[3 + 2 * i] = operand_at(w, i, w->k->operand[i].dtype, w->k->operand[i].stride, n->nouter, loop);
        args[4 + 2 * i] = ap_ll_int(w->b, row->stride[i]);
    }
    snprintf(name, sizeof name, "aprt_topk_%s", ap_dtype_str(w->k->operand[0].dtype));
    ap_ll_call(w->b, name, w->b->none, 9, args);
    for (int l = n->nouter; l-- > 0;)
        ap_ll_close_loop(w->b, &open[l]);
}
