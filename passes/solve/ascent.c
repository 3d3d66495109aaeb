/* Passes: see ascent.h. */
#include "passes/solve/ascent.h"

#include <string.h>

#define BANNED (AP_PAD / 4)

ap_ascent *ap_ascent_create(ap_arena *arena, const ap_net *net)
{
    ap_ascent *a = AP_NEW(arena, ap_ascent);
    a->net = net;
    a->prices = ap_prices_create(arena, net);
    a->message = AP_NEW_ARRAY(arena, int64_t, net->messages);
    a->offset = AP_NEW_ARRAY(arena, int64_t, net->n);
    a->edge_offset = AP_NEW_ARRAY(arena, int64_t, net->k->p.nedges);
    a->x = AP_NEW_ARRAY(arena, uint32_t, net->n);
    a->sum = AP_NEW_ARRAY(arena, int64_t, 4 * (size_t)net->widest);
    a->rounded = a->sum + 2 * (size_t)net->widest;
    a->use = AP_NEW_ARRAY(arena, int64_t, (size_t)net->k->nrows + 1);
    a->alive = AP_NEW_ARRAY(arena, uint32_t, net->at[net->n]);
    a->nalive = AP_NEW_ARRAY(arena, uint32_t, net->n);
    ap_ascent_ban(a, NULL);
    return a;
}

void ap_ascent_ban(ap_ascent *a, const bool *ban)
{
    const ap_net *net = a->net;
    for (uint32_t v = 0; v < net->n; v++) {
        a->nalive[v] = 0;
        for (uint32_t i = 0; i < net->size[v]; i++) {
            size_t at = net->at[v] + i;
            bool out = ban && ban[at];
            a->prices->base[at] = out ? BANNED : net->cost[at];
            if (!out)
                a->alive[net->at[v] + a->nalive[v]++] = i;
        }
    }
}

/* ---- passes ---- */

static void add_to(int64_t *sum, const int64_t *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sum[i] += c[i];
}

static int64_t least_of(const int64_t *c, uint32_t n)
{
    int64_t least = c[0];
    for (uint32_t i = 1; i < n; i++)
        least = c[i] < least ? c[i] : least;
    return least;
}

/* What node v costs with all that its edges give, least entry zero. */
static void gather(ap_ascent *a, uint32_t v)
{
    const ap_net *net = a->net;
    uint32_t n = net->padded[v];
    memcpy(a->sum, a->prices->unary + net->at[v], n * sizeof *a->sum);
    for (uint32_t i = net->arc_at[v]; i < net->arc_at[v + 1]; i++)
        add_to(a->sum, a->message + net->arc[i].in, n);
    int64_t off = a->offset[v];
    int64_t least = least_of(a->sum, net->size[v]) - off;
    for (uint32_t i = 0; i < n; i++)
        a->sum[i] -= off + least;
    a->offset[v] += least;
    a->total += least;
}

/* The cheapest strategy given the choices of the nodes before v in this pass and the messages of the others. */
static void choose(ap_ascent *a, uint32_t v, bool forward)
{
    const ap_net *net = a->net;
    uint32_t n = net->padded[v], split = net->arc_at[v] + net->earlier[v];
    memcpy(a->rounded, a->prices->unary + net->at[v], n * sizeof *a->rounded);
    for (uint32_t i = net->arc_at[v]; i < net->arc_at[v + 1]; i++) {
        const ap_arc *x = &net->arc[i];
        bool chosen = (i < split) == forward;
        add_to(a->rounded, chosen ? a->prices->from[i] + (size_t)a->x[x->other] * n : a->message + x->in, n);
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < net->size[v]; i++)
        best = a->rounded[i] < a->rounded[best] ? i : best;
    a->x[v] = best;
}

/* Hands `share` to the edge and takes back, at the other end, what the edge can give there. */
static void send(ap_ascent *a, uint32_t v, const ap_arc *x, const int64_t *share, int64_t *work)
{
    const ap_net *net = a->net;
    int64_t *in = a->message + x->in, *out = a->message + x->out;
    uint32_t n = net->size[v], m = net->size[x->other], pm = net->padded[x->other];
    const uint32_t *alive = a->alive + net->at[v];
    for (uint32_t i = 0; i < n; i++)
        in[i] -= share[i];
    for (uint32_t q = 0; q < a->nalive[v]; q++)
        work[q] = -in[alive[q]];
    net->minplus(out, work, a->prices->to[x - net->arc], alive, a->nalive[v], pm);
    /* Taking the least entry off keeps numbers small; but until the other end is visited, it is that end's loss. */
    int64_t least = a->keep ? a->edge_offset[x->edge] : least_of(out, m);
    for (uint32_t j = 0; j < m; j++)
        out[j] -= least;
    for (uint32_t j = m; j < pm; j++)
        out[j] = 0;
    a->total += least - a->edge_offset[x->edge];
    a->edge_offset[x->edge] = least;
}

static void share_out(ap_ascent *a, uint32_t v, bool forward)
{
    const ap_net *net = a->net;
    uint32_t all = net->arc_at[v + 1] - net->arc_at[v], behind = forward ? net->earlier[v] : all - net->earlier[v];
    uint32_t ahead = all - behind, first = forward ? net->arc_at[v] + behind : net->arc_at[v];
    if (ahead == 0)
        return;
    uint32_t parts = ahead > behind ? ahead : behind;
    if (parts > 1) {
        double share = 1.0 / parts * (1 - 0x1p-48); /* rounded down for certain: the rest stays >= 0 */
        for (uint32_t i = 0; i < net->size[v]; i++)
            a->sum[i] = (int64_t)((double)a->sum[i] * share);
    }
    for (uint32_t i = 0; i < ahead; i++)
        send(a, v, &net->arc[first + i], a->sum, a->sum + net->widest);
}

static int64_t unscale(const ap_ascent *a, __int128 total)
{
    __int128 x = total - a->prices->back, s = (__int128)1 << a->net->shift;
    __int128 q = x >= 0 ? (x + s - 1) / s : -((-x) / s);
    return q > INT64_MAX ? INT64_MAX : q < INT64_MIN ? INT64_MIN : (int64_t)q;
}

int64_t ap_ascent_pass(ap_ascent *a, bool forward, bool round)
{
    for (uint32_t i = 0; i < a->net->n; i++) {
        uint32_t v = forward ? i : a->net->n - 1 - i;
        if (round)
            choose(a, v, forward);
        gather(a, v);
        share_out(a, v, forward);
    }
    return unscale(a, a->total);
}

uint64_t ap_ascent_work(const ap_net *net)
{
    uint64_t work = 2 * net->entries + 160 * (uint64_t)net->k->p.nedges + 6 * net->at[net->n];
    for (uint32_t d = 0; d < net->k->p.npair_demands; d++) {
        const ap_problem_edge *e = &net->k->p.edge[net->k->p.pair_demand[d].edge];
        work += (uint64_t)net->size[e->u] * net->size[e->v] * 2;
    }
    return work + 4 * (uint64_t)net->k->nrows + 20 * (uint64_t)net->k->p.ndemands;
}

/* ---- fixing ---- */

/* What an entry may cost above the total, scaled, before it leads to the cutoff. */
static int64_t room_below(const ap_ascent *a, int64_t cutoff)
{
    __int128 room = (__int128)(cutoff - 1) * ((__int128)1 << a->net->shift) + a->prices->back - a->total;
    return room < -1 ? -1 : room > AP_PAD ? AP_PAD : (int64_t)room;
}

uint64_t ap_ascent_fix(ap_ascent *a, int64_t cutoff, bool *drop, int64_t *node)
{
    const ap_net *net = a->net;
    uint64_t count = 0;
    a->keep = true; /* so that what is left at the nodes ahead is never below zero */
    for (uint32_t v = 0; v < net->n; v++) {
        gather(a, v);
        int64_t room = room_below(a, cutoff);
        for (uint32_t i = 0; i < net->size[v]; i++) {
            bool *d = &drop[net->at[v] + i];
            *d |= a->sum[i] > room;
            count += *d;
        }
        if (node)
            memcpy(node + net->at[v], a->sum, net->size[v] * sizeof *node);
        share_out(a, v, true);
    }
    a->keep = false;
    return count;
}

uint64_t ap_ascent_fix_edges(ap_ascent *a, int64_t cutoff, int64_t *node, int64_t *const *out)
{
    const ap_net *net = a->net;
    uint64_t count = 0;
    for (uint32_t v = 0; v < net->n; v++) {
        gather(a, v);
        memcpy(node + net->at[v], a->sum, net->size[v] * sizeof *node);
    }
    int64_t room = room_below(a, cutoff);
    for (uint32_t v = 0; v < net->n; v++)
        for (uint32_t q = net->arc_at[v]; q < net->arc_at[v + 1]; q++) {
            const ap_arc *x = &net->arc[q];
            const ap_problem_edge *e = &net->k->p.edge[x->edge];
            if (e->u != v)
                continue;
            uint32_t nv = net->size[x->other];
            const int64_t *in = a->message + x->in, *at = a->message + x->out, *far = node + net->at[x->other];
            for (uint32_t i = 0; i < net->size[v]; i++) {
                int64_t left = room - node[net->at[v] + i] + in[i] + a->edge_offset[x->edge];
                const int64_t *row = a->prices->to[q] + (size_t)i * net->padded[x->other],
                              *cost = e->cost + (size_t)i * nv;
                for (uint32_t j = 0; j < nv; j++) {
                    bool gone = row[j] - at[j] + far[j] > left && cost[j] != AP_FORBIDDEN;
                    count += gone;
                    if (out && gone)
                        out[x->edge][(size_t)i * nv + j] = AP_FORBIDDEN;
                }
            }
        }
    return count;
}
