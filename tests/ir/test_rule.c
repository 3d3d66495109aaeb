/* Sharding rules. Golden: what single nodes and composites say, written by hand. Property: random small nodes of every
 * operator under every assignment of one axis (2, 4) and of two (2x2), extents that do not divide included: the
 * emulated ranks, put together, give what one device gives; and ap_rule_read reads back what ap_rule_apply wrote. */
#include "tests/ir/rule_bench.h"
#include "tests/ir/rule_composites.h"

static void test_golden_nodes(void **state)
{
    (void)state;
    expect_rule("%x: f32[8,128,768], %w: f32[768,3.12.64]", "f32[8,128,3.12.64]",
                "  %r = contract %x, %w {bsk,k(thd)->bs(thd)} : f32[8,128,3.12.64]\n", "abc,cdef->abdef PPSPPP 1 2");
    expect_rule("%x: f32[8,128], %y: f32[128]", "f32[8,128]", "  %r = add %x, %y : f32[8,128]\n", "ab,b->ab PP 3");
    expect_rule("%x: f32[8,128], %y: f32[8,1]", "f32[8,128]", "  %r = mul %x, %y : f32[8,128]\n", "ab,a->ab PP 1 2");
    expect_rule("%x: f32[8,128], %y: f32[8,1]", "f32[8,128]", "  %r = div %x, %y : f32[8,128]\n", "ab,a->ab PP 1");
    expect_rule("%x: i32[8], %y: i32[8]", "i32[8]", "  %r = div %x, %y : i32[8]\n", "a,a->a P");
    expect_rule("%x: bool[8], %y: f32[8], %z: f32[8]", "f32[8]", "  %r = select %x, %y, %z : f32[8]\n", "a,a,a->a P 6");
    /* beside a constant zero: alone */
    expect_rule("%x: bool[8], %z: f32[8]", "f32[8]",
                "  %y = constant splat 0x0p+0 : f32[]\n  %r = select %x, %y, %z : f32[8]\n", "a,,a->a P 4");
    expect_rule("%x: f32[8]", "f32[8]", "  %r = exp %x : f32[8]\n", "a->a P");
    expect_rule("%x: f32[8]", "f16[8]", "  %r = cast %x : f16[8]\n", "a->a P 1");
    expect_rule("%x: f32[8]", "i32[8]", "  %r = cast %x : i32[8]\n", "a->a P");
    expect_rule("%x: f32[8,4]", "f32[8,1]", "  %r = reduce sum %x {ab->a1} : f32[8,1]\n", "ab->a PS 1");
    expect_rule("%x: f32[8,4]", "f32[4]", "  %r = reduce max %x {ab->b} : f32[4]\n", "ab->b XP");
    expect_rule("%x: f32[8,4]", "f32[4]", "  %r = reduce min %x {ab->b} : f32[4]\n", "ab->b NP");
    expect_rule("%x: f32[8,4]", "f32[4]", "  %r = reduce prod %x {ab->b} : f32[4]\n", "ab->b WP");
    expect_rule("%x: f32[8,4]", "i64[8]", "  %r = reduce argmax %x {ab->a} : i64[8]\n", "ab->a PW");
    expect_rule("%x: f32[8,4]", "f32[2,4,8]", "  %r = view %x {ab->cba} : f32[2,4,8]\n", "ab->cba PPP 1");
    expect_rule("%w: f32[30,8], %i: i64[2,4]", "f32[2,4,8]", "  %r = gather %w, %i {vh,bs->bsh} : f32[2,4,8]\n",
                "ab,cd->cdb IPPP 1");
    expect_rule("%w: f32[2,30,8], %i: i64[2,4]", "f32[2,4,8]", "  %r = gather %w, %i {bvh,bs->bsh} : f32[2,4,8]\n",
                "abc,ad->adc PIPP 1");
    expect_rule("%x: f32[8,3.4.2]", "f32[8,4.2]", "  %r = slice %x [-,1:2.-.-] : f32[8,4.2]\n", "a_bc->abc PPP 1");
    expect_rule("%x: f32[8,6]", "f32[8,3]", "  %r = slice %x [-,1:4] : f32[8,3]\n", "a_->a_ P 1");
    expect_rule("%x: f32[2,4], %y: f32[2,3]", "f32[2,7]", "  %r = concat %x, %y dim 1 : f32[2,7]\n", "a_,a_->a_ P 3");
    expect_rule("%x: f32[2,4], %y: f32[2,4]", "f32[2,2.4]", "  %r = concat %x, %y dim 1 : f32[2,2.4]\n",
                "ab,ab->a_b PP 3");
    expect_rule("%x: f32[4,6]", "f32[8,3]", "  %r = reshape %x : f32[8,3]\n", "__->__  1");
    expect_rule("%x: f32[7,6,2,3,2]", "f32[7,12,3,2]", "  %r = reshape %x : f32[7,12,3,2]\n", "a__bc->a_bc PPP 1");
    expect_rule("%x: f32[4,6,5]", "f32[3,8,5]", "  %r = reshape %x : f32[3,8,5]\n", "__a->__a P 1");
}

#define ATTENTION(yields)                                                                                              \
    "    %s = contract %q, %k {bs(hd),bt(hd)->bhst} : f32[8,12,128,128]\n"                                             \
    "    %m = reduce max %s {bhst->bhs1} : f32[8,12,128,1]\n"                                                          \
    "    %d = sub %s, %m : f32[8,12,128,128]\n"                                                                        \
    "    %e = exp %d : f32[8,12,128,128]\n"                                                                            \
    "    %z = reduce sum %e {bhst->bhs1} : f32[8,12,128,1]\n"                                                          \
    "    %p = div %e, %z : f32[8,12,128,128]\n"                                                                        \
    "    %u = contract %p, %v {bhst,bt(hd)->bs(hd)} : f32[8,128,12.64]\n"                                              \
    "    yield " yields " }\n"

static void test_golden_composites(void **state)
{
    (void)state;
    const char *qkv = "%q: f32[8,128,12.64], %k: f32[8,128,12.64], %v: f32[8,128,12.64]";
    /* a batch, b queries, c heads, f features of v split; d features of q and k, e keys are reduced inside; linear in v
     */
    expect_rule(qkv, "f32[8,128,12.64]",
                "  %r = composite attention(%q, %k, %v) : f32[8,128,12.64] {\n" ATTENTION("%u"),
                "abcd,aecd,aecf->abcf PPPCCP 4");
    /* a sum of a product: the reduced class is a sum, each operand alone is linear */
    expect_rule("%x: f32[8,4], %y: f32[8,4]", "f32[8]",
                "  %r = composite dot(%x, %y) : f32[8] {\n    %a = mul %x, %y : f32[8,4]\n"
                "    %b = reduce sum %a {ab->a} : f32[8]\n    yield %b }\n",
                "ab,ab->a PS 1 2");
    /* not linear after the sum, which is completed */
    expect_rule("%x: f32[8,4]", "f32[8]",
                "  %r = composite f(%x) : f32[8] {\n    %b = reduce sum %x {ab->a} : f32[8]\n"
                "    %c = exp %b : f32[8]\n    yield %c }\n",
                "ab->a PC");
    /* jointly linear, not one by one */
    expect_rule("%x: f32[8], %y: f32[8]", "f32[8]",
                "  %r = composite f(%x, %y) : f32[8] {\n    %a = sub %x, %y : f32[8]\n"
                "    %b = neg %a : f32[8]\n    yield %b }\n",
                "a,a->a P 3");
    /* a partial sum leaves by one result, another path is completed; the other letter is in all results */
    expect_rule("%x: f32[8,4]", "f32[8]",
                "  %r, %t = composite f(%x) : f32[8], f32[8] {\n    %b = reduce sum %x {ab->a} : f32[8]\n"
                "    %c = exp %b : f32[8]\n    %d = reduce max %x {ab->a} : f32[8]\n    yield %c, %d }\n",
                "ab->a,a PC");
    /* a product over the row is never split, whatever else is done with it */
    expect_rule("%x: f32[8,4]", "f32[8,4]",
                "  %r = composite f(%x) : f32[8,4] {\n    %b = reduce prod %x {ab->a1} : f32[8,1]\n"
                "    %c = sub %x, %b : f32[8,4]\n    yield %c }\n",
                "ab->ab PW");
    /* the maximum is yielded directly */
    expect_rule("%x: f32[8,4]", "f32[8]",
                "  %r = composite f(%x) : f32[8] {\n    %b = reduce max %x {ab->a} : f32[8]\n    yield %b }\n",
                "ab->a PX");
    /* one class twice in a value: x times its own transpose */
    expect_rule("%x: f32[8,4]", "f32[8,8]",
                "  %r = composite f(%x) : f32[8,8] {\n    %b = contract %x, %x {ak,bk->ab} : f32[8,8]\n"
                "    yield %b }\n",
                "ab->aa WS");
    /* the second result does not depend on the class of b: it is computed alike everywhere */
    expect_rule("%x: f32[8,4], %y: f32[8]", "f32[8,4]",
                "  %r, %t = composite f(%x, %y) : f32[8,4], f32[8] {\n    %b = mul %x, %x : f32[8,4]\n"
                "    %c = neg %y : f32[8]\n    yield %b, %c }\n",
                "ab,c->ab,c PPP");
}

/* ---- random nodes ---- */

static ap_node gen_pointwise(gen *g)
{
    ap_op op = (ap_op)(AP_OP_POINTWISE_FIRST_ + rnd(g, AP_PW_COUNT));
    const ap_op_info *info = ap_op_get(op);
    ap_shape_info r = rnd_shape(g, 3), s;
    ap_dtype t = rnd_dtype(g, info->domain);
    ap_value in[3];
    for (int i = 0; i < info->nin; i++) {
        ap_shape_init(&s);
        for (int d = (int)rnd(g, 4) == 0 && r.rank > 0; d < r.rank; d++) { /* sometimes without the first dimension */
            assert_true(ap_shape_open_dim(&s));
            if (rnd(g, 4))
                assert_true(ap_shape_copy_dim(&s, &r, d));
        }
        in[i] = argument(g, op == AP_OP_SELECT && i == 0 ? AP_BOOL : t, &s);
    }
    ap_type type = 0;
    if (info->result == AP_RESULT_CAST) {
        static const ap_dtype to[] = {AP_F64, AP_F32, AP_I64, AP_BOOL};
        type = ap_type_make(g->ctx, to[rnd(g, 4)], ap_shape_intern(g->ctx, &s), 0);
    }
    return emit(g, op, (uint32_t)info->nin, in, NULL, type);
}

static ap_node gen_contract(gen *g)
{
    static const uint8_t kinds[] = {7, 5, 6, 3};
    int64_t extent[AP_SPEC_LETTERS];
    ap_spec *spec = rnd_spec(g, 2, kinds, 4, extent, 0);
    ap_dtype t = rnd_dtype(g, AP_DOMAIN_NUMBER);
    ap_shape_info a = side_shape(&spec->operand[0], extent), b = side_shape(&spec->operand[1], extent);
    ap_value in[2] = {argument(g, t, &a), argument(g, t, &b)};
    return emit(g, AP_OP_CONTRACT, 2, in, &(ap_node_info){.u.spec = spec}, 0);
}

static ap_node gen_reduce(gen *g)
{
    static const uint8_t kinds[] = {5, 1}, kept[] = {5};
    ap_reduce_kind kind = (ap_reduce_kind)rnd(g, AP_REDUCE_KIND_COUNT);
    bool arg = kind == AP_REDUCE_ARGMAX || kind == AP_REDUCE_ARGMIN;
    int64_t extent[AP_SPEC_LETTERS];
    ap_spec *spec = rnd_spec(g, 1, arg ? kept : kinds, arg ? 1 : 2, extent, arg ? 1 : 0);
    ap_shape_info x = side_shape(&spec->operand[0], extent);
    ap_value in = argument(g, rnd_dtype(g, AP_DOMAIN_NUMBER), &x);
    return emit(g, AP_OP_REDUCE, 1, &in, &(ap_node_info){.u.reduce = {spec, kind}}, 0);
}

static ap_node gen_view(gen *g)
{
    static const uint8_t kinds[] = {5, 5, 4};
    int64_t extent[AP_SPEC_LETTERS];
    ap_spec *spec = rnd_spec(g, 1, kinds, 3, extent, 0);
    ap_dtype t = rnd_dtype(g, AP_DOMAIN_ANY);
    ap_shape_info x = side_shape(&spec->operand[0], extent), r = side_shape(&spec->result, extent);
    ap_value in = argument(g, t, &x);
    ap_type type = ap_type_make(g->ctx, t, ap_shape_intern(g->ctx, &r), 0);
    return emit(g, AP_OP_VIEW, 1, &in, &(ap_node_info){.u.spec = spec}, type);
}

static ap_node gen_gather(gen *g)
{
    static const uint8_t kinds[] = {5, 6, 7};
    int64_t extent[AP_SPEC_LETTERS];
    ap_spec *spec = rnd_spec(g, 2, kinds, 3, extent, 1);
    ap_shape_info data = side_shape(&spec->operand[0], extent), ids = side_shape(&spec->operand[1], extent);
    ap_value in[2] = {argument(g, rnd_dtype(g, AP_DOMAIN_ANY), &data), argument(g, AP_I64, &ids)};
    return emit(g, AP_OP_GATHER, 2, in, &(ap_node_info){.u.spec = spec}, 0);
}

static ap_node gen_slice(gen *g)
{
    ap_shape_info x = rnd_shape(g, 3);
    ap_slice_attr *slice = AP_NEW(&g->ctx->arena, ap_slice_attr);
    for (int f = 0; f < x.nfactors; f++) {
        ap_range *r = &slice->range[f];
        int64_t extent = x.logical[f];
        r->whole = rnd(g, 2) == 0;
        if (r->whole)
            continue;
        r->step = rnd(g, 3) == 0 ? -1 : rnd(g, 3) == 0 ? 2 : 1;
        r->start = rnd(g, (uint32_t)extent);
        int64_t most = r->step < 0 ? r->start + 1 : (extent - r->start + r->step - 1) / r->step;
        r->count = 1 + rnd(g, (uint32_t)most);
    }
    ap_value in = argument(g, rnd_dtype(g, AP_DOMAIN_ANY), &x);
    return emit(g, AP_OP_SLICE, 1, &in, &(ap_node_info){.u.slice = slice}, 0);
}

static ap_node gen_pad(gen *g)
{
    static const double fills[2] = {0, 2.5};
    ap_shape_info x;
    ap_pad_attr *pad = AP_NEW(&g->ctx->arena, ap_pad_attr);
    ap_shape_init(&x);
    for (int d = 0, rank = 1 + (int)rnd(g, 3); d < rank; d++) {
        bool pads = rnd(g, 2);
        rnd_dim(g, &x, pads ? 1 : 2);
        pad->lo[d] = pads ? rnd(g, 3) : 0;
        pad->hi[d] = pads ? rnd(g, 3) : 0;
    }
    ap_data *fill = AP_NEW(&g->ctx->arena, ap_data);
    *fill = (ap_data){.kind = AP_DATA_SPLAT, .dtype = AP_F64, .bytes = &fills[rnd(g, 2)], .size = 8};
    ap_value in[2] = {argument(g, AP_F64, &x)};
    ap_node c =
        emit(g, AP_OP_CONSTANT, 0, NULL, &(ap_node_info){.u.constant = fill}, ap_type_make(g->ctx, AP_F64, 0, 0));
    in[1] = ap_node_at(g->m, c)->out[0];
    return emit(g, AP_OP_PAD, 2, in, &(ap_node_info){.u.pad = pad}, 0);
}

static ap_node gen_concat(gen *g)
{
    int rank = 1 + (int)rnd(g, 3), dim = (int)rnd(g, (uint32_t)rank);
    uint32_t n = 1 + rnd(g, 4);
    bool stacks = n > 1 && rnd(g, 2);
    ap_shape_info base, s, r;
    ap_value in[4];
    ap_dtype t = rnd_dtype(g, AP_DOMAIN_ANY);
    ap_shape_init(&base);
    ap_shape_init(&r);
    for (int d = 0; d < rank; d++)
        rnd_dim(g, &base, d == dim && !stacks ? 1 : 2);
    stacks = stacks && base.first[dim] < base.first[dim + 1];
    for (uint32_t i = 0; i < n; i++) {
        ap_shape_init(&s);
        for (int d = 0; d < rank; d++) {
            if (d == dim && !stacks)
                rnd_dim(g, &s, 1);
            else
                assert_true(ap_shape_open_dim(&s) && ap_shape_copy_dim(&s, &base, d));
        }
        in[i] = argument(g, t, &s);
    }
    for (int d = 0; d < rank; d++) {
        assert_true(ap_shape_open_dim(&r));
        if (d == dim)
            assert_true(ap_shape_add_factor(&r, n, n));
        assert_true(ap_shape_copy_dim(&r, &base, d));
    }
    ap_type type = stacks ? ap_type_make(g->ctx, t, ap_shape_intern(g->ctx, &r), 0) : 0;
    return emit(g, AP_OP_CONCAT, n, in, &(ap_node_info){.u.concat.dim = (uint8_t)dim}, type);
}

static ap_node gen_reshape(gen *g)
{
    ap_shape_info x = rnd_shape(g, 3);
    int64_t count = ap_shape_count(&x);
    ap_value in = argument(g, rnd_dtype(g, AP_DOMAIN_ANY), &x);
    ap_dtype t = ap_type_dtype(g->ctx, ap_value_type(g->m, in));
    int64_t dims[2] = {count % 2 ? 1 : 2, count % 2 ? count : count / 2};
    for (int end = 0; end < 2 && x.rank && rnd(g, 2); end++) { /* the first or the last dimension stays */
        int64_t extent = ap_shape_dim(&x, end ? x.rank - 1 : 0);
        dims[end] = extent;
        dims[1 - end] = extent ? count / extent : 1;
    }
    return emit(g, AP_OP_RESHAPE, 1, &in, NULL, ap_type_make(g->ctx, t, ap_shape_of_dims(g->ctx, 2, dims), 0));
}

static ap_node gen_source(gen *g)
{
    ap_shape_info s = rnd_shape(g, 3);
    if (s.rank > 0 && rnd(g, 2)) {
        ap_type type = ap_type_make(g->ctx, AP_I64, ap_shape_intern(g->ctx, &s), 0);
        return emit(g, AP_OP_IOTA, 0, NULL, &(ap_node_info){.u.iota.dim = (uint8_t)rnd(g, s.rank)}, type);
    }
    int64_t count = ap_shape_count(&s);
    double *bytes = AP_NEW_ARRAY(&g->ctx->arena, double, count);
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (double)i;
    ap_data *d = AP_NEW(&g->ctx->arena, ap_data);
    *d = (ap_data){.kind = AP_DATA_INLINE, .dtype = AP_F64, .bytes = bytes, .size = (uint64_t)count * 8};
    ap_type type = ap_type_make(g->ctx, AP_F64, ap_shape_intern(g->ctx, &s), 0);
    return emit(g, AP_OP_CONSTANT, 0, NULL, &(ap_node_info){.u.constant = d}, type);
}

/* ---- all assignments ---- */

static uint32_t check_generated(ap_node (*make)(gen *g), int rounds)
{
    uint32_t checked = 0;
    for (int i = 0; i < rounds; i++) {
        gen g = {.seed = (uint64_t)i * 7919 + 17};
        bench t;
        gen_init(&g);
        ap_node n = make(&g);
        int64_t limit = 0;
        if (ap_node_at(g.m, n)->op == AP_OP_GATHER) { /* valid indices: of the letter that only the data has */
            const ap_spec *spec = ap_node_at(g.m, n)->u.spec;
            for (int f = 0; f < spec->operand[0].nletters; f++) {
                if (ap_spec_side_find(&spec->operand[1], spec->operand[0].letter[f]) < 0 &&
                    ap_spec_side_find(&spec->result, spec->operand[0].letter[f]) < 0)
                    limit = ap_value_shape(g.m, ap_node_at(g.m, n)->in[0])->logical[f];
            }
        }
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
GENERATED(pointwise, 500, 4000)
GENERATED(contract, 150, 3000)
GENERATED(reduce, 150, 1000)
GENERATED(view, 100, 1000)
GENERATED(gather, 100, 1000)
GENERATED(slice, 100, 800)
GENERATED(pad, 100, 800)
GENERATED(concat, 100, 800)
GENERATED(reshape, 20, 100)
GENERATED(source, 60, 300)

/* The ranks under every assignment of the composed rule. */
static void test_composites(void **state)
{
    (void)state;
    uint32_t checked = 0, completed = 0;
    for (size_t i = 0; i < sizeof composites / sizeof *composites; i++) {
        gen g = {.seed = i + 5};
        char text[4096];
        bench t;
        g.ctx = ap_ctx_create();
        snprintf(text, sizeof text, "state normal\nfunc @f(%s) -> %s {\n%s  ret %%r }\n", composites[i][0],
                 composites[i][1], composites[i][2]);
        g.m = parse(g.ctx, text);
        const ap_block_info *body = ap_block_at(g.m, g.m->funcs.at[0].body);
        bench_init(&t, &g, body->nodes.at[body->nodes.len - 2], 8);
        checked += check_all(&t);
        completed += t.completed;
        ap_ctx_release(g.ctx);
    }
    assert_true(checked > 450);
    assert_true(completed > 150);
}

/* What must be refused. */
static void test_apply_refuses(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = parse(ctx, "state normal\nfunc @f(%x: f32[6,4]) -> f32[6] {\n"
                              "  %r = reduce prod %x {ab->a} : f32[6]\n  ret %r }\n");
    gen g = {.ctx = ctx, .m = m};
    add_mesh(&g, 2, 2, 2);
    ap_rule rule;
    ap_strategy s;
    ap_rule_get(m, ap_block_at(m, m->funcs.at[0].body)->nodes.at[0], &ctx->arena, &rule);
    ap_choice none = {.letter = -1, .group = -1}, a = {.letter = 0, .group = -1}, b = {.letter = 1, .group = -1};
    ap_choice group = {.letter = -1, .group = 0}, beyond = {.letter = 2, .group = -1};
    assert_true(ap_rule_apply(m, &rule, 0, &(ap_assign){{a, none}}, &ctx->arena, &s));
    assert_false(ap_rule_apply(m, &rule, 0, &(ap_assign){{a, a}}, &ctx->arena, &s));    /* 6 does not divide by 4 */
    assert_false(ap_rule_apply(m, &rule, 0, &(ap_assign){{b, none}}, &ctx->arena, &s)); /* whole */
    assert_false(ap_rule_apply(m, &rule, 0, &(ap_assign){{none, group}}, &ctx->arena, &s));
    assert_false(ap_rule_apply(m, &rule, 0, &(ap_assign){{beyond, none}}, &ctx->arena, &s));
    ap_ctx_release(ctx);
}

/* Types that satisfy no assignment. */
static void test_read_refuses(void **state)
{
    (void)state;
    static const char *const types[][3] = {
        {"@m[x,-]", "@m[-,-]", "@m[x,-]"},                      /* right: x on m */
        {"@m[x,-]", "@m[-,-]", "@m[-,-]"},                      /* lost in the result */
        {"@m[-,x]", "@m[x,-]", "@m[-,-]"},                      /* not marked as partial */
        {"@m[-,x]", "@m[-,-]", "@m[-,-] sum(x)"},               /* one operand only */
        {"@m[x*y,-]", "@m[-,-]", "@m[y*x,-]"},                  /* order */
        {"@m[y*x,-]", "@m[-,-]", "@m[y*x,-]"},                  /* order against the mesh's */
        {"@m[-,-] sum(x)", "@m[-,-] sum(x)", "@m[-,-] sum(x)"}, /* a product of two partial values */
        {"@m[-,x]", "@m[x,-]", "@m[-,-] max(x)"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ap_ctx *ctx = ap_ctx_create();
        char text[1024];
        ap_module *m;
        snprintf(text, sizeof text,
                 "mesh @m = [x=2, y=2] ranks 0..3\nfunc @f(%%a: f32[8,8] %s, %%b: f32[8,8] %s) -> f32[8,8] %s {\n"
                 "  %%r = contract %%a, %%b {mk,kn->mn} : f32[8,8] %s\n  ret %%r }\n",
                 types[i][0], types[i][1], types[i][2], types[i][2]);
        assert_int_equal(ap_module_parse(ctx, "test", text, strlen(text), &m), AP_OK);
        ap_node n = ap_block_at(m, m->funcs.at[0].body)->nodes.at[0];
        ap_rule rule;
        ap_assign assign;
        ap_rule_get(m, n, &ctx->arena, &rule);
        assert_int_equal(ap_rule_read(m, n, &rule, 0, &assign), i == 0);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_nodes),  cmocka_unit_test(test_golden_composites),
        cmocka_unit_test(test_apply_refuses), cmocka_unit_test(test_read_refuses),
        cmocka_unit_test(test_pointwise),     cmocka_unit_test(test_contract),
        cmocka_unit_test(test_reduce),        cmocka_unit_test(test_view),
        cmocka_unit_test(test_gather),        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_pad),           cmocka_unit_test(test_concat),
        cmocka_unit_test(test_reshape),       cmocka_unit_test(test_source),
        cmocka_unit_test(test_composites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
