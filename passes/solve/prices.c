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
    return most;
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
    int64_t most = most_usage(net->k);
    while (a->shift < 40 && most >> a->shift > 1)
        a->shift++;
    return a;
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
        __int128 w = a->prefix[x->hi] - a->prefix[x->lo];
        if (w == 0)
            continue;
        if (w >= one << 62)
            w = (one << 62) - 1;
        int64_t *to = a->unary + net->at[x->node];
        for (uint32_t i = 0; i < net->size[x->node]; i++) {
            __int128 c = (w * x->usage[i]) >> a->shift;
            to[i] += c < PRICE_MAX ? (int64_t)c : PRICE_MAX;
        }
    }
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
    for (uint32_t r = 1; r < rows; r++)
        use[r] += use[r - 1];
}
