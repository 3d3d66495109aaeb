/* Random nests as CUDA under the shim, against the evaluator. AP_RANDOM_PROGRAMS says how many programs of 40 nests. */
#include "tests/backend/cuda_harness.h"
#include "tests/backend/random_nest.h"

static double tolerance(ap_dtype t)
{
    return t == AP_F16 ? 4e-3 : t == AP_BF16 ? 3e-2 : t == AP_F32 ? 1e-4 : t == AP_F64 ? 1e-10 : 0;
}

static void random_programs(void **state)
{
    (void)state;
    const char *want = getenv("AP_RANDOM_PROGRAMS"), *first = getenv("AP_RANDOM_SEED");
    int programs = want ? atoi(want) : 1;
    uint32_t seed = first ? (uint32_t)atoi(first) : 11;
    for (int i = 0; i < programs; i++) {
        built b = {.ctx = ap_ctx_create()};
        b.p = parse_local(b.ctx, random_nests_text(b.ctx, &seed, 40));
        build_files(&b, "t");
        load_library(&b);
        make_tensors(&b, seed);
        if (i % 4 == 3)
            random_nests_spoil(&b, &seed);
        check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
        assert_int_equal(run_built(&b), 0);
        for (uint32_t k = 0; k < b.p->outputs.len; k++)
            compare_output(&b, k, tolerance(b.p->outputs.at[k].dtype));
        release_built(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
