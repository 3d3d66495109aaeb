/* Pipelines: the golden example means what one module means; messages; random edits; a module alone is a pipeline. */
#include "text_util.h"

#include "ir/eval.h"
#include "ir/pipeline.h"
#include "ir/text_form.h"

static const char *print(const ap_pipeline *p)
{
    ap_text t;
    ap_text_init(&t, &p->ctx->arena);
    ap_pipeline_print(p, &t);
    return ap_text_str(&t);
}

static ap_pipeline *parse(ap_ctx *ctx, const char *text)
{
    ap_pipeline *p = NULL;
    if (ap_pipeline_parse(ctx, "test.ap", text, strlen(text), &p) != AP_OK)
        fail_msg("%s", messages(ctx));
    return p;
}

static void golden(void **state)
{
    (void)state;
    size_t size;
    char *text = read_file("pipeline.ap", &size);
    ap_ctx *ctx = ap_ctx_create();
    ap_pipeline *p = parse(ctx, text);
    if (ap_pipeline_verify(p) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_string_equal(print(p), text);
    assert_string_equal(print(ap_pipeline_clone(p)), text);
    assert_false(ap_pipeline_is_plain(p));
    assert_int_equal(p->microbatches, 2);
    const ap_wire *w = &p->links.at[0];
    assert_int_equal(w->result, 1);
    assert_int_equal(w->argument, 1);
    assert_int_equal(ap_pipeline_input(p, 0, 0), 0);
    assert_int_equal(ap_pipeline_input(p, 1, 0), 1);
    assert_int_equal(ap_pipeline_input(p, 1, 1), AP_NONE);
    assert_int_equal(ap_pipeline_link(p, 1, 1), 0);
    assert_int_equal(ap_pipeline_output(p, 0, 0), 0);
    assert_int_equal(ap_pipeline_output(p, 0, 1), AP_NONE);
    assert_int_equal(ap_pipeline_output(p, 1, 0), 1);
    ap_ctx_release(ctx);
    free(text);
}

static ap_tensor tensor_of(ap_ctx *ctx, int rows, int columns, double first)
{
    const int64_t dims[] = {rows, columns};
    ap_tensor t;
    assert_true(ap_tensor_make(&ctx->arena, AP_F32, ap_shape_get(ctx, ap_shape_of_dims(ctx, 2, dims)), &t));
    for (int64_t i = 0; i < t.count; i++)
        t.at[i].f = first + (double)i / 4;
    return t;
}

/* The stages in order, on all their points, make what one module makes. */
static void stages_mean_the_whole(void **state)
{
    (void)state;
    static const char *const whole = "param @w : f32[8,8] data(splat 0x1p-2)\n"
                                     "func @f(%x: f32[4,8], %bias: f32[1,8]) -> f32[4,8], f32[4,8] {\n"
                                     "  %h = contract %x, @w {mk,kn->mn} : f32[4,8]\n"
                                     "  %a = add %h, %bias : f32[4,8]\n"
                                     "  %y = contract %a, @w {mk,kn->mn} : f32[4,8]\n  ret %h, %y }\n";
    size_t size;
    char *text = read_file("pipeline.ap", &size);
    ap_ctx *ctx = ap_ctx_create();
    ap_pipeline *p = parse(ctx, text);
    ap_module *m = NULL;
    assert_int_equal(ap_module_parse(ctx, "whole", whole, strlen(whole), &m), AP_OK);
    ap_tensor in[] = {tensor_of(ctx, 4, 8, -3), tensor_of(ctx, 1, 8, 1)}, want[2], have[2];
    assert_int_equal(ap_eval_func(m, 0, &ctx->arena, in, want), AP_OK);
    if (ap_pipeline_eval(p, &ctx->arena, in, have) != AP_OK)
        fail_msg("%s", messages(ctx));
    for (int i = 0; i < 2; i++) {
        double diff, scale;
        ap_tensor_compare(&have[i], &want[i], &diff, &scale);
        assert_true(diff == 0 && scale > 0);
    }
    ap_ctx_release(ctx);
    free(text);
}

static void a_module_alone(void **state)
{
    (void)state;
    size_t size;
    char *text = read_file("canonical.ap", &size);
    ap_ctx *ctx = ap_ctx_create();
    ap_pipeline *p = parse(ctx, text);
    assert_true(ap_pipeline_is_plain(p));
    if (ap_pipeline_verify(p) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_int_equal(p->nranks, 8);
    assert_int_equal(p->lists.at[0].acts.len, 2);
    assert_string_equal(print(p), text);
    /* an input that nobody reads is not in the module's text */
    ap_vec_push(&ctx->arena, &p->inputs, (ap_port){.name = ap_name_make(ctx, "more"), .dtype = AP_F32});
    assert_false(ap_pipeline_is_plain(p));
    if (ap_pipeline_verify(p) != AP_OK)
        fail_msg("%s", messages(ctx));
    assert_string_equal(print(parse(ctx, print(p))), print(p));
    ap_ctx_release(ctx);
    free(text);
}

#define STAGE(NAME, RANK, SIGNATURE, VALUE)                                                                            \
    "stage @" NAME " {\nmesh @m = [x=1] ranks " RANK "\nfunc @" NAME ".fwd" SIGNATURE " { ret " VALUE " }\n}\n"
#define A STAGE("a", "0..0", "(%x: f32[4] @m[-]) -> slot \"h\" f32[4] @m[-]", "%x")
#define B STAGE("b", "1..1", "(slot %h: f32[4] @m[-]) -> \"y\" f32[4] @m[-]", "%h")

static void messages_of_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"pipeline @p ranks 0 microbatches 1", "a number of ranks"},
        {"pipeline @p ranks 1 microbatches 70000", "a number of microbatches"},
        {"pipeline @p ranks 1 microbatches 1", "a pipeline without stages"},
        {"pipeline @p ranks 1 microbatches 1 stage @a { func @f() { ret } }", "1 functions and 0 meshes"},
        {"pipeline @p ranks 2 microbatches 1 " A A, "stage @a is defined twice"},
        {"pipeline @p ranks 2 microbatches 1 " A B "link %g @a -> @b depth 1,1", "stage @a makes no slot %g"},
        {"pipeline @p ranks 2 microbatches 1 " B A "link %h @b -> @a depth 1,1", "stage @b makes no slot %h"},
        {"pipeline @p ranks 2 microbatches 1 " A A, "defined twice"},
        {"pipeline @p ranks 2 microbatches 1 " A B "link %h @a -> @c depth 1,1", "no stage @c"},
        {"pipeline @p ranks 2 microbatches 1 " A B "link %h @a -> @b depth 0,1", "a depth"},
        {"pipeline @p ranks 2 microbatches 1 " A B "list @a { run 0 }", "stage @b has no list"},
        {"pipeline @p ranks 2 microbatches 1 " A B "mesh", "expected input, output, stage, link or list"},
        {"pipeline @p ranks 2 microbatches 1 stage @a { mesh @m = [x=1] ranks 0..0", "func"},
        {"func @f() { ret }", "no pipeline, and no planned module"},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_pipeline *p;
        ap_status s = ap_pipeline_parse(ctx, "t", cases[i].text, strlen(cases[i].text), &p);
        if (i != 12)
            bad += case_fails(ctx, cases[i].text, s, cases[i].want);
        else
            bad += s == AP_OK;
        ap_ctx_release(ctx);
    }
    assert_int_equal(bad, 0);
}

/* What stays readable prints as itself and is verified without a crash. */
static bool stable(const char *text, size_t size)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_pipeline *p = NULL, *again = NULL;
    bool parsed = ap_pipeline_parse(ctx, "edited", text, size, &p) == AP_OK;
    if (parsed) {
        ap_status s = ap_pipeline_verify(p);
        const char *once = print(p);
        ctx->diags.len = 0;
        if (ap_pipeline_parse(ctx, "again", once, strlen(once), &again) != AP_OK)
            fail_msg("%s\n%s", messages(ctx), once);
        assert_string_equal(print(again), once);
        assert_int_equal(ap_pipeline_verify(again) == AP_OK, s == AP_OK);
    }
    ap_ctx_release(ctx);
    return parsed;
}

static void random_edits(void **state)
{
    (void)state;
    mutations_of("pipeline.ap", 6000, 17, stable);
    mutations_of("pipeline_bad.ap", 2000, 18, stable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),           cmocka_unit_test(stages_mean_the_whole), cmocka_unit_test(a_module_alone),
        cmocka_unit_test(messages_of_text), cmocka_unit_test(random_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
