/* Presolve that keeps two nodes, then elimination up to them (eliminate.c), for those who know problems but no
 * kernels. */
#include "passes/solve/ends.h"

#include "passes/solve/eliminate.h"
#include "passes/solve/presolve.h"

#include <string.h>

struct ap_ends {
    ap_arena *arena;
    ap_problem p; /* with scaled edges, without demands */
    uint32_t end[2];
    uint32_t n[2]; /* their strategies in p; 1 where there is no node */
    /* of a run */
    ap_pre *pre;
    ap_kernel left;
    ap_elim *e;
    uint32_t kept;
    int64_t **cost;
    uint32_t *index[2]; /* per strategy: its index in `left`, AP_NONE: gone */
    uint32_t *choice;   /* of `left`, scratch */
};

ap_ends *ap_ends_create(ap_arena *arena, const ap_problem *p, int64_t scale, uint32_t a, uint32_t b)
{
    ap_ends *x = AP_NEW(arena, ap_ends);
    *x = (ap_ends){.arena = arena, .p = *p, .end = {a, b}};
    x->kept = (a != AP_NONE) + (b != AP_NONE);
    x->p.ndemands = x->p.npair_demands = 0;
    x->p.limit = INT64_MAX;
    ap_problem_edge *edge = AP_NEW_ARRAY(arena, ap_problem_edge, p->nedges);
    for (uint32_t e = 0; e < p->nedges; e++) {
        size_t n = (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
        int64_t *cost = AP_NEW_ARRAY(arena, int64_t, n);
        for (size_t i = 0; i < n; i++)
            cost[i] = p->edge[e].cost[i] == AP_FORBIDDEN ? AP_FORBIDDEN : p->edge[e].cost[i] * scale;
        edge[e] = (ap_problem_edge){p->edge[e].u, p->edge[e].v, cost};
    }
    x->p.edge = edge;
    for (int i = 0; i < 2; i++)
        x->n[i] = x->end[i] == AP_NONE ? 1 : p->nstrategies[x->end[i]];
    return x;
}

static bool presolve(ap_ends *x, const int64_t *const *node_cost)
{
    ap_kernel k;
    x->p.cost = node_cost;
    ap_kernel_from_problem(x->arena, &x->p, &k);
    x->pre = ap_pre_create(x->arena, &k);
    for (int i = 0; i < 2; i++)
        if (x->end[i] != AP_NONE)
            x->pre->node[x->end[i]].keep = true;
    ap_pre_run(x->pre);
    if (x->pre->overflow || x->pre->infeasible)
        return false;
    ap_pre_extract(x->pre, &x->left);
    for (int i = 0; i < 2; i++) {
        x->index[i] = AP_NEW_ARRAY(x->arena, uint32_t, x->n[i]);
        if (x->end[i] == AP_NONE)
            continue;
        for (uint32_t s = 0; s < x->n[i]; s++)
            x->index[i][s] = AP_NONE;
        for (uint32_t s = 0; s < x->pre->node[x->end[i]].n; s++)
            x->index[i][x->pre->node[x->end[i]].id[s]] = s;
    }
    return true;
}

static bool plan(ap_ends *x, uint64_t most)
{
    const ap_problem *q = &x->left.p;
    bool *last = AP_NEW_ARRAY(x->arena, bool, q->nnodes);
    for (int i = 0; i < 2; i++)
        if (x->end[i] != AP_NONE)
            last[x->pre->place[x->end[i]]] = true;
    x->e = ap_elim_plan_keeping(x->arena, &x->left, most, last);
    if (!x->e->exact || x->e->work > most || x->e->entries > most)
        return false;
    ap_elim_allocate(x->e);
    for (uint32_t e = 0; e < q->nedges; e++)
        ap_elim_set_edge(x->e, e, q->edge[e].cost, 1);
    x->cost = AP_NEW_ARRAY(x->arena, int64_t *, q->nnodes);
    x->choice = AP_NEW_ARRAY(x->arena, uint32_t, q->nnodes);
    for (uint32_t v = 0; v < q->nnodes; v++) {
        x->cost[v] = AP_NEW_ARRAY(x->arena, int64_t, q->nstrategies[v]);
        for (uint32_t i = 0; i < q->nstrategies[v]; i++)
            x->cost[v][i] = q->cost[v][i] == AP_FORBIDDEN ? AP_ELIM_INF : q->cost[v][i];
    }
    return true;
}

bool ap_ends_run(ap_ends *x, const int64_t *const *node_cost, uint64_t most, int64_t *out)
{
    size_t size = (size_t)x->n[0] * x->n[1];
    for (size_t i = 0; i < size; i++)
        out[i] = AP_FORBIDDEN;
    if (!presolve(x, node_cost))
        return x->pre->infeasible && !x->pre->overflow;
    if (!plan(x, most))
        return false;
    uint32_t n[2];
    for (int i = 0; i < 2; i++)
        n[i] = x->end[i] == AP_NONE ? 1 : x->left.p.nstrategies[x->pre->place[x->end[i]]];
    int64_t *total = AP_NEW_ARRAY(x->arena, int64_t, (size_t)n[0] * n[1]);
    ap_elim_run_ends(x->e, x->cost, x->kept, total);
    for (uint32_t i = 0; i < x->n[0]; i++)
        for (uint32_t j = 0; j < x->n[1]; j++) {
            uint32_t a = x->index[0][i], b = x->index[1][j];
            if (a == AP_NONE || b == AP_NONE || AP_ELIM_FORBIDDEN(total[(size_t)a * n[1] + b]))
                continue;
            out[(size_t)i * x->n[1] + j] = total[(size_t)a * n[1] + b] + x->pre->constant;
        }
    return true;
}

void ap_ends_decode(const ap_ends *x, uint32_t of_a, uint32_t of_b, uint32_t *choice)
{
    const uint32_t of[2] = {of_a, of_b};
    for (int i = 0; i < 2; i++)
        if (x->end[i] != AP_NONE)
            x->choice[x->pre->place[x->end[i]]] = x->index[i][of[i]];
    ap_elim_decode_ends(x->e, x->cost, x->kept, x->choice);
    ap_pre_undo(x->pre, x->choice, choice);
}
