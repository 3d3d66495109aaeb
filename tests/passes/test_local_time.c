/* Microbatches of every operator: any factor of any argument may be the batch, and where that can be cut, random
 * strategies with time give the numbers of one device without. */
#include "tests/passes/lower_util.h"

#include <stdlib.h>

static const struct {
    int naxes;
    int32_t microbatches, size[2];
} meshes[] = {{1, 2, {1}}, {1, 2, {2}}, {1, 3, {2}}, {2, 4, {2, 2}}};

static ap_mesh_info timed(ap_ctx *ctx, size_t i)
{
    ap_mesh_info plain = mesh_of(ctx, meshes[i].naxes, meshes[i].size), mesh = plain;
    mesh.ntime = 1;
    mesh.naxes++;
    mesh.axis_name[0] = ap_name_make(ctx, AP_TIME_AXIS);
    mesh.axis_size[0] = meshes[i].microbatches;
    for (int a = 0; a < plain.naxes; a++) {
        mesh.axis_name[1 + a] = plain.axis_name[a];
        mesh.axis_size[1 + a] = plain.axis_size[a];
    }
    return mesh;
}

/* False when the factor cannot be cut into microbatches. */
static bool check(const char *text, uint32_t argument, int factor, size_t mesh, uint64_t seed)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%s", text);
    ap_module *m = module_of(ctx, ap_text_str(&t));
    ap_mesh_info info = timed(ctx, mesh);
    int8_t *arguments = AP_NEW_ARRAY(&ctx->arena, int8_t, m->funcs.at[0].narguments);
    memset(arguments, AP_NO_BATCH, m->funcs.at[0].narguments);
    arguments[argument] = (int8_t)factor;
    ap_batch batch;
    bool legal = ap_batch_find(ctx, m, arguments, &ctx->arena, &batch) == AP_OK;
    if (legal) {
        ap_tensor *in = inputs_of(ctx, m, &seed), *want = outputs_of(ctx, m, in);
        scatter(ctx, m, &info, &batch, &seed);
        assert_lowers(ctx, m, in, strstr(text, "f16") ? 0.02 : 1e-5);
        assert_same(m->funcs.at[0].nresults, outputs_of(ctx, m, in), want, 0.02);
    }
    ap_ctx_release(ctx);
    return legal;
}

static void list_arguments(const char *text, uint32_t *n, int *factors)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "state normal\n%s", text);
    ap_module *m = module_of(ctx, ap_text_str(&t));
    *n = m->funcs.at[0].narguments;
    for (uint32_t i = 0; i < *n; i++)
        factors[i] = ap_value_shape(m, m->funcs.at[0].argument[i])->nfactors;
    ap_ctx_release(ctx);
}

static void every_operator_in_microbatches(void **state)
{
    (void)state;
    const char *rounds = getenv("AP_TEST_ROUNDS");
    int n = rounds ? atoi(rounds) : 1, legal = 0, refused = 0;
    for (size_t i = 0; i < NMODELS; i++) {
        uint32_t narguments;
        int factors[16];
        list_arguments(models[i], &narguments, factors);
        for (uint32_t a = 0; a < narguments; a++)
            for (int f = 0; f < factors[a]; f++)
                for (size_t mesh = 0; mesh < sizeof meshes / sizeof meshes[0]; mesh++)
                    for (int round = 0; round < n; round++) {
                        bool ok = check(models[i], a, f, mesh, i * 1000 + mesh * 100000 + (uint64_t)round * 7 + a);
                        legal += ok;
                        refused += !ok;
                    }
    }
    assert_true(legal > 200 * n && refused > 100 * n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_in_microbatches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
