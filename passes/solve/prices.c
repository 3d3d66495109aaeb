/* Memory rows as prices: see prices.h. */
#include "passes/solve/prices.h"

#include <math.h>
#include <string.h>

#define PRICE_MAX ((int64_t)1 << 50)

static int64_t most_usage(const ap_kernel *k)
{
    int64_t most = 1;
    for (uint32_t d = 0; d < k->p.ndemands; d++)
        for (uint32_t i = 0; i < k->p.nstrategies[k->p.demand[d].node]; i++)
            most = ap_max_i64(most, k->p.demand[d].usage[i]);
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_problem_edge *e = &k->p.edge[k->p.pair_demand[d].edge];
        size_t n = (size_t)k->p.nstrategies[e->u] * k->p.nstrategies[e->v];
        for (size_t i = 0; i < n; i++)
            most = ap_max_i64(most, k->p.pair_demand[d].usage[i]);
    }
    return most;
}

static bool holds(const ap_kernel *k, const ap_pair_demand *d)
{
    const ap_problem_edge *e = &k->p.edge[d->edge];
    size_t n = (size_t)k->p.nstrategies[e->u] * k->p.nstrategies[e->v];
    for (size_t i = 0; i < n && d->lo < d->hi; i++)
        if (d->usage[i] > 0)
            return true;
    return false;
}

/* The pairs' demands by edge. */
static uint32_t *list_pairs(ap_arena *arena, ap_prices *a)
{
    const ap_problem *p = &a->net->k->p;
    uint32_t *at = AP_NEW_ARRAY(arena, uint32_t, (size_t)p->nedges + 2);
    a->pair = AP_NEW_ARRAY(arena, const ap_pair_demand *, p->npair_demands);
    for (uint32_t d = 0; d < p->npair_demands; d++)
        at[p->pair_demand[d].edge + 2] += holds(a->net->k, &p->pair_demand[d]);
    for (uint32_t e = 0; e < p->nedges; e++)
        at[e + 2] += at[e + 1];
    for (uint32_t d = 0; d < p->npair_demands; d++)
        if (holds(a->net->k, &p->pair_demand[d]))
            a->pair[at[p->pair_demand[d].edge + 1]++] = &p->pair_demand[d];
    return at;
}

static void find_joint(ap_arena *arena, ap_prices *a)
{
    const ap_net *net = a->net;
    const ap_problem *p = &net->k->p;
    uint32_t *at = list_pairs(arena, a);
    a->to = AP_NEW_ARRAY(arena, const int64_t *, 2 * (size_t)p->nedges);
    a->from = AP_NEW_ARRAY(arena, const int64_t *, 2 * (size_t)p->nedges);
    a->joint = AP_NEW_ARRAY(arena, ap_priced_edge, p->nedges + 1);
    for (uint32_t q = 0; q < 2 * p->nedges; q++) {
        a->to[q] = net->arc[q].to;
        a->from[q] = net->arc[q].from;
    }
    const ap_arc **end = AP_NEW_ARRAY(arena, const ap_arc *, 2 * (size_t)p->nedges); /* at u, at v */
    for (uint32_t v = 0; v < net->n; v++)
        for (uint32_t q = net->arc_at[v]; q < net->arc_at[v + 1]; q++)
            end[2 * net->arc[q].edge + (p->edge[net->arc[q].edge].u == v ? 0 : 1)] = &net->arc[q];
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t u = p->edge[e].u, v = p->edge[e].v;
        if (at[e] == at[e + 1])
            continue;
        ap_priced_edge *x = &a->joint[a->njoint++];
        *x = (ap_priced_edge){.at_u = end[2 * e], .at_v = end[2 * e + 1], .first = at[e], .priced = true};
        x->uv = AP_NEW_ARRAY(arena, int64_t, (size_t)net->size[u] * net->padded[v]);
        x->vu = AP_NEW_ARRAY(arena, int64_t, (size_t)net->size[v] * net->padded[u]);
        a->to[x->at_u - net->arc] = a->from[x->at_v - net->arc] = x->uv;
        a->to[x->at_v - net->arc] = a->from[x->at_u - net->arc] = x->vu;
    }
    a->joint[a->njoint].first = at[p->nedges];
}

ap_prices *ap_prices_create(ap_arena *arena, const ap_net *net)
{
    ap_prices *a = AP_NEW(arena, ap_prices);
    a->net = net;
    a->base = ap_arena_memdup(arena, net->cost, net->at[net->n] * sizeof *net->cost);
    a->unary = ap_arena_memdup(arena, net->cost, net->at[net->n] * sizeof *net->cost);
    a->lambda = AP_NEW_ARRAY(arena, double, net->k->nrows);
    a->fixed = AP_NEW_ARRAY(arena, int64_t, net->k->nrows);
    a->prefix = AP_NEW_ARRAY(arena, __int128, (size_t)net->k->nrows + 1);
    find_joint(arena, a);
    int64_t most = most_usage(net->k);
    while (a->shift < 40 && most >> a->shift > 1)
        a->shift++;
    return a;
}

/* What a byte held during [lo, hi) costs, over 2^shift. */
static __int128 weight_of(const ap_prices *a, uint32_t lo, uint32_t hi)
{
    __int128 w = lo < hi ? a->prefix[hi] - a->prefix[lo] : 0, largest = ((__int128)1 << 62) - 1;
    return w < largest ? w : largest;
}

static int64_t price_of(const ap_prices *a, __int128 weight, int64_t bytes)
{
    __int128 c = (weight * bytes) >> a->shift;
    return c < PRICE_MAX ? (int64_t)c : PRICE_MAX;
}

static bool has_price(const ap_prices *a, const ap_priced_edge *x)
{
    bool any = false;
    for (uint32_t d = x->first; d < x[1].first; d++)
        any |= weight_of(a, a->pair[d]->lo, a->pair[d]->hi) > 0;
    return any;
}

static void price_joint(ap_prices *a, ap_priced_edge *x)
{
    const ap_net *net = a->net;
    bool before = x->priced;
    x->priced = has_price(a, x);
    if (!before && !x->priced)
        return;
    uint32_t u = x->at_v->other, v = x->at_u->other, nu = net->size[u], nv = net->size[v];
    size_t pu = net->padded[u], pv = net->padded[v];
    memcpy(x->uv, x->at_u->to, nu * pv * sizeof *x->uv);
    memcpy(x->vu, x->at_v->to, nv * pu * sizeof *x->vu);
    for (uint32_t d = x->first; d < x[1].first; d++) {
        __int128 w = weight_of(a, a->pair[d]->lo, a->pair[d]->hi);
        const int64_t *usage = a->pair[d]->usage;
        for (uint32_t i = 0; i < nu && w > 0; i++)
            for (uint32_t j = 0; j < nv; j++) {
                int64_t c = usage[(size_t)i * nv + j] ? price_of(a, w, usage[(size_t)i * nv + j]) : 0;
                x->uv[i * pv + j] += c;
                x->vu[j * pu + i] += c;
            }
    }
}

void ap_prices_set(ap_prices *a)
{
    const ap_net *net = a->net;
    const ap_problem *p = &net->k->p;
    double unit = ldexp(1, a->shift + net->shift), largest = 0x1p60 / unit;
    __int128 back = 0, one = 1;
    for (uint32_t r = 0; r < net->k->nrows; r++) {
        a->fixed[r] = (int64_t)(fmin(a->lambda[r], largest) * unit);
        a->prefix[r + 1] = a->prefix[r] + a->fixed[r];
        back += (__int128)a->fixed[r] * net->k->rhs[r];
    }
    a->back = (back + (one << a->shift) - 1) >> a->shift;
    memcpy(a->unary, a->base, net->at[net->n] * sizeof *net->cost);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        __int128 w = weight_of(a, x->lo, x->hi);
        if (w == 0)
            continue;
        int64_t *to = a->unary + net->at[x->node];
        for (uint32_t i = 0; i < net->size[x->node]; i++)
            to[i] += price_of(a, w, x->usage[i]);
    }
    for (uint32_t j = 0; j < a->njoint; j++)
        price_joint(a, &a->joint[j]);
}

void ap_prices_use(const ap_net *net, const uint32_t *x, int64_t *use)
{
    const ap_problem *p = &net->k->p;
    uint32_t rows = net->k->nrows;
    memset(use, 0, ((size_t)rows + 1) * sizeof *use);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        int64_t bytes = p->demand[d].usage[x[p->demand[d].node]];
        use[p->demand[d].lo] += bytes;
        use[p->demand[d].hi] -= bytes;
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *y = &p->pair_demand[d];
        const ap_problem_edge *e = &p->edge[y->edge];
        int64_t bytes = y->lo < y->hi ? y->usage[(size_t)x[e->u] * p->nstrategies[e->v] + x[e->v]] : 0;
        use[y->lo] += bytes;
        use[y->hi] -= bytes;
    }
    for (uint32_t r = 1; r < rows; r++)
        use[r] += use[r - 1];
}
