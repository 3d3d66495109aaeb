/* The evaluator against naive loops written here; what it refuses; replicas that differ. */
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/text_form.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static ap_module *parse(ap_ctx *ctx, const char *text)
{
    ap_module *m = NULL;
    ap_status s = ap_module_parse(ctx, "test", text, strlen(text), &m);
    if (s == AP_OK)
        s = ap_module_verify(m);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    assert_int_equal(s, AP_OK);
    return m;
}

static ap_tensor tensor(ap_ctx *ctx, ap_dtype t, int rank, const int64_t *dims)
{
    ap_tensor r;
    assert_true(ap_tensor_make(&ctx->arena, t, ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims)), &r));
    return r;
}

/* Deterministic numbers in [-1, 1). */
static double noise(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*seed >> 11) / (double)((int64_t)1 << 52) - 1;
}

static ap_tensor random_tensor(ap_ctx *ctx, uint64_t *seed, ap_dtype t, int rank, const int64_t *dims)
{
    ap_tensor r = tensor(ctx, t, rank, dims);
    for (int64_t i = 0; i < r.count; i++)
        r.at[i] = ap_scalar_round(t, (ap_scalar){.f = noise(seed)});
    return r;
}

static ap_tensor run1(ap_ctx *ctx, const char *text, const ap_tensor *inputs)
{
    ap_module *m = parse(ctx, text);
    ap_tensor out[4];
    ap_status s = ap_eval_func(m, 0, &ctx->arena, inputs, out);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    assert_int_equal(s, AP_OK);
    return out[0];
}

static void expect_fail(ap_ctx *ctx, const char *text, const ap_tensor *inputs, ap_status want, const char *message)
{
    ap_module *m = NULL;
    ap_tensor out[4];
    assert_int_equal(ap_module_parse(ctx, "test", text, strlen(text), &m), AP_OK);
    assert_int_equal(ap_eval_func(m, 0, &ctx->arena, inputs, out), want);
    assert_true(ctx->diags.len > 0);
    const char *got = ap_diag_str(ctx, &ctx->diags.at[ctx->diags.len - 1]);
    if (!strstr(got, message))
        fail_msg("\"%s\" does not contain \"%s\"", got, message);
}

#define SMALL(t, n, ...)                                                                                               \
    do {                                                                                                               \
        const double values[] = {__VA_ARGS__};                                                                         \
        assert_int_equal((t).count, (n));                                                                              \
        for (int64_t at = 0; at < (n); at++) {                                                                         \
            double got = ap_dtype_is_float((t).dtype) ? (t).at[at].f : (double)(t).at[at].i;                           \
            assert_true(got == values[at]);                                                                            \
        }                                                                                                              \
    } while (0)

static void test_contract_naive(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    uint64_t seed = 1;
    /* a: [B,S,H*D] as (hd), b: [B,T,H*D] -> [B,H,S,T] */
    enum { B = 2, S = 3, H = 2, D = 5, T = 4 };
    ap_tensor in[2] = {random_tensor(ctx, &seed, AP_F64, 3, (int64_t[]){B, S, H * D}),
                       random_tensor(ctx, &seed, AP_F64, 3, (int64_t[]){B, T, H * D})};
    ap_tensor r = run1(ctx,
                       "state normal\n"
                       "func @f(%a: f64[2,3,2.5], %b: f64[2,4,2.5]) -> f64[2,2,3,4] {\n"
                       "  %0 = contract %a, %b {bs(hd),bt(hd)->bhst} : f64[2,2,3,4]\n"
                       "  ret %0 }\n",
                       in);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int s = 0; s < S; s++)
                for (int t = 0; t < T; t++) {
                    double sum = 0;
                    for (int d = 0; d < D; d++)
                        sum +=
                            in[0].at[(b * S + s) * H * D + h * D + d].f * in[1].at[(b * T + t) * H * D + h * D + d].f;
                    assert_true(fabs(sum - r.at[((b * H + h) * S + s) * T + t].f) < 1e-13);
                }
    ap_ctx_release(ctx);
}

/* Random einsums over up to five letters against one loop over all letters. */
static void test_contract_random(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 200; round++) {
        ap_ctx *ctx = ap_ctx_create();
        int64_t extent[5], sa[5] = {0}, sb[5] = {0}, sc[5] = {0}, da[5], db[5], dc[5];
        ap_spec_side side[3];
        int64_t *stride[3] = {sa, sb, sc}, *dims[3] = {da, db, dc};
        bool in[3][5];
        for (int l = 0; l < 5; l++) {
            static const bool kinds[4][3] = {{1, 1, 1}, {1, 0, 1}, {0, 1, 1}, {1, 1, 0}};
            int kind = (int)((noise(&seed) + 1) * 2);
            extent[l] = 2 + (int64_t)((noise(&seed) + 1) * 1.5);
            for (int w = 0; w < 3; w++)
                in[w][l] = kinds[kind][w];
        }
        for (int w = 0; w < 3; w++) {
            ap_spec_side_init(&side[w]);
            int order[5], n = 0, rotate = (int)((noise(&seed) + 1) * 2.5);
            for (int l = 0; l < 5; l++)
                if (in[w][(l + rotate) % 5])
                    order[n++] = (l + rotate) % 5;
            int64_t st = 1;
            for (int i = n - 1; i >= 0; i--) {
                stride[w][order[i]] = st;
                st *= extent[order[i]];
            }
            for (int i = 0; i < n; i++) {
                dims[w][i] = extent[order[i]];
                ap_spec_side_dim(&side[w]);
                ap_spec_side_letter(&side[w], (char)('a' + order[i]));
            }
        }
        ap_module *m = ap_module_create(ctx);
        ap_func f = ap_module_add_func(m, ap_name_make(ctx, "f"));
        ap_tensor x[2];
        ap_value v[2], out;
        ap_spec spec = {.noperands = 2, .operand = {side[0], side[1]}, .result = side[2]};
        for (int w = 0; w < 2; w++) {
            x[w] = random_tensor(ctx, &seed, AP_F64, side[w].rank, dims[w]);
            ap_type t = ap_type_make(ctx, AP_F64, ap_shape_of_dims(ctx, side[w].rank, dims[w]), 0);
            v[w] = ap_func_add_argument(m, f, 0, t);
        }
        ap_node_info attributes = {.u.spec = &spec};
        assert_int_equal(ap_module_emit(m, m->funcs.at[f].body, AP_OP_CONTRACT, 2, v, 0, &attributes, 0, &out), AP_OK);
        ap_node ret = ap_module_add_node(m, AP_OP_RET, 1, &out, 0, 0);
        ap_block_append(m, m->funcs.at[f].body, ret);
        ap_tensor r;
        assert_int_equal(ap_eval_func(m, f, &ctx->arena, x, &r), AP_OK);
        double want[3 * 3 * 3 * 3 * 3 * 32] = {0};
        for (int64_t i0 = 0; i0 < extent[0]; i0++)
            for (int64_t i1 = 0; i1 < extent[1]; i1++)
                for (int64_t i2 = 0; i2 < extent[2]; i2++)
                    for (int64_t i3 = 0; i3 < extent[3]; i3++)
                        for (int64_t i4 = 0; i4 < extent[4]; i4++) {
                            int64_t ix[5] = {i0, i1, i2, i3, i4}, a = 0, b = 0, c = 0;
                            for (int l = 0; l < 5; l++)
                                a += ix[l] * sa[l], b += ix[l] * sb[l], c += ix[l] * sc[l];
                            want[c] += x[0].at[a].f * x[1].at[b].f;
                        }
        for (int64_t i = 0; i < r.count; i++)
            assert_true(fabs(r.at[i].f - want[i]) < 1e-12);
        ap_ctx_release(ctx);
    }
}

static void test_reduce(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_tensor x = tensor(ctx, AP_F32, 2, (int64_t[]){2, 3});
    const double v[] = {1, 5, 5, -4, -2, NAN};
    for (int i = 0; i < 6; i++)
        x.at[i].f = v[i];
    const char *arg = "func @f(%%x: f32[2,3]) -> %s {\n  %%0 = reduce %s %%x {%s} : %s\n  ret %%0 }\n";
    char text[256];
#define REDUCE(kind, letters, type) (snprintf(text, sizeof text, arg, type, kind, letters, type), run1(ctx, text, &x))
    ap_tensor r = REDUCE("sum", "ab->b", "f32[3]");
    assert_true(r.at[0].f == -3 && r.at[1].f == 3 && isnan(r.at[2].f));
    r = REDUCE("max", "ab->a1", "f32[2,1]");
    assert_true(r.at[0].f == 5 && isnan(r.at[1].f));
    r = REDUCE("min", "ab->a", "f32[2]");
    assert_true(r.at[0].f == 1 && isnan(r.at[1].f));
    r = REDUCE("prod", "ab->a", "f32[2]");
    assert_true(r.at[0].f == 25 && isnan(r.at[1].f));
    r = REDUCE("argmax", "ab->a", "i64[2]");
    SMALL(r, 2, 1, 2);
    r = REDUCE("argmin", "ab->b", "i64[3]");
    SMALL(r, 3, 1, 1, 1);
    ap_ctx_release(ctx);
}

static void test_parts(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_tensor x = tensor(ctx, AP_I64, 2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++)
        x.at[i].i = i;
    ap_module *m = ap_module_create(ctx);
    ap_func f = ap_module_add_func(m, ap_name_make(ctx, "f"));
    ap_block b = m->funcs.at[f].body;
    ap_value in =
        ap_func_add_argument(m, f, 0, ap_type_make(ctx, AP_I64, ap_shape_of_dims(ctx, 2, (int64_t[]){2, 3}), 0));
    ap_slice_attr slice = {.range = {{.whole = true}, {.start = 2, .count = 2, .step = -2}}};
    ap_slice_attr row = {.range = {{.start = 1, .count = 1, .step = 1}, {.whole = true}}};
    ap_pad_attr pad = {.lo = {1, 0}, .hi = {0, 2}};
    int64_t nine = 9;
    ap_data fill = {.kind = AP_DATA_SPLAT, .dtype = AP_I64, .bytes = &nine, .size = 8};
    ap_value out[6], fill_value;
    ap_type scalar = ap_type_make(ctx, AP_I64, 0, 0);
    assert_int_equal(
        ap_module_emit(m, b, AP_OP_CONSTANT, 0, NULL, 0, &(ap_node_info){.u.constant = &fill}, scalar, &fill_value),
        AP_OK);
    assert_int_equal(ap_module_emit(m, b, AP_OP_SLICE, 1, &in, 0, &(ap_node_info){.u.slice = &slice}, 0, &out[0]),
                     AP_OK);
    assert_int_equal(ap_module_emit(m, b, AP_OP_SLICE, 1, &in, 0, &(ap_node_info){.u.slice = &row}, 0, &out[1]), AP_OK);
    ap_value two[2] = {in, fill_value};
    assert_int_equal(ap_module_emit(m, b, AP_OP_PAD, 2, two, 0, &(ap_node_info){.u.pad = &pad}, 0, &out[2]), AP_OK);
    ap_value cat[2] = {in, out[0]};
    assert_int_equal(ap_module_emit(m, b, AP_OP_CONCAT, 2, cat, 0, &(ap_node_info){.u.concat.dim = 1}, 0, &out[3]),
                     AP_OK);
    ap_type flat = ap_type_make(ctx, AP_I64, ap_shape_of_dims(ctx, 1, (int64_t[]){6}), 0);
    assert_int_equal(ap_module_emit(m, b, AP_OP_RESHAPE, 1, &in, 0, NULL, flat, &out[4]), AP_OK);
    ap_type counts = ap_type_make(ctx, AP_I64, ap_shape_of_dims(ctx, 2, (int64_t[]){2, 3}), 0);
    assert_int_equal(ap_module_emit(m, b, AP_OP_IOTA, 0, NULL, 0, &(ap_node_info){.u.iota.dim = 1}, counts, &out[5]),
                     AP_OK);
    ap_block_append(m, b, ap_module_add_node(m, AP_OP_RET, 6, out, 0, 0));
    ap_tensor r[6];
    assert_int_equal(ap_eval_func(m, f, &ctx->arena, &x, r), AP_OK);
    SMALL(r[0], 4, 2, 0, 5, 3);
    SMALL(r[1], 3, 3, 4, 5);
    assert_int_equal(r[1].shape.rank, 2);
    SMALL(r[2], 15, 9, 9, 9, 9, 9, 0, 1, 2, 9, 9, 3, 4, 5, 9, 9);
    SMALL(r[3], 10, 0, 1, 2, 2, 0, 3, 4, 5, 5, 3);
    SMALL(r[4], 6, 0, 1, 2, 3, 4, 5);
    SMALL(r[5], 6, 0, 1, 2, 0, 1, 2);
    ap_ctx_release(ctx);
}

static const char gather_text[] = "func @f(%w: f32[3,2], %i: i64[2]) -> f32[2,2] {\n"
                                  "  %0 = gather %w, %i {vh,s->sh} : f32[2,2]  loc(\"emb\", \"Gather\")\n"
                                  "  ret %0 }\n";

static void test_gather(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_tensor in[2] = {tensor(ctx, AP_F32, 2, (int64_t[]){3, 2}), tensor(ctx, AP_I64, 1, (int64_t[]){2})};
    for (int i = 0; i < 6; i++)
        in[0].at[i].f = i;
    in[1].at[0].i = 2;
    ap_tensor r = run1(ctx, gather_text, in);
    SMALL(r, 4, 4, 5, 0, 1);
    in[1].at[1].i = 3;
    expect_fail(ctx, gather_text, in, AP_ERR_MODEL, "\"emb\"");
    in[1].at[1].i = -1;
    expect_fail(ctx, gather_text, in, AP_ERR_MODEL, "index -1 is outside [0, 3)");
    ap_ctx_release(ctx);
}

static void test_inputs_refused(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    const char *text = "func @f(%x: f32[2,3]) -> f32[2,3] {\n  %0 = neg %x : f32[2,3]\n  ret %0 }\n";
    ap_tensor x = tensor(ctx, AP_F32, 2, (int64_t[]){3, 2});
    expect_fail(ctx, text, &x, AP_ERR_MODEL, "has shape [3,2], not [2,3]");
    ap_tensor y = tensor(ctx, AP_F64, 2, (int64_t[]){2, 3});
    expect_fail(ctx, text, &y, AP_ERR_MODEL, "is f64, not f32");
    ap_ctx_release(ctx);
}

/* The contraction is split over its inner letter, but its type forgets that it is partial. */
static void test_replicas_differ(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    uint64_t seed = 3;
    ap_tensor in[2] = {random_tensor(ctx, &seed, AP_F32, 2, (int64_t[]){2, 4}),
                       random_tensor(ctx, &seed, AP_F32, 2, (int64_t[]){4, 2})};
    const char *head = "mesh @m = [tp=2] ranks 0..1\n"
                       "func @f(%a: f32[2,4] @m[-,tp], %b: f32[4,2] @m[tp,-]) -> f32[2,2] @m[-,-] {\n";
    char text[512];
    snprintf(text, sizeof text, "%s  %%0 = contract %%a, %%b {mk,kn->mn} : f32[2,2] @m[-,-]\n  ret %%0 }\n", head);
    expect_fail(ctx, text, in, AP_ERR_BUG, "ranks 0 and 1 hold different replicas");
    snprintf(text, sizeof text,
             "%s  %%0 = contract %%a, %%b {mk,kn->mn} : f32[2,2] @m[-,-] sum(tp)\n"
             "  %%1 = reshard %%0 : f32[2,2] @m[-,-]\n  ret %%1 }\n",
             head);
    ap_ctx *ctx2 = ap_ctx_create();
    ap_tensor r = run1(ctx2, text, in);
    for (int i = 0; i < 4; i++) {
        double want = 0;
        for (int k = 0; k < 4; k++)
            want += in[0].at[i / 2 * 4 + k].f * in[1].at[k * 2 + i % 2].f;
        assert_true(fabs(r.at[i].f - want) < 1e-6);
    }
    ap_ctx_release(ctx);
    ap_ctx_release(ctx2);
}

/* The canonical module on 8 ranks against the same computation without mesh, small extents. */
static const char block_text[] =
    "%s"
    "func @f(%%x: f32[4,8,12]%s, %%n: f32[4,8,12]%s, %%w: f32[12,3.4.3]%s, %%o: f32[4.3,12]%s) -> f32[4,8,12]%s {\n"
    "  %%g = %s : f32[4,8,12]%s\n"
    "  %%c = contract %%g, %%w {bsk,k(thd)->bs(thd)} : f32[4,8,3.4.3]%s\n"
    "  %%q = slice %%c [-,-,0:1.-.-] : f32[4,8,4.3]%s\n"
    "  %%k = slice %%c [-,-,1:2.-.-] : f32[4,8,4.3]%s\n"
    "  %%v = slice %%c [-,-,2:3.-.-] : f32[4,8,4.3]%s\n"
    "  %%a = composite attention(%%q, %%k, %%v) : f32[4,8,4.3]%s {\n"
    "    %%s = contract %%q, %%k {bs(hd),bt(hd)->bhst} : f32[4,4,8,8]%s\n"
    "    %%m = reduce max %%s {bhst->bhs1} : f32[4,4,8,1]%s\n"
    "    %%d = sub %%s, %%m : f32[4,4,8,8]%s\n"
    "    %%e = exp %%d : f32[4,4,8,8]%s\n"
    "    %%z = reduce sum %%e {bhst->bhs1} : f32[4,4,8,1]%s\n"
    "    %%p = div %%e, %%z : f32[4,4,8,8]%s\n"
    "    %%u = contract %%p, %%v {bhst,bt(hd)->bs(hd)} : f32[4,8,4.3]%s\n"
    "    yield %%u }\n"
    "  %%y = contract %%a, %%o {bs(hd),(hd)n->bsn} : f32[4,8,12]%s\n"
    "  %%r = %s : f32[4,8,12]%s\n"
    "  %%t = add %%x, %%r : f32[4,8,12]%s\n"
    "  ret %%t }\n";

static void test_block_on_ranks(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    uint64_t seed = 11;
    ap_tensor in[4] = {random_tensor(ctx, &seed, AP_F32, 3, (int64_t[]){4, 8, 12}),
                       random_tensor(ctx, &seed, AP_F32, 3, (int64_t[]){4, 8, 12}),
                       random_tensor(ctx, &seed, AP_F32, 2, (int64_t[]){12, 36}),
                       random_tensor(ctx, &seed, AP_F32, 2, (int64_t[]){12, 12})};
    char text[4096];
    snprintf(text, sizeof text, block_text, "state normal\n", "", "", "", "", "", "neg %n", "", "", "", "", "", "", "",
             "", "", "", "", "", "", "", "neg %y", "", "");
    ap_tensor whole = run1(ctx, text, in);
    const char *seq = " @m[dp,tp,-]", *rep = " @m[dp,-,-]", *heads = " @m[dp,-,tp.-]", *att = " @m[dp,tp,-,-]";
    /* reshard instead of neg twice: the same values, since the sign of n cancels only in y; so negate the input */
    snprintf(text, sizeof text, block_text, "mesh @m = [dp=2, tp=4] ranks 0..7\n", seq, seq, " @m[-,-.tp.-]",
             " @m[tp.-,-]", seq, "reshard %n", rep, " @m[dp,-,-.tp.-]", heads, heads, heads, heads, att, att, att, att,
             att, att, heads, " @m[dp,-,-] sum(tp)", "reshard %y", seq, seq);
    for (int64_t i = 0; i < in[1].count; i++)
        in[1].at[i].f = -in[1].at[i].f;
    for (int64_t i = 0; i < in[3].count; i++)
        in[3].at[i].f = -in[3].at[i].f;
    ap_tensor shards = run1(ctx, text, in);
    double abs, scale;
    ap_tensor_compare(&shards, &whole, &abs, &scale);
    assert_true(scale > 0.5 && abs < 1e-5 * scale);
    ap_ctx_release(ctx);
}

static void test_compare(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_tensor a = tensor(ctx, AP_F32, 1, (int64_t[]){3}), b = tensor(ctx, AP_F32, 1, (int64_t[]){3});
    double abs, scale;
    a.at[0].f = b.at[0].f = NAN, a.at[1].f = b.at[1].f = INFINITY, a.at[2].f = 1, b.at[2].f = -2;
    ap_tensor_compare(&a, &b, &abs, &scale);
    assert_true(abs == 3 && scale == INFINITY);
    b.at[1].f = -INFINITY;
    ap_tensor_compare(&a, &b, &abs, &scale);
    assert_true(abs == INFINITY);
    b.at[1].f = INFINITY, b.at[0].f = 0;
    ap_tensor_compare(&a, &b, &abs, &scale);
    assert_true(abs == INFINITY);
    ap_tensor i = tensor(ctx, AP_I64, 1, (int64_t[]){1}), j = tensor(ctx, AP_I64, 1, (int64_t[]){1});
    i.at[0].i = INT64_MAX, j.at[0].i = INT64_MAX - 1;
    ap_tensor_compare(&i, &j, &abs, &scale);
    assert_true(abs == 1);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract_naive),  cmocka_unit_test(test_contract_random),
        cmocka_unit_test(test_reduce),          cmocka_unit_test(test_parts),
        cmocka_unit_test(test_gather),          cmocka_unit_test(test_inputs_refused),
        cmocka_unit_test(test_replicas_differ), cmocka_unit_test(test_block_on_ranks),
        cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
