/* Demands of pairs as demands of nodes, for parts of the solver that know no others: an edge that has some becomes a
 * node of its own, with one strategy per pair that is allowed and the pair's cost and demands,
 *
 *     u ---- v      becomes      u ---- (u,v) ---- v
 *
 * and edges to both ends that allow a strategy only beside its own parts. Exact, and no weaker for bounds: the new node
 * is what the edge's own table was. */
#include "passes/solve/level.h"

static bool holds(const ap_kernel *k, const ap_pair_demand *d)
{
    const ap_problem_edge *e = &k->p.edge[d->edge];
    size_t n = (size_t)k->p.nstrategies[e->u] * k->p.nstrategies[e->v];
    for (size_t i = 0; i < n && d->lo < d->hi; i++)
        if (d->usage[i] > 0)
            return true;
    return false;
}

/* The pairs of an edge that are allowed. */
static uint32_t list_pairs(ap_arena *a, const ap_kernel *k, uint32_t e, uint32_t **out)
{
    const ap_problem_edge *x = &k->p.edge[e];
    uint32_t n = k->p.nstrategies[x->u] * k->p.nstrategies[x->v], count = 0;
    *out = AP_NEW_ARRAY(a, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        if (x->cost[i] != AP_FORBIDDEN)
            (*out)[count++] = i;
    return count;
}

static const int64_t *pick(ap_arena *a, const int64_t *from, const uint32_t *pair, uint32_t n)
{
    int64_t *out = AP_NEW_ARRAY(a, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = from[pair[i]];
    return out;
}

/* [strategies of an end][pairs]: 0 where the pair contains the strategy. */
static const int64_t *beside(ap_arena *a, uint32_t strategies, const uint32_t *pair, uint32_t n, uint32_t columns,
                             bool row)
{
    int64_t *out = AP_NEW_ARRAY(a, int64_t, (size_t)strategies * n);
    for (uint32_t s = 0; s < strategies; s++)
        for (uint32_t i = 0; i < n; i++)
            out[(size_t)s * n + i] = (row ? pair[i] / columns : pair[i] % columns) == s ? 0 : AP_FORBIDDEN;
    return out;
}

/* Which edges become nodes, and how many; false when there are none or tables would be too large. */
static bool list_joint(const ap_kernel *k, uint64_t most_entries, bool *joint, uint32_t *count)
{
    const ap_problem *p = &k->p;
    uint64_t entries = 0;
    *count = 0;
    for (uint32_t d = 0; d < p->npair_demands; d++)
        joint[p->pair_demand[d].edge] |= holds(k, &p->pair_demand[d]);
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint64_t nu = p->nstrategies[p->edge[e].u], nv = p->nstrategies[p->edge[e].v];
        entries += joint[e] ? nu * nv * (nu + nv) : nu * nv;
        *count += joint[e];
    }
    return *count > 0 && entries <= most_entries;
}

/* The node of an edge and its own two edges; false when no pair is allowed. */
static bool add_node(ap_arena *a, const ap_kernel *k, uint32_t e, ap_pairs *out, uint32_t *size, const int64_t **cost,
                     ap_problem_edge *edge)
{
    const ap_problem_edge *x = &k->p.edge[e];
    ap_problem *q = &out->k.p;
    uint32_t w = q->nnodes++, nu = k->p.nstrategies[x->u], nv = k->p.nstrategies[x->v];
    out->node_of[e] = w;
    uint32_t n = size[w] = list_pairs(a, k, e, &out->pair[e]);
    cost[w] = pick(a, x->cost, out->pair[e], n);
    edge[q->nedges++] = (ap_problem_edge){x->u, w, beside(a, nu, out->pair[e], n, nv, true)};
    edge[q->nedges++] = (ap_problem_edge){x->v, w, beside(a, nv, out->pair[e], n, nv, false)};
    return n > 0;
}

static void move_demands(ap_arena *a, const ap_kernel *k, ap_pairs *out, ap_demand *demand)
{
    ap_problem *q = &out->k.p;
    for (uint32_t d = 0; d < k->p.ndemands; d++)
        demand[d] = k->p.demand[d];
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        uint32_t w = out->node_of[x->edge];
        if (w != AP_NONE && x->lo < x->hi)
            demand[q->ndemands++] =
                (ap_demand){w, x->lo, x->hi, pick(a, x->usage, out->pair[x->edge], q->nstrategies[w])};
    }
    q->demand = demand;
    q->npair_demands = 0;
    q->pair_demand = NULL;
}

bool ap_pairs_split(ap_arena *a, const ap_kernel *k, uint64_t most_entries, ap_pairs *out)
{
    const ap_problem *p = &k->p;
    bool *joint = AP_NEW_ARRAY(a, bool, p->nedges);
    uint32_t njoint;
    if (!list_joint(k, most_entries, joint, &njoint))
        return false;
    uint32_t *size = AP_NEW_ARRAY(a, uint32_t, p->nnodes + njoint);
    const int64_t **cost = AP_NEW_ARRAY(a, const int64_t *, p->nnodes + njoint);
    ap_problem_edge *edge = AP_NEW_ARRAY(a, ap_problem_edge, p->nedges + njoint);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        size[v] = p->nstrategies[v];
        cost[v] = p->cost[v];
    }
    *out = (ap_pairs){
        .k = *k, .node_of = AP_NEW_ARRAY(a, uint32_t, p->nedges), .pair = AP_NEW_ARRAY(a, uint32_t *, p->nedges)};
    out->k.p.nedges = 0;
    for (uint32_t e = 0; e < p->nedges; e++) {
        out->node_of[e] = AP_NONE;
        if (!joint[e])
            edge[out->k.p.nedges++] = p->edge[e];
        else if (!add_node(a, k, e, out, size, cost, edge))
            return false;
    }
    out->k.p.nstrategies = size;
    out->k.p.cost = cost;
    out->k.p.edge = edge;
    move_demands(a, k, out, AP_NEW_ARRAY(a, ap_demand, (size_t)p->ndemands + p->npair_demands));
    return true;
}

void ap_pairs_choice(const ap_pairs *s, const ap_kernel *k, const uint32_t *choice, uint32_t *out)
{
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        out[v] = choice[v];
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        uint32_t w = s->node_of[e],
                 pair = choice[k->p.edge[e].u] * k->p.nstrategies[k->p.edge[e].v] + choice[k->p.edge[e].v];
        for (uint32_t i = 0; w != AP_NONE && i < s->k.p.nstrategies[w]; i++)
            if (s->pair[e][i] == pair)
                out[w] = i;
    }
}

void ap_pairs_fixed(ap_arena *a, const ap_pairs *s, const ap_kernel *k, const ap_kernel *fixed, ap_kernel *out)
{
    *out = *k;
    out->hint = fixed->hint;
    out->p.cost = fixed->p.cost; /* the nodes that were there before stand in front */
    ap_problem_edge *edge = ap_arena_memdup(a, k->p.edge, k->p.nedges * sizeof *edge);
    uint32_t at = 0;
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        uint32_t w = s->node_of[e];
        if (w == AP_NONE) {
            edge[e].cost = fixed->p.edge[at++].cost;
            continue;
        }
        at += 2;
        size_t n = (size_t)k->p.nstrategies[edge[e].u] * k->p.nstrategies[edge[e].v];
        int64_t *cost = ap_arena_memdup(a, edge[e].cost, n * sizeof *cost);
        for (uint32_t i = 0; i < s->k.p.nstrategies[w]; i++)
            if (fixed->p.cost[w][i] == AP_FORBIDDEN)
                cost[s->pair[e][i]] = AP_FORBIDDEN;
        edge[e].cost = cost;
    }
    out->p.edge = edge;
}
