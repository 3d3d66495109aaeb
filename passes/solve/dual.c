/* Memory multipliers: see dual.h. Bounds are computed in integers only: multipliers are integers over a power of
 * two, the price of a demand is rounded down, what the limit pays back is rounded up. Only the search for good
 * multipliers uses doubles. */
#include "passes/solve/dual.h"
#include "passes/solve/mip.h"

#include <math.h>
#include <string.h>

#define MAX_ROUNDS 200
#define MAX_CUTS 120
#define REPAIR_MOVES 32 /* per point met; each looks at every strategy of the nodes in a row */

static int log2_floor(__int128 x)
{
    int n = 0;
    while (x > 1) {
        x >>= 1;
        n++;
    }
    return n;
}

/* The largest that all demands together can hold, summed over demands. */
static __int128 usage_total(const ap_kernel *k)
{
    __int128 sum = 0;
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        int64_t most = 0;
        for (uint32_t i = 0; i < k->p.nstrategies[k->p.demand[d].node]; i++)
            most = ap_max_i64(most, k->p.demand[d].usage[i]);
        sum += most;
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_problem_edge *e = &k->p.edge[k->p.pair_demand[d].edge];
        size_t n = (size_t)k->p.nstrategies[e->u] * k->p.nstrategies[e->v];
        int64_t most = 0;
        for (size_t i = 0; i < n; i++)
            most = ap_max_i64(most, k->p.pair_demand[d].usage[i]);
        sum += most;
    }
    return sum;
}

ap_dual *ap_dual_create(ap_arena *arena, const ap_kernel *k, ap_elim *e, ap_local *l, ap_effort *effort)
{
    ap_dual *d = AP_NEW(arena, ap_dual);
    *d = (ap_dual){.arena = arena, .k = k, .e = e, .local = l, .effort = effort, .bound = INT64_MIN};
    ap_kernel_range range;
    ap_kernel_range_get(k, &range);
    d->most = (int64_t)range.most;
    int bits = log2_floor(range.magnitude + 1) + 1;
    d->scale = (int64_t)1 << (bits < 46 ? 46 - bits : 0);
    int bytes = log2_floor(usage_total(k) + 1);
    d->shift = bytes > 7 ? (bytes < 60 ? bytes - 7 : 53) : 0;
    d->lambda = AP_NEW_ARRAY(arena, double, k->nrows);
    d->best_lambda = AP_NEW_ARRAY(arena, double, k->nrows);
    d->fixed = AP_NEW_ARRAY(arena, int64_t, k->nrows);
    d->prefix = AP_NEW_ARRAY(arena, __int128, (size_t)k->nrows + 1);
    d->active = AP_NEW_ARRAY(arena, bool, k->nrows);
    d->choice = AP_NEW_ARRAY(arena, uint32_t, k->p.nnodes);
    d->use = AP_NEW_ARRAY(arena, int64_t, k->nrows);
    d->node_cost = AP_NEW_ARRAY(arena, int64_t *, k->p.nnodes);
    for (uint32_t v = 0; v < k->p.nnodes; v++)
        d->node_cost[v] = AP_NEW_ARRAY(arena, int64_t, k->p.nstrategies[v]);
    size_t largest = 1;
    for (uint32_t i = 0; i < k->p.nedges; i++) {
        size_t n = (size_t)k->p.nstrategies[k->p.edge[i].u] * k->p.nstrategies[k->p.edge[i].v];
        largest = n > largest ? n : largest;
        ap_elim_set_edge(e, i, k->p.edge[i].cost, d->scale);
    }
    d->pair_cost = AP_NEW_ARRAY(arena, int64_t, largest);
    return d;
}

/* ---- prices ---- */

/* Multipliers to integers, made smaller together if the prices could leave the safe range. */
static void fix_multipliers(ap_dual *d)
{
    const ap_problem *p = &d->k->p;
    double unit = ldexp((double)d->scale, d->shift), total = 0, sum = 0;
    for (uint32_t r = 0; r < d->k->nrows; r++)
        sum += d->lambda[r];
    total = sum * (double)usage_total(d->k) * (double)d->scale;
    double shrink = total > 0x1p57 ? 0x1p57 / total : 1;
    if (sum * shrink * unit > 0x1p61)
        shrink = 0x1p61 / (sum * unit);
    d->prefix[0] = 0;
    for (uint32_t r = 0; r < d->k->nrows; r++) {
        d->lambda[r] *= shrink;
        d->fixed[r] = (int64_t)(d->lambda[r] * unit);
        d->prefix[r + 1] = d->prefix[r] + d->fixed[r];
    }
    __int128 back = 0, one = 1;
    for (uint32_t r = 0; r < d->k->nrows; r++)
        back += (__int128)d->fixed[r] * d->k->rhs[r];
    d->back = (back + (one << d->shift) - 1) >> d->shift;
    for (uint32_t v = 0; v < p->nnodes; v++)
        for (uint32_t i = 0; i < p->nstrategies[v]; i++)
            d->node_cost[v][i] = p->cost[v][i] == AP_FORBIDDEN ? AP_ELIM_INF : p->cost[v][i] * d->scale;
}

static int64_t price(const ap_dual *d, uint32_t lo, uint32_t hi, int64_t usage)
{
    return (int64_t)(((d->prefix[hi] - d->prefix[lo]) * usage) >> d->shift);
}

static void price_nodes(ap_dual *d)
{
    for (uint32_t i = 0; i < d->k->p.ndemands; i++) {
        const ap_demand *x = &d->k->p.demand[i];
        if (d->prefix[x->hi] == d->prefix[x->lo])
            continue;
        for (uint32_t s = 0; s < d->k->p.nstrategies[x->node]; s++)
            if (!AP_ELIM_FORBIDDEN(d->node_cost[x->node][s]))
                d->node_cost[x->node][s] += price(d, x->lo, x->hi, x->usage[s]);
    }
}

/* Scaled costs of an edge with the price of its demands. */
static void price_pair(const ap_dual *d, uint32_t e, int64_t forbidden, int64_t *out)
{
    const ap_problem *p = &d->k->p;
    const int64_t *cost = p->edge[e].cost;
    size_t n = (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
    for (size_t i = 0; i < n; i++)
        out[i] = cost[i] == AP_FORBIDDEN ? forbidden : cost[i] * d->scale;
    for (uint32_t q = d->local->pair_at[e]; q < d->local->pair_at[e + 1]; q++) {
        const ap_pair_demand *x = &p->pair_demand[d->local->pair_of[q]];
        for (size_t i = 0; i < n; i++)
            if (cost[i] != AP_FORBIDDEN)
                out[i] += price(d, x->lo, x->hi, x->usage[i]);
    }
}

/* Demands of one edge need not stand together: the edge is priced when its first one is met. */
static void price_pairs(ap_dual *d)
{
    for (uint32_t e = 0; e < d->k->p.nedges; e++) {
        if (d->local->pair_at[e] == d->local->pair_at[e + 1])
            continue;
        price_pair(d, e, AP_FORBIDDEN, d->pair_cost);
        ap_elim_set_edge(d->e, e, d->pair_cost, 1);
    }
}

/* A scaled total to a bound on costs, rounded up. */
static int64_t unscale(const ap_dual *d, int64_t total)
{
    __int128 x = (__int128)total - d->back, s = d->scale;
    __int128 q = x >= 0 ? (x + s - 1) / s : -((-x) / s);
    return q > INT64_MAX ? INT64_MAX : q < INT64_MIN ? INT64_MIN : (int64_t)q;
}

/* L at d->lambda, and the choice behind it. */
static int64_t evaluate(ap_dual *d)
{
    fix_multipliers(d);
    price_nodes(d);
    price_pairs(d);
    ap_effort_charge(d->effort, d->e->work / 500 + 1);
    int64_t total = ap_elim_run(d->e, d->node_cost, d->choice);
    if (AP_ELIM_FORBIDDEN(total)) {
        d->infeasible = true;
        return INT64_MAX;
    }
    return unscale(d, total);
}

/* ---- the search ---- */

typedef struct search {
    ap_dual *d;
    int64_t cutoff;
    uint32_t nrows, *row; /* active rows, in the order in which they became active */
    AP_VEC(ap_mip_cut) cuts;
    double radius;
    double *lo, *hi, *next;
    uint32_t *cheap; /* the choice at the last point, when it does not fit */
    bool has_cheap;
} search;

/* The choice in hand becomes a cut, its violated rows become active. True when it fits. */
static bool learn(search *s)
{
    ap_dual *d = s->d;
    int64_t cost;
    if (!ap_kernel_cost(d->k, d->choice, &cost))
        return false; /* a heuristic choice of an inexact plan */
    ap_kernel_usage(d->k, d->choice, d->use);
    bool fits = true;
    double *slope = AP_NEW_ARRAY(d->arena, double, d->k->nrows);
    for (uint32_t r = 0; r < d->k->nrows; r++) {
        slope[r] = (double)d->use[r] - (double)d->k->rhs[r];
        if (slope[r] > 0) {
            fits = false;
            if (!d->active[r]) {
                d->active[r] = true;
                s->row[s->nrows++] = r;
            }
        }
    }
    if (s->cuts.len == MAX_CUTS) { /* forget the oldest */
        memmove(s->cuts.at, s->cuts.at + 1, (MAX_CUTS - 1) * sizeof *s->cuts.at);
        s->cuts.len--;
    }
    ap_vec_push(d->arena, &s->cuts, (ap_mip_cut){(double)cost, slope});
    return fits;
}

static void offer(search *s, bool fits)
{
    ap_dual *d = s->d;
    ap_local_offer(d->local, d->choice, REPAIR_MOVES);
    ap_effort_charge(d->effort, d->k->p.nnodes);
    if (!fits) {
        memcpy(s->cheap, d->choice, d->k->p.nnodes * sizeof *s->cheap);
        s->has_cheap = true;
    }
}

/* A first guess of what a byte may cost: the spread of costs over the spread of usage. */
static double first_radius(const ap_dual *d)
{
    ap_kernel_range range;
    ap_kernel_range_get(d->k, &range);
    double spread = (double)(range.most - range.least) + 1, bytes = (double)usage_total(d->k) + 1;
    return spread / bytes / 4;
}

/* The next point, and what the cuts promise there. */
static bool next_point(search *s, double *out_promise)
{
    ap_arena scratch;
    ap_arena_init(&scratch, s->d->arena->out_of_memory, s->d->arena->user);
    ap_mip_cut *cut = AP_NEW_ARRAY(&scratch, ap_mip_cut, s->cuts.len);
    for (uint32_t c = 0; c < s->cuts.len; c++) {
        double *slope = AP_NEW_ARRAY(&scratch, double, s->nrows);
        for (uint32_t i = 0; i < s->nrows; i++)
            slope[i] = s->cuts.at[c].slope[s->row[i]];
        cut[c] = (ap_mip_cut){s->cuts.at[c].value, slope};
    }
    for (uint32_t i = 0; i < s->nrows; i++) {
        double at = s->d->best_lambda[s->row[i]];
        s->lo[i] = fmax(0, at - s->radius);
        s->hi[i] = at + s->radius;
    }
    bool ok = ap_mip_master(&scratch, s->cuts.len, cut, s->nrows, s->lo, s->hi, s->next, out_promise);
    ap_arena_deinit(&scratch);
    return ok;
}

static bool at_border(const search *s)
{
    for (uint32_t i = 0; i < s->nrows; i++)
        if (s->next[i] >= s->hi[i] * (1 - 1e-9) || (s->lo[i] > 0 && s->next[i] <= s->lo[i] * (1 + 1e-9)))
            return true;
    return false;
}

static int64_t goal(const search *s)
{
    return s->d->local->found ? ap_min_i64(s->cutoff, s->d->local->best_cost) : s->cutoff;
}

/* One step of the cutting-plane search; false when it is over. */
static bool step(search *s, uint32_t *idle)
{
    ap_dual *d = s->d;
    double promise;
    if (!next_point(s, &promise))
        return false;
    double hope = promise - (double)d->bound;
    if (hope <= 1e-7 * fmax(1, fabs((double)d->bound)) && !at_border(s))
        return false;
    memset(d->lambda, 0, d->k->nrows * sizeof *d->lambda);
    for (uint32_t i = 0; i < s->nrows; i++)
        d->lambda[s->row[i]] = s->next[i];
    int64_t value = evaluate(d);
    if (d->infeasible)
        return false;
    bool border = at_border(s);
    offer(s, learn(s));
    if (value > d->bound) {
        *idle = (double)(value - d->bound) > 1e-5 * fmax(1, fabs((double)value)) || border ? 0 : *idle + 1;
        d->bound = value;
        memcpy(d->best_lambda, d->lambda, d->k->nrows * sizeof *d->lambda);
        if (border)
            s->radius *= 3;
    } else {
        s->radius *= 0.5;
        ++*idle;
    }
    return d->bound < goal(s) && d->bound <= d->most && *idle < 25 && !ap_effort_spent(d->effort);
}

/* While nothing fits, dearer memory than the best multipliers say; then mixtures of the two. */
static void finish_primal(search *s)
{
    static const double factor[] = {1.02, 1.05, 1.15, 1.4, 1.8, 2.5, 4, 10, 100};
    ap_dual *d = s->d;
    for (size_t f = 0; f < sizeof factor / sizeof *factor && !ap_effort_spent(d->effort); f++) {
        for (uint32_t r = 0; r < d->k->nrows; r++)
            d->lambda[r] = d->best_lambda[r] * factor[f];
        int64_t value = evaluate(d);
        if (d->infeasible)
            return;
        if (value > d->bound) {
            d->bound = value;
            memcpy(d->best_lambda, d->lambda, d->k->nrows * sizeof *d->lambda);
        }
        bool fits = learn(s);
        ap_local_offer(d->local, d->choice, 4 * d->k->p.nnodes + 64);
        if (fits)
            break;
    }
    if (!d->local->found || !s->has_cheap)
        return;
    ap_arena scratch;
    ap_arena_init(&scratch, d->arena->out_of_memory, d->arena->user);
    for (int round = 0; round < 4 && d->bound < goal(s) && !ap_effort_spent(d->effort); round++) {
        int64_t before = d->local->best_cost;
        uint32_t *a = ap_arena_memdup(&scratch, d->local->best, d->k->p.nnodes * sizeof *a);
        ap_local_mix(d->local, &scratch, a, s->cheap, 300000);
        ap_local_mix(d->local, &scratch, s->cheap, a, 300000);
        ap_effort_charge(d->effort, (uint64_t)ap_min_i64((int64_t)d->k->p.nnodes * d->k->p.nnodes, 300000));
        if (d->local->best_cost == before)
            break;
    }
    ap_arena_deinit(&scratch);
}

void ap_dual_run(ap_dual *d, int64_t cutoff)
{
    search s = {.d = d, .cutoff = cutoff};
    s.row = AP_NEW_ARRAY(d->arena, uint32_t, d->k->nrows);
    s.lo = AP_NEW_ARRAY(d->arena, double, d->k->nrows);
    s.hi = AP_NEW_ARRAY(d->arena, double, d->k->nrows);
    s.next = AP_NEW_ARRAY(d->arena, double, d->k->nrows);
    s.cheap = AP_NEW_ARRAY(d->arena, uint32_t, d->k->p.nnodes);
    d->bound = evaluate(d);
    if (d->infeasible)
        return;
    offer(&s, learn(&s));
    s.radius = first_radius(d);
    uint32_t idle = 0;
    for (uint32_t round = 0; s.nrows > 0 && s.cuts.len > 0 && d->bound < goal(&s) && round < MAX_ROUNDS; round++)
        if (!step(&s, &idle))
            break;
    if (!d->infeasible && s.nrows > 0 && d->bound < goal(&s))
        finish_primal(&s);
    if (d->bound > d->most)
        d->infeasible = true;
}

/* ---- fixing ---- */

void ap_dual_price(ap_dual *d, int64_t **out_edge)
{
    const ap_problem *p = &d->k->p;
    memcpy(d->lambda, d->best_lambda, d->k->nrows * sizeof *d->lambda);
    fix_multipliers(d);
    price_nodes(d);
    for (uint32_t e = 0; e < p->nedges; e++) {
        out_edge[e] =
            AP_NEW_ARRAY(d->arena, int64_t, (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v]);
        price_pair(d, e, AP_ELIM_INF, out_edge[e]);
    }
}

void ap_dual_fix(ap_dual *d, int64_t cutoff)
{
    const ap_problem *p = &d->k->p;
    memcpy(d->lambda, d->best_lambda, d->k->nrows * sizeof *d->lambda);
    evaluate(d);
    int64_t **margin = AP_NEW_ARRAY(d->arena, int64_t *, p->nnodes);
    size_t total = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        margin[v] = AP_NEW_ARRAY(d->arena, int64_t, p->nstrategies[v]);
        total += p->nstrategies[v];
    }
    ap_elim_margins(d->e, d->node_cost, margin);
    d->drop = AP_NEW_ARRAY(d->arena, bool, total);
    d->edge = AP_NEW_ARRAY(d->arena, int64_t *, p->nedges);
    size_t at = 0;
    for (uint32_t v = 0; v < p->nnodes; v++)
        for (uint32_t i = 0; i < p->nstrategies[v]; i++, at++) {
            d->drop[at] = AP_ELIM_FORBIDDEN(margin[v][i]) || unscale(d, margin[v][i]) >= cutoff;
            d->dropped += d->drop[at] && p->cost[v][i] != AP_FORBIDDEN;
        }
    for (uint32_t e = 0; e < p->nedges; e++) {
        uint32_t nu = p->nstrategies[p->edge[e].u], nv = p->nstrategies[p->edge[e].v];
        d->edge[e] = ap_arena_memdup(d->arena, p->edge[e].cost, (size_t)nu * nv * sizeof(int64_t));
        for (uint32_t i = 0; i < nu; i++)
            for (uint32_t j = 0; j < nv; j++) {
                int64_t m = d->e->table.at[e].margin[ap_elim_entry(d->e, e, i, j)],
                        *c = &d->edge[e][(size_t)i * nv + j];
                if (*c != AP_FORBIDDEN && (AP_ELIM_FORBIDDEN(m) || unscale(d, m) >= cutoff)) {
                    *c = AP_FORBIDDEN;
                    d->forbidden++;
                }
            }
    }
}
