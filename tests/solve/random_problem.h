/* Random problems for the solver's tests. Small numbers, so that ties, limits met exactly and dominated strategies
 * are common. */
#ifndef AP_TESTS_SOLVE_RANDOM_PROBLEM_H
#define AP_TESTS_SOLVE_RANDOM_PROBLEM_H

#include "passes/solve/problem.h"

#include <stdlib.h>

typedef struct rng {
    uint64_t s;
} rng;

static inline uint64_t rng_next(rng *r)
{
    uint64_t z = (r->s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t rng_below(rng *r, uint32_t n)
{
    return (uint32_t)(rng_next(r) % n);
}

typedef struct shape {
    uint32_t max_nodes, max_strategies;
    uint64_t max_product;
    int64_t cost_unit; /* costs are multiples of it, plus a little */
    bool hard;         /* denser, all with memory, dear strategies hold less, a limit that binds */
} shape;

static inline int64_t random_cost(rng *r, const shape *s, uint32_t forbid, bool negative)
{
    if (rng_below(r, 100) < forbid)
        return AP_FORBIDDEN;
    int64_t c = (int64_t)rng_below(r, 12) * s->cost_unit;
    if (s->cost_unit > 1)
        c += rng_below(r, 3);
    return negative && rng_below(r, 3) == 0 ? -c : c;
}

static inline const int64_t *random_usage(rng *r, ap_arena *a, size_t n)
{
    int64_t *u = AP_NEW_ARRAY(a, int64_t, n);
    for (size_t i = 0; i < n; i++)
        u[i] = rng_below(r, 4) == 0 ? 0 : rng_below(r, 10);
    return u;
}

static inline void random_interval(rng *r, uint32_t *lo, uint32_t *hi)
{
    *lo = rng_below(r, 8);
    *hi = rng_below(r, 8) == 0 ? *lo : *lo + rng_below(r, 5); /* sometimes empty */
    if (rng_below(r, 20) == 0)
        *hi = *lo > 0 ? *lo - 1 : 0;
}

static inline const int64_t *random_matrix(rng *r, ap_arena *a, const shape *s, uint32_t nu, uint32_t nv, bool negative)
{
    int64_t *c = AP_NEW_ARRAY(a, int64_t, (size_t)nu * nv);
    uint32_t kind = rng_below(r, 10);
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++)
            c[i * nv + j] = random_cost(r, s, kind < 3 ? 25 : 3, negative);
    if (kind == 9) /* decomposable */
        for (uint32_t i = 0; i < nu; i++)
            for (uint32_t j = 0; j < nv; j++)
                c[i * nv + j] = (int64_t)(i * 3 % 5 + j * 2 % 7) * s->cost_unit;
    if (kind == 8) /* the second follows the first */
        for (uint32_t i = 0; i < nu; i++)
            for (uint32_t j = 0; j < nv; j++)
                c[i * nv + j] = j == i % nv ? (int64_t)i : AP_FORBIDDEN;
    return c;
}

/* Little for presolve to take: general costs, memory against cost, a limit between the least and the usual. */
static inline void harden(rng *r, ap_arena *a, const shape *s, ap_problem *p)
{
    ap_demand *demand = AP_NEW_ARRAY(a, ap_demand, p->nnodes);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, p->nnodes);
    int64_t least = 0, most = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        int64_t *c = AP_NEW_ARRAY(a, int64_t, p->nstrategies[v]), *u = AP_NEW_ARRAY(a, int64_t, p->nstrategies[v]);
        int64_t lo = INT64_MAX, hi = 0;
        for (uint32_t i = 0; i < p->nstrategies[v]; i++) {
            c[i] = (int64_t)rng_below(r, 40) * s->cost_unit;
            u[i] = 60 - c[i] / s->cost_unit + rng_below(r, 12);
            lo = ap_min_i64(lo, u[i]);
            hi = ap_max_i64(hi, u[i]);
        }
        cost[v] = c;
        least += lo;
        most += hi;
        demand[v] = (ap_demand){v, rng_below(r, 3), 3 + rng_below(r, 3), u};
    }
    p->cost = cost;
    p->ndemands = p->nnodes;
    p->demand = demand;
    p->npair_demands = 0;
    p->limit = least + (most - least) * (10 + rng_below(r, 60)) / 100;
}

static inline void random_problem(rng *r, ap_arena *a, const shape *s, ap_problem *p)
{
    uint32_t n = 1 + rng_below(r, s->max_nodes), *ns = AP_NEW_ARRAY(a, uint32_t, n);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, n);
    bool negative = rng_below(r, 2) == 0;
    uint64_t product = 1;
    *p = (ap_problem){.nnodes = n, .nstrategies = ns, .cost = cost, .limit = INT64_MAX};
    for (uint32_t v = 0; v < n; v++) {
        ns[v] = 1 + rng_below(r, s->max_strategies);
        if (product * ns[v] > s->max_product)
            ns[v] = 1 + rng_below(r, 2);
        if (product * ns[v] > s->max_product)
            ns[v] = 1;
        product *= ns[v];
        int64_t *c = AP_NEW_ARRAY(a, int64_t, ns[v]);
        for (uint32_t i = 0; i < ns[v]; i++)
            c[i] = random_cost(r, s, 4, negative);
        cost[v] = c;
    }
    p->nedges = n > 1 ? rng_below(r, (s->hard ? 3 : 2) * n) : 0;
    ap_problem_edge *edge = AP_NEW_ARRAY(a, ap_problem_edge, p->nedges);
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t u = rng_below(r, n), v = (u + 1 + rng_below(r, rng_below(r, 2) ? n - 1 : 1)) % n;
        edge[e] = (ap_problem_edge){u, v, random_matrix(r, a, s, ns[u], ns[v], negative)};
    }
    p->edge = edge;
    if (s->hard) {
        harden(r, a, s, p);
        return;
    }
    if (rng_below(r, 4) == 0)
        return; /* no limit */
    p->ndemands = rng_below(r, 2 * n);
    ap_demand *demand = AP_NEW_ARRAY(a, ap_demand, p->ndemands);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        demand[d].node = rng_below(r, n);
        random_interval(r, &demand[d].lo, &demand[d].hi);
        demand[d].usage = random_usage(r, a, ns[demand[d].node]);
    }
    p->demand = demand;
    p->npair_demands = p->nedges > 0 && rng_below(r, 2) ? rng_below(r, 1 + p->nedges) : 0;
    ap_pair_demand *pair = AP_NEW_ARRAY(a, ap_pair_demand, p->npair_demands);
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        pair[d].edge = rng_below(r, p->nedges);
        random_interval(r, &pair[d].lo, &pair[d].hi);
        pair[d].usage = random_usage(r, a, (size_t)ns[edge[pair[d].edge].u] * ns[edge[pair[d].edge].v]);
    }
    p->pair_demand = pair;
    p->limit = rng_below(r, 4 + 3 * n);
}

/* How many random problems a test tries: `often`; a tenth of it when AP_TESTS_QUICK is set, ten times when
 * AP_TESTS_LONG is. */
static inline uint32_t test_rounds(uint32_t often)
{
    return getenv("AP_TESTS_QUICK") ? often / 10 : getenv("AP_TESTS_LONG") ? often * 10 : often;
}

#endif
