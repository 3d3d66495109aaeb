/* Planning: build the problem, solve it, write the answer, price it again. */
#include "passes/plan.h"

#include "ir/base/file.h"
#include "ir/physical.h"
#include "ir/text_form.h"
#include "passes/plan_problem.h"
#include "passes/solve/problem_file.h"

#include <assert.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- when nothing fits ---- */

static int64_t least(const int64_t *x, uint32_t n)
{
    int64_t best = x[0];
    for (uint32_t i = 1; i < n; i++)
        best = ap_min_i64(best, x[i]);
    return best;
}

/* The point at which the sum of the least demands is largest: what no choice can avoid. */
static uint32_t worst_point(const ap_planning *p, int64_t *out_bytes)
{
    int64_t *at = AP_NEW_ARRAY(p->arena, int64_t, p->npoints + 1);
    for (uint32_t i = 0; i < p->demands.len; i++) {
        const ap_demand *d = &p->demands.at[i];
        int64_t bytes = least(d->usage, p->var_n.at[d->node]);
        for (uint32_t t = d->lo; t < d->hi; t++)
            at[t] = ap_sat_add(at[t], bytes);
    }
    uint32_t worst = 0;
    for (uint32_t t = 1; t < p->npoints; t++)
        if (at[t] > at[worst])
            worst = t;
    *out_bytes = at[worst];
    return worst;
}

/* The value that a variable's memory belongs to. */
static ap_value value_of_var(const ap_planning *p, uint32_t var)
{
    for (uint32_t h = 0; h < p->holders.len; h++)
        if (p->holders.at[h].var == var)
            return p->holders.at[h].value;
    for (uint32_t k = 0; k < p->steps.len; k++)
        if (p->steps.at[k].var == var && ap_node_at(p->m, p->steps.at[k].node)->nout > 0)
            return ap_node_at(p->m, p->steps.at[k].node)->out[0];
    return AP_NONE;
}

static void add_contributors(const ap_planning *p, uint32_t point, ap_text *out)
{
    bool *told = AP_NEW_ARRAY(p->arena, bool, p->demands.len);
    for (int rank = 0; rank < 5; rank++) {
        uint32_t best = AP_NONE;
        int64_t most = 0;
        for (uint32_t i = 0; i < p->demands.len; i++) {
            const ap_demand *d = &p->demands.at[i];
            int64_t bytes = least(d->usage, p->var_n.at[d->node]);
            if (!told[i] && d->lo <= point && point < d->hi && bytes > most) {
                best = i;
                most = bytes;
            }
        }
        if (best == AP_NONE)
            return;
        told[best] = true;
        ap_value v = value_of_var(p, p->demands.at[best].node);
        ap_text_addf(out, "%s%s %lld", rank ? ", " : "", v == AP_NONE ? "?" : ap_planning_name(p, v), (long long)most);
    }
}

/* A limit for which a plan is known, close to the least: by bisection between what any plan needs and what the plan
 * without a limit takes, with little work for each. What is proven not to be enough on the way raises *needed. */
static ap_status find_enough(const ap_planning *p, int64_t *needed, int64_t *out)
{
    enum { WORK = 200000, PARTS = 64 }; /* to a 64th of what is needed */
    ap_solve_options options;
    ap_solve_defaults(&options);
    options.work = WORK;
    options.least_peak = false;
    ap_problem q = p->problem;
    ap_solution s;
    int64_t low = ap_max_i64(*needed, 1);
    q.limit = INT64_MAX;
    AP_TRY(ap_solve(p->ctx, p->arena, &q, &options, &s));
    *out = s.result == AP_SOLVED ? s.peak : 0;
    while (*out > 0 && *out - low > low / PARTS) {
        q.limit = low + (*out - low) / 2;
        AP_TRY(ap_solve(p->ctx, p->arena, &q, &options, &s));
        if (s.result == AP_SOLVE_INFEASIBLE)
            *needed = ap_max_i64(*needed, q.limit + 1);
        if (s.result == AP_SOLVED)
            *out = s.peak;
        else
            low = q.limit;
    }
    return AP_OK;
}

static ap_status no_plan(const ap_planning *p, const ap_solution *s)
{
    ap_text who;
    ap_text_init(&who, p->arena);
    int64_t unavoidable;
    uint32_t point = worst_point(p, &unavoidable);
    add_contributors(p, point, &who);
    int64_t peak = ap_max_i64(s->least_peak, unavoidable), limit = p->problem.limit;
    const char *found = s->result == AP_SOLVE_INFEASIBLE ? "no plan fits (proven)" : "no plan found in the time given";
    int64_t enough;
    AP_TRY(find_enough(p, &peak, &enough));
    ap_text known;
    ap_text_init(&known, p->arena);
    if (enough > 0)
        ap_text_addf(&known, "a plan is known for %lld (%lld more), ", (long long)enough,
                     (long long)ap_max_i64(enough - limit, 0));
    return ap_fail(
        p->ctx, AP_ERR_NO_PLAN, 0,
        "%s in %lld bytes per device; %sany plan needs at least %lld; largest per device, each at its least: "
        "%s; more memory per device (--memory), more devices or fewer pins would help",
        found, (long long)limit, ap_text_str(&known), (long long)peak, who.len ? ap_text_str(&who) : "nothing");
}

/* ---- the pass ---- */

static ap_status check_input(ap_ctx *ctx, const ap_module *m, const ap_plan_options *opt)
{
    assert(m->state == AP_STATE_NORMAL && m->funcs.len == 1);
    if (opt->mesh.naxes < 1 || opt->mesh.naxes > AP_MAX_AXES)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "a mesh (--mesh) has 1 to %d axes", AP_MAX_AXES);
    assert(!opt->mesh.ntime || opt->batch);
    int64_t devices = (int64_t)opt->cluster.hosts * opt->cluster.devices_per_host;
    if (ap_mesh_ranks(&opt->mesh) + (int64_t)opt->mesh.first_rank > devices)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "the mesh (--mesh) needs %d devices, cluster %s has %lld",
                       (int)ap_mesh_ranks(&opt->mesh), opt->cluster.name, (long long)devices);
    return AP_OK;
}

static ap_status write_problem(const ap_planning *p)
{
    if (!p->opt->problem_path)
        return AP_OK;
    ap_text t;
    ap_text_init(&t, p->arena);
    ap_problem_print(&p->problem, ap_name_str(p->ctx, p->m->funcs.at[p->func].name), &t);
    return ap_file_write(p->ctx, p->opt->problem_path, ap_text_str(&t), t.len);
}

/* The smaller problem first, when there is one: its solution is one of the whole. */
static ap_status solve_reduced(ap_planning *p, const ap_solve_options *options, ap_solution *out, bool *out_done)
{
    ap_plan_reduced r;
    int64_t cost;
    *out_done = false;
    if (!ap_planning_reduce(p, &r))
        return AP_OK;
    AP_TRY(ap_solve(p->ctx, p->arena, &r.problem, options, out));
    if (out->result != AP_SOLVED)
        return AP_OK;
    uint32_t *choice = AP_NEW_ARRAY(p->arena, uint32_t, p->problem.nnodes);
    ap_planning_expand(p, &r, out->choice, choice);
    out->choice = choice;
    *out_done = ap_problem_evaluate(&p->problem, choice, &cost, &out->peak) && cost == out->cost;
    return AP_OK;
}

static ap_status solve(ap_planning *p, ap_solution *out)
{
    bool done;
    ap_solve_options options, first;
    ap_solve_defaults(&options);
    options.time_limit = p->opt->time_limit;
    options.threads = p->opt->threads;
    if (p->opt->budget > 0)
        options.work = p->opt->budget;
    AP_TRY(write_problem(p));
    first = options;
    first.least_peak = false; /* the whole problem says it */
    AP_TRY(solve_reduced(p, &first, out, &done));
    if (!done && p->opt->memory_price > 0)
        AP_TRY(ap_planning_priced(p, &first, p->opt->memory_price, out, &done));
    if (!done)
        AP_TRY(ap_solve(p->ctx, p->arena, &p->problem, &options, out));
    if (out->result != AP_SOLVED)
        return no_plan(p, out);
    int64_t cost;
    ap_planning_break_ties(p, out->choice);
    if (!ap_problem_evaluate(&p->problem, out->choice, &cost, &out->peak) || cost != out->cost)
        return ap_fail(p->ctx, AP_ERR_BUG, 0, "the solver's plan does not have the cost that it claims");
    return AP_OK;
}

/* Padding that no value needs goes, unless it was of use: on its way a reshard may split what neither end does. */
static ap_status trim(ap_planning *p, ap_plan_result *out)
{
    ap_plan_result trimmed;
    const ap_type *types = ap_module_types(p->m, p->arena);
    ap_module_trim_physical(p->m);
    AP_TRY(ap_plan_evaluate_slots(p->ctx, p->m, &p->opt->cluster, &p->opt->slots, &trimmed));
    trimmed.solver_seconds = out->solver_seconds;
    if (trimmed.cost_ps > out->cost_ps || trimmed.peak_bytes > out->peak_bytes)
        ap_module_set_types(p->m, types);
    else
        *out = trimmed;
    return AP_OK;
}

static ap_status plan(ap_planning *p, ap_solution *s, ap_plan_result *out)
{
    double start = now();
    AP_TRY(solve(p, s));
    double solver_seconds = now() - start;
    AP_TRY(ap_planning_apply(p, s->choice));
    AP_TRY(ap_plan_evaluate_slots(p->ctx, p->m, &p->opt->cluster, &p->opt->slots, out));
    out->solver_seconds = solver_seconds;
    if (out->cost_ps != s->cost || out->peak_bytes > s->peak)
        return ap_fail(p->ctx, AP_ERR_BUG, 0, "the plan costs %lld ps and %lld bytes, the solver says %lld and %lld",
                       (long long)out->cost_ps, (long long)out->peak_bytes, (long long)s->cost, (long long)s->peak);
    return trim(p, out);
}

ap_status ap_planning_open(ap_ctx *ctx, ap_arena *arena, ap_module *m, const ap_plan_options *opt, ap_planning *out)
{
    AP_TRY(check_input(ctx, m, opt));
    ap_batch *batch = opt->mesh.ntime ? AP_NEW(arena, ap_batch) : NULL;
    if (batch)
        AP_TRY(ap_batch_find(ctx, m, opt->batch, arena, batch));
    ap_mesh mesh = ap_module_add_mesh(m, &opt->mesh);
    ap_module_set_physical(m, &opt->mesh, opt->split_force, batch ? batch->alike : NULL, opt->batch_extent);
    return ap_planning_build(ctx, arena, m, mesh, batch, opt, out);
}

/* needs: state normal, one function   gives: state planned; types with shardings, reshards */
ap_status ap_pass_plan(ap_ctx *ctx, ap_module *m, const ap_plan_options *opt, ap_plan_result *out)
{
    double start = now();
    ap_planning p;
    ap_solution s;
    AP_TRY(ap_planning_open(ctx, &ctx->scratch, m, opt, &p));
    AP_TRY(plan(&p, &s, out));
    out->bound_ps = s.bound;
    out->variables = p.problem.nnodes;
    out->strategies = p.nstrategies;
    out->edges = p.problem.nedges;
    out->proof = ap_arena_strdup(&ctx->arena, s.proof ? s.proof : "none");
    out->planning_seconds = now() - start;
    return AP_OK;
}
