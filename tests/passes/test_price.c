/* What the kernels of a local program touch, do and take, with figures by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/local_price.h"

#include <stdio.h>
#include <string.h>

#define PS INT64_C(1000000000000)

static const char text[] =
    "local @p ranks 1 axes [x=1 stride 1] arena 131072 params 65536\n"
    "input \"x\" f32[16,16]\n"
    "output \"y\" f32[16,20]\n"
    "param 0 \"w\" f32[16,20] box [16,20] strides [20,1] from 0 at 0 bytes 1280 data(splat 0x1p+0)\n"
    "kernel nest @row \"e\" {\n  read f32 [16,1]\n  write f32 [16,1]\n  outer [16] inner [11]\n  inner:\n"
    "    %0 = load 0 : f32\n    %1 = exp %0 : f32\n    %2 = div %1, %0 : f32\n    %3 = add %2, %0 : f32\n"
    "    store 1, %3 : f32\n}\n"
    "kernel gemm @product \"p\" {\n  read f32\n  read f32\n  write f32\n  f32 m 16 n 20 k 16\n"
    "  a [16,1] b [20,1] c [20,1]\n  row:\n    %0 = load 2 : f32\n    %1 = relu %0 : f32\n    store 2, %1 : f32\n}\n"
    "kernel nest @turn \"t\" {\n  read f32 [1,256]\n  write f32 [128,1]\n  outer [256,128] inner []\n  row:\n"
    "    %0 = load 0 : f32\n    store 1, %0 : f32\n}\n"
    "call @row(input(0), arena(0))\n"
    "call @product(arena(0), param(0), arena(1024))\n"
    "call @row(arena(1024), arena(4096))\n"
    "call @turn(arena(0), arena(0))\n";

typedef struct scene {
    ap_ctx *ctx;
    ap_local *p;
    ap_arena arena;
} scene;

static void scene_begin(scene *s)
{
    s->ctx = ap_ctx_create();
    if (ap_local_parse(s->ctx, "p.ap", text, strlen(text), &s->p) != AP_OK)
        fail_msg("%s", ap_diag_str(s->ctx, &s->ctx->diags.at[0]));
    ap_arena_init(&s->arena, s->ctx->arena.out_of_memory, s->ctx->arena.user);
}

static void scene_end(scene *s)
{
    ap_arena_deinit(&s->arena);
    ap_ctx_release(s->ctx);
}

/* Rows of 11 in places of 16. */
enum { ROWS = 16 * 11 * 4, WEIGHTS = 1280, RESULT = 1280, LARGE = 256 * 128 * 4 };

static void bytes_and_distances(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    ap_touch **t = ap_local_touches(s.p, &s.arena, INT64_MAX);
    int64_t first = 2 * ROWS, second = 1024 + WEIGHTS + RESULT, third = 2 * ROWS;
    assert_int_equal(t[0][0].bytes, ROWS);
    assert_int_equal(t[1][0].bytes, 1024);
    assert_int_equal(t[1][1].bytes, WEIGHTS);
    assert_int_equal(t[1][2].bytes, RESULT);
    assert_int_equal(t[3][0].bytes, LARGE);
    assert_int_equal(t[3][0].alone, 256 * 128);
    assert_int_equal(t[3][1].alone, 0);
    assert_int_equal(t[0][1].alone, 0);
    /* made right before */
    assert_int_equal(t[1][0].distance, 1024);
    assert_int_equal(t[2][0].distance, ROWS);
    /* nobody else reads these: all that the program touches, once around */
    int64_t all = first + second + third + 2 * LARGE;
    assert_int_equal(t[0][0].distance, ROWS + all);
    assert_int_equal(t[1][1].distance, WEIGHTS + all);
    /* the place of the last kernel, one before */
    assert_int_equal(t[0][1].distance, ROWS);
    t = ap_local_touches(s.p, &s.arena, 0);
    assert_true(t[0][0].distance > 0);
    scene_end(&s);
}

static void arithmetic(void **state)
{
    (void)state;
    scene s;
    ap_work w;
    scene_begin(&s);
    ap_local_work(&s.p->kernels.at[0], &w);
    assert_int_equal(w.simple, 16 * 11);
    assert_int_equal(w.functions, 16 * 11 * (8 + 2));
    assert_int_equal(w.row, 11);
    ap_local_work(&s.p->kernels.at[1], &w);
    assert_int_equal(w.kind, AP_PRODUCT_MATRIX);
    assert_int_equal(w.flops, 2 * 16 * 20 * 16);
    assert_int_equal(w.each, w.flops);
    assert_int_equal(w.columns, 20);
    assert_int_equal(w.depth, 16);
    assert_int_equal(w.calls, 1);
    assert_int_equal(w.simple, 16 * 20); /* what follows */
    assert_int_equal(ap_cluster_conv_kind(8, 1, 1, 2, (const int64_t[]){3, 3}), AP_PRODUCT_DEPTHWISE);
    assert_int_equal(ap_cluster_conv_kind(2, 4, 4, 2, (const int64_t[]){1, 1}), AP_PRODUCT_POINTWISE);
    assert_int_equal(ap_cluster_conv_kind(1, 1, 1, 2, (const int64_t[]){1, 3}), AP_PRODUCT_SPATIAL);
    scene_end(&s);
}

/* A FLOP or byte of everything takes so many picoseconds. */
static ap_cluster by_hand(void)
{
    ap_cluster c;
    ap_cluster_local(1, &c);
    c.flops_per_second[AP_F32] = PS / 2;
    c.contract_efficiency = 1;
    c.vector_flops_per_second = PS / 3;
    c.function_flops_per_second = PS / 10;
    c.lanes = 8;
    c.tile_columns = 16;
    c.tile_depth = 8;
    c.product_call_ps = 5000;
    c.launch_ps = 700;
    c.ncaches = 2;
    c.cache[0] = (ap_cache){2000, PS};
    c.cache[1] = (ap_cache){8000, PS / 4};
    c.memory_bytes_per_second = PS / 20;
    return c;
}

static void near_to(int64_t got, int64_t want)
{
    if (got < want - 4 || got > want + 4)
        fail_msg("%lld instead of %lld", (long long)got, (long long)want);
}

static void times(void **state)
{
    (void)state;
    scene s;
    ap_cluster c = by_hand();
    scene_begin(&s);
    ap_local_price(s.p, &c);
    /* of a row of 11 three are left over, each of which takes half as long as eight: 8 + 3 * 4 */
    int64_t row = 16 * 11 * 3 + 16 * (8 + 3 * 4) * 10 * 10;
    near_to(s.p->instrs.at[0].picoseconds, 700 + row + ROWS * 20 + ROWS);
    /* 20 columns are 32, 16 terms 24 */
    near_to(s.p->instrs.at[1].picoseconds,
            700 + 5000 + 2 * (2 * 16 * 32 * 24) + 3 * 16 * 20 + 1024 + WEIGHTS * 20 + RESULT * 20);
    near_to(s.p->instrs.at[2].picoseconds, 700 + row + ROWS + ROWS * 20);
    /* a GPU does both at once, and what moves takes longer here */
    c.cpu = false;
    ap_local_price(s.p, &c);
    near_to(s.p->instrs.at[1].picoseconds, 700 + 5000 + 2 * (2 * 16 * 32 * 24) + 3 * 16 * 20);
    near_to(s.p->instrs.at[0].picoseconds, 700 + (row > ROWS * 21 ? row : ROWS * 21));
    scene_end(&s);
}

/* Without the finer figures all of it is work like any other. */
static void few_figures(void **state)
{
    (void)state;
    ap_cluster c = by_hand();
    c.function_flops_per_second = c.product_call_ps = 0;
    c.lanes = c.tile_columns = c.tile_depth = c.ncaches = 0;
    const ap_work w = {.kind = AP_PRODUCT_MATRIX,
                       .dtype = AP_F32,
                       .flops = 1000,
                       .each = 1000,
                       .columns = 3,
                       .depth = 5,
                       .calls = 7,
                       .stepped = 11,
                       .simple = 13,
                       .functions = 17,
                       .row = 3,
                       .alone = 19};
    near_to(ap_cluster_work_ps(&c, &w), 2000 + 3 * (13 + 17));
    near_to(ap_cluster_touch_ps(&c, 10, 20), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_and_distances), cmocka_unit_test(arithmetic),
                                       cmocka_unit_test(times), cmocka_unit_test(few_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
