/* The parts for blocks that elimination cannot hold, each against enumeration: bounds and fixing of the ascent at
 * random prices, the ledger against a plain array, rounds of ascent, search and branching to the end, and the same
 * answer on one and on two threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/solve/climb.h"
#include "passes/solve/large.h"
#include "passes/solve/ledger.h"
#include "passes/solve/pair_climb.h"
#include "tests/solve/random_problem.h"

#include <string.h>

static bool next_choice(const ap_problem *p, uint32_t *x)
{
    for (uint32_t v = p->nnodes; v-- > 0;) {
        if (++x[v] < p->nstrategies[v])
            return true;
        x[v] = 0;
    }
    return false;
}

static bool kernel_fits(const ap_kernel *k, const uint32_t *x, int64_t *use)
{
    ap_kernel_usage(k, x, use);
    return ap_kernel_fits(k, use);
}

/* The cheapest choice; INT64_MAX when there is none. */
static int64_t kernel_least(ap_arena *a, const ap_kernel *k)
{
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, k->p.nnodes);
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows), cost, least = INT64_MAX;
    do {
        if (ap_kernel_cost(k, x, &cost) && cost < least && kernel_fits(k, x, use))
            least = cost;
    } while (next_choice(&k->p, x));
    return least;
}

/* Most edges hold something, so that memory stands on pairs as well as on nodes. */
static void add_pairs(rng *r, ap_arena *a, ap_problem *p)
{
    ap_pair_demand *pair = AP_NEW_ARRAY(a, ap_pair_demand, 2 * (size_t)p->nedges);
    p->npair_demands = p->nedges > 0 ? rng_below(r, 2 * p->nedges) : 0;
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        pair[d].edge = rng_below(r, p->nedges);
        pair[d].lo = rng_below(r, 5);
        pair[d].hi = pair[d].lo + rng_below(r, 4);
        size_t n = (size_t)p->nstrategies[p->edge[pair[d].edge].u] * p->nstrategies[p->edge[pair[d].edge].v];
        int64_t *usage = AP_NEW_ARRAY(a, int64_t, n);
        for (size_t i = 0; i < n; i++)
            usage[i] = rng_below(r, 3) ? rng_below(r, 30) : 0;
        pair[d].usage = usage;
    }
    p->pair_demand = pair;
    p->limit += rng_below(r, 4) * p->npair_demands;
}

static bool random_kernel(rng *r, ap_arena *a, const shape *s, bool pairs, ap_kernel *k)
{
    ap_problem p;
    ap_kernel_range range;
    random_problem(r, a, s, &p);
    p.npair_demands = 0;
    if (pairs && p.limit != INT64_MAX)
        add_pairs(r, a, &p);
    ap_kernel_from_problem(a, &p, k);
    for (uint32_t i = 0; i < k->nrows; i++)
        if (k->rhs[i] < 0)
            return false;
    return ap_kernel_range_get(k, &range);
}

/* What is cheaper than the cutoff and fits keeps its strategies and entries. */
static void check_fixed(ap_arena *a, const ap_net *net, int64_t cutoff, const bool *drop, int64_t *const *edge)
{
    const ap_kernel *k = net->k;
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, net->n);
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows), cost;
    do {
        if (!ap_kernel_cost(k, x, &cost) || cost >= cutoff || !kernel_fits(k, x, use))
            continue;
        for (uint32_t v = 0; v < net->n; v++)
            assert_false(drop[net->at[v] + x[v]]);
        for (uint32_t e = 0; e < k->p.nedges; e++) {
            const ap_problem_edge *y = &k->p.edge[e];
            assert_int_not_equal(edge[e][x[y->u] * k->p.nstrategies[y->v] + x[y->v]], AP_FORBIDDEN);
        }
    } while (next_choice(&k->p, x));
}

static uint64_t fix_one(ap_arena *a, ap_ascent *s, int64_t cutoff)
{
    const ap_net *net = s->net;
    bool *drop = AP_NEW_ARRAY(a, bool, net->at[net->n]);
    int64_t *node = AP_NEW_ARRAY(a, int64_t, net->at[net->n]);
    int64_t **edge = AP_NEW_ARRAY(a, int64_t *, net->k->p.nedges);
    for (uint32_t e = 0; e < net->k->p.nedges; e++) {
        const ap_problem_edge *x = &net->k->p.edge[e];
        edge[e] = ap_arena_memdup(a, x->cost, (size_t)net->size[x->u] * net->size[x->v] * sizeof(int64_t));
    }
    uint64_t fixed = ap_ascent_fix(s, cutoff, drop, NULL);
    fixed += ap_ascent_fix_edges(s, cutoff, node, edge);
    check_fixed(a, net, cutoff, drop, edge);
    return fixed;
}

static void test_ascent(void **state)
{
    (void)state;
    rng r = {21};
    ap_ctx *ctx = ap_ctx_create();
    ap_arena *a = &ctx->scratch;
    uint64_t tight = 0, fixed = 0, solved = 0;
    for (uint32_t i = 0; i < test_rounds(1500); i++, ap_arena_reset(a)) {
        ap_kernel k;
        int64_t unit = i % 2 ? 1 : 1000000;
        if (!random_kernel(&r, a, &(shape){9, 4, 500, unit, i % 3 == 1}, i % 5 < 3, &k))
            continue;
        int64_t least = kernel_least(a, &k), bound = INT64_MIN;
        ap_ascent *s = ap_ascent_create(a, ap_net_create(a, &k, INT64_MAX));
        for (int round = 0; round < 12; round++) {
            for (uint32_t t = 0; t < k.nrows && round < 8; t++)
                s->prices->lambda[t] = rng_below(&r, 3) ? 0 : (double)(rng_below(&r, 40) * (uint64_t)unit) / 17;
            ap_prices_set(s->prices);
            bound = ap_max_i64(bound, ap_ascent_pass(s, true, round % 2 == 0));
            bound = ap_max_i64(bound, ap_ascent_pass(s, false, round % 2 == 1));
            assert_true(bound <= least);
        }
        tight += least != INT64_MAX && bound == least;
        solved += least != INT64_MAX;
        fixed += fix_one(a, s, (least == INT64_MAX ? 50 * unit : least + (int64_t)rng_below(&r, 4) * unit) + 1);
    }
    print_message("ascent: bound met in %u of %u, %u fixed\n", (unsigned)tight, (unsigned)solved, (unsigned)fixed);
    assert_true(tight > solved / 10 && fixed > solved);
    ap_ctx_release(ctx);
}

static void test_ledger(void **state)
{
    (void)state;
    rng r = {5};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < 200; i++, ap_arena_reset(&ctx->scratch)) {
        uint32_t rows = 1 + rng_below(&r, 40);
        int64_t use[40], rhs[40];
        ap_ledger l;
        for (uint32_t t = 0; t < rows; t++) {
            use[t] = rng_below(&r, 100);
            rhs[t] = rng_below(&r, 100);
        }
        ap_ledger_init(&l, &ctx->scratch, rows);
        ap_ledger_set(&l, use, rhs);
        for (int step = 0; step < 60; step++) {
            uint32_t lo = rng_below(&r, rows), hi = lo + rng_below(&r, rows - lo + 1);
            int64_t bytes = (int64_t)rng_below(&r, 41) - 20, most = INT64_MIN, all = INT64_MIN;
            ap_ledger_add(&l, lo, hi, bytes);
            for (uint32_t t = 0; t < rows; t++) {
                use[t] += lo <= t && t < hi ? bytes : 0;
                all = ap_max_i64(all, use[t] - rhs[t]);
            }
            lo = rng_below(&r, rows);
            hi = lo + rng_below(&r, rows - lo) + 1;
            for (uint32_t t = lo; t < hi; t++)
                most = ap_max_i64(most, use[t] - rhs[t]);
            assert_int_equal(ap_ledger_most(&l, lo, hi), most);
            assert_true(ap_ledger_fits(&l) == (all <= 0));
            assert_int_equal(use[ap_ledger_worst(&l)] - rhs[ap_ledger_worst(&l)], all);
        }
    }
    ap_ctx_release(ctx);
}

typedef struct answer {
    ap_large large;
    bool found;
    int64_t cost;
} answer;

static void run(ap_ctx *ctx, const ap_kernel *k, int64_t cutoff, uint32_t threads, int64_t work, answer *out)
{
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    opt.threads = threads;
    opt.presolve = false; /* nothing is handed on: it goes to the end by itself */
    ap_solver s = {.ctx = ctx, .arena = &ctx->scratch, .opt = &opt, .effort = {.work = work}};
    ap_local *l = ap_local_create(&ctx->scratch, k);
    ap_large_run(&s, k, l, cutoff, INT64_MAX, true, &out->large);
    out->found = l->found;
    out->cost = l->found ? l->best_cost : 0;
}

static void test_rounds_to_the_end(void **state)
{
    (void)state;
    rng r = {31};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t closed = 0, all = 0, none = 0;
    for (uint32_t i = 0; i < test_rounds(400); i++, ap_arena_reset(&ctx->scratch)) {
        ap_kernel k;
        if (!random_kernel(&r, &ctx->scratch, &(shape){9, 5, 2000, i % 2 ? 1 : 1000, i % 4 != 0}, false, &k))
            continue;
        int64_t least = kernel_least(&ctx->scratch, &k);
        int64_t cutoff = i % 3 == 0 && least != INT64_MAX ? least + (int64_t)rng_below(&r, 3) - 1 : INT64_MAX;
        answer a;
        run(ctx, &k, cutoff, 1, 4000000, &a);
        all++;
        assert_true(!a.found || a.cost >= least);
        assert_true(a.large.bound <= ap_max_i64(least, cutoff == INT64_MAX ? least : cutoff));
        if (least < cutoff) {
            assert_true(a.found);
            assert_int_equal(a.cost, least);
            assert_int_equal(a.large.bound, least);
            assert_false(a.large.infeasible);
            closed++;
        } else {
            assert_true(a.large.infeasible);
            none++;
        }
    }
    print_message("rounds: %u kernels, %u solved, %u without a choice below the cutoff\n", all, closed, none);
    assert_true(closed > all / 4 && none > all / 20);
    ap_ctx_release(ctx);
}

/* Ascent and tree where pairs have demands, to the end. */
static void run_pairs(ap_ctx *ctx, const ap_kernel *k, int64_t cutoff, answer *out)
{
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    opt.presolve = false;
    ap_solver s = {.ctx = ctx, .arena = &ctx->scratch, .opt = &opt, .effort = {.work = 4000000}};
    ap_local *l = ap_local_create(&ctx->scratch, k);
    ap_pair_climb *g = ap_pair_climb_create(&s, k, l, cutoff);
    ap_pair_climb_run(g, &out->large);
    int64_t least = l->found ? ap_min_i64(l->best_cost, cutoff) : cutoff, before = out->large.bound;
    if (before < least)
        ap_pair_climb_branch(g, INT64_MAX, &out->large);
    assert_true(out->large.bound >= before);
    out->found = l->found;
    out->cost = l->found ? l->best_cost : 0;
}

static void test_pairs_to_the_end(void **state)
{
    (void)state;
    rng r = {51};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t closed = 0, all = 0, none = 0;
    for (uint32_t i = 0; i < test_rounds(400); i++, ap_arena_reset(&ctx->scratch)) {
        ap_kernel k;
        if (!random_kernel(&r, &ctx->scratch, &(shape){9, 5, 2000, i % 2 ? 1 : 1000, i % 4 != 0}, true, &k))
            continue;
        int64_t least = kernel_least(&ctx->scratch, &k);
        int64_t cutoff = i % 3 == 0 && least != INT64_MAX ? least + (int64_t)rng_below(&r, 3) - 1 : INT64_MAX;
        answer a;
        run_pairs(ctx, &k, cutoff, &a);
        all++;
        assert_true(!a.found || a.cost >= least);
        if (least < cutoff) {
            assert_true(a.found);
            assert_int_equal(a.cost, least);
            assert_int_equal(a.large.bound, least);
            assert_false(a.large.infeasible);
            closed += k.p.npair_demands > 0;
        } else {
            assert_true(a.large.infeasible);
            none += k.p.npair_demands > 0;
        }
    }
    print_message("pairs: %u kernels, %u with pairs solved, %u without a choice below the cutoff\n", all, closed, none);
    assert_true(closed > all / 4 && none > all / 20);
    ap_ctx_release(ctx);
}

/* The same on one thread and on two. */
static void test_threads(void **state)
{
    (void)state;
    rng r = {41};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < 20; i++, ap_arena_reset(&ctx->scratch)) {
        ap_kernel k;
        if (!random_kernel(&r, &ctx->scratch, &(shape){40, 9, UINT64_MAX, 1000, i % 2 == 0}, false, &k))
            continue;
        answer one, two;
        run(ctx, &k, INT64_MAX, 1, 300000, &one);
        run(ctx, &k, INT64_MAX, 2, 300000, &two);
        assert_int_equal(one.found, two.found);
        assert_int_equal(one.cost, two.cost);
        assert_int_equal(one.large.bound, two.large.bound);
    }
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ascent),
        cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_rounds_to_the_end),
        cmocka_unit_test(test_pairs_to_the_end),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
