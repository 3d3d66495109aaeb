/* Random pipelines as C: emitted, compiled, run by the runtime on threads, they give what the pipelines mean. The
 * programs of tests/passes/test_program.c, one road further. In the environment: AP_ROUNDS, how many; AP_SEED, from
 * where; AP_MPIRUN, a command like "mpirun --oversubscribe" by which they run as processes, too (AUTOPAR_RT_PLUGIN says
 * where the plugin is). */
#include "tests/passes/random_pipeline.h"

#define print_diags harness_print_diags
#include "tests/backend/harness.h"
#undef print_diags

#include "passes/pipe/lower.h"

/* The pipeline that `state` draws, explicit, with its program; its input; what it means in b->want. */
static void draw_program(built *b, uint64_t *state, ap_tensor *in, ap_tensor want[MAX_STAGES])
{
    ap_cluster cluster;
    ap_cluster_local(64, &cluster);
    b->ctx = ap_ctx_create();
    ap_pipeline *p = draw_pipeline(b->ctx, state);
    *in = draw_input(b->ctx, p, state);
    assert_ok(b->ctx, ap_pipeline_eval(p, &b->ctx->arena, in, want));
    assert_ok(b->ctx, ap_pipe_explicit(b->ctx, p, &cluster));
    assert_ok(b->ctx, ap_lower_program(b->ctx, p, &cluster, "t", &b->program));
    assert_ok(b->ctx, ap_program_verify(b->program));
}

/* Three times, since a run must not depend on the one before. Rank 0 has the outputs. */
static void run_thrice(built *b, const ap_tensor *in, ap_tensor *want)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    make_tensors(b, 1);
    ap_tensor_to_bytes(in, b->in[0]);
    b->want = want;
    for (int turn = 0; turn < 3; turn++) {
        assert_int_equal(run_built(b), 0);
        for (uint32_t i = 0; i < b->program->outputs.len && (!rank || atoi(rank) == 0); i++)
            compare_output(b, i, 1e-6);
    }
}

static void run_one(uint64_t *state)
{
    built b = {0};
    ap_tensor in, want[MAX_STAGES];
    char command[2048];
    uint64_t was = *state;
    const char *mpirun = getenv("AP_MPIRUN");
    draw_program(&b, state, &in, want);
    build_files(&b, "t");
    load_library(&b);
    run_thrice(&b, &in, want);
    if (mpirun) {
        snprintf(command, sizeof command, "%s -n %d %s/unit_driver_emitted %llu %s", mpirun, b.program->nranks, b.bin,
                 (unsigned long long)was, b.dir);
        shell(command);
    }
    release_built(&b);
}

/* One process of a program that was built in `dir`. */
static void run_rank(uint64_t state, const char *dir)
{
    built b = {0};
    ap_tensor in, want[MAX_STAGES];
    draw_program(&b, &state, &in, want);
    snprintf(b.dir, sizeof b.dir, "%s", dir);
    open_library(&b);
    run_thrice(&b, &in, want);
    b.close(b.instance);
}

static void random_pipelines(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    const char *rounds = getenv("AP_ROUNDS"), *seed = getenv("AP_SEED");
    if (seed)
        state = strtoull(seed, NULL, 10);
    for (int i = 0; i < (rounds ? atoi(rounds) : 8); i++)
        run_one(&state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pipelines),
    };
    if (argc == 3) {
        run_rank(strtoull(argv[1], NULL, 10), argv[2]);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
