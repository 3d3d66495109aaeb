#include "backend/llvm/build.h"

LLVMTypeRef ap_ll_fold_type(const ap_ll *b, ap_fold_type fold, ap_dtype t)
{
    return fold == AP_FOLD_DOUBLE ? b->f64 : fold == AP_FOLD_U64 ? b->i64 : ap_ll_register(b, t);
}

ap_ll_value ap_ll_fold_start(const ap_nest *n, const ap_sop *s, LLVMTypeRef type)
{
    ap_dtype t = n->sop[s->arg[0]].dtype;
    ap_scalar x = ap_nest_fold_start(n, s);
    return ap_dtype_is_float(t) ? LLVMConstReal(type, x.f) : LLVMConstInt(type, (unsigned long long)x.i, true);
}

static bool is_unsigned_type(ap_dtype t)
{
    return t == AP_U8 || t == AP_U16 || t == AP_U32 || t == AP_U64;
}

ap_ll_value ap_ll_fold_widen(ap_ll *b, ap_dtype t, ap_ll_value x, LLVMTypeRef type)
{
    if (ap_dtype_is_float(t))
        return LLVMBuildFPCast(b->builder, x, type, "");
    return LLVMBuildIntCast2(b->builder, x, type, !is_unsigned_type(t), "");
}

/* With `nsz` an instruction or two less: x86 has one in which the second operand wins over NaN. */
ap_ll_value ap_ll_extreme(ap_ll *b, bool largest, ap_dtype t, ap_ll_value x, ap_ll_value y)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    ap_ll_value both[2] = {x, y};
    if (!ap_dtype_is_float(t)) {
        bool of_unsigned = is_unsigned_type(t) || t == AP_BOOL;
        return ap_ll_intrinsic(
            b, largest ? (of_unsigned ? "llvm.umax" : "llvm.smax") : (of_unsigned ? "llvm.umin" : "llvm.smin"), 1,
            &type, 2, both);
    }
    ap_ll_value r = ap_ll_intrinsic(b, largest ? "llvm.maximum" : "llvm.minimum", 1, &type, 2, both);
    LLVMSetFastMathFlags(r, LLVMFastMathNoSignedZeros);
    return r;
}

/* Sums and products may be made in lanes, as `omp simd reduction` has it. */
ap_ll_value ap_ll_fold(ap_ll *b, uint8_t reduce, ap_dtype t, ap_ll_value acc, ap_ll_value x)
{
    bool real = ap_dtype_is_float(t);
    if (reduce == AP_REDUCE_MAX || reduce == AP_REDUCE_MIN)
        return ap_ll_extreme(b, reduce == AP_REDUCE_MAX, t, acc, x);
    x = ap_ll_fold_widen(b, t, x, LLVMTypeOf(acc));
    if (reduce == AP_REDUCE_SUM)
        return real ? ap_ll_reorder(LLVMBuildFAdd(b->builder, acc, x, "")) : LLVMBuildAdd(b->builder, acc, x, "");
    return real ? ap_ll_reorder(LLVMBuildFMul(b->builder, acc, x, "")) : LLVMBuildMul(b->builder, acc, x, "");
}

ap_ll_value ap_ll_fold_takes(ap_ll *b, bool largest, ap_dtype t, ap_ll_value acc, ap_ll_value at, ap_ll_value x)
{
    LLVMBuilderRef to = b->builder;
    ap_ll_value first = LLVMBuildICmp(to, LLVMIntSLT, at, ap_ll_int(b, 0), "");
    if (!ap_dtype_is_float(t)) {
        bool of_unsigned = is_unsigned_type(t);
        LLVMIntPredicate how = largest       ? (of_unsigned ? LLVMIntUGT : LLVMIntSGT)
                               : of_unsigned ? LLVMIntULT
                                             : LLVMIntSLT;
        return LLVMBuildOr(to, first, LLVMBuildICmp(to, how, x, acc, ""), "");
    }
    ap_ll_value better = LLVMBuildFCmp(to, largest ? LLVMRealOGT : LLVMRealOLT, x, acc, "");
    ap_ll_value nan =
        LLVMBuildAnd(to, LLVMBuildFCmp(to, LLVMRealUNO, x, x, ""), LLVMBuildFCmp(to, LLVMRealOEQ, acc, acc, ""), "");
    return LLVMBuildOr(to, LLVMBuildOr(to, first, better, ""), nan, "");
}

ap_ll_value ap_ll_fold_end(ap_ll *b, ap_dtype t, ap_ll_value acc)
{
    LLVMTypeRef type = ap_ll_register(b, t);
    if (ap_dtype_is_float(t))
        return ap_ll_round(b, t, LLVMBuildFPCast(b->builder, acc, type, ""));
    return LLVMBuildIntCast2(b->builder, acc, type, !is_unsigned_type(t), "");
}
