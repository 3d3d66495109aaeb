/* Kernels that update, accumulate and order, as CUDA under the shim, against the evaluator. */
#include "tests/backend/cuda_harness.h"

int main_of_c(void);
#define main main_of_c
#include "tests/backend/test_kernels_index.c"
#undef main

static bool has_text(const ap_file *f, const char *text)
{
    for (uint64_t i = 0; i + strlen(text) <= f->size; i++)
        if (memcmp(f->data + i, text, strlen(text)) == 0)
            return true;
    return false;
}

/* Many updates of few columns, which several threads share by rows: 1500 of 3 columns to 500 rows, each row three times
 * or more, in their order. */
static void updates_of_few_columns(void **state)
{
    (void)state;
    static const char *const kinds[] = {"set", "add", "mul", "max"}, *const of[] = {"f32", "i64"};
    ap_ctx *ctx = ap_ctx_create();
    ap_text t, body;
    ap_text_init(&t, &ctx->arena);
    ap_text_init(&body, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 params 0\ninput \"i\" i64[1500]\n");
    for (int i = 0; i < 8; i++) {
        const char *type = of[i / 4];
        ap_text_addf(&t, "input \"x%d\" %s[1500,3]\noutput \"y%d\" %s[500,3]\n", i, type, i, type);
        ap_text_addf(&body,
                     "kernel nest @one%d {\n  write %s [1]\n  outer [1500] inner []\n  row:\n    %%0 = const 1 : %s\n"
                     "    store 0, %%0 : %s\n}\n",
                     i, type, type, type);
        ap_text_addf(&body,
                     "kernel nest @k%d {\n  read i64 [1,0]\n  read %s [3,1]\n  write %s [0,1]\n  ints 1\n"
                     "  outer [1500,3] inner []\n  row:\n    %%0 = load 1 : %s\n    %%1 = load 0 : i64\n"
                     "    %%2 = index [7,0] : i64\n    %%3 = add %%1, %%2 : i64\n    %%4 = const 500 : i64\n"
                     "    %%5 = mod %%3, %%4 : i64\n    update %s 2, %%0 at %%5 - int 0 stride 3 extent 500 limit 500 "
                     ": %s\n}\n",
                     i, type, type, type, kinds[i % 4], type);
        ap_text_addf(&body, "call @one%d(output(%d))\ncall @k%d(input(0), input(%d), output(%d)) ints(0)\n", i, i, i,
                     i + 1, i);
    }
    ap_text_add(&t, ap_text_str(&body));
    built b = {.ctx = ap_ctx_create()};
    b.p = parse_local(b.ctx, ap_text_str(&t));
    build_files(&b, "t");
    char path[128];
    ap_file kernels;
    snprintf(path, sizeof path, "%s/kernels.cu", b.dir);
    check(b.ctx, ap_file_map(b.ctx, path, &kernels));
    assert_true(has_text(&kernels, " == owner"));
    load_library(&b);
    make_tensors(&b, 7);
    check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
    assert_int_equal(run_built(&b), 0);
    for (uint32_t i = 0; i < b.p->outputs.len; i++)
        compare_output(&b, i, 1e-6);
    release_built(&b);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_of_few_columns), cmocka_unit_test(updates_in_place),
        cmocka_unit_test(running_folds),          cmocka_unit_test(first_of_rows),
        cmocka_unit_test(scatter_to_split_rows),
    };
    (void)main_of_c;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
