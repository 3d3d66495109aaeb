/* In which order nodes join: see sweep.h. */
#include "passes/solve/sweep.h"

#include <math.h>
#include <string.h>

typedef struct orderer {
    ap_arena scratch;
    const ap_kernel *k;
    ap_sweep_order *o;
    double *log_size; /* per node: of its strategies */
} orderer;

bool ap_sweep_is_resident(const ap_kernel *k, const ap_demand *d)
{
    return d->lo == 0 && d->hi == k->nrows;
}

uint32_t ap_sweep_other(const ap_kernel *k, uint32_t edge, uint32_t v)
{
    return k->p.edge[edge].u == v ? k->p.edge[edge].v : k->p.edge[edge].u;
}

static void list_edges(ap_arena *arena, const ap_problem *p, ap_sweep_order *b)
{
    b->edge_at = ap_arena_calloc(arena, (size_t)p->nnodes + 2, sizeof *b->edge_at);
    b->edge_of = AP_NEW_ARRAY(arena, uint32_t, 2 * (size_t)p->nedges + 1);
    for (uint32_t e = 0; e < p->nedges; e++) {
        b->edge_at[p->edge[e].u + 2]++;
        b->edge_at[p->edge[e].v + 2]++;
    }
    for (uint32_t v = 0; v < p->nnodes; v++)
        b->edge_at[v + 2] += b->edge_at[v + 1];
    for (uint32_t e = 0; e < p->nedges; e++) {
        b->edge_of[b->edge_at[p->edge[e].u + 1]++] = e;
        b->edge_of[b->edge_at[p->edge[e].v + 1]++] = e;
    }
}

/* The first row in which a node holds memory; AP_NONE: in none, or in all. */
static uint32_t *first_rows(orderer *b)
{
    const ap_problem *p = &b->k->p;
    uint32_t *first = AP_NEW_ARRAY(&b->scratch, uint32_t, p->nnodes + 1);
    memset(first, 0xff, p->nnodes * sizeof *first);
    for (uint32_t d = 0; d < p->ndemands; d++)
        if (!ap_sweep_is_resident(b->k, &p->demand[d]) && p->demand[d].lo < first[p->demand[d].node])
            first[p->demand[d].node] = p->demand[d].lo;
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_problem_edge *e = &p->edge[p->pair_demand[d].edge];
        uint32_t lo = p->pair_demand[d].lo;
        first[e->u] = lo < first[e->u] ? lo : first[e->u];
        first[e->v] = lo < first[e->v] ? lo : first[e->v];
    }
    return first;
}

/* Whether u, at this place of the order, still waits for a neighbour after it. */
static bool waits_after(const orderer *b, uint32_t u, uint32_t place)
{
    for (uint32_t i = b->o->edge_at[u]; i < b->o->edge_at[u + 1]; i++)
        if (b->o->step[ap_sweep_other(b->k, b->o->edge_of[i], u)] > place)
            return true;
    return false;
}

static void number_order(orderer *b, const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        b->o->step[order[i]] = i;
}

/* About how many arcs the order makes: the sum over steps of the products of what is pending, the node that joins
 * included. */
static double order_size(orderer *b, const uint32_t *order, uint32_t n)
{
    double sum = 0, now = 0;
    number_order(b, order, n);
    for (uint32_t at = 0; at < n; at++) {
        now += b->log_size[order[at]];
        sum += exp(fmin(now, 300));
        uint32_t v = order[at];
        now -= waits_after(b, v, at) ? 0 : b->log_size[v];
        for (uint32_t i = b->o->edge_at[v]; i < b->o->edge_at[v + 1]; i++) {
            uint32_t w = ap_sweep_other(b->k, b->o->edge_of[i], v);
            if (b->o->step[w] < at && !waits_after(b, w, at))
                now -= b->log_size[w];
        }
    }
    return sum;
}

static void move_node(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t v = order[from];
    if (from < to)
        memmove(order + from, order + from + 1, (to - from) * sizeof *order);
    else
        memmove(order + to + 1, order + to, (from - to) * sizeof *order);
    order[to] = v;
}

/* A node without a row of its own may join behind any of its neighbours: where the graph stays smallest. */
static void place_free(orderer *b, uint32_t *order, uint32_t n, uint32_t v)
{
    uint32_t at = 0, best;
    while (order[at] != v)
        at++;
    best = at;
    double least = order_size(b, order, n);
    for (uint32_t i = b->o->edge_at[v]; i < b->o->edge_at[v + 1]; i++) {
        number_order(b, order, n);
        uint32_t to = b->o->step[ap_sweep_other(b->k, b->o->edge_of[i], v)];
        to += to < at;
        if (to == at)
            continue;
        move_node(order, at, to);
        double size = order_size(b, order, n);
        move_node(order, to, at);
        if (size < least) {
            least = size;
            best = to;
        }
    }
    move_node(order, at, best);
}

/* By first rows; the others behind one of their neighbours. */
static void find_order(orderer *b, ap_arena *arena)
{
    uint32_t n = b->k->p.nnodes, have = 0;
    uint32_t *first = first_rows(b), *order = AP_NEW_ARRAY(arena, uint32_t, n + 1);
    b->o->step = AP_NEW_ARRAY(arena, uint32_t, n + 1);
    b->log_size = AP_NEW_ARRAY(&b->scratch, double, n + 1);
    memset(b->o->step, 0xff, n * sizeof *b->o->step);
    for (uint32_t v = 0; v < n; v++)
        b->log_size[v] = log(b->k->p.nstrategies[v]);
    for (uint32_t r = 0; r < b->k->nrows; r++)
        for (uint32_t v = 0; v < n; v++)
            if (first[v] == r)
                order[have++] = v;
    number_order(b, order, have);
    for (uint32_t v = 0; v < n; v++) {
        if (first[v] != AP_NONE)
            continue;
        uint32_t at = 0;
        for (uint32_t i = b->o->edge_at[v]; i < b->o->edge_at[v + 1]; i++) {
            uint32_t s = b->o->step[ap_sweep_other(b->k, b->o->edge_of[i], v)];
            at = s != AP_NONE && s + 1 > at ? s + 1 : at;
        }
        order[have] = v;
        move_node(order, have++, at);
        number_order(b, order, have);
    }
    for (int turn = 0; turn < 2; turn++)
        for (uint32_t v = 0; v < n; v++)
            if (first[v] == AP_NONE && b->o->edge_at[v + 1] - b->o->edge_at[v] > 1)
                place_free(b, order, n, v);
    number_order(b, order, n);
    b->o->node = order;
    b->o->n = n;
}

void ap_sweep_order_make(ap_arena *arena, const ap_kernel *k, ap_sweep_order *out)
{
    orderer b = {.k = k, .o = out};
    ap_arena_init(&b.scratch, arena->out_of_memory, arena->user);
    list_edges(arena, &k->p, out);
    find_order(&b, arena);
    ap_arena_deinit(&b.scratch);
}
