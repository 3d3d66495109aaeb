/* The solver against brute force on random small problems, with every combination of its parts switched on and
 * off; the same answer twice; refusal of malformed problems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/solve/kernel.h"
#include "tests/solve/random_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct tally {
    uint32_t solved, infeasible, not_found, proven;
} tally;

static void one_problem(ap_ctx *ctx, ap_arena *arena, const ap_problem *p, const ap_solve_options *opt, bool expect,
                        int64_t least, bool complete, tally *t)
{
    ap_solution s;
    assert_int_equal(ap_solve(ctx, arena, p, opt, &s), AP_OK);
    if (s.result == AP_SOLVE_INFEASIBLE)
        assert_false(expect);
    if (!expect) {
        assert_int_not_equal(s.result, AP_SOLVED);
        if (complete)
            assert_int_equal(s.result, AP_SOLVE_INFEASIBLE);
    } else if (complete) {
        assert_int_equal(s.result, AP_SOLVED);
        assert_int_equal(s.cost, least);
        assert_int_equal(s.bound, least);
    }
    if (s.result == AP_SOLVED) {
        int64_t cost, peak;
        assert_true(ap_problem_evaluate(p, s.choice, &cost, &peak));
        assert_int_equal(cost, s.cost);
        assert_int_equal(peak, s.peak);
        assert_true(s.cost >= least);
    }
    if (expect)
        assert_true(s.bound <= least);
    t->solved += s.result == AP_SOLVED;
    t->infeasible += s.result == AP_SOLVE_INFEASIBLE;
    t->not_found += s.result == AP_SOLVE_NOT_FOUND;
    t->proven += s.result == AP_SOLVED && s.bound == s.cost;
}

/* Lower bound on the peak that is stated when nothing fits: no choice that obeys the forbidden entries is lower. */
static void check_least_peak(ap_ctx *ctx, ap_arena *arena, const ap_problem *p)
{
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    ap_solution s;
    assert_int_equal(ap_solve(ctx, arena, p, &opt, &s), AP_OK);
    ap_problem raised = *p;
    uint32_t *choice = AP_NEW_ARRAY(arena, uint32_t, p->nnodes);
    int64_t cost;
    raised.limit = INT64_MAX;
    bool forbidden = !ap_problem_brute_force(arena, &raised, choice, &cost);
    if (p->limit == INT64_MAX || forbidden) {
        assert_int_equal(s.least_peak, 0);
        return;
    }
    raised.limit = s.least_peak - 1;
    assert_true(s.least_peak > p->limit);
    assert_false(ap_problem_brute_force(arena, &raised, choice, &cost));
}

static void compare(const shape *sh, const ap_solve_options *opt, uint64_t seed, uint32_t rounds, bool complete)
{
    rng r = {seed};
    tally t = {0};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < rounds; i++) {
        ap_arena arena;
        ap_arena_init(&arena, ctx->arena.out_of_memory, ctx->arena.user);
        ap_problem p;
        random_problem(&r, &arena, sh, &p);
        uint32_t *choice = AP_NEW_ARRAY(&arena, uint32_t, p.nnodes);
        int64_t least = INT64_MAX;
        bool expect = ap_problem_brute_force(&arena, &p, choice, &least);
        bool exact = complete || (opt->eliminate && p.limit == INT64_MAX);
        one_problem(ctx, &arena, &p, opt, expect, least, exact, &t);
        if (!expect && complete)
            check_least_peak(ctx, &arena, &p);
        ap_arena_deinit(&arena);
    }
    print_message("presolve %d eliminate %d mip %d: %u solved (%u proven), %u infeasible, %u not found\n",
                  opt->presolve, opt->eliminate, opt->mip, t.solved, t.proven, t.infeasible, t.not_found);
    assert_true(t.solved > rounds / 4);
    ap_ctx_release(ctx);
}

static void test_all_parts(void **state)
{
    (void)state;
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    compare(&(shape){9, 4, 600, 1, false}, &opt, 1, test_rounds(14000), true);
    compare(&(shape){10, 3, 3000, 1, false}, &opt, 2, test_rounds(3000), true);
    compare(&(shape){8, 6, 2000, 1000, false}, &opt, 3, test_rounds(3000), true);
    compare(&(shape){10, 5, 20000, 1, true}, &opt, 4, test_rounds(1500), true);
    compare(&(shape){8, 6, 2000, 1000, true}, &opt, 5, test_rounds(3000), true);
}

static void test_switches(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        ap_solve_options opt;
        ap_solve_defaults(&opt);
        opt.presolve = (i & 1) != 0;
        opt.eliminate = (i & 2) != 0;
        opt.mip = (i & 4) != 0;
        compare(&(shape){9, 4, 400, 1, i % 3 == 0}, &opt, 10 + (uint64_t)i, test_rounds(1500), opt.mip);
    }
}

/* Along a chain with a few more edges, most of which hold memory that trades with costs. Too large for enumeration, and
 * for what the solver finishes without an ascent. */
static void chain_with_pairs(rng *r, ap_arena *a, ap_problem *p)
{
    uint32_t n = 18 + rng_below(r, 14), *ns = AP_NEW_ARRAY(a, uint32_t, n);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, n);
    ap_problem_edge *edge = AP_NEW_ARRAY(a, ap_problem_edge, 2 * (size_t)n);
    ap_demand *demand = AP_NEW_ARRAY(a, ap_demand, n);
    ap_pair_demand *pair = AP_NEW_ARRAY(a, ap_pair_demand, 2 * (size_t)n);
    *p =
        (ap_problem){.nnodes = n, .nstrategies = ns, .cost = cost, .edge = edge, .demand = demand, .pair_demand = pair};
    for (uint32_t v = 0; v < n; v++) {
        ns[v] = 2 + rng_below(r, 3);
        int64_t *c = AP_NEW_ARRAY(a, int64_t, ns[v]), *u = AP_NEW_ARRAY(a, int64_t, ns[v]);
        for (uint32_t i = 0; i < ns[v]; i++) {
            c[i] = rng_below(r, 40);
            u[i] = 50 - c[i] + rng_below(r, 12);
        }
        cost[v] = c;
        uint32_t lo = rng_below(r, 4) ? v : 0;
        demand[p->ndemands++] = (ap_demand){v, lo, lo == v ? v + 1 + rng_below(r, 3) : n + 3, u};
    }
    for (uint32_t v = 1; v < n; v++)
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t u = i == 0 || v < 3 ? v - 1 : v - 2 - rng_below(r, 2), size = ns[u] * ns[v];
            if (i == 1 && rng_below(r, 2))
                continue;
            int64_t *c = AP_NEW_ARRAY(a, int64_t, size), *held = AP_NEW_ARRAY(a, int64_t, size);
            for (uint32_t j = 0; j < size; j++) {
                c[j] = rng_below(r, 20) ? rng_below(r, 30) : AP_FORBIDDEN;
                held[j] = rng_below(r, 3) ? rng_below(r, 40) : 0;
            }
            if (rng_below(r, 4))
                pair[p->npair_demands++] = (ap_pair_demand){p->nedges, v, v + 1, held};
            edge[p->nedges++] = (ap_problem_edge){u, v, c};
        }
}

/* Without elimination there is no ascent: presolve and branch and cut alone must find the same. */
static void test_wide(void **state)
{
    (void)state;
    rng r = {91};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t same = 0, by_ascent = 0, rounds = test_rounds(40);
    for (uint32_t i = 0; i < rounds; i++, ap_arena_reset(&ctx->scratch)) {
        ap_problem p;
        ap_solution free, a, b;
        ap_solve_options opt, plain;
        ap_solve_defaults(&opt);
        chain_with_pairs(&r, &ctx->scratch, &p);
        p.limit = INT64_MAX;
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &free), AP_OK);
        if (free.result != AP_SOLVED)
            continue;
        p.limit = free.peak * (60 + rng_below(&r, 35)) / 100;
        plain = opt;
        plain.eliminate = false;
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &a), AP_OK);
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &plain, &b), AP_OK);
        assert_int_equal(a.result, b.result);
        if (a.result != AP_SOLVED)
            continue;
        assert_int_equal(a.cost, b.cost);
        assert_int_equal(a.bound, a.cost);
        by_ascent += strcmp(a.proof, "multipliers") == 0;
        same++;
    }
    print_message("wide: %u of %u solved, %u by multipliers\n", same, rounds, by_ascent);
    assert_true(same > rounds / 4 && by_ascent >= rounds / 40);
    ap_ctx_release(ctx);
}

static void test_twice(void **state)
{
    (void)state;
    rng r = {77};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < 200; i++) {
        ap_problem p;
        random_problem(&r, &ctx->scratch, &(shape){10, 5, 1u << 20, 1, i % 2 == 0}, &p);
        ap_solve_options opt;
        ap_solve_defaults(&opt);
        ap_solution a, b;
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &a), AP_OK);
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &b), AP_OK);
        assert_int_equal(a.result, b.result);
        if (a.result == AP_SOLVED)
            assert_memory_equal(a.choice, b.choice, p.nnodes * sizeof *a.choice);
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

/* Whoever asks for the answer at once gets something true: no choice that does not fit, no proof that is none. */
static void test_stopped(void **state)
{
    (void)state;
    static const atomic_int over = 1;
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    opt.stop = &over;
    compare(&(shape){9, 4, 600, 1, false}, &opt, 31, test_rounds(1500), false);
    compare(&(shape){8, 6, 2000, 1000, true}, &opt, 32, test_rounds(500), false);
}

/* ---- large numbers ---- */

static __int128 magnitude(const ap_problem *p)
{
    ap_kernel k;
    ap_kernel_range range;
    k.p = *p;
    ap_kernel_range_get(&k, &range);
    return range.magnitude;
}

/* The problem with costs times the largest factor that keeps their absolute sum below the limit. */
static void enlarge(ap_arena *a, ap_problem *p)
{
    int64_t factor = (int64_t)((AP_COST_MAX - 1) / (magnitude(p) + 1));
    int64_t **cost = AP_NEW_ARRAY(a, int64_t *, p->nnodes);
    ap_problem_edge *edge = ap_arena_memdup(a, p->edge, p->nedges * sizeof *edge);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        cost[v] = ap_arena_memdup(a, p->cost[v], p->nstrategies[v] * sizeof **cost);
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            cost[v][i] *= cost[v][i] == AP_FORBIDDEN ? 1 : factor;
    }
    for (uint32_t e = 0; e < p->nedges; e++) {
        size_t n = (size_t)p->nstrategies[edge[e].u] * p->nstrategies[edge[e].v];
        int64_t *c = ap_arena_memdup(a, edge[e].cost, n * sizeof *c);
        for (size_t i = 0; i < n; i++)
            c[i] *= c[i] == AP_FORBIDDEN ? 1 : factor;
        edge[e].cost = c;
    }
    p->cost = (const int64_t *const *)cost;
    p->edge = edge;
}

/* Costs up to what the solver takes: nothing is refused and nothing leaves the range on the way. */
static void test_large_costs(void **state)
{
    (void)state;
    rng r = {41};
    tally t = {0};
    ap_ctx *ctx = ap_ctx_create();
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    uint32_t rounds = test_rounds(2000);
    for (uint32_t i = 0; i < rounds; i++, ap_arena_reset(&ctx->scratch)) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        int64_t least = INT64_MAX;
        random_problem(&r, a, &(shape){10, 5, 2000, i % 3 ? 1 : 1000, i % 2 == 0}, &p);
        enlarge(a, &p);
        assert_true(magnitude(&p) < AP_COST_MAX && (magnitude(&p) == 0 || magnitude(&p) > AP_COST_MAX / 4));
        bool expect = ap_problem_brute_force(a, &p, AP_NEW_ARRAY(a, uint32_t, p.nnodes), &least);
        one_problem(ctx, a, &p, &opt, expect, least, false, &t);
    }
    print_message("large costs: %u solved (%u proven), %u infeasible\n", t.solved, t.proven, t.infeasible);
    assert_true(t.solved > rounds / 4 && t.not_found == 0);
    ap_ctx_release(ctx);
}

/* ---- refusal ---- */

static const int64_t two[2] = {1, 2}, four[4] = {1, 2, 3, 4}, minus[2] = {1, -1};

static void refuse(const ap_problem *p, const char *text)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    ap_solution s;
    assert_int_equal(ap_solve(ctx, &ctx->scratch, p, &opt, &s), AP_ERR_MODEL);
    assert_int_equal(ctx->diags.len, 1);
    assert_non_null(strstr(ctx->diags.at[0].text, text));
    ap_ctx_release(ctx);
}

static void test_malformed(void **state)
{
    (void)state;
    const uint32_t ns[2] = {2, 2}, none[2] = {2, 0};
    const int64_t *const cost[2] = {two, two};
    ap_problem_edge edge = {0, 1, four};
    ap_demand demand = {0, 0, 3, two};
    ap_pair_demand pair = {0, 0, 3, four};
    const ap_problem good = {2, ns, cost, 1, &edge, 1, &demand, 1, &pair, 9};
    ap_problem p = good;
    p.nstrategies = none;
    refuse(&p, "no strategy at node 1");
    p = good;
    edge.v = 2;
    refuse(&p, "ends of edge 0");
    edge.v = 0;
    refuse(&p, "ends of edge 0");
    edge.v = 1;
    demand.node = 7;
    refuse(&p, "node of demand 0");
    demand.node = 0;
    demand.usage = minus;
    refuse(&p, "negative usage in demand 0");
    demand.usage = two;
    pair.edge = 1;
    refuse(&p, "edge of pair demand 0");
    pair.edge = 0;
    const int64_t huge[2] = {INT64_MAX - 1, 0};
    const int64_t *const dear[2] = {huge, huge};
    p.cost = dear;
    refuse(&p, "costs are too large");
    p = good;
    demand.usage = huge;
    refuse(&p, "memory demands are too large");
}

/* The four numbers of a solution on a problem that can be done by hand. */
static void test_by_hand(void **state)
{
    (void)state;
    const uint32_t ns[2] = {2, 2};
    const int64_t cheap_big[2] = {10, 50}, usage[2] = {8, 3}, move[4] = {0, 5, 5, 0};
    const int64_t *const cost[2] = {cheap_big, cheap_big};
    const ap_problem_edge edge = {0, 1, move};
    const ap_demand demand[2] = {{0, 0, 4, usage}, {1, 2, 6, usage}};
    ap_problem p = {2, ns, cost, 1, &edge, 2, demand, 0, NULL, 16};
    ap_ctx *ctx = ap_ctx_create();
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    ap_solution s;
    const int64_t limit[4] = {16, 15, 10, 5}, expect[3] = {20, 65, 100}, peak[3] = {16, 11, 6};
    for (int i = 0; i < 3; i++) {
        p.limit = limit[i];
        assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &s), AP_OK);
        assert_int_equal(s.result, AP_SOLVED);
        assert_int_equal(s.cost, expect[i]);
        assert_int_equal(s.bound, expect[i]);
        assert_int_equal(s.peak, peak[i]);
    }
    p.limit = limit[3];
    assert_int_equal(ap_solve(ctx, &ctx->scratch, &p, &opt, &s), AP_OK);
    assert_int_equal(s.result, AP_SOLVE_INFEASIBLE);
    assert_int_equal(s.least_peak, 6);
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),  cmocka_unit_test(test_malformed),   cmocka_unit_test(test_all_parts),
        cmocka_unit_test(test_switches), cmocka_unit_test(test_wide),        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_stopped),  cmocka_unit_test(test_large_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
