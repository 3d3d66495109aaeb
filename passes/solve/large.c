/* Rounds of ascent and search: see large.h. */
#include "passes/solve/large.h"

#include "passes/solve/branch.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)4 << 30)
#define FIRST_STEPS 30
#define FIRST_SLICE 4000000u /* nanoseconds of work of the first rounds */
#define LAST_SLICE 200000000u
#define REST 40 /* rounds without a better choice after which the search has come to rest */

typedef struct task {
    ap_climb *climb; /* one of the three */
    ap_branch *branch;
    ap_search *search;
    const ap_effort *effort;
    uint64_t slice;
    int64_t cutoff;
} task;

typedef struct large {
    ap_solver *s;
    const ap_kernel *k;
    ap_local *l;
    int64_t cutoff;
    ap_net *net;
    ap_climb *climb;
    ap_branch *branch; /* when the climb is done */
    ap_search *search[2];
    ap_large *out;
    bool *drop;
    int64_t *scratch;
    int64_t work;  /* that may still be done here */
    uint32_t idle; /* rounds */
    int64_t tried; /* goal - bound at the last attempt to fix */
    double half;   /* when half of the time has passed; 0: no matter */
} large;

static void *task_run(void *user)
{
    task *t = user;
    if (t->climb) {
        uint64_t until = t->climb->work + t->slice;
        while (t->climb->work < until && !t->climb->done && t->climb->bound < t->cutoff && !ap_effort_late(t->effort))
            ap_climb_step(t->climb, t->cutoff);
    } else if (t->branch) {
        uint64_t until = t->branch->work + t->slice;
        while (t->branch->work < until && !t->branch->done && !ap_effort_late(t->effort))
            ap_branch_step(t->branch, t->cutoff);
    } else {
        uint64_t until = t->search->work + t->slice;
        while (t->search->work < until && !ap_effort_late(t->effort))
            ap_search_round(t->search);
    }
    return NULL;
}

static void run_both(const large *g, task *a, task *b)
{
    pthread_t other;
    bool apart = g->s->opt->threads > 1 && pthread_create(&other, NULL, task_run, b) == 0;
    task_run(a);
    if (apart)
        pthread_join(other, NULL);
    else
        task_run(b);
}

static int64_t goal(const large *g)
{
    return g->l->found ? ap_min_i64(g->cutoff, g->l->best_cost) : g->cutoff;
}

/* What the searches have found becomes everybody's. */
static bool collect(large *g)
{
    bool better = false;
    for (int i = 0; i < 2; i++) {
        if (!g->search[i]->found || (g->l->found && g->search[i]->best_cost >= g->l->best_cost))
            continue;
        ap_local_set(g->l, g->search[i]->best);
        better |= ap_local_keep(g->l);
    }
    for (int i = 0; i < 2 && g->l->found; i++)
        ap_search_tell(g->search[i], g->l->best, g->l->best_cost);
    for (int i = 0; i < 2; i++)
        g->search[i]->bound = g->out->bound;
    return better;
}

/* ---- fixing ---- */

static uint64_t strategies_of(const ap_net *net)
{
    uint64_t n = 0;
    for (uint32_t v = 0; v < net->n; v++)
        n += net->size[v];
    return n;
}

static uint64_t allowed(const ap_problem *p, uint32_t e)
{
    size_t n = (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += p->edge[e].cost[i] != AP_FORBIDDEN;
    return count;
}

/* True when enough goes. At rest, anything is enough that is worth another presolve. */
static bool try_fixing(large *g, bool rest)
{
    int64_t below = goal(g);
    if (below == INT64_MAX || !g->s->opt->presolve)
        return false;
    int64_t gap = below - g->out->bound;
    if (g->tried != INT64_MAX && gap > g->tried - g->tried / 20 && (!rest || g->branch))
        return false;
    g->tried = gap;
    ap_climb_settle(g->climb);
    g->out->bound = ap_max_i64(g->out->bound, g->climb->bound);
    if (g->out->bound >= below)
        return false;
    memset(g->drop, 0, g->net->at[g->net->n] * sizeof *g->drop);
    uint64_t nodes = ap_ascent_fix(g->climb->a, below, g->drop, NULL);
    uint64_t pairs = ap_ascent_fix_edges(g->climb->a, below, g->scratch, NULL);
    uint64_t entries = 0;
    for (uint32_t e = 0; e < g->k->p.nedges; e++)
        entries += allowed(&g->k->p, e);
    uint64_t all = strategies_of(g->net);
    bool enough = rest ? nodes * 50 >= all || pairs * 8 >= entries : nodes * 10 >= all || pairs * 3 >= entries;
    if (enough)
        ap_climb_fixed(g->s->arena, g->climb, g->drop, below, g->scratch, &g->out->fixed);
    return enough;
}

static bool fixing_pays(large *g, bool climbing)
{
    if (!g->branch)
        return try_fixing(g, g->climb->done || !climbing);
    ap_branch_to_root(g->branch);
    bool pays = try_fixing(g, true);
    ap_branch_back(g->branch);
    return pays;
}

/* ---- rounds ---- */

/* The strategies that hold least. */
static void try_smallest(large *g)
{
    const ap_net *net = g->net;
    uint32_t *x = AP_NEW_ARRAY(g->s->arena, uint32_t, net->n);
    for (uint32_t v = 0; v < net->n; v++) {
        __int128 least = 0;
        bool any = false;
        for (uint32_t i = 0; i < net->size[v]; i++) {
            __int128 held = 0;
            for (uint32_t q = net->span_at[v]; q < net->span_at[v + 1]; q++)
                held += (__int128)net->held[q].usage[i] * (net->held[q].hi - net->held[q].lo);
            if (g->k->p.cost[v][i] == AP_FORBIDDEN || (any && held >= least))
                continue;
            any = true;
            least = held;
            x[v] = i;
        }
    }
    ap_search_try(g->search[1], x);
}

/* Half of the time has passed, and nothing is known that fits. */
static void think_of_the_clock(large *g)
{
    if (g->half == 0 || g->l->found || ap_effort_now() < g->half)
        return;
    g->half = 0;
    try_smallest(g);
    collect(g);
}

static void first_choices(large *g)
{
    task t = {.climb = g->climb, .effort = &g->s->effort, .slice = FIRST_STEPS * ap_ascent_work(g->net)};
    t.cutoff = goal(g);
    task_run(&t);
    ap_effort_charge(&g->s->effort, t.slice / 1000);
    g->out->bound = ap_max_i64(g->out->bound, g->climb->bound);
    for (int i = 0; i < 2; i++)
        ap_search_start(g->search[i], g->climb->x, g->climb->best, g->s->base);
}

static ap_branch *branch_create(large *g)
{
    ap_branch *b = ap_branch_create(g->s->arena, g->climb, g->search[0], NULL);
    b->effort = &g->s->effort;
    return b;
}

static bool round_done(large *g, uint64_t *slice, bool on)
{
    task a = {.effort = &g->s->effort, .slice = *slice, .cutoff = goal(g)}, b = a;
    bool climbing = !g->branch && !g->climb->done;
    if (!climbing && !g->branch && ap_branch_takes(g->net))
        g->branch = branch_create(g);
    if (climbing)
        a.climb = g->climb;
    else if (g->branch)
        a.branch = g->branch;
    else
        a.search = g->search[0];
    b.search = g->search[1];
    run_both(g, &a, &b);
    ap_effort_charge(&g->s->effort, *slice / 1000 * 2);
    g->work -= g->work == INT64_MAX ? 0 : (int64_t)(*slice / 1000 * 2);
    g->out->bound = ap_max_i64(g->out->bound, g->branch ? g->branch->bound : g->climb->bound);
    bool better = collect(g);
    g->idle = better ? 0 : g->idle + 1;
    ap_solver_tell(g->s, climbing ? "ascent" : g->branch ? "branching" : "search", g->l, g->out->bound);
    if (climbing)
        for (int i = 0; i < 2; i++)
            ap_search_prices(g->search[i], g->climb->x, g->climb->best);
    if (g->out->bound >= goal(g))
        return true;
    if ((climbing || better) && !ap_effort_late(&g->s->effort) && fixing_pays(g, climbing)) {
        g->out->reduced = true;
        return true;
    }
    if (*slice < LAST_SLICE)
        *slice += *slice / 2;
    return ap_effort_spent(&g->s->effort) || g->work <= 0 || (!on && !climbing && g->idle >= REST);
}

bool ap_large_takes(const ap_kernel *k)
{
    return k->p.npair_demands == 0 && ap_net_bytes(k) < BYTES_MAX && k->p.nnodes > 0;
}

void ap_large_run(ap_solver *s, const ap_kernel *k, ap_local *l, int64_t cutoff, int64_t work, bool on, ap_large *out)
{
    large g = {.s = s, .k = k, .l = l, .cutoff = cutoff, .out = out, .tried = INT64_MAX};
    ap_kernel_range range;
    ap_kernel_range_get(k, &range);
    *out = (ap_large){.bound = (int64_t)range.least};
    g.work = work;
    g.net = ap_net_create(s->arena, k, cutoff == INT64_MAX ? INT64_MAX : cutoff - (int64_t)range.least + 1);
    g.climb = ap_climb_create(s->arena, g.net);
    g.climb->constant = s->base;
    for (int i = 0; i < 2; i++) {
        g.search[i] = ap_search_create(s->arena, g.net, 1 + (uint64_t)i);
        g.search[i]->effort = &s->effort;
    }
    g.drop = AP_NEW_ARRAY(s->arena, bool, g.net->at[g.net->n]);
    g.scratch = AP_NEW_ARRAY(s->arena, int64_t, g.net->at[g.net->n]);
    uint64_t slice = FIRST_SLICE;
    if (s->effort.deadline != 0 && cutoff == INT64_MAX)
        g.half = ap_effort_now() + ap_effort_left(&s->effort) / 2;
    first_choices(&g);
    do
        think_of_the_clock(&g);
    while (out->bound < goal(&g) && !round_done(&g, &slice, on));
    out->infeasible = out->bound >= cutoff && !(l->found && l->best_cost < cutoff);
}
