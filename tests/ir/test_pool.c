/* The operator pool: its windows counted by hand, its rule, and random nodes under every assignment. What it computes
 * is compared with ONNX's own tests (frontend/backend_suite) and with ONNX Runtime (e2e/test_pool.py). */
#include "tests/ir/rule_bench.h"

/* Whole windows one by one. */
static int64_t count_by_walking(const ap_window *w, int64_t extent)
{
    int64_t n = 0, last = (w->kernel - 1) * w->dilation;
    while (n * w->stride + last < extent + w->lo + w->hi)
        n++;
    return n;
}

static void test_counts(void **state)
{
    (void)state;
    ap_window w = {.kernel = 3, .stride = 3, .dilation = 1, .lo = 1, .hi = 1};
    assert_int_equal(ap_window_count(&w, 5, true), 2); /* a third one would start in the padding */
    assert_int_equal(ap_window_count(&w, 6, true), 3);
    assert_int_equal(ap_window_count(&w, 6, false), 2);
    w = (ap_window){.kernel = 2, .stride = 2, .dilation = 1, .lo = 0, .hi = 1};
    assert_int_equal(ap_window_count(&w, 4, true), 2);
    assert_int_equal(ap_window_count(&w, 5, true), 3);
    w = (ap_window){.kernel = 5, .stride = 1, .dilation = 2, .lo = 0, .hi = 0};
    assert_int_equal(ap_window_count(&w, 8, false), 0);
    assert_int_equal(ap_window_count(&w, 9, false), 1);
    for (int64_t code = 0; code < 3 * 3 * 2 * 3 * 3 * 9; code++) {
        int64_t c = code;
        w.kernel = 1 + c % 3, c /= 3;
        w.stride = 1 + c % 3, c /= 3;
        w.dilation = 1 + c % 2, c /= 2;
        w.lo = c % 3, c /= 3;
        w.hi = c % 3, c /= 3;
        int64_t extent = 1 + c;
        assert_int_equal(ap_window_count(&w, extent, false), count_by_walking(&w, extent));
        for (int64_t o = 0; o < ap_window_count(&w, extent, true); o++) {
            int64_t begin, end, first = -1, behind = 0;
            for (int64_t t = 0; t < w.kernel; t++) {
                int64_t at = o * w.stride - w.lo + t * w.dilation;
                if (at < 0 || at >= extent)
                    continue;
                first = first < 0 ? t : first;
                behind = t + 1;
            }
            ap_window_taps(&w, extent, o, &begin, &end);
            assert_int_equal(end - begin, first < 0 ? 0 : behind - first);
            if (first >= 0)
                assert_int_equal(begin, first);
        }
    }
}

static void test_golden(void **state)
{
    (void)state;
    const char *x = "%x: f32[2,8,9,9]";
    expect_rule(x, "f32[2,8,4,4]", "  %r = pool max %x [-,-,3/2,3/2] : f32[2,8,4,4]\n", "ab__->ab__ PP");
    expect_rule(x, "f32[2,8,9,9]", "  %r = pool avg %x [-,-,3+1:1,3+1:1] : f32[2,8,9,9]\n", "ab__->ab__ PP 1");
    expect_rule(x, "f32[2,8,9,9]", "  %r = pool sum %x [-,5+2:2,-,-] : f32[2,8,9,9]\n", "a_bc->a_bc PPP 1");
    expect_rule(x, "i64[2,8,9,1]", "  %r = pool argmax %x [-,-,-,9] : i64[2,8,9,1]\n", "abc_->abc PPP");
    expect_rule("%x: f32[2,4.2,9]", "f32[2,4.2,5]", "  %r = pool max %x [-,-,3~2] : f32[2,4.2,5]\n", "abc_->abc_ PPP");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type, *line, *error;
    } cases[] = {
        {"f32[2,4.2]", "pool max %x [-,3] : f32[2,6]", "a dimension with a window is factored"},
        {"i32[2,4]", "pool avg %x [-,3] : i32[2,2]", "pool avg of i32"},
        {"bool[2,4]", "pool max %x [-,3] : bool[2,2]", "pool max of bool"},
        {"f32[2,4]", "pool max %x [-,3] : f32[2,3]", "declared as"},
        {"f32[2,4]", "pool max %x [-,0] : f32[2,3]", "a window is 0"},
        {"f32[2,4]", "pool min %x [-,2] : f32[2,3]", "expected a kind of pooling"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        char text[512];
        snprintf(text, sizeof text,
                 "state normal\nfunc @f(%%x: %s) -> f32[] {\n  %%c = constant splat 0x0p+0 : f32[]\n"
                 "  %%r = %s\n  ret %%c }\n",
                 cases[i].type, cases[i].line);
        ap_module *m;
        ap_status s = ap_module_parse(ctx, "test.ap", text, strlen(text), &m);
        if (s == AP_OK)
            s = ap_module_verify(m);
        assert_int_not_equal(s, AP_OK);
        assert_true(ctx->diags.len > 0);
        if (!strstr(ap_diag_str(ctx, &ctx->diags.at[0]), cases[i].error))
            fail_msg("%s: %s", cases[i].line, ap_diag_str(ctx, &ctx->diags.at[0]));
        ap_ctx_release(ctx);
    }
}

/* ---- random nodes ---- */

static ap_node gen_pool(gen *g)
{
    ap_shape_info s;
    ap_pool_attr *a = AP_NEW(&g->ctx->arena, ap_pool_attr);
    int rank = 1 + (int)rnd(g, 4);
    a->kind = (ap_pool_kind)rnd(g, AP_POOL_KIND_COUNT);
    a->ceil = rnd(g, 2);
    ap_shape_init(&s);
    for (int d = 0; d < rank; d++) {
        if (rnd(g, 2)) {
            rnd_dim(g, &s, 2);
            continue;
        }
        int64_t extent = rnd_extent(g);
        a->window[d] = (ap_window){1 + rnd(g, 3), 1 + rnd(g, 2), 1 + rnd(g, 2), rnd(g, 3), rnd(g, 3)};
        assert_true(ap_shape_open_dim(&s) && ap_shape_add_factor(&s, extent, extent));
    }
    bool mean = a->kind == AP_POOL_AVG || a->kind == AP_POOL_AVG_PADS;
    ap_value in = argument(g, rnd_dtype(g, mean ? AP_DOMAIN_FLOAT : AP_DOMAIN_NUMBER), &s);
    return emit(g, AP_OP_POOL, 1, &in, &(ap_node_info){.u.pool = a}, 0);
}

static void test_pool(void **state)
{
    (void)state;
    uint32_t checked = 0;
    for (int i = 0; i < 300; i++) {
        gen g = {.seed = (uint64_t)i * 7919 + 17};
        bench t;
        gen_init(&g);
        ap_node n = gen_pool(&g);
        bench_init(&t, &g, n, 0);
        checked += check_all(&t);
        ap_ctx_release(g.ctx);
    }
    assert_true(checked >= 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
