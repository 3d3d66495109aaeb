/* Random choices of a planning problem, for the tests that try more than good ones. */
#ifndef AP_TESTS_PASSES_DRAW_CHOICE_H
#define AP_TESTS_PASSES_DRAW_CHOICE_H

#include "passes/solve/problem.h"
#include "tests/passes/plan_util.h"

/* Draws choices; each variable avoids what is forbidden with those before it where it can. */
static inline bool draw_choice(const ap_problem *p, uint64_t *state, uint32_t *choice, int64_t *cost, int64_t *peak)
{
    for (uint32_t v = 0; v < p->nnodes; v++) {
        for (int attempt = 0; attempt < 40; attempt++) {
            choice[v] = draw(state, p->nstrategies[v]);
            bool ok = true;
            for (uint32_t e = 0; e < p->nedges && ok; e++) {
                const ap_problem_edge *g = &p->edge[e];
                if ((g->u == v && g->v <= v) || (g->v == v && g->u <= v))
                    ok = g->cost[choice[g->u] * p->nstrategies[g->v] + choice[g->v]] != AP_FORBIDDEN;
            }
            if (ok)
                break;
        }
    }
    return ap_problem_evaluate(p, choice, cost, peak);
}

#endif
