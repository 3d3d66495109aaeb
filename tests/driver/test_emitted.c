/* Random pipelines as C: emitted, compiled, run by the runtime on threads, they give what the pipelines mean. The
 * programs of tests/passes/test_program.c, one road further. AP_ROUNDS in the environment: how many. */
#include "tests/passes/random_pipeline.h"

#define print_diags harness_print_diags
#include "tests/backend/harness.h"
#undef print_diags

#include "passes/pipe/lower.h"

static void run_one(uint64_t *state)
{
    built b = {.ctx = ap_ctx_create()};
    ap_cluster cluster;
    ap_cluster_local(64, &cluster);
    ap_pipeline *p = draw_pipeline(b.ctx, state);
    ap_tensor in = draw_input(b.ctx, p, state), want[MAX_STAGES];
    assert_ok(b.ctx, ap_pipeline_eval(p, &b.ctx->arena, &in, want));
    assert_ok(b.ctx, ap_pipe_explicit(b.ctx, p, &cluster));
    assert_ok(b.ctx, ap_lower_program(b.ctx, p, &cluster, "t", &b.program));
    assert_ok(b.ctx, ap_program_verify(b.program));
    build_files(&b, "t");
    load_library(&b);
    make_tensors(&b, 1);
    ap_tensor_to_bytes(&in, b.in[0]);
    b.want = want;
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(run_built(&b), 0);
        for (uint32_t i = 0; i < b.program->outputs.len; i++)
            compare_output(&b, i, 1e-6);
    }
    release_built(&b);
}

static void random_pipelines(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    const char *rounds = getenv("AP_ROUNDS");
    for (int i = 0; i < (rounds ? atoi(rounds) : 8); i++)
        run_one(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
