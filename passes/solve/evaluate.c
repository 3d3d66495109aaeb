/* What a choice costs and how much memory it holds, in 128-bit integers, from the problem as it was stated.
 * Shares no code with the solver; every solution passes here before it is returned. */
#include "passes/solve/problem.h"

#include <stdlib.h>

typedef __int128 wide;

static bool sum_costs(const ap_problem *p, const uint32_t *choice, wide *out)
{
    wide sum = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        if (choice[v] >= p->nstrategies[v] || p->cost[v][choice[v]] == AP_FORBIDDEN)
            return false;
        sum += p->cost[v][choice[v]];
    }
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t u = p->edge[e].u, v = p->edge[e].v;
        int64_t c = p->edge[e].cost[(size_t)choice[u] * p->nstrategies[v] + choice[v]];
        if (c == AP_FORBIDDEN)
            return false;
        sum += c;
    }
    *out = sum;
    return true;
}

typedef struct change {
    uint32_t time;
    wide bytes;
} change;

/* At one point of time what ends goes before what starts. */
static int change_compare(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int64_t pair_usage(const ap_problem *p, const ap_pair_demand *d, const uint32_t *choice)
{
    const ap_problem_edge *e = &p->edge[d->edge];
    return d->usage[(size_t)choice[e->u] * p->nstrategies[e->v] + choice[e->v]];
}

/* The sum at one point of time, term by term. */
static wide usage_at(const ap_problem *p, const uint32_t *choice, uint32_t t)
{
    wide sum = 0;
    for (uint32_t d = 0; d < p->ndemands; d++)
        if (p->demand[d].lo <= t && t < p->demand[d].hi)
            sum += p->demand[d].usage[choice[p->demand[d].node]];
    for (uint32_t d = 0; d < p->npair_demands; d++)
        if (p->pair_demand[d].lo <= t && t < p->pair_demand[d].hi)
            sum += pair_usage(p, &p->pair_demand[d], choice);
    return sum;
}

/* The slow way, when there is no memory for the list of changes. */
static wide peak_by_starts(const ap_problem *p, const uint32_t *choice)
{
    wide peak = 0;
    for (uint32_t d = 0; d < p->ndemands; d++) {
        wide u = usage_at(p, choice, p->demand[d].lo);
        peak = u > peak ? u : peak;
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        wide u = usage_at(p, choice, p->pair_demand[d].lo);
        peak = u > peak ? u : peak;
    }
    return peak;
}

static size_t add_change(change *list, size_t n, uint32_t lo, uint32_t hi, int64_t bytes)
{
    if (lo >= hi || bytes == 0)
        return n;
    list[n++] = (change){lo, bytes};
    list[n++] = (change){hi, -(wide)bytes};
    return n;
}

static wide find_peak(const ap_problem *p, const uint32_t *choice)
{
    size_t total = 2 * ((size_t)p->ndemands + p->npair_demands), n = 0;
    change *list = malloc((total ? total : 1) * sizeof *list);
    if (!list)
        return peak_by_starts(p, choice);
    for (uint32_t d = 0; d < p->ndemands; d++)
        n = add_change(list, n, p->demand[d].lo, p->demand[d].hi, p->demand[d].usage[choice[p->demand[d].node]]);
    for (uint32_t d = 0; d < p->npair_demands; d++)
        n = add_change(list, n, p->pair_demand[d].lo, p->pair_demand[d].hi, pair_usage(p, &p->pair_demand[d], choice));
    qsort(list, n, sizeof *list, change_compare);
    wide now = 0, peak = 0;
    for (size_t i = 0; i < n; i++) {
        now += list[i].bytes;
        peak = now > peak ? now : peak;
    }
    free(list);
    return peak;
}

bool ap_problem_evaluate(const ap_problem *p, const uint32_t *choice, int64_t *out_cost, int64_t *out_peak)
{
    wide cost;
    if (!sum_costs(p, choice, &cost) || cost >= INT64_MAX || cost <= INT64_MIN)
        return false;
    wide peak = find_peak(p, choice);
    if (out_cost)
        *out_cost = (int64_t)cost;
    if (out_peak)
        *out_peak = peak > INT64_MAX ? INT64_MAX : (int64_t)peak;
    return p->limit == INT64_MAX || peak <= p->limit;
}
