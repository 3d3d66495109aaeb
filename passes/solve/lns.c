/* Large-neighbourhood search. Two kinds of parts take turns: windows of consecutive nodes (problems are written in
 * program order) and what is near a node in the graph; they grow when a round brings nothing. A part is a small kernel
 * of its own: the other nodes have one strategy left, which presolve folds away. */
#include "passes/solve/level.h"

#include <string.h>

#define PART_LEAST 32
#define PART_MOST 80
#define PART_WORK 200000
#define GAIN 100
#define SHARE 3 /* at most one part in so many of the remaining work */

typedef struct lns {
    ap_solver *s;
    const ap_kernel *k;
    ap_local *l;
    bool *free; /* per node */
    int64_t enough;
    uint32_t nfree, size; /* how many are free, should be */
} lns;

static void free_node(lns *n, uint32_t v)
{
    n->nfree += !n->free[v];
    n->free[v] = true;
}

static void free_window(lns *n, uint32_t from)
{
    for (uint32_t v = from; v < n->k->p.nnodes && n->nfree < n->size; v++)
        free_node(n, v);
}

static void free_ball(lns *n, ap_arena *scratch, uint32_t centre)
{
    uint32_t *queue = AP_NEW_ARRAY(scratch, uint32_t, n->size), head = 0, tail = 0;
    free_node(n, centre);
    queue[tail++] = centre;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t i = n->l->edge_at[v]; i < n->l->edge_at[v + 1] && tail < n->size; i++) {
            const ap_problem_edge *e = &n->k->p.edge[n->l->edge_of[i]];
            uint32_t w = e->u == v ? e->v : e->u;
            if (!n->free[w]) {
                free_node(n, w);
                queue[tail++] = w;
            }
        }
    }
}

/* What of a node's or an edge's numbers remains: those of the strategies that stay. */
static const int64_t *restrict_edge(const lns *n, ap_arena *a, uint32_t e, const int64_t *from)
{
    const ap_problem_edge *x = &n->k->p.edge[e];
    uint32_t nv = n->k->p.nstrategies[x->v], nu = n->k->p.nstrategies[x->u];
    uint32_t i0 = n->free[x->u] ? 0 : n->l->best[x->u], i1 = n->free[x->u] ? nu : i0 + 1;
    uint32_t j0 = n->free[x->v] ? 0 : n->l->best[x->v], j1 = n->free[x->v] ? nv : j0 + 1;
    if (n->free[x->v])
        return from + (size_t)i0 * nv; /* whole rows stay */
    int64_t *to = AP_NEW_ARRAY(a, int64_t, (size_t)(i1 - i0) * (j1 - j0));
    for (uint32_t i = i0; i < i1; i++)
        memcpy(to + (size_t)(i - i0) * (j1 - j0), from + (size_t)i * nv + j0, (j1 - j0) * sizeof *to);
    return to;
}

static const int64_t *restrict_node(const lns *n, uint32_t v, const int64_t *from)
{
    return n->free[v] ? from : from + n->l->best[v];
}

static void restrict_kernel(const lns *n, ap_arena *a, ap_kernel *out)
{
    const ap_problem *p = &n->k->p;
    *out = *n->k;
    uint32_t *ns = AP_NEW_ARRAY(a, uint32_t, p->nnodes);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, p->nnodes);
    ap_problem_edge *edge = AP_NEW_ARRAY(a, ap_problem_edge, p->nedges);
    ap_demand *demand = AP_NEW_ARRAY(a, ap_demand, p->ndemands);
    ap_pair_demand *pair = AP_NEW_ARRAY(a, ap_pair_demand, p->npair_demands);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        ns[v] = n->free[v] ? p->nstrategies[v] : 1;
        cost[v] = restrict_node(n, v, p->cost[v]);
    }
    for (uint32_t e = 0; e < p->nedges; e++) {
        edge[e] = p->edge[e];
        edge[e].cost = restrict_edge(n, a, e, p->edge[e].cost);
    }
    for (uint32_t d = 0; d < p->ndemands; d++) {
        demand[d] = p->demand[d];
        demand[d].usage = restrict_node(n, demand[d].node, demand[d].usage);
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        pair[d] = p->pair_demand[d];
        pair[d].usage = restrict_edge(n, a, pair[d].edge, pair[d].usage);
    }
    out->p.nstrategies = ns;
    out->p.cost = cost;
    out->p.edge = edge;
    out->p.demand = demand;
    out->p.pair_demand = pair;
}

/* Solves the part that is free now; true when the best choice became better. */
static ap_status solve_part(lns *n, bool *better)
{
    ap_arena scratch;
    ap_arena_init(&scratch, n->s->arena->out_of_memory, n->s->arena->user);
    ap_kernel k;
    ap_outcome r;
    restrict_kernel(n, &scratch, &k);
    ap_solver sub = *n->s;
    sub.arena = &scratch;
    sub.small = true;
    int64_t slice = ap_min_i64(PART_WORK, n->s->effort.work / SHARE);
    sub.effort.work = slice;
    /* Small gains are not worth the proof that there are none. */
    int64_t gain = ap_max_i64((n->l->best_cost - n->enough) / GAIN, 1);
    ap_status status = ap_level_solve(&sub, &k, n->l->best_cost - gain + 1, 0, &r);
    ap_effort_charge(&n->s->effort, (uint64_t)(slice - sub.effort.work) + n->k->p.nnodes / 10);
    *better = false;
    if (status == AP_OK && r.found && r.cost < n->l->best_cost) {
        for (uint32_t v = 0; v < n->k->p.nnodes; v++)
            n->l->x[v] = n->free[v] ? r.choice[v] : n->l->best[v];
        uint32_t *x = ap_arena_memdup(&scratch, n->l->x, n->k->p.nnodes * sizeof *x);
        ap_local_set(n->l, x);
        *better = ap_local_keep(n->l);
    }
    ap_arena_deinit(&scratch);
    return status;
}

static ap_status one_part(lns *n, uint32_t at, bool window, bool *improved)
{
    ap_arena scratch;
    ap_arena_init(&scratch, n->s->arena->out_of_memory, n->s->arena->user);
    memset(n->free, 0, n->k->p.nnodes * sizeof *n->free);
    n->nfree = 0;
    if (window)
        free_window(n, at);
    else
        free_ball(n, &scratch, at);
    bool better = false;
    ap_status status = n->nfree > 1 ? solve_part(n, &better) : AP_OK;
    *improved |= better;
    ap_arena_deinit(&scratch);
    return status;
}

ap_status ap_lns_run(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t enough)
{
    lns n = {.s = s,
             .k = k,
             .l = l,
             .size = PART_LEAST,
             .enough = enough,
             .free = AP_NEW_ARRAY(s->arena, bool, k->p.nnodes)};
    int64_t reserve = s->effort.work == INT64_MAX ? 0 : s->effort.work / 2; /* for what comes after */
    double quit = s->effort.deadline == 0 ? 0 : ap_effort_now() + ap_effort_left(&s->effort) / 2;
    for (uint32_t round = 0; n.size <= PART_MOST; round++) {
        bool improved = false;
        for (int window = 1; window >= 0; window--) {
            uint32_t step = n.size / 2, first = round % 2 == 0 ? 0 : step / 2;
            for (uint32_t at = first; at < k->p.nnodes; at += step) {
                if (l->best_cost <= enough || s->effort.work <= reserve || (quit != 0 && ap_effort_now() >= quit))
                    return AP_OK;
                AP_TRY(one_part(&n, at, window != 0, &improved));
            }
        }
        if (!improved && n.size >= k->p.nnodes)
            break;
        if (!improved)
            n.size += n.size / 2;
    }
    return AP_OK;
}
