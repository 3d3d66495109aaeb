/* What shares memory in a lowered program: results over operands that die, parts of a concatenation, all_reduce in
 * place; and what must not. Every program also computes what its module does. */
#include "plan_util.h"

#include "passes/pass.h"

#include <inttypes.h>

static ap_local *lowered(ap_ctx *ctx, const char *text)
{
    ap_local *p = NULL;
    uint64_t seed = 5;
    ap_module *m = module_of(ctx, text);
    assert_verifies(ctx, m);
    ap_tensor *in = draw_inputs(ctx, m, &seed), *want = outputs_of(ctx, m, in);
    ap_tensor *got = AP_NEW_ARRAY(&ctx->arena, ap_tensor, m->funcs.at[0].nresults);
    assert_ok(ctx, ap_lower_local(ctx, m, "test", &p));
    assert_ok(ctx, ap_local_verify(p));
    assert_ok(ctx, ap_local_eval(p, &ctx->arena, in, got));
    for (uint32_t i = 0; i < m->funcs.at[0].nresults; i++) {
        double diff, scale;
        ap_tensor_compare(&got[i], &want[i], &diff, &scale);
        assert_true(diff <= 1e-5 * (scale > 1 ? scale : 1));
    }
    return p;
}

#define WEIGHTS                                                                                                        \
    "state normal\nparam @a : f32[64,64] data(splat 0.5)\nparam @b : f32[64,64] data(splat 0.25)\n"                    \
    "param @c : f32[64,64] data(splat 0.125)\n"

enum { ONE = 32 * 64 * 4 }; /* bytes of a value below */

static const struct {
    const char *what, *text;
    int64_t arena;
} programs[] = {
    /* the sums of a row are complete before it is written */
    {"softmax over its operand",
     WEIGHTS "func @f(%x: f32[32,64]) -> f32[32,64] {\n  %0 = contract %x, @a {mk,kn->mn} : f32[32,64]\n"
             "  %1 = reduce max %0 {ab->a1} : f32[32,1]\n  %2 = sub %0, %1 : f32[32,64]\n  %3 = exp %2 : f32[32,64]\n"
             "  %4 = reduce sum %3 {ab->a1} : f32[32,1]\n  %5 = div %3, %4 : f32[32,64]\n"
             "  %6 = contract %5, @b {mk,kn->mn} : f32[32,64]\n  ret %6 }\n",
     ONE},
    /* %0 is needed again */
    {"an operand that lives on",
     WEIGHTS "func @f(%x: f32[32,64]) -> f32[32,64] {\n  %0 = contract %x, @a {mk,kn->mn} : f32[32,64]\n"
             "  %1 = reduce max %0 {ab->a1} : f32[32,1]\n  %2 = sub %0, %1 : f32[32,64]\n"
             "  %3 = contract %2, @b {mk,kn->mn} : f32[32,64]\n  %4 = contract %0, @c {mk,kn->mn} : f32[32,64]\n"
             "  %5 = contract %3, %4 {mk,nk->mn} : f32[32,32]\n  %6 = contract %5, %4 {mk,kn->mn} : f32[32,64]\n"
             "  ret %6 }\n",
     3 * ONE},
    /* the transposed sum walks its operands in two ways */
    {"two orders",
     WEIGHTS "func @f(%x: f32[64,64]) -> f32[64,64] {\n  %0 = contract %x, @a {mk,kn->mn} : f32[64,64]\n"
             "  %1 = view %0 {ab->ba} : f32[64,64]\n  %2 = reduce max %0 {ab->a1} : f32[64,1]\n"
             "  %3 = add %1, %2 : f32[64,64]\n  %4 = contract %3, @b {mk,kn->mn} : f32[64,64]\n  ret %4 }\n",
     4 * ONE},
    /* both halves are written where they belong */
    {"concatenation",
     WEIGHTS "func @f(%x: f32[32,64]) -> f32[32,64] {\n  %0 = contract %x, @a {mk,kn->mn} : f32[32,64]\n"
             "  %1 = contract %x, @b {mk,kn->mn} : f32[32,64]\n  %2 = concat %0, %1 dim 0 : f32[64,64]\n"
             "  %3 = contract %x, %2 {mk,nk->mn} : f32[32,64]\n  ret %3 }\n",
     2 * ONE},
    /* a part of a part, and one with a margin */
    {"nested concatenation",
     WEIGHTS "func @f(%x: f32[32,64]) -> f32[32,128] {\n  %0 = contract %x, @a {mk,kn->mn} : f32[32,64]\n"
             "  %z = constant splat 0 : f32[]\n  %p = pad %0, %z [16:16,-] : f32[64,64]\n"
             "  %1 = contract %x, @b {mk,kn->mn} : f32[32,64]\n  %2 = concat %1, %1 dim 0 : f32[64,64]\n"
             "  %3 = concat %p, %2 dim 0 : f32[128,64]\n  %4 = contract %x, %3 {mk,nk->mn} : f32[32,128]\n  ret %4 }\n",
     5 * ONE},
};

static void memory_is_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_local *p = lowered(ctx, programs[i].text);
        if (p->arena_bytes != programs[i].arena)
            fail_msg("%s: an arena of %" PRId64 " bytes, not %" PRId64, programs[i].what, p->arena_bytes,
                     programs[i].arena);
        assert_int_equal(p->live_bytes, p->arena_bytes);
        ap_ctx_release(ctx);
    }
}

/* A small early operand would keep the whole result alive while something large comes and goes: it is copied instead.
 */
static void early_parts_are_copied(void **state)
{
    ap_ctx *ctx = ap_ctx_create();
    (void)state;
    ap_local *p =
        lowered(ctx, WEIGHTS "param @w : f32[64,512] data(splat 0.5)\nparam @v : f32[512,192] data(splat 0.25)\n"
                             "func @f(%x: f32[32,64]) -> f32[32,32] {\n"
                             "  %0 = contract %x, @a {mk,kn->mn} : f32[32,64]\n"
                             "  %1 = contract %x, @w {mk,kn->mn} : f32[32,512]\n"
                             "  %2 = contract %1, @v {mk,kn->mn} : f32[32,192]\n"
                             "  %3 = concat %0, %2 dim 1 : f32[32,256]\n"
                             "  %4 = contract %3, %3 {mk,nk->mn} : f32[32,32]\n  ret %4 }\n");
    assert_int_equal(p->arena_bytes, (1 + 8 + 3) * ONE);
    ap_ctx_release(ctx);
}

static ap_local *all_reduce_of(ap_ctx *ctx, int rows)
{
    const char *text = ap_name_str(
        ctx, ap_name_format(ctx,
                            "state explicit\nmesh @m = [x=2] ranks 0..1\n"
                            "func @f(%%x: f32[%d,64] @m[-,x], %%w: f32[64,64] @m[x,-]) -> f32[%d,64] @m[-,-] {\n"
                            "  %%0 = contract %%x, %%w {mk,kn->mn} : f32[%d,64] @m[-,-] sum(x)\n"
                            "  %%1 = all_reduce %%0 over x : f32[%d,64] @m[-,-]\n"
                            "  %%2 = exp %%1 : f32[%d,64] @m[-,-]\n  ret %%2 }\n",
                            rows, rows, rows, rows, rows));
    return lowered(ctx, text);
}

static void large_all_reduces_are_in_place(void **state)
{
    ap_ctx *ctx = ap_ctx_create();
    (void)state;
    assert_int_equal(all_reduce_of(ctx, 64)->arena_bytes, 64 * 64 * 4);
    assert_int_equal(all_reduce_of(ctx, 8)->arena_bytes, 2 * 8 * 64 * 4); /* everybody folds a small one at once */
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_shared),
        cmocka_unit_test(early_parts_are_copied),
        cmocka_unit_test(large_all_reduces_are_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
