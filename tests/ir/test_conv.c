/* The operator conv: extents counted by hand, its rule, what it computes against plain loops over all indices, and
 * random nodes under every assignment of mesh axes. */
#include "tests/ir/rule_bench.h"

static void test_extents(void **state)
{
    (void)state;
    ap_conv_dim d = {.stride = 1, .dilate = 1, .hole = 1};
    assert_int_equal(ap_conv_extent(&d, 5, 3), 3);
    assert_int_equal(ap_conv_extent(&d, 2, 3), 0);
    d = (ap_conv_dim){.lo = 3, .hi = 3, .stride = 2, .dilate = 1, .hole = 1};
    assert_int_equal(ap_conv_extent(&d, 224, 7), 112);
    d = (ap_conv_dim){.lo = 2, .hi = 2, .stride = 1, .dilate = 2, .hole = 1};
    assert_int_equal(ap_conv_extent(&d, 9, 3), 9);
    d = (ap_conv_dim){.lo = 1, .hi = 2, .stride = 1, .dilate = 1, .hole = 2}; /* 4 elements, 7 with holes, 10 padded */
    assert_int_equal(ap_conv_extent(&d, 4, 3), 8);
    d = (ap_conv_dim){.lo = -1, .hi = -2, .stride = 1, .dilate = 1, .hole = 1};
    assert_int_equal(ap_conv_extent(&d, 8, 2), 4);
    d = (ap_conv_dim){.stride = 1, .dilate = 1, .hole = INT64_MAX};
    assert_int_equal(ap_conv_extent(&d, 8, 2), -1);
}

static void test_golden(void **state)
{
    (void)state;
    /* batch, groups and channels out are parallel, channels in are summed, planes stay whole */
    expect_rule("%x: f32[2,4,8,9,9], %w: f32[4,6,8,3,3]", "f32[2,4,6,7,7]",
                "  %r = conv %x, %w [-,-] : f32[2,4,6,7,7]\n", "abc__,bdc__->abd__ PPSP 1 2");
    expect_rule("%x: f32[2,1,3,9], %w: f32[1,8,3,3]", "f32[2,1,8,5]",
                "  %r = conv %x, %w [1:1 stride 2] : f32[2,1,8,5]\n", "ab_,cb_->ac_ PSP 1 2");
    /* depthwise; factored channels */
    expect_rule("%x: f32[2,3.4,1,9,9], %w: f32[3.4,1,1,3,3]", "f32[2,3.4,1,9,9]",
                "  %r = conv %x, %w [1:1,1:1] : f32[2,3.4,1,9,9]\n", "abc__,bc__->abc__ PPP 1 2");
    expect_rule("%x: f32[2,1,3.4,9], %w: f32[1,5.2,3.4,1]", "f32[2,1,5.2,9]",
                "  %r = conv %x, %w [-] : f32[2,1,5.2,9]\n", "abc_,debc->ade_ PSSPP 1 2");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *x, *w, *line, *error;
    } cases[] = {
        {"f32[2,1,3,9]", "f32[1,8,4,3]", "[-] : f32[2,1,8,7]", "do not go together"},
        {"f32[2,2,3,9]", "f32[1,8,3,3]", "[-] : f32[2,2,8,7]", "do not go together"},
        {"f32[2,1,3,9]", "f64[1,8,3,3]", "[-] : f32[2,1,8,7]", "operand types differ"},
        {"bool[2,1,3,9]", "bool[1,8,3,3]", "[-] : bool[2,1,8,7]", "not on bool"},
        {"f32[2,1,3,3.3]", "f32[1,8,3,3]", "[-] : f32[2,1,8,7]", "a spatial dimension is factored"},
        {"f32[2,1,3,9]", "f32[1,8,3,3]", "[-] : f32[2,1,8,8]", "declared as"},
        {"f32[2,1,3,9]", "f32[1,8,3,3]", "[0:0 stride 0] : f32[2,1,8,7]", "a step"},
        {"f32[2,9]", "f32[8,3]", "[-] : f32[2,7]", "needs a batch, groups and channels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        char text[512];
        snprintf(text, sizeof text,
                 "state normal\nfunc @f(%%x: %s, %%w: %s) -> f32[] {\n  %%c = constant splat 0x0p+0 : f32[]\n"
                 "  %%r = conv %%x, %%w %s\n  ret %%c }\n",
                 cases[i].x, cases[i].w, cases[i].line);
        ap_module *m;
        ap_status s = ap_module_parse(ctx, "test.ap", text, strlen(text), &m);
        if (s == AP_OK)
            s = ap_module_verify(m);
        assert_int_not_equal(s, AP_OK);
        assert_true(ctx->diags.len > 0);
        if (!strstr(ap_diag_str(ctx, &ctx->diags.at[0]), cases[i].error))
            fail_msg("%s, not %s", ap_diag_str(ctx, &ctx->diags.at[0]), cases[i].error);
        ap_ctx_release(ctx);
    }
}

/* ---- random nodes ---- */

static void add_dim(ap_shape_info *s, int64_t extent)
{
    assert_true(ap_shape_open_dim(s));
    assert_true(ap_shape_add_factor(s, extent, extent));
}

static ap_node gen_conv(gen *g)
{
    ap_shape_info x, w, n, groups, c, m;
    ap_shape_info *const parts[] = {&n, &groups, &c, &m};
    ap_node_info a = {.u.conv = AP_NEW(&g->ctx->arena, ap_conv_attr)};
    int spatial = (int)rnd(g, 3);
    for (int i = 0; i < 4; i++) {
        ap_shape_init(parts[i]);
        rnd_dim(g, parts[i], i == 0 ? 1 : 2);
    }
    ap_shape_init(&x);
    ap_shape_init(&w);
    for (int i = 0; i < 3; i++) {
        ap_shape_info *const of_x[] = {&n, &groups, &c}, *const of_w[] = {&groups, &m, &c};
        assert_true(ap_shape_open_dim(&x) && ap_shape_copy_dim(&x, of_x[i], 0));
        assert_true(ap_shape_open_dim(&w) && ap_shape_copy_dim(&w, of_w[i], 0));
    }
    for (int d = 0; d < spatial; d++) {
        int64_t kernel = 1 + rnd(g, 3);
        ap_conv_dim *k = &a.u.conv->dim[d];
        *k = (ap_conv_dim){.stride = 1 + rnd(g, 3), .dilate = 1 + rnd(g, 2), .hole = 1 + rnd(g, 3), .flip = rnd(g, 2)};
        k->lo = (int64_t)rnd(g, 4) - 1;
        k->hi = (int64_t)rnd(g, 4) - 1;
        add_dim(&x, 1 + rnd(g, 7));
        add_dim(&w, kernel);
    }
    ap_dtype t = rnd_dtype(g, AP_DOMAIN_NUMBER);
    ap_value in[2] = {argument(g, t, &x), argument(g, t, &w)};
    return emit(g, AP_OP_CONV, 2, in, &a, 0);
}

static int64_t dim_of(const ap_tensor *t, int d)
{
    return ap_shape_dim(&t->shape, d);
}

/* sum over everything that meets result `at`; dimensions row-major */
static double direct(const ap_conv_attr *a, const ap_tensor *x, const ap_tensor *w, const int64_t *at)
{
    int spatial = x->shape.rank - 3;
    int64_t taps = 1;
    double sum = 0;
    for (int d = 0; d < spatial; d++)
        taps *= dim_of(w, 3 + d);
    for (int64_t c = 0; c < dim_of(x, 2); c++) {
        for (int64_t t = 0; t < taps; t++) {
            int64_t px = (at[0] * dim_of(x, 1) + at[1]) * dim_of(x, 2) + c;
            int64_t pw = (at[1] * dim_of(w, 1) + at[2]) * dim_of(w, 2) + c, rest = t, k[2], below = taps;
            bool there = true;
            for (int d = 0; d < spatial; d++) {
                const ap_conv_dim *v = &a->dim[d];
                below /= dim_of(w, 3 + d);
                k[d] = rest / below % dim_of(w, 3 + d);
                int64_t used = v->flip ? dim_of(w, 3 + d) - 1 - k[d] : k[d];
                int64_t i = at[3 + d] * v->stride + used * v->dilate - v->lo;
                there = there && i >= 0 && i % v->hole == 0 && i / v->hole < dim_of(x, 3 + d);
                px = px * dim_of(x, 3 + d) + i / v->hole;
                pw = pw * dim_of(w, 3 + d) + k[d];
            }
            bool f = ap_dtype_is_float(x->dtype);
            if (there)
                sum += f ? x->at[px].f * w->at[pw].f : (double)(x->at[px].i * w->at[pw].i);
        }
    }
    return sum;
}

static void check_numbers(const bench *t)
{
    const ap_tensor *y = &t->reference[0];
    int rank = t->operand[0].shape.rank;
    int64_t at[AP_MAX_RANK] = {0};
    for (int64_t i = 0; i < y->count; i++) {
        double want = direct(ap_node_at(t->g->m, t->n)->u.conv, &t->operand[0], &t->operand[1], at);
        double got = ap_dtype_is_float(y->dtype) ? y->at[i].f : (double)y->at[i].i;
        assert_true(fabs(got - want) <= 1e-9 * (1 + fabs(want)));
        for (int d = rank - 1; d >= 0 && ++at[d] == dim_of(y, d); d--)
            at[d] = 0;
    }
}

static void test_random(void **state)
{
    (void)state;
    uint32_t checked = 0;
    for (int i = 0; i < 120; i++) {
        gen g = {.seed = (uint64_t)i * 7919 + 17};
        bench t;
        gen_init(&g);
        bench_init(&t, &g, gen_conv(&g), 0);
        check_numbers(&t);
        checked += check_all(&t);
        ap_ctx_release(g.ctx);
    }
    assert_true(checked > 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extents),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
