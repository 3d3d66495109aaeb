/* The ascent where pairs have demands: see pair_climb.h. Prices of pairs stand on the edges, so a pass costs no more
 * than it would without them; the choices that the passes meet are repaired and improved. */
#include "passes/solve/pair_climb.h"

#include "passes/solve/branch.h"

#include <string.h>

#define OFFER 10 /* steps between two choices that are tried */
#define REPAIRS 64
#define REPAIRS_LAST 600

static int64_t goal(const ap_pair_climb *g)
{
    return g->l->found ? ap_min_i64(g->cutoff, g->l->best_cost) : g->cutoff;
}

/* True when enough goes for another look: at the end less is enough. */
static bool try_fixing(ap_pair_climb *g, bool last)
{
    int64_t below = goal(g);
    if (below == INT64_MAX || !g->s->opt->presolve)
        return false;
    int64_t gap = below - g->out->bound;
    if (g->tried != INT64_MAX && gap > g->tried - g->tried / 10 && !last)
        return false;
    g->tried = gap;
    ap_climb_settle(g->climb);
    g->out->bound = ap_max_i64(g->out->bound, g->climb->bound);
    if (g->out->bound >= below)
        return false;
    memset(g->drop, 0, g->net->at[g->net->n] * sizeof *g->drop);
    uint64_t nodes = ap_ascent_fix(g->climb->a, below, g->drop, NULL), strategies = 0, entries = 0;
    uint64_t pairs = ap_ascent_fix_edges(g->climb->a, below, g->scratch, NULL);
    for (uint32_t v = 0; v < g->net->n; v++)
        strategies += g->net->size[v];
    for (uint32_t e = 0; e < g->k->p.nedges; e++) {
        const ap_problem_edge *x = &g->k->p.edge[e];
        for (size_t i = 0; i < (size_t)g->k->p.nstrategies[x->u] * g->k->p.nstrategies[x->v]; i++)
            entries += x->cost[i] != AP_FORBIDDEN;
    }
    bool enough =
        last ? nodes * 50 >= strategies || pairs * 8 >= entries : nodes * 5 >= strategies || pairs * 2 >= entries;
    if (enough)
        ap_climb_fixed(g->s->arena, g->climb, g->drop, below, g->scratch, &g->out->fixed);
    return enough;
}

static void offer(ap_pair_climb *g, const uint32_t *x, uint32_t repairs)
{
    uint64_t before = g->l->work;
    ap_local_offer(g->l, x, repairs);
    g->offered += g->l->work - before;
    ap_effort_charge(&g->s->effort, (g->l->work - before) / 1000 + g->k->p.nedges / 100 + 1);
}

ap_pair_climb *ap_pair_climb_create(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t cutoff)
{
    ap_pair_climb *g = AP_NEW(s->arena, ap_pair_climb);
    *g = (ap_pair_climb){.s = s, .k = k, .l = l, .cutoff = cutoff, .tried = INT64_MAX};
    g->net = ap_net_create(s->arena, k, INT64_MAX);
    g->climb = ap_climb_create(s->arena, g->net);
    g->climb->constant = s->base;
    g->drop = AP_NEW_ARRAY(s->arena, bool, g->net->at[g->net->n]);
    g->scratch = AP_NEW_ARRAY(s->arena, int64_t, g->net->at[g->net->n]);
    return g;
}

static void start(ap_pair_climb *g, ap_large *out)
{
    ap_kernel_range range;
    ap_kernel_range_get(g->k, &range);
    *out = (ap_large){.bound = (int64_t)range.least};
    g->out = out;
}

static void finish(ap_pair_climb *g)
{
    g->out->infeasible = g->out->bound >= g->cutoff && !(g->l->found && g->l->best_cost < g->cutoff);
}

void ap_pair_climb_run(ap_pair_climb *g, ap_large *out)
{
    ap_effort *effort = &g->s->effort;
    uint64_t step = ap_ascent_work(g->net) / 1000 + 1;
    start(g, out);
    while (!g->climb->done && out->bound < goal(g) && !ap_effort_spent(effort)) {
        ap_climb_step(g->climb, goal(g));
        ap_effort_charge(effort, step);
        out->bound = ap_max_i64(out->bound, g->climb->bound);
        if (g->climb->steps % OFFER != 0)
            continue;
        if (g->offered <= g->climb->work)
            offer(g, g->climb->a->x, REPAIRS);
        out->reduced = g->climb->steps % (10 * OFFER) == 0 && try_fixing(g, false);
        if (out->reduced)
            return;
    }
    offer(g, g->climb->x, REPAIRS_LAST);
    out->reduced = out->bound < goal(g) && try_fixing(g, true);
    finish(g);
}

void ap_pair_climb_branch(ap_pair_climb *g, int64_t work, ap_large *out)
{
    ap_effort *effort = &g->s->effort;
    start(g, out);
    out->bound = g->climb->bound;
    if (!ap_branch_takes(g->net))
        return;
    ap_branch *b = ap_branch_create(g->s->arena, g->climb, NULL, g->l);
    b->effort = effort;
    while (!b->done && out->bound < goal(g) && work > 0 && !ap_effort_spent(effort)) {
        uint64_t before = b->work;
        int64_t best = goal(g);
        ap_branch_step(b, best);
        int64_t spent = (int64_t)((b->work - before) / 1000 + 1);
        ap_effort_charge(effort, (uint64_t)spent);
        work -= work == INT64_MAX ? 0 : spent;
        out->bound = ap_max_i64(out->bound, b->bound);
        if (goal(g) >= best)
            continue;
        ap_branch_to_root(b);
        out->reduced = try_fixing(g, true);
        if (out->reduced)
            return;
        ap_branch_back(b);
    }
    finish(g);
}
