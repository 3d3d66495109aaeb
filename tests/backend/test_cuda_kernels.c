/* Kernels of hand-written local programs, as CUDA under the shim, against the evaluator. */
#include "tests/backend/cuda_harness.h"

int main_of_c(void);
#define main main_of_c
#include "tests/backend/test_kernels.c"
#undef main

/* Windows of all kinds, with padding, strides and dilation, channels first and last, whole rows longer than a block
 * sorts at once. */
static void windows(void **state)
{
    (void)state;
    static const char *const kinds[] = {"max", "sum", "avg", "avg_pads", "argmax"};
    static const char *const types[] = {"f32", "f64", "f16", "i32"};
    ap_ctx *ctx = ap_ctx_create();
    ap_text t, body;
    int n = 0;
    ap_text_init(&t, &ctx->arena);
    ap_text_init(&body, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 params 0\n");
    for (int i = 0; i < 4; i++)
        ap_text_addf(&t, "input \"x%s\" %s[8,11,9]\n", types[i], types[i]);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            const char *to = k == 4 ? "i64" : types[i];
            if (i == 3 && (k == 2 || k == 3))
                continue;
            ap_text_addf(&t, "output \"a%d\" %s[8,6,4]\noutput \"b%d\" %s[8,4,11]\noutput \"c%d\" %s[6,4,8]\n", n, to,
                         n, to, n, to);
            ap_text_addf(&body,
                         "kernel pool @a%d {\n  read %s\n  write %s\n  %s\n  loop 8 from 99 to 24\n"
                         "  window 3/2+1:1 on 11 count 6 from 9 to 4\n  window 3/2 on 9 count 4 from 1 to 1\n}\n"
                         "kernel pool @b%d {\n  read %s\n  write %s\n  %s\n  loop 8 from 99 to 44\n"
                         "  loop 11 from 9 to 1\n  window 3~3+1:0 on 9 count 4 from 1 to 11\n}\n"
                         "kernel pool @c%d {\n  read %s\n  write %s\n  %s\n  loop 8 from 1 to 1\n"
                         "  window 3/2+1:1 on 11 count 6 from 72 to 32\n  window 3/2 on 9 count 4 from 8 to 8\n}\n",
                         n, types[i], to, kinds[k], n, types[i], to, kinds[k], n, types[i], to, kinds[k]);
            ap_text_addf(&body,
                         "call @a%d(input(%d), output(%d))\ncall @b%d(input(%d), output(%d))\n"
                         "call @c%d(input(%d), output(%d))\n",
                         n, i, 3 * n, n, i, 3 * n + 1, n, i, 3 * n + 2);
            n++;
        }
    ap_text_add(&t, ap_text_str(&body));
    expect_equal(ap_text_str(&t), 2e-3);
    ap_ctx_release(ctx);
}

static void first_of_long_rows(void **state)
{
    (void)state;
    expect_equal("local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f16[3,5000]\noutput \"y\" f16[3,7]\n"
                 "output \"i\" i64[3,7]\n"
                 "kernel topk @k {\n  read f16 [5000]\n  write f16 [7]\n  write i64 [7]\n  outer [3] inner []\n"
                 "  largest 7 of 5000 strides [1,1,1]\n}\ncall @k(input(0), output(0), output(1))\n",
                 0);
}

/* So many that what is best is sorted with piece after piece; equals among them. */
static void many_of_long_rows(void **state)
{
    (void)state;
    expect_equal("local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f16[2,5000]\noutput \"y\" f16[2,700]\n"
                 "output \"i\" i64[2,700]\n"
                 "kernel topk @k {\n  read f16 [5000]\n  write f16 [700]\n  write i64 [700]\n  outer [2] inner []\n"
                 "  smallest 700 of 5000 strides [1,1,1]\n}\ncall @k(input(0), output(0), output(1))\n",
                 0);
}

/* Few windows of many places, each by a warp, some of them beyond the border. */
static void large_windows(void **state)
{
    (void)state;
    static const char *const kinds[] = {"max", "sum", "avg", "avg_pads", "argmax"};
    ap_ctx *ctx = ap_ctx_create();
    ap_text t, body;
    ap_text_init(&t, &ctx->arena);
    ap_text_init(&body, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f32[5,21,17]\n");
    for (int k = 0; k < 5; k++) {
        const char *to = k == 4 ? "i64" : "f32";
        ap_text_addf(&t, "output \"y%d\" %s[5,3,4]\n", k, to);
        ap_text_addf(&body,
                     "kernel pool @k%d {\n  read f32\n  write %s\n  %s\n  loop 5 from 357 to 12\n"
                     "  window 11/6+2:3 on 21 count 3 from 17 to 4\n  window 9/4+2:2 on 17 count 4 from 1 to 1\n}\n"
                     "call @k%d(input(0), output(%d))\n",
                     k, to, kinds[k], k, k);
    }
    ap_text_add(&t, ap_text_str(&body));
    expect_equal(ap_text_str(&t), 1e-5);
    ap_ctx_release(ctx);
}

/* A running sum by planes: each reads what the one before wrote, and many threads go side by side. */
static void running_sum_by_planes(void **state)
{
    (void)state;
    expect_equal("local @t ranks 1 axes [] arena 0 params 0\ninput \"x\" f32[3,9,40]\noutput \"y\" f32[3,9,40]\n"
                 "kernel nest @first {\n  read f32 [360,1]\n  write f32 [360,1]\n  outer [3,40] inner []\n  row:\n"
                 "    %0 = load 0 : f32\n    store 1, %0 : f32\n}\n"
                 "kernel nest @rest {\n  read f32 [360,40,1]\n  read f32 [360,40,1]\n  write f32 [360,40,1]\n"
                 "  outer [3,8,40] inner []\n  row:\n    %0 = load 0 : f32\n    %1 = load 1 : f32\n"
                 "    %2 = add %1, %0 : f32\n    store 2, %2 : f32\n}\n"
                 "call @first(input(0), output(0))\ncall @rest(input(0)+40, output(0), output(0)+40)\n",
                 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(first_of_long_rows),
        cmocka_unit_test(many_of_long_rows),
        cmocka_unit_test(large_windows),
        cmocka_unit_test(running_sum_by_planes),
        cmocka_unit_test(softmax_with_temporary),
        cmocka_unit_test(large_temporaries_in_scratch),
        cmocka_unit_test(reductions),
        cmocka_unit_test(long_sum_is_exact_enough),
        cmocka_unit_test(narrow_floats_and_bools),
        cmocka_unit_test(indices_and_ints),
        cmocka_unit_test(gather_in_parts),
        cmocka_unit_test(gather_whole),
        cmocka_unit_test(in_place_and_conditions),
        cmocka_unit_test(gemm_loops),
        cmocka_unit_test(loops_by_rank),
        cmocka_unit_test(products_by_rank),
    };
    (void)bad_index_is_reported, (void)parameters_are_sliced, (void)exchanges, (void)large_all_reduce;
    (void)boxes_by_rank, (void)gemm_shapes, (void)main_of_c;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
