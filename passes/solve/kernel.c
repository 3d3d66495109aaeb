/* Kernels: from points of time to memory rows, evaluation, independent blocks. */
#include "passes/solve/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double ap_effort_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ap_effort_left(const ap_effort *e)
{
    if (e->stop && *e->stop)
        return 0;
    return e->deadline == 0 ? 1e9 : e->deadline - ap_effort_now();
}

bool ap_effort_late(const ap_effort *e)
{
    return (e->stop && *e->stop) || (e->deadline != 0 && ap_effort_now() >= e->deadline);
}

bool ap_effort_spent(const ap_effort *e)
{
    return e->work <= 0 || ap_effort_late(e);
}

void ap_effort_charge(ap_effort *e, uint64_t work)
{
    if (e->work == INT64_MAX)
        return;
    e->work = work >= (uint64_t)ap_max_i64(e->work, 0) ? 0 : e->work - (int64_t)work;
}

/* ---- rows ---- */

typedef struct event {
    uint32_t time, start; /* ends (0) sort before starts (1) */
} event;

static int event_compare(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

/* times[r] is a point inside row r: the last start before the next end. */
static uint32_t rows_find(event *ev, size_t n, uint32_t *times)
{
    qsort(ev, n, sizeof *ev, event_compare);
    uint32_t nrows = 0, last = 0;
    bool started = false;
    for (size_t i = 0; i < n; i++) {
        if (ev[i].start != 0) {
            started = true;
            last = ev[i].time;
        } else if (started) {
            times[nrows++] = last;
            started = false;
        }
    }
    return nrows;
}

static uint32_t row_at(const uint32_t *times, uint32_t nrows, uint32_t t)
{
    uint32_t lo = 0, hi = nrows;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (times[mid] < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static uint32_t *rows_of_problem(ap_arena *arena, const ap_problem *p, uint32_t *out_n)
{
    size_t total = 2 * ((size_t)p->ndemands + p->npair_demands), n = 0;
    event *ev = AP_NEW_ARRAY(arena, event, total);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        if (p->demand[d].lo < p->demand[d].hi) {
            ev[n++] = (event){p->demand[d].lo, 1};
            ev[n++] = (event){p->demand[d].hi, 0};
        }
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        if (p->pair_demand[d].lo < p->pair_demand[d].hi) {
            ev[n++] = (event){p->pair_demand[d].lo, 1};
            ev[n++] = (event){p->pair_demand[d].hi, 0};
        }
    }
    uint32_t *times = AP_NEW_ARRAY(arena, uint32_t, total / 2);
    *out_n = rows_find(ev, n, times);
    return times;
}

void ap_kernel_from_problem(ap_arena *arena, const ap_problem *p, ap_kernel *out)
{
    *out = (ap_kernel){.p = *p};
    out->p.ndemands = out->p.npair_demands = 0;
    if (p->limit == INT64_MAX)
        return;
    uint32_t *times = rows_of_problem(arena, p, &out->nrows);
    int64_t *rhs = AP_NEW_ARRAY(arena, int64_t, out->nrows);
    for (uint32_t r = 0; r < out->nrows; r++)
        rhs[r] = p->limit;
    ap_demand *demand = AP_NEW_ARRAY(arena, ap_demand, p->ndemands);
    ap_pair_demand *pair = AP_NEW_ARRAY(arena, ap_pair_demand, p->npair_demands);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        ap_demand x = p->demand[d];
        if (x.lo < x.hi) {
            x.lo = row_at(times, out->nrows, x.lo);
            x.hi = row_at(times, out->nrows, x.hi);
            demand[out->p.ndemands++] = x;
        }
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        ap_pair_demand x = p->pair_demand[d];
        if (x.lo < x.hi) {
            x.lo = row_at(times, out->nrows, x.lo);
            x.hi = row_at(times, out->nrows, x.hi);
            pair[out->p.npair_demands++] = x;
        }
    }
    out->rhs = rhs;
    out->p.demand = demand;
    out->p.pair_demand = pair;
}

/* ---- evaluation ---- */

bool ap_kernel_cost(const ap_kernel *k, const uint32_t *choice, int64_t *out)
{
    int64_t sum = 0;
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        int64_t c = k->p.cost[v][choice[v]];
        if (c == AP_FORBIDDEN)
            return false;
        sum += c;
    }
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        const ap_problem_edge *x = &k->p.edge[e];
        int64_t c = x->cost[(size_t)choice[x->u] * k->p.nstrategies[x->v] + choice[x->v]];
        if (c == AP_FORBIDDEN)
            return false;
        sum += c;
    }
    *out = sum;
    return true;
}

static void hold(const ap_kernel *k, uint32_t lo, uint32_t hi, int64_t bytes, int64_t *change)
{
    if (lo >= hi)
        return;
    change[lo] += bytes;
    if (hi < k->nrows)
        change[hi] -= bytes;
}

/* As changes from row to row first: much is held over many rows. */
void ap_kernel_usage(const ap_kernel *k, const uint32_t *choice, int64_t *use)
{
    memset(use, 0, k->nrows * sizeof *use);
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        hold(k, x->lo, x->hi, x->usage[choice[x->node]], use);
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        const ap_problem_edge *e = &k->p.edge[x->edge];
        hold(k, x->lo, x->hi, x->usage[(size_t)choice[e->u] * k->p.nstrategies[e->v] + choice[e->v]], use);
    }
    for (uint32_t r = 1; r < k->nrows; r++)
        use[r] += use[r - 1];
}

bool ap_kernel_fits(const ap_kernel *k, const int64_t *use)
{
    for (uint32_t r = 0; r < k->nrows; r++)
        if (use[r] > k->rhs[r])
            return false;
    return true;
}

static bool range_add(ap_kernel_range *sum, const int64_t *c, size_t n)
{
    int64_t least = 0, most = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (c[i] == AP_FORBIDDEN)
            continue;
        least = any ? ap_min_i64(least, c[i]) : c[i];
        most = any ? ap_max_i64(most, c[i]) : c[i];
        any = true;
    }
    __int128 up = most, down = least;
    sum->least += down;
    sum->most += up;
    sum->magnitude += (up > -down ? up : -down);
    return any;
}

bool ap_kernel_range_get(const ap_kernel *k, ap_kernel_range *out)
{
    *out = (ap_kernel_range){0};
    bool ok = true;
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        ok &= range_add(out, k->p.cost[v], k->p.nstrategies[v]);
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        const ap_problem_edge *x = &k->p.edge[e];
        ok &= range_add(out, x->cost, (size_t)k->p.nstrategies[x->u] * k->p.nstrategies[x->v]);
    }
    return ok;
}

/* ---- blocks ---- */

static uint32_t root(uint32_t *up, uint32_t v)
{
    while (up[v] != v) {
        up[v] = up[up[v]];
        v = up[v];
    }
    return v;
}

/* The smaller id becomes the root. */
static void join(uint32_t *up, uint32_t a, uint32_t b)
{
    a = root(up, a);
    b = root(up, b);
    if (a < b)
        up[b] = a;
    else
        up[a] = b;
}

uint32_t ap_kernel_blocks(ap_arena *arena, const ap_kernel *k, uint32_t *block)
{
    uint32_t n = k->p.nnodes, count = 0;
    uint32_t *up = AP_NEW_ARRAY(arena, uint32_t, n), *holder = AP_NEW_ARRAY(arena, uint32_t, k->nrows);
    for (uint32_t v = 0; v < n; v++)
        up[v] = v;
    for (uint32_t r = 0; r < k->nrows; r++)
        holder[r] = AP_NONE;
    for (uint32_t e = 0; e < k->p.nedges; e++)
        join(up, k->p.edge[e].u, k->p.edge[e].v);
    for (uint32_t d = 0; d < k->p.ndemands + k->p.npair_demands; d++) {
        const ap_pair_demand *q = d < k->p.ndemands ? NULL : &k->p.pair_demand[d - k->p.ndemands];
        uint32_t v = q ? k->p.edge[q->edge].u : k->p.demand[d].node;
        uint32_t lo = q ? q->lo : k->p.demand[d].lo, hi = q ? q->hi : k->p.demand[d].hi;
        for (uint32_t r = lo; r < hi; r++) {
            if (holder[r] == AP_NONE)
                holder[r] = v;
            else
                join(up, holder[r], v);
        }
    }
    for (uint32_t v = 0; v < n; v++)
        block[v] = root(up, v) == v ? count++ : block[root(up, v)];
    return count;
}

/* Rows of the block; new_row[r] is the number of its rows before r. Rows that nobody holds stay with block 0. */
static void part_rows(ap_arena *arena, const ap_kernel *k, const uint32_t *block, uint32_t which, ap_kernel *out,
                      uint32_t *new_row)
{
    uint32_t *owner = AP_NEW_ARRAY(arena, uint32_t, k->nrows);
    for (uint32_t d = 0; d < k->p.ndemands; d++)
        for (uint32_t r = k->p.demand[d].lo; r < k->p.demand[d].hi; r++)
            owner[r] = block[k->p.demand[d].node];
    for (uint32_t d = 0; d < k->p.npair_demands; d++)
        for (uint32_t r = k->p.pair_demand[d].lo; r < k->p.pair_demand[d].hi; r++)
            owner[r] = block[k->p.edge[k->p.pair_demand[d].edge].u];
    int64_t *rhs = AP_NEW_ARRAY(arena, int64_t, k->nrows);
    double *hint = AP_NEW_ARRAY(arena, double, k->nrows);
    for (uint32_t r = 0; r < k->nrows; r++) {
        new_row[r] = out->nrows;
        if (owner[r] == which) {
            hint[out->nrows] = k->hint ? k->hint[r] : 0;
            rhs[out->nrows++] = k->rhs[r];
        }
    }
    out->hint = k->hint ? hint : NULL;
    new_row[k->nrows] = out->nrows;
    out->rhs = rhs;
}

static void part_nodes(ap_arena *arena, const ap_kernel *k, const uint32_t *block, uint32_t which, ap_problem *q,
                       uint32_t *new_node, uint32_t *old_node)
{
    uint32_t *ns = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    const int64_t **cost = AP_NEW_ARRAY(arena, const int64_t *, k->p.nnodes);
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        if (block[v] != which)
            continue;
        new_node[v] = q->nnodes;
        old_node[q->nnodes] = v;
        ns[q->nnodes] = k->p.nstrategies[v];
        cost[q->nnodes++] = k->p.cost[v];
    }
    q->nstrategies = ns;
    q->cost = cost;
}

void ap_kernel_part(ap_arena *arena, const ap_kernel *k, const uint32_t *block, uint32_t which, ap_kernel *out,
                    uint32_t **out_node)
{
    *out = (ap_kernel){0};
    ap_problem *q = &out->p;
    q->limit = INT64_MAX;
    uint32_t *new_node = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    uint32_t *new_edge = AP_NEW_ARRAY(arena, uint32_t, k->p.nedges);
    uint32_t *new_row = AP_NEW_ARRAY(arena, uint32_t, k->nrows + 1);
    *out_node = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    part_nodes(arena, k, block, which, q, new_node, *out_node);
    part_rows(arena, k, block, which, out, new_row);
    ap_problem_edge *edge = AP_NEW_ARRAY(arena, ap_problem_edge, k->p.nedges);
    ap_demand *demand = AP_NEW_ARRAY(arena, ap_demand, k->p.ndemands);
    ap_pair_demand *pair = AP_NEW_ARRAY(arena, ap_pair_demand, k->p.npair_demands);
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        const ap_problem_edge *x = &k->p.edge[e];
        if (block[x->u] != which)
            continue;
        new_edge[e] = q->nedges;
        edge[q->nedges++] = (ap_problem_edge){new_node[x->u], new_node[x->v], x->cost};
    }
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        if (block[x->node] == which)
            demand[q->ndemands++] = (ap_demand){new_node[x->node], new_row[x->lo], new_row[x->hi], x->usage};
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        if (block[k->p.edge[x->edge].u] == which)
            pair[q->npair_demands++] = (ap_pair_demand){new_edge[x->edge], new_row[x->lo], new_row[x->hi], x->usage};
    }
    q->edge = edge;
    q->demand = demand;
    q->pair_demand = pair;
}
