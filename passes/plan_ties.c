/* Equal optima: fewer bytes first. The solver returns some optimum; this walks from it to one in which no
 * value could be kept in fewer bytes at the same cost (a weight that is only read in parts is then kept in
 * parts, instead of whole on every device and sliced for nothing). Views in place follow their operand.
 *
 * Nothing is added to the costs for that, so bound and optimum stay what the solver said. */
#include "passes/plan_problem.h"

#include <string.h>

typedef struct walker {
    ap_planning *p;
    uint32_t *choice, *trial;
    uint32_t *first, *edge; /* edges of each variable: edge[first[v]] .. edge[first[v + 1]] */
    bool *seen;             /* per edge, while a move is priced */
    AP_VEC(uint32_t) moved; /* variables of the move in hand */
} walker;

static void list_edges(walker *w)
{
    const ap_problem *q = &w->p->problem;
    ap_arena *arena = w->p->arena;
    w->first = AP_NEW_ARRAY(arena, uint32_t, q->nnodes + 2);
    w->edge = AP_NEW_ARRAY(arena, uint32_t, 2 * (size_t)q->nedges);
    w->seen = AP_NEW_ARRAY(arena, bool, q->nedges);
    uint32_t *at = w->first + 1; /* shifted by one while filling */
    for (uint32_t e = 0; e < q->nedges; e++) {
        at[q->edge[e].u + 1]++;
        at[q->edge[e].v + 1]++;
    }
    for (uint32_t v = 0; v < q->nnodes; v++)
        at[v + 1] += at[v];
    for (uint32_t e = 0; e < q->nedges; e++) {
        w->edge[at[q->edge[e].u]++] = e;
        w->edge[at[q->edge[e].v]++] = e;
    }
}

/* Own costs and edges of all moved variables, each edge once; AP_FORBIDDEN when one is. */
static int64_t price(walker *w, const uint32_t *choice)
{
    const ap_problem *q = &w->p->problem;
    int64_t sum = 0;
    bool forbidden = false;
    for (uint32_t i = 0; i < w->moved.len; i++) {
        uint32_t v = w->moved.at[i];
        sum += q->cost[v][choice[v]];
        for (uint32_t k = w->first[v]; k < w->first[v + 1]; k++) {
            const ap_problem_edge *e = &q->edge[w->edge[k]];
            int64_t c = e->cost[choice[e->u] * q->nstrategies[e->v] + choice[e->v]];
            if (w->seen[w->edge[k]])
                continue;
            w->seen[w->edge[k]] = true;
            forbidden = forbidden || c == AP_FORBIDDEN;
            sum = forbidden ? sum : ap_sat_add(sum, c);
        }
    }
    for (uint32_t i = 0; i < w->moved.len; i++)
        for (uint32_t k = w->first[w->moved.at[i]]; k < w->first[w->moved.at[i] + 1]; k++)
            w->seen[w->edge[k]] = false;
    return forbidden ? AP_FORBIDDEN : sum;
}

static void move(walker *w, const ap_plan_holder *h, uint32_t label)
{
    w->trial[h->var] = label;
    ap_vec_push(w->p->arena, &w->moved, h->var);
    for (uint32_t u = 0; u < h->nuses; u++) {
        const ap_plan_step *s = &w->p->steps.at[h->use[u].step];
        uint32_t in_place = s->view ? ap_plan_view_in_place(s, h->kept[label]) : AP_NONE;
        if (in_place != AP_NONE)
            move(w, &w->p->holders.at[w->p->holder_of[ap_node_at(w->p->m, s->node)->out[0]]], in_place);
    }
}

/* Takes the label if it costs the same and still fits. */
static bool try_label(walker *w, const ap_plan_holder *h, uint32_t label)
{
    w->moved.len = 0;
    move(w, h, label);
    int64_t cost, peak;
    bool same =
        price(w, w->trial) == price(w, w->choice) && ap_problem_evaluate(&w->p->problem, w->trial, &cost, &peak);
    uint32_t *from = same ? w->trial : w->choice, *to = same ? w->choice : w->trial;
    for (uint32_t i = 0; i < w->moved.len; i++)
        to[w->moved.at[i]] = from[w->moved.at[i]];
    return same;
}

static bool improve(walker *w, const ap_plan_holder *h)
{
    bool any = false;
    for (uint32_t l = 0; l < h->n; l++)
        if (h->bytes[l] < h->bytes[w->choice[h->var]])
            any = try_label(w, h, l) || any;
    return any;
}

void ap_planning_break_ties(ap_planning *p, uint32_t *choice)
{
    walker w = {.p = p, .choice = choice};
    w.trial = ap_arena_memdup(p->arena, choice, p->problem.nnodes * sizeof *choice);
    list_edges(&w);
    bool any = true;
    for (int round = 0; round < 4 && any; round++) {
        any = false;
        for (uint32_t h = 0; h < p->holders.len; h++)
            if (!p->holders.at[h].view)
                any = improve(&w, &p->holders.at[h]) || any;
    }
}
