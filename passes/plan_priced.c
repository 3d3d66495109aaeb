/* Plans under a limit of memory in a fraction of the solver's time, with a gap: parameters pay a price per byte that is
 * held, the rest of the memory is only looked at. For candidates of a search; the solver takes over where no price
 * makes a plan fit.
 *
 *     price too low: does not fit |--x--x--x--| price high enough: fits
 *
 * Layers that are alike change their minds at one price, all of them. Between a plan that does not fit and one that
 * does lie those that take the nodes up to k from the one and the rest from the other: the largest k that fits is kept
 * (DESIGN §7, "mixing them repairs the primal").
 *
 * Bound: with V the least of time + price * bytes over all plans, each that fits takes at least V - price * limit. */
#include "passes/plan_problem.h"

#include <string.h>

enum {
    MIB = 20,
    UP = 8,
    STEPS = 14,
    HALVES = 2,
    SMALL = 3000,  /* strategies: the solver may have a look */
    LOOK = 200000, /* of its work */
    CLOSE = 1000,  /* not when the gap is a thousandth */
};

typedef struct pricer {
    ap_planning *p;
    const ap_solve_options *options;
    ap_plan_reduced r;
    const int64_t **bytes; /* per variable: of a parameter per label; NULL */
    ap_problem free;       /* p->problem without a limit */
    ap_solution best;      /* that fits; choice NULL: none yet */
    uint32_t *over;        /* a choice that does not fit, of the highest price */
    int64_t most;          /* price: sums stay in the solver's range */
    int64_t bound;
} pricer;

static void find_bytes(pricer *x)
{
    int64_t sum = 0;
    ap_planning *p = x->p;
    uint32_t n = p->problem.nnodes;
    bool *stays = AP_NEW_ARRAY(p->arena, bool, n);
    x->bytes = AP_NEW_ARRAY(p->arena, const int64_t *, n);
    for (uint32_t h = 0; h < p->holders.len; h++)
        if (p->holders.at[h].resident) {
            x->bytes[p->holders.at[h].var] = p->holders.at[h].bytes;
            stays[p->holders.at[h].var] = true;
            for (uint32_t l = 0; l < p->holders.at[h].n; l++)
                sum = ap_sat_add(sum, p->holders.at[h].bytes[l]);
        }
    __int128 most = ((__int128)1 << (56 + MIB)) / ap_max_i64(sum, 1);
    x->most = most > INT64_MAX ? INT64_MAX : ap_max_i64((int64_t)most, 1);
    ap_planning_reduce_but(p, stays, &x->r);
}

static int64_t priced(int64_t cost, int64_t bytes, int64_t price)
{
    __int128 sum = cost + ((__int128)bytes * price >> MIB);
    return cost == AP_FORBIDDEN ? cost : sum > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)sum;
}

static const int64_t *const *price_nodes(const pricer *x, int64_t price)
{
    const ap_problem *q = &x->r.problem;
    const int64_t **cost = AP_NEW_ARRAY(x->p->arena, const int64_t *, q->nnodes);
    for (uint32_t v = 0; v < x->p->problem.nnodes; v++) {
        uint32_t k = x->r.number[v];
        if (k == AP_NONE)
            continue;
        cost[k] = q->cost[k];
        if (!x->bytes[v])
            continue;
        int64_t *own = AP_NEW_ARRAY(x->p->arena, int64_t, q->nstrategies[k]);
        for (uint32_t i = 0; i < q->nstrategies[k]; i++)
            own[i] = priced(q->cost[k][i], x->bytes[v][i], price);
        cost[k] = own;
    }
    return cost;
}

static void keep(pricer *x, const uint32_t *choice, int64_t cost, int64_t peak)
{
    if (x->best.choice && x->best.cost <= cost)
        return;
    x->best.choice = ap_arena_memdup(x->p->arena, choice, x->p->problem.nnodes * sizeof *choice);
    x->best.cost = cost;
    x->best.peak = peak;
}

/* The best choice at a price. False: the solver found none. */
static ap_status try_price(pricer *x, int64_t price, bool *out_fits, bool *out_found)
{
    ap_planning *p = x->p;
    ap_problem q = x->r.problem;
    ap_solution s;
    int64_t cost, peak;
    q.cost = price_nodes(x, price);
    AP_TRY(ap_solve(p->ctx, p->arena, &q, x->options, &s));
    *out_found = s.result == AP_SOLVED;
    if (!*out_found)
        return AP_OK;
    uint32_t *choice = AP_NEW_ARRAY(p->arena, uint32_t, p->problem.nnodes);
    ap_planning_expand(p, &x->r, s.choice, choice);
    *out_found = ap_problem_evaluate(&x->free, choice, &cost, &peak);
    *out_fits = peak <= p->problem.limit;
    x->bound = ap_max_i64(x->bound, s.bound - priced(0, p->problem.limit, price));
    if (*out_found && *out_fits)
        keep(x, choice, cost, peak);
    else if (*out_found)
        x->over = choice;
    return AP_OK;
}

/* Prices on both sides, near to each other. */
static ap_status bracket(pricer *x, int64_t start, bool *out_found)
{
    int64_t low = 0, high = 0, at = start;
    bool fits = false;
    for (int i = 0; i < STEPS && (low == 0 || high == 0); i++) {
        AP_TRY(try_price(x, at, &fits, out_found));
        if (!*out_found)
            return AP_OK;
        *(fits ? &high : &low) = at;
        if (fits && at == 1)
            return AP_OK; /* nothing is cheaper */
        if (!fits && at == x->most)
            break;
        at = fits ? ap_max_i64(at / UP, 1) : at > x->most / UP ? x->most : at * UP;
    }
    for (int i = 0; i < HALVES && high > 0 && high / 2 > low; i++) {
        at = low + (high - low) / 3;
        AP_TRY(try_price(x, at, &fits, out_found));
        if (!*out_found)
            return AP_OK;
        *(fits ? &high : &low) = at;
    }
    *out_found = high > 0;
    return AP_OK;
}

static bool mix(const pricer *x, const uint32_t *fits, uint32_t k, uint32_t *choice, int64_t *cost, int64_t *peak)
{
    uint32_t n = x->p->problem.nnodes;
    memcpy(choice, x->over, k * sizeof *choice);
    memcpy(choice + k, fits + k, (n - k) * sizeof *choice);
    return ap_problem_evaluate(&x->free, choice, cost, peak);
}

/* The most nodes, from the first on, that may have their way. Where the two do not meet, a few nodes on. */
static void mix_best(pricer *x)
{
    enum { TRIES = 24 };
    uint32_t n = x->p->problem.nnodes, lo = 0, hi = n;
    const uint32_t *fits = x->best.choice;
    uint32_t *choice = AP_NEW_ARRAY(x->p->arena, uint32_t, n);
    int64_t cost, peak;
    while (x->over && hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2, k = mid;
        while (k < hi && k < mid + TRIES && !mix(x, fits, k, choice, &cost, &peak))
            k++;
        if (k >= hi || k >= mid + TRIES || peak > x->p->problem.limit) {
            hi = mid;
            continue;
        }
        keep(x, choice, cost, peak);
        lo = k;
    }
}

/* Small problems: the solver, for a moment. */
static ap_status look_again(const pricer *x, ap_solution *best)
{
    ap_solve_options options = *x->options;
    ap_solution s;
    options.work = options.work > 0 ? ap_min_i64(options.work, LOOK) : LOOK;
    if (x->p->nstrategies > SMALL || best->cost - best->bound <= best->cost / CLOSE)
        return AP_OK;
    AP_TRY(ap_solve(x->p->ctx, x->p->arena, &x->p->problem, &options, &s));
    if (s.result != AP_SOLVED)
        return AP_OK;
    s.bound = ap_max_i64(s.bound, best->bound);
    best->bound = s.bound;
    if (s.cost < best->cost)
        *best = s;
    return AP_OK;
}

ap_status ap_planning_priced(ap_planning *p, const ap_solve_options *options, int64_t price, ap_solution *out,
                             bool *out_done)
{
    pricer x = {.p = p, .options = options, .free = p->problem, .bound = INT64_MIN};
    x.free.limit = INT64_MAX;
    find_bytes(&x);
    AP_TRY(bracket(&x, ap_min_i64(ap_max_i64(price, 1), x.most), out_done));
    *out_done = *out_done && x.best.choice;
    if (!*out_done)
        return AP_OK;
    mix_best(&x);
    *out = x.best;
    out->result = AP_SOLVED;
    out->bound = ap_min_i64(ap_max_i64(x.bound, 0), out->cost);
    out->proof = "prices";
    return look_again(&x, out);
}
