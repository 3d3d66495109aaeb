/* The formulas of ir/op/pointwise.def as instructions: each primitive is a function here. The approximations of exp,
 * tanh and erf are those of runtime/autopar_rt.h, operation by operation. */
#include "backend/llvm/build.h"

#include <stdio.h>
#include <string.h>

static bool is_unsigned_type(ap_dtype t)
{
    return t == AP_U8 || t == AP_U16 || t == AP_U32 || t == AP_U64;
}

typedef struct maker {
    ap_ll *b;
    ap_dtype type; /* of the operands */
    ap_dtype result;
    bool is_float, is_signed;
    LLVMTypeRef reg; /* of the operands */
} maker;

static ap_ll_value number(const maker *p, double x)
{
    return LLVMConstReal(p->reg, x);
}

static ap_ll_value whole(const maker *p, int64_t x)
{
    return LLVMConstInt(p->reg, (unsigned long long)x, true);
}

/* ---- operations on floats of the maker's type ---- */

static ap_ll_value fadd(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return ap_ll_contract(LLVMBuildFAdd(p->b->builder, x, y, ""));
}
static ap_ll_value fsub(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return ap_ll_contract(LLVMBuildFSub(p->b->builder, x, y, ""));
}
static ap_ll_value fmul(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return ap_ll_contract(LLVMBuildFMul(p->b->builder, x, y, ""));
}
static ap_ll_value fdiv(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return ap_ll_contract(LLVMBuildFDiv(p->b->builder, x, y, ""));
}

static ap_ll_value fcmp(const maker *p, LLVMRealPredicate how, ap_ll_value x, ap_ll_value y)
{
    return LLVMBuildFCmp(p->b->builder, how, x, y, "");
}

static ap_ll_value choose(const maker *p, ap_ll_value condition, ap_ll_value x, ap_ll_value y)
{
    return LLVMBuildSelect(p->b->builder, condition, x, y, "");
}

static ap_ll_value intrinsic(const maker *p, const char *name, unsigned n, ap_ll_value x, ap_ll_value y)
{
    LLVMTypeRef type = p->reg;
    ap_ll_value args[2] = {x, y};
    return ap_ll_intrinsic(p->b, name, 1, &type, n, args);
}

/* A function of <math.h>. */
static ap_ll_value library(const maker *p, const char *name, unsigned n, ap_ll_value x, ap_ll_value y)
{
    char full[32];
    ap_ll_value args[2] = {x, y};
    snprintf(full, sizeof full, "%s%s", name, p->type == AP_F64 ? "" : "f");
    ap_ll_value call = ap_ll_call(p->b, full, p->reg, n, args);
    ap_ll_value function = LLVMGetNamedFunction(p->b->module, full);
    unsigned at = (unsigned)LLVMAttributeFunctionIndex;
    ap_ll_attribute(p->b, function, at, "nounwind");
    ap_ll_attribute(p->b, function, at, "willreturn");
    unsigned memory = LLVMGetEnumAttributeKindForName("memory", strlen("memory")); /* 0: none; errno is not looked at */
    LLVMAddAttributeAtIndex(function, at, LLVMCreateEnumAttribute(p->b->context, memory, 0));
    return call;
}

/* c[0]*x^n-1 + ... + c[n-1] by Horner's rule, the signs in the numbers. */
static ap_ll_value polynomial(const maker *p, ap_ll_value x, int n, const double *c)
{
    ap_ll_value y = number(p, c[0]);
    for (int i = 1; i < n; i++)
        y = fadd(p, fmul(p, y, x), number(p, c[i]));
    return y;
}

static ap_ll_value exp_f32(const maker *p, ap_ll_value x)
{
    static const double c[] = {1.3813142e-3f, 8.369419e-3f, 4.16684568e-2f, 1.666651479e-1f, 0.49999993f};
    LLVMBuilderRef at = p->b->builder;
    LLVMTypeRef i32 = p->b->i32;
    ap_ll_value y = choose(p, fcmp(p, LLVMRealOLT, x, number(p, -104)), number(p, -104), x);
    y = choose(p, fcmp(p, LLVMRealOGT, y, number(p, 89)), number(p, 89), y);
    ap_ll_value z = fadd(p, fmul(p, y, number(p, 1.44269504f)), number(p, 12582912));
    ap_ll_value n = fsub(p, z, number(p, 12582912));
    ap_ll_value r = fsub(p, y, fmul(p, n, number(p, 0.693359375f)));
    r = fsub(p, r, fmul(p, n, number(p, -2.12194440e-4f)));
    ap_ll_value q = polynomial(p, r, 5, c);
    q = fadd(p, fadd(p, fmul(p, q, fmul(p, r, r)), r), number(p, 1));
    ap_ll_value k = LLVMBuildSub(at, LLVMBuildBitCast(at, z, i32, ""), LLVMConstInt(i32, 0x4b400000u, false), "");
    ap_ll_value half = LLVMBuildAShr(at, k, LLVMConstInt(i32, 1, false), "");
    ap_ll_value rest = LLVMBuildSub(at, k, half, "");
    ap_ll_value part[2] = {half, rest};
    for (int i = 0; i < 2; i++) {
        ap_ll_value biased = LLVMBuildAdd(at, part[i], LLVMConstInt(i32, 127, false), "");
        biased = LLVMBuildShl(at, biased, LLVMConstInt(i32, 23, false), "");
        q = fmul(p, q, LLVMBuildBitCast(at, biased, p->b->f32, ""));
    }
    return q;
}

static ap_ll_value exponential(const maker *p, ap_ll_value x)
{
    return p->type == AP_F64 ? library(p, "exp", 1, x, NULL) : exp_f32(p, x);
}

static ap_ll_value hyperbolic_tangent(const maker *p, ap_ll_value x)
{
    static const double c[] = {2.064662e-3f,    -8.0919644e-3f,  2.16663450e-2f,
                               -5.39405628e-2f, 1.333315789e-1f, -3.333332961e-1f};
    if (p->type == AP_F64)
        return library(p, "tanh", 1, x, NULL);
    ap_ll_value a = intrinsic(p, "llvm.fabs", 1, x, NULL), u = fmul(p, x, x);
    ap_ll_value small = fadd(p, a, fmul(p, fmul(p, a, u), polynomial(p, u, 6, c)));
    ap_ll_value e = exp_f32(p, fmul(p, number(p, 2), a));
    ap_ll_value large = fsub(p, number(p, 1), fdiv(p, number(p, 2), fadd(p, e, number(p, 1))));
    ap_ll_value y = choose(p, fcmp(p, LLVMRealOLT, a, number(p, 0.65f)), small, large);
    return intrinsic(p, "llvm.copysign", 2, y, x);
}

static ap_ll_value error_function(const maker *p, ap_ll_value x)
{
    static const double c[] = {7.8538575507e-5f, -8.0101924749e-4f, 5.1883275550e-3f, -2.6853811867e-2f,
                               1.1283585147e-1f, -3.7612625824e-1f, 0.12837916571f};
    static const double d[] = {-2.1445603473e-5f, 4.3853034053e-4f,  -4.1908575762e-3f, 2.5171813159e-2f,
                               -1.0836155880e-1f, -6.3327240832e-1f, -1.1295520439f,    1.8246066986e-4f};
    if (p->type == AP_F64)
        return library(p, "erf", 1, x, NULL);
    ap_ll_value a = intrinsic(p, "llvm.fabs", 1, x, NULL), u = fmul(p, x, x);
    ap_ll_value small = fadd(p, a, fmul(p, a, polynomial(p, u, 7, c)));
    ap_ll_value t = choose(p, fcmp(p, LLVMRealOGT, a, number(p, 4)), number(p, 4), a);
    ap_ll_value large = fsub(p, number(p, 1), exp_f32(p, polynomial(p, t, 8, d)));
    ap_ll_value y = choose(p, fcmp(p, LLVMRealOLT, a, number(p, 1)), small, large);
    return intrinsic(p, "llvm.copysign", 2, y, x);
}

/* ---- integers: as APRT_INT_COMMON says ---- */

static ap_ll_value icmp(const maker *p, LLVMIntPredicate of_signed, LLVMIntPredicate of_unsigned, ap_ll_value x,
                        ap_ll_value y)
{
    return LLVMBuildICmp(p->b->builder, p->is_signed ? of_signed : of_unsigned, x, y, "");
}

static ap_ll_value equals(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return LLVMBuildICmp(p->b->builder, LLVMIntEQ, x, y, "");
}

/* x / y or what remains; by 1 where the machine would stop, and what that gives is replaced. */
static ap_ll_value divide(const maker *p, ap_ll_value x, ap_ll_value y, bool remainder)
{
    LLVMBuilderRef at = p->b->builder;
    ap_ll_value zero = whole(p, 0), none = equals(p, y, zero), r;
    if (!p->is_signed) {
        ap_ll_value by = choose(p, none, whole(p, 1), y);
        r = remainder ? LLVMBuildURem(at, x, by, "") : LLVMBuildUDiv(at, x, by, "");
        return choose(p, none, zero, r);
    }
    ap_ll_value back = equals(p, y, whole(p, -1));
    ap_ll_value by = choose(p, LLVMBuildOr(at, none, back, ""), whole(p, 1), y);
    if (!remainder) {
        r = choose(p, back, LLVMBuildNeg(at, x, ""), LLVMBuildSDiv(at, x, by, ""));
        return choose(p, none, zero, r);
    }
    r = LLVMBuildSRem(at, x, by, "");
    ap_ll_value differ =
        LLVMBuildXor(at, LLVMBuildICmp(at, LLVMIntSLT, r, zero, ""), LLVMBuildICmp(at, LLVMIntSLT, y, zero, ""), "");
    differ = LLVMBuildAnd(at, differ, LLVMBuildICmp(at, LLVMIntNE, r, zero, ""), "");
    return choose(p, differ, LLVMBuildAdd(at, r, y, ""), r);
}

/* ---- primitives of either kind ---- */

static ap_ll_value truth(const maker *p, ap_ll_value condition)
{
    return LLVMBuildZExt(p->b->builder, condition, p->b->i32, "");
}

static ap_ll_value negate(const maker *p, ap_ll_value x)
{
    return p->is_float ? LLVMBuildFNeg(p->b->builder, x, "") : LLVMBuildNeg(p->b->builder, x, "");
}

static ap_ll_value absolute(const maker *p, ap_ll_value x)
{
    if (p->is_float)
        return intrinsic(p, "llvm.fabs", 1, x, NULL);
    return p->is_signed ? choose(p, LLVMBuildICmp(p->b->builder, LLVMIntSLT, x, whole(p, 0), ""), negate(p, x), x) : x;
}

static ap_ll_value sign(const maker *p, ap_ll_value x)
{
    if (p->is_float) {
        ap_ll_value zero = number(p, 0);
        ap_ll_value y = choose(p, fcmp(p, LLVMRealUNO, x, x), x, zero);
        y = choose(p, fcmp(p, LLVMRealOLT, x, zero), number(p, -1), y);
        return choose(p, fcmp(p, LLVMRealOGT, x, zero), number(p, 1), y);
    }
    ap_ll_value positive = icmp(p, LLVMIntSGT, LLVMIntUGT, x, whole(p, 0));
    ap_ll_value negative = icmp(p, LLVMIntSLT, LLVMIntULT, x, whole(p, 0));
    return choose(p, positive, whole(p, 1), choose(p, negative, whole(p, -1), whole(p, 0)));
}

enum { EQUAL, LESS, AT_MOST };
static ap_ll_value compare(const maker *p, int how, ap_ll_value x, ap_ll_value y)
{
    static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealOLT, LLVMRealOLE};
    static const LLVMIntPredicate is_signed[] = {LLVMIntEQ, LLVMIntSLT, LLVMIntSLE};
    static const LLVMIntPredicate is_unsigned[] = {LLVMIntEQ, LLVMIntULT, LLVMIntULE};
    return truth(p, p->is_float ? fcmp(p, real[how], x, y) : icmp(p, is_signed[how], is_unsigned[how], x, y));
}

static ap_ll_value shift(const maker *p, bool left, ap_ll_value x, ap_ll_value y)
{
    LLVMBuilderRef at = p->b->builder;
    LLVMTypeRef i64 = p->b->i64;
    ap_ll_value wide = p->is_signed ? LLVMBuildSExt(at, x, i64, "") : LLVMBuildZExt(at, x, i64, "");
    ap_ll_value by = p->is_signed ? LLVMBuildSExt(at, y, i64, "") : LLVMBuildZExt(at, y, i64, "");
    ap_ll_value far = LLVMBuildICmp(at, LLVMIntUGT, by, LLVMConstInt(i64, 63, false), "");
    by = choose(p, far, LLVMConstInt(i64, 0, false), by);
    ap_ll_value r = left ? LLVMBuildShl(at, wide, by, "") : LLVMBuildLShr(at, wide, by, "");
    r = choose(p, far, LLVMConstInt(i64, 0, false), r);
    return LLVMBuildTrunc(at, r, p->reg, "");
}

/* Floats to integers truncate and saturate, NaN gives 0, as aprt_i32_of_float does. */
static ap_ll_value to_integer(const maker *p, ap_ll_value x, LLVMTypeRef to)
{
    bool of_unsigned = is_unsigned_type(p->result);
    LLVMTypeRef types[2] = {to, p->reg};
    return ap_ll_intrinsic(p->b, of_unsigned ? "llvm.fptoui.sat" : "llvm.fptosi.sat", 2, types, 1, &x);
}

static ap_ll_value cast(const maker *p, ap_ll_value x)
{
    LLVMBuilderRef at = p->b->builder;
    LLVMTypeRef to = ap_ll_register(p->b, p->result);
    if (p->result == p->type)
        return x;
    if (p->result == AP_BOOL)
        return truth(p, p->is_float ? fcmp(p, LLVMRealUNE, x, number(p, 0))
                                    : LLVMBuildICmp(at, LLVMIntNE, x, whole(p, 0), ""));
    if (p->is_float && ap_dtype_is_float(p->result))
        return LLVMBuildFPCast(at, x, to, "");
    if (p->is_float)
        return to_integer(p, x, to);
    if (ap_dtype_is_float(p->result))
        return p->is_signed ? LLVMBuildSIToFP(at, x, to, "") : LLVMBuildUIToFP(at, x, to, "");
    return LLVMBuildIntCast2(at, x, to, p->is_signed, "");
}

#define ZERO (p->is_float ? number(p, 0) : whole(p, 0))
#define ONE (p->is_float ? number(p, 1) : whole(p, 1))
#define NEG(x) negate(p, x)
#define ABS(x) absolute(p, x)
#define SIGN(x) sign(p, x)
#define EXP(x) exponential(p, x)
#define LOG(x) library(p, "log", 1, x, NULL)
#define SQRT(x) intrinsic(p, "llvm.sqrt", 1, x, NULL)
#define ERF(x) error_function(p, x)
#define TANH(x) hyperbolic_tangent(p, x)
#define SIN(x) library(p, "sin", 1, x, NULL)
#define COS(x) library(p, "cos", 1, x, NULL)
#define ASIN(x) library(p, "asin", 1, x, NULL)
#define ACOS(x) library(p, "acos", 1, x, NULL)
#define ATAN(x) library(p, "atan", 1, x, NULL)
#define SINH(x) library(p, "sinh", 1, x, NULL)
#define COSH(x) library(p, "cosh", 1, x, NULL)
#define ASINH(x) library(p, "asinh", 1, x, NULL)
#define ACOSH(x) library(p, "acosh", 1, x, NULL)
#define ATANH(x) library(p, "atanh", 1, x, NULL)
#define FLOOR(x) intrinsic(p, "llvm.floor", 1, x, NULL)
#define CEIL(x) intrinsic(p, "llvm.ceil", 1, x, NULL)
#define ROUND(x) intrinsic(p, "llvm.rint", 1, x, NULL) /* half to even */
#define NOT(x) truth(p, equals(p, x, whole(p, 0)))
#define CAST(x) cast(p, x)
#define ADD(x, y) add(p, x, y)
#define SUB(x, y) subtract(p, x, y)
#define MUL(x, y) multiply(p, x, y)
#define DIV(x, y) quotient(p, x, y)
#define MOD(x, y) divide(p, x, y, true)
#define FMOD(x, y) library(p, "fmod", 2, x, y)
#define BIT_AND(x, y) LLVMBuildAnd(p->b->builder, x, y, "")
#define BIT_OR(x, y) LLVMBuildOr(p->b->builder, x, y, "")
#define BIT_XOR(x, y) LLVMBuildXor(p->b->builder, x, y, "")
#define SHIFT_LEFT(x, y) shift(p, true, x, y)
#define SHIFT_RIGHT(x, y) shift(p, false, x, y)
#define POW(x, y) library(p, "pow", 2, x, y)
#define MAX(x, y) ap_ll_extreme(p->b, true, p->type, x, y)
#define MIN(x, y) ap_ll_extreme(p->b, false, p->type, x, y)
#define EQ(x, y) compare(p, EQUAL, x, y)
#define LT(x, y) compare(p, LESS, x, y)
#define LE(x, y) compare(p, AT_MOST, x, y)
#define AND(x, y) BIT_AND(x, y) /* both are 0 or 1 */
#define OR(x, y) BIT_OR(x, y)
#define XOR(x, y) BIT_XOR(x, y)
#define SELECT(x, y, z) choose(p, LLVMBuildICmp(p->b->builder, LLVMIntNE, x, LLVMConstInt(p->b->i32, 0, 0), ""), y, z)

static ap_ll_value add(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return p->is_float ? fadd(p, x, y) : LLVMBuildAdd(p->b->builder, x, y, "");
}
static ap_ll_value subtract(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return p->is_float ? fsub(p, x, y) : LLVMBuildSub(p->b->builder, x, y, "");
}
static ap_ll_value multiply(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return p->is_float ? fmul(p, x, y) : LLVMBuildMul(p->b->builder, x, y, "");
}
static ap_ll_value quotient(const maker *p, ap_ll_value x, ap_ll_value y)
{
    return p->is_float ? fdiv(p, x, y) : divide(p, x, y, false);
}

static ap_ll_value expand(const maker *p, ap_pointwise pw, ap_ll_value X, ap_ll_value Y, ap_ll_value Z)
{
    switch (pw) {
#define POINTWISE(E, text, nin, R, D, LA, LB, F, formula)                                                              \
    case AP_PW_##E:                                                                                                    \
        return formula;
#include "ir/op/pointwise.def"
#undef POINTWISE
    case AP_PW_COUNT:
        break;
    }
    return X;
}

/* x to a small whole power is a product; everything else is left to the library. */
static ap_ll_value small_power(const maker *p, const ap_ll_value *x)
{
    LLVMBool lost;
    double exponent = LLVMIsAConstantFP(x[1]) ? LLVMConstRealGetDouble(x[1], &lost) : 0;
    if (exponent == 1)
        return x[0];
    if (exponent == 2)
        return fmul(p, x[0], x[0]);
    if (exponent == 3)
        return fmul(p, fmul(p, x[0], x[0]), x[0]);
    if (exponent == -1)
        return DIV(ONE, x[0]);
    return POW(x[0], x[1]);
}

ap_ll_value ap_ll_pointwise(ap_ll *b, ap_pointwise pw, ap_dtype operands, ap_dtype result, const ap_ll_value *x)
{
    maker made = {.b = b, .type = operands, .result = result, .is_float = ap_dtype_is_float(operands)};
    const maker *p = &made;
    int n = ap_pointwise_nin(pw);
    made.is_signed = !is_unsigned_type(operands) && operands != AP_BOOL;
    made.reg = ap_ll_register(b, operands);
    ap_ll_value r = pw == AP_PW_POW ? small_power(p, x) : expand(p, pw, x[0], n > 1 ? x[1] : NULL, n > 2 ? x[2] : NULL);
    return ap_ll_round(b, result, r);
}

/* ---- 16 bits ---- */

static ap_ll_value shifted(ap_ll *b, ap_ll_value x, int left)
{
    ap_ll_value by = LLVMConstInt(b->i32, (unsigned)(left < 0 ? -left : left), false);
    return left < 0 ? LLVMBuildLShr(b->builder, x, by, "") : LLVMBuildShl(b->builder, x, by, "");
}

static ap_ll_value masked(ap_ll *b, ap_ll_value x, uint32_t mask)
{
    return LLVMBuildAnd(b->builder, x, LLVMConstInt(b->i32, mask, false), "");
}

static ap_ll_value word(ap_ll *b, uint32_t x)
{
    return LLVMConstInt(b->i32, x, false);
}

static ap_ll_value bits(ap_ll *b, ap_ll_value x)
{
    return LLVMBuildBitCast(b->builder, x, b->i32, "");
}

static ap_ll_value real(ap_ll *b, ap_ll_value x)
{
    return LLVMBuildBitCast(b->builder, x, b->f32, "");
}

/* aprt_f16_to_f32, for processors without an instruction */
static ap_ll_value from_half(ap_ll *b, ap_ll_value x)
{
    LLVMBuilderRef at = b->builder;
    ap_ll_value h = LLVMBuildZExt(at, x, b->i32, ""), rest = masked(b, h, 0x7fff);
    ap_ll_value sign = shifted(b, masked(b, h, 0x8000), 16), high = shifted(b, rest, 13);
    ap_ll_value normal = LLVMBuildAdd(at, high, word(b, 112u << 23), "");
    ap_ll_value special = LLVMBuildOr(at, high, word(b, 0x7f800000u), "");
    ap_ll_value subnormal = real(b, LLVMBuildAdd(at, high, word(b, 113u << 23), ""));
    subnormal = bits(b, LLVMBuildFSub(at, subnormal, LLVMConstReal(b->f32, 0x1p-14), ""));
    ap_ll_value is_special = LLVMBuildICmp(at, LLVMIntUGE, rest, word(b, 0x7c00), "");
    ap_ll_value is_small = LLVMBuildICmp(at, LLVMIntULT, rest, word(b, 0x0400), "");
    ap_ll_value u = LLVMBuildSelect(at, is_special, special, normal, "");
    u = LLVMBuildSelect(at, is_small, subnormal, u, "");
    return real(b, LLVMBuildOr(at, u, sign, ""));
}

/* aprt_f32_to_f16 */
static ap_ll_value to_half(ap_ll *b, ap_ll_value x)
{
    LLVMBuilderRef at = b->builder;
    ap_ll_value u = bits(b, x), sign = masked(b, shifted(b, u, -16), 0x8000), a = masked(b, u, 0x7fffffffu);
    ap_ll_value normal = LLVMBuildSub(at, a, word(b, (112u << 23) - 0x0fffu), "");
    normal = shifted(b, LLVMBuildAdd(at, normal, masked(b, shifted(b, a, -13), 1), ""), -13);
    ap_ll_value subnormal = LLVMBuildFAdd(at, real(b, a), LLVMConstReal(b->f32, 0.5), ""); /* the adder rounds */
    subnormal = LLVMBuildSub(at, bits(b, subnormal), word(b, 0x3f000000u), "");
    ap_ll_value h =
        LLVMBuildSelect(at, LLVMBuildICmp(at, LLVMIntULT, a, word(b, 0x38800000u), ""), subnormal, normal, "");
    h = LLVMBuildSelect(at, LLVMBuildICmp(at, LLVMIntUGE, a, word(b, 0x477ff000u), ""), word(b, 0x7c00), h, "");
    h = LLVMBuildSelect(at, LLVMBuildICmp(at, LLVMIntUGT, a, word(b, 0x7f800000u), ""), word(b, 0x7e00), h, "");
    return LLVMBuildTrunc(at, LLVMBuildOr(at, h, sign, ""), b->i16, "");
}

ap_ll_value ap_ll_from_f16(ap_ll *b, ap_dtype t, ap_ll_value x)
{
    if (t == AP_BF16)
        return real(b, shifted(b, LLVMBuildZExt(b->builder, x, b->i32, ""), 16));
    if (!b->has_half)
        return from_half(b, x);
    return LLVMBuildFPExt(b->builder, LLVMBuildBitCast(b->builder, x, LLVMHalfTypeInContext(b->context), ""), b->f32,
                          "");
}

/* aprt_f32_to_bf16 */
static ap_ll_value to_bf16(ap_ll *b, ap_ll_value x)
{
    ap_ll_value u = LLVMBuildBitCast(b->builder, x, b->i32, ""), high = shifted(b, u, -16);
    ap_ll_value r = LLVMBuildAdd(b->builder, u, LLVMConstInt(b->i32, 0x7fff, false), "");
    r = shifted(b, LLVMBuildAdd(b->builder, r, masked(b, high, 1), ""), -16);
    ap_ll_value nan = LLVMBuildOr(b->builder, high, LLVMConstInt(b->i32, 0x40, false), "");
    r = LLVMBuildSelect(b->builder, LLVMBuildFCmp(b->builder, LLVMRealUNO, x, x, ""), nan, r, "");
    return LLVMBuildTrunc(b->builder, r, b->i16, "");
}

ap_ll_value ap_ll_to_f16(ap_ll *b, ap_dtype t, ap_ll_value x)
{
    if (t == AP_BF16)
        return to_bf16(b, x);
    if (!b->has_half)
        return to_half(b, x);
    return LLVMBuildBitCast(b->builder, LLVMBuildFPTrunc(b->builder, x, LLVMHalfTypeInContext(b->context), ""), b->i16,
                            "");
}

ap_ll_value ap_ll_round(ap_ll *b, ap_dtype t, ap_ll_value x)
{
    return t == AP_F16 || t == AP_BF16 ? ap_ll_from_f16(b, t, ap_ll_to_f16(b, t, x)) : x;
}
