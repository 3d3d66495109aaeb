/* The solver. One level presolves a kernel, takes what is left apart into independent blocks and solves each:
 *
 *     presolve -> blocks -> multipliers + elimination (bound, choices) -> fixing -> one level deeper
 *                                                                      -> or branch and cut on the rest
 *
 * Without memory rows the multipliers have nothing to do and elimination alone is exact; the path is the same. A
 * level may be given a cutoff: choices that cost as much or more are of no interest, so "infeasible" then says that
 * nothing cheaper exists, and bounds hold for the lesser of optimum and cutoff. */
#include "passes/solve/dual.h"
#include "passes/solve/mip.h"
#include "passes/solve/presolve.h"

#include <inttypes.h>
#include <string.h>

#define TABLE_CAP ((uint64_t)1 << 22)
#define ENTRIES_CAP ((uint64_t)1 << 24)
#define WORK_ONCE ((uint64_t)1 << 33) /* elimination that is run once */
#define WORK_OFTEN ((uint64_t)1 << 26)
#define MIP_VARIABLES 60000
#define DEPTH_MAX 8
#define DEFAULT_WORK 20000000

typedef enum proof { PROOF_PRESOLVE, PROOF_ELIMINATION, PROOF_MULTIPLIERS, PROOF_BRANCHING } proof;
static const char *const proof_names[] = {"presolve", "elimination", "multipliers", "branch and cut"};

typedef struct outcome {
    bool found, infeasible;
    uint32_t *choice; /* when found */
    int64_t cost, bound;
    proof proof;
    uint32_t left_nodes, left_edges;
} outcome;

typedef struct solver {
    ap_ctx *ctx;
    ap_arena *arena; /* scratch of this call */
    const ap_solve_options *opt;
    ap_effort effort;
} solver;

static ap_status solve_level(solver *s, const ap_kernel *k, int64_t cutoff, int depth, outcome *out);

static ap_status too_large(solver *s)
{
    return ap_fail(s->ctx, AP_ERR_MODEL, 0, "costs are too large: their sum leaves the range of the solver (2^59)");
}

void ap_solve_defaults(ap_solve_options *out)
{
    *out = (ap_solve_options){.work = DEFAULT_WORK, .presolve = true, .eliminate = true, .mip = true};
}

/* ---- one block ---- */

typedef struct block {
    solver *s;
    const ap_kernel *k;
    int64_t cutoff; /* given */
    int depth;
    ap_local *local;
    ap_elim *elim;
    ap_dual *dual;
    outcome *out;
} block;

/* What a better choice must stay below. */
static int64_t goal(const block *b)
{
    return b->local->found ? ap_min_i64(b->cutoff, b->local->best_cost) : b->cutoff;
}

static bool closed(const block *b)
{
    return b->out->infeasible || b->out->bound >= goal(b);
}

static void raise_bound(block *b, int64_t bound, proof by)
{
    if (bound > b->out->bound) {
        b->out->bound = bound;
        b->out->proof = by;
    }
}

/* Without elimination: choices from the cheapest and the smallest strategy of every node. */
static void simple_choices(block *b)
{
    const ap_problem *p = &b->k->p;
    uint32_t *cheap = AP_NEW_ARRAY(b->s->arena, uint32_t, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++)
        for (uint32_t i = 1; i < p->nstrategies[v]; i++)
            if (p->cost[v][i] < p->cost[v][cheap[v]])
                cheap[v] = i;
    ap_local_offer(b->local, cheap, 4 * p->nnodes + 64);
    __int128 *sum = ap_arena_calloc(b->s->arena, p->nnodes, sizeof *sum);
    uint32_t *small = ap_arena_memdup(b->s->arena, cheap, p->nnodes * sizeof *cheap);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        for (uint32_t i = 0; i < p->nstrategies[v]; i++) {
            __int128 bytes = 0;
            for (uint32_t d = b->local->demand_at[v]; d < b->local->demand_at[v + 1]; d++)
                bytes += p->demand[b->local->demand_of[d]].usage[i];
            if (p->cost[v][i] != AP_FORBIDDEN && (i == 0 || bytes < sum[v])) {
                sum[v] = bytes;
                small[v] = i;
            }
        }
    }
    ap_local_offer(b->local, small, 4 * p->nnodes + 64);
}

static void run_dual(block *b)
{
    uint64_t work = b->k->nrows == 0 ? WORK_ONCE : WORK_OFTEN;
    b->elim = ap_elim_plan_within(b->s->arena, b->k, TABLE_CAP, ENTRIES_CAP, work);
    if (!b->elim) {
        simple_choices(b);
        return;
    }
    ap_elim_allocate(b->elim);
    b->dual = ap_dual_create(b->s->arena, b->k, b->elim, b->local, &b->s->effort);
    ap_dual_run(b->dual, b->cutoff);
    if (b->dual->infeasible)
        b->out->infeasible = true;
    raise_bound(b, b->dual->bound, b->k->nrows > 0 ? PROOF_MULTIPLIERS : PROOF_ELIMINATION);
    if (!b->elim->exact && !b->local->found)
        simple_choices(b);
}

/* The kernel with what the multipliers exclude forbidden. */
static void fixed_kernel(const block *b, ap_kernel *out)
{
    const ap_problem *p = &b->k->p;
    const ap_dual *d = b->dual;
    *out = *b->k;
    const int64_t **cost = AP_NEW_ARRAY(b->s->arena, const int64_t *, p->nnodes);
    ap_problem_edge *edge = ap_arena_memdup(b->s->arena, p->edge, p->nedges * sizeof *edge);
    size_t at = 0;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        int64_t *c = ap_arena_memdup(b->s->arena, p->cost[v], p->nstrategies[v] * sizeof *c);
        for (uint32_t i = 0; i < p->nstrategies[v]; i++, at++)
            if (d->drop[at])
                c[i] = AP_FORBIDDEN;
        cost[v] = c;
    }
    for (uint32_t e = 0; e < p->nedges; e++)
        edge[e].cost = d->edge[e];
    out->p.cost = cost;
    out->p.edge = edge;
}

/* Enough gone for another look? */
static bool worth_it(const block *b)
{
    uint64_t strategies = 0, entries = 0;
    for (uint32_t v = 0; v < b->k->p.nnodes; v++)
        strategies += b->k->p.nstrategies[v];
    for (uint32_t e = 0; e < b->k->p.nedges; e++)
        entries += (uint64_t)b->k->p.nstrategies[b->k->p.edge[e].u] * b->k->p.nstrategies[b->k->p.edge[e].v];
    return b->dual->dropped * 50 >= strategies || b->dual->forbidden * 8 > entries;
}

/* Solves what can still be cheaper than the goal. True when that settled the block as far as it can be. */
static ap_status fix_and_descend(block *b, bool *done)
{
    *done = false;
    if (!b->s->opt->presolve || !b->dual || !b->elim->exact || b->depth >= DEPTH_MAX || goal(b) == INT64_MAX)
        return AP_OK;
    ap_dual_fix(b->dual, goal(b));
    if (!worth_it(b))
        return AP_OK;
    ap_kernel k;
    outcome deeper;
    fixed_kernel(b, &k);
    AP_TRY(solve_level(b->s, &k, goal(b), b->depth + 1, &deeper));
    if (deeper.infeasible)
        raise_bound(b, goal(b), deeper.proof > b->out->proof ? deeper.proof : b->out->proof);
    else
        raise_bound(b, ap_min_i64(deeper.bound, goal(b)), deeper.proof);
    if (deeper.found) {
        ap_local_set(b->local, deeper.choice);
        ap_local_keep(b->local);
    }
    *done = true;
    return AP_OK;
}

static void run_mip(block *b)
{
    ap_arena scratch;
    ap_arena_init(&scratch, b->s->arena->out_of_memory, b->s->arena->user);
    uint64_t size = ap_mip_size(&scratch, b->k);
    if (size <= MIP_VARIABLES && !ap_effort_spent(&b->s->effort)) {
        ap_mip_result r;
        bool usable = b->local->found && b->local->best_cost <= b->cutoff;
        const bool *early = b->dual && b->k->nrows > 64 ? b->dual->active : NULL;
        ap_mip_solve(&scratch, b->k, &b->s->effort, usable ? b->local->best : NULL, goal(b), early, &r);
        if (r.found) {
            ap_local_set(b->local, r.choice);
            ap_local_keep(b->local);
        }
        if (r.state == AP_MIP_INFEASIBLE && !usable && !b->local->found) {
            b->out->infeasible = true;
            b->out->proof = PROOF_BRANCHING;
        } else if (r.state == AP_MIP_INFEASIBLE && !usable) {
            raise_bound(b, b->cutoff, PROOF_BRANCHING);
        } else if (r.state == AP_MIP_OPTIMAL || r.state == AP_MIP_STOPPED) {
            raise_bound(b, r.bound, PROOF_BRANCHING);
        }
    }
    ap_arena_deinit(&scratch);
}

static ap_status solve_block(solver *s, const ap_kernel *k, int64_t cutoff, int depth, outcome *out)
{
    *out = (outcome){.left_nodes = k->p.nnodes, .left_edges = k->p.nedges, .proof = PROOF_PRESOLVE};
    ap_kernel_range range;
    bool possible = ap_kernel_range_get(k, &range);
    if (range.magnitude >= AP_COST_MAX)
        return too_large(s);
    out->bound = (int64_t)range.least;
    out->infeasible = !possible;
    block b = {.s = s, .k = k, .cutoff = cutoff, .depth = depth, .out = out};
    b.local = ap_local_create(s->arena, k);
    if (!closed(&b)) {
        if (s->opt->eliminate)
            run_dual(&b);
        else
            simple_choices(&b);
    }
    bool done = false;
    if (!closed(&b))
        AP_TRY(fix_and_descend(&b, &done));
    if (!closed(&b) && !done && s->opt->mip)
        run_mip(&b);
    out->found = b.local->found;
    out->choice = b.local->best;
    out->cost = b.local->best_cost;
    out->bound = ap_min_i64(out->bound, goal(&b));
    if (out->found && out->cost < cutoff)
        out->infeasible = false;
    return AP_OK;
}

/* ---- one level ---- */

static int64_t least_cost(const ap_kernel *k)
{
    ap_kernel_range range;
    ap_kernel_range_get(k, &range);
    return (int64_t)range.least;
}

static int64_t add_bounds(int64_t a, int64_t b)
{
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
}

/* Blocks one after another; a block's cutoff is what the others' bounds leave of the level's. */
static ap_status solve_blocks(solver *s, const ap_kernel *k, int64_t cutoff, int depth, outcome *out, uint32_t *choice)
{
    uint32_t *block_of = AP_NEW_ARRAY(s->arena, uint32_t, k->p.nnodes);
    uint32_t nblocks = ap_kernel_blocks(s->arena, k, block_of);
    ap_kernel *part = AP_NEW_ARRAY(s->arena, ap_kernel, nblocks);
    uint32_t **node = AP_NEW_ARRAY(s->arena, uint32_t *, nblocks);
    int64_t others = 0;
    for (uint32_t i = 0; i < nblocks; i++) {
        ap_kernel_part(s->arena, k, block_of, i, &part[i], &node[i]);
        others += least_cost(&part[i]);
    }
    for (uint32_t i = 0; i < nblocks && !out->infeasible; i++) {
        outcome one;
        others -= least_cost(&part[i]);
        int64_t room = cutoff == INT64_MAX ? INT64_MAX : add_bounds(cutoff, -others);
        AP_TRY(solve_block(s, &part[i], room, depth, &one));
        others = add_bounds(others, one.bound);
        out->infeasible = one.infeasible;
        out->found &= one.found;
        out->bound = add_bounds(out->bound, one.bound);
        out->cost = one.found ? add_bounds(out->cost, one.cost) : out->cost;
        out->proof = one.proof > out->proof ? one.proof : out->proof;
        for (uint32_t v = 0; one.found && v < part[i].p.nnodes; v++)
            choice[node[i][v]] = one.choice[v];
    }
    return AP_OK;
}

static ap_status solve_level(solver *s, const ap_kernel *k, int64_t cutoff, int depth, outcome *out)
{
    *out = (outcome){.found = true, .proof = PROOF_PRESOLVE};
    ap_pre *pre = ap_pre_create(s->arena, k);
    if (s->opt->presolve)
        ap_pre_run(pre);
    if (pre->overflow)
        return too_large(s);
    if (pre->infeasible) {
        out->found = false;
        out->infeasible = true;
        return AP_OK;
    }
    ap_kernel rest;
    ap_pre_extract(pre, &rest);
    uint32_t *choice = AP_NEW_ARRAY(s->arena, uint32_t, rest.p.nnodes);
    int64_t room = cutoff == INT64_MAX ? INT64_MAX : cutoff - pre->constant;
    ap_kernel_range range;
    if (!ap_kernel_range_get(&rest, &range)) {
        out->found = false;
        out->infeasible = true;
        return AP_OK;
    }
    if (range.magnitude >= AP_COST_MAX)
        return too_large(s);
    AP_TRY(solve_blocks(s, &rest, room, depth, out, choice));
    out->found &= !out->infeasible;
    out->left_nodes = rest.p.nnodes;
    out->left_edges = rest.p.nedges;
    out->bound = add_bounds(out->bound, pre->constant);
    if (out->found) {
        out->choice = AP_NEW_ARRAY(s->arena, uint32_t, k->p.nnodes);
        ap_pre_undo(pre, choice, out->choice);
        out->cost += pre->constant;
    }
    return AP_OK;
}

/* ---- the call ---- */

static ap_status bad(ap_ctx *ctx, const char *what, uint32_t which)
{
    return ap_fail(ctx, AP_ERR_MODEL, 0, "malformed problem: %s %" PRIu32, what, which);
}

static bool usage_ok(const int64_t *u, size_t n, __int128 *total)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        if (u[i] < 0)
            return false;
        most = ap_max_i64(most, u[i]);
    }
    *total += most;
    return true;
}

static ap_status check_problem(ap_ctx *ctx, const ap_problem *p)
{
    __int128 usage = 0;
    for (uint32_t v = 0; v < p->nnodes; v++)
        if (p->nstrategies[v] == 0)
            return bad(ctx, "no strategy at node", v);
    for (uint32_t e = 0; e < p->nedges; e++)
        if (p->edge[e].u >= p->nnodes || p->edge[e].v >= p->nnodes || p->edge[e].u == p->edge[e].v)
            return bad(ctx, "ends of edge", e);
    for (uint32_t d = 0; d < p->ndemands; d++) {
        const ap_demand *x = &p->demand[d];
        if (x->node >= p->nnodes)
            return bad(ctx, "node of demand", d);
        if (!usage_ok(x->usage, p->nstrategies[x->node], &usage))
            return bad(ctx, "negative usage in demand", d);
    }
    for (uint32_t d = 0; d < p->npair_demands; d++) {
        const ap_pair_demand *x = &p->pair_demand[d];
        if (x->edge >= p->nedges)
            return bad(ctx, "edge of pair demand", d);
        const ap_problem_edge *e = &p->edge[x->edge];
        if (!usage_ok(x->usage, (size_t)p->nstrategies[e->u] * p->nstrategies[e->v], &usage))
            return bad(ctx, "negative usage in pair demand", d);
    }
    if (usage >= (__int128)1 << 62)
        return ap_fail(ctx, AP_ERR_MODEL, 0, "memory demands are too large: their sum leaves the range of the solver");
    return AP_OK;
}

/* ---- how much memory is needed at least ---- */

#define PEAK_ROWS 8

/* Per row, the sum of what the smallest allowed strategies hold. */
static int64_t *least_usage(solver *s, const ap_kernel *k)
{
    int64_t *hold = AP_NEW_ARRAY(s->arena, int64_t, (size_t)k->nrows + 1);
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        int64_t least = INT64_MAX;
        for (uint32_t i = 0; i < k->p.nstrategies[x->node]; i++)
            if (k->p.cost[x->node][i] != AP_FORBIDDEN)
                least = ap_min_i64(least, x->usage[i]);
        if (least == INT64_MAX)
            continue;
        hold[x->lo] += least;
        hold[x->hi] -= least;
    }
    for (uint32_t r = 1; r < k->nrows; r++)
        hold[r] += hold[r - 1];
    return hold;
}

/* The kernel in which a choice costs what it holds in one row. */
static void usage_kernel(solver *s, const ap_kernel *k, uint32_t row, ap_kernel *out)
{
    *out = (ap_kernel){.p = k->p};
    out->p.ndemands = out->p.npair_demands = 0;
    int64_t **cost = AP_NEW_ARRAY(s->arena, int64_t *, k->p.nnodes);
    ap_problem_edge *edge = ap_arena_memdup(s->arena, k->p.edge, k->p.nedges * sizeof *edge);
    int64_t **pair = AP_NEW_ARRAY(s->arena, int64_t *, k->p.nedges);
    for (uint32_t v = 0; v < k->p.nnodes; v++) {
        cost[v] = AP_NEW_ARRAY(s->arena, int64_t, k->p.nstrategies[v]);
        for (uint32_t i = 0; i < k->p.nstrategies[v]; i++)
            cost[v][i] = k->p.cost[v][i] == AP_FORBIDDEN ? AP_FORBIDDEN : 0;
    }
    for (uint32_t d = 0; d < k->p.ndemands; d++) {
        const ap_demand *x = &k->p.demand[d];
        for (uint32_t i = 0; x->lo <= row && row < x->hi && i < k->p.nstrategies[x->node]; i++)
            if (cost[x->node][i] != AP_FORBIDDEN)
                cost[x->node][i] += x->usage[i];
    }
    for (uint32_t e = 0; e < k->p.nedges; e++) {
        size_t n = (size_t)k->p.nstrategies[edge[e].u] * k->p.nstrategies[edge[e].v];
        pair[e] = AP_NEW_ARRAY(s->arena, int64_t, n);
        for (size_t i = 0; i < n; i++)
            pair[e][i] = edge[e].cost[i] == AP_FORBIDDEN ? AP_FORBIDDEN : 0;
        edge[e].cost = pair[e];
    }
    for (uint32_t d = 0; d < k->p.npair_demands; d++) {
        const ap_pair_demand *x = &k->p.pair_demand[d];
        size_t n = (size_t)k->p.nstrategies[edge[x->edge].u] * k->p.nstrategies[edge[x->edge].v];
        for (size_t i = 0; x->lo <= row && row < x->hi && i < n; i++)
            if (pair[x->edge][i] != AP_FORBIDDEN)
                pair[x->edge][i] += x->usage[i];
    }
    out->p.cost = (const int64_t *const *)cost;
    out->p.edge = edge;
}

/* A lower bound on the peak of whatever obeys the forbidden entries: the rows that look worst, each minimised by
 * itself. */
static ap_status least_peak(solver *s, const ap_problem *p, int64_t *out, bool *out_forbidden)
{
    ap_problem open = *p;
    open.limit = INT64_MAX - 1;
    ap_kernel k, one;
    ap_kernel_from_problem(s->arena, &open, &k);
    int64_t *hold = least_usage(s, &k);
    ap_solve_options quick = *s->opt;
    quick.mip = false;
    solver sub = {.ctx = s->ctx, .arena = s->arena, .opt = &quick, .effort = {.work = DEFAULT_WORK}};
    *out = 0;
    *out_forbidden = k.nrows == 0 && p->limit >= 0;
    for (uint32_t i = 0; i < PEAK_ROWS && i < k.nrows; i++) {
        uint32_t row = 0;
        for (uint32_t r = 1; r < k.nrows; r++)
            row = hold[r] > hold[row] ? r : row;
        outcome r;
        usage_kernel(s, &k, row, &one);
        AP_TRY(solve_level(&sub, &one, INT64_MAX, 0, &r));
        if (r.infeasible) {
            *out = 0;
            *out_forbidden = true;
            return AP_OK;
        }
        *out = ap_max_i64(*out, r.bound);
        hold[row] = -1;
    }
    return AP_OK;
}

static ap_status finish(solver *s, ap_arena *arena, const ap_problem *p, const outcome *r, ap_solution *out)
{
    out->left_nodes = r->left_nodes;
    out->left_edges = r->left_edges;
    out->bound = r->bound;
    out->proof = "none";
    if (!r->found) {
        out->result = r->infeasible ? AP_SOLVE_INFEASIBLE : AP_SOLVE_NOT_FOUND;
        if (r->infeasible)
            out->proof = proof_names[r->proof];
        if (p->limit == INT64_MAX)
            return AP_OK;
        bool forbidden;
        AP_TRY(least_peak(s, p, &out->least_peak, &forbidden));
        if (r->infeasible && !forbidden) /* what obeys the forbidden entries exceeds the limit */
            out->least_peak = ap_max_i64(out->least_peak, p->limit + 1);
        return AP_OK;
    }
    out->choice = ap_arena_memdup(arena, r->choice, p->nnodes * sizeof *r->choice);
    if (!ap_problem_evaluate(p, out->choice, &out->cost, &out->peak) || out->cost != r->cost || r->bound > r->cost)
        return ap_fail(s->ctx, AP_ERR_BUG, 0, "the solver's choice does not pass its evaluation");
    out->result = AP_SOLVED;
    if (out->bound == out->cost)
        out->proof = proof_names[r->proof];
    return AP_OK;
}

static ap_status solve(solver *s, ap_arena *arena, const ap_problem *p, ap_solution *out)
{
    outcome r;
    AP_TRY(check_problem(s->ctx, p));
    ap_kernel k;
    ap_kernel_from_problem(s->arena, p, &k);
    ap_kernel_range range;
    if (!ap_kernel_range_get(&k, &range) || p->limit < 0)
        r = (outcome){.infeasible = true};
    else if (range.magnitude >= AP_COST_MAX)
        return too_large(s);
    else
        AP_TRY(solve_level(s, &k, INT64_MAX, 0, &r));
    return finish(s, arena, p, &r, out);
}

ap_status ap_solve(ap_ctx *ctx, ap_arena *arena, const ap_problem *p, const ap_solve_options *opt, ap_solution *out)
{
    *out = (ap_solution){.result = AP_SOLVE_NOT_FOUND, .bound = INT64_MIN, .proof = "none"};
    ap_arena scratch;
    ap_arena_init(&scratch, arena->out_of_memory, arena->user);
    solver s = {.ctx = ctx, .arena = &scratch, .opt = opt};
    s.effort.work = opt->work > 0 ? opt->work : INT64_MAX;
    s.effort.deadline = opt->time_limit > 0 ? ap_effort_now() + opt->time_limit : 0;
    ap_status status = solve(&s, arena, p, out);
    ap_arena_deinit(&scratch);
    return status;
}
