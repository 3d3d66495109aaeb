/* Steps of the multipliers: see climb.h. */
#include "passes/solve/climb.h"

#include <math.h>
#include <string.h>

#define AVERAGE 0.3   /* weight of the newest slope */
#define AMBITION 0.04 /* the target lies at most so far above the bound, relative */
#define PATIENCE 20
#define SHORTER 0.6
#define LOOK 60 /* steps between two looks at the progress */

ap_climb *ap_climb_create(ap_arena *arena, const ap_net *net)
{
    ap_climb *c = AP_NEW(arena, ap_climb);
    uint32_t rows = net->k->nrows;
    *c = (ap_climb){.a = ap_ascent_create(arena, net), .bound = INT64_MIN, .theta = 1, .mark = INT64_MIN};
    c->best = AP_NEW_ARRAY(arena, double, rows);
    c->slope = AP_NEW_ARRAY(arena, double, rows);
    c->x = AP_NEW_ARRAY(arena, uint32_t, net->n);
    if (net->k->hint) {
        memcpy(c->a->prices->lambda, net->k->hint, rows * sizeof *net->k->hint);
        c->theta = 0.05;
    }
    ap_prices_set(c->a->prices);
    return c;
}

static double whole(const ap_climb *c)
{
    return fabs((double)c->bound + c->constant) + 1;
}

static void remember(ap_climb *c, int64_t bound)
{
    const ap_net *net = c->a->net;
    if (bound <= c->bound) {
        c->idle++;
        return;
    }
    double gain = (double)bound - (double)c->bound;
    if (c->bound == INT64_MIN || gain > 1e-4 * whole(c))
        c->idle = 0;
    c->bound = bound;
    memcpy(c->best, c->a->prices->lambda, net->k->nrows * sizeof *c->best);
    memcpy(c->x, c->a->x, net->n * sizeof *c->x);
}

/* The slope at the choice in hand, averaged; returns its square where it can be followed. */
static double slope_square(ap_climb *c)
{
    ap_ascent *a = c->a;
    const ap_kernel *k = a->net->k;
    double square = 0;
    ap_prices_use(a->net, a->x, a->use);
    for (uint32_t r = 0; r < k->nrows; r++) {
        c->slope[r] = AVERAGE * (double)(a->use[r] - k->rhs[r]) + (1 - AVERAGE) * c->slope[r];
        if (c->slope[r] > 0 || a->prices->lambda[r] > 0)
            square += c->slope[r] * c->slope[r];
    }
    return square;
}

static void look(ap_climb *c)
{
    if (++c->steps % LOOK != 0)
        return;
    double gain = c->mark == INT64_MIN ? INFINITY : (double)c->bound - (double)c->mark;
    c->mark = c->bound;
    c->stalls = gain > 2e-5 * whole(c) ? 0 : c->stalls + 1;
    c->done = c->stalls >= 3;
}

void ap_climb_step(ap_climb *c, int64_t cutoff)
{
    ap_ascent *a = c->a;
    const ap_kernel *k = a->net->k;
    int64_t up = ap_ascent_pass(a, true, false), bound = ap_ascent_pass(a, false, true);
    bound = ap_max_i64(up, bound);
    c->work += ap_ascent_work(a->net);
    remember(c, bound);
    look(c);
    if (c->done)
        return;
    double *lambda = a->prices->lambda, square = slope_square(c);
    if (c->idle >= PATIENCE) {
        c->theta *= SHORTER;
        c->idle = 0;
        memcpy(lambda, c->best, k->nrows * sizeof *lambda);
    }
    double target = (double)c->bound + AMBITION * whole(c);
    if (cutoff != INT64_MAX)
        target = fmin(target, (double)cutoff);
    double step = square > 0 ? c->theta * (target - (double)bound) / square : 0;
    for (uint32_t r = 0; r < k->nrows && step > 0; r++)
        lambda[r] = fmax(0, lambda[r] + step * c->slope[r]);
    ap_prices_set(a->prices);
}

void ap_climb_restart(ap_climb *c, double theta)
{
    c->bound = c->mark = INT64_MIN;
    c->theta = theta;
    c->idle = c->stalls = c->steps = 0;
    c->done = false;
    memset(c->slope, 0, c->a->net->k->nrows * sizeof *c->slope);
    ap_prices_set(c->a->prices);
}

void ap_climb_settle(ap_climb *c)
{
    memcpy(c->a->prices->lambda, c->best, c->a->net->k->nrows * sizeof *c->best);
    ap_prices_set(c->a->prices);
    for (int i = 0; i < 3; i++) {
        int64_t up = ap_ascent_pass(c->a, true, false), bound = ap_ascent_pass(c->a, false, true);
        c->bound = ap_max_i64(c->bound, ap_max_i64(up, bound));
        c->work += ap_ascent_work(c->a->net);
    }
}

void ap_climb_fixed(ap_arena *arena, ap_climb *c, const bool *drop, int64_t below, int64_t *scratch, ap_kernel *out)
{
    const ap_net *net = c->a->net;
    const ap_problem *p = &net->k->p;
    const int64_t **cost = AP_NEW_ARRAY(arena, const int64_t *, p->nnodes);
    ap_problem_edge *edge = ap_arena_memdup(arena, p->edge, p->nedges * sizeof *edge);
    int64_t **matrix = AP_NEW_ARRAY(arena, int64_t *, p->nedges);
    for (uint32_t e = 0; e < p->nedges; e++) {
        size_t n = (size_t)p->nstrategies[edge[e].u] * p->nstrategies[edge[e].v];
        edge[e].cost = matrix[e] = ap_arena_memdup(arena, edge[e].cost, n * sizeof(int64_t));
    }
    ap_ascent_fix_edges(c->a, below, scratch, matrix);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        int64_t *own = ap_arena_memdup(arena, p->cost[v], p->nstrategies[v] * sizeof *own);
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            if (drop[net->at[v] + i])
                own[i] = AP_FORBIDDEN;
        cost[v] = own;
    }
    *out = *net->k;
    out->p.cost = cost;
    out->p.edge = edge;
    out->hint = ap_arena_memdup(arena, c->best, net->k->nrows * sizeof *c->best);
}
