/* Pipelines and programs as numbers of the simulator: the two roads to them agree with each other, with the prices of
 * the planner and of transfers, and with the memory that is laid out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/pipe/lower.h"
#include "passes/pipe/sim_model.h"
#include "passes/pipe/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 64, WIDTH = 256 };

typedef struct scene {
    ap_ctx *ctx;
    ap_cluster cluster;
    ap_pipeline *pipeline;
    ap_program *program;
} scene;

static void expect_ok(ap_ctx *ctx, ap_status s)
{
    if (s != AP_OK)
        fail_msg("%s", ap_diag_str(ctx, &ctx->diags.at[0]));
}

/* Two stages of four ranks; %h leaves as `from` and arrives as `to`. */
static void scene_begin(scene *s, const char *cluster, int microbatches, const char *from, const char *to)
{
    char text[4096];
    s->ctx = ap_ctx_create();
    if (strcmp(cluster, "local") == 0)
        ap_cluster_local(8, &s->cluster);
    else
        expect_ok(s->ctx, ap_cluster_find(s->ctx, cluster, &s->cluster));
    int n = snprintf(text, sizeof text,
                     "pipeline @p ranks 8 microbatches %d\ninput \"x\" f32[%d,%d]\noutput \"y\" f32[%d,%d]\n"
                     "stage @stage0 {\ntime mb=%d\nmesh @m = [x=2, y=2] ranks 0..3\n"
                     "func @stage0.fwd(%%x: f32[%d,%d] @m[%s]) -> slot \"h\" f32[%d,%d] @m[%s] {\n"
                     "  %%h = exp %%x : f32[%d,%d] @m[%s]\n  ret %%h }\n}\n"
                     "stage @stage1 {\ntime mb=%d\nmesh @m = [x=2, y=2] ranks 4..7\n"
                     "func @stage1.fwd(slot %%h: f32[%d,%d] @m[%s]) -> \"y\" f32[%d,%d] @m[%s] {\n"
                     "  %%y = exp %%h : f32[%d,%d] @m[%s]\n  ret %%y }\n}\n"
                     "link %%h @stage0 -> @stage1 depth 2,2\n"
                     "list @stage0 { loop %d { claim %%h k -> @stage1 run k send %%h k -> @stage1 } }\n"
                     "list @stage1 { loop %d { recv %%h k run k free %%h k } }\n",
                     microbatches, BATCH, WIDTH, BATCH, WIDTH, microbatches, BATCH, WIDTH, from, BATCH, WIDTH, from,
                     BATCH, WIDTH, from, microbatches, BATCH, WIDTH, to, BATCH, WIDTH, to, BATCH, WIDTH, to,
                     microbatches, microbatches);
    assert_true(n > 0 && (size_t)n < sizeof text);
    expect_ok(s->ctx, ap_pipeline_parse(s->ctx, "two.ap", text, strlen(text), &s->pipeline));
    expect_ok(s->ctx, ap_pipeline_verify(s->pipeline));
}

static void lower(scene *s)
{
    expect_ok(s->ctx, ap_pipe_explicit(s->ctx, s->pipeline, &s->cluster));
    expect_ok(s->ctx, ap_lower_program(s->ctx, s->pipeline, &s->cluster, "two", &s->program));
    ap_program_price(s->program, &s->cluster);
}

static ap_transfer_side side_of(const ap_stage *s, ap_type t)
{
    ap_type_info info = ap_type_get(s->m->ctx, t);
    return (ap_transfer_side){ap_stage_mesh(s), ap_shape_get(s->m->ctx, info.shape),
                              ap_sharding_get(s->m->ctx, info.sharding)};
}

static int64_t transfer_price(const scene *s)
{
    const ap_stage *a = &s->pipeline->stages.at[0], *b = &s->pipeline->stages.at[1];
    ap_transfer_side from = side_of(a, a->m->funcs.at[0].result[0]);
    ap_transfer_side to = side_of(b, ap_value_type(b->m, b->m->funcs.at[0].argument[0]));
    return ap_transfer_cost(&s->cluster, &s->ctx->arena, &from, &to, 4);
}

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A chain of two stages with two slots at each end. */
static int64_t formula(const ap_sim *in, int32_t B)
{
    int64_t a = in->stage[0].compute_ps + in->stage[0].exchange_ps;
    int64_t b = in->stage[1].compute_ps + in->stage[1].exchange_ps, c = ap_sim_alone(&in->wire[0]);
    return a + c + b + (B - 1) * max_of(a, max_of(b, c));
}

static const char *const shardings[] = {"mb,-", "mb*x,-", "mb*y,-", "mb*x*y,-", "mb,x",
                                        "mb,y", "mb,x*y", "mb*x,y", "mb*y,x"};
enum { NSHARDINGS = sizeof shardings / sizeof *shardings };

/* Inside one host, and from one to another whose devices share a card. */
static void test_roads(void **state)
{
    (void)state;
    static const char *const clusters[] = {"dgx-a100-80gb:1x8", "dgx-a100-80gb:2x4", "p3.16xlarge:2x4",
                                           "p3.16xlarge:4x2", "summit:2x4"};
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (int i = 0; i < NSHARDINGS * NSHARDINGS; i++) {
            scene s;
            scene_begin(&s, clusters[c], 4, shardings[i / NSHARDINGS], shardings[i % NSHARDINGS]);
            ap_sim_model *planned, *lowered;
            expect_ok(s.ctx, ap_sim_of_pipeline(s.pipeline, &s.cluster, NULL, &s.ctx->arena, &planned));
            int64_t alone = ap_sim_alone(&planned->in.wire[0]), price = transfer_price(&s);
            assert_true(alone - price <= 1 && price - alone <= 1);
            ap_plan_result r;
            ap_cluster part;
            ap_cluster_part(&s.cluster, 0, 4, &part);
            expect_ok(s.ctx, ap_plan_evaluate(s.ctx, s.pipeline->stages.at[0].m, &part, &r));
            assert_int_equal(planned->in.stage[0].compute_ps, r.compute_ps);
            lower(&s);
            lowered = ap_sim_of_program(s.program, &s.cluster, &s.ctx->arena);
            assert_int_equal(ap_sim_alone(&lowered->in.wire[0]), alone);
            assert_int_equal(lowered->in.wire[0].from_bytes, planned->in.wire[0].from_bytes);
            assert_int_equal(lowered->in.wire[0].to_bytes, planned->in.wire[0].to_bytes);
            assert_false(lowered->in.wire[0].by_receiver);
            ap_sim_result a, b;
            expect_ok(s.ctx, ap_simulate(&planned->in, &s.ctx->arena, false, &a));
            expect_ok(s.ctx, ap_simulate(&lowered->in, &s.ctx->arena, false, &b));
            assert_int_equal(a.ps, formula(&planned->in, 4));
            assert_int_equal(b.ps, formula(&lowered->in, 4));
            ap_ctx_release(s.ctx);
        }
}

/* Slots in use never exceed what the arena has for them. */
static void test_memory(void **state)
{
    (void)state;
    for (int i = 0; i < NSHARDINGS; i++) {
        scene s;
        scene_begin(&s, "local", 8, shardings[i], shardings[NSHARDINGS - 1 - i]);
        lower(&s);
        ap_sim_model *m = ap_sim_of_program(s.program, &s.cluster, &s.ctx->arena);
        assert_true(m->in.wire[0].by_receiver);
        ap_sim_result r;
        expect_ok(s.ctx, ap_simulate(&m->in, &s.ctx->arena, true, &r));
        for (uint32_t t = 0; t < 2; t++) {
            int64_t reserved = m->in.stage[t].resident_bytes + ap_program_arena_bytes(s.program, t);
            int64_t slot = t ? m->in.wire[0].to_bytes : m->in.wire[0].from_bytes;
            assert_true(r.stage[t].peak_bytes <= reserved);
            assert_true(r.stage[t].peak_bytes >= reserved - slot);
        }
        ap_ctx_release(s.ctx);
    }
}

/* Both directions of a card are shared by the wires of different stages: two stages of host 0 send to host 1. */
static void test_shared_card(void **state)
{
    (void)state;
    static const char *const text =
        "pipeline @p ranks 4 microbatches 1\ninput \"x\" f32[64,4096]\noutput \"y\" f32[64,4096]\n"
        "output \"z\" f32[64,4096]\n"
        "stage @a {\nmesh @m = [x=1] ranks 0..0\nfunc @a.fwd(%x: f32[64,4096] @m[-,-]) -> slot \"h\" f32[64,4096] "
        "@m[-,-] "
        "{\n  %h = exp %x : f32[64,4096] @m[-,-]\n  ret %h }\n}\n"
        "stage @b {\nmesh @m = [x=1] ranks 1..1\nfunc @b.fwd(%x: f32[64,4096] @m[-,-]) -> slot \"g\" f32[64,4096] "
        "@m[-,-] "
        "{\n  %g = exp %x : f32[64,4096] @m[-,-]\n  ret %g }\n}\n"
        "stage @c {\nmesh @m = [x=1] ranks 2..2\nfunc @c.fwd(slot %h: f32[64,4096] @m[-,-]) -> \"y\" f32[64,4096] "
        "@m[-,-] {\n  %y = exp %h : f32[64,4096] @m[-,-]\n  ret %y }\n}\n"
        "stage @d {\nmesh @m = [x=1] ranks 3..3\nfunc @d.fwd(slot %g: f32[64,4096] @m[-,-]) -> \"z\" f32[64,4096] "
        "@m[-,-] {\n  %z = exp %g : f32[64,4096] @m[-,-]\n  ret %z }\n}\n"
        "link %h @a -> @c depth 1,1\nlink %g @b -> @d depth 1,1\n"
        "list @a { loop 1 { claim %h k -> @c run k send %h k -> @c } }\n"
        "list @b { loop 1 { claim %g k -> @d run k send %g k -> @d } }\n"
        "list @c { loop 1 { recv %h k run k free %h k } }\nlist @d { loop 1 { recv %g k run k free %g k } }\n";
    scene s = {.ctx = ap_ctx_create()};
    expect_ok(s.ctx, ap_cluster_find(s.ctx, "p3.16xlarge:2x2", &s.cluster));
    expect_ok(s.ctx, ap_pipeline_parse(s.ctx, "card.ap", text, strlen(text), &s.pipeline));
    expect_ok(s.ctx, ap_pipeline_verify(s.pipeline));
    ap_sim_model *m;
    expect_ok(s.ctx, ap_sim_of_pipeline(s.pipeline, &s.cluster, NULL, &s.ctx->arena, &m));
    ap_sim_result r;
    expect_ok(s.ctx, ap_simulate(&m->in, &s.ctx->arena, false, &r));
    const ap_level *l = &s.cluster.between;
    assert_true(l->shared_bytes_per_second > 0 && l->shared_bytes_per_second <= l->bytes_per_second);
    int64_t run = m->in.stage[0].compute_ps, alone = ap_sim_alone(&m->in.wire[0]);
    int64_t want = 2 * run + l->latency_ps + 2 * (alone - l->latency_ps); /* both at half speed */
    assert_true(r.ps - want <= 2 && want - r.ps <= 2);
    ap_ctx_release(s.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roads),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_shared_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
