/* All combinations of strategies, depth first in node order: the reference that the solver is tested against. */
#include "passes/solve/problem.h"

#include <string.h>

typedef struct brute {
    const ap_problem *p;
    uint32_t *choice, *best;
    __int128 best_cost;
    bool found;
    uint32_t npoints;
    uint32_t *point; /* points of time at which something starts */
    int64_t *use;    /* [node + 1][point]: held by nodes before the node */
} brute;

/* What node v with its present choice adds, together with edges to earlier nodes. False: forbidden or too much. */
static bool place(brute *b, uint32_t v, __int128 *cost)
{
    const ap_problem *p = b->p;
    if (p->cost[v][b->choice[v]] == AP_FORBIDDEN)
        return false;
    *cost += p->cost[v][b->choice[v]];
    int64_t *use = b->use + (size_t)(v + 1) * b->npoints;
    memcpy(use, b->use + (size_t)v * b->npoints, b->npoints * sizeof *use);
    for (uint32_t d = 0; d < p->ndemands; d++)
        if (p->demand[d].node == v)
            for (uint32_t t = 0; t < b->npoints; t++)
                if (p->demand[d].lo <= b->point[t] && b->point[t] < p->demand[d].hi)
                    use[t] = ap_sat_add(use[t], p->demand[d].usage[b->choice[v]]);
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t s = p->edge[e].u, t = p->edge[e].v;
        if ((s > t ? s : t) != v)
            continue;
        size_t at = (size_t)b->choice[s] * p->nstrategies[t] + b->choice[t];
        if (p->edge[e].cost[at] == AP_FORBIDDEN)
            return false;
        *cost += p->edge[e].cost[at];
        for (uint32_t d = 0; d < p->npair_demands; d++)
            if (p->pair_demand[d].edge == e)
                for (uint32_t i = 0; i < b->npoints; i++)
                    if (p->pair_demand[d].lo <= b->point[i] && b->point[i] < p->pair_demand[d].hi)
                        use[i] = ap_sat_add(use[i], p->pair_demand[d].usage[at]);
    }
    for (uint32_t t = 0; t < b->npoints; t++)
        if (use[t] > p->limit)
            return false;
    return true;
}

static void descend(brute *b, uint32_t v, __int128 cost)
{
    if (v == b->p->nnodes) {
        if (!b->found || cost < b->best_cost) {
            b->found = true;
            b->best_cost = cost;
            memcpy(b->best, b->choice, v * sizeof *b->best);
        }
        return;
    }
    for (uint32_t i = 0; i < b->p->nstrategies[v]; i++) {
        __int128 sum = cost;
        b->choice[v] = i;
        if (place(b, v, &sum))
            descend(b, v + 1, sum);
    }
}

bool ap_problem_brute_force(ap_arena *arena, const ap_problem *p, uint32_t *out_choice, int64_t *out_cost)
{
    brute b = {.p = p, .choice = AP_NEW_ARRAY(arena, uint32_t, p->nnodes), .best = out_choice};
    b.point = AP_NEW_ARRAY(arena, uint32_t, (size_t)p->ndemands + p->npair_demands);
    if (p->limit != INT64_MAX) {
        for (uint32_t d = 0; d < p->ndemands; d++)
            b.point[b.npoints++] = p->demand[d].lo;
        for (uint32_t d = 0; d < p->npair_demands; d++)
            b.point[b.npoints++] = p->pair_demand[d].lo;
    }
    b.use = AP_NEW_ARRAY(arena, int64_t, ((size_t)p->nnodes + 1) * b.npoints);
    if (p->limit < 0)
        return false;
    descend(&b, 0, 0);
    if (!b.found)
        return false;
    *out_cost = (int64_t)b.best_cost;
    return true;
}
