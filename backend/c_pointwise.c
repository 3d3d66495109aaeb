/* The formulas of ir/op/pointwise.def as C expressions: each primitive is a function here that puts text around the
 * text of its operands, by the element type in which the formula is computed. */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
    ap_ctx *ctx;
    ap_dtype type; /* of the operands */
    ap_dtype result;
    bool is_float;
} printer;

static ap_expr make(printer *p, int precedence, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static ap_expr make(printer *p, int precedence, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *s = ap_arena_alloc(&p->ctx->scratch, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return (ap_expr){s, precedence};
}

/* The operand, in parentheses if it binds less tightly than `precedence`. */
static const char *in(printer *p, ap_expr x, int precedence)
{
    return x.precedence >= precedence ? x.text : make(p, 3, "(%s)", x.text).text;
}

/* f32, i64, ...: suffix of the runtime's functions for this type. */
static const char *suffix(const printer *p)
{
    return p->type == AP_F16 || p->type == AP_BF16 ? "f32" : ap_dtype_str(p->type);
}

static ap_expr binary(printer *p, const char *op, ap_expr x, ap_expr y)
{
    return make(p, 1, "%s %s %s", in(p, x, 2), op, in(p, y, 2));
}

static ap_expr runtime1(printer *p, const char *name, ap_expr x)
{
    return make(p, 3, "aprt_%s_%s(%s)", name, suffix(p), x.text);
}

static ap_expr runtime2(printer *p, const char *name, ap_expr x, ap_expr y)
{
    return make(p, 3, "aprt_%s_%s(%s, %s)", name, suffix(p), x.text, y.text);
}

/* A function of <math.h>. */
static ap_expr math1(printer *p, const char *name, ap_expr x)
{
    return make(p, 3, "%s%s(%s)", name, p->type == AP_F64 ? "" : "f", x.text);
}

static ap_expr arithmetic(printer *p, const char *op, const char *name, ap_expr x, ap_expr y)
{
    return p->is_float ? binary(p, op, x, y) : runtime2(p, name, x, y);
}

static ap_expr negate(printer *p, ap_expr x)
{
    return p->is_float ? make(p, 2, "-%s", in(p, x, 3)) : runtime1(p, "neg", x);
}

static ap_expr cast(printer *p, ap_expr x)
{
    const char *to = ap_emit_register(p->result);
    if (p->result == p->type)
        return x;
    if (p->result == AP_BOOL)
        return binary(p, "!=", x, (ap_expr){"0", 3});
    if (p->is_float && !ap_dtype_is_float(p->result))
        return make(p, 3, "aprt_%s_of_float(%s)", ap_dtype_str(p->result), x.text);
    return make(p, 2, "(%s)%s", to, in(p, x, 3));
}

static ap_expr constant(printer *p, int value)
{
    ap_scalar s;
    if (p->is_float)
        s.f = value;
    else
        s.i = value;
    return ap_emit_literal(p->ctx, p->type, s);
}

/* C leaves shifts by the width and more undefined. */
static ap_expr shift(printer *p, const char *op, ap_expr x, ap_expr y)
{
    const char *a = in(p, x, 3), *b = in(p, y, 3);
    return make(p, 2, "(%s)((uint64_t)%s > 63 ? 0 : (uint64_t)%s %s %s)", ap_emit_register(p->result), b, a, op, b);
}

#define ZERO constant(p, 0)
#define ONE constant(p, 1)
#define NEG(x) negate(p, x)
#define ABS(x) (p->is_float ? math1(p, "fabs", x) : runtime1(p, "abs", x))
#define SIGN(x) runtime1(p, "sign", x)
#define EXP(x) runtime1(p, "exp", x)
#define LOG(x) math1(p, "log", x)
#define SQRT(x) math1(p, "sqrt", x)
#define ERF(x) runtime1(p, "erf", x)
#define TANH(x) runtime1(p, "tanh", x)
#define SIN(x) math1(p, "sin", x)
#define COS(x) math1(p, "cos", x)
#define ASIN(x) math1(p, "asin", x)
#define ACOS(x) math1(p, "acos", x)
#define ATAN(x) math1(p, "atan", x)
#define SINH(x) math1(p, "sinh", x)
#define COSH(x) math1(p, "cosh", x)
#define ASINH(x) math1(p, "asinh", x)
#define ACOSH(x) math1(p, "acosh", x)
#define ATANH(x) math1(p, "atanh", x)
#define FLOOR(x) math1(p, "floor", x)
#define CEIL(x) math1(p, "ceil", x)
#define ROUND(x) math1(p, "rint", x) /* half to even */
#define NOT(x) make(p, 2, "!%s", in(p, x, 3))
#define CAST(x) cast(p, x)
#define ADD(x, y) arithmetic(p, "+", "add", x, y)
#define SUB(x, y) arithmetic(p, "-", "sub", x, y)
#define MUL(x, y) arithmetic(p, "*", "mul", x, y)
#define DIV(x, y) arithmetic(p, "/", "div", x, y)
#define MOD(x, y) runtime2(p, "mod", x, y)
#define FMOD(x, y) make(p, 3, "fmod%s(%s, %s)", p->type == AP_F64 ? "" : "f", (x).text, (y).text)
#define BIT_AND(x, y) binary(p, "&", x, y)
#define BIT_OR(x, y) binary(p, "|", x, y)
#define BIT_XOR(x, y) binary(p, "^", x, y)
#define SHIFT_LEFT(x, y) shift(p, "<<", x, y)
#define SHIFT_RIGHT(x, y) shift(p, ">>", x, y)
#define POW(x, y) make(p, 3, "pow%s(%s, %s)", p->type == AP_F64 ? "" : "f", (x).text, (y).text)
#define MAX(x, y) runtime2(p, "max", x, y)
#define MIN(x, y) runtime2(p, "min", x, y)
#define EQ(x, y) binary(p, "==", x, y)
#define LT(x, y) binary(p, "<", x, y)
#define LE(x, y) binary(p, "<=", x, y)
#define AND(x, y) binary(p, "&", x, y) /* both are 0 or 1 */
#define OR(x, y) binary(p, "|", x, y)
#define XOR(x, y) binary(p, "^", x, y)
#define SELECT(x, y, z) make(p, 0, "%s ? %s : %s", in(p, x, 2), in(p, y, 2), in(p, z, 2))

static ap_expr expand(printer *p, ap_pointwise pw, ap_expr X, ap_expr Y, ap_expr Z)
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
static bool small_power(printer *p, ap_pointwise pw, const ap_expr *x, ap_expr *out)
{
    double exponent = pw == AP_PW_POW ? atof(x[1].text) : 0;
    if (pw != AP_PW_POW || !(x[1].text[0] == '-' || (x[1].text[0] >= '0' && x[1].text[0] <= '9')))
        return false;
    const char *a = in(p, x[0], 2);
    if (exponent == 1)
        *out = x[0];
    else if (exponent == 2)
        *out = make(p, 1, "%s * %s", a, a);
    else if (exponent == 3)
        *out = make(p, 1, "%s * %s * %s", a, a, a);
    else if (exponent == -1)
        *out = DIV(ONE, x[0]);
    else
        return false;
    return true;
}

ap_expr ap_emit_pointwise(ap_ctx *ctx, ap_pointwise pw, ap_dtype operands, ap_dtype result, const ap_expr *x)
{
    printer p = {ctx, operands, result, ap_dtype_is_float(operands)};
    ap_expr none = {"0", 3}, r;
    int n = ap_pointwise_nin(pw);
    if (!small_power(&p, pw, x, &r))
        r = expand(&p, pw, x[0], n > 1 ? x[1] : none, n > 2 ? x[2] : none);
    if (result == AP_F16 || result == AP_BF16)
        r = make(&p, 3, "aprt_round_%s(%s)", ap_dtype_str(result), r.text);
    return r;
}

ap_expr ap_emit_literal(ap_ctx *ctx, ap_dtype t, ap_scalar x)
{
    printer p = {.ctx = ctx};
    const char *f = t == AP_F64 ? "" : "f";
    if (ap_dtype_is_float(t)) {
        if (isnan(x.f))
            return (ap_expr){t == AP_F64 ? "(double)NAN" : "NAN", 3};
        if (isinf(x.f))
            return x.f > 0 ? (ap_expr){"INFINITY", 3} : (ap_expr){"-INFINITY", 2};
        /* the shortest of two decimal forms that reads back exactly */
        char s[40];
        snprintf(s, sizeof s, t == AP_F64 ? "%.15g" : "%.6g", x.f);
        if ((t == AP_F64 ? strtod(s, NULL) : (double)strtof(s, NULL)) != x.f)
            snprintf(s, sizeof s, t == AP_F64 ? "%.17g" : "%.9g", x.f);
        return make(&p, signbit(x.f) ? 2 : 3, "%s%s%s", s, strpbrk(s, ".e") ? "" : ".0", f);
    }
    if (t == AP_U64)
        return make(&p, 3, "UINT64_C(%" PRIu64 ")", (uint64_t)x.i);
    if (x.i == INT64_MIN)
        return (ap_expr){"INT64_MIN", 3};
    if (t == AP_I64 && (x.i > INT32_MAX || x.i < -INT32_MAX))
        return make(&p, x.i < 0 ? 2 : 3, "%sINT64_C(%" PRId64 ")", x.i < 0 ? "-" : "", x.i < 0 ? -x.i : x.i);
    if (t == AP_U32)
        return make(&p, 3, "%" PRId64 "u", x.i);
    if (x.i == INT32_MIN)
        return (ap_expr){"INT32_MIN", 3};
    return make(&p, x.i < 0 ? 2 : 3, "%" PRId64, x.i);
}
