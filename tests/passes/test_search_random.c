/* Random modules through the search: what comes out is a pipeline that verifies and computes the same, for stages and
 * microbatches asked for or not, with more memory than needed or a little; also after reordering. */
#include "tests/passes/random_module.h"

#include "passes/batch.h"
#include "passes/pipe/layers.h"
#include "passes/pipe/search.h"

typedef struct tally {
    uint32_t plans, none, stages, several, microbatches;
} tally;

static void check(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt, const ap_pipe_search_options *so,
                  uint64_t *state, tally *t)
{
    ap_tensor *in = draw_inputs(ctx, m, state);
    ap_tensor *expected = outputs_of(ctx, ap_module_clone(m), in);
    ap_pipeline *p;
    ap_pipe_result r;
    ap_pipe_search_report report;
    ap_status s = ap_pipe_search(ctx, m, opt, so, &p, &r, &report);
    if (s == AP_ERR_NO_PLAN || s == AP_ERR_USAGE) { /* no room; fewer layers than stages */
        t->none++;
        assert_true(s == AP_ERR_NO_PLAN ? opt->memory > 0 || so->nstages > 0 : so->nstages > 1);
        return;
    }
    assert_ok(ctx, s);
    assert_ok(ctx, ap_pipeline_verify(p));
    assert_true(so->nstages == 0 || r.nstages == so->nstages);
    assert_true(so->microbatches == 0 || p->microbatches == so->microbatches);
    for (uint32_t i = 0; i < r.nstages && opt->memory > 0; i++)
        assert_true(r.stage[i].plan.peak_bytes <= opt->memory);
    ap_tensor *out = AP_NEW_ARRAY(&ctx->arena, ap_tensor, p->outputs.len);
    assert_ok(ctx, ap_pipeline_eval(p, &ctx->arena, in, out));
    assert_same(p->outputs.len, expected, out, 1e-5);
    t->plans++;
    t->stages += r.nstages;
    t->several += r.nstages > 1;
    t->microbatches += p->microbatches > 1;
}

static void test_random(void **user)
{
    (void)user;
    uint64_t state = 31;
    tally t = {0};
    static const char *const clusters[] = {"dgx-a100-80gb:1x4", "p3.16xlarge:2x2", "dgx-a100-80gb:1x2"};
    for (int round = 0; round < 120; round++) {
        ap_ctx *ctx = ap_ctx_create();
        maker k = {.state = &state, .views = round % 2, .tied = round % 3 > 0, .batch = round % 4 ? 8 : 0};
        ap_module *m = module_of(ctx, make_module_with(ctx, &k, 5 + round % 9));
        ap_plan_options opt = {.threads = 1 + (uint32_t)round % 2};
        assert_ok(ctx, ap_cluster_from_preset(ctx, clusters[round % 3], &opt.cluster));
        opt.memory = round % 5 == 4 ? 1500 : 0;
        const int8_t dims[4] = {0};
        ap_pipe_search_options so = {.nstages = (uint32_t)round % 3, .latency = round % 7 == 6};
        so.batch_dim = k.batch ? dims : NULL;
        so.microbatches = k.batch && round % 2 ? 2 : 0;
        ap_layers_order(ctx, m);
        assert_verifies(ctx, m);
        check(ctx, m, &opt, &so, &state, &t);
        ap_ctx_release(ctx);
    }
    print_message("%u plans, %u none; %u stages, %u of several, %u in microbatches\n", t.plans, t.none, t.stages,
                  t.several, t.microbatches);
    assert_true(t.plans > 80 && t.several > 20 && t.microbatches > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
