/* Graphs shaped like a transformer's: ten nodes and fourteen edges a layer, 8 to 20 strategies a node, resharding
 * costs made from six layouts. Without a memory limit the answer is exact; with one that binds the gap is small.
 * Times and gaps are printed, not asserted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/solve/random_problem.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define LAYOUTS 6
#define PER_LAYER 10

typedef struct chain {
    ap_problem p;
    uint32_t *in, *out; /* layouts of a strategy: [node * 20 + strategy] */
} chain;

static const uint32_t links[14][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 5}, {4, 5},
                                      {5, 6}, {0, 6}, {6, 7}, {7, 8}, {8, 9}, {6, 9}, {9, 10}};

static void make_nodes(rng *r, ap_arena *a, chain *c, uint32_t n)
{
    uint32_t *ns = AP_NEW_ARRAY(a, uint32_t, n);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, n);
    c->in = AP_NEW_ARRAY(a, uint32_t, 20 * (size_t)n);
    c->out = AP_NEW_ARRAY(a, uint32_t, 20 * (size_t)n);
    for (uint32_t v = 0; v < n; v++) {
        ns[v] = 8 + rng_below(r, 13);
        int64_t *x = AP_NEW_ARRAY(a, int64_t, ns[v]);
        for (uint32_t i = 0; i < ns[v]; i++) {
            x[i] = 1000000 * (int64_t)(20 + rng_below(r, 180)) + rng_below(r, 1000000);
            c->in[20 * v + i] = rng_below(r, LAYOUTS);
            c->out[20 * v + i] = rng_below(r, LAYOUTS);
        }
        cost[v] = x;
    }
    c->p = (ap_problem){.nnodes = n, .nstrategies = ns, .cost = cost, .limit = INT64_MAX};
}

/* Every strategy holds memory during the node's layer and the two after it, or, with whole = true, always. Cheaper
 * ones hold more. */
static void make_demands(rng *r, ap_arena *a, chain *c, bool whole)
{
    ap_demand *d = AP_NEW_ARRAY(a, ap_demand, c->p.nnodes);
    for (uint32_t v = 0; v < c->p.nnodes; v++) {
        int64_t *u = AP_NEW_ARRAY(a, int64_t, c->p.nstrategies[v]);
        for (uint32_t i = 0; i < c->p.nstrategies[v]; i++)
            u[i] = (210000000 - c->p.cost[v][i]) * (1 + rng_below(r, 4)) / 16;
        uint32_t layer = v / PER_LAYER;
        d[v] = (ap_demand){v, whole ? 0 : layer, whole ? 1 : layer + 3, u};
    }
    c->p.ndemands = c->p.nnodes;
    c->p.demand = d;
}

static void make_chain(rng *r, ap_arena *a, chain *c, uint32_t layers, bool whole)
{
    uint32_t n = layers * PER_LAYER, m = 0;
    int64_t move[LAYOUTS][LAYOUTS];
    for (int i = 0; i < LAYOUTS; i++)
        for (int j = 0; j < LAYOUTS; j++)
            move[i][j] = i == j ? 0 : 1000000 * (int64_t)(10 + rng_below(r, 120)) + rng_below(r, 1000000);
    make_nodes(r, a, c, n);
    ap_problem_edge *edge = AP_NEW_ARRAY(a, ap_problem_edge, 14 * (size_t)layers);
    for (uint32_t l = 0; l < layers; l++) {
        for (uint32_t e = 0; e < 14; e++) {
            uint32_t u = l * PER_LAYER + links[e][0], v = l * PER_LAYER + links[e][1];
            if (v >= n)
                continue;
            uint32_t nu = c->p.nstrategies[u], nv = c->p.nstrategies[v];
            int64_t size = 1 + rng_below(r, 4), *cost = AP_NEW_ARRAY(a, int64_t, (size_t)nu * nv);
            for (uint32_t i = 0; i < nu; i++)
                for (uint32_t j = 0; j < nv; j++)
                    cost[i * nv + j] = size * move[c->out[20 * u + i]][c->in[20 * v + j]];
            edge[m++] = (ap_problem_edge){u, v, cost};
        }
    }
    c->p.edge = edge;
    c->p.nedges = m;
    make_demands(r, a, c, whole);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void solve(ap_ctx *ctx, ap_arena *a, const ap_problem *p, const char *what, uint32_t layers, ap_solution *s)
{
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    opt.work = 2000000; /* a fifth: gaps that stay open should not hold up the tests */
    double start = seconds();
    assert_int_equal(ap_solve(ctx, a, p, &opt, s), AP_OK);
    double gap = s->cost != 0 ? (double)(s->cost - s->bound) / (double)s->cost : 0;
    print_message("%2u layers, %-22s cost %" PRId64 " bound %" PRId64 " gap %.1e peak/limit %.4f, left %u nodes, %s, "
                  "%.2f s\n",
                  layers, what, s->cost, s->bound, gap, (double)s->peak / (double)p->limit, s->left_nodes, s->proof,
                  seconds() - start);
}

static int64_t least_peak(ap_ctx *ctx, ap_arena *a, const ap_problem *p)
{
    ap_problem tight = *p;
    tight.limit = 0;
    ap_solve_options opt;
    ap_solve_defaults(&opt);
    ap_solution s;
    assert_int_equal(ap_solve(ctx, a, &tight, &opt, &s), AP_OK);
    assert_int_equal(s.result, AP_SOLVE_INFEASIBLE);
    return s.least_peak;
}

static void one_chain(uint32_t layers, bool whole, uint64_t seed)
{
    ap_ctx *ctx = ap_ctx_create();
    ap_arena a;
    ap_arena_init(&a, ctx->arena.out_of_memory, ctx->arena.user);
    rng r = {seed};
    chain c;
    ap_solution free, limited;
    make_chain(&r, &a, &c, layers, whole);
    solve(ctx, &a, &c.p, "no limit", layers, &free);
    assert_int_equal(free.result, AP_SOLVED);
    assert_int_equal(free.bound, free.cost);
    int64_t least = least_peak(ctx, &a, &c.p);
    for (int i = 1; i <= 3; i += 2) { /* tight, mild */
        c.p.limit = least + (free.peak - least) * i / 5;
        solve(ctx, &a, &c.p, whole ? "one row" : "a row per layer", layers, &limited);
        assert_int_equal(limited.result, AP_SOLVED);
        assert_true(limited.bound >= free.cost);
        /* Many tight rows leave a gap that multipliers cannot close. */
        assert_true((double)(limited.cost - limited.bound) <= (whole ? 1e-2 : 3e-2) * (double)limited.cost);
    }
    ap_arena_deinit(&a);
    ap_ctx_release(ctx);
}

static void test_chains(void **state)
{
    (void)state;
    one_chain(6, true, 1);
    one_chain(6, false, 2);
    one_chain(24, true, 3);
    if (!getenv("AP_TESTS_LONG")) /* minutes under sanitizers; docs/solver.md has the figures */
        return;
    one_chain(24, false, 4);
    one_chain(48, true, 5);
    one_chain(96, true, 7);
    one_chain(48, false, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
