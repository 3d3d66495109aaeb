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
    uint32_t *first, *edge;          /* edges of each variable: edge[first[v]] .. edge[first[v + 1]] */
    uint32_t *first_demand, *demand; /* of each variable */
    uint32_t *first_pair, *pair;     /* pair demands of each edge */
    bool *seen;                      /* per edge, while a move is priced */
    int64_t peak;                    /* of `choice`, or more */
    AP_VEC(uint32_t) moved;          /* variables of the move in hand */
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

/* Numbers 0 ... n by what they belong to, of `owners`: list[first[o]] .. list[first[o + 1]]. */
static uint32_t *list_by(ap_arena *arena, uint32_t n, const uint32_t *owner, uint32_t owners, uint32_t **out_first)
{
    uint32_t *first = AP_NEW_ARRAY(arena, uint32_t, (size_t)owners + 2), *list = AP_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        first[owner[i] + 2]++;
    for (uint32_t o = 2; o < owners + 2; o++)
        first[o] += first[o - 1];
    for (uint32_t i = 0; i < n; i++)
        list[first[owner[i] + 1]++] = i;
    *out_first = first;
    return list;
}

static void list_demands(walker *w)
{
    const ap_problem *q = &w->p->problem;
    uint32_t *of_demand = AP_NEW_ARRAY(w->p->arena, uint32_t, q->ndemands);
    uint32_t *of_pair = AP_NEW_ARRAY(w->p->arena, uint32_t, q->npair_demands);
    for (uint32_t d = 0; d < q->ndemands; d++)
        of_demand[d] = q->demand[d].node;
    for (uint32_t d = 0; d < q->npair_demands; d++)
        of_pair[d] = q->pair_demand[d].edge;
    w->demand = list_by(w->p->arena, q->ndemands, of_demand, q->nnodes, &w->first_demand);
    w->pair = list_by(w->p->arena, q->npair_demands, of_pair, q->nedges, &w->first_pair);
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

static int64_t rise(int64_t from, int64_t to)
{
    return to > from ? to - from : 0;
}

/* What the move can add to the peak at most: all that grows, as if at one time. */
static int64_t growth(walker *w)
{
    const ap_problem *q = &w->p->problem;
    int64_t sum = 0;
    for (uint32_t i = 0; i < w->moved.len; i++) {
        uint32_t v = w->moved.at[i];
        for (uint32_t d = w->first_demand[v]; d < w->first_demand[v + 1]; d++) {
            const int64_t *usage = q->demand[w->demand[d]].usage;
            sum = ap_sat_add(sum, rise(usage[w->choice[v]], usage[w->trial[v]]));
        }
        for (uint32_t k = w->first[v]; k < w->first[v + 1]; k++) {
            uint32_t id = w->edge[k], n = q->nstrategies[q->edge[id].v];
            uint32_t u = q->edge[id].u, x = q->edge[id].v;
            for (uint32_t d = w->first_pair[id]; d < w->first_pair[id + 1]; d++) {
                const int64_t *usage = q->pair_demand[w->pair[d]].usage;
                sum =
                    ap_sat_add(sum, rise(usage[w->choice[u] * n + w->choice[x]], usage[w->trial[u] * n + w->trial[x]]));
            }
        }
    }
    return sum;
}

/* Looks at all points of time only when the bound does not do. */
static bool still_fits(walker *w, int64_t *out_peak)
{
    int64_t cost;
    *out_peak = ap_sat_add(w->peak, growth(w));
    return *out_peak <= w->p->problem.limit || ap_problem_evaluate(&w->p->problem, w->trial, &cost, out_peak);
}

/* Takes the label if it costs the same and still fits. */
static bool try_label(walker *w, const ap_plan_holder *h, uint32_t label)
{
    w->moved.len = 0;
    move(w, h, label);
    int64_t peak;
    bool same = price(w, w->trial) == price(w, w->choice) && still_fits(w, &peak);
    w->peak = same ? peak : w->peak;
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
    int64_t cost;
    if (!ap_problem_evaluate(&p->problem, choice, &cost, &w.peak))
        return;
    list_edges(&w);
    list_demands(&w);
    bool any = true;
    for (int round = 0; round < 4 && any; round++) {
        any = false;
        for (uint32_t h = 0; h < p->holders.len; h++)
            if (!p->holders.at[h].view)
                any = improve(&w, &p->holders.at[h]) || any;
    }
}
