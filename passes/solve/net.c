/* Laying out a kernel: see net.h. */
#include "passes/solve/net.h"

#include <stdlib.h>
#include <string.h>

/* What a cost may exceed the least of its list by, scaled: a node adds up the messages of its edges. */
#define SPAN_BITS 44
#define TOTAL_BITS 56
#define SHIFT_MAX 16

static int bits_of(__int128 x)
{
    int n = 0;
    for (; x > 0; x >>= 1)
        n++;
    return n;
}

static void choose_scale(ap_net *net, int64_t room)
{
    ap_kernel_range range;
    ap_kernel_range_get(net->k, &range);
    __int128 span = range.most - range.least + 1, largest = (__int128)1 << SPAN_BITS;
    if (room < span)
        span = room > 0 ? room : 1;
    int bits = bits_of(span), total = bits_of(range.least < 0 ? -range.least : range.least);
    net->shift = bits < SPAN_BITS ? SPAN_BITS - bits : 0;
    if (total + net->shift > TOTAL_BITS)
        net->shift = total < TOTAL_BITS ? TOTAL_BITS - total : 0;
    if (net->shift > SHIFT_MAX)
        net->shift = SHIFT_MAX;
    net->span = (int64_t)(span < largest >> net->shift ? span : largest >> net->shift);
}

static int64_t least_of(const int64_t *c, size_t n)
{
    int64_t least = AP_FORBIDDEN;
    for (size_t i = 0; i < n; i++)
        least = ap_min_i64(least, c[i]);
    return least == AP_FORBIDDEN ? 0 : least;
}

static int64_t scaled(const ap_net *net, int64_t c, int64_t least)
{
    int64_t most = least + net->span;
    return (c < most ? c : most) * ((int64_t)1 << net->shift);
}

static void lay_nodes(ap_net *net, ap_arena *a)
{
    const ap_problem *p = &net->k->p;
    net->size = AP_NEW_ARRAY(a, uint32_t, net->n);
    net->padded = AP_NEW_ARRAY(a, uint32_t, net->n);
    net->at = AP_NEW_ARRAY(a, size_t, (size_t)net->n + 1);
    for (uint32_t v = 0; v < net->n; v++) {
        net->size[v] = p->nstrategies[v];
        net->padded[v] = ap_padded(p->nstrategies[v]);
        net->at[v + 1] = net->at[v] + net->padded[v];
        net->widest = net->padded[v] > net->widest ? net->padded[v] : net->widest;
    }
    net->all = AP_NEW_ARRAY(a, uint32_t, net->widest);
    for (uint32_t i = 0; i < net->widest; i++)
        net->all[i] = i;
    net->cost = AP_NEW_ARRAY(a, int64_t, net->at[net->n]);
    for (uint32_t v = 0; v < net->n; v++) {
        int64_t least = least_of(p->cost[v], net->size[v]);
        for (uint32_t i = 0; i < net->padded[v]; i++)
            net->cost[net->at[v] + i] = i < net->size[v] ? scaled(net, p->cost[v][i], least) : AP_PAD;
    }
}

static int arc_compare(const void *a, const void *b)
{
    const ap_arc *x = a, *y = b;
    if (x->other != y->other)
        return x->other < y->other ? -1 : 1;
    return (x->edge > y->edge) - (x->edge < y->edge);
}

static void lay_edge(ap_net *net, uint32_t e, int64_t *uv, int64_t *vu)
{
    const ap_problem_edge *x = &net->k->p.edge[e];
    uint32_t nu = net->size[x->u], nv = net->size[x->v], pu = net->padded[x->u], pv = net->padded[x->v];
    int64_t least = least_of(x->cost, (size_t)nu * nv);
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++)
            uv[(size_t)i * pv + j] = vu[(size_t)j * pu + i] = scaled(net, x->cost[(size_t)i * nv + j], least);
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = nv; j < pv; j++)
            uv[(size_t)i * pv + j] = AP_PAD;
    for (uint32_t j = 0; j < nv; j++)
        for (uint32_t i = nu; i < pu; i++)
            vu[(size_t)j * pu + i] = AP_PAD;
}

static void lay_edges(ap_net *net, ap_arena *a)
{
    const ap_problem *p = &net->k->p;
    net->arc_at = AP_NEW_ARRAY(a, uint32_t, (size_t)net->n + 1);
    for (uint32_t e = 0; e < p->nedges; e++) {
        net->arc_at[p->edge[e].u + 1]++;
        net->arc_at[p->edge[e].v + 1]++;
    }
    for (uint32_t v = 0; v < net->n; v++)
        net->arc_at[v + 1] += net->arc_at[v];
    net->arc = AP_NEW_ARRAY(a, ap_arc, 2 * (size_t)p->nedges);
    net->earlier = AP_NEW_ARRAY(a, uint32_t, net->n);
    uint32_t *fill = ap_arena_memdup(a, net->arc_at, net->n * sizeof *fill);
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t u = p->edge[e].u, v = p->edge[e].v;
        int64_t *uv = AP_NEW_ARRAY(a, int64_t, (size_t)net->size[u] * net->padded[v]);
        int64_t *vu = AP_NEW_ARRAY(a, int64_t, (size_t)net->size[v] * net->padded[u]);
        lay_edge(net, e, uv, vu);
        size_t to_u = net->messages, to_v = to_u + net->padded[u];
        net->messages = to_v + net->padded[v];
        net->arc[fill[u]++] = (ap_arc){e, v, uv, vu, to_u, to_v};
        net->arc[fill[v]++] = (ap_arc){e, u, vu, uv, to_v, to_u};
        net->entries += (size_t)net->size[u] * net->padded[v];
    }
    for (uint32_t v = 0; v < net->n; v++) {
        uint32_t from = net->arc_at[v], to = net->arc_at[v + 1];
        qsort(net->arc + from, to - from, sizeof *net->arc, arc_compare);
        while (from + net->earlier[v] < to && net->arc[from + net->earlier[v]].other < v)
            net->earlier[v]++;
    }
}

static int point_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The demands d[0..n) of one node as disjoint intervals, without those that all strategies hold alike. */
static uint32_t disjoin(ap_arena *a, ap_net *net, uint32_t v, const uint32_t *d, uint32_t n, ap_demand *out)
{
    const ap_problem *p = &net->k->p;
    uint32_t *point = AP_NEW_ARRAY(a, uint32_t, 2 * (size_t)n), size = p->nstrategies[v], count = 0;
    for (uint32_t i = 0; i < n; i++) {
        point[2 * i] = p->demand[d[i]].lo;
        point[2 * i + 1] = p->demand[d[i]].hi;
    }
    qsort(point, 2 * (size_t)n, sizeof *point, point_compare);
    for (uint32_t q = 0; q + 1 < 2 * n; q++) {
        if (point[q] == point[q + 1])
            continue;
        int64_t *usage = AP_NEW_ARRAY(a, int64_t, size);
        for (uint32_t i = 0; i < n; i++)
            if (p->demand[d[i]].lo <= point[q] && point[q] < p->demand[d[i]].hi)
                for (uint32_t x = 0; x < size; x++)
                    usage[x] += p->demand[d[i]].usage[x];
        bool same = true;
        for (uint32_t x = 0; x < size; x++)
            same &= usage[x] == usage[0];
        bool as_before = !same && count > 0 && out[count - 1].hi == point[q];
        for (uint32_t x = 0; x < size; x++) {
            as_before = as_before && usage[x] == out[count - 1].usage[x];
        }
        for (uint32_t r = point[q]; same && r < point[q + 1]; r++)
            net->room[r] -= usage[0];
        if (as_before)
            out[count - 1].hi = point[q + 1];
        else if (!same)
            out[count++] = (ap_demand){v, point[q], point[q + 1], usage};
    }
    return count;
}

static void lay_demands(ap_net *net, ap_arena *a)
{
    const ap_problem *p = &net->k->p;
    uint32_t *at = AP_NEW_ARRAY(a, uint32_t, (size_t)net->n + 1), *of = AP_NEW_ARRAY(a, uint32_t, p->ndemands);
    for (uint32_t d = 0; d < p->ndemands; d++)
        at[p->demand[d].node + 1]++;
    for (uint32_t v = 0; v < net->n; v++)
        at[v + 1] += at[v];
    uint32_t *fill = ap_arena_memdup(a, at, net->n * sizeof *fill);
    for (uint32_t d = 0; d < p->ndemands; d++)
        of[fill[p->demand[d].node]++] = d;
    net->room = ap_arena_memdup(a, net->k->rhs, net->k->nrows * sizeof *net->room);
    net->span_at = AP_NEW_ARRAY(a, uint32_t, (size_t)net->n + 1);
    net->held = AP_NEW_ARRAY(a, ap_demand, 2 * (size_t)p->ndemands);
    for (uint32_t v = 0; v < net->n; v++) {
        uint32_t n = at[v + 1] - at[v], from = net->span_at[v];
        net->span_at[v + 1] = from + (n > 0 ? disjoin(a, net, v, of + at[v], n, net->held + from) : 0);
    }
}

uint64_t ap_net_bytes(const ap_kernel *k)
{
    uint64_t n = 0;
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        uint64_t a = k->p.nstrategies[k->p.edge[e].u], b = k->p.nstrategies[k->p.edge[e].v];
        n += a * ap_padded((uint32_t)b) + b * ap_padded((uint32_t)a);
    }
    return n * sizeof(int64_t);
}

ap_net *ap_net_create(ap_arena *arena, const ap_kernel *k, int64_t room)
{
    ap_net *net = AP_NEW(arena, ap_net);
    net->k = k;
    net->n = k->p.nnodes;
    net->minplus = ap_minplus_get();
    choose_scale(net, room);
    lay_nodes(net, arena);
    lay_edges(net, arena);
    lay_demands(net, arena);
    return net;
}
