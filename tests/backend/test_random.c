/* Random kernels, as C, against the evaluator. AP_RANDOM_PROGRAMS says how many programs of 40 kernels, AP_RANDOM_SEED
 * where the series begins. Half of them have NaN, infinities, denormals and the ends of integer types among its
 * numbers. */
#include "tests/backend/harness.h"

#include "tests/backend/random_nest.h"

#ifndef RANDOM_FUSED /* does the printer add products that are not rounded? */
#define RANDOM_FUSED true
#endif

static void random_programs(void **state)
{
    (void)state;
    const char *want = getenv("AP_RANDOM_PROGRAMS"), *first = getenv("AP_RANDOM_SEED");
    int programs = want ? atoi(want) : 1;
    uint32_t seed = first ? (uint32_t)atoi(first) : 11;
    for (int i = 0; i < programs; i++) {
        built b = {.ctx = ap_ctx_create()};
        if (want)
            fprintf(stderr, "AP_RANDOM_SEED=%u\n", seed);
        b.p = parse_local(b.ctx, random_nests_text(b.ctx, &seed, 40));
        build_files(&b, "t");
        load_library(&b);
        make_tensors(&b, seed);
        if (seed & 0x10000)
            random_nests_spoil(&b, &seed);
        check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
        assert_int_equal(run_built(&b), 0);
        for (uint32_t k = 0; k < b.p->outputs.len; k++)
            random_nests_compare(&b, k, RANDOM_FUSED);
        release_built(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
