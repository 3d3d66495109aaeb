/* Pipelines down to programs: the program of a random pipeline does what the pipeline means. And programs as text: what
 * is read is what was written, and what is wrong is refused. AP_ROUNDS in the environment: how many pipelines. */
#include "tests/passes/random_pipeline.h"

#include "ir/program.h"
#include "passes/pipe/lower.h"

#include <stdlib.h>

static const char *program_text(ap_ctx *ctx, const ap_program *g)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_program_print(g, &t);
    return ap_text_str(&t);
}

static ap_program *parse(ap_ctx *ctx, const char *text)
{
    ap_program *g = NULL;
    assert_ok(ctx, ap_program_parse(ctx, "again", text, strlen(text), &g));
    return g;
}

static void random_pipelines(void **unused)
{
    (void)unused;
    uint64_t state = 5;
    int channels = 0, shared = 0;
    const char *rounds = getenv("AP_ROUNDS");
    for (int round = 0; round < (rounds ? atoi(rounds) : 400); round++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster cluster;
        ap_cluster_local(64, &cluster);
        cluster.devices_per_host = 1 + (int)draw(&state, 4);
        cluster.hosts = 64;
        ap_pipeline *p = draw_pipeline(ctx, &state);
        ap_tensor in = draw_input(ctx, p, &state), want[MAX_STAGES], have[MAX_STAGES];
        assert_ok(ctx, ap_pipeline_eval(p, &ctx->arena, &in, want));
        ap_program *g = NULL;
        assert_ok(ctx, ap_pipe_explicit(ctx, p, &cluster));
        assert_ok(ctx, ap_lower_program(ctx, p, &cluster, "program", &g));
        ap_program_price(g, &cluster);
        ap_status status = ap_program_verify(g);
        const char *text = program_text(ctx, g);
        if (status != AP_OK)
            print_error("%s\n", text);
        assert_ok(ctx, status);
        ap_program *again = parse(ctx, text);
        assert_string_equal(program_text(ctx, again), text);
        for (int read = 0; read < 2; read++) {
            assert_ok(ctx, ap_program_eval(read ? again : g, &ctx->arena, &in, have));
            assert_same(p->outputs.len, want, have, 0);
        }
        channels += (int)g->channels.len;
        for (uint32_t s = 1; s < g->stages.len; s++)
            shared += g->stages.at[s]->kernels.at[0].name == g->stages.at[0]->kernels.at[0].name;
        ap_ctx_release(ctx);
    }
    assert_true(channels > 500);
    assert_true(shared > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pipelines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
