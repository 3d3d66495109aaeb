/* Blocks and levels: see level.h. */
#include "passes/solve/level.h"

#include "passes/solve/dual.h"
#include "passes/solve/large.h"
#include "passes/solve/mip.h"
#include "passes/solve/pair_climb.h"
#include "passes/solve/presolve.h"
#include "passes/solve/sweep.h"

#include <math.h>
#include <string.h>

#define TABLE_CAP ((uint64_t)1 << 22)
#define ENTRIES_CAP ((uint64_t)1 << 24)
#define WORK_ONCE ((uint64_t)1 << 33) /* elimination that is run once */
#define WORK_OFTEN ((uint64_t)1 << 26)
#define WORK_PER_SECOND 5e8
#define MIP_VARIABLES 30000
#define SPLIT_ENTRIES ((uint64_t)1 << 25)
#define SWEEP_NODES 1000
#define DEPTH_MAX 8
#define FIRST_WORK 4000000
#define FIRST_NODES 16 /* up to so many the exact road is the shortest */
#define LARGE_DEPTH_MAX 40
#define HURRY_ENTRIES ((uint64_t)1 << 18) /* smaller kernels take the road whatever the clock says */
#define LAYOUT_SECONDS 6e-8               /* per entry of an edge */
#define GRACE 0.1                         /* seconds for a first choice when the time is over */

ap_status ap_level_too_large(ap_solver *s)
{
    return ap_fail(s->ctx, AP_ERR_MODEL, 0, "costs are too large: their sum leaves the range of the solver (2^59)");
}

void ap_solver_tell(ap_solver *s, const char *phase, const ap_local *l, int64_t bound)
{
    if (!s->opt->progress || s->small)
        return;
    if (!s->apart && l && l->found)
        s->told_cost = ap_min_i64(s->told_cost, l->best_cost + s->base);
    if (!s->apart && bound > INT64_MIN)
        s->told_bound = ap_max_i64(s->told_bound, ap_min_i64(bound + s->base, s->told_cost));
    s->opt->progress(s->opt->user, phase, s->told_cost, s->told_bound);
}

/* ---- one block ---- */

typedef struct block {
    ap_solver *s;
    const ap_kernel *k;
    int64_t cutoff; /* given */
    int depth;
    ap_local *local;
    ap_elim *elim;
    ap_dual *dual;
    ap_pair_climb *pairs; /* where pairs have demands */
    ap_outcome *out;
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

static void raise_bound(block *b, int64_t bound, ap_proof by)
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

/* An elimination is not interrupted by the clock. */
static uint64_t affordable(const ap_effort *e, uint64_t work)
{
    double most = fmax(ap_effort_left(e), 0.05) * WORK_PER_SECOND;
    return e->deadline == 0 || most >= (double)work ? work : (uint64_t)most;
}

/* Where large.c takes over what is not exact, smaller caps are not tried: a plan that is exact under one is the same
 * under the largest. */
static void plan_elimination(block *b, bool large)
{
    uint64_t work = b->k->nrows == 0 ? WORK_ONCE : WORK_OFTEN;
    work = affordable(&b->s->effort, work);
    b->elim = large ? ap_elim_plan_exact(b->s->arena, b->k, TABLE_CAP, ENTRIES_CAP, work)
                    : ap_elim_plan_within(b->s->arena, b->k, TABLE_CAP, ENTRIES_CAP, work);
}

static void run_dual(block *b)
{
    if (!b->elim) {
        simple_choices(b);
        return;
    }
    ap_elim_allocate(b->elim);
    b->dual = ap_dual_create(b->s->arena, b->k, b->elim, b->local, &b->s->effort);
    ap_dual_run(b->dual, b->cutoff);
    if (b->dual->infeasible)
        b->out->infeasible = true;
    raise_bound(b, b->dual->bound, b->k->nrows > 0 ? AP_PROOF_MULTIPLIERS : AP_PROOF_ELIMINATION);
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

/* Solves what can still be cheaper than the goal: k, without what cannot. */
static ap_status descend(block *b, const ap_kernel *k)
{
    ap_outcome deeper;
    AP_TRY(ap_level_solve(b->s, k, goal(b), b->depth + 1, &deeper));
    if (deeper.infeasible)
        raise_bound(b, goal(b), deeper.proof > b->out->proof ? deeper.proof : b->out->proof);
    else
        raise_bound(b, ap_min_i64(deeper.bound, goal(b)), deeper.proof);
    if (deeper.found) {
        ap_local_set(b->local, deeper.choice);
        ap_local_keep(b->local);
    }
    return AP_OK;
}

/* True when fixing settled the block as far as it can be. */
static ap_status fix_and_descend(block *b, bool *done)
{
    *done = false;
    if (!b->s->opt->presolve || !b->dual || !b->elim->exact || b->depth >= DEPTH_MAX || goal(b) == INT64_MAX)
        return AP_OK;
    ap_dual_fix(b->dual, goal(b));
    if (!worth_it(b))
        return AP_OK;
    ap_kernel k;
    fixed_kernel(b, &k);
    *done = true;
    return descend(b, &k);
}

/* Ascent and search where elimination is not exact. */
static ap_status run_large(block *b, int64_t work, bool on, bool *done)
{
    ap_large r;
    ap_large_run(b->s, b->k, b->local, b->cutoff, work, on, &r);
    if (r.infeasible)
        b->out->infeasible = true;
    raise_bound(b, r.bound, AP_PROOF_MULTIPLIERS);
    *done = r.reduced;
    return r.reduced ? descend(b, &r.fixed) : AP_OK;
}

static ap_status take_large(block *b, const ap_large *r, bool *done)
{
    if (r->infeasible)
        b->out->infeasible = true;
    raise_bound(b, r->bound, AP_PROOF_MULTIPLIERS);
    *done = r->reduced;
    return r->reduced ? descend(b, &r->fixed) : AP_OK;
}

/* The ascent where pairs have demands. */
static ap_status run_pair_climb(block *b, bool *done)
{
    ap_large r;
    b->pairs = ap_pair_climb_create(b->s, b->k, b->local, b->cutoff);
    ap_pair_climb_run(b->pairs, &r);
    return take_large(b, &r, done);
}

/* Its tree, with half of what is left. */
static ap_status run_pair_branch(block *b, bool *done)
{
    ap_large r;
    ap_effort *all = &b->s->effort, whole = *all;
    if (all->deadline > 0)
        all->deadline = ap_effort_now() + ap_effort_left(all) / 2;
    ap_pair_climb_branch(b->pairs, all->work == INT64_MAX ? INT64_MAX : all->work / 2, &r);
    all->deadline = whole.deadline;
    return take_large(b, &r, done);
}

/* Ascent and search where pairs have demands and branch and cut would be too large. */
static ap_status run_split(block *b, bool *done)
{
    ap_arena *a = b->s->arena;
    ap_pairs split;
    if (!ap_pairs_split(a, b->k, SPLIT_ENTRIES, &split) || !ap_large_takes(&split.k))
        return AP_OK;
    ap_local *l = ap_local_create(a, &split.k);
    if (b->local->found) {
        uint32_t *x = AP_NEW_ARRAY(a, uint32_t, split.k.p.nnodes);
        ap_pairs_choice(&split, b->k, b->local->best, x);
        ap_local_set(l, x);
        ap_local_keep(l);
    }
    ap_large r;
    ap_large_run(b->s, &split.k, l, b->cutoff, INT64_MAX, true, &r);
    if (l->found) { /* the nodes of before stand in front */
        ap_local_set(b->local, l->best);
        ap_local_keep(b->local);
    }
    if (r.infeasible)
        b->out->infeasible = true;
    raise_bound(b, r.bound, AP_PROOF_MULTIPLIERS);
    *done = r.reduced;
    if (!r.reduced)
        return AP_OK;
    ap_kernel k;
    ap_pairs_fixed(a, &split, b->k, &r.fixed, &k);
    return descend(b, &k);
}

static void run_mip(block *b)
{
    ap_arena scratch;
    ap_arena_init(&scratch, b->s->arena->out_of_memory, b->s->arena->user);
    uint64_t size = ap_mip_size(&scratch, b->k, MIP_VARIABLES);
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
            b->out->proof = AP_PROOF_BRANCHING;
        } else if (r.state == AP_MIP_INFEASIBLE && !usable) {
            raise_bound(b, b->cutoff, AP_PROOF_BRANCHING);
        } else if (r.state == AP_MIP_OPTIMAL || r.state == AP_MIP_STOPPED) {
            raise_bound(b, r.bound, AP_PROOF_BRANCHING);
        }
    }
    ap_arena_deinit(&scratch);
}

/* Where memory is so tight that few strategies fit beside each other; with a part of what is left. */
static void run_sweep(block *b)
{
    ap_effort *all = &b->s->effort, part = *all;
    ap_arena scratch;
    ap_sweep_result r;
    /* where elimination is exact few nodes are pending at any time */
    bool narrow = b->elim->exact;
    ap_sweep_sizes sizes = {narrow ? 2000000 : 500000, 400000};
    if (all->work != INT64_MAX)
        part.work = all->work / (narrow ? 3 : 10);
    if (all->deadline > 0)
        part.deadline = ap_effort_now() + ap_effort_left(all) / (narrow ? 3 : 10);
    int64_t before = part.work;
    ap_arena_init(&scratch, b->s->arena->out_of_memory, b->s->arena->user);
    ap_sweep_run(&scratch, b->k, b->dual, b->local, b->cutoff, &sizes, &part, &r);
    ap_arena_deinit(&scratch);
    if (before != INT64_MAX)
        all->work -= before - part.work;
    if (r.complete && !b->local->found && b->cutoff == INT64_MAX)
        b->out->infeasible = true;
    if (r.made)
        raise_bound(b, ap_min_i64(r.bound, goal(b)), AP_PROOF_SWEEP);
}

/* Work for ascent, search and branching before exact elimination takes over. */
static int64_t first_share(const ap_solver *s)
{
    return s->effort.work == INT64_MAX ? FIRST_WORK : ap_min_i64(FIRST_WORK, s->effort.work / 6);
}

/* Too late to begin with what takes long: a large kernel is laid out anew before it is searched. */
static bool in_a_hurry(const ap_solver *s, const ap_kernel *k)
{
    uint64_t entries = 0;
    if (s->effort.deadline == 0 && !ap_effort_late(&s->effort))
        return false;
    for (uint32_t e = 0; e < k->p.nedges; e++)
        entries += (uint64_t)k->p.nstrategies[k->p.edge[e].u] * k->p.nstrategies[k->p.edge[e].v];
    return entries > HURRY_ENTRIES && ap_effort_left(&s->effort) < LAYOUT_SECONDS * (double)entries;
}

/* The time is over and nothing fits so far: what repair makes of simple choices, in a moment for all blocks. */
static void last_resort(block *b)
{
    if (b->s->grace == 0)
        b->s->grace = fmax(ap_effort_now(), b->s->effort.deadline) + GRACE;
    ap_effort moment = {.deadline = b->s->grace, .work = INT64_MAX};
    b->local->effort = &moment;
    simple_choices(b);
    b->local->effort = &b->s->effort;
}

/* Ascent, search and branching; where elimination is exact, only for a part of the work. */
static ap_status run_relaxations(block *b, bool large, bool exact, bool *done)
{
    ap_solver *s = b->s;
    const ap_kernel *k = b->k;
    bool mip = s->opt->mip && ap_mip_size(s->arena, k, MIP_VARIABLES) <= MIP_VARIABLES;
    if (large && !exact)
        AP_TRY(run_large(b, INT64_MAX, !mip, done));
    else if (large && !s->small && k->nrows > 0 && k->p.nnodes > FIRST_NODES)
        AP_TRY(run_large(b, first_share(s), false, done));
    if (!closed(b) && s->opt->eliminate && k->p.npair_demands > 0 && k->nrows > 0 && !s->small &&
        k->p.nnodes > FIRST_NODES && b->depth < LARGE_DEPTH_MAX)
        AP_TRY(run_pair_climb(b, done));
    if (!closed(b) && !*done && b->pairs && !exact)
        AP_TRY(run_pair_branch(b, done));
    return AP_OK;
}

/* Multipliers over elimination and what goes on from there. */
static ap_status run_exact(block *b, bool large, bool exact, bool *done)
{
    ap_solver *s = b->s;
    if (s->opt->eliminate)
        run_dual(b);
    else
        simple_choices(b);
    if (!closed(b) && b->k->nrows > 0 && b->k->p.nnodes <= SWEEP_NODES && b->dual && !b->out->infeasible)
        run_sweep(b);
    if (!closed(b) && b->pairs && exact)
        AP_TRY(run_pair_branch(b, done));
    if (!closed(b) && !*done && !s->small && b->depth == 0 && b->local->found && b->elim && !large)
        AP_TRY(ap_lns_run(s, b->k, b->local, b->out->bound));
    return closed(b) || *done ? AP_OK : fix_and_descend(b, done);
}

static ap_status take_road(block *b)
{
    ap_solver *s = b->s;
    bool done = false, large = s->opt->eliminate && b->depth < LARGE_DEPTH_MAX && ap_large_takes(b->k);
    if (s->opt->eliminate)
        plan_elimination(b, large);
    bool exact = b->elim && b->elim->exact;
    AP_TRY(run_relaxations(b, large, exact, &done));
    bool enough = b->pairs && b->local->found && ap_effort_spent(&s->effort); /* multipliers would begin anew */
    if (!closed(b) && !done && !(large && !exact) && !enough)
        AP_TRY(run_exact(b, large, exact, &done));
    if (!closed(b) && !done && s->opt->eliminate && !s->small && b->depth < LARGE_DEPTH_MAX &&
        b->k->p.npair_demands > 0 && !ap_effort_spent(&s->effort) &&
        (!s->opt->mip || ap_mip_size(s->arena, b->k, MIP_VARIABLES) > MIP_VARIABLES))
        AP_TRY(run_split(b, &done));
    if (!closed(b) && !done && s->opt->mip)
        run_mip(b);
    return AP_OK;
}

static ap_status solve_block(ap_solver *s, const ap_kernel *k, int64_t cutoff, int depth, ap_outcome *out)
{
    *out = (ap_outcome){.left_nodes = k->p.nnodes, .left_edges = k->p.nedges, .proof = AP_PROOF_PRESOLVE};
    ap_kernel_range range;
    bool possible = ap_kernel_range_get(k, &range);
    if (range.magnitude >= AP_COST_MAX)
        return ap_level_too_large(s);
    out->bound = (int64_t)range.least;
    out->infeasible = !possible;
    block b = {.s = s, .k = k, .cutoff = cutoff, .depth = depth, .out = out};
    b.local = ap_local_create(s->arena, k);
    b.local->effort = &s->effort;
    if (!closed(&b) && !in_a_hurry(s, k))
        AP_TRY(take_road(&b));
    bool over = in_a_hurry(s, k) || ap_effort_late(&s->effort);
    if (over && !b.local->found && !out->infeasible && cutoff == INT64_MAX)
        last_resort(&b);
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

static void take_back(ap_solver *s, const ap_solver *inner)
{
    s->effort = inner->effort;
    s->told_cost = inner->told_cost;
    s->told_bound = inner->told_bound;
    s->grace = inner->grace;
}

/* Blocks one after another; a block's cutoff is what the others' bounds leave of the level's. Where presolve has not
 * come to its end there may be thousands: then all is one. */
static ap_status solve_blocks(ap_solver *s, const ap_kernel *k, int64_t cutoff, int depth, bool whole, ap_outcome *out,
                              uint32_t *choice)
{
    uint32_t *block_of = AP_NEW_ARRAY(s->arena, uint32_t, k->p.nnodes);
    uint32_t nblocks = whole ? k->p.nnodes > 0 : ap_kernel_blocks(s->arena, k, block_of);
    ap_kernel *part = AP_NEW_ARRAY(s->arena, ap_kernel, nblocks);
    uint32_t **node = AP_NEW_ARRAY(s->arena, uint32_t *, nblocks);
    int64_t others = 0;
    for (uint32_t i = 0; i < nblocks; i++) {
        ap_kernel_part(s->arena, k, block_of, i, &part[i], &node[i]);
        others += least_cost(&part[i]);
    }
    for (uint32_t i = 0; i < nblocks && !out->infeasible; i++) {
        ap_outcome one;
        others -= least_cost(&part[i]);
        int64_t room = cutoff == INT64_MAX ? INT64_MAX : add_bounds(cutoff, -others);
        ap_solver inner = *s;
        inner.base += (double)others;
        inner.apart |= nblocks > 1;
        AP_TRY(solve_block(&inner, &part[i], room, depth, &one));
        take_back(s, &inner);
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

/* By the rules. False: sums left the range. */
static bool presolve(ap_solver *s, const ap_kernel *k, uint32_t rules, ap_pre **out, ap_kernel *rest,
                     ap_outcome *outcome)
{
    ap_pre *pre = *out = ap_pre_create(s->arena, k);
    ap_kernel_range range;
    pre->rules = rules;
    pre->effort = s->effort;
    if (s->opt->presolve)
        ap_pre_run(pre);
    if (pre->overflow)
        return false;
    outcome->infeasible = pre->infeasible;
    if (pre->infeasible)
        return true;
    ap_pre_extract(pre, rest);
    outcome->infeasible = !ap_kernel_range_get(rest, &range);
    return range.magnitude < AP_COST_MAX;
}

ap_status ap_level_solve(ap_solver *s, const ap_kernel *k, int64_t cutoff, int depth, ap_outcome *out)
{
    if (in_a_hurry(s, k))
        return solve_block(s, k, cutoff, depth, out);
    *out = (ap_outcome){.found = true, .proof = AP_PROOF_PRESOLVE};
    ap_pre *pre;
    ap_kernel rest;
    /* Costs that move from edges to nodes grow; by the other rules no sum of absolute costs does. */
    if (!presolve(s, k, AP_PRE_ALL, &pre, &rest, out) && !presolve(s, k, AP_PRE_ALL & ~AP_PRE_MINIMA, &pre, &rest, out))
        return ap_level_too_large(s);
    out->found = !out->infeasible;
    if (out->infeasible)
        return AP_OK;
    uint32_t *choice = AP_NEW_ARRAY(s->arena, uint32_t, rest.p.nnodes);
    int64_t room = cutoff == INT64_MAX ? INT64_MAX : cutoff - pre->constant;
    ap_solver inner = *s;
    inner.base += (double)pre->constant;
    ap_solver_tell(&inner, "presolve", NULL, INT64_MIN);
    AP_TRY(solve_blocks(&inner, &rest, room, depth, pre->late, out, choice));
    take_back(s, &inner);
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
