/* Sharding rules. Golden: what single nodes and composites say, written by hand. Property: random small nodes of every
 * operator under every assignment of one axis (2, 4) and of two (2x2), extents that do not divide included: the
 * emulated ranks, put together, give what one device gives; and ap_rule_read reads back what ap_rule_apply wrote. */
#include "ir/op/columns.h"
#include "ir/physical.h"
#include "ir/text_form.h"
#include "tests/ir/rule_composites.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void print_diags(ap_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
}

static ap_module *parse(ap_ctx *ctx, const char *text)
{
    ap_module *m = NULL;
    ap_status s = ap_module_parse(ctx, "test", text, strlen(text), &m);
    if (s == AP_OK)
        s = ap_module_verify(m);
    print_diags(ctx);
    assert_int_equal(s, AP_OK);
    return m;
}

/* ---- rules as text: a letter per factor, '_' whole; kinds P S X(max) N(min) I W C(completed inside); group masks ----
 */

static void print_side(ap_text *t, const int8_t *letter, int n)
{
    for (int f = 0; f < n; f++)
        ap_text_addf(t, "%c", letter[f] == AP_RULE_NONE ? '_' : 'a' + letter[f]);
}

static const char *rule_text(ap_ctx *ctx, const ap_rule *r)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    for (uint32_t i = 0; i < r->noperands; i++) {
        ap_text_add(&t, i ? "," : "");
        print_side(&t, r->operand[i], r->operand_factors[i]);
    }
    ap_text_add(&t, "->");
    for (uint32_t i = 0; i < r->nresults; i++) {
        ap_text_add(&t, i ? "," : "");
        print_side(&t, r->result[i], r->result_factors[i]);
    }
    ap_text_add(&t, " ");
    for (int l = 0; l < r->nletters; l++)
        ap_text_addf(&t, "%c", "PSXNIWC"[r->kind[l]]);
    for (int g = 0; g < r->ngroups; g++)
        ap_text_addf(&t, " %u", r->group[g]);
    return ap_text_str(&t);
}

/* Function arguments, one node (or a few), the rule of the last one. */
static void expect_rule(const char *arguments, const char *result, const char *nodes, const char *want)
{
    ap_ctx *ctx = ap_ctx_create();
    char text[4096];
    snprintf(text, sizeof text, "state normal\nfunc @f(%s) -> %s {\n%s  ret %%r }\n", arguments, result, nodes);
    ap_module *m = parse(ctx, text);
    const ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    ap_rule r;
    ap_rule_get(m, body->nodes.at[body->nodes.len - 2], &ctx->arena, &r);
    assert_string_equal(rule_text(ctx, &r), want);
    ap_ctx_release(ctx);
}

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

typedef struct gen {
    ap_ctx *ctx;
    ap_module *m;
    ap_func f;
    ap_block b;
    uint64_t seed;
} gen;

static uint32_t rnd(gen *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static int64_t rnd_extent(gen *g)
{
    static const int64_t extent[] = {2, 4, 5, 8, 3};
    return extent[rnd(g, 5)];
}

static void gen_init(gen *g)
{
    g->ctx = ap_ctx_create();
    g->m = ap_module_create(g->ctx);
    g->f = ap_module_add_func(g->m, ap_name_make(g->ctx, "f"));
    g->b = g->m->funcs.at[g->f].body;
}

static ap_value argument(gen *g, ap_dtype t, const ap_shape_info *s)
{
    return ap_func_add_argument(g->m, g->f, 0, ap_type_make(g->ctx, t, ap_shape_intern(g->ctx, s), 0));
}

static ap_node emit(gen *g, ap_op op, uint32_t nin, const ap_value *in, const ap_node_info *attributes, ap_type type)
{
    ap_value out;
    ap_status s = ap_module_emit(g->m, g->b, op, nin, in, 0, attributes, type, &out);
    print_diags(g->ctx);
    assert_int_equal(s, AP_OK);
    return ap_value_at(g->m, out)->def;
}

static void rnd_dim(gen *g, ap_shape_info *s, int most)
{
    assert_true(ap_shape_open_dim(s));
    for (int n = (int)rnd(g, (uint32_t)most + 1); n > 0; n--) {
        int64_t extent = rnd_extent(g);
        assert_true(ap_shape_add_factor(s, extent, extent));
    }
}

static ap_shape_info rnd_shape(gen *g, int most_rank)
{
    ap_shape_info s;
    ap_shape_init(&s);
    for (int rank = (int)rnd(g, (uint32_t)most_rank + 1); rank > 0; rank--)
        rnd_dim(g, &s, rank == 1 ? 2 : 1);
    return s;
}

static ap_dtype rnd_dtype(gen *g, ap_domain d)
{
    static const ap_dtype any[] = {AP_F64, AP_I32, AP_BOOL};
    switch (d) {
    case AP_DOMAIN_FLOAT:
        return AP_F64;
    case AP_DOMAIN_NUMBER:
        return any[rnd(g, 2)];
    case AP_DOMAIN_INTEGER:
        return AP_I32;
    case AP_DOMAIN_BOOLEAN:
        return AP_BOOL;
    case AP_DOMAIN_ANY:
        break;
    }
    return any[rnd(g, 3)];
}

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

/* Letters of one side in random order, some grouped into one dimension, sometimes an empty dimension. */
static void rnd_side(gen *g, ap_spec_side *side, const char *letters)
{
    char order[16] = "";
    int n = (int)strlen(letters);
    for (int i = 0; i < n; i++) {
        int at = (int)rnd(g, (uint32_t)i + 1);
        memmove(order + at + 1, order + at, (size_t)(i - at));
        order[at] = letters[i];
    }
    ap_spec_side_init(side);
    for (int i = 0; i < n; i++) {
        bool grouped = i > 0 && rnd(g, 3) == 0;
        if (!grouped && rnd(g, 8) == 0 && side->rank < 4)
            ap_spec_side_dim(side);
        if (!grouped)
            ap_spec_side_dim(side);
        ap_spec_side_letter(side, order[i]);
    }
}

static ap_shape_info side_shape(const ap_spec_side *side, const int64_t *extent)
{
    ap_shape_info s;
    ap_shape_init(&s);
    for (int d = 0; d < side->rank; d++) {
        assert_true(ap_shape_open_dim(&s));
        for (int f = side->first[d]; f < side->first[d + 1]; f++) {
            int64_t e = extent[ap_letter_index(side->letter[f])];
            assert_true(ap_shape_add_factor(&s, e, e));
        }
    }
    return s;
}

/* Letters a, b, ... distributed over sides: kind[i] says on which (bit mask), chosen from `kinds`. */
static ap_spec *rnd_spec(gen *g, int noperands, const uint8_t *kinds, uint32_t nkinds, int64_t extent[AP_SPEC_LETTERS],
                         uint8_t first_kind)
{
    char letters[3][16] = {{0}};
    int n = 1 + (int)rnd(g, 4);
    for (int l = 0; l < n; l++) {
        uint8_t kind = l == 0 && first_kind ? first_kind : kinds[rnd(g, nkinds)];
        extent[l] = rnd_extent(g);
        for (int side = 0; side < 3; side++) {
            if (kind >> side & 1)
                letters[side][strlen(letters[side])] = (char)('a' + l);
        }
    }
    ap_spec *spec = AP_NEW(&g->ctx->arena, ap_spec);
    spec->noperands = (uint8_t)noperands;
    for (int i = 0; i < noperands; i++)
        rnd_side(g, &spec->operand[i], letters[i]);
    rnd_side(g, &spec->result, letters[2]);
    return spec;
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

/* ---- one node under all assignments ---- */

typedef struct bench {
    gen *g;
    ap_node n;
    ap_rule rule;
    ap_tensor *operand, *reference;
    ap_type *plain; /* types of operands and results without sharding */
    uint32_t checked, completed;
} bench;

static ap_scalar rnd_scalar(gen *g, ap_dtype t, int64_t limit)
{
    ap_scalar x;
    if (ap_dtype_is_float(t))
        x.f = 0.5 + rnd(g, 1 << 20) / (double)(1 << 20);
    else if (t == AP_BOOL)
        x.i = rnd(g, 2);
    else
        x.i = limit ? rnd(g, (uint32_t)limit) : (int64_t)rnd(g, 9) - 4;
    return x;
}

static ap_value bench_value(const bench *t, uint32_t i)
{
    const ap_node_info *node = ap_node_at(t->g->m, t->n);
    return i < node->nin ? node->in[i] : node->out[i - node->nin];
}

static void bench_init(bench *t, gen *g, ap_node n, int64_t index_limit)
{
    const ap_node_info *node = ap_node_at(g->m, n);
    ap_arena *a = &g->ctx->arena;
    *t = (bench){.g = g, .n = n};
    t->operand = AP_NEW_ARRAY(a, ap_tensor, node->nin);
    t->reference = AP_NEW_ARRAY(a, ap_tensor, node->nout);
    t->plain = AP_NEW_ARRAY(a, ap_type, node->nin + node->nout);
    const ap_tensor **in = AP_NEW_ARRAY(a, const ap_tensor *, node->nin);
    for (uint32_t i = 0; i < node->nin + node->nout; i++)
        t->plain[i] = ap_value_type(g->m, bench_value(t, i));
    for (uint32_t i = 0; i < node->nin; i++) {
        ap_type_info type = ap_type_get(g->ctx, t->plain[i]);
        const ap_value_info *v = ap_value_at(g->m, node->in[i]);
        in[i] = &t->operand[i];
        if (v->kind == AP_VALUE_RESULT) {
            assert_int_equal(
                ap_tensor_from_data(g->m, a, ap_node_at(g->m, v->def)->u.constant, t->plain[i], 0, &t->operand[i]),
                AP_OK);
            continue;
        }
        assert_true(ap_tensor_make(a, type.dtype, ap_shape_get(g->ctx, type.shape), &t->operand[i]));
        for (int64_t k = 0; k < t->operand[i].count; k++)
            t->operand[i].at[k] = rnd_scalar(g, type.dtype, type.dtype == AP_I64 ? index_limit : 0);
    }
    assert_int_equal(ap_eval_node(g->m, n, a, in, t->reference), AP_OK);
    ap_rule_get(g->m, n, a, &t->rule);
}

static void set_type(bench *t, ap_value v, ap_sharding s)
{
    ap_ctx *ctx = t->g->ctx;
    ap_type_info type = ap_type_get(ctx, ap_value_type(t->g->m, v));
    ap_value_at(t->g->m, v)->type = ap_type_make(ctx, type.dtype, type.shape, s);
}

/* Shards of an operand. Partial sums are random addends that sum up to it. */
static void scatter(bench *t, ap_arena *a, const ap_mesh_info *mesh, uint32_t i, ap_sharding sharding, ap_tensor **out)
{
    const ap_sharding_info *s = ap_sharding_get(t->g->ctx, sharding);
    const ap_tensor *whole = &t->operand[i];
    uint8_t partial = ap_sharding_partial_mask(s);
    ap_tensor part[4];
    int nparts = 1;
    for (int x = 0; x < mesh->naxes; x++)
        nparts *= partial >> x & 1 ? mesh->axis_size[x] : 1;
    assert_true(nparts <= 4);
    assert_int_equal(s->partial[AP_PARTIAL_MAX] | s->partial[AP_PARTIAL_MIN], 0);
    for (int p = 0; p < nparts; p++)
        assert_true(ap_tensor_make(a, whole->dtype, &whole->shape, &part[p]));
    bool is_float = ap_dtype_is_float(whole->dtype);
    for (int64_t k = 0; k < whole->count; k++) {
        part[0].at[k] = whole->at[k];
        for (int p = 1; p < nparts; p++) {
            ap_scalar x = rnd_scalar(t->g, whole->dtype, 0);
            part[p].at[k] = x;
            if (is_float)
                part[0].at[k].f -= x.f;
            else
                part[0].at[k].i -= x.i;
        }
    }
    for (int32_t r = 0; r < ap_mesh_size(mesh); r++) {
        int32_t coords[AP_MAX_AXES], p = 0;
        ap_mesh_coords(mesh, r, coords);
        for (int x = 0; x < mesh->naxes; x++)
            p = partial >> x & 1 ? p * mesh->axis_size[x] + coords[x] : p;
        out[r] = AP_NEW(a, ap_tensor);
        const ap_shape_info *shape = ap_value_shape(t->g->m, bench_value(t, i));
        assert_true(ap_tensor_shard(a, &part[p], mesh, shape, s, coords, out[r]));
    }
}

static void check_read(bench *t, ap_arena *a, ap_mesh mesh, const ap_strategy *want)
{
    ap_assign again;
    ap_strategy got;
    if (t->rule.noperands + t->rule.nresults == 0)
        return;
    assert_true(ap_rule_read(t->g->m, t->n, &t->rule, mesh, &again));
    assert_true(ap_rule_apply(t->g->m, &t->rule, mesh, &again, a, &got));
    assert_memory_equal(got.operand, want->operand, t->rule.noperands * sizeof(ap_sharding));
    assert_memory_equal(got.result, want->result, t->rule.nresults * sizeof(ap_sharding));
}

static void report(bench *t, const char *what, uint32_t i)
{
    ap_text text;
    ap_text_init(&text, &t->g->ctx->arena);
    ap_module_print(t->g->m, &text);
    fail_msg("%s (result %u) of node %u, rule %s:\n%s", what, i, t->n, rule_text(t->g->ctx, &t->rule),
             ap_text_str(&text));
}

/* Each node of the body satisfies its own rule, the composite still its own, and its kinds are what they were. */
static void check_body(bench *t, ap_mesh mesh)
{
    ap_module *m = t->g->m;
    const ap_block_info *b = ap_block_at(m, ap_node_at(m, t->n)->body);
    ap_rule rule;
    ap_assign assign;
    for (uint32_t i = 0; i + 1 < b->nodes.len; i++) {
        if (ap_op_get(ap_node_at(m, b->nodes.at[i])->op)->planned)
            continue;
        ap_rule_get(m, b->nodes.at[i], &t->g->ctx->arena, &rule);
        if (!ap_rule_read(m, b->nodes.at[i], &rule, mesh, &assign))
            report(t, "a node of the body satisfies no strategy", b->nodes.at[i]);
    }
    ap_rule_get(m, t->n, &t->g->ctx->arena, &rule);
    assert_string_equal(rule_text(t->g->ctx, &rule), rule_text(t->g->ctx, &t->rule));
}

static void check_assignment(bench *t, ap_mesh mesh, const ap_assign *assign)
{
    ap_module *m = t->g->m;
    ap_ctx *ctx = t->g->ctx;
    const ap_mesh_info *mi = &m->meshes.at[mesh];
    ap_node_info node = *ap_node_at(m, t->n);
    ap_arena a;
    ap_strategy s;
    ap_arena_init(&a, NULL, NULL);
    if (!ap_rule_apply(m, &t->rule, mesh, assign, &a, &s)) {
        ap_arena_deinit(&a);
        return;
    }
    m->state = AP_STATE_PLANNED;
    for (uint32_t i = 0; i < node.nin; i++)
        set_type(t, node.in[i], s.operand[i]);
    for (uint32_t i = 0; i < node.nout; i++)
        set_type(t, node.out[i], s.result[i]);
    if (node.body != AP_NONE) {
        ap_rule_body body;
        assert_true(ap_rule_apply_body(m, t->n, mesh, assign, &a, &body));
        ap_rule_write_body(m, t->n, &body);
        t->completed += body.ninner;
        check_body(t, mesh);
    }
    check_read(t, &a, mesh, &s);
    int32_t nranks = ap_mesh_size(mi);
    ap_eval e = {.m = m, .arena = &a, .nranks = nranks, .round_f32 = true};
    e.value = AP_NEW_ARRAY(&a, ap_tensor *, m->values.len * (uint32_t)nranks);
    for (uint32_t i = 0; i < node.nin; i++)
        scatter(t, &a, mi, i, s.operand[i], &e.value[node.in[i] * (uint32_t)nranks]);
    if (ap_eval_all_ranks(&e, t->n) != AP_OK) {
        print_diags(ctx);
        report(t, "not evaluated", 0);
    }
    for (uint32_t i = 0; i < node.nout; i++) {
        ap_tensor whole;
        double abs, scale;
        if (ap_tensor_assemble(ctx, &a, mi, ap_value_type(m, node.out[i]), &e.value[node.out[i] * (uint32_t)nranks], 0,
                               &whole) != AP_OK)
            report(t, "replicas differ", i);
        ap_tensor_compare(&whole, &t->reference[i], &abs, &scale);
        double tolerance = !ap_dtype_is_float(whole.dtype) ? 0 : whole.dtype == AP_F32 ? 1e-5 : 1e-9;
        if (!(abs <= tolerance * (1 + scale)))
            report(t, "ranks and one device differ", i);
    }
    t->checked++;
    ap_arena_deinit(&a);
}

static void add_mesh(gen *g, int naxes, int32_t x, int32_t y)
{
    ap_mesh_info mesh = {.name = ap_name_format(g->ctx, "m%u", g->m->meshes.len), .naxes = (uint8_t)naxes};
    mesh.axis_name[0] = ap_name_make(g->ctx, "x"), mesh.axis_name[1] = ap_name_make(g->ctx, "y");
    mesh.axis_size[0] = x, mesh.axis_size[1] = y;
    ap_module_add_mesh(g->m, &mesh);
}

static uint32_t check_all(bench *t)
{
    ap_choice first[AP_MAX_CHOICES], second[AP_MAX_CHOICES];
    add_mesh(t->g, 1, 2, 1);
    add_mesh(t->g, 1, 4, 1);
    add_mesh(t->g, 2, 2, 2);
    for (ap_mesh mesh = 0; mesh < 3; mesh++) {
        const ap_mesh_info mi = t->g->m->meshes.at[mesh];
        ap_module_set_physical(t->g->m, &mi, t->g->seed >> 40 & 1);
        ap_rule_get(t->g->m, t->n, &t->g->ctx->arena, &t->rule);
        int n = ap_rule_choices(&t->rule, mi.axis_size[0], first);
        int n2 = mi.naxes > 1 ? ap_rule_choices(&t->rule, mi.axis_size[1], second) : 1;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n2; j++) {
                ap_assign assign;
                memset(&assign, 0xff, sizeof assign);
                assign.axis[0] = first[i];
                if (mi.naxes > 1)
                    assign.axis[1] = second[j];
                check_assignment(t, mesh, &assign);
            }
        }
    }
    return t->checked;
}

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
