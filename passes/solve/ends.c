/* Elimination up to two nodes (eliminate.c), for those who know problems but no kernels. */
#include "passes/solve/ends.h"

#include "passes/solve/eliminate.h"

#include <string.h>

struct ap_ends {
    ap_arena *arena;
    ap_kernel k;
    ap_elim *e;
    uint32_t kept;
    size_t size;    /* of the table */
    int64_t **cost; /* with AP_ELIM_INF for what is forbidden */
};

ap_ends *ap_ends_create(ap_arena *arena, const ap_problem *p, int64_t scale, uint32_t a, uint32_t b, uint64_t most)
{
    ap_ends *x = AP_NEW(arena, ap_ends);
    *x = (ap_ends){.arena = arena, .k.p = *p, .kept = (a != AP_NONE) + (b != AP_NONE), .size = 1};
    x->k.p.ndemands = x->k.p.npair_demands = 0;
    bool *last = AP_NEW_ARRAY(arena, bool, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        last[v] = v == a || v == b;
        x->size *= last[v] ? p->nstrategies[v] : 1;
    }
    x->e = ap_elim_plan_keeping(arena, &x->k, most, last);
    if (!x->e->exact || x->e->entries > most)
        return NULL;
    ap_elim_allocate(x->e);
    for (uint32_t i = 0; i < p->nedges; i++)
        ap_elim_set_edge(x->e, i, p->edge[i].cost, scale);
    x->cost = AP_NEW_ARRAY(arena, int64_t *, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++)
        x->cost[v] = AP_NEW_ARRAY(arena, int64_t, p->nstrategies[v]);
    return x;
}

void ap_ends_run(ap_ends *x, int64_t *const *node_cost, int64_t *out)
{
    for (uint32_t v = 0; v < x->k.p.nnodes; v++)
        for (uint32_t i = 0; i < x->k.p.nstrategies[v]; i++)
            x->cost[v][i] = node_cost[v][i] == AP_FORBIDDEN ? AP_ELIM_INF : node_cost[v][i];
    ap_elim_run_ends(x->e, x->cost, x->kept, out);
    for (size_t i = 0; i < x->size; i++)
        out[i] = AP_ELIM_FORBIDDEN(out[i]) ? AP_FORBIDDEN : out[i];
}

void ap_ends_decode(const ap_ends *x, uint32_t *choice)
{
    ap_elim_decode_ends(x->e, x->cost, x->kept, choice);
}
