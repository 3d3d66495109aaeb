/* Planning: formulas by hand; the problem against an evaluator that knows nothing of it; the optimum against
 * brute force; the numbers before and after. */
#include "tests/passes/draw_choice.h"
#include "tests/passes/random_module.h"

#include "ir/op.h"
#include "passes/plan_problem.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- costs ---- */

static void collectives_by_hand(void **unused)
{
    (void)unused;
    const ap_level l = {.latency_ps = 1000, .bytes_per_second = 1000000000}; /* 1000 ps a byte */
    const ap_cluster time = {.name = "any"};
    /* 4 ranks, 4096 bytes: 3 rounds, 3072 bytes over each link */
    assert_int_equal(ap_cost_collective(&time, &l, AP_COLLECTIVE_ALL_GATHER, 4, 4096), 3 * 1000 + 3072 * 1000);
    assert_int_equal(ap_cost_collective(&time, &l, AP_COLLECTIVE_REDUCE_SCATTER, 4, 4096), 3 * 1000 + 3072 * 1000);
    assert_int_equal(ap_cost_collective(&time, &l, AP_COLLECTIVE_ALL_REDUCE, 4, 4096), 2 * (3 * 1000 + 3072 * 1000));
    assert_int_equal(ap_cost_collective(&time, &l, AP_COLLECTIVE_ALL_TO_ALL, 4, 4096), 3 * 1000 + 768 * 1000);
    assert_int_equal(ap_cost_collective(&time, &l, AP_COLLECTIVE_ALL_REDUCE, 1, 4096), 0);
    /* Neither overflows nor reaches the number that means "forbidden". */
    int64_t huge = ap_cost_collective(&time, &l, AP_COLLECTIVE_ALL_REDUCE, 64, INT64_MAX);
    assert_true(huge > 0 && huge < AP_FORBIDDEN / 2);
}

static int64_t cost_of(ap_module *m, const ap_cluster *c, uint32_t at)
{
    ap_node n = ap_block_at(m, m->funcs.at[0].body)->nodes.at[at];
    const ap_node_info *node = ap_node_at(m, n);
    ap_sharding operand[4], result[4];
    for (uint32_t i = 0; i < node->nin; i++)
        operand[i] = ap_type_get(m->ctx, ap_value_type(m, node->in[i])).sharding;
    for (uint32_t i = 0; i < node->nout; i++)
        result[i] = ap_type_get(m->ctx, ap_value_type(m, node->out[i])).sharding;
    return ap_cost_node(c, m, n, &(ap_strategy){operand, result});
}

static void nodes_by_hand(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, "mesh @m = [x=4] ranks 0..3\n"
                                  "func @f(%a: f32[64,32] @m[-,-], %w: f32[32,16] @m[-,x]) -> f32[64,16] @m[-,x] {\n"
                                  "  %c = contract %a, %w {mk,kn->mn} : f32[64,16] @m[-,x]\n"
                                  "  %r = relu %c : f32[64,16] @m[-,x]\n"
                                  "  %t = view %r {mn->nm} : f32[16,64] @m[x,-]\n"
                                  "  ret %r }\n");
    ap_cluster c = {
        .hosts = 1, .devices_per_host = 4, .contract_efficiency = 0.5, .vector_flops_per_second = 1000000000};
    c.flops_per_second[AP_F32] = 2000000000;   /* 1 ns a FLOP at half of it */
    c.memory_bytes_per_second = 1000000000000; /* 1 ps a byte */
    c.launch_ps = 7;
    /* 2*64*32*16/4 FLOPs against 4*(64*32 + 32*4 + 64*4) bytes */
    assert_int_equal(cost_of(m, &c, 0), 16384 * 1000 + 7);
    c.flops_per_second[AP_F32] = 2000000000000000; /* 1 fs a FLOP: 16384 FLOPs are 17 ps */
    assert_int_equal(cost_of(m, &c, 0), 9728 + 7);
    c.vector_flops_per_second = 1000000000000000;
    assert_int_equal(cost_of(m, &c, 1), 2 * 64 * 4 * 4 + 7);
    assert_int_equal(cost_of(m, &c, 2), 0);
    ap_ctx_release(ctx);
}

static void presets(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    assert_ok(ctx, ap_cluster_from_preset(ctx, "dgx-a100-80gb:2x4", &c));
    assert_int_equal(c.hosts, 2);
    assert_int_equal(c.devices_per_host, 4);
    const int32_t sizes[] = {2, 4};
    ap_mesh_info mesh = mesh_of(ctx, 2, sizes);
    ap_span span;
    ap_cluster_span(&c, &mesh, 0, &span);
    assert_int_equal(span.top, AP_LEVEL_BETWEEN);
    ap_cluster_span(&c, &mesh, 1, &span);
    assert_int_equal(span.top, AP_LEVEL_INSIDE);
    assert_ok(ctx, ap_cluster_from_preset(ctx, "local:1x3", &c));
    assert_int_equal(c.devices_per_host, 3);
    static const char *const bad[] = {"dgx", "dgx-a100-80gb:", "dgx-a100-80gb:1x9", "local:2", "local:1x", "local:1x2y",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(ap_cluster_from_preset(ctx, bad[i], &c), AP_ERR_USAGE);
    ap_ctx_release(ctx);
}

/* A machine on which every part of a cost matters at these sizes. */
static void tiny_cluster(int32_t devices, ap_cluster *out)
{
    ap_cluster_local(devices, out);
    out->launch_ps = 100;
    out->inside = (ap_level){.latency_ps = 3000, .bytes_per_second = 20000000000};
    out->memory_bytes = INT64_MAX;
}

typedef struct shape_of_mesh {
    int naxes;
    int32_t size[2];
} shape_of_mesh;
static const shape_of_mesh meshes[] = {{1, {2}}, {1, {4}}, {2, {2, 2}}};

static void build(ap_ctx *ctx, ap_module *m, const ap_plan_options *opt, ap_planning *p)
{
    assert_ok(ctx, ap_planning_build(ctx, &ctx->arena, m, ap_module_add_mesh(m, &opt->mesh), NULL, opt, p));
}

/* Any choice that the problem allows: what it says of cost and memory is what the written module has, which
 * verifies and gives the same numbers. Memory may be counted too high where docs/planning.md says so. */
static void check_choice(ap_ctx *ctx, const char *text, const ap_plan_options *opt, const uint32_t *choice, bool exact,
                         int64_t cost, int64_t peak, const ap_tensor *in, const ap_tensor *expected)
{
    ap_module *m = module_of(ctx, text);
    ap_planning p;
    build(ctx, m, opt, &p);
    assert_ok(ctx, ap_planning_apply(&p, choice));
    assert_verifies(ctx, m);
    ap_plan_result r;
    assert_ok(ctx, ap_plan_evaluate(ctx, m, &opt->cluster, &r));
    if (r.cost_ps != cost || r.peak_bytes > peak || (exact && r.peak_bytes != peak))
        fprintf(stderr, "%s\n%lld %lld, problem %lld %lld\n", text_of(ctx, m), (long long)r.cost_ps,
                (long long)r.peak_bytes, (long long)cost, (long long)peak);
    assert_int_equal(r.cost_ps, cost);
    assert_true(r.peak_bytes <= peak);
    if (exact)
        assert_int_equal(r.peak_bytes, peak);
    assert_same(m->funcs.at[0].nresults, expected, outputs_of(ctx, m, in), 1e-6);
    assert_ok(ctx, ap_explicit_run(ctx, m, &opt->cluster));
    assert_verifies(ctx, m);
    assert_same(m->funcs.at[0].nresults, expected, outputs_of(ctx, m, in), 1e-6);
}

/* Now and then a value is pinned, which may make its producer's result a slice of what it makes. */
static void pin_something(ap_ctx *ctx, const char *text, ap_plan_options *opt, uint64_t *state)
{
    static const char *const shardings[] = {"[x,-]", "[-,x]", "[-,-]"};
    ap_pin *pin = AP_NEW(&ctx->arena, ap_pin);
    *pin = (ap_pin){.pattern = ap_name_str(ctx, ap_name_format(ctx, "v%u", draw(state, 8))), .line = 1};
    pin->sharding = shardings[draw(state, 3)];
    opt->pin_file = "pins";
    opt->pin = pin;
    opt->npins = 1;
    ap_planning p;
    ap_module *m = module_of(ctx, text);
    if (ap_planning_build(ctx, &ctx->arena, m, ap_module_add_mesh(m, &opt->mesh), NULL, opt, &p) != AP_OK)
        opt->npins = 0;
}

static void problem_tells_the_truth(void **unused)
{
    (void)unused;
    uint64_t state = 11;
    int checked = 0, with_view = 0, pinned = 0;
    for (int round = 0; round < 150; round++) {
        ap_ctx *ctx = ap_ctx_create();
        bool has_view;
        const char *text = make_module(ctx, &state, 3 + round % 5, round % 2, &has_view);
        const shape_of_mesh *s = &meshes[round % 3];
        ap_plan_options opt = {.mesh = mesh_of(ctx, s->naxes, s->size)};
        tiny_cluster(ap_mesh_size(&opt.mesh), &opt.cluster);
        ap_module *plain = module_of(ctx, text);
        assert_verifies(ctx, plain);
        ap_tensor *in = draw_inputs(ctx, plain, &state), *expected = outputs_of(ctx, plain, in);
        if (round / 3 % 3 == 0)
            pin_something(ctx, text, &opt, &state);
        pinned += (int)opt.npins;
        ap_planning p;
        build(ctx, module_of(ctx, text), &opt, &p);
        uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
        for (int i = 0; i < 8; i++) {
            int64_t cost, peak;
            if (!draw_choice(&p.problem, &state, choice, &cost, &peak))
                continue;
            check_choice(ctx, text, &opt, choice, !has_view && !opt.npins, cost, peak, in, expected);
            checked++;
            with_view += has_view;
        }
        ap_ctx_release(ctx);
    }
    assert_true(checked > 500 && with_view > 120 && pinned > 20);
}

/* A view that is pinned to a part of what its operand is kept as lies in the operand's buffer. */
static void pinned_view_holds_its_operand(void **unused)
{
    (void)unused;
    const char *text = "state normal\nfunc @f(%a: f32[8,8]) -> f32[8,8] {\n"
                       "  %p = relu %a : f32[8,8]\n  %t = view %p {mn->nm} : f32[8,8]\n  %u = relu %a : f32[8,8]\n"
                       "  %w = relu %u : f32[8,8]\n  %z = add %w, %t : f32[8,8]\n  ret %z }\n";
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = {.mesh = mesh_of(ctx, 1, (const int32_t[]){2}), .pin_file = "pins", .npins = 2};
    const ap_pin pins[] = {{"p", "[-,-]", NULL, 1}, {"t", "[x,-]", NULL, 2}};
    opt.pin = pins;
    tiny_cluster(2, &opt.cluster);
    ap_module *plain = module_of(ctx, text);
    uint64_t state = 1;
    ap_tensor *in = draw_inputs(ctx, plain, &state), *expected = outputs_of(ctx, plain, in);
    ap_planning p;
    build(ctx, module_of(ctx, text), &opt, &p);
    uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
    int checked = 0;
    for (int i = 0; i < 50; i++) {
        int64_t cost, peak;
        if (!draw_choice(&p.problem, &state, choice, &cost, &peak))
            continue;
        check_choice(ctx, text, &opt, choice, false, cost, peak, in, expected);
        checked++;
    }
    assert_true(checked > 20);
    ap_ctx_release(ctx);
}

/* Composites that are cut where their strategy asks for it: softmax, a norm with its statistics, attention. */
static const char *const cut[] = {
    "state normal\nfunc @f(%x: f32[4,8]) -> f32[4,8] {\n"
    "  %p = composite softmax(%x) : f32[4,8] {\n    %m = reduce max %x {ab->a1} : f32[4,1]\n"
    "    %d = sub %x, %m : f32[4,8]\n    %e = exp %d : f32[4,8]\n    %z = reduce sum %e {ab->a1} : f32[4,1]\n"
    "    %q = div %e, %z : f32[4,8]\n    yield %q }\n  %r = relu %p : f32[4,8]\n  ret %r }\n",
    "state normal\nparam @g : f32[8] data(splat 0.5)\nfunc @f(%x: f32[4,8]) -> f32[4,8], f32[4,1] {\n"
    "  %n, %i = composite norm(%x, @g) : f32[4,8], f32[4,1] {\n    %k = constant splat 0.125 : f32[]\n"
    "    %h = constant splat 1 : f32[]\n    %s = reduce sum %x {ab->a1} : f32[4,1]\n"
    "    %m = mul %s, %k : f32[4,1]\n    %d = sub %x, %m : f32[4,8]\n    %q = mul %d, %d : f32[4,8]\n"
    "    %v = reduce sum %q {ab->a1} : f32[4,1]\n    %w = mul %v, %k : f32[4,1]\n    %t = add %w, %h : f32[4,1]\n"
    "    %u = rsqrt %t : f32[4,1]\n    %o = mul %d, %u : f32[4,8]\n    %y = mul %o, @g : f32[4,8]\n"
    "    yield %y, %u }\n  ret %n, %i }\n",
    "state normal\nfunc @f(%q: f32[4,4.4], %k: f32[8,4.4], %v: f32[8,4.4]) -> f32[4,4.4] {\n"
    "  %a = composite attention(%q, %k, %v) : f32[4,4.4] {\n"
    "    %s = contract %q, %k {s(hd),t(hd)->hst} : f32[4,4,8]\n    %m = reduce max %s {hst->hs1} : f32[4,4,1]\n"
    "    %d = sub %s, %m : f32[4,4,8]\n    %e = exp %d : f32[4,4,8]\n    %z = reduce sum %e {hst->hs1} : f32[4,4,1]\n"
    "    %p = div %e, %z : f32[4,4,8]\n    %u = contract %p, %v {hst,t(hd)->s(hd)} : f32[4,4.4]\n"
    "    yield %u }\n  %r = neg %a : f32[4,4.4]\n  ret %r }\n",
};

static uint32_t count_reshards(const ap_module *m, ap_block block, bool inside)
{
    const ap_block_info *b = ap_block_at(m, block);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(m, b->nodes.at[i]);
        n += inside && ap_op_get(node->op)->planned;
        n += node->body != AP_NONE ? count_reshards(m, node->body, true) : 0;
    }
    return n;
}

static void cut_composites_tell_the_truth(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    int checked = 0, completed = 0;
    for (size_t i = 0; i < sizeof cut / sizeof cut[0] * 3; i++) {
        ap_ctx *ctx = ap_ctx_create();
        const char *text = cut[i / 3];
        const shape_of_mesh *s = &meshes[i % 3];
        ap_plan_options opt = {.mesh = mesh_of(ctx, s->naxes, s->size)};
        tiny_cluster(ap_mesh_size(&opt.mesh), &opt.cluster);
        ap_module *plain = module_of(ctx, text);
        ap_tensor *in = draw_inputs(ctx, plain, &state), *expected = outputs_of(ctx, plain, in);
        ap_planning p;
        build(ctx, module_of(ctx, text), &opt, &p);
        uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
        for (int k = 0; k < 60; k++) {
            int64_t cost, peak;
            if (!draw_choice(&p.problem, &state, choice, &cost, &peak))
                continue;
            check_choice(ctx, text, &opt, choice, true, cost, peak, in, expected);
            ap_module *m = module_of(ctx, text);
            build(ctx, m, &opt, &p);
            assert_ok(ctx, ap_planning_apply(&p, choice));
            completed += (int)count_reshards(m, m->funcs.at[0].body, false);
            checked++;
        }
        ap_ctx_release(ctx);
    }
    assert_true(checked > 300);
    assert_true(completed > 150);
}

/* What a cut costs and holds, by hand: 4 rows of 8 split by 2. */
static void cut_by_hand(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, "mesh @m = [x=2] ranks 0..1\n"
                                  "func @softmax(%x: f32[4,8] @m[-,x]) -> f32[4,8] @m[-,x] {\n"
                                  "  %p = composite softmax(%x) : f32[4,8] @m[-,x] {\n"
                                  "    %m = reduce max %x {ab->a1} : f32[4,1] @m[-,-] max(x)\n"
                                  "    %mc = reshard %m : f32[4,1] @m[-,-]\n    %d = sub %x, %mc : f32[4,8] @m[-,x]\n"
                                  "    %e = exp %d : f32[4,8] @m[-,x]\n"
                                  "    %z = reduce sum %e {ab->a1} : f32[4,1] @m[-,-] sum(x)\n"
                                  "    %zc = reshard %z : f32[4,1] @m[-,-]\n    %q = div %e, %zc : f32[4,8] @m[-,x]\n"
                                  "    yield %q }\n"
                                  "  ret %p }\n");
    ap_cluster c;
    ap_plan_result r;
    tiny_cluster(2, &c);
    assert_verifies(ctx, m);
    assert_ok(ctx, ap_plan_evaluate(ctx, m, &c, &r));
    ap_node n = ap_block_at(m, m->funcs.at[0].body)->nodes.at[0];
    ap_sharding s = ap_type_get(ctx, ap_value_type(m, ap_node_at(m, n)->out[0])).sharding;
    /* two launches more than one kernel, two exchanges of 4 numbers; held: four buffers of row statistics, the
     * exponentials, the result */
    assert_int_equal(r.compute_ps, ap_cost_node(&c, m, n, &(ap_strategy){&s, &s}) + 2 * c.launch_ps);
    assert_int_equal(r.communication_ps, 2 * ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_REDUCE, 2, 16));
    assert_int_equal(r.peak_bytes, 4 * 64 + 64 + 64);
    ap_ctx_release(ctx);
}

static double combinations(const ap_problem *p)
{
    double n = 1;
    for (uint32_t v = 0; v < p->nnodes; v++)
        n *= p->nstrategies[v];
    return n;
}

/* Same plan under a limit: the solver against all combinations. */
static void check_optimum(ap_ctx *ctx, const char *text, const ap_plan_options *opt, int64_t *out_peak)
{
    ap_planning p;
    build(ctx, module_of(ctx, text), opt, &p);
    uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
    int64_t best;
    bool feasible = ap_problem_brute_force(&ctx->arena, &p.problem, choice, &best);
    ap_plan_result r;
    ap_module *m = module_of(ctx, text);
    ap_status status = ap_pass_plan(ctx, m, opt, &r);
    assert_int_equal(status, feasible ? AP_OK : AP_ERR_NO_PLAN);
    if (!feasible)
        return;
    assert_int_equal(r.cost_ps, best);
    assert_int_equal(r.bound_ps, best);
    assert_true(opt->memory == 0 || r.peak_bytes <= opt->memory);
    assert_verifies(ctx, m);
    *out_peak = r.peak_bytes;
}

static void optimum_is_brute_force(void **unused)
{
    (void)unused;
    uint64_t state = 5;
    int checked = 0;
    for (int round = 0; round < 120 && checked < 40; round++) {
        ap_ctx *ctx = ap_ctx_create();
        bool has_view;
        const char *text = make_module(ctx, &state, 2 + round % 3, round % 2, &has_view);
        const shape_of_mesh *s = &meshes[round % 2];
        ap_plan_options opt = {.mesh = mesh_of(ctx, s->naxes, s->size)};
        tiny_cluster(ap_mesh_size(&opt.mesh), &opt.cluster);
        opt.split_force = round % 5 == 4;
        ap_planning p;
        build(ctx, module_of(ctx, text), &opt, &p);
        if (combinations(&p.problem) < 300000) {
            int64_t peak = 0;
            check_optimum(ctx, text, &opt, &peak);
            for (int tighter = 1; tighter <= 3; tighter++) {
                opt.memory = peak - peak * tighter / 5;
                int64_t unused_peak;
                check_optimum(ctx, text, &opt, &unused_peak);
            }
            checked++;
        }
        ap_ctx_release(ctx);
    }
    assert_true(checked >= 20);
}

/* Without the variables that others decide, the optimum is the same, and its solution is one of the whole problem. */
static void reduced_optimum_is_that_of_the_whole(void **unused)
{
    (void)unused;
    uint64_t state = 23;
    uint32_t whole = 0, left = 0;
    for (int round = 0; round < 60; round++) {
        ap_ctx *ctx = ap_ctx_create();
        bool has_view;
        const char *text = make_module(ctx, &state, 4 + round % 8, round % 2, &has_view);
        static const int32_t twos[] = {2, 2, 2};
        ap_plan_options opt = {.mesh = mesh_of(ctx, 1 + round % 3, twos)};
        tiny_cluster(ap_mesh_size(&opt.mesh), &opt.cluster);
        opt.split_force = round % 4 == 3;
        if (round % 5 == 0)
            pin_something(ctx, text, &opt, &state);
        ap_planning p;
        ap_plan_reduced r;
        ap_solution a, b;
        ap_solve_options options;
        ap_solve_defaults(&options);
        build(ctx, module_of(ctx, text), &opt, &p);
        assert_true(ap_planning_reduce(&p, &r));
        assert_ok(ctx, ap_solve(ctx, &ctx->arena, &p.problem, &options, &a));
        assert_ok(ctx, ap_solve(ctx, &ctx->arena, &r.problem, &options, &b));
        assert_int_equal(a.result, AP_SOLVED);
        assert_int_equal(b.result, AP_SOLVED);
        assert_int_equal(a.cost, a.bound);
        assert_int_equal(b.cost, a.cost);
        uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
        int64_t cost, peak;
        ap_planning_expand(&p, &r, b.choice, choice);
        assert_true(ap_problem_evaluate(&p.problem, choice, &cost, &peak));
        assert_int_equal(cost, b.cost);
        whole += p.problem.nnodes;
        left += r.problem.nnodes;
        p.problem.limit = 1; /* now it may bind */
        assert_false(ap_planning_reduce(&p, &r));
        ap_ctx_release(ctx);
    }
    assert_true(left < whole * 3 / 4);
}

/* Long rows, few of them: the planner splits a softmax inside when that is cheaper than to gather the row, and when it
 * is told to split and has nothing else to split. */
static void cut_where_it_pays(void **unused)
{
    (void)unused;
    static const char *const norm[] = {"    %d = sub %x, %m : f32[", "    %e = exp %d : f32["};
    for (int i = 0; i < 4; i++) {
        ap_ctx *ctx = ap_ctx_create();
        int rows = i == 3 ? 1 : i % 2 ? 3 : 2, columns = i < 2 ? 16384 : 4;
        const char *letters = rows == 1 ? "{1b->11}" : "{ab->a1}";
        ap_text t;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "state normal\nfunc @f(%%x: f32[%d,%d]) -> f32[%d,%d] {\n", rows, columns, rows, columns);
        ap_text_addf(&t, "  %%p = composite softmax(%%x) : f32[%d,%d] {\n", rows, columns);
        ap_text_addf(&t, "    %%m = reduce max %%x %s : f32[%d,1]\n", letters, rows);
        ap_text_addf(&t, "%s%d,%d]\n%s%d,%d]\n", norm[0], rows, columns, norm[1], rows, columns);
        ap_text_addf(&t, "    %%z = reduce sum %%e %s : f32[%d,1]\n", letters, rows);
        ap_text_addf(&t, "    %%q = div %%e, %%z : f32[%d,%d]\n    yield %%q }\n  ret %%p }\n", rows, columns);
        ap_plan_options opt = {.mesh = mesh_of(ctx, 1, (const int32_t[]){2}), .pin_file = "pins"};
        const ap_pin pins[] = {{"x", "[-,x]", NULL, 1}, {"p", "[-,x]", NULL, 2}};
        tiny_cluster(2, &opt.cluster);
        opt.pin = pins;
        opt.npins = 2;
        opt.split_force = i == 3;
        ap_module *m = module_of(ctx, ap_text_str(&t));
        ap_plan_result r;
        assert_ok(ctx, ap_pass_plan(ctx, m, &opt, &r));
        assert_verifies(ctx, m);
        /* short rows are cheaper whole, unless forced */
        assert_int_equal(count_reshards(m, m->funcs.at[0].body, false), i == 2 ? 0 : 2);
        ap_ctx_release(ctx);
    }
}

/* ---- pins, force, refusal ---- */

static const char *const mlp = "state normal\n"
                               "param @w1 : f32[8,16] data(splat 0.5)\n"
                               "param @w2 : f32[16,8] data(splat 0.25)\n"
                               "func @main(%x: f32[4,8]) -> \"y\" f32[4,8] {\n"
                               "  %h = contract %x, @w1 {bk,kn->bn} : f32[4,16] loc(\"fc1\", \"MatMul\")\n"
                               "  %r = relu %h : f32[4,16] loc(\"act\", \"Relu\")\n"
                               "  %o = contract %r, @w2 {bk,kn->bn} : f32[4,8] loc(\"fc2\", \"MatMul\")\n"
                               "  ret %o }\n";

static ap_plan_options options_of(ap_ctx *ctx, int32_t devices)
{
    ap_plan_options opt = {.mesh = mesh_of(ctx, 1, &devices), .pin_file = "pins"};
    tiny_cluster(devices, &opt.cluster);
    return opt;
}

static ap_status plan_text(ap_ctx *ctx, const char *text, const ap_plan_options *opt, ap_module **m, ap_plan_result *r)
{
    *m = module_of(ctx, text);
    return ap_pass_plan(ctx, *m, opt, r);
}

static const char *last_diag(ap_ctx *ctx)
{
    assert_true(ctx->diags.len > 0);
    return ap_diag_str(ctx, &ctx->diags.at[ctx->diags.len - 1]);
}

static void pins_hold(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = options_of(ctx, 2);
    const ap_pin pins[] = {
        {"w1", "[-,x]", NULL, 1}, {"w2", "@m[x,-]", NULL, 2}, {"fc2", "[x,-]", NULL, 3}, {"x", NULL, "x", 4}};
    opt.pin = pins;
    opt.npins = 4;
    ap_module *m;
    ap_plan_result r;
    assert_ok(ctx, plan_text(ctx, mlp, &opt, &m, &r));
    assert_verifies(ctx, m);
    const char *text = text_of(ctx, m);
    assert_non_null(strstr(text, "@w1 : f32[8,16] @m[-,x]"));
    assert_non_null(strstr(text, "@w2 : f32[16,8] @m[x,-]"));
    assert_non_null(strstr(text, "func @stage0.fwd(%x: f32[4,8] @m[-,-]) -> \"y\" f32[4,8] @m[x,-]"));
    ap_plan_result loose;
    opt.npins = 0;
    assert_ok(ctx, plan_text(ctx, mlp, &opt, &m, &loose));
    assert_true(loose.cost_ps <= r.cost_ps);
    ap_ctx_release(ctx);
}

static void bad_pins_are_told(void **unused)
{
    (void)unused;
    static const struct {
        ap_pin pin;
        const char *message;
    } cases[] = {
        {{"nosuch*", "[-,x]", NULL, 3}, "pins:3: no value matches \"nosuch*\""},
        {{"x", "[-,-,x]", NULL, 4}, "pins:4: "},
        {{"x", "[-,y]", NULL, 5}, "pins:5: "},
        {{"x", NULL, "dp", 6}, "pins:6: the mesh has no axis \"dp\""},
        {{"x", "[x*y,-]", NULL, 7}, "pins:7: \"[x*y,-]\" splits a factor of 4 of \"x\" into unequal parts"},
        {{"act", "[-,-] sum(x)", NULL, 8}, "pins:8: "},
        {{"fc2", "[-,-] sum(x)", NULL, 9}, "pins:9: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_plan_options opt = options_of(ctx, 8);
        const int32_t size[] = {2, 4};
        if (cases[i].pin.line == 7)
            opt.mesh = mesh_of(ctx, 2, size);
        opt.pin = &cases[i].pin;
        opt.npins = 1;
        ap_module *m;
        ap_plan_result r;
        assert_int_equal(plan_text(ctx, mlp, &opt, &m, &r), AP_ERR_USAGE);
        if (!strstr(last_diag(ctx), cases[i].message))
            print_error("%s\n", last_diag(ctx));
        assert_non_null(strstr(last_diag(ctx), cases[i].message));
        ap_ctx_release(ctx);
    }
}

static ap_status read_pins(ap_ctx *ctx, const char *content, ap_pins *pins)
{
    char path[] = "/tmp/ap_pins_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
    ap_status status = ap_pins_read(ctx, path, pins);
    unlink(path);
    return status;
}

static void pin_files(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_pins pins;
    static const char good[] =
        "# all\n\nvalue fc* @m[dp,-] sum(tp) \r\n  value\th  forbid dp\nnode b.* stage=12 # more\n"
        "value z [-]";
    assert_ok(ctx, read_pins(ctx, good, &pins));
    const ap_pin *pin = pins.pin;
    assert_int_equal(pins.n, 3);
    assert_int_equal(pins.nnodes, 1);
    assert_int_equal(pins.node[0].stage, 12);
    assert_string_equal(pins.node[0].pattern, "b.*");
    assert_string_equal(pin[0].pattern, "fc*");
    assert_string_equal(pin[0].sharding, "@m[dp,-] sum(tp)");
    assert_int_equal(pin[0].line, 3);
    assert_null(pin[1].sharding);
    assert_string_equal(pin[1].forbid, "dp");
    assert_string_equal(pin[2].sharding, "[-]");
    static const char *const bad[] = {"value",
                                      "value a",
                                      "value a forbid",
                                      "value a forbid b c",
                                      "node",
                                      "node a",
                                      "node a stage=",
                                      "node a stage=-1",
                                      "node a stage=1x",
                                      "node a stage=1 2",
                                      "node a 1",
                                      "node a stage=99999",
                                      "x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(read_pins(ctx, bad[i], &pins), AP_ERR_USAGE);
    assert_int_equal(ap_pins_read(ctx, "/nonexistent/pins", &pins), AP_ERR_ENV);
    ap_ctx_release(ctx);
}

static void force_splits_all(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = options_of(ctx, 2);
    opt.cluster.inside.latency_ps = 1000000000; /* so dear that nobody would by himself */
    const ap_pin pins[] = {{"x", NULL, "x", 1}, {"fc2", NULL, "x", 1}};
    opt.pin = pins;
    opt.npins = 2;
    ap_module *m;
    ap_plan_result r;
    assert_ok(ctx, plan_text(ctx, mlp, &opt, &m, &r));
    opt.split_force = true;
    ap_plan_result forced;
    assert_ok(ctx, plan_text(ctx, mlp, &opt, &m, &forced));
    assert_true(r.sharded_flops_fraction == 0.0);
    assert_true(forced.sharded_flops_fraction == 1.0);
    assert_true(forced.cost_ps > r.cost_ps);
    ap_ctx_release(ctx);
}

static void one_device(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = options_of(ctx, 1);
    ap_module *m;
    ap_plan_result r;
    assert_ok(ctx, plan_text(ctx, mlp, &opt, &m, &r));
    assert_verifies(ctx, m);
    assert_int_equal(r.communication_ps, 0);
    assert_int_equal(r.param_bytes, 2 * 8 * 16 * 4);
    assert_null(strstr(text_of(ctx, m), "reshard"));
    /* weights, h and r (4*16*4 each) while relu runs */
    assert_int_equal(r.peak_bytes, 1024 + 2 * 256);
    ap_ctx_release(ctx);
}

static void no_plan_says_why(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = options_of(ctx, 2);
    opt.memory = 400;
    ap_module *m;
    ap_plan_result r;
    assert_int_equal(plan_text(ctx, mlp, &opt, &m, &r), AP_ERR_NO_PLAN);
    static const char *const parts[] = {"proven", "400 bytes", "at least", "w1 256", "w2 256", "--memory"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(last_diag(ctx), parts[i]))
            print_error("%s\n", last_diag(ctx));
        assert_non_null(strstr(last_diag(ctx), parts[i]));
    }
    ap_ctx_release(ctx);
}

static void same_bytes_twice(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    for (int round = 0; round < 10; round++) {
        const char *text[2];
        ap_ctx *ctx[2];
        uint64_t start = state;
        for (int i = 0; i < 2; i++) {
            state = start;
            ctx[i] = ap_ctx_create();
            bool has_view;
            const char *source = make_module(ctx[i], &state, 6, true, &has_view);
            const int32_t devices = 4;
            ap_plan_options opt = options_of(ctx[i], devices);
            ap_module *m;
            ap_plan_result r;
            if (i == 1) /* another history of interned types must not show */
                ap_shape_of_dims(ctx[i], 1, (const int64_t[]){77});
            assert_ok(ctx[i], plan_text(ctx[i], source, &opt, &m, &r));
            text[i] = text_of(ctx[i], m);
        }
        assert_string_equal(text[0], text[1]);
        for (int i = 0; i < 2; i++)
            ap_ctx_release(ctx[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_by_hand),
        cmocka_unit_test(nodes_by_hand),
        cmocka_unit_test(presets),
        cmocka_unit_test(problem_tells_the_truth),
        cmocka_unit_test(pinned_view_holds_its_operand),
        cmocka_unit_test(pins_hold),
        cmocka_unit_test(bad_pins_are_told),
        cmocka_unit_test(pin_files),
        cmocka_unit_test(force_splits_all),
        cmocka_unit_test(one_device),
        cmocka_unit_test(no_plan_says_why),
        cmocka_unit_test(same_bytes_twice),
        cmocka_unit_test(cut_composites_tell_the_truth),
        cmocka_unit_test(cut_by_hand),
        cmocka_unit_test(optimum_is_brute_force),
        cmocka_unit_test(reduced_optimum_is_that_of_the_whole),
        cmocka_unit_test(cut_where_it_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
