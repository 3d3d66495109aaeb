/* What type inference says of wrong nodes, in the user's terms, and of right ones; and logical flops. */
#include "ir/op.h"
#include "ir/text_form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Infers the last node before ret; its result's type, or the message. */
static const char *infer(ap_ctx *ctx, const char *arguments, const char *nodes, bool clear, ap_node *out_node,
                         ap_module **out_m)
{
    char text[2048];
    ap_module *m;
    snprintf(text, sizeof text, "state normal\nfunc @f(%s) -> f32[] {\n%s  ret %%r }\n", arguments, nodes);
    if (ap_module_parse(ctx, "t", text, strlen(text), &m) != AP_OK) {
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[0]));
        fail();
    }
    const ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    ap_node n = body->nodes.at[body->nodes.len - 2];
    *out_node = n, *out_m = m;
    if (clear)
        ap_value_at(m, ap_node_at(m, n)->out[0])->type = 0;
    if (ap_node_infer(m, n) != AP_OK)
        return ctx->diags.at[ctx->diags.len - 1].text;
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_type_print(m, ap_value_type(m, ap_node_at(m, n)->out[0]), &t);
    return ap_text_str(&t);
}

static const struct {
    const char *arguments, *node, *want;
    bool given; /* the type in the text is kept and checked */
} cases[] = {
    {"%x: f32[2,3], %y: f32[3]", "add %x, %y : f32[]", "f32[2,3]", false},
    {"%x: f32[2,1,4], %y: f32[3,1]", "mul %x, %y : f32[]", "f32[2,3,4]", false},
    {"%x: f32[2,3.4], %y: f32[3.4]", "add %x, %y : f32[]", "f32[2,3.4]", false},
    {"%x: f32[0,3], %y: f32[1,3]", "add %x, %y : f32[]", "f32[0,3]", false},
    {"%x: f32[2,3], %y: f32[4,3]", "add %x, %y : f32[]", "shapes [2,3] and [4,3] do not broadcast", false},
    {"%x: f32[2,12], %y: f32[2,3.4]", "add %x, %y : f32[]", "shapes [2,12] and [2,3.4] do not broadcast", false},
    {"%x: f32[2], %y: f64[2]", "add %x, %y : f32[]", "operand types differ: f32 and f64", false},
    {"%x: i32[2]", "exp %x : f32[]", "exp works on floats, not on i32", false},
    {"%x: bool[2], %y: bool[2]", "add %x, %y : f32[]", "add works on numbers, not on bool", false},
    {"%x: i64[2], %y: i64[2]", "lt %x, %y : f32[]", "bool[2]", false},
    {"%x: f32[2], %y: f32[2]", "select %x, %y, %y : f32[]", "the condition is f32, not bool", false},
    {"%x: f32[2]", "cast %x : i8[2]", "i8[2]", true},
    {"%x: f32[2]", "cast %x : i8[3]", "result 0 of cast is declared as i8[3] but is i8[2]", true},
    {"%x: f32[4,8], %w: f32[8,5]", "contract %x, %w {mk,kn->mn} : f32[]", "f32[4,5]", false},
    {"%x: f32[4,8], %w: f32[12,5]", "contract %x, %w {mk,kn->mn} : f32[]", "inner dimensions differ: 8 and 12", false},
    {"%x: f32[2,4,8], %w: f32[3,8,5]", "contract %x, %w {bmk,bkn->bmn} : f32[]", "batch dimensions differ: 2 and 3",
     false},
    {"%x: f32[4,8], %w: f32[8,5]", "contract %x, %w {mk,kn->m} : f32[]",
     "letters {mk,kn->m}: a letter of one operand only is not in the result", false},
    {"%x: f32[4,8], %w: f32[8]", "contract %x, %w {mk,kn->mn} : f32[]",
     "letters {mk,kn->mn} do not fit the shape [8] of the second operand", false},
    {"%x: f32[4,2.4]", "reduce sum %x {a(bc)->a1} : f32[]", "f32[4,1]", false},
    {"%x: f32[4,8]", "reduce argmax %x {ab->a} : f32[]", "i64[4]", false},
    {"%x: f32[4,8]", "reduce argmax %x {ab->} : f32[]", "letters {ab->}: argmax and argmin reduce exactly one letter",
     false},
    {"%x: f32[4,8]", "view %x {ab->(ba)} : f32[]", "f32[8.4]", false},
    {"%x: f32[4,8]", "view %x {ab->abc} : f32[4,8,3]", "f32[4,8,3]", true},
    {"%x: f32[4,8]", "view %x {ab->abc} : f32[]", "letters {ab->abc}: a letter of the result is in no operand", false},
    {"%x: f32[4,8]", "view %x {ab->a} : f32[]", "letters {ab->a}: a letter of the operand is not in the result", false},
    {"%x: f32[9,8], %i: i32[2,3]", "gather %x, %i {vh,bs->bsh} : f32[]", "f32[2,3,8]", false},
    {"%x: f32[9,8], %i: f32[2]", "gather %x, %i {vh,b->bh} : f32[]", "indices of f32, not integers", false},
    {"%x: f32[9,8], %i: i32[2]", "gather %x, %i {vh,b->b} : f32[]",
     "letters {vh,b->b}: a gather has exactly one indexed letter", false},
    {"%x: f32[9,3.8]", "slice %x [2:5,1:2.-] : f32[]", "f32[3,8]", false},
    {"%x: f32[9,8]", "slice %x [-,0:1] : f32[]", "f32[9,1]", false},
    {"%x: f32[2,3], %y: f32[2,4]", "concat %x, %y dim 1 : f32[]", "f32[2,7]", false},
    {"%x: f32[2,3], %y: f32[2,1]", "concat %x, %y dim 1 : f32[]", "f32[2,4]", false},
    {"%x: f32[2,3], %y: f32[2,3]", "concat %x, %y dim 1 : f32[2,2.3]", "f32[2,2.3]", true},
    {"%x: f32[2,3], %y: f32[4,3]", "concat %x, %y dim 1 : f32[]",
     "shapes [2,3] and [4,3] cannot be concatenated along dimension 1", false},
    {"%x: f32[2,2.3], %y: f32[2,6]", "concat %x, %y dim 1 : f32[]",
     "concat along a dimension that is factored: [2,2.3]", false},
    {"%x: f32[2,3]", "reshape %x : f32[6]", "f32[6]", true},
    {"%x: f32[2,3]", "reshape %x : f32[7]", "6 elements [2,3] cannot become 7 elements [7]", true},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ap_ctx *ctx = ap_ctx_create();
        char nodes[512];
        ap_node n;
        ap_module *m;
        snprintf(nodes, sizeof nodes, "  %%r = %s\n", cases[i].node);
        assert_string_equal(infer(ctx, cases[i].arguments, nodes, !cases[i].given, &n, &m), cases[i].want);
        ap_ctx_release(ctx);
    }
}

static void test_flops(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_node n;
    ap_module *m;
    infer(ctx, "%x: f32[2,4,8], %w: f32[8,3.5]", "  %r = contract %x, %w {bmk,k(hn)->bm(hn)} : f32[2,4,3.5]\n", false,
          &n, &m);
    assert_int_equal(ap_node_flops(m, n), 2 * 2 * 4 * 8 * 15);
    infer(ctx, "%x: f32[2,4]", "  %r = reduce sum %x {ab->a} : f32[2]\n", false, &n, &m);
    assert_int_equal(ap_node_flops(m, n), 8);
    infer(ctx, "%x: f32[2,4]", "  %r = exp %x : f32[2,4]\n", false, &n, &m);
    assert_int_equal(ap_node_flops(m, n), 8 * ap_op_get(AP_OP_EXP)->flops_per_element);
    infer(ctx, "%x: f32[2,4]", "  %r = view %x {ab->ba} : f32[4,2]\n", false, &n, &m);
    assert_int_equal(ap_node_flops(m, n), 0);
    infer(ctx, "%x: f32[2,4]",
          "  %r = composite c(%x) : f32[2] {\n    %a = neg %x : f32[2,4]\n    %b = reduce sum %a {ab->a} : f32[2]\n"
          "    yield %b }\n",
          false, &n, &m);
    assert_int_equal(ap_node_flops(m, n), 16);
    ap_ctx_release(ctx);
}

/* Every row has what the readers of the table rely on. */
static void test_table(void **state)
{
    (void)state;
    for (int op = 0; op < AP_OP_COUNT; op++) {
        const ap_op_info *info = ap_op_get((ap_op)op);
        ap_op back;
        assert_non_null(info->name);
        assert_true(ap_op_from_str(info->name, &back));
        assert_int_equal(back, op);
        assert_non_null(info->infer);
        bool step = info->planned || info->collective || info->step;
        assert_int_equal(info->eval == NULL, info->terminator);
        assert_int_equal(info->rule == NULL, info->terminator || step);
        assert_int_equal(info->pointwise, ap_op_is_pointwise((ap_op)op));
        if (info->pointwise) {
            assert_string_equal(info->name, ap_pointwise_str(ap_op_scalar((ap_op)op)));
            assert_int_equal(info->nin, ap_pointwise_nin(ap_op_scalar((ap_op)op)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
