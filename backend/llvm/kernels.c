#include "backend/llvm/build.h"

#include <stdio.h>

const char *ap_ll_kernel_name(const ap_emit *e, const ap_kernel *k)
{
    return ap_name_str(e->ctx, ap_name_format(e->ctx, "%s_k_%s", e->opt->name, ap_name_str(e->ctx, k->name)));
}

LLVMTypeRef ap_ll_kernel_type(const ap_ll *b, const ap_kernel *k)
{
    LLVMTypeRef *param = AP_NEW_ARRAY(&b->e->ctx->scratch, LLVMTypeRef, (size_t)k->noperands + k->nints + 2);
    unsigned n = 0;
    bool checks = ap_emit_nest_checks(k);
    for (uint32_t i = 0; i < k->noperands; i++)
        param[n++] = b->ptr;
    for (uint32_t i = 0; i < k->nints; i++)
        param[n++] = b->i64;
    if (ap_emit_nest_scratch(k))
        param[n++] = b->ptr;
    if (checks)
        param[n++] = b->ptr;
    return LLVMFunctionType(checks ? b->i32 : b->none, param, n, false);
}

ap_ll_value ap_ll_turns(const ap_ll_kernel *w, int64_t extent, uint32_t turns)
{
    return turns ? w->number[turns - 1] : ap_ll_int(w->b, extent);
}

void ap_ll_check_range(ap_ll_kernel *w, ap_ll_value x, int64_t first, int64_t limit)
{
    ap_ll *b = w->b;
    ap_ll_value below = LLVMBuildICmp(b->builder, LLVMIntSLT, x, ap_ll_int(b, first), "");
    ap_ll_value above = LLVMBuildICmp(b->builder, LLVMIntSGE, x, ap_ll_int(b, limit), "");
    LLVMBasicBlockRef after = ap_ll_open_if(b, LLVMBuildOr(b->builder, below, above, ""));
    ap_ll_write(b, w->bad, ap_ll_int(b, 0), x); /* aprt_bad: index, limit, first */
    ap_ll_write(b, w->bad, ap_ll_int(b, 1), ap_ll_int(b, limit));
    ap_ll_write(b, w->bad, ap_ll_int(b, 2), ap_ll_int(b, first));
    LLVMBuildRet(b->builder, ap_ll_int32(b, 1));
    LLVMPositionBuilderAtEnd(b->builder, after);
}

/* Parameters of the open function, with what is known of them. */
static void take_parameters(ap_ll_kernel *w)
{
    ap_ll *b = w->b;
    const ap_kernel *k = w->k;
    unsigned n = 0;
    for (uint32_t i = 0; i < k->noperands; i++) {
        w->operand[i] = LLVMGetParam(b->function, n++);
        if (w->apart)
            ap_ll_attribute(b, b->function, n, "noalias");
        if (!k->operand[i].written)
            ap_ll_attribute(b, b->function, n, "readonly");
    }
    for (uint32_t i = 0; i < k->nints; i++)
        w->number[i] = LLVMGetParam(b->function, n++);
    if (ap_emit_nest_scratch(k)) {
        w->scratch = LLVMGetParam(b->function, n++);
        ap_ll_attribute(b, b->function, n, "noalias");
    }
    if (ap_emit_nest_checks(k)) {
        w->bad = LLVMGetParam(b->function, n++);
        ap_ll_attribute(b, b->function, n, "noalias");
    }
}

/* A kernel is never made part of its caller, nor made for one caller: the same sums come out in the process and from an
 * object file. */
static void make_kernel(ap_ll *b, uint32_t index)
{
    const ap_kernel *k = b->e->kernel[index];
    ap_arena *arena = &b->e->ctx->scratch;
    ap_ll_kernel w = {.b = b, .k = k, .apart = b->e->apart[index]};
    w.operand = AP_NEW_ARRAY(arena, ap_ll_value, k->noperands + 1);
    w.number = AP_NEW_ARRAY(arena, ap_ll_value, k->nints + 1);
    ap_ll_value after = ap_ll_after(&w);
    ap_ll_value function = ap_ll_open_function(b, ap_ll_kernel_name(b->e, k), ap_ll_kernel_type(b, k));
    LLVMSetVisibility(function, LLVMHiddenVisibility);
    ap_ll_attribute(b, function, (unsigned)LLVMAttributeFunctionIndex, "noinline");
    take_parameters(&w);
    if (k->kind == AP_KERNEL_GEMM)
        ap_ll_gemm(&w, after);
    else if (k->kind == AP_KERNEL_POOL)
        ap_ll_pool(&w);
    else if (k->kind == AP_KERNEL_TOPK)
        ap_ll_topk(&w);
    else if (ap_emit_has_lanes(k))
        ap_ll_lanes(&w);
    else
        ap_ll_nest(&w);
    ap_ll_close_function(b, ap_emit_nest_checks(k) ? ap_ll_int32(b, 0) : NULL);
}

ap_status ap_ll_kernels(ap_ll *b, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        if (b->e->kernel[i]->kind != AP_KERNEL_CONV)
            make_kernel(b, i);
        else if (!ap_emit_conv_knows(b->e->kernel[i]))
            return ap_fail(b->e->ctx, AP_ERR_BUG, 0, "a convolution with a step that there is none for");
    }
    return AP_OK;
}
