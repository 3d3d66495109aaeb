/* The parts of the solver one by one against enumeration: evaluation, memory rows, presolve with its undo,
 * elimination with its margins, the containment of GLPK. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/solve/dual.h"
#include "passes/solve/level.h"
#include "passes/solve/mip.h"
#include "passes/solve/presolve.h"
#include "tests/solve/random_problem.h"

#include <string.h>

static const shape small = {9, 4, 500, 1, false};

static bool next_choice(const ap_problem *p, uint32_t *x)
{
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (++x[v] < p->nstrategies[v])
            return true;
        x[v] = 0;
    }
    return false;
}

/* ---- evaluation ---- */

/* Second by second. */
static bool evaluate_slowly(const ap_problem *p, const uint32_t *x, int64_t *cost, int64_t *peak)
{
    *cost = *peak = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (p->cost[v][x[v]] == AP_FORBIDDEN)
            return false;
        *cost += p->cost[v][x[v]];
    }
    for (uint32_t e = 0; e < p->nedges; e++) {
        int64_t c = p->edge[e].cost[x[p->edge[e].u] * p->nstrategies[p->edge[e].v] + x[p->edge[e].v]];
        if (c == AP_FORBIDDEN)
            return false;
        *cost += c;
    }
    for (uint32_t t = 0; t < 16; t++) {
        int64_t use = 0;
        for (uint32_t d = 0; d < p->ndemands; d++)
            if (t >= p->demand[d].lo && t < p->demand[d].hi)
                use += p->demand[d].usage[x[p->demand[d].node]];
        for (uint32_t d = 0; d < p->npair_demands; d++) {
            const ap_problem_edge *e = &p->edge[p->pair_demand[d].edge];
            if (t >= p->pair_demand[d].lo && t < p->pair_demand[d].hi)
                use += p->pair_demand[d].usage[x[e->u] * p->nstrategies[e->v] + x[e->v]];
        }
        *peak = ap_max_i64(*peak, use);
    }
    return *peak <= p->limit;
}

static void test_evaluate(void **state)
{
    (void)state;
    rng r = {5};
    ap_ctx *ctx = ap_ctx_create();
    for (int i = 0; i < 1000; i++) {
        ap_problem p;
        random_problem(&r, &ctx->scratch, &small, &p);
        uint32_t *x = AP_NEW_ARRAY(&ctx->scratch, uint32_t, p.nnodes);
        do {
            int64_t cost, peak, cost2, peak2;
            bool ok = evaluate_slowly(&p, x, &cost, &peak);
            assert_int_equal(ok, ap_problem_evaluate(&p, x, &cost2, &peak2));
            if (ok) {
                assert_int_equal(cost, cost2);
                if (p.limit != INT64_MAX)
                    assert_int_equal(peak, peak2);
            }
        } while (next_choice(&p, x));
        x[0] = p.nstrategies[0];
        assert_false(ap_problem_evaluate(&p, x, NULL, NULL));
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

/* A kernel accepts exactly the choices that the problem accepts, at the same cost. */
static void test_rows(void **state)
{
    (void)state;
    rng r = {6};
    ap_ctx *ctx = ap_ctx_create();
    for (int i = 0; i < 1000; i++) {
        ap_problem p;
        ap_kernel k;
        random_problem(&r, &ctx->scratch, &small, &p);
        ap_kernel_from_problem(&ctx->scratch, &p, &k);
        uint32_t *x = AP_NEW_ARRAY(&ctx->scratch, uint32_t, p.nnodes);
        int64_t *use = AP_NEW_ARRAY(&ctx->scratch, int64_t, k.nrows), cost, cost2;
        do {
            bool ok = ap_problem_evaluate(&p, x, &cost, NULL), allowed = ap_kernel_cost(&k, x, &cost2);
            ap_kernel_usage(&k, x, use);
            assert_int_equal(ok, allowed && ap_kernel_fits(&k, use));
            if (ok)
                assert_int_equal(cost, cost2);
        } while (next_choice(&p, x));
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

static bool kernel_brute(ap_arena *a, const ap_kernel *k, uint32_t *best, int64_t *least)
{
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, k->p.nnodes);
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows), cost;
    bool found = false;
    do {
        ap_kernel_usage(k, x, use);
        if (!ap_kernel_cost(k, x, &cost) || !ap_kernel_fits(k, use) || (found && cost >= *least))
            continue;
        found = true;
        *least = cost;
        memcpy(best, x, k->p.nnodes * sizeof *x);
    } while (next_choice(&k->p, x));
    return found;
}

/* ---- presolve ---- */

typedef struct presolved {
    uint64_t nodes, left, not_empty, late, lines, strategies, strategies_left, edges, edges_left, rows, rows_left;
} presolved;

static void count(const ap_kernel *k, uint64_t *strategies, uint64_t *edges, uint64_t *rows)
{
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        *strategies += k->p.nstrategies[v];
    *edges += k->p.nedges;
    *rows += k->nrows;
}

static const atomic_int over = 1;

/* One random problem by some of the rules: what is left has the same optimum, and it leads back to one. stop_after:
 * when the time is over, in steps, at most 15; 0: never. */
static void presolve_one(ap_ctx *ctx, rng *r, const shape *sh, uint32_t rules, uint32_t stop_after, presolved *t)
{
    ap_arena *a = &ctx->scratch;
    ap_problem p;
    ap_kernel k, rest;
    random_problem(r, a, sh, &p);
    uint32_t *best = AP_NEW_ARRAY(a, uint32_t, p.nnodes), *x = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
    int64_t least = 0, left = 0, cost;
    bool expect = ap_problem_brute_force(a, &p, best, &least), found = false;
    ap_kernel_from_problem(a, &p, &k);
    ap_pre *s = ap_pre_create(a, &k);
    s->rules = rules;
    s->effort.stop = stop_after > 0 ? &over : NULL;
    s->visits = 16 - stop_after;
    ap_pre_run(s);
    assert_false(s->overflow);
    assert_true(stop_after > 0 || !s->late);
    t->late += s->late;
    t->nodes += p.nnodes;
    if (!s->infeasible) {
        ap_pre_extract(s, &rest);
        found = kernel_brute(a, &rest, best, &left);
        t->left += rest.p.nnodes;
        t->not_empty += rest.p.nnodes > 0;
        t->lines += s->log.len;
        count(&k, &t->strategies, &t->edges, &t->rows);
        count(&rest, &t->strategies_left, &t->edges_left, &t->rows_left);
        assert_int_equal(rest.p.nnodes + s->log.len, p.nnodes);
    }
    assert_int_equal(found, expect);
    if (found) {
        ap_pre_undo(s, best, x);
        assert_int_equal(left + s->constant, least);
        assert_true(ap_problem_evaluate(&p, x, &cost, NULL));
        assert_int_equal(cost, least);
    }
    ap_arena_reset(a);
}

static void test_presolve(void **state)
{
    (void)state;
    rng r = {7};
    ap_ctx *ctx = ap_ctx_create();
    presolved t = {0};
    for (uint32_t i = 0; i < test_rounds(20000); i++)
        presolve_one(ctx, &r, &small, AP_PRE_ALL, 0, &t);
    print_message("presolve: %u of %u nodes left, %u problems not empty\n", (unsigned)t.left, (unsigned)t.nodes,
                  (unsigned)t.not_empty);
    assert_true(t.left < t.nodes / 2 && t.not_empty > test_rounds(20000) / 200 && t.lines > test_rounds(20000) / 20);
    ap_ctx_release(ctx);
}

/* Wherever the clock ends it. */
static void test_presolve_late(void **state)
{
    (void)state;
    rng r = {17};
    ap_ctx *ctx = ap_ctx_create();
    presolved t = {0};
    uint32_t rounds = test_rounds(4000);
    for (uint32_t i = 0; i < rounds; i++)
        presolve_one(ctx, &r, &(shape){9, 4, 500, 1, i % 4 == 3}, AP_PRE_ALL, 1 + i % 15, &t);
    print_message("presolve, stopped: %u of %u problems, %u of %u nodes left\n", (unsigned)t.late, rounds,
                  (unsigned)t.left, (unsigned)t.nodes);
    assert_true(t.late > rounds / 2);
    ap_ctx_release(ctx);
}

/* Each rule alone, and all but that one. */
static void test_rules(void **state)
{
    (void)state;
    static const char *const name[] = {"single",  "dominated", "eliminate", "minima", "follow",
                                       "demands", "large",     "slack",     "covered"};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < sizeof name / sizeof *name; i++) {
        rng r = {100 + i};
        presolved alone = {0}, without = {0};
        for (uint32_t k = 0; k < test_rounds(2000); k++)
            presolve_one(ctx, &r, &(shape){9, 4, 500, 1, k % 4 == 3}, 1u << i, 0, &alone);
        for (uint32_t k = 0; k < test_rounds(1000); k++)
            presolve_one(ctx, &r, &(shape){9, 4, 500, 1, k % 4 == 3}, AP_PRE_ALL & ~(1u << i), 0, &without);
        print_message("presolve by %s alone: %u of %u nodes, %u of %u strategies, %u of %u edges, %u of %u rows left\n",
                      name[i], (unsigned)alone.left, (unsigned)alone.nodes, (unsigned)alone.strategies_left,
                      (unsigned)alone.strategies, (unsigned)alone.edges_left, (unsigned)alone.edges,
                      (unsigned)alone.rows_left, (unsigned)alone.rows);
        assert_true(alone.left + alone.strategies_left + alone.edges_left + alone.rows_left <
                    alone.nodes + alone.strategies + alone.edges + alone.rows);
        assert_true(without.lines > test_rounds(1000) / 10);
    }
    ap_ctx_release(ctx);
}

/* ---- pairs as nodes ---- */

/* Forbids some node costs and some entries of edges between nodes of the original. */
static void forbid_some(ap_arena *a, rng *r, const ap_pairs *s, uint32_t before, ap_kernel *out)
{
    *out = s->k;
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, out->p.nnodes);
    ap_problem_edge *edge = ap_arena_memdup(a, out->p.edge, out->p.nedges * sizeof *edge);
    for (uint32_t v = 0; v < out->p.nnodes; v++) {
        int64_t *c = ap_arena_memdup(a, s->k.p.cost[v], s->k.p.nstrategies[v] * sizeof *c);
        for (uint32_t i = 0; i < s->k.p.nstrategies[v]; i++)
            c[i] = rng_below(r, 6) == 0 ? AP_FORBIDDEN : c[i];
        cost[v] = c;
    }
    for (uint32_t e = 0; e < out->p.nedges; e++) {
        size_t n = (size_t)out->p.nstrategies[edge[e].u] * out->p.nstrategies[edge[e].v];
        int64_t *c = ap_arena_memdup(a, edge[e].cost, n * sizeof *c);
        for (size_t i = 0; i < n && edge[e].v < before; i++)
            c[i] = rng_below(r, 6) == 0 ? AP_FORBIDDEN : c[i];
        edge[e].cost = c;
    }
    out->p.cost = cost;
    out->p.edge = edge;
}

/* Of one choice: the same cost and use, forbidden together; beside another pair nothing is allowed. */
static void compare_split(ap_arena *a, rng *r, const ap_kernel *k, const ap_pairs *s, const ap_kernel *fixed,
                          const ap_kernel *back, const uint32_t *x)
{
    uint32_t *y = AP_NEW_ARRAY(a, uint32_t, s->k.p.nnodes), w = k->p.nnodes;
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows), *use2 = AP_NEW_ARRAY(a, int64_t, k->nrows), cost, cost2;
    ap_pairs_choice(s, k, x, y);
    bool ok = ap_kernel_cost(k, x, &cost), ok2 = ap_kernel_cost(&s->k, y, &cost2);
    assert_int_equal(ok, ok2);
    if (!ok)
        return;
    assert_int_equal(cost, cost2);
    ap_kernel_usage(k, x, use);
    ap_kernel_usage(&s->k, y, use2);
    assert_memory_equal(use, use2, k->nrows * sizeof *use);
    assert_int_equal(ap_kernel_cost(fixed, y, &cost2), ap_kernel_cost(back, x, &cost2));
    w += rng_below(r, s->k.p.nnodes - w);
    y[w] = (y[w] + 1) % s->k.p.nstrategies[w];
    assert_int_equal(s->k.p.nstrategies[w] == 1, ap_kernel_cost(&s->k, y, &cost2));
}

static void test_pairs(void **state)
{
    (void)state;
    rng r = {12};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t split = 0;
    for (uint32_t i = 0; i < test_rounds(2000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_kernel k, fixed, back;
        ap_pairs s;
        random_problem(&r, a, &(shape){7, 4, 200, 1, false}, &p);
        ap_kernel_from_problem(a, &p, &k);
        if (!ap_pairs_split(a, &k, 1 << 20, &s)) {
            ap_arena_reset(a);
            continue;
        }
        assert_int_equal(s.k.p.npair_demands, 0);
        assert_false(ap_pairs_split(a, &k, 1, &s));
        assert_true(ap_pairs_split(a, &k, 1 << 20, &s));
        forbid_some(a, &r, &s, p.nnodes, &fixed);
        ap_pairs_fixed(a, &s, &k, &fixed, &back);
        uint32_t *x = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
        do
            compare_split(a, &r, &k, &s, &fixed, &back, x);
        while (next_choice(&p, x));
        split++;
        ap_arena_reset(a);
    }
    assert_true(split > test_rounds(2000) / 10);
    ap_ctx_release(ctx);
}

/* ---- elimination ---- */

static int64_t **costs_of(ap_arena *a, const ap_kernel *k)
{
    int64_t **c = AP_NEW_ARRAY(a, int64_t *, k->p.nnodes);
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        c[v] = AP_NEW_ARRAY(a, int64_t, k->p.nstrategies[v]);
        for (uint32_t i = 0; i < k->p.nstrategies[v]; i++)
            c[v][i] = k->p.cost[v][i] == AP_FORBIDDEN ? AP_ELIM_INF : k->p.cost[v][i];
    }
    return c;
}

/* Margins of all strategies and entries by enumeration. */
static void check_margins(ap_arena *a, const ap_kernel *k, ap_elim *e, int64_t *const *cost)
{
    const ap_problem *p = &k->p;
    int64_t **got = AP_NEW_ARRAY(a, int64_t *, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++)
        got[v] = AP_NEW_ARRAY(a, int64_t, p->nstrategies[v]);
    ap_elim_margins(e, cost, got);
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, p->nnodes);
    int64_t **want = AP_NEW_ARRAY(a, int64_t *, p->nnodes), **pair = AP_NEW_ARRAY(a, int64_t *, p->nedges), c;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        want[v] = AP_NEW_ARRAY(a, int64_t, p->nstrategies[v]);
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            want[v][i] = INT64_MAX;
    }
    for (uint32_t f = 0; f < p->nedges; f++) {
        size_t n = (size_t)p->nstrategies[p->edge[f].u] * p->nstrategies[p->edge[f].v];
        pair[f] = AP_NEW_ARRAY(a, int64_t, n);
        for (size_t i = 0; i < n; i++)
            pair[f][i] = INT64_MAX;
    }
    do {
        if (!ap_kernel_cost(k, x, &c))
            continue;
        for (uint32_t v = 0; v < p->nnodes; v++)
            want[v][x[v]] = ap_min_i64(want[v][x[v]], c);
        for (uint32_t f = 0; f < p->nedges; f++) {
            int64_t *m = &pair[f][x[p->edge[f].u] * p->nstrategies[p->edge[f].v] + x[p->edge[f].v]];
            *m = ap_min_i64(*m, c);
        }
    } while (next_choice(p, x));
    for (uint32_t v = 0; v < p->nnodes; v++)
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            assert_int_equal(AP_ELIM_FORBIDDEN(got[v][i]) ? INT64_MAX : got[v][i], want[v][i]);
    for (uint32_t f = 0; f < p->nedges; f++)
        for (uint32_t i = 0; i < p->nstrategies[p->edge[f].u]; i++)
            for (uint32_t j = 0; j < p->nstrategies[p->edge[f].v]; j++) {
                int64_t m = e->table.at[f].margin[ap_elim_entry(e, f, i, j)];
                assert_int_equal(AP_ELIM_FORBIDDEN(m) ? INT64_MAX : m, pair[f][i * p->nstrategies[p->edge[f].v] + j]);
            }
}

static void test_eliminate(void **state)
{
    (void)state;
    rng r = {8};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t inexact = 0;
    for (uint32_t i = 0; i < test_rounds(5000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_kernel k;
        random_problem(&r, a, &small, &p);
        p.limit = INT64_MAX;
        ap_kernel_from_problem(a, &p, &k);
        uint32_t *best = AP_NEW_ARRAY(a, uint32_t, p.nnodes), *x = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
        int64_t least = 0, cost, **own = costs_of(a, &k);
        bool expect = kernel_brute(a, &k, best, &least);
        for (uint64_t cap = 1; cap <= 100000; cap = cap == 1 ? 8 : cap * 100) { /* mini-buckets, then exact */
            ap_elim *e = ap_elim_plan(a, &k, cap);
            ap_elim_allocate(e);
            for (uint32_t f = 0; f < p.nedges; f++)
                ap_elim_set_edge(e, f, p.edge[f].cost, 1);
            int64_t value = ap_elim_run(e, own, x);
            if (!e->exact) {
                inexact++;
                assert_true(!expect || value <= least);
                continue;
            }
            assert_int_equal(AP_ELIM_FORBIDDEN(value), !expect);
            if (expect) {
                assert_int_equal(value, least);
                assert_true(ap_kernel_cost(&k, x, &cost));
                assert_int_equal(cost, least);
            }
            check_margins(a, &k, e, own);
        }
        ap_arena_reset(a);
    }
    assert_true(inexact > test_rounds(5000) / 100);
    ap_ctx_release(ctx);
}

/* Two nodes kept: each pair of their strategies against elimination with the two fixed, and a choice that costs that.
 */
static void check_ends(ap_arena *a, const ap_kernel *k, int64_t *const *own, uint32_t u, uint32_t v)
{
    bool *last = AP_NEW_ARRAY(a, bool, k->p.nnodes);
    last[u] = last[v] = true;
    uint32_t kept = u == v ? 1 : 2, nu = k->p.nstrategies[u], nv = u == v ? 1 : k->p.nstrategies[v];
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, k->p.nnodes);
    ap_elim *e = ap_elim_plan_keeping(a, k, 1000000, last);
    ap_elim_allocate(e);
    for (uint32_t f = 0; f < k->p.nedges; f++)
        ap_elim_set_edge(e, f, k->p.edge[f].cost, 1);
    int64_t *table = AP_NEW_ARRAY(a, int64_t, (size_t)nu * nv), cost;
    ap_elim_run_ends(e, own, kept, table);
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++) {
            int64_t **fixed = AP_NEW_ARRAY(a, int64_t *, k->p.nnodes);
            for (uint32_t w = 0; w < k->p.nnodes; w++) {
                fixed[w] = ap_arena_memdup(a, own[w], k->p.nstrategies[w] * sizeof *own[w]);
                for (uint32_t s = 0; s < k->p.nstrategies[w]; s++)
                    if ((w == u && s != i) || (w == v && w != u && s != j))
                        fixed[w][s] = AP_ELIM_INF;
            }
            int64_t value = table[(size_t)i * nv + j], least = ap_elim_run(e, fixed, x);
            assert_int_equal(AP_ELIM_FORBIDDEN(value), AP_ELIM_FORBIDDEN(least));
            if (AP_ELIM_FORBIDDEN(value))
                continue;
            assert_int_equal(value, least);
            x[u] = i;
            if (u != v)
                x[v] = j;
            ap_elim_run_ends(e, own, kept, table);
            ap_elim_decode_ends(e, own, kept, x);
            assert_true(ap_kernel_cost(k, x, &cost));
            assert_int_equal(cost, value);
        }
}

static void test_ends(void **state)
{
    (void)state;
    rng r = {18};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < test_rounds(2000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_kernel k;
        random_problem(&r, a, &small, &p);
        p.limit = INT64_MAX;
        ap_kernel_from_problem(a, &p, &k);
        uint32_t u = i % p.nnodes, v = i / 7 % p.nnodes;
        check_ends(a, &k, costs_of(a, &k), u < v ? u : v, u < v ? v : u);
        ap_arena_reset(a);
    }
    ap_ctx_release(ctx);
}

/* ---- multipliers ---- */

/* What is fixed is in no choice that fits and is cheaper than the cutoff. */
static void check_fixed(ap_arena *a, const ap_kernel *k, const ap_dual *d, int64_t cutoff)
{
    uint32_t *x = AP_NEW_ARRAY(a, uint32_t, k->p.nnodes);
    int64_t *use = AP_NEW_ARRAY(a, int64_t, k->nrows), cost;
    do {
        ap_kernel_usage(k, x, use);
        if (!ap_kernel_cost(k, x, &cost) || cost >= cutoff || !ap_kernel_fits(k, use))
            continue;
        size_t at = 0;
        for (uint32_t v = 0; v < k->p.nnodes; at += k->p.nstrategies[v++])
            assert_false(d->drop[at + x[v]]);
        for (uint32_t e = 0; e < k->p.nedges; e++) {
            const ap_problem_edge *y = &k->p.edge[e];
            assert_int_not_equal(d->edge[e][x[y->u] * k->p.nstrategies[y->v] + x[y->v]], AP_FORBIDDEN);
        }
    } while (next_choice(&k->p, x));
}

static void test_multipliers(void **state)
{
    (void)state;
    rng r = {10};
    ap_ctx *ctx = ap_ctx_create();
    uint64_t priced = 0, closed = 0, dropped = 0, inexact = 0;
    for (uint32_t i = 0; i < test_rounds(6000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_kernel k;
        ap_effort effort = {.work = INT64_MAX};
        random_problem(&r, a, &(shape){9, 4, 500, i % 2 ? 1 : 1000000, i % 3 == 1}, &p);
        ap_kernel_from_problem(a, &p, &k);
        uint32_t *best = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
        int64_t least = 0;
        bool expect = kernel_brute(a, &k, best, &least);
        ap_kernel_range range;
        if (!ap_kernel_range_get(&k, &range))
            continue;
        ap_elim *e = ap_elim_plan(a, &k, i % 5 == 0 ? 4 : 1 << 20);
        ap_elim_allocate(e);
        ap_local *l = ap_local_create(a, &k);
        ap_dual *d = ap_dual_create(a, &k, e, l, &effort);
        ap_dual_run(d, INT64_MAX);
        assert_false(d->infeasible && expect);
        inexact += !e->exact;
        if (l->found) {
            assert_true(expect && l->best_cost >= least);
            assert_true(d->bound <= least);
            priced += k.nrows > 0;
            closed += k.nrows > 0 && d->bound == least;
        }
        if (!d->infeasible && e->exact) {
            int64_t cutoff = expect ? least + (int64_t)rng_below(&r, 4) * (i % 2 ? 1 : 1000000) : 5;
            ap_dual_fix(d, cutoff + 1);
            dropped += d->dropped;
            check_fixed(a, &k, d, cutoff + 1);
        }
        ap_arena_reset(a);
    }
    print_message("multipliers: %u problems with rows, %u closed, %u strategies fixed, %u mini-buckets\n",
                  (unsigned)priced, (unsigned)closed, (unsigned)dropped, (unsigned)inexact);
    assert_true(closed > priced / 4 && dropped > test_rounds(6000) / 6 && inexact > test_rounds(6000) / 300);
    ap_ctx_release(ctx);
}

/* ---- GLPK ---- */

/* A master without cuts is misuse: GLPK raises an error inside, which must end the call and nothing else. */
static void test_glpk_contained(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    double lo = 0, hi = 1, x = -1, value, slope[2] = {-3, 2}, nan_slope = 0.0 / 0.0;
    ap_mip_cut cut[2] = {{9, &slope[0]}, {1, &slope[1]}};
    for (int i = 0; i < 3; i++) {
        assert_false(ap_mip_master(&ctx->scratch, 0, NULL, 1, &lo, &hi, &x, &value));
        hi = 4;
        assert_true(ap_mip_master(&ctx->scratch, 2, cut, 1, &lo, &hi, &x, &value));
        assert_true(x > 1.59 && x < 1.61 && value > 4.19 && value < 4.21); /* 9 - 3x = 1 + 2x */
        ap_mip_cut bad = {1, &nan_slope};
        assert_false(ap_mip_master(&ctx->scratch, 1, &bad, 1, &lo, &hi, &x, &value));
    }
    ap_ctx_release(ctx);
}

/* Branch and cut alone, without a start. */
static void test_mip(void **state)
{
    (void)state;
    rng r = {9};
    ap_ctx *ctx = ap_ctx_create();
    for (uint32_t i = 0; i < test_rounds(2000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_kernel k;
        ap_mip_result m;
        ap_effort effort = {.work = INT64_MAX};
        random_problem(&r, a, &(shape){9, 4, 500, i % 2 ? 1 : 1000000, i % 3 == 1}, &p);
        ap_kernel_from_problem(a, &p, &k);
        uint32_t *best = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
        int64_t least = 0, cutoff = INT64_MAX;
        bool expect = kernel_brute(a, &k, best, &least);
        if (expect && i % 3 == 0)
            cutoff = least + 1;
        ap_mip_solve(a, &k, &effort, NULL, cutoff, NULL, &m);
        assert_int_equal(m.state, expect ? AP_MIP_OPTIMAL : AP_MIP_INFEASIBLE);
        assert_int_equal(m.found, expect);
        if (expect) {
            assert_int_equal(m.cost, least);
            assert_true(m.bound <= least && m.bound >= least - (i % 2 ? 0 : 100));
        }
        ap_arena_reset(a);
    }
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluate),    cmocka_unit_test(test_rows),           cmocka_unit_test(test_presolve),
        cmocka_unit_test(test_rules),       cmocka_unit_test(test_pairs),          cmocka_unit_test(test_eliminate),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_glpk_contained), cmocka_unit_test(test_mip),
        cmocka_unit_test(test_multipliers), cmocka_unit_test(test_presolve_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
