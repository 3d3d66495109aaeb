/* The search for a pipeline against all choices on a tiny model; the same answer on any number of threads; tensor
 * parallelism stays inside a host; latency against throughput; what is asked for is kept. */
#include "passes/batch.h"
#include "passes/pipe/layers.h"
#include "passes/pipe/search.h"
#include "passes/pipe/sim_model.h"

#include "tests/passes/plan_util.h"

/* Residual blocks: column, then row, an all-reduce a block where weights are split. */
static ap_module *blocks_of(ap_ctx *ctx, const char *dtype, uint32_t nblocks, uint32_t batch, uint32_t width)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    const char *d = dtype;
    uint32_t w = width, f = 4 * width;
    for (uint32_t b = 0; b < nblocks; b++)
        ap_text_addf(&t, "param @b%u : %s[%u,%u]\nparam @c%u : %s[%u,%u]\n", b, d, w, f, b, d, f, w);
    ap_text_addf(&t, "func @main(%%x0: %s[%u,%u]) -> \"y\" %s[%u,%u] {\n", d, batch, w, d, batch, w);
    for (uint32_t b = 0; b < nblocks; b++) {
        ap_text_addf(&t, "  %%u%u = contract %%x%u, @b%u {bk,kn->bn} : %s[%u,%u]\n", b, b, b, d, batch, f);
        ap_text_addf(&t, "  %%g%u = relu %%u%u : %s[%u,%u]\n", b, b, d, batch, f);
        ap_text_addf(&t, "  %%d%u = contract %%g%u, @c%u {bk,kn->bn} : %s[%u,%u]\n", b, b, b, d, batch, w);
        ap_text_addf(&t, "  %%x%u = add %%x%u, %%d%u : %s[%u,%u]\n", b + 1, b, b, d, batch, w);
    }
    ap_text_addf(&t, "  ret %%x%u\n}\n", nblocks);
    ap_module *m = module_of(ctx, ap_text_str(&t));
    m->state = AP_STATE_NORMAL;
    return m;
}

static ap_module *blocks(ap_ctx *ctx, uint32_t nblocks, uint32_t batch, uint32_t width)
{
    return blocks_of(ctx, "f32", nblocks, batch, width);
}

static ap_plan_options options_for(ap_ctx *ctx, const char *cluster)
{
    ap_plan_options opt = {.threads = 1};
    assert_ok(ctx, ap_cluster_from_preset(ctx, cluster, &opt.cluster));
    return opt;
}

static const int8_t batch_dim[] = {0};

/* ---- against all choices ---- */

typedef struct brute {
    ap_ctx *ctx;
    const ap_module *m;
    const ap_plan_options *opt;
    ap_layers l;
    int32_t microbatches;
    ap_pipe_stage stage[4];
    int64_t best;
    uint32_t built;
} brute;

static void build_choice(brute *b, uint32_t n)
{
    ap_pipe_choice choice = {n, b->stage, b->microbatches};
    ap_pipeline *p;
    ap_pipe_result r;
    ap_plan_options opt = *b->opt;
    uint32_t told = b->ctx->diags.len;
    assert_ok(b->ctx, ap_batch_arguments(b->ctx, b->m, batch_dim, b->microbatches, &opt.batch));
    opt.batch = b->microbatches > 1 ? opt.batch : NULL;
    ap_status s = ap_pipe_build(b->ctx, b->m, &opt, &choice, &p, &r);
    b->ctx->diags.len = told;
    b->built++;
    if (s == AP_OK)
        b->best = ap_min_i64(b->best, r.total.cost_ps);
    else
        assert_int_equal(s, AP_ERR_NO_PLAN);
    ap_arena_reset(&b->ctx->scratch);
}

/* Stage n begins at layer `first` on `rank`; sub-meshes of 1, 2 and 4 devices in all views. */
static void all_choices(brute *b, uint32_t n, uint32_t first, int32_t rank)
{
    static const int32_t sizes[][3] = {{1, 1}, {1, 2}, {1, 4}, {2, 2, 2}};
    for (uint32_t last = first + 1; last <= b->l.n; last++)
        for (size_t k = 0; k < 4; k++) {
            int32_t ranks = sizes[k][1] * (sizes[k][0] == 2 ? 2 : 1), rest = 4 - rank - ranks;
            if (rest < 0 || (rest == 0) != (last == b->l.n))
                continue;
            b->stage[n] = (ap_pipe_stage){.first = b->l.first[first], .last = b->l.first[last]};
            b->stage[n].mesh = mesh_of(b->ctx, sizes[k][0], &sizes[k][1]);
            b->stage[n].mesh.first_rank = rank;
            if (rest == 0)
                build_choice(b, n + 1);
            else
                all_choices(b, n + 1, last, rank + ranks);
        }
}

static const struct tiny {
    uint32_t batch, width;
    int32_t microbatches;
    int64_t memory;
} tiny[] = {
    {8, 512, 4, 0},          {8, 512, 1, 24000000},  {512, 512, 1, 0},        {512, 512, 2, 0},
    {512, 512, 2, 20000000}, {512, 256, 4, 3000000}, {4096, 256, 8, 5000000},
};

static void test_all_choices(void **user)
{
    (void)user;
    for (size_t k = 0; k < sizeof tiny / sizeof *tiny; k++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_module *m = blocks(ctx, 4, tiny[k].batch, tiny[k].width);
        ap_plan_options opt = options_for(ctx, "dgx-a100-80gb:1x4");
        opt.memory = tiny[k].memory;
        brute b = {.ctx = ctx, .m = m, .opt = &opt, .microbatches = tiny[k].microbatches, .best = INT64_MAX};
        ap_layers_options lo = {.cluster = &opt.cluster, .least = 4};
        assert_ok(ctx, ap_layers_cut(ctx, &ctx->arena, m, &lo, &b.l));
        assert_int_equal(b.l.n, 4);
        all_choices(&b, 0, 0, 0);
        assert_true(b.built > 10);
        ap_pipe_search_options so = {.microbatches = tiny[k].microbatches, .batch_dim = batch_dim};
        ap_pipeline *p;
        ap_pipe_result r;
        ap_pipe_search_report report;
        assert_ok(ctx, ap_pipe_search(ctx, m, &opt, &so, &p, &r, &report));
        print_message("memory %lld: %u choices, best %lld ps; search %lld ps in %u stages\n", (long long)tiny[k].memory,
                      b.built, (long long)b.best, (long long)r.total.cost_ps, r.nstages);
        assert_true((double)r.total.cost_ps <= 1.02 * (double)b.best);
        ap_ctx_release(ctx);
    }
}

/* ---- one answer ---- */

static const char *text_of_pipeline(ap_ctx *ctx, const ap_pipeline *p)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_pipeline_print(p, &t);
    return ap_text_str(&t);
}

static void test_threads(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks(ctx, 6, 16, 256);
    ap_plan_options opt = options_for(ctx, "p3.16xlarge:2x4");
    opt.memory = 6000000;
    const char *first = NULL;
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        ap_pipe_search_options so = {.batch_dim = batch_dim};
        ap_pipeline *p;
        ap_pipe_result r;
        opt.threads = threads;
        assert_ok(ctx, ap_pipe_search(ctx, m, &opt, &so, &p, &r, NULL));
        const char *text = text_of_pipeline(ctx, p);
        first = first ? first : text;
        assert_string_equal(first, text);
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

/* ---- what it prefers ---- */

static ap_pipe_result search(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt, ap_pipe_search_options so,
                             ap_pipeline **out)
{
    ap_pipe_result r;
    so.batch_dim = batch_dim;
    assert_ok(ctx, ap_pipe_search(ctx, m, opt, &so, out, &r, NULL));
    for (uint32_t s = 0; s < r.nstages; s++)
        assert_true(r.stage[s].plan.peak_bytes <= (opt->memory ? opt->memory : opt->cluster.memory_bytes));
    return r;
}

/* Weights that must be split: over the slow links between hosts run stages, inside a host what is split is split. */
static void test_inside_host(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks(ctx, 8, 64, 1024);
    ap_plan_options opt = options_for(ctx, "p3.16xlarge:2x4");
    opt.memory = 48000000; /* a seventh of the weights */
    ap_pipeline *p;
    ap_pipe_result r = search(ctx, m, &opt, (ap_pipe_search_options){0}, &p);
    assert_true(r.nstages >= 2);
    for (uint32_t s = 0; s < r.nstages; s++) {
        const ap_mesh_info *mesh = &p->stages.at[s].m->meshes.at[0];
        int32_t last = mesh->first_rank + ap_mesh_ranks(mesh) - 1;
        assert_int_equal(ap_cluster_host(&opt.cluster, mesh->first_rank), ap_cluster_host(&opt.cluster, last));
    }
    ap_ctx_release(ctx);
}

/* One batch that goes through as a whole is fastest where all devices work on each layer; many microbatches fill stages
 * that need no exchange. */
static void test_objectives(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks(ctx, 8, 256, 1024);
    ap_plan_options opt = options_for(ctx, "dgx-a100-80gb:1x4");
    opt.memory = 80000000; /* a quarter of the weights and a little */
    opt.cluster.inside.bytes_per_second /= 32;
    ap_pipeline *p;
    ap_pipe_result latency = search(ctx, m, &opt, (ap_pipe_search_options){.latency = true}, &p);
    assert_int_equal(p->microbatches, 1);
    assert_int_equal(latency.nstages, 1);
    ap_pipe_result throughput = search(ctx, m, &opt, (ap_pipe_search_options){0}, &p);
    assert_true(throughput.nstages > 1);
    assert_true(p->microbatches > 1);
    assert_true(throughput.total.cost_ps < latency.total.cost_ps);
    ap_ctx_release(ctx);
}

/* ---- unlike devices ---- */

static int64_t simulated(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *c)
{
    ap_sim_model *model;
    ap_sim_result r;
    assert_ok(ctx, ap_sim_of_pipeline(p, c, NULL, &ctx->arena, &model));
    assert_ok(ctx, ap_simulate(&model->in, &ctx->arena, false, &r));
    return r.ps;
}

/* The stages of a pipeline, planned anew for another cluster of as many devices, and simulated there. */
static int64_t simulated_elsewhere(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt, const ap_pipeline *p,
                                   const ap_pipe_result *r)
{
    ap_pipe_choice choice = {.nstages = r->nstages, .microbatches = p->microbatches};
    ap_pipe_stage *stage = AP_NEW_ARRAY(&ctx->arena, ap_pipe_stage, r->nstages);
    for (uint32_t i = 0; i < r->nstages; i++) {
        const ap_mesh_info *mesh = &p->stages.at[i].m->meshes.at[0];
        int32_t sizes[AP_MAX_AXES];
        for (int a = mesh->ntime; a < mesh->naxes; a++)
            sizes[a - mesh->ntime] = mesh->axis_size[a];
        stage[i] = (ap_pipe_stage){.first = r->stage[i].first, .last = r->stage[i].last};
        stage[i].mesh = mesh_of(ctx, mesh->naxes - mesh->ntime, sizes);
        stage[i].mesh.first_rank = mesh->first_rank;
    }
    choice.stage = stage;
    ap_plan_options o = *opt;
    ap_pipeline *q;
    ap_pipe_result again;
    assert_ok(ctx, ap_batch_arguments(ctx, m, batch_dim, p->microbatches, &o.batch));
    o.batch = p->microbatches > 1 ? o.batch : NULL;
    assert_ok(ctx, ap_pipe_build(ctx, m, &o, &choice, &q, &again));
    return simulated(ctx, q, &opt->cluster);
}

/* Two hosts of A100 and two of V100: who knows which is which gives more work to the former. */
static void test_unlike(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks_of(ctx, "f16", 12, 16384, 4096);
    ap_plan_options slow = options_for(ctx, "p3.16xlarge:4x2"), mixed = slow;
    ap_cluster group[2] = {options_for(ctx, "dgx-a100-80gb:2x2").cluster, options_for(ctx, "p3.16xlarge:2x2").cluster};
    slow.cluster.between = group[1].between = group[0].between;
    ap_cluster_join(ctx, "mixed", group, 2, &mixed.cluster);
    slow.memory = mixed.memory = 2000000000; /* not all weights on one device */
    ap_pipeline *p, *q;
    ap_pipe_result aware = search(ctx, m, &mixed, (ap_pipe_search_options){0}, &p);
    ap_pipe_result blind = search(ctx, m, &slow, (ap_pipe_search_options){0}, &q);
    int64_t here = simulated(ctx, p, &mixed.cluster), there = simulated_elsewhere(ctx, m, &mixed, q, &blind);
    print_message("unlike devices: simulated %lld ps in %u stages, blind %lld ps in %u\n", (long long)here,
                  aware.nstages, (long long)there, blind.nstages);
    assert_true(here * 13 <= there * 10);
    ap_ctx_release(ctx);
}

/* ---- what is asked for ---- */

static void test_asked(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks(ctx, 4, 8, 256);
    ap_plan_options opt = options_for(ctx, "dgx-a100-80gb:1x8");
    ap_pipeline *p;
    for (uint32_t n = 1; n <= 4; n++) {
        ap_pipe_result r = search(ctx, m, &opt, (ap_pipe_search_options){.nstages = n, .microbatches = 2}, &p);
        assert_int_equal(r.nstages, n);
        assert_int_equal(p->microbatches, 2);
    }
    /* One microbatch takes as long wherever the cut is: it is in the middle. */
    ap_pipe_result even = search(ctx, m, &opt, (ap_pipe_search_options){.nstages = 2, .microbatches = 1}, &p);
    assert_int_equal(even.stage[0].nodes, 8);
    const int32_t sizes[] = {2, 2};
    ap_mesh_info mesh = mesh_of(ctx, 2, sizes);
    search(ctx, m, &opt, (ap_pipe_search_options){.mesh = &mesh, .microbatches = 2}, &p);
    assert_int_equal(p->stages.len, 2);
    for (uint32_t s = 0; s < 2; s++) {
        const ap_mesh_info *x = &p->stages.at[s].m->meshes.at[0];
        assert_int_equal(x->axis_size[1], 2);
        assert_int_equal(x->axis_size[2], 2);
    }
    uint32_t stage[16];
    for (uint32_t k = 0; k < 16; k++)
        stage[k] = k < 3 ? 0 : k == 3 ? 1 : AP_NONE;
    ap_pipe_result r = search(ctx, m, &opt, (ap_pipe_search_options){.nstages = 2, .stage = stage}, &p);
    assert_int_equal(r.stage[0].nodes, 3);
    ap_ctx_release(ctx);
}

/* Stages may have nothing to say to each other. */
static void test_unconnected(void **user)
{
    (void)user;
    static const char *const text = "func @main(%x: f32[8,16]) -> \"a\" f32[8,16], \"b\" f32[8,16], \"c\" f32[8,16] {\n"
                                    "  %a = relu %x : f32[8,16]\n"
                                    "  %b = tanh %x : f32[8,16]\n"
                                    "  %c = sigmoid %x : f32[8,16]\n"
                                    "  ret %a, %b, %c\n}\n";
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, text);
    m->state = AP_STATE_NORMAL;
    ap_plan_options opt = options_for(ctx, "dgx-a100-80gb:1x4");
    ap_pipeline *p;
    for (uint32_t n = 1; n <= 3; n++)
        for (int32_t microbatches = 1; microbatches <= 2; microbatches++) {
            ap_pipe_search_options so = {.nstages = n, .microbatches = microbatches};
            ap_pipe_result r = search(ctx, m, &opt, so, &p);
            assert_int_equal(r.nstages, n);
            assert_int_equal(p->links.len, 0);
        }
    ap_ctx_release(ctx);
}

static void test_no_plan(void **user)
{
    (void)user;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = blocks(ctx, 4, 8, 256);
    ap_plan_options opt = options_for(ctx, "dgx-a100-80gb:1x4");
    opt.memory = 1000000;
    ap_pipe_search_options so = {.batch_dim = batch_dim};
    ap_pipeline *p;
    ap_pipe_result r;
    assert_int_equal(ap_pipe_search(ctx, m, &opt, &so, &p, &r, NULL), AP_ERR_NO_PLAN);
    assert_non_null(strstr(ctx->diags.at[0].text, "more on each would do"));
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked),   cmocka_unit_test(test_no_plan),     cmocka_unit_test(test_objectives),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_inside_host), cmocka_unit_test(test_all_choices),
        cmocka_unit_test(test_unlike),  cmocka_unit_test(test_unconnected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
