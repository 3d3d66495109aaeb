/* Random nodes, and one node under all assignments of one axis (2, 4) and of two (2x2), extents that do not divide
 * included: the emulated ranks, put together, give what one device gives. For tests of sharding rules. */
#ifndef AP_TESTS_IR_RULE_BENCH_H
#define AP_TESTS_IR_RULE_BENCH_H

#include "ir/op/columns.h"
#include "ir/physical.h"
#include "ir/text_form.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static inline void print_diags(ap_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        print_error("%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
}

static inline ap_module *parse(ap_ctx *ctx, const char *text)
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

static inline void print_side(ap_text *t, const int8_t *letter, int n)
{
    for (int f = 0; f < n; f++)
        ap_text_addf(t, "%c", letter[f] == AP_RULE_NONE ? '_' : 'a' + letter[f]);
}

static inline const char *rule_text(ap_ctx *ctx, const ap_rule *r)
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
static inline void expect_rule(const char *arguments, const char *result, const char *nodes, const char *want)
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

/* ---- random nodes ---- */

typedef struct gen {
    ap_ctx *ctx;
    ap_module *m;
    ap_func f;
    ap_block b;
    uint64_t seed;
} gen;

static inline uint32_t rnd(gen *g, uint32_t n)
{
    g->seed = g->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(g->seed >> 33) % n;
}

static inline int64_t rnd_extent(gen *g)
{
    static const int64_t extent[] = {2, 4, 5, 8, 3};
    return extent[rnd(g, 5)];
}

static inline void gen_init(gen *g)
{
    g->ctx = ap_ctx_create();
    g->m = ap_module_create(g->ctx);
    g->f = ap_module_add_func(g->m, ap_name_make(g->ctx, "f"));
    g->b = g->m->funcs.at[g->f].body;
}

static inline ap_value argument(gen *g, ap_dtype t, const ap_shape_info *s)
{
    return ap_func_add_argument(g->m, g->f, 0, ap_type_make(g->ctx, t, ap_shape_intern(g->ctx, s), 0));
}

static inline ap_node emit(gen *g, ap_op op, uint32_t nin, const ap_value *in, const ap_node_info *attributes,
                           ap_type type)
{
    ap_value out;
    ap_status s = ap_module_emit(g->m, g->b, op, nin, in, 0, attributes, type, &out);
    print_diags(g->ctx);
    assert_int_equal(s, AP_OK);
    return ap_value_at(g->m, out)->def;
}

static inline void rnd_dim(gen *g, ap_shape_info *s, int most)
{
    assert_true(ap_shape_open_dim(s));
    for (int n = (int)rnd(g, (uint32_t)most + 1); n > 0; n--) {
        int64_t extent = rnd_extent(g);
        assert_true(ap_shape_add_factor(s, extent, extent));
    }
}

static inline ap_shape_info rnd_shape(gen *g, int most_rank)
{
    ap_shape_info s;
    ap_shape_init(&s);
    for (int rank = (int)rnd(g, (uint32_t)most_rank + 1); rank > 0; rank--)
        rnd_dim(g, &s, rank == 1 ? 2 : 1);
    return s;
}

static inline ap_dtype rnd_dtype(gen *g, ap_domain d)
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

/* Letters of one side in random order, some grouped into one dimension, sometimes an empty dimension. */
static inline void rnd_side(gen *g, ap_spec_side *side, const char *letters)
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

static inline ap_shape_info side_shape(const ap_spec_side *side, const int64_t *extent)
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
static inline ap_spec *rnd_spec(gen *g, int noperands, const uint8_t *kinds, uint32_t nkinds,
                                int64_t extent[AP_SPEC_LETTERS], uint8_t first_kind)
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

/* ---- one node under all assignments ---- */

typedef struct bench {
    gen *g;
    ap_node n;
    ap_rule rule;
    ap_tensor *operand, *reference;
    ap_type *plain; /* types of operands and results without sharding */
    uint32_t checked, completed;
} bench;

static inline ap_scalar rnd_scalar(gen *g, ap_dtype t, int64_t limit)
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

static inline ap_value bench_value(const bench *t, uint32_t i)
{
    const ap_node_info *node = ap_node_at(t->g->m, t->n);
    return i < node->nin ? node->in[i] : node->out[i - node->nin];
}

static inline void bench_init(bench *t, gen *g, ap_node n, int64_t index_limit)
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

static inline void set_type(bench *t, ap_value v, ap_sharding s)
{
    ap_ctx *ctx = t->g->ctx;
    ap_type_info type = ap_type_get(ctx, ap_value_type(t->g->m, v));
    ap_value_at(t->g->m, v)->type = ap_type_make(ctx, type.dtype, type.shape, s);
}

/* Shards of an operand. Partial sums are random addends that sum up to it. */
static inline void scatter(bench *t, ap_arena *a, const ap_mesh_info *mesh, uint32_t i, ap_sharding sharding,
                           ap_tensor **out)
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

static inline void check_read(bench *t, ap_arena *a, ap_mesh mesh, const ap_strategy *want)
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

static inline void report(bench *t, const char *what, uint32_t i)
{
    ap_text text;
    ap_text_init(&text, &t->g->ctx->arena);
    ap_module_print(t->g->m, &text);
    fail_msg("%s (result %u) of node %u, rule %s:\n%s", what, i, t->n, rule_text(t->g->ctx, &t->rule),
             ap_text_str(&text));
}

/* Each node of the body satisfies its own rule, the composite still its own, and its kinds are what they were. */
static inline void check_body(bench *t, ap_mesh mesh)
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

static inline void check_assignment(bench *t, ap_mesh mesh, const ap_assign *assign)
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

static inline void add_mesh(gen *g, int naxes, int32_t x, int32_t y)
{
    ap_mesh_info mesh = {.name = ap_name_format(g->ctx, "m%u", g->m->meshes.len), .naxes = (uint8_t)naxes};
    mesh.axis_name[0] = ap_name_make(g->ctx, "x"), mesh.axis_name[1] = ap_name_make(g->ctx, "y");
    mesh.axis_size[0] = x, mesh.axis_size[1] = y;
    ap_module_add_mesh(g->m, &mesh);
}

static inline uint32_t check_all(bench *t)
{
    ap_choice first[AP_MAX_CHOICES], second[AP_MAX_CHOICES];
    add_mesh(t->g, 1, 2, 1);
    add_mesh(t->g, 1, 4, 1);
    add_mesh(t->g, 2, 2, 2);
    for (ap_mesh mesh = 0; mesh < 3; mesh++) {
        const ap_mesh_info mi = t->g->m->meshes.at[mesh];
        ap_module_set_physical(t->g->m, &mi, t->g->seed >> 40 & 1, NULL, 0);
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

#endif
