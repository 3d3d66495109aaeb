/* Plans priced as Alpa prices them (passes/cost_alpa.c) against published numbers: the primitives, Tables 2 and 3 of
 * the paper (Zheng et al., OSDI 2022), and the closed forms of Alpa's own tests, as far as they are of forward graphs.
 *
 * Alpa's tests are of training steps. What a forward pass has of their sums is: the penalties of replicated parameters
 * (data parallel), half of the all-reduces of model parallel layers, one all-reduce of an embedding split by vocabulary
 * and two of a softmax over it, and two of four all-to-alls of a layer of experts. Forward passes alone would split
 * batches and nothing else, so the conditions under which training splits weights are set by a limit of memory, or by
 * pinning the weights. */
#include "tests/passes/plan_util.h"

#include "passes/reshard.h"

#include <math.h>

typedef struct machine {
    double alpha[2], beta[2];
    int n[2];
} machine;

/* ---- the formulas once more, in doubles ---- */

static double gather(const machine *k, int axis, double bytes)
{
    double n = k->n[axis];
    return k->alpha[axis] + k->beta[axis] * (n - 1) / n * bytes + 0.1;
}

static double reduce(const machine *k, int axis, double bytes)
{
    double n = k->n[axis];
    return k->alpha[axis] + k->beta[axis] * 2 * (n - 1) / n * bytes + 0.01;
}

static double scatter(const machine *k, int axis, double bytes)
{
    double n = k->n[axis];
    return k->alpha[axis] + k->beta[axis] * (n - 1) / n * bytes + 0.001;
}

static double exchange(const machine *k, int axis, double bytes)
{
    double n = k->n[axis];
    return k->alpha[axis] + k->beta[axis] * (n - 1) / (n * n) * bytes * (n / 2) + 0.001;
}

static void assert_units(int64_t ps, double units)
{
    if (fabs((double)ps * 1e-6 - units) > 1e-5)
        fail_msg("cost %.6f, expected %.6f", (double)ps * 1e-6, units);
}

/* At most the closed form, and below it by no more than the 1 % that Alpa's tests allow. */
static void assert_near(int64_t ps, double units)
{
    double cost = (double)ps * 1e-6;
    print_message("%.3f, closed form %.3f\n", cost, units);
    assert_true(cost <= units + 1e-5 && cost >= 0.99 * units);
}

/* ---- the machine ---- */

/* As a file, which is how users choose these costs. Axis 0 is over hosts, axis 1 inside. */
static void cluster_of(ap_ctx *ctx, const machine *k, ap_cluster *out)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t,
                 "name: units\ncost: alpa\ngroups:\n  - hosts: %d\n    devices_per_host: %d\n    device:\n"
                 "      peak: {f32: 1 TFLOP/s}\n      vector: 1 TFLOP/s\n      efficiency: 1\n      launch: 1 us\n"
                 "      memory: [{name: M, capacity: 1 TB, bandwidth: 1 TB/s}]\nlinks:\n"
                 "  hosts: {latency: %g us, bandwidth: %.0f B/s}\n  devices: {latency: %g us, bandwidth: %.0f B/s}\n",
                 k->n[0], k->n[1], k->alpha[0], 1e6 / k->beta[0], k->alpha[1], 1e6 / k->beta[1]);
    assert_ok(ctx, ap_cluster_from_text(ctx, "units.yaml", ap_text_str(&t), t.len, out));
    assert_int_equal(out->cost, AP_COST_ALPA);
}

static ap_mesh_info mesh_for(ap_ctx *ctx, const machine *k)
{
    return mesh_of(ctx, k->n[0] > 1 ? 2 : 1, (const int32_t[]){k->n[0] > 1 ? k->n[0] : k->n[1], k->n[1]});
}

static void primitives(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    const machine one = {{1, 1}, {1, 1}, {1, 4}};
    ap_cluster c;
    cluster_of(ctx, &one, &c);
    assert_int_equal(ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_GATHER, 4, 4096), 3073100000);
    assert_int_equal(ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_REDUCE, 4, 4096), 6145010000);
    assert_int_equal(ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_REDUCE_SCATTER, 4, 4096), 3073001000);
    assert_int_equal(ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_TO_ALL, 4, 4096), 1537001000);
    assert_int_equal(ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_REDUCE, 1, 4096), 0);
    ap_mesh_info mesh = mesh_for(ctx, &one);
    assert_int_equal(ap_cost_replicated(&c, &mesh), 3000000);
    int64_t huge = ap_cost_collective(&c, &c.inside, AP_COLLECTIVE_ALL_REDUCE, 64, INT64_MAX);
    assert_true(huge > 0 && huge < INT64_MAX / 2);
    ap_ctx_release(ctx);
}

/* ---- Table 2 ---- */

/* "S0R" of a matrix: what splits rows, then columns. */
static ap_sharding spec(ap_module *m, int ndims, const char *text)
{
    ap_sharding_info s = {.mesh = 0, .nfactors = (uint8_t)ndims};
    for (int d = 0; d < ndims; d++) {
        char kind = *text++;
        for (; kind == 'S' && (*text == '0' || *text == '1'); text++)
            s.axes[d] = ap_axes_append(s.axes[d], *text - '0');
    }
    assert_int_equal(*text, 0);
    return ap_sharding_intern(m->ctx, &s);
}

static void table_2_on(const machine *k)
{
    const double M = 64 * 32 * 4;
    const struct {
        const char *from, *to;
        double cost;
    } rows[] = {{"RR", "S0S1", 0},
                {"S0R", "RR", gather(k, 0, M)},
                {"S0S1", "S0R", gather(k, 1, M / k->n[0])},
                /* the paper says what a device holds, M / n0 and M / (n0 n1); the group holds n times that */
                {"S0R", "RS0", exchange(k, 0, M)},
                {"S0S1", "S01R", exchange(k, 1, M / k->n[0])}};
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = ap_module_create(ctx);
    ap_mesh_info mesh = mesh_for(ctx, k);
    ap_cluster c;
    cluster_of(ctx, k, &c);
    ap_module_add_mesh(m, &mesh);
    ap_resharder *r = ap_resharder_create(&ctx->arena, m, &c);
    ap_shape shape = ap_shape_of_dims(ctx, 2, (const int64_t[]){64, 32});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ap_reshard_path *p;
        assert_true(ap_reshard_find(r, AP_F32, shape, spec(m, 2, rows[i].from), spec(m, 2, rows[i].to), &p));
        if (k->beta[0] == k->beta[1])
            assert_units(p->cost, rows[i].cost);
        assert_true((double)p->cost * 1e-6 <= rows[i].cost + 1e-5);
    }
    ap_ctx_release(ctx);
}

static void table_2(void **unused)
{
    (void)unused;
    table_2_on(&(machine){{1, 1}, {1, 1}, {2, 2}});
    table_2_on(&(machine){{1, 1}, {1, 1}, {2, 4}});
    table_2_on(&(machine){{2, 1}, {1, 1}, {4, 2}});
    table_2_on(&(machine){{2, 3}, {0.1, 0.1}, {2, 2}});
    /* Where links differ a detour over the fast ones is cheaper than the table: S0R -> S0S1 -> RS1 -> RR. */
    table_2_on(&(machine){{1, 1}, {1, 0.1}, {2, 4}});
}

/* ---- Table 3 ---- */

static double least(double a, double b)
{
    return a < b ? a : b;
}

typedef struct product {
    const char *axis0, *axis1; /* letter of C[b,i,j] = sum_k A[b,i,k] B[b,k,j] */
    const char *c, *a, *b;
    double cost;
} product;

static int letter_of(const ap_rule *r, char name)
{
    switch (name) {
    case 'b':
        return r->operand[0][0];
    case 'i':
        return r->operand[0][1];
    case 'k':
        return r->operand[0][2];
    default:
        return r->operand[1][2];
    }
}

static void one_product(ap_ctx *ctx, const ap_cluster *c, const ap_mesh_info *mesh, const product *row)
{
    ap_module *m = module_of(ctx, "func @f(%a: f32[8,16,32], %b: f32[8,32,64]) -> f32[8,16,64] {\n"
                                  "  %c = contract %a, %b {bik,bkj->bij} : f32[8,16,64]\n  ret %c }\n");
    ap_node n = ap_block_at(m, m->funcs.at[0].body)->nodes.at[0];
    ap_rule rule;
    ap_assign assign;
    ap_strategy s;
    ap_module_add_mesh(m, mesh);
    ap_rule_get(m, n, &ctx->arena, &rule);
    for (int a = 0; a < AP_MAX_AXES; a++)
        assign.axis[a] = (ap_choice){AP_RULE_NONE, AP_RULE_NONE, 0};
    assign.axis[0].letter = (int8_t)letter_of(&rule, *row->axis0);
    assign.axis[1].letter = (int8_t)letter_of(&rule, *row->axis1);
    assert_true(ap_rule_apply(m, &rule, 0, &assign, &ctx->arena, &s));
    assert_int_equal(s.operand[0], spec(m, 3, row->a));
    assert_int_equal(s.operand[1], spec(m, 3, row->b));
    assert_int_equal(ap_cost_node(c, m, n, &s), 0);
    const ap_reshard_path *p;
    ap_resharder *r = ap_resharder_create(&ctx->arena, m, c);
    ap_shape shape = ap_type_get(ctx, ap_value_type(m, ap_node_at(m, n)->out[0])).shape;
    assert_true(ap_reshard_find(r, AP_F32, shape, s.result[0], spec(m, 3, row->c), &p));
    assert_units(p->cost, row->cost);
    assign.axis[1].letter = AP_RULE_NONE; /* half of the devices do the work of the other half: no choice */
    assert_true(ap_rule_apply(m, &rule, 0, &assign, &ctx->arena, &s));
    assert_true(ap_cost_node(c, m, n, &s) == INT64_MAX);
}

static void table_3(void **unused)
{
    (void)unused;
    const machine k = {{1, 1}, {1, 0.1}, {2, 4}};
    const double M = 8 * 16 * 64 * 4, half = M / 2;
    /* Over both axes Alpa adds two all-reduces; scattering over one of them before is a cheaper path. */
    double both =
        least(reduce(&k, 0, M) + reduce(&k, 1, M), least(scatter(&k, 0, M) + reduce(&k, 1, M / 2) + gather(&k, 0, M),
                                                         scatter(&k, 1, M) + reduce(&k, 0, M / 4) + gather(&k, 1, M)));
    const product rows[] = {{"i", "j", "RS0S1", "RS0R", "RRS1", 0},
                            {"i", "k", "RS0R", "RS0S1", "RS1R", reduce(&k, 1, half)},
                            {"j", "k", "RRS0", "RRS1", "RS1S0", reduce(&k, 1, half)},
                            {"b", "i", "S0S1R", "S0S1R", "S0RR", 0},
                            {"b", "k", "S0RR", "S0RS1", "S0S1R", reduce(&k, 1, half)},
                            {"i", "i", "RS01R", "RS01R", "RRR", 0},
                            {"k", "k", "RRR", "RRS01", "RS01R", both}};
    assert_true(both <= reduce(&k, 0, M) + reduce(&k, 1, M));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster c;
        cluster_of(ctx, &k, &c);
        ap_mesh_info mesh = mesh_for(ctx, &k);
        one_product(ctx, &c, &mesh, &rows[i]);
        ap_ctx_release(ctx);
    }
}

/* ---- closed forms ---- */

typedef struct graph {
    ap_text params, body;
} graph;

static void open_graph(ap_ctx *ctx, graph *g)
{
    ap_text_init(&g->params, &ctx->arena);
    ap_text_init(&g->body, &ctx->arena);
}

/* L layers x W + bias, relu between. */
static const char *mlp_text(ap_ctx *ctx, int L, int B, int H)
{
    graph g;
    open_graph(ctx, &g);
    for (int l = 0; l < L; l++) {
        bool last = l + 1 == L;
        ap_text_addf(&g.params, "param @w%d : f32[%d,%d]\nparam @b%d : f32[%d]\n", l, H, H, l, H);
        ap_text_addf(&g.body, "  %%m%d = contract %%x%d, @w%d {bk,kn->bn} : f32[%d,%d]\n", l, l, l, B, H);
        ap_text_addf(&g.body, "  %%%c%d = add %%m%d, @b%d : f32[%d,%d]\n", last ? 'y' : 'a', l, l, l, B, H);
        if (!last)
            ap_text_addf(&g.body, "  %%x%d = relu %%a%d : f32[%d,%d]\n", l + 1, l, B, H);
    }
    return ap_name_str(ctx, ap_name_format(ctx, "%sfunc @f(%%x0: f32[%d,%d]) -> f32[%d,%d] {\n%s  ret %%y%d }\n",
                                           ap_text_str(&g.params), B, H, B, H, ap_text_str(&g.body), L - 1));
}

static int64_t cost_of_plan(ap_ctx *ctx, const char *text, const machine *k, int64_t memory, uint32_t npins,
                            const ap_pin *pin)
{
    ap_module *m = module_of(ctx, text);
    ap_plan_options opt = {.mesh = mesh_for(ctx, k), .memory = memory, .npins = npins, .pin = pin, .pin_file = "pins"};
    ap_plan_result r, again;
    cluster_of(ctx, k, &opt.cluster);
    m->state = AP_STATE_NORMAL;
    assert_ok(ctx, ap_pass_plan(ctx, m, &opt, &r));
    assert_verifies(ctx, m);
    assert_ok(ctx, ap_plan_evaluate(ctx, m, &opt.cluster, &again));
    assert_true(r.bound_ps <= r.cost_ps && (double)(r.cost_ps - r.bound_ps) <= 1e-6 * (double)r.cost_ps);
    assert_int_equal(again.cost_ps, r.cost_ps);
    return r.cost_ps;
}

/* Every parameter replicated, the batch split: nothing but the penalties. */
static void mlp_data_parallel(void **unused)
{
    (void)unused;
    const machine k = {{1, 1}, {1, 1}, {1, 4}};
    ap_ctx *ctx = ap_ctx_create();
    assert_units(cost_of_plan(ctx, mlp_text(ctx, 6, 256, 32), &k, 0, 0, NULL), 3 * 12);
    ap_ctx_release(ctx);
}

/* Weights alternately by column and by row, an all-reduce after every second layer; biases behind it are whole. The
 * optimum is 0.004 % below: all by row, a reduce-scatter after each, and no bias is whole. */
static void mlp_model_parallel(void **unused)
{
    (void)unused;
    enum { L = 6, B = 32, H = 256 };
    const machine k = {{1, 1}, {1, 1}, {1, 4}};
    const ap_pin out[] = {{"y5", "[-,-]", NULL, 1}};
    ap_ctx *ctx = ap_ctx_create();
    int64_t memory = L * (4 * H * H / 4 + 4 * H) + 3 * 4 * B * H;
    int64_t cost = cost_of_plan(ctx, mlp_text(ctx, L, B, H), &k, memory, 1, out);
    assert_near(cost, L / 2 * reduce(&k, 1, 4 * B * H) + 3 * (L / 2));
    ap_ctx_release(ctx);
}

/* The batch over hosts, weights inside. */
static void mlp_two_dimensions(void **unused)
{
    (void)unused;
    enum { L = 6, B = 32, H = 256 };
    const machine k = {{1, 1}, {1, 0.1}, {2, 2}};
    const ap_pin pins[] = {{"w[024]", "[-,y]", NULL, 1}, {"w[135]", "[y,-]", NULL, 2}, {"y5", "[x,-]", NULL, 3}};
    ap_ctx *ctx = ap_ctx_create();
    int64_t cost = cost_of_plan(ctx, mlp_text(ctx, L, B, H), &k, 0, 3, pins);
    assert_near(cost, L / 2 * reduce(&k, 1, 4 * B * H / 2.0) + 3 * (L / 2));
    ap_ctx_release(ctx);
}

/* L layers of attention with h heads of d and a feed-forward part, without norms. */
static const char *bert_text(ap_ctx *ctx, int L, int B, int S, int h, int d)
{
    graph g;
    open_graph(ctx, &g);
    int H = h * d, F = 4 * H;
    for (int l = 0; l < L; l++) {
        for (int i = 0; i < 3; i++) {
            ap_text_addf(&g.params, "param @w%d%c : f32[%d,%d.%d]\n", l, "qkv"[i], H, h, d);
            ap_text_addf(&g.body, "  %%%c%d = contract %%x%d, @w%d%c {bsm,m(hd)->bs(hd)} : f32[%d,%d,%d.%d]\n",
                         "qkv"[i], l, l, l, "qkv"[i], B, S, h, d);
        }
        ap_text_addf(&g.params, "param @w%do : f32[%d.%d,%d]\nparam @w%d1 : f32[%d,%d]\nparam @w%d2 : f32[%d,%d]\n", l,
                     h, d, H, l, H, F, l, F, H);
        ap_text_addf(&g.body,
                     "  %%s%d = contract %%q%d, %%k%d {bs(hd),bt(hd)->bhst} : f32[%d,%d,%d,%d]\n"
                     "  %%e%d = exp %%s%d : f32[%d,%d,%d,%d]\n"
                     "  %%u%d = contract %%e%d, %%v%d {bhst,bt(hd)->bs(hd)} : f32[%d,%d,%d.%d]\n",
                     l, l, l, B, h, S, S, l, l, B, h, S, S, l, l, l, B, S, h, d);
        ap_text_addf(&g.body,
                     "  %%o%d = contract %%u%d, @w%do {bs(hd),(hd)m->bsm} : f32[%d,%d,%d]\n"
                     "  %%r%d = add %%x%d, %%o%d : f32[%d,%d,%d]\n",
                     l, l, l, B, S, H, l, l, l, B, S, H);
        ap_text_addf(&g.body,
                     "  %%f%d = contract %%r%d, @w%d1 {bsm,mf->bsf} : f32[%d,%d,%d]\n"
                     "  %%g%d = relu %%f%d : f32[%d,%d,%d]\n"
                     "  %%p%d = contract %%g%d, @w%d2 {bsf,fm->bsm} : f32[%d,%d,%d]\n"
                     "  %%x%d = add %%r%d, %%p%d : f32[%d,%d,%d]\n",
                     l, l, l, B, S, F, l, l, B, S, F, l, l, l, B, S, H, l + 1, l, l, B, S, H);
    }
    return ap_name_str(ctx, ap_name_format(ctx, "%sfunc @f(%%x0: f32[%d,%d,%d]) -> f32[%d,%d,%d] {\n%s  ret %%x%d }\n",
                                           ap_text_str(&g.params), B, S, H, B, S, H, ap_text_str(&g.body), L));
}

static void bert_data_parallel(void **unused)
{
    (void)unused;
    const machine k = {{1, 1}, {1, 1}, {1, 4}};
    ap_ctx *ctx = ap_ctx_create();
    assert_units(cost_of_plan(ctx, bert_text(ctx, 2, 64, 64, 8, 4), &k, 0, 0, NULL), 3 * 12);
    ap_ctx_release(ctx);
}

/* q, k, v and the first of the feed-forward by column, the others by row: two all-reduces a layer. With fewer tokens
 * than Alpa's test has: with 64 of them, as many as half of a matrix has rows, gathering the smallest weights is
 * cheaper. */
static void bert_model_parallel(void **unused)
{
    (void)unused;
    enum { L = 2, B = 2, S = 8, H = 128 };
    const machine k = {{1, 1}, {1, 1}, {1, 4}};
    const ap_pin out[] = {{"x2", "[-,-,-]", NULL, 1}};
    ap_ctx *ctx = ap_ctx_create();
    int64_t memory = L * 12 * 4 * H * H / 4 + 6 * 4 * B * S * H;
    int64_t cost = cost_of_plan(ctx, bert_text(ctx, L, B, S, 8, H / 8), &k, memory, 1, out);
    assert_near(cost, 2 * L * reduce(&k, 1, 4 * B * S * H));
    ap_ctx_release(ctx);
}

static void bert_two_dimensions(void **unused)
{
    (void)unused;
    enum { L = 2, B = 8, S = 8, H = 128 };
    const machine k = {{2, 2}, {1, 0.1}, {2, 2}};
    const ap_pin pins[] = {{"w?[qkv]", "[-,y.-]", NULL, 1},
                           {"w?o", "[y.-,-]", NULL, 2},
                           {"w?1", "[-,y]", NULL, 3},
                           {"w?2", "[y,-]", NULL, 4},
                           {"x2", "[x,-,-]", NULL, 5}};
    ap_ctx *ctx = ap_ctx_create();
    int64_t cost = cost_of_plan(ctx, bert_text(ctx, L, B, S, 8, H / 8), &k, 0, 5, pins);
    assert_units(cost, 2 * L * reduce(&k, 1, 4 * B * S * H / 2.0));
    ap_ctx_release(ctx);
}

/* One table for tokens and logits, split by vocabulary inside; the softmax needs its maximum and its sum. */
static void tied_embedding(void **unused)
{
    (void)unused;
    enum { V = 1024, H = 8, B = 8, S = 8 };
    const machine k = {{1, 1}, {1, 1}, {2, 2}};
    const ap_pin pins[] = {{"e", "[y,-]", NULL, 1}};
    const char *text = "param @e : f32[1024,8]\nfunc @f(%i: i32[8,8]) -> f32[8,8,1024] {\n"
                       "  %g = gather @e, %i {vh,bs->bsh} : f32[8,8,8]\n"
                       "  %l = contract %g, @e {bsh,vh->bsv} : f32[8,8,1024]\n"
                       "  %y = composite softmax(%l) : f32[8,8,1024] {\n"
                       "    %m = reduce max %l {bsv->bs1} : f32[8,8,1]\n"
                       "    %d = sub %l, %m : f32[8,8,1024]\n"
                       "    %x = exp %d : f32[8,8,1024]\n"
                       "    %z = reduce sum %x {bsv->bs1} : f32[8,8,1]\n"
                       "    %p = div %x, %z : f32[8,8,1024]\n"
                       "    yield %p }\n"
                       "  ret %y }\n";
    ap_ctx *ctx = ap_ctx_create();
    int64_t cost = cost_of_plan(ctx, text, &k, 0, 1, pins);
    assert_units(cost, reduce(&k, 1, 4 * B * S * H / 2.0) + 2 * reduce(&k, 1, 4 * B * S / 2.0));
    ap_ctx_release(ctx);
}

/* Tokens by group, experts by expert: there and back. 1024 tokens in groups of 32, two of 16 experts each. */
static void experts(void **unused)
{
    (void)unused;
    enum { B = 64, S = 16, H = 64 };
    const machine k = {{1, 1}, {1, 1}, {1, 4}};
    const ap_pin pins[] = {{"w?", "[x,-,-]", NULL, 1},
                           {"t", "[x,-,-]", NULL, 2},
                           {"[dc]", "[x,-,-,-]", NULL, 3},
                           {"y", "[x,-,-]", NULL, 4}};
    const char *text = "param @w1 : f32[16,64,512]\nparam @w2 : f32[16,512,64]\n"
                       "func @f(%t: f32[32,32,64], %d: f32[32,32,16,4], %c: f32[32,32,16,4]) -> f32[32,32,64] {\n"
                       "  %in = contract %d, %t {gsec,gsm->egcm} : f32[16,32,4,64]\n"
                       "  %h = contract %in, @w1 {egcm,emh->egch} : f32[16,32,4,512]\n"
                       "  %r = relu %h : f32[16,32,4,512]\n"
                       "  %out = contract %r, @w2 {egch,ehm->egcm} : f32[16,32,4,64]\n"
                       "  %y = contract %c, %out {gsec,egcm->gsm} : f32[32,32,64]\n  ret %y }\n";
    ap_ctx *ctx = ap_ctx_create();
    assert_units(cost_of_plan(ctx, text, &k, 0, 4, pins), 2 * exchange(&k, 1, 2.0 * 4 * B * S * H));
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primitives),
        cmocka_unit_test(table_2),
        cmocka_unit_test(table_3),
        cmocka_unit_test(mlp_data_parallel),
        cmocka_unit_test(mlp_model_parallel),
        cmocka_unit_test(mlp_two_dimensions),
        cmocka_unit_test(bert_data_parallel),
        cmocka_unit_test(bert_model_parallel),
        cmocka_unit_test(bert_two_dimensions),
        cmocka_unit_test(tied_embedding),
        cmocka_unit_test(experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
