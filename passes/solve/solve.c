/* The call: checks the problem, runs the first level, and lets nothing out that the evaluation does not confirm. */
#include "passes/solve/level.h"

#include <inttypes.h>
#include <math.h>

#define DEFAULT_WORK 10000000
#define ROUNDING 1e-8 /* what branch and cut's doubles may leave of a gap, relative */

static const char *const proof_names[] = {"presolve", "elimination", "multipliers", "states", "branch and cut"};

void ap_solve_defaults(ap_solve_options *out)
{
    *out = (ap_solve_options){
        .work = DEFAULT_WORK, .presolve = true, .eliminate = true, .mip = true, .least_peak = true, .threads = 1};
}

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

static ap_status finish(ap_solver *s, ap_arena *arena, const ap_problem *p, const ap_outcome *r, ap_solution *out)
{
    out->left_nodes = r->left_nodes;
    out->left_edges = r->left_edges;
    out->bound = r->bound;
    out->proof = "none";
    if (!r->found) {
        out->result = r->infeasible ? AP_SOLVE_INFEASIBLE : AP_SOLVE_NOT_FOUND;
        if (r->infeasible)
            out->proof = proof_names[r->proof];
        if (p->limit == INT64_MAX || !s->opt->least_peak)
            return AP_OK;
        bool forbidden;
        AP_TRY(ap_peak_bound(s, p, &out->least_peak, &forbidden));
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
    else if (r->proof == AP_PROOF_BRANCHING && (double)(out->cost - out->bound) <= ROUNDING * fabs((double)out->cost))
        out->proof = "branch and cut, up to rounding";
    return AP_OK;
}

static ap_status solve(ap_solver *s, ap_arena *arena, const ap_problem *p, ap_solution *out)
{
    ap_outcome r;
    AP_TRY(check_problem(s->ctx, p));
    ap_kernel k;
    ap_kernel_from_problem(s->arena, p, &k);
    ap_kernel_range range;
    if (!ap_kernel_range_get(&k, &range) || p->limit < 0)
        r = (ap_outcome){.infeasible = true};
    else if (range.magnitude >= AP_COST_MAX)
        return ap_level_too_large(s);
    else
        AP_TRY(ap_level_solve(s, &k, INT64_MAX, 0, &r));
    return finish(s, arena, p, &r, out);
}

ap_status ap_solve(ap_ctx *ctx, ap_arena *arena, const ap_problem *p, const ap_solve_options *opt, ap_solution *out)
{
    *out = (ap_solution){.result = AP_SOLVE_NOT_FOUND, .bound = INT64_MIN, .proof = "none"};
    ap_arena scratch;
    ap_arena_init(&scratch, arena->out_of_memory, arena->user);
    ap_solver s = {.ctx = ctx, .arena = &scratch, .opt = opt, .told_cost = INT64_MAX, .told_bound = INT64_MIN};
    s.effort.work = opt->work > 0 ? opt->work : INT64_MAX;
    s.effort.deadline = opt->time_limit > 0 ? ap_effort_now() + opt->time_limit : 0;
    s.effort.stop = opt->stop;
    ap_status status = solve(&s, arena, p, out);
    ap_arena_deinit(&scratch);
    return status;
}
