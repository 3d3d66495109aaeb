/* Kernels that update, accumulate and order, of every element type: the emitted C against the evaluator; and an index
 * that is out of range. */
#include "tests/backend/harness.h"

#include "ir/base/text.h"

static const char *const types[] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
enum { TYPES = sizeof types / sizeof *types };

/* Updates in all ways, in their place: what is there first comes from another kernel. */
static void updates_in_place(void **state)
{
    (void)state;
    static const char *const kinds[] = {"set", "add", "mul", "max", "min"};
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 live 0 params 0\n");
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t, "input \"x%s\" %s[5,3,7]\n", types[i], types[i]);
    for (int i = 0; i < TYPES * 5; i++)
        ap_text_addf(&t, "output \"y%s%s\" %s[5,7]\n", types[i / 5], kinds[i % 5], types[i / 5]);
    for (int i = 0; i < TYPES * 5; i++) {
        const char *type = types[i / 5], *kind = kinds[i % 5];
        ap_text_addf(&t,
                     "kernel nest @s%s%s {\n  read %s [21,1]\n  write %s [7,1]\n  outer [5,7] inner []\n  row:\n"
                     "    %%0 = load 0 : %s\n    store 1, %%0 : %s\n}\n",
                     type, kind, type, type, type, type);
        ap_text_addf(&t,
                     "kernel nest @k%s%s {\n  read %s [21,7,1]\n  write %s [7,0,1]\n  outer [5,3,7] inner []\n  row:\n"
                     "    %%0 = load 0 : %s\n    update %s 1, %%0 : %s\n}\n",
                     type, kind, type, type, type, kind, type);
    }
    for (int i = 0; i < TYPES * 5; i++)
        ap_text_addf(&t, "call @s%s%s(input(%d), output(%d))\ncall @k%s%s(input(%d), output(%d))\n", types[i / 5],
                     kinds[i % 5], i / 5, i, types[i / 5], kinds[i % 5], i / 5, i);
    expect_equal(ap_text_str(&t), 1e-2);
    ap_ctx_release(ctx);
}

/* Running sums and products forwards, backwards and without the element itself. */
static void running_folds(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sum", "prod", "max", "min"};
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 live 0 params 0\n");
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t, "input \"x%s\" %s[4,6]\n", types[i], types[i]);
    for (int i = 0; i < TYPES * 8; i++)
        ap_text_addf(&t, "output \"y%d\" %s[4,6]\n", i, types[i / 8]);
    for (int i = 0; i < TYPES * 8; i++)
        ap_text_addf(&t,
                     "kernel nest @k%d {\n  read %s [6,%d]\n  write %s [6,%d]\n  outer [4] inner [6]\n  inner:\n"
                     "    %%0 = load 0 : %s\n    %%1 = scan %s %%0%s : %s\n    store 1, %%1 : %s\n}\n",
                     i, types[i / 8], i % 2 ? -1 : 1, types[i / 8], i % 2 ? -1 : 1, types[i / 8], kinds[i / 2 % 4],
                     i % 2 ? " exclusive" : "", types[i / 8], types[i / 8]);
    for (int i = 0; i < TYPES * 8; i++)
        ap_text_addf(&t, "call @k%d(input(%d)+%d, output(%d)+%d)\n", i, i / 8, i % 2 ? 5 : 0, i, i % 2 ? 5 : 0);
    expect_equal(ap_text_str(&t), 1e-2);
    ap_ctx_release(ctx);
}

/* The first k of rows and of columns, of all of them and of one. */
static void first_of_rows(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "local @t ranks 1 axes [] arena 0 live 0 params 0\n");
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t, "input \"x%s\" %s[9,130]\n", types[i], types[i]);
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t,
                     "output \"a%d\" %s[9,4]\noutput \"b%d\" i64[9,4]\noutput \"c%d\" %s[9,130]\noutput \"d%d\" "
                     "i64[9,130]\n",
                     i, types[i], i, i, types[i], i);
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t,
                     "kernel topk @r%d {\n  read %s [130]\n  write %s [4]\n  write i64 [4]\n  outer [9] inner []\n"
                     "  largest 4 of 130 strides [1,1,1]\n}\n"
                     "kernel topk @c%d {\n  read %s [1]\n  write %s [1]\n  write i64 [1]\n  outer [130] inner []\n"
                     "  smallest 9 of 9 strides [130,130,130]\n}\n",
                     i, types[i], types[i], i, types[i], types[i]);
    for (int i = 0; i < TYPES; i++)
        ap_text_addf(&t, "call @r%d(input(%d), output(%d), output(%d))\ncall @c%d(input(%d), output(%d), output(%d))\n",
                     i, i, 4 * i, 4 * i + 1, i, i, 4 * i + 2, 4 * i + 3);
    expect_equal(ap_text_str(&t), 0);
    ap_ctx_release(ctx);
}

/* Rows of a result that is split over two ranks: each keeps what is its own. */
static const char scatter_text[] =
    "local @t ranks 2 axes [x=2 stride 1] arena 0 live 0 params 0\n"
    "input \"i\" i32[40]\ninput \"u\" f32[40,8]\noutput \"y\" f32[6,8]\n"
    "kernel nest @zero {\n  write f32 [8,1]\n  outer [3,8] inner []\n  row:\n    %0 = const 0x0p+0 : f32\n"
    "    store 0, %0 : f32\n}\n"
    "kernel nest @k {\n  read i32 [1,0]\n  read f32 [8,1]\n  write f32 [0,1]\n  ints 1\n  outer [40,8] inner []\n"
    "  row:\n    %0 = load 0 : i32\n    %1 = check %0 limit 6 : i32\n    %2 = cast %1 : i64\n    %3 = load 1 : f32\n"
    "    update add 2, %3 at %2 - int 0 stride 8 extent 3 limit 6 : f32\n}\n"
    "call @zero(output(0)+24*x)\ncall @k(input(0), input(1), output(0)+24*x) ints(3*x)\n";

static void scatter_to_split_rows(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        built b = {.ctx = ap_ctx_create()};
        b.p = parse_local(b.ctx, scatter_text);
        build_files(&b, "t");
        load_library(&b);
        make_tensors(&b, 5);
        for (int i = 0; i < 40; i++)
            ((int32_t *)b.in[0])[i] = (int32_t)(b.want_in[0].at[i].i = i * 7 % 12 - 6); /* -6 ... 5 */
        if (bad) {
            ((int32_t *)b.in[0])[39] = -7;
            assert_int_not_equal(run_built(&b), 0);
            assert_non_null(strstr(b.error(b.instance), "index -7 is outside [-6, 6)"));
        } else {
            check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
            assert_int_equal(run_built(&b), 0);
            compare_output(&b, 0, 1e-6);
        }
        release_built(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_in_place),
        cmocka_unit_test(running_folds),
        cmocka_unit_test(first_of_rows),
        cmocka_unit_test(scatter_to_split_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
