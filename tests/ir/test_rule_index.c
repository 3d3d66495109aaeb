/* Sharding rules of scatter, index, topk and cumulate: what single nodes say, written by hand, and random nodes under
 * every assignment, where the ranks together must give what one device gives. */
#include "tests/ir/rule_bench.h"

static void test_golden(void **state)
{
    (void)state;
    const char *arguments = "%x: f32[30,8], %i: i64[4], %u: f32[4,8]";
    /* rows split as they like; the updates of an addition give partial sums, those of `set` stay together */
    expect_rule(arguments, "f32[30,8]", "  %r = scatter set %x, %i, %u {vh,b,bh->vh} : f32[30,8]\n",
                "ab,c,cb->ab PPW 5");
    expect_rule(arguments, "f32[30,8]", "  %r = scatter add %x, %i, %u {vh,b,bh->vh} : f32[30,8]\n",
                "ab,c,cb->ab PPS 5");
    expect_rule(arguments, "f32[30,8]", "  %r = scatter mul %x, %i, %u {vh,b,bh->vh} : f32[30,8]\n", "ab,c,cb->ab PPW");
    expect_rule(arguments, "f32[30,8]", "  %r = scatter max %x, %i, %u {vh,b,bh->vh} : f32[30,8]\n", "ab,c,cb->ab PPX");
    expect_rule(arguments, "f32[30,8]", "  %r = scatter min %x, %i, %u {vh,b,bh->vh} : f32[30,8]\n", "ab,c,cb->ab PPN");
    /* a batch letter of all three */
    expect_rule("%x: f32[2,30], %i: i64[2,4], %u: f32[2,4]", "f32[2,30]",
                "  %r = scatter add %x, %i, %u {bv,bs,bs->bv} : f32[2,30]\n", "ab,ac,ac->ab PPS 5");
    expect_rule("%i: i64[2,4]", "i64[2,4]", "  %r = index %i of 30 : i64[2,4]\n", "ab->ab PP");
    expect_rule("%x: f32[2,4,8]", "f32[2,3,8]", "  %r, %p = topk %x dim 1 largest 3 : f32[2,3,8], i64[2,3,8]\n",
                "a_b->a_b,a_b PP");
    expect_rule("%x: f32[2,4]", "f32[2,1]", "  %r, %p = topk %x dim 1 smallest 1 : f32[2,1], i64[2,1]\n", "a_->a,a P");
    expect_rule("%x: f32[2,4]", "f32[2,4]", "  %r = cumulate sum %x dim 1 exclusive : f32[2,4]\n", "a_->a_ P 1");
    expect_rule("%x: f32[2,4]", "f32[2,4]", "  %r = cumulate prod %x dim 1 reverse : f32[2,4]\n", "a_->a_ P");
}

/* Where the updates of an addition are split, the base is a partial sum as well, unless it is zero. */
static void test_base_of_an_addition(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        ap_ctx *ctx = ap_ctx_create();
        char text[1024];
        snprintf(text, sizeof text,
                 "state normal\nfunc @f(%%x: f32[30,8], %%i: i64[4], %%u: f32[4,8]) -> f32[30,8] {\n"
                 "  %%z = constant splat 0x0p+0 : f32[30,8]\n"
                 "  %%r = scatter add %s, %%i, %%u {vh,b,bh->vh} : f32[30,8]\n  ret %%r }\n",
                 zero ? "%z" : "%x");
        ap_module *m = parse(ctx, text);
        gen g = {.ctx = ctx, .m = m};
        ap_rule rule;
        ap_strategy s;
        ap_assign updates = {{{.letter = 2, .group = -1}}};
        add_mesh(&g, 1, 2, 1);
        ap_rule_get(m, ap_block_at(m, m->funcs.at[0].body)->nodes.at[1], &ctx->arena, &rule);
        assert_true(ap_rule_apply(m, &rule, 0, &updates, &ctx->arena, &s));
        assert_int_equal(ap_sharding_get(ctx, s.operand[0])->partial[AP_PARTIAL_SUM], !zero);
        assert_int_equal(ap_sharding_get(ctx, s.operand[2])->partial[AP_PARTIAL_SUM], 0);
        assert_int_equal(ap_sharding_get(ctx, s.result[0])->partial[AP_PARTIAL_SUM], 1);
        ap_ctx_release(ctx);
    }
}

/* ---- random nodes ---- */

static ap_value zeros(gen *g, ap_dtype t, const ap_shape_info *s)
{
    static const int64_t zero = 0;
    ap_data *d = AP_NEW(&g->ctx->arena, ap_data);
    *d = (ap_data){.kind = AP_DATA_SPLAT, .dtype = t, .bytes = &zero, .size = (uint64_t)ap_dtype_bytes(t)};
    ap_type type = ap_type_make(g->ctx, t, ap_shape_intern(g->ctx, s), 0);
    ap_node c = emit(g, AP_OP_CONSTANT, 0, NULL, &(ap_node_info){.u.constant = d}, type);
    return ap_node_at(g->m, c)->out[0];
}

/* Letters: a is indexed; the others are of the base and the updates (1), of all three (2), or of indices and updates
 * (3). */
static ap_node gen_scatter(gen *g)
{
    char letters[3][16] = {{'a'}};
    int64_t extent[AP_SPEC_LETTERS] = {rnd_extent(g)};
    int n = 1 + (int)rnd(g, 4);
    for (int l = 1; l < n; l++) {
        uint32_t kind = 1 + rnd(g, 3);
        bool on[3] = {kind != 3, kind != 1, true};
        extent[l] = rnd_extent(g);
        for (int side = 0; side < 3; side++)
            if (on[side])
                letters[side][strlen(letters[side])] = (char)('a' + l);
    }
    ap_spec *spec = AP_NEW(&g->ctx->arena, ap_spec);
    ap_shape_info shape[3];
    spec->noperands = 3;
    for (int i = 0; i < 3; i++) {
        rnd_side(g, &spec->operand[i], letters[i]);
        shape[i] = side_shape(&spec->operand[i], extent);
    }
    spec->result = spec->operand[0];
    ap_scatter_kind kind = (ap_scatter_kind)rnd(g, AP_SCATTER_KIND_COUNT);
    ap_dtype t = rnd_dtype(g, AP_DOMAIN_NUMBER);
    bool zero = rnd(g, 3) == 0;
    ap_value in[3] = {zero ? zeros(g, t, &shape[0]) : argument(g, t, &shape[0]), argument(g, AP_I64, &shape[1]),
                      argument(g, t, &shape[2])};
    return emit(g, AP_OP_SCATTER, 3, in, &(ap_node_info){.u.scatter = {spec, kind}}, 0);
}

static ap_node gen_index(gen *g)
{
    ap_shape_info s = rnd_shape(g, 3);
    ap_value in = argument(g, AP_I64, &s);
    return emit(g, AP_OP_INDEX, 1, &in, &(ap_node_info){.u.index.limit = 5}, 0);
}

/* A shape with one factor in dimension `dim`. */
static ap_shape_info rnd_rows(gen *g, int *out_dim)
{
    ap_shape_info s;
    int rank = 1 + (int)rnd(g, 3);
    *out_dim = (int)rnd(g, (uint32_t)rank);
    ap_shape_init(&s);
    for (int d = 0; d < rank; d++) {
        int64_t extent = rnd_extent(g);
        if (d != *out_dim) {
            rnd_dim(g, &s, 2);
            continue;
        }
        assert_true(ap_shape_open_dim(&s) && ap_shape_add_factor(&s, extent, extent));
    }
    return s;
}

static ap_node gen_topk(gen *g)
{
    int dim;
    ap_shape_info s = rnd_rows(g, &dim);
    ap_value in = argument(g, rnd_dtype(g, AP_DOMAIN_NUMBER), &s);
    ap_node n = ap_module_add_node(g->m, AP_OP_TOPK, 1, &in, 2, 0);
    ap_node_info *node = ap_node_at(g->m, n);
    node->u.topk.dim = (uint8_t)dim;
    node->u.topk.k = 1 + rnd(g, (uint32_t)s.logical[s.first[dim]]);
    node->u.topk.largest = rnd(g, 2);
    assert_int_equal(ap_node_infer(g->m, n), AP_OK);
    ap_block_append(g->m, g->b, n);
    return n;
}

static ap_node gen_cumulate(gen *g)
{
    int dim;
    ap_shape_info s = rnd_rows(g, &dim);
    ap_value in = argument(g, rnd_dtype(g, AP_DOMAIN_NUMBER), &s);
    ap_node_info a = {.u.cumulate = {(uint8_t)dim, (ap_reduce_kind)rnd(g, 4), rnd(g, 2), rnd(g, 2)}};
    return emit(g, AP_OP_CUMULATE, 1, &in, &a, 0);
}

static uint32_t check_generated(ap_node (*make)(gen *g), int rounds)
{
    uint32_t checked = 0;
    for (int i = 0; i < rounds; i++) {
        gen g = {.seed = (uint64_t)i * 7919 + 17};
        bench t;
        gen_init(&g);
        ap_node n = make(&g);
        const ap_node_info *node = ap_node_at(g.m, n);
        int64_t limit = node->op == AP_OP_INDEX ? node->u.index.limit : 0;
        if (node->op == AP_OP_SCATTER) /* valid indices */
            limit = ap_value_shape(g.m, node->in[0])->logical[ap_scatter_indexed(node->u.scatter.spec)];
        bench_init(&t, &g, n, limit);
        checked += check_all(&t);
        ap_ctx_release(g.ctx);
    }
    return checked;
}

#define GENERATED(name, rounds, at_least)                                                                              \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        assert_true(check_generated(gen_##name, rounds) >= (at_least));                                                \
    }
GENERATED(scatter, 300, 3000)
GENERATED(index, 60, 400)
GENERATED(topk, 120, 700)
GENERATED(cumulate, 120, 700)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_base_of_an_addition),
        cmocka_unit_test(test_scatter), cmocka_unit_test(test_index),
        cmocka_unit_test(test_topk),    cmocka_unit_test(test_cumulate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
