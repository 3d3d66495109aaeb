/* explicit -> local: a lowered program gives the numbers of the module that it comes from. Written-out modules cover
 * every operator; random strategies, with reshards where they meet, cover every collective and every split; random
 * graphs cover fusion. The evaluators of modules and of local programs share no lowering. */
#include "tests/passes/lower_util.h"

#include <stdlib.h>

static void every_operator_on_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < NMODELS; i++) {
        ap_ctx *ctx = ap_ctx_create();
        uint64_t seed = i;
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\n%s", models[i]);
        ap_module *m = module_of(ctx, ap_text_str(&t));
        assert_verifies(ctx, m);
        assert_lowers(ctx, m, inputs_of(ctx, m, &seed), 1e-6);
        ap_ctx_release(ctx);
    }
}

static const struct {
    int naxes;
    int32_t size[3];
} meshes[] = {{1, {2}}, {1, {4}}, {2, {2, 2}}, {2, {1, 2}}, {3, {2, 2, 2}}};
#define NMESHES (sizeof meshes / sizeof meshes[0])

static void scatter_and_compare(const char *text, size_t mesh, uint64_t seed)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%s", text);
    ap_module *m = module_of(ctx, ap_text_str(&t));
    ap_tensor *in = inputs_of(ctx, m, &seed);
    ap_mesh_info info = mesh_of(ctx, meshes[mesh].naxes, meshes[mesh].size);
    ap_tensor *want = outputs_of(ctx, m, in);
    scatter(ctx, m, &info, NULL, &seed);
    assert_lowers(ctx, m, in, strstr(text, "f16") ? 0.02 : 1e-5);
    assert_same(m->funcs.at[0].nresults, outputs_of(ctx, m, in), want, 0.02);
    ap_ctx_release(ctx);
}

static void random_strategies_on_several_ranks(void **state)
{
    (void)state;
    const char *rounds = getenv("AP_TEST_ROUNDS");
    int n = rounds ? atoi(rounds) : 8;
    for (size_t i = 0; i < NMODELS; i++) {
        for (size_t mesh = 0; mesh < NMESHES; mesh++) {
            for (int round = 0; round < n; round++)
                scatter_and_compare(models[i], mesh, i * 1000 + mesh * 100000 + (uint64_t)round);
        }
    }
}

/* ---- random graphs ---- */

/* Pointwise, reduce, view and product nodes over values of shapes [a,b,c], [a,b,1] and [b,c,a] (transposed). */
static const char *random_graph(ap_ctx *ctx, uint64_t *seed, const int *e)
{
    static const char *const unary[] = {"exp", "tanh", "neg", "relu", "erf"};
    static const char *const binary[] = {"add", "sub", "mul", "max"};
    ap_text t;
    int kind[40] = {0, 0, 1, 2}, n = 4;
    char type[3][32];
    snprintf(type[0], sizeof type[0], "f32[%d,%d,%d]", e[0], e[1], e[2]);
    snprintf(type[1], sizeof type[1], "f32[%d,%d,1]", e[0], e[1]);
    snprintf(type[2], sizeof type[2], "f32[%d,%d,%d]", e[1], e[2], e[0]);
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "func @f(%%v0: %s, %%v1: %s, %%v2: %s, %%v3: %s) -> RESULTS {\n", type[0], type[0], type[1],
                 type[2]);
    for (int steps = 8 + (int)draw(seed, 20); n < steps; n++) {
        int a = (int)draw(seed, (uint32_t)n), b = (int)draw(seed, (uint32_t)n), k = kind[a];
        switch (draw(seed, 6)) {
        case 0:
            ap_text_addf(&t, "  %%v%d = %s %%v%d : %s\n", n, unary[draw(seed, 2)], a, type[k]);
            break;
        case 1:
            k = k == 2 ? 2 : 1;
            ap_text_addf(&t, k == 2 ? "  %%v%d = %s %%v%d : %s\n" : "  %%v%d = reduce %s %%v%d {bs%s->bs1} : %s\n", n,
                         k == 2          ? unary[1 + draw(seed, 4)]
                         : draw(seed, 2) ? "sum"
                                         : "max",
                         a,
                         k == 2    ? type[2]
                         : kind[a] ? "1"
                                   : "k",
                         type[1]);
            break;
        case 2:
            if (k == 1) {
                ap_text_addf(&t, "  %%v%d = view %%v%d {bs1->bsk} : %s\n", n, a, type[0]);
                k = 0;
            } else {
                ap_text_addf(&t, "  %%v%d = view %%v%d %s : %s\n", n, a, k ? "{skb->bsk}" : "{bsk->skb}", type[2 - k]);
                k = 2 - k;
            }
            break;
        default:
            if ((k == 2) != (kind[b] == 2))
                b = a;
            k = k == 0 || kind[b] == 0 ? 0 : k;
            ap_text_addf(&t, "  %%v%d = %s %%v%d, %%v%d : %s\n", n, binary[draw(seed, 4)], a, b, type[k]);
        }
        kind[n] = k;
    }
    ap_text all;
    ap_text_init(&all, &ctx->arena);
    const char *head = ap_text_str(&t), *cut = strstr(head, "RESULTS");
    ap_text_add_n(&all, head, (size_t)(cut - head));
    int out[3] = {n - 1, n - 2, (int)draw(seed, (uint32_t)n)};
    ap_text_addf(&all, "%s, %s, %s", type[kind[out[0]]], type[kind[out[1]]], type[kind[out[2]]]);
    ap_text_addf(&all, "%s  ret %%v%d, %%v%d, %%v%d }\n", cut + strlen("RESULTS"), out[0], out[1], out[2]);
    return ap_text_str(&all);
}

static void random_graphs(void **state)
{
    (void)state;
    static const int extents[][3] = {{4, 6, 8}, {3, 5, 7}, {2, 9, 13}};
    const char *rounds = getenv("AP_TEST_ROUNDS");
    int n = rounds ? atoi(rounds) * 20 : 150;
    for (int round = 0; round < n; round++) {
        ap_ctx *ctx = ap_ctx_create();
        uint64_t seed = (uint64_t)round + 77;
        const char *text = random_graph(ctx, &seed, extents[round / (int)NMESHES % 3]);
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\n%s", text);
        ap_module *m = module_of(ctx, ap_text_str(&t));
        assert_verifies(ctx, m);
        assert_lowers(ctx, m, inputs_of(ctx, m, &seed), 1e-5);
        scatter_and_compare(text, (size_t)round % NMESHES, seed);
        ap_ctx_release(ctx);
    }
}

/* ---- shape of the program ---- */

static ap_local *program_of(ap_ctx *ctx, const char *text)
{
    ap_local *p = NULL;
    ap_module *m = module_of(ctx, text);
    assert_verifies(ctx, m);
    assert_ok(ctx, ap_lower_local(ctx, m, "test", &p));
    assert_ok(ctx, ap_local_verify(p));
    return p;
}

static void chains_and_rows_are_one_kernel(void **state)
{
    (void)state;
    static const struct {
        size_t model;
        uint32_t instrs;
        int64_t arena;
    } want[] = {{0, 1, 0}, {2, 2, 64}, {3, 1, 0}}; /* the mask of 2 has fewer elements: a kernel of its own */
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\n%s", models[want[i].model]);
        const ap_local *p = program_of(ctx, ap_text_str(&t));
        assert_int_equal(p->instrs.len, want[i].instrs);
        assert_int_equal(p->arena_bytes, want[i].arena);
        ap_ctx_release(ctx);
    }
}

/* What is needed again in a later pass over a row: cheap work is repeated, costly work kept. */
static void costly_values_wait_in_row_temporaries(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%s", models[2]);
    const ap_local *softmax = program_of(ctx, ap_text_str(&t));
    assert_int_equal(softmax->kernels.at[1].nest.ntemps, 1);
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%s", models[3]);
    const ap_local *layernorm = program_of(ctx, ap_text_str(&t));
    assert_int_equal(layernorm->kernels.at[0].nest.ntemps, 0);
    ap_ctx_release(ctx);
}

static const char *const layers = "state normal\n"
                                  "param @a : f32[16,16] data(splat 1)\n"
                                  "param @b : f32[16,16] data(splat 2)\n"
                                  "param @c : f32[16,16] data(splat 3)\n"
                                  "param @d : f32[16,16] data(splat 4)\n"
                                  "func @f(%x: f32[32,16]) -> f32[32,16] {\n"
                                  "  %0 = contract %x, @a {mk,kn->mn} : f32[32,16]\n  %1 = relu %0 : f32[32,16]\n"
                                  "  %2 = contract %1, @b {mk,kn->mn} : f32[32,16]\n  %3 = relu %2 : f32[32,16]\n"
                                  "  %4 = contract %3, @c {mk,kn->mn} : f32[32,16]\n  %5 = relu %4 : f32[32,16]\n"
                                  "  %6 = contract %5, @d {mk,kn->mn} : f32[32,16]\n  %7 = relu %6 : f32[32,16]\n"
                                  "  ret %7 }\n";

static void equal_layers_share_kernels_and_memory(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    const ap_local *p = program_of(ctx, layers);
    assert_int_equal(p->instrs.len, 4); /* a product and what follows it are one */
    assert_int_equal(p->kernels.len, 1);
    assert_int_equal(p->arena_bytes, 2 * 32 * 16 * 4);
    assert_int_equal(p->params.len, 4);
    assert_int_equal(p->instrs.at[3].ref[2].space, AP_SPACE_OUTPUT);
    ap_ctx_release(ctx);
}

/* Of ranks that hold the same part of a result only the first writes it. */
static void replicated_results_are_written_once(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    const ap_local *p = program_of(ctx, "state explicit\nmesh @m = [x=2, y=2] ranks 0..3\n"
                                        "func @f(%x: f32[4,8] @m[x,-]) -> f32[4,8] @m[x,-], f32[4,8] @m[x,-] {\n"
                                        "  %0 = exp %x : f32[4,8] @m[x,-]\n  ret %0, %x }\n");
    assert_int_equal(p->instrs.len, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(p->instrs.at[i].when, AP_WHEN_ZERO);
        assert_int_equal(p->instrs.at[i].when_mask, 2);
    }
    ap_ctx_release(ctx);
}

static void same_module_gives_same_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < NMODELS; i++) {
        const char *text[2];
        ap_ctx *ctx[2];
        for (int k = 0; k < 2; k++) {
            ctx[k] = ap_ctx_create();
            ap_text t;
            ap_text_init(&t, &ctx[k]->arena);
            ap_text_addf(&t, "state normal\n%s", models[i]);
            text[k] = local_text(ctx[k], program_of(ctx[k], ap_text_str(&t)));
        }
        assert_string_equal(text[0], text[1]);
        ap_local *again = NULL;
        assert_ok(ctx[0], ap_local_parse(ctx[0], "test", text[0], strlen(text[0]), &again));
        assert_string_equal(local_text(ctx[0], again), text[0]);
        ap_ctx_release(ctx[0]);
        ap_ctx_release(ctx[1]);
    }
}

/* ---- refusals ---- */

static void what_cannot_be_lowered_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"state normal\naccum @a : f32[4]\nfunc @f(%x: f32[4]) -> f32[4] {\n  %0 = add %x, @a : f32[4]\n  ret %0 }\n",
         "accumulators"},
        {"state explicit\nmesh @m = [x=2] ranks 0..1\nmesh @n = [x=2] ranks 0..1\n"
         "func @f(%x: f32[4] @m[x], %y: f32[4] @n[x]) -> f32[4] @m[x], f32[4] @n[x] {\n  ret %x, %y }\n",
         "meshes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_local *p = NULL;
        ap_module *m = module_of(ctx, cases[i].text);
        assert_int_equal(ap_lower_local(ctx, m, "test", &p), AP_ERR_MODEL);
        assert_true(ctx->diags.len > 0);
        assert_non_null(strstr(ctx->diags.at[0].text, cases[i].message));
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_on_one_rank),
        cmocka_unit_test(random_strategies_on_several_ranks),
        cmocka_unit_test(random_graphs),
        cmocka_unit_test(chains_and_rows_are_one_kernel),
        cmocka_unit_test(costly_values_wait_in_row_temporaries),
        cmocka_unit_test(equal_layers_share_kernels_and_memory),
        cmocka_unit_test(replicated_results_are_written_once),
        cmocka_unit_test(same_module_gives_same_text),
        cmocka_unit_test(what_cannot_be_lowered_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
