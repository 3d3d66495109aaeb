/* Plans by prices of memory against the solver's: they fit, are no better than the optimum, not much worse, and their
 * bound holds. */
#include "tests/passes/plan_util.h"

static ap_module *chain(ap_ctx *ctx, uint32_t nblocks, uint64_t *state)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    uint32_t wide[16];
    for (uint32_t b = 0; b < nblocks; b++) {
        wide[b] = 128 * (1 + draw(state, 4));
        ap_text_addf(&t, "param @b%u : f32[128,%u]\nparam @c%u : f32[%u,128]\n", b, wide[b], b, wide[b]);
    }
    ap_text_addf(&t, "func @main(%%x0: f32[64,128]) -> \"y\" f32[64,128] {\n");
    for (uint32_t b = 0; b < nblocks; b++) {
        ap_text_addf(&t, "  %%u%u = contract %%x%u, @b%u {bk,kn->bn} : f32[64,%u]\n", b, b, b, wide[b]);
        ap_text_addf(&t, "  %%g%u = relu %%u%u : f32[64,%u]\n", b, b, wide[b]);
        ap_text_addf(&t, "  %%d%u = contract %%g%u, @c%u {bk,kn->bn} : f32[64,128]\n", b, b, b);
        ap_text_addf(&t, "  %%x%u = add %%x%u, %%d%u : f32[64,128]\n", b + 1, b, b);
    }
    ap_text_addf(&t, "  ret %%x%u\n}\n", nblocks);
    ap_module *m = module_of(ctx, ap_text_str(&t));
    m->state = AP_STATE_NORMAL;
    return m;
}

static ap_plan_result plan(ap_ctx *ctx, const ap_module *m, ap_plan_options opt)
{
    ap_plan_result r;
    ap_module *copy = ap_module_clone(m);
    assert_ok(ctx, ap_pass_plan(ctx, copy, &opt, &r));
    assert_verifies(ctx, copy);
    ap_arena_reset(&ctx->scratch);
    return r;
}

static void test_against_solver(void **user)
{
    (void)user;
    uint64_t state = 5;
    double worst = 0;
    for (int round = 0; round < 24; round++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = chain(ctx, 3 + draw(&state, 4), &state);
        const int32_t sizes[] = {2 + 2 * (round % 2), 2};
        ap_plan_options opt = {.mesh = mesh_of(ctx, 1 + round % 3 / 2, sizes)};
        assert_ok(ctx, ap_cluster_from_preset(ctx, "dgx-a100-80gb", &opt.cluster));
        opt.cluster.launch_ps = opt.cluster.inside.latency_ps = 1000;
        ap_plan_result loose = plan(ctx, m, opt);
        opt.memory_price = 1 + draw(&state, 1000000);
        ap_plan_result free = plan(ctx, m, opt);
        assert_int_equal(free.cost_ps, loose.cost_ps); /* nothing to pay for */
        for (int part = 1; part < 4; part++) {
            opt.memory = loose.peak_bytes * (3 + part) / 7;
            opt.memory_price = 0;
            ap_plan_result exact = plan(ctx, m, opt);
            opt.memory_price = 1 + draw(&state, 1000000);
            ap_plan_result r = plan(ctx, m, opt);
            assert_true(r.peak_bytes <= opt.memory);
            assert_true(r.cost_ps >= exact.bound_ps);
            assert_true(r.bound_ps <= exact.cost_ps);
            double over = (double)r.cost_ps / (double)exact.cost_ps - 1;
            worst = over > worst ? over : worst;
        }
        ap_ctx_release(ctx);
    }
    print_message("at most %.1f %% over the optimum\n", 100 * worst);
    assert_true(worst < 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_solver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
