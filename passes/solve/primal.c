/* Local search: see primal.h. Everything is kept up to date move by move, in integers. */
#include "passes/solve/primal.h"

#include <string.h>

enum { BLOCK = 32 }; /* rows */
#define LOOK 64      /* nodes between two looks at the clock */

static uint32_t *offsets(ap_arena *arena, uint32_t n, const uint32_t *count)
{
    uint32_t *at = AP_NEW_ARRAY(arena, uint32_t, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++)
        at[i + 1] = at[i] + count[i];
    return at;
}

static void index_edges(ap_local *l, ap_arena *arena)
{
    const ap_problem *p = &l->k->p;
    uint32_t *count = AP_NEW_ARRAY(arena, uint32_t, p->nnodes);
    for (uint32_t e = 0; e < p->nedges; e++) {
        count[p->edge[e].u]++;
        count[p->edge[e].v]++;
    }
    l->edge_at = offsets(arena, p->nnodes, count);
    l->edge_of = AP_NEW_ARRAY(arena, uint32_t, 2 * (size_t)p->nedges);
    for (uint32_t e = p->nedges; e-- > 0;) {
        l->edge_of[l->edge_at[p->edge[e].u] + --count[p->edge[e].u]] = e;
        l->edge_of[l->edge_at[p->edge[e].v] + --count[p->edge[e].v]] = e;
    }
}

static void index_demands(ap_local *l, ap_arena *arena)
{
    const ap_problem *p = &l->k->p;
    uint32_t *count = AP_NEW_ARRAY(arena, uint32_t, p->nnodes);
    for (uint32_t d = 0; d < p->ndemands; d++)
        count[p->demand[d].node]++;
    l->demand_at = offsets(arena, p->nnodes, count);
    l->demand_of = AP_NEW_ARRAY(arena, uint32_t, p->ndemands);
    for (uint32_t d = p->ndemands; d-- > 0;)
        l->demand_of[l->demand_at[p->demand[d].node] + --count[p->demand[d].node]] = d;
    count = AP_NEW_ARRAY(arena, uint32_t, p->nedges);
    for (uint32_t d = 0; d < p->npair_demands; d++)
        count[p->pair_demand[d].edge]++;
    l->pair_at = offsets(arena, p->nedges, count);
    l->pair_of = AP_NEW_ARRAY(arena, uint32_t, p->npair_demands);
    for (uint32_t d = p->npair_demands; d-- > 0;)
        l->pair_of[l->pair_at[p->pair_demand[d].edge] + --count[p->pair_demand[d].edge]] = d;
}

ap_local *ap_local_create(ap_arena *arena, const ap_kernel *k)
{
    ap_local *l = AP_NEW(arena, ap_local);
    l->k = k;
    index_edges(l, arena);
    index_demands(l, arena);
    l->x = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    l->best = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    uint32_t nblocks = k->nrows / BLOCK + 1;
    l->over = AP_NEW_ARRAY(arena, int64_t, k->nrows);
    l->shift = AP_NEW_ARRAY(arena, int64_t, nblocks);
    l->most = AP_NEW_ARRAY(arena, int64_t, nblocks);
    l->least = AP_NEW_ARRAY(arena, int64_t, nblocks);
    l->excess_to = ap_arena_calloc(arena, (size_t)k->nrows + 1, sizeof *l->excess_to);
    l->rows_to = AP_NEW_ARRAY(arena, uint32_t, (size_t)k->nrows + 1);
    return l;
}

static void count_cost(ap_local *l, int64_t c, int64_t sign)
{
    if (c == AP_FORBIDDEN)
        l->forbidden += (uint32_t)sign;
    else
        l->cost += sign * c;
}

static int64_t over(const ap_local *l, uint32_t r)
{
    return ap_max_i64(l->over[r] + l->shift[r / BLOCK], 0);
}

static uint32_t block_end(const ap_local *l, uint32_t block)
{
    uint32_t end = (block + 1) * BLOCK;
    return end < l->k->nrows ? end : l->k->nrows;
}

static void find_bounds(ap_local *l, uint32_t block)
{
    int64_t most = INT64_MIN, least = INT64_MAX;
    for (uint32_t r = block * BLOCK; r < block_end(l, block); r++) {
        most = ap_max_i64(most, l->over[r]);
        least = ap_min_i64(least, l->over[r]);
    }
    l->most[block] = most + l->shift[block];
    l->least[block] = least + l->shift[block];
}

static void hold_block(ap_local *l, uint32_t block, int64_t bytes)
{
    uint32_t lo = block * BLOCK, hi = block_end(l, block);
    if (l->least[block] + ap_min_i64(bytes, 0) >= 0)
        l->excess += (__int128)bytes * (hi - lo);
    else if (l->most[block] + ap_max_i64(bytes, 0) > 0)
        for (uint32_t r = lo; r < hi; r++)
            l->excess += ap_max_i64(l->over[r] + l->shift[block] + bytes, 0) - over(l, r);
    l->shift[block] += bytes;
    l->most[block] += bytes;
    l->least[block] += bytes;
}

static void hold(ap_local *l, uint32_t lo, uint32_t hi, int64_t bytes)
{
    if (bytes == 0)
        return;
    while (lo < hi) {
        uint32_t block = lo / BLOCK, end = block_end(l, block);
        if (lo == block * BLOCK && end <= hi) {
            hold_block(l, block, bytes);
            l->work += 5;
            lo = end;
            continue;
        }
        l->work += 2 * BLOCK;
        for (; lo < hi && lo < end; lo++) {
            l->excess -= over(l, lo);
            l->over[lo] += bytes;
            l->excess += over(l, lo);
        }
        find_bounds(l, block);
    }
}

void ap_local_set(ap_local *l, const uint32_t *choice)
{
    const ap_problem *p = &l->k->p;
    memcpy(l->x, choice, p->nnodes * sizeof *choice);
    l->cost = 0;
    l->forbidden = 0;
    for (uint32_t v = 0; v < p->nnodes; v++)
        count_cost(l, p->cost[v][choice[v]], 1);
    for (uint32_t e = 0; e < p->nedges; e++) {
        const ap_problem_edge *x = &p->edge[e];
        count_cost(l, x->cost[(size_t)choice[x->u] * p->nstrategies[x->v] + choice[x->v]], 1);
    }
    ap_kernel_usage(l->k, choice, l->over);
    l->excess = 0;
    for (uint32_t r = 0; r < l->k->nrows; r++) {
        l->over[r] -= l->k->rhs[r];
        l->shift[r / BLOCK] = 0;
        l->excess += over(l, r);
    }
    for (uint32_t b = 0; b * BLOCK < l->k->nrows; b++)
        find_bounds(l, b);
}

void ap_local_move(ap_local *l, uint32_t v, uint32_t to)
{
    const ap_problem *p = &l->k->p;
    uint32_t from = l->x[v];
    count_cost(l, p->cost[v][from], -1);
    count_cost(l, p->cost[v][to], 1);
    for (uint32_t i = l->edge_at[v]; i < l->edge_at[v + 1]; i++) {
        uint32_t id = l->edge_of[i];
        const ap_problem_edge *e = &p->edge[id];
        size_t nv = p->nstrategies[e->v];
        size_t old = e->u == v ? from * nv + l->x[e->v] : l->x[e->u] * nv + from;
        size_t new = e->u == v ? to *nv + l->x[e->v] : l->x[e->u] * nv + to;
        count_cost(l, e->cost[old], -1);
        count_cost(l, e->cost[new], 1);
        l->work += 10;
        for (uint32_t d = l->pair_at[id]; d < l->pair_at[id + 1]; d++) {
            const ap_pair_demand *x = &p->pair_demand[l->pair_of[d]];
            hold(l, x->lo, x->hi, x->usage[new] - x->usage[old]);
        }
    }
    for (uint32_t d = l->demand_at[v]; d < l->demand_at[v + 1]; d++) {
        const ap_demand *x = &p->demand[l->demand_of[d]];
        hold(l, x->lo, x->hi, x->usage[to] - x->usage[from]);
    }
    l->x[v] = to;
}

bool ap_local_keep(ap_local *l)
{
    if (!ap_local_fits(l) || (l->found && l->cost >= l->best_cost))
        return false;
    l->found = true;
    l->best_cost = l->cost;
    memcpy(l->best, l->x, l->k->p.nnodes * sizeof *l->x);
    return true;
}

/* ---- repair ---- */

static bool late(const ap_local *l)
{
    return l->effort && ap_effort_late(l->effort);
}

static uint32_t worst_row(const ap_local *l)
{
    uint32_t worst = 0;
    for (uint32_t r = 1; r < l->k->nrows; r++)
        if (over(l, r) > over(l, worst))
            worst = r;
    return worst;
}

/* Nodes whose change can help: those that hold memory in the row, or all when something is forbidden. */
static bool can_help(const ap_local *l, uint32_t v, uint32_t row)
{
    if (l->forbidden > 0)
        return true;
    for (uint32_t d = l->demand_at[v]; d < l->demand_at[v + 1]; d++) {
        const ap_demand *x = &l->k->p.demand[l->demand_of[d]];
        if (x->lo <= row && row < x->hi && x->usage[l->x[v]] > 0)
            return true;
    }
    for (uint32_t i = l->edge_at[v]; i < l->edge_at[v + 1]; i++)
        for (uint32_t d = l->pair_at[l->edge_of[i]]; d < l->pair_at[l->edge_of[i] + 1]; d++) {
            const ap_pair_demand *x = &l->k->p.pair_demand[l->pair_of[d]];
            if (x->lo <= row && row < x->hi)
                return true;
        }
    return false;
}

/* Change of cost if v took `to`; false when that is forbidden. */
static bool cost_change(const ap_local *l, uint32_t v, uint32_t to, int64_t *out)
{
    const ap_problem *p = &l->k->p;
    if (p->cost[v][to] == AP_FORBIDDEN)
        return false;
    int64_t sum = p->cost[v][to] - p->cost[v][l->x[v]];
    for (uint32_t i = l->edge_at[v]; i < l->edge_at[v + 1]; i++) {
        const ap_problem_edge *e = &p->edge[l->edge_of[i]];
        size_t nv = p->nstrategies[e->v];
        int64_t a = e->cost[e->u == v ? to * nv + l->x[e->v] : l->x[e->u] * nv + to];
        if (a == AP_FORBIDDEN)
            return false;
        sum += a - e->cost[(size_t)l->x[e->u] * nv + l->x[e->v]];
    }
    *out = sum;
    return true;
}

typedef struct candidate {
    bool any;
    uint32_t v, to;
    uint32_t forbidden;
    double score; /* cost per byte of excess removed */
} candidate;

static double score_of(double loss, double gain)
{
    return loss > 0 ? loss / gain : loss * gain;
}

static void consider(ap_local *l, uint32_t v, uint32_t to, candidate *best)
{
    uint32_t from = l->x[v], forbidden = l->forbidden;
    int64_t cost = l->cost;
    __int128 excess = l->excess;
    ap_local_move(l, v, to);
    bool better = l->forbidden < forbidden || (l->forbidden == forbidden && l->excess < excess);
    if (better) {
        double gain = l->excess < excess ? (double)(excess - l->excess) : 1e-3, loss = (double)(l->cost - cost);
        double score = score_of(loss, gain);
        if (!best->any || l->forbidden < best->forbidden || (l->forbidden == best->forbidden && score < best->score))
            *best = (candidate){true, v, to, l->forbidden, score};
    }
    ap_local_move(l, v, from);
}

/* Sums over rows, from the first: what is exceeded, and how many rows are. */
static void sum_excess(ap_local *l)
{
    for (uint32_t r = 0; r < l->k->nrows; r++) {
        int64_t excess = over(l, r);
        l->excess_to[r + 1] = l->excess_to[r] + excess;
        l->rows_to[r + 1] = l->rows_to[r] + (excess > 0);
    }
}

/* What holding `less` less during [lo, hi) takes off the excess at most. */
static __int128 most_gain(const ap_local *l, uint32_t lo, uint32_t hi, int64_t less)
{
    if (lo >= hi || less <= 0)
        return 0;
    __int128 all = l->excess_to[hi] - l->excess_to[lo], each = (__int128)less * (l->rows_to[hi] - l->rows_to[lo]);
    return all < each ? all : each;
}

/* The same of v taking `to`: each demand by itself, as if no other became larger. */
static __int128 gain_bound(ap_local *l, uint32_t v, uint32_t to)
{
    const ap_problem *p = &l->k->p;
    uint32_t from = l->x[v];
    __int128 gain = 0;
    for (uint32_t d = l->demand_at[v]; d < l->demand_at[v + 1]; d++) {
        const ap_demand *x = &p->demand[l->demand_of[d]];
        gain += most_gain(l, x->lo, x->hi, x->usage[from] - x->usage[to]);
    }
    for (uint32_t i = l->edge_at[v]; i < l->edge_at[v + 1]; i++) {
        uint32_t id = l->edge_of[i];
        const ap_problem_edge *e = &p->edge[id];
        size_t nv = p->nstrategies[e->v], old = (size_t)l->x[e->u] * nv + l->x[e->v];
        size_t new = e->u == v ? to *nv + l->x[e->v] : l->x[e->u] * nv + to;
        for (uint32_t d = l->pair_at[id]; d < l->pair_at[id + 1]; d++) {
            const ap_pair_demand *x = &p->pair_demand[l->pair_of[d]];
            gain += most_gain(l, x->lo, x->hi, x->usage[old] - x->usage[new]);
        }
        l->work += 5 * (1 + l->pair_at[id + 1] - l->pair_at[id]);
    }
    l->work += 5 * (l->demand_at[v + 1] - l->demand_at[v]);
    return gain;
}

/* False only when `consider` would not take it; far cheaper, as most are not taken. Where nothing is forbidden. */
static bool worth_considering(ap_local *l, uint32_t v, uint32_t to, const candidate *best)
{
    int64_t change;
    if (!cost_change(l, v, to, &change))
        return false;
    __int128 gain = gain_bound(l, v, to);
    return gain > 0 && (!best->any || score_of((double)change, (double)gain) < best->score);
}

bool ap_local_repair(ap_local *l, uint32_t max_moves)
{
    for (uint32_t m = 0; m < max_moves && !ap_local_fits(l); m++) {
        candidate best = {0};
        uint32_t row = l->k->nrows > 0 ? worst_row(l) : 0;
        sum_excess(l);
        for (uint32_t v = 0; v < l->k->p.nnodes; v++) {
            if (v % LOOK == 0 && late(l))
                return false;
            if (!can_help(l, v, row))
                continue;
            for (uint32_t to = 0; to < l->k->p.nstrategies[v]; to++)
                if (to != l->x[v] && (l->forbidden > 0 || worth_considering(l, v, to, &best)))
                    consider(l, v, to, &best);
        }
        if (!best.any)
            return false;
        ap_local_move(l, best.v, best.to);
    }
    return ap_local_fits(l);
}

/* ---- improvement ---- */

static bool improve_node(ap_local *l, uint32_t v)
{
    uint32_t from = l->x[v], best = from;
    int64_t best_change = 0, change;
    for (uint32_t to = 0; to < l->k->p.nstrategies[v]; to++) {
        if (to == from || !cost_change(l, v, to, &change) || change >= best_change)
            continue;
        ap_local_move(l, v, to);
        if (l->excess == 0) {
            best = to;
            best_change = change;
        }
        ap_local_move(l, v, from);
    }
    if (best != from)
        ap_local_move(l, v, best);
    return best != from;
}

void ap_local_improve(ap_local *l, uint32_t max_sweeps)
{
    if (!ap_local_fits(l))
        return;
    bool changed = true;
    for (uint32_t s = 0; s < max_sweeps && changed; s++) {
        changed = false;
        for (uint32_t v = 0; v < l->k->p.nnodes; v++) {
            if (v % LOOK == 0 && late(l))
                return;
            changed |= improve_node(l, v);
        }
    }
}

void ap_local_offer(ap_local *l, const uint32_t *choice, uint32_t max_repairs)
{
    ap_local_set(l, choice);
    if (ap_local_repair(l, max_repairs)) {
        ap_local_improve(l, 20);
        ap_local_keep(l);
    }
}

/* ---- mixing ---- */

/* Numbers the connected parts of the nodes where a and b differ, from 1. */
static uint32_t differing_parts(ap_local *l, ap_arena *scratch, const uint32_t *a, const uint32_t *b, uint32_t *part)
{
    const ap_problem *p = &l->k->p;
    uint32_t *stack = AP_NEW_ARRAY(scratch, uint32_t, p->nnodes), n = 0;
    for (uint32_t s = 0; s < p->nnodes; s++) {
        if (a[s] == b[s] || part[s] != 0)
            continue;
        uint32_t depth = 1;
        stack[0] = s;
        part[s] = ++n;
        while (depth > 0) {
            uint32_t v = stack[--depth];
            for (uint32_t i = l->edge_at[v]; i < l->edge_at[v + 1]; i++) {
                const ap_problem_edge *e = &p->edge[l->edge_of[i]];
                uint32_t w = e->u == v ? e->v : e->u;
                if (a[w] != b[w] && part[w] == 0) {
                    part[w] = n;
                    stack[depth++] = w;
                }
            }
        }
    }
    return n;
}

static void move_part(ap_local *l, const uint32_t *part, uint32_t which, const uint32_t *to)
{
    for (uint32_t v = 0; v < l->k->p.nnodes; v++)
        if (part[v] == which && l->x[v] != to[v])
            ap_local_move(l, v, to[v]);
}

/* From a, takes over each part of b that lowers the cost and still fits. */
static void mix_parts(ap_local *l, ap_arena *scratch, const uint32_t *a, const uint32_t *b, uint64_t work)
{
    uint32_t n = l->k->p.nnodes, *part = AP_NEW_ARRAY(scratch, uint32_t, n);
    uint32_t nparts = differing_parts(l, scratch, a, b, part);
    if (nparts < 2 || (uint64_t)nparts * n > 16 * work)
        return;
    ap_local_set(l, a);
    for (uint32_t i = 1; i <= nparts && !late(l); i++) {
        int64_t cost = l->cost;
        move_part(l, part, i, b);
        if (!ap_local_fits(l) || l->cost >= cost)
            move_part(l, part, i, a);
    }
    ap_local_keep(l);
}

static void mix_windows(ap_local *l, const uint32_t *a, const uint32_t *b, uint64_t work)
{
    uint32_t n = l->k->p.nnodes, step = 1;
    while ((uint64_t)n * n / 2 / step > work)
        step++;
    for (uint32_t from = 0; from < n && !late(l); from += step) {
        ap_local_set(l, a);
        for (uint32_t v = from; v < n; v++) {
            if (l->x[v] == b[v])
                continue;
            ap_local_move(l, v, b[v]);
            ap_local_keep(l);
        }
    }
}

void ap_local_mix(ap_local *l, ap_arena *scratch, const uint32_t *a, const uint32_t *b, uint64_t work)
{
    mix_parts(l, scratch, a, b, work);
    mix_windows(l, a, b, work);
    if (l->found) {
        uint32_t *best = ap_arena_memdup(scratch, l->best, l->k->p.nnodes * sizeof *best);
        ap_local_set(l, best);
        ap_local_improve(l, 20);
        ap_local_keep(l);
    }
}
