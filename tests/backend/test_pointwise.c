/* Every pointwise operator, over every element type of its domain, on all pairs of edge values: emitted C against the
 * scalar evaluator. One kernel a type, so that one compilation covers them all. */
#include "tests/backend/harness.h"

#include "ir/base/text.h"

enum { EDGES = 24 };

static const double floats[EDGES] = {0,  -0.0, 1,   -1,   0.5,  -0.5,  1.5,   2.5,   -2.5,     3,         -3.25, 1e-3,
                                     88, -88,  710, -750, 1e30, -1e30, 1e-40, 65504, INFINITY, -INFINITY, NAN,   0.9};
static const int64_t ints[EDGES] = {0,     1,      -1,    2,         3,         -3,         5,         7,
                                    -7,    10,     100,   127,       -128,      128,        255,       256,
                                    32767, -32768, 65535, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN};

enum { DOMAIN_FLOAT = 1, DOMAIN_INTEGER = 2, DOMAIN_NUMBER = 3, DOMAIN_BOOLEAN = 4, DOMAIN_ANY = 7 };
enum { RESULT_SAME, RESULT_BOOLEAN, RESULT_CAST };

static const struct {
    const char *name;
    int nin, result, domain;
} row[AP_PW_COUNT] = {
#define POINTWISE(E, text, nin, R, D, LA, LB, F, formula) [AP_PW_##E] = {#text, nin, RESULT_##R, DOMAIN_##D},
#include "ir/op/pointwise.def"
#undef POINTWISE
};

typedef struct output {
    ap_pointwise pw;
    ap_dtype from, to;
} output;

typedef struct cases {
    AP_VEC(output) outputs;
    ap_text ports, kernels, calls;
} cases;

static bool in_domain(int domain, ap_dtype t)
{
    int is = ap_dtype_is_float(t) ? DOMAIN_FLOAT : t == AP_BOOL ? DOMAIN_BOOLEAN : DOMAIN_INTEGER;
    return domain & is;
}

/* All operators on operands of type t. */
static void add_type(ap_ctx *ctx, cases *c, ap_dtype t)
{
    ap_text body;
    ap_text_init(&body, &ctx->arena);
    const char *name = ap_dtype_str(t);
    int sop = 3, operand = 3, base = 3 * ((int)t - 1);
    ap_text_addf(&c->ports, "input \"x%s\" %s[576]\ninput \"y%s\" %s[576]\ninput \"b%s\" bool[576]\n", name, name, name,
                 name, name);
    ap_text_addf(&c->kernels, "kernel nest @k%s {\n  read %s [1]\n  read %s [1]\n  read bool [1]\n", name, name, name);
    ap_text_addf(&c->calls, "call @k%s(input(%d), input(%d), input(%d)", name, base, base + 1, base + 2);
    for (int pw = 0; pw < AP_PW_COUNT; pw++) {
        if (!in_domain(row[pw].domain, t))
            continue;
        for (int to = 1; to < AP_DTYPE_COUNT; to++) {
            ap_dtype result = row[pw].result == RESULT_BOOLEAN ? AP_BOOL
                              : row[pw].result == RESULT_SAME  ? t
                                                               : (ap_dtype)to;
            if (row[pw].result != RESULT_CAST && to > 1)
                break;
            const char *x = row[pw].nin == 3 ? "%2, %0, %1" : row[pw].nin == 2 ? "%0, %1" : "%0";
            ap_text_addf(&body, "    %%%d = %s %s : %s\n    store %d, %%%d : %s\n", sop, row[pw].name, x,
                         ap_dtype_str(result), operand, sop, ap_dtype_str(result));
            ap_text_addf(&c->kernels, "  write %s [1]\n", ap_dtype_str(result));
            ap_text_addf(&c->calls, ", output(%u)", c->outputs.len);
            ap_vec_push(&ctx->arena, &c->outputs, (output){(ap_pointwise)pw, t, result});
            sop += 2;
            operand++;
        }
    }
    ap_text_addf(&c->calls, ")\n");
    ap_text_addf(
        &c->kernels,
        "  outer [576] inner []\n  row:\n    %%0 = load 0 : %s\n    %%1 = load 1 : %s\n    %%2 = load 2 : bool\n"
        "%s}\n",
        name, name, ap_text_str(&body));
}

static void fill(built *b)
{
    for (uint32_t i = 0; i < b->p->inputs.len; i++) {
        ap_tensor *t = &b->want_in[i];
        for (int64_t j = 0; j < t->count; j++) {
            int64_t edge = i % 3 == 0 ? j / EDGES : j % EDGES;
            if (i % 3 == 2)
                t->at[j].i = j % 3 == 0;
            else if (ap_dtype_is_float(t->dtype))
                t->at[j].f = floats[edge];
            else
                t->at[j].i = ints[edge];
            t->at[j] = ap_scalar_round(t->dtype, t->at[j]);
        }
        ap_tensor_to_bytes(t, b->in[i]);
    }
}

/* How far a float may be off: exact for arithmetic, a few units in the last place for functions. */
static double allowed(ap_pointwise pw, ap_dtype t, double want)
{
    double ulp = t == AP_F64 ? 0x1p-52 : t == AP_F32 ? 0x1p-23 : t == AP_F16 ? 0x1p-10 : 0x1p-7;
    double least = t == AP_F16 ? 0x1p-24 : t == AP_F32 || t == AP_BF16 ? 0x1p-133 : 0;
    switch (pw) {
    case AP_PW_EXP:
    case AP_PW_LOG:
    case AP_PW_ERF:
    case AP_PW_TANH:
    case AP_PW_SIGMOID:
    case AP_PW_SIN:
    case AP_PW_COS:
    case AP_PW_ASIN:
    case AP_PW_ACOS:
    case AP_PW_ATAN:
    case AP_PW_SINH:
    case AP_PW_COSH:
    case AP_PW_ASINH:
    case AP_PW_ACOSH:
    case AP_PW_ATANH:
    case AP_PW_POW:
    case AP_PW_RSQRT:
        return 3 * ulp * fabs(want) + 4 * least;
    case AP_PW_CAST: /* f64 and wide integers reach f16 and bf16 by way of f32 */
        return t == AP_F16 || t == AP_BF16 ? ulp * fabs(want) : 0;
    default:
        return 0;
    }
}

static int compare(const built *b, const output *o, uint32_t at)
{
    int wrong = 0;
    for (int64_t j = 0; j < 576; j++) {
        const ap_scalar *in0 = b->want_in[3 * (o->from - 1)].at, *in1 = b->want_in[3 * (o->from - 1) + 1].at,
                        *in2 = b->want_in[3 * (o->from - 1) + 2].at;
        ap_scalar x[3] = {in0[j], in1[j]};
        if (o->pw == AP_PW_SELECT) {
            x[0] = in2[j];
            x[1] = in0[j];
            x[2] = in1[j];
        }
        ap_scalar want = ap_pointwise_eval(o->pw, o->from, o->to, x);
        ap_scalar got = ap_scalar_load(o->to, (char *)b->out[at] + j * ap_dtype_bytes(o->to));
        bool same = ap_dtype_is_float(o->to)
                        ? (isnan(want.f) ? isnan(got.f) != 0
                                         : got.f == want.f || fabs(got.f - want.f) <= allowed(o->pw, o->to, want.f))
                        : got.i == want.i;
        if (!same && wrong++ < 3)
            fprintf(stderr, "%s %s -> %s of (%g %lld, %g %lld): %.17g %lld, not %.17g %lld\n", row[o->pw].name,
                    ap_dtype_str(o->from), ap_dtype_str(o->to), x[0].f, (long long)x[0].i, x[1].f, (long long)x[1].i,
                    got.f, (long long)got.i, want.f, (long long)want.i);
    }
    return wrong;
}

static void all_pointwise(void **state)
{
    (void)state;
    built b = {.ctx = ap_ctx_create()};
    cases c = {0};
    ap_text t;
    ap_text_init(&c.ports, &b.ctx->arena);
    ap_text_init(&c.kernels, &b.ctx->arena);
    ap_text_init(&c.calls, &b.ctx->arena);
    ap_text_init(&t, &b.ctx->arena);
    for (int d = 1; d < AP_DTYPE_COUNT; d++)
        add_type(b.ctx, &c, (ap_dtype)d);
    ap_text_addf(&t, "local @t ranks 1 axes [] arena 0 params 0\n%s", ap_text_str(&c.ports));
    for (uint32_t i = 0; i < c.outputs.len; i++)
        ap_text_addf(&t, "output \"o%u\" %s[576]\n", i, ap_dtype_str(c.outputs.at[i].to));
    ap_text_addf(&t, "%s%s", ap_text_str(&c.kernels), ap_text_str(&c.calls));
    b.p = parse_local(b.ctx, ap_text_str(&t));
    build_files(&b, "t");
    load_library(&b);
    make_tensors(&b, 1);
    fill(&b);
    assert_int_equal(run_built(&b), 0);
    int wrong = 0;
    for (uint32_t i = 0; i < c.outputs.len; i++)
        wrong += compare(&b, &c.outputs.at[i], i);
    assert_int_equal(wrong, 0);
    assert_true(c.outputs.len > 300);
    release_built(&b);
}

/* Powers that are printed as products. */
static void constant_powers(void **state)
{
    (void)state;
    expect_equal(
        "local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f32[50]\noutput \"y\" f32[6,50]\n"
        "kernel nest @k {\n  read f32 [1]\n  write f32 [1]\n  write f32 [1]\n  write f32 [1]\n  write f32 [1]\n"
        "  write f32 [1]\n  write f32 [1]\n  outer [50] inner []\n  row:\n    %0 = load 0 : f32\n"
        "    %1 = const 2 : f32\n    %2 = pow %0, %1 : f32\n    store 1, %2 : f32\n"
        "    %4 = const 3 : f32\n    %5 = pow %0, %4 : f32\n    store 2, %5 : f32\n"
        "    %7 = const 1 : f32\n    %8 = pow %0, %7 : f32\n    store 3, %8 : f32\n"
        "    %10 = const -1 : f32\n    %11 = abs %0 : f32\n    %12 = const 1 : f32\n    %13 = add %11, %12 : f32\n"
        "    %14 = pow %13, %10 : f32\n    store 4, %14 : f32\n"
        "    %16 = const 0.5 : f32\n    %17 = pow %13, %16 : f32\n    store 5, %17 : f32\n"
        "    %19 = const -2.5 : f32\n    %20 = max %0, %19 : f32\n    %21 = neg %20 : f32\n"
        "    %22 = sub %21, %19 : f32\n    store 6, %22 : f32\n}\n"
        "call @k(input(0), output(0), output(0)+50, output(0)+100, output(0)+150, output(0)+200, output(0)+250)\n",
        1e-6);
}

/* In a loop of their own the functions become vector code. */
static void functions_in_vector_code(void **state)
{
    (void)state;
    expect_equal(
        "local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f32[1003]\noutput \"y\" f32[4,1003]\n"
        "kernel nest @k {\n  read f32 [1]\n  write f32 [1]\n  write f32 [1]\n  write f32 [1]\n  write f32 [1]\n"
        "  outer [1003] inner []\n  row:\n    %0 = load 0 : f32\n"
        "    %1 = exp %0 : f32\n    store 1, %1 : f32\n    %3 = erf %0 : f32\n    store 2, %3 : f32\n"
        "    %5 = tanh %0 : f32\n    store 3, %5 : f32\n    %7 = sigmoid %0 : f32\n    store 4, %7 : f32\n}\n"
        "call @k(input(0), output(0), output(0)+1003, output(0)+2006, output(0)+3009)\n",
        2e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pointwise),
        cmocka_unit_test(constant_powers),
        cmocka_unit_test(functions_in_vector_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
