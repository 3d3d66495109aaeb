/* Even cuts against all cuts of random rows, with and without pins; times by hand. */
#include "tests/passes/random_module.h"

#include "ir/op.h"
#include "passes/pipe/carve.h"
#include "passes/pipe/even.h"
#include "passes/pipe/pins.h"

static int64_t node_time(const ap_cluster *c, const ap_module *m, uint32_t at)
{
    ap_node n = ap_block_at(m, m->funcs.at[0].body)->nodes.at[at];
    ap_sharding none[8] = {0};
    return ap_cost_node(c, m, n, &(ap_strategy){none, none});
}

typedef struct brute {
    const ap_module *m;
    const ap_carver *carver;
    const ap_cluster *c;
    const uint32_t *pinned;
    uint32_t nstages, nodes;
} brute;

/* The time of [first, last) as a stage of its own; -1: a pin forbids it, or nothing of it counts. */
static int64_t time_of(const brute *b, uint32_t stage, uint32_t first, uint32_t last)
{
    int64_t sum = 0;
    bool any = false;
    for (uint32_t at = first; at < last; at++) {
        if (ap_carver_is_free(b->carver, at))
            continue;
        any = true;
        sum += node_time(b->c, b->m, at);
        if (b->pinned && b->pinned[at] != AP_NONE && b->pinned[at] != stage)
            return -1;
    }
    return any ? sum : -1;
}

static int64_t best_of(const brute *b, uint32_t stage, uint32_t first)
{
    int64_t best = -1;
    if (stage + 1 == b->nstages)
        return time_of(b, stage, first, b->nodes);
    for (uint32_t last = first + 1; last <= b->nodes; last++) {
        int64_t here = time_of(b, stage, first, last), rest = here < 0 ? -1 : best_of(b, stage + 1, last);
        if (rest >= 0 && (best < 0 || ap_max_i64(here, rest) < best))
            best = ap_max_i64(here, rest);
    }
    return best;
}

static void random_rows(void **unused)
{
    (void)unused;
    uint64_t state = 8;
    int refused = 0, cut = 0;
    for (int round = 0; round < 300; round++) {
        ap_ctx *ctx = ap_ctx_create();
        maker k = {.state = &state, .views = round % 2};
        ap_module *m = module_of(ctx, make_module_with(ctx, &k, 3 + round % 8));
        ap_cluster c;
        ap_cluster_local(4, &c);
        c.launch_ps = draw(&state, 100000);
        brute b = {.m = m, .carver = ap_carver_create(&ctx->arena, m), .c = &c, .nstages = 1 + (uint32_t)round % 4};
        b.nodes = ap_carver_nnodes(b.carver);
        uint32_t *pinned = AP_NEW_ARRAY(&ctx->arena, uint32_t, b.nodes);
        for (uint32_t at = 0; at < b.nodes; at++)
            pinned[at] = draw(&state, 6) ? AP_NONE : draw(&state, b.nstages);
        b.pinned = round % 3 ? pinned : NULL;
        ap_mesh_info mesh = mesh_of(ctx, 1, (const int32_t[]){2});
        mesh.first_rank = 3;
        ap_pipe_choice choice;
        int64_t want = best_of(&b, 0, 0), have = 0;
        ap_status s = ap_pipe_even(ctx, &ctx->arena, m, &c, b.nstages, &mesh, 2, b.pinned, &choice);
        assert_int_equal(s, want < 0 ? AP_ERR_USAGE : AP_OK);
        refused += want < 0;
        for (uint32_t i = 0; want >= 0 && i < b.nstages; i++) {
            assert_int_equal(choice.stage[i].first, i ? choice.stage[i - 1].last : 0);
            assert_int_equal(choice.stage[i].mesh.first_rank, 3 + 2 * (int32_t)i);
            int64_t t = time_of(&b, i, choice.stage[i].first, choice.stage[i].last);
            assert_true(t >= 0);
            have = ap_max_i64(have, t);
        }
        if (want >= 0) {
            assert_int_equal(choice.stage[b.nstages - 1].last, b.nodes);
            assert_int_equal(have, want);
            cut++;
        }
        ap_ctx_release(ctx);
    }
    assert_true(refused > 30 && cut > 150);
}

/* By names of nodes and of what they make; what matches nothing, or is put into two stages, is told. */
static void pins_of_nodes(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_module *m = module_of(ctx, "state normal\nfunc @f(%x: f32[4]) -> f32[4] {\n"
                                  "  %a = relu %x : f32[4]  loc(\"l.0/act\", \"Relu\")\n"
                                  "  %b = exp %a : f32[4]  loc(\"l.1/act\", \"Exp\")\n  ret %b }\n");
    const ap_node_pin pin[] = {{"l.?/*", 0, 1}, {"b", 1, 2}, {"nobody", 0, 3}, {"*", 2, 4}};
    const uint32_t *stage = NULL;
    assert_ok(ctx, ap_pipe_pins_find(&ctx->arena, m, &(ap_pins){.nnodes = 1, .node = pin}, 0, "pins", &stage));
    assert_true(stage[0] == 0 && stage[1] == 0);
    ap_pins bad = {.nnodes = 2, .node = pin};
    assert_int_equal(ap_pipe_pins_find(&ctx->arena, m, &bad, 0, "pins", &stage), AP_ERR_USAGE);
    assert_string_equal(ap_diag_str(ctx, &ctx->diags.at[0]),
                        "test: node \"l.1/act\" (Exp): pins:2: it is pinned to stage 1, by line 1 to stage 0");
    bad.node = &pin[1];
    assert_int_equal(ap_pipe_pins_find(&ctx->arena, m, &bad, 0, "pins", &stage), AP_ERR_USAGE);
    assert_string_equal(ap_diag_str(ctx, &ctx->diags.at[1]), "pins:3: no node matches \"nobody\"");
    bad = (ap_pins){.nnodes = 1, .node = &pin[3]};
    assert_int_equal(ap_pipe_pins_find(&ctx->arena, m, &bad, 0, "pins", &stage), AP_ERR_USAGE);
    assert_string_equal(ap_diag_str(ctx, &ctx->diags.at[2]),
                        "test: node \"l.0/act\" (Relu): pins:4: it is pinned to stage 2, and no node is left for stage "
                        "0: nodes are in stages in the order of the model");
    assert_ok(ctx, ap_pipe_pins_find(&ctx->arena, m, &(ap_pins){0}, 0, "pins", &stage));
    assert_null(stage);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_rows), cmocka_unit_test(pins_of_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
