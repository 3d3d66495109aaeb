/* Building pipelines: random modules, cuts, sub-meshes and microbatches give the numbers of one device, planned and
 * explicit; what is priced is what the types say; slots are in memory as often as their depths say; stages that are
 * alike are solved once and planned as if they were not. */
#include "tests/passes/random_module.h"

#include "ir/op.h"
#include "passes/batch.h"
#include "passes/pipe/build.h"
#include "passes/pipe/lower.h"
#include "passes/pipe/parts.h"

#include <stdlib.h>

static const char *pipeline_text(ap_ctx *ctx, const ap_pipeline *p)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_pipeline_print(p, &t);
    return ap_text_str(&t);
}

static void assert_pipeline(ap_ctx *ctx, ap_pipeline *p)
{
    ap_status s = ap_pipeline_verify(p);
    if (s != AP_OK)
        print_error("%s\n", pipeline_text(ctx, p));
    assert_ok(ctx, s);
    const char *text = pipeline_text(ctx, p);
    ap_pipeline *again;
    assert_ok(ctx, ap_pipeline_parse(ctx, "again", text, strlen(text), &again));
    assert_string_equal(pipeline_text(ctx, again), text);
}

static void assert_same_outputs(ap_ctx *ctx, ap_pipeline *p, const ap_tensor *in, const ap_tensor *expected)
{
    ap_tensor *out = AP_NEW_ARRAY(&ctx->arena, ap_tensor, p->outputs.len);
    ap_status s = ap_pipeline_eval(p, &ctx->arena, in, out);
    if (s != AP_OK)
        print_error("%s\n", pipeline_text(ctx, p));
    assert_ok(ctx, s);
    assert_same(p->outputs.len, expected, out, 1e-5);
}

/* Depths times shards, from the printed types alone. */
static void assert_slot_bytes(const ap_pipeline *p, const ap_pipe_result *r)
{
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_module *m = p->stages.at[s].m;
        const ap_func_info *f = &m->funcs.at[0];
        int64_t bytes = 0;
        bool *seen = AP_NEW_ARRAY(&p->ctx->arena, bool, f->nresults);
        for (uint32_t i = 0; i < p->links.len; i++) {
            const ap_wire *w = &p->links.at[i];
            ap_type type = 0;
            int32_t depth = 0;
            if (w->to == s) {
                type = ap_value_type(m, f->argument[w->argument]);
                depth = w->to_depth;
            } else if (w->from == s && !seen[w->result]) {
                type = f->result[w->result];
                depth = w->from_depth;
                seen[w->result] = true;
            } else {
                continue;
            }
            ap_type_info t = ap_type_get(m->ctx, type);
            bytes += depth * ap_align_bytes(ap_local_bytes(m, t.dtype, t.shape, t.sharding));
        }
        assert_int_equal(r->stage[s].plan.slot_bytes, bytes);
        assert_true(r->stage[s].plan.peak_bytes >= bytes + r->stage[s].plan.param_bytes);
    }
}

static void assert_prices(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, const ap_pipe_result *r)
{
    ap_pipe_result again;
    assert_ok(ctx, ap_pipe_evaluate(ctx, p, c, &again));
    assert_int_equal(again.total.cost_ps, r->total.cost_ps);
    assert_int_equal(again.total.peak_bytes, r->total.peak_bytes);
    int64_t sum = 0, slowest = 0;
    for (uint32_t s = 0; s < r->nstages; s++) {
        const ap_stage_result *x = &r->stage[s];
        int64_t c_in = x->arrival_ps, period = c->transfers_wait ? x->time_ps + c_in : x->time_ps;
        assert_int_equal(again.stage[s].plan.cost_ps, x->time_ps + c_in);
        sum += x->time_ps + c_in;
        if (!c->transfers_wait)
            period = ap_max_i64(period, ap_max_i64(c_in, x->sending_ps));
        slowest = ap_max_i64(slowest, period);
    }
    assert_int_equal(r->total.cost_ps, sum + (p->microbatches - 1) * slowest);
    assert_true(r->total.bound_ps <= r->total.cost_ps);
}

/* A sub-mesh of its own for every stage, unequal ones among them. */
static int32_t draw_meshes(ap_ctx *ctx, uint64_t *state, ap_pipe_stage *stage, uint32_t n)
{
    static const int32_t size[][2] = {{1, 0}, {2, 0}, {2, 0}, {4, 0}, {2, 2}, {3, 0}};
    int32_t first = 0;
    for (uint32_t s = 0; s < n; s++) {
        const int32_t *at = size[draw(state, sizeof size / sizeof *size)];
        stage[s].mesh = mesh_of(ctx, at[1] ? 2 : 1, at);
        stage[s].mesh.first_rank = first;
        first += ap_mesh_ranks(&stage[s].mesh);
    }
    return first;
}

static void draw_cuts(uint64_t *state, ap_pipe_stage *stage, uint32_t n, uint32_t nodes)
{
    for (uint32_t s = 0; s < n; s++) {
        stage[s].first = s ? stage[s - 1].last : 0;
        uint32_t left = nodes - stage[s].first, rest = n - s - 1;
        stage[s].last = rest ? stage[s].first + 1 + draw(state, left - rest) : nodes;
    }
}

static uint32_t count_nodes(const ap_module *m)
{
    return ap_block_at(m, m->funcs.at[0].body)->nodes.len - 1;
}

static void build_and_compare(ap_ctx *ctx, const char *text, uint64_t *state, uint32_t nstages, int32_t microbatches,
                              bool force, int *skipping)
{
    ap_module *m = module_of(ctx, text);
    ap_tensor *in = draw_inputs(ctx, m, state), *expected = outputs_of(ctx, m, in);
    ap_pipe_stage *stage = AP_NEW_ARRAY(&ctx->arena, ap_pipe_stage, nstages);
    ap_pipe_choice choice = {.nstages = nstages, .stage = stage, .microbatches = microbatches};
    int32_t ranks = draw_meshes(ctx, state, stage, nstages);
    draw_cuts(state, stage, nstages, count_nodes(m));
    ap_plan_options opt = {.split_force = force};
    ap_cluster_local(ranks, &opt.cluster);
    opt.cluster.transfers_wait = draw(state, 2);
    if (microbatches > 1) {
        int8_t *dim = AP_NEW_ARRAY(&ctx->arena, int8_t, m->funcs.at[0].narguments);
        assert_ok(ctx, ap_batch_arguments(ctx, m, dim, microbatches, &opt.batch));
    }
    const char *before = text_of(ctx, m);
    ap_pipeline *p = NULL;
    ap_pipe_result r;
    ap_status s = ap_pipe_build(ctx, m, &opt, &choice, &p, &r);
    if (s != AP_OK)
        print_error("%s\n", text);
    assert_ok(ctx, s);
    assert_string_equal(text_of(ctx, m), before);
    assert_int_equal(p->nranks, ranks);
    assert_pipeline(ctx, p);
    assert_same_outputs(ctx, p, in, expected);
    assert_slot_bytes(p, &r);
    assert_prices(ctx, p, &opt.cluster, &r);
    ap_pipeline *c = ap_pipeline_clone(p);
    assert_ok(ctx, ap_pipe_explicit(ctx, c, &opt.cluster));
    assert_pipeline(ctx, c);
    assert_same_outputs(ctx, c, in, expected);
    ap_program *program;
    assert_ok(ctx, ap_lower_program(ctx, c, &opt.cluster, "program", &program));
    ap_tensor *out = AP_NEW_ARRAY(&ctx->arena, ap_tensor, p->outputs.len);
    assert_ok(ctx, ap_program_verify(program));
    assert_ok(ctx, ap_program_eval(program, &ctx->arena, in, out));
    assert_same(p->outputs.len, expected, out, 1e-5);
    for (uint32_t s2 = 0; s2 < p->stages.len; s2++)
        assert_true(program->stages.at[s2]->arena_bytes + program->stages.at[s2]->param_bytes <=
                    r.stage[s2].plan.peak_bytes);
    for (uint32_t i = 0; i < p->links.len; i++)
        *skipping += p->links.at[i].to > p->links.at[i].from + 1;
}

static void random_pipelines(void **unused)
{
    (void)unused;
    uint64_t state = 21;
    int skipping = 0;
    for (int round = 0; round < 160; round++) {
        ap_ctx *ctx = ap_ctx_create();
        maker k = {.state = &state, .views = round % 2, .tied = round % 3 > 0};
        const char *text = make_module_with(ctx, &k, 5 + round % 9);
        build_and_compare(ctx, text, &state, 1 + (uint32_t)round % 4, 1, round % 5 == 0, &skipping);
        ap_ctx_release(ctx);
    }
    assert_true(skipping > 20);
}

/* With a batch that microbatches and ranks do not always divide; as many as there are rows among them. */
static void random_microbatches(void **unused)
{
    (void)unused;
    uint64_t state = 22;
    int skipping = 0;
    static const int rows[] = {8, 7, 12, 10, 16, 30} /* none leaves a microbatch empty */;
    for (int round = 0; round < 160; round++) {
        ap_ctx *ctx = ap_ctx_create();
        maker k = {.state = &state, .views = true, .tied = true, .batch = rows[round % 6]};
        const char *text = make_module_with(ctx, &k, 5 + round % 9);
        int32_t microbatches = 2 + (int32_t)draw(&state, 3);
        build_and_compare(ctx, text, &state, 1 + (uint32_t)round % 4, microbatches, round % 5 == 0, &skipping);
        ap_ctx_release(ctx);
    }
    assert_true(skipping > 20);
}

/* ---- alike ---- */

/* Blocks x + relu(x w1) w2, as many as asked for, behind an embedding of another shape. */
static const char *blocks(ap_ctx *ctx, int n)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "state normal\n");
    for (int i = 0; i < n; i++)
        ap_text_addf(&t, "param @a%d : f32[64,256] data(splat %d)\nparam @b%d : f32[256,64] data(splat 2)\n", i, i, i);
    ap_text_add(&t, "func @main(%h0: f32[32,64]) -> \"y\" f32[32,64] {\n");
    for (int i = 0; i < n; i++)
        ap_text_addf(&t,
                     "  %%k%d = constant [%d,1,2] : f32[3]  loc(\"c%d\")\n"
                     "  %%a%d = contract %%h%d, @a%d {mk,kn->mn} : f32[32,256]  loc(\"up%d\", \"MatMul\")\n"
                     "  %%r%d = relu %%a%d : f32[32,256]  loc(\"act%d\", \"Relu\")\n"
                     "  %%b%d = contract %%r%d, @b%d {mk,kn->mn} : f32[32,64]  loc(\"down%d\", \"MatMul\")\n"
                     "  %%h%d = add %%b%d, %%h%d : f32[32,64]  loc(\"add%d\", \"Add\")\n",
                     i, i, i, i, i, i, i, i, i, i, i, i, i, i, i + 1, i, i, i);
    ap_text_addf(&t, "  ret %%h%d }\n", n);
    return ap_text_str(&t);
}

static void build_blocks(ap_ctx *ctx, ap_module *m, const ap_plan_options *opt, int32_t microbatches, ap_pipeline **p,
                         ap_pipe_result *r)
{
    ap_pipe_stage stage[4];
    memset(stage, 0, sizeof stage);
    for (uint32_t s = 0; s < 4; s++) {
        stage[s].first = 5 * s;
        stage[s].last = 5 * s + 5;
        stage[s].mesh = mesh_of(ctx, 1, (const int32_t[]){2});
        stage[s].mesh.first_rank = 2 * (int32_t)s;
    }
    ap_pipe_choice choice = {.nstages = 4, .stage = stage, .microbatches = microbatches};
    assert_ok(ctx, ap_pipe_build(ctx, m, opt, &choice, p, r));
    assert_pipeline(ctx, *p);
}

/* Stages 2 and 3 get theirs from a stage that is like their own; a pin that changes nothing makes all be solved. */
static void equal_stages_are_solved_once(void **unused)
{
    (void)unused;
    for (int32_t microbatches = 1; microbatches <= 4; microbatches += 3) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = module_of(ctx, blocks(ctx, 4));
        ap_plan_options opt = {0};
        ap_cluster_local(8, &opt.cluster);
        const int8_t dim[] = {0};
        assert_ok(ctx, ap_batch_arguments(ctx, m, dim, microbatches, &opt.batch));
        ap_pipeline *p, *all;
        ap_pipe_result r, each;
        build_blocks(ctx, m, &opt, microbatches, &p, &r);
        assert_int_equal(r.solved, 3);
        const ap_module *first = p->stages.at[0].m;
        ap_type_info t = ap_type_get(ctx, ap_value_type(first, first->symbols.at[0].value));
        ap_text as;
        ap_text_init(&as, &ctx->arena);
        ap_sharding_print(first, t.shape, t.sharding, &as);
        const ap_pin real = {"a0", ap_text_str(&as), NULL, 1};
        opt.pin = &real;
        opt.npins = 1;
        opt.pin_file = "pins";
        build_blocks(ctx, m, &opt, microbatches, &all, &each);
        assert_int_equal(each.solved, 4);
        assert_string_equal(pipeline_text(ctx, p), pipeline_text(ctx, all));
        assert_int_equal(r.total.cost_ps, each.total.cost_ps);
        assert_non_null(strstr(pipeline_text(ctx, p), "loc(\"down3\", \"MatMul\")"));
        assert_non_null(strstr(pipeline_text(ctx, p), "func @stage3.fwd("));
        ap_ctx_release(ctx);
    }
}

/* ---- pins ---- */

/* A boundary that is pinned on both sides is kept so, and costs what it costs. */
static void boundaries_are_pinned(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, blocks(ctx, 2));
    ap_plan_options opt = {0};
    ap_cluster_local(4, &opt.cluster);
    for (int k = 0; k < 4; k++) {
        ap_pipe_pin made = {.slot = ap_name_make(ctx, "h1"), .result = true, .nfactors = 2};
        ap_pipe_pin read = {.slot = ap_name_make(ctx, "h1"), .nfactors = 2};
        made.axes[k & 1] = ap_axes_append(0, 0);
        read.axes[k >> 1] = ap_axes_append(0, 0);
        ap_pipe_stage stage[] = {{.first = 0, .last = 5, .npins = 1, .pin = &made},
                                 {.first = 5, .last = 10, .npins = 1, .pin = &read}};
        for (int s = 0; s < 2; s++) {
            stage[s].mesh = mesh_of(ctx, 1, (const int32_t[]){2});
            stage[s].mesh.first_rank = 2 * s;
        }
        ap_pipe_choice choice = {.nstages = 2, .stage = stage, .microbatches = 1};
        ap_pipeline *p;
        ap_pipe_result r;
        assert_ok(ctx, ap_pipe_build(ctx, m, &opt, &choice, &p, &r));
        const ap_module *a = p->stages.at[0].m, *b = p->stages.at[1].m;
        ap_type from = a->funcs.at[0].result[0], to = ap_value_type(b, b->funcs.at[0].argument[0]);
        assert_int_equal(ap_sharding_get(ctx, ap_type_get(ctx, from).sharding)->axes[k & 1], 1);
        assert_int_equal(ap_sharding_get(ctx, ap_type_get(ctx, to).sharding)->axes[k >> 1], 1);
        assert_int_equal(r.stage[1].arrival_ps, ap_part_transfer(&opt.cluster, a, from, b, to));
        assert_true(r.stage[1].arrival_ps > 0);
        assert_int_equal(r.stage[0].sending_ps, r.stage[1].arrival_ps);
    }
    ap_ctx_release(ctx);
}

/* The user's pins: all stages together must match each; messages name the stage. */
static void user_pins_and_messages(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, blocks(ctx, 4));
    ap_plan_options opt = {.pin_file = "pins", .npins = 2};
    ap_cluster_local(8, &opt.cluster);
    const ap_pin good[] = {{"a3", "[x,-]", NULL, 1}, {"h1", "[-,x]", NULL, 2}};
    const ap_pin bad[] = {{"a3", "[x,-]", NULL, 1}, {"nobody", "[-,x]", NULL, 2}};
    ap_pipeline *p;
    ap_pipe_result r;
    opt.pin = good;
    build_blocks(ctx, m, &opt, 1, &p, &r);
    assert_non_null(strstr(pipeline_text(ctx, p), "slot \"h1\" f32[32,64] @m[-,x]"));
    assert_non_null(strstr(pipeline_text(ctx, p), "(slot %h1: f32[32,64] @m[-,x])"));
    ap_pipe_stage stage[] = {{.first = 0, .last = 12}, {.first = 12, .last = 20}};
    for (int s = 0; s < 2; s++) {
        stage[s].mesh = mesh_of(ctx, 1, (const int32_t[]){2});
        stage[s].mesh.first_rank = 2 * s;
    }
    ap_pipe_choice choice = {.nstages = 2, .stage = stage, .microbatches = 1};
    opt.pin = bad;
    assert_int_equal(ap_pipe_build(ctx, m, &opt, &choice, &p, &r), AP_ERR_USAGE);
    assert_string_equal(ctx->diags.at[ctx->diags.len - 1].text, "pins:2: no value matches \"nobody\"");
    opt.npins = 0;
    opt.memory = 1000;
    assert_int_equal(ap_pipe_build(ctx, m, &opt, &choice, &p, &r), AP_ERR_NO_PLAN);
    assert_non_null(strstr(ctx->diags.at[ctx->diags.len - 1].text, "stage 0: no plan fits"));
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pipelines),
        cmocka_unit_test(random_microbatches),
        cmocka_unit_test(equal_stages_are_solved_once),
        cmocka_unit_test(boundaries_are_pinned),
        cmocka_unit_test(user_pins_and_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
