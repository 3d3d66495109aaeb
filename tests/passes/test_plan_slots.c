/* Slots in the planner: the problem says of any choice what the types say afterwards; memory of slots counts as often
 * as there are slots; times of arrival move the choice; pins reach them by name. */
#include "tests/passes/random_module.h"

#include "passes/pipe/carve.h"
#include "passes/plan_problem.h"

/* Some time for every sharding, whatever it is: what it is split by. */
static int64_t some_time(void *user, const ap_module *m, ap_type type)
{
    const ap_sharding_info *s = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding);
    int64_t ps = *(const int64_t *)user;
    for (int f = 0; f < s->nfactors; f++)
        ps += 777 * (f + 1) * (int64_t)s->axes[f];
    return ps;
}

/* Slots of every second boundary value are listed. */
static ap_plan_slots list_slots(ap_ctx *ctx, const ap_module *m, uint64_t *state)
{
    const ap_func_info *f = &m->funcs.at[0];
    AP_VEC(ap_plan_slot) slots = {0};
    for (uint32_t i = 0; i < f->narguments + f->nresults; i++) {
        bool result = i >= f->narguments;
        if (result ? !f->result_slot[i - f->narguments] : !f->argument_slot[i] || draw(state, 2))
            continue;
        int64_t *user = AP_NEW(&ctx->arena, int64_t);
        *user = draw(state, 5000);
        ap_plan_slot s = {.result = result, .depth = 1 + (int32_t)draw(state, 3), .user = user};
        s.name = result ? f->result_name[i - f->narguments] : ap_value_at(m, f->argument[i])->name;
        s.cost = draw(state, 3) ? some_time : NULL;
        ap_vec_push(&ctx->arena, &slots, s);
    }
    return (ap_plan_slots){slots.len, slots.at};
}

/* A part of a random module, where it has slots. */
static const ap_module *random_part(ap_ctx *ctx, uint64_t *state, int round)
{
    for (;;) {
        maker k = {.state = state, .views = round % 2, .tied = true};
        ap_module *m = module_of(ctx, make_module_with(ctx, &k, 6 + round % 6));
        ap_carver *c = ap_carver_create(&ctx->arena, m);
        uint32_t n = ap_carver_nnodes(c), first = draw(state, n / 2), last = first + 2 + draw(state, n - first - 1);
        ap_carved part;
        ap_carve(c, &ctx->arena, first, last < n ? last : n, &part);
        const ap_func_info *f = &part.m->funcs.at[0];
        for (uint32_t i = 0; i < f->narguments; i++)
            if (f->argument_slot[i])
                return part.m;
    }
}

/* Only what is allowed with the variables before it, where that can be. */
static bool draw_choice(const ap_problem *p, uint64_t *state, uint32_t *choice, int64_t *cost, int64_t *peak)
{
    for (uint32_t v = 0; v < p->nnodes; v++)
        for (int attempt = 0; attempt < 40; attempt++) {
            choice[v] = draw(state, p->nstrategies[v]);
            bool ok = true;
            for (uint32_t e = 0; e < p->nedges && ok; e++) {
                const ap_problem_edge *g = &p->edge[e];
                if (g->u <= v && g->v <= v && (g->u == v || g->v == v))
                    ok = g->cost[choice[g->u] * p->nstrategies[g->v] + choice[g->v]] != AP_FORBIDDEN;
            }
            if (ok)
                break;
        }
    return ap_problem_evaluate(p, choice, cost, peak);
}

static void problem_tells_the_truth(void **unused)
{
    (void)unused;
    uint64_t state = 4;
    int checked = 0, timed = 0, deep = 0;
    for (int round = 0; round < 120; round++) {
        ap_ctx *ctx = ap_ctx_create();
        const ap_module *part = random_part(ctx, &state, round);
        ap_plan_options opt = {.mesh = mesh_of(ctx, 1 + round % 2, (const int32_t[]){2, 2})};
        ap_cluster_local(ap_mesh_size(&opt.mesh), &opt.cluster);
        opt.cluster.memory_bytes = INT64_MAX;
        opt.slots = list_slots(ctx, part, &state);
        for (int i = 0; i < 6; i++) {
            ap_module *m = ap_module_clone(part);
            ap_planning p;
            assert_ok(ctx, ap_planning_build(ctx, &ctx->arena, m, ap_module_add_mesh(m, &opt.mesh), NULL, &opt, &p));
            uint32_t *choice = AP_NEW_ARRAY(&ctx->arena, uint32_t, p.problem.nnodes);
            int64_t cost, peak;
            if (!draw_choice(&p.problem, &state, choice, &cost, &peak))
                continue;
            assert_ok(ctx, ap_planning_apply(&p, choice));
            assert_verifies(ctx, m);
            ap_plan_result r, free;
            assert_ok(ctx, ap_plan_evaluate_slots(ctx, m, &opt.cluster, &opt.slots, &r));
            assert_int_equal(r.cost_ps, cost);
            assert_true(r.peak_bytes <= peak);
            if (round % 2 == 0) /* without views the problem's memory is exact */
                assert_int_equal(r.peak_bytes, peak);
            assert_ok(ctx, ap_plan_evaluate(ctx, m, &opt.cluster, &free));
            assert_int_equal(r.cost_ps - r.transfer_ps, free.cost_ps);
            assert_int_equal(r.peak_bytes - r.slot_bytes, free.peak_bytes - free.slot_bytes);
            checked++;
            timed += r.transfer_ps > 0;
            deep += r.slot_bytes > free.slot_bytes;
        }
        ap_ctx_release(ctx);
    }
    assert_true(checked > 400 && timed > 200 && deep > 200);
}

static const char *const stage = "state normal\nparam @w : f32[64,64]\n"
                                 "func @main(slot %h: f32[32,64]) -> slot \"g\" f32[32,64] {\n"
                                 "  %g = contract %h, @w {mk,kn->mn} : f32[32,64]\n  ret %g }\n";

static ap_plan_options options_of(ap_ctx *ctx, const ap_plan_slot *slot, uint32_t n)
{
    ap_plan_options opt = {.mesh = mesh_of(ctx, 1, (const int32_t[]){2}), .slots = {n, slot}, .stage = 3};
    ap_cluster_local(2, &opt.cluster);
    return opt;
}

/* Arriving replicated costs nothing, split by rows 1 ms: then it is not split by rows, and the other way round. */
static int64_t dear_rows(void *user, const ap_module *m, ap_type type)
{
    bool rows = ap_sharding_get(m->ctx, ap_type_get(m->ctx, type).sharding)->axes[0] != 0;
    return rows == *(const bool *)user ? 1000000000 : 0;
}

static int64_t forbidden_rows(void *user, const ap_module *m, ap_type type)
{
    return dear_rows(user, m, type) ? AP_FORBIDDEN : 5;
}

static void arrival_moves_the_choice(void **unused)
{
    (void)unused;
    for (int k = 0; k < 4; k++) {
        ap_ctx *ctx = ap_ctx_create();
        bool rows = k % 2;
        ap_plan_slot slot = {.name = ap_name_make(ctx, "h"), .depth = 2, .cost = k < 2 ? dear_rows : forbidden_rows};
        slot.user = &rows;
        ap_plan_options opt = options_of(ctx, &slot, 1);
        ap_module *m = module_of(ctx, stage);
        ap_plan_result r;
        assert_ok(ctx, ap_pass_plan(ctx, m, &opt, &r));
        assert_verifies(ctx, m);
        assert_non_null(strstr(text_of(ctx, m), "func @stage3.fwd(slot %h: f32[32,64] @m["));
        ap_type t = ap_value_type(m, m->funcs.at[0].argument[0]);
        assert_int_equal(ap_sharding_get(ctx, ap_type_get(ctx, t).sharding)->axes[0] != 0, !rows);
        assert_int_equal(r.transfer_ps, k < 2 ? 0 : 5);
        assert_int_equal(r.cost_ps, r.compute_ps + r.communication_ps + r.transfer_ps);
        ap_ctx_release(ctx);
    }
}

/* By hand: %h and @w whole, or split; %g as it is made, and twice as a slot, all the time. */
static void memory_by_hand(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    const ap_plan_slot slot[] = {{.name = ap_name_make(ctx, "h"), .depth = 3},
                                 {.name = ap_name_make(ctx, "g"), .result = true, .depth = 2}};
    ap_plan_options opt = options_of(ctx, slot, 2);
    const ap_pin pins[] = {{"h", "[x,-]", NULL, 1}, {"g", "[x,-]", NULL, 2}, {"w", "[-,-]", NULL, 3}};
    opt.pin = pins;
    opt.npins = 3;
    opt.pin_file = "pins";
    ap_module *m = module_of(ctx, stage);
    ap_plan_result r;
    assert_ok(ctx, ap_pass_plan(ctx, m, &opt, &r));
    int64_t half = 32 * 64 * 4 / 2;
    assert_int_equal(r.slot_bytes, 3 * half + 2 * half);
    assert_int_equal(r.param_bytes, 64 * 64 * 4);
    assert_int_equal(r.peak_bytes, r.slot_bytes + r.param_bytes + half);
    /* One byte less is no plan; the message names the limit. */
    opt.memory = r.peak_bytes - 1;
    assert_int_equal(ap_pass_plan(ctx, module_of(ctx, stage), &opt, &r), AP_ERR_NO_PLAN);
    ap_ctx_release(ctx);
}

/* A pin that matches nothing here may match elsewhere. */
static void pins_of_several_stages(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_plan_options opt = options_of(ctx, NULL, 0);
    const ap_pin pins[] = {{"h", "[x,-]", NULL, 1}, {"nobody", "[x,-]", NULL, 2}};
    bool matched[2] = {false, false};
    opt.pin = pins;
    opt.npins = 2;
    opt.pin_file = "pins";
    ap_plan_result r;
    assert_int_equal(ap_pass_plan(ctx, module_of(ctx, stage), &opt, &r), AP_ERR_USAGE);
    opt.pin_matched = matched;
    assert_ok(ctx, ap_pass_plan(ctx, module_of(ctx, stage), &opt, &r));
    assert_true(matched[0] && !matched[1]);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(problem_tells_the_truth),
        cmocka_unit_test(arrival_moves_the_choice),
        cmocka_unit_test(memory_by_hand),
        cmocka_unit_test(pins_of_several_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
