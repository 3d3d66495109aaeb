/* How much memory is needed at least: the points of time that look worst, each minimised by itself. */
#include "passes/solve/level.h"

#define PEAK_WORK 1000000
#define PEAK_ROWS 8
#define PEAK_SECONDS 0.1
#define PEAK_ENTRIES ((uint64_t)1 << 20) /* beyond, presolving one row alone takes longer than that */

static size_t pairs_of(const ap_kernel *k, uint32_t e)
{
    return (size_t)k->p.nstrategies[k->p.edge[e].u] * k->p.nstrategies[k->p.edge[e].v];
}

static int64_t most_of(const int64_t *x, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = ap_max_i64(most, x[i]);
    return most;
}

/* Per row, the sum of what the smallest allowed strategies hold. */
static int64_t *least_usage(ap_solver *s, const ap_kernel *k)
{
    int64_t *hold = AP_NEW_ARRAY(s->arena, int64_t, (size_t)k->nrows + 1);
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        int64_t least = INT64_MAX;
        for (uint32_t i = 0; i < k->p.nstrategies[x->node]; i++)
            if (k->p.cost[x->node][i] != AP_FORBIDDEN)
                least = ap_min_i64(least, x->usage[i]);
        if (least == INT64_MAX)
            continue;
        hold[x->lo] += least;
        hold[x->hi] -= least;
    }
    for (uint32_t r = 1; r < k->nrows; r++)
        hold[r] += hold[r - 1];
    return hold;
}

/* By how many bits usages are shifted, rounded down, so that their sum is a cost that the solver takes. */
static int usage_shift(const ap_kernel *k)
{
    __int128 sum = 0;
    int shift = 0;
    for (uint32_t d = 0; d < k->p.ndemands; d++)
        sum += most_of(k->p.demand[d].usage, k->p.nstrategies[k->p.demand[d].node]);
    for (uint32_t d = 0; d < k->p.npair_demands; d++)
        sum += most_of(k->p.pair_demand[d].usage, pairs_of(k, k->p.pair_demand[d].edge));
    while (sum >> shift >= AP_COST_MAX / 4) /* presolve makes larger numbers of them */
        shift++;
    return shift;
}

/* The kernel in which a choice costs what it holds in one row, shifted. */
static void usage_kernel(ap_solver *s, const ap_kernel *k, uint32_t row, int shift, ap_kernel *out)
{
    *out = (ap_kernel){.p = k->p};
    out->p.ndemands = out->p.npair_demands = 0;
    int64_t **cost = AP_NEW_ARRAY(s->arena, int64_t *, k->p.nnodes);
    ap_problem_edge *edge = ap_arena_memdup(s->arena, k->p.edge, k->p.nedges * sizeof *edge);
    int64_t **pair = AP_NEW_ARRAY(s->arena, int64_t *, k->p.nedges);
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        cost[v] = AP_NEW_ARRAY(s->arena, int64_t, k->p.nstrategies[v]);
        for (uint32_t i = 0; i < k->p.nstrategies[v]; i++)
            cost[v][i] = k->p.cost[v][i] == AP_FORBIDDEN ? AP_FORBIDDEN : 0;
    }
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        for (uint32_t i = 0; x->lo <= row && row < x->hi && i < k->p.nstrategies[x->node]; i++)
            if (cost[x->node][i] != AP_FORBIDDEN)
                cost[x->node][i] += x->usage[i] >> shift;
    }
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        size_t n = pairs_of(k, e);
        pair[e] = AP_NEW_ARRAY(s->arena, int64_t, n);
        for (size_t i = 0; i < n; i++)
            pair[e][i] = edge[e].cost[i] == AP_FORBIDDEN ? AP_FORBIDDEN : 0;
        edge[e].cost = pair[e];
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        size_t n = pairs_of(k, x->edge);
        for (size_t i = 0; x->lo <= row && row < x->hi && i < n; i++)
            if (pair[x->edge][i] != AP_FORBIDDEN)
                pair[x->edge][i] += x->usage[i] >> shift;
    }
    out->p.cost = (const int64_t *const *)cost;
    out->p.edge = edge;
}

static uint64_t entries_of(const ap_kernel *k)
{
    uint64_t n = 0;
    for (uint32_t e = 0; e < k->p.nedges; e++)
        n += pairs_of(k, e);
    return n;
}

/* Row by row, those first whose smallest strategies hold most. */
static ap_status solve_rows(ap_solver *s, const ap_kernel *k, int64_t *hold, int64_t *out, bool *out_forbidden)
{
    ap_kernel one;
    ap_solve_options quick = *s->opt;
    quick.mip = false;
    quick.progress = NULL;
    ap_solver sub = {.ctx = s->ctx, .arena = s->arena, .opt = &quick, .effort = {.work = PEAK_WORK}};
    if (s->effort.deadline != 0) /* it is over: this may take a moment longer, not more */
        sub.effort.deadline = ap_effort_now() + PEAK_SECONDS;
    int shift = usage_shift(k);
    for (uint32_t i = 0; i < PEAK_ROWS && i < k->nrows && (i == 0 || !ap_effort_spent(&sub.effort)); i++) {
        uint32_t row = 0;
        for (uint32_t r = 1; r < k->nrows; r++)
            row = hold[r] > hold[row] ? r : row;
        ap_outcome r;
        usage_kernel(s, k, row, shift, &one);
        AP_TRY(ap_level_solve(&sub, &one, INT64_MAX, 0, &r));
        if (r.infeasible) {
            *out = 0;
            *out_forbidden = true;
            return AP_OK;
        }
        *out = ap_max_i64(*out, ap_max_i64(r.bound, 0) << shift);
        hold[row] = -1;
    }
    return AP_OK;
}

ap_status ap_peak_bound(ap_solver *s, const ap_problem *p, int64_t *out, bool *out_forbidden)
{
    ap_problem open = *p;
    open.limit = INT64_MAX - 1;
    ap_kernel k;
    ap_kernel_from_problem(s->arena, &open, &k);
    int64_t *hold = least_usage(s, &k);
    *out = 0;
    *out_forbidden = k.nrows == 0 && p->limit >= 0;
    for (uint32_t r = 0; r < k.nrows; r++)
        *out = ap_max_i64(*out, hold[r]);
    bool in_time = !ap_effort_late(&s->effort) || entries_of(&k) <= PEAK_ENTRIES;
    return in_time ? solve_rows(s, &k, hold, out, out_forbidden) : AP_OK;
}
